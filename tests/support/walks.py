"""What a fit loads and what it visits, measured in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache

from support.tree import ROOT

SETUPS = {
    "MomentOLS": """
import numpy as np, pandas as pd
from privinf import MomentOLS, Schema
rng = np.random.default_rng(0)
x = rng.uniform(-1, 1, (5000, 2))
y = x @ [0.5, -0.3] + 0.3 * rng.standard_normal(5000)
data = pd.DataFrame({"y": y, "a": x[:, 0], "b": x[:, 1]})
def fit():
    schema = Schema({"y": (-2, 2), "a": (-1, 1), "b": (-1, 1)})
    model = MomentOLS.from_formula("y ~ a + b", data, schema=schema)
    model.fit(epsilon=1.0, delta=1e-6, rng=0).summary()
""",
    "DebiasedLasso": """
import numpy as np
from privinf import DebiasedLasso
rng = np.random.default_rng(0)
x = rng.standard_normal((20_000, 40))
y = x[:, 0] - x[:, 5] + 0.5 * rng.standard_normal(20_000)
def fit():
    model = DebiasedLasso(y, x, x_bound=4.0, y_bounds=(-6, 6))
    model.fit(epsilon=2.0, delta=1e-5, sparsity=2, targets=[0, 5, 9], rng=0).summary()
""",
}
CLOSURE = """
import json, sys
fit()
print(json.dumps(sorted(name for name in sys.modules if name.split(".")[0] == "privinf")))
"""
VISITED = """
import json, pkgutil, sys, warnings
from importlib import import_module
import privinf
from pathlib import Path
package = str(Path(privinf.__file__).parent)
for found in pkgutil.walk_packages([package], "privinf."):
    if found.name.rpartition(".")[2] not in ("flower", "__main__", "opendp"):
        import_module(found.name)  # so that no import runs under the profile
seen = set()
def watch(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(package) and code.co_name != "<module>":
        seen.add((code.co_filename[len(package) + 1:], code.co_qualname))
sys.setprofile(watch)
fit()
sys.setprofile(None)
print(json.dumps(sorted(seen)))
"""


def closure(model: str) -> list[str]:
    """Return the modules of privinf that one fit and its summary load, with only the model imported."""
    return [str(name) for name in _output(SETUPS[model] + CLOSURE)]


def visited(model: str) -> list[tuple[str, str]]:
    """Return (file, function) of what privinf calls from the model's constructor to ``fit().summary()``.

    Schema and constructor count; what runs when a module is first imported does not.
    """
    return [(file, function) for file, function in _output(SETUPS[model] + VISITED)]


def files(model: str) -> list[str]:
    """Return the files of what `visited` returns."""
    return sorted({file for file, _ in visited(model)})


@cache
def _output(program: str) -> list[list[str]]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found: list[list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found
