"""Privacy losses: the cost of one release, in the privacy definition of its mechanism's proof.

Five kinds are enough for everything that the package composes. Each is a small frozen record; how they add
up is the business of :mod:`privinf.accounting.composition`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any, TypeAlias, TypeVar

from scipy.special import erfinv, log_expit, ndtri_exp

from privinf.error_boundary import error_boundaries, error_boundary
from privinf.errors import ArgumentError
from privinf.validation import check_choice, check_number, error_text, shown

INTACT_FILE = "; use an intact copy of its file"  # ends an error about a damaged record

# A cost outside these powers of ten is a mistake in the caller (a subnormal scale, a wrong unit); refusing it
# keeps squares and exponentials of every accepted cost representable.
_SMALLEST = 1e-100  # positive cost
_LARGEST = 1e100  # finite cost
V = TypeVar("V")


def check_cost(value: Any, name: str, *, infinite: bool = True) -> float:
    """Return a privacy cost in the range in which squares and exponentials are representable."""
    cost = check_number(value, name, low=0.0, infinite=infinite)
    if 0.0 < cost < _SMALLEST or _LARGEST < cost < math.inf:
        raise ArgumentError(
            f"{name}={shown(cost)} is not a plausible privacy loss; pass a number from 1e-100 to "
            "1e100, or math.inf for no noise"
        )
    return cost


@error_boundaries
@dataclass(frozen=True, slots=True)
class GaussianLoss:
    """Privacy loss of a release with Gaussian noise: Gaussian differential privacy of parameter mu (mu-GDP).

    Parameters
    ----------
    mu : float
        Sensitivity divided by the standard deviation of the noise. Parameter of the loss: 0 means that
        nothing is revealed, and infinity means a release without noise.

    Raises
    ------
    ArgumentError
        Raised if `mu` is negative, nan, subnormal or too large.

    References
    ----------
    Dong, Roth and Su (2022), Gaussian differential privacy, JRSS B 84.
    """

    mu: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", check_cost(self.mu, "mu"))

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that can be written as JSON.

        Returns
        -------
        dict
            For :func:`loss_from_dict`.
        """
        return {"kind": "gaussian", "mu": json_number(self.mu)}


@error_boundaries
@dataclass(frozen=True, slots=True)
class PureLoss:
    """Privacy loss of a pure epsilon mechanism, such as randomized response.

    Every pure epsilon mechanism is a post-processing of binary randomized response, so its loss is at most
    the loss of binary randomized response, which is plus or minus epsilon. Totals are computed with exactly
    this loss.

    Parameters
    ----------
    epsilon : float
        Epsilon of the guarantee: 0 means that nothing is revealed, and infinity means an answer without
        protection.

    Raises
    ------
    ArgumentError
        Raised if `epsilon` is negative, nan, subnormal or too large.

    References
    ----------
    Kairouz, Oh and Viswanath (2015), The composition theorem for differential privacy.
    """

    epsilon: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_cost(self.epsilon, "epsilon"))

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that can be written as JSON.

        Returns
        -------
        dict
            For :func:`loss_from_dict`.
        """
        return {"kind": "pure", "epsilon": json_number(self.epsilon)}


@error_boundaries
@dataclass(frozen=True, slots=True)
class ApproximateLoss:
    """Privacy loss of a mechanism for which only an (epsilon, delta) guarantee is known.

    The composition assumes the worst case. With probability `delta`, the release reveals the record.
    Otherwise, the release has the loss of a :class:`PureLoss` with the same epsilon.

    Parameters
    ----------
    epsilon : float
        Epsilon of the guarantee, finite and at least 0.
    delta : float
        Delta of the guarantee, strictly between 0 and 1. For delta = 0 use :class:`PureLoss`.

    Raises
    ------
    ArgumentError
        Raised if `epsilon` or `delta` is out of range.
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_cost(self.epsilon, "epsilon", infinite=False))
        delta = check_number(self.delta, "delta", low=0.0, high=1.0, open_low=True, open_high=True)
        object.__setattr__(self, "delta", delta)

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that can be written as JSON.

        Returns
        -------
        dict
            For :func:`loss_from_dict`.
        """
        return {"kind": "approximate", "epsilon": self.epsilon, "delta": self.delta}


@error_boundaries
@dataclass(frozen=True, slots=True)
class ConcentratedLoss:
    """Privacy loss stated in zero-concentrated differential privacy (zCDP), where no tighter bound is known.

    Parameters
    ----------
    rho : float
        Parameter of the loss: 0 means that nothing is revealed, and infinity means a release without noise.

    Raises
    ------
    ArgumentError
        Raised if `rho` is negative, nan, subnormal or too large.

    Notes
    -----
    A guarantee in zCDP does not imply a guarantee in Gaussian DP, so a total that contains such a loss has no
    mu. Do not use this class for a release with Gaussian noise, because :class:`GaussianLoss` is exact.
    """

    rho: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", check_cost(self.rho, "rho"))

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that can be written as JSON.

        Returns
        -------
        dict
            For :func:`loss_from_dict`.
        """
        return {"kind": "concentrated", "rho": json_number(self.rho)}


@error_boundaries
@dataclass(frozen=True, slots=True)
class ThresholdLoss:
    """Privacy loss of noisy counts of labels, of which only counts above a threshold are released.

    Parameters
    ----------
    mu : float
        Parameter mu of the noisy counts: sqrt(2) divided by the standard deviation of the noise. This mu must
        be finite.
    delta : float
        Largest probability that a label of only one record is released, strictly between 0 and 1.

    Notes
    -----
    Neighboring tables differ in the label of one record. There are three cases. (1) If the old and the new
    label both occur in both tables, two counts differ by 1, and the release of the two counts is mu-GDP. (2)
    If one of these two labels occurs in only one table, it is released with probability at most `delta`. The
    count of the other label differs by 1, and the release of this count is (mu/sqrt 2)-GDP. (3) If the old
    label and the new label each occur in only one table, the counts of all other labels are equal. If m
    releases are composed, some k of them are in case 2 or 3, and the others are in case 1. The total loss is
    the largest loss over all k from 0 to m. A release in case 1 costs its mu^2. A release in case 2 or 3
    costs its delta and half of its mu^2.
    """

    mu: float
    delta: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", check_cost(self.mu, "mu", infinite=False))
        delta = check_number(self.delta, "delta", low=0.0, high=1.0, open_low=True, open_high=True)
        object.__setattr__(self, "delta", delta)

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that can be written as JSON.

        Returns
        -------
        dict
            For :func:`loss_from_dict`.
        """
        return {"kind": "threshold", "mu": self.mu, "delta": self.delta}


Loss: TypeAlias = GaussianLoss | PureLoss | ApproximateLoss | ConcentratedLoss | ThresholdLoss
_KINDS: dict[str, type[Loss]] = {
    "gaussian": GaussianLoss,
    "pure": PureLoss,
    "approximate": ApproximateLoss,
    "concentrated": ConcentratedLoss,
    "threshold": ThresholdLoss,
}


@error_boundary
def loss_from_dict(record: Mapping[str, Any]) -> Loss:
    """Make a privacy loss from a dictionary that its method ``to_dict()`` returned.

    Parameters
    ----------
    record : mapping
        Result of ``to_dict``.

    Returns
    -------
    Loss
        The same loss.

    Raises
    ------
    ArgumentError
        Raised if the kind of the loss is unknown, or a parameter is missing or out of range.
    """
    if not isinstance(record, Mapping):
        raise ArgumentError("a stored loss must be a mapping with its kind and its numbers")
    fields = dict(record)
    kind = check_choice(fields.pop("kind", None), tuple(_KINDS), "kind")
    try:
        return _KINDS[kind](**{name: float(value) for name, value in fields.items()})
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(
            f"a stored privacy loss ({kind}) is not valid, because {error_text(error)}{INTACT_FILE}"
        ) from None


@error_boundary
def pure_mu(epsilon: float) -> float:
    """Return the mu for which every pure epsilon mechanism is mu-GDP: 2 Phi^-1(e^eps / (1 + e^eps)).

    Parameters
    ----------
    epsilon : float
        In [0, inf].

    Returns
    -------
    float
        Value of mu. It is an upper bound, because the trade-off curve of binary randomized response touches
        the curve of mu-GDP at only one point. Exact totals use the loss of binary randomized response and not
        this mu.
    """
    epsilon = check_number(epsilon, "epsilon", low=0.0, infinite=True)
    if math.isinf(epsilon):
        return math.inf
    if epsilon < 1.0:  # the normal quantile near 1/2 would lose the digits of a small epsilon
        return float(2.0 * math.sqrt(2.0) * erfinv(math.tanh(epsilon / 2.0)))
    return float(-2.0 * ndtri_exp(log_expit(-epsilon)))


@error_boundary
def pure_rho(epsilon: float) -> float:
    """Return the smallest rho for which every pure epsilon mechanism is rho-zCDP: eps tanh(eps / 2).

    Parameters
    ----------
    epsilon : float
        In [0, inf].

    Returns
    -------
    float
        rho of zero-concentrated differential privacy.
    """
    epsilon = check_number(epsilon, "epsilon", low=0.0, infinite=True)
    return epsilon * math.tanh(epsilon / 2.0)


def noise_free(loss: Loss) -> bool:
    """Return whether a loss is that of a release without noise."""
    return any(math.isinf(number) for number in astuple(loss))


def json_number(value: V) -> V | str:
    """Return a number as JSON holds it: infinity, which JSON lacks, as the text that float() reads back."""
    return "inf" if isinstance(value, float) and math.isinf(value) else value
