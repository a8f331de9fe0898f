"""Ledgers put back, deleted, replaced, cut and opened twice: ``python benchmarks/ledger_attacks.py [--tries
N]``.

Three sites have keys, a signed roster, and ledgers with anchors; an asker remembers heads. A try sets all
files to one state, attacks those of "north" (and, in a rollback, of all but one of who could notice it),
starts the sites, and asks for one secure sum. A part of the tries attacks a `LedgerFile`, whose next question
is the next spend. Counted is who noticed, and what nobody did. With every witness put back nobody can: such
tries are counted apart. Writes benchmarks/results/ledger_attacks.md, unless other than 5,000 tries are
wanted.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from privinf.accounting import Budget, GaussianLoss, LedgerEntry
from privinf.accounting.files import LedgerFile
from privinf.accounting.journal import Anchor
from privinf.errors import PrivinfError, StorageError
from privinf.federation import IdentityKey, Query, Roster, SecureServer, Site, SiteLedger, SitePolicy
from privinf.federation.askers import ClientEnvelope
from privinf.federation.envelope import SiteEnvelope
from privinf.schema import Design

TARGET = Path(__file__).parent / "results" / "ledger_attacks.md"
TRIES, STATES, SHARE_OF_FILES = 5_000, 6, 0.3
NAMES = ("north", "south", "west")
KEYS = {name: IdentityKey(bytes([at]) * 32) for at, name in enumerate(NAMES, start=1)}
ROSTER = Roster(
    {name: key.public for name, key in KEYS.items()}, {name: key.verifying for name, key in KEYS.items()}
)
DESIGN = Design.from_arrays(["x"], bounds=[(-1, 1)], y_bounds=(-2, 2))
SCORE = {"columns": [0], "bound": 1.0}
WITNESSES = ("anchor", "peers", "asker")
ALL = "all witnesses put back"


class Ends:
    """Sites in this process, whose questions and replies have their envelopes."""

    def __init__(self, ends: dict[str, SiteEnvelope], memory: Path) -> None:
        self.ends, self.sites = ends, tuple(ends)
        self._end = ClientEnvelope(self.sites, roster=ROSTER, heads=memory)
        for reply in self.ask(Query("describe")):
            if reply.error:
                raise StorageError(reply.error)

    def ask(self, query: Query, sites: Any = None) -> list[Any]:
        """Ask one after the other."""
        found = []
        for name in self.sites if sites is None else sites:
            asked = self._end.envelope_for(query, name)
            reply, fields = self.ends[name].answer(asked, query)
            found.append(self._end.checked(asked, reply, fields))
        self._end.memory.save()
        return found


class World:
    """Folders of three sites and of an asker, and copies of all files at several times."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, rng = folder, np.random.default_rng(seed)
        self.rows = {name: (rng.uniform(-2, 2, 30), rng.uniform(-1, 1, (30, 1))) for name in NAMES}
        for name in NAMES:
            (folder / name / "anchor").mkdir(parents=True)
        self.states: list[dict[Path, bytes]] = []
        for _ in range(STATES):
            self.asked(make=True)
            self.states.append({path: path.read_bytes() for path in self.paths() if path.exists()})

    def ledger(self, name: str) -> Path:
        """Return where a site's ledger is."""
        return self.folder / name / "ledger"

    def anchor(self, name: str) -> Path:
        """Return where its anchor is."""
        return self.folder / name / "anchor" / "file"

    @property
    def memory(self) -> Path:
        """Where the asker remembers heads."""
        return self.folder / "heads.json"

    def paths(self) -> list[Path]:
        """Return all files that count."""
        return [*(one(name) for name in NAMES for one in (self.ledger, self.anchor)), self.memory]

    def of(self, witness: str) -> list[Path]:
        """Return the files of those who could notice that north's ledger went back."""
        if witness == "anchor":
            return [self.anchor("north")]
        if witness == "asker":
            return [self.memory]
        return [one(name) for name in NAMES[1:] for one in (self.ledger, self.anchor)]

    def put(self, state: int, paths: list[Path] | None = None) -> None:
        """Put files as they were at a time."""
        for path in self.paths() if paths is None else paths:
            path.unlink(missing_ok=True)
            if path in self.states[state]:
                path.write_bytes(self.states[state][path])

    def clean(self) -> None:
        """Remove what attacks left beside the files."""
        for name in NAMES:
            for path in (self.folder / name).iterdir():
                if path.is_symlink() or (path.is_file() and path != self.ledger(name)):
                    path.unlink()

    def up(
        self,
        name: str,
        stack: ExitStack,
        path: Path | None = None,
        anchor: Path | None = None,
        *,
        make: bool = False,
    ) -> SiteEnvelope:
        """Open a site."""
        path = self.ledger(name) if path is None else path
        anchor = self.anchor(name) if anchor is None else anchor
        budget = Budget(mu=100.0) if make else None
        opened = SiteLedger(path, budget, anchor=anchor) if make else SiteLedger.open(path, anchor=anchor)
        ledger = stack.enter_context(opened)
        policy = SitePolicy(secure_sums=True)
        return SiteEnvelope(
            Site(self.rows[name], DESIGN, policy=policy, ledger=ledger, key=KEYS[name], roster=ROSTER), name
        )

    def asked(self, *, make: bool = False, live: Any = None, ends: Any = None) -> None:
        """Open all sites, let one thing happen to north's while it is open, and release a sum."""
        with ExitStack() as stack:
            up = {name: self.up(name, stack, make=make) for name in NAMES}
            if live is not None:
                live(stack, up)
            SecureServer(Ends(up, self.memory)).vector_sum("column_sums", SCORE, mu=0.5, label="s")


def rollback(world: World, rng: Any) -> str:
    """Put north's ledger back with some of the witnesses, at least one of whom is left out."""
    back = [one for one in WITNESSES if rng.random() < 0.6]
    everybody = len(back) == len(WITNESSES)
    older = int(rng.integers(STATES - 1))
    world.put(older, [world.ledger("north"), *(path for one in back for path in world.of(one))])
    world.asked()
    return ALL if everybody else "rolled back"


def deletion(world: World, rng: Any) -> str:
    """Delete the ledger, its anchor, or both, and start as ever, or make a new one."""
    gone = [[world.ledger("north")], [world.anchor("north")], [world.ledger("north"), world.anchor("north")]]
    for path in gone[int(rng.integers(3))]:
        path.unlink()
    if rng.random() < 0.5:
        with ExitStack() as stack:
            world.up("north", stack, make=True)
    world.asked()
    return "deleted"


def replacement(world: World, rng: Any) -> str:
    """Put another ledger of the same limit in the place, with its anchor or without."""
    other = world.folder / "other"
    shutil.rmtree(other, ignore_errors=True)
    (other / "anchor").mkdir(parents=True)
    with SiteLedger(other / "ledger", Budget(mu=100.0), anchor=other / "anchor" / "file") as ledger:
        for _ in range(int(rng.integers(0, 12))):
            ledger.spend(entry())
        identity, head = ledger._account.identity, ledger.head
    shutil.copy(other / "ledger", world.ledger("north"))
    if rng.random() < 0.6:
        Anchor(world.anchor("north"), world.ledger("north")).record(identity, head)
    world.asked()
    return "replaced"


def truncation(world: World, rng: Any) -> str:
    """Cut the ledger anywhere, or at the end of a line; its anchor is put back to some time, or not."""
    content = world.ledger("north").read_bytes()
    ends = [at + 1 for at, byte in enumerate(content[:-1]) if byte == 10]
    length = int(rng.choice(ends) if rng.random() < 0.5 else rng.integers(len(content)))
    with open(world.ledger("north"), "r+b") as stream:
        stream.truncate(length)
    if rng.random() < 0.5:
        world.put(int(rng.integers(STATES - 1)), [world.anchor("north")])
    world.asked()
    return "cut"


def double(world: World, rng: Any) -> str:
    """Open the ledger once more: by its name, a link, or as a copy with an anchor that its owner forged."""
    how = ("name", "symlink", "link", "copy", "forged")[int(rng.integers(5))]
    second = world.folder / "north" / "second"

    def live(stack: ExitStack, up: dict[str, SiteEnvelope]) -> None:
        path, anchor = second, world.anchor("north")
        if how == "name":
            path = world.ledger("north")
        elif how == "symlink":
            second.symlink_to(world.ledger("north"))
        elif how == "link":
            os.link(world.ledger("north"), second)
        else:
            shutil.copy(world.ledger("north"), second)
            anchor = world.folder / "north" / "anchor" / "second"
            anchor.unlink(missing_ok=True)
        if how == "forged":
            known = Anchor(world.anchor("north"), world.ledger("north")).read()
            assert known is not None
            Anchor(anchor, second).record(*known)
        twin = world.up("north", stack, path, anchor)
        # both are open: one is asked, then the other
        SecureServer(Ends(up, world.memory)).vector_sum("column_sums", SCORE, mu=0.5, label="s")
        up["north"] = twin

    world.asked(live=live)
    return "opened twice"


def under_a_living_site(world: World, rng: Any) -> str:
    """Delete, replace, cut, change or link the file while its site is up."""
    path, how = world.ledger("north"), int(rng.integers(6))
    older = world.states[int(rng.integers(STATES - 1))][path]

    def live(stack: ExitStack, up: dict[str, SiteEnvelope]) -> None:
        if how == 0:
            path.unlink()
        elif how == 1:
            path.unlink()
            path.write_bytes(older)
        elif how == 2:
            path.with_name("second").write_bytes(older)
            os.replace(path.with_name("second"), path)
        elif how == 3:
            path.write_bytes(older)
        elif how == 4:
            with open(path, "r+b") as stream:
                stream.seek(int(rng.integers(path.stat().st_size)))
                stream.write(b"\x01")
        else:
            os.link(path, path.with_name("second"))

    world.asked(live=live)
    return "changed while it was open"


def entry() -> LedgerEntry:
    """Return a charge."""
    return LedgerEntry(
        mechanism="gaussian",
        label="x",
        unit="record",
        relation="replace-one",
        trust="central",
        loss=GaussianLoss(0.1),
        source="lattice",
        secure=True,
    )


class FileWorld:
    """A ledger of one curator, and copies of it and of its anchor."""

    def __init__(self, folder: Path) -> None:
        (folder / "anchor").mkdir(parents=True)
        self.path, self.anchor = folder / "ledger", folder / "anchor" / "file"
        self.states = []
        for _ in range(STATES):
            LedgerFile(self.path, Budget(mu=9.0), anchor=self.anchor).spend(entry())
            self.states.append((self.path.read_bytes(), self.anchor.read_bytes()))

    def attack(self, rng: Any) -> str:
        """Attack the file, and spend; return what was done where nobody noticed."""
        for path in (self.path, self.path.with_name("second")):
            path.unlink(missing_ok=True)
        self.path.write_bytes(self.states[-1][0])
        self.anchor.write_bytes(self.states[-1][1])
        living = LedgerFile(self.path, anchor=self.anchor)
        entry_point = living if rng.random() < 0.5 else None
        older, anchor_older = self.states[int(rng.integers(STATES - 1))]
        how = (
            "rolled back",
            "rolled back, anchor too",
            "deleted",
            "cut",
            "replaced",
            "opened twice",
            "changed",
        )[int(rng.integers(7))]
        if how.startswith("rolled back"):
            self.path.write_bytes(older)
            if how.endswith("too"):
                self.anchor.write_bytes(anchor_older)
        elif how == "deleted":
            self.path.unlink()
        elif how == "cut":
            self.path.write_bytes(self.states[-1][0][: int(rng.integers(len(self.states[-1][0])))])
        elif how == "replaced":
            second = self.path.with_name("second")
            LedgerFile(second, Budget(mu=9.0), anchor=self.anchor.with_name("second")).spend(entry())
            os.replace(second, self.path)
            self.anchor.with_name("second").unlink()
        elif how == "opened twice":
            os.link(self.path, self.path.with_name("second"))
        else:
            content = bytearray(self.path.read_bytes())
            content[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(7))
            self.path.write_bytes(bytes(content))
        entry_point = (
            LedgerFile(self.path, Budget(mu=9.0), anchor=self.anchor) if entry_point is None else entry_point
        )
        entry_point.spend(entry())
        return ALL if how.endswith("too") and entry_point is not living else how


ATTACKS = (rollback, deletion, replacement, truncation, double, under_a_living_site)


def attack(tries: int = TRIES, seed: int = 19) -> tuple[Counter[tuple[str, str]], list[str]]:
    """Attack so often; return counts by kind and what came of it, and what nobody noticed."""
    seen: Counter[tuple[str, str]] = Counter()
    unnoticed, rng = [], np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as made:
        world, file_world = World(Path(made) / "sites", seed), FileWorld(Path(made) / "file")
        for number in range(tries):
            of_file = rng.random() < SHARE_OF_FILES
            kind = "LedgerFile" if of_file else ATTACKS[number % len(ATTACKS)].__name__.replace("_", " ")
            if not of_file:
                world.clean()
                world.put(STATES - 1)
            try:
                done = file_world.attack(rng) if of_file else ATTACKS[number % len(ATTACKS)](world, rng)
            except PrivinfError as problem:
                seen[kind, noticed_by(str(problem))] += 1
                continue
            seen[kind, ALL if done == ALL else "NOBODY"] += 1
            if done != ALL:
                unnoticed.append(f"try {number}, {kind}: {done}")
    return seen, unnoticed


def noticed_by(text: str) -> str:
    """Return which words of an error tell who noticed."""
    told = {
        "has shown two different ledgers": "asker or peers",
        "lacks entries": "asker or peers",
        "that this process had read": "the living process",
        "nothing is charged and no query": "the living site",
        "in use by another process": "the lock",
        "hard link": "the file's second name",
        "may be an old copy": "no anchor",
    }
    for words, who in told.items():
        if words in text:
            return who
    return "the anchor, or the chain"


def main() -> None:
    """Attack, count, and write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tries", type=int, default=TRIES)
    tries = parser.parse_args().tries
    logging.disable(logging.WARNING)  # sites warn of what is put back: every try
    begun = time.monotonic()
    seen, unnoticed = attack(tries)
    apart = sum(count for (_, who), count in seen.items() if who == ALL)
    lines = [
        "# Ledgers put back, deleted, replaced, cut, opened twice",
        "",
        f"Made by `python benchmarks/ledger_attacks.py --tries {tries}` in {time.monotonic() - begun:.0f} s, seed "
        "19: three sites with a signed",
        "roster, an analyst's side that stores heads, and a `LedgerFile`. Each attack leaves at least one of the detectors in its newer state, except attacks that are counted separately.",
        "",
        "| what | limit | measured |",
        "|---|---|---|",
        f"| tries | | {sum(seen.values())} |",
        f"| noticed by nobody until the next question was answered | 0 | {len(unnoticed)} |",
        f"| all witnesses put back together, counted apart: [nobody can notice](../../docs/explain/trust.md) | | {apart} |",
        "",
        "| attack | noticed by | tries |",
        "|---|---|---|",
        *(f"| {kind} | {who} | {count} |" for (kind, who), count in sorted(seen.items())),
    ]
    text = "\n".join(lines) + "\n"
    if tries == TRIES:
        TARGET.write_text(text)
    print(text, *unnoticed[:10], sep="\n")
    sys.exit(bool(unnoticed))


if __name__ == "__main__":
    main()
