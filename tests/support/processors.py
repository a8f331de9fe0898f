"""Older processors than this one: what libraries choose at run time by the processor's features, turned off.

``python tests/support/processors.py v4 COMMAND`` runs a command as on a processor without AVX-512, and
``v3`` as on one without AVX2 and FMA too (on Arm: without SVE; with nothing beyond the baseline). Under
pytest the run ends at once where a library has not turned off what it should (``tests/conftest.py``
calls `check`).
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec

LEVELS = ("v4", "v3")
# Names the level in the environment of a run, and so of every process that the run starts.
VARIABLE = "PRIVINF_TESTS_WITHOUT"
# How numpy's names of wide vectors begin: X86_V4 from 2.4 on, AVX512F and the like before; SVE on Arm.
WIDE = ("X86_V4", "AVX512", "SVE")
X86 = ("x86_64", "amd64")
ARM = ("aarch64", "arm64")
# Variants of glibc's exp, log, sin and pow that multiply and add in one step, by names of all its versions.
FUSED = "glibc.cpu.hwcaps=-FMA,-FMA4,-AVX2,-FMA_Usable,-FMA4_Usable,-AVX2_Usable"


def disabled_features(level: str, dispatched: Iterable[str]) -> list[str]:
    """Return numpy's features to turn off, of those that it chooses at run time (never its baseline)."""
    return [name for name in dispatched if level == "v3" or name.startswith(WIDE)]


def settings(
    level: str, machine: str, dispatched: Iterable[str], features: Mapping[str, bool]
) -> dict[str, str]:
    """Return the variables of the environment that turn a level off.

    Parameters
    ----------
    level : {'v4', 'v3'}
        What to turn off, with all above it.
    machine : str
        ``platform.machine()``.
    dispatched, features
        numpy's ``__cpu_dispatch__`` and ``__cpu_features__``.
    """
    if level not in LEVELS:
        raise ValueError(f"{level!r} is not a level of processors: one of {', '.join(LEVELS)}")
    chosen = {VARIABLE: level, "NPY_DISABLE_CPU_FEATURES": " ".join(disabled_features(level, dispatched))}
    if machine.lower() in ARM:
        return chosen | {"OPENBLAS_CORETYPE": "ARMV8", "NUMBA_CPU_NAME": "generic"}
    if machine.lower() not in X86:
        return chosen | {"NUMBA_CPU_NAME": "generic"}
    if level == "v4" and features.get("AVX2") and features.get("FMA3"):
        haswell = "+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+popcnt,+sse4.2"
        numba = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": haswell}
        return chosen | numba | {"OPENBLAS_CORETYPE": "Haswell", "ARROW_USER_SIMD_LEVEL": "AVX2"}
    oldest = {"OPENBLAS_CORETYPE": "Nehalem", "NUMBA_CPU_NAME": "generic", "ARROW_USER_SIMD_LEVEL": "NONE"}
    return chosen | oldest | {"GLIBC_TUNABLES": FUSED}


def settings_here(level: str) -> dict[str, str]:
    """Return the variables that turn a level off on this processor, with this numpy."""
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    return settings(level, platform.machine(), __cpu_dispatch__, __cpu_features__)


def check(level: str) -> list[str]:
    """Return, a line each, what each library runs with; raise if one has not turned the level off."""
    lines = [_numpy(level)]
    core, cpu = os.environ.get("OPENBLAS_CORETYPE"), os.environ.get("NUMBA_CPU_NAME")
    if core and find_spec("threadpoolctl"):
        lines.append(_blas(core))
    if cpu and find_spec("numba"):
        lines.append(_numba(cpu))
    if "ARROW_USER_SIMD_LEVEL" in os.environ and find_spec("pyarrow"):
        lines.append(_arrow(os.environ["ARROW_USER_SIMD_LEVEL"]))
    return lines


def _expect(holds: bool, message: str) -> str:
    if not holds:
        raise RuntimeError(f"{message}: start this run by tests/support/processors.py")
    return message


def _numpy(level: str) -> str:
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    off = disabled_features(level, __cpu_dispatch__)
    on = [name for name in off if __cpu_features__[name]]
    return _expect(not on, f"numpy without {' '.join(off)}, of which {' '.join(on) or 'none'} is on")


def _blas(core: str) -> str:
    import scipy.linalg  # noqa: F401  # brings a second BLAS
    from threadpoolctl import threadpool_info

    cores = {one["architecture"].lower() for one in threadpool_info() if one["internal_api"] == "openblas"}
    return _expect(cores <= {core.lower()}, f"OpenBLAS for {core}: {' '.join(cores) or 'not used'}")


def _numba(cpu: str) -> str:
    from numba.core.registry import cpu_target

    _, found, features = cpu_target.target_context.codegen().magic_tuple()
    off = "avx512" not in features.replace("-avx512", "") and (cpu != "generic" or "+avx" not in features)
    return _expect(found == cpu and off, f"numba for {cpu}: {found} {features}".rstrip())


def _arrow(level: str) -> str:
    import pyarrow as pa

    found = pa.runtime_info().simd_level
    return _expect(found.lower() in ("none", level.lower()), f"Arrow with {level} at most: {found}")


def main(words: Sequence[str]) -> None:
    """Replace this process by a command under a level's settings."""
    level, *command = words
    environment = os.environ | settings_here(level)
    os.execvpe(command[0], command, environment)


if __name__ == "__main__":
    main(sys.argv[1:])
