"""Releases of rows that are written to Parquet block by block, and fits that read them so."""

from __future__ import annotations

import io
import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.errors import ArgumentError, NotAvailableError, SchemaError, StorageError
from privinf.mechanisms import sources
from privinf.mechanisms.local.examples import LocalExamples
from privinf.releases import load_release
from privinf.row_groups import write_groups

pytest.importorskip("pyarrow")

N = 70_000
SCHEMA = pi.Schema(
    {
        "y": (-3.0, 3.0),
        "x1": (-1.0, 1.0),
        "x2": (-1.0, 1.0),
        "b": (0.0, 1.0),
        "g": ["a", "b", "c"],
        "lab": ["no", "yes"],
        "w": pi.Numeric(0.5, 2.0, public=True),
    }
)
GAUSSIAN, BOTH = {"epsilon": 8.0, "delta": 1e-6}, {"epsilon_x": 16.0, "epsilon_y": 6.0, "delta": 1e-6}
# Formula, spending and options of each kind of release of rows; IWPGLM: features and labels in every way.
CASES = {
    "modulated": (pi.ModulatedOLS, "y ~ x1 + x2 + C(g)", GAUSSIAN, {}),
    "modulated, weights": (pi.ModulatedOLS, "y ~ x1 + x2", GAUSSIAN, {"weights": "w", "response": "public"}),
    "moments": (pi.MomentOLS, "y ~ x1 + x2 + C(g)", GAUSSIAN, {"trust": "local"}),
    "responses": (pi.IWPGLM, "lab ~ x1 + x2 + b + C(g)", BOTH, {"binary": ["b"]}),
    "squared": (pi.IWPGLM, "y ~ x1 + x2", BOTH, {"loss": "squared"}),
}


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (N, 2))
    return pd.DataFrame(
        {
            "x1": x[:, 0],
            "x2": x[:, 1],
            "b": rng.integers(0, 2, N),
            "g": rng.choice(["a", "b", "c"], N),
            "y": np.clip(x @ [1.0, -0.5] + 0.3 * rng.standard_normal(N), -3, 3),
            "lab": np.where(rng.random(N) < 1 / (1 + np.exp(-x @ [1.5, -1.0])), "yes", "no"),
            "w": rng.uniform(0.5, 2.0, N),
        }
    )


@pytest.fixture(scope="module")
def table(rows: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "table.parquet"
    rows.to_parquet(path, row_group_size=9_001)
    return path


def model(case: str, data: object) -> object:
    kind, formula, _, options = CASES[case]
    return kind.from_formula(formula, data, schema=SCHEMA, **options)


def equal(one: pi.Release, other: pi.Release) -> None:
    assert one.arrays.keys() == other.arrays.keys()
    for name, array in one.arrays.items():
        left, right = np.asarray(array), np.asarray(other.arrays[name])
        assert left.dtype == right.dtype, name
        assert np.array_equal(left, right), name
    assert one.noise_model == other.noise_model
    assert one.nobs == other.nobs
    assert [line.loss for line in one.entries] == [line.loss for line in other.entries]


@pytest.mark.audit
@pytest.mark.parametrize("case", CASES)
def test_a_release_in_blocks_is_that_in_memory_and_its_fit_too(
    case: str, rows: pd.DataFrame, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, _, words, options = CASES[case]
    whole = model(case, rows).release(rng=3, **words)
    read = model(case, table).release(rng=3, to=tmp_path / "one.parquet", **words)
    equal(whole, read)
    monkeypatch.setattr(sources, "ROWS", 1_000)
    equal(whole, model(case, table).release(rng=3, to=tmp_path / "two.parquet", **words))
    equal(whole, model(case, rows).release(rng=3, to=tmp_path / "three.parquet", **words))
    stored = load_release(tmp_path / "one.parquet")
    equal(whole, stored)
    equal(whole, pickle.loads(pickle.dumps(stored)))
    loss = {"loss": options["loss"]} if "loss" in options else {}
    one, other = (kind.from_release(release, **loss).fit() for release in (whole, stored))
    np.testing.assert_allclose(other.params, one.params, rtol=1e-10)
    np.testing.assert_allclose(other.bse, one.bse, rtol=1e-10)
    assert other.estimate.scores is None
    assert str(other.summary()).splitlines()[1:12] == str(one.summary()).splitlines()[1:12]


@pytest.mark.audit
def test_folders_and_secure_noise(rows: pd.DataFrame, tmp_path: Path) -> None:
    """Files of odd lengths; the noise is secure, and the release is what its law says."""
    folder = tmp_path / "parts"
    folder.mkdir()
    for part, start in enumerate(range(0, N, 30_011)):
        rows.iloc[start : start + 30_011].to_csv(folder / f"{part}.csv", index=False)
    release = model("moments", folder).release(to=tmp_path / "sent.parquet", **GAUSSIAN)
    assert release.secure
    clean = np.asarray(model("moments", rows).release(epsilon=np.inf).arrays["moments"])
    noise = np.asarray(release.arrays["moments"]) - clean
    assert abs(noise.std() / release.noise_model["scale"] - 1.0) < 0.01


def test_numbers_are_read_as_arrays_and_every_one_has_its_own_secure_noise(
    rows: pd.DataFrame, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first 65,536 rows are one array, the others a frame."""
    honest, read = LocalExamples._read_numbers, []
    monkeypatch.setattr(
        LocalExamples, "_read_numbers", lambda self, x: read.append(len(x)) or honest(self, x)
    )
    release = model("squared", table).release(to=tmp_path / "sent.parquet", **BOTH)
    assert release.secure
    assert read == [1 << 16]
    clean, noise = model("squared", rows).release(epsilon=np.inf), []
    for name in ("features", "labels"):
        moved = np.asarray(release.arrays[name]) - np.asarray(clean.arrays[name])
        noise += list(np.reshape(moved, (N, -1)).T)
    for one in noise[:2]:
        assert abs(one.std() / release.noise_model["scale"] - 1.0) < 0.01
    assert np.abs(np.corrcoef(noise) - np.eye(3)).max() < 0.02


def test_what_is_refused_is_refused_before_the_charge(
    rows: pd.DataFrame, table: Path, tmp_path: Path
) -> None:
    ledger = pi.Ledger()
    sent = tmp_path / "sent.parquet"

    def release(data: object, to: object = sent, **words: object) -> None:
        one = pi.ModulatedOLS.from_formula("y ~ x1", data, schema=SCHEMA, ledger=ledger)
        one.release(to=to, **(GAUSSIAN | words))

    with pytest.raises(NotAvailableError, match=r"epsilon=inf"):
        release(table, epsilon=np.inf)
    with pytest.raises(ArgumentError, match=r"ends in \.parquet"):
        release(table, tmp_path / "sent.npz")
    with pytest.raises(ArgumentError, match="to"):
        model("modulated", table).release(method="iterative", to=sent, **GAUSSIAN)
    with pytest.raises(ArgumentError, match="order of the rows"):
        release(pi.open_rows(__import__("pyarrow").Table.from_pandas(rows).to_reader()))
    broken = rows.assign(x1=rows.x1.where(rows.index < N - 1))
    broken.to_parquet(tmp_path / "broken.parquet")
    with pytest.raises(SchemaError, match="x1"):
        release(tmp_path / "broken.parquet")
    people = pi.Schema({"y": (-3.0, 3.0), "x1": (-1.0, 1.0)}, unit="b", max_rows=N)
    with pytest.raises(NotAvailableError, match="declares unit="):
        pi.ModulatedOLS.from_formula("y ~ x1", table, schema=people, ledger=ledger).release(
            to=sent, **GAUSSIAN
        )
    with pytest.raises(ArgumentError, match="trust='local'"):
        pi.MomentOLS.from_formula("y ~ x1", table, schema=SCHEMA, ledger=ledger).release(to=sent, **GAUSSIAN)
    assert not ledger.entries
    assert not list(tmp_path.glob("sent*"))
    release(table)
    with pytest.raises(ArgumentError, match="already"):
        release(table)
    assert len(ledger.entries) == 2


@pytest.fixture(scope="module")
def sent(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sent") / "sent.parquet"
    model("modulated", table).release(to=path, **GAUSSIAN)
    return path


def test_a_file_counts_only_with_its_json_and_its_digest(sent: Path, tmp_path: Path) -> None:
    rows, told = sent.read_bytes(), Path(f"{sent}.json").read_text()
    copy, beside = tmp_path / "copy.parquet", tmp_path / "copy.parquet.json"
    copy.write_bytes(rows)
    with pytest.raises(StorageError, match="not a complete release"):
        load_release(copy)
    beside.write_text(told)
    assert load_release(copy).nobs == N
    content = json.loads(told)
    content["header"]["nobs"] += 1
    beside.write_text(json.dumps(content))
    with pytest.raises(StorageError, match="checksum"):
        load_release(copy)
    beside.write_text(told)
    for damaged in (
        rows[:-1],
        rows[: len(rows) // 2],
        rows[:5000] + bytes([rows[5000] ^ 1]) + rows[5001:],
        b"",
    ):
        copy.write_bytes(damaged)
        with pytest.raises(StorageError, match="checksum"):
            load_release(copy)
    copy.unlink()
    with pytest.raises(StorageError):
        load_release(copy)


SMALL_DISK = """
    import resource, sys
    import privinf as pi, privinf.releases as releases
    schema = pi.Schema({"y": (-3.0, 3.0), "x1": (-1.0, 1.0), "x2": (-1.0, 1.0)})
    ledger = pi.Ledger()
    model = pi.ModulatedOLS.from_formula("y ~ x1 + x2", sys.argv[1], schema=schema, ledger=ledger)
    def full(room):
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    def before_the_json(*args, write=releases.write_manifest, **kwargs):
        full(int(sys.argv[4]))
        return write(*args, **kwargs)
    releases.write_manifest = before_the_json
    full(int(sys.argv[3]))
    try:
        model.release(epsilon=8.0, delta=1e-6, to=sys.argv[2])
    except pi.errors.StorageError as error:
        print(len(ledger.entries), error)
"""


@pytest.mark.audit
@pytest.mark.skipif(os.name != "posix", reason="limits of files")
def test_a_full_disk_leaves_nothing_and_the_charge_is_told(table: Path, tmp_path: Path) -> None:
    """The disk is full at the first bytes, in mid-file, at the last ones, and when the JSON is written."""
    place, whole = tmp_path / "sent.parquet", 1 << 40
    run = [sys.executable, "-c", textwrap.dedent(SMALL_DISK), str(table), str(place)]
    assert subprocess.run([*run, str(whole), str(whole)], check=True, capture_output=True).stdout == b""
    size = place.stat().st_size
    for found in list(tmp_path.iterdir()):
        found.unlink()
    for rows, beside in ((0, 0), (1 << 20, whole), (size - 30000, whole), (whole, 0), (whole, 500)):
        told = subprocess.run([*run, str(rows), str(beside)], capture_output=True, text=True, check=True)
        assert told.stdout.startswith("2 ")
        assert "the charge is kept" in told.stdout
        assert "File too large" in told.stdout
        assert not list(tmp_path.iterdir())


@pytest.mark.audit
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_what_is_killed_in_mid_release_is_no_release(table: Path, tmp_path: Path) -> None:
    place = tmp_path / "sent.parquet"
    killing = textwrap.dedent(SMALL_DISK).replace(
        "full(int(sys.argv[4]))", "import os; os.kill(os.getpid(), 9)"
    )
    command = [sys.executable, "-c", killing, str(table), str(place), str(1 << 40)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert place.exists()
    with pytest.raises(StorageError, match="not a complete release"):
        load_release(place)


def test_rows_that_change_between_the_passes_are_told_with_the_charge(
    rows: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from privinf.mechanisms.files import ParquetSource

    path, ledger = tmp_path / "table.parquet", pi.Ledger()
    rows.to_parquet(path)
    read, passes = ParquetSource.read, []

    def changed(self: ParquetSource, columns: list[str], types: object) -> object:
        passes.append(1)
        for block in read(self, columns, types):
            yield block.assign(x1=np.nan) if len(passes) == 2 else block

    monkeypatch.setattr(ParquetSource, "read", changed)
    one = pi.ModulatedOLS.from_formula("y ~ x1", path, schema=SCHEMA, ledger=ledger)
    with pytest.raises(SchemaError, match="the charge is kept"):
        one.release(to=tmp_path / "sent.parquet", **GAUSSIAN)
    assert len(ledger.entries) == 2
    assert not list(tmp_path.glob("*sent*"))


def test_a_column_that_is_constant_takes_no_room(table: Path, tmp_path: Path) -> None:
    """The intercept of a release is read back as ones, and all of it stands in less than a thousandth."""
    from pyarrow import parquet

    sent = tmp_path / "sent.parquet"
    release = LocalExamples(SCHEMA, "y ~ x1 + x2", label="gaussian").release(table, **BOTH, to=sent)
    groups = parquet.ParquetFile(sent).metadata
    sizes = dict[str, int]()
    for group in range(groups.num_row_groups):
        for place in range(groups.num_columns):
            column = groups.row_group(group).column(place)
            sizes[column.path_in_schema] = sizes.get(column.path_in_schema, 0) + column.total_compressed_size
    assert sizes.pop("public.0") < 8 * N / 1000
    assert min(sizes.values()) >= 8 * N
    for rows in (release.arrays["public"], load_release(sent).arrays["public"]):
        assert np.array_equal(np.asarray(rows), np.ones((N, 1)))


class Held(io.BytesIO):
    """A stream whose other threads wait before they write, and fail at their writes of some numbers."""

    def __init__(self, fails: int | None = None) -> None:
        super().__init__()
        self.go, self.writes, self.fails = threading.Event(), 0, fails

    def write(self, block: bytes) -> int:
        if threading.current_thread() is not threading.main_thread():
            assert self.go.wait(20.0)
            self.writes += 1
            if self.writes == self.fails:
                raise OSError(28, "No space left on device")
        return super().write(block)


def test_a_block_is_written_as_it_was_though_the_next_one_takes_its_memory() -> None:
    """Else raw rows of the next block would stand in the release."""
    stream, room = Held(), np.zeros((50, 2), order="F")

    def blocks() -> Iterator[dict[str, np.ndarray]]:
        for number in (1.0, 2.0):
            room[:] = number
            yield {"x": room}
            room[:] = 99.0  # what is read next, not noised yet
            stream.go.set()

    write_groups(stream, blocks(), {})
    rows = __import__("pyarrow.parquet").parquet.read_table(io.BytesIO(stream.getvalue()))
    assert rows["x.1"].to_pylist() == [1.0] * 50 + [2.0] * 50


@pytest.mark.parametrize("fails", [1, 2, 3])
def test_no_block_that_could_not_be_written_is_passed_over(fails: int) -> None:
    stream = Held(fails)
    stream.go.set()
    with pytest.raises(OSError, match="No space"):
        write_groups(stream, ({"x": np.full((50, 1), float(number))} for number in range(9)), {})
