"""The parties of a federated MomentOLS: the doors their rows come in by, and what is public of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from privinf.errors import ArgumentError, PrivinfError, SchemaError, SensitivityError
from privinf.federation import Federation, InProcessFederation, Site, SitePolicy, pinned_keys
from privinf.mechanisms.modulation import resolve_design
from privinf.mechanisms.rows import Rows
from privinf.models.base import PUBLIC_MARK
from privinf.schema import Design, Schema
from privinf.typing import Floats
from privinf.validation import check_array

Parties = Sequence[tuple[Any, Any]] | Mapping[str, tuple[Any, Any]]
CONSTANT = "const"


@dataclass(frozen=True, slots=True, eq=False)
class MomentParties:
    """A federation, and the design of a regression over it.

    Attributes
    ----------
    federation : Federation
    design : Design
        What is released is about: every column protected but the constant.
    asked : Design or None
        What sites must adopt first, where they hold tables: the same columns as their schema declares them.

    Notes
    -----
    **Privacy.** Holds no rows: the federation does.
    """

    federation: Federation
    design: Design
    asked: Design | None = None


def parties_of_formula(formula: str, federation: Federation, schema: Schema, radius: Any) -> MomentParties:
    """Return the parties behind a federation whose sites hold tables.

    Columns that the schema declares public are protected like the others: no site sends them in clear.
    """
    asked = resolve_design(schema, formula, response="protected", radius=radius)
    if asked.response_public:
        raise SchemaError(f"MomentOLS protects the response too: {asked.response!r} is declared public")
    closed = Schema(
        {name: replace(declared, public=False) for name, declared in schema.columns.items()},
        unit=schema.unit,
        max_rows=schema.max_rows,
    )
    return MomentParties(federation, _protected(closed.design(formula, radius=radius)), asked)


def parties_of_arrays(
    parties: Parties, *, bounds: Any, radius: Any, y_bounds: Any, keyed: bool
) -> MomentParties:
    """Return the parties of one pair (y, X) each, as sites of this process; `keyed` for secure sums.

    Raises
    ------
    PrivinfError
        A party's rows are not what they must be; the message names the party.
    """
    if y_bounds is None:
        raise SchemaError("MomentOLS protects the response too: pass its public bounds, y_bounds=(low, high)")
    if bounds is None and radius is None:
        raise SensitivityError("the columns need public bounds: pass bounds=[(low, high), ...] or radius=r")
    parts, names = _parts_of(parties)
    if keyed and len(parts) < 2:
        raise ArgumentError('a secure sum needs two parties or more: with one, use trust="server"')
    public = [CONSTANT] if CONSTANT in names else []
    design = Design.from_arrays(names, bounds=bounds, radius=radius, public=public, y_bounds=y_bounds)
    return MomentParties(_in_process(_protected(design), parts, keyed=keyed), design)


def _protected(design: Design) -> Design:
    if not design.private.any():
        raise SensitivityError("there is no column beside the constant: nothing to protect")
    return design


def _parts_of(parties: Parties) -> tuple[dict[str, Rows], list[str]]:
    """Return the rows of the parties by name, numbered where they have none, and their columns."""
    if not isinstance(parties, (Mapping, Sequence)) or isinstance(parties, (str, bytes)) or not len(parties):
        raise ArgumentError("parties must hold at least one pair (y, X)")
    given = parties.items() if isinstance(parties, Mapping) else enumerate(parties)
    parts: dict[str, Rows] = {}
    columns: dict[str, list[str]] = {}
    for label, pair in given:
        name = str(label)
        if name in parts:
            raise ArgumentError(f"two sites are called {name!r}")
        with _naming(name):
            parts[name], columns[name] = _rows_of(pair)
    first = next(iter(columns))
    for name, names in columns.items():
        if names != columns[first]:
            raise ArgumentError(f"site {name!r} has other columns than site {first!r}")
    return parts, columns[first]


def _rows_of(pair: Any) -> tuple[Rows, list[str]]:
    """Return one party's rows and columns."""
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise ArgumentError("a party is a pair (y, X)")
    y, X = pair
    features, names, public = _matrix_of(X)
    response = check_array(np.asarray(y), "y", ndim=1)
    if len(response) != len(features):
        raise ArgumentError(f"y has {len(response)} rows and X has {len(features)}")
    if len(features) == 0:
        raise ArgumentError("a party needs at least one row")
    if public - {CONSTANT}:
        raise ArgumentError("a federation of arrays has one public column, the constant 'const'")
    if CONSTANT in names and not (features[:, names.index(CONSTANT)] == 1.0).all():
        raise SchemaError(f"column {CONSTANT!r} is the constant but is not all ones")
    return Rows(features, response), names


def _matrix_of(X: Any) -> tuple[Floats, list[str], set[str]]:
    if not isinstance(X, pd.DataFrame):
        features = check_array(X, "X", ndim=2)
        return features, [f"x{j + 1}" for j in range(features.shape[1])], set()
    if any(not isinstance(name, str) for name in X.columns):
        raise SchemaError("X has column labels that are not strings: rename them")
    names = [str(name) for name in X.columns]
    return check_array(X.to_numpy(), "X", ndim=2), names, set(X.attrs.get(PUBLIC_MARK, ()))


def _in_process(design: Design, parts: Mapping[str, Rows], *, keyed: bool) -> InProcessFederation:
    policy = SitePolicy(trusted_server=not keyed, secure_sums=keyed, simulation=True)
    if not keyed:
        return InProcessFederation({name: Site(part, design, policy=policy) for name, part in parts.items()})
    keys, roster = pinned_keys(parts)
    return InProcessFederation(
        {
            name: Site(part, design, policy=policy, key=keys[name], roster=roster)
            for name, part in parts.items()
        }
    )


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Put the site's name before the message of an error, which holds no value."""
    try:
        yield
    except PrivinfError as error:
        raise type(error)(f"site {name!r}: {error}") from None
