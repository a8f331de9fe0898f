"""Vignettes as a stranger runs them: without data of ours, without a network, few draws."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys

import pytest
from support.tree import ROOT

from privinf.errors import NotAvailableError

PYPLOT = pytest.importorskip("matplotlib.pyplot")


def script(name, monkeypatch, **settings):
    """Return a script of the vignettes as a module, imported with some settings."""
    for key in ("VIGNETTE_QUICK", "VIGNETTE_FOLDER", "VIGNETTE_SEEDS"):
        monkeypatch.delenv(key, raising=False)
    for key, value in settings.items():
        monkeypatch.setenv(key, value)
    spec = importlib.util.spec_from_file_location(f"vignettes_{name}", ROOT / "vignettes" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    with PYPLOT.rc_context():
        spec.loader.exec_module(module)
    return module


def absent():
    raise NotAvailableError("data set 'made up': download it from nowhere")


def test_what_has_no_data_is_left_out_and_the_page_is_made(monkeypatch, tmp_path, capsys):
    page = script("page", monkeypatch, VIGNETTE_FOLDER=str(tmp_path / "pages")).Page("made.py")
    page.say("# Made")
    assert page.loaded(lambda: 3, "A figure") == 3
    assert page.loaded(absent, "A table") is None
    page.say("The rest.")
    page.write()
    text = (tmp_path / "pages" / "made.md").read_text()
    assert text.startswith(
        "# Made\n\n**Left out**, because data are not here:\n\n- **A table**: data set 'made up'"
    )
    assert "The rest." in text
    assert "made.py left out **A table**" in capsys.readouterr().out


def test_a_page_that_is_all_about_absent_data_says_so(monkeypatch, tmp_path):
    page = script("page", monkeypatch, VIGNETTE_FOLDER=str(tmp_path)).Page("made.py")
    with pytest.raises(SystemExit) as ended:
        page.needed(absent, "Made of data")
    assert ended.value.code == 0
    assert (tmp_path / "made.md").read_text().startswith("# Made of data\n\n**Left out**")


def test_a_quick_run_is_told_and_takes_few(monkeypatch, tmp_path):
    quick = script("page", monkeypatch, VIGNETTE_QUICK="1", VIGNETTE_FOLDER=str(tmp_path))
    page = quick.Page("made.py")
    page.say("# Made")
    page.write()
    assert "A quick run" in (tmp_path / "made.md").read_text()
    assert quick.size("SEEDS", 1000, 4) == 4
    frame = quick.pd.DataFrame({"x": range(10)})
    assert len(quick.few(frame, 3)) == 3
    whole = script("page", monkeypatch, VIGNETTE_SEEDS="7")
    assert (whole.size("SEEDS", 1000, 4), whole.size("DRAWS", 1000, 4)) == (7, 1000)
    assert whole.few(frame, 3) is frame
    assert whole.Page("made.py").place == ROOT.cwd()


def test_quick_knows_every_vignette(monkeypatch):
    pages = {path.stem for path in (ROOT / "vignettes").glob("[0-9]*.py")}
    assert set(script("quick", monkeypatch).VIGNETTES) == pages


def test_nothing_names_a_folder_beside_the_checkout():
    paths = [
        path
        for folder in ("vignettes", "benchmarks", "studies", "privinf")
        for path in (ROOT / folder).rglob("*.py")
    ]
    assert [path.name for path in paths if "../shared" in path.read_text(encoding="utf-8")] == []


@pytest.mark.slow
def test_every_vignette_is_made_without_data_and_without_a_network(tmp_path):
    alone = ["unshare", "--map-root-user", "--net"]
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], capture_output=True).returncode:
        alone = []  # no namespaces here: the run is without data only
    environment = {key: value for key, value in os.environ.items() if key != "PRIVINF_DATA"}
    done = subprocess.run(
        [*alone, sys.executable, str(ROOT / "vignettes" / "quick.py"), str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    pages = {path.stem: path.read_text() for path in tmp_path.glob("*.md")}
    assert len(pages) == 10
    left_out = {name for name, text in pages.items() if "**Left out**" in text}
    assert left_out == {
        "2a_synthetic_mixing",
        "2b_real_data_mixing",
        "3_private_examples",
        "4b_wages",
        "5b_federated_acs",
    }
    assert all("python -m studies.data build" in pages[name] for name in left_out)
