# %% [markdown]
# # Wages: which gaps survive several hundred controls?
#
# A regression of log wages on 360 columns, with ten states as sites and eight targets under one joint budget.
# It shows which columns a sparse regression controls for, and which not. The method is that of
# `4_federated_lasso.py`.
#
# Run it with `python vignettes/4b_wages.py` (long: fits of 360,000 rows). The ACS data are in the folder that
# the environment variable PRIVINF_DATA names. It writes the page `4b_wages.md` and its figure. All noise is
# seeded: simulation, not a private release.

# %%
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import math
import time
import warnings
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from page import BLUE, FAINT, GREEN, INK, RED, Page, few

import privinf as pi
from privinf.errors import NotAvailableError
from studies.data import acs_wages

warnings.simplefilter("ignore")  # simulation noise is the subject here
PAGE = Page(__file__)
NORMAL = 1.959963984540054

say, table, figure, printed = PAGE.say, PAGE.table, PAGE.figure, PAGE.printed


def note(what: str) -> None:
    """Say on the terminal how far the run is."""
    print(f"{time.time() - PAGE.started:6.0f} s  {what}", flush=True)


def ci(value: float, half: float, digits: int = 3) -> str:
    """Return an estimate with its interval."""
    return f"{value:.{digits}f} ({value - half:.{digits}f} to {value + half:.{digits}f})"


# %%
TITLE = "Wages: which gaps survive several hundred controls?"
# Reference levels: occupation, industry, field of degree: all that are rare; else the code of the commonest.
REFERENCE = {
    "OCCP": 0,
    "INDP": 0,
    "FOD1P": 0,
    "SCHL": 16,
    "MAR": 1,
    "RAC1P": 1,
    "HISP": 1,
    "CIT": 1,
    "ENG": 0,
    "COW": 1,
    "MIL": 4,
    "JWTRNS": 1,
    "STATE": 12,
    "DIS": 2,
}
PREFIX = {
    "OCCP": "occ",
    "INDP": "ind",
    "FOD1P": "field",
    "SCHL": "school",
    "RAC1P": "race",
    "HISP": "hispanic",
}
NAMES = {
    "STATE_36": "new_york",
    "STATE_34": "new_jersey",
    "STATE_17": "illinois",
    "race_2": "black",
    "MAR_5": "never_married",
    "JWTRNS_11": "works_at_home",
    "DIS_1": "disabled",
}
TARGETS = [
    "new_york",
    "new_jersey",
    "illinois",
    "black",
    "disabled",
    "female",
    "never_married",
    "works_at_home",
]
RARE = {
    "occ_3090": "physicians",
    "occ_10": "chief executives",
    "occ_440": "other managers",
    "ind_7860": "schools",
    "ind_8191": "hospitals",
}
LEAST_SHARE, EPSILON, DELTA, KEPT = 0.002, 1.0, 1e-6, 80
WAGE = (math.log(1e3), math.log(1e6))


def workers() -> pd.DataFrame:
    """Return people of 25 to 64 who worked full time all year for a wage."""
    people = acs_wages.people()
    kept = (people["WKHP"] >= 35) & (people["WKWN"] >= 50) & people["AGEP"].between(25, 64)
    return few(people[kept & (people["COW"] <= 5)].reset_index(drop=True), 60_000)


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

    def put(name: str, values: np.ndarray, mean: float, half_width: float, sd: float, least: float) -> None:
        name = NAMES.get(name, name)
        columns[name] = (np.asarray(values, dtype=np.float64) - mean).astype(np.float32)
        half[name], size[name], low[name] = half_width, sd, least
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
PEOPLE = PAGE.needed(workers, TITLE)
WAGES = coded(PEOPLE)
LOG_WAGE = np.log(np.clip(PEOPLE["WAGP"].to_numpy(float), 1e3, 1e6))
COLUMNS = list(WAGES.X.columns)
OLS = least_squares(LOG_WAGE, WAGES.X, [*TARGETS, *RARE])

SCHEMA = pi.Schema({"log_wage": WAGE} | {name: (-WAGES.half[name], WAGES.half[name]) for name in COLUMNS})
MODEL = pi.DebiasedLasso.from_formula(
    f"log_wage ~ {' + '.join(COLUMNS)}",
    WAGES.X.assign(log_wage=LOG_WAGE, state=PEOPLE["STATE"]),
    schema=SCHEMA,
    sites="state",
    x_scale=[1.0, *(WAGES.size[name] for name in COLUMNS)],
)


def array_model(*, tight: bool, sized: bool, constant: bool = True) -> pi.DebiasedLasso:
    """Return the model from arrays: bounds as tight as a codebook's or around 0, sizes declared or not."""
    X = pi.add_constant(WAGES.X) if constant else WAGES.X
    bounds = [
        (WAGES.low[n], WAGES.low[n] + 1.0)
        if tight and math.isfinite(WAGES.share[n])
        else (-WAGES.half[n], WAGES.half[n])
        for n in COLUMNS
    ]
    scale = [*[1.0] * constant, *(WAGES.size[name] for name in COLUMNS)] if sized else None
    return pi.DebiasedLasso(LOG_WAGE, X, bounds=bounds, y_bounds=WAGE, x_scale=scale)


def fitted(model: pi.DebiasedLasso, epsilon: float, sparsity: int, targets: list[str], **options):
    """Return one fit, or None where the noise hides a target."""
    fit = model.fit(epsilon=epsilon, delta=DELTA, sparsity=sparsity, targets=targets, rng=0, **options)
    return None if fit.hidden_targets else fit


note("ACS: one fit at epsilon 1, by formula, and one without noise")
FIT = fitted(MODEL, EPSILON, KEPT, TARGETS)
JOINT = FIT.simultaneous()
ARRAYS = array_model(tight=False, sized=True)
CLEAR = fitted(ARRAYS, math.inf, KEPT, TARGETS)
note("ACS: how many columns, how much privacy")
GRID_EPSILONS, GRID_SPARSITIES = (0.2, 1.0), (20, 40, 80)
GRID = {(e, s): fitted(ARRAYS, e, s, TARGETS) for e in GRID_EPSILONS for s in GRID_SPARSITIES}
note("ACS: rare columns, other codings")
SELDOM = {e: fitted(ARRAYS, e, KEPT, list(RARE)) for e in (EPSILON, math.inf)}
CODINGS = {
    "0/1, bounds (0, 1)": {"tight": True, "sized": False},
    "less published shares, bounds around 0": {"tight": False, "sized": False},
    "less published shares, bounds around 0, no constant": {
        "tight": False,
        "sized": False,
        "constant": False,
    },
    "0/1, bounds (0, 1), means released": {"tight": True, "sized": False, "center": "released"},
    "0/1, bounds (0, 1), means released, no constant": {
        "tight": True,
        "sized": False,
        "constant": False,
        "center": "released",
    },
}


def coding_fit(*, center: str = "declared", **coding: bool):
    """Return the fit of a coding; its model is not kept, for it holds a copy of the rows."""
    return fitted(array_model(**coding), EPSILON, KEPT, TARGETS, center=center)


CODED_FITS = {name: coding_fit(**coding) for name, coding in CODINGS.items()}
CODED_FITS["less published shares, bounds around 0, sizes declared"] = GRID[EPSILON, KEPT]
note("page")


def misses(fit, names: list[str] = TARGETS) -> np.ndarray:
    """Return the distance of each target from least squares, in the fit's standard errors."""
    return ((fit.params[names] - OLS.params[names]) / fit.bse[names]).to_numpy()


def wages_figure() -> plt.Figure:
    """Draw the intervals of the targets, and what the number of columns kept does to two of them."""
    fig, axes = plt.subplots(1, 3, figsize=(9.5, 4.0), width_ratios=[2.2, 1.0, 1.0])
    ax, height = axes[0], np.arange(len(TARGETS))[::-1]
    for shift, label, color, marker, values, half in (
        (0.27, "least squares, HC0, no privacy", INK, "o", OLS.params[TARGETS], NORMAL * OLS.bse[TARGETS]),
        (0.09, "same method, no noise", GREEN, "^", CLEAR.params, NORMAL * CLEAR.bse),
        (-0.09, f"ε = {EPSILON:g}", BLUE, "s", FIT.params, NORMAL * FIT.bse),
        (-0.27, f"ε = {EPSILON:g}, simultaneous", RED, "D", FIT.params, JOINT.critical_value * FIT.bse),
    ):
        ax.errorbar(values, height + shift, xerr=half, fmt=marker, ms=4, color=color, label=label, capsize=2)
    ax.axvline(0.0, color=FAINT)
    ax.set_yticks(height, [name.replace("_", " ") for name in TARGETS])
    ax.set(title="difference of log wages", xlabel=f"{KEPT} of {len(COLUMNS)} columns kept")
    fig.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8.5)
    for ax, name in zip(axes[1:], ("new_york", "female"), strict=True):
        fits = [GRID[EPSILON, s] for s in GRID_SPARSITIES]
        half = [NORMAL * f.bse[name] for f in fits]
        ax.errorbar(
            GRID_SPARSITIES, [f.params[name] for f in fits], yerr=half, fmt="o-", ms=3, color=BLUE, capsize=2
        )
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
        row = {"ε": f"{epsilon:g}", "columns kept": kept}
        if fit is None:
            rows.append(
                row
                | {
                    "typical residual": "refused: no estimate",
                    "new york": "",
                    "female": "",
                    "disabled": "",
                    "width / least squares": "",
                }
            )
            continue
        found = {
            n.replace("_", " "): ci(fit.params[n], NORMAL * fit.bse[n], 2)
            for n in ("new_york", "female", "disabled")
        }
        width = float((fit.bse[TARGETS] / OLS.bse[TARGETS]).mean())
        rows.append(
            row
            | {"typical residual": typical_residual(fit)}
            | found
            | {"width / least squares": f"{width:.2f}"}
        )
    return pd.DataFrame(rows)


def typical_residual(fit: Any, digits: int = 3) -> str:
    """Return the typical size of the residuals, or its bounds where the noise hides it."""
    low, high = fit.residual_scale_bounds
    try:
        return f"{fit.residual_scale:.{digits}f}"
    except NotAvailableError:
        return f"{low:.2g} to {high:.2g}"


def coding_table() -> pd.DataFrame:
    """Return what the coding of the columns does."""
    rows = []
    for name, fit in CODED_FITS.items():
        if fit is None:
            rows.append([name, "refused", "", "", ""])
            continue
        rare = sum(WAGES.share.get(n, 1.0) < 0.01 for n in fit.selected)
        away = misses(fit)
        rows.append(
            [
                name,
                typical_residual(fit, 4),
                rare,
                int((abs(away) < NORMAL).sum()),
                f"{np.sqrt(np.mean(away**2)):.1f}",
            ]
        )
    names = [
        "columns",
        "typical residual",
        f"rare (under 1%) among the {KEPT}",
        f"of {len(TARGETS)} targets within 1.96 se of least squares",
        "rms miss, se",
    ]
    return pd.DataFrame(rows, columns=names)


def rare_table() -> pd.DataFrame:
    """Return rare columns as targets."""
    rows = []
    for name, label in RARE.items():
        private, clear = (SELDOM[e] for e in (EPSILON, math.inf))
        rows.append(
            {
                "": label,
                "published share": f"{WAGES.share[name]:g}",
                "selected": "yes" if name in private.selected else "no",
                "least squares (HC0)": ci(OLS.params[name], NORMAL * OLS.bse[name], 2),
                "no noise": ci(clear.params[name], NORMAL * clear.bse[name], 2),
                f"ε = {EPSILON:g}": ci(private.params[name], NORMAL * private.bse[name], 2),
            }
        )
    return pd.DataFrame(rows)


def wages_section() -> None:
    """Write the page."""
    premia = ["new_york", "new_jersey", "illinois"]
    say(f"# {TITLE}")
    say(
        f"""
        How much more does the same worker earn in New York, New Jersey or Illinois than in Florida? How large
        are the wage gaps by sex, race, disability, marriage and place of work, controlling for occupation,
        industry, field of degree, schooling and other columns? The data are from the American Community
        Survey 2024, ten states: {len(PEOPLE):,} people of 25 to 64 who worked full time all year for a wage.
        Each state is a site. The {len(COLUMNS)} columns are {sum(n.startswith("occ_") for n in COLUMNS)}
        occupations, {sum(n.startswith("ind_") for n in COLUMNS)} industries,
        {sum(n.startswith("field_") for n in COLUMNS)} fields of degree, and the following: schooling,
        marriage, race, origin, citizenship, English, sector, service, way to work, state, disability, age,
        hours. Least squares without privacy explains {OLS.r_squared:.0%} of the variance of log wages. The
        eight targets are named in advance and share **one joint budget** of ε = {EPSILON:g}, δ = {DELTA:g}.

        **Public facts.** Bounds and codes are the codebook's. The Census Bureau's published tables state
        which occupations have {LEAST_SHARE:.1%} of the workers or more, and their shares to one digit.
        These facts are therefore public.
        Rarer codes are in the reference group. Each indicator has its share subtracted, so
        that 0 is its typical value and the middle of its declared bounds, and √(q(1 - q)) is declared as its
        size. (This page takes the shares from the file; a real analysis takes them from the tables.)

        ```python
        bounds = {{"log_wage": (log(1e3), log(1e6)), "new_york": (-0.8, 0.8), ...}}
        model = pi.DebiasedLasso.from_formula(
            formula, people, schema=pi.Schema(bounds), sites="state", x_scale=sizes
        )
        fit = model.fit(epsilon={EPSILON:g}, delta={DELTA:g}, sparsity={KEPT}, targets=[...])
        fit.simultaneous()
        ```
        """
    )
    printed(FIT.summary())
    figure(
        wages_figure(),
        "wages",
        f"""
        Left: the targets with 95% intervals. Middle and right: two of them against the number of selected
        columns (each point a fit with the total budget). Dashed: least squares on all {len(COLUMNS)} columns.
        """,
    )
    table(wages_table())
    away, bias = pd.Series(misses(FIT), TARGETS), pd.Series(misses(CLEAR), TARGETS)
    inside = away.index[abs(away) < NORMAL]
    far = away.index[abs(away) >= NORMAL] if len(inside) < len(away) else away.index[[abs(away).argmax()]]
    test, neighbours = FIT.missed_column_test, FIT.explained_shares()["neighbours"]
    say(
        f"""
        **Privacy is not the problem here.** With {len(PEOPLE):,} people, ε = {EPSILON:g} and eight targets
        the intervals are {float((FIT.bse[TARGETS] / OLS.bse[TARGETS]).min()):.2f} to
        {float((FIT.bse[TARGETS] / OLS.bse[TARGETS]).max()):.2f} times as wide as those of least squares.
        {FIT.score_tail.beyond:.1%} of the scores are beyond the clipping threshold, and the tail is included
        with its released size.

        **Sparsity is the problem.** Wages depend
        a little on hundreds of occupations and industries. The intervals of
        {", ".join(n.replace("_", " ") for n in inside) or "no target"} cover least squares on all columns.
        Those of {", ".join(n.replace("_", " ") for n in far)} are {abs(away[far]).min():.0f} to
        {abs(away[far]).max():.0f} standard errors away from it, and without noise the same method is
        {abs(bias[far]).min():.0f} to {abs(bias[far]).max():.0f} away. {KEPT} columns and up to
        {neighbours.max()} neighbors of each target do not control for all {len(COLUMNS)} columns, and these
        groups differ in occupations that were not selected. The regional premia are near once all states are
        selected ({", ".join(f"{n.replace('_', ' ')} {away[n]:+.1f}" for n in premia)} standard errors). With
        fewer columns the reference is Florida **and every state that was not selected** (middle panel).

        An interval after sparse selection is an interval for the coefficient **if few columns matter**. The
        fit tests this. Of the {test.columns} columns outside it, {test.column.replace("_", " ")} is the
        strongest, p = {test.pvalue:.2g}, and
        {"the intervals come with a warning" if test.pvalue < 0.05 else "the summary states how far an undetected column could move an interval"}.
        Results by budget and number of columns:
        """
    )
    table(grid_table())
    broken = [key for key, fit in GRID.items() if fit is not None and fit.residual_scale_bounds[0] > 1.0]
    refused = [key for key, fit in GRID.items() if fit is None]
    say(
        f"""
        The typical residual is released with every fit (`residual_scale`) and should be read first.
        {f"With {', '.join(f'{s} columns at ε = {e:g}' for e, s in broken)} it is far above the response's own spread of {LOG_WAGE.std():.2f}: the refit failed because of the noise, and the intervals next to it do not cover. Their summary marks them as weak, and every test of them warns." if broken else ""}
        {f"With {', '.join(f'{s} columns at ε = {e:g}' for e, s in refused)} the fit refuses." if refused else ""}
        Where ε is small, select few columns, and accept fewer controls. At ε = {GRID_EPSILONS[0]:g} with
        {GRID_SPARSITIES[0]} columns {hidden()}.
        """
    )
    say("**How to code the columns** (one fit each at the same ε):")
    table(coding_table())
    say(
        """
        Without a constant the response is centered at the middle of its bounds, which is not the mean of any
        group. The intervals are then wrong unless the fit releases the means: `center="released"`, for a
        small share of the budget and without any published share. Columns whose typical value is not the
        middle of their bounds do worse where the score is clipped. With declared sizes the ranking is one of
        standardized columns, and their clipping excludes rare ones. No coding corrects the bias from omitted
        columns.
        """
    )
    say("**Rare columns as targets** (one fit):")
    if SELDOM[EPSILON] is None:
        say(
            f"At ε = {EPSILON:g} the fit is refused: the noise is too large for their estimates with {len(PEOPLE):,} people."
        )
        return
    table(rare_table())
    say(rare_verdict())


def hidden() -> str:
    """Return in words which effects are undetected at the smallest epsilon."""
    fit = GRID[GRID_EPSILONS[0], GRID_SPARSITIES[0]]
    if fit is None:
        return "there is no estimate at all"
    covered = [n for n in TARGETS if abs(fit.params[n]) < fit.simultaneous().critical_value * fit.bse[n]]
    wide = (fit.bse[TARGETS] / OLS.bse[TARGETS]).sort_values()
    names = ", ".join(n.replace("_", " ") for n in covered)
    first = (
        f"simultaneous intervals of {names} contain zero because of the noise"
        if covered
        else "no simultaneous interval contains zero"
    )
    return f"{first}; that of {wide.index[-1].replace('_', ' ')} is {wide.iloc[-1]:.1f} times as wide as without privacy"


def rare_verdict() -> str:
    """Return the results of the rare targets in words."""
    private, names = SELDOM[EPSILON], list(RARE)
    away = pd.Series(((private.params - OLS.params[names]) / private.bse[names]), names)
    clear = pd.Series(((SELDOM[math.inf].params - OLS.params[names]) / SELDOM[math.inf].bse[names]), names)
    lost = [n for n in names if n not in private.selected]
    widest = (private.bse[names] / OLS.bse[names]).sort_values()
    text = f"""
        An indicator with share q is √((1 - q)/q) of its standard deviations away from zero where it is one:
        {math.sqrt(0.992 / 0.008):.0f} for physicians. The score is clipped at about three. Few people
        determine the estimate, and their scores are clipped, so intervals of rare columns are wide:
        {widest.iloc[-1]:.1f} times those of least squares for {RARE[widest.index[-1]]}.
        {f"A rare column that was selected starts from its refitted coefficient and is corrected little; {', '.join(RARE[n] for n in lost)} start from zero." if lost else ""}
    """
    far = [n for n in names if abs(away[n]) > 4.0]
    if far:
        text += f"""
        Distance from least squares in standard errors, without noise in brackets:
        {", ".join(f"{RARE[n]} {away[n]:+.1f} ({clear[n]:+.1f})" for n in far)}. Where both differ alike, the
        reason is the columns that were not selected; each fit selects its own.
        """
    return text


wages_section()
PAGE.write()
