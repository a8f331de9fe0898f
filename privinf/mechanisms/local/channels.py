"""Features of released examples: which columns get Gaussian noise and which a randomized response."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from privinf.errors import ArgumentError, SchemaError
from privinf.schema import Design
from privinf.schema.terms import Indicator, Piece, Plain
from privinf.typing import BinaryMechanism, Flags, Floats, Integers, Missing
from privinf.validation import check_positive


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
        """Which design columns get Gaussian noise, shape (p,)."""
        mask = self.design.private.copy()
        mask[[column for feature in self.responded for column in feature.columns]] = False
        return mask

    @property
    def gaussian_design(self) -> Design:
        """The design that protects the Gaussian columns alone: its diameter is their sensitivity.

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
            A name is no responded feature, or a share is not positive.
        """
        names = [feature.name for feature in self.responded]
        if unknown := [name for name in named if name not in names]:
            known = ", ".join(names) or "none"
            raise ArgumentError(
                f"response_shares names {unknown[0]!r}, which is not under randomized response: {known}"
            )
        return tuple(check_positive(named.get(name, 1.0), f"response_shares[{name!r}]") for name in names)

    def private_positions(self, columns: Iterable[int]) -> list[int]:
        """Return positions among the private columns of positions in the design."""
        ranks = np.cumsum(self.design.private) - 1
        return [int(ranks[column]) for column in columns]

    def units(self) -> dict[str, list[float]]:
        """Return centre and scale, each (p,), of the columns as sent: ``sent = (x - center) / scale``.

        Those of the design, but 0 and 1 for a feature under randomized response: indicators stay 0 and 1.
        """
        center, scale = np.array(self.design.center), np.array(self.design.scale)
        for feature in self.responded:
            center[list(feature.columns)], scale[list(feature.columns)] = 0.0, 1.0
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
        if missing == "impute-public":  # the middle of (0, 1) stands for a missing value: first level
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
        A name in `binary` is no private column of the design, or not one of 0 and 1.
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
        raise ArgumentError("binary must be a list of column names")
    positions = []
    listed = tuple(dict.fromkeys(binary))
    for name in listed:
        if name not in design.private_names:
            known = ", ".join(design.private_names)
            raise ArgumentError(f"binary column {name!r} is not a private column of the design: {known}")
        position = design.names.index(name)
        bounds = (float(design.low[position]), float(design.high[position]))
        if np.isfinite(bounds).all() and bounds != (0.0, 1.0):
            raise ArgumentError(f"binary column {name!r} must be coded 0 and 1, with bounds (0, 1)")
        if not all(_zero_one(piece, listed) for piece in design.columns[position].pieces):
            raise ArgumentError(
                f"binary column {name!r} must be a column of the data as it is, or a product of binary ones: "
                "add the derived column to the data and declare it"
            )
        positions.append(position)
    return positions


def _zero_one(piece: Piece, binary: tuple[str, ...]) -> bool:
    """Return whether a piece of a column is 0 or 1 in every row that can be opened."""
    return isinstance(piece, Indicator) or (isinstance(piece, Plain) and piece.column in binary)


def _block_name(design: Design, block: tuple[int, ...]) -> str:
    return ":".join(dict.fromkeys(name for column in block for name in design.columns[column].inputs))
