"""Export guard: refuses models that carry training rows, and models nobody knows not to.

    private models of Cloister    pass, if their receipt says `private`
    pipelines of models           pass if every part does
    parametric models             of a short list of scikit-learn's pass by exact type: coefficients, means, components.
                                  They carry no row, and promise nothing: a coefficient can still reveal a person
    everything else               is refused: known carriers with what they carry, the rest because it is unknown

A model is recognised by its exact type and by the attributes that its `fit` sets. One more attribute, such as a table
that someone has put on it, is refused.

Falls to: for carriers that were handed out all the same, `attack.stored_rows`; for parameters, `attack.membership`.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from cloister.lazy import homes
from cloister.learn.base.estimator import PrivateEstimator
from cloister.privacy.errors import OutputRefused

__all__ = ["check_export", "reason_to_refuse"]

# What models of scikit-learn keep of the rows they were fitted to.
_ALL_ROWS = "all rows it was fitted to"
_VECTORS = "training rows as support vectors"
_CARRIERS = {
    **dict.fromkeys(
        (
            *("KNeighborsClassifier", "KNeighborsRegressor", "RadiusNeighborsClassifier", "RadiusNeighborsRegressor"),
            *(
                "NearestNeighbors",
                "KNeighborsTransformer",
                "RadiusNeighborsTransformer",
                "LocalOutlierFactor",
                "KNNImputer",
            ),
            *("GaussianProcessClassifier", "GaussianProcessRegressor", "KernelRidge", "KernelDensity", "KernelPCA"),
            *("LabelPropagation", "LabelSpreading", "Isomap", "LocallyLinearEmbedding", "SpectralEmbedding", "DBSCAN"),
        ),
        _ALL_ROWS,
    ),
    **dict.fromkeys(("SVC", "SVR", "NuSVC", "NuSVR", "OneClassSVM"), _VECTORS),
    **dict.fromkeys(("Nystroem",), "some of the rows it was fitted to"),
    **dict.fromkeys(
        ("DecisionTreeClassifier", "DecisionTreeRegressor", "ExtraTreeClassifier", "ExtraTreeRegressor"),
        "cuts between training rows, and in its leaves the labels of as few as one",
    ),
    **dict.fromkeys(("MinMaxScaler", "MaxAbsScaler", "QuantileTransformer", "RobustScaler"), "values of single rows"),
    **dict.fromkeys(
        ("OneHotEncoder", "OrdinalEncoder", "CountVectorizer", "TfidfVectorizer"), "every value that occurs"
    ),
    "LogisticRegressionCV": "scores of the rows it was fitted to",
    "RidgeCV": "scores of the rows it was fitted to",
    "SelfTrainingClassifier": "the label of every row it was fitted to",
    **dict.fromkeys(
        ("GridSearchCV", "RandomizedSearchCV"), "scores of the rows it was fitted to, beside its best_estimator_"
    ),
}
# scikit-learn's models that keep sums over rows alone, and the attributes that their `fit` sets.
_INPUT = {"n_features_in_", "feature_names_in_"}
_LINEAR = {
    *("coef_", "intercept_", "n_iter_", "classes_", "rank_", "singular_", "dual_gap_", "solver_", "_label_binarizer"),
}
_COUNTED = {
    *("classes_", "class_count_", "class_log_prior_", "feature_count_", "feature_log_prob_", "feature_all_"),
}
_DISCRIMINANT = {
    "means_",
    "priors_",
    "covariance_",
    "scalings_",
    "xbar_",
    "explained_variance_ratio_",
    "_n_features_out",
}
_COMPONENTS = {
    *("components_", "explained_variance_", "explained_variance_ratio_", "singular_values_", "mean_", "n_components_"),
    *("n_samples_", "noise_variance_", "_fit_svd_solver"),
}
_PARAMETRIC: dict[str, set[str]] = {
    "LogisticRegression": _LINEAR,
    "LinearRegression": _LINEAR,
    "Ridge": _LINEAR,
    "RidgeClassifier": _LINEAR,
    "Lasso": _LINEAR | {"l1_ratio"},
    "ElasticNet": _LINEAR,
    "LinearSVC": _LINEAR,
    "LinearSVR": _LINEAR,
    "GaussianNB": {"classes_", "class_count_", "class_prior_", "theta_", "var_", "epsilon_"},
    "MultinomialNB": _COUNTED,
    "BernoulliNB": _COUNTED,
    "ComplementNB": _COUNTED,
    "LinearDiscriminantAnalysis": _LINEAR | _DISCRIMINANT | {"_max_components"},
    "StandardScaler": {"mean_", "var_", "scale_", "n_samples_seen_"},
    "PCA": _COMPONENTS,
}
_VOTED = {"le_", "classes_", "estimators_", "named_estimators_"}
_BAGGED = {
    *("_n_samples", "classes_", "n_classes_", "estimator_", "estimator_params", "estimators_", "estimators_features_"),
    *("_max_samples", "_max_features", "_sample_weight", "_seeds"),
}
# Containers of models, and the attributes that their `fit` sets beside the parts.
_CONTAINERS: dict[str, set[str]] = {
    "Pipeline": set(),
    "FeatureUnion": set(),
    "ColumnTransformer": {
        *("_columns", "_transformer_to_input_indices", "_remainder", "_n_features", "sparse_output_", "transformers_"),
        *("output_indices_", "_name_to_fitted_passthrough"),
    },
    "VotingClassifier": _VOTED,
    "VotingRegressor": _VOTED,
    "BaggingClassifier": _BAGGED,
    "BaggingRegressor": _BAGGED,
    "OneVsRestClassifier": {"estimators_", "label_binarizer_", "classes_"},
    "TransformedTargetRegressor": {"regressor_", "transformer_", "_training_dim"},
}
_ROUTING = {"_metadata_request", "_sklearn_output_config", "_skl_callbacks"}


def check_export(model: Any, *, rows: int | None = None) -> None:
    """Refuse to let a model leave that carries training rows, or that is not known not to.

    Args:
        model: fitted.
        rows: number of training rows, where the caller knows it: an array as long as them is then refused in any
            part that promises no privacy.

    Privacy: no cost: it looks at types, names and shapes. That a model passes is no claim of privacy; only the receipt
        of a private model is one.

    Raises:
        OutputRefused: names the part and what it carries.
    """
    reason = reason_to_refuse(model, rows)
    if reason is not None:
        raise OutputRefused(f"this model does not leave: {reason}")


def reason_to_refuse(model: Any, rows: int | None = None) -> str | None:
    """Return why a model must not leave, or None."""
    if isinstance(model, bytes | bytearray | memoryview | str):
        return "a pickle or a file is not looked into: it runs code, and keeps whatever an object held. Load it first."
    if isinstance(model, type) or not hasattr(model, "get_params"):
        kind = model.__name__ if isinstance(model, type) else type(model).__name__
        return f"a {kind:.60} is not known to be free of training rows."
    name, module = type(model).__name__, type(model).__module__
    if isinstance(model, PrivateEstimator):
        return _of_cloister(model)
    if module.startswith("cloister.") and _is_free(model):
        return None
    if not module.startswith("sklearn."):
        return f"a {name:.60} is not known to be free of training rows."
    parts = list(_parts(model))
    if parts:
        told = next((reason for part in parts if (reason := reason_to_refuse(part, rows)) is not None), None)
        return _of_container(model) if told is None else told
    if name in _CARRIERS:
        return f"a {name} stores {_CARRIERS[name]}. Use a private model of cloister.learn."
    if name not in _PARAMETRIC:
        return f"a {name:.60} is not known to be free of training rows. Use a private model of cloister.learn."
    return _of_numbers(model, _PARAMETRIC[name], rows)


def _of_cloister(model: Any) -> str | None:
    """Return why a private estimator must not leave: it has no receipt, is a lesson, or holds something else."""
    from cloister.learn.persistence import foreign_attributes, is_kept

    name = type(model).__name__
    if not is_kept(type(model)):
        return f"a {name:.60} is not an estimator of cloister.learn, but a class of its own, which may keep rows."
    if getattr(model, "spend", None) is not None:
        release = getattr(model, "release_", None)
        if release is None:
            return f"the {name} is not fitted."
        if not release.private or release.receipt is None:
            return f"the {name} is not private: it has no receipt, or its noise came from a seed."
    for foreign in foreign_attributes(model):
        return f"the {name} has {foreign:.60}, which no fit sets: nobody knows whether it is public."
    return None


def _is_free(model: Any) -> bool:
    """Return True if it is a transformer of cloister.learn that reads no row."""
    from cloister import learn

    name = type(model).__name__
    return name in homes(learn.__name__) and getattr(learn, name) is type(model) and not hasattr(model, "spend")


def _parts(model: Any) -> Iterator[Any]:
    """Return the fitted parts of a container of scikit-learn; none for a model."""
    name = type(model).__name__
    if name == "Pipeline":
        yield from (step for _, step in model.steps if step is not None and step != "passthrough")
    elif name == "FeatureUnion":
        yield from (step for _, step in model.transformer_list if not isinstance(step, str))
    elif name == "ColumnTransformer":
        yield from (
            step for _, step, _ in getattr(model, "transformers_", model.transformers) if not isinstance(step, str)
        )
    elif name in (
        "VotingClassifier",
        "VotingRegressor",
        "BaggingClassifier",
        "BaggingRegressor",
        "OneVsRestClassifier",
    ):
        yield from getattr(model, "estimators_", ())
    elif name in ("GridSearchCV", "RandomizedSearchCV", "SelfTrainingClassifier", "TransformedTargetRegressor"):
        inner = ("best_estimator_", "estimator_", "regressor_")
        yield from (getattr(model, attribute) for attribute in inner if hasattr(model, attribute))
        target = getattr(model, "transformer_", None)
        if target is not None and not _does_nothing(target):
            yield target


def _does_nothing(transformer: Any) -> bool:
    return type(transformer).__name__ == "FunctionTransformer" and set(
        map(str, (transformer.func, transformer.inverse_func, transformer.kw_args, transformer.inv_kw_args))
    ) == {"None"}


def _of_container(model: Any) -> str | None:
    """Return why a container must not leave whose parts may: it holds something else, or fitted models to copy."""
    name = type(model).__name__
    if name in _CARRIERS:
        return f"a {name} stores {_CARRIERS[name]}. Serve that part, or a private model of cloister.learn."
    state = set(vars(model)) - set(model.get_params(deep=False)) - _ROUTING
    for foreign in sorted(state - _CONTAINERS[name] - _INPUT):
        return f"the {name} has {foreign:.60}, which is not known to be free of training rows."
    if getattr(model, "_sample_weight", None) is not None:
        return f"the {name} stores the weight of every row it was fitted to."
    fitted = {id(part) for part in _parts(model)}
    for given in model.get_params(deep=True).values():
        if not hasattr(given, "get_params") or isinstance(given, type) or id(given) in fitted:
            continue
        if set(vars(given)) - set(given.get_params(deep=False)) - _ROUTING and reason_to_refuse(given) is not None:
            return f"the {name} was given a {type(given).__name__:.60} to copy that is fitted itself."
    return None


def _of_numbers(model: Any, known: set[str], rows: int | None) -> str | None:
    """Return why a parametric model must not leave: it has an attribute that its fit does not set, or rows."""
    name, state = type(model).__name__, set(vars(model)) - set(model.get_params(deep=False)) - _ROUTING
    if not state:
        return f"the {name} is not fitted."
    for foreign in sorted(state - known - _INPUT):
        return f"the {name} has {foreign:.60}, which no fit sets: nobody knows whether it is public."
    for parameter, value in sorted(model.get_params(deep=False).items()):
        if not _is_setting(value):
            return f"the parameter {parameter} of the {name} is a {type(value).__name__:.60}, which may hold rows."
    for attribute, value in sorted(vars(model).items()):
        if rows is not None and isinstance(value, np.ndarray) and rows > 1 and rows in value.shape:
            return f"the {name} has {attribute}, an array as long as the training rows."
    return None


def _is_setting(value: Any) -> bool:
    """Return True for what a parameter of a parametric model is: a number, a text, or a short list or dict of these."""
    if isinstance(value, dict):
        return all(_is_setting(part) for pair in value.items() for part in pair if not isinstance(part, dict | list))
    if isinstance(value, np.ndarray):
        return value.ndim <= 1 and value.dtype.kind != "O"
    if isinstance(value, list | tuple):
        return all(isinstance(part, bool | int | float | str | np.generic) for part in value)
    simple = bool | int | float | str | np.generic | np.random.RandomState | np.random.Generator
    return value is None or isinstance(value, simple)
