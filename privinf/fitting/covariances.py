"""Requirements of a model's ``cov_type=`` for a release: `COVARIANCES` by name, and refusals of models."""

from __future__ import annotations

from collections.abc import Mapping

from privinf.errors import ArgumentError, SchemaError
from privinf.inference.covariances import COVARIANCES, Covariance
from privinf.schema import Schema
from privinf.typing import CovWord
from privinf.validation import check_cov_type

CURVED_HC1 = (
    "is only available for least squares: for other models statsmodels' HC1 equals its HC0, "
    "without the factor n/(n - p); pass cov_type='HC0'"
)
NO_FACTOR = {"HC1": CURVED_HC1}
NO_UNIT = (
    "cov_type='cluster' uses the schema's unit as the cluster, but the schema declares no unit: in "
    "Schema(..., unit=, max_rows=), declare the column that identifies the cluster"
)
MIXED_ROWS = {
    "random-mixing": dict.fromkeys(
        ("nonrobust", "HC0", "HC1"),
        (
            "is not available, because the release contains random linear combinations of rows, "
            "not single rows: pass cov_type='mixed rows', or use DGMOLS, which releases noisy "
            "single rows"
        ),
    )
}
DEPENDENT = (
    "cov_type={!r} assumes independent rows, but several rows have the same value of {!r}: "
    "pass cov_type='cluster' for this release"
)


def requested_covariance(cov_type: CovWord | None, schema: Schema | None) -> type[Covariance]:
    """Return the covariance that a word means for rows of a schema.

    Raises
    ------
    ArgumentError
        It is none of the words, with the reason where statsmodels has it.
    SchemaError
        Clusters are wanted, and the schema names no unit.
    """
    if cov_type is None:
        return Covariance
    covariance = COVARIANCES[check_cov_type(cov_type, tuple(COVARIANCES))]
    if covariance.independent_rows:
        return covariance
    if schema is None or schema.unit is None:
        raise SchemaError(NO_UNIT)
    return COVARIANCES["HC0"] if schema.max_rows == 1 else covariance


def check_release_covariance(covariance: type[Covariance], release_kind: str, schema: Schema | None) -> None:
    """Raise ArgumentError unless a release that was made for the covariance `release_kind` has this one."""
    several = schema is not None and schema.max_rows > 1
    if release_kind == "cluster" and not several:
        release_kind = "HC0"
    if covariance.release in (None, release_kind):
        return
    if release_kind == "cluster" and schema is not None:
        raise ArgumentError(DEPENDENT.format(covariance.name, schema.unit))
    raise ArgumentError(
        f"cov_type={covariance.name!r} is not available, because this release was made for "
        f"cov_type={release_kind!r}: pass that value, or leave out cov_type="
    )


def check_made(
    cov_type: CovWord | None,
    release_kind: str,
    schema: Schema | None = None,
    refused: Mapping[str, str] | None = None,
) -> type[Covariance]:
    """Return the requested covariance of a model whose release has one kind.

    Parameters
    ----------
    cov_type : CovWord or None
    release_kind : {"HC0", "cluster"}
        The kind there is.
    schema : Schema or None
        Of the rows.
    refused : mapping of str to str, optional
        Words that mean nothing for the model, and why.

    Raises
    ------
    ArgumentError, SchemaError
        The request is for another kind.
    """
    if refused and isinstance(cov_type, str) and cov_type in refused:
        raise ArgumentError(f"cov_type={cov_type!r} {refused[cov_type]}")
    covariance = requested_covariance(cov_type, schema)
    check_release_covariance(covariance, release_kind, schema)
    return covariance


def check_records(cov_type: CovWord | None, schema: Schema | None) -> type[Covariance]:
    """Return the same of a release of records, clustered where their schema has a unit."""
    return check_made(cov_type, "HC0" if schema is None or schema.unit is None else "cluster", schema)
