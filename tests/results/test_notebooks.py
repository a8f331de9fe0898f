"""What notebooks show of objects that are not results: HTML, escaped, with what `repr` says."""

import math
import xml.etree.ElementTree as ET

import numpy as np
import pandas as pd
import pytest

import privinf as pi

SCHEMA = pi.Schema({"x<1>": (-1.0, 1.0), "g": ["a", "b"], "y": (0.0, 4.0)})


@pytest.fixture(scope="module")
def shown():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.uniform(-1.0, 1.0, 2000), "y": rng.uniform(0.0, 4.0, 2000)})
    schema = pi.Schema({"x": (-1.0, 1.0), "y": (0.0, 4.0)})
    ledger = pi.Ledger()
    moments = pi.Moments(schema, "y ~ x", trust="central")
    release = moments.release(frame, epsilon=4.0, delta=1e-6, rng=0, ledger=ledger)
    fit = pi.MomentOLS.from_release(release).fit()
    exact = pi.Logit(rng.uniform(size=2000) < 0.5, frame[["x"]], bounds=[(-1.0, 1.0)]).fit(epsilon=math.inf)
    described = pi.stats.describe(frame, schema=schema, epsilon=4.0, delta=1e-6, rng=0)
    mean = pi.stats.ttest_1samp("y", 2.0, data=frame, schema=schema, epsilon=4.0, delta=1e-6, rng=0)
    return {
        "schema": (SCHEMA, "x&lt;1&gt;"),
        "ledger": (ledger, "1 fit"),
        "release": (release, "moments"),
        "moments": (moments, "trust central"),
        "score test": (fit.score_test(), "p-value"),
        "privacy": (fit.privacy, "psilon"),
        "mean": (mean, "NOT PRIVATE"),
        "result": (fit, "NOT PRIVATE"),
        "t test": (fit.t_test("x = 0"), "std err"),
        "joint test": (fit.wald_test("x = 0, Intercept = 0"), "Joint test"),
        "terms": (fit.wald_test_terms(), "Intercept"),
        "exact t test": (exact.t_test("x = 0"), "std err"),
        "exact joint test": (exact.wald_test("x = 0"), "Joint test"),
        "correlations": (release.corr(), "NOT PRIVATE"),
        "description": (described, "NOT PRIVATE"),
        "comparison": (pi.compare({"one": fit, "two": fit}), "epsilon"),
    }


NAMES = [
    *("schema", "ledger", "release", "moments", "score test", "privacy", "mean", "result", "t test"),
    *("joint test", "terms", "exact t test", "exact joint test", "correlations", "description", "comparison"),
]


@pytest.mark.parametrize("name", NAMES)
def test_objects_show_a_table(shown, name):
    value, text = shown[name]
    page = value._repr_html_()
    assert "<table" in page
    assert text in page
    assert repr(value) != object.__repr__(value)


def test_a_schema_shows_its_columns_and_its_unit():
    tree = ET.fromstring(SCHEMA._repr_html_())
    cells = [[cell.text for cell in row] for row in tree.findall("tbody/tr")]
    assert [row[0] for row in cells] == ["x<1>", "g", "y"]
    limited = pi.Schema({"x": (0.0, 1.0)}, unit="person", max_rows=3)
    assert "at most 3 row(s)" in limited._repr_html_()
