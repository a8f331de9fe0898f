"""The estimating function of released examples: generalized linear losses corrected for the noise."""

from __future__ import annotations

from typing import Literal, cast

import numpy as np
from numpy.typing import ArrayLike

from privinf.errors import ArgumentError
from privinf.inference.estimate import is_positive_definite
from privinf.inference.linear_scores import determined_difference
from privinf.inference.solution import sandwich
from privinf.iwp.data import Examples
from privinf.iwp.engines import engine_for, ignoring_noise
from privinf.iwp.noise import LabelNoise, ResponseColumns
from privinf.typing import ExampleNoise, Flags, Floats, LossName
from privinf.validation import ReadRows, check_choice, check_count, check_number

Correction = Literal["exact", "conditional", "series", "none"]

BINARY = ("quadratic", "exponential", "logistic")  # losses whose label has two levels, sent as -1 and 1
CORRECTIONS: dict[str, tuple[str, ...]] = {
    "squared": ("exact", "none"),
    "quadratic": ("exact", "series", "none"),
    "exponential": ("exact", "series", "none"),
    "logistic": ("conditional", "series", "none"),
    "multinomial": ("conditional", "none"),
    "poisson": ("exact", "none"),
}
# The same under Laplace noise; the exponential of such noise has no variance, often no mean.
LAPLACE_CORRECTIONS: dict[str, tuple[str, ...]] = {
    "squared": ("exact", "none"),
    "quadratic": ("exact", "none"),
    "logistic": ("exact", "none"),
}
NO_CLEAN_CONDITIONAL = (
    "the standard error that the same data would have without noise cannot be estimated "
    "with correction='conditional', because the score of a single record cannot be "
    "recovered from its corrected score"
)
NO_CLEAN_SERIES = "with correction='series' the part of the standard error caused by noise cannot be computed"
NO_CLEAN_NAIVE = (
    "with correction='none' the part of the standard error caused by noise cannot be "
    "computed, because the noise is ignored"
)
NO_CLEAN_MANY = (
    "the part of the standard error caused by noise is not computed for more than 64 "
    "combinations of levels under randomized response"
)
NO_CLEAN_WEAK = (
    "the standard error of the same rows without noise cannot be estimated, because the noise is too strong"
)


class ExampleScores:
    r"""Score of a generalized linear loss on features and labels that were released with noise.

    Parameters
    ----------
    X : (n, p) array
        Features as sent, in scaled units, public columns (the constant among them) included.
    labels : (n,) array
        Codes 0, ..., L - 1 as sent; numbers, with noise or without protection, for the squared and Poisson
        losses.
    noise : (p,) array
        Variances of the added noise; 0 for public columns and columns under response.
    loss : {"squared", "quadratic", "exponential", "logistic", "multinomial", "poisson"}
        Quadratic: (y x'theta - 1)^2/2, exponential: e^(-y x'theta), both with y = -1 or 1 for codes 0, 1.
    correction : {"exact", "conditional", "series", "none"}
        "exact": squared, quadratic, exponential, Poisson, and logistic under Laplace noise. "conditional":
        logistic and multinomial. "series": quadratic, exponential and logistic. "none": the naive fit, as if
        nothing were noisy.
    label : LabelNoise or float, default 0
        Response of the labels, or the variance of the Gaussian noise in them.
    responses : tuple of ResponseColumns
        Features under randomized response.
    truncation : int, optional
        K of the series; required there, `chosen_truncation` finds it by the paper's criterion.
    ridge : float, default 0
        Penalty ``ridge ||theta||^2/2`` on the penalized coefficients, part of the estimating function.
    penalized : (p,) bool array, optional
        Default all columns.
    distribution : {"gaussian", "laplace"}
        Distribution of the noise of the features.

    Attributes
    ----------
    n, p : int
        Records and parameters: (L - 1) times the columns, class by class, for the multinomial loss.
    noise_free : (p,) bool array
        Parameters of columns that were released as they are.
    noise : (p,) array
        Variance of the noise of each parameter's column.
    data, effective : Examples
        The release as declared, and as the scores take it: without its noise for the naive fit.
    penalized : (columns,) bool array
    loss, correction : str
    truncation : int or None
    ridge : float

    Raises
    ------
    ArgumentError
        For shapes, codes, options or noise models that do not fit; never with a value of a row.

    Notes
    -----
    With S the covariance of Gaussian noise, eta = x'theta and s = theta'S theta (x, y as released) the score
    is

    ======================  =====================================================================
    squared, quadratic      ``x (y - eta) + S theta``
    exponential             ``e^(-y eta - s/2) (y x + S theta)``
    Poisson                 ``x y - e^(eta - s/2) (x - S theta)``
    logistic, conditional   ``(y - expit(eta + (y - 1/2) s)) (x + y S theta)``, y = 0 or 1
    series                  minus the gradient of ``sum_{k<=K} (-s/2)^k/k! f^(2k)(y eta)``
    ======================  =====================================================================

    and labels and features under response enter through the inverse Bernoulli transform outside: a sum
    over levels of inverse weights times the score there (at most 64 combinations of features; the squared
    and quadratic losses have closed forms for any number). All are unbiased, record by record, for the
    clean score; the conditional score is unbiased under the model; the series is biased. Scores under
    Laplace noise are those of `privinf.iwp.laplace`: unbiased, record by record, for the logistic loss too.

    **Privacy.** A function of the release alone.

    References
    ----------
    Stefanski, L. A. and Carroll, R. J. (1987), Biometrika 74, 703-716; Nakamura, T. (1990), Biometrika 77,
    127-137.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-1, 1, (100_000, 1))
    >>> codes = rng.random(100_000) < 1 / (1 + np.exp(-2 * x[:, 0]))
    >>> noisy = x + 0.5 * rng.standard_normal(x.shape)
    >>> system = ExampleScores(noisy, codes, [0.25], loss="logistic", correction="conditional")
    >>> bool(abs(system.mean_score(np.array([2.0]))[0]) < 0.005)
    True
    """

    def __init__(
        self,
        X: ArrayLike,
        labels: ArrayLike,
        noise: ArrayLike,
        *,
        loss: LossName,
        correction: Correction,
        label: LabelNoise | float = 0.0,
        responses: tuple[ResponseColumns, ...] = (),
        truncation: int | None = None,
        ridge: float = 0.0,
        penalized: ArrayLike | None = None,
        distribution: ExampleNoise = "gaussian",
    ) -> None:
        check_choice(loss, LossName, "loss")
        check_choice(correction, Correction, "correction")
        check_choice(distribution, ExampleNoise, "distribution")
        check_options(loss, correction, truncation, distribution)
        _check_label(loss, label)
        self.loss: LossName = loss
        self.correction: Correction = correction
        self.truncation = truncation
        self.ridge = check_number(ridge, "ridge", low=0.0)
        binary = LabelNoise(2, 1.0, 0.0) if loss in BINARY and not isinstance(label, LabelNoise) else label
        self.data = Examples.checked(
            X, labels, noise, label=binary, responses=responses, distribution=distribution
        )
        columns = self.data.X.shape[1]
        self.effective = ignoring_noise(self.data) if correction == "none" else self.data
        self._engine = engine_for(self.effective, loss, correction, truncation)
        self.n, self.p = self.data.n, self._engine.size
        classes = self.p // columns
        self.noise: Floats = np.tile(self.data.noise, classes)
        self.noise_free: Flags = np.tile(self.data.noise_free, classes)
        self.penalized = _penalized(penalized, columns)
        self._penalty = self.ridge * np.tile(self.penalized, classes)
        self._last: tuple[bytes, Floats, Floats] | None = None

    def scores(self, theta: Floats) -> Floats | None:
        """Return psi of all records, shape (n, p), penalty included; None of rows that are not in memory."""
        if isinstance(self.data.X, ReadRows):
            return None
        scores = np.empty((self.n, self.p))
        for rows in self.blocks():
            scores[rows] = self._engine.scores(theta, rows)
        scores -= self._penalty * theta
        return scores

    def mean_score(self, theta: Floats) -> Floats:
        """Return the mean of psi, shape (p,)."""
        total = np.zeros(self.p)
        for rows in self.blocks():
            total += self._engine.totals(theta, rows)
        return total / self.n - self._penalty * theta

    def jacobian(self, theta: Floats) -> Floats:
        """Return the bread: minus the derivative of the mean score, shape (p, p)."""
        return self.score_and_jacobian(theta)[1]

    def score_and_jacobian(self, theta: Floats) -> tuple[Floats, Floats]:
        """Return (mean_score, jacobian) in one pass; at the last theta again, without one."""
        key = theta.tobytes()
        if self._last is not None and self._last[0] == key:
            return self._last[1].copy(), self._last[2].copy()
        total = np.zeros(self.p)
        slope = np.zeros((self.p, self.p))
        for rows in self.blocks():
            part, derivative = self._engine.derivatives(theta, rows)
            total += part
            slope += derivative
        score = total / self.n - self._penalty * theta
        jacobian = np.diag(self._penalty) - slope / self.n
        self._last = key, score, jacobian
        return score.copy(), jacobian.copy()

    def weighted_jacobian(self, theta: Floats, weights: Floats) -> Floats:
        """Return minus the mean of ``weights_i dpsi_i/dtheta``, shape (p, p)."""
        slope = np.zeros((self.p, self.p))
        for rows in self.blocks():
            slope += self._engine.derivatives(theta, rows, weights[rows])[1]
        return float(weights.mean()) * np.diag(self._penalty) - slope / self.n

    def meat(self, theta: Floats) -> Floats:
        """Return the centered covariance of psi, divisor n, shape (p, p)."""
        mean = np.zeros(self.p)
        gram = np.zeros((self.p, self.p))
        for rows in self.blocks():
            part = self._engine.scores(theta, rows)
            gram += part.T @ part
            mean += part.sum(axis=0)
        mean /= self.n
        return np.asarray(gram / self.n - np.outer(mean, mean), dtype=np.float64)

    def noise_meat(self, theta: Floats) -> Floats | None:
        """Return the part of the meat that the noise causes, given the clean rows; None where unknown.

        Notes
        -----
        ``meat - mean W^-1 B^-1[psi psi']``, the clean second moment by its own exact inverse transform:
        see `clean_cov` for cases without one.
        """
        clean = self._clean_meat(theta)
        if isinstance(clean, str):
            return None
        return self.meat(theta) - clean

    def clean_cov(self, theta: Floats) -> Floats | str:
        """Return the covariance that the same rows would have given without noise, or why it is unknown.

        Notes
        -----
        Squared, quadratic, exponential and Poisson losses always have an unbiased clean meat, and so has the
        logistic loss under Laplace noise; the others where no feature has Gaussian noise. A clean meat that
        is a small difference of two large estimates is refused.
        """
        clean = self._clean_meat(theta)
        if isinstance(clean, str):
            return clean
        if self._has_noise():
            meat = self.meat(theta)
            determined = determined_difference(meat, meat - clean, self.n)
            if determined is None:
                return NO_CLEAN_WEAK
        bread = self.jacobian(theta)
        cov = sandwich(bread, clean, self.n)
        return cov if is_positive_definite(cov) else NO_CLEAN_WEAK

    def _clean_meat(self, theta: Floats) -> Floats | str:
        if self.correction == "none" and self._has_noise():
            return NO_CLEAN_NAIVE
        total = np.zeros((self.p, self.p))
        for rows in self.blocks():
            part = self._engine.clean_squares(theta, rows)
            if part is None:
                if self.correction == "series":
                    return NO_CLEAN_SERIES
                return NO_CLEAN_MANY if self.correction == "exact" else NO_CLEAN_CONDITIONAL
            total += part
        mean = self.mean_score(theta) + self._penalty * theta
        return np.asarray((total + total.T) / (2 * self.n) - np.outer(mean, mean), dtype=np.float64)

    def _has_noise(self) -> bool:
        return not (self.noise_free.all() and self.data.unprotected_label)

    def blocks(self) -> list[slice]:
        """Return the slices of rows that the sums go over."""
        return list(self.data.blocks(self._engine.width))

    def block_scores(self, theta: Floats, rows: slice) -> Floats:
        """Return psi of a block, shape (b, p), without the penalty."""
        return self._engine.scores(theta, rows)


def check_options(
    loss: str, correction: str, truncation: int | None, distribution: ExampleNoise = "gaussian"
) -> None:
    """Refuse a correction that the loss has not, and a truncation without a series (ArgumentError)."""
    check_loss(loss, distribution)
    available = (LAPLACE_CORRECTIONS if distribution == "laplace" else CORRECTIONS)[loss]
    if correction not in available:
        under = " with noise='laplace'" if distribution == "laplace" else ""
        raise ArgumentError(
            f"correction={correction!r} is not available for loss={loss!r}{under}: choose one of "
            f"{', '.join(map(repr, available))}"
        )
    if correction == "series" and truncation is None:
        raise ArgumentError(
            "correction='series' needs truncation=, the number of terms of the series: "
            "privinf.iwp.root.chosen_truncation() returns a suitable number"
        )
    if correction != "series" and truncation is not None:
        raise ArgumentError(f"truncation= is only for correction='series', not for {correction!r}")
    if truncation is not None:
        check_count(truncation, "truncation", least=0)


def check_loss(loss: str, distribution: ExampleNoise) -> None:
    """Refuse a loss that has no correction for the distribution of the noise (ArgumentError)."""
    if distribution == "laplace" and loss not in LAPLACE_CORRECTIONS:
        raise ArgumentError(
            f"loss={loss!r} has no correction for Laplace noise: use noise='gaussian', or loss= one of "
            f"{', '.join(map(repr, LAPLACE_CORRECTIONS))}"
        )


def default_correction(loss: str, distribution: ExampleNoise) -> Correction:
    """Return the correction that a loss has by default."""
    corrections = LAPLACE_CORRECTIONS if distribution == "laplace" else CORRECTIONS
    return cast(Correction, corrections[loss][0])


def _check_label(loss: str, label: LabelNoise | float) -> None:
    levels = label.levels if isinstance(label, LabelNoise) else None
    if loss in BINARY and (levels not in {None, 2} or (levels is None and label != 0.0)):
        raise ArgumentError(
            f"loss={loss!r} needs a label of two levels, sent without noise or by randomized response"
        )
    if loss == "multinomial" and levels is None:
        raise ArgumentError(
            "loss='multinomial' needs a label with declared levels: pass a LabelNoise as label="
        )


def _penalized(mask: ArrayLike | None, columns: int) -> Flags:
    flags = np.ones(columns, dtype=np.bool_) if mask is None else np.asarray(mask)
    if flags.dtype != np.bool_ or flags.shape != (columns,):
        raise ArgumentError(f"penalized= must hold {columns} booleans, one for each column")
    return flags
