"""Bootstrap of a fitted model, labelled; the solver that the pairs bootstrap repeats; draws for ArviZ."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from privinf.accounting import PrivacyReport
from privinf.errors import NotAvailableError
from privinf.inference.bootstrap import (
    BootstrapDraws,
    BootstrapInterval,
    Resolve,
    multiplier_bootstrap,
    pairs_bootstrap,
    parametric_bootstrap,
)
from privinf.inference.estimate import Estimate
from privinf.inference.linear_scores import LinearScores
from privinf.progress import progress_bar
from privinf.results.constraints import ConstraintLike, linear_constraints
from privinf.results.simultaneous import JOINT_STREAM, SimultaneousMethod, SimultaneousResults, simultaneous
from privinf.results.wald import Inference
from privinf.schema import Design
from privinf.typing import BootstrapMethod, Floats, Names, RngLike
from privinf.validation import as_generator, check_choice, check_count, shown

if TYPE_CHECKING:
    import xarray as xr

# Entries of the moments of single records that the pairs bootstrap holds: one gigabyte.
STACK_LIMIT = 1 << 27


@dataclass(frozen=True, slots=True)
class BootstrapResults:
    """Bootstrap distribution of the coefficients.

    Attributes
    ----------
    names : tuple of p str
    replicates : BootstrapDraws
    method : {"multiplier", "pairs", "parametric"}
    bias : ndarray, shape (p,), or None
        Largest absolute bias of the coefficients, which draws do not show: intervals are longer by it at
        each end.
    """

    names: tuple[str, ...]
    replicates: BootstrapDraws
    method: str
    bias: Floats | None = None

    @property
    def draws(self) -> pd.DataFrame:
        """Replicates of the coefficients, one row per draw."""
        return pd.DataFrame(self.replicates.draws, columns=list(self.names))

    @property
    def cov(self) -> pd.DataFrame:
        """Covariance of the replicates."""
        return pd.DataFrame(self.replicates.cov, list(self.names), list(self.names))

    @property
    def bse(self) -> pd.Series[float]:
        """Standard deviations of the replicates."""
        return pd.Series(np.sqrt(np.diag(self.replicates.cov)), list(self.names), name="bse")

    def conf_int(self, alpha: float = 0.05, kind: BootstrapInterval = "studentized") -> pd.DataFrame:
        """Return intervals of level ``1 - alpha``, columns 0 and 1.

        Parameters
        ----------
        alpha : float
            One minus the confidence level of the intervals.
        kind : {"studentized", "percentile"}
            From the bootstrapped t statistics, or from quantiles of the replicates.

        Returns
        -------
        DataFrame
            One row per coefficient.
        """
        return pd.DataFrame(self._ends(alpha, kind), list(self.names))

    def summary_frame(self, alpha: float = 0.05) -> pd.DataFrame:
        """Return coefficients, bootstrap errors and bias, and both kinds of intervals.

        Parameters
        ----------
        alpha : float
            One minus the confidence level of the intervals.

        Returns
        -------
        DataFrame
            One row per coefficient.
        """
        table: dict[str, Any] = {
            "coef": self.replicates.params,
            "boot bias": self.replicates.draws.mean(axis=0) - self.replicates.params,
            "boot se": self.bse,
        }
        for kind in ("percentile", "studentized"):
            low, high = self._ends(alpha, kind).T
            table |= {f"{kind} low": low, f"{kind} high": high}
        return pd.DataFrame(table, list(self.names))

    def _ends(self, alpha: float, kind: BootstrapInterval) -> Floats:
        ends = self.replicates.conf_int(alpha, kind)
        return ends if self.bias is None else ends + np.outer(self.bias, [-1.0, 1.0])

    def to_xarray(self) -> xr.Dataset:
        """Return the replicates as xarray.Dataset with dims chain, draw and coefficient.

        Returns
        -------
        xarray Dataset
            Its variable `params` has the dimensions chain, draw and coefficient.
        """
        return draws_dataset(self.replicates.draws, self.names, distribution=f"{self.method} bootstrap")

    def __repr__(self) -> str:
        head = f"{self.method} bootstrap, {len(self.replicates.draws)} draws"
        return f"{head}\n{self.summary_frame().to_string(float_format='%.4g')}"

    def _repr_html_(self) -> str:
        return str(self.summary_frame().to_html(float_format="{:.4g}".format))


def bootstrap(
    estimate: Estimate,
    system: LinearScores | None,
    design: Design | None,
    *,
    draws: int,
    method: BootstrapMethod,
    rng: RngLike,
) -> BootstrapResults:
    """Return the bootstrap distribution of `estimate`; see `Results.bootstrap`."""
    check_choice(method, BootstrapMethod, "method")
    if method == "parametric":
        replicates = parametric_bootstrap(estimate.params, estimate.covariance, draws=draws, rng=rng)
    elif method == "multiplier":
        replicates = multiplier_bootstrap(estimate.params, estimate.influence, draws=draws, rng=rng)
    else:
        bse = estimate.bse
        resolve, units = resampled_solution(estimate, system, design)
        replicates = pairs_bootstrap(estimate.params, bse, resolve, n=units, draws=draws, rng=rng)
    return BootstrapResults(estimate.names, replicates, method, estimate.bias)


def best_method(estimate: Estimate, target: str) -> BootstrapMethod:
    """Return the bootstrap of records where there are any and the target has a sampling error."""
    records = estimate.scores is not None and estimate.bread is not None and target != "sample"
    return "multiplier" if records else "parametric"


def resampled_solution(
    estimate: Estimate, system: LinearScores | None, design: Design | None
) -> tuple[Resolve, int]:
    """Return the solver of reweighted released records, and how many independent units there are.

    Notes
    -----
    Scores are linear, ``psi_i(b) = a_i - Q_i b``: evaluated at 0 and at the p unit vectors they give every
    reweighted moment. What a stabilisation added to A stays as it is in every replicate.
    """
    if (
        system is None
        or design is None
        or estimate.bread is None
        or estimate.names != design.names
        or system.scores(np.zeros(len(system.g))) is None
    ):
        raise NotAvailableError(
            "method='pairs' resamples released records, and this result has none: use method='parametric'"
        )
    p = len(system.g)
    if estimate.scores is not None and len(estimate.scores) * p * (p + 1) > STACK_LIMIT:
        raise NotAvailableError(
            "method='pairs' would need more than a gigabyte of memory for moments: use method='multiplier'"
        )
    transform, shift = design.to_user
    stack = np.stack([np.asarray(system.scores(b)) for b in np.vstack([np.zeros(p), np.eye(p)])], axis=1)
    units = len(stack)
    added = transform.T @ estimate.bread @ transform - system.A
    start = np.linalg.solve(system.A + added, system.g)
    if not np.allclose(
        transform @ start + shift, estimate.params, rtol=1e-6, atol=1e-6 * float(estimate.bse.min())
    ):
        raise NotAvailableError(
            "method='pairs' is available only for estimates that solve released moment equations: use "
            "method='parametric'"
        )
    flat = stack.reshape(units, -1)

    def resolve(weights: Floats) -> tuple[Floats, Floats]:
        sums = (weights @ flat / units).reshape(p + 1, p)
        gram = (sums[0] - sums[1:]).T + added
        beta = np.linalg.solve(gram, sums[0])
        scores = np.tensordot(stack, np.append(1.0 - beta.sum(), beta), axes=(1, 0))
        scores -= np.average(scores, axis=0, weights=weights)
        meat = scores.T @ (weights[:, None] * scores) / units
        half = np.linalg.solve(gram.T, transform.T).T
        return transform @ beta + shift, np.sqrt(np.einsum("ij,jk,ik->i", half, meat, half) / units)

    return resolve, units


def draws_dataset(draws: Floats, names: Names, **attributes: str | float) -> xr.Dataset:
    """Return draws of shape (draws, p) as Dataset with dims (chain, draw, coefficient).

    Raises
    ------
    NotAvailableError
        xarray is not installed.
    """
    try:
        import xarray as xr
    except ImportError:
        raise NotAvailableError("draws require xarray: pip install 'privinf[arviz]'") from None
    coords = {"chain": [0], "draw": np.arange(len(draws)), "coefficient": list(names)}
    values = np.asarray(draws, dtype=np.float64)[None]
    return xr.Dataset({"params": (("chain", "draw", "coefficient"), values)}, coords, attributes)


def to_arviz(dataset: xr.Dataset, group: str = "posterior") -> Any:
    """Return ArviZ's container of the draws: InferenceData before version 1, DataTree from then on.

    The group is called "posterior" because ArviZ's functions read it; the draws are from a sampling
    distribution, as the attributes say. Pass probabilities explicitly: ArviZ's defaults changed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # ArviZ 0.23 announces version 1 on import
            import arviz as az
    except ImportError:
        raise NotAvailableError("to_arviz() requires ArviZ: pip install 'privinf[arviz]'") from None
    if int(az.__version__.partition(".")[0]) >= 1:
        import xarray as xr

        return xr.DataTree.from_dict({group: dataset})
    container: Any = az.InferenceData
    return container(**{group: dataset})


@dataclass(frozen=True, eq=False)
class Resampling:
    """Draws from the distribution of the coefficients: bootstraps, joint intervals, draws for ArviZ.

    A method whose released rows are not records extends `bootstrap` and `null_draws`.

    Attributes
    ----------
    inference : Inference
    """

    inference: Inference

    def null_draws(self, R: Floats, draws: int | None, rng: RngLike) -> Floats | None:
        """Return draws of the t statistics of ``R b`` under the null; None: by the records' influences."""
        self.inference.context.require_population("method='multiplier'")
        return None

    def bootstrap(
        self,
        draws: int = 999,
        method: BootstrapMethod | None = None,
        *,
        rng: RngLike = None,
        progress: bool | None = None,
    ) -> BootstrapResults:
        """Return the bootstrap distribution of the coefficients.

        Parameters
        ----------
        draws : int
            Number of replicates.
        method : {"multiplier", "pairs", "parametric"}, optional
            Random signs on the records' influences; records drawn again and solved again; or draws from the
            normal distribution with the estimate's covariance, which needs no records. Default: "multiplier"
            if records were released and their sampling is part of the error, else "parametric".
        rng : None, int or Generator
            Seed of the replicates.
        progress : bool, optional
            Whether to show a progress bar of the replicates; default: on a terminal only.

        Returns
        -------
        object
            ``.conf_int()``, ``.bse``, ``.draws``, ``.summary_frame()`` and ``.method``.
        """
        estimate = self.inference.estimate
        context = self.inference.context
        chosen = best_method(estimate, context.target) if method is None else method
        if chosen != "parametric":
            context.require_population(f"method={shown(chosen)}")
        count = check_count(draws, "draws", least=2)
        with progress_bar(progress, f"{chosen} bootstrap", total=count, unit="replicate"):
            return bootstrap(estimate, context.system, context.design, draws=count, method=chosen, rng=rng)

    def simultaneous(
        self,
        alpha: float = 0.05,
        which: ConstraintLike | None = None,
        method: SimultaneousMethod = "gaussian",
        *,
        draws: int | None = None,
        rng: RngLike = None,
    ) -> SimultaneousResults:
        """Return joint intervals and adjusted p-values.

        Parameters
        ----------
        alpha : float
            One minus the joint level of the intervals.
        which : str, list, mapping, array or (R, q), optional
            Coefficients or contrasts, as in `t_test`; they may be linearly dependent. Default: all
            coefficients.
        method : {"gaussian", "multiplier"}
            Null distribution of the largest |t|: from the covariance, or from released records or mixed rows.
        draws : int, optional
            Default: 100,000 normal draws (fewer for more than 300 quantities), 1,999 of multipliers.
        rng : None, int or Generator
            Seed of the draws; default: a fixed one, so that the same result has the same joint intervals.

        Returns
        -------
        object
            ``.conf_int()``, ``.pvalues``, ``.reject``, ``.summary_frame()`` and ``.critical_value``.
        """
        names = self.inference.names
        chosen = linear_constraints(np.eye(len(names)) if which is None else which, names)
        rng = JOINT_STREAM if rng is None else rng
        null = self.null_draws(chosen.R, draws, rng) if method == "multiplier" else None
        return simultaneous(
            self.inference.estimate, chosen, alpha=alpha, method=method, draws=draws, rng=rng, null=null
        )

    def draws(self, n: int = 1000, *, rng: RngLike = None) -> xr.Dataset:
        """Return draws from the sampling distribution of the intervals, with dims chain, draw, coefficient.

        Needs the extra ``privinf[arviz]``. The distribution is normal about the estimate, or multivariate t
        where the total covariance has degrees of freedom. For a curved fit the intervals are quantiles of
        these draws. A possible bias that widens intervals is not part of them: the attribute ``bias`` has the
        largest.

        Parameters
        ----------
        n : int
            Number of draws.
        rng : None, int or Generator
            Seed of the draws.

        Returns
        -------
        xarray Dataset
            Its variable `params` has the dimensions chain, draw and coefficient.
        """
        distribution, values = self.inference.sampled(check_count(n, "n", least=2), as_generator(rng))
        attributes: dict[str, str | float] = {
            "distribution": distribution,
            "privacy": privacy_line(self.inference.context.report),
        }
        if self.inference.estimate.bias is not None:
            attributes["bias"] = self.inference.estimate.bias.max()
        return draws_dataset(values, self.inference.names, **attributes)

    def to_arviz(self, n: int = 1000, *, rng: RngLike = None, group: str = "posterior") -> Any:
        """Return `draws` as ArviZ's container.

        Parameters
        ----------
        n : int
            Number of draws.
        rng : None, int or Generator
            Seed of the draws.
        group : str
            Name of the container's group.

        Returns
        -------
        InferenceData, or DataTree from ArviZ 1 on
        """
        return to_arviz(self.draws(n, rng=rng), group)


def privacy_line(report: PrivacyReport) -> str:
    """Return the cost of a fit in one line."""
    stamp = f", {report.stamp}" if report.stamp else ""
    return f"epsilon {report.epsilon():.4g} at delta {report.default_delta:g} ({report.relation}){stamp}"
