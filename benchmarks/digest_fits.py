"""The seeded fits of `digest.py`: every model, entry point and option on small made-up tables, by public names."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import privinf as pi
from privinf.accounting import Ledger
from privinf.federation import (
    IdentityKey,
    InProcessFederation,
    Roster,
    Site,
    SitePolicy,
)
from privinf.mechanisms import NoisyTopK, RandomizedResponse, Rows, noisy_scalar, private_max

SEED = 1
N, FEW = 2000, 150  # rows where totals are released, and where every row is
SPEND = {"epsilon": 10.0, "delta": 1e-3, "rng": SEED}
BOUNDS = {"y": (-4.0, 6.0), "a": (-1.0, 1.0), "b": (-1.0, 3.0), "c": (0.0, 2.0), "g": ["u", "v", "w"]}
PUBLIC = {"w": pi.Numeric(0.5, 2.0, public=True), "q": pi.Numeric(-3.0, 3.0, public=True)}
SCHEMA = pi.Schema(BOUNDS | PUBLIC)
GROUPED = pi.Schema(BOUNDS, unit="person", max_rows=2)
NAMES = ("north", "south", "west")
KEYS = {name: IdentityKey(bytes([position]) * 32) for position, name in enumerate(NAMES, start=1)}
ROSTER = Roster({name: key.public for name, key in KEYS.items()})
POLICY = SitePolicy(trusted_server=True, secure_sums=True, zero_out=True, simulation=True)
HC0 = {"cov_type": "HC0"}
CLEAR = {"epsilon": 800.0}  # little noise on every row

Fit = Callable[[], Any]
FITS: dict[str, Fit] = {}


def case(name: str) -> Callable[[Fit], Fit]:
    """Register a fit under a name."""

    def register(fit: Fit) -> Fit:
        assert name not in FITS
        FITS[name] = fit
        return fit

    return register


def table(n: int = N, seed: int = 0) -> pd.DataFrame:
    """Return people: two columns of numbers, a third one, a factor with a rare level, weights, groups."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "a": rng.uniform(-1, 1, n),
            "b": rng.uniform(-1, 3, n),
            "c": rng.uniform(0, 2, n),
            "g": rng.choice(["u", "v", "w"], n, p=[0.5, 0.4, 0.1]),
            "w": rng.uniform(0.5, 2.0, n),
            "q": rng.uniform(-0.3, 0.3, n),
        }
    )
    mean = 1.0 + 0.5 * frame.a - 0.4 * frame.b + 0.3 * frame.c
    frame["y"] = (mean + rng.normal(0, 0.3, n)).clip(-4, 6)
    return frame.assign(person=np.arange(n) // 2)


def federation(frame: pd.DataFrame, schema: pi.Schema = SCHEMA) -> InProcessFederation:
    """Return three sites with a third of the rows each."""
    return InProcessFederation(
        {
            name: Site(Rows(frame.iloc[i::3]), schema, policy=POLICY, key=KEYS[name], roster=ROSTER)
            for i, name in enumerate(NAMES)
        }
    )


# ---- second moments


def moments(
    name: str,
    formula: str = "y ~ a + b + C(g)",
    how: dict[str, Any] | None = None,
    *,
    n: int = N,
    gaps: bool = False,
    over: bool = False,
    schema: pi.Schema = SCHEMA,
    **options: Any,
) -> None:
    """Register a MomentOLS; `over` sites where it says so."""

    @case(f"MomentOLS {name}")
    def fit() -> Any:
        frame = table(n)
        if gaps:
            frame.loc[[3, 5], "b"] = np.nan
        held = federation(frame, schema) if over else frame
        model = pi.MomentOLS.from_formula(formula, held, schema=schema, **options)
        return model.fit(**(SPEND | (how or {})))


moments("central")
moments("central, weak", how={"epsilon": 0.05}, n=FEW)
moments("central, no noise", how={"epsilon": np.inf, "delta": None})
moments("central, no noise, HC0", how={"epsilon": np.inf, "delta": None} | HC0)
moments("central, HC0", how=HC0)
moments("central, HC0, robust share", how={**HC0, "robust_share": 0.5})
moments("central, mu", how={"mu": 2.0, "epsilon": None, "delta": None})
moments("central, rho", how={"rho": 2.0, "epsilon": None, "delta": None})
moments("central, weights", weights="w")
moments("central, weights, HC0", how=HC0, weights="w")
moments("central, public columns", "y ~ a + b + q")
moments("central, public columns, HC0", "y ~ a + q", how=HC0)
moments("central, several rows a person", "y ~ a + b", schema=GROUPED)
moments("central, several rows a person, HC0", "y ~ a + b", how=HC0, schema=GROUPED)
moments("central, radius", "y ~ a + b + c", radius=1.0)
moments("central, interaction", "y ~ a * b + C(g)")
moments("central, splines", "y ~ bs(b, knots=[1.0], degree=3, lower_bound=-1, upper_bound=3)")
moments("central, derived columns", "np.log(y + 5) ~ np.exp(a) + np.log(b + 2) + I(c**2)")
moments("central, no intercept", "y ~ 0 + a + b + c")
moments("central, response weight", response_weight=2.0)
moments("central, missing values", missing="impute-public", gaps=True)
moments("central, finite population", how={"target": "sample"})
moments("central, ridge", how={"stabilization": "ridge", "ridge": 1.0})
moments("local", how=CLEAR, trust="local", n=FEW)
moments("local, several rows a person", "y ~ a + b", CLEAR, schema=GROUPED, trust="local", n=FEW)
moments("local, much noise", how={"epsilon": 6.0}, trust="local", n=FEW)
moments("local, ridge", trust="local", how={"stabilization": "ridge", "ridge": 1.0, **CLEAR}, n=FEW)
moments("secure sums", over=True)
moments("secure sums, HC0, a colluding site", how={**HC0, "max_colluding": 1}, over=True)
moments("secure sums, no intercept", "y ~ 0 + a + b", over=True)
moments("trusted server", over=True, trust="server")
moments("trusted server, HC0", how=HC0, over=True, trust="server")
moments("trusted server, many rows", over=True, trust="server", n=3000)


@case("MomentOLS of arrays, public column")
def _arrays() -> Any:
    frame = table()
    X = frame[["a", "b", "q"]].assign(const=1.0)
    bounds = {"a": (-1, 1), "b": (-1, 3)}
    model = pi.MomentOLS(frame.y, X, bounds=bounds, public=["q", "const"], y_bounds=(-4, 6))
    return model.fit(**SPEND, cov_type="HC0")


@case("MomentOLS of arrays, bounds from the data")
def _data_bounds() -> Any:
    frame = table()
    return pi.MomentOLS(frame.y, frame[["a", "b"]], bounds="data", y_bounds="data").fit(**SPEND)


@case("MomentOLS of parties, checkpoint, and resumed")
def _checkpoint() -> Any:
    frame = table()
    parts = [(frame.y[i::2].to_numpy(), frame[["a", "b"]].iloc[i::2].to_numpy()) for i in range(2)]

    def model() -> Any:
        return pi.MomentOLS.from_arrays(parts, bounds=[(-1, 1), (-1, 3)], y_bounds=(-4, 6), trust="server")

    with tempfile.TemporaryDirectory() as folder:
        return [model().fit(**SPEND, checkpoint=folder) for _ in range(2)]


def answers(fit: Any) -> dict[str, Any]:
    """Return what results say when asked for more than their summary, refusals among it."""
    questions: dict[str, Fit] = {
        "simultaneous": lambda: fit.simultaneous(draws=500, rng=2),
        "parametric": lambda: fit.bootstrap(60, "parametric", rng=3),
        "multiplier": lambda: fit.bootstrap(60, rng=3),
        "pairs": lambda: fit.bootstrap(40, "pairs", rng=3),
        "t": lambda: fit.t_test("a = 0"),
        "wald": lambda: fit.wald_test("a = 0, b = 0"),
        "terms": lambda: fit.wald_test_terms(),
        "pairwise": lambda: fit.t_test_pairwise("C(g)"),
        "delta": lambda: fit.delta_method(lambda b: b[1] / b[2]),
        "score": lambda: fit.score_test(),
        "predicted": lambda: fit.get_prediction(pd.DataFrame({"a": [0.1], "b": [0.5], "g": ["u"]})),
        "set": lambda: fit.conf_int(method="score"),
        "level": lambda: fit.conf_int(0.2),
    }
    found: dict[str, Any] = {}
    for name, ask in questions.items():
        try:
            found[name] = ask()
        except pi.errors.PrivinfError as refusal:
            found[name] = f"{type(refusal).__name__}: {refusal}"
    return found


@case("MomentOLS: everything that a result can say")
def _moment_results() -> Any:
    model = pi.MomentOLS.from_formula("y ~ a + b + C(g)", table(3000), schema=SCHEMA)
    return answers(model.fit(**SPEND))


@case("MomentOLS local: everything that a result can say")
def _local_results() -> Any:
    model = pi.MomentOLS.from_formula("y ~ a + b", table(3000), schema=SCHEMA, trust="local")
    return answers(model.fit(**(SPEND | {"epsilon": 30.0})))


@case("ModulatedOLS: everything that a result can say")
def _modulated_results() -> Any:
    fit = pi.ModulatedOLS.from_formula("y ~ a + b", table(3000), schema=SCHEMA).fit(
        **(SPEND | {"epsilon": 60.0})
    )
    return answers(fit)


@case("IWPGLM: everything that a result can say")
def _example_results() -> Any:
    model = pi.IWPGLM.from_formula("y ~ a + b", table(3000), schema=SCHEMA, loss="squared")
    return answers(model.fit(epsilon=60.0, delta=1e-4, rng=SEED))


# ---- modulated rows


def modulated(
    name: str, formula: str = "y ~ a + b + c", how: Any = None, n: int = FEW, **options: Any
) -> None:
    """Register a ModulatedOLS."""
    schema = options.pop("schema", SCHEMA)

    @case(f"ModulatedOLS {name}")
    def fit() -> Any:
        model = pi.ModulatedOLS.from_formula(formula, table(n), schema=schema, **options)
        return model.fit(**(SPEND | CLEAR | (how or {})))


modulated("one-shot, much noise", how={"epsilon": 6.0})
modulated("one-shot")
modulated("one-shot, more rows", "y ~ a + b", {"epsilon": 60.0}, 4000)
modulated("one-shot, no noise", how={"epsilon": np.inf, "delta": None})
modulated("several directions", directions=2, frequency=2.0)
modulated("the paper's sensitivity", sensitivity="lipschitz")
modulated("iterative", how={"method": "iterative", "rounds": 3})
modulated("iterative, more rows", "y ~ a + b", {"method": "iterative", "rounds": 4, "epsilon": 60.0}, 4000)
modulated("public response", response="public", how={"epsilon": 60.0})
modulated("public response, weights", response="public", weights="w")
modulated("radius and public columns", "y ~ a + b + q", radius=1.0)
modulated("several rows a person", "y ~ a + b", schema=GROUPED)


@case("ModulatedOLS of arrays, radius, public column")
def _modulated_arrays() -> Any:
    frame = table(FEW)
    X = pi.add_constant(frame[["a", "b", "q"]])
    model = pi.ModulatedOLS(frame.y.tolist(), X, radius=2.0, public=["q", "const"], y_bounds=(-4, 6))
    return model.fit(**(SPEND | CLEAR))


@case("Modulation at distance one, the textbook's noise")
def _metric() -> Any:
    mechanism = pi.Modulation(SCHEMA, "y ~ 0 + a + b", adjacency="unit", response_share=0.5)
    frame = table(FEW).assign(a=lambda f: f.a / 4, b=lambda f: f.b / 6)
    return mechanism.release(frame, **(SPEND | {"epsilon": 0.9}), calibration="classic")


# ---- locally private examples

LABELS = pi.Schema({**BOUNDS, "y": ["no", "yes"], "z": (0.0, 1.0)})
LEVELS = pi.Schema({**BOUNDS, "y": ["low", "middle", "high"], "z": (0.0, 1.0)})
COUNTS = pi.Schema({**BOUNDS, "y": (0.0, 9.0), "z": (0.0, 1.0)})
SPLIT = {"epsilon_x": 200.0, "epsilon_y": 8.0, "delta": 1e-3, "rng": SEED}


def labelled(schema: pi.Schema, n: int = FEW) -> pd.DataFrame:
    """Return rows with a label of this schema and a binary column."""
    frame, noise = table(n), np.random.default_rng(9).logistic(0.0, 0.6, n)
    if schema is LABELS:
        label = np.where(frame.y + noise > 1.0, "yes", "no")
    elif schema is LEVELS:
        label = np.array(["low", "middle", "high"])[
            (frame.y + noise > 0.5).astype(int) + (frame.y + noise > 1.3)
        ]
    else:
        label = np.round(np.clip(frame.y + 0.2 * noise, 0, 9))
    return frame.assign(y=label, z=(np.arange(n) // 3 % 2).astype(float))


def examples(
    name: str, schema: pi.Schema, how: Any = None, formula: str = "y ~ a + b", n: int = FEW, **options: Any
) -> None:
    """Register an IWPGLM."""

    @case(f"IWPGLM {name}")
    def fit() -> Any:
        model = pi.IWPGLM.from_formula(formula, labelled(schema, n), schema=schema, **options)
        return model.fit(**(SPLIT | (how or {})))


BINARY = {"formula": "y ~ a + C(g) + z", "binary": ["z"]}
AS_RESPONSE = {"formula": "y ~ a + z", "binary": ["z"]}
AS_NUMBERS = {"formula": "y ~ a + z", "binary": ["z"], "binary_mechanism": "gaussian"}
examples("quadratic", LABELS, loss="quadratic")
examples("logistic, conditional", LABELS)
examples("logistic, much noise", LABELS, {"epsilon_x": 12.0, "epsilon_y": 4.0})
examples("logistic, more rows", LABELS, {"epsilon_x": 30.0}, n=4000)
examples("logistic, series", LABELS, {"correction": "series"})
examples(
    "logistic, single pass", LABELS, {"method": "sgd", "theta_radius": 3.0, "average": True, "step": 0.5}
)
examples("logistic, factors and binary columns by response", LABELS, **BINARY)
examples("multinomial", LEVELS, loss="multinomial")
examples("multinomial, more rows", LEVELS, {"epsilon_x": 40.0, "epsilon_y": 8.0}, n=4000, loss="multinomial")
examples("counts", COUNTS, loss="poisson")
examples("squared, binary columns as numbers", COUNTS, loss="squared", **AS_NUMBERS)
examples(
    "squared, single pass",
    COUNTS,
    {"method": "sgd", "theta_radius": 5.0, "average": True, "step": 0.5},
    loss="squared",
)
examples("exponential, radius", LABELS, loss="exponential", radius=0.7)
examples("logistic, no noise", LABELS, {"epsilon_x": np.inf, "epsilon_y": np.inf, "delta": None})
PURE = {"delta": None, "epsilon_x": 40.0}
examples("logistic, Laplace noise", LABELS, PURE, n=4000, noise="laplace")
examples("logistic, Laplace noise, radius", LABELS, PURE, radius=0.7, noise="laplace")
examples(
    "squared, Laplace noise and binary columns", COUNTS, PURE, loss="squared", noise="laplace", **AS_RESPONSE
)


@case("IWPGLM of arrays, binary column")
def _examples_arrays() -> Any:
    frame = labelled(LABELS)
    y, bounds = np.where(frame.y == "yes", 1, -1), [(-1, 1), (0, 1)]
    return pi.IWPGLM(y, frame[["a", "z"]], bounds=bounds, binary=["z"]).fit(
        epsilon=80.0, delta=1e-3, rng=SEED
    )


@case("LocalExamples, several rows a person")
def _examples_grouped() -> Any:
    schema = pi.Schema({**BOUNDS, "y": ["no", "yes"], "z": (0.0, 1.0)}, unit="person", max_rows=2)
    mechanism = pi.LocalExamples(schema, "y ~ a + C(g) + z", binary=["z"])
    return mechanism.release(labelled(LABELS), epsilon_x=4.0, epsilon_y=2.0, delta=1e-3, rng=SEED)


@case("LocalExamples, Laplace noise, several rows a person")
def _pure_examples_grouped() -> Any:
    schema = pi.Schema({**BOUNDS, "y": (0.0, 9.0), "z": (0.0, 1.0)}, unit="person", max_rows=2)
    mechanism = pi.LocalExamples(schema, "y ~ a + b + C(g)", noise="laplace")
    return mechanism.release(labelled(COUNTS), epsilon_x=4.0, epsilon_y=2.0, rng=SEED)


# ---- parties with columns of the same people

HELD = {"one": ["a"], "two": ["b", "y"], "three": ["c"]}


def parties(name: str, cls: Any, how: Any = None, n: int = N, **options: Any) -> None:
    """Register a regression of several parties' columns, at the analyst."""

    @case(f"{cls.__name__} {name}".strip())
    def fit() -> Any:
        frame = table(n)
        bounds = [(-1, 1), (-1, 3), (0, 2)]
        X = frame[["a", "b", "c"]]
        model = cls(frame.y, X, parties=HELD, bounds=bounds, y_bounds=(-4, 6), **options)
        sent = model.release(**(SPEND | {"epsilon": 30.0}))
        return [*sent.values(), cls.from_release(sent, label="y").fit(**(how or {}))]


for mixing in ("countsketch", "signs", "hadamard"):
    parties(mixing, pi.RMGMOLS, k=60, kind=mixing)
parties("the paper's estimate", pi.RMGMOLS, {"debias": False}, k=60)
parties("shrunk", pi.RMGMOLS, {"shrink": True}, k=60)
parties("ridge", pi.RMGMOLS, {"ridge": 0.5}, k=60)
parties("no intercept, largest diameter", pi.RMGMOLS, k=60, intercept=False, diameter="largest")
parties("size by the plan", pi.RMGMOLS)
parties("with an intercept", pi.DGMOLS, intercept=True)
parties("finite population", pi.DGMOLS, {"target": "sample"})
parties("plain", pi.BGMOLS)


@case("RMGMOLS of a formula, in one call; its joined release, asked twice")
def _joined() -> Any:
    frame = table(2000)
    held = {"one": ["a", "g"], "two": ["b", "y"]}
    model = pi.RMGMOLS.from_formula("y ~ a + b + C(g)", frame, schema=SCHEMA, parties=held, k=80)
    joined = pi.join(model.release(mu=20.0, rng=SEED))
    fit = model.fit(mu=20.0, rng=SEED)
    return [fit, joined, joined.regress("y ~ a"), joined.regress("b ~ a + C(g)"), fit.score_test()]


@case("MixingPlan, its check, and a party's release by it")
def _plan() -> Any:
    held = {
        "clinic": pi.PartyPlan(pi.Schema({"a": (-1.0, 1.0)}), epsilon=30.0, delta=1e-6),
        "lab": pi.PartyPlan(pi.Schema({"b": (-1.0, 3.0), "y": (-4.0, 6.0)}), mu=5.0),
    }
    plan = pi.MixingPlan.new(parties=held, n=N, k=60, seed=7)
    frame = table(2000)
    sent = {
        name: plan.release(name, frame[list(party.schema.columns)], rng=SEED) for name, party in held.items()
    }
    return [str(plan.check()), plan.to_json(), pi.join(sent).regress("y ~ a + b")]


# ---- generalised linear models over sites

RESPONSES = {"gaussian": (-4.0, 6.0), "binomial": (0.0, 1.0), "poisson": (0.0, 9.0)}
ROUNDS = {"epochs": 6, "batches": 10}


def glm_model(family: str, trust: str, formula: str, n: int) -> Any:
    frame = table(n)
    low, high = RESPONSES[family]
    if family != "gaussian":
        noise = np.random.default_rng(9).logistic(0.0, 0.6, n)
        frame["y"] = np.round((frame.y - 0.5 + noise).clip(low, high))
    schema = pi.Schema(BOUNDS | {"y": (low, high)})
    held = federation(frame[list(BOUNDS)], schema)
    return pi.FederatedGLM.from_formula(formula, held, schema=schema, family=family, trust=trust)


def glm(
    name: str,
    family: str,
    trust: str = "server",
    *,
    folder: bool = False,
    formula: str = "y ~ a + b",
    n: int = 6000,
    **how: Any,
) -> None:
    """Register a FederatedGLM; with a folder it is made again from its checkpoints."""

    @case(f"FederatedGLM {family}, {trust}{name}")
    def fit() -> Any:
        spending = {"epsilon": 12.0, "delta": 1e-3, "rng": SEED} | how
        if not folder:
            return glm_model(family, trust, formula, n).fit(**spending)
        with tempfile.TemporaryDirectory() as path:
            runs = [glm_model(family, trust, formula, n) for _ in range(2)]
            return [model.fit(**spending, checkpoint=path) for model in runs]


for family in RESPONSES:
    for trust in ("server", "secure-sum"):
        glm("", family, trust)
    glm(", no noise", family, epsilon=np.inf, delta=None)
    glm(", few rows", family, n=700)
CLIENTS = {"unit": "client", "epsilon": 60.0}
glm(", nonrobust", "binomial", cov_type="nonrobust")
glm(", nonrobust", "poisson", "secure-sum", cov_type="nonrobust")
glm(", replaced by nothing", "binomial", relation="zero-out")
glm(", targets", "binomial", targets=["a"], nuisance=["b"], formula="y ~ a + b + c")
glm(", Newton's settings", "binomial", optimizer=pi.Newton(rounds=4))
glm(", sites as units", "binomial", client_clip=2000.0, optimizer=pi.DPSGD(epochs=1, batches=5), **CLIENTS)
glm(
    ", sites as units, clipped",
    "binomial",
    "secure-sum",
    client_clip=5.0,
    optimizer=pi.DPSGD(epochs=1, batches=2),
    **CLIENTS,
)
glm(", checkpoint", "binomial", folder=True)
glm(", checkpoint", "gaussian", "secure-sum", folder=True)
glm(", a colluding site", "gaussian", "secure-sum", max_colluding=1)
glm(", factors", "gaussian", formula="y ~ a + C(g)")
glm(", DPSGD", "binomial", optimizer=pi.DPSGD(**ROUNDS))
glm(", DPSGD", "gaussian", "secure-sum", optimizer=pi.DPSGD(**ROUNDS))
glm(", DPAdam", "poisson", optimizer=pi.DPAdam(step=0.1, **ROUNDS))
glm(", DPAdam, one average", "gaussian", optimizer=pi.DPAdam(average=0.0, clip=2.0, step=0.1, **ROUNDS))
glm(", sketches", "binomial", optimizer=pi.RandomSketch(k=2, **ROUNDS))
glm(", DOME", "binomial", optimizer=pi.DOME(k=2, most_learned=1, **ROUNDS))
glm(", DOME", "gaussian", "secure-sum", optimizer=pi.DOME(k=2, most_learned=1, **ROUNDS))
glm(
    ", DOME, longer",
    "poisson",
    optimizer=pi.DOME(k=3, most_learned=1, epochs=10, batches=10),
    formula="y ~ a + b + C(g)",
)
glm(
    ", DOME, the paper's",
    "binomial",
    optimizer=pi.DOME(k=3, most_learned=2, variant="paper", epochs=10, batches=10),
)
glm(
    ", DOME, Adam, centred",
    "binomial",
    optimizer=pi.DOME(k=2, most_learned=1, adam=True, centre=True, precondition=True, **ROUNDS),
)
glm(", too little to spend", "gaussian", epsilon=0.2, optimizer=pi.DPSGD(epochs=1, batches=5))


@case("FederatedGLM of arrays")
def _glm_arrays() -> Any:
    frame = table(4000)
    y, X = (
        (frame.y + np.random.default_rng(9).logistic(0.0, 0.6, 4000) > 1.0).to_numpy(),
        frame[["a", "b"]].to_numpy(),
    )
    parts = {name: (y[i::2], X[i::2]) for i, name in enumerate(("one", "two"))}
    model = pi.FederatedGLM.from_arrays(parts, bounds=[(-1, 1), (-1, 3)], family="binomial", radius=1.1)
    fit = model.fit(epsilon=12.0, delta=1e-3, rng=SEED)
    return [fit, fit.get_prediction(X[:3])]


# ---- the debiased lasso

COLUMNS = 6


def arrays(n: int, columns: int = COLUMNS) -> tuple[Any, Any]:
    """Return (y, X) of a sparse linear model."""
    rng = np.random.default_rng(3)
    X = rng.choice([-1.0, 1.0], (n, columns)) * rng.uniform(0.5, 1.0, (n, columns))
    return 2.0 * X[:, 0] - 2.0 * X[:, 3] + 0.3 * rng.standard_normal(n), X


def lasso(name: str, *, n: int = 90, by_party: bool = False, constant: bool = False, **how: Any) -> None:
    """Register a DebiasedLasso."""

    @case(f"DebiasedLasso {name}")
    def fit() -> Any:
        asked = {"epsilon": 90.0, "delta": 0.05, "sparsity": 2, "targets": [0, 3], "rng": SEED} | how
        entry_points = {key: asked.pop(key) for key in ("trust", "family") if key in asked}
        y, X = arrays(n)
        if entry_points.get("family") == "binomial":
            y = (y + np.random.default_rng(4).logistic(0.0, 1.0, n) > 0.5).astype(float)
        else:
            entry_points["y_bounds"] = (-4, 6)
        if constant:
            X = pi.add_constant(pd.DataFrame(X, columns=[f"x{j}" for j in range(COLUMNS)]))
        labels = np.arange(n) % 3 if by_party or "trust" in entry_points else None
        model = pi.DebiasedLasso(y, X, x_bound=1.0, sites=labels, **entry_points)
        return model.fit(**asked)


EXTRAS = {"restricted_eigenvalues": True, "noise_variance": True, "bias_bound": True}
OWN = {"heterogeneous": True, "shared_sparsity": 1, "by_party": True}
PAPER = {"variant": "paper"}
lasso("of named targets")
lasso("of named targets, more rows", n=3000)
lasso("no noise", epsilon=np.inf, delta=None, n=600)
lasso("of what it selects", targets="selected")
lasso("of all columns", targets="all")
lasso("of parties, a sparsity of its own choice", by_party=True, sparsity="auto", max_sparsity=3)
lasso("with a constant", constant=True, targets=["x0", "x3"])
lasso("released means", center="released")
lasso("private bootstrap", bootstrap_draws=20, bootstrap_multipliers="gaussian")
lasso("bias bound, eigenvalues, noise variance", **EXTRAS)
lasso("every extra, more rows", n=3000, bootstrap_draws=20, **EXTRAS)
lasso("heterogeneous", epsilon=200.0, n=900, **OWN)
lasso(
    "heterogeneous, own precision, an interval each",
    epsilon=200.0,
    precision="machine",
    accounting="per-interval",
    n=900,
    **OWN,
)
lasso("secure sums", trust="secure-sum")
lasso("secure sums, more rows", trust="secure-sum", n=3000)
lasso(
    "secure sums, a colluding site, noise variance", trust="secure-sum", max_colluding=1, noise_variance=True
)
lasso("the paper's", targets="selected", epsilon=200.0, **PAPER)
lasso("the paper's, an interval each", accounting="per-interval", epsilon=200.0, n=900, **PAPER)
lasso(
    "the paper's, heterogeneous",
    epsilon=1500.0,
    n=6000,
    paper_options={"multiplier_draws": 5, "variance": "robust"},
    **OWN,
    **PAPER,
)
lasso("too little to spend", epsilon=0.2)
LOGIT = {"family": "binomial", "n": 3000, "epsilon": 20.0}
lasso("logistic", **LOGIT)
lasso("logistic, secure sums", trust="secure-sum", **LOGIT)
lasso("logistic, heterogeneous", **LOGIT, **OWN)
lasso("logistic, heterogeneous, no noise", **LOGIT | {"epsilon": np.inf, "delta": None}, **OWN)


@case("DebiasedLasso: joint intervals, tests and predictions")
def _lasso_results() -> Any:
    y, X = arrays(3000)
    model = pi.DebiasedLasso(y, X, x_bound=1.0, y_bounds=(-4, 6))
    how = {"sparsity": 2, "targets": [0, 1, 3], "bootstrap_draws": 59, "delta": 1e-3, "rng": SEED}
    fit = model.fit(epsilon=90.0, **how)
    return {
        "joint": fit.simultaneous(draws=500, rng=2),
        "max": fit.max_test([2.0, 0.0, -2.0], rng=3),
        "private": fit.simultaneous(0.1, method="private-bootstrap"),
        "wald": fit.t_test(np.eye(3)[0]),
        "predicted": fit.predict_sparse(X[:3]),
    }


@case("DebiasedLasso of a formula over sites, of parties' arrays")
def _lasso_doors() -> Any:
    how = {"epsilon": 90.0, "delta": 0.05, "sparsity": 1, "rng": SEED}
    sites = pi.DebiasedLasso.from_formula("y ~ a + b + c", federation(table(900)), schema=SCHEMA)
    y, X = arrays(300)
    parts = {"one": (y[::2], X[::2]), "two": (y[1::2], X[1::2])}
    model = pi.DebiasedLasso.from_arrays(parts, x_bound=1.0, y_bounds=(-4, 6))
    return [sites.fit(targets=["a"], **how), model.fit(targets=[0], **how)]


# ---- single releases, accounts, files


@case("sparse_mean")
def _sparse_mean() -> Any:
    rows = np.random.default_rng(0).normal(0.2, 1.0, (600, 4, 5))
    return pi.sparse_mean(rows, epsilon=1.0, sparsity=1, public_seed=0, rng=SEED)


def selected(name: str, release: Callable[[Any, Any], Any]) -> None:
    """Register a release of the largest entries of a vector."""

    @case(name)
    def run() -> Any:
        ledger = Ledger()
        return [release(np.array([3.0, -2.5, 2.0, 0.0, -1.0, 2.5, 0.5]), {"ledger": ledger, "rng": SEED})]


LAW = ("keep", "other", "lie")
selected("NoisyTopK, Gumbel", lambda v, how: NoisyTopK(3, 1.0, rho=1.0).release(v, **how))
selected("NoisyTopK, signed", lambda v, how: NoisyTopK(2, 1.0, mu=1.0, absolute=False).release(v, **how))
selected(
    "NoisyTopK, pure", lambda v, how: NoisyTopK(3, 1.0, epsilon=2.0, delta=0, values=False).release(v, **how)
)
selected(
    "NoisyTopK, Laplace",
    lambda v, how: NoisyTopK(3, 1.0, epsilon=4.0, delta=0, method="laplace").release(v, **how),
)
selected("private_max", lambda v, how: private_max(v, 1.0, rho=1.0, candidates=v < 9.0, **how))
selected("noisy_scalar", lambda v, how: noisy_scalar(v[0], 1.0, mu=1.0, **how))
selected("RandomizedResponse", lambda v, how: [getattr(RandomizedResponse(3, 1.5), law) for law in LAW])


@case("plan of releases")
def _price() -> Any:
    report = pi.plan(
        [
            {"mechanism": "gaussian", "mu": 0.5, "times": 3},
            {"mechanism": "pure", "epsilon": 0.3},
            {"mechanism": "concentrated", "rho": 0.1},
            {"mechanism": "external", "epsilon": 0.2, "delta": 1e-7},
        ],
        delta=1e-6,
    )
    return [report.epsilon(), report.delta(3.0), report.frame.to_numpy(), str(report)]


@case("compare")
def _compare() -> Any:
    data = table(3000)
    first = pi.MomentOLS.from_formula("y ~ a + b", data, schema=SCHEMA).fit(**SPEND)
    second = pi.ModulatedOLS.from_formula("y ~ a + b", data, schema=SCHEMA).fit(**(SPEND | {"epsilon": 60.0}))
    found = pi.compare({"moments": first, "modulated": second})
    return [str(found)]


@case("files: releases and results, read again and fitted again")
def _files() -> Any:
    data = table(1000)
    models: list[Any] = [
        pi.MomentOLS.from_formula("y ~ a + C(g)", data, schema=SCHEMA),
        pi.ModulatedOLS.from_formula("y ~ a + b", data, schema=SCHEMA),
        pi.IWPGLM.from_formula("y ~ a + b", data, schema=SCHEMA, loss="squared"),
    ]
    found: list[Any] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kept.npz"
        for model in models:
            fit = model.fit(epsilon=40.0, delta=1e-4, rng=SEED)
            fit.save(path, overwrite=True)
            found += [pi.load_results(path)]
            fit.release.save(path, overwrite=True)
            again = pi.load_release(path)
            loss = {"loss": "squared"} if isinstance(model, pi.IWPGLM) else {}
            found += [again, type(model).from_release(again, **loss).fit()]
    return found
