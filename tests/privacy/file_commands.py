"""The command line on damaged files: code 2 and a clear line, no traceback, nothing spent, nothing written.

A folder with the files of a study and of a site is made once; every attempt gets a copy in which one file is
damaged.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from click.testing import CliRunner
from file_corpus import Kind
from file_damage import LIMIT, Damage, Rng, Verdict, damage
from support.speed import slowness

from privinf.accounting.journal import Anchor
from privinf.cli import main, sites

N = 200
COLUMNS = {"a": {"age": [18, 90], "sex": ["f", "m"]}, "b": {"bmi": [15, 60], "weight": [40, 160]}}
SITE = {"columns": {"age": {"low": 18, "high": 90}, "sex": {"levels": ["f", "m"]}}}
SERVE = (
    "site serve --name north --data a.csv --schema schema.json --policy policy.json --ledger north.ledger "
    "--key north.key --roster roster.json --socket north.sock --quiet"
)


@dataclass(frozen=True)
class Command:
    """What is typed, which file of it is damaged, and how that file is sealed ("written": JSON by hand)."""

    words: str
    file: str
    seal: str = ""


PLAN = "plan new --epsilon 9 --delta 1e-6 --out new.json"
RELEASE = (
    "release --plan plan.json --party a --data a.csv --roster ids.csv --ledger a.ledger --out new.npz --quiet"
)
COMMANDS = (
    Command("plan check plan.json", "plan.json", "json"),
    Command(f"{PLAN} --n 200 --columns columns.json", "columns.json", "written"),
    Command(f"{PLAN} --n 200 --columns columns.csv", "columns.csv"),
    Command(f"{PLAN} --id id --roster ids.csv --columns columns.json", "ids.csv"),
    *(
        Command(RELEASE, file, seal)
        for file, seal in (("plan.json", "json"), ("a.csv", ""), ("ids.csv", ""), ("a.ledger", "lines"))
    ),
    Command(
        "release --plan plan.json --party b --data b.parquet --ledger b.ledger --out new.npz --quiet",
        "b.parquet",
    ),
    Command("join a.npz b.npz --plan plan.json --out new.npz", "a.npz", "container"),
    Command("fit weight~age+bmi a.npz b.npz --summary new.txt", "b.npz", "container"),
    Command("fit weight~age+bmi joined.npz --summary new.txt", "joined.npz", "container"),
    Command("site key north.key", "north.key", "key"),
    *(
        Command(SERVE, file, seal)
        for file, seal in (
            ("a.csv", ""),
            ("schema.json", "written"),
            ("policy.json", "written"),
            ("north.key", "key"),
            ("roster.json", "json"),
            ("north.ledger", "lines"),
        )
    ),
)


class Silent:
    """A daemon that ends as soon as it would serve."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.path = "north.sock"

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def serve(self) -> None:
        pass

    def stop(self) -> None:
        pass


class Study:
    """A folder with the files of a study, and one to damage them in."""

    def __init__(self, folder: Path) -> None:
        self.whole, self.damaged = folder / "whole", folder / "damaged"
        self.whole.mkdir()
        _make(self.whole)

    def attempt(self, command: Command, rng: Rng) -> tuple[Damage, Verdict]:
        """Damage a file, type the command, and say what came of it."""
        kind = Kind(
            command.file,
            "",
            (self.whole / command.file).read_bytes(),
            Path,
            lambda path: b"",
            seal=command.seal,
        )
        done = damage(kind, rng)
        return done, self.run(command, done.content)

    def run(self, command: Command, content: bytes | None) -> Verdict:
        """Type a command where its file has this content (None: where it is as it was)."""
        shutil.rmtree(self.damaged, ignore_errors=True)
        shutil.copytree(self.whole, self.damaged)
        for name in ("a.ledger", "b.ledger", "north.ledger"):
            made, copied = (Anchor.for_journal((one / name).resolve()) for one in (self.whole, self.damaged))
            remembered = made.read()
            assert remembered is not None
            copied.record(*remembered)  # the folder is copied, the witness outside of it is not
        if content is not None:
            (self.damaged / command.file).write_bytes(content)
        before = _contents(self.damaged)
        begun = time.process_time()
        code, told = _typed(self.damaged, command.words)
        if time.process_time() - begun > LIMIT * slowness():
            return Verdict("hang", f"{time.process_time() - begun:.1f} s")
        if code == 0:
            return Verdict("other")
        if code != 2 or "Traceback" in told:
            return Verdict("foreign exception", f"code {code}: {told[-200:]}")
        if _contents(self.damaged) != before:
            return Verdict("changed", f"a refused command left another folder: {told[-200:]}")
        return Verdict("refused", told)


def _typed(folder: Path, words: str) -> tuple[int, str]:
    home, daemon = Path.cwd(), sites.SiteDaemon
    os.chdir(folder)
    sites.SiteDaemon = Silent  # type: ignore[assignment,misc]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = CliRunner().invoke(main, words.split(), prog_name="privinf")
        return result.exit_code, result.output
    finally:
        os.chdir(home)
        sites.SiteDaemon = daemon


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".lock"}


def _make(folder: Path) -> None:
    rng = np.random.default_rng(5)
    people = pd.DataFrame({"id": rng.permutation(np.arange(1000, 1000 + N))})
    people.to_csv(folder / "ids.csv", index=False)
    age, bmi = rng.uniform(20, 85, N), 15 + 45 * rng.beta(2, 4, N)
    people.assign(age=age.round(3), sex=rng.choice(["f", "m"], N)).to_csv(folder / "a.csv", index=False)
    weight = 30 + 2 * bmi + rng.normal(0, 4, N)
    people.assign(bmi=bmi, weight=weight).sort_values("id").to_parquet(folder / "b.parquet")
    (folder / "columns.json").write_text(json.dumps(COLUMNS))
    (folder / "columns.csv").write_text(
        "party,column,low,high,levels\na,age,18,90,\na,sex,,,f|m\nb,bmi,15,60,\n"
    )
    (folder / "schema.json").write_text(json.dumps(SITE))
    (folder / "policy.json").write_text('{"secure_sums": true, "min_sites": 2, "largest_rho": 2.5}')
    for words in (
        "plan new --columns columns.json --id id --roster ids.csv --epsilon 90 --delta 1e-6 --k 40 --seed 3 "
        "--out plan.json",
        "ledger create a.ledger --epsilon 400 --delta 1e-6",
        "ledger create b.ledger --epsilon 400 --delta 1e-6",
        "release --plan plan.json --party a --data a.csv --ledger a.ledger --out a.npz --seed 1",
        "release --plan plan.json --party b --data b.parquet --ledger b.ledger --out b.npz --seed 2",
        "join a.npz b.npz --plan plan.json --out joined.npz",
        "site key north.key",
        "site key south.key",
    ):
        code, told = _typed(folder, words)
        assert code == 0, told
    keys = {name: _typed(folder, f"site key {name}.key")[1].strip() for name in ("north", "south")}
    pairs = " ".join(f"{name}={key}" for name, key in keys.items())
    for words in (
        f"site roster {pairs} --out roster.json",
        "ledger create --site north.ledger --epsilon 4 --delta 1e-6",
        SERVE,
    ):
        code, told = _typed(folder, words)
        assert code == 0, told
