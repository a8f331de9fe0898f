"""Noise belongs to its question: no repeat, restart or restored file draws a second one for the same sum."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest
from redraws import (
    ARGS,
    BUDGET,
    OPEN,
    again,
    federation_of,
    model_of,
    nothing,
    over,
    restarts,
    rows_of,
    shared_noise,
)

import privinf as pi
from privinf.accounting import GaussianLoss, Ledger, LedgerEntry
from privinf.accounting.ledger import MemoryAccount
from privinf.errors import (
    AlignmentError,
    ArgumentError,
    BudgetExceededError,
    NotAvailableError,
    StorageError,
)
from privinf.federation import (
    InProcessFederation,
    SecureServer,
    Site,
    SitePolicy,
    TrustedServer,
    server_noise,
)
from privinf.federation.planned import at_site, query_digest_of, with_query_digest
from privinf.federation.server_noise import NoiseFile, NoiseMemory
from privinf.noise import LatticeNoise, NoiseKey, OpenDPNoise, SimulationNoise
from privinf.storage.folders import SealedFolder

KEY = NoiseKey(bytes(range(32)))


def planned_by(server, **options):
    return server.planned("column_sums", ARGS, **{"mu": 0.5, "label": "sums"} | options)


# ---- repeats at one server


def test_a_second_question_is_new_noise_and_a_new_charge():
    server = TrustedServer(federation_of())
    first, second = (server.vector_sum("column_sums", ARGS, mu=0.5, label="sums") for _ in range(2))
    assert (first.values != second.values).all()
    assert len(server.ledger) == 2
    picks = [server.top_k("column_sums", ARGS, 2, rho=0.5, label="top") for _ in range(2)]
    assert (np.sort(picks[0].values) != np.sort(picks[1].values)).any()
    assert len(server.ledger) == 6


def test_noise_is_shared_by_no_two_answers():
    assert shared_noise(KEY) == []


@pytest.mark.parametrize(
    ("left_out", "found"),
    [
        ("query_digest", ["another label", "another price", "another place"]),
        ("roster", ["another roster"]),
        ("total", ["another sum"]),
    ],
)
def test_streams_without_one_of_their_arguments_are_found(left_out, found, monkeypatch):
    true = NoiseKey.stream

    def stream(self, query_digest, roster, total):
        told = {"query_digest": query_digest, "roster": roster, "total": total}
        return true(
            self, **told | {left_out: {"query_digest": "", "roster": (), "total": np.empty(0)}[left_out]}
        )

    monkeypatch.setattr(NoiseKey, "stream", stream)
    assert shared_noise(KEY) == found


def test_releases_carry_their_lines():
    server = TrustedServer(federation_of())
    found = server.vector_sum("column_sums", ARGS, mu=0.5, label="sums")
    some = server.vector_sum("column_sums", ARGS, mu=0.5, label="some", sites=["north"])
    top = server.top_k("column_sums", ARGS, 1, rho=0.5, label="top")
    scalar = server.scalar("residual_sum", {"residual_clip": 1.0}, mu=0.5, label="sum")
    quantile = server.histogram_quantile({"edges": np.array([0.1, 1.0, 3.0])}, level=0.5, mu=1.0, label="q")
    released = (found, some, top, scalar, quantile)
    assert sum((one.entries for one in released), ()) == server.ledger.entries
    assert all(one.secure for one in released)
    assert {entry.noise["key"] for entry in server.ledger.entries} == {server._noise.memory.key.fingerprint}
    assert some.entries[0].scope == (f"site in session {server._rounds.session}=north",)
    assert 0.1 <= float(quantile) <= 3.0


# ---- the line is looked up, all of it


def forged(planned, **changes):
    """Return a plan under the same id whose line says something else."""
    line = replace(planned.entry, **changes)
    told = replace(planned.query, charges=(line.to_dict(),))
    told = with_query_digest(told)
    line = LedgerEntry.from_dict(told.charges[0])
    return replace(planned, query=told, scale=line.noise["scale"], mu=line.loss.mu)


def released_under_an_old_id(ledger):
    """Ask sites that remember nothing for a dearer release, under the id of a cheap one."""
    first = TrustedServer(federation_of(), ledger=ledger)
    planned = planned_by(first, mu=0.1)
    first.release(planned)
    server = TrustedServer(federation_of(), ledger=ledger)
    server._noise.memory = first._noise.memory
    noise = {**planned.entry.noise, "scale": planned.scale / 50.0}
    return again(server, forged(planned, loss=GaussianLoss(5.0), noise=noise))


def test_another_line_under_an_old_id_is_refused():
    ledger = Ledger()
    with pytest.raises(ArgumentError, match="id is already in the ledger"):
        released_under_an_old_id(ledger)
    assert ledger.total().mu == pytest.approx(0.1)


def test_a_look_up_by_the_id_alone_is_found(monkeypatch):
    monkeypatch.setattr(MemoryAccount, "holds", lambda self, entry: entry.id in self._entries)
    ledger = Ledger()
    assert released_under_an_old_id(ledger).mu == 5.0
    assert ledger.total().mu == pytest.approx(0.1)


def released_for_another_question(server):
    """Ask other things under a line that stands; sites take them for new questions, and charge them."""
    planned = planned_by(server)
    server.release(planned)
    query = planned.query
    asked = replace(query, args={**query.args, "columns": np.array([1, 0])}, sequence=query.sequence + 1)
    return server.release(replace(planned, query=asked))


@pytest.mark.parametrize("secure", [False, True], ids=["trusted", "secure sum"])
def test_a_line_pays_for_its_question_alone(secure):
    whole = model_of("secure-sum")._rows.federation
    server = SecureServer(whole) if secure else TrustedServer(federation_of())
    with pytest.raises(ArgumentError, match="another query"):
        released_for_another_question(server)
    if secure:
        planned = planned_by(server)
        for changed in ({"session": "another"}, {"args": {**planned.query.args, "bits": 30}}):
            with pytest.raises(ArgumentError, match="another query"):
                server.release(replace(planned, query=replace(planned.query, **changed)))
    assert len(server.ledger) == 1


def test_a_line_that_names_no_question_is_found(monkeypatch):
    monkeypatch.setattr(server_noise, "verified_digest", lambda planned: query_digest_of(planned.query))
    server = TrustedServer(federation_of())
    released_for_another_question(server)
    assert len(server.ledger) == 1


def test_a_plan_must_say_what_its_line_says():
    server = TrustedServer(federation_of())
    planned = planned_by(server)
    for wrong in (replace(planned, scale=planned.scale / 9), replace(planned, mu=planned.mu / 9)):
        with pytest.raises(ArgumentError, match="differs from the noise"):
            server.release(wrong)
    assert len(server.ledger) == 0


def test_releases_of_some_sites_are_looked_up_in_their_scopes():
    server = TrustedServer(federation_of())
    planned = planned_by(server, sites=["south"])
    answers = {server.release(planned).values.tobytes() for _ in range(3)}
    assert len(answers) == len(server.ledger) == 1
    assert server.ledger.entries[0].id != planned.entry.id
    # a charge that broke off half-way is made up for, not repeated
    both = TrustedServer(three())
    planned = planned_by(both, sites=["south", "west"])
    partition = f"site in session {planned.query.session}"
    both.ledger.scope("south", disjoint=partition).spend(at_site(planned.entry, "south"))
    answers = {both.release(planned).values.tobytes() for _ in range(2)}
    assert (len(answers), len(both.ledger)) == (1, 2)


def three():
    inner = federation_of()
    design = inner._sites["north"].design
    return InProcessFederation(inner._sites | {"west": Site(rows_of(40, 2), design, policy=OPEN)})


def test_opendp_releases_once():
    pytest.importorskip("opendp")
    server = TrustedServer(federation_of(), noise=OpenDPNoise())
    planned = planned_by(server)
    assert server.release(planned).secure
    with pytest.raises(NotAvailableError, match="cannot be drawn again"):
        server.release(planned)
    with pytest.raises(ArgumentError, match="cannot be drawn again"):
        server.remember("nowhere")
    assert len(server.ledger) == 1


# ---- another sum, another roster


def kept_by(path, federation, ledger, **options):
    server = TrustedServer(federation, ledger=ledger, **options)
    server.remember(path)
    return server


def test_another_sum_under_one_question_is_refused(tmp_path):
    ledger = Ledger()
    server = kept_by(tmp_path / "key", federation_of(), ledger)
    planned = planned_by(server)
    server.release(planned)
    changed = kept_by(tmp_path / "key", federation_of(second=nothing(90)), ledger)
    with pytest.raises(NotAvailableError, match="another sum"):
        changed.release(planned)
    assert len(ledger) == 1


def test_an_answer_that_is_not_stored_is_found(tmp_path, monkeypatch):
    ledger = Ledger()
    server = kept_by(tmp_path / "key", federation_of(), ledger)
    server.release(planned_by(server))  # a key under which nothing was drawn would be replaced
    monkeypatch.setattr(NoiseFile, "_write", lambda self, line: None)
    planned = planned_by(server)
    first = server.release(planned)
    changed = kept_by(tmp_path / "key", federation_of(second=nothing(90)), ledger)
    assert (changed.release(planned).values != first.values).all()  # a second answer, for one charge
    assert len(ledger) == 2


def test_an_answer_is_stored_before_its_noise_is_drawn(tmp_path, monkeypatch):
    class Stopped(BaseException):
        pass

    def stop(self, stream):
        raise Stopped

    ledger = Ledger()
    server = kept_by(tmp_path / "key", federation_of(), ledger)
    planned = planned_by(server)
    with monkeypatch.context() as patched:
        patched.setattr(LatticeNoise, "at", stop)
        with pytest.raises(Stopped):
            server.release(planned)
    assert len(NoiseFile(tmp_path / "key")) == len(ledger) == 1
    with pytest.raises(NotAvailableError, match="another sum"):
        kept_by(tmp_path / "key", federation_of(second=nothing(90)), ledger).release(planned)
    restarted = kept_by(tmp_path / "key", federation_of(), ledger)
    assert restarted.release(planned).entries == ledger.entries


def test_another_roster_is_a_new_question_and_charged(tmp_path):
    ledger = Ledger()
    server = kept_by(tmp_path / "key", federation_of(), ledger, missing="continue")
    planned = planned_by(server)
    whole = server.release(planned)
    fewer = federation_of(drop_outs={"south": {1}})
    restarted = kept_by(tmp_path / "key", fewer, ledger, missing="continue")
    left = restarted.release(planned)
    assert (whole.sites, left.sites) == (("north", "south"), ("north",))
    assert len(ledger) == 2
    assert left.entries == ledger.entries[1:]
    assert [len(site.ledger) for site in fewer._sites.values()] == [2, 0]
    strict = kept_by(tmp_path / "key", federation_of(drop_outs={"south": {1}}), ledger)
    with pytest.raises(AlignmentError, match="did not answer"):
        strict.release(planned)


def test_the_first_answer_may_lack_a_site(tmp_path):
    server = kept_by(tmp_path / "key", federation_of(drop_outs={"south": {1}}), None, missing="continue")
    planned = planned_by(server)
    found = [server.release(planned) for _ in range(3)]
    assert {one.sites for one in found} == {("north",)}
    assert len({one.values.tobytes() for one in found}) == len(server.ledger) == 1


# ---- keys


def test_a_line_of_another_key_is_refused(tmp_path):
    ledger = Ledger()
    server = kept_by(tmp_path / "key", federation_of(), ledger)
    planned = planned_by(server)
    server.release(planned)
    for other in (
        TrustedServer(federation_of(), ledger=ledger),
        kept_by(tmp_path / "k2", federation_of(), ledger),
    ):
        with pytest.raises(StorageError, match="deleted or replaced"):
            other.release(planned)
    for other in (
        TrustedServer(federation_of(), rng=0),
        TrustedServer(federation_of(), noise=SimulationNoise(0)),
    ):
        with pytest.raises(ArgumentError, match="another noise source"):
            other.release(planned)
    assert len(ledger) == 1


def test_a_key_file_is_secret_and_of_one_kind(tmp_path):
    path = tmp_path / "key"
    server = kept_by(path, federation_of(), None)
    assert path.stat().st_mode & 0o777 == 0o600
    assert server._noise.memory.key.secret_bytes().hex() in path.read_text()
    with pytest.raises(ArgumentError, match="another noise source"):
        kept_by(path, federation_of(), None, rng=0)
    server.release(planned_by(server))
    with pytest.raises(ArgumentError, match="before the server's first release"):
        server.remember(tmp_path / "other")
    assert [name for name in os.listdir(tmp_path)] == ["key"]
    with pytest.raises(TypeError, match="cannot be pickled"):
        server._noise.memory.__reduce__()


def test_a_damaged_key_file_is_refused(tmp_path):
    path = tmp_path / "key"
    server = kept_by(path, federation_of(), None)
    for _ in range(3):
        server.vector_sum("column_sums", ARGS, mu=0.5, label="sums")
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(150):
        damaged = bytearray(whole)
        damaged[rng.integers(len(whole))] ^= 1 << rng.integers(8)
        path.write_bytes(damaged)
        try:
            found = NoiseFile(path)
        except StorageError:
            continue
        assert len(found) == 2  # the last line's end was hit: it counts as not written
        assert found.key.fingerprint == server._noise.memory.key.fingerprint
    lines = [json.loads(line) for line in whole.decode().splitlines()]
    for lost in (
        {},
        [],
        lines[1:],
        [lines[0] | {"secure": False}, *lines[1:]],
        [*lines, lines[1] | {"answer": ""}],
    ):
        path.write_text("".join(json.dumps(line) + "\n" for line in lost))
        with pytest.raises(StorageError):
            NoiseFile(path)
    path.write_bytes(whole + b'{"question": "torn')
    torn = NoiseFile(path)
    torn.commit("another", (), np.zeros(1))
    assert len(NoiseFile(path)) == len(torn) == 4
    path.unlink()
    with pytest.raises(StorageError, match="missing"):
        NoiseFile(path)


def test_memory_tells_answers_apart():
    kept = NoiseMemory(KEY, secure=True)
    kept.commit("q", ("a",), np.ones(2))
    kept.commit("q", ("a",), np.ones(2))
    assert len(kept) == 1
    assert kept.fits("other", ("a",), np.zeros(2))
    for other in ((("b",), np.ones(2)), (("a",), np.zeros(2))):
        assert not kept.fits("q", *other)
        with pytest.raises(NotAvailableError, match="already used"):
            kept.commit("q", *other)


def test_a_site_takes_the_fingerprint_in_a_line():
    server = TrustedServer(federation_of(policy=SitePolicy(trusted_server=True)))
    server.vector_sum("column_sums", ARGS, mu=0.5, label="sums")
    sites = server._rounds.federation._sites.values()
    assert [site.ledger.entries[0].noise["key"] for site in sites] == [
        server._noise.memory.key.fingerprint
    ] * 2


# ---- seeds


def test_equal_seeds_give_equal_noise_whatever_else_is_random():
    one, again_, other = (
        [TrustedServer(federation_of(), rng=seed).vector_sum("column_sums", ARGS, mu=0.5, label="s").values]
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, again_)
    assert (one[0] != other[0]).all()
    server = TrustedServer(federation_of(), rng=1)
    first, second = (server.vector_sum("column_sums", ARGS, mu=0.5, label="s").values for _ in range(2))
    np.testing.assert_array_equal(first, one[0])
    assert (first != second).all()
    # a sum that differs in its last bits has the same noise
    rows, X = rows_of(90, 1)
    near = TrustedServer(federation_of(second=(rows, X + 2.0**-40)), rng=1)
    np.testing.assert_allclose(
        near.vector_sum("column_sums", ARGS, mu=0.5, label="s").values, first, atol=1e-8
    )


# ---- restarts of a fit


@pytest.mark.audit
@pytest.mark.parametrize("trust", ["server", "secure-sum"])
@pytest.mark.parametrize("new_ledger", [False, True], ids=["same ledger", "new ledgers"])
def test_a_restarted_fit_is_the_same_fit(trust, new_ledger, tmp_path):
    estimates, first, ledger = restarts(6, tmp_path, trust=trust, new_ledger=new_ledger)
    assert len(estimates) == 1
    if not new_ledger:
        # what was brought back was charged; what was deleted as a question too is newly charged
        assert first.privacy.entries == ledger.entries[: len(first.privacy.entries)]


def test_folder_and_files_are_secret(tmp_path):
    where = tmp_path / "fit"
    model_of().fit(**BUDGET, checkpoint=where)
    assert where.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in where.iterdir()} == {0o600}
    assert "noise.key" in os.listdir(where)


def test_a_deleted_or_foreign_key_is_refused(tmp_path):
    where, other = tmp_path / "fit", tmp_path / "other"
    model = model_of()
    model.fit(**BUDGET, checkpoint=where)
    model_of().fit(**BUDGET, checkpoint=other)
    spent = len(model.ledger)
    (where / "noise.key").write_bytes((other / "noise.key").read_bytes())
    with pytest.raises(StorageError, match="does not belong to the noise key"):
        model.fit(**BUDGET, checkpoint=where)
    (where / "noise.key").unlink()
    with pytest.raises(StorageError, match=r"noise\.key, the secret key .*, is missing"):
        model.fit(**BUDGET, checkpoint=where)
    assert len(model.ledger) == spent
    with pytest.raises(ArgumentError, match="another noise source"):
        model_of().fit(**BUDGET, checkpoint=other, rng=0)


@pytest.mark.audit
def test_seeded_fits_are_reproducible_and_go_on(tmp_path):
    fits = [
        model_of(trust).fit(**BUDGET, rng=5).params for trust in ("server", "secure-sum") for _ in range(2)
    ]
    np.testing.assert_array_equal(fits[0], fits[1])
    np.testing.assert_array_equal(fits[2], fits[3])
    model_of().fit(**BUDGET, rng=5, checkpoint=tmp_path / "fit")
    for path in sorted((tmp_path / "fit").glob("?????.npz"))[4:]:
        path.unlink()
    restarted = model_of().fit(**BUDGET, rng=5, checkpoint=tmp_path / "fit")
    np.testing.assert_array_equal(restarted.params, fits[0])


# ---- the budget is checked before a fit, whatever lies in its folder


@pytest.mark.audit
def test_the_check_asks_for_what_is_unspent(tmp_path):
    budget = pi.Budget(**BUDGET)
    model = model_of(ledger=pi.Ledger(budget))
    fit = model.fit(**BUDGET, checkpoint=tmp_path)
    # nothing is left of the budget, and nothing is asked for
    np.testing.assert_array_equal(model.fit(**BUDGET, checkpoint=tmp_path).params, fit.params)
    for path in sorted(tmp_path.glob("?????.npz"))[3:]:
        path.unlink()
    part = pi.Ledger(budget)
    part.spend(*fit.privacy.entries[:3])
    over(model, part).fit(**BUDGET, checkpoint=tmp_path)
    assert len(part) == len(fit.privacy.entries)
    for path in sorted(tmp_path.glob("?????.npz"))[3:]:
        path.unlink()
    # other spending is in the way: of six lines none is asked for
    full = pi.Ledger(budget)
    full.spend(*fit.privacy.entries[:3], replace(fit.privacy.entries[4], id="other"))
    with pytest.raises(BudgetExceededError):
        over(model, full).fit(**BUDGET, checkpoint=tmp_path)
    assert len(full) == 4
    # lines of which the ledger holds only the ids are unspent
    fake = pi.Ledger(budget)
    fake.spend(*(replace(entry, loss=GaussianLoss(1e-3)) for entry in fit.privacy.entries[:3]))
    with pytest.raises((BudgetExceededError, ArgumentError)):
        over(model, fake).fit(**BUDGET, checkpoint=tmp_path)
    assert len(fake) == 3


class Killed(BaseException):
    """Not an error that a fit could catch."""


def test_the_check_counts_a_release_once_whose_query_was_left_beside_it(tmp_path, monkeypatch):
    """A run that is killed between the two files leaves one ledger line in both."""
    model = model_of(ledger=pi.Ledger(pi.Budget(**BUDGET)))
    with monkeypatch.context() as patched:
        patched.setattr(SealedFolder, "remove", raising)
        with pytest.raises(Killed):
            model.fit(**BUDGET, checkpoint=tmp_path)
    assert {"00000.npz", "00000-asked.npz"} <= set(os.listdir(tmp_path))
    other = replace(model.ledger.entries[0], id="other", loss=GaussianLoss(0.5 * model.ledger.total().mu))
    model.ledger.spend(other)
    spent = len(model.ledger)
    with pytest.raises(BudgetExceededError):
        model.fit(**BUDGET, checkpoint=tmp_path)
    assert len(model.ledger) == spent


def raising(*_):
    raise Killed
