"""One reduced cell of each long simulation of benchmarks/verify_mixing.py, judged by binomial limits."""

import math

import numpy as np
import pytest
from scipy import stats

import privinf as pi
from privinf.inference.score_test import identification, score_test
from privinf.inference.solution import solve
from privinf.mechanisms.mixing.matrix import MixingMatrix
from privinf.mechanisms.mixing.party import PartyPlan
from privinf.mechanisms.mixing.plan import MixingPlan
from privinf.mixing.equation import MixedLeastSquares
from studies.mixing import MIXING_PARTIES, PeopleSums, mixed_rows_limit, mixing_design, mixing_sums
from studies.simulation import binomial_limits

DELTA = 1e-5
TRUE_RSQUARED = (1 / 90) / (1 / 90 + 0.2**2 / 3)  # of y = w'x + .2 U(-1, 1), on average over w


def planned(n, **options):
    """The public plan of six parties at epsilon 1, and the noise variance of x1..x10 and y."""
    names = {p: ["y" if c == "y" else f"x{c + 1}" for c in items] for p, items in MIXING_PARTIES.items()}
    parties = {
        party: PartyPlan(pi.Schema({name: (-1.0, 1.0) for name in columns}), epsilon=1.0, delta=DELTA)
        for party, columns in names.items()
    }
    plan = MixingPlan.new(parties=parties, n=n, label="y", **options)
    scale = [plan.mechanism(p).noise_scale(parties[p].total_mu()) for p in names for _ in names[p]]
    return plan, np.square(scale)


def released(sums, plan, noise, rng, k=None):
    drawn = mixed_rows_limit(sums, k=k or plan.k, noise=noise, share=plan.share, rng=rng)
    return MixedLeastSquares(
        drawn.rows[:, :-1],
        drawn.rows[:, -1],
        np.append(0.0, noise[:-1]),
        y_noise=noise[-1],
        n=sums.n,
        share=plan.share,
        constant=0,
        ones_row=drawn.ones_row[:-1],
        ones_response=drawn.ones_row[-1],
    )


def error(system, sums):
    return np.linalg.norm(np.linalg.solve(system.A, system.g)[1:] - sums.slopes)


@pytest.mark.audit
@pytest.mark.parametrize("k", [65, "auto"])
def test_intervals_cover_where_the_plan_says_identified(k):
    n, reps, rng = 100_000, 250, np.random.default_rng(1)
    plan, noise = planned(n, k=k)
    assert plan.check().identified
    hits, narrow = np.zeros((reps, 11)), np.zeros((reps, 11))
    for i in range(reps):
        sums = mixing_sums(n, rng, residual=0.2)
        system = released(sums, plan, noise, rng)
        solution = solve(system)
        distance = abs(solution.params - np.append(0.0, sums.slopes)) / np.sqrt(np.diag(solution.cov))
        hits[i], narrow[i] = distance <= stats.t.ppf(0.975, system.df), distance <= 1.7
    low, high = binomial_limits(0.95, reps, 1 - 0.01 / 22)
    assert (hits.mean(axis=0) >= low).all()
    assert (hits.mean(axis=0) <= high).all()
    pooled = binomial_limits(0.95, 10 * reps, 1 - 0.01 / 2)
    assert pooled[0] <= hits[:, 1:].mean() <= pooled[1]
    assert narrow[:, 1:].mean() < pooled[0]  # a seventh less in width is seen


def test_ten_thousand_people_are_declared_not_identified():
    n, rng = 10_000, np.random.default_rng(2)
    plan, noise = planned(n)
    assert "NOT IDENTIFIED" in str(plan.check())
    weak = [
        identification(released(mixing_sums(n, rng, residual=0.2), plan, noise, rng)).weak for _ in range(40)
    ]
    assert all(weak)


def steeper(sums, factor):
    """The sums of the same people with all slopes times a factor."""
    lift = np.eye(12)
    lift[-1, 1:-1] = (factor - 1.0) * sums.slopes
    return PeopleSums(sums.n, lift @ sums.gram @ lift.T, factor * sums.slopes)


@pytest.mark.audit
@pytest.mark.parametrize(("n", "k", "factor"), [(10_000, "auto", 1.0), (20_000, 65, 20.0)])
def test_score_test_keeps_its_size(n, k, factor):
    reps, rng = 1200, np.random.default_rng(3)
    plan, noise = planned(n, k=k)
    rejected = {"F": 0, "exact": 0, "not corrected": 0}
    for _ in range(reps):
        sums = steeper(mixing_sums(n, rng, residual=0.2), factor)
        system = released(sums, plan, noise, rng)
        public = rng.standard_normal(plan.k)
        rejected["F"] += score_test(system, sums.slopes).pvalue < 0.05
        rejected["exact"] += system.exact_score_test(np.append(0.0, sums.slopes), public)[1] < 0.05
        x, e = system._X, system._y - system._X @ sums.slopes
        rest = e @ e - (x.T @ e) @ np.linalg.solve(x.T @ x, x.T @ e)
        ratio = (e @ e - rest) / 10 / (rest / (plan.k - 10))
        rejected["not corrected"] += stats.f.sf(ratio, 10, plan.k - 10) < 0.05
    low, high = binomial_limits(0.05, reps, 1 - 0.01 / 4)
    assert low <= rejected["exact"] / reps <= high
    if factor == 1.0:
        assert low <= rejected["F"] / reps <= high
    else:  # e and x share noise: the F test of e on x itself rejects the truth
        assert rejected["not corrected"] / reps > 2.0 * high


@pytest.mark.audit
def test_debiased_error_falls_at_the_parametric_rate_and_the_plain_one_does_not():
    sizes, reps, rng = (100_000, 1_000_000), 40, np.random.default_rng(4)
    means = {"de-biased": [], "plain": []}
    for n in sizes:
        plan, noise = planned(n)
        rows = int(math.sqrt(n) * pi.accounting.classic_mu(1.0, DELTA))
        errors = {"de-biased": [], "plain": []}
        for _ in range(reps):
            sums = mixing_sums(n, rng, residual=0.2)
            errors["de-biased"].append(error(released(sums, plan, noise, rng), sums))
            mixed = mixed_rows_limit(sums, k=rows, noise=noise, rng=rng).rows
            plain = np.linalg.lstsq(mixed[:, 1:-1], mixed[:, -1], rcond=None)[0]
            errors["plain"].append(np.linalg.norm(plain - sums.slopes))
        for name, values in errors.items():
            means[name].append(np.mean(values))
    slopes = {name: np.diff(np.log(values))[0] / math.log(10.0) for name, values in means.items()}
    assert slopes["de-biased"] <= -0.48
    assert slopes["plain"] > -0.45
    assert means["de-biased"][0] > means["plain"][0]  # below the crossing shrinkage wins
    assert means["de-biased"][1] < means["plain"][1]


@pytest.mark.audit
def test_auto_rows_are_near_the_best():
    n, reps, rng = 300_000, 80, np.random.default_rng(5)
    plan, noise = planned(n, rsquared=TRUE_RSQUARED)
    rows = {"few": plan.k // 20, "auto": plan.k} | {f: round(f * plan.k) for f in (0.5, 0.7, 1.4, 2.0)}
    errors = {name: [] for name in rows}
    for _ in range(reps):
        sums = mixing_sums(n, rng, residual=0.2)
        for name, k in rows.items():
            errors[name].append(error(released(sums, plan, noise, rng, k), sums))
    means = {name: np.mean(values) for name, values in errors.items()}
    slack = 2.0 * np.std(errors["auto"]) / math.sqrt(reps) / means["auto"]
    assert means["auto"] <= (1.10 + slack) * min(means.values())
    assert means["few"] > (1.10 + slack) * min(means.values())


@pytest.mark.audit
def test_three_kinds_of_mixing_are_equally_accurate():
    """Real mixing of the same tables with the same noise; half the rows are seen to cost accuracy."""
    n, k, reps, rng = 4_000, 80, 80, np.random.default_rng(6)
    cases = {"countsketch": k, "signs": k, "hadamard": k, "half": k // 2}
    errors = np.empty((reps, len(cases)))
    for i in range(reps):
        sample = mixing_design(n, rng, residual=0.2)
        D = np.column_stack([sample.X, sample.y])
        noise = 1.5 * rng.standard_normal((k, 11))
        for j, (name, rows) in enumerate(cases.items()):
            kind = "countsketch" if name == "half" else name
            matrix = MixingMatrix(kind, n=n, k=rows, seed=int(rng.integers(2**63)))
            mixer = matrix.mixer(11)
            mixer.update(D, 0)
            mixed = matrix.scale * mixer.total() + noise[:rows]
            system = MixedLeastSquares(mixed[:, :-1], mixed[:, -1], np.full(10, 2.25), y_noise=2.25, n=n)
            errors[i, j] = np.linalg.norm(np.linalg.solve(system.A, system.g) - sample.slopes)
    logs = np.log(errors)
    for j in (1, 2):
        gap = logs[:, j] - logs[:, 0]
        assert abs(gap.mean()) < 3.5 * gap.std() / math.sqrt(reps)
    gap = logs[:, 3] - logs[:, 0]
    assert gap.mean() > 3.5 * gap.std() / math.sqrt(reps)
