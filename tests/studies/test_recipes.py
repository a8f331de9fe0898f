"""Recipes of data sets that need files: made-up originals of the documented form, content of tables."""

from __future__ import annotations

import dataclasses
import zipfile

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from privinf import datasets
from privinf.errors import ArgumentError, NotAvailableError, StorageError
from studies.data import acs
from studies.data.__main__ import main
from studies.data.packed import VARIABLE, Packed
from studies.data.recipes import RECIPES, build, canonical, digest_of, in_order

pytest.importorskip("pyarrow")
BUILT = [name for name, recipe in RECIPES.items() if recipe.members]
HOUR = """\
instant,dteday,season,yr,mnth,hr,holiday,weekday,workingday,weathersit,temp,atemp,hum,windspeed,casual,registered,cnt
1,2011-01-01,1,0,1,0,0,6,0,1,0.24,0.2879,0.81,0,3,13,16
2,2011-01-01,1,0,1,1,0,6,0,1,0.22,0.2727,0.8,0,8,32,40
"""
PRODUCT = """\
MWG,NWG,KWG,MDIMC,NDIMC,MDIMA,NDIMB,KWI,VWM,VWN,STRM,STRN,SA,SB,Run1 (ms),Run2 (ms),Run3 (ms),Run4 (ms)
16,16,16,8,8,8,8,2,1,1,0,0,0,0,115.26,115.87,118.55,115.8
16,16,16,8,8,8,8,2,1,1,0,0,0,1,78.13,78.25,79.25,79.19
"""
CHARGES = """\
age,sex,bmi,children,smoker,region,charges
19,female,27.9,0,yes,southwest,16884.924
"""


def zipped(path, **files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name.replace("__", "/") + ".csv", text)
    return path


def person_file(state, people):
    """Return a person file as the Census Bureau has them: all codes of all recipes, blanks where missing."""
    columns = sorted({c for n in BUILT if n.startswith("acs") for c in RECIPES[n].keep})
    rows = [dict.fromkeys(columns, 1) | {"STATE": state, "ST": state} | person for person in people]
    return pd.DataFrame(rows)[["AGEP", *(c for c in columns if c != "AGEP")]].to_csv(index=False)


PEOPLE = [
    {"AGEP": 40, "PINCP": 60_000, "WAGP": 50_000, "WKHP": 40, "OCCP": "0425"},
    {"AGEP": 70, "PINCP": 0, "WAGP": 0, "WKHP": "", "OCCP": ""},
    {"AGEP": 3, "PINCP": "", "WAGP": "", "WKHP": "", "OCCP": ""},
]


def test_bike_is_the_hours_as_they_are(tmp_path):
    table = build("bike", zipped(tmp_path / "b.zip", Readme="", day="x", hour=HOUR))
    assert table.shape == (2, 17)
    assert table.loc[1, ["dteday", "hr", "hum", "cnt"]].tolist() == ["2011-01-01", 1, 0.8, 40]
    assert table["windspeed"].dtype == np.float64  # a whole number here, and still a real column


def test_gpu_runs_are_whole_hundredths(tmp_path):
    table = build("gpu", zipped(tmp_path / "g.zip", sgemm_product_dataset__sgemm_product=PRODUCT))
    assert table.filter(like="Run").to_numpy().tolist() == [
        [11526, 11587, 11855, 11580],
        [7813, 7825, 7925, 7919],
    ]
    assert table.dtypes.unique().tolist() == [np.dtype("int64")]


def test_insurance_is_one_plain_file(tmp_path):
    path = tmp_path / "insurance.csv"
    path.write_text(CHARGES)
    assert build("insurance", path).to_numpy().tolist() == [
        [19, "female", 27.9, 0, "yes", "southwest", 16884.924]
    ]


@pytest.mark.parametrize("archives", [True, False])
@pytest.mark.parametrize(
    ("name", "people"), [("acs2024_10states", 2), ("acs2018_small_states", 2), ("acs2024_wages", 1)]
)
def test_person_files_are_put_together_in_order(name, people, archives, tmp_path):
    recipe = RECIPES[name]
    assert len(recipe.download) == len(recipe.members)
    for packed, member in zip(recipe.download, recipe.members, strict=True):
        text = person_file(int(member[6:8]), PEOPLE)
        if archives:
            zipped(tmp_path / packed, **{member.removesuffix(".csv"): text})
        else:
            (tmp_path / member).write_text(text)
    table = build(name, tmp_path)
    assert len(table) == people * len(recipe.members)
    assert list(table.columns) == list(recipe.keep)
    assert table.dtypes.unique().tolist() == [np.dtype("int64")]
    states = table["STATE" if "STATE" in table else "ST"].drop_duplicates().tolist()
    assert states == [int(member[6:8]) for member in recipe.members]
    assert table["AGEP"].tolist() == [40, 70][:people] * len(recipe.members)
    if people == 2:
        assert table["WKHP"].tolist() == [40, 0] * len(recipe.members)


def test_what_is_not_the_original_is_named(tmp_path):
    (tmp_path / "insurance.csv").write_text(CHARGES.replace("bmi", "weight"))
    with pytest.raises(ArgumentError, match="has no column bmi: it is not the original"):
        build("insurance", tmp_path)
    with pytest.raises(
        ArgumentError, match=r"no hour\.csv, neither as a file nor in an archive; to build it, download"
    ):
        build("bike", tmp_path)
    with pytest.raises(ArgumentError, match=r"superconductor: there is no recipe .* no public file"):
        build("superconductor", tmp_path)
    with pytest.raises(ArgumentError, match="no table 'iris'"):
        build("iris", tmp_path)


# ---- content


FRAME = pd.DataFrame({"n": [1, 2, 2], "x": [0.1, -0.0, 3.0], "word": ["a", "b", "é"]})


def known(frame, **more):
    """Return a recipe that knows a table by its content."""
    form = canonical(frame)
    return dataclasses.replace(
        RECIPES["insurance"],
        rows=len(frame),
        columns=frame.shape[1],
        digest=digest_of(form),
        content=digest_of(in_order(form)),
        **more,
    )


def test_types_and_order_of_columns_are_no_content():
    recipe = known(FRAME)
    other = FRAME[["word", "x", "n"]].astype({"x": "float32", "n": "uint8", "word": "category"})
    assert recipe.check(other, "here")
    assert recipe.check(FRAME.assign(x=FRAME["x"] * (1.0 + 1e-12)), "here")


def test_the_order_of_rows_is_told():
    assert known(FRAME).check(FRAME.iloc[::-1], "here") is False


@pytest.mark.parametrize(
    "changed",
    [
        FRAME.assign(x=[0.1, 0.0, 3.001]),
        FRAME.assign(n=[1, 2, 3]),
        FRAME.assign(word=["a", "c", "é"]),
        FRAME.assign(x=FRAME["x"].to_numpy()[::-1]),
        FRAME.assign(n=FRAME["n"].astype(float)),
        FRAME.rename(columns={"x": "z"}),
    ],
)
def test_another_content_is_refused(changed):
    with pytest.raises(StorageError, match="values are not those"):
        known(FRAME).check(changed, "here")
    with pytest.raises(StorageError, match="2 rows and 3 columns, not 3 and 3"):
        known(FRAME).check(changed.head(2), "here")


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_tables_of_the_folder_have_their_content(name):
    try:
        table = Packed(name, "").read()
    except NotAvailableError as absent:
        pytest.skip(str(absent))
    recipe = RECIPES[name]
    assert recipe.check(table, name)
    assert set(recipe.keep) <= set(table.columns)
    if len(table) < 200_000:  # sorting takes seconds beyond
        assert digest_of(in_order(canonical(table))) == recipe.content
    if recipe.keep:
        assert list(table.columns) == list(recipe.keep)


# ---- the command


def run(*words, folder=None):
    return CliRunner().invoke(main, words, env={VARIABLE: None if folder is None else str(folder)})


def test_a_table_is_built_checked_and_loaded(tmp_path, monkeypatch):
    source, folder = tmp_path / "insurance.csv", tmp_path / "data"
    source.write_text(CHARGES)
    wrong = run("build", "insurance", "--from", str(source), folder=folder)
    assert wrong.exit_code == 1
    assert "1 rows and 7 columns, not 1338 and 7" in wrong.output
    assert not folder.exists()
    monkeypatch.setattr("studies.data.recipes.RECIPES", {"insurance": known(build("insurance", source))})
    monkeypatch.setattr("studies.data.packed.RECIPES", {"insurance": known(build("insurance", source))})
    monkeypatch.setattr("studies.data.__main__.RECIPES", {"insurance": known(build("insurance", source))})
    made = run("build", "insurance", "--from", str(source), folder=folder)
    assert made.exit_code == 0, made.output
    assert made.output.endswith("data.parquet: 1 rows, checked\n")
    assert [path.name for path in (folder / "insurance").iterdir()] == ["data.parquet"]
    monkeypatch.setenv(VARIABLE, str(folder))
    assert datasets.load("insurance").y.tolist() == [16884.924]
    assert run("list", folder=folder).output == "insurance: there\n"
    again = run("build", "insurance", "--from", str(source), folder=folder)
    assert "already" in again.output


def test_a_folder_has_to_be_named(tmp_path):
    (tmp_path / "insurance.csv").write_text(CHARGES)
    assert "--to" in run("build", "insurance", "--from", str(tmp_path)).output
    listed = run("list").output
    assert "bike: absent; to build it, download https://archive.ics.uci.edu/static/public/275/" in listed
    assert "song_subset: absent; there is no recipe to build this file, because its only known" in listed


@pytest.mark.parametrize("name", datasets.PACKED)
def test_an_absent_table_says_what_to_do(name, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(NotAvailableError) as told:
        datasets.load(name)
    text = str(told.value)
    if "no recipe to build" not in text:
        assert "https://" in text
        assert any(f"run `python -m studies.data build {table} --from" in text for table in BUILT)
    assert len(acs.ARCHIVES) == len(acs.STATES)
