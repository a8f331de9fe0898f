"""The internal basis: no two rows are further apart than its geometry says, and mutants of it are seen."""

import numpy as np
import pandas as pd
import pytest
from mutation import Mutant

import privinf as pi
from privinf.mechanisms.rows import as_rows, encode
from privinf.mechanisms.statistics.moments import second_moment_sensitivity

SCHEMA = pi.Schema(
    {"y": (0.0, 1.0), "x": (10.0, 50.0), "z": (-3.0, 1.0), "g": ["a", "b", "c"], "h": ["u", "v"]}
)
FORMULAS = (
    "y ~ x * z + I(x ** 2) + I(z ** 2)",
    "y ~ x * C(g, Sum) * C(h, Helmert)",
    "y ~ poly(x, 4) * z + I(x > 30) * z",
    "y ~ C(g, Helmert) + C(h, Sum) + np.where(z > 0, z, x) * z",
)


def extreme_rows(seed=0, n=4000):
    """Rows at the bounds, at middles, at random inside, and far outside."""
    rng = np.random.default_rng(seed)
    at = rng.choice([0.0, 0.5, 1.0, -7.0, 9.0, np.nan], (n, 2), p=[0.25, 0.1, 0.25, 0.1, 0.1, 0.2])
    at = np.where(np.isnan(at), rng.uniform(size=(n, 2)), at)
    table = pd.DataFrame({"x": 10.0 + 40.0 * at[:, 0], "z": -3.0 + 4.0 * at[:, 1]})
    return table.assign(
        y=rng.choice([0.0, 1.0], n), g=rng.choice(list("abc"), n), h=rng.choice(["u", "v"], n)
    )


def complaints():
    """Return which claims of which design rows pass."""
    found, table = [], extreme_rows()
    for formula in FORMULAS:
        design = pi.Design.from_formula(formula, SCHEMA).conditioned()
        assert design.raw is not None
        sent = encode(design, as_rows(table))
        x = np.unique(np.round(sent.private, 12), axis=0)
        inner = x @ x.T
        squares = np.maximum(np.diag(inner)[:, None] + np.diag(inner) - 2.0 * inner, 0.0)
        raw = design.released(table)
        inside = ((raw >= design.low) & (raw <= design.high))[:, ~np.array([c.plain for c in design.columns])]
        total = np.column_stack([np.ones(len(sent.private)), sent.private, sent.response])
        low, high = total[total[:, -1] < 0], total[total[:, -1] > 0]
        away = max(np.linalg.norm(np.outer(a, a) - np.outer(b, b)) for a, b in zip(low, high, strict=False))
        limit = second_moment_sensitivity(design.norm, design.y_norm, 1.0)
        for claim, holds in (
            ("diameter", np.sqrt(squares.max()) <= design.diameter + 1e-9),
            ("norm", np.sqrt(np.diag(inner).max()) <= design.norm + 1e-9),
            ("bounds", inside.all()),
            ("moments", away <= limit + 1e-9),
        ):
            found += [] if holds else [f"{formula}: {claim}"]
    return found


def far_from_bounds():
    """Return which bounds are wider than anything that rows reach, as a bound without proof would be."""
    found = []
    for formula in FORMULAS[:2]:
        design = pi.Design.from_formula(formula, SCHEMA).conditioned()
        X = design.released(extreme_rows(n=20_000))
        width = np.ptp(X, axis=0)[design.private] / (design.high - design.low)[design.private]
        found += [formula] if width.min() < 0.98 else []
    return found


@pytest.mark.audit
def test_rows_keep_to_the_geometry_of_the_internal_basis():
    assert complaints() == []
    assert far_from_bounds() == []


@pytest.mark.parametrize(
    "mutant",
    [
        Mutant("schema.splines", "legendre_interval", "np.array([low, high])", "np.array([high, high])"),
        Mutant("schema.conditioning", "new_blocks", "frozenset(column.inputs)", "frozenset()"),
    ],
    ids=lambda mutant: mutant.function,
)
def test_mutants_of_the_basis_are_seen(mutant):
    with mutant.applied():
        try:
            seen = complaints()
        except (pi.errors.PrivinfError, AssertionError):
            seen = ["refused"]
    assert seen
