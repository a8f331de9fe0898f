r"""Selection of columns without sums without noise: one Gaussian release of the full vector of products.

Peeling compares sums without noise at a trusted server. A secure sum reveals only the noisy total, so the
full vector is released and the largest of its released entries are selected, for any number of selections at
one price. All other releases of a sparse regression are Gaussian sums already: with a `VectorServer` the
engines run on secure sums unchanged.

**The vector.** With residuals r of scale sigma a record adds f = (x_j r)_j, shrunk to |f| <= C. Its entries
have a size of sigma in units of the columns, so |f| is about sigma sqrt p: C = R sigma sqrt p. (To clip
entries as well, as for peeling, would cost a tenth of their slope: it is done only where there is no noise,
so that the selections are those of peeling.) The release has the l2 sensitivity 2C, hence for the price rho
noise of sd ``2 C / sqrt(2 rho)`` on every sum. For normal r the shrunk product has the slope A1(R) in the
covariance of x_j and r and the second moment A2(R) sigma^2, and an entry, divided by its slope, the variance

    sigma^2 / n  [A2(R) + 4 R^2 p / (2 rho n)] / A1(R)^2                        (variance of an entry)

of which R is the minimizer. Peeling has p = 1 in it, but pays for every selection, and its lambda is 2B: the
price of doing without a trusted server is a noise that grows as sqrt p, and it is paid in the selections
alone. Columns of targets are correlated with all others likewise, m p products at a time.

**Logistic fits.** A record adds clip(x_j, B / q) e, as for peeling: the clip is a function of x alone, so
that a column without effect has the mean zero however rare the response is. Shrinking by the length of x e
would not leave that. Every entry is in [-B, B], so the l2 sensitivity of the vector is 2 B sqrt p. At a rate
m with s^2 = m (1 - m), columns are clipped at c = B / max(m, 1 - m); with B1(c) = P(|x| < c) and B2(c) =
E clip(x, c)^2 of normal columns an entry divided by its slope has the variance

    [s^2 B2(c) / n + 4 B^2 p / (2 rho n^2)] / B1(c)^2                 (variance of a logistic entry)

of which c is the minimizer on the same grid.

**Detection limit.** Of p entries that are noise the largest is about sqrt(2 log p) sds from 0. A covariance
is detected, except with probability 5% each for larger noise elsewhere and for its own noise, from ``(z(.05 /
2p) + z(0.05)) sd`` on.

**Detection limit of peeling.** An effect of z standard errors (those without privacy) moves the clipped sum
by z sqrt(n) times a slope. Peeling with Gumbel noise of scale g takes it before m columns that are noise of
sd h if it exceeds g times the logarithm of their sum of exponentials (a random energy model),

    L = g log 2m + h^2 / (2 g)   for g > h / sqrt(2 log 2m), else h sqrt(2 log 2m),

by a logistic number of scale g and its own spread h, about L + z_q sqrt(h^2 + g^2 pi^2 / 3) with probability
q; B minimizes the z that this needs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from privinf.errors import NotAvailableError
from privinf.federation import SecureServer
from privinf.inference.estimate import upper_quantile
from privinf.lasso.radii import UNCLIPPED, norm_moments, product_moments, residual_moments
from privinf.lasso.rows import LassoRows
from privinf.lasso.sums import ROOM, Sites, SparseServer
from privinf.typing import Flags, Floats, Integers
from privinf.wire import Statistics

VECTORS = {
    Statistics.LOGISTIC_PRODUCTS: Statistics.LOGISTIC_PRODUCTS,
    Statistics.CLIPPED_PRODUCTS: Statistics.PRODUCT_VECTOR,
    Statistics.COLUMN_PRODUCTS: Statistics.COLUMN_PRODUCT_VECTOR,
}
# R is sought on a grid: the variance is flat around its minimum, and all but constant below the least.
RADII = np.geomspace(0.1, 4.0, 48)
MISSED = 0.05  # chance in `detectable_sds` that larger noise elsewhere, or an entry's own, hides a signal
# Probability with which the smallest effect that is stated as detected is detected.
DETECTION_PROBABILITY = 0.8
# Grid of clips for the selection of one column, in units of the residuals.
SELECTION_CLIPS = np.geomspace(0.1, 2.0, 24)
NOISELESS_CLIP = 1.5  # where products are clipped without noise, in the same units


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionRelease:
    """One release of products with all columns.

    Attributes
    ----------
    label : str
    entries : int
        Numbers released.
    radius : float
        R; infinite without noise.
    sd : float
        Of an entry divided by its slope, sampling error included: a covariance with the residual, in units
        of y per unit of the column, or a correlation.
    sampling_sd : float
        Without the noise.
    found_from : float
        Detection limit of such a number, see the module.
    """

    label: str
    entries: int
    radius: float
    sd: float
    sampling_sd: float
    found_from: float


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """Positions of the largest released entries, shape (k,) or (rows, k); there is no noise but theirs."""

    support: Integers
    scale: float = 0.0


def vector_radius(entries: int, rows: int, n: int, rho: float) -> float:
    """Return R, which minimizes the variance of an entry.

    Parameters
    ----------
    entries : int
        Numbers in the vector.
    rows : int
        Its targets; 1 for products with a residual.
    n : int
        Records.
    rho : float
        Price, zCDP; infinite for no noise.

    Notes
    -----
    **Privacy.** A function of public numbers.

    Examples
    --------
    >>> round(vector_radius(800, 1, 60_000, 0.01), 2)
    0.22
    """
    if math.isinf(rho):
        return math.inf
    noise = [2.0 * float(radius) * math.sqrt(entries / (2.0 * rho)) / n for radius in RADII]
    sizes = [entry_sd(float(radius), rows, n, sd) for radius, sd in zip(RADII, noise, strict=True)]
    return float(RADII[int(np.argmin(sizes))])


def entry_sd(radius: float, rows: int, n: int, noise_sd: float) -> float:
    """Return the sd of an entry's mean divided by its slope, the residuals' scale as unit.

    `rows` targets, n records; `noise_sd` is that of the noise of the mean.
    """
    slope, square = norm_moments(radius * math.sqrt(rows), rows)
    return math.sqrt(square / n + noise_sd**2) / slope


def logistic_radius(columns: int, n: int, rho: float, sd: float, largest: float) -> float:
    """Return where columns are clipped in a logistic selection: c, which minimizes the variance of an entry.

    Parameters
    ----------
    columns : int
        Numbers in the vector.
    n : int
        Records.
    rho : float
        Price, zCDP; infinite for no noise.
    sd : float
        Sd of the response.
    largest : float
        The larger one of its rate and one minus its rate.

    Notes
    -----
    **Privacy.** A function of public numbers.

    Examples
    --------
    >>> round(logistic_radius(100, 20_000, 0.01, 0.5, 0.5), 2)
    0.44
    """
    if math.isinf(rho):
        return math.inf
    noise = 2.0 * largest * math.sqrt(columns / (2.0 * rho)) / n
    sizes = [logistic_entry_sd(float(c), n, sd, noise * float(c)) for c in RADII]
    return float(RADII[int(np.argmin(sizes))])


def logistic_entry_sd(clip: float, n: int, sd: float, noise_sd: float) -> float:
    """Return the sd of an entry's mean divided by its slope: an error of the covariance of x_j and e."""
    slope, square = residual_moments(clip)
    return math.sqrt(sd**2 * square / n + noise_sd**2) / slope


@dataclass(slots=True, kw_only=True)
class VectorServer:
    """Releases for the engines by a server that never has an un-noised sum.

    Attributes
    ----------
    server : SparseServer
        Such as `privinf.federation.SecureServer`.
    n : int
        Records; where incomplete ones are dropped, the estimated number of complete records.
    low, high : ndarray, shape (p,)
        Public bounds of the columns.
    response : float
        Largest size of the response.
    clip : float
        Clip of the products of an engine, in units of the residuals' scale.
    releases : list of SelectionRelease
        Releases of previous selections.

    Notes
    -----
    **Privacy.** Every vector is one Gaussian release at the price that peeling would have had.
    """

    server: SparseServer
    n: int
    low: Floats
    high: Floats
    response: float
    clip: float
    releases: list[SelectionRelease] = field(default_factory=list)

    def vector_sum(
        self, op: str, args: Mapping[str, Any], *, label: str, rho: float | None, sites: Sites
    ) -> Any:
        """Release a vector with Gaussian noise."""
        return self.server.vector_sum(op, self._bounded(args), label=label, rho=rho, sites=sites)

    def gram(self, args: Mapping[str, Any], *, label: str, rho: float | None, sites: Sites) -> Any:
        """Release a symmetric matrix."""
        return self.server.gram(args, label=label, rho=rho, sites=sites)

    def top_k(
        self,
        op: str,
        args: Mapping[str, Any],
        k: int,
        *,
        label: str,
        rho: float | None,
        values: bool,
        candidates: Flags | None,
        sites: Sites,
    ) -> Selection:
        """Release the products with all columns, and return the positions of the k largest candidates.

        Parameters and prices as for peeling: `rho` is that of each row.

        Raises
        ------
        NotAvailableError
            The statistic has no vector of bounded length, or values are requested.
        """
        if op not in VECTORS or values or rho is None or candidates is None:
            raise NotAvailableError(
                f"statistic {op!r} requires a trusted server or curator, which selects columns from sums "
                "without noise: pass trust='server' or trust='central'"
            )
        if op == Statistics.LOGISTIC_PRODUCTS:
            return self._largest_logistic(args, k, label=label, rho=rho, candidates=candidates, sites=sites)
        rows, residual = (len(candidates), False) if "targets" in args else (1, True)
        entries = rows * len(self.low)
        price = rows * rho
        radius = vector_radius(entries, rows, self.n, price)
        scale = float(args["bound"]) / self.clip if residual else 1.0
        clips = self._clips(args, radius * scale * math.sqrt(entries), entries, residual)
        noisy = self.server.vector_sum(VECTORS[op], {**args, **clips}, label=label, rho=price, sites=sites)
        noise_sd = noisy.scale / self.n
        sd, sampling = (scale * entry_sd(radius, rows, self.n, noise) for noise in (noise_sd / scale, 0.0))
        self.releases.append(
            SelectionRelease(
                label=label,
                entries=entries,
                radius=radius,
                sd=sd,
                sampling_sd=sampling,
                found_from=sd * detectable_sds(len(self.low)),
            )
        )
        sizes = np.where(candidates, np.abs(noisy.values), -np.inf)
        return Selection(np.argsort(-sizes, axis=-1, kind="stable")[..., :k])

    def _largest_logistic(
        self, args: Mapping[str, Any], k: int, *, label: str, rho: float, candidates: Flags, sites: Sites
    ) -> Selection:
        """Release the clipped products of a logistic fit, and return the positions of the k largest.

        The engine's bound is `clip` sds of the response, from which the rate follows.
        """
        columns = len(self.low)
        sd = float(args["bound"]) / self.clip
        largest = (1.0 + math.sqrt(max(1.0 - 4.0 * sd**2, 0.0))) / 2.0
        radius = logistic_radius(columns, self.n, rho, sd, largest)
        bound = float(args["bound"]) if math.isinf(radius) else radius * largest
        noisy = self.server.vector_sum(
            Statistics.LOGISTIC_PRODUCTS, {**args, "bound": bound}, label=label, rho=rho, sites=sites
        )
        clip = bound / largest
        of_noise = noisy.scale / self.n
        self.releases.append(
            SelectionRelease(
                label=label,
                entries=columns,
                radius=radius,
                sd=logistic_entry_sd(clip, self.n, sd, of_noise),
                sampling_sd=logistic_entry_sd(clip, self.n, sd, 0.0),
                found_from=logistic_entry_sd(clip, self.n, sd, of_noise) * detectable_sds(columns),
            )
        )
        sizes = np.where(candidates, np.abs(noisy.values), -np.inf)
        return Selection(np.argsort(-sizes, kind="stable")[:k])

    def _clips(self, args: Mapping[str, Any], norm: float, entries: int, residual: bool) -> dict[str, float]:
        """Return the clips of a vector: of its norm alone, or without noise those of peeling alone."""
        if math.isfinite(norm):
            return {"norm": norm, "bound": UNCLIPPED if residual else float(self._sensitivity(args).max())}
        bound = float(args["bound"])
        return {"norm": ROOM * math.sqrt(entries) * (bound if residual else bound**2), "bound": bound}

    def _bounded(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the arguments with clips at public bounds where there were none: sums need a finite grid."""
        bounded = dict(args)
        if bounded.get("residual_clip", 0.0) >= UNCLIPPED:
            bounded["residual_clip"] = ROOM * self._residual_sensitivity(args)
        if "score_bound" in bounded:
            self._bound_curved(bounded)
        elif bounded.get("clip", 0.0) >= UNCLIPPED:
            max_abs = self._sensitivity(args)[np.asarray(args["columns"])]
            forms = max_abs @ np.abs(args["transform"]) if "transform" in args else max_abs
            bounded["clip"] = ROOM * float(np.linalg.norm(forms))
        return bounded

    def _bound_curved(self, args: dict[str, Any]) -> None:
        """Put the bounds of a logistic sum at the longest v = T'(1, x) where there were none."""
        max_abs = self._sensitivity(args)[np.asarray(args["columns"])]
        longest = np.abs(args["offset"]) + max_abs @ np.abs(args["transform"])
        length = ROOM * float(np.linalg.norm(longest))
        for name, bound in (
            ("score_bound", length),
            ("high", length),
            ("curvature_bound", length**2 / 4.0),
            ("clip", length**2 / 4.0),
        ):
            if args.get(name, 0.0) >= UNCLIPPED:
                args[name] = bound

    def _sensitivity(self, args: Mapping[str, Any]) -> Floats:
        sizes = np.maximum(np.abs(self.low - args["center"]), np.abs(self.high - args["center"]))
        return np.asarray(sizes / args["scale"])

    def _residual_sensitivity(self, args: Mapping[str, Any]) -> float:
        max_abs = self.response + abs(float(args.get("intercept", 0.0)))
        if "response" in args:
            max_abs = float(self._sensitivity(args)[int(args["response"])])
        if "support" in args:
            max_abs += float(self._sensitivity(args)[np.asarray(args["support"])] @ np.abs(args["beta"]))
        return max_abs


def vector_server(server: SecureServer, rows: LassoRows, clip: float) -> VectorServer:
    """Return the same server with vectors in the place of peeling."""
    design = server.design
    low = rows.center - rows.half
    high = rows.center + rows.half
    assert design.y_low is not None
    assert design.y_high is not None
    largest = max(abs(design.y_low), abs(design.y_high))
    return VectorServer(server=server, n=server.nobs, low=low, high=high, response=largest, clip=clip)


def detectable_sds(columns: int) -> float:
    """Return the number of sds at which an entry is selected before `columns` that are noise."""
    return upper_quantile(MISSED / 2.0 / columns) + upper_quantile(MISSED)


def sharpest(releases: Sequence[SelectionRelease], label: str) -> SelectionRelease | None:
    """Return the most precise release of this label, if there was one."""
    return min(
        (release for release in releases if release.label == label),
        key=lambda release: release.sd,
        default=None,
    )


def selection_clip(n: int, columns: int, rho: float) -> tuple[float, float]:
    """Return where products are clipped for one selection of `columns`, and the z that is then selected.

    Parameters
    ----------
    n : int
        Records.
    columns : int
        That are peeled from.
    rho : float
        Price, zCDP; infinite for no noise.

    Notes
    -----
    **Privacy.** A function of public numbers.

    Examples
    --------
    >>> found = selection_clip(40_000, 300, 0.0008)
    >>> round(found[0], 1), round(found[1], 1)
    (0.9, 5.6)
    """
    if math.isinf(rho):
        return NOISELESS_CLIP, detection_limit(n, columns, 0.0, *product_moments(NOISELESS_CLIP))
    detected = [
        detection_limit(n, columns, 4.0 * bound / math.sqrt(8.0 * rho), *product_moments(bound))
        for bound in SELECTION_CLIPS
    ]
    best = int(np.argmin(detected))
    return float(SELECTION_CLIPS[best]), float(detected[best])


def detection_limit(n: float, columns: int, scale: float, slope: float, square: float) -> float:
    """Return the z that is selected with `DETECTION_PROBABILITY` from sums with such Gumbel noise."""
    spread = math.sqrt(n * square)
    log_count = math.log(2.0 * columns)
    frozen = scale * math.sqrt(2.0 * log_count) <= spread
    largest_other = (
        spread * math.sqrt(2.0 * log_count) if frozen else scale * log_count + spread**2 / (2.0 * scale)
    )
    own_sd = math.hypot(spread, scale * math.pi / math.sqrt(3.0))
    return (largest_other + upper_quantile(1.0 - DETECTION_PROBABILITY) * own_sd) / (slope * math.sqrt(n))


def detectable_correlation(n: int, columns: int, selections: int, rho: float, bound: float) -> float:
    """Return the correlation with a target from which on a column is selected as its neighbor.

    Parameters
    ----------
    n, columns : int
    selections : int
        Neighbors of every target; 0: nothing is sought.
    rho : float
        Price of one target's selections, zCDP.
    bound : float
        Where columns are clipped, in units of their size.

    Notes
    -----
    **Privacy.** A function of public numbers. It holds if no more columns than selections have such a
    correlation.
    """
    if selections < 1:
        return 1.0
    if math.isinf(rho):
        bound = math.inf
        scale = 0.0
    else:
        scale = 4.0 * bound**2 / math.sqrt(8.0 * rho / selections)
    slope, square = residual_moments(bound)
    return min(1.0, detection_limit(n, columns, scale, slope**2, square**2) / math.sqrt(n))
