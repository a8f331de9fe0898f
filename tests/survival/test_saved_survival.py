"""Saved curves, log-rank tests and fits of PHReg of the first format are read, and say what they said."""

from __future__ import annotations

import json
import math
import tarfile
import warnings
from pathlib import Path

import numpy as np
import pytest
from make_saved_survival import KEY, says

import privinf as pi
from privinf.errors import StorageError

ARCHIVE = Path(__file__).with_name("saved_survival.tar.xz")
with tarfile.open(ARCHIVE) as _opened:
    TOLD = json.load(_opened.extractfile("saved/told.json"))["results"]
CLASSES = {
    "SurvivalResult": pi.survival.SurvivalResult,
    "LogRankResult": pi.survival.LogRankResult,
    "PHRegResults": pi.Results,
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    with tarfile.open(ARCHIVE) as opened:
        opened.extractall(folder, filter="data")
    return folder / "saved"


def loaded(saved, name):
    key = KEY if name == "test" else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CLASSES[TOLD[name]["class"]].load(saved / f"{name}.npz", key=key)


def same(now, then):
    if isinstance(then, dict):
        assert now.keys() >= then.keys()
        for name, value in then.items():
            same(now[name], value)
    elif isinstance(then, list) and then and not isinstance(then[0], str):
        np.testing.assert_allclose(
            np.array(now, dtype=float), np.array(then, dtype=float), rtol=1e-6, atol=1e-9, equal_nan=True
        )
    elif isinstance(then, float):
        assert now == pytest.approx(then, rel=1e-9)
    else:
        assert now == then


@pytest.mark.parametrize("name", list(TOLD))
def test_a_file_of_the_first_format_says_what_it_said(saved, name):
    result = loaded(saved, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same(says(result), TOLD[name])
        assert str(result.summary())


def test_the_archive_has_every_kind_of_file():
    assert {told["class"] for told in TOLD.values()} == set(CLASSES)
    assert ARCHIVE.stat().st_size < 200_000


def test_a_file_of_the_first_format_serves_the_analyses_of_this_version(saved):
    curves = loaded(saved, "curves")
    assert curves.logrank().statistic == pytest.approx(TOLD["test"]["test"][0])
    assert curves.at([12.0, 24.0]).shape == (4, 4)
    assert curves.difference(24.0).notna().all(axis=None)
    fit = loaded(saved, "cox")
    assert fit.score_test("age = 0").pvalue < 0.05
    assert math.isfinite(fit.conf_int(method="score").loc["age", 0])


def test_a_key_is_needed_for_a_file_with_a_key(saved):
    with pytest.raises(StorageError):
        pi.survival.LogRankResult.load(saved / "test.npz")
