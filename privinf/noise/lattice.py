"""Secure noise: integers on a fixed-point grid, from keys of the operating system or from a secret key.

Values are rounded to multiples of a power of two, g = `grid_step`, and discrete Gaussian noise with a sd of
sigma = scale/g, between 2^20 and 2^21 steps, is added in integers. The sampler (`discrete_gaussian`) has no
error, so the only difference to the Gaussian that is accounted is that of the two ideal distributions. A
Gaussian rounded to integers is post-processing, and at integer shifts exactly mu-GDP; its probability of x =
z sigma is that of the discrete Gaussian times 1 + (z^2 - 1)/(24 sigma^2), up to terms in sigma^-4. For D
numbers the two log-likelihoods differ by about D/(12 sigma^2) < D 2^-43, which is what epsilon may grow by:
far below what reports print.

`OpenDPNoise` draws from OpenDP's sampler on the same grid: a second secure source, which tests compare.

Gumbel and discrete Laplace noise are a uniform number's inverse, found in doubles from 64 bits unless the
result is near the middle between two grid points (Gumbel, G = -log(-log(1 - V))) or near a whole number
(geometric, floor(-ratio log U)), or the uniform near an end: those, one in two thousand, are found in exact
arithmetic with as many more bits as it takes. Given independent uniform bits their distribution is the ideal
one.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from privinf.errors import NotAvailableError
from privinf.noise.discrete_gaussian import discrete_gaussian
from privinf.noise.entropy import SYSTEM, WORD, Entropy, Keystream, NoiseKey, precise, quotient
from privinf.noise.source import NoiseSource, Size, grid_inflation, grid_step
from privinf.typing import Flags, Floats, Integers
from privinf.validation import check_count, check_number
from privinf.wire import NoiseSources

CHUNK = 1 << 15  # numbers to which noise is added at a time
LARGEST_STEP = 2.0**45  # values beyond are put there before the noise, a public bound
LARGEST_SUM = 2.0**61  # of sums that are integers before their noise, with room for it
# Between V = EDGE and 1 - EDGE doubles place G within 2^-36 (near 1, where 1 - V is known to 2^-53 and E is
# 14, within 2^-33/14): that is 2^-15 of a grid step at the largest `ratio`. Above U = EDGE they place E
# within 2^-43, hence ratio E within 2^-22 at the largest ratio.
EDGE = 2.0**-20  # uniform numbers nearer to an end are settled in exact arithmetic
CLOSE = 2.0**-12  # and so are draws that lie nearer to where they would be rounded otherwise, in steps
LARGEST_RATIO = 2.0**21  # scale of the noise over the step of the grid


def gumbel_steps(ratio: float, count: int, entropy: Entropy = SYSTEM) -> Integers:
    """Return round(ratio G) for `count` independent standard Gumbel numbers G, ratio at most 2^21."""
    words = entropy.words(count)
    v = words * 2.0**-WORD
    middle = (v > EDGE) & (v < 1.0 - EDGE)
    steps = -np.log(-np.log1p(-np.where(middle, v, 0.5))) * ratio
    nearest = np.rint(steps)
    settled = middle & (np.abs(steps - nearest) < 0.5 - CLOSE)
    drawn = nearest.astype(np.int64)
    for i in np.flatnonzero(~settled):
        drawn[i] = _exact_gumbel_steps(int(words[i]), WORD, Fraction(ratio), entropy)
    return drawn


def _exact_gumbel_steps(head: int, bits: int, ratio: Fraction, entropy: Entropy) -> int:
    """Return floor(ratio G + 1/2) where the first `bits` bits of V are those of `head`."""
    while True:
        if 0 < head < 2**bits - 1:
            slack = Fraction(1, 10 ** (bits // 4)) * ratio
            high = _gumbel(Fraction(head, 2**bits), bits) * ratio + Fraction(1, 2) + slack
            low = _gumbel(Fraction(head + 1, 2**bits), bits) * ratio + Fraction(1, 2) - slack
            if math.floor(high) == math.floor(low):
                return math.floor(low)
        head = head << WORD | entropy.word()
        bits = bits + WORD


def _gumbel(v: Fraction, bits: int) -> Fraction:
    """Return -log(-log(1 - v)) to within 10^(-bits/4), for v a multiple of 2^-bits inside (0, 1)."""
    # Near v = 0 the logarithm loses as many digits as v has leading zeros: twice the digits of 2^-bits.
    with decimal.localcontext(precise(bits + 24)):
        return Fraction(-(-(quotient(1 - v).ln())).ln())


def laplace_steps(ratio: float, count: int, entropy: Entropy = SYSTEM) -> Integers:
    """Return `count` independent discrete Laplace numbers, ratio at most 2^21."""
    return _geometric(ratio, count, entropy) - _geometric(ratio, count, entropy)


def _geometric(ratio: float, count: int, entropy: Entropy) -> Integers:
    """Return floor(ratio E): P(X >= m) = exp(-m/ratio)."""
    words = entropy.words(count)
    u = words * 2.0**-WORD
    usual = u > EDGE
    steps = -np.log(np.where(usual, u, 0.5)) * ratio
    settled = usual & (np.abs(steps - np.rint(steps)) > CLOSE)
    drawn = np.floor(steps).astype(np.int64)
    for i in np.flatnonzero(~settled):
        drawn[i] = _exact_geometric(int(words[i]), WORD, Fraction(ratio), entropy)
    return drawn


def _exact_geometric(head: int, bits: int, ratio: Fraction, entropy: Entropy) -> int:
    """Return floor(ratio E) where the first `bits` bits of U are those of `head`."""
    while True:
        if head > 0:
            slack = Fraction(1, 10 ** (bits // 4)) * ratio
            high = _exponential(Fraction(head, 2**bits), bits) * ratio + slack
            low = max(_exponential(Fraction(head + 1, 2**bits), bits) * ratio - slack, Fraction(0))
            if math.floor(high) == math.floor(low):
                return math.floor(low)
        head = head << WORD | entropy.word()
        bits = bits + WORD


def _exponential(u: Fraction, bits: int) -> Fraction:
    """Return -log(u) to within 10^(-bits/4)."""
    with decimal.localcontext(precise(bits + 24)):
        return Fraction(-quotient(u).ln())


class LatticeNoise:
    """Secure noise on a grid from the operating system's entropy: the default source.

    Parameters
    ----------
    entropy : Entropy, optional
        Source of random bits. By default ChaCha20 under keys of the operating system, one for each thread and
        MiB (`SystemEntropy`): forks, threads and pickles do not repeat a stream.

    Notes
    -----
    **Privacy.** Adding the noise to integers whose l2 sensitivity is s steps is (s/sigma)-GDP at the sigma of
    `perturb`, up to the difference of distributions in the module docstring, and (s/sigma)^2/2-zCDP at any
    sigma, exactly (Canonne, Kamath and Steinke, Theorem 4). `inflation` is what rounding to the grid adds to
    s. All of it supposes uniform bits: with those of `SystemEntropy` it holds against anyone who cannot tell
    ChaCha20 under a secret key from a random function, a computational assumption.

    References
    ----------
    Canonne, Kamath and Steinke (2020), "The discrete Gaussian for differential privacy".
    Mironov (2012), "On significance of the least significant bits for differential privacy".

    Examples
    --------
    >>> import numpy as np
    >>> from privinf.noise import LatticeNoise
    >>> noisy = LatticeNoise().perturb(np.zeros(1000), 1.0)
    >>> bool(np.all(noisy * 2**20 == np.rint(noisy * 2**20)))
    True
    """

    name = NoiseSources.LATTICE
    secure = True

    def __init__(self, entropy: Entropy = SYSTEM) -> None:
        self._entropy = entropy

    def new_key(self) -> NoiseKey | None:
        """Return a new secret key for `at`; None from a source that cannot be keyed."""
        return NoiseKey()

    def at(self, stream: bytes) -> NoiseSource:
        """Return the same noise, drawn from the words of one stream key."""
        return LatticeNoise(Keystream(stream))

    def perturb(self, values: Floats, scale: float) -> Floats:
        """Return values and noise on the grid, exact multiples of ``grid_step(scale)``.

        Values beyond 2^45 steps are clipped there, which increases no distance between values; nan counts as
        0. Callers refuse a scale for which public bounds allow such values (`Line.calibrated`).
        """
        step = grid_step(scale)
        values = np.asarray(values)
        # Fresh words have no order: columns that lie as such stay so.
        columns = self._entropy is SYSTEM and values.ndim == 2 and values.strides[0] < values.strides[1]
        noisy = np.empty(values.shape, order="F" if columns else "C")
        with np.errstate(over="ignore", invalid="ignore"):
            np.multiply(values, 1.0 / step, out=noisy)
        flat = (noisy.T if columns else noisy).reshape(-1)
        for part in np.split(flat, range(CHUNK, flat.size, CHUNK)):
            np.rint(part, out=part).clip(-LARGEST_STEP, LARGEST_STEP, out=part)
            if math.isnan(part.max(initial=0.0)):
                part[np.isnan(part)] = 0.0
            steps = self.gaussian_steps(part.astype(np.int64), scale / step)
            np.multiply(steps, step, out=part)
        return noisy

    def gaussian_steps(self, steps: Integers, sigma: float) -> Integers:
        """Return integers plus independent discrete Gaussian noise, `sigma` in steps.

        Raises ArgumentError if `sigma` is outside [2^-20, 2^50].
        """
        steps = np.asarray(steps, dtype=np.int64)
        if steps.size <= CHUNK:
            drawn = discrete_gaussian(sigma, steps.size, self._entropy).reshape(steps.shape)
            drawn += steps
            return drawn
        noise = np.empty(steps.size, dtype=np.int64)
        for start in range(0, steps.size, CHUNK):
            count = min(CHUNK, steps.size - start)
            noise[start : start + count] = discrete_gaussian(sigma, count, self._entropy)
        return np.asarray(steps + noise.reshape(steps.shape), dtype=np.int64)

    def inflation(self, scale: float, dimension: int) -> float:
        """Return ``grid_step(scale) sqrt(dimension)``."""
        return grid_inflation(scale, dimension)

    def uniform(self, size: Size) -> Floats:
        """Return uniforms on [0, 1), multiples of 2^-53."""
        words = self._entropy.words(_count(size))
        return np.asarray((words >> np.uint64(11)) * 2.0**-53, dtype=np.float64).reshape(size)

    def bernoulli(self, p: float, size: Size) -> Flags:
        """Return flags, True with probability `p` to within 2^-64."""
        threshold = int(check_number(p, "p", low=0.0, high=1.0) * 2.0**64)
        count = _count(size)
        if threshold == 2**64:
            return np.ones(size, dtype=bool)
        return np.asarray(self._entropy.words(count) < np.uint64(threshold)).reshape(size)

    def integers(self, k: int, size: Size) -> Integers:
        """Return exact uniforms on 0, ..., k - 1."""
        bound = np.uint64(check_count(k, "k"))
        fair = np.uint64(2**64 // int(bound) * int(bound) - 1)
        count = _count(size)
        drawn = np.empty(0, dtype=np.uint64)
        while drawn.size < count:
            words = self._entropy.words(count - drawn.size)
            drawn = np.concatenate([drawn, words[words <= fair]])
        return (drawn % bound).astype(np.int64).reshape(size)

    def gumbel(self, scale: float, size: Size) -> Floats:
        """Return Gumbel numbers with mode 0, rounded to the grid of `scale` (and without other error)."""
        return self._by_inversion(gumbel_steps, scale, size)

    def laplace(self, scale: float, size: Size) -> Floats:
        """Return discrete Laplace numbers on the grid of `scale`, P(x) proportional to exp(-|x|/scale)."""
        return self._by_inversion(laplace_steps, scale, size)

    def _by_inversion(
        self, steps: Callable[[float, int, Entropy], Integers], scale: float, size: Size
    ) -> Floats:
        step = grid_step(scale)
        noise = np.empty(_count(size))
        for start in range(0, noise.size, CHUNK):
            count = min(CHUNK, noise.size - start)
            noise[start : start + count] = steps(scale / step, count, self._entropy) * step
        return noise.reshape(size)


def _count(size: Size) -> int:
    return math.prod(np.atleast_1d(size).tolist())


class OpenDPNoise(LatticeNoise):
    """Discrete Gaussian noise drawn by OpenDP (extra ``privinf[opendp]``); slower, independently vetted.

    Raises
    ------
    NotAvailableError
        OpenDP is not installed.

    Notes
    -----
    **Privacy.** As `LatticeNoise`, with OpenDP's exact sampler. OpenDP requires that its
    vetted-by-contributors features be switched on process-wide; making this source does so.
    """

    name = NoiseSources.OPENDP

    def __init__(self) -> None:
        try:
            import opendp.prelude as dp
        except ImportError:
            raise NotAvailableError(
                "source='opendp' needs OpenDP: pip install 'privinf[opendp]', or use source='lattice'"
            ) from None
        super().__init__()
        dp.enable_features("contrib")
        self._dp: Any = dp

    def __reduce__(self) -> Any:
        return OpenDPNoise, ()

    def new_key(self) -> None:
        """Return None: OpenDP draws its own random bits, which cannot be repeated."""

    def at(self, stream: bytes) -> NoiseSource:
        """Refuse (NotAvailableError)."""
        raise NotAvailableError(
            "source='opendp' cannot draw noise from a stored secret key: use the default source"
        )

    def gaussian_steps(self, steps: Integers, sigma: float) -> Integers:
        """Return integers plus discrete Gaussian noise, `sigma` in steps."""
        steps = np.asarray(steps, dtype=np.int64)
        if steps.size == 0:
            return steps
        dp = self._dp
        domain = dp.vector_domain(dp.atom_domain(T="i64"))
        mechanism = dp.m.make_gaussian(domain, dp.l2_distance(T="i64"), scale=sigma)
        return np.asarray(mechanism(steps.ravel().tolist()), dtype=np.int64).reshape(steps.shape)
