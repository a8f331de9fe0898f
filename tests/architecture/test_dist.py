"""What is released: wheel and sdist hold what they should, and links of the long description open."""

import email
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile

import pytest
from support.install import lower_bounds, readme_block
from support.tree import ROOT
from test_site import site

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
README = (ROOT / "README.md").read_text()
SITE = "https://example.org/privinf"
BACKEND = pytest.mark.skipif(
    importlib.util.find_spec("hatchling") is None, reason="hatchling is not installed: make dist installs it"
)


@pytest.fixture(scope="module")
def hook():
    if importlib.util.find_spec("hatchling") is None:  # the hook's text, without its base class
        text = (ROOT / "hatch_build.py").read_text()
        text = re.sub(r"^from hatchling.*$", "", text, flags=re.MULTILINE)
        known = {"MetadataHookInterface": object}
        exec(compile(text, "hatch_build.py", "exec"), known)
        return known
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return vars(module)


def pages_of_the_site():
    """Return where pages and pictures of the site are, as mkdocs names them."""
    sources = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.*")]
    sources += [path.relative_to(ROOT).as_posix() for path in ROOT.glob("benchmarks/results/*.md")]
    sources += [*site.ROOT_PAGES.values(), site.CITATION]
    return {re.sub(r"(^|/)index/$", r"\1", re.sub(r"\.md$", "/", one)) for one in sources}


def unopened(text, pages):
    """Return links that are not absolute, or go to no page of the site."""
    links = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))
    inside = [one.removeprefix(f"{SITE}/").partition("#")[0] for one in links]
    return [
        there
        for there, link in zip(inside, links, strict=True)
        if not link.startswith(SITE) or there not in pages
    ]


def test_links_of_the_long_description_go_to_pages_of_the_site(hook):
    text = hook["long_description"](README, f"{SITE}/")
    assert text.count(f"]({SITE}/") == len(re.findall(r"\]\([^)\s]+\)", README)) > 20
    assert unopened(text, pages_of_the_site()) == []
    assert "```python ci" not in text


def test_a_link_that_opens_nothing_is_seen(hook):
    text = hook["long_description"]("[a](docs/gone.md) [b](docs/tutorial.md) [c](https://example.net/)", SITE)
    assert unopened(text, pages_of_the_site()) == ["gone/", "https://example.net/"]


def test_without_an_address_links_are_their_text(hook):
    text = hook["long_description"](README, "")
    assert re.findall(r"\]\((?!\w+:)", text) == []
    flat = " ".join(text.split())
    assert "The tutorial goes from a CSV file to a result, in Python and from a shell." in flat


def test_a_link_to_elsewhere_and_code_stay(hook):
    text = "[a](https://example.net/x) `b`\n\n```python\n[c](d)\n```\n"
    assert hook["long_description"](text, "") == hook["long_description"](text, SITE) == text


def test_versions_agree():
    version = PROJECT["project"]["version"]
    assert f'__version__ = "{version}"' in (ROOT / "privinf" / "version.py").read_text()
    assert f"version: {version}\n" in (ROOT / "CITATION.cff").read_text()


def test_every_dependency_has_a_lower_bound():
    found = lower_bounds(PROJECT["project"])
    assert found["pandas"] == "2.2.2"  # the first that takes numpy 2
    assert found["cryptography"] == "44.0.0"
    with pytest.raises(SystemExit, match="no lower bound"):
        lower_bounds({"dependencies": ["numpy"], "optional-dependencies": {}}, ())


def test_the_twelve_lines_are_the_readmes_first_block():
    block = readme_block(README)
    assert block.startswith("import privinf as pi")
    assert len([line for line in block.splitlines() if line]) <= 12


# ---- wheel and sdist


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Wheel and sdist of a copy of the tracked files; the backend needs no network."""
    copy, out = tmp_path_factory.mktemp("tree") / "privinf", tmp_path_factory.mktemp("dist")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout: which files belong to it is not known")
    for name in listed.stdout.splitlines():
        if not (ROOT / name).exists():
            continue
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(out)]
    no_bytecode = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}  # of the build hook, beside it
    subprocess.run(command, cwd=copy, env=no_bytecode, check=True, capture_output=True)
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    tree = {path.relative_to(copy).as_posix() for path in copy.rglob("*") if path.is_file()}
    return wheel, sdist, tree


@BACKEND
@pytest.mark.audit
def test_the_wheel_holds_the_package_and_nothing_else(built):
    wheel, _, tree = built
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == {name for name in tree if name.startswith("privinf/")}
    assert "privinf/py.typed" in names


@BACKEND
@pytest.mark.audit
def test_the_sdist_holds_the_whole_tree(built):
    _, sdist, tree = built
    with tarfile.open(sdist) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    apart = {name for name in tree if name.startswith(".ci/") or name == ".git-blame-ignore-revs"}
    assert names == (tree - apart) | {"PKG-INFO"}
    assert {"mkdocs.yml", "SECURITY.md", "CITATION.cff", "CHANGELOG.md", "docs/tutorial.md"} <= names


@BACKEND
@pytest.mark.audit
def test_both_tell_the_index_the_same(built, hook):
    wheel, sdist, _ = built
    packed = zipfile.ZipFile(wheel)
    inside = next(name for name in packed.namelist() if name.endswith("METADATA"))
    with tarfile.open(sdist) as files:
        info = next(name for name in files.getnames() if name.endswith("/PKG-INFO"))
        told = files.extractfile(info).read().decode()
    assert packed.read(inside).decode() == told
    site_of = PROJECT["tool"]["hatch"]["metadata"]["hooks"]["custom"]["site"]
    body = email.message_from_string(told).get_payload()
    assert body.strip() == hook["long_description"](README, site_of).strip()
