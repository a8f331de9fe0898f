"""Monte Carlo harness: replications with their own seeds, in any number of processes, and binomial limits."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from pickle import PicklingError
from typing import Any, Self

import numpy as np
import pandas as pd
from scipy.stats import beta as beta_law
from scipy.stats import binom
from tqdm import tqdm

from privinf.errors import ArgumentError
from privinf.validation import check_count, check_fraction, check_number

Replication = Callable[[np.random.SeedSequence], Mapping[str, Any]]
MOST_PROCESSES = 256
PARTS = 8  # that every process takes of the work, one after the other
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
NOT_STARTED = (
    "a worker process ended early: `function` must be a module's function, or a functools.partial of one, "
    'and a script that starts workers must do so below `if __name__ == "__main__":`'
)


class Workers:
    """Processes that run the replications of several studies, started once.

    Parameters
    ----------
    processes : int
        How many, 1 to 256; more than the machine has cores gain nothing.

    Raises
    ------
    ArgumentError
        `processes` is out of range; processes that end as they start.

    Notes
    -----
    A process starts anew (as on every system, "spawn"), imports what it needs, which takes a second or two,
    and computes with **one thread**: linear algebra in two processes with two threads each is slower on two
    cores than in one process. They keep the modules that they have imported: after a change of code, start
    new ones.

    Examples
    --------
    >>> with Workers(2) as workers:  # doctest: +SKIP
    ...     power = replicate(one_study, 1000, seed=0, processes=workers)
    ...     size = replicate(other_study, 1000, seed=0, processes=workers)
    """

    def __init__(self, processes: int) -> None:
        if check_count(processes, "processes") > MOST_PROCESSES:
            raise ArgumentError(f"processes={processes} must be at most {MOST_PROCESSES}")
        self.processes = processes
        self._pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"))
        try:
            with _one_thread():
                # Each is submitted while those before it are starting, and so starts a process of its own.
                wait([self._pool.submit(os.getpid) for _ in range(processes)])
            self._pool.submit(os.getpid).result()
        except BrokenProcessPool:
            raise ArgumentError(NOT_STARTED) from None

    def map(self, function: Replication, seeds: list[np.random.SeedSequence]) -> Iterator[Mapping[str, Any]]:
        """Yield what `function` returns for each seed, in order; errors as in `replicate`."""
        size = max(1, len(seeds) // (PARTS * self.processes))
        try:
            yield from self._pool.map(function, seeds, chunksize=size)
        except BrokenProcessPool:
            raise ArgumentError(NOT_STARTED) from None
        except (PicklingError, AttributeError) as error:
            if "pickle" not in str(error):
                raise
            raise ArgumentError(NOT_STARTED) from None

    def close(self) -> None:
        """End the processes, after what they are at."""
        self._pool.shutdown(cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("processes are not pickled")


def replicate(
    function: Replication,
    replications: int,
    seed: int,
    progress: bool = True,
    processes: int | Workers = 1,
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
    processes : int or Workers
        In how many processes, which are started for this call; or `Workers` that run already. In other
        processes `function` must be importable (a module's function or a `functools.partial` of one). Rows
        are the same for any number of them; where `function` multiplies large matrices, to the last bit if
        this process has one thread too (``OMP_NUM_THREADS=1``).

    Returns
    -------
    DataFrame, shape (replications, names)
        One row a replication; the index is its number.

    Raises
    ------
    ArgumentError
        A count is out of range; other processes cannot import `function`. What `function` raises is raised.

    Examples
    --------
    >>> def mean_of_ten(seed):
    ...     return {"mean": np.random.default_rng(seed).standard_normal(10).mean()}
    >>> replicate(mean_of_ten, 3, seed=0, progress=False).shape
    (3, 1)
    """
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
        hits = int(flags.sum())
        trials = len(flags)
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
def _mapper(processes: int | Workers) -> Iterator[Callable[..., Iterable[Any]]]:
    if isinstance(processes, Workers):
        yield processes.map
    elif check_count(processes, "processes") == 1:
        yield map
    else:
        with Workers(processes) as workers:
            yield workers.map


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let processes that are started meanwhile compute with one thread each."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


__all__ = ["Workers", "binomial_limits", "rates", "replicate"]
