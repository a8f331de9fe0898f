"""Audits of peeling and scores with more draws than the tests take: ``python benchmarks/audits_lasso.py``.

Every row draws a release on its worst pair of records and proves, at 99.9%, a lower bound on its loss; a mutant is
the same with one thing broken, and its bound must exceed the claim. The draws and their exact log-likelihood ratios
are those of tests/privacy/test_lasso_audits.py.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "benchmarks" / "results" / "audits_lasso.md"
DRAWS, SECURE_DRAWS, ASKED = 1_000_000, 500_000, 10_000

HEAD = """# Audits of peeling, gradient steps and debiased coordinates

Made by `python benchmarks/audits_lasso.py` in {seconds:.0f} s. Lower bounds hold with confidence 99.9%; the threshold is
chosen on half of the draws and measured on the other half. Peeling claims epsilon at the delta in brackets (0: pure),
through the exact account of its ledger lines, zCDP where it is known only there; the exact loss is that of the pair
under the known law. A row passes if the bound is below the claim and at least 0.85 of the exact loss; a mutant is
caught if its bound exceeds the claim.

| release | draws a world | currency | claim | proved lower bound | exact loss | bound / exact | verdict |
|---|---|---|---|---|---|---|---|
"""


def load(path: Path, name: str) -> ModuleType:
    """Return a file of this project as a module."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def peeling(t: Any, table: Any) -> None:
    """Audit peeling as it is."""
    crowd6 = t.crowd(6)
    for noise in (t.SEEDED, t.SECURE):
        for name, pair, delta, options in (
            ("2 of 4, tied at the second place, picks and values", t.TIED, t.DELTA, {}),
            ("2 of 4, tied at the second place, picks", t.TIED, t.DELTA, {"values": False}),
            ("1 of 6 equals, pick and value", crowd6, t.DELTA, {"k": 1}),
            ("3 of 6 equals, picks and values", crowd6, t.DELTA, {"k": 3}),
            ("private max of 20 equals", t.CROWD, 0.0, {"k": 1, "values": False, "epsilon": 2.0}),
        ):
            scores, claim, exact = t.peeled(pair, noise, delta=delta, **options)
            found = t.audit(scores, claim, exact=exact, delta=delta)
            table.add(f"{name}, {noise} ({delta:g})", found, "epsilon", claim, exact, False)


def scores(t: Any, table: Any) -> None:
    """Audit sums of clipped scores through the server's door."""
    for name, args in (("gradient step", t.STEP), ("debiased coordinates", t.COORDINATE)):
        for noise in (t.SEEDED, t.SECURE):
            for far, word in ((1.0, ""), (40.0, ", records far outside")):
                found = t.mu_audit(t.score_scores(args, noise, far))
                table.add(f"{name}{word}, {noise}", found, "mu", t.MU, t.MU, False)


def mutants(t: Any, table: Any) -> None:
    """Audit both with one thing broken."""
    for name in t.PEELING_MUTANTS:
        drawn, claim, delta = t.mutant_scores(name)
        table.add(
            f"peeling: {name} ({delta:g})", t.audit(drawn, claim, delta=delta), "epsilon", claim, None, True
        )
    drawn, claim = t.reused_scores()
    name = f"peeling: noise reused in a second call ({t.DELTA:g})"
    table.add(name, t.audit(drawn, claim), "epsilon", claim, None, True)
    for kind, args in (("gradient step", t.STEP), ("debiased coordinates", t.COORDINATE)):
        for name in t.SCORE_MUTANTS:
            found = t.mu_audit(t.score_mutant_scores(name, args, count=4000))
            table.add(f"{kind}: {name}", found, "mu", t.MU, None, True)


def main() -> int:
    """Run every audit and every mutant, and write the table."""
    started = time.time()
    reports = load(ROOT / "benchmarks" / "audits.py", "audits_benchmark")
    tests: Any = load(ROOT / "tests" / "privacy" / "test_lasso_audits.py", "lasso_audit_tests")
    tests.DRAWS, tests.SECURE_DRAWS = DRAWS, SECURE_DRAWS
    tests.ASKED = tests.SECURE_ASKED = ASKED
    table = reports.Table()
    for part in (peeling, scores, mutants):
        part(tests, table)
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(HEAD.format(seconds=time.time() - started) + "\n".join(table.lines) + "\n")
    return int(table.wrong)


if __name__ == "__main__":
    sys.exit(main())
