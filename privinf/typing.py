"""Type aliases shared by every room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    import pandas as pd

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]
RngLike: TypeAlias = int | np.random.Generator | None
Names: TypeAlias = Sequence[str]
Json: TypeAlias = Mapping[str, Any]
AnyPath: TypeAlias = str | PathLike[str]
# Values that a query, or a note beside arrays, may hold by name: those of JSON, and arrays of numbers.
PlainValue: TypeAlias = ArrayLike | Mapping[str, Any] | None
# What models take. A table is a frame of any library, a stream, a path, a query: `mechanisms` reads it.
ColumnLike: TypeAlias = "ArrayLike | pd.Series[Any]"
ColumnsLike: TypeAlias = "ColumnLike | pd.DataFrame"
Table: TypeAlias = object
Label: TypeAlias = str | int | float | bool
PartyColumns: TypeAlias = Mapping[str, Sequence[int | str]]
SitePairs: TypeAlias = Sequence[tuple[ColumnLike, ColumnsLike]] | Mapping[Any, tuple[ColumnLike, ColumnsLike]]
Pair: TypeAlias = Sequence[float] | Floats  # (low, high)
Pairs: TypeAlias = Sequence[Pair] | Mapping[str, Pair] | Floats
Bounds: TypeAlias = Pairs | str | None  # a text: "data"

Adjacency = Literal["bounded", "unit"]
Alternative = Literal["two-sided", "less", "greater"]
BinaryMechanism = Literal["response", "gaussian"]
BootstrapMethod = Literal["multiplier", "pairs", "parametric"]
Calibration = Literal["exact", "classic"]
ClipRule = Literal["auto", "bounds"]
ColumnKind = Literal["number", "levels"]
CovType = Literal["nonrobust", "HC0"]  # purpose of a release
MomentsCov = Literal["nonrobust", "HC0", "cluster"]  # what moments are released for
CovWord = Literal["nonrobust", "HC0", "HC1", "cluster"]  # options of a fit
# Weights of the intervals in a log-rank test.
LogRankWeights = Literal["logrank", "fleming-harrington", "gehan"]
CountTarget = Literal["table", "population"]  # what counts are estimates of
CurvedFamily = Literal["binomial", "poisson"]
DiameterChoice = Literal["own", "largest"]
ExampleNoise = Literal["gaussian", "laplace"]  # distribution of the noise of numeric features
Family = Literal["gaussian", "binomial", "poisson"]
FitFamily = Literal["gaussian", "binomial", "poisson", "negative-binomial"]  # of named models too
Imputation = Literal["raise", "impute-public"]  # handling of missing values of which no row is dropped
IntervalMethod = Literal["wald", "score"]
IntervalNeed = Literal["required", "optional"]  # whether a fit without intervals is refused
LabelKind = Literal["response", "gaussian", "laplace", "clear"]
LabelChoice = Literal["auto", "response", "gaussian", "laplace", "clear"]
StudyFamily = Literal["gaussian", "binomial", "poisson", "negative-binomial", "hazards"]  # of planned studies
LossName = Literal["squared", "quadratic", "exponential", "logistic", "multinomial", "poisson"]
Margins = Literal["overall", "mean", "zero"]
MarginsMethod = Literal["dydx", "eyex", "dyex", "eydx"]
Missing = Literal["raise", "impute-public", "drop"]
MixingKind = Literal["signs", "hadamard", "countsketch"]
MixingMethod = Literal["random-mixing", "gaussian-rows"]
Multipliers = Literal["rademacher", "gaussian"]
NoiseChoice = Literal["auto", "gaussian", "laplace"]
NoteRank = Literal["header", "must-read", "table", "detail"]  # how much a reader needs a note of a result
SummaryNotes = Literal["main", "all"]  # which notes a summary prints
PaperCells = Literal["se", "ci"]  # statistic next to the coefficients of a table for a paper
PeelingMethod = Literal["gumbel", "laplace"]
Precision = Literal["pooled", "machine"]
Quantity = Literal["residual", "length", "score"]  # of which whitened records are counted
Relation = Literal["replace-one", "metric", "zero-out"]
ResponseMode = Literal["protected", "public"]
SampleKind = Literal[
    "one sample",
    "groups",
    "share",
    "cells",
    "margins",
    "distributions",
    "pairs",
    "two ranked",
    "many ranked",
    "signed ranks",
    "complete sample",
    "complete groups",
    "complete share",
    "complete cells",
    "complete pairs",
    "complete two ranked",
    "complete many ranked",
    "complete signed ranks",
]
"""Kinds of sums over records that `privinf.stats` releases."""
RowsRule = Literal["auto", "paper"]  # for the number of mixed rows
SamplingKind = Literal["heteroskedastic", "homoskedastic"]
ScoreTarget = Literal["mean", "robust"]
SecretKind = Literal["key", "ledger"]  # which rules a secret file is opened by
SensitivityRule = Literal["exact", "lipschitz"]
ShareMethod = Literal["score", "exact"]
SourceName = Literal["lattice", "opendp"]
Stabilization = Literal["none", "fuller", "ridge"]
SumRelation = Literal["replace-one", "zero-out"]
Target = Literal["population", "sample", "penalized"]
Trust = Literal["central", "server", "secure-sum", "local"]
SklearnModel = Literal["ols", "moments", "poisson", "negative-binomial"]
ReportSubject = Literal["fit", "earlier release", "release", "party", "ledger"]
Which = Literal["mean", "linear"]
# Trust model in a ledger line: whom a model trusts, or that each party protects its own release.
TrustModel = Literal["central", "server", "secure-sum", "local", "per-party"]
Variant = Literal["default", "paper"]  # the package's version of a method, or the paper's


class SpendingWords(TypedDict, total=False):
    """Budget and noise source of `fit` and `release`; None means that an option was not passed.

    Attributes
    ----------
    epsilon, delta : float
        (epsilon, delta) of everything that the call releases. A finite epsilon needs delta, at most 1/n; 0
        requests pure epsilon, which Laplace noise has. With ``epsilon=inf`` no noise is added.
    mu : float
        Budget in Gaussian differential privacy, instead of `epsilon`.
    rho : float
        Budget in zCDP, instead of `epsilon`. With `mu` or `rho`, `delta` is the delta at which epsilon is
        reported.
    calibration : {"exact", "classic"}
        How epsilon and delta determine the noise; "classic" is the textbook formula, for reproduction only.
    rng : None, int or Generator
        None draws secure noise. A seed or a Generator draws simulation noise, which is not private.
    source : {"lattice", "opendp"}
        Sampler of secure noise: privinf's own, or OpenDP's.
    """

    epsilon: float | None
    delta: float | None
    mu: float | None
    rho: float | None
    calibration: Calibration | None
    rng: RngLike
    source: SourceName | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingOptions:
    """Options of the budget and the noise of one call of `fit` or `release`.

    Attributes
    ----------
    epsilon, delta, mu, rho : float or None
        Budget, in one of three ways.
    calibration : {"exact", "classic"} or None
        How epsilon and delta determine the noise. None: "exact".
    rng : None, int or Generator
        Seed of simulation noise, which is not private. None: secure noise.
    source : {"lattice", "opendp"} or None
        Sampler of secure noise. None: "lattice".
    """

    epsilon: float | None = None
    delta: float | None = None
    mu: float | None = None
    rho: float | None = None
    calibration: Calibration | None = None
    rng: RngLike = None
    source: SourceName | None = None

    def spending(self) -> SpendingWords:
        """Return the options of the budget and the noise that are not None, by name."""
        values = {name: getattr(self, name) for name in SpendingWords.__annotations__}
        return cast(SpendingWords, {name: value for name, value in values.items() if value is not None})


__all__ = [
    "Adjacency",
    "Alternative",
    "AnyPath",
    "ArrayLike",
    "BinaryMechanism",
    "BootstrapMethod",
    "Bounds",
    "Calibration",
    "ClipRule",
    "ColumnKind",
    "ColumnLike",
    "ColumnsLike",
    "CountTarget",
    "CovType",
    "CovWord",
    "CurvedFamily",
    "DiameterChoice",
    "Family",
    "Flags",
    "Floats",
    "Imputation",
    "Integers",
    "IntervalMethod",
    "IntervalNeed",
    "Json",
    "Label",
    "LabelChoice",
    "LabelKind",
    "LogRankWeights",
    "LossName",
    "Margins",
    "MarginsMethod",
    "Missing",
    "MixingKind",
    "MixingMethod",
    "MomentsCov",
    "Multipliers",
    "Names",
    "NoiseChoice",
    "Pair",
    "Pairs",
    "PartyColumns",
    "PeelingMethod",
    "PlainValue",
    "Precision",
    "Quantity",
    "Relation",
    "ResponseMode",
    "RngLike",
    "RowsRule",
    "SampleKind",
    "SamplingKind",
    "ScoreTarget",
    "SensitivityRule",
    "ShareMethod",
    "SitePairs",
    "SklearnModel",
    "SourceName",
    "SpendingOptions",
    "SpendingWords",
    "Stabilization",
    "SumRelation",
    "Table",
    "Target",
    "Trust",
    "TrustModel",
    "Variant",
    "Which",
]
