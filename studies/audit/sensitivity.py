"""Search for the pair of neighbours that moves a statistic most."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from privinf.typing import Floats, RngLike
from privinf.validation import as_generator, check_array, check_count

Statistic = Callable[[Floats], Any]


@dataclass(frozen=True, slots=True)
class SensitivitySearch:
    """The farthest pair that was found.

    Attributes
    ----------
    largest : float
        ||f(D) - f(D')||_2.
    pair : tuple of ndarray, each (k,)
        The record and its replacement.
    tried : int
        Number of data sets on which f was evaluated.
    """

    largest: float
    pair: tuple[Floats, Floats]
    tried: int


def search_sensitivity(
    statistic: Statistic,
    records: Floats,
    candidates: Floats,
    *,
    position: int = 0,
    refine: int = 0,
    rng: RngLike = 0,
) -> SensitivitySearch:
    """Maximise ||f(D) - f(D')|| over data sets that differ in one record.

    Parameters
    ----------
    statistic : callable (n, k) -> array
        f, before noise.
    records : ndarray, shape (n, k)
        The data set; its record at `position` is replaced.
    candidates : ndarray, shape (m, k)
        Records tried in its place, every two of them against each other: random ones, corners, and ones
        outside the bounds (a mechanism that enforces its bounds cannot be moved further by them).
    refine : int
        Steps of a random hill climb from the best pair, allowed to leave the candidates' range.

    Returns
    -------
    SensitivitySearch
        A lower bound on the sensitivity: it must not be above the declared one, and is close to it if the
        candidates are well chosen.
    """
    base = check_array(records, "records", ndim=2)
    tried = check_array(candidates, "candidates", ndim=2)
    generator = as_generator(rng)

    def value(record: Floats) -> Floats:
        data = base.copy()
        data[position] = record
        return np.ravel(np.asarray(statistic(data), dtype=np.float64))

    values = np.array([value(record) for record in tried])
    distances = cdist(values, values)
    first, second = np.unravel_index(int(np.argmax(distances)), distances.shape)
    largest = float(distances[first, second])
    pair = [tried[first].copy(), tried[second].copy()]
    spread = tried.std(axis=0) + 1e-12
    for step in range(check_count(refine, "refine", least=0)):
        size = spread * 10.0 ** generator.uniform(-3.0, 0.5)
        moved = [record + generator.standard_normal(record.shape) * size for record in pair]
        moved[step % 2] = moved[step % 2] if step % 3 else pair[step % 2]
        distance = float(np.linalg.norm(value(moved[0]) - value(moved[1])))
        if distance > largest:
            largest = distance
            pair = moved
    return SensitivitySearch(largest, (pair[0], pair[1]), len(tried) + 2 * refine)
