"""The site: every public name stands in the reference, every page in the nav, and every link opens."""

import importlib
import importlib.util
import re
import subprocess
import sys

import pytest
from support.tree import ROOT

spec = importlib.util.spec_from_file_location("site_files", ROOT / "docs" / "site_files.py")
site = importlib.util.module_from_spec(spec)
spec.loader.exec_module(site)

PAGES = sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))
NAMES = (ROOT / "tests" / "architecture" / "public_names.txt").read_text()
# privinf.cli is a program, and has a page of its own
ROOMS = sorted({line.split()[0] for line in NAMES.splitlines()} - {"privinf.cli"} | {"privinf.errors"})
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```[ ]*$", re.DOTALL | re.MULTILINE)


def missing(room):
    """Return public names of a room that stand on no page of the reference."""
    module, offered = importlib.import_module(room), site.offered(room)
    shown = {full for names in site.names_by_page().values() for full in names.values()}
    found = [name for name in getattr(module, "__all__", offered) if offered.get(name) not in shown]
    return [name for name in found if f"{room}.{name}" not in ROOMS]


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_has_its_place_in_the_reference(room):
    assert missing(room) == []


def test_a_name_that_is_missing_is_seen(monkeypatch):
    pages = {
        page: {n: f for n, f in names.items() if n != "OLS"} for page, names in site.names_by_page().items()
    }
    monkeypatch.setattr(site, "names_by_page", lambda: pages)
    assert missing("privinf") == ["OLS"]


def test_every_page_is_in_the_nav_and_every_line_of_it_is_a_page():
    nav = set(re.findall(r"^\s+- ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    made = {*site.ROOT_PAGES.values(), site.CITATION, "reference/index.md"}
    made |= {f"reference/{page}.md" for page in site.names_by_page()}
    assert nav == made | set(PAGES)


def anchors(text):
    """Return the anchors of a page's headings."""
    titles = re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken(source, text):
    """Return the links of a page of the repository that open nothing."""
    found = []
    for target in LINK.findall(FENCE.sub("", text)):
        path, _, anchor = target.partition("#")
        if re.match(r"\w+:", target):
            continue
        there = (ROOT / source).parent / path if path else ROOT / source
        if not there.exists() or (anchor and anchor not in anchors(there.read_text())):
            found.append(target)
    return found


@pytest.mark.parametrize("source", [*site.ROOT_PAGES, *(f"docs/{page}" for page in PAGES)])
def test_links_open(source):
    assert broken(source, (ROOT / source).read_text()) == []


def test_links_that_open_nothing_are_seen():
    text = "[a](gone.md) [b](tables.md) [c](tables.md#gone) [d](https://example.org/x)"
    assert broken("docs/tests.md", text) == ["gone.md", "tables.md#gone"]


def test_links_go_to_pages_of_the_site_and_code_becomes_its_text():
    text = "[a](../../benchmarks/results/bench.md#x) [b](../tables.md) [`c`](../../privinf/releases.py) "
    text += "![d](../images/demo.png)"
    known = {"benchmarks/results/bench.md", "tables.md", "images/demo.png", "howto/factors.md"}
    made = "[a](../benchmarks/results/bench.md#x) [b](../tables.md) `c` ![d](../images/demo.png)"
    assert site.relinked(text, "howto/factors.md", known) == made
    assert site.relinked("```python ci\n[x](y.md)\n```", "tables.md", known) == "```python\n[x](y.md)\n```"


def test_base_classes_that_are_not_public_are_left_out():
    linked = '<a class="autorefs" href="#x">Results</a>'
    hidden = '<code><span title="privinf.x.Hidden">Hidden</span></code>'
    page = f'<p class="doc doc-class-bases">\n  Bases: <code>{{}}</code>, {hidden}</p>rest'
    assert "<span>ValueError</span>" in site.public_bases(page.format("<span>ValueError</span>"))
    shown = site.public_bases(page.format(linked))
    assert shown == f'<p class="doc doc-class-bases">Bases: <code>{linked}</code></p>rest'
    assert site.public_bases(page.format('<span title="privinf.x.Inner">Inner</span>')) == "rest"


def test_every_name_of_the_index_has_a_line():
    index = site.reference_index()
    assert "| [`OLS`][privinf.glm.named.OLS] | Linear regression on one table" in index
    assert index.count("| [`") > 200
    assert sum(line.endswith("|  |") for line in index.splitlines()) <= 2  # names of others' types


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("mkdocs", reason="mkdocs is not installed: make docs installs it")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
