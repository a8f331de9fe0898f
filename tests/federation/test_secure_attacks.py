"""What an active server or a stranger may try in a secure sum: refused, or bounded as stated."""

import math
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from federation_sites import design_of, rows_of
from secure_sites import SCORE, SECURE, SIMULATED, THREE, Tapped, secure_federation, secure_query

import privinf as pi
from privinf.accounting import Budget, ConcentratedLoss, GaussianLoss, Ledger
from privinf.errors import (
    AlignmentError,
    ArgumentError,
    BudgetExceededError,
    NotAvailableError,
    PrivinfError,
)
from privinf.federation import (
    IdentityKey,
    InProcessFederation,
    Query,
    Roster,
    SecureServer,
    Site,
    SitePolicy,
    pinned_keys,
)
from privinf.federation.secure.server import add_words
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.statistics.ops import SiteOp
from studies.simulation import binomial_limits


def ledgers_of(federation):
    return {name: len(site.ledger) for name, site in federation._sites.items()}


def changed(query, **changes):
    """Return a query with other terms, other fields, or another ledger line."""
    terms = dict(query.masking) | changes.pop("masking", {})
    fields = {
        name: getattr(query, name) for name in ("op", "args", "version", "design", "session", "sequence")
    }
    charge = dict(query.charges[0]) | changes.pop("charge", {})
    if "noise" in changes:
        charge["noise"] = charge["noise"] | changes.pop("noise")
    return Query(**fields | {"charges": (charge,), "masking": terms} | changes)


def refusals(federation, query):
    return [reply.error for reply in federation.ask(query, query.masking.get("roster", THREE))]


def test_a_replay_gets_the_same_bytes_and_costs_nothing():
    federation = secure_federation()
    query = secure_query(federation)
    first, second = federation.ask(query), federation.ask(query)
    for one, two in zip(first, second, strict=True):
        assert one.masked.tobytes() == two.masked.tobytes()
        assert one.masked.size == 4
    assert ledgers_of(federation) == dict.fromkeys(THREE, 1)


def test_two_askers_at_once_get_the_same_bytes(monkeypatch):
    federation = secure_federation()
    query, site = secure_query(federation), federation._sites["north"]
    honest = Site._placed
    monkeypatch.setattr(Site, "_placed", lambda *asked, **how: (time.sleep(0.05), honest(*asked, **how))[1])
    with ThreadPoolExecutor(4) as askers:
        replies = list(askers.map(lambda _: site.handle(query, "north"), range(4)))
    assert len({reply.masked.tobytes() for reply in replies}) == 1
    assert len(site.ledger) == 1


def test_a_position_that_has_passed_is_not_asked_again():
    federation = secure_federation()
    query = secure_query(federation)
    federation.ask(query)
    other = changed(query, args={**query.args, "clip": 1.0})
    earlier = changed(query, sequence=query.sequence - 1)
    for again in (other, earlier):
        assert all("sequence number" in error for error in refusals(federation, again))
    assert ledgers_of(federation) == dict.fromkeys(THREE, 1)


def test_a_question_asked_anew_gets_other_masks_and_other_noise():
    federation = secure_federation()
    query = secure_query(federation)
    one = federation.ask(query)
    two = federation.ask(changed(query, sequence=query.sequence + 1))
    for a, b in zip(one, two, strict=True):
        apart = np.abs((a.masked - b.masked).view(np.int64).astype(float))
        assert apart.max() > 2.0**55  # the noise of one site is about 2^21
    assert ledgers_of(federation) == dict.fromkeys(THREE, 2)


@pytest.mark.parametrize(
    ("terms", "reason"),
    [
        ({"roster": ["north"]}, "at least 2"),
        ({"roster": []}, "less than the number of sites"),
        ({"roster": ["mallory", "north", "south"]}, "not in this site's list of public keys"),
        ({"roster": ["south", "west"]}, "the secure sum does not include site 'north'"),
        ({"roster": ["north", "north", "south"]}, "every site occurs once"),
        ({"roster": ["west", "south", "north"]}, "sorted"),
        ({"roster": "north"}, "list of site names"),
        ({"pinned": "0" * 64}, "differs from the roster"),
        ({"pinned": None}, "differs from the roster"),
        ({"max_colluding": -1}, "nonnegative integer"),
        ({"max_colluding": 3}, "less than the number of sites"),
        ({"threshold": 2}, "unknown fields 'threshold'"),
        ({"grid": 0.3}, "power of two"),
        ({"grid": -0.5}, "positive"),
        ({"grid": True}, "positive"),
        ({"kind": "plain"}, "does not have secure sums of kind 'plain'"),
        ({"kind": "shared"}, "does not have secure sums of kind 'shared'"),
        ({"kind": "shared", "threshold": 2}, "does not have secure sums of kind 'shared'"),
        ({"kind": None}, "does not have secure sums of kind None"),
        ({"seed": -1}, "must be a nonnegative integer"),
        ({"seed": 5}, "declares secure noise"),
        ({"keys": {"north": "00"}}, "unknown fields 'keys'"),
    ],
)
def test_forged_terms_are_refused_and_cost_nothing(terms, reason):
    federation = secure_federation()
    error = federation._sites["north"].handle(changed(secure_query(federation), masking=terms), "north").error
    assert re.search(reason, error), error
    assert len(federation._sites["north"].ledger) == 0


def test_keys_that_a_server_makes_up_do_not_enter():
    federation = secure_federation()
    honest = federation._sites["north"]._pairs.roster
    forged = Roster(dict(honest.keys) | {"south": IdentityKey().public})
    errors = refusals(federation, changed(secure_query(federation), masking={"pinned": forged.digest}))
    assert all("differs from the roster" in error for error in errors)
    # ... nor does a site with a key that is not the pinned one
    key = IdentityKey()
    stranger = Site(rows_of(60, 0), design_of(), policy=SECURE, key=key, roster=honest)
    federation = InProcessFederation(federation._sites | {"south": stranger})
    with pytest.raises(NotAvailableError, match="'south': the list of public keys at this site"):
        SecureServer(federation).vector_sum("clipped_score", SCORE, mu=1.0, label="s")


def test_a_site_that_is_not_registered_or_is_called_by_another_name():
    federation = secure_federation()
    query = secure_query(federation)
    assert "a key for this site that is not" in federation._sites["north"].handle(query, "south").error
    key = IdentityKey()
    other = Roster({"mallory": key.public, "north": IdentityKey().public})
    mallory = Site(rows_of(60, 0), design_of(), policy=SECURE, key=key, roster=other)
    with pytest.raises(AlignmentError, match="have different rosters"):
        SecureServer(InProcessFederation(federation._sites | {"mallory": mallory}))


@pytest.mark.parametrize(
    "answer",
    [
        lambda words: words[:3],
        lambda words: words.reshape(2, 2),
        lambda words: words.view(np.int64),
        lambda words: words.astype(np.float64),
        lambda words: np.empty(0, dtype=np.uint64),
    ],
)
def test_answers_out_of_range_are_not_added(answer):
    def change(query, replies):
        return [replace(replies[0], masked=answer(replies[0].masked)), *replies[1:]]

    server = SecureServer(Tapped(secure_federation(), change))
    with pytest.raises(AlignmentError, match="'north' sent a reply"):
        server.vector_sum("clipped_score", SCORE, mu=1.0, label="s")


def test_answers_of_others_are_not_added():
    def rows(query, replies):
        return [replace(replies[0], rows=1), *replies[1:]]

    def name(query, replies):
        return [replace(replies[0], site="mallory"), *replies[1:]]

    def twice(query, replies):
        return [*replies, replies[0]]

    for change in (rows, name, twice):
        with pytest.raises(
            AlignmentError, match=r"another size, another number of rows|twice|no query was sent"
        ):
            SecureServer(Tapped(secure_federation(), change)).vector_sum(
                "clipped_score", SCORE, mu=1.0, label="s"
            )


def lying(amount):
    """Return a change of replies: one site adds so much to the first entry of its sum."""

    def change(query, replies):
        words = replies[1].masked.copy()
        words[0] = (int(words[0]) + round(amount / query.masking["grid"])) % 2**64
        return [replies[0], replace(replies[1], masked=words), *replies[2:]]

    return change


@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize(("amount", "void"), [(2_000.0, True), (100.0, False), (1e6, True)])
def test_a_total_that_no_rows_can_have_is_void_and_charged(amount, void, sign):
    """210 rows of clipped scores, each at most 3: beside 64 sds of noise 2,000 is too much, 100 is not."""
    ledger = Ledger()
    server = SecureServer(Tapped(secure_federation(), lying(sign * amount)), ledger=ledger)
    asked = partial(server.vector_sum, "clipped_score", SCORE, mu=1.0, label="s")
    if void:
        with pytest.raises(
            AlignmentError, match=r"'north', 'south', 'west' is invalid, because 1 of 4 .* The charge is kept"
        ):
            asked()
    else:
        assert abs(asked().values[0] - sign * amount) < 3.0 * 210
    assert len(ledger) == 1


def test_mutant_totals_of_any_size_are_believed(monkeypatch):
    monkeypatch.setattr("privinf.federation.secure.server.check_range", lambda *_: None)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_a_total_that_no_rows_can_have_is_void_and_charged(2_000.0, True, 1.0)


def test_masks_that_do_not_cancel_are_no_total():
    """Of random words some entry is out of range but for a chance of far below 1e-6."""

    def change(query, replies):
        other = np.random.default_rng(0).integers(0, 2**63, 4, dtype=np.uint64) << np.uint64(1)
        return [replace(replies[0], masked=other), *replies[1:]]

    with pytest.raises(AlignmentError, match="is invalid"):
        SecureServer(Tapped(secure_federation(), change)).vector_sum(
            "clipped_score", SCORE, mu=1.0, label="s"
        )


def test_a_lie_gives_no_regression():
    """A site that added 5,000 to a moment of 1,200 rows once gave slopes that were called trustworthy."""
    rng = np.random.default_rng(1)
    schema = pi.Schema({"y": (-2.0, 2.0), "x": (-1.0, 1.0)})
    keys, roster = pinned_keys(THREE)
    sites = {}
    for name in THREE:
        x = rng.uniform(-1, 1, 400)
        rows = pd.DataFrame({"x": x, "y": 0.5 * x + rng.normal(0, 0.3, 400).clip(-1, 1)})
        sites[name] = Site(rows, schema, policy=SECURE, key=keys[name], roster=roster)
    federation = Tapped(InProcessFederation(sites), lying(5_000.0))
    model = pi.MomentOLS.from_formula("y ~ x", federation, schema=schema, trust="secure-sum")
    with pytest.raises(AlignmentError, match="is invalid"):
        model.fit(epsilon=4.0, delta=1e-6)


def test_a_statistic_that_passes_its_bound_is_not_sent(monkeypatch):
    honest = SITE_OPS["clipped_score"]
    broken = SiteOp(
        name="clipped_score",
        function=lambda *a: 1e3 * honest.function(*a),
        sensitivity=honest.sensitivity,
        arguments=honest.arguments,
    )
    monkeypatch.setitem(SITE_OPS, "clipped_score", broken)
    federation = secure_federation()
    errors = refusals(federation, secure_query(federation))
    assert all(
        "exceeds its declared bound on simulated rows, so nothing was sent" in error for error in errors
    )


def test_unregistered_statistics_and_those_that_the_policy_leaves_out():
    federation = secure_federation(policy=SitePolicy(secure_sums=True, operations=("column_sums",)))
    query = secure_query(federation)
    assert all("does not allow" in error for error in refusals(federation, query))
    assert all("no statistic" in error for error in refusals(federation, changed(query, op="steal_rows")))
    for version in (1, 3):
        other = changed(secure_query(secure_federation()), version=version)
        assert all("version 2 of the statistic" in error for error in refusals(secure_federation(), other))
    assert ledgers_of(federation) == dict.fromkeys(THREE, 0)


def test_a_tampered_question_gives_garbage_not_a_sum():
    federation = secure_federation()
    query = secure_query(federation)
    twisted = changed(query, args={**query.args, "clip": 1.9})
    words = [federation.ask(query, [name])[0].masked for name in ("north", "south")]
    words.append(federation.ask(twisted, ["west"])[0].masked)
    assert np.abs(add_words(words).view(np.int64).astype(float)).max() > 2.0**55
    words[2] = federation.ask(changed(query, sequence=query.sequence), ["west"])[0].masked
    assert not words[2].size  # the position is taken


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"noise": {"scale": 1.0}}, "is too small for its noise"),
        ({"noise": {"factor": 0.0}}, "noise with the field 'factor'"),
        ({"noise": {"vectors": 0}}, "must be charged as a whole"),
        ({"noise": {"picks": 1}}, "must be charged as a whole"),
        ({"charge": {"relation": "metric"}}, "replace-one"),
        ({"charge": {"mechanism": "laplace"}}, "another mechanism's distribution"),
        ({"masking": {"grid": 2.0**-10}}, "needs at least|zCDP|4 to"),
        ({"masking": {"grid": 2.0**-60}}, "must be 4 to 2"),
        ({"masking": {"seed": 1}, "charge": {"secure": False}}, "seeded noise"),
        ({"charge": {"secure": False}}, "seeded noise"),
        ({"charges": ()}, "states no privacy loss"),
    ],
)
def test_a_charge_that_is_too_small_is_refused(change, reason):
    federation = secure_federation()
    query = changed(secure_query(federation), **change)
    error = federation._sites["north"].handle(query, "north").error
    assert re.search(reason, error), error
    assert len(federation._sites["north"].ledger) == 0


def test_the_sensitivity_must_count_the_grid():
    federation = secure_federation()
    query = secure_query(federation, grid_bits=6)
    charge = dict(query.charges[0])
    record_sensitivity = SITE_OPS["clipped_score"].record_sensitivity(SCORE, 4)
    sharp = charge["sensitivity"] | {"value": record_sensitivity.l2 * (1 + 1e-12)}
    errors = refusals(federation, changed(query, charge={"sensitivity": sharp}))
    assert all("which rounds its numbers, needs at least" in error for error in errors)


def test_a_coarse_grid_has_no_mu():
    federation = secure_federation()
    coarse = secure_query(federation, grid_bits=8)
    rho = dict(coarse.charges[0])["loss"]
    assert rho == ConcentratedLoss(0.5).to_dict()
    wrong = changed(coarse, charge={"loss": {"kind": "gaussian", "mu": 1.0}})
    assert all("zCDP" in error for error in refusals(federation, wrong))
    assert all(not error for error in refusals(federation, coarse))


def test_sums_must_be_exact():
    federation = secure_federation()
    query = secure_query(federation)
    args = {name: value for name, value in query.args.items() if name != "bits"}
    assert all("bits" in error for error in refusals(federation, changed(query, args=args)))


def test_the_sites_policy_sets_the_least():
    wary = SitePolicy(secure_sums=True, min_sites=3, max_colluding=1)
    federation = secure_federation(policies={"north": wary})
    server = SecureServer(federation)
    for call in (
        lambda: server.vector_sum("clipped_score", SCORE, mu=1.0, label="s"),
        lambda: server.reserve([GaussianLoss(1.0)], "fit", 1),
    ):
        with pytest.raises(NotAvailableError, match=r"site 'north': .*pass max_colluding=1 or more"):
            call()
    assert len(server.ledger) == 0
    assert ledgers_of(federation) == {"north": 0, "south": 0, "west": 0}
    server = SecureServer(federation, max_colluding=1)
    assert server.vector_sum("clipped_score", SCORE, mu=1.0, label="s").rows == 210
    with pytest.raises(NotAvailableError, match="allows only secure sums over at least 3"):
        server.vector_sum("clipped_score", SCORE, mu=1.0, label="s", sites=["north", "west"])
    assert len(federation._sites["north"].ledger) == len(server.ledger) == 1
    closed = SecureServer(secure_federation(policies={"north": SitePolicy(trusted_server=True)}))
    with pytest.raises(NotAvailableError, match=r"site 'north': .*does not allow secure sums"):
        closed.vector_sum("clipped_score", SCORE, mu=1.0, label="s")
    assert len(closed.ledger) == 0
    dear = secure_federation(policies={"north": SitePolicy(secure_sums=True, largest_rho=0.1)})
    server = SecureServer(dear)
    with pytest.raises(NotAvailableError, match=r"site 'north': .*largest_rho"):
        server.vector_sum("clipped_score", SCORE, mu=1.0, label="s")
    server.vector_sum("clipped_score", SCORE, mu=0.3, label="s")  # rho 0.045
    server.vector_sum("clipped_score", SCORE, mu=1.0, label="s", sites=["south", "west"])
    assert len(server.ledger) == 3  # the last one at each of two sites
    assert ledgers_of(dear) == {"north": 1, "south": 2, "west": 2}
    named = secure_federation(policies={"north": SitePolicy(secure_sums=True, operations=("column_sums",))})
    server = SecureServer(named)
    with pytest.raises(NotAvailableError, match=r"site 'north': .*statistic 'clipped_score'.*operations="):
        server.vector_sum("clipped_score", SCORE, mu=1.0, label="s")
    server.vector_sum("column_sums", {"columns": [0, 1], "bound": 1.0}, mu=1.0, label="s")
    assert len(server.ledger) == 1
    assert ledgers_of(named) == {"north": 1, "south": 1, "west": 1}


def test_a_budget_exhausted_at_one_site_stops_the_sum_and_nothing_is_spent_twice():
    ledgers = {"south": Ledger(Budget(mu=1.1))}
    federation = secure_federation(ledgers=ledgers)
    server = SecureServer(federation)
    server.vector_sum("clipped_score", SCORE, mu=1.0, label="first")
    tapped = Tapped(federation)
    server._rounds.federation = tapped
    with pytest.raises(BudgetExceededError, match="'south'"):
        server.vector_sum("clipped_score", SCORE, mu=1.0, label="second")
    assert ledgers_of(federation) == {"north": 2, "south": 1, "west": 2}
    assert len(server.ledger) == 2
    again = federation.ask(tapped.queries[0])
    assert [bool(reply.error) for reply in again] == [False, True, False]
    assert ledgers_of(federation) == {"north": 2, "south": 1, "west": 2}
    for site in federation._sites.values():
        assert site.ledger.total().mu <= server.ledger.total().mu


@pytest.mark.audit
def test_a_faked_drop_out_is_charged_and_hides_a_site_behind_two_releases_noise():
    """The server has all answers and asks without one site again: its sum shows up to two releases' noise."""
    names = ("a", "b", "c", "d", "e")
    federation = secure_federation(names, policy=SIMULATED, rows=20)
    record_sensitivity = SITE_OPS["clipped_score"].record_sensitivity(SCORE, 4)
    target = SITE_OPS["clipped_score"].total(federation._sites["c"]._placed("c"), SCORE)
    learned, scale = [], math.nan
    for trial in range(100):
        server = SecureServer(federation, rng=trial)
        whole = server.vector_sum("clipped_score", SCORE, mu=1.0, label="all")
        part = server.vector_sum("clipped_score", SCORE, mu=1.0, label="rest", sites=["a", "b", "d", "e"])
        scale = math.hypot(whole.scale, part.scale)
        learned.append((whole.values - part.values - target) / scale)
    assert scale == pytest.approx(math.sqrt(2.0) * record_sensitivity.l2, rel=1e-5)
    z = np.concatenate(learned)
    low, high = binomial_limits(0.5, z.size, 0.999)
    assert low <= np.mean(np.abs(z) < 0.6744897501960817) <= high
    assert {name: len(site.ledger) for name, site in federation._sites.items()} == {
        name: 100 if name == "c" else 200 for name in names
    }


def test_no_error_tells_a_value():
    rng = np.random.default_rng(0)
    federation = secure_federation()
    good = secure_query(federation)
    numbers = {f"{value:.4f}" for value in rows_of(60, 0)[1].ravel()}
    for _ in range(60):
        terms = {rng.choice(list(good.masking)): [None, 1, "x", [], {}, 2.5, ["north"]][int(rng.integers(7))]}
        reply = federation._sites["north"].handle(changed(good, masking=terms), "north")
        assert not any(number in reply.error for number in numbers)
        if reply.error:
            assert issubclass(getattr(__import__("privinf").errors, reply.error.split(":")[0]), PrivinfError)
    with pytest.raises(ArgumentError):
        changed(good, masking={"grid": object()})
