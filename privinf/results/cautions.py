"""The one place that warns of normal inference: every public member of a result does, unless named here.

A class of results that inherits from `Cautious` has all its public methods and properties wrapped when it is
made. A member that is new, in a model's own class too, therefore warns; anyone who adds one that gives no
interval, test or p-value of the coefficients adds its name to `SILENT`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property, wraps
from types import FunctionType, MappingProxyType
from typing import Any, ParamSpec, TypeVar, cast

from privinf.error_boundary import passes_calls_on

P = ParamSpec("P")
R = TypeVar("R")
# Members without an interval, a test or a p-value that rests on normal inference about the coefficients.
SILENT = frozenset(
    {
        # facts about the fit, and its cost
        *("names", "nobs", "params", "estimate", "privacy", "release", "model", "method", "target"),
        *(
            "options",
            "notes",
            "identification",
            "weakly_identified",
            "cautions",
            "default_model_infos",
            "save",
            "load",
        ),
        *("family", "loss", "trace", "communication", "naive", "sparse_params", "selected", "score_target"),
        # up to where records are followed, and a test of whether this matters
        *("follow_up", "events_after_stop", "events_after_stop_se", "target_test"),
        # degrees of freedom, standard errors and covariances: no level is claimed
        *("use_t", "df_model", "df_resid", "k_constant", "cov_type", "cov_params", "bse", "bse_sampling"),
        *("bse_privacy", "noise_cov", "noise_share", "variance_formula", "variance_inflation", "bias"),
        # squares of residuals
        *(
            "rsquared",
            "rsquared_adj",
            "scale",
            "scale_noise",
            "rsquared_noise",
            "ssr",
            "ess",
            "mse_resid",
            "mse_model",
            "mse_total",
        ),
        *("centered_tss", "dispersion", "residual_scale", "residual_scale_bounds", "alpha", "alpha_bse"),
        # predicted means without their errors
        *("predict", "predict_sparse"),
        # inference by scores, which holds however strong the noise is
        *("score_test", "score_set", "score_sets_are_quick"),
        # releases of their own, with errors of their own
        *("missed_column_test", "restricted_eigenvalues", "noise_variance", "score_tail", "picks_from"),
        *("explained_shares", "bias_bound", "hidden_targets"),
        # results by site
        *("labels", "pairs", "results", "site", "shared_params", "interval_epsilon", "differs", "to_frame"),
        # formulas of paper 1
        *("gradient_variance", "variance_bound", "convergence_bound", "reconstruction_bound"),
    }
)
# Members whose output states the warnings about its intervals itself.
MARKED = frozenset(
    {
        "summary",
        "glance",
        "to_dict",
        "to_json",
        "to_parquet",
        "to_maketables",
        "to_latex",
        "to_html",
        "to_word",
        "report",
    }
)
# Members, and functions of a result, that are about single coefficients; all others are about several.
SINGLE = frozenset(
    {
        *("conf_int", "pvalues", "tvalues", "tidy", "plot", "coefficients", "odds_ratios", "rate_ratios"),
        "summary_frame",
    }
)


@dataclass(slots=True)
class Reading:
    """A running member of a result; `jointly` is True once it read inference about several coefficients."""

    jointly: bool


# Results with a running member, by id: its own accesses to the same result do not warn again.
_AT_WORK: ContextVar[Mapping[int, Reading]] = ContextVar("at_work", default=MappingProxyType({}))


class Cautious:
    """A result whose public members warn where normal inference should not be trusted."""

    def __init_subclass__(cls, **words: Any) -> None:
        super().__init_subclass__(**words)
        for name, member in list(vars(cls).items()):
            if not name.startswith("_") and name not in SILENT:
                setattr(cls, name, _cautious(name, member))

    def _warn_if_weak(self, subject: str, jointly: bool = True) -> None:
        """Warn of all that speaks against normal inference; `subject` begins the text.

        `jointly`: whether the inference is about several coefficients.
        """

    def _caution(self, subject: str) -> None:
        """Warn, unless a member is at work that does so itself."""
        if id(self) not in _AT_WORK.get():
            self._warn_if_weak(subject)


class warned_once:
    """Let members of a result be silent, and warn once at the end; without `subject` not at all.

    For a function that reads several members of a result, or that reads its covariance itself. Not a
    generator, whose frame would hide the caller's line from `privinf.error_boundary.warn`.
    """

    def __init__(self, result: Any, subject: str = "", jointly: bool = True) -> None:
        self.result = result
        self.subject = subject
        self.jointly = jointly

    def __enter__(self) -> None:
        working = _AT_WORK.get()
        self.outermost = id(self.result) not in working
        self.reading = Reading(self.jointly) if self.outermost else working[id(self.result)]
        self.reading.jointly |= self.jointly and bool(self.subject)
        self.token = _AT_WORK.set({**working, id(self.result): self.reading})

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        _AT_WORK.reset(self.token)
        if kind is None and self.outermost and self.subject and isinstance(self.result, Cautious):
            self.result._warn_if_weak(self.subject, self.reading.jointly)


def reads_intervals(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function of a result, its first argument, so that it warns once as a member would."""

    @wraps(function)
    def with_caution(*args: P.args, **words: P.kwargs) -> R:
        result = args[0] if args else words.get("result")
        with warned_once(result, f"{function.__name__}()", function.__name__ not in SINGLE):
            return function(*args, **words)

    return with_caution


def _cautious(name: str, member: Any) -> Any:
    """Return a member that warns after its work was done, once however many others it called."""
    jointly = name not in SINGLE
    if isinstance(member, FunctionType):
        return _wrapped(member, "" if name in MARKED else f"{name}()", jointly)
    if isinstance(member, cached_property):  # its own cache would be read without a warning
        return property(_wrapped(_cached(name, member), name, jointly), doc=member.__doc__)
    if isinstance(member, property) and isinstance(member.fget, FunctionType):
        return property(_wrapped(member.fget, name, jointly), doc=member.__doc__)
    return member


def _cached(name: str, member: cached_property[Any]) -> FunctionType:
    key = f"_at_hand_{name}"

    def value(self: Any) -> Any:
        if key not in self.__dict__:
            self.__dict__[key] = member.func(self)
        return self.__dict__[key]

    return cast(FunctionType, value)


def _wrapped(function: FunctionType, subject: str, jointly: bool) -> FunctionType:
    # Names that the copy below finds in its closure.
    scores = _asks_for_scores(function)
    once = warned_once

    @wraps(function)
    def with_caution(self: Any, /, *args: Any, **words: Any) -> Any:
        with once(self, "" if scores(args, words) else subject, jointly):
            return function(self, *args, **words)

    # The copy counts as defined where the function is, for doctest.
    wrapper = cast(FunctionType, with_caution)
    passes_calls_on(wrapper.__code__)
    copy = FunctionType(wrapper.__code__, function.__globals__, function.__name__, None, wrapper.__closure__)
    copy.__kwdefaults__ = wrapper.__kwdefaults__
    return cast(FunctionType, wraps(function)(copy))


def _asks_for_scores(function: FunctionType) -> Callable[[tuple[Any, ...], dict[str, Any]], bool]:
    """Return a function that tests whether a call requests score inference (``method="score"``)."""
    places = list(inspect.signature(function).parameters)
    place = places.index("method") - 1 if "method" in places else None

    def asks(args: tuple[Any, ...], words: dict[str, Any]) -> bool:
        method = words.get("method")
        if method is None and place is not None and place < len(args):
            method = args[place]
        return place is not None and isinstance(method, str) and method == "score"

    return asks
