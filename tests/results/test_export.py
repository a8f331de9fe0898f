"""Results for other programs: tidy rows, one row of the fit, and JSON, of strong and weak fits."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import privinf as pi
from privinf.errors import ArgumentError, WeakIdentificationWarning


def fitted(epsilon: float, scale: float = 1.0) -> pi.Results:
    rng = np.random.default_rng(0)
    X = scale * rng.uniform(-1, 1, (5000, 2))
    y = X @ [0.5, 0.0] + 0.3 * rng.standard_normal(5000)
    model = pi.MomentOLS(y, X, bounds=[(-1, 1)] * 2, y_bounds=(-2, 2))
    return model.fit(epsilon=epsilon, delta=1e-6, rng=0)


def test_tidy_and_glance_say_what_the_result_says():
    result = fitted(2.0)
    tidy, glance = result.tidy(0.1), result.glance().iloc[0]
    assert list(tidy.term) == list(result.names)
    for column, expected in {
        "estimate": result.params,
        "std_error": result.bse,
        "std_error_sampling": result.bse_sampling,
        "statistic": result.tvalues,
        "p_value": result.pvalues,
        "conf_low": result.conf_int(0.1)[0],
        "conf_high": result.conf_int(0.1)[1],
    }.items():
        np.testing.assert_array_equal(tidy[column], expected)
    assert not tidy.weak.any()
    assert (glance.model, glance.nobs, glance.trust) == ("MomentOLS", 5000, "central")
    assert glance.epsilon == result.privacy.epsilon(1e-6)
    assert glance.sigma == math.sqrt(result.scale)
    assert not glance.secure
    np.testing.assert_array_equal(result.tidy(method="score").conf_low, result.conf_int(method="score")[0])


def test_a_weak_fit_says_so_in_every_row():
    result = fitted(0.5, 0.2)
    assert result.identification.weak
    if result.estimate.cov is not None:
        with pytest.warns(WeakIdentificationWarning):
            tidy = result.tidy()
    else:
        tidy = result.tidy()
        assert tidy.std_error.isna().all()
    assert tidy.weak.all()
    assert bool(result.glance().weak.iloc[0])


@pytest.mark.parametrize(("epsilon", "scale"), [(2.0, 1.0), (0.05, 0.1)])
@pytest.mark.filterwarnings("ignore::privinf.errors.WeakIdentificationWarning")
def test_json_is_strict_and_complete(epsilon, scale, tmp_path):
    result, path = fitted(epsilon, scale), tmp_path / "r.json"
    text = result.to_json(path)
    assert path.read_text(encoding="utf-8") == text

    def refuse(word: str) -> None:
        raise AssertionError(word)

    content = json.loads(text, parse_constant=refuse)
    assert content == result.to_dict()
    assert [row["term"] for row in content["coefficients"]] == list(result.names)
    assert (content["covariance"] is None) == (result.estimate.cov is None)
    assert content["fit"]["weak"] == result.identification.weak
    assert "NOT PRIVATE" in content["privacy"]["stamp"]
    assert any("NOT PRIVATE" in note for note in content["notes"])
    assert len(content["privacy"]["releases"]) == len(result.privacy.entries)
    with pytest.raises(ArgumentError, match="already exists"):
        result.to_json(path)
    result.to_json(path, overwrite=True)
