"""Names of coefficients that are too long for a summary."""

import numpy as np
import pandas as pd

import privinf as pi
from privinf.results.rendering import MAX_WIDTH, _table_lines

HEADER = ("coef", "std err")


def lines_of(*names):
    return _table_lines(HEADER, [(name, "0.1000", "0.2000") for name in names])


def test_long_names_are_shortened_in_the_middle():
    name = "C(" + "diagnosis" * 15 + ")[T.b]"
    _, line = lines_of(name)
    assert len(line) == MAX_WIDTH
    assert "..." in line
    assert line.startswith("C(diagnosis")


def test_shortened_names_that_would_be_equal_are_longer():
    end = ":C(" + "centre" * 15 + ")[T.Turin]"
    names = [f"C(cause)[T.{level}]{end}" for level in ("diabetic", "polycystic")]
    _, *lines = lines_of(*names)
    assert len({line.split()[0] for line in lines}) == 2


def test_interactions_of_factors_have_different_names_in_a_summary():
    rng = np.random.default_rng(0)
    levels = {"cause": ["diabetic", "polycystic", "other cause"], "centre": ["Lyon", "Porto", "Turin"]}
    rows = pd.DataFrame({name: rng.choice(values, 4_000) for name, values in levels.items()})
    rows["y"] = rng.uniform(0.0, 1.0, len(rows))
    schema = pi.Schema({"y": (0, 1), **levels})
    fit = pi.OLS.from_formula("y ~ C(cause) * C(centre)", rows, schema=schema).fit(mu=2.0, rng=0)
    words = {line.split()[0] for line in str(fit.summary()).splitlines() if line.startswith("C(")}
    assert len(words) == len(fit.params) - 1
