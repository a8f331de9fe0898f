"""docs/papers.md has a row for every numbered item of the five papers, and what it points at is there."""

import re

from support.tree import ROOT

PAGE = ROOT / "docs" / "papers.md"
LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")

# The papers' own numbers: what is missing from the page, or on it without being in a paper, fails.
ITEMS = {
    "Paper 1": """
        Theorem 2.2, Lemma 3.1, Algorithm 1, Algorithm 2, Corollary 3.2, Section 5, Lemma 6.1, Lemma
        6.2, Theorem 6.3, Corollary 6.4, Definition 7.1, Algorithm 3, Algorithm 4, Theorem 7.2,
        Corollary 7.3, Lemma 7.4, Corollary 7.5, Theorem 8.1, Corollary 9.1, Theorem 9.2, Figure 1, Table 1,
        Table 2, Lemma A.1, Lemma B.1, Lemma C.1, Theorem C.2, Lemma D.1, Lemma D.2, Lemma D.3, Appendix E,
        Appendix F, Section 4, Section 7, Section 10""",
    "Paper 2": """
        Proposition 2.3, Proposition 2.4, Proposition 2.5, Proposition 2.6, Algorithm 1, Figure 1,
        Theorem 1, Theorem 2, Algorithm 2, Algorithm 3, Algorithm 4, Algorithm 5, Algorithm 6,
        Algorithm 7, Theorem 3, Lemma 4.1, Theorem 4, Lemma 4.2, Theorem 5, Theorem 6, Algorithm 8,
        Algorithm 9, Algorithm 10, Theorem 7, Theorem 8, Theorem 9, Table 2, Figure 3, Figure 4,
        Table 5, Lemma A.1, Lemma A.2, Lemma A.3, Corollary 1, Corollary 2, Corollary 3, Section 4.2""",
    "Paper 3": """
        Lemma 3.1, Algorithm 1, Algorithm 2, Lemma 3.2, Theorem 3.3, Lemma A.1, Lemma A.2, Lemma
        A.3, Theorem A.4""",
    "Paper 4": """
        Proposition 2.2, Proposition 2.3, Definition 3.1, Theorem 3.3, Remark 3.4, Definition 3.5,
        Theorem 4.2, Example 1, Theorem 5.1, Theorem 5.2, Algorithm 1, Theorem 5.3, Theorem 5.5, Example 2,
        Example 3, Figure 1, Figure 2, Lemma B.1, Proposition B.2, Proposition B.3, Proposition B.4,
        Proposition D.1, Lemma D.2, Lemma D.3, Example 4, Figure 3, Figure 4, Figure 5, Figure 6,
        Figure 7, Figure 8, Theorem A.9, Theorem A.10""",
    "Paper 5": """
        Figure 1, Lemma 1, Lemma 2, Algorithm 1, Theorem 1, Algorithm 2, Theorem 2, Figure 2, Figure
        3, Table 1, Lemma 3, Lemma 4, Lemma 5, Lemma 6, Section 5.1 (k),
        Section 5.1 (BGM)""",
}


def sections(text):
    """Return the rows of every section's table, cells stripped."""
    found = {}
    for part in text.split("\n## ")[1:]:
        title = part.partition("\n")[0].partition(":")[0]
        lines = [line for line in part.splitlines() if line.startswith("|")]
        found[title] = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    return found


def anchors(page):
    """Return the anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def defines(page, name):
    """Return whether a file of Python defines every part of a name."""
    text = page.read_text()
    parts = [rf"^\s*(?:(?:def|class)\s+{part}\b|{part}\s*[:=])" for part in name.split(".")]
    return all(re.search(part, text, re.MULTILINE) for part in parts)


def broken(text):
    """Return the links of the text that open nothing, or open a file without the name in code font."""
    found = []
    for label, target in LINK.findall(text):
        path, _, anchor = target.partition("#")
        page = (PAGE.parent / path).resolve()
        there = page.exists() and (not anchor or anchor in anchors(page))
        if there and label.startswith("`"):
            there = defines(page, label.strip("`"))
        if not there:
            found.append(f"[{label}]({target})")
    return found


def homeless(text):
    """Return names in code font without a link, where an item is, that no file linked there defines."""
    found = []
    for row in (row for table in sections(text).values() for row in table):
        pages = [(PAGE.parent / target.partition("#")[0]).resolve() for _, target in LINK.findall(row[2])]
        names = re.findall(r"`([A-Za-z_]\w*)`", LINK.sub("", row[2]))
        found += [name for name in names if not any(defines(page, name) for page in pages if page.is_file())]
    return found


def test_every_item_of_the_papers_has_its_row():
    rows = sections(PAGE.read_text())
    for paper, items in ITEMS.items():
        numbered = [" ".join(item.split()) for item in items.split(",")]
        assert sorted(row[0] for row in rows[paper]) == sorted(numbered), paper


def open_rows(text):
    """Return the rows that say neither where it is and how it compares nor why they do not."""
    rows = [row for table in sections(text).values() for row in table]
    return [row for row in rows if len(row) != 5 or not row[1] or not ((row[2] and row[3]) or row[4])]


def test_every_row_says_where_and_how_or_why_not():
    assert open_rows(PAGE.read_text()) == []


def test_an_open_row_is_seen():
    table = "\n## Paper 1: x\n| a | b | c | d | e |\n|---|---|---|---|---|\n"
    rows = [
        "| L | x | y | z | |",
        "| L | x | | | none |",
        "| L | x | y | | |",
        "| L | x | | |",
        "| L | x | | | |",
    ]
    assert [len(open_rows(table + row)) for row in rows] == [0, 0, 1, 1, 1]


def test_links_open_what_they_name():
    assert broken(PAGE.read_text()) == []
    assert homeless(PAGE.read_text()) == []


def test_a_broken_link_is_seen():
    wrong = "[x](nowhere.md) [`no_such_name`](tests.md) [y](tests.md#no-such-heading)"
    assert len(broken(wrong + " [z](tests.md)")) == 3


def test_a_function_that_was_renamed_is_seen():
    file = "(../privinf/mechanisms/peeling.py)"
    assert broken(f"[`peeling_cost`]{file}") == []
    assert len(broken(f"[`peeling_cos`]{file} [`peeling_costs`]{file} [`Ledger.peeling_cost`]{file}")) == 3
    table = "\n## Paper 1: x\n| a | b | c | d | e |\n|---|---|---|---|---|\n"
    rows = [
        f"{table}| L | x | [`peeling_cost`]{file} `{name}` | y | |\n" for name in ("peeling_cost", "gone")
    ]
    assert [homeless(row) for row in rows] == [[], ["gone"]]
