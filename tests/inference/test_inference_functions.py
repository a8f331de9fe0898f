import numpy as np
import pytest
from scipy.stats import norm

from privinf.errors import ArgumentError
from privinf.inference.delta_method import delta_method, jacobian, predict_mean

COV = np.array([[0.04, 0.01, 0.0], [0.01, 0.09, -0.02], [0.0, -0.02, 0.25]])
PARAMS = np.array([0.5, -2.0, 1e-3])


def test_jacobian_of_smooth_functions():
    def function(b):
        return np.array([np.exp(b[0]) * b[1], b[1] / b[0], np.log1p(b[2] ** 2), b.sum()])

    a, b, c = PARAMS
    exact = np.array(
        [
            [np.exp(a) * b, np.exp(a), 0],
            [-b / a**2, 1 / a, 0],
            [0, 0, 2 * c / (1 + c**2)],
            [1, 1, 1],
        ]
    )
    scale = np.maximum(np.abs(PARAMS), np.sqrt(np.diag(COV)))
    np.testing.assert_allclose(jacobian(function, PARAMS, scale=scale), exact, rtol=1e-10, atol=1e-11)


def test_delta_method_is_exact_for_linear_functions_and_first_order_for_ratios():
    R = np.array([[1.0, 1.0, 0.0], [0.0, 2.0, -1.0]])
    found = delta_method(lambda b: R @ b, PARAMS, COV)
    np.testing.assert_allclose(found.cov, R @ COV @ R.T, rtol=1e-10)
    np.testing.assert_allclose(found.value, R @ PARAMS)
    ratio = delta_method(lambda b: b[1] / b[0], PARAMS, COV)
    gradient = np.array([-PARAMS[1] / PARAMS[0] ** 2, 1 / PARAMS[0], 0])
    assert ratio.bse[0] == pytest.approx(np.sqrt(gradient @ COV @ gradient), rel=1e-9)


def test_delta_method_refuses_what_is_not_smooth():
    with pytest.raises(ArgumentError, match="must be finite"):
        delta_method(lambda b: np.log(b[1]), PARAMS, COV)
    with pytest.raises(ArgumentError, match="number or a vector"):
        delta_method(lambda b: np.ones((2, 2)), PARAMS, COV)


def test_prediction_of_the_mean():
    exog = np.array([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])
    found = predict_mean(exog, PARAMS, COV)
    np.testing.assert_allclose(found.mean, exog @ PARAMS)
    np.testing.assert_allclose(found.se, np.sqrt(np.diag(exog @ COV @ exog.T)))
    half = norm.isf(0.05) * found.se
    np.testing.assert_allclose(found.conf_int(0.1), np.column_stack([found.mean - half, found.mean + half]))
    with pytest.raises(ArgumentError, match="do not match"):
        predict_mean(exog[:, :2], PARAMS, COV)
