"""What one pass over rows relied on is held to the next: places of rows, and the largest public columns."""

from functools import partial

import moving_tables
import numpy as np
import pandas as pd
import pytest
from moving_tables import (
    BEYOND,
    MOVED,
    PLACED,
    PUBLIC,
    SOURCES,
    N,
    after_public_sizes,
    between_rounds,
    complaints_of_batches,
    complaints_of_public_sizes,
    fitted,
    frame,
    moments_of,
)
from mutation import Mutant
from support.tables import written

import privinf as pi
from privinf.errors import AlignmentError, ArgumentError
from privinf.federation import InProcessFederation, Site, SitePolicy, TrustedServer, site, site_designs
from privinf.mechanisms import moments, opened, passes, sources
from privinf.mechanisms.distribution import OpenColumns
from privinf.mechanisms.opened import OpenedRows
from privinf.mechanisms.pushdown.cluster import PartitionTask, partition_sums
from privinf.mechanisms.pushdown.dask_tables import FramePart
from privinf.mechanisms.rows import PublicSizes, Rows
from privinf.mechanisms.statistics import block, places
from privinf.mechanisms.statistics.places import BatchDigests
from privinf.schema.design import resolve_design


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(sources, "ROWS", 90)


@pytest.fixture
def large_arrays(monkeypatch):
    """Arrays too large for a copy."""
    monkeypatch.setattr(opened, "COPIED_BYTES", 1)
    monkeypatch.setattr(block, "COPIED_BYTES", 1)


# ---- batches


@pytest.mark.audit
@pytest.mark.parametrize("name", PLACED)
def test_a_table_that_is_turned_round_between_batches(name, tmp_path, monkeypatch, small_blocks):
    """The fit refuses, before it charges what it would not release, or it is that of the rows of before."""
    assert complaints_of_batches(name, tmp_path, monkeypatch) == []


@pytest.mark.parametrize("trust", [None, "server"])
@pytest.mark.parametrize("name", ["arrays", "pandas"])
def test_arrays_too_large_for_a_copy(name, trust, tmp_path, monkeypatch, large_arrays):
    assert complaints_of_batches(name, tmp_path, monkeypatch, trust) == []


@pytest.mark.parametrize("name", ["arrays", "pandas"])
def test_arrays_at_a_server(name, tmp_path, monkeypatch):
    assert complaints_of_batches(name, tmp_path, monkeypatch, "server") == []


@pytest.mark.parametrize("name", [name for name in SOURCES if name not in PLACED])
def test_rows_without_places_make_no_batches(name, tmp_path):
    ledger = pi.Ledger()
    with pytest.raises(ArgumentError, match="depends on the order of the rows"):
        fitted(SOURCES[name](frame(), tmp_path), ledger)
    assert not ledger.entries


@pytest.mark.parametrize("name", ["CSV file", "Parquet file"])
def test_a_change_after_an_epoch_is_seen(name, tmp_path, monkeypatch):
    """Two rows change places in the second epoch; the refusal says that nothing more is released."""
    moving, ledger, other = SOURCES[name](frame(), tmp_path), pi.Ledger(), frame()
    other.iloc[[3, 390]] = other.iloc[[390, 3]].to_numpy()
    between_rounds(monkeypatch, lambda number: moving.write(other) if number == 4 else None)
    with pytest.raises(AlignmentError, match=MOVED):
        fitted(moving, ledger)
    assert 4 <= len(ledger.entries) < 8


def test_a_record_takes_part_in_one_batch_of_an_epoch(tmp_path, monkeypatch):
    """The attack: the file is sorted anew so that one record stands in every batch that is summed."""
    moving, ledger = SOURCES["Parquet file"](frame(), tmp_path), pi.Ledger()
    places_of = BatchRounds().places

    def to_the_batch(number):
        order = np.arange(N)
        order[[0, places_of[number % 4]]] = order[[places_of[number % 4], 0]]
        moving.write(frame().iloc[order])

    between_rounds(monkeypatch, to_the_batch)
    with pytest.raises(AlignmentError, match=MOVED):
        fitted(moving, ledger)
    assert len(ledger.entries) < 4


class BatchRounds:
    """A place in every batch of a table of one site."""

    def __init__(self):
        from privinf.mechanisms.statistics.block import stream_of
        from privinf.mechanisms.statistics.glm import batch_of

        rows = block.made_up(np.zeros(1), np.ones(1), 0.0, 1.0)
        whole = block.SiteBlock(
            features=np.zeros((N, 1)),
            response=np.zeros(N),
            low=rows.low,
            high=rows.high,
            response_low=0.0,
            response_high=1.0,
            stream=stream_of("all"),
        )
        codes = batch_of(whole, 0, 4)
        self.places = [int(np.flatnonzero(codes == number)[-1]) for number in range(4)]


def test_a_site_answers_batches_from_one_table(monkeypatch, large_arrays):
    """Batches that an analyst asks for one by one are of the same rows, or the site refuses."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (60, 2)), rng.uniform(-1, 1, 60)
    design = pi.Design.from_arrays(["a", "b"], bounds=[(-1, 1)] * 2, y_bounds=(-1, 1))
    policy = SitePolicy(trusted_server=True)
    sites = {
        "north": Site((y, X), design, policy=policy),
        "south": Site((y[:9], X[:9]), design, policy=policy),
    }
    server = TrustedServer(InProcessFederation(sites), trust="server")

    def batch(number, seed=5):
        args = {
            "family": "gaussian",
            "radius": 2.0,
            "residual_clip": 2.0,
            "theta": np.zeros(2),
            "clip": 1.0,
            "batches": 3,
            "batch": number,
            "seed": seed,
        }
        return server.vector_sum("glm.sketched_score", args, label="gradient", mu=1.0, sites=["north"])

    batch(0)
    batch(1, seed=6)
    X[:] = X[::-1].copy()
    with pytest.raises(Exception, match=f"{MOVED}.*the charge (is kept|stands)"):
        batch(1)
    batch(1, seed=7)  # another partition is another price


def test_columns_of_a_frame_stay_what_they_were_for_every_design(monkeypatch):
    """Matrices of designs are made again where many are asked for: of the same columns."""
    monkeypatch.setattr(site_designs, "CACHE_BYTES", 0)
    columns = {name: column.to_numpy().copy() for name, column in frame().items()}
    held = site_designs.SiteDesigns(Rows(pd.DataFrame(columns, copy=False)), moving_tables.SCHEMA)
    made = [
        resolve_design(moving_tables.SCHEMA, text, response="protected", radius=None, example="")
        for text in ("y ~ x", "y ~ q")
    ]
    for design in made:
        held.keep(design)
    first = held.placed(made[0].digest, "north", by_places=True).features.copy()
    columns["x"][:] = columns["x"][::-1].copy()
    held.placed(made[1].digest, "north", by_places=True)
    assert np.array_equal(held.placed(made[0].digest, "north", by_places=True).features, first)


def test_rows_with_a_digest_stay_those_of_the_digest():
    design = pi.Design.from_arrays(["a"], bounds=[(-1, 1)], y_bounds=(-1, 1))
    X, y = np.linspace(-1, 1, 9)[:, None].copy(), np.linspace(-1, 1, 9)
    rows = OpenedRows(Rows(X, y), design)
    first = rows.digest(b"key")
    X[:] = X[::-1].copy()
    assert rows.digest(b"key") == first
    assert np.array_equal(rows.matrix(design)[:, 0], np.linspace(-1, 1, 9))


def test_a_site_has_as_many_rows_as_it_says(tmp_path, monkeypatch):
    path = written(frame(), tmp_path / "t.csv")
    made = site_designs.SiteDesigns

    def grown(rows, schema):
        written(pd.concat([frame()] * 2), path)
        return made(rows, schema)

    monkeypatch.setattr(site, "SiteDesigns", grown)
    with pytest.raises(AlignmentError, match="changed while it was read"):
        Site(path, moving_tables.SCHEMA)


@pytest.mark.parametrize("batches", [3, 5000])
def test_digests_do_not_depend_on_blocks(batches, monkeypatch):
    """The same rows in other blocks, and in columns side by side, are the same; others are not."""
    rng = np.random.default_rng(2)
    X, y, codes = rng.normal(size=(500, 3)), rng.normal(size=500), rng.integers(0, 3, 500)
    digests = BatchDigests()

    def passed(number, sizes, X=X, y=y, codes=codes):
        one, found = digests.batch("batches", batches, number), []
        for rows in np.split(np.arange(len(y)), np.cumsum(sizes)):
            layout = np.asfortranarray if len(rows) % 2 else np.ascontiguousarray
            found.append(one.rows(codes[rows], layout(X[rows]), y[rows])[0])
        one.check()
        return np.concatenate(found)

    assert np.array_equal(passed(0, [100, 3, 97]), X[codes == 0])
    for number in range(3):
        assert np.array_equal(passed(number, [7, 0, 300]), X[codes == number])
    for other in (X[::-1], np.where(np.arange(500)[:, None] == np.flatnonzero(codes == 1)[0], X + 1e-12, X)):
        with pytest.raises(AlignmentError, match=MOVED):
            passed(1, [250], X=other)
    with pytest.raises(AlignmentError, match=MOVED):
        passed(1, [250], y=y[::-1])
    if batches > places.MOST_BATCHES:
        with pytest.raises(AlignmentError, match=MOVED):  # then all rows count in every pass
            passed(0, [250], X=np.where(np.arange(500)[:, None] == np.flatnonzero(codes == 1)[0], 0.0, X))
    else:
        with pytest.raises(AlignmentError, match=MOVED):
            passed(2, [250], codes=np.ones(500, dtype=np.int64))


def test_digests_are_not_pickled():
    import pickle

    digests = BatchDigests()
    for one in (digests, digests.batch("batches", 2, 0)):
        with pytest.raises(TypeError):
            pickle.dumps(one)
    assert "not shown" in repr(digests)


# ---- public maxima


@pytest.mark.parametrize("name", SOURCES)
def test_a_public_column_that_grows_between_passes(name, tmp_path, monkeypatch, small_blocks):
    assert complaints_of_public_sizes(name, tmp_path, monkeypatch) == []


@pytest.mark.parametrize("name", SOURCES)
def test_rows_in_another_order_are_no_reason_to_refuse(name, tmp_path, monkeypatch, small_blocks):
    """Sums over all rows do not go by places, and what a query gives has none."""
    (one := tmp_path / "still").mkdir()
    (two := tmp_path / "moving").mkdir()
    still = moments_of(SOURCES[name](frame(), one), pi.Ledger(), cov_type="HC0")
    moving = SOURCES[name](frame(), two)
    after_public_sizes(monkeypatch, lambda: moving.write(frame()[::-1]))
    found = moments_of(moving, pi.Ledger(), cov_type="HC0")
    for array in still.arrays:
        assert still.arrays[array].tobytes() == found.arrays[array].tobytes()


def test_a_public_column_that_grows_after_the_charge(tmp_path, monkeypatch):
    """The second release is refused: the first one, and what was charged for both, stand."""
    moving, ledger = SOURCES["Parquet file"](frame(), tmp_path), pi.Ledger()
    plan = moments.ResidualPlan.from_moments

    def planned(*args):
        moving.write(frame().assign(q=2.0))
        return plan(*args)

    monkeypatch.setattr(moments.ResidualPlan, "from_moments", planned)
    with pytest.raises(AlignmentError, match=f"{BEYOND}.*the charge (is kept|stands)"):
        moments_of(moving, ledger, cov_type="HC0")
    assert len(ledger.entries) == 2


def test_local_moments_hold_public_columns_too(tmp_path, monkeypatch):
    moving, ledger, target = (
        SOURCES["Parquet file"](frame(), tmp_path),
        pi.Ledger(),
        tmp_path / "sent.parquet",
    )
    write_rows = moments.write_rows

    def written_later(*args):
        moving.write(frame().assign(q=2.0))
        return write_rows(*args)

    monkeypatch.setattr(moments, "write_rows", written_later)
    with pytest.raises(AlignmentError, match=f"{BEYOND}.*the charge (is kept|stands)"):
        pi.Moments(PUBLIC, "y ~ x + q", trust="local").release(moving.data, mu=1.0, to=target, ledger=ledger)
    assert not target.exists()


def test_a_partition_is_held_to_the_public_sizes_of_the_table():
    design = pi.Moments(PUBLIC, "y ~ x + q").design
    rows = passes.RowPasses(design, Rows(frame()))
    rows.public_sizes()
    for table, wrong in ((frame()[::-1], False), (frame().assign(q=1.5), True)):
        task = PartitionTask(
            design=design,
            missing="raise",
            weights=None,
            stream=None,
            public=rows._public,
            passes=passes.RowPasses,
            queries=(),
            table="the table",
        )
        message = partition_sums(task, partial(FramePart, table, "a part"))
        assert (BEYOND in message.decode()) == wrong


@pytest.mark.parametrize("released", ["moments", "distribution"])
def test_persons_get_no_more_rows_after_they_were_counted(released, monkeypatch):
    """A frame that is written into once its units were counted: what is summed is what was counted."""
    schema = pi.Schema({"y": (-3, 3), "x": (-1, 1)}, unit="person", max_rows=2)
    columns = {name: frame()[name].to_numpy().copy() for name in ("y", "x")}
    columns["person"] = np.arange(N) // 2
    table = pd.DataFrame(columns, copy=False)

    def release():
        if released == "moments":
            return pi.Moments(schema, "y ~ x").release(table, mu=1.0, rng=0).arrays["moments"].tobytes()
        held = OpenColumns(table, ["x"], unit="person", max_rows=2)
        return held.cells({"x": np.array([-0.5, 0.5])})["x"].counts.tobytes()

    still = release()
    codes = passes.unit_codes

    def counted(*args):
        found = codes(*args)
        columns["x"][:], columns["y"][:] = 1.0, 3.0
        return found

    monkeypatch.setattr(passes, "unit_codes", counted)
    assert release() == still


# ---- mutants


MUTANTS = {
    "digests of batches are not compared": (
        Mutant(
            "mechanisms.statistics.places", "BatchPass.check", "raise AlignmentError(ROWS_MOVED)", "return"
        ),
        lambda *given: complaints_of_batches("Parquet file", *given),
    ),
    "a curator does not ask for the comparison": (
        Mutant("federation.curator", "_by_passes", "        batches[0].check()\n", "        pass\n"),
        lambda *given: complaints_of_batches("CSV file", *given),
    ),
    "every pass is a first one": (
        Mutant(
            "mechanisms.statistics.places", "BatchDigests.keep", "self._first[partition] = digests", "pass"
        ),
        lambda *given: complaints_of_batches("CSV file", *given),
    ),
    "responses are not hashed": (
        Mutant(
            "mechanisms.statistics.places", "BatchPass._hash", "(features, response)", "(features, features)"
        ),
        lambda *given: complaints_of_responses(*given),
    ),
    "arrays of others are summed": (
        Mutant("mechanisms.statistics.block", "SiteBlock.from_rows", "lent=rows.lends", "lent=False"),
        lambda *given: complaints_of_batches("arrays", *given),
    ),
    "public maxima are not enforced": (
        Mutant("mechanisms.rows", "PublicSizes.check", "raise AlignmentError(ROWS_BEYOND)", "return"),
        lambda *given: complaints_of_public_sizes("Parquet file", *given),
    ),
    "public maxima are forgotten": (
        Mutant("mechanisms.passes", "RowPasses.public_sizes", "self._public = sizes", "pass"),
        lambda *given: complaints_of_public_sizes("arrays", *given),
    ),
    "norms of public rows are not compared": (
        Mutant("mechanisms.rows", "PublicSizes.check", "sizes.norm2 > self.norm2 or ", ""),
        lambda *given: complaints_of_norms(),
    ),
}


def complaints_of_responses(*_):
    """A batch with other responses."""
    digests, codes = BatchDigests(), np.zeros(4, dtype=np.int64)
    for y in (np.arange(4.0), np.zeros(4)):
        one = digests.batch("batches", 1, 0)
        one.rows(codes, np.ones((4, 1)), y)
        try:
            one.check()
        except AlignmentError:
            return []
    return ["other responses are summed"]


def complaints_of_norms(*_):
    """A row of two public columns, none of which is larger than any that was there."""
    sizes = PublicSizes.from_array(np.eye(2))
    try:
        sizes.check(np.ones((1, 2)))
    except AlignmentError:
        return []
    return ["a longer row is summed"]


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(name, tmp_path, monkeypatch):
    mutant, check = MUTANTS[name]
    with mutant.applied():
        assert check(tmp_path, monkeypatch)
