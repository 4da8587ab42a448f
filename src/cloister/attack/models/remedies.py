"""What would have stopped an attack on a model, in sentences that name Cloister's own remedies."""

from cloister.privacy.loss import Loss

__all__ = ["for_attribute", "for_extraction", "for_inversion", "for_membership", "for_stealing"]

_TRAIN = (
    "train with a privacy loss, which bounds every such attack: learn.LogisticRegression(spend=…), learn.GaussianNB or "
    "learn.NeuralNetworkClassifier(spend=epsilon(1, delta='1e-6'), …)"
)
_LABELS = "show labels only: learn.serve(model, policy=serving.label_only())"
_ROUND = "round what is shown: learn.serve(model, policy=serving.rounded(1)); it slows attacks and bounds none"
_LIMIT = "limit the queries of a caller: learn.serve(model, queries_each=…)"
_FITTED = "fit the rows less closely: fewer epochs, stronger regularisation, or more rows"
_VOTES = "answer from teachers whose votes are noisy and paid for: serving.private(…) on a serving.TeacherEnsemble"
_EXPORT = "do not hand out the model itself: serving.check_export refuses models that carry training rows"
_LESS = "spend less, or give each person fewer rows: the claim bounds the loss of one unit"


def _private(claim: Loss | None) -> str:
    return _TRAIN if claim is None else _LESS


def for_membership(claim: Loss | None, *, labels_only: bool, gap: bool) -> tuple[str, ...]:
    """Return what stops membership inference.

    Args:
        claim: the loss that the model states.
        labels_only: True if the attack needed labels only, so that hiding probabilities does not stop it.
        gap: True if members are predicted better than others.
    """
    first = [_private(claim)]
    shown = [_VOTES] if labels_only else [_LABELS]
    return (*first, *([_FITTED] if gap else []), *shown, _LIMIT)


def for_attribute(claim: Loss | None) -> tuple[str, ...]:
    """Return what stops attribute inference; what the column's correlations reveal stays."""
    return _private(claim), _LABELS, "leave the sensitive column, and columns that follow from it, out of the features"


def for_inversion(claim: Loss | None) -> tuple[str, ...]:
    """Return what stops model inversion."""
    return (
        _private(claim),
        _LABELS,
        _ROUND,
        _LIMIT,
        "do not let one class stand for one person: the class's average is then that person",
    )


def for_extraction(claim: Loss | None, *, stored: bool) -> tuple[str, ...]:
    """Return what stops extraction of training rows.

    Args:
        claim: the loss that the model states.
        stored: True if the model stores rows as they are.
    """
    if stored:
        return _EXPORT, "let people ask instead of having it: learn.serve(model, policy=serving.label_only())", _TRAIN
    return _private(claim), _FITTED, "remove rows that occur several times before training"


def for_stealing() -> tuple[str, ...]:
    """Return what makes copies dearer. Nothing that answers usefully stops them."""
    return (
        _LABELS,
        _ROUND,
        _LIMIT,
        "train the model on secret trigger rows with labels of your choice, and test suspects with attack.watermark",
    )
