"""One table as every kind of source; libraries that are not installed skip their kinds."""

from __future__ import annotations

from pathlib import Path

import pytest

import privinf as pi


class Stream:
    """What a library that is not known here may give: an Arrow stream, and nothing else."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


class WithToPandas:
    """What a library that is not known here may give: a table in memory with ``to_pandas``."""

    def __init__(self, frame):
        self.frame = frame

    def __len__(self):
        return len(self.frame)

    def to_pandas(self):
        return self.frame


def separated(frame, path: Path, separator):
    frame.to_csv(path, index=False, sep=separator)
    return path


def of_library(name):
    return pytest.importorskip(name, reason=f"{name} is not installed")


def parquet_folder(frame, folder: Path):
    folder.mkdir()
    half = len(frame) // 2
    frame[:half].to_parquet(folder / "a.parquet")
    frame[half:].to_parquet(folder / "b.parquet")
    (folder / "_SUCCESS").touch()
    return folder


def csv_folder(frame, folder: Path):
    folder.mkdir()
    half = len(frame) // 2
    frame[:half].to_csv(folder / "a.csv", index=False)
    frame[half:].to_csv(folder / "b.csv", index=False)
    return str(folder)


def written(frame, path: Path):
    frame.to_parquet(path) if path.suffix == ".parquet" else frame.to_csv(path, index=False)
    return path


def arrow(frame):
    return of_library("pyarrow").Table.from_pandas(frame, preserve_index=False)


def relation(frame, folder: Path):
    table = written(frame, folder / "relation.parquet")
    return of_library("duckdb").connect().sql(f"select * from '{table}'")


def ibis_table(frame, folder: Path):
    of_library("duckdb")
    ibis = of_library("ibis")
    return ibis.duckdb.connect().create_table("held", arrow(frame)).filter(ibis._.y > -1e9)


# Every kind by name: (frame, an empty folder) -> source.
IN_MEMORY = {
    "pandas": lambda frame, folder: frame,
    "mapping": lambda frame, folder: {name: frame[name].to_numpy() for name in frame},
    "polars DataFrame": lambda frame, folder: of_library("polars").from_pandas(frame),
    "pyarrow Table": lambda frame, folder: arrow(frame),
    "pyarrow RecordBatch": lambda frame, folder: arrow(frame).combine_chunks().to_batches()[0],
}
FILES = {
    "Parquet file": lambda frame, folder: written(frame, folder / "t.parquet"),
    "CSV file": lambda frame, folder: str(written(frame, folder / "t.csv")),
    "Parquet folder": lambda frame, folder: parquet_folder(frame, folder / "parts"),
    "CSV folder": lambda frame, folder: csv_folder(frame, folder / "texts"),
    "pyarrow Dataset": lambda frame, folder: of_library("pyarrow.dataset").dataset(
        parquet_folder(frame, folder / "set")
    ),
}
QUERIES = {
    "polars LazyFrame": lambda frame, folder: of_library("polars").from_pandas(frame).lazy(),
    "scanned LazyFrame": lambda frame, folder: of_library("polars").scan_parquet(
        written(frame, folder / "s.parquet")
    ),
    "duckdb relation": relation,
    "ibis table": ibis_table,
}
STREAMS = {
    "pyarrow RecordBatchReader": lambda frame, folder: arrow(frame).to_reader(max_chunksize=17),
    "Arrow stream": lambda frame, folder: Stream(arrow(frame)),
}
# Kinds that behave as one of these: tested for their bits alone.
FURTHER_KINDS = {
    "table with to_pandas": lambda frame, folder: WithToPandas(frame),
    "CSV file, packed": lambda frame, folder: written(frame, folder / "t.csv.gz"),
    "TSV file": lambda frame, folder: separated(frame, folder / "t.tsv", "\t"),
    "TSV file, packed": lambda frame, folder: separated(frame, folder / "t.tsv.gz", "\t"),
    "CSV file with semicolons": lambda frame, folder: separated(frame, folder / "t.csv", ";"),
    "dask DataFrame": lambda frame, folder: of_library("dask.dataframe").from_pandas(frame, npartitions=2),
    "spooled stream": lambda frame, folder: pi.open_rows(Stream(arrow(frame)), spool=folder),
    "opened frame": lambda frame, folder: pi.open_rows(frame, progress=False),
    "relation that sums": lambda frame, folder: pi.open_rows(relation(frame, folder), push_down=True),
}
KINDS = IN_MEMORY | FILES | QUERIES | STREAMS
ORDERED = IN_MEMORY | FILES
