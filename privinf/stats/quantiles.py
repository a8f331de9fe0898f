"""Quantiles of one column, and where to clip its mean, by noisy distribution functions over public bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np

from privinf.accounting import GaussianLoss, LedgerEntry, PrivacyReport, Released
from privinf.doors import door, doors
from privinf.errors import ArgumentError, NotAvailableError
from privinf.inference.estimate import upper_quantile
from privinf.inference.quantiles import MeanClip, mean_clip, quantile_interval, window_edges
from privinf.mechanisms.distribution import NoisyCDF, OpenColumns
from privinf.mechanisms.gaussian import WORDS, Spending
from privinf.mechanisms.samples import SEVERAL_ROWS, SampleQuestion, SampleSums
from privinf.stats.base import (
    Asked,
    ConfidenceInterval,
    EstimateRow,
    SampleWords,
    StatResult,
    asked_columns,
    check_level,
    public_pair,
)
from privinf.typing import ColumnLike, NoiseChoice, Pair
from privinf.validation import check_fraction

# Cells of a first look, its share of mu^2 for quantiles, and for the clip of a mean.
FIRST_CELLS, FIRST_SHARE, CLIP_SHARE = 1024, 0.25, 0.2


def two_sided(level: float) -> float:
    """Return the normal quantile of an interval of a level."""
    return upper_quantile((1.0 - level) / 2.0)


@dataclass(frozen=True, slots=True, eq=False)
class ColumnLooks:
    """A column with its public bounds, opened for looks at its distribution function."""

    held: OpenColumns
    name: str
    low: float
    high: float
    spending: Spending

    @classmethod
    def of(cls, asked: Asked, name: str) -> ColumnLooks:
        """Return the column of a test, opened; what the call may spend fits its ledger."""
        schema, words = asked.schema, asked.words
        if words.get("noise") == "laplace":
            raise ArgumentError("noise='laplace' is for sums: distribution functions have Gaussian noise")
        if schema.unit is not None and schema.max_rows > 1:
            raise NotAvailableError(SEVERAL_ROWS.format(schema.unit, schema.max_rows))
        told: Any = {word: words[word] for word in WORDS if word in words}
        budget, bounds = Spending.of(told, words.get("ledger")), schema.interval(name)
        held = OpenColumns(asked.rows, (name,), schema=schema, unit=schema.unit)
        budget.ledger.check(GaussianLoss(budget.mu))
        return cls(held, name, bounds.low, bounds.high, budget)

    def first(self, share: float, label: str) -> tuple[NoisyCDF, tuple[LedgerEntry, ...]]:
        """Release the distribution at equal cells between the bounds."""
        edges = np.linspace(self.low, self.high, FIRST_CELLS + 1)[1:-1]
        return self.held.cdf(self.name, edges, share, self.spending, label)


@doors
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class QuantileLooks(Released):
    """What was released for some quantiles: a distribution function for each, between public bounds."""

    question: SampleQuestion
    quantiles: tuple[float, ...]
    looks: tuple[NoisyCDF, ...]
    bounds: tuple[float, float]
    nobs: int
    noise: NoiseChoice
    entries: tuple[LedgerEntry, ...]
    recorded: PrivacyReport

    @property
    def privacy(self) -> PrivacyReport:
        """The report on these releases; `cumulative` is the ledger's."""
        return self.recorded

    def rows(self, level: float) -> tuple[EstimateRow, ...]:
        """Return each quantile and its interval; its standard error is half of that over the normal one."""
        z, rows = two_sided(level), []
        for q, found in zip(self.quantiles, self.looks, strict=True):
            middle, low, high = quantile_interval(found, q, z, *self.bounds)
            rows.append(EstimateRow(f"{100.0 * q:.6g}%", middle, 0.5 * (high - low) / z, low, high))
        return tuple(rows)


@doors
@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class QuantileResult(StatResult):
    """Quantiles of a column; see `StatResult` for the attributes."""

    release: QuantileLooks  # type: ignore[assignment]

    def confidence_interval(self, confidence_level: float = 0.95, *, which: int = 0) -> ConfidenceInterval:
        """Return the interval of a level of the quantile at a position.

        Levels above the one that was asked for may end at the window of the second look, or at a bound.
        """
        return ConfidenceInterval(*self.release.rows(check_level(confidence_level))[which][3:])


@door
def quantile(
    a: ColumnLike | str,
    q: float | Sequence[float] = 0.5,
    *,
    bounds: Pair | None = None,
    confidence_level: float = 0.95,
    **words: Unpack[SampleWords],
) -> QuantileResult:
    """Return quantiles of a column, with intervals that hold the noise.

    Parameters
    ----------
    a : array_like, Series or str
        The values, or the name of a column of `data`.
    q : float or sequence of float
        Between 0 and 1; several share the second look's budget, and each interval is its own.
    bounds : (low, high), optional
        Public. Of a named column the schema's.
    confidence_level : float
    epsilon, delta, mu, rho, calibration, rng, source, data, schema, missing, noise, ledger
        See `privinf.stats.base.SampleWords`; the noise is Gaussian.

    Raises
    ------
    ArgumentError, SchemaError, SensitivityError, NotAvailableError, BudgetExceededError

    Notes
    -----
    A quarter of mu^2 pays for the distribution function at 1,024 cells of the bounds, the rest for one at
    some 64 edges about what that shows (`privinf.inference.quantiles`). Near an end of the data, n mu below
    250, an interval may end at a bound.

    **Privacy.** Replace-one of one record, n public, every record read, two Gaussian releases or more
    (`privinf.mechanisms.distribution`); the edges of the second follow from the first.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> x = np.random.default_rng(0).exponential(size=9_000)
    >>> low, high = pi.stats.quantile(x, bounds=(0, 50), mu=0.5, rng=0).confidence_interval()
    >>> bool(low < np.log(2) < high)
    True
    """
    level = check_level(confidence_level)
    wanted = tuple(check_fraction(one, "q") for one in ((q,) if np.ndim(q) == 0 else q))  # type: ignore[union-attr]
    if not wanted:
        raise ArgumentError("q names no quantile")
    asked, (name,) = asked_columns({"a": a}, {"a": public_pair(bounds)}, words)
    looks, label = ColumnLooks.of(asked, name), f"quantiles of {name}"
    first, lines = looks.first(FIRST_SHARE, label)
    entries, second, part = [*lines], [], (1.0 - FIRST_SHARE) / len(wanted)
    for one in wanted:
        edges = window_edges(first, one, two_sided(level), looks.low, looks.high)
        found, lines = looks.held.cdf(name, edges, part, looks.spending, label)
        entries += lines
        second.append(found)
    release = QuantileLooks(
        SampleQuestion("one sample", (name,), label=label), wanted, tuple(second), (looks.low, looks.high),
        first.n, "gaussian", tuple(entries),
        PrivacyReport.of(entries, asked.words.get("ledger"), delta=looks.spending.delta),
    )  # fmt: skip
    rows = release.rows(level)
    return QuantileResult(title="Quantiles", release=release, rows=rows, confidence_level=level)


def streamed(asked: Asked) -> Asked:
    """Return the same question with one stream of simulation noise for all releases, if there is a seed."""
    rng = asked.words.get("rng")
    return asked if rng is None else replace(asked, words={**asked.words, "rng": np.random.default_rng(rng)})


def spending(asked: Asked, mu: float) -> Asked:
    """Return the same question for another amount, and Gaussian noise."""
    gone = ("epsilon", "rho", "calibration")
    words = {word: value for word, value in asked.words.items() if word not in gone}
    return replace(asked, words={**words, "mu": mu, "noise": "gaussian"})


def clipped_sums(asked: Asked, name: str, level: float) -> tuple[SampleSums, MeanClip]:
    """Release the sums of one column on a clip that a fifth of mu^2 buys; their account has both releases."""
    asked = streamed(asked)
    looks, label = ColumnLooks.of(asked, name), f"mean of {name}"
    found, first = looks.first(CLIP_SHARE, f"{label}, its clip")
    rest = math.sqrt(1.0 - CLIP_SHARE) * looks.spending.mu
    clip = mean_clip(found, looks.low, looks.high, two_sided(level), rest)
    second = replace(spending(asked, rest), schema=asked.schema.fill({name: (clip.low, clip.high)}))
    sums = second.release(SampleQuestion("one sample", (name,), label=label))
    entries = (*first, *sums.entries)
    recorded = PrivacyReport.of(entries, asked.words.get("ledger"), delta=looks.spending.delta)
    return replace(sums, entries=entries, recorded=recorded), clip
