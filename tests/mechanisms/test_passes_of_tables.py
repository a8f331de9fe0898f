"""Sums over tables that are read in blocks: the same bits from every source, block size and order of rows."""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.tables import KINDS, STREAMS, written

import privinf as pi
from privinf.errors import AlignmentError, NotAvailableError, SchemaError
from privinf.federation import curator
from privinf.mechanisms import reading, sources
from privinf.mechanisms.passes import RowPasses

SCHEMA = pi.Schema(
    {"y": (0, 10), "x": (-1, 1), "k": (0, 9), "g": pi.Factor(["u", "v", "w"], other="w"), "q": (1, 2)}
)
PUBLIC = pi.Schema({**SCHEMA.columns, "q": pi.Numeric(1, 2, public=True)})
SPEND = {"epsilon": 2.0, "delta": 1e-6, "rng": 0}
# Columns of numbers as they are, for which blocks are arrays; and others, for which they are frames.
FORMULAS = ("y ~ x + k", "y ~ x * k + C(g) + poly(q, 2)")


@pytest.fixture
def frame():
    rng = np.random.default_rng(5)
    n = 120
    return pd.DataFrame(
        {
            "y": rng.uniform(-1, 11, n),
            "x": rng.uniform(-2, 2, n),
            "k": rng.integers(0, 12, n),
            "g": rng.choice(["u", "v", "elsewhere"], n),
            "q": rng.uniform(1, 2, n),
        }
    )


def again(data):
    """Return a table, a stream being spooled, that can be read as often as a fit needs."""
    handle = pi.open_rows(data, progress=False)
    return data if handle.repeatable else pi.open_rows(data, spool=True, progress=False)


def digest(release):
    arrays = (release.arrays[name].tobytes() for name in sorted(release.arrays))
    return hashlib.sha256(b"".join(arrays)).hexdigest()


@pytest.mark.audit
@pytest.mark.parametrize("rows", [25, 1 << 16])
@pytest.mark.parametrize("formula", FORMULAS)
def test_one_digest_over_all_sources(formula, rows, frame, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "ROWS", rows)
    shuffled = frame.sample(frac=1.0, random_state=1).reset_index(drop=True)
    for schema, options in ((SCHEMA, {}), (SCHEMA, {"cov_type": "HC0"}), (PUBLIC, {})):
        mechanism = pi.Moments(schema, formula)
        found = {"shuffled": digest(mechanism.release(shuffled, **options, **SPEND))}
        for number, (kind, make) in enumerate(KINDS.items()):
            folder = tmp_path / f"{number} {rows} {schema is PUBLIC} {len(options)}"
            folder.mkdir()
            found[kind] = digest(mechanism.release(again(make(frame, folder)), **options, **SPEND))
        assert len(found) > 10
        assert len(set(found.values())) == 1, found


FITS = {
    "OLS": "y ~ x + k",
    "OLS, nonrobust": "y ~ x * k + poly(q, 2)",
    "Logit": "I(y > 5) ~ x",
    "Poisson": "y ~ x",
}


@pytest.mark.audit
@pytest.mark.parametrize("name", FITS)
def test_fits_by_passes_have_one_digest_over_all_sources(name, frame, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "ROWS", 25)
    monkeypatch.setattr(curator, "RowPasses", watched := _Watched)
    watched.made = 0
    model, kind = getattr(pi, name.partition(",")[0]), "nonrobust" if "," in name else "HC0"
    found, spend = {}, SPEND | {"epsilon": 50.0, "cov_type": kind}
    for number, (source, make) in enumerate({"frame": lambda frame, _: frame, **KINDS}.items()):
        (folder := tmp_path / str(number)).mkdir()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit = model.from_formula(FITS[name], again(make(frame, folder)), schema=SCHEMA).fit(**spend)
        found[source] = fit.params.to_numpy().tobytes() + fit.bse.to_numpy().tobytes()
    assert len(found) > 10
    assert len(set(found.values())) == 1, found
    assert watched.made >= 8


class _Watched(RowPasses):
    made = 0

    def __init__(self, *args, **options):
        type(self).made += 1
        super().__init__(*args, **options)


@pytest.mark.filterwarnings("ignore::privinf.errors.ChangedTargetWarning")  # values lie outside the bounds
def test_fits_by_passes_say_how_many_and_collect_nothing(frame, tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MOST_MEMORY", 1)
    data = written(pd.concat([frame] * 40), tmp_path / "t.parquet")
    ledger = pi.Ledger()
    fit = pi.OLS.from_formula("y ~ x + k", data, schema=SCHEMA, ledger=ledger).fit(**SPEND)
    (line,) = [line for line in str(fit.summary()).splitlines() if "Passes over the table" in line]
    assert 1 <= int(line.split("table:")[1].split()[0]) <= 5
    stream = KINDS["Arrow stream"](frame, tmp_path)
    with pytest.raises(NotAvailableError, match=r"open_rows\(data, spool=True\)"):
        pi.OLS.from_formula("y ~ x", stream, schema=SCHEMA, ledger=ledger).fit(**SPEND)


def test_a_table_that_is_wrong_costs_a_fit_nothing(frame, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "ROWS", 25)
    frame.loc[100, "x"] = np.inf
    ledger = pi.Ledger()
    data = written(pd.concat([frame] * 9), tmp_path / "t.parquet")
    with pytest.raises(SchemaError, match="'x' has infinite values"):
        pi.OLS.from_formula("y ~ x", data, schema=SCHEMA, ledger=ledger).fit(**SPEND)
    assert not ledger.entries


@pytest.mark.parametrize("formula", FORMULAS)
def test_missing_values_count_alike_in_blocks(formula, frame, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "ROWS", 25)
    frame.loc[40:44, ["x", "g"]] = None
    frame.loc[90, "y"] = np.nan
    path = written(frame, tmp_path / "t.parquet")
    with pytest.raises(SchemaError, match="has missing values"):
        pi.Moments(SCHEMA, formula).release(path, **SPEND)
    mechanism = pi.Moments(SCHEMA, formula, missing="impute-public")
    assert digest(mechanism.release(path, **SPEND)) == digest(mechanism.release(frame, **SPEND))


def test_infinities_in_a_later_block_are_refused(frame, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "ROWS", 25)
    frame.loc[100, "x"] = np.inf
    ledger = pi.Ledger()
    with pytest.raises(SchemaError, match="'x' has infinite values"):
        pi.Moments(SCHEMA, "y ~ x").release(written(frame, tmp_path / "t.parquet"), ledger=ledger, **SPEND)
    assert not ledger.entries


def test_levels_are_compared_over_the_whole_table(frame, tmp_path, monkeypatch):
    """A block may hold pooled levels alone; a table that does was given other types or names."""
    monkeypatch.setattr(sources, "ROWS", 25)
    frame["g"] = np.where(np.arange(len(frame)) < 60, "elsewhere", "u")
    mechanism = pi.Moments(SCHEMA, "y ~ C(g)")
    path = written(frame, tmp_path / "t.parquet")
    assert digest(mechanism.release(path, **SPEND)) == digest(mechanism.release(frame, **SPEND))
    for data in (frame.assign(g="elsewhere"), written(frame.assign(g="elsewhere"), tmp_path / "o.parquet")):
        with pytest.raises(SchemaError, match="'g' contains none of its declared levels"):
            mechanism.release(data, **SPEND)


@pytest.mark.parametrize("kind", ["Parquet file", "duckdb relation", *STREAMS])
@pytest.mark.parametrize("formula", FORMULAS)
def test_sums_collect_nothing(kind, formula, frame, tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MOST_MEMORY", 1)
    data = KINDS[kind](frame, tmp_path)
    fit = pi.MomentOLS.from_formula(formula, data, schema=SCHEMA).fit(**SPEND)
    assert fit.nobs == len(frame)


def test_a_spool_file_that_is_stopped_leaves_no_rows_behind(frame, tmp_path):
    arrow = pytest.importorskip("pyarrow")
    table = arrow.Table.from_pandas(frame)

    def batches():
        yield from table.to_batches()
        assert list(tmp_path.iterdir())
        raise KeyboardInterrupt

    stream = arrow.RecordBatchReader.from_batches(table.schema, batches())
    held = pi.open_rows(stream, spool=tmp_path, progress=False)
    with pytest.raises(KeyboardInterrupt):
        list(held.read(list(frame.columns), "guessed"))
    assert not list(tmp_path.iterdir())


def test_a_stream_that_is_needed_twice_is_refused_or_spooled(frame, tmp_path, monkeypatch):
    mechanism = pi.Moments(SCHEMA, "y ~ x")
    robust = SPEND | {"cov_type": "HC0"}
    expected = digest(mechanism.release(frame, **robust))
    monkeypatch.setattr(reading, "MOST_MEMORY", 1)
    ledger = pi.Ledger()
    with pytest.raises(NotAvailableError, match=r"open_rows\(data, spool=True\)"):
        mechanism.release(KINDS["Arrow stream"](frame, tmp_path), ledger=ledger, **robust)
    assert not ledger.entries
    spooled = pi.open_rows(KINDS["Arrow stream"](frame, tmp_path), spool=tmp_path)
    assert digest(mechanism.release(spooled, **robust)) == expected


def test_a_table_that_changes_after_the_charge_is_told_with_it(frame, tmp_path, monkeypatch):
    path = written(frame, tmp_path / "t.parquet")
    check = reading.require_columns
    passes = []

    def changing(*args):
        if passes:
            written(frame[:60], Path(path))
        passes.append(1)
        return check(*args)

    monkeypatch.setattr(reading, "require_columns", changing)
    ledger = pi.Ledger()
    with pytest.raises(AlignmentError, match=r"has changed since it was first read.*the charge is kept"):
        pi.Moments(SCHEMA, "y ~ x").release(path, cov_type="HC0", ledger=ledger, **SPEND)
    assert len(ledger.entries) == 2


def test_units_with_several_rows_are_counted_over_blocks(frame, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "ROWS", 25)
    schema = pi.Schema({"y": (0, 10), "x": (-1, 1)}, unit="person", max_rows=3)
    people = frame.assign(person=np.arange(len(frame)) % 40)
    mechanism = pi.Moments(schema, "y ~ x")
    path = written(people, tmp_path / "t.parquet")
    assert digest(mechanism.release(path, **SPEND)) == digest(mechanism.release(people, **SPEND))
    with pytest.raises(AlignmentError, match="more than max_rows=3"):
        mechanism.release(written(people.assign(person=1), tmp_path / "o.parquet"), **SPEND)


def test_a_block_in_memory_may_hold_undeclared_levels_alone(frame, monkeypatch):
    """Sorted rows were refused, and shuffled ones were not."""
    rows = pd.concat([frame] * 80, ignore_index=True).sort_values("g", key=lambda g: g != "elsewhere")
    assert (rows["g"][:8192] == "elsewhere").sum() > 3000
    rows = pd.concat([rows[rows["g"] == "elsewhere"]] * 3 + [rows], ignore_index=True)
    assert (rows["g"][:8192] == "elsewhere").all()
    mechanism = pi.Moments(SCHEMA, "y ~ x + C(g)")
    assert digest(mechanism.release(rows, **SPEND)) == digest(mechanism.release(rows[::-1], **SPEND))
    with pytest.raises(SchemaError, match="none of its declared levels"):
        mechanism.release(rows.assign(g="elsewhere"), **SPEND)
