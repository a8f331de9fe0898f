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
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

import numpy as np

from privinf.accounting import Ledger, LedgerEntry, Loss, ReleasedNumber, calibrate_mu
from privinf.accounting.ledger import check_ledger
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
    """Trusted server, which sums the answers of sites, adds noise and charges the ledger.

    Parameters
    ----------
    federation : Federation
        The sites.
    ledger : Ledger, optional
        Budget ledger of the releases; a new one by default.
    noise : NoiseSource, optional
        Secure noise by default; seeded noise only where every site's policy allows simulation. OpenDP's noise
        cannot be keyed, so a release with this noise cannot be repeated.
    rng : int or Generator, optional
        Seed of simulation noise, instead of `noise`.
    design : Design, optional
        Columns and bounds, for sites that hold a table and a schema. The server sends the design to the sites
        first.
    missing : {"raise", "continue"}
        Handling of a site that does not answer: stop, or continue with the others.
    relation : {"replace-one", "zero-out"}
        Neighboring relation of all guarantees. Under "zero-out" one of two neighboring tables has a record
        that contributes nothing, in place of a record of the other table: the sensitivity is about half as
        large, the guarantee is weaker, and selections are not available. The sites' policy must allow
        "zero-out".
    trust : {"server", "central"}
        Trust model that ledger lines state: "central" where one curator holds the rows of all sites.

    Raises
    ------
    AlignmentError
        A site does not answer, or its columns or bounds differ from those of the other sites; the message
        names the site.
    NotAvailableError
        A site refuses the query; the message names the site.
    SchemaError
        Rows of a model, which are not copied, were changed and are invalid now.

    Notes
    -----
    **Privacy.** The server is trusted: it sees sums without noise and does not store them. A release is
    charged before any site is queried, and the charge is kept if its round fails. A release of some sites
    only is charged in the parallel scopes of these sites, whose rows are disjoint; the rows of the other
    sites are not charged. Parallel composition holds within one session: releases of different servers add up
    in a ledger, since two servers may use one name for different sites.

    Noise is a function of a secret key, the query, the sites that answered and their sum, so a repeated
    release is identical (`privinf.noise.NoiseKey` states the assumption). The key is kept by the server, or
    in a secret file (`remember`). With simulation noise, equal seeds give equal noise at equal positions of a
    session, even if the last bits of the sums differ.

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

    _sees_sums: ClassVar[bool] = True  # sites send sums, and the server adds the noise

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
        """Names of the sites that answer."""
        return tuple(self._rounds.rows)

    @property
    def rows(self) -> dict[str, int]:
        """Number of rows of each site, public."""
        return dict(self._rounds.rows)

    @property
    def imputed(self) -> Missing:
        """Rule for missing values at the sites: "impute-public" if any imputes, "drop" if any drops rows."""
        return self._rounds.imputed

    @property
    def nobs(self) -> int:
        """Number of rows of all sites."""
        return sum(self._rounds.rows.values())

    @property
    def design(self) -> Design:
        """The public columns and bounds, the same at every site."""
        return self._rounds.design

    @property
    def terms(self) -> str:
        """Short description of how this server makes and charges releases."""
        return Places.TRUSTED.format(relation=self._relation)

    @property
    def secure(self) -> bool:
        """Whether the noise is secure."""
        return self._noise.secure

    @property
    def heads(self) -> HeadMemory | None:
        """Last known heads (line count, last tag) of the sites' ledgers; None if replies are unchecked."""
        return getattr(self._rounds.federation, "heads", None)

    def remember(self, path: str | PathLike[str], *, begun: bool | None = None) -> bytes:
        """Store the noise key and the answers in a secret file, or continue with an existing one.

        Parameters
        ----------
        path : path
            The secret file.
        begun : bool, optional
            Whether other files show that noise was drawn or planned under the stored key. True uses the
            stored key. False replaces the stored key, unless noise was drawn under it. By default the stored
            key is used if the file contains an answer. See `NoiseFile`.

        Returns
        -------
        bytes
            Secret key of the checksums (HMAC) of the other files in the same folder.

        Raises
        ------
        ArgumentError
            The noise cannot be keyed, the file belongs to a different kind of noise, or this server has made
            a release already.
        StorageError
            The file is damaged, or cannot be written; or another account could have read, changed or replaced
            it.

        Notes
        -----
        **Privacy.** The file is a secret: a person who reads it can remove the noise. A stored key under
        which no noise was drawn or planned is replaced by the key of this server.
        """
        return self._noise.remember(path, begun=begun)

    def bind(self, path: Path, *, begun: bool) -> None:
        """Store a digest of the caller's own rows and their order in a secret file.

        Parameters
        ----------
        path : path
            The secret file.
        begun : bool
            Whether the fit has begun. If the fit has not begun, an existing file is replaced.

        Raises
        ------
        StorageError
            The file belongs to rows other than these, or to a different order of the rows; or it is missing
            although the fit has begun. Batches are disjoint only within one order of the rows.
        """
        if isinstance(self._rounds.federation, LocalSites):
            bind_rows(path, self._rounds.federation.digest, begun=begun)

    @contextmanager
    def reserving(self, losses: Sequence[Loss]) -> Iterator[None]:
        """Reserve the cost of a fit at every site, and return the unused part when it ends.

        The unused part is also returned if the fit ends in an error. If the process of the fit dies, the
        reservation ends after seven days.

        Parameters
        ----------
        losses : sequence of Loss
            Losses of the releases of the fit.

        Returns
        -------
        context manager
            The reservation holds inside its ``with`` block.

        Raises
        ------
        PrivinfError
            A site refuses or does not answer. After this error no site has reserved or charged anything.
        """
        self.reserve(losses, str(uuid4()), 1)
        try:
            yield
        finally:
            self.give_back(2)

    def reserve(self, losses: Sequence[Loss], name: str, position: int) -> None:
        """Reserve losses under a name at every site, or at none.

        Nothing is reserved if the sites hold the caller's own rows, or if a release has no noise, because no
        limit allows the infinite loss of such a release.

        Parameters
        ----------
        losses : sequence of Loss
            Losses of the releases.
        name : str
            Name of the reservation.
        position : int
            Position of the query in the session.

        Raises
        ------
        PrivinfError
            A site refuses or does not answer. After this error no site has reserved or charged anything.
        """
        self._rounds.check_policies(self.sites, secure=self.secure, sees_sums=self._sees_sums)
        self._reservation.begin(losses, name, position)

    def give_back(self, position: int) -> None:
        """Return the part of the reservations that sites did not charge.

        Parameters
        ----------
        position : int
            Position of the query in the session.
        """
        self._reservation.give_back(position)

    def skip(self, to: int | None = None) -> None:
        """Skip positions of the session that an earlier server's queries have used.

        Parameters
        ----------
        to : int, optional
            Position of the last query to skip. By default, only the next position is skipped.
        """
        self._rounds.skip(to)

    def shape(self, op: str, args: Args) -> tuple[int, ...]:
        """Return the shape of a sum over all sites.

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
        """Release the sum of a statistic over all rows, with Gaussian noise of equal sd on every entry.

        Parameters
        ----------
        op : str
            Name of the statistic, such as "squared_residuals".
        args : mapping
            Public arguments of the statistic.
        label : str
            Description of the release in the ledger.
        mu : float, optional
            Price of the release in Gaussian differential privacy. Give either `mu` or `rho`; infinity adds no
            noise.
        rho : float, optional
            Price of the release in zero-concentrated differential privacy (zCDP), instead of `mu`.
        sites : sequence of str, optional
            Names of the sites whose rows are summed; only these sites are charged. By default all sites.

        Returns
        -------
        NoisySum
            The noisy sum, with the standard deviation of its noise and its ledger lines.

        Raises
        ------
        AlignmentError
            The total of a secure sum is impossible for any rows, or more attempts failed than `retries`
            allows. The charge is kept.
        ArgumentError
            An argument of the statistic is wrong; nothing was charged or queried.
        BudgetExceededError
            The limit of the ledger, or of a site, would be exceeded.
        SensitivityError
            The noise is too small relative to the sum for 64-bit integers.

        Notes
        -----
        **Privacy.** The price is charged before any site is queried. For a secure sum every further attempt
        is charged again.
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
        """Return the query of `vector_sum`, with its ledger line; nothing is charged or sent.

        Parameters
        ----------
        op : str
            Name of the statistic, such as "squared_residuals".
        args : mapping
            Public arguments of the statistic.
        label : str
            Description of the release in the ledger.
        mu : float, optional
            Price of the release in Gaussian differential privacy. Give either `mu` or `rho`; infinity adds no
            noise.
        rho : float, optional
            Price of the release in zero-concentrated differential privacy (zCDP), instead of `mu`.
        sites : sequence of str, optional
            Names of the sites whose rows are summed; only these sites are charged. By default all sites.

        Returns
        -------
        planned query
            Query to pass to `release`; its `entry` is the ledger line.

        Notes
        -----
        **Privacy.** Reads no rows.
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
        """Raise SensitivityError if mu may be too small to round `size` numbers to the noise grid.

        A fit calls this method if it must charge its first release before it can plan its second release. The
        method requires that a quarter of `mu` is enough, because the smallest `mu` that is enough depends on
        the digits of the sensitivity.

        Parameters
        ----------
        size : int
            Length of the vector that would be released.
        mu : float
            Price of the release in Gaussian differential privacy.

        Raises
        ------
        SensitivityError
            `mu` may be too small.
        """
        if not math.isinf(mu):
            solve_scale(1.0, mu / 4.0, size, self._noise.source)

    def release(self, planned: PlannedQuery) -> NoisySum:
        """Make or repeat a release that this server, or an earlier one that was stopped, has planned.

        The release is charged unless the ledger already has exactly its line. If the ledger already has this
        line, the release is a repetition: it costs nothing, and the result is identical. Sites recognize a
        repeated query, and answer it at no charge.

        Parameters
        ----------
        planned : planned query
            Made by `planned`.

        Returns
        -------
        NoisySum
            The noisy sum, with the standard deviation of its noise and its ledger lines.

        Raises
        ------
        ArgumentError
            The release was planned with a kind of noise that this server does not use, or its ledger line
            belongs to a different release.
        BudgetExceededError
            The limit of the ledger, or of a site, would be exceeded.
        NotAvailableError
            The release was already charged, and its noise comes from OpenDP, which cannot draw the same noise
            again. With ``missing="raise"`` this error is also raised if the sites that answered, or their
            sum, differ from those of the first release. With "continue" the server makes a new query in this
            case, which is charged.
        StorageError
            The release was planned with a noise key other than that of this server.

        Notes
        -----
        **Privacy.** The price is charged before any site is queried.
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
        lines = lines or self._spend((planned.entry,), planned.sites, query.session)
        total, answered = self._total(query, record_sensitivity, available)
        step()
        if planned.scale > 0.0:
            if not self._noise.fits(query_digest, answered, total):
                del total
                return self._new_release(planned, answered)
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
        """Release a sum of one entry, as a number.

        Parameters
        ----------
        op : str
            Name of the statistic, such as "squared_residuals".
        args : mapping
            Public arguments of the statistic.
        label : str
            Description of the release in the ledger.
        mu : float, optional
            Price of the release in Gaussian differential privacy. Give either `mu` or `rho`; infinity adds no
            noise.
        rho : float, optional
            Price of the release in zero-concentrated differential privacy (zCDP), instead of `mu`.
        sites : sequence of str, optional
            Names of the sites whose rows are summed; only these sites are charged. By default all sites.

        Returns
        -------
        NoisySum
            The noisy sum; its `values` is an array of shape ().

        Raises
        ------
        ArgumentError
            The statistic with these arguments has more than one entry.

        Notes
        -----
        **Privacy.** The result is one release, which is charged before any site is queried.
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
        """Release a symmetric matrix through its isometric entries.

        Parameters
        ----------
        args : mapping
            Public arguments of the statistic.
        label : str
            Description of the release in the ledger.
        op : str
            Name of the statistic, by default the second moments of some columns.
        mu : float, optional
            Price of the release in Gaussian differential privacy. Give either `mu` or `rho`; infinity adds no
            noise.
        rho : float, optional
            Price of the release in zero-concentrated differential privacy (zCDP), instead of `mu`.
        sites : sequence of str, optional
            Names of the sites whose rows are summed; only these sites are charged. By default all sites.

        Returns
        -------
        NoisyGram
            The noisy matrix.

        Notes
        -----
        **Privacy.** The result is one release, which is charged before any site is queried.
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
        """Release the quantile of absolute residuals at `level`, from one noisy histogram on public edges.

        Parameters
        ----------
        args : mapping
            Public arguments of the statistic; the argument "edges" has the edges of the histogram.
        level : float
            Level of the quantile, between 0 and 1.
        label : str
            Description of the release in the ledger.
        op : str
            Name of the statistic, by default the histogram of residuals.
        mu : float, optional
            Price of the release in Gaussian differential privacy. Give either `mu` or `rho`; infinity adds no
            noise.
        rho : float, optional
            Price of the release in zero-concentrated differential privacy (zCDP), instead of `mu`.
        sites : sequence of str, optional
            Names of the sites whose rows are summed; only these sites are charged. By default all sites.

        Returns
        -------
        ReleasedNumber
            The quantile, between the first and the last edge, by geometric interpolation within a cell. The
            attribute `scale` is the sd of the noise of the quantile to first order, and nan if the quantile
            is at the first or the last edge.

        Notes
        -----
        The quantile is the point where the running sum of the histogram, made nondecreasing, passes
        level x n.

        **Privacy.** The histogram is the release, charged before any site is queried; the quantile follows
        from it.
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
            Name of the statistic, such as "squared_residuals". If the sum is a matrix, shape (m, p),
            entries are selected in each row of this matrix.
        args : mapping
            Public arguments of the statistic.
        k : int
            Number of entries that are selected from one row of the sum.
        label : str
            Description of the release in the ledger.
        offset : ndarray, shape of the sum, optional
            Public numbers to which the sum is added; by default 0.
        factor : float
            Public factor of the sum, such as 1/n.
        candidates : ndarray of bool, broadcastable to the sum, optional
            False for positions that must not be selected. This mask is public.
        sites : sequence of str, optional
            Names of the sites whose rows are summed; only these sites are charged. By default all sites.
        epsilon : float, optional
            Epsilon of the (epsilon, delta) guarantee for one row of the sum. Give exactly one of `epsilon`,
            `mu` and `rho`. ``epsilon=inf`` adds no noise.
        delta : float, optional
            Delta of the (epsilon, delta) guarantee for one row of the sum. With `mu` or `rho`, epsilon is
            reported at this delta.
        mu : float, optional
            Budget for one row of the sum in Gaussian differential privacy, instead of `epsilon`.
        rho : float, optional
            Budget for one row of the sum in zero-concentrated differential privacy (zCDP), instead of
            `epsilon`.
        method : {"gumbel", "laplace"}
            Distribution of the noise of the selection. "laplace" is the paper's peeling, to reproduce
            published results: it adds more noise for the same privacy.
        values : bool
            Whether the values are released in addition to the positions.
        values_share : float
            Share of rho that is spent on the values, with ``method="gumbel"``.
        absolute : bool
            Whether the entries with the largest absolute values are selected (default), or the largest
            entries.

        Returns
        -------
        TopK
            The selected positions and, with ``values=True``, noisy values of ``offset + factor x sum`` at
            these positions.

        Notes
        -----
        **Privacy.** The selection is charged before any site is queried, once for each row of the sum.
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
        lines = self._spend(entries, names, self._rounds.session)
        total, answered = self._total(query, record_sensitivity, names)
        source = self._noise.source
        if noisy:
            digest = ranking.query_digest(query, k, absolute=drawn.absolute)
            source = self._noise.source_for(query, digest, answered, total)
        return replace(drawn.draw(ranking.scored(total), source, ranking.candidates), entries=lines)

    def _spend(
        self, entries: tuple[LedgerEntry, ...], sites: Sequence[str], session: str
    ) -> tuple[LedgerEntry, ...]:
        """Record a release of all rows, or of some sites' rows in their parallel scopes; as recorded.

        NotAvailableError, with nothing recorded, if a site's policy forbids the noise, or sums without noise.
        """
        secure = all(entry.secure for entry in entries)
        self._rounds.check_policies(sites, secure=secure, sees_sums=self._sees_sums)
        if len(sites) == len(self._rounds.rows):
            return self.ledger.spend(*entries)
        return spend_at_sites(self.ledger, entries, sites, session)

    def _check_selections(self) -> None:
        if self._relation != "replace-one":
            raise NotAvailableError(REPLACE_ONE)

    def _query(
        self, op: SiteOp, args: Args, entries: tuple[LedgerEntry, ...], names: list[str], *, noisy: bool
    ) -> Query:
        exact = noisy and (self._noise.secure or op.sums is not None)
        bits = exact_bits(self._rounds.count(names)) if exact else 0
        return self._rounds.next_query(op, args, bits, entries, reservation=self._reservation.name)

    def _new_release(self, planned: PlannedQuery, answered: tuple[str, ...]) -> NoisySum:
        """Release by a new query, which is charged: other sites answered than before, or with another sum."""
        if self._rounds.missing == "raise":
            raise NotAvailableError(NOISE_USED)
        query = planned.query
        label = planned.entry.label
        args = without_digits(query.args)
        return self.release(self.planned(query.op, args, label=label, mu=planned.mu, sites=answered))

    def _total(
        self, query: Query, record_sensitivity: RecordSensitivity, names: list[str]
    ) -> tuple[Floats, tuple[str, ...]]:
        """Return the un-noised sum and the sites that answered: it must not leave the calling method."""
        replies = self._rounds.ask(query, names)
        total = collected(replies, record_sensitivity, self._rounds.rows)
        return total, tuple(reply.site for reply in replies)

    def __reduce__(self) -> Any:
        raise TypeError("a trusted server cannot be pickled; pickle its releases instead")

    def __repr__(self) -> str:
        return f"<TrustedServer of {len(self.sites)} sites, {self.nobs} rows>"


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
