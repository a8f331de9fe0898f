"""A fuzzer of rows: every public model and test on hostile tables, with options at the ends of their ranges.

It counts the ledger lines of each run. An exception after a charge is a fault: a fit is either refused in
advance, from arguments and public numbers, or it returns what was bought with its marks. Exceptions that are
not errors of the package in plain words are faults too, and so are warnings that are not the package's own.
"""

from __future__ import annotations

import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
from argument_fuzzer import MISFIT, Hang, alarm, small_memory

import privinf as pi
from privinf.accounting import Ledger
from privinf.errors import NotAvailableError, PrivinfError, PrivinfWarning, UnforeseenError
from privinf.federation import InProcessFederation, Site, SitePolicy, pinned_keys
from privinf.mechanisms.rows import Rows
from privinf.noise import entropy

LEVELS = ["u", "v", "w"]
NUMBERS = {"a": (-1.0, 1.0), "b": (0.0, 3.0), "c": (0.0, 1.0)}
PUBLIC = {
    "t": pi.Numeric(0.5, 4.0, public=True),
    "q": pi.Numeric(-1.0, 1.0, public=True),
    "s": pi.Numeric(0.0, 1.0, public=True),
}
RESPONSES: dict[str, Any] = {
    "number": (-4.0, 6.0),
    "share": (0.0, 1.0),
    "count": (0.0, 9.0),
    "label": ["no", "yes"],
    "labels": ["low", "middle", "high"],
}
SITES = ("north", "south")
POLICY = SitePolicy(trusted_server=True, secure_sums=True, simulation=True, zero_out=True)
# Most rows of a run: fits are quick, and noise is large.
SIZES = (2, 3, 5, 8, 13, 20, 35, 50, 80, 120, 200, 300, 500, 1000)


@cache
def keys() -> Any:
    """Return keys and roster of the sites."""
    return pinned_keys(list(SITES))


# ---- hostile rows


def ordinary(rng: np.random.Generator, n: int) -> pd.DataFrame:
    """Return rows within their bounds; `z` is the mean of the response."""
    frame = pd.DataFrame({name: rng.uniform(*bounds, n) for name, bounds in NUMBERS.items()})
    frame["g"] = rng.choice(LEVELS, n)
    frame["t"], frame["q"] = rng.uniform(0.5, 4.0, n), rng.uniform(-1.0, 1.0, n)
    frame["s"] = np.resize([0.0, 1.0], n)
    frame["z"] = 1.0 + 0.5 * frame.a - 0.4 * frame.b + 0.3 * frame.c
    return frame


def skewed(frame: pd.DataFrame, rng: np.random.Generator) -> None:
    """Gather the columns near one end of their bounds, with a few rows at the other."""
    for name, (low, high) in NUMBERS.items():
        frame[name] = low + (high - low) * rng.beta(0.05, 3.0, len(frame))


def constant(frame: pd.DataFrame, rng: np.random.Generator) -> None:
    """Let one to all columns not vary."""
    for name in list(NUMBERS)[: int(rng.integers(1, 4))]:
        frame[name] = NUMBERS[name][int(rng.integers(2))] if rng.uniform() < 0.5 else 0.5


def collinear(frame: pd.DataFrame, rng: np.random.Generator) -> None:
    """Let one column be a multiple of another, and one of the constant."""
    frame["b"] = 1.0 + frame["a"]
    if rng.uniform() < 0.5:
        frame["c"] = (frame["a"] + 1.0) / 2.0


def heavy(frame: pd.DataFrame, rng: np.random.Generator) -> None:
    """Draw from a distribution without a mean, far beyond the bounds."""
    for name in NUMBERS:
        frame[name] = rng.standard_cauchy(len(frame)) * 10.0 ** rng.integers(-3, 200)
    frame["z"] = rng.standard_cauchy(len(frame)) * 10.0 ** rng.integers(0, 200)


def one_level(frame: pd.DataFrame, rng: np.random.Generator) -> None:
    """Leave levels without rows, or with one row."""
    frame["g"] = str(rng.choice(LEVELS))
    if rng.uniform() < 0.5:
        frame.loc[0, "g"] = str(rng.choice(LEVELS))


def at_the_bounds(frame: pd.DataFrame, rng: np.random.Generator) -> None:
    """Put every value at a bound."""
    for name, bounds in NUMBERS.items():
        frame[name] = rng.choice(bounds, len(frame))
    frame["z"] = rng.choice([-4.0, 6.0], len(frame))


def beyond_the_bounds(frame: pd.DataFrame, rng: np.random.Generator) -> None:
    """Put every value beyond the same bound."""
    for name in NUMBERS:
        frame[name] = 1e6 * rng.uniform(1.0, 2.0, len(frame))
    frame["z"] = float(rng.choice([-1e9, 1e9]))


def all_the_same(frame: pd.DataFrame, rng: np.random.Generator) -> None:
    """Repeat the first row."""
    frame.iloc[:] = frame.iloc[[0] * len(frame)].to_numpy()
    for name in frame.columns.drop("g"):
        frame[name] = frame[name].astype(float)


def lowest(frame: pd.DataFrame, rng: np.random.Generator) -> None:
    """Let every response be its lowest value: 0, or "no"."""
    frame["z"] = -1e3


def highest(frame: pd.DataFrame, rng: np.random.Generator) -> None:
    """Let every response be its highest value: 1, or "yes"."""
    frame["z"] = 1e3


def separated(frame: pd.DataFrame, rng: np.random.Generator) -> None:
    """Let the sign of one column decide the response."""
    frame["z"] = np.where(frame["a"] > 0.0, 1e3, -1e3)


def one_apart(frame: pd.DataFrame, rng: np.random.Generator) -> None:
    """Let all rows but one be alike."""
    all_the_same(frame, rng)
    frame.loc[0, list(NUMBERS)] = [high for _, high in NUMBERS.values()]
    frame.loc[0, "z"] = 1e3


def tiny(frame: pd.DataFrame, rng: np.random.Generator) -> None:
    """Let columns hold the smallest numbers there are."""
    for name in NUMBERS:
        frame[name] = rng.choice([5e-324, -5e-324, 0.0, -0.0, 1e-200], len(frame))


def whole(frame: pd.DataFrame, rng: np.random.Generator) -> None:
    """Let columns be whole numbers: many ties."""
    for name in NUMBERS:
        frame[name] = np.round(frame[name])
    frame["z"] = np.round(frame["z"])


def gaps(frame: pd.DataFrame, rng: np.random.Generator) -> None:
    """Leave values out, in one column all of them."""
    for name in (*NUMBERS, "z"):
        frame.loc[rng.uniform(size=len(frame)) < rng.choice([0.0, 0.1, 1.0]), name] = np.nan


ROWS: dict[str, Callable[[pd.DataFrame, np.random.Generator], None]] = {
    "ordinary": lambda frame, rng: None,
    "skewed": skewed,
    "constant": constant,
    "collinear": collinear,
    "heavy-tailed": heavy,
    "rare levels": one_level,
    "at the bounds": at_the_bounds,
    "beyond the bounds": beyond_the_bounds,
    "all the same": all_the_same,
    "responses lowest": lowest,
    "responses highest": highest,
    "separated": separated,
    "one row apart": one_apart,
    "tiny numbers": tiny,
    "whole numbers": whole,
    "missing values": gaps,
}


def respond(frame: pd.DataFrame, kind: str, rng: np.random.Generator) -> pd.Series:
    """Return a response of a kind, from its mean `z`."""
    z = frame["z"] + rng.normal(0.0, 0.3, len(frame))
    missing = frame["z"].isna()
    if kind == "number":
        return frame["z"] if rng.uniform() < 0.2 else z
    if kind == "count":
        return np.round(z.clip(0.0, 9.0))
    if kind == "share":
        return (z > 0.7).astype(float).mask(missing)
    code = (z > 0.4).astype(int) + (z > 1.0) if kind == "labels" else (z > 0.7).astype(int)
    return pd.Series(np.array(RESPONSES[kind], dtype=object)[code.to_numpy()]).mask(missing, None)


# ---- one run


@dataclass
class World:
    """The rows of one run, the ledgers that see what it spends, a folder, and what was drawn for it."""

    rng: np.random.Generator
    folder: Path
    rows: str
    n: int
    ledger: Ledger = field(default_factory=Ledger)
    held: list[Ledger] = field(default_factory=list)
    drawn: dict[str, Any] = field(default_factory=dict)
    frame: pd.DataFrame = field(default_factory=pd.DataFrame)

    def table(self, kind: str) -> pd.DataFrame:
        """Return the rows with a response of a kind in column y."""
        frame = ordinary(self.rng, self.n)
        ROWS[self.rows](frame, self.rng)
        frame["y"] = respond(frame, kind, self.rng).to_numpy()
        self.frame = frame.drop(columns="z")
        return self.frame

    def pick(self, name: str, *values: Any) -> Any:
        """Return one of the values, and note it."""
        self.drawn[name] = values[int(self.rng.integers(len(values)))]
        return self.drawn[name]

    def chance(self, share: float) -> bool:
        """Whether something of this probability happens."""
        return bool(self.rng.uniform() < share)

    def options(self, share: float = 0.3, /, **values: tuple[Any, ...]) -> dict[str, Any]:
        """Return some of the options, each with a value."""
        return {name: self.pick(name, *some) for name, some in values.items() if self.chance(share)}

    def parts(self) -> list[pd.DataFrame]:
        """Return the rows of two sites: halves, one row and the others, or all and none."""
        n = len(self.frame)
        cut = self.pick("rows of the first site", *(n // 2,) * 4, *(1, n - 1) * 4, n)
        return [self.frame.iloc[:cut], self.frame.iloc[cut:]]

    def sites(self, schema: pi.Schema, **words: Any) -> InProcessFederation:
        """Return the sites, each with a ledger."""
        own, roster = keys()
        made = {}
        for name, part in zip(SITES, self.parts(), strict=True):
            self.held.append(Ledger())
            made[name] = Site(
                Rows(part[list(schema.columns)], **words),
                schema,
                policy=POLICY,
                ledger=self.held[-1],
                key=own[name],
                roster=roster,
            )
        return InProcessFederation(made)

    def spent(self) -> int:
        """Return how many lines the ledgers have."""
        return len(self.ledger) + sum(len(ledger) for ledger in self.held)


def spending(world: World, *, picks: bool = False) -> dict[str, Any]:
    """Return a price: often a usual one, at times at an end of what there is; without mu for picks."""
    given = {
        "mu": (1e-6, 1e-3, 0.03, 0.3, 1.0, 3.0, 10.0, 100.0, 1e4, 1e8),
        "rho": (1e-12, 1e-6, 1e-3, 0.1, 1.0, 30.0, 1e4),
        "epsilon": (1e-9, 1e-3, 0.1, 1.0, 3.0, 10.0, 100.0, 1e4),
    }
    unit = str(
        world.rng.choice(["epsilon", "epsilon", "rho", "rho"] if picks else ["mu", "mu", "epsilon", "rho"])
    )
    words = {unit: world.pick(unit, *given[unit])}
    if unit == "epsilon" or world.chance(0.2):
        words["delta"] = world.pick("delta", 1e-300, 1e-12, 1e-6, 1e-4, 1e-2, 0.5, 0.999999)
    if unit == "epsilon":
        words |= world.options(0.04, calibration=("exact", "classic"), delta=(0,))
    return words | {"rng": None if world.chance(0.25) else int(world.rng.integers(1000))}


def missing(world: World) -> dict[str, Any]:
    """Return what is done with missing values."""
    return {"missing": "impute-public"} if world.rows == "missing values" and world.chance(0.85) else {}


def schema_of(kind: str, **words: Any) -> pi.Schema:
    """Return the schema of a table with a response of a kind."""
    return pi.Schema({"y": RESPONSES[kind], **NUMBERS, "g": LEVELS, **PUBLIC}, **words)


ENTRY_POINTS: dict[str, Callable[[World], Any]] = {}


def entry_point(name: str) -> Callable[[Callable[[World], Any]], Callable[[World], Any]]:
    """Register a public model or test by name: from a world to what its call returned."""

    def register(function: Callable[[World], Any]) -> Callable[[World], Any]:
        assert name not in ENTRY_POINTS
        ENTRY_POINTS[name] = function
        return function

    return register


FORMULAS = (
    "y ~ a",
    "y ~ a + b",
    "y ~ a + b + c",
    "y ~ a * b",
    "y ~ C(g)",
    "y ~ a + C(g)",
    "y ~ 0 + a",
    "y ~ 1",
    "y ~ a + q",
    "y ~ a + I(a**2)",
    "y ~ C(g) - 1",
    "y ~ q",
    "y ~ np.exp(a) + b",
    "y ~ a:C(g)",
    "y ~ a + b + c + q + C(g)",
    "y ~ bs(b, knots=[1.0], degree=3, lower_bound=0, upper_bound=3)",
)


# ---- second moments


def moments(world: World, trust: str) -> Any:
    """Fit least squares of second moments."""
    world.table("number")
    persons = trust in ("central", "local") and world.chance(0.15)
    if persons:
        world.frame["person"] = np.arange(world.n) // 2
        world.drawn["unit"] = "person"
    schema = schema_of("number", **({"unit": "person", "max_rows": 2} if persons else {}))
    over = trust in ("server", "secure-sum")
    held = world.sites(schema, **missing(world)) if over else world.frame
    words = world.options(0.15, radius=(1e-6, 0.5, 3.0, 1e6), response_weight=(1e-6, 0.5, 1e6))
    if trust == "central":
        words |= world.options(0.2, weights=("t", "s"))
    model = pi.MomentOLS.from_formula(
        world.pick("formula", *FORMULAS),
        held,
        schema=schema,
        trust=trust,
        ledger=world.ledger,
        **({} if over else missing(world)),
        **words,
    )
    kinds = ("cluster",) if persons else ("nonrobust", "HC0", "HC1", "HC0", "HC1", "HC0")
    how = world.options(
        0.25,
        cov_type=("nonrobust",) if trust == "local" and not persons else kinds,
        stabilization=("none", "fuller", "ridge", "ridge"),
        target=("population", "sample"),
    )
    if over:
        how |= world.options(0.05, checkpoint=(world.folder / "checkpoint",))
    if trust == "central" and how.get("cov_type", "nonrobust") != "nonrobust":
        how |= world.options(0.5, robust_share=(1e-9, 0.5, 1 - 1e-9))
    if how.get("stabilization") == "ridge":
        how |= world.options(0.7, ridge=(1e-12, 1.0, 1e12))
    if how.get("stabilization") == "fuller":
        how |= world.options(0.7, fuller=(1e-12, 1.0, 1e6))
    if trust == "secure-sum":
        how |= world.options(0.2, max_colluding=(0, 1))
    return model.fit(**how, **spending(world))


for _trust in ("central", "local", "server", "secure-sum"):
    entry_point(f"MomentOLS, {_trust}")(lambda world, trust=_trust: moments(world, trust))


@entry_point("MomentOLS of arrays")
def _moments_of_arrays(world: World) -> Any:
    frame = world.table("number")
    X = frame[["a", "b", "q"]].assign(const=1.0)
    model = pi.MomentOLS(
        frame.y,
        X,
        bounds={"a": (-1, 1), "b": (0, 3)},
        public=["q", "const"],
        y_bounds=(-4, 6),
        ledger=world.ledger,
        **missing(world),
        **world.options(trust=("central", "local")),
    )
    return model.fit(**world.options(cov_type=("nonrobust", "HC0", "HC1")), **spending(world))


@entry_point("Moments and what is made of them")
def _many(world: World) -> Any:
    frame = world.table("number")
    mechanism = pi.Moments(
        schema_of("number"),
        columns=["a", "b", "C(g)", "c", "y", "q"],
        **missing(world),
        **world.options(trust=("central", "local")),
    )
    release = mechanism.release(
        frame, ledger=world.ledger, **world.options(cov_type=("nonrobust", "HC0")), **spending(world)
    )
    made: list[Any] = [release]
    made.append(
        afterwards(world, "regress", lambda: release.regress(["y ~ a + b", "a ~ y + q", "b ~ C(g) - 1"]))
    )
    made.append(afterwards(world, "iv", lambda: release.iv("y ~ q + [a ~ b + c]")))
    made.append(afterwards(world, "means", release.means))
    made.append(afterwards(world, "corr", release.corr))
    made.append(afterwards(world, "partial_corr", lambda: release.partial_corr(["a", "y"], given=["b"])))
    return made


def afterwards(world: World, name: str, call: Callable[[], Any]) -> Any:
    """Return what a call makes of a release that its user has: it may say that the noise is too much."""
    try:
        return call()
    except (NotAvailableError, pi.errors.NotPositiveDefiniteError, pi.errors.SchemaError):
        return None


# ---- regressions by sums


def regression(
    world: World, model: str, kind: str, trust: str | None, **names: Any
) -> tuple[Any, dict[str, Any]]:
    """Return a regression of a table or of sites, and words of its fit."""
    world.table(kind)
    schema = schema_of(kind)
    held = world.frame if trust is None else world.sites(schema, **missing(world))
    words: dict[str, Any] = dict(names)
    if model == "NegativeBinomial":
        words |= world.options(0.2, offset=("q",), exposure=("t",))
    elif model in ("Logit", "Poisson"):
        words |= world.options(0.15, offset=("q",), weights=("t", "s"))
        words |= world.options(0.3, exposure=("t",)) if model == "Poisson" else {}
    else:
        words |= world.options(0.15, radius=(1e-6, 0.5, 3.0, 1e6)) if model != "OLS" else {}
    if kind == "number":
        words |= world.options(0.2, residual_clip=("auto", "bounds", 1e-9, 0.5, 1e6))
    made = getattr(pi, model).from_formula(
        world.pick("formula", *FORMULAS),
        held,
        schema=schema,
        ledger=world.ledger,
        **(missing(world) if trust is None else {"trust": trust}),
        **words,
    )
    how = world.options(
        0.2, cov_type=("nonrobust", "HC0", "HC1") if kind == "number" else ("nonrobust", "HC0")
    )
    if model != "NegativeBinomial":
        how |= world.options(0.9, intervals=("optional", "optional", "optional", "required"))
    if trust is not None:
        how |= world.options(0.05, checkpoint=(world.folder / "checkpoint",))
        how |= world.options(0.3, max_colluding=(0, 1)) if trust == "secure-sum" else {}
    return made, how


def of_scores(world: World, model: str, kind: str, trust: str | None, **names: Any) -> Any:
    """Fit a regression as it comes, with few named options."""
    made, how = regression(world, model, kind, trust, **names)
    if model == "OLS":
        how |= world.options(0.2, target=("mean", "robust"), adapt_bounds=(True, False))
    elif model == "NegativeBinomial":
        how |= world.options(0.2, margins=(True, False))
    else:
        how |= world.options(
            0.1,
            margins=(True, False),
            relation=("replace-one", "zero-out"),
            targets=(["a"],),
            public_seed=(0, 2**31),
        )
        if "targets" in how:
            how |= world.options(0.5, nuisance=(["b"], ["q"]))
    return made.fit(**how, **spending(world))


@entry_point("OLS")
def _ols(world: World) -> Any:
    return of_scores(world, "OLS", "number", None)


@entry_point("Logit")
def _logit(world: World) -> Any:
    return of_scores(world, "Logit", "share", None)


@entry_point("Logit of labels")
def _logit_of_labels(world: World) -> Any:
    return of_scores(world, "Logit", "label", None)


@entry_point("Poisson")
def _poisson(world: World) -> Any:
    return of_scores(world, "Poisson", "count", None)


@entry_point("NegativeBinomial")
def _negative_binomial(world: World) -> Any:
    return of_scores(world, "NegativeBinomial", "count", None)


# ---- times to events


def followed(world: World) -> tuple[pd.DataFrame, pi.Schema]:
    """Return rows with the response as a time and a status, and their schema."""
    world.table("count")
    frame = world.frame.assign(event=(world.frame["c"] > 0.5).astype(float))
    schema = pi.Schema({"y": RESPONSES["count"], "event": (0, 1), **NUMBERS, "g": LEVELS, **PUBLIC})
    return frame, schema


@entry_point("PHReg")
def _proportional_hazards(world: World) -> Any:
    frame, schema = followed(world)
    if world.chance(0.3):
        frame["event"] = np.where(frame["event"] > 0.5, "died", "alive")
        schema = pi.Schema(
            {"y": RESPONSES["count"], "event": ["alive", "died"], **NUMBERS, "g": LEVELS, **PUBLIC}
        )
    dropping = {"missing": "drop"} if world.chance(0.4) else missing(world)
    model = pi.PHReg.from_formula(
        world.pick("formula", *FORMULAS),
        frame,
        status="event",
        schema=schema,
        ledger=world.ledger,
        **dropping,
        **world.options(0.3, intervals=(1, 4, 16)),
    )
    how = world.options(0.3, follow_up=("longest", "model"))
    try:
        return model.fit(**how, **spending(world))
    except NotAvailableError as error:  # by the count of events, which is then all that was released
        if "too few events" in str(error):
            return None
        raise


@entry_point("survival.KaplanMeier")
def _kaplan_meier(world: World) -> Any:
    frame, schema = followed(world)
    words = {"missing": "drop"} if world.rows == "missing values" and world.chance(0.85) else {}
    model = pi.survival.KaplanMeier(
        "y",
        "event",
        data=frame,
        schema=schema,
        ledger=world.ledger,
        **words,
        **world.options(0.4, by=("g",), grid=(1, 3, 16), discrete=(True,)),
    )
    curves = model.fit(**spending(world))
    return [curves, afterwards(world, "median", curves.median)]


FAMILIES = {"gaussian": "number", "binomial": "share", "poisson": "count"}


@entry_point("GLM")
def _glm(world: World) -> Any:
    family = world.pick("family", *FAMILIES)
    return of_scores(world, "GLM", FAMILIES[family], None, family=family)


@entry_point("OLS over sites")
def _ols_sites(world: World) -> Any:
    return of_scores(world, "OLS", "number", world.pick("trust", "server", "secure-sum"))


@entry_point("FederatedGLM")
def _federated(world: World) -> Any:
    family = world.pick("family", *FAMILIES)
    trust = world.pick("trust", "server", "secure-sum")
    return of_scores(world, "FederatedGLM", FAMILIES[family], trust, family=family)


@entry_point("FederatedGLM of arrays")
def _federated_arrays(world: World) -> Any:
    family = world.pick("family", *FAMILIES)
    world.table(FAMILIES[family])
    parts = {
        name: (part.y.to_numpy(), part[["a", "b"]].to_numpy())
        for name, part in zip(SITES, world.parts(), strict=True)
    }
    model = pi.FederatedGLM.from_arrays(
        parts,
        bounds=[(-1, 1), (0, 3)],
        family=family,
        ledger=world.ledger,
        **missing(world),
        **({} if family == "binomial" else {"y_bounds": RESPONSES[FAMILIES[family]]}),
        **world.options(radius=(0.5, 3.0), trust=("server", "secure-sum")),
    )
    return model.fit(intervals=world.pick("intervals", "optional", "optional", "required"), **spending(world))


@entry_point("GLM, an optimizer by name")
def _optimizers(world: World) -> Any:
    family = world.pick("family", *FAMILIES)
    trust = world.pick("trust", None, "server", "secure-sum")
    made, how = regression(world, "GLM", FAMILIES[family], trust, family=family)
    steps = {"epochs": world.pick("epochs", 1, 2), "batches": world.pick("batches", 1, 2, 5)}
    steps |= world.options(
        0.2,
        step=(1e-9, 1.0, 1e6, 1e40),
        clip=(1e-6, 4.0, 1e6),
        average=(1e-6, 1.0 - 1e-9),
        final_share=(1e-6, 1.0 - 1e-9),
    )
    name = world.pick("optimizer", "DOME", "DPSGD", "DPAdam", "RandomSketch", "Newton")
    if name == "DOME":
        steps |= {"k": world.pick("k", 1, 1, 2, 2, 40), "most_learned": world.pick("most_learned", 0, 1, 5)}
        steps |= world.options(
            0.2,
            energy=(1e-6, 0.9, 1.0 - 1e-9),
            variant=("repaired", "paper"),
            centre=(True, False),
            precondition=(True, False),
            adam=(True, False),
            probes=("unbiased", "orthonormal"),
        )
    if name == "RandomSketch":
        steps |= {"k": world.pick("k", 1, 1, 2, 2, 40)}
    if name == "Newton":
        steps = world.options(0.5, rounds=(1, 2, 5), final_share=(1e-6, 0.5, 1.0 - 1e-9))
    how["optimizer"] = getattr(pi, name)(**steps)
    how |= world.options(0.1, margins=(True, False), relation=("replace-one", "zero-out"))
    if trust is not None and world.chance(0.15):
        how |= {"unit": "client", "client_clip": world.pick("client_clip", 1e-6, 5.0, 1e9)}
    return made.fit(**how, **spending(world))


# ---- modulated rows


def modulated(world: World, **how: Any) -> Any:
    """Fit modulated rows."""
    frame = world.table("number")
    words = world.options(
        0.15,
        contraction=(0.0, 1e-6, 0.5, 1.0 - 1e-9),
        amplitude=(0.0, 1e-6, 0.5, 10.0),
        frequency=(1e-6, 1.0, 100.0),
        directions=(1, 2, 5),
        sensitivity=("exact", "lipschitz"),
        adjacency=("bounded", "unit"),
        response_share=(1e-6, 0.5, 1.0 - 1e-9),
        public_seed=(0, 2**31),
        radius=(1e-6, 1.0, 1e6),
        response=("protected", "public"),
    )
    if words.get("response") == "public":
        words |= world.options(weights=("t", "s"))
    model = pi.ModulatedOLS.from_formula(
        world.pick("formula", *FORMULAS),
        frame,
        schema=schema_of("number"),
        ledger=world.ledger,
        **missing(world),
        **words,
    )
    more = world.options(
        0.2,
        stabilization=("none", "fuller", "ridge"),
        target=("population", "sample"),
        cov_type=("HC0", "HC1", "HC0", "nonrobust"),
    )
    if how:
        more |= world.options(0.3, max_norm=(1e-6, 1.0, 1e6), estimator=("client-average", "pooled", "last"))
    if more.get("stabilization") == "ridge":
        more |= world.options(0.7, ridge=(1e-12, 1.0, 1e12))
    return model.fit(**how, **more, **spending(world))


@entry_point("ModulatedOLS, one shot")
def _modulated(world: World) -> Any:
    return modulated(world)


@entry_point("ModulatedOLS, iterative")
def _iterative(world: World) -> Any:
    how = {"method": "iterative", "rounds": world.pick("rounds", 1, 2, 5)}
    how |= world.options(step=(1e-9, 0.1, 1e6, 1e40))
    if world.chance(0.2):
        how["schedule"] = [1.0] * how["rounds"]
    return modulated(world, **how)


# ---- locally private examples

EXAMPLE_FORMULAS = ("y ~ a", "y ~ a + b", "y ~ a + C(g)", "y ~ 0 + a", "y ~ a + q", "y ~ a + c", "y ~ 1")
LOSSES = {
    "logistic": "label",
    "squared": "number",
    "quadratic": "label",
    "exponential": "label",
    "multinomial": "labels",
    "poisson": "count",
}


@entry_point("IWPGLM")
def _examples(world: World) -> Any:
    loss = world.pick("loss", *LOSSES)
    frame = world.table(LOSSES[loss])
    words = world.options(
        0.15,
        radius=(1e-3, 0.7, 10.0),
        label=("auto", "response", "gaussian", "laplace", "clear"),
        binary_mechanism=("response", "gaussian"),
    )
    if world.chance(0.3):
        words["noise"] = "laplace"
    formula = world.pick(
        "formula", "y ~ a", "y ~ a + b", "y ~ a + C(g)", "y ~ 0 + a", "y ~ a + q", "y ~ a + c", "y ~ 1"
    )
    if formula.endswith("+ c"):
        frame["c"] = (frame["c"] > 0.5).astype(float)
        words |= world.options(0.8, binary=(["c"],))
    model = pi.IWPGLM.from_formula(
        formula,
        frame,
        schema=schema_of(LOSSES[loss]),
        loss=loss,
        ledger=world.ledger,
        **missing(world),
        **words,
    )
    how = world.options(
        0.15,
        method=("newton", "sgd"),
        correction=("series", "conditional", "exact"),
        ridge=(1e-9, 1.0, 1e9),
        cov_type=("HC0",),
    )
    if how.get("correction") == "series":
        how |= world.options(0.5, truncation=(1, 3, 8))
    if how.get("method") == "sgd":
        how |= world.options(
            0.5,
            theta_radius=(1e-3, 3.0, 1e6),
            batch=(1, 10),
            step=(1e-6, 1.0, 1e6),
            decay=(0.5, 1.0),
            average=(True, False),
            burn_in=(0.0, 0.5, 0.99),
        )
    price = {"delta": world.pick("delta", 1e-12, 1e-6, 1e-3, 0.5), "rng": 0}
    if world.chance(0.7):
        price |= {"epsilon_x": world.pick("epsilon_x", 1e-3, 0.1, 3.0, 12.0, 100.0, 1e4)}
        price |= {"epsilon_y": world.pick("epsilon_y", 1e-3, 0.1, 4.0, 100.0)}
    else:
        price |= {"epsilon": world.pick("epsilon", 1e-3, 0.1, 3.0, 12.0, 1e4)}
        price |= world.options(0.3, shares=((0.5, 0.5), (1e-6, 1 - 1e-6)))
    return model.fit(**how, **price)


# ---- parties with columns of the same people


def parties(world: World, name: str) -> Any:
    """Fit the columns of three parties."""
    frame = world.table("number")
    words = world.options(0.3, intercept=(True, False), diameter=("own", "largest"))
    if name == "RMGMOLS":
        words |= world.options(0.6, k=("auto", 2, 5, 12, 60, 500), kind=("signs", "hadamard", "countsketch"))
        words |= world.options(
            0.2, share=(1e-6, 0.5, 1.0 - 1e-9), rsquared=(1e-6, 0.5, 1.0 - 1e-9), seed=(0, 2**31)
        )
    model = getattr(pi, name)(
        frame.y,
        frame[["a", "b", "c"]],
        parties={"one": ["a"], "two": ["b", "y"], "three": ["c"]},
        bounds=list(NUMBERS.values()),
        y_bounds=(-4, 6),
        ledger=world.ledger,
        **missing(world),
        **words,
    )
    how = world.options(
        0.2,
        debias=(True, False),
        shrink=(True, False),
        ridge=(1e-12, 1.0, 1e12),
        target=("population", "sample"),
    )
    if name != "RMGMOLS":
        how |= world.options(0.2, cov_type=("HC0", "HC1"))
    if how.get("shrink"):
        how = {"shrink": True}
    return model.fit(**how, **spending(world))


for _name in ("RMGMOLS", "DGMOLS", "BGMOLS"):
    entry_point(_name)(lambda world, name=_name: parties(world, name))


# ---- tests without a regression


def sample(world: World, **more: tuple[Any, ...]) -> dict[str, Any]:
    """Return the words that tests share."""
    words = {"data": world.table("number"), "schema": schema_of("number"), "ledger": world.ledger}
    words |= world.options(0.3, noise=("auto", "gaussian"), confidence_level=(1e-6, 0.5, 0.95, 1 - 1e-9))
    words |= world.options(0.4, **more) | missing(world) | spending(world)
    if "epsilon" in words and words.get("noise") is None and world.chance(0.3):
        words |= {"noise": "laplace", "delta": 0}
    return words


def halves(world: World, **more: tuple[Any, ...]) -> dict[str, Any]:
    """Return the words of a test of two groups."""
    words = sample(world, **more)
    data = words["data"]
    data["h"] = np.where(data["g"] == "u", "first", "second")
    return words | {"schema": pi.Schema({"y": RESPONSES["number"], "h": ["first", "second"]})}


def tabled(world: World, **more: tuple[Any, ...]) -> dict[str, Any]:
    """Return the words of a table of counts."""
    return sample(world, target=("table", "population"), simultaneous=(True, False), **more)


def grouped(world: World) -> dict[str, Any]:
    """Return the words of one number or one a group."""
    return sample(world, target=("table", "population"))


SIDES = ("two-sided", "less", "greater")
CLIPS = ("auto", "bounds")
TESTS: dict[str, Callable[[World], Any]] = {
    "mean": lambda w: pi.stats.mean(w.pick("of", "a", "y"), **sample(w, clip=CLIPS)),
    "counts": lambda w: pi.stats.counts("g", **tabled(w)),
    "crosstab": lambda w: pi.stats.crosstab("g", "g", **tabled(w, margins=(True, False, None))),
    "histogram": lambda w: pi.stats.histogram(
        w.pick("of", "a", "y"), w.pick("bins", 2, 7, 40), by=w.pick("by", None, "g"), **tabled(w)
    ),
    "sum": lambda w: pi.stats.sum(w.pick("of", "a", "y"), by=w.pick("by", None, "g"), **grouped(w)),
    "mean by group": lambda w: pi.stats.mean("y", by="g", **tabled(w, clip=CLIPS)),
    "median": lambda w: pi.stats.median(w.pick("of", "a", "y"), by="g", **tabled(w)),
    "quantile by group": lambda w: pi.stats.quantile("y", [0.1, 0.9], by="g", **tabled(w)),
    "describe": lambda w: pi.stats.describe(columns=w.pick("of", ["a"], ["a", "y", "b"]), **sample(w)),
    "ttest_1samp": lambda w: pi.stats.ttest_1samp(
        "y", w.pick("popmean", 0.0, -4.0, 1e6), **sample(w, clip=CLIPS, alternative=SIDES)
    ),
    "ttest_ind": lambda w: pi.stats.ttest_ind("y ~ h", **halves(w, clip=CLIPS, alternative=SIDES)),
    "ttest_ind of arrays": lambda w: pi.stats.ttest_ind(
        w.table("number").a.to_numpy(),
        w.frame.c.to_numpy()[: w.pick("second", 1, 2, w.n)],
        bounds=(-1, 1),
        ledger=w.ledger,
        **w.options(clip=CLIPS, alternative=SIDES),
        **missing(w),
        **spending(w),
    ),
    "anova_oneway": lambda w: pi.stats.anova_oneway("y ~ g", **sample(w, clip=CLIPS)),
    "kruskal": lambda w: pi.stats.kruskal("y ~ g", **sample(w)),
    "mannwhitneyu": lambda w: pi.stats.mannwhitneyu(
        w.table("number").a, w.frame.b, ledger=w.ledger, **w.options(alternative=SIDES), **spending(w)
    ),
    "wilcoxon": lambda w: pi.stats.wilcoxon(
        "y", w.pick("center", 0.0, 6.0, 1e9), **sample(w, alternative=SIDES)
    ),
    "pearsonr": lambda w: pi.stats.pearsonr("a", "y", **sample(w, alternative=SIDES)),
    "chi2_contingency": lambda w: pi.stats.chi2_contingency("g", "g", **sample(w)),
    "quantile": lambda w: pi.stats.quantile(
        w.pick("of", "a", "y"), w.pick("q", 0.5, [0.1, 0.5, 0.9], [0.25, 0.75], [1e-9, 1 - 1e-9]), **sample(w)
    ),
    "proportion_confint": lambda w: pi.stats.proportion_confint(
        (w.table("share").y).to_numpy(),
        ledger=w.ledger,
        **w.options(method=("score", "exact"), confidence_level=(1e-6, 0.5, 1 - 1e-9)),
        **missing(w),
        **spending(w),
    ),
    "proportions_ztest": lambda w: pi.stats.proportions_ztest(
        (w.table("share").y).to_numpy(),
        ledger=w.ledger,
        **w.pick(
            "of",
            {"value": 0.5},
            {"value": 1e-9},
            {"groups": w.frame.g.to_numpy(), "levels": LEVELS},
            {"groups": w.frame.g.to_numpy(), "levels": LEVELS},
        ),
        **w.options(method=("score", "exact"), alternative=SIDES),
        **missing(w),
        **spending(w),
    ),
}
for _name, _call in TESTS.items():
    entry_point(f"stats.{_name}")(_call)


@entry_point("find_bounds")
def _bounds(world: World) -> Any:
    frame = world.table("number")
    return pi.find_bounds(
        frame,
        world.pick("columns", ["a"], ["a", "b", "y"], ["g", "a"]),
        ledger=world.ledger,
        **world.options(clip=(1e-9, 0.1, 0.49), rare=(1e-9, 0.1, 0.5)),
        **spending(world),
    )


@entry_point("sparse_mean")
def _sparse(world: World) -> Any:
    world.table("number")
    values = world.frame[["a", "b", "c"]].to_numpy()
    return pi.sparse_mean(
        np.repeat(values[:, None, :], world.pick("samples", 1, 4), axis=1),
        names=["a", "b", "c"],
        epsilon=world.pick("epsilon", 1e-6, 0.1, 3.0, 1e4),
        sparsity=world.pick("sparsity", 1, 2, 3),
        ledger=world.ledger,
        rng=0,
        public_seed=0,
        **world.options(scale=(1e-9, 2.0, 1e9)),
    )


# ---- the debiased lasso

LASSO_FAMILIES = {"gaussian": "number", "binomial": "share"}


@entry_point("DebiasedLasso")
def _lasso(world: World) -> Any:
    family = world.pick("family", "gaussian", "gaussian", "binomial")
    frame = world.table(LASSO_FAMILIES[family])
    extra = world.rng.uniform(-1.0, 1.0, (len(frame), 3))
    X = np.column_stack([frame[["a", "b", "c"]].to_numpy() if world.chance(0.8) else extra, extra])
    where = world.options(0.3, trust=("server", "secure-sum"))
    labels = np.arange(len(frame)) % 2 if where or world.chance(0.3) else None
    bounds = {} if family == "binomial" else {"y_bounds": RESPONSES[LASSO_FAMILIES[family]]}
    model = pi.DebiasedLasso(
        frame.y.to_numpy(),
        X,
        x_bound=world.pick("x_bound", 1e-3, 1.0, 3.0),
        family=family,
        sites=labels,
        ledger=world.ledger,
        **bounds,
        **where,
        **missing(world),
    )
    central = "trust" not in where
    how = world.options(
        0.2,
        sparsity=("auto", 1, 2, 6),
        iterations=(1, 2, 20),
        clip=(1e-6, 1.0, 1e6),
    )
    if family == "gaussian" and central:
        how |= world.options(
            0.15,
            center=("declared", "released"),
            restricted_eigenvalues=(True,),
            noise_variance=(True,),
            bias_bound=(True,),
            bootstrap_draws=(20,),
            target=("mean", "robust"),
        )
    few = ([0], [0, 3])
    targets = world.pick("targets", *(few if where or family == "binomial" else ("selected", "all", *few)))
    if labels is not None and central and world.chance(0.3):
        how = {"heterogeneous": True, "shared_sparsity": 1, "sparsity": 2}
        world.drawn["heterogeneous"] = True
    return model.fit(targets=targets, **how, **spending(world, picks=True))


# ---- the loop

# Kinds of exception that no run may end with, charged or not.
FOREIGN = "foreign"


@dataclass
class Findings:
    """What came of the runs.

    Attributes
    ----------
    outcomes : dict of str to Counter
        By entry point: "returned", "refused in advance", and the kinds of faults.
    faults : list of str
        Each with the number that repeats it.
    """

    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    @property
    def runs(self) -> int:
        """How many there were."""
        return sum(counts.total() for counts in self.outcomes.values())


def fuzz_rows(
    runs: int,
    seed: int = 0,
    names: list[str] | None = None,
    *,
    first: int = 0,
    show: Callable[[str], None] | None = None,
) -> Findings:
    """Make runs, each with a seed of its own; `first` repeats one of them."""
    findings, known = Findings(), list(ENTRY_POINTS) if names is None else names
    for number in range(first, first + runs):
        name = known[number % len(known)]
        rng = np.random.default_rng((seed, number))
        with tempfile.TemporaryDirectory(prefix="rows") as folder, small_memory():
            world = World(rng, Path(folder), str(rng.choice(list(ROWS))), int(rng.choice(SIZES)))
            outcome, faults = run(ENTRY_POINTS[name], world)
        findings.outcomes.setdefault(name, Counter())[outcome] += 1
        for text in faults:
            findings.faults.append(
                f"run {number}: {name}, {world.rows}, n = {world.n}: {text}; {world.drawn}"
            )
            if show is not None:
                show(findings.faults[-1])
    return findings


def run(call: Callable[[World], Any], world: World) -> tuple[str, list[str]]:
    """Make one run; return its outcome in a word, and its faults."""
    error: BaseException | None = None
    with warnings.catch_warnings(record=True) as caught, alarm(120.0), seeded_entropy(world.rng):
        warnings.simplefilter("always")
        try:
            use(call(world))
        except BaseException as raised:
            error = raised
    faults = list(faults_of(error, caught, world.spent()))
    outcome = "fault" if faults else "returned" if error is None else "refused in advance"
    return outcome, faults


SHOWN = ("summary", "summary_frame", "to_dict", "privacy", "cautions")
# What may have no value, with the reason.
WITH_REASON = ("conf_int", "pvalues", "pvalue", "bse", "rsquared_adj")


@contextmanager
def seeded_entropy(rng: np.random.Generator) -> Iterator[None]:
    """Let secure noise read a generator, so that a run can be repeated."""
    words = np.random.default_rng(rng.integers(2**63))
    before = entropy.os, entropy.system_bytes
    entropy.os, entropy.system_bytes = SimpleNamespace(urandom=words.bytes), words.bytes
    try:
        yield
    finally:
        entropy.os, entropy.system_bytes = before


def use(made: Any) -> None:
    """Use what was returned as its buyer would at once: none of it may raise, but with a reason."""
    for one in (
        made.values() if isinstance(made, dict) else made if isinstance(made, (list, tuple)) else [made]
    ):
        repr(one)
        for name in (*SHOWN, *WITH_REASON):
            if name not in dir(one):  # a result without intervals does not list what needs them
                continue
            try:
                member = getattr(one, name)
                str(member() if callable(member) else member)
            except NotAvailableError:
                if name in SHOWN:
                    raise


def faults_of(
    error: BaseException | None, caught: list[warnings.WarningMessage], spent: int
) -> Iterator[str]:
    """Return what is wrong with what came of one run."""
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        raise error
    for warning in caught:
        if not issubclass(warning.category, PrivinfWarning):
            place = f"{warning.filename}:{warning.lineno}"
            yield f"warning {warning.category.__name__} at {place}: {warning.message}"
    if error is None:
        return
    told = f"{type(error).__name__}: {str(error)[:300]}"
    if isinstance(error, TypeError) and MISFIT.search(str(error)):
        yield f"the fuzzer's call does not fit: {told}"
    elif isinstance(error, Hang):
        yield "did not come back"
    elif not isinstance(error, PrivinfError) or isinstance(error, UnforeseenError):
        yield f"{'charged, ' if spent else ''}foreign {told}"
    elif spent:
        yield f"after the charge {told}"
