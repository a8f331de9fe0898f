"""The release of a survival analysis: noisy counts of events and censored records by interval and group."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from privinf.accounting import GaussianLoss, Ledger, LedgerEntry, PrivacyReport, Released
from privinf.accounting.purposes import charged_for
from privinf.completeness import CompleteRows
from privinf.error_boundary import error_boundaries
from privinf.errors import AlignmentError, ArgumentError
from privinf.federation import SecureServer, TrustedServer
from privinf.federation.charges import stating_charges
from privinf.federation.curator import Curator, TableByPasses
from privinf.federation.local import LocalSites
from privinf.inference.survival import CellEstimate, CellNoise
from privinf.mechanisms.gaussian import total_mu, warn_of_large_delta
from privinf.mechanisms.statistics.survival import LEAST_INTERVALS, NEGATIVE_WEIGHT, suffix_root
from privinf.survival.rows import SurvivalRows
from privinf.typing import Floats, Missing, NoiseChoice, SpendingWords, Trust
from privinf.wire import Labels, Statistics


@error_boundaries
@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class SurvivalRelease(Released):
    """Noisy counts of events and of censored records by interval of time and group.

    Attributes
    ----------
    values : ndarray
        The released numbers, see `privinf.inference.survival`.
    scale : float
        Sd of the noise of every number; 0 without noise.
    edges : ndarray, shape (K,)
        Ends of the intervals of time.
    discrete : bool
        Whether the edges are all times that can occur.
    groups : tuple of str
        Names of the groups.
    names : tuple of str
        Columns of the time, the status and the groups.
    nobs : int
        Public number of records.
    sites : int
        Number of sites that answered.
    trust : {"central", "server", "secure-sum"}
    missing : {"raise", "drop"}
        Handling of missing values.
    entries : tuple of LedgerEntry
    recorded : PrivacyReport
        This release, and all that its ledger held by then.

    Notes
    -----
    **Privacy.** Released: public.
    """

    values: Floats
    scale: float
    edges: Floats
    discrete: bool
    groups: tuple[str, ...]
    names: tuple[str, ...]
    nobs: int
    sites: int
    trust: Trust
    missing: Missing
    entries: tuple[LedgerEntry, ...]
    recorded: PrivacyReport

    def __post_init__(self) -> None:
        Released.__post_init__(self)
        for name in ("values", "edges"):
            array = np.array(getattr(self, name), dtype=np.float64)
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    @property
    def privacy(self) -> PrivacyReport:
        """The report on this release; `cumulative` is the ledger's."""
        return self.recorded

    @property
    def noise(self) -> NoiseChoice:
        """Distribution of the noise."""
        return "gaussian"

    @property
    def cells(self) -> CellEstimate:
        """Estimates of the counts, which add up to the number of records."""
        noise = CellNoise(
            scale=self.scale,
            root=suffix_root(len(self.edges) + 1),
            groups=len(self.groups),
            counted=float(self.missing == "drop"),
        )
        return CellEstimate.from_release(self.values, noise, self.nobs, full_grid=self.discrete)

    @property
    def complete(self) -> CompleteRows | None:
        """The estimated number of complete rows, where the others were dropped; None elsewhere."""
        if self.missing != "drop":
            return None
        cells = self.cells
        sd = self.scale * (1.0 - 1.0 / cells.noise.total_size) ** 0.5
        return CompleteRows.from_count(float(cells.total), sd, self.nobs)

    @property
    def negative_times(self) -> tuple[float, float] | None:
        """Estimated number of records with a negative time, and the sd of its noise; None if not released."""
        if len(self.values) == len(self.groups) * (2 * len(self.edges) + 1) + (self.missing == "drop"):
            return None
        return float(self.values[-1]) / NEGATIVE_WEIGHT, self.scale / NEGATIVE_WEIGHT

    def __repr__(self) -> str:
        size = f"{len(self.groups)} groups, {len(self.edges)} intervals"
        return f"<SurvivalRelease: {size}, {self.nobs} records>"


def release_cells(
    records: SurvivalRows, spending: SpendingWords, ledger: Ledger, purpose: str, max_colluding: int
) -> SurvivalRelease:
    """Release the cells of records once.

    Raises
    ------
    ArgumentError, BudgetExceededError, SensitivityError, NotAvailableError
        The budget is none, or does not fit the ledger; the sites refuse; nothing was charged then.
    """
    if max_colluding and records.trust != "secure-sum":
        raise ArgumentError('max_colluding= can be used only with trust="secure-sum"')
    mu = total_mu(spending)
    delta = spending.get("delta")
    if np.isfinite(mu):
        ledger.check([GaussianLoss(mu)])
    if records.n < 2:
        raise AlignmentError("a survival curve needs at least two records")
    warn_of_large_delta(delta, records.n)
    design = records.rows.design
    sites = records.rows.sites
    arguments = {"edges": records.edges, "status": records.status}
    if records.groups:
        arguments["groups"] = np.array(records.groups)
    if records.missing == "drop":
        arguments["counted"] = True
    if len(records.edges) >= LEAST_INTERVALS:
        arguments["negative"] = True
    label = Labels.SURVIVAL_CELLS.format(name=records.names[0])
    server: Curator | TrustedServer
    own = sites.own_rows(design) if isinstance(sites, (LocalSites, TableByPasses)) else None
    with ExitStack() as stack:
        stack.enter_context(charged_for(purpose))
        if own is None:
            stack.enter_context(stating_charges(ledger, delta=delta, resumable=False))
        rng = spending.get("rng")
        if records.trust == "central" and own is not None:
            server = Curator(own[1], name=own[0], size=records.n, ledger=ledger, rng=rng)
        else:
            known = None if design.schema is None else design
            options: dict[str, Any] = {"ledger": ledger, "rng": rng, "design": known}
            if records.trust == "secure-sum":
                server = SecureServer(sites, max_colluding=max_colluding, **options)
            else:
                server = TrustedServer(sites, trust=records.trust, **options)
        release = server.vector_sum(Statistics.SURVIVAL_CELLS, arguments, label=label, mu=mu)
    return SurvivalRelease(
        values=release.values,
        scale=release.scale,
        edges=records.edges,
        discrete=records.discrete,
        groups=records.levels,
        names=records.names,
        nobs=records.n,
        sites=len(release.sites),
        trust=records.trust,
        missing=records.missing,
        entries=release.entries,
        recorded=PrivacyReport.from_entries(release.entries, ledger, delta=delta, nobs=records.n),
    )
