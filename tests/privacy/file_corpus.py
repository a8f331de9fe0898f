"""Files that the package wrote: one of every kind, from real fits of small made-up tables.

Each `Kind` says how its file is read, what it then says (to be compared), and how one would go on with it.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import privinf as pi
from privinf.accounting import Budget, GaussianLoss, Ledger, LedgerEntry, PrivacyReport
from privinf.accounting.files import LedgerFile
from privinf.accounting.journal import Anchor, Head
from privinf.accounting.ledger import _LIVE
from privinf.federation import (
    IdentityKey,
    InProcessFederation,
    Roster,
    Site,
    SiteLedger,
    SitePolicy,
)
from privinf.federation.askers import HeadMemory
from privinf.federation.envelope import SignedHead
from privinf.mechanisms.blocks import open_table
from privinf.mechanisms.rows import Rows

N = 60
KEY = b"a key of the holder"
SCHEMA = pi.Schema(
    {"y": (-4.0, 6.0), "a": (-1.0, 1.0), "b": (-1.0, 3.0), "g": ["u", "v", "w"]},
)
FORMULA = "y ~ a + np.log(b + 2) + C(g)"
PARTIES = {"one": ["a", "g"], "two": ["b", "y"]}
TABLE = pi.Schema({"age": (18.0, 90.0), "sex": ["f", "m"]})
# The head of the ledger that a site keeps: its anchor is not damaged with it.
HEADS: dict[str, tuple[str, Head]] = {}
BUDGET = Budget(epsilon=8.0, delta=1e-6)


@dataclass(frozen=True)
class Kind:
    """One kind of file.

    `load` reads a path through the public function; `says` returns what the object holds, as bytes; `use`
    goes on with it. `seal`: "container", "json", "lines", "key" or "" for a file without one; `secret` is the
    key of its HMAC. `earlier` is what older copies of the file said: a site's ledger that lost its last
    lines is such a copy, and rollback belongs to another audit.
    """

    name: str
    suffix: str
    content: bytes
    load: Callable[[Path], Any]
    says: Callable[[Any], bytes]
    use: Callable[[Any], None] = lambda found: None
    seal: str = ""
    secret: bytes | None = None
    earlier: tuple[bytes, ...] = ()


def people(n: int = N, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {"a": rng.uniform(-1, 1, n), "b": rng.uniform(-1, 3, n), "g": rng.choice(["u", "v", "w"], n)}
    )
    return frame.assign(y=(1.0 + 0.5 * frame.a + rng.normal(0, 0.3, n)).clip(-4, 6))


def corpus(folder: Path) -> list[Kind]:
    """Return one file of every kind, made anew in `folder` and read back."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [
            *_releases(folder),
            *_results(folder),
            *_plans(),
            *_ledgers(folder),
            *_site_files(folder),
            *_tables(folder),
        ]


def _content_of(thing: Any, folder: Path, **how: Any) -> bytes:
    thing.save(folder / "made.npz", overwrite=True, **how)
    return (folder / "made.npz").read_bytes()


# --- releases and results ---------------------------------------------------------------------------------


def _releases(folder: Path) -> list[Kind]:
    data = people()
    models = {
        "modulation": pi.ModulatedOLS.from_formula(FORMULA, data, schema=SCHEMA),
        "moments": pi.MomentOLS.from_formula(FORMULA, data, schema=SCHEMA),
        "local moments": pi.MomentOLS.from_formula(FORMULA, data, schema=SCHEMA, trust="local"),
        "examples": pi.IWPGLM.from_formula("y ~ a + b", data, schema=SCHEMA, loss="squared"),
    }
    made = {name: model.release(epsilon=40.0, delta=1e-6, rng=1) for name, model in models.items()}
    made["rounds"] = models["modulation"].release(
        epsilon=40.0, delta=1e-6, rng=1, method="iterative", rounds=2
    )
    made["moments HC0"] = models["moments"].release(epsilon=40.0, delta=1e-6, rng=1, cov_type="HC0")
    columns = pi.Moments(SCHEMA, columns=["y", "a", "b", "C(g)"])
    made["moments of columns"] = columns.release(data, epsilon=40.0, delta=1e-6, rng=1)
    answers = pi.IWPGLM.from_formula("g ~ a + b", data, schema=SCHEMA, loss="multinomial")
    made["answers"] = answers.release(epsilon_x=20.0, epsilon_y=5.0, delta=1e-6, rng=1)
    pure = pi.IWPGLM.from_formula("y ~ a + b", data, schema=SCHEMA, loss="squared", noise="laplace")
    made["examples with Laplace noise"] = pure.release(epsilon_x=20.0, epsilon_y=5.0, rng=1)
    parties = pi.RMGMOLS.from_formula("y ~ a + b + C(g)", data, schema=SCHEMA, parties=PARTIES, k=20)
    sent = parties.release(mu=40.0, rng=1)
    made["party"] = sent["one"]
    made["joined"] = pi.join(sent)
    rows = pi.DGMOLS.from_formula("y ~ a + b + C(g)", data, schema=SCHEMA, parties=PARTIES)
    made["joined rows"] = pi.join(rows.release(mu=40.0, rng=1))
    kinds = [
        _container_kind(f"release: {name}", _content_of(one, folder), folder, pi.load_release, _use_release)
        for name, one in made.items()
    ]
    kinds.append(
        _container_kind(
            "release: with a key",
            _content_of(made["moments"], folder, key=KEY),
            folder,
            pi.load_release,
            _use_release,
            KEY,
        )
    )
    return kinds


def _container_kind(
    name: str, content: bytes, folder: Path, load: Callable[..., Any], use: Any, key: bytes | None = None
) -> Kind:
    return Kind(
        name=name,
        suffix=".npz",
        content=content,
        load=lambda path: load(path, key=key),
        says=lambda found: _content_of(found, folder, key=key),
        use=use,
        seal="container",
        secret=key,
    )


def _use_release(release: Any) -> None:
    repr(release), release.noise_source, release.secure, release.header()
    report = PrivacyReport.from_entries(release.entries)
    str(report), report.epsilon()
    if release.kind == "local-examples":
        release.classify(loss="multinomial" if "levels" in release.noise_model["label"] else "squared")
    elif release.kind.startswith("joined"):
        release.regress("y ~ a + b")
    elif release.kind == "moments" and release.design.formula is None:
        release.regress("y ~ a + C(g) - 1"), release.means(), release.corr()
    elif release.kind not in ("random-mixing", "gaussian-rows"):
        release.regress()
    else:
        pi.join([release])


def _results(folder: Path) -> list[Kind]:
    data = people(200)
    noise = {"epsilon": 60.0, "delta": 1e-6, "rng": 1}
    y, X = data["y"].to_numpy(), data[["a", "b"]].to_numpy()
    bounds = {"bounds": [(-1.0, 1.0), (-1.0, 3.0)]}
    fits = {
        "ModulatedOLS": pi.ModulatedOLS.from_formula(FORMULA, data, schema=SCHEMA).fit(**noise),
        "MomentOLS": pi.MomentOLS.from_formula(FORMULA, data, schema=SCHEMA).fit(**noise),
        "IWPGLM": pi.IWPGLM.from_formula("y ~ a + b", data, schema=SCHEMA, loss="squared").fit(**noise),
        "RMGMOLS": pi.RMGMOLS.from_formula(
            "y ~ a + b + C(g)", data, schema=SCHEMA, parties=PARTIES, k=40
        ).fit(**noise),
        "FederatedGLM": pi.FederatedGLM.from_arrays(
            [((y[i::2] > 1).astype(float), X[i::2]) for i in range(2)],
            **bounds,
            family="binomial",
            trust="server",
        ).fit(**noise),
        "DebiasedLasso": pi.DebiasedLasso(
            y, X, sites=np.arange(200) % 2, trust="server", x_bound=3.0, y_bounds=(-4, 6)
        ).fit(epsilon=60.0, delta=1e-5, sparsity=1, targets=[0, 1], rng=1),
        "DebiasedLasso logistic by site": pi.DebiasedLasso(
            (y > 1).astype(float), X, sites=np.arange(200) % 2, x_bound=3.0, family="binomial"
        ).fit(
            epsilon=900.0,
            delta=1e-5,
            sparsity=2,
            shared_sparsity=1,
            heterogeneous=True,
            targets=[0, 1],
            rng=1,
        ),
    }
    sent = pi.Moments(SCHEMA, columns=["y", "a", "b", "C(g)"]).release(data, **noise)
    rows = pi.Modulation(SCHEMA, "y ~ a + b").release(data, **noise)
    fits |= {
        "MomentOLS of a part": sent.regress("a ~ b + C(g) - 1"),
        "TwoStageLeastSquares": sent.iv("y ~ [a ~ b]"),
        "Means": sent.means(),
        "ModulatedRegression": rows.regress("a ~ y + b"),
    }
    made = {name: _content_of(one, folder) for name, one in fits.items()}
    made["lean"] = _content_of(fits["ModulatedOLS"], folder, records=False)
    kinds = [
        _container_kind(f"results: {name}", content, folder, pi.load_results, _use_results)
        for name, content in made.items()
    ]
    keyed = _content_of(fits["MomentOLS"], folder, key=KEY)
    kinds.append(_container_kind("results: with a key", keyed, folder, pi.load_results, _use_results, KEY))
    return kinds


def _use_results(results: Any) -> None:
    repr(results), results.params, results.nobs
    str(results.privacy), results.privacy.epsilon()
    for use in (results.summary, results.conf_int, lambda: results.pvalues, lambda: results.score_test()):
        with suppress(pi.errors.PrivinfError):
            str(use())


# --- plans, ledgers, keys -----------------------------------------------------------------------------------


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="surrogateescape")


def _plans() -> list[Kind]:
    plan = pi.MixingPlan.new(
        parties={
            "clinic": pi.PartyPlan(pi.Schema({"age": (18, 90), "sex": ["f", "m"]}), epsilon=1.0, delta=1e-6),
            "lab": pi.PartyPlan(pi.Schema({"glucose": (50.0, 250.0)}), mu=0.5),
        },
        n=100_000,
        id="patient",
        ids_sha256="ab" * 32,
    )
    owners = dict(zip(("north", "south"), HEAD_KEYS, strict=True))
    roster = Roster(
        {name: key.public for name, key in owners.items()},
        {name: key.verifying for name, key in owners.items()},
    )
    return [
        Kind(
            name="plan",
            suffix=".json",
            content=(plan.to_json() + "\n").encode(),
            load=pi.MixingPlan.load,
            says=lambda plan: json.dumps(plan.to_dict()).encode(),
            use=_use_plan,
            seal="json",
        ),
        Kind(
            name="roster",
            suffix=".json",
            content=roster.to_json().encode(),
            load=lambda path: Roster.from_json(_text(path)),
            says=lambda roster: json.dumps([dict(roster.keys), dict(roster.verifying)]).encode(),
            use=repr,
            seal="json",
        ),
        Kind(
            name="heads",
            suffix=".json",
            content=_heads(),
            load=HeadMemory,
            says=lambda memory: json.dumps(
                [memory.highest_head(key.verifying).text for key in HEAD_KEYS]
            ).encode(),
            use=repr,
            seal="json",
        ),
    ]


HEAD_KEYS = [IdentityKey(bytes([digit]) * 32) for digit in (1, 2)]


def _heads() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        memory = HeadMemory(f"{folder}/heads.json")
        for key in HEAD_KEYS:
            memory.learn("north", key.verifying, SignedHead.by(key, "north", Head(3, "ab" * 32)))
        memory.save()
        return Path(folder, "heads.json").read_bytes()


def _use_plan(plan: Any) -> None:
    repr(plan), plan.digest, str(plan.check()), plan.to_json()
    for party in plan.parties:
        plan.losses(party)


def _entry(label: str, mu: float) -> LedgerEntry:
    return LedgerEntry(
        mechanism="gaussian",
        label=label,
        unit="record",
        relation="replace-one",
        trust="central",
        sensitivity=pi.accounting.Sensitivity(norm="l2", value=2.0, derivation="by hand"),
        noise={"law": "discrete gaussian", "scale": 4.0, "grid": 2.0**-18},
        loss=GaussianLoss(mu),
        source="lattice",
        secure=True,
        assumptions=("n is public",),
    )


def _ledgers(folder: Path) -> list[Kind]:
    filed = LedgerFile(folder / "made.ledger", BUDGET)
    filed.spend(_entry("first", 0.25))
    filed.scope("fold", disjoint="site").spend(_entry("second", 0.5))
    remembered = Anchor.for_journal((folder / "made.ledger").resolve()).read()
    assert remembered is not None
    HEADS["ledger file"] = remembered
    free = Ledger(name="patient")
    free.spend(_entry("first", 0.25), _entry("second", 0.125))
    return [
        Kind(
            name="ledger file",
            suffix=".ledger",
            content=(folder / "made.ledger").read_bytes(),
            load=_load_ledger_file,
            says=_ledger_says,
            use=_use_ledger,
            seal="lines",
        ),
        Kind(
            name="ledger text",
            suffix=".json",
            content=free.to_json().encode(),
            load=_load_ledger_text,
            says=_ledger_says,
            use=_use_ledger,
            seal="json",
        ),
    ]


def _load_ledger_file(path: Path) -> Ledger:
    """Return a ledger beside an anchor that is whole."""
    Anchor.for_journal(path.resolve()).record(*HEADS["ledger file"])
    return LedgerFile(path)


def _load_ledger_text(path: Path) -> Ledger:
    _LIVE.clear()  # a process that has not seen the account: the last damaged one may not be collected yet
    return Ledger.from_json(_text(path))


def _ledger_says(ledger: Any) -> bytes:
    limit = None if ledger.budget is None else ledger.budget.to_dict()
    return json.dumps([ledger.name, limit, [entry.to_dict() for entry in ledger.entries]]).encode()


def _use_ledger(ledger: Any) -> None:
    repr(ledger), ledger.remaining(), ledger.entries
    report = PrivacyReport.from_entries(ledger.entries, ledger)
    str(report), report.epsilon()
    ledger.check([GaussianLoss(0.01)])


# --- files of a site ----------------------------------------------------------------------------------------


def _site_files(folder: Path) -> list[Kind]:
    key = IdentityKey(bytes(range(32)))
    key.save(folder / "made.key")
    lines = _site_ledger(folder).splitlines(keepends=True)
    return [
        Kind(
            name="identity key",
            suffix=".key",
            content=(folder / "made.key").read_bytes(),
            load=IdentityKey.load,
            says=lambda key: key.secret_bytes(),
            use=repr,
            seal="key",
        ),
        Kind(
            name="site ledger",
            suffix=".ledger",
            content=b"".join(lines),
            load=_load_journal,
            says=lambda said: said,
            use=repr,
            seal="lines",
        ),
    ]


def _site_ledger(folder: Path) -> bytes:
    """Return the ledger of a site that has answered a server."""
    policy = SitePolicy(trusted_server=True, simulation=True)
    with SiteLedger(folder / "north.ledger", Budget(mu=20.0)) as ledger:
        sites = {
            "north": Site(Rows(people()), SCHEMA, policy=policy, ledger=ledger),
            "south": Site(Rows(people(seed=1)), SCHEMA, policy=policy),
        }
        model = pi.MomentOLS.from_formula(
            "y ~ a + b", InProcessFederation(sites), schema=SCHEMA, trust="server"
        )
        model.fit(mu=2.0, rng=1)
        model.fit(mu=1.0, rng=2)
        HEADS["site ledger"] = ledger._account.identity, ledger.head
    return (folder / "north.ledger").read_bytes()


def _load_journal(path: Path) -> bytes:
    """Return everything that a site's ledger remembers, beside an anchor that is whole."""
    anchor = Anchor.for_journal(path.resolve())
    anchor.record(*HEADS["site ledger"])
    with SiteLedger(path) as ledger:
        journal = ledger.journal
        replies = {
            digest: [reply.pack()[0], {k: v.tolist() for k, v in reply.pack()[1].items()}]
            for digest, reply in journal._replies.items()
        }
        told = [_ledger_says(ledger).decode(), journal._last, sorted(journal._charged), replies]
        return json.dumps(told).encode()


# --- tables ------------------------------------------------------------------------------------------------


def _tables(folder: Path) -> list[Kind]:
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "patient": rng.permutation(np.arange(100, 160)),
            "age": rng.uniform(20, 85, N).round(3),
            "sex": rng.choice(["f", "m"], N),
        }
    )
    kinds = []
    for suffix in (".csv", ".csv.gz", ".tsv", ".parquet"):
        path = folder / f"made{suffix}"
        if suffix == ".parquet":
            frame.to_parquet(path)
        else:
            frame.to_csv(path, index=False, sep="\t" if suffix == ".tsv" else ",")
        kinds.append(Kind(f"table{suffix}", suffix, path.read_bytes(), _load_table, lambda said: said))
    return kinds


def _load_table(path: Path) -> bytes:
    rows = open_table(path, TABLE, id="patient", n=N)
    design = pi.Design.from_formula("age ~ sex", TABLE)
    told = [str(design.matrix(block).shape) for _, block in rows.blocks()]
    return " ".join(told).encode()
