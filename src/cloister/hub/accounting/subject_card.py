"""Card for a data subject: limits on what can be learned about them from all releases so far.

The promise is a limit on belief. Suppose that a reader believes, before any release, that a fact about you is true with
probability p. Whatever else they know, and whatever they do with the releases, afterwards they can believe it with at
most

    p·e^epsilon / (p·e^epsilon + 1 - p),     and at least     p / (p + (1 - p)·e^epsilon),

except with probability delta, for which nothing is promised. For delta > 0 this is exact too: an (epsilon, delta)
release can be seen as one that reveals everything with probability delta and is a pure epsilon release otherwise
(Kairouz, Oh & Viswanath 2015).

Which facts: `taking part` is whether you are in the data at all; `a fact` is which of two things is in your records
when it is known that you are in it. For add/remove neighbours the second is a group of two (one version of you removed,
another added), so its limit is weaker, and the card says so.

The share of right guesses of a reader who starts at fifty-fifty is (1 + TV)/2, where TV is the total variation distance
between what is released with and without you: at most (e^epsilon - 1 + 2 delta)/(e^epsilon + 1), and for rho also at
most sqrt(rho/2) (Pinsker, as the Kullback-Leibler divergence is at most rho). The smallest of these is shown.
"""

from dataclasses import dataclass, replace
from fractions import Fraction

from cloister.privacy.conversion import delta_of_rho
from cloister.privacy.ledger import Balance
from cloister.privacy.loss import Loss, Relation
from cloister.privacy.number import exp_up, rational, show, sqrt_up

__all__ = ["NOT_PROMISED", "PRIORS", "Belief", "Card", "card", "cards", "percent"]

PRIORS = (Fraction(1, 100), Fraction(1, 10), Fraction(1, 2), Fraction(9, 10))
DELTA = Fraction(1, 10**6)  # where the budget names none: one in a million
_BEYOND = 700  # e^700 is no useful limit, and larger powers only take longer to compute
_TRIED = tuple(Fraction(step, 8) for step in range(1, 81))

NOT_PROMISED = (
    "Facts that hold for people in general are not hidden. If the data show that smoking causes cancer and somebody "
    "knows that you smoke, they learn something about you, and would have learned it without your records too.",
    "What you, or others who hold records about you elsewhere, publish is not covered.",
    "People who run this hub's computers could read the records while they are in use. The page on trust says who.",
    "If several people are nearly one (a family in one record, twins), the limit for all of them together is weaker.",
    "The limit is for this dataset. If other datasets about you are released elsewhere, their losses come on top.",
)


@dataclass(frozen=True, slots=True)
class Belief:
    """Limits on the change of one belief.

    Attributes:
        prior: the belief before any release.
        most: the largest belief afterwards; rounded up.
        least: the smallest belief afterwards; rounded down.
    """

    prior: Fraction
    most: Fraction
    least: Fraction

    @property
    def words(self) -> tuple[str, str, str]:
        """Return prior, least and most as percentages, each rounded to the side that promises less."""
        return percent(self.prior), percent(self.least, up=False), percent(self.most)


@dataclass(frozen=True, slots=True)
class Card:
    """Guarantees for one data subject.

    Attributes:
        loss: the total loss in the ledger.
        epsilon: the loss as an epsilon, at `delta`.
        delta: the probability with which the limit does not hold.
        odds: the largest factor by which the odds of taking part can change; None if there is no useful limit.
        guess: the largest share of right fifty-fifty guesses on taking part.
        taking_part: limits on the belief that one is in the data; empty if that is not protected (replace-one).
        fact: limits on the belief in a fact about a person who is known to be in the data.
        fact_epsilon: the epsilon behind these.
        fact_delta: the probability with which these do not hold.
    """

    loss: Loss
    epsilon: Fraction
    delta: Fraction
    odds: Fraction | None
    guess: Fraction
    taking_part: tuple[Belief, ...]
    fact: tuple[Belief, ...]
    fact_epsilon: Fraction
    fact_delta: Fraction

    @property
    def chance(self) -> str:
        """Return the delta in words: `1 in 1,000,000`."""
        return _chance(self.delta)

    @property
    def sentences(self) -> tuple[str, ...]:
        """Return the card in plain words."""
        if not self.loss.amount and not self.loss.delta:
            return ("Nothing has been released from this data. Nobody has learned anything about you from it.",)
        beliefs, claim = (
            (self.taking_part, "you are in this data") if self.taking_part else (self.fact, "a fact about you is true")
        )
        half = next(belief for belief in beliefs if belief.prior == Fraction(1, 2))
        _, least, most = half.words
        lines = [
            f"Somebody who thinks it fifty-fifty that {claim} can, after seeing everything that was ever released from "
            f"it, be at most {most} sure that it is so, and at least {least}.",
        ]
        if self.odds is not None:
            lines.append(f"Whatever they believed before, the odds change by a factor of at most {_factor(self.odds)}.")
        else:
            lines.append("The total is so large that this limit protects nobody. Ask the owner why.")
        lines.append(
            f"Somebody who must guess, and starts at fifty-fifty, is right at most {percent(self.guess)} of the time; "
            "with a coin it would be 50 %."
        )
        if self.delta:
            lines.append(
                f"These limits hold except with a probability of at most {self.chance} (delta "
                f"{show(self.delta)}); for that case nothing is promised."
            )
        lines.append("It does not matter what else they know, how clever they are, or how much they can compute.")
        return tuple(lines)


def card(loss: Loss, delta: Fraction | None = None) -> Card:
    """Return the card for a total loss.

    Args:
        loss: the loss of all releases together: epsilon, (epsilon, delta), or rho with or without a delta.
        delta: where to convert a rho to an epsilon; one in a million unless given. It adds to the loss's own delta.

    >>> card(Loss("epsilon", Fraction(1))).taking_part[2].words
    ('50 %', '26.8 %', '73.2 %')
    """
    at = DELTA if delta is None or not delta else rational(delta, "delta")
    epsilon_loss = loss.as_epsilon(at) if loss.measure == "rho" and loss.amount else loss
    two = _as_replaced(loss, epsilon_loss, at)
    present = loss.relation is Relation.ADD_REMOVE
    return Card(
        loss,
        epsilon_loss.amount,
        epsilon_loss.delta,
        _power(epsilon_loss.amount) if epsilon_loss.amount <= _BEYOND and epsilon_loss.delta < 1 else None,
        _guess(loss, epsilon_loss),
        _beliefs(epsilon_loss) if present else (),
        _beliefs(two),
        two.amount,
        two.delta,
    )


def cards(balance: Balance) -> tuple[Card, Card]:
    """Return the cards for the loss so far and for the whole budget, the most that can ever be spent."""
    converted = balance.rules.converted or None
    return card(balance.spent, converted), card(balance.rules.cap, converted)


def _as_replaced(loss: Loss, epsilon_loss: Loss, at: Fraction) -> Loss:
    """Return the loss between two versions of one person, as an epsilon."""
    if loss.relation is Relation.REPLACE_ONE or not loss.amount:
        return (
            replace(epsilon_loss, delta=min(2 * epsilon_loss.delta, Fraction(1))) if not loss.amount else epsilon_loss
        )
    if loss.measure == "rho" and not loss.delta:
        return loss.as_replace_one().as_epsilon(at)  # four times the rho, which is less than twice the epsilon
    return epsilon_loss.as_replace_one()


def _beliefs(loss: Loss) -> tuple[Belief, ...]:
    if loss.amount > _BEYOND or loss.delta >= 1:
        return tuple(Belief(prior, Fraction(1), Fraction(0)) for prior in PRIORS)
    odds = _power(loss.amount)  # rounded up: `most` grows with it and `least` falls
    return tuple(
        Belief(prior, prior * odds / (prior * odds + 1 - prior), prior / (prior + (1 - prior) * odds))
        for prior in PRIORS
    )


def _guess(loss: Loss, epsilon_loss: Loss) -> Fraction:
    """Return the largest share of right guesses from fifty-fifty, rounded up."""
    distances = [Fraction(1), _distance(epsilon_loss.amount, epsilon_loss.delta)]
    if loss.measure == "rho":
        distances.append(_with(sqrt_up(loss.amount / 2), loss.delta))
        for epsilon in _TRIED:  # any epsilon gives a valid limit; the smallest is kept
            distances.append(_distance(epsilon, _with(delta_of_rho(loss.amount, epsilon), loss.delta)))
    return (1 + min(distances)) / 2


def _distance(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return the total variation distance that (epsilon, delta) allows; it grows with e^epsilon."""
    if epsilon > _BEYOND:
        return Fraction(1)
    odds = _power(epsilon)
    return min((odds - 1 + 2 * min(delta, Fraction(1))) / (odds + 1), Fraction(1))


def _power(epsilon: Fraction) -> Fraction:
    """Return e^epsilon, rounded up."""
    return exp_up(epsilon) if epsilon else Fraction(1)


def _with(distance: Fraction, delta: Fraction) -> Fraction:
    """Combine a distance with an event of probability delta, in which anything may be revealed."""
    return min(distance + delta, Fraction(1))


def percent(share: Fraction, up: bool = True) -> str:
    """Return a share in per cent with one decimal, rounded up or down.

    >>> percent(Fraction(1, 2)), percent(Fraction(731, 1000)), percent(Fraction(2, 3), up=False)
    ('50 %', '73.1 %', '66.6 %')
    """
    tenths = -(-share * 1000 // 1) if up else share * 1000 // 1
    whole, rest = divmod(int(tenths), 10)
    return f"{whole}.{rest} %" if rest else f"{whole} %"


def _factor(odds: Fraction) -> str:
    hundredths = -(-odds * 100 // 1)
    if hundredths >= 10**6:
        return f"10^{len(str(int(odds)))}"
    return f"{float(Fraction(int(hundredths), 100)):g}"


def _chance(delta: Fraction) -> str:
    if delta > Fraction(1, 100):
        return percent(delta)
    return f"1 in {int(1 / delta):,}"
