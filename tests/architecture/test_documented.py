"""The code of the README and of the pages for one curator and for tests runs as it is printed."""

import re
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
# The README's first two examples; later ones need files, sites or other people's rows.
PAGES = {"README.md": 2, "docs/one-curator.md": None, "docs/tests.md": None}


def blocks(page):
    return BLOCK.findall((ROOT / page).read_text())[: PAGES[page]]


@pytest.mark.parametrize("page", PAGES)
def test_code_runs_as_it_is_printed(page, capsys):
    """One after the other, in one namespace; the noise is secure, and warnings about it may come."""
    known = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for block in blocks(page):
            exec(compile(block, page, "exec"), known)
    assert len(blocks(page)) >= 2
    assert "Results" in capsys.readouterr().out


def test_the_readme_starts_with_one_table_and_one_outcome():
    assert "pi.OLS.from_formula(" in blocks("README.md")[0]
    assert "pi.Logit.from_formula(" in blocks("README.md")[1]
