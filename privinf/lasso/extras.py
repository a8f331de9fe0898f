r"""Optional releases of a debiased lasso: restricted eigenvalues, noise variance, bootstrap, bias bound.

**Restricted eigenvalues (Algorithm 5) and the noise variance (Algorithm 4)** are means of clipped squares.
Eigenvalues are those of S = mean x x', columns in units of their typical sizes. Only columns whose sizes were
released should take part: in declared units one with a generous bound makes a small eigenvalue. n_1 public
random unit vectors v_k with s nonzero entries each are tried; the largest (smallest) mean Pi_A(v_k'x)^2 is
selected with noise and released with noise. One record moves a mean by A^2/N. The selected vectors are
feasible points of the two extremal problems: up to noise, the largest restricted eigenvalue is at least, and
the smallest at most, the released number. The paper's Lemma 4.2 closes the gap with a covering of the sphere,
exponentially many vectors. With s = 5, among 29 of 100 columns of an AR(0.5) design, 400 vectors gave 0.66
and 1.75, where the values for all columns are 0.36 and 2.26.

The noise variance is the mean of Pi_R(y - x'b)^2, one record moving it by R^2/N.

Clipping shrinks both. For a normal variable of variance h the mean clipped square is ``h B2(A / sqrt h)``
(B2 of `privinf.lasso.radii`), increasing in h: h is solved for. Where v'x or the residuals are not
normal the correction is right only for the part inside the clips: heavy tails stay undercounted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, cast

import numpy as np
from scipy.optimize import brentq

from privinf.accounting.shares import part_of_rho
from privinf.errors import ArgumentError, NotAvailableError
from privinf.inference.noisy_variance import is_hidden
from privinf.lasso.bootstrap import PrivateDraws, bootstrap_draws
from privinf.lasso.debiasing import COLUMN_NOISE, DebiasedFit
from privinf.lasso.fit import SparseFit, error_variance
from privinf.lasso.radii import UNCLIPPED, residual_moments
from privinf.lasso.sums import SparseSums
from privinf.typing import Floats, Integers, Multipliers
from privinf.validation import check_array, check_choice, check_count, check_fraction, check_number
from privinf.wire import Labels, Statistics

# Keys of stored settings whose field has another name today.
STORED_KEYS = {"selection_scale": "pick_scale"}
EXTRA_SHARES = {"bootstrap": 0.15, "eigenvalues": 0.05, "noise_variance": 0.03}
# Fewer draws have no upper 5% point.
LEAST_DRAWS = 20
FORM_CLIP = 3.0  # where v'x is clipped, in standard deviations of normal columns
RESIDUAL_CLIP = 2.5  # where residuals are clipped for their variance, in units of their scale
VECTORS = 400  # n_1, random sparse directions that are tried, by default
SATURATED = 0.95  # share of the squared clip above which clipped squares do not show the variance
ETA = 0.01  # probability that the bound of `privacy_slack` fails, by default, for each target alone


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RestrictedEigenvalues:
    """Extreme mean squares over random sparse unit vectors.

    Attributes
    ----------
    smallest, largest : float
        Corrected for the clipping.
    smallest_sd, largest_sd : float
        Sd of the noise of each value.
    selection_scale : float
        Scale of the Gumbel noise of the selections: a selected value is within
        ``selection_scale * log(vectors)`` of the extreme on average.
    sparsity, vectors, columns : int
        Nonzero entries of a vector, number of vectors, number of columns among which they are.
    """

    smallest: float
    largest: float
    smallest_sd: float
    largest_sd: float
    selection_scale: float
    sparsity: int
    vectors: int
    columns: int

    @property
    def ratio(self) -> float:
        """Largest over smallest (NotAvailableError where the noise leaves the smallest no sign)."""
        if not self.smallest > 2.0 * self.smallest_sd:
            raise NotAvailableError(
                "the noise hides the smallest restricted eigenvalue: give the eigenvalues a larger share of "
                "the budget with extra_shares="
            )
        return max(1.0, self.largest / self.smallest)


@dataclass(frozen=True, slots=True)
class NoiseVariance:
    """Variance of the errors of the regression.

    Attributes
    ----------
    value : float
    noise_sd : float
        Sd of what the noise adds, that of the release and that of the coefficients; the sampling error is not
        in it.
    clip : float
        R, units of the response.
    """

    value: float
    noise_sd: float
    clip: float


def sparse_directions(p: int, sparsity: int, vectors: int, public_seed: int) -> Floats:
    """Return random unit vectors with `sparsity` nonzero entries, shape (p, vectors): public.

    Supports are uniform; on its support a vector is uniform on the sphere.
    """
    rng = np.random.default_rng(public_seed)
    directions = np.zeros((p, vectors))
    for column in range(vectors):
        values = rng.standard_normal(sparsity)
        directions[rng.choice(p, sparsity, replace=False), column] = values / np.linalg.norm(values)
    return directions


def normal_variance(square: float, clip: float) -> tuple[float, float]:
    """Return the variance of a normal variable with this mean square clipped at `clip`, and its derivative.

    Parameters
    ----------
    square : float
        Mean of Pi_clip(z)^2.
    clip : float
        Infinite: nothing was clipped.

    Raises
    ------
    NotAvailableError
        The mean is nearly that of a variable that is always clipped.

    Examples
    --------
    >>> round(normal_variance(0.516, 1.0)[0], 2)
    1.0
    """
    if math.isinf(clip) or square <= 0.0:
        return square, 1.0
    if square >= SATURATED * clip**2:
        raise NotAvailableError(
            "nearly all residuals (or, for eigenvalues, linear combinations of columns) were clipped, so "
            "their mean square cannot be estimated: fit without noise_variance= or restricted_eigenvalues="
        )

    def excess(log: float) -> float:
        return math.exp(log) * residual_moments(clip * math.exp(-log / 2.0))[1] - square

    variance = math.exp(float(brentq(excess, math.log(square) - 1e-9, math.log(clip**2) + 20.0)))
    # d/dh [h B2(A / sqrt h)] = B1 - 2 a phi(a), the mean square of the normal inside a = A / sqrt h.
    end = clip / math.sqrt(variance)
    inside = residual_moments(end)[0] - 2.0 * end * math.exp(-0.5 * end**2) / math.sqrt(2.0 * math.pi)
    return variance, 1.0 / inside


def restricted_eigenvalues(
    sums: SparseSums,
    sparsity: int,
    rho: float,
    *,
    columns: Sequence[int] | None = None,
    vectors: int = VECTORS,
    public_seed: int = 0,
) -> RestrictedEigenvalues:
    """Release the extreme mean squares over random sparse directions.

    Parameters
    ----------
    sums : SparseSums
    sparsity : int
        s.
    rho : float
        Price, zCDP: half for each extreme, of which half for the selection.
    columns : sequence of int, optional
        Columns that vectors may use; default: all.
    vectors : int
        n_1.
    public_seed : int

    Raises
    ------
    NotAvailableError
        The clip is too small for a value.

    Notes
    -----
    **Privacy.** Spends `rho`.
    """
    among = np.arange(len(sums.units.scale)) if columns is None else np.asarray(columns)
    size = min(sparsity, len(among))
    clip = FORM_CLIP if math.isfinite(rho) else math.inf
    args = sums.args(
        (),
        np.empty(0),
        columns=among,
        clip=min(clip, UNCLIPPED),
        transform=sparse_directions(len(among), size, vectors, public_seed),
    )
    ends = []
    server = cast(Any, sums.server)
    for sign, name in ((-1.0, "smallest"), (1.0, "largest")):
        top = server.top_k(
            Statistics.QUADRATIC_FORMS,
            args,
            1,
            label=Labels.RESTRICTED_EIGENVALUE.format(name=name),
            rho=rho / 2.0,
            values=True,
            candidates=None,
            sites=sums.sites,
            absolute=False,
            factor=sign / sums.n,
        )
        square = sign * float(top.values[0])
        value, slope = normal_variance(square, clip)
        sd = slope * sums.with_count(float(top.values_sd), square)
        ends.append((value, sd, float(top.scale)))
    (smallest, smallest_sd, selection), (largest, largest_sd, _) = ends
    return RestrictedEigenvalues(
        smallest=smallest,
        largest=largest,
        smallest_sd=smallest_sd,
        largest_sd=largest_sd,
        selection_scale=selection,
        sparsity=size,
        vectors=vectors,
        columns=len(among),
    )


def noise_variance(sums: SparseSums, fit: SparseFit, rho: float) -> NoiseVariance:
    """Release the variance of the errors of a sparse regression.

    Raises
    ------
    NotAvailableError
        The variance is below two sds of its noise.

    Notes
    -----
    **Privacy.** Spends `rho`.

    Residuals are those of all selected columns. The noise of their m coefficients adds m t^2 to the mean
    square on average, t the noise in whitened coordinates, and fitting them takes the share m/N away: both
    are undone. What the noise of the coefficients adds is t^2 times a chi-square with m degrees of freedom,
    so its sd is ``sqrt(2 m) t^2``.

    Residuals are clipped at R, which is 2.5 times their typical size by the best estimate from the released
    histogram (`TypicalSize`). The clip is undone for normal errors, whatever R is. But the noise of the
    release grows as R^2, and much of the square is lost where R is far below the sd of the errors.
    """
    private = math.isfinite(rho)
    scale = sums.sizes[-1].typical_scale if sums.sizes else fit.scale
    clip = RESIDUAL_CLIP * scale if private else math.inf
    noisy = sums.release(
        Statistics.SQUARED_RESIDUALS,
        sums.args(fit.selected, fit.selected_beta, residual_clip=min(clip, UNCLIPPED)),
        rho,
        Labels.NOISE_VARIANCE,
    )
    selections = len(fit.selected)
    clipped_square = float(np.squeeze(noisy.mean))
    square, slope = normal_variance(clipped_square, clip)
    freedom = 1.0 - selections / sums.n
    value = (square - selections * fit.step_sd**2) / freedom
    release_sd = slope * sums.with_count(float(noisy.mean_sd), clipped_square)
    sd = math.hypot(release_sd, math.sqrt(2.0 * selections) * fit.step_sd**2) / freedom
    if not value > 0.0 or is_hidden(value, sd):
        raise NotAvailableError(
            "the noise hides the variance of the errors: pass a larger share of the budget for this "
            "variance, extra_shares={'noise_variance': ...}"
        )
    return NoiseVariance(value, sd, clip)


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
    text = f"{reason}. The budget reserved for extra releases (extra_shares=) was not spent"
    return Extras(reasons={name: text for name, is_requested in requested.items() if is_requested})


def _bias_bound(fit: SparseFit, debiased: DebiasedFit, ratio: float, n: int) -> Floats:
    members = np.count_nonzero(debiased.columns, axis=0)
    noise = debiased.coordinates.terms[COLUMN_NOISE]
    share = fit.step_sd**2 / error_variance(fit, n)
    return privacy_slack(noise, members, len(fit.selected), share, ratio)


def privacy_slack(
    column: Floats, members: Integers, selected: int, privacy_share: float, ratio: float, *, eta: float = ETA
) -> Floats:
    """Return the bound on what the privacy errors of coefficients and nodewise regressions do together, (k,).

    Parameters
    ----------
    column : ndarray, shape (k,)
        Released variances of w_j'Z d, sampling error of the coefficients included.
    members : ndarray of int, shape (k,)
        D_j, entries of each nodewise regression.
    selected : int
        m, columns whose coefficients have noise.
    privacy_share : float
        t^2 / a, the share of the noise in the coefficients' variance, in [0, 1].
    ratio : float
        k_max / k_min, at least 1.
    eta : float
        Probability that a bound fails, each target alone.

    Raises
    ------
    ArgumentError

    Notes
    -----
    **Privacy.** Post-processing. In the units of the coordinates; zero without noise.

    Examples
    --------
    >>> privacy_slack(np.array([1e-6]), np.array([8]), 5, 0.5, 1.0).round(3)
    array([0.013])
    """
    variances = check_array(column, "column", ndim=1)
    sizes = np.asarray(members)
    if sizes.shape != variances.shape or (variances < 0.0).any() or (sizes < 1).any():
        raise ArgumentError(
            "column= must be an array of nonnegative variances, and members= an array of positive integers "
            "of the same length, with one entry for each target"
        )
    check_number(privacy_share, "privacy_share", low=0.0, high=1.0)
    check_number(ratio, "ratio", low=1.0)
    tail = math.sqrt(math.log(2.0 / check_fraction(eta, "eta")))
    effective = max(0.5, 0.5 * check_count(selected, "picked", least=0) / ratio)
    typical = np.sqrt((sizes + 1.0) * privacy_share * variances)
    room = (1.0 + 2.0 * tail / np.sqrt(sizes + 1.0)) * (1.0 + tail / math.sqrt(effective))
    return np.asarray(ratio * typical * room)


def stored(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields by the keys under which files hold them."""
    return {STORED_KEYS.get(name, name): value for name, value in values.items()}


def restored(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return stored values by the names of their fields."""
    names = {key: name for name, key in STORED_KEYS.items()}
    return {names.get(key, key): value for key, value in values.items()}
