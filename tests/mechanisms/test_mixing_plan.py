"""The public plan: what it computes, its file, what it refuses, and the rule for k."""

import json
import math

import numpy as np
import pytest

import privinf as pi
from privinf import errors
from privinf.mechanisms.mixing.theory import MixingGuess, auto_rows, identification_forecast

A, B = pi.Schema({"age": (18.0, 90.0), "sex": ["f", "m"]}), pi.Schema({"bmi": (15.0, 60.0), "cost": (0, 9)})
PARTIES = {
    "clinic": pi.PartyPlan(A, epsilon=1.0, delta=1e-6),
    "payer": pi.PartyPlan(B, epsilon=0.5, delta=1e-6),
}


def plan(**change):
    return pi.MixingPlan.new(**({"parties": PARTIES, "n": 100_000} | change))


def test_json_round_trip_and_digest(tmp_path):
    made = plan(id="patient", seed=9, kind="hadamard", diameter="largest")
    made.save(tmp_path / "plan.json")
    with pytest.raises(errors.ArgumentError, match=r"plan\.json already exists: .*overwrite=True"):
        made.save(tmp_path / "plan.json")
    made.save(tmp_path / "plan.json", overwrite=True)
    back = pi.MixingPlan.load(tmp_path / "plan.json")
    assert back == made
    assert back.digest == made.digest
    assert back.digest != plan().digest
    assert back.width == 4


def test_infinite_budgets_and_mu_survive_json():
    parties = {"a": pi.PartyPlan(A, epsilon=math.inf), "b": pi.PartyPlan(B, mu=0.3, delta=1e-7)}
    made = pi.MixingPlan.new(parties=parties, n=1000, k=50)
    assert pi.MixingPlan.from_json(made.to_json()) == made


def test_check_adds_parties_up_per_person():
    made = plan()
    check = made.check()
    mus = [pi.accounting.calibrate_mu(epsilon=e, delta=1e-6) for e in (1.0, 0.5)]
    total = pi.accounting.compose([pi.accounting.GaussianLoss(mu) for mu in mus])
    assert check.epsilon == pytest.approx(total.epsilon(1e-6))
    assert [line.epsilon for line in check.parties] == pytest.approx([1.0, 0.5])
    diameters = [math.sqrt(4 + 1), math.sqrt(8)]
    assert [line.noise_scale for line in check.parties] == pytest.approx(
        [d / mu for d, mu in zip(diameters, mus, strict=True)]
    )
    assert "one person, over all parties" in str(check)
    assert "NOT IDENTIFIED" in str(plan(n=2000).check())
    assert plan(n=10_000_000).check().identified


def test_releases_carry_the_plan_and_its_budget():
    import pandas as pd

    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.uniform(18, 90, 500), "sex": rng.choice(["f", "m"], 500)})
    made = plan(n=500, k=40)
    ledger = pi.Ledger()
    release = made.release("clinic", frame, rng=0, ledger=ledger)
    assert release.noise_model["plan"] == made.digest
    assert release.noise_model["party"] == ledger.entries[0].party == "clinic"
    assert release.noise_model["k"] == 40
    assert pi.PrivacyReport.from_entries(release.entries).epsilon(1e-6) == pytest.approx(1.0)
    assert made.losses("clinic")[0].mu == ledger.entries[0].loss.mu


def variance(guess, n, k, p):
    """The page's asymptotic variance with k - p degrees of freedom in place of k."""
    ratio = guess.label_noise / guess.noise + guess.slopes
    own = k * guess.noise / n
    return (guess.residual + own * ratio) * (guess.signal + own) / ((k - p) * guess.signal**2)


@pytest.mark.parametrize("rsquared", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("noise", [4.0, 100.0])
def test_auto_rows_minimise_the_variance(rsquared, noise):
    guess = MixingGuess(noise=noise, label_noise=noise, signal=1 / 3, label_variance=1 / 3, rsquared=rsquared)
    n, d = 1_000_000, 10
    best = auto_rows(guess, n=n, features=d)
    ks = np.unique(np.geomspace(12, 200_000, 20_000).astype(int))
    assert best == pytest.approx(ks[np.argmin([variance(guess, n, k, d + 1) for k in ks])], rel=0.02)


def test_auto_rows_limits():
    guess = MixingGuess(noise=1e6, label_noise=1e6, signal=1 / 3, label_variance=1 / 3)
    assert auto_rows(guess, n=100_000, features=4) == 30
    assert auto_rows(guess, n=20, features=4) == 20
    assert identification_forecast(0.0, 1.0, n=10, k=5, features=2) == math.inf
    assert identification_forecast(2.0, 0.5, n=1000, k=25, features=4) == pytest.approx(500 / 40)
    with pytest.raises(errors.ArgumentError, match="pass a number for k"):
        plan(parties={"a": pi.PartyPlan(A, epsilon=math.inf)})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"parties": {}}, "at least one"),
        ({"parties": {"a": A}}, "PartyPlan"),
        (
            {
                "parties": {
                    "a": pi.PartyPlan(A, epsilon=1.0, delta=1e-6),
                    "b": pi.PartyPlan(A, epsilon=1.0, delta=1e-6),
                }
            },
            "belongs to party",
        ),
        ({"parties": {"a": pi.PartyPlan(A, epsilon=-1.0, delta=1e-6)}}, "epsilon"),
        ({"parties": {"a": pi.PartyPlan(A, epsilon=1.0)}}, "delta"),
        ({"n": 0}, "n"),
        ({"k": 3}, "too few for"),
        ({"k": 100_001}, "at most n="),
        ({"kind": "x"}, "kind"),
        ({"seed": -1}, "seed"),
        ({"method": "magic"}, "method"),
        ({"id": "age"}, "id column"),
        ({"ids_sha256": "abc"}, "64 hexadecimal"),
        ({"method": "gaussian-rows", "k": 10}, "can be used only with method"),
        ({"method": "gaussian-rows", "share": 0.1}, "can be used only with method"),
        ({"share": 0.0}, "weight of the intercept"),
        ({"label": "nothing"}, "not a released column"),
    ],
)
def test_plans_that_are_refused(change, words):
    with pytest.raises(errors.PrivinfError, match=words):
        plan(**change)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "not json", json.dumps({"format": "privinf-mixing-plan", "version": 99})],
)
def test_texts_that_are_no_plan(text):
    with pytest.raises(errors.StorageError):
        pi.MixingPlan.from_json(text)


def test_tampered_plans_are_checked_again(tmp_path):
    content = json.loads(json.dumps(plan().to_dict()))
    for key, value in (("k", 2), ("share", 0.0), ("kind", "x"), ("n", -4), ("extra", 1)):
        with pytest.raises(errors.PrivinfError):
            pi.MixingPlan.from_dict(content | {key: value})
    with pytest.raises(errors.StorageError, match="does not exist"):
        pi.MixingPlan.load(tmp_path / "absent.json")
    with pytest.raises(errors.ArgumentError, match="no party"):
        plan().mechanism("nobody")
