"""Arithmetic on rows without warnings or errors: an overflow would reveal that some row holds a huge number.

All methods of an estimator run without numpy's floating-point warnings, even if the caller turned them into errors:
`np.seterr(all="raise")`, `warnings.simplefilter("error")`.
"""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np

__all__ = ["Quiet", "quiet"]

Method = TypeVar("Method", bound=Callable[..., Any])
_ASKED = (
    "decision_function", "inverse_transform", "predict", "predict_log_proba", "predict_proba", "score", "transform",
)  # fmt: skip


def quiet(method: Method) -> Method:
    """Wrap a function to run without floating-point warnings."""

    @wraps(method)
    def silent(*args: Any, **kwargs: Any) -> Any:
        with np.errstate(all="ignore"):
            return method(*args, **kwargs)

    silent._is_quiet = True  # type: ignore[attr-defined]
    return cast(Method, silent)


class Quiet:
    """Mixin whose methods on rows run without floating-point warnings, inherited ones included."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in _ASKED:
            method = getattr(cls, name, None)
            if inspect.isfunction(method) and not hasattr(method, "_is_quiet"):
                setattr(cls, name, quiet(method))
