"""Noisy second moments of many simulated tables at once, for coverage studies of MomentOLS."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from privinf.mechanisms.gaussian import noisy_total
from privinf.mechanisms.moments import Moments
from privinf.mechanisms.passes import OwnSum, RowPasses
from privinf.mechanisms.rows import Rows
from privinf.noise import SimulationNoise
from privinf.typing import Floats


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedMoments:
    """What R releases of second moments hold.

    Attributes
    ----------
    totals : ndarray, shape (R, q, q)
        Sums of zz', z = (public, private, c y), with noise on what is not public.
    weights, scales : ndarray, shape (R,)
        c, and the noise's sd on each isometric entry.
    n : int
        Rows of each table.
    """

    totals: Floats
    weights: Floats
    scales: Floats
    n: int


def simulated_moments(
    mechanism: Moments,
    tables: Iterable[tuple[Floats, Floats]],
    seeds: Sequence[int],
    spending: dict[str, Any],
) -> SimulatedMoments:
    """Return the totals that ``mechanism.release(table, rng=seed, **spending)`` has for each table (y, X).

    Budget and noise scale are solved for once for all tables whose public columns have the same sizes.

    Raises
    ------
    ArgumentError, SchemaError, AlignmentError, SensitivityError
        As for `Moments.release`.

    Notes
    -----
    **Privacy.** None: the noise is seeded, the rows are simulated. It is no release.
    """
    rows, columns, factors = mechanism.layout.pairs()
    public = mechanism.layout.public
    laws: dict[bytes, tuple[float, float, OwnSum]] = {}
    totals = []
    told = []
    n = 0
    for (y, X), seed in zip(tables, seeds, strict=True):
        passes = RowPasses(mechanism.design, Rows(X, y))
        reach, norm2 = passes.public_sizes()
        key = np.append(reach, norm2).tobytes()
        if key not in laws:
            law = mechanism.release(Rows(X, y), rng=seed, **spending).law
            weight = float(law["response_weight"])
            scale = float(law["scale"])
            laws[key] = weight, scale, mechanism._asked(weight, reach, norm2, robust=False)[0]
        weight, scale, asked = laws[key]
        sums = asked.over(passes, exact=scale > 0.0)
        total = np.zeros((mechanism.layout.size, mechanism.layout.size))
        total[rows, columns] = noisy_total(sums, scale, SimulationNoise(seed)) / factors
        total[columns, rows] = total[rows, columns]
        total[:public, :public] = sums.public
        totals.append(total)
        told.append((weight, scale))
        n = passes.n
    weights, scales = np.array(told).T
    return SimulatedMoments(np.array(totals), weights, scales, n)
