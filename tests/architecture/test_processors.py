"""Runs for older processors turn off what they say they do, by every numpy's names and on every machine."""

import os
import subprocess
import sys

import pytest
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__
from support import processors
from support.tree import ROOT

# What numpy chooses at run time: its wheels of several versions, for several machines.
DISPATCHED = {
    "x86-64, numpy 2.4": ("x86_64", ["X86_V3", "X86_V4", "AVX512_ICL", "AVX512_SPR"]),
    "x86-64, numpy 2.0": (
        "AMD64",
        [
            "SSSE3",
            "SSE41",
            "POPCNT",
            "SSE42",
            "AVX",
            "F16C",
            "FMA3",
            "AVX2",
            "AVX512F",
            "AVX512CD",
            "AVX512_KNL",
            "AVX512_SKX",
            "AVX512_ICL",
        ],
    ),
    "Arm": ("aarch64", ["ASIMDHP", "ASIMDDP", "ASIMDFHM", "SVE"]),
    "Apple": ("arm64", ["ASIMDHP", "ASIMDDP", "ASIMDFHM"]),
    "POWER": ("ppc64le", ["VSX3", "VSX4"]),
    "none": ("x86_64", []),
}


@pytest.mark.parametrize("level", processors.LEVELS)
@pytest.mark.parametrize("kind", DISPATCHED)
def test_only_what_numpy_chooses_is_turned_off(kind, level):
    machine, names = DISPATCHED[kind]
    chosen = processors.settings(level, machine, names, dict.fromkeys([*names, "AVX2", "FMA3"], True))
    off = chosen["NPY_DISABLE_CPU_FEATURES"].split()
    wide = [name for name in names if "512" in name or name in ("X86_V4", "SVE")]
    assert off == (names if level == "v3" else wide)
    assert chosen[processors.VARIABLE] == level
    assert ("GLIBC_TUNABLES" in chosen) == (level == "v3" and machine in ("x86_64", "AMD64"))


def test_a_processor_without_avx2_is_not_given_instructions_that_it_lacks():
    machine, names = DISPATCHED["x86-64, numpy 2.4"]
    chosen = processors.settings("v4", machine, names, {"AVX2": False, "FMA3": False})
    assert (chosen["OPENBLAS_CORETYPE"], chosen["NUMBA_CPU_NAME"]) == ("Nehalem", "generic")


def test_another_level_is_refused():
    with pytest.raises(ValueError, match="not a level of processors"):
        processors.settings_here("v5")


ASK = "from support.processors import check; print(*check({!r}), sep='\\n')"


def asked(level, *words):
    """Return the run of a Python that says what its libraries run with."""
    tests = str(ROOT / "tests")
    words = words or (sys.executable, str(ROOT / "tests/support/processors.py"), level)
    return subprocess.run(
        [*words, sys.executable, "-W", "error", "-c", ASK.format(level)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), tests])},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.audit
@pytest.mark.parametrize("level", processors.LEVELS)
def test_libraries_turn_the_level_off(level):
    run = asked(level)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.startswith("numpy without ")


def test_a_run_that_did_not_turn_it_off_ends():
    if not any(__cpu_features__[name] for name in __cpu_dispatch__):
        pytest.skip("numpy runs with its baseline here, by the processor or by the run's own settings")
    run = asked("v3", "env")
    assert run.returncode == 1
    assert "start this run by tests/support/processors.py" in run.stderr
