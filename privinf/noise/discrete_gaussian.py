r"""The discrete Gaussian P(x) proportional to rho(x) = exp(-x^2 / 2 sigma^2) on the integers, exactly.

Rejection from a table of integer weights. The integers within TAIL sigma of zero are cut into blocks of 2^k
(2^k at most sigma/64); the two tails beyond are one more block. Block b is proposed with probability
W_b/2^64, a point x of it uniformly, and x is accepted with probability F rho(x)/W_b. An accepted x therefore
has probability F rho(x)/(2^64 2^k), the same multiple of rho(x) for every x **whatever the rounding of the
integers F and W_b**, provided only that W_b >= F max rho over the block, which the table leaves room for.

In the tails (probability about 2^-64, see `_draw_tail`) a side is drawn by a coin, a cell of 2^m >= sigma
points by a run of coins (cell c with probability 2^-(c+1)), a point of it uniformly, and accepted so that
the multiple of rho(x) is again the same one. So the support is all integers: two shifted copies of the
distribution have the same support, and the likelihood ratio is that of the ideal distribution everywhere.

The decision U < F rho(x)/W_b is made in doubles where they settle it: numpy's value is within 2^-45 of the
true one (its relative error is below (t + 4) 2^-51 at exponent t; t is at most 46 in the table, or else F rho
is below 2^64 e^-t and the value with it), and MARGIN is 2^-42. Otherwise, once in 10^12 draws at
sigma = 2^20, it is made in exact arithmetic with as many more bits of U as it takes.

Given independent uniform bits, the distribution is the discrete Gaussian of the double `sigma`, without
error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from privinf.errors import ArgumentError
from privinf.noise.entropy import SYSTEM, WORD, Entropy, Words, uniform_below
from privinf.typing import Flags, Floats, Integers
from privinf.validation import check_number

TAIL = 9.5  # sds that the table covers; any value above log 2 gives the same distribution
MARGIN = 2.0**-42  # error that doubles may have in the decision U < F rho(x)/W_b: 2^-45 is proved above
GUIDE_BITS = 14  # first bits of a word by which the guide finds its block
GUIDED = 1 << 13  # number of proposals from which on a guide to the table is worth its cost
SMALLEST_SIGMA = 2.0**-20  # of a draw, in steps
LARGEST_SIGMA = 2.0**50  # of a draw, in steps


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalTable:
    """Proposal of the rejection sampler.

    Attributes
    ----------
    cumulative : (B + 1,) uint64
        Running sums of the weights, the tails' last; words at or beyond its end propose nothing.
    first : (B + 1,) int64
        Smallest integer of each block (of the tails: unused).
    weights : (B + 1,) uint64
        W_b.
    ratio : (B + 1,) float64
        F/W_b; not a number for the tails.
    factor : int
        F.
    bits : int
        A block holds 2^bits integers.
    cell_bits : int
        A cell of a tail holds 2^cell_bits integers.
    sigma : Fraction
    """

    cumulative: Words
    first: Integers
    weights: Words
    ratio: Floats
    factor: int
    bits: int
    cell_bits: int
    sigma: Fraction

    def exponent(self, x: int) -> Fraction:
        """Return x^2 / 2 sigma^2."""
        return Fraction(x * x) / (2 * self.sigma * self.sigma)


def discrete_gaussian(sigma: float, count: int, entropy: Entropy = SYSTEM) -> Integers:
    """Return `count` independent draws, shape (count,), made of the words of `entropy`.

    Raises ArgumentError if `sigma` is outside [2^-20, 2^50].
    """
    sigma = check_number(sigma, "sigma", low=SMALLEST_SIGMA, high=LARGEST_SIGMA)
    table = _table(sigma, TAIL)
    drawn: list[Integers] = []
    missing = count
    while missing > 0:
        accepted = _attempt(table, sigma, missing + missing // 32 + 16, entropy)
        drawn.append(accepted[:missing])
        missing -= drawn[-1].size
    if len(drawn) == 1:
        return drawn[0]
    return np.concatenate(drawn) if drawn else np.empty(0, dtype=np.int64)


def _attempt(table: ProposalTable, sigma: float, tries: int, entropy: Entropy) -> Integers:
    """Return the accepted proposals, in order."""
    block_words, place_words = entropy.words(2 * tries).reshape(2, tries)
    block = _blocks(table, sigma, block_words)
    x = table.first.take(block, mode="clip")
    x += (place_words & np.uint64((1 << table.bits) - 1)).view(np.int64)
    # The bits above those of the position are the head of the uniform U.
    free = WORD - table.bits
    uniform = (place_words >> np.uint64(table.bits)) * 2.0**-free
    lead = x / sigma
    lead *= lead
    lead *= -0.5
    np.exp(lead, out=lead)
    lead *= table.ratio.take(block, mode="clip")
    lead -= uniform
    accepted = lead > 0.0
    # Of the tails, and of words that propose nothing, the ratio is not a number: they are never settled here.
    settled = np.abs(lead, out=lead) > MARGIN + 2.0**-free
    if not settled.all():
        _settle(table, np.flatnonzero(~settled), block, place_words, x, accepted, entropy)
    return np.asarray(x[accepted], dtype=np.int64)


def _blocks(table: ProposalTable, sigma: float, block_words: Words) -> Integers:
    """Return the block that each word proposes: how many running sums are not above it.

    Many words are looked up by their first bits: a cell of 2^(64 - GUIDE_BITS) words holds at most one edge
    between blocks, or else it is marked and its words are searched for.
    """
    if block_words.size < GUIDED:
        return np.asarray(np.searchsorted(table.cumulative, block_words, side="right"), dtype=np.int64)
    lowest, crowded = _guide(sigma, TAIL)
    cell = (block_words >> np.uint64(WORD - GUIDE_BITS)).view(np.int64)
    block = lowest.take(cell)
    block += block_words >= table.cumulative.take(block, mode="clip")
    several = np.flatnonzero(crowded.take(cell))
    block[several] = np.searchsorted(table.cumulative, block_words[several], side="right")
    return block


@lru_cache(maxsize=16)
def _guide(sigma: float, tail: float) -> tuple[Integers, Flags]:
    """Return the block of each cell's first word, and whether its words lie in more than two blocks."""
    cumulative = _table(sigma, tail).cumulative
    first = np.arange(1 << GUIDE_BITS, dtype=np.uint64) << np.uint64(WORD - GUIDE_BITS)
    last = first | np.uint64((1 << (WORD - GUIDE_BITS)) - 1)
    lowest, highest = (np.searchsorted(cumulative, ends, side="right") for ends in (first, last))
    return lowest.astype(np.int64), highest - lowest > 1


def _settle(
    table: ProposalTable,
    special: Integers,
    block: Integers,
    place_words: Words,
    x: Integers,
    accepted: Flags,
    entropy: Entropy,
) -> None:
    """Decide the proposals in the tails, and those that doubles cannot decide, in exact arithmetic."""
    tails = table.first.size - 1
    for i in special:
        if block[i] > tails:
            continue
        if block[i] == tails:
            x[i], accepted[i] = _draw_tail(table, entropy)
            continue
        head = int(place_words[i]) >> table.bits
        scale = Fraction(table.factor, int(table.weights[block[i]]))
        accepted[i] = uniform_below(head, WORD - table.bits, scale, table.exponent(int(x[i])), entropy)


def _draw_tail(table: ProposalTable, entropy: Entropy) -> tuple[int, bool]:
    """Return one proposal beyond the table, and whether it is accepted.

    Its probability of being proposed, given the tails, is (1/2) 2^-(c+1) 2^-m; with a the distance at which
    the tails begin, rho falls by exp(-a 2^m / sigma^2) <= exp(-TAIL) < 1/2 from a cell to the next, so that
    the acceptance probability, 2^(c+2) 2^(m-k) F rho(x)/W, is largest in cell 0, and at most 1 there.
    """
    word = entropy.word()
    right = bool(word & 1)
    cell = 0
    while entropy.word() & 1:
        cell += 1
    offset = (cell << table.cell_bits) + ((word >> 1) & ((1 << table.cell_bits) - 1))
    x = int(table.first[-1]) + offset if right else int(table.first[0]) - 1 - offset
    scale = Fraction(table.factor << (table.cell_bits - table.bits + cell + 2), int(table.weights[-1]))
    return x, uniform_below(0, 0, scale, table.exponent(x), entropy)


@lru_cache(maxsize=64)
def _table(sigma: float, tail: float) -> ProposalTable:
    """Return the proposal table of a public `sigma`."""
    bits = max(0, math.frexp(sigma)[1] - 1 - 6)
    cell_bits = max(0, math.frexp(sigma)[1])
    width = 1 << bits
    steps = max(1, math.ceil(tail * sigma / width))
    first = np.arange(-steps, steps + 1, dtype=np.int64) * width
    last = first + (width - 1)
    nearest = np.where(first > 0, first, np.where(last < 0, -last, 0))
    start = steps * width + 1
    peak = np.exp(-0.5 * (np.append(nearest, start) / sigma) ** 2)
    peak[-1] *= 4.0 * 2.0 ** (cell_bits - bits)
    # F leaves room for rounding every weight up; 1 + 2^-40 keeps W_b >= F rho(x) under the float error of
    # peak, a relative 2^-42 at most (where it does not underflow, the exponent is below 746).
    factor = int((2.0**64 - 2.0**12 * peak.size) / (float(peak.sum()) * (1.0 + 2.0**-30)))
    weights = [max(1, math.ceil(factor * float(value) * (1.0 + 2.0**-40))) for value in peak]
    if sum(weights) >= 2**64:
        raise ArgumentError(
            f"sigma={sigma:g} is too large or too small for this discrete Gaussian sampler: pass "
            "another sigma"
        )
    return ProposalTable(
        cumulative=np.cumsum(np.array(weights, dtype=np.uint64), dtype=np.uint64),
        first=np.append(first, (steps + 1) * width),
        weights=np.array(weights, dtype=np.uint64),
        ratio=np.append(factor / np.array(weights[:-1], dtype=np.float64), np.nan),
        factor=factor,
        bits=bits,
        cell_bits=cell_bits,
        sigma=Fraction(sigma),
    )
