"""The test of the target of a simulated proportional-hazards fit (`privinf.glm.hazards.target_test`)."""

from __future__ import annotations

import math

import numpy as np

from privinf.errors import NotAvailableError
from privinf.glm.hazards.path import HazardFit
from privinf.glm.hazards.target_test import TargetTestResult, target_test
from privinf.glm.posterior_draws import PosteriorDraws, noise_of_draws


def follow_up_test(fit: HazardFit, posterior: PosteriorDraws, n: int) -> TargetTestResult | None:
    """Return the test that `PHReg` makes of a fit of n records; None where it is not available."""
    q = fit.baseline.blocks
    total = np.atleast_2d(np.cov(posterior.draws.T))
    noise = noise_of_draws(posterior, total)
    if fit.early is None or noise is None:
        return None
    try:
        return target_test(fit.early, posterior.params[q:], total[q:, q:], noise[q:, q:], n, fit.stop)
    except NotAvailableError:
        return None


def follow_up_pvalue(fit: HazardFit, posterior: PosteriorDraws, n: int) -> float:
    """Return its p-value; not a number where the test is not available."""
    result = follow_up_test(fit, posterior, n)
    return math.nan if result is None else result.pvalue
