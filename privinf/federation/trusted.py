"""TrustedServer: the only place where un-noised sums meet; every number that leaves it is noisy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal
from uuid import uuid4

import numpy as np

from privinf import errors
from privinf.accounting import Ledger, LedgerEntry, calibrate_mu
from privinf.errors import AlignmentError, ArgumentError, NotAvailableError, PrivinfError, SensitivityError
from privinf.federation.agreement import check_alike
from privinf.federation.in_process import Federation
from privinf.federation.messages import Query, Reply
from privinf.federation.noisy import NoisyGram, NoisySum
from privinf.mechanisms.gaussian import NOTHING_ADDED, PUBLIC_N, Line
from privinf.mechanisms.noisy_top_k import Method, NoisyTopK, TopK
from privinf.mechanisms.site_ops import Reach, SiteOp
from privinf.mechanisms.site_rows import exact_bits
from privinf.mechanisms.sparse_statistics import SITE_OPS, from_isometric
from privinf.noise import NoiseSource, get_source, grid_step
from privinf.noise.lattice import LARGEST_STEP
from privinf.schema import Design
from privinf.typing import Flags, Floats, RngLike
from privinf.validation import check_choice, check_fraction, check_number

Missing = Literal["raise", "continue"]
SumRelation = Literal["replace-one", "zero-out"]
Args = Mapping[str, Any]

PARTITION = "site"


class TrustedServer:
    """Sums the sites' answers, adds the noise and writes one ledger line per release.

    Parameters
    ----------
    federation : Federation
    ledger : Ledger, optional
        Account of the releases; a new one by default.
    noise : NoiseSource, optional
        Secure noise by default; seeded noise only where every site's policy allows simulation.
    rng : int or Generator, optional
        Instead of `noise`: seeds simulation noise.
    design : Design, optional
        Sent to the sites first: for sites that hold a table and a schema.
    missing : {"raise", "continue"}
        What to do when a site does not answer: stop, or go on with the others from then on.
    relation : {"replace-one", "zero-out"}
        Neighbouring relation of all claims. Under "zero-out" a record is replaced by one that contributes
        nothing: half the sensitivity or a little more, for a weaker promise, and no selections. The sites'
        policy must allow it.

    Raises
    ------
    AlignmentError
        A site does not answer, or has other columns or bounds than the others; the message names it.
    NotAvailableError
        A site refuses; the message names it.

    Notes
    -----
    **Privacy.** Trusted: it sees un-noised sums and forgets them. A release is charged before
    any site is asked; one whose round fails stays charged. Releases of some sites only are charged in the
    parallel scopes of those sites, whose rows are disjoint; the others' rows pay nothing.

    Examples
    --------
    >>> import numpy as np
    >>> from privinf.federation import InProcessFederation, Site, SitePolicy
    >>> design = Design.from_arrays(["x"], bounds=[(-1, 1)], y_bounds=(-2, 2))
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
        missing: Missing = "raise",
        relation: SumRelation = "replace-one",
    ) -> None:
        self._missing: Missing = check_choice(missing, Missing, "missing")
        self._relation: SumRelation = check_choice(relation, SumRelation, "relation")
        self._federation = federation
        self._session, self._sequence = str(uuid4()), 0
        self._noise: NoiseSource = get_source(rng) if noise is None else noise
        self.ledger = Ledger() if ledger is None else ledger
        self._rows: dict[str, int] = {}
        self._design = self._introduce(design)
        self._digest = self._design.digest

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites that answer."""
        return tuple(self._rows)

    @property
    def rows(self) -> dict[str, int]:
        """Number of rows of each site, public."""
        return dict(self._rows)

    @property
    def nobs(self) -> int:
        """Number of rows of all sites."""
        return sum(self._rows.values())

    @property
    def design(self) -> Design:
        """The public columns and bounds, the same at every site."""
        return self._design

    @property
    def relation(self) -> SumRelation:
        """The neighbouring relation of all claims."""
        return self._relation

    @property
    def secure(self) -> bool:
        """Whether the noise is secure."""
        return self._noise.secure

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
        """Release the sum of a statistic over all rows with Gaussian noise of one sd on every entry.

        Parameters
        ----------
        op, args
            A statistic of `SITE_OPS` and its public arguments.
        label : str
            What it is, for the ledger.
        mu, rho : float
            One of them: the price. Infinity adds no noise.
        sites : sequence of str, optional
            Only these sites' rows; charged to them alone.

        Raises
        ------
        ArgumentError
            An argument of the statistic is wrong; nothing was charged or asked.
        BudgetExceededError
            The ledger's limit, or a site's, would be passed.
        SensitivityError
            The noise is too small against the sum for 64-bit integers.
        """
        known, reach, asked = self._prepare(op, args, sites)
        line = Line(
            label=label,
            mechanism="gaussian",
            sensitivity=reach.sensitivity(self._relation),
            derivation=f"{op}: {reach.derivation}",
            dimension=reach.size,
            mu=calibrate_mu(mu=mu, rho=rho),
            unit="record",
            trust="central",
            relation=self._relation,
            assumptions=(PUBLIC_N if self._relation == "replace-one" else NOTHING_ADDED,),
        )
        scale, entry = line.calibrated(self._noise)
        if scale > 0.0 and self._noise.secure:
            _check_room(self._count(asked) * reach.bound, scale)
        total, answered = self._total(known, args, reach, (entry,), asked, noisy=scale > 0.0)
        values = total if scale == 0.0 else self._noise.perturb(total, scale)
        return NoisySum(values, self._count(answered), answered, scale, line.mu)

    def scalar(self, op: str, args: Args, *, label: str, **options: Any) -> NoisySum:
        """Release a sum of one entry, as a number; `options` as for `vector_sum`."""
        if self._prepare(op, args, options.get("sites"))[1].size != 1:
            raise ArgumentError(f"{op} with these arguments is not one number")
        found = self.vector_sum(op, args, label=label, **options)
        return replace(found, values=found.values.reshape(()))

    def gram(self, args: Args, *, label: str, op: str = "union_gram", **options: Any) -> NoisyGram:
        """Release a symmetric matrix through its isometric entries; `options` as for `vector_sum`."""
        found = self.vector_sum(op, args, label=label, **options)
        return NoisyGram(from_isometric(found.values), found.rows, found.sites, found.scale, found.mu)

    def histogram_quantile(
        self,
        args: Args,
        *,
        level: float,
        label: str,
        op: str = "residual_histogram",
        **options: Any,
    ) -> float:
        """Release the quantile of |r| at `level` from one noisy histogram on public edges.

        Returns
        -------
        float
            Between the first and the last edge; inside a cell by geometric interpolation.

        Notes
        -----
        The histogram is the release (`options` as for `vector_sum`); the quantile is where its running sum,
        made nondecreasing, passes level x n.
        """
        check_fraction(level, "level")
        found = self.vector_sum(op, args, label=label, **options)
        edges = np.asarray(args["edges"], dtype=np.float64)
        reached = np.maximum.accumulate(np.cumsum(found.values))
        wanted = level * found.rows
        cell = int(np.searchsorted(reached, wanted))
        if cell == 0 or cell >= len(edges):
            return float(edges[0] if cell == 0 else edges[-1])
        inside = (wanted - reached[cell - 1]) / (reached[cell] - reached[cell - 1])
        return float(edges[cell - 1] * (edges[cell] / edges[cell - 1]) ** inside)

    def top_k(
        self,
        op: str,
        args: Args,
        k: int,
        *,
        label: str,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        rho: float | None = None,
        method: Method = "gumbel",
        values: bool = True,
        values_share: float = 0.5,
        absolute: bool = True,
        offset: Floats | None = None,
        factor: float = 1.0,
        candidates: Flags | None = None,
        sites: Sequence[str] | None = None,
    ) -> TopK:
        """Release the k largest entries of ``offset + factor x sum``: positions, and values if asked.

        Parameters
        ----------
        op, args, label, sites
            As for `vector_sum`. A statistic of several rows (m, p) is peeled row by row.
        k, epsilon, delta, mu, rho, method, values, values_share, absolute
            As for `NoisyTopK`; the level is the price of **each** row that is peeled.
        offset : ndarray, shape of the sum, optional
            Public.
        factor : float
            Public, such as 1/n.
        candidates : ndarray of bool, broadcastable to the sum, optional
            False for positions that must not be picked: a public choice.

        Returns
        -------
        TopK
            Values in units of ``offset + factor x sum``.
        """
        if self._relation != "replace-one":
            raise NotAvailableError("selections are charged replace-one: ask a server of that relation")
        known, reach, asked = self._prepare(op, args, sites)
        factor = check_number(factor, "factor")
        shift = np.zeros(reach.shape) if offset is None else np.asarray(offset, dtype=np.float64)
        allowed = np.broadcast_to(True if candidates is None else np.asarray(candidates, bool), reach.shape)
        if shift.shape != reach.shape or not np.isfinite(shift).all() or factor == 0.0:
            raise ArgumentError(f"offset must be finite and of shape {reach.shape}, factor not 0")
        if allowed.sum(axis=-1).min() < k:
            raise ArgumentError(f"fewer than k={k} candidates to pick from")
        # Rounding of the sum's shift and scaling, in doubles.
        room = 2.0**-50 * (np.abs(shift).max() + abs(factor) * self._count(asked) * reach.bound)
        mechanism = NoisyTopK(
            k, abs(factor) * reach.linf + float(room), epsilon=epsilon, delta=delta, mu=mu, rho=rho,
            method=method, values=values, values_share=values_share, absolute=absolute,
        )  # fmt: skip
        peeling = mechanism.calibrated(
            self._noise, label=label, derivation=f"{op}: {reach.derivation}",
            times=math.prod(reach.shape[:-1]),
        )  # fmt: skip
        if peeling.scale > 0.0 and self._noise.secure:
            _check_room(float(room) * 2.0**50, min(peeling.scale, peeling.values_scale or peeling.scale))
        entries = tuple(
            replace(entry, noise={**entry.noise, "factor": abs(factor)}) for entry in peeling.entries
        )
        total, _ = self._total(known, args, reach, entries, asked, noisy=peeling.scale > 0.0)
        return peeling.draw(shift + factor * total, self._noise, allowed)

    # ---- the round

    def _prepare(self, op: str, args: Args, sites: Sequence[str] | None) -> tuple[SiteOp, Reach, list[str]]:
        """Check everything that can be checked before a charge."""
        if op not in SITE_OPS:
            raise ArgumentError(f"no statistic is called {op!r}; there are {', '.join(SITE_OPS)}")
        asked = list(self._rows) if sites is None else list(dict.fromkeys(sites))
        for name in asked:
            if name not in self._rows:
                raise ArgumentError(f"no site that answers is called {name!r}")
        if not asked:
            raise ArgumentError("sites must name at least one site")
        if "bits" in args:
            raise ArgumentError("bits is the server's to choose")
        plain = Query(op, args).args  # refuses what no transport carries
        return SITE_OPS[op], SITE_OPS[op].reach(plain, len(self._design.names)), asked

    def _total(
        self,
        op: SiteOp,
        args: Args,
        reach: Reach,
        entries: tuple[LedgerEntry, ...],
        asked: list[str],
        *,
        noisy: bool,
    ) -> tuple[Floats, tuple[str, ...]]:
        """Charge, ask, and return the un-noised sum: never let it out of the calling method."""
        bits = exact_bits(self._count(asked)) if noisy and self._noise.secure else 0
        query = Query(
            op.name, {**args, "bits": bits}, op.version, self._digest, self._session, self._next(),
            tuple(entry.to_dict() for entry in entries),
        )  # fmt: skip
        self._spend(entries, asked)
        replies = self._round(query, asked)
        for reply in replies:
            good = reply.sums.shape == reach.shape and np.isfinite(reply.sums).all()
            if not good or reply.rows != self._rows[reply.site]:
                raise AlignmentError(f"site {reply.site!r} sent an answer that does not fit the question")
        total = np.zeros(reach.shape)
        for reply in replies:
            total += reply.sums
        return total, tuple(reply.site for reply in replies)

    def _spend(self, entries: tuple[LedgerEntry, ...], asked: list[str]) -> None:
        """Record a release of all rows, or of some sites' rows in their parallel scopes."""
        if len(asked) == len(self._rows):
            self.ledger.spend(*entries)
            return
        doors = [self.ledger.scope(name, disjoint=PARTITION) for name in asked]
        for door in doors:
            door.check([entry.loss for entry in entries])
        for door in doors:
            door.spend(*(replace(entry, id=str(uuid4())) for entry in entries))

    def _round(self, query: Query, asked: list[str]) -> list[Reply]:
        """Return the replies; refusals are raised, silence by the rule for missing sites."""
        replies = self._federation.ask(query, asked)
        for reply in replies:
            if reply.error:
                raise refusal_of(reply)
        silent = [name for name in asked if name not in {reply.site for reply in replies}]
        if silent and (self._missing == "raise" or not replies):
            raise AlignmentError(f"no answer from site {', '.join(map(repr, silent))}")
        for name in silent:
            self._rows.pop(name, None)
        return replies

    def _introduce(self, design: Design | None) -> Design:
        """Ask who is there and what columns they have."""
        names = list(self._federation.sites)
        self._rows = dict.fromkeys(names, 0)
        query = Query("describe") if design is None else Query("design", {"design": design.to_dict()})
        replies = self._round(query, names)
        check_alike({reply.site: reply.facts for reply in replies})
        self._rows = {reply.site: reply.rows for reply in replies}
        facts = replies[0].facts["design"]
        if facts is None:
            raise NotAvailableError("the sites have a schema but no design yet: pass design=")
        return Design.from_dict(facts)

    def _count(self, names: Sequence[str]) -> int:
        return sum(self._rows[name] for name in names)

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence

    def __reduce__(self) -> Any:
        raise TypeError("a trusted server is not pickled: pickle its releases")

    def __repr__(self) -> str:
        return f"<TrustedServer of {len(self._rows)} sites, {self.nobs} rows>"


def _check_room(reach: float, scale: float) -> None:
    if 2.0 * reach / grid_step(scale) >= LARGEST_STEP:
        raise SensitivityError("the sum is too large against the noise for its fixed-point grid")


def refusal_of(reply: Reply) -> PrivinfError:
    """Return a site's error as one of this package's, with the site's name."""
    kind, _, message = reply.error.partition(": ")
    found = getattr(errors, kind, None)
    usable = isinstance(found, type) and issubclass(found, PrivinfError)
    return (found if usable else ArgumentError)(f"site {reply.site!r}: {message or kind}")  # type: ignore[misc]
