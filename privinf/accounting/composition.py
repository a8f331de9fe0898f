"""Exact composition: the total privacy loss of several releases about the same unit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np

from privinf.accounting.calibration import binary_losses, binary_rounding, is_tractable, sum_up
from privinf.accounting.conversions import (
    gaussian_epsilon,
    hockey_stick,
    rho_to_delta,
    rho_to_epsilon,
    smallest_epsilon,
)
from privinf.accounting.losses import (
    ApproximateLoss,
    ConcentratedLoss,
    GaussianLoss,
    Loss,
    PureLoss,
    ThresholdLoss,
    pure_mu,
    pure_rho,
)
from privinf.error_boundary import error_boundaries, error_boundary
from privinf.errors import ArgumentError, NotAvailableError
from privinf.typing import Floats
from privinf.validation import check_fraction, check_number


@error_boundaries
@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """Joint privacy loss of releases about the same unit, as computed by :func:`compose`.

    Parameters
    ----------
    mu2 : float
        Sum of mu^2 over the Gaussian releases; infinite if a release has no noise.
    pure : tuple of float
        Epsilons of the randomized responses, and of other releases that have the privacy loss of a randomized
        response. The largest epsilon comes first.
    approximate : tuple of (float, float)
        Pairs (epsilon, delta) of the releases for which only an (epsilon, delta) guarantee is known.
    concentrated : float
        Sum of rho over the releases for which only a guarantee in zCDP is known.
    thresholded : tuple of (float, float)
        Pairs (mu, delta), one for each release of labels by noisy counts (`ThresholdLoss`).

    Notes
    -----
    **Privacy.** Costs nothing: no rows are read. The function delta(epsilon) is exact for Gaussian releases,
    randomized responses and worst-case (epsilon, delta) releases. In the worst case, an (epsilon, delta)
    release reveals the record with probability delta, and otherwise has the loss of a randomized response.
    The Gaussian losses add up to one Gaussian loss, and the losses of the randomized responses add up to a
    discrete loss with values l_j and probabilities p_j. The probability that no release reveals the record is
    prod(1 - delta_i)::

        delta(eps) = 1 - prod(1 - delta_i) (1 - sum_j p_j delta_Gauss(eps - l_j))

    If only a guarantee in zCDP is known for some release, the total is computed in zCDP and converted by
    `rho_to_epsilon`. The cost of a release of labels (`ThresholdLoss`) depends on the records. For some
    records the cost is mu^2 alone. For others it is mu^2/2 together with delta. For m such releases the
    total is therefore the largest loss over all k from 0 to m, where k is the number of releases with the
    second cost. The loss for k consists of the k largest deltas and of a sum of all mu^2, in which the k
    smallest mu^2 are halved.
    """

    mu2: float = 0.0
    pure: tuple[float, ...] = ()
    approximate: tuple[tuple[float, float], ...] = ()
    concentrated: float = 0.0
    thresholded: tuple[tuple[float, float], ...] = ()

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon >= 0 for which the total is (epsilon, `delta`)-DP.

        Parameters
        ----------
        delta : float
            In (0, 1).

        Returns
        -------
        float
            Epsilon, rounded up. Epsilon is infinite if a release has no noise. Epsilon is also infinite if 1
            - prod(1 - delta_i) is at least `delta`, where delta_i are the deltas of the (epsilon, delta)
            releases.

        Raises
        ------
        ArgumentError
            Raised if `delta` is outside (0, 1).
        """
        delta = check_fraction(delta, "delta")
        if self.thresholded:
            return max(case.epsilon(delta) for case in self._cases())
        leak = self._leak()
        if math.isinf(self.mu2) or leak >= delta:
            return math.inf
        rest = (delta - leak) / (1.0 - leak)
        if self.concentrated > 0.0:
            return rho_to_epsilon(self._rho(), rest)
        mu, losses, masses = self._mixture()
        if losses.size == 1:
            return gaussian_epsilon(mu, rest)
        slip, growth = binary_rounding(self._responses())
        high = float(losses.max()) + 0.5 * mu * mu + mu * math.sqrt(-2.0 * math.log(rest)) + 2.0 * slip
        epsilon = smallest_epsilon(
            lambda e: (1.0 + growth) * _mixture_delta(e - slip, mu, losses, masses), rest, high
        )
        return epsilon if self.mu2 > 0.0 else min(epsilon, sum_up(self._responses()))

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta for which the total is (`epsilon`, delta)-DP.

        Parameters
        ----------
        epsilon : float
            Epsilon of the guarantee, finite and at least 0.

        Returns
        -------
        float
            Delta.

        Raises
        ------
        ArgumentError
            Raised if `epsilon` is negative, infinite or not a number.
        """
        epsilon = check_number(epsilon, "epsilon", low=0.0)
        if self.thresholded:
            return max(case.delta(epsilon) for case in self._cases())
        if math.isinf(self.mu2):
            return 1.0
        if self.concentrated > 0.0:
            rest = rho_to_delta(self._rho(), epsilon)
        else:
            rest = _mixture_delta(epsilon, *self._mixture())
        leak = self._leak()
        return min(1.0, leak + (1.0 - leak) * rest)

    @property
    def mu(self) -> float:
        """Value of mu for which the total is mu-GDP; it is exact if all releases are Gaussian.

        If some releases are not Gaussian, the value is an upper bound. The attribute raises NotAvailableError
        if only a guarantee in zCDP or an (epsilon, delta) guarantee is known for some release.
        """
        if math.isinf(self.mu2):
            return math.inf
        self._refuse_approximate("mu")
        if self.concentrated > 0.0:
            raise NotAvailableError(
                "mu is not available, because at least one release is known only to satisfy zCDP, "
                "which does not imply Gaussian DP; use rho or epsilon(delta)"
            )
        return math.sqrt(self.mu2 + math.fsum(pure_mu(epsilon) ** 2 for epsilon in self.pure))

    @property
    def rho(self) -> float:
        """Value of rho for which the total is rho-zCDP.

        The attribute raises NotAvailableError if the total contains an (epsilon, delta) release.
        """
        if math.isinf(self.mu2):
            return math.inf
        self._refuse_approximate("rho")
        return self._rho()

    def __add__(self, other: Total) -> Total:
        """Sequential composition of two totals."""
        return Total(
            mu2=self.mu2 + other.mu2,
            pure=tuple(sorted(self.pure + other.pure, reverse=True)),
            approximate=tuple(sorted(self.approximate + other.approximate, reverse=True)),
            concentrated=self.concentrated + other.concentrated,
            thresholded=tuple(sorted(self.thresholded + other.thresholded, reverse=True)),
        )

    def dominates(self, other: Total) -> bool:
        """Return whether each component of this total is at least as large as that of another total.

        Parameters
        ----------
        other : Total
            The total to compare with.

        Returns
        -------
        bool
            If the result is True, the loss of this total is at least as large as the loss of `other`. If the
            result is False, the loss of this total may still be larger.
        """
        return upper_bound(self, other) == self

    def _cases(self) -> Iterator[Total]:
        """Yield a total that covers k releases of labels of which the record alone has one, k = 0, ..., m."""
        squares = sorted(mu * mu for mu, _ in self.thresholded)
        deltas = sorted((delta for _, delta in self.thresholded), reverse=True)
        for k in range(len(squares) + 1):
            halved = math.fsum([self.mu2, *squares[k:], *(square / 2.0 for square in squares[:k])])
            events = self.approximate + tuple((0.0, delta) for delta in deltas[:k])
            yield replace(self, mu2=halved, approximate=tuple(sorted(events, reverse=True)), thresholded=())

    def _leak(self) -> float:
        return -math.expm1(math.fsum(math.log1p(-delta) for _, delta in self.approximate))

    def _responses(self) -> tuple[float, ...]:
        return self.pure + tuple(epsilon for epsilon, _ in self.approximate)

    def _rho(self) -> float:
        return self.mu2 / 2.0 + math.fsum(map(pure_rho, self._responses())) + self.concentrated

    def _mixture(self) -> tuple[float, Floats, Floats]:
        """Return the Gaussian part and the atoms of the responses (bounded by Gaussians if intractable)."""
        responses = self._responses()
        if is_tractable(responses):
            return math.sqrt(self.mu2), *binary_losses(responses)
        bound = math.fsum(pure_mu(epsilon) ** 2 for epsilon in responses)
        return math.sqrt(self.mu2 + bound), *binary_losses(())

    def _refuse_approximate(self, quantity: str) -> None:
        if self.approximate or self.thresholded:
            raise NotAvailableError(
                f"{quantity} is not available, because at least one release has only an (epsilon, "
                "delta) guarantee; use epsilon(delta)"
            )


@error_boundaries
@dataclass(frozen=True, slots=True)
class ParallelTotal:
    """Joint privacy loss of releases about disjoint groups of units: the largest loss over the groups.

    Parameters
    ----------
    worlds : tuple of Total
        Total losses of the groups. A total that is never larger than another total is left out.

    Notes
    -----
    **Privacy.** The loss is valid only if the partition into groups was fixed before the data were seen.
    """

    worlds: tuple[Total, ...]

    def epsilon(self, delta: float) -> float:
        """Return the largest epsilon over all groups of units, at a given delta.

        Parameters
        ----------
        delta : float
            In (0, 1).

        Returns
        -------
        float
            Largest epsilon of a group.
        """
        return max(world.epsilon(delta) for world in self.worlds)

    def delta(self, epsilon: float) -> float:
        """Return the largest delta over all groups of units, at a given epsilon.

        Parameters
        ----------
        epsilon : float
            Epsilon of the guarantee, finite and at least 0.

        Returns
        -------
        float
            Largest delta of a group.
        """
        return max(world.delta(epsilon) for world in self.worlds)

    @property
    def mu(self) -> float:
        """Largest mu over all groups of units; NotAvailableError if some group has no mu."""
        return max(world.mu for world in self.worlds)

    @property
    def rho(self) -> float:
        """Largest rho over all groups of units; NotAvailableError if some group has no rho."""
        return max(world.rho for world in self.worlds)


@error_boundary
def compose(losses: Iterable[Loss]) -> Total:
    """Return the joint privacy loss of releases about the same unit (sequential composition).

    Parameters
    ----------
    losses : iterable of Loss
        Privacy losses of the releases, in any order. Without losses the total is zero.

    Returns
    -------
    Total
        The joint loss.

    Raises
    ------
    ArgumentError
        Raised if an element is not a privacy loss.

    Notes
    -----
    **Privacy.** Costs nothing: no rows are read. For mechanisms of different kinds, epsilon(delta) is exact
    if the parameters of all releases were fixed in advance. If parameters are chosen adaptively, a limit must
    be in mu^2, rho or pure epsilon, like the limit of a :class:`~privinf.accounting.Budget`.

    Examples
    --------
    >>> from privinf.accounting import GaussianLoss, PureLoss, compose
    >>> total = compose([GaussianLoss(0.3)] * 4 + [PureLoss(1.0)])
    >>> round(total.epsilon(1e-6), 3), round(total.rho, 3)
    (3.716, 0.642)
    """
    mu2: list[float] = []
    pure: list[float] = []
    approximate: list[tuple[float, float]] = []
    concentrated: list[float] = []
    thresholded: list[tuple[float, float]] = []
    for loss in losses:
        match loss:
            case GaussianLoss(mu):
                mu2.append(mu * mu)
            case PureLoss(epsilon):
                pure.append(epsilon)
            case ApproximateLoss(epsilon, delta):
                approximate.append((epsilon, delta))
            case ConcentratedLoss(rho):
                concentrated.append(rho)
            case ThresholdLoss(mu, delta):
                thresholded.append((mu, delta))
            case _:
                raise ArgumentError(
                    "losses= must contain privacy loss objects, such as GaussianLoss(mu=1.0), got "
                    f"{type(loss).__name__}"
                )
    if math.inf in pure or math.inf in concentrated:  # something went out in clear: nothing else matters
        return Total(mu2=math.inf)
    return Total(
        mu2=math.fsum(mu2),
        pure=tuple(sorted((epsilon for epsilon in pure if epsilon > 0.0), reverse=True)),
        approximate=tuple(sorted(approximate, reverse=True)),
        concentrated=math.fsum(concentrated),
        thresholded=tuple(sorted(thresholded, reverse=True)),
    )


def upper_bound(first: Total, second: Total) -> Total:
    """Return a total that covers both: part by part, responses paired in order of size."""
    return Total(
        mu2=max(first.mu2, second.mu2),
        pure=tuple(max(a, b) for a, b in zip_longest(first.pure, second.pure, fillvalue=0.0)),
        approximate=_pairwise(first.approximate, second.approximate),
        concentrated=max(first.concentrated, second.concentrated),
        thresholded=_pairwise(first.thresholded, second.thresholded),
    )


def _pairwise(
    first: tuple[tuple[float, float], ...], second: tuple[tuple[float, float], ...]
) -> tuple[tuple[float, float], ...]:
    pairs = zip_longest(first, second, fillvalue=(0.0, 0.0))
    return tuple((max(a[0], b[0]), max(a[1], b[1])) for a, b in pairs)


def available(figure: Callable[[], float]) -> float:
    """Return a figure of a total, nan where it is undefined: for tables."""
    try:
        return figure()
    except NotAvailableError:
        return math.nan


def _mixture_delta(epsilon: float, mu: float, losses: Floats, masses: Floats) -> float:
    return float(np.dot(masses, hockey_stick(epsilon - losses, mu)))
