"""A dataset on a hub, for one person: plan, ask, train, synthesise, anonymise, hand in, take, upload."""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import pyarrow as pa

from cloister.client.jobs import RemoteJob, RemotePlan, of_form
from cloister.client.transport import drawn, form_data, parse, send_file, shared_bar
from cloister.client.wire import handed_request, loss_to_text, plan_from_json, question_digest
from cloister.data.schema import Schema
from cloister.privacy.errors import BadForm, BadLoss, BadSchema, NotNow, ReceiptRejected
from cloister.privacy.loss import Loss, check_loss
from cloister.privacy.number import Number
from cloister.privacy.signing import PublicKey, fingerprint
from cloister.query.answer import Answer
from cloister.query.builder import Builder

if TYPE_CHECKING:
    from cloister.client.client import Client
    from cloister.synth.output.shared_table import HandedTable

__all__ = ["Progress", "RemoteDataset", "listed"]

Progress = Callable[[str, int, int], None]  # table, bytes sent, bytes in all


class RemoteDataset:
    """Private answers from tables that stay on the hub."""

    def __init__(self, client: "Client", name: str, purpose: str = "") -> None:
        self.client = client
        self.name = name
        self.purpose = purpose
        self._path = f"/api/datasets/{_segment(name)}"
        self._schema: Schema | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """Return the facts on the hub's page: title, owner, trust, budget left."""
        return self.client.get(self._path)

    @property
    def schema(self) -> Schema:
        """Return the public schema, as far as it is visible to this person."""
        if self._schema is None:
            self._schema = Schema.parse(self.client.get(f"{self._path}/schema")["schema"], max_bytes=None)
        return self._schema

    def plan(
        self,
        sql: "str | Builder",
        *,
        spend: Loss | None = None,
        within: Number | None = None,
        confidence: Number = "0.95",
        purpose: str = "",
    ) -> RemotePlan:
        """Plan a query: its cost and expected error. Costs nothing and reads nothing.

        Args:
            sql: the query.
            spend: maximum cost; or
            within: the acceptable error, in the units of the answer.
            confidence: confidence of the intervals.
            purpose: the purpose of the answer, in the words of the dataset's policy.
        """
        if (spend is None) == (within is None):
            raise BadLoss(
                "say what the answer may cost (spend=rho('0.01')) or how wrong it may be (within=5), one of them."
            )
        if spend is not None:
            check_loss(spend)
        form = {"sql": str(sql), "confidence": str(confidence)}
        form |= {"within": str(within)} if spend is None else {"spend": loss_to_text(spend)}
        return self.plan_work("query", form, purpose)

    def plan_work(self, kind: str, form: Mapping[str, Any], purpose: str = "") -> RemotePlan:
        """Plan any kind of job. Costs nothing and reads nothing.

        Args:
            kind: kind of job, such as "synthesise".
            form: the fields of its form, such as {"method": "aim", "spend": cl.rho("0.05"), "rows": 5000}.
            purpose: its purpose.
        """
        words, wanted = _in_words(form), purpose or self.purpose
        plan = plan_from_json(self.client.post(f"{self._path}/plan", {"kind": kind, "form": words, "purpose": wanted}))
        parts = (plan.loss, plan.lines, plan.errors, plan.statements, plan.notes, plan.blocked)
        return RemotePlan(*parts, kind, words, wanted)

    def sql(
        self, text: str, *, spend: Loss, confidence: Number = "0.95", purpose: str = "", wait_s: float = 60
    ) -> Answer:
        """Run a query, and wait for the answer.

        Args:
            text: the query.
            spend: maximum cost.
            confidence: confidence of the intervals.
            purpose: the purpose of the answer.
            wait_s: how long to wait.

        Raises:
            Waiting: it is not ready yet; holds the job.
            CloisterError: any refusal by the hub, as the same class.
        """
        check_loss(spend)
        form = {"sql": text, "spend": loss_to_text(spend), "confidence": str(confidence)}
        return self.submit("query", form, purpose=purpose).answer(wait_s=wait_s)

    def run(
        self, what: RemotePlan | str, *, purpose: str = "", wait_s: float = 60, source: None = None, **form: Any
    ) -> Any:
        """Run a plan, or a kind of job by its name.

        Args:
            what: a plan of this dataset, which gives an `Answer`; or a kind of job such as `"profile"`.
            purpose: its purpose; a plan has its own.
            wait_s: how long to wait.
            source: must not be given: noise is sampled on the hub.
            form: the fields of the kind's form, such as `spend=rho("0.1")`.
        """
        if source is not None:
            raise BadForm("the noise is made on the hub. Leave source out.")
        if isinstance(what, str):
            return self.submit(what, form, purpose=purpose).finished(wait_s=wait_s)
        job = self.submit(what.kind, what.form, purpose=what.purpose)
        return job.answer(wait_s=wait_s) if what.kind == "query" else job.finished(wait_s=wait_s)

    def train(
        self,
        estimator: str,
        *,
        target: str = "",
        features: Sequence[str] = (),
        spend: Loss,
        table: str = "",
        evaluate: Number | None = None,
        group: str = "",
        parts: int | None = None,
        purpose: str = "",
        wait_s: float = 600,
    ) -> Any:
        """Train a model on the hub, and wait for it: a fitted estimator of `cloister.learn`, with its receipt.

        Args:
            estimator: its name, such as `"LogisticRegression"`.
            target: the column to predict.
            features: the columns to predict from; all that fit unless given.
            spend: maximum cost of the model and its evaluation.
            table: if there are several.
            evaluate: the share of the spend that pays for an evaluation on held-out people; see `job.finished()`.
            group: a column whose groups the evaluation compares.
            parts: number of clusters or components.
            purpose: the purpose of the model.
            wait_s: how long to wait.

        Raises:
            Waiting: it is not ready yet; holds the job: `waiting.job.model()` later.
            MissingExtra: scikit-learn is not installed here.
        """
        check_loss(spend)
        form: dict[str, Any] = {"estimator": estimator, "target": target, "features": list(features), "spend": spend}
        form |= {"table": table, "group": group}
        form |= {"evaluate": str(evaluate)} if evaluate is not None else {}
        form |= {"parts": str(parts)} if parts is not None else {}
        return self.submit("train", form, purpose=purpose).model(wait_s=wait_s)

    def attack(self, number: int, *, wait_s: float = 600) -> dict[str, Any]:
        """Attack what a job has made from your dataset, and wait for the findings; nobody else learns of it.

        Args:
            number: the job that trained the model, or made the synthetic table or the anonymised release.
            wait_s: how long to wait.

        Returns:
            verdict and findings. They are as sensitive as the rows: not to be published.

        Raises:
            NotHere: you do not own the dataset, or the job has left nothing that can be attacked.
            NotNow: it failed, was cancelled, or is not done in time; the message says what to do.
        """
        begun = self.client.post(f"{self._path}/attacks", {"job": number})
        path, until = f"{self._path}/attacks/{begun['number']}", time.monotonic() + wait_s
        while (told := self.client.get(path))["attack"]["state"] in ("queued", "running"):
            if time.monotonic() > until:
                raise NotNow(f"attack {begun['number']} is still under way. Read it later under {path}.")
            time.sleep(min(1.0, max(0.0, until - time.monotonic())))
        if told["report"] is None:
            raise NotNow(told["attack"]["problem"] or f"attack {begun['number']} was cancelled.")
        report: dict[str, Any] = told["report"]
        return report

    def ask_model(self, number: int, *, purpose: str = "", wait_s: float = 60) -> RemoteJob:
        """Ask for the predictions of a model that somebody else has trained on the hub, and wait for the right to.

        Your account is charged the model's loss, once. Then `job.predict(rows)` answers, as the policy allows.

        Args:
            number: the number of the job that trained the model.
            purpose: the purpose of the predictions.
            wait_s: how long to wait.

        Raises:
            Waiting: it is not ready yet, or needs an approval first; holds the job.
        """
        job = self.submit("predict", {"model": str(number)}, purpose=purpose)
        job.finished(wait_s=wait_s)
        return job

    def synthesise(
        self,
        *,
        method: str = "aim",
        spend: Loss,
        rows: int | None = None,
        columns: Sequence[str] = (),
        table: str = "",
        bins: int | None = None,
        score: Number | None = None,
        purpose: str = "",
        wait_s: float = 600,
        progress: Callable[[float, str], None] | None = None,
    ) -> "HandedTable":
        """Generate a synthetic table on the hub, and wait for it: rows with their metadata file, both verified.

        Args:
            method: the generator: `"aim"`, `"mixture"`, `"mst"`, `"privbayes"` or `"independent"`.
            spend: maximum cost of the table and its score.
            rows: number of rows; about as many as the real table has unless given.
            columns: columns of the table; all usable ones unless given.
            table: the source table, if there are several.
            bins: number of bins for numbers and dates.
            score: the share of the spend that pays for publishable errors; they are in `side["score"]`.
            purpose: the purpose of the table.
            wait_s: how long to wait.
            progress: called with a share from 0 to 1 and a word; by default a bar is drawn in a terminal.

        Raises:
            Waiting: it is not ready yet; holds the job: `waiting.job.synthetic()` later.
        """
        check_loss(spend)
        form: dict[str, Any] = {"method": method, "spend": spend, "columns": list(columns), "table": table}
        settings = {"rows": rows, "bins": bins, "score": score}
        form |= {name: str(value) for name, value in settings.items() if value is not None}
        job = self.submit("synthesise", form, purpose=purpose)
        with shared_bar(progress, "synthesising") as tell:
            return job.synthetic(wait_s=wait_s, progress=tell)

    def anonymise(
        self,
        *,
        models: str = "k=5",
        quasi: Sequence[str] = (),
        sensitive: Sequence[str] = (),
        plain: Sequence[str] = (),
        method: str = "recode",
        suppression: Number = "0.05",
        table: str = "",
        purpose: str = "",
        wait_s: float = 600,
    ) -> RemoteJob:
        """Ask for an anonymised table, and wait until the hub has made it. People look at it before you get it.

        It is not differentially private and costs no epsilon; the policy says which models it satisfies at least.

        Args:
            models: what it satisfies, such as `"k=5, l=3 (disease), t=0.2 (disease)"`.
            quasi: the columns that others may know of a person, to be generalised; the schema's unless given.
            sensitive: the columns that nobody may learn of a person; the schema's unless given.
            plain: other columns, released as they are.
            method: `"recode"` or `"mondrian"`.
            suppression: the share of rows that may be left out.
            table: the source table, if there are several.
            purpose: the purpose of the table.
            wait_s: how long to wait for the hub.

        Returns:
            the job. `job.anonymised()` gives the rows once enough people have agreed; until then it raises `Waiting`.
        """
        form: dict[str, Any] = {"models": models, "quasi": list(quasi), "sensitive": list(sensitive)}
        form |= {"plain": list(plain), "method": method, "suppression": str(suppression), "table": table}
        job = self.submit("anonymise", form, purpose=purpose)
        job.wait(wait_s)
        return job

    def hand_in(
        self,
        path: str | os.PathLike[str],
        *,
        key: str | os.PathLike[str] | PublicKey | None = None,
        gate: Mapping[str, Any] | None = None,
    ) -> int:
        """Submit a synthetic table generated from the caller's own dataset; return its number there.

        Its loss is charged to the dataset's account before it is visible to others. Then every user whom the policy
        lets synthesise can download it. The hub keeps the file unchanged, and states that it was generated elsewhere.

        Args:
            path: the Parquet file that `cloister synth make` or `to_parquet` wrote, with its metadata file beside it.
            key: the public key of the ledger that paid, in one line or in a file, if the metadata file has a receipt.
            gate: attack it here first, and send nothing unless it passes: `{"real": "visits.parquet", "holdout":
                "held-back.parquet"}`, and further arguments of `synth.gate`. Rows and verdict stay on this machine.
                Generating tables until one passes is a selection that has to be charged: `synth.choose`.

        Raises:
            BadForm: the gate refused it, or the files do not fit each other or the dataset's schema; the message says
                what to do.
            OverBudget: the dataset's budget is too small.
        """
        from cloister.synth.output.shared_table import read_table, side_path

        table = read_table(path)  # before anything is sent: check that both exist and are valid
        if gate is not None:
            self._pass(table, gate)
        key_text = "" if key is None else str(key if isinstance(key, PublicKey) else PublicKey.load(key))
        files = {"table": Path(path).read_bytes(), "side": side_path(path).read_bytes()}
        body, kind = form_data({"key": key_text}, files)
        reply = of_form(parse(self.client.transport.raw("POST", f"{self._path}/tables", body, kind)), dict)
        return of_form(reply.get("number"), int)

    def _pass(self, table: "HandedTable", settings: Mapping[str, Any]) -> None:
        """Refuse a table that the gate refuses. Runs locally: a verdict reads real rows."""
        from cloister.synth.scoring.gate import gate

        verdict = gate(**{"synthetic": table, "schema": self.schema, "table": table.side["table"], **settings})
        if not verdict.passed:
            failed = ", ".join(check.name for check in verdict.checks if not check.passed)
            raise BadForm(f"the gate did not let it pass ({failed}), so nothing was sent. See why with synth.gate(…).")

    def handed_in(self, *, purpose: str = "") -> list[dict[str, Any]]:
        """Return the synthetic tables that the owner submitted and this person may download, the newest first."""
        words = urlencode({"purpose": purpose or self.purpose})
        return listed(self.client.get(f"{self._path}/tables?{words}"), "tables")

    def take(self, number: int, *, purpose: str = "") -> "HandedTable":
        """Download one of them with its metadata file; check both against the pinned key, or the key the hub names.

        The hub certifies the charge, and that the file is as submitted: see `side["handed in"]`. Its receipt names the
        dataset, the number and the file, and all of them are compared.

        Raises:
            ReceiptRejected: it is a genuine table of the hub, but not this one.
        """
        from cloister.synth.output.shared_table import parse_table

        path, words = f"{self._path}/tables/{int(number)}", urlencode({"purpose": purpose or self.purpose})
        reply = self.client.get(f"{path}?{words}")
        content = self.client.transport.raw("GET", f"{path}/table?{words}")
        table = parse_table(content, json.dumps(of_form(reply.get("side"), dict)).encode())
        table.verify(self.client.owner_key or of_form(reply.get("key"), str), rows=True)
        receipt = table.receipt
        paid = {} if receipt is None else receipt.body
        accounts = {line["account"] for line in paid.get("accounts", ())}
        request = fingerprint(handed_request(int(number), str(table.side["sha256"])))
        if (paid.get("request"), accounts) != (request, {self.name}):
            raise ReceiptRejected(
                f"the hub signed this table, but not as table {int(number)} that was handed in for {self.name}. "
                "Do not use it; tell the hub's operator."
            )
        return table

    def submit(self, kind: str, form: Mapping[str, Any], *, purpose: str = "") -> RemoteJob:
        """Submit a job and return at once."""
        body: dict[str, Any] = {"kind": kind, "form": _in_words(form), "purpose": purpose or self.purpose}
        record = self.client.post(f"{self._path}/jobs", body)
        question = question_digest(self.name, kind, body["form"], body["purpose"])
        return RemoteJob(self.client, int(record["id"]), record, self.name, kind, question)

    def mock(self, table: str | None = None) -> pa.Table:
        """Return mock rows of a table, sampled from the schema only: to try a query at no cost."""
        name = table or self.table().table
        raw = self.client.transport.raw("GET", f"{self._path}/mock/{_segment(name)}")
        try:
            with pa.ipc.open_stream(raw) as reader:
                return reader.read_all()
        except pa.ArrowInvalid:
            raise BadForm("the hub's mock table cannot be read. Check the hub's version.") from None

    def table(self, name: str | None = None) -> Builder:
        """Start a query on a table; the only private one unless named."""
        private = [table.name for table in self.schema.tables.values() if not table.public]
        if name is None and len(private) != 1:
            raise BadSchema(f"say which table: {', '.join(private)}.")
        return Builder(self, name or private[0])

    def where(self, condition: str) -> Builder:
        """Start a query with a condition: `ds.where("age >= 18").group_by("ward").agg(cl.count())`."""
        return self.table().where(condition)

    def group_by(self, *columns: str) -> Builder:
        """Start a query with its groups."""
        return self.table().group_by(*columns)

    def ledger(self) -> dict[str, Any]:
        """Return the charges, as far as they are visible to this person."""
        return self.client.get(f"{self._path}/ledger")

    def why(self, operation: str = "query", purpose: str = "", spend: Loss | None = None) -> dict[str, Any]:
        """Return whether the policy permits an operation, by which rule, and why.

        Args:
            operation: an operation such as query.
            purpose: its purpose; the dataset's unless given.
            spend: its cost, such as the loss of a plan: every limit is then checked too, as it stands.
        """
        if spend is not None:
            check_loss(spend)
        request = {"operation": operation, "purpose": purpose or self.purpose}
        words = urlencode(request if spend is None else {**request, "spend": loss_to_text(spend)})
        return self.client.get(f"{self._path}/why?{words}")

    def ask_access(self, role: str, text: str, *, purpose: str = "") -> dict[str, Any]:
        """Ask the owner for a role of the policy, stating the purpose."""
        body = {"dataset": self.name, "role": role, "purpose": purpose or self.purpose, "text": text}
        return self.client.post("/api/requests", body)

    def upload(
        self,
        tables: Mapping[str, str | os.PathLike[str]],
        *,
        schema: Schema | Mapping[str, Any] | str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
        wait_s: float = 600,
    ) -> int:
        """Upload a new version of the tables; return its number. The budget left is unchanged.

        Tables that are not named are unchanged. An interrupted upload is resumed.

        Args:
            tables: a CSV or Parquet file for each table that changed.
            schema: the public facts, if they changed too.
            progress: called with (table, bytes sent, bytes in all); by default a bar is drawn in a terminal.
            wait_s: how long to wait until the hub has checked and sealed the tables.
        """
        facts = self.schema if schema is None else Schema.load(schema)
        paths = {table: Path(file) for table, file in tables.items()}
        for path in paths.values():
            if not path.is_file():
                raise BadForm(f"there is no file {path}. Check the path.")
        with drawn(progress) as tell:
            sent = {
                table: send_file(self.client.transport, f"{self._path}/uploads", table, path, tell)
                for table, path in paths.items()
            }
        body = {"uploads": sent, "schema": facts.dump()}
        version = self.client.post(f"{self._path}/versions", body)
        return self._ready(int(version["number"]), version, time.monotonic() + wait_s)

    def _ready(self, number: int, version: Mapping[str, Any], until: float) -> int:
        while version.get("state") == "preparing" and time.monotonic() < until:
            time.sleep(0.2)
            version = self.client.get(f"{self._path}/versions/{number}")
        if version.get("state") == "failed":
            raise NotNow(f"version {number} of {self.name} could not be made: {version.get('problem', '')}")
        if version.get("state") != "ready":
            raise NotNow(f"version {number} of {self.name} is still being prepared. Look at its page later.")
        self._schema = None
        return number

    def __repr__(self) -> str:
        return f"<RemoteDataset {self.name} on {self.client.transport.address}>"


def listed(reply: Any, name: str) -> list[dict[str, Any]]:
    """Return the list under a name in the hub's reply."""
    return of_form(reply.get(name) if isinstance(reply, dict) else reply, list)


def _in_words(form: Mapping[str, Any]) -> dict[str, Any]:
    """Return a form for the wire: losses are text."""
    return {name: loss_to_text(value) if isinstance(value, Loss) else value for name, value in form.items()}


def _segment(name: str) -> str:
    return quote(str(name), safe="")
