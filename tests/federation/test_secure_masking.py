"""Identity keys, pinned rosters, the graph of masks and the masks themselves."""

import pickle
import subprocess
import sys
from math import comb

import numpy as np
import pytest

from privinf.errors import ArgumentError, StorageError
from privinf.federation import IdentityKey, Roster, pinned_keys
from privinf.federation.secure.masking import (
    COMPLETE,
    FAILURE_BITS,
    PairKeys,
    degree,
    expand,
    extract,
    neighbours,
    stream,
)

NAMES = tuple(sorted(f"site{i:04d}" for i in range(300)))


def test_keys_are_kept_and_not_shown(tmp_path):
    key = IdentityKey()
    key.save(tmp_path / "north.key")
    assert (tmp_path / "north.key").stat().st_mode & 0o077 == 0
    again = IdentityKey.load(tmp_path / "north.key")
    assert again.public == key.public
    assert again.secret_bytes() == key.secret_bytes()
    with pytest.raises(StorageError, match="never replaced"):
        key.save(tmp_path / "north.key")
    assert key.secret_bytes().hex() not in repr(key)
    with pytest.raises(TypeError):
        pickle.dumps(key)
    (tmp_path / "other").write_text("12")
    (tmp_path / "other").chmod(0o600)
    with pytest.raises(StorageError, match="is not the key file"):
        IdentityKey.load(tmp_path / "other")
    with pytest.raises(ArgumentError):
        IdentityKey(b"short")


def test_rosters_are_checked_and_survive_their_file():
    owned, roster = pinned_keys(["south", "north"])
    assert list(roster.keys) == ["north", "south"]
    assert Roster.from_json(roster.to_json()).digest == roster.digest
    assert pickle.loads(pickle.dumps(roster)).digest == roster.digest
    assert Roster(dict(roster.keys) | {"west": IdentityKey().public}).digest != roster.digest
    public = owned["north"].public
    second = {"short": {"b": "00"}, "capitals": {"b": public.upper()}, "twice": {"b": public}, "alone": {}}
    names = {"empty": {"": "0" * 64}, "sign": {"b=": "1" * 64}}
    for wrong in [1, 2], *({"a": public} | more for more in (second | names).values()):
        with pytest.raises(ArgumentError):
            Roster(wrong)
    for text in ("", "{}", '{"format": "privinf-roster", "version": 2, "keys": {}}', "[]"):
        with pytest.raises(StorageError):
            Roster.from_json(text)


@pytest.mark.parametrize("public", ["0" * 64, "01" + "0" * 62], ids=["zero", "one"])
def test_a_key_without_a_secret_is_refused(public):
    with pytest.raises(ArgumentError, match="X25519"):
        IdentityKey().shared(public)


# The points of small order, and two that are written in a second way.
FIELD = 2**255 - 19
EIGHTH = (
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
)
WEAK = [0, 1, FIELD - 1, *EIGHTH, FIELD, FIELD + 1, FIELD + 9, 2**255 + 9, 2**256 - 1]


@pytest.mark.parametrize("number", WEAK)
def test_a_roster_takes_no_key_that_hides_nothing(number):
    """A question with such a neighbour was charged, and then failed."""
    key = number.to_bytes(32, "little").hex()
    with pytest.raises(ArgumentError, match="the key of site 'b' is not a valid public"):
        Roster({"a": IdentityKey().public, "b": key})


def test_the_package_imports_no_cryptography():
    code = "import sys, privinf.federation; assert 'cryptography' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_derivation_is_hkdf_and_the_stream_is_chacha20():
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    shared, info = bytes(range(32)), b"some info"
    assert expand(extract(shared), info) == HKDF(SHA256(), 32, None, info).derive(shared)
    # RFC 8439, 2.3.2: key 00..1f, counter 1, nonce 000000090000004a00000000 is another block; block 0 of the
    # zero key and nonce is known from appendix A.1.
    first = bytes.fromhex("76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7")
    assert stream(bytes(32), 4).astype("<u8").tobytes() == first


@pytest.mark.parametrize(("sites", "colluding"), [(51, 0), (60, 50), (200, 20), (1000, 100), (1000, 333)])
def test_the_degree_meets_its_bound(sites, colluding):
    counted = max(colluding, sites // 10)

    def failure(side):
        return sites * comb(sites - side, counted - side) / comb(sites, counted) if side <= counted else 0.0

    k = degree(sites, colluding)
    if k == sites - 1:
        assert failure((sites - 1) // 2) > 2.0**-FAILURE_BITS
        return
    assert failure(k // 2) <= 2.0**-FAILURE_BITS < failure(k // 2 - 1)
    assert degree(COMPLETE, colluding) == COMPLETE - 1


def test_the_graph_is_symmetric_regular_and_bound_to_the_roster():
    k = degree(300, 30)
    graph = {name: set(neighbours(name, NAMES, "pinned", 30)) for name in NAMES}
    assert all(len(graph[name]) == k and name not in graph[name] for name in NAMES)
    assert all(name in graph[other] for name in NAMES for other in graph[name])
    moved = [set(neighbours(name, NAMES, "another", 30)) != graph[name] for name in NAMES]
    assert np.mean(moved) > 0.99
    fewer = {name: set(neighbours(name, NAMES[1:], "pinned", 30)) for name in NAMES[1:]}
    assert np.mean([len(fewer[name] & graph[name]) / k for name in fewer]) < 2 * k / 300


def test_honest_sites_stay_connected_without_the_colluding_ones():
    rng = np.random.default_rng(0)
    for _ in range(20):
        honest = set(rng.choice(NAMES, 270, replace=False).tolist())
        reached, border = set(), {min(honest)}
        while border:
            reached |= border
            border = {
                other for name in border for other in neighbours(name, NAMES, "p", 30)
            } & honest - reached
        assert reached == honest


@pytest.mark.parametrize("size", [2, 3, 20, 60])
def test_masks_cancel_exactly_and_hide_everything_else(size):
    names = tuple(sorted(f"s{i}" for i in range(size)))
    owned, roster = pinned_keys(names)
    rng = np.random.default_rng(1)
    values = {name: rng.integers(-(2**40), 2**40, 50) for name in names}
    masked = {
        name: PairKeys(owned[name], roster).masked(values[name].view(np.uint64), name, names, 0, "ab" * 32)
        for name in names
    }
    total = sum(masked.values(), np.zeros(50, dtype=np.uint64)).view(np.int64)
    np.testing.assert_array_equal(total, sum(values.values()))
    for name in names:
        high = np.abs(masked[name].view(np.int64).astype(float)) > 2.0**60
        assert high.mean() > 0.5  # 7/8 of uniform words
    partial = (total.view(np.uint64) - masked[names[0]]).view(np.int64)
    assert (np.abs(partial.astype(float)) > 2.0**60).mean() > 0.5


def test_every_question_has_its_own_masks():
    owned, roster = pinned_keys(["a", "b"])
    pairs = PairKeys(owned["a"], roster)
    zero = np.zeros(200, dtype=np.uint64)
    one, again, other = (
        pairs.masked(zero, "a", ("a", "b"), 0, digest) for digest in ("00" * 32, "00" * 32, "01" * 32)
    )
    np.testing.assert_array_equal(one, again)
    assert not np.isin(one, other).any()
    with pytest.raises(TypeError):
        pickle.dumps(pairs)
