"""The sums that a generalised linear model asks of a server, in scaled units, and their traffic."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from privinf.accounting.budget import ROUNDING
from privinf.errors import NotPositiveDefiniteError
from privinf.federation import NoisyGram
from privinf.mechanisms.statistics.tails import counts_above
from privinf.typing import CurvedFamily, Floats, Integers, PlainValue

BYTES = 8
# Above the largest mean, so that rounding never makes the cap bind.
CAP_ROOM = 1.0 + 1e-9


class GlmServer(Protocol):
    """The releases that the engines need; `privinf.federation.TrustedServer` makes them."""

    ledger: Any

    def vector_sum(self, op: str, args: Mapping[str, Any], *, label: str, mu: float) -> Any:
        """Release a vector with Gaussian noise."""

    def gram(self, args: Mapping[str, Any], *, label: str, op: str, mu: float) -> Any:
        """Release a symmetric matrix."""


@dataclass(slots=True)
class Traffic:
    """Floats that one site received and sent, question by question.

    Attributes
    ----------
    rounds : list of (label, floats down, floats up)

    Notes
    -----
    Arrays only: headers and single numbers, a few hundred bytes a question, are not counted.
    """

    rounds: list[tuple[str, int, int]] = field(default_factory=list)

    def add(self, label: str, args: Mapping[str, Any], answer: int) -> None:
        """Count one question's arrays and its answer."""
        down = sum(int(value.size) for value in args.values() if isinstance(value, np.ndarray))
        self.rounds.append((label, down, answer))

    @property
    def down(self) -> int:
        """Floats that one site received."""
        return sum(down for _, down, _ in self.rounds)

    @property
    def up(self) -> int:
        """Floats that one site sent."""
        return sum(up for _, _, up in self.rounds)


@dataclass(frozen=True, slots=True)
class Clients:
    """Sites as units of privacy: all records of one are replaced at once.

    Attributes
    ----------
    rows : int
        Most that one has.
    clip : float or None
        C: the norm to which a site's summed score is shrunk.
    """

    rows: int
    clip: float | None = None


@dataclass(slots=True)
class GlmSums:
    """Releases about one model's scores over all rows; prices are mu of Gaussian DP.

    Attributes
    ----------
    server : GlmServer
    model : mapping
        Family, radius, clips and units, as the statistics take them.
    n, p : int
        Rows and coefficients.
    low, high : ndarray, shape (p,)
        Bounds of the columns, scaled units.
    scaled_constant : int or None
        Position of the constant of a Poisson model, which scales all means.
    clients : Clients or None
        Where sites are the units of privacy.
    traffic : Traffic

    Notes
    -----
    **Privacy.** Everything returned is a release; prices are the caller's.
    """

    server: GlmServer
    model: Mapping[str, Any]
    n: int
    p: int
    low: Floats
    high: Floats
    scaled_constant: int | None = None
    clients: Clients | None = None
    traffic: Traffic = field(default_factory=Traffic)

    def args(self, theta: Floats, **more: PlainValue) -> dict[str, Any]:
        """Return the arguments of a statistic at `theta`.

        A Poisson mean inside the columns' bounds stays below the largest one at theta: a cap there changes
        nothing, and bounds the curvature.
        """
        arguments = {**self.model, "theta": theta, **more}
        if "mean_cap" in arguments:
            most = float(np.maximum(theta * self.low, theta * self.high).sum())
            arguments["mean_cap"] = min(arguments["mean_cap"], math.exp(min(most, 700.0)) * CAP_ROOM)
        return arguments

    def of_block(self, chosen: Integers, radius: float) -> GlmSums:
        """Return the same for scores of some columns, whose rows are bounded by `radius`."""
        return replace(self, model={**self.model, "block": chosen, "radius": radius})

    def parts(self, batches: int) -> int:
        """Return in how many of the batches of an epoch a unit takes part."""
        return 1 if self.clients is None else batches

    def _unit(self, *, clipped: bool) -> dict[str, Any]:
        if self.clients is None:
            return {}
        clip = {"client_clip": self.clients.clip} if clipped and self.clients.clip is not None else {}
        return {"client_rows": self.clients.rows, **clip}

    def asked(self, op: str, args: Mapping[str, Any], label: str, mu: float) -> Any:
        """Release a vector sum."""
        found = self.server.vector_sum(op, args, label=label, mu=mu)
        self.traffic.add(label, args, len(found.values))
        return found

    def asked_matrix(self, op: str, args: Mapping[str, Any], label: str, mu: float) -> Any:
        """Release a symmetric sum."""
        found = self.server.gram(args, label=label, op=op, mu=mu)
        size = len(found.values)
        self.traffic.add(label, args, size * (size + 1) // 2)
        return found

    def score(self, theta: Floats, mu: float, label: str = "score") -> tuple[Floats, float]:
        """Return the mean score and the sd of its noise."""
        args = self.args(theta, **self._unit(clipped=True))
        found = self.asked("glm.score", args, label, mu)
        return found.mean, found.mean_sd

    def matrix(
        self, op: str, theta: Floats, mu: float, label: str, **more: PlainValue
    ) -> tuple[Floats, float]:
        """Return the mean of a symmetric statistic and the sd of the noise of its diagonal."""
        args = self.args(theta, **self._unit(clipped=False), **more)
        found = self.asked_matrix(op, args, label, mu)
        return found.mean, float(found.scale / found.rows)

    def hessian(self, theta: Floats, mu: float, *, curvature: str, label: str) -> tuple[Floats, float]:
        """Return the mean Hessian and the sd of the noise of its diagonal."""
        return self.matrix("glm.hessian", theta, mu, label, curvature=curvature)

    def meat(self, theta: Floats, mu: float) -> tuple[Floats, float]:
        """Return the mean outer product of the scores and the sd of the noise of its diagonal."""
        return self.matrix("glm.meat", theta, mu, "meat")

    def batch(
        self,
        theta: Floats,
        mu: float,
        *,
        clip: float,
        batches: int,
        batch: int,
        seed: int,
        **more: PlainValue,
    ) -> tuple[Floats, float]:
        """Return the mean clipped (and sketched) score of one public batch and the sd of its noise.

        The mean is over the expected size of a batch, n / batches.
        """
        given = {name: value for name, value in more.items() if value is not None}
        given |= self._unit(clipped=True)
        args = self.args(theta, clip=clip, batches=batches, batch=batch, seed=seed, **given)
        whole = self.server.ledger
        if self.clients is None:
            # Fixed before the data were seen: a record is in one batch, and pays for that one alone.
            self.server.ledger = whole.scope(str(batch), disjoint=f"batch of {batches} by seed {seed}")
        try:
            found = self.server.vector_sum("glm.sketched_score", args, label="gradient", mu=mu)
        finally:
            self.server.ledger = whole
        self.traffic.add("gradient", args, len(found.values))
        size = self.n / batches
        return found.values / size, found.scale / size


# ---- curved models


@dataclass(slots=True)
class CurvedSums:
    """Releases about a curved model, and what they cost; prices are shares of mu^2.

    Attributes
    ----------
    server : GlmServer
    family : {"binomial", "poisson"}
    units : mapping
        What every statistic is told: center, scale, and the public weight's column.
    n : int
    free : ndarray of int
        Columns that have coefficients.
    fixed, linear : ndarray
        Coefficients of all columns, where those of `free` are 0: an offset's; and about a log exposure's.
    level : float
        What these add beside their columns.
    radius : float
        Longest row over the free columns and the offset's.
    constant : int or None
        Position of the constant among `free`.
    response : (low, high)
    mu : float
    traffic : Traffic
    spent : float
        Of mu^2, in shares.
    """

    server: GlmServer
    family: CurvedFamily
    units: Mapping[str, Any]
    n: int
    free: Integers
    fixed: Floats
    linear: Floats
    level: float
    radius: float
    constant: int | None
    response: tuple[float, float]
    mu: float
    traffic: Traffic = field(default_factory=Traffic)
    spent: float = 0.0

    @property
    def p(self) -> int:
        """Number of coefficients."""
        return len(self.free)

    @property
    def asked(self) -> Integers:
        """Columns of the start: those with coefficients and the offset's."""
        return np.flatnonzero((self.linear != 0.0) | np.isin(np.arange(len(self.fixed)), self.free))

    def price(self, share: float) -> float:
        """Return mu of a share of mu^2."""
        return self.mu if math.isinf(self.mu) else self.mu * math.sqrt(share * ROUNDING)

    def _ask(self, op: str, args: Mapping[str, Any], label: str, share: float) -> Any:
        self.spent += share
        found = self.server.vector_sum(op, args, label=label, mu=self.price(share))
        self.traffic.add(label, args, len(found.values))
        return found

    def _at(self, theta: Floats, transform: Floats, **more: PlainValue) -> dict[str, Any]:
        whole, columns = self.fixed.copy(), np.zeros((len(self.fixed), self.p))
        whole[self.free], columns[self.free] = theta, transform.T
        return {**self.units, "family": self.family, "theta": whole, "transform": columns, **more}

    def start(self, share: float, matrix: float) -> tuple[Noisy, Noisy]:
        """Return means of z (y' - 1/2), y' the response in [0, 1], and z z'; `matrix` the Gram's part."""
        args = {name: self.units[name] for name in ("center", "scale") if name in self.units}
        args |= {"block": self.asked, "radius": self.radius, "share": matrix}
        found = self._ask("curved.start", args, "start", share)
        return _parts(found, len(self.asked), matrix, self.radius / 2.0, self.radius**2)

    def step(
        self, at: Place, score_bound: float, curvature_bound: float, share: float, label: str
    ) -> tuple[Noisy, Noisy]:
        """Return mean weighted score and Hessian at once, as precise as each other."""
        args = self._at(at.theta, at.transform, score_bound=score_bound, curvature_bound=curvature_bound)
        found = self._ask("curved.step", args | {"share": 0.5}, label, share)
        return _parts(found, self.p, 0.5, score_bound, curvature_bound)

    def counts(
        self, at: Place, of: str, thresholds: Floats, share: float, **bounds: PlainValue
    ) -> tuple[Floats, Floats]:
        """Return the noisy counts above thresholds, and the sds of their noise."""
        args = self._at(at.theta, at.transform, of=of, thresholds=thresholds, **bounds)
        found = self._ask("curved.counts", args, f"counts of {of}", share)
        return counts_above(found.values, float(found.scale))

    def score(self, at: Place, share: float, **bounds: PlainValue) -> Noisy:
        """Return the mean score of one layer."""
        found = self._ask("curved.score", self._at(at.theta, at.transform, **bounds), "final score", share)
        return Noisy(found.mean, found.mean_sd)

    def meat(self, at: Place, share: float, **bounds: PlainValue) -> Noisy:
        """Return the mean outer product of the scores, or its trace."""
        found = self._ask("curved.meat", self._at(at.theta, at.transform, **bounds), "meat", share)
        return Noisy(found.mean if bounds.get("trace") else NoisyGram.of(found).mean, found.mean_sd)

    def secant(self, at: Place, step: Floats, share: float, **bounds: PlainValue) -> Noisy:
        """Return the mean secant Hessian."""
        args = self._at(at.theta, at.transform, step=step, **bounds)
        found = self._ask("curved.secant", args, "final Hessian", share)
        return Noisy(NoisyGram.of(found).mean, found.mean_sd)


@dataclass(frozen=True, slots=True, eq=False)
class Noisy:
    """A mean over records, and the sd of its noise (of a matrix's diagonal)."""

    mean: Floats
    sd: float

    @property
    def floor(self) -> float:
        """About the operator norm of a matrix's noise."""
        return self.sd * math.sqrt(2.0 * len(self.mean))

    def floored(self) -> tuple[Floats, Floats]:
        """Return eigenvalues, not below the floor, and eigenvectors of a matrix."""
        values, vectors = np.linalg.eigh(self.mean)
        if self.sd == 0.0 and not values[0] > 1e-13 * values[-1]:
            raise NotPositiveDefiniteError("the Hessian is singular: columns are collinear or never vary")
        return np.maximum(values, self.floor), vectors


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Where a fit stands: theta in z, W, and h, the mean curvature."""

    theta: Floats
    transform: Floats
    curvature: float


def _parts(found: Any, size: int, matrix: float, score: float, curvature: float) -> tuple[Noisy, Noisy]:
    """Return both means of a joint release, in their own units."""
    a, b = score / (math.sqrt(1.0 - matrix) / 2.0), curvature / math.sqrt(matrix / 2.0)
    gram = NoisyGram.of(replace(found, values=found.values[size:]))
    return Noisy(a * found.mean[:size], a * found.mean_sd), Noisy(b * gram.mean, b * found.mean_sd)
