"""The noise model of released examples: added noise, and k-ary responses on labels and on features."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import numpy as np

from privinf.errors import ArgumentError
from privinf.release_kinds import ExamplesNoiseModel, LabelNoiseModel
from privinf.releases import Release
from privinf.typing import ExampleNoise, Floats, Integers
from privinf.validation import check_count, check_number

MOST_COMBINATIONS = 64  # of levels of features under response: the cost of a score grows with their product


def inverse_weights(indicators: Floats, *, keep: float, other: float) -> Floats:
    """Return ``(1{sent = l} - Q)/(P - Q)`` from the indicators (b, k) of the levels as sent."""
    if other == 0.0:
        return indicators
    return np.asarray((indicators - other) / (keep - other), dtype=np.float64)


def examples_noise_model(release: Release) -> ExamplesNoiseModel:
    """Return the noise model of a release of kind "local-examples"."""
    return cast(ExamplesNoiseModel, release.noise_model)


def distribution_of(release: Release) -> ExampleNoise:
    """Return the distribution of the noise that was added to features."""
    return examples_noise_model(release).get("distribution", "gaussian")


def feature_variance(noise_model: ExamplesNoiseModel) -> float:
    """Return the variance of the noise of each column with added noise."""
    return noise_model.get("variance", noise_model["scale"] ** 2)


def label_variance(label: LabelNoiseModel) -> float:
    """Return the variance of the noise that was added to a label, scaled units; 0 without any."""
    return float(label.get("variance", float(label.get("scale", 0.0)) ** 2))


@dataclass(frozen=True, slots=True)
class LabelNoise:
    """A label of L levels sent by k-ary randomized response.

    Parameters
    ----------
    levels : int
        L >= 2; codes are 0, ..., L - 1.
    keep, other : float
        P and Q, the probabilities that the label as sent is the true level, and each other level; 1 and 0
        for a label without protection.

    Raises
    ------
    ArgumentError
        If ``P + (L - 1) Q`` is not one, or P does not exceed Q.

    Notes
    -----
    **Privacy.** The noise model of the release, public.

    Examples
    --------
    >>> LabelNoise(2, 0.75, 0.25).clear
    False
    """

    levels: int
    keep: float
    other: float

    def __post_init__(self) -> None:
        check_count(self.levels, "levels", least=2)
        _check_response(self.levels, self.keep, self.other)

    @property
    def clear(self) -> bool:
        """Whether the label was sent as it is."""
        return self.other == 0.0

    def weights(self, codes: Integers) -> Floats:
        """Return w, shape (b, L): ``sum_l w_l g(l)`` is the inverse transform of g at each sent code."""
        table = inverse_weights(np.eye(self.levels), keep=self.keep, other=self.other)
        return np.asarray(table.T.take(codes, axis=1).T, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class ResponseColumns:
    """Columns of the design that hold one factor under k-ary randomized response.

    Parameters
    ----------
    columns : tuple of k - 1 int
        Positions of the 0/1 indicators of its levels as sent; the reference level is all zeros.
    keep, other : float
        P and Q, as for a label.

    Raises
    ------
    ArgumentError
        If ``P + (k - 1) Q`` is not one, P does not exceed Q, or a column is named twice.

    Notes
    -----
    **Privacy.** The noise model of the release, public.

    Examples
    --------
    >>> ResponseColumns((2, 3), 0.6, 0.2).levels
    3
    """

    columns: tuple[int, ...]
    keep: float
    other: float

    def __post_init__(self) -> None:
        if not self.columns or len(set(self.columns)) != len(self.columns):
            raise ArgumentError(
                "columns= of a randomized response must hold at least one column number, and none twice"
            )
        _check_response(self.levels, self.keep, self.other)

    @property
    def levels(self) -> int:
        """k, the number of levels."""
        return len(self.columns) + 1

    @property
    def clear(self) -> bool:
        """Whether the factor was sent as it is."""
        return self.other == 0.0

    @property
    def variance(self) -> float:
        """Largest variance over the levels of an unbiased indicator ``(1{sent = l} - Q)/(P - Q)``."""
        worst = max(self.keep * (1.0 - self.keep), self.other * (1.0 - self.other))
        return worst / (self.keep - self.other) ** 2

    def unbiased(self, X: Floats) -> Floats:
        """Return the unbiased indicators ``(1{sent = l} - Q)/(P - Q)`` of a block, shape (b, k - 1)."""
        indicators: Floats = (X[:, list(self.columns)] - self.other) / (self.keep - self.other)
        return indicators

    def weights(self, X: Floats) -> Floats:
        """Return the inverse weights (b, k) of a block, the reference level first."""
        indicators = X[:, list(self.columns)]
        reference = 1.0 - indicators.sum(axis=1, keepdims=True)
        return inverse_weights(np.hstack([reference, indicators]), keep=self.keep, other=self.other)

    def check_sent(self, X: Floats) -> None:
        """Raise ArgumentError unless the columns hold 0/1 indicators of at most one level."""
        indicators = X[:, list(self.columns)]
        if not ((indicators == 0.0) | (indicators == 1.0)).all() or (indicators.sum(axis=1) > 1.0).any():
            raise ArgumentError(
                f"columns {list(self.columns)} of X must be 0/1 indicators with at most one 1 in each row"
            )


@dataclass(frozen=True, slots=True)
class Combinations:
    """All level combinations of the features under response, with the inverse weights of each record.

    Attributes
    ----------
    responses : tuple of ResponseColumns
    offsets : (F, p) array
        Values of each combination in the columns under response.
    """

    responses: tuple[ResponseColumns, ...]
    offsets: Floats

    @classmethod
    def from_responses(cls, responses: tuple[ResponseColumns, ...], p: int) -> Combinations:
        """Enumerate the combinations of responses in p columns.

        Raises
        ------
        ArgumentError
            Beyond 64 combinations.
        """
        count = math.prod(response.levels for response in responses)
        if count > MOST_COMBINATIONS:
            raise ArgumentError(
                f"the features sent by randomized response have {count} combinations of levels, but at most "
                f"{MOST_COMBINATIONS} are possible: send some of these features with Gaussian noise, or "
                "merge levels"
            )
        offsets = np.zeros((1, p))
        for response in responses:
            levels = np.zeros((response.levels, p))
            levels[np.arange(1, response.levels), list(response.columns)] = 1.0
            offsets = (offsets[:, None] + levels).reshape(-1, p)
        return cls(responses, offsets)

    @property
    def columns(self) -> list[int]:
        """All columns under response."""
        return [column for response in self.responses for column in response.columns]

    def base(self, X: Floats) -> Floats:
        """Return a block with zeros in the columns under response."""
        if not self.responses:
            return X
        cleared = X.copy()
        cleared[:, self.columns] = 0.0
        return cleared

    def weights(self, X: Floats) -> Floats:
        """Return the inverse weights (b, F) of a block: products over the features."""
        weights = np.ones((X.shape[0], 1))
        for response in self.responses:
            weights = (weights[:, :, None] * response.weights(X)[:, None, :]).reshape(X.shape[0], -1)
        return weights


def _check_response(levels: int, keep: float, other: float) -> None:
    check_number(keep, "keep", low=0.0, high=1.0)
    check_number(other, "other", low=0.0, high=1.0)
    if abs(keep + (levels - 1) * other - 1.0) > 1e-9 or keep <= other:
        raise ArgumentError(
            f"keep={keep:g} and other={other:g} do not define randomized response over {levels} "
            "levels: keep must be larger than other, and keep + (levels - 1) * other must be 1"
        )
