"""A default fit that can have no intervals is refused before its charge, unless its caller accepts that."""

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.errors import ArgumentError, NotAvailableError
from privinf.federation import InProcessFederation, Site, SitePolicy
from privinf.mechanisms.rows import Rows

SCHEMA = pi.Schema({"age": (18, 90), "income": (0, 100), "smoker": (0, 1), "counts": (0, 20)})
SMALL = {"epsilon": 0.05, "delta": 1e-6, "rng": 0}


def people(n=300):
    rng = np.random.default_rng(3)
    age = rng.uniform(18, 90, n)
    income = np.clip(10 + 0.52 * age + rng.normal(0, 8, n), 0, 100)
    return pd.DataFrame(
        {"age": age, "income": income, "smoker": 1.0 * (age > 50), "counts": np.round(age / 10)}
    )


def federation():
    table = people()
    halves = {"one": table[:150], "two": table[150:]}
    policy = SitePolicy(trusted_server=True)
    return InProcessFederation(
        {name: Site(Rows(part), SCHEMA, policy=policy) for name, part in halves.items()}
    )


MODELS = {
    "OLS": lambda data, ledger: pi.OLS.from_formula("income ~ age", data, schema=SCHEMA, ledger=ledger),
    "Logit": lambda data, ledger: pi.Logit.from_formula("smoker ~ age", data, schema=SCHEMA, ledger=ledger),
    "Poisson": lambda data, ledger: pi.Poisson.from_formula(
        "counts ~ age", data, schema=SCHEMA, ledger=ledger
    ),
    "GLM": lambda data, ledger: pi.GLM.from_formula(
        "income ~ age", data, schema=SCHEMA, family="gaussian", ledger=ledger
    ),
    "FederatedGLM": lambda data, ledger: pi.FederatedGLM.from_formula(
        "smoker ~ age", data, schema=SCHEMA, family="binomial", ledger=ledger
    ),
}


@pytest.mark.audit
@pytest.mark.parametrize("name", MODELS)
def test_a_fit_that_can_have_no_intervals_is_refused_before_the_charge(name):
    ledger = pi.Ledger()
    model = MODELS[name](people(), ledger)
    with pytest.raises(
        NotAvailableError, match=r"No intervals: the noise would hide.*Nothing was charged"
    ) as refused:
        model.fit(**SMALL)
    assert not ledger.entries
    assert ("MomentOLS" in str(refused.value)) == (name in ("OLS", "GLM"))
    if hasattr(model, "without_intervals"):
        reason = model.without_intervals(epsilon=0.05, delta=1e-6)
        assert reason[1:] in str(refused.value)
    fit = model.fit(**SMALL, intervals="optional")
    assert fit.estimate.cov is None
    assert fit.method.startswith("DPSGD")
    assert ledger.entries


def test_sites_are_not_charged_for_a_refused_fit():
    sites = federation()
    with pytest.raises(NotAvailableError, match="Nothing was charged"):
        MODELS["FederatedGLM"](sites, pi.Ledger()).fit(**SMALL)
    assert not any(site.ledger.entries for site in sites._sites.values())


def test_a_named_optimizer_is_not_asked_for_intervals():
    fit = MODELS["GLM"](people(), pi.Ledger()).fit(**SMALL, optimizer=pi.DPSGD(epochs=1, batches=2))
    assert fit.estimate.cov is None


def test_a_fit_with_enough_rows_needs_no_word():
    for intervals in ("required", "optional"):
        fit = MODELS["OLS"](people(5000), pi.Ledger()).fit(
            epsilon=4.0, delta=1e-6, intervals=intervals, rng=0
        )
        assert fit.method == "least squares by a one-step estimator"


def test_another_word_is_refused_before_the_charge():
    ledger = pi.Ledger()
    with pytest.raises(ArgumentError, match="intervals"):
        MODELS["OLS"](people(), ledger).fit(**SMALL, intervals="no")
    assert not ledger.entries


def test_estimators_of_sklearn_hand_the_word_on():
    sklearn = pytest.importorskip("privinf.sklearn")
    pytest.importorskip("sklearn")
    table, ledger = people(), pi.Ledger()
    given = {"bounds": [(18, 90)], "ledger": ledger, **SMALL}
    for model in ("ols", "poisson"):
        words = {"y_bounds": (0, 100), "model": model}
        with pytest.raises(NotAvailableError, match="Nothing was charged"):
            sklearn.PrivateRegressor(**given, **words).fit(table[["age"]], table.income)
    with pytest.raises(NotAvailableError, match="Nothing was charged"):
        sklearn.PrivateClassifier(**given).fit(table[["age"]], table.smoker)
    with pytest.raises(ArgumentError, match="always has intervals"):
        sklearn.PrivateRegressor(**given, y_bounds=(0, 100), model="moments", intervals="optional").fit(
            table[["age"]], table.income
        )
    assert not ledger.entries
    taken = sklearn.PrivateClassifier(**given, intervals="optional").fit(table[["age"]], table.smoker)
    assert taken.coef_.shape == (1,)
