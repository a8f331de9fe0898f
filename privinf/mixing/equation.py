r"""Corrected least squares on mixed rows: k sums over all people, each with noise (RMGMOLS)."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from privinf.errors import ArgumentError, NotAvailableError
from privinf.inference.estimate import UNATTRIBUTED
from privinf.inference.linear_scores import (
    ScoreDistribution,
    homoskedastic_variance,
    mean_response,
    tensor_forms,
    with_fitted_noise,
)
from privinf.inference.solution import quadratic
from privinf.mixing.rows import (
    EQUATION,
    centered_scatter,
    independent_fit,
    nonnegative,
    normal_meat,
    ones_means,
    residual_square,
    row_tensor,
    row_terms,
    shown_sampling,
)
from privinf.typing import Flags, Floats, SamplingKind
from privinf.validation import check_array, check_count, check_number

# Without noise the means are exact, and the covariance given the people would be singular.
MEAN_FLOOR = 1e-9
NO_FULLER = (
    "Fuller's modification is available only if each released row belongs to one record, not for "
    "random linear combinations of rows: use ridge="
)


class MixedLeastSquares:
    r"""Least squares on ``rows = sqrt(1-a) B D + R``, B a public mixing matrix with columns of norm 1.

    Parameters
    ----------
    X : (k, p) array
        Mixed rows of the regressors. A constant's column holds its public mixture c = sqrt(1-a) B 1.
    y : (k,) array
        Mixed rows of the response.
    noise : (p,) array
        Noise variance of each column of X; 0 for the constant.
    y_noise : float
        Noise variance of y.
    n : int
        Number of people.
    share : float
        a, the share of the all-ones row; 0 without one.
    constant : int, optional
        Position of the constant.
    ones_row, ones_response : (p,) array and float, optional
        The all-ones row, ``sqrt(a) 1'D + noise``; its entry at `constant` is ``sqrt(a) n``. Used where there
        is a constant.
    population : bool, default True
        Whether score tests are of the population's coefficients or of this finite population's.
    disjoint : bool, default False
        Whether every person is in one row ("countsketch").

    Raises
    ------
    ArgumentError
        For shapes that do not match, entries that are not finite, or k <= p.

    Notes
    -----
    Write N = (1-a) n and S for the diagonal of `noise`. Given D, the rows are k draws from (nearly, since
    each is a sum over n people) the normal distribution with covariance ``(1-a) D'D/k + diag(S, tau_y^2)``,
    so

    .. math:: \bar\psi(b) = [X'(y - X b) + k S b] / N

    is unbiased for ``D_x'(d_y - D_x b)/n``: the normal equations of the full private data. With the all-ones
    row r_0 = sqrt(a) n xbar' + noise, every row is centered at first, x - c r_0'/(sqrt(a) n), which adds
    ``kappa = sum c^2/(a n^2)`` noisy rows to k; the intercept solves ``ybar - xbar'b - b_0 = 0``, whose error
    is that of two means (its dependence on the noise of the slopes is of second order).

    The meat has three parts: that of the k rows (mixing error and noise together) by their normal
    distribution, `normal_meat`; the noise of the means; and, for the population, s_e^2 A, with the unequal
    variances that disjoint rows show (`shown_sampling`). t quantiles with k - d degrees of freedom go with it
    (`df`): without noise, given the rows' x, the distribution is exactly theirs. A sandwich of the k rows
    would be short where k is small (k/4 degrees of freedom, not k), and too long for disjoint rows, whose own
    products are not errors.

    **Score test.** With e = y - X b and t = S b, ``X_0 = X + e t' k/(e'e)`` has ``X_0'e = N psibar(b)``, and
    given D its rows are independent of e under the null. So the ordinary F test of e on X_0 is exact for
    Gaussian rows; here as ``T = k R^2 = n psibar' V(b)^-1 psibar``,
    ``V(b) ~ (e'e/k) X'X/k + psibar t' + t psibar' - t t'``, quadratic in (b, 1). For the population the
    sampling part, residual variance times A, is added to V, each with its negative eigenvalues (noise) at 0.

    **Privacy.** A function of the release alone.

    References
    ----------
    Wu et al. (2022), "Differentially private multi-party data release for linear regression": the release.
    The estimator and its inference are ours.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> n, k = 20_000, 400
    >>> x = rng.uniform(-1, 1, (n, 2))
    >>> D = np.column_stack([x, x @ [1.0, -1.0]])
    >>> B = rng.choice([-1.0, 1.0], (k, n)) / np.sqrt(k)
    >>> rows = B @ D + rng.standard_normal((k, 3))
    >>> system = MixedLeastSquares(rows[:, :2], rows[:, 2], [1.0, 1.0], y_noise=1.0, n=n)
    >>> np.round(np.linalg.solve(system.A, system.g), 1)
    array([ 1., -1.])
    """

    cov_type = "mixed rows"
    linear_noise = False
    variance_equation = EQUATION
    least_strength: float | None = None

    def __init__(
        self,
        X: ArrayLike,
        y: ArrayLike,
        noise: ArrayLike,
        *,
        y_noise: float,
        n: int,
        share: float = 0.0,
        constant: int | None = None,
        ones_row: ArrayLike | None = None,
        ones_response: float | None = None,
        population: bool = True,
        disjoint: bool = False,
    ) -> None:
        features = check_array(X, "X", ndim=2)
        response = check_array(y, "y", ndim=1)
        variances = check_array(noise, "noise", ndim=1)
        k, p = features.shape
        if response.shape != (k,) or variances.shape != (p,):
            raise ArgumentError(
                f"X of shape {features.shape}, y of shape {response.shape} and noise of shape "
                f"{variances.shape} do not match: y needs one entry for each row of X, and noise one entry "
                "for each column"
            )
        if (variances < 0.0).any():
            raise ArgumentError("noise= must hold variances, that is numbers of at least 0")
        self._arguments: dict[str, Any] = {
            "X": features,
            "y": response,
            "noise": variances,
            "n": n,
            "share": share,
            "constant": constant,
            "ones_row": ones_row,
            "ones_response": ones_response,
            "population": population,
            "disjoint": disjoint,
        }
        self.n = check_count(n, "n")
        self._effective_n = (1.0 - check_number(share, "share", low=0.0, high=0.99)) * self.n
        self._y_noise = check_number(y_noise, "y_noise", low=0.0)
        self._population = population
        self._disjoint = disjoint
        self.noise_free: Flags = variances == 0.0
        self._means: tuple[Floats, float] | None = None
        self._mean_noise = added = 0.0
        slopes = np.ones(p, dtype=bool)
        if constant is not None and ones_row is not None:
            means, weight = ones_means(ones_row, ones_response, constant, p)
            slopes[constant] = False
            c = features[:, constant]
            features = features - np.outer(c, means[:-1])
            response = response - c * means[-1]
            added = float(c @ c) / weight**2
            self._mean_noise = 1.0 / weight**2
            self._means = means[:-1][slopes], float(means[-1])
        self._slopes = slopes
        self.k = k
        self._constant = -1 if constant is None else constant
        self._X, self._y = features[:, slopes], response
        d = self._X.shape[1]
        if k <= d:
            raise ArgumentError(
                f"{k} random linear combinations of rows cannot identify {d} coefficients: release at "
                f"least {d + 1}"
            )
        self._rows_noise = k + added  # how often the noise of one row is in the Gram matrix
        self._unit = (
            self.n * k / self._effective_n**2
        )  # from the covariance of one row's x e to n times psibar's
        self._noise = variances[slopes]
        self.df = float(k - d)
        self.df_resid = np.inf
        self.distribution = ScoreDistribution(k, d)
        self.A, self.g = self._equations()

    def scores(self, beta: Floats) -> None:
        """Return None: mixed rows are not records, and the means have no scores."""
        return

    def residual_variance(self, beta: Floats) -> float:
        """Return mean (y - x'b)^2 of the people, without noise; it may be negative."""
        slopes, shift = self._split(beta)
        e = self._y - self._X @ slopes
        return float(e @ e - self._rows_noise * self._row_noise(slopes)) / self._effective_n + shift**2

    def squares_with_noise(self, beta: Floats, constant: Floats | None) -> tuple[Floats, Floats]:
        """Return mean squares of residuals and of the response, and the covariance of their noise, (2, 2).

        Noise is here that of mixing too. Residuals of k mixed rows are about normal: with R_ij the sum of
        their products at two vectors of coefficients, R_ii and R_jj have the covariance ``2 R_ij^2 / k``.
        """
        both = [beta, mean_response(self, constant)]
        squares = np.array([self.residual_variance(b) for b in both])
        residuals = np.array([self._y - self._X @ self._split(b)[0] for b in both])
        cov = 2.0 / self.k * (residuals @ residuals.T / self._effective_n) ** 2
        return with_fitted_noise(self, beta, squares, cov)

    def noise_terms(self, beta: Floats) -> dict[str, Floats]:
        """Return the terms of `noise_meat`: `row_terms`, that of the means, and mixing, which is the rest.

        The variance of a row's residual is that of the meat, less what the noise adds to it. Where that
        leaves nothing, the noise hides the people's residuals: mixing is 0, and what the terms then exceed
        the meat by is called unattributed.
        """
        slopes, _ = self._split(beta)
        S = np.diag(self._noise)
        size = self._effective_n / self.k
        common = self._common(slopes)
        square = residual_square(self._X, self._y, slopes, *self._row_moments)
        people = square - self._row_noise(slopes)
        at = row_terms(size, self._gram, max(people, 0.0) / size, S, common, slopes, self._y_noise)
        terms = {name: self._joined(self._unit * term, 0.0) for name, term in at.items()}
        means = self.n * self._row_noise(slopes) * self._mean_noise
        terms["noise of the means"] = self._joined(0.0 * S, means)
        rest = self.noise_meat(beta) - sum(terms.values())
        if people > 0.0:
            return {"mixing": rest, **terms}
        return {"mixing": 0.0 * rest, **terms, UNATTRIBUTED: rest}

    def leaving_out(self, part: int, parts: int) -> MixedLeastSquares:
        """Return the system of the mixed rows but every `parts`-th, scaled as if they were all."""
        keep = np.arange(self.k) % parts != part
        arguments = dict(self._arguments)
        up = math.sqrt(self.k / int(keep.sum()))
        X = arguments.pop("X")[keep] * up
        y = arguments.pop("y")[keep] * up
        noise = arguments.pop("noise") * up**2
        return MixedLeastSquares(X, y, noise, y_noise=self._y_noise * up**2, **arguments)

    def noise_meat(self, beta: Floats) -> Floats:
        """Return the meat of mixing and noise, given the people; shape (p, p)."""
        slopes, _ = self._split(beta)
        floor = MEAN_FLOOR * max(self.residual_variance(beta), 0.0)
        means = self.n * self._row_noise(slopes) * self._mean_noise + floor
        return self._joined(self._row_meat(slopes), means)

    def rows_meat(self, beta: Floats) -> Floats:
        """Return the rows' part of `noise_meat`, which k - d degrees of freedom estimate."""
        return self._joined(self._row_meat(self._split(beta)[0]), 0.0)

    def meat(self, beta: Floats) -> Floats:
        """Return mixing, noise and sampling together."""
        return self.noise_meat(beta) + self._sampling_meat(beta, max(self._variance(beta), 0.0))

    def clean_meat(self, beta: Floats) -> tuple[Floats, SamplingKind]:
        """Return residual variance times A, with the unequal variances that disjoint rows show."""
        return self._sampling_meat(beta, homoskedastic_variance(self, beta)), "homoskedastic"

    def null_meat(self, beta: Floats) -> Floats:
        """Return V(b) of the score test."""
        return quadratic(self._tensor, np.append(beta, 1.0))

    def tensor(self) -> Floats:
        """Return C with ``null_meat(b) = sum_kl w_k w_l C_kl``."""
        return self._tensor

    def contrast_forms(self, directions: Floats) -> Floats:
        """Return F, shape (k, p+1, p+1), with ``t_k' null_meat(b) t_k = w'F_k w``, t_k row k, w = (b, 1)."""
        return tensor_forms(self._tensor, directions)

    def gram_noise(self) -> tuple[Floats, float]:
        """Return (noise variances times rows over N, 2 sqrt(d/k)): the lower edge of pure noise."""
        noisy = ~self.noise_free
        d = int(noisy.sum())
        metric = np.zeros(len(noisy))
        metric[self._slopes] = self._noise * self._rows_noise / self._effective_n
        return np.diag(metric), 2.0 * math.sqrt(d / self.k) if d else 0.0

    def fuller_gram(self, a: float | None = None) -> Floats:
        """Raise NotAvailableError."""
        raise NotAvailableError(NO_FULLER)

    def exact_score_test(self, beta: Floats, z: Floats) -> tuple[float, float]:
        """Return (k R^2, p-value) of the randomized score test, exact at every k for Gaussian rows.

        Parameters
        ----------
        beta : (p,) array
            Null values of all coefficients; the constant's is not used where the means are.
        z : (k,) array
            Public standard normal numbers, drawn independently of the release's noise.

        Notes
        -----
        Of the finite population's coefficients; at k far below n the population's differ by less than noise.
        """
        slopes, _ = self._split(beta)
        tested = np.flatnonzero(self._slopes) != self._constant
        statistic = independent_fit(
            self._X, self._y - self._X @ slopes, self._common(slopes), self._row_noise(slopes), tested, z
        )
        return statistic, self.distribution.pvalue(statistic, int(tested.sum()))

    def _equations(self) -> tuple[Floats, Floats]:
        cross = self._X.T @ self._y / self._effective_n
        if self._means is None:
            return self._gram, cross
        x, y = self._means
        A = np.empty((len(self._slopes),) * 2)
        g = np.empty(len(self._slopes))
        A[np.ix_(self._slopes, self._slopes)] = self._gram + np.outer(x, x)
        A[self._constant, self._slopes] = A[self._slopes, self._constant] = x
        A[self._constant, self._constant] = 1.0
        g[self._slopes] = cross + x * y
        g[self._constant] = y
        return A, g

    @cached_property
    def _gram(self) -> Floats:
        gram = self._X.T @ self._X - self._rows_noise * np.diag(self._noise)
        return np.asarray(gram / self._effective_n, dtype=np.float64)

    def _split(self, beta: Floats) -> tuple[Floats, float]:
        """Return the slopes and the mean residual at `beta`."""
        slopes = beta[self._slopes]
        if self._means is None:
            return slopes, 0.0
        x, y = self._means
        return slopes, float(y - x @ slopes - beta[self._constant])

    def _sampling_meat(self, beta: Floats, variance: float) -> Floats:
        (slopes, _), sampling = self._split(beta), variance * self._gram
        if self._disjoint and variance > 0.0:
            products = self._X * (self._y - self._X @ slopes)[:, None]
            row_scatter = self._unit * centered_scatter(products, self.df)
            sampling = shown_sampling(row_scatter, self._row_meat(slopes), sampling, self.k)
        return self._joined(sampling, variance)

    def _row_meat(self, slopes: Floats) -> Floats:
        """Return the rows' part of the meat, of the slopes' scores."""
        meat: Floats = self._unit * normal_meat(self._X, self._y, slopes, *self._row_moments)
        return meat

    @cached_property
    def _row_moments(self) -> tuple[Floats, Floats]:
        """The people's second moments in one row, and the covariance of a row's noise."""
        noise = self._noise * (self._rows_noise / self.k)
        return self._gram * (self._effective_n / self.k), np.diag(noise)

    def _row_noise(self, slopes: Floats) -> float:
        return self._y_noise + float(slopes @ (self._noise * slopes))

    def _common(self, slopes: Floats) -> Floats:
        """Return the noise common to x and -e: S b for one row."""
        return np.asarray(self._noise * slopes * (self._rows_noise / self.k), dtype=np.float64)

    def _variance(self, beta: Floats) -> float:
        try:
            return homoskedastic_variance(self, beta)
        except NotAvailableError:
            return 0.0

    def _joined(self, slopes: Floats, mean: float) -> Floats:
        """Return the (p, p) meat from that of the centered slopes' scores and of the mean residual."""
        if self._means is None:
            return slopes
        joint = np.zeros((len(self._slopes),) * 2)
        joint[np.ix_(self._slopes, self._slopes)] = slopes
        joint[self._constant, self._constant] = mean
        return np.asarray(self._lift @ joint @ self._lift.T, dtype=np.float64)

    @cached_property
    def _lift(self) -> Floats:
        """From (mean residual, centered scores) to the scores of the symmetric equations."""
        lift = np.eye(len(self._slopes))
        if self._means is not None:
            lift[self._slopes, self._constant] = self._means[0]
        return lift

    @cached_property
    def _tensor(self) -> Floats:
        slopes = self._unit * row_tensor(self._X, self._y, self._common(np.ones(self._X.shape[1])))
        if self._population:
            slopes = slopes + np.einsum("kl,ab->klab", self._clean_form, nonnegative(self._gram))
        if self._means is None:
            return np.asarray(slopes, dtype=np.float64)
        p = len(self._slopes)
        at = np.append(np.flatnonzero(self._slopes), p)
        tensor = np.zeros((p + 1, p + 1, p, p))
        tensor[np.ix_(at, at, at[:-1], at[:-1])] = slopes
        mean = tensor[:, :, self._constant, self._constant]
        mean[np.ix_(at, at)] = self._mean_form()
        residual = np.zeros(p + 1)
        residual[at] = np.append(-self._means[0], self._means[1])
        residual[self._constant] = -1.0
        mean += np.outer(residual, residual)  # not centered, as in R^2: of order 1/n where it matters
        moved = np.einsum("klab,ca,db->klcd", tensor, self._lift, self._lift, optimize=True)
        return np.asarray(moved, dtype=np.float64)

    def _mean_form(self) -> Floats:
        """Return the quadratic form in (slopes, 1) of n times the variance of the mean residual."""
        form: Floats = self.n * self._mean_noise * np.diag(np.append(self._noise, self._y_noise))
        return form + self._clean_form if self._population else form

    @cached_property
    def _clean_form(self) -> Floats:
        """Return the residual variance without noise as a nonnegative quadratic form in (slopes, 1)."""
        Z = np.column_stack([-self._X, self._y])
        noise = np.diag(np.append(self._noise, self._y_noise))
        return nonnegative((Z.T @ Z - self._rows_noise * noise) / self._effective_n)
