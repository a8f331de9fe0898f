"""Sums that a generalized linear model requests from a server, in scaled units, and their traffic."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from privinf.errors import ArgumentError, SchemaError
from privinf.schema import Schema
from privinf.schema.calls import absorbed
from privinf.schema.formulas import terms_by_column
from privinf.typing import FitFamily, Floats, Integers, PlainValue
from privinf.validation import shown_name
from privinf.wire import Labels, Places, Statistics

BYTES = 8  # of a number in messages
CAP_ROOM = 1.0 + 1e-9  # factor above the largest mean, so that rounding never makes the cap bind
SINGULAR_SUMS = (
    "the Hessian, or the matrix of the columns' second moments, is singular: columns may be constant or "
    "collinear, or determine the outcomes; leave columns out"
)
BOTH = (
    "column {0} is a term of the formula, and also offset=, exposure= or weights=, which has no coefficient: "
    "leave it out of the formula, or pass a copy of the column with another name for one of the two"
)
SMALLEST_CAP = 1e-30  # the smallest argument that a statistic accepts


class GlmServer(Protocol):
    """The releases that the engines need; `privinf.federation.TrustedServer` makes them."""

    ledger: Any

    def vector_sum(self, op: str, args: Mapping[str, Any], *, label: str, mu: float) -> Any:
        """Release a vector with Gaussian noise."""

    def gram(self, args: Mapping[str, Any], *, label: str, op: str, mu: float) -> Any:
        """Release a symmetric matrix."""


@dataclass(slots=True)
class Traffic:
    """Floats that one site received and sent, per query.

    Attributes
    ----------
    rounds : list of (label, floats down, floats up)

    Notes
    -----
    Arrays only: headers and single numbers, a few hundred bytes a query, are not counted.
    """

    rounds: list[tuple[str, int, int]] = field(default_factory=list)

    def add(self, label: str, args: Mapping[str, Any], answer: int) -> None:
        """Count the arrays of one query and its answer."""
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
    """Sites as units of privacy: all records of one are replaced together.

    Attributes
    ----------
    rows : int
        Most that one has.
    clip : float or None
        C: the norm to which a site's summed score is shrunk.
    """

    rows: int
    clip: float | None = None


@dataclass(slots=True, kw_only=True)
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

    def args(self, theta: Floats, **extra: PlainValue) -> dict[str, Any]:
        """Return the arguments of a statistic at `theta`.

        A Poisson mean inside the columns' bounds stays below the largest one at theta: a cap there changes
        nothing, and bounds the curvature.
        """
        arguments = {**self.model, "theta": theta, **extra}
        if "mean_cap" in arguments:
            largest = float(np.maximum(theta * self.low, theta * self.high).sum())
            highest = max(math.exp(min(largest, 700.0)) * CAP_ROOM, SMALLEST_CAP)
            arguments["mean_cap"] = min(arguments["mean_cap"], highest)
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

    def release_sum(self, op: str, args: Mapping[str, Any], label: str, mu: float) -> Any:
        """Release a vector sum."""
        release = self.server.vector_sum(op, args, label=label, mu=mu)
        self.traffic.add(label, args, len(release.values))
        return release

    def release_together(self, queries: Sequence[tuple[str, Mapping[str, Any], str, float]]) -> list[Any]:
        """Release several sums, (op, args, label, mu) each: by one pass where rows are read by passes."""
        together = getattr(self.server, "vector_sums", None)
        if together is None:
            return [self.release_sum(*query) for query in queries]
        releases: list[Any] = together(queries)
        for (_, args, label, _), release in zip(queries, releases, strict=True):
            self.traffic.add(label, args, len(release.values))
        return releases

    def release_matrix(self, op: str, args: Mapping[str, Any], label: str, mu: float) -> Any:
        """Release a symmetric sum."""
        release = self.server.gram(args, label=label, op=op, mu=mu)
        size = len(release.values)
        self.traffic.add(label, args, size * (size + 1) // 2)
        return release

    def score(self, theta: Floats, mu: float, label: str = "score") -> tuple[Floats, float]:
        """Return the mean score and the sd of its noise."""
        args = self.args(theta, **self._unit(clipped=True))
        release = self.release_sum(Statistics.GLM_SCORE, args, label, mu)
        return release.mean, release.mean_sd

    def matrix(
        self, op: str, theta: Floats, mu: float, label: str, **extra: PlainValue
    ) -> tuple[Floats, float]:
        """Return the mean of a symmetric statistic and the sd of the noise of its diagonal."""
        args = self.args(theta, **self._unit(clipped=False), **extra)
        release = self.release_matrix(op, args, label, mu)
        return release.mean, float(release.scale / release.rows)

    def hessian(self, theta: Floats, mu: float, *, curvature: str, label: str) -> tuple[Floats, float]:
        """Return the mean Hessian and the sd of the noise of its diagonal."""
        return self.matrix(Statistics.GLM_HESSIAN, theta, mu, label, curvature=curvature)

    def meat(self, theta: Floats, mu: float) -> tuple[Floats, float]:
        """Return the mean outer product of the scores and the sd of the noise of its diagonal."""
        return self.matrix(Statistics.GLM_MEAT, theta, mu, Labels.MEAT)

    def batch(
        self,
        theta: Floats,
        mu: float,
        *,
        clip: float,
        batches: int,
        batch: int,
        seed: int,
        **extra: PlainValue,
    ) -> tuple[Floats, float]:
        """Return the mean clipped (and sketched) score of one public batch and the sd of its noise.

        The mean is over the expected size of a batch, n / batches.
        """
        extra_args = {name: value for name, value in extra.items() if value is not None}
        extra_args |= self._unit(clipped=True)
        args = self.args(theta, clip=clip, batches=batches, batch=batch, seed=seed, **extra_args)
        ledger = self.server.ledger
        if self.clients is None:
            # Fixed before the data were seen: a record is in one batch, and pays for that one alone.
            self.server.ledger = ledger.scope(
                str(batch), disjoint=Places.BATCH.format(batches=batches, seed=seed)
            )
        try:
            release = self.server.vector_sum(
                Statistics.GLM_SKETCHED_SCORE, args, label=Labels.GRADIENT, mu=mu
            )
        finally:
            self.server.ledger = ledger
        self.traffic.add("gradient", args, len(release.values))
        size = self.n / batches
        return release.values / size, release.scale / size


def _is_arithmetic(name: str) -> bool:
    """Return whether the name of a column is a sum, a ratio or the like in a formula."""
    try:
        return isinstance(ast.parse(name, mode="eval").body, (ast.BinOp, ast.UnaryOp, ast.Constant))
    except (SyntaxError, ValueError):
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """Columns that have no coefficients, by name; they need bounds as all do.

    Attributes
    ----------
    offset, exposure, weights : str or None
        Added to the linear predictor, as it is or as its log; how much a row counts, public by nature.
    effects : tuple of str
        Terms of a linear model whose coefficients are not reported, ``C(firm)``.
    status : str or None
        Whether a time ended with the event, of proportional hazards.
    """

    offset: str | None = None
    exposure: str | None = None
    weights: str | None = None
    effects: tuple[str, ...] = ()
    status: str | None = None

    @classmethod
    def new(
        cls,
        offset: str | None,
        exposure: str | None,
        weights: str | None,
        *,
        effects: tuple[str, ...] = (),
    ) -> Roles:
        """Return the roles that a call named; ArgumentError for arrays in place of names."""
        for role, name in {"offset": offset, "exposure": exposure, "weights": weights}.items():
            if name is not None and not isinstance(name, str):
                raise ArgumentError(
                    f"{role}= must be the name of a column with public bounds, not {type(name).__name__}: "
                    "put the values into a column of the table, or of X, and pass its name"
                )
        return cls(offset=offset, exposure=exposure, weights=weights, effects=effects)

    @property
    def names(self) -> tuple[str, ...]:
        """Those that are named."""
        named = (self.offset, self.exposure, self.weights, self.status)
        return tuple(name for name in named if name is not None)

    def described(self) -> dict[str, str]:
        """Return the lines of a summary that name them."""
        columns = {"Offset": self.offset, "Exposure": self.exposure, "Weights": self.weights}
        return {title: name for title, name in columns.items() if name is not None}

    def read(self, formula: str, schema: Schema, family: FitFamily) -> tuple[str, Roles]:
        """Return a formula without its ``+ offset(column)`` and its ``| factor``, and the roles with them.

        Raises ArgumentError if there are several offsets, or one is named next to it, and SchemaError where
        effects are absorbed that cannot be.
        """
        if family == "gaussian":
            formula, effects = absorbed(formula, schema)
            if effects:
                return formula, replace(self, effects=effects)
        offsets = _OFFSET.findall(formula) if isinstance(formula, str) else []
        if isinstance(formula, str) and (logged := _LOG_OFFSET.search(formula)) is not None:
            remedy = (
                f"pass exposure={logged[1]!r}, whose logarithm is added with coefficient 1"
                if family in ("poisson", "negative-binomial")
                else "add the logarithm of the exposure as a column of the table, and pass its name"
            )
            raise SchemaError(f"{logged[0]}: offset() needs the name of a column; {remedy}")
        if not offsets:
            return formula, self
        if len(offsets) > 1 or self.offset is not None:
            raise ArgumentError(
                "a model can have only one offset: add the columns up, and pass the name of their sum"
            )
        return _OFFSET.sub("", formula), replace(self, offset=offsets[0])

    def check_apart(self, formula: str, schema: Schema) -> None:
        """Raise ArgumentError if a column of a role, which has no coefficient, is also a term."""
        if not self.names or not isinstance(schema, Schema):
            return
        if both := set(self.names) & set(terms_by_column(formula, schema)):
            raise ArgumentError(BOTH.format(shown_name(min(both))))

    def added(self, formula: str) -> str:
        """Return a formula that makes these columns too; SchemaError for a sum, a ratio or the like."""
        for title, name in self.described().items():
            if _is_arithmetic(name):
                raise SchemaError(
                    f"{title.lower()}={name!r} must be the name of a column: add its values to the table as "
                    "a column, declare the bounds of this column, and pass its name"
                )
        return " + ".join([formula, *self.names])

    def apart(self, formula: str) -> str:
        """Return a formula that `added` made without these columns, which are named after it."""
        shown = formula.removesuffix("".join(f" + {name}" for name in self.names))
        return "".join([shown, *(f", {title.lower()}={name}" for title, name in self.described().items())])


NO_ROLES = Roles()  # no weights, offset or exposure
_OFFSET = re.compile(r"\s*\+\s*offset\(\s*(\w+)\s*\)")
_LOG_OFFSET = re.compile(r"offset\(\s*(?:np\.)?log\(\s*(\w+)\s*\)\s*\)")
