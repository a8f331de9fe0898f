"""Results of the debiased lasso: the common facade on the targets, the sparse fit beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from typing import Any, NotRequired, TypedDict, cast

import numpy as np
import pandas as pd
from scipy.special import expit

from privinf.accounting import PrivacyReport
from privinf.doors import doors, warn
from privinf.errors import (
    ArgumentError,
    ChangedTargetWarning,
    HeavyTailWarning,
    NotAvailableError,
    WeakIdentificationWarning,
)
from privinf.inference.estimate import Estimate
from privinf.inference.tails import HEAVY, HEAVY_TAIL, Clip
from privinf.lasso.bootstrap import PrivateDraws
from privinf.lasso.coordinates import joint_covariance
from privinf.lasso.debiasing import DebiasedFit
from privinf.lasso.eigenvalues import NoiseVariance, RestrictedEigenvalues
from privinf.lasso.extras import Extras, JointMethod, MaxTest, joint_bootstrap, with_bias_bound
from privinf.lasso.marks import EXPLAINED_NOTE, MissedColumnTest, explained_table
from privinf.lasso.rows import LassoFamily, LassoRows, SparseUnits
from privinf.lasso.secure import Detection, cost_note
from privinf.lasso.sums import SparseSums
from privinf.lasso.thresholding import SparseFit
from privinf.results import Results
from privinf.results.constraints import ConstraintLike, linear_constraints
from privinf.results.prediction import prediction_rows
from privinf.results.provenance import ModelLabels
from privinf.results.rendering import PrivateSummary, ratios
from privinf.results.simultaneous import SimultaneousResults
from privinf.results.summary import Wording
from privinf.schema import Design
from privinf.typing import ArrayLike, ColumnsLike, Floats, IntervalMethod, RngLike, ScoreTarget
from privinf.validation import check_array, check_choice, check_fraction

SELECTED_NOTE = (
    "The targets were selected on the same rows, and the intervals are not corrected for it. Where the noise "
    "decides which weak columns are picked, coverage is nearly kept; where the rows decide, columns without "
    "signal are picked for looking large and are covered far less often than stated, and weak signals are "
    "overestimated. Columns whose signal stands far out, and targets named in advance, are not concerned."
)

SPARSE_INSTEAD = (
    "predict_sparse(rows) gives the sparse fit's point predictions. These have no intervals: the error of "
    "the sparse fit is known only if it kept every column that matters and errors are normal with one "
    "variance; intervals that took both for granted held .57 of the means where weak columns were left out"
)
MIDDLE = (
    "predictions are of the mean, and the coefficients of this fit are those of a robust centre "
    "(target='robust', or targets='all'): name all columns as targets with target='mean'; " + SPARSE_INSTEAD
)
NOT_ALL = (
    "predictions need a debiased coefficient of every column and of the constant, and this fit has none of "
    "{}: their part of the mean would be left out; " + SPARSE_INSTEAD
)
CENTRED = (
    "predictions need the constant's coefficient, and this fit has none: columns and response are centred; "
    + SPARSE_INSTEAD
)

NO_LEVEL_OF_ODDS = (
    "predictions need the intercept's error, and a logistic fit does not debias it: predict_sparse(rows) "
    "gives the sparse fit's probabilities, without intervals"
)
ASTRAY_NOTE = (
    "Not to be trusted: the steps of the sparse fit went astray in the noise (its residuals are larger than "
    "the response, or its last step was still long). Keep fewer columns, spend more, or move budget to the "
    "refit with shares=."
)
MEAN_NOTE = (
    "Target: the mean. Scores were clipped at {:.3g} of their typical size, by noisy counts of their tail; "
    "about {:.2g}% of the records passed the clip and counted with its size (lambda {:.2f})."
)
ROBUST_NOTE = (
    "Target: robust. Every score is clipped about where it is best for normal errors: under errors that are "
    "skewed, with a size that goes along with columns, the coefficients are not those of the mean."
)
TWO_VALUED = "the response has two values: {}"
TWO_MEAN = (
    "coefficients are those of the linear probability model, and errors are robust to its variances; "
    "family='binomial' fits a logit"
)
TWO_ROBUST = (
    "clipped errors of a rare outcome count in part, so that these coefficients are neither those of the "
    "linear probability model (target='mean') nor of a logit"
)
OUTSIDE = (
    "{} lie outside their bounds and were put there: coefficients are those of the cut columns; state wider "
    "bounds"
)
NO_MULTIPLIERS = (
    "multipliers need a score of every record, and this fit released noisy sums of them alone. Given the "
    "scores, normal multipliers have the normal law of their covariance, which was released: "
    "method='simulation' is that bootstrap, free. Draws with signs cost budget: fit(bootstrap_draws=200), "
    "method='private-bootstrap'"
)
WHOM = {"central": "trusted curator", "server": "trusted server", "secure-sum": "secure sums"}


class SparseSettings(TypedDict):
    """The sparse fit in the user's units; what version 0.1 wrote lacks the last three."""

    columns: list[str]
    positions: list[int]
    values: list[float]
    scale: float
    constant: NotRequired[str | None]
    intercept: NotRequired[float]
    centred: NotRequired[bool]


class LassoSettings(TypedDict):
    """What results keep beside the estimate: the sparse fit, extras, and what secure picks could see."""

    sparse: SparseSettings
    response: str
    astray: NotRequired[bool]
    target: NotRequired[ScoreTarget]
    tail: NotRequired[list[float]]
    design: NotRequired[dict[str, Any]]
    family: NotRequired[str]
    doubt: NotRequired[str]
    two_valued: NotRequired[bool]
    outside: NotRequired[dict[str, float]]
    extras: NotRequired[dict[str, Any]]
    sight: NotRequired[dict[str, Any]]
    multipliers: NotRequired[dict[str, list[float]]]
    marks: NotRequired[dict[str, Any]]
    missed: NotRequired[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ScoreTail:
    """What noisy counts say of the scores' tail.

    Attributes
    ----------
    beyond : float
        Share of the records whose scores pass the clip, and count with its size.
    ratio : float
        lambda: what lies beyond the clip, over what the layer below it holds (`privinf.inference.tails`).
    """

    beyond: float
    ratio: float

    @classmethod
    def of(cls, clip: Clip, n: int) -> ScoreTail:
        """Return that of a clip of n scores."""
        return cls(clip.cut / n, clip.ratio)


def changed_target(settings: LassoSettings) -> list[str]:
    """Return what gives the coefficients of a result another target than the one that was stated."""
    texts = []
    if settings.get("two_valued", False) and settings.get("target", "robust") == "robust":
        texts.append(TWO_VALUED.format(TWO_ROBUST))
    if outside := settings.get("outside", {}):
        told = ", ".join(f"{share:.0%} of {name}" for name, share in outside.items())
        texts.append(OUTSIDE.format(told))
    return texts


def tail_notes(clip: Clip | None, n: int, targets: int) -> tuple[str, ...]:
    """Return what the summary says of the target and of scores beyond the clip."""
    if clip is None:
        return (ROBUST_NOTE,)
    tail = ScoreTail.of(clip, n)
    notes = [MEAN_NOTE.format(clip.high / math.sqrt(targets), 100.0 * tail.beyond, tail.ratio)]
    if tail.ratio > HEAVY:
        notes.append(_sentence(HEAVY_TAIL.format(tail.ratio)))
    return tuple(notes)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


@doors
class LassoResults(Results):
    """Results of `DebiasedLasso`.

    ``params``, ``bse``, intervals and tests are those of the debiased targets; `sparse_params` is the fit
    before debiasing, of all columns. ``bse_sampling`` is the error without privacy noise but with the same
    clips. Score tests need per-record scores, which no one releases: they are not available.
    `predict` and `get_prediction` need a debiased coefficient of every column and of the constant, and say so
    where one is missing, and the target must be the mean; `predict_sparse` predicts from the sparse fit,
    without intervals.
    `restricted_eigenvalues`, `noise_variance`, `bias_bound` and the private bootstrap are there if the fit
    was asked for them.

    Notes
    -----
    **Privacy.** Post-processing of releases.

    Intervals of predicted means rest on the debiased coefficients. Measured over 300 new rows, n = 20,000,
    p = 12 (no constant), epsilon 2, 20 fits a design: .94 of the means were covered under normal errors, .96
    under errors times abs(x_7), .99 under errors that are skewed with a size that goes along with a column.
    Intervals from the sparse fit's own covariance are not offered: they hold where every signal is strong and
    errors are normal (.97, n = 20,000, p = 200, epsilon 2), but held .57 of the means of eight effects of .05
    (p = 200), .84 under blocks of correlation .9, .26 under effects j^-1.5 and .21 under those skewed errors
    (n = 40,000, epsilon 1, 12 fits each), without a sign of it.

    Intervals of targets that were selected on the same rows (``targets="selected"``) are not corrected for
    it. Measured with n = 10,000, p = 100 (AR .5), 2 strong and 4 weak signals (3 standard errors each), 8
    columns kept, 200 fits (at .8 a fifth of them gave no estimate): of the selected columns without signal
    .97, .90, .72 and .64 were covered at epsilon .8, 2, 8 and infinity; of the weak ones .98, .94, .97 and
    .97, with estimates 13, 12, 6 and 5% too large; of the strong ones .98, .96, .96 and .95. Columns named in
    advance: .94 to .98 throughout.
    """

    @property
    def model(self) -> ModelLabels:
        """Names of model, response and targets."""
        return replace(super().model, endog_names=self._settings["response"])

    @cached_property
    def sparse_params(self) -> pd.Series[float]:
        """Sparse coefficients of all p columns, user units: no basis of intervals after selection."""
        params = np.zeros(len(self._sparse["columns"]))
        params[self._sparse["positions"]] = self._sparse["values"]
        return pd.Series(params, list(self._sparse["columns"]), name="sparse_params")

    @property
    def family(self) -> str:
        """The family: "gaussian" or "binomial"."""
        return self._settings.get("family", "gaussian")

    def odds_ratios(self, alpha: float = 0.05) -> pd.DataFrame:
        """Return exp of the targets' coefficients of a logistic model, with intervals of level ``1 - alpha``.

        Raises
        ------
        NotAvailableError
            The model is linear.
        """
        if self.family != "binomial":
            raise NotAvailableError("an odds ratio belongs to family='binomial', this fit is linear")
        return ratios(
            np.asarray(self._estimate.params),
            self.conf_int(alpha).to_numpy(),
            self.names,
            "odds ratio",
            alpha,
        )

    def predict_sparse(self, exog: ColumnsLike | None = None, transform: bool = True) -> pd.Series[float]:
        """Return the sparse fit's point predictions of new rows: `sparse_params`, and the intercept.

        Of a logistic fit they are probabilities.

        Parameters
        ----------
        exog : table, mapping of columns or single values, Series of one row, or array
            Raw rows, if the fit has a formula. Otherwise the design matrix, all columns of the fit (by name
            where there are names); a table may leave out the constant.
        transform : bool
            Whether a formula is applied; False: `exog` is the design matrix.

        Returns
        -------
        Series named ``sparse_mean``. The sparse fit was selected on the rows and has no intervals.

        Raises
        ------
        NotAvailableError
            The result was stored without what the columns were centred at.

        Notes
        -----
        Without a constant the fit centres columns and response at c and m, and predicts
        ``m + (x - c)'b``.

        **Privacy.** Post-processing.
        """
        sparse = self._sparse
        if "intercept" not in sparse:
            raise NotAvailableError("predict_sparse: this result was stored without its intercept; fit again")
        design = self._design if transform else None
        rows, index = prediction_rows(
            exog, tuple(sparse["columns"]), design, transform=transform, constant=sparse["constant"]
        )
        means = rows @ self.sparse_params.to_numpy() + sparse["intercept"]
        means = expit(means) if self.family == "binomial" else means
        return pd.Series(means, index, name="sparse_mean")

    def _rows(self, exog: Any, transform: bool) -> tuple[Floats, pd.Index[Any]]:
        if self.family == "binomial":
            raise NotAvailableError(NO_LEVEL_OF_ODDS)
        left = [name for name in self._sparse["columns"] if name not in self.names]
        if left:
            some = ", ".join(left[:3]) + (f" and {len(left) - 3} more" if len(left) > 3 else "")
            raise NotAvailableError(NOT_ALL.format(some))
        if self._sparse.get("centred", True):
            raise NotAvailableError(CENTRED)
        noise = self._estimate.noise_cov
        if self.score_target == "robust" and noise is not None and noise.any():
            raise NotAvailableError(MIDDLE)
        self._warn_if_weak("a prediction")
        return prediction_rows(exog, self.names, self._design, transform=transform)

    @cached_property
    def _design(self) -> Design | None:
        stored = self._settings.get("design")
        return None if stored is None else Design.from_dict(stored)

    @property
    def selected(self) -> tuple[str, ...]:
        """Names of the columns that the fit kept, in the order of the columns."""
        columns = self._sparse["columns"]
        return tuple(columns[position] for position in self._sparse["positions"])

    @property
    def residual_scale(self) -> float:
        """Released typical size of the residuals: their 68% point, an sd if they are normal.

        Clips are multiples of it, or of the root of the second moment where that is larger.

        Raises
        ------
        NotAvailableError
            The model is logistic.
        """
        if self.family == "binomial":
            raise NotAvailableError("a logistic fit releases no size of residuals: they follow from the mean")
        return float(self._sparse["scale"])

    @property
    def picks_from(self) -> pd.DataFrame:
        """What columns were picked from on secure sums, a row for each release.

        ``entries`` numbers were released together, each divided by its slope of error ``sd``, without noise
        ``sampling_sd``: a covariance with the residuals in units of y per declared unit of the column, or a
        correlation with a target. From ``found_from`` on it is found. `radius` is that of the shrunk vector,
        see `privinf.lasso.picks`.

        Raises
        ------
        NotAvailableError
            A trusted server peeled un-noised sums: none of that left it.
        """
        detection = self._settings.get("sight")
        if detection is None:
            raise NotAvailableError("a trusted server picked from un-noised sums, which it does not release")
        return pd.DataFrame(detection["looks"]).set_index("label").rename_axis("release")

    def explained_shares(self, alpha: float = 0.05) -> pd.DataFrame:
        """Return how much of each target the other columns of its precision column explain.

        Columns ``neighbours`` (picked for the target, beside the columns of the fit), ``explained`` with
        ``lower`` and ``upper`` end of an interval of level ``1 - alpha`` for its noise, and ``last_quarter``,
        the share that the smallest quarter of the neighbours adds: see `privinf.lasso.columns`.

        Raises
        ------
        NotAvailableError
            Nothing of that was released: all columns are targets, or sites have parts of their own.
        """
        marks = self._settings.get("marks")
        if marks is None:
            raise NotAvailableError("explained_shares: this fit regressed no target on neighbours")
        return explained_table(marks, self.names, check_fraction(alpha, "alpha"))

    @property
    def missed_column_test(self) -> MissedColumnTest:
        """Test that no column outside the fit has an effect, and what one too small to see could do.

        What it finds joins the fit; where more are likely, intervals come with a warning. See
        `privinf.lasso.missed`.

        Raises
        ------
        NotAvailableError
            Every column is in the fit, or sites have parts of their own.
        """
        if "missed" not in self._settings:
            raise NotAvailableError("missed_column_test: no column outside the fit was tested")
        return MissedColumnTest.of(self._settings["missed"])

    @property
    def restricted_eigenvalues(self) -> RestrictedEigenvalues:
        """Extreme mean squares over random sparse directions (Algorithm 5), with the sd of their noise.

        Among the columns that were picked, the targets and their neighbours, in units of their released
        sizes. There are more extreme directions than the random ones: the largest is at most, the smallest
        at least, the true one.
        """
        return RestrictedEigenvalues(**self._extra("eigenvalues", "restricted_eigenvalues=True"))

    @property
    def noise_variance(self) -> NoiseVariance:
        """Variance of the errors (Algorithm 4) with the sd of its noise; right if they are normal."""
        return NoiseVariance(**self._extra("noise_variance", "noise_variance=True"))

    @cached_property
    def bias_bound(self) -> pd.Series[float]:
        """Theorem 5's slack, user units: see `privinf.lasso.coordinates` for what it assumes."""
        bound = np.array(self._extra("bias_bound", "bias_bound=True"))
        bound.setflags(write=False)
        return pd.Series(bound, list(self.names), name="bias_bound", copy=False)

    def conf_int(
        self, alpha: float = 0.05, method: IntervalMethod = "wald", *, bias_bound: bool = False
    ) -> pd.DataFrame:
        """Return intervals of level ``1 - alpha``, columns 0 and 1.

        Parameters
        ----------
        alpha, method
            As for `Results.conf_int`.
        bias_bound : bool
            Whether they are widened at both ends by `bias_bound`. Without it what the privacy errors of
            coefficients and precision columns do together counts as a variance, which is right where the two
            are independent; with it as a bias that fails 1% of the time. What is assumed and what the paper's
            text lost is said in `privinf.lasso.coordinates`.

        Raises
        ------
        NotAvailableError
            The fit released no bound.
        """
        ends = super().conf_int(alpha, method)
        if not bias_bound:
            return ends
        slack = self.bias_bound.to_numpy()
        return pd.DataFrame(ends.to_numpy() + np.column_stack([-slack, slack]), ends.index)

    def simultaneous(
        self,
        alpha: float = 0.05,
        which: ConstraintLike | None = None,
        method: JointMethod = "simulation",
        *,
        draws: int | None = None,
        rng: RngLike = None,
    ) -> SimultaneousResults:
        """Return joint intervals and adjusted p-values.

        Parameters
        ----------
        alpha : float
        which : str, list, mapping, array or (R, q), optional
            Coefficients or contrasts; for the private bootstrap coefficients only.
        method : {"simulation", "gaussian", "multiplier", "private-bootstrap"}
            "simulation", called "gaussian" elsewhere, draws from the released covariance: free and sharper.
            "private-bootstrap": Algorithm 7, from the maxima that the fit released, conservative for their
            noise; of fewer coefficients than all targets it is more so, and its step-down p-values are those
            of the single step, as nothing was released of smaller sets. "multiplier" is refused: no record's
            score is released, and with normal multipliers the simulation is what it would be.
        draws : int, optional
            Of the simulation.
        rng : None, int or Generator

        Raises
        ------
        NotAvailableError
            The fit released no draws, or too few for this level.
        """
        if check_choice(method, JointMethod, "method") != "private-bootstrap":
            plain: Any = "gaussian" if method == "simulation" else method
            return super().simultaneous(alpha, which, plain, draws=draws, rng=rng)
        released = dict(self._extra("bootstrap", "bootstrap_draws=200"))
        drawn = PrivateDraws(tuple(released.pop("values")), **released)
        chosen = linear_constraints(np.eye(len(self.names)) if which is None else which, self.names)
        return joint_bootstrap(self.estimate, drawn, chosen, check_fraction(alpha, "alpha"))

    def _null_draws(self, R: Floats, draws: int | None, rng: RngLike) -> Floats | None:
        raise NotAvailableError(NO_MULTIPLIERS)

    def max_test(
        self,
        b0: ArrayLike = 0.0,
        which: list[str] | None = None,
        *,
        alpha: float = 0.05,
        method: JointMethod = "simulation",
        rng: RngLike = None,
    ) -> MaxTest:
        """Test ``b_j = b0_j`` for several coefficients at once by the largest studentised difference.

        Parameters
        ----------
        b0 : float, or array_like with one number for each coefficient
        which : list of str, optional
            Default: all targets.
        alpha : float
        method, rng
            As for `simultaneous`, whose single-step p-value of the largest difference is the test's.
        """
        names = list(self.names) if which is None else list(which)
        values = np.asarray(b0, dtype=np.float64)
        if values.shape not in ((), (len(names),)) or not names:
            raise ArgumentError(f"b0 must be one number, or one for each of the {len(names)} coefficients")
        values = np.broadcast_to(values, (len(names),))
        rows = np.eye(len(self.names))[[self._position(name) for name in names]]
        joint = self.simultaneous(alpha, (rows, values), method, rng=rng)
        largest = int(np.argmax(np.abs(joint.tvalues.to_numpy())))
        return MaxTest(
            statistic=float(abs(joint.tvalues.iloc[largest])),
            pvalue=float(joint.pvalues("single-step").iloc[largest]),
            critical_value=joint.critical_value,
            rejected=tuple(name for name, out in zip(names, joint.reject(), strict=True) if out),
            alpha=alpha,
            method=method,
        )

    def _summarized(self, told: Wording) -> PrivateSummary:
        """Return the summary; shares of the targets that are explained, and a bias bound, have columns."""
        summary = super()._summarized(told)
        if "marks" in self._settings:
            shares = [f"{share:.2f}" for share in self.explained_shares().explained]
            summary = summary.with_column("(R2 of x)", shares, 3, EXPLAINED_NOTE)
        if "bias_bound" not in self._extras:
            return summary
        return with_bias_bound(summary, np.array(self._extras["bias_bound"]))

    @property
    def _no_moments(self) -> str | None:
        return "this model releases no squares of residuals; their typical size is `residual_scale`"

    @property
    def score_target(self) -> ScoreTarget:
        """What the scores of a linear fit aim at: the "mean", or the "robust" centre of clipped errors."""
        if self.family == "binomial":
            raise NotAvailableError("a logistic fit clips no residuals: its target is the logit")
        return self._settings.get("target", "robust")

    @property
    def score_tail(self) -> ScoreTail:
        """What noisy counts say of scores beyond their clip; NotAvailableError where none were counted."""
        if "tail" not in self._settings:
            raise NotAvailableError(
                "scores of target='robust' are clipped where it is best for normal errors"
            )
        return ScoreTail(*self._settings["tail"])

    def _warn_if_weak(self, asked: str) -> None:
        if "tail" in self._settings and (ratio := self.score_tail.ratio) > HEAVY:
            warn(f"{asked}: {HEAVY_TAIL.format(ratio)}", HeavyTailWarning)
        if "missed" in self._settings and (missed := self.missed_column_test).exhausted:
            warn(f"{asked}: {missed.note}", WeakIdentificationWarning)
        for text in changed_target(self._settings):
            warn(f"{asked}: {text}", ChangedTargetWarning)
        if self._settings.get("astray", False):
            warn(f"{asked}: {ASTRAY_NOTE}", WeakIdentificationWarning)
        if (doubt := self._settings.get("doubt")) is not None:
            warn(f"{asked}: {doubt}", WeakIdentificationWarning)
        if (unseen := self._settings.get("sight", {}).get("missed")) is not None:
            warn(f"{asked}: {unseen}", WeakIdentificationWarning)
        if (marked := self._settings.get("marks", {}).get("warning")) is not None:
            warn(f"{asked}: {marked}", WeakIdentificationWarning)

    @property
    def _settings(self) -> LassoSettings:
        return cast(LassoSettings, self._context.settings)

    def _check_settings(self) -> None:
        settings = self._settings
        texts = [settings["response"], settings.get("sight", {}).get("missed") or "", *self.selected]
        texts += [settings.get("marks", {}).get("warning", ""), settings.get("doubt", "")]
        if not all(isinstance(text, str) for text in texts):
            raise ArgumentError("names and warnings of a result are texts")
        for name in ("draws", "widths"):
            check_array(settings.get("multipliers", {name: []})[name], name, ndim=1)
        check_choice(settings.get("target", "mean"), ScoreTarget, "target")
        check_choice(self.family, LassoFamily, "family")
        changed_target(settings)
        for name in ("sparse_params", "_design"):
            getattr(self, name)
        with suppress(NotAvailableError):
            self.explained_shares()
        for name in (
            "residual_scale",
            "missed_column_test",
            "score_tail",
            "picks_from",
            "restricted_eigenvalues",
            "noise_variance",
            "bias_bound",
        ):
            with suppress(NotAvailableError):
                getattr(self, name)

    @property
    def _extras(self) -> Mapping[str, Any]:
        return self._settings.get("extras", {})

    def _extra(self, name: str, option: str) -> Any:
        reasons = self._extras.get("reasons", {})
        if name in reasons:
            raise NotAvailableError(f"no {name.replace('_', ' ')}: {reasons[name]}")
        if name not in self._extras:
            raise NotAvailableError(
                f"{name.replace('_', ' ')} was not released, and costs budget: ask for it with fit({option})"
            )
        return self._extras[name]

    @property
    def _sparse(self) -> SparseSettings:
        return self._settings["sparse"]


def lasso_results(
    rows: LassoRows,
    sparsity: str,
    sums: SparseSums,
    fit: SparseFit,
    chosen: list[int],
    debiased: DebiasedFit,
    report: PrivacyReport,
    *,
    extras: Extras | None = None,
    after_selection: bool = False,
    detection: Detection | None = None,
    missed: MissedColumnTest | None = None,
) -> LassoResults:
    """Return the results of a fit of a `sparsity`, as it is told, debiased at `chosen`, in the user's units.

    `after_selection`: the targets were chosen by the fit, which the summary then says. `detection`: what the
    picks of a fit on secure sums could see. `missed`: the test of the columns outside the fit.
    """
    parts, names, unit = debiased.coordinates, rows.names, sums.units.scale[chosen]
    back = np.outer(unit, unit)
    sampling = joint_covariance(debiased.correlation, parts.sampling, np.zeros(len(chosen))) / back
    reported, noise_cov = tuple(names[j] for j in chosen), np.diag(parts.privacy) / back
    estimate = Estimate(
        parts.params / unit, debiased.cov / back, reported, sums.n, noise_cov=noise_cov, cov_type="HC0",
        bias=None if debiased.bias is None else debiased.bias / unit, terms=parts.terms(debiased.cov, unit),
    )  # fmt: skip
    values = fit.beta / sums.units.scale[fit.support]
    middle = sums.sizes[-1].middle if sums.sizes else fit.scale
    sparse = sparse_settings(names, sums.units, fit.support, values, middle, rows.constant)
    sparse["centred"] = sparse["centred"] or sums.centred
    settings = fit_settings(rows, sparse, fit.astray)
    if extras is not None:
        settings["extras"] = extras.settings(unit)
    target: ScoreTarget = "robust" if debiased.clip is None else "mean"
    settings["target"] = target
    options = {"Sparsity": sparsity, "Parties": str(len(rows.rows)), "Target": target}
    notes = (SELECTED_NOTE,) * after_selection + (ASTRAY_NOTE,) * fit.astray
    notes += tail_notes(debiased.clip, sums.n, len(chosen))
    if rows.design.outcome.column.indicator or (sums.sizes and sums.sizes[0].two_valued):
        settings["two_valued"] = True
        notes += (_sentence(TWO_VALUED.format(TWO_MEAN)),) * (target == "mean")
    if debiased.outside is not None and (cut := debiased.outside.cut).any():
        settings["outside"] = {
            name: float(share)
            for name, share, out in zip(reported, debiased.outside.shares, cut, strict=True)
            if out
        }
    notes += tuple(_sentence(text) for text in changed_target(settings))
    if debiased.clip is not None:
        settings["tail"] = list(astuple(ScoreTail.of(debiased.clip, sums.n)))
    if debiased.marks is not None:
        settings["marks"] = debiased.marks.settings(reported)
        notes += tuple(filter(None, [debiased.marks.warning(reported)]))
    if missed is not None:
        settings["missed"] = missed.settings()
        notes += (missed.note,)
    if detection is not None:
        settings["sight"] = detection.settings()
        notes += (cost_note(detection.releases, len(names)),) + (detection.warning,) * detection.weak
    return LassoResults(
        estimate,
        report=report,
        sampling_cov=sampling,
        model="DebiasedLasso",
        method=f"debiased lasso, {WHOM[rows.trust]}",
        options=options,
        settings=settings,
        notes=notes,
    )


def fit_settings(rows: LassoRows, sparse: SparseSettings, astray: bool) -> LassoSettings:
    """Return what results of every kind of fit keep: the sparse fit, the response, and a formula's design."""
    settings: LassoSettings = {"sparse": sparse, "response": rows.design.response}
    if astray:
        settings["astray"] = True
    if rows.design.schema is not None:
        settings["design"] = rows.design.to_dict()
    return settings


def sparse_settings(
    names: Sequence[str],
    units: SparseUnits,
    support: Sequence[int],
    values: Floats,
    scale: float,
    constant: int | None = None,
) -> SparseSettings:
    """Return what results keep of a sparse fit; `values` in the user's units, by `support`.

    A constant takes up the centres of the other columns; without one they stay, as an intercept.
    """
    coefficients = dict(zip(support, map(float, values), strict=True))
    intercept = units.intercept - sum(value * float(units.center[j]) for j, value in coefficients.items())
    if constant is not None:
        coefficients[constant] += intercept
        intercept = 0.0
    positions = sorted(coefficients)
    return {
        "columns": list(names),
        "positions": positions,
        "values": [coefficients[j] for j in positions],
        "scale": scale,
        "constant": None if constant is None else names[constant],
        "intercept": intercept,
        "centred": bool(units.intercept != 0.0 or np.any(units.center != 0.0)),
    }
