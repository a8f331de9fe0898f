"""One number with Gaussian noise."""

from __future__ import annotations

import math

import numpy as np

from privinf.accounting import Ledger
from privinf.errors import ArgumentError
from privinf.mechanisms.gaussian import Line, Spending
from privinf.noise import SourceName
from privinf.typing import RngLike
from privinf.validation import check_positive


def noisy_scalar(
    value: float,
    sensitivity: float,
    *,
    label: str = "scalar",
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    ledger: Ledger | None = None,
    rng: RngLike = None,
    source: SourceName = "lattice",
) -> float:
    """Release a number of which replacing one record changes at most `sensitivity`.

    Parameters
    ----------
    value : float
    sensitivity : float
    label : str
        What it is, for the ledger.
    epsilon, delta, mu, rho, ledger, rng, source
        As for `Modulation.release`.

    Raises
    ------
    ArgumentError
        The level is named in none or two ways, or the value is not finite.
    BudgetExceededError
        The ledger's limit would be passed; the value was not read.

    Notes
    -----
    **Privacy.** Replace-one; mu = sensitivity / noise sd, exactly.

    Examples
    --------
    >>> round(noisy_scalar(3.0, 0.01, mu=1.0, rng=0), 1)
    3.0
    """
    spending = Spending.of(
        epsilon=epsilon, mu=mu, rho=rho, delta=delta, calibration="exact",
        ledger=ledger, rng=rng, source=source,
    )  # fmt: skip
    line = Line(
        label=label, mechanism="gaussian", sensitivity=check_positive(sensitivity, "sensitivity"),
        derivation="replace-one change of the number", dimension=1, mu=spending.mu, unit="record",
        trust="central",
    )  # fmt: skip
    scale, entry = line.calibrated(spending.source)
    spending.ledger.spend(entry)
    number = float(value)
    if not math.isfinite(number):
        raise ArgumentError("the value is not finite")
    return number if scale == 0.0 else float(spending.source.perturb(np.array([number]), scale)[0])
