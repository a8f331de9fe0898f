"""What the saved files say, read by the code of this tree: for `make_saved`, and for `test_saved`."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import privinf as pi
from privinf.accounting import Ledger
from privinf.accounting.journal import Anchor, Head
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
COUNTS = pi.Schema({"y": (0.0, 9.0), "a": (-1.0, 1.0), "b": (-1.0, 3.0)})
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
    return {"kind": release.kind, "nobs": release.nobs, "law": sorted(release.noise_model), "arrays": arrays}


def release_of(folder: Path, slug: str) -> Any:
    """Return a release from its own file, or from that of the result that keeps it."""
    alone = folder / "releases" / f"{slug}.npz"
    return (
        pi.load_release(alone)
        if alone.exists()
        else pi.load_results(folder / "results" / f"{slug}.npz").release
    )


def fitted_again(release: Any, how: list[Any]) -> Any:
    """Return the fit of a release by the model, the options of its entry point, and those of its fit."""
    model, entry_point, options = how
    return getattr(pi, model).from_release(release, **entry_point).fit(**options)


def ledgers_say(folder: Path) -> dict[str, Any]:
    """Return the lines and limits of every ledger in a folder."""
    place = (folder / "made.ledger").resolve()
    _readied(folder, "made.ledger")
    filed = pi.LedgerFile(place)
    free = Ledger.from_json((folder / "ledger.json").read_text(encoding="utf-8"))
    told = {"made.ledger": _lines(filed), "ledger.json": _lines(free)}
    anchor = folder / "anchor" / "site.ledger"
    _readied(folder, "site.ledger", anchor)
    with SiteLedger((folder / "site.ledger").resolve(), anchor=anchor) as site:
        told["site.ledger"] = _lines(site)
    return told


def _readied(folder: Path, name: str, path: Path | None = None) -> None:
    """Ready a ledger of an archive: with its anchor."""
    place = (folder / name).resolve()
    if not Anchor.for_journal(place, path).path.exists():
        restore_anchor(folder, name, path)


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


# Declared columns of every kind.
SCHEMAS = {
    "numbers": pi.Schema({"y": (-4.0, 6.0), "q": pi.Numeric(-3.0, 3.0, public=True), "i": (0, 9)}),
    "levels": pi.Schema({"g": ["u", "v", "w"], "h": pi.Factor([1, 2, 3]), "z": ["no", "yes"]}),
    "people": pi.Schema({"y": (-4.0, 6.0), "g": ["u", "v"]}, unit="person", max_rows=2),
    "dates": pi.Schema({"day": (pd.Timestamp("2020-01-01"), pd.Timestamp("2024-12-31")), "y": (0.0, 1.0)}),
}
# Fits that were stopped halfway: the model, its schema, who sums, and the options of its fit. One curator's
# rows are "central", parts of a frame "server", sites under masks "secure-sum".
STOPPED: dict[str, tuple[str, pi.Schema, str, dict[str, Any]]] = {
    "moments_server": ("MomentOLS", SCHEMA, "server", {"cov_type": "HC0"}),
    "moments_secure": ("MomentOLS", SCHEMA, "secure-sum", {"cov_type": "HC0"}),
    "ols_central": ("OLS", SCHEMA, "central", {}),
    "ols_server": ("OLS", SCHEMA, "server", {}),
    "ols_secure": ("OLS", SCHEMA, "secure-sum", {}),
    "ols_robust": ("OLS", SCHEMA, "server", {"target": "robust", "adapt_bounds": True}),
    "logit_central": ("Logit", GLM, "central", {}),
    "logit_server": ("Logit", GLM, "server", {"cov_type": "nonrobust"}),
    "logit_secure": ("Logit", GLM, "secure-sum", {}),
    "poisson_server": ("Poisson", COUNTS, "server", {}),
    "newton": ("Logit", GLM, "server", {"optimizer": pi.Newton()}),
    "sgd": ("FederatedGLM", SCHEMA, "server", {"optimizer": pi.DPSGD(epochs=2, batches=3)}),
    "sgd_central": ("Logit", GLM, "central", {"optimizer": pi.DPSGD(epochs=2, batches=3)}),
    "adam": ("Poisson", COUNTS, "server", {"optimizer": pi.DPAdam(epochs=2, batches=3)}),
    "sketch": ("Logit", GLM, "server", {"optimizer": pi.RandomSketch(k=2, epochs=2, batches=3)}),
    "dome": ("Logit", GLM, "server", {"optimizer": pi.DOME(k=2, most_learned=1, epochs=2, batches=3)}),
    "dome_secure": (
        "Logit",
        GLM,
        "secure-sum",
        {"optimizer": pi.DOME(k=2, most_learned=1, epochs=2, batches=3)},
    ),
    "sites": (
        "Logit",
        GLM,
        "server",
        {"optimizer": pi.DPSGD(epochs=1, batches=3), "unit": "client", "client_clip": 50.0},
    ),
}


def people_of(schema: pi.Schema, n: int, seed: int) -> pd.DataFrame:
    """Return made-up rows with a response of this schema."""
    rows = people(n, seed)
    if schema is GLM:
        rows["y"] = (rows.y > 1.0).astype(float)
    elif schema is COUNTS:
        rows["y"] = np.round(np.clip(2.0 * rows.y + 1.0, 0, 9))
    return rows[list(schema.columns)]


def stopped(slug: str, folder: Path, ledger: Ledger | None = None) -> Any:
    """Return a fit of `STOPPED` in a folder of checkpoints: begun, or gone on with."""
    model, schema, trust, options = STOPPED[slug]
    parts = {name: people_of(schema, 1000, seed) for seed, name in enumerate(NAMES)}
    data: Any = pd.concat(parts.values(), ignore_index=True)
    if trust != "central":
        policy = SitePolicy(trusted_server=True, secure_sums=True)
        data = InProcessFederation(
            {
                name: Site(Rows(rows), schema, policy=policy, key=KEYS[name], roster=ROSTER)
                for name, rows in parts.items()
            }
        )
    family = {"family": "gaussian"} if model == "FederatedGLM" else {}
    made = getattr(pi, model).from_formula(
        "y ~ a + b", data, schema=schema, trust=trust, ledger=ledger, **family
    )
    return made.fit(epsilon=60.0, delta=1e-4, checkpoint=folder, **options)


def restore_anchor(folder: Path, name: str, path: Path | None = None) -> None:
    """Remember the head of a ledger that was moved here, as the account that made it did."""
    head = json.loads((folder / "anchors" / f"{name}.json").read_text(encoding="utf-8"))
    anchor = Anchor.for_journal((folder / name).resolve(), path)
    anchor.record(head["id"], Head(head["count"], head["tag"]))
