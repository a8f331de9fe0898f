"""How the features and the label of a released example are sent: Gaussian noise, responses, or clear."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np

from privinf.errors import ArgumentError, SchemaError, SensitivityError
from privinf.mechanisms.rows import Rows
from privinf.release_kinds import UnitsNoiseModel
from privinf.schema import Design, Factor, Response, Schema
from privinf.schema.declared import Level
from privinf.schema.formulas import refuse_response
from privinf.schema.reading import Reader
from privinf.schema.table import check_schema
from privinf.schema.terms import Column, Indicator, Piece, Plain
from privinf.typing import (
    BinaryMechanism,
    ExampleNoise,
    Flags,
    Floats,
    Integers,
    LabelChoice,
    LabelKind,
    Missing,
)
from privinf.validation import check_choice, check_positive, shown_name

ZERO_ONE: tuple[Level, ...] = (0, 1)  # levels of a label whose bounds are these, or that is not declared
# Levels of a label whose bounds are these; codes of two levels are sent so.
SIGNS: tuple[Level, ...] = (-1, 1)


@dataclass(frozen=True, slots=True)
class RespondedFeature:
    """A feature under randomized response: a 0/1 column, or the indicators of a factor's levels.

    Attributes
    ----------
    name : str
    columns : tuple of int
        Its design columns. Code 0 is the level without a column; code j is the level of columns[j - 1].
    """

    name: str
    columns: tuple[int, ...]

    @property
    def levels(self) -> int:
        """k, the number of levels."""
        return len(self.columns) + 1


@dataclass(frozen=True, slots=True)
class FeaturePlan:
    """How the private columns of a design are sent.

    Attributes
    ----------
    design : Design
        All columns.
    responded : tuple of RespondedFeature
    """

    design: Design
    responded: tuple[RespondedFeature, ...]

    @property
    def gaussian(self) -> Flags:
        """Which design columns get added noise, shape (p,)."""
        mask = self.design.private.copy()
        mask[[column for feature in self.responded for column in feature.columns]] = False
        return mask

    @property
    def gaussian_design(self) -> Design:
        """The design that protects the columns with added noise alone: its diameter is their sensitivity.

        The other private columns count as public here, so that they are read but not scaled or projected;
        they never leave the holder in this form.
        """
        mask = self.gaussian
        blocks = tuple(block for block in self.design.blocks if mask[list(block)].all())
        return replace(self.design, private=mask, blocks=blocks)

    def shares(self, named: Mapping[str, float]) -> tuple[float, ...]:
        """Return the relative share of epsilon_x of each responded feature: 1 unless `named` has another.

        Raises
        ------
        ArgumentError
            A name is not a responded feature, or a share is not positive.
        """
        names = [feature.name for feature in self.responded]
        if unknown := [name for name in named if name not in names]:
            listed = ", ".join(names) or "none"
            raise ArgumentError(
                f"response_shares= names column {shown_name(unknown[0])}, which is not sent by "
                f"randomized response; columns sent by randomized response are: {listed}"
            )
        return tuple(check_positive(named.get(name, 1.0), f"response_shares[{name!r}]") for name in names)

    def private_positions(self, columns: Iterable[int]) -> list[int]:
        """Return positions among the private columns of positions in the design."""
        ranks = np.cumsum(self.design.private) - 1
        return [int(ranks[column]) for column in columns]

    def units(self) -> UnitsNoiseModel:
        """Return center and scale, each (p,), of the columns as sent: ``sent = (x - center) / scale``.

        Those of the design, but 0 and 1 for a feature under randomized response: indicators stay 0 and 1.
        """
        center = np.array(self.design.center)
        scale = np.array(self.design.scale)
        for feature in self.responded:
            center[list(feature.columns)] = 0.0
            scale[list(feature.columns)] = 1.0
        return {"center": center.tolist(), "scale": scale.tolist()}

    def codes(self, feature: RespondedFeature, clear: Floats, missing: Missing) -> Integers:
        """Return the level codes of one feature, shape (n,).

        `clear` (n, q) holds the columns outside `gaussian`, in design order, as `gaussian_design` reads them.

        Raises
        ------
        SchemaError
            A binary column holds anything but 0 and 1; the message names the column only.
        """
        ranks = np.cumsum(~self.gaussian) - 1
        indicators = clear[:, ranks[list(feature.columns)]]
        if missing == "impute-public":  # the middle of (0, 1) represents a missing value: first level
            indicators = np.where(indicators == 0.5, 0.0, indicators)
        if not ((indicators == 0.0) | (indicators == 1.0)).all():
            raise SchemaError(f"binary column {feature.name!r} must hold 0 and 1 only")
        return np.asarray(indicators @ np.arange(1.0, feature.levels), dtype=np.int64)


def indicators_of(codes: Integers, levels: int) -> Floats:
    """Return the 0/1 indicators of codes 1, ..., k - 1, shape (n, k - 1); code 0 is all zeros."""
    return np.equal(codes[:, None], np.arange(1, levels)).astype(np.float64)


def plan_features(design: Design, binary: Iterable[str], mechanism: BinaryMechanism) -> FeaturePlan:
    """Return which features are sent by randomized response: factors' indicators and `binary` columns.

    Raises
    ------
    ArgumentError
        A name in `binary` is not a private column of the design, or its values are not 0 and 1.
    """
    named = _binary_columns(design, binary)
    if mechanism == "gaussian":
        return FeaturePlan(design, ())
    blocks = [RespondedFeature(_block_name(design, block), block) for block in design.blocks]
    inside = {column for block in design.blocks for column in block}
    single = [RespondedFeature(design.names[k], (k,)) for k in named if k not in inside]
    return FeaturePlan(design, tuple(sorted(blocks + single, key=lambda feature: feature.columns)))


def _binary_columns(design: Design, binary: Iterable[str]) -> list[int]:
    if isinstance(binary, str):
        raise ArgumentError("binary= must be a list of column names")
    positions = []
    listed = tuple(dict.fromkeys(binary))
    for name in listed:
        if name not in design.private_names:
            private_names = ", ".join(design.private_names)
            raise ArgumentError(
                f"binary column {name!r} is not a private column of the design; the private columns "
                f"are: {private_names}"
            )
        position = design.names.index(name)
        bounds = (float(design.low[position]), float(design.high[position]))
        if np.isfinite(bounds).all() and bounds != (0.0, 1.0):
            raise ArgumentError(f"binary column {name!r} must be coded 0 and 1 and have the bounds (0, 1)")
        if not all(_zero_one(piece, listed) for piece in design.columns[position].pieces):
            raise ArgumentError(
                f"binary column {name!r} must be a column of the data or a product of binary columns: "
                "add the derived column to the data and declare it"
            )
        positions.append(position)
    return positions


def _zero_one(piece: Piece, binary: tuple[str, ...]) -> bool:
    """Return whether a piece of a column is 0 or 1 in every row that can be opened."""
    return isinstance(piece, Indicator) or (isinstance(piece, Plain) and piece.column in binary)


def _block_name(design: Design, block: tuple[int, ...]) -> str:
    return ":".join(dict.fromkeys(name for column in block for name in design.columns[column].inputs))


@dataclass(frozen=True, slots=True)
class Label:
    """How the response of a design is read and sent.

    Attributes
    ----------
    name : str
    kind : {"response", "gaussian", "laplace", "clear"}
    levels : tuple, or None for a numeric response
        Labels travel as positions in this list.
    either : bool
        Whether rows may use -1 and +1 where `levels` are 0 and 1 (arrays without declared levels).
    missing_codes : tuple
        Values that mean that a label is missing.
    """

    name: str
    kind: LabelKind
    levels: tuple[Level, ...] | None = None
    either: bool = False
    _: KW_ONLY
    missing_codes: tuple[Level, ...] = ()

    def read(self, rows: Rows) -> Rows:
        """Return the rows with the label as level codes; a numeric response is left as it is.

        Raises
        ------
        SchemaError
            A label is missing or outside the levels; the message holds no label.
        """
        if self.levels is None:
            return rows
        return replace(rows, response=self.codes(rows))

    def codes(self, rows: Rows) -> Floats:
        """Return level codes, shape (n,); a missing label becomes the first level if `rows` impute."""
        assert self.levels is not None
        table = rows.opened([self.name]).features if rows.response is None else {self.name: rows.response}
        try:
            return self._codes(table, self.levels, rows)
        except SchemaError:
            if not self.either:
                raise
        try:
            return self._codes(table, SIGNS, rows)
        except SchemaError:
            raise SchemaError(
                f"labels of {self.name!r} must be 0 and 1, or -1 and +1, without missing values: "
                "declare other levels with levels=, or as a Factor in the schema"
            ) from None

    def _codes(self, table: Any, levels: tuple[Level, ...], rows: Rows) -> Floats:
        declared = Factor(levels, missing_codes=self.missing_codes)
        reader = Reader(table, Schema({self.name: declared}), rows.missing)
        return np.asarray(reader.codes(self.name), dtype=np.float64)


def label_design(
    schema: Schema | Design, formula: str | None, label: LabelChoice, radius: float | None
) -> Design:
    """Return the design of the features, whatever the levels of the response.

    A formula whose left side is a factor of the schema, ``"y ~ x"`` or ``"C(y) ~ x"``, is coded without it.

    Raises
    ------
    ArgumentError, SchemaError
        Schema, formula and radius do not fit together; see `Design.from_formula`.
    """
    if isinstance(schema, Design):
        if formula is not None or radius is not None:
            raise ArgumentError("a Design already has its formula and radius: leave formula= and radius= out")
        return schema
    schema = check_schema(schema, "a privinf.Schema or Design")
    if not isinstance(formula, str):
        raise ArgumentError("a Schema needs a formula, for example LocalExamples(schema, 'y ~ x1 + x2')")
    name, right = _factor_response(schema, formula)
    if name is None or label in ("gaussian", "laplace"):
        mode: Any = "public" if label in ("response", "clear") else "protected"
        return Design.from_formula(formula, schema, response=mode, radius=radius)
    stand_in = "response"
    while stand_in in schema:
        stand_in += "_"
    design = Design.from_formula(f"{stand_in} ~ {right}", schema, response="public", radius=radius)
    design = replace(design, formula=formula, outcome=Response(Column(name, (Plain(name),)), True, None))
    refuse_response(formula, schema, design.columns, design.outcome.column)
    return design


def resolve_label(
    design: Design, label: LabelChoice, levels: Sequence[Level] | None, noise: ExampleNoise = "gaussian"
) -> tuple[Label, Design]:
    """Return how the response is sent, and the design with which it is released.

    `noise` is the distribution of the noise that ``label="auto"`` adds to a number.

    A response sent as a code, or in clear, has no units of its own: the design's response then has center 0
    and scale 1, and only the noise model of the release states how it was sent.

    Raises
    ------
    SchemaError
        The levels are not declared, or there are fewer than two.
    SensitivityError
        A label with added noise has no bounds.
    """
    check_choice(label, LabelChoice, "label")
    name = design.response
    declared = _declared_levels(design, levels)
    kind: LabelKind = _automatic(design, declared, noise) if label == "auto" else label
    if kind in ("gaussian", "laplace"):
        if levels is not None:
            raise ArgumentError(
                "levels= applies to labels that are sent as codes, but this label is sent with "
                f"{kind.capitalize()} noise: leave levels= out"
            )
        if design.response_public:
            raise SensitivityError(
                f"label={kind!r} needs public bounds for {name!r}: pass y_bounds=, or declare the "
                "column in the schema"
            )
        return Label(name, kind), design
    if kind == "response" and not design.outcome.column.plain:
        raise SchemaError(
            f"the label must be a column of the data, but {name!r} is an expression: add its values to the "
            "data as a column"
        )
    either = False
    if kind == "response" and declared is None:
        declared, either = _two_levels(design)
    codes = () if design.schema is None or name not in design.schema else design.schema[name].missing_codes
    resolved = Label(name, kind, declared, either, missing_codes=codes)
    return resolved, replace(design, outcome=Response(design.outcome.column, True, None))


def _factor_response(schema: Schema, formula: str) -> tuple[str | None, str]:
    """Return the factor that a formula has on its left side (None for anything else), and the right side."""
    response, _, right = formula.partition("~")
    name = response.strip()
    if name.startswith("C(") and name.endswith(")"):
        name = name[2:-1].strip()
    is_factor = name in schema and isinstance(schema[name], Factor)
    return (name if is_factor else None), right


def _declared_levels(design: Design, levels: Sequence[Level] | None) -> tuple[Level, ...] | None:
    name = design.response
    schema = design.schema
    declared = schema[name] if schema is not None and name in schema else None
    if levels is not None:
        if isinstance(declared, Factor):
            raise ArgumentError(f"the schema already declares the levels of {name!r}: leave levels= out")
        return Factor(levels).levels  # type: ignore[arg-type]
    return declared.levels if isinstance(declared, Factor) else None


def _automatic(design: Design, levels: tuple[Level, ...] | None, noise: ExampleNoise) -> LabelKind:
    """Return the channel that the declarations require."""
    name = design.response
    schema = design.schema
    if schema is not None and name in schema and schema[name].public:
        return "clear"
    if levels is not None:
        return "response"
    return "clear" if design.response_public else noise


def _two_levels(design: Design) -> tuple[tuple[Level, ...], bool]:
    """Return the two levels of a response that is declared as a number, or not at all."""
    name = design.response
    schema = design.schema
    bounds = design.outcome.bounds
    if bounds is None and schema is not None and name in schema:
        bounds = schema.interval(name)
    if bounds is None:
        return ZERO_ONE, True
    for levels in (ZERO_ONE, SIGNS):
        if (bounds.low, bounds.high) == levels:
            return levels, False
    raise SchemaError(
        f"label='response' needs levels for {name!r}: declare a Factor in the schema, pass levels=, "
        "or code the label 0 and 1 with bounds (0, 1)"
    )
