"""What a form sent, read safely: text is trimmed, missing fields are named, files are kept apart."""

from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from starlette.datastructures import FormData, UploadFile

from cloister.privacy.errors import BadForm

__all__ = ["Form", "inside"]


class Form(Mapping[str, str]):
    """The fields of a form, as text. A field sent twice counts by its last value here; `all` has every one."""

    def __init__(self, data: FormData | None = None) -> None:
        self._texts: dict[str, list[str]] = {}
        self._files: dict[str, UploadFile] = {}
        for name, value in data.multi_items() if data is not None else ():
            if isinstance(value, UploadFile):
                if value.filename:
                    self._files[name] = value
            else:
                # Browsers send line ends as CRLF, whatever the page or the person wrote.
                self._texts.setdefault(name, []).append(value.replace("\r\n", "\n").replace("\x00", ""))

    def __getitem__(self, name: str) -> str:
        return self._texts[name][-1]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def text(self, name: str, label: str = "", most: int = 2000) -> str:
        """A field that must be filled in, trimmed.

        Args:
            name: of the field.
            label: what the page calls it.
            most: how many characters are taken.
        """
        value = self.get(name, "").strip()
        if not value:
            raise BadForm(f"'{label or name}' is missing.")
        if len(value) > most:
            raise BadForm(f"'{label or name}' may have {most:,} characters, and has {len(value):,}.")
        return value

    def maybe(self, name: str, most: int = 2000) -> str:
        """A field that may be empty, trimmed."""
        return self.text(name, most=most) if self.get(name, "").strip() else ""

    def number(self, name: str, label: str = "", low: int = 0, high: int = 10**9) -> int:
        """A whole number within limits."""
        text = self.text(name, label, most=20)
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and low <= int(text) <= high):
            raise BadForm(f"'{label or name}' must be a whole number from {low:,} to {high:,}.")
        return int(text)

    def ticked(self, name: str) -> bool:
        """Whether a box is ticked."""
        return self.get(name, "") not in ("", "0", "no", "false")

    def all(self, name: str) -> list[str]:
        """Every value of a field that may come several times, trimmed, without empty ones."""
        return [value.strip() for value in self._texts.get(name, []) if value.strip()]

    def file(self, name: str) -> UploadFile | None:
        """A file that was sent, or None."""
        return self._files.get(name)


def inside(address: str, otherwise: str = "/") -> str:
    """The path if it leads to a page of this hub, else another one: a link must not send people to strangers."""
    parts = urlsplit(address)
    plain = address.startswith("/") and not address.startswith(("//", "/\\")) and address.isprintable()
    return address if plain and not parts.netloc and not parts.scheme and "\\" not in address else otherwise
