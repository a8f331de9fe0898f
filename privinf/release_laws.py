"""The law of each kind of release: what it says of the noise, and of what type that is.

At runtime a law is a mapping, in files as in releases. ``Annotated`` types hold the check of a law that comes
from elsewhere (`privinf.release_kinds`).
"""

from __future__ import annotations

import math
from typing import Annotated, Any, NotRequired, TypedDict

from privinf.typing import Adjacency, LabelKind, MixingKind, MixingMethod, SensitivityRule, Trust

# ---- numbers of a law


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


# ---- laws


class Law(TypedDict):
    """What every law says: the delta that the caller named, and whether there is no noise at all."""

    delta: Annotated[float | None, _delta]
    noise_free: bool


class ModulationLaw(Law):
    """The map of the messages, the sd of each round's noise and of the response's, scaled units."""

    contraction: Share
    amplitude: Scale
    frequency: Scale
    sensitivity: SensitivityRule
    adjacency: Adjacency
    scales: list[Scale]
    response_scale: Scale


class MomentsLaw(Law):
    """Noise of moments, in which the response counts `response_weight` times, and of residual moments."""

    response_weight: Scale
    scale: Scale
    trust: Trust
    sites: NotRequired[Count]
    max_colluding: NotRequired[Count]
    residual_bound: NotRequired[Bound]
    residual_scale: NotRequired[Scale]
    residual_largest: NotRequired[Bound]


class AnswerLaw(TypedDict):
    """How randomized response answers a feature: it keeps a code, or sends each other one."""

    levels: Count
    keep: Scale
    other: Scale
    epsilon: NotRequired[float]
    name: str
    columns: list[Count]


class LabelLaw(TypedDict):
    """How a label was sent: the sd of its noise, or how it was answered."""

    kind: LabelKind
    levels: NotRequired[list[Any]]
    scale: NotRequired[float]
    keep: NotRequired[float]
    other: NotRequired[float]
    epsilon: NotRequired[float]


class UnitsLaw(TypedDict):
    """Centre and scale of the design columns as they were sent."""

    center: list[Number]
    scale: list[Scale]


class ExamplesLaw(Law):
    """Sd and places of the Gaussian columns; how the others, and the label, were answered."""

    scale: Scale
    gaussian: list[Count]
    responses: list[AnswerLaw]
    label: LabelLaw
    units: UnitsLaw


class PartyLaw(Law):
    """Of which plan, for whom."""

    method: MixingMethod
    plan: str
    ids_sha256: str
    n: Count
    centred: bool


class GaussianRowsLaw(PartyLaw):
    """One party's rows, each with noise of this sd."""

    party: str
    scale: Scale


class MixingLaw(TypedDict):
    """The public matrix that mixed the rows."""

    k: Count
    kind: MixingKind
    public_seed: Count
    share: Share


class RandomMixingLaw(GaussianRowsLaw, MixingLaw):
    """One party's mixed rows."""


class JoinedRowsLaw(PartyLaw):
    """The parties, and the sd of each column's noise."""

    parties: list[str]
    noise: list[Scale]


class JoinedMixingLaw(JoinedRowsLaw, MixingLaw):
    """Mixed rows of several parties."""


class MixingRegressionLaw(JoinedRowsLaw):
    """A regression on joined rows; of mixed ones the matrix too."""

    share: Share
    y_noise: Scale
    k: NotRequired[Count]
    kind: NotRequired[MixingKind]
    public_seed: NotRequired[Count]
