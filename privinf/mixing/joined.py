"""The analyst's table: party releases side by side, and the regression that is read off it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from privinf.error_boundary import error_boundary
from privinf.errors import AlignmentError, ArgumentError, NotAvailableError, SchemaError
from privinf.fitting.solve import Fit
from privinf.mechanisms.mixing.party import party_design, released_columns
from privinf.release_kinds import JOINED, JoinedMixingNoiseModel, RandomMixingNoiseModel
from privinf.releases import Release
from privinf.results.notes import IMPUTING, imputes
from privinf.schema import Design, Schema
from privinf.schema.arrays import CONSTANT
from privinf.schema.intervals import Interval
from privinf.schema.terms import Column, Indicator, Response
from privinf.typing import Floats, MixingMethod, Target
from privinf.validation import check_flag, shown

REGRESSION = "mixing-regression"
# What the releases of all parties of a plan must have in common.
AGREED = ("method", "n", "k", "kind", "public_seed", "share", "centred", "plan", "ids_sha256")
WORDS = {
    "public_seed": "seed",
    "ids_sha256": "ids of people",
    "n": "number of people (n=)",
    "k": "k= (number of random linear combinations)",
    "kind": "kind= of random linear combinations",
    "method": "method=",
    "share": "share= (weight of the intercept)",
    "plan": "plan",
    "centred": "intercept",
}


def party_noise_model(release: Release) -> RandomMixingNoiseModel:
    """Return the noise model of one party's release; unmixed rows have no matrix."""
    return cast(RandomMixingNoiseModel, release.noise_model)


def joined_noise_model(release: Release) -> JoinedMixingNoiseModel:
    """Return the noise model of joined releases; unmixed rows have no matrix."""
    return cast(JoinedMixingNoiseModel, release.noise_model)


@error_boundary
def join(releases: Release | Mapping[str, Release] | Iterable[Release]) -> Release:
    """Join the releases of all parties, after a check that they match.

    Parameters
    ----------
    releases : mapping of str to Release, sequence of Release, or a joined Release
        Releases of the parties, one for each party.

    Returns
    -------
    Release
        The joined release, of kind "joined random-mixing" or "joined gaussian-rows". The array
        ``arrays["rows"]`` and the design of the joined release have the columns of all parties, in the order
        of the releases. The joined release has the ledger entries of all parties.

    Raises
    ------
    AlignmentError
        Raised if the releases differ in method, n, k, kind, seed, share, plan, ids or mixing matrix, or if a
        party or a column occurs twice.
    ArgumentError
        Raised if an argument is not the release of a party.

    Notes
    -----
    **Privacy.** Costs nothing: it uses only released numbers.
    """
    if isinstance(releases, Release) and releases.kind.startswith(JOINED):
        return releases
    by_party = _named(releases)
    first, *rest = by_party.values()
    for release in rest:
        _check_agreement(first, release)
    schema = _joint_schema(by_party)
    arrays = {"rows": np.hstack([release.arrays["rows"] for release in by_party.values()])}
    if "ones" in first.arrays:
        arrays["ones"] = first.arrays["ones"]
    if "ones_row" in first.arrays:
        arrays["ones_row"] = np.concatenate([release.arrays["ones_row"] for release in by_party.values()])
    noise_models = {name: party_noise_model(release) for name, release in by_party.items()}
    deltas = [
        noise_model["delta"] for noise_model in noise_models.values() if noise_model["delta"] is not None
    ]
    widths = {name: release.arrays["rows"].shape[1] for name, release in by_party.items()}
    noise_model = {key: first.noise_model[key] for key in AGREED if key in first.noise_model} | {
        "parties": list(by_party),
        "noise": [noise_models[name]["scale"] ** 2 for name, width in widths.items() for _ in range(width)],
        "delta": max(deltas, default=None),
        "noise_free": any(noise_model["noise_free"] for noise_model in noise_models.values()),
    }
    if imputes(*noise_models.values()):
        noise_model["missing"] = IMPUTING
    if named := first.noise_model.get("regression"):
        noise_model |= (
            {"regression": named}
            if all(party_terms.get("regression") == named for party_terms in noise_models.values())
            else {}
        )
    entries = tuple(entry for release in by_party.values() for entry in release.entries)
    design = party_design(schema, centred=party_noise_model(first)["centred"])
    return Release(
        kind=JOINED + first.kind,
        arrays=arrays,
        noise_model=noise_model,
        design=design,
        entries=entries,
        nobs=first.nobs,
    )


def _named(releases: Any) -> dict[str, Release]:
    if isinstance(releases, Release):
        pairs: Sequence[tuple[str | None, Any]] = [(None, releases)]
    elif isinstance(releases, Mapping):
        pairs = list(releases.items())
    elif isinstance(releases, Iterable):
        pairs = [(None, release) for release in releases]
    else:
        raise ArgumentError(
            f"join() needs a list or mapping of the releases of all parties, got {type(releases).__name__}"
        )
    by_party: dict[str, Release] = {}
    for key, release in pairs:
        if not isinstance(release, Release) or release.kind not in ("random-mixing", "gaussian-rows"):
            raise ArgumentError(
                "join() needs releases made by RandomMixing or GaussianRows, one for each party"
            )
        name = party_noise_model(release)["party"] or key or f"party {len(by_party) + 1}"
        if name in by_party:
            raise AlignmentError(f"there are two releases of party {name!r}: pass one release for each party")
        by_party[name] = release
    if not by_party:
        raise ArgumentError("join() needs at least one release")
    return by_party


def _check_agreement(first: Release, second: Release) -> None:
    for key in AGREED:
        if first.noise_model.get(key) != second.noise_model.get(key):
            names = party_noise_model(first)["party"] or 1, party_noise_model(second)["party"] or 2
            parties = f"parties {names[0]!r} and {names[1]!r}"
            raise AlignmentError(
                f"{parties} did not use the same {WORDS.get(key, key)}, so their releases do not have the "
                "same plan: all parties must release again with one plan"
            )
    if "ones" in first.arrays and not np.array_equal(first.arrays["ones"], second.arrays["ones"]):
        name = party_noise_model(second)["party"]
        raise AlignmentError(
            f"party {name!r} used another random mixing matrix: all parties must release again with "
            "the common plan"
        )


def _joint_schema(by_party: Mapping[str, Release]) -> Schema:
    columns: dict[str, Any] = {}
    for name, release in by_party.items():
        assert release.design.schema is not None
        # In the design's order: a schema that was read from a file has its columns sorted by name.
        for column in release.design.inputs:
            if column in columns:
                raise AlignmentError(
                    f"column {column!r} of party {name!r} was released by another party too: each column "
                    "must belong to one party"
                )
            columns[column] = release.design.schema[column]
    return Schema(columns)


def label_design(design: Design, label: str, order: Sequence[str] | None = None) -> Design:
    """Return the design of the regression of one released column on all others.

    Parameters
    ----------
    design : Design
        Of all released columns.
    label : str
        A numeric released column.
    order : sequence of str, optional
        Names of all released columns in the order wanted; default: as joined.

    Raises
    ------
    SchemaError
        The label is not a released numeric column.
    """
    positions = {name: k for k, name in enumerate(design.names)}
    if not isinstance(label, str) or label not in design.private_names:
        raise SchemaError(
            f"label={shown(label)} is not a released column; released columns are: "
            f"{', '.join(design.private_names)}"
        )
    at = positions[label]
    if design.columns[at].indicator:
        raise SchemaError(f"label {label!r} is an indicator of a factor: choose a numeric column")
    names = [name for name in order or design.private_names if name != label]
    chosen = [positions[name] for name in ([CONSTANT] if design.constant is not None else []) + names]
    if len(chosen) == int(design.constant is not None):
        raise SchemaError(
            f"the release contains no column except the label {label!r}: release another column"
        )
    return Design(
        formula=None,
        schema=design.schema,
        columns=tuple(design.columns[k] for k in chosen),
        private=design.private[chosen],
        constant=design.constant,
        low=design.low[chosen],
        high=design.high[chosen],
        blocks=_blocks(design, chosen),
        radius=None,
        outcome=Response(design.columns[at], False, Interval(float(design.low[at]), float(design.high[at]))),
    )


def formula_design(released: Design, formula: str) -> Design:
    """Return the design of a formula over released columns.

    Raises
    ------
    SchemaError
        It names columns that were not released.
    NotAvailableError
        It needs products, powers or other functions of released columns, whose noise has no exact
        correction in sums over people; or a factor coding that was not released.
    """
    assert released.schema is not None
    design = Design.from_formula(formula, released.schema)
    positions = released_columns(released)
    for column in (*design.columns, design.outcome.column):
        if column.pieces and column.pieces not in positions:
            coding = len(column.pieces) == 1 and isinstance(column.pieces[0], Indicator)
            names = ", ".join(released.private_names)
            raise NotAvailableError(
                (
                    f"the formula codes the factor in column {column.name!r} differently from the released "
                    f"columns: {names}"
                )
                if coding
                else f"column {column.name!r} is not one of the released columns ({names}): products, powers "
                "and other functions must be declared as columns before the release, by the party that holds "
                "their variables"
            )
    return design


def _blocks(design: Design, chosen: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    moved = {old: new for new, old in enumerate(chosen)}
    blocks = (tuple(moved[k] for k in block if k in moved) for block in design.blocks)
    return tuple(block for block in blocks if block)


def _conversion(joined: Release, column: Column, center: float, scale: float) -> tuple[int, float, float]:
    """Return (position among the released columns, factor, shift): ``x' = factor x + shift * ones``."""
    design = joined.design
    at = released_columns(design)[column.pieces]
    position = np.flatnonzero(design.private)[at]
    factor = float(design.scale[position]) / scale
    return at, factor, (float(design.center[position]) - center) / scale


def regression_release(joined: Release, design: Design) -> Release:
    """Return the releases as one regression: features and response in the scaled units of `design`.

    Returns
    -------
    Release
        ``features`` (k, p) with the constant's column c, ``response`` (k,), and, where the all-ones row was
        released and the design has a constant, ``ones_row`` (p,) and ``ones_response`` (1,); the noise
        variances in its distribution.
    """
    rows = joined.arrays["rows"]
    n = joined.nobs
    m = len(rows)
    share = float(joined.noise_model.get("share", 0.0))
    ones = joined.arrays.get("ones", np.ones(m))
    ones_row = joined.arrays.get("ones_row") if design.constant is not None else None
    weight = math.sqrt(share) * n
    noise = np.asarray(joined_noise_model(joined)["noise"])
    features = np.empty((m, len(design.columns)))
    variances = np.zeros(len(design.columns))
    top = np.empty(len(design.columns))
    for position, column in enumerate(design.columns):
        if not column.pieces:
            features[:, position] = ones
            top[position] = weight
            continue
        center = float(design.center[position])
        scale = float(design.scale[position])
        at, factor, shift = _conversion(joined, column, center, scale)
        features[:, position] = factor * rows[:, at] + shift * ones
        variances[position] = factor**2 * noise[at]
        if ones_row is not None:
            top[position] = factor * ones_row[at] + shift * weight
    at, factor, shift = _conversion(joined, design.outcome.column, design.y_center, design.y_scale)
    arrays: dict[str, Floats] = {"features": features, "response": factor * rows[:, at] + shift * ones}
    if ones_row is not None:
        arrays["ones_row"] = top
        arrays["ones_response"] = np.array([factor * ones_row[at] + shift * weight])
    noise_model = {key: value for key, value in joined.noise_model.items() if key != "noise"}
    noise_model |= {"noise": variances.tolist(), "y_noise": float(factor**2 * noise[at]), "share": share}
    return Release(
        kind=REGRESSION, arrays=arrays, noise_model=noise_model, design=design, entries=joined.entries, nobs=n
    )


# ---- how it is read off


@dataclass(frozen=True, slots=True)
class RegressionOptions:
    """Options of a fit that go together.

    Attributes
    ----------
    debias, shrink : bool
    ridge : float
    target : {"population", "sample", "penalized"}
    """

    debias: bool
    shrink: bool
    ridge: float
    target: Target


def regression_options(
    debias: bool, shrink: bool, ridge: float, target: Target, method: MixingMethod, design: Design
) -> RegressionOptions:
    """Return the options of a fit, once they go together; nothing has been spent by then."""
    ridge = Fit(ridge=ridge, target=target).ridge
    debias = check_flag(debias, "debias")
    shrink = check_flag(shrink, "shrink")
    if shrink and (ridge > 0.0 or target != "population" or not debias):
        raise ArgumentError(
            "shrink=True cannot be combined with ridge=, target= or debias=, because it replaces them"
        )
    if not debias and target != "population":
        raise ArgumentError(
            f"target={target!r} affects only intervals, but a plain fit (debias=False) has no "
            "intervals: leave target= out"
        )
    if shrink and (method != "random-mixing" or design.constant is None):
        raise NotAvailableError(
            "shrink=True needs RMGMOLS with intercept=True and a regression with a constant"
        )
    return RegressionOptions(debias, shrink, ridge, target)
