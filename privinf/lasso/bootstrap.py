r"""The private multiplier bootstrap of the largest debiased coordinate (Algorithm 7).

With standardized scores u_j = w_j'x / sqrt(w_jj) clipped one by one at A, residuals clipped at R and public
multipliers e, a draw is

    U = max_j |V_j + Z_j|,   V_j = f N^-1/2 sum_i e_i g_j u_ij psi(r_i),   Z_j ~ N(0, privacy_j / sigma_j^2).

The statistic is (b_j - beta_j) / sigma_j of the debiased b_j = b0_j + s_j / kappa_j. Its sampling part has
the released variance ``sampling_j``, slope included; given the rows, V_j has the variance f^2 m_j, m_j the
mean square of g_j u_j psi(r), which is released too. So sigma_j^2 = sampling_j / (f^2 m_j): it undoes that
scores and residuals are clipped at other places than in the debiasing, where scores are shrunk jointly. A and
R are one standard deviation at most, which needs less noise; of the joint distribution they change the
correlations, a little, toward zero for normal scores, which is conservative. The other part of b_j - beta_j
is the noise of the releases, whose distribution is public: Z_j is simulated and added **before** the maximum,
as a public offset of the noisy maximum, free of cost. g_j and f make sigma_j nearly the standard error of
b_j, so that the maximum is one of studentized coordinates; the paper's intervals have one width for all
coordinates, which depends on the units of the columns.

**The noise of the maximum.** A draw is released as X = |V_J + Z_J + t z|: J is selected with Gumbel noise of
scale b among m targets, z is standard normal. A selection shortens the maximum: given the scores, the
shortfall D has P(D <= y) >= 1 / (1 + (m - 1) exp(-y / b)) for y >= 0. Noise of the value widens it in the
tail. Ignoring both is therefore **not** known to be conservative. What holds for every d >= 0 is

    P(X > x) >= P(U > x + d) pi(d),    pi(d) = E[ 1(d + t z >= 0) / (1 + (m - 1) exp(-(d + t z) / b)) ],

since X >= U - D + t z' with z' normal and independent of D given the scores. The critical value is therefore
d plus the upper alpha pi(d) quantile of X, and an adjusted p-value is P(X >= |T| - d) / pi(d); d makes the
critical value least for normal X of variance 1 + t^2. Without noise d = 0 and pi = 1.

b and t are ``l / sqrt(2 (1 - v) rho / q)`` and ``l / sqrt(2 v rho / q)`` for q draws at rho, v = .7 the share
of the values and l = 2 f A R / sqrt N, about 4 / sqrt N. With five targets, 200 draws and N = 20,000 the
critical value was 1.4, 1.6 and 2.1 times that of the free simulation at N rho / q = 100, 25 and 6 (rho the
price of the draws, means of ten fits): the free simulation is the default.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from scipy.special import expit, ndtri

from privinf.errors import NotAvailableError
from privinf.lasso.debiasing import DebiasedFit
from privinf.lasso.fit import SparseFit
from privinf.lasso.precision import steadied
from privinf.lasso.radii import UNCLIPPED, residual_moments
from privinf.lasso.sums import SparseSums
from privinf.typing import Floats, Multipliers
from privinf.validation import check_fraction
from privinf.wire import Labels, Statistics

FORM_CLIP = 1.0  # A, in standard deviations of a score
RESIDUAL_CLIP = 1.0  # R, in standard deviations of the residuals
GAUSSIAN_BOUND = 3.0  # Gaussian multipliers are clipped here, so that a record's part is bounded
VARIANCE_SHARE = 0.05  # share of the price for each of two releases of variances
VALUES_SHARE = 0.7  # v, share of a draw's price for the value: the noise of the selection costs less
_NORMAL = ndtri((np.arange(2000) + 0.5) / 2000)  # quantiles that represent the standard normal z in pi(d)
_SHIFTS = np.linspace(0.0, 8.0, 161)  # values of d that are tried, in units of b + t


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateDraws:
    """Released draws of the largest studentized coordinate.

    Attributes
    ----------
    values : tuple of float
        X, one a draw.
    selection_scale, value_sd : float
        b and t.
    targets : int
        m.
    inflation : float
        Largest sigma_j over the standard error of b_j; about 1.
    multipliers : str
    """

    values: tuple[float, ...]
    selection_scale: float
    value_sd: float
    targets: int
    inflation: float
    multipliers: str

    def critical_value(self, alpha: float) -> float:
        """Return the half-width of joint intervals in standard errors, conservative for the noise.

        Raises
        ------
        NotAvailableError
            There are too few draws for this level and this much noise.

        Notes
        -----
        **Privacy.** Post-processing.
        """
        shift, share = self.correction(alpha)
        count = len(self.values)
        rank = int(_rank(alpha * share, count))
        return self.inflation * (float(np.sort(self.values)[count - rank]) + shift)

    def pvalues(self, statistics: Floats, alpha: float) -> Floats:
        """Return adjusted p-values of t statistics, dual to the critical value at `alpha`."""
        shift, share = self.correction(alpha)
        count = len(self.values)
        cumulative = np.asarray(np.abs(statistics))[:, None] / self.inflation - shift
        exceeding = (np.asarray(self.values) >= cumulative).sum(axis=1)
        return np.asarray(np.minimum((1.0 + exceeding) / ((count + 1) * share), 1.0))

    def correction(self, alpha: float) -> tuple[float, float]:
        """Return d and pi(d); both depend on public numbers only."""
        check_fraction(alpha, "alpha")
        shifts = _SHIFTS * (self.selection_scale + self.value_sd) if self.noisy else np.zeros(1)
        shares = np.array([self._share(shift) for shift in shifts])
        ranks = _rank(alpha * shares, len(self.values))
        enough = ranks >= 1.0
        if not enough.any():
            fewest = math.ceil(1.0 / (alpha * shares.max())) - 1
            raise NotAvailableError(
                f"{len(self.values)} bootstrap draws are too few for alpha={alpha:g}, which needs at least "
                f"{fewest}: pass a larger bootstrap_draws= to fit(), or a larger alpha="
            )
        tails = ranks[enough] / (2.0 * self.targets * (len(self.values) + 1))
        planned = -ndtri(tails) * math.hypot(1.0, self.value_sd) + shifts[enough]
        best = int(np.argmin(planned))
        return float(shifts[enough][best]), float(shares[enough][best])

    @property
    def noisy(self) -> bool:
        """Whether the maxima were noised."""
        return self.selection_scale > 0.0 or self.value_sd > 0.0

    def _share(self, shift: float) -> float:
        room = shift + self.value_sd * _NORMAL
        if self.targets == 1 or self.selection_scale == 0.0:
            return float(np.mean(room >= 0.0))
        probability = expit(room / self.selection_scale - math.log(self.targets - 1))
        return float(np.mean(np.where(room >= 0.0, probability, 0.0)))


def _rank(tail: float | Floats, count: int) -> Floats:
    """Return which draw, from the largest down, has the upper `tail` among `count` draws."""
    return np.asarray(np.floor(tail * (count + 1) + 1e-9))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Forms:
    """Scores that are bootstrapped, clipped one by one."""

    sums: SparseSums
    fit: SparseFit
    union: Sequence[int]
    clip: float
    residual: float

    def arguments(self, transform: Floats) -> dict[str, Any]:
        return self.sums.args(
            self.fit.selected,
            self.fit.selected_beta,
            columns=np.asarray(self.union),
            transform=transform,
            clip=min(self.clip, UNCLIPPED),
            residual_clip=min(self.residual, UNCLIPPED),
        )

    def variances(self, transform: Floats, rho: float) -> Floats:
        noisy = self.sums.release(
            Statistics.PAPER_VARIANCES, self.arguments(transform), rho, Labels.BOOTSTRAP_VARIANCES
        )
        if not np.mean(noisy.mean) > 0.0:
            raise NotAvailableError(
                "the noise hides the variances of the bootstrapped scores: increase the share of the "
                "bootstrap with extra_shares="
            )
        return steadied(np.asarray(noisy.mean), noisy.mean_sd)


def bootstrap_draws(
    sums: SparseSums,
    fit: SparseFit,
    debiased: DebiasedFit,
    transform: Floats,
    draws: int,
    rho: float,
    *,
    multipliers: Multipliers = "rademacher",
    public_seed: int = 0,
) -> PrivateDraws:
    """Release draws of the multiplier bootstrap of the largest debiased coordinate.

    Parameters
    ----------
    sums : SparseSums
    fit : SparseFit
    debiased : DebiasedFit
    transform : ndarray, shape (size of the union, m)
        Columns w_j / sqrt(w_jj).
    draws : int
        q.
    rho : float
        Total price, zCDP.
    multipliers : {"rademacher", "gaussian"}
        Gaussian ones are clipped at 3 and need three times the noise.
    public_seed : int

    Raises
    ------
    NotAvailableError
        The noise hides the variances of the scores.

    Notes
    -----
    **Privacy.** Spends `rho`: 5% on each of two releases of variances, the rest in equal parts on the draws.
    In each draw, 30% goes to the selection and 70% to the value; a single target needs no selection. One
    record moves an entry of a draw by at most 2 A R max|e|.
    """
    coordinates = debiased.coordinates
    clip = bound = math.inf
    if math.isfinite(rho):
        clip = min(FORM_CLIP, debiased.radii[0])
        bound = min(RESIDUAL_CLIP, debiased.radii[1]) * fit.scale
    forms = _Forms(sums=sums, fit=fit, union=debiased.union, clip=clip, residual=bound)
    share = coordinates.sampling / coordinates.variance
    gains = np.sqrt(share / forms.variances(transform, VARIANCE_SHARE * rho))
    scaled = transform * (gains / gains.mean())
    relative = np.sqrt(share / forms.variances(scaled, VARIANCE_SHARE * rho))
    # f makes sigma_j / bse_j = relative_j / f one on average.
    factor = float(np.sqrt(np.mean(relative**2)))
    sigma = np.sqrt(coordinates.variance) * relative / factor
    rng = np.random.default_rng(public_seed)
    offset = rng.standard_normal((draws, len(sigma))) * np.sqrt(coordinates.privacy) / sigma
    args = forms.arguments(scaled) | {"draws": draws, "law": multipliers, "seed": public_seed}
    if multipliers == "gaussian":
        args["multiplier_bound"] = GAUSSIAN_BOUND
        factor /= math.sqrt(residual_moments(GAUSSIAN_BOUND)[1])
    rest = (1.0 - 2.0 * VARIANCE_SHARE) * rho
    values, selection, sd = _maxima(sums, args, offset, factor / math.sqrt(sums.n), rest)
    inflation = float(np.max(sigma / np.sqrt(coordinates.variance)))
    return PrivateDraws(
        values=tuple(values.tolist()),
        selection_scale=selection,
        value_sd=sd,
        targets=len(sigma),
        inflation=inflation,
        multipliers=multipliers,
    )


def _maxima(
    sums: SparseSums, args: dict[str, Any], offset: Floats, factor: float, rho: float
) -> tuple[Floats, float, float]:
    """Return the released maxima of |offset + factor x sum|, the scale of selections and the sd of values."""
    label = Labels.BOOTSTRAP_DRAWS
    server = cast(Any, sums.server)
    if offset.shape[1] == 1:
        noisy = sums.release(Statistics.MULTIPLIER_SCORES, args, rho, label)
        return np.abs(offset + factor * noisy.values)[:, 0], 0.0, factor * noisy.scale
    top = server.top_k(
        Statistics.MULTIPLIER_SCORES,
        args,
        1,
        label=label,
        rho=rho / len(offset),
        values=True,
        candidates=None,
        sites=sums.sites,
        offset=offset,
        factor=factor,
        values_share=VALUES_SHARE,
    )
    return np.abs(top.values[:, 0]), float(top.scale), float(top.values_sd)
