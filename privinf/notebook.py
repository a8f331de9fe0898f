"""HTML that notebooks show: tables of texts, escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def html_table(header: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """Return a table; every cell is shown as text."""
    heads = "".join(f"<th>{html.escape(head)}</th>" for head in header)
    lines = ["<table>", *([f"<caption>{html.escape(caption)}</caption>"] if caption else [])]
    lines += [f"<thead><tr>{heads}</tr></thead>", "<tbody>"]
    for row in rows:
        cells = "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row)
        lines.append(f"<tr>{cells}</tr>")
    return "\n".join([*lines, "</tbody>", "</table>"])


def html_frame(frame: pd.DataFrame, caption: str = "", notes: Iterable[str] = ()) -> str:
    """Return a frame of numbers as a table with four digits, and a paragraph for each note."""
    table = str(frame.to_html(float_format="{:.4g}".format))
    head = f"<p>{html.escape(caption)}</p>\n" if caption else ""
    return head + "\n".join([table, *(f"<p>{html.escape(note)}</p>" for note in notes)])
