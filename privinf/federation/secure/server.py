r"""SecureServer: sums over sites of which only the noisy total is visible.

Every site clips, sums, rounds to a grid, adds its share of the noise and a mask for every neighbor
(`site_masking`, `masking`), all in integers modulo 2^64; masks cancel in the sum over the roster. One message
goes to each site and one back.

**What is trusted.** The server and up to ``max_colluding`` sites may pool all that they see, and may query
what they like. The sites' code is trusted, as are their key files, the pinned roster and the primitives of
the package cryptography (X25519, HKDF-SHA256, ChaCha20). Then what they learn of the other sites' rows is the
sum over all those sites with at least the promised noise, for each query that a site's policy, budget and
order of queries allow: the price in the ledgers is that of **every** such view, colluders' shares of
the noise taken off.

**What it does not do.**

- No forward secrecy: anyone who gets hold of a site's identity key and of old messages can unmask them (what
  he then sees still has the site's own noise, a share of the promised one).
- A server that fakes a drop-out gets the sum with and without a site, and so that site's sum up to the noise
  of two releases. Both are charged; the record's guarantee holds, the secrecy of the site's own total is
  then that of the noise alone. ``min_sites`` bounds how far a roster can shrink.
- An incomplete sum is worthless to the server, and is charged all the same: nobody can check whether the
  missing answer is only late.
- A site that lies about its rows, and a server that reports a wrong total, are not detected. What a liar can
  do is bounded: a total farther from 0 than all rows and 64 sds of all noise can be is void and charged
  (`check_range`), and one nearer is indistinguishable from a true one, so that an entry can be off by up to
  twice that range. Masks hide who it was: the error names all. Totals are read modulo 2^64 steps, at least
  twice the range of what sites may send; what goes round lands in the range only by chance.
- It was not reviewed by cryptographers.

The secure aggregation that comes with Flower 1.41 is not used. Its masks come from a Mersenne twister whose
seed has 28 effective bits: in a run of 20 clients one client's whole vector was recovered in 50 s; and it
hands out both shares of a client to a server that calls it alive and dropped at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np

from privinf.accounting import Ledger, LedgerEntry, calibrate_mu
from privinf.accounting.ledger import stated_purpose
from privinf.error_boundary import error_boundaries
from privinf.errors import AlignmentError, NotAvailableError
from privinf.federation.messages import WRONG_ANSWER, Federation, Query
from privinf.federation.noisy import NoisySum
from privinf.federation.planned import (
    Args,
    PlannedQuery,
    standing_lines,
    verified_digest,
    with_query_digest,
    without_digits,
)
from privinf.federation.policy import TOLERANCE
from privinf.federation.rounds import MissingSites, answers_of
from privinf.federation.secure.masking import SumPlan, Words, plan_sum, solve_grid
from privinf.federation.secure.site import KIND, NOISE_SDS, check_room, read_terms
from privinf.federation.trusted import TrustedServer
from privinf.mechanisms.statistics.block import exact_bits
from privinf.mechanisms.statistics.ops import RecordSensitivity
from privinf.noise.source import GRID_BITS
from privinf.progress import step
from privinf.schema import Design
from privinf.typing import Integers, RngLike, SumRelation
from privinf.validation import check_count
from privinf.wire import Places


@dataclass(frozen=True, slots=True, eq=False)
class MaskedSum:
    """Outcome of one query to a roster.

    Attributes
    ----------
    steps : ndarray of int64 or None
        The noisy sum in steps of the grid, flat; None if a site did not answer.
    silent : tuple of str
        Sites that did not answer.

    Notes
    -----
    **Privacy.** Released: public.
    """

    steps: Integers | None
    silent: tuple[str, ...]


def masked_sum(federation: Federation, query: Query, size: int, rows: Mapping[str, int]) -> MaskedSum:
    """Query the roster once and unmask the sum.

    Parameters
    ----------
    federation : Federation
    query : Query
        With the terms of a secure sum.
    size : int
        Numbers in the sum.
    rows : mapping
        Number of rows by site.

    Raises
    ------
    PrivinfError
        A site refuses the query. The message names the site.
    AlignmentError
        A site's answer does not fit the query.

    Notes
    -----
    **Privacy.** Sees masked words; their sum is the release.
    """
    roster = list(query.masking["roster"])
    replies = {reply.site: reply for reply in answers_of(federation, query, roster)}
    for name, reply in replies.items():
        fits = reply.masked.shape == (size,) and reply.masked.dtype == np.uint64
        if not fits or reply.rows != rows[name]:
            raise AlignmentError(WRONG_ANSWER.format(name))
    silent = tuple(name for name in roster if name not in replies)
    if silent:
        return MaskedSum(None, silent)
    total = add_words([replies[name].masked for name in roster])
    return MaskedSum(total.view(np.int64), ())


def common_roster(pinned: Mapping[str, str | None]) -> str:
    """Return the digest of the roster that all sites have pinned, by site.

    Raises
    ------
    NotAvailableError
        A site has none; the message names it.
    AlignmentError
        Two sites have different ones.
    """
    first, common = next(iter(pinned.items()))
    for name, digest in pinned.items():
        if digest is None:
            raise NotAvailableError(
                f"site {name!r} has no secret key or no roster (the list of the sites' public keys), so it "
                "cannot take part in secure sums; start the site with key= and roster= (on the command line: "
                "--key and --roster)"
            )
        if digest != common:
            raise AlignmentError(
                f"site {name!r} and site {first!r} have different rosters (lists of the sites' public "
                "keys); use the same roster at all sites"
            )
    return str(common)


def check_range(steps: Integers, limit: float, sites: Sequence[str]) -> None:
    """Raise AlignmentError if an entry of a total is farther from 0 than rows and noise can be, in steps."""
    outside = int(np.count_nonzero(np.abs(steps.astype(np.float64)) > limit))
    if outside:
        raise AlignmentError(
            f"the secure sum of the sites {', '.join(map(repr, sites))} is invalid, because "
            f"{outside} of {steps.size} entries are outside their possible range. A site sent a "
            "wrong sum, or the masks did not cancel; the server cannot determine which site. The "
            "charge is kept. Check that all sites have the same roster and version of privinf"
        )


def add_words(words: Sequence[Words]) -> Words:
    """Return the sum of vectors of words modulo 2^64."""
    return np.asarray(np.sum(words, axis=0, dtype=np.uint64))


@error_boundaries
class SecureServer(TrustedServer):
    """Server of secure sums, which sees only noisy totals over the sites and need not be trusted.

    Parameters
    ----------
    federation : Federation
        Federation of the sites. All sites must have a key, the same roster, and a policy with
        ``secure_sums=True``.
    max_colluding : int
        Number of sites that may collude with the server. The noise of these sites does not count toward the
        guarantee, so all sites add more noise. For m sites, the variance of the total noise is m / (m -
        max_colluding) times the variance for a trusted curator. If `max_colluding` is m - 1, the noise of
        each site alone is large enough to protect its rows.
    missing : {"raise", "continue"}
        Handling of a site that does not answer. With "raise" the release fails. With "continue" the other
        sites are queried again, with new noise and at a further cost.
    retries : int
        Largest number of repeated attempts for one sum, with ``missing="continue"``.
    grid_bits : int
        Fineness of the grid of the noise: the standard deviation of the noise of one site is between
        2^grid_bits and 2^(grid_bits + 1) steps of the grid. If `grid_bits` is below 20, only a guarantee in
        zCDP is stated.
    ledger : Ledger, optional
        Budget ledger that records the cost of the releases. By default a new ledger is made.
    rng : int or Generator, optional
        Seed of simulation noise, which is not private. The sites then draw simulation noise from seeds in the
        query, which their policies must allow. With None (default) the noise is secure.
    design : Design, optional
        Design (columns and bounds), for sites that hold a table and a schema. The server sends the design to
        the sites before its first query.
    relation : {"replace-one", "zero-out"}
        Neighboring relation of all guarantees. Under "replace-one" one record is replaced by any other
        record, and under "zero-out" by a record that contributes nothing. Under "zero-out" the sensitivity is
        about half as large, and the guarantee is weaker. The policies of the sites must allow "zero-out".

    Raises
    ------
    AlignmentError
        Raised if a site does not answer, or its columns or its roster differ from those of the other sites.
    NotAvailableError
        Raised if a site refuses the query, or has no roster. The message names the site.

    Notes
    -----
    **Privacy.** The server and up to `max_colluding` sites may collude and combine everything that they
    receive. The code and the key files of the other sites are trusted. Every site adds noise to its own sum.
    The cost of a release is recorded in the ledger of the server before any site is queried, and in the
    ledger of every site before a row is read. Every repeated attempt costs the same amount again. The
    attribute `scale` of a released sum includes the noise of all sites, whereas the cost counts only the
    noise of sites that do not collude.

    References
    ----------
    Bonawitz et al. (2017), "Practical secure aggregation for privacy-preserving machine learning". Kairouz,
    Liu and Steinke (2021), "The distributed discrete Gaussian mechanism for federated learning".

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> from privinf.federation import InProcessFederation, SecureServer, Site, SitePolicy, pinned_keys
    >>> design = pi.Design.from_arrays(["x"], bounds=[(-1, 1)], y_bounds=(-2, 2))
    >>> keys, roster = pinned_keys(["north", "south"])
    >>> rows = np.full(500, 0.5), np.full((500, 1), 1.0)
    >>> policy = SitePolicy(secure_sums=True)
    >>> sites = {name: Site(rows, design, policy=policy, key=keys[name], roster=roster) for name in keys}
    >>> server = SecureServer(InProcessFederation(sites))
    >>> noisy = server.scalar("squared_residuals", {"residual_clip": 1.0}, mu=1.0, label="variance")
    >>> bool(abs(noisy.mean - 0.25) < 0.05), len(server.ledger), len(sites["north"].ledger)
    (True, 1, 1)
    """

    def __init__(
        self,
        federation: Federation,
        *,
        max_colluding: int = 0,
        missing: MissingSites = "raise",
        retries: int = 2,
        grid_bits: int = GRID_BITS,
        ledger: Ledger | None = None,
        rng: RngLike = None,
        design: Design | None = None,
        relation: SumRelation = "replace-one",
    ) -> None:
        self._max_colluding = check_count(max_colluding, "max_colluding", least=0)
        self._retries = check_count(retries, "retries", least=0)
        self._grid_bits = check_count(grid_bits, "grid_bits", least=2)
        super().__init__(
            federation, ledger=ledger, rng=rng, design=design, missing=missing, relation=relation
        )
        self._pinned = common_roster(self._rounds.rosters)

    @property
    def terms(self) -> str:
        """Short description of the trust model, the noise and the charges of this server."""
        return Places.MASKED.format(
            relation=self._relation, colluding=self._max_colluding, grid=self._grid_bits
        )

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
        """
        carriers = len(self.sites) - self._max_colluding
        if not math.isinf(mu) and carriers > 0:
            solve_grid(1.0, size, mu / 4.0, carriers, self._grid_bits)

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
        """Return the first query of `vector_sum`, with its ledger entry; nothing is charged or sent.

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
        names = sorted(names)
        level = calibrate_mu(mu=mu, rho=rho)
        plan = plan_sum(
            record_sensitivity,
            level,
            label=label,
            op=op,
            sites=len(names),
            colluding=self._max_colluding,
            rows=self._largest_site(record_sensitivity, names),
            grid_bits=self._grid_bits,
            secure=self.secure,
            relation=self._relation,
            seeded="seed" in args,
        )
        bits = exact_bits(max(self._rounds.rows[name] for name in names)) if plan.entry.secure else 0
        query = self._rounds.next_query(
            statistic,
            args,
            bits,
            (plan.entry,),
            masking=self._terms(plan, names),
            reservation=self._reservation.name,
            purpose=stated_purpose(self.ledger),
        )
        check_room(
            read_terms(query, plan.entry),
            self._largest_site(record_sensitivity, names),
            record_sensitivity.bound,
        )
        # The digits are part of a query: with other digits it is another query, with its own noise.
        return PlannedQuery(with_query_digest(query, asked_bits=bits), tuple(names), plan.site_scale, level)

    def remember(self, path: str | PathLike[str], *, begun: bool | None = None) -> bytes:
        """Raise an error, because sites draw the noise and store their replies, so there is no noise key.

        Parameters
        ----------
        path : path
            Path of a file, which is not used.
        begun : bool, optional
            Not used.

        Returns
        -------
        bytes
            Never returned.

        Raises
        ------
        NotAvailableError
            Always raised.
        """
        raise NotAvailableError(
            "a secure server has no noise key to store, because the sites draw the noise and store their "
            "replies; omit remember()"
        )

    def release(self, planned: PlannedQuery) -> NoisySum:
        """Make a release that was planned by this server, or by an earlier server that was stopped.

        A site that has already answered the query sends the same reply again, at no further cost, so the sum
        and its noise are the same. If some of the sites no longer answer, the other sites need new masks. The
        sum over the remaining sites is then a new release, which is charged.

        Parameters
        ----------
        planned : planned query
            Query that the method `planned` returned. The release is charged unless the ledger already
            contains exactly its entry.

        Returns
        -------
        NoisySum
            The noisy sum, with the standard deviation of its noise and its ledger entries.

        Notes
        -----
        **Privacy.** The cost is recorded before any site is queried, and again for every repeated attempt.
        """
        verified_digest(planned, asked_bits=planned.query.args.get("bits", 0))
        lines: tuple[LedgerEntry, ...] = ()
        rounds = self._rounds
        rounds.skip(planned.query.sequence)
        for _ in range(self._retries + 1):
            query = planned.query
            names = list(planned.sites)
            args = without_digits(query.args)
            _, record_sensitivity, _ = self._rounds.check(query.op, args, names)
            lines += standing_lines(self.ledger, planned) or self._spend(
                (planned.entry,), names, query, record_sensitivity
            )
            outcome = masked_sum(rounds.federation, query, record_sensitivity.size, rounds.rows)
            step()
            if outcome.steps is not None:
                check_range(outcome.steps, self._farthest(planned, record_sensitivity), names)
                return self._noisy(outcome.steps, planned, record_sensitivity, lines)
            remaining = self._shrunk(names, outcome.silent)
            planned = self.planned(query.op, args, label=planned.entry.label, mu=planned.mu, sites=remaining)
        raise AlignmentError(
            f"{self._retries + 1} attempts at one secure sum failed, because in each of them at "
            "least one site did not answer; check that every site is running"
        )

    @property
    def _colluding(self) -> int:
        return self._max_colluding

    def _check_selections(self) -> None:
        """Refuse: peeling needs sums without noise, which nobody sees here."""
        raise NotAvailableError(
            "private selection is not available for secure sums; release all entries of the sum, "
            "or use a TrustedServer"
        )

    def _largest_site(self, record_sensitivity: RecordSensitivity, names: list[str]) -> int:
        """Return how many units the largest site has."""
        return max(record_sensitivity.units(self._rounds.rows[name]) for name in names)

    def _farthest(self, planned: PlannedQuery, record_sensitivity: RecordSensitivity) -> float:
        """Return the most steps that an entry can be from 0: rows, a step a site, 64 sds of all noise."""
        names = planned.sites
        grid = float(planned.query.masking["grid"])
        rows = sum(record_sensitivity.units(self._rounds.rows[name]) for name in names)
        noise = NOISE_SDS * math.sqrt(len(names)) * planned.scale
        return (rows * record_sensitivity.bound * (1.0 + TOLERANCE) + noise) / grid + len(names)

    def _terms(self, plan: SumPlan, names: list[str]) -> dict[str, Any]:
        """Return the terms of a secure sum, for its query."""
        terms: dict[str, Any] = {
            "kind": KIND,
            "roster": names,
            "pinned": self._pinned,
            "grid": plan.grid,
            "max_colluding": self._max_colluding,
        }
        memory = self._noise.memory
        if memory is not None and not self.secure and plan.site_scale > 0.0:
            seed = memory.seeded(Places.SEED_OF_MASKED_SUM, self._rounds.sequence + 1)
            terms["seed"] = int.from_bytes(seed[:8], "little") >> 2
        return terms

    def _noisy(
        self,
        steps: Integers,
        planned: PlannedQuery,
        record_sensitivity: RecordSensitivity,
        lines: tuple[LedgerEntry, ...],
    ) -> NoisySum:
        grid = planned.query.masking["grid"]
        values = np.asarray(steps * grid, dtype=np.float64).reshape(record_sensitivity.shape)
        scale = planned.scale * float(np.sqrt(len(planned.sites)))
        return NoisySum(
            values=values,
            rows=self._rounds.count(planned.sites),
            sites=planned.sites,
            scale=scale,
            mu=planned.mu,
            entries=lines,
        )

    def _shrunk(self, names: list[str], silent: tuple[str, ...]) -> list[str]:
        """Return the remaining sites after some fell silent."""
        remaining = [name for name in names if name not in silent]
        if self._rounds.missing == "raise" or len(remaining) < 2:
            raise AlignmentError(
                f"{'site' if len(silent) == 1 else 'sites'} {', '.join(map(repr, silent))} did not answer; "
                "check that every site is running"
            )
        self._rounds.leave_out(silent)
        return remaining

    def __repr__(self) -> str:
        return f"<SecureServer of {len(self.sites)} sites, {self.nobs} rows>"
