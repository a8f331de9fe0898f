r"""The score equation of a proportional-hazards fit: score tests and score intervals of its slopes.

**Equation.** The final release has the mean score S of the records at theta_T, the mean secant Hessian H and
the meat M, in whitened coordinates ``theta = theta_T + W'd`` of the q baseline factors and the d slopes. Both
S and H have the same weights and the same stop, which are functions of the columns alone. So the score has
mean zero at the right coefficients, and the secant moves it there,

.. math:: S = H_0 d_0 + e, \qquad H = H_0 + N,

e of covariance ``M / n + (s_S^2 + a) I``: sampling, noise of S, and the allowance a for what weights and
clips leave out. N is symmetric noise of sd s_H on the diagonal and s_H / sqrt 2 beside it. At the truth,

.. math:: \psi(d_0) = S - H d_0 = e - N d_0, \qquad
          n \operatorname{Cov} \psi(d) = M + n (s_S^2 + a) I + \frac{n s_H^2}{2} (|d|^2 I + d d').

This is the equation of `privinf.inference.one_step`. No matrix is inverted along the tested direction, so
that its level does not depend on how well the release identifies the coefficient, and no prior is needed.

**Baseline.** Its q factors are nuisances: they solve their own rows at every value of the slopes
(`privinf.inference.partialled_scores`).

**Limits.** The Hessian is the secant along the last step. Where this step moves linear predictors by more
than 0.8 (root mean square), the secant to the truth is another one, and tests at 5% rejected a true null in
17% of such fits, as often as the intervals of the fit missed it. A note of the fit warns of such a
step. Otherwise tests kept their size in simulations, in weak fits too
(`benchmarks/results/hazard_scores.md`). Without noise the test is the robust Wald test. The target is that
of the fit: where events come after the stop, hazards must be proportional and effects linear for it to be
Cox's regression with complete follow-up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import linalg

from privinf.glm.curved import OneStepRelease
from privinf.glm.posterior_draws import restored
from privinf.inference.one_step import OneStepScores
from privinf.inference.partialled_scores import PartialledScores
from privinf.schema import Design
from privinf.typing import Flags, Floats


def hazard_system(settings: Mapping[str, Any], design: Design, n: int, cov_type: str) -> PartialledScores:
    """Return the equation of the slopes, in the design's scaled units, that the settings of a fit describe.

    Parameters
    ----------
    settings : mapping
        ``"curved"``, the final release as `privinf.glm.posterior_draws.recorded` describes it, and
        ``"to_user"``, shape (d, P), from coefficients in z to the user's.
    design : Design
        Of the d columns with coefficients.
    n : int
        Number of records.
    cov_type : str
        Kind of covariance.
    """
    step = restored(settings["curved"])
    transform, shift = design.to_user
    scaled = np.linalg.solve(transform, np.array(settings["to_user"]))
    q = len(step.score.mean) - len(scaled)
    origin = np.asarray(np.linalg.solve(transform, shift), dtype=np.float64)
    return slope_scores(step, scaled[:, q:], origin, n, ~design.private, cov_type)


def slope_scores(
    step: OneStepRelease, to_scaled: Floats, origin: Floats, n: int, noise_free: Flags, cov_type: str
) -> PartialledScores:
    """Return the equation of the d slopes ``to_scaled @ b - origin`` of a final release, b the slopes in z.

    Parameters
    ----------
    step : OneStepRelease
    to_scaled : ndarray, shape (d, d)
    origin : ndarray, shape (d,)
    n : int
        Number of records.
    noise_free : ndarray of bool, shape (d,)
        Slopes of columns that are declared public.
    cov_type : str
        Kind of covariance.
    """
    P = len(step.score.mean)
    q = P - len(to_scaled)
    slopes = np.arange(P) >= q
    units = linalg.block_diag(np.eye(q), to_scaled)
    equation = OneStepScores(
        to_scaled=units @ step.place.transform.T,
        start=units @ step.place.theta - np.concatenate([np.zeros(q), origin]),
        mean=step.score.mean,
        hessian=step.hessian.lifted(),
        released_hessian=step.hessian.mean,
        clean=step.meat,
        known=n * (step.score.sd**2 + step.allowance) * np.eye(P),
        hessian_sd=step.hessian.sd,
        residual=None,
        noise_free=~slopes,
        n=n,
        cov_type=cov_type,
    )
    return PartialledScores(system=equation, columns=slopes, noise_free=noise_free)
