"""How many modulation directions: predicted widths by the variance formulas, against fits."""

import numpy as np
import pytest

import privinf as pi
from privinf.errors import ArgumentError, NotAvailableError
from privinf.planning.modulated import ModulationOptions, compared, noise_sds

SCHEMA = pi.Schema({"y": (0.0, 10.0), "a": (0.0, 1.0), "b": (-2.0, 2.0), "c": (0.0, 5.0)})
BOOK = pi.Guesses(sds={"y": 1.5}, correlations={"a": {"b": 0.3}}, rsquared=0.4)
WORDS = {"contraction": 0.5, "amplitude": 1.5, "frequency": 0.3}


@pytest.fixture(scope="module")
def study():
    return pi.plan_study(
        SCHEMA, "y ~ a + b + c", 20_000, guesses=BOOK, mu=8.0, trust="local", estimators=["ModulatedOLS"]
    )


@pytest.mark.parametrize("sensitivity", ["exact", "lipschitz"])
def test_widths_by_the_number_of_directions(study, sensitivity):
    predicted = study.directions(sensitivity=sensitivity, **WORDS)
    assert list(predicted.index) == [1, 2, 3]
    case = study.case
    for count in (1, 3):
        widths = []
        for seed in range(24):
            rng = np.random.default_rng([seed, count])
            model = pi.ModulatedOLS.from_formula(
                case.formula,
                case.people.rows(case.n, rng),
                schema=case.schema,
                directions=count,
                sensitivity=sensitivity,
                public_seed=seed,
                **WORDS,
            )
            ends = model.fit(mu=8.0, rng=seed).conf_int().loc[list(case.which)].to_numpy()
            widths.append(ends[:, 1] - ends[:, 0])
        measured = np.sqrt(np.mean(np.square(widths), axis=0))
        ratio = predicted.loc[count, list(case.which)].to_numpy(dtype=float) / measured
        assert np.exp(np.log(ratio).mean()) == pytest.approx(1.0, abs=0.06)


def test_one_is_enough_with_the_exact_sensitivity_and_not_with_the_papers(study):
    exact = study.directions()
    assert exact["noise_sd"].nunique() == 1
    assert exact["times_one"].to_numpy() == pytest.approx(1.0, abs=0.01)
    paper = study.directions(sensitivity="lipschitz")
    assert (np.diff(paper["noise_sd"]) < 0.0).all()
    assert (np.diff(paper["times_one"]) < 0.0).all()


def test_the_noise_is_that_of_a_release(study):
    options = ModulationOptions(sensitivity="lipschitz", **WORDS)
    mechanism = options.mechanism(study.case, 2)
    rows = study.case.people.rows(50, np.random.default_rng(0))
    release = mechanism.release(rows, mu=8.0, rng=1)
    scale, response = noise_sds(mechanism, 8.0)
    assert release.noise_model["scales"][0] == pytest.approx(scale, rel=1e-6)
    assert release.noise_model["response_scale"] == pytest.approx(response, rel=1e-6)


def test_refusals_and_many_columns(study):
    assert compared(40)[0] == 1
    assert compared(40)[-1] == 40
    assert len(compared(40)) == 12
    with pytest.raises(ArgumentError, match="sensitivity="):
        study.directions(sensitivity="none")
    central = pi.plan_study(SCHEMA, "y ~ a", 500, guesses=BOOK, mu=4.0, estimators=["MomentOLS"])
    with pytest.raises(NotAvailableError, match="trust='local'"):
        central.directions()
    free = pi.plan_study(
        SCHEMA, "y ~ a", 500, guesses=BOOK, epsilon=np.inf, trust="local", estimators=["ModulatedOLS"]
    )
    with pytest.raises(NotAvailableError, match="finite budget"):
        free.directions()
