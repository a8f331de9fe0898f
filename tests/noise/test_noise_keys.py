"""Keyed noise: the words of ChaCha20, the law of every draw, and what a stream depends on."""

import copy
import itertools
import pickle

import numpy as np
import pytest
from scipy import stats
from support.instrument import RecordingNoise
from test_noise_exactness import assert_discrete_gaussian
from test_noise_laplace import assert_discrete_laplace

from privinf.errors import ArgumentError, NotAvailableError
from privinf.noise import LatticeNoise, NoiseKey, OpenDPNoise, SimulationNoise
from privinf.noise.discrete_gaussian import discrete_gaussian
from privinf.noise.entropy import Keystream
from privinf.noise.lattice import gumbel_steps, laplace_steps

KEY = NoiseKey(bytes(range(32)))
SUM = np.array([1.0, -2.0])
STREAM = KEY.stream("question", ("north", "south"), SUM)


def keyed(at):
    """Return the secure source at one stream of many."""
    return LatticeNoise().at(KEY.stream(f"question {at}", (), np.empty(0)))


def test_words_are_those_of_chacha20():
    """RFC 8439, appendix A.1, first vector: the key stream of zeros from counter 0."""
    zeros = bytes.fromhex(
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
    )
    assert Keystream(bytes(32)).words(8).tobytes() == zeros
    stream = Keystream(bytes(32))
    parts = [stream.word().to_bytes(8, "little"), stream.words(3).tobytes(), stream.words(4).tobytes()]
    assert b"".join(parts) == zeros


@pytest.mark.parametrize("source", [LatticeNoise(), SimulationNoise(0)], ids=["secure", "seeded"])
@pytest.mark.parametrize(
    "draw",
    [
        lambda noise: noise.perturb(np.zeros(50_000), 1.3),
        lambda noise: noise.gumbel(2.0, (3, 5000)),
        lambda noise: noise.laplace(2.0, 5000),
        lambda noise: noise.uniform(100),
        lambda noise: noise.bernoulli(0.3, 100),
        lambda noise: noise.integers(7, 100),
        lambda noise: noise.gaussian_steps(np.arange(50, dtype=np.int64), 3.7),
    ],
    ids=["perturb", "gumbel", "laplace", "uniform", "bernoulli", "integers", "gaussian steps"],
)
def test_a_stream_gives_the_same_bytes_again(source, draw):
    first, again = (draw(source.at(STREAM)).tobytes() for _ in range(2))
    other = draw(source.at(KEY.stream("question", ("north",), SUM))).tobytes()
    assert first == again
    assert first != other


@pytest.mark.parametrize("sigma", [1.0, 30.0, 2.0**13])
def test_the_law_of_keyed_gaussian_noise(sigma):
    """Many streams, a few draws of each: as questions use them."""
    x = np.concatenate([keyed(at).gaussian_steps(np.zeros(40, dtype=np.int64), sigma) for at in range(1000)])
    assert_discrete_gaussian(x, sigma)
    assert_discrete_gaussian(discrete_gaussian(sigma, 40_000, Keystream(STREAM)), sigma)


def test_the_law_of_the_other_keyed_draws():
    assert_discrete_laplace(laplace_steps(7.5, 60_000, Keystream(STREAM)), 7.5)
    gumbels = gumbel_steps(2.0**20, 60_000, Keystream(STREAM)) / 2.0**20
    assert stats.kstest(gumbels, "gumbel_r").pvalue > 1e-5
    noise = LatticeNoise().at(STREAM)
    assert stats.kstest(noise.uniform(60_000), "uniform").pvalue > 1e-5
    assert stats.binomtest(int(noise.bernoulli(0.3, 60_000).sum()), 60_000, 0.3).pvalue > 1e-5
    assert stats.chisquare(np.bincount(noise.integers(7, 60_000), minlength=7)).pvalue > 1e-5


@pytest.mark.audit
def test_streams_are_independent():
    x = np.array([keyed(at).perturb(np.zeros(2), 1.0) for at in range(4000)])
    r = [np.corrcoef(x[:-1, i], x[1:, j])[0, 1] for i, j in itertools.product(range(2), repeat=2)]
    assert np.abs([*r, np.corrcoef(x.T)[0, 1]]).max() < 5.0 / np.sqrt(4000)
    assert len({row.tobytes() for row in x}) == len(x)


def test_a_stream_depends_on_key_question_roster_and_sum():
    told = {"query_digest": "question", "roster": ("north", "south"), "total": SUM}
    others = [
        {"query_digest": "question "},
        {"roster": ("north",)},
        {"roster": ("north", "south", "")},
        {"roster": ("northsouth",)},
        {"total": SUM[:1]},
        {"total": SUM[::-1]},
        {"total": SUM[None]},
        {"total": np.nextafter(SUM, 9.0)},
        {"query_digest": "questionnorth", "roster": ("south",)},
    ]
    others = [told | changed for changed in others]
    for code in (KEY.stream, KEY.commitment, NoiseKey(bytes(32)).stream):
        assert len({code(**one) for one in (told, *others)}) == 1 + len(others)
    assert KEY.stream("question", ("south", "north"), SUM) == STREAM
    assert KEY.stream("", (), np.zeros(2)) == KEY.stream("", (), -np.zeros(2))
    every = {KEY.stream(**told), NoiseKey(bytes(32)).stream(**told), bytes.fromhex(KEY.commitment(**told))}
    assert len(every | {KEY.seal(), KEY.secret_bytes()}) == 5


def test_a_key_is_secret_and_its_fingerprint_public():
    assert KEY.fingerprint == NoiseKey(bytes(range(32))).fingerprint
    assert len(KEY.fingerprint) == 16
    assert KEY.secret_bytes().hex()[:8] not in repr(KEY) + KEY.fingerprint
    assert NoiseKey().fingerprint != NoiseKey().fingerprint
    for thing in (KEY, Keystream(STREAM), LatticeNoise().at(STREAM)):
        for copied in (pickle.dumps, copy.deepcopy):
            with pytest.raises(TypeError, match="pickled"):
                copied(thing)
    for wrong in (b"", bytes(31), "0" * 32, bytearray(32)):
        with pytest.raises(ArgumentError, match="32 bytes"):
            NoiseKey(wrong)
        with pytest.raises(ArgumentError, match="32 bytes"):
            Keystream(wrong)


def test_keys_of_sources():
    assert LatticeNoise().new_key().fingerprint != LatticeNoise().new_key().fingerprint
    first, again, other = (SimulationNoise(seed).new_key().fingerprint for seed in (1, 1, 2))
    assert first == again != other
    rng = np.random.default_rng(1)
    assert SimulationNoise(rng).new_key().fingerprint == first != SimulationNoise(rng).new_key().fingerprint
    recording = RecordingNoise(LatticeNoise())
    np.testing.assert_array_equal(
        recording.at(STREAM).perturb(SUM, 1.0), LatticeNoise().at(STREAM).perturb(SUM, 1.0)
    )
    assert [call.scale for call in recording.calls] == [1.0]


def test_opendp_cannot_be_keyed():
    pytest.importorskip("opendp")
    assert OpenDPNoise().new_key() is None
    with pytest.raises(NotAvailableError, match="stored secret key"):
        OpenDPNoise().at(STREAM)


def test_columns_that_lie_apart_stay_so_and_get_the_noise_of_their_places() -> None:
    """Fresh noise is drawn as numbers lie in memory, that of a key by rows."""
    values = np.asfortranarray(100.0 * np.arange(3.0) + np.arange(4000.0)[:, None])
    noisy = LatticeNoise().perturb(values, 1.0)
    assert noisy.flags.f_contiguous
    noise = noisy - values
    assert np.abs(noise.std(axis=0) - 1.0).max() < 0.1
    assert np.abs(np.corrcoef(noise.T) - np.eye(3)).max() < 0.1
    one, other = (LatticeNoise(Keystream(bytes(32))).perturb(x, 1.0) for x in (values, values.copy("C")))
    assert np.array_equal(one, other)
