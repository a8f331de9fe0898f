"""`to_latex` and `to_html`: tables that go into a paper as they are."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import privinf as pi
from privinf.accounting import PrivacyReport
from privinf.errors import ArgumentError
from privinf.inference.estimate import Estimate
from privinf.results import Results
from privinf.results.context import Context

NAMES = ("Intercept", "age & sex", "log_income")


@pytest.fixture
def result(make_entry):
    estimate = Estimate(np.array([0.5, -2.0, 0.25]), np.diag([0.01, 0.04, 0.25]), NAMES, 1234)
    return Results(estimate, Context(report=PrivacyReport.from_entries([make_entry()], delta=1e-5)))


def test_latex_has_rules_escapes_and_a_note(result):
    text = result.to_latex(caption="Wages & more", label="tab:wages")
    for part in (
        r"\toprule",
        r"\midrule",
        r"\bottomrule",
        r"age \& sex",
        r"log\_income",
        r"\label{tab:wages}",
    ):
        assert part in text
    assert r"\caption{Wages \& more}" in text
    assert "0.500 & 0.100" in text
    assert f"epsilon = {result.privacy.epsilon(1e-5):.4g}, delta = 1e-05" in text
    assert "n = 1,234" in text
    for environment in ("table", "threeparttable", "tabular", "tablenotes"):
        assert text.count(rf"\begin{{{environment}}}") == text.count(rf"\end{{{environment}}}") == 1


def test_stars_follow_the_pvalues(result):
    rows = ET.fromstring(result.to_html(stars=True)).findall("tbody/tr")
    stars = [row[1].text.count("*") for row in rows]
    expected = [sum(p < level for level in (0.05, 0.01, 0.001)) for p in result.pvalues]
    assert stars == expected == [3, 3, 0]
    assert "*" not in result.to_html()


def test_intervals_are_those_of_conf_int(result):
    rows = ET.fromstring(result.to_html(cells="ci", alpha=0.1, digits=4)).findall("tbody/tr")
    ends = [[float(end) for end in re.findall(r"-?[\d.]+", row[2].text)] for row in rows]
    np.testing.assert_allclose(ends, result.conf_int(0.1).to_numpy(), atol=5.1e-5)
    assert "90% interval" in result.to_html(cells="ci", alpha=0.1)


def test_a_weak_result_has_score_intervals_and_what_is_not_private_says_so():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (200, 2))
    y = np.clip(X[:, 0] + 0.1 * rng.standard_normal(200), -1.0, 1.0)
    model = pi.MomentOLS(y, X, bounds=[(-1.0, 1.0)] * 2, y_bounds=(-1.0, 1.0))
    fits = [model.fit(epsilon=0.05, delta=1e-6, rng=seed) for seed in range(10)]
    weak = next(fit for fit in fits if fit.estimate.cov is None)
    text = weak.to_html(stars=True)
    assert "95% interval" in text
    assert "NOT PRIVATE" in text
    assert "*" not in text.partition("<tfoot>")[0]
    assert "Weakly identified: x1, x2." in text


@pytest.mark.parametrize(
    "wrong", [{"cells": "both"}, {"stars": 1}, {"alpha": 2.0}, {"digits": -1}, {"digits": 16}], ids=str
)
def test_invalid_arguments_are_named(result, wrong):
    with pytest.raises(ArgumentError, match=next(iter(wrong))):
        result.to_latex(**wrong)
