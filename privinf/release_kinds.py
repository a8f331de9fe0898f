"""Contents of a release of each kind: the shapes of its arrays and the numbers of its noise model.

Releases that come from elsewhere are checked against it, so that no fit has to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    TypedDict,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import numpy as np

from privinf.errors import StorageError
from privinf.schema import Design
from privinf.typing import (
    Adjacency,
    ExampleNoise,
    LabelKind,
    Missing,
    MixingKind,
    MixingMethod,
    SensitivityRule,
    Trust,
)
from privinf.validation import ReadRows

JOINED = "joined "  # begins the kind of what releases of several parties are together

# ---- numbers of a noise model


def _number(value: Any, low: float = -math.inf) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value < math.inf


def _scale(value: Any) -> bool:
    return _number(value, 0.0) and value <= 1e100


def _share(value: Any) -> bool:
    return _number(value, 0.0) and value < 1.0


def _delta(value: Any) -> bool:
    return value is None or _share(value)


def _count(value: Any) -> bool:
    return _number(value, 0.0) and isinstance(value, int)


def _bound(value: Any) -> bool:
    return value == math.inf or _scale(value)


Number = Annotated[float, _number]
Scale = Annotated[float, _scale]
Share = Annotated[float, _share]
Bound = Annotated[float, _bound]
Count = Annotated[int, _count]


# ---- noise models


class NoiseModel(TypedDict):
    """Entries of every noise model: the delta that the caller named, and whether there is no noise.

    `missing` is present where missing values were to be imputed, whatever the rows hold.
    """

    delta: Annotated[float | None, _delta]
    noise_free: bool
    missing: NotRequired[Missing]


class ModulationNoiseModel(NoiseModel):
    """The map of the messages, the sd of each round's noise and of the response's, scaled units."""

    contraction: Share
    amplitude: Scale
    frequency: Scale
    sensitivity: SensitivityRule
    adjacency: Adjacency
    scales: list[Scale]
    response_scale: Scale


class MomentsNoiseModel(NoiseModel):
    """Noise of moments, in which the response counts `response_weight` times, and of residual moments.

    These are of rows, or of units where `units` states their largest number of rows.
    """

    response_weight: Scale
    scale: Scale
    trust: Trust
    sites: NotRequired[Count]
    max_colluding: NotRequired[Count]
    residual_bound: NotRequired[Bound]
    residual_scale: NotRequired[Scale]
    residual_largest: NotRequired[Bound]
    units: NotRequired[Count]


class AnswerNoiseModel(TypedDict):
    """How randomized response answers a feature: it keeps a code, or sends each other one."""

    levels: Count
    keep: Scale
    other: Scale
    epsilon: NotRequired[float]
    name: str
    columns: list[Count]


class LabelNoiseModel(TypedDict):
    """How a label was sent: the scale of its noise (Laplace: and variance), or how it was answered."""

    kind: LabelKind
    levels: NotRequired[list[Any]]
    scale: NotRequired[float]
    variance: NotRequired[float]
    keep: NotRequired[float]
    other: NotRequired[float]
    epsilon: NotRequired[float]


class UnitsNoiseModel(TypedDict):
    """Centre and scale of the design columns as they were sent."""

    center: list[Number]
    scale: list[Scale]


class ExamplesNoiseModel(NoiseModel):
    """Scale and places of the columns with added noise; how the others, and the label, were answered.

    The noise is Gaussian, and the scale its sd, unless `distribution` is "laplace": `variance` is then that
    of the noise as drawn.
    """

    scale: Scale
    distribution: NotRequired[ExampleNoise]
    variance: NotRequired[Scale]
    gaussian: list[Count]
    responses: list[AnswerNoiseModel]
    label: LabelNoiseModel
    units: UnitsNoiseModel


class RegressionNoiseModel(TypedDict):
    """The regression that a model was made for: a formula, or a response and the order of all columns."""

    formula: NotRequired[str]
    response: NotRequired[str]
    order: NotRequired[list[str]]


class PartyNoiseModel(NoiseModel):
    """Of which plan, for whom; and the regression, where a model of all parties made the release."""

    method: MixingMethod
    plan: str
    ids_sha256: str
    n: Count
    centred: bool
    regression: NotRequired[RegressionNoiseModel]


class GaussianRowsNoiseModel(PartyNoiseModel):
    """One party's rows, each with noise of this sd."""

    party: str
    scale: Scale


class MixingNoiseModel(TypedDict):
    """The public matrix that mixed the rows."""

    k: Count
    kind: MixingKind
    public_seed: Count
    share: Share


class RandomMixingNoiseModel(GaussianRowsNoiseModel, MixingNoiseModel):
    """One party's mixed rows."""


class JoinedRowsNoiseModel(PartyNoiseModel):
    """The parties, and the sd of each column's noise."""

    parties: list[str]
    noise: list[Scale]


class JoinedMixingNoiseModel(JoinedRowsNoiseModel, MixingNoiseModel):
    """Mixed rows of several parties."""


class MixingRegressionNoiseModel(JoinedRowsNoiseModel):
    """A regression on joined rows; mixed rows also need the matrix."""

    share: Share
    y_noise: Scale
    k: NotRequired[Count]
    kind: NotRequired[MixingKind]
    public_seed: NotRequired[Count]


Check = Callable[[Any], bool]


def _check_of(hint: Any) -> Check:
    """Return the check of a value of this type: of a record, its required entries."""
    if hasattr(hint, "__metadata__"):
        return cast(Check, hint.__metadata__[0])
    if is_typeddict(hint):
        checks = {
            name: _check_of(inner_hint)
            for name, inner_hint in _entries(hint).items()
            if _is_required(inner_hint)
        }
        return lambda value: (
            isinstance(value, Mapping)
            and all(name in value and check(value[name]) for name, check in checks.items())
        )
    inner = get_args(hint)
    if get_origin(hint) is NotRequired:
        return _check_of(inner[0])
    if get_origin(hint) is list:
        check_item = _check_of(inner[0])
        return lambda value: isinstance(value, (list, tuple)) and all(map(check_item, value))
    if get_origin(hint) is Literal:
        return lambda value: isinstance(value, str) and value in inner
    return lambda value: isinstance(value, hint)


def _entries(noise_model: type) -> dict[str, Any]:
    return get_type_hints(noise_model, include_extras=True)


def _is_required(hint: Any) -> bool:
    return get_origin(hint) is not NotRequired


@dataclass(frozen=True, slots=True)
class _Kind:
    """Arrays as texts of their axes ("n d", or "n d|T n d" where both are valid), and the noise model."""

    arrays: Mapping[str, str]
    noise_model: type
    more_arrays: Mapping[str, str] = field(default_factory=dict)
    noise: str = "d"  # axis along which the noise model lists the noise


_ROWS = {"groups": "n", "weights": "n"}
_MODULATED = {"features": "n d|T n d", "directions": "m d|T m d", "response": "n", "public": "n q"}
_TOTALS = {"moments": "l", "public_moments": "q q"}
_MIXED_ROWS = {"rows": "k d", "ones": "k"}
_ONES = {"ones_row": "p", "ones_response": "1"}

_KINDS: dict[str, _Kind] = {
    "modulation": _Kind(_MODULATED, ModulationNoiseModel, _ROWS),
    "local moments": _Kind({"moments": "n l", "public": "n q"}, MomentsNoiseModel, _ROWS),
    "moments": _Kind(_TOTALS, MomentsNoiseModel, {"residual_moments": "r"}),
    "local-examples": _Kind(
        {"features": "n d", "labels": "n", "public": "n q"}, ExamplesNoiseModel, {"groups": "n"}
    ),
    "random-mixing": _Kind(_MIXED_ROWS, RandomMixingNoiseModel, {"ones_row": "d"}),
    "gaussian-rows": _Kind({"rows": "n d"}, GaussianRowsNoiseModel),
    "joined random-mixing": _Kind(_MIXED_ROWS, JoinedMixingNoiseModel, {"ones_row": "d"}),
    "joined gaussian-rows": _Kind({"rows": "n d"}, JoinedRowsNoiseModel),
    "mixing-regression": _Kind(
        {"features": "k p", "response": "k"}, MixingRegressionNoiseModel, _ONES, noise="p"
    ),
}


def check_kind(
    kind: str,
    arrays: Mapping[str, np.ndarray[Any, Any]],
    noise_model: Mapping[str, Any],
    design: Design,
    nobs: int,
) -> None:
    """Raise StorageError unless arrays and noise model fit a release of `kind` of `nobs` records."""
    local = kind == "moments" and noise_model.get("trust") == "local"
    expected = _KINDS.get("local moments" if local else kind)
    if expected is None:
        raise StorageError(f"this version of privinf cannot read a release of kind {kind!r}: update privinf")
    entries = _entries(expected.noise_model)
    if "ids_sha256" in entries and design.schema is None:
        raise StorageError(
            "the file is damaged or not a valid release: the release of a party has no schema; use an intact "
            "copy"
        )
    # Where rows are dropped, their number is private, and the constant is noised like the other columns.
    dropping = noise_model.get("missing") == "drop"
    alone = design.constant is not None and (~design.private).sum() == 1 and design.radius is None
    if dropping and (kind != "moments" or local or not alone):
        raise StorageError(
            "the file is damaged or not a valid release: only sums of second moments, of a model with a "
            "constant and no other public columns, can leave out rows with missing values; use an intact copy"
        )
    private = len(design.private) if dropping else int(design.private.sum())
    sizes = {"n": nobs, "d": private, "p": len(design.private), "q": len(design.private) - private, "1": 1}
    _check_arrays(arrays, expected, sizes)
    for name, hint in entries.items():
        if name in noise_model and not _check_of(hint)(noise_model[name]):
            raise StorageError(
                f"the file is damaged or not a valid release: its noise model has an invalid entry {name!r}; "
                "use an intact copy"
            )
        if name not in noise_model and _is_required(hint):
            raise StorageError(
                f"the file is damaged or not a valid release: its noise model lacks {name!r}; use an intact "
                "copy"
            )
    _check_lengths(kind, noise_model, arrays, sizes | {"noise": sizes[expected.noise]})


def _check_arrays(arrays: Mapping[str, np.ndarray[Any, Any]], expected: _Kind, sizes: dict[str, int]) -> None:
    shapes = {**expected.arrays, **expected.more_arrays}
    if not expected.arrays.keys() <= arrays.keys() <= shapes.keys():
        raise StorageError(
            "the file is damaged or not a valid release: it lacks an array, or has one array too "
            "many; use an intact copy"
        )
    for name, array in arrays.items():
        if array.dtype.kind not in "biuf" or not _finite(array):
            raise StorageError(
                f"the file is damaged or not a valid release: array {name!r} has entries "
                "that are not finite numbers; use an intact copy"
            )
        axes = next(
            (names for names in map(str.split, shapes[name].split("|")) if len(names) == array.ndim), []
        )
        # An axis that is not known yet is learnt from the first array that has it.
        if not axes or any(
            sizes.setdefault(axis, size) != size for axis, size in zip(axes, array.shape, strict=True)
        ):
            raise StorageError(
                f"the file is damaged or not a valid release: array {name!r} has a wrong "
                "shape; use an intact copy"
            )


def _finite(array: np.ndarray[Any, Any]) -> bool:
    blocks = array if isinstance(array, ReadRows) else [array]
    return all(bool(np.isfinite(block).all()) for block in blocks)


def _check_lengths(
    kind: str,
    noise_model: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray[Any, Any]],
    sizes: Mapping[str, int],
) -> None:
    """Check the sizes in the noise model against the arrays and the design."""
    d = sizes["d"]
    p = sizes["p"]
    q = sizes["q"]
    counts = {"n": sizes["n"], "k": sizes.get("k")}
    lengths = {"scales": sizes.get("T", 1), "noise": sizes["noise"]}
    wrong = [name for name, size in counts.items() if name in noise_model and noise_model[name] != size]
    wrong += [
        name for name, size in lengths.items() if name in noise_model and len(noise_model[name]) != size
    ]
    if "units" in noise_model and any(len(ends) != p for ends in noise_model["units"].values()):
        wrong.append("units")
    if "moments" in arrays and sizes["l"] != (p + 1) * (p + 2) // 2 - q * (q + 1) // 2:
        wrong.append("moments")
    if any(size < 1 for axis, size in sizes.items() if axis in "kmTl"):
        wrong.append("shape")
    if "rows" in arrays and not kind.endswith(noise_model["method"]):
        wrong.append("method")
    if "method" in noise_model and (noise_model["method"] == "random-mixing") != (
        {"k", "kind"} <= noise_model.keys()
    ):
        wrong.append("method")
    if "directions" in arrays and arrays["directions"].ndim != arrays["features"].ndim:
        wrong.append("directions")
    if "residual_moments" in arrays and sizes["r"] != p * (p + 1) // 2:
        wrong.append("residual_moments")
    if "residual_moments" in arrays and not {"residual_bound", "residual_scale"} <= noise_model.keys():
        wrong.append("residual_moments")
    if "gaussian" in noise_model:
        wrong += _misplaced(noise_model, d)
    if wrong:
        raise StorageError(
            f"the file is damaged or not a valid release: its entry {wrong[0]!r} does not fit its design or "
            "its number of records; use an intact copy"
        )


def _misplaced(noise_model: Mapping[str, Any], d: int) -> list[str]:
    """Return errors in the positions of the features: each private column is sent in one way."""
    places = [
        *noise_model["gaussian"],
        *(place for answer in noise_model["responses"] for place in answer["columns"]),
    ]
    label = noise_model["label"]
    wrong = [] if sorted(places) == list(range(d)) else ["gaussian"]
    if label["kind"] in {"gaussian", "laplace"} and not _check_of(Scale)(label.get("scale")):
        wrong.append("label")
    if label["kind"] == "laplace" and not _check_of(Scale)(label.get("variance")):
        wrong.append("label")
    if noise_model.get("distribution") == "laplace" and "variance" not in noise_model:
        wrong.append("distribution")
    if "levels" in label and not (isinstance(label["levels"], list) and len(label["levels"]) > 1):
        wrong.append("label")
    return wrong
