"""What the jobs of releasing take from pyproject.toml and the README; the base install runs it.

``python tests/support/install.py oldest`` prints the lower bound of every dependency, as pip's constraints;
``readme`` runs the README's twelve lines with the privinf that is installed.
"""

from __future__ import annotations

import re
import sys
import tomllib
import warnings
from pathlib import Path

ROOT = Path(__file__).parents[2]
BOUND = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*>=\s*([\w.]+)")
# Extras of the job of oldest dependencies, whose bounds count too.
WITH = ("plots", "parquet", "sklearn", "arviz")


def lower_bounds(project: dict, extras: tuple[str, ...] = WITH) -> dict[str, str]:
    """Return name to lower bound; a dependency without one is refused."""
    asked = [
        *project["dependencies"],
        *(one for name in extras for one in project["optional-dependencies"][name]),
    ]
    found = {}
    for one in asked:
        match = BOUND.match(one)
        if match is None:
            raise SystemExit(f"{one} has no lower bound")
        name, bound = match.groups()
        found[name] = bound if bound.count(".") > 1 else f"{bound}.0" if "." in bound else f"{bound}.0.0"
    return found


def readme_block(text: str) -> str:
    """Return the first block of Python of the README."""
    return re.search(r"^```python[^\n]*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)[1]


def main(what: str) -> None:
    """Print the constraints, or run the README."""
    if what == "oldest":
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        print("\n".join(f"{name}=={bound}" for name, bound in lower_bounds(project).items()))
        return
    import privinf

    if Path(privinf.__file__).is_relative_to(ROOT / "privinf"):
        raise SystemExit("this is the checkout's privinf, not the one that is installed")
    warnings.simplefilter("ignore")  # noise is secure: a fit may be weak
    exec(compile(readme_block((ROOT / "README.md").read_text(encoding="utf-8")), "README.md", "exec"), {})
    print(f"privinf {privinf.__version__} of {Path(privinf.__file__).parent}: the README runs")


if __name__ == "__main__":
    main(sys.argv[1])
