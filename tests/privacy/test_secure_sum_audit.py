"""Audit of secure sums in the eyes of a server and colluding sites that pool all they have, with mutants.

Two of four sites are honest. The others give the server their keys: it takes their masks off what the honest
sites sent and adds the two, which leaves the honest sum with the honest noise. That is the whole of what it
can learn, and it must cost no more than the ledgers say.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from privinf.federation import InProcessFederation, SecureServer, Site, SitePolicy, pinned_keys
from privinf.federation import site as site_module
from privinf.federation.secure.masking import PURPOSE, PairKeys, apply_masks
from privinf.mechanisms import catalogue
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.statistics.ops import RecordSensitivity, SiteOp
from privinf.schema import Design
from studies.audit import audit_mechanism, gaussian_log_ratio

NAMES, HONEST, COLLUDING = ("a", "b", "c", "d"), ("a", "b"), ("c", "d")
MU, DRAWS, SECURE_DRAWS = 3.0, 2500, 6000
FEW = 100  # in `make test`: enough for a mutant whose noise hides nothing
R, C = 0.8, 1.5
STEP = {"columns": np.array([0, 1]), "clip": C, "residual_clip": R}
BACK = STEP | {"transform": -np.eye(2)}
# Both records have u at its clip in one direction; their residuals stand at opposite clips.
RECORDS = ((1.9, 1.0, 1.5), (-1.9, 1.0, 1.5))
DESIGN = Design.from_arrays(["a", "b"], bounds=[(-9.0, 9.0)] * 2, y_bounds=(-9.0, 9.0))
POLICY = SitePolicy(secure_sums=True, simulation=True, max_colluding=2)
KEYS, ROSTER = pinned_keys(NAMES)
COLLUDERS = {name: PairKeys(KEYS[name], ROSTER) for name in COLLUDING}


class Planned(BaseException):
    """Raised in place of asking a question that a server has made up."""


class Planning:
    """A federation that keeps a server's question and does not ask it."""

    def __init__(self, inner):
        self.inner, self.sites, self.query = inner, inner.sites, None

    def ask(self, query, sites=None):
        if not query.masking:
            return self.inner.ask(query, sites)
        self.query = query
        raise Planned


def federation_of(world):
    rows = {name: (np.array([0.3, -0.2]), np.array([[0.5, 0.1], [-0.4, 0.9]])) for name in NAMES}
    record = RECORDS[world]
    rows["a"] = np.append(rows["a"][0], record[0]), np.vstack([rows["a"][1], record[1:]])
    return InProcessFederation(
        {name: Site(rows[name], DESIGN, policy=POLICY, key=KEYS[name], roster=ROSTER) for name in NAMES}
    )


def question_of(federation, args, secure, mu):
    planning = Planning(federation)
    server = SecureServer(planning, max_colluding=2, rng=None if secure else 0)
    with pytest.raises(Planned):
        server.vector_sum("clipped_score", args, mu=mu, label="score")
    return planning.query


def asked(federation, query, position, world, names=HONEST):
    """Ask honest sites a question at another position of the session; return it and their words."""
    terms = dict(query.masking)
    if "seed" in terms:
        terms["seed"] = 2 * position + world
    query = replace(query, sequence=position, masking=terms)
    replies = federation.ask(query, names)
    assert not any(reply.error for reply in replies), replies[0].error
    return query, {reply.site: reply.masked for reply in replies}


def honest_view(query, sent):
    """Return the honest sites' noisy sum, as the server and the colluding sites compute it."""
    total = np.zeros(2, dtype=np.uint64)
    info = PURPOSE + bytes.fromhex(query.digest)
    for name in HONEST:
        shared = [(other, COLLUDERS[other].pair(name, info)) for other in COLLUDING]
        total += sent[name] - apply_masks(np.zeros(2, dtype=np.uint64), name, shared)
    return total.view(np.int64) * query.masking["grid"]


def audit(secure=False, draws=DRAWS, mu=MU):
    """Audit one release in the eyes of the colluders."""
    means, scores = [], []
    for world in (0, 1):
        sites = federation_of(world)._sites
        means.append(sum(SITE_OPS["clipped_score"].total(sites[name]._placed(name), STEP) for name in HONEST))
    for world in (0, 1):
        federation = federation_of(world)
        query = question_of(federation, STEP, secure, mu)
        seen = [honest_view(*asked(federation, query, 2 + draw, world)) for draw in range(draws)]
        scores.append(gaussian_log_ratio(np.array(seen), *means, 2.0 * C * R / mu))
    return verdict(scores, mu, exact=mu)


def verdict(scores, mu, exact=None):
    return audit_mechanism(
        lambda world, count, rng: scores[world],
        lambda x: x,
        draws=len(scores[0]),
        rng=0,
        mu=mu,
        exact_mu=exact,
    )


def audit_of_two_questions(draws, mu=2.0):
    """Audit two opposite releases in the eyes of a server that hopes that site a masks both alike."""
    scores = []
    direction = np.array(RECORDS[0][1:]) / np.linalg.norm(RECORDS[0][1:])
    for world in (0, 1):
        federation = federation_of(world)
        queries = [question_of(federation, args, False, mu) for args in (STEP, BACK)]
        apart = []
        for draw in range(draws):
            one, two = (
                asked(federation, query, 2 + 2 * draw + half, world, ("a",))[1]["a"]
                for half, query in enumerate(queries)
            )
            apart.append((one - two).view(np.int64) * queries[0].masking["grid"])
        scores.append(-np.clip(np.array(apart) @ direction, -1e6, 1e6))
    return verdict(scores, math.sqrt(2.0) * mu)


@pytest.mark.audit
def test_colluders_learn_no_more_than_the_ledger_says():
    result = audit()
    assert result.passed, result


@pytest.mark.slow
def test_colluders_learn_no_more_from_secure_noise():
    result = audit(secure=True, draws=SECURE_DRAWS)
    assert result.passed, result


@pytest.mark.audit
def test_masks_of_two_questions_have_nothing_in_common():
    result = audit_of_two_questions(draws=500)
    assert not result.exceeded, result


# ---- mutants

noisy_words = site_module.noisy_words


def divided_by_all(steps, terms, name):
    less = terms.sigma * math.sqrt(terms.carriers / len(terms.roster))
    return noisy_words(steps, replace(terms, sigma=less), name)


def half_sensitivity(args, columns):
    bound = float(args["clip"]) * float(args["residual_clip"])
    return RecordSensitivity(shape=(2,), l2=bound, linf=bound, bound=bound, derivation="C where 2C is due")


def colluders_add(steps, terms, name):
    return noisy_words(steps, terms, name) if name in COLLUDING else steps.view(np.uint64)


@pytest.mark.audit
def test_noise_divided_by_all_sites_is_seen(monkeypatch):
    monkeypatch.setattr(site_module, "noisy_words", divided_by_all)
    assert audit(draws=1000).exceeded


@pytest.mark.audit
def test_noise_of_a_colluding_site_only_is_seen(monkeypatch):
    monkeypatch.setattr(site_module, "noisy_words", colluders_add)
    assert audit(draws=500).exceeded


def test_few_draws_tell_noise_of_honest_sites_from_noise_of_a_colluding_one(monkeypatch):
    assert not audit(draws=FEW, mu=1.5).exceeded
    monkeypatch.setattr(site_module, "noisy_words", colluders_add)
    assert audit(draws=FEW, mu=1.5).exceeded


@pytest.mark.audit
def test_c_where_2c_is_due_is_seen(monkeypatch):
    op = SITE_OPS["clipped_score"]
    mutant = SiteOp(name=op.name, function=op.function, sensitivity=half_sensitivity, arguments=op.arguments)
    monkeypatch.setitem(catalogue.SITE_OPS, "clipped_score", mutant)
    assert audit(draws=1000).exceeded


@pytest.mark.audit
def test_masks_that_forget_the_question_are_seen(monkeypatch):
    """As if the sequence number and all else but the session did not enter the key of a mask."""
    masked = PairKeys.masked

    def reused(self, values, own, roster, colluding, digest):
        return masked(self, values, own, roster, colluding, "00" * 32)

    monkeypatch.setattr(PairKeys, "masked", reused)
    assert audit_of_two_questions(draws=1000).exceeded
