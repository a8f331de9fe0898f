"""Audits of scores with variances and slopes in one vector on their worst pair; mutants that must fail."""

import math
from dataclasses import replace

import numpy as np
import pytest

from privinf.federation import InProcessFederation, Site, SitePolicy, TrustedServer
from privinf.mechanisms import catalogue
from privinf.mechanisms.statistics import scores as single_statistics
from privinf.mechanisms.statistics.ops import RecordSensitivity
from privinf.noise import LatticeNoise, SimulationNoise
from privinf.schema import Design
from studies.audit import audit_mechanism, gaussian_log_ratio

MU, BOUND, SLOPE, AVERAGE, FAR = 3.0, 0.8, 0.9, 0.6, 4.0
ARGS = {
    "columns": np.array([0, 1]),
    "transform": np.array([[1.0], [0.0]]),
    "bound": BOUND,
    "targets": np.array([1]),
    "weights": np.ones(1),
    "slope_clip": 1.5,
    "slope_weight": SLOPE,
    "average_clip": 1.2,
    "average_weight": AVERAGE,
}
# u = 2 in both worlds, products just inside +-B, slopes at their two clips.
RECORDS = ((0.3999996, 2.0, 1.0), (-0.3999996, 2.0, -1.0))
OTHERS = (np.array([0.3, -0.2]), np.array([[0.5, 0.1], [-0.4, 0.9]]))


def sums(record):
    """Return what the mechanism should sum, one target, from its definition."""
    y, X = np.append(record[0], OTHERS[0]), np.vstack([record[1:], OTHERS[1]])
    u, x = X[:, 0], X[:, 1]
    s = np.clip(u * y, -BOUND, BOUND) / BOUND
    raw = u * x * (np.abs(u * y) < BOUND)
    slope, average = np.clip(raw, -0.75, 1.5) / 1.5, np.clip(raw, -0.6, 1.2) / 1.2
    return np.array([s.sum(), 1.5 * (s**2).sum(), SLOPE * slope.sum(), AVERAGE * average.sum()])


def scores(noise, count, far=1.0):
    """Return log-likelihood ratios of both worlds by the stated law, drawn through the server's interface."""
    # Of such bounds 2 and 1 are whole steps of the grid: the products stay just inside.
    design = Design.from_arrays(["a", "b"], bounds=[(-128.0, 128.0)] * 2, y_bounds=(-100.0, 100.0))
    policy = SitePolicy(trusted_server=True, simulation=True)
    sigma = math.sqrt(4.0 + 2.25 * SLOPE**2 + 2.25 * AVERAGE**2) / MU
    means, found = [sums(record) for record in RECORDS], []
    for world, record in enumerate(RECORDS):
        rows = np.append(far * record[0], OTHERS[0]), np.vstack([record[1:], OTHERS[1]])
        site = Site(rows, design, policy=policy)
        source = LatticeNoise() if noise == "secure" else SimulationNoise(np.random.default_rng((3, world)))
        server = TrustedServer(InProcessFederation({"one": site}), noise=source)
        draws = [server.vector_sum("target_scores", ARGS, mu=MU, label="s").values for _ in range(count)]
        found.append(gaussian_log_ratio(np.array(draws), means[0], means[1], sigma))
    return found


def audit(drawn):
    return audit_mechanism(
        lambda world, count, rng: drawn[world], lambda x: x, draws=len(drawn[0]), rng=0, mu=MU, exact_mu=MU
    )


@pytest.mark.audit
@pytest.mark.parametrize(("noise", "count"), [("seeded", 3000), ("secure", 4000)])
def test_scores_on_their_worst_pair(noise, count):
    result = audit(scores(noise, count))
    assert result.passed, result


def test_the_pair_is_the_worst():
    stated = catalogue.SITE_OPS["target_scores"].record_sensitivity(ARGS, 2).l2
    assert np.linalg.norm(sums(RECORDS[0]) - sums(RECORDS[1])) == pytest.approx(stated, rel=1e-5)


perturb = SimulationNoise.perturb


def half_noise(self, values, scale):
    return perturb(self, values, scale / 2)


def no_noise(self, values, scale):
    return values


def unclipped(values, bound):
    """Clip eight times as far out: what is longer has no room in the integers of a sum."""
    return np.clip(values, -8.0 * bound, 8.0 * bound, out=values)


def scores_alone(args, columns):
    """Forget the slopes, and take half: add/remove where replace-one is due."""
    return RecordSensitivity(shape=(4,), l2=1.0, linf=2.0, bound=1.5, derivation="")


MUTANTS = {
    "half noise": ((SimulationNoise, "perturb", half_noise), 1.0),
    "noise forgotten": ((SimulationNoise, "perturb", no_noise), 1.0),
    "half the sensitivity, slopes forgotten": ("reach", 1.0),
    "products not clipped": ((single_statistics, "clipped", unclipped), FAR),
}


@pytest.mark.audit
@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(name, monkeypatch):
    patch, far = MUTANTS[name]
    if patch == "reach":
        ops = catalogue.SITE_OPS
        monkeypatch.setitem(ops, "target_scores", replace(ops["target_scores"], sensitivity=scores_alone))
    else:
        monkeypatch.setattr(*patch)
    if far > 1.0:
        # the server's check of the range would stop it before
        monkeypatch.setattr("privinf.federation.trusted.TOLERANCE", FAR**2)
    result = audit(scores("seeded", 600, far))
    assert result.exceeded, result
