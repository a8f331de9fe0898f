"""The secure noise of version 0.1 as it was: ``os.urandom`` at every call, a search for every block.

Kept to be compared with (`bench.py`): from the same words the sampler of the package makes the same draws.
"""

from __future__ import annotations

import os

import numpy as np

from privinf.noise import LatticeNoise
from privinf.noise.discrete_gaussian import MARGIN, TAIL, ProposalTable, _settle, _table
from privinf.noise.entropy import WORD
from privinf.noise.lattice import CHUNK, LARGEST_STEP, grid_step


class SystemWords:
    """Words of ``os.urandom``."""

    def words(self, count: int) -> np.ndarray:
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)

    def word(self) -> int:
        return int.from_bytes(os.urandom(8), "little")


class OldNoise(LatticeNoise):
    """The lattice source with the sampler and the words of version 0.1."""

    def __init__(self, entropy=None) -> None:
        super().__init__(SystemWords() if entropy is None else entropy)

    def perturb(self, values: np.ndarray, scale: float) -> np.ndarray:
        step = grid_step(scale)
        flat = np.ravel(values)
        noisy = np.empty(flat.shape)
        for start in range(0, flat.size, CHUNK):
            with np.errstate(over="ignore", invalid="ignore"):
                part = np.rint(flat[start : start + CHUNK] / step)
            part[np.isnan(part)] = 0.0
            steps = np.clip(part, -LARGEST_STEP, LARGEST_STEP).astype(np.int64)
            noisy[start : start + CHUNK] = self.gaussian_steps(steps, scale / step) * step
        return noisy.reshape(np.shape(values))

    def gaussian_steps(self, steps: np.ndarray, sigma: float) -> np.ndarray:
        steps = np.asarray(steps, dtype=np.int64)
        noise = np.empty(steps.size, dtype=np.int64)
        for start in range(0, steps.size, CHUNK):
            count = min(CHUNK, steps.size - start)
            noise[start : start + count] = self._draws(sigma, count)
        return np.asarray(steps + noise.reshape(steps.shape), dtype=np.int64)

    def _draws(self, sigma: float, count: int) -> np.ndarray:
        table = _table(sigma, TAIL)
        drawn, missing = [], count
        while missing > 0:
            accepted = self._attempt(table, sigma, missing + missing // 32 + 16)
            drawn.append(accepted[:missing])
            missing -= drawn[-1].size
        return np.concatenate(drawn) if drawn else np.empty(0, dtype=np.int64)

    def _attempt(self, table: ProposalTable, sigma: float, tries: int) -> np.ndarray:
        tails = table.first.size - 1
        which, where = self._entropy.words(2 * tries).reshape(2, tries)
        block = np.searchsorted(table.cumulative, which, side="right")
        nothing = block > tails
        block[nothing] = 0
        x = table.first[block] + (where & np.uint64((1 << table.bits) - 1)).astype(np.int64)
        free = WORD - table.bits
        uniform = (where >> np.uint64(table.bits)) * 2.0**-free
        scaled = x / sigma
        lead = np.exp(-0.5 * scaled * scaled) * table.ratio[block] - uniform
        accepted = lead > 0.0
        close = np.abs(lead) <= MARGIN + 2.0**-free
        special = np.flatnonzero((close | (block == tails)) & ~nothing)
        accepted &= ~nothing
        if special.size:
            _settle(table, special, block, where, x, accepted, self._entropy)
        return np.asarray(x[accepted], dtype=np.int64)
