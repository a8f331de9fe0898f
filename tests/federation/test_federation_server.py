"""TrustedServer: pooled sums, noise as stated, ledgers, parallel sites, drop-outs, and nothing un-noised."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from federation_sites import NAMES, OPEN, design_of, federation_of, pooled, rows_of
from scipy import stats
from support.instrument import RecordingNoise
from support.leaks import find_raw_values

import privinf as pi
from privinf.accounting import Budget, GaussianLoss, Ledger, compose
from privinf.errors import (
    AlignmentError,
    ArgumentError,
    BudgetExceededError,
    NotAvailableError,
    SensitivityError,
)
from privinf.federation import InProcessFederation, Site, SitePolicy, TrustedServer
from privinf.federation.curator import Curator
from privinf.federation.planned import with_query_digest
from privinf.federation.policy import StatedPolicy
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.opened import OpenedRows
from privinf.mechanisms.rows import Rows
from privinf.mechanisms.statistics.block import SiteBlock
from privinf.mechanisms.statistics.isometric import ROOT2_BELOW, from_isometric
from privinf.noise import LatticeNoise, SimulationNoise, grid_step
from studies.paper.statistics import PAPER_OPS

BETA = {"support": np.array([0, 2]), "beta": np.array([0.9, -0.4])}
SCORE = BETA | {"columns": np.array([0, 1]), "clip": 1.5, "residual_clip": 0.8}
EDGES = {"edges": np.geomspace(0.02, 3.0, 40)}


def server_of(federation=None, **options):
    return TrustedServer(federation or federation_of(), **{"noise": SimulationNoise(0)} | options)


def truth(op, args, data=None):
    y, X = pooled() if data is None else data
    ends = np.full(4, 2.0)
    return SITE_OPS[op].total(
        SiteBlock(features=X, response=y, low=-ends, high=ends, response_low=-3.0, response_high=3.0), args
    )


def test_the_server_knows_what_is_public():
    server = server_of()
    assert server.sites == ("north", "south")
    assert server.rows == {"north": 200, "south": 400}
    assert server.nobs == 600
    assert server.design.names == tuple(NAMES)
    assert not server.secure
    assert TrustedServer(federation_of()).secure
    assert pi.federation.TrustedServer is TrustedServer


def test_without_noise_it_is_the_pooled_sum():
    server = server_of()
    for op, args in (
        ("clipped_products", BETA | {"bound": 0.5}),
        ("clipped_score", SCORE),
        ("residual_histogram", EDGES),
    ):
        found = server.vector_sum(op, args, rho=math.inf, label=op)
        np.testing.assert_allclose(found.values, truth(op, args), rtol=1e-12)
        assert found.scale == 0.0
    args = {"columns": np.arange(3), "bound": 1.0}
    gram = server.gram(args, mu=math.inf, label="gram")
    np.testing.assert_allclose(gram.values, from_isometric(truth("union_gram", args)))
    top = server.top_k(
        "clipped_products", BETA | {"bound": 0.5}, 2, rho=math.inf, label="top", factor=1 / 600
    )
    mean = truth("clipped_products", BETA | {"bound": 0.5}) / 600
    assert top.support.tolist() == np.argsort(-np.abs(mean))[:2].tolist()
    np.testing.assert_allclose(top.values, mean[top.support])
    assert server.ledger.total().rho == math.inf


@pytest.mark.audit
@pytest.mark.parametrize("source", [lambda: SimulationNoise(3), LatticeNoise], ids=["seeded", "secure"])
def test_the_noise_is_what_the_ledger_says(source):
    noise = RecordingNoise(source())
    server = server_of(noise=noise)
    errors = []
    for _ in range(400):
        found = server.vector_sum("clipped_score", SCORE, mu=0.5, label="score")
        assert found.scale == pytest.approx(2.0 * 1.5 * 0.8 / 0.5, rel=1e-4)
        errors.append((found.values - truth("clipped_score", SCORE)) / found.scale)
    assert stats.kstest(np.ravel(errors), "norm").pvalue > 1e-5
    assert {call.scale for call in noise.of("perturb")} == {found.scale}
    assert len(server.ledger) == 400
    assert server.ledger.total().mu == pytest.approx(10.0)
    assert found.mean_sd == pytest.approx(found.scale / 600)
    if noise.secure:
        steps = found.values / grid_step(found.scale)
        np.testing.assert_array_equal(steps, np.rint(steps))


@pytest.mark.audit
def test_gram_noise_is_isotropic():
    server = server_of()
    args = {"columns": np.arange(3), "bound": 1.0}
    noise = np.array([server.gram(args, mu=1.0, label="gram").mean for _ in range(1500)])
    noise -= from_isometric(truth("union_gram", args)) / 600
    gram = server.gram(args, mu=1.0, label="gram")
    assert gram.scale == pytest.approx(math.sqrt(2.0) * 3.0, rel=1e-6)
    z = noise / gram.entry_sd
    for entry in zip(*np.triu_indices(3), strict=True):
        assert stats.kstest(z[:, *entry], "norm").pvalue > 1e-5
    assert gram.entry_sd[0, 1] == pytest.approx(gram.entry_sd[0, 0] / ROOT2_BELOW)


@pytest.mark.audit
def test_scalar_and_quantile():
    server = server_of()
    args = BETA | {"residual_clip": 1.0}
    found = server.scalar("squared_residuals", args, mu=50.0, label="variance")
    assert found.mean.shape == ()
    assert float(found.mean) == pytest.approx(truth("squared_residuals", args)[0] / 600, abs=6.0 / 50 / 600)
    with pytest.raises(ArgumentError, match="returns several numbers"):
        server.scalar("clipped_score", SCORE, mu=1.0, label="score")
    y, X = pooled()
    r = np.abs(np.clip(y, -3, 3) - np.clip(X, -2, 2)[:, [0, 2]] @ BETA["beta"])
    for level in (0.2, 0.5, 0.9):
        found = server.histogram_quantile(BETA | EDGES, level=level, mu=math.inf, label="scale")
        assert found == pytest.approx(np.quantile(r, level), rel=0.04)
        noisy = server.histogram_quantile(BETA | EDGES, level=level, mu=1.0, label="scale")
        assert noisy == pytest.approx(found, rel=0.25)
    for level, end in ((1e-6, 0.02), (1 - 1e-9, 3.0)):
        found = server.histogram_quantile(
            {"intercept": 0.0, **EDGES} | {"edges": np.array([0.02, 0.03, 3.0])},
            level=level,
            mu=math.inf,
            label="scale",
        )
        assert found == pytest.approx(end, abs=1e-2) or level > 0.5
    with pytest.raises(ArgumentError):
        server.histogram_quantile(EDGES, level=1.0, mu=1.0, label="scale")


def test_top_k_by_rows_offsets_and_candidates():
    server = server_of()
    args = {"targets": np.array([0, 3]), "bound": 1.0}
    allowed = np.ones((2, 4), dtype=bool)
    allowed[[0, 1], [0, 3]] = False
    top = server.top_k("column_products", args, 2, rho=5.0, label="neighbours", candidates=allowed)
    assert top.support.shape == (2, 2)
    assert 0 not in top.support[0]
    assert 3 not in top.support[1]
    assert server.ledger.total().rho == pytest.approx(10.0)
    assert server.ledger.entries[0].noise["vectors"] == 2
    server = server_of(federation_of(OPEN.naming(PAPER_OPS)))
    offset = np.array([0.0, 900.0, 0.0, -800.0])
    moved = server.top_k(
        "paper_gradient",
        BETA | {"column_bound": 1.0, "residual_clip": 1.0, "form": "residual"},
        2,
        rho=50.0,
        label="step",
        offset=offset,
        factor=-0.1,
    )
    assert moved.support.tolist() == [1, 3]
    entry = server.ledger.entries[-2]
    assert entry.sensitivity.value == pytest.approx(0.2, rel=1e-6)
    laplace = server.top_k(
        "clipped_products", BETA | {"bound": 0.5}, 1, epsilon=2.0, delta=1e-5, method="laplace", label="paper"
    )
    assert laplace.scale == pytest.approx(2.0 * math.sqrt(3.0 * math.log(1e5)) / 2.0, rel=1e-6)


def test_every_ledger_agrees():
    federation = federation_of()
    server = server_of(federation, ledger=Ledger(name="record"))
    server.vector_sum("clipped_score", SCORE, mu=0.3, label="score")
    server.top_k("clipped_products", BETA | {"bound": 0.5}, 2, rho=0.2, label="top")
    server.vector_sum("clipped_score", SCORE, mu=0.4, label="score", sites=["north"])
    totals = {name: site.ledger.total().rho for name, site in federation._sites.items()}
    assert totals["north"] == pytest.approx(0.045 + 0.2 + 0.08)
    assert totals["south"] == pytest.approx(0.045 + 0.2)
    assert server.ledger.total().rho == pytest.approx(totals["north"])
    assert [entry.label for entry in server.ledger.entries] == ["score", "top", "top, values", "score"]


def test_disjoint_sites_are_charged_in_parallel():
    server = server_of()
    for name, mu in (("north", 0.6), ("south", 0.8)):
        found = server.vector_sum("clipped_score", SCORE, mu=mu, label="own", sites=[name])
        assert found.rows == server.rows[name]
        assert found.sites == (name,)
    assert server.ledger.total().mu == pytest.approx(0.8)
    server.vector_sum("clipped_score", SCORE, mu=0.6, label="all")
    assert server.ledger.total().mu == pytest.approx(1.0)
    three = server_of(federation_of(sizes=(50, 60, 70)))
    three.vector_sum("clipped_score", SCORE, mu=0.5, label="two of them", sites=["north", "west"])
    assert three.ledger.total().mu == pytest.approx(0.5)
    assert len(three.ledger) == 2
    exact = three.vector_sum("clipped_score", SCORE, rho=math.inf, label="x", sites=["south"])
    np.testing.assert_allclose(exact.values, truth("clipped_score", SCORE, rows_of(60, 1)))


def test_sites_of_other_servers_may_be_the_same_people_by_other_names():
    ledger = Ledger()
    for names in (("north", "south"), ("women", "men"), ("south", "north")):
        parts = {name: Site(rows_of(50, seed), design_of(), policy=OPEN) for seed, name in enumerate(names)}
        server = server_of(InProcessFederation(parts), ledger=ledger)
        for name in names:
            server.vector_sum("clipped_score", SCORE, mu=0.5, label="own", sites=[name])
    assert ledger.total().mu == pytest.approx(0.5 * math.sqrt(3.0))


@pytest.mark.audit
def test_that_it_is_public_who_is_where_is_said_of_several_sites():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (60, 2)), rng.uniform(-1, 1, 60)
    words = {"bounds": [(-1, 1)] * 2, "y_bounds": (-1, 1)}
    one = pi.OLS(y, X, **words).fit(epsilon=1.0, delta=1e-5, rng=0, intervals="optional").privacy
    assert not any("machine a record is at" in text for text in one.assumptions)
    for trust in ("server", "secure-sum"):
        parties = {"a": (y[:30], X[:30]), "b": (y[30:], X[30:])}
        model = pi.OLS.from_arrays(parties, trust=trust, **words)
        fit = model.fit(epsilon=1.0, delta=1e-5, rng=0, intervals="optional")
        assert all(any("machine a record is at" in one for one in e.assumptions) for e in fit.privacy.entries)
    top = server_of().top_k("column_sums", {"columns": [0, 1], "bound": 1.0}, 1, rho=0.1, label="top")
    assert any("machine a record is at" in text for text in top.entries[0].assumptions)


def test_multipliers_differ_between_sites_and_are_public():
    args = SCORE | {"transform": np.eye(2), "draws": 3, "law": "rademacher", "seed": 5}
    rows = rows_of(100, 0)
    sites = {name: Site(rows, design_of(), policy=OPEN) for name in ("north", "south")}
    server = server_of(InProcessFederation(sites))
    one, two = (
        server.vector_sum("multiplier_scores", args, rho=math.inf, label="draws", sites=[name]).values
        for name in sites
    )
    assert one.shape == (3, 2)
    assert not np.allclose(one, two)
    again = server.vector_sum("multiplier_scores", args, rho=math.inf, label="draws", sites=["north"])
    np.testing.assert_array_equal(again.values, one)


def test_rows_that_are_dropped_leave_no_places_to_go_by():
    """A multiplier or a batch goes by a row's place: complete rows move up where others are dropped."""
    y, X = rows_of(100, 0)
    X[7, 1] = np.nan
    site = Site(Rows(X, y, "drop"), design_of(), policy=OPEN)
    ledger = Ledger()
    args = SCORE | {"transform": np.eye(2), "draws": 3, "law": "rademacher", "seed": 5}
    batch = {"family": "binomial", "theta": np.zeros(4), "radius": 4.0, "clip": 1.0}
    batch |= {"batches": 4, "batch": 1, "seed": 3}
    block = SiteBlock.from_rows(design_of(), OpenedRows(Rows(X, y, "drop"), design_of()))
    assert len(block) == 99
    curator = Curator(block, name="own", ledger=ledger, rng=0, size=100)
    for op, given in (("multiplier_scores", args), ("glm.sketched_score", batch)):
        server = server_of(InProcessFederation({"north": site}), ledger=ledger)
        with pytest.raises(ArgumentError, match="depends on the order of the rows"):
            server.vector_sum(op, given, mu=1.0, label="by places")
        with pytest.raises(ArgumentError, match="depends on the order of the rows"):
            curator.vector_sum(op, given, mu=1.0, label="by places")
    assert curator.nobs == 100
    assert not site.ledger.entries


def test_limits_hold_before_anything_is_asked():
    class Untouchable(InProcessFederation):
        def ask(self, query, sites=None):
            assert query.op == "describe"
            return super().ask(query, sites)

    federation = Untouchable({"north": Site(rows_of(50, 0), design_of(), policy=OPEN)})
    server = server_of(federation, ledger=Ledger(Budget(mu=0.5)))
    with pytest.raises(BudgetExceededError):
        server.vector_sum("clipped_score", SCORE, mu=0.6, label="score")
    for call in (
        lambda: server.vector_sum("nothing", {}, mu=0.1, label="x"),
        lambda: server.vector_sum("clipped_score", SCORE | {"bits": 3}, mu=0.1, label="x"),
        lambda: server.vector_sum("clipped_score", SCORE | {"clip": -1.0}, mu=0.1, label="x"),
        lambda: server.vector_sum("clipped_score", SCORE | {"f": lambda: 0}, mu=0.1, label="x"),
        lambda: server.vector_sum("clipped_score", SCORE, label="x"),
        lambda: server.vector_sum("clipped_score", SCORE, mu=0.1, rho=0.1, label="x"),
        lambda: server.vector_sum("clipped_score", SCORE, mu=0.1, label="x", sites=["east"]),
        lambda: server.vector_sum("clipped_score", SCORE, mu=0.1, label="x", sites=[]),
        lambda: server.top_k("clipped_products", {"bound": 1.0}, 5, rho=0.1, label="x"),
        lambda: server.top_k("clipped_products", {"bound": 1.0}, 0, rho=0.1, label="x"),
        lambda: server.top_k("clipped_products", {"bound": 1.0}, 1, rho=0.1, label="x", factor=0.0),
        lambda: server.top_k("clipped_products", {"bound": 1.0}, 1, rho=0.1, label="x", offset=np.ones(3)),
        lambda: server.top_k(
            "clipped_products", {"bound": 1.0}, 1, rho=0.1, label="x", candidates=np.zeros(4, bool)
        ),
    ):
        with pytest.raises(ArgumentError):
            call()
    with pytest.raises(ArgumentError, match="not one string"):
        server.vector_sum("clipped_score", SCORE, mu=0.1, label="x", sites="north")
    assert len(server.ledger) == 0


def test_a_site_over_its_limit_is_named():
    rows = rows_of(50, 0)
    sites = {
        "north": Site(rows, design_of(), policy=OPEN),
        "south": Site(rows, design_of(), policy=OPEN, ledger=Ledger(Budget(mu=0.1))),
    }
    server = server_of(InProcessFederation(sites))
    with pytest.raises(BudgetExceededError, match="site 'south'"):
        server.vector_sum("clipped_score", SCORE, mu=0.6, label="score")


def test_seeded_noise_needs_simulation_at_every_site():
    """A server is refused before its own ledger is charged, and before a site has reserved anything."""
    strict = federation_of(SitePolicy(trusted_server=True))
    server = server_of(strict)
    with pytest.raises(NotAvailableError, match=r"site 'north'.*seeded"):
        server.vector_sum("clipped_score", SCORE, mu=0.6, label="score")
    with pytest.raises(NotAvailableError, match=r"site 'north'.*seeded"):
        server.top_k("clipped_score", SCORE, 1, mu=0.6, label="score")
    with pytest.raises(NotAvailableError, match=r"site 'north'.*seeded"):
        server.reserve([GaussianLoss(0.6)], "fit", 1)
    exact = TrustedServer(strict)
    assert exact.vector_sum("clipped_score", SCORE, mu=0.6, label="s").scale > 0.0
    with pytest.raises(NotAvailableError, match="without noise"):
        exact.vector_sum("clipped_score", SCORE, mu=math.inf, label="score")
    assert (len(server.ledger), len(exact.ledger)) == (0, 1)
    assert [site.ledger.remaining() for site in strict._sites.values()] == [None, None]
    assert [len(site.journal.reservations) for site in strict._sites.values()] == [0, 0]


def test_sums_without_noise_are_refused_before_the_charge():
    """A site that allows only secure sums: nothing is charged or reserved, at the server or at a site."""
    strict = federation_of(SitePolicy(secure_sums=True, simulation=True))
    server = server_of(strict)
    refused = r"site 'north'.*does not allow sums without noise.*trust='secure-sum'"
    with pytest.raises(NotAvailableError, match=refused):
        server.vector_sum("clipped_score", SCORE, mu=0.6, label="score")
    with pytest.raises(NotAvailableError, match=refused):
        server.top_k("clipped_score", SCORE, 1, mu=0.6, label="score")
    with pytest.raises(NotAvailableError, match=refused):
        server.reserve([GaussianLoss(0.6)], "fit", 1)
    assert len(server.ledger) == 0
    assert [len(site.journal.reservations) for site in strict._sites.values()] == [0, 0]


@pytest.mark.parametrize(
    ("rule", "message"),
    [({"largest_rho": 0.05}, "largest_rho"), ({"operations": ("column_sums",)}, "statistic 'clipped_score'")],
    ids=["price", "statistic"],
)
def test_a_release_that_a_policy_forbids_is_refused_before_the_charge(rule, message):
    policies = {"north": OPEN, "south": SitePolicy(trusted_server=True, simulation=True, **rule)}
    sites = {name: Site(rows_of(50, 0), design_of(), policy=policy) for name, policy in policies.items()}
    server = server_of(InProcessFederation(sites))
    for call in (
        lambda: server.vector_sum("clipped_score", SCORE, mu=0.6, label="score"),
        lambda: server.top_k("clipped_score", SCORE, 1, mu=0.6, label="score"),
    ):
        with pytest.raises(NotAvailableError, match=f"site 'south': .*{message}"):
            call()
    assert [len(ledger) for ledger in (server.ledger, *(site.ledger for site in sites.values()))] == [0, 0, 0]
    server.vector_sum("column_sums", {"columns": [0, 1], "bound": 1.0}, mu=0.2, label="sums")
    server.vector_sum("clipped_score", SCORE, mu=0.6, label="score", sites=["north"])
    assert len(sites["north"].ledger) == 2
    assert len(sites["south"].ledger) == 1


def test_rules_that_a_site_does_not_state_refuse_nothing_at_the_server():
    assert StatedPolicy.from_facts({}) == StatedPolicy()
    wrong = {"min_sites": "3", "max_colluding": True, "largest_rho": "1", "operations": "x", "simulation": 0}
    assert StatedPolicy.from_facts(wrong) == StatedPolicy()
    for policy in (SitePolicy(), SitePolicy(largest_rho=2.0, operations=("column_sums",), max_colluding=1)):
        stated = json.loads(json.dumps(policy.stated, allow_nan=False))
        rules = StatedPolicy.from_facts(stated)
        assert all(getattr(rules, name) == getattr(policy, name) for name in stated)


def test_only_the_sites_of_a_release_must_allow_its_noise():
    policies = {"north": SitePolicy(trusted_server=True), "south": OPEN}
    sites = {name: Site(rows_of(50, 0), design_of(), policy=policy) for name, policy in policies.items()}
    server = server_of(InProcessFederation(sites))
    server.vector_sum("clipped_score", SCORE, mu=0.6, label="score", sites=["south"])
    with pytest.raises(NotAvailableError, match=r"site 'north'.*seeded"):
        server.vector_sum("clipped_score", SCORE, mu=0.6, label="score")
    assert len(server.ledger) == 1


def test_drop_outs():
    # call 0 is the introduction
    with pytest.raises(AlignmentError, match=r"site 'south'.* did not answer"):
        server_of(federation_of(drop_outs={"south": {1}})).vector_sum(
            "clipped_score", SCORE, mu=0.6, label="score"
        )
    federation = federation_of(lost_replies={"south": {1}})
    server = server_of(federation, missing="continue")
    found = server.vector_sum("clipped_score", SCORE, rho=math.inf, label="score")
    assert found.sites == server.sites == ("north",)
    assert found.rows == server.nobs == 200
    np.testing.assert_allclose(found.values, truth("clipped_score", SCORE, rows_of(200, 0)))
    assert len(federation._sites["south"].ledger) == 1  # it answered: the charge stands on both sides
    silent = server_of(federation_of(drop_outs={"north": {1}, "south": {1}}), missing="continue")
    with pytest.raises(AlignmentError, match="did not answer"):
        silent.vector_sum("clipped_score", SCORE, mu=0.6, label="score")
    with pytest.raises(AlignmentError, match=r"site 'north'.* did not answer"):
        server_of(federation_of(drop_outs={"north": {0}}))
    with pytest.raises(ArgumentError, match="missing"):
        server_of(missing="ignore")


class Lying(InProcessFederation):
    """A transport whose second site answers something else."""

    def ask(self, query, sites=None):
        replies = super().ask(query, sites)
        if query.op != "describe":
            object.__setattr__(replies[-1], "sums", self.lie(replies[-1].sums))
        return replies


@pytest.mark.parametrize("lie", [lambda x: x[:-1], lambda x: x * np.nan], ids=["shape", "nan"])
def test_answers_that_do_not_fit_are_refused(lie):
    sites = {name: Site(rows_of(50, 0), design_of(), policy=OPEN) for name in ("north", "south")}
    federation = Lying(sites)
    federation.lie = lie
    with pytest.raises(AlignmentError, match="site 'south' sent a reply"):
        server_of(federation).vector_sum("clipped_score", SCORE, mu=0.6, label="score")


def test_a_release_planned_with_another_version_is_refused_before_its_charge():
    server = TrustedServer(federation_of())
    planned = server.planned("clipped_score", SCORE, label="score", mu=1.0)
    older = with_query_digest(replace(planned.query, version=1))
    with pytest.raises(NotAvailableError, match="version 1 of the statistic 'clipped_score'"):
        server.release(replace(planned, query=older))
    assert not server.ledger.entries
    server.release(planned)


def test_too_little_noise_for_the_grid():
    with pytest.raises(SensitivityError, match="too large relative to its noise"):
        TrustedServer(federation_of()).vector_sum("clipped_score", SCORE, mu=1e15, label="score")


@pytest.mark.audit
def test_no_public_member_holds_a_rows_number():
    federation = federation_of()
    server = TrustedServer(federation)
    kept = [
        server.vector_sum("clipped_products", BETA | {"bound": 0.5}, mu=0.5, label="products"),
        server.top_k("clipped_products", BETA | {"bound": 0.5}, 2, rho=0.2, label="top"),
        server.gram({"columns": np.arange(3), "bound": 1.0}, mu=0.5, label="gram"),
        server.ledger.to_json(),
        [getattr(server, name) for name in ("sites", "rows", "nobs", "secure")],
        server.design.to_dict(),
    ]
    y, X = pooled()
    assert find_raw_values(kept, np.concatenate([y, X.ravel()])) == []
    exact = [
        truth("clipped_products", BETA | {"bound": 0.5}),
        truth("union_gram", {"columns": np.arange(3), "bound": 1.0}),
    ]
    assert find_raw_values(kept, np.concatenate(exact)) == []
    assert not [name for name in vars(server) if not name.startswith("_") and name != "ledger"]


def test_whole_price():
    """Raw noise calls add up to the ledger."""
    noise = RecordingNoise(SimulationNoise(0))
    server = server_of(noise=noise)
    server.vector_sum("clipped_score", SCORE, mu=0.3, label="score")
    server.top_k("clipped_products", BETA | {"bound": 0.5}, 2, rho=0.2, label="top", factor=1 / 600)
    server.scalar("squared_residuals", {"residual_clip": 1.0}, rho=0.1, label="variance")
    score, values, square = noise.of("perturb")
    reach = {score: 2 * 1.5 * 0.8, values: math.sqrt(2) * 1.0 / 600, square: 1.0}
    rho = sum((size / call.scale) ** 2 / 2 for call, size in reach.items())
    rho += sum((1.0 / 600 / call.scale) ** 2 / 2 for call in noise.of("gumbel"))
    assert len(noise.of("gumbel")) == 2
    assert rho == pytest.approx(compose([entry.loss for entry in server.ledger.entries]).rho, rel=1e-6)
