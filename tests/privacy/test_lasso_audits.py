"""Audits of peeling, scores and gradient steps on worst pairs, with mutants that must fail.

Peeling has a known law: the order of the picks is a product of softmax probabilities, and given it the values
are Gaussian. So the log-likelihood ratio of every release and the exact epsilon of the pair are both known.
"""

import math
from contextlib import ExitStack
from itertools import permutations

import numpy as np
import pytest
from mutation import Mutant
from scipy.optimize import brentq
from scipy.special import log_softmax, ndtr

from privinf.accounting import compose
from privinf.federation import InProcessFederation, Site, SitePolicy, TrustedServer
from privinf.mechanisms import NoisyTopK, catalogue
from privinf.mechanisms import selection as noisy_top_k
from privinf.mechanisms.selection import Peeling
from privinf.noise import LatticeNoise, SimulationNoise
from privinf.schema import Design
from studies.audit import audit_mechanism, gaussian_log_ratio

DRAWS, SECURE_DRAWS = 200_000, 150_000
ASKED, SECURE_ASKED = 3000, 5000
DELTA, RHO, MU = 0.05, 0.5, 3.0
SEEDED, SECURE = "seeded", "secure"
NOISE = pytest.mark.parametrize("noise", [SEEDED, SECURE])

# Entries 1 to 3 are tied at the second place. Replacing a record moves every entry by lambda = 1: the
# candidates for the last place apart from one another, and the values of whatever is picked.
TIED = (np.array([6.0, 3.0, 3.0, 3.0]), np.array([5.0, 2.0, 2.0, 4.0]))


def crowd(size, forward=1):
    """Return many equals, and some of them one step forward as the others step back."""
    return np.full(size, 5.0), np.where(np.arange(size) < forward, 6.0, 4.0)


CROWD = crowd(20)


def source_of(noise, world):
    return SimulationNoise(np.random.default_rng((7, world))) if noise == SEEDED else LatticeNoise()


def orders(size, k):
    return np.array(list(permutations(range(size), k)))


def log_order(v, picks, scale):
    """Return the log-probability of each row of picks by Gumbel peeling of |v|."""
    scores = np.tile(np.abs(v) / scale, (len(picks), 1))
    total = np.zeros(len(picks))
    for step in range(picks.shape[1]):
        pick = picks[:, step : step + 1]
        total += np.take_along_axis(log_softmax(scores, axis=1), pick, axis=1)[:, 0]
        np.put_along_axis(scores, pick, -np.inf, axis=1)
    return total


def log_ratio(top, pair, peeling):
    """Return log p1/p0 of releases, by the law that they claim to have."""
    low, high = pair
    score = log_order(high, top.support, peeling.scale) - log_order(low, top.support, peeling.scale)
    if top.values is not None:
        a, b = low[top.support], high[top.support]
        score += ((top.values - 0.5 * (a + b)) * (b - a)).sum(axis=1) / peeling.values_scale**2
    return score


def exact_epsilon(pair, peeling, delta):
    """Return the smallest epsilon of the pair at delta: a mixture over orders of shifted Gaussian losses."""
    picks = orders(len(pair[0]), peeling.k)
    logs = [log_order(v, picks, peeling.scale) for v in pair]
    gap = np.linalg.norm((pair[1] - pair[0])[picks], axis=1)
    m = gap / peeling.values_scale if peeling.with_values else np.zeros(len(picks))

    def worst(epsilon):
        deltas = []
        for p0, p1 in (logs, logs[::-1]):
            far = epsilon - (p1 - p0)
            with np.errstate(divide="ignore", invalid="ignore"):
                t = np.where(m > 0, far / m, np.where(far < 0, -np.inf, np.inf))
            deltas.append((np.exp(p1) * ndtr(m / 2 - t) - np.exp(epsilon + p0) * ndtr(-m / 2 - t)).sum())
        return max(deltas)

    if delta == 0.0:
        return max(np.abs(logs[1] - logs[0]))
    return brentq(lambda epsilon: worst(epsilon) - delta, 0.0, 200.0)


def draws_of(peeling, pair, noise, count):
    sources = [source_of(noise, world) for world in (0, 1)]
    return [peeling.draw(np.tile(v, (count, 1)), source) for v, source in zip(pair, sources, strict=True)]


def peeled(pair, noise, *, factor=1.0, count=None, delta=DELTA, law=None, **options):
    """Return (scores of both worlds, claimed epsilon, exact epsilon) of `NoisyTopK`.

    `factor` stretches the pair away from its middle: more than 1 for a record that moves more than stated.
    """
    level = {"rho": RHO} if not {"rho", "epsilon"} & options.keys() else {}
    if "epsilon" in options:
        level["delta"] = 0
    peeling = NoisyTopK(options.pop("k", 2), 1.0, **level, **options).calibrated(source_of(noise, 0))
    middle = 0.5 * (pair[0] + pair[1])
    moved = tuple(middle + factor * (v - middle) for v in pair)
    count = count or (DRAWS if noise == SEEDED else SECURE_DRAWS)
    scores = [log_ratio(top, moved, peeling) for top in draws_of(peeling, moved, noise, count)]
    claim = compose([entry.loss for entry in peeling.entries])
    claimed = claim.epsilon(delta) if delta > 0.0 else sum(claim.pure)
    return scores, claimed, exact_epsilon(moved, peeling, delta)


def audit(scores, epsilon, *, exact=None, delta=DELTA):
    sight = {} if exact is None else {"exact_epsilon": exact}
    return audit_mechanism(
        lambda world, count, rng: scores[world],
        lambda x: x,
        draws=len(scores[0]),
        rng=0,
        epsilon=epsilon,
        delta=delta,
        **sight,
    )


def check_peeling(*args, delta=DELTA, **options):
    scores, claimed, exact = peeled(*args, delta=delta, **options)
    assert exact <= claimed * (1 + 1e-9)
    result = audit(scores, claimed, exact=exact, delta=delta)
    assert result.passed, result
    return exact / claimed


@pytest.mark.audit
@NOISE
@pytest.mark.parametrize("values", [True, False], ids=["with values", "alone"])
def test_picks_and_values_jointly_with_ties_at_the_last_place(values, noise):
    check_peeling(TIED, noise, values=values)


@pytest.mark.audit
@NOISE
def test_private_max(noise):
    tightness = check_peeling(CROWD, noise, k=1, values=False, epsilon=2.0, delta=0.0)
    assert tightness > 0.8


@pytest.mark.parametrize("k", [1, 3])
def test_some_of_six_with_their_values(k):
    check_peeling(crowd(6), SEEDED, k=k)


@NOISE
def test_one_pick_of_the_papers_laplace_peeling(noise):
    """Of two: the chance that a difference of two Laplace numbers stays below d is known."""
    v = (np.array([3.0, 3.0]), np.array([4.0, 2.0]))
    peeling = NoisyTopK(1, 1.0, epsilon=2.0, delta=0, method="laplace", values=False).calibrated(
        source_of(noise, 0)
    )

    def first(d):
        t = d / peeling.scale
        return 1.0 - math.exp(-t) * (0.5 + t / 4.0) if t >= 0 else 1.0 - first(-d)

    p = [first(one[0] - one[1]) for one in v]
    logs = np.array([math.log(p[1] / p[0]), math.log((1 - p[1]) / (1 - p[0]))])
    tops = draws_of(peeling, v, noise, DRAWS if noise == SEEDED else SECURE_DRAWS)
    scores = [logs[top.support[:, 0]] for top in tops]
    result = audit(scores, 2.0, exact=np.abs(logs).max(), delta=0.0)
    assert result.passed, result


# ---- sums through the server's interface

R, C = 0.8, 1.5
WEIGHTS = np.array([[1.0, 0.4], [0.0, 1.0]])
STEP = {"columns": np.array([0, 1]), "clip": C, "residual_clip": R}
COORDINATE = STEP | {"transform": WEIGHTS, "support": np.array([0]), "beta": np.array([0.5])}


def site_rows(record, far=1.0):
    y = np.array([far * record[0], 0.3, -0.2])
    return y, np.array([far * np.array(record[1:]), [0.5, 0.1], [-0.4, 0.9]])


# Both records have u at its clip in one direction; their residuals stand at opposite clips.
RECORDS = ((1.9, 1.0, 1.5), (-1.9, 1.0, 1.5))


def asked(args, noise, far=1.0, bound=100.0, count=None):
    """Return outputs of both worlds: one record of three replaced, every draw through the server."""
    design = Design.from_arrays(["a", "b"], bounds=[(-bound, bound)] * 2, y_bounds=(-bound, bound))
    policy = SitePolicy(trusted_server=True, simulation=True)
    count = count or (ASKED if noise == SEEDED else SECURE_ASKED)
    outputs = []
    for world, record in enumerate(RECORDS):
        site = Site(site_rows(record, far), design, policy=policy)
        server = TrustedServer(InProcessFederation({"one": site}), noise=source_of(noise, world))
        outputs.append(
            np.array(
                [server.vector_sum("clipped_score", args, mu=MU, label="s").values for _ in range(count)]
            )
        )
    return outputs


def score_scores(args, noise, far=1.0, count=None):
    """Return log-likelihood ratios by the stated law: means at +-C R along the record's direction."""
    u = np.array(RECORDS[0][1:]) @ args.get("transform", np.eye(2))
    u *= C / np.linalg.norm(u)
    rest = np.zeros(2)
    beta = np.array([0.5, 0.0]) if "beta" in args else np.zeros(2)
    y, X = site_rows(RECORDS[0])
    for value, x in zip(y[1:], X[1:], strict=True):
        v = x @ args.get("transform", np.eye(2))
        v *= min(1.0, C / np.linalg.norm(v))
        rest += v * np.clip(value - x @ beta, -R, R)
    sigma = 2.0 * C * R / MU
    outputs = asked(args, noise, far, count=count)
    return [gaussian_log_ratio(one, rest + R * u, rest - R * u, sigma) for one in outputs]


def mu_audit(scores):
    return audit_mechanism(
        lambda world, count, rng: scores[world], lambda x: x, draws=len(scores[0]), rng=0, mu=MU, exact_mu=MU
    )


@pytest.mark.audit
@pytest.mark.parametrize(
    ("args", "noise", "far"),
    [(STEP, SEEDED, 40.0), (STEP, SECURE, 1.0), (COORDINATE, SEEDED, 1.0), (COORDINATE, SECURE, 40.0)],
    ids=["gradient, far outside", "gradient, secure", "coordinates", "coordinates, secure, far outside"],
)
def test_scores_on_their_worst_pair(args, noise, far):
    result = mu_audit(score_scores(args, noise, far))
    assert result.passed, result


# ---- mutants

gumbel, perturb, draw = SimulationNoise.gumbel, SimulationNoise.perturb, Peeling.draw


def half_gumbel(self, scale, size):
    return gumbel(self, scale / 2, size)


def half_gaussian(self, values, scale):
    return perturb(self, values, scale / 2)


def without_noise(self, values, scale):
    return values


def silent(self, scale, size):
    return np.zeros(size)


def picks_reused(self, v, source, candidates=None):
    """Make the picks once, on one vector, and use them for the values of all later ones."""
    top = draw(self, v, source, candidates)
    best = np.argsort(-np.abs(v), axis=1, kind="stable")[:, : self.k]
    values = source.perturb(np.take_along_axis(v, best, axis=1), self.values_scale)
    return noisy_top_k.TopK(
        support=best,
        values=values,
        size=top.size,
        scale=top.scale,
        values_sd=top.values_sd,
        entries=top.entries,
    )


PEELING_MUTANTS = {
    "half noise, picks": (
        (SimulationNoise, "gumbel", half_gumbel),
        {"pair": crowd(30, forward=2), "values": False, "epsilon": 2.0, "delta": 0.0},
    ),
    "half noise, jointly": ((SimulationNoise, "perturb", half_gaussian), {}),
    "values without noise": ((SimulationNoise, "perturb", without_noise), {}),
    "picks without noise": ((SimulationNoise, "gumbel", silent), {}),
    "un-noised selection reused for noisy values": ((Peeling, "draw", picks_reused), {}),
    "lambda where 2 lambda is due": (None, {"factor": 2.0}),
    "lambda where 2 lambda is due, private max": (
        None,
        {"factor": 2.0, "pair": CROWD, "k": 1, "values": False, "epsilon": 1.0, "delta": 0.0},
    ),
    "half noise, private max": (
        (SimulationNoise, "gumbel", half_gumbel),
        {"pair": CROWD, "k": 1, "values": False, "epsilon": 1.0, "delta": 0.0},
    ),
}


def mutant_scores(name, count=None):
    """Return (scores, claimed epsilon, delta) of a peeling mutant."""
    patch, options = PEELING_MUTANTS[name]
    options = dict(options)
    pair, delta = options.pop("pair", TIED), options.get("delta", DELTA)
    with pytest.MonkeyPatch.context() as patched:
        if patch is not None:
            patched.setattr(*patch)
        scores, claimed, _ = peeled(pair, SEEDED, count=count, **options)
    return scores, claimed, delta


@pytest.mark.audit
@pytest.mark.parametrize("name", PEELING_MUTANTS)
def test_peeling_mutants_are_caught(name):
    scores, claimed, delta = mutant_scores(name)
    result = audit(scores, claimed, delta=delta)
    assert result.exceeded, result


def reused_scores(count=20_000):
    """Return scores of two calls that share their noise: the second vector is the first one's negative."""
    peeling = NoisyTopK(2, 1.0, rho=RHO / 2).calibrated(SimulationNoise(0))
    scores = []
    for world, v in enumerate(TIED):
        tops = [
            peeling.draw(np.tile(sign * v, (count, 1)), SimulationNoise(np.random.default_rng((9, world))))
            for sign in (1.0, -1.0)
        ]
        # |v| is the same, hence the picks; half the difference of the values is v without noise.
        exact = 0.5 * (tops[0].values - tops[1].values)
        first, second = (one[tops[0].support] for one in TIED)
        scores.append(((exact - first) ** 2).sum(axis=1) - ((exact - second) ** 2).sum(axis=1))
    return scores, compose([entry.loss for entry in peeling.entries] * 2).epsilon(DELTA)


def test_mutant_noise_reused_in_a_second_call():
    scores, claimed = reused_scores()
    assert audit(scores, claimed).exceeded


def reach_of_half(args, columns):
    """Add/remove where replace-one is due."""
    from privinf.mechanisms.statistics.ops import RecordSensitivity

    bound = args["clip"] * args["residual_clip"]
    return RecordSensitivity(shape=(2,), l2=bound, linf=bound, bound=bound, derivation="CR")


SUMMANDS = "mechanisms.statistics.summands"
# The summand shrinks whatever comes of a statistic, so a score is too long only without it.
UNHELD = Mutant(SUMMANDS, "Ball.along", "np.clip(made_finite(left), -room, room)", "made_finite(left)")
UNSHRUNK = Mutant(
    "mechanisms.statistics.regression",
    "clipped_score",
    'np.minimum(along.length, float(rows.args["clip"]))',
    "along.length",
)
UNCLIPPED = Mutant("mechanisms.statistics.terms", "residual", "clipped(r, bound)", "r")


SCORE_MUTANTS = {
    "half noise": ((SimulationNoise, "perturb", half_gaussian), 1.0),
    "CR where 2CR is due": ("reach", 1.0),
    "noise forgotten": ((SimulationNoise, "perturb", without_noise), 1.0),
    "norm not clipped": ((UNHELD, UNSHRUNK), 3.0),
    "residual not clipped": ((UNHELD, UNCLIPPED), 3.0),
}


def score_mutant_scores(name, args, count=None):
    from dataclasses import replace

    patch, far = SCORE_MUTANTS[name]
    with pytest.MonkeyPatch.context() as patched, ExitStack() as mutants:
        if patch == "reach":
            ops = catalogue.SITE_OPS
            patched.setitem(ops, "clipped_score", replace(ops["clipped_score"], sensitivity=reach_of_half))
        elif isinstance(patch[0], Mutant):
            for mutant in patch:
                mutants.enter_context(mutant.applied())
        else:
            patched.setattr(*patch)
        if far > 1.0:
            # the server's check of the range would stop it before
            patched.setattr("privinf.federation.trusted.TOLERANCE", 9.0)
        return score_scores(args, SEEDED, far=far, count=count)


@pytest.mark.audit
@pytest.mark.parametrize("args", [STEP, COORDINATE], ids=["gradient step", "debiased coordinates"])
@pytest.mark.parametrize("name", SCORE_MUTANTS)
def test_score_mutants_are_caught(name, args):
    result = mu_audit(score_mutant_scores(name, args, count=800))
    assert result.exceeded, result
