"""Budget: a hard limit in a currency that adds up exactly, whatever order the spends come in."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from privinf.accounting.calibration import exact, float_down, sqrt_down
from privinf.accounting.conversions import gaussian_epsilon, gaussian_mu, rho_to_epsilon
from privinf.accounting.losses import (
    INTACT_FILE,
    ApproximateLoss,
    ConcentratedLoss,
    GaussianLoss,
    Loss,
    PureLoss,
    ThresholdLoss,
    check_cost,
    pure_mu,
    pure_rho,
)
from privinf.error_boundary import error_boundaries
from privinf.errors import ArgumentError, BudgetExceededError, NotAvailableError
from privinf.validation import (
    check_choice,
    check_count,
    check_delta,
    check_fraction,
    check_positive,
    is_zero,
    shown,
)

# Pieces of a budget are rounded down by this much, so that their sum never passes the whole.
ROUNDING = 1.0 - 1e-12

Currency = Literal["mu2", "rho", "pure"]

MAX_SHARES = 100_000  # pieces into which a budget can be cut
DEFAULT_DELTA = 1e-6  # at which epsilon is stated where no delta was given

# (epsilon, delta) is converted by root finding: spends calibrated to the same pair must not fail by an ulp.
_CONVERSION_SLACK = 1 + Fraction(1, 10**12)
PURE_LIMIT = (
    "delta=0 declares a limit in pure epsilon, which no release with Gaussian noise "
    "satisfies; pass a positive delta to allow Gaussian noise"
)
_FRACTION = "[0-9]{1,2000}(/0*[1-9][0-9]{0,2000})?"
_LARGEST_LIMIT = 10**300  # of a budget that is read from a file


@error_boundaries
@dataclass(frozen=True, slots=True, init=False, repr=False)
class Budget:
    """Hard limit on the privacy loss of one unit (a record or a person), which a ledger enforces.

    Parameters
    ----------
    epsilon, delta : float, optional
        Limit as an (epsilon, delta) guarantee. The limit is converted once to mu^2, where mu is the parameter
        of the Gaussian mechanism with the same guarantee. With ``delta=0`` the limit is a pure epsilon, which
        no release with Gaussian noise satisfies.
    mu : float, optional
        Limit as mu of Gaussian differential privacy (GDP); the limit is stored as mu^2.
    rho : float, optional
        Limit as rho of zero-concentrated differential privacy (zCDP).

    Attributes
    ----------
    currency : {"mu2", "rho", "pure"}
        Currency in which the costs of releases are added: mu^2 of GDP, rho of zCDP, or pure epsilon.
    limit : Fraction
        Exact limit in the currency of the budget. A float counts as the decimal number that Python prints for
        it.
    delta : float or None
        Delta of the (epsilon, delta) guarantee that was passed as the limit; None for other limits.

    Raises
    ------
    ArgumentError
        Raised if not exactly one of `epsilon`, `mu` and `rho` is passed, if the value is not positive and
        finite, or if `epsilon` is passed without `delta`.

    Notes
    -----
    **Privacy.** A limit in mu^2, in rho or in pure epsilon is also valid if the parameters of later releases
    depend on earlier releases. A limit on an (epsilon, delta) total is not valid for such adaptive releases,
    so it is converted to mu^2.

    References
    ----------
    Whitehouse, Ramdas, Rogers and Wu (2023), Fully-adaptive composition in differential privacy.

    Examples
    --------
    >>> import privinf as pi
    >>> pi.Budget(epsilon=1.0, delta=1e-6).currency, pi.Budget(rho=0.3).split(3)[0].limit
    ('mu2', Fraction(1, 10))
    """

    currency: Currency
    limit: Fraction
    delta: float | None

    def __init__(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        rho: float | None = None,
    ) -> None:
        levels = {"epsilon": epsilon, "mu": mu, "rho": rho}
        stated_levels = {name: level for name, level in levels.items() if level is not None}
        if len(stated_levels) != 1:
            raise ArgumentError(
                f"pass exactly one of epsilon, mu and rho, got {' and '.join(stated_levels) or 'none'}"
            )
        ((name, level),) = stated_levels.items()
        if isinstance(level, float) and math.isinf(level):
            raise ArgumentError(f"{name} must be finite; for a ledger without a limit, pass no budget")
        amount = exact(check_cost(check_positive(level, name), name))
        if delta is not None and name != "epsilon":
            raise ArgumentError(f"delta= can be combined only with epsilon=, not with {name}=; omit delta=")
        if name == "mu":
            self._set("mu2", amount**2, None)
        elif name == "rho":
            self._set("rho", amount, None)
        elif is_zero(delta):
            self._set("pure", amount, None)
        else:
            delta = check_delta(delta, pure=PURE_LIMIT)
            self._set("mu2", exact(gaussian_mu(float(amount), delta)) ** 2 * _CONVERSION_SLACK, delta)

    def split(self, k: int) -> tuple[Budget, ...]:
        """Split the budget into `k` equal budgets, whose sum is exactly this budget.

        Parameters
        ----------
        k : int
            Number of parts.

        Returns
        -------
        tuple of Budget
            The `k` budgets, in the same `currency` as this budget.
        """
        if check_count(k, "k") > MAX_SHARES:
            raise ArgumentError(
                f"k={shown(k)} is too large: a budget can be divided into at most {MAX_SHARES} shares"
            )
        share = self.limit / k
        return tuple(Budget._of(self.currency, share, self.delta) for _ in range(k))

    @property
    def mu(self) -> float:
        """Largest mu of one Gaussian release within the budget; not available in pure epsilon."""
        if self.currency == "pure":
            raise NotAvailableError(
                "this ledger's limit is a pure epsilon (delta=0), which no release with Gaussian noise "
                "satisfies; declare the limit with a positive delta, or as mu or rho"
            )
        return sqrt_down(self.limit if self.currency == "mu2" else 2 * self.limit)

    @property
    def rho(self) -> float:
        """Limit as rho of zCDP, rounded down; NotAvailableError if the limit is a pure epsilon."""
        if self.currency == "pure":
            raise NotAvailableError(
                "this limit in pure epsilon cannot be converted to rho of zCDP; declare the limit as "
                "Budget(rho=...) to spend rho"
            )
        return float_down(self.limit if self.currency == "rho" else self.limit / 2)

    def epsilon(self, delta: float | None = None) -> float:
        """Return the epsilon of the (epsilon, delta) guarantee after the total budget is spent.

        Parameters
        ----------
        delta : float, optional
            Delta at which epsilon is stated; by default the delta of the budget.

        Returns
        -------
        float
            Epsilon.

        Raises
        ------
        ArgumentError
            Raised if a delta is needed, and neither the call nor the budget has one.
        """
        if self.currency == "pure":
            return float_down(self.limit)
        delta = self.delta if delta is None else delta
        if delta is None:
            raise ArgumentError(
                "delta= is missing; a limit in mu or rho corresponds to an epsilon only for a given delta"
            )
        if self.currency == "mu2":
            return gaussian_epsilon(math.sqrt(self.limit), delta)
        return rho_to_epsilon(float(self.limit), delta)

    def cost(self, loss: Loss) -> Fraction:
        """Return the cost of a privacy loss, in the currency of the budget.

        Parameters
        ----------
        loss : Loss
            Loss of a release.

        Returns
        -------
        Fraction
            Cost, exact.

        Raises
        ------
        BudgetExceededError
            Raised if the cost is infinite, because the release has no noise, or because no finite cost can be
            derived in this currency.
        """
        return cost_in(self.currency, loss)

    def described(self, amount: Fraction | None = None, relation: str = "") -> str:
        """Describe an amount of the budget as text, which states first epsilon and then mu or rho.

        Parameters
        ----------
        amount : Fraction, optional
            Amount to describe, in the currency of the budget; by default the limit.
        relation : str
            Neighboring relation to name in the text, such as "replace-one"; by default none is named.

        Returns
        -------
        str
            The text states epsilon at the delta of the limit. A limit in mu or rho has no delta, and its
            epsilon is stated at delta 1e-6.
        """
        value = self.limit if amount is None else amount
        if self.currency == "pure":
            return f"epsilon {relation}{float(value):.6g} (pure)"
        delta = DEFAULT_DELTA if self.delta is None else self.delta
        if self.currency == "mu2":
            name = "mu"
            size = sqrt_down(value)
            epsilon = gaussian_epsilon(size, delta)
        else:
            name = "rho"
            size = float_down(value)
            epsilon = rho_to_epsilon(size, delta)
        return f"epsilon {relation}{epsilon:.6g} at delta {delta:g} ({name} {relation}{size:.6g})"

    @property
    def adding(self) -> str:
        """Clause on why epsilons of several fits and of the rest do not add up; empty for a pure limit."""
        units = {"mu2": "squares of mu", "rho": "rho"}
        unit = units.get(self.currency)
        return f"costs add up in {unit}, not in epsilon" if unit else ""

    def __str__(self) -> str:
        return self.described(relation="<= ")

    def __repr__(self) -> str:
        return f"<Budget: {self}>"

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that can be written as JSON.

        Returns
        -------
        dict
            Dictionary in which the limit is a fraction as text, such as "1/10".
        """
        return {"currency": self.currency, "limit": str(self.limit), "delta": self.delta}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Budget:
        """Make the object from a dictionary that `to_dict` returned.

        Parameters
        ----------
        record : mapping
            Result of `to_dict`.

        Returns
        -------
        Budget
            The same budget.

        Raises
        ------
        ArgumentError
            Raised if the dictionary does not describe a budget.
        """
        try:
            limit = record["limit"]
            currency = record["currency"]
            delta = record["delta"]
        except (KeyError, TypeError):
            raise ArgumentError(
                "a stored budget must have the fields 'currency' ('epsilon', 'mu' or 'rho'), 'limit' and "
                f"'delta'{INTACT_FILE}"
            ) from None
        limit = _read_limit(limit)
        check_choice(currency, Currency, "currency")
        return cls._of(currency, limit, delta if delta is None else check_fraction(delta, "delta"))

    @classmethod
    def _of(cls, currency: Currency, limit: Fraction, delta: float | None) -> Budget:
        budget = cls.__new__(cls)
        budget._set(currency, limit, delta)
        return budget

    def _set(self, currency: Currency, limit: Fraction, delta: float | None) -> None:
        object.__setattr__(self, "currency", currency)
        object.__setattr__(self, "limit", limit)
        object.__setattr__(self, "delta", delta)


def _read_limit(text: Any) -> Fraction:
    """Return the fraction of a text such as "1/2"; powers of ten could fill the memory, and are none."""
    if not isinstance(text, str) or not re.fullmatch(_FRACTION, text):
        raise ArgumentError(f"the stored limit of a budget must be a text such as '2' or '7/2'{INTACT_FILE}")
    limit = Fraction(text)
    if limit > _LARGEST_LIMIT:
        raise ArgumentError(
            f"the field 'limit' of a stored budget must be at most {float(_LARGEST_LIMIT):g}{INTACT_FILE}"
        )
    return limit


def cost_in(currency: Currency, loss: Loss) -> Fraction:
    """Return the exact cost of one loss in one currency; see :meth:`Budget.cost`."""
    match currency, loss:
        case "mu2", GaussianLoss(mu):
            return _finite(mu) ** 2
        case "mu2", PureLoss(epsilon):
            return _finite(pure_mu(epsilon)) ** 2
        case "rho", GaussianLoss(mu):
            return _finite(mu) ** 2 / 2
        case "rho", PureLoss(epsilon):
            return _finite(pure_rho(epsilon))
        case "rho", ConcentratedLoss(rho):
            return _finite(rho)
        case "pure", PureLoss(epsilon):
            return _finite(epsilon)
    raise BudgetExceededError(f"{_reason(currency, loss)}; nothing was recorded or released")


def rounded_budget(level: float) -> float:
    """Return an epsilon, mu or rho rounded up to four digits, which is never below the level itself."""
    if level <= 0.0 or not math.isfinite(level):
        return level
    places = 3 - math.floor(math.log10(level))
    near = round(level, places)
    return near if near >= level else round(near + 10.0**-places, places)


def _finite(value: float) -> Fraction:
    if math.isinf(value):
        raise BudgetExceededError(
            "a release without noise has infinite privacy loss and exceeds every limit; nothing "
            "was recorded or released. Pass a finite budget, or a ledger without a limit"
        )
    return exact(value)


def _reason(currency: Currency, loss: Loss) -> str:
    if isinstance(loss, ApproximateLoss):
        return (
            "a release under an (epsilon, delta) guarantee can reveal everything with probability "
            "delta, so its cost in mu, rho or pure epsilon is infinite and exceeds every limit; "
            "use a ledger without a limit"
        )
    if isinstance(loss, ThresholdLoss):
        return (
            "noisy counts of undeclared levels can reveal one person's level with probability "
            "delta, so their cost in mu, rho or pure epsilon is infinite; declare the levels, or "
            "use a ledger without a limit"
        )
    if currency == "mu2":
        return (
            "a release that is known only to satisfy zCDP has no finite mu, because zCDP does not "
            "imply Gaussian DP; declare the limit as Budget(rho=...)"
        )
    kind = (
        "a Gaussian release"
        if isinstance(loss, GaussianLoss)
        else "a release that is only known to satisfy zCDP"
    )
    return (
        f"{kind} does not satisfy any limit in pure epsilon (delta=0); declare the limit in rho "
        "or mu, or with a positive delta"
    )
