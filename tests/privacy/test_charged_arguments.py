"""Every argument of every statistic, changed to what it cannot be, at a price that covers anything.

A question is refused before it is charged, or it is answered: none is charged and then fails.
"""

import json
import warnings

import numpy as np
import pytest
import query_fuzzer
from query_fuzzer import ASKED, JUNK, NUMBERS, POLICIES, SCHEMA, STATISTICS, charge, site_of, table

from privinf.errors import PrivinfError
from privinf.federation import Query
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.statistics.ops import SiteOp
from privinf.schema import Design

DESIGN = Design.from_formula(query_fuzzer.FORMULA, SCHEMA)
VALUES = (
    *JUNK,
    *NUMBERS,
    45.045,
    "nan",
    True,
    1 << 40,
    -(1 << 40),
    [True],
    [0.5, 1.5],
    [[1.0, 2.0], [3.0, 4.0]],
    [1, 1],
    [99],
    [-1],
    [1e30, -1e30],
    [0.0],
    np.zeros((3, 0)),
    np.zeros((1, 1, 1)),
    np.eye(5),
    "gaussian",
    "laplace",
)


def questions(op):
    """Return a statistic's question and all that differ from it in one argument."""
    good = STATISTICS[op]
    yield good
    for name in (
        *good,
        "bits",
        "center",
        "scale",
        "client_rows",
        "client_clip",
        "support",
        "seed",
        "unknown",
    ):
        for value in VALUES:
            yield good | {name: value}
        yield {other: good[other] for other in good if other != name}


def asked(site, op, args, number):
    """Ask at a price that covers any sensitivity; return the reply, None if no transport carries it."""
    line = charge(1e-9, 1e25)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            query = Query(
                op,
                args=args,
                version=SITE_OPS[op].version,
                design=DESIGN.digest,
                session="fuzz",
                sequence=number,
                charges=(line,),
            )
            text, arrays = query.pack()
            json.loads(text)
            return site.handle(Query.unpack(text, arrays), ASKED)
    except PrivinfError:
        return None


def charged_and_failed(ops):
    """Return how many questions were charged, and those that failed after it."""
    site, failed, charged, number = site_of(table(), POLICIES["open"]), [], 0, 0
    assert not site.handle(Query("design", args={"design": DESIGN.to_dict()}), ASKED).error
    for op in ops:
        for args in questions(op):
            number, before = number + 1, len(site.ledger)
            reply = asked(site, op, args, number)
            new = len(site.ledger) - before
            charged += new
            foreseen = reply is None or reply.error != f"ArgumentError: failed at {op!r}"
            if (new and reply.error) or not foreseen:
                failed.append(
                    (op, {name: args[name] for name in args if name not in STATISTICS[op]}, reply.error)
                )
    return charged, failed


@pytest.mark.audit
@pytest.mark.parametrize("op", sorted(STATISTICS))
def test_no_question_is_charged_and_then_fails(op):
    charged, failed = charged_and_failed([op])
    assert not failed, failed[:3]
    assert charged > 0


@pytest.mark.audit
def test_arguments_that_are_not_tried_first_are_seen(monkeypatch):
    """As it was: the reach is believed, and the rows fail."""
    monkeypatch.setattr(
        SiteOp,
        "checked",
        lambda op, args, block, rows, *, bounded: op.record_sensitivity(args, len(DESIGN.names), rows),
    )
    assert charged_and_failed(["shrunk_sums"])[1]


def test_every_statistic_is_there():
    assert set(SITE_OPS) <= set(STATISTICS)
