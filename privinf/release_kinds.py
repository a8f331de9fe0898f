"""What a release of each kind holds: the shapes of its arrays and the numbers of its law.

Releases that come from elsewhere are checked against it, so that no fit has to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from privinf.errors import StorageError
from privinf.schema import Design

Check = Callable[[Any], bool]


def _number(value: Any, low: float = -math.inf) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value < math.inf


def _scale(value: Any) -> bool:
    return _number(value, 0.0) and value <= 1e100


def _share(value: Any) -> bool:
    return _number(value, 0.0) and value < 1.0


def _delta(value: Any) -> bool:
    return value is None or _share(value)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _count(value: Any) -> bool:
    return _number(value, 0.0) and isinstance(value, int)


def _bound(value: Any) -> bool:
    return value == math.inf or _scale(value)


def _list_of(check: Check) -> Check:
    return lambda value: isinstance(value, (list, tuple)) and all(map(check, value))


def _one_of(*words: str) -> Check:
    return lambda value: isinstance(value, str) and value in words


def _record(**checks: Check) -> Check:
    return lambda value: (
        isinstance(value, Mapping)
        and all(name in value and check(value[name]) for name, check in checks.items())
    )


@dataclass(frozen=True, slots=True)
class _Kind:
    """Arrays as texts of their axes ("n d", or "n d|T n d" where either will do), and checks of the law."""

    arrays: Mapping[str, str]
    law: Mapping[str, Check]
    more_arrays: Mapping[str, str] = field(default_factory=dict)
    more_law: Mapping[str, Check] = field(default_factory=dict)
    noise: str = "d"  # of which axis the law lists the noise


_COMMON: dict[str, Check] = {"delta": _delta, "noise_free": _flag}
_METHOD = _one_of("random-mixing", "gaussian-rows")
_ROWS = {"groups": "n", "weights": "n"}
_PARTY = _COMMON | {"method": _METHOD, "plan": _text, "ids_sha256": _text, "n": _count, "centred": _flag}
_MIXED: dict[str, Check] = {
    "k": _count,
    "kind": _one_of("signs", "hadamard", "countsketch"),
    "public_seed": _count,
    "share": _share,
}
_MOMENTS = _COMMON | {"response_weight": _scale, "scale": _scale}
_MORE_MOMENTS: dict[str, Check] = {
    "sites": _count,
    "max_colluding": _count,
    "residual_bound": _bound,
    "residual_scale": _scale,
    "residual_largest": _bound,
}
_ANSWER = _record(levels=_count, keep=_scale, other=_scale, name=_text, columns=_list_of(_count))
_JOINED = {"parties": _list_of(_text), "noise": _list_of(_scale)}

_KINDS: dict[str, _Kind] = {
    "modulation": _Kind(
        {"features": "n d|T n d", "directions": "m d|T m d", "response": "n", "public": "n q"},
        _COMMON
        | {
            "contraction": _share,
            "amplitude": _scale,
            "frequency": _scale,
            "sensitivity": _one_of("exact", "lipschitz"),
            "adjacency": _one_of("bounded", "unit"),
            "scales": _list_of(_scale),
            "response_scale": _scale,
        },
        _ROWS,
    ),
    "local moments": _Kind(
        {"moments": "n l", "public": "n q"}, _MOMENTS | {"trust": _one_of("local")}, _ROWS
    ),
    "moments": _Kind(
        {"moments": "l", "public_moments": "q q"},
        _MOMENTS | {"trust": _one_of("central", "server", "secure-sum")},
        {"residual_moments": "r"},
        _MORE_MOMENTS,
    ),
    "local-examples": _Kind(
        {"features": "n d", "labels": "n", "public": "n q"},
        _COMMON
        | {
            "scale": _scale,
            "gaussian": _list_of(_count),
            "responses": _list_of(_ANSWER),
            "label": _record(kind=_one_of("response", "gaussian", "clear")),
            "units": _record(center=_list_of(_number), scale=_list_of(_scale)),
        },
        {"groups": "n"},
    ),
    "random-mixing": _Kind(
        {"rows": "k d", "ones": "k"}, _PARTY | _MIXED | {"party": _text, "scale": _scale}, {"ones_row": "d"}
    ),
    "gaussian-rows": _Kind({"rows": "n d"}, _PARTY | {"party": _text, "scale": _scale}),
    "joined random-mixing": _Kind({"rows": "k d", "ones": "k"}, _PARTY | _MIXED | _JOINED, {"ones_row": "d"}),
    "joined gaussian-rows": _Kind({"rows": "n d"}, _PARTY | _JOINED),
    "mixing-regression": _Kind(
        {"features": "k p", "response": "k"},
        _PARTY | _JOINED | {"share": _share, "y_noise": _scale},
        {"ones_row": "p", "ones_response": "1"},
        _MIXED,
        noise="p",
    ),
}


def check_kind(
    kind: str, arrays: Mapping[str, np.ndarray[Any, Any]], law: Mapping[str, Any], design: Design, nobs: int
) -> None:
    """Raise StorageError unless arrays and law are those of a release of `kind`, of `nobs` records.

    Parameters
    ----------
    kind : str
    arrays : mapping of str to ndarray
    law : mapping
    design : Design
    nobs : int
    """
    local = kind == "moments" and law.get("trust") == "local"
    expected = _KINDS.get("local moments" if local else kind)
    if expected is None:
        raise StorageError(f"this version of privinf knows no release of kind {kind!r}")
    if "ids_sha256" in expected.law and design.schema is None:
        raise StorageError("the release of a party has no schema")
    private = int(design.private.sum())
    sizes = {"n": nobs, "d": private, "p": len(design.private), "q": len(design.private) - private, "1": 1}
    _check_arrays(arrays, expected, sizes)
    for name, check in {**expected.law, **expected.more_law}.items():
        if name in law and not check(law[name]):
            raise StorageError(f"the release's law has a {name!r} that is none")
        if name not in law and name in expected.law:
            raise StorageError(f"the release's law lacks {name!r}")
    _check_lengths(kind, law, arrays, sizes | {"noise": sizes[expected.noise]})


def _check_arrays(arrays: Mapping[str, np.ndarray[Any, Any]], expected: _Kind, sizes: dict[str, int]) -> None:
    known = {**expected.arrays, **expected.more_arrays}
    if not expected.arrays.keys() <= arrays.keys() <= known.keys():
        raise StorageError("the release lacks an array of its kind, or has one too many")
    for name, array in arrays.items():
        if array.dtype.kind not in "biuf" or not np.isfinite(array).all():
            raise StorageError(f"the release's array {name!r} has entries that are no finite numbers")
        axes = next((one for one in map(str.split, known[name].split("|")) if len(one) == array.ndim), [])
        # An axis that is not known yet is learnt from the first array that has it.
        if not axes or any(
            sizes.setdefault(axis, size) != size for axis, size in zip(axes, array.shape, strict=True)
        ):
            raise StorageError(f"the release's array {name!r} has not the shape of its kind")


def _check_lengths(
    kind: str, law: Mapping[str, Any], arrays: Mapping[str, np.ndarray[Any, Any]], sizes: Mapping[str, int]
) -> None:
    """Check what the law says of sizes against the arrays and the design."""
    d, p, q = sizes["d"], sizes["p"], sizes["q"]
    told = {"n": sizes["n"], "k": sizes.get("k")}
    lengths = {"scales": sizes.get("T", 1), "noise": sizes["noise"]}
    wrong = [name for name, size in told.items() if name in law and law[name] != size]
    wrong += [name for name, size in lengths.items() if name in law and len(law[name]) != size]
    if "units" in law and any(len(ends) != p for ends in law["units"].values()):
        wrong.append("units")
    if "moments" in arrays and sizes["l"] != (p + 1) * (p + 2) // 2 - q * (q + 1) // 2:
        wrong.append("moments")
    if any(size < 1 for axis, size in sizes.items() if axis in "kmTl"):
        wrong.append("shape")
    if "rows" in arrays and not kind.endswith(law["method"]):
        wrong.append("method")
    if "method" in law and (law["method"] == "random-mixing") != ({"k", "kind"} <= law.keys()):
        wrong.append("method")
    if "directions" in arrays and arrays["directions"].ndim != arrays["features"].ndim:
        wrong.append("directions")
    if "residual_moments" in arrays and sizes["r"] != p * (p + 1) // 2:
        wrong.append("residual_moments")
    if "residual_moments" in arrays and not {"residual_bound", "residual_scale"} <= law.keys():
        wrong.append("residual_moments")
    if "gaussian" in law:
        wrong += _misplaced(law, d)
    if wrong:
        raise StorageError(f"the release's {wrong[0]!r} does not fit its design and its number of records")


def _misplaced(law: Mapping[str, Any], d: int) -> list[str]:
    """Return what is wrong with the places of the features: each private column is sent in one way."""
    places = [*law["gaussian"], *(place for answer in law["responses"] for place in answer["columns"])]
    label = law["label"]
    wrong = [] if sorted(places) == list(range(d)) else ["gaussian"]
    if label["kind"] == "gaussian" and not _scale(label.get("scale")):
        wrong.append("label")
    if "levels" in label and not (isinstance(label["levels"], list) and len(label["levels"]) > 1):
        wrong.append("label")
    return wrong
