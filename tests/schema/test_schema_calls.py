"""What a newcomer writes in a formula: patsy's columns and names, or what to write instead."""

import datetime
import math

import numpy as np
import pandas as pd
import patsy
import pytest
import statsmodels.formula.api as smf

import privinf as pi
from privinf.errors import ArgumentError, SchemaError
from privinf.schema import Design

DAY = pd.Timestamp("2020-01-01")
SCHEMA = pi.Schema(
    {
        "y": (-20.0, 40.0),
        "x": (10.0, 50.0),
        "z": (-1.0, 1.0),
        "g": ["a", "b", "c", "d"],
        "h": ["u", "v"],
        "k": [1, 2, 3],
        "t": (datetime.date(2020, 1, 1), pd.Timestamp("2021-01-01")),
    }
)


def rows(n=300, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "y": rng.uniform(-20, 40, n),
            "x": rng.uniform(10, 50, n),
            "z": rng.uniform(-1, 1, n),
            "g": rng.choice(list("abcd"), n),
            "h": rng.choice(["u", "v"], n),
            "k": rng.choice([1, 2, 3], n),
            "t": DAY + pd.to_timedelta(rng.uniform(0, 300, n), unit="D"),
        }
    )


WRITTEN = [
    "np.where(x > 20, x, 20 * z)",
    "np.clip(x, 20, 30) + np.clip(z, None, 0.5) + np.clip(z, -0.5, None)",
    "np.maximum(x, z * 30) + np.minimum(x, 10 * z) + abs(z)",
    "x + I((x > 20) * z) + I(((x >= 20) & (z < .5)) * x) + I(((x < 15) | (z <= 0)) * 1)",
    "I((t > '2020-06-01') * x) + I((x != 30) * z)",
    "I(x > 30) * z",
    "0 + I(x > 30) + z",
    "I((x > 30) & (z > 0))",
    "C(g, Sum) * x",
    "C(g, Helmert) + h",
    "C(g, Sum('a')) * C(h, Sum)",
    "0 + C(g, Sum) + z",
    "C(g, Sum):x + z",
    "C(g, levels=['c', 'a', 'b', 'd'])",
    "C(g, Treatment('b'), levels=['c', 'a', 'b', 'd']) * z",
    "C(k, Helmert) * x + C(h, contrast=Treatment(reference='v'))",
]


@pytest.mark.parametrize("right", WRITTEN)
def test_columns_names_and_fits_are_patsys_and_statsmodels(right):
    formula, data = f"y ~ {right}", rows()
    design = Design.from_formula(formula, SCHEMA)
    theirs = patsy.dmatrix(right, data)
    assert list(design.names) == theirs.design_info.column_names
    np.testing.assert_allclose(design.matrix(data), theirs, rtol=1e-13, atol=1e-13)
    outside = data.assign(x=data.x * 9 - 200, z=data.z * 9, t=data.t - pd.Timedelta(days=900))
    for made in (design, design.conditioned()):
        again = Design.from_dict(made.to_dict())
        assert again == made
        X = again.released(outside)
        plain = np.array([column.plain for column in made.columns])
        assert ((made.low <= X) & (made.high >= X))[:, ~plain].all()
        hot = X[:, [j for block in made.blocks for j in block]]
        assert set(np.unique(hot)) <= {0.0, 1.0}
        assert all((X[:, list(block)].sum(axis=1) <= 1.0).all() for block in made.blocks)
    fit = pi.MomentOLS.from_formula(formula, data, schema=SCHEMA).fit(epsilon=math.inf)
    reference = smf.ols(formula, data).fit()
    np.testing.assert_allclose(fit.params, reference.params, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(fit.bse, reference.bse, rtol=1e-6)
    np.testing.assert_allclose(fit.predict(data[:5]), reference.predict(data[:5]), rtol=1e-7)


def test_other_codings_are_released_as_indicators_of_half_the_distance():
    design = Design.from_formula("y ~ C(g, Sum) + C(k, Helmert)", SCHEMA)
    found = design.conditioned()
    assert design.blocks == ()
    assert found.blocks == ((1, 2, 3), (4, 5))
    assert found.diameter == 2.0
    assert design.diameter > 4.0
    # Without all of a factor's columns there is nothing to put in their place.
    assert Design.from_formula("y ~ C(g, Sum):x", SCHEMA).conditioned().raw is None


@pytest.mark.audit
def test_intervals_hold_what_rows_give_and_comparisons_that_bounds_decide():
    rng = np.random.default_rng(3)
    data = rows(4000, seed=5)
    data.loc[:40, "x"] = np.linspace(10, 50, 41)
    atoms = ["x", "z", "x * z", "np.clip(x, 12, 30)", "(x - 3 * z)", "abs(z)"]
    for _ in range(60):
        a, b, c, d = rng.choice(atoms, 4)
        cut, sign = rng.uniform(-2, 40), rng.choice([">", "<", ">=", "<="])
        text = rng.choice(
            [
                f"np.where({a} {sign} {cut:.2f}, {b}, {c} - {d})",
                f"np.minimum({a}, {b}) - np.maximum({c}, {d})",
                f"({a} {sign} {b}) * {c} + ~({c} {sign} {cut:.2f}) * {d}",
                f"((0 < {a}) & ({a} < {cut:.2f})) * {b}",
            ]
        )
        design = Design.from_formula(f"y ~ I({text} + 0.001 * x)", SCHEMA)
        values = design.released(data)[:, 1]
        expected = eval(text, {"np": np, **dict(data[["x", "z"]].items())}) + 0.001 * data.x
        np.testing.assert_allclose(values, expected, rtol=1e-12, atol=1e-12)
        assert design.low[1] - 1e-9 <= values.min()
        assert values.max() <= design.high[1] + 1e-9
    with pytest.raises(SchemaError, match="constant over"):
        Design.from_formula("y ~ I((x > 200) * 1)", SCHEMA)


def test_polynomials_are_orthogonal_over_the_bounds():
    design = Design.from_formula("y ~ poly(x, 3) * z + poly(np.log(x), degree=2)", SCHEMA)
    assert design.names[1:4] == ("poly(x, 3)[0]", "poly(x, 3)[1]", "poly(x, 3)[2]")
    np.testing.assert_allclose(design.low[1:4], [-1.0, -0.5, -1.0], rtol=1e-14)
    assert design.low[2] < -0.5  # rounded outward
    even = pd.DataFrame({"x": np.linspace(10, 50, 100_001), "z": 0.0})
    P = design.matrix(even)[:, :4]
    gram = P.T @ P / len(P)
    np.testing.assert_allclose(gram, np.diag(1 / np.array([1.0, 3.0, 5.0, 7.0])), atol=1e-4)
    data = rows()
    fit = pi.OLS.from_formula("y ~ poly(x, 2)", data, schema=SCHEMA).fit(epsilon=math.inf)
    raw = smf.ols("y ~ x + I(x ** 2)", data).fit()
    np.testing.assert_allclose(fit.predict(data), raw.fittedvalues, rtol=1e-8)


def test_dates_are_days_in_every_form():
    bounds = SCHEMA.interval("t")
    assert (bounds.low, bounds.high) == (18262.0, 18628.0)
    data = rows(50)
    expected = (data.t - pd.Timestamp("1970-01-01")) / pd.Timedelta(days=1)
    design = Design.from_formula("y ~ t", SCHEMA)
    forms = {
        "datetime64": data.t,
        "in a zone": data.t.dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo"),
        "objects": data.t.astype(object),
        "categories": data.t.astype("category"),
    }
    for name, column in forms.items():
        found = design.matrix(data.assign(t=column))[:, 1]
        np.testing.assert_allclose(found, expected, atol=1e-6, err_msg=name)
    texts = data.t.dt.strftime("%Y-%m-%d")
    np.testing.assert_array_equal(design.matrix(data.assign(t=texts))[:, 1], np.floor(expected))
    missing = data.assign(t=data.t.where(data.index != 3))
    with pytest.raises(SchemaError, match="missing"):
        design.matrix(missing)
    with pytest.raises(SchemaError, match="dates") as caught:
        design.matrix(data.assign(t=texts.replace(texts[0], "soon")))
    assert "soon" not in str(caught.value)
    fit = pi.OLS.from_formula("y ~ t + x", data, schema=SCHEMA).fit(epsilon=math.inf)
    assert fit.predict(missing).isna().sum() == 1
    for wrong in ((DAY, DAY), (DAY, 3.0), (pd.NaT, DAY), ("2020-01-01", "then")):
        with pytest.raises(SchemaError):
            pi.Schema({"t": wrong}).interval("t")


@pytest.mark.parametrize(
    "numbers",
    [
        lambda t: t.dt.strftime("%Y%m%d").astype(int),
        lambda t: t.dt.year,
        lambda t: t.astype("datetime64[s]").astype(np.int64),
        lambda t: (t - pd.Timestamp("1899-12-30")).dt.days,
        lambda t: (t - pd.Timestamp("1970-01-01")) / pd.Timedelta(days=1),
        lambda t: t.dt.year.astype(object),
        lambda t: t.dt.year.astype("Int64"),
        lambda t: t.dt.year.astype("category"),
    ],
    ids=["20200101", "year", "epoch", "Excel", "days", "objects", "nullable", "categories"],
)
def test_numbers_are_not_read_as_dates(numbers):
    """Each was read as days since 1970 and clipped to one end of the bounds, at the price of the fit."""
    data = rows(50)
    wrong = data.assign(t=numbers(data.t))
    ledger = pi.Ledger()
    with pytest.raises(SchemaError, match="must hold dates"):
        pi.OLS.from_formula("y ~ t + x", wrong, schema=SCHEMA).fit(epsilon=1.0, delta=1e-6, ledger=ledger)
    assert len(ledger) == 0
    fit = pi.OLS.from_formula("y ~ t + x", data, schema=SCHEMA).fit(epsilon=math.inf)
    with pytest.raises(SchemaError, match="must hold dates"):
        fit.predict(wrong)


def test_made_up_rows_of_a_column_of_dates_are_dates():
    frame = SCHEMA.frame(["t"])
    assert frame["t"].dtype.kind == "M"
    assert Design.from_formula("y ~ t", SCHEMA).matrix(frame.assign(y=0.0))[:, 1].tolist()[:2] == [
        18262.0,
        18445.0,
    ]


def test_an_offset_stands_in_the_formula():
    data = rows(2000).assign(c=lambda d: np.random.default_rng(0).poisson(np.exp(0.5 * d.z + 0.02 * d.x)))
    schema = pi.Schema({"c": (0.0, 40.0), "x": (10.0, 50.0), "z": (-1.0, 1.0)})
    fits = [
        pi.Poisson.from_formula(text, data, schema=schema, **told).fit(epsilon=math.inf)
        for text, told in (("c ~ z + offset(x)", {}), ("c ~ z", {"offset": "x"}))
    ]
    np.testing.assert_array_equal(fits[0].params, fits[1].params)
    assert fits[0].names == ("Intercept", "z")
    with pytest.raises(ArgumentError, match="one offset"):
        pi.Poisson.from_formula("c ~ z + offset(x)", data, schema=schema, offset="z")
    for model in (pi.MomentOLS, pi.ModulatedOLS):
        with pytest.raises(SchemaError, match="response"):
            model.from_formula("y ~ z + offset(x)", rows(), schema=SCHEMA)
    with pytest.raises(ArgumentError, match="offset="):
        pi.OLS.from_formula("y ~ z + offset(x)", rows(), schema=SCHEMA)


REFUSED = {
    "I(x > 20 and z < 1)": "&",
    "I(not x > 20)": "~",
    "I(x // 2)": "comparisons",
    "max(x, z)": "np.maximum",
    "np.floor(x)": r"I\(x > 40\)",
    "np.where(x, 1, 2)": "a comparison",
    "np.clip(x, 3, 1)": "must not exceed",
    "np.clip(x, z, 1)": "must be numbers",
    "np.log(np.where(z > 0, z, 1))": "above 0",
    "I((g == 'a') * 1)": r"C\(factor\)",
    "I(1 if x > 2 else 3)": "np.where",
    "poly(x, 2, raw=True)": r"x \+ I\(x\*\*2\)",
    "poly(x, 0)": "at least 1",
    "poly(x, 12)": "from 1 to 10",
    "poly(x)": "a degree",
    "poly(g, 2)": r"C\(g\)",
    "C(g, Poly)": "Treatment, Sum, Helmert",
    "C(g, Sum('q'))": "declared levels",
    "C(g, Helmert('a'))": "takes no argument",
    "C(g, levels=['a', 'b'])": "in the schema",
    "C(x)": "declared with levels",
}


@pytest.mark.parametrize("right", REFUSED)
def test_what_is_refused_says_what_to_write(right):
    with pytest.raises(SchemaError, match=REFUSED[right]):
        Design.from_formula(f"y ~ {right}", SCHEMA)


def test_codings_from_elsewhere_are_checked():
    content = Design.from_formula("y ~ C(g, Sum)", SCHEMA).to_dict()
    for changes in (
        {"levels": ["a", "b", "c", "e"]},
        {"levels": ["a", "b", "c"]},
        {"levels": ["a", "b", "c", ["d"]]},
        {"weights": [1.0, 0.0, 0.0]},
        {"weights": [1.0, 0.0, 0.0, math.inf]},
        {"weights": [9.0, 0.0, 0.0, -1.0]},
    ):
        columns = [dict(column) for column in content["columns"]]
        columns[1]["pieces"] = [columns[1]["pieces"][0] | changes]
        with pytest.raises(SchemaError):
            Design.from_dict(content | {"columns": columns})
