"""Sums over a Spark DataFrame are those of one process, to the bit; queries that can change are refused."""

import os
import shutil
import sys

import numpy as np
import pytest
from mechanisms.cluster_tables import FITS, SCHEMA, fitted, table

import privinf as pi
from privinf.errors import AlignmentError, NotAvailableError, SchemaError, StorageError

pyspark = pytest.importorskip("pyspark", reason="Spark is not installed (privinf[spark])")
if shutil.which("java") is None:
    pytest.skip("Spark needs Java, which is not installed", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore::privinf.errors.ChangedTargetWarning")


@pytest.fixture(scope="module")
def spark():
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = pyspark.sql.SparkSession.builder.master("local[2]").appName("privinf")
    options = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "3",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "OFF",
        "spark.ui.showConsoleProgress": "false",
    }
    for name, value in options.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    frame = table()
    for place, (start, end) in enumerate([(0, 2), (2, 1000), (1000, 1003), (1003, 3000)]):
        frame.iloc[start:end].to_parquet(folder / f"{place}.parquet", row_group_size=500)
    return folder


@pytest.fixture
def spread(spark, tmp_path):
    """Return a function that makes a Spark DataFrame of a pandas one."""

    def made(frame):
        frame.to_parquet(tmp_path / "rows.parquet")
        return spark.read.parquet(str(tmp_path / "rows.parquet"))

    return made


@pytest.mark.parametrize(("model", "formula", "options"), FITS)
def test_a_fit_has_the_bits_of_one_process(spark, path, model, formula, options):
    data = spark.read.parquet(str(path))
    assert fitted(model, formula, options, data) == fitted(model, formula, options, table())


def test_incomplete_rows_are_dropped_as_in_one_process(spread):
    frame = table()
    frame.loc[1000:1200, "x"] = np.nan
    frame.loc[4::31, "g"] = None
    data = spread(frame).repartition(5)
    fits = [
        pi.OLS.from_formula("y ~ x + g", rows, schema=SCHEMA, missing="drop").fit(mu=2.0, rng=4)
        for rows in (data, frame)
    ]
    assert fits[0].nobs == fits[1].nobs < 3000
    assert fits[0].params.equals(fits[1].params)
    assert fits[0].bse.equals(fits[1].bse)


def test_empty_partitions_add_nothing(spread):
    frame = table(40)
    data = spread(frame).repartition(60)
    fits = [
        pi.MomentOLS.from_formula("y ~ x", rows, schema=SCHEMA).fit(mu=9.0, rng=4) for rows in (data, frame)
    ]
    assert fits[0].params.equals(fits[1].params)


def test_what_needs_rows_reads_the_partitions(spark, path):
    data = spark.read.parquet(str(path))
    means = [pi.stats.mean("y", data=rows, schema=SCHEMA, mu=1.0, rng=2).estimate for rows in (table(), data)]
    assert means[0] == means[1]
    exact = pi.OLS.from_formula("y ~ x + g", data, schema=SCHEMA).fit(epsilon=np.inf)
    assert exact.nobs == 3000


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda frame: frame.drop(columns="x"), SchemaError, "'x'|x"),
        (lambda frame: frame.assign(x="4711.secret"), SchemaError, "'x'"),
        (lambda frame: frame.assign(x=np.inf), SchemaError, "infinite"),
        (lambda frame: frame.assign(g="4711.secret"), SchemaError, "outside its declared levels"),
        (lambda frame: frame.assign(x=np.nan), SchemaError, "missing"),
    ],
)
def test_an_invalid_table_is_refused_before_a_charge(spread, change, error, message):
    ledger = pi.Ledger()
    data = spread(change(table()))
    with pytest.raises(error, match=message) as caught:
        pi.OLS.from_formula("y ~ x + g", data, schema=SCHEMA, ledger=ledger).fit(mu=1.0)
    assert not ledger.entries
    assert "4711" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_a_query_that_fails_shows_no_value(spread):
    from pyspark.sql import functions

    data = spread(table()).withColumn("x", functions.expr("cast(concat('4711', g) as double)"))
    ledger = pi.Ledger()
    with pytest.raises(StorageError) as caught:
        pi.OLS.from_formula("y ~ x + g", data, schema=SCHEMA, ledger=ledger).fit(mu=1.0)
    assert "4711" not in str(caught.value)
    assert not ledger.entries


@pytest.mark.parametrize(
    "change",
    [
        lambda data, functions: data.withColumn("x", functions.rand()),
        lambda data, functions: data.limit(100),
        lambda data, functions: data.sample(0.5, seed=1),
        lambda data, functions: data.dropDuplicates(["g"]),
        lambda data, functions: data.groupBy("g").agg(
            functions.first("x").alias("x"), functions.max("y").alias("y")
        ),
        lambda data, functions: data.filter(functions.rand() < 0.5).select("x", "y"),
        lambda data, functions: data.join(data.limit(3), "g"),
        lambda data, functions: data.withColumn("x", functions.monotonically_increasing_id()),
    ],
)
def test_a_query_that_can_give_other_rows_is_refused(spark, path, change):
    from pyspark.sql import functions

    data = change(spark.read.parquet(str(path)), functions)
    with pytest.raises(NotAvailableError, match="write it to Parquet"):
        pi.OLS.from_formula("y ~ x", data, schema=SCHEMA).fit(mu=1.0)


def test_deterministic_queries_are_accepted(spark, path):
    from pyspark.sql import functions

    data = spark.read.parquet(str(path)).distinct()
    sums = data.groupBy("g").agg(functions.avg("x").alias("m"))
    joined = (
        data.join(sums, "g").filter("w > -4").withColumn("x", functions.col("x") + functions.col("m") * 0)
    )
    fit = pi.MomentOLS.from_formula("y ~ x + g", joined, schema=SCHEMA).fit(mu=1.0, rng=1)
    assert fit.nobs == int((table()["w"] > -4).sum())


@pytest.mark.parametrize(
    ("master", "options", "accepted"),
    [
        ("local", {}, True),
        ("local[*]", {}, True),
        ("spark://10.0.0.4:7077", {}, False),
        ("local-cluster[2,1,1024]", {}, False),
        ("yarn", {"spark.authenticate": "true"}, False),
        ("yarn", {"spark.network.crypto.enabled": "true"}, False),
        ("yarn", {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}, True),
        ("yarn", {"spark.authenticate": "true", "spark.ssl.rpc.enabled": "TRUE"}, True),
    ],
)
def test_sums_go_through_encrypted_messages_alone(master, options, accepted):
    from types import SimpleNamespace

    from privinf.mechanisms.pushdown.spark_tables import _check_encryption

    context = SimpleNamespace(master=master, getConf=lambda: options)
    frame = SimpleNamespace(sparkSession=SimpleNamespace(sparkContext=context))
    if accepted:
        _check_encryption(frame)
        return
    with pytest.raises(NotAvailableError, match=r"spark\.authenticate"):
        _check_encryption(frame)


def test_executors_with_another_version_are_refused(spark, path, monkeypatch):
    monkeypatch.setattr("privinf.version.__version__", "0.0.1")
    with pytest.raises(NotAvailableError, match=r"this process has 0\.0\.1: install the same version"):
        pi.OLS.from_formula("y ~ x", spark.read.parquet(str(path)), schema=SCHEMA).fit(mu=1.0)


def test_too_few_rows_are_refused(spread):
    data = spread(table(1))
    with pytest.raises(AlignmentError, match="too few"):
        pi.MomentOLS.from_formula("y ~ x", data, schema=SCHEMA).fit(mu=1.0)
