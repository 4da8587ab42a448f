"""What can be set, by environment variables alone. docs/hub-settings.md is generated from this file."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

from cloister.privacy.errors import BadName

__all__ = ["Settings"]


def _setting(default: Any, meaning: str) -> Any:
    return field(default=default, metadata={"meaning": meaning})


@dataclass(frozen=True, slots=True)
class Settings:
    """A hub's settings. Each is read from CLOISTER_ and its name in capitals, such as CLOISTER_FOLDER."""

    folder: Path = _setting(Path("cloister-hub"), "where everything lies: database, ledger, sealed tables, keys, logs")
    database_url: str = _setting("", "the hub's database; hub.db in the folder unless this names a PostgreSQL")
    ledger_url: str = _setting("", "the ledger; ledger.db in the folder unless this names a PostgreSQL")
    head_file: str = _setting("", "where the ledger's newest head is kept; best on another disk; head in the folder")
    master_key: str = _setting("", "the key that wraps all data keys, 64 hexadecimal digits; or use the file")
    master_key_file: str = _setting("", "a file with that key; master.key in the folder, made by `cloister hub init`")
    name: str = _setting("Cloister", "what the pages call this hub")
    address: str = _setting("http://127.0.0.1:8400", "how browsers reach the hub; https makes cookies secure")
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
    answers_per_minute: int = _setting(600, "how many survey answers one address may send a minute; none is kept")
    upload_gb: int = _setting(10, "how large an upload may be, in GB")
    job_memory: str = _setting("2GB", "how much memory an engine may use for one job")
    job_seconds: int = _setting(600, "how long a job may take")
    connect_hosts: str = _setting("", "which hosts owners may connect to, with commas; none unless named")
    connect_folders: str = _setting("", "which folders owners may connect, with commas; none unless named")
    country: str = _setting("", "where this hub stands, as two letters; policies may ask for it")
    trusted_proxies: str = _setting("", "addresses of proxies whose X-Forwarded-For is believed, with commas")
    mail_folder: str = _setting("", "write e-mails as files into this folder")
    smtp_url: str = _setting("", "send e-mails through smtp://user:password@host:port")
    mail_from: str = _setting("cloister@localhost", "the sender of e-mails")
    metrics_token: str = _setting("", "who shows it as a bearer token may read /metrics; nobody unless set")
    log_level: str = _setting("info", "debug, info, warning or error")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None, **changes: Any) -> "Settings":
        """The settings of this process; `changes` win."""
        given = os.environ if environment is None else environment
        kinds = get_type_hints(cls)
        found: dict[str, Any] = {}
        for one in fields(cls):
            text = given.get(f"CLOISTER_{one.name.upper()}")
            if text is not None and text != "":
                found[one.name] = _read(one.name, text, kinds[one.name])
        return cls(**{**found, **changes})

    @property
    def database(self) -> str:
        """The database's address for SQLAlchemy."""
        if self.database_url:
            return self.database_url.replace("postgresql://", "postgresql+psycopg://", 1)
        return f"sqlite:///{self.folder.resolve() / 'hub.db'}"

    @property
    def ledger(self) -> str:
        """Where the ledger is."""
        return self.ledger_url or str(self.folder / "ledger.db")

    @property
    def head(self) -> Path:
        """Where the ledger's newest head is kept."""
        return Path(self.head_file) if self.head_file else self.folder / "head"

    @property
    def secure(self) -> bool:
        """Whether browsers reach us over TLS."""
        return self.address.startswith("https://")


def _read(name: str, text: str, kind: Any) -> Any:
    try:
        if kind is bool:
            return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}[text.lower()]
        return kind(text)
    except (KeyError, ValueError):
        words = {int: "a whole number", bool: "yes or no"}.get(kind, "text")
        raise BadName(f"CLOISTER_{name.upper()} must be {words}, got {text!r:.40}.") from None
