"""Small valid calls of every public function, of which the argument fuzzer changes one argument at a time."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import privinf as pi
from privinf import accounting, federation, mechanisms
from privinf.accounting import GaussianLoss, Ledger, LedgerEntry, Sensitivity
from privinf.federation import InProcessFederation, Site, SitePolicy, pinned_keys
from privinf.mechanisms.rows import Rows
from privinf.noise import SimulationNoise

# Digits and letters of every value that must not be told.
CELL, LABEL = 0.7654321, "sentinel-level"
N = 48
LEVELS = ["u", "v", "w"]
BOUNDS = {"y": (0.0, 2.0), "a": (0.0, 1.0), "b": (0.0, 1.0), "g": LEVELS}
SCHEMA = pi.Schema(BOUNDS)
GROUPED = pi.Schema(BOUNDS, unit="person", max_rows=2)
POLICY = SitePolicy(trusted_server=True, secure_sums=True, simulation=True)


def table(n: int = N) -> pd.DataFrame:
    """Return rows whose numbers all begin with the digits of `CELL`."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(CELL + 1e-9 * rng.uniform(size=(n, 2)), columns=["a", "b"])
    frame.loc[::3, "a"] = CELL / 10
    frame.loc[::5, "b"] = CELL / 10
    frame["y"] = frame["a"] + frame["b"] / 10
    frame["g"] = np.resize(LEVELS, n)
    frame["person"] = np.arange(n) // 2 + 7654321
    return frame


@cache
def keys() -> Any:
    """Return keys and roster of two sites."""
    return pinned_keys(["north", "south"])


@dataclass
class World:
    """What one call works with: its rows, ledgers that see what it spends, a folder."""

    folder: Path
    frame: pd.DataFrame = field(default_factory=table)
    ledger: Ledger = field(default_factory=Ledger)
    held: list[Ledger] = field(default_factory=list)

    def site(self, name: str = "north", part: int = 0) -> Site:
        """Return a site with half of the rows."""
        own, roster = keys()
        self.held.append(Ledger())
        rows = Rows(self.frame[["y", "a", "b", "g"]].iloc[part::2])
        return Site(rows, SCHEMA, policy=POLICY, ledger=self.held[-1], key=own[name], roster=roster)

    def sites(self) -> InProcessFederation:
        """Return two sites with half of the rows each."""
        return InProcessFederation({"north": self.site("north", 0), "south": self.site("south", 1)})

    def spent(self) -> int:
        """Return how many lines its ledgers have."""
        return len(self.ledger) + sum(len(ledger) for ledger in self.held)


@dataclass(frozen=True)
class Case:
    """One valid call.

    Attributes
    ----------
    target : callable
        From a world to the function that is called.
    args : callable
        From a world to its valid arguments, all by keyword.
    then : callable or None
        What is done with what it returned, as a user would at once.
    """

    name: str
    target: Callable[[World], Callable[..., Any]]
    args: Callable[[World], dict[str, Any]]
    then: Callable[[Any, World], Any] | None = None
    more: tuple[str, ...] = ()

    def names(self, world: World) -> list[str]:
        """Return the arguments that can be changed: those given, and every option that is not."""
        parameters = inspect.signature(self.target(world)).parameters.values()
        kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        known = [each.name for each in parameters if each.kind not in kinds]
        words = [name for each in parameters for name in words_of(self.target(world), each)]
        return list(dict.fromkeys([*self.args(world), *known, *words, *self.more]))


def words_of(function: Callable[..., Any], parameter: inspect.Parameter) -> list[str]:
    """Return the names of ``**words: Unpack[Options]``; none of any other parameter."""
    kind = str(parameter.annotation)
    if not kind.startswith("Unpack["):
        return []
    plain = inspect.unwrap(
        getattr(function, "__init__", function) if isinstance(function, type) else function
    )
    options = eval(kind.removeprefix("Unpack[").removesuffix("]"), plain.__globals__)
    return list(options.__annotations__)


CASES: dict[str, Case] = {}


def case(
    name: str,
    target: Any,
    args: Mapping[str, Any] | Callable[[World], dict[str, Any]] | None = None,
    then: Callable[[Any, World], Any] | None = None,
    *,
    method: bool = False,
    more: tuple[str, ...] = (),
) -> None:
    """Register a call: of `target` itself, or with `method` of what it returns for a world."""
    assert name not in CASES, name
    given = args if callable(args) else (lambda world: dict(args or {}))
    CASES[name] = Case(name, target if method else (lambda world: target), given, then, more)


SPEND = {"mu": 5.0, "rng": 0}
LEVEL = ("epsilon", "delta", "mu", "rho", "rng", "source")

# ---- accounts

LINE = {
    "mechanism": "gaussian",
    "label": "features",
    "unit": "record",
    "relation": "replace-one",
    "trust": "central",
    "loss": GaussianLoss(0.5),
    "source": "lattice",
    "secure": True,
    "sensitivity": Sensitivity("l2", 1.0, "diameter"),
    "noise": {"law": "gaussian", "scale": 2.0},
    "assumptions": ("n is public",),
}


def entry() -> LedgerEntry:
    """Return a fresh ledger line."""
    return LedgerEntry(**LINE)


case("Budget", pi.Budget, {"epsilon": 1.0, "delta": 1e-6})
case("Budget.split", lambda w: pi.Budget(mu=1.0).split, {"k": 3}, method=True)
case("Budget.epsilon", lambda w: pi.Budget(mu=1.0).epsilon, {"delta": 1e-6}, method=True)
case("Budget.from_dict", pi.Budget.from_dict, lambda w: {"record": pi.Budget(mu=1.0).to_dict()})
case("Ledger", pi.Ledger, {"budget": pi.Budget(mu=1.0), "name": "person"}, lambda r, w: r.spend(entry()))
case("Ledger.check", lambda w: w.ledger.check, {"losses": [GaussianLoss(0.5)], "scope": ("x",)}, method=True)
case(
    "Ledger.scope",
    lambda w: w.ledger.scope,
    {"name": "A", "disjoint": "site"},
    lambda r, w: r.spend(entry()),
    method=True,
)
case("Ledger.from_json", pi.Ledger.from_json, lambda w: {"text": w.ledger.to_json(), "resume": False})
case("LedgerEntry", pi.LedgerEntry, LINE, lambda r, w: w.ledger.spend(r))
case("LedgerEntry.from_dict", pi.LedgerEntry.from_dict, lambda w: {"record": entry().to_dict()})
case(
    "LedgerFile",
    pi.LedgerFile,
    lambda w: {"path": w.folder / "l.ledger", "budget": pi.Budget(mu=9.0)},
    lambda r, w: r.spend(entry()),
)
case("Sensitivity", Sensitivity, {"norm": "l2", "value": 1.0, "derivation": "diameter"})
case(
    "PrivacyReport.from_entries",
    pi.PrivacyReport.from_entries,
    lambda w: {"entries": [entry()], "ledger": w.ledger, "delta": 1e-6},
    lambda r, w: str(r),
)
case(
    "PrivacyReport.delta",
    lambda w: pi.PrivacyReport.from_entries([entry()]).delta,
    {"epsilon": 1.0},
    method=True,
)
case(
    "PrivacyReport.party",
    lambda w: pi.PrivacyReport.from_entries([LedgerEntry(**LINE, party="one")]).party,
    {"name": "one"},
    method=True,
)
case(
    "plan",
    pi.plan,
    {"releases": [{"mechanism": "gaussian", "mu": 0.5, "times": 2}, GaussianLoss(0.3)], "delta": 1e-6},
    lambda r, w: str(r),
)
case("GaussianLoss", accounting.GaussianLoss, {"mu": 1.0})
case("PureLoss", accounting.PureLoss, {"epsilon": 1.0})
case("ConcentratedLoss", accounting.ConcentratedLoss, {"rho": 1.0})
case("ApproximateLoss", accounting.ApproximateLoss, {"epsilon": 1.0, "delta": 1e-6})
case("loss_from_dict", accounting.loss_from_dict, lambda w: {"record": GaussianLoss(1.0).to_dict()})
case(
    "compose",
    accounting.compose,
    {"losses": [GaussianLoss(1.0), accounting.PureLoss(1.0)]},
    lambda r, w: r.epsilon(1e-6),
)
case("calibrate_mu", accounting.calibrate_mu, {"epsilon": 1.0, "delta": 1e-6})
case("split_mu", accounting.split_mu, {"mu": 1.0, "shares": 3})
for _name, _args in {
    "classic_mu": {"epsilon": 0.5, "delta": 1e-6},
    "gaussian_mu": {"epsilon": 1.0, "delta": 1e-6},
    "gaussian_delta": {"epsilon": 1.0, "mu": 1.0},
    "gaussian_epsilon": {"mu": 1.0, "delta": 1e-6},
    "rho_to_epsilon": {"rho": 0.1, "delta": 1e-6},
    "rho_to_delta": {"rho": 0.1, "epsilon": 1.0},
    "epsilon_to_rho": {"epsilon": 1.0, "delta": 1e-6},
    "pure_mu": {"epsilon": 1.0},
    "pure_rho": {"epsilon": 1.0},
}.items():
    case(_name, getattr(accounting, _name), _args)

# ---- public columns

case(
    "Schema",
    pi.Schema,
    {"columns": dict(BOUNDS), "public": ["a"], "unit": "person", "max_rows": 2},
    lambda r, w: pi.Design.from_formula("y ~ a", r),
)
case("Schema.from_dict", pi.Schema.from_dict, lambda w: {"content": SCHEMA.to_dict()})
case("Schema.__getitem__", lambda w: SCHEMA.__getitem__, {"name": "a"}, method=True)
case(
    "Numeric",
    pi.Numeric,
    {"low": 0.0, "high": 1.0, "public": True, "unit": "kg", "center": 0.5, "scale": 0.25},
    lambda r, w: pi.Schema({"a": r, "y": (0, 1)}),
)
case(
    "Factor",
    pi.Factor,
    {"levels": ("u", "v"), "public": False, "unit": ""},
    lambda r, w: pi.Schema({"a": r, "y": (0, 1)}),
)
case(
    "Design.from_formula",
    pi.Design.from_formula,
    {"formula": "y ~ a + C(g)", "schema": SCHEMA},
    lambda r, w: r.to_dict(),
)
case(
    "Design.from_arrays",
    pi.Design.from_arrays,
    {"names": ["a", "b"], "bounds": [(0, 1), (0, 1)], "y_bounds": (0, 2)},
    lambda r, w: r.to_dict(),
)
case(
    "Design.from_dict",
    pi.Design.from_dict,
    lambda w: {"content": pi.Design.from_formula("y ~ a", SCHEMA).to_dict()},
)
case(
    "Design.matrix",
    lambda w: pi.Design.from_formula("y ~ a + C(g)", SCHEMA).matrix,
    lambda w: {"table": w.frame},
    method=True,
)
case("add_constant", pi.add_constant, lambda w: {"X": w.frame[["a", "b"]]})

# ---- mechanisms

ROWS = lambda w: {"rows": w.frame, "ledger": w.ledger, **SPEND}  # noqa: E731
VECTOR = [CELL, -2 * CELL, 0.1]
case(
    "NoisyTopK",
    pi.mechanisms.NoisyTopK,
    {"k": 2, "sensitivity": 0.1, "rho": 1.0},
    lambda r, w: r.release(VECTOR, ledger=w.ledger, rng=0),
)
case(
    "NoisyTopK.release",
    lambda w: mechanisms.NoisyTopK(2, 0.1, rho=1.0).release,
    lambda w: {"v": np.array(VECTOR), "candidates": [True] * 3, "ledger": w.ledger, "rng": 0},
    lambda r, w: r.dense(),
    method=True,
)
case(
    "private_max",
    mechanisms.private_max,
    lambda w: {"v": VECTOR, "sensitivity": 0.1, "mu": 1.0, "ledger": w.ledger, "rng": 0},
    lambda r, w: float(r),
    more=("values", "method", "absolute", "label", "candidates", "k", "values_share"),
)
case(
    "noisy_scalar",
    mechanisms.noisy_scalar,
    lambda w: {"value": CELL, "sensitivity": 0.1, "ledger": w.ledger, **SPEND},
)
case(
    "find_bounds",
    pi.find_bounds,
    lambda world: {"rows": world.frame, "columns": ["a"], "ledger": world.ledger} | SPEND,
)
TESTED = ("missing", "noise", "confidence_level", "delta")
case(
    "stats.ttest_1samp",
    pi.stats.ttest_1samp,
    lambda w: {"a": w.frame["a"], "popmean": CELL, "bounds": (0.0, 1.0), "ledger": w.ledger} | SPEND,
    lambda r, w: r.summary(),
    more=("alternative", "data", "schema", *TESTED),
)
case(
    "stats.anova_oneway",
    pi.stats.anova_oneway,
    lambda w: {"values": "y ~ g", "groups": w.frame, "schema": SCHEMA, "ledger": w.ledger, **SPEND},
    lambda r, w: (r.summary(), r.pairwise(), r.contrast([1, -1, 0])),
    more=("bounds", "levels", "data", *TESTED),
)
case(
    "stats.ttest_ind",
    pi.stats.ttest_ind,
    lambda w: {"a": w.frame["a"], "b": w.frame["b"], "bounds": (0.0, 1.0), "ledger": w.ledger} | SPEND,
    more=("alternative", "data", "schema", *TESTED),
)
case(
    "stats.proportions_ztest",
    pi.stats.proportions_ztest,
    lambda w: {"a": w.frame["a"], "value": 0.5, "ledger": w.ledger} | SPEND,
    more=("groups", "levels", "alternative", "method", *TESTED),
)
case(
    "stats.chi2_contingency",
    pi.stats.chi2_contingency,
    lambda w: {"a": "g", "b": "g", "data": w.frame, "schema": SCHEMA, "ledger": w.ledger} | SPEND,
    more=("levels", *TESTED),
)
case(
    "stats.counts",
    pi.stats.counts,
    lambda w: {"a": "g", "data": w.frame, "schema": SCHEMA, "ledger": w.ledger} | SPEND,
    lambda r, w: (r.summary(), r.to_pandas(), r.intervals(target="population")),
    more=("by", "levels", "structural_zeros", "target", "simultaneous", *TESTED),
)
case(
    "stats.crosstab",
    pi.stats.crosstab,
    lambda w: {"a": "g", "b": "g", "data": w.frame, "schema": SCHEMA, "ledger": w.ledger} | SPEND,
    lambda r, w: (r.summary(), r.to_pandas()),
    more=("margins", "structural_zeros", "target", "simultaneous", *TESTED),
)
case(
    "stats.histogram",
    pi.stats.histogram,
    lambda w: {"a": w.frame["a"], "bins": 4, "bounds": (0.0, 1.0), "ledger": w.ledger} | SPEND,
    more=("by", "levels", "target", *TESTED),
)
case(
    "stats.sum",
    pi.stats.sum,
    lambda w: {"a": "y", "by": "g", "data": w.frame, "schema": SCHEMA, "ledger": w.ledger} | SPEND,
    lambda r, w: (r.summary(), r.intervals(target="population")),
    more=("bounds", "levels", "target", "simultaneous", *TESTED),
)
case(
    "stats.median",
    pi.stats.median,
    lambda w: {"a": "y", "by": "g", "data": w.frame, "schema": SCHEMA, "ledger": w.ledger} | SPEND,
    lambda r, w: (r.summary(), r.intervals([0.2, 0.8])),
    more=("bounds", "levels", "target", "simultaneous", *TESTED),
)
case(
    "stats.pearsonr",
    pi.stats.pearsonr,
    lambda w: {"x": "a", "y": "b", "data": w.frame, "schema": SCHEMA, "ledger": w.ledger} | SPEND,
    more=("bounds", "alternative", *TESTED),
)
case(
    "sparse_mean",
    pi.sparse_mean,
    lambda w: {
        "samples_by_machine": np.tile(w.frame[["a", "b"]].to_numpy()[:4], (30, 1, 1)) - 0.5,
        "epsilon": 3.0,
        "sparsity": 1,
        "ledger": w.ledger,
        "rng": 0,
        "public_seed": 0,
    },
    lambda r, w: r.summary_frame(),
)
case("RandomizedResponse", mechanisms.RandomizedResponse, {"levels": 3, "epsilon": 1.0})
case(
    "RandomizedResponse.respond",
    lambda w: mechanisms.RandomizedResponse(3, 1.0).respond,
    {"codes": [0, 1, 2, 2], "source": SimulationNoise(0)},
    method=True,
)
case("Moments", pi.Moments, {"schema": SCHEMA, "formula": "y ~ a + b"}, lambda r, w: r.release(**ROWS(w)))
case("Moments.release", lambda w: pi.Moments(SCHEMA, "y ~ a + C(g)").release, ROWS, method=True)
case("Moments.release, grouped", lambda w: pi.Moments(GROUPED, "y ~ a + b").release, ROWS, method=True)
case(
    "Moments.release, local", lambda w: pi.Moments(SCHEMA, "y ~ a", trust="local").release, ROWS, method=True
)
case(
    "Modulation", pi.Modulation, {"schema": SCHEMA, "formula": "y ~ a + b"}, lambda r, w: r.release(**ROWS(w))
)
case("Modulation.release", lambda w: pi.Modulation(SCHEMA, "y ~ a + b").release, ROWS, method=True)
case(
    "LocalExamples",
    pi.LocalExamples,
    {"schema": SCHEMA, "formula": "g ~ a + b"},
    lambda r, w: r.release(w.frame, epsilon_x=4.0, epsilon_y=2.0, delta=1e-3, ledger=w.ledger, rng=0),
)
case(
    "LocalExamples.release",
    lambda w: pi.LocalExamples(SCHEMA, "g ~ a + b").release,
    lambda w: {
        "rows": w.frame,
        "epsilon_x": 4.0,
        "epsilon_y": 2.0,
        "delta": 1e-3,
        "ledger": w.ledger,
        "rng": 0,
    },
    method=True,
)
case(
    "LocalExamples.release, Laplace noise",
    lambda w: pi.LocalExamples(SCHEMA, "g ~ a + b", noise="laplace").release,
    lambda w: {"rows": w.frame, "epsilon_x": 4.0, "epsilon_y": 2.0, "ledger": w.ledger, "rng": 0},
    method=True,
)
PARTY = pi.Schema({"a": (0.0, 1.0), "b": (0.0, 1.0)})
case("RandomMixing", pi.RandomMixing, {"schema": PARTY, "k": 12}, lambda r, w: r.release(**ROWS(w)))
case("RandomMixing.release", lambda w: pi.RandomMixing(PARTY, k=12).release, ROWS, method=True)
case("GaussianRows", pi.GaussianRows, {"schema": PARTY}, lambda r, w: r.release(**ROWS(w)))
case("GaussianRows.release", lambda w: pi.GaussianRows(PARTY).release, ROWS, method=True)


def mixing_plan() -> pi.MixingPlan:
    """Return a plan of two parties."""
    parts = {"one": {"a": (0.0, 1.0)}, "two": {"b": (0.0, 1.0), "y": (0.0, 2.0)}}
    parties = {name: pi.PartyPlan(pi.Schema(part), mu=3.0) for name, part in parts.items()}
    return pi.MixingPlan(
        parties=parties,
        n=N,
        method="random-mixing",
        k=12,
        kind="countsketch",
        seed=0,
        intercept=True,
        share=0.5,
    )


case("PartyPlan", pi.PartyPlan, {"schema": PARTY, "mu": 3.0})
case(
    "MixingPlan",
    pi.MixingPlan,
    lambda w: {
        "parties": {"one": pi.PartyPlan(PARTY, mu=3.0)},
        "n": N,
        "method": "random-mixing",
        "k": 12,
        "kind": "countsketch",
        "seed": 0,
        "intercept": True,
        "share": 0.5,
    },
    lambda r, w: (r.check(), r.to_json()),
)
case("MixingPlan.from_json", pi.MixingPlan.from_json, lambda w: {"text": mixing_plan().to_json()})
case("MixingPlan.from_dict", pi.MixingPlan.from_dict, lambda w: {"content": mixing_plan().to_dict()})
case("MixingPlan.load", pi.MixingPlan.load, lambda w: {"path": saved(w, "plan.json", mixing_plan().save)})
case(
    "MixingPlan.release",
    lambda w: mixing_plan().release,
    lambda w: {"party": "one", "rows": w.frame[["a"]], "ledger": w.ledger, "rng": 0},
    method=True,
)
case(
    "open_table",
    pi.open_table,
    lambda w: {"data": w.frame.assign(id=np.arange(N)), "schema": PARTY, "id": "id", "n": N},
)


def saved(world: World, name: str, save: Callable[[Path], Any]) -> Path:
    """Return the path of something that was saved in the world's folder."""
    if not (world.folder / name).exists():
        save(world.folder / name)
    return world.folder / name


# ---- models


def arrays(w: World) -> dict[str, Any]:
    """Return the arguments of a model of arrays."""
    return {
        "y": w.frame["y"],
        "X": w.frame[["a", "b"]],
        "bounds": [(0, 1), (0, 1)],
        "y_bounds": (0, 2),
        "ledger": w.ledger,
    }


def formula(w: World) -> dict[str, Any]:
    """Return the arguments of a model from a formula."""
    return {"formula": "y ~ a + b + C(g)", "data": w.frame, "schema": SCHEMA, "ledger": w.ledger}


def fit(model: Any, world: World) -> Any:
    """Fit with little noise."""
    return model.fit(**SPEND)


def shown(result: Any, world: World) -> Any:
    """Show a result."""
    return str(result.summary()), repr(result)


def moments(w: World, **options: Any) -> pi.MomentOLS:
    """Return a model of second moments."""
    return pi.MomentOLS.from_formula(**formula(w), **options)


case("MomentOLS", pi.MomentOLS, arrays, fit)
case(
    "MomentOLS.from_formula",
    pi.MomentOLS.from_formula,
    formula,
    fit,
    more=("trust", "radius", "weights", "response_weight"),
)
case(
    "MomentOLS.from_arrays",
    pi.MomentOLS.from_arrays,
    lambda w: {
        "sites": [(w.frame["y"][i::2].to_numpy(), w.frame[["a", "b"]][i::2].to_numpy()) for i in range(2)],
        "bounds": [(0, 1), (0, 1)],
        "y_bounds": (0, 2),
        "ledger": w.ledger,
    },
    fit,
)
case(
    "MomentOLS.from_release",
    pi.MomentOLS.from_release,
    lambda w: {"release": moments(w).release(mu=50.0, rng=0)},
    lambda r, w: r.fit(),
)
case("MomentOLS.fit", lambda w: moments(w).fit, SPEND, shown, method=True, more=LEVEL)
case(
    "MomentOLS.fit, HC0",
    lambda w: moments(w).fit,
    {**SPEND, "cov_type": "HC0", "robust_share": 0.5},
    shown,
    method=True,
)
case("MomentOLS.fit, local", lambda w: moments(w, trust="local").fit, SPEND, shown, method=True)
case("MomentOLS.release", lambda w: moments(w).release, SPEND, method=True, more=LEVEL)
case(
    "MomentOLS.fit, sites",
    lambda w: pi.MomentOLS.from_formula("y ~ a + b", w.sites(), schema=SCHEMA, ledger=w.ledger).fit,
    SPEND,
    shown,
    method=True,
)
case("ModulatedOLS", pi.ModulatedOLS, arrays, fit)
case(
    "ModulatedOLS.from_formula",
    pi.ModulatedOLS.from_formula,
    formula,
    fit,
    more=(
        "response",
        "radius",
        "contraction",
        "amplitude",
        "frequency",
        "directions",
        "sensitivity",
        "adjacency",
    ),
)
case(
    "ModulatedOLS.fit",
    lambda w: pi.ModulatedOLS.from_formula(**formula(w)).fit,
    SPEND,
    shown,
    method=True,
    more=LEVEL,
)
case(
    "ModulatedOLS.fit, iterative",
    lambda w: pi.ModulatedOLS.from_formula(**formula(w)).fit,
    {**SPEND, "method": "iterative", "rounds": 2},
    shown,
    method=True,
)


def examples(w: World) -> pi.IWPGLM:
    """Return a model of local examples."""
    return pi.IWPGLM.from_formula(
        "g ~ a + b", w.frame, schema=pi.Schema({**BOUNDS, "g": LEVELS}), loss="multinomial", ledger=w.ledger
    )


ASK = {"epsilon_x": 40.0, "epsilon_y": 4.0, "delta": 1e-3, "rng": 0}
case(
    "IWPGLM",
    pi.IWPGLM,
    lambda w: {
        "y": (w.frame["a"] > 0.5).astype(int),
        "X": w.frame[["b"]],
        "bounds": [(0, 1)],
        "ledger": w.ledger,
    },
    lambda r, w: r.fit(**ASK),
)
case(
    "IWPGLM.from_formula",
    pi.IWPGLM.from_formula,
    lambda w: {**formula(w), "formula": "g ~ a + b", "loss": "multinomial"},
    lambda r, w: r.fit(**ASK),
)
case("IWPGLM.fit", lambda w: examples(w).fit, ASK, shown, method=True)
case("IWPGLM.release", lambda w: examples(w).release, ASK, method=True)


def pure_examples(w: World) -> pi.IWPGLM:
    """Return a model of local examples with Laplace noise, whose response has two levels."""
    frame = w.frame.assign(g=np.where(w.frame["g"] == LEVELS[0], *LEVELS[:2]))
    schema = pi.Schema({**BOUNDS, "g": LEVELS[:2]})
    return pi.IWPGLM.from_formula("g ~ a + b", frame, schema=schema, noise="laplace", ledger=w.ledger)


PURE = {"epsilon_x": 40.0, "epsilon_y": 4.0, "rng": 0}
case("IWPGLM.fit, Laplace noise", lambda w: pure_examples(w).fit, PURE, shown, method=True)
case("IWPGLM.release, Laplace noise", lambda w: pure_examples(w).release, PURE, method=True)


def party(cls: Any, **options: Any) -> None:
    """Register a model of several parties."""

    def given(w: World) -> dict[str, Any]:
        return {**arrays(w), "parties": {"one": ["a"], "two": ["b", "y"]}, **options}

    case(cls.__name__, cls, given, fit)
    case(f"{cls.__name__}.fit", lambda w: cls(**given(w)).fit, SPEND, shown, method=True, more=LEVEL)
    case(f"{cls.__name__}.release", lambda w: cls(**given(w)).release, SPEND, method=True, more=LEVEL)


party(pi.RMGMOLS, k=12)
party(pi.DGMOLS)
party(pi.BGMOLS)
case(
    "join",
    pi.join,
    lambda w: {
        "releases": pi.DGMOLS(**arrays(w), parties={"one": ["a"], "two": ["b", "y"]}).release(**SPEND)
    },
    lambda r, w: r.regress("y ~ a + b"),
)


def glm(w: World, **options: Any) -> pi.FederatedGLM:
    """Return a regression over two sites."""
    return pi.FederatedGLM.from_formula(
        "y ~ a + b", w.sites(), schema=SCHEMA, family="gaussian", ledger=w.ledger, **options
    )


case(
    "FederatedGLM.from_formula",
    pi.FederatedGLM.from_formula,
    lambda w: {
        "formula": "y ~ a + b",
        "data": w.sites(),
        "schema": SCHEMA,
        "family": "gaussian",
        "ledger": w.ledger,
    },
    lambda r, w: r.fit(epsilon=20.0, delta=1e-3, rng=0),
)
case("FederatedGLM.fit", lambda w: glm(w).fit, {"epsilon": 20.0, "delta": 1e-3, "rng": 0}, shown, method=True)
case(
    "FederatedGLM.fit, secure sums",
    lambda w: glm(w, trust="secure-sum").fit,
    {"epsilon": 20.0, "delta": 1e-3, "rng": 0},
    shown,
    method=True,
)
case(
    "DebiasedLasso",
    pi.DebiasedLasso,
    lambda w: {**arrays(w), "trust": "server"},
    lambda r, w: r.fit(epsilon=500.0, delta=1e-3, sparsity=1, targets="all", rng=0),
)
case(
    "DebiasedLasso.fit",
    lambda w: pi.DebiasedLasso(**arrays(w)).fit,
    {"epsilon": 500.0, "delta": 1e-3, "sparsity": 1, "targets": "all", "rng": 0},
    shown,
    method=True,
)
case(
    "DebiasedLasso.fit, logistic by site",
    lambda w: (
        pi.DebiasedLasso(
            w.frame["y"] > 0.5,
            w.frame[["a", "b"]],
            x_bound=1.0,
            family="binomial",
            sites=np.arange(len(w.frame)) % 2,
            ledger=w.ledger,
        ).fit
    ),
    {
        "epsilon": 1e5,
        "delta": 1e-3,
        "sparsity": 2,
        "shared_sparsity": 1,
        "heterogeneous": True,
        "targets": [0],
        "rng": 0,
    },
    shown,
    method=True,
)
for _cls in (pi.DOME, pi.DPSGD, pi.DPAdam, pi.RandomSketch, pi.Newton):
    case(_cls.__name__, _cls, {})

# ---- sites and servers

case(
    "SitePolicy",
    SitePolicy,
    {"trusted_server": True, "simulation": True},
    lambda r, w: Site(Rows(w.frame[["y", "a"]]), pi.Schema({"y": (0, 2), "a": (0, 1)}), policy=r),
)
case(
    "Site",
    Site,
    lambda w: {"rows": Rows(w.frame), "schema": SCHEMA, "policy": POLICY, "ledger": w.ledger},
    lambda r, w: r.description(),
)
case(
    "InProcessFederation",
    InProcessFederation,
    lambda w: {"sites": {"north": w.site()}},
    lambda r, w: federation.TrustedServer(
        r, ledger=w.ledger, rng=0, design=pi.Design.from_formula("y ~ a", SCHEMA)
    ),
)
case(
    "TrustedServer",
    federation.TrustedServer,
    lambda w: {
        "federation": w.sites(),
        "ledger": w.ledger,
        "rng": 0,
        "design": pi.Design.from_formula("y ~ a", SCHEMA),
    },
    lambda r, w: repr(r),
)
case(
    "SecureServer",
    federation.SecureServer,
    lambda w: {
        "federation": w.sites(),
        "ledger": w.ledger,
        "rng": 0,
        "design": pi.Design.from_formula("y ~ a", SCHEMA),
    },
    lambda r, w: repr(r),
)


def server(w: World, kind: Any = federation.TrustedServer) -> Any:
    """Return a server of two sites."""
    return kind(w.sites(), ledger=w.ledger, rng=0, design=pi.Design.from_formula("y ~ a + b", SCHEMA))


BETA = {"support": np.array([0, 1]), "beta": np.array([0.5, 0.1])}
CLIPPED = BETA | {"residual_clip": 1.0}
EDGES = BETA | {"edges": np.array([0.01, 0.1, 0.5, 1.0, 2.0])}
case(
    "vector_sum",
    lambda w: server(w).vector_sum,
    {"op": "clipped_products", "args": BETA | {"bound": 1.0}, "label": "products", "mu": 1.0},
    method=True,
)
case(
    "vector_sum, secure",
    lambda w: server(w, federation.SecureServer).vector_sum,
    {"op": "clipped_products", "args": BETA | {"bound": 1.0}, "label": "products", "mu": 1.0},
    method=True,
)
case(
    "scalar",
    lambda w: server(w).scalar,
    {"op": "squared_residuals", "args": CLIPPED, "label": "variance", "mu": 1.0},
    lambda r, w: r.mean,
    method=True,
)
case(
    "top_k",
    lambda w: server(w).top_k,
    {"op": "clipped_products", "args": BETA | {"bound": 1.0}, "k": 1, "label": "largest", "mu": 1.0},
    lambda r, w: r.dense(),
    method=True,
)
case(
    "histogram_quantile",
    lambda w: server(w).histogram_quantile,
    {"args": EDGES, "level": 0.5, "label": "scale", "mu": 1.0},
    lambda r, w: float(r),
    method=True,
)
case("pinned_keys", pinned_keys, {"names": ["north", "south"]})
case("Roster", federation.Roster, lambda w: {"keys": dict(keys()[1].keys)})
case("Roster.from_json", federation.Roster.from_json, lambda w: {"text": keys()[1].to_json()})
case("IdentityKey", federation.IdentityKey, {"secret": bytes(range(32))})
case(
    "IdentityKey.load",
    federation.IdentityKey.load,
    lambda w: {"path": saved(w, "new.key", federation.IdentityKey(bytes(range(32))).save)},
)
case(
    "Query",
    federation.Query,
    {"op": "scores", "args": {"beta": np.zeros(2)}, "version": 1, "sequence": 1},
    lambda r, w: r.digest,
)
case("Reply", federation.Reply, {"site": "north", "sums": np.zeros(2), "rows": 3})
case(
    "SiteLedger",
    federation.SiteLedger,
    lambda w: {"path": w.folder / "s.ledger", "budget": pi.Budget(mu=9.0)},
    lambda r, w: r.close(),
)

# ---- releases and results


@cache
def result() -> Any:
    """Return a result to ask."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(400, 2))
    y = np.clip(X @ [0.5, 0.3] + rng.normal(0, 0.1, 400), 0, 2)
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(y=y)
    frame["g"] = np.resize(LEVELS, 400)
    return pi.ModulatedOLS.from_formula("y ~ a + b + C(g)", frame, schema=SCHEMA).fit(mu=500.0, rng=0)


case(
    "load_release", pi.load_release, lambda w: {"path": saved(w, "r.npz", result().release.save), "key": None}
)
case("load_results", pi.load_results, lambda w: {"path": saved(w, "f.npz", result().save), "key": None})
case("compare", pi.compare, lambda w: {"results": {"one": result(), "two": result()}}, lambda r, w: str(r))
for _name, _args in {
    "conf_int": {"alpha": 0.05, "method": "wald"},
    "t_test": {"r_matrix": "a = b"},
    "f_test": {"r_matrix": "a = 0, b = 0"},
    "wald_test": {"r_matrix": [[0, 0, 0, 1, -1]]},
    "t_test_pairwise": {"term_name": "C(g)"},
    "wald_test_terms": {},
    "cov_params": {"r_matrix": [[0, 0, 0, 1, -1]]},
    "delta_method": {"function": lambda beta: beta["a"] / beta["b"]},
    "predict": {"exog": pd.DataFrame({"a": [0.1], "b": [0.2], "g": ["u"]})},
    "score_test": {"beta0": [0.0, 0.0, 0.5, 0.3]},
    "get_prediction": {"exog": pd.DataFrame({"a": [0.1], "b": [0.2], "g": ["u"]})},
    "score_set": {"name": "a", "alpha": 0.05},
    "simultaneous": {"alpha": 0.05, "rng": 0},
    "bootstrap": {"draws": 20, "rng": 0},
    "draws": {"n": 10, "rng": 0},
    "summary": {"alpha": 0.05, "title": "one"},
}.items():
    case(f"Results.{_name}", lambda w, name=_name: getattr(result(), name), _args, method=True)
case("Results.save", lambda w: result().save, lambda w: {"path": w.folder / "f.npz"}, method=True)

assert math.isfinite(CELL)
