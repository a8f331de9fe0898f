"""Policies of sites, and the check that a release costs what the server states."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from privinf.accounting import (
    ConcentratedLoss,
    GaussianLoss,
    LedgerEntry,
    Loss,
    PureLoss,
    Sensitivity,
    pure_rho,
)
from privinf.accounting.scopes import Scope
from privinf.error_boundary import error_boundaries
from privinf.errors import ArgumentError, NotAvailableError, PrivinfError, UnforeseenError
from privinf.federation.envelope import NOT_LISTED, Analyst
from privinf.mechanisms.catalogue import SHIPPED, look_up
from privinf.mechanisms.statistics.ops import RecordSensitivity
from privinf.validation import check_count, check_positive
from privinf.wire import Mechanisms, NoiseLaws, Norms, readable

if TYPE_CHECKING:
    from privinf.federation.messages import Query

# Float arithmetic between the server's figures and the site's.
TOLERANCE = 1e-9
# Noise terms that a line may state: of a secure sum, and of peeling. Vectors are counted here all the same.
NOISE_TERMS = frozenset({"law", "scale", "grid", "sites", "colluding", "threshold", "question"})
# "key" is the fingerprint of a trusted server's noise key.
NOISE_KNOWN = NOISE_TERMS | {"picks", "vectors", "key"}
# The distributions that a mechanism's noise can follow.
NOISE_MODELS = {
    Mechanisms.GAUSSIAN: (NoiseLaws.GAUSSIAN, NoiseLaws.DISCRETE_GAUSSIAN),
    Mechanisms.GUMBEL_PEELING: (NoiseLaws.GUMBEL,),
    Mechanisms.LAPLACE_PEELING: (NoiseLaws.LAPLACE, NoiseLaws.DISCRETE_LAPLACE),
    Mechanisms.LAPLACE: (NoiseLaws.LAPLACE, NoiseLaws.DISCRETE_LAPLACE),
}
MOST_NOISE = 1e300  # scale of the noise in a ledger line
# New designs that a site accepts where its policy allows sums and states no number.
NEW_DESIGNS = 16
# Remedy for a holder whose policy refuses designs.
ALLOW_SUMS = (
    "set SitePolicy(secure_sums=True) for secure sums, or SitePolicy(trusted_server=True) "
    "if the server may see sums without noise"
)
ALLOW_DESIGNS = (
    "list the digests of allowed designs in SitePolicy(designs=[...]), or allow a number "
    "of new designs with SitePolicy(new_designs=...)"
)
# Of releases without secure noise, where the policy does not allow simulation.
NO_SIMULATION = (
    "the site's policy does not allow releases without noise or with seeded noise, which are for simulations "
    "only (SitePolicy(simulation=True))"
)
# Of sums that the server sees before it adds noise, where the policy allows only secure sums.
NO_CLEAR_SUMS = (
    "the site's policy does not allow sums without noise; the person who runs the site must set "
    "SitePolicy(trusted_server=True), or the analyst must use secure sums (trust='secure-sum')"
)
# Of secure sums, where the policy allows none, or more sites must take part.
NO_SECURE_SUMS = (
    "the site's policy does not allow secure sums; the person who runs the site must set "
    "SitePolicy(secure_sums=True)"
)
TOO_FEW_SITES = (
    "the site's policy allows only secure sums over at least {} sites; let more sites take part, or change "
    "min_sites in the policy"
)
MORE_COLLUDING = (
    "the site's policy requires noise that protects even if {0} other site(s) collude with the server; pass "
    "max_colluding={0} or more to SecureServer"
)
# Of one release.
NO_STATISTIC = (
    "the site's policy does not allow the statistic {!r}; the person who runs the site must list it in "
    "SitePolicy(operations=...)"
)
TOO_DEAR = (
    "the privacy loss of this release (rho of zCDP) is larger than the site's policy allows for one release; "
    "use a smaller budget, or the person who runs the site must raise SitePolicy(largest_rho=...)"
)
DIGEST = re.compile("[0-9a-f]{64}")  # of a design, in hexadecimal digits


@error_boundaries
@dataclass(frozen=True, slots=True, kw_only=True)
class SitePolicy:
    """Policy of a site: the permissions that the holder of the rows gives to servers and analysts.

    Parameters
    ----------
    trusted_server : bool
        Whether sums without noise may be sent to a server, which is trusted to add the noise that the query
        states.
    simulation : bool
        Whether releases without noise, or with seeded noise, are allowed. Allow such releases only for
        simulated data.
    operations : tuple of str, optional
        Names of the statistics that may be queried. By default they are all statistics of the package.
        Statistics of the studies in the repository must be named.
    largest_rho : float
        Largest cost of one release, as rho of zCDP. The site computes this cost from the noise.
    secure_sums : bool
        Whether the site answers queries for secure sums, by sending noisy sums with masks, so that only the
        total over the sites is revealed.
    min_sites : int
        Smallest allowed number of sites in a secure sum.
    max_colluding : int
        Number of other sites that may collude with the server. The noise of this number of sites does not
        count toward the guarantee.
    zero_out : bool
        Whether queries with the "zero-out" guarantee are allowed. Under this guarantee, one record is
        replaced by a record that contributes nothing. If one record is replaced by any other record, the loss
        is up to twice the stated mu.
    designs : tuple of str
        Digests (``Design.digest``) of designs that are allowed. The design with which the site was made is
        always allowed.
    new_designs : int, optional
        Number of further designs that the site accepts, in addition to `designs` and to the design with which
        the site was made. The ledger of the site counts each design once. The default is 16 if the policy
        allows `trusted_server` or `secure_sums`, and otherwise 0.
    analysts : list of mapping
        Analysts who may query the site. Each analyst is a mapping such as ``{"name": ..., "key": ...,
        "budget": {"epsilon": ..., "delta": ...}}``. The key is the public Ed25519 key of the analyst
        (``IdentityKey.verifying``). The budget is optional, and limits the total cost of the queries of this
        analyst. By default anyone who can connect to the site may query. If analysts are listed, every query
        must be signed by one of them. Queries to a `Site` in the same process are not signed, so a site that
        lists analysts refuses all of them.

    Raises
    ------
    ArgumentError
        Raised if a number is out of range, or a digest, a name or a key is invalid.

    Notes
    -----
    **Privacy.** The default policy allows only a description of the columns. A query for a secure sum may
    have more sites, and may protect against more colluding sites, than the policy requires, but never fewer.
    A design is public, and sending a design costs no budget. The number of new designs is limited only to
    limit storage and computing time.
    """

    trusted_server: bool = False
    simulation: bool = False
    operations: tuple[str, ...] | None = None
    largest_rho: float = math.inf
    secure_sums: bool = False
    min_sites: int = 2
    max_colluding: int = 0
    zero_out: bool = False
    designs: tuple[str, ...] = ()
    new_designs: int | None = None
    analysts: tuple[Analyst, ...] = ()

    def __post_init__(self) -> None:
        check_positive(self.largest_rho, "largest_rho", infinite=True)
        check_count(self.min_sites, "min_sites", least=2)
        check_count(self.max_colluding, "max_colluding", least=0)
        look_up(self.operations or ())
        if self.new_designs is not None:
            check_count(self.new_designs, "new_designs", least=0)
        if isinstance(self.designs, str) or not all(
            isinstance(digest, str) and DIGEST.fullmatch(digest) for digest in self.designs
        ):
            raise ArgumentError(
                "designs= must be a list of design digests (Design.digest), each a text of 64 "
                "hexadecimal digits"
            )
        object.__setattr__(self, "designs", tuple(self.designs))
        if self.analysts != ():
            object.__setattr__(self, "analysts", Analyst.listed(self.analysts))

    def naming(self, operations: Iterable[str]) -> SitePolicy:
        """Return a copy of the policy that allows additional statistics.

        Parameters
        ----------
        operations : iterable of str
            Names of the additional statistics.

        Returns
        -------
        SitePolicy
            The copy. The original policy is unchanged.
        """
        allowed = sorted(SHIPPED) if self.operations is None else self.operations
        return replace(self, operations=tuple(dict.fromkeys([*allowed, *operations])))

    @property
    def stated(self) -> dict[str, Any]:
        """Rules that the site states to everyone who can connect, so that no query in vain is charged."""
        return {
            "trusted_server": self.trusted_server,
            "secure_sums": self.secure_sums,
            "min_sites": self.min_sites,
            "max_colluding": self.max_colluding,
            "simulation": self.simulation,
            "largest_rho": None if math.isinf(self.largest_rho) else self.largest_rho,
            "operations": None if self.operations is None else list(self.operations),
        }

    @property
    def most_designs(self) -> int:
        """Number of accepted designs in addition to the designs that the holder lists."""
        if self.new_designs is not None:
            return self.new_designs
        return NEW_DESIGNS if self.trusted_server or self.secure_sums else 0

    def allow_designs(self) -> None:
        """Raise NotAvailableError if the policy allows no designs other than the design of the site."""
        if self.most_designs or self.designs:
            return
        remedies = [] if self.trusted_server or self.secure_sums else [ALLOW_SUMS]
        remedies += [] if self.new_designs is None else [ALLOW_DESIGNS]
        changes = remedies[0] if len(remedies) == 1 else f"do both: (1) {remedies[0]}; (2) {remedies[1]}"
        raise NotAvailableError(
            f"the site's policy allows no regressions (designs); the person who runs the site must {changes}"
        )

    def allow_reservations(self) -> None:
        """Raise NotAvailableError if the policy allows no sums, because then no cost can be reserved."""
        if not self.trusted_server and not self.secure_sums:
            raise NotAvailableError(
                "the site's policy allows no sums, so no budget can be reserved for them; the "
                "person who runs the site must " + ALLOW_SUMS
            )

    def allow_analyst(self, name: str) -> Analyst | None:
        """Return the analyst with this name.

        Parameters
        ----------
        name : str
            Name of the analyst who signed the query.

        Returns
        -------
        analyst or None
            Name, key and limit of the analyst; None if the policy lists no analysts.

        Raises
        ------
        NotAvailableError
            Raised if the policy lists analysts, but none with this name.
        """
        analysts = [analyst for analyst in self.analysts if analyst.name == name]
        if self.analysts and not analysts:
            raise NotAvailableError(NOT_LISTED)
        return analysts[0] if analysts else None

    def allow(self, op: str, *, masked: bool = False) -> None:
        """Raise NotAvailableError unless the policy allows sums of the statistic `op`.

        Parameters
        ----------
        op : str
            Name of the statistic.
        masked : bool
            Whether the sum is a part of a secure sum. If False, the sum is sent to the server without noise.

        Raises
        ------
        NotAvailableError
            Raised if the policy does not allow sums of this statistic.
        """
        if masked and not self.secure_sums:
            raise NotAvailableError(NO_SECURE_SUMS)
        if not masked and not self.trusted_server:
            raise NotAvailableError(NO_CLEAR_SUMS)
        if op not in (SHIPPED if self.operations is None else self.operations):
            raise NotAvailableError(NO_STATISTIC.format(op))

    def accept(
        self,
        charges: Iterable[Mapping[str, Any]],
        record_sensitivity: RecordSensitivity,
        scope: Scope = (),
        *,
        masked: bool = False,
    ) -> tuple[LedgerEntry, ...]:
        """Check that the stated costs of a query suit its sensitivity, and return the entries of the site.

        Parameters
        ----------
        charges : iterable of mapping
            Ledger entries that the server states. The scopes in these entries refer to the ledger of the
            server.
        record_sensitivity : sensitivity of the statistic
            Sensitivity of the sum, as the site computes it.
        scope : tuple of str
            Names of the part of the site's ledger to which the entries belong.
        masked : bool
            Whether the entries are for a secure sum.

        Returns
        -------
        tuple of LedgerEntry
            Entries to record in the ledger of the site.

        Raises
        ------
        ArgumentError
            Raised if no charge is stated, or a charge is too small for the noise and the sensitivity.
        NotAvailableError
            Raised if the policy does not allow noise of this kind.
        """
        entries = [_entry_of(charge) for charge in charges]
        if not entries:
            raise ArgumentError(
                "the query states no privacy loss, so the site cannot charge its ledger and does not answer: "
                "the server must send the ledger entries of the sum as charges= of the query"
            )
        for entry in entries:
            if not entry.secure and not self.simulation:
                raise NotAvailableError(NO_SIMULATION)
            if entry.relation != "replace-one" and not (self.zero_out and entry.relation == "zero-out"):
                raise NotAvailableError(
                    'the site\'s policy requires relation="replace-one", but the query has '
                    f'relation="{entry.relation}": make the query with relation="replace-one"'
                )
            if check_entry(entry, record_sensitivity, masked=masked) > self.largest_rho:
                raise NotAvailableError(TOO_DEAR)
        return tuple(entry.filed(str(uuid4()), scope) for entry in entries)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedPolicy:
    """The rules that a site states (`SitePolicy.stated`), by which a server refuses before it charges.

    A rule that an older site does not state, or that is malformed, refuses nothing here: the site refuses.
    """

    trusted_server: bool = True
    secure_sums: bool = True
    min_sites: int = 0
    max_colluding: int = 0
    simulation: bool = True
    largest_rho: float = math.inf
    operations: tuple[str, ...] | None = None

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> StatedPolicy:
        """Return the rules in the description of a site."""
        permissions = ("trusted_server", "secure_sums", "simulation")
        rules: dict[str, Any] = {name: False for name in permissions if facts.get(name) is False}
        for name in ("min_sites", "max_colluding"):
            if type(facts.get(name)) is int:
                rules[name] = facts[name]
        if type(facts.get("largest_rho")) in (int, float):
            rules["largest_rho"] = float(facts["largest_rho"])
        if isinstance(facts.get("operations"), list):
            rules["operations"] = tuple(facts["operations"])
        return cls(**rules)

    def check(self, *, secure: bool, colluding: int | None, sites: int) -> None:
        """Raise NotAvailableError if the policy forbids the noise, or the kind of sums.

        Parameters
        ----------
        secure : bool
            Whether the noise is secure.
        colluding : int or None
            Number of sites that may collude with the server in a secure sum; None if sites send sums to which
            the server adds the noise.
        sites : int
            Number of sites of the sum.
        """
        if not secure and not self.simulation:
            raise NotAvailableError(NO_SIMULATION)
        if colluding is None:
            if not self.trusted_server:
                raise NotAvailableError(NO_CLEAR_SUMS)
            return
        if not self.secure_sums:
            raise NotAvailableError(NO_SECURE_SUMS)
        if sites < self.min_sites:
            raise NotAvailableError(TOO_FEW_SITES.format(self.min_sites))
        if colluding < self.max_colluding:
            raise NotAvailableError(MORE_COLLUDING.format(self.max_colluding))

    def check_release(self, query: Query, record_sensitivity: RecordSensitivity) -> None:
        """Raise NotAvailableError if the policy forbids the statistic of a query, or its price."""
        if self.operations is not None and query.op not in self.operations:
            raise NotAvailableError(NO_STATISTIC.format(query.op))
        if math.isinf(self.largest_rho):
            return
        for charge in query.charges:
            rho = check_entry(_entry_of(charge), record_sensitivity, masked=bool(query.masking))
            if rho > self.largest_rho:
                raise NotAvailableError(TOO_DEAR)


def _entry_of(charge: Mapping[str, Any]) -> LedgerEntry:
    """Return a stated charge as a ledger line; ArgumentError if it is none."""
    problem = "a charge of the query is not a valid entry for the site's ledger"
    try:
        return LedgerEntry.from_dict(charge)
    except PrivinfError as error:
        problem = problem if isinstance(error, UnforeseenError) else str(error)
    raise ArgumentError(problem)


def check_entry(entry: LedgerEntry, record_sensitivity: RecordSensitivity, *, masked: bool = False) -> float:
    """Return the cost of a release in zCDP; ArgumentError unless its ledger line covers it, in kind.

    The line must be in units of the sum, and state at least the sensitivity that follows from the statistic.
    Its loss is recomputed from the mechanism, the scale of the noise and the sensitivity, for peeling of
    every selection in every vector that the statistic has; the stated loss is compared with one of the same
    kind only (`least_losses`).
    """
    sensitivity = entry.sensitivity
    if sensitivity is None:
        raise ArgumentError(
            f"the entry {readable(entry.label)!r} for the site's ledger must state the sensitivity of its sum"
        )
    if (entry.unit == "client") != (record_sensitivity.unit == "client"):
        raise ArgumentError(
            f"the entry {readable(entry.label)!r} for the site's ledger states the privacy unit "
            f"{entry.unit!r}, but the statistic of the query has the privacy unit "
            f"{record_sensitivity.unit!r}: state the unit {record_sensitivity.unit!r} in the entry"
        )
    scale = _scale(entry)
    peeled = "picks" in entry.noise
    selections = _selections(entry, record_sensitivity) if peeled else 1
    needed = _needed(entry, sensitivity, record_sensitivity, selections if peeled else None)
    if not sensitivity.value >= needed * (1.0 - TOLERANCE):
        raise ArgumentError(
            f"the entry {readable(entry.label)!r} for the site's ledger states the sensitivity "
            f"{sensitivity.value:.6g}, but the statistic of the query needs at least {needed:.6g}"
        )
    ratio = max(sensitivity.value, needed) / scale if scale > 0.0 else math.inf
    vectors = math.prod(record_sensitivity.shape[:-1]) if peeled else 1
    losses = least_losses(entry.mechanism, ratio, selections, vectors, masked=masked)
    covered = losses.get(type(entry.loss)) if scale > 0.0 else math.inf
    if covered is None:
        kinds = " or ".join(kind.__name__ for kind in losses)
        raise ArgumentError(
            f"the privacy loss in the entry {readable(entry.label)!r} for the site's ledger must be of "
            f"class {kinds}, because its mechanism is {entry.mechanism!r}"
        )
    if not _amount(entry.loss) >= covered * (1.0 - TOLERANCE):
        raise ArgumentError(
            f"the entry {readable(entry.label)!r} for the site's ledger states a privacy loss that "
            "is too small for its noise"
        )
    if entry.secure and math.isinf(_amount(entry.loss)):
        raise ArgumentError(
            f"the entry {readable(entry.label)!r} for the site's ledger declares secure noise (secure=True), "
            "but its privacy loss is infinite, so the release has no noise: state secure=False in the entry"
        )
    return least_rho(entry.mechanism, ratio, selections, vectors)


def _scale(entry: LedgerEntry) -> float:
    """Return the scale of a line's noise after checking its noise terms; 0 without noise."""
    if entry.mechanism not in NOISE_MODELS:
        raise ArgumentError(
            f"the site's version of privinf does not have the mechanism {entry.mechanism!r}; "
            "install the same version at the site and the server"
        )
    unknown = sorted(set(entry.noise) - NOISE_KNOWN)
    if unknown:
        raise ArgumentError(
            f"the query's ledger entry {readable(entry.label)!r} describes its noise with the field "
            f"{unknown[0]!r}, which this version of privinf does not have; install the same version at the "
            "site and the server"
        )
    scale = entry.noise.get("scale", 0.0)
    if isinstance(scale, bool) or not isinstance(scale, (int, float)) or not 0.0 <= scale <= MOST_NOISE:
        raise ArgumentError(
            f"the entry {readable(entry.label)!r} for the site's ledger must state the scale of its "
            "noise as a number"
        )
    if (
        scale > 0.0
        and entry.noise.get("law", NOISE_MODELS[entry.mechanism][0]) not in NOISE_MODELS[entry.mechanism]
    ):
        raise ArgumentError(
            f"the query's ledger entry {readable(entry.label)!r} has the mechanism {entry.mechanism!r} but "
            "states another mechanism's distribution of the noise; install the same version of privinf at "
            "the site and the server"
        )
    return float(scale)


def _selections(entry: LedgerEntry, record_sensitivity: RecordSensitivity) -> int:
    """Return the number of selected entries of each vector, as a ledger line states it."""
    selections = entry.noise["picks"]
    if (
        isinstance(selections, bool)
        or not isinstance(selections, int)
        or not 1 <= selections <= record_sensitivity.shape[-1]
    ):
        raise ArgumentError(
            f"the entry {readable(entry.label)!r} for the site's ledger must state a number "
            f"of selected columns from 1 to {record_sensitivity.shape[-1]}"
        )
    if entry.relation != "replace-one":
        raise ArgumentError(
            f"the entry {readable(entry.label)!r} for the site's ledger is a private selection, "
            'which needs relation="replace-one"'
        )
    return selections


def _needed(
    entry: LedgerEntry,
    sensitivity: Sensitivity,
    record_sensitivity: RecordSensitivity,
    selections: int | None,
) -> float:
    """Return the sensitivity that follows from the statistic, in the norm that goes with the mechanism.

    Laplace noise on a whole vector goes with its l1 norm. For selections every entry is a separate release,
    with the sensitivity of an entry, but their Gaussian values, which are one.
    """
    if entry.mechanism == Mechanisms.GAUSSIAN:
        norm = Norms.L2
        needed = (
            record_sensitivity.sensitivity(entry.relation)
            if selections is None
            else math.sqrt(selections) * record_sensitivity.linf
        )
    elif selections is not None:
        norm = Norms.LINF
        needed = record_sensitivity.linf
    elif entry.mechanism == Mechanisms.LAPLACE and entry.relation == "replace-one":
        norm = Norms.L1
        needed = min(
            record_sensitivity.size * record_sensitivity.linf,
            math.sqrt(record_sensitivity.size) * record_sensitivity.l2,
        )
    else:
        raise ArgumentError(
            f"the entry {readable(entry.label)!r} for the site's ledger must state the number of "
            "selected columns"
        )
    if sensitivity.norm != norm:
        raise ArgumentError(
            f"the entry {readable(entry.label)!r} for the site's ledger must state a sensitivity in "
            f"the {norm} norm, which its mechanism needs"
        )
    return needed


def least_losses(
    mechanism: str, ratio: float, selections: int, vectors: int, *, masked: bool
) -> dict[type[Loss], float]:
    """Return the smallest loss of a release in every kind that is derived for its mechanism.

    Parameters
    ----------
    mechanism : str
    ratio : float
        Sensitivity over the scale of the noise; infinite without noise.
    selections, vectors : int
        How many entries of how many vectors are selected; 1 and 1 of other releases.
    masked : bool
        Whether it is a secure sum, whose grid may be so coarse that no mu is known.

    Returns
    -------
    dict
        mu, rho or epsilon by kind. A Gumbel selection is (2 ratio)-DP with a range of that width (`peeling`),
        a Laplace selection (2 ratio)-DP, a Laplace number ratio-DP; several of these are also known in zCDP.
    """
    times = selections * vectors
    match mechanism:
        case Mechanisms.GAUSSIAN:
            gaussian: dict[type[Loss], float] = {GaussianLoss: math.sqrt(vectors) * ratio}
            return gaussian | ({ConcentratedLoss: vectors * ratio * ratio / 2.0} if masked else {})
        case Mechanisms.GUMBEL_PEELING:
            return {ConcentratedLoss: times * ratio * ratio / 2.0, PureLoss: times * 2.0 * ratio}
        case Mechanisms.LAPLACE_PEELING:
            unit_loss = 2.0 * ratio
        case _:
            unit_loss = ratio
    pure: dict[type[Loss], float] = {PureLoss: times * unit_loss}
    return pure | ({ConcentratedLoss: times * pure_rho(unit_loss)} if times > 1 else {})


def least_rho(mechanism: str, ratio: float, selections: int, vectors: int) -> float:
    """Return the cost of a release in zCDP, from its noise alone."""
    match mechanism:
        case Mechanisms.GAUSSIAN:
            return vectors * ratio * ratio / 2.0
        case Mechanisms.GUMBEL_PEELING:
            return selections * vectors * ratio * ratio / 2.0
        case Mechanisms.LAPLACE_PEELING:
            return selections * vectors * pure_rho(2.0 * ratio)
    return selections * vectors * pure_rho(ratio)


def _amount(loss: Loss) -> float:
    """Return the mu, rho or epsilon of a loss, whichever it is in."""
    amount: float = astuple(loss)[0]
    return amount
