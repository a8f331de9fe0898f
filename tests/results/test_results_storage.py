import math

import numpy as np
import pytest

import privinf as pi
from privinf.accounting import PrivacyReport
from privinf.errors import ArgumentError, NotAvailableError, StorageError
from privinf.results import Results, load_results, register_model
from privinf.results import storage as results_storage
from privinf.results.context import Context
from privinf.storage.containers import read_container, write_container


class OtherResults(Results):
    """A model's own results."""


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setattr(results_storage, "_recipes", dict(results_storage._recipes))


@pytest.fixture(scope="module")
def fit():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (3000, 2))
    y = X @ [0.5, -0.5] + 0.1 * rng.standard_normal(3000)
    return pi.ModulatedOLS(y, X, bounds=[(-1, 1)] * 2, response="public").fit(mu=40.0, rng=0)


def same(a, b):
    assert str(a.summary()) == str(b.summary())
    assert a.params.equals(b.params)
    assert a.conf_int(0.1).equals(b.conf_int(0.1))


def test_round_trip_without_release(results, tmp_path):
    results.save(tmp_path / "r.npz")
    loaded = load_results(tmp_path / "r.npz")
    same(loaded, results)
    assert type(loaded) is Results
    assert loaded.t_test_pairwise("C(g)").result_frame.equals(results.t_test_pairwise("C(g)").result_frame)
    assert loaded.bootstrap(99, rng=0).draws.equals(results.bootstrap(99, rng=0).draws)
    assert loaded.privacy.to_dict() == results.privacy.to_dict()


def test_everything_works_after_loading_a_fit(fit, tmp_path):
    fit.save(tmp_path / "r.npz")
    loaded = load_results(tmp_path / "r.npz")
    same(loaded, fit)
    assert type(loaded) is type(fit)
    assert loaded.score_test().statistic == pytest.approx(fit.score_test().statistic, rel=1e-12)
    np.testing.assert_allclose(loaded.conf_int(method="score"), fit.conf_int(method="score"), rtol=1e-8)
    assert loaded.identification == fit.identification
    np.testing.assert_array_equal(loaded.release.arrays["features"], fit.release.arrays["features"])
    assert loaded.bootstrap(50, "pairs", rng=0).draws.equals(fit.bootstrap(50, "pairs", rng=0).draws)


def test_files_are_overwritten_only_when_told(fit, tmp_path):
    path = tmp_path / "r.npz"
    for thing in (fit, fit.release):
        thing.save(path)
        before = path.read_bytes()
        for words in ({}, {"overwrite": False}):
            with pytest.raises(ArgumentError, match=r"r\.npz already exists: .*overwrite=True"):
                thing.save(path, **words)
            assert path.read_bytes() == before
        with pytest.raises(ArgumentError, match="overwrite must be True or False"):
            thing.save(path, overwrite="yes")
        thing.save(path, overwrite=True)
        path.unlink()


def test_lean_files_hold_no_records(fit, tmp_path):
    fit.save(tmp_path / "r.npz", records=False)
    assert (tmp_path / "r.npz").stat().st_size < 20_000
    arrays, _ = read_container(tmp_path / "r.npz", format=results_storage.FORMAT)
    assert all(max(array.shape, default=0) <= 3 for array in arrays.values())
    loaded = load_results(tmp_path / "r.npz")
    assert loaded.conf_int().equals(fit.conf_int())
    assert loaded.release is None
    assert loaded.bootstrap(50).method == "parametric"
    needs_records = (
        lambda: loaded.bootstrap(method="multiplier"),
        loaded.score_test,
        lambda: loaded.simultaneous(method="multiplier"),
    )
    for call in needs_records:
        with pytest.raises(NotAvailableError):
            call()
    assert "coef" in str(loaded.summary())


def test_noise_free_results_refuse_to_save_the_rows(results, make_entry, tmp_path):
    report = PrivacyReport.from_entries([make_entry(secure=False, mu=math.inf)])
    clear = Results(results.estimate, Context(report=report))
    with pytest.raises(NotAvailableError, match="records=False"):
        clear.save(tmp_path / "r.npz")
    assert not list(tmp_path.iterdir())
    clear.save(tmp_path / "r.npz", records=False)
    assert load_results(tmp_path / "r.npz").estimate.scores is None


def test_keys_and_classes(results, tmp_path, registry):
    results.save(tmp_path / "r.npz", key=b"k")
    with pytest.raises(StorageError, match="another key"):
        Results.load(tmp_path / "r.npz", key=b"other")
    same(Results.load(tmp_path / "r.npz", key=b"k"), results)
    with pytest.raises(ArgumentError, match="contains an object of class Results, not OtherResults"):
        OtherResults.load(tmp_path / "r.npz", key=b"k")
    register_model("TestOLS", results=OtherResults, system=lambda release, settings: None)
    assert type(OtherResults.load(tmp_path / "r.npz", key=b"k")) is OtherResults


def test_files_that_do_not_describe_a_result(results, tmp_path):
    path = tmp_path / "r.npz"
    results.save(path)
    arrays, header = read_container(path, format=results_storage.FORMAT)

    def forged(arrays=arrays, **changes):
        write_container(path, arrays, {**header, **changes}, format=results_storage.FORMAT)
        with pytest.raises(StorageError):
            load_results(path)

    forged({name: array for name, array in arrays.items() if name != "params"})
    forged(names=["a"])
    forged(report={})
    forged(design={"columns": 3})
    forged({**arrays, "cov": -arrays["cov"]})
    header.pop("nobs")
    forged()
    with pytest.raises(FileNotFoundError):
        load_results(tmp_path / "absent.npz")
