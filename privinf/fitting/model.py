"""What the release-based models share: two doors, one ledger, and the way from a solution to a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd

from privinf.accounting import Ledger
from privinf.accounting.ledger import check_ledger
from privinf.doors import doors
from privinf.errors import AlignmentError, ArgumentError, NotAvailableError, SchemaError, SensitivityError
from privinf.mechanisms.rows import Rows, data_bounds
from privinf.releases import Release
from privinf.schema import Design, Schema
from privinf.schema.arrays import PUBLIC_MARK
from privinf.typing import Missing
from privinf.validation import check_array, shown

# adjacency="unit" protects records at distance 1 and needs no bound: a ball that holds every float row.
NO_BOUND_RADIUS = 1e100


@doors
class ReleaseModel:
    """A model with two doors: raw rows (holders and analyst simulated in one process), or a release.

    Subclasses set `mechanism` (a mechanism with ``release(rows, ...)``) and `kind`, and implement `fit`.
    """

    kind: ClassVar[str]
    mechanism_class: ClassVar[Any]

    mechanism: Any
    ledger: Ledger
    _rows: Rows | None
    _release: Release | None

    def _bind(self, mechanism: Any, rows: Rows, ledger: Ledger | None) -> None:
        self.mechanism = mechanism
        self.ledger = check_ledger(ledger)
        self._rows = rows
        self._release = None

    @classmethod
    def from_formula(
        cls,
        formula: str,
        data: Any,
        *,
        schema: Schema,
        missing: Missing = "raise",
        ledger: Ledger | None = None,
        **mechanism: Any,
    ) -> Self:
        """Build the model from a formula, raw rows and their public schema.

        Parameters
        ----------
        formula : str
            Evaluated on raw rows at the holder; its bounds follow from the schema.
        data : DataFrame
        schema : Schema
        missing : {"raise", "impute-public"}
        ledger : Ledger, optional
            Default: one for this object, cumulative over its fits and releases.
        **mechanism
            Options of the mechanism, as for the class itself; and ``weights``, the name of a column of
            observation weights that the schema declares public with positive bounds.

        Raises
        ------
        SchemaError
            The formula needs columns, bounds or parameters that the schema does not declare.
        """
        model = cls.__new__(cls)
        model._bind(
            cls.mechanism_class(schema, formula, missing=missing, **mechanism),
            Rows(data, None, missing),
            ledger,
        )
        return model

    @classmethod
    def from_release(
        cls, release: Release, *, schema: Schema | None = None, ledger: Ledger | None = None
    ) -> Self:
        """Build the model at the analyst, from what the holders sent; no raw row exists here.

        Parameters
        ----------
        release : Release
        schema : Schema, optional
            What the release must have been made with.
        ledger : Ledger, optional

        Raises
        ------
        AlignmentError
            The release is of another kind, or was made with another schema.
        """
        if not isinstance(release, Release):
            raise ArgumentError(f"from_release needs a privinf Release, got {type(release).__name__}")
        if schema is not None and release.design.schema != schema:
            raise AlignmentError(
                "the release was made with another schema: bounds, levels or public columns differ from the "
                "schema given here"
            )
        model = cls.__new__(cls)
        model.mechanism = None
        model.ledger = check_ledger(ledger)
        model._rows = None
        model._release = release.require(cls.kind, cls.__name__)
        return model

    def release(self, **spending: Any) -> Release:
        """Release the rows once: see the ``release`` of the mechanism for the arguments.

        Without `rng` the noise is secure; `epsilon` with `delta`, `mu` or `rho` say what may be spent.
        """
        if self._rows is None:
            raise NotAvailableError("this model was built from a release: there are no rows to release again")
        released: Release = self.mechanism.release(self._rows, ledger=self.ledger, **spending)
        return released

    def _given_release(self, spending: Mapping[str, Any]) -> Release | None:
        """Return the release the model was built from, refusing budget arguments beside it."""
        if self._release is None:
            return None
        given = [name for name, value in spending.items() if value is not None]
        if given:
            raise ArgumentError(
                f"{', '.join(given)}: this model was built from a release, which fixed its noise and its cost"
            )
        return self._release

    def __repr__(self) -> str:
        state = "rows at hand (not shown)" if self._rows is not None else repr(self._release)
        return f"<{type(self).__name__}: {state}>"


def refuse_weights(weights: Any) -> None:
    """Raise NotAvailableError if observation weights were given where no schema can declare them."""
    if weights is not None:
        raise NotAvailableError(
            "weights multiply a record's influence and so the sensitivity: they are offered by from_formula "
            "only, as the name of a column that the schema declares public with positive bounds"
        )


def array_design(
    y: Any,
    X: Any,
    *,
    bounds: Any,
    radius: float | None,
    y_bounds: Any,
    public: Sequence[str | int],
    unbounded: bool = False,
) -> tuple[Design, Any, Any, bool]:
    """Return (design, features, response, whether bounds came from the data) of the array door."""
    frame_like = isinstance(X, (pd.DataFrame, pd.Series))
    features = X.to_frame() if isinstance(X, pd.Series) else X
    if not frame_like:
        features = check_array(X, "X", ndim=np.ndim(X), finite=False)
        features = features[:, None] if features.ndim == 1 else features
        if features.ndim != 2:
            raise ArgumentError(f"X must have two dimensions, got shape {features.shape}")
    response = _column(y)
    if features.shape[0] != response.shape[0]:
        raise ArgumentError(f"y has {response.shape[0]} rows and X has {features.shape[0]}")
    names = (
        [str(c) for c in features.columns] if frame_like else [f"x{j + 1}" for j in range(features.shape[1])]
    )
    if frame_like and any(not isinstance(c, str) for c in features.columns):
        raise SchemaError("X has column labels that are not strings: rename them")
    declared = list(getattr(features, "attrs", {}).get(PUBLIC_MARK, ()))
    declared += [_public_name(item, names) for item in public]
    private = [name for name in names if name not in declared]
    from_data = isinstance(bounds, str) or isinstance(y_bounds, str)
    if isinstance(bounds, str):
        bounds = data_bounds(features, names, private, bounds, "bounds")
    if isinstance(y_bounds, str):
        y_bounds = data_bounds(response[:, None], ["y"], ["y"], y_bounds, "y_bounds")["y"]
    if bounds is None and radius is None and unbounded:
        radius = NO_BOUND_RADIUS
    if bounds is None and radius is None:
        raise SensitivityError(
            f"no public bounds for {private[0] if private else 'X'!r}: pass bounds=[(low, high), ...] or "
            'radius=r, or write bounds="data" to take them from the rows (a leak that no claim covers)'
        )
    label = str(y.name) if isinstance(y, pd.Series) and y.name is not None else "y"
    design = Design.from_arrays(
        names, bounds=bounds, radius=radius, public=declared, response=label, y_bounds=y_bounds
    )
    return design, features, response, from_data


def _column(y: Any) -> np.ndarray[Any, Any]:
    array = np.asarray(y)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise ArgumentError(f"y must have one dimension, got shape {array.shape}")
    return array


def _public_name(item: str | int, names: list[str]) -> str:
    if isinstance(item, (int, np.integer)) and 0 <= item < len(names):
        return names[int(item)]
    if item in names:
        return str(item)
    raise SchemaError(f"public column {shown(item)} is not among the columns: {', '.join(names)}")
