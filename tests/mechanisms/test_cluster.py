"""Sums over a dask frame are those of one process, to the bit; wrong partitions are not charged."""

import os
import pickle
from itertools import pairwise

import numpy as np
import pytest
from mechanisms.cluster_tables import FITS, SCHEMA, curves, fit_of, fitted, table

import privinf as pi
from privinf.errors import AlignmentError, NotAvailableError, SchemaError, StorageError

dask = pytest.importorskip("dask", reason="dask is not installed (privinf[dask])")
frames = pytest.importorskip("dask.dataframe", reason="dask is not installed (privinf[dask])")
distributed = pytest.importorskip("distributed", reason="dask is not installed (privinf[dask])")
from privinf.mechanisms.pushdown import dask_tables  # noqa: E402

CLOSED = {"dashboard_address": None, "worker_dashboard_address": None, "threads_per_worker": 1}


@pytest.fixture
def gathered(monkeypatch):
    """Refuse to read rows of a dask frame in this process; return a list of the sums of its partitions."""
    sums, gather = [], dask_tables.DaskSource.gathered

    def counted(source, *args):
        sums.append(args)
        return gather(source, *args)

    def refused(*_):
        raise AssertionError("rows were read in the calling process")

    monkeypatch.setattr(dask_tables.DaskSource, "gathered", counted)
    monkeypatch.setattr(dask_tables.DaskSource, "read", refused)
    return sums


def of_parts(parts):
    """Return a dask frame of partitions that are made when they are asked for."""
    return frames.from_delayed(parts, meta=table().iloc[:0], verify_meta=False)


def in_parts(frame, ends=(0, 2, 2, 1000, 1003, 2500, 3000)):
    """Return a dask frame with an empty partition, and with ones of fewer rows than coefficients."""
    return of_parts([dask.delayed(frame.iloc[start:end]) for start, end in pairwise(ends)])


@pytest.mark.filterwarnings("ignore::privinf.errors.ChangedTargetWarning")  # values lie outside the bounds
@pytest.mark.parametrize(("model", "formula", "options"), FITS)
def test_a_fit_has_the_bits_of_one_process(model, formula, options):
    frame = table()
    assert fitted(model, formula, options, in_parts(frame)) == fitted(model, formula, options, frame)


@pytest.mark.filterwarnings("ignore::privinf.errors.ChangedTargetWarning")  # values lie outside the bounds
@pytest.mark.parametrize(("model", "formula", "options"), FITS)
def test_rows_with_missing_values_are_dropped_as_in_one_process(model, formula, options):
    frame = table()
    frame.loc[1000:1002, "x"] = np.nan  # a partition, all of it
    frame.loc[::9, "w"] = np.nan
    frame.loc[4::31, "g"] = None
    fits = [fit_of(model, formula, options, data, missing="drop") for data in (in_parts(frame), frame)]
    assert fits[0].nobs == fits[1].nobs < 3000
    assert fits[0].params.equals(fits[1].params)
    assert fits[0].bse.equals(fits[1].bse)


def test_survival_curves_and_a_test_have_the_bits_of_one_process(gathered):
    assert curves(in_parts(table())) == curves(table())
    assert len(gathered) == 1  # one release, of which curves and test are computed


@pytest.mark.filterwarnings("ignore::privinf.errors.ChangedTargetWarning")  # values lie outside the bounds
@pytest.mark.parametrize(("model", "formula", "options"), FITS)
def test_every_sum_is_made_by_the_partitions(gathered, model, formula, options):
    fitted(model, formula, options, in_parts(table(400)))
    assert gathered


@pytest.mark.filterwarnings("ignore::privinf.errors.ChangedTargetWarning")  # values lie outside the bounds
def test_a_cluster_in_this_process_gives_the_same_bits():
    frame = table()
    inside = {"dashboard_address": "127.0.0.1:0", "worker_dashboard_address": "127.0.0.1:0"}
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=False,
            scheduler_kwargs={"dashboard": False},
            **inside,
        ) as local,
        distributed.Client(local),
    ):
        assert fitted(*FITS[2], in_parts(frame)) == fitted(*FITS[2], frame)


@pytest.mark.filterwarnings("ignore::privinf.errors.ChangedTargetWarning")  # values lie outside the bounds
@pytest.mark.slow
def test_a_cluster_of_processes_gives_the_same_bits_and_tells_that_a_worker_died():
    frame, ledger = table(), pi.Ledger()
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(n_workers=2, **CLOSED) as local,
        distributed.Client(local),
    ):
        for fit in FITS:
            assert fitted(*fit, in_parts(frame)) == fitted(*fit, frame)
        assert curves(in_parts(frame)) == curves(frame)
        dying = of_parts([dask.delayed(frame), dask.delayed(os._exit)(1)])
        model = pi.MomentOLS.from_formula("y ~ x", dying, schema=SCHEMA, ledger=ledger)
        with pytest.raises(StorageError, match="worker died"):
            model.fit(mu=1.0)
    assert not ledger.entries


@pytest.mark.filterwarnings("ignore::privinf.errors.ChangedTargetWarning")  # values lie outside the bounds
def test_fits_without_noise_and_models_of_rows_read_the_partitions():
    frame = table()
    fits = [
        pi.OLS.from_formula("y ~ x + g", data, schema=SCHEMA).fit(epsilon=np.inf)
        for data in (frame, in_parts(frame))
    ]
    assert np.allclose(fits[0].params, fits[1].params, rtol=1e-10)
    means = [
        pi.stats.mean("y", data=data, schema=SCHEMA, mu=1.0, rng=2).estimate
        for data in (frame, in_parts(frame))
    ]
    assert means[0] == means[1]


def test_rows_of_a_dask_frame_have_no_places():
    with pytest.raises(pi.errors.ArgumentError, match="order of the rows"):
        pi.MomentOLS.from_formula("y ~ x", in_parts(table()), schema=SCHEMA, trust="local").fit(mu=1.0)


def secret(frame):
    raise ValueError("4711.secret")


def other(change):
    frame = table()
    return of_parts([dask.delayed(frame.iloc[:2000]), dask.delayed(change)(frame.iloc[2000:])])


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda frame: frame.drop(columns="x"), StorageError, "a column is missing"),
        (lambda frame: frame.assign(x="4711.secret"), SchemaError, "'x'"),
        (lambda frame: frame.assign(x=np.inf), SchemaError, "infinite"),
        (lambda frame: frame.assign(g="4711.secret"), SchemaError, "outside its declared levels"),
        (lambda frame: frame.assign(x=np.nan), SchemaError, "missing"),
        (lambda frame: frame["x"].to_numpy(), StorageError, "a partition failed"),
        (secret, StorageError, "a partition failed"),
    ],
)
@pytest.mark.parametrize("model", [pi.MomentOLS, pi.OLS])
def test_what_is_wrong_in_a_later_partition_is_told_before_a_charge(change, error, words, model):
    ledger = pi.Ledger()
    with pytest.raises(error, match=words) as caught:
        model.from_formula("y ~ x + g", other(change), schema=SCHEMA, ledger=ledger).fit(mu=1.0)
    assert not ledger.entries
    assert "4711" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_types_that_differ_between_partitions_are_refused():
    schema = SCHEMA.fill({"k": [1, 2]})
    frame = table().assign(k=1)
    parts = [dask.delayed(frame.iloc[:2000]), dask.delayed(frame.iloc[2000:].assign(k="1"))]
    data = frames.from_delayed(parts, meta=frame.iloc[:0], verify_meta=False)
    with pytest.raises(SchemaError, match="'k'"):
        pi.MomentOLS.from_formula("y ~ x + k", data, schema=schema).fit(mu=1.0)


def test_levels_are_looked_for_in_all_partitions():
    schema = SCHEMA.fill({"k": pi.Factor(["u", "v"], other="u")})
    frame = table().assign(k=["z"] * 2999 + ["v"])

    def fit(last):
        data = frame.iloc[:last]
        parts = [dask.delayed(data.iloc[:1500]), dask.delayed(data.iloc[1500:])]
        spread = frames.from_delayed(parts, meta=frame.iloc[:0], verify_meta=False)
        return pi.MomentOLS.from_formula("y ~ x + k", spread, schema=schema).fit(mu=1.0, rng=1)

    assert fit(3000).nobs == 3000
    with pytest.raises(SchemaError, match="'k'"):
        fit(2999)


def test_too_few_rows_in_all_partitions_are_refused():
    with pytest.raises(AlignmentError, match="too few"):
        pi.MomentOLS.from_formula("y ~ x", in_parts(table(1)), schema=SCHEMA).fit(mu=1.0)


class Client:
    """Says what a cluster's client says."""

    def __init__(self, addresses=("tcp://127.0.0.1:1",), page=("127.0.0.1", False)):
        self._addresses, self._page = addresses, page

    def scheduler_info(self, n_workers):
        assert n_workers == -1
        return {"address": self._addresses[0], "workers": dict.fromkeys(self._addresses[1:])}

    def run_on_scheduler(self, function):
        return "127.0.0.1", False

    def run(self, function):
        return {"tcp://127.0.0.1:2": self._page}

    def compute(self, task):
        return Future(task)


class Future:
    def __init__(self, task):
        self._task = task

    def result(self):
        return self._task.compute(scheduler="synchronous")


@pytest.mark.parametrize(
    ("client", "refused"),
    [
        (Client(), False),
        (Client(("tcp://[::1]:1", "tls://10.0.0.4:2")), False),
        (Client(("inproc://10.0.0.4/1/1",)), False),
        (Client(("tcp://10.0.0.4:1",)), True),
        (Client(("tls://10.0.0.4:1", "tcp://10.0.0.5:1")), True),
        (Client(("ucx://127.0.0.1:1",)), True),
        (Client(page=("0.0.0.0", False)), True),
        (Client(page=("127.0.0.1", True)), True),
    ],
)
def test_sums_go_through_closed_clusters_alone(monkeypatch, client, refused):
    monkeypatch.setattr(dask_tables, "_client", lambda: client)
    ledger = pi.Ledger()
    model = pi.MomentOLS.from_formula("y ~ x", in_parts(table()), schema=SCHEMA, ledger=ledger)
    if not refused:
        assert model.fit(mu=1.0).nobs == 3000
        return
    with pytest.raises(NotAvailableError, match="mutual TLS"):
        model.fit(mu=1.0)
    assert not ledger.entries


@pytest.mark.parametrize(
    ("name", "client"),
    [("_closed", Client(("tcp://10.0.0.4:1",))), ("_loopback", Client(page=("0.0.0.0", False)))],
)
def test_a_check_that_is_left_out_lets_sums_go(monkeypatch, name, client):
    """Mutants: then the test above fails."""
    monkeypatch.setattr(dask_tables, "_client", lambda: client)
    monkeypatch.setattr(dask_tables, name, lambda address: True)
    model = pi.MomentOLS.from_formula("y ~ x", in_parts(table()), schema=SCHEMA)
    assert model.fit(mu=1.0).nobs == 3000


def test_a_page_that_others_can_open_is_found():
    with (
        distributed.LocalCluster(
            n_workers=1, processes=False, dashboard_address="0.0.0.0:0", threads_per_worker=1
        ) as local,
        distributed.Client(local),
        pytest.raises(NotAvailableError, match="of the dask cluster"),
    ):
        pi.MomentOLS.from_formula("y ~ x", in_parts(table()), schema=SCHEMA).fit(mu=1.0)


def test_rows_are_not_pickled_and_not_shown():
    data = pi.open_rows(in_parts(table()))
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(data)
    assert "rows not shown" in repr(data)


# ---- Parquet files that workers read


@pytest.fixture(scope="module")
def workers():
    with distributed.LocalCluster(n_workers=2, **CLOSED) as local, distributed.Client(local) as client:
        yield client


@pytest.fixture
def folder(tmp_path):
    frame = table()
    for place, (start, end) in enumerate([(0, 2), (2, 1000), (1000, 1003), (1003, 3000)]):
        frame.iloc[start:end].to_parquet(tmp_path / f"{place}.parquet", row_group_size=300)
    return tmp_path


@pytest.mark.filterwarnings("ignore::privinf.errors.ChangedTargetWarning")  # values lie outside the bounds
@pytest.mark.parametrize(("model", "formula", "options"), FITS)
def test_a_fit_of_row_groups_has_the_bits_of_one_process(
    monkeypatch, workers, folder, model, formula, options
):
    monkeypatch.setattr(dask_tables, "PART_ROWS", 400)
    data = pi.open_rows(folder, client=workers)
    assert fitted(model, formula, options, data) == fitted(model, formula, options, table())


def test_curves_of_row_groups_have_the_bits_of_one_process(monkeypatch, workers, folder):
    monkeypatch.setattr(dask_tables, "PART_ROWS", 400)
    assert curves(pi.open_rows(folder, client=workers)) == curves(table())


@pytest.mark.filterwarnings("ignore::privinf.errors.ChangedTargetWarning")  # values lie outside the bounds
def test_a_lost_worker_is_replaced_and_noise_is_drawn_once(workers, folder, tmp_path):
    def die_once(mark):
        from privinf.mechanisms.pushdown import dask_tables as worker_tables

        part = worker_tables._parquet_part

        def dying(*arguments):
            if not os.path.exists(mark):
                open(mark, "w").close()
                os._exit(1)
            return part(*arguments)

        worker_tables._parquet_part = dying

    mark = str(tmp_path.parent / f"{tmp_path.name}.died")
    workers.run(die_once, mark)
    ledger = pi.Ledger()
    data = pi.open_rows(folder, client=workers)
    fit = pi.MomentOLS.from_formula("y ~ x + g", data, schema=SCHEMA, ledger=ledger).fit(mu=2.0, rng=4)
    assert os.path.exists(mark)
    assert len(ledger.entries) == 1
    alone = pi.MomentOLS.from_formula("y ~ x + g", table(), schema=SCHEMA).fit(mu=2.0, rng=4)
    assert fit.params.equals(alone.params)
    assert fit.bse.equals(alone.bse)


def test_a_file_that_a_worker_finds_changed_is_refused(monkeypatch, workers, folder):
    monkeypatch.setattr(dask_tables.ParquetSource, "state", lambda file: "another")
    ledger = pi.Ledger()
    data = pi.open_rows(folder, client=workers)
    with pytest.raises(AlignmentError, match="another size or time of change"):
        pi.MomentOLS.from_formula("y ~ x", data, schema=SCHEMA, ledger=ledger).fit(mu=1.0)
    assert not ledger.entries


def test_an_invalid_row_group_is_refused_before_a_charge(workers, folder):
    table().assign(x=np.inf).to_parquet(folder / "9.parquet")
    ledger = pi.Ledger()
    with pytest.raises(SchemaError, match="infinite"):
        pi.OLS.from_formula("y ~ x", pi.open_rows(folder, client=workers), schema=SCHEMA, ledger=ledger).fit(
            mu=1.0
        )
    assert not ledger.entries


def test_types_that_differ_between_files_are_refused(workers, folder):
    schema = SCHEMA.fill({"k": [1, 2]})
    paths = []
    for place, value in enumerate([1, "1"]):
        paths.append(folder / f"k{place}.parquet")
        table().assign(k=value).to_parquet(paths[-1])
    data = pi.open_rows(paths, client=workers)
    with pytest.raises(SchemaError, match="'k'"):
        pi.MomentOLS.from_formula("y ~ x + k", data, schema=schema).fit(mu=1.0)


def test_what_needs_rows_reads_the_files_in_this_process(workers, folder):
    data = pi.open_rows(folder, client=workers)
    means = [pi.stats.mean("y", data=rows, schema=SCHEMA, mu=1.0, rng=2).estimate for rows in (table(), data)]
    assert means[0] == means[1]


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        ("rows.csv", {}, "needs Parquet files"),
        ("rows.parquet", {"client": "here"}, r"dask\.distributed\.Client"),
        ("rows.parquet", {"spool": True}, "cannot be combined with client="),
        ("rows.parquet", {"push_down": True}, "leave out client="),
    ],
)
def test_options_that_do_not_fit_a_client_are_refused(workers, tmp_path, data, options, message):
    table().to_csv(tmp_path / "rows.csv", index=False)
    table().to_parquet(tmp_path / "rows.parquet")
    with pytest.raises(pi.errors.ArgumentError, match=message):
        pi.open_rows(tmp_path / data, **{"client": workers, **options})
