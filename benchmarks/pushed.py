"""Moments summed inside a database: integers against numpy's, and time against plain SQL sums.

Made by `python benchmarks/pushed.py`; writes benchmarks/results/pushed.md.

- **Integers.** 1,000 random tables (`tests/support/pushing.py`): doubles with NULL, nan, infinities, values
  out of bounds, at bounds, halfway between two steps, too small or too large for a product; integers,
  decimals, truths, levels. Both sums, of second and of residual moments, in DuckDB and in a PostgreSQL 15
  that the run starts: the result is the same integers, or the same refusal with the same message.
- **Time.** `pi.Moments(...).release(pi.open_rows(relation, push_down=True))`, nonrobust, secure noise, a
  DuckDB table of doubles of which 1% is out of bounds, against (a) `SUM(a * b)` of all pairs of the same
  columns, the constant among them, and (b) the same of columns clipped by LEAST and GREATEST. One thread,
  seconds of the processor, in turn, medians of 5.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from itertools import combinations_with_replacement
from pathlib import Path

import duckdb
import ibis
import numpy as np

import privinf as pi

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support import pushing

RESULTS = Path(__file__).parent / "results"
FITS = """# Fits inside a database

Made by `python benchmarks/pushed.py --fits --tables {tables} --rows {rows}`.

- **Integers.** The random tables of `pushed.md`: the twelve statistics that fits of `OLS`, `Logit` and `Poisson` ask by
  passes, each with random arguments (coefficients up to linear predictors far beyond the ends of the tables of means,
  clips, thresholds, weights, exposures). The result is the same integers, or the same refusal with the same message.
- **Time.** A fit of 10 columns, seeded noise, of a DuckDB table and of the same rows in a Parquet file that is read in
  blocks. One thread, seconds of the processor, one run each; the parameters are the same numbers.
"""


def equal(cases: range, told=pushing.told) -> list[str]:
    memory, found = duckdb.connect(), {"DuckDB": Counter(), "PostgreSQL 15": Counter()}
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name,
        pushing.postgres(Path(name)) as where,
    ):
        server = ibis.postgres.connect(**where)
        for seed in cases:
            case = pushing.random_case(seed)
            expected = told(case, case.arrow().to_pandas())
            memory.execute(case.create(0))
            server.raw_sql(case.create(1)).connection.commit()
            tables = {"DuckDB": memory.sql("select * from held"), "PostgreSQL 15": server.table("held")}
            for engine, table in tables.items():
                same = told(case, pi.open_rows(table, push_down=True)) == expected
                found[engine]["summed" if isinstance(expected, list) else "refused"] += 1
                found[engine]["equal"] += same
        server.disconnect()
    lines = ["| database | tables | summed | refused | equal |", "|---|---|---|---|---|"]
    return lines + [
        f"| {engine} | {len(cases)} | {one['summed']} | {one['refused']} | {one['equal']} |"
        for engine, one in found.items()
    ]


def timed(run) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def times(columns: int, rows: int, runs: int) -> str:
    memory = duckdb.connect()
    memory.execute("set threads = 1; set enable_progress_bar = false")
    names = [f"x{place}" for place in range(columns)]
    drawn = ", ".join(f"random() * 2.02 - 1.01 as {name}" for name in names)
    memory.execute(f"create table held as select {drawn} from range({rows})")
    model = pi.Moments(pi.Schema(dict.fromkeys(names, (-1.0, 1.0))), f"x0 ~ {' + '.join(names[1:])}")
    pairs = ["count(*)", *(f"sum({name})" for name in names)]
    pairs += [f"sum({a} * {b})" for a, b in combinations_with_replacement(names, 2)]
    clipped = ", ".join(f"least(greatest({name}, -1e0), 1e0) as {name}" for name in names)
    sides = {
        "ours": lambda: model.release(pi.open_rows(memory.table("held"), push_down=True), mu=1.0),
        "plain": lambda: memory.execute(f"select {', '.join(pairs)} from held").fetchall(),
        "clipped": lambda: memory.execute(
            f"select {', '.join(pairs)} from (select {clipped} from held)"
        ).fetchall(),
    }
    taken = {side: [] for side in sides}
    for _ in range(runs):
        for side, run in sides.items():
            taken[side].append(timed(run))
    ours, plain, kept = (float(np.median(taken[side])) for side in sides)
    return (
        f"| {columns} | {rows:,} | {ours / rows * 1e6:.3f} | {plain / rows * 1e6:.3f} | {kept / rows * 1e6:.3f} "
        f"| {ours / plain:.2f} | {ours / kept:.2f} |"
    )


def fits(rows: int, folder: Path) -> list[str]:
    memory, names = duckdb.connect(), [f"x{place}" for place in range(10)]
    memory.execute("set threads = 1; set enable_progress_bar = false")
    drawn = ", ".join(f"random() * 2.02 - 1.01 as {name}" for name in names)
    eta = "0.5 * x0 - 0.7 * x1 + 0.2"
    memory.execute(
        f"create table held as select *, {eta} + random() + random() - 1 as y, "
        f"case when random() < 1 / (1 + exp(-({eta}))) then 1.0 else 0.0 end as b, "
        f"floor(-ln(random()) * exp({eta})) as c from (select {drawn} from range({rows}))"
    )
    file = folder / "held.parquet"
    memory.execute(f"copy held to '{file}' (format parquet)")
    schema = pi.Schema(dict.fromkeys(names, (-1.0, 1.0)) | {"y": (-4, 4), "b": (0, 1), "c": (0, 20)})
    lines = ["| fit | rows | in DuckDB | in blocks | ratio | same parameters |", "|---|---|---|---|---|---|"]
    for model, response in ((pi.OLS, "y"), (pi.Logit, "b"), (pi.Poisson, "c")):
        found, taken = [], []
        for data in (pi.open_rows(memory.table("held"), push_down=True), str(file)):
            formula = f"{response} ~ {' + '.join(names)}"

            def run(data=data, formula=formula, model=model, found=found):
                found.append(model.from_formula(formula, data, schema=schema).fit(mu=1.0, rng=2).params)

            taken.append(timed(run))
        inside, blocks = taken
        same = "yes" if found[0].equals(found[1]) else "no"
        lines.append(
            f"| {model.__name__} | {rows:,} | {inside:.1f} s | {blocks:.1f} s | {inside / blocks:.1f} | {same} |"
        )
    return lines


def of_fits(tables: int, rows: int) -> None:
    lines = [FITS.format(tables=tables, rows=rows)]
    with tempfile.TemporaryDirectory() as folder:
        lines += fits(rows, Path(folder))
    lines += ["", *equal(range(tables), pushing.told_of_fits)]
    (RESULTS / "pushed_fits.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--fits", action="store_true")
    given = parser.parse_args()
    if given.fits:
        of_fits(given.tables, given.rows)
        return
    lines = ["# Sums inside a database", "", *__doc__.split("\n", 2)[2].strip().split("\n"), ""]
    lines += [
        "| columns | rows | ours, microseconds a row | plain sums | clipped sums | ours / plain | ours / clipped |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        times(columns, rows, 5)
        for columns, rows in ((11, given.rows), (21, given.rows), (51, given.rows // 5))
    ]
    print("\n".join(lines), flush=True)
    lines += ["", *equal(range(given.tables))]
    (RESULTS / "pushed.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines[-4:]))


if __name__ == "__main__":
    main()
