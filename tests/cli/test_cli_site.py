"""``privinf site``: keys, rosters, and a daemon from files; every mistake in one line."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from privinf.accounting import Budget
from privinf.cli import main, sites
from privinf.errors import NotAvailableError
from privinf.federation import (
    IdentityKey,
    Query,
    RemoteSite,
    Roster,
    SiteDaemon,
    SiteLedger,
    SocketFederation,
    TrustedServer,
)
from privinf.schema import Design, Schema

SECRET = "4242424242"
SCHEMA = {"columns": {"y": {"low": -3, "high": 3}, "u": {"low": -2, "high": 2}, "g": {"levels": ["r", "s"]}}}
PRICE = {"mu": 0.5, "label": "sums"}
COLUMNS = {"columns": [1, 2], "bound": 3.0}
CALL = {
    "--name": "north",
    "--data": "rows.csv",
    "--schema": "schema.json",
    "--policy": "policy.json",
    "--ledger": "north.ledger",
    "--socket": "north.sock",
}


class Door:
    """One site behind a socket as a federation."""

    sites = ("north",)

    def __init__(self, path):
        self.remote, self.sent = RemoteSite(path, timeout=600.0), []

    def ask(self, query, sites=None):
        self.sent.append(query)
        return [self.remote.handle(query, "north")]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A holder's folder, with what the shortest call needs."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"u": rng.normal(size=50), "g": rng.choice(["r", "s"], 50)})
    table.assign(y=rng.normal(size=50)).to_csv("rows.csv", index=False)
    (tmp_path / "rows.csv").chmod(0o600)
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    (tmp_path / "policy.json").write_text('{"trusted_server": true, "operations": ["column_sums"]}')
    (tmp_path / "keyed.json").write_text('{"secure_sums": true}')
    SiteLedger("north.ledger", Budget(epsilon=4, delta=1e-6)).close()
    return tmp_path


def run(*given):
    return CliRunner().invoke(main, ["site", *given], prog_name="privinf")


def words(**changes):
    options = CALL | {f"--{name.replace('_', '-')}": value for name, value in changes.items()}
    return [
        "serve",
        *(word for name, value in options.items() if value is not None for word in (name, value)),
    ]


@contextlib.contextmanager
def running(**changes):
    """Start the daemon in a process of its own; end it hard unless it has ended."""
    process = subprocess.Popen(
        [sys.executable, "-m", "privinf", "site", *words(**changes)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert "answers queries at" in process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.audit
def test_a_daemon_from_files_is_killed_and_started_again(folder):
    design = Design.from_formula("y ~ u + g", Schema.from_dict(SCHEMA | {"unit": None, "max_rows": 1}))
    entry_point = Door(folder / "north.sock")
    with running() as process:
        server = TrustedServer(entry_point, design=design)
        found = server.vector_sum("column_sums", COLUMNS, **PRICE)
        expected = np.clip(design.matrix(pd.read_csv("rows.csv")), -3, 3).sum(axis=0)[1:]
        np.testing.assert_allclose(found.values, expected, atol=6.0 * found.scale)
        with pytest.raises(NotAvailableError, match=r"site 'north'.*does not allow"):
            server.gram({"columns": [1], "bound": 1.0}, mu=0.1, label="gram")
        before = entry_point.remote.handle(entry_point.sent[1], "north")
        process.kill()
    # the model is there from the start now, and the limit in the ledger
    with running(formula="y ~ u + g") as process:
        again = entry_point.remote.handle(entry_point.sent[1], "north")
        assert again.sums.tobytes() == before.sums.tobytes()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        told = json.loads(process.stderr.read().splitlines()[0])
        assert (told["op"], told["sequence"], told["event"]) == ("column_sums", 1, "answered")
    assert not (folder / "north.sock").exists()
    with SiteLedger("north.ledger") as ledger:
        assert [entry.label for entry in ledger.entries] == ["sums"]
        assert ledger.budget == Budget(epsilon=4.0, delta=1e-6)


@pytest.mark.audit
def test_other_rows_are_not_served_until_it_is_recorded(folder):
    parts = [word for name in ("--data", "--schema", "--policy", "--ledger") for word in (name, CALL[name])]
    first = json.loads(run("rebase", *parts, "--json").output)
    assert first == {"done": "pinned", "changed": [], "rows": 50, "rows_before": None}
    assert "unchanged" in run("rebase", *parts).output
    whole = (folder / "rows.csv").read_text()
    (folder / "rows.csv").write_text(whole[:-9])
    (folder / "policy.json").write_text('{"trusted_server": true}')
    refused = run(*words())
    assert refused.exit_code == 2
    assert "50 rows as before, but with other values" in " ".join(refused.output.split())
    assert "privinf site rebase" in refused.output
    assert run("rebase", "--ledger", "north.ledger").exit_code == 2
    done = run("rebase", *parts).output
    assert "rebased (rows, policy), 50 rows; all charges are kept" in done
    with running():
        assert run("rebase", *parts).exit_code == 2  # while it is open
    shown = CliRunner().invoke(main, ["ledger", "show", "north.ledger"], prog_name="privinf").output
    assert "a change of the site's rows and policy" in shown


@pytest.mark.audit
def test_a_policy_that_lists_its_designs(folder):
    printed = run("design", "y ~ u + g", "--schema", "schema.json")
    known = Schema.from_dict(SCHEMA | {"unit": None, "max_rows": 1})
    design = Design.from_formula("y ~ u + g", known)
    assert printed.stdout.strip() == design.digest
    assert "g[T.s]" in printed.stderr
    assert run("design", "y ~ z", "--schema", "schema.json").exit_code == 2
    listed = {"trusted_server": True, "new_designs": 0, "designs": [design.digest]}
    (folder / "listed.json").write_text(json.dumps(listed))
    assert sites.read_policy(folder / "listed.json").designs == (design.digest,)
    with running(policy="listed.json"):
        entry_point = Door(folder / "north.sock")
        TrustedServer(entry_point, design=design).vector_sum("column_sums", COLUMNS, **PRICE)
        with pytest.raises(NotAvailableError, match="allows only 0 new designs"):
            TrustedServer(entry_point, design=Design.from_formula("y ~ u", known))
    (folder / "wrong.json").write_text('{"designs": ["y ~ u"]}')
    assert "digests" in run(*words(policy="wrong.json")).output


@pytest.mark.audit
def test_from_keys_to_a_site_for_secure_sums(folder):
    made = run("key", "north.key")
    own, other = IdentityKey.load("north.key"), IdentityKey()
    public = f"{own.public}:{own.verifying}"
    assert (made.exit_code, made.stdout.strip(), "new key" in made.stderr) == (0, public, True)
    again = run("key", "north.key")
    assert (again.stdout.strip(), again.stderr) == (public, "")
    south = f"{other.public}:{other.verifying}".upper()
    written = run("roster", f"south={south}", f"north={public}", "--out", "roster.json")
    keys = {"north": own.public, "south": other.public}
    roster = Roster(keys, {"north": own.verifying, "south": other.verifying})
    assert Roster.from_json((folder / "roster.json").read_text()) == roster
    assert "lists 2 sites" in written.output
    assert roster.digest in written.output
    with running(policy="keyed.json", key="north.key", roster="roster.json"):
        facts = RemoteSite("north.sock").handle(Query("describe"), "north").facts
    assert facts["roster"] == roster.digest
    plain = run("roster", *(f"{name}={key}" for name, key in keys.items()), "--out", "first.json")
    assert "replies of the sites are not signed" in plain.stderr
    assert not Roster.from_json((folder / "first.json").read_text()).signed
    half = run("roster", f"south={other.public}", f"north={public}", "--out", "half.json")
    assert (half.exit_code, "must map each site" in " ".join(half.output.split())) == (2, True)


@pytest.mark.audit
def test_an_analyst_whom_the_policy_lists(folder):
    made = CliRunner().invoke(main, ["analyst", "key", "ada.key"])
    key = IdentityKey.load("ada.key")
    assert made.stdout.strip() == key.verifying
    listed = [{"name": "ada", "key": made.stdout.strip()}]
    (folder / "closed.json").write_text(json.dumps({"trusted_server": True, "analysts": listed}))
    with running(policy="closed.json"):
        with pytest.raises(NotAvailableError, match="signed by an analyst in its policy"):
            SocketFederation({"north": "north.sock"})
        assert SocketFederation({"north": "north.sock"}, key=key).sites == ("north",)
    (folder / "wrong.json").write_text(json.dumps({"analysts": [listed[0] | {"limit": {"mu": 1.0}}]}))
    assert "a list of mappings" in " ".join(run(*words(policy="wrong.json")).output.split())


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"data": "none.csv"}, "no such file"),
        ({"data": "empty.csv"}, "empty.csv: the table has no rows"),
        ({"data": "empty.parquet"}, "empty.parquet: the table has no rows"),
        ({"data": "text.csv"}, "column 'u'"),
        ({"data": "gaps.csv"}, "column 'u' has missing values"),
        ({"formula": "y ~ z"}, "z"),
        ({"ledger": "none.ledger"}, "the ledger 'none.ledger' does not exist"),
        ({"socket": "rows.csv"}, "cannot be created"),
        ({"key": "north.key"}, "--roster"),
        ({"policy": "keyed.json"}, "secure sums need both --key"),
        (
            {"key": "south.key", "roster": "roster.json"},
            "site north with the public key of --key south.key",
        ),
        ({"key": "rows.csv", "roster": "roster.json"}, "is not the key file"),
        ({"key": "north.key", "roster": "rows.csv"}, "the text of the roster"),
        ({"policy": "schema.json"}, "'columns' is not a setting of a policy"),
        ({"policy": "rows.csv"}, "not valid JSON (line 1)"),
        ({"policy": "list.json"}, "JSON object"),
        ({"policy": "texts.json"}, "trusted_server must be true or false"),
        ({"policy": "few.json"}, "min_sites"),
        ({"policy": "op.json"}, "operations must be a list with names from"),
        ({"schema": "policy.json"}, "does not describe a schema"),
        ({"schema": "wide.json"}, "lacks the column 'w'"),
        ({"name": "a=b"}, "name"),
    ],
)
def test_serve_refuses_in_one_line(folder, monkeypatch, changes, told):
    monkeypatch.setattr(SiteDaemon, "serve", lambda daemon: pytest.fail("it serves"))
    files = {
        "list.json": "[]",
        "texts.json": '{"trusted_server": "no"}',
        "few.json": '{"min_sites": 1}',
        "op.json": '{"operations": "column_sums"}',
        "wide.json": json.dumps({"columns": SCHEMA["columns"] | {"w": {"low": 0, "high": 1}}}),
        "empty.csv": "y,u,g\n",
        "text.csv": f"y,u,g\n0,x{SECRET},r\n",
        "gaps.csv": f"y,u,g\n0,,r\n{SECRET},1,r\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    pd.read_csv("rows.csv").iloc[:0].to_parquet("empty.parquet")
    keys = {name: IdentityKey() for name in ("north", "south")}
    for name, key in keys.items():
        key.save(f"{name}.key")
    (folder / "roster.json").write_text(Roster({name: key.public for name, key in keys.items()}).to_json())
    if "data" in changes:
        changes = changes | {"formula": "y ~ u + g"}
    result = run(*words(**changes))
    assert result.exit_code == 2, result.output
    assert told in " ".join(result.output.split())
    assert "Traceback" not in result.output
    assert SECRET not in result.output
    assert (folder / "rows.csv").read_text().startswith("u,g,y")


GAPS = "y,u,g\n0,,r\n1,1,\n-1,0.5,s\n2,1,r\n"


@pytest.mark.parametrize("rule", ["raise", "drop", "impute-public"])
def test_a_site_is_served_by_its_rule_for_missing_values(folder, monkeypatch, rule):
    served = []
    monkeypatch.setattr(SiteDaemon, "serve", lambda daemon: served.append(daemon._server.site))
    (folder / "gaps.csv").write_text(GAPS)
    result = run(*words(data="gaps.csv", missing=None if rule == "raise" else rule))
    assert result.exit_code == 0, result.output
    facts = served[0].description()
    assert facts.get("missing", "raise") == rule
    assert facts["unavailable"] == (["u", "g"] if rule == "raise" else [])
    assert ("column 'u' has missing values" in result.stderr) == (rule == "raise")
    assert "--missing" in result.stderr or rule != "raise"


def test_another_rule_for_missing_values_is_recorded_first(folder, monkeypatch):
    monkeypatch.setattr(SiteDaemon, "serve", lambda daemon: None)
    (folder / "gaps.csv").write_text(GAPS)
    assert run(*words(data="gaps.csv")).exit_code == 0
    refused = run(*words(data="gaps.csv", missing="drop"))
    assert refused.exit_code == 2
    told = " ".join(refused.output.split())
    assert "another rule for missing values" in told
    assert "privinf site rebase" in told
    parts = [word for name in ("--schema", "--policy", "--ledger") for word in (name, CALL[name])]
    done = run("rebase", "--data", "gaps.csv", *parts, "--missing", "drop")
    assert (done.exit_code, "rebased (rows), 4 rows" in done.stdout, done.stderr) == (0, True, "")
    assert run(*words(data="gaps.csv", missing="drop")).exit_code == 0
    assert "column 'u' has missing values" in run("rebase", "--data", "gaps.csv", *parts).stderr
    assert run(*words(data="gaps.csv", missing="guess")).exit_code == 2


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["key", "rows.csv"], "is not the key file"),
        (["key", "no/where.key"], "the folder 'no' does not exist"),
        (["roster", "north", "--out", "r.json"], "NAME=PUBLIC:VERIFYING"),
        (["roster", "north=12", "south=34", "--out", "r.json"], "64 hexadecimal digits"),
        (["roster", f"north={'1' * 64}", f"north={'2' * 64}", "--out", "r.json"], "listed twice"),
        (["roster", f"north={'1' * 64}", "--out", "r.json"], "at least two sites"),
        (["roster", f"a={'1' * 64}", f"b={'2' * 64}", "--out", "rows.csv"], "already exists"),
    ],
)
def test_keys_and_rosters_refuse_in_one_line(folder, given, told):
    result = run(*given)
    assert result.exit_code == 2, result.output
    assert told in " ".join(result.output.split())
    assert not (folder / "r.json").exists()


def test_a_mistake_of_ours_quotes_no_row(folder, monkeypatch):
    monkeypatch.setattr(sites, "read_policy", lambda *a, **k: {}[SECRET])
    result = run(*words())
    assert result.exit_code == 1
    assert "KeyError" in result.output
    assert "a bug in privinf" in result.output
    assert SECRET not in result.output
