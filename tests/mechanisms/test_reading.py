"""Tables that are wrong in a later block, cut short, changed or too large are refused; nothing is spent."""

from __future__ import annotations

import errno
import gc
import os
import stat
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from support.tables import KINDS, arrow, of_library

import privinf as pi
from privinf.errors import AlignmentError, ArgumentError, NotAvailableError, SchemaError, StorageError
from privinf.mechanisms import reading, sources
from privinf.mechanisms.files import READ_AHEAD, read_ahead
from privinf.mechanisms.tables import source_of

SECRET = 98765.4321
SCHEMA = pi.Schema({"y": (0, 10), "x": (-1, 1), "g": pi.Factor(["u", "v"])})
SPEND = {"epsilon": 2.0, "delta": 1e-6, "rng": 0}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(sources, "ROWS", 16)


@pytest.fixture
def frame():
    rng = np.random.default_rng(4)
    return pd.DataFrame({"y": rng.uniform(0, 10, 70), "x": rng.uniform(-1, 1, 70), "g": ["u", "v"] * 35})


def fitted(model, **words):
    return lambda data, ledger: model.from_formula("y ~ x", data, schema=SCHEMA, ledger=ledger).fit(
        **SPEND, **words
    )


ONCE = {
    "MomentOLS": fitted(pi.MomentOLS),
    "mean": lambda data, ledger: pi.stats.mean("x", data=data, schema=SCHEMA, ledger=ledger, **SPEND),
    "correlation": lambda data, ledger: pi.stats.pearsonr(
        "y", "x", data=data, schema=SCHEMA, ledger=ledger, **SPEND
    ),
}
OFTEN = {
    "OLS": fitted(pi.OLS, intervals="optional"),
    "quantile": lambda data, ledger: pi.stats.quantile("x", data=data, schema=SCHEMA, ledger=ledger, **SPEND),
    "find_bounds": lambda data, ledger: pi.find_bounds(
        data, ["y", "x"], ledger=ledger, epsilon=99.0, delta=1e-6
    ),
}


def refused(data, error, match, entry_points=None):
    """See entry points refuse the data without a value of a row, and nothing spent."""
    for name, entry_point in (ONCE | OFTEN if entry_points is None else entry_points).items():
        ledger = pi.Ledger()
        with pytest.raises(error, match=match) as told:
            entry_point(data(), ledger)
        assert "98765" not in str(told.value), name
        assert told.value.__context__ is None, name
        assert not ledger.entries, name


def folder_of(path, *frames, suffix=".parquet"):
    path.mkdir()
    for number, frame in enumerate(frames):
        part = path / f"{number}{suffix}"
        frame.to_parquet(part) if suffix == ".parquet" else frame.to_csv(part, index=False)
    return path


def test_a_later_file_with_other_columns_is_named(frame, tmp_path):
    folder = folder_of(tmp_path / "t", frame, frame.rename(columns={"x": "z"}))
    refused(lambda: folder, SchemaError, r"1\.parquet lacks the column 'x'")


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_a_later_file_with_other_types_is_refused(suffix, frame, tmp_path):
    folder = folder_of(tmp_path / "t", frame, frame.assign(x=f"about {SECRET}"), suffix=suffix)
    refused(lambda: folder, SchemaError, "'x' of t holds numbers at first and texts in a later part")


def test_a_text_in_a_later_block_of_a_csv_file_is_refused(frame, tmp_path):
    path = tmp_path / "t.csv"
    frame.astype({"x": object}).assign(x=[*frame["x"][:-1], f"about {SECRET}"]).to_csv(path, index=False)
    refused(lambda: path, SchemaError, "'x' of t.csv holds numbers at first and texts in a later part")


@pytest.mark.parametrize("other", [{"x": f"about {SECRET}"}, {"x": None}, {"z": 1.0}])
@pytest.mark.parametrize("kind", ["pyarrow Dataset", "polars LazyFrame"])
def test_a_later_file_that_differs_is_refused_of_other_libraries_too(kind, other, frame, tmp_path):
    rest = frame.drop(columns="x") if "z" in other else frame
    folder = folder_of(tmp_path / "t", frame, rest.assign(**other))

    def data():
        if kind == "polars LazyFrame":
            return pytest.importorskip("polars").scan_parquet(folder / "*.parquet")
        return pytest.importorskip("pyarrow.dataset").dataset(folder)

    refused(data, (SchemaError, StorageError), "x|could not be read completely")


def test_a_stream_that_breaks_off_or_changes_is_refused(frame):
    pa = pytest.importorskip("pyarrow")
    batch = pa.RecordBatch.from_pandas(frame)
    texts = pa.RecordBatch.from_pandas(frame.assign(x=f"about {SECRET}"))

    def broken(later):
        yield batch
        if later is None:
            raise ValueError(f"row {SECRET}")
        yield later

    for later in (None, texts):
        refused(
            lambda later=later: pa.RecordBatchReader.from_batches(batch.schema, broken(later)),
            (SchemaError, StorageError),
            "later part|could not be read completely",
            ONCE,
        )


def test_a_column_that_is_missing_in_some_blocks_keeps_its_kind(frame, tmp_path):
    frame.loc[20:60, ["x", "g"]] = None
    path = tmp_path / "t.csv"
    frame.to_csv(path, index=False)
    fits = [
        pi.MomentOLS.from_formula("y ~ x + C(g)", data, schema=SCHEMA, missing="impute-public").fit(**SPEND)
        for data in (path, frame)
    ]
    np.testing.assert_allclose(*(fit.params for fit in fits), rtol=1e-12)


EMPTY = ["pandas", "mapping", "pyarrow Table", "polars DataFrame", "polars LazyFrame", "Arrow stream"]
EMPTY += ["CSV file", "Parquet file", "CSV folder", "duckdb relation"]


@pytest.mark.parametrize("kind", EMPTY)
def test_a_table_without_rows_is_refused(kind, frame, tmp_path):
    data = KINDS[kind](frame.astype({"g": object})[:0], tmp_path)
    made = lambda: KINDS[kind](frame.astype({"g": object})[:0], tmp_path) if kind == "Arrow stream" else data  # noqa: E731
    entry_points = ONCE if kind == "Arrow stream" else ONCE | OFTEN
    refused(made, AlignmentError, "the table has no rows", entry_points)


@pytest.mark.parametrize("left", [0, 100, 0.5, 0.99])
def test_a_file_that_was_cut_short_is_refused(left, frame, tmp_path):
    path = tmp_path / "t.parquet"
    frame.to_parquet(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(left * len(content)) if left < 1 else left])
    refused(lambda: path, StorageError, "t.parquet cannot be read as Parquet")


@pytest.mark.parametrize("checked", [False, True])
def test_a_damaged_page_is_found_when_it_is_read(checked, frame, tmp_path):
    """Where pages have checksums a digit is enough; else what is no page is seen."""
    parquet = of_library("pyarrow.parquet")
    path = tmp_path / "t.parquet"
    options = {"row_group_size": 16, "use_dictionary": False, "compression": "none"}
    parquet.write_table(arrow(frame), path, write_page_checksum=checked, **options)
    start = parquet.ParquetFile(path).metadata.row_group(2).column(1).data_page_offset
    content = bytearray(path.read_bytes())
    wrong = slice(start + 80, start + 81) if checked else slice(start, start + 40)
    content[wrong] = bytes(255 - byte for byte in content[wrong])
    path.write_bytes(content)
    refused(lambda: path, StorageError, r"t\.parquet cannot be read as Parquet")


# ---- batches that a thread reads ahead


def numbered(made, n=9, error_at=None):
    """Yield 0, 1, ... and note each; fail at one of them, and note the end."""
    try:
        for number in range(n):
            if number == error_at:
                raise StorageError(f"item {number} cannot be read")
            made.append(number)
            yield number
    finally:
        made.append("closed")


def readers():
    return [thread for thread in threading.enumerate() if thread.name.startswith("privinf reads ahead")]


def test_batches_are_read_ahead_in_order_and_at_most_two():
    made = []
    for number in read_ahead(numbered(made)):
        assert len(readers()) == 1
        time.sleep(0.01)
        assert len([item for item in made if item != "closed"]) <= number + 1 + READ_AHEAD
        assert number in made
    assert made == [*range(9), "closed"]
    assert readers() == []


def test_an_error_of_the_reader_is_raised_in_its_turn():
    made, taken = [], []
    with pytest.raises(StorageError, match=r"^item 5 cannot be read$") as caught:
        taken.extend(read_ahead(numbered(made, error_at=5)))
    assert taken == [0, 1, 2, 3, 4]
    assert made == [0, 1, 2, 3, 4, "closed"]
    assert caught.value.__cause__ is None
    assert readers() == []


@pytest.mark.parametrize("end", ["close", "collection", "error"])
def test_the_thread_ends_when_the_consumer_stops_early(end):
    made = []
    numbers = numbered(made, n=10**6)  # kept here: it is closed, and not only collected
    items = read_ahead(numbers)
    assert [next(items), next(items)] == [0, 1]
    if end == "close":
        items.close()
    elif end == "collection":
        del items
    else:
        with pytest.raises(KeyboardInterrupt):
            items.throw(KeyboardInterrupt)
    assert readers() == []
    assert made[-1] == "closed"
    assert len(made) <= 2 + READ_AHEAD + 1


def test_nothing_is_read_after_the_consumer_stopped():
    made, stopped = [], threading.Event()

    def slow():
        for number in numbered(made):
            if number == 2:
                stopped.wait(10)
            yield number

    items = read_ahead(slow())
    assert [next(items), next(items)] == [0, 1]
    threading.Timer(0.2, stopped.set).start()
    items.close()
    assert made == [0, 1, 2, "closed"]


def test_a_reader_whose_thread_collects_it_ends(monkeypatch):
    """The thread cannot wait for itself: the generator ends all the same, and reports nothing."""
    reports = []
    monkeypatch.setattr(sys, "unraisablehook", reports.append)
    unreachable = threading.Event()
    made = []

    def collecting():
        for number in numbered(made, n=10**6):
            if number == 2:
                assert unreachable.wait(10)
                gc.collect()
            yield number

    gc.disable()
    try:
        items = read_ahead(collecting())
        cycle = [items]
        cycle.append(cycle)
        assert next(items) == 0
        (thread,) = readers()
        del items, cycle
        unreachable.set()
        thread.join(10)
    finally:
        gc.enable()
    gc.collect()
    assert not thread.is_alive()
    assert made == [0, 1, 2, "closed"]
    assert reports == []


def test_a_lack_of_memory_is_not_reported_as_a_damaged_file(frame, tmp_path, monkeypatch):
    frame.to_parquet(path := tmp_path / "t.parquet")
    batches = of_library("pyarrow.parquet").ParquetFile.iter_batches

    def limited(self, **options):
        yield from list(batches(self, **options))[:3]
        raise MemoryError

    monkeypatch.setattr(of_library("pyarrow.parquet").ParquetFile, "iter_batches", limited)
    blocks = source_of(path).read(["x"], SCHEMA)
    assert [len(next(blocks)) for _ in range(3)] == [16, 16, 16]
    with pytest.raises(MemoryError):
        next(blocks)
    assert readers() == []


def test_a_file_can_be_read_twice_in_parallel(frame, tmp_path):
    frame.to_parquet(path := tmp_path / "t.parquet")
    source = source_of(path)
    pairs = zip(source.read(["x"], SCHEMA), source.read(["y"], SCHEMA), strict=True)
    x, y = (pd.concat(blocks) for blocks in zip(*pairs, strict=True))
    np.testing.assert_array_equal(x["x"], frame["x"])
    np.testing.assert_array_equal(y["y"], frame["y"])
    assert readers() == []


@pytest.mark.parametrize("started", [0, 1, 4])
def test_without_more_threads_the_caller_reads_itself(started, monkeypatch):
    submit, calls = ThreadPoolExecutor.submit, []

    def limited(self, *arguments):
        calls.append(None)
        if len(calls) > started:
            raise RuntimeError("can't start new thread")
        return submit(self, *arguments)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", limited)
    made = []
    assert list(read_ahead(numbered(made))) == list(range(9))
    assert made == [*range(9), "closed"]
    assert readers() == []


@pytest.mark.parametrize("rows", [16, 17])
def test_a_thread_reads_files_of_several_blocks_only(rows, frame, tmp_path):
    frame.iloc[:rows].to_parquet(path := tmp_path / "rows.parquet")
    blocks = source_of(path).read(["x"], SCHEMA)
    first = next(blocks)
    assert len(readers()) == (rows > 16)
    np.testing.assert_array_equal(pd.concat([first, *blocks])["x"], frame["x"].iloc[:rows])
    assert readers() == []


def test_a_query_that_fails_says_nothing_of_rows(frame, tmp_path):
    duckdb = of_library("duckdb")
    path = tmp_path / "t.csv"
    frame.assign(x=f"about {SECRET}").to_csv(path, index=False)
    query = f"select y, cast(x as double) as x, g from read_csv('{path}', all_varchar=false)"
    refused(lambda: duckdb.connect().sql(query), StorageError, "the DuckDB relation could not be read")
    polars = of_library("polars")
    failing = lambda: polars.scan_csv(path).with_columns(polars.col("x").cast(polars.Float64))  # noqa: E731
    refused(failing, StorageError, "the LazyFrame could not be read")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_file_that_changes_while_it_is_read_is_refused(suffix, frame, tmp_path):
    path = tmp_path / f"t{suffix}"
    frame.to_csv(path, index=False) if suffix == ".csv" else frame.to_parquet(path)
    blocks = reading.checked_blocks(source_of(path), ["y"], SCHEMA)
    next(blocks)
    with open(path, "a") as file:
        file.write("1,2,u\n")
    with pytest.raises(AlignmentError, match=rf"t\{suffix} was changed while it was read"):
        list(blocks)


def test_what_does_not_fit_into_memory_is_refused(frame, tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MOST_MEMORY", 1000)
    path = tmp_path / "t.parquet"
    frame.to_parquet(path)
    with pytest.raises(NotAvailableError, match="reads all rows into memory"):
        pi.ModulatedOLS.from_formula("y ~ x", path, schema=SCHEMA).fit(**SPEND)


def test_a_stream_is_read_once(frame):
    source = source_of(arrow(frame).to_reader())
    assert sum(map(len, source.read(["x"], SCHEMA))) == 70
    with pytest.raises(
        NotAvailableError, match=r"pass its path, or pass privinf.open_rows\(data, spool=True\)"
    ):
        source.read(["x"], SCHEMA)


@pytest.mark.parametrize("kind", ["Arrow stream", "duckdb relation", "polars LazyFrame"])
def test_a_spooled_stream_is_read_again_from_a_file_of_ones_own(kind, frame, tmp_path):
    spool = tmp_path / "spool"
    spool.mkdir()
    rows = pi.open_rows(KINDS[kind](frame, tmp_path), spool=spool)
    assert rows.repeatable
    assert not rows.ordered
    for _ in range(2):
        read = pd.concat(rows.read(["x", "y"], SCHEMA))
        np.testing.assert_array_equal(np.sort(read["x"]), np.sort(frame["x"]))
    (file,) = spool.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with pytest.raises(ArgumentError, match="order of the rows"):
        pi.ModulatedOLS.from_formula("y ~ x", rows, schema=SCHEMA).fit(**SPEND)
    del rows
    gc.collect()
    assert not list(spool.iterdir())


def test_a_full_disk_leaves_no_spool_file(frame, tmp_path, monkeypatch):
    def full(self, batch):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(of_library("pyarrow.parquet").ParquetWriter, "write_batch", full)
    made = lambda: pi.open_rows(arrow(frame).to_reader(), spool=tmp_path)  # noqa: E731
    refused(made, StorageError, "No space left on device")
    assert not list(tmp_path.iterdir())
    with pytest.raises(StorageError, match="is not a folder"):
        pi.open_rows(frame, spool=tmp_path / "nowhere")


@pytest.mark.parametrize("progress", [True, False, None])
def test_a_bar_counts_rows_and_can_be_turned_off(progress, frame, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(reading, "DELAY", 0.0)
    path = tmp_path / "t.csv"
    frame.to_csv(path, index=False)
    pi.MomentOLS.from_formula("y ~ x", pi.open_rows(path, progress=progress), schema=SCHEMA).fit(**SPEND)
    shown = capsys.readouterr().err
    assert ("rows" in shown) == (progress is True)


def test_a_handle_of_a_frame_is_the_frame(frame):
    rows = pi.open_rows(frame, spool=True)
    results = [
        pi.ModulatedOLS.from_formula("y ~ x", data, schema=SCHEMA).fit(**SPEND) for data in (rows, frame)
    ]
    np.testing.assert_array_equal(*(result.params for result in results))
