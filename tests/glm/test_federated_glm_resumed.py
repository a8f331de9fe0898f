"""A fit that was stopped goes on from its folder: the same result, no line charged twice, here or there."""

from contextlib import ExitStack
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.special import expit
from support.disks import small_files

import privinf as pi
from privinf.errors import AlignmentError, ArgumentError, StorageError
from privinf.federation import Query, TrustedServer
from privinf.federation.checkpoint import CheckpointedServer
from privinf.federation.local import LocalSites
from privinf.federation.secure.server import add_words
from privinf.federation.server_noise import digest_in_folder

DP = pi.DPSGD(epochs=2, batches=4, step=8.0)
BUDGET = pi.Budget(epsilon=2.0, delta=1e-6)


class Killed(BaseException):
    pass


class Watched:
    """A federation that is cut off in question `call`: before anybody has it, or after all have answered."""

    def __init__(self, inner, call=None, *, answered=False):
        self.inner, self.call, self.answered, self.replies = inner, call, answered, []

    @property
    def sites(self):
        return self.inner.sites

    def ask(self, query, sites=None):
        if query.op in ("describe", "reserve", "end"):
            return self.inner.ask(query, sites)
        if len(self.replies) == self.call and not self.answered:
            raise Killed
        self.replies.append(self.inner.ask(query, sites))
        if self.call is not None and len(self.replies) > self.call:
            raise Killed
        return self.replies[-1]


def model_of(ledger=None, seed=0, trust="server"):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (6000, 3))
    y = (rng.uniform(size=6000) < expit(X @ [1.0, -0.5, 0.0])).astype(float)
    sites = [(y[i::3], X[i::3]) for i in range(3)]
    return pi.FederatedGLM.from_arrays(
        sites, bounds=[(-1, 1)] * 3, family="binomial", ledger=ledger, trust=trust
    )


def watched(model, call=None, *, answered=False):
    """Put a watched federation in a model's place of its own; return it."""
    rows = model._rows
    inner = getattr(rows.federation, "inner", rows.federation)
    federation = Watched(inner, call, answered=answered)
    model._rows = replace(rows, federation=federation)
    return federation


def again(model, ledger):
    """Return a model of another coordinator over the same sites."""
    other = pi.FederatedGLM.__new__(pi.FederatedGLM)
    other._rows, other._trust, other.ledger = model._rows, model._trust, ledger
    return other


@pytest.mark.audit
@pytest.mark.parametrize("optimizer", [pi.Newton(), DP], ids=["Newton", "DPSGD"])
@pytest.mark.parametrize("answered", [False, True], ids=["before it is asked", "after it is answered"])
@pytest.mark.parametrize("trust", ["server", "secure-sum"])
@pytest.mark.parametrize("same_process", [True, False], ids=["same process", "another process"])
def test_a_stopped_fit_goes_on(optimizer, answered, trust, same_process, tmp_path):
    settings = {"epsilon": 2.0, "delta": 1e-6, "optimizer": optimizer, "checkpoint": tmp_path / "fit"}
    model = model_of(pi.Ledger(BUDGET), trust=trust)
    first = watched(model, 5, answered=answered)
    with pytest.raises(Killed):
        model.fit(**settings, rng=0)
    spent = model.ledger.entries
    assert len(spent) == 6
    other = model if same_process else again(model, pi.Ledger(BUDGET))
    second = watched(other)
    fit = other.fit(**settings, rng=1)
    count = len(fit.privacy.entries)
    assert len(second.replies) == count - 5
    if trust == "secure-sum" and answered:
        for one, two in zip(first.replies[5], second.replies[0], strict=True):
            assert one.masked.tobytes() == two.masked.tobytes()
    assert fit.privacy.entries[:6] == spent
    assert other.ledger.entries == fit.privacy.entries
    assert len({entry.id for entry in fit.privacy.entries}) == count
    assert fit.privacy.mu == pytest.approx(BUDGET.mu, rel=1e-9)
    for site in second.inner._sites.values():
        assert len(site.ledger) == count
        assert site.ledger.total().mu == pytest.approx(BUDGET.mu, rel=1e-9)
    # all of it can be read back: another noise would give another fit
    read = other.fit(**settings, rng=2)
    np.testing.assert_array_equal(read.params, fit.params)
    np.testing.assert_array_equal(read.cov_params(), fit.cov_params())
    assert len(other.ledger) == count


def test_what_the_sites_sent_before_is_the_release(tmp_path):
    """Secure sums: the noise of the round that was under way is not drawn again."""
    model = model_of(trust="secure-sum")
    first = watched(model, 0, answered=True)
    with pytest.raises(Killed):
        model.fit(epsilon=2.0, delta=1e-6, checkpoint=tmp_path)
    second = watched(model)
    fit = model.fit(epsilon=2.0, delta=1e-6, checkpoint=tmp_path)
    sent = [add_words([reply.masked for reply in replies[0]]) for replies in (first.replies, second.replies)]
    np.testing.assert_array_equal(sent[0], sent[1])
    assert not fit.privacy.simulated
    assert len(fit.privacy.entries) == len(second.inner._sites["0"].ledger) == 9


def test_a_site_that_came_back_is_not_charged_twice(tmp_path):
    model = model_of(trust="secure-sum")
    inner = model._rows.federation
    calls = {"0": [3], "1": []}
    inner._failing = ({name: frozenset(at) for name, at in calls.items()}, {"1": frozenset([3])})
    settings = {"epsilon": 2.0, "delta": 1e-6, "rng": 0, "checkpoint": tmp_path}
    with pytest.raises(AlignmentError, match="sites '0', '1' did not answer"):
        model.fit(**settings)
    fit = model.fit(**settings)
    assert {len(site.ledger) for site in inner._sites.values()} == {len(fit.privacy.entries)}
    assert model.ledger.total().mu == pytest.approx(BUDGET.mu, rel=1e-9)


def test_a_round_under_way_keeps_its_noise_source(tmp_path):
    model = model_of()
    watched(model, 2)
    with pytest.raises(Killed):
        model.fit(epsilon=2.0, delta=1e-6, checkpoint=tmp_path)
    watched(model)
    with pytest.raises(ArgumentError, match="another noise source"):
        model.fit(epsilon=2.0, delta=1e-6, checkpoint=tmp_path, rng=0)
    assert not model.fit(epsilon=2.0, delta=1e-6, checkpoint=tmp_path).privacy.simulated
    assert len(model.ledger) == 9


def test_the_scopes_of_batches_come_back(tmp_path):
    settings = {"epsilon": 2.0, "delta": 1e-6, "optimizer": DP, "checkpoint": tmp_path}
    first = model_of().fit(**settings, rng=0)
    ledger = pi.Ledger().scope("federated study")
    other = model_of(ledger).fit(**settings, rng=0)
    assert other.privacy.mu == pytest.approx(first.privacy.mu)
    assert ledger.total().mu == pytest.approx(first.privacy.mu)


class Filling(Watched):
    """A federation during whose question `call` the disk is full from then on."""

    def __init__(self, inner, call, room):
        super().__init__(inner, call)
        self.room, self.full = room, ExitStack()

    def ask(self, query, sites=None):
        if query.op in ("describe", "reserve", "end"):
            return self.inner.ask(query, sites)
        if len(self.replies) == self.call:
            self.full.enter_context(small_files(self.room))
        self.replies.append(self.inner.ask(query, sites))
        return self.replies[-1]


@pytest.mark.audit
@pytest.mark.parametrize("trust", ["server", "secure-sum"])
def test_a_disk_that_is_full_in_mid_fit_is_told_with_the_charge_and_the_fit_goes_on(trust, tmp_path):
    how = {"epsilon": 2.0, "delta": 1e-6, "rng": 0}
    expected, told = model_of(pi.Ledger(BUDGET), trust=trust).fit(**how), []
    for number, (call, room) in enumerate(product((0, 2), (0, 300, 700, 1500, 2200))):
        folder, model = tmp_path / f"fit {number}", model_of(pi.Ledger(BUDGET), trust=trust)
        rows = model._rows
        filling = Filling(rows.federation, call, room)
        model._rows = replace(rows, federation=filling)
        with filling.full, pytest.raises(StorageError, match=r"\(File too large\)") as raised:
            model.fit(**how, checkpoint=folder)
        told.append(str(raised.value))
        assert len(model.ledger.entries) == call + 1
        assert f"Charges made so far are kept; when all files are in {folder} and it can" in told[-1]
        other = again(model, pi.Ledger(BUDGET))
        filling.call = None
        found = other.fit(**how, checkpoint=folder)
        np.testing.assert_array_equal(found.params, expected.params)
        assert found.privacy.mu == pytest.approx(expected.privacy.mu, rel=1e-12)
        assert len(other.ledger.entries) == len(expected.privacy.entries)
        for site in rows.federation._sites.values():
            assert len(site.ledger.entries) == len(other.ledger.entries)
    assert any("noise.key" in one for one in told) == (trust == "server")
    for name in ("00000.npz", "00001-asked.npz", "00002.npz"):
        assert any(f"/{name} cannot be written" in one for one in told)


def stopped_and_mixed(folder, trust, order, without=()):
    """Stop a fit by batches of own rows, and go on with other rows; return the mu of all in its ledger.

    Files named in `without` are deleted in between.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (600, 2))
    y = (X[:, 0] > 0).astype(float)

    def model(rows):
        parts = {"a": (y[rows][:300], X[rows][:300]), "b": (y[rows][300:], X[rows][300:])}
        if trust != "central":
            return pi.GLM.from_arrays(parts, bounds=[(-1, 1)] * 2, family="binomial", trust=trust)
        return pi.GLM(y[rows], X[rows], bounds=[(-1, 1)] * 2, family="binomial")

    with pytest.MonkeyPatch.context() as patch:
        answer = CheckpointedServer.vector_sum

        def until(server, *args, **words):
            if server._query_count == 2:
                raise Killed
            return answer(server, *args, **words)

        patch.setattr(CheckpointedServer, "vector_sum", until)
        with pytest.raises(Killed):
            model(np.arange(600)).fit(mu=1.0, optimizer=DP, checkpoint=folder)
    for name in without:
        (folder / name).unlink()
    other = model(order)
    other.fit(mu=1.0, optimizer=DP, checkpoint=folder)
    return other.ledger.total().mu


@pytest.mark.audit
@pytest.mark.parametrize("trust", ["central", "server", "secure-sum"])
def test_a_fit_of_own_rows_goes_on_with_these_in_this_order_alone(trust, tmp_path, monkeypatch):
    assert stopped_and_mixed(tmp_path / "same", trust, np.arange(600)) == pytest.approx(1.0)
    for order in (np.arange(600)[::-1], np.roll(np.arange(600), 1), np.zeros(600, dtype=int)):
        with pytest.raises(StorageError, match="with other rows, or with these rows in another order"):
            stopped_and_mixed(tmp_path / str(order[:2]), trust, order)
    assert (tmp_path / "same" / "rows.key").stat().st_mode & 0o077 == 0
    monkeypatch.setattr(
        LocalSites, "digest", lambda sites, key: ""
    )  # the mutant: what is reported is too little
    assert stopped_and_mixed(tmp_path / "any", trust, np.arange(600)[::-1]) == pytest.approx(1.0)


@pytest.mark.parametrize("trust", ["central", "server", "secure-sum"])
def test_a_fit_of_own_rows_does_not_go_on_without_the_checksum_of_its_rows(trust, tmp_path):
    with pytest.raises(StorageError, match=r"rows\.key, which holds a checksum of the fit's rows"):
        stopped_and_mixed(tmp_path / "fit", trust, np.arange(600)[::-1], without=["rows.key"])


def test_a_disk_that_is_full_before_a_fit_charges_nothing(tmp_path):
    model, how = model_of(pi.Ledger(BUDGET)), {"epsilon": 2.0, "delta": 1e-6, "rng": 0}
    for room in (0, 100, 700, 1500):
        with small_files(room), pytest.raises(StorageError, match="File too large"):
            model.fit(**how, checkpoint=tmp_path / "fit")
        assert not model.ledger.entries
    expected = model_of(pi.Ledger(BUDGET)).fit(**how)
    np.testing.assert_array_equal(model.fit(**how, checkpoint=tmp_path / "fit").params, expected.params)


def test_another_fit_and_damaged_files_are_refused(tmp_path):
    settings = {"epsilon": 2.0, "delta": 1e-6, "checkpoint": tmp_path, "rng": 0}
    model = model_of()
    watched(model, 6)
    with pytest.raises(Killed):
        model.fit(**settings)
    for changed in ({"epsilon": 3.0}, {"optimizer": DP}, {"relation": "zero-out"}):
        with pytest.raises(StorageError, match="another fit"):
            model_of().fit(**settings | changed)
    with pytest.raises(StorageError, match="another fit"):
        model_of(trust="secure-sum").fit(**settings)
    for name in ("00006-asked.npz", "00003.npz"):
        (tmp_path / name).write_bytes(b"damaged")
        with pytest.raises(StorageError, match="not a privinf file"):
            model_of().fit(**settings)


def test_a_release_is_planned_without_a_charge():
    model = model_of()
    server = TrustedServer(model._rows.federation, rng=0)
    args = model._rows.model | {"theta": np.zeros(3)}
    planned = server.planned("glm.score", args, label="score", mu=0.5)
    assert len(server.ledger) == 0
    found = server.release(planned)
    assert (server.ledger.entries, found.mu) == ((planned.entry,), 0.5)


@pytest.mark.parametrize("trust", ["server", "secure-sum"])
@pytest.mark.parametrize("answered", [False, True], ids=["before it is asked", "after it is answered"])
def test_a_fit_goes_on_where_the_linear_algebra_has_other_last_bits(trust, answered, tmp_path, monkeypatch):
    settings = {"epsilon": 2.0, "delta": 1e-6, "optimizer": pi.Newton(), "checkpoint": tmp_path / "fit"}
    model = model_of(pi.Ledger(BUDGET), trust=trust)
    watched(model, 3, answered=answered)
    with pytest.raises(Killed):
        model.fit(**settings)
    ask = CheckpointedServer.vector_sum

    def elsewhere(self, op, args, **more):
        moved = args | {
            name: args[name] * (1.0 + 3e-16) for name in ("theta",) if np.any(args.get(name, 0.0))
        }
        return ask(self, op, moved, **more)

    monkeypatch.setattr(CheckpointedServer, "vector_sum", elsewhere)
    on = again(model, model.ledger)
    second = watched(on)
    fit = on.fit(**settings)
    assert len(second.replies) == (count := len(fit.privacy.entries)) - 3
    assert on.ledger.entries == fit.privacy.entries
    for site in second.inner._sites.values():
        assert len(site.ledger) == count


def test_a_question_is_known_by_six_digits():
    args = {"theta": np.array([0.1, -2.5, 1e-17]), "clip": 3.7, "bits": 20, "name": "a", "at": np.arange(3)}

    def known(**more):
        return digest_in_folder(Query("score", args=args | more), "words")

    moved = {"theta": args["theta"] * (1 + 4e-16) - [0, 0, 3e-17], "clip": np.nextafter(3.7, 4.0)}
    assert known(**moved) == known()
    others = [{"theta": args["theta"] + 1e-4}, {"clip": 3.7001}, {"bits": 21}, {"at": np.arange(1, 4)}]
    assert len({known(**other) for other in [{}, *others]}) == len(others) + 1


def test_bounds_that_differ_beyond_six_digits_are_another_fit(tmp_path):
    settings = {"epsilon": 2.0, "delta": 1e-6, "optimizer": pi.Newton(), "checkpoint": tmp_path / "fit"}
    rng = np.random.default_rng(0)
    sites = [((X := rng.uniform(-1, 1, (2000, 2)))[:, 0] > 0, X) for _ in range(2)]
    for high in (1.0, 1.0 + 1e-9):
        model = pi.FederatedGLM.from_arrays(sites, bounds=[(-1, 1), (-1, high)], family="binomial")
        if high == 1.0:
            model.fit(**settings)
        else:
            with pytest.raises(StorageError, match="another fit"):
                model.fit(**settings)
