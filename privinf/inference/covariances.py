"""Covariances of coefficients by the name that ``cov_type=`` takes: assumptions and required releases.

All are sandwiches ``A^-1 M A^-1 / n``. A release supports one meat M, with the noise in it; a class states
which one, and its effect on the solved estimate.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from privinf.inference.estimate import Estimate
from privinf.inference.solution import small_sample
from privinf.typing import CovWord, Floats, SamplingKind


class Covariance:
    """The covariance that a release was planned for: the default of a fit.

    Attributes
    ----------
    name : CovWord or None
        What ``cov_type=`` calls it.
    release : CovWord or None
        The kind that the release must be made for; None: any.
    sampling : {"heteroskedastic", "homoskedastic"}
        Whether the sampling error's meat sums squared scores or assumes that errors have one variance.
    independent_rows : bool
        Whether it takes rows as independent of one another.
    """

    name: ClassVar[CovWord | None] = None
    release: ClassVar[CovWord | None] = None
    sampling: ClassVar[SamplingKind] = "heteroskedastic"
    independent_rows: ClassVar[bool] = True

    @classmethod
    def finish(cls, estimate: Estimate, sampling_cov: Floats | None) -> tuple[Estimate, Floats | None]:
        """Return the solved estimate and the covariance without noise, (p, p), as this kind has them."""
        return estimate, sampling_cov


class HomoskedasticCovariance(Covariance):
    """The errors' variance times the inverse of the Hessian: errors have one variance."""

    name: ClassVar[CovWord | None] = "nonrobust"
    release: ClassVar[CovWord | None] = "nonrobust"
    sampling: ClassVar[SamplingKind] = "homoskedastic"


class RobustCovariance(Covariance):
    """The sandwich of squared scores, whatever the variance of the errors depends on."""

    name: ClassVar[CovWord | None] = "HC0"
    release: ClassVar[CovWord | None] = "HC0"


class SmallSampleCovariance(RobustCovariance):
    """The sandwich of squared scores with its sampling part times n/(n - p)."""

    name: ClassVar[CovWord | None] = "HC1"

    @classmethod
    def finish(cls, estimate: Estimate, sampling_cov: Floats | None) -> tuple[Estimate, Floats | None]:
        """Return both with the factor, of the estimate's covariance on what the noise does not cause."""
        if sampling_cov is not None:
            n = estimate.nobs
            sampling_cov = sampling_cov * (n / max(n - len(estimate.params), 1))
        return small_sample(estimate), sampling_cov


class ClusteredCovariance(Covariance):
    """The sandwich of scores that are summed over the rows of a schema's unit before they are squared."""

    name: ClassVar[CovWord | None] = "cluster"
    release: ClassVar[CovWord | None] = "cluster"
    independent_rows: ClassVar[bool] = False


# Every kind of covariance that a fit can compute.
COVARIANCES: Mapping[str, type[Covariance]] = MappingProxyType(
    {
        "nonrobust": HomoskedasticCovariance,
        "HC0": RobustCovariance,
        "HC1": SmallSampleCovariance,
        "cluster": ClusteredCovariance,
    }
)


def sampling_kind(cov_type: str) -> SamplingKind:
    """Return how an estimate's covariance sees the sampling error; kinds that no fit requests: by scores."""
    return COVARIANCES.get(cov_type, Covariance).sampling


def takes_rows_as_independent(cov_type: str) -> bool:
    """Return whether an estimate's covariance is one of those that a unit of several rows invalidates."""
    return cov_type in COVARIANCES and COVARIANCES[cov_type].independent_rows
