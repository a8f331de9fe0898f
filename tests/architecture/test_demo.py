"""The demo: it runs on the base install and matplotlib, and its local fit is one that may be trusted."""

import ast
import importlib.util

import pytest
from support.tree import ROOT

PICTURE = ROOT / "docs" / "images" / "demo.png"


@pytest.fixture(scope="module")
def demo():
    spec = importlib.util.spec_from_file_location("demo", ROOT / "vignettes" / "demo.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_runs_as_it_is(demo, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    demo.main()
    told = capsys.readouterr().out
    assert "OLS Results" in told
    assert "MomentOLS Results" in told
    assert (tmp_path / "demo_output" / "coefficients.png").stat().st_size < 60_000


@pytest.mark.audit
def test_the_local_fit_is_seldom_marked(demo):
    rows = demo.insured()
    assert sum(demo.marked(demo.local_fit(rows, seed)) for seed in range(demo.SEEDS)) < 0.05 * demo.SEEDS


def test_a_fit_that_is_marked_is_seen(demo, monkeypatch):
    monkeypatch.setattr(demo, "LOCAL_EPSILON", 0.5)
    assert demo.marked(demo.local_fit(demo.insured(), 0))


def test_it_imports_nothing_that_the_base_install_and_plots_lack(demo):
    tree = ast.parse((ROOT / "vignettes" / "demo.py").read_text())
    names = [
        n.module if isinstance(n, ast.ImportFrom) else n.names[0].name
        for n in ast.walk(tree)
        if isinstance(n, (ast.Import, ast.ImportFrom))
    ]
    roots = {name.partition(".")[0] for name in names}
    assert roots <= {
        "__future__",
        "sys",
        "warnings",
        "pathlib",
        "typing",
        "numpy",
        "pandas",
        "statsmodels",
        "privinf",
        "matplotlib",
    }


def test_the_readme_shows_its_picture():
    assert f"({PICTURE.relative_to(ROOT)})" in (ROOT / "README.md").read_text()
    assert PICTURE.stat().st_size < 60_000
