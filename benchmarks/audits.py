"""All audits with more draws than the tests take: ``python benchmarks/audits.py`` (about two minutes).

Every row draws a mechanism through its public function on its worst pair of neighbours and proves, at 99.9%,
a lower bound on its loss; a mutant is the same with one thing broken, and its bound must exceed the claim.
The draws and their exact log-likelihood ratios are those of tests/privacy/test_audits.py.
"""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tables import load

from privinf.mechanisms import rows
from privinf.mechanisms.statistics import gridded, moments
from privinf.noise import LatticeNoise, SimulationNoise
from privinf.schema import Design
from studies.audit import AuditResult, audit_mechanism

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "benchmarks" / "results" / "audits.md"
LOCAL, CENTRAL, RESPONSES, WHOLE = 300_000, 10_000, 1_000_000, 2_000
TOTAL_MU = 3.0

HEAD = """# Audits

Made by `python benchmarks/audits.py` in {seconds:.0f} s. Lower bounds hold with confidence 99.9%; the threshold of the test is chosen on half of the draws and measured on the other half. A row passes if the proved bound is below the claim and at
least 0.85 of the exact loss of the mechanism on the pair; a mutant (a mechanism with a deliberate fault) is caught if its bound exceeds the claim (or,
where it only wastes noise, if it falls below 0.85 of the exact loss).

| mechanism | draws a world | currency | claim | proved lower bound | exact loss | bound / exact | verdict |
|---|---|---|---|---|---|---|---|
"""


@dataclass
class Table:
    """Rows of the report; `wrong` counts verdicts other than passed and caught."""

    lines: list[str] = field(default_factory=list)
    wrong: int = 0

    def audit(self, name, scores, claim, exact=None, currency="mu", mutant=False):
        worlds = [np.asarray(one, dtype=np.float64) for one in scores]
        exact_loss = {} if exact is None else {f"exact_{currency}": exact}
        found = audit_mechanism(
            lambda world, count, rng: worlds[world],
            lambda x: x,
            draws=len(worlds[0]),
            rng=0,
            **{currency: claim},
            **exact_loss,
        )
        self.add(name, found, currency, claim, exact, mutant)

    def add(self, name: str, found: AuditResult, currency, claim, exact, mutant):
        bound = found.mu_lower if currency == "mu" else found.epsilon_lower
        good = not found.passed if mutant else found.passed
        self.wrong += not good
        words = ("caught", "MISSED") if mutant else ("passed", "FAILED")
        verdict = words[not good] + (" (blind)" if found.blind else "")
        name = f"mutant: {name}" if mutant else name
        share = "" if exact is None else f"{bound / exact:.3f}"
        known = "" if exact is None else f"{exact:.3f}"
        cells = (name, f"{found.draws:,}", currency, f"{claim:.3f}", f"{bound:.3f}", known, share, verdict)
        self.lines.append("| " + " | ".join(cells) + " |")
        print(self.lines[-1], flush=True)


def load_tests():
    """Return the audit tests as a module, with more draws."""
    module: Any = load(ROOT / "tests" / "privacy" / "test_audits.py", "audit_tests")
    module.DRAWS = LOCAL
    return module


def honest(t, table: Table) -> None:
    """Audit the mechanisms as they are, on both noise sources."""
    mu = t.MU
    for noise, source, word in (
        (t.SEEDED, SimulationNoise(0), "seeded"),
        (t.SECURE, LatticeNoise(), "secure"),
    ):
        table.audit(f"modulated features, worst pair, {word}", t.one_shot(noise, amplitude=0.5), mu, mu)
        zero, one, exact = t.along_scores(noise, 1.0)
        table.audit(f"modulated features, pair along V, {word}", (zero, one), mu, exact)
        lipschitz = t.one_shot(noise, amplitude=0.2, sensitivity="lipschitz")
        table.audit(f"modulated features, Lipschitz calibration, {word}", lipschitz, mu, mu * 0.5 / 0.7)
        for m in (1, 2):
            scores = t.round_scores(noise, directions=m)
            table.audit(f"modulated features, five rounds, {m} direction(s), {word}", scores, mu, mu)
        table.audit(f"modulated features and response, {word}", t.joint_scores(noise), mu, mu)
        persons = t.person_scores(noise, people=LOCAL // 3)
        table.audit(f"modulated features and response, three rows a person, {word}", persons, mu, mu)
        table.audit(f"second moments, local, {word}", t.local_scores(noise), mu, mu)
        totals = t.central_scores(bool(noise), CENTRAL, TOTAL_MU)
        table.audit(f"second moments, total, {word}", totals, TOTAL_MU, TOTAL_MU)
        for levels in (2, 5):
            scores = t.response_scores(levels, source, RESPONSES)
            table.audit(f"randomized response, k = {levels}, {word}", scores, 1.0, 1.0, "epsilon")
    table.audit("modulated features, record far outside the ball", t.outsiders(), mu, mu)
    half = mu * math.sqrt(0.5)
    table.audit("response far outside its bounds", t.response_release_scores(40.0), half, half)
    table.audit("residual moments (HC0)", t.residual_scores(CENTRAL, TOTAL_MU), TOTAL_MU, TOTAL_MU)
    for name in t.WHOLE:
        for pair in t.NEIGHBOURS:
            scores = t.learned_scores(t.fitted_worlds(name, pair, WHOLE))
            table.audit(f"whole fit, {name}, {pair}", scores, 2.5)


def mutants(t, table: Table) -> None:
    """Audit the mechanisms with one thing broken."""
    mu = t.MU
    perturb, sensitivity = SimulationNoise.perturb, moments.second_moment_sensitivity
    half = (SimulationNoise, "perturb", lambda self, values, scale: perturb(self, values, scale / 2))
    halved = (SimulationNoise, "perturb", lambda self, v, scale: perturb(self, v, scale * math.sqrt(0.5)))
    radius = (Design, "diameter", property(lambda self: self.radius))
    free = (rows, "project_ball", lambda x, radius: x)
    # Of sums: shrunk before they are on their grid, and held there, by the ball and column by column.
    loose = (
        (gridded, "shrunk", lambda x, radius: x),
        (gridded, "held_norms", lambda steps, limit: steps),
        (gridded, "on_grid", lambda x, factor, shift, out: np.floor(x * factor + shift, out=out)),
    )
    unclipped = (rows, "scaled_response", lambda design, y: (y - design.y_center) / design.y_scale)
    unbounded = (gridded, "clipped", lambda values, bound: values)
    no_root = (moments, "second_moment_sensitivity", lambda *a: sensitivity(*a) / math.sqrt(2))

    def worst():
        return t.one_shot(t.SEEDED, amplitude=0.0)

    def local():
        return t.local_scores(t.SEEDED)

    def far():
        return t.local_scores(t.SEEDED, [(3.0 * x, y) for x, y in t.worst_moment_pair()])

    def total(factor=1.0):
        return t.central_scores(True, CENTRAL, TOTAL_MU, factor)

    for name, patches, scores, claim in (
        ("features, half sigma", (half,), worst, mu),
        ("features, half variance", (halved,), worst, mu),
        ("features, radius taken for the diameter (add/remove for replace-one)", (radius,), worst, mu),
        ("features, ball not enforced", (free,), t.outsiders, mu),
        ("response not clipped", (unclipped,), lambda: t.response_release_scores(40.0), mu * math.sqrt(0.5)),
        ("moments local, half sigma", (half,), local, mu),
        ("moments local, no sqrt 2", (no_root,), local, mu),
        ("moments local, ball not enforced", (free,), far, mu),
        ("moments total, half sigma", (half,), total, TOTAL_MU),
        ("moments total, no sqrt 2", (no_root,), total, TOTAL_MU),
        ("moments total, ball not enforced", loose, lambda: total(2.0), TOTAL_MU),
        ("residuals not clipped", (unbounded,), lambda: t.residual_scores(CENTRAL, TOTAL_MU), TOTAL_MU),
    ):
        with pytest.MonkeyPatch.context() as patched:
            for patch in patches:
                patched.setattr(*patch)
            table.audit(name, scores(), claim, mutant=True)
    table.audit("rows of a person not counted", t.person_scores(t.SEEDED, declared=False), mu, mutant=True)
    isometry(t, table)
    for levels in (2, 5):
        scores = t.response_scores(levels, SimulationNoise(1), RESPONSES, used=1.5)
        table.audit(f"randomized response with 1.5 epsilon, k = {levels}", scores, 1.0, None, "epsilon", True)
    leak = t.learned_scores(t.fitted_worlds("central", "leverage", WHOLE, leak=True))
    table.audit("a fit that shows one number of the rows", leak, 2.5, mutant=True)


def isometry(t, table: Table) -> None:
    """Break the factor of the off-diagonal moments."""
    pair = t.tilted_pair()
    exact = t.exact_moment_mu(pair)
    table.audit(
        "second moments, pair that differs off the diagonal", t.local_scores(t.SEEDED, pair), t.MU, exact
    )
    true = moments.MomentLayout.pairs
    for factor, word in ((1.0, "missing"), (2.0, "squared")):

        def wrong(self, factor=factor):
            r, c, _ = true(self)
            return r, c, np.where(r == c, 1.0, factor)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(moments.MomentLayout, "pairs", wrong)
            scores = t.local_scores(t.SEEDED, pair)
        table.audit(f"off-diagonal sqrt 2 {word}", scores, exact, exact, mutant=True)


def phases(t, table: Table) -> None:
    """Reuse one phase over two rounds, and draw phases anew."""
    t.PHASE_DRAWS = 40_000
    kept = t.keeping_phases(SimulationNoise)
    secure = t.keeping_phases(LatticeNoise)
    fresh = t.phase_scores(SimulationNoise)
    table.audit("two rounds, phases drawn anew, scored as if they were one", fresh, t.MU)
    table.audit("phase reused over rounds", t.phase_scores(kept), t.MU, mutant=True)
    harmless = t.phase_scores(lambda seed: secure())
    table.audit("two rounds, wave of the secure source reused (it never sees x)", harmless, t.MU)


def main() -> int:
    """Run every audit and every mutant, and write the table."""
    started, table, tests = time.time(), Table(), load_tests()
    honest(tests, table)
    mutants(tests, table)
    phases(tests, table)
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(HEAD.format(seconds=time.time() - started) + "\n".join(table.lines) + "\n")
    return table.wrong


if __name__ == "__main__":
    sys.exit(main())
