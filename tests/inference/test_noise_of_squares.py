"""The residual variance and R-squared of equations of noisy rows, with their noise: calibrated, or hidden."""

import math

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.errors import NotAvailableError
from privinf.fitting.solve import fit_measures
from privinf.inference.corrected_features import CorrectedLeastSquares
from privinf.mixing.equation import MixedLeastSquares

BETA = np.array([1.0, 0.8, -0.5])
CONSTANT = np.array([1.0, 0.0, 0.0])
SD = 0.7


def people(seed, n=4000):
    g = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), g.uniform(-1.0, 1.0, (n, 2))])
    return X, X @ BETA + SD * g.normal(size=n)


def noisy_rows(seed, noise, weights=None):
    X, y = people(0)
    u = np.zeros_like(X)
    draw = np.random.default_rng(seed + 1)
    u[:, 1:] = noise * draw.normal(size=(len(X), 2))
    v = noise * draw.normal(size=len(X))
    cov = noise**2 * np.diag([0.0, 1.0, 1.0])
    return CorrectedLeastSquares(X + u, y + v, cov, y_noise_var=noise**2, weights=weights)


def mixed_rows(seed, noise, k=600):
    X, y = people(0)
    draw = np.random.default_rng(seed + 1)
    signs = draw.choice([-1.0, 1.0], (k, len(X))) / math.sqrt(k)
    rows = signs @ np.column_stack([X, y]) + noise * draw.normal(size=(k, 4))
    return MixedLeastSquares(rows[:, :3], rows[:, 3], [noise**2] * 3, y_noise=noise**2, n=len(X))


def measures(system):
    return fit_measures(system, np.linalg.solve(system.A, system.g), CONSTANT)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_noise_of_noisy_rows_is_calibrated(weighted):
    weights = np.random.default_rng(9).uniform(0.5, 1.5, 4000) if weighted else None
    clean = measures(noisy_rows(0, 0.0, weights))
    assert clean.noise == {"scale_noise": 0.0, "rsquared_noise": 0.0}
    draws = [measures(noisy_rows(seed, 0.5, weights)) for seed in range(60)]
    for name, exact in (("scale", clean.scale), ("rsquared", clean.rsquared)):
        z = [(getattr(m, name) - exact) / m.noise[f"{name}_noise"] for m in draws]
        assert abs(np.mean(z)) < 0.4
        assert 0.75 < np.std(z) < 1.3


def test_the_noise_of_mixed_rows_is_calibrated():
    draws = [measures(mixed_rows(seed, 1.0)) for seed in range(60)]
    z = [(m.scale - SD**2) / m.noise["scale_noise"] for m in draws]
    assert abs(np.mean(z)) < 0.5
    assert 0.7 < np.std(z) < 1.4


def test_columns_that_the_noise_hides_leave_no_residual_variance():
    systems = [noisy_rows(seed, 30.0) for seed in range(30)]
    hidden = [measures(system) for system in systems]
    assert sum(m.scale is None and m.rsquared is None for m in hidden) >= 29
    indefinite = [np.linalg.eigvalsh(system.A)[0] <= 0.0 for system in systems]
    assert any(indefinite)
    for m, flag in zip(hidden, indefinite, strict=True):
        assert math.isfinite(m.noise["scale_noise"])
        assert m.scale is None or not flag


ROWS = pd.DataFrame(people(3)[0][:, 1:], columns=["a", "b"]).assign(y=np.clip(people(3)[1], -4.0, 5.0))
SCHEMA = pi.Schema({"a": (-1, 1), "b": (-1, 1), "y": (-4, 5)})
PARTIES = {"parties": {"p": ["a", "b"], "q": ["y"]}}
MODELS = [
    (pi.ModulatedOLS, {}),
    (pi.DGMOLS, PARTIES),
    (pi.BGMOLS, PARTIES),
    (pi.RMGMOLS, PARTIES),
    (pi.IWPGLM, {"loss": "squared"}),
]


@pytest.mark.filterwarnings("ignore::privinf.errors.PrivinfWarning")
@pytest.mark.parametrize(("model", "options"), MODELS, ids=[m.__name__ for m, _ in MODELS])
def test_a_false_residual_variance_is_not_printed(model, options):
    """The variance of y is 0.8. The residual variance was 76 to 17,000 at epsilon 0.5, with nothing said."""
    r = model.from_formula("y ~ a + b", ROWS, schema=SCHEMA, **options).fit(epsilon=0.5, delta=1e-6, rng=1)
    assert r._context.variance_hidden
    with pytest.raises(NotAvailableError, match="hides the residual variance"):
        _ = r.scale
    with pytest.raises(NotAvailableError, match="hides the residual variance"):
        _ = r.rsquared
    text = " ".join(r.summary(notes="all").as_text().split())
    assert "Residual variance: not available" in text


@pytest.mark.filterwarnings("ignore::privinf.errors.PrivinfWarning")
@pytest.mark.parametrize("model", [pi.ModulatedOLS, pi.DGMOLS])
def test_a_residual_variance_of_noisy_rows_is_printed_with_its_noise(model, tmp_path):
    options = PARTIES if model is pi.DGMOLS else {}
    r = model.from_formula("y ~ a + b", ROWS, schema=SCHEMA, **options).fit(epsilon=200.0, delta=1e-6, rng=1)
    assert abs(r.scale - SD**2) < 4.0 * r.scale_noise < SD**2
    assert "Noise in variance:" in r.summary().as_text()
    r.save(tmp_path / "fit")
    assert pi.load_results(tmp_path / "fit").scale_noise == r.scale_noise
