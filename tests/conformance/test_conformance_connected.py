"""Other libraries take every model's results, or are told why not; no table or plot loses a mark."""

import re
import warnings
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from members import KINDS_OF_FIT, fits_of
from statsmodels.iolib.summary2 import summary_col
from support.tree import ROOT

import privinf as pi
from privinf.errors import NotAvailableError, PrivinfWarning
from privinf.marginaleffects import model_of
from privinf.sklearn import PrivateClassifier, PrivateRegressor

pytestmark = [
    pytest.mark.filterwarnings("ignore::privinf.errors.PrivinfWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
EVERY = pytest.mark.parametrize("name", KINDS_OF_FIT)
LEVELS = ["u", "v", "w"]


def rows(n=12, seed=5):
    rng = np.random.default_rng(seed)
    known = {"a": rng.uniform(-1, 1, n), "b": rng.uniform(-1, 3, n), "c": rng.uniform(0, 2, n)}
    return pd.DataFrame(known | {"g": np.resize(LEVELS, n), "q": 0.1, "w": 1.0, "s": 0.0})


def singles(name):
    found = [getattr(result, "results", result) for result in fits_of(name)[0]]
    return [one for part in found for one in (part.values() if hasattr(part, "values") else [part])]


def plain(n=80):
    data = rows(n).assign(y=lambda d: 1.0 + d.a - d.b)
    return smf.ols("y ~ a + b", data.assign(y=data.y + np.random.default_rng(0).normal(size=n))).fit()


def warned(ask):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        ask()
    return {one.category for one in told if issubclass(one.category, PrivinfWarning)}


# ---- marginaleffects


@EVERY
def test_marginaleffects_predicts_as_the_result_does_or_is_told_why_not(name):
    me = pytest.importorskip("marginaleffects", reason="the extra privinf[marginaleffects] is not installed")
    for result in singles(name):
        design = result._context.design
        if result.estimate.cov is None or design is None or design.schema is None:
            with pytest.raises(NotAvailableError, match=r"(\w+\W+){8}"):
                model_of(result, rows())
            continue
        model = model_of(result, rows())
        found, own = me.predictions(model), result.get_prediction(rows()).summary_frame()
        np.testing.assert_allclose(found["estimate"], own["mean"], rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(found["std_error"], own["mean_se"], rtol=1e-3)
        assert np.isfinite(me.avg_slopes(model)["std_error"].to_numpy()).all()
        assert warned(result.conf_int) <= warned(lambda model=result: model_of(model, rows()))


@pytest.mark.parametrize(
    ("model", "formula", "theirs"),
    [
        (pi.OLS, "y ~ a * g", smf.ols),
        (pi.Logit, "b ~ a * g", smf.logit),
        (pi.Poisson, "k ~ a + g", smf.poisson),
    ],
)
def test_without_noise_marginaleffects_says_what_it_says_of_statsmodels(model, formula, theirs):
    me = pytest.importorskip("marginaleffects", reason="the extra privinf[marginaleffects] is not installed")
    rng, n = np.random.default_rng(1), 1500
    data = rows(n).assign(y=lambda d: (d.a + rng.normal(0, 0.3, n)).clip(-4, 4))
    data = data.assign(
        b=(rng.uniform(size=n) < 0.5 + 0.3 * data.a).astype(float), k=rng.poisson(np.exp(data.a))
    )
    schema = pi.Schema({"y": (-4, 4), "b": (0, 1), "k": (0, 40), "a": (-1, 1), "g": LEVELS})
    ours = model_of(
        model.from_formula(formula, data, schema=schema).fit(epsilon=np.inf, cov_type="HC0"), data
    )
    quiet = {} if model is pi.OLS else {"disp": 0}
    other = theirs(formula, data.assign(g=data.g.astype("category"))).fit(cov_type="HC0", **quiet)
    for ask in (me.avg_slopes, me.avg_comparisons, me.avg_predictions):
        mine, known = ask(ours), ask(other)
        np.testing.assert_allclose(mine["estimate"], known["estimate"], rtol=1e-5)
        np.testing.assert_allclose(mine["std_error"], known["std_error"], rtol=1e-3)
    with pytest.raises(NotAvailableError, match="chosen when fitting"):
        me.avg_slopes(ours, vcov="HC3")


def test_a_bias_that_marginaleffects_leaves_out_is_warned_of():
    pytest.importorskip("marginaleffects", reason="the extra privinf[marginaleffects] is not installed")
    (result,) = fits_of("Poisson central")[0]
    assert (result.estimate.bias / result.estimate.bse).max() > 0.25
    with pytest.warns(pi.errors.HeavyTailWarning, match="ignore a possible bias"):
        model_of(result, rows())


def test_what_is_no_result_and_what_lacks_columns_is_refused():
    (result,) = fits_of("OLS central")[0]
    with pytest.raises(pi.errors.ArgumentError, match="result of a fit"):
        model_of(3, rows())
    with pytest.raises(pi.errors.SchemaError, match="lack"):
        model_of(result, rows().drop(columns="a"))


# ---- tables


@pytest.mark.audit
@EVERY
def test_the_hook_of_maketables_tells_coefficients_cost_and_cautions(name):
    for result in singles(name):
        entry, glance = result.to_maketables(), result.glance().iloc[0]
        table = entry.__maketables_coef_table__
        assert list(table.columns) == ["b", "se", "t", "p", "ci95l", "ci95u"]
        by_scores = result._inference.single is not None
        np.testing.assert_array_equal(table["se"], np.nan if by_scores else result.tidy().std_error)
        told = {key: entry.__maketables_stat__(key) for key in entry.__maketables_default_stat_keys__}
        assert (told["N"], told["epsilon"]) == (result.nobs, glance.epsilon)
        assert (told["se_type"] == f"{result.cov_type}, with privacy noise") is not by_scores
        assert told.get("cautions", "") == glance.cautions
        assert entry.__maketables_stat__("nothing") is None


@EVERY
def test_maketables_and_great_tables_make_tables(name):
    maketables = pytest.importorskip("maketables", reason="the extra privinf[tables] is not installed")
    great = pytest.importorskip("great_tables", reason="the extra privinf[tables] is not installed")
    results = singles(name)
    table = maketables.ETable([*(result.to_maketables() for result in results), plain()])
    text = table.make(type="gt").as_raw_html()
    for result in results:
        assert f"{result.nobs}" in text
        if result._inference.single is None:
            assert f"{result.cov_type}, with privacy noise" in text
        for kind, _ in result.cautions:
            assert kind in text
        shown = great.GT(result.tidy()).as_raw_html()
        assert "std_error" in shown
    assert f"{results[0].params.iloc[0]:.3f}".lstrip("-") in text


@pytest.mark.audit
@EVERY
def test_summary_col_takes_every_result_alone_and_beside_statsmodels(name):
    results = singles(name)
    for chosen in (results[:1], [results[0], plain()], [plain(), *results]):
        able = [one for one in chosen if hasattr(one, "bse")]
        if not able:
            assert results[0].estimate.cov is None
            with pytest.raises(NotAvailableError, match=r"(\w+\W+){5}"):
                results[0].bse
            continue
        text = str(summary_col(able, stars=True))
        for one in able:
            assert all(name.split()[0] in text for name in map(str, one.params.index))
            for kind, _ in getattr(one, "cautions", ()):
                assert kind[:12] in text
            if hasattr(one, "privacy"):
                assert f"{one.privacy.epsilon():.4g}" in text


@pytest.mark.audit
@EVERY
def test_compare_says_what_a_fit_is_warned_of(name):
    results = {str(place): one for place, one in enumerate([plain(), *singles(name)])}
    text = str(pi.compare(results).summary())
    for one in results.values():
        assert all(kind in text for kind, _ in getattr(one, "cautions", ()))


# ---- plots


@pytest.mark.audit
@pytest.mark.parametrize("name", KINDS_OF_FIT[::4])
def test_fits_are_plotted_side_by_side(name):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    results = {str(place): one for place, one in enumerate([plain(), *singles(name)])}
    ax = pi.plotting.several(results)
    legend = " ".join(text.get_text() for text in ax.figure.legends[0].get_texts())
    assert "not private" in legend
    for one in singles(name):
        assert f"epsilon {one.privacy.epsilon():.3g}" in legend
        assert all(kind in legend for kind, _ in one.cautions)
    ax.figure.canvas.draw()
    pyplot.close("all")


def test_intervals_in_a_plot_of_several_fits_are_the_fits_own():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    (strong,), other = fits_of("OLS central")[0], plain()
    ax = pi.plotting.several({"one": strong, "two": other}, which=["a", "b"], alpha=0.2)
    bars = [np.array(bar.get_segments())[:, :, 0] for bar in ax.collections]
    np.testing.assert_allclose(bars[0], strong.conf_int(0.2).loc[["a", "b"]])
    np.testing.assert_allclose(bars[1], other.conf_int(0.2).loc[["a", "b"]])
    with pytest.raises(pi.errors.ArgumentError, match="no coefficients"):
        pi.plotting.several({})
    pyplot.close("all")


@pytest.mark.audit
@pytest.mark.parametrize(
    "name",
    [
        "MomentOLS central, radius",
        "ModulatedOLS radius and public columns",
        "IWPGLM quadratic",
        "OLS central",
        "Logit central",
        "Poisson central",
        "FederatedGLM gaussian, server",
        "DebiasedLasso of named targets",
    ],
)
def test_arviz_draws_forests_and_posteriors_of_every_model(name):
    az = pytest.importorskip("arviz")
    pyplot = pytest.importorskip("matplotlib.pyplot")
    result = singles(name)[0]
    container = result.to_arviz(400, rng=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the plots' own libraries
        panels = az.plot_posterior(container, hdi_prob=0.9)
        (forest,) = az.plot_forest([container, container], model_names=["one", "two"], hdi_prob=0.9)
    titles = [panel.get_title().split("\n")[-1] for panel in np.ravel(panels) if panel.get_title()]
    assert titles == list(result.names)
    told = " ".join(label.get_text() for label in forest.get_yticklabels())
    assert all(one in told for one in result.names)
    np.testing.assert_allclose(
        result.draws(4000, rng=1).params.mean(("chain", "draw")),
        result.params,
        atol=0.2 * float(result.bse.max()),
    )
    pyplot.close("all")


@pytest.mark.audit
def test_fits_without_a_covariance_say_why_there_are_no_draws():
    pytest.importorskip("xarray")
    for name in ("OLS central, too little to spend", "BGMOLS", "RMGMOLS shrunk"):
        with pytest.raises(NotAvailableError, match=r"(\w+\W+){8}"):
            fits_of(name)[0][0].draws(10)


def test_statsmodels_constant_is_not_plotted():
    data = rows(60)
    other = sm.OLS(data.a + data.b, sm.add_constant(data[["a", "b"]])).fit()
    ax = pi.plotting.several({"one": other})
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]


def test_without_sklearn_an_estimator_says_what_to_install():
    if find_spec("sklearn") is not None:
        pytest.skip("scikit-learn is installed")
    for estimator in (PrivateRegressor, PrivateClassifier):
        with pytest.raises(NotAvailableError, match=r"privinf\[sklearn\]"):
            estimator(bounds=[(0, 1)], ledger=pi.Ledger(), mu=1.0)


@pytest.mark.parametrize("library", ["marginaleffects", "sklearn"])
def test_the_pages_code_for_a_library_runs_where_it_is_installed(library, tmp_path, monkeypatch):
    pytest.importorskip(library, reason=f"the extra privinf[{library}] is not installed")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "reporting.md").read_text()
    first = re.search(r"^```python ci\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[1]
    own = re.search(rf"^```python ci {library}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[1]
    exec(first + own, {})
