"""Common part of a party's releases: one pass over the rows, cost, and noise model."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from privinf.accounting import LedgerEntry
from privinf.error_boundary import error_boundaries
from privinf.errors import AlignmentError, ArgumentError
from privinf.mechanisms.blocks import RowBlocks, open_table
from privinf.mechanisms.gaussian import Line, Spending
from privinf.mechanisms.mixing.party import party_design
from privinf.mechanisms.rows import (
    ALIGNED,
    BLOCK,
    EACH_PARTY,
    as_rows,
    refuse_dropping,
    refuse_unordered,
    scale_private,
)
from privinf.mechanisms.sources import Source
from privinf.noise import get_source
from privinf.release_kinds import GaussianRowsNoiseModel
from privinf.releases import Release
from privinf.schema import Schema
from privinf.schema.table import check_schema
from privinf.typing import Flags, Floats, Imputation, Integers, Missing, MixingMethod, SourceName, Table
from privinf.validation import check_choice, check_count, check_flag, check_positive
from privinf.wire import Assumptions, Derivations, Mechanisms

UNIT = 2.0**-24  # numbers are multiples of this before they are summed
MOST_PEOPLE = 2**29  # people whose sums stay exact: |x| <= 1, and 2^29 2^24 = 2^53
# Scaling a sum and putting it on the grid moves two neighbors apart by at most 1 + 2^-7 grid steps.
GRID_SLACK = 1.02


@dataclass(frozen=True, slots=True)
class PartyLabels:
    """Facts about its plan in a release of one party.

    Attributes
    ----------
    party : str
        Empty for a release outside any plan.
    plan, ids : str
        Digests of the plan and of the sorted ids; empty where there is none.
    """

    party: str = ""
    plan: str = ""
    ids: str = ""


class SeenRows:
    """Whether every person's row came exactly once; runs in order need no memory.

    Parameters
    ----------
    n : int
        Number of people.
    """

    def __init__(self, n: int) -> None:
        self.n = n
        self._next = 0
        self._is_marked: Flags | None = None

    def mark(self, position: int | Integers, count: int) -> None:
        """Note the rows of one block (AlignmentError where a position is outside 0 .. n-1 or comes twice)."""
        run = np.ndim(position) == 0
        if run and self._is_marked is None and position == self._next and self._next + count <= self.n:
            self._next += count
            return
        if self._is_marked is None:
            self._is_marked = np.arange(self.n) < self._next
        at = np.asarray(position) + (np.arange(count) if run else 0)
        if at.shape != (count,) or (count and (at.min() < 0 or at.max() >= self.n)):
            raise AlignmentError(f"row numbers must be between 0 and {self.n - 1}, one for each row")
        if self._is_marked[at].any() or len(np.unique(at)) < count:
            raise AlignmentError(
                "the same row number was passed twice, so one person would have two rows: pass each row "
                "number only once"
            )
        self._is_marked[at] = True

    def check(self) -> None:
        """Raise AlignmentError unless every row has come."""
        count = self._next if self._is_marked is None else int(self._is_marked.sum())
        if count != self.n:
            raise AlignmentError(f"only {count} of {self.n} people have a row: every person needs a row")


@error_boundaries
class PartyMechanism:
    """Common part of both releases of one party's columns.

    Parameters
    ----------
    schema : Schema
        Columns of the party, all of them private, with their public bounds or levels.
    n : int, optional
        Public number of people; a table with a different number of rows is refused.
    diameter : float, optional
        If this diameter is larger than the diameter of the party's columns, the noise is calibrated to this
        diameter.
    missing : {"raise", "impute-public"}
        Whether missing values are refused or imputed by public values.
    data_bounds : bool
        Whether the bounds come from the data.
    labels : labels of a plan, optional
        The plan that the release belongs to.
    intercept : bool
        Whether numeric columns are centered at the middle of their bounds.
    """

    kind: MixingMethod
    label: str

    def __init__(
        self,
        schema: Schema,
        *,
        n: int | None = None,
        intercept: bool = False,
        diameter: float | None = None,
        missing: Imputation = "raise",
        data_bounds: bool = False,
        labels: PartyLabels | None = None,
    ) -> None:
        check_schema(schema, "a Schema of the party's columns")
        self.centred = check_flag(intercept, "intercept")
        self.design = party_design(schema, centred=self.centred)
        self.n = None if n is None else check_count(n, "n")
        own_diameter = self.design.diameter
        self.diameter = max(
            own_diameter, own_diameter if diameter is None else check_positive(diameter, "diameter")
        )
        self.missing: Missing = check_choice(missing, Missing, "missing")
        refuse_dropping(self.missing, EACH_PARTY)
        self.data_bounds = check_flag(data_bounds, "data_bounds")
        self.labels = labels or PartyLabels()

    @property
    def width(self) -> int:
        """Number of released columns."""
        return int(self.design.private.sum())

    def noise_scale(self, mu: float) -> float:
        """Return the standard deviation of the noise that a budget buys, before the share of the grid.

        Parameters
        ----------
        mu : float
            Budget in Gaussian differential privacy.

        Returns
        -------
        float
            Standard deviation, scaled units.
        """
        return 0.0 if math.isinf(mu) else self.diameter / mu

    def check_rows(self, rows: Table) -> None:
        """Read the rows once and raise what `release` would raise about them; nothing is spent or kept.

        Parameters
        ----------
        rows : table, array of shape (n, d), or RowBlocks
            The rows.
        """
        for _ in self._blocks(self._checked(rows)):
            pass

    def check_noise(self, mu: float, source: SourceName, *, seeded: bool) -> None:
        """Raise SensitivityError where noise of this price has no grid here; nothing is spent or drawn.

        Parameters
        ----------
        mu : float
            Budget in Gaussian differential privacy.
        source : {"lattice", "opendp"}
            Sampler of secure noise.
        seeded : bool
            Whether the noise is simulation noise.

        Raises
        ------
        SensitivityError
            The budget is too small for the grid of the noise.
        """
        self._line(mu, self._dimension).calibrated(get_source(0 if seeded else None, source))

    @property
    def _dimension(self) -> int:
        """How many released numbers one row touches."""
        return self.width

    def _line(self, mu: float, dimension: int) -> Line:
        """Return the ledger line; its mu is the party's own where the noise is that of a larger diameter."""
        own_diameter = self.design.diameter
        assumptions = [
            Assumptions.PUBLIC_N,
            Assumptions.PUBLIC_PLACES,
            Assumptions.SAME_PEOPLE,
            Assumptions.PER_PARTY,
        ]
        assumptions += [Assumptions.DATA_BOUNDS] if self.data_bounds else []
        return Line(
            label=self.label,
            mechanism=Mechanisms.GAUSSIAN,
            sensitivity=own_diameter + math.sqrt(self.width) * UNIT,
            derivation=Derivations.PARTY.format(width=self.width),
            dimension=dimension,
            mu=mu * own_diameter / self.diameter,
            largest=self.design.norm,
            unit="person",
            trust="per-party",
            assumptions=tuple(assumptions),
            party=self.labels.party,
        )

    def _blocks(self, rows: Any) -> Iterator[tuple[int | Integers, Floats]]:
        """Yield (position, scaled private numbers), clipped to the public bounds."""
        seen_rows = SeenRows(len(rows))
        for position, frame in self._tables(rows):
            seen_rows.mark(position, len(frame))
            matrix = self.design.matrix(frame, missing=self.missing)
            yield position, scale_private(self.design, matrix)
        seen_rows.check()

    def _tables(self, rows: Any) -> Iterator[tuple[int | Integers, pd.DataFrame]]:
        if not isinstance(rows, pd.DataFrame):
            yield from rows.blocks()
            return
        for start in range(0, len(rows), BLOCK):
            yield start, rows.iloc[start : start + BLOCK]

    def _checked(self, rows: Any) -> Any:
        """Return rows as a DataFrame or as blocks of one, with the public number of rows."""
        assert self.design.schema is not None
        if not hasattr(type(rows), "blocks"):
            checked = as_rows(rows)
            refuse_unordered(checked, ALIGNED)
            rows = checked.features
        if isinstance(rows, Source):
            rows = open_table(rows, self.design.schema)
        if not isinstance(rows, (pd.DataFrame, RowBlocks)):
            array = np.asarray(rows)
            names = list(self.design.schema.columns)
            if array.ndim != 2 or array.shape[1] != len(names):
                raise ArgumentError(
                    f"the array has shape {array.shape}, which does not fit the columns {', '.join(names)}: "
                    "pass one column of the array for each name"
                )
            rows = pd.DataFrame(array, columns=names)
        n = len(rows)
        if self.n is not None and n != self.n:
            raise AlignmentError(
                f"{n} rows were passed, but the plan has n={self.n} people: every party needs one row "
                "for each person"
            )
        if not 0 < n <= MOST_PEOPLE:
            raise AlignmentError(f"{n} rows were passed, but a release needs between 1 and 2^29 people")
        return rows

    def _noise_model(self, spending: Spending, scale: float, n: int) -> GaussianRowsNoiseModel:
        noise_model: GaussianRowsNoiseModel = {
            "method": self.kind,
            "party": self.labels.party,
            "plan": self.labels.plan,
            "ids_sha256": self.labels.ids,
            "n": n,
            "scale": scale,
            "centred": self.centred,
            "delta": spending.delta,
            "noise_free": math.isinf(spending.mu),
        }
        if self.missing != "raise":
            noise_model["missing"] = self.missing
        return noise_model

    def _release(
        self,
        arrays: dict[str, Floats],
        noise_model: GaussianRowsNoiseModel,
        entries: tuple[LedgerEntry, ...],
        n: int,
    ) -> Release:
        return Release(
            kind=self.kind,
            arrays=arrays,
            noise_model=noise_model,
            design=self.design,
            entries=entries,
            nobs=n,
        )
