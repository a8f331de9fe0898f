"""Levels that are bought, pooled and read; schemas of names and kinds alone."""

import math
import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr

import privinf as pi
from privinf.accounting import GaussianLoss, ThresholdLoss, compose, gaussian_delta, loss_from_dict
from privinf.errors import (
    ArgumentError,
    BudgetExceededError,
    ChangedTargetWarning,
    NotAvailableError,
    SchemaError,
)
from privinf.mechanisms.distribution import OpenLabels
from privinf.schema import Factor, Schema

RNG = np.random.default_rng(1)
N = 8000
ROWS = pd.DataFrame(
    {
        "y": RNG.normal(size=N),
        "g": RNG.choice(["a", "b", "c"], N, p=[0.6, 0.3, 0.1]),
        "town": RNG.choice([f"t{k:02}" for k in range(40)], N, p=np.arange(40, 0, -1) / 820),
    }
)
ROWS.loc[:28, "g"] = "rare"
ASKED = {"epsilon": 1.0, "delta": 1e-6}


def test_the_threshold_and_what_is_found_are_the_published_ones():
    found = pi.find_bounds(ROWS, ["g"], **ASKED, rng=0)
    assert found.clips.loc["g", "threshold"] == pytest.approx(29.4, abs=0.05)
    (line,) = found.privacy.entries
    sd = line.noise["scale"]
    assert ndtr((39 - found.clips.loc["g", "threshold"]) / sd) == pytest.approx(0.95, abs=0.006)
    assert found.privacy.epsilon(1e-6) == pytest.approx(1.0, rel=1e-4)


@pytest.mark.filterwarnings("ignore::privinf.errors.ChangedTargetWarning")  # values lie outside the bounds
def test_common_levels_are_found_and_the_rest_is_pooled():
    found = pi.find_bounds(ROWS, ["g", "town", "y"], **ASKED, rng=0)
    assert (found["g"].levels, found["g"].other) == (("a", "b", "c"), "a")
    assert found["town"].levels[-1] == found["town"].other == "other"
    assert 20 < len(found["town"].levels) < 40
    # 29 rare rows among those of "a": less than this share of them; a level of its own moves no other one
    assert 29 / (ROWS["g"].isin(["a", "rare"])).sum() < found.clips.loc["g", "moves"] < 0.03
    assert found.clips.loc["town", "moves"] == 0.0
    pooled = 1.0 - ROWS["town"].isin(found["town"].levels).mean()
    assert 0.01 < pooled <= found.clips.loc["town", "at_most"]
    assert "pooled" in repr(found)
    assert found.privacy.epsilon(1e-6) <= 1.0 + 1e-6
    again = pickle.loads(pickle.dumps(found))
    assert (again, repr(again)) == (found, repr(found))
    fit = pi.OLS.from_formula("y ~ C(town)", ROWS, schema=found).fit(epsilon=8.0, delta=1e-6, rng=0)
    assert fit.bse.max() < 1.0  # with 40 rare levels it is not


def test_pooling_is_a_public_rule_of_a_factor():
    declared = Factor(("t00", "t01", "rest"), other="rest")
    schema = Schema({"y": (-4.0, 4.0), "town": declared})
    assert Schema.from_dict(schema.to_dict()) == schema
    assert schema.digest != Schema({"y": (-4.0, 4.0), "town": ["t00", "t01", "rest"]}).digest
    assert "others count as rest" in repr(schema)
    matrix = pi.Design.from_formula("y ~ 0 + C(town)", schema).matrix(ROWS)
    shares = matrix.mean(axis=0)
    assert shares[2] == pytest.approx(1.0 - ROWS["town"].isin(["t00", "t01"]).mean())
    with pytest.raises(SchemaError, match="one of the declared levels"):
        Factor(("a", "b"), other="c")
    with pytest.raises(SchemaError, match="one of the declared levels"):
        Factor((0, 1), other=True)
    with pytest.raises(SchemaError, match="none of its declared levels"):
        pi.Design.from_formula("y ~ C(town)", schema).matrix(ROWS.assign(town=1.0))


@pytest.mark.parametrize(
    ("columns", "options", "error"),
    [
        (["g"], {"mu": 1.0}, ArgumentError),
        (["g"], {**ASKED, "unit": "y", "max_rows": 2}, NotAvailableError),
        (["g"], {**ASKED, "ledger": pi.Ledger(pi.Budget(mu=9.0))}, BudgetExceededError),
        (["none"], ASKED, SchemaError),
    ],
)
def test_what_cannot_be_asked_of_levels(columns, options, error):
    with pytest.raises(error):
        pi.find_bounds(ROWS, columns, **options)


@pytest.mark.parametrize("label", ["other", "another", "", " ", "a\0b"])
def test_a_column_with_one_common_label_gets_a_second_level(label):
    found = pi.find_bounds(pd.DataFrame({"g": [label] * 3000}), ["g"], epsilon=1.0, delta=1e-6, rng=0)
    assert found["g"].levels == (label, "another" if label == "other" else "other")
    assert found["g"].other == found["g"].levels[1]


def test_labels_that_differ_after_a_nul_are_not_counted_together():
    labels = [f"common\0of {row}" for row in range(3000)] + ["a", "b"] * 1500
    found = pi.find_bounds(pd.DataFrame({"g": labels}), ["g"], epsilon=1.0, delta=1e-6, rng=0)
    assert found["g"].levels == ("a", "b", "other")


@pytest.mark.parametrize("values", [["a", None], ["a", 1]])
def test_labels_are_texts_without_gaps(values):
    with pytest.raises(SchemaError):
        OpenLabels(pd.DataFrame({"g": values}), "g")


# ---- the account


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_delta_is_the_larger_of_two_and_not_their_sum(epsilon):
    mu, event = 0.3, 1e-7
    total = compose([ThresholdLoss(mu, event)])
    split = event + (1.0 - event) * gaussian_delta(epsilon, mu / math.sqrt(2.0))
    assert total.delta(epsilon) == pytest.approx(max(gaussian_delta(epsilon, mu), split), rel=1e-12)
    delta = total.delta(epsilon)
    assert total.epsilon(delta * 1.0000001) <= epsilon


def test_totals_cover_every_mixture_of_cases():
    first, second = ThresholdLoss(0.3, 1e-7), ThresholdLoss(0.2, 3e-7)
    total = compose([first, second, GaussianLoss(0.4)])
    for one in (0, 1):
        for two in (0, 1):
            mu2 = 0.16 + 0.09 / (1 + one) + 0.04 / (1 + two)
            leak = 1.0 - (1.0 - one * 1e-7) * (1.0 - two * 3e-7)
            case = leak + (1.0 - leak) * gaussian_delta(1.0, math.sqrt(mu2))
            assert total.delta(1.0) >= case
    assert total == compose([second]) + compose([GaussianLoss(0.4), first])
    assert total.dominates(compose([first]))
    assert not compose([first]).dominates(total)
    with pytest.raises(NotAvailableError):
        _ = total.mu
    assert loss_from_dict(first.to_dict()) == first


@pytest.mark.parametrize(("texts", "labels"), [(1500, {"other", "another"}), (3, None)])
def test_where_no_level_is_common_what_was_bought_is_returned_with_a_warning(texts, labels):
    """1500 texts are too rare to be shown; of three that are shown none has half of the rows."""
    rows = pd.DataFrame({"town": [f"t{i % texts}" for i in range(1500)], "a": np.linspace(0, 1, 1500)})
    with pytest.warns(ChangedTargetWarning, match="'town': no level has"):
        found = pi.find_bounds(rows, ["town", "a"], rare=0.5, mu=1.0, delta=1e-6, rng=1)
    shown = set(found["town"].levels)
    assert "other" in shown
    assert len(shown) == 2
    assert labels in (None, shown)
    assert found.clips.at_most["town"] > 0.5
    assert found["a"].high < 1.3


# ---- names and kinds


def test_a_schema_of_names_refuses_what_is_blank():
    schema = Schema.from_frame_names(ROWS)
    assert schema.blank == ("y", "g", "town")
    assert "blank levels" in repr(schema)
    assert Schema.from_dict(schema.to_dict()) == schema
    with pytest.raises(SchemaError, match=r"'y' has blank bounds.*Columns with blanks: 'y', 'g', 'town'"):
        pi.OLS.from_formula("y ~ g", ROWS, schema=schema)
    half = schema.fill({"y": (-4.0, 4.0)})
    with pytest.raises(SchemaError, match="'g' has blank levels"):
        pi.OLS.from_formula("y ~ g", ROWS, schema=half)
    full = half.fill(pi.find_bounds(ROWS, ["g"], **ASKED, rng=0))
    assert full.blank == ("town",)
    fit = pi.OLS.from_formula("y ~ g", ROWS, schema=full).fit(epsilon=1.0, delta=1e-6, rng=0)
    assert list(fit.params.index) == ["Intercept", "g[T.b]", "g[T.c]"]
    with pytest.raises(SchemaError, match="blank"):
        Schema(dict(schema.columns), public=["y"])
    with pytest.raises(SchemaError, match="must be a dict"):
        schema.fill([("y", (0, 1))])


def test_names_are_read_and_no_value_is():
    class Watched(pd.DataFrame):
        def __getitem__(self, key):
            raise AssertionError("a value was read")

    schema = Schema.from_frame_names(
        Watched({"x": [1, 2], "t": ["a", "b"], "id": [1, 1]}), unit="id", max_rows=2
    )
    assert [item.kind for item in schema.columns.values()] == ["number", "levels"]
    assert (schema.unit, schema.max_rows) == ("id", 2)
    with pytest.raises(SchemaError, match="must be strings"):
        Schema.from_frame_names(pd.DataFrame([[1, 2]]))
