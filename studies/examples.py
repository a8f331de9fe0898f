"""Designs for locally private examples: labels of two or three levels, the truth known or computable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import pandas as pd

from privinf.errors import ArgumentError
from privinf.schema import add_constant
from privinf.typing import Floats, RngLike
from privinf.validation import as_generator, check_choice, check_count, check_number
from studies.designs import Sample

LOGIT = (1.5, -1.0)  # coefficients of x1 and x2 in `labelled_examples`
Loss = Literal["squared", "quadratic", "exponential"]
Term = Literal["const", "z", "b", "g"]

# Coefficients of its optional columns.
_TERMS = {"const": -0.3, "z": 0.5, "b": 0.8, "C(g)[T.v]": 0.6, "C(g)[T.w]": -0.7}
# Those of a three-level label: constant, x1, x2; level "u" is the reference.
STAGES = {"v": (0.4, 1.2, -0.5), "w": (-0.2, -0.6, 1.0)}  # constant, x1, x2; level "u" is the reference
_SCALE = 4.0  # features are divided by this and clipped at -1 and 1
_FLIPPED = 0.01  # share of labels that are drawn again at random
_NODES = 48  # of the quadrature along each feature


def labelled_examples(n: int, rng: RngLike = None, *, terms: Sequence[Term] = ()) -> Sample:
    """Return x uniform on [-1, 1]^2 and labels 0, 1 of the logistic model with slopes (1.5, -1).

    Parameters
    ----------
    n : int
    rng : None, int or Generator
    terms : sequence of {"const", "z", "b", "g"}
        Further columns with effects: a constant (-.3), a public covariate z = U(-1, 1) + x1/2 (.5), a binary
        feature b whose mean depends on x1 (.8), a factor g of levels u, v, w whose law depends on x2
        (effects of v and w: .6, -.7).

    Raises
    ------
    ArgumentError
        For a term that there is not.

    Examples
    --------
    >>> labelled_examples(1000, 0, terms=["const", "b"]).params.to_dict()
    {'const': -0.3, 'x1': 1.5, 'x2': -1.0, 'b': 0.8}
    """
    for term in terms:
        check_choice(term, get_args(Term), "term")
    generator = as_generator(rng)
    x = generator.uniform(-1.0, 1.0, (check_count(n, "n"), len(LOGIT)))
    frame = pd.DataFrame(x, columns=["x1", "x2"])
    if "const" in terms:
        frame = add_constant(frame)
    if "z" in terms:
        frame["z"] = generator.uniform(-1.0, 1.0, n) + x[:, 0] / 2.0
        frame.attrs["privinf_public"] = (*frame.attrs.get("privinf_public", ()), "z")
    if "b" in terms:
        frame["b"] = np.where(generator.random(n) < 0.45 + 0.2 * x[:, 0], 1.0, 0.0)
    columns = frame
    if "g" in terms:
        code = np.searchsorted([0.4, 0.7], generator.random(n) + 0.1 * x[:, 1])
        dummies = {f"C(g)[T.{level}]": np.where(code == k, 1.0, 0.0) for k, level in ((1, "v"), (2, "w"))}
        columns = frame.assign(**dummies)
        frame = frame.assign(g=np.array(["u", "v", "w"])[code])
    known = dict(zip(("x1", "x2"), LOGIT, strict=True)) | _TERMS
    params = pd.Series({str(name): known[str(name)] for name in columns}, dtype=np.float64)
    y = generator.random(n) < _expit(columns.to_numpy() @ params.to_numpy())
    return Sample(y.astype(np.float64), frame, params, params[["x1", "x2"]])


def staged_examples(n: int, rng: RngLike = None) -> Sample:
    """Return x uniform on [-1, 1]^2 and labels 0, 1, 2 of a multinomial logistic model (`STAGES`).

    Parameters
    ----------
    n : int
    rng : None, int or Generator
    """
    generator = as_generator(rng)
    x = generator.uniform(-1.0, 1.0, (check_count(n, "n"), 2))
    params = pd.Series(
        {
            f"{name}[{level}]": value
            for level, values in STAGES.items()
            for name, value in zip(("Intercept", "x1", "x2"), values, strict=True)
        }
    )
    linear = np.column_stack([np.ones(n), x]) @ np.array(list(STAGES.values())).T
    weights = np.column_stack([np.ones(n), np.exp(linear)])
    cumulative = np.cumsum(weights, axis=1) / weights.sum(axis=1, keepdims=True)
    labels = (generator.random(n)[:, None] > cumulative).sum(axis=1)
    names = [name for name in params.index if not name.startswith("Intercept")]
    return Sample(labels.astype(np.float64), pd.DataFrame(x, columns=["x1", "x2"]), params, params[names])


def examples_target(loss: Loss, *, ridge: float = 0.0) -> Floats:
    r"""Return the minimiser of the population loss plus ``ridge ||theta||^2/2`` in `labelled_examples`.

    Parameters
    ----------
    loss : {"squared", "quadratic", "exponential"}
        Squared: of the labels 0, 1; the others of labels -1, 1.
    ridge : float

    Returns
    -------
    (2,) array

    Notes
    -----
    Newton iterations on the expectation by Gauss-Legendre quadrature over x: exact to 1e-12.

    Examples
    --------
    >>> examples_target("quadratic").round(3)
    array([ 0.638, -0.411])
    """
    check_choice(loss, get_args(Loss), "loss")
    check_number(ridge, "ridge", low=0.0)
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    x = np.stack(np.meshgrid(nodes, nodes, indexing="ij"), axis=-1).reshape(-1, 2)
    w = np.outer(weights, weights).ravel() / 4.0
    p = _expit(x @ np.array(LOGIT))
    theta = np.zeros(2)
    for _ in range(30):
        eta = x @ theta
        if loss == "exponential":
            up, down = (1.0 - p) * np.exp(eta), p * np.exp(-eta)
            slope = up - down
            curvature = up + down
        else:
            slope = eta - (2.0 * p - 1.0 if loss == "quadratic" else p)
            curvature = np.ones_like(eta)
        gradient = x.T @ (w * slope) + ridge * theta
        theta = theta - np.linalg.solve(x.T @ (x * (w * curvature)[:, None]) + ridge * np.eye(2), gradient)
    return np.asarray(theta, dtype=np.float64)


def classification_design(n: int, p: int, rng: RngLike = None) -> Sample:
    """Return two classes as scikit-learn's make_classification draws them, features inside [-1, 1]^p.

    Parameters
    ----------
    n : int
    p : int
        2 (both features informative), or at least 4: two informative, two redundant, the rest noise.
    rng : None, int or Generator

    Returns
    -------
    Sample
        Its `params` are not the coefficients of any model: zeros.

    Raises
    ------
    ArgumentError
        For another p.

    Notes
    -----
    One cluster a class: normal, with a random linear map (uniform entries), around two random vertices of
    {-1, 1}^2; redundant features are random combinations of the informative ones; 1% of the labels are drawn
    anew. All features are divided by 4 and clipped to [-1, 1], which bounds them without looking at them.

    References
    ----------
    Paper 4, section 6 and appendix E, which names make_classification and [-1, 1]^p only.

    Examples
    --------
    >>> sample = classification_design(1000, 10, 0)
    >>> sample.X.shape, bool(sample.X.abs().max().max() <= 1.0)
    ((1000, 10), True)
    """
    if check_count(p, "p", least=2) == 3:
        raise ArgumentError("p=3: there are 2 features, or at least 4 (two informative, two redundant)")
    generator = as_generator(rng)
    labels = generator.integers(0, 2, check_count(n, "n"))
    vertices = np.array([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
    centres = vertices[generator.choice(4, 2, replace=False)]
    maps = generator.uniform(-1.0, 1.0, (2, 2, 2))
    x = generator.standard_normal((n, p))
    x[:, :2] = np.where(labels[:, None] == 1, x[:, :2] @ maps[1], x[:, :2] @ maps[0]) + centres[labels]
    if p > 2:
        x[:, 2:4] = x[:, :2] @ generator.uniform(-1.0, 1.0, (2, 2))
    flipped = generator.random(n) < _FLIPPED
    labels[flipped] = generator.integers(0, 2, int(flipped.sum()))
    names = [f"x{j + 1}" for j in range(p)]
    frame = pd.DataFrame(np.clip(x / _SCALE, -1.0, 1.0), columns=names)
    zero = pd.Series(0.0, index=names)
    return Sample(labels.astype(np.float64), frame, zero, zero)


def _expit(x: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-x)), dtype=np.float64)
