"""A binomial response that is not declared as 0 and 1 is refused by its declaration, never by a row."""

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.errors import SchemaError

BUDGET = {"epsilon": 4.0, "delta": 1e-6, "rng": 0}
ENTRY_POINTS = {
    "Logit": lambda formula, data, schema: pi.Logit.from_formula(formula, data, schema=schema).fit(**BUDGET),
    "FederatedGLM": lambda formula, data, schema: pi.FederatedGLM.from_formula(
        formula, data, schema=schema, family="binomial"
    ).fit(**BUDGET),
    "DebiasedLasso": lambda formula, data, schema: pi.DebiasedLasso.from_formula(
        formula, data, schema=schema, family="binomial"
    ).fit(targets=["x"], max_sparsity=1, **BUDGET),
}


def table(low, high, n=1_000):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.uniform(-1.0, 1.0, n), "z": rng.uniform(-1.0, 1.0, n)})
    return frame.assign(y=np.where(rng.uniform(size=n) < 0.5 + 0.3 * frame["x"], high, low))


def schema(declared):
    return pi.Schema({"x": (-1.0, 1.0), "z": (-1.0, 1.0), "y": declared})


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
@pytest.mark.parametrize("declared", [(1, 2), (-1, 1), (0, 0.5)], ids=str)
def test_other_declarations_are_refused_whatever_the_rows_hold(entry_point, declared):
    """Values of 1 and 2, or of 0 and 1: the same error, with the name and the way out."""
    for data in (table(1.0, 2.0), table(0.0, 1.0)):
        with pytest.raises(SchemaError, match=r"'y' is declared with other values.*I\(y == 2\)"):
            ENTRY_POINTS[entry_point]("y ~ x + z", data, schema(declared))


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
@pytest.mark.parametrize("response", ["I(y - 1)", "I(y == 2)"])
def test_the_way_out_is_the_fit_of_zeros_and_ones(entry_point, response):
    moved = ENTRY_POINTS[entry_point](f"{response} ~ x + z", table(1.0, 2.0), schema((1, 2)))
    plain = ENTRY_POINTS[entry_point]("y ~ x + z", table(0.0, 1.0), schema((0, 1)))
    np.testing.assert_array_equal(moved.params, plain.params)


def test_arrays_raise_nothing_about_their_rows():
    data = table(0.0, 2.0)
    clipped = pi.Logit(data["y"], data[["x"]], bounds=[(-1, 1)]).fit(**BUDGET)
    plain = pi.Logit(data["y"] / 2.0, data[["x"]], bounds=[(-1, 1)]).fit(**BUDGET)
    np.testing.assert_array_equal(clipped.params, plain.params)
