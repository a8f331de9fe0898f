"""What the vignettes have in common: the look of their figures, and the page that collects what they say.

`VIGNETTE_QUICK=1` takes few draws and few rows (`size`, `few`), `VIGNETTE_SEEDS=5` and its like set one number, and
`VIGNETTE_FOLDER` names the folder of the pages; else they lie beside the scripts.
"""

import os
import re
import subprocess
import textwrap
import time
from collections.abc import Callable
from functools import cached_property
from inspect import cleandoc
from pathlib import Path
from typing import NoReturn, TypeVar

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pandas as pd

from privinf.errors import NotAvailableError

T = TypeVar("T")
QUICK = bool(os.environ.get("VIGNETTE_QUICK"))
QUICK_ROWS = 4000
BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks" / "results"
BLUE, ORANGE, GREEN, RED, SKY, PURPLE = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7"
INK, FAINT = "#333333", "#BBBBBB"
plt.rcParams.update(
    {
        "figure.constrained_layout.use": True,
        "savefig.dpi": 160,
        "font.size": 9,
        "axes.titlesize": 9.5,
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": FAINT,
        "xtick.color": INK,
        "ytick.color": INK,
        "axes.labelcolor": INK,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": "#EAEAEA",
        "grid.linewidth": 0.7,
        "lines.linewidth": 1.6,
        "legend.frameon": False,
    }
)


def size(name: str, full: int, quick: int) -> int:
    """Return a number of draws or rows: what VIGNETTE_NAME says, or that of a full or a quick run."""
    return int(os.environ.get(f"VIGNETTE_{name}", quick if QUICK else full))


def few(rows: pd.DataFrame, quick: int = QUICK_ROWS) -> pd.DataFrame:
    """Return the rows, or some of them in a quick run."""
    if not QUICK or len(rows) <= quick:
        return rows
    return rows.sample(quick, random_state=0).reset_index(drop=True)


def wrapped(shown: object, columns: int = 80) -> str:
    """Return the printed form of an object in lines of at most `columns`; continued lines are indented."""
    lines = str(shown).splitlines()
    indents = [line[: len(line) - len(line.lstrip())] + "    " for line in lines]
    return "\n".join(
        textwrap.fill(line, columns, subsequent_indent=indent, break_on_hyphens=False)
        for line, indent in zip(lines, indents, strict=True)
    )


def alternative(caption: str, shortest: int = 30) -> str:
    """Return the text for readers who do not see a figure: the first sentences of its caption."""
    sentences = re.split(r"(?<=\.) (?=[A-Z])", " ".join(re.sub("[*`]", "", caption).split()))
    parts = [sentences[0]]
    while len(" ".join(parts)) < shortest and len(parts) < len(sentences):
        parts.append(sentences[len(parts)])
    return " ".join(parts)


class Page:
    """A Markdown page beside a script, and a folder of the same name for its figures and tables.

    Parameters
    ----------
    script : str
        The vignette's ``__file__``.
    number : str
        Format of the numbers in its tables.
    """

    def __init__(self, script: str, number: str = ".3f") -> None:
        self.script, self.number = Path(script).resolve(), number
        self.place = Path(os.environ.get("VIGNETTE_FOLDER") or self.script.parent)
        self.parts: list[str] = []
        self.left: list[str] = []
        self.started = time.time()

    @cached_property
    def folder(self) -> Path:
        """The folder of figures, made when it is first asked for."""
        folder = self.place / self.script.stem
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def loaded(self, load: Callable[[], T], what: str) -> T | None:
        """Return data, or None where they are not here; then the page says that `what` is left out, and why."""
        try:
            return load()
        except NotAvailableError as absent:
            self.left.append(f"- **{what.replace('**', '')}**: {absent}.")
            return None

    def needed(self, load: Callable[[], T], title: str) -> T:
        """Return data without which there is no page but one that says so."""
        found = self.loaded(load, "Every section")
        if found is None:
            self.add(f"# {title}")
            self.end()
        return found

    def end(self) -> NoReturn:
        """Write the page as far as it is, and end the script."""
        self.write()
        raise SystemExit(0)

    def add(self, text: str) -> None:
        """Add Markdown as it is."""
        self.parts.append(text)

    def say(self, text: str) -> None:
        """Add a paragraph."""
        self.add(cleandoc(text))

    def printed(self, shown: object) -> None:
        """Add what an object prints."""
        self.add(f"```text\n{shown}\n```")

    def table(self, frame: pd.DataFrame, number: str | None = None) -> None:
        """Add a table; `number` is a format other than the page's."""
        form = self.number if number is None else number
        rows = [
            [format(v, form) if isinstance(v, float) else str(v) for v in row]
            for row in frame.to_numpy(object)
        ]
        lines = ["| " + " | ".join(map(str, frame.columns)) + " |", "|" + " --- |" * frame.shape[1]]
        self.add("\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]))

    def benchmark(self, name: str) -> None:
        """Add the table of a long simulation, as `make verify` and its like left it."""
        text = (BENCHMARKS / f"{name}.md").read_text(encoding="utf-8")
        self.add("\n".join(line for line in text.splitlines() if line.startswith("|")))

    def figure(self, fig: plt.Figure, name: str, caption: str) -> None:
        """Save a figure and add it."""
        fig.savefig(self.folder / f"{name}.png")
        plt.close(fig)
        text = cleandoc(caption)
        self.add(f"![{alternative(text)}]({self.folder.name}/{name}.png)\n\n*{text}*")

    def write(self) -> None:
        """Write the page and the commit that it was made at, and say how long it took."""
        self.place.mkdir(parents=True, exist_ok=True)
        page = self.place / f"{self.script.stem}.md"
        parts = [*self.parts[:1], *self._remarks(), *self.parts[1:], *made_by(self.script)]
        page.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
        for line in self.left:
            print(f"{self.script.name} left out {line.removeprefix('- ')}")
        print(f"{page} written in {time.time() - self.started:.0f} s")

    def _remarks(self) -> list[str]:
        """Return what stands below the title: whether this is a quick run, and what is left out."""
        quick = (
            "*A quick run, of few draws and few rows: it shows that the code runs; its numbers say nothing.*"
        )
        left = ["**Left out**, because data are not here:", "\n".join(self.left)] if self.left else []
        return [quick] * QUICK + left


def made_by(script: Path) -> list[str]:
    """Return the line that says at which commit the tree stood; none outside a repository."""
    command = ["git", "-C", str(script.parent), "rev-parse", "--short", "HEAD"]
    try:
        commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return []
    return [f"*Made by the code at commit {commit}.*"]
