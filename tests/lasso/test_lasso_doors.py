"""Doors of the debiased lasso: arrays, frames of any library, formulas with factors and interactions."""

import tracemalloc
from itertools import product

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.errors import FileMissingError, SchemaError

N, NAMES = 3000, [f"v{j}" for j in range(6)]
LIMITS = {"x_bound": 1.0, "y_bounds": (-4.0, 4.0)}
FIT = {"epsilon": 8.0, "delta": 1e-5, "sparsity": 3, "rng": 0}
FORMULA = "y ~ v0 + v3 + C(g) + v1*v2 + I(v4**2)"
SCHEMA = pi.Schema(dict.fromkeys(NAMES, (-1.0, 1.0)) | {"g": list("abc"), "y": (-4.0, 4.0)})


class Foreign:
    """A table of another library: columns, length, and a way to pandas."""

    def __init__(self, frame):
        self._frame, self.shape = frame, frame.shape

    @property
    def columns(self):
        return list(self._frame.columns)

    def __len__(self):
        return len(self._frame)

    def to_pandas(self):
        return self._frame.copy()


def arrow(frame):
    return pytest.importorskip("pyarrow").Table.from_pandas(frame)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(-1.0, 1.0, (N, 6)), columns=NAMES).assign(g=rng.choice(list("abc"), N))
    mean = frame["v0"] - 0.5 * frame["v3"] + 0.4 * (frame["g"] == "b") + 0.3 * frame["v1"] * frame["v2"]
    return frame.assign(y=mean + 0.3 * rng.standard_normal(N))


@pytest.mark.audit
@pytest.mark.parametrize("given", [Foreign, arrow])
@pytest.mark.parametrize("constant", [False, True])
def test_columns_of_foreign_tables_keep_their_names(table, given, constant):
    X = table[NAMES]
    made = [pi.add_constant(one) if constant else one for one in (X, given(X))]
    machines = given(table[["g"]]).to_pandas()["g"]
    one, other = (
        pi.DebiasedLasso(table["y"], columns, sites=machines, **LIMITS).fit(targets=["v0", "v3"], **FIT)
        for columns in made
    )
    assert one.names == other.names == ("v0", "v3")
    pd.testing.assert_series_equal(one.params, other.params)
    pd.testing.assert_series_equal(one.predict_sparse(X[:9]), other.predict_sparse(given(X[:9])))


@pytest.mark.audit
@pytest.mark.parametrize("given", [Foreign, arrow, dict])
def test_formulas_take_any_table(table, given):
    one, other = (
        pi.DebiasedLasso.from_formula(FORMULA, data, schema=SCHEMA).fit(
            targets=["v0", "C(g)[T.b]", "v1:v2"], **FIT
        )
        for data in (table, given(table))
    )
    pd.testing.assert_series_equal(one.params, other.params)
    assert one.params["C(g)[T.b]"] == pytest.approx(0.4, abs=0.1)
    assert one.params["v1:v2"] == pytest.approx(0.3, abs=0.1)


def test_the_sparse_fit_predicts_raw_rows_of_a_formula(table, tmp_path):
    fit = pi.DebiasedLasso.from_formula(FORMULA, table, schema=SCHEMA).fit(targets="selected", **FIT)
    found = fit.predict_sparse(table[:9])
    levels = {f"C(g)[T.{level}]": (table["g"] == level).astype(float) for level in "bc"}
    whole = table[NAMES].assign(
        **levels, **{"v1:v2": table["v1"] * table["v2"], "I(v4 ** 2)": table["v4"] ** 2}
    )
    design = whole.assign(Intercept=1.0)[list(fit.sparse_params.index)][:9]
    np.testing.assert_allclose(found, design.to_numpy() @ fit.sparse_params.to_numpy(), atol=1e-12)
    np.testing.assert_allclose(fit.predict_sparse(design, transform=False), found)
    fit.save(tmp_path / "fit.privinf")
    pd.testing.assert_series_equal(pi.load_results(tmp_path / "fit.privinf").predict_sparse(table[:9]), found)


@pytest.mark.parametrize(
    ("data", "error"), [("no_such_rows.parquet", FileMissingError), ([1, 2], SchemaError)]
)
def test_what_is_no_table_is_refused(data, error):
    with pytest.raises(error, match=r"no_such_rows|must be a table with named columns"):
        pi.DebiasedLasso.from_formula("y ~ v0", data, schema=SCHEMA).fit(targets=["v0"], **FIT)


@pytest.mark.parametrize("kind", [np.asarray, lambda X: pd.DataFrame(X, copy=False).add_prefix("c")])
def test_a_model_reads_rows_where_they_are(kind):
    def made(n):
        X = kind(np.ones((n, 250)))
        tracemalloc.start()
        model = pi.DebiasedLasso(np.zeros(n), X, x_bound=4.0, y_bounds=(-1, 1))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return model, peak / (8 * X.size)

    made(10)  # loads what is loaded once
    assert made(16_000)[1] < 0.1


CHANGED = {
    "central": ({}, {}),
    "constant": ({"constant": True}, {}),
    "sites": ({"sites": True}, {}),
    "secure sums": ({"sites": True, "trust": "secure-sum"}, {}),
    "by site": ({"sites": True}, {"heterogeneous": True, "shared_sparsity": 1}),
    "paper": ({}, {"variant": "paper"}),
    "binomial": ({"family": "binomial"}, {}),
    "binomial sites": ({"family": "binomial", "sites": True}, {}),
    "binomial by site": (
        {"family": "binomial", "sites": True},
        {"heterogeneous": True, "shared_sparsity": 1, "sparsity": 2},
    ),
    "all targets": ({}, {"targets": "all"}),
}


def held_model(X, y, family="gaussian", sites=False, constant=False, trust=None):
    """Return a model of the rows themselves: columns of X, and pairs of slices, are views."""
    response = {"y_bounds": (-4.0, 4.0)} if family == "gaussian" else {}
    options = {"x_bound": 1.0, "family": family, "trust": trust, **response}
    if sites:
        half = N // 2
        return pi.DebiasedLasso.from_arrays({"a": (y[:half], X[:half]), "b": (y[half:], X[half:])}, **options)
    frame = pd.DataFrame(X, columns=[*NAMES[:5], "const"], copy=False) if constant else X
    return pi.DebiasedLasso(y, frame, **options)


@pytest.mark.parametrize(("kind", "value"), [*product(CHANGED, [np.nan, -np.inf]), ("constant", 2.0)])
def test_rows_that_were_changed_since_are_refused(table, kind, value):
    given, asked = CHANGED[kind]
    X, y = table[NAMES].to_numpy(copy=True), table["y"].to_numpy(copy=True)
    if given.get("constant"):
        X[:, 5] = 1.0
    y = (y > 0.0).astype(float) if given.get("family") == "binomial" else y
    model = held_model(X, y, **given)
    X[-1, -1] = value
    with pytest.raises(SchemaError, match="the rows were changed after they were passed"):
        model.fit(**FIT | {"targets": [0, 1]} | asked)
    assert len(model.ledger.entries) == 0


def test_looking_again_holds_no_second_copy():
    X = np.random.default_rng(0).uniform(-1.0, 1.0, (40_000, 50))
    model = pi.DebiasedLasso(X[:, 0].copy(), X, x_bound=1.0, y_bounds=(-1, 1))
    X[-1, -1] = np.nan
    tracemalloc.start()
    with pytest.raises(SchemaError, match="changed"):
        model.fit(**FIT | {"targets": [0]})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.05 * X.nbytes


@pytest.mark.audit
@pytest.mark.parametrize("kind", ["central", "sites", "secure sums", "binomial"])
def test_values_beyond_their_bounds_count_as_the_bounds_whenever_they_come(table, kind):
    X, y = table[NAMES].to_numpy(copy=True), table["y"].to_numpy(copy=True)
    y = (y > 0.0).astype(float) if kind == "binomial" else y
    X[7], X[N - 9] = 1.0, -1.0
    model = held_model(X, y, **CHANGED[kind][0])
    fit = model.fit(**FIT | {"targets": [0, 1]})
    X[7], X[N - 9] = 1e300, -1e300
    pd.testing.assert_series_equal(
        model.fit(**FIT | {"targets": [0, 1]}).params, fit.params, check_exact=True
    )


def test_a_table_is_read_as_it_was_when_the_model_was_made(table):
    base = table[[*NAMES, "y"]].to_numpy(copy=True)
    frame = pd.DataFrame(base, columns=[*NAMES, "y"], copy=False).assign(g=table["g"])
    model = pi.DebiasedLasso.from_formula("y ~ v0 + v1", frame, schema=SCHEMA)
    fit = model.fit(**FIT | {"targets": ["v0"], "sparsity": 1})
    base[0] = np.nan
    again = model.fit(**FIT | {"targets": ["v0"], "sparsity": 1})
    pd.testing.assert_series_equal(again.params, fit.params, check_exact=True)
