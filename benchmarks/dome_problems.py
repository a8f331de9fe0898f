"""Logistic problems for the study of sketches: rows in factors, an in-process server over them, exact losses.

Rows are x = A z: z has q independent normal entries and A orthonormal columns, or is the identity. A server
that keeps z and A answers what sites with the rows x would answer, d / q times as fast; a test holds it against
`FederatedGLM`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
from scipy.special import expit

from privinf.accounting import GaussianLoss, LedgerEntry
from privinf.federation import NoisySum
from privinf.glm.dome.optimizers import Optimizer
from privinf.glm.dome.rounds import optimise
from privinf.glm.dome.sketch import LearnedSpace, Sketch
from privinf.glm.sums import GlmSums
from privinf.mechanisms.philox import words_run
from privinf.mechanisms.statistics.block import stream_of

Features = Literal["low", "uneven", "mixed", "full"]

SLOPE, ENERGY, FULL_SHARE = 2.0, 20.0, 0.05
NODES = 48


@dataclass(frozen=True, eq=False)
class Problem:
    """A logistic model of d features, n rows over equal sites, the linear predictor of standard deviation 2.

    Attributes
    ----------
    z : ndarray, shape (n, q)
    span : ndarray, shape (d, q), or None
        A; None for the identity.
    y : ndarray, shape (n,)
    truth : ndarray, shape (d,)
    inner : ndarray, shape (rank,)
    outer : float
        Covariance of the features: basis diag(inner) basis' + outer I.
    basis : ndarray, shape (d, rank)
        The span of what has low rank.
    """

    z: np.ndarray
    span: np.ndarray | None
    y: np.ndarray
    truth: np.ndarray
    inner: np.ndarray
    outer: float
    basis: np.ndarray

    @classmethod
    def draw(cls, features: Features, d: int, n: int, seed: int, rank: int = 20) -> Problem:
        """Draw rows of expected squared length 20.

        "low": in `rank` directions, alike; "uneven": of variances that fall as 1/j; "mixed": 5% of the energy
        in all d; "full": all of it.
        """
        rng = np.random.default_rng([2000, seed])
        basis = np.linalg.qr(rng.standard_normal((d, rank)))[0]
        share = {"mixed": FULL_SHARE, "full": 1.0}.get(features, 0.0)
        shape = 1.0 / np.arange(1, rank + 1) if features == "uneven" else np.ones(rank)
        inner, outer = (1.0 - share) * ENERGY * shape / shape.sum(), share * ENERGY / d
        low = np.sqrt(inner) * rng.standard_normal((n, rank)) if share < 1.0 else None
        if share:
            z, span = math.sqrt(outer) * rng.standard_normal((n, d), dtype=np.float32), None
            if low is not None:
                z += (low @ basis.T).astype(np.float32)
        else:
            z, span = low, basis
        direction = rng.standard_normal(d) if features == "full" else basis @ rng.standard_normal(rank)
        variance = inner @ (basis.T @ direction) ** 2 + outer * direction @ direction
        truth = direction * SLOPE / math.sqrt(variance)
        eta = _linear(z, truth if span is None else span.T @ truth)
        y = (rng.uniform(size=n) < expit(eta)).astype(np.float64)
        return cls(z=z, span=span, y=y, truth=truth, inner=inner, outer=outer, basis=basis)

    @property
    def d(self) -> int:
        """Number of coefficients."""
        return len(self.truth)

    @cached_property
    def lengths(self) -> np.ndarray:
        """Lengths of the rows."""
        return np.sqrt(np.einsum("ij,ij->i", self.z, self.z, dtype=np.float64))

    def in_span(self) -> Problem:
        """Return the problem of a low-rank one in the coordinates of its true span."""
        assert self.span is not None
        inside = self.span.T @ self.truth
        return Problem(
            z=self.z,
            span=None,
            y=self.y,
            truth=inside,
            inner=self.inner,
            outer=0.0,
            basis=np.eye(len(inside)),
        )

    def excess(self, theta: np.ndarray) -> float:
        """Return the expected logistic loss above the truth's, over the law of the features."""
        both = np.stack([self.truth, theta])
        inside = both @ self.basis
        covariance = (self.inner * inside) @ inside.T + self.outer * both @ both.T
        return excess_loss(covariance)


def _linear(z: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    return np.asarray(z @ coefficients.astype(z.dtype), dtype=np.float64)


def excess_loss(covariance: np.ndarray) -> float:
    """Return E KL of the responses of normal predictors (true, fitted) with a covariance, by quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    weights = weights / weights.sum()
    true_sd = math.sqrt(covariance[0, 0])
    slope = covariance[0, 1] / true_sd
    rest = math.sqrt(max(covariance[1, 1] - slope**2, 0.0))
    true = (true_sd * nodes)[:, None]
    fitted = slope * nodes[:, None] + rest * nodes
    mean = expit(true)
    gap = np.logaddexp(0.0, fitted) - np.logaddexp(0.0, true) - mean * (fitted - true)
    return float(weights @ gap @ weights)


@dataclass(eq=False)
class RowsServer:
    """Sums of one problem's sketched scores with noise of the price; a `Server` of the engines.

    Attributes
    ----------
    problem : Problem
    reach : float
        Sensitivity over the clip: 1 zero-out, 2 replace-one.
    sites : int
    rng : Generator
        Of the noise.
    """

    problem: Problem
    reach: float
    sites: int
    rng: np.random.Generator
    ledger: Any = field(default_factory=lambda: SimpleNamespace(scope=lambda *a, **k: nullcontext()))
    _batches: dict[tuple[int, int], list[np.ndarray]] = field(default_factory=dict)

    def vector_sum(self, op: str, args: Mapping[str, Any], *, label: str, mu: float | None) -> NoisySum:
        """Return the sum over one batch, as the sites' statistic defines it."""
        assert op == "glm.sketched_score"
        assert mu is not None
        total = self._sum(args)
        scale = 0.0 if math.isinf(mu) else self.reach * float(args["clip"]) / mu
        noise = scale * self.rng.standard_normal(len(total))
        line = LedgerEntry(
            mechanism="gaussian",
            label=label,
            unit="record",
            relation="replace-one",
            trust="central",
            loss=GaussianLoss(mu),
            source="simulation",
            secure=False,
        )
        return NoisySum(
            values=total + noise, rows=len(self.problem.y), sites=(), scale=scale, mu=mu, entries=(line,)
        )

    def gram(self, args: Mapping[str, Any], *, label: str, op: str, mu: float | None) -> Any:
        """Refuse: first-order rounds ask for no matrix."""
        raise NotImplementedError

    def rows_of_batch(self, seed: int, batches: int, batch: int) -> np.ndarray:
        """Return positions of the rows of a public batch: those that sites choose."""
        if (seed, batches) not in self._batches:
            parts = np.array_split(np.arange(len(self.problem.y)), self.sites)
            words = [words_run(seed, stream_of(str(i)), 0, len(part)) for i, part in enumerate(parts)]
            drawn = np.concatenate(words) % np.uint64(batches)
            self._batches[seed, batches] = [np.flatnonzero(drawn == b) for b in range(batches)]
        return self._batches[seed, batches][batch]

    def _sum(self, args: Mapping[str, Any]) -> np.ndarray:
        problem, clip = self.problem, float(args["clip"])
        rows = self.rows_of_batch(args["seed"], args["batches"], args["batch"])
        z, theta = problem.z[rows], args["theta"]
        inside = theta if problem.span is None else problem.span.T @ theta
        r = problem.y[rows] - expit(_linear(z, inside))
        sketch = _sketch(args, problem.d)
        if sketch is None:
            norms = np.abs(r) * problem.lengths[rows]
            total = (r * np.minimum(1.0, clip / np.maximum(norms, clip))).astype(z.dtype) @ z
            return np.asarray(total if problem.span is None else problem.span @ total, dtype=np.float64)
        if "unit" in args:
            sketch = sketch / args["unit"][:, None]
        inside = sketch if problem.span is None else problem.span.T @ sketch
        scores = _linear(z, inside) * r[:, None]
        if "moment" in args:
            scores -= args["moment"] @ sketch
        norms = np.sqrt(np.einsum("ij,ij->i", scores, scores))
        return np.minimum(1.0, clip / np.maximum(norms, clip)) @ scores


def _sketch(args: Mapping[str, Any], d: int) -> np.ndarray | None:
    """Return the sketch that sites make; the server's own probes of this round are remembered."""
    if "basis" not in args and "probes" not in args:
        return None
    basis = args.get("basis", np.empty((d, 0)))
    kind = "unbiased" if args["probe_scale"] != 1.0 else "orthonormal"
    space, size = LearnedSpace(basis, np.ones(basis.shape[1])), basis.shape[1] + args["probes"]
    return Sketch.from_space(space, size, args["probe_seed"], kind).matrix


@dataclass(frozen=True)
class Outcome:
    """One fit: excess loss, floats one site sent and received, all rounds."""

    params: np.ndarray
    excess: float
    up: int
    down: int


def fit(
    problem: Problem, optimizer: Optimizer, mu: float, *, reach: float = 1.0, seed: int = 0, sites: int = 10
) -> Outcome:
    """Run an optimiser from 0 at a price of mu."""
    server = RowsServer(problem, reach, sites, np.random.default_rng([7, seed]))
    model = {"family": "binomial", "radius": math.sqrt(problem.d)}
    sums = GlmSums(
        server=server,
        model=model,
        n=len(problem.y),
        p=problem.d,
        low=-np.ones(problem.d),
        high=np.ones(problem.d),
    )
    found = optimise(sums, np.zeros(problem.d), mu, optimizer, seed)
    return Outcome(found.params, problem.excess(found.params), sums.traffic.up, sums.traffic.down)
