"""Bounds of columns bought with privacy: where nearly all rows lie, from noisy distribution functions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Unpack

import pandas as pd

from privinf.accounting import GaussianLoss, Ledger, LedgerEntry, PrivacyReport
from privinf.doors import door, doors, warn
from privinf.errors import ChangedTargetWarning, NotAvailableError
from privinf.inference.quantiles import Range, find_range
from privinf.mechanisms.distribution import NoisyCDF, OpenColumns, numeric_columns
from privinf.mechanisms.gaussian import Spending
from privinf.schema import Numeric, Schema
from privinf.schema.declared import Declaration, Level
from privinf.typing import Floats, Json, Pair, SpendingWords, Table
from privinf.validation import check_fraction

# n mu of one column, below which no bound is worth its price.
LEAST_SIGNAL = 100.0
LABEL = "find_bounds"


@doors
@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class FoundSchema(Schema):
    """A schema whose bounds were bought: what they cost stands beside them.

    Attributes
    ----------
    columns, public, unit, max_rows
        As of `Schema`.
    clips : DataFrame
        One row a column: ``low``, ``high``, ``wanted``, the share of the rows that was to lie outside, and
        ``at_most``, the share that may (counted, and two sds of the noise on each side).
    privacy : PrivacyReport
        Of the looks at the rows, with the state of the ledger after them.

    Notes
    -----
    **Privacy.** Public: a function of releases. The price is paid once, whatever is fitted with it; give the
    same ledger to the fits for the total.
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

    def widened(self, columns: Mapping[str, Declaration | Pair | Sequence[Level]]) -> Schema:
        """Return a plain schema with other, or more, declarations: what is known need not be bought."""
        return Schema({**self.columns, **columns}, unit=self.unit, max_rows=self.max_rows)

    def __repr__(self) -> str:
        total = self.privacy
        lines = [
            f"{name}: at most {share:.1%} of the rows outside, {wanted:.1%} wanted"
            for name, share, wanted in zip(
                self.clips.index, self.clips["at_most"], self.clips["wanted"], strict=True
            )
        ]
        cost = f"bought for epsilon {total.epsilon():.4g} at delta {total.default_delta:g}"
        stamp = f"; {total.stamp}" if total.stamp else ""
        return "\n".join([Schema.__repr__(self), *lines, cost + stamp])

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.to_dict(), self.clips, self.privacy.to_dict())


def _restored(content: Json, clips: pd.DataFrame, privacy: Json) -> FoundSchema:
    plain = Schema.from_dict(content)
    return FoundSchema(
        plain.columns, clips=clips, privacy=PrivacyReport.from_dict(privacy), unit=plain.unit,
        max_rows=plain.max_rows,
    )  # fmt: skip


@door
def find_bounds(
    rows: Table,
    columns: Iterable[str] | None = None,
    *,
    clip: float = 0.01,
    unit: str | None = None,
    max_rows: int = 1,
    ledger: Ledger | None = None,
    **spending: Unpack[SpendingWords],
) -> FoundSchema:
    r"""Buy public bounds of columns of numbers: a schema, what it cost, and how far its bounds may cut.

    Parameters
    ----------
    rows : DataFrame, or any other table
    columns : sequence of str, optional
        Columns of numbers. By default all of them; the names and kinds of columns are taken as public.
    clip : float
        Share of a column's rows that its bounds may leave out, half of it on each side.
    unit : str, optional
        Column that tells whose row it is, where one person has several: at most `max_rows`.
    max_rows : int
    ledger : Ledger, optional
    epsilon, delta, mu, rho, calibration, rng, source
        As for `Modulation.release`; for all columns together, an equal share of mu^2 each.

    Returns
    -------
    FoundSchema
        A `Schema`, with ``clips`` and ``privacy``.

    Raises
    ------
    NotAvailableError
        n mu of one column is below 100 (n over `max_rows`): nothing was spent, and no row counted.
    SchemaError
        A column is absent, has missing or infinite values, or texts.
    BudgetExceededError

    Warns
    -----
    ChangedTargetWarning
        As far as could be seen all rows have one value: bounds may cut all that differs.

    Notes
    -----
    Of a column's mu^2 .3 pays for its distribution function at signed powers of 2, 2^-20 to 2^43; .7 for one
    at 512 cells over the range where rows were seen and 15 ranges on each side (where that range is an octave
    or two, .2 for a look into it and .5). On each side the bound is where ``clip / 2`` of the rows lie beyond
    if so few can be seen, else where the tail that is seen leads, taken as exponential. A column of numbers
    below 2^-20 is given bounds of that size: change its unit.

    **Privacy.** Reads all rows of these columns; replace-one, n is public. Each look is Gaussian:
    mu = sensitivity / noise sd (`privinf.mechanisms.distribution`); later looks choose their edges by earlier
    releases. The bounds are a function of the releases.

    Examples
    --------
    >>> import numpy as np, pandas as pd, privinf as pi
    >>> rng = np.random.default_rng(0)
    >>> rows = pd.DataFrame({"age": rng.uniform(20, 70, 9_000), "pay": rng.lognormal(10, 1, 9_000)})
    >>> schema = pi.find_bounds(rows, epsilon=0.5, delta=1e-6, rng=0)
    >>> bool(15 < schema["age"].low < 25 and 65 < schema["age"].high < 75)
    True
    """
    share = check_fraction(clip, "clip")
    budget = Spending.of(spending, ledger)
    names = numeric_columns(rows, columns)
    held = OpenColumns(rows, names, unit=unit, max_rows=max_rows)
    each = budget.mu / math.sqrt(len(names))
    _check_signal(held.n / max_rows, each, len(names))
    budget.ledger.check(GaussianLoss(budget.mu))
    found: dict[str, Range] = {}
    entries: list[LedgerEntry] = []
    for name in names:
        look = partial(_look, held, name, 1.0 / len(names), budget, entries)
        found[name] = _checked(name, find_range(look, share))
    return FoundSchema(
        {name: Numeric(one.low, one.high) for name, one in found.items()},
        clips=pd.DataFrame(
            {name: (one.low, one.high, share, one.most) for name, one in found.items()},
            index=["low", "high", "wanted", "at_most"],
        ).T,
        privacy=PrivacyReport.of(entries, budget.ledger, delta=budget.delta),
        unit=unit,
        max_rows=max_rows,
    )


def _look(
    held: OpenColumns,
    name: str,
    part: float,
    budget: Spending,
    entries: list[LedgerEntry],
    edges: Floats,
    share: float,
) -> NoisyCDF:
    found, recorded = held.cdf(name, edges, part * share, budget, LABEL)
    entries += recorded
    return found


def _check_signal(n: float, mu: float, columns: int) -> None:
    if n * mu < LEAST_SIGNAL:
        raise NotAvailableError(
            f"{LABEL} needs n mu >= {LEAST_SIGNAL:g} a column, n over max_rows: here it is {n * mu:.3g} for "
            f"each of {columns}; name fewer columns, spend more, or declare bounds. Nothing was spent"
        )


def _checked(name: str, found: Range) -> Range:
    if found.hidden:
        warn(
            f"column {name!r}: as far as the noise lets one see all rows have one value, and up to "
            f"{found.most:.0%} may lie beyond the bounds found; spend more, or declare its bounds",
            ChangedTargetWarning,
        )
    return found
