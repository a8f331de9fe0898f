"""statsmodels' own tests on our results without noise: each by the cause for which it passes or does not.

``python benchmarks/statsmodels_tests.py`` (half a minute) writes benchmarks/results/statsmodels_tests.md and the
list that the suite holds the code to, tests/reference/statsmodels_tests.toml. With polars on the path its
module runs too.
"""

from __future__ import annotations

import os
import sys
from collections import Counter, defaultdict
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import statsmodels
from support.statsmodels_causes import CLASSES, Cause, classified
from support.statsmodels_swap import run
from tables import RESULTS

LIST = RESULTS.parents[1] / "tests" / "reference" / "statsmodels_tests.toml"
HEAD = """# Every test of statsmodels that `support.statsmodels_swap` runs on our results, by class and cause.
# Made by benchmarks/statsmodels_tests.py; tests/reference/test_statsmodels_tests.py holds the code to it.
"""
PAGE = """# statsmodels' own tests on our results

statsmodels {version}, eleven modules of its tests, with `OLS`, `WLS`, `GLM`, `Logit` and `Poisson` replaced by the models of privinf at epsilon = inf (`tests/support/statsmodels_models.py`: bounds from the rows, which stay in statsmodels' model). If a result of privinf has a member, the test uses this member. Otherwise the member comes from statsmodels' own fit of the same rows, and is noted, so that a test runs to its end. Each number of privinf is compared with that of statsmodels to 1e-6. If it differs, it is compared with that of statsmodels under the convention of privinf. Of {tests} tests
{fitting} fit one of these five models; in these tests {numbers} members of results came from privinf and were compared.

{classes}

Each test has one class, the most serious cause of its differences, in the order wrong, unexplained, rows, likelihood, gap, convention,
rounding. The list of all tests is `tests/reference/statsmodels_tests.toml`.

## By module

{modules}

## By cause

{causes}

Made by `python benchmarks/statsmodels_tests.py`.
"""


def table(head: list[str], lines: list[list[object]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)


def listed(classes: dict[str, Cause]) -> str:
    """Return the list of all tests as TOML, one table a cause."""
    by_cause = defaultdict(list)
    for name, cause in classes.items():
        by_cause[cause].append(name)
    order = list(CLASSES)
    parts = [HEAD]
    for cause in sorted(by_cause, key=lambda one: (order.index(one.kind), one.words)):
        tests = "".join(f'    "{name}",\n' for name in sorted(by_cause[cause]))
        parts.append(f'[[cause]]\nclass = "{cause.kind}"\nabout = "{cause.words}"\ntests = [\n{tests}]\n')
    return "\n".join(parts)


def main() -> None:
    found = run()
    classes = classified(found)
    kinds = Counter(cause.kind for cause in classes.values())
    modules = sorted({name.partition("::")[0] for name in classes})
    each = Counter((name.partition("::")[0], cause.kind) for name, cause in classes.items())
    causes = Counter(
        (cause.kind, part) for cause in classes.values() for part in cause.words.split("; ") if part
    )
    shown = [kind for kind in CLASSES if kinds[kind]]
    numbers = sum(event.kind == "ours" for seen in found.values() for event in seen["events"])
    page = PAGE.format(
        version=statsmodels.__version__,
        tests=len(classes),
        fitting=len(classes) - kinds["untouched"],
        numbers=numbers,
        classes=table(["class", "what", "tests"], [[kind, CLASSES[kind], kinds[kind]] for kind in CLASSES]),
        modules=table(["module", *shown], [[one, *(each[one, kind] for kind in shown)] for one in modules]),
        causes=table(
            ["class", "cause (a test may have several of its class)", "tests"],
            [
                [*key, count]
                for key, count in sorted(
                    causes.items(), key=lambda one: (list(CLASSES).index(one[0][0]), -one[1])
                )
                if key[0] not in ("untouched", "passes")
            ],
        ),
    )
    LIST.write_text(listed(classes), encoding="utf-8")
    (RESULTS / "statsmodels_tests.md").write_text(page, encoding="utf-8")
    print(dict(kinds))


if __name__ == "__main__":
    main()
