# %% [markdown]
# # Several sites, one sparse regression: intervals under a joint budget
#
# "Federated learning with differential privacy: estimation and inference" (paper 2): its estimators, its tables
# beside ours, and a regression of wages on several hundred columns that a labour economist would read.
#
# Run it with `python vignettes/4_federated_lasso.py` (under five minutes on one free core). The tables of
# section 3 come from `benchmarks/verify_lasso.py`, whose fits are stored. The ACS data lie in the folder that
# the environment variable PRIVINF_DATA names; VIGNETTE_DRAWS sets the number of draws of section 4. It writes
# the page `4_federated_lasso.md` and the figures beside it. All noise is seeded: simulation, not a private
# release.

# %%
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import math
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from page import BLUE, FAINT, GREEN, INK, ORANGE, RED, Page

import privinf as pi
from privinf.errors import NotAvailableError

warnings.simplefilter("ignore")  # simulation noise and saturated signs are the subject here
PAGE = Page(__file__)
DRAWS = int(os.environ.get("VIGNETTE_DRAWS", "6"))
NORMAL = 1.959963984540054

say, table, figure, printed = PAGE.say, PAGE.table, PAGE.figure, PAGE.printed


def note(what: str) -> None:
    """Say on the terminal how far the run is."""
    print(f"{time.time() - PAGE.started:6.0f} s  {what}", flush=True)


# %% [markdown]
# ## The guarantee

# %%
say("# Several sites, one sparse regression")
say(
    """
    Hospitals, states or firms hold different people and the same several hundred columns. They want a few
    coefficients of one linear regression, with intervals, and nobody outside may learn whether a given
    person's record was as it was. This page is about `DebiasedLasso`, which does that with a server that the
    sites trust, and about `sparse_mean`, which shows what it costs when they do not trust it. It follows
    paper 2, "Federated learning with differential privacy: estimation and inference", and says where it
    departs from it. Every number comes from `vignettes/4_federated_lasso.py`; the noise is seeded, so nothing
    here is a private release.
    """
)
say("## 1. Who trusts whom, and what is counted")
say(
    """
    - **The sites trust the server.** They send it sums over their records without noise; it adds them, adds
      Gaussian noise once, and publishes. The noise is therefore that of all records together, not that of
      every site. A site's records never leave it.
    - **One record is replaced by any other.** What is published must not tell the two data sets apart, at ε
      and δ. The number of records, the columns, their bounds and the response's bounds are public.
    - **Everything that is published counts, jointly**: which columns were picked, the refit, the typical
      size of residuals and columns, the neighbours of each target, one Gram matrix, the slopes and variances
      of the scores, the scores. ε is the price of all of it together, composed in zCDP. Asking for more
      targets does not raise ε: it splits it further.
    - **The paper counts each interval alone.** Many intervals then have a joint ε far above the ε on the label. Section 3 shows both numbers.
    - What is **not** protected: a site from the server, a person with records at two sites, the fact that a
      record is in the data at all (replace-one), and any column that was coded by looking at the rows.
    """
)

# %% [markdown]
# ## A server that nobody trusts

# %%
SIZES, MACHINES, ROWS, SPARSITY, LOCAL = (50, 100, 200, 400, 800), 16_000, 4, 5, (1.0, 4.0)
MEAN = 0.7 / math.sqrt(ROWS)


def untrusted(p: int, draw: int) -> list[dict]:
    """Return errors of one draw at every epsilon: all coordinates, the sparse estimate, no privacy."""
    rng = np.random.default_rng([p, draw])
    truth = np.zeros(p)
    truth[:SPARSITY] = MEAN
    rows = rng.standard_normal((MACHINES, ROWS, p))
    rows[:, :, :SPARSITY] += MEAN
    clear = float(((rows.mean(axis=(0, 1)) - truth)[:SPARSITY] ** 2).sum())
    found = []
    for epsilon in LOCAL:
        r = pi.sparse_mean(rows, epsilon=epsilon, sparsity=SPARSITY, rng=rng, public_seed=draw)
        found.append(
            {
                "p": p, "epsilon": epsilon, "rate": r.rate, "forecast": r.error, "clear": clear,
                "everywhere": float(((r.params - truth) ** 2).mean()) * SPARSITY,
                "sparse": float(((r.sparse_params - truth) ** 2).sum()),
                "hits": len(set(r.selected) & set(range(SPARSITY))),
            }
        )  # fmt: skip
    return found


note("untrusted server")
SIGNS = pd.DataFrame([row for p in SIZES for k in range(DRAWS) for row in untrusted(p, k)])
SIGNS = SIGNS.groupby(["epsilon", "p"], as_index=False).mean()


def untrusted_figure() -> plt.Figure:
    """Draw the errors against p."""
    fig, axes = plt.subplots(1, len(LOCAL), figsize=(9.5, 3.5), sharey=True)
    for ax, epsilon in zip(axes, LOCAL, strict=True):
        rows = SIGNS[SIGNS["epsilon"] == epsilon]
        ax.plot(rows["p"], rows["sparse"], "o-", color=RED, label="sparse estimate: s largest kept")
        ax.plot(rows["p"], rows["everywhere"], "s-", color=BLUE, label="s coordinates, no selection")
        ax.plot(rows["p"], rows["forecast"], ":", color=INK, label="our variance: s (p/m) coth²(ε/2) π/(2n)")
        ax.plot(rows["p"], rows["rate"], "--", color=ORANGE, label="minimax rate: s p/(m n ε²)")
        ax.plot(rows["p"], rows["clear"], color=GREEN, label="no privacy, support known")
        ax.axhline(SPARSITY * MEAN**2, color=FAINT, label="estimate of zero")
        ax.set(xscale="log", yscale="log", title=f"epsilon {epsilon:g} a machine", xlabel="p, coordinates")
        ax.set_xticks(SIZES, [str(p) for p in SIZES], minor=False)
        ax.minorticks_off()
    axes[0].set_ylabel("squared l2 error")
    fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8.5)
    return fig


def untrusted_section() -> None:
    """Write section 4."""
    say("## 4. A server that is not trusted: linear cost in p")
    say(
        f"""
        Now {MACHINES:,} machines with {ROWS} rows each, rows N(μ, I) in p coordinates, {SPARSITY} of them with mean
        {MEAN:.2f}. Each machine answers for **all** its rows at once with one bit: the sign of its mean in one
        coordinate that was drawn publicly, flipped with the chance that makes it ε-differentially private.
        Each coordinate hears from m/p machines only, and the paper's theorem says that nothing does better
        than a squared error of order s p/(m n ε²), sparse or not. A trusted server pays log p.
        """
    )
    figure(
        untrusted_figure(), "untrusted",
        f"Squared error of a sparse mean, {DRAWS} draws a point, machines that answer with one private bit each.",
    )  # fmt: skip
    shown = SIGNS[["epsilon", "p", "everywhere", "forecast", "rate", "sparse", "hits", "clear"]].copy()
    shown["ratio"] = shown["everywhere"] / shown["rate"]
    shown = shown.astype({"p": int})
    shown.columns = [
        "ε", "p", "error of s coordinates", "forecast", "minimax rate", "error of the sparse estimate",
        f"true coordinates kept, of {SPARSITY}", "no privacy", "error / rate",
    ]  # fmt: skip
    table(shown, ".3g")
    slopes = [np.polyfit(np.log(g["p"]), np.log(g["everywhere"]), 1)[0] for _, g in SIGNS.groupby("epsilon")]
    say(
        f"""
        The error of any s coordinates grows like p to the power {slopes[0]:.2f} at ε = {LOCAL[0]:g} and {slopes[1]:.2f} at
        ε = {LOCAL[1]:g} (where estimates reach the end of the range that a sign can tell, errors stop growing), and its
        constant against the rate is the one of the formula: coth²(ε/2) ε² π/2, that is
        {LOCAL[0] ** 2 / math.tanh(LOCAL[0] / 2) ** 2 * math.pi / 2:.1f} and {LOCAL[1] ** 2 / math.tanh(LOCAL[1] / 2) ** 2 * math.pi / 2:.1f}.
        Selection fails before that: when the largest of p noises passes the signal, the sparse estimate keeps
        the wrong coordinates and is no better than zero. `sparse_mean` prints the rate, flags coordinates
        where the sign saturates (√n |μ| above 2) and has exact binomial intervals. It is a demonstration of a
        limit: a regression on hundreds of columns is not for this channel.
        """
    )


# %% [markdown]
# ## Wages

# %%
FOLDER = Path(os.environ.get("PRIVINF_DATA", "../shared/data")) / "acs2024_wages"
# Reference levels: occupation, industry, field of degree: all that are rare; else the code of the commonest.
REFERENCE = {
    "OCCP": 0, "INDP": 0, "FOD1P": 0, "SCHL": 16, "MAR": 1, "RAC1P": 1, "HISP": 1, "CIT": 1, "ENG": 0,
    "COW": 1, "MIL": 4, "JWTRNS": 1, "STATE": 12, "DIS": 2,
}  # fmt: skip
PREFIX = {
    "OCCP": "occ",
    "INDP": "ind",
    "FOD1P": "field",
    "SCHL": "school",
    "RAC1P": "race",
    "HISP": "hispanic",
}
NAMES = {
    "STATE_36": "new_york", "STATE_34": "new_jersey", "STATE_17": "illinois", "race_2": "black",
    "MAR_5": "never_married", "JWTRNS_11": "works_at_home", "DIS_1": "disabled",
}  # fmt: skip
TARGETS = ["new_york", "new_jersey", "illinois", "black", "disabled", "female", "never_married", "works_at_home"]  # fmt: skip
RARE = {
    "occ_3090": "physicians", "occ_10": "chief executives", "occ_440": "other managers",
    "ind_7860": "schools", "ind_8191": "hospitals",
}  # fmt: skip
LEAST_SHARE, EPSILON, DELTA, KEPT = 0.002, 1.0, 1e-6, 80
WAGE = (math.log(1e3), math.log(1e6))


def workers() -> pd.DataFrame:
    """Return people of 25 to 64 who worked full time all year for a wage."""
    people = pd.read_parquet(FOLDER / "data.parquet")
    kept = (people["WKHP"] >= 35) & (people["WKWN"] >= 50) & people["AGEP"].between(25, 64)
    return people[kept & (people["COW"] <= 5)].reset_index(drop=True)


def one_digit(share: float) -> float:
    """Return a share as a published table would give it."""
    return float(f"{share:.1g}")


@dataclass(frozen=True)
class Coded:
    """Columns, and what is public of them: half-widths of bounds around 0, typical sizes, least values, shares."""

    X: pd.DataFrame
    half: dict[str, float]
    size: dict[str, float]
    low: dict[str, float]
    share: dict[str, float]


def coded(people: pd.DataFrame) -> Coded:
    """Return every column less its published mean; fields of degree less their share among graduates."""
    columns, half, size, low, share = {}, {}, {}, {}, {}

    def put(name: str, values: np.ndarray, mean: float, reach: float, sd: float, least: float) -> None:
        name = NAMES.get(name, name)
        columns[name] = (np.asarray(values, dtype=np.float64) - mean).astype(np.float32)
        half[name], size[name], low[name] = reach, sd, least
        share[name] = mean if least == -mean else math.nan

    age = (people["AGEP"].to_numpy(float) - 45.0) / 20.0
    put("age", age, 0.0, 1.0, 0.6, -1.0)
    put("age2", age**2, 0.3, 0.7, 0.3, -0.3)
    put("log_hours", np.log(people["WKHP"].to_numpy(float) / 40.0), 0.05, 0.9, 0.15, -0.2)
    put("female", people["SEX"] == 2, 0.5, 0.5, 0.5, -0.5)
    graduate = (people["FOD1P"] > 0).to_numpy(float)
    for variable, reference in REFERENCE.items():
        shares = people[variable].value_counts(normalize=True).sort_index()
        for code in shares.index[(shares >= LEAST_SHARE) & (shares.index != reference)]:
            here, name = (
                (people[variable] == code).to_numpy(float),
                f"{PREFIX.get(variable, variable)}_{code}",
            )
            q = one_digit(shares[code])
            if variable == "FOD1P":
                among = one_digit(shares[code] / graduate.mean())
                put(name, here - among * graduate, 0.0, 1.0 - among, math.sqrt(q * (1.0 - among)), -among)
            else:
                put(name, here, q, max(q, 1.0 - q), math.sqrt(q * (1.0 - q)), -q)
    return Coded(pd.DataFrame(columns), half, size, low, share)


@dataclass(frozen=True)
class LeastSquares:
    """Least squares without privacy: coefficients of all columns, standard errors (HC0) of some."""

    params: pd.Series
    bse: pd.Series
    r_squared: float


def least_squares(y: np.ndarray, X: pd.DataFrame, wanted: list[str], block: int = 1 << 14) -> LeastSquares:
    """Return least squares with a constant, in blocks of rows."""
    names, p = ["const", *X.columns], X.shape[1] + 1
    values, gram, cross = X.to_numpy(), np.zeros((p, p)), np.zeros(p)

    def blocks():
        for start in range(0, len(y), block):
            part = values[start : start + block].astype(np.float64)
            yield np.column_stack([np.ones(len(part)), part]), y[start : start + block]

    for x, response in blocks():
        gram += x.T @ x
        cross += x.T @ response
    beta, at = np.linalg.solve(gram, cross), [names.index(name) for name in wanted]
    rows, square, meat = np.linalg.inv(gram)[at], 0.0, np.zeros(len(at))
    for x, response in blocks():
        residual = response - x @ beta
        square += float(residual @ residual)
        meat += ((x @ rows.T) ** 2 * residual[:, None] ** 2).sum(axis=0)
    found = 1.0 - square / float(((y - y.mean()) ** 2).sum())
    return LeastSquares(pd.Series(beta, names), pd.Series(np.sqrt(meat), wanted), found)


note("ACS: columns and least squares")
PEOPLE = workers()
WAGES = coded(PEOPLE)
LOG_WAGE = np.log(np.clip(PEOPLE["WAGP"].to_numpy(float), 1e3, 1e6))
COLUMNS = list(WAGES.X.columns)
OLS = least_squares(LOG_WAGE, WAGES.X, [*TARGETS, *RARE])

SCHEMA = pi.Schema({"log_wage": WAGE} | {name: (-WAGES.half[name], WAGES.half[name]) for name in COLUMNS})
MODEL = pi.DebiasedLasso.from_formula(
    f"log_wage ~ {' + '.join(COLUMNS)}",
    WAGES.X.assign(log_wage=LOG_WAGE, state=PEOPLE["STATE"]),
    schema=SCHEMA,
    machines="state",
    x_scale=[1.0, *(WAGES.size[name] for name in COLUMNS)],
)


def array_model(*, tight: bool, sized: bool) -> pi.DebiasedLasso:
    """Return the model from arrays: bounds as tight as a codebook's or around 0, sizes declared or not."""
    X = WAGES.X.copy()
    X.insert(0, "const", np.float32(1.0))
    bounds = [
        (WAGES.low[n], WAGES.low[n] + 1.0) if tight and math.isfinite(WAGES.share[n]) else (-WAGES.half[n], WAGES.half[n])
        for n in COLUMNS
    ]  # fmt: skip
    scale = [1.0, *(WAGES.size[name] for name in COLUMNS)] if sized else None
    return pi.DebiasedLasso(LOG_WAGE, X, bounds=bounds, y_bounds=WAGE, x_scale=scale)


def fitted(model: pi.DebiasedLasso, epsilon: float, sparsity: int, targets: list[str]):
    """Return one fit, or None where it says that the noise leaves no estimate."""
    try:
        return model.fit(
            epsilon=epsilon, delta=DELTA, sparsity=sparsity, targets=targets, precision_sparsity=8, rng=0
        )
    except NotAvailableError:
        return None


note("ACS: one fit at epsilon 1, by formula, and one without noise")
FIT = fitted(MODEL, EPSILON, KEPT, TARGETS)
JOINT = FIT.simultaneous()
ARRAYS = array_model(tight=False, sized=True)
CLEAR = fitted(ARRAYS, math.inf, KEPT, TARGETS)
note("ACS: how many columns, how much privacy")
GRID_EPSILONS, GRID_SPARSITIES = (0.1, 0.3, 1.0), (20, 40, 80)
GRID = {(e, s): fitted(ARRAYS, e, s, TARGETS) for e in GRID_EPSILONS for s in GRID_SPARSITIES}
note("ACS: rare columns, other codings")
SELDOM = {e: fitted(ARRAYS, e, KEPT, list(RARE)) for e in (EPSILON, math.inf)}
CODINGS = {
    "0/1, bounds (0, 1), sizes not declared": array_model(tight=True, sized=False),
    "0/1, bounds (0, 1), sizes of published shares": array_model(tight=True, sized=True),
    "less published shares, bounds around 0, sizes not declared": array_model(tight=False, sized=False),
}
CODED_FITS = {name: fitted(model, EPSILON, KEPT, TARGETS) for name, model in CODINGS.items()}
CODED_FITS["less published shares, bounds around 0, sizes of published shares"] = GRID[EPSILON, KEPT]
note("page")


def misses(fit, names: list[str] = TARGETS) -> np.ndarray:
    """Return the distance of each target from least squares, in the fit's standard errors."""
    return ((fit.params[names] - OLS.params[names]) / fit.bse[names]).to_numpy()


def ci(value: float, half: float, digits: int = 3) -> str:
    """Return an estimate with its interval."""
    return f"{value:.{digits}f} ({value - half:.{digits}f} to {value + half:.{digits}f})"


def wages_figure() -> plt.Figure:
    """Draw the intervals of the targets, and what the number of columns kept does to two of them."""
    fig, axes = plt.subplots(1, 3, figsize=(9.5, 4.0), width_ratios=[2.2, 1.0, 1.0])
    ax, height = axes[0], np.arange(len(TARGETS))[::-1]
    for shift, label, color, values, half in (
        (0.27, "least squares, HC0, no privacy", INK, OLS.params[TARGETS], NORMAL * OLS.bse[TARGETS]),
        (0.09, "same method, no noise", GREEN, CLEAR.params, NORMAL * CLEAR.bse),
        (-0.09, f"ε = {EPSILON:g}", BLUE, FIT.params, NORMAL * FIT.bse),
        (-0.27, f"ε = {EPSILON:g}, simultaneous", RED, FIT.params, JOINT.critical_value * FIT.bse),
    ):
        ax.errorbar(values, height + shift, xerr=half, fmt="o", ms=3, color=color, label=label, capsize=2)
    ax.axvline(0.0, color=FAINT)
    ax.set_yticks(height, [name.replace("_", " ") for name in TARGETS])
    ax.set(title="difference of log wages", xlabel=f"{KEPT} of {len(COLUMNS)} columns kept")
    fig.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8.5)
    for ax, name in zip(axes[1:], ("new_york", "female"), strict=True):
        fits = [GRID[EPSILON, s] for s in GRID_SPARSITIES]
        half = [NORMAL * f.bse[name] for f in fits]
        ax.errorbar(GRID_SPARSITIES, [f.params[name] for f in fits], yerr=half, fmt="o-", ms=3, color=BLUE, capsize=2)  # fmt: skip
        ax.axhline(OLS.params[name], color=INK, ls="--")
        ax.set(title=f"{name.replace('_', ' ')}, ε = {EPSILON:g}", xlabel="columns kept")
        ax.set_xticks(GRID_SPARSITIES)
    return fig


def wages_table() -> pd.DataFrame:
    """Return the targets with all their intervals."""
    joint = JOINT.conf_int()
    rows = []
    for name in TARGETS:
        b, se = FIT.params[name], FIT.bse[name]
        rows.append(
            {
                "": name.replace("_", " "),
                "published share": "-" if math.isnan(WAGES.share[name]) else f"{WAGES.share[name]:g}",
                "least squares (HC0)": ci(OLS.params[name], NORMAL * OLS.bse[name]),
                "no noise": ci(CLEAR.params[name], NORMAL * CLEAR.bse[name]),
                f"ε = {EPSILON:g}": ci(b, NORMAL * se),
                "simultaneous": f"{joint.loc[name].iloc[0]:.3f} to {joint.loc[name].iloc[1]:.3f}",
                "width / least squares": f"{se / OLS.bse[name]:.2f}",
            }
        )
    return pd.DataFrame(rows)


def grid_table() -> pd.DataFrame:
    """Return what epsilon and the number of columns do."""
    rows = []
    for (epsilon, kept), fit in GRID.items():
        row = {"ε": epsilon, "columns kept": kept}
        if fit is None:
            rows.append(row | {"typical residual": "refused: no estimate", "new york": "", "female": "", "disabled": "", "width / least squares": ""})  # fmt: skip
            continue
        found = {n.replace("_", " "): ci(fit.params[n], NORMAL * fit.bse[n], 2) for n in ("new_york", "female", "disabled")}  # fmt: skip
        width = float((fit.bse[TARGETS] / OLS.bse[TARGETS]).mean())
        rows.append(row | {"typical residual": f"{fit.residual_scale:.3f}"} | found | {"width / least squares": f"{width:.2f}"})  # fmt: skip
    return pd.DataFrame(rows)


def coding_table() -> pd.DataFrame:
    """Return what the coding of the columns does."""
    rows = []
    for name, fit in CODED_FITS.items():
        if fit is None:
            continue
        rare = sum(WAGES.share.get(n, 1.0) < 0.01 for n in fit.selected)
        away = misses(fit)
        rows.append([name, f"{fit.residual_scale:.4f}", rare, int((abs(away) < NORMAL).sum()), f"{np.sqrt(np.mean(away**2)):.1f}"])  # fmt: skip
    names = ["columns", "typical residual", f"rare (under 1%) among the {KEPT}", f"of {len(TARGETS)} targets within 1.96 se of least squares", "rms miss, se"]  # fmt: skip
    return pd.DataFrame(rows, columns=names)


def rare_table() -> pd.DataFrame:
    """Return rare columns as targets."""
    rows = []
    for name, label in RARE.items():
        private, clear = (SELDOM[e] for e in (EPSILON, math.inf))
        rows.append(
            {
                "": label, "published share": f"{WAGES.share[name]:g}",
                "picked": "yes" if name in private.selected else "no",
                "least squares (HC0)": ci(OLS.params[name], NORMAL * OLS.bse[name], 2),
                "no noise": ci(clear.params[name], NORMAL * clear.bse[name], 2),
                f"ε = {EPSILON:g}": ci(private.params[name], NORMAL * private.bse[name], 2),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def wages_section() -> None:
    """Write section 5."""
    premia = ["new_york", "new_jersey", "illinois"]
    say("## 5. Wages: which gaps survive several hundred controls?")
    say(
        f"""
        A labour economist asks what separates the wages of comparable people: how much more the same worker
        earns in New York, New Jersey or Illinois than in Florida, and how large the gaps by sex, race,
        disability, marriage and place of work are once occupation, industry, field of degree, schooling and
        the rest are held fixed. American Community Survey 2024, ten states; {len(PEOPLE):,} people of 25 to 64 who
        worked full time all year for a wage. Each state is a site. {len(COLUMNS)} columns: {sum(n.startswith("occ_") for n in COLUMNS)} occupations, {sum(n.startswith("ind_") for n in COLUMNS)}
        industries, {sum(n.startswith("field_") for n in COLUMNS)} fields of degree, and schooling, marriage, race, origin, citizenship, English,
        sector, service, way to work, state, disability, age, hours. Least squares without privacy explains
        {OLS.r_squared:.0%} of the variance of log wages. The eight targets are named in advance and share **one joint
        budget** of ε = {EPSILON:g}, δ = {DELTA:g}.

        **What is public.** Bounds and codes are the codebook's. That an occupation has {LEAST_SHARE:.1%} of the workers or
        more, and its share to one digit, is in the Census Bureau's published tables, and is used as such:
        rarer codes are in the reference group, each indicator has its share subtracted (then 0 is its typical
        value and the middle of its declared bounds), and √(q(1 - q)) is declared as its size. (This page takes
        the shares from the file; a real analysis takes them from the tables.)

        ```python
        schema = pi.Schema({{"log_wage": (log(1e3), log(1e6)), "new_york": (-0.8, 0.8), ...}})
        model = pi.DebiasedLasso.from_formula(formula, people, schema=schema, machines="state", x_scale=sizes)
        fit = model.fit(epsilon={EPSILON:g}, delta={DELTA:g}, sparsity={KEPT}, precision_sparsity=8, targets=[...])
        fit.simultaneous()
        ```
        """
    )
    printed(FIT.summary())
    figure(
        wages_figure(), "wages",
        f"""
        Left: the targets with 95% intervals. Middle and right: two of them against the number of columns
        kept (each point a fit with the whole budget); dashed, least squares on all {len(COLUMNS)} columns.
        """,
    )  # fmt: skip
    table(wages_table())
    away, bias = pd.Series(misses(FIT), TARGETS), pd.Series(misses(CLEAR), TARGETS)
    inside = away.index[abs(away) < NORMAL]
    far = away.index[abs(away) > 4.0]
    say(
        f"""
        **Privacy is not the problem here.** With {len(PEOPLE):,} people, ε = {EPSILON:g} and eight targets the intervals are
        {float((FIT.bse[TARGETS] / OLS.bse[TARGETS]).min()):.2f} to {float((FIT.bse[TARGETS] / OLS.bse[TARGETS]).max()):.2f} times as wide as those of least squares. Below 1 is no error: the residuals of
        log wages have heavy tails, and clipping them makes a robust estimate, as Huber's does.

        **Sparsity is.** Wages depend a little on hundreds of occupations and industries. The intervals of
        {", ".join(n.replace("_", " ") for n in inside) or "no target"} hold least squares on all columns; {", ".join(n.replace("_", " ") for n in far)} miss
        it by {abs(away[far]).min():.0f} to {abs(away[far]).max():.0f} standard errors, and so does the same method without noise
        (by {abs(bias[far]).min():.0f} to {abs(bias[far]).max():.0f}): {KEPT} columns and eight neighbours do not hold fixed what {len(COLUMNS)} do, and
        men and women, or those who work at home, differ in occupations that were not picked. Regional premia
        are nearly uncorrelated with them ({", ".join(f"{n.replace('_', ' ')} {away[n]:+.1f}" for n in premia)} standard errors). An interval after sparse
        selection is an interval for the coefficient **if few columns matter**; nothing that was released can
        tell that they do not. Keeping more columns brings the gap by sex nearer (right panel), as far as the
        budget allows:
        """
    )
    table(grid_table())
    broken = [key for key, fit in GRID.items() if fit is not None and fit.residual_scale > 1.0]
    refused = [key for key, fit in GRID.items() if fit is None]
    say(
        f"""
        The typical residual is released with every fit (`residual_scale`) and is the thing to read first.
        {f"With {', '.join(f'{s} columns at ε = {e:g}' for e, s in broken)} it is far above the response's own spread of {LOG_WAGE.std():.2f}: the noise has broken the refit, and the intervals beside it, narrow as some are, mean nothing." if broken else ""}
        {f"With {', '.join(f'{s} columns at ε = {e:g}' for e, s in refused)} the fit refuses." if refused else ""}
        Where ε is small keep few columns, and accept that fewer are held fixed. At ε = {GRID_EPSILONS[0]:g} with {GRID_SPARSITIES[0]} columns
        {hidden()}.
        """
    )
    say("**How to code the columns** (one fit each at the same ε):")
    table(coding_table())
    say(
        """
        A constant in the fit matters most: without one, the response and all columns are centred at the
        middle of their bounds, which for 0/1 columns is ½ and for nobody's data the mean. Declared sizes make
        the ranking one of standardised columns, and clipping then keeps rare ones out; undeclared sizes let
        them in. Neither coding is better for every target.
        """
    )
    say("**Rare columns as targets** (one fit):")
    table(rare_table())
    say(rare_verdict())


def hidden() -> str:
    """Say which effects the noise hides at the smallest epsilon."""
    fit = GRID[GRID_EPSILONS[0], GRID_SPARSITIES[0]]
    if fit is None:
        return "there is no estimate at all"
    covered = [n for n in TARGETS if abs(fit.params[n]) < fit.simultaneous().critical_value * fit.bse[n]]
    wide = (fit.bse[TARGETS] / OLS.bse[TARGETS]).sort_values()
    names = ", ".join(n.replace("_", " ") for n in covered)
    first = f"simultaneous intervals of {names} hold zero: the noise hides them" if covered else "no simultaneous interval holds zero"  # fmt: skip
    return f"{first}; that of {wide.index[-1].replace('_', ' ')} is {wide.iloc[-1]:.1f} times as wide as without privacy"


def rare_verdict() -> str:
    """Say how the rare targets did."""
    private, names = SELDOM[EPSILON], list(RARE)
    away = pd.Series(((private.params - OLS.params[names]) / private.bse[names]), names)
    clear = pd.Series(((SELDOM[math.inf].params - OLS.params[names]) / SELDOM[math.inf].bse[names]), names)
    lost = [n for n in names if n not in private.selected]
    text = f"""
        An indicator with share q is √((1 - q)/q) of its standard deviations away from zero where it is one:
        {math.sqrt(0.992 / 0.008):.0f} for physicians. The score is clipped at about three, so that few people carry the answer and
        their scores are cut. {"A rare column that was picked starts from its refitted coefficient and is corrected little." if len(lost) < len(names) else ""}
    """
    if lost and max(abs(away[lost])) > 4.0:
        text += f"""
        One that was not picked starts from zero, and there the correction fails: {", ".join(f"{RARE[n]} miss by {abs(away[n]):.0f} standard errors (without noise {abs(clear[n]):.0f})" for n in lost)}.
        Do not read an interval of a column with a share below one in ten that is not in `fit.selected`.
        """
    return text


note("page")
untrusted_section()
wages_section()
PAGE.write()
