"""Every entry point takes every kind of table: it gives what a data frame gives, or says clearly why not."""

from __future__ import annotations

import pickle
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.tables import FILES, FURTHER_KINDS, KINDS, ORDERED, QUERIES, STREAMS

import privinf as pi
from privinf.errors import ArgumentError, NotAvailableError, PrivinfError, SchemaError
from privinf.federation import Site
from privinf.mechanisms import sources
from privinf.mechanisms.tables import source_of

N = 90
SCHEMA = pi.Schema(
    {
        "y": (0, 10),
        "x": (-1, 1),
        "w": (-1, 1),
        "b": (0, 1),
        "g": pi.Factor(["1", "2", "n"]),
        "h": pi.Factor(["u", "v"]),
    }
)
SPEND = {"epsilon": 9.0, "delta": 1e-6, "rng": 0}
PARTIES = {"one": ["y", "x"], "two": ["w"]}
MIXED = {"schema": SCHEMA, "parties": PARTIES}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(sources, "ROWS", 32)


@pytest.fixture
def frame():
    return made()


def made():
    rng = np.random.default_rng(3)
    x, w = rng.uniform(-1, 1, (2, N))
    y = np.clip(5 + 3 * x - 2 * w + rng.normal(0, 0.5, N), 0, 10)
    b = (x + rng.normal(0, 0.5, N) > 0).astype(float)
    return pd.DataFrame(
        {"y": y, "x": x, "w": w, "b": b, "g": rng.choice(["1", "2", "n"], N), "h": rng.choice(["u", "v"], N)}
    )


def params(results):
    return np.asarray(results.params)


def arrays(release):
    return np.concatenate([np.ravel(release.arrays[name]) for name in sorted(release.arrays)])


def formula(model, text="y ~ x + w + C(g)", fit=SPEND, **options):
    return lambda data: params(model.from_formula(text, data, schema=SCHEMA, **options).fit(**fit))


def mixed(model):
    return lambda data: params(model.from_formula("y ~ x + w", data, **MIXED).fit(**SPEND))


def targeted(data):
    model = pi.DebiasedLasso.from_formula("y ~ x + w", data, schema=SCHEMA)
    return params(model.fit(epsilon=90.0, delta=1e-5, targets=["x"], sparsity=2, rng=0))


def by_machine(data):
    model = pi.DebiasedLasso.from_formula("y ~ x + w", data, schema=SCHEMA, sites="g")
    return params(model.fit(epsilon=90.0, delta=1e-5, targets=["x"], sparsity=2, rng=0))


def described(data):
    return np.array([len(Site(data, SCHEMA))])


def stats(test):
    """Return what a test found for a table."""

    def found(data):
        result = test(data=data, schema=SCHEMA, **SPEND)
        return np.array([result.statistic if result.null else result.estimate])

    return found


def bought(data):
    found = pi.find_bounds(data, ["x", "y"], clip=0.1, epsilon=200.0, delta=1e-6, rng=0)
    return np.array([found["x"].low, found["y"].high])


def opened(data):
    blocks = pd.concat([block for _, block in pi.open_table(data, SCHEMA).blocks()])
    return blocks[["y", "x", "w", "b"]].to_numpy().ravel()


EXAMPLES = {"epsilon": 9.0, "delta": 1e-5, "rng": 0}
# Sums over rows, in whatever order; and what goes by the places of rows.
SUMS = {
    "MomentOLS": formula(pi.MomentOLS),
    "MomentOLS, HC0": formula(pi.MomentOLS, fit=SPEND | {"cov_type": "HC0"}),
    "OLS": formula(pi.OLS, "y ~ x + w"),
    "Logit": formula(pi.Logit, "b ~ x"),
    "Poisson": formula(pi.Poisson, "y ~ x"),
    "GLM": formula(pi.GLM, "y ~ x + w", family="gaussian"),
    "DebiasedLasso": targeted,
    "Moments.release": lambda data: arrays(pi.Moments(SCHEMA, "y ~ x + w").release(data, **SPEND)),
    "Site": described,
    "stats.mean": stats(lambda **k: pi.stats.mean("x", **k)),
    "find_bounds": bought,
    "find_bounds, levels": lambda data: np.array(
        [len(pi.find_bounds(data, ["g"], epsilon=60.0, delta=1e-2, rng=0)["g"].levels)]
    ),
    "stats.mean, clip": stats(lambda **k: pi.stats.mean("x", clip="auto", **k)),
    "stats.quantile": stats(lambda **k: pi.stats.quantile("x", [0.25, 0.5], **k)),
    "stats.describe": lambda data: (
        pi.stats.describe(data, ["x", "y"], schema=SCHEMA, **SPEND).table.to_numpy().ravel()
    ),
    "stats.anova": stats(lambda **k: pi.stats.anova_oneway("y", "g", **k)),
    "stats.tables": stats(lambda **k: pi.stats.chi2_contingency("g", "h", **k)),
    "stats.counts": stats(lambda **k: pi.stats.counts("g", by="h", **k)),
    "stats.crosstab": stats(lambda **k: pi.stats.crosstab("g", "h", margins=True, **k)),
    "stats.histogram": stats(lambda **k: pi.stats.histogram("x", 7, by="g", **k)),
    "stats.sum": stats(lambda **k: pi.stats.sum("x", by="g", **k)),
    "stats.mean, groups": stats(lambda **k: pi.stats.mean("x", by=["g", "h"], **k)),
    "stats.median, groups": stats(lambda **k: pi.stats.median("x", by="g", **k)),
    "stats.proportions": stats(lambda **k: pi.stats.proportion_confint("g", **k)),
    "stats.correlation": stats(lambda **k: pi.stats.pearsonr("x", "y", **k)),
    "stats.ranks": stats(lambda **k: pi.stats.kruskal("x", "g", **k)),
}
BY_PLACES = {
    "MomentOLS, local": formula(pi.MomentOLS, "y ~ x", trust="local"),
    "ModulatedOLS": formula(pi.ModulatedOLS),
    "IWPGLM": formula(pi.IWPGLM, "b ~ x", EXAMPLES),
    "Modulation.release": lambda data: arrays(pi.Modulation(SCHEMA, "y ~ x + w").release(data, **SPEND)),
    "LocalExamples.release": lambda data: arrays(pi.LocalExamples(SCHEMA, "b ~ x").release(data, **EXAMPLES)),
    "BGMOLS": mixed(pi.BGMOLS),
    "DGMOLS": mixed(pi.DGMOLS),
    "RMGMOLS": mixed(pi.RMGMOLS),
    "GaussianRows.release": lambda data: arrays(pi.GaussianRows(SCHEMA).release(data, **SPEND)),
    "RandomMixing.release": lambda data: arrays(pi.RandomMixing(SCHEMA, k=9, seed=1).release(data, **SPEND)),
    "open_table": opened,
    "GLM by DPSGD": formula(
        pi.GLM, "y ~ x", SPEND | {"optimizer": pi.DPSGD(epochs=1, batches=2)}, family="gaussian"
    ),
}
ENTRY_POINTS = SUMS | BY_PLACES
# What reads rows more than once.
BY_PASSES = {
    "MomentOLS, HC0",
    "OLS",
    "Logit",
    "Poisson",
    "GLM",
    "find_bounds",
    "find_bounds, levels",
    "stats.quantile",
    "stats.describe",
    "stats.mean, clip",
    "GLM by DPSGD",
}


@cache
def of_frame(entry_point):
    return answer(entry_point, made())


def answer(entry_point, data):
    """Return what an entry point gives for a table, or the error of the tree that it raises."""
    try:
        return ENTRY_POINTS[entry_point](data)
    except PrivinfError as error:
        return error


# A kind of table is opened by one function for all entry points (`mechanisms.tables.source_of`), and a entry
# point sees its # blocks, and whether they have an order and can be read again. So each kind goes to one
# entry point of each way of # reading, and each entry point gets one kind of each behaviour.
WAYS = {
    "sums in one pass": "MomentOLS",
    "sums in more passes": "OLS",
    "columns": "stats.mean",
    "a copy in memory": "DebiasedLasso",
    "places of rows": "ModulatedOLS",
    "parties": "RandomMixing.release",
    "blocks": "open_table",
    "a site's rows": "Site",
}
BEHAVIOURS = {
    "in memory": "polars DataFrame",
    "in order, again and again": "CSV file",
    "again and again, without an order": "polars LazyFrame",
    "once": "Arrow stream",
}
PAIRS = [
    (entry_point, kind)
    for entry_point in ENTRY_POINTS
    for kind in KINDS
    if entry_point in WAYS.values() or kind in BEHAVIOURS.values()
]


@pytest.mark.filterwarnings("ignore::privinf.errors.PrivinfWarning")
@pytest.mark.parametrize(
    ("entry_point", "kind"),
    [
        pytest.param(entry_point, kind, id=f"{entry_point}-{kind}", marks=() if quick else pytest.mark.audit)
        for entry_point, kind in PAIRS
        for quick in [entry_point == WAYS["sums in one pass"] or kind == "CSV file"]
    ],
)
def test_every_door_takes_every_kind_of_table(entry_point, kind, frame, tmp_path):
    expected = of_frame(entry_point)
    assert isinstance(expected, np.ndarray), expected
    found = answer(entry_point, KINDS[kind](frame, tmp_path))
    if entry_point in BY_PASSES and kind in STREAMS:
        assert isinstance(found, NotAvailableError)
        assert "open_rows(data, spool=True)" in str(found)
        # Where a spool file is no remedy, what is one is named.
        assert entry_point not in BY_PLACES or "DPSGD" in str(found).partition("spool=True")[2]
    elif entry_point in BY_PLACES and kind not in ORDERED:
        assert isinstance(found, ArgumentError)
        assert "order of the rows" in str(found)
        assert "data frame or table in memory" in str(found)
    else:
        assert isinstance(found, np.ndarray), found
        np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.audit
@pytest.mark.parametrize("kind", ["CSV file", "polars LazyFrame", "Arrow stream"])
def test_a_column_of_any_table_names_the_machines(kind, frame, tmp_path):
    np.testing.assert_array_equal(by_machine(KINDS[kind](frame, tmp_path)), by_machine(frame))


@cache
def bits_of_frame():
    return SUMS["MomentOLS"](made()).tobytes()


@pytest.mark.parametrize("kind", KINDS | FURTHER_KINDS)
def test_every_kind_of_table_gives_the_same_bits(kind, frame, tmp_path):
    data = (KINDS | FURTHER_KINDS)[kind](frame, tmp_path)
    assert SUMS["MomentOLS"](data).tobytes() == bits_of_frame()


@pytest.mark.parametrize("kind", KINDS | FURTHER_KINDS)
def test_no_kind_of_table_is_pickled_or_shown(kind, frame, tmp_path):
    source = source_of((KINDS | FURTHER_KINDS)[kind](frame.assign(y=7.25), tmp_path))
    assert "7.25" not in repr(source)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(source)


def test_every_kind_of_the_page_has_a_table():
    """The first table of docs/tables.md lists kinds by their libraries; each is built by `support.tables`."""
    text = Path(__file__).parents[2].joinpath("docs", "tables.md").read_text(encoding="utf-8")
    rows = text.partition("|---|")[2].partition("\n\n")[0].splitlines()[1:]
    kinds = {kind.partition(" ")[0].lower() for kind in KINDS | FURTHER_KINDS}
    assert len(rows) >= 7
    for row in rows:
        first = row.split("|")[1].strip().split()[0]
        assert first.lower() in kinds or first == "path", row
    for suffix in (".parquet", ".csv", ".tsv", ".gz"):
        assert suffix.strip(".") in " ".join(rows)


@pytest.mark.parametrize("kind", QUERIES)
def test_a_query_is_known_as_one(kind, frame, tmp_path):
    source = source_of(QUERIES[kind](frame, tmp_path))
    assert (source.ordered, source.repeatable) == (False, True)
    assert all(len(list(source.read(["x"], SCHEMA))) == 3 for _ in range(2))


@pytest.mark.parametrize("kind", STREAMS)
def test_what_a_model_in_memory_had_of_a_stream_is_kept_for_its_next_fit(kind, frame, tmp_path):
    model = pi.DebiasedLasso.from_formula("y ~ x + w", KINDS[kind](frame, tmp_path), schema=SCHEMA)
    first, second = (
        params(model.fit(epsilon=90.0, delta=1e-5, targets=["x"], sparsity=2, rng=0)) for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("kind", STREAMS)
def test_a_stream_that_was_read_is_refused(kind, frame, tmp_path):
    stream, ledger = KINDS[kind](frame, tmp_path), pi.Ledger()
    with pytest.raises(NotAvailableError, match="only once"):
        pi.OLS.from_formula("y ~ x", stream, schema=SCHEMA, ledger=ledger).fit(**SPEND)
    held = pi.open_rows(stream)
    pi.stats.mean("x", data=held, schema=SCHEMA, **SPEND)
    with pytest.raises(NotAvailableError, match="only once"):
        pi.stats.mean("x", data=held, schema=SCHEMA, ledger=ledger, **SPEND)
    assert not ledger.entries


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("pandas", "mapping")])
def test_arrays_of_columns_are_in_memory(kind, frame, tmp_path):
    """A table beside y is columns in memory; of all else the message names the entry point that takes it."""
    X = KINDS[kind](frame[["x", "w", "y"]], tmp_path)
    fit = lambda: pi.OLS(frame["y"], X, bounds=[(-1, 1), (-1, 1), (0, 10)], y_bounds=(0, 10)).fit(**SPEND)  # noqa: E731
    if kind in ORDERED and kind not in FILES:
        assert params(fit()).shape == (3,)
    else:
        with pytest.raises(SchemaError, match="from_formula"):
            fit()


@pytest.mark.parametrize("data", [3, "", b"rows", object(), [1, 2], np.zeros((3, 2))])
def test_what_is_no_table_is_refused(data):
    with pytest.raises(PrivinfError):
        pi.MomentOLS.from_formula("y ~ x", data, schema=SCHEMA).fit(**SPEND)


def test_a_column_called_ask_makes_no_federation(frame):
    schema = pi.Schema({"ask": (0, 10), "x": (-1, 1)})
    model = pi.OLS.from_formula("ask ~ x", frame.rename(columns={"y": "ask"}), schema=schema)
    assert model.fit(**SPEND).nobs == N


def test_pairs_of_doors_and_tables_leave_no_behaviour_out():
    for behaviour, kind in BEHAVIOURS.items():
        assert (kind in ORDERED, kind in STREAMS) == (
            behaviour in ("in memory", "in order, again and again"),
            behaviour == "once",
        )
    assert {entry_point for entry_point, _ in PAIRS} == set(ENTRY_POINTS)
    assert {kind for _, kind in PAIRS} == set(KINDS)
    ways = set(WAYS.values())
    assert ways & BY_PASSES
    assert ways & set(BY_PLACES)
    assert ways - BY_PASSES - set(BY_PLACES)
