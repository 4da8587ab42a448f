"""`train`: fit any JAX model privately, with one charge and one receipt.

    from cloister import epsilon, learn
    result = learn.deep.train(loss, params, (X, y), spend=epsilon(3, delta="1e-5"), rate="1/200", epochs=20)
    result.params, result.release.receipt

`loss(params, *row)` is the loss of one row. The order of the work:

    public facts: shapes, rate, steps ──► noise for the spend ──► trial on made-up rows ──► charge ──► lots (dpsgd.py)
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
import optax

from cloister.learn.base.payer import Payer
from cloister.learn.deep.checkpoint import CheckpointWriter
from cloister.learn.deep.clipping import GRID, Clipping, PrivateGradient
from cloister.learn.deep.dpsgd import Descent, TrainState, descend
from cloister.learn.deep.progress import Progress, Reporter
from cloister.learn.deep.rows import ArrayLots, Lots, PassLots, read_rows
from cloister.privacy.accountant.banded import BandedRelease, band_weights, total_sensitivity
from cloister.privacy.accountant.events import DiscreteGaussianStep
from cloister.privacy.accountant.planned import NoiseSteps, PlannedRelease, Steps, lower_price, price, solve
from cloister.privacy.errors import BadInput, BadNumber
from cloister.privacy.filter import PrivacyFilter, release_steps
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss, check_loss
from cloister.privacy.noise import SYSTEM, SeededSource, Source
from cloister.privacy.number import Number, rational, root_above, show
from cloister.privacy.receipt import Receipt
from cloister.privacy.release import Release

__all__ = ["TrainResult", "plan_descent", "train"]


@dataclass(frozen=True, slots=True, repr=False)
class TrainResult:
    """A trained model. Everything in it is released.

    Attributes:
        params: the parameters after the last step, a tree like the one that was given.
        average: their exponential moving average, which is often better; equal to params if averaging is 0.
        release: the loss, the receipt, and the public parameters of the noise.
        lot: the expected lot, by which sums were divided.
        clip: the clipping norm after the last step.
        steps: the number of lots.
    """

    params: Any
    average: Any
    release: Release
    lot: float
    clip: float
    steps: int

    @property
    def loss(self) -> Loss:
        """Return the privacy loss that was charged."""
        return self.release.loss

    @property
    def receipt(self) -> Receipt | None:
        """Return the receipt."""
        return self.release.receipt

    def __repr__(self) -> str:
        sizes = [np.size(leaf) for leaf in jax.tree.leaves(self.params)]
        private = "" if self.release.private else ", not private"
        return (
            f"<TrainResult: {sum(sizes)} parameters in {len(sizes)} arrays, {self.steps} steps, {self.loss}{private}>"
        )


def train(
    loss: Callable[..., Any],
    params: Any,
    data: Any,
    *,
    spend: Loss,
    rate: Number | None = None,
    lot: int | None = None,
    rows: int | None = None,
    epochs: Number | None = None,
    steps: int | None = None,
    clip: float = 1.0,
    clipping: Clipping = "fixed",
    optimizer: Any = None,
    augment: Callable[..., Any] | None = None,
    copies: int = 1,
    averaging: float = 0.0,
    micro: int = 32,
    units: Any = None,
    max_rows: int | None = None,
    bands: int | None = None,
    order: Any = None,
    ledger: Ledger | str | PathLike[str] | Payer | None = None,
    account: Account | Payer | None = None,
    random_state: Any = None,
    progress: bool | Callable[[Progress], object] = False,
    checkpoint: str | PathLike[str] | None = None,
    checkpoint_seconds: float = 60.0,
    **columns: Any,
) -> TrainResult:
    """Train a model by DP-SGD.

    Args:
        loss: `loss(params, *row)` returns one number for one row, in JAX.
        params: a tree of arrays to start from, chosen without the data.
        data: see `read_rows`: arrays, frames, an npz file, or a dataset with `target=`, `features=`, `table=`.
        spend: an (epsilon, delta), where sampling counts; or a rho, where it does not.
        rate: the probability with which a unit enters a lot; lot/rows if left out.
        lot: the expected number of units in a lot, by which sums are divided.
        rows: about how many units there are, if that is public. If neither lot nor rows is given, the number of units
            is bought with noise, within the spend.
        epochs, steps: either; steps = epochs/rate. 10 epochs unless given.
        clip, clipping, augment, copies, micro: as in `private_gradient`.
        optimizer: an optax optimiser; Adam with step size 0.001 unless given.
        averaging: the decay of an exponential moving average of the parameters, such as 0.99.
        units, max_rows: an identifier for each row and how many rows of one count, if the unit is a person. A unit is
            sampled with all of its rows, and their summed gradient is clipped as one.
        bands: correlated noise over this many steps, from 2 to 16, for arrays without sampling: each unit enters one
            lot of every pass, and noise of later steps takes back that of earlier ones (accountant/banded.py). Needs
            rate=1/n with lot or rows, and whole epochs.
        order: with bands, for each row its lot within a pass, from 0: rows that come in order. Drawn at random if None.
        ledger, account: what pays; a dataset pays for itself. See `PrivateEstimator`.
        random_state: a seed, for teaching and tests; the result is then marked not private.
        progress: True for a bar, or a function that gets a `Progress`.
        checkpoint: a file. The run writes its state there about every `checkpoint_seconds`; if the file exists, the run
            goes on from it, under the same charge. Call `train` again with the same arguments (checkpoint.py).
        columns: for a dataset, its target, features and so on.

    Privacy: the spend, for one unit added or removed, charged as one release before a row is read. Clipping, sampling,
        the noisy sums and the divisor are inside it (clipping.py, dpsgd.py, accountant/rounded_gaussian.py). Public:
        shapes, the start, all arguments. Nothing else about rows leaves: no loss, no norms, no accuracy, no number of
        rows. The time that a run takes may depend on the number of rows. Every run is
        charged; choosing among runs needs no more than their sum. Audited in tests/statistical/test_deep_audit.py.
    """
    source = read_rows(data, units=units, max_rows=max_rows, **columns)
    gradient = PrivateGradient(loss, clip, clipping, augment, copies, micro, grouped=source.grouped)
    if bands is not None:
        source = _in_passes(source, order, rate, lot, rows)
    elif order is not None:
        raise BadInput("order belongs to correlated noise. Give bands=8 with it.")
    descent, divisor = plan_descent(
        gradient, params, source, spend=spend, rate=rate, lot=lot, rows=rows, epochs=epochs, steps=steps,
        optimizer=optimizer, averaging=averaging, bands=bands,
    )  # fmt: skip
    if bands is not None and checkpoint is not None:
        raise BadInput("correlated noise needs earlier exact sums, which no checkpoint may hold. Leave checkpoint out.")
    if checkpoint is not None and not (isinstance(checkpoint, str | PathLike) and Path(checkpoint).parent.is_dir()):
        raise BadInput("checkpoint is the path of a file, in a folder that exists.")
    file = None if checkpoint is None else Path(checkpoint)
    payer = _Payer.of(getattr(source, "data", None), ledger, account)
    run = _Run(descent, params, divisor, source, payer, random_state, progress, file, checkpoint_seconds)
    return run.released()


def plan_descent(
    gradient: PrivateGradient,
    params: Any,
    source: Lots,
    *,
    spend: Loss,
    rate: Number | None = None,
    lot: int | None = None,
    rows: int | None = None,
    epochs: Number | None = None,
    steps: int | None = None,
    optimizer: Any = None,
    averaging: float = 0.0,
    bands: int | None = None,
) -> tuple[Descent, float]:
    """Check all public facts of a run, and find its noise. No row is read and nothing is charged.

    Returns:
        The plan, and the expected lot (0 if it will be bought).
    """
    check_loss(spend)
    _check_params(params)
    sampled, divisor = _read_rate(rate, lot, rows)
    count = _read_steps(sampled, epochs, steps)
    if isinstance(averaging, bool) or not isinstance(averaging, int | float) or not 0 <= averaging < 1:
        raise BadNumber(f"averaging is the decay of an average, from 0 to below 1, got {averaging!r:.40}.")
    optimizer = optax.adam(1e-3) if optimizer is None else optimizer
    if not (hasattr(optimizer, "init") and hasattr(optimizer, "update")):
        raise BadInput("optimizer is one of optax: optax.sgd(0.1, momentum=0.9).")
    also = () if divisor else _count_step(spend)
    size = gradient.coordinates(params)
    if bands is not None:
        banded = _banded(spend, bands, gradient, size, sampled, count)
        gradient = gradient.checked(params, source.row, source.unit.max_rows)
        return Descent(gradient, optimizer, banded, sampled, count, False, averaging), divisor
    step = solve(
        spend, steps=count, rate=sampled, coordinates=size, sensitivity=gradient.sensitivity, also=also
    )  # fmt: skip
    gradient = gradient.checked(params, source.row, source.unit.max_rows)
    facts = (
        ("optimizer steps", str(count)),
        ("clipping", f"{gradient.clipping}, norm {gradient.clip}"),
        (spend.measure, _bounds((*also, (step, count)), spend)),
    )
    release = PlannedRelease((*also, (step, count)), spend, facts)
    return Descent(gradient, optimizer, release, sampled, count, not divisor, averaging), divisor


def _banded(spend: Loss, bands: int, gradient: PrivateGradient, size: int, rate: Fraction, count: int) -> BandedRelease:
    """Return sums with correlated noise: a unit enters one lot of each pass."""
    weights = band_weights(bands)
    if bands > rate.denominator or count % rate.denominator:
        raise BadInput("correlated noise needs whole passes, of at least as many lots as there are bands.")
    if gradient.clipping == "adaptive":
        raise BadInput("correlated noise cancels between sums of one clipping norm. Use another clipping.")
    whole = total_sensitivity(gradient.sensitivity, weights, count // rate.denominator)
    step = solve(spend, steps=1, rate=1, coordinates=size * count, sensitivity=whole)
    facts = (
        ("optimizer steps", str(count)),
        ("clipping", f"{gradient.clipping}, norm {gradient.clip}"),
        (spend.measure, _bounds(((step, 1),), spend)),
    )
    return BandedRelease(PlannedRelease(((step, 1),), spend, facts), weights, count)


def _in_passes(source: Lots, order: Any, rate: Number | None, lot: Any, rows: Any) -> PassLots:
    """Return rows in passes of 1/rate lots."""
    sampled, divisor = _read_rate(rate, lot, rows)
    if not isinstance(source, ArrayLots) or sampled.numerator != 1 or not divisor:
        raise BadInput(
            "correlated noise is for arrays, in passes of a stated number of lots: rate='1/20' with lot=100, about how "
            "many rows a lot has, if that is public."
        )
    if order is None:
        return PassLots(source, sampled.denominator)
    places = np.asarray(order)
    if places.dtype.kind not in "iu" or places.shape != (len(source.arrays[0]),):
        raise BadInput("order has one whole number for each row: its lot within a pass, from 0.")
    return PassLots(source, sampled.denominator, places.astype(np.int64))


@dataclass(frozen=True, slots=True)
class _Payer:
    """Who pays: accounts that exist, or a ledger in which one is opened."""

    accounts: tuple[Account, ...] = ()
    book: Ledger | None = None
    version: str = ""
    label: str = ""

    @classmethod
    def of(cls, data: Any, ledger: Any, account: Any) -> "_Payer":
        if data is not None:
            if ledger is not None or account is not None:
                raise BadInput("a dataset's own account pays. Leave account and ledger out.")
            reader = getattr(data, "reader", None)
            more = () if reader is None else (reader.account,)
            label = f"{reader.label}\n" if reader is not None and reader.label else ""
            return cls((data.account, *more), version=data.version, label=label)
        if account is not None:
            if not isinstance(account, Account | Payer):
                raise BadInput("account is one of a ledger: ledger.open_account('visits', rho(2, delta='1e-6')).")
            return cls((account.account() if isinstance(account, Payer) else account,))
        if not isinstance(ledger, Ledger | Payer | str | PathLike | None):
            raise BadInput("ledger is a Ledger, or the folder of one.")
        if isinstance(ledger, Payer):
            return cls(book=ledger.ledger())
        return cls(book=ledger if isinstance(ledger, Ledger) else Ledger.in_folder(ledger or ".cloister"))

    @property
    def ledger(self) -> Ledger:
        return cast(Ledger, self.accounts[0].book if self.book is None else self.book)

    @property
    def paid(self) -> str:
        """Return who pays, in words: another run may not go on under its charge."""
        keys = [account.rules.key for account in self.accounts]
        return f"paid by: {keys}" if self.book is None else "paid by an account of its own"

    def open(self, loss: Loss) -> list[Account]:
        """Return the accounts; a new one adds rho and delta, and holds exactly what this release costs there."""
        if self.book is None:
            return list(self.accounts)
        return [self.book.open_account(f"train-{secrets.token_hex(6)}", loss.as_rho())]


@dataclass(frozen=True, slots=True)
class _Run:
    """One run: the charge, or the checkpoint's; the steps; the receipt."""

    descent: Descent
    params: Any
    divisor: float
    rows: Lots
    payer: _Payer
    seed: Any
    progress: bool | Callable[[Progress], object]
    file: Path | None
    seconds: float

    def released(self) -> TrainResult:
        release = self.descent.release
        request = f"{self.payer.label}train by DP-SGD: {release.parameters()}"
        state = self.descent.start(self.params, self.divisor)
        kept, first = self._kept(request, state)
        source = self._source(first)
        reporter = Reporter(self.progress, self.descent.steps, lambda step: _spent(release, step), first.step)
        accounts = self.payer.open(release.loss) if kept is None else kept.accounts
        ended: list[TrainState] = []

        def run(noise: NoiseSteps) -> Any:
            if kept is not None:
                kept.keep(first, now=True)
            noise.skip(first.step + (self.descent.counted and first.lot > 0))
            keep = (lambda _state: None) if kept is None else kept.keep
            ended.append(descend(self.descent, self.rows, first, noise, reporter, keep))
            if kept is not None:
                kept.keep(ended[0], last=True)
            return np.concatenate([np.asarray(leaf).ravel() for leaf in jax.tree.leaves(ended[0].params)])

        def steps(meter: PrivacyFilter) -> TrainState:
            meter.release(lambda: run, release)
            return ended[0]

        with reporter:
            last, receipt = release_steps(
                steps,
                accounts=accounts,
                spend=release.loss,
                request=request,
                unit=self.rows.unit,
                data_version=self.payer.version,
                source=source,
                charge=None if kept is None else kept.charge,
            )
        made = Release(
            value=last.params,
            loss=release.loss,
            unit=self.rows.unit,
            mechanism=release.name,
            parameters=release.parameters(),
            private=source.private,
            receipt=receipt,
        )
        return TrainResult(last.params, last.average, made, last.lot, last.clip, last.step)

    def _kept(self, request: str, start: TrainState) -> tuple[CheckpointWriter | None, TrainState]:
        """Return the writer of checkpoints and the state to begin with; a new run is charged here."""
        if self.file is None:
            return None, start
        release, book = self.descent.release, self.payer.ledger
        about = f"Made under {release.loss}, for {self.rows.unit}; as private as the release. It holds no rows."
        facts = (f"unit: {self.rows.unit}", f"rows: {self.rows.row}", f"data: {self.payer.version}", self.payer.paid)
        run = "\n".join((request, *facts))
        again = CheckpointWriter.resume(self.file, request, run, book, about, self.seconds)
        if again is not None:
            writer, file = again
            return writer, file.state(start)
        accounts = self.payer.open(release.loss)
        prices = [account.price(release.loss) for account in accounts]
        charge = book.reserve(list(zip(accounts, prices, strict=True)), request)
        return CheckpointWriter(self.file, run, accounts, charge, about, self.seconds), start

    def _source(self, first: TrainState) -> Source:
        if self.seed is None:
            return SYSTEM
        return SeededSource(str(self.seed) if not first.step else f"{self.seed}, from step {first.step}")


def _bounds(steps: Steps, spend: Loss) -> str:
    """Return the price of the steps from both sides, in words."""
    upper, lower = float(price(steps, spend)), lower_price(steps, spend)
    at = f" at delta {show(spend.delta)}" if spend.delta else ""
    return f"{lower:.6g} to {upper:.6g}{at}" if lower else f"at most {upper:.6g}{at}"


def _check_params(params: Any) -> None:
    leaves = jax.tree.leaves(params)
    if not leaves or not all(
        hasattr(leaf, "dtype") and leaf.dtype.kind == "f" and bool(np.all(np.isfinite(leaf))) for leaf in leaves
    ):
        raise BadInput("params is a tree of arrays of finite floats: the public start of training.")


def _read_rate(rate: Number | None, lot: Any, rows: Any) -> tuple[Fraction, float]:
    """Return the sampling rate, and the expected lot; 0 if it is to be bought."""
    for value, name in ((lot, "lot"), (rows, "rows")):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise BadNumber(f"{name} is a whole number of at least 1, got {value!r:.40}.")
    if rate is None:
        if lot is None or rows is None:
            raise BadInput(
                "the number of rows is private, so say at which rate a row enters a lot: rate='1/200', or lot=256 with "
                "rows=60000, about how many there are, if that is public."
            )
        rate = Fraction(lot, max(lot, rows))
    exact = rational(rate, "rate")
    if not 0 < exact <= 1:
        raise BadNumber(f"rate is a probability above 0 and at most 1, got {show(exact)}.")
    return exact, float(lot if lot is not None else exact * rows if rows is not None else 0)


def _read_steps(rate: Fraction, epochs: Number | None, steps: Any) -> int:
    if epochs is not None and steps is not None:
        raise BadInput("give epochs or steps, not both.")
    if steps is None:
        many = rational(10 if epochs is None else epochs, "epochs")
        if not 0 < many <= 10**6:
            raise BadNumber(f"epochs is a number above 0, got {show(many)}.")
        return max(1, round(many / rate))
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise BadNumber(f"steps is a whole number of at least 1, got {steps!r:.40}.")
    return steps


def _count_step(spend: Loss) -> Steps:
    """Return the step that buys the number of units: about a hundredth of the spend, or less."""
    sigma = 7 * root_above(1 / spend.amount) if spend.measure == "rho" else Fraction(30) / spend.amount
    return ((DiscreteGaussianStep(int(sigma * GRID) + 1, GRID, 1), 1),)


def _spent(release: PlannedRelease | BandedRelease, step: int) -> str:
    """Return the loss of the first steps, in words."""
    first, left = [], step
    for line, times in release.steps:
        own = min(times, left) if times > 1 else times
        left -= own if times > 1 else 0
        if own:
            first.append((line, own))
    return f"{release.loss.measure} {float(price(tuple(first), release.loss)):.3g} of {release.loss}"
