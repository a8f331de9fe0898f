"""The mixing matrix: the same B on every platform and for every order of the records, exact sums, its law."""

import hashlib
import time
import tracemalloc

import numpy as np
import pytest
from scipy.linalg import hadamard
from scipy.stats import chi2

from privinf.errors import AlignmentError, ArgumentError
from privinf.mechanisms.mixing.kernels import HadamardKernel, walsh_hadamard
from privinf.mechanisms.mixing.matrix import MixingMatrix
from privinf.mechanisms.philox import cipher_blocks, words_of, words_run

KINDS = ("signs", "hadamard", "countsketch")
LARGEST_SEED = 2**64 - 1

# SHA-256 of all entries: changing one of these breaks every plan that is in use.
VECTORS = {
    ("signs", 1000, 70, 0): "f8f823603b4227517d29c9b8325188e23317c8e1bb3ff405cbac2fe1f088367b",
    ("signs", 300, 300, LARGEST_SEED): "e9b34af2f3d5bcc71c995e8370d030b67ff753d638bf358c20bfc26e83775899",
    ("hadamard", 1000, 70, 0): "39e69350bb315c6536de8a22153dd188e863b749b283cf1d8ea49ab805d09463",
    ("hadamard", 300, 300, LARGEST_SEED): "ccae62ff6074659cf5bc00cac33fd4a8dff3d298d6cd8fb02a5efe80b8699b76",
    ("countsketch", 1000, 70, 0): "2aee85eb11839cf5d101e01925d5c0c94068742ea03dcbd06cbdc9be2e483fde",
    (
        "countsketch",
        300,
        300,
        LARGEST_SEED,
    ): "6ae5bf48b1c4a9adf3b4ce85b318905f7a380f789185c6bd67874082df7308fd",
}


def raw(seed, domain, count):
    """Words of the stream, straight from numpy."""
    return np.random.Philox(key=np.array([seed, domain], dtype=np.uint64)).random_raw(count)


def integers(n, width, *, high=2**30, seed=0):
    return np.random.default_rng(seed).integers(-high, high, size=(n, width)).astype(np.float64)


def mixed(matrix, block, pieces):
    """Total over pieces: slices (contiguous) or index arrays (scattered)."""
    mixer = matrix.mixer(block.shape[1])
    for piece in pieces:
        mixer.update(block[piece], piece.start if isinstance(piece, slice) else piece)
    assert mixer.records == len(block)
    return mixer.total()


def runs(n, size):
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


# ------------------------------------------------------------------------------- words and vectors


def test_the_vectorised_cipher_gives_the_published_and_numpys_words():
    published = [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B]
    assert cipher_blocks(0, 0, np.zeros(1, dtype=np.uint64)).tolist() == [published]
    for seed, domain in ((0, 1), (LARGEST_SEED, 4), (123456789, 2)):
        ours = cipher_blocks(seed, domain, np.arange(1, 301, dtype=np.uint64))
        np.testing.assert_array_equal(ours.ravel(), raw(seed, domain, 1200))


@pytest.mark.parametrize("per", [1, 4, 8])
def test_words_are_the_same_in_runs_and_one_by_one(per):
    stream = raw(7, 3, 40_000 * per).reshape(-1, per)
    near = np.array([0, 1, 2, 5, 6, 11])
    far = np.array([3, 1001, 1002, 17_000, 39_999])
    for units in (near, far, np.arange(13, 900), np.array([39_999]), np.array([], dtype=np.int64)):
        np.testing.assert_array_equal(words_of(7, 3, units, per), stream[units])
    np.testing.assert_array_equal(words_run(7, 3, 5, 9), stream.ravel()[5:14])


@pytest.mark.parametrize(("case", "digest"), VECTORS.items(), ids=lambda value: str(value)[:30])
def test_vectors(case, digest):
    kind, n, k, seed = case
    matrix = MixingMatrix(kind, n=n, k=k, seed=seed)
    assert matrix.digest() == digest
    every = np.ascontiguousarray(matrix.entries(range(n)).T)
    assert every.dtype == np.int8
    assert hashlib.sha256(every.tobytes()).hexdigest() == digest


# ------------------------------------------------------------------- entries, from their definition


def test_signs_are_the_bits_of_the_records_words():
    n, k, seed = 310, 300, 5
    words = raw(seed, 1, n * 8).reshape(n, 8)
    expected = [[1 - 2 * (int(words[i, row // 64]) >> row % 64 & 1) for i in range(n)] for row in range(k)]
    np.testing.assert_array_equal(MixingMatrix("signs", n=n, k=k, seed=seed).entries(range(n)), expected)


@pytest.mark.parametrize(("n", "k"), [(1, 1), (2, 2), (100, 17), (128, 128), (129, 100)])
def test_hadamard_entries_are_sampled_rows_times_record_signs(n, k):
    seed, order = 5, 1 << (n - 1).bit_length()
    rows = list(dict.fromkeys(int(word) % order for word in raw(seed, 3, 64 * order)))[:k]
    words = raw(seed, 2, n)
    signs = [1 - 2 * (int(words[i // 64]) >> i % 64 & 1) for i in range(n)]
    found = MixingMatrix("hadamard", n=n, k=k, seed=seed).entries(range(n))
    np.testing.assert_array_equal(found, hadamard(order)[rows][:, :n] * signs)


def test_countsketch_is_one_sign_a_record():
    n, k, seed = 500, 37, 5
    words = [int(word) for word in raw(seed, 4, n)]
    expected = np.zeros((k, n))
    for i, word in enumerate(words):
        expected[(word >> 32) * k >> 32, i] = 1 - 2 * (word & 1)
    np.testing.assert_array_equal(
        MixingMatrix("countsketch", n=n, k=k, seed=seed).entries(range(n)), expected
    )


@pytest.mark.parametrize("size", [1, 2, 8, 16, 64, 512, 2048])
def test_walsh_hadamard_transform(size):
    block = integers(size, 3)
    np.testing.assert_array_equal(walsh_hadamard(block), hadamard(size) @ block)


@pytest.mark.parametrize("kind", KINDS)
def test_entries_of_some_records_in_any_order_and_repeated(kind):
    matrix = MixingMatrix(kind, n=5000, k=40, seed=3)
    every = matrix.entries(range(5000))
    some = np.array([4999, 0, 17, 17, 3000])
    np.testing.assert_array_equal(matrix.entries(some), every[:, some])
    assert matrix.entries([]).shape == (40, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_columns_have_norm_one_and_touched_counts_their_entries(kind):
    matrix = MixingMatrix(kind, n=300, k=90, seed=3)
    entries = matrix.entries(range(300)).astype(np.float64)
    np.testing.assert_allclose(np.linalg.norm(matrix.scale * entries, axis=0), 1.0, rtol=1e-15)
    np.testing.assert_array_equal(np.count_nonzero(entries, axis=0), matrix.touched)


# -------------------------------------------------------------------------------------------- sums


@pytest.mark.audit
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "k", "width"), [(1, 1, 2), (9, 9, 1), (9000, 40, 3), (5000, 3000, 2)])
def test_total_is_exact_for_every_block_size_and_order(kind, n, k, width):
    matrix, block = MixingMatrix(kind, n=n, k=k, seed=11), integers(n, width)
    expected = matrix.entries(range(n)).astype(np.int64) @ block.astype(np.int64)
    shuffled = np.random.default_rng(1).permutation(n)
    for size in (n, 1000, 777):
        in_order, scattered = runs(n, size), np.split(shuffled, range(size, n, size))
        np.testing.assert_array_equal(mixed(matrix, block, in_order), expected)
        np.testing.assert_array_equal(mixed(matrix, block, in_order[::-1]), expected)
        np.testing.assert_array_equal(mixed(matrix, block, scattered), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_widely_scattered_records(kind):
    # sparse enough for the vectorised cipher and for the entries instead of the transform
    n, k = 2**30, 50
    matrix, block = MixingMatrix(kind, n=n, k=k, seed=11), integers(60, 2)
    positions = np.random.default_rng(1).choice(n, size=60, replace=False)
    mixer = matrix.mixer(2)
    mixer.update(block, positions)
    columns = [matrix.entries([position])[:, 0] for position in positions]
    np.testing.assert_array_equal(mixer.total(), np.transpose(columns) @ block)


@pytest.mark.parametrize("kind", KINDS)
def test_integers_near_the_limit_are_summed_exactly(kind):
    n, k = 2000, 30
    matrix = MixingMatrix(kind, n=n, k=k, seed=2)
    block = integers(n, 2, high=2**42 - 1)
    block[0, 0] = 2.0**53 - 1.0 - np.abs(block[1:, 0]).sum()
    expected = matrix.entries(range(n)).astype(object) @ block.astype(np.int64).astype(object)
    found = mixed(matrix, block, runs(n, 300))
    assert [int(value) for value in found.ravel()] == list(expected.ravel())


@pytest.mark.parametrize("kind", KINDS)
def test_mixers_merge(kind):
    matrix, block = MixingMatrix(kind, n=3000, k=40, seed=11), integers(3000, 2)
    left, right = matrix.mixer(2), MixingMatrix(kind, n=3000, k=40, seed=11).mixer(2)
    left.update(block[:1700], 0)
    right.update(block[1700:], 1700)
    left.merge(right)
    assert left.records == 3000
    np.testing.assert_array_equal(left.total(), mixed(matrix, block, [slice(0, 3000)]))
    with pytest.raises(AlignmentError, match="more than n=3000 records"):
        left.merge(right)


def test_the_total_is_a_copy_and_blocks_are_not_changed():
    matrix, block = MixingMatrix("hadamard", n=64, k=8, seed=0), integers(64, 2)
    kept = block.copy()
    mixer = matrix.mixer(2)
    mixer.update(block, 0)
    total = mixer.total()
    total[:] = 0.0
    assert np.any(mixer.total() != 0.0)
    np.testing.assert_array_equal(block, kept)


@pytest.mark.parametrize("kind", KINDS)
def test_memory_is_a_block_and_the_totals(kind):
    n, k, size = 150_000, 400, 10_000
    block = integers(size, 5)
    mixer = MixingMatrix(kind, n=n, k=k, seed=0).mixer(5)
    tracemalloc.start()
    for start in range(0, n, size):
        mixer.update(block, start)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12e6  # k n entries of one byte would be 60e6


# --------------------------------------------------------------------------------------------- law

SEEDS = 1500


@pytest.fixture(scope="module", params=KINDS)
def sketches(request):
    """Scaled columns 0, 1, 2, 63, 64, 99 of B, k = 8, over seeds: shape (SEEDS, 8, 6)."""
    matrices = [MixingMatrix(request.param, n=100, k=8, seed=seed) for seed in range(SEEDS)]
    return np.array([one.scale * one.entries([0, 1, 2, 63, 64, 99]) for one in matrices])


def assert_centred(values, k):
    """Each mean over seeds (last axes kept) is 0, jointly, at level 1e-4 a statistic."""
    z = values.mean(axis=0) / (values.std(axis=0) / np.sqrt(len(values)))
    assert np.abs(z).max() < k


def test_columns_are_orthogonal_on_average(sketches):
    grams = np.einsum("slj,sli->sji", sketches, sketches)
    upper = np.triu_indices(6, 1)
    np.testing.assert_allclose(np.diagonal(grams, axis1=1, axis2=2), 1.0, rtol=1e-12)
    assert_centred(grams[:, *upper], 4.5)
    # sd of <b_i, b_j>: 1/sqrt k, less the correction for sampling rows without replacement
    spread = grams[:, *upper].var(axis=0)
    assert np.all((spread > 0.75 / 8) & (spread < 1.25 / 8))


def test_rows_are_centred_and_uncorrelated(sketches):
    x = np.array([1.0, -2.0, 0.5, 3.0, 1.0, -1.0])
    rows = sketches @ x
    assert_centred(rows, 4.5)
    upper = np.triu_indices(8, 1)
    assert_centred((rows[:, :, None] * rows[:, None, :])[:, *upper], 4.5)
    share = (rows**2).mean(axis=0) / (x @ x / 8)
    assert np.all(np.abs(share - 1.0) < 0.25)


def test_countsketch_rows_are_equally_likely():
    n, k = 100_000, 77
    counts = np.abs(MixingMatrix("countsketch", n=n, k=k, seed=4).entries(range(n))).sum(axis=1, dtype=float)
    statistic = ((counts - n / k) ** 2 / (n / k)).sum()
    assert chi2.sf(statistic, k - 1) > 1e-3


def test_hadamard_rows_are_distinct_and_orthogonal():
    matrix = MixingMatrix("hadamard", n=256, k=200, seed=4)
    entries = matrix.entries(range(256)).astype(np.int64)
    np.testing.assert_array_equal(entries @ entries.T, 256 * np.eye(200))
    kernel = HadamardKernel.sample(2**21, 200_000, 9)
    assert np.unique(kernel.rows).size == 200_000
    assert kernel.order == 2**21


def test_streams_of_different_use_never_meet():
    streams = np.concatenate([words_run(1, domain, 0, 1000) for domain in (1, 2, 3, 4)])
    assert np.unique(streams).size == streams.size
    records = range(2000)
    first = MixingMatrix("signs", n=2000, k=1, seed=1).entries(records)[0].astype(float)
    sketch = MixingMatrix("countsketch", n=2000, k=1, seed=1).entries(records)[0].astype(float)
    kernel = MixingMatrix("hadamard", n=2000, k=1, seed=1)
    plain = kernel.entries(records)[0].astype(float)
    other = MixingMatrix("signs", n=2000, k=1, seed=2).entries(records)[0].astype(float)
    agreement = np.abs(np.corrcoef([first, sketch, plain, other])[np.triu_indices(4, 1)])
    assert agreement.max() < 4.5 / np.sqrt(2000)


# --------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kind": "gauss"}, "kind='gauss' is not one of 'signs', 'hadamard', 'countsketch'"),
        ({"k": 11}, "k=11 .* is too large"),
        ({"k": 0}, "k=0 must be at least 1"),
        ({"k": 2.5}, "k must be a whole number"),
        ({"n": 0}, "n=0 must be at least 1"),
        ({"n": 2**41}, "pass at most 2\\*\\*40"),
        ({"seed": -1}, "seed=-1 must be at least 0"),
        ({"seed": 2**64}, "must be below 2\\*\\*64"),
        ({"seed": True}, "seed must be a whole number"),
    ],
)
def test_bad_matrix(changed, message):
    with pytest.raises(ArgumentError, match=message):
        MixingMatrix(**({"kind": "signs", "n": 10, "k": 3, "seed": 0} | changed))


@pytest.mark.parametrize(
    ("rows", "position", "message"),
    [
        (3, 8, "would get the numbers 8 to 10, but the largest row number is 9"),
        (3, -1, "position=-1 must be at least 0"),
        (3, 1.0, "position must be a whole number"),
        (3, [0, 1], "2 row number\\(s\\) were passed for 3 record\\(s\\)"),
        (3, [0, 1, 10], "row numbers must be between 0 and n-1 = 9"),
        (3, [0, 1, -1], "row numbers must be between 0 and n-1 = 9"),
        (3, [4, 1, 4], "row numbers must be distinct"),
        (3, [0.0, 1.0, 2.0], "vector of integers"),
        (3, [[0, 1, 2]], "vector of integers"),
    ],
)
def test_bad_positions_change_nothing(rows, position, message):
    mixer = MixingMatrix("countsketch", n=10, k=3, seed=0).mixer(2)
    with pytest.raises(ArgumentError, match=message):
        mixer.update(np.ones((rows, 2)), np.array(position) if isinstance(position, list) else position)
    assert mixer.records == 0
    assert not mixer.total().any()


def test_bad_blocks():
    matrix = MixingMatrix("signs", n=10, k=3, seed=0)
    mixer = matrix.mixer(2)
    with pytest.raises(ArgumentError, match="made with width=2"):
        mixer.update(np.ones((4, 3)), 0)
    with pytest.raises(ArgumentError, match="block= must have 2 dimension"):
        mixer.update(np.ones(4), 0)
    with pytest.raises(ArgumentError, match="block= has nan or infinite entries"):
        mixer.update(np.full((4, 2), np.nan), 0)
    mixer.update(np.ones((0, 2)), 0)
    mixer.update(np.ones((8, 2)), 0)
    with pytest.raises(ArgumentError, match="more than n=10 records"):
        mixer.update(np.ones((3, 2)), 7)
    with pytest.raises(AlignmentError, match="different matrices or widths"):
        mixer.merge(matrix.mixer(3))
    with pytest.raises(AlignmentError, match="different matrices or widths"):
        mixer.merge(MixingMatrix("signs", n=10, k=3, seed=1).mixer(2))
    with pytest.raises(ArgumentError, match="width=0 must be at least 1"):
        matrix.mixer(0)


# ------------------------------------------------------------------------------------------- speed


@pytest.mark.timing
def test_fast_mixing_is_faster_than_dense_signs():
    n, k, width = 300_000, 500, 11
    block = integers(n, width, high=2**20)
    times = dict.fromkeys(KINDS, np.inf)
    for _ in range(3):
        for kind in KINDS:
            start = time.perf_counter()
            mixed(MixingMatrix(kind, n=n, k=k, seed=0), block, runs(n, 2**16))
            times[kind] = min(times[kind], time.perf_counter() - start)
    assert times["signs"] >= 8 * times["countsketch"]
    assert times["signs"] >= 3 * times["hadamard"]
