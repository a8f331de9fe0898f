"""Whether stated sensitivities are right: pairs of records, or of sites, that reach and never pass them."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.spatial.distance import cdist

from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.statistics.block import SiteBlock
from privinf.mechanisms.statistics.families import score_diameter
from studies.paper import statistics as _registers  # noqa: F401

P, LOW, HIGH, Y = 3, -2.0, 2.0, 3.0
TWO = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
BETA = {"support": np.array([2]), "beta": np.array([0.4]), "intercept": 0.1}
SCORE = BETA | {"columns": np.arange(3), "transform": TWO, "clip": 1.5, "residual_clip": 0.8}
LINEAR = {"family": "gaussian", "theta": np.zeros(P), "radius": 1.5, "residual_clip": 0.8}
LOGISTIC = {"family": "binomial", "theta": np.array([0.6, -0.3, 0.2]), "radius": 1.5}
POISSON = {
    "family": "poisson",
    "theta": np.full(P, 0.3),
    "radius": 1.5,
    "residual_clip": 2.0,
    "mean_cap": 4.0,
}
SITE = {"client_rows": 4}
CURVED = {
    "family": "binomial",
    "theta": np.zeros(P),
    "transform": np.diag([1.0, 0.8, 1.3]),
    "score_bound": 0.6,
    "curvature_bound": 0.25,
}
TILTED = CURVED | {"theta": np.array([0.6, -0.3, 0.2])}
BESIDE = CURVED | {
    "columns": np.array([2, 0]),
    "theta": np.array([0.2, 0.5]),
    "intercept": -0.3,
    "transform": np.array([[1.0, 0.2], [-0.1, 0.8]]),
    "offset": np.array([0.4, -0.3]),
}
COUNTED = CURVED | {"family": "poisson"}
# The hazard is 1 from the first edge on; records are followed until it has added up to 1.
HAZARDS = {
    "columns": np.array([0, 1]),
    "status": 2,
    "edges": np.array([0.3, 0.6]),
    "increments": np.array([0.5, 0.5]),
    "blocks": np.zeros(2),
    "theta": np.zeros(2),
    "transform": np.eye(2),
    "offsets": np.zeros((1, 2)),
    "stop": 1.0,
}
BLOCKS = HAZARDS | {
    "blocks": np.array([0.0, 1.0]),
    "theta": np.array([0.2, -0.1]),
    "transform": np.array([[1.2, 0.1, 0.3], [0.0, 0.7, -0.2]]),
    "offsets": np.array([[0.5, 0.1, 0.0], [-0.2, 0.4, 0.3]]),
    "stop": 2.0,
}
DISPERSED = {
    "family": "poisson",
    "theta": np.array([0.6, -0.3, 0.2]),
    "transform": np.eye(P)[:, :1],
    "by_count": np.array([[0.0, 0.0, 0.5, 1.2], [0.0, 1.0, 2.0, 3.0]]),
    "by_mean": np.array([[1.0, 1.0, 0.6], [0.0, 0.4, 0.8], [-0.4, 0.3, 0.9]]),
    "width": 1.0,
    "mean_unit": 1.0,
}
WHITENED = {
    "response_factor": 0.5,
    "theta": np.array([0.3, -0.2, 0.1]),
    "unit": 0.6,
    "whitening": np.array([[1.2, 0.1, 0.0], [0.0, 0.7, -0.3], [0.2, 0.0, 1.0]]),
}
LAYERS = WHITENED | {"low": 0.5, "high": 1.4, "weight": 1.7}
FORMS = BETA | {"columns": np.arange(3), "transform": TWO + 0.1, "unit": 0.6}
# Statistic and arguments; the least share of each stated size that some pair must reach.
CASES: dict[str, tuple[str, dict[str, Any], float]] = {
    "clipped_products": ("clipped_products", BETA | {"bound": 0.7}, 0.99),
    "union_gram": ("union_gram", {"columns": np.arange(3), "bound": 1.0, "norm": 1.2}, 0.9),
    "union_gram, forms": (
        "union_gram",
        {"columns": np.arange(3), "transform": TWO, "bound": 1.0, "norm": 1.2},
        0.99,
    ),
    "clipped_score, of a column": (
        # The column stands in u as well: its residual does not turn without u.
        "clipped_score",
        {k: v for k, v in SCORE.items() if k != "intercept"} | {"response": 0},
        0.95,
    ),
    "column_product_vector, forms": (
        "column_product_vector",
        {"targets": np.arange(3), "transform": TWO[:, :1], "bound": 2.0, "norm": 0.8},
        0.8,
    ),
    "union_gram, one": ("union_gram", {"columns": np.array([2]), "bound": 1.5}, 0.99),
    "clipped_score": ("clipped_score", SCORE, 0.99),
    "slopes": ("slopes", SCORE | {"targets": np.array([1, 0]), "column_clip": 1.8, "norm": 0.9}, 0.95),
    "score_variances": ("score_variances", SCORE, 0.99),
    "residual_histogram": ("residual_histogram", BETA | {"edges": np.geomspace(0.1, 4.0, 6)}, 0.99),
    "squared_residuals": ("squared_residuals", BETA | {"residual_clip": 0.8}, 0.99),
    "residual_sum": ("residual_sum", BETA | {"residual_clip": 0.8}, 0.99),
    "column_sums": ("column_sums", {"columns": np.array([0, 2]), "bound": 1.5}, 0.99),
    "column_squares": ("column_squares", {"columns": np.array([0, 2]), "bound": 1.5}, 0.99),
    "shrunk_sums": ("shrunk_sums", {"columns": np.array([0, 2]), "norm": 1.5}, 0.99),
    "columns_outside": ("columns_outside", {"columns": np.array([0, 2])}, 0.99),
    "complete_rows": ("complete_rows", {}, 1.0),
    "values_outside": ("values_outside", {"columns": np.array([0, 2]), "outcome": True}, 0.99),
    "survival.cells": ("survival.cells", {"edges": np.linspace(0.04, 0.48, 12), "status": 1}, 0.99),
    "survival.cells, groups": (
        "survival.cells",
        {"edges": np.linspace(0.04, 0.48, 12), "status": 1, "groups": [0, 2], "counted": True},
        0.99,
    ),
    "survival.cells, negative": (
        "survival.cells",
        {"edges": np.array([0.1, 0.3]), "status": 1, "negative": True},
        0.99,
    ),
    "glm.score": ("glm.score", LINEAR, 0.99),
    "glm.score, logistic": ("glm.score", LOGISTIC, 0.9),
    "glm.score, some columns": ("glm.score", LINEAR | {"block": np.array([0, 1])}, 0.99),
    "glm.score, sites": ("glm.score", LINEAR | SITE, 0.99),
    "glm.score, sites, clipped": ("glm.score", LINEAR | SITE | {"client_clip": 1.9}, 0.99),
    "glm.hessian": ("glm.hessian", LINEAR, 0.99),
    "glm.hessian, logistic": ("glm.hessian", LOGISTIC | {"theta": np.zeros(P)}, 0.99),
    "glm.hessian, Poisson": ("glm.hessian", POISSON | {"curvature": "bound", "theta": np.full(P, 9.0)}, 0.7),
    "glm.meat": ("glm.meat", LINEAR, 0.99),
    "glm.sketched_score": ("glm.sketched_score", LINEAR | {"clip": 0.9}, 0.99),
    "glm.sketched_score, sites": (
        "glm.sketched_score",
        LINEAR | SITE | {"clip": 0.9, "client_clip": 1.1},
        0.99,
    ),
    "moments.total": (
        "moments.total",
        {"constant": 0, "norm": 1.2, "response_factor": 0.5, "response_bound": 1.3},
        0.93,
    ),
    "moments.residual": (
        "moments.residual",
        {
            "constant": 0,
            "norm": 1.2,
            "response_factor": 2.0,
            "residual_clip": 0.7,
            "coefficients": np.zeros(P),
        },
        0.93,
    ),
    "curved.start": ("curved.start", {"block": np.array([0, 1]), "radius": 1.5, "share": 0.6}, 0.99),
    "curved.step": ("curved.step", CURVED | {"share": 0.5}, 0.9),
    "curved.step, scores": ("curved.step", CURVED | {"share": 0.05}, 0.8),
    "curved.step, Poisson": ("curved.step", COUNTED | {"share": 0.5}, 0.95),
    "curved.counts": (
        "curved.counts",
        TILTED | {"of": "score", "thresholds": np.geomspace(0.1, 2.0, 6)},
        0.95,
    ),
    "curved.counts, Poisson": (
        "curved.counts",
        COUNTED | {"of": "residual", "thresholds": np.geomspace(0.05, 0.5, 4)},
        0.95,
    ),
    "curved.score": ("curved.score", CURVED | {"high": 0.6}, 0.82),
    "curved.score, upper": ("curved.score", COUNTED | {"low": 0.2, "high": 0.4}, 0.95),
    "curved.score, some columns": ("curved.score", BESIDE | {"high": 0.6}, 0.82),
    "curved.secant, some columns": (
        "curved.secant",
        BESIDE | {"clip": 0.2, "step": np.array([0.4, -0.2])},
        0.95,
    ),
    "logistic_products": ("logistic_products", {"bound": 0.7, "intercept": 0.1}, 0.99),
    "curved.meat": ("curved.meat", TILTED | {"high": 0.5}, 0.95),
    "curved.meat, layers": ("curved.meat", COUNTED | {"middle": 0.2, "high": 0.3, "upper": 1.5}, 0.9),
    "curved.secant": ("curved.secant", TILTED | {"clip": 0.2, "step": np.array([0.4, -0.2, 0.3])}, 0.95),
    "hazards.counts": (
        "hazards.counts",
        HAZARDS | {"of": "score", "thresholds": np.geomspace(0.1, 2.0, 6)},
        0.95,
    ),
    "hazards.counts, curvature": (
        "hazards.counts",
        BLOCKS | {"of": "curvature", "thresholds": np.geomspace(0.01, 2.0, 4), "score_bound": 2.0},
        0.9,
    ),
    "hazards.score": ("hazards.score", HAZARDS | {"score_bound": 0.6, "high": 0.6}, 0.99),
    "hazards.score, no weights": ("hazards.score", BLOCKS | {"high": 0.6}, 0.9),
    "hazards.meat": ("hazards.meat", HAZARDS | {"score_bound": 0.6, "high": 0.6}, 0.99),
    "hazards.secant": ("hazards.secant", HAZARDS | {"clip": 0.3, "step": np.array([0.4, -0.2])}, 0.99),
    "hazards.secant, blocks": (
        "hazards.secant",
        BLOCKS | {"clip": 0.3, "step": np.array([0.4, -0.2, 0.1]), "score_bound": 2.0},
        0.9,
    ),
    "curved.score, negative binomial": ("curved.score", COUNTED | {"alpha": 1.5, "high": 0.2}, 0.9),
    "curved.step, negative binomial": ("curved.step", COUNTED | {"alpha": 1.5, "share": 0.5}, 0.9),
    "curved.dispersion": ("curved.dispersion", DISPERSED | {"low": -0.5, "high": 0.3}, 0.99),
    "curved.dispersion_meat": ("curved.dispersion_meat", DISPERSED | {"low": -0.5, "high": 0.3}, 0.99),
    "layers.counts": ("layers.counts", FORMS | {"thresholds": np.geomspace(0.3, 4.0, 6)}, 0.99),
    "layers.counts, of a column": (
        # As a target's regression on its neighbours asks: a column in its units has the response's place.
        "layers.counts",
        FORMS
        | {
            "response": 1,
            "columns": np.array([0, 2]),
            "transform": TWO[:2] + 0.1,
            "thresholds": np.geomspace(0.3, 4.0, 6),
        },
        0.99,
    ),
    "layers.score": ("layers.score", FORMS | {"low": 0.0, "high": 0.8}, 0.99),
    "layers.score, upper": ("layers.score", FORMS | {"low": 0.8, "high": 2.1}, 0.99),
    "layers.meat": ("layers.meat", FORMS | {"low": 0.5, "high": 1.4, "weight": 1.7}, 0.99),
    "layers.slopes": (
        "layers.slopes",
        FORMS | {"low": 0.5, "high": 1.4, "weight": 1.7, "targets": np.array([1, 0]), "norm": 0.9},
        0.95,
    ),
    "whitened.counts": (
        "whitened.counts",
        WHITENED | {"quantity": "score", "thresholds": np.geomspace(0.3, 4.0, 6)},
        0.99,
    ),
    "whitened.counts, one threshold": (
        "whitened.counts",
        WHITENED | {"quantity": "score", "thresholds": np.array([0.5])},
        0.99,
    ),
    "whitened.counts, residual": (
        "whitened.counts",
        WHITENED | {"quantity": "residual", "thresholds": np.geomspace(0.05, 1.5, 9)},
        0.99,
    ),
    "whitened.counts, length": (
        "whitened.counts",
        WHITENED | {"quantity": "length", "thresholds": np.geomspace(0.4, 9.0, 5)},
        0.99,
    ),
    "whitened.columns": (
        "whitened.columns",
        {"columns": np.array([0, 2]), "thresholds": np.array([0.5, 1.0, 2.0])},
        0.99,
    ),
    "whitened.moments": ("whitened.moments", WHITENED | {"response_weight": 1.5, "clip": 1.1}, 0.99),
    "whitened.gram, row weights": ("whitened.gram", WHITENED | {"clip": 0.8, "row_weights": True}, 0.95),
    "whitened.gram": ("whitened.gram", WHITENED | {"clip": 1.1}, 0.99),
    "whitened.score": ("whitened.score", WHITENED | {"low": 0.0, "high": 0.8}, 0.99),
    "whitened.score, upper": ("whitened.score", WHITENED | {"low": 0.8, "high": 2.1}, 0.99),
    "whitened.meat": ("whitened.meat", LAYERS, 0.99),
    "whitened.hessian": ("whitened.hessian", LAYERS | {"clip": 1.2}, 0.99),
    "whitened.square": ("whitened.square", WHITENED | {"residual_clip": 0.8}, 0.99),
    "target_scores": (
        "target_scores",
        {
            "columns": np.array([0]),
            "transform": np.ones((1, 1)),
            "bound": 0.8,
            "targets": np.array([1]),
            "weights": np.ones(1),
            "slope_clip": 1.5,
            "slope_weight": 0.9,
            "average_clip": 1.2,
            "average_weight": 0.6,
        },
        0.9,
    ),
    "product_vector": ("product_vector", {"bound": 1e12, "norm": 0.8}, 0.99),
    "column_product_vector": (
        "column_product_vector",
        {"targets": np.array([0]), "bound": 2.0, "norm": 0.8},
        0.8,
    ),
    "form_sums": ("form_sums", {"columns": np.arange(3), "transform": TWO, "clip": 1.2}, 0.99),
    "clipped_score, constants": (
        "clipped_score",
        SCORE | {"streams": np.array([0, 7]), "intercepts": np.array([0.4, -0.2])},
        0.99,
    ),
    "paper_scores": ("paper_scores", SCORE | {"clip": 1.2}, 0.99),
    "paper_variances": ("paper_variances", SCORE | {"clip": 1.2}, 0.99),
}


def candidates() -> tuple[Any, Any]:
    """Return records: a grid on and inside the bounds, on circles, just inside clips, and far outside."""
    grid = np.array(list(product([LOW, -0.4, 0.4, HIGH], repeat=P)))
    angles = np.linspace(0.0, 2.0 * math.pi, 33)
    circle = np.column_stack([np.cos(angles), np.sin(angles), np.zeros(33)])
    circle = np.concatenate([1.5 * circle, 1.2 * circle[:, [2, 0, 1]]])
    wild = np.array([[1e300, -1e300, 1e300], [np.inf, 0.0, -np.inf], [5e-324, -5e-324, 0.0]])
    inside = np.array([[2.0, 1.0, 0.0], [2.0, -1.0, 0.0]])
    X = np.concatenate([np.tile(np.concatenate([grid, circle, wild]), (4, 1)), inside, inside])
    y = np.repeat([-1e300, -0.45, 0.45, 1e300], len(grid) + len(circle) + len(wild))
    return np.concatenate([y, [0.3999996, 0.3999996, -0.3999996, -0.3999996]]), X


def complaints(name: str, bits: tuple[int, ...] = (0, 28)) -> list[str]:
    """Return what is wrong with the stated sizes of a statistic: passed, or reached by no pair."""
    op, args, least = CASES[name]
    found = []
    for digits in bits:
        told = args | {"bits": digits}
        record_sensitivity = SITE_OPS[op].record_sensitivity(told, P, 1)
        values = np.array(
            [
                SITE_OPS[op].total(one, told, record_sensitivity).ravel()
                for one in blocks(args.get("client_rows", 1))
            ]
        )
        # A record with missing values, dropped, adds nothing.
        values = np.vstack([values, np.zeros(values.shape[1])])
        sizes = {
            "l2": (cdist(values, values).max(), record_sensitivity.l2),
            "linf": (cdist(values, values, "chebyshev").max(), record_sensitivity.linf),
            "bound": (np.abs(values).max(), record_sensitivity.bound),
        }
        if record_sensitivity.norm is not None:
            sizes["norm"] = (np.linalg.norm(values, axis=1).max(), record_sensitivity.norm)
        found += [
            f"{size} is passed" for size, (moved, stated) in sizes.items() if moved > stated * (1.0 + 1e-9)
        ]
        if sizes["l2"][0] < least * record_sensitivity.l2:
            found.append(f"l2 is reached to {sizes['l2'][0] / record_sensitivity.l2:.3f} only")
    return found


def blocks(rows: int) -> list[SiteBlock]:
    """Return one block for each candidate, which stands in it so many times."""
    return [
        SiteBlock(
            features=np.tile(x, (rows, 1)),
            response=np.full(rows, y),
            low=np.full(P, LOW),
            high=np.full(P, HIGH),
            response_low=-Y,
            response_high=Y,
        )
        for y, x in zip(*candidates(), strict=True)
    ]


# ---- the logistic diameter


def farthest_scores(steepness: float) -> float:
    """Return the largest distance of two logistic scores at R = 1 and ||theta|| = `steepness`, by search.

    A score is u expit(-t u_1) or its mirror image; in the plane through theta two of them are at most as far
    apart as u e^.. at two angles on either side.
    """

    def score(length: float, angle: float) -> Any:
        size = length / (1.0 + math.exp(steepness * length * math.cos(angle)))
        return size * np.array([math.cos(angle), math.sin(angle)])

    def distance(at: Any) -> float:
        first, second = np.clip(at[:2], 0.0, 1.0)
        return -float(np.linalg.norm(score(first, at[2]) - score(second, -at[3])))

    starts = product((0.4, 1.0), (0.4, 1.0), np.linspace(0.0, math.pi, 7), np.linspace(0.0, math.pi, 7))
    best = sorted(starts, key=distance)[:4]
    options = {"xatol": 1e-12, "fatol": 1e-15, "maxiter": 4000, "maxfev": 4000}
    return max(-minimize(distance, start, method="Nelder-Mead", options=options).fun for start in best)


def diameter_complaints() -> list[str]:
    """Return where two logistic scores are farther apart than their stated diameter."""
    found = []
    for steepness in (0.37, 0.9, 1.7, 3.1):
        args = {"family": "binomial", "radius": 1.0, "theta": np.array([steepness, 0.0])}
        stated, moved = score_diameter(args, 1.0), farthest_scores(steepness)
        if moved > stated * (1.0 + 1e-13):
            found.append(f"steepness {steepness}: {moved - stated:.2g} too far")
        if moved < 0.97 * stated:
            found.append(f"steepness {steepness}: reached to {moved / stated:.3f} only")
    return found
