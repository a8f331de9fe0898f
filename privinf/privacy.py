"""Where the budget went, and what the noise did to each coefficient."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from privinf import style
from privinf.accounting import PrivacyReport
from privinf.errors import NotAvailableError
from privinf.results.provenance import DescribedResults

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def budget(report: PrivacyReport, *, ax: Axes | None = None) -> Axes:
    """Plot what each release cost alone, and what all cost together: epsilon at the report's delta.

    Parameters
    ----------
    report : PrivacyReport
        ``result.privacy``, or ``result.privacy.cumulative`` for the whole ledger.

    Returns
    -------
    matplotlib Axes

    Notes
    -----
    The total is less than the sum of the parts wherever composition is better than adding epsilons.
    """
    frame = report.releases
    if not len(frame):
        raise NotAvailableError("nothing has been released: there is no budget to show")
    costs = frame["epsilon"].to_numpy(dtype=np.float64)
    if not np.isfinite(costs).all():
        raise NotAvailableError("a release without noise has no finite epsilon to draw")
    names = [*frame["label"], "together"]
    values = np.append(costs, report.epsilon())
    ax = style.new_axes(ax, width=6.4, height=1.6 + 0.36 * len(names))
    colors = [style.JOINT] * len(costs) + [style.TOTAL]
    ax.barh(range(len(names)), values, color=colors, height=0.62)
    for row, value in enumerate(values):
        ax.text(value, row, f" {value:.3g}", va="center", ha="left", color=style.INK, fontsize="small")
    style.name_rows(ax, names)
    style.quiet(ax, grid="x")
    ax.set_xlim(0.0, 1.14 * values.max())
    ax.set_xlabel(f"epsilon at delta = {report.default_delta:g}")
    ax.set_title(f"Privacy spent: {report.unit}, {report.trust}", loc="left", pad=20)
    style.stamp(ax, report)
    return ax


def noise_share(result: DescribedResults, *, ax: Axes | None = None) -> Axes:
    """Plot which share of each coefficient's variance the privacy noise causes.

    Returns
    -------
    matplotlib Axes
    """
    share = result.noise_share
    ax = style.new_axes(ax, width=6.4, height=1.7 + 0.36 * len(share))
    rows = np.arange(len(share))
    ax.barh(rows, 1.0 - share, color=style.NOISE_FREE, height=0.62, label="sampling")
    ax.barh(rows, share, left=1.0 - share, color=style.TOTAL, height=0.62, label="privacy noise")
    style.name_rows(ax, share.index)
    style.quiet(ax, grid="x")
    ax.set_xlim(0.0, 1.0)
    ax.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    ax.set_xlabel("share of the coefficient's variance")
    ax.set_title("Sampling error and privacy noise", loc="left", pad=20)
    style.stamp(ax, result.privacy)
    style.legend(ax, columns=2)
    return ax
