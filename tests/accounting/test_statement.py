"""The privacy statement for a paper."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.errors import NotAvailableError

SCHEMA = pi.Schema({"y": (0, 10), "x": (0, 1), "t": (0.5, 3)})
ROWS = pd.DataFrame({"y": np.arange(4000) % 10, "x": np.linspace(0, 1, 4000), "t": np.linspace(0.5, 3, 4000)})


def test_the_statement_has_the_total_of_the_ledger():
    ledger = pi.Ledger(pi.Budget(epsilon=3.0, delta=1e-6))
    model = pi.OLS.from_formula("y ~ x", ROWS, schema=SCHEMA, ledger=ledger)
    first, second = model.fit(mu=0.2), model.fit(mu=0.3)
    text = second.privacy.statement()
    total = second.privacy.cumulative
    assert f"({total.epsilon():.4g}, 1e-06)-differential privacy for replacing one record" in text
    assert f"composed over all {len(total.entries)} releases that the ledger had when this fit" in text
    assert "a curator was trusted" in text
    assert text.count("number of records is public") == 1
    assert f"{total.epsilon():.4g}" in second.to_latex()
    assert "releases in the ledger together" not in first.to_latex()
    assert "releases in the ledger together" in second.to_latex()


def test_the_statement_of_one_fit_says_that_it_covers_this_fit_alone():
    result = pi.OLS.from_formula("y ~ x", ROWS, schema=SCHEMA).fit(epsilon=1.0, delta=1e-6)
    assert "other releases about the same data add to it" in result.privacy.statement()
    seeded = pi.OLS.from_formula("y ~ x", ROWS, schema=SCHEMA).fit(epsilon=1.0, delta=1e-6, rng=1)
    with pytest.raises(NotAvailableError, match="not all private"):
        seeded.privacy.statement()


def test_a_ledger_names_an_exposure_apart():
    ledger = pi.Ledger(pi.Budget(epsilon=3.0, delta=1e-6))
    options = {"schema": SCHEMA, "exposure": "t", "ledger": ledger}
    pi.Poisson.from_formula("y ~ x", ROWS, **options).fit(epsilon=1.0, delta=1e-6)
    assert [fit.subject for fit in ledger.fits] == ["Poisson: y ~ x, exposure=t"]


def test_a_pickle_of_a_table_keeps_privacy_and_warnings():
    with pytest.warns(pi.errors.LargeDeltaWarning):
        result = pi.stats.mean("x", data=ROWS, schema=SCHEMA, epsilon=1.0, delta=1e-3)
    copy = pickle.loads(pickle.dumps(result))
    assert str(copy) == str(result)
    assert copy.privacy == result.privacy
    assert copy.cautions == result.cautions
    assert "delta" in str(copy)
