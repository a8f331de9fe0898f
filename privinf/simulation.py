"""Monte Carlo harness: replications with their own seeds, and verdicts by binomial limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import beta as beta_law
from scipy.stats import binom
from tqdm import tqdm

from privinf.errors import ArgumentError
from privinf.validation import check_count, check_fraction, check_number

Replication = Callable[[np.random.SeedSequence], Mapping[str, Any]]
MOST_PROCESSES = 2


def replicate(
    function: Replication, replications: int, seed: int, progress: bool = True, processes: int = 1
) -> pd.DataFrame:
    """Run `function` many times, each time with a seed of its own.

    Parameters
    ----------
    function : callable
        Takes a `numpy.random.SeedSequence` and returns a mapping from names to numbers or flags.
    replications : int
    seed : int
        Root of all seeds: replication k has the k-th child, however the work is divided, so that results
        do not depend on `processes` and longer runs begin with the shorter ones.
    progress : bool
        Show a progress bar.
    processes : int
        1 or 2. With 2, `function` must be importable (a module's function or a `functools.partial` of one).

    Returns
    -------
    DataFrame, shape (replications, names)
        One row a replication; the index is its number.

    Raises
    ------
    ArgumentError
        A count is out of range.

    Examples
    --------
    >>> def mean_of_ten(seed):
    ...     return {"mean": np.random.default_rng(seed).standard_normal(10).mean()}
    >>> replicate(mean_of_ten, 3, seed=0, progress=False).shape
    (3, 1)
    """
    if check_count(processes, "processes") > MOST_PROCESSES:
        raise ArgumentError(f"processes={processes} must be 1 or {MOST_PROCESSES}")
    children = np.random.SeedSequence(seed).spawn(check_count(replications, "replications"))
    with _mapper(processes) as mapped:
        rows = list(tqdm(mapped(function, children), total=replications, disable=not progress))
    return pd.DataFrame(rows).rename_axis(index="replication")


def binomial_limits(p: float, n: int, level: float = 0.99) -> tuple[float, float]:
    """Return limits that a share of `n` trials keeps with probability at least `level` if its mean is `p`.

    Parameters
    ----------
    p : float
        In [0, 1].
    n : int
    level : float
        For several cells at once, pass ``1 - (1 - level) / cells``.

    Returns
    -------
    (low, high) : float
        Shares; both ends still count as inside.

    Raises
    ------
    ArgumentError
        An argument is out of range.

    Examples
    --------
    >>> binomial_limits(0.95, 1000, 0.99)
    (0.931, 0.967)
    """
    p = check_number(p, "p", low=0.0, high=1.0)
    tail = (1.0 - check_fraction(level, "level")) / 2.0
    law = binom(check_count(n, "n"), p)
    return max(float(law.ppf(tail)), 0.0) / n, float(law.isf(tail)) / n


def rates(frame: pd.DataFrame, columns: Iterable[str], level: float = 0.95) -> pd.DataFrame:
    """Return how often each flag of `frame` was true, with Clopper-Pearson intervals.

    Parameters
    ----------
    frame : DataFrame
        One row a replication. Missing flags are left out of that column's count.
    columns : sequence of str
    level : float

    Returns
    -------
    DataFrame, index = columns
        ``rate``, ``low``, ``high`` and ``trials``; nan where a column has no flags at all.
    """
    tail = (1.0 - check_fraction(level, "level")) / 2.0
    rows = {}
    for column in columns:
        flags = frame[column].dropna().astype(bool)
        hits, trials = int(flags.sum()), len(flags)
        rows[column] = {
            "rate": hits / trials if trials else np.nan,
            "low": float(beta_law.ppf(tail, hits, trials - hits + 1)) if hits else 0.0,
            "high": float(beta_law.isf(tail, hits + 1, trials - hits)) if hits < trials else 1.0,
            "trials": trials,
        }
        if not trials:
            rows[column] |= {"low": np.nan, "high": np.nan}
    return pd.DataFrame.from_dict(rows, orient="index")


@contextmanager
def _mapper(processes: int) -> Iterator[Callable[..., Iterable[Any]]]:
    if processes == 1:
        yield map
        return
    with get_context("spawn").Pool(processes) as pool:
        yield lambda function, children: pool.imap(function, children, chunksize=4)


__all__ = ["binomial_limits", "rates", "replicate"]
