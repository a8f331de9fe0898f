"""Scripts of benchmarks and vignettes, long to run: what they name is there, and make runs them."""

import ast
import importlib
import json
import re
import sys
from functools import cache
from pathlib import Path

import pytest

import privinf as pi
from privinf.mechanisms.catalogue import SITE_OPS

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(path for folder in ("benchmarks", "vignettes") for path in (ROOT / folder).rglob("*.py"))
FAMILIES = {name.split(".")[0] for name in SITE_OPS if "." in name}
RESULTS, MAKEFILE = ROOT / "benchmarks" / "results", (ROOT / "Makefile").read_text()
PAGES = sorted(RESULTS.glob("*.md"))
# A command on a page of results, or in the Makefile: its script and its words.
COMMAND = re.compile(r"python[)]?\s+((?:benchmarks|tests|vignettes)/[\w/]+\.py)([^`\n,;]*)")
# Put together from what several commands gave: no script names the page.
OF_SEVERAL = {"gauntlet_curved", "gauntlet_ols", "house", "tests"}
OPERATION = re.compile(rf"(?:{'|'.join(sorted(FAMILIES))})\.[a-z_]+")


def missing(text):
    """Return names that privinf or studies do not have, and operations that no site answers."""
    absent, aliases = [], set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            aliases |= {a.asname or a.name for a in node.names if a.name == "privinf"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("privinf", "studies"):
            module = importlib.import_module(node.module)
            absent += [f"{node.module}.{a.name}" for a in node.names if not _has(module, a.name)]
        elif isinstance(node, ast.Constant) and OPERATION.fullmatch(str(node.value)):
            absent += [] if node.value in SITE_OPS else [node.value]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            absent += [] if hasattr(pi, node.attr) else [f"privinf.{node.attr}"]
    return absent


def _has(module, name):
    if hasattr(module, name):
        return True
    try:
        importlib.import_module(f"{module.__name__}.{name}")
    except ImportError:
        return False
    return True


@pytest.mark.audit
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_are_there(script):
    assert missing(script.read_text(encoding="utf-8")) == []


def test_names_that_are_gone_are_seen():
    text = 'import privinf as pi\nfrom privinf.schema import Gone\npi.NoSuchModel\nx = "curved.hessian"\n'
    assert missing(text) == ["privinf.schema.Gone", "curved.hessian", "privinf.NoSuchModel"]
    assert (
        missing('import privinf as pi\nfrom privinf.schema import Design\npi.OLS\nx = "curved.step"\n') == []
    )


def made_by(page):
    """Return the script, and its words, of the first command on a page of results."""
    found = COMMAND.search(page.replace("`make bench`", "python benchmarks/bench.py"))
    return (None, "") if found is None else found.groups()


@cache
def spelled(script):
    """Return the string constants of a script, and of benchmarks that it imports, without suffixes."""
    tree = ast.parse(script.read_text(encoding="utf-8"))
    words = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    names = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    names |= {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    for name in names:
        module = script.with_name(f"{name}.py")
        words |= spelled(module) if module.exists() and module != script else set()
    return {re.sub(r"\.(md|csv|jsonl)$", "", word) for word in words}


def writes(script, stem):
    """Whether a script spells a file's name: whole, or as a prefix and the name of a table."""
    words = spelled(ROOT / script)
    return stem in words or any(stem.startswith(w) and stem[len(w) :] in words for w in words if w)


@pytest.mark.audit
def test_every_page_of_results_names_the_command_that_makes_it():
    for page in PAGES:
        script, words = made_by(page.read_text())
        assert script, f"{page.name} names no command"
        assert (ROOT / script).exists(), f"{page.name} names {script}, which is not there"
        said = page.stem in OF_SEVERAL or page.name in words
        assert said or writes(script, page.stem), f"{script} does not write {page.name}"
        text = (ROOT / script).read_text()
        assert [w for w in re.findall(r"--[\w-]+", words) if w not in text] == [], f"{page.name}: {words}"


def test_make_runs_every_command_once_and_no_other():
    """A page's script is in the Makefile, and what verify runs there writes a page, or is one itself."""
    lines = COMMAND.findall(MAKEFILE)
    makers = {made_by(page.read_text())[0] for page in PAGES}
    run = {script for script, _ in lines} | {"benchmarks/bench.py"}
    assert makers - run == {"benchmarks/walks.py"}, "of no target of make (walks.py compares two trees)"
    assert {script for script in run - makers if script.startswith("benchmarks/")} == {
        "benchmarks/missing_real.py",  # a section of the page of missing.py
        "benchmarks/peers/install.py",
        "benchmarks/small.py",
    }
    assert len(set(lines)) == len(lines), "one command in two targets"
    for script, words in lines:
        assert (ROOT / script).exists(), script
        text = (ROOT / script).read_text()
        assert [w for w in re.findall(r"--[\w-]+", words) if w not in text] == [], f"{script}{words}"


def test_every_command_of_verify_has_its_smallest_run(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    small = importlib.import_module("small")
    listed = small.commands(MAKEFILE)
    assert {Path(script).stem for script, _ in listed} == set(small.SCALE)
    verified = {
        script
        for script, _ in COMMAND.findall(MAKEFILE.partition("\nverify:")[2].partition("\ngauntlet:")[0])
    }
    others = {script for script in verified - {script for script, _ in listed} if "/peers/" not in script}
    assert others == {f"vignettes/{path.name}" for path in (ROOT / "vignettes").glob("[0-9]*.py")}
    for script, words in listed:
        text, (more, constants) = (ROOT / script).read_text(), small.SCALE[Path(script).stem]
        assert "\nif __name__ ==" in text
        options = re.findall(r"--[\w-]+", f"{words} {more}")
        assert [word for word in options if word not in text] == [], script
        names = constants.partition("=")[0].replace(",", " ").split()
        assert [name for name in names if not re.search(rf"^[A-Z_, ]*\b{name}\b.*=", text, re.M)] == [], (
            script
        )
    assert small.smallest("benchmarks/far_group.py", " 200") == ["2"]
    assert small.smallest("benchmarks/margins.py", " --fits 100") == ["--fits", "2"]
    assert "--fresh" in small.smallest("benchmarks/verify_lasso.py", " $(FRESH)")


def test_a_page_with_other_numbers_in_its_smallest_run_is_named(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    small = importlib.import_module("small")
    page = "# Page\n\nMade in 3 s.\n\n| cell | coverage | seconds |\n|---|---|---|\n| a, n = 50 | {} | {} |\n"
    first, again, moved = (
        {"a.md": small.columns(page.format(*row))} for row in ((0.95, 3), (0.95, 4), (0.78, 3))
    )
    assert first == again
    assert small.differing(first, again) == []
    assert small.differing(first, moved) == ["a.md: other numbers in column 2"]
    assert small.differing({"a.md": []}, first) == ["a.md: 3 columns, not 0"]
    assert small.differing({}, first) == []  # a page that is not stored yet
    assert small.differing(small.alike(first, moved), again) == []  # noise without a seed


def test_columns_of_smallest_runs_are_those_of_the_pages(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    small = importlib.import_module("small")
    stored = json.loads(small.STORED.read_text())
    assert set(stored) <= {page.name for page in PAGES}


@pytest.mark.audit
def test_stored_numbers_belong_to_a_command():
    makers = {made_by(page.read_text())[0] for page in PAGES}
    for table in RESULTS.glob("*.csv"):
        assert any(writes(script, table.stem) for script in makers), f"no script writes {table.name}"


def test_a_page_without_its_command_is_seen():
    assert made_by("# Numbers\n\nMeasured by hand.") == (None, "")
    assert made_by("Made by `python benchmarks/verify.py --only coverage` in 3 s.")[1] == " --only coverage"
    assert writes("benchmarks/verify_mixing.py", "mixing_rate")
    assert not writes("benchmarks/verify_mixing.py", "mixing_no_such_table")


def test_benchmarks_find_what_tests_share(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    tables = importlib.import_module("tables")
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one != str(ROOT / "tests")])
    audits = tables.load(ROOT / "tests" / "privacy" / "test_audits.py", "audits_of_a_benchmark")
    assert str(ROOT / "tests") in sys.path
    assert audits.DRAWS > 0
