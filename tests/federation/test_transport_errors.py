"""What goes wrong at one site, on every transport: an error that names it, never its data; and going on."""

from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest
from glm_sites import NAMES, POLICY, SCHEMA, TRUSTS, Doors, model_of, sites_of, table

import privinf as pi
from privinf.errors import (
    AlignmentError,
    ArgumentError,
    BudgetExceededError,
    NotAvailableError,
    SensitivityError,
)
from privinf.federation import InProcessFederation, SecureServer, Site, SiteDaemon, SiteLedger, pinned_keys
from privinf.federation.flower import FlowerFederation, client_app
from privinf.mechanisms.catalogue import SITE_OPS

THREE = NAMES[:3]
BAD = THREE[1]
FIT = {"epsilon": 8.0, "delta": 1e-5, "optimizer": pi.Newton(rounds=1), "rng": 0}


class Silenced:
    """A federation one of whose sites does not answer from a certain question on."""

    def __init__(self, inner, call):
        self.inner, self.call, self.asked = inner, call, 0

    @property
    def sites(self):
        return self.inner.sites

    def ask(self, query, sites=None):
        self.asked += query.op.startswith("glm")
        replies = self.inner.ask(query, sites)
        return [reply for reply in replies if reply.site != BAD or self.asked <= self.call]


@pytest.fixture(params=["in process", "sockets", "flower"])
def connect(request, tmp_path, monkeypatch):
    """Return the way from sites to a federation, by one transport."""
    with ExitStack() as stack:

        def by_sockets(sites):
            for name, site in sites.items():
                stack.enter_context(SiteDaemon(site, name, tmp_path / name).started())
            return Doors(tmp_path, list(sites))

        def by_flower(sites):
            local = pytest.importorskip("local_grid")
            local.act_as_runner(monkeypatch)
            app = client_app(lambda config: (config["site"], sites[config["site"]]))
            grid = local.LocalGrid(app, [{"site": name} for name in sites])
            return FlowerFederation(grid, list(sites), timeout=600.0)

        ways = {"in process": InProcessFederation, "sockets": by_sockets, "flower": by_flower}
        yield ways[request.param]


def refused(kind, told, sites, connect, trust="secure-sum"):
    """Fit, and check the error: its kind and words, and no number of a row in it."""
    with pytest.raises(kind, match=told) as caught:
        model_of(connect(sites), trust).fit(**FIT)
    for value in np.ravel(table()[["u", "v"]]):
        assert f"{value:.6f}"[:-1] not in str(caught.value)


@pytest.mark.parametrize("trust", TRUSTS)
def test_other_bounds(connect, trust):
    other = pi.Schema({"y": (0.0, 1.0), "u": (-1.0, 2.0), "v": (-1.0, 1.0)})
    sites = sites_of(THREE, schemas={BAD: other})
    told = f"site '{BAD}'.* differ from"
    refused(AlignmentError, told, sites, connect, trust)
    assert not any(len(site.ledger) for site in sites.values())


class Newer(Site):
    """A site whose server has a later version of a statistic."""

    __slots__ = ()

    def handle(self, query, name):
        return super().handle(replace(query, version=query.version + 1), name)


class Older(Site):
    """A site whose package does not know a statistic yet."""

    __slots__ = ()

    def handle(self, query, name):
        return super().handle(replace(query, op=query.op.replace("glm.", "later.")), name)


@pytest.mark.parametrize(
    ("kind", "error", "told"),
    [
        (Newer, NotAvailableError, f"site '{BAD}': the site has version 2 of the statistic 'glm.score'"),
        (Older, ArgumentError, f"site '{BAD}': there is no statistic named 'later.score'"),
    ],
    ids=["another version", "an older package"],
)
@pytest.mark.parametrize("trust", TRUSTS)
def test_other_versions_of_the_package(connect, kind, error, told, trust):
    sites = sites_of(THREE, kinds={BAD: kind})
    refused(error, told, sites, connect, trust)
    assert len(sites[BAD].ledger) == 0


class Broken(Site):
    """A site that sends what is no number."""

    __slots__ = ()

    def handle(self, query, name):
        reply = super().handle(query, name)
        return replace(reply, sums=np.full_like(reply.sums, np.nan)) if query.op == "glm.score" else reply


def test_a_sum_that_is_not_finite(connect):
    sites = sites_of(THREE, kinds={BAD: Broken})
    refused(AlignmentError, f"site '{BAD}' sent a reply that does not match", sites, connect, "server")


def test_a_statistic_that_is_not_finite_never_leaves_its_site(connect, monkeypatch):
    def undefined(block, args):
        return np.full(3, np.nan)

    monkeypatch.setitem(SITE_OPS, "glm.score", replace(SITE_OPS["glm.score"], function=undefined))
    refused(SensitivityError, f"site '{THREE[0]}': .* nothing was sent", sites_of(THREE), connect)


def test_a_roster_below_the_minimum(connect):
    sites = sites_of(THREE, policies={BAD: replace(POLICY, min_sites=4)})
    refused(NotAvailableError, f"site '{BAD}': .* at least 4 sites", sites, connect)
    assert len(sites[BAD].ledger) == 0


def test_a_grid_too_coarse_for_so_many_numbers_is_refused_before_anybody_is_asked(connect):
    sites = sites_of(THREE)
    server = SecureServer(
        connect(sites), design=pi.Design.from_formula("y ~ u + v", SCHEMA), grid_bits=2, rng=0
    )
    with pytest.raises(SensitivityError, match="too small to release 3 numbers as a secure sum"):
        server.vector_sum("column_sums", {"columns": [0, 1, 2], "bound": 1.0}, mu=1e-3, label="sums")
    assert not any(len(site.ledger) for site in sites.values())
    assert len(server.ledger) == 0


def test_a_budget_that_is_spent_at_one_site(connect):
    spent = pi.Ledger(pi.Budget(epsilon=1.0, delta=1e-5))
    sites = sites_of(THREE, ledgers={BAD: spent})
    refused(BudgetExceededError, f"site '{BAD}': .* would exceed the limit", sites, connect)


@pytest.mark.audit
@pytest.mark.parametrize("trust", TRUSTS)
def test_a_fit_that_lost_a_site_goes_on_when_it_is_back(connect, trust, tmp_path):
    with ExitStack() as stack:
        places = {name: tmp_path / f"{name}.ledger" for name in THREE}
        ledgers = {name: stack.enter_context(SiteLedger(path)) for name, path in places.items()}
        sites = sites_of(THREE, ledgers=ledgers)
        whole = connect(sites)
        kept = tmp_path / "fit"
        with pytest.raises(AlignmentError, match=f"site '{BAD}'.* did not answer"):
            model_of(Silenced(whole, 3), trust).fit(**FIT, checkpoint=kept)
        fit = model_of(whole, trust).fit(**FIT, checkpoint=kept)
        expected = model_of(InProcessFederation(sites_of(THREE)), trust).fit(**FIT)
        labels = [entry.label for entry in fit.privacy.entries]
        assert len(labels) == len(expected.privacy.entries) == 5
        for site in sites.values():
            assert [entry.label for entry in site.ledger.entries] == labels
            assert site.ledger.total().mu == pytest.approx(fit.privacy.mu)


@pytest.mark.audit
@pytest.mark.parametrize("trust", TRUSTS)
def test_a_daemon_that_ended_and_its_successor(trust, tmp_path, monkeypatch):
    """Over Flower: the server starts anew, the site from its files, and what both had is paid for once."""
    local = pytest.importorskip("local_grid")
    local.act_as_runner(monkeypatch)
    pinned, kept = pinned_keys(NAMES), tmp_path / "fit"
    configs = [{"site": name, "socket": str(tmp_path / name)} for name in THREE]
    settings = {**FIT, "rng": None, "checkpoint": kept}

    def served(name):
        ledger = SiteLedger(tmp_path / f"{name}.ledger")
        site = sites_of([name], pinned=pinned, ledgers={name: ledger})[name]
        return ledger, SiteDaemon(site, name, tmp_path / name).started()

    def federation():
        return FlowerFederation(local.LocalGrid(client_app(), configs), THREE, timeout=2.0, patience=600.0)

    running = {name: served(name) for name in THREE}

    class Ending:
        """A federation that loses a daemon before its third sum."""

        def __init__(self):
            self.inner, self.sums = federation(), 0
            self.sites = self.inner.sites

        def ask(self, query, sites=None):
            self.sums += query.op.startswith("glm")
            if self.sums == 3:
                ledger, daemon = running[BAD]
                daemon.stop()
                ledger.close()
            return self.inner.ask(query, sites)

    try:
        with pytest.raises(AlignmentError, match=f"site '{BAD}'.* did not answer"):
            model_of(Ending(), trust).fit(**settings)
        running[BAD] = served(BAD)
        fit = model_of(federation(), trust).fit(**settings)
        assert not fit.privacy.simulated
        for ledger, _ in running.values():
            assert [entry.label for entry in ledger.entries] == [entry.label for entry in fit.privacy.entries]
            assert ledger.total().mu == pytest.approx(fit.privacy.mu)
    finally:
        for ledger, daemon in running.values():
            daemon.stop()
            ledger.close()


def test_another_version_of_the_package(connect, monkeypatch):
    sites, described = sites_of(THREE), Site.description

    def older(site):
        return described(site) | ({"version": "0.0.9"} if site is sites[BAD] else {})

    monkeypatch.setattr(Site, "description", older)
    refused(AlignmentError, f"site '{BAD}' has privinf 0.0.9, .*install the same", sites, connect)


def test_a_site_that_was_started_again_goes_on_beside_the_others():
    used = sites_of(THREE)
    model_of(InProcessFederation(used), "secure-sum").fit(**FIT)
    again = InProcessFederation(used | {BAD: sites_of(THREE)[BAD]})
    assert again.sites == tuple(THREE)
