"""The study before its data: what an analysis will find, which estimator serves it, what it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack, get_args

import numpy as np

from privinf.doors import door, doors
from privinf.errors import ArgumentError, NotAvailableError
from privinf.fitting.model import spending_of
from privinf.mechanisms.gaussian import total_mu
from privinf.planning.guesses import Guesses, population
from privinf.planning.study import ESTIMATORS, MOST_ROWS, Case, Study, StudyTrust, floor_widths, simulated
from privinf.schema import Schema
from privinf.typing import Family, PartyColumns, SpendingWords
from privinf.validation import check_choice, check_count, check_fraction

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Advice", "Guesses", "Study", "advise", "plan_study"]
REFUSED = {
    "source": "is for secure noise: a plan makes noise up, from rng",
    "calibration": "is not planned for: exact is what every fit takes",
}
MOST_PLANNED = 20  # slopes that are planned for where none are named
NO_PARTIES = "trust='per-party' needs parties=, the columns of each party, the response's among them"


@door
def plan_study(
    schema: Schema,
    formula: str,
    n: int,
    *,
    guesses: Guesses | None = None,
    family: Family = "gaussian",
    trust: StudyTrust = "central",
    parties: PartyColumns | None = None,
    estimators: Sequence[str] | None = None,
    which: Sequence[str] | None = None,
    alpha: float = 0.05,
    progress: bool | None = None,
    **spending: Unpack[SpendingWords],
) -> Study:
    """Predict intervals, power and identification of a regression, for every estimator that fits the trust.

    Parameters
    ----------
    schema : Schema
        Bounds and levels, as the study will declare them.
    formula : str
    n : int
        People, 5 to 5,000,000.
    guesses : Guesses, optional
        Means, sds, shares, correlations, R^2; what is not guessed is taken from the bounds, and printed.
    family : {"gaussian", "binomial", "poisson"}
        Of the response; "binomial": logistic regression.
    trust : {"central", "server", "secure-sum", "local", "per-party"}
        Who sees rows: one curator, a server of sites, nobody but the sites, nobody at all, or parties that
        hold columns of the same people.
    parties : mapping of str to sequence of str
        For "per-party": the columns of each.
    estimators : sequence of str, optional
        Default: all that serve family and trust.
    which : sequence of str, optional
        Coefficients to plan for; default: all slopes, of more than 20 the first 20.
    alpha : float
        1 minus the level of the intervals.
    progress : bool, optional
        A bar of the fits; default: on a terminal.
    epsilon, delta, mu, rho
        What the fit will spend; ``epsilon=inf`` plans without noise.
    rng : int, optional
        Seed of the made-up rows and noise, default 0.

    Returns
    -------
    Study

    Raises
    ------
    ArgumentError, SchemaError
        A word, a guess or the formula does not fit.
    NotAvailableError
        No estimator serves this family under this trust, or people have several rows each.

    Notes
    -----
    **Privacy.** Reads no row and costs nothing. The schema and the guesses must be public.

    A fit's covariance has a formula for every estimator (``result.variance_formula``), but what stands in it
    depends on the fit: which residuals a noisy clip leaves, how a budget is split, how many rows are mixed,
    and whether noise hides a column. So no second set of formulas is written down here. Rows are made up from
    schema and guesses (`privinf.planning.guesses.Population`), the estimator itself is fitted to them with
    simulated noise 16 to 96 times, until the medians' relative standard error is below 2%, and the median
    width is reported. Fits that mark themselves weak are counted and have no width: where they are the
    majority, none is predicted. Totals of sites have the noise of one curator's total, and are simulated as
    that; secure sums of `DebiasedLasso` as such.

    Examples
    --------
    >>> import privinf as pi
    >>> schema = pi.Schema({"wage": (0, 60), "educ": (0, 20), "female": [0, 1]})
    >>> known = pi.Guesses(means={"wage": 20, "educ": 13}, sds={"wage": 8, "educ": 3}, rsquared=0.2)
    >>> study = pi.plan_study(schema, "wage ~ educ + female", 2000, guesses=known, epsilon=1, delta=1e-6,
    ...                       estimators=["MomentOLS"])
    >>> study.cells[0].verdict
    'identified'
    """
    case = _case(schema, formula, n, guesses, family, trust, parties, which, alpha, spending)
    served = [name for name, one in ESTIMATORS.items() if family in one.families and trust in one.trusts]
    if not served:
        raise NotAvailableError(f"no estimator fits family={family!r} under trust={trust!r}: advise() says what does")
    for name in served if estimators is None else estimators:
        check_choice(name, served, "estimator")
    names = served if estimators is None else list(dict.fromkeys(estimators))
    if not names:
        raise ArgumentError("estimators is empty: leave it out for all that serve")
    return Study(case, simulated(case, names, progress), floor_widths(case))


def _case(
    schema: Schema,
    formula: str,
    n: int,
    guesses: Guesses | None,
    family: Family,
    trust: StudyTrust,
    parties: PartyColumns | None,
    which: Sequence[str] | None,
    alpha: float,
    spending: SpendingWords,
) -> Case:
    """Return the checked question."""
    if not isinstance(schema, Schema):
        raise ArgumentError(f"schema must be a privinf.Schema, got {type(schema).__name__}")
    if check_count(n, "n", least=5) > MOST_ROWS:
        raise ArgumentError(f"n={n} is more than {MOST_ROWS:,}, which made-up rows go up to: plan for these")
    check_choice(family, Family, "family")
    check_choice(trust, StudyTrust, "trust")
    if (trust == "per-party") != (parties is not None):
        raise ArgumentError(NO_PARTIES if parties is None else "parties= belongs to trust='per-party'")
    if guesses is not None and not isinstance(guesses, Guesses):
        raise ArgumentError(f"guesses must be privinf.Guesses, got {type(guesses).__name__}")
    words = spending_of(spending, REFUSED)
    seed = check_count(words.pop("rng", 0), "rng", least=0)
    total_mu(SpendingWords(**words))
    people = population(schema, formula, guesses or Guesses(), family)
    return Case(
        people, people.schema, people.formula, n, words, trust, parties, _planned(people.design, which),
        check_fraction(alpha, "alpha"), seed,
    )  # fmt: skip


def _planned(design: Any, which: Sequence[str] | None) -> tuple[str, ...]:
    """Return the coefficients to plan for."""
    if which is None:
        return tuple(name for place, name in enumerate(design.names) if place != design.constant)[:MOST_PLANNED]
    for name in which:
        check_choice(name, design.names, "which")
    if not which or isinstance(which, str):
        raise ArgumentError("which must list coefficients")
    return tuple(dict.fromkeys(which))


@doors
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Advice:
    """Which estimator serves a study, and why; made by `privinf.advise`.

    Attributes
    ----------
    studies : tuple of Study
        One for each trust that was looked at.
    silent : mapping of str to str
        Trusts without a prediction, and why.

    Notes
    -----
    **Privacy.** No rows.
    """

    studies: tuple[Study, ...]
    silent: Mapping[str, str]

    @property
    def frame(self) -> pd.DataFrame:
        """One row per trust and estimator, the best of a trust first.

        ``times``: width over that without privacy (geometric mean over coefficients), ``width`` of the
        median coefficient, ``verdict``, ``reason``.
        """
        import pandas as pd

        rows = []
        for study in self.studies:
            for cell in study.cells:
                times = float(np.exp(np.mean(np.log(cell.widths / study.floor))))
                why = [cell.reason] if cell.reason else []
                why.append(ESTIMATORS[cell.name].rests_on)
                rows.append((study.case.trust, cell.name, float(np.median(cell.widths)), times,
                             cell.name == study.best, cell.verdict, "; ".join(why)))  # fmt: skip
        columns = ["trust", "estimator", "width", "times", "best", "verdict", "reason"]
        frame = pd.DataFrame(rows, columns=columns)
        order = {trust: place for place, trust in enumerate(get_args(StudyTrust))}
        frame = frame.sort_values(["trust", "times"], key=lambda one: one.map(order) if one.name == "trust" else one)
        return frame.reset_index(drop=True)

    def summary(self) -> str:
        """Return the table as text, with the reasons below it."""
        case, frame = self.studies[0].case, self.frame
        table = frame.drop(columns=["reason", "best"])
        lines = [f"Who serves {case.formula} with n = {case.n:,}: made-up rows, no row was read", ""]
        lines += [table.to_string(index=False, float_format="{:.4g}".format, na_rep="-"), ""]
        for row in frame.itertuples():
            lines.append(f"{row.trust}, {row.estimator}{' (best)' if row.best else ''}: {row.reason}")
        lines += [f"{trust}: {reason}" for trust, reason in self.silent.items()]
        taken = [f"  {line}" for line in self.studies[0].assumptions]
        return "\n".join([*lines, "", "Taken for granted", *taken])

    def __repr__(self) -> str:
        return self.summary()


@door
def advise(
    schema: Schema,
    formula: str,
    n: int,
    *,
    guesses: Guesses | None = None,
    family: Family = "gaussian",
    trust: StudyTrust | None = None,
    parties: PartyColumns | None = None,
    which: Sequence[str] | None = None,
    alpha: float = 0.05,
    progress: bool | None = None,
    **spending: Unpack[SpendingWords],
) -> Advice:
    """Say which estimator serves best, under one trust or under each, with the reasons.

    Parameters
    ----------
    schema, formula, n, guesses, family, parties, which, alpha, progress
        As for `plan_study`.
    trust : str, optional
        Default: every trust; "per-party" where `parties` are named.
    epsilon, delta, mu, rho, rng
        As for `plan_study`; of "per-party" each party spends it.

    Returns
    -------
    Advice

    Raises
    ------
    ArgumentError, SchemaError, NotAvailableError
        As for `plan_study`.

    Notes
    -----
    **Privacy.** Reads no row and costs nothing; every width is a simulation of `plan_study`.
    """
    trusts = get_args(StudyTrust) if trust is None else (check_choice(trust, StudyTrust, "trust"),)
    studies, silent = [], {}
    for one in trusts:
        own = parties if one == "per-party" else None
        if one == "per-party" and own is None and trust is None:
            silent[one] = NO_PARTIES
            continue
        if trust is None and not any(family in each.families and one in each.trusts for each in ESTIMATORS.values()):
            silent[one] = f"no estimator has family={family!r}"
            continue
        studies.append(
            plan_study(
                schema, formula, n, guesses=guesses, family=family, trust=one, parties=own, which=which,
                alpha=alpha, progress=progress, **spending,
            )
        )  # fmt: skip
    return Advice(tuple(studies), silent)
