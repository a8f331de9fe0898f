"""Secure sums: exact in integers, with the noise and the price that they state."""

import math
import pickle
import time

import numpy as np
import pytest
from federation_sites import design_of, rows_of
from secure_sites import SCORE, SECURE, SIMULATED, THREE, Tapped, secure_federation, secure_query, sites_of
from support.speed import slowness

import privinf as pi
from privinf.accounting import ConcentratedLoss, GaussianLoss, Ledger
from privinf.errors import AlignmentError, ArgumentError, NotAvailableError, SensitivityError, StorageError
from privinf.federation import (
    InProcessFederation,
    Reply,
    SecureServer,
    Site,
    SitePolicy,
    TrustedServer,
)
from privinf.federation.secure.masking import plan_sum
from privinf.federation.secure.server import masked_sum
from privinf.federation.secure.site import quantised, read_terms
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.statistics.summands import Ball
from studies.simulation import binomial_limits

FIVE = ("a", "b", "c", "d", "e")


def pooled_total(federation, op="clipped_score", args=SCORE):
    return sum(SITE_OPS[op].total(site._placed(name), args) for name, site in federation._sites.items())


def test_without_noise_it_is_the_sum():
    federation = secure_federation(policy=SIMULATED)
    found = SecureServer(federation).vector_sum("clipped_score", SCORE, mu=math.inf, label="score")
    np.testing.assert_allclose(found.values, pooled_total(federation), rtol=0, atol=1e-12)
    assert (found.scale, found.mu, found.rows, found.sites) == (0.0, math.inf, 210, THREE)
    assert not federation._sites["north"].ledger.entries[0].secure


def test_the_sum_is_exact_in_integers(monkeypatch):
    from privinf.federation import site as site_module

    sent = []

    def kept(steps, terms, name):
        noisy = original(steps, terms, name)
        sent.append(noisy.view(np.int64))
        return noisy

    original = site_module.noisy_words
    monkeypatch.setattr(site_module, "noisy_words", kept)
    federation = secure_federation(FIVE)
    query = secure_query(federation, mu=0.7, max_colluding=1)
    rows = {name: len(site) for name, site in federation._sites.items()}
    found = masked_sum(federation, query, 4, rows)
    assert len(sent) == 5
    np.testing.assert_array_equal(found.steps, sum(sent))
    terms = read_terms(query, federation._sites["a"].ledger.entries[0])
    for name, noisy in zip(FIVE, sent, strict=True):
        exact = SITE_OPS["clipped_score"].total(federation._sites[name]._placed(name), query.args)
        assert 0.0 < np.abs(noisy - quantised(exact, terms, rows[name], 3.0)).max() < 6.0 * terms.sigma


def shares_of_bits(words):
    """Return the share of ones, and the share of neighbouring bits that differ, of words of 64 bits."""
    bits = (words[:, np.newaxis] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    return bits.mean(), (bits[:, 1:] != bits[:, :-1]).mean()


def test_what_leaves_a_site_looks_uniform(monkeypatch):
    """Masks use keys of the operating system, so one run in a hundred million may fail by chance."""
    from privinf.federation import site as site_module

    unmasked = []
    original = site_module.noisy_words

    def kept(steps, terms, name):
        unmasked.append(original(steps, terms, name))
        return unmasked[-1]

    monkeypatch.setattr(site_module, "noisy_words", kept)
    federation = Tapped(secure_federation())
    server = SecureServer(federation)
    for _ in range(40):
        server.vector_sum("column_sums", {"columns": [0, 1, 2, 3], "bound": 2.0}, mu=1.0, label="sums")
    words = np.concatenate([reply.masked for replies in federation.replies for reply in replies])
    assert words.size == 480
    assert all(reply.sums.size == 0 for replies in federation.replies for reply in replies)
    for share, pairs in zip(shares_of_bits(words), (64, 63), strict=True):
        low, high = binomial_limits(0.5, pairs * words.size, 1.0 - 5e-9)
        assert low <= share <= high
    assert shares_of_bits(np.concatenate(unmasked).view(np.uint64))[1] < 0.3  # what no mask hides


@pytest.mark.audit
@pytest.mark.parametrize("colluding", [0, 2])
def test_the_noise_is_what_it_states(colluding):
    federation = secure_federation(tuple("abcdefghij"), rows=20)
    server = SecureServer(federation, max_colluding=colluding)
    record_sensitivity = SITE_OPS["clipped_score"].record_sensitivity(SCORE, 4)
    exact = pooled_total(federation)
    found = [server.vector_sum("clipped_score", SCORE, mu=1.0, label="score") for _ in range(60)]
    assert found[0].scale ** 2 / record_sensitivity.l2**2 == pytest.approx(10 / (10 - colluding), rel=2e-5)
    z = np.concatenate([(one.values - exact) / one.scale for one in found])
    inside = np.mean(np.abs(z) < 0.6744897501960817)
    low, high = binomial_limits(0.5, z.size, 0.999)
    assert low <= inside <= high
    assert server.ledger.total().mu == pytest.approx(math.sqrt(60))
    for site in federation._sites.values():
        assert site.ledger.total().mu == pytest.approx(math.sqrt(60))
    entry = server.ledger.entries[0]
    assert (entry.trust, entry.noise["colluding"], entry.noise["sites"]) == ("secure-sum", colluding, 10)


def test_the_price_is_that_of_the_grid():
    record_sensitivity = SITE_OPS["clipped_score"].record_sensitivity(SCORE, 4)
    plan = plan_sum(record_sensitivity, 0.5, label="x", op="y", sites=10, colluding=3, rows=100)
    steps = (record_sensitivity.l2 / plan.grid) + math.sqrt(4)
    sigma = plan.site_scale / plan.grid
    assert 2.0**20 <= sigma < 2.0**21
    assert steps / (sigma * math.sqrt(7)) <= 0.5
    assert steps / (sigma * math.sqrt(7)) == pytest.approx(0.5, rel=1e-6)
    assert plan.entry.loss == GaussianLoss(0.5)
    coarse = plan_sum(
        record_sensitivity, 0.5, label="x", op="y", sites=10, colluding=3, rows=100, grid_bits=4
    )
    assert coarse.entry.loss == ConcentratedLoss(0.125)
    steps = (record_sensitivity.l2 / coarse.grid) + math.sqrt(4)
    assert steps / (coarse.site_scale / coarse.grid * math.sqrt(7)) == pytest.approx(0.5, rel=1e-6)
    with pytest.raises(SensitivityError, match="too small"):
        plan_sum(
            Ball(size=10**6, top=1.0, derivation="x").sensitivity(),
            1e-3,
            label="x",
            op="y",
            sites=2,
            colluding=0,
            rows=9,
            grid_bits=2,
        )


@pytest.mark.audit
def test_neighbours_move_the_integers_by_no_more_than_is_charged():
    rng = np.random.default_rng(3)
    query = secure_query(secure_federation(rows=50), mu=1.0)
    terms = read_terms(query, pi.LedgerEntry.from_dict(query.charges[0]))
    record_sensitivity = SITE_OPS["clipped_score"].record_sensitivity(query.args, 4)
    y, X = rows_of(40, 5)
    worst = 0.0
    for _ in range(200):
        both = []
        for _ in range(2):
            X[0], y[0] = rng.choice([-2.0, 2.0], 4) * rng.choice([0.1, 1.0], 4), rng.choice([-3.0, 3.0])
            block = Site((y, X), design_of())._placed("a")
            both.append(
                quantised(
                    SITE_OPS["clipped_score"].total(block, query.args), terms, 40, record_sensitivity.bound
                )
            )
        worst = max(worst, float(np.linalg.norm((both[0] - both[1]).astype(float))))
    assert (
        0.9 * record_sensitivity.l2 / terms.grid < worst <= record_sensitivity.l2 / terms.grid + math.sqrt(4)
    )


def test_scalars_and_matrices():
    federation = secure_federation(policy=SIMULATED)
    server = SecureServer(federation)
    variance = server.scalar("squared_residuals", {"residual_clip": 2.0}, mu=math.inf, label="variance")
    assert variance.values.shape == ()
    gram = server.gram({"columns": [0, 2], "bound": 2.0}, mu=math.inf, label="gram")
    X = np.concatenate([np.clip(rows_of(60 + 10 * i, i)[1][:, [0, 2]], -2, 2) for i in range(3)])
    np.testing.assert_allclose(gram.values, X.T @ X, atol=1e-10)
    args = {"edges": np.array([0.5, 1.0, 2.0])}
    assert 0.5 <= server.histogram_quantile(args, level=0.5, mu=math.inf, label="median") <= 2.0
    with pytest.raises(NotAvailableError, match="not available for secure sums"):
        server.top_k("clipped_products", {"bound": 1.0}, 2, label="x", mu=1.0)
    with pytest.raises(ArgumentError, match="no statistic"):
        server.vector_sum("made_up", {}, label="x", mu=1.0)


def test_messages_survive_their_transport():
    class Wired(Tapped):
        def ask(self, query, sites=None):
            replies = self.inner.ask(pickle.loads(pickle.dumps(query)), sites)
            return [Reply.unpack(*reply.pack()) for reply in replies]

    plain, wired = (
        SecureServer(wrap(secure_federation(policy=SIMULATED)), rng=5) for wrap in (Tapped, Wired)
    )
    one, two = (server.vector_sum("clipped_score", SCORE, mu=1.0, label="s") for server in (plain, wired))
    assert one.values.tobytes() == two.values.tobytes()
    reply = Reply(site="a", sums=np.empty(0), rows=3, masked=np.array([2**64 - 1], dtype=np.uint64))
    text, arrays = reply.pack()
    assert Reply.unpack(text, arrays).masked.tolist() == [2**64 - 1]
    with pytest.raises(StorageError):
        Reply.unpack(text, arrays | {"masked": np.array([1.5])})
    with pytest.raises(StorageError):
        Reply.unpack(text, arrays | {"other": np.array([1.5])})


def test_seeded_noise_is_reproducible_and_needs_the_policy():
    runs = [
        SecureServer(secure_federation(policy=SIMULATED), rng=4).vector_sum(
            "clipped_score", SCORE, mu=1.0, label="s"
        )
        for _ in range(2)
    ]
    np.testing.assert_array_equal(runs[0].values, runs[1].values)
    server = SecureServer(secure_federation(), rng=4)
    assert not server.secure
    with pytest.raises(NotAvailableError, match="seeded noise"):
        server.vector_sum("clipped_score", SCORE, mu=1.0, label="s")
    with pytest.raises(NotAvailableError, match="without noise"):
        SecureServer(secure_federation()).vector_sum("clipped_score", SCORE, mu=math.inf, label="s")


def test_a_question_is_the_one_that_it_was_before_self_masks_went():
    """Folders of stopped fits hold questions by their digests: the words in them stay.

    With version 1 of the statistic the digest was 118d20bcb104f2a4311a58b6024e7740.
    """
    server = SecureServer(secure_federation(policy=SIMULATED), rng=7, max_colluding=1)
    server.vector_sum("clipped_score", SCORE, mu=1.0, label="s")
    (line,) = server.ledger.entries
    assert line.noise["threshold"] == line.noise["sites"] == 3
    assert line.noise["question"] == "4a2ef8d637536a82c444e1d022eabaaa"


def test_some_sites_only_are_charged_in_their_own_scope():
    federation = secure_federation()
    server = SecureServer(federation, ledger=Ledger(name="record"))
    found = server.vector_sum("clipped_score", SCORE, mu=1.0, label="s", sites=["west", "north"])
    assert found.sites == ("north", "west")
    assert len(federation._sites["south"].ledger) == 0
    assert server.ledger.total().mu == 1.0
    with pytest.raises(NotAvailableError, match="at least 2"):
        server.vector_sum("clipped_score", SCORE, mu=1.0, label="s", sites=["west"])


def test_un_noised_sums_stay_where_they_are():
    federation = secure_federation()
    with pytest.raises(NotAvailableError, match="sums without noise"):
        TrustedServer(federation).vector_sum("clipped_score", SCORE, mu=1.0, label="s")
    open_only = secure_federation(policy=SitePolicy(trusted_server=True))
    with pytest.raises(NotAvailableError, match="does not allow secure sums"):
        SecureServer(open_only).vector_sum("clipped_score", SCORE, mu=1.0, label="s")


def test_a_drop_out_costs_a_new_roster_and_a_new_charge():
    for failure in ("drop_outs", "lost_replies"):
        federation = Tapped(secure_federation(FIVE, **{failure: {"c": {1}}}))
        server = SecureServer(federation, missing="continue")
        found = server.vector_sum("clipped_score", SCORE, mu=1.0, label="s")
        assert found.sites == ("a", "b", "d", "e") == server.sites
        first, second = federation.queries
        assert (first.masking["roster"], second.masking["roster"]) == (list(FIVE), ["a", "b", "d", "e"])
        assert second.sequence > first.sequence
        assert first.charges[0]["id"] != second.charges[0]["id"]
        assert len(server.ledger) == 2
        charged = {name: len(site.ledger) for name, site in federation.inner._sites.items()}
        assert charged == {"a": 2, "b": 2, "d": 2, "e": 2, "c": 1 if failure == "lost_replies" else 0}
        assert server.ledger.total().mu == pytest.approx(math.sqrt(2.0))
        assert federation.inner._sites["a"].ledger.total().mu == pytest.approx(math.sqrt(2.0))
        assert server.vector_sum("clipped_score", SCORE, mu=1.0, label="s").sites == found.sites
    with pytest.raises(AlignmentError, match=r"site 'c'.* did not answer"):
        SecureServer(secure_federation(FIVE, drop_outs={"c": {1}})).vector_sum(
            "clipped_score", SCORE, mu=1.0, label="s"
        )
    flaky = secure_federation(FIVE, drop_outs={"c": {1}, "d": {2}})
    with pytest.raises(AlignmentError, match="2 attempts at one secure sum failed"):
        SecureServer(flaky, missing="continue", retries=1).vector_sum(
            "clipped_score", SCORE, mu=1.0, label="s"
        )


def test_sums_that_could_pass_64_bits_are_refused_before_any_charge():
    federation = secure_federation()
    server = SecureServer(federation, grid_bits=45)
    with pytest.raises(SensitivityError, match="64 bits"):
        server.vector_sum("clipped_score", SCORE, mu=1e4, label="s")
    assert len(server.ledger) == 0
    # a server that does not check is refused by the sites
    query = secure_query(secure_federation(), mu=1.0)
    small = Site(rows_of(60, 0), design_of(), policy=SECURE)
    terms = read_terms(query, pi.LedgerEntry.from_dict(query.charges[0]))
    from dataclasses import replace

    from privinf.federation.secure.site import check_room

    check_room(terms, len(small), 3.0)
    with pytest.raises(SensitivityError, match="64 bits"):
        check_room(replace(terms, grid=2.0**-56), len(small), 3.0)
    with pytest.raises(SensitivityError, match="64 bits"):
        check_room(replace(terms, sigma=2.0**56), len(small), 3.0)


def test_bad_options():
    federation = secure_federation()
    for wrong in ({"max_colluding": -1}, {"retries": -1}, {"grid_bits": 1}, {"missing": "maybe"}):
        with pytest.raises(ArgumentError):
            SecureServer(federation, **wrong)
    with pytest.raises(ArgumentError, match="less than the number of sites"):
        SecureServer(federation, max_colluding=3).vector_sum("clipped_score", SCORE, mu=1.0, label="s")
    sites = sites_of()
    unkeyed = Site(rows_of(60, 0), design_of(), policy=SECURE)
    with pytest.raises(NotAvailableError, match="'north' has no secret key"):
        SecureServer(InProcessFederation(sites | {"north": unkeyed}))
    with pytest.raises(AlignmentError, match="have different rosters"):
        SecureServer(InProcessFederation(sites | {"west": sites_of()["west"]}))
    with pytest.raises(ArgumentError, match="both key"):
        Site(rows_of(60, 0), design_of(), key=pi.federation.IdentityKey())
    for wrong in ({"min_sites": 1}, {"max_colluding": -1}, {"min_sites": 2.5}):
        with pytest.raises(ArgumentError):
            SitePolicy(**wrong)


@pytest.mark.timing
@pytest.mark.parametrize(("size", "limit"), [(100, 0.1), (10_000, 0.2)])
def test_twenty_sites_are_fast_without_the_sampler(size, limit):
    from privinf.federation import pinned_keys
    from privinf.federation.secure.masking import PairKeys

    names = tuple(sorted(f"s{i:02d}" for i in range(20)))
    owned, roster = pinned_keys(names)
    pairs = {name: PairKeys(owned[name], roster) for name in names}
    words = {name: np.full(size, 7, dtype=np.uint64) for name in names}
    times = []
    for repeat in range(6):  # the first computes the pairs' secrets, once in the life of a site
        start = time.process_time()
        total = np.zeros(size, dtype=np.uint64)
        for name in names:
            total += pairs[name].masked(words[name], name, names, 0, f"{repeat:064x}")
        times.append(time.process_time() - start)
        np.testing.assert_array_equal(total, 140)
    assert min(times[1:]) <= limit * slowness()


def test_a_secure_server_has_no_noise_key_to_store(tmp_path):
    with pytest.raises(NotAvailableError, match="the sites draw the noise"):
        SecureServer(secure_federation()).remember(tmp_path / "noise.key")
    assert not list(tmp_path.iterdir())
