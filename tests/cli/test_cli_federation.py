"""Three hospitals by nine commands, from nothing to a fitted model, and what is refused."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from click.testing import CliRunner
from cryptography import x509

import privinf as pi
from privinf.accounting.journal import Anchor
from privinf.cli import main
from privinf.cli.deployment import TAGGED, certificates, days_left, flwr, node_key
from privinf.cli.doctor import read_site
from privinf.cli.federated_fits import read_plan, run_plan
from privinf.errors import ArgumentError, BudgetExceededError, NotAvailableError
from privinf.federation import (
    IdentityKey,
    InProcessFederation,
    Roster,
    Site,
    SiteDaemon,
    SiteLedger,
    SitePolicy,
    pinned_keys,
)
from privinf.storage.checksummed import checksummed_json

NAMES = ("north", "south", "west")
SCHEMA = {"ill": (0, 1), "age": (18, 90), "dose": (0, 10)}
ROWS = 600
FIT = """formula = "ill ~ age + dose"
out = "fit"
"""
MODELS = {
    "MomentOLS": 'model = "MomentOLS"',
    "gaussian": 'model = "FederatedGLM"\nfamily = "gaussian"',
    "binomial": 'model = "FederatedGLM"\nfamily = "binomial"',
    "poisson": 'model = "FederatedGLM"\nfamily = "poisson"',
}


def table(name):
    rng = np.random.default_rng(NAMES.index(name))
    rows = pd.DataFrame({"age": rng.uniform(18, 90, ROWS), "dose": rng.uniform(0, 10, ROWS)})
    odds = np.exp(-3 + 0.03 * rows["age"] + 0.2 * rows["dose"])
    return rows.assign(ill=(rng.uniform(size=ROWS) < odds / (1 + odds)).astype(float))


def run(*given):
    return CliRunner().invoke(main, [*map(str, given)], prog_name="privinf")


def refused(result, *words):
    assert result.exit_code == 2, result.output
    for word in words:
        assert word in " ".join(result.output.split()), result.output
    assert "Traceback" not in result.output


@pytest.fixture
def folder(tmp_path_factory, monkeypatch):
    """A folder of a short path, since sockets have short names, with three tables and a schema."""
    made = tmp_path_factory.mktemp("k")
    monkeypatch.chdir(made)
    for name in NAMES:
        table(name).to_csv(f"{name}.csv", index=False)
        os.chmod(f"{name}.csv", 0o600)
    Path("schema.json").write_text(json.dumps(pi.Schema(SCHEMA).to_dict()))
    return made


def init(name, *more):
    budget = ["--epsilon", "4", "--delta", "1e-6"]
    return run("site", "init", name, "--data", f"{name}.csv", "--schema", "schema.json", *budget, *more)


def made_federation(*more, joined=()):
    for name in NAMES:
        assert init(name, *more).exit_code == 0
    bundles = [f"{name}/{name}.bundle.json" for name in NAMES]
    made = run("federation", "init", "hospitals", *bundles, "--sockets", *joined)
    assert made.exit_code == 0, made.output
    for name in NAMES:
        Path(name, "federation.json").write_bytes(Path("hospitals/federation.json").read_bytes())


@contextlib.contextmanager
def sites_up(names=NAMES):
    """Start sites by `site up`, each in a process of its own; end them by SIGTERM."""
    command = [sys.executable, "-m", "privinf", "site", "up"]
    started = [
        subprocess.Popen([*command, name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for name in names
    ]
    try:
        for process in started:
            lines = [process.stdout.readline(), process.stdout.readline()]
            assert "answers queries at" in lines[-1], [*lines, process.stderr.read()]
        yield started
    finally:
        for process in started:
            process.send_signal(signal.SIGTERM)
        ended = [process.wait(60) for process in started]
        for process in started:
            process.communicate()
    assert ended == [0] * len(names)


def plan(**words):
    text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in words.items())
    Path("hospitals/fit.toml").write_text(
        f'model = "MomentOLS"\nformula = "ill ~ age + dose"\nepsilon = 1.0\ndelta = 1e-6\n{text}'
    )


@pytest.mark.parametrize("name", ['the "north"', "back\\slash", "emoji \U0001f3e5", "delete \x7f", "it's"])
def test_toml_files_name_folders_of_any_name(name, tmp_path, monkeypatch):
    folder = tmp_path / name
    folder.mkdir()
    (folder / "rows.csv").write_text("ill,age\n1,20\n0,30\n")
    (folder / "schema.json").write_text(json.dumps(pi.Schema({"ill": (0, 1), "age": (18, 90)}).to_dict()))
    words = [
        "--data",
        folder / "rows.csv",
        "--schema",
        folder / "schema.json",
        "--epsilon",
        4,
        "--delta",
        1e-6,
    ]
    made = run("site", "init", "north", *words, "--folder", folder / "north")
    assert made.exit_code == 0, made.output
    assert read_site(folder / "north")["data"] == str(folder / "rows.csv")
    commands = []
    monkeypatch.setattr(subprocess, "run", lambda words, **_: commands.append(words) or Ended())
    flwr(folder, {"address": "server.example:8000"}, "run", "app", TAGGED)
    written = tomllib.loads((folder / ".analyst" / "config.toml").read_text(encoding="utf-8"))
    section = written["superlink"]["privinf"]
    assert section == {"address": "127.0.0.1:8000", "root-certificates": str(folder / "ca.crt")}
    assert commands[0][1:] == ["run", "app", "privinf"]


class Ended:
    """A command that ended well."""

    returncode = 0


def with_gaps(name):
    """Return the rows of a site of which some lack a dose."""
    rows = table(name)
    return rows.assign(dose=rows["dose"].where(np.random.default_rng(9).random(ROWS) > 0.2))


def test_a_fit_over_sites_whose_rows_have_gaps(folder):
    """Sites by the command line, each with rows that lack values, to a fit of the complete rows."""
    for name in NAMES:
        with_gaps(name).to_csv(f"{name}.csv", index=False)
    made_federation("--missing", "drop")
    assert read_site(Path("north"))["missing"] == "drop"
    assert run("site", "doctor", "north").output.strip() == "no problems found"
    with sites_up():
        plan(out="complete")
        fitted = run("federation", "fit", "hospitals/fit.toml")
        assert fitted.exit_code == 0, fitted.output
        assert "of 1,800 rows are complete" in " ".join(fitted.output.split())
        assert list(pi.load_results("hospitals/complete.npz").params.index) == ["Intercept", "age", "dose"]
        before = run("site", "status", "north", "--json").output
        Path("hospitals/fit.toml").write_text(
            'model = "FederatedGLM"\nformula = "ill ~ age + dose - 1"\nrho = 0.1\nout = "no constant"\n'
        )
        refused(
            run("federation", "fit", "hospitals/fit.toml"), "--missing drop needs a model with a constant"
        )
        assert run("site", "status", "north", "--json").output == before


def test_the_rule_for_missing_values_of_a_site_with_a_folder(folder, monkeypatch):
    with_gaps("north").to_csv("north.csv", index=False)
    made_federation()
    served = []
    monkeypatch.setattr(SiteDaemon, "serve", lambda daemon: served.append(daemon._server.site.description()))
    first = run("site", "up", "north")
    assert (first.exit_code, "--missing" in first.stderr) == (0, True)
    settings = Path("north/site.toml")
    text = settings.read_text()
    settings.write_text(text.replace('missing = "raise"', 'missing = "drop"'))
    refused(run("site", "up", "north"), "another rule for missing values", "privinf site rebase")
    assert run("site", "rebase", "north").exit_code == 0
    assert run("site", "up", "north").exit_code == 0
    refused(run("site", "up", "north", "--missing", "raise"), "privinf site rebase")
    settings.write_text(text.replace('missing = "raise"\n', ""))  # as an earlier version wrote it
    assert run("site", "up", "north", "--missing", "drop").exit_code == 0
    assert [facts.get("missing") for facts in served] == [None, "drop", "drop"]
    assert [facts["unavailable"] for facts in served] == [["dose"], [], []]
    settings.write_text(text.replace('missing = "raise"', 'missing = "guess"'))
    for command in ("up", "doctor", "status", "rebase"):
        refused(run("site", command, "north"), "missing must be one of raise, impute-public, drop")


@pytest.mark.audit
def test_an_impostor_and_a_ledger_that_was_put_back_are_named_by_the_next_fit(folder):
    made_federation()
    ledgers = [Path(name, f"{name}.ledger").resolve() for name in NAMES]
    anchors = [Anchor.for_journal(path, None).path for path in ledgers]
    kept = {path: path.read_bytes() for path in (*ledgers, *anchors)}
    with sites_up():
        plan(out="first")
        fitted = run("federation", "fit", "hospitals/fit.toml")
        assert fitted.exit_code == 0, fitted.output
    for path, content in kept.items():  # of all sites: the analyst alone remembers
        path.write_bytes(content)
    with sites_up():
        plan(out="second")
        refused(run("federation", "fit", "hospitals/fit.toml"), "site 'north'", "restore the latest copy")
        assert not Path("hospitals/second.json").exists()
        os.rename("hospitals/heads.json", "heads.json")
        assert run("federation", "fit", "hospitals/fit.toml").exit_code == 0  # nobody remembers
    os.rename("heads.json", "hospitals/heads.json")
    own = IdentityKey()
    roster = Roster.from_json(json.loads(Path("hospitals/federation.json").read_text())["roster"])
    forged = Roster({**roster.keys, "north": own.public}, {**roster.verifying, "north": own.verifying})
    policy = SitePolicy(secure_sums=True)
    site = Site(table("north"), pi.Schema(SCHEMA), policy=policy, key=own, roster=forged)
    with sites_up(("south", "west")), SiteDaemon(site, "north", "north/north.sock").started():
        refused(
            run("federation", "fit", "hospitals/fit.toml"),
            "site 'north'",
            "is not signed with the site's key",
        )
    assert len(site.ledger) == 0


@pytest.mark.audit
def test_only_listed_analysts_are_answered(folder):
    key = {name: run("analyst", "key", f"{name}.key").stdout.strip() for name in ("ada", "bob")}
    ada = ["--analyst", f"ada={key['ada']}"]
    refused(
        run(
            "site",
            "init",
            "x",
            "--data",
            "north.csv",
            "--epsilon",
            "4",
            "--delta",
            "1e-6",
            "--analyst",
            f"ada={key['ada']}:much",
        ),
        "NAME=KEY:EPSILON",
    )
    made_federation("--min-sites", "3", ada[0], f"{ada[1]}:1.25", joined=ada)
    assert not Path("hospitals/analyst.key").exists()
    assert "no problems found" in run("site", "doctor", "north").output
    plan(out="fit")
    with sites_up():
        asked = ["federation", "fit", "hospitals/fit.toml"]
        refused(run(*asked), "this query is not")
        refused(run(*asked, "--key", "bob.key"), "this query is not")
        assert "answers, but shows its number of rows only to" in run("site", "status", "north").output
        fitted = run(*asked, "--key", "ada.key")
        assert fitted.exit_code == 0, fitted.output
        told = json.loads(run("site", "status", "north", "--json").output)
        assert told["by_analyst"] == [
            {"analyst": "ada", "epsilon": told["epsilon"], "of": pytest.approx(1.25)}
        ]
        assert "analyst ada: epsilon" in run("ledger", "show", "north/north.ledger").output
        plan(out="second")
        refused(run(*asked, "--key", "ada.key"), "site 'north'", "limit of analyst 'ada'")
        assert json.loads(run("site", "status", "north", "--json").output)["reserved"] == []
    told = json.loads(Path("hospitals/federation.json").read_text())
    assert told["analysts"] == [{"name": "ada", "key": key["ada"]}]
    told |= {"analysts": [{"name": "bob", "key": key["bob"]}]}
    del told["sha256"]
    Path("north/federation.json").write_text(checksummed_json(told))
    assert "does not list any of the federation" in run("site", "doctor", "north").output


@pytest.mark.audit
def test_nine_commands_from_nothing_to_a_fitted_model(folder):
    made_federation("--min-sites", "3")  # 3 + 1
    Path("hospitals/fit.toml").write_text(
        f'model = "MomentOLS"\n{FIT}epsilon = 2.0\ndelta = 1e-6\ncheckpoint = "rounds"\n'
    )
    with sites_up():  # 3; with Flower one more for its server
        fitted = run("federation", "fit", "hospitals/fit.toml")  # 1
        assert fitted.exit_code == 0, fitted.output
        assert "MomentOLS" in fitted.output
        told = json.loads(Path("hospitals/fit.json").read_text())
        assert told["sites"] == list(NAMES)
        assert told["spent"]["epsilon"] == pytest.approx(2.0)
        np.testing.assert_array_equal(pi.load_results("hospitals/fit.npz").params, told["params"])
        refused(run("federation", "fit", "hospitals/fit.toml"), "already exists")
        again = run("federation", "fit", "hospitals/fit.toml", "--overwrite", "--json")
        assert json.loads(again.output)["params"] == told["params"]  # the checkpoint's, at no charge
        status = json.loads(run("site", "status", "north", "--json").output)
        assert status["answers"]
        assert (status["rows"], status["of"]) == (ROWS, pytest.approx(4.0))
        assert status["epsilon"] == pytest.approx(2.0)
        assert 0.0 < status["left"] < 4.0
        assert "epsilon 2 of 4" in run("site", "status", "north").output
    with SiteLedger("north/north.ledger") as ledger:
        assert len(ledger) == 1
    assert "unchanged" in run("site", "rebase", "north").output
    assert "does not answer" in run("site", "status", "north").output


def test_no_secret_leaves_the_sites_folder(folder):
    made_federation()
    secrets = [Path(name, f"{name}.key").read_text().split()[0] for name in NAMES]
    secrets.append(Path("hospitals/analyst.key").read_text().split()[0])
    secrets += [Path(name, "node.key").read_text().splitlines()[1] for name in NAMES]
    for path in Path("hospitals").rglob("*"):
        if path.is_file() and path.name != "analyst.key":
            assert not any(secret in path.read_text() for secret in secrets)
    assert Path("hospitals/analyst.key").stat().st_mode & 0o077 == 0
    for name in NAMES:
        assert not any(secret in Path(name, f"{name}.bundle.json").read_text() for secret in secrets)
        for file in (f"{name}.key", "node.key", f"{name}.ledger"):
            assert Path(name, file).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("trust", ["secure-sum", "server"])
def test_without_noise_every_model_is_that_of_pooled_rows(tmp_path, model, trust):
    (tmp_path / "fit.toml").write_text(
        f'{MODELS[model]}\n{FIT}trust = "{trust}"\nepsilon = inf\ndelta = 1e-6\n'
    )
    (tmp_path / "schema.json").write_text(json.dumps(pi.Schema(SCHEMA).to_dict()))
    plan = read_plan(tmp_path / "fit.toml", tmp_path / "schema.json", simulation=True)
    told = run_plan(plan, in_process())
    rows = pd.concat(map(table, NAMES))
    X = sm.add_constant(rows[["age", "dose"]])
    family = sm.families.Gaussian() if model == "MomentOLS" else getattr(sm.families, model.capitalize())()
    expected = sm.GLM(rows["ill"], X, family=family).fit(tol=1e-14, maxiter=200)
    np.testing.assert_allclose(told["params"], expected.params, rtol=1e-6 if model != "MomentOLS" else 1e-8)
    assert told["spent"]["epsilon"] == "inf"
    assert json.loads((tmp_path / "fit.json").read_text()) == told


def in_process():
    keys, roster = pinned_keys(NAMES)
    policy = SitePolicy(trusted_server=True, secure_sums=True, simulation=True)
    schema = pi.Schema(SCHEMA)
    return InProcessFederation(
        {name: Site(table(name), schema, policy=policy, key=keys[name], roster=roster) for name in NAMES}
    )


@pytest.mark.parametrize("model", ["Poisson", "NegativeBinomial"])
def test_counts_with_an_exposure_are_those_of_pooled_rows(tmp_path, model):
    (tmp_path / "fit.toml").write_text(
        f'model = "{model}"\nformula = "ill ~ age"\nexposure = "dose"\nout = "fit"\nepsilon = inf\n'
    )
    schema = pi.Schema(SCHEMA | {"dose": (0.5, 10)})
    (tmp_path / "schema.json").write_text(json.dumps(schema.to_dict()))
    plan = read_plan(tmp_path / "fit.toml", tmp_path / "schema.json", simulation=True)
    rows = {name: table(name).assign(dose=lambda d: d["dose"].clip(0.5)) for name in NAMES}
    policy = SitePolicy(trusted_server=True, secure_sums=True, simulation=True)
    keys, roster = pinned_keys(NAMES)
    sites = {name: Site(rows[name], schema, policy=policy, key=keys[name], roster=roster) for name in NAMES}
    told = run_plan(plan, InProcessFederation(sites))
    pooled = pd.concat(rows.values())
    expected = (
        getattr(pi, model)
        .from_formula("ill ~ age", pooled, schema=schema, exposure="dose")
        .fit(epsilon=np.inf)
    )
    assert told["names"] == ["Intercept", "age"]
    np.testing.assert_allclose(told["params"], expected.params, rtol=1e-4)


@pytest.mark.parametrize("trust", ["secure-sum", "server"])
def test_a_plan_that_was_refused_is_repaired_in_its_file(trust, tmp_path):
    """The checkpoint that the file names is not in the way, whatever else is changed."""
    (tmp_path / "schema.json").write_text(json.dumps(pi.Schema(SCHEMA).to_dict()))
    keys, roster = pinned_keys(NAMES)
    policy = SitePolicy(trusted_server=True, secure_sums=True)
    sites = {
        name: Site(
            table(name),
            pi.Schema(SCHEMA),
            policy=policy,
            key=keys[name],
            roster=roster,
            ledger=pi.Ledger(pi.Budget(epsilon=2.0, delta=1e-6)),
        )
        for name in NAMES
    }

    def told(epsilon, trust, more=""):
        (tmp_path / "fit.toml").write_text(
            f'{MODELS["binomial"]}\n{FIT}trust = "{trust}"\nepsilon = {epsilon}\ndelta = 1e-6\n'
            f'checkpoint = "fit.rounds"\n{more}'
        )
        plan = read_plan(tmp_path / "fit.toml", tmp_path / "schema.json")
        return run_plan(plan, InProcessFederation(sites))

    with pytest.raises(BudgetExceededError, match="nothing was recorded or released"):
        told(3.0, "secure-sum")
    with pytest.raises(BudgetExceededError, match="nothing was recorded or released"):
        told(3.0, "server")
    with pytest.raises(ArgumentError, match="'max_colluding' can be used only with trust = \"secure-sum\""):
        told(1.5, "server", "[options]\nmax_colluding = 1\n")
    assert told(1.5, trust)["names"] == ["Intercept", "age", "dose"]


@pytest.mark.audit
def test_other_plans(tmp_path):
    (tmp_path / "schema.json").write_text(json.dumps(pi.Schema(SCHEMA).to_dict()))

    def told(text, *, simulation=True):
        (tmp_path / "fit.toml").write_text(text + 'schema = "schema.json"\n' if "[" not in text else text)
        return run_plan(
            read_plan(tmp_path / "fit.toml", tmp_path / "schema.json", simulation=simulation),
            in_process(),
            overwrite=True,
        )

    price = "epsilon = 3.0\ndelta = 1e-5\nseed = 1\n"
    descent = told(
        f'{MODELS["binomial"]}\n{FIT}{price}[optimizer]\nname = "DPSGD"\nepochs = 1\nbatches = 2\n'
    )
    assert len(descent["params"]) == 3
    robust = told(f'{MODELS["MomentOLS"]}\n{FIT}{price}[options]\ncov_type = "HC0"\n')
    assert len(robust["bse"]) == 3
    lasso = told(f'model = "DebiasedLasso"\n{FIT}{price}trust = "server"\n[options]\ntargets = ["dose"]\n')
    assert lasso["names"] == ["dose"]
    times = told(
        'model = "PHReg"\nformula = "age ~ dose"\nout = "fit"\nstatus = "ill"\nhorizon = 80\n'
        "epsilon = 300.0\ndelta = 1e-5\nseed = 1\n"
    )
    assert times["names"] == ["dose"]
    assert "PHReg" in times["summary"]
    sums = told(
        f'statistic = "column_sums"\n{FIT}mu = 1.0\nseed = 1\n[args]\ncolumns = [1, 2]\nbound = 90.0\n'
    )
    assert len(sums["values"]) == 2
    assert sums["spent"] == {"mu": 1.0}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"{FIT}epsilon = 1.0\n", "set either model"),
        (f'model = "OLS"\n{FIT}epsilon = 1.0\n', 'over sites, OLS is model = "MomentOLS"'),
        (f'model = "Logit"\n{FIT}epsilon = 1.0\n', 'model = "FederatedGLM" with family = "binomial"'),
        (f'model = "Probit"\n{FIT}epsilon = 1.0\n', "the key 'model' must be one of"),
        (f'model = "statistic"\n{FIT}epsilon = 1.0\n', "the key 'model' must be one of"),
        (f'model = "MomentOLS"\n{FIT}', "set the privacy budget"),
        (f'model = "MomentOLS"\n{FIT}epsilon = inf\n', "--simulation"),
        (f'model = "MomentOLS"\n{FIT}epsilon = 1.0\nseed = 3\n', "--simulation"),
        (f'model = "MomentOLS"\n{FIT}epsilon = "1"\n', "epsilon must be a number"),
        (f'model = "MomentOLS"\n{FIT}epsilon = 1.0\nfamly = "x"\n', "'famly' is not a key of a plan"),
        (f'model = "MomentOLS"\n{FIT}epsilon = 1.0\nstatus = "x"\n', "'status' is available only for PHReg"),
        (f'model = "PHReg"\n{FIT}epsilon = 1.0\n', "set status to the name"),
        (f'model = "PHReg"\n{FIT}epsilon = 1.0\nstatus = "x"\nhorizon = "5"\n', "horizon must be a number"),
        (
            f'model = "PHReg"\n{FIT}epsilon = 1.0\nstatus = "x"\nfamily = "poisson"\n',
            "the key 'family' is available only for",
        ),
        (
            f'model = "MomentOLS"\n{FIT}epsilon = 1.0\nfamily = "poisson"\n',
            "the key 'family' is available only for",
        ),
        (
            f'model = "PHReg"\n{FIT}mu = 1.0\nstatus = "x"\nfamily = "binomial"\ncheckpoint = "rounds"\n',
            "'family' is available only for .*, and the key 'checkpoint' is available only for .*; omit both",
        ),
        (
            f'model = "MomentOLS"\n{FIT}epsilon = 1.0\n[options]\nmargins = true\n',
            "has 'margins', which is not an option",
        ),
        (
            f'model = "MomentOLS"\n{FIT}mu = 1.0\n[optimizer]\nname = "DPSGD"\n',
            "is available only for FederatedGLM",
        ),
        (f'model = "FederatedGLM"\n{FIT}mu = 1.0\n[optimizer]\nname = "DPSGD"\nk = 3\n', "is not an"),
        (f'model = "FederatedGLM"\n{FIT}epsilon = 1.0\n[optimizer]\nname = "DPSGD"\nepochs = 0\n', "epochs"),
        (f'model = "MomentOLS"\n{FIT}epsilon = 1.0\n[args]\nbound = 1.0\n', "is only for a statistic"),
        (
            f'model = "DebiasedLasso"\n{FIT}epsilon = 1.0\ncheckpoint = "x"\n',
            "the key 'checkpoint' is available only for",
        ),
        (
            f'model = "MomentOLS"\n{FIT}epsilon = 1.0\ncheckpoint = 5\n',
            "set checkpoint to a non-empty",
        ),
        (f'model = "MomentOLS"\n{FIT}epsilon = 1.0\nschema = 5\n', "set schema to a non-empty string"),
        (f"statistic = 5\n{FIT}mu = 1.0\n", "set statistic to a non-empty string"),
        ('model = "MomentOLS"\nformula = "y ~ x"\nout = ""\nmu = 1.0\n', "set out to a non-empty string"),
        ("model = ", "not a valid TOML file"),
        (
            f'{MODELS["poisson"]}\n{FIT}mu = 1.0\n[options]\nexposure = "dose"\n',
            "is a key of the plan: write it above the table",
        ),
        (
            f'model = "FederatedGLM"\nfamily = "negative-binomial"\n{FIT}mu = 1.0\n',
            'set model = "NegativeBinomial"',
        ),
        (f'{MODELS["binomial"]}\n{FIT}mu = 1.0\nexposure = "dose"\n', "only for models of counts"),
        (f'model = "Poisson"\n{FIT}mu = 1.0\nexposure = 5\n', "set exposure to the name of a column"),
        (f'model = "PHReg"\n{FIT}mu = 1.0\nstatus = "x"\noffset = "dose"\n', "'offset' is available only"),
    ],
)
def test_a_plan_is_refused_before_anything_is_asked(tmp_path, text, told):
    (tmp_path / "fit.toml").write_text(text)
    (tmp_path / "schema.json").write_text(json.dumps(pi.Schema(SCHEMA).to_dict()))
    with pytest.raises(ArgumentError, match=told):
        read_plan(tmp_path / "fit.toml", tmp_path / "schema.json")


def test_no_noise_needs_policies_that_allow_it(tmp_path):
    (tmp_path / "fit.toml").write_text(f'model = "MomentOLS"\n{FIT}epsilon = inf\ntrust = "server"\n')
    (tmp_path / "schema.json").write_text(json.dumps(pi.Schema(SCHEMA).to_dict()))
    plan = read_plan(tmp_path / "fit.toml", tmp_path / "schema.json", simulation=True)
    policy, schema = SitePolicy(trusted_server=True), pi.Schema(SCHEMA)
    sites = InProcessFederation({name: Site(table(name), schema, policy=policy) for name in NAMES})
    with pytest.raises(NotAvailableError, match="without noise"):
        run_plan(plan, sites)
    assert not (tmp_path / "fit.json").exists()


def spoil(what):
    site = Path("north")
    match what:
        case "key":
            os.chmod(site / "north.key", 0o644)
        case "ledger":
            os.chmod(site / "north.ledger", 0o660)
        case "gone":
            (site / "north.ledger").unlink()
        case "policy":
            (site / "policy.json").write_text("{}")
        case "few":
            (site / "policy.json").write_text('{"secure_sums": true, "min_sites": 4}')
        case "roster":
            other = {name: key.public for name, key in pinned_keys(NAMES)[0].items()}
            (site / "roster.json").write_text(Roster(other).to_json())
        case "other key":
            (site / "north.key").unlink()
            IdentityKey().save(site / "north.key")
        case "schema":
            schema = pi.Schema({**SCHEMA, "age": (0, 100)})
            (site / "schema.json").write_text(json.dumps(schema.to_dict()))
        case "socket":
            text = (site / "site.toml").read_text()
            (site / "site.toml").write_text(text.replace("north.sock", f"{'n' * 100}.sock"))
        case "federation":
            (site / "federation.json").unlink()
        case "torn":
            (site / "federation.json").write_text("{")


FINDINGS = {
    "key": "is accessible to other accounts",
    "ledger": "is accessible to other accounts",
    "gone": "is missing",
    "policy": "allows no queries",
    "few": "secure sums of at least 4 sites",
    "roster": "was changed after the site",
    "other key": "does not have this site",
    "schema": "differs from the federation's schema",
    "socket": "more than 100 bytes",
    "federation": "is missing",
    "torn": "not valid JSON",
}


def test_the_doctor_names_what_is_wrong_and_up_does_not_start_it(folder):
    made_federation()
    well = run("site", "doctor", "north")
    assert (well.exit_code, well.output.strip()) == (0, "no problems found")
    kept = {path.name: path.read_bytes() for path in Path("north").iterdir()}
    for what, told in FINDINGS.items():
        spoil(what)
        found = run("site", "doctor", "north", "--json")
        assert found.exit_code == 2, what
        errors = [one["what"] for one in json.loads(found.output) if one["level"] == "error"]
        assert any(told in one for one in errors), (what, errors)
        assert sum("accessible" in one for one in errors) <= 1, (what, errors)  # with one remedy
        refused(run("site", "up", "north"), "was not started")
        assert not Path("north/north.sock").exists()
        for path in Path("north").iterdir():
            if path.name not in kept:
                path.unlink()
        for name, content in kept.items():
            Path("north", name).write_bytes(content)
            os.chmod(Path("north", name), 0o600)


def test_the_doctor_warns(folder):
    for name in NAMES:
        assert init(name, "--trust", "server", "--simulation").exit_code == 0
    os.chmod("north.csv", 0o644)
    os.chmod("north/north.ledger", 0o644)  # it may be read, and is
    told = run("site", "doctor", "north").output
    opened = ["north.csv can be read by other accounts", "north/north.ledger is accessible to other accounts"]
    for word in ("sums without noise", "releases without noise", *opened):
        assert f"warning: {word}" in told or word in told


def test_a_template_of_the_schema_is_to_be_filled_in(folder):
    made = run("site", "init", "north", "--data", "north.csv", "--epsilon", "4", "--delta", "1e-6")
    assert made.exit_code == 0, made.output
    assert "fill in" in made.output
    assert json.loads(Path("north/north.bundle.json").read_text())["schema"] is None
    assert "are missing in the schema" in run("site", "doctor", "north").output


def test_the_plan_that_init_writes_names_what_to_fill_in(folder):
    made_federation()
    plan_file = Path("hospitals/fit.toml")
    written = plan_file.read_text()
    assert '"PHReg" with status' in written
    refused(run("federation", "fit", plan_file), "replace the text 'FILL IN: y ~ a + b' by the formula")
    plan_file.write_text(written.replace('model = "FederatedGLM"', 'model = "KaplanMeier"'))
    refused(run("federation", "fit", plan_file), "in Python", "pi.survival.KaplanMeier")
    plan_file.write_text(written.replace("FILL IN: y ~ a + b", "ill ~ age + dose"))
    assert read_plan(plan_file, Path("hospitals/schema.json")).formula == "ill ~ age + dose"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["site", "init", "../x", "--data", "north.csv"], "a letter, a digit"),
        (["site", "init", "none", "--data", "none.csv"], "none.csv does not exist"),
        (["site", "init", "full", "--data", "north.csv"], "already exists"),
        (["federation", "init", "full", "schema.json"], "already exists"),
        (["federation", "init", "new", "schema.json"], "cannot read the text as a site's bundle"),
        (["federation", "init", "new", "one.json", "one.json"], "belong to the same site"),
        (["federation", "init", "new", "path.json", "one.json"], "a letter, a digit"),
        (
            ["federation", "init", "new", "old.json", "one.json"],
            "in a format that this version of privinf reads",
        ),
        (["federation", "init", "new", "one.json", "--analyst", "ada"], "must be NAME=KEY"),
        (
            ["site", "init", "new", "--data", "north.csv", "--analyst", "ada=1"],
            "must be a public Ed25519 key",
        ),
    ],
)
def test_init_refuses_in_one_line(folder, given, told):
    Path("full").mkdir()
    one = {
        "format": "privinf-site-bundle",
        "version": 2,
        "name": "one",
        "public": "1" * 64,
        "verifying": "1" * 64,
        "node": "n",
        "socket": "s",
        "schema": None,
    }
    Path("one.json").write_text(checksummed_json(one))
    Path("old.json").write_text(checksummed_json(one | {"version": 1}))
    Path("path.json").write_text(checksummed_json(one | {"name": "../one"}))
    budget = ["--epsilon", "4", "--delta", "1e-6"] if given[0] == "site" else []
    before = sorted(os.listdir())
    refused(run(*given, *budget), told)
    assert sorted(os.listdir()) == before


def test_bundles_of_other_schemas_make_no_federation(folder):
    assert init("north").exit_code == 0
    schema = pi.Schema({**SCHEMA, "age": (0, 100)})
    Path("schema.json").write_text(json.dumps(schema.to_dict()))
    assert init("south").exit_code == 0
    made = run("federation", "init", "new", "north/north.bundle.json", "south/south.bundle.json", "--sockets")
    refused(made, "the schema of site 'south' differs")


def test_certificates_and_keys_of_nodes():
    x509 = pytest.importorskip("cryptography.x509")
    key, authority, server_key, server = certificates(["server.example", "127.0.0.1"], 30)
    root, leaf = (x509.load_pem_x509_certificate(pem.encode()) for pem in (authority, server))
    leaf.verify_directly_issued_by(root)
    root.verify_directly_issued_by(root)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["server.example"]
    assert 29.9 < days_left(server) < 30.0
    assert len({key, server_key}) == 2
    secret, public = node_key()
    assert secret.startswith("-----BEGIN OPENSSH PRIVATE KEY-----")
    assert public.startswith("ecdsa-sha2-nistp384 ")


def test_a_federation_with_certificates(folder):
    for name in NAMES:
        assert init(name).exit_code == 0
    bundles = [f"{name}/{name}.bundle.json" for name in NAMES]
    assert run("federation", "init", "hospitals", *bundles, "--days", "20", "--port", "1234").exit_code == 0
    assert run("federation", "init", "far", *bundles, "--host", "server.example").exit_code == 0
    certificate = x509.load_pem_x509_certificates(Path("far/server.pem").read_bytes())[0]
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["server.example", "localhost"]
    assert str(names.get_values_for_type(x509.IPAddress)[0]) == "127.0.0.1"  # where federation up connects
    for name in ("ca.key", "server.key"):
        assert Path("hospitals", name).stat().st_mode & 0o077 == 0
    told = json.loads(Path("hospitals/federation.json").read_text())
    assert told["address"] == "localhost:1234"
    assert "PRIVATE" not in json.dumps(told)
    Path("north/federation.json").write_bytes(Path("hospitals/federation.json").read_bytes())
    pytest.importorskip("flwr")
    found = run("site", "doctor", "north").output
    assert "certificates of the federation expire in" in found
    assert "under the account that can read the rows" in found


def test_what_the_kit_does_is_told_in_json(folder):
    """Every command that ends: one JSON object, with what the next one needs."""

    def told(*given):
        result = run(*given, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    for name in NAMES:
        words = ("--data", f"{name}.csv", "--schema", "schema.json", "--epsilon", 4, "--delta", "1e-6")
        site = told("site", "init", name, *words)
        assert (site["site"], site["fill_in"], Path(site["bundle"]).exists()) == (name, [], True)
    joined = told("federation", "init", "all", *(f"{name}/{name}.bundle.json" for name in NAMES), "--sockets")
    assert (joined["sites"], Path(joined["federation"]).exists()) == (list(NAMES), True)
    key = told("site", "key", "own.key")
    assert key == told("site", "key", "own.key")
    other = told("site", "key", "other.key")
    words = [f"{name}={one['public']}:{one['verifying']}" for name, one in (("a", key), ("b", other))]
    roster = told("site", "roster", *words, "--out", "roster.json")
    pinned = Roster.from_json(Path("roster.json").read_text())
    assert (roster["digest"], roster["signed"]) == (pinned.digest, True)
    assert told("analyst", "key", "ada.key")["key"] == IdentityKey.load("ada.key").verifying
    design = told("site", "design", "ill ~ age", "--schema", "schema.json")
    assert pi.Design.from_formula("ill ~ age", pi.Schema(SCHEMA)).digest in design["digests"]
    made = told("ledger", "create", "--site", "a.ledger", "--mu", 2)
    assert (made["ledger"], made["site"]) == ("a.ledger", True)
    assert told("ledger", "anchor", "a.ledger")["lines"] == 2
    assert told("ledger", "free", "a.ledger", "--all")["given_back"] == []
    assert told("site", "rebase", "north")["done"] == "pinned"
