"""Queries and replies travel as JSON and plain arrays, and nothing else does."""

import json
import pickle

import numpy as np
import pytest

from privinf.errors import ArgumentError, StorageError
from privinf.federation import Query, Reply

FULL = Query(
    "clipped_products",
    args={
        "support": [3, 1],
        "beta": np.array([0.1, -2.5e-17]),
        "bound": np.float64(0.3),
        "form": "residual",
        "flags": np.array([True, False]),
        "nested": {"a": [1, {"b": None}]},
        "absent": None,
    },
    version=2,
    design="d" * 64,
    session="s",
    sequence=7,
    charges=({"label": "one"},),
)


def test_a_query_survives_its_transport_exactly():
    text, arrays = FULL.pack()
    assert isinstance(text, str)
    json.loads(text)
    assert all(type(array) is np.ndarray and array.dtype.kind in "bif" for array in arrays.values())
    back = Query.unpack(text, arrays)
    assert back.digest == FULL.digest
    assert "absent" not in back.args
    assert back.args["beta"].tobytes() == FULL.args["beta"].tobytes()
    assert pickle.loads(pickle.dumps(FULL)).digest == FULL.digest


def test_the_digest_tells_every_part():
    changes = {"op": "x", "version": 3, "design": "", "session": "t", "sequence": 8, "charges": ()}
    digests = {FULL.digest}
    fields = {name: getattr(FULL, name) for name in (*changes, "args")}
    for name, value in changes.items():
        digests.add(Query(**fields | {name: value}).digest)
    for args in ({"beta": np.array([0.1, -2.6e-17])}, {"bound": 0.4}, {"beta": np.array([[0.1, -2.5e-17]])}):
        digests.add(Query(**fields | {"args": {**FULL.args, **args}}).digest)
    assert len(digests) == 10


def test_arguments_are_frozen_copies():
    beta = np.array([1.0, 2.0])
    query = Query("op", args={"beta": beta})
    beta[0] = 5.0
    assert query.args["beta"].tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        query.args["beta"][0] = 3.0
    with pytest.raises(TypeError):
        query.args["new"] = 1


@pytest.mark.parametrize(
    "value",
    [
        lambda x: x,
        object(),
        {1, 2},
        np.array(["a"]),
        np.array([object()]),
        [[1.0], [1.0, 2.0]],
        1j,
        {"f": lambda: 0},
        np.nan,
        np.inf,
        [np.nan],
        np.array([-np.inf]),
    ],
    ids=[
        "function",
        "object",
        "set",
        "texts",
        "objects",
        "ragged",
        "complex",
        "dict",
        "nan",
        "inf",
        "nans",
        "array of inf",
    ],
)
def test_nothing_but_finite_numbers_and_texts_travels(value):
    with pytest.raises(ArgumentError):
        Query("op", args={"x": value})


def test_replies():
    reply = Reply(site="north", sums=np.array([[1.5, -2.0]]), rows=12, facts={"digest": "x"}, error="")
    back = Reply.unpack(*reply.pack())
    assert (back.site, back.rows, back.facts, back.error) == ("north", 12, {"digest": "x"}, "")
    np.testing.assert_array_equal(back.sums, reply.sums)
    assert "1.5" not in repr(reply)


def test_broken_messages_are_refused():
    for text in ("", "[]", '{"op": "a", "other": 1}', "null"):
        with pytest.raises(StorageError):
            Query.unpack(text, {})
    with pytest.raises(StorageError):
        Reply.unpack('{"site": "a", "rows": 1}', {})
    for wrong in ({"op": ""}, {"op": "a", "sequence": -1}, {"op": "a", "sequence": 1.5}):
        with pytest.raises(ArgumentError):
            Query(**wrong)
