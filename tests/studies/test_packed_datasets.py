"""Packed data sets: the regressions of the paper's Table 1, of the folder that PRIVINF_DATA names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from privinf import datasets
from privinf.errors import ArgumentError, NotAvailableError, StorageError
from studies.data.packed import VARIABLE

# name, options, n, d, rank with a constant, least squares' MSE on [0, 1] as the paper has it, columns by
# min and max over all rows (data README; in-sample here)
TABLES = [
    ("insurance", {}, 1338, 9, 9, 0.0093),
    ("insurance", {"regions": "treatment"}, 1338, 8, 9, 0.0093),
    ("bike", {}, 17379, 13, 14, 0.0172),
    ("bike", {"response": "registered"}, 17379, 13, 14, 0.0163),
    ("superconductor", {}, 21257, 81, 82, 0.0090),
    ("gpu", {}, 241600, 14, 15, 0.0072),
    ("song", {}, 4680, 90, 55, 0.0155),
    ("acs_wages", {"rows": 20_000}, 20_000, 90, None, None),
]


def load(name, **options):
    try:
        return datasets.load(name, **options)
    except NotAvailableError as error:
        pytest.skip(str(error))


def mean_square(data):
    y = (data.y - data.y.min()) / (data.y.max() - data.y.min())
    X = np.column_stack([np.ones(len(y)), (data.X - data.X.mean()) / data.X.std()])
    fitted, _, rank, _ = np.linalg.lstsq(X, y, rcond=None)
    return float(np.mean((y - X @ fitted) ** 2)), rank


@pytest.mark.parametrize(("name", "options", "n", "d", "rank", "mse"), TABLES, ids=lambda v: str(v))
def test_table_is_the_papers(name, options, n, d, rank, mse):
    data = load(name, **options)
    assert data.X.shape == (n, d)
    assert np.isfinite(data.data.to_numpy()).all()
    if mse is not None:
        found, found_rank = mean_square(data)
        assert found == pytest.approx(mse, abs=2e-4)
        assert found_rank == rank
    assert list(data.schema.columns) == list(data.data.columns)
    for column, values in data.data.items():
        bounds = data.schema.interval(column)
        assert ((values < bounds.low) | (values > bounds.high)).mean() < 0.01
        assert values.var() > 0.0 or name == "acs_wages"
    assert data.description
    assert data.licence
    assert data.source


@pytest.mark.audit
def test_wages_are_explained_by_the_columns():
    data = load("acs_wages", rows=20_000)
    X = np.column_stack([np.ones(len(data.y)), data.X])
    fitted = X @ np.linalg.lstsq(X, data.y, rcond=None)[0]
    assert 0.55 < np.var(fitted) / np.var(data.y) < 0.75
    assert load("acs_wages", rows=20_000, seed=1).y.sum() != data.y.sum()


def test_song_standin_is_named_and_draws_from_the_songs():
    data = load("song", rows=50_000, seed=3)
    assert data.name == "song stand-in"
    assert len(data.data.drop_duplicates()) <= 4680
    assert load("song").y.mean() == pytest.approx(data.y.mean(), abs=0.3)


def test_absent_files_name_their_public_source(monkeypatch, tmp_path):
    for name in datasets.PACKED:
        monkeypatch.delenv(VARIABLE, raising=False)
        with pytest.raises(NotAvailableError, match=VARIABLE) as unset:
            datasets.load(name)
        monkeypatch.setenv(VARIABLE, str(tmp_path))
        with pytest.raises(NotAvailableError, match=r"data\.parquet") as missing:
            datasets.load(name)
        for error in (unset, missing):
            assert any(word in str(error.value) for word in ("UCI", "github.com", "Census"))
            assert ("python -m studies.data build" in str(error.value)) != (
                "no recipe to build" in str(error.value)
            )


def test_a_file_that_is_no_table_is_refused(monkeypatch, tmp_path):
    pytest.importorskip("pyarrow")
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu" / "data.parquet").write_bytes(b"not the file")
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(StorageError, match="cannot be read as a Parquet file"):
        datasets.load("gpu")


@pytest.mark.parametrize(
    ("name", "options"), [("insurance", {"regions": "x"}), ("bike", {"response": "casual"})]
)
def test_unknown_options_are_refused_before_reading(name, options, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(ArgumentError):
        datasets.load(name, **options)


@pytest.mark.audit
@pytest.mark.parametrize("rows", [0, 10**9, 2.5])
def test_wages_draw_no_more_rows_than_there_are(rows):
    load("acs_wages", rows=10)
    with pytest.raises(ArgumentError):
        datasets.load("acs_wages", rows=rows)


def test_nothing_of_the_readers_folder_is_in_the_package():
    package = Path(datasets.__file__).parents[1]
    assert not [path for path in package.rglob("*") if path.suffix in {".parquet", ".csv", ".gz"}]
