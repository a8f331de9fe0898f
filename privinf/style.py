"""What the plots share: colours that survive grey print and colour blindness, and quiet axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from privinf.errors import NotAvailableError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's palette
TOTAL = "#0072B2"
NOISE_FREE = "#E69F00"
JOINT = "#56B4E9"
INK = "#333333"
FAINT = "#CCCCCC"

LONGEST_LABEL = 32


def new_axes(ax: Axes | None, *, width: float, height: float) -> Axes:
    """Return `ax`, or the axes of a new figure of this size in inches.

    Raises
    ------
    NotAvailableError
        matplotlib is not installed.
    """
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError:
        raise NotAvailableError("plots need matplotlib: pip install 'privinf[plots]'") from None
    made: Axes = pyplot.subplots(figsize=(width, height), layout="constrained")[1]
    return made


def quiet(ax: Axes, *, grid: str) -> None:
    """Leave only the spines that carry a scale, and a faint grid across the quantity of interest."""
    ax.spines[["top", "right"]].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(FAINT)
    ax.tick_params(colors=INK, length=3)
    ax.grid(axis=grid, color=FAINT, linewidth=0.6, alpha=0.6)  # type: ignore[arg-type]
    ax.set_axisbelow(True)


def name_rows(ax: Axes, names: Any) -> None:
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


def stamp(ax: Axes, report: Any) -> None:
    """Write below the title what the fit cost; simulations are marked as such."""
    text = f"epsilon = {report.epsilon():.3g} at delta = {report.default_delta:g}"
    if report.stamp:
        text += f"  -  {report.stamp}"
    ax.text(0.0, 1.02, text, transform=ax.transAxes, fontsize="small", color=INK, ha="left", va="bottom")
