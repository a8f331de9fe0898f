"""A lint of words: the style of hand-written pages, docstrings and messages.

``python -m support.words [PATHS]`` checks the pages and ``privinf/``, or the files and folders in PATHS.
It ends with 1 if a text has a phrase of `FAILING`, or if a page has a number without a leading zero or a
sentence of more than `LONGEST` words. Phrases of `REPORTED` are counted only; ``--list NAME`` prints them.
``--lot 200 --seed 1`` prints 200 sentences of README, docs and public docstrings, drawn by lot, for somebody
to read who has not seen them.

Code blocks, printed outputs and inline code are not read.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import random
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from support.messages import texts
from support.tree import ROOT, Function, Module

LONGEST = 40  # words of a sentence on a page
LONG = 35  # words of a sentence that is reported
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs")
CODE = "privinf"

# Phrases in which " " is any white space. They fail wherever they stand.
FAILING = {
    "is no + noun": (
        r"(?<!\bthere)(?<!\s) (?:is|are) no\b"
        r"(?= \w)(?! (?:longer|more|less|fewer|better|worse|farther|one)\b)(?! \w+er than\b)"
    ),
    "is told": r"\b(?:is|are|was|were|be|been) told\b",
    "whoever": r"\bwhoever\b",
    "anew": r"\banew\b",
    "up to now": r"\bup to now\b",
    "beforehand": r"\bbeforehand\b",
    "that is none": r"\bthat (?:is|are) none\b",
    "said of": r"\bsaid of\b",
    "made-up": r"\bmade-up\b",
    "wide against": r"\bwide against\b",
}
LONG_SENTENCE = f"sentence above {LONGEST} words"
NO_ZERO = "number without a leading zero"
# Phrases that are counted: most of them are good English somewhere.
REPORTED = {
    "headless clause": r"\b(?:what is|what are|what was|what lies|who has|who have|so many|so much)\b",
    "things that speak": r"(?<!\b[Ii])(?<!\bwe)(?<!\byou) (?:says|say|tells|tell|knows)\b",
    "private metaphor": r"\b(?:doors?|houses?|rooms?|towers?|floors?|second looks?|steep|passed the clip)\b",
    "law": r"\blaws?\b",
    "reach": r"\breach(?:es)?\b",
    "question": r"\bquestions?\b",
    "ask": r"\b(?:ask|asks|asked)\b",
    "pilot": r"\bpilots?\b",
    "picks": r"\b(?:picks|picked)\b",
    "astray": r"\b(?:astray|wandered|unsettled|settled)\b",
    "at once": r"\bat once\b",
    "once more": r"\bonce more\b",
    "some + number": r"\bsome \d",
    "beside": r"\bbeside\b",
    "whole": r"\bwhole\b",
    "goes on, stands, lies": r"\b(?:goes on|go on|stands|lies)\b",
    "machines": r"\bmachines?\b",
    "British spelling": r"\b\w*(?:behaviour|neighbour|colour|normalis|standardis|randomis|generalis)\w*\b",
}
COLON_CHAIN = "two colons in a sentence"
LONG_REPORTED = f"sentence above {LONG} words"

FENCE = re.compile(r"^[ ]*(`{3,}|~{3,}).*?^[ ]*\1[ ]*$", re.DOTALL | re.MULTILINE)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
INLINE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
MATH = re.compile(r"\$[^$\n]+\$")
LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\](?:\([^)\s]*(?:\s\"[^\"]*\")?\)|\[[^\]]*\])")
# What starts a text of its own: an item, a heading, a definition, a table's row, an admonition.
STARTS = re.compile(r"[ ]*(?:[-*+] |\d+\. |#+ |: |\||!!! |\?\?\? |>)")
END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\bcf)(?<!\bvs)(?<!\bal)[.!?][\"')*]*\s+(?=[\"'(*\[]*[A-Z0-9`])")
BARE_FRACTION = re.compile(r"(?:^|(?<=[\s(\[±≤≥<>=~≈–/+−-]))\.\d+")
DOCTEST = re.compile(r"^[ ]*>>> .*?(?=^[ ]*$|\Z)", re.DOTALL | re.MULTILINE)
# In a docstring: an empty line, an underline of a section, a parameter with its type, an item.
BREAK = re.compile(
    r"\n(?=[ ]*(?:\n|[*\w`][*\w`, ]* : |- |\* |\d+\. ))|\n[ ]*-{3,}[ ]*(?=\n)|(?<= : )(?=[^\n]*\n)"
)


class Passage(NamedTuple):
    """Prose that is read as one piece: a paragraph, an item, a cell, a message."""

    path: str
    line: int
    words: str
    kind: str  # "pages", "docstrings" or "messages"


class Finding(NamedTuple):
    """A passage that has a pattern, and where."""

    path: str
    line: int
    name: str
    excerpt: str
    kind: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.name}: {self.excerpt}"


def phrase(pattern: str) -> re.Pattern[str]:
    """Return a phrase's pattern, in which each space stands for any white space."""
    return re.compile(pattern.replace(" ", r"\s+"), re.IGNORECASE)


COMPILED = {name: phrase(pattern) for name, pattern in FAILING.items()}
COUNTED = {name: phrase(pattern) for name, pattern in REPORTED.items()}
# The same phrases in lower-case Python text, where a string may be continued on the next line. Most files
# have none, which a pattern that starts with a letter shows ten times as fast.
RAW = [pattern.replace(" ", r"""[\s"'rf]+""") for pattern in FAILING.values()]
NO_LETTER = re.compile(r"^(\(\?<![^)]*\)|\[\S+?\]\+|\\b)+")
SUSPECTS = [(re.compile(NO_LETTER.sub("", raw)), re.compile(raw)) for raw in RAW]


# ---- what is read


def _blank(match: re.Match[str], instead: str = "") -> str:
    """Return a replacement that keeps the numbers of lines."""
    return instead + "\n" * match[0].count("\n")


def passages_of_page(text: str, path: str, *, as_read: bool = False) -> Iterator[Passage]:
    """Yield the prose of a Markdown page: links by their labels, no code.

    With `as_read`, as a reader of the page sees it: with inline code, and each link in brackets.
    """
    text = FENCE.sub(_blank, COMMENT.sub(_blank, text))
    if not as_read:
        text = MATH.sub("`math`", INLINE.sub(lambda match: _blank(match, "`code`"), text))
    text = LINK.sub(lambda match: f"[{match[1]}]" if as_read else match[1], text)
    start, lines = 0, list[str]()
    for number, line in enumerate([*text.split("\n"), ""], 1):
        if lines and (not line.strip() or STARTS.match(line)):
            yield from _cells(Passage(path, start, "\n".join(lines), "pages"))
            lines = []
        if line.strip():
            start = start if lines else number
            lines.append(line)


def _cells(row: Passage) -> Iterator[Passage]:
    if not row.words.lstrip().startswith("|"):
        yield row
        return
    for cell in row.words.strip().strip("|").split("|"):
        if re.search(r"\w", cell):
            yield row._replace(words=cell.strip())


def passages_of_docstrings(module: Module) -> Iterator[Passage]:
    """Yield the paragraphs of a module's docstrings, without their examples' code."""
    path = _shown(module.path)
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Module | ast.ClassDef | Function) or not node.body:
            continue
        for one in node.body:
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant):
                text = DOCTEST.sub(_blank, str(one.value.value))
                line = one.lineno
                start = 0
                for match in [*BREAK.finditer(text), None]:
                    part = text[start : match.end() if match else None]
                    if part.strip():
                        yield Passage(path, line, part, "docstrings")
                    line, start = line + part.count("\n"), match.end() if match else start


def passages(paths: Iterable[Path], only_suspects: bool = False) -> Iterator[Passage]:
    """Yield all prose of files and folders; of Python files, if wanted, only of those that may fail."""
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.suffix == ".md":
                yield from passages_of_page(file.read_text(encoding="utf-8"), _shown(file))
            elif file.suffix == ".py":
                module = Module(file.stem, file)
                if only_suspects and not _is_suspect(module.text.lower()):
                    continue
                yield from passages_of_docstrings(module)
                for text in texts([module]):
                    yield Passage(_shown(file), text.line, text.words, "messages")


def _is_suspect(code: str) -> bool:
    return any(quick.search(code) and full.search(code) for quick, full in SUSPECTS)


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def sentences(words: str) -> list[str]:
    """Return the sentences of a passage."""
    return [sentence for sentence in END.split(words) if sentence.strip()]


def length(sentence: str) -> int:
    """Return the number of words; inline code is one word."""
    return sum(bool(re.search(r"\w", word)) for word in sentence.split())


# ---- a lot of sentences

LOT_PAGES = ("README.md", "docs")
SHORTEST = 6  # words of a sentence that is drawn
TABLE = re.compile(r"^[ ]*\|.*$", re.MULTILINE)
# In a docstring: the line of a parameter or an error, whose text is below it; a section's name.
ENTRY = re.compile(r"^([ ]*)\S.*\n(?=\1 +\S)|^[A-Z]\w+\n-{3,}$", re.MULTILINE)


def public_docstrings() -> Iterator[tuple[str, str]]:
    """Yield the names of all that the package and its public folders export, and their docstrings."""
    seen = set[int]()
    for folder in (
        "privinf",
        "privinf.stats",
        "privinf.survival",
        "privinf.accounting",
        "privinf.federation",
        "privinf.mechanisms",
    ):
        module = importlib.import_module(folder)
        for name in sorted(set(getattr(module, "__all__", ()))):
            public = getattr(module, name)
            members = vars(public).items() if inspect.isclass(public) else ()
            for label, value in [(name, public), *((f"{name}.{key}", member) for key, member in members)]:
                value = getattr(value, "fget", getattr(value, "__func__", value))
                text = (
                    inspect.getdoc(value)
                    if callable(value) and not label.split(".")[-1].startswith("_")
                    else ""
                )
                if text and id(value) not in seen:
                    seen.add(id(value))
                    yield f"{folder}.{label}", text


def _with_entries(text: str) -> str:
    """Return a docstring with each line of a parameter, and each section's name, as a heading."""

    def heading(match: re.Match[str]) -> str:
        return f"\n\n# {match[0].strip().splitlines()[0].replace(' : ', ': ')}\n\n"

    return ENTRY.sub(heading, text)


def readable_sentences() -> list[tuple[str, str, str]]:
    """Return place, preceding sentence and sentence of README, docs and public docstrings, each once.

    The place is what a reader sees above the sentence: the page and its last heading, or the name of an
    object and the line of the parameter.
    """
    read = [
        passage
        for path in (ROOT / page for page in LOT_PAGES)
        for file in (sorted(path.rglob("*.md")) if path.is_dir() else [path])
        for passage in passages_of_page(
            TABLE.sub("", file.read_text(encoding="utf-8")), _shown(file), as_read=True
        )
    ]
    for name, text in public_docstrings():
        parts = BREAK.split(_with_entries(DOCTEST.sub("", text)))
        read += [Passage(name, 0, part, "docstrings") for part in parts if part]
    rows = dict[str, tuple[str, str, str]]()
    path = heading = ""
    for passage in read:
        if passage.path != path:
            path, heading = passage.path, ""
        if (words := passage.words.strip()).startswith("#"):
            heading = words.lstrip("# ")
            continue
        before = ""
        for sentence in sentences(passage.words):
            flat = " ".join(sentence.split())
            if length(flat) >= SHORTEST:
                rows.setdefault(flat, (f"{path}, under: {heading}" if heading else path, before, flat))
            before = flat
    return list(rows.values())


def print_lot(number: int, seed: int) -> None:
    """Print sentences drawn by lot, each with its place and the sentence before it."""
    rows = readable_sentences()
    print(f"{number} of {len(rows)} sentences")
    for order, (place, before, sentence) in enumerate(random.Random(seed).sample(rows, number), 1):
        print(f"\n{order}. [{place}]" + (f" (before it: {before})" if before else "") + f"\n{sentence}")


# ---- what is found


def _finding(passage: Passage, name: str, start: int, excerpt: str) -> Finding:
    line = passage.line + passage.words.count("\n", 0, start)
    return Finding(passage.path, line, name, " ".join(excerpt.split()), passage.kind)


def _matches(passage: Passage, patterns: dict[str, re.Pattern[str]]) -> Iterator[Finding]:
    for name, pattern in patterns.items():
        for match in pattern.finditer(passage.words):
            around = passage.words[max(match.start() - 40, 0) : match.end() + 40]
            yield _finding(passage, name, match.start(), around)


def failures(passage: Passage) -> Iterator[Finding]:
    """Yield what a passage may not have."""
    yield from _matches(passage, COMPILED)
    if passage.kind != "pages":
        return
    yield from _matches(passage, {NO_ZERO: BARE_FRACTION})
    for sentence in sentences(passage.words):
        if length(sentence) > LONGEST:
            start = passage.words.find(sentence)
            yield _finding(passage, f"{LONG_SENTENCE} ({length(sentence)})", start, sentence[:100])


def reports(passage: Passage) -> Iterator[Finding]:
    """Yield what a passage had better not have."""
    yield from _matches(passage, COUNTED)
    for sentence in sentences(passage.words):
        start = passage.words.find(sentence)
        if len(re.findall(r":\s", sentence)) > 1 and passage.kind != "docstrings":
            yield _finding(passage, COLON_CHAIN, start, sentence[:100])
        if length(sentence) > LONG:
            yield _finding(passage, LONG_REPORTED, start, sentence[:100])


def checked_paths() -> list[Path]:
    """Return the hand-written pages, and the package."""
    return [ROOT / name for name in (*PAGES, CODE)]


def main(arguments: list[str] | None = None) -> int:
    """Print failures and the numbers of reports; return 1 if anything fails."""
    parser = argparse.ArgumentParser(prog="support.words", description="A lint of words")
    parser.add_argument("paths", nargs="*", type=Path, help="files or folders (default: pages and privinf/)")
    parser.add_argument("--list", metavar="NAME", help="print the reports whose pattern's name contains this")
    parser.add_argument("--lot", type=int, default=0, help="print this many sentences, drawn by lot")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw")
    options = parser.parse_args(arguments)
    if options.lot:
        print_lot(options.lot, options.seed)
        return 0
    failed, counts = 0, Counter[tuple[str, str]]()
    for passage in passages([path.resolve() for path in options.paths] or checked_paths()):
        for finding in failures(passage):
            print(finding)
            failed += 1
        for finding in reports(passage):
            counts[finding.name, finding.kind] += 1
            if options.list is not None and options.list in finding.name:
                print(finding)
    kinds = ("pages", "docstrings", "messages")
    print(f"{'reported, not failing':32}" + "".join(f"{kind:>12}" for kind in kinds))
    for name in (*REPORTED, COLON_CHAIN, LONG_REPORTED):
        print(f"{name:32}" + "".join(f"{counts[name, kind]:12}" for kind in kinds))
    print(f"{failed} failures")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
