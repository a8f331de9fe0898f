"""Sums with self masks: exact whoever falls silent, and no story of a server's opens a site's own words."""

import base64
import itertools
import math
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from federation_sites import design_of, rows_of
from secure_sites import MADE_UP, SCORE, Tapped, secure_federation

from privinf.errors import AlignmentError, ArgumentError, NotAvailableError
from privinf.federation import DoubleMaskedServer, Query, Site, SiteLedger, SitePolicy
from privinf.federation import site as site_module
from privinf.federation.double_masking import least_threshold
from privinf.federation.shamir import PRIME, combine, read_share, split, write_share
from privinf.federation.site_sharing import _cipher, commitment
from privinf.mechanisms.sparse_statistics import SITE_OPS
from privinf.simulation import binomial_limits

FIVE = ("a", "b", "c", "d", "e")
CALLS = {"describe": 0, "share": 1, "mask": 2, "confirm": 3, "unmask": 4}


def sum_of(server, mu=1.0):
    return server.vector_sum("clipped_score", SCORE, mu=mu, label="score")


def exact_of(federation, names):
    return sum(
        SITE_OPS["clipped_score"].total(federation._sites[name]._placed(name), SCORE) for name in names
    )


# ---- sharing of secrets


def test_any_threshold_shares_give_the_secret_and_fewer_do_not():
    secret = bytes(range(32))
    shares = dict(enumerate(split(secret, 3, 5), 1))
    for chosen in itertools.combinations(shares, 3):
        assert combine({x: shares[x] for x in chosen}) == secret
    for chosen in itertools.combinations(shares, 2):
        with suppress(ArgumentError):
            assert combine({x: shares[x] for x in chosen}) != secret
    assert read_share(write_share(PRIME - 1)) == PRIME - 1
    assert combine(dict(enumerate(split(b"\xff" * 32, 1, 1), 1))) == b"\xff" * 32
    assert pow(3, PRIME - 1, PRIME) == 1


def test_shares_out_of_range_are_refused():
    for wrong in (write_share(PRIME), b"\xff" * 33, b"\0" * 32, b""):
        with pytest.raises(ArgumentError, match="out of range"):
            read_share(wrong)
    for shares in ({0: 1}, {1: PRIME}, {1: -1}, {-1: 5}):
        with pytest.raises(ArgumentError, match="out of range"):
            combine(shares)
    with pytest.raises(ArgumentError, match="belong together"):
        combine({1: PRIME - 1})
    for wrong in ((b"short", 2, 3), (bytes(32), 4, 3), (bytes(32), 0, 3)):
        with pytest.raises(ArgumentError):
            split(*wrong)


# ---- the sum


@pytest.mark.parametrize("stage", ["share", "mask", "confirm", "unmask"])
@pytest.mark.parametrize("failure", ["drop_outs", "lost_replies"])
def test_the_sum_is_exact_whoever_falls_silent(stage, failure, monkeypatch):
    sent = {}

    def kept(steps, terms, name):
        sent[name] = original(steps, terms, name).view(np.int64)
        return sent[name].view(np.uint64)

    original = site_module.noisy_words
    monkeypatch.setattr(site_module, "noisy_words", kept)
    calls = {name: {CALLS[stage]} for name in ("b", "d")}
    tapped = Tapped(secure_federation(FIVE, **{failure: calls}))
    found = sum_of(DoubleMaskedServer(tapped))
    assert found.sites == (FIVE if stage in ("confirm", "unmask") else ("a", "c", "e"))
    grid = tapped.queries[0].masking["grid"]
    np.testing.assert_array_equal(found.values, sum(sent[name] for name in found.sites) * grid)
    assert found.rows == sum(60 + 10 * FIVE.index(name) for name in found.sites)


def test_without_noise_it_is_the_sum_of_those_who_stayed():
    federation = secure_federation(FIVE, policy=MADE_UP, drop_outs={"a": {2}, "e": {3}})
    found = sum_of(DoubleMaskedServer(federation), mu=math.inf)
    np.testing.assert_allclose(found.values, exact_of(federation, "bcde"), atol=1e-12)
    again = sum_of(DoubleMaskedServer(federation), mu=math.inf)
    assert again.sites == FIVE  # who was silent is asked again


@pytest.mark.parametrize("colluding", [0, 1])
def test_the_noise_is_that_of_the_sites_that_are_sure_to_stay(colluding):
    federation = secure_federation(FIVE, policy=MADE_UP, rows=20)
    server = DoubleMaskedServer(federation, max_colluding=colluding, rng=3)
    assert server.threshold == least_threshold(5, colluding) == (4 if colluding else 3)
    reach = SITE_OPS["clipped_score"].reach(SCORE, 4)
    found = [sum_of(server) for _ in range(60)]
    assert found[0].scale ** 2 / reach.l2**2 == pytest.approx(5 / (server.threshold - colluding), rel=2e-5)
    z = np.concatenate([(one.values - exact_of(federation, FIVE)) / one.scale for one in found])
    low, high = binomial_limits(0.5, z.size, 0.999)
    assert low <= np.mean(np.abs(z) < 0.6744897501960817) <= high
    assert server.ledger.entries[0].noise["threshold"] == server.threshold
    for site in federation._sites.values():
        assert site.ledger.total().mu == pytest.approx(server.ledger.total().mu)


def test_the_fewest_that_may_stay_carry_the_promised_noise():
    federation = secure_federation(FIVE, policy=MADE_UP, rows=20, drop_outs={"b": {2}})
    found = sum_of(DoubleMaskedServer(federation, max_colluding=1, rng=3))
    assert found.sites == ("a", "c", "d", "e")
    # Three of the four are honest: their noise alone is that of a Gaussian release at mu = 1.
    reach = SITE_OPS["clipped_score"].reach(SCORE, 4)
    assert found.scale**2 * 3 / 4 == pytest.approx(reach.l2**2, rel=2e-5)


def test_too_few_that_stay_cost_a_new_sum():
    silent = {name: {2} for name in ("a", "b", "c")}
    federation = secure_federation(FIVE, drop_outs=silent)
    with pytest.raises(AlignmentError, match="no answer"):
        sum_of(DoubleMaskedServer(federation))
    federation = Tapped(secure_federation(FIVE, drop_outs=silent))
    server = DoubleMaskedServer(federation, missing="continue")
    assert sum_of(server).sites == ("d", "e")
    assert len(server.ledger) == 2
    assert federation.inner._sites["a"].ledger.total().mu == 1.0


def test_thresholds():
    federation = secure_federation(FIVE)
    assert sum_of(DoubleMaskedServer(federation, threshold=5)).sites == FIVE
    for wrong in (
        {"threshold": 2},
        {"threshold": 6},
        {"threshold": 3, "max_colluding": 1},
        {"max_colluding": 5},
    ):
        with pytest.raises(ArgumentError):
            sum_of(DoubleMaskedServer(federation, **wrong))
    wary = secure_federation(FIVE, policy=SitePolicy(secure_sums=True, min_sites=4))
    with pytest.raises(NotAvailableError, match="at least 4"):
        sum_of(DoubleMaskedServer(wary))
    assert sum_of(DoubleMaskedServer(wary, threshold=4)).sites == FIVE


def test_a_site_refuses_a_threshold_that_lets_two_stories_pass(monkeypatch):
    monkeypatch.setattr(DoubleMaskedServer, "_needed", lambda self, sites: 2)
    with pytest.raises(NotAvailableError, match="twice the threshold"):
        sum_of(DoubleMaskedServer(secure_federation(("a", "b", "c", "d"))))


# ---- attacks


class Lying(Tapped):
    """A server's side that changes a message on its way to the sites, or sites' answers on their way back."""

    def __init__(self, inner, lie=None, reply=None):
        super().__init__(inner)
        self.lie, self.reply = lie, reply

    def ask(self, query, sites=None):
        if query.masking and self.lie is not None:
            told = dict(query.masking)
            self.lie(query.op, told)
            query = replace(query, masking=told)
        replies = super().ask(query, sites)
        return [self.reply(query.op, one) for one in replies] if self.reply else replies


def refused(federation, error, match, lie=None, reply=None, **options):
    lying = Lying(federation, lie, reply)
    with pytest.raises(error, match=match):
        sum_of(DoubleMaskedServer(lying, **options))
    return lying


def test_tampered_ciphertexts_are_refused():
    def flip(op, told):
        if op == "mask":
            boxes = {name: dict(box) for name, box in told["boxes"].items()}
            content = bytearray(base64.b64decode(boxes["a"]["b"]))
            content[7] ^= 1
            boxes["a"]["b"] = base64.b64encode(bytes(content)).decode()
            told["boxes"] = boxes

    def swap(op, told):
        if op == "mask":
            boxes = {name: dict(box) for name, box in told["boxes"].items()}
            boxes["a"]["b"], boxes["c"]["b"] = boxes["c"]["b"], boxes["a"]["b"]
            told["boxes"] = boxes

    def leave_out(op, told):
        if op == "mask":
            told["boxes"] = {name: {} if name == "a" else box for name, box in told["boxes"].items()}

    for lie in (flip, swap, leave_out):
        lying = refused(secure_federation(FIVE), ArgumentError, "'b': the shares from site 'a'", lie)
        assert not any(r.site == "b" and r.masked.size for replies in lying.replies for r in replies)


def test_boxes_of_another_sum_are_refused():
    federation = Tapped(secure_federation(FIVE))
    server = DoubleMaskedServer(federation)
    sum_of(server)
    old = federation.queries[1].masking["boxes"]

    def replay(op, told):
        if op == "mask":
            told["boxes"] = dict(old)

    refused(federation.inner, ArgumentError, "tampered", replay)


def test_a_site_that_shares_out_of_range_is_refused():
    federation = secure_federation(FIVE)

    def reply(op, one):
        if op != "clipped_score" or one.site != "a":
            return one
        opened = next(iter(federation._sites["a"]._sharing._open.values()))
        content = bytes.fromhex(opened.key.public) + b"\xff" * 33 + bytes(33)
        forged = base64.b64encode(_cipher(opened, "a", "b").encrypt(bytes(12), content, b"")).decode()
        return replace(one, facts={**one.facts, "boxes": {**one.facts["boxes"], "b": forged}})

    refused(federation, ArgumentError, "'b': a share of a secret is out of range", reply=reply)


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        (write_share(PRIME).hex(), "out of range"),
        ("zz", "out of range"),
        (None, "missing"),
        (bytes(33).hex(), "fit"),
    ],
)
@pytest.mark.parametrize("kind", ["seeds", "keys"])
def test_wrong_shares_do_not_pass_for_a_sum(wrong, match, kind):
    def reply(op, one):
        if op != "unmask" or one.site != "a":
            return one
        changed = {name: wrong for name in one.facts[kind]}
        return replace(one, facts={**one.facts, kind: changed})

    federation = secure_federation(FIVE, drop_outs={"e": {2}})
    refused(federation, AlignmentError, match, reply=reply)


STORIES = {
    "alive and dropped at once": ({"unmask": lambda told: told.update(dropped=["a", "e"])}, "disjoint"),
    "nobody dropped": ({"unmask": lambda told: told.update(dropped=[])}, "disjoint"),
    "other survivors": ({"unmask": lambda told: told.update(survivors=["a", "b", "c"])}, "has confirmed"),
    "too few survivors": ({"confirm": lambda told: told.update(survivors=["a", "b"])}, "fewer than"),
    "strangers": ({"confirm": lambda told: told.update(survivors=["a", "b", "mallory"])}, "on the roster"),
    "not a member": ({"confirm": lambda told: told.update(survivors=["a", "b", "c", "d", "e"])}, "members"),
    "without tags": ({"unmask": lambda told: told.update(members={})}, "not tagged the same members"),
    "without lists": ({"unmask": lambda told: told.update(lists={})}, "only 1 sites"),
    "no boxes": ({"mask": lambda told: told.update(boxes={})}, "own among them"),
    "too few members": (
        {"mask": lambda told: told.update(boxes={n: told["boxes"][n] for n in "ab"})}, "fewer|among",
    ),
    "another sum": ({"mask": lambda told: told.update(sum="0" * 64)}, "no such sum"),
    "no sum": ({"mask": lambda told: told.pop("sum")}, "no such sum"),
}  # fmt: skip


@pytest.mark.parametrize("story", STORIES)
def test_stories_that_do_not_hold_are_refused(story):
    lies, match = STORIES[story]

    def lie(op, told):
        if op in lies:
            lies[op](told)

    federation = secure_federation(FIVE, drop_outs={"e": {1}} if story == "not a member" else {"e": {2}})
    lying = refused(federation, (ArgumentError, NotAvailableError), match, lie)
    if story != "too few members":
        assert not any("seeds" in reply.facts for reply in lying.replies[-1])


def test_a_site_agrees_to_one_list_only_and_unmasks_once():
    federation = Tapped(secure_federation(FIVE))
    sum_of(DoubleMaskedServer(federation))
    sites = federation.inner._sites
    shared, mask, confirm, unmask = federation.queries
    later = unmask.sequence + 1
    for query in (mask, confirm, unmask):
        again = replace(query, sequence=later)
        assert "no such sum" in sites["a"].handle(again, "a").error
        repeated = sites["a"].handle(query, "a")
        first = next(one for replies in federation.replies for one in replies
                     if one.site == "a" and one.facts == repeated.facts)  # fmt: skip
        assert first.masked.tobytes() == repeated.masked.tobytes()
    assert [len(site.ledger) for site in sites.values()] == [1] * 5
    assert sites["a"].handle(shared, "a").facts["boxes"] == federation.replies[0][0].facts["boxes"]


def test_two_lists_do_not_both_find_enough_tags():
    """A server tells two halves of the sites different stories, and hands on all the tags that it has."""
    federation = secure_federation(FIVE)
    tapped = Tapped(federation)
    server = DoubleMaskedServer(tapped)

    def stop(op, told):
        if op == "confirm":
            raise KeyboardInterrupt

    server._federation = Lying(tapped, stop)
    with pytest.raises(KeyboardInterrupt):
        sum_of(server)
    about = {"sum": tapped.queries[0].digest}
    tags = {one.site: one.facts["tags"] for one in tapped.replies[1]}
    session, position = tapped.queries[0].session, itertools.count(100)

    def ask(op, name, **given):
        query = Query(op, session=session, sequence=next(position), masking=about | given)
        return federation._sites[name].handle(query, name)

    stories = {"a": list("abcd"), "b": list("abcd"), "c": list("abce"), "e": list("abce"), "d": list("abcd")}
    lists = {name: ask("confirm", name, survivors=story).facts["tags"] for name, story in stories.items()}
    assert "out of turn" in ask("confirm", "a", survivors=list("abce")).error
    opened = {}
    for name, story in stories.items():
        gone = sorted(set(FIVE) - set(story))
        opened[name] = ask("unmask", name, survivors=story, dropped=gone, members=tags, lists=lists)
    told = [name for name, reply in opened.items() if not reply.error]
    assert told == ["a", "b", "d"]
    assert "only 2 sites" in opened["c"].error
    assert "only 2 sites" in opened["e"].error
    # d is alive in the one story that was believed, e dropped: no site gave both secrets of anybody
    for reply in (opened[name] for name in told):
        assert not set(reply.facts["seeds"]) & set(reply.facts["keys"])


def test_what_arrives_is_hidden_until_it_is_unmasked():
    tapped = Tapped(secure_federation(FIVE, policy=MADE_UP))
    for _ in range(10):
        sum_of(DoubleMaskedServer(tapped), mu=math.inf)
    words = np.concatenate([one.masked for replies in tapped.replies for one in replies])
    assert words.size == 200
    ones = int(np.unpackbits(words.view(np.uint8)).sum())
    low, high = binomial_limits(0.5, 64 * words.size, 0.999)
    assert low <= ones / (64 * words.size) <= high


def test_a_site_that_restarts_has_dropped_out_and_is_charged_once(tmp_path):
    ledger = SiteLedger(tmp_path / "a.ledger")
    federation = secure_federation(FIVE, ledgers={"a": ledger})
    tapped = Tapped(federation)
    server = DoubleMaskedServer(tapped)

    def restart(op, told):
        if op == "mask" and federation._sites["a"].ledger is ledger:
            ledger.close()
            old = federation._sites["a"]
            new = Site(
                rows_of(60, 0), design_of(), policy=old.policy, ledger=SiteLedger(tmp_path / "a.ledger")
            )
            new._pairs = old._pairs
            federation._sites["a"] = new

    server._federation = Lying(tapped, restart)
    with pytest.raises(NotAvailableError, match="'a': no such sum is under way here"):
        sum_of(server)
    site = federation._sites["a"]
    assert len(site.ledger) == 1
    again = site.handle(tapped.queries[0], "a")
    first = next(one for one in tapped.replies[0] if one.site == "a")
    assert again.facts == first.facts
    assert len(site.ledger) == 1
    site.ledger.close()


def test_commitments_tell_seeds_apart():
    assert commitment(bytes(32)) != commitment(b"\1" + bytes(31))
    with pytest.raises(TypeError):
        next(iter(secure_federation(FIVE)._sites.values()))._sharing.__reduce__()
