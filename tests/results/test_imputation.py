"""Rows completed by missing="impute-public": every result says so, whatever the rows hold."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.federation import InProcessFederation, Site, SitePolicy
from privinf.mechanisms.rows import Rows
from privinf.results.notes import COMPLETED, IMPUTED, Note

N = 4000
SCHEMA = pi.Schema(
    {"x": (12.0, 60.0), "y": (50.0, 200.0), "b": (0.0, 1.0), "g": ["u", "v"], "k": (0.0, 30.0)}
)
SPENT = {"epsilon": 8.0, "delta": 1e-6}
WORDS = {"data": None, "schema": SCHEMA, "missing": "impute-public", "mu": 2.0, "rng": 0}


def table(gaps: bool = True) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    x = np.clip(rng.normal(27.0, 4.0, N), 12.0, 60.0)
    y = np.clip(2.0 * x + 50.0 + rng.normal(0.0, 4.0, N), 50.0, 200.0)
    b = (rng.uniform(size=N) < 1.0 / (1.0 + np.exp(-(x - 27.0) / 4.0))).astype(float)
    k = np.minimum(rng.poisson(np.exp(x / 27.0)), 30).astype(float)
    frame = pd.DataFrame({"x": x, "y": y, "b": b, "g": np.where(rng.uniform(size=N) < 0.5, "u", "v"), "k": k})
    if gaps:
        frame.loc[rng.uniform(size=N) < 0.15, "x"] = np.nan
    return frame


def formula(model, text="y ~ x", **fit):
    words = {"schema": SCHEMA, "missing": "impute-public"}
    return lambda rows: model.from_formula(text, rows, **words).fit(**SPENT | {"rng": 0} | fit)


def parties(model, trust, text="y ~ x"):
    def fit(rows):
        policy = SitePolicy(trusted_server=True, simulation=True)
        halves = {"north": rows.iloc[: N // 2], "south": rows.iloc[N // 2 :]}
        sites = {
            name: Site(
                Rows(part, missing="impute-public" if name == "south" else "raise"), SCHEMA, policy=policy
            )
            for name, part in halves.items()
        }
        federation = InProcessFederation(sites)
        return model.from_formula(text, federation, schema=SCHEMA, trust=trust).fit(**SPENT, rng=0)

    return fit


def lasso(rows):
    model = pi.DebiasedLasso.from_formula(
        "y ~ x + b", rows, schema=SCHEMA, missing="impute-public", trust="central"
    )
    return model.fit(sparsity=1, targets=["x"], **SPENT, rng=0)


def mixed(rows):
    parts = {"one": ["x", "b"], "two": ["y"]}
    model = pi.RMGMOLS.from_formula("y ~ x + b", rows, schema=SCHEMA, parties=parts, missing="impute-public")
    return model.fit(**SPENT, rng=0)


def from_release(rows):
    release = pi.Moments(SCHEMA, "y ~ x", missing="impute-public").release(rows, **SPENT, rng=0)
    return pi.MomentOLS.from_release(release).fit()


def analyses(name, *args):
    def fit(rows):
        moments = pi.Moments(SCHEMA, columns=["x", "y", "b"], missing="impute-public")
        return getattr(moments.release(rows, **SPENT, rng=0), name)(*args)

    return fit


FITS = {
    "OLS": formula(pi.OLS),
    "GLM by an optimizer": lambda rows: pi.GLM.from_formula(
        "b ~ x", rows, schema=SCHEMA, missing="impute-public", family="binomial"
    ).fit(optimizer=pi.Newton(), **SPENT, rng=0),
    "Logit": formula(pi.Logit, "b ~ x"),
    "Poisson": formula(pi.Poisson, "k ~ x"),
    "MomentOLS": formula(pi.MomentOLS),
    "ModulatedOLS": formula(pi.ModulatedOLS),
    "IWPGLM": lambda rows: pi.IWPGLM.from_formula(
        "y ~ x", rows, schema=SCHEMA, missing="impute-public", loss="squared"
    ).fit(**SPENT, rng=0),
    "OLS server": lambda rows: parties(pi.OLS, "server")(
        rows.assign(x=rows.x.where(np.arange(N) >= N // 2, 27.0))
    ),
    "MomentOLS server": lambda rows: parties(pi.MomentOLS, "server")(
        rows.assign(x=rows.x.where(np.arange(N) >= N // 2, 27.0))
    ),
    "DebiasedLasso": lasso,
    "RMGMOLS": mixed,
    "from_release": from_release,
    "regress": analyses("regress", "y ~ x"),
    "means": analyses("means"),
    "iv": analyses("iv", "y ~ [x ~ b]"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("gaps", [True, False])
@pytest.mark.parametrize("name", FITS)
def test_every_model_says_that_rows_were_completed(name, gaps, tmp_path):
    result = FITS[name](table(gaps))
    result.save(path := tmp_path / "fit.npz", records=False)
    for found in (result, pi.load_results(path)):
        told = found.to_dict()
        assert ("ChangedTarget", found.cautions[0][1]) == found.cautions[0]
        assert found.cautions[0][1] == IMPUTED
        assert told["facts"]["Missing values"] == "middle of bounds"
        assert any("replaced by the middle" in one["text"] for one in told["cautions"])
        assert any("replaced by the middle" in note for note in told["notes"])
        ranks = {note.text: note.rank for note in found.summary().ranked_notes}
        assert ranks[COMPLETED] == "header"
        assert [rank for text, rank in ranks.items() if "replaced by the middle" in text] == ["must-read"]
        assert "not flagged" not in str(found.summary())
        assert "ChangedTarget" in found.glance().cautions[0]
    json.dumps(result.to_dict())


@pytest.mark.audit
@pytest.mark.filterwarnings("ignore")
def test_what_is_said_does_not_depend_on_whether_values_are_missing():
    for name, fit in FITS.items():
        one, two = fit(table(True)), fit(table(False))
        texts = [[text for _, text in r.cautions if text.startswith("missing values")] for r in (one, two)]
        assert texts[0] == texts[1], name
        assert len(texts[0]) == 1


@pytest.mark.filterwarnings("ignore")
def test_no_result_without_the_option_says_so():
    result = pi.OLS.from_formula("y ~ x", table(False), schema=SCHEMA).fit(**SPENT, rng=0)
    assert not any(text == IMPUTED for _, text in result.cautions)
    assert "Missing values" not in result.to_dict()["facts"]
    assert "not flagged" in str(result.summary())


def test_the_option_leaves_releases_without_it_as_they_were():
    plain = pi.Moments(SCHEMA, "y ~ x").release(table(False), **SPENT, rng=0)
    given = pi.Moments(SCHEMA, "y ~ x", missing="impute-public").release(table(False), **SPENT, rng=0)
    assert "missing" not in plain.noise_model
    assert given.noise_model["missing"] == "impute-public"
    assert [a.to_dict() | {"id": 0, "time": 0} for a in plain.entries] == [
        b.to_dict() | {"id": 0, "time": 0} for b in given.entries
    ]


def test_it_is_on_the_page(tmp_path):
    pytest.importorskip("matplotlib")
    formula(pi.OLS)(table()).report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "replaced by the middle" in page
    assert "ChangedTarget" in page


def test_a_release_with_another_word_is_refused():
    release = pi.Moments(SCHEMA, "y ~ x", missing="impute-public").release(table(), **SPENT, rng=0)
    header = release.header()
    header["law"]["missing"] = "omit"
    with pytest.raises(pi.errors.StorageError, match="missing"):
        type(release).from_parts(release.arrays, header)


STATS = {
    "mean": lambda w: pi.stats.mean("x", **w),
    "ttest_1samp": lambda w: pi.stats.ttest_1samp("x", 27.0, **w),
    "ttest_ind": lambda w: pi.stats.ttest_ind("x ~ g", **w),
    "anova": lambda w: pi.stats.anova_oneway("x ~ g", **w),
    "clip": lambda w: pi.stats.mean("x", clip="auto", **w),
    "quantile": lambda w: pi.stats.quantile("x", 0.5, **w),
    "proportion": lambda w: pi.stats.proportion_confint("b", **w),
    "pearsonr": lambda w: pi.stats.pearsonr("x", "y", **w),
    "chi2": lambda w: pi.stats.chi2_contingency("g", "g2", **w),
    "counts": lambda w: pi.stats.counts("g", by="g2", **w),
    "histogram": lambda w: pi.stats.histogram("x", 4, **w),
    "sum": lambda w: pi.stats.sum("x", by="g", **w),
    "median": lambda w: pi.stats.median("x", by="g", **w),
    "mannwhitneyu": lambda w: pi.stats.mannwhitneyu("x ~ g", **w),
    "kruskal": lambda w: pi.stats.kruskal("x ~ g", **w),
    "wilcoxon": lambda w: pi.stats.wilcoxon("x", **w),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("gaps", [True, False])
@pytest.mark.parametrize("name", STATS)
def test_every_test_says_so(name, gaps):
    rows = table(gaps).assign(g2=lambda frame: frame.g)
    schema = SCHEMA.fill({"g2": ["u", "v"]})
    result = STATS[name](WORDS | {"data": rows, "schema": schema})
    told = result.to_dict()
    assert "replaced by the middle" in told["cautions"][0]["text"]
    assert told["facts"]["Missing values"] == "middle of bounds"
    assert "replaced by the middle" in told["notes"][0]
    assert result.summary().ranked_notes[0].rank == "must-read"


@pytest.mark.filterwarnings("ignore")
def test_descriptions_and_correlations_say_so():
    words = {"schema": SCHEMA, "missing": "impute-public", "mu": 2.0, "rng": 0}
    for found in (pi.stats.describe(table(), ["x"], **words), analyses("corr")(table())):
        assert "replaced by the middle" in found.to_dict()["cautions"][0]["text"]
        assert "replaced by the middle" in " ".join((str(found) + repr(found)).split())


def test_a_note_has_one_of_three_ranks():
    assert str(Note("A text.")) == "A text."
    with pytest.raises(pi.errors.ArgumentError, match="rank"):
        Note("A text.", "footnote")  # type: ignore[arg-type]
