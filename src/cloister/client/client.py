"""Query a hub from Python, with only the standard library and pyarrow. Mirrors the local API.

    hub = cloister.client.Client("https://hub.example.org", token="clo_…", owner_key="ed25519:…")
    visits = hub.dataset("visits", purpose="health-research")
    print(visits.plan("SELECT ward, COUNT(*) FROM visits GROUP BY ward", spend=cl.rho("0.01")))
    answer = visits.sql("SELECT ward, COUNT(*) FROM visits GROUP BY ward", spend=cl.rho("0.01"))
    answer.to_pandas()                     # the same Answer as from `cl.open(...)`, with its receipt
    model = visits.train("MixedNB", target="readmitted", spend=cl.rho("0.02"))
    table = visits.synthesise(spend=cl.rho("0.05"), rows=5_000)      # synthetic rows, with their metadata file
    visits.hand_in("visits-synthetic.parquet", key="ed25519:…")      # for its owner: a table generated elsewhere

A refusal is raised as the same class as on the hub: `except OverBudget` works here and there. A job that waits for an
approval, or is not done in time, raises `Waiting`, which holds the job.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cloister.client.dataset import Progress, RemoteDataset, listed
from cloister.client.jobs import Finished, RemoteJob, RemotePlan, Waiting, of_form
from cloister.client.survey import RemoteSurvey
from cloister.client.transport import Transport
from cloister.data.schema import Schema
from cloister.privacy.errors import BadForm, BadSchema
from cloister.privacy.receipt import Receipt
from cloister.privacy.signing import PublicKey

__all__ = ["Client", "Finished", "RemoteDataset", "RemoteJob", "RemotePlan", "RemoteSurvey", "Waiting"]


class Client:
    """A hub, accessed by one person.

    Args:
        address: of the hub, such as `https://hub.example.org`. Plain http on this machine only: tokens are secret.
        token: created under Account on the hub; `clo_…`.
        owner_key: the public key that signs the hub's receipts, from a trusted source, in one line or in a file; every
            receipt, and the signed label of every result, is then checked against it: an answer with other numbers, of
            another question or dataset, or at another cost, is not returned.
        timeout_s: timeout of one request.
    """

    def __init__(
        self,
        address: str,
        token: str,
        *,
        owner_key: str | os.PathLike[str] | PublicKey | None = None,
        timeout_s: float = 60,
    ) -> None:
        self.transport = Transport(address, token, timeout_s)
        self.owner_key = (
            owner_key if isinstance(owner_key, PublicKey) or owner_key is None else PublicKey.load(owner_key)
        )

    def me(self) -> dict[str, Any]:
        """Return the owner of this token, and its permissions."""
        return self.get("/api/me")

    def datasets(self) -> list[dict[str, Any]]:
        """Return the datasets visible to this person."""
        return listed(self.transport.json("GET", "/api/datasets"), "datasets")

    def dataset(self, name: str, *, purpose: str = "") -> RemoteDataset:
        """Return a dataset, to query it.

        Args:
            purpose: stated with every query, unless a query states its own.
        """
        return RemoteDataset(self, name, purpose)

    def jobs(self) -> list[dict[str, Any]]:
        """Return this person's jobs, the newest first."""
        return listed(self.transport.json("GET", "/api/jobs"), "jobs")

    def job(self, number: int) -> RemoteJob:
        """Return a job by its number."""
        return RemoteJob(self, int(number), self.get(f"/api/jobs/{int(number)}"))

    def requests(self) -> dict[str, Any]:
        """Return the requests this person made (`mine`), and those that await their decision (`waiting`)."""
        return self.get("/api/requests")

    def decide(self, request: int, agreed: bool, reason: str = "") -> dict[str, Any]:
        """Approve a request, or deny it with a reason."""
        return self.post(f"/api/requests/{int(request)}/decision", {"agreed": agreed, "reason": reason})

    def create_dataset(
        self,
        name: str,
        *,
        policy: str | os.PathLike[str],
        schema: Schema | Mapping[str, Any] | str | os.PathLike[str],
        tables: Mapping[str, str | os.PathLike[str]],
        title: str = "",
        about: str = "",
        progress: Progress | None = None,
        wait_s: float = 600,
    ) -> RemoteDataset:
        """Share tables, with the policy that sets the permissions on them.

        Args:
            name: name of the dataset, and of its account in the ledger, permanently.
            policy: the policy's YAML, or a file that holds it.
            schema: the public facts: a `Schema`, a file, or its content.
            tables: a CSV or Parquet file for each table.
            title: a title for people.
            about: a paragraph for people.
            progress: called with (table, bytes sent, bytes in all); by default a bar is drawn in a terminal.
            wait_s: how long to wait until the hub has checked and sealed the tables.
        """
        facts = Schema.load(schema)
        missing = set(facts.tables) ^ set(tables)
        if missing:  # before anything is sent
            raise BadSchema(f"schema and files must name the same tables; only one of them has {sorted(missing)}.")
        body = {"name": name, "title": title or name, "about": about, "policy": _text(policy), "schema": facts.dump()}
        self.post("/api/datasets", body)
        dataset = self.dataset(name)
        dataset.upload(tables, schema=facts, progress=progress, wait_s=wait_s)
        return dataset

    def surveys(self) -> list[dict[str, Any]]:
        """Return this person's surveys, the newest first."""
        return listed(self.transport.json("GET", "/api/surveys"), "surveys")

    def survey(self, name: str) -> RemoteSurvey:
        """Return one of this person's surveys."""
        return RemoteSurvey(self, name)

    def create_survey(self, name: str, *, title: str, purpose: str, consent: str, **facts: Any) -> RemoteSurvey:
        """Create a survey; it is a draft until it is published.

        Args:
            name: its name in the address of its page, permanently.
            title: its title.
            purpose: the purpose of the answers.
            consent: the consent text.
            facts: about, language, target, ends, invited, lasting, asked (a list of questions).
        """
        body = {"name": name, "title": title, "purpose": purpose, "consent": consent, **facts}
        self.post("/api/surveys", body)
        return RemoteSurvey(self, name)

    def advise_question(self, question: Mapping[str, Any], people: int = 500) -> list[dict[str, Any]]:
        """Return the expected error of a survey's question at each level, and the mechanisms suited to it."""
        advice = self.post("/api/surveys/advice", {"question": dict(question), "people": people})
        if advice.get("problem"):
            raise BadForm(str(advice["problem"]))
        return of_form(advice.get("levels"), list)

    def close(self) -> None:
        """Close the connections."""
        self.transport.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client of {self.transport.address}>"

    def get(self, path: str) -> dict[str, Any]:
        """Send a GET request to the hub's API and return the result."""
        return of_form(self.transport.json("GET", path), dict)

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a POST request to the hub's API."""
        return of_form(self.transport.json("POST", path, body), dict)

    def checked(self, receipt: Receipt) -> Receipt:
        """Return a receipt, checked against the pinned key, if there is one."""
        if self.owner_key is not None:
            receipt.verify(self.owner_key)
        return receipt


def _text(source: str | os.PathLike[str]) -> str:
    """Return the text itself, or the content of the file of that name."""
    if isinstance(source, os.PathLike) or "\n" not in source:
        path = Path(source)
        if not path.is_file():
            raise BadForm(f"there is no file {path}. Give the policy's text, or a file that holds it.")
        return path.read_text(encoding="utf-8")
    return source
