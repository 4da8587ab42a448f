"""A released synthetic table as its recipient reads it: rows, and the metadata file that describes their quality.

    table = read_table("visits-synthetic.parquet")            # and visits-synthetic.parquet.side.json beside it
    table.verify("ed25519:…")                                 # the owner's key, from a trusted source
    table.count({"ward": "surgery", "age": {"from": 65}})     # an estimate for the real table, with its error
    table.error(["ward", "age"])                              # the expected error of any count over these columns

No model, ledger or schema is needed here, and nothing is charged.
"""

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cloister.privacy.errors import BadInput, BadSource, CloisterError, ReceiptRejected, SealBroken
from cloister.privacy.ledger.account import tidy
from cloister.privacy.loss import ROW, Loss, Unit
from cloister.privacy.mechanisms.mechanism import REGISTRY, Pure
from cloister.privacy.receipt import Receipt
from cloister.privacy.signing import PublicKey, SigningKey, canonical, fingerprint
from cloister.synth.domain.axis import Axis, arrow_types, step_from
from cloister.synth.measure.marginals import Floats
from cloister.synth.options import check_flag
from cloister.synth.output.cost import AS_EPSILON, cost_text, stated_epsilon, written_epsilon
from cloister.synth.output.expected_errors import ExpectedError, RangeCondition, bounded, least_told, plain_condition
from cloister.synth.output.request import is_digest, score_request, table_request

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["HANDED_IN", "HandedTable", "meets", "parse_table", "pure_of", "read_table", "side_path", "sign_side"]

KIND = "synthetic table"
HANDED_IN = "handed in"  # the mechanism in a hub's receipt for a table that its owner generated elsewhere
PRICE = ("private", "loss", AS_EPSILON, "unit", "neighbours")  # stated by a metadata file, and certified by a receipt
# What a metadata file must hold for the code below to read it; "?" before a name: it may be missing or null.
_NUMBER = (int, float)
_SHAPE: Mapping[str, Any] = {
    "method": str,
    "table": str,
    "private": bool,
    "loss": {},
    "unit": str,
    "?neighbours": str,
    "columns": [
        {"name": str, "type": str, "?bins end at": [_NUMBER], "?nullable": bool, "?bins count from": int},
    ],
    "measured": [{}],
    "estimated rows of the real table": _NUMBER,
    "?standard error of the estimated rows": _NUMBER,
    "expected error": {
        "marginals": [{"columns": [str], "error": (*_NUMBER, type(None)), "known from": str}],
        "?queries": [{"query": object, "error": (*_NUMBER, type(None)), "known from": str}],
        "?mean over marginals of so many columns": {},
        "?margin of these means (95 %)": _NUMBER,
    },
    "?receipt": {},
    "?signature": str,
    "?sha256": str,
}
_PURPOSE = b"cloister synthetic table\n"  # signatures of different kinds of text must never be exchangeable


@dataclass(frozen=True, slots=True)
class HandedTable:
    """Rows with their metadata file.

    Attributes:
        side: measurements with reasons, expected errors, loss, receipt; plain values.

    Privacy: the loss stated in the metadata file; everything here is post-processing of it.
    """

    side: Mapping[str, Any]
    _table: "pa.Table" = field(repr=False)
    _digest: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        stated_epsilon(self.side)  # or refuse: never show an epsilon that the loss does not imply

    def __len__(self) -> int:
        return int(self._table.num_rows)

    @property
    def loss(self) -> Loss:
        """Return the loss."""
        return Loss.from_json(self.side["loss"])

    @property
    def unit(self) -> Unit:
        """Return the privacy unit."""
        match = re.fullmatch(r"one (.+) \(at most (\d+) rows?\)", str(self.side["unit"]))
        return ROW if match is None else Unit(match[1], int(match[2]))

    @property
    def receipt(self) -> Receipt | None:
        """Return the signed receipt from the metadata file; `verify` it before relying on it."""
        record = self.side.get("receipt")
        return None if record is None else Receipt.parse(canonical(record))

    def verify(self, owner_key: PublicKey | str, *, rows: bool = False) -> None:
        """Raise unless the owner's key signed this price, and these rows where a hub signed them.

        The price is the loss with its neighbours, the unit, and whether the noise was private. All of it is compared
        with the receipt byte for byte; a pure loss that was charged as a rho must follow from the steps listed in the
        receipt; an epsilon stated beside the loss must be implied by it. The receipt must be of a synthetic table with
        this name, method and columns. The price of a score in the metadata file is compared with its own receipt,
        unless a hub signed all of it. Rows, errors and scores themselves are certified by a hub's signature only: a
        receipt of another run of the same request fits as well.

        Args:
            owner_key: the owner's public key, from a trusted source.
            rows: whether to refuse a table whose rows are not signed.

        Raises:
            ReceiptRejected: the receipt is not the owner's, or the metadata file differs from it.
            SealBroken: the table is not the one that the metadata file names; or a hub signed it, and it was changed
                since; or the rows are not signed, and `rows` is set.
        """
        check_flag("rows", rows)
        if self.side.get("sha256", self._digest) != self._digest:
            raise SealBroken(
                "the table was changed, or the metadata file is another's. Ask for both as they were written."
            )
        signed = "signature" in self.side
        names = [str(column["name"]) for column in self.side["columns"]]
        if self._table.column_names != names:
            raise ReceiptRejected(
                "the rows have other columns than the metadata file and its receipt. Ask for both as they were written."
            )
        if signed:
            rest = {name: value for name, value in self.side.items() if name != "signature"}
            key = PublicKey.parse(owner_key) if isinstance(owner_key, str) else owner_key
            if not key.verify(_PURPOSE + _text(rest), str(self.side["signature"])) or "sha256" not in rest:
                raise SealBroken(
                    "the signature does not fit: the table or its metadata file was changed, or is another's."
                )
        elif rows:
            raise SealBroken(
                "nobody signed the rows: a receipt vouches for a price only. Ask for the table that a hub signed."
            )
        receipt = self.receipt
        if receipt is None:
            raise ReceiptRejected("this table has no receipt: nobody vouches for its loss. Ask its owner for one.")
        receipt.verify(owner_key)
        if not _same(_claimed(self.side), _vouched(receipt, self.loss, stated_epsilon(self.side))):
            raise ReceiptRejected("the receipt is genuine, but the metadata file says something else.")
        if not signed:
            settings = self.side.get("settings")
            if not str(self.side["method"]).isidentifier():  # no text has two readings as a table's name and a method
                raise ReceiptRejected("the metadata file names a method that no generator has.")
            request = table_request(self.side["table"], self.side["method"], names, str(settings))
            _check_request(receipt, request, settings, self._digest, self.side, "table")
            if self.side.get("score") is not None:
                _verify_score(self.side, owner_key, self._digest)

    def to_arrow(self) -> "pa.Table":
        """Return the rows as an Arrow table."""
        return self._table

    def to_pandas(self) -> Any:
        """Return the rows as a pandas frame."""
        return self._table.to_pandas()

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows as dicts."""
        return list(self._table.to_pylist())

    def error(self, columns: Sequence[str]) -> ExpectedError:
        """Return the expected distance (half L1, a share of the rows) of these columns from the real table."""
        wanted = set(columns)
        unknown = wanted - {column["name"] for column in self.side["columns"]}
        if unknown or not wanted:
            raise BadInput(f"name columns of the table, such as {self.side['columns'][0]['name']}.")
        errors = self.side["expected error"]
        for marginal in errors["marginals"]:
            if set(marginal["columns"]) == wanted and marginal["error"] is not None:
                return ExpectedError(marginal["error"], marginal["error"], marginal["known from"])
        mean = errors.get("mean over marginals of so many columns", {}).get(str(min(len(wanted), 3)))
        if mean is None:
            return ExpectedError(math.nan, math.nan, "nothing")
        bound = max(float(mean), least_told(float(errors.get("margin of these means (95 %)", 0.0))))
        return ExpectedError(bound, bound, "review")

    def count(self, where: Mapping[str, Any] | None = None) -> ExpectedError:
        """Estimate the number of rows of the real table that meet a condition, with the expected error in rows.

        Without a condition the error is the standard error of the noisy number of rows. Rows are counted as the unit
        allows: where a person has more than `max_rows`, each of theirs counts less, and no error includes this. A bin
        that the condition cuts counts by the width of its share, and the possible error of this is included.

        Args:
            where: {column: a value, a list of values, None for missing, or {"from": 65, "below": 80}}.
        """
        total = float(self.side["estimated rows of the real table"])
        if not where:
            error = self.side.get("standard error of the estimated rows")
            return (
                ExpectedError(total, math.nan, "nothing")
                if error is None
                else ExpectedError(total, float(error), "noise")
            )
        count, cut = bounded(self._weighed, [self._condition(name, wanted) for name, wanted in where.items()])
        scale = total / max(1, len(self))
        for query in self.side["expected error"].get("queries", ()):
            if query["query"] == plain_condition(where) and query["error"] is not None:
                return ExpectedError(count * scale, float(query["error"]), query["known from"])
        around = self.error(list(where))
        return ExpectedError(count * scale, around.error * total + cut * scale, around.known_from)

    def _condition(self, name: str, wanted: Any) -> RangeCondition:
        """Return a condition on a column, for each row."""
        if name not in self._table.column_names:
            raise BadInput(f"there is no column {name!r:.60} here.")
        column = self._table.column(name)
        facts: Mapping[str, Any] = next((entry for entry in self.side["columns"] if entry["name"] == name), {})
        if "bins end at" not in facts:
            met = np.asarray(meets(column.combine_chunks(), wanted).to_numpy(zero_copy_only=False), dtype=np.float64)
            return RangeCondition(met, met, met)
        ends, origin = tuple(map(float, facts["bins end at"])), int(facts.get("bins count from", 0))
        axis = Axis(name, facts["type"], ends=ends, nullable=bool(facts["nullable"]), origin=origin)
        return RangeCondition.of(axis, wanted).take(axis.place(column))

    @staticmethod
    def _weighed(weights: Sequence[Floats]) -> float:
        """Return the sum over rows of the product of their cells' weights."""
        return float(np.prod(weights, axis=0).sum())

    def to_parquet(self, path: str | os.PathLike[str]) -> Path:
        """Write the rows and the metadata file (`….side.json`) beside them; return the path of the latter."""
        import pyarrow.parquet as pq

        pq.write_table(self._table, Path(path))
        side_file, side = side_path(path), dict(self.side)
        if "signature" not in side:  # else it stays as signed, and certifies only the file as received
            side["sha256"] = hashlib.sha256(Path(path).read_bytes()).hexdigest()
        side_file.write_text(json.dumps(side, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return side_file

    def __str__(self) -> str:
        head = [] if self.side["private"] else ["NOT PRIVATE: the noise came from a seeded source"]
        names, many = ", ".join(self._table.column_names), len(self.side["measured"])
        scored = _score_loss(self.side.get("score"))
        return "\n".join(
            [
                *head,
                f"{len(self):,} synthetic rows of {self.side['table']} by {self.side['method']}: {names}",
                f"  cost      {cost_text(self.loss, stated_epsilon(self.side))}",
                f"  protects  {self.side['unit']}, {self.loss.relation} neighbours",
                *([f"  scored    for {scored} more"] if scored is not None else []),
                *([f"  measured  {many} marginal{'' if many == 1 else 's'}"] if many else []),
            ]
        )


def _claimed(side: Mapping[str, Any]) -> dict[str, Any]:
    """Return the price that a metadata file states."""
    return {name: side.get(name) for name in PRICE}


def _vouched(receipt: Receipt, loss: Loss, requested: Loss | None) -> dict[str, Any]:
    """Return the price that a receipt certifies.

    Args:
        receipt: a receipt whose signature was checked.
        loss: the loss that the metadata file states. An account in rho is charged the rho of a pure loss: such a loss
            is certified if every step of the receipt was pure and their epsilons are within it.
        asked: the epsilon that the metadata file states, implied by the loss; a receipt does not contain it.
    """
    paid = Loss.from_json(receipt.body["loss"])
    if paid.measure == "rho" and loss.is_pure and _charged(loss) == paid:
        spent = pure_of(receipt.body["parameters"])
        paid = loss if spent is not None and spent <= loss.amount else paid
    return {
        "private": receipt.body["private"],
        "loss": paid.to_json(),
        AS_EPSILON: written_epsilon(requested).get(AS_EPSILON),
        "unit": receipt.body["unit"],
        "neighbours": str(paid.relation),
    }


def _check_request(
    receipt: Receipt, request: str, settings: object, digest: str, side: Mapping[str, Any], of: str
) -> None:
    """Raise unless a receipt is of this request.

    A hub's receipt for a table that was made elsewhere names the file itself instead, its table and method, and whether
    it was paid for the table or for its score.
    """
    if receipt.body["mechanism"] == HANDED_IN and receipt.body["answer"] == digest:
        named = {"of": of, "table": side["table"], "method": str(side["method"])}
        if any(all(part.get(word) == text for word, text in named.items()) for part in receipt.body["parameters"]):
            return
    if not is_digest(settings) or fingerprint(request) != receipt.body["request"]:
        raise ReceiptRejected(
            "the receipt is genuine, but of another release than the metadata file describes. Ask for the file as it "
            "was written; one of an earlier version has to be made again."
        )


def _verify_score(side: Mapping[str, Any], owner_key: PublicKey | str, digest: str) -> None:
    """Raise unless the owner signed the price that a score states."""
    score = side["score"]
    record = score.get("receipt") if isinstance(score, Mapping) else None
    if record is None:
        raise ReceiptRejected(
            "the score in the metadata file has no receipt: nobody vouches for its loss. Take it out."
        )
    receipt = Receipt.parse(canonical(record))
    receipt.verify(owner_key)
    loss = _score_loss(score)
    vouched = {} if loss is None else _vouched(receipt, loss, None)
    if loss is None or not all(_same(score.get(name), vouched[name]) for name in ("private", "loss", "unit")):
        raise ReceiptRejected("the score's receipt is genuine, but the metadata file says something else of its price.")
    settings = score.get("settings")
    _check_request(receipt, score_request(side["table"], str(settings)), settings, digest, side, "score")


def _score_loss(score: Any) -> Loss | None:
    """Return the cost of the score that a metadata file states; None if it states none."""
    try:
        return Loss.from_json(score["loss"])
    except (CloisterError, KeyError, TypeError, ValueError, AttributeError):
        return None


def _charged(loss: Loss) -> Loss:
    """Return the rho that an account is charged for a pure loss."""
    same = loss.as_rho()
    return replace(same, amount=tidy(same.amount))


def pure_of(steps: object) -> Fraction | None:
    """Return the total epsilon of all steps of a receipt; None if one of them states no pure loss."""
    total = Fraction(0)
    for step in steps if isinstance(steps, list) else ():
        facts = step if isinstance(step, dict) else {}
        name, stated, times = (
            facts.get(key, last) for key, last in (("mechanism", ""), ("epsilon", ""), ("times", "1"))
        )
        if not (isinstance(name, str) and isinstance(stated, str) and isinstance(times, str)):
            return None
        kind = REGISTRY.get(name)
        if name != HANDED_IN and (kind is None or not issubclass(kind, Pure)):
            return None
        try:
            each, many = Fraction(stated), int(times)
        except (ValueError, ZeroDivisionError):
            return None
        if each <= 0 or many < 1:
            return None
        total += each * many
    return total or None


def _same(left: object, right: object) -> bool:
    """Return True if two records are equal byte for byte: 1 is not true, and 0.50 not 0.5."""
    return _text({"": left}) == _text({"": right})


def read_table(path: str | os.PathLike[str]) -> HandedTable:
    """Read a table that `to_parquet` or `to_csv` wrote, with the metadata file beside it."""
    table_path = Path(path)
    try:
        side, content = side_path(table_path).read_bytes(), table_path.read_bytes()
    except OSError as error:
        raise BadSource(
            f"{error.filename or table_path} cannot be read. Keep the metadata file beside its table."
        ) from None
    return parse_table(content, side, "csv" if table_path.suffix.lower() == ".csv" else "parquet")


def parse_table(content: bytes, side: bytes, form: str = "parquet") -> HandedTable:
    """Read a table from the bytes of both files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    damaged = BadSource("the table or its metadata file is damaged. Ask for both as they were written.")
    try:
        metadata = json.loads(side)
    except (ValueError, RecursionError):
        raise damaged from None
    if not isinstance(metadata, dict) or metadata.get("cloister") != KIND:
        raise BadSource("the metadata file is none of a synthetic table.")
    if not (_fits(metadata, _SHAPE) and metadata["columns"]):
        raise damaged
    try:
        rows = _read_csv(content, metadata["columns"]) if form == "csv" else pq.read_table(pa.BufferReader(content))
    except (ValueError, TypeError, KeyError, pa.ArrowException, OSError):
        raise damaged from None
    return HandedTable(metadata, rows, hashlib.sha256(content).hexdigest())


def _fits(value: object, shape: Any) -> bool:
    """Return True if a JSON value has the types of a shape, and the names that it requires."""
    if isinstance(shape, dict):
        return isinstance(value, dict) and all(
            (value.get(name[1:]) is None or _fits(value[name[1:]], inner))
            if name.startswith("?")
            else name in value and _fits(value[name], inner)
            for name, inner in shape.items()
        )
    if isinstance(shape, list):
        return isinstance(value, list) and all(_fits(entry, shape[0]) for entry in value)
    return isinstance(value, shape) and (shape is bool or not isinstance(value, bool))


def _read_csv(content: bytes, columns: Sequence[Mapping[str, Any]]) -> "pa.Table":
    """Read rows as they were written: text is quoted, missing values are empty, types come from the metadata file."""
    import pyarrow as pa
    import pyarrow.csv

    kinds = arrow_types()
    return pyarrow.csv.read_csv(
        pa.BufferReader(content),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types={column["name"]: kinds[column["type"]] for column in columns},
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def sign_side(side: Mapping[str, Any], content: bytes, key: SigningKey) -> dict[str, Any]:
    """Return a metadata file that certifies the bytes of its table."""
    metadata: dict[str, Any] = json.loads(
        json.dumps({**side, "sha256": hashlib.sha256(content).hexdigest()}, default=str)
    )
    return {**metadata, "signature": key.sign(_PURPOSE + _text(metadata))}


def _text(side: Mapping[str, Any]) -> bytes:
    return json.dumps(side, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def side_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of a table's metadata file."""
    table_path = Path(path)
    return table_path.with_name(f"{table_path.name}.side.json")


def _in_steps(column: Any, end: Any) -> tuple[Any, Any] | None:
    """Return whole numbers, days or moments and the end of a range, as an axis reads them; None for other types."""
    import pyarrow as pa

    if pa.types.is_integer(column.type):
        steps, first = column.cast(pa.int64()), step_from("integer", end)
    elif pa.types.is_date(column.type):
        steps, first = column.cast(pa.date32()).cast(pa.int32()).cast(pa.int64()), step_from("date", end)
    elif pa.types.is_timestamp(column.type):
        steps, first = column.cast(pa.timestamp("us")).cast(pa.int64()), step_from("timestamp", end)
    else:
        return None
    if -(2**63) <= first < 2**63:
        return steps, pa.scalar(int(first), pa.int64())
    return steps.cast(pa.float64(), safe=False), pa.scalar(float(first))  # beyond all of them


def meets(column: Any, wanted: Any) -> Any:
    """Return the mask of values of an Arrow column that meet a condition, as in `HandedTable.count`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def alike(value: Any) -> Any:
        try:
            if isinstance(value, str) and pa.types.is_date(column.type):
                value = date.fromisoformat(value)
            elif isinstance(value, str) and pa.types.is_timestamp(column.type):
                value = datetime.fromisoformat(value)
            return pa.scalar(value, type=column.type)
        except (ValueError, TypeError, pa.ArrowInvalid, pa.ArrowTypeError):
            raise BadInput(f"{value!r:.40} is no value of a column of {column.type}.") from None

    if isinstance(wanted, Mapping):
        if not wanted or set(wanted) - {"from", "below"}:
            raise BadInput("a range is written {'from': …, 'below': …}, one of them or both.")
        mask = pc.is_valid(column)
        for word, compare in (("from", pc.greater_equal), ("below", pc.less)):
            if word in wanted:
                steps, end = _in_steps(column, wanted[word]) or (column, alike(wanted[word]))
                mask = pc.and_(mask, pc.fill_null(compare(steps, end), False))
        return mask
    mask = pa.array([False] * len(column))
    for value in wanted if isinstance(wanted, list | tuple | set | frozenset) else [wanted]:
        equal = pc.is_null(column) if value is None else pc.fill_null(pc.equal(column, alike(value)), False)
        mask = pc.or_(mask, equal)
    return mask
