r"""Corrected least squares on mixed rows: k sums over all people, each with noise (RMGMOLS)."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from privinf.errors import ArgumentError, NotAvailableError
from privinf.inference.linear_scores import ScoreLaw, homoskedastic_variance
from privinf.inference.solution import quadratic
from privinf.mixing.rows import EQUATION, nonnegative, ones_means, residuals, row_terms
from privinf.typing import Flags, Floats, SamplingKind
from privinf.validation import check_array, check_count, check_number

# Without noise the means are exact, and the covariance given the people would be singular.
MEAN_FLOOR = 1e-9
NO_FULLER = "Fuller's modification is offered for rows of single records, not for mixed rows; use ridge="


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

    Raises
    ------
    ArgumentError
        For shapes that do not match, entries that are not finite, or k <= p.

    Notes
    -----
    Write N = (1-a) n and S for the diagonal of `noise`. Given D, the rows are k draws from (nearly, since
    each is a sum over n people) the normal law with covariance ``(1-a) D'D/k + diag(S, tau_y^2)``, so

    .. math:: \bar\psi(b) = [X'(y - X b) + k S b] / N

    is unbiased for ``D_x'(d_y - D_x b)/n``: the normal equations of the full private data. With the all-ones
    row r_0 = sqrt(a) n xbar' + noise, every row is centred at first, x - c r_0'/(sqrt(a) n), which adds
    ``kappa = sum c^2/(a n^2)`` noisy rows to k; the intercept solves ``ybar - xbar'b - b_0 = 0``, whose error
    is that of two means (its dependence on the noise of the slopes is of second order).

    The meat has three parts: the sandwich of the k rows (mixing error and noise together), with
    k/(k - d); the noise of the means; and, for the population, s_e^2 A (homoskedastic: rows of sums do not
    show more). t quantiles with k - d degrees of freedom go with it (`df`).

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

    cov_type, linear_noise = "mixed rows", False
    variance_equation = EQUATION

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
    ) -> None:
        features, response = check_array(X, "X", ndim=2), check_array(y, "y", ndim=1)
        variances = check_array(noise, "noise", ndim=1)
        k, p = features.shape
        if response.shape != (k,) or variances.shape != (p,):
            raise ArgumentError(
                f"X of shape {features.shape}, y of shape {response.shape} and noise of shape "
                f"{variances.shape} do not match"
            )
        if (variances < 0.0).any():
            raise ArgumentError("noise must hold variances: numbers from 0 up")
        self.n = check_count(n, "n")
        self._kept = (1.0 - check_number(share, "share", low=0.0, high=0.99)) * self.n
        self._y_noise = check_number(y_noise, "y_noise", low=0.0)
        self._population = population
        self.noise_free: Flags = variances == 0.0
        self._means: tuple[Floats, float] | None = None
        self._mean_noise = 0.0
        added = 0.0
        slopes = np.ones(p, dtype=bool)
        if constant is not None and ones_row is not None:
            means, weight = ones_means(ones_row, ones_response, constant, p)
            slopes[constant] = False
            c = features[:, constant]
            features, response = features - np.outer(c, means[:-1]), response - c * means[-1]
            added, self._mean_noise = float(c @ c) / weight**2, 1.0 / weight**2
            self._means = means[:-1][slopes], float(means[-1])
        self._slopes = slopes
        self._constant = -1 if constant is None else constant
        self._k = k
        self._X, self._y = features[:, slopes], response
        d = self._X.shape[1]
        if k <= d:
            raise ArgumentError(f"{k} mixed rows cannot identify {d} coefficients: more rows are needed")
        self._rows_noise = k + added  # how often the noise of one row is in the Gram matrix
        self._noise = variances[slopes]
        self.df, self.df_resid = float(k - d), np.inf
        self.law = ScoreLaw(k, d)
        self.A, self.g = self._equations()

    def scores(self, beta: Floats) -> None:
        """Return None: mixed rows are no records, and the means have none."""
        return

    def residual_variance(self, beta: Floats) -> float:
        """Return mean (y - x'b)^2 of the people, without noise; it may be negative."""
        slopes, shift = self._split(beta)
        e = self._y - self._X @ slopes
        return float(e @ e - self._rows_noise * self._row_noise(slopes)) / self._kept + shift**2

    def noise_terms(self, beta: Floats) -> dict[str, Floats]:
        """Return the terms of `noise_meat`: `row_terms`, that of the means, and mixing, which is the rest."""
        slopes, _ = self._split(beta)
        S, size, common = np.diag(self._noise), self._kept / self._k, self._common(slopes)
        variance, unit = max(self._variance(beta), 0.0), self.n * self._k / self._kept**2
        at = row_terms(size, self._gram, variance, S, common, slopes, self._y_noise)
        terms = {name: self._joined(unit * term, 0.0) for name, term in at.items()}
        means = self.n * self._row_noise(slopes) * self._mean_noise
        terms["noise of the means"] = self._joined(0.0 * S, means)
        return {"mixing": self.noise_meat(beta) - sum(terms.values()), **terms}

    def noise_meat(self, beta: Floats) -> Floats:
        """Return the meat of mixing and noise, given the people; shape (p, p)."""
        slopes, _ = self._split(beta)
        floor = MEAN_FLOOR * max(self.residual_variance(beta), 0.0)
        means, rows = self.n * self._row_noise(slopes) * self._mean_noise + floor, self.row_scores(beta)
        return rows.T @ rows + self._joined(np.zeros((len(slopes),) * 2), means)

    def row_scores(self, beta: Floats) -> Floats:
        """Return what each mixed row adds to root-n psibar, shape (k, p), centred, times sqrt(k/(k - d)).

        Given the people the rows are independent draws: their outer products add up to the rows' part of the
        meat.
        """
        slopes, _ = self._split(beta)
        psi = self._X * (self._y - self._X @ slopes)[:, None]
        scores, unit = np.zeros((self._k, len(beta))), math.sqrt(self.n * self._k / self.df) / self._kept
        scores[:, self._slopes] = unit * (psi - psi.mean(axis=0))
        return scores @ self._lift.T

    def meat(self, beta: Floats) -> Floats:
        """Return mixing, noise and sampling together."""
        return self.noise_meat(beta) + max(self._variance(beta), 0.0) * self.A

    def clean_meat(self, beta: Floats) -> tuple[Floats, SamplingKind]:
        """Return residual variance times A."""
        return homoskedastic_variance(self, beta) * self.A, "homoskedastic"

    def null_meat(self, beta: Floats) -> Floats:
        """Return V(b) of the score test."""
        return quadratic(self._tensor, np.append(beta, 1.0))

    def tensor(self) -> Floats:
        """Return C with ``null_meat(b) = sum_kl w_k w_l C_kl``."""
        return self._tensor

    def gram_noise(self) -> tuple[Floats, float]:
        """Return (noise variances times rows over N, 2 sqrt(d/k)): the lower edge of pure noise."""
        noisy = ~self.noise_free
        d = int(noisy.sum())
        metric = np.zeros(len(noisy))
        metric[self._slopes] = self._noise * self._rows_noise / self._kept
        return np.diag(metric), 2.0 * math.sqrt(d / self._k) if d else 0.0

    def fuller_gram(self, a: float | None = None) -> Floats:
        """Raise NotAvailableError."""
        raise NotAvailableError(NO_FULLER)

    def exact_score_test(self, beta: Floats, z: Floats) -> tuple[float, float]:
        r"""Return (k R^2, p-value) of the randomised score test, exact at every k for Gaussian rows.

        Parameters
        ----------
        beta : (p,) array
            Null values of all coefficients; the constant's is not used where the means are.
        z : (k,) array
            Public standard normal numbers, drawn independently of the release's noise.

        Notes
        -----
        ``e* = e + c z`` and ``x* = x + z (S b)'/c``, c^2 = tau_y^2 + b'S b, are independent under the null:
        the noise common to e and x is cancelled by the noise added to both. The test is of the finite
        population's coefficients; at k far below n the population's differ by less than its noise.
        """
        slopes, _ = self._split(beta)
        size = math.sqrt(self._row_noise(slopes))
        common = self._common(slopes)
        e, X = self._y - self._X @ slopes, self._X
        if common.any():
            e, X = e + size * z, X + np.outer(z, common) / size
        tested = np.flatnonzero(self._slopes) != self._constant
        e, X = residuals(X[:, ~tested], e), residuals(X[:, ~tested], X[:, tested])
        rest = residuals(X, e)
        df = int(tested.sum())
        statistic = self._k * (1.0 - float(rest @ rest) / float(e @ e))
        return statistic, self.law.pvalue(statistic, df)

    def _equations(self) -> tuple[Floats, Floats]:
        gram = self._gram
        cross = self._X.T @ self._y / self._kept
        if self._means is None:
            return gram, cross
        x, y = self._means
        A, g = np.empty((len(self._slopes),) * 2), np.empty(len(self._slopes))
        A[np.ix_(self._slopes, self._slopes)] = gram + np.outer(x, x)
        A[self._constant, self._slopes] = A[self._slopes, self._constant] = x
        A[self._constant, self._constant] = 1.0
        g[self._slopes], g[self._constant] = cross + x * y, y
        return A, g

    @cached_property
    def _gram(self) -> Floats:
        return np.asarray(
            (self._X.T @ self._X - self._rows_noise * np.diag(self._noise)) / self._kept, dtype=np.float64
        )

    def _split(self, beta: Floats) -> tuple[Floats, float]:
        """Return the slopes and the mean residual at `beta`."""
        slopes = beta[self._slopes]
        if self._means is None:
            return slopes, 0.0
        x, y = self._means
        return slopes, float(y - x @ slopes - beta[self._constant])

    def _row_noise(self, slopes: Floats) -> float:
        return self._y_noise + float(slopes @ (self._noise * slopes))

    def _common(self, slopes: Floats) -> Floats:
        """Return the noise common to x and -e: S b for one row."""
        return np.asarray(self._noise * slopes * (self._rows_noise / self._k), dtype=np.float64)

    def _variance(self, beta: Floats) -> float:
        try:
            return homoskedastic_variance(self, beta)
        except NotAvailableError:
            return 0.0

    def _joined(self, slopes: Floats, mean: float) -> Floats:
        """Return the (p, p) meat from that of the centred slopes' scores and of the mean residual."""
        if self._means is None:
            return slopes
        joint = np.zeros((len(self._slopes),) * 2)
        joint[np.ix_(self._slopes, self._slopes)] = slopes
        joint[self._constant, self._constant] = mean
        return np.asarray(self._lift @ joint @ self._lift.T, dtype=np.float64)

    @cached_property
    def _lift(self) -> Floats:
        """From (mean residual, centred scores) to the scores of the symmetric equations."""
        lift = np.eye(len(self._slopes))
        if self._means is not None:
            lift[self._slopes, self._constant] = self._means[0]
        return lift

    @cached_property
    def _tensor(self) -> Floats:
        slopes = self._row_tensor() * (self.n * self._k / self._kept**2)
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
        x, y = self._means
        residual = np.zeros(p + 1)
        residual[at] = np.append(-x, y)
        residual[self._constant] = -1.0
        mean += np.outer(residual, residual)  # not centred, as in R^2: of order 1/n where it matters
        moved = np.einsum("klab,ca,db->klcd", tensor, self._lift, self._lift, optimize=True)
        return np.asarray(moved, dtype=np.float64)

    def _row_tensor(self) -> Floats:
        """Return C of V(b) in row units, shape (d+1, d+1, d, d)."""
        d = self._X.shape[1]
        Z = np.column_stack([-self._X, self._y])
        form = Z.T @ Z / self._k
        common = np.column_stack([np.diag(self._common(np.ones(d))), np.zeros(d)])
        psi = self._X.T @ Z / self._k + common
        cross = np.einsum("ak,bl->klab", psi - common / 2.0, common)
        cross += cross.transpose(0, 1, 3, 2)
        tensor = np.einsum("kl,ab->klab", form, form[:d, :d]) + cross
        return np.asarray((tensor + tensor.transpose(1, 0, 2, 3)) / 2.0, dtype=np.float64)

    def _mean_form(self) -> Floats:
        """Return the quadratic form in (slopes, 1) of n times the variance of the mean residual."""
        noise = np.append(self._noise, self._y_noise)
        form: Floats = self.n * self._mean_noise * np.diag(noise)
        return form + self._clean_form if self._population else form

    @cached_property
    def _clean_form(self) -> Floats:
        """Return the residual variance without noise as a nonnegative quadratic form in (slopes, 1)."""
        Z = np.column_stack([-self._X, self._y])
        noise = np.diag(np.append(self._noise, self._y_noise))
        return nonnegative((Z.T @ Z - self._rows_noise * noise) / self._kept)
