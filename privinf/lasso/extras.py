"""Optional releases of a debiased lasso in addition to its coordinates, and their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from privinf.accounting.shares import part_of_rho
from privinf.errors import ArgumentError, NotAvailableError
from privinf.inference.estimate import Estimate
from privinf.inference.intervals import contrast_bias
from privinf.inference.simultaneous import MaxT
from privinf.lasso.bootstrap import PrivateDraws, bootstrap_draws
from privinf.lasso.debiasing import DebiasedFit, privacy_slack
from privinf.lasso.eigenvalues import (
    NoiseVariance,
    RestrictedEigenvalues,
    noise_variance,
    restricted_eigenvalues,
)
from privinf.lasso.fit import SparseFit
from privinf.lasso.sums import SparseSums
from privinf.notebook import html_table
from privinf.results.constraints import Constraints
from privinf.results.rendering import SummaryColumn
from privinf.results.simultaneous import SimultaneousResults
from privinf.results.summary import number
from privinf.typing import Floats, Multipliers
from privinf.validation import check_choice, check_count, check_fraction

# Keys of stored settings whose field has another name today.
STORED_KEYS = {"selection_scale": "pick_scale"}
EXTRA_SHARES = {"bootstrap": 0.15, "eigenvalues": 0.05, "noise_variance": 0.03}
# Fewer draws have no upper 5% point.
LEAST_DRAWS = 20
JointMethod = Literal["simulation", "gaussian", "multiplier", "private-bootstrap"]
BIAS_NOTE = (
    "The noise in the coefficients multiplies the noise in the nodewise regressions, which causes an error. "
    "The column 'bias bound' is a worst-case bound on this error. Intervals add the variance of the error; "
    "conf_int(bias_bound=True) adds the bound instead."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtrasPlan:
    """A checked request for extras.

    Attributes
    ----------
    bootstrap_draws : int or None
        None: no private bootstrap.
    bootstrap_multipliers : {"rademacher", "gaussian"}
    eigenvalues, noise_variance, bias_bound : bool
        The bias bound needs the eigenvalues.
    bootstrap_share, eigenvalues_share, noise_variance_share : float
        Shares of the total budget; zero for extras that were not requested.
    public_seed : int
        Of multipliers and directions.
    """

    bootstrap_draws: int | None = None
    bootstrap_multipliers: Multipliers = "rademacher"
    eigenvalues: bool = False
    noise_variance: bool = False
    bias_bound: bool = False
    bootstrap_share: float = 0.0
    eigenvalues_share: float = 0.0
    noise_variance_share: float = 0.0
    public_seed: int = 0

    @property
    def share(self) -> float:
        """Share of the budget that the extras take."""
        return self.bootstrap_share + self.eigenvalues_share + self.noise_variance_share

    def basic(self, rho: float) -> float:
        """Return the budget that remains for selection, refit and debiasing."""
        return rho * (1.0 - self.share)

    def price(self, share: float, rho: float) -> float:
        """Return the price of one extra out of the total budget."""
        return part_of_rho(rho, share)


def check_extras(
    *,
    bootstrap_draws: int | None = None,
    bootstrap_multipliers: Multipliers = "rademacher",
    restricted_eigenvalues: bool = False,
    noise_variance: bool = False,
    bias_bound: bool = False,
    extra_shares: Mapping[str, float] | None = None,
    public_seed: int = 0,
) -> ExtrasPlan:
    """Return the plan of the extras of a fit; reads no rows.

    Parameters
    ----------
    bootstrap_draws : int, optional
        Draws of the private bootstrap, at least 20; each takes an equal part of its price.
    bootstrap_multipliers : {"rademacher", "gaussian"}
    restricted_eigenvalues, noise_variance, bias_bound : bool
        The bias bound includes the eigenvalues.
    extra_shares : mapping, optional
        Shares of the total budget, of any of "bootstrap" (0.15), "eigenvalues" (0.05) and "noise_variance"
        (0.03); those of the basic fit are scaled down to the rest.
    public_seed : int

    Raises
    ------
    ArgumentError
        A value is out of range, a share belongs to an extra that is not requested, or no budget remains.
    """
    if bootstrap_draws is not None:
        check_count(bootstrap_draws, "bootstrap_draws", least=LEAST_DRAWS)
    multipliers = check_choice(bootstrap_multipliers, Multipliers, "bootstrap_multipliers")
    if bootstrap_draws is None and multipliers != "rademacher":
        raise ArgumentError("bootstrap_multipliers= requires bootstrap_draws=")
    requested = {
        "bootstrap": bootstrap_draws is not None,
        "eigenvalues": bool(restricted_eigenvalues or bias_bound),
        "noise_variance": bool(noise_variance),
    }
    shares = _shares(extra_shares, requested)
    return ExtrasPlan(
        bootstrap_draws=bootstrap_draws,
        bootstrap_multipliers=bootstrap_multipliers,
        eigenvalues=requested["eigenvalues"],
        noise_variance=requested["noise_variance"],
        bias_bound=bool(bias_bound),
        bootstrap_share=shares["bootstrap"],
        eigenvalues_share=shares["eigenvalues"],
        noise_variance_share=shares["noise_variance"],
        public_seed=check_count(public_seed, "public_seed", least=0),
    )


def _shares(extra_shares: Mapping[str, float] | None, requested: Mapping[str, bool]) -> dict[str, float]:
    if extra_shares is not None and not isinstance(extra_shares, Mapping):
        raise ArgumentError(
            "extra_shares= must be a mapping from names of extra releases to their shares of the budget"
        )
    for name in extra_shares or {}:
        if not requested.get(name, False):
            names = ", ".join(name for name, is_requested in requested.items() if is_requested) or "none"
            raise ArgumentError(
                f"extra_shares= contains {name!r}, which this fit does not release; extra releases of "
                f"this fit: {names}"
            )
    shares = EXTRA_SHARES | dict(extra_shares or {})
    checked = {
        name: check_fraction(shares[name], f"extra_shares[{name!r}]") if is_requested else 0.0
        for name, is_requested in requested.items()
    }
    if sum(checked.values()) >= 1.0:
        raise ArgumentError(
            "the shares in extra_shares must sum to less than one: the rest of the budget is for the fit"
        )
    return checked


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Extras:
    """Extra releases in addition to the coordinates; None for those that were not requested.

    Attributes
    ----------
    bootstrap : PrivateDraws or None
    eigenvalues : RestrictedEigenvalues or None
    noise_variance : NoiseVariance or None
    bias_bound : ndarray, shape (number of targets,), or None
        Units of the sums.
    reasons : mapping of str to str
        By name of an extra: why the noise leaves no result although it was paid for.
    """

    bootstrap: PrivateDraws | None = None
    eigenvalues: RestrictedEigenvalues | None = None
    noise_variance: NoiseVariance | None = None
    bias_bound: Floats | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)

    def settings(self, unit: Floats) -> dict[str, Any]:
        """Return everything as plain numbers, the bias bound divided by `unit`."""
        parts = {name: getattr(self, name) for name in ("bootstrap", "eigenvalues", "noise_variance")}
        plain: dict[str, Any] = {
            name: stored(asdict(part)) for name, part in parts.items() if part is not None
        }
        if "bootstrap" in plain:
            plain["bootstrap"]["values"] = list(plain["bootstrap"]["values"])
        if self.bias_bound is not None:
            plain["bias_bound"] = (self.bias_bound / unit).tolist()
        return plain | {"reasons": dict(self.reasons)} if self.reasons else plain


def run_extras(
    sums: SparseSums, fit: SparseFit, debiased: DebiasedFit, plan: ExtrasPlan, rho: float
) -> Extras:
    """Release the extras of a debiased fit.

    Parameters
    ----------
    sums : SparseSums
    fit : SparseFit
    debiased : DebiasedFit
    plan : ExtrasPlan
    rho : float
        The **total** budget of the fit, zCDP; the basic fit gets ``plan.basic(rho)``.

    Notes
    -----
    **Privacy.** Spends at most ``plan.share * rho``. Where the noise hides one of them the others, and the
    fit, are kept: the results state the reason when a user requests them.
    """
    seed = plan.public_seed
    released = dict[str, Any]()
    reasons = dict[str, str]()

    def release(name: str, make: Callable[[], Any]) -> None:
        try:
            released[name] = make()
        except NotAvailableError as reason:
            reasons[name] = str(reason)

    if plan.eigenvalues:
        sparsity = max(1, len(fit.support))
        price = plan.price(plan.eigenvalues_share, rho)
        release(
            "eigenvalues",
            lambda: restricted_eigenvalues(
                sums,
                sparsity,
                price,
                columns=debiased.union,
                public_seed=seed,
            ),
        )
    if plan.bias_bound and "eigenvalues" in released:
        release("bias_bound", lambda: _bias_bound(fit, debiased, released["eigenvalues"].ratio, sums.n))
    elif plan.bias_bound:
        reasons["bias_bound"] = reasons["eigenvalues"]
    if plan.noise_variance:
        estimate_price = plan.price(plan.noise_variance_share, rho)
        release("noise_variance", lambda: noise_variance(sums, fit, estimate_price))
    if plan.bootstrap_draws is not None:
        draws = plan.bootstrap_draws
        rest = plan.price(plan.bootstrap_share, rho)
        multipliers = plan.bootstrap_multipliers
        release(
            "bootstrap",
            lambda: bootstrap_draws(
                sums,
                fit,
                debiased,
                debiased.columns,
                draws,
                rest,
                multipliers=multipliers,
                public_seed=seed,
            ),
        )
    return Extras(**released, reasons=reasons)


def unreleased_extras(plan: ExtrasPlan, reason: str) -> Extras:
    """Return the extras of a fit without debiased targets: none, as `run_extras` spends nothing for it."""
    requested = {
        "bootstrap": plan.bootstrap_draws is not None,
        "eigenvalues": plan.eigenvalues,
        "noise_variance": plan.noise_variance,
        "bias_bound": plan.bias_bound,
    }
    text = f"{reason}; the part of the budget that was reserved for such extra releases was not spent"
    return Extras(reasons={name: text for name, is_requested in requested.items() if is_requested})


def _bias_bound(fit: SparseFit, debiased: DebiasedFit, ratio: float, n: int) -> Floats:
    noise = fit.step_sd**2
    total = fit.efficiency * fit.scale**2 / n + noise
    members = np.count_nonzero(debiased.columns, axis=0)
    return privacy_slack(debiased.coordinates.column, members, len(fit.selected), noise / total, ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxTest:
    """Test that all of several coefficients equal given values, by the largest studentized difference.

    Attributes
    ----------
    statistic : float
        Largest ``|b_j - b0_j| / bse_j``.
    pvalue : float
    critical_value : float
        The hypothesis is rejected where the statistic exceeds it.
    rejected : tuple of str
        Coefficients that differ, with the chance of any false rejection at most `alpha`; step-down.
    alpha : float
    method : str
    """

    statistic: float
    pvalue: float
    critical_value: float
    rejected: tuple[str, ...]
    alpha: float
    method: str

    def _repr_html_(self) -> str:
        cells = (f"{self.statistic:.4g}", f"{self.critical_value:.4g}", f"{self.pvalue:.4g}")
        heads = ("largest |t|", "critical value", "p-value", "rejected")
        return html_table(heads, [(*cells, ", ".join(self.rejected) or "none")], "Joint test of coefficients")


def joint_bootstrap(
    estimate: Estimate, drawn: PrivateDraws, chosen: Constraints, alpha: float
) -> SimultaneousResults:
    """Return joint inference on coefficients from released maxima."""
    if ((chosen.R != 0.0).sum(axis=1) != 1).any() or not np.isin(chosen.R, (-1.0, 0.0, 1.0)).all():
        raise NotAvailableError(
            "the private bootstrap supports only the coefficients: use method='simulation' for contrasts"
        )
    effect, cov = estimate.linear(chosen.R)
    bse = np.sqrt(np.diag(cov))
    bias = contrast_bias(estimate, chosen.R)
    away = effect - chosen.q
    if bias is not None:
        away = np.maximum(np.abs(away) - bias, 0.0)
    pvalues = drawn.pvalues(away / bse, alpha)
    quantiles = MaxT(drawn.critical_value(alpha), pvalues, pvalues, len(drawn.values))
    return SimultaneousResults(
        names=chosen.labels,
        effect=effect,
        bse=bse,
        null=chosen.q,
        max_t=quantiles,
        alpha=alpha,
        method="private-bootstrap",
        bias=bias,
    )


def bias_column(bound: Sequence[float]) -> SummaryColumn:
    """Return the bias bound as a column of a summary, before the z statistics."""
    return SummaryColumn(
        name="(bias bound)", cells=[number(value) for value in bound], place=3, note=BIAS_NOTE
    )


def stored(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields by the keys under which files hold them."""
    return {STORED_KEYS.get(name, name): value for name, value in values.items()}


def restored(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return stored values by the names of their fields."""
    names = {key: name for name, key in STORED_KEYS.items()}
    return {names.get(key, key): value for key, value in values.items()}
