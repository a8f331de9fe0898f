"""A curator, who needs no messages: sums over the rows of one holder, in memory or read by passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from privinf.accounting import Ledger, LedgerEntry
from privinf.accounting.ledger import check_ledger
from privinf.error_boundary import error_boundaries
from privinf.errors import NotAvailableError, SensitivityError
from privinf.federation.local import LocalSites, in_process
from privinf.federation.messages import Query, Reply
from privinf.federation.noisy import NoisyGram, NoisySum
from privinf.federation.planned import SUM_TOO_LARGE, Args, sum_line
from privinf.federation.site_designs import check_sums
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.gaussian import after_the_charge
from privinf.mechanisms.passes import RowPasses
from privinf.mechanisms.pushdown.databases import unfit
from privinf.mechanisms.rows import Rows, imputing, refuse_unordered
from privinf.mechanisms.statistics.block import SEEDS, SiteBlock, exact_bits, stream_of
from privinf.mechanisms.statistics.ops import Accumulator, PlainSums, RecordSensitivity, SiteOp, clipped_total
from privinf.mechanisms.statistics.places import BatchDigests
from privinf.mechanisms.statistics.terms import KeptQuantities, TermSums, add_together
from privinf.noise import NoiseSource, get_source, grid_step
from privinf.noise.lattice import LARGEST_STEP, LARGEST_SUM
from privinf.progress import step
from privinf.schema import Design
from privinf.typing import Floats, RngLike, SumRelation
from privinf.wire import Places, Requests

BATCHES = "a first-order optimizer (DPSGD, DPAdam, RandomSketch, DOME)"


class TableByPasses:
    """One holder's table that is not in memory, as the only site of a fit in this process: read by passes.

    Parameters
    ----------
    rows : Rows
        Of a table that can be read as often as needed.
    design : Design
    name : str
        Of the place that the rows are at.

    Notes
    -----
    **Privacy.** States the number of rows, which is public; only `Curator` reads them.
    """

    def __init__(self, rows: Rows, design: Design, name: str) -> None:
        check_sums(design)
        self._rows = rows
        self._name = name
        self._passes = RowPasses(design, rows, stream=stream_of(name))
        self._design = design

    @staticmethod
    def takes(rows: Rows, design: Design) -> bool:
        """Whether these are such rows, each of a person; NotAvailableError for a stream of them."""
        alone = design.schema is not None and design.schema.unit is None
        if not alone or rows.in_memory or rows.response is not None:
            return False
        rows.refuse_once(by_places=BATCHES)
        return True

    @property
    def sites(self) -> tuple[str, ...]:
        """Name of the site."""
        return (self._name,)

    def ask(self, query: Query, sites: Sequence[str] | None = None) -> list[Reply]:
        """Return the number of rows; no other query is answered here."""
        if query.op != Requests.DESCRIBE:
            raise NotAvailableError(
                "a table that is not in memory cannot be fitted in a federation, only by the person "
                "who holds its rows; load the rows into memory"
            )
        return [
            Reply(site=self._name, sums=np.empty(0), rows=self._passes.n, facts=imputing(self._rows.missing))
        ]

    def check_fit(self, reason: str) -> None:
        """Raise NotAvailableError if there is a reason why the fit has no database query."""
        if self._passes.adds(exact=False) and reason:
            raise unfit(reason)

    def own_rows(self, design: Design) -> tuple[str, RowPasses]:
        """Return the name and the rows by a design."""
        if design != self._design:
            self._passes = RowPasses(design, self._rows, stream=stream_of(self._name))
            self._design = design
        return self._name, self._passes

    def collected(self) -> LocalSites:
        """Return the rows at a site in memory, which stores its answers."""
        return in_process(self._design, {self._name: self._rows}, zero_out=True)

    def __reduce__(self) -> Any:
        raise TypeError("raw rows cannot be pickled; pickle the release or the result instead")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """A release of a curator: its statistic, arguments with digits, sensitivity, noise and ledger line."""

    statistic: SiteOp
    args: Args
    record_sensitivity: RecordSensitivity
    scale: float
    mu: float
    entry: LedgerEntry
    rows: int
    exact: bool

    def noised(self, total: Accumulator | Floats, source: NoiseSource) -> Floats:
        """Return a total with its noise; exact ones are rounded once, to the grid of secure noise."""
        if not isinstance(total, np.ndarray):
            if source.secure and "client_clip" not in self.args:
                step = grid_step(self.scale)
                return np.asarray(source.gaussian_steps(total.steps(step), self.scale / step) * step)
            total = self.statistic.rounded(total, self.args, self.record_sensitivity, self.rows)
            total = clipped_total(total, self.args)
        return source.perturb(total, self.scale) if self.scale > 0.0 else total


def _in_memory(block: SiteBlock, plan: _Planned, kept: KeptQuantities | None = None) -> Accumulator | Floats:
    """Return the un-noised sum over rows in memory, by quantities of the last query where they are kept."""
    if not plan.exact:
        return plan.statistic.total(block, plan.args, plan.record_sensitivity)
    assert plan.statistic.sums is not None
    sums = plan.statistic.sums(block, plan.args)
    if isinstance(sums, TermSums):
        add_together([sums], block, kept)
    else:
        sums.update(block)
    return sums


def _by_passes(
    passes: RowPasses, planned: Sequence[_Planned], digests: BatchDigests
) -> list[Accumulator | Floats]:
    """Return the sums without noise of one pass, or of queries where a database makes them.

    Raises
    ------
    AlignmentError
        The sum is over a batch, whose rows are not those of the first pass.
    """
    batches = [plan.statistic.batch_pass(plan.args, digests) for plan in planned]
    if len(planned) > 1 and any(batch is not None for batch in batches):
        return [total for plan in planned for total in _by_passes(passes, [plan], digests)]
    exact = all(plan.exact for plan in planned)
    if passes.adds(exact=exact):
        if not exact:
            raise unfit("the fit adds no noise, or needs a statistic that cannot be summed exactly")
        return [*passes.push([(plan.statistic, plan.args) for plan in planned])]
    sums: list[Accumulator | PlainSums] = []
    for block in passes.blocks():
        if batches[0] is not None:
            block = replace(block, batch=batches[0])
        if not sums:
            for plan in planned:
                assert plan.statistic.sums is not None
                plain = PlainSums(plan.statistic, plan.args, plan.record_sensitivity)
                sums.append(plan.statistic.sums(block, plan.args) if plan.exact else plain)
        terms = [terms_sum for terms_sum in sums if isinstance(terms_sum, TermSums)]
        add_together(terms, block)
        for terms_sum in sums:
            if not isinstance(terms_sum, TermSums):
                terms_sum.update(block)
    if batches[0] is not None:
        batches[0].check()
    return [terms_sum.floats() if isinstance(terms_sum, PlainSums) else terms_sum for terms_sum in sums]


@error_boundaries
class Curator:
    """Sums over one holder's own rows, with noise; one ledger line each.

    Parameters
    ----------
    rows : SiteBlock or RowPasses
        In memory, or read again by every pass.
    size : int, optional
        Number of rows in memory, dropped ones included; by default those of the block.
    name : str
        Name of the place of the rows, for releases.
    ledger : Ledger, optional
        Budget ledger that records the cost of the releases. By default a new ledger is made.
    rng : int or Generator, optional
        Seeds simulation noise: the same numbers as those of a `TrustedServer` of one site with this seed.
    relation : {"replace-one", "zero-out"}
        Neighboring relation of all guarantees.

    Notes
    -----
    **Privacy.** The curator holds the rows and returns noisy sums. Rows in memory are checked already: it
    charges all releases and then sums. A table that is read by passes is summed first, after a check of the
    limits, so that a table with an error costs nothing. Noise is always added after the charge. A curator
    lives for one fit, makes each query once, and keeps no key: its secure noise is fresh.
    """

    def __init__(
        self,
        rows: SiteBlock | RowPasses,
        *,
        name: str,
        ledger: Ledger | None = None,
        rng: RngLike = None,
        relation: SumRelation = "replace-one",
        size: int | None = None,
    ) -> None:
        self._rows = rows
        self._size = size
        self._name = name
        self._relation = relation
        self._noise = get_source(rng)
        self._key = None if self._noise.secure else self._noise.new_key()
        self._query_count = 0
        self._digests = BatchDigests()
        is_kept = isinstance(rows, SiteBlock) and KeptQuantities.applies_to(rows)
        self._kept = KeptQuantities() if is_kept else None
        self.ledger = check_ledger(ledger)

    @property
    def nobs(self) -> int:
        """Number of rows."""
        if isinstance(self._rows, RowPasses):
            return self._rows.n
        return len(self._rows) if self._size is None else self._size

    @property
    def passes(self) -> int | None:
        """How often a table that is not in memory was read; None for rows that are."""
        return self._rows.read if isinstance(self._rows, RowPasses) else None

    def vector_sum(self, op: str, args: Args, *, label: str, mu: float) -> NoisySum:
        """Release the sum of a statistic over all rows, with the same Gaussian noise in every entry.

        Parameters
        ----------
        op : str
            Name of the statistic.
        args : mapping
            Public arguments of the statistic.
        label : str
            Description of the release in the ledger.
        mu : float
            Cost of the release in Gaussian differential privacy; infinity adds no noise.

        Returns
        -------
        NoisySum
            The noisy sum, with its ledger line.

        Raises
        ------
        ArgumentError, BudgetExceededError, SensitivityError
            An argument of the statistic is wrong, the ledger's limit would be passed, or the noise is too
            small against the sum for 64-bit integers; no row was read.
        SchemaError, AlignmentError
            A table that is not in memory differs from its declaration; nothing was charged for it. Or
            the rows of a batch are not those of the first pass, which for rows in memory is detected after
            the charge.
        """
        return self.vector_sums([(op, args, label, mu)])[0]

    def vector_sums(self, queries: Sequence[tuple[str, Args, str, float]]) -> list[NoisySum]:
        """Release several sums by one pass over the rows.

        Parameters
        ----------
        queries : sequence of (op, args, label, mu)
            Arguments of `vector_sum`, one tuple a release.

        Returns
        -------
        list of NoisySum
            In the order of the queries.
        """
        planned = [self._planned(*query) for query in queries]
        entries = [plan.entry for plan in planned]
        if isinstance(self._rows, RowPasses):
            self.ledger.check([entry.loss for entry in entries])
            totals = _by_passes(self._rows, planned, self._digests)
            lines = self.ledger.spend(*entries)
        else:
            lines = self.ledger.spend(*entries)
            totals = [self._in_memory(plan) for plan in planned]
        releases = []
        for plan, total, line in zip(planned, totals, lines, strict=True):
            self._query_count += 1
            step()
            values = plan.noised(
                total, self._source(plan.statistic.name) if plan.scale > 0.0 else self._noise
            )
            releases.append(
                NoisySum(
                    values=values,
                    rows=self.nobs,
                    sites=(self._name,),
                    scale=plan.scale,
                    mu=plan.mu,
                    entries=(line,),
                )
            )
        return releases

    def _in_memory(self, plan: _Planned) -> Accumulator | Floats:
        """Return the un-noised sum over rows in memory, a batch's from rows that nobody else writes into."""
        assert isinstance(self._rows, SiteBlock)
        batch = plan.statistic.batch_pass(plan.args, self._digests)
        if batch is not None:
            self._rows = self._rows.owned()
        if batch is None or not self._rows.lent:
            return _in_memory(self._rows, plan, self._kept)
        total = _in_memory(replace(self._rows, batch=batch), plan)
        after_the_charge(batch.check)
        return total

    def _planned(self, op: str, args: Args, label: str, mu: float) -> _Planned:
        """Return a release with its ledger line; nothing is read or charged."""
        if SEEDS.intersection(args):
            refuse_unordered(self._rows, BATCHES)
        statistic = SITE_OPS[op]
        n = self.nobs
        width = self._rows.width if isinstance(self._rows, RowPasses) else self._rows.features.shape[1]
        record_sensitivity = statistic.record_sensitivity(args, width, n)
        line = sum_line(
            op, args, record_sensitivity, label=label, mu=mu, trust="central", relation=self._relation
        )
        scale, entry = line.calibrated(self._noise)
        secure = scale > 0.0 and self._noise.secure
        exact = scale > 0.0 and statistic.sums is not None
        if secure and 2.0 * n * record_sensitivity.bound / grid_step(scale) >= (
            LARGEST_SUM if exact else LARGEST_STEP
        ):
            raise SensitivityError(SUM_TOO_LARGE)
        full_args = {**args, "bits": exact_bits(n) if secure or exact else 0}
        return _Planned(
            statistic=statistic,
            args=full_args,
            record_sensitivity=record_sensitivity,
            scale=scale,
            mu=mu,
            entry=entry,
            rows=n,
            exact=exact,
        )

    def gram(self, args: Args, *, label: str, op: str, mu: float) -> NoisyGram:
        """Release the sum of a symmetric matrix, such as second moments, with Gaussian noise."""
        return NoisyGram.from_sum(self.vector_sum(op, args, label=label, mu=mu))

    def _source(self, op: str) -> Any:
        """Return the noise source of a query: fresh, or by a seed and the query's position in the session."""
        if self._key is None:
            return self._noise
        return self._noise.at(
            self._key.stream(Places.STREAM.format(what=op, position=self._query_count), (), np.empty(0))
        )

    def __reduce__(self) -> Any:
        raise TypeError("a curator holds raw rows and cannot be pickled; pickle its releases instead")

    def __repr__(self) -> str:
        return f"<Curator of {self.nobs} rows, not shown>"
