"""Every model's results leave as tables, JSON and Parquet, and no warning stays behind."""

import json
import warnings

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from members import KINDS_OF_FIT, SAMPLE, SPEND, TESTS, fits_of

import privinf as pi
from privinf.errors import ArgumentError, NotAvailableError, PrivinfWarning
from privinf.results.export import NO_ERRORS

pytestmark = pytest.mark.filterwarnings("ignore::privinf.errors.PrivinfWarning")
EVERY = pytest.mark.parametrize("name", KINDS_OF_FIT)
NUMBERS = ("estimate", "std_error", "std_error_sampling", "statistic", "p_value", "conf_low", "conf_high")


def strict(text):
    """Return what a JSON text says; NaN and Infinity, which are no JSON, are refused."""

    def refuse(word):
        raise AssertionError(word)

    return json.loads(text, parse_constant=refuse)


def warned(ask):
    """Return the warnings of the package that asking gives."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        ask()
    return [one for one in told if issubclass(one.category, PrivinfWarning)]


def number(value):
    return np.nan if value is None else float(value)


@pytest.mark.audit
@EVERY
def test_every_fit_leaves_as_json_that_says_what_its_tables_say(name, tmp_path):
    results, _ = fits_of(name)
    assert results
    for place, result in enumerate(results):
        path = tmp_path / f"{place}.json"
        content = strict(result.to_json(path))
        assert content == strict(path.read_text(encoding="utf-8")) == result.to_dict()
        rows = content["coefficients"]
        tidy = result.tidy()
        assert len(rows) == len(tidy)
        for column in NUMBERS:
            np.testing.assert_array_equal([number(row[column]) for row in rows], tidy[column])
        assert [row["term"] for row in rows] == list(tidy.term)
        assert list(result.glance().weak) == [content["fit"]["weak"]]
        assert content["privacy"]["epsilon"] == result.privacy.epsilon()
        with pytest.raises(ArgumentError, match="already exists"):
            result.to_json(path)


def singles(name):
    """Return the results of single fits; parties' one by one."""
    found = [getattr(result, "results", result) for result in fits_of(name)[0]]
    return [one for part in found for one in (part.values() if hasattr(part, "values") else [part])]


@pytest.mark.audit
@EVERY
def test_no_warning_of_a_fit_is_lost_in_its_exports(name):
    """Whatever intervals warn of is a caution, and the summary's notes and labels are all there."""
    for result in singles(name):
        content, glance, tidy = result.to_dict(), result.glance().iloc[0], result.tidy()
        kinds = [one["kind"] for one in content["cautions"]]
        if not result._inference.has_intervals:
            assert NO_ERRORS in kinds
            assert content["covariance"] is None
            assert result.estimate.weak_reason in [one["text"] for one in content["cautions"]]
        else:
            texts = [one["text"].removeprefix("intervals: ") for one in content["cautions"]]
            for told in warned(result.conf_int):
                assert str(told.message).removeprefix("conf_int(): ") in texts
                assert told.category.__name__.removesuffix("Warning") in kinds
            if result.estimate.cov is not None:
                np.testing.assert_array_equal(content["covariance"], result.cov_params())
        assert glance.cautions == tidy.cautions.iloc[0] == ", ".join(dict.fromkeys(kinds))
        assert glance.weak == tidy.weak.any() == content["fit"]["weak"]
        assert list(content["weakly_identified"]) == list(result.weakly_identified.index)
        assert bool(glance.weak) == bool({NO_ERRORS, "WeakIdentification"} & set(kinds))
        summary = result.summary()
        assert content["notes"] == summary.plain_notes
        text = " ".join(str(summary).split())
        for label, value in content["facts"].items():
            assert label in text, label
            assert value.split()[0] in text if value else True, label


@pytest.mark.audit
@EVERY
def test_what_a_fit_warned_of_is_in_its_json(name):
    results, told = fits_of(name)
    content = json.dumps([result.to_dict() for result in results], ensure_ascii=False)
    for category, message in told:
        assert category.__name__.removesuffix("Warning") in content or message[1:60] in content, message


@pytest.mark.audit
@EVERY
def test_every_fit_leaves_as_parquet(name, tmp_path):
    for place, result in enumerate(fits_of(name)[0]):
        path = tmp_path / f"{place}.parquet"
        result.to_parquet(path)
        table = pq.read_table(path)
        assert strict(table.schema.metadata[b"privinf"]) == result.to_dict()
        pd.testing.assert_frame_equal(pd.read_parquet(path), result.tidy(), check_dtype=False)
        with pytest.raises(ArgumentError, match="already exists"):
            result.to_parquet(path)


def test_the_level_reaches_every_export(tmp_path):
    (result,) = fits_of("OLS central")[0]
    result.to_parquet(tmp_path / "r.parquet", alpha=0.4)
    narrow = pd.read_parquet(tmp_path / "r.parquet")
    np.testing.assert_array_equal(narrow[["conf_low", "conf_high"]], result.conf_int(0.4))
    rows = strict(result.to_json(alpha=0.4))
    assert rows["alpha"] == 0.4
    assert [row["conf_low"] for row in rows["coefficients"]] == list(narrow.conf_low)


@pytest.mark.parametrize("name", TESTS)
def test_every_test_leaves_as_tables_json_and_parquet(name, tmp_path):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        result = TESTS[name]()
    content = strict(result.to_json(tmp_path / "r.json"))
    assert content == result.to_dict()
    assert content["format"] == "privinf-test"
    np.testing.assert_array_equal(
        [number(row["estimate"]) for row in content["estimates"]], result.table.estimate
    )
    np.testing.assert_array_equal(result.tidy().set_index("term").iloc[:, 1:], result.table.iloc[:, 1:])
    glance = result.glance().iloc[0]
    assert (glance.nobs, glance.epsilon) == (result.nobs, result.privacy.epsilon())
    tested = getattr(result, "test", result) is not None
    numbers = [result.statistic, result.pvalue] if tested else [np.nan, np.nan]
    np.testing.assert_array_equal([glance.statistic, glance.p_value], numbers)
    assert [(one["kind"], one["text"]) for one in content["cautions"]] == [
        (one.category.__name__.removesuffix("Warning"), str(one.message)) for one in told
    ]
    assert content["notes"] == result.summary().plain_notes
    for one in told:
        assert str(one.message)[1:] in " ".join(content["notes"])
        assert one.category.__name__.removesuffix("Warning") in glance.cautions
    result.to_parquet(tmp_path / "r.parquet")
    assert strict(pq.read_table(tmp_path / "r.parquet").schema.metadata[b"privinf"]) == content


RELEASED = pd.DataFrame(
    {"a": SAMPLE, "b": SAMPLE[::-1] + np.linspace(0, 1, 600), "c": np.resize([0.0, 1.0], 600)}
)
OF_COLUMNS = pi.Schema({"a": (0, 10), "b": (0, 12), "c": (0, 1)})


def released(epsilon):
    return pi.Moments(OF_COLUMNS, columns=["a", "b", "c"]).release(
        RELEASED, epsilon=epsilon, delta=1e-6, rng=0
    )


TABLES = {
    "describe": lambda: pi.stats.describe(RELEASED, schema=OF_COLUMNS, **SPEND),
    "corr": lambda: released(200.0).corr(),
    "corr, weak": lambda: released(0.05).corr(),
    "partial_corr": lambda: released(200.0).partial_corr(["a", "b"]),
}


@pytest.mark.parametrize("name", TABLES)
def test_descriptions_and_correlations_leave_as_tables_json_and_parquet(name, tmp_path):
    made = TABLES[name]()
    tidy, glance, content = made.tidy(), made.glance().iloc[0], strict(made.to_json(tmp_path / "r.json"))
    assert content == made.to_dict()
    assert content["format"] == "privinf-table"
    assert (glance.nobs, glance.epsilon) == (600, made.privacy.epsilon())
    for column in ("estimate", "conf_low", "conf_high"):
        np.testing.assert_array_equal([number(row[column]) for row in content["estimates"]], tidy[column])
    if name == "describe":
        whole = tidy.set_index(["term", "column"])
        for column in "abc":
            assert whole.loc[("50%", column), "estimate"] == made.table.loc["50%", column]
            assert whole.loc[("mean", column), "conf_low"] == made.intervals.loc[("mean", "low"), column]
        hidden = tidy.term.eq("std") & tidy.estimate.isna()  # by the noise
        assert not tidy[~hidden].isna().any(axis=None)
        assert not tidy[["conf_low", "conf_high"]].isna().any(axis=None)
    else:
        told = warned(made.conf_int)
        assert list(tidy.term) == [", ".join(pair) for pair in made.table.index]
        np.testing.assert_array_equal(tidy.estimate, made.table["corr"])
        assert bool(told) == tidy.weak.any() == (name == "corr, weak")
        assert [one["text"] for one in content["cautions"]] == [
            str(one.message).removeprefix("conf_int(): ") for one in told
        ]
        assert glance.cautions == ("WeakIdentification" if told else "")
        assert (tidy.conf_high - tidy.conf_low)[tidy.weak].tolist() == [2.0] * tidy.weak.sum()
    path = tmp_path / "r.parquet"
    made.to_parquet(path)
    assert strict(pq.read_table(path).schema.metadata[b"privinf"]) == content
    pd.testing.assert_frame_equal(pd.read_parquet(path), tidy, check_dtype=False)
    with pytest.raises(ArgumentError, match="already exists"):
        made.to_parquet(path)


def test_tests_that_warn_are_among_the_tests():
    assert [bool(TESTS[name]().cautions) for name in ("mean at a bound", "anova at a bound", "mean")] == [
        True,
        True,
        False,
    ]


def test_a_delta_of_one_record_in_n_is_a_caution():
    (result,) = fits_of("MomentOLS central, weak")[0]
    assert "LargeDelta" in result.glance().cautions.iloc[0]
    (other,) = fits_of("OLS central, factors")[0]
    assert ("LargeDelta" in other.glance().cautions.iloc[0]) == (
        other.privacy.default_delta * other.nobs >= 1
    )


@pytest.mark.parametrize("name", ["MomentOLS central", "ModulatedOLS one-shot", "IWPGLM quadratic", "DGMOLS"])
def test_releases_leave_as_parquet(name, tmp_path):
    (result,) = fits_of(name)[0]
    path = tmp_path / "sent.parquet"
    result.release.to_parquet(path)
    table = pq.read_table(path)
    header = strict(table.schema.metadata[b"privinf"])
    frame = table.to_pandas()
    for array, values in result.release.arrays.items():
        lines = frame[frame.array == array]
        np.testing.assert_array_equal(lines.position, np.arange(np.size(values)))
        np.testing.assert_array_equal(lines.value.to_numpy().reshape(header["shapes"][array]), values)
    again = pi.Release.from_parts(result.release.arrays, header)
    assert again.entries == result.release.entries
    with pytest.raises(ArgumentError, match="already exists"):
        result.release.to_parquet(path)


def test_a_release_without_noise_stays(tmp_path):
    y, X = np.zeros(30), np.ones((30, 1))
    release = pi.MomentOLS(y, X, bounds=[(0, 2)], y_bounds=(0, 1)).release(epsilon=np.inf)
    with pytest.raises(NotAvailableError, match="cannot be saved"):
        release.to_parquet(tmp_path / "rows.parquet")
    assert not list(tmp_path.iterdir())
