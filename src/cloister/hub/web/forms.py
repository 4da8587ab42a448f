"""Submitted forms, read safely: text is trimmed, missing fields are named, files are kept apart."""

from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from starlette.datastructures import FormData, UploadFile

from cloister.privacy.errors import BadForm

__all__ = ["Form", "inside"]


class Form(Mapping[str, str]):
    """Fields of a form, as text. For a repeated field the last value counts; `all` has every one."""

    def __init__(self, data: FormData | None = None) -> None:
        self._texts: dict[str, list[str]] = {}
        self._files: dict[str, UploadFile] = {}
        for name, value in data.multi_items() if data is not None else ():
            if isinstance(value, UploadFile):
                if value.filename:
                    self._files[name] = value
            else:
                # Browsers send line ends as CRLF, whatever was typed.
                self._texts.setdefault(name, []).append(value.replace("\r\n", "\n").replace("\x00", ""))

    def __getitem__(self, name: str) -> str:
        return self._texts[name][-1]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def text(self, name: str, label: str = "", most: int = 2000) -> str:
        """Return a required field, trimmed.

        Args:
            name: the name of the field.
            label: the label on the page.
            most: the largest number of characters.
        """
        value = self.get(name, "").strip()
        if not value:
            raise BadForm(f"'{label or name}' is missing.")
        if len(value) > most:
            raise BadForm(f"'{label or name}' may have {most:,} characters, and has {len(value):,}.")
        return value

    def maybe(self, name: str, most: int = 2000) -> str:
        """Return an optional field, trimmed."""
        return self.text(name, most=most) if self.get(name, "").strip() else ""

    def number(self, name: str, label: str = "", low: int = 0, high: int = 10**9) -> int:
        """Return a whole number within limits."""
        text = self.text(name, label, most=20)
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and low <= int(text) <= high):
            raise BadForm(f"'{label or name}' must be a whole number from {low:,} to {high:,}.")
        return int(text)

    def ticked(self, name: str) -> bool:
        """Return True if a box is ticked."""
        return self.get(name, "") not in ("", "0", "no", "false")

    def all(self, name: str) -> list[str]:
        """Return every value of a repeated field, trimmed, without empty ones."""
        return [value.strip() for value in self._texts.get(name, []) if value.strip()]

    def file(self, name: str) -> UploadFile | None:
        """Return an uploaded file, or None."""
        return self._files.get(name)


def inside(address: str, otherwise: str = "/") -> str:
    """Return the path if it is a page of this hub, else the default: prevents open redirects."""
    parts = urlsplit(address)
    plain = address.startswith("/") and not address.startswith(("//", "/\\")) and address.isprintable()
    return address if plain and not parts.netloc and not parts.scheme and "\\" not in address else otherwise
