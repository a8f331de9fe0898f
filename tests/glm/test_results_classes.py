"""The class of a result follows from its model: `GLMResults`, over federations `FederatedGLMResults`."""

import copy
import pickle
import re

import numpy as np
import pytest
from support.tree import ROOT

import privinf as pi
from privinf.glm.results import GlmSettings
from privinf.models import FederatedGLMResults, GLMResults

RNG = np.random.default_rng(11)
X = RNG.uniform(-1, 1, (600, 2))
LINEAR = np.clip(X @ [0.5, 0.0] + 0.3 * RNG.standard_normal(600), -2, 2)
LABELS = (RNG.uniform(size=600) < 1.0 / (1.0 + np.exp(-X[:, 0]))).astype(float)
COUNTS = RNG.poisson(np.exp(0.3 * X[:, 0])).clip(0, 8).astype(float)
BOUNDS = [(-1, 1)] * 2


def ols(**options):
    return pi.OLS(LINEAR, X, bounds=BOUNDS, y_bounds=(-2, 2)).fit(**options)


FITS = {
    "OLS": lambda: ols(epsilon=np.inf),
    "OLS, HC1": lambda: ols(epsilon=np.inf, cov_type="HC1"),
    "Logit": lambda: pi.Logit(LABELS, X, bounds=BOUNDS).fit(epsilon=np.inf),
    "Poisson": lambda: pi.Poisson(COUNTS, X, bounds=BOUNDS, y_bounds=(0, 8)).fit(epsilon=np.inf),
    "no standard errors": lambda: ols(epsilon=1e-3, delta=1e-6, rng=0, intervals="optional"),
    "rounds by name": lambda: pi.GLM(LINEAR, X, family="gaussian", bounds=BOUNDS, y_bounds=(-2, 2)).fit(
        epsilon=np.inf, optimizer=pi.Newton()
    ),
}


@pytest.mark.parametrize("name", FITS)
@pytest.mark.filterwarnings("ignore::privinf.errors.PrivinfWarning")
def test_a_fit_of_one_table_is_no_federated_result(name, tmp_path):
    result = FITS[name]()
    assert type(result).__name__ == "GLMResults"
    assert type(result) is GLMResults
    for same in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result)):
        assert type(same) is GLMResults
    result.save(tmp_path / "fit", records=False)
    assert type(pi.load_results(tmp_path / "fit")) is GLMResults


def test_federated_glm_keeps_its_name(tmp_path):
    model = pi.FederatedGLM.from_arrays(
        {"a": (LINEAR[:300], X[:300]), "b": (LINEAR[300:], X[300:])},
        family="gaussian",
        bounds=BOUNDS,
        y_bounds=(-2, 2),
    )
    result = model.fit(epsilon=np.inf)
    assert type(result) is FederatedGLMResults
    assert isinstance(result, GLMResults)
    assert isinstance(result, pi.Results)
    assert repr(result).startswith("<FederatedGLMResults: ")
    assert type(pickle.loads(pickle.dumps(result))) is FederatedGLMResults
    result.save(tmp_path / "fit", records=False)
    assert type(FederatedGLMResults.load(tmp_path / "fit")) is FederatedGLMResults


@pytest.mark.filterwarnings("ignore::privinf.errors.PrivinfWarning")
def test_fits_store_only_settings_that_something_reads():
    source = "".join(path.read_text() for path in (ROOT / "privinf").rglob("*.py"))
    read = set(re.findall(r'\["(\w+)"\](?! =)|get\("(\w+)"|"(\w+)" (?:not )?in ', source))
    keys = {key for found in read for key in found if key}
    noisy = {"epsilon": 8.0, "delta": 1e-6, "rng": 0}
    fits = [make() for make in FITS.values()]
    fits += [ols(**noisy), pi.Logit(LABELS, X, bounds=BOUNDS).fit(**noisy)]
    fits.append(pi.Poisson(COUNTS, X, bounds=BOUNDS, y_bounds=(0, 8)).fit(**noisy))
    for fit in fits:
        stored = set(fit._settings)
        assert stored <= GlmSettings.__annotations__.keys()
        assert stored <= keys
