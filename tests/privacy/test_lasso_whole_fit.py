"""Whole fits of DebiasedLasso on two neighbouring data sets: everything they release, audited as one output.

Whatever a fit returns is a function of the server's releases, also where the noise hides the target: a test
replays them over other rows. Their joint law is known: given the releases before it, each is a sum that
either data set would have given plus Gaussian noise, or picks by a product of softmax probabilities. Hence
two audits. What a fit really spends on the pair, release by release, must never pass its ledger. And its
log-likelihood ratio, the best score that an attacker could compute (fits without intervals have one like all
others), must not prove more than the ledger's epsilon. A third looks at nothing but the public results, with
a discriminant learned from half of them, in which a hidden target is an outcome of its own.
"""

import functools
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import log_softmax
from scipy.stats import rankdata

import privinf as pi
from privinf.accounting import Ledger, epsilon_to_rho
from privinf.errors import UnchargedError
from privinf.federation import TrustedServer, trusted
from privinf.lasso import fit as sparse_fits
from privinf.lasso import rows as lasso_rows
from privinf.lasso import scores
from privinf.lasso.plan import LassoShares
from privinf.mechanisms import catalogue
from privinf.mechanisms.statistics.block import SiteBlock
from privinf.mechanisms.statistics.summands import Ball
from privinf.noise import SimulationNoise
from studies.audit import audit_mechanism

# Delta is far above 1/n so that few fits audit it.
pytestmark = pytest.mark.filterwarnings("ignore::privinf.errors.LargeDeltaWarning")
N, P = 50, 5
ASKED = trusted.total_and_sites  # of the sites themselves: `served` puts those of a server in its place
SIGNS = np.array([1.0, -1.0, 1.0, -1.0, 1.0])
Y_BOUNDS, FAR = (-3.0, 3.0), 1e3  # the response is cut at 8 times the width of its bounds
EPSILON, DELTA = 6.0, 0.05
# Generous where a fit of 50 rows would hardly ever get to its intervals.
SHARES = {
    "selection": 0.06,
    "refit": 0.26,
    "scales": 0.12,
    "neighbours": 0.01,
    "gram": 0.05,
    "slopes": 0.1,
    "score": 0.35,
    "missed": 0.05,
}
OPTIONS = {"sparsity": 1, "targets": [0], "precision_sparsity": 1, "delta": DELTA, "target": "mean"}

# Opposite responses of one x move every sum of products with a residual by its whole sensitivity; orthogonal
# x of other residuals move these less, and Gram matrices and histograms as well.
PAIRS = {
    "opposite responses": ((-FAR, SIGNS), (FAR, SIGNS)),
    "orthogonal x": ((FAR, SIGNS), (-8.0, SIGNS * [1, 1, -1, -1, 0])),
}
OPPOSITE = "opposite responses"


def worlds(pair, rows=N):
    """Return two data sets (y, X) of so many records that differ in the last."""
    rng = np.random.default_rng(12)
    X = rng.choice([-1.0, 1.0], (rows - 1, P))
    y = 0.4 * X[:, :4] @ SIGNS[:4] + 0.2 * rng.standard_normal(rows - 1)
    return [(np.append(y, response), np.vstack([X, x])) for response, x in PAIRS[pair]]


# ---- the releases of a fit


def log_picks(scores, top, candidates):
    """Return the log-probability of picks, (..., k), by Gumbel peeling of scores, (..., p)."""
    scores = np.where(candidates, scores / top.scale, -np.inf)
    total = 0.0
    for step in range(top.support.shape[-1]):
        pick = top.support[..., step : step + 1]
        total += np.take_along_axis(log_softmax(scores, axis=-1), pick, axis=-1).sum()
        np.put_along_axis(scores, pick, -np.inf, axis=-1)
    return total


def pick_loss(change, top, candidates):
    """Return the zCDP of picks where |v| moves by `change`: e^2/8 each, e the range of the log-ratio."""
    high = np.where(candidates, change, -np.inf).max(axis=-1)
    low = np.where(candidates, change, np.inf).min(axis=-1)
    return top.support.shape[-1] * (((high - low) / top.scale) ** 2).sum() / 8.0


class Witness(TrustedServer):
    """The server with the sums of both data sets at hand: adds up the loss of its releases.

    `ratio` is their log-likelihood ratio, `spent` their loss on the pair in zCDP. Sums are taken from the
    rows themselves: messages and the sites' own ledgers are left out.
    """

    pair, world = (), 0

    def __init__(self, federation, **options):
        super().__init__(federation, **options)
        d = self.design
        self.blocks = [
            SiteBlock(
                features=X, response=y, low=d.low, high=d.high, response_low=d.y_low, response_high=d.y_high
            )
            for y, X in self.pair
        ]
        self.ratio, self.spent, self.sums = 0.0, 0.0, None

    def total_and_sites(self, query, reach, asked):
        op, args = catalogue.SITE_OPS[query.op], query.args
        self.sums = [op.function(block, args).reshape(reach.shape) for block in self.blocks]
        return self.sums[self.world], tuple(asked)

    def vector_sum(self, op, args, **options):
        found = super().vector_sum(op, args, **options)
        low, high = self.sums
        self.ratio += ((found.values - 0.5 * (low + high)) * (high - low)).sum() / found.scale**2
        self.spent += 0.5 * ((high - low) ** 2).sum() / found.scale**2
        return found

    def top_k(self, op, args, k, *, candidates, **options):
        found = super().top_k(op, args, k, candidates=candidates, **options)
        low, high = (np.abs(v) for v in self.sums)
        self.ratio += log_picks(high, found, candidates) - log_picks(low, found, candidates)
        self.spent += pick_loss(high - low, found, candidates)
        return found


class Recorder(TrustedServer):
    """The server itself, which keeps what it releases."""

    kept = ()

    def total_and_sites(self, query, reach, asked):
        return ASKED(self._rounds, query, reach, asked)

    def vector_sum(self, *args, **options):
        self.kept.append(super().vector_sum(*args, **options))
        return self.kept[-1]

    def top_k(self, *args, **options):
        self.kept.append(super().top_k(*args, **options))
        return self.kept[-1]


class Replay(Recorder):
    """A server that asks nobody and releases what another one did."""

    def total_and_sites(self, query, reach, asked):
        return np.full(reach.shape, np.nan), tuple(asked)

    def vector_sum(self, *args, **options):
        TrustedServer.vector_sum(self, *args, **options)
        return self.kept.pop(0)

    def top_k(self, *args, **options):
        return self.kept.pop(0)


@contextmanager
def served(kind, **attributes):
    """Let fits use this kind of server; yields the servers that were made."""
    made = []

    def server(federation, **options):
        made.append(type(kind.__name__, (kind,), attributes)(federation, **options))
        return made[-1]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lasso_rows, "TrustedServer", server)
        patched.setattr(trusted, "total_and_sites", lambda rounds, *asked: made[-1].total_and_sites(*asked))
        # A function of public numbers, and a third of the time of such a small fit.
        patched.setattr(scores, "clip_radii", functools.cache(scores.clip_radii))
        yield made


def model_of(rows):
    return pi.DebiasedLasso(*rows, x_bound=1.0, y_bounds=Y_BOUNDS)


def outcome(model, rng, epsilon=EPSILON, shares=SHARES, **more):
    """Return what a fit gives its user as numbers; the last says whether the noise hides the target."""
    r = model.fit(epsilon=epsilon, shares=shares, rng=rng, **(OPTIONS | more))
    bse = np.zeros(1) if r.hidden_targets else r.bse
    tested = r.missed_column_test.statistic
    hidden = float(len(r.hidden_targets))
    scale = r._settings["sparse"]["scale"]  # also where the result hides it
    return np.concatenate([r.params, bse, [scale, tested], r.sparse_params, [hidden]])


@dataclass
class Fits:
    """Fits of both worlds: log-likelihood ratios, outcomes, what was spent and what the ledger says."""

    ratios: np.ndarray
    outcomes: np.ndarray
    spent: np.ndarray
    charged: np.ndarray
    epsilon: float


def fits(pair, count, *, epsilon=EPSILON, delta=DELTA, shares=SHARES, rows=N, seed=0, **more):
    """Return `count` whole fits a world."""
    data, shape = worlds(pair, rows), (2, count)
    found = Fits(*np.empty((1, *shape)), np.empty((*shape, 5 + P)), *np.empty((2, *shape)), 0.0)
    for world in (0, 1):
        model, rng = model_of(data[world]), np.random.default_rng((seed, world))
        with served(Witness, pair=data, world=world) as made:
            for i in range(count):
                model.ledger = Ledger()
                found.outcomes[world, i] = outcome(model, rng, epsilon, shares, delta=delta, **more)
                server, total = made.pop(), model.ledger.total()
                found.ratios[world, i], found.spent[world, i] = server.ratio, server.spent
                found.charged[world, i] = total.rho
                if i < 20:  # the same for all fits that reach their intervals
                    found.epsilon = max(found.epsilon, total.epsilon(delta))
    return found


def learned(outcomes):
    """Return scores of the second halves by a discriminant learned from the first halves' ranks."""
    pooled = outcomes.reshape(-1, outcomes.shape[2])
    ranks = np.stack([rankdata(column) for column in pooled.T], axis=1) / len(pooled)
    hidden = outcomes[..., -1:] == 1.0
    features = np.concatenate([ranks.reshape(outcomes.shape), hidden], axis=-1)
    half = outcomes.shape[1] // 2
    train = features[:, :half]
    spread = sum(np.cov(one.T) for one in train) + 1e-3 * np.eye(features.shape[2])
    return features[:, half:] @ np.linalg.solve(spread, train[1].mean(axis=0) - train[0].mean(axis=0))


def exact_epsilon(ratios, delta=DELTA):
    """Return the loss of the pair at delta, by Monte Carlo over log-likelihood ratios of both worlds."""

    def excess(epsilon):
        beyond = [-np.expm1(np.minimum(epsilon - one, 0.0)).mean() for one in (ratios[1], -ratios[0])]
        return max(beyond) - delta

    return brentq(excess, 0.0, 1e3) if excess(0.0) > 0.0 else 0.0


def audit(scores, claim, delta=DELTA, **sight):
    return audit_mechanism(
        lambda world, count, rng: scores[world],
        lambda x: x,
        draws=len(scores[0]),
        rng=0,
        epsilon=claim,
        delta=delta,
        **sight,
    )


# ---- what the audits rest on


@pytest.mark.audit
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("world", [0, 1])
def test_the_witness_releases_what_the_public_fit_does(pair, world):
    data = worlds(pair)
    seen = set()
    for seed in range(6):
        public = outcome(model_of(data[world]), seed)
        with served(Witness, pair=data, world=world) as made:
            # Its sums are of rows as they are, a site's of rows on their grid.
            np.testing.assert_allclose(outcome(model_of(data[world]), seed), public, rtol=1e-4, atol=1e-5)
        assert len(made) == 1
        seen.add(public[-1])
    assert 0.0 in seen


def recorded(rows, seed, epsilon):
    """Return (outcome, releases) of one fit."""
    with served(Recorder, kept=[]) as made:
        found = outcome(model_of(rows), seed, epsilon)
    return found, made[0].kept


@pytest.mark.audit
def test_results_with_and_without_intervals_are_functions_of_the_releases():
    ours, theirs = worlds("orthogonal x")
    hidden = {EPSILON: 0, EPSILON / 6.0: 0}
    for epsilon, seed in product(hidden, range(4)):
        found, kept = recorded(ours, seed, epsilon)
        with served(Replay, kept=kept) as made:
            assert np.array_equal(outcome(model_of(theirs), 0, epsilon), found)
        assert made[0].kept == []
        hidden[epsilon] += found[-1] > 0.0
    assert 0 < sum(hidden.values()) < 8


@pytest.mark.audit
def test_what_a_chosen_fit_leaves_out_again_is_a_function_of_the_releases(monkeypatch):
    def in_blocks(seed):
        rng = np.random.default_rng(seed)
        common = np.repeat(rng.standard_normal((3000, 4)), 4, axis=1)
        X = np.clip(0.3 * common + 0.06 * rng.standard_normal((3000, 16)), -1.0, 1.0)
        return 1.5 * X[:, [0, 4, 8]].sum(axis=1) + 0.5 * rng.standard_normal(3000), X

    left_out = []

    def watched(gram, sd, doubtful):
        kept = part_above_noise(gram, sd, doubtful)
        left_out.append(len(gram) - len(kept))
        return kept

    part_above_noise = sparse_fits.part_above_noise
    monkeypatch.setattr(sparse_fits, "part_above_noise", watched)
    chosen = {"sparsity": "auto", "max_sparsity": 8, "precision_sparsity": None, "shares": None}
    for seed in range(3):
        with served(Recorder, kept=[]) as made:
            found = outcome(model_of(in_blocks(seed)), seed, **chosen)
        with served(Replay, kept=made[0].kept) as replayed:
            assert np.array_equal(outcome(model_of(in_blocks(seed + 9)), 0, **chosen), found)
        assert replayed[0].kept == []
    assert left_out[::2] == left_out[1::2]
    assert any(left_out)


# ---- what a fit spends on the pair, release by release


@pytest.mark.audit
@pytest.mark.parametrize("target", ["mean", "robust"])
@pytest.mark.parametrize(("pair", "least"), [(OPPOSITE, 0.55), ("orthogonal x", 0.4)])
def test_no_fit_spends_more_than_its_ledger_says(pair, least, target):
    found = fits(pair, 10, target=target)
    assert (found.spent <= found.charged * (1.0 + 1e-9)).all()
    assert (found.spent > least * found.charged).any()  # the pair is hard enough for mutants to show
    assert found.epsilon <= EPSILON


def test_three_fits_spend_no_more_than_their_ledgers_say():
    found = fits(OPPOSITE, 3)
    assert (found.spent <= found.charged * (1.0 + 1e-9)).all()


# ---- mutants


def half_reach(args, columns):
    """Add/remove where replace-one is due."""
    bound = args["clip"] * args["residual_clip"]
    return Ball(size=args["transform"].shape[1], top=0.5 * bound, derivation="CR").sensitivity()


def unclipped_score(block, args):
    x = block.columns(args, np.asarray(args["columns"]))
    return block.residual(args) @ (x @ args["transform"])


spend, perturb = Ledger.spend, SimulationNoise.perturb
# Most of the budget for scores, and rows enough for nearly every fit to get there.
HEAVY_SCORE = {
    "selection": 0.01,
    "refit": 0.08,
    "scales": 0.012,
    "neighbours": 0.003,
    "gram": 0.01,
    "slopes": 0.005,
    "score": 0.87,
    "missed": 0.01,
}
HEAVY = {"shares": HEAVY_SCORE, "rows": 250}
FORGOTTEN = {
    "debiasing scores",
    "debiasing scores, upper layer",
    "step of the refit",
    "score of the suspect",
}


def forgetful(self, *entries):
    return spend(self, *(entry for entry in entries if entry.label not in FORGOTTEN))


def whole(cls, given, every, extras):
    """Give every part of a fit the whole budget."""
    return cls(**dict.fromkeys(SHARES.keys() - {"missed"}, 1.0)), {"missed": 1.0}


def half_gaussian(self, values, scale):
    return perturb(self, values, scale / 2.0)


def half_layer(args, columns):
    """Add/remove where replace-one is due."""
    top = 0.5 * (args["high"] - args["low"])
    return Ball(size=args["transform"].shape[1], top=top, derivation="b - a").sensitivity()


def op(name="clipped_score", **changes):
    return [(catalogue.SITE_OPS, name, replace(catalogue.SITE_OPS[name], **changes))]


WHOLE = [(LassoShares, "from_options", classmethod(whole)), (sparse_fits, "STEPS", (1.0,) * 4)]
# What is broken, options of the fits, draws that show it at `BROKEN`. The claim is the ledger's epsilon, but
# never more than was asked for.
MUTANTS = {
    "CR where 2CR is due": (op(sensitivity=half_reach), HEAVY | {"target": "robust"}, 3000),
    "b - a where 2 (b - a) is due": (op("layers.score", sensitivity=half_layer), HEAVY, 3000),
    "half noise": ([(SimulationNoise, "perturb", half_gaussian)], HEAVY, 3000),
    "score not clipped": (op(function=unclipped_score, sums=None), {}, 1000),
    "scores and steps missing in the ledger": ([(Ledger, "spend", forgetful)], HEAVY, 4500),
    "parts and steps spend the whole budget, counted once": (WHOLE, {}, 3000),
}
# Here double the loss of a Gaussian release stands out most of what zCDP allows, by so many draws.
# Proved of the claim 1.998: 2.520 for CR, 2.363 for b - a; of 0.358, all that a ledger without
# scores says, 0.393 by 2,250 draws and 0.426 by 3,000. At delta = .05 and 50 records, where four of ten
# fits ended before their scores, it was not.
BROKEN = {"epsilon": 2.0, "delta": 0.2}
FORGETFUL = "scores and steps missing in the ledger"  # no release is made without its line: the fit stops
UNSEEN = {"half noise"}  # by the count of what is spent: it takes the stated noise for granted


def mutant_fits(name, count=None, **options):
    """Return the fits with one thing broken."""
    patches, more, draws = MUTANTS[name]
    with pytest.MonkeyPatch.context() as patched:
        for place, key, value in patches:
            (patched.setitem if isinstance(place, dict) else patched.setattr)(place, key, value)
        return fits(OPPOSITE, count or draws, **(options | more))


def test_a_ledger_that_forgets_lines_stops_the_fit():
    with pytest.raises(UnchargedError, match="no entry in its ledger"):
        mutant_fits(FORGETFUL, 3)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "score not clipped" else pytest.mark.audit)
        for name in sorted(MUTANTS.keys() - UNSEEN - {FORGETFUL})
    ],
)
def test_mutants_spend_more_than_they_may(name):
    found = mutant_fits(name, 3)
    allowed = np.minimum(found.charged, epsilon_to_rho(EPSILON, DELTA))
    assert (found.spent > 1.2 * allowed).any()


@pytest.mark.audit
def test_a_mutant_is_caught_by_its_likelihood_ratio():
    found = mutant_fits("score not clipped", 100, epsilon=1.0)
    assert audit(found.ratios, 1.0).exceeded


# ---- everything as one output, by sampling


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS)
def test_whole_fits_on_neighbours(pair):
    found = fits(pair, 1500)
    assert found.epsilon <= EPSILON
    result = audit(found.ratios, found.epsilon)
    assert not result.exceeded, result
    result = audit(learned(found.outcomes), found.epsilon)
    assert not result.exceeded, result


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(MUTANTS.keys() - {FORGETFUL}))
def test_whole_fits_of_mutants_are_caught(name):
    found = mutant_fits(name, **BROKEN)
    result = audit(found.ratios, min(found.epsilon, BROKEN["epsilon"]), BROKEN["delta"])
    assert result.exceeded, result


@pytest.mark.slow
@pytest.mark.parametrize("target", ["mean", "robust"])
def test_whole_fits_where_mutants_are_caught(target):
    found = fits(OPPOSITE, 1500, **HEAVY, **BROKEN, target=target)
    assert found.epsilon <= BROKEN["epsilon"]
    result = audit(found.ratios, found.epsilon, BROKEN["delta"])
    assert not result.exceeded, result


def leaking(pair, count, epsilon):
    """Return the fits with the un-noised mean of y in place of their residual scale."""
    found = fits(pair, count, epsilon=epsilon)
    for world, (y, _) in enumerate(worlds(pair)):
        found.outcomes[world, :, 2] = np.clip(y, *Y_BOUNDS).mean()
    return found


@pytest.mark.slow
def test_the_public_results_show_one_number_of_the_rows():
    found = leaking(OPPOSITE, 1000, 2.0)
    assert audit(learned(found.outcomes), 2.0).exceeded
