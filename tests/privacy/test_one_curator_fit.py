"""Whole fits of OLS on pairs that move them: an attack on everything that was released, with mutants.

A release's law is known once those before it are, so the log-likelihood ratio of a transcript is a sum over
its releases: the best attack on a fit, and on whatever is computed from it. What the pair costs along each
path is added up too, and must stay below the mu that was reserved, on every path.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from mutation import Mutant

import privinf as pi
from privinf.federation.curator import Curator
from privinf.glm import clipping, running
from privinf.mechanisms.catalogue import SITE_OPS
from studies.audit import audit_mechanism

N, MU, DELTA = 60, 2.0, 1e-3
DRAWS = 150
# The record of either world beside N - 1 others, all on one line with small errors.
PAIRS = {
    "opposite responses": ((1.0, 1.0), (1.0, -1.0)),
    "opposite corners": ((1.0, 1.0), (-1.0, 1.0)),
    "inside, and a corner": ((0.1, 0.05), (1.0, -1.0)),
}
OPTIONS = {
    "by counts": {},
    "at the bounds": {"residual_clip": "bounds"},
    "a stated clip": {"residual_clip": 0.3},
    "logistic": {"model": "Logit"},
}


def worlds(pair, spread=1.0):
    """Return (y, X) of both worlds; a small spread makes the first Gram matrix noise."""
    rng = np.random.default_rng(5)
    x = spread * rng.uniform(-1.0, 1.0, N - 1)
    y = 0.5 * x + 0.05 * rng.standard_normal(N - 1)
    return [
        (np.append(y, response), pi.add_constant(np.append(x, far)[:, None])) for far, response in PAIRS[pair]
    ]


class Witness(Curator):
    """A curator with the rows of both worlds: adds up what its releases tell of them, and cost on them.

    `noise` says by statistic how much of the stated noise there is in truth.
    """

    blocks, made, noise = (), None, {}

    def __init__(self, rows, **options):
        super().__init__(rows, **options)
        self.own, self.ratio, self.spent = rows, 0.0, 0.0
        type(self).made = self

    def vector_sums(self, asked):
        several = super().vector_sums(asked)
        for (op, args, _, _), found in zip(asked, several, strict=True):
            if len(self.blocks) == 2:
                low, high = (SITE_OPS[op].total(block, args) for block in self.blocks)
                sd = found.scale * self.noise.get(op, 1.0)
                self.ratio += float(((found.values - 0.5 * (low + high)) * (high - low)).sum() / sd**2)
                self.spent += float(((high - low) ** 2).sum() / sd**2)
        return several


@dataclass
class Fits:
    """Fits of both worlds.

    Attributes
    ----------
    ratios, spent : (2, count) arrays
        Log-likelihood ratios of what was released, and mu^2 that it cost on the pair.
    charged : float
        Largest mu of a ledger.
    labels : set of str
    """

    ratios: np.ndarray
    spent: np.ndarray
    charged: float
    labels: set


def model_of(name, y, X, **options):
    if name == "Logit":
        return pi.Logit((y > 0.1).astype(float), X, bounds=[(-1.0, 1.0)])
    return pi.OLS(y, X, bounds=[(-1.0, 1.0)], y_bounds=(-1.0, 1.0), **options)


def fits(pair, count, *, model="OLS", spread=1.0, cov_type="HC0", **options):
    models = [model_of(model, y, X, **options) for y, X in worlds(pair, spread)]
    found, charged, labels = Fits(np.empty((2, count)), np.empty((2, count)), 0.0, set()), [], set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "Curator", Witness)
        patch.setattr(Witness, "blocks", ())
        for one in models:  # once, for the rows as a fit opens them
            one.fit(mu=MU, rng=0, cov_type=cov_type)
            Witness.blocks = (*Witness.blocks[-1:], Witness.made.own)
        for world, one in enumerate(models):
            rng = np.random.default_rng((3, world))
            for i in range(count):
                one.ledger = pi.Ledger()
                one.fit(mu=MU, rng=rng, cov_type=cov_type)
                found.ratios[world, i], found.spent[world, i] = Witness.made.ratio, Witness.made.spent
                charged.append(one.ledger.total().mu)
                labels |= {entry.label for entry in one.ledger.entries}
    found.charged, found.labels = max(charged), labels
    return found


def audit(ratios, **sight):
    return audit_mechanism(
        lambda world, count, rng: ratios[world],
        lambda x: x,
        draws=ratios.shape[1],
        rng=0,
        mu=MU,
        delta=DELTA,
        **sight,
    )


@pytest.mark.audit
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("pair", PAIRS)
def test_no_path_spends_more_than_was_reserved(pair, option):
    for spread in (1.0, 0.05):
        found = fits(pair, 4, spread=spread, **OPTIONS[option])
        assert found.charged == pytest.approx(MU, rel=1e-9)
        assert found.spent.max() <= MU**2 * (1.0 + 1e-9)
        least = 0.12 if option == "logistic" else 0.25 if pair.startswith("inside") else 0.4
        assert found.spent.mean() >= least * MU**2


@pytest.mark.audit
def test_a_fit_that_counts_values_outside_spends_no_more(monkeypatch):
    monkeypatch.setattr(clipping, "is_detectable", lambda n, k, mu: True)
    monkeypatch.setitem(PAIRS, "inside, and far outside", ((0.9, 0.9), (5.0, -7.0)))
    for option in ({}, {"model": "Logit"}):
        found = fits("inside, and far outside", 4, **option)
        assert clipping.LABEL in found.labels
        assert found.charged == pytest.approx(MU, rel=1e-9)
        assert found.spent.max() <= MU**2 * (1.0 + 1e-9)


@pytest.mark.audit
def test_an_attack_on_all_releases_proves_no_more_than_the_claim():
    found = fits("opposite corners", DRAWS)
    assert {"moments", "Hessian", "scores", "scores, upper layer", "meat"} <= found.labels
    assert audit(found.ratios).passed
    # The best attack sees what the pair costs: log-ratios of mean +-mu^2/2 and variance mu^2.
    spent = found.spent.mean()
    means = found.ratios.mean(axis=1)
    np.testing.assert_allclose(means, [-spent / 2.0, spent / 2.0], atol=4.0 * np.sqrt(spent / DRAWS))
    assert audit(found.ratios).mu_lower > 0.4 * np.sqrt(spent)


QUIET = (
    "perturb(total, self.scale)",
    'perturb(total, self.scale * (0.2 if self.statistic.name == "whitened.score" else 1.0))',
)
MUTANTS = {
    "layers with a fifth of their noise": Mutant("federation.curator", "_Planned.noised", *QUIET),
    "every release at the price of all": Mutant(
        "glm.queries", "LeastSquaresQueries.price", "part_of_mu(self.mu, share)", "part_of_mu(self.mu, 1.0)"
    ),
}


@pytest.mark.audit
@pytest.mark.parametrize("name", MUTANTS)
def test_too_little_noise_is_seen_in_the_whole_fit(name, monkeypatch):
    monkeypatch.setattr(Witness, "noise", {"whitened.score": 0.2} if "layers" in name else {})
    with MUTANTS[name].applied():
        found = fits("opposite corners", DRAWS)
    assert audit(found.ratios).exceeded
