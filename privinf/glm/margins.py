r"""Ratios and marginal effects of logistic and Poisson models, from the releases of their fits.

The effect of a column on the mean is c(eta) b_j, c the mean's derivative. At the columns' means it follows
from the coefficients and the means that the fit's first release holds. The average over the records needs
E c(eta). The last Hessian of the fit holds it, because the constant's entry of E c z z' is E c: that costs
nothing, and is used where it widens no interval by more than `WIDER`. Else ``fit(margins=True)`` releases it:
a record adds c at the estimate, at most C (1/4, or the largest count).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from scipy.special import expit

from privinf.accounting import PrivacyReport
from privinf.error_boundary import error_boundaries, refuses
from privinf.errors import NotAvailableError
from privinf.glm.curved import OneStepRelease, preliminary_step
from privinf.glm.curved_sums import CurvedSums, Noisy
from privinf.glm.sums import Roles
from privinf.inference.estimate import Estimate
from privinf.inference.intervals import Precision
from privinf.results.export import Export, caution_kinds
from privinf.results.fitted import FittedResult
from privinf.results.notes import Note, sentence
from privinf.results.paper_table import (
    ERRORS,
    TEXT_ONLY,
    PaperTable,
    check_digits,
    dropped_sentences,
    mark_sentences,
    privacy_note,
    row_digits,
    spread_of,
)
from privinf.results.prediction import PROBABILITY
from privinf.results.rendering import PrivateSummary, UnavailableOfEffects, coded_response
from privinf.results.summary import (
    DOUBTED_LABEL,
    NOT_PRIVATE,
    RESPONSE_LABEL,
    WEAK_LABEL,
    allowed_bias,
    flags_of,
    marks_legend,
    number,
    privacy_facts,
)
from privinf.results.summary import Flags as CoefficientFlags
from privinf.schema import Design
from privinf.schema.declared import Level
from privinf.typing import AnyPath, Flags, Floats, Margins, MarginsMethod
from privinf.validation import check_fraction

SHARE = 0.1  # share of mu^2 for average effects, where they are requested
WIDER = 1.02  # the Hessian's average is used where intervals are no wider than this, relative to a known one
MARGINS_NOT_RELEASED = (
    "average marginal effects need a new fit by fit(..., margins=True), which spends a tenth of its budget "
    "on them: {}. From this fit, get_margeff('mean') returns effects at the means of the columns, without "
    "further cost"
)
# Reasons why averages need their own release.
NOISY_AVERAGE = (
    "the budget of this fit is too small to determine the average, because the noise of its Hessian would "
    "widen intervals by more than 2%; a rare level of a factor is one possible cause"
)
WEIGHTED_AVERAGE = "the Hessian of a fit with weights holds only a weighted average"
NOT_AVERAGED = (
    "method={!r} is not available for averages over the records, because they need another release: pass "
    "at='mean' or at='zero', which cost nothing"
)
NO_DIFFERENCES = (
    "dummy=True is only available for at='mean' or 'zero' and method='dydx': use get_margeff('mean', "
    "dummy=True), or result.delta_method() of a difference of predictions, which has standard errors and "
    "intervals"
)
# What the effect of an indicator is, for the notes of a table.
DERIVATIVES = (
    "The effect of a level of a factor is a derivative, not the change of the mean from 0 to 1; "
    "get_margeff('mean', dummy=True) computes this change."
)
DIFFERENCES = (
    "The effect of a level of a factor is the change of the mean if its indicator changes from 0 to 1, with "
    "the other columns as stated."
)
NO_CONSTANT = "marginal effects require a model with a constant"
NO_OFFSET = (
    "average marginal effects are not available for a logistic model with an offset, "
    "because their covariance with the coefficients is not released; get_margeff('mean') "
    "returns effects at the means and at offset 0, without further cost"
)
# Largest variance of a predictor, or width of a term, that is worked with: beyond it standard errors say
# nothing anyway.
LARGEST_VARIANCE = 20.0
CURVES, SPREAD = np.polynomial.hermite_e.hermegauss(41)
SPREAD = SPREAD / SPREAD.sum()  # made to add up to 1: probabilities at CURVES


# Changes that statsmodels' methods state: of the mean or its logarithm, by a column or its logarithm.
LABELS: dict[MarginsMethod, str] = {
    "dydx": "dy/dx",
    "eyex": "d(lny)/d(lnx)",
    "dyex": "dy/d(lnx)",
    "eydx": "d(lny)/dx",
}
JOINT_EFFECTS = (
    "joint intervals of marginal effects are not available; intervals of k effects hold together with "
    "conf_int(0.05 / k), by Bonferroni's inequality"
)


@dataclass(frozen=True, slots=True, eq=False)
class Effects:
    """Marginal effects, how well they are known, and the names of the columns that they are of."""

    values: Floats
    precision: Precision
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remarks:
    """Flags and cautions of a fit that tables of its marginal effects repeat.

    Attributes
    ----------
    alarms : tuple of (str, str)
        Labels and values of rows at the head of the table that name flagged coefficients.
    flags : Flags of `privinf.results.summary`
        Flags of the fit, without the constant.
    warnings : tuple of str
        Warnings about the effects, as sentences.
    kinds : str
        Kinds of the cautions of the fit.
    meaning : str
        What the effect of a level of a factor is; empty without factors.
    dropped : tuple of str
        That incomplete rows were dropped, as a sentence; empty where none were.
    """

    alarms: tuple[tuple[str, str], ...] = ()
    flags: CoefficientFlags = field(default_factory=CoefficientFlags)
    warnings: tuple[str, ...] = ()
    kinds: str = ""
    meaning: str = ""
    dropped: tuple[str, ...] = ()

    @property
    def sentences(self) -> list[str]:
        """The remarks for the note of a table for a paper."""
        sentences = [*self.dropped, *([self.meaning] if self.meaning else [])]
        sentences += [f"Cautions: {self.kinds}."] if self.kinds else []
        sentences += [f"{label} {names}." for label, names in self.alarms]
        return [*sentences, *mark_sentences([self.flags])]


def remarks_of(result: FittedResult, constant: str, warnings: Sequence[str], meaning: str) -> Remarks:
    """Return the remarks on the effects of a fit; the constant, which has no effect, is not named."""
    flags = flags_of(result)
    alarms = []
    for label, text in ((WEAK_LABEL, flags.weak), (DOUBTED_LABEL, flags.doubted)):
        names = ", ".join(name for name in text.split(", ") if name != constant)
        alarms += [(label, names)] if names else []
    return Remarks(
        alarms=tuple(alarms),
        flags=replace(flags, marks={name: mark for name, mark in flags.marks.items() if name != constant}),
        warnings=tuple(map(sentence, warnings)),
        kinds=caution_kinds(Export(result).cautions),
        meaning=meaning,
        dropped=tuple(dropped_sentences(result)),
    )


@error_boundaries
@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class MarginalEffects(UnavailableOfEffects):
    """Marginal effects on the mean; made by `get_margeff` of a logistic or Poisson fit.

    Attributes
    ----------
    effects : Effects
        Effects with their standard errors.
    method : {"dydx", "eyex", "dyex", "eydx"}
        Change that an effect states.
    at : {"overall", "mean", "zero"}
        Where the effects are evaluated.
    model, response : str
        Names of the model and of its response.
    response_level : str, bool, number or None
        Level of a response with two levels that counts as 1; None where the response is a number.
    report : PrivacyReport
        Privacy report of the fit.
    records : str
        Number of records of the fit, as text.
    places : tuple of (str, str)
        Exposure and offset of the effects, where the model has them: labels and values of the table's head.
    remarks : Remarks
        Flags and cautions of the fit.

    Notes
    -----
    **Privacy.** Post-processing of the fit's releases.
    """

    _foreign_arguments: ClassVar[Mapping[str, str]] = {"simultaneous": JOINT_EFFECTS}

    effects: Effects
    method: MarginsMethod
    at: Margins
    model: str
    response: str
    report: PrivacyReport
    records: str
    places: tuple[tuple[str, str], ...] = ()
    remarks: Remarks = Remarks()
    response_level: Level | None = None

    @property
    def margeff(self) -> Floats:
        """Marginal effects, in the order of `summary_frame`."""
        return self.effects.values

    @property
    def margeff_se(self) -> Floats:
        """Standard errors, sampling and privacy noise together."""
        return self.effects.precision.se

    @property
    def tvalues(self) -> Floats:
        """Marginal effects over standard errors."""
        return np.asarray(self.margeff / self.margeff_se)

    @property
    def pvalues(self) -> Floats:
        """Two-sided p-values of zero effects."""
        return self.effects.precision.pvalues(self.tvalues)

    @property
    def bias_bound(self) -> pd.Series[float]:
        """Largest possible bias of each effect, which intervals and p-values allow for; 0 without one."""
        bias = self.effects.precision.bias
        values = np.zeros(len(self.margeff)) if bias is None else bias
        return pd.Series(values, list(self.effects.names), name="bias_bound")

    @property
    def flags(self) -> pd.Series[str]:
        """Mark of each effect in the summary: a dagger, a double dagger or an empty text."""
        names = list(self.effects.names)
        marks = [self.remarks.flags.marks.get(name, "") for name in names]
        return pd.Series(marks, names, name="flags", dtype=object)

    def conf_int(self, alpha: float = 0.05) -> Floats:
        """Return the ends of the intervals.

        Parameters
        ----------
        alpha : float
            One minus the confidence level of the intervals.

        Returns
        -------
        ndarray, shape (k, 2)
            One row per column.
        """
        half = self.effects.precision.half_length(alpha)
        return np.column_stack([self.margeff - half, self.margeff + half])

    def summary_frame(self, alpha: float = 0.05) -> pd.DataFrame:
        """Return the table, with the column names of statsmodels.

        Parameters
        ----------
        alpha : float
            One minus the confidence level of the intervals.

        Returns
        -------
        DataFrame
            One row per column of the data. The frame has the same six columns for every fit; `bias_bound` and
            `flags` have the possible bias and the marks of flagged coefficients.
        """
        names = [LABELS[self.method], "Std. Err.", "z", "Pr(>|z|)", "Conf. Int. Low", "Cont. Int. Hi."]
        numbers = [self.margeff, self.margeff_se, self.tvalues, self.pvalues, self.conf_int(alpha)]
        return pd.DataFrame(np.column_stack(numbers), list(self.effects.names), names)

    def summary(self, alpha: float = 0.05) -> PrivateSummary:
        """Return the table with method, place and privacy, as text, HTML and LaTeX.

        Parameters
        ----------
        alpha : float
            One minus the confidence level of the intervals.

        Returns
        -------
        Summary of statsmodels
            Summary, which prints as text. Its methods ``as_text``, ``as_html``, ``as_latex`` and ``as_csv``
            return other formats.
        """
        alarms = [("Privacy:", NOT_PRIVATE)] if self.report.stamp else []
        facts = [("Dep. Variable:", self.response), *alarms, *self.remarks.alarms]
        if self.response_level is not None:
            facts.insert(1, (RESPONSE_LABEL, coded_response(self.response, self.response_level)))
        ends = f"[{alpha / 2.0:.4g}", f"{1.0 - alpha / 2.0:.4g}]"
        rows = []
        for name, *numbers in self.summary_frame(alpha).itertuples():
            cells = [number(value) for value in numbers]
            cells[3] += self.remarks.flags.marks.get(name, "")
            rows.append((str(name), *cells))
        notes = [Note(text, "must-read") for text in self.remarks.warnings]
        notes += [Note(self.remarks.meaning, "table")] if self.remarks.meaning else []
        notes += allowed_bias(self.effects.precision.bias, self.margeff_se, "bias")
        return PrivateSummary(
            title=f"{self.model} Marginal Effects",
            top=(facts, [("Method:", self.method), ("At:", self.at), *self.places]),
            header=[LABELS[self.method], "std err", "z", "P>|z|", *ends],
            rows=rows,
            tests=([], []),
            privacy=privacy_facts(self.report),
            notes=notes,
            legend=marks_legend(self.remarks.flags.marks.values()),
        )

    @refuses(TEXT_ONLY)
    def to_latex(
        self,
        *,
        alpha: float = 0.05,
        digits: int | None = None,
        caption: str | None = None,
        label: str | None = None,
    ) -> str:
        """Return a LaTeX table for a paper, which needs the packages booktabs and threeparttable.

        Parameters
        ----------
        alpha : float
            One minus the confidence level of the intervals.
        digits : int, optional
            Number of digits after the decimal point, at most 15. By default each row has three, and more if
            its standard error needs more for two significant digits.
        caption, label : str, optional
            Caption and LaTeX label of the table.

        Returns
        -------
        str
            Effects, standard errors and intervals, with a dagger at the effects of flagged coefficients. The
            note below the table states where the effects are evaluated, epsilon, delta, the unit of privacy,
            the number of records, the kinds of cautions of the fit, and the flagged coefficients.

        Raises
        ------
        ArgumentError
            An argument is invalid.
        """
        return self._paper_table(alpha, digits).to_latex(caption, label)

    @refuses(TEXT_ONLY)
    def to_html(self, *, alpha: float = 0.05, digits: int | None = None, caption: str | None = None) -> str:
        """Return the same table as `to_latex` in HTML, with the note below the table.

        Parameters
        ----------
        alpha : float
            One minus the confidence level of the intervals.
        digits : int, optional
            Number of digits after the decimal point, at most 15. By default each row has three, and more if
            its standard error needs more for two significant digits.
        caption : str, optional
            Title above the table.

        Returns
        -------
        str
            HTML text of the table.

        Raises
        ------
        ArgumentError
            An argument is invalid.
        """
        return self._paper_table(alpha, digits).to_html(caption)

    def to_word(
        self,
        path: AnyPath,
        *,
        alpha: float = 0.05,
        digits: int | None = None,
        caption: str | None = None,
        overwrite: bool = False,
    ) -> None:
        """Write the same table as `to_latex` to a Word file, with the note below the table.

        Parameters
        ----------
        path : path
            File to write. Its name must end with ``.docx``.
        alpha : float
            One minus the confidence level of the intervals.
        digits : int, optional
            Number of digits after the decimal point, at most 15. By default each row has three, and more if
            its standard error needs more for two significant digits.
        caption : str, optional
            Title above the table.
        overwrite : bool
            Whether to replace an existing file.

        Raises
        ------
        ArgumentError
            Raised if an argument is invalid, or if the file exists and `overwrite` is not True.
        NotAvailableError
            Raised if the package maketables is not installed (``privinf[tables]``).

        Notes
        -----
        **Privacy.** Costs nothing: it uses only released numbers.
        """
        self._paper_table(alpha, digits).to_word(path, caption, overwrite)

    def _paper_table(self, alpha: float, digits: int | None) -> PaperTable:
        """Return the cells and the note of a table for a paper."""
        places = check_digits(digits)
        cells = np.column_stack(
            [self.margeff, self.margeff_se, self.conf_int(check_fraction(alpha, "alpha"))]
        )
        rows = []
        for name, numbers in zip(self.effects.names, cells, strict=True):
            place = row_digits([spread_of(*numbers)], places)
            effect, error, low, high = (f"{number:.{place}f}" for number in numbers)
            effect += self.remarks.flags.marks.get(name, "")
            rows.append((name, effect, error, f"[{low}, {high}]"))
        of = "average over the records" if self.at == "overall" else f"at the {self.at} of the columns"
        on = self.response
        if self.response_level is not None:
            on = PROBABILITY.format(self.response, self.response_level)
        note = f"{self.model}, marginal effects on {on}, {of if self.at != 'zero' else 'at 0'}."
        biases = [
            bias.text
            for bias in allowed_bias(self.effects.precision.bias, self.margeff_se, "bias")
            if bias.rank == "table"
        ]
        note = " ".join([note, *(f"{role} {place}." for role, place in self.places)])
        return PaperTable(
            header=("", LABELS[self.method], "Std. error", f"{100 * (1 - alpha):g}% interval"),
            rows=rows,
            note=" ".join(
                [note, privacy_note(self.report, self.records), ERRORS, *biases, *self.remarks.sentences]
            ),
        )

    def __repr__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return str(self.summary().as_html())


def places_of(
    options: Mapping[str, str], family: str, at: Margins, method: MarginsMethod
) -> tuple[tuple[str, str], ...]:
    """Return at which exposure and offset the effects are, by the options of a fit; none without these.

    An effect on the logarithm of a Poisson mean is the same at all of them.
    """
    facts: list[tuple[str, str]] = []
    for role, value in (("Exposure", 1), ("Offset", 0)):
        if role in options:
            column = options[role]
            place = f"{column}, mean over records" if at == "overall" else f"{column} = {value}"
            same = family == "poisson" and method in ("eyex", "eydx")
            facts.append((f"{role}:", f"{column}, at any value" if same else place))
    return tuple(facts)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Average:
    """E c, and its error beyond the sampling of the records.

    Attributes
    ----------
    mean : float
    variance : float
        Of its noise.
    covariance : ndarray, shape (p,)
        Of its noise with the coefficients, user units.
    bias : float
        Bound on its bias.
    ratio : float
        `exposure_ratio`.
    """

    mean: float
    variance: float
    covariance: Floats
    bias: float = 0.0
    ratio: float = 1.0

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
        return {
            "mean": self.mean,
            "variance": self.variance,
            "covariance": self.covariance.tolist(),
            "bias": self.bias,
            "ratio": self.ratio,
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Average:
        """Rebuild the average from the result of `to_dict`."""
        numbers = {name: float(record[name]) for name in ("mean", "variance", "bias", "ratio")}
        return cls(covariance=np.array(record["covariance"], dtype=np.float64), **numbers)

    @property
    def known(self) -> Average:
        """The same average without an error."""
        return Average(
            mean=self.mean, variance=0.0, covariance=np.zeros_like(self.covariance), ratio=self.ratio
        )


def hessian_average(
    step: OneStepRelease, family: str, constant: int, to_user: Floats, ratio: float
) -> Average | None:
    r"""Return E c of the last Hessian; None where the noise hides it, or columns determine one another.

    With v = W z, the constant is u'v, u = W^{-T} e_0, and ``u'H u`` is the mean of c over the records, at the
    middle of the step from theta_T to the estimate, less what weights and clips take, at most `step.lost`:
    half of that is added, and may be a bias. Half of the step, times E c' z, moves it to the estimate. With d
    the step of a record's predictor and d_0 the preliminary one, along which H is a secant, what is left is
    E c'' (d^2/2 - d d_0/2 + d_0^2/12), which is E c'' d^2/12 where the two agree (Poisson: c'' = c; logistic:
    |c''| <= 1/8, and no less than E d^2/48 is allowed for). The noise N has
    ``Var(u'N u) = s_H^2 |u|^4``, and with the coefficients' error ``-W' H^{-1} N D`` the covariance
    ``-s_H^2 (u'D) W' H^{-1} u``.
    """
    hessian = step.hessian
    transform = step.place.transform
    try:
        unit = np.linalg.solve(transform.T, np.eye(len(transform))[constant])
    except np.linalg.LinAlgError:
        return None
    values, vectors = hessian.floored()
    inverse = (vectors / values) @ vectors.T
    move = inverse @ step.score.mean
    middle = float(unit @ hessian.mean @ unit)
    if middle <= 0.0:
        return None
    theta = step.estimate
    if family == "poisson":
        slopes = np.linalg.solve(transform, hessian.mean @ unit)
    else:
        mean = step.walk.second[constant]
        spread = step.walk.second - np.outer(mean, mean)
        slopes = normal_slopes(mean, spread, theta)
    first = preliminary_step(step.score, step.place)
    rest = transform.T @ (2.0 * move - first)
    long = max(float(move @ hessian.mean @ move), 0.0)
    left = abs(float((move / 2.0 - first / 2.0) @ hessian.mean @ move + first @ hessian.mean @ first / 12.0))
    remainder = max(left, long / 12.0)
    if family != "poisson":  # |c''| is at most 1/8
        remainder = max(left, long / 6.0) / (8.0 * step.place.curvature)
    back = to_user @ transform.T @ inverse
    return Average(
        mean=middle + 0.5 * float(slopes @ rest) + step.lost / 2.0,
        variance=(hessian.sd * float(unit @ unit)) ** 2,
        covariance=-(hessian.sd**2) * float(unit @ move) * (back @ unit),
        bias=step.lost / 2.0 + remainder,
        ratio=ratio,
    )


def normal_slopes(mean: Floats, spread: Floats, theta: Floats) -> Floats:
    """Return E c' x of a logistic model whose predictor is normal, x with these means and covariances."""
    variance = max(float(theta @ spread @ theta), 0.0)
    _, slopes, bends = _curve("binomial", mean @ theta + math.sqrt(variance) * CURVES)
    return np.asarray(mean * float(SPREAD @ slopes) + spread @ theta * float(SPREAD @ bends))


def average_curvature(sums: CurvedSums, theta: Floats) -> Noisy:
    """Release the mean of c at `theta`, for the rest of the budget."""
    top = 0.25 if sums.family == "binomial" else sums.response[1]
    if sums.constant is None:
        raise NotAvailableError(NO_CONSTANT)
    return sums.average(theta, top, SHARE)


def at_point(family: str, estimate: Estimate, point: Floats, constant: int, method: MarginsMethod) -> Effects:
    """Return the effects at one row, whose values are taken as known.

    Parameters
    ----------
    family : {"binomial", "poisson"}
    estimate : Estimate
    point : ndarray, shape (p,)
        The row: the columns' means of the first release, or 0, and 1 for the constant.
    constant : int
    method : {"dydx", "eyex", "dyex", "eydx"}
    """
    eta = np.array([point @ estimate.params])
    mean = float(np.exp(eta[0]) if family == "poisson" else expit(eta[0]))
    c, slope, _ = (float(part[0]) for part in _curve(family, eta))
    factor = c
    moved = slope
    if method in ("eyex", "eydx"):  # c over the mean: 1, or 1 - p with derivative -c
        factor = 1.0 if family == "poisson" else 1.0 - mean
        moved = 0.0 if family == "poisson" else -c
    units = point if method in ("eyex", "dyex") else np.ones(len(point))
    return _effects(estimate, factor, moved * point, constant, units)


def with_differences(
    effects: Effects, family: str, estimate: Estimate, point: Floats, constant: int, indicators: Flags
) -> Effects:
    """Return effects at one row in which those of indicators are differences of the means at 1 and at 0.

    The other columns, other levels of the same factor included, stay as in the row.
    """
    values, se = effects.values.copy(), np.array(effects.precision.se)
    bias = None if effects.precision.bias is None else np.array(effects.precision.bias)
    slopes = [j for j in range(len(point)) if j != constant]
    for place, j in enumerate(slopes):
        if not indicators[j]:
            continue
        rows = np.vstack([point, point])
        rows[:, j] = (0.0, 1.0)
        eta = rows @ estimate.params
        means = np.exp(eta) if family == "poisson" else expit(eta)
        gradient = _curve(family, eta)[0] * np.array([-1.0, 1.0]) @ rows
        values[place] = means[1] - means[0]
        se[place] = math.sqrt(max(float(gradient @ estimate.covariance @ gradient), 0.0))
        if bias is not None:
            bias[place] = _form_bias(estimate, gradient, se[place])
    return Effects(values, Precision(se, bias=bias), effects.names)


def averaged(
    family: str,
    estimate: Estimate,
    second: Floats,
    constant: int,
    average: Average,
) -> Effects:
    """Return the average effects.

    How E c goes with b is taken from a normal predictor: E c'(eta) x = m E c' + S b E c'', m and S the
    columns' means and covariance. For a Poisson model c' = c'' = c, whose mean is known, whatever else
    enters the predictor, if it is uncorrelated with the columns.
    """
    mean = second[constant]
    b = estimate.params
    spread = second - np.outer(mean, mean)
    slope = average.mean
    if family == "poisson":
        of_logs = min(max(float(b @ spread @ b), 0.0), LARGEST_VARIANCE)
        moved = slope * (mean + spread @ b)
        sampling = slope**2 * (math.exp(of_logs) * average.ratio - 1.0) / estimate.nobs
    else:
        moved = normal_slopes(mean, spread, b)
        # The variance of a number between 0 and C with mean c is at most c (C - c).
        sampling = max(slope * (0.25 - slope), 0.0) / estimate.nobs
    total = replace(average, variance=average.variance + sampling)
    return _effects(estimate, slope, moved, constant, np.ones(len(b)), total)


def averaged_logs(
    family: str, estimate: Estimate, second: Floats, constant: int, method: MarginsMethod
) -> Effects:
    """Return average effects on the logarithm of a Poisson mean: b, in units of the columns' means or of 1.

    Raises
    ------
    NotAvailableError
        The method needs another average over the records.
    """
    if family != "poisson" or method == "dyex":
        raise NotAvailableError(NOT_AVERAGED.format(method))
    units = second[constant] if method == "eyex" else np.ones(len(second))
    return _effects(estimate, 1.0, np.zeros(len(second)), constant, units)


def is_well_determined(
    family: str, estimate: Estimate, second: Floats, constant: int, average: Average
) -> bool:
    """Return whether the average of the Hessian widens no interval by more than `WIDER`."""
    lengths = [
        averaged(family, estimate, second, constant, one).precision.half_length(0.05)
        for one in (average, average.known)
    ]
    return bool((lengths[0] <= WIDER * lengths[1]).all())


def exposure_ratio(design: Design, roles: Roles) -> float:
    """Return how large E f^2 / (E f)^2 may be, f the exposure times exp of the offset, by their bounds.

    At most (l + h)^2 / (4 l h) for a number between l and h.
    """
    ratio = 1.0
    for name in (roles.exposure, roles.offset):
        if name is not None:
            at = design.names.index(name)
            low, high = float(design.low[at]), float(design.high[at])
            width = high - low if name == roles.offset else math.log(high / low)
            ratio *= math.cosh(min(width, LARGEST_VARIANCE) / 2.0) ** 2
    return ratio


def _curve(family: str, eta: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the mean's first three derivatives."""
    if family == "poisson":
        mean = np.exp(eta)
        return mean, mean, mean
    mean = expit(eta)
    c = mean * (1.0 - mean)
    return c, c * (1.0 - 2.0 * mean), c - 6.0 * c**2


def _form_bias(estimate: Estimate, forms: Floats, se: Floats) -> Floats:
    """Return the largest bias of forms of biased coefficients with these standard errors.

    Two bounds hold, and the smaller counts: the sum of the biases of the coefficients that a form contains,
    and the largest bias of a coefficient in standard errors, because a bias goes with the length of a form's
    influence, as its standard error does.
    """
    assert estimate.bias is not None
    ratio = float((estimate.bias / estimate.bse).max())
    return np.asarray(np.minimum(np.abs(forms) @ estimate.bias, ratio * se))


def _effects(
    estimate: Estimate,
    c: float,
    moved: Floats,
    constant: int,
    units: Floats,
    average: Average | None = None,
) -> Effects:
    """Return c b in units of the columns, without the constant; `moved` is c's derivative in b."""
    b = estimate.params
    jacobian = c * np.eye(len(b)) + np.outer(b, moved)
    covariance = jacobian @ estimate.covariance @ jacobian.T
    if average is not None:
        with_b = np.outer(jacobian @ average.covariance, b)
        covariance = covariance + average.variance * np.outer(b, b) + with_b + with_b.T
    is_slope = np.arange(len(b)) != constant
    names = tuple(name for name, keep in zip(estimate.names, is_slope, strict=True) if keep)
    se = (np.abs(units) * np.sqrt(np.maximum(np.diag(covariance), 0.0)))[is_slope]
    bias = None if estimate.bias is None else _form_bias(estimate, (units[:, None] * jacobian)[is_slope], se)
    if average is not None and average.bias > 0.0:
        bias = (0.0 if bias is None else bias) + average.bias * np.abs(b)[is_slope]
    return Effects((c * b * units)[is_slope], Precision(se, bias=bias), names)


def recorded_moments(second: Floats, to_user: Floats) -> list[list[Any]]:
    """Return second moments of columns in user units, from scaled ones; params_user = T params_scaled."""
    inverse = np.linalg.inv(to_user)
    return [[float(value) for value in row] for row in inverse.T @ second @ inverse]
