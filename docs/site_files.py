"""What the site has in addition to docs/: the README, results, vignettes, and the pages of the API.

mkdocs runs the four hooks at the end. The tests use `names_by_page`, which says where each public name is.
A link goes to a page of the site where there is one; a link to code becomes its text.
"""

from __future__ import annotations

import ast
import posixpath
import re
import tomllib
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ROOT_PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
CITATION = "citation.md"
CITATION_TEXT = """# Citation

To cite privinf, use the entry below. It is the file `CITATION.cff` of the repository. The page
[The five papers](papers.md) names the papers whose methods the package implements.

"""
# The top names by the room that defines them; rooms that are not named here have a page of their own.
TOP = {
    "models": ("Models", ("glm", "iwp", "lasso", "mixing", "modulation", "moments")),
    "releases": ("Releases and tables", ("mechanisms", "releases")),
    "schema": ("Schemas and bounds", ("schema", "bounds")),
    "accounting": ("Budgets, ledgers, plans", ("accounting", "planning")),
    "results": ("Results", ("results",)),
}
ROOMS = {
    "stats": "Means and tests",
    "survival": "Survival",
    "federation": "Federation",
    "datasets": "Data sets",
    "plotting": "Plots",
    "noise": "Noise",
    "errors": "Errors and warnings",
    "typing": "Types",
}
# What each page of the reference is about, in a sentence or two below its title.
ABOUT = {
    "models": "Regression models, the optimizers of their fits, and the results that the fits return. "
    "The page [Which model to use](../choose.md) compares the models.",
    "releases": "Releases are noisy statistics that later analyses use without access to the rows. "
    "This page also documents the tables and files from which rows are read.",
    "schema": "A schema declares the bounds and levels of columns, which are public. "
    "The page [Choose epsilon and bounds](../howto/epsilon-and-bounds.md) shows where bounds come from.",
    "accounting": "Budgets limit what is spent, ledgers record what was spent, and plans predict the "
    "widths of intervals. The page [Privacy accounting](../explain/accounting.md) explains the terms.",
    "results": "`Results` is the base class of the results of every model. "
    "The page [Read a summary](../howto/summary.md) explains a summary.",
    "stats": "Means, quantiles, counts and tests without a regression, and the results that they return. "
    "The page [Means, quantiles and tests](../tests.md) shows how to use them.",
    "survival": "Survival curves, cumulative hazards and log-rank tests. "
    "The page [Survival curves and log-rank tests](../howto/survival.md) shows how to use them.",
    "federation": "Sites answer queries about their own rows, and a federation connects sites and analyst. "
    "The page [Three hospitals](../howto/hospitals.md) shows how to use them.",
    "datasets": "Public data sets of other packages, with their schemas, for examples and benchmarks.",
    "plotting": "Plots of results and releases. Plots use no rows, so they cost no budget. "
    "Install the extra `plots` first.",
    "noise": "Sources of the noise, and the secret key of a server's noise. "
    "The page [Floating-point arithmetic](../explain/floating-point.md) explains lattice noise.",
    "errors": "Exceptions and warnings of the package. All exceptions are subclasses of `PrivinfError`.",
    "typing": "Types of the arguments in signatures. They list the options of an argument, and have no "
    "effect when a program runs.",
    "others": "Classes and functions that use results of privinf in scikit-learn and marginaleffects. "
    "Import them by the names of their modules.",
}
FIRST = ("OLS", "Logit", "Poisson", "MomentOLS", "Results", "Schema", "Ledger", "Moments")
OTHERS = "others"
LONGEST_VALUE = 120  # characters of a type or constant that the index shows
# Modules for other libraries, which are imported by their own names.
CONNECTED = ("marginaleffects", "sklearn")
FENCE = re.compile(r"(^```.*?^```[ ]*$)", re.DOTALL | re.MULTILINE)
TAGGED = re.compile(r"^```(\w+) (?:ci|verify)(?: \w+)?$", re.MULTILINE)
BASES = re.compile(r'<p class="doc doc-class-bases">\s*Bases: (.*?)</p>', re.DOTALL)
CELL = re.compile(r"<td\b.*?</td>", re.DOTALL)
LONG_NAME = re.compile(r"(?<=<code>)[^<>\n]{12,}(?=</code>)")
NAME_PART = re.compile(r"[_.(=/](?=[\w.&])|\)(?=\.)|[a-z](?=[A-Z][a-z])")  # a name may wrap after these
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def _module_file(module: str) -> Path:
    path = ROOT / module.replace(".", "/")
    found = (path / "__init__.pyi", path.with_suffix(".pyi"), path / "__init__.py", path.with_suffix(".py"))
    return next(one for one in found if one.exists())


@cache
def offered(module: str) -> dict[str, str]:
    """Return the public names of a module with the full name of each where it is defined."""
    path = _module_file(module)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    package = module if path.stem == "__init__" else module.rpartition(".")[0]
    taken: dict[str, str] = {}
    declared: list[str] | None = None
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            origin = ".".join(part for part in (package, origin) if part) if node.level else origin
            taken |= {alias.asname or alias.name: f"{origin}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            declared = list(ast.literal_eval(node.value))
        elif isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_"):
            taken[node.name] = f"{module}.{node.name}"
        elif isinstance(node, ast.TypeAlias if hasattr(ast, "TypeAlias") else ()):
            taken[node.name.id] = f"{module}.{node.name.id}"
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and not target.id.startswith("_"):
                taken[target.id] = f"{module}.{target.id}"
    own = {name: full for name, full in taken.items() if full.startswith(f"{module}.")}
    return {name: taken.get(name, f"{module}.{name}") for name in (own if declared is None else declared)}


@cache
def names_by_page() -> dict[str, dict[str, str]]:
    """Return for every page of the reference the public names that stand on it, each with its full name."""
    top = offered("privinf")
    pages: dict[str, dict[str, str]] = {}
    for page, (_, rooms) in TOP.items():
        found = {name: full for name, full in top.items() if full.split(".")[1] in rooms}
        pages[page] = {name: found[name] for name in (*FIRST, *found) if name in found}
    for room in ROOMS:
        pages[room] = offered(f"privinf.{room}")
    for page, (_, rooms) in TOP.items():
        packages = [room for room in rooms if (ROOT / "privinf" / room / "__init__.pyi").exists()]
        for name, full in chain.from_iterable(offered(f"privinf.{room}").items() for room in packages):
            pages[page].setdefault(name, full)
    for name, full in offered("privinf.models").items():
        pages["models"].setdefault(name, full)
    connected = [room for room in CONNECTED if (ROOT / "privinf" / f"{room}.py").exists()]
    public = chain.from_iterable(offered(f"privinf.{room}").items() for room in connected)
    pages[OTHERS] = {name: full for name, full in public if not name.isupper()}  # constants are messages
    return pages


def title_of(page: str) -> str:
    """Return the title of a page of the reference."""
    return TOP[page][0] if page in TOP else ROOMS.get(page, "Other libraries")


def home_of(full: str) -> str | None:
    """Return the page on which the docstring of a name stands: the first that has it; None if not ours."""
    pages = (page for page, names in names_by_page().items() if full in names.values())
    # a type stands with the types, wherever else it is handed on
    found = "typing" if full.startswith("privinf.typing.") else next(pages)
    return found if full.startswith("privinf.") else None


def reference_page(page: str) -> str:
    """Return the Markdown of one page of the reference: its names, and where their docstrings are."""
    lines = [f"# {title_of(page)}", "", ABOUT[page], ""]
    top = offered("privinf")
    for name, full in names_by_page()[page].items():
        shown = f"privinf.{name}" if name in top else f"privinf.{page}.{name}" if page in ROOMS else full
        if home_of(full) == page:
            lines += [f"::: {full}", "    options:", f'      heading: "{shown}"', ""]
        else:
            lines += [f"`{shown}` is {_reference(full, full)}.", ""]
    return "\n".join(lines)


def _reference(name: str, full: str) -> str:
    return f"[`{name}`][{full}]" if full.startswith("privinf.") else f"`{name}`"


@cache
def _first_line(full: str) -> str:
    """Return the first line of the docstring of a public name; "" where it has none."""
    module, _, name = full.rpartition(".")
    for path in (ROOT / module.replace(".", "/") / "__init__.py", ROOT / f"{module.replace('.', '/')}.py"):
        if not path.exists():
            continue
        body = ast.parse(path.read_text(encoding="utf-8")).body
        for node, following in zip(body, [*body[1:], None], strict=True):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name:
                return (ast.get_docstring(node) or "").partition("\n")[0]
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            if name not in [getattr(target, "id", None) for target in targets]:
                continue
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                return str(following.value.value).strip().partition("\n")[0]
            value = ast.unparse(node.value) if getattr(node, "value", None) is not None else ""
            return f"`{value}`" if 0 < len(value) <= LONGEST_VALUE else ""
    try:
        origin = offered(module).get(name, full)
    except StopIteration:  # not a module with a file of its own
        return ""
    return "" if origin == full else _first_line(origin)


def reference_index() -> str:
    """Return the first page of the API: every public name in a line, by the page on which it stands."""
    lines = ["# API", "", "Every public name, by the page that documents it. Import the package by", ""]
    lines += ["```python", "import privinf as pi", "```", ""]
    for page, names in names_by_page().items():
        lines += [f"## [{title_of(page)}]({page}.md)", "", "| name | what it is |", "|---|---|"]
        for name, full in names.items():
            line = _first_line(full).replace("|", "\\|")
            lines.append(f"| {_reference(name, full)} | {line} |")
        lines.append("")
    return "\n".join(lines)


# ---- links


def source_of(page: str) -> str:
    """Return the path in the repository of the page at this path of the site."""
    for source, made in ROOT_PAGES.items():
        if page == made:
            return source
    return page if page.startswith(("benchmarks/", "vignettes/")) else f"docs/{page}"


def page_of(source: str) -> str:
    """Return the path in the site of a file of the repository."""
    if source in ROOT_PAGES:
        return ROOT_PAGES[source]
    if source == "CITATION.cff":
        return CITATION
    return source.removeprefix("docs/")


def relinked(text: str, page: str, known: set[str]) -> str:
    """Return a page's Markdown with links from page to page of the site."""

    def link(match: re.Match[str]) -> str:
        mark, label, target = match.groups()
        path, hash_, anchor = target.partition("#")
        if not path or re.match(r"\w+:", path):
            return match[0]
        source = posixpath.normpath(posixpath.join(posixpath.dirname(source_of(page)), path))
        if page_of(source) in known:
            there = posixpath.relpath(page_of(source), posixpath.dirname(page) or ".")
            return f"{mark}[{label}]({there}{hash_}{anchor})"
        return label if (ROOT / source).exists() else match[0]

    parts = FENCE.split(text)
    parts[::2] = [LINK.sub(link, part) for part in parts[::2]]
    return TAGGED.sub(r"```\1", "".join(parts))


def public_bases(html: str) -> str:
    """Return a page without base classes of this package that are not public, which have no link."""

    def line(match: re.Match[str]) -> str:
        bases = [base for base in match[1].split(", ") if "<a " in base or "privinf" not in base]
        return f'<p class="doc doc-class-bases">Bases: {", ".join(bases)}</p>' if bases else ""

    return BASES.sub(line, html)


def _breakable(name: re.Match[str]) -> str:
    return NAME_PART.sub(r"\g<0><wbr>", name[0])


# ---- what mkdocs calls


def on_config(config: Any) -> Any:
    """Show the version, and the repository where pyproject.toml has its address."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    config.site_name = f"{config.site_name} {project['project']['version']}"
    addresses = project["tool"]["hatch"]["metadata"]["hooks"]["custom"]
    config.site_url = config.site_url or addresses["site"] or None
    config.repo_url = config.repo_url or addresses["repository"] or None
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the files of the site that do not lie in docs/."""
    from mkdocs.structure.files import File

    folders = [*ROOT.glob("benchmarks/results/*.md"), *ROOT.glob("benchmarks/flower_app/README.md")]
    pages = [
        *ROOT.glob("vignettes/*.md"),
        *(p for p in ROOT.glob("vignettes/*/*") if p.suffix in (".png", ".svg")),
        *ROOT.glob("benchmarks/results/*.png"),
    ]
    for path in chain(folders, pages):
        uri = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, uri, abs_src_path=str(path)))
    for source, uri in ROOT_PAGES.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / source)))
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    files.append(File.generated(config, CITATION, content=f"{CITATION_TEXT}```yaml\n{cited}```\n"))
    files.append(File.generated(config, "reference/index.md", content=reference_index()))
    for page in names_by_page():
        files.append(File.generated(config, f"reference/{page}.md", content=reference_page(page)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn links of the repository into links of the site."""
    return relinked(markdown, page.file.src_uri, {file.src_uri for file in files})


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Show public base classes alone on the pages of the API, and let long names of tables wrap."""
    output = CELL.sub(lambda cell: LONG_NAME.sub(_breakable, cell[0]), output)
    return public_bases(output) if page.file.src_uri.startswith("reference/") else output
