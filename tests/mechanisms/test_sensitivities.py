"""No statistic's sensitivity grows: each is compared with that of version 6e70edc, over a grid of arguments.

`sensitivities.json` holds, call by call, the shape, both sensitivities, the bound and the norm of one record,
and the derivation that a ledger states. To write it again after a proof has changed a number:
``python tests/mechanisms/test_sensitivities.py`` with the package and ``tests/mechanisms`` on the path.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sensitivity_cases import calls

from privinf.mechanisms.catalogue import SHIPPED, SITE_OPS
from privinf.mechanisms.statistics.samples import COMPLETE_KINDS, SAMPLE_STATISTICS

FROZEN = Path(__file__).with_name("sensitivities.json")
# Last bits of square roots of sums by BLAS, and of exponentials, differ between processors.
ROUNDING = 1e-12
CALLS: dict[str, list[tuple[int, dict[str, Any]]]] = defaultdict(list)
for statistic, width, arguments in calls():
    CALLS[statistic].append((width, arguments))


def sensitivities(name: str) -> list[list[Any]]:
    """Return, for every call, shape, derivation, unit, and l2, linf, bound and norm."""
    results = [SITE_OPS[name].record_sensitivity(args, columns, own=True) for columns, args in CALLS[name]]
    return [[list(s.shape), s.derivation, s.unit, s.l2, s.linf, s.bound, s.norm] for s in results]


def lines() -> Iterator[str]:
    """Yield the frozen file, a statistic a line; derivations are numbered."""
    texts: list[str] = []
    for name in sorted(CALLS):
        rows = sensitivities(name)
        for row in rows:
            if row[1] not in texts:
                texts.append(row[1])
            row[1] = texts.index(row[1])
        yield f"{json.dumps(name)}: {json.dumps(rows)}"
    yield f'"derivations": {json.dumps(texts, indent=0)}'


@pytest.fixture(scope="module")
def frozen() -> dict[str, list[list[Any]]]:
    """Return the sensitivities of version 6e70edc."""
    rows = json.loads(FROZEN.read_text())
    texts = rows.pop("derivations")
    return {name: [[row[0], texts[row[1]], *row[2:]] for row in each] for name, each in rows.items()}


def test_every_statistic_is_compared(frozen):
    assert CALLS.keys() == frozen.keys() == SHIPPED
    assert len(SHIPPED) == 54
    assert {name for name, at in CALLS.items() if len(at) < 3} == set()


@pytest.mark.parametrize("name", sorted(CALLS))
def test_no_sensitivity_moves(name, frozen):
    for at, (now, before) in enumerate(zip(sensitivities(name), frozen[name], strict=True)):
        call = CALLS[name][at]
        assert now[:3] == before[:3], call
        for quantity, new, old in zip(("l2", "linf", "bound", "norm"), now[3:], before[3:], strict=True):
            assert new == (None if old is None else pytest.approx(old, rel=ROUNDING)), (quantity, call)


# l2 and l1 of sums of samples, as of version 6e70edc.
OF_SAMPLES = {
    "one sample": (2.0, 2.0),
    "groups": (2.0, 4.0),
    "share": (1.0, 1.0),
    "cells": (2.0**0.5, 2.0),
    "pairs": (2.0 * 1.49**0.5, 2.88),
    "two ranked": (1.0, 1.0),
    "many ranked": (2.0, 2.0),
    "signed ranks": (2.0, 2.0),
}


@pytest.mark.parametrize("kind", OF_SAMPLES)
def test_no_sensitivity_of_a_sample_moves_nor_rises_where_rows_are_dropped(kind):
    l2, l1 = OF_SAMPLES[kind]
    statistic, complete = SAMPLE_STATISTICS[kind], SAMPLE_STATISTICS[COMPLETE_KINDS[kind]]
    assert statistic.l2.sensitivity == pytest.approx(l2, rel=ROUNDING)
    assert statistic.l1.sensitivity == pytest.approx(l1, rel=ROUNDING)
    assert complete.l2.sensitivity == statistic.l2.sensitivity
    assert complete.l1 is None
    assert len(complete.l2.weights) == len(statistic.l2.weights) + (not complete.gaps)


if __name__ == "__main__":
    FROZEN.write_text("{\n" + ",\n".join(lines()) + "\n}\n")
