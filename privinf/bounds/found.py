"""Schemas with released bounds: shares that they may cut, their cost, and their files."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from privinf.accounting import PrivacyReport
from privinf.error_boundary import error_boundaries, error_boundary
from privinf.errors import SchemaError
from privinf.schema import Factor, Numeric, Schema
from privinf.schema.files import read_schema
from privinf.storage.checksummed import parse_json, reads
from privinf.typing import AnyPath, Floats, Json

CLIP_COLUMNS = ["low", "high", "wanted", "at_most", "threshold", "moves"]
MOVED = (
    "Bounds and levels were found by find_bounds, and some values may be clipped or pooled: up to {}. "
    "Coefficients are for the clipped or pooled columns; with a smaller clip= in "
    "find_bounds, fewer values are clipped or pooled."
)
MAY_SHIFT = (
    "the bounds found by find_bounds clip the tails of columns, so the coefficients of {} may "
    "be biased by {} standard errors. Intervals are for the regression on clipped values; "
    "declare wider bounds, pass a smaller clip= to find_bounds, or spend more on "
    "find_bounds"
)
# A move of half a standard error takes an interval's coverage from 95% to 92%.
NOTABLE_SHIFT = 0.5


@error_boundaries
@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False, kw_only=True)
class FoundSchema(Schema):
    """Schema whose bounds and levels are private releases, with their cost and possible effects on fits.

    The table `clips` has one row per column of the schema. For a numeric column, ``low`` and ``high`` are the
    released bounds, and ``wanted`` is the requested share of rows outside the bounds. ``at_most`` is an upper
    limit of the share of rows outside the bounds. This limit is the sum of the noisy counts below and above
    the bounds, each increased by two standard deviations of its noise, divided by the number of rows.
    ``moves`` is the largest relative change that clipping may cause in the slope of the column. In the row of
    the response, ``moves`` is the largest relative change of any slope. For a column with levels, ``wanted``
    is the share of rows below which a level is pooled, and ``at_most`` is an upper limit of the total share
    of pooled rows. A level is "shown" (declared in the schema under its own name) if its noisy count is above
    ``threshold``. If rare levels are pooled with a shown level, ``moves`` is the largest possible share of
    pooled rows among the rows of the shown level. If the pooled levels have the same effect as some level B,
    the difference between the shown level and B shrinks by this share. If rare levels are pooled in a new
    level ``other``, differences between the shown levels do not change. Slopes of columns that are correlated
    with the pooled levels may still change. The attribute `privacy` is the privacy report on all releases of
    the bounds and levels.

    Clipping to released bounds can change a slope. A fit issues a `ChangedTargetWarning` if this change can
    be as large as half of the standard error of the slope.

    **Privacy.** Costs nothing more: the schema contains only released and declared values, so it is public.
    The cost of its releases is charged once, for any number of models that use the schema. Pass the same
    ledger to the fits, so that their reports include this cost.

    Parameters
    ----------
    columns : mapping
        Declarations by the name of the column, as in a `Schema`.
    unit : str, optional
        Name of the column that identifies the unit of each row.
    max_rows : int
        Largest number of rows of one unit.
    clips : DataFrame
        Table with one row per column of the schema, and the columns ``low``, ``high``, ``wanted``,
        ``at_most``, ``threshold`` and ``moves``.
    privacy : PrivacyReport
        Privacy report on all releases of the bounds and levels.
    """

    clips: Any = None
    privacy: Any = None

    def __init__(
        self,
        columns: Mapping[str, Any],
        *,
        clips: pd.DataFrame,
        privacy: PrivacyReport,
        unit: str | None = None,
        max_rows: int = 1,
    ) -> None:
        Schema.__init__(self, columns, unit=unit, max_rows=max_rows)
        object.__setattr__(self, "clips", clips)
        object.__setattr__(self, "privacy", privacy)

    def notes(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return a note on possible effects of released bounds and pooled levels on coefficients.

        Parameters
        ----------
        names : iterable of str
            Names of the columns of the data that a fit uses.

        Returns
        -------
        tuple of str
            One text, or an empty tuple if no column of the fit has released bounds or levels.
        """
        bought = [name for name in names if name in self.clips.index and self.clips.at_most[name] > 0.0]
        shares = ", ".join(f"{self.clips.at_most[name]:.1%} of {name}" for name in bought)
        return (MOVED.format(shares),) if bought else ()

    def expected_outside(self) -> dict[str, float]:
        """Return the shares of values outside their bounds that the releases of the bounds allow for.

        Returns
        -------
        dict
            An upper limit of the share for each column whose bounds were released: the column ``at_most`` of
            `clips`.
        """
        return {str(name): float(share) for name, share in self.clips.at_most.dropna().items()}

    def shifts(
        self, columns: Mapping[str, tuple[str, ...]], outcome: Iterable[str], params: Floats, bse: Floats
    ) -> tuple[str, ...]:
        """Return a warning if clipping to released bounds may change slopes by half a standard error or more.

        Parameters
        ----------
        columns : mapping of str to tuple of str
            For each coefficient, the columns of the data from which its column of the design matrix is
            computed.
        outcome : iterable of str
            Columns of the data from which the response is computed.
        params : ndarray, shape (p,)
            Coefficients.
        bse : ndarray, shape (p,)
            Standard errors.

        Returns
        -------
        tuple of str
            One text, or none.
        """
        moves = {} if "moves" not in self.clips else self.clips.moves.dropna().to_dict()
        response = sum(moves.get(name, 0.0) for name in outcome)
        ratios = {
            name: (sum(moves.get(column, 0.0) for column in inputs) + response) * abs(slope) / max(se, 1e-300)
            for (name, inputs), slope, se in zip(columns.items(), params, bse, strict=True)
            if inputs and slope != 0.0
        }
        notable = {name: ratio for name, ratio in ratios.items() if ratio >= NOTABLE_SHIFT}
        sizes = ", ".join(f"{min(ratio, 99.0):.1f}" for ratio in notable.values())
        return (MAY_SHIFT.format(", ".join(map(repr, notable)), sizes),) if notable else ()

    def _bought(self, schema: Schema) -> Schema:
        unchanged = [name for name in self.clips.index if schema.columns.get(name) == self.columns[name]]
        if not unchanged:
            return schema
        clips = self.clips.loc[unchanged]
        report = self.privacy
        if isinstance(schema, FoundSchema):
            clips = pd.concat([schema.clips, clips])
            entries = (*schema.privacy.entries, *report.entries)
            report = PrivacyReport.from_entries(
                entries, delta=max(schema.privacy.default_delta, report.default_delta)
            )
        return FoundSchema(
            columns=schema.columns, clips=clips, privacy=report, unit=schema.unit, max_rows=schema.max_rows
        )

    def _bought_for(self) -> Json:
        clips = {name: row.dropna().to_dict() for name, row in self.clips.iterrows()}
        return {"bought": {"privacy": json.dumps(self.privacy.to_dict()), "clips": clips}}

    def __repr__(self) -> str:
        total = self.privacy
        lines = [
            (
                f"{name}: levels with less than {row.wanted:.1%} of the rows are pooled; together they "
                f"have at most {row.at_most:.1%} of the rows"
            )
            if not math.isnan(row.threshold)
            else (
                f"{name}: {row.wanted:.1%} of the rows were to be outside the bounds; allowing for the "
                f"noise, at most {row.at_most:.1%} are"
            )
            for name, row in self.clips.iterrows()
        ]
        cost = f"bounds and levels found with epsilon {total.epsilon():.4g} at delta {total.default_delta:g}"
        stamp = f"; {total.stamp}" if total.stamp else ""
        return "\n".join([Schema.__repr__(self), *lines, cost + stamp])

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (Schema.from_dict(self.to_dict()), self.clips, self.privacy.to_dict())


@error_boundary
@reads("a schema")
def load_schema(path: AnyPath) -> Schema:
    """Read a schema from a TOML file that `Schema.save` or a person wrote.

    If the file contains released bounds that nobody has changed after the release, the result is a
    `FoundSchema`.

    Parameters
    ----------
    path : path
        The TOML file.

    Returns
    -------
    Schema
        The schema. It is a `FoundSchema` if the file contains released bounds that nobody has changed after
        the release.

    Raises
    ------
    StorageError
        Raised if the file does not exist, or is not a text file.
    SchemaError
        Raised if the file is not TOML, or has keys that a schema does not have; the message names the column
        and the key.

    Notes
    -----
    **Privacy.** Costs nothing: no rows are read.

    Examples
    --------
    >>> import tempfile, privinf as pi
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pi.Schema({"age": (18, 90), "sex": ["f", "m"]}).save(f"{folder}/survey.toml")
    ...     pi.load_schema(f"{folder}/survey.toml")["sex"].levels
    ('f', 'm')
    """
    saved = read_schema(path)
    reason = ""
    try:
        plain = Schema(saved.columns, unit=saved.unit, max_rows=saved.max_rows)
    except SchemaError as problem:
        reason = str(problem)
    if reason:
        raise SchemaError(f"{path}: {reason}")
    if (bought := saved.bought) is None:
        return plain
    clips = pd.DataFrame.from_dict(bought["clips"], "index", columns=CLIP_COLUMNS).astype(float)
    privacy = PrivacyReport.from_dict(parse_json(bought["privacy"], "the privacy report of the bounds"))
    unchanged = [name for name, row in clips.iterrows() if _as_bought(plain.columns.get(str(name)), row)]
    if not unchanged:
        return plain
    return FoundSchema(
        columns=plain.columns,
        clips=clips.loc[unchanged],
        privacy=privacy,
        unit=plain.unit,
        max_rows=plain.max_rows,
    )


def _as_bought(declared: Any, row: pd.Series) -> bool:
    """Whether a column is declared as it was bought. For levels: whether rare levels are still pooled."""
    if isinstance(declared, Numeric):
        return bool(declared.low == row.low and declared.high == row.high)
    return isinstance(declared, Factor) and declared.other is not None and math.isnan(row.low)


def _restored(plain: Schema, clips: pd.DataFrame, privacy: Json) -> FoundSchema:
    report = PrivacyReport.from_dict(privacy)
    return FoundSchema(
        columns=plain.columns, clips=clips, privacy=report, unit=plain.unit, max_rows=plain.max_rows
    )
