"""Plots: coefficients and predicted means with their intervals, the budget, and the share of the noise."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from privinf.accounting import PrivacyReport
from privinf.errors import ArgumentError, NotAvailableError
from privinf.inference.estimate import upper_quantile
from privinf.inference.intervals import precision_of
from privinf.results.cautions import reads_intervals
from privinf.results.fitted import FittedResult
from privinf.typing import ArrayLike, ColumnsLike, Floats, IntervalMethod, RngLike
from privinf.validation import check_fraction

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["bands", "budget", "coefficients", "curves", "estimates", "forest", "noise_share", "several"]
# Colors of Okabe and Ito's palette.
TOTAL = "#0072B2"  # intervals with all errors
NOISE_FREE = "#E69F00"  # intervals without the noise
JOINT = "#56B4E9"  # simultaneous intervals
FIT_COLORS = (TOTAL, "#D55E00", "#009E73", "#CC79A7", NOISE_FREE, JOINT)  # of several fits, in their order
# Of curves: one for the first colours, the next for the same colours again.
LINE_STYLES: tuple[tuple[float, tuple[float, ...]], ...] = (
    (0, ()),
    (0, (4, 2)),
    (0, (1, 1.5)),
    (0, (4, 2, 1, 2)),
)
THEIR_CONSTANTS = ["Intercept", "const"]  # name of the constant in statsmodels
INK = "#333333"  # lines and texts
FAINT = "#CCCCCC"  # lines in the background
# Of the table below curves, in points: its distance from the axes, and that of its lines.
RISK_TABLE = 50.0
RISK_LINE = 13.0
LONGEST_LABEL = 32  # characters
BAR = 2.2  # width of an interval's line, in points
MARKER = 60.0  # area of the largest square of a forest plot, in square points
INNER = 6.0  # width of the line of the interval without noise, in points


@reads_intervals
def coefficients(
    result: FittedResult,
    *,
    simultaneous: bool = False,
    alpha: float = 0.05,
    which: list[str] | None = None,
    rng: RngLike = 0,
    ax: Axes | None = None,
) -> Axes:
    """Plot coefficients with their intervals and, inside these, the intervals without noise.

    Parameters
    ----------
    result : Results
        Weakly identified fits are drawn with their score intervals, arrows at infinite ends, and their weakly
        identified coefficients are marked "(weak)".
    simultaneous : bool
        Whether to plot joint intervals too, thin and longer.
    alpha : float
        One minus the level of all intervals.
    which : list of str, optional
        Coefficients to show; default: all but the constant.
    rng : None, int or Generator
        Seed of the joint critical value.
    ax : matplotlib Axes, optional
        Where to plot; by default a new figure.

    Returns
    -------
    matplotlib Axes
        The plot.

    Raises
    ------
    NotAvailableError
        matplotlib is not installed.
    """
    check_fraction(alpha, "alpha")
    names = _chosen_names(result, which)
    ax = new_axes(ax, width=6.4, height=1.7 + 0.36 * len(names))
    center: Floats = np.array(result.params[names], dtype=np.float64)
    rows = np.arange(len(names), dtype=np.float64)
    ax.axvline(0.0, color=INK, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
    by_score = not result._inference.has_intervals
    intervals = result.conf_int(alpha, method="score" if by_score else "wald")
    interval = intervals.loc[names].to_numpy(dtype=np.float64)
    by_score = by_score or result._inference.single is not None
    label = "score interval" if by_score else "total (sampling and privacy noise)"
    if simultaneous:
        joint = result.simultaneous(alpha, which=names, rng=rng).conf_int().to_numpy()
        ax.hlines(rows, *joint.T, color=JOINT, linewidth=1.2, label="total, jointly", capstyle="butt")
    _draw_intervals(ax, rows, center, interval, label)
    if result.estimate.cov is not None:
        _draw_noise_free(ax, rows, result, names, alpha)
    ax.plot(center, rows, "o", color="white", markeredgecolor=INK, markersize=4.5, zorder=4)
    weak = set(result._inference.weakness.index)
    name_rows(ax, [f"{name} (weak)" if name in weak else name for name in names])
    quiet(ax, grid="x")
    ax.set_xlabel(f"coefficient, {100 * (1 - alpha):g}% interval")
    ax.set_title(result.model.title, loc="left", pad=20)
    stamp(ax, result.privacy)
    legend(ax, columns=3)
    return ax


def estimates(result: Any, *, ax: Axes | None = None) -> Axes:
    """Plot the estimates of a test or a table with their intervals; counts have bars from zero.

    Margins of a table are left out, because they would shrink the cells.

    Parameters
    ----------
    result : StatResult
        Result of a function of `privinf.stats`.
    ax : matplotlib Axes, optional
        Where to plot; by default a new figure.

    Returns
    -------
    matplotlib Axes
        The plot.

    Raises
    ------
    NotAvailableError
        matplotlib is not installed.
    """
    rows = result._plotted_rows
    ax = new_axes(ax, width=6.4, height=1.7 + 0.36 * len(rows))
    center = np.array([row.estimate for row in rows], dtype=np.float64)
    interval = np.array([(row.low, row.high) for row in rows], dtype=np.float64)
    places = np.arange(len(rows), dtype=np.float64)
    counts = hasattr(result, "suppress")
    if counts:
        ax.barh(places, center, color=JOINT, height=0.62, alpha=0.45)
    level = 100.0 * result.confidence_level
    _draw_intervals(ax, places, center, interval, f"{level:g}% interval")
    if counts:  # a thin mark, which leaves a narrow interval in sight
        ax.plot(
            center,
            places,
            "|",
            color=INK,
            markersize=11,
            markeredgewidth=1.0,
            zorder=4,
            label="estimate",
        )
    else:
        ax.plot(center, places, "o", color="white", markeredgecolor=INK, markersize=4.5, zorder=4)
    name_rows(ax, [row.name for row in rows])
    quiet(ax, grid="x")
    ax.set_xlabel(f"{', '.join(['estimate', *result._ones])}, {level:g}% interval")
    if result._row_columns:
        ax.set_ylabel(", ".join(result._row_columns))
    ax.set_title(result.title, loc="left", pad=20)
    stamp(ax, result.privacy)
    legend(ax, columns=2)
    return ax


def curves(result: Any, *, ax: Axes | None = None) -> Axes:
    """Plot survival curves as steps with simultaneous bands, and the numbers at risk below the axes.

    Parameters
    ----------
    result : SurvivalResult
        Result of `privinf.survival.KaplanMeier` or `privinf.survival.NelsonAalen`.
    ax : matplotlib Axes, optional
        Where to plot; by default a new figure.

    Returns
    -------
    matplotlib Axes
        The plot.

    Raises
    ------
    NotAvailableError
        matplotlib is not installed.
    """
    frame = result.tidy()
    groups = list(result.groups)
    survival = result.kind == "survival"
    ax = new_axes(ax, width=6.4, height=4.4 + 0.22 * len(groups))
    colors = [FIT_COLORS[place % len(FIT_COLORS)] for place in range(len(groups))]
    start = 1.0 if survival else 0.0
    at_risk = result.at_risk()
    for place, group in enumerate(groups):
        part = frame[frame["group"] == group]
        times = np.concatenate([[0.0], part["time"].to_numpy()])
        values, low, high = (
            np.concatenate([[start], part[name].to_numpy()]) for name in ("estimate", "band_low", "band_high")
        )
        label = None if len(groups) == 1 else group
        style = LINE_STYLES[place // len(FIT_COLORS) % len(LINE_STYLES)]
        (drawn,) = ax.step(
            times, values, where="post", color=colors[place], linewidth=1.6, label=label, zorder=3
        )
        drawn.set_linestyle(style)
        shown = np.isfinite(high)
        ax.fill_between(
            times[shown], low[shown], high[shown], step="post", color=colors[place], alpha=0.18, linewidth=0.0
        )
        name = "At risk" if len(groups) == 1 else group
        below = RISK_TABLE + RISK_LINE * (place + (len(groups) > 1))
        ax.text(
            -0.06,
            0.0,
            name if len(name) <= 14 else f"{name[:6]}...{name[-5:]}",
            transform=_below(ax, ax.transAxes, below),
            color=colors[place] if len(groups) > 1 else INK,
            fontsize="small",
            ha="right",
            va="center",
        )
        across = _below(ax, ax.get_xaxis_transform(), below)
        words = {"transform": across, "color": INK, "fontsize": "small", "ha": "center", "va": "center"}
        for time, count in at_risk[group].items():
            ax.text(time, 0.0, f"{count:d}", **words)
    if len(groups) > 1:
        head = _below(ax, ax.transAxes, RISK_TABLE)
        ax.text(-0.06, 0.0, "At risk", transform=head, color=INK, fontsize="small", ha="right", va="center")
        ax.legend(frameon=False, fontsize="small", title=result.release.names[2])
    quiet(ax, grid="y")
    ax.set_xlim(0.0, float(result.times[-1]))
    ax.set_ylim(0.0, 1.0 if survival else None)
    ticks = at_risk.index.to_numpy()
    ax.set_xticks(ticks, [f"{tick:.4g}" for tick in ticks])
    noise = result.count_noise["at risk"]
    largest = f"; numbers at risk: noise of sd {noise.max():.2g}" if noise.any() else ""
    ax.set_xlabel(f"{result.release.names[0]}{largest}")
    name = "survival" if survival else "cumulated hazard"
    ax.set_ylabel(f"{name}, {100.0 * result.confidence_level:g}% band")
    ax.set_title(result.title, loc="left", pad=20)
    stamp(ax, result.privacy)
    return ax


def _below(ax: Axes, transform: Any, points: float) -> Any:
    """Return a transform that places texts below, by points, whatever the height of the axes."""
    from matplotlib.transforms import offset_copy

    return offset_copy(transform, fig=ax.get_figure(root=True), y=-points, units="points")


def forest(agreement: Any, column: str, *, ax: Axes | None = None) -> Axes:
    """Plot the intervals of one coefficient at all sites, and the pooled interval as a diamond.

    Parameters
    ----------
    agreement : object
        Result of ``agreement()`` of a fit by site.
    column : str
        Column of the model.
    ax : matplotlib Axes, optional
        Where to plot; by default a new figure.

    Returns
    -------
    matplotlib Axes
        The plot. Squares have areas in proportion to the weights of the sites in the pooled estimate.

    Raises
    ------
    NotAvailableError
        matplotlib is not installed.
    """
    estimates = agreement.columns[column]
    test = estimates.test
    quantile = upper_quantile(agreement.alpha / 2.0)
    ax = new_axes(ax, width=6.4, height=2.0 + 0.36 * (len(estimates.sites) + 1))
    rows = np.arange(len(estimates.sites), dtype=np.float64)
    center = np.asarray(estimates.values)
    half = quantile * np.asarray(estimates.bse)
    _draw_intervals(ax, rows, center, np.column_stack([center - half, center + half]), "site")
    sizes = MARKER * np.maximum(test.weights, 0.0) / np.max(test.weights)
    ax.scatter(center, rows, sizes, color="white", marker="s", edgecolors=INK, zorder=4)
    end = quantile * test.pooled_se
    row = float(len(rows))
    corners = [(test.pooled - end, row), (test.pooled, row - 0.22), (test.pooled + end, row)]
    across, down = zip(*corners, (test.pooled, row + 0.22), strict=True)
    ax.fill(across, down, facecolor=INK, edgecolor=INK, label="pooled", zorder=3)
    ax.axvline(test.pooled, color=INK, linewidth=0.8, linestyle=(0, (1, 2)), zorder=1)
    ax.axvline(0.0, color=INK, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
    name_rows(ax, [*estimates.sites, "pooled"])
    quiet(ax, grid="x")
    low, high = test.i_squared_interval(agreement.alpha)
    level = f"{100 * (1 - agreement.alpha):g}%"
    ax.set_xlabel(
        f"coefficient, {level} interval\nQ = {test.statistic:.3g}, df = {test.df}, p = {test.pvalue:.2g}; "
        f"I2 = {test.i_squared:.0%} ({level}: {low:.0%} to {high:.0%})"
    )
    ax.set_title(column, loc="left", pad=20)
    stamp(ax, agreement.privacy)
    legend(ax, columns=2)
    return ax


def several(
    results: Mapping[str, Any], *, alpha: float = 0.05, which: list[str] | None = None, ax: Axes | None = None
) -> Axes:
    """Plot the coefficients of several fits side by side, with their intervals.

    Parameters
    ----------
    results : mapping of str to results
        Private results and those of statsmodels. Fits without a covariance are plotted with score intervals,
        or without intervals. The legend states the warnings about intervals.
    alpha : float
        1 minus the level of the intervals.
    which : list of str, optional
        Coefficients to show; by default all but the constant.
    ax : matplotlib Axes, optional
        Where to plot; by default a new figure.

    Returns
    -------
    matplotlib Axes
        The plot.
    """
    check_fraction(alpha, "alpha")
    chosen = [_chosen_names(result, None) for result in results.values()]
    names = which or list(dict.fromkeys(name for fit_names in chosen for name in fit_names))
    if not names or not results:
        raise ArgumentError(
            "there are no coefficients to plot: results= must be a mapping with at least one result, such as "
            "{'private': result}"
        )
    ax = new_axes(ax, width=6.4, height=1.7 + (0.2 + 0.16 * len(results)) * len(names))
    ax.axvline(0.0, color=INK, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
    for place, (label, result) in enumerate(results.items()):
        present = [name for name in names if name in result.params.index]
        shift = 0.7 * ((place + 0.5) / len(results) - 0.5)
        rows = np.array([names.index(name) for name in present]) + shift
        interval, note = _interval_of(result, alpha)
        ends = interval.loc[present].to_numpy(dtype=np.float64)
        color = FIT_COLORS[place % len(FIT_COLORS)]
        center: Floats = np.array(result.params[present], dtype=np.float64)
        _draw_intervals(ax, rows, center, ends, f"{label}{note}", color)
        ax.plot(center, rows, "o", color="white", markeredgecolor=color, markersize=4.5, zorder=4)
    name_rows(ax, names)
    quiet(ax, grid="x")
    ax.set_xlabel(f"coefficient, {100 * (1 - alpha):g}% interval")
    legend(ax, columns=1)
    return ax


def _interval_of(result: Any, alpha: float) -> tuple[pd.DataFrame, str]:
    """Return the intervals of a fit, and their entry in the legend."""
    if not isinstance(result, FittedResult):
        return pd.DataFrame(result.conf_int(alpha)), " (not private)"
    kinds = dict.fromkeys(kind for kind, _ in getattr(result, "cautions", ()))
    notes = [f"epsilon {result.privacy.epsilon():.3g}", result.privacy.stamp, *kinds]
    method: IntervalMethod = "wald" if result._inference.has_intervals else "score"
    intervals = pd.DataFrame(np.column_stack([result.params, result.params]), list(result.names))
    with warnings.catch_warnings(), suppress(NotAvailableError):
        warnings.simplefilter("ignore")  # stated by the legend
        intervals = result.conf_int(alpha, method=method)
    return intervals, f" ({', '.join(filter(None, notes))})"


@reads_intervals
def bands(
    result: FittedResult,
    rows: ColumnsLike,
    x: ArrayLike,
    *,
    alpha: float = 0.05,
    simultaneous: bool = False,
    rng: RngLike = 0,
    ax: Axes | None = None,
) -> Axes:
    """Plot predicted means along new rows with total and noise-free bands.

    Parameters
    ----------
    result : Results
        The fit.
    rows : DataFrame
        New rows in the order of `x`, with the columns that the formula names.
    x : array_like, shape (number of rows,)
        Horizontal axis.
    alpha : float
        1 minus the level of the bands.
    simultaneous : bool
        Whether the band is simultaneous over the curve, instead of pointwise.
    rng : None, int or Generator
        Seed of the critical value of a simultaneous band.
    ax : matplotlib Axes, optional
        Where to plot; by default a new figure.

    Returns
    -------
    matplotlib Axes
        The plot.
    """
    check_fraction(alpha, "alpha")
    axis = np.asarray(x, dtype=np.float64)
    exog, index = result._predictions.rows(rows, True)
    if axis.shape != (len(index),):
        raise ArgumentError(
            f"x has shape {axis.shape}, but there are {len(index)} rows: pass one value of x for each row"
        )
    ax = new_axes(ax, width=6.4, height=4.2)
    mean = exog @ result.estimate.params
    estimate = result.estimate
    if simultaneous:
        joint = result.simultaneous(alpha, which=exog, rng=rng)
        factor = joint.critical_value
        half = joint.half_lengths
    else:
        factor = upper_quantile(alpha / 2.0, min(estimate.df, estimate.df_resid))
        half = precision_of(estimate, exog).half_length(alpha)
    label = "total, whole curve" if simultaneous else "total (sampling and privacy noise)"
    ax.fill_between(axis, mean - half, mean + half, color=TOTAL, alpha=0.22, linewidth=0, label=label)
    sampling = result._context.sampling_cov
    if sampling is not None:
        inner = factor * _spread(exog, sampling)
        ax.fill_between(
            axis,
            mean - inner,
            mean + inner,
            color=NOISE_FREE,
            alpha=0.45,
            linewidth=0,
            label="same data without noise",
        )
    ax.plot(axis, mean, color=TOTAL, linewidth=1.8)
    ax.set_xlabel(str(getattr(x, "name", None) or "x"))
    ax.set_ylabel(f"mean of {result.model.endog_names}")
    ax.set_title(f"Predicted mean, {100 * (1 - alpha):g}% bands", loc="left", pad=20)
    quiet(ax, grid="y")
    stamp(ax, result.privacy)
    legend(ax, columns=2)
    return ax


def _chosen_names(result: Any, requested: list[str] | None) -> list[str]:
    if not isinstance(result, FittedResult):
        return list(result.params.index.drop(THEIR_CONSTANTS, errors="ignore"))
    if requested is not None:
        unknown = [name for name in requested if name not in result.names]
        if unknown or not requested:
            raise ArgumentError(
                f"the coefficients to plot must be one or more of {', '.join(result.names)}, not "
                f"{', '.join(map(repr, unknown)) or 'none'}"
            )
        return list(requested)
    design = result._context.design
    constant = None if design is None else design.constant
    return [name for place, name in enumerate(result.names) if place != constant] or list(result.names)


def _draw_intervals(
    ax: Axes, rows: Floats, center: Floats, interval: Floats, label: str, color: str = TOTAL
) -> None:
    """Draw bars; an infinite end becomes an arrow just outside the finite picture."""
    finite = np.concatenate([center, interval[np.isfinite(interval)], [0.0]])
    margin = (float(np.ptp(finite)) or 1.0) * 0.15
    low, high = finite.min() - margin, finite.max() + margin
    ends = np.clip(interval, low, high)
    ax.hlines(rows, *ends.T, color=color, linewidth=BAR, label=label, capstyle="butt", zorder=2)
    for side, marker in ((0, "<"), (1, ">")):
        open_end = ~np.isfinite(interval[:, side])
        ax.plot(ends[open_end, side], rows[open_end], marker, color=color, markersize=7, zorder=3)


def _draw_noise_free(ax: Axes, rows: Floats, result: FittedResult, names: list[str], alpha: float) -> None:
    try:
        estimate = result.estimate
        factor = upper_quantile(alpha / 2.0, min(estimate.df, estimate.df_resid))
        half = factor * result.bse_sampling[names].to_numpy()
    except NotAvailableError:
        return
    center = result.estimate.params[[result.names.index(name) for name in names]]
    ax.hlines(
        rows,
        center - half,
        center + half,
        color=NOISE_FREE,
        linewidth=INNER,
        label="same data without noise",
        capstyle="butt",
        zorder=3,
    )


def _spread(exog: Floats, cov: Floats) -> Floats:
    variances = np.einsum("ij,jk,ik->i", exog, cov, exog)
    return np.asarray(np.sqrt(np.maximum(variances, 0.0)), dtype=np.float64)


def new_axes(ax: Axes | None, *, width: float, height: float) -> Axes:
    """Return `ax`, or the axes of a new figure of this size in inches.

    Raises NotAvailableError if matplotlib is not installed.
    """
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError:
        raise NotAvailableError("plots need matplotlib: pip install 'privinf[plots]'") from None
    axes: Axes = pyplot.subplots(figsize=(width, height), layout="constrained")[1]
    return axes


def quiet(ax: Axes, *, grid: str) -> None:
    """Leave only the spines that carry a scale, and a faint grid across the quantity of interest."""
    ax.spines[["top", "right"]].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(FAINT)
    ax.tick_params(colors=INK, length=3)
    ax.grid(axis=grid, color=FAINT, linewidth=0.6, alpha=0.6)  # type: ignore[arg-type]
    ax.set_axisbelow(True)


def name_rows(ax: Axes, names: Iterable[str]) -> None:
    """Put names at y = 0, 1, ... from top to bottom, long ones shortened."""
    labels = [name if len(name) <= LONGEST_LABEL else f"{name[:12]}...{name[-17:]}" for name in names]
    ax.set_yticks(range(len(labels)), labels)
    ax.set_ylim(len(labels) - 0.4, -0.6)


def legend(ax: Axes, *, columns: int) -> None:
    """Put the legend under a figure of ours, where it cannot cover data; else where there is room."""
    handles, labels = ax.get_legend_handles_labels()
    figure: Any = ax.figure
    if figure.get_layout_engine() is not None and len(figure.axes) == 1:
        figure.legend(
            handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize="small"
        )
    else:
        ax.legend(handles, labels, frameon=False, fontsize="small")


def stamp(ax: Axes, report: PrivacyReport) -> None:
    """Write the cost of the fit below the title; simulations are marked as such."""
    text = f"epsilon = {report.epsilon():.3g} at delta = {report.default_delta:g}"
    if report.stamp:
        text += f"  -  {report.stamp}"
    words: Any = {"xycoords": "axes fraction", "textcoords": "offset points", "ha": "left", "va": "bottom"}
    ax.annotate(text, (0.0, 1.0), (0.0, 4.0), fontsize="small", color=INK, annotation_clip=False, **words)


def budget(report: PrivacyReport, *, ax: Axes | None = None) -> Axes:
    """Plot the cost of each release and the total: epsilon at the report's delta.

    Parameters
    ----------
    report : PrivacyReport
        ``result.privacy``, or ``result.privacy.cumulative`` for the ledger.
    ax : matplotlib Axes, optional
        Where to plot; by default a new figure.

    Returns
    -------
    matplotlib Axes
        The plot.

    Notes
    -----
    The total is less than the sum of the parts wherever composition is better than adding epsilons.
    """
    frame = report.releases
    if not len(frame):
        raise NotAvailableError("nothing has been released yet, so there is no budget to plot")
    costs = frame["epsilon"].to_numpy(dtype=np.float64)
    if not np.isfinite(costs).all():
        raise NotAvailableError("a release without noise has infinite epsilon, which cannot be plotted")
    names = [*frame["label"], "together"]
    values = np.append(costs, report.epsilon())
    ax = new_axes(ax, width=6.4, height=1.6 + 0.36 * len(names))
    colors = [JOINT] * len(costs) + [TOTAL]
    ax.barh(range(len(names)), values, color=colors, height=0.62)
    for row, value in enumerate(values):
        ax.text(value, row, f" {value:.3g}", va="center", ha="left", color=INK, fontsize="small")
    name_rows(ax, names)
    quiet(ax, grid="x")
    ax.set_xlim(0.0, 1.14 * values.max())
    ax.set_xlabel(f"epsilon at delta = {report.default_delta:g}")
    ax.set_title(f"Privacy spent: {report.unit}, {report.trust}", loc="left", pad=20)
    stamp(ax, report)
    return ax


def noise_share(result: FittedResult, *, ax: Axes | None = None) -> Axes:
    """Plot the share of each coefficient's variance that the privacy noise causes.

    Parameters
    ----------
    result : Results
        The fit.
    ax : matplotlib Axes, optional
        Where to plot; by default a new figure.

    Returns
    -------
    matplotlib Axes
        The plot.
    """
    share = result.noise_share
    ax = new_axes(ax, width=6.4, height=1.7 + 0.36 * len(share))
    rows = np.arange(len(share))
    ax.barh(rows, 1.0 - share, color=NOISE_FREE, height=0.62, label="sampling")
    ax.barh(rows, share, left=1.0 - share, color=TOTAL, height=0.62, label="privacy noise")
    name_rows(ax, share.index)
    quiet(ax, grid="x")
    ax.set_xlim(0.0, 1.0)
    ax.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    ax.set_xlabel("share of the coefficient's variance")
    ax.set_title("Sampling error and privacy noise", loc="left", pad=20)
    stamp(ax, result.privacy)
    legend(ax, columns=2)
    return ax
