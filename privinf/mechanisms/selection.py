r"""The k largest of many numbers, and their values, under differential privacy.

Peeling selects the largest of ``|v_j| + noise_j``, then the largest of the others with fresh noise, k times.
v is a statistic of which replacing one record moves no entry by more than the sensitivity lambda.
`privinf.mechanisms.peeling` states the cost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from privinf.accounting import Ledger, LedgerEntry, Released
from privinf.accounting.ledger import check_ledger
from privinf.accounting.released import appended
from privinf.error_boundary import error_boundaries, error_boundary
from privinf.errors import ArgumentError
from privinf.mechanisms.gaussian import clamped, numbers_of, plain_array
from privinf.mechanisms.peeling import PeelingLines, calibrated_peeling, peeling_cost
from privinf.noise import NoiseSource, get_source, grid_step
from privinf.typing import ArrayLike, Flags, Floats, Integers, PeelingMethod, RngLike, SourceName, TrustModel
from privinf.validation import check_choice, check_count, check_fraction, check_positive
from privinf.wire import Derivations, Labels

__all__ = ["NoisyTopK", "Peeling", "PeelingMethod", "TopK", "private_max"]


@error_boundaries
@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class TopK(Released):
    """Positions, and values, of the k largest entries of a vector, selected with noise.

    Attributes
    ----------
    support : ndarray of int64, shape (..., k)
        Selected positions, in the order of selection.
    values : ndarray, shape (..., k), or None
        Noisy values at these positions; None if no values were released.
    size : int
        Length of the vector.
    scale : float
        Scale of the noise of the selection; 0 without noise.
    values_sd : float
        Standard deviation of the noise of the values.
    entries : tuple of LedgerEntry
        Ledger entries of the selection and of the values.
    delta : float or None
        Delta at which the attribute `privacy` states epsilon.

    Notes
    -----
    **Privacy.** Costs nothing: the positions and values were released and are public.
    """

    support: Integers
    values: Floats | None
    size: int
    scale: float
    values_sd: float
    entries: tuple[LedgerEntry, ...]
    delta: float | None = None

    @property
    def reporting_delta(self) -> float | None:
        """Delta at which `privacy` states epsilon; None if no delta was passed."""
        return self.delta

    def __repr__(self) -> str:
        content = (
            "positions"
            if self.values is None
            else f"positions and values (standard deviation of the noise {self.values_sd:.6g})"
        )
        return f"<TopK {self.support.shape} of {self.size}: {content}{appended(self.stamp)}>"

    def __float__(self) -> float:
        """Return the value where one was released, as by `private_max`."""
        if self.values is None or self.values.size != 1:
            raise ArgumentError(
                "this release is not a single number: read its attributes `support` and `values`"
            )
        return float(self.values.item())

    def dense(self) -> Floats:
        """Return a vector with the released values at their positions, and zeros elsewhere.

        Returns
        -------
        ndarray, shape (..., size)
            A new array.
        """
        if self.values is None:
            raise ArgumentError("the values were not released: pass values=True when releasing")
        full = np.zeros((*self.support.shape[:-1], self.size))
        np.put_along_axis(full, self.support, self.values, axis=-1)
        return full


@dataclass(frozen=True, slots=True, kw_only=True)
class Peeling:
    """A calibrated `NoisyTopK`: noise scales on one source's grid, and the ledger lines.

    Attributes
    ----------
    scale : float
        Scale of the Gumbel or Laplace noise of a selection.
    values_scale : float
        Sd of the Gaussian, or scale of the Laplace noise, of the values; 0 without noise.
    entries : tuple of LedgerEntry
        The selections, and the values where they are released.
    """

    k: int
    method: PeelingMethod
    absolute: bool
    with_values: bool
    scale: float
    values_scale: float
    entries: tuple[LedgerEntry, ...]

    def draw(self, v: Floats, source: NoiseSource, candidates: Flags | None = None) -> TopK:
        """Return the release for vectors v, shape (..., p): an independent one for each.

        Parameters
        ----------
        candidates : ndarray of bool, broadcastable to v, optional
            Whether each position may be selected: False excludes a position. The mask must be public.

        Raises
        ------
        ArgumentError
            There are fewer candidates than selections.

        Notes
        -----
        **Privacy.** Reads v; the caller has charged `entries`, once for each vector. No value of v stops it:
        nan and infinities count as 0, and sizes beyond 2^24 times the noise as that (`gaussian.clamped`).
        """
        allowed = np.ones(v.shape, dtype=bool) if candidates is None else np.broadcast_to(candidates, v.shape)
        if allowed.sum(axis=-1).min(initial=v.shape[-1]) < self.k:
            raise ArgumentError(
                f"fewer than k={self.k} candidates are available: pass a smaller k=, or allow more candidates"
            )
        with np.errstate(all="ignore"):
            return self._drawn(clamped(v, 0.0), source, allowed)

    def _drawn(self, v: Floats, source: NoiseSource, allowed: Flags) -> TopK:
        scores = clamped(np.abs(v) if self.absolute else v, self.scale)
        if self.scale > 0.0 and source.secure:
            scores = _on_grid(scores, self.scale)
        support = _peel(np.where(allowed, scores, -np.inf), self, source)
        values = self._values(np.take_along_axis(v, support, axis=-1), source) if self.with_values else None
        factor = math.sqrt(2.0) if self.method == "laplace" else 1.0
        return TopK(
            support=support,
            values=values,
            size=v.shape[-1],
            scale=self.scale,
            values_sd=factor * self.values_scale,
            entries=self.entries,
        )

    def _values(self, chosen: Floats, source: NoiseSource) -> Floats:
        if self.values_scale == 0.0:
            return chosen
        chosen = clamped(chosen, self.values_scale)
        if self.method == "gumbel":
            return source.perturb(chosen, self.values_scale)
        exact = _on_grid(chosen, self.values_scale) if source.secure else chosen
        return np.asarray(exact + source.laplace(self.values_scale, chosen.shape), dtype=np.float64)


@error_boundaries
class NoisyTopK:
    """Mechanism that releases the positions of the k largest entries of a vector, and their values.

    Parameters
    ----------
    k : int
        Number of selections.
    sensitivity : float
        Sensitivity of the entries: largest change of any entry if one record is replaced (lambda of the
        paper).
    epsilon, delta, mu, rho : float
        Total budget of the selection and the values: ``rho`` in zCDP, ``mu`` (converted to rho = mu^2/2), or
        ``epsilon`` with ``delta``. For ``epsilon`` and ``delta``, the method "gumbel" uses the largest rho
        that implies this guarantee, and "laplace" uses the formula of the paper. A pure epsilon (``delta=0``)
        needs ``method="laplace"``, or ``values=False`` with either method. With infinity no noise is added.
    method : {"gumbel", "laplace"}
        Distribution of the noise of the selection: "gumbel" (default) or "laplace". The choice "laplace" is
        the peeling algorithm of the paper, which needs more noise for the same privacy; use it only to
        reproduce published results.
    values : bool
        Whether to release the values in addition to the positions.
    values_share : float
        Share of the budget (in rho) that is spent on the values, with ``method="gumbel"``.
    absolute : bool
        Whether to select the entries with the largest absolute values (default), or the largest entries.

    Raises
    ------
    ArgumentError
        Raised if an argument is out of range, or no budget or more than one budget is passed.

    Notes
    -----
    **Privacy.** Neighboring tables differ in one record (replace-one). The ledger records one entry for the
    selection and one entry for the values. The privacy loss of the selection is a pure epsilon if delta is 0,
    or if one entry is selected with Laplace noise. In all other cases the loss is in zCDP
    (`ConcentratedLoss`). The selected positions and their order are released. The noise alone decides between
    equal entries.

    References
    ----------
    Dwork, Su and Zhang (2018), "Differentially private false discovery rate control" (peeling).
    Cesar and Rogers (2021), "Bounding, concentrating, and truncating" (bounded range).

    Examples
    --------
    >>> import numpy as np
    >>> from privinf.mechanisms import NoisyTopK
    >>> v = np.array([0.1, -5.0, 0.2, 4.0])
    >>> top = NoisyTopK(2, 0.1, rho=2.0).release(v, rng=0)
    >>> top.support.tolist(), np.round(top.values).tolist()
    ([1, 3], [-5.0, 4.0])
    """

    __slots__ = ("absolute", "cost", "delta", "k", "method", "sensitivity", "values")

    def __init__(
        self,
        k: int,
        sensitivity: float,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        rho: float | None = None,
        method: PeelingMethod = "gumbel",
        values: bool = True,
        values_share: float = 0.5,
        absolute: bool = True,
    ) -> None:
        self.k = check_count(k, "k")
        self.sensitivity = check_positive(sensitivity, "sensitivity")
        self.method: PeelingMethod = check_choice(method, PeelingMethod, "method")
        self.values = bool(values)
        self.absolute = bool(absolute)
        self.delta = delta or None
        share = check_fraction(values_share, "values_share")
        self.cost = peeling_cost(
            self.k, self.method, self.values, share, epsilon=epsilon, delta=delta, mu=mu, rho=rho
        )

    def calibrated(
        self,
        source: NoiseSource,
        *,
        label: str = Labels.TOP_K,
        unit: str = "record",
        trust: TrustModel = "central",
        derivation: str = Derivations.ANY_ENTRY,
        times: int = 1,
    ) -> Peeling:
        """Compute, for a given source of noise, the scales of the noise and the ledger entries.

        Parameters
        ----------
        source : NoiseSource
            Source of the noise.
        label : str
            Description of the release in the ledger.
        unit : str
            Unit of privacy, such as "record".
        trust : {"central", "server", "secure-sum", "local"}
            Trust model, that is, who sees raw rows.
        derivation : str
            Text for the ledger that states how the sensitivity was derived.
        times : int
            Number of vectors from which entries are selected. The ledger entries have the joint cost of all
            these vectors.

        Returns
        -------
        peeling
            Object whose method `draw` selects entries of one vector. Its attribute `entries` has the ledger
            entries.

        Raises
        ------
        SensitivityError
            Raised if the budget is so small that rounding to the grid of the noise alone would cost more than
            the budget.
        """
        times = check_count(times, "times")
        lines = PeelingLines(
            method=self.method,
            k=self.k,
            source=source,
            label=label,
            unit=unit,
            trust=trust,
            derivation=derivation,
            times=times,
        )
        scale, values_scale, entries = calibrated_peeling(lines, self.cost, self.sensitivity)
        return Peeling(
            k=self.k,
            method=self.method,
            absolute=self.absolute,
            with_values=self.values,
            scale=scale,
            values_scale=values_scale,
            entries=entries,
        )

    def release(
        self,
        v: ArrayLike,
        *,
        candidates: ArrayLike | None = None,
        label: str = Labels.TOP_K,
        ledger: Ledger | None = None,
        rng: RngLike = None,
        source: SourceName = "lattice",
    ) -> TopK:
        """Release the positions, and the values, of the k largest entries of one vector.

        Parameters
        ----------
        v : ndarray, shape (p,)
            Vector of numbers. In an array of objects, objects that are not numbers count as 0. Entries that
            are nan or infinite count as 0. Entries larger than 2^24 times the scale of the noise are clipped.
            Therefore a release that was charged cannot fail because of the values.
        candidates : ndarray of bool, shape (p,), optional
            Whether each position may be selected: False excludes a position. The mask must be public.
        label : str
            Label of the release in the ledger.
        ledger : Ledger, optional
            Budget ledger. If the release would exceed the limit of the ledger, it is refused before any entry
            is read. The cost is recorded in the ledger before anything is released.
        rng : None, int or Generator, optional
            Source of randomness. With None (default) the noise is secure. With a seed or a Generator it is
            simulation noise, which is not private, and the results are marked as NOT PRIVATE.
        source : {"lattice", "opendp"}
            Sampler of the secure noise: "lattice" is the sampler of privinf (default), and "opendp" is the
            sampler of OpenDP.

        Returns
        -------
        TopK
            The selected positions, the noisy values and the ledger entries.

        Raises
        ------
        ArgumentError
            Raised if `v` is not a vector of numbers, or there are fewer than k entries or candidates. Nothing
            was spent, and no entry was read.
        BudgetExceededError
            Raised if the release would exceed the limit of the ledger; no entry of `v` was read.

        Notes
        -----
        **Privacy.** The cost is recorded before any entry is read.
        """
        vector = plain_array(v, "v")
        if vector.ndim != 1 or vector.shape[0] < self.k:
            raise ArgumentError(
                f"v= must be a vector of at least k={self.k} numbers, got shape {vector.shape}"
            )
        flags = None if candidates is None else _flags(candidates, vector.shape[0], self.k)
        account = check_ledger(ledger)
        chosen = get_source(rng=rng, source=source)
        peeling = self.calibrated(chosen, label=label)
        recorded = account.spend(*peeling.entries)
        return replace(peeling.draw(numbers_of(vector), chosen, flags), entries=recorded, delta=self.delta)


@error_boundary
def private_max(
    v: ArrayLike,
    sensitivity: float,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    rng: RngLike = None,
    method: PeelingMethod = "gumbel",
    values: bool = True,
    values_share: float = 0.5,
    absolute: bool = True,
    candidates: ArrayLike | None = None,
    label: str = Labels.TOP_K,
    ledger: Ledger | None = None,
    source: SourceName = "lattice",
) -> TopK:
    """Release the position, and the value, of the largest entry of a vector.

    Parameters
    ----------
    v : ndarray, shape (p,)
        The numbers. The vector. In an array of objects, objects that are not numbers count as 0.
    sensitivity : float
        Sensitivity: largest change of any entry if one record is replaced.
    epsilon : float, optional
        Epsilon of the (epsilon, delta) guarantee for everything that the call releases. Pass exactly one of
        `epsilon`, `mu` and `rho`. With ``epsilon=inf`` no noise is added.
    delta : float, optional
        Delta of the guarantee. With `mu` or `rho`, epsilon is reported at this delta.
    mu : float, optional
        Budget in Gaussian differential privacy, instead of `epsilon`.
    rho : float, optional
        Budget in zero-concentrated differential privacy (zCDP), instead of `epsilon`.
    rng : None, int or Generator, optional
        Source of randomness. With None (default) the noise is secure. With a seed or a Generator it is
        simulation noise, which is not private, and the results are marked as NOT PRIVATE.
    method : {"gumbel", "laplace"}
        Distribution of the noise of the selection: "gumbel" (default) or "laplace". The choice "laplace" is
        the peeling algorithm of the paper, which needs more noise for the same privacy; use it only to
        reproduce published results.
    values : bool
        Whether to release the value in addition to the position.
    values_share : float
        Share of the budget (in rho) that is spent on the value, with ``method="gumbel"``.
    absolute : bool
        Whether to select the entry with the largest absolute value (default), or the largest entry.
    candidates : ndarray of bool, shape (p,), optional
        Whether each position may be selected: False excludes a position. The mask must be public.
    label : str
        Description of the release in the ledger.
    ledger : Ledger, optional
        Budget ledger. If the release would exceed the limit of the ledger, it is refused before any entry is
        read. The cost is recorded in the ledger before anything is released.
    source : {"lattice", "opendp"}
        Sampler of the secure noise: "lattice" is the sampler of privinf (default), and "opendp" is the
        sampler of OpenDP.

    Returns
    -------
    TopK
        The position and, with ``values=True``, the noisy value, which is also ``float(top)``.

    Notes
    -----
    **Privacy.** Neighboring tables differ in one record (replace-one). The selection and the value have one
    ledger entry each. The attributes `entries` and `privacy` of the result have these entries and their total
    cost, also if no ledger is passed.

    Examples
    --------
    >>> from privinf.mechanisms import private_max
    >>> top = private_max([0.0, -3.0, 1.0], 0.1, rho=2.0, rng=0)
    >>> int(top.support[0]), round(float(top), 0), round(top.privacy.rho, 6)
    (1, -3.0, 2.0)
    """
    selection = NoisyTopK(
        1,
        sensitivity,
        epsilon=epsilon,
        delta=delta,
        mu=mu,
        rho=rho,
        method=method,
        values=values,
        values_share=values_share,
        absolute=absolute,
    )
    return selection.release(v, candidates=candidates, label=label, ledger=ledger, rng=rng, source=source)


def _on_grid(values: Floats, scale: float) -> Floats:
    step = grid_step(scale)
    return np.asarray(np.rint(values / step) * step, dtype=np.float64)


def _flags(candidates: Any, size: int, k: int) -> Flags:
    """Return a public choice of positions, checked; nothing has been charged yet."""
    flags = plain_array(candidates, "candidates")
    if flags.dtype != bool or flags.shape != (size,):
        raise ArgumentError(f"candidates= must hold {size} values, True or False, one for each entry of v")
    if flags.sum() < k:
        raise ArgumentError(
            f"candidates= allows fewer than k={k} entries: pass a smaller k=, or allow more candidates"
        )
    return flags


def _peel(scores: Floats, peeling: Peeling, source: NoiseSource) -> Integers:
    """Return k positions along the last axis; -inf scores are never selected."""
    if peeling.scale == 0.0:
        return np.argsort(-scores, axis=-1, kind="stable")[..., : peeling.k].astype(np.int64)
    noise = source.gumbel if peeling.method == "gumbel" else source.laplace
    places = []
    for _ in range(peeling.k):
        place = np.argmax(scores + noise(peeling.scale, scores.shape), axis=-1)[..., None]
        np.put_along_axis(scores, place, -np.inf, axis=-1)
        places.append(place)
    return np.concatenate(places, axis=-1).astype(np.int64)
