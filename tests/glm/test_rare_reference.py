"""A rare reference level of a factor has a note, and the remedy that it names works."""

import numpy as np
import pandas as pd
import pytest

import privinf as pi

N = 12_000
SPENT = {"epsilon": 1.0, "delta": 1e-6, "rng": 1}


def rows(rare=40):
    rng = np.random.default_rng(4)
    group = np.where(np.arange(N) < rare, "a", rng.choice(["b", "c", "d"], N))
    x = rng.uniform(0.0, 1.0, N)
    y = np.clip(2.0 + x + 0.5 * (group == "c") + rng.normal(size=N), -3.0, 8.0)
    z = rng.random(N) < 1.0 / (1.0 + np.exp(0.5 - x - 0.5 * (group == "c")))
    return pd.DataFrame({"g": group, "x": x, "y": y, "z": z.astype(int)})


def fit(kind, formula, levels=("a", "b", "c", "d"), rare=40):
    schema = pi.Schema({"g": list(levels), "x": (0, 1), "y": (-3, 8), "z": [0, 1]})
    return kind.from_formula(formula, rows(rare), schema=schema).fit(**SPENT, intervals="optional")


@pytest.mark.filterwarnings("ignore::privinf.errors.PrivinfWarning")
@pytest.mark.parametrize(("kind", "response"), [(pi.OLS, "y"), (pi.Logit, "z")])
def test_a_rare_reference_level_is_named_with_a_remedy_that_works(kind, response):
    weak = fit(kind, f"{response} ~ x + C(g)")
    text = " ".join(str(weak.summary()).split())
    assert "The reference level 'a' of 'g' is rare" in text
    assert "has its rarer value" not in text
    assert "few records have" not in text
    remedy = text.split("as in C(g, Treatment('")[1][0]
    assert remedy in "bcd"
    renamed = fit(kind, f"{response} ~ x + C(g, Treatment('{remedy}'))")
    ordered = fit(kind, f"{response} ~ x + C(g)", levels=sorted("abcd", key=lambda level: level != remedy))
    for better in (renamed, ordered):
        assert "The reference level" not in str(better.summary(notes="all"))
        common = [name for name in better.names if name.startswith("C(") and "T.a" not in name]
        assert (better.bse[common] < 0.2 * weak.bse["C(g)[T.c]"]).all()


@pytest.mark.filterwarnings("ignore::privinf.errors.PrivinfWarning")
def test_a_common_reference_level_has_no_note():
    text = str(fit(pi.OLS, "y ~ x + C(g)", rare=3_000).summary(notes="all"))
    assert "The reference level" not in text
