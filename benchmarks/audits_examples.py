"""Audits of local examples with more draws than the tests take: ``python benchmarks/audits_examples.py``.

Every row draws a release through its public function on its worst pair of records and proves, at 99.9%, a
lower bound on its loss; a mutant is the same with one thing broken, and its bound must exceed the level that
was named. The draws and their exact log-likelihood ratios are those of
tests/privacy/test_local_examples_audits.py.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tables import load

from privinf.accounting import compose
from privinf.mechanisms import rows
from privinf.mechanisms.local import examples as local_examples
from privinf.schema import Design

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "benchmarks" / "results" / "audits_examples.md"
DRAWS, PEOPLE = 1_000_000, 200_000

HEAD = """# Audits of local examples

Made by `python benchmarks/audits_examples.py` in {seconds:.0f} s. Lower bounds hold with confidence 99.9%; the
threshold is chosen on half of the draws and measured on the other half. The claim is the level that the caller
named: epsilon at the delta in brackets, 0 for answers alone. A row passes if the bound is below the claim and at
least 0.85 of the exact loss of the release on the pair; a mutant (a mechanism with a deliberate fault) is caught if its bound exceeds the claim, or
(blind) if the stated law is no longer the law of what was sent.

| release | draws a world | currency | claim | proved lower bound | exact loss | bound / exact | verdict |
|---|---|---|---|---|---|---|---|
"""


def row(
    t: Any,
    table: Any,
    name: str,
    scores: Any,
    level: float,
    *,
    delta: float | None = None,
    exact: bool = True,
    mutant: bool = False,
) -> None:
    """Audit scores of both worlds against a named level."""
    at = t.DELTA if delta is None else delta
    found = t.audit(scores, epsilon=level, exact=exact, delta=at)
    table.add(f"{name} ({at:g})", found, "epsilon", level, level if exact else None, mutant)


def honest(t: Any, table: Any) -> None:
    """Audit the releases as they are, on both noise sources."""
    x, y = t.LEVEL_X, t.LEVEL_Y
    for noise, word in ((t.SEEDED, "seeded"), (t.SECURE, "secure")):
        for formula in ("y ~ x1 + x2", "y ~ x1 + x2 + z"):
            scores = t.scores_of(formula, t.SIDES, noise, what=t.FEATURES)
            row(t, table, f"features, {formula}, {word}", scores, x)
        for formula, levels in (("y ~ x1", 2), ("w ~ x1", 3)):
            scores = t.scores_of(formula, t.SIDES, noise, what=t.LABEL)
            row(t, table, f"label, {levels} levels, {word}", scores, y, delta=0.0)
        row(t, table, f"label, Gaussian, {word}", t.scores_of("t ~ x1", t.SIDES, noise, what=t.LABEL), y)
        for formula, levels in (("y ~ z", 2), ("y ~ g", 3)):
            scores = t.scores_of(formula, {"epsilon_x": 2.0, "epsilon_y": y}, noise, what=t.FEATURES)
            row(t, table, f"feature, {levels} levels, {word}", scores, 2.0, delta=0.0)
        for formula in ("y ~ x1 + x2", "y ~ x1 + x2 + z", "t ~ x1 + x2", "t ~ x1 + z"):
            row(t, table, f"jointly, {formula}, {word}", t.scores_of(formula, t.WHOLE, noise), x)
        for factor in (1.0, 50.0):
            name = f"jointly, ball, records at {factor:g} radii, {word}"
            row(t, table, name, t.ball_scores(noise, factor), x)
        row(t, table, f"four rows a person, {word}", t.person_scores(noise, PEOPLE), x, exact=False)
    releases = t.released(t.mechanism_of(t.ALL), t.SIDES, t.SEEDED)
    total = compose([entry.loss for entry in releases[0].entries]).epsilon(t.DELTA)
    row(t, table, "both sides, exact total", [t.log_ratio(one, t.PAIR) for one in releases], total)
    papers = t.scores_of("y ~ x1 + z + g", t.SIDES, t.SEEDED, what=t.FEATURES, binary_mechanism="gaussian")
    row(t, table, "features, all Gaussian", papers, x)
    row(t, table, "records outside their bounds", t.scores_of(t.ALL, t.WHOLE, t.SEEDED, pair=t.FAR), x)


def mutants(t: Any, table: Any) -> None:
    """Audit the releases with one thing broken."""
    for name in t.MUTANTS:
        scores, level, delta = t.mutant_scores(name)
        row(t, table, name, scores, level, delta=delta, mutant=True)
    for name, patch, scores_of in (
        ("radius taken for the diameter", (Design, "diameter", property(lambda d: d.radius)), t.ball_scores),
        ("ball not enforced", (rows, "project_ball", lambda x, radius: x), lambda: t.ball_scores(factor=2.0)),
        (
            "bounds not enforced",
            (rows, "scale_private", t.unclipped),
            lambda: t.scores_of("y ~ x1 + x2", t.WHOLE, t.SEEDED, pair=t.FAR),
        ),
        (
            "rows of a person not counted",
            (local_examples, "max_rows", lambda design: 1),
            lambda: t.person_scores(t.SEEDED, PEOPLE),
        ),
    ):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(*patch)
            row(t, table, name, scores_of(), t.LEVEL_X, exact=False, mutant=True)


def main() -> int:
    """Run every audit and every mutant, and write the table."""
    started = time.time()
    reports = load(ROOT / "benchmarks" / "audits.py", "audits_benchmark")
    tests: Any = load(ROOT / "tests" / "privacy" / "test_local_examples_audits.py", "examples_audit_tests")
    tests.DRAWS = DRAWS
    table = reports.Table()
    for part in (honest, mutants):
        part(tests, table)
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(HEAD.format(seconds=time.time() - started) + "\n".join(table.lines) + "\n")
    return int(table.wrong)


if __name__ == "__main__":
    sys.exit(main())
