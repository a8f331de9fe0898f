"""Whatever bounds a schema declares, no pair of records moves a release by more than its line says.

A search: bounds of any size, far from zero, touching it, narrow to the last bit; public columns and weights
of any size; records at bounds, between, beside and far beyond them; by the instrument of `record_replay`,
which measures what every release of a fit costs on the pair and compares all else that is told.
"""

import sys
from functools import partial

import numpy as np
import pandas as pd
import pytest
from mutation import Mutant
from record_replay import audit
from replay_fits import federation

import privinf as pi
from privinf import stats
from privinf.errors import PrivinfError

ROWS, PRIVATE = 60, "yabc"
TERMS = ("a", "b", "c", "a:b", "I(a**2)", "C(g)", "C(g):a", "q")
FITS = (
    "moments",
    "HC0",
    "cluster",
    "columns",
    "local",
    "modulated",
    "sites",
    "OLS",
    "Poisson",
    "NegativeBinomial",
    "GLM",
    "examples",
    "mean",
    "ttest",
    "pearsonr",
    "mannwhitneyu",
    "quantile",
)


def _bounds(rng):
    """Return public bounds."""
    size, far = 10.0 ** rng.uniform(-9, 9), 10.0 ** rng.uniform(-3, 9) * rng.choice([-1, 1])
    kinds = [
        (-size, size),
        (0.0, size),
        (-size, 0.0),
        (far, far + abs(far) * 10.0 ** rng.uniform(-9, 1)),
        (-size * 10.0 ** -rng.uniform(0, 6), size),
        (1.0 - 2.0**-52, 1.0),
        (-1.0, 1.0),
        (0.0, 1.0),
    ]
    return tuple(map(float, kinds[rng.integers(len(kinds))]))


def _entry(bounds, rng):
    """Return a number of a record."""
    low, high = bounds
    kinds = [low, high, 0.5 * low + 0.5 * high, low + 1e-9 * (high - low), 1e308, -1e308, 5e-324]
    return float(rng.choice([*kinds, rng.uniform(low, high), np.nextafter(high, low)]))


def _case(rng):
    """Return the name of a fit, and the fit of two tables that differ in one record, or in one person's."""
    bounds = {name: _bounds(rng) for name in PRIVATE}
    q, w = 10.0 ** rng.uniform(-3, 12), 10.0 ** rng.uniform(-0.5, 4)
    public = {"q": pi.Numeric(-q, q, public=True), "w": pi.Numeric(0.1, w, public=True)}
    person = {"unit": "p", "max_rows": 3} if rng.uniform() < 0.2 else {}
    schema = pi.Schema({**bounds, **public, "g": ["u", "v", "w"], "h": ["s", "t"]}, **person)
    rows = pd.DataFrame({name: rng.uniform(*bounds[name], ROWS) for name in PRIVATE})
    rows["g"], rows["h"] = rng.choice(["u", "v", "w"], ROWS), rng.choice(["s", "t"], ROWS)
    rows["q"], rows["w"], rows["p"] = (
        rng.uniform(-q, q, ROWS),
        rng.uniform(0.1, w, ROWS),
        np.arange(ROWS) // 2,
    )
    tables = [rows.copy(), rows.copy()]
    for table in tables:
        record = {name: _entry(bounds[name], rng) for name in PRIVATE} | {"g": str(rng.choice(["u", "w"]))}
        for name, value in record.items():
            table.loc[[0, 1] if person else [0], name] = value
    formula = f"y ~ {rng.choice(['', '0 + '])}{' + '.join(dict.fromkeys(rng.choice(TERMS, 3)))}"
    how = {"radius": float(10.0 ** rng.uniform(-2, 1))} if rng.uniform() < 0.3 else {}
    how |= {"weights": "w"} if rng.uniform() < 0.3 else {}
    name, mu = str(rng.choice(FITS)), float(10.0 ** rng.uniform(-2, 1.5))
    return name, partial(_fit, name, schema, formula, tables, mu, how)


def _fit(name, schema, formula, tables, mu, how, world, ledger):
    """Return a release or a result."""
    rows, spend = tables[world], {"mu": mu, "ledger": ledger}
    alone = {key: value for key, value in how.items() if key == "radius"}
    if name in ("moments", "HC0", "cluster", "local"):
        options = {} if name in ("moments", "local") else {"cov_type": name}
        trust = "local" if name == "local" else "central"
        return pi.Moments(schema, formula, trust=trust, **how).release(rows, **spend, **options)
    if name == "columns":
        return pi.Moments(schema, columns=["y", "a", "q"], **alone).release(rows, **spend)
    if name == "modulated":
        return pi.Modulation(schema, formula, directions=1, **how).release(rows, **spend)
    if name == "examples":
        both = {"epsilon_x": mu, "epsilon_y": mu, "delta": 1e-3, "ledger": ledger}
        return pi.LocalExamples(schema, formula, **alone).release(rows, **both)
    if name in ("OLS", "Poisson", "NegativeBinomial"):
        return getattr(pi, name).from_formula(formula, rows, schema=schema, ledger=ledger).fit(mu=mu)
    if name in ("sites", "GLM"):
        model, family = (pi.MomentOLS, {}) if name == "sites" else (pi.FederatedGLM, {"family": "gaussian"})
        entry_point = {"schema": schema, "trust": "secure-sum", "ledger": ledger} | family
        made = model.from_formula(formula, federation(rows, schema), **entry_point)
        return made.fit(mu=mu) if name == "sites" else made.fit(epsilon=10.0 * mu, delta=1e-3)
    asked = {"data": rows, "schema": schema, **spend}
    calls = {
        "mean": partial(stats.mean, "y"),
        "ttest": partial(stats.ttest_1samp, "y", 0.0),
        "pearsonr": partial(stats.pearsonr, "y", "a"),
        "mannwhitneyu": partial(stats.mannwhitneyu, "a ~ h"),
        "quantile": partial(stats.quantile, "a", [0.1, 0.5]),
    }
    return calls[name](**asked)


def search(count, seed):
    """Try so many fits; return how many were made, and what is wrong."""
    rng, made, wrong = np.random.default_rng(seed), 0, []
    while count > 0:
        try:
            name, run = _case(rng)
        except PrivinfError:  # no bounds
            continue
        count -= 1
        found = audit(run)
        made += not found.refused
        wrong += [f"{name}: {text}" for text in found.complaints]
    return made, wrong


@pytest.mark.audit
@pytest.mark.filterwarnings("ignore")
def test_no_pair_of_records_costs_more_than_is_charged():
    made, wrong = search(80, 0)
    assert wrong == []
    assert made > 40


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_no_pair_of_many_does():
    made, wrong = search(8_000, 1)
    assert wrong == []
    assert made > 4_000


@pytest.mark.audit
@pytest.mark.filterwarnings("ignore")
def test_a_sensitivity_that_forgets_public_columns_is_found(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "FITS", ("columns",))
    norm = "math.sqrt(8.0 * public_norm2 * rho2)"
    with Mutant("mechanisms.statistics.moments", "second_moment_sensitivity", norm, "2.0 * rho2").applied():
        assert any("of what it states" in text for text in search(40, 0)[1])
