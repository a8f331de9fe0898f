"""Cost of a list of planned releases, before any data are read."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from privinf.accounting.calibration import calibrate_mu
from privinf.accounting.composition import ParallelTotal, Total, available, compose
from privinf.accounting.entries import LedgerEntry
from privinf.accounting.losses import ApproximateLoss, ConcentratedLoss, GaussianLoss, Loss, PureLoss
from privinf.accounting.scopes import Scope, total_of
from privinf.error_boundary import error_boundaries, error_boundary
from privinf.errors import ArgumentError
from privinf.validation import check_choice, check_count, check_fraction, check_positive, shown
from privinf.wire import readable

if TYPE_CHECKING:
    import pandas as pd


@error_boundaries
@dataclass(frozen=True, slots=True)
class PlannedRelease:
    """Planned release: one row of the table of a plan.

    Attributes
    ----------
    label : str
        Name of the release.
    loss : Loss
        Loss of one release.
    times : int
        Number of such releases.
    scope : tuple of str
        Names of the parts of the ledger that the releases belong to (see `Ledger.scope`), from the outermost
        to the innermost.

    Notes
    -----
    **Privacy.** Costs nothing: no rows are read.
    """

    label: str
    loss: Loss
    times: int
    scope: Scope


@error_boundaries
@dataclass(frozen=True, slots=True)
class PlanReport:
    """Total cost of planned releases, as computed by :func:`plan`.

    Parameters
    ----------
    lines : tuple of PlannedRelease
        Planned releases, in the order in which they were passed.
    default_delta : float
        Delta of the (epsilon, delta) guarantee that is printed.

    Notes
    -----
    **Privacy.** Costs nothing: no rows are read. The releases of a plan are fixed in advance, so the joint
    epsilon is exact even if mechanisms of different kinds are combined. A ledger converts every loss to the
    currency of its limit (mu^2 or rho). The epsilon that corresponds to the charges of the ledger is
    therefore at least as large as the joint epsilon of the plan.
    """

    lines: tuple[PlannedRelease, ...]
    default_delta: float

    def epsilon(self, delta: float | None = None) -> float:
        """Return the joint epsilon of all planned releases, at a given delta.

        Parameters
        ----------
        delta : float, optional
            Delta of the guarantee, in (0, 1); by default the delta of the plan.

        Returns
        -------
        float
            Epsilon.

        Raises
        ------
        ArgumentError
            Raised if `delta` is outside (0, 1).
        """
        return self._total().epsilon(self.default_delta if delta is None else delta)

    def delta(self, epsilon: float) -> float:
        """Return the joint delta of all planned releases, at a given epsilon.

        Parameters
        ----------
        epsilon : float
            Epsilon of the guarantee, finite and at least 0.

        Returns
        -------
        float
            Delta.

        Raises
        ------
        ArgumentError
            Raised if `epsilon` is negative, infinite or not a number.
        """
        return self._total().delta(epsilon)

    @property
    def mu(self) -> float:
        """Cost of the plan as mu of Gaussian DP; NotAvailableError, with the reason, if mu is undefined."""
        return self._total().mu

    @property
    def rho(self) -> float:
        """Cost of the plan as rho of zCDP; NotAvailableError, with the reason, if rho is undefined."""
        return self._total().rho

    @property
    def frame(self) -> pd.DataFrame:
        """Table of the plan, with one row per planned release.

        The column ``times`` is the number of repetitions of the release. The columns ``mu``, ``rho`` and
        ``epsilon`` are the joint cost of all repetitions.
        """
        import pandas as pd

        columns = ["label", "times", "mu", "rho", "epsilon"]
        return pd.DataFrame([self._row(line) for line in self.lines], columns=columns)

    def __str__(self) -> str:
        total = self._total()
        figures = [("epsilon", total.epsilon(self.default_delta))]
        figures += [("mu", available(lambda: total.mu)), ("rho", available(lambda: total.rho))]
        texts = ", ".join(f"{name} {value:.4g}" for name, value in figures if not math.isnan(value))
        header = f"Total cost of the planned releases: {texts} (delta = {self.default_delta:g})"
        return "\n".join(
            [header, self.frame.to_string(index=False, na_rep="-", float_format="{:.4g}".format)]
        )

    def _row(self, line: PlannedRelease) -> tuple[Any, ...]:
        total = compose([line.loss] * line.times)
        mu = available(lambda: total.mu)
        rho = available(lambda: total.rho)
        return line.label, line.times, mu, rho, total.epsilon(self.default_delta)

    def _total(self) -> Total | ParallelTotal:
        return total_of((line.scope, line.loss) for line in self.lines for _ in range(line.times))


@error_boundary
def plan(releases: Sequence[Mapping[str, Any] | LedgerEntry | Loss], *, delta: float) -> PlanReport:
    """Return the total cost of planned releases about the same unit, before any data are read.

    Parameters
    ----------
    releases : sequence of mapping, LedgerEntry or Loss
        Planned releases. A mapping has the key ``"mechanism"``, the parameters of the mechanism, and
        optionally ``"times"`` (number of repetitions, default 1) and ``"label"``:

        - ``"gaussian"``: ``mu``, ``rho``, or ``epsilon`` (calibrated at ``delta``, default the plan's), or
          ``sensitivity`` and ``scale``
        - ``"randomized_response"`` or ``"pure"``: ``epsilon``
        - ``"concentrated"`` (Gumbel peeling and other mechanisms with a guarantee in zCDP): ``rho``
        - ``"external"``: ``epsilon`` and ``delta``
    delta : float
        Delta of the (epsilon, delta) guarantee that is reported, in (0, 1).

    Returns
    -------
    PlanReport
        Joint cost of the planned releases, with the methods and attributes epsilon, delta, mu and rho.

    Raises
    ------
    ArgumentError
        Raised if a mechanism or parameter is unknown, missing or out of range.

    Notes
    -----
    **Privacy.** Costs nothing: no rows are read.

    Examples
    --------
    >>> import privinf as pi
    >>> planned = pi.plan([{"mechanism": "gaussian", "mu": 0.3, "times": 5},
    ...                    {"mechanism": "randomized_response", "epsilon": 1.0}], delta=1e-6)
    >>> round(planned.epsilon(1e-6), 3), round(planned.rho, 3)
    (4.074, 0.687)
    """
    delta = check_fraction(delta, "delta")
    if isinstance(releases, (Mapping, LedgerEntry, Loss)):
        raise ArgumentError("releases= must be a sequence; put a single release into a list")
    return PlanReport(tuple(_line(release, delta) for release in releases), delta)


def _line(release: Mapping[str, Any] | LedgerEntry | Loss, delta: float) -> PlannedRelease:
    if isinstance(release, LedgerEntry):
        return PlannedRelease(readable(release.label), release.loss, 1, release.scope)
    if isinstance(release, Loss):
        return PlannedRelease(str(release.to_dict()["kind"]), release, 1, ())
    if not isinstance(release, Mapping):
        raise ArgumentError(
            "each item of releases= must be a mapping, a ledger entry or a privacy loss object, "
            f"not {type(release).__name__}"
        )
    fields = dict(release)
    mechanism = check_choice(fields.pop("mechanism", None), tuple(_READERS), "mechanism")
    times = check_count(fields.pop("times", 1), "times")
    label = str(fields.pop("label", mechanism))
    return PlannedRelease(label, _READERS[mechanism](fields, delta), times, ())


def _take(fields: Mapping[str, Any], *names: str) -> list[Any]:
    """Return the parameters of these names, refusing missing and unknown ones."""
    if set(fields) != set(names):
        absent = [f"lacks {name!r}" for name in names if name not in fields]
        unknown = [f"has the unknown field {shown(name)}" for name in fields if name not in names]
        needed = ("mechanism", *names)
        raise ArgumentError(
            f"an item of releases= {' and '.join(absent + unknown)}; an item with this mechanism "
            f"needs {', '.join(map(repr, needed[:-1]))} and {needed[-1]!r}, and may also have 'times' and "
            "'label'"
        )
    return [fields[name] for name in names]


def _gaussian(fields: Mapping[str, Any], delta: float) -> Loss:
    if {"sensitivity", "scale"} & set(fields):
        sensitivity, scale = _take(fields, "sensitivity", "scale")
        return GaussianLoss(check_positive(sensitivity, "sensitivity") / check_positive(scale, "scale"))
    unknown = set(fields) - {"mu", "rho", "epsilon", "delta"}
    if unknown:
        raise ArgumentError(
            f"a planned Gaussian release has no field {', '.join(sorted(map(repr, unknown)))}; pass "
            "its sensitivity and scale"
        )
    return GaussianLoss(calibrate_mu(**({"delta": delta} | dict(fields))))


_READERS: dict[str, Callable[[Mapping[str, Any], float], Loss]] = {
    "gaussian": _gaussian,
    "randomized_response": lambda fields, _: PureLoss(*_take(fields, "epsilon")),
    "pure": lambda fields, _: PureLoss(*_take(fields, "epsilon")),
    "concentrated": lambda fields, _: ConcentratedLoss(*_take(fields, "rho")),
    "external": lambda fields, _: ApproximateLoss(*_take(fields, "epsilon", "delta")),
}
