"""The test of the target of PHReg: its distribution, what it finds, where it is offered, negative times."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2

import privinf as pi
import privinf.glm.hazards.target_test as module
from privinf.errors import ChangedTargetWarning, MisfitWarning, NotAvailableError
from privinf.glm.curved_sums import Noisy
from privinf.glm.hazards.results import MOVED_TARGET, blind_notes, moved_targets, shown_below
from privinf.glm.hazards.target_test import LITTLE_POWER, RoundRelease, TargetTestResult, target_test
from privinf.inference.one_step import OneStepScores

Q = 2  # blocks
D = 3  # slopes
N = 10**11  # so large that the second order of the scores is negligible
DRAWS = 1_500
SPEND = {"epsilon": 4.0, "delta": 1e-6, "rng": 0}


# ---- the distribution: scores of a linear equation, with noise of every kind


def root_of(matrix):
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T


def pvalues(seed=0):
    """Return p-values where both releases have the same slopes, with noise as large as sampling."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.0, 1.0, (4_000, D)) @ np.array([[1.0, 0.3, 0.0], [0.0, 1.0, -0.4], [0.0, 0.0, 0.7]])
    block = rng.integers(0, Q, len(x))
    designs = np.column_stack([math.sqrt(Q) * (block[:, None] == np.arange(Q)), np.clip(x, -1.0, 1.0)])
    hessian = 0.3 * designs.T @ designs / len(designs)
    transform = np.linalg.inv(np.linalg.cholesky(hessian))
    whitened = transform @ hessian @ transform.T
    truth = np.concatenate([np.zeros(Q), [0.5, -0.3, 0.2]])
    variance_early = np.linalg.inv(hessian) / N
    variance_late = 0.6 * variance_early
    noise_late = 0.5 * variance_early[Q:, Q:]
    score_sd = 1.0 / math.sqrt(N)
    # Many standard errors away, so that small noise of the Hessian moves the scores as much as theirs.
    theta = truth + 60.0 * root_of(variance_early) @ np.ones(Q + D)
    move = np.linalg.solve(transform.T, truth - theta)
    hessian_sd = score_sd / float(np.linalg.norm(move))
    values = []
    for _ in range(DRAWS):
        late = truth + root_of(variance_late) @ rng.standard_normal(Q + D)
        early = late + root_of(variance_early - variance_late) @ rng.standard_normal(Q + D)
        noise = np.triu(rng.standard_normal(whitened.shape), 1) * (hessian_sd / math.sqrt(2.0))
        noise = noise + noise.T + hessian_sd * np.diag(rng.standard_normal(Q + D))
        score = whitened @ np.linalg.solve(transform.T, early - theta)
        score += score_sd * rng.standard_normal(Q + D)
        release = RoundRelease(
            theta=theta,
            transform=transform,
            score=Noisy(score, score_sd),
            hessian=Noisy(whitened + noise, hessian_sd),
            stop=1.0,
        )
        slopes = late[Q:] + root_of(noise_late) @ rng.standard_normal(D)
        covariance = variance_late[Q:, Q:] + noise_late
        values.append(target_test(release, slopes, covariance, noise_late, N, 8.0).pvalue)
    return np.array(values)


def keeps_its_size():
    values = pvalues()
    limits = 0.05 + 2.8 * math.sqrt(0.05 * 0.95 / DRAWS) * np.array([-1.0, 1.0])
    assert limits[0] < np.mean(values < 0.05) < limits[1]
    assert 0.45 < np.median(values) < 0.56


def test_it_keeps_its_size():
    keeps_its_size()


def without_score_noise(monkeypatch):
    monkeypatch.setattr(OneStepScores, "noise_meat", lambda self, beta: np.zeros((Q + D, Q + D)))


def without_noise_of_the_hessian(monkeypatch):
    terms = OneStepScores.noise_terms
    monkeypatch.setattr(
        OneStepScores, "noise_terms", lambda self, beta: {"score noise": terms(self, beta)["score noise"]}
    )


def without_noise_of_the_fit(monkeypatch):
    original = module.target_test

    def cut(early, slopes, covariance, noise, n, stop):
        return original(early, slopes, covariance - noise, np.zeros_like(noise), n, stop)

    monkeypatch.setitem(globals(), "target_test", cut)


def without_sampling(monkeypatch):
    monkeypatch.setattr(module, "_positive_part", np.zeros_like)


def with_sampling_of_both_added(monkeypatch):
    monkeypatch.setattr(module, "_positive_part", lambda part: 2.0 * np.eye(D) / N - part)


@pytest.mark.parametrize(
    "mutant",
    [
        without_score_noise,
        without_noise_of_the_hessian,
        without_noise_of_the_fit,
        without_sampling,
        with_sampling_of_both_added,
    ],
)
def test_mutants_do_not_keep_it(mutant, monkeypatch):
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        keeps_its_size()


def test_it_does_not_depend_on_units():
    rng = np.random.default_rng(1)
    release = RoundRelease(
        theta=np.array([0.1, 0.0, 0.4, 0.2]),
        transform=np.eye(4) + 0.1 * np.ones((4, 4)),
        score=Noisy(0.01 * rng.standard_normal(4), 0.01),
        hessian=Noisy(np.diag([0.3, 0.3, 0.2, 0.1]), 0.01),
        stop=1.0,
    )
    again = RoundRelease.from_dict(release.to_dict())
    options = (np.array([0.45, 0.1]), 2e-3 * np.eye(2), 1e-3 * np.eye(2), 2_000, 8.0)
    assert target_test(again, *options) == target_test(release, *options)
    hidden = RoundRelease.from_dict(release.to_dict() | {"hessian_sd": 0.05})
    with pytest.raises(NotAvailableError, match="hides a direction"):
        target_test(hidden, *options)


# ---- fits


def rows_of(x, failure, seed=1):
    end = np.minimum(np.random.default_rng(seed).uniform(0.3, 1.6, len(x)), 1.0)
    return {"time": np.minimum(failure, end), "status": failure <= end, "X": x}


def crossing(n=20_000, seed=0):
    """Return rows whose effect ends after some time: hazards are not proportional."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.0, 1.0, (n, 2))
    hazard = rng.exponential(size=n)
    early = 1.5 * np.exp(1.6 * x[:, 0])
    failure = np.where(hazard < 0.25 * early, hazard / early, 0.25 + (hazard - 0.25 * early) / 1.5)
    return rows_of(x, failure)


def long_tails(n=20_000, seed=0):
    """Return rows of a model that holds, with strong effects of columns with long tails."""
    rng = np.random.default_rng(seed)
    lognormal = np.minimum(np.exp(0.9 * rng.standard_normal(n)) / 12.0, 1.0) * 2.0 - 1.0
    exponential = np.minimum(rng.exponential(size=n) / 6.0, 1.0) * 2.0 - 1.0
    x = np.column_stack([lognormal, exponential])
    return rows_of(x, rng.exponential(size=n) / (2.0 * np.exp(x @ [3.0, -1.5] + 1.8)))


def fitted(rows, **options):
    bounds = [(-1, 1)] * rows["X"].shape[1]
    model = pi.PHReg(rows["time"], rows["X"], status=rows["status"], bounds=bounds, horizon=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChangedTargetWarning)
        return model.fit(**{**SPEND, **options})


@pytest.fixture(scope="module")
def moved():
    return fitted(crossing())


def test_hazards_that_are_not_proportional_are_found_and_warned_of(moved):
    test = moved.target_test()
    assert test.pvalue < 1e-3
    assert test.df == 2
    assert test.stops[0] < test.stops[1] == moved.follow_up
    text = MOVED_TARGET.format(shown_below(test.pvalue, 0.05), 0.05)
    assert text in moved._context.settings["misfits"]
    assert "depend on how long records are followed" in " ".join(str(moved.summary()).split())
    with pytest.warns(MisfitWarning, match="depend on how long records are followed"):
        moved.conf_int()
    assert "p-value" in repr(test)
    assert "p-value" in test._repr_html_()


def test_it_is_quiet_where_the_model_holds():
    rng = np.random.default_rng(3)
    x = rng.uniform(-1.0, 1.0, (20_000, 2))
    rows = rows_of(x, rng.exponential(size=20_000) / (1.5 * np.exp(x @ [0.8, -0.4])))
    fit = fitted(rows)
    assert fit.target_test().pvalue > 0.05
    assert "misfits" not in fit._context.settings


def test_it_allows_for_the_second_order_of_the_scores():
    """Without this, the test rejects where the model holds: the round ended far from the fit."""
    fit = fitted(long_tails())
    test = fit.target_test()
    assert test.pvalue > 0.05
    assert chi2.sf(test.statistic, test.df) < 1e-3
    assert test.noncentrality > LITTLE_POWER
    assert "little power in this fit" in " ".join(str(fit.summary("all")).split())


def made_test(pvalue=0.5, noncentrality=1.0):
    return TargetTestResult(
        statistic=6.584, pvalue=pvalue, df=4, noncentrality=noncentrality, stops=(1.0, 3.0)
    )


def test_it_prints_what_it_compares_and_its_power():
    blind = " ".join(str(made_test(0.9937, 21.0)).split())
    assert "an earlier round" in blind
    assert "1 in the round and 3 in the fit, as a cumulated hazard and not a time" in blind
    assert "noncentral chi-squared distribution, so it is larger" in blind
    assert "power: little, because the noncentrality is above 10" in blind
    assert "power: not flagged" in str(made_test()).replace("              ", " ")
    assert "little power" in repr(made_test(0.9937, 21.0))
    assert "not a time" in made_test()._repr_html_()
    assert max(map(len, str(made_test(0.9937, 21.0)).splitlines())) <= 100
    assert not blind_notes(made_test())
    assert "its noncentrality is 2,542, which is above 10" in blind_notes(made_test(0.9, 2542.2))[0].text


def test_a_p_value_below_the_level_prints_as_below():
    assert shown_below(0.0455, 0.05) == "0.045"
    assert shown_below(0.0496, 0.05) == "0.0496"
    assert shown_below(0.0499996, 0.05) == "0.0499996"
    assert "has the p-value 0.0496, which is below 0.05" in moved_targets(made_test(0.0496))[0]
    assert not moved_targets(made_test(0.05))


def test_it_comes_back_from_a_file(moved, tmp_path):
    moved.save(tmp_path / "fit")
    loaded = pi.load_results(tmp_path / "fit")
    assert loaded.target_test().statistic == pytest.approx(moved.target_test().statistic)
    assert str(loaded.summary()) == str(moved.summary())


def test_an_older_file_has_no_test(moved):
    context = dict(moved._context.settings)
    hazards = {name: value for name, value in context["hazards"].items() if name != "early"}
    older = type(moved)(moved._estimate, replace(moved._context, settings=context | {"hazards": hazards}))
    with pytest.raises(NotAvailableError, match="earlier version"):
        older.target_test()
    assert "target_test" not in dir(older)


def test_fits_without_it_say_why():
    exact = fitted(crossing(3_000), epsilon=math.inf, rng=None)
    with pytest.raises(NotAvailableError, match="without noise"):
        exact.target_test()
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.uniform(-1.0, 1.0, 2_000), rng.random((2_000, 2)) < 0.03])
    rows = rows_of(x, rng.exponential(size=2_000) / 0.5)
    weak = fitted(rows, epsilon=1.0)
    assert weak.cov_type == "posterior"
    with pytest.raises(NotAvailableError, match="weak"):
        weak.target_test()


@pytest.mark.parametrize("trust", ["server", "secure-sum"])
def test_sites_have_it_too(trust):
    rows = crossing(12_000)
    frame = pd.DataFrame(rows["X"], columns=["a", "b"]).assign(died=rows["status"])
    sites = {
        name: (rows["time"][part], frame[part])
        for name, part in (("x", slice(0, 5_000)), ("y", slice(5_000, 12_000)))
    }
    model = pi.PHReg.from_arrays(
        sites, status="died", bounds={"a": (-1, 1), "b": (-1, 1)}, horizon=1.0, trust=trust
    )
    assert model.fit(**SPEND).target_test().pvalue < 0.01


# ---- negative times


def test_codes_for_missing_times_are_counted_without_a_price():
    rng = np.random.default_rng(3)
    x = rng.uniform(-1.0, 1.0, (8_000, 2))
    rows = rows_of(x, rng.exponential(size=8_000) / (1.5 * np.exp(x @ [0.8, -0.4])))
    model = pi.PHReg(rows["time"], x, status=rows["status"], bounds=[(-1, 1)] * 2, horizon=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clean = model.fit(**SPEND)
    rows["time"][:400] = -9.0
    model = pi.PHReg(rows["time"], x, status=rows["status"], bounds=[(-1, 1)] * 2, horizon=1.0)
    with pytest.warns(ChangedTargetWarning, match=r"about [4-6].* of the times are negative"):
        coded = model.fit(**SPEND)
    assert coded.privacy.mu == clean.privacy.mu
    assert "of the times are negative" in " ".join(str(coded.summary()).split())
    with pytest.warns(ChangedTargetWarning, match="about 5% of the times"):
        model.fit(epsilon=math.inf)
