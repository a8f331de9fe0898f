"""Every model has the same entry points and the same spending words; a word that means nothing raises."""

import contextlib
import inspect
import math
from dataclasses import fields

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.accounting import Ledger, PrivacyReport
from privinf.errors import AlignmentError, ArgumentError, NotAvailableError
from privinf.mechanisms.gaussian import WORDS
from privinf.typing import SpendingOptions

N = 400
SCHEMA = pi.Schema({"y": (-4.0, 6.0), "a": (-1.0, 1.0), "b": (-1.0, 3.0)})
FORMULA = "y ~ a + b"
BOUNDS = {"bounds": [(-1, 1), (-1, 3)], "y_bounds": (-4, 6)}
PARTIES = {"parties": {"one": ["a"], "two": ["b", "y"]}}
TRUSTS = {"central", "server", "secure-sum", "local"}


def rows(n=N):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.uniform(-1, 1, n), "b": rng.uniform(-1, 3, n)})
    y = (1.0 + 0.5 * X.a - 0.4 * X.b + rng.normal(0, 0.3, n)).clip(-4, 6)
    return y.rename("y"), X


# Of each model: what its constructor and its formula need beside the common words, and its fit.
MODELS = {
    pi.ModulatedOLS: ({}, {}),
    pi.MomentOLS: ({}, {}),
    pi.IWPGLM: ({"loss": "squared"}, {}),
    pi.FederatedGLM: ({"family": "gaussian"}, {}),
    pi.DebiasedLasso: ({}, {"sparsity": 1, "targets": ["a"]}),
    pi.RMGMOLS: (PARTIES, {}),
    pi.DGMOLS: (PARTIES, {}),
    pi.BGMOLS: (PARTIES, {}),
}
# Those that neither mix rows nor centre them by themselves.
SOLVED = [pi.ModulatedOLS, pi.MomentOLS, pi.IWPGLM, pi.FederatedGLM]
# Words that mean nothing for a model, and what the error says of it.
NOTHING = {
    (pi.IWPGLM, "mu"): "randomized response",
    (pi.IWPGLM, "rho"): "randomized response",
    (pi.FederatedGLM, "source"): "in a single release",
    (pi.DebiasedLasso, "mu"): "selection of columns",
    (pi.DebiasedLasso, "source"): "in a single release",
    (pi.DebiasedLasso, "calibration"): "exact",
}
UNTRUSTED = {
    (pi.MomentOLS, "server"): "needs rows at several sites",
    (pi.MomentOLS, "secure-sum"): "needs rows at several sites",
    (pi.FederatedGLM, "secure-sum"): "at least two sites",
    (pi.FederatedGLM, "local"): "needs sums over many records",
    (pi.DebiasedLasso, "secure-sum"): "at least two sites",
    (pi.DebiasedLasso, "local"): "needs sums over many records",
}
GIVEN = {
    "epsilon": {"epsilon": 4.0, "delta": 1e-5},
    "delta": {"epsilon": 4.0, "delta": 1e-5},
    "mu": {"mu": 1.5},
    "rho": {"rho": 1.0},
    "calibration": {"epsilon": 4.0, "delta": 1e-5, "calibration": "classic"},
    "rng": {"epsilon": 4.0, "delta": 1e-5, "rng": 0},
    "source": {"epsilon": 4.0, "delta": 1e-5, "source": "lattice"},
}
EVERY = pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
WORD = pytest.mark.parametrize("word", WORDS)


def of_arrays(model, **more):
    y, X = rows()
    return model(y, X, **BOUNDS, **MODELS[model][0], **more)


def of_formula(model, data=None, **more):
    y, X = rows()
    data = X.assign(y=y) if data is None else data
    return model.from_formula(FORMULA, data, schema=SCHEMA, **MODELS[model][0], **more)


def words_of(function):
    """Return all arguments of a function."""
    return set(inspect.signature(function).parameters)


@EVERY
def test_constructors_have_the_same_words(model):
    assert {"y", "X", "bounds", "y_bounds", "missing", "ledger"} <= words_of(model.__init__)
    assert {"formula", "data", "schema", "missing", "ledger"} <= words_of(model.from_formula)
    if hasattr(model, "from_release"):
        assert "ledger" in words_of(model.from_release)


@EVERY
def test_fit_and_release_have_the_same_words_and_say_what_they_are(model):
    assert set(WORDS) == {one.name for one in fields(SpendingOptions)}
    refused = set(vars(model.fit).get("refusals", ()))
    assert set(WORDS) - refused <= words_of(model.fit)
    assert all(word in model.fit.__doc__ for word in set(WORDS) - refused), "fit documents every word"
    if hasattr(model, "release"):
        assert set(WORDS) - refused | {"ledger"} <= words_of(model.release)


@pytest.mark.audit
@EVERY
@WORD
def test_each_word_is_taken_or_refused_with_the_reason(model, word):
    given = {"rng": 0, **GIVEN[word]} if word != "source" else GIVEN[word]
    ledger = Ledger()
    fit = of_formula(model, ledger=ledger).fit
    if (model, word) in NOTHING:
        with pytest.raises(ArgumentError, match=NOTHING[model, word]):
            fit(**given, **MODELS[model][1])
        assert not len(ledger)
        return
    with contextlib.suppress(NotAvailableError):  # so few rows: the noise hides what the lasso looks for
        fit(**given, **MODELS[model][1])
    assert len(ledger)


@EVERY
def test_columns_that_label_their_rows_differently_are_refused(model):
    """One has been sorted or filtered: by place, every row would get another's response."""
    y, X = rows()
    for other in (y.sort_values(), y.set_axis(range(1, N + 1))):
        with pytest.raises(AlignmentError, match="different pandas indexes"):
            model(other, X, **BOUNDS, **MODELS[model][0])
    model(y.sort_index().to_numpy(), X, **BOUNDS, **MODELS[model][0])
    if hasattr(model, "from_arrays"):
        words = {"bounds": BOUNDS["bounds"], "y_bounds": BOUNDS["y_bounds"], **MODELS[model][0]}
        with pytest.raises(AlignmentError, match="site 'one': the columns have different"):
            model.from_arrays({"one": (y.sort_values(), X), "two": (y, X)}, **words)


def test_columns_beside_pairs_are_refused_too():
    y, X = rows()
    site = pd.Series(np.arange(N) % 2).sort_values()
    with pytest.raises(AlignmentError, match="different pandas indexes"):
        pi.DebiasedLasso(y, X, **BOUNDS, sites=site)
    with pytest.raises(AlignmentError, match="different pandas indexes"):
        pi.Modulation(pi.Design.from_formula(FORMULA, SCHEMA)).release(
            (y.sort_values(), X), epsilon=4.0, delta=1e-5
        )
    with pytest.raises(AlignmentError, match="different pandas indexes"):
        pi.stats.pearsonr(y.sort_values(), X.a, bounds=((-4, 6), (-1, 1)), mu=0.5)


def test_old_names_of_arguments_are_refused_by_the_new_ones():
    y, X = rows()
    data = X.assign(y=y, where=np.arange(N) % 2)
    lasso = {"x_bound": 1.0, "y_bounds": BOUNDS["y_bounds"]}
    with pytest.raises(ArgumentError, match="machines= is now called sites="):
        pi.DebiasedLasso(y, X, **lasso, machines=data["where"])
    with pytest.raises(ArgumentError, match="machines= is now called sites="):
        pi.DebiasedLasso.from_formula(FORMULA, data, schema=SCHEMA, machines="where")
    for model in [model for model in MODELS if hasattr(model, "from_arrays")]:
        words = {**BOUNDS, **MODELS[model][0]} if model is not pi.DebiasedLasso else lasso
        with pytest.raises(ArgumentError, match="parties= is now called sites="):
            model.from_arrays(parties=[(y, X), (y, X)], **words)
    with pytest.raises(ArgumentError, match="rng= is not needed, because this method draws"):
        pi.OLS(y, X, **BOUNDS).without_intervals(mu=1.0, rng=0)


@EVERY
def test_a_misspelt_word_is_refused_and_nothing_is_spent(model):
    ledger = Ledger()
    built = of_formula(model, ledger=ledger)
    with pytest.raises(ArgumentError, match=r"'epsilom' is not an argument of .*: did you mean 'epsilon"):
        built.fit(epsilom=1.0, delta=1e-5, **MODELS[model][1])
    if hasattr(model, "release"):
        with pytest.raises(ArgumentError, match="'detla' is not an argument"):
            built.release(epsilon=1.0, detla=1e-5)
    assert not len(ledger)


@EVERY
def test_a_misspelt_option_of_a_constructor_is_refused(model):
    with pytest.raises((ArgumentError, TypeError), match="ledgr"):
        of_arrays(model, ledgr=None)
    with pytest.raises((ArgumentError, TypeError), match="ledgr"):
        of_formula(model, ledgr=None)


@pytest.mark.parametrize("model", SOLVED, ids=lambda model: model.__name__)
def test_the_array_door_and_the_formula_give_one_fit(model):
    """Without noise: the constant is declared in one, and a term of the other."""
    y, X = rows()
    fit = model(y, pi.add_constant(X), **BOUNDS, **MODELS[model][0]).fit(epsilon=math.inf)
    other = of_formula(model).fit(epsilon=math.inf)
    np.testing.assert_allclose(fit.params.to_numpy(), other.params.to_numpy(), rtol=1e-7)


@pytest.mark.parametrize("model", [pi.MomentOLS, pi.FederatedGLM, pi.DebiasedLasso], ids=lambda m: m.__name__)
@pytest.mark.parametrize("trust", sorted(TRUSTS))
def test_trust_is_one_vocabulary(model, trust):
    """Each word is taken, or refused with the reason; another word is refused by the list."""
    if (model, trust) in UNTRUSTED:
        with pytest.raises(ArgumentError, match=UNTRUSTED[model, trust]):
            of_arrays(model, trust=trust)
    else:
        of_arrays(model, trust=trust)
    with pytest.raises(ArgumentError, match="'central', 'server', 'secure-sum', 'local'"):
        of_arrays(model, trust="nobody")


@EVERY
def test_missing_is_offered_where_rows_are_and_is_the_sites_elsewhere(model):
    y, X = rows()
    data = X.assign(y=y)
    data.loc[3, "a"] = np.nan
    given = {"epsilon": 4.0, "delta": 1e-5, "rng": 0, **MODELS[model][1]}
    if model is not pi.DebiasedLasso:
        assert np.isfinite(of_formula(model, data, missing="impute-public").fit(**given).params).all()
    with pytest.raises(pi.errors.PrivinfError):
        of_formula(model, data).fit(**given)
    if model in (pi.MomentOLS, pi.FederatedGLM, pi.DebiasedLasso):
        site = pi.federation.Site(X.assign(y=y), SCHEMA)
        federation = pi.federation.InProcessFederation({"one": site})
        with pytest.raises(ArgumentError, match="each site declares it"):
            of_formula(model, federation, missing="impute-public")
    elif model in (pi.ModulatedOLS, pi.IWPGLM):
        site = pi.federation.Site(X.assign(y=y), SCHEMA)
        with pytest.raises(NotAvailableError, match="needs a table"):
            of_formula(model, pi.federation.InProcessFederation({"one": site}))


@EVERY
def test_tables_of_polars_are_read_as_those_of_pandas(model):
    """By arrays and by formula, responses and new rows: the same numbers."""
    pl = pytest.importorskip("polars")
    y, X = rows()
    other = pl.DataFrame(X.to_dict("list"))
    given = {"rng": 0, **GIVEN["epsilon"], **MODELS[model][1]}
    entry_points = (
        lambda: (
            model(pl.Series("y", y), other, **BOUNDS, **MODELS[model][0]),
            model(pd.Series(y, name="y"), X, **BOUNDS, **MODELS[model][0]),
        ),
        lambda: (of_formula(model, other.with_columns(pl.Series("y", y))), of_formula(model)),
    )
    for entry_point in entry_points:
        theirs, ours = (one.fit(**given) for one in entry_point())
        assert theirs.names == ours.names
        np.testing.assert_array_equal(theirs.params, ours.params)
        with contextlib.suppress(NotAvailableError):  # targets alone predict nothing
            np.testing.assert_array_equal(theirs.predict(other[:5]), ours.predict(X[:5]))


@EVERY
def test_a_fit_beyond_the_limit_is_refused_before_its_first_message(model):
    """A limit that the last of a fit's messages would pass is met by the first: nothing more is charged."""
    given = {"rng": 0, **GIVEN["epsilon"], **MODELS[model][1]}
    free = Ledger()
    with contextlib.suppress(NotAvailableError):
        of_formula(model, ledger=free).fit(**given)
    ledger = Ledger(pi.Budget(rho=1.97 * free.total().rho))
    fit = of_formula(model, ledger=ledger).fit
    with contextlib.suppress(NotAvailableError):
        fit(**given)
    charged = len(ledger)
    assert charged == len(free)
    with pytest.raises(pi.errors.BudgetExceededError, match="nothing was recorded"):
        fit(**given)
    assert len(ledger) == charged


@EVERY
def test_the_second_fit_of_a_ledger_says_so_and_what_both_cost(model):
    ledger, options = Ledger(), MODELS[model][1]
    fit = of_formula(model, ledger=ledger).fit
    given = {"rng": 0, **GIVEN["epsilon"], **options}
    try:
        first, second = fit(**given), fit(**given)
    except NotAvailableError:
        pytest.skip("so few rows: the noise hides what the lasso looks for")
    assert (first.privacy.fit, second.privacy.fit) == (1, 2)
    assert not first.privacy.place
    total = second.privacy.cumulative.epsilon()
    assert total > second.privacy.epsilon()
    assert f"fit 2: epsilon {total:.4g} in total" in str(second.privacy)
    assert "(fit 2)" in str(second.summary())
    assert PrivacyReport.from_dict(second.privacy.to_dict()) == second.privacy
