"""Coverage by the released strength, where the effects of a factor are reported: ``y ~ x + z + C(firm)``.

    python benchmarks/effects_reported.py      # about 1 minute of one core

The rows of benchmarks/effects.py, fitted by OLS without absorbing the effects. Writes results/effects_reported.md.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from effects import DELTA, LEVEL, SLOPES, sample

import privinf as pi

OUT = Path(__file__).parent / "results" / "effects_reported.md"
LEVELS, EPSILON, FITS, SIZES, LEAST = 10, 1.0, 300, (5_000, 10_000, 15_000), (0.0, 0.3, 0.6, 0.8)
HAND_FITS, HAND_SIZES = 60, (5_000, 15_000)
PAGE = """# Effects of a factor that are reported

    python benchmarks/effects_reported.py

`pi.OLS` of `y ~ x + z + C(firm)`, {levels} firms, epsilon {epsilon:g}, delta 1e-6, {fits} fits a size. Among fits whose
smallest eigenvalue of the last Hessian, over the edge of its noise, is at least "strength": the share of 95% intervals
that hold the truth. Fits below .6 are marked as weakly identified. "By hand": {hand} fits with nine columns of zeros and
ones in place of C(firm).

| n | strength | fits | x | z | constant | firms |
| --- | --- | --- | --- | --- | --- | --- |
{rows}
"""


def truths(levels, n, state):
    """Return the effects of the firms that `sample` draws from this state of its generator."""
    again = np.random.default_rng()
    again.bit_generator.state = state
    again.integers(0, levels, n)
    return np.linspace(-1.0, 1.0, levels)[again.permutation(levels)]


def by_hand(data, names):
    """Return the model with columns of zeros and ones for the firms."""
    own = {name: (data.firm == name).astype(float) for name in names[1:]}
    X = pd.DataFrame({"const": 1.0, "x": data.x, "z": data.z, **own})
    bounds = {"x": (-1, 1), "z": (-1, 1), **dict.fromkeys(own, (0, 1))}
    return pi.OLS(data.y, X, bounds=bounds, y_bounds=(-4, 6))


def measured(n, fits=FITS, *, hand=False):
    """Return the strengths of the fits, and whether each interval holds: x, z, constant, share of firms."""
    names = [f"f{k:03d}" for k in range(LEVELS)]
    firm = pi.Factor(names, public=True)
    schema = pi.Schema({"y": (-4.0, 6.0), "x": (-1.0, 1.0), "z": (-1.0, 1.0), "firm": firm})
    rng, strengths, held = np.random.default_rng(LEVELS + n), [], []
    for seed in range(fits):
        effects = truths(LEVELS, n, rng.bit_generator.state)
        data = sample(rng, LEVELS, n, equal=False)
        model = (
            by_hand(data, names) if hand else pi.OLS.from_formula("y ~ x + z + C(firm)", data, schema=schema)
        )
        r = model.fit(epsilon=EPSILON, delta=DELTA, rng=seed)
        label = "{}" if hand else "C(firm)[T.{}]"
        firms = {label.format(name): effects[k] - effects[0] for k, name in enumerate(names) if k}
        truth = {**SLOPES, "const" if hand else "Intercept": 1.0 + effects[0], **firms}
        ends = r.conf_int(1.0 - LEVEL)
        holds = [ends.loc[name, 0] <= value <= ends.loc[name, 1] for name, value in truth.items()]
        strengths.append(r.identification.statistic)
        held.append([*holds[:3], np.mean(holds[3:])])
    return np.array(strengths), np.array(held, dtype=float)


def main():
    """Measure, and write the page."""
    warnings.simplefilter("ignore")
    rows = []
    for n, hand in [*((n, False) for n in SIZES), *((n, True) for n in HAND_SIZES)]:
        strengths, held = measured(n, HAND_FITS if hand else FITS, hand=hand)
        for least in LEAST:
            among = strengths >= least
            shares = [f"{one:.3f}" for one in held[among].mean(axis=0)] if among.any() else ["-"] * 4
            rows.append(
                "| "
                + " | ".join([f"{n:,}" + ", by hand" * hand, f"{least:g}", str(among.sum()), *shares])
                + " |"
            )
            print(rows[-1], flush=True)
    OUT.write_text(
        PAGE.format(levels=LEVELS, epsilon=EPSILON, fits=FITS, hand=HAND_FITS, rows="\n".join(rows))
    )


if __name__ == "__main__":
    main()
