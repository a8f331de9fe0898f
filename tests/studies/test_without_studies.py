"""The installed wheel, without studies beside it: what needs them says so, all else works."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import privinf as pi
from privinf.datasets import PACKED

ROOT = Path(__file__).parents[2]
# An editable installation has the root on the path: the folders where studies stand are taken off it.
SCRIPT = """
import json, sys
from pathlib import Path
wheel, saved = map(Path, sys.argv[1:])
sys.path = [str(wheel), *(at for at in sys.path if not (Path(at or ".") / "studies").is_dir())]

import numpy as np
import privinf as pi
from privinf.federation import Query, Site, SitePolicy

rng = np.random.default_rng(0)
X = rng.uniform(-1.0, 1.0, (2000, 3))
y = X[:, 0] + 0.1 * rng.standard_normal(2000)
ledger = pi.Ledger()
model = pi.DebiasedLasso(y, X, x_bound=1.0, y_bounds=(-2.0, 2.0), ledger=ledger)
ask = {"epsilon": 50.0, "delta": 1e-4, "sparsity": 1, "targets": [0], "rng": 0}
design = pi.schema.Design.from_arrays(["x"], bounds=[(-1.0, 1.0)], y_bounds=(-2.0, 2.0))
site = Site((y, X[:, :1]), design, policy=SitePolicy(trusted_server=True, operations=("paper_gradient",)))

def tried(function):
    try:
        return str(function())
    except Exception as error:
        return f"{type(error).__name__}: {error}"

found = {
    "package": pi.__file__,
    "lasso": tried(lambda: model.fit(**ask, variant="paper")),
    "spent": len(ledger.entries),
    "default": tried(lambda: model.fit(**ask).params.index.tolist()),
    "DOME": tried(lambda: pi.DOME(variant="paper")),
    "repaired": tried(lambda: pi.DOME().probes),
    "paper result": tried(lambda: pi.load_results(saved / "paper.npz")),
    "default result": tried(lambda: pi.load_results(saved / "default.npz").params.index.tolist()),
    "site": site.handle(Query("paper_gradient"), "one").error,
    "fair": tried(lambda: pi.datasets.load("fair").name),
    "audit": tried(lambda: pi.audit),
    "simulation": tried(lambda: pi.simulation),
    "import": tried(lambda: __import__("privinf.audit")),
} | {name: tried(lambda: pi.datasets.load(name)) for name in pi.datasets.PACKED}
found["studies"] = [name for name in sys.modules if name.split(".")[0] == "studies"]
print(json.dumps(found))
"""
ABSENT = "is in the studies of privinf's repository, and the installed package does not include them"


# Building and installing the wheel takes seconds, and every test here needs it.
pytestmark = pytest.mark.audit


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Return the folder in which the wheel is installed."""
    made, installed = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    here = ["--no-build-isolation"] if find_spec("hatchling") else []
    subprocess.run([*pip, "wheel", "-q", "--no-deps", *here, "-w", made, ROOT], check=True)
    (file,) = made.glob("*.whl")
    subprocess.run(
        [*pip, "install", "-q", "--no-deps", "--no-index", "--target", installed, file], check=True
    )
    return installed


@pytest.fixture(scope="module")
def without(wheel, tmp_path_factory):
    """Return what happens where the wheel is all there is."""
    saved = tmp_path_factory.mktemp("saved")
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (2000, 3))
    y = X[:, 0] + 0.1 * rng.standard_normal(2000)
    model = pi.DebiasedLasso(y, X, x_bound=1.0, y_bounds=(-2.0, 2.0))
    for variant in ("paper", "default"):
        fit = model.fit(epsilon=50.0, delta=1e-4, sparsity=1, targets=[0], variant=variant, rng=0)
        fit.save(saved / f"{variant}.npz")
        assert pi.load_results(saved / f"{variant}.npz").params.equals(fit.params)
    command = [sys.executable, "-c", SCRIPT, wheel, saved]
    done = subprocess.run(command, capture_output=True, text=True, cwd=saved)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_wheel_holds_the_package_alone(wheel):
    tops = {path.name for path in wheel.iterdir() if not path.name.endswith(".dist-info")}
    assert tops - {"bin"} == {"privinf"}


def test_nothing_of_studies_was_found(without, wheel):
    assert Path(without["package"]).is_relative_to(wheel)
    assert without["studies"] == []


@pytest.mark.parametrize("asked", ["lasso", "DOME", "paper result", *PACKED])
def test_what_needs_studies_says_so(without, asked):
    assert without[asked].startswith("NotAvailableError: ")
    assert ABSENT in without[asked]


@pytest.mark.parametrize("name", ["audit", "simulation"])
def test_modules_that_left_the_package_say_where_they_are(without, name):
    assert without[name].startswith(f"AttributeError: privinf.{name} is no longer part of the package")
    assert f"studies.{name} in a source checkout" in without[name]
    assert "CHANGELOG.md" in without[name]
    assert without["import"] == "ModuleNotFoundError: No module named 'privinf.audit'"


def test_nothing_is_spent_on_a_variant_that_is_not_here(without):
    assert without["spent"] == 0


def test_a_site_knows_no_statistic_of_studies(without):
    assert without["site"].startswith("ArgumentError: there is no statistic named 'paper_gradient'")


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ("default", "['x1']"),
        ("default result", "['x1']"),
        ("repaired", "unbiased"),
        ("fair", "fair"),
    ],
)
def test_all_else_works(without, asked, answer):
    assert without[asked] == answer
