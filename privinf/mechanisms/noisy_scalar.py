"""One number with Gaussian noise."""

from __future__ import annotations

import numpy as np

from privinf.accounting import Ledger, ReleasedNumber
from privinf.doors import door
from privinf.mechanisms.gaussian import Line, Spending
from privinf.mechanisms.numbers import held, number_of, plain_number
from privinf.typing import RngLike, SourceName
from privinf.validation import check_positive


@door
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
) -> ReleasedNumber:
    """Release a number of which replacing one record changes at most `sensitivity`.

    Parameters
    ----------
    value : float
        What is no finite number counts as 0, and beyond 2^24 times the noise it is held there: no value stops
        a release that is paid for.
    sensitivity : float
    label : str
        What it is, for the ledger.
    epsilon, delta, mu, rho, ledger, rng, source
        As for `Modulation.release`.

    Returns
    -------
    ReleasedNumber
        A float that carries its ledger line, its `loss` and its `stamp`.

    Raises
    ------
    ArgumentError
        The level is named in none or two ways, or the value is no number by its type; nothing was spent.
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
    given = plain_number(value, "value")
    scale, entry = line.calibrated(spending.source)
    recorded = spending.ledger.spend(entry)
    with np.errstate(all="ignore"):
        number = held(np.array([number_of(given)]), scale)
        noisy = number if scale == 0.0 else spending.source.perturb(number, scale)
    return ReleasedNumber(noisy.item(), recorded, scale)
