"""Damaged files: errors of the tree only, at once, and never another number from verified_record damage.

A reduced run of ``benchmarks/fuzz_files.py``: the corpus is recorded from real fits (`file_corpus`), damaged
by seed (`file_damage`), read through the public functions and the command line (`file_commands`). Each check
is broken once at the end, and the fuzzer must see it.
"""

from __future__ import annotations

import hashlib
import hmac
import inspect
import json
import os
import time
import tracemalloc
import zlib
from dataclasses import replace

import file_checkpoints
import file_commands
import file_corpus
import file_damage
import numpy as np
import pytest
from file_damage import Damage, damage, judge, verdict_on
from support.speed import slowness

import privinf as pi
from privinf import releases
from privinf.accounting import Budget, Ledger, journal
from privinf.accounting.files import LedgerFile
from privinf.errors import PrivinfError, StorageError
from privinf.federation import IdentityKey, Roster, SiteLedger
from privinf.mechanisms.blocks import open_table
from privinf.schema.table import Schema
from privinf.storage import checksummed, containers

EACH = 9  # damaged files of a kind
TYPED = 3  # damaged files of a command
RESUMED = 4  # damaged folders of a fit


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    return {kind.name: kind for kind in file_corpus.corpus(tmp_path_factory.mktemp("corpus"))}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return file_commands.Study(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def stages(tmp_path_factory):
    return file_checkpoints.stages(tmp_path_factory.mktemp("fits"))


def rng_of(name):
    return np.random.default_rng(zlib.crc32(name.encode()))


def fuzzed(kind, folder, times, how=damage):
    """Return what came of `times` damaged versions of a file."""
    rng = rng_of(kind.name)
    done = [how(kind, rng) for _ in range(times)]
    return [(one.how, judge(kind, one, folder)) for one in done]


@pytest.mark.audit
def test_damaged_files(kinds, tmp_path):
    found = [(kind.name, *one) for kind in kinds.values() for one in fuzzed(kind, tmp_path, EACH)]
    assert not [one for one in found if one[-1].failed]
    outcomes = {one[-1].outcome for one in found}
    assert {"refused", "same", "other"} <= outcomes  # all three are met: the comparison is not idle


@pytest.mark.audit
def test_commands_on_damaged_files(study):
    found = []
    for command in file_commands.COMMANDS:
        assert study.run(command, None).outcome == "other", command  # the files are good as they are
        rng = rng_of(command.words + command.file)
        for _ in range(TYPED):
            done, verdict = study.attempt(command, rng)
            found.append((command.words, command.file, done.how, verdict))
    assert not [one for one in found if one[-1].failed]


@pytest.mark.audit
def test_checkpoints_with_a_damaged_file(stages, tmp_path):
    whole = Damage("none", b"")
    found = []
    for stage in stages:
        done = replace(whole, content=(stage.folder / stage.file).read_bytes())
        assert file_checkpoints.verdict_on(stage, done, tmp_path / "fit").outcome == "same"
        rng = rng_of(stage.name)
        found += [
            (stage.name, file_checkpoints.attempt(stage, rng, tmp_path / "fit")) for _ in range(RESUMED)
        ]
    assert not [one for one in found if one[1][1].failed]


def damaged(kind, old, new):
    """Return the file with one text in the place of another, both of one length."""
    assert len(old) == len(new)
    assert old in kind.content
    return Damage(f"{old!r} -> {new!r}", kind.content.replace(old, new, 1))


# --- what the fuzzer found, one by one ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("plan", b'"epsilon": 1.0', b'"epsilon": 9.0'),
        ("plan", b'"high": 250.0', b'"high": 950.0'),
        ("roster", b'"south": "', b'"South": "'),
        ("identity key", b"000102", b"000103"),
        ("ledger file", b'"mechanism": "gaussian"', b'"mechanism": "laplacia"'),
        ("ledger text", b'"mu": 0.25', b'"mu": 0.05'),
        ("ledger text", b'"sha256"', b'"sha257"'),  # a checksum under another name would be none
        ("roster", b'"sha256"', b'"sha257"'),
    ],
)
def test_another_digit_is_not_another_number(kinds, tmp_path, name, old, new):
    kind = kinds[name]
    assert judge(kind, damaged(kind, old, new), tmp_path).outcome == "refused"


def test_the_end_of_the_last_line_of_a_site_is_no_torn_line(kinds, tmp_path):
    content = kinds["site ledger"].content
    done = Damage("another end", content[:-1] + b"\x0b")
    assert judge(kinds["site ledger"], done, tmp_path).outcome == "refused"


def test_lists_without_end_and_keys_twice(kinds, tmp_path):
    deep = "[" * 100_000 + "]" * 100_000
    for text in (deep, f'{{"format": {deep}}}', '{"a": 1, "a": 2}', '{"n": ' + "9" * 5000 + "}", '"\\ud800"'):
        for read in (pi.MixingPlan.from_json, Roster.from_json, Ledger.from_json):
            with pytest.raises(StorageError) as caught:
                read(text)
            assert caught.value.__context__ is None
        for seal in ("json", "lines"):
            for kind in kinds.values():
                if kind.seal == seal:
                    assert judge(kind, Damage("text", text.encode()), tmp_path).outcome == "refused"


def test_a_delta_without_digits_ends_in_an_error(kinds):
    text = json.loads(kinds["plan"].content)
    text["parties"]["clinic"]["delta"] = 5e-324  # the search for mu never ended
    del text["sha256"]
    with pytest.raises(PrivinfError, match="at least 1e-300"):
        pi.MixingPlan.from_json(json.dumps(text))


def test_a_power_of_ten_does_not_fill_the_memory():
    begun = time.process_time()
    for limit in ("1e999999999", "1/0", "0x1", " 1", "-1", 3, None, "9" * 5000, "9" * 400):
        with pytest.raises(PrivinfError):
            Budget.from_dict({"currency": "mu2", "limit": limit, "delta": None})
    assert time.process_time() - begun < 1.0 * slowness()


@pytest.mark.parametrize("name", ["release: moments", "results: MomentOLS"])
@pytest.mark.parametrize("shape", [10**12, 10**9, 10**5])
def test_a_size_that_is_only_declared_is_not_allocated(kinds, tmp_path, name, shape):
    kind = kinds[name]
    members = dict(file_damage.members_of(kind.content))
    array = next(one for one in members if one.endswith("moments.npy"))
    spec = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({shape}, 4), }}"
    members[array] = file_damage.forged_npy(spec, bytes(64))
    manifest = json.loads(members.pop("manifest.json"))
    manifest["arrays"][array.removesuffix(".npy")] = hashlib.sha256(members[array]).hexdigest()
    manifest.pop("integrity")
    tag = hashlib.sha256(json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    manifest["integrity"] = {"method": "sha256", "tag": tag}
    content = file_damage.archive_of([*members.items(), ("manifest.json", json.dumps(manifest).encode())])
    tracemalloc.start()
    verdict = judge(kind, Damage("size", content, True), tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert verdict.outcome == "refused"
    assert peak < 20e6


def test_no_error_of_a_table_keeps_its_rows(tmp_path):
    schema = Schema({"age": (18.0, 90.0)})
    texts = {
        "bytes.csv": b"id,age\n1,4242\xff\n",
        "lines.csv": b"id,age\n1,4242\n2,4242,4242\n",
        "twice.csv": b"id,age\n4242,30\n4242,40\n",
        "packed.csv.gz": b"\x1f\x8b\x08" + bytes(30),
    }
    for name, content in texts.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(PrivinfError) as caught:
            list(open_table(tmp_path / name, schema, id="id").blocks())
        assert "4242" not in str(caught.value)
        assert caught.value.__context__ is None
        assert caught.value.__cause__ is None


def entry_points():
    return {
        "release": pi.load_release,
        "results": pi.load_results,
        "plan": pi.MixingPlan.load,
        "key": IdentityKey.load,
        "ledger file": LedgerFile,
        "table": lambda path: open_table(path, file_corpus.TABLE),
    }


@pytest.mark.parametrize("name", entry_points())
def test_missing_files_folders_and_files_of_others(name, tmp_path):
    read = entry_points()[name]
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "closed.csv").write_text("closed")
    (tmp_path / "closed.csv").chmod(0)
    with pytest.raises(StorageError) as caught:
        read(tmp_path / "absent.csv")
    assert isinstance(caught.value, FileNotFoundError)
    for file in ("folder.csv", "closed.csv"):
        with pytest.raises(PrivinfError):
            read(tmp_path / file)
    if os.geteuid() != 0:
        with pytest.raises(StorageError):
            SiteLedger(tmp_path / "closed.csv")
    with pytest.raises(StorageError):
        SiteLedger(tmp_path / "folder.csv")


def test_releases_are_what_their_kind_says(kinds, tmp_path):
    """Resealed: another shape, an entry that is no number, a law without its scale."""
    kind = kinds["release: modulation"]
    path = tmp_path / "whole.npz"
    path.write_bytes(kind.content)
    arrays, header = containers.read_container(path, format=releases.FORMAT)
    nan = np.full_like(arrays["features"], np.nan)
    laws = [{**header["law"], "scales": [1.0, 1.0]}, {**header["law"], "contraction": "x"}, {}]
    changed = [
        ({**arrays, "features": nan}, header),
        ({**arrays, "response": arrays["response"][1:]}, header),
    ]
    changed += [(arrays, {**header, "law": law}) for law in laws]
    changed += [(arrays, {**header, "nobs": 59}), (arrays, {**header, "kind": "else"})]
    for others, told in changed:
        containers.write_container(path, others, told, format=releases.FORMAT)
        with pytest.raises(StorageError, match="release"):
            pi.load_release(path)


def test_texts_whose_checksum_was_deleted_are_read(kinds, tmp_path):
    """People who edit a plan, a roster or a ledger's text by hand delete its checksum; a key has one."""
    for name in ("plan", "roster", "ledger text"):
        kind = kinds[name]
        record = json.loads(kind.content)
        del record["sha256"]
        done = Damage("as it was", json.dumps(record, indent=1).encode())
        assert judge(kind, done, tmp_path).outcome == "same"
    plan = kinds["plan"].content.decode()
    by_hand = "".join(
        line for line in plan.splitlines(keepends=True) if 'sha256": "' not in line or "ids_" in line
    )
    edited = by_hand.replace('"high": 250.0', '"high": 260.0')
    assert pi.MixingPlan.from_json(edited).party("lab").schema["glucose"].high == 260.0
    key = kinds["identity key"]
    assert judge(key, Damage("no checksum", key.content[:65]), tmp_path).outcome == "refused"


def test_nothing_reads_pickles():
    """The only call of numpy's reader refuses objects; nothing else of the package loads arrays."""
    package = os.path.dirname(pi.__file__)
    for folder, _, names in os.walk(package):
        for name in names:
            if name.endswith(".py"):
                with open(os.path.join(folder, name), encoding="utf-8") as stream:
                    text = stream.read()
                assert "pickle.load" not in text, name
                assert "allow_pickle=True" not in text, name
                assert (
                    text.count("np.load(") == text.count("allow_pickle=False)") or "np.load(" not in text
                ), name


# --- mutants: each check is taken away once, and the fuzzer sees it -----------------------------------------


def outcomes(kinds, folder, names, times, how=damage):
    return {verdict.outcome for name in names for _, verdict in fuzzed(kinds[name], folder, times, how)}


def careless(kind, rng):
    return file_damage.edited(kind.content, rng)


def test_mutant_tags_are_not_compared(kinds, tmp_path, monkeypatch):
    names = ["results: with a key", "release: moments"]
    assert "another number" not in outcomes(kinds, tmp_path, names, 30, careless)
    monkeypatch.setattr(hmac, "compare_digest", lambda found, expected: True)
    assert "another number" in outcomes(kinds, tmp_path, names, 30, careless)


def test_mutant_arrays_are_not_hashed(kinds, tmp_path, monkeypatch):
    """Exchanged members carry valid sums of their own: only the manifest's digests tell."""

    def unchecked(archive, name, digest, path):
        return containers._parsed_array(archive.read(name + ".npy"), name, path)

    monkeypatch.setattr(containers, "_read_array", unchecked)
    names = ["results: MomentOLS", "release: moments"]
    assert "another number" in outcomes(kinds, tmp_path, names, 30, careless)


def test_mutant_checkpoints_are_read_without_their_key(stages, tmp_path, monkeypatch):
    """Who lacks the key cannot say that the release of the fit had other noise."""
    stage = replace(stages[0], file="00001.npz")  # the first one is in the question of the second
    members = dict(file_damage.members_of((stage.folder / stage.file).read_bytes()))
    manifest = json.loads(members["manifest.json"])
    manifest["header"]["scale"] *= 2.0
    members["manifest.json"] = json.dumps(manifest).encode()
    done = Damage("scale", file_damage.archive_of(list(members.items())))
    assert file_checkpoints.verdict_on(stage, done, tmp_path / "fit").outcome == "refused"
    monkeypatch.setattr(hmac, "compare_digest", lambda found, expected: True)
    verdict = file_checkpoints.verdict_on(stage, done, tmp_path / "fit")
    assert verdict.outcome == "another number", verdict


@pytest.mark.parametrize("name", ["plan", "roster", "ledger text"])
def test_mutant_json_has_no_checksum(kinds, tmp_path, monkeypatch, name):
    whole = json.loads(kinds[name].content)["sha256"]
    monkeypatch.setattr(checksummed, "checksum", lambda record: whole)
    assert "another number" in outcomes(kinds, tmp_path, [name], 200)


@pytest.mark.parametrize("name", ["site ledger", "ledger file"])
def test_mutant_lines_have_no_checksum(kinds, tmp_path, monkeypatch, name):
    monkeypatch.setattr(journal, "tag_after", lambda *words: Anything())
    assert "another number" in outcomes(kinds, tmp_path, [name], 60)


class Anything:
    """Equal to everything."""

    def __ne__(self, other):
        return False

    __hash__ = None


def test_mutant_keys_have_no_checksum(kinds, tmp_path, monkeypatch):
    from privinf.federation.secure import keys

    monkeypatch.setattr(keys, "_seal", lambda secret: kinds["identity key"].content.split()[1].decode())
    assert "another number" in outcomes(kinds, tmp_path, ["identity key"], 40)


@pytest.mark.audit
def test_mutant_readers_let_foreign_exceptions_out(kinds, tmp_path, monkeypatch):
    plain = inspect.unwrap(pi.Release.from_parts.__func__)
    monkeypatch.setattr(pi.Release, "from_parts", classmethod(plain))
    assert "foreign exception" in outcomes(kinds, tmp_path, ["release: joined", "release: joined rows"], 80)


def test_mutant_an_error_is_raised_inside_except(kinds, tmp_path):
    def careless(path):
        try:
            return json.loads(path.read_bytes())
        except ValueError:
            raise StorageError("not JSON") from None

    kind = replace(kinds["plan"], load=careless)
    assert judge(kind, Damage("cut", kind.content[:50]), tmp_path).outcome == "context"


def test_mutant_a_reader_that_hangs(kinds, tmp_path, monkeypatch):
    monkeypatch.setattr(file_damage, "LIMIT", 0.0)
    assert outcomes(kinds, tmp_path, ["plan"], 1) == {"hang"}


def test_the_verdict_on_a_whole_file_is_same(kinds, tmp_path):
    for kind in kinds.values():
        path = tmp_path / f"file{kind.suffix}"
        path.write_bytes(kind.content)
        path.chmod(0o600)
        assert verdict_on(kind, path, resealed=False).outcome == "same", kind.name
        path.unlink()
