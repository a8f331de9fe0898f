"""Audits of every mechanism on its worst pair, through the public functions, with mutants that must fail."""

import math
import pickle
import traceback
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp
from support.instrument import RecordingNoise
from support.leaks import find_raw_values

import privinf as pi
from privinf.mechanisms import RandomizedResponse, gaussian, rows
from privinf.mechanisms.local import modulation_map
from privinf.mechanisms.local.modulation_map import orthonormal_directions
from privinf.mechanisms.moments import noisy_total
from privinf.mechanisms.passes import RowPasses
from privinf.mechanisms.rows import as_rows, encode
from privinf.mechanisms.statistics import gridded
from privinf.noise import LatticeNoise, SimulationNoise
from studies.audit import audit_mechanism, search_sensitivity, tradeoff_mu, wave_log_density

D = 4
DRAWS = 100_000
MU = 1.0
SEEDED, SECURE = {"rng": 0}, {}


def audit_scores(zero, one, *, mu, exact_mu=None):
    """Audit from the scores of independent outputs in two neighbouring worlds."""
    worlds = [np.asarray(zero), np.asarray(one)]
    return audit_mechanism(
        lambda world, count, rng: worlds[world], lambda x: x, draws=len(zero), rng=0, mu=mu, exact_mu=exact_mu
    )


def direction(seed=0):
    """The public modulation direction of a one-shot release, and a unit vector orthogonal to it."""
    v = orthonormal_directions(np.random.default_rng(seed), 1, D)[0]
    u = orthonormal_directions(np.random.default_rng(9), 1, D, orthogonal_to=v)[0]
    return v, u


def world(x, y=0.0):
    """A population of identical people: local releases of it are independent draws for one person."""
    return np.full(DRAWS, y), np.tile(x, (DRAWS, 1))


def released(x, noise, *, y=0.0, mu=MU, **options):
    responses, features = world(x, y=y)
    options = options if "y_bounds" in options else {"response": "public", **options}
    model = pi.ModulatedOLS(responses, features, radius=1.0, **options)
    return model.release(mu=mu, **noise)


def one_shot(noise, **options):
    _, u = direction()
    zero = released(-u, noise, **options).arrays["features"] @ u
    one = released(u, {key: value + 1 for key, value in noise.items()}, **options).arrays["features"] @ u
    return zero, one


@pytest.mark.parametrize("noise", [SEEDED, SECURE], ids=["seeded", "secure"])
@pytest.mark.parametrize("amplitude", [0.0, 0.5])
def test_modulation_in_its_worst_pair(noise, amplitude):
    result = audit_scores(*one_shot(noise, amplitude=amplitude), mu=MU, exact_mu=MU)
    assert result.passed, result


def along_scores(noise, amplitude):
    """Return scores of the pair along V, with the cosine integrated out, and the exact mu of that pair."""
    v, _ = direction()
    scores = []
    for sign in (-1, 1):
        release = released(
            sign * v, {key: value + sign + 1 for key, value in noise.items()}, amplitude=amplitude
        )
        scale = release.noise_model["scales"][0]
        z = release.arrays["features"] @ v
        scores.append(
            wave_log_density(z - 0.5, amplitude, scale) - wave_log_density(z + 0.5, amplitude, scale)
        )
    grid = np.linspace(-12.0, 12.0, 20_001)
    densities = [wave_log_density(grid - mean, amplitude, scale) for mean in (-0.5, 0.5)]
    return *scores, tradeoff_mu(*densities, np.full(grid.size, grid[1] - grid[0]))


@pytest.mark.audit
@pytest.mark.parametrize("noise", [SEEDED, SECURE], ids=["seeded", "secure"])
def test_along_the_direction_modulation_is_noise_that_the_account_does_not_credit(noise):
    zero, one, exact = along_scores(noise, 1.0)
    result = audit_scores(zero, one, mu=MU, exact_mu=exact)
    assert result.passed, result
    assert 0.3 * MU < exact < 0.9 * MU


def round_scores(noise, **options):
    """Return scores of five rounds with adaptive directions orthogonal to the pair."""
    _, u = direction()
    rounds, scores = 5, []
    for sign in (-1, 1):
        y, X = world(sign * u)
        design = pi.ModulatedOLS(y, X, radius=1.0, response="public").mechanism.design
        session = pi.Modulation(design, **{"amplitude": 0.4, **options}).open(
            (y, X), rounds=rounds, mu=MU, **{key: value + sign + 1 for key, value in noise.items()}
        )
        public = np.random.default_rng(3)
        for _ in range(rounds):
            directions = orthonormal_directions(public, options.get("directions", 1), D, orthogonal_to=u)
            session.send(directions)
        scores.append((session.release().arrays["features"] @ u).sum(axis=0))
    return scores


@pytest.mark.audit
@pytest.mark.parametrize("noise", [SEEDED, SECURE], ids=["seeded", "secure"])
@pytest.mark.parametrize("directions", [1, 2])
def test_rounds_with_fresh_phases_add_up(noise, directions):
    result = audit_scores(*round_scores(noise, directions=directions), mu=MU, exact_mu=MU)
    assert result.passed, result


@pytest.mark.parametrize("noise", [SEEDED, SECURE], ids=["seeded", "secure"])
def test_lipschitz_calibration_spends_less_than_it_says(noise):
    """The paper's sensitivity is larger than the exact one by 1 + amplitude omega/(1 - alpha)."""
    result = audit_scores(
        *one_shot(noise, amplitude=0.2, sensitivity="lipschitz"), mu=MU, exact_mu=MU * 0.5 / 0.7
    )
    assert result.passed, result
    assert result.mu_lower < MU * 0.5 / 0.7


TURN = {"amplitude": 8.0, "frequency": 40.0}


def keeping_phases(kind):
    """Return a source of `kind` that hands out the phases of the first round again in every later one."""

    class Kept(kind):
        def uniform(self, size):
            known = self.__dict__.setdefault("phases", [])
            turn = self.__dict__["turn"] = self.__dict__.get("turn", -1) + 1
            blocks = -(-PHASE_DRAWS // modulation_map.BLOCK)
            if turn < blocks:
                known.append(super().uniform(size))
            return known[turn % blocks]

    return Kept


PHASE_DRAWS = 20_000


def phase_scores(source_of, rule="exact"):
    """Return scores of two rounds along e1 and e2 by the likelihood ratio that a common phase would have.

    The pair is 0 and half a turn along e1: with a common phase it flips the sign of the first wave.
    """
    V = np.eye(D)[:2]
    pair = np.zeros((2, D))
    pair[1, 0] = math.pi / TURN["frequency"]
    sent = []
    for which in (0, 1):
        y, X = np.zeros(PHASE_DRAWS), np.tile(pair[which], (PHASE_DRAWS, 1))
        design = pi.ModulatedOLS(y, X, radius=1.0, response="public").mechanism.design
        mechanism = pi.Modulation(design, sensitivity=rule, **TURN)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(gaussian, "get_source", lambda rng, source, which=which: source_of(which))
            session = mechanism.open((y, X), rounds=2, mu=MU)
        sent.append(np.array([session.send(V[t : t + 1]) for t in range(2)]))
    scale, phases = session.scales[0], 2 * math.pi * np.arange(128) / 128

    def log_likelihood(messages, x):
        total = np.zeros((PHASE_DRAWS, len(phases)))
        for t in range(2):
            wave = TURN["amplitude"] * np.cos(TURN["frequency"] * x @ V[t] + phases)
            rest = messages[t] - 0.5 * x
            along = rest @ V[t]
            total -= (((rest**2).sum(axis=1) - along**2)[:, None] + (along[:, None] - wave) ** 2) / (
                2 * scale**2
            )
        return logsumexp(total, axis=1)

    return [log_likelihood(one, pair[1]) - log_likelihood(one, pair[0]) for one in sent]


@pytest.mark.audit
def test_mutant_phase_reused_over_rounds():
    """Two rounds with one phase give away omega <x, v_1 - v_2>: the claim fails by far."""
    broken = audit_scores(*phase_scores(keeping_phases(SimulationNoise)), mu=MU)
    assert broken.exceeded
    assert broken.mu_lower > 3.0 * MU
    assert audit_scores(*phase_scores(SimulationNoise), mu=MU).passed


@pytest.mark.audit
def test_reused_phases_of_the_secure_source():
    """Waves drawn without a look at x stay harmless noise, even if they are the same in every round."""
    kept = keeping_phases(LatticeNoise)
    assert not audit_scores(*phase_scores(lambda seed: kept()), mu=MU).exceeded
    # The Lipschitz calibration charges amplitude times frequency, given the phase: it does not rest on it.
    assert not audit_scores(*phase_scores(lambda seed: kept(), "lipschitz"), mu=MU).exceeded


MUTANT_SCALES = {
    "half sigma": 0.5,
    "radius taken for the diameter (add/remove for replace-one)": 0.5,
    "variance halved": math.sqrt(0.5),
}


@pytest.mark.parametrize("name", MUTANT_SCALES)
def test_mutants_of_the_noise_scale_are_caught(name, monkeypatch):
    factor = MUTANT_SCALES[name]
    true = SimulationNoise.perturb
    monkeypatch.setattr(
        SimulationNoise, "perturb", lambda self, values, scale: true(self, values, factor * scale)
    )
    result = audit_scores(*one_shot(SEEDED, amplitude=0.0), mu=MU)
    assert not result.passed


def test_mutant_radius_for_diameter_in_the_design(monkeypatch):
    from privinf.schema import Design

    monkeypatch.setattr(Design, "diameter", property(lambda self: self.radius))
    result = audit_scores(*one_shot(SEEDED, amplitude=0.0), mu=MU)
    assert not result.passed


def outsiders():
    _, u = direction()
    zero = released(-u, {"rng": 0}, amplitude=0.0).arrays["features"] @ u
    one = released(30.0 * u, {"rng": 1}, amplitude=0.0).arrays["features"] @ u
    return zero, one


def test_a_record_far_outside_is_projected_and_its_mutant_is_caught(monkeypatch):
    assert audit_scores(*outsiders(), mu=MU, exact_mu=MU).passed
    monkeypatch.setattr(rows, "project_ball", lambda x, radius: x)
    assert not audit_scores(*outsiders(), mu=MU).passed


def test_box_bounds_are_enforced_and_the_mutant_is_caught(monkeypatch):
    def both():
        out = []
        for sign, seed in ((-1, 0), (50, 1)):
            y, X = world(np.full(D, float(sign)))
            model = pi.ModulatedOLS(y, X, bounds=[(-1, 1)] * D, amplitude=0.0, response="public")
            out.append(model.release(mu=MU, rng=seed).arrays["features"].sum(axis=1))
        return out

    assert audit_scores(*both(), mu=MU, exact_mu=MU).passed
    monkeypatch.setattr(rows.np, "clip", lambda block, low, high, out=None: block)
    assert not audit_scores(*both(), mu=MU).passed


def joint_scores(noise):
    """Return scores of features and response released together."""
    _, u = direction()
    scores = []
    for sign in (-1, 1):
        seed = {key: value + sign + 1 for key, value in noise.items()}
        release = released(sign * u, seed, y=3.0 * sign, y_bounds=(-3.0, 3.0), amplitude=0.3)
        shift = 0.5 * 2.0 / release.noise_model["scales"][0] ** 2
        y_shift = 2.0 / release.noise_model["response_scale"] ** 2
        scores.append(release.arrays["features"] @ u * shift + release.arrays["response"] * y_shift)
    return scores


def response_release_scores(factor=1.0):
    """Return scores of a protected response alone, `factor` times its bound in one world."""
    scores = []
    for y, seed in ((-3.0, 0), (3.0 * factor, 1)):
        release = released(np.zeros(D), {"rng": seed}, y=y, y_bounds=(-3.0, 3.0), response_share=0.5)
        scores.append(release.arrays["response"])
    return scores


@pytest.mark.parametrize("noise", [SEEDED, SECURE], ids=["seeded", "secure"])
def test_features_and_protected_response_together(noise):
    result = audit_scores(*joint_scores(noise), mu=MU, exact_mu=MU)
    assert result.passed, result


@pytest.mark.parametrize("factor", [1.0, 40.0])
def test_protected_response_alone_spends_its_share(factor):
    claim = MU * math.sqrt(0.5)
    result = audit_scores(*response_release_scores(factor), mu=claim, exact_mu=claim)
    assert result.passed, result


def test_mutant_response_not_clipped_is_caught(monkeypatch):
    def unclipped(design, y):
        return (y - design.y_center) / design.y_scale

    monkeypatch.setattr(rows, "scaled_response", unclipped)
    assert audit_scores(*response_release_scores(40.0), mu=MU * math.sqrt(0.5)).exceeded


def person_scores(noise, people=30_000, max_rows=3, declared=True):
    """Return scores of people with several rows each; a mutant schema forgets the unit."""
    unit = {"unit": "id", "max_rows": max_rows} if declared else {}
    schema, scores = pi.Schema({"x": (-1, 1), "y": (-1, 1)}, **unit), []
    for sign in (-1, 1):
        frame = pd.DataFrame(
            {"id": np.repeat(np.arange(people), max_rows), "x": float(sign), "y": float(sign)}
        )
        seed = {key: value + sign + 1 for key, value in noise.items()}
        release = pi.Modulation(schema, "y ~ x", amplitude=0.0).release(frame, mu=MU, **seed)
        score = release.arrays["features"][:, 0] * 0.5 / release.noise_model["scales"][0] ** 2
        score += release.arrays["response"] / release.noise_model["response_scale"] ** 2
        scores.append(score.reshape(people, max_rows).sum(axis=1))
    return scores


@pytest.mark.parametrize("noise", [SEEDED, SECURE], ids=["seeded", "secure"])
def test_a_person_with_several_rows(noise):
    result = audit_scores(*person_scores(noise), mu=MU, exact_mu=MU)
    assert result.passed, result
    assert audit_scores(*person_scores(noise, declared=False), mu=MU).exceeded


# ---- second moments

R2, K2 = 1.0, 0.87**2


def worst_moment_pair():
    """Two records of largest norm whose (x, c y) are orthogonal: x in the unit ball, d = 2."""
    cosine = -K2 / R2
    return (np.array([1.0, 0.0]), 1.0), (np.array([cosine, math.sqrt(1 - cosine**2)]), 1.0)


def moment_release(record, noise, trust, n, **options):
    x, y = record
    model = pi.MomentOLS(np.full(n, y), np.tile(x, (n, 1)), radius=1.0, y_bounds=(-1.0, 1.0), trust=trust)
    return model.release(**{"mu": MU, **noise, **options})


def clean_moments(record):
    return moment_release(record, {"mu": math.inf}, "local", 2).arrays["moments"][0]


def local_scores(noise, pair=None):
    pair = worst_moment_pair() if pair is None else pair
    gap = clean_moments(pair[1]) - clean_moments(pair[0])
    return [
        moment_release(record, {key: value + k for key, value in noise.items()}, "local", DRAWS).arrays[
            "moments"
        ]
        @ gap
        for k, record in enumerate(pair)
    ]


@pytest.mark.parametrize("noise", [SEEDED, SECURE], ids=["seeded", "secure"])
def test_local_moments_in_their_worst_pair(noise):
    result = audit_scores(*local_scores(noise), mu=MU, exact_mu=MU)
    assert result.passed, result


def tilted_pair():
    """Records whose moments differ off the diagonal alone: a wrong isometric factor shows there."""
    a = math.sqrt(0.5)
    return (np.array([a, a]), 0.0), (np.array([a, -a]), 0.0)


def exact_moment_mu(pair):
    return (
        MU
        * float(np.linalg.norm(clean_moments(pair[1]) - clean_moments(pair[0])))
        / (math.sqrt(2) * (R2 + K2))
    )


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "blind"), (2.0, "exceeded")])
def test_mutants_of_the_isometric_factor_are_caught(factor, verdict, monkeypatch):
    """Off-diagonal factor 1: noise wasted (blind against the exact loss); 2: sensitivity exceeded."""
    from privinf.mechanisms.statistics.moments import MomentLayout

    pair = tilted_pair()
    exact = exact_moment_mu(pair)  # the tilted pair is not the worst one: y is 0
    assert audit_scores(*local_scores(SEEDED, pair), mu=MU, exact_mu=exact).passed
    true = MomentLayout.pairs

    def wrong(self):
        r, c, _ = true(self)
        return r, c, np.where(r == c, 1.0, factor)

    monkeypatch.setattr(MomentLayout, "pairs", wrong)
    result = audit_scores(*local_scores(SEEDED, pair), mu=exact, exact_mu=exact)
    assert getattr(result, verdict), result


@pytest.mark.parametrize("mutant", ["no sqrt 2", "half sigma", "bound not enforced"])
def test_mutants_of_local_moments_are_caught(mutant, monkeypatch):
    from privinf.mechanisms.statistics import moments as sums

    pair = worst_moment_pair()
    if mutant == "no sqrt 2":
        true = sums.second_moment_sensitivity
        monkeypatch.setattr(sums, "second_moment_sensitivity", lambda *a: true(*a) / math.sqrt(2))
    elif mutant == "half sigma":
        true = SimulationNoise.perturb
        monkeypatch.setattr(SimulationNoise, "perturb", lambda self, v, s: true(self, v, s / 2))
    else:
        pair = [(3.0 * x, y) for x, y in pair]
        assert audit_scores(*local_scores(SEEDED, pair), mu=MU).passed
        monkeypatch.setattr(rows, "project_ball", lambda x, radius: x)
    assert not audit_scores(*local_scores(SEEDED, pair), mu=MU).passed


def central_scores(noise, draws, mu, factor=1.0, **options):
    """The third of three records changes (its features `factor` times as long); draws of the whole total."""
    pair = worst_moment_pair()
    gap = clean_moments(pair[1]) - clean_moments(pair[0])
    rng = np.random.default_rng(0) if noise else None
    out = []
    for x, y in pair:
        X = np.vstack([[0.1, 0.2], [0.3, -0.1], factor * x])
        model = pi.MomentOLS(np.array([0.5, -0.5, y]), X, radius=1.0, y_bounds=(-1.0, 1.0))
        totals = [
            model.mechanism.release((np.array([0.5, -0.5, y]), X), mu=mu, rng=rng, **options)
            for _ in range(draws)
        ]
        out.append(np.array([t.arrays["moments"] @ gap for t in totals]))
    return out


@pytest.mark.audit
@pytest.mark.parametrize("noise", [True, False], ids=["seeded", "secure"])
def test_central_totals_in_their_worst_pair(noise):
    result = audit_scores(*central_scores(noise, 4000, 3.0), mu=3.0, exact_mu=3.0)
    assert result.passed, result


@pytest.mark.audit
@pytest.mark.parametrize("mutant", ["no sqrt 2", "half sigma", "bound not enforced"])
def test_mutants_of_central_totals_are_caught(mutant, monkeypatch):
    from privinf.mechanisms.statistics import moments as sums

    factor = 1.0
    if mutant == "no sqrt 2":
        true = sums.second_moment_sensitivity
        monkeypatch.setattr(sums, "second_moment_sensitivity", lambda *a: true(*a) / math.sqrt(2))
    elif mutant == "half sigma":
        noise = SimulationNoise.perturb
        monkeypatch.setattr(SimulationNoise, "perturb", lambda self, v, s: noise(self, v, s / 2))
    else:
        factor = 2.0
        assert audit_scores(*central_scores(True, 1500, 3.0, factor), mu=3.0).passed
        # Rows are shrunk before they are on their grid, and held there: by the ball, and column by column.
        monkeypatch.setattr(gridded, "shrunk", lambda x, radius: x)
        assert audit_scores(*central_scores(True, 1500, 3.0, factor), mu=3.0).passed
        monkeypatch.setattr(gridded, "held_norms", lambda steps, limit: steps)
        monkeypatch.setattr(
            gridded, "on_grid", lambda x, factor, shift, most, out: np.floor(x * factor + shift, out=out)
        )
    assert audit_scores(*central_scores(True, 2000, 3.0, factor), mu=3.0).exceeded


def meats(mechanism, passes, asked, told, draws, mu, source):
    """Return noisy meats of rows, shape (draws, k), of residuals from what the fit was `told`."""
    assert asked.record_sensitivity.l2 == math.sqrt(2.0)
    scale, _ = mechanism._line(asked, mu).calibrated(source)
    sums = replace(asked, args=asked.args | told).over(passes, exact=True)
    return np.array([noisy_total(sums, scale, source) for _ in range(draws)])


def residual_scores(draws, mu):
    pair = [(np.array([1.0, 0.0]), 1.0), (np.array([0.0, 1.0]), 1.0)]
    source, scores = SimulationNoise(0), []
    triangle = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    gap = triangle[1] - triangle[0]
    for x, y in pair:
        model = pi.MomentOLS(
            np.array([0.0, 0.0, y]), np.vstack([[0.1, 0], [0, 0.1], x]), radius=1.0, y_bounds=(-1, 1)
        )
        mechanism = model.mechanism
        passes = RowPasses(mechanism.design, model._rows)
        _, asked = mechanism._queries(1.0, np.empty(0), 0.0, robust=True)
        told = {"response_factor": 1.0 / 0.4, "residual_clip": 1.0}
        scores.append(meats(mechanism, passes, asked, told, draws, mu, source) @ gap)
    return scores


@pytest.mark.audit
def test_residual_moments_and_the_mutant_that_forgets_to_clip(monkeypatch):
    result = audit_scores(*residual_scores(4000, 3.0), mu=3.0, exact_mu=3.0)
    assert result.passed, result
    monkeypatch.setattr(gridded, "clipped", lambda values, bound: values)
    assert not audit_scores(*residual_scores(4000, 3.0), mu=3.0).passed


PERSONS = pi.Schema({"y": (-1.0, 1.0), "a": (-1.0, 1.0), "b": (-1.0, 1.0)}, unit="who", max_rows=2)


def unit_scores(draws, mu):
    """Return log-likelihood ratios of a person whose scores go along (1, -1, 0), or (1, 1, 0), beyond C."""
    source, scores, gap = SimulationNoise(0), [], np.array([0.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    for a in (-1.0, 1.0):
        rows = pd.DataFrame(
            {"who": [0, 1, 2, 1], "y": [0.0, 1.0, 0.0, 1.0], "a": [0.1, a, 0.2, a], "b": [0.2, 0.0, 0.1, 0.0]}
        )
        mechanism = pi.Moments(PERSONS, "y ~ a + b")
        passes = RowPasses(mechanism.design, as_rows(rows), together=True)
        _, asked = mechanism._queries(1.0, np.ones(1), 1.0, robust=True, units=2)
        told = {"response_factor": 1.0 / 0.7, "residual_clip": 1.0 / 0.7}
        scores.append(meats(mechanism, passes, asked, told, draws, mu, source) @ gap)
    return scores


@pytest.mark.audit
def test_residual_moments_of_units_and_their_mutants(monkeypatch):
    result = audit_scores(*unit_scores(4000, 3.0), mu=3.0, exact_mu=3.0)
    assert result.passed, result
    with monkeypatch.context() as one:
        one.setattr(gridded, "unit_sums", lambda rows, units: rows)
        assert audit_scores(*unit_scores(4000, 3.0), mu=3.0).exceeded
    monkeypatch.setattr(gridded, "held_sums", lambda sums, values, norm, cap: np.trunc(sums / cap))
    assert audit_scores(*unit_scores(4000, 3.0), mu=3.0).exceeded


# ---- randomized response


def response_scores(levels, source, n=200_000, used=1.0):
    """Return the exact log-likelihood ratios of answers of people with code 0 and with code 1."""
    law = RandomizedResponse(levels, used)
    sent = [law.respond(np.full(n, code), source) for code in (0, 1)]
    return [(z == 1) * 1.0 - (z == 0) for z in sent]


def audit_response(scores):
    return audit_mechanism(
        lambda which, count, rng: scores[which],
        lambda x: x,
        draws=len(scores[0]),
        rng=0,
        epsilon=1.0,
        exact_epsilon=1.0,
    )


@pytest.mark.parametrize("levels", [2, 5])
@pytest.mark.parametrize("source", [SimulationNoise(0), LatticeNoise()], ids=["seeded", "secure"])
def test_randomized_response_and_its_mutant(levels, source):
    result = audit_response(response_scores(levels, source))
    assert result.passed, result
    assert audit_response(response_scores(levels, source, used=1.5)).exceeded


# ---- whole fits: everything public that a fit shows, never above the claim


WHOLE = {
    "one-shot": (pi.ModulatedOLS, {}, {}),
    "iterative": (pi.ModulatedOLS, {}, {"method": "iterative", "rounds": 2, "progress": False}),
    "local": (pi.MomentOLS, {"trust": "local"}, {}),
    "central": (pi.MomentOLS, {}, {}),
    "central-HC0": (pi.MomentOLS, {}, {"cov_type": "HC0"}),
}
NEIGHBOURS = {
    "leverage": (((1.0, 0.0), 1.0), ((0.0, 1.0), -1.0)),
    "flipped response": (((1.0, 0.0), 1.0), ((1.0, 0.0), -1.0)),
}


def shown(result):
    """Return what a fit shows as numbers: estimates, measures, tests, and the last record's messages."""
    covariance = np.zeros((2, 2)) if result.estimate.cov is None else result.estimate.cov
    measures = [getattr(result, name, 0.0) for name in ("rsquared", "scale")]
    test = result.score_test(np.zeros(2))
    arrays = result.release.arrays
    sent = [arrays[name][..., -1, :] for name in ("features", "moments") if np.ndim(arrays.get(name)) > 1]
    sent += [arrays["response"][-1:]] if "response" in arrays else []
    sent += [arrays["moments"]] if np.ndim(arrays.get("moments")) == 1 else []
    numbers = [result.params, covariance, measures, result.identification.statistic, test.statistic, *sent]
    return np.concatenate([np.ravel(number) for number in numbers])


def fitted_worlds(name, pair, draws, leak=False):
    model, mechanism, options = WHOLE[name]
    base, rng = np.random.default_rng(2), np.random.default_rng(1)
    X0 = base.uniform(-0.6, 0.6, (8, 2))
    y0 = np.clip(X0 @ [0.5, -0.3] + 0.1 * base.standard_normal(8), -1, 1)
    worlds = []
    for x, y in NEIGHBOURS[pair]:
        X, response = X0.copy(), y0.copy()
        X[-1], response[-1] = x, y
        made = model(response, X, radius=1.0, y_bounds=(-1, 1), **mechanism)
        outputs = [shown(made.fit(mu=2.5, rng=rng, **options)) for _ in range(draws)]
        worlds.append([[*output, (X.T @ response)[0]] for output in outputs] if leak else outputs)
    return np.array(worlds)


def learned_scores(worlds):
    """Return scores of the second halves by a discriminant learned from the first halves' ranks."""
    pooled = worlds.reshape(-1, worlds.shape[2])
    ranks = (pooled[:, None] > pooled[None, ::7]).mean(axis=1).reshape(worlds.shape)
    half = worlds.shape[1] // 2
    train = ranks[:, :half]
    spread = sum(np.cov(one.T) for one in train) + 1e-3 * np.eye(ranks.shape[2])
    weights = np.linalg.solve(spread, train[1].mean(axis=0) - train[0].mean(axis=0))
    return ranks[:, half:] @ weights


@pytest.mark.audit
@pytest.mark.parametrize("pair", NEIGHBOURS)
@pytest.mark.parametrize("name", WHOLE)
def test_whole_fit_on_neighbours(name, pair):
    result = audit_scores(*learned_scores(fitted_worlds(name, pair, 400)), mu=2.5)
    assert not result.exceeded, result


@pytest.mark.audit
def test_the_whole_fit_audit_sees_one_number_of_the_raw_rows():
    assert audit_scores(
        *learned_scores(fitted_worlds("central", "leverage", 600, leak=True)), mu=2.5
    ).exceeded


# ---- ledger against the noise that was really drawn


@pytest.mark.parametrize("kind", ["one-shot", "iterative", "local", "central", "central-HC0"])
def test_ledger_is_what_the_raw_noise_calls_say(kind, monkeypatch):
    recorder = RecordingNoise(LatticeNoise())
    monkeypatch.setattr(gaussian, "get_source", lambda rng, source: recorder)
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-0.5, 0.5, (200, 3)), rng.uniform(-1, 1, 200)
    if kind in ("one-shot", "iterative"):
        model = pi.ModulatedOLS(y, X, radius=1.0, y_bounds=(-1, 1))
        options = {"method": "iterative", "rounds": 3, "progress": False} if kind == "iterative" else {}
        release = model.release(mu=0.8, **options)
        distances = {scale: 0.5 * 2.0 for scale in release.noise_model["scales"]} | {
            release.noise_model["response_scale"]: 2.0
        }
        scales = {call.scale for call in recorder.of("perturb")}
        assert scales == set(distances)
        rounds = len(release.noise_model["scales"])
        spent = sum(
            (distances[s] / s) ** 2 * (rounds if s in release.noise_model["scales"] else 1) for s in scales
        )
        cells = sum(math.prod(call.shape) for call in recorder.of("perturb"))
        assert cells == 200 * 3 * rounds + 200
        # fresh phases: as many uniforms as messages times directions
        assert [call.shape for call in recorder.of("uniform")] == [(200, 1)] * rounds
    else:
        trust = kind.split("-")[0]
        model = pi.MomentOLS(y, X, radius=1.0, y_bounds=(-1, 1), trust=trust)
        options = {"cov_type": "HC0"} if kind == "central-HC0" else {}
        release = model.release(mu=0.8, **options)
        from privinf.noise import grid_step

        weight = release.noise_model["response_weight"]
        reach = math.sqrt(2) * (1.0 + weight**2)
        if trust == "local":
            (scale,) = {call.scale for call in recorder.of("perturb")}
            spent = (reach / scale) ** 2
        else:
            calls = recorder.of("gaussian_steps")
            assert len(calls) == (2 if options else 1)
            first = release.noise_model["scale"]
            assert calls[0].scale == pytest.approx(first / grid_step(first))
            spent = (reach / first) ** 2
            if options:
                scale = release.noise_model["residual_scale"] / release.noise_model["residual_bound"] ** 2
                assert calls[1].scale == pytest.approx(scale / grid_step(scale))
                spent += (math.sqrt(2) / scale) ** 2
    ledger = sum(entry.loss.mu**2 for entry in release.entries)
    # the ledger also pays for the grid: never below the raw calls, and barely above
    assert spent <= ledger * (1 + 1e-12)
    assert spent == pytest.approx(ledger, rel=2e-4)


# ---- declared sensitivities are never exceeded, whatever the records


def test_no_pair_of_records_moves_a_message_further_than_declared():
    design = pi.Design.from_formula(
        "y ~ a * b + C(g)",
        pi.Schema({"a": (-1, 3), "b": (0, 1), "g": ["u", "v", "w"], "y": (-1, 1)}),
        radius=1.4,
    )
    rng = np.random.default_rng(0)
    corners = np.array([[a, b, g] for a in (-1, 3, 500.0, -70.0) for b in (0, 1, 9.0) for g in range(3)])
    random = np.column_stack([rng.uniform(-3, 5, 60), rng.uniform(-1, 2, 60), rng.integers(0, 3, 60)])

    def statistic(records):
        frame = pd.DataFrame(
            {
                "a": records[:, 0],
                "b": records[:, 1],
                "g": np.array(["u", "v", "w"])[records[:, 2].astype(int)],
                "y": 0.0,
            }
        )
        return encode(design, rows.Rows(frame)).private

    base = np.tile([[0.5, 0.5, 1.0]], (8, 1))
    found = search_sensitivity(statistic, base, np.vstack([corners, random]))
    assert found.largest <= design.diameter * (1 + 1e-12)
    assert found.largest >= 0.9 * design.diameter


@pytest.mark.audit
@pytest.mark.parametrize("constant", [False, True])
def test_no_pair_of_records_moves_the_moments_further_than_declared(constant):
    from privinf.mechanisms.statistics.moments import second_moment_sensitivity

    rng = np.random.default_rng(1)
    n = 6
    X = rng.uniform(-0.5, 0.5, (n, 2))

    def statistic(records):
        frame = pd.DataFrame(records[:, :2], columns=["x1", "x2"])
        features = pi.add_constant(frame) if constant else frame
        model = pi.MomentOLS(records[:, 2], features, radius=1.0, y_bounds=(-2.0, 2.0))
        return model.release(mu=math.inf).arrays["moments"]

    angles = np.linspace(0, 2 * math.pi, 24, endpoint=False)
    ring = np.array([[math.cos(t), math.sin(t), y] for t in angles for y in (-2.0, 2.0, 7.0)])
    wild = rng.normal(size=(30, 3)) * 10
    found = search_sensitivity(
        statistic, np.column_stack([X, rng.uniform(-1, 1, n)]), np.vstack([ring, wild, np.zeros((1, 3))])
    )
    weight = 0.87 * math.sqrt(1.0 + constant)
    claim = second_moment_sensitivity(1.0, weight, float(constant))
    assert found.largest <= claim * (1 + 1e-12)
    assert found.largest >= 0.97 * claim


# ---- nothing of a raw row is held, shown or said

GENERIC = np.random.default_rng(11)


def generic_rows(n=60):
    return pd.DataFrame(
        {
            "a": GENERIC.uniform(-1, 1, n),
            "b": GENERIC.uniform(0, 3, n),
            "z": GENERIC.uniform(0, 1, n),
            "y": GENERIC.uniform(-2, 2, n),
        }
    )


SCHEMA = pi.Schema({"a": (-1, 1), "b": (0, 3), "z": pi.Numeric(0, 1, public=True), "y": (-2, 2)})
FITS = {
    "one-shot": (pi.ModulatedOLS, {}, {}),
    "clear response": (pi.ModulatedOLS, {"response": "public"}, {}),
    "iterative": (pi.ModulatedOLS, {}, {"method": "iterative", "rounds": 2, "progress": False}),
    "local": (pi.MomentOLS, {"trust": "local"}, {}),
    "central": (pi.MomentOLS, {}, {}),
    "central-HC0": (pi.MomentOLS, {}, {"cov_type": "HC0"}),
}


@pytest.mark.audit
@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("secure", [True, False])
def test_results_and_releases_hold_no_raw_value(name, secure):
    model, mechanism, options = FITS[name]
    data = generic_rows()
    fitted = model.from_formula("y ~ a + b + z", data, schema=SCHEMA, **mechanism)
    result = fitted.fit(mu=5.0, **options, **({} if secure else {"rng": 0}))
    scaled = [data.a, (data.b - 1.5) / 1.5, data.y / 2.0, 0.5 * data.a, 0.5 * (data.b - 1.5) / 1.5]
    raw = [data.a, data.b, data.y, *scaled]
    exempt = [data.z] + ([data.y, data.y / 2.0] if name == "clear response" else [])
    for thing in (result, result.release, result.privacy, result.summary().as_text()):
        assert find_raw_values(thing, raw, exempt=exempt) == []
    assert find_raw_values(repr(fitted), raw) == []
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(fitted._rows)


@pytest.mark.audit
def test_the_walk_would_have_seen_a_release_without_noise():
    data = generic_rows()
    result = pi.ModulatedOLS.from_formula("y ~ a + b + z", data, schema=SCHEMA).fit(epsilon=math.inf)
    assert find_raw_values(result, [0.5 * data.a])


@pytest.mark.parametrize("column", ["a", "b", "z", "y"])
@pytest.mark.parametrize("bad", ["nan", "inf", "text", "absent"])
def test_errors_about_rows_never_tell_a_value(column, bad):
    data = generic_rows()
    if bad == "absent":
        data = data.drop(columns=column)
    else:
        data[column] = data[column].astype(object)
        data.loc[7, column] = {"nan": math.nan, "inf": math.inf, "text": "secret-4711"}[bad]
    kept = [data[c].drop(index=7).to_numpy(dtype=float) for c in data.columns]
    with pytest.raises(pi.errors.PrivinfError) as caught:
        pi.ModulatedOLS.from_formula("y ~ a + b + z", data, schema=SCHEMA).fit(mu=1.0, rng=0)
    assert find_raw_values(caught.value, kept, pickled=False) == []
    told = "".join(str(e) for e in (caught.value, caught.value.__cause__))
    assert "secret" not in told
    assert caught.value.__cause__ is None
    assert column in told


@pytest.mark.filterwarnings("ignore::privinf.errors.DataDependentBoundsWarning")
def test_errors_about_arrays_never_tell_a_value():
    """With bounds="data" a column of texts used to be named by its smallest text."""
    n = 20
    good, y = GENERIC.uniform(-1, 1, (n, 2)), GENERIC.uniform(-1, 1, n)
    secrets = ["secret-4711", pd.Timestamp("2047-11-04"), [4711.5], 10**400, b"secret-4711", None]
    for secret in secrets:
        texts = pd.DataFrame(good, columns=["p", "q"]).assign(q=pd.Series([secret] * n, dtype=object))
        mixed = pd.DataFrame(good, columns=["p", "q"]).astype(object)
        mixed.at[3, "q"] = secret
        for features in (texts, mixed):
            for bounds in ("data", [(-1, 1)] * 2):
                with pytest.raises(pi.errors.PrivinfError) as caught:
                    pi.ModulatedOLS(y, features, bounds=bounds, y_bounds=(-1, 1)).fit(mu=1.0, rng=0)
                told = "".join(traceback.format_exception_only(caught.value)) + str(caught.value.__cause__)
                assert not any(word in told for word in ("secret", "4711", "2047")), told


def test_an_open_session_does_not_let_its_rows_be_pickled():
    data = generic_rows()
    session = pi.Modulation(SCHEMA, "y ~ a + b").open(data, rounds=2, mu=1.0, rng=0)
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(session)
    assert find_raw_values(repr(session), [data.a, data.b, data.y]) == []


# ---- precision


def test_secure_messages_lie_on_their_grid_and_float_ones_do_not():
    from privinf.noise import grid_step

    release = released(np.full(D, 0.3), SECURE)
    step = grid_step(release.noise_model["scales"][0])
    steps = release.arrays["features"] / step
    np.testing.assert_array_equal(steps, np.rint(steps))
    seeded = released(np.full(D, 0.3), SEEDED).arrays["features"] / step
    assert (seeded != np.rint(seeded)).mean() > 0.9


def test_a_lattice_and_a_float_release_have_the_same_loss():
    lattice, floats = one_shot(SECURE, amplitude=0.0), one_shot(SEEDED, amplitude=0.0)
    found = [audit_scores(*scores, mu=MU).mu_lower for scores in (lattice, floats)]
    assert abs(found[0] - found[1]) < 0.1


# ---- totals in which one person counts several times: weights, and several rows


def weighted_scores(draws=2500, mu=3.0):
    """The heaviest row changes between the worst two records; weight 2.5 is the declared bound."""
    pair = worst_moment_pair()
    gap = clean_moments(pair[1]) - clean_moments(pair[0])
    schema = pi.Schema({"x1": (-1, 1), "x2": (-1, 1), "y": (-1, 1), "w": pi.Numeric(0.5, 2.5, public=True)})
    rng, out = np.random.default_rng(0), []
    mechanism = pi.Moments(schema, "y ~ 0 + x1 + x2", radius=1.0, weights="w")
    for x, y in pair:
        frame = pd.DataFrame({"x1": [0.1, 0.3, x[0]], "x2": [0.2, -0.1, x[1]], "y": [0.5, -0.5, y]})
        frame["w"] = [0.5, 1.0, 2.5]
        totals = [mechanism.release(frame, mu=mu, rng=rng).arrays["moments"] @ gap for _ in range(draws)]
        out.append(np.array(totals))
    return out


@pytest.mark.audit
def test_weighted_totals_and_the_mutant_that_forgets_the_weight(monkeypatch):
    result = audit_scores(*weighted_scores(), mu=3.0, exact_mu=3.0)
    assert result.passed, result
    from privinf.mechanisms.statistics import moments

    monkeypatch.setattr(moments, "_largest", lambda args, power: 1.0)
    assert not audit_scores(*weighted_scores(1000), mu=3.0).passed


def grouped_scores(draws=2500, mu=3.0):
    """Both rows of one person change."""
    pair = worst_moment_pair()
    gap = clean_moments(pair[1]) - clean_moments(pair[0])
    schema = pi.Schema({"x1": (-1, 1), "x2": (-1, 1), "y": (-1, 1)}, unit="id", max_rows=2)
    rng, out = np.random.default_rng(0), []
    mechanism = pi.Moments(schema, "y ~ 0 + x1 + x2", radius=1.0)
    for x, y in pair:
        frame = pd.DataFrame(
            {"x1": [0.1, x[0], x[0]], "x2": [0.2, x[1], x[1]], "y": [0.5, y, y], "id": [0, 1, 1]}
        )
        totals = [mechanism.release(frame, mu=mu, rng=rng).arrays["moments"] @ gap for _ in range(draws)]
        out.append(np.array(totals))
    return out


@pytest.mark.audit
def test_totals_with_two_rows_a_person_and_the_mutant_that_counts_one(monkeypatch):
    result = audit_scores(*grouped_scores(), mu=3.0, exact_mu=3.0)
    assert result.passed, result
    from privinf.mechanisms import moments

    monkeypatch.setattr(moments, "max_rows", lambda design: 1)
    assert not audit_scores(*grouped_scores(1000), mu=3.0).passed
