# %% [markdown]
# # Ten states, one regression, no pooled rows
#
# Each of ten states keeps the wage records of its own people. A logistic regression of all of them is fitted
# by secure sums, in which nobody sees a state's own numbers. It is compared with the fit of the pooled rows.
#
# Run it with `python vignettes/5b_federated_acs.py` (half a minute of one core): all states in one process.
# With `--flower` the same fit runs over Flower with TLS, on ten nodes and ten daemons of this machine (six
# minutes on two busy cores); its times are stored next to the page. The data are in the folder that the
# environment variable PRIVINF_DATA names. The noise is seeded: simulation, not a private release.

# %%
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import json
import math
import sys
import time
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import statsmodels.api as sm
import statsmodels.formula.api as smf
from page import BLUE, FAINT, GREEN, ORANGE, Page, wrapped

import privinf as pi
from privinf.errors import BudgetExceededError, NotAvailableError
from privinf.federation import InProcessFederation, Site, SitePolicy, pinned_keys
from studies.data import acs_wages

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
sys.path[:0] = [str(BENCHMARKS), str(BENCHMARKS / "flower_app")]

from pvapp.glm import Counted

warnings.simplefilter("ignore")  # simulation noise is the subject here
PAGE = Page(__file__, ".4f")
STORED = PAGE.script.with_suffix("") / "flower.json"
TITLE = "Ten states, one regression, no pooled rows"
SEED, EPSILON, DELTA = 0, 0.5, 1e-6
CLIP = 3.0  # of residuals of log wages
NORMAL = 1.959963984540054
say, table, figure = PAGE.say, PAGE.table, PAGE.figure

# %% [markdown]
# ## The states and what they agreed on

# %%
STATES = {12: "FL", 13: "GA", 17: "IL", 26: "MI", 34: "NJ", 36: "NY", 37: "NC", 39: "OH", 42: "PA", 51: "VA"}
LEVELS = ("school", "none", "college", "bachelor", "advanced")
SCHEMA = pi.Schema(
    {
        "over_50k": (0.0, 1.0),
        "log_wage": pi.Numeric(math.log(100.0), math.log(1e6)),
        "age10": pi.Numeric(-2.8, 3.0, unit="decades from 45"),
        "education": pi.Factor(LEVELS),
        "hours": pi.Numeric(0.0, 80.0, unit="hours a week"),
        "female": (0.0, 1.0),
        "married": (0.0, 1.0),
    }
)
COLUMNS = "age10 + I(age10**2) + education + hours + female*married"
FORMULA = f"over_50k ~ {COLUMNS}"
POLICY = {"secure_sums": True, "min_sites": 8, "simulation": True}
BUDGET = {"epsilon": 1.0, "delta": DELTA}
LARGEST, SMALLEST = "NY", "VA"


def people() -> dict[str, pd.DataFrame]:
    """Return each state's own table, as its holder prepared it."""
    raw = acs_wages.people()
    codes = pd.cut(
        raw["SCHL"], [0, 15, 17, 20, 21, 24], labels=["none", "school", "college", "bachelor", "advanced"]
    )
    made = pd.DataFrame(
        {
            "over_50k": (raw["WAGP"] > 50_000).astype(float),
            "log_wage": np.log(raw["WAGP"].clip(100, 1_000_000)).round(4),
            "age10": ((raw["AGEP"].clip(upper=75) - 45.0) / 10.0).round(1),
            "education": codes.astype(str),
            "hours": raw["WKHP"].clip(upper=80).astype(float),
            "female": (raw["SEX"] == 2).astype(float),
            "married": (raw["MAR"] == 1).astype(float),
        }
    )
    return {name: made[raw["STATE"] == code].reset_index(drop=True) for code, name in STATES.items()}


def federation(tables: dict[str, pd.DataFrame], budget: pi.Budget | None = None) -> InProcessFederation:
    """Return the states as sites of this process, keyed, each with a ledger of its own."""
    keys, roster = pinned_keys(tables)
    policy = SitePolicy(**POLICY, max_colluding=0)
    return InProcessFederation(
        {
            name: Site(rows, SCHEMA, policy=policy, key=keys[name], roster=roster, ledger=pi.Ledger(budget))
            for name, rows in tables.items()
        }
    )


def model(sites: object) -> pi.FederatedGLM:
    """Return the model over the states by secure sums."""
    return pi.FederatedGLM.from_formula(FORMULA, sites, schema=SCHEMA, family="binomial", trust="secure-sum")


TABLES = PAGE.needed(people, TITLE)
POOLED = pd.concat(TABLES.values(), ignore_index=True)
POOLED["education"] = pd.Categorical(POOLED["education"], LEVELS)
CLEAR = smf.glm(FORMULA, POOLED, family=sm.families.Binomial()).fit(cov_type="HC0", tol=1e-12)

# %% [markdown]
# ## Over Flower (only with `--flower`)


# %%
def over_flower() -> None:
    """Fit over a deployment on this computer, and store what it took."""
    from flower_deployment import Study, deployment, entries_of, start_run, wait_for

    started = time.time()
    study = Study(TABLES, SCHEMA, POLICY, BUDGET["epsilon"], BUDGET["delta"])
    with deployment(study) as (folder, processes):
        ready = time.time() - started
        out = start_run(
            folder,
            analysis="glm",
            trust="secure-sum",
            sites=",".join(TABLES),
            schema=str(folder / "schema.json"),
            formula=FORMULA,
            family="binomial",
            epsilon=EPSILON,
            delta=DELTA,
            max_colluding=0,
            seed=SEED,
        )
        wait_for("the fit over Flower", out.exists, 1800.0)
        found = json.loads(out.read_text())
        processes.end_all()
        charged = {
            name: pi.accounting.compose([e.loss for e in entries_of(folder, name)]).mu for name in TABLES
        }
    if "error" in found:
        raise SystemExit(found["error"])
    more = {"ready": ready, "total": time.time() - started, "cores": os.cpu_count(), "charged": charged}
    STORED.write_text(json.dumps(found | more, indent=1), encoding="utf-8")


if "--flower" in sys.argv:
    over_flower()

# %% [markdown]
# ## The fit

# %%
COUNTED = Counted(federation(TABLES, pi.Budget(**BUDGET)))
MODEL = model(COUNTED)
FIT = MODEL.fit(epsilon=EPSILON, delta=DELTA, rng=SEED)
STEPS = list(COUNTED.steps)
try:
    model(COUNTED).fit(epsilon=0.9, delta=DELTA, rng=1)
    REFUSED = ""
except BudgetExceededError as problem:
    REFUSED = str(problem)
SITES = federation(TABLES)
EXACT = model(SITES).fit(epsilon=math.inf)
GAP = float(
    max(
        abs(EXACT.params - CLEAR.params[EXACT.params.index]).max(),
        abs(EXACT.bse - CLEAR.bse[EXACT.bse.index]).max(),
    )
)
REFERENCE = CLEAR.params[FIT.params.index]
RATIO = FIT.bse / CLEAR.bse[FIT.bse.index]
NAMES = {
    "Intercept": "constant",
    "education[T.none]": "no diploma",
    "education[T.college]": "some college",
    "education[T.bachelor]": "bachelor",
    "education[T.advanced]": "advanced degree",
    "age10": "age, decades",
    "I(age10 ** 2)": "age squared",
    "hours": "hours a week",
    "female": "female",
    "married": "married",
    "female:married": "female x married",
}


def beginning() -> None:
    """Write sections 1 and 2."""
    say(f"# {TITLE}")
    say(
        f"""
        Ten states hold the wage records of their own people: {len(POOLED):,} workers of the American
        Community Survey 2024, {min(map(len, TABLES.values())):,} to {max(map(len, TABLES.values())):,} a
        state. They want one logistic regression of earning more than 50,000 dollars in a year on age,
        education, hours, sex and marriage. No state may show its rows, or even its own *sums*, to another
        state or to a server. In addition, nobody may learn from the published results whether a given
        worker's record was changed.

        `FederatedGLM(trust="secure-sum")` fits such a regression. The server sends every state the same
        queries for sums. Each state adds its share of the noise and a mask that cancels only in the total
        over all states. (These are public-use data, and the noise is seeded so that the page can be made
        again: a demonstration, not a private release.)

        ## 1. Common agreements, and decisions of each state

        The states agree on one file with the columns and their **bounds**, and on the roster with all public
        keys. The bounds are from the code book: ages above 75 and hours above 80 count as 75 and 80. Each
        state decides on its **policy** and its **budget**.
        """
    )
    PAGE.add(
        "```json\n" + json.dumps({name: POLICY[name] for name in POLICY if name != "simulation"}) + "\n```"
    )
    say(
        f"""
        A state with this policy takes part only in sums over at least {POLICY["min_sites"]} states. Its
        ledger allows ε = {BUDGET["epsilon"]:g} at δ = {DELTA:g} in total. (On this page the policy also has
        `"simulation": true`, for the seeded noise.) The commands at a state:
        """
    )
    PAGE.add(
        "```console\n$ privinf site key ny.key                      # once; prints the public part\n"
        "$ privinf site roster FL=3f...a1 GA=90...7c ... --out roster.json\n"
        f"$ privinf ledger create --site ny.ledger --epsilon {BUDGET['epsilon']:g} --delta {DELTA:g}\n"
        "$ privinf site serve --name NY --data ny.csv --schema schema.json \\\n"
        "    --policy policy.json --ledger ny.ledger \\\n"
        "    --key ny.key --roster roster.json --socket /run/privinf/ny.sock\n```"
    )
    say(
        """
        The last command starts a process that holds the rows and answers at a socket until it is stopped.
        Messages from the network (section 7) can send queries to that socket, as any analyst can, and can
        access nothing else.

        ## 2. The fit

        The analyst's code is the same whether the sites are objects of this process or nodes of Flower:
        """
    )
    PAGE.add(
        "```python\nmodel = pi.FederatedGLM.from_formula(\n"
        f'    "{FORMULA}",\n'
        '    federation, schema=schema, family="binomial", trust="secure-sum",\n)\n'
        f"fit = model.fit(epsilon={EPSILON}, delta={DELTA:g})\n```"
    )
    PAGE.printed(FIT.summary())


# %% [markdown]
# ## Against pooled rows


# %%
def comparison() -> None:
    """Write section 3."""
    far = (FIT.params - REFERENCE) / FIT.bse
    worst = RATIO.idxmax()
    say(
        f"""
        ## 3. Comparison with pooled rows

        Without noise (`epsilon=inf`, which these sites allow because the data are public) the federated fit
        *is* the pooled one. Coefficients and robust standard errors differ from those of statsmodels (GLM,
        HC0) on all {len(POOLED):,} rows by at most {GAP:.0e}. With ε = {EPSILON:g}:
        """
    )
    table(
        pd.DataFrame(
            {
                "coefficient": [NAMES[name] for name in FIT.params.index],
                "pooled": REFERENCE.to_numpy(),
                "its s.e.": CLEAR.bse[FIT.bse.index].to_numpy(),
                "federated, private": FIT.params.to_numpy(),
                "s.e.": FIT.bse.to_numpy(),
                "width / pooled": RATIO.to_numpy(),
                "difference in s.e.": far.to_numpy(),
            }
        )
    )
    fig, ax = plt.subplots(figsize=(6.6, 3.6))
    scale = CLEAR.bse[FIT.bse.index]
    where = np.arange(len(scale))[::-1]
    ax.errorbar(
        np.zeros(len(scale)),
        where + 0.14,
        xerr=NORMAL,
        fmt="o",
        color=FAINT,
        ms=4,
        lw=2.2,
        label="pooled rows, no privacy",
    )
    ax.errorbar(
        (FIT.params - REFERENCE) / scale,
        where - 0.14,
        xerr=NORMAL * RATIO,
        fmt="s",
        color=BLUE,
        ms=4,
        label=f"ten states, secure sums, ε = {EPSILON:g}",
    )
    ax.axvline(0.0, color=FAINT, lw=0.8)
    ax.set_yticks(where, [NAMES[name] for name in scale.index])
    ax.set_xlabel("difference from the pooled estimate, in its standard errors; 95% intervals")
    ax.grid(visible=False, axis="y")
    ax.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=2)
    figure(
        fig,
        "intervals",
        f"Intervals of the private fit against those of pooled rows. The widest ratio is that of '{NAMES[worst]}', "
        f"{RATIO.max():.2f}. The noise is drawn in units in which all directions of the scores weigh alike, so the noise "
        "of all coefficients is similar.",
    )
    say(
        f"""
        The private intervals are {RATIO.min():.2f} to {RATIO.max():.2f} times as wide as the pooled ones, and
        {int((far.abs() < NORMAL).sum())} of {len(far)} differences are within ±1.96 of their own standard
        errors. (Both fits use the same rows, so the differences are due to the noise alone. The standard
        errors also include sampling.)
        """
    )


# %% [markdown]
# ## Alone, and who trusts whom

# %%
LADDER = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
SHOWN = "female:married"


def alone(name: str, epsilon: float) -> float:
    """Return the standard error of one coefficient from one state's rows, nan where there is none."""
    site = {name: Site(TABLES[name], SCHEMA, policy=SitePolicy(trusted_server=True, simulation=True))}
    lone = pi.FederatedGLM.from_formula(FORMULA, InProcessFederation(site), schema=SCHEMA, family="binomial")
    return standard_error(lone, epsilon)


def standard_error(fitted: pi.FederatedGLM, epsilon: float) -> float:
    """Return the standard error of the shown coefficient, nan where a fit has no intervals."""
    try:
        return float(fitted.fit(epsilon=epsilon, delta=DELTA, rng=SEED).bse[SHOWN])
    except NotAvailableError:
        return math.nan


def alone_section() -> None:
    """Write section 4."""
    curves = {
        f"{LARGEST} alone ({len(TABLES[LARGEST]):,} rows)": [alone(LARGEST, e) for e in LADDER],
        f"{SMALLEST} alone ({len(TABLES[SMALLEST]):,} rows)": [alone(SMALLEST, e) for e in LADDER],
        "all ten, secure sums": [standard_error(model(SITES), e) for e in LADDER],
    }
    base = float(CLEAR.bse[SHOWN])
    fig, ax = plt.subplots(figsize=(6.2, 3.3))
    styles = ((GREEN, "^--"), (ORANGE, "s-."), (BLUE, "o-"))
    for (name, values), (color, style) in zip(curves.items(), styles, strict=True):
        ax.plot(LADDER, np.array(values) / base, style, color=color, ms=4, label=name)
        rows = len(TABLES[name[:2]]) if "alone" in name else len(POOLED)
        ax.axhline(math.sqrt(len(POOLED) / rows), color=color, lw=0.8, ls=":")
    ax.set(xscale="log", yscale="log", xlabel="ε (δ = 1e-6)", ylabel="standard error / pooled, no privacy")
    ax.set_xticks(LADDER, [f"{e:g}" for e in LADDER])
    ax.set_yticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
    ax.minorticks_off()
    ax.legend()
    figure(
        fig,
        "alone",
        f"Standard error of '{NAMES[SHOWN]}'. Dotted: the same rows without privacy. If ε is so small that the noise "
        "dominates the curvature, a fit has no intervals and states it; no fit here has such an ε.",
    )
    least = {
        name: next(e for e, v in zip(LADDER, values, strict=True) if v == v)
        for name, values in curves.items()
    }
    assert set(least.values()) == {LADDER[0]}
    price = {
        name: (values[0] / values[-1], values[LADDER.index(1.0)] / values[-1])
        for name, values in curves.items()
    }
    together, *lone = price["all ten, secure sums"], *[p for name, p in price.items() if "alone" in name]
    say(
        f"""
        A state alone has two disadvantages. It has fewer rows, and the noise, whose size does not depend on
        the number of rows, has more weight. From ε = {LADDER[-1]:g} to ε = {LADDER[0]:g} the standard error
        of all ten grows {together[0]:.1f} times, that of {LARGEST} alone {lone[0][0]:.1f} times, and that of
        {SMALLEST} alone {lone[1][0]:.1f} times. From ε = {LADDER[-1]:g} to ε = 1 they grow by
        {together[1] - 1.0:.0%}, {lone[0][1] - 1.0:.0%} and {lone[1][1] - 1.0:.0%}.
        """
    )


def trust_section() -> None:
    """Write section 5."""
    rows = []
    for colluding in (0, 2, 5, 9):
        found = model(SITES).fit(epsilon=EPSILON, delta=DELTA, max_colluding=colluding, rng=SEED)
        try:
            width = f"{float((found.bse / CLEAR.bse[found.bse.index]).median()):.2f}"
        except NotAvailableError:
            width = "no intervals"
        rows.append([colluding, f"{10 / (10 - colluding):.2f}", width])
    say(
        """
        ## 5. Trust

        The server sees ten vectors of uniformly random words, and their sum, which is noisy. Each state adds
        a tenth of the noise, which is enough if all ten do. A state may fear that others pass their share of
        the noise to the server. It then states a number of such states in its policy, `max_colluding`. All
        states then add more noise, so that the noise of the honest states alone gives the guarantee:
        """
    )
    table(pd.DataFrame(rows, columns=["max_colluding", "variance of the noise", "median width / pooled"]))
    say(
        """
        With nine, a state does not rely on others: its own noise protects its rows whatever the others do.
        The masks do **not** give secrecy for a state that loses its key file, or protection against a state
        that lies about its rows. No cryptographer has reviewed the masks. A server that pretends that a state
        did not answer learns the sum without this state. Both sums are charged, and `min_sites` bounds the
        number of such attempts.
        """
    )


# %% [markdown]
# ## Cost, least squares, bytes, Flower


# %%
def cost_section() -> None:
    """Write the end of section 5."""
    say("The privacy cost of the fit for each worker, in total and line by line:")
    total, _, assumptions = str(FIT.privacy).split("\n\n")
    PAGE.printed(wrapped(f"{total}\n\n{assumptions}"))
    table(FIT.privacy.releases[["label", "sensitivity", "noise_scale", "mu", "epsilon"]], ".4g")
    assert REFUSED
    say(
        f"""
        Every state keeps the same lines in its own ledger, on disk before anything is sent. A second analysis at
        ε = 0.9 would exceed the limit of ε = {BUDGET["epsilon"]:g}, and the states refuse it:
        """
    )
    PAGE.printed(wrapped(f"BudgetExceededError: {REFUSED}"))


def least_squares_section() -> None:
    """Write section 6."""
    formula = f"log_wage ~ {COLUMNS}"
    private = pi.MomentOLS.from_formula(formula, SITES, schema=SCHEMA, trust="secure-sum")
    fit = private.fit(epsilon=EPSILON, delta=DELTA, cov_type="HC0", rng=SEED)
    clear = smf.ols(formula, POOLED).fit(cov_type="HC0")
    rounds, free = (
        pi.FederatedGLM.from_formula(
            formula, SITES, schema=SCHEMA, family="gaussian", trust="secure-sum", **clip
        ).fit(epsilon=EPSILON, delta=DELTA, rng=SEED)
        for clip in ({"residual_clip": CLIP}, {})
    )
    widths = [(found.bse / clear.bse[found.bse.index]) for found in (fit, rounds, free)]
    assert widths[2].max() < widths[0].max()
    names = ["education[T.advanced]", "hours", "female", "married", "female:married"]
    narrower = [NAMES[name] for name in names if widths[0][name] < widths[2][name]]
    say(
        f"""
        ## 6. Least squares in two messages

        A linear regression needs no rounds. `MomentOLS(trust="secure-sum")` queries every state once for its
        second moments, and once more for those of the residuals, for robust standard errors. The sensitivity
        is that of one curator who holds all rows. The log of the wage on the same columns, ε = {EPSILON:g}:
        """
    )
    PAGE.add(
        "```python\nfit = pi.MomentOLS.from_formula(\n"
        f'    "log_wage ~ ...", federation, schema=schema, trust="secure-sum"\n).fit(epsilon={EPSILON}, delta={DELTA:g}, cov_type="HC0")\n```'
    )
    table(
        pd.DataFrame(
            {
                "coefficient": [NAMES[name] for name in names],
                "pooled": clear.params[names].to_numpy(),
                "its s.e.": clear.bse[names].to_numpy(),
                "federated, private": fit.params[names].to_numpy(),
                "s.e.": fit.bse[names].to_numpy(),
                "width / pooled": widths[0][names].to_numpy(),
                "in rounds, clipped": widths[1][names].to_numpy(),
                "in rounds": widths[2][names].to_numpy(),
            }
        ),
    )
    say(
        f"""
        So few messages have a price: noise on the moments is multiplied by the coefficients, and noise on a
        score is not.
        {f"A product is released on centered, orthogonal columns, which makes the intervals of {', '.join(narrower)} narrower than those in rounds." if narrower else ""}
        The last two columns are widths of `FederatedGLM(family="gaussian")`, with {len(rounds.communication)}
        and {len(free.communication)} messages at the same ε. The first has `residual_clip={CLIP:g}`, which
        declares that few wages differ from their mean by more than a factor of {math.exp(CLIP):.0f}. It
        estimates the coefficient of clipped residuals. The second uses noisy counts of the size of residuals
        instead.
        """
    )


QUERIES = {
    "curved.start": "score and Hessian at 0 (77 numbers)",
    "curved.step": "score and Hessian of a round (77 numbers)",
    "curved.counts": "numbers of scores and of curvatures beyond each clip (18 and 31 numbers)",
    "curved.score": "final score (11 numbers)",
    "curved.meat": "its meat (66 numbers)",
    "curved.secant": "final Hessian, between two points (66 numbers)",
}


def flower_section() -> None:
    """Write section 7."""
    sums = [step for step in STEPS if step["op"] not in ("describe", "design", "reserve", "end")]
    say(
        f"""
        ## 7. Over Flower

        A fit needs {len(sums)} sums, with one message to and from each state for each. It also needs
        {len(STEPS) - len(sums)} other queries: the number of rows, whether this design suits, the reservation
        of the total price and its end. All of them together have {sum(s["down"] for s in STEPS) / 1e3:.0f} kB
        to a state and {sum(s["up"] for s in STEPS) / 1e3:.0f} kB from it, headers and ledger lines included.
        Of these, {FIT.communication["bytes_up"].sum() / 1e3:.1f} kB are numbers. The number of rows does not
        matter.
        """
    )
    stored = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else None
    # A stored run may be older than reservations: the sums must be the same.
    assert not stored or [s["op"] for s in stored["steps"] if s["op"] in QUERIES] == [s["op"] for s in sums]
    rows = []
    for op in dict.fromkeys(step["op"] for step in sums):
        mine = [step for step in sums if step["op"] == op]
        row = [QUERIES[op], len(mine), *(round(np.mean([s[way] for s in mine])) for way in ("down", "up"))]
        if stored:
            row.append(f"{np.median([s['seconds'] for s in stored['steps'] if s['op'] == op]):.1f}")
        rows.append(row)
    heads = ["query", "times", "bytes to a state", "bytes from it", "seconds over Flower, median"]
    table(pd.DataFrame(rows, columns=heads[: len(rows[0])]))
    say(
        """
        `benchmarks/flower_app` is sent to the SuperLink. It has the analysis for the server, and three lines
        for the nodes, which pass queries on to the state's daemon. Run these commands at the server, once the
        SuperLink runs with TLS and the nodes' keys are registered (`benchmarks/flower_app/README.md`):
        """
    )
    PAGE.add(
        "```console\n$ flower-supernode --root-certificates ca.crt --superlink server.example:8000 \\\n"
        "    --auth-supernode-private-key node-ny \\\n"
        '    --node-config \'site="NY" socket="/run/privinf/ny.sock"\'\n'
        "$ flwr run benchmarks/flower_app tls --stream --run-config \\\n"
        '    \'analysis="glm" trust="secure-sum"\n'
        f'    sites="{",".join(TABLES)}" schema="schema.json" family="binomial"\n'
        f'    formula="{FORMULA}"\n'
        f'    epsilon={EPSILON:g} delta={DELTA:g} out="fit.json"\'\n```'
    )
    if stored:
        flower_numbers(stored)
    say(
        """
        Flower only carries the messages. We do not use Flower's own secure aggregation. In version 1.41 its
        masks have seeds of 28 bits, and clients give a server all the keys to unmask them
        (`docs/mechanisms.md`).
        """
    )


def relative(apart: float) -> str:
    """Return how well numbers agree, in words."""
    return f"to a relative {apart:.0e}" if apart else "to the last bit"


def flower_numbers(stored: dict[str, object]) -> None:
    """Write the results and times of the run over Flower."""
    apart = max(
        float(np.max(np.abs(np.array(stored[what]) / getattr(FIT, what).to_numpy() - 1.0)))
        for what in ("params", "bse")
    )
    assert stored["names"] == list(FIT.params.index)
    agreement = f"Coefficients and standard errors agree with those of one process {relative(apart)}. Each state's ledger"
    if apart >= 1e-8:  # the run over Flower is older than the fit above
        agreement = f"""That run is of an earlier version, whose coefficients agreed with those of one process to the last bit. The fit above
        differs from it by at most {apart:.1%}, since products are now released on centered, orthogonal columns. Each state's ledger"""
    spread = max(abs(mu / stored["mu"] - 1.0) for mu in stored["charged"].values())
    assert spread < 1e-9
    fitting = sum(step["seconds"] for step in stored["steps"])
    say(
        f"""
        `python vignettes/5b_federated_acs.py --flower` ran this on one computer of {stored["cores"]} cores,
        which was busy with other work, with ten daemons, ten nodes, TLS and a key for every node. It took
        {stored["ready"]:.0f} s until all were up, then {fitting:.0f} s for the fit. Nearly all of that was
        Flower's time, since it starts a Python process at a node for every message. {agreement} on disk
        agrees with the report (mu = {stored["mu"]:.4f}) {relative(spread)}.
        """
    )


beginning()
comparison()
say("## 4. One state alone")
alone_section()
trust_section()
cost_section()
least_squares_section()
flower_section()
PAGE.write()
