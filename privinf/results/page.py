"""A result as one web page: summary, plots, the trade-off curve and the ledger; no script, no network."""

from __future__ import annotations

import base64
import html
import io
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from privinf.accounting import PrivacyReport
from privinf.accounting.report import KNOWN_ALONE
from privinf.errors import ConvergenceError, NotAvailableError, NotPositiveDefiniteError
from privinf.results.export import Export
from privinf.results.fitted import FittedResult
from privinf.results.notes import clipped_fact
from privinf.results.rendering import PrivateSummary
from privinf.results.summary import (
    ERRORS_NOTE,
    UNPROTECTED,
    SummaryOptions,
    flags_of,
    number,
    privacy_facts,
    summarize,
)
from privinf.typing import Floats
from privinf.version import __version__

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STYLE = """
:root { --ink: #1d2733; --soft: #5b6875; --line: #dde3e9; --paper: #ffffff; --wash: #f5f7f9; --blue: #0072b2;
  --amber: #e69f00; --amber-ink: #8f6200; --alarm: #fdecea; --alarm-edge: #b3261e; --caution: #fff6e0; }
@media screen and (prefers-color-scheme: dark) {
  :root { color-scheme: dark; --ink: #e6ebf0; --soft: #a3b0bd; --line: #33404c; --paper: #161c22;
    --wash: #0d1216; --blue: #56b4e9; --amber-ink: #f0b93a; --alarm: #43191a; --alarm-edge: #ff8a80;
    --caution: #382b0c; }
  figure img { filter: invert(1) hue-rotate(180deg); }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--wash); color: var(--ink); line-height: 1.5;
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 62rem; margin: 2rem auto; padding: 2rem 2.5rem; background: var(--paper);
  border: 1px solid var(--line); border-radius: 10px; }
h1 { margin: 0; font-size: 1.7rem; overflow-wrap: anywhere; }
h2 { margin: 2.4rem 0 .6rem; padding-bottom: .3rem; font-size: 1.15rem;
  border-bottom: 1px solid var(--line); }
p.lead { margin: .2rem 0 1.2rem; color: var(--soft); overflow-wrap: anywhere; }
.alarm, .caution { margin: .6rem 0; padding: .6rem .9rem; border-radius: 6px; border-left: 5px solid; }
.alarm { background: var(--alarm); border-color: var(--alarm-edge); }
.caution { background: var(--caution); border-color: var(--amber); }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(12rem, 1fr)); gap: .7rem;
  margin: 1rem 0; }
dl div { background: var(--wash); border-radius: 6px; padding: .5rem .8rem; }
dt { color: var(--soft); font-size: .8rem; }
dd { margin: 0; font-weight: 600; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .6rem; text-align: right; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; white-space: nowrap; }
td:first-child, th:first-child { text-align: left; overflow-wrap: anywhere; }
td { white-space: nowrap; }
td.text, th.text { text-align: left; }
td.text, td:first-child { white-space: normal; }
.share { display: inline-block; width: 6rem; height: .7rem; background: var(--amber); border-radius: 2px;
  overflow: hidden; vertical-align: middle; }
.share i { display: block; height: 100%; background: var(--blue); margin-left: auto; }
.rows { color: var(--amber-ink); } .noise { color: var(--blue); }
figure { margin: 1rem 0; } figure img { max-width: 100%; height: auto; display: block; }
figcaption, .small { color: var(--soft); font-size: .88rem; }
ol { padding-left: 1.3rem; font-size: .92rem; } li { margin: .3rem 0; overflow-wrap: anywhere; }
pre { overflow-x: auto; background: var(--wash); padding: 1rem; border-radius: 6px; font-size: .78rem; }
footer { margin-top: 2rem; color: var(--soft); font-size: .82rem; }
@media print { body { background: none; } main { border: 0; margin: 0; max-width: none; } }
"""
# Nothing is loaded and nothing runs, whatever a name holds.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
HEADS = ("", "coef", "std err", "(no noise)", "statistic", "p", "from noise")  # of the table of coefficients
# Columns of the table of releases.
LEDGER = ("label", "mechanism", "trust", "noise_scale", "epsilon", "mu", "rho")
CURVE_POINTS = 201  # false positive rates at which the trade-off curve is drawn
CURVE_LINES = 60  # epsilons, each of which bounds the curve by a line
LEAST_DELTA = 1e-12  # delta at which the largest of these epsilons holds
ALARMS = 0.05  # false positive rate of the sentence that reads the curve
READ_CURVE = (
    "An attacker who knows all other data and accepts {alarms:.0%} false positives detects the value of one "
    "{unit} at most {caught:.1%} of the time ({alarms:.0%} without the release)."
)


def page_of(result: FittedResult, alpha: float = 0.05) -> str:
    """Return a page of a result, HTML: every name and text in it is escaped.

    Parameters
    ----------
    result : Results
    alpha : float
        One minus the level of the intervals.

    Raises
    ------
    NotAvailableError
        matplotlib is not installed (``privinf[plots]``).
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the page has them as cautions
        summary = summarize(result, SummaryOptions(alpha=alpha, notes="all"))
        title = result.model.title
        parts = [
            f"<h1>{_text(title)}</h1>",
            f'<p class="lead">{_text(_lead(result))}</p>',
            *_banners(result),
            _cards(result),
            "<h2>Coefficients</h2>",
            _coefficients(result, alpha),
            *_plots(result, alpha),
            "<h2>Privacy</h2>",
            *_privacy(result.privacy),
            "<h2>Notes</h2>",
            f"<ol>{''.join(f'<li>{_text(note)}</li>' for note in summary.plain_notes)}</ol>",
            f"<details><summary>Summary as text</summary><pre>{_text(summary.as_text())}</pre></details>",
        ]
    return _document(title, parts)


def table_page(title: str, summary: PrivateSummary, report: PrivacyReport, plot: Callable[[], Axes]) -> str:
    """Return a page of a result without coefficients: its summary, its plot and its privacy.

    Parameters
    ----------
    title : str
    summary : PrivateSummary
        Summary with all notes.
    report : PrivacyReport
    plot : callable
        Draws the plot.

    Raises
    ------
    NotAvailableError
        matplotlib is not installed (``privinf[plots]``).
    """
    stamp = [f'<p class="alarm"><b>{_text(report.stamp)}</b></p>'] if report.stamp else []
    parts = [f"<h1>{_text(title)}</h1>", *stamp, f"<pre>{_text(summary.as_text())}</pre>"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the summary states them
        parts += [_picture(plot, title), "<h2>Privacy</h2>", *_privacy(report)]
    return _document(title, parts)


def _document(title: str, parts: Sequence[str]) -> str:
    """Return the page with this title and these parts."""
    footer = (
        f"<footer>privinf {_text(__version__)}. This page is computed from the release alone and "
        "contains no rows.</footer>"
    )
    head = (
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{_text(title)}</title><style>{STYLE}</style>'
    )
    body = "\n".join([*parts, footer])
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body><main>\n{body}\n</main></body></html>\n'
    )


def _text(value: object) -> str:
    return html.escape(str(value), quote=True)


def _lead(result: FittedResult) -> str:
    clipped = clipped_fact(result._context.ranked) if result.target == "population" else ""
    method = f"{result.method}, " if result.method else ""
    target = clipped or result.target
    records = result._context.records(result.nobs)
    return f"{method}{records} records, {result.cov_type} standard errors, target: {target}"


def _banners(result: FittedResult) -> list[str]:
    stamp = result.privacy.stamp
    alarms = [f'<p class="alarm"><b>{_text(stamp)}</b></p>'] if stamp else []
    if result.privacy.response_in_clear:
        text = f"{UNPROTECTED.format(result.model.endog_names)}: it was sent without noise."
        alarms.append(f'<p class="alarm"><b>{_text(text)}</b></p>')
    cautions = [
        f'<p class="caution"><b>{_text(kind)}.</b> {_text(text.removeprefix("intervals: "))}</p>'
        for kind, text in Export(result).cautions
    ]
    return alarms + cautions


def _cards(result: FittedResult) -> str:
    spent, meaning = privacy_facts(result.privacy)
    facts = [
        ("Records", result._context.records(result.nobs)),
        *((label.removesuffix(":"), value) for label, value in (*spent, *meaning)),
    ]
    return f"<dl>{''.join(f'<div><dt>{_text(a)}</dt><dd>{_text(b)}</dd></div>' for a, b in facts)}</dl>"


def _coefficients(result: FittedResult, alpha: float) -> str:
    """Return the table of coefficients; joint score intervals where there are no others."""
    jointly = not result._inference.has_intervals
    method: Any = "score" if jointly and result.score_sets_are_quick(alpha) else "wald"
    tidy = Export(result).tidy(alpha, method)
    shares = _value_or_none(lambda: result.noise_share.to_numpy())
    doubted = flags_of(result).columns
    converged = result._inference.converged
    rows = []
    for place, line in enumerate(tidy.itertuples()):
        figures = (line.estimate, line.std_error, line.std_error_sampling, line.statistic)
        cells = [
            _text(f"{line.term}{_mark(bool(line.weak) and converged, line.term in doubted)}"),
            *(_figure(value) for value in figures),
        ]
        cells += [_figure(line.p_value, 3), _bar(math.nan if shares is None else shares[place])]
        rows.append([*cells, _figure(line.conf_low), _figure(line.conf_high)])
    kind = "score " if method == "score" else ""
    ends = (f"{kind}[{alpha / 2:.4g}", f"{1 - alpha / 2:.4g}]")
    key = (
        f'<p class="small">{ERRORS_NOTE} The bar divides the variance into '
        '<span class="rows">sampling error</span> and '
        '<span class="noise">privacy noise</span>.</p>'
    )
    return _table((*HEADS, *ends), rows) + key


def _mark(is_weak: bool, is_doubted: bool) -> str:
    """Return the mark of a coefficient that is weakly identified, or that a note doubts."""
    return " (weak)" if is_weak else " (see notes)" if is_doubted else ""


def _bar(share: float) -> str:
    if math.isnan(share):
        return "-"
    return f'<span class="share"><i style="width:{100 * share:.0f}%"></i></span> {share:.0%}'


def _figure(value: Any, digits: int = 4) -> str:
    return "-" if isinstance(value, float) and math.isnan(value) else number(float(value), digits)


def _table(heads: Iterable[str], rows: Iterable[Sequence[str]], texts: int = 1) -> str:
    """Return a table of cells that are HTML; the first `texts` columns are texts."""

    def line(tag: str, cells: Iterable[str]) -> str:
        kinds = (' class="text"' if place < texts else "" for place in range(10**6))
        return "".join(f"<{tag}{kind}>{cell}</{tag}>" for cell, kind in zip(cells, kinds, strict=False))

    body = "".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{line("th", map(_text, heads))}</tr>{body}</table></div>'


def _value_or_none(value: Callable[[], Any]) -> Any:
    """Return a value, or None where the noise or the model leaves none."""
    try:
        return value()
    except (NotAvailableError, NotPositiveDefiniteError, ConvergenceError):
        return None


# ---- plots, as pictures in the page


def _plots(result: FittedResult, alpha: float) -> list[str]:
    from privinf.plotting import coefficients

    if not result._inference.has_intervals and not result.score_sets_are_quick(alpha):
        return ['<p class="small">No plot: score intervals need hundreds of passes over the records.</p>']
    drawn = _picture(lambda: coefficients(result, alpha=alpha), "Coefficients with their intervals")
    return [drawn]


def _privacy(report: PrivacyReport) -> list[str]:
    curve = trade_off(report)
    caught = 1.0 - float(np.interp(ALARMS, *curve))
    reading = READ_CURVE.format(unit=report.unit, alarms=ALARMS, caught=caught)
    lines = Counter(
        tuple(_text(row[name]) if isinstance(row[name], str) else _figure(row[name]) for name in LEDGER)
        for row in report.releases.to_dict("records")
    )
    rows = [[*line[:3], str(times), *line[3:]] for line, times in lines.items()]
    heads = ("release", *LEDGER[1:3], "times", *(name.replace("_", " ") for name in LEDGER[3:]))
    try:
        statement = f"Statement for a paper: {report.statement()}"
    except NotAvailableError as reason:
        statement = f"Statement for a paper: {reason}."
    first = "The ledger had no other releases when this fit was made."
    alone = f"{KNOWN_ALONE}." if report.budget is None else first
    extent = _text(report.place or alone)
    return [
        _picture(lambda: _drawn_curve(report, curve), "Trade-off curve", reading),
        _table(heads, rows, texts=3),
        f'<p class="small">{extent} The epsilon of each release is at delta = {report.default_delta:g}. '
        "Epsilons of single releases do not add up; the total is above.</p>",
        f"<p>{_text(statement)}</p>",
    ]


def trade_off(report: PrivacyReport) -> tuple[Floats, Floats]:
    """Return false positive rates and the lowest false negative rates: the trade-off function.

    Notes
    -----
    f(a) is the largest over epsilon of 1 - delta(epsilon) - e^epsilon a and of its mirror image, and of 0
    (Dong, Roth and Su 2022, proposition 6), over a grid of epsilon: a curve below the true one by little, so
    that protection is not overstated.
    """
    alarms = np.linspace(0.0, 1.0, CURVE_POINTS)
    if not report.entries or math.isinf(report.epsilon()):
        return alarms, np.zeros_like(alarms)
    largest_epsilon = report.epsilon(LEAST_DELTA)
    missed = np.zeros_like(alarms)
    for epsilon in np.linspace(0.0, min(largest_epsilon, 700.0), CURVE_LINES):
        delta = report.delta(float(epsilon))
        missed = np.maximum(missed, 1.0 - delta - math.exp(epsilon) * alarms)
        missed = np.maximum(missed, math.exp(-epsilon) * (1.0 - delta - alarms))
    return alarms, missed


def _drawn_curve(report: PrivacyReport, curve: tuple[Floats, Floats]) -> Axes:
    from privinf import plotting

    ax = plotting.new_axes(None, width=4.6, height=3.9)
    ax.plot([0.0, 1.0], [1.0, 0.0], color=plotting.FAINT, linewidth=1.2, label="nothing released")
    ax.fill_between(
        *curve, np.maximum(1.0 - curve[0], curve[1]), color=plotting.JOINT, alpha=0.2, linewidth=0
    )
    ax.plot(*curve, color=plotting.TOTAL, linewidth=2.0, label="this fit")
    plotting.quiet(ax, grid="both")
    ax.set_xlabel("false positive rate")
    ax.set_ylabel("lowest false negative rate")
    ax.set_xlim(0.0, 1.0)
    ax.set_ylim(0.0, 1.0)
    plotting.stamp(ax, report)
    plotting.legend(ax, columns=2)
    return ax


def _picture(draw: Callable[[], Axes], name: str, text: str = "") -> str:
    """Return a plot as a picture in the page, or the reason why there is none; `text` is its caption."""
    try:
        from matplotlib import pyplot, rc_context
    except ImportError:
        raise NotAvailableError("the HTML report needs matplotlib: pip install 'privinf[plots]'") from None
    stream = io.BytesIO()
    with rc_context({"text.parse_math": False, "svg.hashsalt": "privinf", "font.size": 10.0}):
        try:
            figure: Any = draw().figure
        except (NotAvailableError, NotPositiveDefiniteError, ConvergenceError) as reason:
            return f'<p class="small">No plot: {_text(reason)}.</p>'
        figure.savefig(stream, format="svg", metadata={"Date": None}, transparent=True)
        pyplot.close(figure)
    data = base64.b64encode(stream.getvalue()).decode("ascii")
    caption = f"<figcaption>{_text(text)}</figcaption>" if text else ""
    return f'<figure><img alt="{_text(name)}" src="data:image/svg+xml;base64,{data}">{caption}</figure>'
