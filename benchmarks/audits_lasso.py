"""Audits of peeling and scores with more draws than the tests take: ``python benchmarks/audits_lasso.py``.

Every row draws a release on its worst pair of records and proves, at 99.9%, a lower bound on its loss; a mutant is
the same with one thing broken, and its bound must exceed the claim. The draws and their exact log-likelihood ratios
are those of tests/privacy/test_lasso_audits.py, whole fits those of tests/privacy/test_lasso_whole_fit.py.
``--only releases`` and ``--only whole`` make one of the two tables and leave the other as it stands.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "benchmarks" / "results" / "audits_lasso.md"
DRAWS, SECURE_DRAWS, ASKED = 1_000_000, 500_000, 10_000
FITS, MUTANT_FITS = 20_000, 4_000

HEAD = """# Audits of peeling, gradient steps and debiased coordinates

Made by `python benchmarks/audits_lasso.py --only releases` in {seconds:.0f} s. Lower bounds hold with confidence 99.9%; the threshold is
chosen on half of the draws and measured on the other half. Peeling claims epsilon at the delta in brackets (0: pure),
through the exact account of its ledger lines, zCDP where it is known only there; the exact loss is that of the pair
under the known law. A row passes if the bound is below the claim and at least 0.85 of the exact loss; a mutant is
caught if its bound exceeds the claim.

| release | draws a world | currency | claim | proved lower bound | exact loss | bound / exact | verdict |
|---|---|---|---|---|---|---|---|
"""

WHOLE_TITLE = "# Whole fits"
WHOLE_HEAD = """# Whole fits of DebiasedLasso

Made by `python benchmarks/audits_lasso.py --only whole` in {seconds:.0f} s. 50 records, 5 columns; two data sets that differ in
one record, of which the neighbours "opposite responses" (one x at its bounds, residuals at opposite clips) have the
larger loss. Every row is a whole fit (scales, picks, Gram matrices, steps, neighbours, slopes, variances, scores:
about 25 releases, joint budget) through `DebiasedLasso.fit`; a fit that refuses is an output like any other. The claim
is epsilon at delta = {delta:g}: what the ledger says, never more than was asked for. "All releases": the log-likelihood
ratio of everything that the server let out, of which results and refusals are functions; its exact loss is by
Monte Carlo over the same fits. "Public results": a discriminant of estimates, errors, scale, sparse coefficients and
kind of refusal, learned from half of the fits. Spent: what the releases really cost on the pair, in zCDP, the largest
share of the ledger's in any fit (mutants: of the budget's where that is less).

| fit | draws a world | currency | claim | proved lower bound | exact loss | bound / exact | verdict | spent / charged | refused |
|---|---|---|---|---|---|---|---|---|---|
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


def whole_row(t: Any, table: Any, name: str, fits: Any, scores: Any, asked: float, mutant: bool) -> None:
    """Audit one score of whole fits and append what was spent and how many refused."""
    claim = min(fits.epsilon, asked)
    exact = t.exact_epsilon(fits.ratios) if scores is fits.ratios and not mutant else None
    found = t.audit(scores, claim, **({} if exact is None else {"exact_epsilon": exact}))
    table.add(name, found, "epsilon", claim, exact, mutant)
    allowed = fits.charged if not mutant else fits.charged.clip(max=t.epsilon_to_rho(asked, t.DELTA))
    share, refused = (fits.spent / allowed).max(), (fits.outcomes[..., -1] > 0.0).mean()
    if not mutant:
        table.wrong += share > 1.0 + 1e-9
    table.lines[-1] += f" {share:.3f} | {refused:.3f} |"


def whole_fits(t: Any, table: Any) -> None:
    """Audit whole fits, and whole fits with one thing broken."""
    for pair in t.PAIRS:
        fits = t.fits(pair, FITS)
        whole_row(t, table, f"{pair}, all releases", fits, fits.ratios, t.EPSILON, False)
        whole_row(t, table, f"{pair}, public results", fits, t.learned(fits.outcomes), t.EPSILON, False)
    for name in t.MUTANTS:
        fits = t.mutant_fits(name, MUTANT_FITS, epsilon=t.MUTANT_EPSILON)
        whole_row(t, table, f"{name}, all releases", fits, fits.ratios, t.MUTANT_EPSILON, True)
    fits = t.leaking(t.OPPOSITE, MUTANT_FITS, t.MUTANT_EPSILON)
    name = "one un-noised mean among the results, public results"
    whole_row(t, table, name, fits, t.learned(fits.outcomes), t.MUTANT_EPSILON, True)


def releases_text(reports: ModuleType) -> tuple[str, int]:
    """Return the table of single releases, and the number of wrong verdicts."""
    started = time.time()
    tests: Any = load(ROOT / "tests" / "privacy" / "test_lasso_audits.py", "lasso_audit_tests")
    tests.DRAWS, tests.SECURE_DRAWS = DRAWS, SECURE_DRAWS
    tests.ASKED = tests.SECURE_ASKED = ASKED
    table = reports.Table()
    for part in (peeling, scores, mutants):
        part(tests, table)
    return HEAD.format(seconds=time.time() - started) + "\n".join(table.lines) + "\n", table.wrong


def whole_text(reports: ModuleType) -> tuple[str, int]:
    """Return the table of whole fits, and the number of wrong verdicts."""
    started = time.time()
    tests: Any = load(ROOT / "tests" / "privacy" / "test_lasso_whole_fit.py", "lasso_whole_fit_tests")
    table = reports.Table()
    whole_fits(tests, table)
    head = WHOLE_HEAD.format(seconds=time.time() - started, delta=tests.DELTA)
    return head + "\n".join(table.lines) + "\n", table.wrong


def main() -> int:
    """Run every audit and every mutant, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("releases", "whole"))
    only = parser.parse_args().only
    reports = load(ROOT / "benchmarks" / "audits.py", "audits_benchmark")
    stored = TARGET.read_text() if TARGET.exists() else ""
    at = stored.find(WHOLE_TITLE)
    texts = {"releases": stored[: at if at >= 0 else None].rstrip(), "whole": stored[at:] if at >= 0 else ""}
    wrong = 0
    for name, make in (("releases", releases_text), ("whole", whole_text)):
        if only in (None, name):
            texts[name], more = make(reports)
            wrong += more
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text("\n\n".join(text.strip() for text in texts.values() if text.strip()) + "\n")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
