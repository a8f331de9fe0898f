"""Compiled loops give the bits of numpy's, whatever stands in a block and however it lies in memory."""

import builtins

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.errors import StorageError
from privinf.mechanisms.files import file_source
from privinf.mechanisms.statistics import compiled as kernels
from privinf.mechanisms.statistics import loops
from privinf.mechanisms.statistics.loops import (
    ScratchBuffers,
    above,
    beyond,
    filled,
    forms,
    lengths,
    nearest,
    on_grid,
    products,
    rooms,
)

MOST = 2.0**20
ODD = [np.nan, np.inf, -np.inf, -0.0, 0.0, 5e-324, -1e308, 1e308, 0.5, -0.5, 2.0**52 + 1.0]


@pytest.fixture
def compiled(monkeypatch):
    pytest.importorskip("numba", reason="loops are compiled by privinf[fast]")
    monkeypatch.setattr(loops, "LARGE_BLOCK", 1)
    monkeypatch.setattr(kernels, "_quicker", lambda loop: True)
    monkeypatch.setattr(loops, "_worked", loops.WORTH_LOADING)


def by_numpy(monkeypatch, work):
    """Return what numpy's loops make of it."""
    with monkeypatch.context() as patch:
        patch.setattr(kernels, "compiled_loops", lambda: None)
        return work()


def both(monkeypatch, work):
    """Return what compiled loops make of it, and numpy's."""
    assert kernels.compiled_loops() is not None
    return work(), by_numpy(monkeypatch, work)


def block(layout, rows, columns, *, whole=False):
    """Return numbers, odd ones among them, or integers, by rows or column by column."""
    rng = np.random.default_rng(rows + columns)
    x = rng.normal(scale=1e3, size=(rows, columns))
    x = np.rint(x) if whole else x
    if not whole:
        x.flat[rng.integers(x.size, size=len(ODD))] = ODD
    if layout == "room":
        room = rooms(rows + 5, columns)[1][:rows]
        room[:] = x
        return room
    if layout == "read-only":
        x = np.asfortranarray(x)
        x.setflags(write=False)
        return x
    return np.asarray(x, order=layout)


LAYOUTS = pytest.mark.parametrize("layout", ["C", "F", "room", "read-only"])
SHAPES = pytest.mark.parametrize(("rows", "columns"), [(7, 1), (513, 4), (1000, 21), (1030, 6)])


@LAYOUTS
@pytest.mark.parametrize(("rows", "columns"), [(7, 1), (513, 4), (1000, 21)])
def test_values_beyond_ends_of_their_own_or_of_all(layout, rows, columns):
    x = block(layout, rows, columns)
    for low, high in (
        (np.linspace(-900.0, 0.0, columns), np.linspace(0.0, 900.0, columns)),
        (np.full(columns, -np.inf), np.full(columns, 0.5)),
    ):
        marks = beyond(x, low, high)
        assert marks.dtype == bool
        assert marks.tolist() == [
            [bool(value < a or value > b) for value in column.tolist()]
            for column, a, b in zip(x.T, low, high, strict=True)
        ]
    assert beyond(x[:, :0], np.empty(0), np.empty(0)).shape == (0, rows)


@pytest.mark.audit
@LAYOUTS
@SHAPES
def test_steps(compiled, monkeypatch, layout, rows, columns):
    x, rng = block(layout, rows, columns), np.random.default_rng(0)
    factor, shift = rng.uniform(0.1, 1e4, columns), rng.uniform(-3.0, 3.0, columns)

    def work():
        with np.errstate(all="ignore"):
            return on_grid(x, factor, shift, MOST, rooms(rows, columns)[1]).copy()

    np.testing.assert_array_equal(
        *(one.view(np.int64) for one in map(np.ascontiguousarray, both(monkeypatch, work)))
    )


@pytest.mark.audit
@pytest.mark.parametrize(
    "factor", [3.0, np.full(4, 3.0), np.broadcast_to(3.0, 4), np.arange(4, dtype=np.float32)]
)
@pytest.mark.parametrize("shift", [0.5, np.linspace(0.0, 1.0, 8)[::2]])
def test_steps_of_one_unit_or_several(compiled, monkeypatch, factor, shift):
    x = block("room", 700, 4, whole=True)
    one, other = both(monkeypatch, lambda: on_grid(x, factor, shift, MOST, rooms(700, 4)[1]).copy())
    np.testing.assert_array_equal(one, other)


@SHAPES
def test_lengths_and_directions(compiled, monkeypatch, rows, columns):
    v, factors = block("C", columns, rows), np.random.default_rng(1).uniform(0.0, 1e3, (2, rows))

    def work():
        with np.errstate(all="ignore"):
            return lengths(v), nearest(v, None, factors[0]), nearest(v, factors[0], factors[1])

    for one, other in zip(*both(monkeypatch, work), strict=True):
        np.testing.assert_array_equal(one, other)


def test_vectors_are_rounded_in_their_place(compiled, monkeypatch):
    v, factors = block("C", 4, 600, whole=True), np.full(600, 1.0 / 3.0)
    expected = by_numpy(monkeypatch, lambda: nearest(v.copy(), None, factors))
    assert nearest(v, None, factors, v) is v
    np.testing.assert_array_equal(v, expected)


def test_counts_above_thresholds(compiled, monkeypatch):
    thresholds = np.geomspace(1e-3, 1e3, 20)
    values = np.concatenate([np.abs(block("C", 600, 1)[:, 0]), thresholds, ODD])
    one, other = both(monkeypatch, lambda: above(values, thresholds))
    assert one.tolist() == other.tolist()
    assert one[-1] == np.count_nonzero(~(values <= thresholds[-1]))  # nan is above all


@LAYOUTS
@SHAPES
def test_products_of_integers(compiled, monkeypatch, layout, rows, columns):
    left, right = block(layout, rows, columns, whole=True), block(layout, rows, 2, whole=True)
    one, other = both(monkeypatch, lambda: products(left, left))
    assert (np.triu(one) == np.triu(other)).all()
    np.testing.assert_array_equal(*both(monkeypatch, lambda: products(right, left)))


def test_products_are_exact_up_to_the_last_integer(compiled):
    full = rooms(8192, 3)[1]
    full[:] = MOST
    full[0, 1] = MOST - 1.0
    assert products(full, full)[0].tolist() == [2.0**53, 2.0**53 - 2.0**20, 2.0**53]


@LAYOUTS
@SHAPES
def test_forms(compiled, monkeypatch, layout, rows, columns):
    x, weights = block(layout, rows, columns, whole=True), block("C", 5, columns, whole=True) * 2.0**-30
    np.testing.assert_array_equal(*both(monkeypatch, lambda: forms(weights, x, ScratchBuffers())))


def test_blas_makes_forms_where_it_is_quicker(compiled, monkeypatch):
    x, weights = block("F", 9000, 8, whole=True), np.ones((5, 8))
    both_ways = []
    for quick in (True, False):
        monkeypatch.setattr(kernels, "_quicker", lambda loop, quick=quick: quick)
        both_ways.append(forms(weights, x))
    np.testing.assert_array_equal(*both_ways)
    monkeypatch.undo()
    assert kernels._quicker(lambda *given: None)
    kernels._quicker.cache_clear()
    assert not kernels._quicker(lambda *given: sum(range(1_000_000)))
    kernels._quicker.cache_clear()


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("fast", [True, False])
def test_a_block_that_is_filled_tells_whether_it_is_finite(compiled, monkeypatch, odd, fast):
    if not fast:
        monkeypatch.setattr(kernels, "compiled_loops", lambda: None)
    room, large = rooms(600, 3)[1], np.full(600, 1e308 if fast else 1.0)
    columns = [np.arange(600.0), np.arange(600, dtype=np.int8), large]
    assert filled(room, [2, 0, 1], columns)
    assert (room[:, [2, 0]] == np.stack(columns[:2], axis=1)).all()
    columns[0][599] = odd
    assert not filled(room, [2, 0, 1], columns)


def test_arrays_of_one_block_do_not_share_memory():
    room = ScratchBuffers()
    first = [room.take(3, 4), room.take(3, 4), room.take(12)]
    assert not any(np.shares_memory(a, b) for i, a in enumerate(first) for b in first[:i])
    room.clear()
    assert np.shares_memory(room.take(2, 4), first[0])
    assert room.take(4, 4).shape == (4, 4)  # larger than what was there
    assert room.take(12).shape == (12,)


def test_without_numba_loops_are_numpys(anew, monkeypatch):
    load = builtins.__import__

    def none(name, *args, **settings):
        if name == "numba":
            raise ImportError(name)
        return load(name, *args, **settings)

    monkeypatch.setattr(loops, "_worked", loops.WORTH_LOADING)
    monkeypatch.setattr(builtins, "__import__", none)
    assert (lengths(np.ones((9, 1 << 13))) == 3.0).all()
    assert kernels.compiled_loops() is None


@pytest.fixture
def anew():
    """Loops are compiled when they are asked for, and again for other tests."""
    kernels.compiled_loops.cache_clear()
    yield
    kernels.compiled_loops.cache_clear()


@pytest.mark.parametrize(
    "kept", [OSError(28, "No space left on device"), RuntimeError("no locator available")]
)
def test_loops_are_compiled_where_they_cannot_be_kept(compiled, anew, monkeypatch, kept):
    import numba

    def unkept(kinds, *, cache, **settings):
        if cache:
            raise kept
        return lambda function: function

    monkeypatch.setattr(numba, "njit", unkept)
    assert (lengths(np.ones((4, 5))) == 2.0).all()
    assert kernels.compiled_loops() is not None


def test_loops_that_numba_does_not_compile_are_numpys(compiled, anew, monkeypatch):
    import numba

    monkeypatch.setattr(numba.config, "DISABLE_JIT", True)
    assert (lengths(np.ones((4, 5))) == 2.0).all()
    assert kernels.compiled_loops() is None
    kernels.compiled_loops.cache_clear()
    monkeypatch.setattr(numba.config, "DISABLE_JIT", False)
    monkeypatch.setattr(numba, "njit", None)
    assert (lengths(np.ones((4, 5))) == 2.0).all()
    assert kernels.compiled_loops() is None


def test_small_work_does_not_load_numba(monkeypatch):
    monkeypatch.setattr(loops, "_worked", 0)
    monkeypatch.setattr(kernels, "compiled_loops", lambda: pytest.fail("loaded"))
    x = rooms(8192, 10)[1]
    x[:] = 1.0
    assert products(x, x)[0, 0] == 8192.0
    assert loops._worked == x.size


# ---- whole fits


def table(n=40_000):
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(rng.uniform(-1.0, 1.0, (n, 9)), columns=[f"x{j}" for j in range(9)])
    frame["k"] = rng.integers(-3, 4, n)
    frame["b"], frame["c"] = rng.uniform(size=n) < 0.3, rng.poisson(1.0, n)
    return frame.assign(y=frame["x0"] + rng.normal(size=n))


BOUNDS = {"y": (-4, 4), "k": (-3, 3), "b": [False, True], "c": (0, 9), **{f"x{j}": (-1, 1) for j in range(9)}}


def fits(path, *models):
    """Return estimates and standard errors, with noise from a seed."""
    found, columns = [], " + ".join([*(f"x{j}" for j in range(9)), "k"])
    for model, response, options in models or [(pi.MomentOLS, "y", {}), (pi.OLS, "y", {})]:
        told = model.from_formula(f"{response} ~ {columns}", path, schema=pi.Schema(BOUNDS))
        found.append(told.fit(epsilon=1.0, delta=1e-6, rng=3, **options))
    return [[*one.params, *one.bse] for one in found]


@pytest.mark.audit
def test_fits_have_the_same_bits(compiled, monkeypatch, tmp_path):
    table().to_parquet(path := tmp_path / "rows.parquet")
    models = [
        (pi.MomentOLS, "y", {"cov_type": "HC0"}),
        (pi.OLS, "y", {}),
        (pi.Logit, "b", {}),
        (pi.Poisson, "c", {}),
    ]
    one, other = both(monkeypatch, lambda: fits(path, *models))
    assert one == other


# ---- Parquet files


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_checksums_of_pages_are_compared(tmp_path, version):
    path = tmp_path / "rows.parquet"
    frame = table(4000)
    frame.to_parquet(path, compression=None, write_page_checksum=True, data_page_version=version)
    expected = fits(path)
    frame.to_parquet(other := tmp_path / "other.parquet")
    assert fits(other) == expected
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    with pytest.raises(StorageError, match="damaged"):
        fits(path)


def test_small_row_groups_come_in_whole_blocks(tmp_path):
    table().to_parquet(path := tmp_path / "rows.parquet", row_group_size=900)
    assert [batch.num_rows for batch in file_source(path).batches(["y", "x0"])] == [40_000]


def test_a_damaged_file_is_told_of_without_its_numbers(tmp_path):
    table().to_parquet(path := tmp_path / "rows.parquet")
    raw = bytearray(path.read_bytes())
    raw[4:-60000] = bytes(len(raw) - 60004)
    path.write_bytes(raw)
    with pytest.raises(StorageError, match="damaged") as told:
        fits(path)
    assert told.value.__cause__ is None


def test_gaps_and_whole_numbers_are_told_as_ever(tmp_path):
    frame = table(2000).astype({"x1": np.float32})
    frame.loc[7, "x0"] = np.nan
    frame.to_parquet(path := tmp_path / "rows.parquet")
    schema = pi.Schema({"y": (-4, 4), "x0": (-1, 1), "x1": (-1, 1), "k": (-3, 3)})
    with pytest.raises(pi.errors.SchemaError, match="x0"):
        pi.MomentOLS.from_formula("y ~ x0", path, schema=schema).fit(mu=1.0)
    assert pi.MomentOLS.from_formula("y ~ x1 + k", path, schema=schema).fit(mu=1.0, rng=0).nobs == 2000


def test_names_that_are_patterns_are_names(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"secret": 0.9, "^s.*$": rng.uniform(-1, 1, 500), "*": rng.uniform(-1, 1, 500)})
    frame.to_parquet(path := tmp_path / "rows.parquet")
    for name in ("^s.*$", "*"):
        found = [
            pi.stats.mean(name, data=data, schema=pi.Schema({name: (-1, 1)}), mu=1.0, rng=0).rows
            for data in (frame, path)
        ]
        assert found[0] == found[1]
