"""Released examples as the estimating functions read them: block by block, with their noise model."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from privinf.errors import ArgumentError
from privinf.iwp.noise import Combinations, LabelNoise, ResponseColumns
from privinf.typing import ExampleNoise, Flags, Floats
from privinf.validation import ReadRows, check_array, check_number

_CELLS = 1 << 13  # evaluations of a block: a dozen columns of it stay in the cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Examples:
    """Features and labels as sent, and their noise model.

    Attributes
    ----------
    X : (n, p) array
        Features as sent, public columns included.
    labels : (n,) array
        Level codes, or numbers.
    noise : (p,) array
        Variances of the noise; 0 for public and responded columns.
    responses : tuple of ResponseColumns
        Features that are released by randomized response.
    label : LabelNoise or float
        Response of the labels, or variance of the Gaussian noise in them (0: without protection).
    distribution : {"gaussian", "laplace"}
        Distribution of the noise of the features.
    """

    X: Floats
    labels: Floats
    noise: Floats
    responses: tuple[ResponseColumns, ...]
    label: LabelNoise | float
    distribution: ExampleNoise = "gaussian"

    @classmethod
    def checked(
        cls,
        X: ArrayLike,
        labels: ArrayLike,
        noise: ArrayLike,
        *,
        label: LabelNoise | float,
        responses: tuple[ResponseColumns, ...],
        distribution: ExampleNoise = "gaussian",
    ) -> Examples:
        """Check shapes, finiteness, codes and indicators.

        Raises
        ------
        ArgumentError
            Naming the argument, never a value of a row.
        """
        features = check_array(X, "X", ndim=2)
        codes = check_array(labels, "labels", ndim=1)
        variances = check_array(noise, "noise", ndim=1)
        n, p = features.shape
        if n == 0 or p == 0 or codes.shape != (n,) or variances.shape != (p,):
            raise ArgumentError(
                f"X of shape {features.shape}, labels of shape {codes.shape} and noise of shape "
                f"{variances.shape} do not match. X needs at least one row and one column, labels one entry "
                "for each row, and noise one entry for each column"
            )
        if (variances < 0.0).any():
            raise ArgumentError("noise= must hold variances, and none of them may be negative")
        _check_responses(responses, features, variances)
        if isinstance(label, LabelNoise):
            levels = label.levels
            if ((codes != np.floor(codes)) | (codes < 0) | (codes >= levels)).any():
                raise ArgumentError(
                    f"labels= must be integers from 0 to {levels - 1}, the numbers of the {levels} declared "
                    "levels"
                )
        else:
            check_number(label, "label", low=0.0)
        noisy_responses = tuple(response for response in responses if not response.clear)
        return cls(
            X=features,
            labels=codes,
            noise=variances,
            responses=noisy_responses,
            label=label,
            distribution=distribution,
        )

    @property
    def laplace(self) -> bool:
        """Whether any feature has Laplace noise."""
        return self.distribution == "laplace" and bool(self.noise.any())

    @property
    def n(self) -> int:
        """Number of records."""
        return int(self.X.shape[0])

    @property
    def noise_free(self) -> Flags:
        """Which columns were released as they are, shape (p,)."""
        flags: Flags = self.noise == 0.0
        for response in self.responses:
            flags[list(response.columns)] = False
        return flags

    @property
    def unprotected_label(self) -> bool:
        """Whether the label was released as it is."""
        return self.label.clear if isinstance(self.label, LabelNoise) else self.label == 0.0

    def combinations(self) -> Combinations:
        """Return the level combinations of the features under response."""
        return Combinations.from_responses(self.responses, self.X.shape[1])

    def blocks(self, width: int = 1) -> Iterator[slice]:
        """Yield slices of rows, shorter where each row needs `width` evaluations."""
        size = max(_CELLS // max(width, 1), 256)
        for start in range(0, self.n, size):
            yield slice(start, min(start + size, self.n))

    def label_weights(self, rows: slice) -> Floats:
        """Return the inverse weights (b, L) of a block's labels; a label under response only."""
        assert isinstance(self.label, LabelNoise)
        return self.label.weights(self.labels[rows].astype(np.int64))

    def label_moments(self, rows: slice, values: Floats | None) -> tuple[Floats, Floats]:
        """Return unbiased y and y^2 of a block; `values` are those of the levels, None for the codes."""
        if not isinstance(self.label, LabelNoise):
            y = self.labels[rows] if values is None else values[self.labels[rows].astype(np.int64)]
            return y, y**2 - self.label
        levels = np.arange(self.label.levels, dtype=np.float64) if values is None else values
        if self.label.clear:
            y = levels[self.labels[rows].astype(np.int64)]
            return y, y**2
        weights = self.label_weights(rows)
        return weights @ levels, weights @ levels**2


def count_dispersion(data: Examples, theta: Floats) -> tuple[float, float]:
    """Return the variance of counts over their Poisson means e^(x'theta), and its standard error.

    With eta = x'theta and s = theta'S theta (x, y as released, v the variance of y's noise) the ratio is

        mean(y^2 - v - 2 y e^(eta - s/2) + e^(2 eta - 2 s)) / mean(e^(eta - s/2)):

    each term has the mean over the noise that the clean one has. Features under response enter through their
    inverse weights. The error of theta moves it in second order.

    **Privacy.** Post-processing.
    """
    combinations = data.combinations()
    s = float(theta @ (data.noise * theta))
    offsets = combinations.offsets @ theta
    squares = np.empty(data.n)
    means = np.empty(data.n)
    for rows in data.blocks(len(offsets)):
        X = data.X[rows]
        weights = combinations.weights(X)
        eta = (combinations.base(X) @ theta)[:, None] + offsets
        y, y_square = data.label_moments(rows, None)
        with np.errstate(over="ignore", invalid="ignore"):
            means[rows] = (weights * np.exp(eta - s / 2.0)).sum(axis=1)
            squares[rows] = y_square - 2.0 * y * means[rows] + (weights * np.exp(2.0 * (eta - s))).sum(axis=1)
    center = float(means.mean())
    if not (center > 0.0 and np.isfinite(squares).all()):
        return math.nan, math.inf
    ratio = float(squares.mean()) / center
    return ratio, float(np.std(squares - ratio * means)) / (center * math.sqrt(data.n))


def largest_dispersion(ratio: float, se: float) -> float:
    """Return the largest dispersion that an estimate, which noise may make negative, allows."""
    return max(ratio, 0.0) + 2.0 * se


def _check_responses(responses: tuple[ResponseColumns, ...], X: Floats, noise: Floats) -> None:
    columns = [column for response in responses for column in response.columns]
    if len(set(columns)) != len(columns) or any(not 0 <= column < X.shape[1] for column in columns):
        raise ArgumentError(
            "responses= (the columns sent by randomized response) must contain column numbers of X, from 0 "
            f"to {X.shape[1] - 1}, and none of them twice"
        )
    if noise[columns].any():
        raise ArgumentError(
            "noise= must be 0 for columns sent by randomized response, because it holds variances "
            "of added noise"
        )
    for block in X if isinstance(X, ReadRows) else [X]:
        for response in responses:
            response.check_sent(block)
