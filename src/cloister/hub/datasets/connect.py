"""Connected tables that stay where they are: PostgreSQL, a folder of Parquet files, a Spark cluster.

Owners type addresses, so an address could make the hub connect to hosts inside its own network. Therefore:

- Only hosts and folders are allowed that the operator has listed for the dataset's organisation. The list is checked
  when an address is typed and again whenever it is opened.
- A host name is resolved once; the address is checked, stored, and used from then on, so that the name cannot be
  redirected later.
- No option may name a file or another host.
- No symbolic link is followed: files are opened once, checked, and read through the open descriptor.
- Addresses hold passwords: they are sealed with the dataset's key.
"""

import ipaddress
import json
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from cloister.data.pinned_files import PinnedFiles, PinnedTable
from cloister.data.schema import Schema
from cloister.hub.core.models import Dataset
from cloister.hub.core.settings import Settings
from cloister.privacy.errors import BadForm, BadSource, MissingExtra

__all__ = ["Link", "open_source", "read_address"]

_PORTS = {"postgresql": 5432, "sc": 15002}
_OPTIONS: Mapping[str, str] = {  # for PostgreSQL; others could name files to read or other hosts to call
    "sslmode": "disable|allow|prefer|require|verify-ca|verify-full",
    "sslrootcert": "system",
    "options": r"-c ?search_path=[A-Za-z0-9_]+(,[A-Za-z0-9_]+)*",
}
_ENCRYPTED = ("require", "verify-ca", "verify-full")
_SPARK_OPTIONS = ("token", "user_id", "use_ssl")
_PARQUET = (".parquet", ".pq")


@dataclass(frozen=True, slots=True)
class Link:
    """Checked connection.

    Attributes:
        kind: postgres, folder or spark.
        place: the part that may be shown: no user, no password.
        address: the full address; a secret.
    """

    kind: str
    place: str
    address: str

    def to_bytes(self) -> bytes:
        """Return the bytes to seal."""
        return json.dumps([self.kind, self.place, self.address]).encode()

    @classmethod
    def from_bytes(cls, raw: bytes) -> "Link":
        """Return the connection in the unsealed bytes."""
        return cls(*json.loads(raw))


def read_address(settings: Settings, dataset: Dataset, text: str) -> Link:
    """Check an address that the dataset's owner typed. It resolves the host: do not call it inside a transaction.

    Raises:
        BadForm: it is not of a known kind, or the operator has not listed its host or folder for the organisation that
            the dataset belongs to.
    """
    text = text.strip()
    if len(text) > 2000 or not text.isprintable():
        raise BadForm("address: at most 2,000 printable characters.")
    if text.startswith("/"):
        path = _allowed(settings, dataset, text)
        return Link("folder", f"the folder {path.name}", str(path))
    scheme = text.partition("://")[0].lower()
    if scheme in ("postgresql", "postgres"):
        return _postgres(settings, dataset, text)
    if scheme == "sc":
        return _spark(settings, dataset, text)
    raise BadForm(
        "address: write postgresql://user:password@host:port/database, sc://host:port (Spark), or the path of a folder."
    )


# Hosts


def _postgres(settings: Settings, dataset: Dataset, text: str) -> Link:
    host, port, parts = _host(settings, dataset, text, "postgresql")
    options = parse_qsl(parts.query, keep_blank_values=True)
    for name, value in options:
        if not re.fullmatch(_OPTIONS.get(name, "(?!)"), value):
            raise BadForm(f"address: the option {name!r:.40} is not taken. Options are {', '.join(_OPTIONS)}.")
    database = unquote(parts.path.lstrip("/"))
    if parts.fragment or "/" in database or "=" in database or not database:
        raise BadForm("address: write postgresql://user:password@host/database.")
    address = _pinned(host, port)
    # Without a passfile option libpq would read that of the hub's own account.
    fixed = {"hostaddr": address, "passfile": "/dev/null", "connect_timeout": "10"}
    secret = "" if parts.password is None else ":" + quote(unquote(parts.password), safe="")
    who = f"{quote(unquote(parts.username or ''), safe='')}{secret}@" if parts.username else ""
    query = _encrypted({**dict(options), **fixed})
    opened = f"postgresql://{who}{_bracketed(host)}:{port}/{quote(database, safe='')}?{query}"
    return Link("postgres", f"PostgreSQL {database} on {host}:{port}", opened)


def _spark(settings: Settings, dataset: Dataset, text: str) -> Link:
    host, port, parts = _host(settings, dataset, text, "sc")
    options = [part.partition("=") for part in parts.path.lstrip("/;").split(";") if part]
    if parts.query or parts.fragment or any(name not in _SPARK_OPTIONS for name, _, _ in options):
        raise BadForm(f"address: write sc://host:port/;token=…; options are {', '.join(_SPARK_OPTIONS)}.")
    address = _pinned(host, port)
    parameters = {name: value for name, _, value in options}
    if not ipaddress.ip_address(address).is_loopback and parameters.setdefault("use_ssl", "true").lower() != "true":
        raise BadForm("address: rows would travel in clear, and this server is on another machine. Use use_ssl=true.")
    opened = f"sc://{_bracketed(address)}:{port}/;" + ";".join(f"{name}={value}" for name, value in parameters.items())
    return Link("spark", f"Spark on {_bracketed(host)}:{port}", opened)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _encrypted(options: dict[str, str]) -> str:
    """Return the options of a PostgreSQL address as a query string; TLS is required unless the server is local."""
    loopback = ipaddress.ip_address(options["hostaddr"]).is_loopback
    # libpq's default falls back to plaintext if the server refuses TLS: rows would travel in clear.
    if not loopback and options.setdefault("sslmode", "require") not in _ENCRYPTED:
        raise BadForm(
            f"address: with sslmode={options['sslmode']} rows could travel in clear, and this server is on another "
            f"machine. Use one of {', '.join(_ENCRYPTED)}."
        )
    return urlencode(options, quote_via=quote)


def _host(settings: Settings, dataset: Dataset, text: str, scheme: str) -> tuple[str, int, Any]:
    try:
        parts = urlsplit(text)
        host, port = (parts.hostname or "").rstrip("."), parts.port or _PORTS[scheme]
    except ValueError:
        raise BadForm("address: the host or the port cannot be read.") from None
    if not re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?|[0-9a-f:]+", host):
        raise BadForm("address: name one host. Sockets and lists of hosts are not taken.")
    if f"{host}:{port}" not in settings.hosts_of(_organisation(dataset)):
        # The same message whether it is listed for others or not at all: connections of others are not revealed.
        raise BadForm(
            f"address: {host:.100}:{port} is not on this hub's list for your organisation. Ask its operator to add it."
        )
    return host, port, parts


def _pinned(host: str, port: int) -> str:
    """Resolve a host to one address. All its addresses must be allowed, or none is used."""
    try:
        resolved = {
            str(info[4][0]).partition("%")[0] for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        }
    except OSError:
        raise BadForm(f"address: the host {host:.100} cannot be found.") from None
    addresses = [ipaddress.ip_address(text) for text in sorted(resolved)]
    plain = [getattr(address, "ipv4_mapped", None) or address for address in addresses]
    for address in plain:
        # A name that was redirected to this machine:
        redirected = address.is_loopback and host != "localhost" and host != str(address)
        if (
            redirected
            or address.is_link_local
            or address.is_multicast
            or address.is_unspecified
            or (address.is_reserved and address.version == 4)
        ):
            raise BadForm(f"address: the host {host:.100} stands for an address that is never called.")
    return str(min(plain, key=lambda candidate: candidate.version))


def _organisation(dataset: Dataset) -> str:
    """Return the organisation of a dataset; entries of a list belong to no other."""
    return "" if dataset.organisation is None else dataset.organisation.name


# Folders


def _allowed(settings: Settings, dataset: Dataset, text: str) -> Path:
    """Return the folder, if it is inside a listed folder of the dataset's organisation after resolving links."""
    path = Path(text).resolve()
    if (
        not any(path.is_relative_to(folder) for folder in settings.folders_of(_organisation(dataset)))
        or not path.is_dir()
    ):
        # One message for all: the existence of paths outside their own folders is not revealed.
        raise BadForm("address: this is no folder in one that this hub's operator has listed for your organisation.")
    return path


def _files(settings: Settings, dataset: Dataset, text: str, schema: Schema) -> dict[str, PinnedTable]:
    """Return for each table NAME.parquet or the folder NAME; the whole folder, if there is one table only.

    The files are opened here, from the listed folder on and without following a link, and are read through the open
    descriptors. Otherwise a user who can write into the folder could put a link to another file there after the check.
    """
    folder = _allowed(settings, dataset, text)
    if str(folder) != text:  # since it was typed, a part of the path has become a link
        raise BadForm("address: a link leads to this folder by now. Connect the folder itself.")
    for name in schema.tables:
        if Path(name).name != name:
            raise BadForm(f"the table {name!r:.60} cannot be the name of a file. Rename it.")
    try:
        pinned = PinnedFiles(folder)
    except BadSource as error:
        raise BadForm(f"address: {str(error).removeprefix(f'{error.code}: ')}") from None
    tables: dict[str, PinnedTable] = {}
    for name in schema.tables:
        names = [*(f"{name}{ending}" for ending in _PARQUET), name]
        table = pinned.table(names, whole=len(schema.tables) == 1)
        if table is None:
            pinned.close()
            raise BadForm(f"the folder has neither {name}.parquet nor a folder {name} with Parquet files.")
        tables[name] = table
    return tables


# Opening


def open_source(settings: Settings, dataset: Dataset, link: Link, schema: Schema) -> object:
    """Return the source that `cloister.data.tables.open_tables` opens. The organisation's list is checked again.

    Raises:
        BadForm: the operator has taken the host or folder off the list of the dataset's organisation.
    """
    if link.kind == "folder":
        return _files(settings, dataset, link.address, schema)
    if link.kind == "postgres":
        base, _, query = link.address.partition("?")
        _host(settings, dataset, base, "postgresql")
        return f"{base}?{_encrypted(dict(parse_qsl(query)))}"
    if link.kind == "spark":
        _host(settings, dataset, "sc://" + link.place.removeprefix("Spark on "), "sc")
        return _session(link.address)
    raise BadForm("this kind of connection is not known.")


def _session(address: str) -> Any:
    try:
        import_module("grpc")
        from pyspark.sql.connect.session import SparkSession
    except ImportError:
        raise MissingExtra("Spark by address needs Spark Connect. Run: pip install 'cloister[spark]'") from None
    return SparkSession.builder.remote(address).getOrCreate()
