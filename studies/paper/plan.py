"""What a fit by the paper's own algorithms will spend on what: checked before any row is read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from privinf.accounting import epsilon_to_rho
from privinf.accounting.budget import ROUNDING
from privinf.errors import ArgumentError, NotAvailableError
from privinf.lasso.plan import Accounting
from privinf.lasso.rows import TYPICAL, LassoRows
from privinf.validation import check_choice, check_count, check_number, check_positive, reporting_delta, shown
from studies.paper.engine import Form, PaperBudget, PaperTuning

Variance = Literal["paper", "robust"]

# Entries of a precision column: its own and two on each side of a banded precision matrix.
PRECISION_SPARSITY = 5
# Standardised columns: the steps contract where restricted eigenvalues lie below 4.
STEP = 0.5
# Before they are divided by the sum of those in use.
WEIGHTS = {
    "fit": 0.30,
    "refit": 0.10,
    "own": 0.25,
    "precision": 0.30,
    "variance": 0.02,
    "score": 0.25,
    "multiplier": 0.20,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperPlan:
    """A checked request.

    Attributes
    ----------
    delta : float
        At which epsilon is reported.
    sparsity : int
        Of the common coefficients; of u in a heterogeneous fit.
    own_sparsity : int
        Of v_i; 0 in a homogeneous fit.
    precision_sparsity, draws : int
    targets : tuple of int, or None
        None: the columns that the fit keeps.
    budget : PaperBudget
        Prices of one interval.
    interval, joint : float
        What one interval uses, and what everything costs, zCDP.
    tuning : PaperTuning
    refit, robust : bool
    accounting : {"joint", "per-interval"}
    """

    delta: float
    sparsity: int
    own_sparsity: int
    precision_sparsity: int
    draws: int
    targets: tuple[int, ...] | None
    budget: PaperBudget
    interval: float
    joint: float
    tuning: PaperTuning
    refit: bool
    robust: bool
    accounting: Accounting


def check_paper_plan(
    rows: LassoRows,
    *,
    epsilon: float,
    delta: float | None,
    sparsity: int,
    targets: Any,
    precision_sparsity: int | None,
    heterogeneous: bool,
    shared_sparsity: int | None,
    accounting: Accounting,
    iterations: int | None,
    clip: float | None,
    refit: bool,
    step: float | None,
    norm_bound: float | None,
    precision_clip: float | None,
    form: Form,
    variance: Variance,
    multiplier_draws: int,
    shares: Mapping[str, float] | None,
) -> PaperPlan:
    """Return the plan of a fit, or say what is wrong with the request; reads no rows.

    Raises
    ------
    ArgumentError, NotAvailableError
    """
    if rows.constant is not None:
        raise NotAvailableError(
            "variant='paper' has no constant: leave it out, columns and response are centred at the middle "
            "of their bounds"
        )
    epsilon = check_number(epsilon, "epsilon", low=0.0, open_low=True, infinite=True)
    delta = reporting_delta(epsilon, delta, rows.total)
    check_choice(accounting, Accounting, "accounting")
    robust = check_choice(variance, Variance, "variance") == "robust"
    p = len(rows.names)
    draws = check_count(multiplier_draws, "multiplier_draws", least=0)
    shared, own = _sparsities(sparsity, shared_sparsity, p, heterogeneous=heterogeneous)
    chosen = _positions(targets, p, heterogeneous=heterogeneous)
    if draws and not heterogeneous:
        raise ArgumentError("multiplier_draws= belongs to heterogeneous=True")
    entries = min(PRECISION_SPARSITY, p) if precision_sparsity is None else precision_sparsity
    if check_count(entries, "precision_sparsity") > p:
        raise ArgumentError(f"precision_sparsity={entries} is larger than the number of columns, {p}")
    extra = {"refit": refit, "own": heterogeneous, "multiplier": draws > 0}
    parts = _shares(shares, [name for name in WEIGHTS if extra.get(name, True)])
    count = shared if chosen is None else len(chosen)
    rho = math.inf if math.isinf(epsilon) else epsilon_to_rho(epsilon, delta)
    budget = _budget(parts, rho, count if accounting == "joint" else 1, robust=robust)
    return PaperPlan(
        delta=delta,
        sparsity=shared,
        own_sparsity=own,
        precision_sparsity=entries,
        draws=draws,
        targets=chosen,
        budget=budget,
        interval=_cost(budget, 1),
        joint=_cost(budget, count),
        tuning=_tuning(
            rows, iterations, clip, step, norm_bound, precision_clip, form, noise=math.isfinite(rho)
        ),
        refit=bool(refit),
        robust=robust,
        accounting=accounting,
    )


def _sparsities(
    sparsity: int, shared_sparsity: int | None, p: int, *, heterogeneous: bool
) -> tuple[int, int]:
    """Return the sparsity of the common coefficients and of a party's own."""
    if check_count(sparsity, "sparsity") > p:
        raise ArgumentError(f"sparsity={sparsity} is larger than the number of columns, {p}")
    if not heterogeneous:
        if shared_sparsity is not None:
            raise ArgumentError("shared_sparsity= belongs to heterogeneous=True")
        return sparsity, 0
    if shared_sparsity is None:
        raise ArgumentError("heterogeneous=True needs shared_sparsity=: the part of sparsity that is shared")
    if check_count(shared_sparsity, "shared_sparsity") >= sparsity:
        raise ArgumentError(f"shared_sparsity={shared_sparsity} must be less than sparsity={sparsity}")
    return shared_sparsity, sparsity - shared_sparsity


def _positions(targets: Any, p: int, *, heterogeneous: bool) -> tuple[int, ...] | None:
    """Return the targets' positions; None for those that the fit keeps."""
    if isinstance(targets, str):
        if targets != "selected":
            raise ArgumentError(f"targets={shown(targets)} must be 'selected' or a list of positions")
        if heterogeneous:
            raise ArgumentError("heterogeneous fits need a list of targets, not 'selected'")
        return None
    found = tuple(check_count(target, "a position of targets", least=0) for target in targets)
    if not found or len(set(found)) < len(found) or max(found) >= p:
        raise ArgumentError(f"targets must name at least one of the {p} columns, each once")
    return found


def _shares(given: Mapping[str, float] | None, names: Sequence[str]) -> dict[str, float]:
    """Return a share for each of the names, and 0 for what is not asked for."""
    if given is None:
        whole = sum(WEIGHTS[name] for name in names)
        given = {name: WEIGHTS[name] / whole for name in names}
    if not isinstance(given, Mapping) or set(given) != set(names):
        raise ArgumentError(f"shares must map each of {', '.join(names)} to its share")
    for name, share in given.items():
        check_positive(share, f"shares[{name!r}]")
    if abs(sum(given.values()) - 1.0) > 1e-9:
        raise ArgumentError(f"shares sum to {sum(given.values()):.6g}: they must sum to one")
    return {name: float(given.get(name, 0.0)) for name in WEIGHTS}


def _budget(shares: Mapping[str, float], rho: float, split: int, *, robust: bool) -> PaperBudget:
    """Return the prices of one interval, what it does not share with others divided by `split`."""
    price = {name: share * rho * ROUNDING if share > 0.0 else 0.0 for name, share in shares.items()}
    half = price["variance"] / 2.0 if robust else 0.0
    return PaperBudget(
        fit=price["fit"],
        refit=price["refit"],
        own=price["own"],
        precision=price["precision"] / split,
        variance=half if robust else price["variance"],
        squares=half / split,
        score=price["score"] / split,
        multiplier=price["multiplier"],
    )


def _cost(budget: PaperBudget, intervals: int) -> float:
    """Return what so many intervals cost together: a party's rows pay for shared and own parts alike."""
    common = budget.fit + budget.refit + budget.own + budget.variance + budget.multiplier
    return (common + intervals * (budget.precision + budget.squares + budget.score)) / ROUNDING


def _tuning(
    rows: LassoRows,
    iterations: int | None,
    clip: float | None,
    step: float | None,
    norm_bound: float | None,
    precision_clip: float | None,
    form: Form,
    *,
    noise: bool,
) -> PaperTuning:
    units = rows.units()
    growth = math.sqrt(2.0 * math.log(max(rows.total, 2)))
    rounds = math.ceil(math.log(max(rows.total, 3))) if iterations is None else iterations
    reach = units.y_max_abs

    def bound(given: float | None, name: str, default: float) -> float:
        """Return a public bound; without noise there is none by default."""
        if given is None:
            return default if noise else math.inf
        return check_positive(given, name)

    precision = bound(precision_clip, "precision_clip", growth)
    return PaperTuning(
        iterations=check_count(rounds, "iterations"),
        step=STEP if step is None else check_positive(step, "step"),
        residual_clip=bound(clip, "clip", min(reach, reach / TYPICAL * growth)),
        precision_clip=precision,
        column_bound=float(units.max_abs.max()),
        norm_bound=bound(norm_bound, "norm_bound", reach),
        precision_norm=precision,
        form=check_choice(form, Form, "form"),
    )
