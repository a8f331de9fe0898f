"""Arguments of every statistic of the catalogue over a grid of sizes, for `test_sensitivities`.

Only numpy is used, so that any version of the package can be compared by these calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

WIDTHS = (1, 2, 5)  # numbers of columns
SIZES = (0.03, 1.7, 40.0)  # norms, clips and bounds
THRESHOLDS = ([0.7], [0.0, 1.0, 2.5], list(np.linspace(0.1, 4.0, 20)))  # of counts

Args = dict[str, Any]
Call = tuple[str, int, Args]


def numbers(*shape: int) -> Any:
    """Return numbers between -1 and 1 that follow no pattern."""
    size = int(np.prod(shape))
    return (np.arange(1, size + 1) * 0.6180339887 % 1.0 * 2.0 - 1.0).reshape(shape)


def calls() -> Iterator[Call]:
    """Yield the name of a statistic, the number of columns and its arguments."""
    for p in WIDTHS:
        for family in (
            glm,
            curved,
            dispersion,
            moments,
            whitened,
            layers,
            sparse,
            forms,
            vectors,
            counts,
            hazards,
        ):
            for name, args in family(p):
                yield name, p, args


def glm(p: int) -> Iterator[tuple[str, Args]]:
    """Yield calls of the statistics of generalized linear models."""
    models: tuple[Args, ...] = (
        {"family": "gaussian", "residual_clip": 1.3},
        {"family": "binomial"},
        {"family": "poisson", "residual_clip": 0.6, "mean_cap": 7.0},
    )
    for model, radius, length in product(models, (0.03, 1.7), (0.0, 0.4, 30.0)):
        args = model | {"theta": length * numbers(p), "radius": radius}
        block = args | {"block": np.arange((p + 1) // 2)}
        clients = args | {"client_rows": 7}
        for name in ("glm.score", "glm.hessian", "glm.meat"):
            yield name, args
            yield name, block
            yield name, clients
            yield name, clients | {"client_clip": 0.9}
            yield name, args | {"bits": 20}
        yield "glm.hessian", args | {"curvature": "bound"}
        for clip in SIZES if length == 0.4 else ():
            sketched = args | {"clip": clip}
            yield "glm.sketched_score", sketched
            yield "glm.sketched_score", sketched | {"batches": 4, "batch": 1, "seed": 3}
            yield "glm.sketched_score", sketched | {"moment": numbers(p), "unit": np.ones(p)}
            yield "glm.sketched_score", sketched | {"basis": np.eye(p)[:, :1]}
            yield "glm.sketched_score", sketched | {"probes": 1, "probe_seed": 5, "probe_scale": 0.5}


def curved(p: int) -> Iterator[tuple[str, Args]]:
    """Yield calls of the statistics in whitened units of logistic and Poisson models."""
    for share in (0.01, 0.2, 0.5, 0.63, 0.99):
        yield "curved.start", {"block": np.arange(p), "radius": 1.2, "share": share}
        yield "curved.start", {"block": np.array([p - 1]), "radius": 1.2, "share": share}
        for kind in ("binomial", "poisson"):
            model = {"family": kind, "theta": numbers(p), "transform": numbers(p, p)}
            bounds = {"score_bound": 2.0, "curvature_bound": 0.8}
            yield "curved.step", model | bounds | {"share": share}
            yield "curved.step", model | bounds | {"share": share, "transform": numbers(p, 1)}
    for kind, size in product(("binomial", "poisson"), SIZES):
        model = {"family": kind, "theta": numbers(p), "transform": numbers(p, p)}
        narrow = model | {"theta": numbers(1), "columns": [0], "transform": numbers(1, 2)}
        narrow["offset"] = [0.1, 0.2]
        for at in (model, narrow):
            width = np.shape(at["transform"])[1]
            yield "curved.score", at | {"high": size}
            yield "curved.score", at | {"low": 0.3 * size, "high": size, "score_bound": 2.0}
            yield "curved.meat", at | {"high": size}
            yield "curved.meat", at | {"middle": 0.4 * size, "high": size, "upper": 3.0, "weight": 0}
            yield "curved.secant", at | {"step": numbers(width), "clip": size}
    for kind, thresholds in product(("binomial", "poisson"), THRESHOLDS):
        model = {"family": kind, "theta": numbers(p), "transform": numbers(p, p), "thresholds": thresholds}
        yield "curved.counts", model | {"of": "curvature"}
        yield "curved.counts", model | {"of": "residual"}
        if kind == "binomial":
            yield "curved.counts", model | {"of": "score"}


def dispersion(p: int) -> Iterator[tuple[str, Args]]:
    """Yield calls of the statistics of negative binomial counts."""
    tables = {"by_count": np.zeros((2, 3)), "by_mean": np.zeros((3, 4)), "width": 1.0, "mean_unit": 2.0}
    model = {"family": "poisson", "theta": numbers(p), "transform": numbers(p, 1), **tables}
    for low, high in ((-0.3, 0.8), (0.0, 2.0), (-1.5, 0.0)):
        for name in ("curved.dispersion", "curved.dispersion_meat"):
            yield name, model | {"low": low, "high": high}


def moments(p: int) -> Iterator[tuple[str, Args]]:
    """Yield calls of moments, of sites and of a curator's own rows."""
    for norm, top in product(SIZES, SIZES):
        shared = {"norm": norm, "response_factor": 0.5}
        total = shared | {"response_bound": top}
        residual = shared | {"residual_clip": top}
        own = {"public": 2, "public_norm2": 3.0, "max_rows": 2, "weight_bound": 1.5}
        yield "moments.total", total
        yield "moments.total", total | {"bits": 12}
        yield "moments.total", total | own
        yield "moments.total", total | own | {"public_norm2": 1e4, "public_reach": [1.0, 70.0]}
        yield "moments.residual", residual | {"coefficients": numbers(p)}
        yield "moments.residual", residual | own | {"coefficients": numbers(p + 2)}
        yield "moments.residual", residual | own | {"coefficients": numbers(p + 2), "unit_norm": top}
        if p > 1:
            yield "moments.total", total | {"constant": 0}
            yield "moments.residual", residual | {"constant": p - 1, "coefficients": numbers(p)}


def whitened(p: int) -> Iterator[tuple[str, Args]]:
    """Yield calls of the statistics of the one-step fit of least squares."""
    shared: Args = {"response_factor": 0.5, "theta": numbers(p), "whitening": numbers(p, p), "unit": 0.7}
    for thresholds in THRESHOLDS:
        yield "whitened.columns", {"columns": np.arange(p), "thresholds": thresholds}
        yield "whitened.columns", {"columns": np.array([p - 1]), "thresholds": thresholds}
        for quantity in ("score", "length", "residual"):
            yield "whitened.counts", shared | {"quantity": quantity, "thresholds": thresholds}
    for size in SIZES:
        clip = {"clip": size}
        both = {"low": 0.4 * size, "high": size, "weight": 3.0}
        yield "whitened.moments", shared | clip | {"response_weight": 0.8, "row_weights": True}
        yield "whitened.gram", shared | clip
        yield "whitened.gram", shared | clip | {"constant": 0}
        yield "whitened.hessian", shared | clip | both
        yield "whitened.score", shared | {"low": 0.0, "high": size}
        yield "whitened.score", shared | {"low": 0.4 * size, "high": size, "residual_clip": 1.0}
        yield "whitened.meat", shared | both
        yield "whitened.meat", shared | both | {"weight": 1.0, "bits": 10}
        yield "whitened.square", shared | {"residual_clip": size}


def layers(p: int) -> Iterator[tuple[str, Args]]:
    """Yield calls of the statistics of the targets of a sparse regression."""
    for m in {1, p}:
        shared: Args = {"columns": np.arange(p), "transform": numbers(p, m), "unit": 0.7}
        targets = {"targets": np.arange(m)}
        for thresholds in THRESHOLDS:
            yield "layers.counts", shared | {"thresholds": thresholds}
        for size in SIZES:
            both = {"low": 0.4 * size, "high": size, "weight": 3.0}
            yield "layers.score", shared | {"low": 0.0, "high": size}
            yield "layers.score", shared | {"low": 0.4 * size, "high": size, "support": [0], "beta": [0.2]}
            yield "layers.meat", shared | both
            yield "layers.meat", shared | both | {"weight": 1.0}
            yield "layers.slopes", shared | both | targets | {"norm": 2.0 * size}
    for norm in SIZES:
        yield "shrunk_sums", {"columns": np.arange(p), "norm": norm}
        yield "shrunk_sums", {"columns": np.array([0]), "norm": norm, "bits": 9}


def sparse(p: int) -> Iterator[tuple[str, Args]]:
    """Yield calls of the statistics of a sparse fit."""
    columns = {"columns": np.arange(p)}
    for a, b in product(SIZES, SIZES):
        clips = {"clip": a, "residual_clip": b}
        slope = columns | clips | {"column_clip": 1.1, "targets": np.arange(p)}
        yield "clipped_products", {"bound": a, "residual_clip": b}
        yield "union_gram", columns | {"bound": a, "norm": b}
        yield "union_gram", columns | {"bound": a, "norm": b, "transform": numbers(p, 1)}
        yield "clipped_score", columns | clips
        yield "clipped_score", columns | clips | {"transform": numbers(p, 3)}
        yield "slopes", slope
        yield "slopes", slope | {"norm": 0.5}
        yield "score_variances", columns | clips
        yield "score_variances", columns | clips | {"transform": numbers(p, 1)}
    for a in SIZES:
        yield "clipped_products", {"bound": a}
        yield "logistic_products", {"bound": a}
        yield "column_products", {"targets": np.arange((p + 1) // 2), "bound": a}
        yield "column_products", {"targets": np.arange(p), "bound": a, "transform": numbers(p, 3)}
        yield "union_gram", columns | {"bound": a}
        yield "squared_residuals", {"residual_clip": a}
        yield "residual_sum", {"residual_clip": a}
        yield "column_sums", columns | {"bound": a}
        yield "column_squares", columns | {"bound": a}
    yield "residual_histogram", {"edges": [1.0]}
    yield "residual_histogram", {"edges": np.arange(1.0, 9.0)}


def forms(p: int) -> Iterator[tuple[str, Args]]:
    """Yield calls of the statistics of clipped linear forms."""
    for a, b, m in product(SIZES, SIZES, (1, 3)):
        shared = {"columns": np.arange(p), "transform": numbers(p, m), "clip": a}
        scores = shared | {"residual_clip": b}
        yield "paper_variances", scores
        yield "quadratic_forms", shared
        yield "form_sums", shared
        yield "multiplier_scores", scores | {"draws": 1, "law": "rademacher", "seed": 4}
        gaussian = {"draws": 50, "law": "gaussian", "seed": 4, "multiplier_bound": 4.5}
        yield "multiplier_scores", scores | gaussian


def vectors(p: int) -> Iterator[tuple[str, Args]]:
    """Yield calls of the statistics whose records are shrunk as one vector, and of single scores."""
    for a, b in product(SIZES, SIZES):
        yield "product_vector", {"bound": a, "norm": b}
        yield "column_product_vector", {"bound": a, "norm": b, "targets": np.arange((p + 1) // 2)}
        yield (
            "target_scores",
            {
                "columns": np.arange(p),
                "transform": numbers(p, p),
                "targets": np.arange(p),
                "weights": np.ones(p),
                "bound": 2.0,
                "slope_clip": 3.0,
                "slope_weight": a,
                "average_clip": 0.5,
                "average_weight": b,
            },
        )


def counts(p: int) -> Iterator[tuple[str, Args]]:
    """Yield calls of counts of values outside their bounds."""
    yield "survival.cells", {"edges": np.arange(1.0, 17.0), "status": 0}
    yield "survival.cells", {"edges": np.arange(1.0, 65.0), "status": 0, "groups": np.arange(p)}
    yield "survival.cells", {"edges": [2.5], "status": 0, "counted": True}
    yield "columns_outside", {"columns": np.arange(p)}
    yield "columns_outside", {"columns": np.array([p - 1])}
    yield "complete_rows", {}
    yield "values_outside", {"columns": np.arange(p)}
    yield "values_outside", {"columns": np.arange(p), "outcome": True, "inputs": 3}
    yield "values_outside", {"columns": [], "outcome": True, "bits": 5}


def hazards(p: int) -> Iterator[tuple[str, Args]]:
    """Yield calls of the statistics of proportional hazards; the status is one column more."""
    for blocks in (1, 2):
        at = {
            "columns": np.arange(p - 1 or 1),
            "status": p - 1,
            "edges": np.arange(1.0, 5.0),
            "increments": np.full(4, 0.1),
            "blocks": np.repeat(np.arange(float(blocks)), 4 // blocks),
            "theta": numbers(p - 1 or 1),
            "transform": numbers(p - 1 or 1, p),
            "offsets": numbers(blocks, p),
        }
        for size in SIZES:
            weighted = at | {"stop": 2.0, "score_bound": size}
            yield "hazards.score", at | {"high": size}
            yield "hazards.score", weighted | {"high": size}
            yield "hazards.meat", weighted | {"high": size}
            yield "hazards.secant", weighted | {"clip": size, "step": numbers(p)}
        for thresholds in THRESHOLDS:
            yield "hazards.counts", at | {"of": "score", "thresholds": thresholds}
            yield "hazards.counts", at | {"of": "curvature", "thresholds": thresholds, "score_bound": 2.0}
