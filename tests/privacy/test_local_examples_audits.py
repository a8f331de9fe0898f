"""Audits of local examples on their worst pairs, through the public function, with mutants that must fail.

A release of many people with the same record is as many independent draws of one person's loss. The claims
are the levels that the caller named, at a delta so large that draws can tell it.
"""

import math

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.accounting import compose
from privinf.mechanisms import LocalExamples, RandomizedResponse, rows
from privinf.mechanisms.local import examples as local_examples
from privinf.noise import SimulationNoise
from privinf.schema import Design
from studies.audit import audit_mechanism

DRAWS = 200_000
DELTA = 0.05
LEVEL_X, LEVEL_Y = 3.0, 1.0
SEEDED, SECURE = {"rng": 0}, {}
NOISE = [SEEDED, SECURE]
SCHEMA = pi.Schema(
    {
        "y": ["no", "yes"],
        "w": ["a", "b", "c"],
        "t": (0.0, 10.0),
        "x1": (-1.0, 1.0),
        "x2": (0.0, 4.0),
        "z": (0.0, 1.0),
        "g": ["r", "s", "t"],
    }
)
# Two records that are farthest apart in every column, and the same far outside the bounds.
PAIR = (
    {"y": "no", "w": "b", "t": 0.0, "x1": -1.0, "x2": 0.0, "z": 0, "g": "s"},
    {"y": "yes", "w": "c", "t": 10.0, "x1": 1.0, "x2": 4.0, "z": 1, "g": "t"},
)
FAR = tuple({**one, "x1": 30.0 * one["x1"], "x2": 200.0 * one["x2"] - 400.0} for one in PAIR)
SQUARE = ({"a": -1.0, "b": -1.0}, {"a": 1.0, "b": 1.0})


def audit(scores, *, epsilon=None, exact=True, mu=None, delta=DELTA):
    """Audit scores of both worlds against a named level, which is also the exact loss unless told."""
    currency, level = ("mu", mu) if epsilon is None else ("epsilon", epsilon)
    sight = {f"exact_{currency}": level} if exact else {}
    return audit_mechanism(
        lambda world, count, rng: scores[world],
        lambda x: x,
        draws=len(scores[0]),
        rng=0,
        delta=delta,
        **{currency: level},
        **sight,
    )


def mechanism_of(formula, *, pure=False, **options):
    noise = "laplace" if pure else "gaussian"
    return LocalExamples(SCHEMA, formula, binary=["z"] if "z" in formula else [], noise=noise, **options)


def released(mechanism, budget, noise, pair=PAIR, draws=None, **columns):
    """Return the releases of both worlds: everybody has the same record."""
    found = []
    for world, record in enumerate(pair):
        stream = {"rng": np.random.default_rng((noise["rng"], world))} if noise else {}
        table = pd.DataFrame([record]).loc[np.zeros(draws or DRAWS, dtype=int)].assign(**columns)
        found.append(mechanism.release(table, **budget, **stream))
    return found


def log_ratio(release, pair, *, features=True, label=True):
    """Return the log-likelihood ratio of the two records, by the stated law of the release."""
    design, law = release.design, release.noise_model
    sent, score = release.arrays["features"], np.zeros(release.nobs)
    if features:
        units = {name: np.array(value)[design.private] for name, value in law["units"].items()}
        low, high = (
            (design.matrix(pd.DataFrame([one]))[0, design.private] - units["center"]) / units["scale"]
            for one in pair
        )
        normal = law["gaussian"]
        middle, gap = 0.5 * (low + high)[normal], (high - low)[normal]
        if law.get("distribution") == "laplace":
            far, near = (np.abs(sent[:, normal] - ends[normal]).sum(axis=1) for ends in (low, high))
            score += (far - near) / law["scale"]
        elif normal:
            score += (sent[:, normal] - middle) @ gap / law["scale"] ** 2
        for item in law["responses"]:
            columns, weights = item["columns"], np.arange(1, item["levels"])
            score += answers_ratio(
                sent[:, columns] @ weights, low[columns] @ weights, high[columns] @ weights, item
            )
    if label and law["label"]["kind"] == "response":
        truth = [law["label"]["levels"].index(one[design.response]) for one in pair]
        score += answers_ratio(release.arrays["labels"], *truth, law["label"])
    elif label and law["label"]["kind"] == "laplace":
        far, near = (
            np.abs(release.arrays["labels"] - (one[design.response] - design.y_center) / design.y_scale)
            for one in pair
        )
        score += (far - near) / law["label"]["scale"]
    elif label:
        shift = (pair[1][design.response] - pair[0][design.response]) / design.y_scale
        score += release.arrays["labels"] * shift / law["label"]["scale"] ** 2
    return score


def answers_ratio(codes, low, high, law):
    return math.log(law["keep"] / law["other"]) * ((codes == high) * 1.0 - (codes == low))


def scores_of(formula, budget, noise, *, pair=PAIR, draws=None, what=None, **options):
    mechanism = mechanism_of(formula, **options)
    inside = PAIR if pair is FAR else pair
    return [
        log_ratio(release, inside, **(what or {}))
        for release in released(mechanism, budget, noise, pair, draws)
    ]


SIDES = {"epsilon_x": LEVEL_X, "epsilon_y": LEVEL_Y, "delta": DELTA}
WHOLE = {"epsilon": LEVEL_X, "delta": DELTA}
FEATURES, LABEL = {"label": False}, {"features": False}


@pytest.mark.parametrize("noise", NOISE, ids=["seeded", "secure"])
@pytest.mark.parametrize("formula", ["y ~ x1 + x2", "y ~ x1 + x2 + z"])
def test_features_in_their_worst_pair(formula, noise):
    result = audit(scores_of(formula, SIDES, noise, what=FEATURES), epsilon=LEVEL_X)
    assert result.passed, result


@pytest.mark.parametrize("noise", NOISE, ids=["seeded", "secure"])
@pytest.mark.parametrize("response", ["y", "w"])
def test_a_label_under_response(response, noise):
    scores = scores_of(f"{response} ~ x1", SIDES, noise, what=LABEL)
    result = audit(scores, epsilon=LEVEL_Y, delta=0.0)
    assert result.passed, result


@pytest.mark.parametrize("noise", NOISE, ids=["seeded", "secure"])
@pytest.mark.parametrize("formula", ["y ~ z", "y ~ g"])
def test_a_feature_under_response(formula, noise):
    budget = {"epsilon_x": 2.0, "epsilon_y": LEVEL_Y}
    result = audit(scores_of(formula, budget, noise, what=FEATURES), epsilon=2.0, delta=0.0)
    assert result.passed, result


@pytest.mark.parametrize("noise", NOISE, ids=["seeded", "secure"])
def test_a_gaussian_label(noise):
    scores = scores_of("t ~ x1", SIDES, noise, what=LABEL)
    result = audit(scores, epsilon=LEVEL_Y)
    assert result.passed, result


@pytest.mark.audit
@pytest.mark.parametrize("noise", NOISE, ids=["seeded", "secure"])
@pytest.mark.parametrize("formula", ["y ~ x1 + x2", "y ~ x1 + x2 + z", "t ~ x1 + x2", "t ~ x1 + z"])
def test_features_and_label_together(formula, noise):
    """One epsilon for all is what the whole record costs, at the delta that was named."""
    result = audit(scores_of(formula, WHOLE, noise), epsilon=LEVEL_X)
    assert result.passed, result


def test_both_sides_together_cost_what_the_report_says_and_less_than_the_sum():
    mechanism = mechanism_of("y ~ x1 + x2 + z")
    releases = released(mechanism, SIDES, SEEDED)
    total = compose([entry.loss for entry in releases[0].entries])
    assert LEVEL_X < total.epsilon(DELTA) < 0.95 * (LEVEL_X + LEVEL_Y)
    result = audit([log_ratio(one, PAIR) for one in releases], epsilon=total.epsilon(DELTA))
    assert result.passed, result


def test_the_papers_way_for_binary_features():
    scores = scores_of("y ~ x1 + z + g", SIDES, SEEDED, what=FEATURES, binary_mechanism="gaussian")
    result = audit(scores, epsilon=LEVEL_X)
    assert result.passed, result


def unclipped(design, matrix):
    return ((matrix - design.center) / design.scale)[:, design.private]


def test_records_outside_their_bounds_are_clipped(monkeypatch):
    assert audit(scores_of("y ~ x1 + x2", WHOLE, SEEDED, pair=FAR), epsilon=LEVEL_X).passed
    monkeypatch.setattr(rows, "scale_private", unclipped)
    assert audit(scores_of("y ~ x1 + x2", WHOLE, SEEDED, pair=FAR), epsilon=LEVEL_X).exceeded


def ball_scores(noise=SEEDED, factor=1.0):
    """Return scores of records of the square in its ball, through the array entry point."""
    mechanism = LocalExamples(Design.from_arrays(["a", "b"], radius=math.sqrt(2.0)), label="response")
    scores = []
    for world, record in enumerate(SQUARE):
        X = np.tile(factor * np.array(list(record.values())), (DRAWS, 1))
        stream = {"rng": np.random.default_rng((noise["rng"], world))} if noise else {}
        release = mechanism.release((np.full(DRAWS, world), X), **WHOLE, **stream)
        gap = np.full(2, 2.0)
        score = release.arrays["features"] @ gap / release.noise_model["scale"] ** 2
        scores.append(score + answers_ratio(release.arrays["labels"], 0, 1, release.noise_model["label"]))
    return scores


@pytest.mark.parametrize("noise", NOISE, ids=["seeded", "secure"])
@pytest.mark.parametrize("factor", [1.0, 50.0])
def test_the_array_door_with_a_ball(noise, factor):
    result = audit(ball_scores(noise, factor), epsilon=LEVEL_X)
    assert result.passed, result


def person_scores(noise, draws=20_000):
    """Return scores of people with four rows each."""
    schema = pi.Schema({"y": ["no", "yes"], "x1": (-1.0, 1.0), "z": [0, 1]}, unit="id", max_rows=4)
    mechanism = LocalExamples(schema, "y ~ x1 + z", binary=["z"])
    people = np.repeat(np.arange(draws), 4)
    releases = released(mechanism, SIDES, noise, draws=4 * draws, id=people)
    return [log_ratio(one, PAIR, label=False).reshape(-1, 4).sum(axis=1) for one in releases]


def test_four_rows_of_a_person(monkeypatch):
    result = audit(person_scores(SEEDED), epsilon=LEVEL_X, exact=False)
    assert not result.exceeded
    assert result.epsilon_lower > 0.5 * LEVEL_X  # four small responses are charged as one of their sum
    monkeypatch.setattr(local_examples, "max_rows", lambda design: 1)
    assert audit(person_scores(SEEDED), epsilon=LEVEL_X, exact=False).exceeded


# ---- Laplace noise: pure epsilon

PURE = {"epsilon_x": LEVEL_X, "epsilon_y": LEVEL_Y}
PURELY = {"pure": True}


@pytest.mark.parametrize("noise", NOISE, ids=["seeded", "secure"])
@pytest.mark.parametrize("formula", ["y ~ x1 + x2", "y ~ x1 + x2 + z"])
def test_features_with_laplace_noise_in_their_worst_pair(formula, noise):
    scores = scores_of(formula, PURE, noise, what=FEATURES, **PURELY)
    result = audit(scores, epsilon=LEVEL_X, delta=0.0)
    assert result.passed, result


@pytest.mark.parametrize("noise", NOISE, ids=["seeded", "secure"])
def test_a_label_with_laplace_noise(noise):
    scores = scores_of("t ~ x1", PURE, noise, what=LABEL, **PURELY)
    result = audit(scores, epsilon=LEVEL_Y, delta=0.0)
    assert result.passed, result


@pytest.mark.audit
@pytest.mark.parametrize("noise", NOISE, ids=["seeded", "secure"])
@pytest.mark.parametrize("formula", ["y ~ x1 + x2 + z", "t ~ x1 + x2", "t ~ x1 + g"])
def test_features_and_label_together_cost_one_pure_epsilon(formula, noise):
    result = audit(scores_of(formula, {"epsilon": LEVEL_X}, noise, **PURELY), epsilon=LEVEL_X, delta=0.0)
    assert result.passed, result


def test_a_gaussian_label_beside_laplace_noise():
    scores = scores_of("t ~ x1", WHOLE, SEEDED, label="gaussian", **PURELY)
    result = audit(scores, epsilon=LEVEL_X)
    assert result.passed, result


def test_records_outside_their_bounds_are_clipped_before_laplace_noise(monkeypatch):
    words = {"pair": FAR, **PURELY}
    assert audit(
        scores_of("y ~ x1 + x2", PURE, SEEDED, what=FEATURES, **words), epsilon=LEVEL_X, delta=0.0
    ).passed
    monkeypatch.setattr(rows, "scale_private", unclipped)
    scores = [
        outside_ratio(one) for one in released(mechanism_of("y ~ x1 + x2", **PURELY), PURE, SEEDED, FAR)
    ]
    assert audit(scores, epsilon=LEVEL_X, delta=0.0).exceeded


def outside_ratio(release):
    """Return the log-ratio of records at the places of FAR that nobody clipped."""
    low, high = (release.design.matrix(pd.DataFrame([one]))[0, release.design.private] for one in FAR)
    units = [np.array(value)[release.design.private] for value in release.noise_model["units"].values()]
    low, high = ((ends - units[0]) / units[1] for ends in (low, high))
    sent = release.arrays["features"]
    return (np.abs(sent - low) - np.abs(sent - high)).sum(axis=1) / release.noise_model["scale"]


def test_the_grid_of_secure_laplace_noise_holds_rows_and_noise():
    release = released(mechanism_of("y ~ x1 + x2", **PURELY), PURE, SECURE, draws=2_000)[0]
    grid = release.entries[0].noise["grid"]
    steps = release.arrays["features"] / grid
    assert grid > 0.0
    assert (steps == np.rint(steps)).all()


# ---- mutants

perturb, respond, planned = SimulationNoise.perturb, RandomizedResponse.respond, local_examples.plan_budget
laplace = SimulationNoise.laplace
ALL = "y ~ x1 + x2 + z"


def half_sigma(self, values, scale):
    return perturb(self, values, scale / 2)


def swapped(self, codes, source, lies=None):
    """Keep with the probability of a lie, and lie with the probability of keeping."""
    return np.where(source.bernoulli(self.keep, np.shape(codes)), (codes + 1) % self.levels, codes)


def exchanged(parts, *, epsilon_x, epsilon_y, **others):
    return planned(parts, epsilon_x=epsilon_y, epsilon_y=epsilon_x, **others)


def responses_for_free(epsilon, delta, pure, calibration="exact"):
    return pi.accounting.gaussian_mu(epsilon, delta)


MUTANTS = {
    "half sigma, features": ((SimulationNoise, "perturb", half_sigma), FEATURES, LEVEL_X, DELTA),
    "half sigma, jointly": ((SimulationNoise, "perturb", half_sigma), {}, None, DELTA),
    "epsilon of the label used twice": (
        (local_examples, "RandomizedResponse", lambda levels, each: RandomizedResponse(levels, 2 * each)),
        LABEL,
        LEVEL_Y,
        0.0,
    ),
    "epsilon of a feature used twice": (
        (local_examples, "RandomizedResponse", lambda levels, each: RandomizedResponse(levels, 2 * each)),
        FEATURES,
        LEVEL_X,
        DELTA,
    ),
    "epsilon_y spent on the features, epsilon_x on the label": (
        (local_examples, "plan_budget", exchanged),
        LABEL,
        LEVEL_Y,
        0.0,
    ),
    "keep and other swapped": ((RandomizedResponse, "respond", swapped), LABEL, LEVEL_Y, 0.0),
    "responses not charged to the features": (
        (pi.mechanisms.local.budget, "remaining_mu", responses_for_free),
        FEATURES,
        LEVEL_X,
        DELTA,
    ),
}


def half_scale(self, scale, size):
    return laplace(self, scale / 2, size)


def first_column_alone(self, scale, size):
    noise = laplace(self, scale, size)
    noise[:, 1:] = 0.0
    return noise


PURE_MUTANTS = {
    "half the scale": (SimulationNoise, "laplace", half_scale),
    "noise on the first column alone": (SimulationNoise, "laplace", first_column_alone),
    "l2 instead of l1": (local_examples, "l1_diameter", lambda design: design.diameter),
    "epsilon of features and label exchanged": (local_examples, "plan_budget", exchanged),
}


@pytest.mark.audit
@pytest.mark.parametrize("name", PURE_MUTANTS)
def test_mutants_of_laplace_noise_are_caught(name):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(*PURE_MUTANTS[name])
        releases = released(mechanism_of("y ~ x1 + x2", **PURELY), PURE, SEEDED)
    exchanged_levels = name == "epsilon of features and label exchanged"
    part, level = (LABEL, LEVEL_Y) if exchanged_levels else (FEATURES, LEVEL_X)
    scores = [log_ratio(one, PAIR, **part) for one in releases]
    assert audit(scores, epsilon=level, exact=False, delta=0.0).exceeded


def mutant_scores(name):
    """Return the scores of a mutant, and the level that was named for them."""
    patch, what, level, delta = MUTANTS[name]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(*patch)
        budget = WHOLE if level is None else SIDES
        scores = scores_of(ALL, budget, SEEDED, what=what)
    return scores, level or LEVEL_X, delta


@pytest.mark.audit
@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(name):
    scores, level, delta = mutant_scores(name)
    result = audit(scores, epsilon=level, delta=delta)
    # A label that says the opposite is no less private: the audit by the stated law sees that it is not it.
    assert result.blind if name == "keep and other swapped" else result.exceeded


def test_mutant_radius_for_diameter(monkeypatch):
    monkeypatch.setattr(Design, "diameter", property(lambda self: self.radius))
    assert audit(ball_scores(), epsilon=LEVEL_X).exceeded


def test_mutant_ball_not_enforced(monkeypatch):
    monkeypatch.setattr(rows, "project_ball", lambda x, radius: x)
    assert audit(ball_scores(factor=2.0), epsilon=LEVEL_X).exceeded
