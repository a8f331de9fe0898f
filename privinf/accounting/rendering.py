"""A privacy report as text and as HTML."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Protocol, Self

from scipy.special import ndtr, ndtri

from privinf.accounting.budget import Budget
from privinf.accounting.composition import available
from privinf.accounting.entries import LedgerEntry
from privinf.typing import ReportSubject
from privinf.validation import counted
from privinf.wire import readable

if TYPE_CHECKING:
    import pandas as pd

Facts = list[tuple[str, str]]

PARTIES = "Each party alone (the totals above are per person and include all parties)"
UNPROTECTED_RESPONSE = "the response is NOT protected: it was released without noise"
HEADINGS: dict[ReportSubject, str] = {
    "fit": "Privacy of this fit",
    "earlier release": "Privacy of the release that this fit was made from",
    "release": "Privacy of this release",
    "party": "Privacy of one party's releases",
    "ledger": "Privacy of all releases together (the entire ledger)",
}
# Spending of a fit from an earlier release.
NOTHING_SPENT = "nothing, because the release that it uses was charged earlier"
LEDGER = "Ledger at the end of this fit"
# Where releases are counted that the ledger itself does not hold.
LEDGER_AND_OTHERS = "Ledger at the end of this fit, including {} that {} charged to another ledger"
# Numbers of a line in the table of releases.
_FIGURES = ("sensitivity", "noise_scale", "mu", "rho", "epsilon")


class Printable(Protocol):
    """Printed form of a privacy report; see `PrivacyReport`."""

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """Lines of this fit."""

    @property
    def recorded(self) -> tuple[LedgerEntry, ...]:
        """Lines of the whole ledger."""

    @property
    def budget(self) -> Budget | None:
        """The ledger's limit."""

    @property
    def default_delta(self) -> float:
        """The delta at which epsilon is printed."""

    @property
    def cumulative(self) -> Self:
        """The report on the whole ledger."""

    @property
    def mu(self) -> float:
        """Gaussian DP."""

    @property
    def rho(self) -> float:
        """Concentrated DP."""

    @property
    def subject(self) -> ReportSubject:
        """Subject of the totals."""

    @property
    def elsewhere(self) -> int:
        """Number of lines that were charged to another ledger."""

    @property
    def place(self) -> str:
        """Which fit of its ledger this is."""

    @property
    def unit(self) -> str:
        """Whose privacy it is."""

    @property
    def relation(self) -> str:
        """The neighboring relation."""

    @property
    def trust(self) -> str:
        """Who saw the rows."""

    @property
    def secure(self) -> bool:
        """Whether all noise was secure."""

    @property
    def stamp(self) -> str:
        """Marks of a simulation."""

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Assumptions of the guarantee."""

    @property
    def response_in_clear(self) -> bool:
        """Whether a response was sent as it is."""

    @property
    def releases(self) -> pd.DataFrame:
        """One row per release."""

    @property
    def parties(self) -> pd.DataFrame:
        """One row per party."""

    def epsilon(self, delta: float | None = None) -> float:
        """Return the epsilon of the fit."""


def report_text(report: Printable) -> str:
    """Return the report as plain text: totals, releases (equal ones in one line), assumptions, the ledger."""
    lines = [HEADINGS[report.subject], *_indented(_facts(report))]
    if report.entries:
        lines += ["", "Releases", *_columns(_cells(report))]
    if parties := _party_cells(report):
        lines += ["", PARTIES, *_columns(parties)]
    if report.assumptions:
        lines += ["", "Assumptions", *(f"  - {readable(text)}" for text in report.assumptions)]
    if _has_ledger(report):
        lines += ["", _ledger_heading(report), *_indented(_running(report))]
    return "\n".join(lines)


def report_html(report: Printable) -> str:
    """Return the same as an HTML fragment, every text escaped."""
    parts = [f"<div><b>{html.escape(HEADINGS[report.subject])}</b>", _table(_facts(report))]
    if report.entries:
        header, *rows = _cells(report)
        parts.append(_table(rows, header))
    if parties := _party_cells(report):
        parts += [f"<b>{PARTIES}</b>", _table(parties[1:], parties[0])]
    if report.assumptions:
        items = "".join(f"<li>{html.escape(readable(text))}</li>" for text in report.assumptions)
        parts.append(f"<ul>{items}</ul>")
    if _has_ledger(report):
        parts += [f"<b>{_ledger_heading(report)}</b>", _table(_running(report))]
    return "".join([*parts, "</div>"])


def _has_ledger(report: Printable) -> bool:
    return report.budget is not None or report.recorded != report.entries


def _ledger_heading(report: Printable) -> str:
    if not report.elsewhere:
        return LEDGER
    return LEDGER_AND_OTHERS.format(
        counted(report.elsewhere, "release"), "was" if report.elsewhere == 1 else "were"
    )


def _facts(report: Printable) -> Facts:
    facts = _totals(report)
    if report.subject == "earlier release":
        facts.insert(0, ("spent by this fit", NOTHING_SPENT))
    mu = available(lambda: report.mu)
    if report.response_in_clear:
        facts.insert(0, ("warning", UNPROTECTED_RESPONSE))
    if report.stamp:
        facts.insert(0, ("warning", report.stamp))
    if math.isfinite(mu) and report.entries:
        power = 100.0 * float(ndtr(ndtri(0.05) + mu))
        facts.append(("in words", f"a 5% test {_between(report)} has power of at most {power:.1f}%"))
    if report.place:
        facts.append(("of the ledger", report.place))
    if report.entries:
        sources = ", ".join(dict.fromkeys(entry.source for entry in report.entries))
        facts += [
            ("unit", report.unit),
            ("neighbors", report.relation),
            ("trust model", report.trust),
            ("noise source", f"{sources} ({'secure' if report.secure else 'not private'})"),
        ]
    return facts


def _between(report: Printable) -> str:
    """Return the definition of neighboring data sets of the guarantee."""
    if report.relation == "zero-out":
        return f"between one {report.unit} that contributes data and one that contributes nothing"
    return f"between two values of one {report.unit}"


def _totals(report: Printable) -> Facts:
    mu = available(lambda: report.mu)
    rho = available(lambda: report.rho)
    facts = [("epsilon", f"{report.epsilon():.4g} at delta = {report.default_delta:g}")]
    for name, figure in (("mu (Gaussian DP)", mu), ("rho (zCDP)", rho)):
        facts.append((name, "not available" if math.isnan(figure) else f"{figure:.4g}"))
    return facts


def _running(report: Printable) -> Facts:
    limit = "none" if report.budget is None else str(report.budget)
    noise = [("noise", report.cumulative.stamp)] if report.cumulative.stamp else []
    return [("releases", str(len(report.recorded))), *_totals(report.cumulative), *noise, ("limit", limit)]


def _cells(report: Printable) -> list[tuple[str, ...]]:
    """Return a header and one line per release; equal ones that follow one another are one line."""
    header = ("label", "mechanism", *_FIGURES)
    frame = report.releases[list(header)]
    runs = groupby(tuple(map(_text, row)) for row in frame.itertuples(index=False))
    counts = [(line, sum(1 for _ in same)) for line, same in runs]
    return [header, *((label + f", {times} times" * (times > 1), *rest) for (label, *rest), times in counts)]


def _party_cells(report: Printable) -> list[tuple[str, ...]]:
    """Return a header and one line per party; nothing where no release names its party."""
    frame = report.parties
    if frame.empty:
        return []
    lines = frame.reset_index().itertuples(index=False)
    return [("party", *frame.columns), *(tuple(map(_text, line)) for line in lines)]


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "-" if math.isnan(value) else f"{value:.4g}"


def _indented(facts: Facts) -> list[str]:
    width = max(len(name) for name, _ in facts)
    return [f"  {name:<{width}}  {value}" for name, value in facts]


def _columns(cells: Sequence[tuple[str, ...]]) -> list[str]:
    """Align two columns of texts to the left, figures to the right."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    sides = ["<", "<", *[">"] * (len(widths) - 2)]
    lines = []
    for row in cells:
        padded = (f"{c:{side}{width}}" for c, side, width in zip(row, sides, widths, strict=True))
        lines.append("  " + "  ".join(padded))
    return lines


def _table(rows: Sequence[tuple[str, ...]], header: tuple[str, ...] = ()) -> str:
    def line(row: tuple[str, ...], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row) + "</tr>"

    head = line(header, "th") if header else ""
    return "<table>" + head + "".join(line(row, "td") for row in rows) + "</table>"
