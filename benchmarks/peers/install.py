"""Other tools at fixed versions, in a folder of their own: ``python benchmarks/peers/install.py FOLDER``.

What is on PyPI is installed into FOLDER/venv; the others are cloned at the commit below, from GitHub or from
copies that are at hand (``--copy BinAgg=/path/to/a/clone``). Nothing of theirs is kept in this project. This
script alone of the project uses the network.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

# scikit-learn 1.7 took away what diffprivlib imports.
PACKAGES = (
    "diffprivlib==0.6.6",
    "numpy==2.2.6",
    "opendp==0.16.0",
    "pandas==3.1.1",
    "polars==2.1.0",
    "randomgen==2.5.1",
    "scikit-learn==1.6.1",
    "scipy==1.15.3",
    "statsmodels==0.15.0",
)
# Repository, commit, folder that Python imports from.
CHECKOUTS = {
    "dp-statsmodels": (
        "https://github.com/MaxGhenis/dp-statsmodels",
        "ce4a47bea308f33c8a230def6e6d3704b02825cd",
        ".",
    ),
    "BinAgg": ("https://github.com/Shuronglin/BinAgg", "95262ecc3fd37c06d42ff6527ded7e01f2c08973", "src"),
}


def interpreter(folder: Path) -> Path:
    """Return the peers' Python."""
    return folder / "venv" / "bin" / "python"


def import_paths(folder: Path) -> list[Path]:
    """Return what the peers' Python needs on its path."""
    return [folder / name / source for name, (_, _, source) in CHECKOUTS.items()]


def versions() -> list[str]:
    """Return the tools with the versions that are measured."""
    named = [pin.replace("==", " ") for pin in PACKAGES if pin.startswith(("diffprivlib", "opendp"))]
    return named + [f"{name} at {commit[:7]}" for name, (_, commit, _) in CHECKOUTS.items()]


def run(*command: object) -> None:
    """Run a command; the first that fails ends the script."""
    subprocess.run([str(word) for word in command], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where the peers go; made if it is not there")
    parser.add_argument("--copy", action="append", default=[], metavar="NAME=PATH", help="clone PATH")
    given = parser.parse_args()
    copies = dict(copy.split("=", 1) for copy in given.copy)
    if unknown := copies.keys() - CHECKOUTS.keys():
        parser.error(f"--copy knows {', '.join(CHECKOUTS)}, not {', '.join(unknown)}")
    folder = given.folder.resolve()
    if not interpreter(folder).exists():
        run(sys.executable, "-m", "venv", folder / "venv")
    run(interpreter(folder), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES)
    for name, (url, commit, _) in CHECKOUTS.items():
        if not (folder / name).exists():
            run("git", "clone", "--quiet", copies.get(name, url), folder / name)
        run("git", "-C", folder / name, "checkout", "--quiet", commit)
    print("\n".join(versions()))


if __name__ == "__main__":
    main()
