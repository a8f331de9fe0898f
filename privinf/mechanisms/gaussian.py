"""The Gaussian mechanism: from a sensitivity and a share of mu to a noise scale and a ledger line."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Protocol, TypeVar

import numpy as np

from privinf.accounting import GaussianLoss, Ledger, LedgerEntry, ReleasedNumber, Sensitivity, calibrate_mu
from privinf.accounting.ledger import check_ledger
from privinf.error_boundary import error_boundary, warn
from privinf.errors import ArgumentError, LargeDeltaWarning, PrivinfError, SensitivityError
from privinf.noise import NoiseSource, get_source, grid_step, solve_scale
from privinf.noise.lattice import LARGEST_STEP, LARGEST_SUM
from privinf.releases import CHARGE_STANDS
from privinf.schema import Design
from privinf.typing import (
    Calibration,
    Floats,
    Integers,
    Relation,
    RngLike,
    SourceName,
    SpendingWords,
    TrustModel,
)
from privinf.validation import check_choice, check_positive, check_words
from privinf.wire import (
    Assumptions,
    Derivations,
    Labels,
    Mechanisms,
    NoiseLaws,
    NoiseSources,
    Norms,
    readable,
)

T = TypeVar("T")

# Noisy values are held within this many sds: the grid of secure noise ends at 2^45 steps, and noise spans at
# least 2^20 of them.
LARGEST_MULTIPLE = 2.0**24
LARGEST = 2.0**1000  # noisy values are held within this, too, far inside the range of doubles
# Rounding of float arithmetic before the noise (scaling, projection) is far below this relative slack,
# which is charged to every sensitivity.
FLOAT_SLACK = 2.0**-40


WORDS = tuple(SpendingWords.__annotations__)  # arguments that state the budget of a call


def total_mu(words: SpendingWords) -> float:
    """Return the Gaussian mu of everything that a call may spend.

    Raises
    ------
    ArgumentError
        No level is named, or two are.
    """
    level: dict[str, Any] = {name: words.get(name) for name in ("epsilon", "mu", "rho")}
    choice = words.get("calibration")
    calibration = check_choice("exact" if choice is None else choice, Calibration, "calibration")
    if all(value is None for value in level.values()):
        raise ArgumentError("no privacy budget was passed: pass epsilon= with delta=, or mu=, or rho=")
    return calibrate_mu(**level, delta=words.get("delta"), calibration=calibration)


@dataclass(frozen=True, slots=True)
class Spending:
    """Budget and noise source of one call of `release`.

    Attributes
    ----------
    mu : float
        Total Gaussian mu of the call; infinity means no noise.
    delta : float or None
        The delta that the caller named; reports quote epsilon at it.
    """

    mu: float
    delta: float | None
    source: NoiseSource
    ledger: Ledger

    @classmethod
    def from_options(cls, words: SpendingWords, ledger: Ledger | None) -> Spending:
        """Check the spending words of a `release` or `fit` call (before any row is read)."""
        check_words(words, WORDS)
        total = total_mu(words)
        account = check_ledger(ledger)
        named = words.get("source")
        source = get_source(rng=words.get("rng"), source="lattice" if named is None else named)
        return cls(total, words.get("delta"), source, account)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A planned Gaussian release: all contents of its ledger line.

    Attributes
    ----------
    sensitivity : float
        Replace-one l2 sensitivity of the released array, scaled units, before grid rounding.
    dimension : int
        Number of released numbers that one unit touches (for the grid's share of the sensitivity).
    largest : float
        Public bound of the released numbers that secure noise must have room for; 0 where there is none.
    """

    label: str
    mechanism: str
    sensitivity: float
    derivation: str
    dimension: int
    mu: float
    unit: str
    trust: TrustModel
    relation: Relation = "replace-one"
    assumptions: tuple[str, ...] = field(default=(Assumptions.PUBLIC_N,))
    party: str = ""
    largest: float = 0.0

    def calibrated(self, source: NoiseSource) -> tuple[float, LedgerEntry]:
        """Return the noise scale (sd, scaled units) and the ledger line.

        Raises
        ------
        SensitivityError
            The noise is so small that its grid cannot represent all values within the public bounds.
        """
        if math.isinf(self.mu):
            scale = 0.0
            total = self.sensitivity
            noise = {"law": NoiseLaws.NONE, "scale": 0.0, "grid": 0.0}
            name = NoiseSources.NONE
            secure = False
        else:
            scale, total = solve_scale(
                self.sensitivity * (1.0 + FLOAT_SLACK), self.mu, self.dimension, source
            )
            grid = grid_step(scale) if source.secure else 0.0
            if source.secure and self.largest >= LARGEST_STEP * grid:
                raise SensitivityError(
                    f"release {readable(self.label)!r}: the noise at mu={self.mu:.3g} is too small to be "
                    "represented exactly. Use a smaller privacy budget, or pass epsilon=inf for no noise"
                )
            distribution = NoiseLaws.DISCRETE_GAUSSIAN if source.secure else NoiseLaws.GAUSSIAN
            noise = {"law": distribution, "scale": scale, "grid": grid}
            name = source.name
            secure = source.secure
        entry = LedgerEntry(
            mechanism=self.mechanism,
            label=self.label,
            unit=self.unit,
            relation=self.relation,
            trust=self.trust,
            sensitivity=Sensitivity(norm=Norms.L2, value=total, derivation=self.derivation),
            noise=noise,
            loss=GaussianLoss(self.mu),
            source=name,
            secure=secure,
            assumptions=self.assumptions,
            party=self.party,
        )
        return scale, entry


def unit_name(design: Design) -> str:
    """Return the unit of privacy that a report names."""
    return "record" if design.schema is None or design.schema.unit is None else design.schema.unit


def assumed(design: Design, *, data_bounds: bool, placed: bool = True) -> tuple[str, ...]:
    """Return the assumptions of every ledger line of a release on `design`; `placed`: row by row."""
    clear = design.response_public
    grouped = design.schema is not None and design.schema.unit is not None
    assumptions = [
        Assumptions.PUBLIC_N,
        *([Assumptions.PUBLIC_PLACES] if placed else ()),
        *([Assumptions.CLEAR_RESPONSE] if clear else ()),
    ]
    return (
        *assumptions,
        *([Assumptions.PUBLIC_ROWS] if grouped else ()),
        *([Assumptions.DATA_BOUNDS] if data_bounds else ()),
    )


def max_rows(design: Design) -> int:
    """Return the public cap on one unit's rows."""
    return 1 if design.schema is None else design.schema.max_rows


def plain_array(values: object, name: str) -> np.ndarray[Any, Any]:
    """Return an array of numbers, flags or objects as it is; ArgumentError, by type alone, for all else."""
    try:
        array = np.asarray(values)
    except Exception:  # an __array__ of the caller's, or a ragged list: their texts can hold values
        array = None
    if array is None or array.dtype.kind not in "biufO":
        raise ArgumentError(
            f"{name} must be an array of numbers, not of texts or dates, and not a ragged list"
        )
    return array


def plain_number(value: object, name: str) -> Any:
    """Return a number as it is; ArgumentError, by type alone, for all else."""
    if isinstance(value, np.ndarray) and value.shape == () and value.dtype.kind in "biuf":
        return value.item()
    if not isinstance(value, (numbers.Real, Decimal, np.bool_)):
        raise ArgumentError(f"{name} must be one number, got {type(value).__name__}")
    return value


def numbers_of(array: np.ndarray[Any, Any]) -> Floats:
    """Return an array of `plain_array` as float64 of the same shape: values that are not finite become 0."""
    with np.errstate(all="ignore"):
        if array.dtype.kind != "O":
            floats = array.astype(np.float64)
        else:
            floats = np.array([number_of(item) for item in array.ravel()], dtype=np.float64)
    return clamped(floats.reshape(array.shape), 0.0)


def number_of(value: object) -> float:
    """Return a number as a float; 0 for other objects."""
    if not isinstance(value, (numbers.Real, Decimal, np.bool_)):
        return 0.0
    try:
        return float(value)
    except Exception:  # whatever a caller's __float__ raises, after the charge
        return 0.0


def clamped(values: Floats, scale: float) -> Floats:
    """Return values as finite numbers, within `LARGEST_MULTIPLE` noise scales where the scale is above 0."""
    end = min(LARGEST_MULTIPLE * scale, LARGEST) if scale > 0.0 else LARGEST
    return np.asarray(np.clip(np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0), -end, end))


@error_boundary
def noisy_scalar(
    value: float,
    sensitivity: float,
    *,
    label: str = Labels.SCALAR,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    ledger: Ledger | None = None,
    rng: RngLike = None,
    source: SourceName = "lattice",
) -> ReleasedNumber:
    """Release a number with Gaussian noise, for a given sensitivity.

    Parameters
    ----------
    value : float
        Number to release. A value that is not finite counts as 0. A value whose size is above 2^24 standard
        deviations of the noise is clipped. A release that was charged therefore cannot fail because of the
        value.
    sensitivity : float
        Sensitivity: largest change of the number if one record is replaced.
    label : str
        Description for the ledger.
    epsilon : float, optional
        Epsilon of the (epsilon, delta) guarantee for everything that the call releases. Pass exactly one of
        `epsilon`, `mu` and `rho`. With ``epsilon=inf`` no noise is added.
    delta : float, optional
        Delta of the guarantee. With `mu` or `rho`, epsilon is reported at this delta.
    mu : float, optional
        Budget in Gaussian differential privacy, instead of `epsilon`.
    rho : float, optional
        Budget in zero-concentrated differential privacy (zCDP), instead of `epsilon`.
    ledger : Ledger, optional
        Budget ledger. If the release would exceed the limit of the ledger, it is refused before the value is
        read. The cost is recorded in the ledger before anything is released.
    rng : None, int or Generator, optional
        Source of randomness. With None (default) the noise is secure. With a seed or a Generator it is
        simulation noise, which is not private, and the results are marked as NOT PRIVATE.
    source : {"lattice", "opendp"}
        Sampler of the secure noise: "lattice" is the sampler of privinf (default), and "opendp" is the
        sampler of OpenDP.

    Returns
    -------
    ReleasedNumber
        The noisy number: a float with its ledger entry, its privacy loss (`loss`) and its `stamp`.

    Raises
    ------
    ArgumentError
        Raised if no budget or more than one budget is passed, or the value is not a number; nothing was
        spent.
    BudgetExceededError
        Raised if the release would exceed the limit of the ledger; the value was not read.

    Notes
    -----
    **Privacy.** Neighboring tables differ in one record (replace-one). The release satisfies Gaussian
    differential privacy with parameter mu (mu-GDP), where mu is the sensitivity divided by the standard
    deviation of the noise.

    Examples
    --------
    >>> from privinf.mechanisms import noisy_scalar
    >>> round(noisy_scalar(3.0, 0.01, mu=1.0, rng=0), 1)
    3.0
    """
    words: SpendingWords = {
        "epsilon": epsilon,
        "mu": mu,
        "rho": rho,
        "delta": delta,
        "rng": rng,
        "source": source,
    }
    spending = Spending.from_options(words, ledger)
    line = Line(
        label=label,
        mechanism=Mechanisms.GAUSSIAN,
        sensitivity=check_positive(sensitivity, "sensitivity"),
        derivation=Derivations.ONE_NUMBER,
        dimension=1,
        mu=spending.mu,
        unit="record",
        trust="central",
    )
    checked_value = plain_number(value, "value=")
    scale, entry = line.calibrated(spending.source)
    recorded = spending.ledger.spend(entry)
    with np.errstate(all="ignore"):
        number = clamped(np.array([number_of(checked_value)]), scale)
        noisy = number if scale == 0.0 else spending.source.perturb(number, scale)
    return ReleasedNumber(noisy.item(), recorded, scale, spending.delta)


def check_room(largest: float, scale: float, source: NoiseSource) -> None:
    """Raise SensitivityError if integers of 64 bits may not hold an exact sum, of size up to `largest`."""
    if scale > 0.0 and source.secure and largest / grid_step(scale) >= LARGEST_SUM:
        raise SensitivityError(
            "the noise is too small to be represented exactly for a total of this size: use a "
            "smaller privacy budget, or pass epsilon=inf for no noise"
        )


def warn_of_large_delta(delta: float | None, n: int) -> None:
    """Warn (LargeDeltaWarning) that a delta of 1/n or more protects a total of n records too little."""
    if delta is not None and delta * n >= 1.0:
        warn(
            f"delta={delta:g} is at least 1/n = {1.0 / n:.3g}, so the guarantee would allow one "
            "random record to be published: pass a delta far below 1/n",
            LargeDeltaWarning,
        )


class ExactTotal(Protocol):
    """A sum over rows, of integers or, for no noise, in doubles."""

    def floats(self) -> Floats:
        """Return the sum, each entry the double nearest to it."""

    def steps(self, grid: float) -> Integers:
        """Return the sum in steps of a grid, each entry rounded once."""


def noisy_total(sums: ExactTotal, scale: float, source: NoiseSource) -> Floats:
    """Return a sum over all rows plus N(0, scale^2) on each entry.

    Exact sums are integers, which with a secure source are rounded once, to the grid of the noise: neither
    the order of the records nor the size of the blocks can move them.
    """
    if scale == 0.0:
        return sums.floats()
    if not source.secure:
        return source.perturb(sums.floats(), scale)
    step = grid_step(scale)
    return np.asarray(source.gaussian_steps(sums.steps(step), scale / step) * step, dtype=np.float64)


def after_the_charge(read_rows: Callable[[], T]) -> T:
    """Return the result of a later pass over rows; its errors state that the charge is kept."""
    try:
        return read_rows()
    except PrivinfError as error:
        problem = type(error)(f"{error}. {CHARGE_STANDS}")
    raise problem
