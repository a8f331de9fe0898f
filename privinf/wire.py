"""Texts and names that enter a digest, a key, a ledger line or a file: the wire constants.

A question's digest hashes its statistic, its arguments and the ledger line of its release, with the line's
label, mechanism, derivation, assumptions and noise; the noise of a trusted server belongs to that digest. The
folder of a fit is known by the texts of its plan. Change one letter here, and a stopped fit ends with "is of
another fit", seeded noise is other noise, and files of earlier versions are not read. So a text here is never
changed. A new one gets a line in ``tests/architecture/wire_constants.txt``, which lists them all.

What people read goes through `readable`, which may say the same in other words.

A text with ``{fields}`` is a template, filled by `str.format`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from numbers import Number
from pathlib import PurePath
from string import Formatter
from typing import Final

import numpy as np

from privinf.errors import ArgumentError

# ---- texts of ledger lines


class Labels:
    """What was released: the label of a ledger line, and of the question that the line pays for."""

    # moments
    MOMENTS: Final = "moments"
    RESIDUAL_MOMENTS: Final = "residual moments"
    RESIDUAL_MOMENTS_OF_UNITS: Final = "residual moments, of each {unit!r}"

    # records that are released one by one
    FEATURES: Final = "features"
    FEATURES_OF_ROUND: Final = "features, round {round}"
    FEATURE: Final = "feature {name}"
    RESPONSE: Final = "response {name}"
    LABEL: Final = "label {name}"
    ANSWER: Final = "label"
    SIGN: Final = "sign of one coordinate's mean"
    MIXED_ROWS: Final = "mixed rows"
    ROWS: Final = "rows"

    # generalised linear models: counts that choose bounds and clips
    VALUES_OUTSIDE: Final = "values outside bounds"
    COUNTS: Final = "counts of {quantity}"
    COUNTS_OF_COLUMNS: Final = "counts of columns"

    # generalised linear models: matrices and scores
    HESSIAN: Final = "Hessian"
    HESSIAN_OF_ROUND: Final = "Hessian, round {round}"
    FINAL_HESSIAN: Final = "final Hessian"
    SECOND_GRAM: Final = "second Gram matrix"
    MEAN_CURVATURE: Final = "mean curvature"
    START: Final = "start"
    SCORES: Final = "scores"
    SCORES_ABOVE: Final = "scores, upper layer"
    FIRST_SCORE: Final = "score, first round"
    SCORE_OF_ROUND: Final = "score, round {round}"
    SCORE_AND_HESSIAN_OF_ROUND: Final = "score and Hessian, round {round}"
    FINAL_SCORE: Final = "final score"
    GRADIENT: Final = "gradient"
    MEAT: Final = "meat"
    SQUARED_RESIDUALS: Final = "squared residuals"
    CELLS_OF_EVENTS: Final = "cells of events and censored records"
    DISPERSION: Final = "dispersion"
    SLOPE_OF_DISPERSION: Final = "dispersion, slope"
    MEAT_OF_DISPERSION: Final = "dispersion, variance of the equation"

    # debiased lasso: the rows, the response and the columns
    COMPLETE_ROWS: Final = "number of complete rows"
    MEAN_OF_RESPONSE: Final = "mean of the response"
    MEAN_RESPONSE: Final = "mean response"
    FIRST_SCALE_OF_RESPONSE: Final = "first scale of the response"
    SCALE_OF_RESPONSE: Final = "scale of the response"
    SIZES_OF_COLUMNS: Final = "sizes of columns"
    MEANS_OF_COLUMNS: Final = "means of columns"
    MEANS_OF_COLUMNS_AGAIN: Final = "means of columns, again"
    MEANS_IN_PLAY: Final = "means of columns in play"
    MEANS_OF_COLUMNS_OF_SITE: Final = "means of columns at one site"

    # debiased lasso: the sparse fit
    SELECTION: Final = "selection"
    SELECTION_OF_SHARED_PART: Final = "selection of the shared part"
    SELECTION_OF_OWN_PARTS: Final = "selection of own parts"
    GRAM_OF_SELECTION: Final = "Gram matrix of the selection"
    MATRIX_OF_SELECTION: Final = "matrix of the selection"
    STEP_OF_REFIT: Final = "step of the refit"
    SCALE_OF_RESIDUALS: Final = "scale of residuals"
    GRAM_OF_ALL_COLUMNS: Final = "Gram matrix of all columns"
    GRAM_OF_SOME_COLUMNS: Final = "Gram matrix of some columns"

    # debiased lasso: columns that may have been missed
    SUSPECT: Final = "the most suspicious column"
    GRAM_OF_SUSPECT: Final = "Gram matrix of the suspect"
    SCORE_OF_SUSPECT: Final = "score of the suspect"

    # debiased lasso: regressions of targets on their neighbours
    GRAM_OF_SELECTION_AND_TARGETS: Final = "Gram matrix of the selection and the targets"
    GRAM_OF_TARGETS_AND_NEIGHBOURS: Final = "Gram matrix of targets and neighbours"
    GRAM_OF_PRECISION_COLUMNS: Final = "Gram matrix of the precision columns"
    GRAMS_OF_NEIGHBOURS: Final = "Gram matrices of the targets' neighbours"
    SECOND_GRAMS_OF_NEIGHBOURS: Final = "second Gram matrices of the neighbours"
    NEIGHBOURS: Final = "neighbours of the targets"
    EFFECTS_OF_NEIGHBOURS: Final = "effects of the neighbours"
    SIZES_OF_TARGET_RESIDUALS: Final = "sizes of targets' residuals"
    TAILS_OF_TARGET_RESIDUALS: Final = "tails of the targets' residuals"
    RESIDUALS_OF_TARGETS: Final = "residuals of the targets"
    PRODUCTS_WITH_SELECTED: Final = "products with the selected columns"

    # debiased lasso: the scores of the targets
    MEAN_OF_RESIDUALS: Final = "mean of the residuals"
    MEANS_OF_FORMS: Final = "means of the forms of the targets"
    COUNTS_OF_SCORES: Final = "counts of the scores"
    DEBIASING_SCORES: Final = "debiasing scores"
    DEBIASING_SCORES_ABOVE: Final = "debiasing scores, upper layer"
    DEBIASING_SCORES_AND_SQUARES: Final = "debiasing scores with variances and slopes"
    SLOPES_OF_SCORES: Final = "slopes of the scores"
    VARIANCES_OF_SCORES: Final = "variances of the scores"
    SQUARES_OF_SCORES: Final = "squares of the scores"

    # debiased lasso: extras
    BOOTSTRAP_VARIANCES: Final = "variances of the bootstrapped scores"
    BOOTSTRAP_DRAWS: Final = "bootstrap draws"
    RESTRICTED_EIGENVALUE: Final = "{name} restricted eigenvalue"
    NOISE_VARIANCE: Final = "noise variance"

    # means, tests and distributions
    SUMS: Final = "sums"
    MEAN: Final = "mean of {name}"
    SHARE: Final = "share of {name}"
    BY: Final = "{values} by {groups}"
    TWO_SAMPLES: Final = "two samples"
    CELLS_OF: Final = "counts of {names}"
    TOTAL: Final = "sum of {name}"
    SURVIVAL_CELLS: Final = "events and censored records by time of {name}"
    CORRELATION: Final = "correlation of {first} and {second}"
    SIGNED_RANKS: Final = "signed ranks of {name}"
    QUANTILES: Final = "quantiles of {name}"
    DESCRIBED_SUMS: Final = "describe, sums of {name}"
    DESCRIBE: Final = "describe"
    FIND_BOUNDS: Final = "find_bounds"
    SCALAR: Final = "scalar"
    TOP_K: Final = "top k"

    # parts of a release that has a label
    ITS_VALUES: Final = "{label}, values"
    ITS_VECTORS: Final = "{label} ({times} vectors)"
    ITS_FIRST_LOOK: Final = "{label}, first look"
    ITS_CLIP: Final = "{label}, its clip"
    ITS_DISTRIBUTION: Final = "{label}, distribution of {name}"
    ITS_LEVELS: Final = "{label}, levels of {name}"


class Derivations:
    """Why a sensitivity holds."""

    # what stands around a statistic's own derivation
    OF_STATISTIC: Final = "{op}: {derivation}"
    OF_MASKED_STATISTIC: Final = "{op}: {derivation}; rounding"
    OF_ENTRIES: Final = "{derivation}; {k} entries"
    OF_SITE: Final = "{rows} records of one site: {derivation}"
    CLIPPED_SITE: Final = "2C, the total of a site clipped to C = {clip:g}"

    # vectors and matrices that several statistics have
    RUNNING_SUMS: Final = "two columns of the square root of running sums"
    SURVIVAL_CELLS: Final = "two columns of the square root of suffix sums, of events or censored records"
    RANK_ONE: Final = "distance of two bounded rank-one matrices"
    CLIPPED_RANK_ONE: Final = "Frobenius distance of two clipped rank-one matrices"
    LAYER: Final = "2 (b - a), a layer of scores between norms a and b"

    # second moments
    MOMENTS: Final = "Frobenius distance of two records' second moments"
    RESIDUAL_MOMENTS: Final = "Frobenius distance of two records' residual moments"
    UNIT_SCORES: Final = "sqrt 2 C^2, of units' scores of norm up to C"
    RECORD_MOMENTS: Final = "replace-one Frobenius distance of the record's {label}"

    # generalised linear models
    SCORES_AT_THETA: Final = "diameter of the scores at theta"
    SCORES: Final = "2RE, |u| <= R, |r| <= E"
    SKETCHED_SCORES: Final = "2C, |z| <= C"
    ONE_DIRECTION: Final = "score and matrix of one direction a record, at once"
    LAYER_OF_SCORES: Final = "2C, a layer of the scores of norm C at most"
    HAZARD_SCORES: Final = "2B, scores up to a stop, weighted and shrunk to norm B"
    TRACE: Final = "sqrt 2 K, two positive semidefinite matrices of trace at most K"
    BETWEEN_ENDS: Final = "high - low, values clipped to [low, high]"
    SQUARED_RESIDUAL: Final = "E^2, the square of a clipped residual"
    MARKS_OUTSIDE: Final = "sqrt k, marks of k values that are outside or not"

    # sparse regression
    PRODUCTS: Final = "2B, products clipped to [-B, B]"
    LOGISTIC_PRODUCTS: Final = "2B, |clip(x_j, B / q)| |y - m| <= B"
    COLUMN_PRODUCTS: Final = "2c^2, factors clipped to [-c, c]"
    CLIPPED_SCORE: Final = "2CR, |u| <= C and |r| <= R"
    SLOPES: Final = "2cC, |u| <= C and |x_j| <= c"
    SCORE_VARIANCES: Final = "nonnegative entries with sum at most (CR)^2"
    HISTOGRAM: Final = "a record moves from one cell to another"
    SQUARED_RESIDUALS: Final = "R^2, squares in [0, R^2]"
    RESIDUALS: Final = "2R, residuals clipped to [-R, R]"
    COLUMN_SUMS: Final = "2c, columns clipped to [-c, c]"
    COLUMN_SQUARES: Final = "c^2, squares in [0, c^2]"
    SHRUNK_PRODUCTS: Final = "2D, vectors of products shrunk to norm D"
    SHRUNK_ROWS: Final = "2C, rows shrunk to |x_A| <= C"
    COUNTS_OUTSIDE: Final = "sqrt k, counts of values that are outside or not"
    COMPLETE_ROWS: Final = "a record is complete or not"
    TARGET_SCORES: Final = (
        "sqrt(m (4 + 9/4 c^2) + 9/4 g^2), scores in [-1, 1], slopes in [-c/2, c] and [-g/2, g]"
    )
    BOOTSTRAP_VARIANCES: Final = "R_w^2 R^2"
    MULTIPLIERS: Final = "2 R_w R max|e|"
    QUADRATIC_FORMS: Final = "R_v^2"
    FORM_SUMS: Final = "2c sqrt m, m forms clipped to [-c, c]"
    PRODUCT_VECTORS: Final = "2C, vectors of clipped products shrunk to |f| <= C"
    COLUMN_PRODUCT_VECTORS: Final = "2C, products shrunk to |a| |b| <= C"

    # means, tests and distributions
    PARABOLA: Final = "two points of the parabola (u, c u^2), u in [-1, 1], c^2 = phi^5/4"
    GROUP_SUMS: Final = "a record (1, u, 1 - u^2), of squared norm at most 2, moves to another group"
    SHARE: Final = "a record counts from 0 to 1"
    CELLS: Final = "a record moves to another cell"
    MARGINS: Final = "a record moves to another cell, another row and another column, each with its weight"
    GROUP_DISTRIBUTIONS: Final = "two columns of the square root of prefix sums, of two groups"
    PAIRS: Final = "two records (a u, a v, b u^2, b v^2, u v), l2 from (1, 1) to (1, -1)"
    TWO_RANKED: Final = "a record passes all n - 1 others, of the other group, or changes its group"
    MANY_RANKED: Final = "n - 1 pairs of records, each of which moves two rank sums by 1 at most"
    SIGNED_RANKS: Final = "n signs of Walsh sums, over n"
    COMPLETE_PARABOLA: Final = (
        "zero or a point (a, u, c (1 - u^2)), u in [-1, 1], c^2 = phi^5/4, a^2 = 4 - c^2"
    )
    COMPLETE_GROUPS: Final = (
        "a record (1, u, 1 - u^2), squared norm 2 at most, moves to another group or to none"
    )
    COMPLETE_SHARE: Final = "zero or a record (3^.5/2, u/2), u in [-1, 1]"
    COMPLETE_CELLS: Final = "a record moves to another cell or to that of records without a value"
    COMPLETE_PAIRS: Final = "zero or records (1.52, a u, a v, b (1 - u^2), b (1 - v^2), u v), l2 as of pairs"
    COMPLETE_TWO_RANKED: Final = (
        "a record passes n - 1 others, changes its group, or loses n - 1 pairs of ranks"
    )
    COMPLETE_MANY_RANKED: Final = "n - 1 pairs of records, which are turned, or lost by one count less"
    COMPLETE_SIGNED_RANKS: Final = (
        "n signs of Walsh sums, over n, which are turned, or lost by one count less"
    )
    PREFIX_SUMS: Final = "replace-one distance of two columns of the square root of prefix sums"
    LEVEL_COUNTS: Final = "replace-one: two counts move by 1"

    # records that are released one by one
    RANGE_OF_RESPONSE: Final = "public range of the response"
    RANGE_OF_LABEL: Final = "public range of the label"
    FEATURE_SET: Final = "diameter of the public set of {names}"
    MODULATED: Final = "{factor} * {distance}"
    CONTRACTION: Final = "(1-contraction)"
    CONTRACTION_AND_WAVES: Final = "(1-contraction + amplitude*frequency/sqrt(directions))"
    PUBLIC_DIAMETER: Final = "public diameter"
    UNIT_DISTANCE: Final = "unit distance"
    ANY_TWO_LEVELS: Final = "any two of the {levels} public levels"
    PARTY: Final = "replace-one diameter of the party's {width} scaled column(s)"

    # numbers of the caller's
    ANY_ENTRY: Final = "replace-one change of any entry"
    ONE_NUMBER: Final = "replace-one change of the number"


class Assumptions:
    """What a privacy claim rests on."""

    PUBLIC_N: Final = "the number of records is public (replace-one)"
    PUBLIC_SITES: Final = (
        "which site or machine a record is at is public, as are their names and numbers of records"
    )
    PUBLIC_PLACES: Final = "the order of the rows is public: what is protected had no part in it"
    PUBLIC_ROWS: Final = "which rows belong to one unit is public"
    NOTHING_ADDED: Final = (
        "the number of records is public; a record is replaced by one that contributes nothing"
    )
    PUBLIC_CLIENTS: Final = (
        "the sites and their numbers of records are public; one site is replaced as a whole"
    )
    NO_CLIENT: Final = (
        "the sites and their numbers of records are public; one site contributes nothing instead"
    )
    DATA_BOUNDS: Final = "bounds were taken from the data: the claim does not cover them"
    CLEAR_RESPONSE: Final = "covers features only; y released in clear"
    # secure sums
    HONEST_SITES: Final = (
        "the sites on the roster follow the protocol, except for so many as are counted as colluding"
    )
    UNIFORM_MASKS: Final = "masks are indistinguishable from uniform words (X25519, HKDF-SHA256, ChaCha20)"
    # parties, and machines that answer by one sign
    SAME_PEOPLE: Final = "who is in the table is public, and every party holds the same people"
    PER_PARTY: Final = "per party: its own columns; the totals per person add all parties"
    PUBLIC_MACHINES: Final = "the numbers of machines and of their rows are public"
    PUBLIC_COORDINATE: Final = "which coordinate a machine is asked about does not depend on data"


# Words of digests of queries for the trust of a ledger line.
TRUST_IN_DIGESTS: Final[Mapping[str, str]] = {"server": "central", "secure-sum": "distributed"}
# Assumptions that digests of queries leave out.
ASSUMED_LATER: Final = (Assumptions.PUBLIC_SITES, Assumptions.PUBLIC_PLACES)


class Reasons:
    """Why a fit will have no intervals: part of its plan, by which the folder of a stopped fit is known."""

    TOO_MANY_COEFFICIENTS: Final = (
        "no intervals: the noise would hide the Hessian of {coefficients}, and nothing tells how far off the "
        "coefficients are; {enough} would do, or {others}"
    )
    BINDING_CLIP: Final = (
        "no intervals: client_clip may shrink a site's score, and nobody may know whether it did, so that "
        "the bias is not known: leave it out, or state the most that a site's rows can reach"
    )


class Mechanisms:
    """How a release was made: the mechanism of a ledger line."""

    GAUSSIAN: Final = "gaussian"
    LAPLACE: Final = "laplace"
    PEELING: Final = "{method} peeling"
    GUMBEL_PEELING: Final = "gumbel peeling"
    LAPLACE_PEELING: Final = "laplace peeling"
    RANDOMIZED_RESPONSE: Final = "randomized response"
    MODULATED_GAUSSIAN: Final = "modulated gaussian"


class NoiseLaws:
    """The law of a ledger line's noise."""

    NONE: Final = "none"
    GAUSSIAN: Final = "gaussian"
    DISCRETE_GAUSSIAN: Final = "discrete gaussian"
    LAPLACE: Final = "laplace"
    DISCRETE: Final = "discrete {law}"
    DISCRETE_LAPLACE: Final = "discrete laplace"
    GUMBEL: Final = "gumbel"
    RANDOMIZED_RESPONSE: Final = "randomized response"


class NoiseSources:
    """Who drew the noise of a ledger line."""

    NONE: Final = "none"
    LATTICE: Final = "lattice"
    OPENDP: Final = "opendp"
    SIMULATION: Final = "simulation"


class Norms:
    """In which norm the sensitivity of a ledger line is."""

    L1: Final = "l1"
    L2: Final = "l2"
    LINF: Final = "linf"
    DISCRETE: Final = "discrete"


# ---- names of questions


class Statistics:
    """What a site may be asked for: the names in the catalogue of statistics."""

    # second moments
    MOMENTS_TOTAL: Final = "moments.total"
    MOMENTS_RESIDUAL: Final = "moments.residual"
    # generalised linear models
    GLM_SCORE: Final = "glm.score"
    GLM_HESSIAN: Final = "glm.hessian"
    GLM_MEAT: Final = "glm.meat"
    GLM_SKETCHED_SCORE: Final = "glm.sketched_score"
    # least squares in whitened units
    WHITENED_COUNTS: Final = "whitened.counts"
    WHITENED_COLUMNS: Final = "whitened.columns"
    WHITENED_MOMENTS: Final = "whitened.moments"
    WHITENED_GRAM: Final = "whitened.gram"
    WHITENED_HESSIAN: Final = "whitened.hessian"
    WHITENED_SCORE: Final = "whitened.score"
    WHITENED_MEAT: Final = "whitened.meat"
    WHITENED_SQUARE: Final = "whitened.square"
    # other families in whitened units
    CURVED_START: Final = "curved.start"
    CURVED_STEP: Final = "curved.step"
    CURVED_COUNTS: Final = "curved.counts"
    CURVED_SCORE: Final = "curved.score"
    CURVED_MEAT: Final = "curved.meat"
    CURVED_SECANT: Final = "curved.secant"
    CURVED_DISPERSION: Final = "curved.dispersion"
    CURVED_DISPERSION_MEAT: Final = "curved.dispersion_meat"
    VALUES_OUTSIDE: Final = "values_outside"
    # proportional hazards in whitened units
    HAZARDS_COUNTS: Final = "hazards.counts"
    HAZARDS_SCORE: Final = "hazards.score"
    HAZARDS_MEAT: Final = "hazards.meat"
    HAZARDS_SECANT: Final = "hazards.secant"
    # sparse regression
    CLIPPED_PRODUCTS: Final = "clipped_products"
    COLUMN_PRODUCTS: Final = "column_products"
    LOGISTIC_PRODUCTS: Final = "logistic_products"
    PRODUCT_VECTOR: Final = "product_vector"
    COLUMN_PRODUCT_VECTOR: Final = "column_product_vector"
    UNION_GRAM: Final = "union_gram"
    CLIPPED_SCORE: Final = "clipped_score"
    SLOPES: Final = "slopes"
    SCORE_VARIANCES: Final = "score_variances"
    RESIDUAL_HISTOGRAM: Final = "residual_histogram"
    SQUARED_RESIDUALS: Final = "squared_residuals"
    RESIDUAL_SUM: Final = "residual_sum"
    COLUMN_SUMS: Final = "column_sums"
    COLUMN_SQUARES: Final = "column_squares"
    SHRUNK_SUMS: Final = "shrunk_sums"
    COLUMNS_OUTSIDE: Final = "columns_outside"
    COMPLETE_ROWS: Final = "complete_rows"
    LAYERS_COUNTS: Final = "layers.counts"
    LAYERS_SCORE: Final = "layers.score"
    LAYERS_MEAT: Final = "layers.meat"
    LAYERS_SLOPES: Final = "layers.slopes"
    TARGET_SCORES: Final = "target_scores"
    PAPER_VARIANCES: Final = "paper_variances"
    QUADRATIC_FORMS: Final = "quadratic_forms"
    FORM_SUMS: Final = "form_sums"
    MULTIPLIER_SCORES: Final = "multiplier_scores"
    # survival analysis
    SURVIVAL_CELLS: Final = "survival.cells"


class Requests:
    """Questions that are not of a statistic."""

    DESCRIBE: Final = "describe"
    DESIGN: Final = "design"
    RESERVE: Final = "reserve"
    END: Final = "end"


class Places:
    """Texts that tell a question, a place in a ledger or a key from others: they are hashed."""

    # of a fit's folder
    FIT: Final = "fit"
    OF_MODEL: Final = "model.{name}"
    OF_SETTING: Final = "setting.{position}"
    CURVED_FIT: Final = "curved"
    MARGINS_OF_FIT: Final = "margins"
    DISPERSION_OF_FIT: Final = "mixed counts"
    QUESTION_OF_FIT: Final = "{label} {mu!r} {terms}"
    KNOWN_AS: Final = "{digest} {words}"
    # how a server makes its releases
    TRUSTED: Final = "trusted, {relation}"
    MASKED: Final = "masked, {relation}, {colluding} colluding, grid {grid}"
    # partitions of a ledger, and lines in it; sites hold different rows within one session, and in another
    # one a name may stand for other people
    SITES_OF_SESSION: Final = "site in session {session}"
    BATCH: Final = "batch of {batches} by seed {seed}"
    AT_SITE: Final = "{partition} at {site}"
    LINE_OF_SITE: Final = "{line} {site}"
    LINE_OF_QUESTION: Final = "{session} {sequence}"
    # streams of simulation noise
    STREAM: Final = "{what} {position}"
    SEED_OF_MASKED_SUM: Final = "seed"


class Keys:
    """What keys are derived, and messages signed, for; and how messages begin."""

    NOISE: Final = b"privinf noise 1"
    MASKED_SUM: Final = b"privinf masked sum 1:"
    IDENTITY: Final = b"privinf identity key"
    SIGNING: Final = b"privinf ed25519 identity 1"
    FRAME: Final = b"privinf2"
    SIGNED: Final = "privinf {what} 1\n{content}"


# ---- files


class Formats:
    """Names of the formats of files and messages."""

    CONTAINER: Final = "privinf-container"
    RESULTS: Final = "privinf-results"
    RELEASE: Final = "privinf-release"
    ROWS: Final = "privinf-rows"
    CHECKPOINT: Final = "privinf-checkpoint"
    LEDGER: Final = "privinf-ledger"
    SITE_LEDGER: Final = "privinf-site-ledger"
    ANCHOR: Final = "privinf-anchor"
    NOISE_KEY: Final = "privinf-noise-key"
    HEADS: Final = "privinf-heads"
    ROSTER: Final = "privinf-roster"
    MIXING_PLAN: Final = "privinf-mixing-plan"
    SITE_BUNDLE: Final = "privinf-site-bundle"
    SURVIVAL: Final = "privinf-survival"
    FEDERATION: Final = "privinf-federation"
    # JSON of results
    FIT: Final = "privinf-result"
    TEST: Final = "privinf-test"
    TABLE: Final = "privinf-table"
    # name of the field of a Parquet file
    PARQUET_KEY: Final = b"privinf"


# ---- texts of plans, which digests of fits hash


class PlanClass:
    """How a class of plans is written: its name, and the name of each field, in order.

    Parameters
    ----------
    name : str
        As it is hashed.
    **fields : str or None
        For every field of the class the name that is hashed; None for a field that is left out.
    """

    __slots__ = ("fields", "name")

    def __init__(self, name: str, /, **fields: str | None) -> None:
        self.name = name
        self.fields = fields


_FIRST_ORDER: Final[dict[str, str | None]] = {
    "epochs": "epochs",
    "batches": "batches",
    "step": "step",
    "clip": "clip",
    "average": "average",
    "final_share": "final_share",
}

# By the name of the class in the code. Where a class or a field of the code is renamed, the left side here
# follows, and the right side stays.
PLAN_CLASSES: Final[Mapping[str, PlanClass]] = {
    "FitPlan": PlanClass(
        "FitPlan",
        mu="mu",
        rounds_mu="rounds_mu",
        final_mu="final_mu",
        delta="delta",
        optimizer="optimizer",
        public_seed="public_seed",
        clients="clients",
        robust="robust",
        block="block",
        weak="weak",
        least_squares=None,  # these four are settings of their own, where they are asked for
        curved=None,
        margins=None,
        dispersed=None,
    ),
    "LeastSquaresOptions": PlanClass(
        "Looks", rule="rule", clip="clip", target="target", robust="robust", adapt_bounds="adapt"
    ),
    "Clients": PlanClass("Clients", rows="rows", clip="clip"),
    "Newton": PlanClass("Newton", rounds="rounds", final_share="final_share"),
    "DPSGD": PlanClass("DPSGD", **_FIRST_ORDER),
    "DPAdam": PlanClass("DPAdam", **_FIRST_ORDER),
    "RandomSketch": PlanClass("RandomSketch", **_FIRST_ORDER, k="k"),
    "DOME": PlanClass(
        "DOME",
        **_FIRST_ORDER,
        k="k",
        most_learned="most_learned",
        energy="energy",
        variant="variant",
        centre="centre",
        precondition="precondition",
        probes="probes",
        adam="adam",
    ),
}

# Options of ``privinf release`` as the digest of a command's arguments has them, by their names in the code.
RELEASE_OPTIONS: Final[Mapping[str, str]] = {
    "plan_file": "plan_file",
    "party": "party",
    "schema_file": "schema_file",
    "formula": "formula",
    "terms": "terms",
    "data": "data",
    "out": "out",
    "epsilon": "epsilon",
    "delta": "delta",
    "mu": "mu",
    "rho": "rho",
    "roster": "roster",
    "missing": "missing",
    "seed": "seed",
}


def plan_text(value: object) -> str:
    """Return the text of a setting that a digest hashes: what `repr` gave when the digest was first made.

    Parameters
    ----------
    value : None, bool, number, str, path, tuple or list of such, or a plan
        A plan is an instance of one of `PLAN_CLASSES`.

    Raises
    ------
    ArgumentError
        The value is of another class, or a plan has fields that its row of `PLAN_CLASSES` does not name: a
        text that forgets a setting would take two fits for one.
    """
    if value is None or isinstance(value, (Number, str, np.generic)):
        return repr(value)
    if isinstance(value, PurePath):
        return f"{type(value).__name__}({value.as_posix()!r})"
    if isinstance(value, (tuple, list)):
        entries = ", ".join(map(plan_text, value))
        if isinstance(value, list):
            return f"[{entries}]"
        return f"({entries},)" if len(value) == 1 else f"({entries})"
    name = type(value).__name__
    plan_class = PLAN_CLASSES.get(name)
    if plan_class is None or not is_dataclass(value):
        raise ArgumentError(
            f"a plan cannot hold a value of type {name}: use numbers, texts, lists, tuples or mappings"
        )
    if {one.name for one in fields(value)} != plan_class.fields.keys():
        raise ArgumentError(
            f"the entry {name!r} of privinf.wire.PLAN_CLASSES must list exactly the fields of the "
            f"class {name}"
        )
    parts = (
        f"{wire}={plan_text(getattr(value, field))}"
        for field, wire in plan_class.fields.items()
        if wire is not None
    )
    return f"{plan_class.name}({', '.join(parts)})"


# ---- what people read

# What is shown in the place of a wire text: by text, or by template; the template that is shown has the same
# fields.
SHOWN_AS: Final[dict[str, str]] = {
    # labels
    Labels.SCORES_ABOVE: "scores between the two clipping thresholds",
    Labels.SECOND_GRAM: "Gram matrix, second release",
    Labels.MEANS_OF_COLUMNS_AGAIN: "means of columns, second release",
    Labels.MEANS_IN_PLAY: "means of the columns in the fit",
    Labels.SELECTION_OF_SHARED_PART: "selection of the shared coefficients",
    Labels.SELECTION_OF_OWN_PARTS: "selection of the site effects",
    Labels.SUSPECT: "candidate for an omitted column",
    Labels.GRAM_OF_SUSPECT: "Gram matrix of the candidate column",
    Labels.SCORE_OF_SUSPECT: "score of the candidate column",
    Labels.GRAM_OF_TARGETS_AND_NEIGHBOURS: "Gram matrix of targets and neighbors",
    Labels.GRAM_OF_PRECISION_COLUMNS: "Gram matrix of the nodewise regressions",
    Labels.GRAMS_OF_NEIGHBOURS: "Gram matrices of the targets' neighbors",
    Labels.SECOND_GRAMS_OF_NEIGHBOURS: "Gram matrices of the neighbors, second release",
    Labels.NEIGHBOURS: "neighbors of the targets",
    Labels.EFFECTS_OF_NEIGHBOURS: "effects of the neighbors",
    Labels.DEBIASING_SCORES_ABOVE: "debiasing scores between the two clipping thresholds",
    Labels.ITS_FIRST_LOOK: "{label}, initial estimate",
    Labels.ITS_CLIP: "{label}, clipping threshold",
    # derivations
    Derivations.LAYER: "2 (b - a), scores between norms a and b",
    Derivations.LAYER_OF_SCORES: "2C, scores between two clipping thresholds, of norm C at most",
    Derivations.ONE_DIRECTION: "score and matrix of one direction per record, jointly",
    Derivations.MARKS_OUTSIDE: "sqrt k, indicators of k values outside their bounds",
    Derivations.COUNTS_OUTSIDE: "sqrt k, counts of k indicators of values outside their bounds",
    # assumptions
    Assumptions.PUBLIC_SITES: (
        "the site of each record is public, as are the names of the sites and their numbers of records"
    ),
    Assumptions.PUBLIC_PLACES: "the order of the rows is public and does not depend on protected values",
    Assumptions.PUBLIC_CLIENTS: (
        "the sites and their numbers of records are public; "
        "neighboring tables differ in all records of one site"
    ),
    Assumptions.DATA_BOUNDS: "bounds were taken from the data, and the privacy guarantee does not cover them",
    Assumptions.CLEAR_RESPONSE: (
        "y is NOT protected: it is released without noise, and the guarantee covers features only"
    ),
    Assumptions.HONEST_SITES: (
        "the declared sites follow the protocol, except for the declared number of sites that may collude"
    ),
    Assumptions.SAME_PEOPLE: (
        "the list of people in the table is public, and all parties' tables contain the same people"
    ),
    Assumptions.PER_PARTY: (
        "the guarantee of a party covers only its columns; totals per person add all parties' guarantees"
    ),
    Assumptions.PUBLIC_MACHINES: "the number of sites and their numbers of rows are public",
    Assumptions.PUBLIC_COORDINATE: "the coordinate that a site is asked for does not depend on data",
    # reasons
    Reasons.TOO_MANY_COEFFICIENTS: (
        "no intervals: the noise would hide the Hessian of {coefficients}, so the error of the "
        "coefficients would be unknown; {enough} would be enough, or {others}"
    ),
    Reasons.BINDING_CLIP: (
        "no intervals: client_clip= may shrink a site's score, and whether it did must stay private, so the "
        "bias is unknown; leave client_clip= out, or pass the largest norm that a site's rows can have"
    ),
}


def readable(text: str) -> str:
    """Return a label, derivation or assumption as people read it: in reports, summaries, tables, messages.

    What is hashed, compared or stored is the text itself. Fields of a template are texts to read, too.
    """
    if text in SHOWN_AS:
        return SHOWN_AS[text]
    for template, shown in SHOWN_AS.items():
        if filled := pattern(template).fullmatch(text):
            return shown.format(**{name: readable(part) for name, part in filled.groupdict().items()})
    return text


@cache
def pattern(template: str) -> re.Pattern[str]:
    """Return the pattern of the texts that a template gives, with a named group for each of its fields."""
    parts = []
    for literal, field, _, _ in Formatter().parse(template):
        parts += [re.escape(literal), "" if field is None else f"(?P<{field}>.+?)"]
    return re.compile("".join(parts), re.DOTALL)
