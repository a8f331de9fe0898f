"""The report of the gauntlet: verdicts, cells, and every coefficient that is not covered."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gauntlet_cells import BY_NAME, CELLS, FOREIGN, Cell
from gauntlet_estimators import ESTIMATORS
from gauntlet_truth import predicted_ratio, reference_of

from studies.simulation import binomial_limits

LEVEL, MEAN, BELOW, HIDDEN, STRONG = 0.95, 0.94, 0.02, 0.05, 8.0
NAMED = ("HeavyTailWarning", "MisfitWarning", "SteepDirectionWarning")
LEAST_FITS = 20  # unflagged ones: fewer have no limit worth naming

# What is asked of single cells: least coverage is the binomial limit everywhere, greatest median width here.
ASKED = {
    ("flagship 1", "OLS"): 1.55,
    ("flagship y x5", "OLS"): 1.65,
    ("flagship all x3", "OLS"): 1.3,
    ("college GPA 1", "OLS"): 2.8,
    ("census 1", "OLS"): 1.6,
    ("air time 1", "OLS"): 1.25,
    ("years married 1", "OLS"): 1.75,
    ("affairs 1", "OLS"): 4.0,
    ("affairs 4", "OLS"): 1.6,
    ("visits 1", "OLS"): 4.0,
    ("visits 4", "OLS"): 1.6,
    ("arrival delay 1", "OLS"): 4.0,
    ("arrival delay 4", "OLS"): 1.6,
    ("401(k) 4", "OLS"): 3.8,
    ("groups 4", "OLS"): 1.5,
    ("groups 4 (100,000)", "OLS"): 1.5,
    ("lognormal 4", "OLS"): 1.5,
    ("lognormal 4 (100,000)", "OLS"): 1.5,
    ("2% positives 1 (100,000)", "Logit"): 1.4,
    ("balanced x5 1", "Logit"): 1.15,
    ("any affair 1", "Logit"): 1.45,
    ("worked 1", "Logit"): 1.15,
    ("labour 4", "Logit"): 1.6,
    ("approved 4", "Logit"): 1.6,
    ("vote 4", "Logit"): 1.6,
    ("counts 1", "Poisson"): 2.0,
    ("visits, Poisson 4", "Poisson"): 2.0,
    ("arrests, Poisson 4", "Poisson"): 2.0,
}

# What is known of misses outside the named exceptions.
BIAS = "the logit does not fit the table, and weights in the columns move its target"
KNOWN = {
    ("worked 1", "Logit"): f"{BIAS}: `kids` by -.7 and `educ` by +.5 standard errors (40 fits); as at eps .5",
    ("approved 4", "Logit"): f"{BIAS}: the constant by +.7, `obrat` by -.7 standard errors (40 fits)",
    (
        "low-group 1",
        "OLS",
    ): "a flat tail of 10% under a steep body: counts show the body's slope, the tail beyond the "
    "clip is put too low, and the constant is off by 1.2 standard errors without privacy",
}


@dataclass(frozen=True, slots=True)
class Counted:
    """How many intervals of each coefficient hold the target, of how many, shape (p,) each."""

    hits: np.ndarray
    trials: np.ndarray

    @property
    def judgeable(self) -> np.ndarray:
        return self.trials >= LEAST_FITS

    @property
    def coverage(self) -> np.ndarray:
        return np.where(self.judgeable, self.hits / np.maximum(self.trials, 1), np.nan)

    @property
    def mean(self) -> float:
        return float(np.nanmean(self.coverage)) if self.judgeable.any() else math.nan

    @property
    def below(self) -> np.ndarray:
        """Which coefficients are below the 99% limit of their number of fits."""
        lows = [binomial_limits(LEVEL, int(n))[0] if n >= LEAST_FITS else 0.0 for n in self.trials]
        return self.judgeable & (self.hits < np.array(lows) * self.trials - 1e-9)


@dataclass(frozen=True, slots=True)
class Judged:
    """What the fits of one estimator did in one cell.

    Attributes
    ----------
    cell, estimator
    fits, flagged, refused, warned, posterior, failed : int
        How many; a fit that is flagged or refused is not warned.
    sure : Counted
        Fits that are not flagged, those under a named warning like any other.
    forgiven : Counted
        The same, but that a miss under the warning is no miss.
    quiet : Counted
        Fits that are neither flagged nor warned.
    every : Counted
        All fits that have an interval.
    widths : array, shape (p,)
        Median, over the length without privacy, of intervals that are not flagged, or of all where few are.
    reasons : str
        Of refusals and failures, the first.
    """

    cell: Cell
    estimator: str
    fits: int
    flagged: int
    refused: int
    warned: int
    posterior: int
    failed: int
    sure: Counted
    forgiven: Counted
    quiet: Counted
    every: Counted
    widths: np.ndarray
    reasons: str

    @property
    def hidden(self) -> float:
        """Share of fits that are flagged, refused or failed."""
        return (self.flagged + self.refused + self.failed) / self.fits

    @property
    def ratio(self) -> float:
        return math.nan if self.cell.alone else predicted_ratio(self.cell)


def judged(fits: Sequence[dict[str, Any]]) -> Judged:
    """Return what the fits of one estimator in one cell did."""
    cell = BY_NAME[fits[0]["cell"]]
    p = len(reference_of(cell).names)
    good = [one for one in fits if "failed" not in one]
    shown = [one for one in good if not one["refused"]]
    sure = [one for one in shown if not one["flagged"]]
    loud = [one for one in sure if _warns(one)]
    quiet = [one for one in sure if not _warns(one)]
    heard, told = counted(quiet, p), counted(loud, p)
    reasons = [one.get("failed") or one["refused"] for one in fits]
    return Judged(
        cell=cell,
        estimator=fits[0]["estimator"],
        fits=len(fits),
        flagged=len(shown) - len(sure),
        refused=len(good) - len(shown),
        warned=len(loud),
        posterior=sum(one.get("posterior", 0) for one in shown),
        failed=len(fits) - len(good),
        sure=counted(sure, p),
        forgiven=Counted(heard.hits + told.trials, heard.trials + told.trials),
        quiet=heard,
        every=counted(shown, p),
        widths=medians([one["width"] for one in (sure if len(sure) >= LEAST_FITS else shown)], p),
        reasons=next(filter(None, reasons), ""),
    )


def _warns(one: dict[str, Any]) -> bool:
    return any(name in one["warned"] for name in NAMED)


def counted(fits: list[dict[str, Any]], p: int) -> Counted:
    covered = _table([one["covered"] for one in fits], p)
    return Counted(np.nansum(covered, axis=0), (~np.isnan(covered)).sum(axis=0))


def medians(widths: list[list[float | None]], p: int) -> np.ndarray:
    table = _table(widths, p)
    known = ~np.isnan(table).all(axis=0)
    found = np.full(p, np.nan)
    found[known] = np.nanmedian(table[:, known], axis=0)
    return found


def _table(rows: list[list[float | None]], p: int) -> np.ndarray:
    return np.array(rows, dtype=float).reshape(-1, p)


def share(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3f}"


def ratio(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}"


def worst(one: Judged, rule: Counted) -> str:
    """Return the least coverage of a coefficient, and whether coefficients are below their limits."""
    coverage = rule.coverage
    if np.isnan(coverage).all():
        return "-"
    place = int(np.nanargmin(coverage))
    mark = f" **below** ({int(rule.below.sum())})" if rule.below.any() else ""
    return f"{coverage[place]:.3f} `{reference_of(one.cell).names[place]}`{mark}"


def cell_row(one: Judged) -> str:
    """Return the row of a table of cells."""
    slopes = one.widths[1:]
    asked = ASKED.get((one.cell.name, one.estimator))
    width = float(np.nanmedian(slopes)) if not np.isnan(slopes).all() else math.nan
    cells = [
        one.cell.name,
        f"{one.cell.n:,}",
        f"{one.cell.epsilon:g}",
        one.estimator,
        ratio(one.ratio),
        str(one.fits),
        worst(one, one.sure),
        share(one.sure.mean),
        share(float(one.sure.coverage[0])),
        worst(one, one.quiet),
        share(one.every.mean),
        ratio(width),
        "" if asked is None else f"<= {asked:g}" + ("" if width <= asked else " **no**"),
        ratio(float(one.widths[0])),
        share(one.flagged / one.fits),
        share((one.refused + one.failed) / one.fits),
        share(one.warned / one.fits),
        share(one.posterior / one.fits),
    ]
    return "| " + " | ".join(cells) + " |"


CELL_COLUMNS = (
    "cell",
    "n",
    "eps",
    "estimator",
    "predicted ratio",
    "fits",
    "worst coefficient, unflagged",
    "mean",
    "constant",
    "worst, neither flagged nor warned",
    "mean, every interval",
    "width",
    "asked",
    "width, constant",
    "flagged",
    "refused",
    "warned",
    "posterior",
)
CELL_HEADER = f"| {' | '.join(CELL_COLUMNS)} |\n|" + "---|" * len(CELL_COLUMNS)


def held(found: list[Judged], rule: Callable[[Judged], Counted]) -> list[str]:
    """Return the mean over cells, and how many coefficients are below their limits."""
    rules = [rule(one) for one in found]
    means = [each.mean for each in rules if each.judgeable.any()]
    mean = float(np.mean(means)) if means else math.nan
    below = sum(int(each.below.sum()) for each in rules)
    coefficients = sum(int(each.judgeable.sum()) for each in rules)
    return [
        share(mean) + (" **no**" if mean < MEAN else ""),
        f"{below} of {coefficients}" + ("" if below <= BELOW * coefficients else " **no**"),
    ]


def verdict_row(name: str, found: list[Judged]) -> str:
    """Return an estimator's row of the table of verdicts."""
    strong = [one for one in found if one.ratio >= STRONG]
    much = [f"{one.cell.name} {one.hidden:.2f}" for one in strong if one.hidden > HIDDEN]
    told = f"{len(strong) - len(much)} of {len(strong)}" + (f" (not: {', '.join(much)})" if much else "")
    rules = (lambda one: one.forgiven, lambda one: one.sure, lambda one: one.quiet)
    shares = [text for rule in rules for text in held(found, rule)]
    cells = [name, str(len(found)), *shares, told, str(sum(one.failed for one in found))]
    return "| " + " | ".join(cells) + " |"


VERDICT_COLUMNS = (
    "estimator",
    "cells",
    f"mean over cells (>= {MEAN:g})",
    f"below their 99% limit (<= {BELOW:.0%})",
    "mean, misses under the warning counted",
    "below",
    "mean, warned fits left out",
    "below",
    f"cells of ratio >= {STRONG:g} with flagged plus refused <= {HIDDEN:.0%}",
    "fits that raised a foreign error",
)
VERDICT_HEADER = f"| {' | '.join(VERDICT_COLUMNS)} |\n|" + "---|" * len(VERDICT_COLUMNS)
TITLE = """# The gauntlet: intervals of every estimator

This page reports the coverage and the width of 95% intervals of each estimator. A cell is a distribution of rows with a
number of rows and an epsilon.

Made by `python benchmarks/gauntlet.py --report` from {fits:,} fits, {least} to {most} of each estimator in each cell;
delta = 1e-6, replace-one of one record, 95% intervals, one curator unless the estimator says otherwise. Targets are
least squares, logit or Poisson regression in the population that rows are drawn from, clipped to the public bounds.

Coverage: of intervals that are not flagged (a WeakIdentificationWarning, `identification.weak`). The named warnings
(HeavyTailWarning; MisfitWarning of logistic models; SteepDirectionWarning of moments alone) are no flags: a
fit under one is counted and its misses are not (first two columns of the verdicts); beside that, its misses counted like any other, and its fits left out. **below**: coefficients, the
constant included, below the 99% binomial limit of their own number of fits (at least {few} of them). Width: median over fits, then over slopes,
over the HC0 (least squares, Poisson) or Logit interval without privacy. Predicted ratio: smallest eigenvalue of the
Gram about its mean, columns in units of their bounds (binary responses: weighted by 4p(1 - p)), over the noise of one
release of all moments that has the whole budget. MomentOLS' "MomentOLS" is ``cov_type="nonrobust"``; estimators that
assume equal error variance run where it is equal alone.
"""


def write_report(fits: list[dict[str, Any]], path: Path) -> None:
    """Write the tables."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for one in fits:
        if one["cell"] in BY_NAME:
            groups[one["cell"], one["estimator"]].append(one)
    order = {name: number for number, name in enumerate(BY_NAME)}
    found = [judged(groups[key]) for key in sorted(groups, key=lambda key: (order[key[0]], key[1]))]
    counts = [one.fits for one in found]
    text = TITLE.format(fits=len(fits), least=min(counts), most=max(counts), few=LEAST_FITS)
    main = {cell.name for cell in CELLS}
    plain = [one for one in found if not one.cell.exception]
    text += _verdicts("The 60 cells, but for the named exceptions", [o for o in plain if o.cell.name in main])
    foreign = {cell.name for cell in FOREIGN}
    text += _verdicts("Further rows", [o for o in plain if o.cell.name not in main | foreign])
    text += _verdicts("Foreign tables", [o for o in plain if o.cell.name in foreign])
    text += _cells("Cells", [one for one in plain if one.cell.name in main])
    text += _cells("Further rows", [o for o in plain if o.cell.name not in main | foreign])
    text += _cells("Foreign tables", [o for o in plain if o.cell.name in foreign])
    text += _cells("Named exceptions", [one for one in found if one.cell.exception])
    named = {one.cell.name: one.cell.exception for one in found if one.cell.exception}
    text += "\n" + "".join(f"- {name}: {reason}.\n" for name, reason in named.items())
    text += _misses(found)
    text += _scores(groups)
    failed = [one for one in found if one.failed]
    text += "".join(
        f"\n- {o.cell.name}, {o.estimator}: {o.failed} fits raised `{o.reasons}`\n" for o in failed
    )
    path.write_text(text)
    print(text[: text.index("## Cells")] if "## Cells" in text else text)


def _verdicts(title: str, found: list[Judged]) -> str:
    rows = [
        verdict_row(name, mine)
        for name in ESTIMATORS
        if (mine := [one for one in found if one.estimator == name])
    ]
    return f"\n## Verdicts: {title}\n\n{VERDICT_HEADER}\n" + "\n".join(rows) + "\n" if rows else ""


def _cells(title: str, found: list[Judged]) -> str:
    return f"\n## {title}\n\n{CELL_HEADER}\n" + "\n".join(map(cell_row, found)) + "\n" if found else ""


def _misses(found: list[Judged]) -> str:
    names = ("unflagged", "neither flagged nor warned")
    lines = [
        "\n## Coefficients below their limit\n",
        "| cell | estimator | coefficient | of fits | covered | of | limit |",
    ]
    lines.append("|" + "---|" * 7)
    missed = {
        (one.cell.name, one.estimator) for one in found if one.sure.below.any() or one.quiet.below.any()
    }
    for one in found:
        for kind, rule in zip(names, (one.sure, one.quiet), strict=True):
            for place in np.flatnonzero(rule.below):
                low = binomial_limits(LEVEL, int(rule.trials[place]))[0]
                name = reference_of(one.cell).names[place]
                lines.append(
                    f"| {one.cell.name} | {one.estimator} | `{name}` | {kind} | {rule.coverage[place]:.3f} "
                    f"| {int(rule.trials[place])} | {low:.3f} |"
                )
    told = [f"- {cell}, {name}: {text}." for (cell, name), text in KNOWN.items() if (cell, name) in missed]
    return "\n".join([*lines, "", *told]) + "\n"


def _scores(groups: dict[tuple[str, str], list[dict[str, Any]]]) -> str:
    lines = [
        "\n## Score tests of the true slopes, at 5%\n",
        "| cell | estimator | rejected | of | limits |",
        "|" + "---|" * 5,
    ]
    for (cell, estimator), fits in sorted(groups.items()):
        known = [one["rejected"] for one in fits if one.get("rejected") is not None]
        if len(known) >= LEAST_FITS:
            low, high = binomial_limits(1.0 - LEVEL, len(known))
            size = sum(known) / len(known)
            mark = "" if size <= high else " **no**"
            lines.append(
                f"| {cell} | {estimator} | {size:.3f}{mark} | {len(known)} | {low:.3f} to {high:.3f} |"
            )
    return "\n".join(lines) + "\n" if len(lines) > 3 else ""
