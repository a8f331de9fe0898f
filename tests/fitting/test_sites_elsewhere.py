"""Models of sums over sites have no sites=, and name where rows at sites go."""

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.errors import ArgumentError

ROWS = pd.DataFrame({"y": np.arange(30) % 2, "x": np.linspace(0, 1, 30), "h": list("abc") * 10})
SCHEMA = pi.Schema({"y": (0, 1), "x": (0, 1), "h": ["a", "b", "c"]})


@pytest.mark.parametrize("model", [pi.OLS, pi.Logit, pi.Poisson, pi.NegativeBinomial, pi.MomentOLS, pi.GLM])
def test_sites_are_refused_with_the_remedy(model):
    with pytest.raises(ArgumentError, match=r"from_arrays\(sites\).*InProcessFederation"):
        model.from_formula("y ~ x", ROWS, schema=SCHEMA, sites="h")
    with pytest.raises(ArgumentError, match=r"from_arrays\(sites\)"):
        model(ROWS.y, ROWS[["x"]], bounds=[(0, 1)], sites=ROWS.h)
    family = {"family": "gaussian"} if model is pi.GLM else {}
    tables = {name: rows for name, rows in ROWS.groupby("h")}
    for several in (tables, list(tables.values())):
        with pytest.raises(ArgumentError, match=r"not several tables.*InProcessFederation"):
            model.from_formula("y ~ x", several, schema=SCHEMA, **family)
