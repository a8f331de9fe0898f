"""Zero-out claims: half the noise, said so, only where a site allows them, never beside replace-one."""

from dataclasses import replace

import numpy as np
import pytest
from federation_sites import NAMES, OPEN, design_of, federation_of, rows_of
from secure_sites import SCORE, SIMULATED, secure_federation, secure_query
from test_secure_attacks import changed

import privinf as pi
from privinf.errors import ArgumentError, NotAvailableError
from privinf.federation import SecureServer, TrustedServer
from privinf.mechanisms.catalogue import SITE_OPS

ALLOWED = replace(OPEN, zero_out=True)
ALLOWED_SECURE = replace(SIMULATED, zero_out=True)


def servers(relation, rng=0):
    yield TrustedServer(federation_of(ALLOWED), rng=rng, relation=relation)
    yield SecureServer(secure_federation(policy=ALLOWED_SECURE), rng=rng, relation=relation)


@pytest.mark.parametrize("rng", [0, None], ids=["simulated", "secure"])
def test_the_same_price_buys_half_the_noise(rng):
    for full, half in zip(servers("replace-one", rng), servers("zero-out", rng), strict=True):
        found = [server.vector_sum("clipped_score", SCORE, mu=0.8, label="score") for server in (full, half)]
        assert found[1].scale == pytest.approx(found[0].scale / 2.0, rel=1e-5)
        (line,) = half.ledger.entries
        assert (line.relation, line.loss.mu) == ("zero-out", 0.8)
        assert any("contributes nothing" in text for text in line.assumptions)
        for site in half._rounds.federation._sites.values():
            assert [entry.relation for entry in site.ledger.entries] == ["zero-out"]
            assert site.ledger.total().mu == pytest.approx(0.8)


def test_a_site_must_allow_it():
    with pytest.raises(NotAvailableError, match=r"but the query has relation=.zero-out"):
        TrustedServer(federation_of(), rng=0, relation="zero-out").vector_sum(
            "clipped_score", SCORE, mu=1.0, label="score"
        )
    with pytest.raises(NotAvailableError, match="policy requires relation="):
        SecureServer(secure_federation(), relation="zero-out").vector_sum(
            "clipped_score", SCORE, mu=1.0, label="score"
        )
    with pytest.raises(ArgumentError, match="relation"):
        TrustedServer(federation_of(), rng=0, relation="metric")


def test_a_site_recomputes_the_sensitivity():
    """A line that says replace-one, or less than the zero-out sensitivity, does not pass."""
    federation = secure_federation(policy=ALLOWED_SECURE)
    query = secure_query(federation, relation="zero-out")
    lie = federation.ask(changed(query, charge={"relation": "replace-one"}))
    assert all("the statistic of the query needs at least" in reply.error for reply in lie)
    stated = dict(query.charges[0])["sensitivity"]
    lie = federation.ask(changed(query, charge={"sensitivity": stated | {"value": 0.99 * stated["value"]}}))
    assert all("the statistic of the query needs at least" in reply.error for reply in lie)
    assert not any(reply.error for reply in federation.ask(query))


def test_selections_and_statistics_without_a_norm_are_refused(monkeypatch):
    server = TrustedServer(federation_of(ALLOWED), rng=0, relation="zero-out")
    args = {"clip": 2.0, "residual_clip": 1.5}
    with pytest.raises(NotAvailableError, match="need a server with relation="):
        server.top_k("clipped_products", args, 1, mu=1.0, label="picks")
    op = SITE_OPS["clipped_score"]
    silent = replace(op, sensitivity=lambda args, p: replace(op.sensitivity(args, p), norm=None))
    monkeypatch.setitem(SITE_OPS, "clipped_score", silent)
    with pytest.raises(NotAvailableError, match="sensitivity of this statistic is not available"):
        server.vector_sum("clipped_score", SCORE, mu=1.0, label="score")
    assert len(server.ledger) == 0


def test_the_two_relations_share_no_ledger():
    ledger = pi.Ledger()
    federation = federation_of(ALLOWED)
    TrustedServer(federation, ledger=ledger, rng=0).vector_sum("clipped_score", SCORE, mu=1.0, label="score")
    with pytest.raises(ArgumentError, match="under different neighboring relations"):
        TrustedServer(federation, ledger=ledger, rng=0, relation="zero-out").vector_sum(
            "clipped_score", SCORE, mu=1.0, label="score"
        )
    with pytest.raises(ArgumentError, match=r"site 'north': .*replace-one and zero-out"):
        TrustedServer(federation, rng=0, relation="zero-out").vector_sum(
            "clipped_score", SCORE, mu=1.0, label="score"
        )
    assert len(ledger) == 1


def test_leaving_a_record_out_moves_no_sum_further_than_stated():
    y, X = rows_of(300, 3)
    design = design_of()
    whole = {
        "clipped_score": SCORE,
        "union_gram": {"columns": [0, 1, 2, 3], "bound": 1.2},
        "column_sums": {"columns": [0, 2], "bound": 0.7},
        "squared_residuals": {"residual_clip": 0.9},
    }
    site = pi.federation.Site((y, X), design, policy=ALLOWED)
    for name, args in whole.items():
        op = SITE_OPS[name]
        record_sensitivity = op.record_sensitivity(args, len(NAMES))
        if record_sensitivity.norm is None:
            continue
        total = op.total(site._placed("s"), args)
        for left_out in range(40):
            kept = np.arange(300) != left_out
            part = pi.federation.Site((y[kept], X[kept]), design, policy=ALLOWED)
            moved = np.linalg.norm(total - op.total(part._placed("s"), args))
            assert moved <= record_sensitivity.norm * (1 + 1e-9), name
