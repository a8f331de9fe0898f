"""Audit of second moments in a secure sum, on pairs that attain their sensitivity, with mutants.

As in the audit of secure sums, two of four sites are in league with the server and take their masks off: what
is left is the honest sum with the honest noise.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
from test_secure_sum_audit import COLLUDERS, COLLUDING, HONEST, KEYS, NAMES, POLICY, ROSTER, Planned, Planning
from test_secure_sum_audit import asked as sent_by_honest

from privinf.federation import InProcessFederation, SecureServer, Site
from privinf.federation.secure.masking import PURPOSE, apply_masks
from privinf.mechanisms import catalogue
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.statistics.moments import default_response_weight
from privinf.schema import Design
from studies.audit import audit_mechanism, gaussian_log_ratio

MU, DRAWS = 3.0, 2500
RADIUS = 1.0
DESIGN = Design.from_arrays(["const", "a", "b"], radius=RADIUS, public=["const"], y_bounds=(-2.0, 2.0))
WEIGHT = default_response_weight(RADIUS, 1.0, 1.0)
SHARED = {"norm": RADIUS, "constant": 0}
TOTAL = SHARED | {"response_factor": WEIGHT / DESIGN.y_scale, "response_bound": WEIGHT}
RESIDUAL = SHARED | {"response_factor": 0.5, "coefficients": np.zeros(3), "residual_clip": 0.6}
# (y, x) and (y', x') with the inner product -1 of (x, c y), or of x; beyond the bounds, so that what is
# shrunk and clipped is what attains.
TURN = math.acos(WEIGHT**2 - 1.0)
PAIRS = {
    "moments.total": ((9.0, 3.0, 0.0), (-9.0, 3.0 * math.cos(TURN), 3.0 * math.sin(TURN))),
    "moments.residual": ((9.0, 3.0, 0.0), (9.0, -3.0, 0.0)),
}
ARGS = {"moments.total": TOTAL, "moments.residual": RESIDUAL}
EVERY = pytest.mark.parametrize("op", PAIRS)


def federation_of(op, world):
    few = np.array([0.4, -0.3]), np.array([[1.0, 0.5, 0.1], [1.0, -0.4, 0.6]])
    y, *x = PAIRS[op][world]
    changed = np.append(few[0], y), np.vstack([few[1], [1.0, *x]])
    return InProcessFederation(
        {
            name: Site(
                changed if name == HONEST[0] else few, DESIGN, policy=POLICY, key=KEYS[name], roster=ROSTER
            )
            for name in NAMES
        }
    )


def question_of(op, federation):
    planning = Planning(federation)
    with pytest.raises(Planned):
        SecureServer(planning, max_colluding=2, rng=0).vector_sum(op, ARGS[op], mu=MU, label="moments")
    return planning.query


def honest_view(query, sent):
    """Return the honest sites' noisy sum, as the server and the colluding sites compute it."""
    nothing = np.zeros(len(sent[HONEST[0]]), dtype=np.uint64)
    total, info = nothing.copy(), PURPOSE + bytes.fromhex(query.digest)
    for name in HONEST:
        shared = [(other, COLLUDERS[other].pair(name, info)) for other in COLLUDING]
        total += sent[name] - apply_masks(nothing.copy(), name, shared)
    return total.view(np.int64) * query.masking["grid"]


def audit(op, draws=DRAWS):
    """Audit one release in the eyes of the colluders."""
    worlds = [federation_of(op, world) for world in (0, 1)]
    means = [
        sum(SITE_OPS[op].total(one._sites[name]._placed(name), ARGS[op]) for name in HONEST) for one in worlds
    ]
    scale = SITE_OPS[op].record_sensitivity(ARGS[op], 3).l2 / MU
    scores = []
    for world, federation in enumerate(worlds):
        query = question_of(op, federation)
        seen = [honest_view(*sent_by_honest(federation, query, 2 + draw, world)) for draw in range(draws)]
        scores.append(gaussian_log_ratio(np.array(seen), *means, scale))
    return audit_mechanism(
        lambda world, count, rng: scores[world], lambda x: x, draws=draws, rng=0, mu=MU, exact_mu=MU
    )


@pytest.mark.audit
@EVERY
def test_colluders_learn_no_more_of_moments_than_the_ledger_says(op):
    result = audit(op)
    assert result.passed, result


@EVERY
def test_the_pairs_attain_the_sensitivity(op):
    totals = [SITE_OPS[op].total(federation_of(op, w)._sites["a"]._placed("a"), ARGS[op]) for w in (0, 1)]
    assert np.linalg.norm(totals[0] - totals[1]) == pytest.approx(
        SITE_OPS[op].record_sensitivity(ARGS[op], 3).l2, rel=1e-5
    )


# ---- mutants


def mutated(monkeypatch, op, **change):
    monkeypatch.setitem(catalogue.SITE_OPS, op, replace(SITE_OPS[op], **change))


@pytest.mark.audit
@EVERY
def test_the_largest_norm_in_place_of_the_distance_is_seen(op, monkeypatch):
    honest = SITE_OPS[op].sensitivity

    def norm_alone(args, columns):
        record_sensitivity = honest(args, columns)
        return replace(
            record_sensitivity,
            l2=record_sensitivity.l2 / math.sqrt(2.0),
            linf=record_sensitivity.linf / math.sqrt(2.0),
        )

    mutated(monkeypatch, op, sensitivity=norm_alone)
    assert audit(op, 1000).exceeded


@pytest.mark.audit
@EVERY
def test_rows_that_are_not_shrunk_are_seen(op, monkeypatch):
    honest = SITE_OPS[op].function
    mutated(monkeypatch, op, function=lambda block, args: honest(block, {**args, "norm": 1.5 * RADIUS}))
    wide = SITE_OPS[op].sensitivity
    mutated(monkeypatch, op, sensitivity=lambda args, columns: replace(wide(args, columns), bound=99.0))
    assert audit(op, 1000).exceeded
