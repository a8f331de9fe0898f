"""Makes `saved.tar.xz`: run by hand, once for every version whose files are to stay readable.

    PYTHONPATH=TREE:TREE/benchmarks python tests/architecture/make_saved.py tests/architecture/saved.tar.xz

The files in it were made by version 0.1.0 at commit 32e4d2d. Rows, keys and passwords are made up.
`test_saved` reads them with the code of its own tree; what they must say is in `told.json` beside them.
"""

from __future__ import annotations

import json
import os
import sys
import tarfile
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import saved_files
from click.testing import CliRunner

import privinf as pi
from privinf.accounting import Budget, GaussianLoss, Ledger, LedgerEntry, Sensitivity
from privinf.federation import IdentityKey, InProcessFederation, Site, SiteLedger, SitePolicy
from privinf.mechanisms import Rows

RESULTS = {
    "moments": "MomentOLS central",
    "moments_hc0": "MomentOLS central, weights, HC0",
    "moments_local": "MomentOLS local, ridge",
    "moments_secure": "MomentOLS secure sums, HC0, a colluding site",
    "moments_server": "MomentOLS trusted server",
    "moments_people": "MomentOLS central, several rows a person",
    "moments_no_noise": "MomentOLS central, no noise",
    "moments_arrays": "MomentOLS of arrays, public column",
    "modulated": "ModulatedOLS one-shot",
    "modulated_rounds": "ModulatedOLS iterative",
    "modulated_public_response": "ModulatedOLS public response, weights",
    "examples_quadratic": "IWPGLM quadratic",
    "examples_logistic": "IWPGLM logistic, factors and binary columns by response",
    "examples_multinomial": "IWPGLM multinomial",
    "examples_counts": "IWPGLM counts",
    "examples_sgd": "IWPGLM logistic, single pass",
    "glm_binomial": "FederatedGLM binomial, server",
    "glm_poisson": "FederatedGLM poisson, secure-sum, nonrobust",
    "glm_linear": "FederatedGLM gaussian, server, factors",
    "glm_targets": "FederatedGLM binomial, server, targets",
    "glm_dome": "FederatedGLM binomial, server, DOME",
    "glm_dome_paper": "FederatedGLM binomial, server, DOME, the paper's",
    "lasso": "DebiasedLasso of named targets",
    "lasso_extras": "DebiasedLasso every extra, more rows",
    "lasso_secure": "DebiasedLasso secure sums",
    "lasso_parties": "DebiasedLasso heterogeneous",
    "lasso_paper": "DebiasedLasso the paper's",
    "lasso_paper_parties": "DebiasedLasso the paper's, heterogeneous",
}
MIXED = {"rmgmols": pi.RMGMOLS, "dgmols": pi.DGMOLS, "bgmols": pi.BGMOLS}
AGAIN: dict[str, list[Any]] = {
    "moments": ["MomentOLS", {}, {}],
    "moments_hc0": ["MomentOLS", {}, {"cov_type": "HC0"}],
    "moments_local": ["MomentOLS", {}, {"stabilization": "ridge", "ridge": 1.0}],
    "moments_secure": ["MomentOLS", {}, {"cov_type": "HC0"}],
    "moments_server": ["MomentOLS", {}, {}],
    "moments_people": ["MomentOLS", {}, {}],
    "moments_arrays": ["MomentOLS", {}, {"cov_type": "HC0"}],
    "modulated": ["ModulatedOLS", {}, {}],
    "modulated_rounds": ["ModulatedOLS", {}, {}],
    "modulated_public_response": ["ModulatedOLS", {}, {}],
    "examples_quadratic": ["IWPGLM", {"loss": "quadratic"}, {}],
    "examples_logistic": ["IWPGLM", {"loss": "logistic"}, {}],
    "examples_multinomial": ["IWPGLM", {"loss": "multinomial"}, {}],
    "examples_counts": ["IWPGLM", {"loss": "poisson"}, {}],
    "rmgmols_joined": ["RMGMOLS", {"label": "y"}, {}],
    "dgmols_joined": ["DGMOLS", {"label": "y"}, {}],
    "bgmols_joined": ["BGMOLS", {"label": "y"}, {}],
}
# Kept alone as well; the releases of other results are in their files.
RELEASES = (
    "moments", "moments_hc0", "moments_secure", "moments_server", "moments_people", "moments_arrays",
    "modulated_rounds", "examples_multinomial",
)  # fmt: skip
LEAN = ("moments_no_noise", "lasso_paper_parties")  # without records
COLUMNS = {"a": {"age": [18, 90], "sex": ["f", "m"]}, "b": {"bmi": [15, 60], "weight": [40, 160]}}
SITE = {"columns": {"age": {"low": 18, "high": 90}, "sex": {"levels": ["f", "m"]}}}
POLICY = {"secure_sums": True, "min_sites": 2, "largest_rho": 2.5}
COMMANDS = (
    "plan new --columns columns.json --id id --roster ids.csv --epsilon 90 --delta 1e-6 --k 40 --seed 3 "
    "--out plan.json",
    "ledger create a.ledger --epsilon 400 --delta 1e-6",
    "ledger create b.ledger --epsilon 400 --delta 1e-6",
    "release --plan plan.json --party a --data a.csv --ledger a.ledger --out a.npz --seed 1",
    "release --plan plan.json --party b --data b.csv --ledger b.ledger --out b.npz --seed 2",
    "join a.npz b.npz --plan plan.json --out joined.npz",
    "fit weight~age+bmi joined.npz --summary fit.txt",
    "site key north.key",
    "site key south.key",
)


def save_fits(folder: Path) -> dict[str, Any]:
    """Save a result of every model and variant, and what it was made from, and return what they say."""
    from digest_fits import FITS  # of benchmarks/, which is on the path where this is run by hand

    told: dict[str, Any] = {"results": {}, "releases": {}, "again": {}}
    fits = {slug: FITS[name]() for slug, name in RESULTS.items()}
    releases: dict[str, Any] = {}
    data = saved_files.people(400)
    for slug, model in MIXED.items():
        options = {"k": 40} if slug == "rmgmols" else {}
        made = model.from_formula(
            "y ~ a + b", data, schema=saved_files.SCHEMA, parties=saved_files.PARTIES, **options
        )
        sent = made.release(mu=40.0, rng=1)
        releases |= {f"{slug}_party": sent["one"], f"{slug}_joined": pi.join(sent)}
        fits[slug] = model.from_release(sent, label="y").fit()
    for slug, made in fits.items():
        fit = next(iter(made.results.values())) if hasattr(made, "results") else made
        path = folder / "results" / f"{slug}.npz"
        fit.save(path, records=slug not in LEAN)
        told["results"][slug] = saved_files.says(pi.load_results(path))
        if slug in RELEASES:
            releases[slug] = fit.release
    for slug, release in releases.items():
        release.save(folder / "releases" / f"{slug}.npz")
        told["releases"][slug] = saved_files.release_says(release)
    for slug, how in AGAIN.items():
        fit = saved_files.fitted_again(saved_files.release_of(folder, slug), how)
        told["again"][slug] = {"how": how, "says": saved_files.says(fit)}
    releases["moments"].save(folder / "releases_keyed.npz", key=saved_files.KEY)
    fits["moments"].save(folder / "results_keyed.npz", key=saved_files.KEY)
    return told


def save_accounts(folder: Path) -> dict[str, Any]:
    """Save ledgers of every kind, keys, and a roster."""
    filed = pi.LedgerFile(folder / "made.ledger", Budget(epsilon=8.0, delta=1e-6))
    filed.spend(_entry("first", 0.25))
    filed.scope("fold", disjoint="site").spend(_entry("second", 0.5))
    free = Ledger(name="patient")
    free.spend(_entry("first", 0.25), _entry("second", 0.125))
    (folder / "ledger.json").write_text(free.to_json(), encoding="utf-8")
    IdentityKey(bytes(range(32))).save(folder / "identity.key")
    policy = SitePolicy(trusted_server=True, simulation=True)
    with SiteLedger(folder / "site.ledger", Budget(mu=20.0)) as ledger:
        sites = {
            "north": Site(Rows(saved_files.people()), saved_files.SCHEMA, policy=policy, ledger=ledger),
            "south": Site(Rows(saved_files.people(seed=1)), saved_files.SCHEMA, policy=policy),
        }
        held = InProcessFederation(sites)
        model = pi.MomentOLS.from_formula("y ~ a + b", held, schema=saved_files.SCHEMA, trust="server")
        model.fit(mu=2.0, rng=1)
    return {"ledgers": saved_files.ledgers_say(folder)}


def _entry(label: str, mu: float) -> LedgerEntry:
    return LedgerEntry(
        mechanism="gaussian", label=label, unit="record", relation="replace-one", trust="central",
        sensitivity=Sensitivity(norm="l2", value=2.0, derivation="by hand"),
        noise={"law": "discrete gaussian", "scale": 4.0, "grid": 2.0**-18},
        loss=GaussianLoss(mu), source="lattice", secure=True, assumptions=("n is public",),
    )  # fmt: skip


def save_checkpoints(folder: Path) -> dict[str, Any]:
    """Save the folders of finished fits."""
    told = {}
    for slug in saved_files.CHECKPOINTED:
        fit = saved_files.checkpointed(slug, folder / "checkpoints" / slug)
        told[slug] = {"says": saved_files.says(fit), "lines": len(fit.privacy.entries)}
    return {"checkpoints": told}


def save_study(folder: Path) -> None:
    """Save what the command line reads and writes in a study of two parties, and at a site."""
    rng = np.random.default_rng(5)
    n = 60
    people = pd.DataFrame({"id": rng.permutation(np.arange(1000, 1000 + n))})
    people.to_csv(folder / "ids.csv", index=False)
    age, bmi = rng.uniform(20, 85, n).round(3), 15 + 45 * rng.beta(2, 4, n).round(4)
    people.assign(age=age, sex=rng.choice(["f", "m"], n)).to_csv(folder / "a.csv", index=False)
    weight = (30 + 2 * bmi + rng.normal(0, 4, n)).round(2)
    people.assign(bmi=bmi, weight=weight).sort_values("id").to_csv(folder / "b.csv", index=False)
    for name, content in (("columns", COLUMNS), ("schema", SITE), ("policy", POLICY)):
        (folder / f"{name}.json").write_text(json.dumps(content) + "\n", encoding="utf-8")
    home = Path.cwd()
    os.chdir(folder)
    for words in COMMANDS:
        _type(words)
    keys = " ".join(f"{name}={_type(f'site key {name}.key').strip()}" for name in ("north", "south"))
    _type(f"site roster {keys} --out roster.json")
    os.chdir(home)


def _type(words: str) -> str:
    from privinf.cli import main

    result = CliRunner().invoke(main, words.split(), prog_name="privinf")
    assert result.exit_code == 0, result.output
    return result.output


def main(place: Path) -> None:
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for part in ("results", "releases", "checkpoints", "study"):
            (folder / part).mkdir()
        told = {"made by": "version 0.1.0 at commit 32e4d2d"} | save_fits(folder)
        told |= save_accounts(folder) | save_checkpoints(folder)
        save_study(folder / "study")
        for lock in folder.rglob("*.lock"):
            lock.unlink()
        (folder / "told.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        with tarfile.open(place, "w:xz") as archive:
            archive.add(folder, "saved")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
