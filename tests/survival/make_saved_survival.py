"""Makes an archive of saved survival results: run by hand, once for every format that is to stay readable.

    PYTHONPATH=TREE python tests/survival/make_saved_survival.py ARCHIVE "WHAT MADE IT"

`saved_survival.tar.xz` has the first format of `privinf.survival` and of `PHReg`, made by the commit that its
`told.json` names. Rows and keys are simulated. `test_saved_survival` reads the files with the code of its own
tree; what they must say is in `told.json`.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import privinf as pi

KEY = b"key of simulated files, 32 bytes"
SCHEMA = pi.Schema(
    {"months": (0, 60), "died": (0, 1), "arm": ["control", "treated"], "age": (40, 90), "site": ["a", "b"]}
)
SPEND = {"epsilon": 2.0, "delta": 1e-6, "rng": 5}


def people(n: int = 3_000) -> pd.DataFrame:
    """Return simulated patients of two arms and two hospitals."""
    rng = np.random.default_rng(12)
    treated = rng.random(n) < 0.5
    age = rng.uniform(40.0, 90.0, n)
    death = rng.exponential(size=n) / (0.03 * np.exp(0.02 * (age - 65.0) - 0.5 * treated))
    leaves = np.minimum(rng.uniform(12.0, 90.0, n), 60.0)
    return pd.DataFrame(
        {
            "months": np.minimum(death, leaves),
            "died": (death <= leaves) * 1.0,
            "arm": np.where(treated, "treated", "control"),
            "age": age,
            "site": np.where(rng.random(n) < 0.4, "a", "b"),
        }
    )


def says(result: Any) -> dict[str, Any]:
    """Return what a result says: its numbers, and the lines that name its data."""
    told: dict[str, Any] = {"class": type(result).__name__, "nobs": int(result.nobs)}
    told["epsilon"] = float(result.privacy.epsilon())
    if isinstance(result, pi.survival.SurvivalResult):
        told["table"] = result.table.to_numpy(dtype=float).tolist()
        told["median"] = result.median().to_numpy(dtype=float).tolist()
        told["mean"] = result.restricted_mean().to_numpy(dtype=float).tolist()
        told["groups"] = list(result.groups)
    elif isinstance(result, pi.survival.LogRankResult):
        told["table"] = result.table.to_numpy(dtype=float).tolist()
        told["test"] = [float(result.statistic), float(result.pvalue)]
    else:
        told["names"] = list(result.names)
        told["kind"] = result.cov_type
        told["follow up"] = [result.follow_up, result.events_after_stop]
        if result.cov_type == "none":
            told["table"] = result.params.tolist()
        else:
            told["table"] = np.column_stack([result.params, result.bse, result.conf_int()]).tolist()
            told["ratios"] = result.hazard_ratios().to_numpy(dtype=float).tolist()
    return told


def results() -> dict[str, Any]:
    """Return a result of every kind of file."""
    frame = people()
    some = frame.copy()
    some.loc[::40, "months"] = np.nan
    grid = np.arange(1, 61)
    whole = frame.assign(months=np.ceil(frame["months"]))
    curves = pi.survival.KaplanMeier("months", "died", by="arm", data=frame, schema=SCHEMA)
    made = {"curves": curves.fit(**SPEND)}
    made["test"] = made["curves"].logrank()
    made["gehan"] = made["curves"].logrank("gehan")
    made["hazards"] = made["curves"].intervals(0.9).nelson_aalen()
    model = pi.survival.KaplanMeier("months", "died", data=whole, schema=SCHEMA, grid=grid, discrete=True)
    made["months"] = model.fit(**SPEND)
    model = pi.survival.NelsonAalen("months", "died", data=some, schema=SCHEMA, missing="drop")
    made["dropped"] = model.fit(**SPEND)
    model = pi.survival.KaplanMeier(
        "months", "died", by="arm", data=frame, schema=SCHEMA, sites="site", trust="secure-sum"
    )
    made["sites"] = model.fit(**SPEND)
    cox = pi.PHReg.from_formula("months ~ arm + age", frame, status="died", schema=SCHEMA)
    made["cox"] = cox.fit(**SPEND)
    made["cox_bare"] = cox.fit(epsilon=0.4, delta=1e-6, rng=4)
    few = pi.PHReg.from_formula("months ~ arm + age", people(700), status="died", schema=SCHEMA)
    made["cox_weak"] = few.fit(epsilon=1.0, delta=1e-6, rng=1)
    return made


def main() -> None:
    archive, maker = sys.argv[1:]
    told: dict[str, Any] = {"made by": maker, "results": {}}
    with tempfile.TemporaryDirectory() as folder:
        saved = Path(folder) / "saved"
        saved.mkdir()
        for name, result in results().items():
            result.save(saved / f"{name}.npz", key=KEY if name == "test" else None)
            told["results"][name] = says(result)
        (saved / "told.json").write_text(json.dumps(told))
        with tarfile.open(archive, "w:xz") as opened:
            opened.add(saved, "saved")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
