"""A trusted server whose account is a file, a memory or staged: some sites, repeats, folders, replays."""

import sys
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import pytest

import privinf as pi
from privinf.accounting import Budget, Ledger, ReleasedNumber
from privinf.accounting.files import LedgerFile
from privinf.cli.pending import StagedLedger
from privinf.errors import BudgetExceededError, PrivinfError, UnchargedError
from privinf.federation import TrustedServer
from privinf.federation.noisy import NoisySum
from privinf.releases import Release
from privinf.wire import Places

# First: benchmarks, which other tests put on the path, have a module redraws too.
sys.path.insert(0, str(Path(__file__).parents[1] / "privacy"))
sys.path.append(str(Path(__file__).parents[1] / "glm"))
from record_replay import audit
from redraws import ARGS, federation_of, rows_of
from replay_fits import allowed, run_of
from test_federated_glm_resumed import Killed, model_of, watched

LIMIT = Budget(rho=4.5)
KINDS = {
    "memory": lambda path, limit=LIMIT: Ledger(limit),
    "file": lambda path, limit=LIMIT: LedgerFile(path, limit),
    "staged": lambda path, limit=LIMIT: StagedLedger(LedgerFile(path, limit)),
}


@pytest.fixture(params=KINDS)
def ledger(request, tmp_path):
    return KINDS[request.param](tmp_path / "study.ledger")


@pytest.mark.parametrize("sites", [["north"], ["north", "south"]], ids=["some sites", "all sites"])
def test_a_release_carries_its_lines_and_is_repeated_at_no_charge(ledger, sites):
    server = TrustedServer(federation_of(), ledger=ledger)
    planned = server.planned("column_sums", ARGS, mu=0.5, label="sums", sites=sites)
    first = server.release(planned)
    assert first.entries == ledger.entries
    assert len(ledger) == 1
    assert first.secure
    assert first.loss.mu == pytest.approx(0.5)
    assert first.privacy.epsilon(1e-6) == pytest.approx(ledger.total().epsilon(1e-6))
    second = server.release(planned)
    assert (second.values == first.values).all()
    assert second.entries == first.entries
    assert len(ledger) == 1


def test_seeded_noise_of_some_sites_is_stamped(ledger):
    server = TrustedServer(federation_of(), ledger=ledger, rng=0)
    some = server.vector_sum("column_sums", ARGS, mu=0.5, label="sums", sites=["south"])
    assert some.stamp == "SIMULATION NOISE: NOT PRIVATE"
    assert "NOT PRIVATE" in repr(some)
    top = server.top_k("column_sums", ARGS, 1, rho=0.5, label="top", sites=["south"])
    assert [entry.scope for entry in top.entries] == [
        (f"{Places.SITES_OF_SESSION.format(session=server._rounds.session)}=south",)
    ] * 2
    assert top.stamp == some.stamp


def test_sites_are_parallel_and_the_limit_is_asked_before_them(ledger):
    federation = federation_of()
    server = TrustedServer(federation, ledger=ledger)
    for site in ("north", "south"):
        server.vector_sum("column_sums", ARGS, mu=2.0, label="sums", sites=[site])
    assert ledger.total().mu == pytest.approx(2.0)
    asked = federation.ask
    federation.ask = lambda *given: pytest.fail("a site was asked")
    with pytest.raises(BudgetExceededError, match="'more' would exceed"):
        server.vector_sum("column_sums", ARGS, mu=2.5, label="more", sites=["north"])
    federation.ask = asked
    assert len(ledger) == 2


@pytest.mark.audit
@pytest.mark.parametrize(
    "optimizer", [pi.Newton(), pi.DPSGD(epochs=2, batches=4, step=8.0)], ids=["Newton", "DPSGD"]
)
@pytest.mark.parametrize("answered", [False, True], ids=["before it is asked", "after it is answered"])
def test_a_stopped_fit_goes_on_and_pays_nothing_twice(ledger, optimizer, answered, tmp_path):
    settings = {"epsilon": 2.0, "delta": 1e-6, "optimizer": optimizer, "checkpoint": tmp_path / "fit"}
    model = model_of(ledger)
    watched(model, 5, answered=answered)
    with pytest.raises(Killed):
        model.fit(**settings, rng=0)
    stopped = ledger.entries
    assert len(stopped) == 6
    watched(model)
    fit = model.fit(**settings, rng=1)
    assert ledger.entries[: len(stopped)] == stopped
    assert fit.privacy.entries == ledger.entries
    assert len({entry.id for entry in ledger.entries}) == len(ledger)
    again = model.fit(**settings, rng=2)
    assert (again.params == fit.params).all()
    assert again.privacy.entries == ledger.entries


@pytest.mark.parametrize("kind", KINDS)
def test_replays_of_some_sites_show_no_more_than_their_lines(kind, tmp_path):
    files = (tmp_path / f"{number}.ledger" for number in count())

    def run(world, ledger):
        y, X = rows_of(90, 1)
        X[0] = [2.0, 2.0] if world else [-2.0, -2.0]
        server = TrustedServer(federation_of(second=(y, X)), ledger=ledger)
        return server.vector_sum("column_sums", ARGS, mu=0.5, label="sums", sites=["south"])

    found = audit(run, account=lambda: KINDS[kind](next(files)))
    assert found.complaints == []
    assert found.releases == 1
    assert len(found.ledger) == 1
    assert found.share > 0.5


@pytest.mark.audit
@pytest.mark.parametrize("name", ["MomentOLS central", "FederatedGLM binomial, server"])
@pytest.mark.parametrize("kind", ["file", "staged"])
def test_fits_replay_on_a_neighbour_as_with_a_ledger_in_memory(kind, name, tmp_path):
    files = (tmp_path / f"{number}.ledger" for number in count())
    wide = Budget(rho=1000.0)
    account = partial(KINDS[kind], limit=wide)
    found = audit(run_of(name), allowed=allowed(name), account=lambda: account(next(files)))
    assert found.complaints == []
    assert found.releases


class Forgetful(Ledger):
    """A ledger that keeps nothing of what is spent."""

    def spend(self, *entries):
        return ()


@pytest.mark.parametrize("sites", [["north"], None], ids=["some sites", "all sites"])
def test_noise_without_a_line_is_an_error(sites):
    server = TrustedServer(federation_of(), ledger=Forgetful())
    with pytest.raises(UnchargedError, match="no entry in its ledger"):
        server.vector_sum("column_sums", ARGS, mu=0.5, label="sums", sites=sites)


def test_every_kind_of_release_needs_a_line():
    design = pi.Design.from_arrays(["x"], bounds=[(-1, 1)], y_bounds=(-1, 1))
    assert issubclass(UnchargedError, PrivinfError)
    for made in (
        lambda: NoisySum(values=np.zeros(1), rows=9, sites=("north",), scale=1.0, mu=0.5, entries=()),
        lambda: ReleasedNumber(1.0, (), 0.5),
        lambda: Release(kind="moments", arrays={}, noise_model={}, design=design, entries=(), nobs=9),
    ):
        with pytest.raises(UnchargedError, match="privinf ledger show"):
            made()


def test_a_release_without_noise_has_its_line_too(ledger):
    unlimited = Ledger() if type(ledger) is Ledger else StagedLedger(Ledger())
    server = TrustedServer(federation_of(), ledger=unlimited)
    exact = server.vector_sum("column_sums", ARGS, mu=np.inf, label="sums", sites=["north"])
    assert exact.stamp == "NO NOISE: NOT PRIVATE"
    assert len(exact.entries) == 1
