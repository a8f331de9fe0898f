"""The lint of words finds each pattern in pages, docstrings and messages, and finds none in the tree."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.words import (
    COLON_CHAIN,
    LONG_SENTENCE,
    NO_ZERO,
    REPORTED,
    Passage,
    checked_paths,
    failures,
    main,
    passages,
    passages_of_page,
    reports,
)

BAD = {
    "is no + noun": ["delta= is no number", "Rows that are\nno records count.", "The text is no formula."],
    "is told": ["The server is told the sum.", "Sites are told of it."],
    "whoever": ["Whoever reads it can remove the noise."],
    "anew": ["The ledger is made anew."],
    "up to now": ["The charges up\nto now are kept."],
    "beforehand": ["Bounds are fixed beforehand."],
    "that is none": ["a level that is none"],
    "said of": ["The same is said of totals."],
    "made-up": ["made-up data"],
    "wide against": ["wide against the effect"],
}
GOOD = [
    "There is no ledger, and where there are no rows nothing is charged.",
    "It is no longer private, no more than that, and no larger than the bound.",
    "The answer is no.",
    "delta= is not a number.",
    "Up to 20 rows are now read.",
    "At most 0.75 of 3.25, in privinf 0.1.0, from rows.npz: ...5 rows.",
]
LISTED = {
    "headless clause": "We release what is left.",
    "things that speak": "The summary says so.",
    "private metaphor": "All go through one door.",
    "law": "The noise has an invalid law.",
    "reach": "The reach of a record",
    "question": "Each question is signed.",
    "ask": "The server asks.",
    "pilot": "from a pilot",
    "picks": "The lasso picks ten.",
    "astray": "The fit went astray.",
    "at once": "Both at once",
    "once more": "Try once more.",
    "some + number": "some 240 rows",
    "beside": "printed beside it",
    "whole": "the whole fit",
    "goes on, stands, lies": "The charge stands.",
    "machines": "rows on three machines",
    "British spelling": "the behaviour of neighbours",
}


def names(words: str, kind: str = "pages") -> set[str]:
    return {finding.name.partition(" (")[0] for finding in failures(Passage("x.md", 1, words, kind))}


@pytest.mark.parametrize(("name", "words"), [(name, words) for name, all_ in BAD.items() for words in all_])
@pytest.mark.parametrize("kind", ["pages", "docstrings", "messages"])
def test_phrases_fail_in_every_kind_of_text(name, words, kind):
    assert names(words, kind) == {name}


@pytest.mark.parametrize("words", GOOD)
def test_good_english_passes(words):
    assert names(words) == set()


@pytest.mark.parametrize("number", [".75", "(.75", "-.75", "±.75", "> .75", "0.5-.75", "of .05."])
def test_a_number_without_a_leading_zero_fails_on_a_page(number):
    assert names(f"{number} seen") == {NO_ZERO}
    assert names(f"{number} seen", "docstrings") == set()


def test_a_sentence_of_41_words_fails_on_a_page_and_one_of_40_does_not():
    page = f"{'word ' * 39}word. {'Word ' + 'word ' * 39}`a, b = c` end."
    [passage] = passages_of_page(page, "x.md")
    assert [finding.name for finding in failures(passage)] == [f"{LONG_SENTENCE} (42)"]
    assert names(passage.words, "docstrings") == set()
    assert names(f"{'word ' * 30}, e.g. {'word ' * 30}") == {LONG_SENTENCE}


def test_code_outputs_and_addresses_of_a_page_are_not_read():
    page = (
        "# Title\n\n```python ci\nx = .75  # whoever\n```\n\n~~~text\nwhoever\n~~~\n\nUse `x = .75` and\n"
        "[the page](a/whoever.md).\n\n| a | b |\n|---|---|\n| whoever | .5 |\n\n- one\n- two: beforehand\n"
    )
    found = [
        (finding.line, finding.name) for one in passages_of_page(page, "x.md") for finding in failures(one)
    ]
    assert found == [(16, "whoever"), (16, NO_ZERO), (19, "beforehand")]


SOURCE = '''"""A module.

Whoever reads this.
"""


def area(x):
    """Return x.

    Parameters
    ----------
    x : float
        It is told.

    Examples
    --------
    >>> area("whoever reads the output of an example")
    'whoever reads the output of an example'
    """
    raise ValueError(
        f"{x} was fixed "
        "beforehand, which is "
        "no number"
    )
'''


def test_docstrings_and_messages_of_a_file_are_read_and_examples_are_not(tmp_path, capsys):
    path = tmp_path / "area.py"
    path.write_text(SOURCE)
    found = [(one.line, one.name) for each in passages([path], only_suspects=True) for one in failures(each)]
    assert found == [(3, "whoever"), (13, "is told"), (21, "is no + noun"), (21, "beforehand")]
    assert main([str(path)]) == 1
    assert "4 failures" in capsys.readouterr().out


def test_other_patterns_are_counted_and_do_not_fail(tmp_path, capsys):
    assert LISTED.keys() == REPORTED.keys()
    for name, words in LISTED.items():
        assert name in {finding.name for finding in reports(Passage("x.md", 1, words, "pages"))}
    chain = Passage("x.md", 1, "One: two: three.", "pages")
    assert [finding.name for finding in reports(chain)] == [COLON_CHAIN]
    page = tmp_path / "page.md"
    page.write_text("\n\n".join(LISTED.values()))
    assert main([str(page), "--list", "law"]) == 0
    printed = capsys.readouterr().out
    assert f"{page}:7: law: The noise has an invalid law." in printed
    assert "0 failures" in printed


def test_the_tree_has_no_failure():
    assert all(path.exists() for path in checked_paths())
    assert len(list(Path(checked_paths()[-1]).rglob("*.py"))) > 100
    found = [finding for one in passages(checked_paths(), only_suspects=True) for finding in failures(one)]
    assert not [str(finding) for finding in found]


def test_a_lot_of_sentences_is_drawn_from_pages_and_public_docstrings(capsys):
    main(["--lot", "40", "--seed", "3"])
    first = capsys.readouterr().out
    main(["--lot", "40", "--seed", "3"])
    assert capsys.readouterr().out == first
    assert first.startswith("40 of ")
    places = {line.split("]")[0] for line in first.splitlines() if "[docs/" in line or "[privinf" in line}
    assert len(places) > 10
    assert ">>>" not in first
