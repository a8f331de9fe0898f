"""Speed claims as ratios measured in one run (loose here; `make bench` has the figures)."""

import importlib.util
from pathlib import Path

import pytest
from support.speed import slowness

PATH = Path(__file__).parents[2] / "benchmarks" / "bench.py"


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("bench", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.timing
def test_secure_noise_rate(bench):
    assert bench.lattice_rate(1_000_000) >= 2e6 / slowness()
    old, new = (bench.noise_costs(300_000)[name][1] for name in ("old", "secure"))
    assert old / new >= 1.4


@pytest.mark.timing
def test_score_intervals_of_ten_and_twenty_slopes(bench):
    assert bench.score_costs(10, former=False)["now"][1] <= 0.3 * slowness()
    assert bench.score_costs(20, 1, former=False)["now"][1] <= 2.0 * slowness()


@pytest.mark.timing
def test_many_fits_at_once(bench):
    costs = bench.replication_costs()
    assert costs["single"][1] / costs["together"][1] >= 4.0


@pytest.mark.timing
def test_fit_is_no_slower_than_statsmodels(bench):
    assert bench.fit_ratio(200_000) <= 1.0


@pytest.mark.timing
def test_release_is_not_much_slower_than_its_noise(bench):
    assert bench.release_ratio(300_000) <= 3.5


@pytest.mark.timing
def test_import_is_cheaper_than_statsmodels(bench):
    assert bench.import_ratio(3) <= 0.9
