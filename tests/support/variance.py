"""Named terms of a result's variance add up to it."""

import numpy as np


def terms_add_up(results, *, noise_free=False):
    """Named terms are the covariance, those of noise its noise part; without noise but mixing is left."""
    found = results.variance_formula
    np.testing.assert_allclose(
        sum(found.covariance(term) for term in found.variances), results.cov_params(), rtol=1e-6, atol=1e-12
    )
    np.testing.assert_allclose(found.variances.sum(axis=1), results.bse**2, rtol=1e-6)
    np.testing.assert_allclose(found.shares.sum(axis=1), 1.0)
    if found.noise:
        noise = sum(found.covariance(term) for term in found.noise)
        np.testing.assert_allclose(noise, results.noise_cov, rtol=1e-6, atol=1e-6 * (results.bse**2).max())
    for term in found.variances:
        assert term in found.equation or term == "noise of g with that of A"
    if noise_free:
        gone = [term for term in found.noise if term != "mixing"]
        assert gone
        assert (found.shares[gone].abs() < 1e-9).all(axis=None)
    return found
