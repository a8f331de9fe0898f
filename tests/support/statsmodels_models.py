"""statsmodels' model classes, whose fits without noise are ours: `OLS(endog, exog).fit()` of its own tests.

The rows stay in the model, as statsmodels has it; bounds are taken from them. What ours has is ours; what it
has not is lent from statsmodels' fit of the same rows and noted, with the reason. So a test runs to its end,
and each number that we give is compared with statsmodels', and with statsmodels' under our conventions.
"""

from __future__ import annotations

import math
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from statsmodels.discrete import discrete_model
from statsmodels.genmod import generalized_linear_model
from statsmodels.regression import linear_model
from statsmodels.stats.contrast import ContrastResults

import privinf as pi
from privinf.errors import NotAvailableError, PrivinfError

CLOSE = {"rtol": 1e-6, "atol": 1e-9}
# Words of statsmodels' fit that choose how the same estimate is found.
HOW = ("method", "maxiter", "disp", "start_params", "tol", "full_output", "tol_criterion", "scale")
COV_TYPES = ("nonrobust", "HC0")
FAMILIES = {
    ("Gaussian", "Identity"): "gaussian",
    ("Binomial", "Logit"): "binomial",
    ("Poisson", "Log"): "poisson",
}


# What depends on whether there is a constant.
OF_THE_CONSTANT = (
    "df_model",
    "k_constant",
    "rsquared",
    "rsquared_adj",
    "fvalue",
    "f_pvalue",
    "ess",
    "mse_model",
    "mse_total",
)


# What depends on a formula's terms.
OF_THE_FORMULA = ("wald_test_terms", "t_test_pairwise")


class Refused(Exception):
    """Ours makes no such fit; the text is the reason."""


@dataclass(frozen=True, slots=True)
class Event:
    """What a test asked of a result: `kind` is ours, lent, convention or wrong."""

    kind: str
    member: str
    reason: str = ""


LOG: list[Event] = []


def note(kind: str, member: str, reason: str = "") -> None:
    LOG.append(Event(kind, member, reason))


# ---- rows to our fit


def bounds_of(values: Any) -> tuple[float, float]:
    low, high = float(np.min(values)), float(np.max(values))
    if low < high:
        return low, high
    return (low / 2.0, 2.0 * low) if low > 0.0 else (low - 1.0, low + 1.0)


def columns_of(model: Any) -> pd.DataFrame:
    """Return the design matrix by its names, the column of ones as ``const``."""
    frame = pd.DataFrame(np.asarray(model.exog, dtype=np.float64), columns=list(map(str, model.exog_names)))
    ones = [name for name in frame if (frame[name] == 1.0).all()]
    return frame.rename(columns={ones[0]: "const"}) if len(ones) == 1 else frame


def schema_of(formula: str, frame: pd.DataFrame) -> pi.Schema:
    words = set(re.findall(r"[A-Za-z_]\w*", formula))
    declared: dict[str, Any] = {}
    for name in frame.columns:
        if name not in words:
            continue
        column = frame[name]
        if not pd.api.types.is_numeric_dtype(column) or re.search(rf"C\({name}\b", formula):
            declared[name] = pi.Factor(list(pd.unique(column.dropna().sort_values())))
        else:
            declared[name] = pi.Numeric(*bounds_of(column))
    return pi.Schema(declared)


def kept_frame(model: Any) -> pd.DataFrame:
    """Return the table of a formula's model, without the rows that statsmodels dropped."""
    frame = model.data.frame
    if hasattr(frame, "to_pandas"):
        frame = frame.to_pandas()
    elif not isinstance(frame, pd.DataFrame):
        frame = pd.DataFrame({name: np.asarray(frame[name]) for name in frame})
    return frame.loc[model.data.row_labels] if len(frame) != len(model.endog) else frame


def fitted(model: Any, cov_type: str) -> Any:
    """Return our fit of the model's rows at epsilon = inf, by its formula where it has one that we read."""
    make, words, roles = model._ours()
    formula = getattr(model, "formula", None)
    if formula is not None and not roles:
        try:
            frame = kept_frame(model)
            return make.from_formula(formula, frame, schema=schema_of(formula, frame), **words).fit(
                epsilon=math.inf, cov_type=cov_type
            )
        except PrivinfError as error:
            note("lent", "from_formula", str(error))
    columns, endog = columns_of(model), np.asarray(model.endog, dtype=np.float64)
    if endog.ndim != 1:
        raise Refused("a response of several columns")
    named = {}
    for role, values in roles.items():
        columns[role] = values
        named[role] = role
    limits = {name: bounds_of(columns[name]) for name in columns if name != "const"}
    y_bounds = {} if make is pi.Logit else {"y_bounds": bounds_of(endog)}
    if "family" in words and words["family"] == "binomial":
        y_bounds = {"y_bounds": (0.0, 1.0)}
    if make is pi.MomentOLS:
        return weighted(columns, endog, roles["weights"], cov_type)
    return make(endog, columns, bounds=limits, **y_bounds, **words, **named).fit(
        epsilon=math.inf, cov_type=cov_type
    )


def weighted(columns: pd.DataFrame, endog: Any, weights: Any, cov_type: str) -> Any:
    """Return least squares with public weights, which are a column of the table."""
    if "const" in columns and columns.columns[0] != "const":  # a formula's constant comes first
        columns = columns.rename(columns={"const": "ones"})
    names = [name for name in columns if name not in ("const", "weights")]
    codes = {name: f"column{place}" for place, name in enumerate(names)}
    table = columns.rename(columns=codes).drop(columns="const", errors="ignore").assign(response=endog)
    declared: dict[str, Any] = {
        name: pi.Numeric(*bounds_of(table[name])) for name in [*codes.values(), "response"]
    }
    declared["weights"] = pi.Numeric(*bounds_of(weights), public=True)
    constant = "1" if "const" in columns else "0"
    formula = f"response ~ {' + '.join([constant, *codes.values()])}"
    return pi.MomentOLS.from_formula(formula, table, schema=pi.Schema(declared), weights="weights").fit(
        epsilon=math.inf, cov_type=cov_type
    )


# ---- results


def numbers(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the numbers that a value shows, each with a name."""
    if isinstance(value, ContrastResults):
        for name in ("effect", "sd", "statistic", "pvalue", "df_denom", "df_num"):
            if getattr(value, name, None) is not None:
                yield name, np.squeeze(np.asarray(getattr(value, name), dtype=np.float64))
        if value.distribution in ("t", "norm"):
            yield "conf_int", np.squeeze(value.conf_int())
    elif hasattr(value, "summary_frame") and hasattr(value, "predicted_mean"):
        frame = value.summary_frame()
        yield from ((str(name), frame[name].to_numpy()) for name in frame)
    elif hasattr(value, "table") and isinstance(value.table, pd.DataFrame):
        yield "table", value.table.to_numpy(dtype=np.float64)
    elif hasattr(value, "result_frame"):
        yield "result_frame", value.result_frame.iloc[:, :7].to_numpy(dtype=np.float64)
    elif isinstance(value, (bool, int, float, np.number, np.ndarray, pd.Series, pd.DataFrame)):
        try:
            yield "", np.squeeze(np.asarray(value, dtype=np.float64))
        except (TypeError, ValueError):
            return


def differing(ours: Any, theirs: Any) -> list[str]:
    """Return the names of the numbers in which two values differ."""
    others = dict(numbers(theirs))
    found = []
    for name, number in numbers(ours):
        other = others.get(name)
        if other is None:
            continue
        if np.shape(number) != np.shape(other) or not np.allclose(number, other, equal_nan=True, **CLOSE):
            found.append(name)
    return found


class Lender:
    """Ours where it has a member, statsmodels' otherwise; what is lent is noted."""

    def __init__(self, ours: Any, theirs: Any, prefix: str = "") -> None:
        self.__dict__.update(_own=ours, _lent=theirs, _prefix=prefix)

    @property
    def __class__(self) -> type:  # isinstance() asks it
        return type(self.__dict__["_lent"])

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __reduce__(self) -> Any:
        return type(self)._restored, (self.__dict__,)

    @classmethod
    def _restored(cls, state: dict[str, Any]) -> Any:
        made = cls.__new__(cls)
        made.__dict__.update(state)
        return made

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        own, lent = self.__dict__["_own"], self.__dict__["_lent"]
        return self._from(own, lent, name)

    def _from(self, own: Any, lent: Any, name: str) -> Any:
        full = self.__dict__["_prefix"] + name
        theirs = getattr(lent, name)
        if isinstance(own, Refused):
            note("lent", "fit", str(own))
            return theirs
        apart = "_apart" if name in OF_THE_CONSTANT else "_terms" if name in OF_THE_FORMULA else ""
        if reason := self.__dict__.get(apart):
            note("lent", full, reason)
            return theirs
        if name.startswith("_"):
            note("lent", full, "internal")
            return theirs
        try:
            ours = getattr(own, name)
        except NotAvailableError as error:
            note("lent", full, str(error))
            return theirs
        except AttributeError:
            note("lent", full, "no such member")
            return theirs
        return self._checked(full, ours, theirs, getattr(self.__dict__.get("_ref"), name, None))

    def _checked(self, full: str, ours: Any, theirs: Any, ref: Any) -> Any:
        if callable(ours) and callable(theirs):
            return self._method(full, ours, theirs, ref)
        note("ours", full)
        return self._compared(full, ours, theirs, ref)

    def _method(self, full: str, ours: Callable[..., Any], theirs: Any, ref: Any) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            try:
                found = ours(*args, **kwargs)
            except (PrivinfError, TypeError) as error:
                given = theirs(*args, **kwargs)  # raises too where the test expects it to
                words = "".join(f"{word}=" for word in kwargs)
                note("lent", f"{full}({words})", str(error))
                return given
            note("ours", full)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    given = theirs(*args, **kwargs)
                except Exception as error:
                    note("kinder", full, type(error).__name__)
                    return found
                expected = None if ref is None else ref(*args, **kwargs)
            return self._compared(full, found, given, expected)

        return called

    def _compared(self, full: str, ours: Any, theirs: Any, ref: Any) -> Any:
        for name in differing(ours, theirs):
            place = f"{full}.{name}" if name else full
            agreed = ref is not None and name not in differing(ours, ref)
            note("convention" if agreed else "wrong", place, self._convention() if agreed else "")
        return shown_as(ours, theirs)


def apart(ours: Any, theirs: Any) -> str:
    """Return why what counts the constant is not compared; empty where both count it alike."""
    model = theirs.model
    constant = int(getattr(model, "k_constant", ours.k_constant))
    if ours.k_constant != constant:
        return f"statsmodels counts {constant} constants, and ours, which reads no rows, {ours.k_constant}"
    if model.df_model != len(ours.names) - constant:
        return "the test sets the model's df_model by hand"
    return ""


class OurResults(Lender):
    """Our results, with statsmodels' fit behind them."""

    def _convention(self) -> str:
        """Return what `_ref`, statsmodels' fit by our conventions, has other than its default."""
        theirs, ref = self.__dict__["_lent"], self.__dict__["_ref"]
        if differing(np.asarray(ref.params), np.asarray(theirs.params)):
            return "its optimizer stops short of the root"
        return f"{'t' if ref.use_t else 'z'}, where it takes {'t' if theirs.use_t else 'z'}"

    def __init__(self, ours: Any, theirs: Any, ref: Any) -> None:
        super().__init__(ours, theirs)
        self.__dict__["_ref"] = ref
        if not isinstance(ours, Refused):
            self.__dict__["_apart"] = apart(ours, theirs)
            formula = getattr(theirs.model, "formula", None)
            if formula is not None and getattr(ours.model, "exog_names", None) != theirs.model.exog_names:
                self.__dict__["_terms"] = "our fit is of the matrix, which has no terms"

    @property
    def model(self) -> Any:
        own, lent = self.__dict__["_own"], self.__dict__["_lent"]
        return lent.model if isinstance(own, Refused) else Lender(own.model, lent.model, "model.")


def shown_as(ours: Any, theirs: Any) -> Any:
    """Return our value as an array where statsmodels gives arrays, with its labels where it gives those."""
    if isinstance(ours, (pd.Series, pd.DataFrame)):
        if isinstance(theirs, np.ndarray):
            return ours.to_numpy().copy()
        if isinstance(theirs, type(ours)) and len(ours) == len(theirs):
            found = ours.copy()
            found.index = theirs.index
            return found
    return ours


# ---- models


def asked_by_a_test() -> bool:
    name = sys._getframe(2).f_globals.get("__name__", "")
    return ".tests." in name or name == "statsmodels.tools._testing"


class Ours:
    """The fit of a statsmodels model by ours, when a test asks for it."""

    def fit(self, *args: Any, **kwargs: Any) -> Any:
        theirs = super().fit(*args, **kwargs)  # type: ignore[misc]
        if not asked_by_a_test():
            return theirs
        try:
            own = fitted(self, self._asked(args, kwargs))
        except (Refused, PrivinfError) as error:
            return OurResults(Refused(str(error)), theirs, None)
        same = {"cov_type": theirs.cov_type, "use_t": own.use_t, **self._precisely()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ref = super().fit(*args, **{**kwargs, **same})  # type: ignore[misc]
        return OurResults(own, theirs, ref)

    def _precisely(self) -> dict[str, Any]:
        """Return the words by which statsmodels goes on to the root of the likelihood's equation."""
        return {}

    def _asked(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        more = [word for word in kwargs if word not in (*HOW, "cov_type")]
        cov_type = kwargs.get("cov_type", "nonrobust")
        if cov_type not in COV_TYPES:
            raise Refused(f"cov_type={cov_type!r}")
        if more:
            raise Refused(f"fit({more[0]}=)")
        return str(cov_type)


class OLS(Ours, linear_model.OLS):
    def _ours(self) -> Any:
        return pi.OLS, {}, {}


class WLS(Ours, linear_model.WLS):
    def _ours(self) -> Any:
        return pi.MomentOLS, {}, {"weights": self.weights}


class GLM(Ours, generalized_linear_model.GLM):
    def _ours(self) -> Any:
        kind = type(self.family).__name__, type(self.family.link).__name__
        if kind not in FAMILIES:
            raise Refused(f"family {kind[0]} with link {kind[1]}")
        if (self.freq_weights != 1).any() or (self.var_weights != 1).any() or (self.n_trials != 1).any():
            raise Refused("weights or numbers of trials")
        linear = self._offset_exposure
        shift = {"offset": linear} if np.ndim(linear) else {}
        return pi.GLM, {"family": FAMILIES[kind]}, shift


class Discrete(Ours):
    def _precisely(self) -> dict[str, Any]:
        return {"method": "newton", "tol": 1e-12, "maxiter": 100}


class Logit(Discrete, discrete_model.Logit):
    def _ours(self) -> Any:
        offset = getattr(self, "offset", None)
        return pi.Logit, {}, {} if offset is None else {"offset": offset}


class Poisson(Discrete, discrete_model.Poisson):
    def _ours(self) -> Any:
        roles = {}
        if np.ndim(getattr(self, "offset", 0)):
            roles["offset"] = self.offset
        if np.ndim(getattr(self, "exposure", 0)):
            roles["exposure"] = np.exp(self.exposure)
        return pi.Poisson, {}, roles


MODELS = {
    "OLS": (linear_model.OLS, OLS),
    "WLS": (linear_model.WLS, WLS),
    "GLM": (generalized_linear_model.GLM, GLM),
    "Logit": (discrete_model.Logit, Logit),
    "Poisson": (discrete_model.Poisson, Poisson),
}
