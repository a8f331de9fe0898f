"""What a site allows, and its check that a release costs what the server says it will."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from privinf.accounting import (
    ConcentratedLoss,
    GaussianLoss,
    LedgerEntry,
    Loss,
    PureLoss,
    pure_rho,
)
from privinf.accounting.scopes import Scope
from privinf.doors import doors
from privinf.errors import ArgumentError, NotAvailableError
from privinf.mechanisms.site_ops import Reach
from privinf.validation import check_count, check_positive

# Float arithmetic between the server's figures and the site's.
TOLERANCE = 1e-9
# What a line may say of its noise: of a secure sum, and of peeling. Vectors are counted here all the same.
NOISE_TERMS = frozenset({"law", "scale", "grid", "sites", "colluding", "threshold"})
NOISE_KNOWN = NOISE_TERMS | {"picks", "vectors"}


@doors
@dataclass(frozen=True, slots=True)
class SitePolicy:
    """What the holder of a site's rows allows.

    Parameters
    ----------
    trusted_server : bool
        Whether un-noised sums may go to the server, which promises to add the noise that it states.
    simulation : bool
        Whether releases without noise or with seeded noise are allowed: for made-up data.
    operations : tuple of str, optional
        Statistics that may be asked for; all that the package ships by default.
    largest_rho : float
        Most that one release may cost, in zCDP.
    secure_sums : bool
        Whether noisy sums may go out under masks, so that nobody sees more than the sum over the roster.
    min_sites : int
        Fewest sites over which a secure sum may go.
    max_colluding : int
        How many of the other sites may be in league with the server; their noise does not count.
    zero_out : bool
        Whether charges may be stated for a record that is replaced by one that contributes nothing. Replacing
        it by any other costs up to twice the mu of such a line.

    Raises
    ------
    ArgumentError
        A number is out of range.

    Notes
    -----
    **Privacy.** The default allows nothing but a description of the columns. A secure sum may ask for more
    sites and count with more colluding ones than the policy says, never fewer.
    """

    trusted_server: bool = False
    simulation: bool = False
    operations: tuple[str, ...] | None = None
    largest_rho: float = math.inf
    secure_sums: bool = False
    min_sites: int = 2
    max_colluding: int = 0
    zero_out: bool = False

    def __post_init__(self) -> None:
        check_positive(self.largest_rho, "largest_rho", infinite=True)
        check_count(self.min_sites, "min_sites", least=2)
        check_count(self.max_colluding, "max_colluding", least=0)

    def allow(self, op: str, *, masked: bool = False) -> None:
        """Raise NotAvailableError unless sums of `op` may be sent to the server, or into a secure sum."""
        if masked and not self.secure_sums:
            raise NotAvailableError(
                "its policy takes no part in secure sums: the holder must say SitePolicy(secure_sums=True)"
            )
        if not masked and not self.trusted_server:
            raise NotAvailableError(
                "its policy sends no un-noised sums: the holder must say SitePolicy(trusted_server=True)"
            )
        if self.operations is not None and op not in self.operations:
            raise NotAvailableError(f"its policy does not allow the statistic {op!r}")

    def accept(
        self, charges: Iterable[Mapping[str, Any]], reach: Reach, scope: Scope = ()
    ) -> tuple[LedgerEntry, ...]:
        """Return the site's own ledger lines for a query, checked against its own sensitivity.

        Parameters
        ----------
        charges : iterable of mapping
            As the server states them; their scope is the server's affair.
        reach : Reach
        scope : tuple of str
            Where in the site's ledger they stand.

        Raises
        ------
        ArgumentError
            No charge is stated, or one is too small for the noise and the sensitivity.
        NotAvailableError
            The noise is not one that the policy allows.
        """
        entries = [LedgerEntry.from_dict(charge) for charge in charges]
        if not entries:
            raise ArgumentError("the query states no release and no charge for it")
        for entry in entries:
            if not entry.secure and not self.simulation:
                raise NotAvailableError("its policy refuses releases without noise or with seeded noise")
            if entry.relation != "replace-one" and not (self.zero_out and entry.relation == "zero-out"):
                raise NotAvailableError(f"its policy counts replace-one, not {entry.relation}")
            check_entry(entry, reach)
            if _rho(entry.loss) > self.largest_rho:
                raise NotAvailableError("its policy refuses so dear a release")
        return tuple(replace(entry, id=str(uuid4()), scope=scope) for entry in entries)


def check_entry(entry: LedgerEntry, reach: Reach) -> None:
    """Raise ArgumentError unless a ledger line covers a release of a statistic of this reach.

    The line must be in units of the sum, and state at least the sensitivity that follows from the statistic,
    and at least the loss that follows from its sensitivity and its noise: for peeling, of every vector that
    the statistic has.
    """
    stated = entry.sensitivity
    if stated is None:
        raise ArgumentError(f"the line {entry.label!r} states no sensitivity")
    if (entry.unit == "client") != (reach.unit == "client"):
        raise ArgumentError(f"the line {entry.label!r} is about a {entry.unit}, its statistic about others")
    unknown = sorted(set(entry.noise) - NOISE_KNOWN)
    if unknown:
        raise ArgumentError(f"the line {entry.label!r}: a site knows no {unknown[0]!r} of a noise")
    picks = vectors = 1
    if "picks" not in entry.noise:
        needed = reach.sensitivity(entry.relation)
    else:
        picks, vectors = _picks(entry, reach), math.prod(reach.shape[:-1])
        needed = reach.linf * (math.sqrt(picks) if stated.norm == "l2" else 1.0)
    if not stated.value >= needed * (1.0 - TOLERANCE):
        raise ArgumentError(f"the line {entry.label!r} states too small a sensitivity for its statistic")
    least = _least_rho(entry, stated.value, picks) * vectors
    if not _rho(entry.loss) >= least * (1.0 - TOLERANCE):
        raise ArgumentError(f"the line {entry.label!r} states too small a loss for its noise")


def _picks(entry: LedgerEntry, reach: Reach) -> int:
    """Return how many entries of each vector a line says that are picked."""
    picks = entry.noise["picks"]
    if isinstance(picks, bool) or not isinstance(picks, int) or not 1 <= picks <= reach.shape[-1]:
        raise ArgumentError(f"the line {entry.label!r} must pick 1 to {reach.shape[-1]} entries")
    if entry.relation != "replace-one":
        raise ArgumentError(f"the line {entry.label!r}: picks are charged replace-one")
    return picks


def _least_rho(entry: LedgerEntry, sensitivity: float, picks: int) -> float:
    """Return what a release with this noise costs in zCDP, by the mechanism's own formula."""
    scale = float(entry.noise.get("scale", 0.0))
    if scale == 0.0:
        return math.inf
    ratio = sensitivity / scale
    match entry.mechanism:
        case "gaussian":
            return ratio**2 / 2.0
        case "gumbel peeling":
            return picks * ratio**2 / 2.0
        case "laplace peeling":
            return picks * pure_rho(2.0 * ratio)
        case "laplace":
            return picks * pure_rho(ratio)
    raise ArgumentError(f"no release by {entry.mechanism!r} is known here")


def _rho(loss: Loss) -> float:
    match loss:
        case GaussianLoss(mu):
            return mu * mu / 2.0
        case ConcentratedLoss(rho):
            return rho
        case PureLoss(epsilon):
            return pure_rho(epsilon)
    raise ArgumentError(f"{type(loss).__name__} has no zCDP")
