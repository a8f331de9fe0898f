r"""Randomized response on integer codes: pure epsilon-DP for a label with k levels.

A code is kept with probability P = e^eps / (e^eps + k - 1), and otherwise replaced by one of the k - 1 other
codes, uniformly, each with probability Q0 = 1 / (e^eps + k - 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privinf.accounting import LedgerEntry, PureLoss, Sensitivity
from privinf.error_boundary import error_boundaries
from privinf.errors import SchemaError
from privinf.noise import NoiseSource
from privinf.noise.source import Draw
from privinf.typing import ArrayLike, Floats, Integers, TrustModel
from privinf.validation import check_count, check_number
from privinf.wire import Assumptions, Derivations, Labels, Mechanisms, NoiseLaws, NoiseSources, Norms

SMALLEST_EPSILON = 1e-9  # a smaller one makes responses that are all but coin flips, and is refused


@error_boundaries
@dataclass(frozen=True, slots=True)
class RandomizedResponse:
    """Randomized response for a factor with two or more levels.

    Parameters
    ----------
    levels : int
        Number k of levels, at least 2. The codes of the levels are 0, ..., k - 1.
    epsilon : float
        Epsilon of the guarantee, at least 1e-9. With infinity the codes are released unprotected.

    Raises
    ------
    ArgumentError
        Raised if `levels` or `epsilon` is out of range.

    Notes
    -----
    **Privacy.** Neighboring tables differ in the code of one record (replace-one), and the guarantee is
    epsilon-DP. The privacy loss has the values +-epsilon (and 0 for k > 2). The probability of a false answer
    is rounded up to a multiple of 2^-64, because secure random bits can represent only such probabilities
    exactly. Therefore the true loss is at most epsilon.

    References
    ----------
    Warner (1965), "Randomized response"; Kairouz, Bonawitz and Ramage (2016), "Discrete distribution
    estimation under local privacy".

    Examples
    --------
    >>> import numpy as np
    >>> from privinf.mechanisms import RandomizedResponse
    >>> from privinf.noise import SimulationNoise
    >>> response = RandomizedResponse(3, 1.0)
    >>> answers = response.respond(np.repeat([0, 1, 2], 20_000), SimulationNoise(0))
    >>> np.round(response.dummies(answers).mean(axis=0), 1).tolist()
    [0.3, 0.3, 0.3]
    """

    levels: int
    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", check_count(self.levels, "levels", least=2))
        epsilon = check_number(self.epsilon, "epsilon", low=SMALLEST_EPSILON, infinite=True)
        object.__setattr__(self, "epsilon", epsilon)

    @property
    def lie(self) -> float:
        """Probability that the answer differs from the true code, a multiple of 2^-64."""
        return lie_probability(self.levels, self.epsilon)

    @property
    def keep(self) -> float:
        """Probability that the answer is the true code."""
        return 1.0 - self.lie

    @property
    def other(self) -> float:
        """Probability of each code other than the true code."""
        return self.lie / (self.levels - 1)

    def respond(self, codes: ArrayLike, source: NoiseSource, lies: NoiseSource | None = None) -> Integers:
        """Return one answer per code.

        Parameters
        ----------
        codes : ndarray of int, shape (n,)
            True codes of the records, from 0 to k - 1.
        source : NoiseSource
            Noise source that decides which answers are false. Without `lies` it also draws the false answers.
        lies : NoiseSource, optional
            Noise source that draws the false answers. Pass this second source if `respond` is called for
            several blocks of codes, so that the answers do not depend on the size of the blocks.

        Returns
        -------
        ndarray of int, shape (n,)
            The answers.

        Raises
        ------
        SchemaError
            Raised if some `codes` are not integers from 0 to k - 1. The message contains none of the codes.

        Notes
        -----
        **Privacy.** Reads every code once. The caller must first record the cost (`entry`) in a ledger.
        """
        truth = checked_codes(codes, self.levels, "codes=")
        lying = source.bernoulli(self.lie, truth.shape)
        lie_codes = (source if lies is None else lies).integers(self.levels - 1, truth.shape)
        lie_codes = lie_codes + (lie_codes >= truth)
        return np.asarray(np.where(lying, lie_codes, truth), dtype=np.int64)

    @property
    def draws(self) -> tuple[Draw, Draw]:
        """Functions that draw the random numbers of `respond`, one for `source` and one for `lies`."""
        lie = self.lie
        other_levels = self.levels - 1
        return lambda source, rows: source.bernoulli(lie, rows), lambda source, rows: source.integers(
            other_levels, rows
        )

    def dummies(self, answers: ArrayLike) -> Floats:
        """Return unbiased estimates of the indicators of the codes.

        Parameters
        ----------
        answers : ndarray of int, shape (n,)
            Result of `respond`.

        Returns
        -------
        ndarray, shape (n, k)
            Numbers whose expectation over the noise is the indicator of each level.
        """
        return unbiased_dummies(checked_codes(answers, self.levels, "answers="), self.levels, self.epsilon)

    def entry(
        self,
        source: NoiseSource,
        *,
        label: str = Labels.ANSWER,
        unit: str = "record",
        trust: TrustModel = "local",
        assumptions: tuple[str, ...] = (Assumptions.PUBLIC_N, Assumptions.PUBLIC_PLACES),
    ) -> LedgerEntry:
        """Return the ledger entry for one answer of each unit.

        Parameters
        ----------
        source : NoiseSource
            Noise of the answers.
        label : str
            Description of the release in the ledger.
        unit : str
            Unit of privacy, such as "record".
        trust : {"local", "central"}
            Trust model, that is, who sees raw rows.
        assumptions : tuple of str
            Assumptions of the guarantee, which are stated in the ledger entry.

        Returns
        -------
        LedgerEntry
            The ledger entry.
        """
        clear = math.isinf(self.epsilon)
        noise_model = NoiseLaws.NONE if clear else NoiseLaws.RANDOMIZED_RESPONSE
        return LedgerEntry(
            mechanism=Mechanisms.RANDOMIZED_RESPONSE,
            label=label,
            unit=unit,
            relation="replace-one",
            trust=trust,
            sensitivity=Sensitivity(
                Norms.DISCRETE, 1.0, Derivations.ANY_TWO_LEVELS.format(levels=self.levels)
            ),
            noise={"law": noise_model, "levels": self.levels, "keep": self.keep},
            loss=PureLoss(self.epsilon),
            source=NoiseSources.NONE if clear else source.name,
            secure=not clear and source.secure,
            assumptions=assumptions,
        )


def lie_probability(levels: int, epsilon: float) -> float:
    """Return (k - 1) / (e^eps + k - 1), rounded up to a multiple of 2^-64."""
    odds = (levels - 1) * math.exp(-epsilon)
    if odds == 0.0 and math.isinf(epsilon):
        return 0.0
    exact = odds / (1.0 + odds)
    steps = max(1, math.ceil(exact * (1.0 + 2.0**-50) * 2.0**64))
    return min(steps * 2.0**-64, (levels - 1) / levels)


def unbiased_dummies(answers: Integers, levels: int, epsilon: float) -> Floats:
    """Return (1{z = l} - Q0) / (P - Q0), shape (n, k), whose mean given the code c is 1{c = l}.

    Parameters
    ----------
    answers : ndarray of int, shape (n,)
        Codes as answered, 0 to k - 1.

    Notes
    -----
    **Privacy.** Post-processing of the answers.
    """
    lie = lie_probability(levels, epsilon)
    lie_per_level = lie / (levels - 1)
    hits = np.equal(np.asarray(answers)[:, None], np.arange(levels))
    return np.asarray((hits - lie_per_level) / (1.0 - lie - lie_per_level), dtype=np.float64)


def checked_codes(codes: ArrayLike, levels: int, name: str) -> Integers:
    """Return codes as int64, shape (n,); SchemaError, without a value, if they are not 0, ..., k - 1."""
    try:
        array = np.asarray(codes)
    except ValueError:  # a ragged list
        raise SchemaError(f"{name} must be integers") from None
    if array.ndim != 1:
        raise SchemaError(f"{name} must have one dimension, got {array.ndim} dimensions")
    if array.dtype.kind == "b":
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise SchemaError(f"{name} must be integers")
    if array.size and (array.min() < 0 or array.max() >= levels):
        raise SchemaError(f"{name} must be integers from 0 to {levels - 1}")
    return array.astype(np.int64)
