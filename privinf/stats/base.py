"""Shared parts of all tests: named columns, options, and results with their summary."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass, replace
from itertools import product
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from privinf.accounting import Ledger, PrivacyReport
from privinf.completeness import CompleteRows
from privinf.error_boundary import error_boundaries, warn
from privinf.errors import (
    ArgumentError,
    ChangedTargetWarning,
    LargeDeltaWarning,
    NotAvailableError,
    SchemaError,
    SensitivityError,
    StorageError,
)
from privinf.inference.counts import joint_level
from privinf.mechanisms.blocks import table_rows
from privinf.mechanisms.rows import Rows
from privinf.mechanisms.samples import SampleQuery, SampleSums, release_sample, sample_rows
from privinf.results.export import PortableTest, caution_kind, caution_kinds
from privinf.results.notes import (
    DROPPED_VALUE,
    IMPUTED_SAMPLE,
    IMPUTED_VALUE,
    IMPUTING,
    MISSING_LABEL,
    Note,
    complete_sample_notes,
    ranked,
    sentence,
)
from privinf.results.paper_table import ERRORS, PaperTable, PortablePaperTable, privacy_note
from privinf.results.rendering import (
    NO_FILE_OF_TEST,
    PrivateSummary,
    PvalueBound,
    SummaryColumn,
    shown_pvalue,
    unavailable,
)
from privinf.results.summary import (
    NOT_PRIVATE,
    default_delta_notes,
    large_delta,
    number,
    observations_label,
    privacy_facts,
)
from privinf.schema import Factor, Schema
from privinf.schema.table import check_schema
from privinf.stats.values_at_bounds import Cautions
from privinf.typing import (
    Alternative,
    CountTarget,
    Missing,
    NoiseChoice,
    Pair,
    SpendingOptions,
    SummaryNotes,
    Table,
)
from privinf.validation import check_choice, check_flag, check_fraction
from privinf.wire import readable

if TYPE_CHECKING:
    import pandas as pd

NOT_A_SHARE = "column {!r} is not declared with two values: declare it with bounds (0, 1), or with two levels"
NOT_LEVELS = (
    "column {0!r} is declared with bounds, and counts and groups need levels: declare its levels in the "
    "schema, as in pi.Factor([...]). pi.stats.histogram({0!r}, bins=...) counts the values in intervals"
)
TABLE_ESTIMATES = (
    "The estimates are those of this table: standard errors and intervals allow for the noise, not for "
    "sampling."
)
OTHER_PICKLE = (
    "the pickled {} was made by another version of privinf, whose results have other fields: load it with "
    "that version, and store its numbers there with to_json()"
)
TEST_INTERVALS = (
    "table has all estimates with their intervals, and rows[0].low and rows[0].high are those of the first "
    "one. Means, quantiles and differences of two groups have confidence_interval(level)"
)
ESTIMATES_ONLY = "table has its estimates with their intervals"
TEST_ESTIMATES = "a test has statistic, pvalue and df, and its estimates are in table"
COHENS_D = "Cohen's d"
NO_EFFECT_INTERVAL = "not available"
SIMULATED_PVALUE = "The p-value comes from simulated releases, so it cannot be below {:.4g}."
TWO_LEVELS = "{0!r} has two levels: 1 = {1!r}, and 0 is the other one, so its mean is the share of {1!r}."
JOINT = "All {} intervals hold together at the level."
LAPLACE_COST = (
    "The noise is Laplace noise, which counts with mu = {:.3g} when several releases are composed. Gaussian "
    "noise of the same epsilon has a smaller mu; it is the default with a ledger."
)
NO_GROUPS = "levels= and simultaneous= are for groups: pass by=, or leave them out"
# Of methods of results without groups.
JOINT_TABLES = (
    "intervals of a table of several groups are made jointly by simultaneous=True in the call that returned "
    "the result"
)
NO_BOUNDS = (
    "{!r} has no public bounds. Pass bounds= (for groups, pass levels=), or pass names of columns instead of "
    "values, together with data= and schema="
)
NOT_A_FORMULA = (
    "{!r} is a formula, which this function does not take: pass the names of the columns one by one (the "
    "groups as by=, or as the second argument), together with data= and schema="
)
A_TABLE = (
    "{}= is a table: pass the name of one of its columns, and the table as data= together with schema=; "
    "pi.stats.describe takes several columns"
)
SEVERAL_NAMES = (
    "{}= must be one column, not several: pass one name, or use pi.stats.describe for several columns of "
    "numbers and pi.stats.crosstab for counts by two factors"
)
NAMES_OR_ARRAYS = (
    "columns must all be names of columns in data=, or all be arrays; data= cannot be combined with arrays"
)
ONE_COLUMN = (
    "data= must be a table, not one column: pass the whole table, or pass the column as an array together "
    "with bounds= or levels="
)
A_FEDERATION = (
    "data= is a federation, and the functions of pi.stats read the table of one curator: fit a model such as "
    "pi.OLS (the means of groups are a regression on their factor) or pi.survival.KaplanMeier to the "
    "federation, or release a sum by SecureServer(federation).vector_sum(...)"
)
TABLE_AS_DATA = "{}= is a table: pass the table as data=, after the other arguments or by its name"
TABLE_TWICE = "the table was passed twice, after the formula and as data="
# What callers of a function of one column, with by=, may expect.
COLUMN_REFUSALS = {
    "groups": "is not an argument here: pass the column of the groups as by=",
    "columns": "is not an argument here: pass one column, or use pi.stats.describe for several",
    "data": "was passed twice, as the second argument and by its name: pass the groups as by=",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleOptions(SpendingOptions):
    """Options that every function of `privinf.stats` has in addition to its own arguments.

    Attributes
    ----------
    data : table or None
        Table of the columns that are named by texts.
    schema : Schema or None
        Its public bounds and levels.
    missing : {"raise", "impute-public", "drop"}
        Refuse missing values, replace them by the middle of the bounds (the first level), or drop rows that
        have them.
    noise : {"auto", "gaussian", "laplace"}
        "auto": Laplace noise with ``delta=0``, or outside of a ledger where it is the smaller one; else
        Gaussian noise, which composes better.
    ledger : Ledger or None
    """

    data: Table = None
    schema: Schema | None = None
    missing: Missing = "raise"
    noise: NoiseChoice = "auto"
    ledger: Ledger | None = None


@dataclass(frozen=True, slots=True, eq=False)
class SampleRequest:
    """Rows that a test uses, their public bounds, and its budget.

    Notes
    -----
    **Privacy.** This class holds rows and passes them on; only `privinf.mechanisms` reads them.
    """

    rows: Rows
    schema: Schema
    options: SampleOptions

    def release(self, query: SampleQuery) -> SampleSums:
        """Release the sums of a query once."""
        options = self.options
        noise: NoiseChoice = or_default(options.noise, "auto")
        return release_sample(
            self.rows, self.schema, query, options.spending(), noise=noise, ledger=options.ledger
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalOptions:
    """Target and level of intervals, and whether they hold jointly."""

    level: float
    target: CountTarget = "population"
    simultaneous: bool = False

    @classmethod
    def checked(cls, target: CountTarget, confidence_level: float, simultaneous: bool) -> Self:
        """Return the options of a call; ArgumentError where one is invalid."""
        return cls(
            target=check_choice(target, CountTarget, "target"),
            level=check_level(confidence_level),
            simultaneous=check_flag(simultaneous, "simultaneous"),
        )

    @classmethod
    def changed(
        cls,
        result: Any,
        target: CountTarget | None,
        confidence_level: float | None,
        simultaneous: bool | None,
    ) -> Self:
        """Return the options of a result with these changes; None leaves an option as it was."""
        return cls.checked(
            result.target if target is None else target,
            result.confidence_level if confidence_level is None else confidence_level,
            result.simultaneous if simultaneous is None else simultaneous,
        )

    @property
    def sampling(self) -> bool:
        """Whether intervals allow for sampling, in addition to the noise."""
        return self.target == "population"

    def level_of_each(self, intervals: int) -> float:
        """Return the level of each of several intervals."""
        return joint_level(self.level, intervals) if self.simultaneous else self.level

    def joint_notes(self, intervals: int) -> tuple[Note, ...]:
        """Return the note of intervals that hold jointly; none where each holds by itself."""
        return (Note(JOINT.format(intervals), "table"),) if self.simultaneous else ()


def refuse_group_options(levels: object, simultaneous: bool) -> None:
    """Raise ArgumentError for options of groups where there are none."""
    if levels is not None or simultaneous:
        raise ArgumentError(NO_GROUPS)


def or_default(value: Any, default: str) -> Any:
    """Return the value of an option, or its default where None was passed."""
    return default if value is None else value


def request_columns(
    arguments: Mapping[str, Any], declared: Mapping[str, Any], options: SampleOptions
) -> tuple[SampleRequest, tuple[str, ...]]:
    """Return the columns of a test, arrays or names of columns, and their names.

    `declared` are bounds or levels by argument; None where the schema among the options declares them.
    """
    missing: Missing = check_choice(or_default(options.missing, "raise"), Missing, "missing")
    for name, argument in arguments.items():
        _check_column(name, argument, options.data)
    if all(isinstance(argument, str) for argument in arguments.values()):
        names = tuple(arguments.values())
        schema = _schema_of(names, declared, options.schema)
        if options.data is None:
            raise ArgumentError(f"{names[0]!r} is the name of a column: pass its table as data=")
        return SampleRequest(table_rows(options.data, names, schema, missing), schema, options), names
    if options.data is not None or any(isinstance(argument, str) for argument in arguments.values()):
        raise ArgumentError(NAMES_OR_ARRAYS)
    if options.schema is not None:
        raise ArgumentError(
            "schema= can only be passed with data=: with arrays, pass bounds= and levels= instead"
        )
    labels = [_label(argument, name) for name, argument in arguments.items()]
    if len(set(labels)) < len(labels):
        labels = list(arguments)
    arrays = dict(zip(labels, arguments.values(), strict=True))
    facts = {label: declared[name] for label, name in zip(labels, arguments, strict=True)}
    return SampleRequest(
        sample_rows(arrays, missing), _schema_of(tuple(labels), facts, None), options
    ), tuple(labels)


def _check_column(name: str, argument: object, data: object) -> None:
    """Raise ArgumentError unless an argument can be one column: an array, or the name of a column."""
    if isinstance(argument, str) and "~" in argument:
        raise ArgumentError(NOT_A_FORMULA.format(argument))
    if is_table(argument):
        raise ArgumentError(A_TABLE.format(name))
    names = isinstance(argument, (list, tuple)) and all(isinstance(part, str) for part in argument)
    if names and data is not None:
        raise ArgumentError(SEVERAL_NAMES.format(name))
    if not is_table(data) and hasattr(data, "to_frame"):
        raise ArgumentError(ONE_COLUMN)
    if hasattr(data, "ask") and hasattr(data, "sites"):
        raise ArgumentError(A_FEDERATION)


def is_table(argument: object) -> bool:
    """Return whether an argument is a table by its type: a mapping, or a frame with columns."""
    return isinstance(argument, Mapping) or hasattr(type(argument), "columns")


def refuse_table(argument: object, name: str) -> None:
    """Raise ArgumentError for a table in the place of an argument that is not one."""
    if is_table(argument):
        raise ArgumentError(TABLE_AS_DATA.format(name))


def formula_table(formula: object, second: Any, options: SampleOptions) -> tuple[Any, SampleOptions]:
    """Return the second argument and the options, where a table after a formula becomes the options' data."""
    if not isinstance(formula, str) or second is None or isinstance(second, str):
        return second, options
    if options.data is not None:
        raise ArgumentError(TABLE_TWICE)
    return None, replace(options, data=second)


def request_levels(
    arguments: Mapping[str, Any], levels: Mapping[str, Any], options: SampleOptions
) -> tuple[SampleRequest, tuple[str, ...]]:
    """Return columns with levels, and their names; numbers from 0 to 1 count as the levels 0 and 1."""
    request, names = request_columns(arguments, levels, options)
    return with_levels(request, names), names


def request_by(
    a: object, by: object, bounds: Pair | None, levels: Sequence[Any] | None, options: SampleOptions
) -> tuple[SampleRequest, str, tuple[str, ...]]:
    """Return a column of numbers and the columns of its groups, and their names."""
    columns = {"a": a} | by_columns(a, by, levels)
    declared: dict[str, Any] = dict.fromkeys(columns) | {"a": public_pair(bounds)}
    if "by" in columns and levels is not None:
        declared["by"] = public_levels(levels)
    request, (value, *groups) = request_columns(columns, declared, options)
    return with_levels(request, groups), value, tuple(groups)


def by_columns(a: object, by: object, levels: object) -> dict[str, Any]:
    """Return the columns of groups by argument: one, or several that are named."""
    if not (isinstance(a, str) and isinstance(by, (list, tuple))):
        return {"by": by}
    columns = {f"by[{place}]": name for place, name in enumerate(by)}
    if not columns or len({a, *columns.values()}) <= len(columns) or levels is not None:
        raise ArgumentError(
            "by= must name one or more different columns, and schema= declares their levels: leave out "
            "levels="
        )
    return columns


def with_levels(request: SampleRequest, names: Sequence[str]) -> SampleRequest:
    """Return a request in which columns from 0 to 1 have the levels 0 and 1."""
    kinds = dict(request.schema.columns)
    for name in names:
        declared = kinds[name] if name in kinds else request.schema[name]
        if not isinstance(declared, Factor):
            if not declared.is_zero_to_one:
                raise SchemaError(NOT_LEVELS.format(name))
            kinds[name] = Factor((0, 1), missing_codes=declared.missing_codes)
    schema = Schema(kinds, unit=request.schema.unit, max_rows=request.schema.max_rows)
    return SampleRequest(request.rows, schema, request.options)


def cell_names(release: SampleSums) -> tuple[str, ...]:
    """Return the names of the cells of a release, the last column's levels running fastest.

    Cells of distributions are those of the groups, without the bins of the last column.
    """
    levels = release.levels[:-1] if release.query.kind == "distributions" else release.levels
    return tuple(", ".join(map(str, cell)) for cell in product(*levels))


def _schema_of(names: tuple[str, ...], declared: Mapping[str, Any], schema: Schema | None) -> Schema:
    """Return the schema itself, or one of what the call declared."""
    declarations = [value for value in declared.values() if value is not None]
    if schema is not None:
        check_schema(schema)
        if declarations:
            raise ArgumentError(
                "bounds= and levels= cannot be combined with schema=, which declares them: leave out "
                "bounds= and levels="
            )
        return schema
    facts = dict(zip(names, declared.values(), strict=True))
    absent = [name for name, fact in facts.items() if fact is None]
    if absent:
        raise SensitivityError(NO_BOUNDS.format(absent[0]))
    if any(isinstance(fact, str) for fact in facts.values()):
        raise SchemaError("bounds and levels must be numbers or lists, not strings")
    return Schema(facts)


def public_pair(bounds: Pair | None) -> tuple[float, float] | None:
    """Return bounds as a schema takes them, a pair of numbers."""
    if bounds is None:
        return None
    if isinstance(bounds, str) or np.shape(bounds) != (2,):
        raise SchemaError("bounds= must be a pair of public numbers, (low, high)")
    low, high = bounds
    return low, high


def public_levels(levels: object) -> list[Any] | None:
    """Return levels as a schema takes them, a list."""
    if levels is None:
        return None
    if isinstance(levels, (str, bytes)) or not isinstance(levels, Iterable):
        raise SchemaError("levels= must list the public values of the column, as in levels=['no', 'yes']")
    return list(levels)


def of_imputation(missing: Missing) -> Cautions:
    """Return the caution of imputed values, whatever the rows hold."""
    return ((ChangedTargetWarning, IMPUTED_SAMPLE),) if missing == IMPUTING else ()


def warn_of(cautions: Cautions) -> Cautions:
    """Warn of all, and return them for the result."""
    for category, text in cautions:
        warn(text, category)
    return cautions


def check_share(schema: Schema, name: str) -> None:
    """Raise SchemaError unless a column is declared as 0 or 1, or has two levels."""
    declared = schema[name]
    two = isinstance(declared, Factor) and len(declared.levels) == 2
    if not two and (isinstance(declared, Factor) or (declared.low, declared.high) != (0.0, 1.0)):
        raise SchemaError(NOT_A_SHARE.format(name))


def _label(column: object, argument: str) -> str:
    name = getattr(column, "name", None)
    return name if isinstance(name, str) and name else argument


def check_level(confidence_level: float, alternative: str = "two-sided") -> float:
    """Return the level of an interval, once it and the alternative are some."""
    check_choice(alternative, Alternative, "alternative")
    return check_fraction(confidence_level, "confidence_level")


class ConfidenceInterval(NamedTuple):
    """The two ends of a confidence interval, or one end and a bound that is public or infinite."""

    low: float
    high: float


class DifferenceInterval(ConfidenceInterval):
    """The interval of a difference, which it names: a pair of ends as any other.

    Attributes
    ----------
    difference : str
        What is subtracted from what, such as ``"no - yes"``.
    """

    difference: str

    def __new__(cls, low: float, high: float, difference: str) -> Self:
        """Return the interval with the name of its difference."""
        ends = super().__new__(cls, low, high)
        ends.difference = difference
        return ends

    def __reduce__(self) -> Any:
        return type(self), (*self, self.difference)

    def __repr__(self) -> str:
        return f"ConfidenceInterval(low={self.low!r}, high={self.high!r}, difference={self.difference!r})"


class EstimateRow(NamedTuple):
    """A line of a result's table."""

    name: str
    estimate: float
    bse: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NullTest:
    """What a test of a null hypothesis found.

    Attributes
    ----------
    null : str
        Null hypothesis.
    statistic, pvalue : float
        nan where nothing can be compared.
    df : float or pair of float
        nan where the distribution of the statistic has no degrees of freedom.
    alternative : {"two-sided", "less", "greater"}
    least_pvalue : float
        Smallest p-value that the simulated releases of the test can give; 0 without simulation.
    """

    null: str
    statistic: float
    pvalue: float
    df: float | tuple[float, float] = math.nan
    alternative: Alternative = "two-sided"
    least_pvalue: float = 0.0


@error_boundaries
@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class StatResult(PortableTest, PortablePaperTable):
    """Result of a test or of an estimate, from one noisy release.

    Attributes
    ----------
    title : str
        Title of the summary.
    test : object, optional
        The test of the result; None if the result has estimates alone. The attributes `statistic`, `pvalue`,
        `df`, `null` and `alternative` are those of the test.
    rows : tuple
        Estimates with standard errors and intervals, in the units of the data. The attribute `table` has them
        as a data frame.
    effects : mapping of str to float
        Effect sizes.
    effect_intervals : mapping of str to (low, high)
        Intervals of effect sizes at the confidence level; effect sizes without an interval are not in it.
    release : release
        Released noisy sums from which the result is computed.
    ranked_notes : tuple
        Notes of the summary, the most important notes first.
    cautions : tuple of (category, text)
        Warnings about the result, and a caution about imputed values if missing values were imputed.
    confidence_level : float
        Confidence level of the intervals in `rows`.
    simultaneous : bool
        Whether the intervals in `rows` hold jointly at the confidence level.

    Notes
    -----
    **Privacy.** Costs nothing: it uses only released numbers.
    """

    title: str
    release: SampleSums
    rows: tuple[EstimateRow, ...]
    confidence_level: float = 0.95
    test: NullTest | None = None
    effects: Mapping[str, float] = field(default_factory=dict)
    effect_intervals: Mapping[str, ConfidenceInterval] = field(default_factory=dict)
    ranked_notes: tuple[str | Note, ...] = ()
    cautions: Cautions = ()
    simultaneous: bool = False

    def __post_init__(self) -> None:
        for name in ("effects", "effect_intervals"):
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        notes = tuple(note if isinstance(note, Note) else Note(note, "table") for note in self.ranked_notes)
        object.__setattr__(self, "ranked_notes", notes)
        imputed = of_imputation(self.release.missing)
        object.__setattr__(self, "cautions", tuple(dict.fromkeys((*imputed, *self.cautions))))

    def __reduce__(self) -> Any:
        """Pickle and copy by fields: the read-only view of the effects cannot be pickled itself."""
        state = {field.name: getattr(self, field.name) for field in fields(self)}
        views = {name: dict(state[name]) for name in ("effects", "effect_intervals")}
        return _rebuilt, (type(self), state | views)

    conf_int = unavailable("conf_int", TEST_INTERVALS)
    confidence_interval = unavailable("confidence_interval", TEST_INTERVALS)
    params = unavailable("params", TEST_ESTIMATES)
    pvalues = unavailable("pvalues", TEST_ESTIMATES)
    tvalues = unavailable("tvalues", TEST_ESTIMATES)
    save = unavailable("save", NO_FILE_OF_TEST)
    _foreign_arguments: ClassVar[Mapping[str, str]] = {"simultaneous": JOINT_TABLES}

    # ---- the test

    @property
    def statistic(self) -> float:
        """Test statistic.

        Raises
        ------
        NotAvailableError
            Raised if the result has estimates and no test.
        """
        return self._tested("statistic").statistic

    @property
    def pvalue(self) -> float:
        """p-value of the test.

        A p-value that is computed by simulation is at least `least_pvalue`. Such a bound is printed as, for
        example, "<= 0.0001".

        Raises
        ------
        NotAvailableError
            Raised if the result has estimates and no test.
        """
        test = self._tested("pvalue")
        bound = test.least_pvalue > 0.0 and test.pvalue <= test.least_pvalue
        return PvalueBound(test.pvalue) if bound else test.pvalue

    @property
    def df(self) -> float | tuple[float, float]:
        """Degrees of freedom of the distribution of the statistic; a pair for an F test.

        A test of means has the approximate degrees of freedom of the estimated standard error, which depend
        on the noise and differ from the number of records minus 1. A contingency table with r rows and c
        columns has (r - 1)(c - 1) degrees of freedom. The value is nan if the distribution has no degrees of
        freedom, as in rank tests.

        Raises
        ------
        NotAvailableError
            Raised if the result has estimates and no test.
        """
        return self._tested("df").df

    @property
    def null(self) -> str:
        """Null hypothesis; empty if the result has no test."""
        return "" if self.test is None else self.test.null

    @property
    def alternative(self) -> Alternative:
        """Alternative: "two-sided", "less" or "greater"."""
        return "two-sided" if self.test is None else self.test.alternative

    @property
    def least_pvalue(self) -> float:
        """Smallest possible p-value of a test whose distribution is simulated; 0 without simulation."""
        return 0.0 if self.test is None else self.test.least_pvalue

    @property
    def _tests(self) -> str:
        """Where tests about the estimates are, for a result that has none."""
        return ESTIMATES_ONLY

    def _tested(self, name: str) -> NullTest:
        if self.test is None:
            raise NotAvailableError(f"{name} is not available, because the result has no test: {self._tests}")
        return self.test

    @property
    def notes(self) -> tuple[str, ...]:
        """The texts of the notes."""
        return tuple(note.text for note in self._notes)

    @property
    def nobs(self) -> int:
        """Public number of records; with ``missing="drop"``, the estimated number of complete records."""
        return self.release.nobs if self.complete is None else self.complete.rows

    @property
    def complete(self) -> CompleteRows | None:
        """Estimated number of complete rows, if incomplete rows were dropped; otherwise None."""
        return self.release.complete

    @property
    def privacy(self) -> PrivacyReport:
        """Privacy report on the release; its `cumulative` is the report on all releases in the ledger."""
        return self.release.privacy

    @property
    def estimate(self) -> float:
        """The first estimate."""
        return self.rows[0].estimate

    @property
    def bse(self) -> float:
        """Standard error of the first estimate, from sampling and from noise."""
        return self.rows[0].bse

    @property
    def _estimated(self) -> str:
        """What the estimates are, for the head of the summary."""
        return ", ".join([readable(self.release.query.label), *self._ones])

    @property
    def _ones(self) -> list[str]:
        """Which level of each value counts as 1, of values that have two levels: "1 = 'male'"."""
        return [f"1 = {level!r}" for _, level in self.release.ones]

    @property
    def _row_columns(self) -> tuple[str, ...]:
        """Columns whose levels name the rows, for a plot."""
        return self.release.query.by

    @property
    def table(self) -> pd.DataFrame:
        """Estimates, standard errors and intervals."""
        import pandas as pd

        low, high = level_names(self.confidence_level)
        names = [row.name for row in self.rows]  # two rows may have one name, as a level "All" and a margin
        return pd.DataFrame([row[1:] for row in self.rows], names, ["estimate", "std err", low, high])

    def summary(self, notes: SummaryNotes = "main") -> PrivateSummary:
        """Return a summary with test, estimates, effect sizes and cost, in the style of statsmodels.

        Parameters
        ----------
        notes : {"main", "all"}
            Notes below the table. With "main" the summary prints at most four notes: warnings and
            explanations of the table. With "all" it prints every note and the assumptions of the privacy
            guarantee.

        Returns
        -------
        Summary of statsmodels
            Summary, which prints as text. Its methods ``as_text``, ``as_html``, ``as_latex`` and ``as_csv``
            return other formats.

        Notes
        -----
        **Privacy.** Costs nothing: it uses only released numbers.
        """
        check_choice(notes, SummaryNotes, "notes")
        summary = PrivateSummary(
            title=f"{self.title} Results",
            top=self._facts(),
            header=["estimate", "std err", *level_names(self.confidence_level)],
            rows=[(row.name, *map(self._shown_number, row[1:])) for row in self.rows],
            tests=self._effect_facts(),
            privacy=privacy_facts(self.privacy),
            notes=[
                *(
                    Note(sentence(text), "must-read", caution_kind(LargeDeltaWarning))
                    for text in large_delta(self.privacy, self.release.nobs)
                ),
                *(
                    Note(sentence(text), "must-read", caution_kind(category))
                    for category, text in self.cautions
                ),
                *(replace(note, rank="table") if note.rank == "header" else note for note in self._notes),
                *default_delta_notes(self.privacy),
                *(f"The privacy guarantee assumes: {readable(text)}." for text in self.privacy.assumptions),
            ],
            printed=notes,
        )
        column = self._pvalue_column
        return summary if column is None else summary.with_column(column)

    def _paper_table(self, digits: int | None) -> PaperTable:
        shown = self._shown_number if digits is None else f"{{:.{digits}f}}".format
        rows: list[tuple[str, ...]] = [
            (name, shown(estimate), shown(error), f"[{shown(low)}, {shown(high)}]")
            for name, estimate, error, low, high in self.rows
        ]
        column = self._pvalue_column
        header = ["", "Estimate", "Std. error", f"{100 * self.confidence_level:g}% interval"]
        if self.simultaneous:
            header[-1] = f"{100 * self.confidence_level:g}% joint interval"
        if column is not None:
            header.insert(3, "p-value")
            rows = [(*row[:3], cell, *row[3:]) for row, cell in zip(rows, column.cells, strict=True)]
        note = [] if not self.null else [f"H0: {self.null}; {self._test_text()}."]
        note += [
            f"{name}: {number(size)} ({self._effect_interval(name)})." for name, size in self.effects.items()
        ]
        records = (
            f"{self.nobs:,}" if self.complete is None else f"about {self.nobs:,} of {self.complete.of:,}"
        )
        note += [] if column is None else [str(column.note)]
        note += [privacy_note(self.privacy, records), ERRORS]
        note += [item.text for item in self._notes if item.rank == "must-read"]
        cautions = [(caution_kind(category), text) for category, text in self.cautions]
        note += [f"Cautions: {caution_kinds(cautions)}."] if cautions else []
        return PaperTable(header=tuple(header), rows=rows, note=" ".join(note))

    @property
    def _pvalue_column(self) -> SummaryColumn | None:
        """The p-values of the rows with a note, of a result that tests each of them."""
        return None

    def _effect_facts(self) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """Return effect sizes, and their intervals next to them."""
        sizes = [(f"{name}:", number(size)) for name, size in self.effects.items()]
        level = f"{100 * self.confidence_level:g}% interval:"
        intervals = [
            (level, f"[{number(ends.low)}, {number(ends.high)}]")
            if (ends := self.effect_intervals.get(name))
            else (f"{name}, interval:", NO_EFFECT_INTERVAL)
            for name in self.effects
        ]
        return sizes, intervals

    def _effect_interval(self, name: str) -> str:
        """Return the interval of an effect size in words, for the note of a table."""
        ends = self.effect_intervals.get(name)
        if ends is None:
            return "an estimate without an interval"
        return f"{100 * self.confidence_level:g}% interval {number(ends.low)} to {number(ends.high)}"

    def _test_text(self) -> str:
        """Return statistic, degrees of freedom and p-value in one text."""
        df = self.df if isinstance(self.df, tuple) else (self.df,)
        degrees = "" if any(np.isnan(df)) else f" (df = {', '.join(number(value, 1) for value in df)})"
        pvalue = self._shown_pvalue()
        equal = "" if pvalue.startswith("<") else "= "
        return f"statistic = {number(self.statistic)}{degrees}, p {equal}{pvalue}"

    def _shown_pvalue(self) -> str:
        return shown_pvalue(self.pvalue, self.least_pvalue)

    def _shown_number(self, value: float) -> str:
        """Return a number of the table as the summary prints it."""
        return number(value)

    @property
    def _notes(self) -> tuple[Note, ...]:
        least = self.least_pvalue
        simulated = (Note(SIMULATED_PVALUE.format(least), "detail"),) if least else ()
        return (
            *complete_sample_notes(self.complete),
            *(Note(TWO_LEVELS.format(name, level), "must-read") for name, level in self.release.ones),
            *ranked((*self.ranked_notes, *self._laplace_note())),
            *simulated,
        )

    def _laplace_note(self) -> tuple[Note, ...]:
        """Return the note on the cost of Laplace noise in compositions; none of Gaussian noise."""
        if self.release.noise != "laplace":
            return ()
        try:
            return (Note(LAPLACE_COST.format(self.privacy.mu), "table"),)
        except NotAvailableError:
            return ()

    def _facts(self) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        label = observations_label(self.complete)
        source = [(label, f"{self.nobs:d}"), ("Noise distribution:", self.release.noise)]
        if self.release.missing != "raise":
            source.append((MISSING_LABEL, IMPUTED_VALUE if self.complete is None else DROPPED_VALUE))
        stamped = [("Privacy:", NOT_PRIVATE)] if self.privacy.stamp else []
        if not self.null:
            return [("Estimates:", self._estimated), *stamped], source
        df = self.df if isinstance(self.df, tuple) else (self.df,)
        degrees = "-" if any(np.isnan(df)) else ", ".join(number(value, 1) for value in df)
        left_column = [("Null:", self.null), ("Alternative:", self.alternative), *stamped, *source[:1]]
        return left_column, [
            ("Statistic:", number(self.statistic)),
            ("Df:", degrees),
            ("P-value:", self._shown_pvalue()),
            *source[1:],
        ]

    def __str__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return self.summary().as_html()

    def __repr__(self) -> str:
        test = ""
        if self.test is not None:
            pvalue = self._shown_pvalue()
            equal = "" if pvalue.startswith("<") else "="
            test = f"statistic={number(self.statistic)}, pvalue{equal}{pvalue}, "
        return f"<{self.title}: {test}estimate={number(self.rows[0].estimate)}, {self.nobs} records>"


def _rebuilt(kind: type[StatResult], state: dict[str, Any]) -> StatResult:
    """Return a result from the fields in its pickle; StorageError where the class has other fields now."""
    with suppress(Exception):
        result = kind(**state)
        if _has_all_fields(result):
            return result
    raise StorageError(OTHER_PICKLE.format(kind.__name__))


def _has_all_fields(value: Any) -> bool:
    """Return whether no object within a result lacks a field: a pickle sets only those that it contains."""
    if is_dataclass(value):
        return all(
            hasattr(value, field.name) and _has_all_fields(getattr(value, field.name))
            for field in fields(value)
        )
    return all(map(_has_all_fields, value)) if isinstance(value, tuple) else True


def target_notes(target: CountTarget) -> tuple[Note, ...]:
    """Return the note of intervals for this table; none where they are for the population."""
    return (Note(TABLE_ESTIMATES, "must-read"),) if target == "table" else ()


def count_number(value: float) -> str:
    """Return a count or a total for a summary: with one decimal, or none where it is large."""
    return f"{value:.1f}" if abs(value) < 1e7 else f"{value:.0f}"


def level_names(level: float) -> tuple[str, str]:
    """Return the heads of an interval's columns."""
    tail = (1.0 - level) / 2.0
    return f"[{tail:.4g}", f"{1.0 - tail:.4g}]"


def one_sided(
    interval: Callable[[float], ConfidenceInterval],
    level: float,
    alternative: Alternative,
    ends: ConfidenceInterval,
) -> ConfidenceInterval:
    """Return the interval of a level on the side of an alternative, as scipy does: the other end is open."""
    if alternative == "two-sided":
        return interval(level)
    two_sided = interval(2.0 * level - 1.0) if level > 0.5 else ConfidenceInterval(*ends)
    return (
        ConfidenceInterval(ends.low, two_sided.high)
        if alternative == "less"
        else ConfidenceInterval(two_sided.low, ends.high)
    )
