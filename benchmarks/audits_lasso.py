"""Audits of peeling and scores with more draws than the tests take: ``python benchmarks/audits_lasso.py``.

Every row draws a release on its worst pair of records and proves, at 99.9%, a lower bound on its loss; a
mutant is the same with one thing broken, and its bound must exceed the claim. The draws and their exact
log-likelihood ratios are those of tests/privacy/test_lasso_audits.py, whole fits those of
tests/privacy/test_lasso_whole_fit.py. ``--only releases``, ``--only whole`` and ``--only broken`` make one of
the three tables and leave the others as they stand; ``--scale 0.1`` takes a tenth of the whole fits.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

from tables import load

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "benchmarks" / "results" / "audits_lasso.md"
DRAWS, SECURE_DRAWS, ASKED = 1_000_000, 500_000, 10_000
WHOLE_TESTS = ROOT / "tests" / "privacy" / "test_lasso_whole_fit.py"
FITS, OTHER_FITS, LEAKING_FITS = 20_000, 5_000, 1_000

HEAD = """# Audits of peeling, gradient steps and debiased coordinates

Made by `python benchmarks/audits_lasso.py --only releases{scaled}` in {seconds:.0f} s. Lower bounds hold with confidence 99.9%; the threshold is
chosen on half of the draws and measured on the other half. Peeling claims epsilon at the delta in brackets (0: pure),
through the exact account of its ledger lines, zCDP where it is known only there; the exact loss is that of the pair
under the known law. A row passes if the bound is below the claim and at least 0.85 of the exact loss; a mutant (a mechanism with a deliberate fault) is caught if its bound exceeds the claim.

| release | draws a world | currency | claim | proved lower bound | exact loss | bound / exact | verdict |
|---|---|---|---|---|---|---|---|
"""

WHOLE_HEAD = """## Whole fits of DebiasedLasso

Made by `python benchmarks/audits_lasso.py --only whole{scaled}` in {seconds:.0f} s. 50 records, 5 columns; two data sets that differ in
one record. Of "opposite responses" the records have one x at its bounds and residuals at opposite clips; "orthogonal x"
move these sums less, and Gram matrices and histograms as well. Every draw is a whole fit through `DebiasedLasso.fit`,
about 25 releases under one joint budget: scales, picks, sizes, Gram matrices, steps, neighbours, slopes, variances,
scores. A fit that refuses is an output like any other. The claim is epsilon at the delta in brackets: what the ledger says.
"All releases": the log-likelihood ratio of everything that the server let out, of which results and refusals are
functions; the exact loss is by Monte Carlo over the same fits. A row passes if the bound is below the claim: so many
draws prove about two thirds of the exact loss, whatever the score. "Public results": a discriminant of estimates, standard
errors, scale, sparse coefficients and kind of refusal, learned from half of the fits. Spent: what the releases cost on
the pair, in zCDP, as a share of what the ledger says, the largest in any fit: never above 1.

"""
BROKEN_HEAD = """## Whole fits of DebiasedLasso with one thing broken

Made by `python benchmarks/audits_lasso.py --only broken{scaled}` in {seconds:.0f} s. Opposite responses, as above; the claim is what the
ledger says at the delta in brackets, but never more than was asked for. A mutant is caught if its bound exceeds the claim.
Mutants of one release have 250 records, and most of the budget on the scores. Spent: above 1 where the mutant is caught
without sampling; half noise is not, as the count takes the stated noise for granted.

"""
HEADS = (HEAD, WHOLE_HEAD, BROKEN_HEAD)
WHOLE_COLUMNS = """| fit | draws a world | currency | claim | proved lower bound | exact loss | bound / exact | verdict | spent / charged | refused |
|---|---|---|---|---|---|---|---|---|---|
"""


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
    """Audit sums of clipped scores through the server's interface."""
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


def whole_row(
    t: Any, table: Any, name: str, fits: Any, scores: Any, mutant: bool, *, epsilon: float, delta: float
) -> None:
    """Audit one score of whole fits and append what was spent and how many refused."""
    claim = min(fits.epsilon, epsilon)
    exact = t.exact_epsilon(fits.ratios, delta) if scores is fits.ratios and not mutant else None
    found = t.audit(scores, claim, delta)
    table.add(f"{name} ({delta:g})", found, "epsilon", claim, exact, mutant)
    allowed = fits.charged if not mutant else fits.charged.clip(max=t.epsilon_to_rho(epsilon, delta))
    share, refused = (fits.spent / allowed).max(), (fits.outcomes[..., -1] > 0.0).mean()
    if not mutant:
        table.wrong += share > 1.0 + 1e-9
    table.lines[-1] += f" {share:.3f} | {refused:.3f} |"


def whole_fits(t: Any, table: Any, scale: float) -> None:
    """Audit whole fits as they are."""
    asked = {"epsilon": t.EPSILON, "delta": t.DELTA}
    for pair in t.PAIRS:
        fits = t.fits(pair, int(scale * (FITS if pair == t.OPPOSITE else OTHER_FITS)))
        whole_row(t, table, f"{pair}, all releases", fits, fits.ratios, False, **asked)
        whole_row(t, table, f"{pair}, public results", fits, t.learned(fits.outcomes), False, **asked)
    for target in ("mean", "robust"):
        fits = t.fits(t.OPPOSITE, int(scale * OTHER_FITS), **t.HEAVY, **t.BROKEN, target=target)
        name = f"{t.OPPOSITE} as for mutants, target {target}, all releases"
        whole_row(t, table, name, fits, fits.ratios, False, **t.BROKEN)


def broken_fits(t: Any, table: Any, scale: float) -> None:
    """Audit whole fits with one thing broken."""
    for name in (one for one in t.MUTANTS if one != t.FORGETFUL):
        fits = t.mutant_fits(name, int(scale * t.MUTANTS[name][2]), **t.BROKEN)
        whole_row(t, table, f"{name}, all releases", fits, fits.ratios, True, **t.BROKEN)
    asked = {"epsilon": t.BROKEN["epsilon"], "delta": t.DELTA}
    fits = t.leaking(t.OPPOSITE, int(scale * LEAKING_FITS), asked["epsilon"])
    name = "one un-noised mean among the results, public results"
    whole_row(t, table, name, fits, t.learned(fits.outcomes), True, **asked)


def scaled(scale: float) -> str:
    """Return the option of a command that took other than the usual numbers of draws."""
    return "" if scale == 1.0 else f" --scale {scale:g}"


def filled(head: str, started: float, scale: float) -> str:
    """Return what stands above a table of whole fits."""
    return head.format(seconds=time.time() - started, scaled=scaled(scale)) + WHOLE_COLUMNS


def releases_text(table: Any, scale: float) -> str:
    """Return what stands above the table of single releases, made on the way."""
    started = time.time()
    tests: Any = load(ROOT / "tests" / "privacy" / "test_lasso_audits.py", "lasso_audit_tests")
    tests.DRAWS, tests.SECURE_DRAWS = int(scale * DRAWS), int(scale * SECURE_DRAWS)
    tests.ASKED = tests.SECURE_ASKED = int(scale * ASKED)
    for part in (peeling, scores, mutants):
        part(tests, table)
    return HEAD.format(seconds=time.time() - started, scaled=scaled(scale))


def whole_text(table: Any, scale: float) -> str:
    """Return what stands above the table of whole fits, made on the way."""
    started = time.time()
    tests: Any = load(WHOLE_TESTS, "lasso_whole_fit_tests")
    whole_fits(tests, table, scale)
    return filled(WHOLE_HEAD, started, scale)


def broken_text(table: Any, scale: float) -> str:
    """Return what stands above the table of broken whole fits, made on the way."""
    started = time.time()
    tests: Any = load(WHOLE_TESTS, "lasso_whole_fit_tests")
    broken_fits(tests, table, scale)
    return filled(BROKEN_HEAD, started, scale)


TABLES = {"releases": releases_text, "whole": whole_text, "broken": broken_text}


def stored_tables() -> dict[str, str]:
    """Return the tables that stand in the file, by name: each begins with its own title."""
    text = TARGET.read_text() if TARGET.exists() else ""
    titles = {name: head.partition("\n")[0] for name, head in zip(TABLES, HEADS, strict=True)}
    starts = {name: text.find(f"{title}\n") for name, title in titles.items() if f"{title}\n" in text}
    ends = [*sorted(starts.values()), len(text)]
    return {name: text[start : ends[ends.index(start) + 1]].strip() for name, start in starts.items()}


def main() -> int:
    """Run every audit and every mutant, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=TABLES)
    parser.add_argument("--scale", type=float, default=1.0)
    arguments = parser.parse_args()
    reports = load(ROOT / "benchmarks" / "audits.py", "audits_benchmark")
    wrong = 0
    for name in [arguments.only] if arguments.only else TABLES:
        table = reports.Table()
        texts = stored_tables() | {name: TABLES[name](table, arguments.scale) + "\n".join(table.lines)}
        wrong += table.wrong
        TARGET.parent.mkdir(exist_ok=True)
        TARGET.write_text("\n\n".join(texts[one] for one in TABLES if one in texts) + "\n")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
