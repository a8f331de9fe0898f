"""Audits of the party releases with more draws than the tests take: ``python benchmarks/audits_mixing.py``.

Every row draws a release, or a whole fit, through its public function on a worst pair of neighbours and
proves, at 99.9%, a lower bound on its loss; a mutant is the same with one thing broken, and its bound must
exceed the claim. The draws and their exact log-likelihood ratios are those of
tests/privacy/test_mixing_audits.py.
"""

from __future__ import annotations

import math
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tables import load

import privinf as pi
from privinf.mechanisms.mixing import party_release
from privinf.mechanisms.mixing.matrix import MixingMatrix
from privinf.noise import SimulationNoise
from privinf.schema import Design

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "benchmarks" / "results" / "audits_mixing.md"
MANY, AGAIN, FITS = 40_000, 10_000, 1500
FIT_MU = 1.5

HEAD = """# Audits of party releases

Made by `python benchmarks/audits_mixing.py` in {seconds:.0f} s. Lower bounds hold with confidence 99.9%; the threshold of the test is chosen on half of the draws and measured on the other half. A row passes if the proved bound is below the claim and at least 0.85 of the exact loss of the release on the pair; a mutant (a mechanism with a deliberate fault) is caught if its bound exceeds the claim. Rows of people drawn at once leave out the all-ones row, which everybody shares; where both are released
together, one person of a small table changes, and the table is released again for every draw. A whole fit shows
its coefficients, covariance, bias, score test and identification, and the changed person's messages, to a
discriminant that is learned from half of the draws.

| release | draws a world | currency | claim | proved lower bound | exact loss | bound / exact | verdict |
|---|---|---|---|---|---|---|---|
"""


def honest(t: Any, table: Any) -> None:
    """Audit the releases as they are, on both noise sources."""
    for noise, word in ((t.SEEDED, "seeded"), (t.SECURE, "secure")):
        for kind in t.KINDS:
            zero, one, exact = t.at_once(kind, noise, intercept=False)
            table.audit(f"{name_of(kind)}, {word}", (zero, one), t.MU, exact)
        for kind in t.KINDS[:3]:
            for share in (0.5, 0.05):
                both = t.again(kind, noise, share=share)
                name = f"{name_of(kind)} and all-ones row (share {share:g}), {word}"
                table.audit(name, both, t.MU, t.MU)
    for party in ("levels", "label"):
        for kind in t.KINDS:
            share = {} if kind == "rows" else {"share": 0.1}
            zero, one, exact = t.at_once(kind, t.SEEDED, party, **share)
            table.audit(f"{name_of(kind)}, party of {WORDS[party]}", (zero, one), t.MU, exact)
    for kind in t.KINDS:
        zero, one, exact = t.at_once(kind, t.SEEDED, records=t.FAR, intercept=False)
        table.audit(f"{name_of(kind)}, records far outside the bounds", (zero, one), t.MU, exact)


WORDS = {"levels": "a factor and a number", "label": "one column"}


def name_of(kind: str) -> str:
    """Return how the report calls a release."""
    return "Gaussian rows" if kind == "rows" else f"mixed rows, {kind}"


def several_parties(t: Any, table: Any) -> None:
    """Audit one person at two parties, and linkage by who holds one party's raw columns."""
    score = np.array([1.0, 1.0, -1.0, -1.0])
    worlds = [(t.OPPOSITE, t.CORNER), (t.CORNER, t.OPPOSITE)]
    total = t.MU * math.sqrt(2.0)
    for noise, word in ((t.SEEDED, "seeded"), (t.SECURE, "secure")):
        for kind in t.KINDS:
            many = 8000 if kind == "signs" else MANY
            (zero, one), releases = t.two_parties(kind, noise, worlds, many=many)
            claim = pi.PrivacyReport.from_entries(pi.join(releases).entries).mu
            scores = (zero @ score, one @ score)
            table.audit(f"{name_of(kind)}, two parties, per person, {word}", scores, claim, total)
            linked = t.linked(kind, noise, many)
            table.audit(f"{name_of(kind)}, other party's raw columns known, {word}", linked, t.MU, t.MU)
    for kind in t.KINDS:
        for name, scores_of, claim in (
            ("two parties, noise shared", lambda kind, kept: shared_scores(t, kind, kept), total),
            (
                "raw columns known, noise shared",
                lambda kind, kept: t.linked(kind, t.SEEDED, 2000, kept=kept),
                t.MU,
            ),
        ):
            with pytest.MonkeyPatch.context() as patched:
                kept = t.sharing_noise(patched)
                table.audit(f"{name_of(kind)}, {name}", scores_of(kind, kept), claim, mutant=True)


def shared_scores(t: Any, kind: str, kept: dict[Any, Any]) -> list[Any]:
    """Return scores of one person at two parties that draw the same noise."""
    worlds = [(t.OPPOSITE, t.CORNER), (t.CORNER, t.OPPOSITE)]
    out, _ = t.two_parties(kind, t.SEEDED, worlds, many=2000, kept=kept)
    return [world @ np.array([1.0, 1.0, -1.0, -1.0]) for world in out]


def mutants(t: Any, table: Any) -> None:
    """Audit the releases with one thing broken."""
    perturb, scale = SimulationNoise.perturb, MixingMatrix.scale.fget  # type: ignore[attr-defined]
    root = math.sqrt(1.0 - 0.96)
    unscaled = (MixingMatrix, "scale", property(lambda self: 1.0))
    whole = (MixingMatrix, "scale", property(lambda self: scale(self) / root))
    half = (SimulationNoise, "perturb", lambda self, values, sd: perturb(self, values, sd / 2))
    unclipped = (party_release, "scale_private", t.unclipped)
    for kind in t.KINDS:
        cases = [
            ("half the noise", half, lambda kind: t.at_once(kind, t.SEEDED)[:2]),
            ("bounds not enforced", unclipped, lambda kind: t.at_once(kind, t.SEEDED, records=t.FAR)[:2]),
        ]
        for name, reach in t.CALIBRATED_TO.items():
            patch = (Design, "diameter", property(reach))
            cases.append((f"diameter is {name}", patch, lambda kind: t.at_once(kind, t.SEEDED)[:2]))
        if kind in ("signs", "hadamard"):
            cases.append(("1/sqrt k forgotten", unscaled, lambda kind: t.again(kind, t.SEEDED)))
        if kind != "rows":
            cases.append(("sqrt(1 - a) forgotten", whole, lambda kind: t.again(kind, t.SEEDED, share=0.96)))
        for name, patch, scores in cases:
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(*patch)
                table.audit(f"{name_of(kind)}, {name}", scores(kind), t.MU, mutant=True)


WHOLE: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "RMGMOLS": (pi.RMGMOLS, {"k": 32, "kind": "signs"}, {}),
    "RMGMOLS, no intercept": (pi.RMGMOLS, {"k": 32, "kind": "hadamard", "intercept": False}, {}),
    "RMGMOLS plain": (pi.RMGMOLS, {"k": 32}, {"debias": False}),
    "RMGMOLS shrunk": (pi.RMGMOLS, {"k": 32}, {"shrink": True}),
    "DGMOLS": (pi.DGMOLS, {}, {}),
    "BGMOLS": (pi.BGMOLS, {}, {}),
}


def shown(result: Any, changed: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return what a fit shows as numbers, and what its releases say of the changed person."""
    p = len(result.params)
    covariance = np.zeros((p, p)) if result.estimate.cov is None else result.estimate.cov
    bias = getattr(result, "bias", np.zeros(p))
    test = result.score_test().statistic
    said = changed @ np.column_stack([result.release.arrays["features"], result.release.arrays["response"]])
    numbers = [result.params, covariance, bias, test, result.identification.statistic, said]
    flat = np.concatenate([np.ravel(number) for number in numbers])
    return np.asarray(np.nan_to_num(flat, nan=0.0, posinf=1e12, neginf=-1e12), dtype=np.float64)


def fitted(name: str, draws: int, *, leak: bool = False) -> np.ndarray[Any, Any]:
    """Return what `draws` fits show in both worlds; the last of 600 people changes at both parties."""
    cls, options, how = WHOLE[name]
    base, rng, n = np.random.default_rng(2), np.random.default_rng(1), 600
    X0 = base.uniform(-1.0, 1.0, (n, 2))
    y0 = np.clip(X0 @ [0.5, -0.3] + 0.1 * base.standard_normal(n), -1.0, 1.0)
    worlds = []
    for sign in (-1.0, 1.0):
        X, y = X0.copy(), y0.copy()
        X[-1], y[-1] = sign, sign
        parties = {"one": [0], "two": [1, "y"]}
        model = cls(y, X, parties=parties, bounds=[(-1, 1)] * 2, y_bounds=(-1, 1), **options)
        outputs = []
        for _ in range(draws):
            result = model.fit(mu=FIT_MU, rng=rng, **how)
            law = result.release.noise_model
            changed = np.eye(n)[-1]
            if law["method"] == "random-mixing":
                matrix = MixingMatrix(law["kind"], law["n"], law["k"], law["public_seed"])
                changed = matrix.entries(np.array([n - 1]))[:, 0] * matrix.scale
            numbers = shown(result, changed)
            outputs.append(np.append(numbers, y.mean()) if leak else numbers)
        worlds.append(np.array(outputs))
    return np.array(worlds)


def whole_fits(audits: Any, table: Any) -> None:
    """Audit everything that a fit shows."""
    claim = FIT_MU * math.sqrt(2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in WHOLE:
            scores = audits.learned_scores(fitted(name, FITS))
            table.audit(f"whole fit, {name}", scores, claim)
        leak = audits.learned_scores(fitted("DGMOLS", FITS, leak=True))
        table.audit("a fit that shows one number of the rows", leak, claim, mutant=True)


def main() -> int:
    """Run every audit and every mutant, and write the table."""
    started = time.time()
    reports = load(ROOT / "benchmarks" / "audits.py", "audits_benchmark")
    tests = load(ROOT / "tests" / "privacy" / "test_mixing_audits.py", "mixing_audit_tests")
    fits = load(ROOT / "tests" / "privacy" / "test_audits.py", "audit_tests")
    tests.MANY, tests.AGAIN = MANY, AGAIN
    table = reports.Table()
    for part in (honest, several_parties, mutants):
        part(tests, table)
    whole_fits(fits, table)
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(HEAD.format(seconds=time.time() - started) + "\n".join(table.lines) + "\n")
    return int(table.wrong)


if __name__ == "__main__":
    sys.exit(main())
