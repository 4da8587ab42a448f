"""Refused forms, rendered again as they were filled in: never passwords, one-time codes or files.

a handler draws its page again ─► page() fills the form in                  (context.py)
a handler only raises          ─► the page the form was on, filled in       (problems.py)
the page is long, or has no such form; a stranger's wrong CSRF token        ─► the problem alone
"""

import re
from collections.abc import Sequence
from html import escape
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

from fastapi import Request
from starlette.datastructures import FormData

from cloister.hub.web.forms import inside

__all__ = ["PAGE", "Refill", "page_of", "referer", "refilled", "sent_by"]

PAGE = "cloister-page"  # the field in which a repeated form names its page
_TYPED = ("checkbox", "file", "hidden", "image", "password", "radio", "reset", "submit")  # inputs without typed text
_SECRET = ("one-time-code", "current-password", "new-password")  # autocomplete values of a field

_ADDRESS = "data-address"  # attribute of a field for the address of tables, which may hold a password or a token
_LONGEST = 1_000_000  # characters of a page
_MOST_SIGNS = 20_000  # its tags and entities: each is a step of the parser


def sent_by(request: Request) -> list[tuple[str, str]] | None:
    """Return the texts of a form that was read; None if none was."""
    sent: FormData | None = getattr(request, "_form", None)
    return None if sent is None else [(name, value) for name, value in sent.multi_items() if isinstance(value, str)]


def page_of(request: Request) -> str:
    """Return the address of a form's page; empty if unknown."""
    return inside(dict(sent_by(request) or ()).get(PAGE, "") or referer(request), "")


def referer(request: Request) -> str:
    """Return the page of this hub from which the request came, as a path; empty if there is none."""
    parts = urlsplit(request.headers.get("referer", ""))
    if not parts.netloc or parts.netloc != request.headers.get("host", ""):
        return ""
    return inside(parts.path + (f"?{parts.query}" if parts.query else ""), "")


def refilled(request: Request, words: str) -> str:
    """Return a page that answers a refused form, with that form filled in as it was sent; as it is if that is long."""
    sent = sent_by(request)
    if sent is None:
        return words
    return Refill(request.url.path, request.url.path, sent, page_of(request)).of(words) or words


class Refill(HTMLParser):
    """Page with one of its forms filled in as it was sent. Secrets and files are never filled in.

    Args:
        here: the page's path, to which forms without an action send.
        action: the path that the form was sent to.
        sent: the texts that were sent.
        page: the address at which the page is found again; the form says it from then on. Empty: unknown.
        notice: HTML to insert above everything else.
    """

    def __init__(self, visitor: str, action: str, sent: Sequence[tuple[str, str]], page: str, notice: str = "") -> None:
        super().__init__(convert_charrefs=False)
        self._here, self._action, self._page, self._notice = visitor, action, page, notice
        self._values: dict[str, list[str]] = {}
        for name, value in sent:
            self._values.setdefault(name, []).append(value)
        self._forms: list[dict[str, str]] = []  # the hidden fields of the forms that send to this address
        self._names: list[set[str]] = []  # for each of them, the names of all its fields
        self._folds: list[list[int]] = []  # for each of them, the <details> around it
        self._wanted, self._opened = -1, list[int]()
        self._out: list[str] | None = None

    def of(self, words: str) -> str | None:
        """Fill in the form that sends to this address; of several, the one with the fields that were sent.

        In a thread: a long page takes some tenths of a second.

        Returns:
            The page; None if it has no form that sends to this address, or is too long to be read.
        """
        if len(words) > _LONGEST or words.count("<") + words.count("&") > _MOST_SIGNS:
            return None
        self._read(words)
        if not self._forms:
            return None
        self._wanted, self._out = self._sent_one(), []
        self._opened = self._folds[self._wanted] if self._wanted >= 0 else []
        self._forms, self._folds, self._names = [], [], []
        self._read(words)
        return "".join(self._out)

    def _sent_one(self) -> int:
        """Return the index of the sent form: the first with these hidden values and fields, or values only; or -1."""
        fitting = [at for at, hidden in enumerate(self._forms) if all(self._said(*pair) for pair in hidden.items())]
        sent = self._values.keys() - {"csrf", PAGE}
        complete = [at for at in fitting if sent <= self._names[at]]
        return next(iter(complete or fitting), 0 if len(self._forms) == 1 else -1)

    def _read(self, words: str) -> None:
        self.reset()
        self._inside, self._select, self._skip = False, "", False
        self._around, self._details = list[int](), 0
        self.feed(words)
        self.close()

    def _said(self, name: str, value: str) -> bool:
        return name == "csrf" or value in self._values.get(name, [])

    def _write(self, text: str | None) -> None:
        if self._out is not None and not self._skip and text:
            self._out.append(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Copy a tag; in the form that was sent, with the value that was sent."""
        attributes = {name: value or "" for name, value in attrs}
        text = self.get_starttag_text()
        if tag == "form" and self._leads(attributes.get("action") or self._here):
            self._forms.append({})
            self._names.append(set())
            self._folds.append(list(self._around))
            self._inside = len(self._forms) - 1 == self._wanted or self._out is None
            self._write(text)
            if self._inside and self._page:
                self._write(f'<input type="hidden" name="{PAGE}" value="{escape(self._page)}">')
            return
        if tag == "details":
            self._around.append(self._details)
            if self._details in self._opened:
                text = _tag(tag, {**attributes, "open": ""})
            self._details += 1
        if self._inside:
            text = self._filled(tag, attributes, text)
        self._write(text)
        if tag == "main":
            self._write(self._notice)
        if self._inside and tag in ("input", "select", "textarea", "button"):
            self._names[-1].add(attributes.get("name", ""))
        if tag == "textarea" and self._inside and self._out is not None:
            self._write("\n" + escape("".join(self._values.get(attributes.get("name", ""), [])[-1:])))
            self._skip = True

    def _filled(self, tag: str, attributes: dict[str, str], text: str | None) -> str | None:
        name, kind = attributes.get("name", ""), attributes.get("type", "text")
        if self._out is None:
            if tag == "input" and kind == "hidden":
                self._forms[-1][name] = attributes.get("value", "")
            return text
        values = self._values.get(name, [])
        if tag == "input" and kind not in _TYPED and attributes.get("autocomplete") not in _SECRET and values:
            kept = _address_without_secret if _ADDRESS in attributes else _without_password
            return _tag(tag, {**attributes, "value": kept(values[-1])})
        if tag == "input" and kind in ("checkbox", "radio"):
            return _tag(tag, _marked(attributes, "checked", attributes.get("value", "on") in values))
        if tag == "select":
            self._select = name
        if tag == "option" and self._select in self._values:
            return _tag(tag, _marked(attributes, "selected", attributes.get("value", "") in self._values[self._select]))
        return text

    def _leads(self, action: str) -> bool:
        """Return True if a form with this action sends to the address; a query may carry a CSRF token."""
        return unquote(urlsplit(action).path) == self._action

    def handle_endtag(self, tag: str) -> None:
        """Copy a closing tag."""
        if tag == "textarea":
            self._skip = False
        if tag == "details" and self._around:
            self._around.pop()
        self._write(f"</{tag}>")
        if tag == "form":
            self._inside = False

    def handle_data(self, data: str) -> None:
        """Copy text."""
        self._write(data)

    def handle_entityref(self, name: str) -> None:
        """Copy &name;."""
        self._write(f"&{name};")

    def handle_charref(self, name: str) -> None:
        """Copy &#number;."""
        self._write(f"&#{name};")

    def handle_comment(self, data: str) -> None:
        """Copy a comment."""
        self._write(f"<!--{data}-->")

    def handle_decl(self, decl: str) -> None:
        """Copy the document type."""
        self._write(f"<!{decl}>")


def _marked(attributes: dict[str, str], word: str, so: bool) -> dict[str, str]:
    return {**attributes, word: ""} if so else {name: value for name, value in attributes.items() if name != word}


def _tag(tag: str, attributes: dict[str, str]) -> str:
    return f"<{tag}" + "".join(f' {name}="{escape(value)}"' for name, value in attributes.items()) + ">"


def _without_password(text: str) -> str:
    """Return an address without user, password and options, any of which may be secret; other text without passwords.

    >>> _without_password("postgresql://ann:s3cr/t@host:5432/visits?sslmode=require&password=s3cret")
    'postgresql://host:5432/visits'
    >>> _without_password("sc://host:15002/;token=s3cret")
    'sc://host:15002/'
    """
    if re.match(r"\s*[\w+.-]+://", text):
        text = re.sub(r"^(\s*[\w+.-]+://).*@", r"\1", text, flags=re.DOTALL)
        text = re.split(r"[?;]", text, maxsplit=1)[0]
    return re.sub(r"(?i)(\b(?:password|pwd)=)[^&\s]*", r"\1", text)


def _address_without_secret(text: str) -> str:
    """Return the address of tables if none of its parts can be a secret, else nothing.

    What was refused may be misspelt in any way, so that nobody can say where a password begins. Only the path of a
    folder and a server of Spark without options come back.

    >>> _address_without_secret("/data/visits"), _address_without_secret("sc://host:15002")
    ('/data/visits', 'sc://host:15002')
    >>> _address_without_secret("postgresql:/ann:s3cret@host/visits")
    ''
    """
    return text if re.fullmatch(r"(?!//)/[\w./ -]*|sc://[A-Za-z][\w.-]*(:\d{1,5})?/?", text.strip()) else ""
