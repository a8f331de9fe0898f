"""Makes lifelines.json, what lifelines computes from a table that a formula gives: run by hand.

    python -m venv /tmp/lifelines && /tmp/lifelines/bin/pip install lifelines==0.30.3
    PYTHONPATH=tests/survival /tmp/lifelines/bin/python tests/survival/make_lifelines.py

privinf does not depend on lifelines: this script imports no privinf, and `test_lifelines` no lifelines. The
file names the version that made it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

FIXTURE = Path(__file__).with_name("lifelines.json")
N = 900
HORIZON = 60.0
COLUMNS = ["age", "treated", "b"]  # of Cox's regression
AFTER = 0.5  # months after the horizon at which a record that passes it is censored
RANKS: dict[str, dict[str, Any]] = {
    "logrank": {},
    "gehan": {"weightings": "wilcoxon"},
    "fleming-harrington": {"weightings": "fleming-harrington", "p": 1.0, "q": 0.0},
}


def share(a: int, b: int, prime: int) -> np.ndarray:
    """Return numbers of (0, 1), the same in any language: fractions of squares modulo a prime."""
    i = np.arange(1, N + 1)
    return (((i * i * a + i * b) % prime) + 0.5) / prime


def people() -> pd.DataFrame:
    """Return patients of three arms: months with a fraction, whole months, and the status at the horizon."""
    arm = np.arange(N) % 3
    age = np.round(40.0 + 50.0 * share(7, 3, 1009), 1)
    treated = (share(13, 5, 997) < 0.4).astype(float)
    hazard = 0.02 * np.exp(0.03 * (age - 65.0) - 0.5 * treated + 0.4 * (arm == 1) - 0.2 * (arm == 2))
    death = -np.log(share(31, 17, 991)) / hazard
    leaves = 8.0 + 90.0 * share(19, 2, 983)
    months = np.round(np.minimum(death, leaves), 3)
    return pd.DataFrame(
        {
            "months": months,
            "whole": np.ceil(months),
            "died": (death <= leaves).astype(float),
            "arm": np.array(["a", "b", "c"], dtype=object)[arm],
            "age": age,
            "treated": treated,
        }
    )


def cut(rows: pd.DataFrame, time: str) -> tuple[pd.Series, pd.Series]:
    """Return times and deaths up to the horizon."""
    return rows[time].clip(upper=HORIZON + AFTER), (rows["died"] == 1.0) & (rows[time] <= HORIZON)


def curves(rows: pd.DataFrame) -> dict[str, Any]:
    """Return curves of whole months by arm."""
    from lifelines import KaplanMeierFitter, NelsonAalenFitter
    from lifelines.utils import restricted_mean_survival_time

    edges = np.arange(1.0, HORIZON + 1.0)
    found = {}
    for arm, part in rows.groupby("arm"):
        time, died = cut(part, "whole")
        curve = KaplanMeierFitter().fit(time, died)
        hazard = NelsonAalenFitter(nelson_aalen_smoothing=False).fit(time, died)
        found[str(arm)] = {
            "survival": curve.survival_function_at_times(edges).tolist(),
            "cumulated hazard": hazard.cumulative_hazard_at_times(edges).tolist(),
            "at risk": curve.event_table["at_risk"].reindex(edges, method="bfill").tolist(),
            "median": float(curve.median_survival_time_),
            "restricted mean to 48": float(restricted_mean_survival_time(curve, t=48.0)),
        }
    return found


def rank_tests(rows: pd.DataFrame) -> dict[str, Any]:
    """Return tests of whole months: of all arms, and of the first two."""
    from lifelines.statistics import logrank_test, multivariate_logrank_test

    found = {}
    two = [rows[rows["arm"] == arm] for arm in "ab"]
    times = [cut(part, "whole") for part in two]
    for name, words in RANKS.items():
        time, died = cut(rows, "whole")
        three = multivariate_logrank_test(time, rows["arm"], died, **words)
        pair = logrank_test(times[0][0], times[1][0], times[0][1], times[1][1], **words)
        found[name] = {
            "three": [float(three.test_statistic), float(three.p_value)],
            "a and b": [float(pair.test_statistic), float(pair.p_value)],
        }
    return found


def regression(rows: pd.DataFrame) -> dict[str, Any]:
    """Return Cox's regression of months with a fraction, with robust standard errors."""
    from lifelines import CoxPHFitter

    table = rows[["age", "treated"]].assign(b=(rows["arm"] == "b").astype(float))
    table["time"], table["died"] = cut(rows, "months")
    fit = CoxPHFitter().fit(table, "time", "died", robust=True)
    return {
        "coef": fit.params_[COLUMNS].tolist(),
        "robust std err": fit.standard_errors_[COLUMNS].tolist(),
    }


def main() -> None:
    """Write the file."""
    import lifelines

    rows = people()
    made = {
        "lifelines": lifelines.__version__,
        "curves": curves(rows),
        "tests": rank_tests(rows),
        "cox": regression(rows),
    }
    FIXTURE.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
