"""TrustedServer: the only place where sums without noise meet; every number that leaves it is noisy.

A release has three steps. `TrustedServer.planned` makes the query with its ledger line (`planned`);
`TrustedServer.release` charges it and sends it to the sites (`rounds`); the sum of their replies leaves with
its noise (`server_noise`), as a `NoisySum` (`noisy`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np

from privinf.accounting import Ledger, LedgerEntry, Loss, ReleasedNumber, calibrate_mu
from privinf.accounting.ledger import check_ledger, stated_purpose
from privinf.error_boundary import error_boundaries
from privinf.errors import AlignmentError, ArgumentError, NotAvailableError
from privinf.federation.local import LocalSites
from privinf.federation.messages import WRONG_ANSWER, Federation, Query, Reply
from privinf.federation.noisy import NoisyGram, NoisySum, histogram_quantile
from privinf.federation.planned import (
    Args,
    PlannedQuery,
    Ranking,
    assumed,
    of_the_sum,
    spend_at_sites,
    standing_lines,
    sum_line,
    with_query_digest,
    without_digits,
)
from privinf.federation.policy import TOLERANCE
from privinf.federation.rounds import FitReservation, MissingSites, Rounds
from privinf.federation.server_noise import ServerNoise, bind_rows, perturbed
from privinf.mechanisms.selection import NoisyTopK, TopK
from privinf.mechanisms.statistics.block import exact_bits
from privinf.mechanisms.statistics.ops import RecordSensitivity, SiteOp
from privinf.noise import NoiseSource, get_source, solve_scale
from privinf.noise.lattice import LARGEST_STEP, LARGEST_SUM
from privinf.progress import step
from privinf.schema import Design
from privinf.typing import Flags, Floats, Missing, PeelingMethod, RngLike, SumRelation, Trust
from privinf.validation import check_choice, check_fraction
from privinf.wire import Derivations, Places, Statistics

if TYPE_CHECKING:
    from privinf.federation.askers import HeadMemory

NOISE_USED = (
    "the noise of this query was already used for other sites or for another sum, so it "
    "cannot be used again; send a new query, which is charged again"
)
REPLACE_ONE = (
    'private selections need a server with relation="replace-one"; make the server with this relation'
)


@error_boundaries
class TrustedServer:
    """Trusted server, which adds up the answers of the sites, adds noise and charges the ledger.

    Parameters
    ----------
    federation : Federation
        The sites.
    ledger : Ledger, optional
        Budget ledger that records the cost of the releases. By default a new ledger is made.
    noise : NoiseSource, optional
        Source of the noise. By default the noise is secure. Seeded noise is accepted only if the policies of
        all sites allow simulation. Noise of OpenDP cannot be drawn from a key, so a release with such noise
        cannot be repeated.
    rng : int or Generator, optional
        Seed of simulation noise, instead of `noise`.
    design : Design, optional
        Design (columns and bounds), for sites that hold a table and a schema. The server sends the design to
        the sites before its first query.
    missing : {"raise", "continue"}
        Handling of a site that does not answer. With "raise" the release fails. With "continue" the release
        uses the other sites.
    relation : {"replace-one", "zero-out"}
        Neighboring relation of all guarantees. Under "replace-one" one record is replaced by any other
        record, and under "zero-out" by a record that contributes nothing. Under "zero-out" the sensitivity is
        about half as large, the guarantee is weaker, and the method `top_k` is not available. The policies of
        the sites must allow "zero-out".
    trust : {"server", "central"}
        Trust model that ledger entries state. Use "central" if one curator holds the rows of all sites.

    Raises
    ------
    AlignmentError
        Raised if a site does not answer, or its columns or bounds differ from those of the other sites. The
        message names the site.
    NotAvailableError
        Raised if a site refuses the query. The message names the site.
    SchemaError
        Raised if the rows were changed after the model was built, and are now invalid.

    Notes
    -----
    **Privacy.** The server is trusted: it sees sums without noise, and does not store these sums. The cost of
    a release is recorded before any site is queried, and is kept if the release fails. A release from only
    some of the sites is charged to the rows of these sites, because sites have disjoint rows (parallel
    composition). Parallel composition is used only for the releases of one server. The costs of releases of
    different servers add up in a ledger, because two servers may use the same name for different sites.

    The noise is a function of a secret key, the query, the names of the sites that answered, and the sum
    without noise over these sites. A repeated release is therefore identical. The server keeps the key in
    memory, or in a secret file (see `remember`). With simulation noise, releases with the same seed and the
    same position in the session have the same noise.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> from privinf.federation import InProcessFederation, Site, SitePolicy, TrustedServer
    >>> design = pi.Design.from_arrays(["x"], bounds=[(-1, 1)], y_bounds=(-2, 2))
    >>> rows = np.full(500, 0.5), np.full((500, 1), 1.0)
    >>> site = Site(rows, design, policy=SitePolicy(trusted_server=True))
    >>> server = TrustedServer(InProcessFederation({"north": site}))
    >>> noisy = server.scalar("squared_residuals", {"residual_clip": 1.0}, mu=1.0, label="variance")
    >>> bool(abs(noisy.mean - 0.25) < 0.05), len(server.ledger)
    (True, 1)
    """

    def __init__(
        self,
        federation: Federation,
        *,
        ledger: Ledger | None = None,
        noise: NoiseSource | None = None,
        rng: RngLike = None,
        design: Design | None = None,
        missing: MissingSites = "raise",
        relation: SumRelation = "replace-one",
        trust: Trust = "server",
    ) -> None:
        self._trust = check_choice(trust, ("server", "central"), "trust")
        self._relation: SumRelation = check_choice(relation, SumRelation, "relation")
        self._noise = ServerNoise(get_source(rng) if noise is None else noise)
        self.ledger = check_ledger(ledger)
        if isinstance(federation, LocalSites):
            federation.check_rows()
        self._rounds = Rounds(federation, design, missing)
        self._reservation = FitReservation(self._rounds)

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites that answer queries."""
        return tuple(self._rounds.rows)

    @property
    def rows(self) -> dict[str, int]:
        """Public number of rows of each site."""
        return dict(self._rounds.rows)

    @property
    def imputed(self) -> Missing:
        """Handling of missing values: "impute-public" or "drop" if some site imputes or drops."""
        return self._rounds.imputed

    @property
    def nobs(self) -> int:
        """Total number of rows of all sites."""
        return sum(self._rounds.rows.values())

    @property
    def design(self) -> Design:
        """Design (public columns and bounds), which is the same at every site."""
        return self._rounds.design

    @property
    def terms(self) -> str:
        """Short description of the trust model, the noise and the charges of this server."""
        return Places.TRUSTED.format(relation=self._relation)

    @property
    def secure(self) -> bool:
        """Whether the noise is secure."""
        return self._noise.secure

    @property
    def heads(self) -> HeadMemory | None:
        """Last known states of the ledgers of the sites; None if replies are not checked."""
        return getattr(self._rounds.federation, "heads", None)

    def remember(self, path: str | PathLike[str], *, begun: bool | None = None) -> bytes:
        """Store the noise key and the answers in a secret file, or continue with an existing file.

        Parameters
        ----------
        path : path
            The secret file.
        begun : bool, optional
            Whether files other than the secret file prove that noise was drawn, or planned, with the stored
            key. If True, the server uses the stored key. If False, the server replaces the stored key, unless
            noise was drawn with it. By default the stored key is used if the file contains an answer of a
            site.

        Returns
        -------
        bytes
            Secret key for the checksums (HMAC) of the other files in the same folder.

        Raises
        ------
        ArgumentError
            Raised if the noise cannot be drawn from a key, the file belongs to a different kind of noise, or
            this server has already made a release.
        StorageError
            Raised if the file is damaged, cannot be written, or could have been read, changed or replaced by
            another account.

        Notes
        -----
        **Privacy.** The file must stay secret, because a person who reads it can remove the noise. A stored
        key with which no noise was drawn or planned is replaced by the key of this server.
        """
        return self._noise.remember(path, begun=begun)

    def bind(self, path: Path, *, begun: bool) -> None:
        """Store a digest of the rows in this process, and of their order, in a secret file.

        Parameters
        ----------
        path : path
            The secret file.
        begun : bool
            Whether the fit has begun. If the fit has not begun, an existing file is replaced.

        Raises
        ------
        StorageError
            Raised if the file belongs to different rows or to a different order of the rows, or it is missing
            although the fit has begun. The order must not change, because batches are disjoint only for one
            order of the rows.
        """
        if isinstance(self._rounds.federation, LocalSites):
            bind_rows(path, self._rounds.federation.digest, begun=begun)

    @contextmanager
    def reserving(self, losses: Sequence[Loss]) -> Iterator[None]:
        """Reserve the cost of a fit at every site, and give back the unused part when the fit ends.

        The unused part of the reservation is also given back if the fit ends with an error or is interrupted.
        If the process is killed, the reservation expires after seven days.

        Parameters
        ----------
        losses : sequence of Loss
            Privacy losses of the releases of the fit.

        Returns
        -------
        context manager
            Context manager. The cost is reserved inside its ``with`` block.

        Raises
        ------
        PrivinfError
            Raised if a site refuses the reservation or does not answer. After this error nothing is reserved
            or charged at any site.
        """
        try:
            self.reserve(losses, str(uuid4()), 1)
            yield
        finally:
            self.give_back(2)

    def reserve(self, losses: Sequence[Loss], name: str, position: int) -> None:
        """Reserve privacy losses under a name at all sites; if one site refuses, nothing is reserved.

        The method has no effect for sites in this process. It has no effect either if a release has no noise,
        because no limit allows its infinite loss.

        Parameters
        ----------
        losses : sequence of Loss
            Privacy losses of the releases.
        name : str
            Name of the reservation.
        position : int
            Position of the query in the session.

        Raises
        ------
        PrivinfError
            Raised if a site refuses the reservation or does not answer. After this error nothing is reserved
            or charged at any site.
        """
        self._rounds.check_policies(self.sites, secure=self.secure, colluding=self._colluding)
        self._reservation.begin(losses, name, position, stated_purpose(self.ledger))

    def give_back(self, position: int, name: str = "") -> bool:
        """Give back the part of a reservation that was not charged.

        Parameters
        ----------
        position : int
            Position of the query in the session.
        name : str
            Name of the reservation of an earlier fit that was stopped. By default, the reservation of this
            server.

        Returns
        -------
        bool
            Whether all sites have confirmed it, or nothing was reserved.
        """
        return self._reservation.give_back(position, name)

    def skip(self, to: int | None = None) -> None:
        """Continue the session after the positions that the queries of an earlier server have used.

        Parameters
        ----------
        to : int, optional
            Position of the last query to skip. By default, only the next position is skipped.
        """
        self._rounds.skip(to)

    def shape(self, op: str, args: Args) -> tuple[int, ...]:
        """Return the shape of the sum of a statistic over all sites.

        Parameters
        ----------
        op : str
            Name of the statistic.
        args : mapping
            Public arguments of the statistic.

        Returns
        -------
        tuple of int
            Shape of the sum.
        """
        return self._rounds.check(op, args, None)[1].shape

    def vector_sum(
        self,
        op: str,
        args: Args,
        *,
        label: str,
        mu: float | None = None,
        rho: float | None = None,
        sites: Sequence[str] | None = None,
    ) -> NoisySum:
        """Release the sum of a statistic over all rows, with the same Gaussian noise in every entry.

        Parameters
        ----------
        op : str
            Name of the statistic, such as "squared_residuals".
        args : mapping
            Public arguments of the statistic.
        label : str
            Description of the release in the ledger.
        mu : float, optional
            Cost of the release in Gaussian differential privacy. Pass either `mu` or `rho`. With infinity no
            noise is added.
        rho : float, optional
            Cost of the release in zero-concentrated differential privacy (zCDP), instead of `mu`.
        sites : sequence of str, optional
            Names of the sites whose rows are summed. Only these sites are charged. The default is all sites.

        Returns
        -------
        NoisySum
            The noisy sum, with the standard deviation of its noise and its ledger entries.

        Raises
        ------
        AlignmentError
            Raised if the total of a secure sum is outside the range that the rows and the noise allow, or if
            more than `retries` repeated attempts failed. The cost stays in the ledger.
        ArgumentError
            Raised if an argument of the statistic is invalid; nothing was charged or queried.
        BudgetExceededError
            Raised if the release would exceed the limit of the ledger, or of a site.
        SensitivityError
            Raised if the noise is so small relative to the sum that 64-bit integers are not enough.

        Notes
        -----
        **Privacy.** The cost is recorded before any site is queried. For a secure sum, every repeated attempt
        costs the same amount again.
        """
        return self.release(self.planned(op, args, label=label, mu=mu, rho=rho, sites=sites))

    def planned(
        self,
        op: str,
        args: Args,
        *,
        label: str,
        mu: float | None = None,
        rho: float | None = None,
        sites: Sequence[str] | None = None,
    ) -> PlannedQuery:
        """Return the query of `vector_sum`, with its ledger entry; nothing is charged or sent.

        Parameters
        ----------
        op : str
            Name of the statistic, such as "squared_residuals".
        args : mapping
            Public arguments of the statistic.
        label : str
            Description of the release in the ledger.
        mu : float, optional
            Cost of the release in Gaussian differential privacy. Pass either `mu` or `rho`. With infinity no
            noise is added.
        rho : float, optional
            Cost of the release in zero-concentrated differential privacy (zCDP), instead of `mu`.
        sites : sequence of str, optional
            Names of the sites whose rows are summed. Only these sites are charged. The default is all sites.

        Returns
        -------
        planned query
            Planned query, to pass to `release`. Its attribute `entry` is the ledger entry.

        Notes
        -----
        **Privacy.** Costs nothing: no rows are read.
        """
        statistic, record_sensitivity, names = self._rounds.check(op, args, sites)
        line = sum_line(
            op,
            args,
            record_sensitivity,
            label=label,
            mu=calibrate_mu(mu=mu, rho=rho),
            trust=self._trust,
            relation=self._relation,
            sites=len(self._rounds.rows),
        )
        scale, entry = line.calibrated(self._noise.source)
        largest = record_sensitivity.largest_sum(self._rounds.rows[name] for name in names)
        self._noise.check_room(largest, scale, LARGEST_STEP if statistic.sums is None else LARGEST_SUM)
        entry = self._noise.marked(entry)
        query = self._query(statistic, args, (entry,), names, noisy=scale > 0.0)
        return PlannedQuery(with_query_digest(query), tuple(names), scale, line.mu)

    def check_numbers(self, size: int, mu: float) -> None:
        """Raise SensitivityError if mu may be too small for rounding `size` numbers to the grid of the noise.

        Some fits can plan their second release only after their first release is charged. Such a fit calls
        this method before its first release is charged. The smallest `mu` for this rounding depends on the
        digits of the sensitivity, which is not known yet. The method therefore raises the error unless a
        quarter of `mu` is large enough.

        Parameters
        ----------
        size : int
            Number of entries of the vector that would be released.
        mu : float
            Cost of the release in Gaussian differential privacy.

        Raises
        ------
        SensitivityError
            Raised if `mu` may be too small for rounding `size` numbers to the grid of the noise.
        """
        if not math.isinf(mu):
            solve_scale(1.0, mu / 4.0, size, self._noise.source)

    def release(self, planned: PlannedQuery) -> NoisySum:
        """Make or repeat a release that was planned by this server, or by an earlier server that was stopped.

        The release is charged unless the ledger already contains exactly its entry. If the ledger already
        contains this entry, the release is a repetition: it costs nothing, and its result is the same. Sites
        recognize a repeated query, and answer it at no further cost.

        Parameters
        ----------
        planned : planned query
            Query that the method `planned` returned.

        Returns
        -------
        NoisySum
            The noisy sum, with the standard deviation of its noise and its ledger entries.

        Raises
        ------
        ArgumentError
            Raised if the release was planned with a kind of noise that this server does not use, or its
            ledger entry belongs to a different release.
        BudgetExceededError
            Raised if the release would exceed the limit of the ledger, or of a site.
        NotAvailableError
            Raised if the release was already charged and its noise is from OpenDP, which cannot draw the same
            noise again. With ``missing="raise"``, the error is also raised if the sites that answer are not
            the sites of the first attempt, or if their sum has changed. In these cases,
            ``missing="continue"`` makes a new query, which is charged.
        StorageError
            Raised if the release was planned with a noise key that is not the key of this server.

        Notes
        -----
        **Privacy.** The cost is recorded before any site is queried.
        """
        query_digest = self._noise.check_plan(planned)
        query = planned.query
        rounds = self._rounds
        rounds.skip(query.sequence)
        available = [name for name in planned.sites if rounds.missing == "raise" or name in rounds.rows]
        _, record_sensitivity, _ = self._rounds.check(query.op, without_digits(query.args), available)
        lines = standing_lines(self.ledger, planned)
        if lines and planned.scale > 0.0:
            self._noise.check_repeatable()
        lines = lines or self._spend((planned.entry,), planned.sites, query, record_sensitivity)
        total, answered = total_and_sites(self._rounds, query, record_sensitivity, available)
        step()
        if planned.scale > 0.0:
            if not self._noise.fits(query_digest, answered, total):
                del total
                return released_anew(self, self._rounds.missing, planned, answered)
            source = self._noise.source_for(query, query_digest, answered, total)
            largest = record_sensitivity.largest_sum(rounds.rows[name] for name in answered)
            total = perturbed(total, planned.scale, largest, source)
        return NoisySum(
            values=total,
            rows=rounds.count(answered),
            sites=answered,
            scale=planned.scale,
            mu=planned.mu,
            entries=lines,
        )

    def scalar(
        self,
        op: str,
        args: Args,
        *,
        label: str,
        mu: float | None = None,
        rho: float | None = None,
        sites: Sequence[str] | None = None,
    ) -> NoisySum:
        """Release the sum of a statistic that has only one entry.

        Parameters
        ----------
        op : str
            Name of the statistic, such as "squared_residuals".
        args : mapping
            Public arguments of the statistic.
        label : str
            Description of the release in the ledger.
        mu : float, optional
            Cost of the release in Gaussian differential privacy. Pass either `mu` or `rho`. With infinity no
            noise is added.
        rho : float, optional
            Cost of the release in zero-concentrated differential privacy (zCDP), instead of `mu`.
        sites : sequence of str, optional
            Names of the sites whose rows are summed. Only these sites are charged. The default is all sites.

        Returns
        -------
        NoisySum
            The noisy sum. Its attribute `values` is an array of shape ().

        Raises
        ------
        ArgumentError
            Raised if the statistic has more than one entry for these arguments.

        Notes
        -----
        **Privacy.** There is one release. The cost is recorded before any site is queried.
        """
        if self._rounds.check(op, args, sites)[1].size != 1:
            raise ArgumentError(
                f"the statistic {op!r} with these arguments returns several numbers, but one number is "
                "needed; choose a statistic that returns one number"
            )
        release = self.vector_sum(op, args, label=label, mu=mu, rho=rho, sites=sites)
        return replace(release, values=release.values.reshape(()))

    def gram(
        self,
        args: Args,
        *,
        label: str,
        op: str = Statistics.UNION_GRAM,
        mu: float | None = None,
        rho: float | None = None,
        sites: Sequence[str] | None = None,
    ) -> NoisyGram:
        """Release the sum of a symmetric matrix, such as second moments, with Gaussian noise.

        Parameters
        ----------
        args : mapping
            Public arguments of the statistic.
        label : str
            Description of the release in the ledger.
        op : str
            Name of the statistic. The default is the second moments of some columns.
        mu : float, optional
            Cost of the release in Gaussian differential privacy. Pass either `mu` or `rho`. With infinity no
            noise is added.
        rho : float, optional
            Cost of the release in zero-concentrated differential privacy (zCDP), instead of `mu`.
        sites : sequence of str, optional
            Names of the sites whose rows are summed. Only these sites are charged. The default is all sites.

        Returns
        -------
        NoisyGram
            The noisy matrix.

        Notes
        -----
        **Privacy.** There is one release. The cost is recorded before any site is queried.
        """
        return NoisyGram.from_sum(self.vector_sum(op, args, label=label, mu=mu, rho=rho, sites=sites))

    def histogram_quantile(
        self,
        args: Args,
        *,
        level: float,
        label: str,
        op: str = Statistics.RESIDUAL_HISTOGRAM,
        mu: float | None = None,
        rho: float | None = None,
        sites: Sequence[str] | None = None,
    ) -> ReleasedNumber:
        """Release the quantile of absolute residuals at `level`, from one noisy histogram with public edges.

        Parameters
        ----------
        args : mapping
            Public arguments of the statistic. The argument "edges" contains the edges of the histogram.
        level : float
            Order of the quantile, between 0 and 1.
        label : str
            Description of the release in the ledger.
        op : str
            Name of the statistic. The default is the histogram of residuals.
        mu : float, optional
            Cost of the release in Gaussian differential privacy. Pass either `mu` or `rho`. With infinity no
            noise is added.
        rho : float, optional
            Cost of the release in zero-concentrated differential privacy (zCDP), instead of `mu`.
        sites : sequence of str, optional
            Names of the sites whose rows are summed. Only these sites are charged. The default is all sites.

        Returns
        -------
        ReleasedNumber
            The estimated quantile, between the first and the last edge, with geometric interpolation within a
            cell. Its attribute `scale` is the approximate standard deviation of the noise of the quantile.
            The attribute is nan if the quantile is at the first or the last edge.

        Notes
        -----
        The quantile is the point at which the cumulative counts of the noisy histogram, made nondecreasing,
        reach level x n.

        **Privacy.** There is one release, the histogram. The cost is recorded before any site is queried, and
        the quantile is computed from the histogram at no further cost.
        """
        check_fraction(level, "level")
        release = self.vector_sum(op, args, label=label, mu=mu, rho=rho, sites=sites)
        return histogram_quantile(release, np.asarray(args["edges"], dtype=np.float64), level)

    def top_k(
        self,
        op: str,
        args: Args,
        k: int,
        *,
        label: str,
        offset: Floats | None = None,
        factor: float = 1.0,
        candidates: Flags | None = None,
        sites: Sequence[str] | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        rho: float | None = None,
        method: PeelingMethod = "gumbel",
        values: bool = True,
        values_share: float = 0.5,
        absolute: bool = True,
    ) -> TopK:
        """Release the positions, and optionally the values, of the k largest entries of a sum.

        Parameters
        ----------
        op : str
            Name of the statistic, such as "squared_residuals". If the sum is a matrix of shape (m, p), k
            entries are selected from each row of the matrix.
        args : mapping
            Public arguments of the statistic.
        k : int
            Number k of entries to select: from a sum that is a vector, or from each row of a sum that is a
            matrix.
        label : str
            Description of the release in the ledger.
        offset : ndarray, shape of the sum, optional
            Public numbers that are added to the sum; by default 0.
        factor : float
            Public factor by which the sum is multiplied, such as 1/n.
        candidates : ndarray of bool, broadcastable to the sum, optional
            Whether each position may be selected: False excludes a position. The mask must be public.
        sites : sequence of str, optional
            Names of the sites whose rows are summed. Only these sites are charged. The default is all sites.
        epsilon : float, optional
            Epsilon of the (epsilon, delta) guarantee for the selection from one row. A sum that is a vector
            has one row. Pass exactly one of `epsilon`, `mu` and `rho`. With ``epsilon=inf`` no noise is
            added.
        delta : float, optional
            Delta of the (epsilon, delta) guarantee for the selection from one row. With `mu` or `rho`,
            epsilon is reported at this delta.
        mu : float, optional
            Budget for the selection from one row, in Gaussian differential privacy, instead of `epsilon`.
        rho : float, optional
            Budget for the selection from one row, in zero-concentrated differential privacy (zCDP), instead
            of `epsilon`.
        method : {"gumbel", "laplace"}
            Distribution of the noise of the selection: "gumbel" (default) or "laplace". The choice "laplace"
            is the peeling algorithm of the paper, which needs more noise for the same privacy; use it only to
            reproduce published results.
        values : bool
            Whether to release the values in addition to the positions.
        values_share : float
            Share of the budget (in rho) that is spent on the values, with ``method="gumbel"``.
        absolute : bool
            Whether to select the entries with the largest absolute values (default), or the largest entries.

        Returns
        -------
        TopK
            The selected positions and, with ``values=True``, the noisy values of ``offset + factor x sum`` at
            these positions.

        Notes
        -----
        **Privacy.** The cost is recorded before any site is queried, once for each row of a sum that is a
        matrix.
        """
        self._check_selections()
        statistic, record_sensitivity, names = self._rounds.check(op, args, sites)
        ranking = Ranking.for_shape(record_sensitivity.shape, offset, factor, candidates)
        ranking.check_count(k)
        size = ranking.size(self._rounds.count(names), record_sensitivity.bound)
        selection = NoisyTopK(
            k,
            ranking.sensitivity(record_sensitivity.linf, size),
            epsilon=epsilon,
            delta=delta,
            mu=mu,
            rho=rho,
            method=method,
            values=values,
            values_share=values_share,
            absolute=absolute,
        )
        drawn = selection.calibrated(
            self._noise.source,
            label=label,
            derivation=Derivations.OF_STATISTIC.format(op=op, derivation=record_sensitivity.derivation),
            times=math.prod(record_sensitivity.shape[:-1]),
            trust=self._trust,
        )
        noisy = drawn.scale > 0.0
        self._noise.check_room(size, min(drawn.scale, drawn.values_scale or drawn.scale))
        assumptions = assumed(record_sensitivity, self._relation, sites=len(self._rounds.rows))
        entries = tuple(self._noise.marked(ranking.line(line, assumptions)) for line in drawn.entries)
        query = self._query(statistic, args, tuple(map(of_the_sum, entries)), names, noisy=noisy)
        lines = self._spend(entries, names, query, record_sensitivity)
        total, answered = total_and_sites(self._rounds, query, record_sensitivity, names)
        source = self._noise.source
        if noisy:
            digest = ranking.query_digest(query, k, absolute=drawn.absolute)
            source = self._noise.source_for(query, digest, answered, total)
        return replace(drawn.draw(ranking.scored(total), source, ranking.candidates), entries=lines)

    def _spend(
        self,
        entries: tuple[LedgerEntry, ...],
        sites: Sequence[str],
        query: Query,
        record_sensitivity: RecordSensitivity,
    ) -> tuple[LedgerEntry, ...]:
        """Record a release of all rows, or of some sites' rows in their parallel scopes; as recorded.

        NotAvailableError, with nothing recorded, if a site's policy forbids the noise, the kind of sums, the
        statistic or its price.
        """
        secure = all(entry.secure for entry in entries)
        self._rounds.check_policies(sites, secure=secure, colluding=self._colluding)
        self._rounds.check_release(sites, query, record_sensitivity)
        if len(sites) == len(self._rounds.rows):
            return self.ledger.spend(*entries)
        return spend_at_sites(self.ledger, entries, sites, query.session)

    @property
    def _colluding(self) -> int | None:
        """Number of sites that may collude in secure sums; None, because here the server adds the noise."""
        return None

    def _check_selections(self) -> None:
        if self._relation != "replace-one":
            raise NotAvailableError(REPLACE_ONE)

    def _query(
        self, op: SiteOp, args: Args, entries: tuple[LedgerEntry, ...], names: list[str], *, noisy: bool
    ) -> Query:
        exact = noisy and (self._noise.secure or op.sums is not None)
        bits = exact_bits(self._rounds.count(names)) if exact else 0
        return self._rounds.next_query(
            op,
            args,
            bits,
            entries,
            reservation=self._reservation.name,
            purpose=stated_purpose(self.ledger),
        )

    def __reduce__(self) -> Any:
        raise TypeError("a trusted server cannot be pickled; pickle its releases instead")

    def __repr__(self) -> str:
        return f"<TrustedServer of {len(self.sites)} sites, {self.nobs} rows>"


def released_anew(
    server: TrustedServer, missing: str, planned: PlannedQuery, answered: tuple[str, ...]
) -> NoisySum:
    """Return the release of a new query, which is charged: other sites answered, or with another sum.

    NotAvailableError if `missing`, what to do if sites do not answer, is "raise".
    """
    if missing == "raise":
        raise NotAvailableError(NOISE_USED)
    query = planned.query
    label = planned.entry.label
    args = without_digits(query.args)
    return server.release(server.planned(query.op, args, label=label, mu=planned.mu, sites=answered))


def total_and_sites(
    rounds: Rounds, query: Query, record_sensitivity: RecordSensitivity, names: list[str]
) -> tuple[Floats, tuple[str, ...]]:
    """Return the un-noised sum and the sites that answered: it must not leave the server that calls."""
    replies = rounds.ask(query, names)
    return collected(replies, record_sensitivity, rounds.rows), tuple(reply.site for reply in replies)


def collected(
    replies: Sequence[Reply], record_sensitivity: RecordSensitivity, rows: Mapping[str, int]
) -> Floats:
    """Return the sum of the replies to one query, added in the order of the sites' names.

    Parameters
    ----------
    replies : sequence of Reply
        One of each site that answered.
    record_sensitivity : RecordSensitivity
        Shape of the sum, and the largest entry of one record.
    rows : mapping of str to int
        Number of rows of each site.

    Returns
    -------
    ndarray
        The un-noised sum.

    Raises
    ------
    AlignmentError
        A reply has another shape or number of rows, or a sum that its rows cannot have; the message names
        the site.

    Notes
    -----
    **Privacy.** Un-noised: it must not leave the server that calls.
    """
    for reply in replies:
        good = reply.sums.dtype == np.float64 and reply.sums.shape == record_sensitivity.shape
        if not good or not np.isfinite(reply.sums).all() or reply.rows != rows[reply.site]:
            raise AlignmentError(WRONG_ANSWER.format(reply.site))
        limit = record_sensitivity.largest_sum([reply.rows]) * (1.0 + TOLERANCE) + TOLERANCE
        if np.abs(reply.sums).max(initial=0.0) > limit:
            raise AlignmentError(
                f"site {reply.site!r} sent a sum that is impossible for its {reply.rows} rows; the sum "
                "is not used, and the charge is kept"
            )
    total = np.zeros(record_sensitivity.shape)
    for reply in sorted(replies, key=lambda reply: reply.site):
        total += reply.sums
    return total
