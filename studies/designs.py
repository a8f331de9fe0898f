"""Designs with a known truth, on which the package's claims are measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from privinf.schema import add_constant
from privinf.typing import Floats, RngLike
from privinf.validation import as_generator, check_count

SPHERE_BETA = (1.0, -0.5, 0.25, 0.0, 0.8)  # b of `sphere_design`
CUBE_BETA = (0.5, -0.3, 0.2)  # b of the design on a cube
ERROR_SD = 0.3  # of both
CUBE_RESPONSE_BOUND = 2.0  # to which the response is clipped on both sides
INTERCEPT = 0.7  # coefficient of an added constant
COVARIATE_SLOPE = -0.4  # coefficient of an added public column z


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One draw of a design.

    Attributes
    ----------
    y : ndarray, shape (n,)
    X : DataFrame, shape (n, p)
        Public columns (``const``, ``z``) are declared in its ``attrs``, as `privinf.add_constant` does.
    params : Series, shape (p,)
        The true coefficients, in the order of the columns.
    slopes : Series, shape (d,)
        Those of the private columns.
    """

    y: Floats
    X: pd.DataFrame
    params: pd.Series[float]
    slopes: pd.Series[float]


def sphere_design(
    n: int, rng: RngLike = None, *, intercept: bool = False, public_covariate: bool = False
) -> Sample:
    """Return y = x'b + .3 N(0, 1) with x uniform on the unit sphere of R^5, b = (1, -.5, .25, 0, .8).

    Parameters
    ----------
    n : int
    rng : None, int or Generator
    intercept : bool
        Add a constant (coefficient .7).
    public_covariate : bool
        Add a public column z = U(-1, 1) + x1 (coefficient -.4), correlated with a private one.
    """
    generator = as_generator(rng)
    x = generator.standard_normal((check_count(n, "n"), len(SPHERE_BETA)))
    x /= np.sqrt(np.einsum("ij,ij->i", x, x))[:, None]
    y = x @ SPHERE_BETA + ERROR_SD * generator.standard_normal(n)
    return _sample(y, x, SPHERE_BETA, generator, intercept=intercept, public_covariate=public_covariate)


def cube_design(
    n: int, rng: RngLike = None, *, intercept: bool = False, public_covariate: bool = False
) -> Sample:
    """Return y = x'b + .3 N(0, 1) clipped at 2, x uniform on [-1, 1]^3, b = (.5, -.3, .2).

    Parameters are those of `sphere_design`. The added terms enter after the clipping, so that the clipped
    values keep their regression; |y| is then at most 2 + .7 + .8.
    """
    generator = as_generator(rng)
    x = generator.uniform(-1.0, 1.0, (check_count(n, "n"), len(CUBE_BETA)))
    y = x @ CUBE_BETA + ERROR_SD * generator.standard_normal(n)
    y = np.clip(y, -CUBE_RESPONSE_BOUND, CUBE_RESPONSE_BOUND)
    return _sample(y, x, CUBE_BETA, generator, intercept=intercept, public_covariate=public_covariate)


def _sample(
    y: Floats,
    x: Floats,
    beta: tuple[float, ...],
    rng: np.random.Generator,
    *,
    intercept: bool,
    public_covariate: bool,
) -> Sample:
    names = [f"x{j + 1}" for j in range(len(beta))]
    frame = pd.DataFrame(x, columns=names)
    slopes = pd.Series(beta, index=names)
    params = slopes
    if intercept:
        frame = add_constant(frame)
        y = y + INTERCEPT
        params = pd.concat([pd.Series({"const": INTERCEPT}), params])
    if public_covariate:
        frame["z"] = rng.uniform(-1.0, 1.0, len(y)) + x[:, 0]
        frame.attrs["privinf_public"] = (*frame.attrs.get("privinf_public", ()), "z")
        y = y + COVARIATE_SLOPE * frame["z"].to_numpy()
        params = pd.concat([params, pd.Series({"z": COVARIATE_SLOPE})])
    return Sample(y, frame, params, slopes)
