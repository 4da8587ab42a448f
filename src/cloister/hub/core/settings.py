"""Settings of the hub, from environment variables only. docs/hub-settings.md is generated from this file."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, get_type_hints
from urllib.parse import urlsplit

from cloister.privacy.errors import BadName

__all__ = ["Settings"]

_Place = TypeVar("_Place")


def _setting(default: Any, meaning: str) -> Any:
    return field(default=default, metadata={"meaning": meaning})


@dataclass(frozen=True)
class Settings:
    """A hub's settings. Each is read from CLOISTER_ and its name in capitals, such as CLOISTER_FOLDER."""

    folder: Path = _setting(Path("cloister-hub"), "folder of everything: database, ledger, sealed tables, keys, logs")
    database_url: str = _setting("", "the hub's database; hub.db in the folder unless this names a PostgreSQL")
    ledger_url: str = _setting("", "the ledger; ledger.db in the folder unless this names a PostgreSQL")
    head_file: str = _setting("", "where the ledger's newest head is kept; best on another disk; head in the folder")
    master_key: str = _setting("", "the key that wraps all data keys, 64 hexadecimal digits; or use the file")
    master_key_file: str = _setting("", "a file with that key; master.key in the folder, made by `cloister hub init`")
    name: str = _setting("Cloister", "what the pages call this hub")
    address: str = _setting("http://127.0.0.1:8400", "how browsers reach the hub; https makes cookies secure")
    hosts: str = _setting("", "further names under which browsers reach the hub, with commas; others are refused")
    host: str = _setting("127.0.0.1", "which address to listen on")
    port: int = _setting(8400, "which port to listen on")
    web_processes: int = _setting(2, "how many processes serve pages")
    worker_processes: int = _setting(2, "how many processes run jobs; 0 if they run elsewhere (`cloister hub worker`)")
    open_sign_up: bool = _setting(False, "whether anybody may make an account; otherwise by invitation")
    require_totp: bool = _setting(False, "whether everybody must use a second factor")
    session_hours: int = _setting(12, "after how many hours a session ends")
    login_tries: int = _setting(8, "how many wrong passwords lock an account for lock_minutes")
    lock_minutes: int = _setting(15, "for how long it is locked")
    requests_per_minute: int = _setting(600, "how many requests one person or address may make a minute")
    answers_per_minute: int = _setting(
        2_000, "how many requests for surveys one address may make a minute; no address is kept"
    )
    survey_batch: int = _setting(20, "how many new survey answers are shown at once, at least; fewer are held back")
    upload_gb: int = _setting(10, "how large an upload may be, in GB")
    job_memory: str = _setting("2GB", "how much memory an engine may use for one job")
    job_seconds: int = _setting(600, "how long a job may take")
    prepare_seconds: int = _setting(3600, "how long sealing the tables of a new version may take")
    schema_kb: int = _setting(200, "how long a schema may be, in KB of YAML")
    connect_hosts: str = _setting(
        "",
        "which hosts the owners of an organisation may connect to: `organisation=host:port`, several with commas (with "
        "semicolons if a name has a comma); none unless named",
    )
    connect_folders: str = _setting(
        "",
        "which folders the owners of an organisation may connect: `organisation=/path`, several in the same way, each "
        "by its real path (not a link); none unless named",
    )
    result_cells: int = _setting(100_000, "how many cells the answer to one question may have")
    result_mb: int = _setting(64, "how large one result may be, in MB")
    predictions_per_day: int = _setting(100_000, "how many rows one person may ask one trained model about in 24 hours")
    datasets_per_owner: int = _setting(200, "how many datasets one data owner may have")
    results_mb: int = _setting(
        1000,
        "how many MB of results are kept for one person, with uploaded tables; a job under way counts with the most "
        "that its result may have",
    )
    plan_processes: int = _setting(2, "how many processes make plans, for each process that serves pages")
    plan_memory: str = _setting("1GB", "how much memory making one plan may take")
    plan_seconds: int = _setting(30, "how long making one plan may take")
    country: str = _setting("", "where this hub stands, as two letters; policies may ask for it")
    trusted_proxies: str = _setting("", "addresses of proxies whose X-Forwarded-For is believed, with commas")
    mail_folder: str = _setting("", "write e-mails as files into this folder")
    smtp_url: str = _setting("", "send e-mails through smtp://user:password@host:port")
    mail_from: str = _setting("cloister@localhost", "the sender of e-mails")
    metrics_token: str = _setting("", "who shows it as a bearer token may read /metrics; nobody unless set")
    log_level: str = _setting("info", "debug, info, warning or error")

    def __post_init__(self) -> None:
        """Refuse lists of connections that do not name their organisation."""
        self._listed("connect_hosts", _host_and_port)
        folders = self._listed("connect_folders", _absolute)
        for number, (owner, path) in enumerate(folders):
            for other, second in folders[:number]:
                if owner != other and (path.is_relative_to(second) or second.is_relative_to(path)):
                    # A folder has no password: the organisation of the outer one would read the inner one too.
                    raise BadName(
                        f"CLOISTER_CONNECT_FOLDERS gives {path} to {owner:.60} and {second} to {other:.60}, and one is "
                        "in the other. Give each organisation a folder of its own."
                    )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None, **changes: Any) -> "Settings":
        """Return the settings of this process; `changes` take precedence."""
        variables = os.environ if environment is None else environment
        kinds = get_type_hints(cls)
        values: dict[str, Any] = {}
        for setting in fields(cls):
            text = variables.get(f"CLOISTER_{setting.name.upper()}")
            if text is not None and text != "":
                values[setting.name] = _read(setting.name, text, kinds[setting.name])
        return cls(**{**values, **changes})

    @property
    def database(self) -> str:
        """Address of the database for SQLAlchemy."""
        if self.database_url:
            return self.database_url.replace("postgresql://", "postgresql+psycopg://", 1)
        return f"sqlite:///{self.folder.resolve() / 'hub.db'}"

    @property
    def ledger(self) -> str:
        """Location of the ledger."""
        return self.ledger_url or str(self.folder / "ledger.db")

    @property
    def head(self) -> Path:
        """Path of the ledger's newest head."""
        return Path(self.head_file) if self.head_file else self.folder / "head"

    def hosts_of(self, organisation: str) -> list[str]:
        """Return the hosts that the owners of an organisation may connect to, each as host:port."""
        return [address for owner, address in self._listed("connect_hosts", _host_and_port) if owner == organisation]

    def folders_of(self, organisation: str) -> list[Path]:
        """Return the folders that the owners of an organisation may connect.

        A folder that is a symbolic link, or is reached through one, is excluded: a user who may write beside it could
        redirect it to another organisation's folder.
        """
        mine = [path for owner, path in self._listed("connect_folders", _absolute) if owner == organisation]
        return [path for path in mine if path.resolve() == path]

    def _listed(self, name: str, read: Callable[[str], _Place | None]) -> list[tuple[str, _Place]]:
        """Return the entries of a list as (organisation, place)."""
        text: str = getattr(self, name)
        entries = [entry.strip() for entry in text.split(";" if ";" in text else ",")]
        pairs = []
        for entry in filter(None, entries):
            owner, _, target = (part.strip() for part in entry.partition("="))
            where = read(target)
            if not owner or where is None:
                form = "organisation=host:port" if read is _host_and_port else "organisation=/absolute/path"
                raise BadName(
                    f"CLOISTER_{name.upper()}: the entry {entry!r:.80} must be {form}, with the organisation's name as "
                    "the hub has it: only its owners may connect there."
                )
            pairs.append((owner, where))
        return pairs

    @property
    def exposed(self) -> bool:
        """Return True if passwords and cookies travel in clear to others: plain http, and not to this machine alone."""
        return not self.secure and self.host not in ("127.0.0.1", "::1", "localhost")

    @cached_property
    def secure(self) -> bool:
        """Return True if browsers reach the hub over TLS."""
        return self.address.startswith("https://")


def _host_and_port(text: str) -> str | None:
    """Return host:port, an IPv6 address without its brackets; None if one is missing."""
    try:
        parts = urlsplit(f"//{text}")
        bare = not (parts.path or parts.query or parts.fragment or parts.username is not None)
        return f"{parts.hostname.rstrip('.')}:{parts.port}" if bare and parts.hostname and parts.port else None
    except ValueError:
        return None


def _absolute(text: str) -> Path | None:
    return Path(os.path.normpath(text)) if text.startswith("/") else None


def _read(name: str, text: str, kind: Any) -> Any:
    try:
        if kind is bool:
            return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}[text.lower()]
        return kind(text)
    except (KeyError, ValueError):
        words = {int: "a whole number", bool: "yes or no"}.get(kind, "text")
        raise BadName(f"CLOISTER_{name.upper()} must be {words}, got {text!r:.40}.") from None
