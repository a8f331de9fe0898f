"""Secret files that others can have read, changed or planted are refused, with the remedy to type."""

import json
import os
import stat
import struct
import threading

import numpy as np
import pytest
from click.testing import CliRunner
from support.secret_kinds import (
    FAULTS,
    GIVEN_AWAY,
    LIMIT,
    OTHER,
    SECRETS,
    fit,
    hard_link,
    refits_under_a_planted_key,
)

import privinf as pi
from privinf import secret_files
from privinf.accounting import Ledger
from privinf.accounting.journal import Anchor, Head
from privinf.cli import main
from privinf.cli.deployment import private_text
from privinf.cli.pending import _tag, finish
from privinf.errors import StorageError, UnprotectedFilesWarning
from privinf.federation import IdentityKey, SiteLedger
from privinf.federation.server_noise import NoiseFile
from privinf.noise import NoiseKey


class Killed(BaseException):
    """The process ended here."""


# ---- every kind of secret file, and all that can be wrong with it


@pytest.mark.audit
@pytest.mark.parametrize("spoil", FAULTS, ids=lambda spoil: spoil.__name__)
@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_that_is_not_safe_is_refused_with_the_remedy(name, spoil, tmp_path):
    if spoil in GIVEN_AWAY and os.geteuid():
        pytest.skip("only root gives files away")
    secret = SECRETS[name]
    path = secret.make(tmp_path)
    secret.use(path)  # it is good
    spoil(path, secret.kind)
    what, remedy = FAULTS[spoil]
    with pytest.raises(StorageError, match=what) as raised:
        secret.use(path)
    assert raised.match(remedy.format(path=path, folder=path.parent))


@pytest.mark.parametrize("name", [name for name, one in SECRETS.items() if one.kind == "ledger"])
def test_others_may_read_a_ledger(name, tmp_path):
    secret = SECRETS[name]
    path = secret.make(tmp_path)
    path.chmod(0o644)
    secret.use(path)


MAKERS = {
    "identity key": lambda folder: IdentityKey().save(folder / "key"),
    "node key": lambda folder: private_text(folder / "key", "a secret"),
    "noise key": lambda folder: NoiseFile(folder / "key", NoiseKey(), secure=True),
    "ledger": lambda folder: pi.LedgerFile.create(folder / "ledger", LIMIT),
    "site's ledger": lambda folder: SiteLedger(folder / "ledger", LIMIT),
    "anchor": lambda folder: Anchor(folder / "anchor", folder / "ledger").record("id", Head(0, "")),
    "fit": fit,
}


@pytest.mark.parametrize("name", MAKERS)
def test_none_is_made_where_others_can_replace_it(name, tmp_path):
    tmp_path.chmod(0o777)
    with pytest.raises(StorageError, match=f"chmod go-w {tmp_path}"):
        MAKERS[name](tmp_path)
    assert list(tmp_path.iterdir()) == []
    tmp_path.chmod(0o755)
    MAKERS[name](tmp_path)
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_a_link_is_not_written_through(tmp_path):
    (tmp_path / "key").symlink_to("target")
    for make in (MAKERS["identity key"], MAKERS["ledger"]):
        (tmp_path / "ledger").unlink(missing_ok=True)
        (tmp_path / "ledger").symlink_to("target")
        with pytest.raises(StorageError):
            make(tmp_path)
    assert not (tmp_path / "target").exists()


def test_the_folder_of_a_secret_may_be_behind_a_link(tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")
    IdentityKey().save(tmp_path / "link" / "key")
    assert IdentityKey.load(tmp_path / "link" / "key").public
    (tmp_path / "real").chmod(0o777)
    with pytest.raises(StorageError, match="other accounts can change the folder"):
        IdentityKey.load(tmp_path / "link" / "key")


def test_the_private_group_of_an_account_may_write_to_its_folder(tmp_path):
    grp = pytest.importorskip("grp")
    if not secret_files._is_own_group(os.getgid(), tmp_path):
        pytest.skip(f"group {grp.getgrgid(os.getgid()).gr_name} has other members")
    tmp_path.chmod(0o775)
    IdentityKey().save(tmp_path / "key")
    assert not secret_files._is_own_group(OTHER, tmp_path)
    try:  # account 12345 may write too, by a list that shows as permissions of the group
        os.setxattr(tmp_path, "system.posix_acl_access", access_list(OTHER))
    except OSError:
        pytest.skip("the file system has no access control lists")
    assert tmp_path.stat().st_mode & 0o777 == 0o770
    with pytest.raises(StorageError, match=f"chmod go-w {tmp_path}"):
        IdentityKey.load(tmp_path / "key")


def access_list(account):
    """Return a list by which the owner and one other account may do everything, as Linux stores it."""
    nobody = 2**32 - 1
    entries = [(0x01, 7, nobody), (0x02, 7, account), (0x04, 0, nobody), (0x10, 7, nobody), (0x20, 0, nobody)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def test_a_path_with_spaces_is_quoted_in_the_command(tmp_path):
    IdentityKey().save(tmp_path / "my key")
    (tmp_path / "my key").chmod(0o644)
    with pytest.raises(StorageError, match=r"chmod 600 '.*my key'"):
        IdentityKey.load(tmp_path / "my key")


def test_a_file_that_is_replaced_meanwhile_is_read(tmp_path):
    """An anchor is replaced as a whole: a reader may open the old file, which then has no name."""
    anchor = Anchor(tmp_path / "anchor", tmp_path / "ledger")
    anchor.record("id", Head(0, ""))
    stop = threading.Event()

    def replace():
        count = 0
        while not stop.is_set():
            anchor.record("id", Head(count := count + 1, ""))

    writer = threading.Thread(target=replace)
    writer.start()
    try:
        assert all(anchor.read() for _ in range(500))
    finally:
        stop.set()
        writer.join()


# ---- file systems without permissions


@pytest.fixture
def no_permissions(monkeypatch):
    """Show every file as vfat does: open to all, whatever mode it was made with."""
    real = os.fstat

    def shown(handle):
        known = list(real(handle))
        known[stat.ST_MODE] |= 0o777
        return os.stat_result(known)

    secret_files._warning_given.cache_clear()
    monkeypatch.setattr(secret_files.os, "fstat", shown)
    yield
    secret_files._warning_given.cache_clear()


def test_a_file_system_without_permissions_warns_once(tmp_path, no_permissions):
    with pytest.warns(UnprotectedFilesWarning, match="does not store permissions"):
        IdentityKey().save(tmp_path / "key")
    IdentityKey.load(tmp_path / "key")  # a second warning would be an error
    pi.LedgerFile.create(tmp_path / "ledger", LIMIT)
    hard_link(tmp_path / "key", "key")
    with pytest.raises(StorageError, match="hard links"):
        IdentityKey.load(tmp_path / "key")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["key", "ledger", "second"]


# ---- noise keys that are found


@pytest.mark.parametrize("linked", [True, False], ids=["link in an open folder", "file of one's own"])
def test_no_noise_is_drawn_under_a_key_that_was_planted(linked, tmp_path):
    assert refits_under_a_planted_key(tmp_path, linked=linked) == []


def test_a_key_under_which_nothing_was_drawn_is_replaced(tmp_path, monkeypatch):
    with monkeypatch.context() as stopped:
        stopped.setattr("privinf.federation.checkpoint._write_plan", _killed)
        with pytest.raises(Killed):
            fit(tmp_path / "fit")
    names = {path.name for path in (tmp_path / "fit").iterdir()}
    assert names == {"lock", "noise.key", "reservation.npz", "rows.key"}
    before = {name: (tmp_path / "fit" / name).read_bytes() for name in ("noise.key", "rows.key")}
    ledger = Ledger()
    fit(tmp_path / "fit", ledger=ledger)
    for name, content in before.items():
        assert content.splitlines()[0] not in (tmp_path / "fit" / name).read_bytes()
    again = Ledger()
    fit(tmp_path / "fit", ledger=again)  # it is read back
    assert again.entries == ledger.entries


def _killed(*_):
    raise Killed


def test_a_key_whose_lines_are_of_another_fit_is_refused(tmp_path):
    fit(tmp_path / "fit")
    for path in (tmp_path / "fit").glob("*.npz"):
        path.unlink()
    ledger = Ledger()
    with pytest.raises(StorageError, match="belongs to another fit"):
        fit(tmp_path / "fit", ledger=ledger)
    assert len(ledger) == 0


def test_a_server_uses_a_key_that_it_has_drawn_noise_under(tmp_path):
    path = tmp_path / "key"
    first = NoiseFile(path, NoiseKey(), secure=True)
    second = NoiseFile(path, NoiseKey(), secure=True)
    assert first.key.fingerprint != second.key.fingerprint  # nothing was drawn: its own key
    with pytest.raises(StorageError, match="another process replaced"):
        first.commit("question", ("north",), np.zeros(1))
    second.commit("question", ("north",), np.zeros(1))
    assert NoiseFile(path, NoiseKey(), secure=True).key.fingerprint == second.key.fingerprint


# ---- mounted secrets, old ledgers, the doctor


def test_a_mounted_secret_goes_by_its_bytes(tmp_path):
    key = IdentityKey()
    key.save(tmp_path / "..data")
    (tmp_path / "north.key").symlink_to("..data")
    (tmp_path / "..data").chmod(0o444)
    with pytest.raises(StorageError, match="symbolic link"):
        IdentityKey.load(tmp_path / "north.key")
    found = IdentityKey.from_bytes((tmp_path / "north.key").read_bytes())
    assert found.public == key.public
    for content in (b"", b"no key", b"11" * 32, (tmp_path / "..data").read_bytes().replace(b"\n", b"0\n")):
        with pytest.raises(StorageError, match="the content"):
            IdentityKey.from_bytes(content)


def run(*words):
    return CliRunner().invoke(main, [str(word) for word in words], prog_name="privinf")


def test_rows_are_not_spooled_where_others_can_replace_the_file(tmp_path):
    data = {"y": [0.2, 0.4], "x": [1.0, 2.0]}
    tmp_path.chmod(0o757)
    with pytest.raises(StorageError, match=f"chmod go-w {tmp_path}"):
        pi.open_rows(data, spool=tmp_path)
    for mode in (0o1777, 0o700):  # of a sticky folder others cannot replace a file with a random name
        tmp_path.chmod(mode)
        pi.open_rows(data, spool=tmp_path)


def test_a_pipe_in_the_place_of_a_pending_release_is_passed_over(tmp_path):
    account = tmp_path / "study.ledger"
    pending = tmp_path / f".out.npz.{_tag(account)}.00.pending"
    os.mkfifo(pending)
    pending.with_name(pending.name.replace("00", "01")).symlink_to(pending)
    assert finish(tmp_path / "out.npz", Ledger(), account, "asked", overwrite=False) is None
    assert pending.is_fifo()


def test_a_servers_key_that_others_can_read_starts_no_server(tmp_path):
    bundles = []
    for name in ("north", "south"):
        (tmp_path / "rows.csv").write_text("y,x\n0,1\n1,0\n")
        (tmp_path / "schema.json").write_text(json.dumps(pi.Schema({"y": (0, 1), "x": (0, 1)}).to_dict()))
        words = ["--schema", tmp_path / "schema.json", "--epsilon", 1, "--delta", 1e-6]
        made = run("site", "init", name, "--data", tmp_path / "rows.csv", *words, "--folder", tmp_path / name)
        assert made.exit_code == 0, made.output
        bundles.append(tmp_path / name / f"{name}.bundle.json")
    made = run("federation", "init", tmp_path / "hospitals", *bundles)
    assert made.exit_code == 0, made.output
    key = tmp_path / "hospitals" / "server.key"
    key.chmod(0o644)
    refused = run("federation", "up", tmp_path / "hospitals")
    assert refused.exit_code == 2
    assert f"chmod 600 {key}" in refused.output


def test_the_doctor_looks_at_checkpoints(tmp_path):
    folder = tmp_path / "fit.rounds"
    fit(folder)
    well = run("site", "doctor", folder)
    assert (well.exit_code, well.output.strip()) == (0, "no problems found")
    for name in ("noise.key", "rows.key", "reservation.npz", "00000.npz"):
        (folder / name).chmod(0o664)
        found = run("site", "doctor", folder)
        assert found.exit_code == 2
        assert f"error: {folder / name} is accessible to other accounts (mode 664)" in found.output
        assert f"chmod 600 {folder / name}" in found.output
        (folder / name).chmod(0o600)
    folder.chmod(0o777)
    found = run("site", "doctor", folder)
    assert found.exit_code == 2
    assert f"chmod go-w {folder}" in found.output
