"""Checkpoint folders with one damaged file: the fit that goes on refuses, or gives the number that it gave.

Each `Stage` is the folder of a real fit, finished or stopped in its second round; every attempt copies it,
damages one file, and starts the same fit again, with sites and a ledger that have forgotten the first.
"""

from __future__ import annotations

import json
import shutil
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from file_corpus import SCHEMA, Kind, people
from file_damage import LIMIT, Damage, Rng, Verdict, damage, fault
from support.speed import slowness

import privinf as pi
from privinf.accounting import Ledger
from privinf.errors import PrivinfError
from privinf.federation import IdentityKey, InProcessFederation, Roster, Site, SitePolicy
from privinf.mechanisms.rows import Rows

NAMES = ("north", "south", "west")
KEYS = {name: IdentityKey(bytes([position]) * 32) for position, name in enumerate(NAMES, start=1)}
ROSTER = Roster({name: key.public for name, key in KEYS.items()})


class Killed(BaseException):
    """The process ended here."""


class Cut(InProcessFederation):
    """Sites that are gone when the second round asks them."""

    def ask(self, query: Any, sites: Any = None) -> Any:
        if query.op == "moments.residual":
            raise Killed
        return super().ask(query, sites)


@dataclass(frozen=True)
class Stage:
    """A folder as a fit left it, and which file is damaged in it."""

    name: str
    folder: Path
    trust: str
    file: str
    numbers: bytes

    @property
    def paid(self) -> int:
        """Releases that were complete."""
        return sum("asked" not in path.name for path in self.folder.glob("*.npz"))


def _fit(
    folder: Path,
    trust: str,
    kind: type[InProcessFederation] = InProcessFederation,
    ledger: Ledger | None = None,
) -> bytes:
    policy = SitePolicy(trusted_server=True, secure_sums=True)
    sites = {
        name: Site(Rows(people(60, at)), SCHEMA, policy=policy, key=KEYS[name], roster=ROSTER)
        for at, name in enumerate(NAMES)
    }
    model = pi.MomentOLS.from_formula("y ~ a + b", kind(sites), schema=SCHEMA, trust=trust, ledger=ledger)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = model.fit(epsilon=60.0, delta=1e-4, cov_type="HC0", checkpoint=folder)
    told = [found.params.tolist(), found.bse.tolist(), dict(found.release.noise_model)]
    told += [array.tolist() for array in found.release.arrays.values()]
    return json.dumps(told).encode()


def stages(place: Path) -> list[Stage]:
    """Return folders of fits, made anew in `place`."""
    finished, stopped, masked = (place / name for name in ("finished", "stopped", "masked"))
    numbers = _fit(finished, "server")
    with suppress(Killed):
        _fit(stopped, "server", Cut)
    shutil.copytree(stopped, place / "again")
    later = _fit(place / "again", "server")
    summed = _fit(masked, "secure-sum")
    found = [Stage("release", finished, "server", "00000.npz", numbers)]
    found += [Stage("noise key", finished, "server", "noise.key", numbers)]
    found += [Stage("question under way", stopped, "server", "00001-asked.npz", later)]
    found += [Stage("noise key of a stopped fit", stopped, "server", "noise.key", later)]
    found += [Stage("release of a secure sum", masked, "secure-sum", "00001.npz", summed)]
    return found


def attempt(stage: Stage, rng: Rng, place: Path) -> tuple[Damage, Verdict]:
    """Damage the file, start the fit again, and say what came of it."""
    seal = "container" if stage.file.endswith(".npz") else "lines"
    content = (stage.folder / stage.file).read_bytes()
    kind = Kind(stage.name, "", content, Path, lambda path: b"", seal=seal)
    done = damage(replace(kind, seal="") if seal == "lines" else kind, rng)
    return done, verdict_on(stage, done, place)


def verdict_on(stage: Stage, done: Damage, place: Path) -> Verdict:
    """Start the fit with a damaged file in its folder."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(stage.folder, place)
    (place / stage.file).write_bytes(done.content)
    begun, ledger = time.process_time(), Ledger()
    try:
        numbers = _fit(place, stage.trust, ledger=ledger)
    except PrivinfError as problem:
        verdict = fault(problem) or Verdict("refused", f"{type(problem).__name__}: {problem}")
        if len(ledger) > stage.paid:  # lines of what was released before may stand there again
            verdict = Verdict("spent", f"{len(ledger)} lines for {stage.paid} releases")
    except Exception as problem:
        verdict = Verdict("foreign exception", repr(problem))
    else:
        same = numbers == stage.numbers
        allowed = done.resealed and stage.trust == "secure-sum"  # its folder is public and has no key
        verdict = Verdict("same" if same else "other" if allowed else "another number", done.how)
    took = time.process_time() - begun
    return Verdict("hang", f"{took:.1f} s") if took > LIMIT * slowness() else verdict
