"""Walks through the house: ``PYTHONPATH=TREE python benchmarks/walks.py`` (half a minute).

One fit, with secure noise, of a model of every tower on a small table, in a process of its own: the files and functions of privinf
that ``fit().summary()`` enters once the model is made (a function is a code object; what runs because a module
is imported on demand is left out), and the modules of privinf that are imported after it. ``--lines`` counts
the lines run as well, ``--files MODEL`` lists one walk by file.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

N = 4000
SPEND = {"epsilon": 20.0, "delta": 1e-5}


def numbers(columns: int = 3) -> tuple[Any, Any]:
    """Return (y, X): columns in [-1, 1], a response in [-2, 2]."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (N, columns))
    beta = np.resize([0.5, -0.3, 0.2], columns)
    return (X @ beta + 0.2 * rng.standard_normal(N)).clip(-2, 2), X


def moments() -> Callable[[], Any]:
    from privinf import MomentOLS

    y, X = numbers()
    model = MomentOLS(y, X, bounds=[(-1, 1)] * 3, y_bounds=(-2, 2))
    return lambda: model.fit(**SPEND)


def lasso() -> Callable[[], Any]:
    from privinf import DebiasedLasso

    y, X = numbers(8)
    model = DebiasedLasso(y, X, x_bound=1.0, y_bounds=(-2, 2))
    return lambda: model.fit(**SPEND, sparsity=2, targets=[0, 1])


def glm() -> Callable[[], Any]:
    from privinf import FederatedGLM

    y, X = numbers()
    y = (y + np.random.default_rng(1).logistic(0.0, 1.0, N) > 0).astype(float)
    parts = [(y[i::2], X[i::2]) for i in range(2)]
    model = FederatedGLM.from_arrays(parts, bounds=[(-1, 1)] * 3, family="binomial")
    return lambda: model.fit(**SPEND)


def modulated() -> Callable[[], Any]:
    from privinf import ModulatedOLS

    y, X = numbers()
    model = ModulatedOLS(y, X, radius=1.8, y_bounds=(-2, 2))
    return lambda: model.fit(**(SPEND | {"epsilon": 60.0}))


def examples() -> Callable[[], Any]:
    from privinf import IWPGLM

    y, X = numbers()
    label = np.where(y + np.random.default_rng(1).logistic(0.0, 0.5, N) > 0, 1, -1)
    model = IWPGLM(label, X, bounds=[(-1, 1)] * 3)
    return lambda: model.fit(epsilon_x=40.0, epsilon_y=6.0, delta=1e-5)


def mixing() -> Callable[[], Any]:
    from privinf import RMGMOLS

    y, X = numbers()
    held = {"one": [0], "two": [1, 2, "y"]}
    model = RMGMOLS(y, X, parties=held, bounds=[(-1, 1)] * 3, y_bounds=(-2, 2), k=80)
    return lambda: model.fit(**SPEND)


WALKS = {
    "MomentOLS central": moments,
    "DebiasedLasso": lasso,
    "FederatedGLM": glm,
    "ModulatedOLS": modulated,
    "IWPGLM": examples,
    "RMGMOLS": mixing,
}


class GLMNewtonPath:
    """Code objects of privinf entered, and lines run, while it is watched."""

    def __init__(self, *, lines: bool) -> None:
        import privinf

        self.root = str(Path(privinf.__file__).parent) + os.sep
        self.entered: set[CodeType] = set()
        self.lines: set[tuple[str, int]] = set()
        self._with_lines = lines
        self._importing = 0

    def watch(self, act: Callable[[], Any]) -> None:
        """Do something under watch."""
        if self._with_lines:
            sys.settrace(self._trace)
        sys.setprofile(self._profile)
        try:
            act()
        finally:
            sys.setprofile(None)
            sys.settrace(None)

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if code.co_name == "<module>" and event in ("call", "return"):
            self._importing += 1 if event == "call" else -1
        elif event == "call" and not self._importing and code.co_filename.startswith(self.root):
            self.entered.add(code)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(self.root) or frame.f_code.co_name == "<module>":
            return None
        if event == "line":
            self.lines.add((name, frame.f_lineno))
        return self._trace

    def told(self) -> dict[str, Any]:
        """Return files with their numbers of functions, lines run and modules imported."""
        files = Counter(code.co_filename.removeprefix(self.root) for code in self.entered)
        modules = sum(name == "privinf" or name.startswith("privinf.") for name in sys.modules)
        return {"files": dict(sorted(files.items())), "lines": len(self.lines), "modules": modules}


def take(name: str, *, lines: bool) -> dict[str, Any]:
    """Take one walk in this process."""
    warnings.simplefilter("ignore")
    fit = WALKS[name]()
    walk = GLMNewtonPath(lines=lines)
    walk.watch(lambda: str(fit().summary()))
    return walk.told()


def in_a_process(name: str, *, lines: bool) -> dict[str, Any]:
    words = [sys.executable, __file__, "--walk", name, *(["--lines"] if lines else [])]
    told: dict[str, Any] = json.loads(
        subprocess.run(words, check=True, capture_output=True, text=True).stdout
    )
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--lines", action="store_true")
    parser.add_argument("--files", choices=WALKS)
    parser.add_argument("--walk", choices=WALKS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.walk is not None:
        print(json.dumps(take(asked.walk, lines=asked.lines)))
        return
    if asked.files is not None:
        for file, functions in in_a_process(asked.files, lines=False)["files"].items():
            print(f"{functions:4} {file}")
        return
    heads = ["walk", "files", "functions", *(["lines"] if asked.lines else []), "modules imported"]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for name in WALKS:
        told = in_a_process(name, lines=asked.lines)
        cells = [name, len(told["files"]), sum(told["files"].values())]
        cells += [told["lines"]] if asked.lines else []
        print(f"| {' | '.join(map(str, [*cells, told['modules']]))} |")


if __name__ == "__main__":
    main()
