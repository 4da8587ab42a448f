"""Tables that stay where they are: a PostgreSQL, a folder of Parquet files, a Spark cluster.

Owners type addresses, so an address could be used to make the hub knock at doors inside its own network. Therefore:
only hosts and folders that the operator has listed; the address a host stands for is looked up once, checked, kept, and
used from then on, so that a name cannot be made to point elsewhere later; no option that names a file or another host;
no link that leads out of a folder. Addresses hold passwords: they are sealed with the dataset's key.
"""

import ipaddress
import json
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from cloister.data.schema import Schema
from cloister.hub.settings import Settings
from cloister.privacy.errors import BadForm, MissingExtra

__all__ = ["Link", "open_source", "read_address"]

_PORTS = {"postgresql": 5432, "sc": 15002}
_OPTIONS: Mapping[str, str] = {  # for PostgreSQL; others could name files to read or other hosts to call
    "sslmode": "disable|allow|prefer|require|verify-ca|verify-full",
    "sslrootcert": "system",
    "options": r"-c ?search_path=[A-Za-z0-9_]+(,[A-Za-z0-9_]+)*",
}
_SPARK_OPTIONS = ("token", "user_id", "use_ssl")
_PARQUET = (".parquet", ".pq")


@dataclass(frozen=True, slots=True)
class Link:
    """A checked connection.

    Attributes:
        kind: postgres, folder or spark.
        place: what may be shown of it: no user, no password.
        address: how to open it; a secret.
    """

    kind: str
    place: str
    address: str

    def to_bytes(self) -> bytes:
        """For sealing."""
        return json.dumps([self.kind, self.place, self.address]).encode()

    @classmethod
    def from_bytes(cls, raw: bytes) -> "Link":
        """What was sealed."""
        return cls(*json.loads(raw))


def read_address(settings: Settings, text: str) -> Link:
    """Check an address that somebody typed.

    Raises:
        BadForm: it is not of a known kind, or the operator has not listed its host or folder.
    """
    text = text.strip()
    if len(text) > 2000 or not text.isprintable():
        raise BadForm("address: at most 2,000 printable characters.")
    if text.startswith("/"):
        return _folder(settings, text)
    scheme = text.partition("://")[0].lower()
    if scheme in ("postgresql", "postgres"):
        return _postgres(settings, text)
    if scheme == "sc":
        return _spark(settings, text)
    raise BadForm(
        "address: write postgresql://user:password@host/database, sc://host:port (Spark), or the path of a folder."
    )


# Hosts


def _postgres(settings: Settings, text: str) -> Link:
    host, port, parts = _host(settings, text, "postgresql")
    given = parse_qsl(parts.query, keep_blank_values=True)
    for name, value in given:
        if not re.fullmatch(_OPTIONS.get(name, "(?!)"), value):
            raise BadForm(f"address: the option {name!r:.40} is not taken. Options are {', '.join(_OPTIONS)}.")
    database = unquote(parts.path.lstrip("/"))
    if parts.fragment or "/" in database or "=" in database or not database:
        raise BadForm("address: write postgresql://user:password@host/database.")
    address = _pinned(host, port)
    # Without a passfile libpq would read that of the hub's own account.
    fixed = {"hostaddr": address, "passfile": "/dev/null", "connect_timeout": "10"}
    secret = "" if parts.password is None else ":" + quote(unquote(parts.password), safe="")
    who = f"{quote(unquote(parts.username or ''), safe='')}{secret}@" if parts.username else ""
    query = urlencode({**dict(given), **fixed}, quote_via=quote)
    place = f"[{host}]" if ":" in host else host
    opened = f"postgresql://{who}{place}:{port}/{quote(database, safe='')}?{query}"
    return Link("postgres", f"PostgreSQL {database} on {host}:{port}", opened)


def _spark(settings: Settings, text: str) -> Link:
    host, port, parts = _host(settings, text, "sc")
    options = [one.partition("=") for one in parts.path.lstrip("/;").split(";") if one]
    if parts.query or parts.fragment or any(name not in _SPARK_OPTIONS for name, _, _ in options):
        raise BadForm(f"address: write sc://host:port/;token=…; options are {', '.join(_SPARK_OPTIONS)}.")
    address = _pinned(host, port)
    place = f"[{address}]" if ":" in address else address
    opened = f"sc://{place}:{port}/;" + ";".join(f"{name}={value}" for name, _, value in options)
    return Link("spark", f"Spark on {host}:{port}", opened)


def _host(settings: Settings, text: str, scheme: str) -> tuple[str, int, Any]:
    try:
        parts = urlsplit(text)
        host, port = (parts.hostname or "").rstrip("."), parts.port or _PORTS[scheme]
    except ValueError:
        raise BadForm("address: the host or the port cannot be read.") from None
    if not re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?|[0-9a-f:]+", host):
        raise BadForm("address: name one host. Sockets and lists of hosts are not taken.")
    listed = {one.strip().lower() for one in settings.connect_hosts.split(",") if one.strip()}
    if host not in listed and f"{host}:{port}" not in listed:
        raise BadForm(f"address: the host {host:.100} is not on this hub's list. Ask its operator to add it.")
    return host, port, parts


def _pinned(host: str, port: int) -> str:
    """The address a host stands for today. All it stands for must be harmless, or none is used."""
    try:
        found = {str(one[4][0]).partition("%")[0] for one in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
    except OSError:
        raise BadForm(f"address: the host {host:.100} cannot be found.") from None
    addresses = [ipaddress.ip_address(one) for one in sorted(found)]
    plain = [getattr(one, "ipv4_mapped", None) or one for one in addresses]
    for one in plain:
        own = one.is_loopback and host != "localhost" and host != str(one)  # a name that was made to point at us
        if own or one.is_link_local or one.is_multicast or one.is_unspecified or (one.is_reserved and one.version == 4):
            raise BadForm(f"address: the host {host:.100} stands for an address that is never called.")
    return str(min(plain, key=lambda one: one.version))


# Folders


def _folder(settings: Settings, text: str) -> Link:
    path = _allowed(settings, text)
    return Link("folder", f"the folder {path.name}", str(path))


def _allowed(settings: Settings, text: str) -> Path:
    """The folder, if it lies in one that is listed, wherever links may lead."""
    listed = [Path(one.strip()).resolve() for one in settings.connect_folders.split(",") if one.strip()]
    path = Path(text).resolve()
    if not any(path.is_relative_to(one) for one in listed) or not path.is_dir():
        # One sentence for both: whether a path exists outside the listed folders is nobody's business.
        raise BadForm("address: this is no folder in one that this hub's operator has listed.")
    return path


def _files(settings: Settings, text: str, schema: Schema) -> dict[str, str]:
    """For each table NAME.parquet or the folder NAME; the whole folder, if there is one table only."""
    folder = _allowed(settings, text)
    for place, folders, files in os.walk(folder):
        if any((Path(place) / name).is_symlink() for name in (*folders, *files)):
            raise BadForm("address: the folder holds a link. Put the files themselves there.")
    found: dict[str, str] = {}
    for name in schema.tables:
        if Path(name).name != name:
            raise BadForm(f"the table {name!r:.60} cannot be the name of a file. Rename it.")
        choices = [folder / f"{name}{ending}" for ending in _PARQUET] + [folder / name]
        alone = [folder] if len(schema.tables) == 1 and any(folder.glob("*.parquet")) else []
        place_of = next((one for one in choices + alone if one.exists()), None)
        if place_of is None:
            raise BadForm(f"the folder has neither {name}.parquet nor a folder {name}.")
        found[name] = str(place_of)
    return found


# Opening


def open_source(settings: Settings, link: Link, schema: Schema) -> object:
    """What `cloister.data.tables.open_tables` opens. The list of hosts and folders is asked again."""
    if link.kind == "folder":
        return _files(settings, link.address, schema)
    if link.kind == "postgres":
        _host(settings, link.address.partition("?")[0], "postgresql")
        return link.address
    if link.kind == "spark":
        _still_listed(settings, link)
        return _session(link.address)
    raise BadForm("this kind of connection is not known.")


def _still_listed(settings: Settings, link: Link) -> None:
    _host(settings, "sc://" + link.place.removeprefix("Spark on "), "sc")


def _session(address: str) -> Any:
    try:
        import_module("grpc")
        from pyspark.sql.connect.session import SparkSession
    except ImportError:
        raise MissingExtra("Spark by address needs Spark Connect. Run: pip install 'cloister[spark]'") from None
    return SparkSession.builder.remote(address).getOrCreate()
