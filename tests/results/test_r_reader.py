"""The R script reads what was saved, number by number, and warns of what the result is warned of."""

from __future__ import annotations

import io
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import privinf as pi

RSCRIPT = shutil.which("Rscript")
SCRIPT = Path(__file__).parents[2] / "docs" / "read_privinf.R"
pytestmark = [
    pytest.mark.skipif(RSCRIPT is None, reason="R is not installed (Debian's package r-base-core)"),
    pytest.mark.filterwarnings("ignore::privinf.errors.PrivinfWarning"),
]
NAMES = ["a", 'quote " and \\ back', "größe €😀"]


def told_by_r(path):
    """Return what the script prints of a file, and its warnings."""
    done = subprocess.run(
        [RSCRIPT, "--vanilla", str(SCRIPT), str(path)],
        capture_output=True,
        text=True,
        check=False,
        env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def fitted(model=pi.OLS, **spending):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.uniform(-1, 1, (2000, 3)), columns=NAMES)
    y = X.to_numpy() @ [0.5, -0.3, 0.0] + 0.2 * rng.standard_normal(2000)
    made = model(y, pi.add_constant(X), bounds=dict.fromkeys(NAMES, (-1, 1)), y_bounds=(-3, 3))
    return made.fit(**(spending or {"epsilon": 2.0, "delta": 1e-6}))


@pytest.mark.parametrize("model", [pi.OLS, pi.MomentOLS])
def test_a_saved_result(model, tmp_path):
    result = fitted(model)
    result.save(tmp_path / "r.npz")
    printed, warned = told_by_r(tmp_path / "r.npz")
    table = pd.read_csv(io.StringIO(printed))
    assert list(table.term) == list(result.names)
    np.testing.assert_allclose(table.estimate, result.params, rtol=1e-14)
    np.testing.assert_allclose(table.std_error, result.bse, rtol=1e-14)
    assert "SIMULATION" not in warned


def test_the_json_of_a_result_with_infinite_ends(tmp_path):
    for result in (fitted(), fitted(pi.MomentOLS, epsilon=0.01, delta=1e-6, rng=0)):
        path = tmp_path / f"{result.model.name}.json"
        result.to_json(path)
        printed, warned = told_by_r(path)
        table, tidy = pd.read_csv(io.StringIO(printed)), result.tidy()
        assert list(table.term) == list(tidy.term)
        for name in ("estimate", "std_error", "p_value", "conf_low", "conf_high"):
            np.testing.assert_allclose(table[name], tidy[name], rtol=1e-14)
        assert (table.weak == tidy.weak).all()
        for kind, _ in result.cautions:
            assert kind in warned
        assert ("SIMULATION" in warned) == bool(result.privacy.stamp)


def test_a_weak_result_warns(tmp_path):
    result = fitted(pi.MomentOLS, epsilon=0.01, delta=1e-6, rng=0)
    result.save(tmp_path / "r.npz")
    printed, warned = told_by_r(tmp_path / "r.npz")
    assert pd.read_csv(io.StringIO(printed)).std_error.isna().all()
    assert "no standard errors" in warned
    assert "identification is weak" in warned
    assert "SIMULATION" in warned


@pytest.mark.parametrize("kind", ["moments", "modulation"])
def test_a_release(kind, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (50, 2))
    words = {"bounds": [(-1, 1)] * 2, "y_bounds": (-2, 2)}
    model = {"moments": pi.MomentOLS, "modulation": pi.ModulatedOLS}[kind]
    release = model(X @ [0.5, 0.0], X, **words).release(epsilon=2.0, delta=1e-6)
    release.save(tmp_path / "sent.npz")
    lines = told_by_r(tmp_path / "sent.npz")[0].splitlines()
    found = {name.strip(): (shape, values) for name, shape, values in (line.split("|") for line in lines)}
    assert set(found) == set(release.arrays)
    for name, (shape, values) in found.items():
        array = np.asarray(release.arrays[name])
        assert [int(one) for one in shape.split()] == list(array.shape)
        order = array.ravel() if array.ndim < 3 else array.T.ravel(order="F")
        np.testing.assert_allclose(np.array(values.split(), dtype=float), order, rtol=1e-14)


def test_what_is_no_file_of_privinf_is_refused(tmp_path):
    import zipfile

    with zipfile.ZipFile(tmp_path / "other.npz", "w") as archive:
        archive.writestr("manifest.json", '{"container": "other", "container_version": 1}')
    done = subprocess.run(
        [RSCRIPT, "--vanilla", str(SCRIPT), str(tmp_path / "other.npz")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "not a file of privinf" in done.stderr
