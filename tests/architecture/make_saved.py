"""Makes an archive of saved files: run by hand, once for every version whose files are to stay readable.

    PYTHONPATH=TREE:TREE/benchmarks python tests/architecture/make_saved.py ARCHIVE "WHAT MADE IT"

`saved.tar.xz` was made by commit 6e70edc, whose files are the oldest that must stay readable, without
"coefficients_alone"; `saved_2.tar.xz` by the commit that its `told.json` names. Rows, keys and passwords are
simulated. `test_saved` reads the files with the code of its own tree; what they must say is in `told.json`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tarfile
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
from privinf.storage.folders import SealedFolder

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
    "ols": "OLS by default",
    "ols_robust": "OLS robust target",
    "ols_bounds": "OLS narrower bounds",
    "logit": "Logit nonrobust, factors",
    "poisson": "Poisson exposure",
    "coefficients_alone": "Logit little to spend",
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
    "moments",
    "moments_hc0",
    "moments_secure",
    "moments_server",
    "moments_people",
    "moments_arrays",
    "modulated_rounds",
    "examples_multinomial",
)
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
    "analyst key analyst.key",
)


def save_fits(folder: Path) -> dict[str, Any]:
    """Save a result of every model and variant, and what it was made from, and return what they say."""
    import digest_doors  # of benchmarks/, which is on the path where this is run by hand
    from digest_fits import FITS

    assert digest_doors.SEED  # its fits are in FITS

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
    save_anchors(folder)
    told = saved_files.ledgers_say(folder)
    shutil.rmtree(folder / "anchor")  # of this place
    return {"ledgers": told}


def _entry(label: str, mu: float) -> LedgerEntry:
    return LedgerEntry(
        mechanism="gaussian",
        label=label,
        unit="record",
        relation="replace-one",
        trust="central",
        sensitivity=Sensitivity(norm="l2", value=2.0, derivation="by hand"),
        noise={"law": "discrete gaussian", "scale": 4.0, "grid": 2.0**-18},
        loss=GaussianLoss(mu),
        source="lattice",
        secure=True,
        assumptions=("n is public",),
    )


def save_checkpoints(folder: Path) -> dict[str, Any]:
    """Save the folders of finished fits."""
    told = {}
    for slug in saved_files.CHECKPOINTED:
        fit = saved_files.checkpointed(slug, folder / "checkpoints" / slug)
        told[slug] = {"says": saved_files.says(fit), "lines": len(fit.privacy.entries)}
    return {"checkpoints": told}


class Stopped(BaseException):
    """The process ended."""


@contextmanager
def stopping_after(writes: int) -> Iterator[list[int]]:
    """Let a fit write so many files of its folder, and end it then; yield a list of those written."""
    write, count = SealedFolder.write, [0]

    def counted(self: SealedFolder, *args: Any) -> None:
        if count[0] == writes:
            raise Stopped
        count[0] += 1
        write(self, *args)

    SealedFolder.write = counted  # type: ignore[method-assign]
    try:
        yield count
    finally:
        SealedFolder.write = write  # type: ignore[method-assign]


def save_stopped(folder: Path) -> dict[str, Any]:
    """Save the folders of fits that ended halfway, and return what the fits said that went on from copies."""
    told = {}
    for slug in saved_files.STOPPED:
        place = folder / "stopped" / slug
        with tempfile.TemporaryDirectory() as whole, stopping_after(10**6) as written:
            saved_files.stopped(slug, Path(whole) / slug)
        with stopping_after(written[0] // 2), suppress(Stopped):
            saved_files.stopped(slug, place)
        with tempfile.TemporaryDirectory() as other:
            shutil.copytree(place, Path(other) / slug)
            fit = saved_files.stopped(slug, Path(other) / slug, Ledger())
        told[slug] = {"says": saved_files.says(fit), "lines": [line.label for line in fit.privacy.entries]}
    return {"stopped": told}


def save_schemas(folder: Path) -> dict[str, Any]:
    """Save schemas of every kind of column, as a file that people read and as JSON; bought bounds too."""
    people = saved_files.people(2000)[["a", "b"]]
    bought = pi.find_bounds(people, epsilon=2.0, delta=1e-6, rng=1)
    told = {}
    for slug, schema in (saved_files.SCHEMAS | {"bought": bought}).items():
        schema.save(folder / "schemas" / f"{slug}.toml")
        told[slug] = json.loads(json.dumps(schema.to_dict()))
    return {"schemas": told}


def save_anchors(folder: Path) -> None:
    """Save the heads that the account remembers of the ledgers in a folder, by the ledger's name."""
    (folder / "anchors").mkdir()
    for path in Path(os.environ["XDG_STATE_HOME"]).rglob("*.json"):
        head = json.loads(path.read_text(encoding="utf-8"))
        place = Path(head["path"])
        if place.parent == folder.resolve():
            (folder / "anchors" / f"{place.name}.json").write_text(json.dumps(head), encoding="utf-8")


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


def main(place: Path, made_by: str) -> None:
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as made, tempfile.TemporaryDirectory() as states:
        os.environ["XDG_STATE_HOME"] = states
        folder = Path(made)
        for part in ("results", "releases", "checkpoints", "stopped", "schemas", "study"):
            (folder / part).mkdir()
        told = {"made by": made_by} | save_fits(folder)
        told |= save_accounts(folder) | save_checkpoints(folder) | save_stopped(folder) | save_schemas(folder)
        save_study(folder / "study")
        save_anchors(folder / "study")
        for lock in [*folder.rglob("*.lock"), *folder.rglob("lock")]:
            lock.unlink()
        (folder / "told.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        with tarfile.open(place, "w:xz") as archive:
            archive.add(folder, "saved")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
