"""Results of a fit where sites have coefficients of their own: one result of all sites, one for each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, cast

import numpy as np
import pandas as pd

from privinf.completeness import CompleteRows
from privinf.error_boundary import error_boundaries
from privinf.errors import ArgumentError, NotAvailableError, WeakIdentificationWarning
from privinf.inference.estimate import Estimate, VarianceTerms
from privinf.lasso.results import LassoResults, hidden_notes, hidden_targets_text, listed
from privinf.lasso.results.joint import TargetResampling
from privinf.lasso.results.sparse import LassoSettings
from privinf.results import Results
from privinf.results.agreement import Agreement, agreement, by_column
from privinf.results.context import Context
from privinf.results.export import Export
from privinf.results.fit_statistics import FitStatistics
from privinf.results.fitted import ModelLabels
from privinf.results.notes import Note, complete_notes, sentence
from privinf.results.prediction import Predictions
from privinf.results.resampling import draws_dataset
from privinf.results.wald import Inference
from privinf.typing import Floats, IntervalMethod, Missing, RngLike
from privinf.validation import check_fraction, shown

if TYPE_CHECKING:
    import xarray as xr

MODEL = "DebiasedLasso by site"  # under which results are stored
METHOD = "debiased lasso by site"
# Coefficients of all sites up to which their joint covariance is formed: nine arrays of 18 MB.
MOST_COEFFICIENTS = 1500
TOO_MANY = (
    "no intervals: a joint covariance of {} coefficients would take too much memory. Use site(label), which "
    "has the intervals of one site, or name fewer targets"
)
ALL_HIDDEN = (
    "no intervals: the noise hides the slopes of all targets at all sites; the sparse fits are biased"
)
BY_SITE = (
    "every site has coefficients of its own: predict with the result of one site, site(label), which states "
    "what its predictions need"
)
DIMS = ("chain", "draw", "site")  # of the draws
NO_SQUARES = "this model releases no squared residuals, only each site's residual_scale"
BETWEEN_SITES = """
between sites i and k: sampling and score noise are independent. The slope noise of a target has the
covariance s_i s_k Cov(e_i, e_k) / (kappa_i kappa_k), with the steps s and the errors e of the slopes. The
precision columns have E (w_i' Z d) (w_k' Z d), with the error d of the shared coefficients"""
# Where the covariances between sites are zero.
NOTHING_SHARED = "\nbetween sites: all terms are independent"


class SiteSettings(TypedDict):
    """What the joint settings hold of one site.

    Attributes
    ----------
    label : str or int
    targets : list of str
        Columns with a debiased coefficient.
    sparse_values : list of [str, float]
        Coefficients of the sparse fit where the noise hides all targets; empty elsewhere.
    reason : str
        Why no target is debiased; empty elsewhere.
    nobs : int
    method, cov_type : str
    options, notes : list
    settings : LassoSettings
        Of the site's own result.
    """

    label: str | int
    targets: list[str]
    sparse_values: list[list[Any]]
    reason: str
    nobs: int
    method: str
    cov_type: str
    options: list[list[str]]
    notes: list[dict[str, Any]]
    settings: LassoSettings


class JointSettings(TypedDict):
    """Contents of the results of all sites other than the estimate."""

    sites: list[SiteSettings]
    columns: list[str]
    shared: list[float]
    interval_epsilon: float
    differs: list[float] | None
    warnings: list[str]
    missing: NotRequired[Missing]
    complete: NotRequired[dict[str, Any]]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SiteParts:
    """Results of the sites, and what they have in common.

    Attributes
    ----------
    results : mapping of label to LassoResults
    targets : sequence of k str
        All requested targets.
    between : mapping of str to ndarray, shape (k, m, m)
        By term: covariances between a target's coefficients at two sites, in the units of the data.
    shared : Series of p
        Coefficients that all sites share, in the units of the data.
    differs : sequence of m floats, or None
    interval_epsilon : float
    method : str
    """

    results: Mapping[Any, LassoResults]
    targets: Sequence[str]
    between: Mapping[str, Floats]
    shared: pd.Series[float]
    differs: Sequence[float] | None
    interval_epsilon: float
    method: str = METHOD

    def joined(self) -> SiteResults:
        """Return the result of all sites."""
        first = next(iter(self.results.values()))
        settings: JointSettings = {
            "sites": [_stored(label, result) for label, result in self.results.items()],
            "columns": list(self.shared.index),
            "shared": [float(value) for value in self.shared],
            "interval_epsilon": self.interval_epsilon,
            "differs": None if self.differs is None else [float(value) for value in self.differs],
            "warnings": [note.text for note in self._merged(_warnings)],
        }
        counts = [result._context.complete for result in self.results.values()]
        if "missing" in first._settings:
            settings["missing"] = first._settings["missing"]
        if complete := [count for count in counts if count is not None]:
            settings["complete"] = CompleteRows.sum_of(complete).settings()["complete"]
        estimate = self.estimate()
        context = Context(
            report=first.privacy,
            sampling_cov=None if estimate.terms is None else estimate.terms.sampling["sampling"],
            model=MODEL,
            method=self.method,
            options={**self._common_options, "Shared part": self._shared_columns},
            settings=settings,
            notes=self._merged(_notes),
        )
        return SiteResults(estimate, context, self.results)

    def estimate(self) -> Estimate:
        """Return the estimate of all sites' coefficients, blocks of sites one after the other."""
        debiased = {
            label: result for label, result in self.results.items() if result._estimate.cov is not None
        }
        shown_results = debiased or dict(self.results)
        estimates = [result._estimate for result in shown_results.values()]
        names = tuple(
            coefficient_name(column, label)
            for label, result in shown_results.items()
            for column in result.names
        )
        params = np.concatenate([estimate.params for estimate in estimates])
        nobs = sum(result.nobs for result in self.results.values())
        if not debiased or len(names) > MOST_COEFFICIENTS:
            reason = TOO_MANY.format(f"{len(names):,}") if debiased else ALL_HIDDEN
            return Estimate(params, None, names, nobs, cov_type="none", weak_reason=reason)
        first = estimates[0].terms
        assert first is not None
        shared = {name: self._placed(term) for name, term in self.between.items()}
        noise = {
            name: _diagonal([_terms(estimate).noise[name] for estimate in estimates]) + shared.get(name, 0.0)
            for name in first.noise
        }
        sampling = {
            name: _diagonal([_terms(estimate).sampling[name] for estimate in estimates])
            for name in first.sampling
        }
        extra = sum(shared.values(), np.zeros((len(params),) * 2))
        equation = first.equation + (BETWEEN_SITES if extra.any() else NOTHING_SHARED)
        return Estimate(
            params=params,
            cov=_diagonal([estimate.covariance for estimate in estimates]) + extra,
            names=names,
            nobs=nobs,
            noise_cov=_diagonal([estimate.noise_covariance for estimate in estimates]) + extra,
            cov_type=estimates[0].cov_type,
            terms=VarianceTerms(equation, sampling, noise),
        )

    @property
    def _common_options(self) -> dict[str, str]:
        """Header lines that are the same for all sites."""
        lines = [result.options for result in self.results.values()]
        return {name: text for name, text in lines[0].items() if all(other[name] == text for other in lines)}

    @property
    def _shared_columns(self) -> str:
        return listed(list(self.shared.index[self.shared != 0.0])) or "none"

    def _placed(self, term: Floats) -> Floats:
        """Return covariances between sites in the order of the joint estimate, from (k, m, m)."""
        places = [
            (site, self.targets.index(column))
            for site, result in enumerate(self.results.values())
            if result._estimate.cov is not None
            for column in result.names
        ]
        sites, targets = (np.array(part, dtype=np.int64) for part in zip(*places, strict=True))
        same = targets[:, None] == targets
        return np.where(same, term[targets[:, None], sites[:, None], sites], 0.0)

    def _merged(self, notes_of: Callable[[LassoResults], list[Note]]) -> tuple[Note, ...]:
        """Return notes of sites: once where all have them, else with the sites' labels before them."""
        holders: dict[Note, list[Any]] = {}
        for label, result in self.results.items():
            for note in notes_of(result):
                holders.setdefault(replace(note, columns=()), []).append((label, note.columns))
        merged = []
        for note, found in holders.items():
            labels = [str(label) for label, _ in found]
            text = note.text
            if len(labels) < len(self.results) and not any(f"site {label}" in text for label in labels):
                text = f"Site{'s' * (len(labels) > 1)} {', '.join(labels)}: {text}"
            columns = tuple(coefficient_name(name, label) for label, names in found for name in names)
            merged.append(replace(note, text=text, columns=columns))
        return tuple(merged)


def coefficient_name(column: str, label: object) -> str:
    """Return the name of a site's coefficient, as ArviZ and formulas write levels: ``x3[north]``."""
    return f"{column}[{label}]"


def _terms(estimate: Estimate) -> VarianceTerms:
    assert estimate.terms is not None
    return estimate.terms


def _diagonal(blocks: Sequence[Floats]) -> Floats:
    """Return a block-diagonal matrix."""
    size = sum(map(len, blocks))
    matrix = np.zeros((size, size))
    start = 0
    for block in blocks:
        end = start + len(block)
        matrix[start:end, start:end] = block
        start = end
    return matrix


def _notes(result: LassoResults) -> list[Note]:
    """Return a site's notes; not those on its complete rows, of which the joint result has its own."""
    of_rows = {note.text for note in complete_notes(result._settings)}
    notes = [note for note in result._context.ranked if note.text not in of_rows]
    if result._estimate.cov is not None:
        return notes
    hidden = hidden_notes(result._settings)
    return [*(replace(note, text=sentence(_hidden_text(result))) for note in hidden), *notes]


def _hidden_text(result: LassoResults) -> str:
    """Return why a site without any interval has none."""
    text = hidden_targets_text(result._settings)
    if not text or result.family != "binomial":
        return text
    return f"no interval for {listed(result._settings['hidden'])}, because {result._estimate.weak_reason}"


def _warnings(result: LassoResults) -> list[Note]:
    """Return a site's warnings about its intervals in the words of its notes."""
    texts = [text for _, text in result._inference.other_warnings]
    if result._estimate.cov is None:
        texts.append(_hidden_text(result))
    return [Note(text if text.endswith(".") else sentence(text)) for text in dict.fromkeys(texts)]


def _plain_label(label: Any) -> str | int:
    plain = label.item() if isinstance(label, np.generic) else label
    return plain if isinstance(plain, (str, int)) and not isinstance(plain, bool) else str(plain)


def _stored(label: Any, result: LassoResults) -> SiteSettings:
    estimate = result._estimate
    hidden = estimate.cov is None
    values = [[name, float(value)] for name, value in zip(result.names, estimate.params, strict=True)]
    return {
        "label": _plain_label(label),
        "targets": [] if hidden else list(result.names),
        "sparse_values": values if hidden else [],
        "reason": estimate.weak_reason,
        "nobs": result.nobs,
        "method": result.method,
        "cov_type": result.cov_type,
        "options": [[name, value] for name, value in result.options.items()],
        "notes": [asdict(note) for note in result._context.ranked],
        "settings": result._settings,
    }


@dataclass(frozen=True, eq=False)
class SiteInference(Inference):
    """Normal inference about the coefficients of all sites."""

    @property
    def coefficient_scale(self) -> str:
        """Scale on which coefficients are effects."""
        settings = cast(JointSettings, self.context.settings)["sites"][0]["settings"]
        return "log odds" if settings.get("family") == "binomial" else "mean"

    @property
    def other_warnings(self) -> list[tuple[type[Warning], str]]:
        """Warnings of the sites about their intervals, with the sites' labels."""
        texts = cast(JointSettings, self.context.settings)["warnings"]
        return [*super().other_warnings, *((WeakIdentificationWarning, text) for text in texts)]

    @cached_property
    def weakness(self) -> pd.Series[float]:
        """Coefficients that are weakly identified: none where intervals are only too many to hold jointly."""
        too_many = self.estimate.cov is None and self.estimate.weak_reason != ALL_HIDDEN
        return super().weakness[:0] if too_many else super().weakness


@dataclass(frozen=True, eq=False)
class SitePredictions(Predictions):
    """Predictions are each site's own."""

    @property
    def refusal(self) -> str:
        """Why the joint result predicts for no new row."""
        return BY_SITE


@dataclass(frozen=True, eq=False)
class SiteResampling(TargetResampling):
    """Draws from the joint distribution of the sites' coefficients."""

    def draws(self, n: int = 1000, *, rng: RngLike = None) -> xr.Dataset:
        """Return draws from the sampling distribution: a variable per column, dims chain, draw and site.

        Needs the extra ``privinf[arviz]``. The distribution is normal about the estimate. A site without an
        interval of a column has nan.

        Parameters
        ----------
        n : int
            Number of draws.
        rng : None, int or Generator
            Seed of the draws.

        Returns
        -------
        xarray Dataset
            A variable for every column, ``x3`` with the dimensions chain, draw and site. A column whose name
            is that of a dimension has " (column)" after it.
        """
        joint = super().draws(n, rng=rng)
        settings = cast(JointSettings, self.inference.context.settings)
        values = joint["params"].to_numpy()[0]
        sites = [str(site["label"]) for site in settings["sites"]]
        columns: dict[str, Floats] = {}
        places = [
            (row, f"{name} (column)" if name in DIMS else name)
            for row, site in enumerate(settings["sites"])
            for name in site["targets"]
        ]
        for place, (row, name) in enumerate(places):
            columns.setdefault(name, np.full((1, len(values), len(sites)), np.nan))[0, :, row] = values[
                :, place
            ]
        empty = draws_dataset(values[:, :0], (), **joint.attrs).drop_vars(["params", "coefficient"])
        return empty.assign_coords(site=sites).assign({name: (DIMS, part) for name, part in columns.items()})


@dataclass(frozen=True, slots=True, eq=False)
class SiteExport(Export):
    """Tables with the site and the column of every coefficient."""

    def tidy(self, alpha: float = 0.05, method: IntervalMethod = "wald") -> pd.DataFrame:
        """Return `Results.tidy` with the columns ``site`` and ``column`` after ``term``.

        Parameters
        ----------
        alpha : float
            One minus the confidence level of the intervals.
        method : {"wald", "score"}
            Kind of the intervals; see `conf_int`.

        Returns
        -------
        DataFrame
            One row per site and column.
        """
        table = Export.tidy(self, alpha, method)
        pairs = cast("SiteResults", self.result).pairs
        table.insert(1, "site", [str(site) for site, _ in pairs])
        table.insert(2, "column", [column for _, column in pairs])
        return table

    def to_dict(self, alpha: float = 0.05) -> dict[str, Any]:
        """Return `Results.to_dict`, with ``shared`` (the shared coefficients), ``sites`` and ``differs``.

        ``sites`` has the label of every site, and ``differs`` the difference of its columns from those of the
        others as a standard normal number, or None.

        Parameters
        ----------
        alpha : float
            One minus the confidence level of the intervals.

        Returns
        -------
        dict
            A dict that contains only numbers, texts, lists and dicts.
        """
        settings = cast("SiteResults", self.result)._settings
        return Export.to_dict(self, alpha) | {
            "shared": dict(zip(settings["columns"], settings["shared"], strict=True)),
            "sites": [str(site["label"]) for site in settings["sites"]],
            "differs": settings["differs"],
        }


@error_boundaries
class SiteResults(Results):
    """Results of `DebiasedLasso` where every site has a part of its own.

    Coefficients are named by column and site, ``x3[north]``, in blocks of sites. Everything that `Results`
    offers is available for them: ``t_test("x3[north] = x3[south]")``, `simultaneous`, `to_arviz`. `agreement`
    tests whether the sites have equal coefficients, `site` returns the result of one site, and
    `summary_frame` has a MultiIndex of site and column.

    Notes
    -----
    **Privacy.** Costs nothing: it uses only released numbers.

    The covariance of a site's coefficients is that of its own result. Sites share little: their rows and the
    noise of their scores are their own. `privinf.lasso.heterogeneous.scores` derives the covariances between
    sites, which the noise of pooled slopes and nodewise regressions causes.

    With more than 1,500 coefficients at all sites together the joint covariance is not formed. Members that
    need it raise NotAvailableError, and the results of single sites have their intervals.
    """

    _sites: Mapping[Any, LassoResults]

    def __init__(
        self, estimate: Estimate, context: Context, sites: Mapping[Any, LassoResults] | None = None
    ) -> None:
        super().__init__(estimate, context)
        self.__dict__["_sites"] = _sites_of(estimate, context) if sites is None else dict(sites)

    @property
    def labels(self) -> tuple[Any, ...]:
        """Labels of the sites."""
        return tuple(self._sites)

    @property
    def results(self) -> Mapping[Any, LassoResults]:
        """Results of the sites by label."""
        return dict(self._sites)

    @property
    def pairs(self) -> list[tuple[Any, str]]:
        """Site and column of every coefficient, in the order of `names`."""
        shown_sites = self._sites
        if self._estimate.weak_reason != ALL_HIDDEN:
            shown_sites = {label: one for label, one in self._sites.items() if one._estimate.cov is not None}
        return [(label, column) for label, one in shown_sites.items() for column in one.names]

    def site(self, label: object) -> LassoResults:
        """Return the results of one site.

        Parameters
        ----------
        label : label
            One of `labels`.

        Returns
        -------
        LassoResults
            With the sparse fit of the site, and its predictions.

        Raises
        ------
        ArgumentError
            There is no such site.
        """
        if label not in self._sites:
            raise ArgumentError(
                f"unknown site {shown(label)}; the sites are {', '.join(map(repr, self.labels))}"
            )
        return self._sites[label]

    def agreement(
        self, columns: Sequence[str] | str | None = None, *, alpha: float = 0.05, rng: RngLike = 0
    ) -> Agreement:
        """Test whether the sites have equal coefficients.

        Parameters
        ----------
        columns : str or sequence of str, optional
            Columns to compare; default: all targets with estimates at two sites or more.
        alpha : float
            One minus the confidence level of the intervals.
        rng : None, int or Generator
            Seed of the joint intervals of the deviations.

        Returns
        -------
        Agreement
            ``.pvalue`` of all columns together, ``.pvalues`` by column, ``.summary_frame()`` with Cochran's
            Q, I^2 with its interval and the pooled estimate, ``.deviations`` of the sites from the pooled
            estimate, simultaneous over sites and columns, and ``.plot(column)``, a forest plot.

        Raises
        ------
        ArgumentError
            A column has no debiased coefficient at any site.
        NotAvailableError
            No column has estimates at two sites, or there is no covariance.
        """
        chosen = [columns] if isinstance(columns, str) else columns
        return agreement(
            self._estimate,
            by_column(self.pairs, chosen),
            alpha=alpha,
            rng=rng,
            privacy=self.privacy,
            cautions=self._inference.joint_warnings,
        )

    @property
    def interval_epsilon(self) -> float:
        """Cost of the releases behind one interval: shared part, site's part, nodewise regression, score.

        Two parts are not counted here; `privacy` counts everything. The average slope of all targets is a
        shared release, whose regressions rest on releases for the other targets. The selections of columns
        use the sizes and means of all columns, of which the share of the columns of the interval is counted.
        """
        return self._settings["interval_epsilon"]

    @cached_property
    def shared_params(self) -> pd.Series[float]:
        """The part that all sites share, of all p columns, in the units of the data; without intervals."""
        settings = self._settings
        return pd.Series(
            settings["shared"], list(settings["columns"]), name="shared_params", dtype=np.float64
        )

    @cached_property
    def sparse_params(self) -> pd.DataFrame:
        """Sparse coefficients, a row per column of the model and a column per site; without intervals."""
        return pd.DataFrame({label: one.sparse_params for label, one in self._sites.items()})

    @property
    def differs(self) -> pd.Series[float]:
        """Difference of every site's slopes from the others', as a standard normal number.

        A large one shows that the site's columns have another distribution, and that pooled nodewise
        regressions do not fit it.

        Raises
        ------
        NotAvailableError
            The fit did not release the slopes of single sites.
        """
        differs = self._settings["differs"]
        if differs is None:
            raise NotAvailableError(
                "differs is not available, because logistic fits and the paper's variant do not compare the "
                "columns of the sites"
            )
        return pd.Series(differs, list(self.labels), name="differs", dtype=np.float64)

    @property
    def hidden_targets(self) -> tuple[str, ...]:
        """Coefficients without an interval, because the noise hides the slopes of their scores."""
        return tuple(
            coefficient_name(column, label)
            for label, one in self._sites.items()
            for column in one.hidden_targets
        )

    def summary_frame(self, alpha: float = 0.05) -> pd.DataFrame:
        """Return a table of coefficients with a MultiIndex of site and column.

        Parameters
        ----------
        alpha : float
            One minus the confidence level of the intervals.

        Returns
        -------
        DataFrame
            Columns ``coef``, ``std err``, ``z``, ``P>|z|``, ``low`` and ``high``.
        """
        low, high = self.conf_int(alpha).to_numpy().T
        table = {
            "coef": self.params.to_numpy(),
            "std err": self.bse.to_numpy(),
            "z": self.tvalues.to_numpy(),
            "P>|z|": self.pvalues.to_numpy(),
            "low": low,
            "high": high,
        }
        return pd.DataFrame(table, pd.MultiIndex.from_tuples(self.pairs, names=["site", "column"]))

    def to_frame(self, alpha: float = 0.05) -> pd.DataFrame:
        """Return one line per site: rows, columns selected, scale of residuals or rate, lengths of intervals.

        Parameters
        ----------
        alpha : float
            One minus the confidence level of the intervals.

        Returns
        -------
        DataFrame
            One row per site. A logistic fit has the rate of the response in place of the residual scale.
        """
        check_fraction(alpha, "alpha")
        lines = []
        for one in self._sites.values():
            length = np.array([math.inf])  # the noise hides all targets
            if one.estimate.cov is not None:
                low, high = one._inference.interval(alpha).T
                length = high - low
            scale = one._settings["sparse"]["scale"]
            lines.append([int(one.nobs), len(one.selected), scale, length.min(), length.max()])
        scale_name = "rate" if one.family == "binomial" else "residual scale"
        columns = ["rows", "selected", scale_name, "narrowest", "widest"]
        table = pd.DataFrame(lines, pd.Index(self.labels, name="site"), columns)
        differs = self._settings["differs"]
        return table if differs is None else table.assign(**{"differs (z)": differs})

    @property
    def model(self) -> ModelLabels:
        """Names of model, response and coefficients."""
        settings = self._settings["sites"][0]["settings"]
        return replace(
            super().model,
            name="DebiasedLasso",
            endog_names=settings["response"],
            response_level=settings.get("level"),
        )

    @cached_property
    def _inference(self) -> SiteInference:
        return SiteInference(self._estimate, self._context)

    @cached_property
    def _fit_statistics(self) -> FitStatistics:
        return FitStatistics(self._inference, NO_SQUARES)

    @cached_property
    def _resampling(self) -> SiteResampling:
        return SiteResampling(self._inference)

    @cached_property
    def _predictions(self) -> SitePredictions:
        return SitePredictions(self._inference, self._fit_statistics)

    @property
    def _export(self) -> SiteExport:
        return SiteExport(self)

    @property
    def _settings(self) -> JointSettings:
        return cast(JointSettings, self._context.settings)

    def save(
        self,
        path: str | PathLike[str],
        *,
        records: bool = True,
        key: bytes | None = None,
        overwrite: bool = False,
    ) -> None:
        """Write the results of all sites to one file, without pickle.

        Parameters
        ----------
        path : path
            File to write.
        records : bool
            No effect on the file: a fit by site contains no records. A fit without noise must pass False.
        key : bytes, optional
            Secret key for an HMAC, which detects all changes of the file. Without a key the file has a
            checksum, which detects accidental changes only.
        overwrite : bool
            Whether to replace an existing file.

        Raises
        ------
        ArgumentError
            The file exists and `overwrite` is not True.
        NotAvailableError
            There are too many coefficients for a joint covariance, or the fit used no noise and `records` is
            True.
        """
        if self._has_too_many:
            raise NotAvailableError(
                f"{len(self.names):,} coefficients are too many for one file: save the results of the sites, "
                "site(label).save(path)"
            )
        super().save(path, records=records, key=key, overwrite=overwrite)

    @property
    def _has_too_many(self) -> bool:
        return self._estimate.cov is None and self._estimate.weak_reason != ALL_HIDDEN

    def _refused_methods(self) -> frozenset[str]:
        refused = super()._refused_methods()
        return refused | {"agreement", "summary_frame"} if self._estimate.cov is None else refused

    def _check_settings(self) -> None:
        settings = self._settings
        if not all(isinstance(text, str) for text in (*settings["columns"], *settings["warnings"])):
            raise ArgumentError("names and warnings of a result must be strings")
        if not settings["sites"] or [coefficient_name(b, a) for a, b in self.pairs] != list(self.names):
            raise ArgumentError("the sites of a result must have its coefficients")
        for one in self._sites.values():
            one._check_settings()
        for name in ("shared_params", "sparse_params", "interval_epsilon", "hidden_targets", "model"):
            getattr(self, name)
        self.to_frame()

    def _with(self, estimate: Estimate, context: Context) -> SiteResults:
        return _restored(estimate, context, self._sites)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._estimate, self._context, self._sites)


def _restored(estimate: Estimate, context: Context, sites: Mapping[Any, LassoResults]) -> SiteResults:
    result = SiteResults.__new__(SiteResults)
    result.__dict__.update(_estimate=estimate, _context=context, _sites=sites)
    return result


def _sites_of(estimate: Estimate, context: Context) -> dict[Any, LassoResults]:
    """Return the results of the sites from the joint one, as a file has it."""
    settings = cast(JointSettings, context.settings)
    sites = {}
    start = 0
    for stored in settings["sites"]:
        end = start + len(stored["targets"])
        own = _own_estimate(estimate, stored, slice(start, end))
        sampling = context.sampling_cov
        has_intervals = own.cov is not None and sampling is not None
        sites[stored["label"]] = LassoResults(
            own,
            Context(
                report=context.report,
                sampling_cov=sampling[start:end, start:end]
                if has_intervals and sampling is not None
                else None,
                model="DebiasedLasso",
                method=stored["method"],
                options=dict(stored["options"]),
                settings=stored["settings"],
                notes=tuple(Note(**(note | {"columns": tuple(note["columns"])})) for note in stored["notes"]),
            ),
        )
        start = end
    return sites


def _own_estimate(estimate: Estimate, stored: SiteSettings, here: slice) -> Estimate:
    if not stored["targets"]:
        return Estimate(
            params=np.array([value for _, value in stored["sparse_values"]], dtype=np.float64),
            cov=None,
            names=tuple(name for name, _ in stored["sparse_values"]),
            nobs=stored["nobs"],
            cov_type=stored["cov_type"],
            weak_reason=stored["reason"],
        )
    terms = _terms(estimate)
    sampling, noise = (
        {name: term[here, here] for name, term in kind.items()} for kind in (terms.sampling, terms.noise)
    )
    equation = terms.equation.removesuffix(BETWEEN_SITES).removesuffix(NOTHING_SHARED)
    return Estimate(
        params=estimate.params[here],
        cov=estimate.covariance[here, here],
        names=tuple(stored["targets"]),
        nobs=stored["nobs"],
        noise_cov=estimate.noise_covariance[here, here],
        cov_type=stored["cov_type"],
        terms=VarianceTerms(equation, sampling, noise),
    )
