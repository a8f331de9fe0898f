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
    assert len(SHIPPED) == 45
    assert {name for name, at in CALLS.items() if len(at) < 3} == set()


@pytest.mark.parametrize("name", sorted(CALLS))
def test_no_sensitivity_moves(name, frozen):
    for at, (now, before) in enumerate(zip(sensitivities(name), frozen[name], strict=True)):
        call = CALLS[name][at]
        assert now[:3] == before[:3], call
        for quantity, new, old in zip(("l2", "linf", "bound", "norm"), now[3:], before[3:], strict=True):
            assert new == (None if old is None else pytest.approx(old, rel=ROUNDING)), (quantity, call)


if __name__ == "__main__":
    FROZEN.write_text("{\n" + ",\n".join(lines()) + "\n}\n")
