"""Results of fits that dropped rows with missing values: N^ in the place of n everywhere, and said."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.completeness import CompleteRows
from privinf.errors import ArgumentError, LargeDeltaWarning, NotAvailableError, StorageError
from privinf.federation import InProcessFederation, Site, SitePolicy
from privinf.mechanisms.rows import Rows
from privinf.release_kinds import check_kind
from privinf.results.notes import COMPLETE_SAMPLE_TARGET, COMPLETE_TARGET, complete_text

N = 3000
SCHEMA = pi.Schema(
    {
        "x": (-1, 1),
        "y": (0, 10),
        "b": (0, 1),
        "g": ["u", "v"],
        "k": (0, 30),
        "z": (-2, 2),
        "other": (0, 1),
        "e": (0.5, 2),
        "p": pi.Numeric(0, 1, public=True),
    }
)
SPENT = {"epsilon": 8.0, "delta": 1e-6, "rng": 0}
NO_NOISE = {"epsilon": np.inf, "delta": 1e-6, "rng": 0}
pytestmark = pytest.mark.filterwarnings("ignore")


def table(n=N, share=0.2) -> pd.DataFrame:
    """Return rows with gaps in two columns, which depend on nothing."""
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, n)
    z = np.clip(x + rng.normal(0, 0.4, n), -2, 2)
    frame = pd.DataFrame(
        {
            "x": x,
            "y": np.clip(5 + 2 * x + rng.normal(0, 1.0, n), 0, 10),
            "b": (rng.uniform(size=n) < 1 / (1 + np.exp(-2 * x))).astype(float),
            "g": rng.choice(["u", "v"], n),
            "k": np.minimum(rng.poisson(np.exp(1 + x)), 30).astype(float),
            "z": z,
            "other": rng.uniform(size=n),
            "e": rng.uniform(0.5, 2, n),
            "p": rng.uniform(size=n),
        }
    )
    for name in ("x", "g"):
        frame.loc[rng.uniform(size=n) < share, name] = np.nan if name == "x" else None
    frame.loc[rng.uniform(size=n) < 0.3, ["other", "e"]] = np.nan
    return frame


def sites(rows, missing="drop", schema=SCHEMA, **more):
    policy = SitePolicy(trusted_server=True, simulation=True)
    parts = {name: rows.iloc[place::3] for place, name in enumerate(("north", "south", "west"))}
    return InProcessFederation(
        {
            name: Site(Rows(part, missing=more.get(name, missing)), schema, policy=policy)
            for name, part in parts.items()
        }
    )


def formula(model, text, trust="central", roles=None, **fit):
    def run(rows, missing="drop", **spent):
        if trust == "central":
            built = model.from_formula(text, rows, schema=SCHEMA, missing=missing, **(roles or {}))
        else:
            built = model.from_formula(text, sites(rows, missing), schema=SCHEMA, trust=trust)
        return built.fit(**((spent or SPENT) | fit))

    run.used = ["x", "g", *(roles or {}).values()]
    return run


def lasso(trust="central", family="gaussian", **fit):
    def run(rows, missing="drop", **spent):
        text = f"{'y' if family == 'gaussian' else 'b'} ~ x + g + z"
        held = rows if trust == "central" else sites(rows, missing)
        words = {"missing": missing} if trust == "central" else {"trust": trust}
        built = pi.DebiasedLasso.from_formula(text, held, schema=SCHEMA, family=family, **words)
        return built.fit(**((spent or SPENT) | {"targets": ["x", "z"], "sparsity": 2} | fit))

    run.used = ["x", "g"]
    return run


def analysis(name, *args):
    def run(rows, missing="drop", **spent):
        moments = pi.Moments(SCHEMA, columns=["x", "y", "C(g)", "z"], missing=missing)
        return getattr(moments.release(rows, **(spent or SPENT)), name)(*args)

    run.used = ["x", "g"]
    return run


def loaded(rows, missing="drop", **spent):
    release = pi.Moments(SCHEMA, "y ~ x + g", missing=missing).release(
        rows, cov_type="HC0", **(spent or SPENT)
    )
    return pi.MomentOLS.from_release(release).fit()


loaded.used = ["x", "g"]
FITS = {
    "MomentOLS": formula(pi.MomentOLS, "y ~ x + g"),
    "MomentOLS, HC0": formula(pi.MomentOLS, "y ~ x * g", cov_type="HC0"),
    "MomentOLS, server": formula(pi.MomentOLS, "y ~ x + g", "server", cov_type="HC0"),
    "MomentOLS, from_release": loaded,
    "OLS": formula(pi.OLS, "y ~ x + g"),
    "OLS, nonrobust": formula(pi.OLS, "y ~ x + g", cov_type="nonrobust"),
    "OLS, server": formula(pi.OLS, "y ~ x + g", "server"),
    "Logit": formula(pi.Logit, "b ~ x + g"),
    "Logit, nonrobust": formula(pi.Logit, "b ~ x + g", cov_type="nonrobust"),
    "Logit, server": formula(pi.Logit, "b ~ x + g", "server"),
    "Poisson": formula(pi.Poisson, "k ~ x + g"),
    "Poisson, server": formula(pi.Poisson, "k ~ x + g", "server"),
    "Poisson, exposure": formula(pi.Poisson, "k ~ x + g", roles={"exposure": "e"}),
    "Logit, offset": formula(pi.Logit, "b ~ x + g", roles={"offset": "e"}),
    "DebiasedLasso": lasso(),
    "DebiasedLasso, robust, released means": lasso(target="robust", center="released"),
    "DebiasedLasso, noise variance": lasso(noise_variance=True, restricted_eigenvalues=True),
    "DebiasedLasso, server": lasso("server"),
    "DebiasedLasso, logistic": lasso(family="binomial"),
    "regress": analysis("regress", "y ~ x + g"),
    "regress without a constant": analysis("regress", "y ~ x + g - 1"),
    "means": analysis("means"),
    "iv": analysis("iv", "y ~ g + [x ~ z]"),
}


# ---- N^ in the place of n


# Properties that differ by right: the count, the cost, and what the rows are.
DIFFERENT = {
    "communication",
    "release",
    "privacy",
    "estimate",
    "target",
    "model",
    "settings",
    "default_model_infos",
    "method",
}


def numbers(result):
    """Return everything numeric that properties and methods without arguments give."""
    found = {}
    for name in dir(type(result)):
        if name.startswith("_") or name in DIFFERENT:
            continue
        try:
            value = getattr(result, name)
            if callable(value):
                value = (
                    value() if name in ("conf_int", "score_test", "cov_params", "tidy", "glance") else None
                )
        except (NotAvailableError, ArgumentError, AttributeError):
            found[name] = "not available"
            continue
        if isinstance(value, (bool, int, float, np.number)):
            found[name] = float(value)
        elif isinstance(value, (pd.Series, pd.DataFrame)):
            found[name] = pd.DataFrame(value).select_dtypes("number").to_numpy(dtype=float)
        elif isinstance(value, np.ndarray):
            found[name] = value
        elif hasattr(value, "statistic"):
            found[name] = float(value.statistic)
    return found


@pytest.mark.parametrize("name", FITS)
def test_without_noise_every_number_is_that_of_complete_rows(name):
    rows = table(600)
    run = FITS[name]
    dropped = numbers(run(rows, **NO_NOISE))
    complete = numbers(run(rows.dropna(subset=run.used), "raise", **NO_NOISE))
    assert len(dropped) > 15
    assert dropped.keys() == complete.keys()
    for what, value in dropped.items():
        other = complete[what]
        if isinstance(value, str) or isinstance(other, str):
            assert value is other or value == other, what
        else:
            np.testing.assert_allclose(value, other, rtol=1e-5, atol=1e-9, err_msg=what)


@pytest.mark.parametrize("kind", ["score", "wald"])
@pytest.mark.parametrize("name", ["MomentOLS", "MomentOLS, HC0", "OLS", "Logit", "Poisson"])
def test_intervals_with_little_noise_are_those_of_complete_rows(name, kind):
    rows = table(2000)
    run = FITS[name]
    spent = {"mu": 3e4, "rng": 0}
    dropped, complete = run(rows, **spent), run(rows.dropna(subset=run.used), "raise", **spent)
    assert dropped.nobs == complete.nobs
    widths = [np.diff(fit.conf_int(method=kind).to_numpy(), axis=1).ravel() for fit in (dropped, complete)]
    np.testing.assert_allclose(*widths, rtol=0.03)
    np.testing.assert_allclose(dropped.params, complete.params, atol=0.02 * float(np.max(complete.bse)))
    restriction = np.eye(len(dropped.params))[1:2]
    tests = [fit.score_test(restriction).statistic for fit in (dropped, complete)]
    assert tests[0] == pytest.approx(tests[1], rel=0.05)


def test_correlations_with_dropped_rows():
    rows = table(1500)
    for spent in (NO_NOISE, {"mu": 1e4, "rng": 0}):
        pairs = analysis("corr")(rows, **spent)
        expected = analysis("corr")(rows.dropna(subset=["x", "g"]), "raise", **spent)
        np.testing.assert_allclose(pairs.params, expected.params, atol=1e-3)
        np.testing.assert_allclose(pairs.bse, expected.bse, rtol=1e-2)
        assert pairs.nobs == expected.nobs
        assert "rows are complete" in str(pairs)
        mark = "" if spent is NO_NOISE else " (est.)"
        assert f"{pairs.nobs}{mark} records" in str(pairs)


def test_margins_are_those_of_complete_rows():
    rows = table(800)
    fits = [
        pi.Logit.from_formula("b ~ x + g", data, schema=SCHEMA, missing=missing).fit(
            margins="overall", **NO_NOISE
        )
        for data, missing in ((rows, "drop"), (rows.dropna(subset=["x", "g"]), "raise"))
    ]
    margins = [fit.get_margeff() for fit in fits]
    np.testing.assert_allclose(*(effects.margeff for effects in margins), rtol=1e-6)
    np.testing.assert_allclose(*(effects.margeff_se for effects in margins), rtol=1e-4)


# ---- what is said


@pytest.mark.parametrize("share", [0.2, 0.0])
@pytest.mark.parametrize("name", FITS)
def test_every_result_says_how_many_rows_are_complete(name, share, tmp_path):
    result = FITS[name](table(share=share))
    result.save(path := tmp_path / "fit.npz", records=False)
    for fit in (result, pi.load_results(path)):
        complete = fit._context.complete
        assert complete.of == N
        assert fit.nobs == complete.rows
        assert (
            abs(fit.nobs - table(share=share).dropna(subset=FITS[name].used).shape[0]) < 5 * complete.sd + 1
        )
        low, high = complete.interval
        sentence = f"About {complete.rows:,} of 3,000 rows are complete (95% interval {low:,} to {high:,})"
        told = fit.to_dict()
        assert told["fit"]["nobs"] == fit.nobs
        assert told["facts"]["Missing values"] == "rows dropped"
        assert told["facts"]["Observations (est.)"] == str(fit.nobs)
        assert "No. Observations" not in told["facts"]
        assert any(sentence in note for note in told["notes"])
        target = COMPLETE_SAMPLE_TARGET if name == "means" else COMPLETE_TARGET
        assert any(note.startswith(target[:60]) for note in told["notes"])
        text = " ".join(str(fit.summary()).split())
        assert sentence.split(" (")[0] in text
        assert "rows dropped" in text
        assert json.loads(fit.to_json())["facts"] == told["facts"]
        assert fit.glance()["nobs"].iloc[0] == fit.nobs
        assert fit.glance()["nobs_std_error"].iloc[0] == fit._context.complete.sd
        assert f"{fit.nobs} (est.) records" in repr(fit)
        assert f"about {fit.nobs:,} of 3,000" in fit.to_html()
    assert result.params.equals(fit.params)


def test_tables_of_several_fits_mark_the_estimated_number():
    rows = table()
    fits = {"dropped": FITS["OLS"](rows), "imputed": FITS["OLS"](rows, "impute-public")}
    text = str(pi.compare(fits).summary())
    assert f"{fits['dropped'].nobs} (est.)" in text
    assert "3000 (est.)" not in text
    assert "3000" in text
    assert f"n = about {fits['dropped'].nobs:,} of 3,000" in fits["dropped"].to_latex()
    assert "n = 3,000" in fits["imputed"].to_latex()
    assert "missing values" in fits["dropped"].to_latex()
    assert "missing values" not in fits["imputed"].to_latex()
    assert f"Standard errors ({fits['dropped'].cov_type}) include" in fits["dropped"].to_latex()


def test_maketables_reads_the_estimated_number_as_one():
    """It prints texts as they are and formats numbers; infinite ones are an error there."""
    rows = table()
    noisy, counted = FITS["OLS"](rows), FITS["OLS"](rows, **NO_NOISE)
    entries = [fit.to_maketables() for fit in (noisy, counted, FITS["OLS"](rows, "impute-public"))]
    numbers = [entry.__maketables_stat__("N") for entry in entries]
    assert numbers == [f"{noisy.nobs:,} (est.)", counted.nobs, N]
    assert [entry.__maketables_stat__("epsilon") for entry in entries][1] == "inf"
    errors = [entry.__maketables_stat__("se_type") for entry in entries]
    assert errors == [f"{noisy.cov_type}, with privacy noise", counted.cov_type, errors[0]]


def test_a_word_document_has_the_marked_number(tmp_path):
    maketables = pytest.importorskip("maketables", reason="the extra privinf[tables] is not installed")
    docx = pytest.importorskip("docx", reason="python-docx, which maketables needs, is not installed")
    rows = table()
    fits = [FITS["OLS"](rows), FITS["OLS"](rows, **NO_NOISE)]
    file = tmp_path / "table.docx"
    maketables.ETable([fit.to_maketables() for fit in fits]).save(type="docx", file_name=str(file))
    (written,) = docx.Document(str(file)).tables
    lines = {line.cells[0].text: [cell.text for cell in line.cells[1:]] for line in written.rows}
    assert lines["Observations"] == [f"{fits[0].nobs:,} (est.)", f"{fits[1].nobs:,}"]
    assert lines["epsilon"][1] == "inf"
    assert lines["S.E. type"] == [f"{fits[0].cov_type}, with privacy noise", fits[1].cov_type]
    assert f"{fits[0].params['x']:.3f}" in lines["x"][0]


def test_a_large_delta_is_one_for_all_rows():
    """The number of people is that of the table, not that of complete rows."""
    rows = table(share=0.5)
    for model in (pi.MomentOLS, pi.OLS):
        built = model.from_formula("y ~ x + g", rows, schema=SCHEMA, missing="drop")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fit = built.fit(epsilon=8.0, delta=1.5 / N, rng=0)
        assert fit.nobs * 1.5 / N < 0.9
        assert any(issubclass(one.category, LargeDeltaWarning) for one in caught)
        assert "LargeDelta" in [kind for kind, _ in fit.cautions]


def test_correlations_are_warned_of_a_large_delta_by_all_rows():
    rows = table(share=0.5)
    moments = pi.Moments(SCHEMA, columns=["x", "y", "z"], missing="drop")
    pairs = moments.release(rows, epsilon=8.0, delta=1.5 / N, rng=0).corr()
    assert pairs.nobs * 1.5 / N < 0.9
    assert "LargeDelta" in pairs.glance()["cautions"].iloc[0]


def test_releases_that_dropped_rows_are_stored_whole(tmp_path):
    rows = table()
    release = pi.Moments(SCHEMA, "y ~ x + g", missing="drop").release(rows, cov_type="HC0", **SPENT)
    assert release.nobs == N
    release.save(path := tmp_path / "release.npz")
    read = pi.load_release(path)
    assert read.noise_model["missing"] == "drop"
    fits = [pi.MomentOLS.from_release(one).fit() for one in (release, read)]
    assert fits[0].params.equals(fits[1].params)
    assert fits[0].bse.equals(fits[1].bse)
    assert fits[0].nobs == fits[1].nobs < N


def test_the_estimate_of_complete_rows():
    assert CompleteRows.from_sum(812.4, 3.0, 1000, 4) == CompleteRows(rows=812, sd=3.0, of=1000)
    assert CompleteRows.from_sum(-50.0, 30.0, 1000, 4).rows == 20
    assert CompleteRows.from_sum(-50.0, 30.0, 1000, 40).rows == 41
    assert CompleteRows.from_sum(2e9, 30.0, 1000, 4).rows == 1000
    assert CompleteRows.from_sum(0.0, 30.0, 3, 4).rows == 3
    assert CompleteRows(rows=990, sd=10.0, of=1000).interval == (970, 1000)
    assert CompleteRows(rows=5, sd=10.0, of=1000).interval == (0, 25)
    stored = CompleteRows(rows=5, sd=1.0, of=9).settings()
    assert CompleteRows.from_settings(json.loads(json.dumps(stored))) == CompleteRows(rows=5, sd=1.0, of=9)
    assert CompleteRows.from_settings({}) is None


def test_the_interval_of_complete_rows_is_about_the_number_before_it_is_raised():
    """It was about the raised estimate, and never covered a truth of 0."""
    few = CompleteRows.from_sum(-5.0, 30.0, 10_000, 4)
    assert (few.rows, few.interval, few.is_raised) == (200, (0, 54), True)
    assert CompleteRows.from_settings(json.loads(json.dumps(few.settings()))) == few
    assert CompleteRows.from_sum(-500.0, 30.0, 10_000, 4).interval == (0, 0)
    enough = CompleteRows.from_sum(8000.0, 40.0, 10_000, 4)
    assert not enough.is_raised
    assert CompleteRows.sum_of([enough, few]) == CompleteRows(rows=8200, sd=50.0, of=20_000, total=7995.0)
    assert CompleteRows.sum_of([enough, enough]).total is None


def test_a_noisy_count_of_hardly_any_complete_rows_keeps_its_interval():
    few = CompleteRows.from_count(-500.0, 30.0, 1000)
    assert (few.rows, few.interval, few.is_raised) == (2, (0, 0), True)
    assert complete_text(few).startswith(
        "Probably at most 0 of 1,000 rows are complete (95% interval 0 to 0)"
    )
    assert CompleteRows.from_count(1.5, 30.0, 1000).interval == (0, 61)
    enough = CompleteRows.from_count(900.0, 30.0, 1000)
    assert (enough.rows, enough.is_raised) == (900, False)
    assert CompleteRows.from_count(2e9, 30.0, 1000).rows == 1000


def test_counted_rows_have_no_interval():
    counted = complete_text(CompleteRows.from_sum(3.0, 0.0, 1000, 4))
    assert counted.startswith("Only 3 of 1,000 rows are complete")
    assert "interval" not in counted
    assert "is set to 20" in counted
    assert complete_text(CompleteRows.from_sum(30.0, 0.0, 1000, 4)).startswith(
        "30 of 1,000 rows are complete,"
    )


@pytest.mark.parametrize("complete", [0, 30, 60])
def test_few_complete_rows_are_stated_with_an_interval_that_covers(complete):
    rows = table().assign(x=lambda frame: frame["z"] / 2.0)
    rows.loc[complete:, "x"] = np.nan
    models = ((pi.OLS, "y ~ x"), (pi.Logit, "b ~ x"), (pi.MomentOLS, "y ~ x"))
    for model, formula in models:
        covered = []
        for seed in range(6):
            fit = model.from_formula(formula, rows, schema=SCHEMA, missing="drop").fit(
                epsilon=1, delta=1e-6, rng=seed
            )
            low, high = fit._context.complete.interval
            covered.append(low <= complete <= high)
            (text,) = [text for text in fit.notes if "rows are complete" in text]
            if text.startswith("Probably at most"):
                assert "almost entirely missing" in text
                assert f"(95% interval {low} to {high})" in text
        assert sum(covered) >= 5


def test_without_noise_the_number_of_complete_rows_is_the_counted_one():
    rows = table().assign(x=lambda frame: frame["z"] / 2.0)
    rows.loc[10:, "x"] = np.nan
    fit = pi.OLS.from_formula("y ~ x", rows, schema=SCHEMA, missing="drop").fit(**NO_NOISE)
    assert any(text.startswith("Only 10 of 3,000 rows are complete, so") for text in fit.notes)


# ---- designs of sites


def test_sites_drop_by_the_columns_of_each_formula():
    rows = table(900)
    held = sites(rows)
    for text, used in (("y ~ x", ["x"]), ("y ~ g", ["g"]), ("y ~ x + other", ["x", "other"]), ("y ~ z", [])):
        fit = pi.OLS.from_formula(text, held, schema=SCHEMA, trust="server").fit(**NO_NOISE)
        assert fit.nobs == len(rows.dropna(subset=used))


def test_a_fit_with_a_checkpoint_drops_the_same_rows(tmp_path):
    rows = table(900)
    rows.to_parquet(tmp_path / "rows.parquet")
    fits = [
        pi.OLS.from_formula("y ~ x + g", data, schema=SCHEMA, missing="drop").fit(
            **NO_NOISE, checkpoint=tmp_path / name
        )
        for name, data in (("one", rows), ("two", tmp_path / "rows.parquet"))
    ]
    expected = FITS["OLS"](rows, **NO_NOISE)
    for fit in fits:
        np.testing.assert_allclose(fit.params, expected.params, rtol=1e-9)
        np.testing.assert_allclose(fit.bse, expected.bse, rtol=1e-6)
        assert fit.nobs == expected.nobs


def test_a_site_without_a_complete_row():
    rows = table(900)
    rows.loc[rows.index % 3 == 1, "x"] = np.nan
    for model in (pi.OLS, pi.MomentOLS):
        run = [
            model.from_formula("y ~ x + g", data, schema=SCHEMA, trust="server").fit(**NO_NOISE)
            for data in (sites(rows), sites(rows.dropna(subset=["x", "g"]).iloc[:0:-1], "raise"))
        ]
        assert run[0].nobs == len(rows.dropna(subset=["x", "g"]))
        assert np.isfinite(run[0].bse).all()


# ---- refusals

REFUSED = {
    "public columns": (
        lambda rows: pi.MomentOLS.from_formula("y ~ x + p", rows, schema=SCHEMA, missing="drop").fit(**SPENT),
        "public= columns or weights=",
    ),
    "weights": (
        lambda rows: pi.MomentOLS.from_formula("y ~ x", rows, schema=SCHEMA, missing="drop", weights="p").fit(
            **SPENT
        ),
        "weights",
    ),
    "radius": (
        lambda rows: pi.MomentOLS.from_formula("y ~ x", rows, schema=SCHEMA, missing="drop", radius=1.0).fit(
            **SPENT
        ),
        "radius=",
    ),
    "no constant, MomentOLS": (
        lambda rows: pi.MomentOLS.from_formula("y ~ x - 1", rows, schema=SCHEMA, missing="drop").fit(**SPENT),
        "needs a model with a constant",
    ),
    "no constant, OLS": (
        lambda rows: pi.OLS.from_formula("y ~ x - 1", rows, schema=SCHEMA, missing="drop").fit(**SPENT),
        "needs a model with a constant",
    ),
    "no constant, sites": (
        lambda rows: pi.MomentOLS.from_formula("y ~ x - 1", sites(rows), schema=SCHEMA, trust="server").fit(
            **SPENT
        ),
        "needs a model with a constant",
    ),
    "adapted bounds": (
        lambda rows: FITS["OLS"](rows, "drop", **SPENT, adapt_bounds=True),
        "adapt_bounds=True",
    ),
    "an optimizer": (
        lambda rows: pi.GLM.from_formula("b ~ x", rows, schema=SCHEMA, missing="drop", family="binomial").fit(
            optimizer=pi.Newton(), **SPENT
        ),
        "only for the default fits",
    ),
    "too little budget for one step": (
        lambda rows: pi.Logit.from_formula("b ~ x", rows[:200], schema=SCHEMA, missing="drop").fit(
            epsilon=0.05, delta=1e-6, rng=0
        ),
        "",
    ),
    "a ridge": (
        lambda rows: FITS["MomentOLS"](rows, "drop", **SPENT, stabilization="ridge", ridge=1.0),
        "ridge= cannot be used",
    ),
    "local releases": (
        lambda rows: pi.MomentOLS.from_formula(
            "y ~ x", rows, schema=SCHEMA, missing="drop", trust="local"
        ).fit(**SPENT),
        "one message per row",
    ),
    "modulated rows": (
        lambda rows: pi.ModulatedOLS.from_formula("y ~ x", rows, schema=SCHEMA, missing="drop").fit(**SPENT),
        "one message per row",
    ),
    "examples": (
        lambda rows: pi.IWPGLM.from_formula("y ~ x", rows, schema=SCHEMA, missing="drop", loss="squared").fit(
            **SPENT
        ),
        "one message per row",
    ),
    "parties": (
        lambda rows: pi.RMGMOLS.from_formula(
            "y ~ x + b", rows, schema=SCHEMA, parties={"one": ["x", "b"], "two": ["y"]}, missing="drop"
        ).fit(**SPENT),
        "columns at several parties",
    ),
    "sites that impute and sites that drop": (
        lambda rows: pi.OLS.from_formula(
            "y ~ x", sites(rows, south="impute-public"), schema=SCHEMA, trust="server"
        ).fit(**SPENT),
        "agree on one rule",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_drop_rows_is_refused_by_name(name):
    run, match = REFUSED[name]
    with pytest.raises(NotAvailableError, match=match):
        run(table(900))


def test_sites_with_nothing_to_drop_may_refuse_gaps():
    rows = table(900)
    rows.loc[rows.index % 3 == 0, ["x", "g", "other"]] = 0.5, "u", 0.5
    fit = pi.OLS.from_formula("y ~ x + g", sites(rows, north="raise"), schema=SCHEMA, trust="server").fit(
        **SPENT
    )
    assert fit._context.complete.of == 900


def test_a_release_that_could_not_drop_rows_is_not_read(tmp_path):
    """Such a file was read, and its analyses stopped without a reason."""
    rows = table(300, share=0.0)
    for text, trust in (("y ~ x - 1", "central"), ("y ~ x", "local")):
        release = pi.Moments(SCHEMA, text, trust=trust).release(rows, **SPENT)
        with pytest.raises(StorageError, match="can leave out rows with missing values"):
            check_kind(
                release.kind,
                release.arrays,
                {**release.noise_model, "missing": "drop"},
                release.design,
                release.nobs,
            )


def test_the_noise_of_means_includes_that_of_the_number_of_complete_rows():
    """E r(x - m) = 0: the noise of a sum has variance s^2 / 2, and that of the number s^2 m^2."""
    rng = np.random.default_rng(4)
    frame = pd.DataFrame({"a": rng.uniform(0.4, 1.0, 3000), "b": rng.uniform(-1.0, 1.0, 3000)})
    frame.loc[rng.random(3000) < 0.4, "b"] = np.nan
    schema = pi.Schema({"a": (-1.0, 1.0), "b": (-1.0, 1.0)})
    release = pi.Moments(schema, columns=["a", "b"], missing="drop").release(frame, mu=0.5, rng=0)
    means = release.means()
    s, n = release.noise_model["scale"], means.nobs
    expected = np.sqrt(s**2 / 2.0 + s**2 * means.params**2) / n
    np.testing.assert_allclose(means.bse_privacy, expected, rtol=1e-9)
    assert expected["a"] > 1.3 * s / np.sqrt(2.0) / n  # the mean of a is far from the middle
