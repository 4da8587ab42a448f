"""Private prediction: an ensemble whose votes are secret, and whose every answer is paid for.

    ensemble = TeacherEnsemble(GaussianNB(), teachers=200, bounds=(0, 1), classes=[0, 1]).fit(X, y)
    service = learn.serve(ensemble, policy=serving.private(rho("0.001"), account))

Each answer is the noisy plurality of disjoint teachers, as in PATE (learn/pate/aggregation.py): one unit changes one
teacher, so one vote for each row that is asked about. A batch of n rows costs n times `each`; a row that was answered
before gets the same answer at no cost for the same payer, so that repeating it does not average the noise away.

No other model has private prediction. Noise on the output of a single model is private only if one person moves that
output by a known amount, and for a model fitted to all rows nobody knows one.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cloister.learn.base.binned_estimator import public_generator
from cloister.learn.base.containers import is_frame
from cloister.learn.base.frame import Floats
from cloister.learn.base.inputs import read_table
from cloister.learn.base.integer_rows import Integers
from cloister.learn.base.row_source import InputRows, read_input
from cloister.learn.pate.aggregation import counter, labels_of
from cloister.learn.pate.partition import Parts, keyed, of_persons
from cloister.learn.pate.teachers import Teachers, check_learner, default_learner
from cloister.learn.preprocessing.encode_features import prepare
from cloister.privacy.errors import BadInput, OutputRefused
from cloister.privacy.filter import PrivacyFilter, budget_share, release_steps
from cloister.privacy.ledger import Account
from cloister.privacy.loss import ROW, Loss, Unit
from cloister.privacy.noise import SYSTEM, SeededSource, Source
from cloister.privacy.receipt import Receipt

__all__ = ["PrivateVotes", "TeacherEnsemble", "private"]

_MOST = 10_000
_Payers = tuple[list[Account], Unit, str, str]  # accounts, unit, version of the data, label of the work
_REMEMBERED = 100_000


@dataclass(frozen=True, slots=True)
class PrivateVotes:
    """The policy of private prediction: labels alone, each paid for.

    Attributes:
        each: loss of one answer.
        account: pays; None for an ensemble of a dataset, whose own account pays.
    """

    each: Loss
    account: Account | None = None

    def shows(self, verb: str) -> bool:
        """Return True for labels."""
        return verb == "predict"

    def __str__(self) -> str:
        return f"private, {self.each} a row"


def private(each: Loss, account: Account | None = None) -> PrivateVotes:
    """Return the policy of private prediction.

    Args:
        each: loss of one answer, such as `rho("0.001")`.
        account: the account that pays for it; None for an ensemble of a dataset.
    """
    budget_share(each, "each answer", "served ensembles")
    if account is not None and not isinstance(account, Account):
        raise BadInput("account is one of a ledger: account=ledger.open_account('visits', rho(1)).")
    return PrivateVotes(each, account)


class TeacherEnsemble:
    """Teachers on disjoint parts of private rows, which only answer through `learn.serve` with `serving.private`.

    Args:
        estimator: classifier of each teacher, as in `PATEClassifier`.
        teachers: number of disjoint parts.
        bounds: public (low, high) of the features, which rows are clipped to; a dataset has them.
        classes: the public list of labels; rows with other labels are left out.
        fill: replaces a missing number; without it a private row is left out.
        random_state: a seed, for teaching and tests; answers are then marked `not private`.

    Privacy: `fit` reads no row and releases nothing. The teachers are trained within the first charge, and stay in this
        object: it is as secret as the rows, is not pickled, and the operator of this process is trusted with it. Every
        answer costs the policy's `each`, for one row added or removed, or one person of a dataset with all rows. Rows
        that are asked about, bounds and classes are public. Tested in tests/statistical/test_learn_pate_audit.py.
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        teachers: int = 100,
        bounds: Any = None,
        classes: Sequence[Any] | None = None,
        fill: float | None = None,
        random_state: Any = None,
    ) -> None:
        if estimator is not None:
            check_learner(estimator)
        if not isinstance(teachers, int) or isinstance(teachers, bool) or not 1 <= teachers <= 100_000:
            raise BadInput("teachers is a public whole number from 1 to 100000.")
        self._estimator = default_learner() if estimator is None else estimator
        self._count, self._bounds, self._classes, self._fill = teachers, bounds, classes, fill
        self._source: Source = SYSTEM if random_state is None else SeededSource(str(random_state))
        self._parts: Parts | None = None
        self._data: Any = None
        self._teachers: Teachers | None = None
        self._known: dict[bytes, int] = {}
        self._lock = threading.Lock()
        self.receipts: list[Receipt] = []

    def fit(
        self,
        X: Any,  # noqa: N803
        y: Any = None,
        *,
        target: str | None = None,
        features: Sequence[str] | None = None,
        table: str | None = None,
    ) -> Self:
        """Take the rows; nothing is read before the first answer is paid for.

        Args:
            X, y, target, features, table: as in `PATEClassifier.fit`.
        """
        source = read_input(
            X, y, target=target, features=features, table=table, classes=self._classes, kind="classes", fill=self._fill
        )
        if source.dataset and not of_persons(source) and source.relation.copies > 1:
            raise BadInput("a row of this dataset counts several times. Name a unit, so that its rows stay together.")
        self._parts = Parts(keyed(source), self._count, source.box(self._bounds))
        self._data = X if source.dataset else None
        self._teachers, self._known = None, {}
        return self

    def facts(self) -> tuple[list[str] | None, NDArray[Any], int]:
        """Return the public facts: the features' names, the classes, and the number of features."""
        source = self._fitted().source
        assert source.classes is not None
        return None if source.names is None else [str(name) for name in source.names], source.classes, source.width

    def answer(self, rows: Any, policy: PrivateVotes) -> NDArray[Any]:
        """Return the noisy plurality for each row, charged to the policy's account.

        Privacy: `policy.each` for each distinct row that was not answered before.
        """
        parts = self._fitted()
        assert parts.source.classes is not None
        payers = self._payers(policy, parts.source)
        numbers = self._numbers(parts, rows)
        # An answer is remembered for those who paid for it: the accounts of others have not.
        paid = repr([(str(account.book.key.public), account.rules.key) for account in payers[0]]).encode()
        keys = [paid + row.tobytes() for row in numbers]
        with self._lock:
            fresh = {key: index for index, key in enumerate(keys) if key not in self._known}
            if len(fresh) > _MOST:
                raise BadInput(f"at most {_MOST} rows at once.")
            if fresh:
                codes = self._charged(parts, numbers[list(fresh.values())], policy, payers)
                if len(self._known) + len(fresh) > _REMEMBERED:
                    self._known.clear()
                self._known.update(zip(fresh, codes.tolist(), strict=True))
                told = dict(zip(fresh, codes.tolist(), strict=True))
            else:
                told = {}
            answers = [told[key] if key in told else self._known[key] for key in keys]
        return np.asarray(parts.source.classes[np.array(answers, dtype=np.int64)])

    def _charged(self, parts: Parts, rows: Floats, policy: PrivateVotes, payers: _Payers) -> Integers:
        """Return the codes of new rows: one charge, one receipt."""
        assert parts.source.classes is not None
        classes, queries = len(parts.source.classes), len(rows)
        each = budget_share(policy.each, "each answer", "served ensembles")
        whole = type(each)(each.loss * queries)

        def steps(meter: PrivacyFilter) -> Integers:
            def votes() -> Integers:
                if self._teachers is None:
                    public = public_generator(meter.source)
                    self._teachers = Teachers.fit(self._estimator, parts.look(meter.source), classes, public)
                return self._teachers.votes(rows)

            return labels_of(meter, whole, counter(votes, classes), queries)

        accounts, unit, version, label = payers
        codes, receipt = release_steps(
            steps,
            accounts=accounts,
            spend=whole.loss,
            request=f"{label}predict {queries} rows by {self._count} teachers, {self._estimator!r}",
            unit=unit,
            data_version=version,
            source=self._source,
        )
        self.receipts.append(receipt)
        return codes

    def _payers(self, policy: PrivateVotes, source: InputRows) -> _Payers:
        if not source.dataset:
            if policy.account is None:
                raise BadInput("say which account pays: serving.private(each, account).")
            return [policy.account], ROW, "", ""
        if policy.account is not None:
            raise BadInput("a dataset's own account pays. Leave account out.")
        data = self._data
        reader = getattr(data, "reader", None)
        accounts = [data.account, *([] if reader is None else [reader.account])]
        label = f"{reader.label}\n" if reader is not None and reader.label else ""
        return accounts, data.tables.schema.unit, data.version, label

    def _numbers(self, parts: Parts, rows: Any) -> Floats:
        """Return rows to answer as numbers within the bounds; a missing number is the middle of its bounds."""
        source = parts.source
        if source.dataset and is_frame(rows):
            facts = type("Facts", (), {"feature_names_in_": source.names, "_features": source.parts})
            rows = prepare(facts, rows)
        table = read_table(rows, self._fill)
        if table.width != source.width:
            raise BadInput(f"rows have {table.width} features, and the ensemble takes {source.width}.")
        return np.ascontiguousarray(parts.box.clip(parts.box.settle(table.numbers()))) + 0.0  # -0.0 is 0.0

    def _fitted(self) -> Parts:
        if self._parts is None:
            raise BadInput("the ensemble has no rows yet. Call fit first.")
        return self._parts

    def __repr__(self) -> str:
        return f"<TeacherEnsemble of {self._count}: answers through learn.serve(…, policy=serving.private(…)) alone>"

    def __reduce__(self) -> Any:
        raise OutputRefused("an ensemble of teachers is as secret as its rows, and is not pickled.")
