"""A site's ledger is bound to rows in order, schema and policy: others are refused until it is recorded."""

from __future__ import annotations

import json
import secrets
from dataclasses import replace
from uuid import UUID

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import privinf as pi
from privinf.accounting import Budget, entries, journal
from privinf.cli import main
from privinf.errors import ArgumentError, BudgetExceededError, NotAvailableError, StorageError
from privinf.federation import InProcessFederation, Query, Site, SiteLedger, SitePolicy, TrustedServer
from privinf.federation.sessions import Journal
from privinf.federation.site_ledger import FileJournal
from privinf.mechanisms.opened import OpenedRows
from privinf.mechanisms.rows import Rows

SCHEMA = pi.Schema({"y": (-3.0, 3.0), "u": (-2.0, 2.0), "g": ["r", "s"], "k": [1, 2]})
POLICY = SitePolicy(trusted_server=True)
ROWS = 9_000  # more than a block


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "y": rng.normal(size=ROWS),
            "u": np.round(rng.normal(size=ROWS), 3),
            "g": rng.choice(["r", "s"], ROWS),
            "k": rng.choice([1, 2], ROWS),
        }
    )


def digest(data, schema=SCHEMA, key=b"k"):
    return OpenedRows(Rows(data), schema).digest(key)


@pytest.fixture
def served(tmp_path):
    """Serve rows under the one ledger, and return how many lines it had then and has now."""

    def serve(rows, schema=SCHEMA, policy=POLICY, **options):
        with SiteLedger(
            tmp_path / "north.ledger", Budget(mu=5.0), anchor=tmp_path / "anchors" / "a"
        ) as ledger:
            before = ledger.head.count
            Site(rows, schema, policy=policy, ledger=ledger, **options)
            return before, ledger.head.count

    return serve


def test_one_table_has_one_digest_from_every_file_and_in_every_block(table, tmp_path, monkeypatch):
    table.to_csv(tmp_path / "rows.csv", index=False)
    table.assign(note="x").to_parquet(tmp_path / "rows.parquet", row_group_size=700)
    table.astype({"g": "category", "k": "int8"}).to_parquet(tmp_path / "typed.parquet")
    found = digest(table)
    for name in ("rows.csv", "rows.parquet", "typed.parquet"):
        assert digest(tmp_path / name) == found
    assert digest(table[["k", "g", "u", "y"]]) == found
    monkeypatch.setattr("privinf.mechanisms.opened.BLOCK", 77)
    assert digest(table) == found
    assert digest(table, key=b"other") != found
    wider = pi.Schema({**SCHEMA.columns, "g": ["t", "s", "r"], "y": (-9.0, 9.0)})
    assert digest(table, wider) == found


def changed_tables(table):
    swapped = table.copy()
    swapped.iloc[[5, 8_500]] = table.iloc[[8_500, 5]].to_numpy()
    beyond = table.copy()
    beyond.loc[beyond["u"].idxmax(), "u"] += 1.0  # beyond its bounds, where sums clip it
    level = table.copy()
    level.loc[7, "g"] = "s" if table["g"][7] == "r" else "r"
    moved = table.copy()
    moved.loc[:1, ["y", "u"]] = table.loc[:1, ["u", "y"]].to_numpy()
    return {
        "swapped": swapped,
        "shuffled": table.sample(frac=1.0, random_state=0),
        "beyond": beyond,
        "level": level,
        "columns": moved,
        "last": table.iloc[:-1],
        "last bit": table.assign(y=np.nextafter(table["y"], 9.0)),
    }


def test_every_change_of_rows_has_another_digest_and_is_refused(table, served):
    found = digest(table)
    assert served(table) == (1, 2)
    assert served(table) == (2, 2)
    for name, other in changed_tables(table).items():
        assert digest(other) != found, name
        with pytest.raises(StorageError, match="Restore them, or record"):
            served(other)
    assert served(table) == (2, 2)


def test_a_csv_cut_in_mid_number_is_refused(table, tmp_path, served):
    path = tmp_path / "rows.csv"
    table[["g", "k", "u", "y"]].to_csv(path, index=False)
    served(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-6])  # the last number has lost digits, and no row is missing
    with pytest.raises(StorageError, match=f"{ROWS} rows as before, but with other values, in another order"):
        served(path)
    path.write_bytes(whole[: whole.rindex(b"\n", 0, len(whole) // 2) + 10])
    with pytest.raises(StorageError, match=r"near line \d+ \(the line has too few fields\)"):
        served(path)
    path.write_bytes(whole)
    served(path)


def test_another_schema_or_policy_is_refused(table, served):
    served(table)
    with pytest.raises(StorageError, match="have changed: schema"):
        served(table, pi.Schema({**SCHEMA.columns, "y": (-4.0, 4.0)}))
    for policy in (replace(POLICY, min_sites=3), replace(POLICY, largest_rho=1.0), SitePolicy()):
        with pytest.raises(StorageError, match="have changed: policy"):
            served(table, policy=policy)
    with pytest.raises(StorageError, match=r"changed: rows .* and schema and policy"):
        served(table.iloc[:9], pi.Schema({**SCHEMA.columns, "y": (-4.0, 4.0)}), SitePolicy())
    served(table, pi.Design.from_formula("y ~ u", SCHEMA))  # a model to be ready for is no change
    served(table, policy=replace(POLICY, min_sites=2))  # said, or by default: the same


def test_arrays_are_bound_too(served):
    rng = np.random.default_rng(1)
    y, X = rng.normal(size=90), rng.normal(size=(90, 2))
    design = pi.schema.Design.from_arrays(["a", "b"], bounds=[(-1, 1)] * 2, y_bounds=(-2, 2))
    served((y, X), design)
    served((y, np.asfortranarray(X)), design)
    for rows in ((y[::-1], X), (y, X[:, ::-1]), (y[:-1], X[:-1])):
        with pytest.raises(StorageError, match="have changed: rows"):
            served(rows, design)


def test_rows_without_places_are_bound_in_any_order(table, served):
    kept = table.iloc[:500]

    def query(step):
        return Rows(kept.iloc[::step], ordered=False)

    served(query(1))
    served(query(-1))
    with pytest.raises(StorageError, match="have changed: rows"):
        served(query(2))


def test_columns_that_cannot_be_opened_do_not_count_until_they_can(table, served):
    bad = table.assign(y=table["y"].where(table["y"] < 2.5))
    for _ in range(2):
        with pytest.warns(pi.errors.UnavailableColumnsWarning):
            served(bad)
    with pytest.raises(StorageError, match="have changed: rows"):
        served(table)


class Recorded(InProcessFederation):
    """A federation that remembers what it is asked."""

    def ask(self, query, sites=None):
        self.asked = query
        return super().ask(query, sites)


def question(site):
    """Return a question that a trusted server has asked a site."""
    federation = Recorded({"north": site})
    arguments = {"columns": [1], "bound": 3.0}
    TrustedServer(federation).vector_sum("column_sums", arguments, mu=0.5, label="s")
    return federation.asked


def test_a_rebase_keeps_charges_and_answers_no_earlier_question_from_new_rows(table, tmp_path):
    def site(rows, policy=POLICY, **options):
        ledger = SiteLedger(tmp_path / "north.ledger", Budget(mu=5.0), anchor=tmp_path / "anchors" / "a")
        return Site(rows, pi.Design.from_formula("y ~ u", SCHEMA), policy=policy, ledger=ledger, **options)

    first = site(table)
    query = question(first)
    assert not first.handle(query, "north").error
    assert len(first.ledger) == 1
    first.ledger.close()
    stricter = site(table, policy=replace(POLICY, min_sites=3), rebase=True)
    assert stricter.ledger.journal.latest_change == ("policy",)
    assert not stricter.handle(query, "north").error  # of the same rows
    stricter.ledger.close()
    again = site(table.iloc[1:], rebase=True)
    assert (len(again.ledger), again.ledger.journal.rebases) == (1, 2)
    assert again.ledger.journal.latest_change == ("rows", "policy")
    assert "before the site's rows or schema" in again.handle(query, "north").error
    later = question(again)
    again.ledger.close()
    again = site(table.iloc[1:])
    assert "before the site's rows or schema" in again.handle(query, "north").error
    assert not again.handle(later, "north").error
    assert len(again.ledger) == 2
    again.ledger.close()
    lines = CliRunner().invoke(main, ["ledger", "show", str(tmp_path / "north.ledger")]).output.splitlines()
    assert lines[-3].endswith(f"recorded a checksum of the site's {ROWS} rows")
    assert "recorded a change of the site's policy, and" in lines[-2]
    assert not lines[-2].endswith("the site refuses to start with other rows")
    assert lines[-1].endswith(f"the site's {ROWS - 1} rows; the site refuses to start with other rows")
    with SiteLedger(tmp_path / "second.ledger") as ledger, pytest.raises(ArgumentError, match="rebase"):
        Site(table, SCHEMA, ledger=ledger, rebase="yes")


def test_batches_of_other_orders_of_rows_are_not_disjoint(table, tmp_path, monkeypatch):
    """A person may be in batch 0 of the rows of before, and in batch 1 of those of now: both are paid for."""

    def asked(rows, batch):
        path, anchor = tmp_path / "north.ledger", tmp_path / "anchors" / "a"
        with SiteLedger(path, Budget(mu=1.0), anchor=anchor) as ledger:
            site = Site(
                rows, pi.Design.from_formula("y ~ 0 + u", SCHEMA), policy=POLICY, ledger=ledger, rebase=True
            )
            batches = {"clip": 1.0, "batches": 2, "batch": batch, "seed": 4}
            least = {"family": "gaussian", "theta": [0.0], "radius": 1.0, "residual_clip": 1.0}
            try:
                TrustedServer(InProcessFederation({"north": site})).vector_sum(
                    "glm.sketched_score", least | batches, mu=0.8, label="s"
                )
            except BudgetExceededError:
                return "refused"
            return round(ledger.total().mu, 6)

    assert asked(table, 0) == 0.8
    assert asked(table.iloc[::-1], 1) == "refused"
    assert asked(table, 1) == "refused"  # put back, they count as others: the ledger does not know them
    monkeypatch.setattr(FileJournal, "place", lambda journal, name: name)
    assert asked(table.iloc[::-1], 1) == 0.8  # the mutant: that person has paid 1.13 of a limit of 1


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_batches_of_two_sites_on_one_plain_ledger_are_not_disjoint(kind, table, tmp_path, monkeypatch):
    """Such a ledger does not know which rows, in which order, were asked before."""
    batches = {"clip": 1.0, "batches": 2, "seed": 4}
    least = {"family": "gaussian", "theta": [0.0], "radius": 1.0, "residual_clip": 1.0}

    def asked_twice(folder):
        place = tmp_path / folder
        place.mkdir()
        ledger = pi.Ledger(Budget(mu=1.0))
        for batch, rows in enumerate((table, table.iloc[::-1])):
            if kind == "file":
                ledger = pi.LedgerFile(place / "l", Budget(mu=1.0), anchor=place / "anchors" / "a")
            site = Site(rows, pi.Design.from_formula("y ~ 0 + u", SCHEMA), policy=POLICY, ledger=ledger)
            TrustedServer(InProcessFederation({"north": site})).vector_sum(
                "glm.sketched_score", least | batches | {"batch": batch}, mu=0.8, label="s"
            )
        return ledger.total().mu

    with pytest.raises(BudgetExceededError):
        asked_twice("held")
    monkeypatch.setattr(Journal, "place", lambda journal, name: name)
    assert asked_twice("mutant") == pytest.approx(0.8)  # and somebody has paid 1.13 of a limit of 1


class Stopped(InProcessFederation):
    """A federation whose analyst's process dies after some questions about rows."""

    left = 99

    def ask(self, query, sites=None):
        self.left -= query.op.startswith("glm.")
        if self.left < 0:
            raise KeyboardInterrupt
        return super().ask(query, sites)


def mixed_fit(table, tmp_path, folder):
    """Return what comes of a fit by batches that was stopped, and goes on when the rows stand otherwise."""
    optimizer = pi.DPSGD(epochs=1, batches=4, final_share=0.2)
    words = {"schema": SCHEMA, "family": "gaussian", "residual_clip": 1.0, "ledger": pi.Ledger()}

    def fit(rows, left):
        path, anchor = tmp_path / f"{folder}.ledger", tmp_path / "anchors" / folder
        with SiteLedger(path, Budget(mu=5.0), anchor=anchor) as ledger:
            site = Site(rows, SCHEMA, policy=POLICY, ledger=ledger, rebase=True)
            federation = Stopped({"north": site})
            federation.left = left
            model = pi.GLM.from_formula("y ~ u", federation, **words)
            return model.fit(mu=1.0, optimizer=optimizer, checkpoint=tmp_path / folder)

    with pytest.raises(KeyboardInterrupt):
        fit(table, 2)
    return fit(table.iloc[::-1], 99)


def test_a_fit_does_not_go_on_with_rows_in_another_order(table, tmp_path, monkeypatch):
    """Its report would take batches of the rows of before and of now for disjoint."""
    with pytest.raises(NotAvailableError, match="before the site's rows or schema"):
        mixed_fit(table, tmp_path, "held")
    monkeypatch.setattr(Journal, "outdate", lambda journal: journal._outdated.update(journal._charged))
    assert mixed_fit(table, tmp_path, "mutant").privacy.mu == pytest.approx(
        1.0
    )  # and some paid for two batches


@pytest.fixture
def same_secrets(monkeypatch):
    """Everything that is drawn for a ledger is the same each time."""
    monkeypatch.setattr(secrets, "token_hex", lambda size: "5a" * size)
    monkeypatch.setattr("privinf.accounting.journal.uuid4", lambda: UUID(int=1))


def heads_of_neighbours(table, tmp_path):
    """Return the heads of the ledgers of two sites that differ in one row, and what stands in their files."""
    other = table.copy()
    other.loc[3, "y"] = 3.0
    found = []
    for place, rows in (("one", table), ("two", other)):
        (tmp_path / place).mkdir(exist_ok=True)
        path = tmp_path / place / "north.ledger"
        with SiteLedger(path, Budget(mu=5.0), anchor=tmp_path / place / "anchors" / "a") as ledger:
            Site(rows, SCHEMA, policy=POLICY, ledger=ledger)
            found.append((ledger.head, path.read_text()))
    return found


def test_no_head_depends_on_rows(table, tmp_path, same_secrets):
    (one, first), (two, second) = heads_of_neighbours(table, tmp_path)
    assert one == two
    assert first != second  # what is pinned differs, and stays in the file


def test_a_digest_in_the_chain_is_seen(table, tmp_path, same_secrets, monkeypatch):
    monkeypatch.setattr(journal, "chained", lambda line, text: text)
    (one, _), (two, _) = heads_of_neighbours(table, tmp_path)
    assert one != two


def test_digests_stay_in_the_file(table, tmp_path):
    path, run = tmp_path / "north.ledger", CliRunner()
    with SiteLedger(path, Budget(mu=5.0), anchor=tmp_path / "anchors" / "a") as ledger:
        site = Site(table, SCHEMA, policy=POLICY, ledger=ledger)
        pin = ledger.journal.pin
        told = [
            site.handle(Query("describe"), "north").pack()[0],
            repr(site),
            repr(ledger),
            ledger.to_json(),
        ]
        told += [str(entries.LedgerEntry), repr(ledger.head)]
    with (
        pytest.raises(StorageError) as problem,
        SiteLedger(path, anchor=tmp_path / "anchors" / "a") as ledger,
    ):
        Site(table.iloc[1:], SCHEMA, policy=SitePolicy(), ledger=ledger)
    told += [
        str(problem.value),
        *(run.invoke(main, ["ledger", "show", str(path), *more]).output for more in ([], ["--json"])),
    ]
    assert f"the first start of the site recorded a checksum of the site's {ROWS} rows" in told[-2]
    assert json.loads(told[-1])["bound"] == [{"rows": ROWS, "changed": []}]
    for text in told:
        assert not any(secret in text for secret in (pin.data, pin.schema, pin.policy, pin.salt))
    assert pin.data in path.read_text()


def test_a_changed_pin_is_refused(table, tmp_path, served):
    served(table)
    path = tmp_path / "north.ledger"
    whole = path.read_text()
    line = json.loads(whole.splitlines()[1].partition(" ")[2])
    data = line["private"]["rows_digest"]
    for other in (
        whole.replace(data, "0" * 64),
        whole.replace(data, data + " "),
        whole.replace(f'"rows": {ROWS}', '"rows": 9'),
    ):
        assert other != whole
        path.write_text(other)
        with pytest.raises(StorageError):
            served(table)
    path.write_text(whole)
    served(table)
