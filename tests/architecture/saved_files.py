"""What the saved files say, read by the code of this tree: for `make_saved`, and for `test_saved`."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import privinf as pi
from privinf.accounting import Ledger
from privinf.accounting.journal import Anchor
from privinf.cli.ledgers import upgraded
from privinf.errors import PrivinfError
from privinf.federation import IdentityKey, InProcessFederation, Roster, Site, SiteLedger, SitePolicy
from privinf.mechanisms import Rows

KEY = b"a key of the holder"
SCHEMA = pi.Schema({"y": (-4.0, 6.0), "a": (-1.0, 1.0), "b": (-1.0, 3.0), "g": ["u", "v", "w"]})
PARTIES = {"one": ["a"], "two": ["b", "y"]}
NAMES = ("north", "south", "west")
KEYS = {name: IdentityKey(bytes([position]) * 32) for position, name in enumerate(NAMES, start=1)}
ROSTER = Roster({name: key.public for name, key in KEYS.items()})
GLM = pi.Schema({"y": (0.0, 1.0), "a": (-1.0, 1.0), "b": (-1.0, 3.0)})
CHECKPOINTED = ("moments_server", "moments_secure", "glm_server", "glm_secure", "glm_dome")


def people(n: int = 60, seed: int = 0) -> pd.DataFrame:
    """Return made-up rows."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {"a": rng.uniform(-1, 1, n), "b": rng.uniform(-1, 3, n), "g": rng.choice(["u", "v", "w"], n)}
    )
    return frame.assign(y=(1.0 + 0.5 * frame.a + rng.normal(0, 0.3, n)).clip(-4, 6))


def bits(values: Any) -> str:
    """Return numbers without rounding."""
    return " ".join(float(number).hex() for number in np.asarray(values, dtype=float).ravel())


def numbers(told: str) -> list[float]:
    """Return the numbers that `bits` wrote; an empty list where an error's name was kept."""
    return [float.fromhex(word) for word in told.split()] if "x" in told else []


def says(result: Any) -> dict[str, Any]:
    """Return what a result gives in numbers; the name of the error where it refuses."""
    asked = {
        "params": lambda: result.params,
        "bse": lambda: result.bse,
        "cov_params": lambda: result.cov_params(),
        "conf_int": lambda: result.conf_int(),
        "epsilon": lambda: result.privacy.epsilon(),
    }
    told: dict[str, Any] = {"class": type(result).__name__, "names": " ".join(map(str, result.names))}
    for name, ask in asked.items():
        try:
            told[name] = bits(ask())
        except PrivinfError as refusal:
            told[name] = type(refusal).__name__
    return told


def release_says(release: Any) -> dict[str, Any]:
    """Return the kind, the law's words and numbers, and a digest of the arrays' bytes."""
    arrays = {
        name: hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
        for name, array in sorted(release.arrays.items())
    }
    return {"kind": release.kind, "nobs": release.nobs, "law": sorted(release.law), "arrays": arrays}


def release_of(folder: Path, slug: str) -> Any:
    """Return a release from its own file, or from that of the result that keeps it."""
    alone = folder / "releases" / f"{slug}.npz"
    return (
        pi.load_release(alone)
        if alone.exists()
        else pi.load_results(folder / "results" / f"{slug}.npz").release
    )


def fitted_again(release: Any, how: list[Any]) -> Any:
    """Return the fit of a release by the model, the options of its door, and those of its fit."""
    model, door, options = how
    return getattr(pi, model).from_release(release, **door).fit(**options)


def ledgers_say(folder: Path) -> dict[str, Any]:
    """Return the lines and limits of every ledger in a folder."""
    place = (folder / "made.ledger").resolve()
    if b'"version": 1' in place.read_bytes()[:300]:  # as all were before
        upgraded(place, Anchor.of(place))
    filed = pi.LedgerFile(place)
    free = Ledger.from_json((folder / "ledger.json").read_text(encoding="utf-8"))
    told = {"made.ledger": _lines(filed), "ledger.json": _lines(free)}
    place = (folder / "site.ledger").resolve()
    anchor = folder / "anchor" / "site.ledger"
    if b'"version": 1' in place.read_bytes()[:300]:  # as all were before
        upgraded(place, Anchor.of(place, anchor))
    with SiteLedger(place, anchor=anchor) as site:
        told["site.ledger"] = _lines(site)
    return told


def _lines(ledger: Any) -> dict[str, Any]:
    limit = None if ledger.budget is None else ledger.budget.to_dict()
    return {"limit": limit, "lines": [entry.to_dict() for entry in ledger.entries]}


def checkpointed(slug: str, folder: Path, ledger: Ledger | None = None) -> Any:
    """Return a fit over sites with a folder of checkpoints: made, or gone on with."""
    model, trust = slug.split("_")
    policy = SitePolicy(trusted_server=True, secure_sums=True)
    schema = SCHEMA if model == "moments" else GLM
    sites = {}
    for seed, name in enumerate(NAMES):
        rows = people(80, seed)
        if model == "glm":
            rows = rows.assign(y=(rows.y > 1.0).astype(float))
        held = Rows(rows[list(schema.columns)])
        sites[name] = Site(held, schema, policy=policy, key=KEYS[name], roster=ROSTER)
    held = InProcessFederation(sites)
    how: dict[str, Any] = {"epsilon": 60.0, "delta": 1e-4, "checkpoint": folder}
    trusted = "secure-sum" if trust == "secure" else "server"
    if model == "moments":
        fit = pi.MomentOLS.from_formula("y ~ a + b", held, schema=schema, trust=trusted, ledger=ledger)
        return fit.fit(**how, cov_type="HC0")
    glm = pi.FederatedGLM.from_formula(
        "y ~ a + b", held, schema=schema, family="binomial", trust=trusted, ledger=ledger
    )
    if trust == "dome":
        how["optimizer"] = pi.DOME(k=2, most_learned=1, epochs=2, batches=3)
    return glm.fit(**({"optimizer": pi.Newton()} | how))
