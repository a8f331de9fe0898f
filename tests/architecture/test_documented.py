"""Code of the pages runs as it is printed: Python in one namespace a page, `$ privinf` lines in its folder.

A block of Python says when it runs, on its first line: "ci" (here) or "verify" (too long, run with the slow
tests); a word after it names a package without which it is left out. A console block that says "ci" is typed
line by line. A TOML block that says "ci" is a file; its first line is its name. A block of R runs where R is.
"""

import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.tree import ROOT

import privinf as pi
from privinf.cli import main

PAGES = sorted(
    path.relative_to(ROOT).as_posix() for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
)
BLOCK = re.compile(r"^```([\w+-]*)(?: ([^\n]*))?\n(.*?)^```[ ]*$", re.DOTALL | re.MULTILINE)
R = shutil.which("Rscript")
LANGUAGES = {"console", "text", "toml", "json", "yaml", "sql", "r", "julia", "latex"}


def blocks(text):
    """Return (language, tag, code) of every block."""
    return BLOCK.findall(text)


def untagged(text):
    """Return first lines of blocks that do not say when they run, or in which language they are."""
    wrong = [
        code
        for language, tag, code in blocks(text)
        if (language == "python" and tag.partition(" ")[0] not in ("ci", "verify"))
        or (language == "text" and re.search(r"^(import|from \S+ import) ", code, re.MULTILINE))
    ]
    wrong += [
        code
        for language, tag, code in blocks(text)
        if language != "python" and (language not in LANGUAGES or tag not in ("", "ci", "verify"))
    ]
    return [code.partition("\n")[0] for code in wrong]


def typed(code):
    """Run the `$ privinf` lines of a console block (a backslash goes on); stop at one that fails."""
    for line in code.replace("\\\n", " ").splitlines():
        if line.startswith("$ privinf "):
            words = shlex.split(line.removeprefix("$ privinf "), comments=True)
            done = CliRunner().invoke(main, words, prog_name="privinf")
            assert done.exit_code == 0, f"{line}\n{done.output}"


def run(page, tags):
    """Run a page's blocks that have one of these tags."""
    known = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # noise is secure: a weak fit may warn in one run and not in another
        for language, words, code in blocks((ROOT / page).read_text()):
            tag, _, package = words.partition(" ")
            if package and importlib.util.find_spec(package) is None:
                continue
            if tag in tags and language == "python":
                exec(compile(code, page, "exec"), known)
            elif tag in tags and language == "console":
                typed(code)
            elif tag in tags and language == "r" and R is not None:
                Path("block.R").write_text(code)
                subprocess.run([R, "block.R"], check=True, capture_output=True)
            elif tag in tags and language == "toml":
                Path(code.partition("\n")[0].removeprefix("# ")).write_text(code)


def of(tag):
    return [
        page
        for page in PAGES
        if any(found.partition(" ")[0] == tag for _, found, _ in blocks((ROOT / page).read_text()))
    ]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder, in which data sets of other packages cannot hide."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["privinf"])
    return tmp_path


@pytest.mark.audit
@pytest.mark.parametrize("page", of("ci"))
def test_code_runs_as_it_is_printed(page, folder):
    run(page, {"ci"})


@pytest.mark.skipif(R is None, reason="R is not installed")
def test_r_reads_a_result_by_what_the_page_says(folder):
    run("docs/formats.md", {"ci"})
    result = pi.load_results("result.npz")
    read = [float(line) for line in Path("from_r.txt").read_text().split()]
    assert read == [*result.params, *result.bse]


@pytest.mark.slow
@pytest.mark.parametrize("page", of("verify"))
def test_long_code_runs_as_it_is_printed(page, folder):
    run(page, {"ci", "verify"})


@pytest.mark.parametrize("page", PAGES)
def test_every_block_says_when_it_runs(page):
    assert untagged((ROOT / page).read_text()) == []


def test_blocks_that_say_nothing_are_seen():
    text = "```python\nx\n```\n\n```python ci\ny\n```\n\n```text\nimport w\n```\n\n```\nz\n```\n"
    assert untagged(text) == ["x", "import w", "z"]


def test_a_line_that_fails_is_seen(folder):
    with pytest.raises(AssertionError, match="no_such"):
        typed("$ privinf schema check no_such.toml\n")


def test_the_readme_starts_with_one_table_and_one_outcome():
    python = [code for language, _, code in blocks((ROOT / "README.md").read_text()) if language == "python"]
    assert "pi.OLS.from_formula(" in python[0]
    assert len(python[0].splitlines()) <= 12
