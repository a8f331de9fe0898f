r"""A site's part in a secure sum: check the query, quantize, add its share of the noise, mask.

**Numbers.** Every record's numbers are clipped and cut to ``bits`` binary digits, toward zero
or inside the clip, so that no clip is passed and sums over a site's rows have no rounding. The site's sum is
rounded to the grid g, a power of two, in int64. A record is at one site only, so that replacing it moves
one of these integer vectors, by at most S/g + sqrt(D) steps in l2, with S the exact replace-one sensitivity
of the statistic and D its number of entries. This is the charge.

**Noise.** Each site adds discrete Gaussian noise of variance sigma^2 / (m - c) steps^2, with m sites on the
roster, c of them counted as colluding: the honest ones alone carry the guarantee. A sum of
discrete Gaussians of sd s is a discrete Gaussian up to a factor of 1 +- 10 m exp(-pi^2 s^2) in the
probabilities (Kairouz, Liu and Steinke), which is below 10^-60 at the least sd that a site accepts, four
steps. With s of 2^20 steps or more it is as good as mu-GDP (see `privinf.noise.lattice`) and charged so; on a
coarser grid only zCDP is known, and only `ConcentratedLoss` is accepted.

**Range.** The sum of the sites' messages is read back from 64 bits. Each refuses before anything is charged
if its rows times the largest number a record can add, plus 64 sds of its noise, pass 2^63 / m steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np

from privinf.accounting import ConcentratedLoss, GaussianLoss, LedgerEntry
from privinf.errors import ArgumentError, NotAvailableError, SensitivityError
from privinf.federation.messages import Query
from privinf.federation.policy import MORE_COLLUDING, NOISE_TERMS, TOLERANCE, TOO_FEW_SITES, SitePolicy
from privinf.federation.secure.masking import PairKeys, Words
from privinf.mechanisms.statistics.block import stream_of
from privinf.mechanisms.statistics.ops import RecordSensitivity
from privinf.noise import LatticeNoise, NoiseSource, SimulationNoise
from privinf.noise.discrete_gaussian import LARGEST_SIGMA
from privinf.typing import Floats, Integers
from privinf.validation import shown
from privinf.wire import Mechanisms, Norms, readable

LEAST_SIGMA = 4.0  # steps of the grid: the least sd of the whole noise that a site accepts, see *Noise*
GAUSSIAN_SIGMA = 2.0**20  # steps of the grid from which on the noise is as good as mu-GDP
NOISE_SDS = 64.0  # sds of its noise that a sum has room for, see *Range*
MOST_GRID = 2.0**1000  # largest step of the grid that a query may state
# The one protocol of this package, as a query names it.
KIND = "masked"
# Terms of a secure sum, as a query states them.
TERMS = frozenset({"kind", "roster", "pinned", "max_colluding", "grid", "seed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SumTerms:
    """Terms of a query for every site on its roster.

    Attributes
    ----------
    roster : tuple of str
        Names of those who take part, sorted; all of them must answer.
    max_colluding : int
        How many of them may be in league with the server.
    carriers : int
        How many honest sites' noise the sum is sure to hold.
    grid : float
        Unit of the integers, a power of two.
    sigma : float
        Sd of one site's noise, in steps; 0 without noise.
    seed : int or None
        Of simulation noise.
    """

    roster: tuple[str, ...]
    max_colluding: int
    carriers: int
    grid: float
    sigma: float
    seed: int | None


def read_terms(query: Query, entry: LedgerEntry) -> SumTerms:
    """Return the terms of a query for a secure sum.

    Raises
    ------
    ArgumentError
        They are not well formed, or of another protocol.
    """
    terms = query.masking
    if terms.get("kind") != KIND:
        raise ArgumentError(
            "the site's version of privinf does not have secure sums of kind "
            f"{shown(terms.get('kind'))}; install the same version at the site and the server"
        )
    unknown = sorted(set(terms) - TERMS)
    if unknown:
        raise ArgumentError(
            f"the query describes the secure sum with unknown fields {', '.join(map(repr, unknown))}: it "
            "comes from another version of privinf; install the same version at the site and the server"
        )
    roster = terms.get("roster")
    if not isinstance(roster, list) or not set(map(type, roster)) <= {str}:
        raise ArgumentError("roster in the query must be a list of site names")
    if roster != sorted(set(roster)):
        raise ArgumentError(
            "roster in the query must be a sorted list of site names in which every site occurs once"
        )
    seed = terms.get("seed")
    if seed is not None and not _is_whole_number(seed, 0):
        raise ArgumentError("the seed of the secure sum must be a nonnegative integer")
    colluding = terms.get("max_colluding")
    if not _is_whole_number(colluding, 0):
        raise ArgumentError("max_colluding in the query must be a nonnegative integer")
    if colluding >= len(roster):
        raise ArgumentError(f"max_colluding={colluding} must be less than the number of sites, {len(roster)}")
    grid = _grid(terms)
    scale = float(entry.noise.get("scale", math.nan))
    carriers = len(roster) - colluding
    sigma = scale / grid / math.sqrt(carriers)
    if not (0.0 <= sigma < math.inf):
        raise ArgumentError("the ledger entry of the secure sum must state the scale of its noise")
    return SumTerms(
        roster=tuple(roster), max_colluding=colluding, carriers=carriers, grid=grid, sigma=sigma, seed=seed
    )


def _grid(terms: Mapping[str, Any]) -> float:
    grid = terms.get("grid")
    if isinstance(grid, bool) or not isinstance(grid, (int, float)) or not 0.0 < grid <= MOST_GRID:
        raise ArgumentError(
            "grid (the step to which the site rounds its numbers) must be a positive number, at "
            f"most {MOST_GRID:g}"
        )
    if math.frexp(grid)[0] != 0.5:
        raise ArgumentError("grid (the step to which the site rounds its numbers) must be a power of two")
    return float(grid)


def _is_whole_number(value: Any, low: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= low


def check_terms(
    query: Query,
    terms: SumTerms,
    entry: LedgerEntry,
    record_sensitivity: RecordSensitivity,
    policy: SitePolicy,
) -> None:
    """Raise unless the policy allows a secure sum and its cost is that of its ledger line.

    Raises
    ------
    NotAvailableError
        The policy requires more sites, more colluding sites, or other noise.
    ArgumentError
        The ledger line states too little, or a loss that the grid is too coarse for.
    """
    if len(terms.roster) < policy.min_sites:
        raise NotAvailableError(TOO_FEW_SITES.format(policy.min_sites))
    if terms.max_colluding < policy.max_colluding:
        raise NotAvailableError(MORE_COLLUDING.format(policy.max_colluding))
    if entry.secure and (terms.seed is not None or terms.sigma == 0.0):
        raise ArgumentError(
            "the entry for the site's ledger declares secure noise (secure=True), but the noise of the query "
            "is zero or has a seed: state secure=False"
        )
    if terms.sigma == 0.0:
        return
    if not entry.secure and terms.seed is None:
        raise ArgumentError(
            "a secure sum with seeded noise (simulations only) must state the seed of this noise"
        )
    if entry.secure and not query.args.get("bits"):
        raise ArgumentError(
            "the query of a secure sum needs its argument 'bits', the precision to which all sites "
            "round their numbers"
        )
    if not LEAST_SIGMA <= terms.sigma <= LARGEST_SIGMA:
        change = "smaller" if terms.sigma < LEAST_SIGMA else "larger"
        raise ArgumentError(
            f"the standard deviation of one site's noise is {terms.sigma:.3g} grid steps, but it must be "
            f"{LEAST_SIGMA:g} to 2^50 steps (sites round their numbers to a grid): pass a {change} "
            f"budget or a {change} 'grid' in the query"
        )
    check_price(terms, entry, record_sensitivity)


def check_price(terms: SumTerms, entry: LedgerEntry, record_sensitivity: RecordSensitivity) -> None:
    """Raise ArgumentError unless a ledger line states the sensitivity on the grid and a loss that it has."""
    needed = record_sensitivity.sensitivity(entry.relation) + terms.grid * math.sqrt(record_sensitivity.size)
    if (
        entry.mechanism != Mechanisms.GAUSSIAN
        or entry.sensitivity is None
        or entry.sensitivity.norm != Norms.L2
    ):
        raise ArgumentError(
            f"the entry {readable(entry.label)!r} for the site's ledger must state Gaussian noise and a "
            "sensitivity in the l2 norm, because the query is a secure sum"
        )
    if not set(entry.noise) <= NOISE_TERMS:
        raise ArgumentError(
            "a secure sum must be charged as a whole, but its entry in the ledger describes the noise of "
            "single components: state one scale for the whole sum"
        )
    if not entry.sensitivity.value >= needed * (1.0 - TOLERANCE):
        raise ArgumentError(
            f"the entry {readable(entry.label)!r} for the site's ledger states the sensitivity "
            f"{entry.sensitivity.value:.6g}, but a secure sum, which rounds its numbers, needs at least "
            f"{needed:.6g}"
        )
    fine = terms.sigma >= GAUSSIAN_SIGMA * (1.0 - TOLERANCE)
    if not isinstance(entry.loss, ConcentratedLoss) and not (fine and isinstance(entry.loss, GaussianLoss)):
        raise ArgumentError(
            f"the entry {readable(entry.label)!r} for the site's ledger must state its privacy loss "
            "in zCDP, because the sum is rounded too coarsely for a guarantee in Gaussian DP"
        )


def check_room(terms: SumTerms, rows: int, bound: float) -> None:
    """Raise SensitivityError if a sum over sites could pass 64 bits."""
    largest = rows * bound / terms.grid + NOISE_SDS * terms.sigma + 1.0
    if not largest < 2.0**63 / len(terms.roster):
        raise SensitivityError(
            "the sum could exceed 64 bits, because its numbers are rounded too finely; the analyst can pass "
            "a smaller grid_bits= to SecureServer, or use more noise (a smaller budget), for coarser rounding"
        )


def check_roster(terms: SumTerms, query: Query, pairs: PairKeys | None, name: str) -> PairKeys:
    """Return the site's keys for a sum.

    Raises
    ------
    NotAvailableError
        The site has no key, or the roster is not part of the one it has pinned, with itself in it.
    """
    if pairs is None:
        raise NotAvailableError(
            "the site has no secret key or no roster (the list of the sites' public keys), so it "
            "cannot take part in secure sums; start the site with key= and roster= (on the command line: "
            "--key and --roster)"
        )
    if not pairs.owns(name):
        raise NotAvailableError(
            "the list of public keys at this site (its roster) has a key for this site that is not the "
            "site's own key; use the current roster at all sites"
        )
    if query.masking.get("pinned") != pairs.roster.digest:
        raise NotAvailableError(
            "the list of public keys at this site (its roster) differs from the roster of the "
            "secure sum; use the same roster at all sites"
        )
    if name not in terms.roster:
        raise NotAvailableError(
            f"the secure sum does not include site {name!r}, to which its query was sent; use the same list "
            "of public keys (roster) at all sites, and send the query to the sites of the sum only"
        )
    if not set(terms.roster) <= set(pairs.roster.keys):
        raise NotAvailableError(
            "the secure sum includes a site that is not in this site's list of public keys (roster); use "
            "the same roster at all sites"
        )
    return pairs


def quantised(total: Floats, terms: SumTerms, rows: int, bound: float) -> Integers:
    """Return a site's sum in steps of the grid, flat; each entry within the bound of the site's rows."""
    limit = math.floor(rows * bound * (1.0 + TOLERANCE) / terms.grid + 1.0)
    with np.errstate(all="ignore"):
        steps = np.rint(np.nan_to_num(np.ravel(total)) / terms.grid)
    return np.clip(steps, -limit, limit).astype(np.int64)


def noisy_words(steps: Integers, terms: SumTerms, name: str) -> Words:
    """Return integers plus the site's share of the noise, as words modulo 2^64."""
    if terms.sigma > 0.0:
        steps = source_of(terms, name).gaussian_steps(steps, terms.sigma)
    return np.asarray(steps, dtype=np.int64).view(np.uint64)


def source_of(terms: SumTerms, name: str) -> NoiseSource:
    """Return the noise: secure, or simulated from a seed that the policy has allowed."""
    if terms.seed is None:
        return LatticeNoise()
    return SimulationNoise(np.random.default_rng([terms.seed, stream_of(name)]))
