"""Audit of sums that protect whole sites; a site's total that is not clipped must be caught."""

import numpy as np
import pytest

from privinf.federation import InProcessFederation, SecureServer, Site, SitePolicy, TrustedServer, pinned_keys
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.statistics import ops as site_ops
from privinf.schema import Design
from studies.audit import audit_mechanism, gaussian_log_ratio

MU, DRAWS, CLIP, ROWS = 2.0, 3000, 4.0, 9
# Draws of one audit. By secure sums the noise is a little larger than the price asks: exact mu 1.95.
AUDIT_DRAWS = {"server": DRAWS, "secure-sum": 12_000}
FEW = 120  # in `make test`: enough for a mutant that moves the sum nine times as far
DESIGN = Design.from_arrays(["a", "b"], bounds=[(-1.0, 1.0)] * 2, y_bounds=(0.0, 1.0))
ARGS = {
    "family": "binomial",
    "theta": np.zeros(2),
    "radius": 1.4,
    "clip": 1.0,
    "client_rows": ROWS,
    "client_clip": CLIP,
}
SERVERS = {"server": TrustedServer, "secure-sum": SecureServer}
KEYS, ROSTER = pinned_keys(["east", "west"])
POLICY = SitePolicy(trusted_server=True, secure_sums=True, simulation=True, zero_out=True)


def federation_of(world):
    """Return two sites; the second one's records all point one way, or the other way."""
    rng = np.random.default_rng(0)
    rows = {
        "east": (rng.integers(0, 2, 5).astype(float), rng.uniform(-1, 1, (5, 2))),
        "west": (np.full(ROWS, float(world)), np.ones((ROWS, 2))),
    }
    return InProcessFederation(
        {name: Site(rows[name], DESIGN, policy=POLICY, key=KEYS[name], roster=ROSTER) for name in KEYS}
    )


def audit(trust="server", draws=DRAWS, args=ARGS):
    op, seen, means = SITE_OPS["glm.sketched_score"], [], []
    for world in (0, 1):
        federation = federation_of(world)
        means.append(sum(op.total(site._placed(name), args) for name, site in federation._sites.items()))
        server = SERVERS[trust](federation, rng=world)
        seen.append(
            np.array([server.vector_sum(op.name, args, mu=MU, label="sum").values for _ in range(draws)])
        )
    scores = [gaussian_log_ratio(one, *means, op.record_sensitivity(args, 2).l2 / MU) for one in seen]
    return audit_mechanism(
        lambda world, count, rng: scores[world], lambda x: x, draws=draws, rng=0, mu=MU, exact_mu=MU
    )


@pytest.mark.audit
@pytest.mark.parametrize("trust", ["server", pytest.param("secure-sum", marks=pytest.mark.slow)])
def test_a_replaced_site_shows_no_more_than_the_price(trust):
    result = audit(trust, AUDIT_DRAWS[trust])
    assert result.passed, result


@pytest.mark.audit
@pytest.mark.parametrize("trust", SERVERS)
def test_a_sites_total_that_is_not_clipped_is_seen(trust, monkeypatch):
    do_not_clip(monkeypatch)
    assert audit(trust, draws=400).exceeded


def do_not_clip(monkeypatch):
    monkeypatch.setattr(site_ops, "clipped_total", lambda total, args: total)
    for module in ("trusted", "secure.site", "secure.server"):
        # checks of the range would stop it before
        monkeypatch.setattr(f"privinf.federation.{module}.TOLERANCE", 9.0)


def test_few_draws_tell_a_clipped_total_from_one_that_is_not(monkeypatch):
    args = ARGS | {"client_clip": CLIP / 4.0}
    assert not audit(draws=FEW, args=args).exceeded
    do_not_clip(monkeypatch)
    assert audit(draws=FEW, args=args).exceeded


def test_the_total_is_clipped_as_a_whole_and_exactly():
    rng = np.random.default_rng(1)
    op, block = SITE_OPS["glm.score"], federation_of(1)._sites["west"]._placed("west")
    args = {name: value for name, value in ARGS.items() if name != "clip"}
    for bits in (0, 40):
        total = op.total(block, args | {"bits": bits})
        free = op.total(block, {k: v for k, v in args.items() if not k.startswith("client")})
        assert CLIP * (1.0 - 1e-9) <= np.linalg.norm(total) <= CLIP * (1.0 + 1e-12)
        np.testing.assert_allclose(total / np.linalg.norm(total), free / np.linalg.norm(free), atol=1e-9)
    short = rng.normal(size=2)
    np.testing.assert_allclose(site_ops.clipped_total(short, args | {"bits": 40}), short, atol=1e-10)


def test_a_site_checks_its_size_and_the_unit():
    site = federation_of(0)._sites["west"]
    op = SITE_OPS["glm.sketched_score"]
    with pytest.raises(ValueError, match="'client_rows' of the statistic must be an integer, at least 9"):
        op.record_sensitivity(ARGS | {"client_rows": 8}, 2, site.size)
    with pytest.raises(ValueError, match="'client_clip' and 'client_rows'"):
        op.record_sensitivity({name: value for name, value in ARGS.items() if name != "client_rows"}, 2)
    planned = TrustedServer(federation_of(0), rng=0).planned(op.name, ARGS, mu=MU, label="sum")
    (line,) = planned.query.charges
    record_sensitivity = op.record_sensitivity(ARGS, 2, site.size)
    assert len(POLICY.accept([line], record_sensitivity)) == 1
    for wrong in ("record", "person"):
        with pytest.raises(ValueError, match=f"privacy unit {wrong!r}"):
            POLICY.accept([line | {"unit": wrong}], record_sensitivity)
    with pytest.raises(ValueError, match="privacy unit 'client'"):
        POLICY.accept(
            [line], op.record_sensitivity({k: v for k, v in ARGS.items() if not k.startswith("client")}, 2)
        )
