"""TrustedServer: the only place where un-noised sums meet; every number that leaves it is noisy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from privinf.accounting import Ledger, LedgerEntry, calibrate_mu
from privinf.doors import doors
from privinf.errors import AlignmentError, ArgumentError, NotAvailableError, SensitivityError
from privinf.federation.in_process import Federation
from privinf.federation.messages import Query
from privinf.federation.noisy import NoisyGram, NoisySum
from privinf.federation.rounds import Args, Missing, PlannedSum, Rounds, SumRelation, assumed, without_digits
from privinf.mechanisms.gaussian import Line
from privinf.mechanisms.noisy_top_k import Method, NoisyTopK, TopK
from privinf.mechanisms.site_ops import Reach, SiteOp
from privinf.mechanisms.site_rows import exact_bits
from privinf.noise import NoiseSource, get_source, grid_step
from privinf.noise.lattice import LARGEST_STEP
from privinf.schema import Design
from privinf.typing import Flags, Floats, RngLike
from privinf.validation import check_fraction, check_number


@doors
class TrustedServer(Rounds):
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
        self._noise: NoiseSource = get_source(rng) if noise is None else noise
        super().__init__(federation, ledger, design, missing, relation)

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
    ) -> PlannedSum:
        """Return what `vector_sum` would ask, with its ledger line; nothing is charged or asked."""
        known, reach, asked = self._prepare(op, args, sites)
        line = Line(
            label=label,
            mechanism="gaussian",
            sensitivity=reach.sensitivity(self._relation),
            derivation=f"{op}: {reach.derivation}",
            dimension=reach.size,
            mu=calibrate_mu(mu=mu, rho=rho),
            unit=reach.unit,
            trust="central",
            relation=self._relation,
            assumptions=(assumed(reach, self._relation),),
        )
        scale, entry = line.calibrated(self._noise)
        if scale > 0.0 and self._noise.secure:
            _check_room(sum(reach.units(self._rows[name]) for name in asked) * reach.bound, scale)
        query = self._query(known, args, (entry,), asked, noisy=scale > 0.0)
        return PlannedSum(query, tuple(asked), scale, line.mu)

    def release(self, planned: PlannedSum, *, charged: bool = False) -> NoisySum:
        """Make a planned release, of this server or of one before it that was stopped.

        Sites know a question again: to one that they have charged they answer at no charge.

        Parameters
        ----------
        planned : PlannedSum
        charged : bool
            Whether its line is in the ledger already.

        Raises
        ------
        ArgumentError
            It was planned with another kind of noise.
        """
        query, scale, entry = planned.query, planned.scale, planned.entry
        if scale > 0.0 and entry.secure != self.secure:
            raise ArgumentError("the release was planned with another noise source: go on with the same rng")
        asked = list(planned.asked)
        lines = (entry,) if charged else self._spend((entry,), asked)
        _, reach, _ = self._prepare(query.op, without_digits(query.args), asked)
        total, answered = self._total(query, reach, asked)
        values = total if scale == 0.0 else self._noise.perturb(total, scale)
        return NoisySum(values, self._count(answered), answered, scale, planned.mu, lines)

    def scalar(self, op: str, args: Args, *, label: str, **options: Any) -> NoisySum:
        """Release a sum of one entry, as a number; `options` as for `vector_sum`."""
        if self._prepare(op, args, options.get("sites"))[1].size != 1:
            raise ArgumentError(f"{op} with these arguments is not one number")
        found = self.vector_sum(op, args, label=label, **options)
        return replace(found, values=found.values.reshape(()))

    def gram(self, args: Args, *, label: str, op: str = "union_gram", **options: Any) -> NoisyGram:
        """Release a symmetric matrix through its isometric entries; `options` as for `vector_sum`."""
        return NoisyGram.of(self.vector_sum(op, args, label=label, **options))

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
        told = tuple(of_the_sum(entry) for entry in entries)
        query = self._query(known, args, told, asked, noisy=peeling.scale > 0.0)
        lines = self._spend(entries, asked)
        total, _ = self._total(query, reach, asked)
        top = peeling.draw(shift + factor * total, self._noise, allowed)
        return replace(top, entries=lines)

    # ---- the round

    def _query(
        self, op: SiteOp, args: Args, entries: tuple[LedgerEntry, ...], asked: list[str], *, noisy: bool
    ) -> Query:
        bits = exact_bits(self._count(asked)) if noisy and self._noise.secure else 0
        return Query(
            op.name, {**args, "bits": bits}, op.version, self._digest, self._session, self._next(),
            tuple(entry.to_dict() for entry in entries),
        )  # fmt: skip

    def _total(self, query: Query, reach: Reach, asked: list[str]) -> tuple[Floats, tuple[str, ...]]:
        """Ask, and return the un-noised sum: never let it out of the calling method."""
        replies = self._round(query, asked)
        for reply in replies:
            good = reply.sums.shape == reach.shape and np.isfinite(reply.sums).all()
            if not good or reply.rows != self._rows[reply.site]:
                raise AlignmentError(f"site {reply.site!r} sent an answer that does not fit the question")
        total = np.zeros(reach.shape)
        for reply in replies:
            total += reply.sums
        return total, tuple(reply.site for reply in replies)

    def __reduce__(self) -> Any:
        raise TypeError("a trusted server is not pickled: pickle its releases")

    def __repr__(self) -> str:
        return f"<TrustedServer of {len(self._rows)} sites, {self.nobs} rows>"


def of_the_sum(entry: LedgerEntry) -> LedgerEntry:
    """Return the line of a release of ``factor x sum`` in units of the sum, which sites can check."""
    noise, sensitivity = dict(entry.noise), entry.sensitivity
    factor = float(noise.pop("factor"))
    assert sensitivity is not None
    noise |= {name: float(noise[name]) / factor for name in ("scale", "grid")}
    return replace(entry, noise=noise, sensitivity=replace(sensitivity, value=sensitivity.value / factor))


def _check_room(reach: float, scale: float) -> None:
    if 2.0 * reach / grid_step(scale) >= LARGEST_STEP:
        raise SensitivityError("the sum is too large against the noise for its fixed-point grid")
