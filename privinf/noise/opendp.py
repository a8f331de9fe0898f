"""OpenDP's discrete Gaussian on the same grid: the second secure source and the tests' cross-check."""

from __future__ import annotations

from typing import Any

import numpy as np

from privinf.errors import NotAvailableError
from privinf.noise.lattice import LatticeNoise
from privinf.noise.source import NoiseSource
from privinf.typing import Integers


class OpenDPNoise(LatticeNoise):
    """Discrete Gaussian noise drawn by OpenDP (extra ``privinf[opendp]``); slower, independently vetted.

    Raises
    ------
    NotAvailableError
        OpenDP is not installed.

    Notes
    -----
    **Privacy.** As `LatticeNoise`, with OpenDP's exact sampler. OpenDP asks that its vetted-by-contributors
    features be switched on process-wide; making this source does so.
    """

    name = "opendp"

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
        """Return None: its bits are its own affair, and cannot be had a second time."""

    def at(self, stream: bytes) -> NoiseSource:
        """Refuse (NotAvailableError)."""
        raise NotAvailableError("OpenDP's noise cannot be keyed: use the default source")

    def gaussian_steps(self, steps: Integers, sigma: float) -> Integers:
        """Return integers plus discrete Gaussian noise, `sigma` in steps."""
        steps = np.asarray(steps, dtype=np.int64)
        if steps.size == 0:
            return steps
        dp = self._dp
        domain = dp.vector_domain(dp.atom_domain(T="i64"))
        mechanism = dp.m.make_gaussian(domain, dp.l2_distance(T="i64"), scale=sigma)
        return np.asarray(mechanism(steps.ravel().tolist()), dtype=np.int64).reshape(steps.shape)
