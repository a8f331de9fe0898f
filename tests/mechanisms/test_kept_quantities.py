"""Quantities that are kept between the queries of a fit change no bit of it, and are of its rows alone."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.mechanisms.statistics import curved, terms
from privinf.mechanisms.statistics.loops import MANY_VALUES, above
from privinf.mechanisms.statistics.terms import BlockQuantities, KeptQuantities
from privinf.schema import reading

N = 9_000  # rows of two blocks
FORMULA = "{} ~ a + b + c"
ROUNDS = pi.DPSGD(epochs=2, batches=4)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(rng.uniform(-1.0, 0.8, (N, 3)), columns=list("abc"))
    eta = 0.5 * frame.a - 0.3 * frame.b
    frame["c"] = rng.integers(0, 3, N)
    frame["y"] = np.clip(eta + 0.3 * rng.standard_normal(N), -2.0, 2.0)
    frame["t"] = (rng.random(N) < 1.0 / (1.0 + np.exp(-eta))).astype(float)
    frame["k"] = np.minimum(rng.poisson(np.exp(eta)), 20)
    frame["years"] = rng.uniform(0.5, 2.0, N)
    frame["weight"] = rng.uniform(0.5, 2.0, N)
    return frame


SCHEMA = pi.Schema(
    {
        "a": (-1.0, 1.0),
        "b": (-1.0, 0.8),
        "c": [0, 1, 2],
        "y": (-2.0, 2.0),
        "t": [0, 1],
        "k": (0, 20),
        "years": pi.Numeric(0.5, 2.0),
        "weight": pi.Numeric(0.5, 2.0),
    }
)
FITS = {
    "OLS": (pi.OLS, "y", {}),
    "Logit": (pi.Logit, "t", {}),
    "Poisson": (pi.Poisson, "k", {}),
    "Poisson with exposure": (pi.Poisson, "k", {"exposure": "years"}),
    "Logit with weights": (pi.Logit, "t", {"weights": "weight"}),
    "NegativeBinomial": (pi.NegativeBinomial, "k", {}),
}


@pytest.mark.parametrize("name", FITS)
def test_fits_have_the_same_bits(name, rows, monkeypatch):
    model, response, roles = FITS[name]

    def fitted():
        built = model.from_formula(FORMULA.format(response), rows, schema=SCHEMA, **roles)
        result = built.fit(epsilon=4.0, delta=1e-6, rng=5)
        return result.params.to_numpy(), result.cov_params().to_numpy()

    kept = fitted()
    monkeypatch.setattr(terms, "KEPT_NUMBERS", 0)
    for with_quantities, without in zip(kept, fitted(), strict=True):
        assert np.array_equal(with_quantities, without)


def test_fits_by_batches_have_the_same_bits(rows, monkeypatch):
    """The rows of a batch are not those of the batch before."""

    def fitted():
        built = pi.GLM.from_formula("y ~ a + b - 1", rows, schema=SCHEMA, family="gaussian")
        return built.fit(mu=1.0, optimizer=ROUNDS, rng=3).params.to_numpy()

    kept = fitted()
    monkeypatch.setattr(terms, "KEPT_NUMBERS", 0)
    assert np.array_equal(kept, fitted())


def test_a_quantity_is_made_again_for_other_arguments_and_dropped_after_a_query_without_it():
    made = []
    values = {}
    for keys in (["x", "x"], ["x", "y"], ["y"], ["x"]):
        quantities = BlockQuantities(values, lasting=True)
        for key in keys:
            quantities.once(key, lambda key=key: made.append(key))
        values = quantities.values
    assert made == ["x", "y", "x"]


def test_a_quantity_is_dropped_before_another_of_its_name_is_made():
    earlier = {("point", 1): "one", ("rows", 1): "other"}
    quantities = BlockQuantities(earlier, lasting=True)
    quantities.once(("point", 2), lambda: None)
    assert list(earlier) == [("rows", 1)]
    assert quantities.last(("rows", 1)) == "other"
    assert quantities.last(("rows", 1)) is None


def test_quantities_of_rows_are_not_pickled_or_shown(rows, monkeypatch):
    for quantities in (KeptQuantities(), BlockQuantities({"point": np.arange(3.0)})):
        with pytest.raises(TypeError, match="raw rows"):
            pickle.dumps(quantities)
    shown = []
    make_point = curved._point

    def recorded(reader):
        shown.extend(map(repr, (point := make_point(reader), reader.read(), reader._quantities)))
        return point

    monkeypatch.setattr(curved, "_point", recorded)
    pi.Logit.from_formula(FORMULA.format("t"), rows, schema=SCHEMA).fit(epsilon=3.0, delta=1e-6, rng=1)
    assert shown
    assert not any("array" in text for text in shown)


def test_counts_of_many_values_above_thresholds_are_those_of_few():
    thresholds = np.geomspace(1e-3, 1e3, 40)
    values = np.concatenate(
        [np.random.default_rng(0).exponential(size=MANY_VALUES), thresholds, [np.nan, np.inf]]
    )
    expected = [np.count_nonzero(~(values <= threshold)) for threshold in thresholds]
    assert above(values, thresholds).tolist() == expected
    parts = [above(part, thresholds) for part in np.array_split(values, 7)]
    assert sum(parts).tolist() == expected


@pytest.mark.parametrize("levels", [[0, 1], [0.1, 2.0, -3.0], [1, 0, 2**52], [True, False]])
@pytest.mark.parametrize(
    "column",
    [
        pd.Series([0.0, 1.0, 2.0, -3.0, 0.1, np.nan, np.inf]),
        pd.Series([0.0, 1.0, 0.1], dtype=np.float32),
        pd.Series([0, 1, 2**52, 2**53, 2**53 + 1, -3]),
        pd.Series([2**64 - 1, 1, 0], dtype=np.uint64),
        pd.Series([True, False]),
        pd.Series([], dtype=np.float64),
    ],
)
def test_levels_of_numbers_are_those_of_objects(levels, column, monkeypatch):
    declared = pi.Factor(levels)
    quick = reading._level_codes(column, declared.levels)
    monkeypatch.setattr(reading, "FEW_LEVELS", 0)
    assert np.array_equal(quick, reading._level_codes(column, declared.levels))
    assert quick.dtype == np.int64
