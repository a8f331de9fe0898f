"""Audits of the party releases on their worst pairs, through the public functions, with mutants that must
fail.

Two ways of drawing. *At once*: one release of many people is many independent draws of one person's loss,
where the columns of the mixing matrix are orthogonal, where each bucket of CountSketch holds one person that
changes, or where everybody has a row (Gaussian rows); all but the all-ones row, which everybody shares.
*Again and again*: a small table is released many times and one person of it changes.
"""

import functools
import math

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr

import privinf as pi
from privinf.mechanisms import gaussian
from privinf.mechanisms.mixing import party_release
from privinf.mechanisms.mixing.matrix import MixingMatrix
from privinf.schema import Design
from studies.audit import audit_mechanism, binomial_bounds

MU = 2.5
MANY = 8192  # draws at once
AGAIN = 3000  # draws again and again
SEEDED, SECURE = {"rng": 0}, {}
SCHEMAS = {
    "numbers": pi.Schema({"a": (-1.0, 1.0), "b": (0.0, 10.0), "c": (-3.0, 1.0)}),
    "levels": pi.Schema({"u": (0.0, 1.0), "g": ["r", "s", "t"]}),
    "label": pi.Schema({"y": (-2.0, 2.0)}),
}
# The two records of a party that are farthest apart, and the record at 0 in scaled units (centred, or not).
FARTHEST = {
    "numbers": ({"a": -1.0, "b": 0.0, "c": -3.0}, {"a": 1.0, "b": 10.0, "c": 1.0}),
    "levels": ({"u": 0.0, "g": "s"}, {"u": 1.0, "g": "t"}),
    "label": ({"y": -2.0}, {"y": 2.0}),
}
CENTRE = {
    "numbers": {"a": 0.0, "b": 5.0, "c": -1.0},
    "levels": {"u": 0.5, "g": "r"},
    "label": {"y": 0.0},
}
ORIGIN = {"numbers": {"a": 0.0, "b": 0.0, "c": 0.0}, "levels": {"u": 0.0, "g": "r"}, "label": {"y": 0.0}}
# People and mixed rows of a release that is drawn at once.
SIZES = {"signs": (256, 8), "hadamard": (1024, 1024), "countsketch": (2048, 2048), "rows": (4096, 4096)}
FEW, FEW_ROWS = 16, 8


def audit_scores(zero, one, *, mu, exact_mu=None):
    """Audit from the scores of independent outputs in two neighbouring worlds."""
    worlds = [np.asarray(zero), np.asarray(one)]
    return audit_mechanism(
        lambda world, count, rng: worlds[world], lambda x: x, draws=len(zero), rng=0, mu=mu, exact_mu=exact_mu
    )


def mechanism_of(kind, party="numbers", *, n, k, intercept=True, **options):
    """Return the mechanism of one party; kind "rows" is that of Gaussian rows."""
    if kind == "rows":
        return pi.GaussianRows(SCHEMAS[party], n=n, intercept=intercept, **options)
    return pi.RandomMixing(SCHEMAS[party], n=n, k=k, kind=kind, intercept=intercept, **options)


def frame_of(party, records):
    return pd.DataFrame(records, columns=list(SCHEMAS[party].columns))


def sources(noise, turn):
    """Return the noise option of one world: a stream of its own, or fresh secure noise."""
    return {"rng": np.random.default_rng((noise["rng"], turn))} if noise else {}


def scaled(design, records):
    """Return records in scaled units, released columns only."""
    matrix = (design.matrix(records) - design.center) / design.scale
    return matrix[:, design.private]


def gap_of(design, party):
    """Return the scaled difference of the two farthest records."""
    low, high = scaled(design, frame_of(party, FARTHEST[party]))
    return high - low


# ---- drawn at once


@functools.cache
def changing(kind, n, k, seed=0):
    """Return the people whose losses one release draws independently, and their columns of the matrix.

    With signs, orthogonal columns are searched for; of the people in one bucket of CountSketch the first one
    changes; all columns of the square Hadamard matrix are orthogonal.
    """
    matrix = MixingMatrix(kind, n, k, seed)
    entries = matrix.scale * matrix.entries(np.arange(n))
    people = np.arange(n)
    if kind == "signs":
        people = np.array(orthogonal(entries))
    elif kind == "countsketch":
        people = np.unique(np.abs(entries).argmax(axis=0), return_index=True)[1]
    return people, entries[:, people]


def orthogonal(columns):
    """Return the positions of as many orthogonal columns as a search in order finds."""
    found = []
    for i in range(columns.shape[1]):
        if not found or np.abs(columns[:, found].T @ columns[:, i]).max() < 1e-12:
            found.append(i)
    return found


def messages(release):
    """Return what the rows say of each changing person, (people, d): independent, given everybody else."""
    sent, law = release.arrays["rows"], release.noise_model
    if law["method"] == "gaussian-rows":
        return sent
    return changing(law["kind"], law["n"], law["k"], law["public_seed"])[1].T @ sent


def at_once(kind, noise, party="numbers", *, intercept=True, many=None, records=None, **options):
    """Return scores of both worlds, and the exact loss of what the rows say of a person."""
    n, k = SIZES[kind]
    mechanism = mechanism_of(kind, party, n=n, k=k, intercept=intercept, **options)
    people = np.arange(n) if kind == "rows" else changing(kind, n, k)[0]
    turns = -(-(many or MANY) // len(people))
    gap, scores = gap_of(mechanism.design, party), []
    for world, record in enumerate(records or FARTHEST[party]):
        table = frame_of(party, [(CENTRE if intercept else ORIGIN)[party]] * n)
        table.loc[people, list(record)] = list(record.values())
        stream = sources(noise, world)
        sent = [messages(mechanism.release(table, mu=MU, **stream)) for _ in range(turns)]
        scores.append(np.concatenate(sent) @ gap)
    share = mechanism.share if kind != "rows" and intercept and mechanism.share else 0.0
    return *scores, MU * math.sqrt(1.0 - share)


KINDS = ["signs", "hadamard", "countsketch", "rows"]


@pytest.mark.audit
@pytest.mark.parametrize("noise", [SEEDED, SECURE], ids=["seeded", "secure"])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_party_in_their_worst_pair(kind, noise):
    zero, one, exact = at_once(kind, noise, intercept=False)
    result = audit_scores(zero, one, mu=MU, exact_mu=exact)
    assert result.passed, result


@pytest.mark.parametrize("party", ["levels", "label"])
@pytest.mark.parametrize("kind", ["hadamard", "countsketch", "rows"])
def test_a_party_of_levels_and_a_party_of_one_column(kind, party):
    share = {} if kind == "rows" else {"share": 0.1}
    zero, one, exact = at_once(kind, SEEDED, party, **share)
    result = audit_scores(zero, one, mu=MU, exact_mu=exact)
    assert result.passed, result


@pytest.mark.parametrize("kind", ["hadamard", "rows"])
def test_noise_of_the_largest_diameter_spends_less_and_says_so(kind):
    """Calibrated to twice its own diameter, a party spends half, and its ledger line claims half."""
    mechanism = mechanism_of(kind, n=SIZES[kind][0], k=SIZES[kind][1])
    wide = 2.0 * mechanism.design.diameter
    zero, one, _ = at_once(kind, SEEDED, intercept=False, diameter=2.0 * math.sqrt(4 + 1 + 16 / 9))
    spender = mechanism_of(kind, n=FEW, k=FEW_ROWS, diameter=wide)
    claim = spender.release(few_people("numbers"), mu=MU, rng=0).entries[0].loss.mu
    assert claim == pytest.approx(MU / 2)
    result = audit_scores(zero, one, mu=claim, exact_mu=claim)
    assert result.passed, result


# ---- drawn again and again: with the all-ones row


def few_people(party, last=None):
    """Return a small table whose last person is `last`."""
    low, high = FARTHEST[party]
    return frame_of(party, [low, high] * (FEW // 2 - 1) + [CENTRE[party], last or high])


def whole_score(release, gap):
    """Return the log-likelihood ratio, up to a constant, of the last person's two farthest records."""
    law, arrays = release.noise_model, release.arrays
    if law["method"] == "gaussian-rows":
        return arrays["rows"][-1] @ gap / law["scale"] ** 2
    matrix = MixingMatrix(law["kind"], law["n"], law["k"], law["public_seed"])
    column = math.sqrt(1.0 - law["share"]) * matrix.scale * last_column(law["kind"], law["public_seed"])
    score = column @ arrays["rows"] @ gap
    if "ones_row" in arrays:
        score += math.sqrt(law["share"]) * arrays["ones_row"] @ gap
    return score / law["scale"] ** 2


@functools.cache
def last_column(kind, seed):
    return MixingMatrix(kind, FEW, FEW_ROWS, seed).entries(np.array([FEW - 1]))[:, 0].astype(float)


def again(kind, noise, *, draws=None, records=None, party="numbers", **options):
    """Return scores of whole releases in which the last person changes."""
    mechanism = mechanism_of(kind, party, n=FEW, k=FEW_ROWS, **options)
    gap, scores = gap_of(mechanism.design, party), []
    for world, record in enumerate(records or FARTHEST[party]):
        table, stream = few_people(party, record), sources(noise, world)
        released = (mechanism.release(table, mu=MU, **stream) for _ in range(draws or AGAIN))
        scores.append(np.array([whole_score(release, gap) for release in released]))
    return scores


@pytest.mark.audit
@pytest.mark.parametrize("kind", ["signs", "hadamard", "countsketch"])
def test_rows_and_all_ones_row_together(kind):
    result = audit_scores(*again(kind, SEEDED, share=0.5), mu=MU, exact_mu=MU)
    assert result.passed, result


@pytest.mark.audit
def test_rows_and_all_ones_row_together_with_secure_noise():
    result = audit_scores(*again("signs", SECURE, draws=600), mu=MU)
    assert not result.exceeded, result
    assert result.mu_lower > 0.5 * MU


# ---- mutants


@pytest.mark.audit
def test_mutant_root_of_k_forgotten(monkeypatch):
    monkeypatch.setattr(MixingMatrix, "scale", property(lambda self: 1.0))
    for kind in ("signs", "hadamard"):
        assert audit_scores(*again(kind, SEEDED, draws=300), mu=MU).exceeded


@pytest.mark.audit
@pytest.mark.parametrize("kind", ["signs", "hadamard", "countsketch"])
def test_mutant_root_of_one_less_the_share_forgotten(kind, monkeypatch):
    """With an all-ones row of share .96 on top of whole mixed rows the loss is 1.4 times the claim."""
    root = math.sqrt(1.0 - 0.96)
    true = MixingMatrix.scale.fget
    monkeypatch.setattr(MixingMatrix, "scale", property(lambda self: true(self) / root))
    assert audit_scores(*again(kind, SEEDED, draws=1000, share=0.96), mu=MU).exceeded


CALIBRATED_TO = {
    "one cell's range": lambda self: float((self.scaled_high - self.scaled_low)[self.private].max()),
    "radius (add/remove for replace-one)": lambda self: self.norm,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CALIBRATED_TO)
def test_mutants_of_the_diameter(name, kind, monkeypatch):
    monkeypatch.setattr(Design, "diameter", property(CALIBRATED_TO[name]))
    assert audit_scores(*at_once(kind, SEEDED, many=1500)[:2], mu=MU).exceeded


FAR = ({"a": -30.0, "b": -100.0, "c": -3.0}, {"a": 1.0, "b": 500.0, "c": 70.0})


def unclipped(design, matrix):
    return ((matrix - design.center) / design.scale)[:, design.private]


@pytest.mark.audit
@pytest.mark.parametrize("kind", KINDS)
def test_records_outside_their_bounds_are_clipped_and_the_mutant_is_caught(kind, monkeypatch):
    zero, one, exact = at_once(kind, SEEDED, records=FAR, intercept=False)
    assert audit_scores(zero, one, mu=MU, exact_mu=exact).passed
    monkeypatch.setattr(party_release, "scale_private", unclipped)
    assert audit_scores(*at_once(kind, SEEDED, records=FAR, many=500)[:2], mu=MU).exceeded


# ---- several parties: one person's total, and what one party's rows say about another's


class KeptNoise:
    """A source that hands out the same noise to every party: the fault to be caught."""

    def __init__(self, source, kept):
        self._source, self._kept = source, kept

    def __getattr__(self, name):
        return getattr(self._source, name)

    def perturb(self, values, scale):
        shape = np.shape(values)
        if shape not in self._kept:
            self._kept[shape] = self._source.perturb(np.zeros(shape), 1.0)
        return values + scale * self._kept[shape]


def sharing_noise(monkeypatch):
    """Let every release of one model draw the same noise."""
    kept = {}
    true = gaussian.get_source
    monkeypatch.setattr(gaussian, "get_source", lambda rng, source: KeptNoise(true(rng, source), kept))
    return kept


def model_of(kind, low, high):
    """Return a model of two parties with two columns each; changing people hold `low`, or `high`, there."""
    n, k = SIZES[kind]
    people = np.arange(n) if kind == "rows" else changing(kind, n, k)[0]
    table = np.zeros((n, 4))
    table[people] = [*low, *high]
    options = {} if kind == "rows" else {"k": k, "kind": kind}
    cls = pi.DGMOLS if kind == "rows" else pi.RMGMOLS
    return cls(
        table[:, 3],
        table[:, :3],
        parties={"one": [0, 1], "two": [2, "y"]},
        bounds=[(-1, 1)] * 3,
        y_bounds=(-1, 1),
        intercept=False,
        **options,
    )


def two_parties(kind, noise, worlds, *, many, kept=None):
    """Return both worlds' messages (people, 4) in units of the noise, and the last releases.

    A world is the pair of numbers that each of the two parties holds about a changing person.
    """
    out = []
    for world, (first, second) in enumerate(worlds):
        model, stream, sent = model_of(kind, first, second), sources(noise, world), []
        while sum(map(len, sent)) < many:
            if kept is not None:
                kept.clear()
            releases = model.release(mu=MU, **stream)
            parts = [messages(r) / r.noise_model["scale"] for r in releases.values()]
            sent.append(np.hstack(parts))
        out.append(np.concatenate(sent))
    return out, releases


# One release of signs draws eight people only: fewer draws, with fixed seeds.
JOINT = {"signs": 2600, "hadamard": MANY, "countsketch": MANY, "rows": MANY}
JOINTLY = [(kind, SEEDED) for kind in KINDS] + [(kind, SECURE) for kind in KINDS[1:]]
TRAINING = 600  # draws from which an adversary learns
CORNER = (1.0, 1.0)
OPPOSITE = (-1.0, -1.0)


@pytest.mark.audit
@pytest.mark.parametrize(("kind", "noise"), JOINTLY)
def test_one_person_at_all_parties(kind, noise):
    """The report's totals are per person: the joint release of both parties in the person's worst pair."""
    worlds = [(OPPOSITE, CORNER), (CORNER, OPPOSITE)]
    (zero, one), releases = two_parties(kind, noise, worlds, many=JOINT[kind])
    report = pi.PrivacyReport.from_entries(pi.join(releases).entries)
    assert report.mu == pytest.approx(MU * math.sqrt(2.0))
    assert list(report.parties.mu) == pytest.approx([MU, MU])
    score = np.array([1.0, 1.0, -1.0, -1.0])
    result = audit_scores(zero @ score, one @ score, mu=report.mu, exact_mu=MU * math.sqrt(2.0))
    assert result.passed, result


@pytest.mark.audit
@pytest.mark.parametrize("kind", KINDS)
def test_mutant_noise_shared_by_two_parties(kind, monkeypatch):
    """The difference of two parties' messages has no noise left."""
    kept = sharing_noise(monkeypatch)
    worlds = [(OPPOSITE, CORNER), (CORNER, OPPOSITE)]
    (zero, one), _ = two_parties(kind, SEEDED, worlds, many=1000, kept=kept)
    score = np.array([1.0, 1.0, -1.0, -1.0])
    assert audit_scores(zero @ score, one @ score, mu=MU * math.sqrt(2.0)).exceeded


def linkage_scores(worlds, held):
    """Return scores of an adversary who knows the first party's numbers, and so the noise of its messages.

    The adversary has learned, from other draws, how to weigh the second party's messages and that noise.
    """
    known = [world - np.array([*held, 0.0, 0.0]) for world in worlds]
    train, test = [w[:TRAINING] for w in known], [w[TRAINING:] for w in known]
    spread = sum(np.cov(w.T) for w in train) + 1e-9 * np.eye(4)
    weights = np.linalg.solve(spread, train[1].mean(axis=0) - train[0].mean(axis=0))
    return [w @ weights for w in test]


def linked(kind, noise, many, kept=None):
    """Return the scores of linkage attacks: the first party's numbers are known, the second's change."""
    first = (0.37, -0.81)
    worlds, releases = two_parties(
        kind, noise, [(first, OPPOSITE), (first, CORNER)], many=many + TRAINING, kept=kept
    )
    held = np.array(first) / releases["one"].noise_model["scale"]
    return linkage_scores(worlds, held)


@pytest.mark.audit
@pytest.mark.parametrize(("kind", "noise"), JOINTLY)
def test_raw_columns_of_one_party_do_not_help_against_another(kind, noise):
    """Who holds one party's raw columns knows its noise, and gains nothing against the other's release."""
    result = audit_scores(*linked(kind, noise, many=JOINT[kind]), mu=MU, exact_mu=MU)
    assert result.passed, result


@pytest.mark.audit
@pytest.mark.parametrize("kind", KINDS)
def test_the_linkage_audit_sees_noise_that_two_parties_share(kind, monkeypatch):
    kept = sharing_noise(monkeypatch)
    assert audit_scores(*linked(kind, SEEDED, many=500, kept=kept), mu=MU).exceeded


def test_likeness_of_two_parties_columns_is_no_loss_of_the_second_release():
    """The second party's column nearly repeats the first's: known numbers are a prior, not a gain.

    Bayes' rule, given the raw column and the second release, is right no more often than mu allows.
    """
    n, k = SIZES["hadamard"]
    rng, right, turns = np.random.default_rng(0), 0, 8
    mechanism = mechanism_of("hadamard", "label", n=n, k=k, intercept=False)
    column, prior = changing("hadamard", n, k)[1], 0.8
    for _ in range(turns):
        known = rng.random(n) < 0.5
        truth = np.where(rng.random(n) < prior, known, ~known)
        release = mechanism.release(pd.DataFrame({"y": np.where(truth, 2.0, -2.0)}), mu=MU, rng=rng)
        ratio = (column.T @ release.arrays["rows"])[:, 0] * 2.0 / release.noise_model["scale"] ** 2
        guess = ratio + np.where(known, 1.0, -1.0) * math.log(prior / (1.0 - prior)) > 0
        right += int((guess == truth).sum())
    cut = math.log(prior / (1.0 - prior)) / MU
    best = prior * ndtr(MU / 2 + cut) + (1.0 - prior) * ndtr(MU / 2 - cut)
    low, high = binomial_bounds(np.array([right]), turns * n, 0.001)
    assert low[0] < best < high[0]
