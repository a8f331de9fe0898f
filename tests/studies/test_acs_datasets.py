"""ACSIncome and ACSPublicCoverage: folktables' filters, known numbers, the entry point of the originals."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf import datasets
from privinf.errors import ArgumentError, NotAvailableError
from studies.data.acs import STATES
from studies.data.packed import VARIABLE


def load(name, **options):
    try:
        return datasets.load(name, **options)
    except NotAvailableError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("name", "survey", "n", "positive"),
    [
        ("acs_income", "2024", 676_221, 0.496),
        ("acs_income", "2018-small", 90_636, 0.333),
        ("acs_coverage", "2024", 368_955, 0.328),
        ("acs_coverage", "2018-small", 59_317, 0.306),
    ],
)
def test_tasks_have_the_known_sizes_and_shares(name, survey, n, positive):
    data = load(name, survey=survey)
    assert data.X.shape == (n, 4)
    assert data.y.mean() == pytest.approx(positive, abs=5e-4)
    for column in data.features:
        bounds = data.schema.interval(column)
        assert ((data.data[column] < bounds.low) | (data.data[column] > bounds.high)).mean() < 0.005
    assert data.description
    assert data.source
    assert data.licence


def test_income_in_dollars_is_the_same_people():
    labels, dollars = load("acs_income"), load("acs_income", response="income")
    np.testing.assert_array_equal(labels.y, dollars.y > 50_000)
    assert (dollars.y > dollars.schema.interval("income").high).mean() < 0.04


def test_a_model_takes_the_record_as_it_is():
    data = load("acs_coverage", survey="2018-small")
    rows = data.data.head(5000)
    model = pi.IWPGLM.from_formula(data.formula, rows, schema=data.schema, binary=["female"])
    r = model.fit(epsilon=np.inf)
    assert list(r.params.index) == ["Intercept", *data.features]
    assert np.isfinite(r.bse).all()


def person_files(folder, missing=()):
    folder.mkdir()
    for state in STATES:
        if state not in missing:
            table = pd.DataFrame(
                {
                    "SERIALNO": [1, 2, 3, 4],
                    "AGEP": [40, 70, 3, 30],
                    "SCHL": [21, 16, np.nan, 19],
                    "WKHP": [40, np.nan, np.nan, 20],
                    "PINCP": [60_000, 9_000, np.nan, 20_000],
                    "SEX": [1, 2, 1, 2],
                    "PUBCOV": [2, 1, 1, 1],
                    "PWGTP": [10, 20, 30, 40],
                }
            )
            table.to_csv(folder / f"psam_p{state}.csv", index=False)


def test_originals_are_read_as_the_census_bureau_has_them(monkeypatch, tmp_path):
    person_files(tmp_path / "acs2018")
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    income, coverage = (datasets.load(name, survey="2018") for name in ("acs_income", "acs_coverage"))
    assert income.y.tolist() == [1.0, 0.0] * 6
    assert income.X.iloc[1].to_list() == [30.0, 19.0, 20.0, 1.0]
    assert coverage.data.drop_duplicates().to_numpy().tolist() == [[1.0, 30.0, 19.0, 20_000.0, 1.0]]


def test_missing_originals_are_named(monkeypatch, tmp_path):
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(NotAvailableError, match=r"psam_p06\.csv"):
        datasets.load("acs_income", survey="2018")
    person_files(tmp_path / "acs2018", missing=("48",))
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(NotAvailableError, match=r"no psam_p48\.csv"):
        datasets.load("acs_coverage", survey="2018")


@pytest.mark.parametrize("options", [{"survey": "2019"}, {"response": "wages"}])
def test_unknown_options_are_refused(options, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(ArgumentError):
        datasets.load("acs_income", **options)
