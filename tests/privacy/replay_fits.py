"""Every model and option as a small fit on two tables that differ in one unit, for record and replay."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

import privinf as pi
from privinf.accounting import Ledger
from privinf.federation import InProcessFederation, Site, SitePolicy, pinned_keys
from privinf.mechanisms.gaussian import noisy_scalar
from privinf.mechanisms.rows import Rows
from privinf.mechanisms.selection import NoisyTopK, private_max
from privinf.noise import LatticeNoise
from studies.paper.statistics import PAPER_OPS

N, WHERE = 240, 7  # records; the position of the one that is replaced
SPEND = {"epsilon": 6.0, "delta": 1e-3}
BOUNDS = {"y": (-4.0, 6.0), "a": (-1.0, 1.0), "b": (-1.0, 3.0), "c": (0.0, 2.0), "g": ["u", "v", "w"]}
PUBLIC = {"w": pi.Numeric(0.5, 2.0, public=True), "q": pi.Numeric(-3.0, 3.0, public=True)}
SCHEMA = pi.Schema(BOUNDS | PUBLIC | {"s": pi.Numeric(0.0, 1.0, public=True)})
GROUPED = pi.Schema(BOUNDS, unit="person", max_rows=2)
NAMES = ("north", "south", "west")
KEYS, ROSTER = pinned_keys(NAMES)
POLICY = SitePolicy(trusted_server=True, secure_sums=True, zero_out=True).naming(PAPER_OPS)
HUGE = 1e308
REPLACED_BY_NOTHING = "replaced by nothing"

# The record of either table: corners of the bounds, and far beyond them.
TOP = {"y": 6.0, "a": 1.0, "b": 3.0, "c": 2.0, "g": "w"}
PAIRS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "corner, far beyond the opposite one": (TOP, {"y": -HUGE, "a": -HUGE, "b": -HUGE, "c": -HUGE, "g": "u"}),
    "typical, far beyond": (
        {"y": 0.3, "a": 0.1, "b": 0.5, "c": 1.2, "g": "u"},
        {"y": HUGE, "a": -HUGE, "b": HUGE, "c": HUGE, "g": "w"},
    ),
    "opposite responses": (TOP, TOP | {"y": -4.0}),
    "orthogonal rows": (TOP, {"y": 6.0, "a": -1.0, "b": 3.0, "c": 0.0, "g": "v"}),
    "tiny, and next to a bound": (
        {"y": 5e-324, "a": -5e-324, "b": 0.0, "c": 0.0, "g": "u"},
        {"y": np.nextafter(6.0, 7.0), "a": np.nextafter(-1.0, -2.0), "b": -0.0, "c": 2.0, "g": "w"},
    ),
}
FIRST = next(iter(PAIRS))


def drawn_pair(seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return two records of corners, numbers between them, numbers beside them and numbers far beyond."""
    rng = np.random.default_rng(seed)

    def entry(name: str) -> Any:
        bounds = BOUNDS[name]
        if isinstance(bounds, list):
            return str(rng.choice(bounds))
        low, high = bounds
        beside = np.nextafter(rng.choice([low, high]), rng.choice([-HUGE, HUGE]))
        beyond = rng.choice([-HUGE, HUGE, 5e-324, -0.0, 1e160])
        return float(rng.choice([low, high, rng.uniform(low, high), beside, beyond]))

    first, second = ({name: entry(name) for name in BOUNDS} for _ in range(2))
    return first, second


def table(pair: str, world: int, n: int = N, *, seed: int = 0) -> pd.DataFrame:
    """Return the records of one world: all alike but one; a level is rare; public columns are equal."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "a": rng.uniform(-1, 1, n),
            "b": rng.uniform(-1, 3, n),
            "c": rng.uniform(0, 2, n),
            "g": rng.choice(["u", "v"], n),
            "w": rng.uniform(0.5, 2.0, n),
            "q": rng.uniform(-0.3, 0.3, n),
        }
    )
    mean = 1.0 + 0.5 * frame.a - 0.4 * frame.b + 0.3 * frame.c
    frame["y"] = (mean + rng.normal(0, 0.3, n)).clip(-4, 6)
    frame["s"] = np.tile([0.0, 1.0], n)[:n]
    frame["person"] = np.arange(n) // 2
    frame.loc[WHERE, ["w", "q"]] = 2.0, 3.0
    record = PAIRS[pair][world]
    for name, value in record.items():
        frame.loc[WHERE, name] = value
    return frame


def federation(frame: pd.DataFrame, schema: pi.Schema = SCHEMA, **site: Any) -> InProcessFederation:
    """Return three sites with a third of the rows each."""
    return InProcessFederation(
        {
            name: Site(Rows(frame.iloc[i::3], **site), schema, policy=POLICY, key=KEYS[name], roster=ROSTER)
            for i, name in enumerate(NAMES)
        }
    )


Case = Callable[[str, int, Ledger], Any]
FITS: dict[str, Case] = {}
ASKED: dict[str, tuple[float, float]] = {}


def run_of(name: str, pair: str = FIRST) -> Callable[[int, Ledger], Any]:
    """Return a fit on the two tables of a pair."""
    return lambda world, ledger: FITS[name](pair, world, ledger)


def allowed(name: str) -> float:
    """Return how many times its line's loss a release of this fit may cost; see `record_replay.audit`."""
    return 4.0 if name.endswith(REPLACED_BY_NOTHING) else 1.0


def case(name: str, spending: dict[str, Any] | None = None) -> Callable[[Case], Case]:
    """Register a fit under a name, and the (epsilon, delta) that all of it may spend."""

    def register(function: Case) -> Case:
        assert name not in FITS
        FITS[name] = function
        if spending is not None:
            ASKED[name] = spending["epsilon"], spending["delta"]
        return function

    return register


# ---- second moments


def moments(
    name: str,
    formula: str = "y ~ a + b + C(g)",
    how: dict[str, Any] | None = None,
    *,
    schema: pi.Schema = SCHEMA,
    over: bool = False,
    change: Callable[[pd.DataFrame], pd.DataFrame] = lambda frame: frame,
    **options: Any,
) -> None:
    """Register a MomentOLS; `over` sites where it says so."""

    @case(f"MomentOLS {name}", SPEND | (how or {}))
    def run(pair: str, world: int, ledger: Ledger) -> Any:
        frame = change(table(pair, world))
        held = federation(frame, schema) if over else frame
        model = pi.MomentOLS.from_formula(formula, held, schema=schema, ledger=ledger, **options)
        fit = model.fit(**(SPEND | (how or {})))
        return fit, fit.release, repr(model)


def with_gaps(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with missing values in the record that differs where it is huge, and in others."""
    frame.loc[frame["a"].abs() > 10.0, ["a", "y"]] = np.nan
    frame.loc[[3, 5], "b"] = np.nan
    return frame


def whole_person(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with the same record in all rows of the person that differs."""
    rows = frame.index[frame["person"] == frame.loc[WHERE, "person"]]
    for name in BOUNDS:
        frame.loc[rows, name] = frame.loc[WHERE, name]
    return frame


HC0 = {"cov_type": "HC0"}
moments("central")
moments("central, HC0", how=HC0)
moments("central, HC0, robust share", how={**HC0, "robust_share": 0.5})
moments("central, weights", weights="w")
moments("central, weights, HC0", how=HC0, weights="w")
moments("central, public columns", "y ~ a + b + q")
moments("central, public columns, HC0", "y ~ a + q", how=HC0)
moments("central, several rows a person", "y ~ a + b", schema=GROUPED, change=whole_person)
moments("central, several rows a person, HC0", "y ~ a + b", how=HC0, schema=GROUPED, change=whole_person)
moments("central, radius", "y ~ a + b + c", radius=1.0)
moments("central, interaction", "y ~ a * b + C(g)")
moments("central, splines", "y ~ bs(b, knots=[1.0], degree=3, lower_bound=-1, upper_bound=3)")
moments("central, derived columns", "y ~ np.exp(a) + np.log(b + 2) + I(c**2) + np.sqrt(c)")
moments("central, derived response", "np.log(y + 5) ~ a + b")
moments("central, no intercept", "y ~ 0 + a + b + c")
moments("central, response weight", response_weight=2.0)
moments("central, missing values", missing="impute-public", change=with_gaps)
moments("central, finite population", how={"target": "sample"})
moments("central, ridge", how={"stabilization": "ridge", "ridge": 1.0})
moments("central, noise of OpenDP", how={"source": "opendp"})
moments("central, weak", how={"epsilon": 0.1, "delta": 0.5})
moments("local", trust="local")
moments("local, several rows a person", "y ~ a + b", schema=GROUPED, change=whole_person, trust="local")
moments("local, ridge", trust="local", how={"stabilization": "ridge", "ridge": 1.0})
moments("secure sums", over=True)
moments("secure sums, HC0, a colluding site", how={**HC0, "max_colluding": 1}, over=True)
moments("secure sums, no intercept", "y ~ 0 + a + b", over=True)
moments("trusted server", over=True, trust="server")
moments("trusted server, HC0", how=HC0, over=True, trust="server")


@case("Moments of columns, all that is made of them", SPEND)
def _many(pair: str, world: int, ledger: Ledger) -> Any:
    mechanism = pi.Moments(SCHEMA, columns=["a", "b", "C(g)", "c", "y", "q", "I(a**2)"])
    release = mechanism.release(table(pair, world), ledger=ledger, **SPEND)
    fits = release.regress(["y ~ a + b", "a ~ y + q", "b ~ C(g) - 1", "c ~ I(a**2)"])
    pairs = release.corr(), release.partial_corr(["a", "y"], given=["b"])
    return release, fits, release.iv("y ~ q + [a ~ b + c]"), release.means(), pairs


@case("Moments of columns, local", SPEND)
def _many_local(pair: str, world: int, ledger: Ledger) -> Any:
    mechanism = pi.Moments(SCHEMA, columns=["a", "y", "q"], trust="local")
    release = mechanism.release(table(pair, world), ledger=ledger, **SPEND)
    return release, release.regress("y ~ a - 1"), release.means(), release.corr()


@case("MomentOLS of arrays, public column")
def _arrays(pair: str, world: int, ledger: Ledger) -> Any:
    frame = table(pair, world)
    X = frame[["a", "b", "q"]].assign(const=1.0)
    model = pi.MomentOLS(
        frame.y,
        X,
        bounds={"a": (-1, 1), "b": (-1, 3)},
        public=["q", "const"],
        y_bounds=(-4, 6),
        ledger=ledger,
    )
    fit = model.fit(**SPEND, cov_type="HC0")
    return fit, fit.release


@case("MomentOLS of parties, checkpoint")
def _parties(pair: str, world: int, ledger: Ledger) -> Any:
    frame = table(pair, world)
    parts = [(frame.y[i::2].to_numpy(), frame[["a", "b"]].iloc[i::2].to_numpy()) for i in range(2)]
    model = pi.MomentOLS.from_arrays(parts, bounds=[(-1, 1), (-1, 3)], y_bounds=(-4, 6), ledger=ledger)
    with tempfile.TemporaryDirectory() as folder:
        return model.fit(**SPEND, checkpoint=folder)


# ---- modulated rows


def modulated(name: str, formula: str = "y ~ a + b + c", how: Any = None, **options: Any) -> None:
    """Register a ModulatedOLS."""
    schema = options.pop("schema", SCHEMA)
    change = options.pop("change", lambda frame: frame)

    @case(f"ModulatedOLS {name}", SPEND | (how or {}))
    def run(pair: str, world: int, ledger: Ledger) -> Any:
        frame = change(table(pair, world))
        if options.get("response") == "public":
            frame["y"] = table(FIRST, 0).y  # public: the same in both worlds
        model = pi.ModulatedOLS.from_formula(formula, frame, schema=schema, ledger=ledger, **options)
        fit = model.fit(**(SPEND | (how or {})))
        return fit, fit.release


modulated("one-shot")
modulated("several directions", directions=2, frequency=2.0)
modulated("the paper's sensitivity", sensitivity="lipschitz")
modulated("iterative", how={"method": "iterative", "rounds": 3})
modulated("public response", response="public")
modulated("public response, weights", response="public", weights="w")
modulated("radius and public columns", "y ~ a + b + q", radius=1.0)
modulated("several rows a person", "y ~ a + b", schema=GROUPED, change=whole_person)


@case("ModulatedOLS of arrays, radius, public column", SPEND)
def _modulated_arrays(pair: str, world: int, ledger: Ledger) -> Any:
    frame = table(pair, world)
    X = pi.add_constant(frame[["a", "b", "q"]])
    model = pi.ModulatedOLS(
        frame.y.tolist(), X, radius=2.0, public=["q", "const"], y_bounds=(-4, 6), ledger=ledger
    )
    fit = model.fit(**SPEND)
    return fit, fit.release


@case("ModulatedOLS records at distance one, the textbook's noise")
def _metric(pair: str, world: int, ledger: Ledger) -> Any:
    frame = table(pair, 0)
    frame.loc[WHERE, ["a", "b"]] = 0.2 + 0.6 * world, 0.8 * world
    mechanism = pi.Modulation(SCHEMA, "y ~ 0 + a + b", adjacency="unit", response_share=0.5)
    return mechanism.release(frame, epsilon=0.9, delta=1e-3, calibration="classic", ledger=ledger)


# ---- locally private examples

LABELS = pi.Schema({**BOUNDS, "y": ["no", "yes"], "z": (0.0, 1.0)})
LEVELS = pi.Schema({**BOUNDS, "y": ["low", "middle", "high"], "z": (0.0, 1.0)})
COUNTS = pi.Schema({**BOUNDS, "y": (0.0, 9.0), "z": (0.0, 1.0)})


def labelled(kind: str, pair: str, world: int) -> pd.DataFrame:
    """Return rows with a label of this kind and a binary column."""
    frame = table(pair, world, 2 * N)
    z = np.clip(frame.y, -4, 6)
    if kind == "two":
        frame["y"] = np.where(z > 1.0, "yes", "no")
    elif kind == "three":
        frame["y"] = np.array(["low", "middle", "high"])[(z > 0.5).astype(int) + (z > 1.3)]
    else:
        frame["y"] = np.round(np.clip(z, 0, 9))
    if kind in ("two", "three"):
        frame.loc[WHERE, "y"] = ("yes", "no")[world] if kind == "two" else ("high", "low")[world]
    frame["z"] = (np.arange(len(frame)) // 3 % 2).astype(float)
    frame.loc[WHERE, "z"] = float(world)
    return frame


def examples(
    name: str, kind: str, schema: pi.Schema, how: Any = None, formula: str = "y ~ a + b", **options: Any
) -> None:
    """Register an IWPGLM."""

    @case(f"IWPGLM {name}")
    def run(pair: str, world: int, ledger: Ledger) -> Any:
        frame = labelled(kind, pair, world)
        model = pi.IWPGLM.from_formula(formula, frame, schema=schema, ledger=ledger, **options)
        fit = model.fit(**({"epsilon_x": 12.0, "epsilon_y": 4.0, "delta": 1e-3} | (how or {})))
        return fit, fit.release


examples("quadratic", "two", LABELS, loss="quadratic")
examples("logistic, conditional", "two", LABELS)
examples("logistic, series", "two", LABELS, {"correction": "series"})
examples("logistic, single pass", "two", LABELS, {"method": "sgd", "theta_radius": 3.0, "average": True})
examples(
    "logistic, factors and binary columns by response",
    "two",
    LABELS,
    formula="y ~ a + C(g) + z",
    binary=["z"],
)
examples("multinomial", "three", LEVELS, loss="multinomial")
examples("counts", "count", COUNTS, loss="poisson")
examples(
    "squared, binary columns as numbers",
    "count",
    COUNTS,
    formula="y ~ a + z",
    loss="squared",
    binary=["z"],
    binary_mechanism="gaussian",
)
examples("exponential, radius", "two", LABELS, loss="exponential", radius=0.7)
PURE = {"delta": None}
examples("logistic, Laplace noise", "two", LABELS, PURE, noise="laplace")
examples("logistic, Laplace noise and radius", "two", LABELS, PURE, noise="laplace", radius=0.7)
examples(
    "squared, Laplace noise and binary columns",
    "count",
    COUNTS,
    PURE,
    formula="y ~ a + z",
    loss="squared",
    binary=["z"],
    noise="laplace",
)


@case("LocalExamples, several rows a person")
def _examples_grouped(pair: str, world: int, ledger: Ledger) -> Any:
    schema = pi.Schema({**BOUNDS, "y": ["no", "yes"], "z": (0.0, 1.0)}, unit="person", max_rows=2)
    frame = whole_person(labelled("two", pair, world))
    frame["z"] = frame["z"].where(frame["person"] != frame.loc[WHERE, "person"], frame.loc[WHERE, "z"])
    mechanism = pi.LocalExamples(schema, "y ~ a + C(g) + z", binary=["z"])
    return mechanism.release(frame, epsilon_x=4.0, epsilon_y=2.0, delta=1e-3, ledger=ledger)


@case("LocalExamples, Laplace noise, several rows a person")
def _pure_examples_grouped(pair: str, world: int, ledger: Ledger) -> Any:
    schema = pi.Schema({**BOUNDS, "y": (0.0, 9.0)}, unit="person", max_rows=2)
    frame = whole_person(labelled("count", pair, world))
    mechanism = pi.LocalExamples(schema, "y ~ a + b + C(g)", noise="laplace")
    return mechanism.release(frame, epsilon_x=4.0, epsilon_y=2.0, ledger=ledger)


# ---- parties with columns of the same people


def parties(name: str, cls: Any, how: Any = None, **options: Any) -> None:
    """Register a regression of several parties' columns."""

    @case(f"{cls.__name__} {name}".strip())
    def run(pair: str, world: int, ledger: Ledger) -> Any:
        frame = table(pair, world)
        model = cls(
            frame.y,
            frame[["a", "b", "c"]],
            parties={"one": ["a"], "two": ["b", "y"], "three": ["c"]},
            bounds=[(-1, 1), (-1, 3), (0, 2)],
            y_bounds=(-4, 6),
            ledger=ledger,
            **options,
        )
        released = model.release(**SPEND)
        return released, cls.from_release(released, label="y").fit(**(how or {})), repr(model)


for mixing in ("countsketch", "signs", "hadamard"):
    parties(mixing, pi.RMGMOLS, k=60, kind=mixing)
parties("the paper's estimate", pi.RMGMOLS, {"debias": False}, k=60)
parties("shrunk", pi.RMGMOLS, {"shrink": True}, k=60)
parties("no intercept, largest diameter", pi.RMGMOLS, k=60, intercept=False, diameter="largest")
parties("size by the plan", pi.RMGMOLS)
parties("", pi.DGMOLS, intercept=True)
parties("finite population", pi.DGMOLS, {"target": "sample"})
parties("", pi.BGMOLS)


# ---- generalised linear models over sites

RESPONSES = {"gaussian": (-4.0, 6.0), "binomial": (0.0, 1.0), "poisson": (0.0, 9.0)}
FAMILIES = {
    "Logit": "binomial",
    "Poisson": "poisson",
    "NegativeBinomial": "poisson",
}  # by model, if not linear


def glm(
    name: str,
    family: str,
    trust: str = "server",
    *,
    folder: bool = False,
    client: bool = False,
    formula: str = "y ~ a + b",
    n: int = 3 * N,
    **how: Any,
) -> None:
    """Register a FederatedGLM; all rows of one site are replaced where sites are the units."""

    spending = {"epsilon": 12.0, "delta": 1e-3} | how

    @case(f"FederatedGLM {family}, {trust}{name}", spending)
    def run(pair: str, world: int, ledger: Ledger) -> Any:
        frame = table(pair, world, n)
        low, high = RESPONSES[family]
        if family != "gaussian":
            frame["y"] = np.round((np.clip(frame.y, -4, 6) - 1.0).clip(low, high))
        if client:
            mine = np.arange(n) % 3 == 1
            record = PAIRS[pair][world]
            frame.loc[mine, ["a", "b"]] = record["a"], record["b"]
            frame.loc[mine, "y"] = (high, low)[world]
        schema = pi.Schema(BOUNDS | {"y": (low, high)})
        model = pi.FederatedGLM.from_formula(
            formula,
            federation(frame[list(BOUNDS)], schema),
            schema=schema,
            family=family,
            trust=trust,
            ledger=ledger,
        )
        with tempfile.TemporaryDirectory() if folder else contextlib.nullcontext() as path:
            return model.fit(**spending, **({"checkpoint": path} if folder else {})), repr(model)


for family in RESPONSES:
    for trust in ("server", "secure-sum"):
        glm("", family, trust)
glm(", nonrobust", "binomial", cov_type="nonrobust")
glm(", nonrobust", "poisson", "secure-sum", cov_type="nonrobust")
glm(f", {REPLACED_BY_NOTHING}", "binomial", relation="zero-out")
glm(", targets", "binomial", targets=["a"], nuisance=["b"], formula="y ~ a + b + c")
glm(
    ", sites as units",
    "binomial",
    client=True,
    unit="client",
    client_clip=2000.0,
    epsilon=60.0,
    optimizer=pi.DPSGD(epochs=1, batches=5),
)
glm(
    ", sites as units, clipped",
    "binomial",
    "secure-sum",
    client=True,
    unit="client",
    client_clip=5.0,
    optimizer=pi.DPSGD(epochs=1, batches=2),
)
glm(", checkpoint", "binomial", folder=True)
glm(", checkpoint", "gaussian", "secure-sum", folder=True)
glm(", a colluding site", "gaussian", "secure-sum", max_colluding=1)
glm(", factors", "gaussian", formula="y ~ a + C(g)")
glm(", Newton", "binomial", optimizer=pi.Newton())
glm(", DPSGD", "binomial", optimizer=pi.DPSGD(epochs=2, batches=3))
glm(", DPSGD", "gaussian", "secure-sum", optimizer=pi.DPSGD(epochs=2, batches=3))
glm(", DPAdam", "poisson", optimizer=pi.DPAdam(epochs=2, batches=3))
glm(", sketches", "binomial", optimizer=pi.RandomSketch(k=2, epochs=2, batches=3))
glm(", DOME", "binomial", optimizer=pi.DOME(k=2, most_learned=1, epochs=2, batches=3))
glm(", DOME", "gaussian", "secure-sum", optimizer=pi.DOME(k=2, most_learned=1, epochs=2, batches=3))
glm(", too little to spend", "gaussian", epsilon=0.2, optimizer=pi.DPSGD(epochs=1, batches=5))


@case("FederatedGLM of arrays", {"epsilon": 12.0, "delta": 1e-3})
def _glm_arrays(pair: str, world: int, ledger: Ledger) -> Any:
    frame = table(pair, world, 3 * N)
    y = (np.clip(frame.y, -4, 6) > 1.0).to_numpy()
    X = frame[["a", "b"]].to_numpy()
    parts = {name: (y[i::2], X[i::2]) for i, name in enumerate(("one", "two"))}
    model = pi.FederatedGLM.from_arrays(
        parts, bounds=[(-1, 1), (-1, 3)], family="binomial", radius=1.1, ledger=ledger
    )
    return model.fit(epsilon=12.0, delta=1e-3)


@case("IWPGLM of arrays, binary column", {"epsilon": 8.0, "delta": 1e-3})
def _examples_arrays(pair: str, world: int, ledger: Ledger) -> Any:
    frame = labelled("two", pair, world)
    model = pi.IWPGLM(
        np.where(frame.y == "yes", 1, -1),
        frame[["a", "z"]],
        bounds=[(-1, 1), (0, 1)],
        binary=["z"],
        ledger=ledger,
    )
    fit = model.fit(epsilon=8.0, delta=1e-3)
    return fit, fit.release


# ---- times until an event


def hazards(
    name: str, *, over: bool = False, lacks: Sequence[str] = (), factor: bool = False, **options: Any
) -> None:
    """Register a proportional-hazards fit: times are y from its lower bound on, and c is the status.

    With `lacks` rows with missing values are dropped, and in one world the record lacks these values; with
    `factor` the status has two levels.
    """
    spending = {"epsilon": 12.0, "delta": 1e-3}
    status = ["alive", "died"] if factor else (0, 1)
    schema = pi.Schema({name: BOUNDS[name] for name in ("a", "b", "g")} | {"y": (0.0, 10.0), "c": status})

    @case(f"PHReg {name}", spending)
    def run(pair: str, world: int, ledger: Ledger) -> Any:
        frame = table(pair, world, 3 * N)
        frame["y"] += 4.0
        inside = frame["c"].between(0.0, 2.0)
        frame["c"] = frame["c"].where(~inside, (frame["c"] > 1.0).astype(float))
        if factor:
            frame["c"] = np.where(frame["c"] > 0.5, "died", "alive")
        if lacks:
            frame = with_dropped(frame, list(lacks), gap=world == 1, alone=False)
        missing = {"missing": "drop"} if lacks else {}
        held = federation(frame[list(BOUNDS)], schema, **missing) if over else frame
        model = pi.PHReg.from_formula(
            "y ~ a + b + g",
            held,
            status="c",
            event="died" if factor else None,
            schema=schema,
            ledger=ledger,
            **options,
            **({} if over else missing),
        )
        return model.fit(**spending), repr(model)


hazards("central")
hazards("central, 16 intervals up to 6", intervals=16, horizon=6.0)
hazards("secure sums", over=True, trust="secure-sum")
hazards("dropped rows, central", lacks=("c",))
hazards("dropped rows, secure sums", over=True, lacks=("y", "b"), trust="secure-sum")
hazards("status of two levels, dropped rows", lacks=("b",), factor=True)


# ---- one curator's regressions

NARROW = {"a": 0.03, "b": 0.05, "c": 0.05}


def curator(
    name: str,
    formula: str = "y ~ a + b + c",
    how: dict[str, Any] | None = None,
    *,
    model: str = "OLS",
    over: bool = False,
    n: int = 3 * N,
    change: Callable[[pd.DataFrame], pd.DataFrame] = lambda frame: frame,
    **options: Any,
) -> None:
    """Register a regression under its own name, of a table or over sites."""
    spending = {"epsilon": 12.0, "delta": 1e-3} | (how or {})
    low, high = RESPONSES[FAMILIES.get(model, "gaussian")]
    schema = pi.Schema(BOUNDS | {"y": (low, high)})

    @case(f"{model} {name}", spending)
    def run(pair: str, world: int, ledger: Ledger) -> Any:
        frame = change(table(pair, world, n))
        if model != "OLS":
            frame["y"] = np.round((np.clip(frame.y, -4, 6) - 1.0).clip(low, high))
        held = federation(frame[list(BOUNDS)], schema) if over else frame
        made = getattr(pi, model).from_formula(formula, held, schema=schema, ledger=ledger, **options)
        return made.fit(**spending), repr(made)


def bunched(frame: pd.DataFrame) -> pd.DataFrame:
    """Return rows that use little of their bounds: the first Gram matrix is noise there."""
    for name, share in NARROW.items():
        low, high = BOUNDS[name]
        others = frame.index != WHERE
        frame.loc[others, name] = (low + high) / 2 + share * (frame.loc[others, name] - (low + high) / 2)
    return frame


curator("central")
curator("central, a large table", n=20 * N)
curator("central, factors", "y ~ a + C(g)")
curator("central, interaction, no intercept", "y ~ 0 + a * b")
curator("central, nonrobust", how={"cov_type": "nonrobust"})
curator("central, robust target", how={"target": "robust"})
curator("central, clipped at the bounds", residual_clip="bounds")
curator("central, a stated clip", residual_clip=0.8)
curator("central, weak columns", change=bunched)
curator("central, too little to spend", how={"epsilon": 0.05, "delta": 1e-6, "intervals": "optional"})
curator("central, missing values", missing="impute-public", change=with_gaps)
curator("central", "y ~ a + b", model="Logit")
curator("central, weak", "y ~ a + C(g)", {"epsilon": 3.0}, model="Logit")
curator("central, a large table", "y ~ a + b", {"epsilon": 3.0}, model="Logit", n=20 * N)
curator("secure sums", "y ~ a + b", model="Logit", over=True, trust="secure-sum")
curator("central", "y ~ a + b", model="Poisson")
curator("central, several rounds", "y ~ a + b", {"epsilon": 3.0}, model="Poisson", n=20 * N)
curator("central", "y ~ a + b", model="NegativeBinomial")
curator("central, several rounds", "y ~ a + b", {"epsilon": 3.0}, model="NegativeBinomial", n=20 * N)
curator("secure sums", "y ~ a + b", model="NegativeBinomial", over=True, trust="secure-sum")
curator("trusted server", over=True, trust="server")
curator("secure sums", over=True, trust="secure-sum")

# ---- the debiased lasso

FEW, COLUMNS = 90, 6
SIGNS = np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
LASSO = {"epsilon": 90.0, "delta": 0.05, "sparsity": 2, "targets": [0, 3]}


def far_outside(frame: pd.DataFrame) -> pd.DataFrame:
    """Return rows of which a share lies outside the bounds."""
    return frame.assign(a=1.5 * frame.a, y=np.where(frame.index % 3, frame.y, frame.y + 20.0))


curator("values outside their bounds", change=far_outside)
curator("values outside, in derived columns", "y ~ np.exp(a) + b", change=far_outside)
curator("values outside, over sites", over=True, change=far_outside)
curator("missing values", change=with_gaps, missing="impute-public")
curator("missing values", model="Logit", change=with_gaps, missing="impute-public")


def with_dropped(frame: pd.DataFrame, lacks: Sequence[str], *, gap: bool, alone: bool) -> pd.DataFrame:
    """Return rows some of which lack values, or all but the record that differs; it lacks some if `gap`."""
    others = frame.index != WHERE
    gaps = others if alone else others & (frame.index % 5 == 1)
    frame.loc[gaps, "b"] = np.nan
    frame.loc[others & ((frame.index % 7 == 2) | alone), "g"] = None
    frame.loc[others & (frame.index % 11 == 3), "y"] = np.nan
    if gap:
        frame.loc[WHERE, lacks] = np.nan if "g" not in lacks else None
    return frame


def dropped(
    name: str,
    model: str,
    formula: str = "y ~ a + b",
    how: dict[str, Any] | None = None,
    *,
    lacks: Sequence[str] = ("a",),
    world_with_gap: int = 1,
    alone: bool = False,
    over: bool = False,
    n: int = 3 * N,
    units: bool = False,
    undeclared: bool = False,
    **options: Any,
) -> None:
    """Register a fit with missing="drop": the record is complete in one world, and lacks values in the other.

    With `alone` no other record is complete; with `undeclared` the record has an undeclared level.
    """
    spending = {"epsilon": 12.0, "delta": 1e-3} | (how or {})
    low, high = RESPONSES[FAMILIES.get(model, "gaussian")]
    unit = {"unit": "person", "max_rows": 2} if units else {}
    factor = {"g": pi.Factor(["u", "v", "w"], other="w")} if undeclared else {}
    schema = pi.Schema(BOUNDS | {"y": (low, high)} | factor, **unit)

    @case(f"{model} dropped rows, {name}", spending)
    def run(pair: str, world: int, ledger: Ledger) -> Any:
        frame = table(pair, world, n)
        frame.loc[WHERE, "g"] = "elsewhere" if undeclared else frame.loc[WHERE, "g"]
        if model in FAMILIES:
            frame["y"] = np.round((np.clip(frame.y, -4, 6) - 1.0).clip(low, high))
        frame = whole_person(frame) if units else frame
        frame = with_dropped(frame, list(lacks), gap=world == world_with_gap, alone=alone)
        if over:
            held, given = federation(frame[list(BOUNDS)], schema, missing="drop"), options
        else:
            held, given = frame, {"missing": "drop", **options}
        made = getattr(pi, model).from_formula(formula, held, schema=schema, ledger=ledger, **given)
        fit = made.fit(**spending)
        return (fit, fit.release, repr(made)) if model == "MomentOLS" else (fit, repr(made))


for model in ("MomentOLS", "OLS", *FAMILIES):
    dropped("central", model)
    dropped("central, back", model, world_with_gap=0, lacks=("y", "b"))
    dropped("central, no other complete", model, alone=True)
    dropped("central, factors", model, "y ~ a + C(g)", lacks=("g",))
    dropped("secure sums", model, over=True, trust="secure-sum")
    dropped("trusted server, no other complete", model, over=True, trust="server", alone=True)
for model, over in (("MomentOLS", False), ("OLS", False), ("OLS", True)):
    where = "trusted server" if over else "central"
    trust = {"trust": "server"} if over else {}
    dropped(
        f"{where}, undeclared levels, no other complete",
        model,
        "y ~ a + C(g)",
        over=over,
        alone=True,
        undeclared=True,
        **trust,
    )
dropped("central, HC0", "MomentOLS", how=HC0)
dropped("trusted server, HC0, back", "MomentOLS", how=HC0, over=True, trust="server", world_with_gap=0)
dropped("of persons, HC0", "MomentOLS", how=HC0, units=True)
dropped("of persons, clusters", "MomentOLS", how={"cov_type": "cluster"}, units=True, lacks=("a", "b"))
dropped("central, nonrobust", "OLS", how={"cov_type": "nonrobust"})
dropped("central, derived columns", "OLS", "np.log(y + 5) ~ np.exp(a) + I(b**2)")
dropped("central, a large table", "Logit", how={"epsilon": 3.0}, n=20 * N)
dropped("central, a large table", "OLS", how={"epsilon": 3.0}, n=20 * N, world_with_gap=0)
dropped("central, weak", "OLS", how={"epsilon": 2.0}, n=N, alone=True)


@case("Moments of columns, dropped rows", SPEND)
def _many_dropped(pair: str, world: int, ledger: Ledger) -> Any:
    frame = with_dropped(table(pair, world), ["c"], gap=world == 1, alone=False)
    mechanism = pi.Moments(pi.Schema(BOUNDS), columns=["a", "b", "C(g)", "c", "y"], missing="drop")
    release = mechanism.release(frame, ledger=ledger, **SPEND)
    fits = release.regress(["y ~ a + b", "a ~ y + c", "b ~ C(g) - 1"])
    return release, fits, release.corr(), release.means(), release.iv("y ~ a + [b ~ c]")


def arrays(pair: str, world: int, n: int = FEW) -> tuple[Any, Any]:
    """Return (y, X) of six columns; the record that differs repeats the pair's with signs."""
    rng = np.random.default_rng(3)
    X = rng.choice([-1.0, 1.0], (n, COLUMNS)) * rng.uniform(0.5, 1.0, (n, COLUMNS))
    y = 2.0 * X[:, 0] - 2.0 * X[:, 3] + 0.3 * rng.standard_normal(n)
    record = PAIRS[pair][world]
    X[WHERE] = SIGNS * record["a"]
    y[WHERE] = record["y"]
    return y, X


def arrays_with_gaps(y: Any, X: Any, *, gap: bool, alone: bool) -> tuple[Any, Any]:
    """Return arrays with gaps in some rows, or in all but the record that differs; it has some if `gap`."""
    others = np.arange(len(y)) != WHERE
    places = np.arange(len(y))
    y[others & (places % 11 == 3)] = np.nan
    X[others & ((places % 5 == 1) | alone), 1] = np.nan
    if gap:
        y[WHERE] = X[WHERE, 4] = np.nan
    return y, X


def lasso(name: str, **options: Any) -> None:
    """Register a DebiasedLasso.

    With `dropping` rows lack values, and the record that differs is complete in one world: "forth" and
    "alone", in the first, "back", in the second. With "alone" no other record is complete.
    """

    joint = options.get("accounting") != "per-interval"

    @case(f"DebiasedLasso {name}", LASSO | options if joint else None)
    def run(pair: str, world: int, ledger: Ledger) -> Any:
        how = dict(options)
        n = how.pop("rows", FEW)
        y, X = arrays(pair, world, n)
        if dropping := how.pop("dropping", ""):
            gap = world == (0 if dropping == "back" else 1)
            y, X = arrays_with_gaps(y, X, gap=gap, alone=dropping == "alone")
        entry_points = {key: how.pop(key) for key in ("trust", "family") if key in how}
        labels = np.arange(n) % 3 if how.pop("parties", False) or "trust" in entry_points else None
        entry_points |= {} if "family" in entry_points else {"y_bounds": (-4, 6)}
        entry_points |= {"missing": "drop"} if dropping else {}
        if how.pop("constant", False):
            X = pi.add_constant(pd.DataFrame(X, columns=[f"x{j}" for j in range(COLUMNS)]))
        model = pi.DebiasedLasso(y, X, x_bound=1.0, sites=labels, ledger=ledger, **entry_points)
        return model.fit(**(LASSO | how)), repr(model)


lasso("of named targets")
lasso("of what it selects", targets="selected")
lasso("of all columns", targets="all")
lasso("of parties, a sparsity of its own choice", parties=True, sparsity="auto", max_sparsity=3)
lasso("with a constant", constant=True, targets=["x0", "x3"])
lasso("released means", center="released")
lasso("private bootstrap", bootstrap_draws=20, bootstrap_multipliers="gaussian")
lasso(
    "bias bound, eigenvalues, noise variance",
    restricted_eigenvalues=True,
    noise_variance=True,
    bias_bound=True,
)
lasso("heterogeneous", heterogeneous=True, shared_sparsity=1, parties=True, epsilon=200.0, rows=300)
lasso(
    "heterogeneous, own precision, an interval each",
    heterogeneous=True,
    shared_sparsity=1,
    parties=True,
    epsilon=200.0,
    precision="machine",
    accounting="per-interval",
    rows=300,
)
lasso(
    "heterogeneous, own precision",
    heterogeneous=True,
    shared_sparsity=1,
    parties=True,
    epsilon=200.0,
    precision="machine",
    rows=300,
)
lasso("logistic", family="binomial", epsilon=200.0, rows=300)
lasso(
    "logistic, parties, selected",
    family="binomial",
    epsilon=200.0,
    rows=300,
    parties=True,
    targets="selected",
)
OWN_LOGITS = {"family": "binomial", "heterogeneous": True, "shared_sparsity": 1, "parties": True}
lasso("logistic, heterogeneous", epsilon=200.0, rows=600, **OWN_LOGITS)
lasso("too little to spend, logistic, heterogeneous", epsilon=20.0, rows=600, **OWN_LOGITS)
lasso("secure sums", trust="secure-sum")
lasso(
    "secure sums, a colluding site, noise variance", trust="secure-sum", max_colluding=1, noise_variance=True
)
lasso("logistic, secure sums", trust="secure-sum", family="binomial", epsilon=200.0, rows=300)
lasso("the paper's", variant="paper", targets="selected", epsilon=200.0)
lasso(
    "the paper's, heterogeneous",
    variant="paper",
    heterogeneous=True,
    shared_sparsity=1,
    parties=True,
    epsilon=1500.0,
    rows=6000,
    paper_options={"multiplier_draws": 5, "variance": "robust"},
)
lasso("too little to spend", epsilon=0.2)
lasso(
    "too little to spend, of what it selects",
    epsilon=9.0,
    targets="selected",
    sparsity="auto",
    max_sparsity=3,
)
lasso("too little to spend, of all columns", epsilon=0.2, targets="all")
lasso("too little to spend, heterogeneous", heterogeneous=True, shared_sparsity=1, parties=True, epsilon=0.2)
lasso("too little to spend, secure sums", trust="secure-sum", epsilon=0.2, noise_variance=True)
lasso("logistic, a rare response", family="binomial", epsilon=20.0, rows=300)
lasso("dropped rows, of named targets", dropping="forth")
lasso(
    "dropped rows, back, a sparsity of its own choice", dropping="back", sparsity="auto", targets="selected"
)
lasso("dropped rows, no other complete", dropping="alone")
lasso("dropped rows, of all columns", dropping="back", targets="all")
lasso(
    "dropped rows, over sites, with a constant", dropping="forth", parties=True, constant=True, targets=["x0"]
)
lasso("dropped rows, noise variance, eigenvalues", dropping="forth", noise_variance=True, bias_bound=True)
lasso("dropped rows, secure sums", dropping="back", trust="secure-sum")
lasso("dropped rows, logistic", dropping="forth", family="binomial", epsilon=200.0, rows=300)
lasso(
    "dropped rows, logistic, secure sums",
    dropping="back",
    trust="secure-sum",
    family="binomial",
    epsilon=200.0,
    rows=300,
)
lasso(
    "dropped rows, logistic, no other complete", dropping="alone", family="binomial", epsilon=200.0, rows=300
)
lasso("dropped rows, logistic, heterogeneous", dropping="forth", epsilon=200.0, rows=600, **OWN_LOGITS)
lasso(
    "dropped rows, heterogeneous",
    dropping="back",
    heterogeneous=True,
    shared_sparsity=1,
    parties=True,
    epsilon=200.0,
    rows=300,
)
lasso(
    "dropped rows, heterogeneous, own precision, an interval each",
    dropping="forth",
    heterogeneous=True,
    shared_sparsity=1,
    parties=True,
    epsilon=200.0,
    precision="machine",
    accounting="per-interval",
    rows=300,
)


# ---- single releases


@case("sparse_mean", {"epsilon": 1.0, "delta": 1e-6})
def _sparse_mean(pair: str, world: int, ledger: Ledger) -> Any:
    rows = np.random.default_rng(0).normal(0.2, 1.0, (60, 4, 5))
    rows[WHERE] = PAIRS[pair][world]["a"] * np.ones((4, 5))
    return pi.sparse_mean(rows, epsilon=1.0, sparsity=1, public_seed=0, ledger=ledger)


def bought(name: str, columns: list[str], **options: Any) -> None:
    """Register a search for bounds."""

    @case(name, {"epsilon": 9.0, "delta": 1e-3})
    def run(pair: str, world: int, ledger: Ledger) -> Any:
        rows = table(pair, world) if "unit" not in options else whole_person(table(pair, world))
        return pi.find_bounds(rows, columns, epsilon=9.0, delta=1e-3, ledger=ledger, **options)


bought("find_bounds", ["a"])
bought("find_bounds, a person's rows", ["a"], unit="person", max_rows=2)


def looked(name: str, call: Callable[[pd.DataFrame, dict[str, Any]], Any]) -> None:
    """Register a function of `privinf.stats` that looks at distributions."""

    @case(name, {"epsilon": 9.0, "delta": 1e-3})
    def run(pair: str, world: int, ledger: Ledger) -> Any:
        words = {"schema": SCHEMA, "epsilon": 9.0, "delta": 1e-3, "ledger": ledger}
        found = call(table(pair, world), words)
        return found, repr(found), found.privacy


looked("stats.quantile", lambda rows, words: pi.stats.quantile("a", [0.1, 0.5], data=rows, **words))
looked("stats.mean, clip chosen", lambda rows, words: pi.stats.mean("b", data=rows, clip="auto", **words))
looked(
    "stats.mean of completed rows",
    lambda rows, words: pi.stats.mean("a", data=with_gaps(rows), missing="impute-public", **words),
)
looked("stats.counts", lambda rows, words: pi.stats.counts("g", data=rows, **words))
looked("stats.crosstab", lambda rows, words: pi.stats.crosstab("g", "g", data=rows, margins=True, **words))
looked("stats.histogram", lambda rows, words: pi.stats.histogram("y", 7, by="g", data=rows, **words))
looked("stats.sum", lambda rows, words: pi.stats.sum("y", by="g", data=rows, **words))
looked("stats.median", lambda rows, words: pi.stats.median("y", by="g", data=rows, **words))
looked("stats.mean by group", lambda rows, words: pi.stats.mean("b", by="g", data=rows, **words))
looked("stats.describe, factors", lambda rows, words: pi.stats.describe(rows, ["a", "g"], **words))


def lost(
    name: str, call: Callable[[dict[str, Any]], Any], lacks: Sequence[str], *, alone: bool = False
) -> None:
    """Register a function of `privinf.stats` with missing="drop"; the record lacks values in one world."""

    @case(f"stats.{name} of complete rows", {"epsilon": 9.0, "delta": 1e-3})
    def run(pair: str, world: int, ledger: Ledger) -> Any:
        rows = with_dropped(table(pair, world), list(lacks), gap=world == 1, alone=alone)
        words = {"data": rows, "schema": SCHEMA, "epsilon": 9.0, "delta": 1e-3, "ledger": ledger}
        found = call({**words, "missing": "drop"})
        return found, repr(found), found.privacy


lost("mean", lambda words: pi.stats.mean("b", **words), ["b"])
lost("mean, no other", lambda words: pi.stats.mean("b", **words), ["b"], alone=True)
lost("mean, clip chosen", lambda words: pi.stats.mean("b", clip="auto", **words), ["b"])
lost("anova_oneway", lambda words: pi.stats.anova_oneway("b ~ g", **words), ["g"])
lost("chi2_contingency", lambda words: pi.stats.chi2_contingency("g", "g", **words), ["g"])
lost("pearsonr", lambda words: pi.stats.pearsonr("a", "b", **words), ["b"])
lost("quantile", lambda words: pi.stats.quantile("b", [0.1, 0.5], **words), ["b"])
lost("describe", lambda words: pi.stats.describe(columns=["b", "g"], **words), ["b", "g"])
lost("counts", lambda words: pi.stats.counts("g", **words), ["g"])
lost("kruskal", lambda words: pi.stats.kruskal("b ~ g", **words), ["b"])
lost("wilcoxon", lambda words: pi.stats.wilcoxon("b", 0.1, **words), ["b"], alone=True)
looked("stats.describe", lambda rows, words: pi.stats.describe(rows, ["a", "b"], **words))


def selected(name: str, release: Callable[[Any, Ledger], Any]) -> None:
    """Register a release of the largest entries of a vector that one record moves by at most 1."""

    @case(name)
    def run(pair: str, world: int, ledger: Ledger) -> Any:
        v = np.array([3.0, -2.5, 2.0, 0.0, -1.0, 2.5, 0.5])
        v += np.clip(PAIRS[pair][world]["a"], -0.5, 0.5) * np.array([1, -1, -1, 1, -1, 1, 1.0])
        return release(v, ledger)


selected("NoisyTopK, Gumbel", lambda v, ledger: NoisyTopK(3, 1.0, rho=1.0).release(v, ledger=ledger))
selected(
    "NoisyTopK, Gumbel, of signed numbers",
    lambda v, ledger: NoisyTopK(2, 1.0, mu=1.0, absolute=False).release(v, ledger=ledger),
)
selected(
    "NoisyTopK, Gumbel, pure",
    lambda v, ledger: NoisyTopK(3, 1.0, epsilon=2.0, delta=0, values=False).release(v, ledger=ledger),
)
selected(
    "NoisyTopK, Laplace",
    lambda v, ledger: NoisyTopK(3, 1.0, epsilon=4.0, delta=0, method="laplace").release(v, ledger=ledger),
)
selected(
    "NoisyTopK, Laplace, zCDP",
    lambda v, ledger: NoisyTopK(3, 1.0, rho=1.0, method="laplace").release(v, ledger=ledger),
)
selected(
    "NoisyTopK, Laplace, the paper's formula",
    lambda v, ledger: NoisyTopK(3, 1.0, epsilon=2.0, delta=1e-3, method="laplace").release(v, ledger=ledger),
)
selected("private_max", lambda v, ledger: private_max(v, 1.0, rho=1.0, candidates=v < 9.0, ledger=ledger))
selected("noisy_scalar", lambda v, ledger: noisy_scalar(v[0], 1.0, mu=1.0, ledger=ledger))


@case("peeling of two vectors")
def _two_vectors(pair: str, world: int, ledger: Ledger) -> Any:
    source = LatticeNoise()
    v = np.array([[3.0, -2.5, 2.0, 0.0, -1.0], [1.0, 2.5, -2.0, 0.0, -1.0]])
    v += np.clip(PAIRS[pair][world]["a"], -0.5, 0.5) * np.sign(v + 0.1) * [1, -1, 1, -1, 1]
    peeling = NoisyTopK(2, 1.0, rho=1.0).calibrated(source, times=2)
    ledger.spend(*peeling.entries)
    return peeling.draw(v, source)


# Left to the long run: fits that differ from others in what is done with the same releases, or in time alone.
LONG = {
    "MomentOLS central, HC0, robust share",
    "MomentOLS central, finite population",
    "MomentOLS central, ridge",
    "MomentOLS central, weak",
    "MomentOLS local, ridge",
    "MomentOLS central, derived response",
    "IWPGLM logistic, series",
    "IWPGLM logistic, single pass",
    "IWPGLM exponential, radius",
    "RMGMOLS the paper's estimate",
    "RMGMOLS shrunk",
    "RMGMOLS size by the plan",
    "DGMOLS finite population",
    "FederatedGLM poisson, secure-sum, nonrobust",
    "FederatedGLM gaussian, secure-sum, DPSGD",
    "FederatedGLM binomial, server, sites as units",
    "FederatedGLM gaussian, secure-sum, a colluding site",
    "FederatedGLM gaussian, server, too little to spend",
    "FederatedGLM gaussian, secure-sum, checkpoint",
    "DebiasedLasso heterogeneous, own precision, an interval each",
    "DebiasedLasso dropped rows, heterogeneous, own precision, an interval each",
    "DebiasedLasso dropped rows, noise variance, eigenvalues",
    "DebiasedLasso dropped rows, logistic, no other complete",
    "DebiasedLasso the paper's, heterogeneous",
    "DebiasedLasso secure sums",
    "DebiasedLasso with a constant",
    "DebiasedLasso of what it selects",
    "ModulatedOLS several directions",
    "NoisyTopK, Laplace, the paper's formula",
}
assert set(FITS) >= LONG
