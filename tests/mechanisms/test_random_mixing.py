"""Releases of one party: exact sums, shares, noise scale, order, what is charged and what is refused."""

import math

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf import errors
from privinf.mechanisms import GaussianRows, RandomMixing
from privinf.mechanisms.mixing.matrix import MixingMatrix
from privinf.mechanisms.mixing.party_release import UNIT
from privinf.mechanisms.mixing.theory import default_share

N, K = 300, 20
SCHEMA = pi.Schema({"a": (-1.0, 3.0), "g": ["u", "v", "w"], "b": (0.0, 1.0)})
DIAMETER = math.sqrt(2**2 + 2 + 2**2)
KINDS = ["signs", "hadamard", "countsketch"]


def rows(n=N, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {"a": rng.uniform(-2, 4, n), "g": rng.choice(["u", "v", "w"], n), "b": rng.uniform(0, 1, n)}
    )


def scaled(frame, centred=True):
    a, b = frame.a.clip(-1, 3), frame.b
    numbers = [(a - 1) / 2, frame.g == "v", frame.g == "w", (b - 0.5) * 2]
    if not centred:
        numbers = [a / 3, frame.g == "v", frame.g == "w", b]
    return np.column_stack([np.asarray(x, dtype=float) for x in numbers])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("intercept", [True, False])
def test_without_noise_it_is_the_mixture_of_scaled_clipped_rows(kind, intercept):
    mechanism = RandomMixing(SCHEMA, k=K, kind=kind, seed=3, intercept=intercept)
    release = mechanism.release(rows(), epsilon=math.inf)
    share = 0.01 if intercept else 0.0
    B = MixingMatrix(kind, n=N, k=K, seed=3)
    matrix = math.sqrt(1 - share) * B.scale * B.entries(np.arange(N))
    D = scaled(rows(), intercept)
    np.testing.assert_allclose(release.arrays["rows"], matrix @ D, atol=1e-12)
    np.testing.assert_allclose(release.arrays["ones"], matrix.sum(axis=1), atol=1e-12)
    np.testing.assert_allclose((matrix**2).sum(axis=0) + share, 1.0)
    if intercept:
        np.testing.assert_allclose(release.arrays["ones_row"], math.sqrt(share) * D.sum(axis=0), atol=1e-12)
    else:
        assert "ones_row" not in release.arrays


@pytest.mark.parametrize("kind", KINDS)
def test_noise_has_the_calibrated_scale(kind):
    mechanism = RandomMixing(SCHEMA, k=K, kind=kind, share=0.2)
    clear = mechanism.release(rows(), epsilon=math.inf)
    noise = []
    for seed in range(40):
        release = mechanism.release(rows(), epsilon=1.0, delta=1e-5, rng=seed)
        difference = release.arrays["rows"] - clear.arrays["rows"]
        noise.append(np.append(difference, release.arrays["ones_row"] - clear.arrays["ones_row"]))
    mu = pi.accounting.calibrate_mu(epsilon=1.0, delta=1e-5)
    assert release.noise_model["scale"] == pytest.approx(DIAMETER / mu, rel=1e-4)
    sd = np.std(np.concatenate(noise))
    assert sd == pytest.approx(DIAMETER / mu, rel=4 / math.sqrt(2 * 40 * (K + 1) * 4))


def test_secure_release_is_on_the_grid_and_charges_it():
    release = RandomMixing(SCHEMA, k=K, kind="signs").release(rows(), mu=0.5, delta=1e-6)
    entry, scale = release.entries[0], release.noise_model["scale"]
    step = entry.noise["grid"]
    steps = release.arrays["rows"] / step
    assert np.array_equal(steps, np.rint(steps))
    assert entry.sensitivity.value == pytest.approx(0.5 * scale)
    grid = step * math.sqrt((K + 1) * 4)
    assert entry.sensitivity.value >= DIAMETER + grid + 2 * UNIT
    assert entry.trust == "per-party"
    assert entry.unit == "person"


class Shuffled:
    """The same people in another order and in blocks of another size."""

    def __init__(self, frame, order, size):
        self.frame, self.order, self.size = frame, order, size

    def __len__(self):
        return len(self.frame)

    def blocks(self):
        for start in range(0, len(self.order), self.size):
            at = self.order[start : start + self.size]
            yield at, self.frame.iloc[at]


@pytest.mark.audit
@pytest.mark.parametrize("kind", KINDS)
def test_sums_do_not_depend_on_order_or_blocks(kind):
    mechanism = RandomMixing(SCHEMA, k=K, kind=kind)
    order = np.random.default_rng(1).permutation(N)
    given = {"epsilon": 2.0, "delta": 1e-5, "rng": 7}
    straight = mechanism.release(rows(), **given)
    for size in (1, 64, N):
        other = mechanism.release(Shuffled(rows(), order, size), **given)
        for name in straight.arrays:
            assert np.array_equal(straight.arrays[name], other.arrays[name])


def test_gaussian_rows_put_people_in_their_places():
    order = np.random.default_rng(1).permutation(N)
    mechanism = GaussianRows(SCHEMA)
    straight = mechanism.release(rows(), epsilon=2.0, delta=1e-5, rng=7)
    other = mechanism.release(Shuffled(rows(), order, 50), epsilon=2.0, delta=1e-5, rng=7)
    assert np.array_equal(straight.arrays["rows"], other.arrays["rows"])
    clear = mechanism.release(rows(), epsilon=math.inf)
    np.testing.assert_allclose(clear.arrays["rows"], scaled(rows(), False))


def test_a_missing_person_in_the_blocks_is_noticed_before_anything_is_spent():
    ledger = pi.Ledger()
    table = Shuffled(rows(), np.arange(N - 1), 50)
    with pytest.raises(errors.AlignmentError, match="every person needs a row"):
        RandomMixing(SCHEMA, k=K).release(table, epsilon=1.0, delta=1e-5, rng=0, ledger=ledger)
    assert len(ledger) == 0


@pytest.mark.parametrize(
    ("frame", "error", "words"),
    [
        (rows().drop(columns="g"), errors.SchemaError, "lack the column"),
        (rows().assign(a=math.nan), errors.SchemaError, "missing"),
        (rows().assign(g="zzz"), errors.SchemaError, "'g'"),
        (rows().assign(b="secret"), errors.SchemaError, "'b'"),
        (rows(N - 1), errors.AlignmentError, "plan has n=300"),
        (np.ones((N, 2)), errors.ArgumentError, "does not fit the columns"),
    ],
)
@pytest.mark.parametrize("mechanism", [RandomMixing, GaussianRows])
def test_bad_rows_cost_nothing_and_show_nothing(mechanism, frame, error, words):
    ledger = pi.Ledger()
    made = mechanism(SCHEMA, n=N, **({"k": K} if mechanism is RandomMixing else {}))
    with pytest.raises(error, match=words) as caught:
        made.release(frame, epsilon=1.0, delta=1e-5, rng=0, ledger=ledger)
    assert "secret" not in str(caught.value)
    assert "zzz" not in str(caught.value)
    assert len(ledger) == 0


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (pi.Schema({"a": pi.Numeric(0.0, 1.0, public=True)}), "declared public"),
        (pi.Schema({"const": (0.0, 1.0)}), "reserved for the constant"),
        (pi.Schema({"a": (0.0, 1.0)}, unit="id", max_rows=3), "one row per person"),
    ],
)
def test_schemas_that_a_party_cannot_release(schema, words):
    with pytest.raises(errors.SchemaError, match=words):
        RandomMixing(schema, k=K)


def test_default_share_is_public_arithmetic():
    assert default_share(10.0, 1_000_000) == 0.01
    assert default_share(10.0, 1000) == pytest.approx((10 / 20) ** 2)
    assert default_share(100.0, 1000) == 0.5
    release = RandomMixing(SCHEMA, k=K).release(rows(), mu=1.0, rng=0)
    assert release.noise_model["share"] == default_share(release.noise_model["scale"], N)


def test_release_files_come_back_whole(tmp_path):
    release = RandomMixing(SCHEMA, k=K).release(rows(), mu=1.0, delta=1e-6)
    release.save(tmp_path / "a.npz")
    back = pi.load_release(tmp_path / "a.npz")
    assert dict(back.noise_model) == dict(release.noise_model)
    assert back.design.digest == release.design.digest
    assert all(np.array_equal(back.arrays[name], release.arrays[name]) for name in release.arrays)
    damaged = bytearray((tmp_path / "a.npz").read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (tmp_path / "b.npz").write_bytes(bytes(damaged))
    with pytest.raises(errors.StorageError):
        pi.load_release(tmp_path / "b.npz")
