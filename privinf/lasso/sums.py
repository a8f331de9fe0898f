r"""Sums that linear and logistic sparse fits request from a server, in units of the columns' typical sizes.

**Dropped rows** (``missing="drop"``). A row that lacks a value adds zero to every sum, and the number N
of complete rows is private. `SparseSums.count_complete` releases it first, for a share of the budget: N +
e, whose noise e has the sd ``s_N = 1 / sqrt(2 rho_N)``. From then on its estimate N^ has the place of n
wherever n counts rows:

- means are sums over N^, and so are the sds of their noise;
- sampling variances are over N^, and quantiles of counts are shares of N^;
- clips, numbers of neighbors, thresholds, detection limits and the default sparsity are those of N^ rows.

n stays where only public numbers are known, before the first release, and in delta. Neither number enters
a sensitivity or the noise of a sum.

*Effect of e.* Write d = N^/N - 1; its sd is ``s_N / N``. Every mean is that of the complete rows over 1 +
d, all with the same d.

1. **Coefficients.** A debiased coordinate is ``b0 + s / kappa`` with score and slope (or secant matrix)
   of the same rows, so 1 + d cancels. b0 solves E[v psi(r)] = 0, which has no 1 + d in it. d only changes
   the units of columns by d/2, and the length of a step by d, which later steps correct.
2. **Standard errors.** ``v / (N^ kappa^2)`` is a sum of squares over the square of a sum, and the noise
   term is an sd over a sum, so 1 + d cancels in both. The error of a refit, ``q sigma^2 / N^``, is off by
   the factor 1 - d; it matters for the noise of nodewise regressions alone.
3. **The test for omitted columns** divides a mean by the root of ``v / N^`` plus squared sds of noise.
   Again 1 + d cancels, but for ``kappa^2 N_l``, a small part of the variance.
4. **Centers** m become m / (1 + d), off by -d m. The error of a center matters as its product with that
   of the residuals' mean. Sds of means include ``m s_N / N``.
5. **Numbers that are one mean**, as the variance of the errors and the restricted eigenvalues, are off by
   d: their sds include ``s_N / N`` times the mean (`SparseSums.with_count`).
6. **Fits by site** divide a site's score by slopes that are averaged over sites. The step is off by the
   difference of d between sites, and the sd of the slope includes it.

With n in the place of N^ these ratios would be the same. But the 68% point of the residuals would be no
size of theirs: where a third and more of the rows are incomplete, noisy counts never reach 68% of n.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

import numpy as np

from privinf.completeness import CompleteRows
from privinf.errors import NotAvailableError
from privinf.federation import NoisyGram
from privinf.federation.planned import site_number
from privinf.lasso.precision import standing_out, steadied
from privinf.lasso.radii import UNCLIPPED, ResidualSizes, Weights, mean_of_clipped, scale_of_squares
from privinf.lasso.rows import SparseUnits
from privinf.typing import Flags, Floats, Integers, PlainValue
from privinf.wire import Labels, Statistics

Sites: TypeAlias = Sequence[str] | None

ROOM = 1.0 + 1e-9  # factor of a bound, so that rows at their bound are not cut by rounding
SMALLEST_SIZE = 0.05  # least released size of a column, relative to the declared one
CELLS_PER_OCTAVE = 4  # cells of the histogram of residuals for each factor of 2
OCTAVES = 14  # factors of 2 that the histogram goes down from the largest residual
MEAN_ROOM = 1.5  # rows are shrunk to this many times sqrt k for their means
RESIDUAL_ROOM = 4.0  # residuals are clipped here for their mean, in units of their scale


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Score:
    """A clipped score: u = T'x_A shrunk to `norm`, times the residual of a sparse fit clipped at `residual`.

    Attributes
    ----------
    columns : sequence of int
        A.
    transform : ndarray, shape (size of A, m)
        T.
    norm, residual : float
        C and R; infinite where nothing is noised.
    support, beta
        The sparse fit.
    """

    columns: Sequence[int]
    transform: Floats
    norm: float
    residual: float
    support: Sequence[int]
    beta: Floats


class HiddenByNoise(NotAvailableError):
    """The noise hides a paid release. Fits catch this error and return their other releases with its text."""


class SparseServer(Protocol):
    """The releases that the engines need; `privinf.federation.TrustedServer` makes them."""

    def vector_sum(
        self, op: str, args: Mapping[str, Any], *, label: str, rho: float | None, sites: Sites
    ) -> Any:
        """Release a vector with Gaussian noise."""

    def gram(self, args: Mapping[str, Any], *, label: str, rho: float | None, sites: Sites) -> Any:
        """Release a symmetric matrix."""

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
    ) -> Any:
        """Release positions of the largest entries."""


@dataclass(slots=True, kw_only=True)
class SparseSums:
    """Releases over some sites' rows, each with its price in zCDP.

    Attributes
    ----------
    server : SparseServer
    units : SparseUnits
    n : int
        Number of rows summed; where incomplete rows are dropped, the estimated number of complete records.
    sites : tuple of str or None
        Only these sites' rows.
    response : int or None
        This column replaces the response in residuals: the sums are then those of its regression on other
        columns.
    centered : bool
        Whether columns are centered at released means as they come into play, as a constant would do.
    sizes : list of ResidualSizes
        Released sizes of residuals, in order: the response's first.
    center_sd : dict of int to float
        Sds of the noise of released centers, in units of the columns.
    mean_sd : ndarray, shape (p,), or float
        Of the means of all columns, in the user's units; 0 where none were released.
    complete : CompleteRows or None
        The estimated number of complete rows, where the others are dropped.
    constants : dict of str to float
        By site: what is added to the constant at its rows, in steps, selections and sizes of residuals.

    Notes
    -----
    **Privacy.** Everything returned is a release; prices are the caller's.
    """

    server: SparseServer
    units: SparseUnits
    n: int
    sites: tuple[str, ...] | None = None
    response: int | None = None
    centered: bool = False
    sizes: list[ResidualSizes] = field(default_factory=list)
    center_sd: dict[int, float] = field(default_factory=dict)
    mean_sd: Floats | float = 0.0
    complete: CompleteRows | None = None
    constants: dict[str, float] = field(default_factory=dict)

    def count_complete(self, rho: float) -> CompleteRows:
        """Release the number of complete rows; its estimate, which is returned, now has the place of n."""
        release = self.release(Statistics.COMPLETE_ROWS, {}, rho, Labels.COMPLETE_ROWS)
        complete = CompleteRows.from_sum(float(release.values[0]), float(release.scale), self.n, 1)
        self.counted(complete)
        return complete

    def counted(self, complete: CompleteRows) -> None:
        """Use an estimated number of complete rows in the place of n from now on."""
        self.complete = complete
        self.n = complete.rows

    @property
    def count_error(self) -> float:
        """Relative error of the number of complete rows, an sd; 0 where no rows are dropped."""
        return 0.0 if self.complete is None else self.complete.sd / self.complete.rows

    def with_count(self, sd: float, value: float) -> float:
        """Return the sd of the noise of a mean with that of the number of complete rows."""
        return math.hypot(sd, value * self.count_error)

    def _mean_sd(self, noisy: Any) -> Floats | float:
        """Return the sd of the noise of means, each with that of the number of complete rows."""
        if self.complete is None:
            return float(noisy.mean_sd)
        return np.asarray(np.hypot(noisy.mean_sd, noisy.mean * self.count_error), dtype=np.float64)

    @property
    def through_middle(self) -> bool:
        """Whether columns stay at the middle of their bounds."""
        return not self.centered and isinstance(self.mean_sd, float)

    def all_but(self, columns: Sequence[int]) -> Flags:
        """Return flags of all columns but these, shape (p,)."""
        flags = np.ones(len(self.units.scale), dtype=bool)
        flags[list(columns)] = False
        return flags

    def possible_neighbors(self, targets: Sequence[int], excluded: Sequence[int]) -> Flags:
        """Return which columns may be neighbors of k targets, shape (k, p)."""
        flags = np.tile(self.all_but(excluded), (len(targets), 1))
        flags[np.arange(len(targets)), list(targets)] = False
        return flags

    def args(self, support: Sequence[int], beta: Floats, **extra: PlainValue) -> dict[str, Any]:
        """Return the arguments of a statistic of the residuals of a sparse fit."""
        residual = {"support": np.asarray(support, dtype=np.int64), "beta": beta} if len(support) else {}
        units = self.units
        place = {"intercept": units.intercept} if self.response is None else {"response": self.response}
        return {"center": units.center, "scale": units.scale, **place, **residual, **extra}

    def release(self, op: str, args: Mapping[str, Any], rho: float, label: str) -> Any:
        """Release a vector of these sites at a price; its mean is over the complete rows."""
        release = self.server.vector_sum(op, args, label=label, rho=rho, sites=self.sites)
        return release if self.complete is None else replace(release, rows=self.n)

    def residual_scale(self, support: Sequence[int], beta: Floats, rho: float, label: str) -> float:
        """Return the unit in which residuals are clipped, from a noisy histogram on a public geometric grid.

        An sd if they are normal; see `ResidualSizes.scale`. For a column in place of the response, it is the
        68% point.
        """
        units = self.units
        top = 2.0 * (units.y_max_abs if self.response is None else float(units.max_abs[self.response]))
        edges = top * 2.0 ** (-np.arange(OCTAVES * CELLS_PER_OCTAVE, -1, -1) / CELLS_PER_OCTAVE)
        counts = self.release(
            Statistics.RESIDUAL_HISTOGRAM,
            _with_constants(self.args(support, beta, edges=edges), self.constants),
            rho,
            label,
        )
        sizes = ResidualSizes.from_counts(counts, edges, 0.0 if self.complete is None else self.complete.sd)
        if self.response is not None:
            return sizes.middle
        self.sizes.append(sizes)
        return sizes.scale

    def center(self, rho: float, fixed: Sequence[int] = ()) -> None:
        """Release the means of the columns but the `fixed`, and center there."""
        units = self.units
        moved = np.setdiff1d(np.arange(len(units.scale)), fixed)
        bound = float(units.max_abs[moved].max())
        noisy = self.release(
            Statistics.COLUMN_SUMS,
            self.args((), np.empty(0), columns=moved, bound=bound),
            rho,
            Labels.MEANS_OF_COLUMNS,
        )
        units.move(moved, np.clip(noisy.mean, -units.max_abs[moved], units.max_abs[moved]))
        sd = np.full(len(units.scale), float(noisy.mean_sd))
        sd[moved] = self._mean_sd(noisy)
        self.mean_sd = sd * units.scale

    def center_again(self, rho: float, columns: Integers) -> None:
        """Release the means of columns in units of their sizes, where rows are shorter; center there."""
        noisy = self._shrunk_means(columns, rho, Labels.MEANS_OF_COLUMNS_AGAIN)
        self.units.move(columns, noisy.mean)
        sd = np.broadcast_to(self.mean_sd, self.units.scale.shape).copy()
        sd[columns] = self._mean_sd(noisy) * self.units.scale[columns]
        self.mean_sd = sd

    def center_residual(
        self, support: Sequence[int], beta: Floats, bound: float, rho: float, label: str
    ) -> float:
        """Release the mean of residuals clipped at `bound`, center there, and return the size of the rest.

        A mean within its noise is shrunk toward zero, so that noise does not move the residuals. The rest is
        the noise and the part of the mean that was taken for noise.
        """
        mean, sd = self.residual_mean(support, beta, bound, rho, label)
        shift = float(standing_out(np.array([mean]), sd)[0])
        self.move_constant(shift)
        left = math.hypot(sd, mean - shift)
        return self.with_count(left, shift)

    def residual_mean(
        self, support: Sequence[int], beta: Floats, bound: float, rho: float, label: str
    ) -> tuple[float, float]:
        """Return the mean of residuals clipped at `bound`, and the sd of its noise."""
        bound = min(bound, self.units.y_limit) if math.isfinite(rho) else UNCLIPPED
        noisy = self.release(
            Statistics.RESIDUAL_SUM, self.args(support, beta, residual_clip=bound), rho, label
        )
        return float(noisy.mean[0]), float(noisy.mean_sd)

    def move_constant(self, shift: float) -> None:
        """Move the constant of residuals."""
        self.units.intercept += shift
        self.units.y_limit += abs(shift)

    def size_columns(self, columns: Sequence[int], rho: float, clip: float = math.inf) -> None:
        """Release the mean squares of columns not sized before, and take their roots as units.

        Where there is noise, columns are clipped at `clip` declared units before they are squared, and the
        sizes are those of normal columns whose clipped squares have these means, at most `max_abs`. Where
        columns are centered half of the price is for their means.
        """
        new = [j for j in columns if j not in self.units.sized]
        if not new:
            return
        rho = rho / 2.0 if self.centered else rho
        max_abs = self.units.max_abs[new]
        bound = float(max_abs.max())
        clipped = math.isfinite(rho) and clip < bound
        top = clip if clipped else bound
        noisy = self.mean_squares(np.array(new), top, rho)
        lowest = max(SMALLEST_SIZE**2, 2.0 * noisy.mean_sd)
        mean = np.clip(noisy.mean, lowest, top**2)
        sizes = np.sqrt(mean)
        if clipped:
            unclipped = np.array([scale_of_squares(float(square), top) for square in mean])
            sizes = np.where(sizes > top / 4.0, np.minimum(unclipped, max_abs), sizes)
        self.units.rescale(new, sizes)
        self.units.sized.update(new)
        if self.centered:
            self._center_sized(np.array(new), rho)

    def size_together(self, columns: Integers, rho: float) -> None:
        """Release the mean squares of columns not sized before; their roots, steadied, become units."""
        units = self.units
        new = np.array([j for j in columns if j not in units.sized], dtype=np.int64)
        if not len(new):
            return
        bound = float(units.max_abs[new].max())
        noisy = self.mean_squares(new, bound, rho)
        squares = steadied(noisy.mean, noisy.mean_sd)
        sizes = np.sqrt(np.clip(squares, SMALLEST_SIZE**2, bound**2))
        units.rescale(new, sizes)
        units.sized.update(new.tolist())

    def mean_squares(self, columns: Integers, bound: float, rho: float) -> Any:
        """Release the mean squares of columns that are clipped at `bound`."""
        args = self.args((), np.empty(0), columns=columns, bound=bound)
        return self.release(Statistics.COLUMN_SQUARES, args, rho, Labels.SIZES_OF_COLUMNS)

    def _center_sized(self, columns: Integers, rho: float) -> None:
        """Release the means of columns in units of their root mean squares, and center and scale again."""
        noisy = self._shrunk_means(columns, rho, Labels.MEANS_IN_PLAY)
        shift = np.clip(standing_out(noisy.mean, noisy.mean_sd), -1.0, 1.0)
        self.units.move(columns, shift)
        root = np.sqrt(np.maximum(1.0 - shift**2, SMALLEST_SIZE**2))
        self.units.rescale(columns, root)
        sds = self._mean_sd(noisy) / root
        self.center_sd |= dict(zip(columns.tolist(), sds.tolist(), strict=True))

    def _shrunk_means(self, columns: Integers, rho: float, label: str) -> Any:
        max_abs = float(np.linalg.norm(self.units.max_abs[columns]))
        norm = max_abs if math.isinf(rho) else min(max_abs, MEAN_ROOM * math.sqrt(len(columns)))
        return self.release(
            Statistics.SHRUNK_SUMS, self.args((), np.empty(0), columns=columns, norm=ROOM * norm), rho, label
        )

    def select(
        self,
        support: Sequence[int],
        beta: Floats,
        bound: float,
        k: int,
        allowed: Flags,
        rho: float,
        label: str,
    ) -> list[int]:
        """Return the k columns whose clipped products with the residuals have the largest sums."""
        selections = self.server.top_k(
            Statistics.CLIPPED_PRODUCTS,
            _with_constants(self.args(support, beta, bound=bound), self.constants),
            k,
            rho=rho,
            values=False,
            candidates=allowed,
            label=label,
            sites=self.sites,
        )
        return [int(j) for j in selections.support]

    def neighbors(
        self,
        targets: Sequence[int],
        k: int,
        allowed: Flags,
        rho: float,
        bound: float = 1.0,
        transform: Floats | None = None,
    ) -> list[list[int]]:
        """Return for every target the k columns that are most correlated with it, clipped at `bound`.

        Or for every form T'x of the targets, with `transform` T.
        """
        forms = {} if transform is None else {"transform": transform}
        rows = len(allowed)
        selections = self.server.top_k(
            Statistics.COLUMN_PRODUCTS,
            self.args((), np.empty(0), targets=np.asarray(targets), bound=bound, **forms),
            k,
            rho=rho / rows,
            values=False,
            candidates=allowed,
            label=Labels.NEIGHBOURS,
            sites=self.sites,
        )
        return [[int(j) for j in row] for row in selections.support]

    def gram(
        self,
        columns: Sequence[int],
        norm: float,
        rho: float,
        label: str,
        bound: float = math.inf,
        transform: Floats | None = None,
    ) -> tuple[Floats, float]:
        """Return the noisy mean Gram matrix of vectors shrunk to `norm`, and the sd of its diagonal.

        The vectors are columns, or forms T'x of them with `transform` T. Where there is noise, their entries
        are clipped at `bound` before that.
        """
        largest = self.units.max_abs[list(columns)]
        max_abs = float((largest if transform is None else largest @ np.abs(transform)).max())
        max_abs = max_abs if math.isinf(rho) else min(max_abs, bound, norm)
        clip: dict[str, PlainValue] = {"norm": min(norm, UNCLIPPED), "bound": max_abs}
        if transform is not None:
            clip["transform"] = transform
        noisy = self.server.gram(
            self.args((), np.empty(0), columns=np.asarray(columns), **clip),
            label=label,
            rho=rho,
            sites=self.sites,
        )
        noisy = noisy if self.complete is None else replace(noisy, rows=self.n)
        return noisy.mean, float(noisy.scale / noisy.rows)

    def score(
        self, score: Score, rho: float, label: str, op: str = Statistics.CLIPPED_SCORE
    ) -> tuple[Floats, float]:
        """Return the mean of a clipped score, or of another statistic of it, and the sd of its noise."""
        noisy = self.release(op, _with_constants(self._of(score), self.constants), rho, label)
        return noisy.mean, noisy.mean_sd

    def slopes(self, score: Score, targets: Sequence[int], norm: float, rho: float) -> tuple[Floats, float]:
        """Return the mean slopes of a score at its targets and the sd of their noise."""
        clips = {"column_clip": float(self.units.max_abs[list(targets)].max()), "norm": min(norm, UNCLIPPED)}
        noisy = self.release(
            Statistics.SLOPES,
            self._of(score) | {"targets": np.asarray(targets)} | clips,
            rho,
            Labels.SLOPES_OF_SCORES,
        )
        return noisy.mean, noisy.mean_sd

    def variances(self, score: Score, rho: float) -> tuple[Floats, float]:
        """Return the mean squares of the entries of a clipped score, and the sd of their noise."""
        return self.score(score, rho, Labels.VARIANCES_OF_SCORES, Statistics.SCORE_VARIANCES)

    def target_scores(
        self,
        score: Score,
        targets: Sequence[int],
        rho: float,
        label: str = Labels.DEBIASING_SCORES_AND_SQUARES,
        **more: PlainValue,
    ) -> tuple[Floats, float]:
        """Return means of scores that are clipped as products, squares, slopes, and the sd of their noise.

        `score.residual` clips the products, and `more` are the other arguments; see
        `privinf.mechanisms.statistics.scores`.
        """
        args = self.args(
            score.support,
            score.beta,
            columns=np.asarray(score.columns),
            transform=score.transform,
            bound=min(score.residual, UNCLIPPED),
            targets=np.asarray(targets),
            **more,
        )
        noisy = self.release(Statistics.TARGET_SCORES, args, rho, label)
        return noisy.mean, noisy.mean_sd

    def squared_residual(
        self, support: Sequence[int], beta: Floats, bound: float, rho: float, label: str
    ) -> float:
        """Return the mean square of residuals that are clipped at `bound`."""
        args = self.args(support, beta, residual_clip=min(bound, UNCLIPPED))
        noisy = self.release(Statistics.SQUARED_RESIDUALS, args, rho, label)
        return float(noisy.mean[0])

    def _of(self, score: Score) -> dict[str, Any]:
        return self.args(
            score.support,
            score.beta,
            columns=np.asarray(score.columns),
            transform=score.transform,
            clip=min(score.norm, UNCLIPPED),
            residual_clip=min(score.residual, UNCLIPPED),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """A sparse logistic model in units of the columns' sizes: eta = intercept + x_S'beta."""

    support: list[int]
    beta: Floats
    intercept: float

    def on(self, columns: Sequence[int]) -> Floats:
        """Return the coefficients of some columns, those of the support among them."""
        values = dict(zip(self.support, self.beta, strict=True))
        return np.array([values.get(j, 0.0) for j in columns])

    def joined(self, columns: Sequence[int]) -> Point:
        """Return the same model with more columns, whose coefficients are 0."""
        beta = np.append(self.beta, np.zeros(len(columns)))
        return Point([*self.support, *columns], beta, self.intercept)

    @property
    def all_coefficients(self) -> Floats:
        """Intercept and coefficients."""
        return np.append(self.intercept, self.beta)


@dataclass(frozen=True, slots=True, eq=False)
class Directions:
    """v = T'(1, x_A): T has the shape (1 + size of A, k), the constant's row first."""

    columns: Sequence[int]
    matrix: Floats

    @property
    def size(self) -> int:
        """Number of directions."""
        return int(self.matrix.shape[1])


@dataclass(frozen=True, slots=True, eq=False)
class NoisyMean:
    """A mean over records and the sd of its noise (of a matrix's diagonal)."""

    mean: Floats
    sd: float


@dataclass(frozen=True, slots=True, eq=False)
class LogisticSums:
    """Releases over all rows, each with its price in zCDP.

    Attributes
    ----------
    sparse : SparseSums
        Units of the columns, their sizes and neighbors.

    Notes
    -----
    **Privacy.** Everything returned is a release; prices are the caller's.
    """

    sparse: SparseSums

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.sparse.n

    def rate(self, rho: float) -> NoisyMean:
        """Return the mean of the response."""
        release = self.sparse.release(
            Statistics.RESIDUAL_SUM, {"intercept": 0.5, "residual_clip": 0.5}, rho, Labels.MEAN_RESPONSE
        )
        return NoisyMean(release.mean + 0.5, release.mean_sd)

    def select(
        self, at: Point, bound: float, k: int, allowed: Flags, rho: float, label: str = Labels.SELECTION
    ) -> tuple[list[int], float]:
        """Return the k columns whose products with residuals have the largest sums, and the noise's scale."""
        args = self._query_args(bound=bound, intercept=at.intercept)
        if at.support:
            args |= {"support": np.asarray(at.support, dtype=np.int64), "beta": at.beta}
        selections = self.sparse.server.top_k(
            Statistics.LOGISTIC_PRODUCTS,
            args,
            k,
            rho=rho,
            values=False,
            candidates=allowed,
            label=label,
            sites=self.sparse.sites,
        )
        return [int(j) for j in selections.support], float(selections.scale)

    def score(self, at: Point, along: Directions, weights: Weights, rho: float, label: str) -> NoisyMean:
        """Return the mean of w v e."""
        args = self._at(at, along, weights, high=weights.score)
        release = self.sparse.release(Statistics.CURVED_SCORE, args, rho, label)
        return NoisyMean(release.mean, release.mean_sd)

    def meat(self, at: Point, along: Directions, weights: Weights, rho: float) -> NoisyMean:
        """Return the mean of w^2 e^2 v v'."""
        args = self._at(at, along, weights, high=weights.score)
        release = self.sparse.release(Statistics.CURVED_MEAT, args, rho, Labels.SQUARES_OF_SCORES)
        return NoisyMean(NoisyGram.from_sum(release).mean, release.mean_sd)

    def secant(
        self, at: Point, along: Directions, weights: Weights, step: Floats, rho: float, label: str
    ) -> NoisyMean:
        """Return the mean of w g v v', g the slope of the mean between eta and eta + v'step, at most K."""
        args = self._at(at, along, weights, step=step, clip=weights.curvature)
        release = self.sparse.release(Statistics.CURVED_SECANT, args, rho, label)
        return NoisyMean(NoisyGram.from_sum(release).mean, release.mean_sd)

    def hessian(self, at: Point, along: Directions, top: float, rho: float, label: str) -> NoisyMean:
        """Return the mean of w c v v' for weights w = min(1, K / k) alone."""
        return self.secant(at, along, Weights(UNCLIPPED, top), np.zeros(along.size), rho, label)

    def _at(self, at: Point, along: Directions, weights: Weights, **extra: PlainValue) -> dict[str, Any]:
        columns = np.asarray(along.columns, dtype=np.int64)
        return self._query_args(
            family="binomial",
            columns=columns,
            theta=at.on(along.columns),
            intercept=at.intercept,
            transform=along.matrix[1:],
            offset=along.matrix[0],
            score_bound=weights.score,
            curvature_bound=weights.curvature,
            **extra,
        )

    def _query_args(self, **args: PlainValue) -> dict[str, Any]:
        units = self.sparse.units
        return {"center": units.center, "scale": units.scale, **args}


def released_form_means(
    sums: SparseSums, columns: Sequence[int], transform: Floats, bound: float, rho: float
) -> tuple[Floats, Floats]:
    """Return the means of k forms T'x_A, each clipped at `bound`, and the sds of their noise, (k,)."""
    args = sums.args(
        (),
        np.empty(0),
        columns=np.asarray(columns),
        transform=transform,
        clip=bound if math.isfinite(rho) else UNCLIPPED,
    )
    noisy = sums.release(Statistics.FORM_SUMS, args, rho, Labels.MEANS_OF_FORMS)
    return noisy.mean, np.broadcast_to(sums._mean_sd(noisy), noisy.mean.shape)


def released_column_means(
    sums: SparseSums, columns: Integers, rho: float, bound: float | None
) -> tuple[Floats, Floats]:
    """Return the means of columns, in their units, and the sds of their noise; nothing moves.

    With a bound every column is clipped, so that m of p means cost m / p of all, and the means are those
    of normal columns of size 1 whose clipped values have the released means. Without one, rows are
    shrunk: then a few means can cost as much as all.
    """
    label = Labels.MEANS_OF_COLUMNS_OF_SITE
    if bound is None or math.isinf(rho):
        noisy = sums._shrunk_means(columns, rho, label)
        return noisy.mean, np.broadcast_to(sums._mean_sd(noisy), noisy.mean.shape)
    args = sums.args((), np.empty(0), columns=columns, bound=bound)
    noisy = sums.release(Statistics.COLUMN_SUMS, args, rho, label)
    means, slopes = mean_of_clipped(noisy.mean, bound)
    return means, sums._mean_sd(noisy) / slopes


def _with_constants(args: dict[str, Any], constants: Mapping[str, float]) -> dict[str, Any]:
    """Return the arguments of a statistic of residuals with the constants of the sites."""
    if not constants:
        return args
    numbers = np.array([site_number(name) for name in constants], dtype=np.int64)
    return {**args, "streams": numbers, "intercepts": np.array(list(constants.values()))}
