"""Widths that `privinf.plan_study` predicts, beside those of fits to rows that it never saw.

    python benchmarks/planner.py                 # 10 to 40 minutes of one core ->
    benchmarks/results/planner.md python benchmarks/planner.py --fits 24       # prints, and writes no page

Rows are drawn with replacement from two real tables (statsmodels' fair and randhie), and from two laws that
are not the planner's. The planner gets what a code book prints: means, sds and correlations to two digits,
R2.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import statsmodels.api as sm
from tqdm import tqdm

import privinf as pi
from privinf.errors import NotAvailableError

OUT = Path(__file__).parent / "results" / "planner.md"
DELTA = 1e-6
LONG, LONG_FITS = 100_000, 60  # people, and fits there of the table of answers


@dataclass(frozen=True)
class Design:
    """Rows to be drawn, what is declared of them, and what the planner is told.

    Attributes
    ----------
    draw : callable
        ``(n, rng)`` -> DataFrame.
    formula, logit : str
        The linear and the logistic model.
    guesses, odds : Guesses
        Code books; of the logistic model with its coefficients, as an older study has them, in place of
        correlations with the response.
    """

    draw: Callable[[int, np.random.Generator], pd.DataFrame]
    columns: dict[str, Any]
    formula: str
    logit: str
    guesses: pi.Guesses
    odds: pi.Guesses
    parties: dict[str, list[str]]


@cache
def fair() -> pd.DataFrame:
    table = sm.datasets.fair.load_pandas().data
    return table.assign(affair=(table.affairs > 0).astype(float))


@cache
def rand() -> pd.DataFrame:
    table = sm.datasets.randhie.load_pandas().data
    return table.assign(visit=(table.mdvis > 0).astype(float))


def drawn(table: Callable[[], pd.DataFrame]) -> Callable[[int, np.random.Generator], pd.DataFrame]:
    def draw(n: int, rng: np.random.Generator) -> pd.DataFrame:
        whole = table()
        return whole.iloc[rng.integers(len(whole), size=n)].reset_index(drop=True)

    return draw


def wages(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Draw gamma experience, normal schooling less of it, and log wages with errors of Student's t(6)."""
    exper = np.minimum(rng.gamma(2.0, 9.0, n), 60.0)
    educ = np.clip(np.round(14.5 - 0.05 * exper + 2.5 * rng.standard_normal(n)), 0, 20)
    female = (rng.random(n) < 0.45).astype(float)
    error = 0.42 * rng.standard_t(6, n) / np.sqrt(1.5)
    lwage = 1.4 + 0.08 * educ + 0.006 * exper - 0.25 * female + error
    union = (
        rng.random(n) < 1.0 / (1.0 + np.exp(-(-3.0 + 0.12 * educ + 0.03 * exper - 0.4 * female)))
    ).astype(float)
    return pd.DataFrame(
        {"educ": educ, "exper": exper, "female": female, "lwage": np.clip(lwage, 0, 5), "union": union}
    )


def clinics(n: int, rng: np.random.Generator) -> pd.DataFrame:
    """Draw doses by clinic, exponential laboratory values, and outcomes whose errors grow with the dose."""
    clinic = rng.choice(["north", "south", "west"], size=n, p=[0.5, 0.3, 0.2])
    dose = 9.0 * rng.beta(1.3, 1.5, n)
    lab = np.minimum(rng.exponential(1.5, n), 8.0)
    fall = (
        2.0 + 0.4 * dose - 0.5 * lab + 0.8 * (clinic == "west") + (0.7 + 0.08 * dose) * rng.standard_normal(n)
    )
    ill = (rng.random(n) < 1.0 / (1.0 + np.exp(-(-0.5 + 0.15 * dose - 0.4 * lab)))).astype(float)
    return pd.DataFrame(
        {"clinic": clinic, "dose": dose, "lab": lab, "fall": np.clip(fall, -5, 10), "ill": ill}
    )


CELLS = {
    "MomentOLS": (8_000, 2.0),
    "MomentOLS local": (200_000, 24.0),
    "ModulatedOLS": (100_000, 24.0),
    "IWPGLM": (100_000, 24.0),
    "RMGMOLS": (60_000, 4.0),
    "OLS": (10_000, 2.0),
    "Logit": (10_000, 2.0),
    "DebiasedLasso": (20_000, 2.0),
}
DESIGNS = {
    "fair": Design(
        draw=drawn(fair),
        columns={
            "age": (17, 43),
            "children": (0, 6),
            "religious": (1, 4),
            "educ": (9, 20),
            "rate_marriage": (1, 5),
            "affair": [0.0, 1.0],
        },
        formula="age ~ children + educ + religious",
        logit="affair ~ rate_marriage + age + religious",
        guesses=pi.Guesses(
            means={"age": 29.1, "children": 1.4, "religious": 2.43, "educ": 14.2},
            sds={"age": 6.85, "children": 1.43, "religious": 0.88, "educ": 2.18},
            correlations={
                "age": {"children": 0.67, "religious": 0.14, "educ": 0.03},
                "children": {"religious": 0.14, "educ": -0.14},
                "religious": {"educ": 0.03},
            },
        ),
        odds=pi.Guesses(
            means={"age": 29.1, "religious": 2.43, "rate_marriage": 4.11, "affair": 0.32},
            sds={"age": 6.85, "religious": 0.88, "rate_marriage": 0.96},
            correlations={
                "age": {"religious": 0.14, "rate_marriage": -0.11},
                "religious": {"rate_marriage": 0.08},
            },
            coefficients={"rate_marriage": -0.72, "age": 0.046, "religious": -0.35},
        ),
        parties={"a": ["age", "children"], "b": ["religious", "educ"]},
    ),
    "randhie": Design(
        draw=drawn(rand),
        columns={
            "lpi": (0, 8),
            "fmde": (0, 9),
            "idp": (0, 1),
            "disea": (0, 60),
            "lncoins": (0, 5),
            "physlm": (0, 1),
            "visit": [0.0, 1.0],
        },
        formula="lpi ~ fmde + idp + disea",
        logit="visit ~ lncoins + disea + physlm",
        guesses=pi.Guesses(
            means={"lpi": 4.71, "fmde": 4.03, "idp": 0.26, "disea": 11.2},
            sds={"lpi": 2.7, "fmde": 3.47, "idp": 0.439, "disea": 6.74},
            correlations={
                "lpi": {"fmde": 0.50, "idp": 0.12, "disea": 0.0},
                "fmde": {"idp": 0.05, "disea": -0.04},
                "disea": {"idp": 0.01},
            },
        ),
        odds=pi.Guesses(
            means={"disea": 11.2, "lncoins": 1.77, "physlm": 0.124, "visit": 0.69},
            sds={"disea": 6.74, "lncoins": 1.98, "physlm": 0.322},
            correlations={"disea": {"lncoins": 0.03, "physlm": 0.31}, "lncoins": {"physlm": -0.02}},
            coefficients={"lncoins": -0.11, "disea": 0.059, "physlm": 0.17},
        ),
        parties={"a": ["fmde", "lpi"], "b": ["idp", "disea"]},
    ),
    "wages": Design(
        draw=wages,
        columns={"educ": (0, 20), "exper": (0, 60), "female": (0, 1), "lwage": (0, 5), "union": [0.0, 1.0]},
        formula="lwage ~ educ + exper + female",
        logit="union ~ educ + exper + female",
        guesses=pi.Guesses(
            means={"educ": 13.6, "exper": 17.9, "female": 0.45, "lwage": 2.48},
            sds={"educ": 2.58, "exper": 12.3, "female": 0.5, "lwage": 0.48},
            correlations={
                "educ": {"exper": -0.24, "lwage": 0.39},
                "exper": {"lwage": 0.05},
                "female": {"lwage": -0.26},
            },
            kurtosis=2.0,
        ),
        odds=pi.Guesses(
            means={"educ": 13.6, "exper": 17.9, "female": 0.45, "union": 0.28},
            sds={"educ": 2.58, "exper": 12.3, "female": 0.5},
            correlations={"educ": {"exper": -0.24}},
            coefficients={"educ": 0.12, "exper": 0.03, "female": -0.4},
        ),
        parties={"a": ["educ", "exper"], "b": ["female", "lwage"]},
    ),
    "clinics": Design(
        draw=clinics,
        columns={
            "clinic": ["north", "south", "west"],
            "dose": (0, 10),
            "lab": (0, 8),
            "fall": (-5, 10),
            "ill": [0.0, 1.0],
        },
        formula="fall ~ dose + lab + clinic",
        logit="ill ~ dose + lab",
        guesses=pi.Guesses(
            means={"dose": 4.18, "lab": 1.49, "fall": 3.08},
            sds={"dose": 2.3, "lab": 1.46, "fall": 1.61},
            shares={"clinic": {"south": 0.3, "west": 0.2}},
            correlations={"dose": {"fall": 0.57}, "lab": {"fall": -0.45}},
        ),
        odds=pi.Guesses(
            means={"dose": 4.18, "lab": 1.49, "ill": 0.40},
            sds={"dose": 2.3, "lab": 1.46},
            skews={"lab": 1.7},
            coefficients={"dose": 0.15, "lab": -0.4},
        ),
        parties={"a": ["clinic", "dose"], "b": ["lab", "fall"]},
    ),
}


def plan(name: str, design: Design) -> pi.Study:
    """Return the plan of one estimator."""
    n, epsilon = CELLS[name]
    kind, _, local = name.partition(" ")
    logistic = kind == "Logit"
    trust = (
        "local"
        if local or kind in ("ModulatedOLS", "IWPGLM")
        else "per-party"
        if kind == "RMGMOLS"
        else "central"
    )
    return pi.plan_study(
        pi.Schema(design.columns),
        design.logit if logistic else design.formula,
        n,
        guesses=design.odds if logistic else design.guesses,
        family="binomial" if logistic else "gaussian",
        trust=trust,
        parties=design.parties if trust == "per-party" else None,
        estimators=[kind],
        epsilon=epsilon,
        delta=DELTA,
        progress=False,
    )


def fit(
    name: str, design: Design, which: tuple[str, ...], n: int, epsilon: float, rng: np.random.Generator
) -> Any:
    """Return one fit of fresh rows, by the public functions."""
    frame, schema, f = design.draw(n, rng), pi.Schema(design.columns), design.formula
    level = {"epsilon": epsilon, "delta": DELTA, "rng": rng}
    if name == "MomentOLS local":
        return pi.MomentOLS.from_formula(f, frame, schema=schema, trust="local").fit(**level)
    if name == "IWPGLM":
        return pi.IWPGLM.from_formula(f, frame, schema=schema, loss="squared").fit(**level)
    if name == "RMGMOLS":
        return pi.RMGMOLS.from_formula(f, frame, schema=schema, parties=design.parties).fit(**level)
    if name == "Logit":
        return pi.Logit.from_formula(design.logit, frame, schema=schema).fit(**level)
    if name == "DebiasedLasso":
        made = pi.DebiasedLasso.from_formula(f, frame, schema=schema)
        return made.fit(targets=list(which), sparsity=len(which), **level)
    return getattr(pi, name).from_formula(f, frame, schema=schema).fit(**level)


def measured(
    name: str, design: Design, which: tuple[str, ...], fits: int, n: int, epsilon: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the median widths of coefficients that are not marked weak, the shares of fits in which they are,
    and the shares of intervals without zero.
    """
    none = np.full(len(which), np.nan)
    widths: list[np.ndarray] = []
    found: list[np.ndarray] = []
    for number in range(fits):
        rng = np.random.default_rng([7, number])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                result = fit(name, design, which, n, epsilon, rng)
                ends = result.conf_int().loc[list(which)].to_numpy()
            except NotAvailableError:
                widths.append(none)
                continue
        weak = np.isin(which, list(result.weakly_identified.index))
        widths.append(np.where(weak, np.nan, ends[:, 1] - ends[:, 0]))
        found.append(np.where(weak, np.nan, ends[:, 0] * ends[:, 1] > 0.0))
    shares = np.isnan(widths).mean(axis=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of coefficients that all fits mark
        return np.nanmedian(widths, axis=0), shares, np.nanmean(found, axis=0) if found else none


def widths_table(names: list[str], designs: list[str], fits: int) -> tuple[list[str], list[float]]:
    """Return the table of predicted and measured widths, and its ratios."""
    lines = [
        "| estimator | design | n | epsilon | coefficient | predicted | measured | ratio | weak, predicted / measured |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    ratios = []
    for name in tqdm(names):
        for place in designs:
            study = plan(name, DESIGNS[place])
            cell, which, (n, epsilon) = study.cells[0], study.case.which, CELLS[name]
            found, weak, _ = measured(name, DESIGNS[place], which, fits, n, epsilon)
            for one, told, seen, share, told_share in zip(
                which, cell.widths, found, weak, 1.0 - cell.identified, strict=True
            ):
                ratios.append(told / seen)
                lines.append(
                    f"| {name} | {place} | {n:,} | {epsilon:g} | {one} | {told:.4g} | {seen:.4g} | {told / seen:.3f} "
                    f"| {told_share:.2f} / {share:.2f} |"
                )
                print(lines[-1], flush=True)
    return lines, ratios


def inverse_table(names: list[str], fits: int) -> tuple[list[str], list[float]]:
    """Return the table of n and epsilon for a width, fits at these, and the ratios of measured to asked."""
    lines = [
        "| estimator | asked of | width asked | answer | width measured | ratio | fits |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    ratios = []
    design = DESIGNS["fair"]
    for name in tqdm(names):
        study, (n, epsilon) = plan(name, design), CELLS[name]
        which, one = study.case.which, study.case.which[0]
        target = float(f"{0.6 * study.cells[0].widths[0] + 0.4 * study.floor[0]:.3g}")
        people = study.n_for(coefficient=one, width=target)
        budget = study.budget_for(coefficient=one, width=target)
        some = min(fits, LONG_FITS) if n >= LONG else fits
        for told, at in ((f"n = {people:,}", (people, epsilon)), (f"epsilon = {budget:.3g}", (n, budget))):
            seen = measured(name, design, which, some, *at)[0][0]
            ratios.append(seen / target)
            lines.append(
                f"| {name} | {one} | {target:g} | {told} | {seen:.4g} | {seen / target:.3f} | {some} |"
            )
            print(lines[-1], flush=True)
    return lines, ratios


def power_table(fits: int) -> list[str]:
    """Return the table of n for a power of .8 at the table's own coefficient, and of the power there."""
    lines = [
        "| estimator | coefficient | effect | n for power .8 | intervals without zero |",
        "| --- | --- | --- | --- | --- |",
    ]
    design, one, effect = DESIGNS["fair"], "educ", 0.385
    for name in ("OLS", "MomentOLS", "RMGMOLS"):
        n = plan(name, design).n_for(coefficient=one, effect=effect, power=0.8)
        seen = measured(name, design, (one,), fits, n, CELLS[name][1])[2][0]
        lines.append(f"| {name} | {one} | {effect} | {n:,} | {seen:.3f} |")
        print(lines[-1], flush=True)
    return lines


def wrong_table(fits: int) -> list[str]:
    """Return the table of a design whose errors are far from those of the code book, without and with a guess."""
    columns = {**DESIGNS["fair"].columns, "yrs_married": (0, 25)}
    book = pi.Guesses(
        means={"age": 29.1, "children": 1.4, "yrs_married": 9.0},
        sds={"age": 6.85, "children": 1.43, "yrs_married": 7.3},
        correlations={"age": {"children": 0.67, "yrs_married": 0.89}, "children": {"yrs_married": 0.77}},
    )
    design = replace(DESIGNS["fair"], columns=columns, formula="yrs_married ~ age + children", guesses=book)
    lines = [
        "| guess of the residual sd | coefficient | predicted | measured | ratio |",
        "| --- | --- | --- | --- | --- |",
    ]
    found = None
    for told, spreads in (("the same in every row", {}), ("times 1.26 for each sd of age", {"age": 0.23})):
        study = plan("OLS", replace(design, guesses=replace(book, spreads=spreads)))
        if found is None:
            found = measured("OLS", design, study.case.which, fits, *CELLS["OLS"])[0]
        for one, width, seen in zip(study.case.which, study.cells[0].widths, found, strict=True):
            lines.append(f"| {told} | {one} | {width:.4g} | {seen:.4g} | {width / seen:.3f} |")
    print("\n".join(lines))
    return lines


HEAD = """# Planned widths and measured ones

`python benchmarks/planner.py`: {fits} fits a cell, {minutes:.0f} minutes of one core. Rows are drawn with replacement from
statsmodels' *fair* (6,366 rows) and *randhie* (20,190), or from two distributions that the planner does not use: *wages* (gamma
experience, rounded schooling, errors of Student's t(6)) and *clinics* (a factor, exponential laboratory values, errors that
grow with the dose). The planner gets bounds, means, standard deviations and correlations with two or three digits, and coefficients of logistic models with two digits. For *wages* it also gets an excess kurtosis of 2; otherwise it uses the default 1. The measured width is the median width of 95% intervals of fits that are not marked as weak.
"""


def page(fits: int, tables: dict[str, list[str]], notes: dict[str, str], minutes: float) -> str:
    parts = [HEAD.format(fits=fits, minutes=minutes)]
    for title, lines in tables.items():
        parts.append(f"## {title}\n\n{notes[title]}\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def verdict(ratios: list[float]) -> str:
    off = np.abs(np.array(ratios) - 1.0)
    return f"{np.sum(off <= 0.1)} of {len(off)} within 10%; the worst is off by {off.max():.1%}, the median by {np.median(off):.1%}."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fits", type=int, default=200)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--designs", nargs="*")
    asked = parser.parse_args()
    os.nice(5)
    begun, names = time.perf_counter(), asked.only or list(CELLS)
    lines, ratios = widths_table(names, asked.designs or list(DESIGNS), asked.fits)
    print(verdict(ratios))
    if asked.only or asked.designs:
        return
    inverse, asked_for = inverse_table(names, asked.fits)
    print(verdict(asked_for))
    tables = {
        "Widths": lines,
        "n and epsilon for a width": inverse,
        "n for a power": power_table(asked.fits),
        "Errors that the guesses do not describe": wrong_table(asked.fits),
    }
    notes = {
        "Widths": verdict(ratios),
        "n and epsilon for a width": "On *fair*. " + verdict(asked_for),
        "n for a power": "On *fair*, at the coefficient of the complete table; marked fits are left out of the share.",
        "Errors that the guesses do not describe": "`OLS` of years married in *fair*, whose residual standard deviation is 1.0 at the lowest age and 3.6 at 37. Means and correlations do not describe this difference.",
    }
    text = page(asked.fits, tables, notes, (time.perf_counter() - begun) / 60.0)
    if asked.fits >= 200:
        OUT.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
