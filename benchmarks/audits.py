"""All audits with more draws than the tests take: ``python benchmarks/audits.py`` (about three minutes).

Every row draws a mechanism through its public door on its worst pair of neighbours and proves, at 99.9%, a
lower bound on its loss; a mutant is the same with one thing broken, and its bound must exceed the claim.
The audits themselves live in tests/privacy/test_audits.py.
"""

from __future__ import annotations

import importlib.util
import math
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from privinf.audit import audit_mechanism
from privinf.mechanisms import RandomizedResponse, moments, rows
from privinf.noise import LatticeNoise, SimulationNoise
from privinf.schema import Design

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def load_tests():
    """Return the audit tests as a module."""
    path = ROOT / "tests" / "privacy" / "test_audits.py"
    spec = importlib.util.spec_from_file_location("audit_tests", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["audit_tests"] = module
    spec.loader.exec_module(module)
    return module


def response(levels: int, used: float, source) -> tuple:
    """Return the scores of k-ary randomized response run with epsilon `used`, in both worlds."""
    law = RandomizedResponse(levels, used)
    codes = [law.respond(np.full(400_000, world), source) for world in (0, 1)]
    return tuple((sent == 1).astype(float) - (sent == 0) for sent in codes)


def main() -> None:
    """Run every audit and mutant and write the table."""
    started, table = time.time(), []
    t = load_tests()
    t.DRAWS = 300_000

    def row(name, currency, claim, scores, exact=None, mutant=False):
        worlds = [np.asarray(s, dtype=float) for s in scores]
        claims = {currency: claim} | ({} if exact is None else {f"exact_{currency}": exact})
        found = audit_mechanism(
            lambda world, count, rng: worlds[world], lambda x: x, draws=len(worlds[0]), rng=0, **claims
        )
        bound = found.mu_lower if currency == "mu" else found.epsilon_lower
        right = found.exceeded if mutant else found.passed
        verdict = ("caught" if right else "MISSED") if mutant else ("passed" if right else "FAILED")
        table.append((name, currency, claim, bound, "" if exact is None else f"{exact:.3g}", verdict))
        print(f"{name}: {currency} claim {claim:.3g}, lower bound {bound:.3g}, {verdict}", flush=True)

    mu = t.MU
    for noise, word in ((t.SEEDED, "seeded"), (t.SECURE, "secure")):
        row(f"modulated features, worst pair, {word}", "mu", mu, t.one_shot(noise, amplitude=0.5), mu)
        row(f"second moments, local, {word}", "mu", mu, t.local_scores(noise), mu)
        row(f"second moments, total, {word}", "mu", 3.0, t.central_scores(bool(noise), 10_000, 3.0), 3.0)
    row("modulated features, record far outside", "mu", mu, t.outsiders(), mu)
    row("residual moments (HC0)", "mu", 3.0, t.residual_scores(10_000, 3.0), 3.0)
    for levels in (2, 4):
        for source in (SimulationNoise(0), LatticeNoise()):
            scores = response(levels, 1.0, source)
            row(f"randomized response, k = {levels}, {source.name}", "epsilon", 1.0, scores, 1.0)

    def mutants():
        true = SimulationNoise.perturb
        sensitivity = moments.second_moment_sensitivity

        def shrunk(factor):
            return lambda self, values, scale: true(self, values, factor * scale)

        yield (
            "half sigma",
            (SimulationNoise, "perturb", shrunk(0.5)),
            lambda: t.one_shot(t.SEEDED, amplitude=0.0),
            mu,
        )
        yield (
            "half variance",
            (SimulationNoise, "perturb", shrunk(math.sqrt(0.5))),
            lambda: t.one_shot(t.SEEDED, amplitude=0.0),
            mu,
        )
        yield (
            "radius taken for the diameter (add/remove for replace-one)",
            (
                Design,
                "diameter",
                property(lambda self: self.radius),
            ),
            lambda: t.one_shot(t.SEEDED, amplitude=0.0),
            mu,
        )
        yield "bound not enforced", (rows, "project_ball", lambda x, radius: x), t.outsiders, mu
        yield (
            "moments: no sqrt 2",
            (
                moments,
                "second_moment_sensitivity",
                lambda *a: sensitivity(*a) / math.sqrt(2),
            ),
            lambda: t.local_scores(t.SEEDED),
            mu,
        )
        yield (
            "moments: half sigma",
            (SimulationNoise, "perturb", shrunk(0.5)),
            lambda: t.local_scores(t.SEEDED),
            mu,
        )
        yield (
            "total: half the sensitivity",
            (
                moments,
                "second_moment_sensitivity",
                lambda *a: sensitivity(*a) / 2,
            ),
            lambda: t.central_scores(True, 10_000, 3.0),
            3.0,
        )

    for name, patch, scores, claim in mutants():
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(*patch)
            row(f"mutant: {name}", "mu", claim, scores(), mutant=True)
    row(
        "mutant: residuals not clipped", "mu", 3.0, t.residual_scores(10_000, 3.0, clipped=False), mutant=True
    )
    row(
        "mutant: response with 1.5 epsilon", "epsilon", 1.0, response(2, 1.5, SimulationNoise(1)), mutant=True
    )
    with pytest.MonkeyPatch.context() as patched:
        broken, fresh = t.phase_audits(patched)
    for name, (found, claim), verdict in (
        ("phases drawn anew, two rounds, attacked along V", fresh, "passed" if fresh[0].passed else "FAILED"),
        ("mutant: phase reused over rounds", broken, "caught" if broken[0].exceeded else "MISSED"),
    ):
        table.append((name, "mu", claim, found.mu_lower, "", verdict))

    lines = [
        "# Audits",
        "",
        f"Made by `python benchmarks/audits.py` in {time.time() - started:.0f} s. Lower bounds at 99.9% confidence, "
        "threshold chosen on half of the draws and measured on the other half. A row passes if the bound is below "
        "the claim and at least 0.85 of the exact loss on the pair; a mutant is caught if its bound exceeds the claim.",
        "",
        "| mechanism | currency | claim | proved lower bound | exact loss | verdict |",
        "|---|---|---|---|---|---|",
        *(f"| {a} | {b} | {c:.3g} | {d:.3g} | {e} | {f} |" for a, b, c, d, e, f in table),
    ]
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "audits.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
