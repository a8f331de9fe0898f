"""The named terms of a result's variance, labelled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from privinf.error_boundary import error_boundaries
from privinf.errors import ArgumentError, NotAvailableError, PrivinfError
from privinf.inference.estimate import UNATTRIBUTED, Estimate, VarianceTerms
from privinf.inference.solution import sandwich
from privinf.results.context import Context
from privinf.typing import ArrayLike, Floats
from privinf.validation import check_array, check_choice

PARTS = 20  # that the jackknife leaves out in turn
AT_ONCE = 2_000_000  # numbers up to which a printed formula computes the jackknife
SAME = 1e-6  # share of the variance by which two estimates of the sampling term may differ and count as one
SAMPLING = "sampling"
WHAT_IS_LEFT = (
    f"\n{UNATTRIBUTED}: the difference between the covariance estimated from the released "
    "records and the sum of the other terms, which follow from formulas; it estimates 0"
)
LEFT_NOTE = (
    "The term 'unattributed' is the difference of two estimates of the same variance, and "
    "can be negative; the other terms are variances."
)
NEGATIVE_NOTE = (
    "Negative terms: {}. Such a term is a difference of two estimates, of a variance that "
    "is small relative to its standard error."
)
NO_RECORDS = (
    "standard errors of the terms need a jackknife over the released records, and this result contains none. "
    "A release of sums never has records; for a release of records, compute the standard errors before you "
    "save the result, or save it with records=True"
)


@error_boundaries
@dataclass(frozen=True, slots=True, eq=False)
class VarianceFormula:
    """Decomposition of the variance of coefficients into named terms.

    The terms add up to the covariance. ``result.variance_formula`` returns the decomposition.

    Attributes
    ----------
    names : tuple of p str
        The coefficients, or combinations of them.
    terms : VarianceTerms
        Covariances of the named terms, user units.
    resample : callable, optional
        Returns the terms without one part of the released records after the other; see `standard_errors`.

    Notes
    -----
    **Privacy.** Post-processing: no cost.

    `equation` states each term; docs/explain/noise-to-interval.md has the terms of all models. Sampling is
    the square of ``bse_sampling`` where that is known. The difference between the covariance and the sum of
    its terms is called "unattributed"; it is the error of the estimates, around 0. `standard_errors` returns
    the accuracy of the terms. Where a term is a difference and negative, `notes` state it. A bias that
    intervals allow for is not a variance and is not part of any term.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 2))
    >>> y = X @ [0.5, 0.0] + 0.3 * rng.standard_normal(5000)
    >>> r = pi.MomentOLS(y, X, bounds=[(-1, 1)] * 2, y_bounds=(-2, 2)).fit(epsilon=1.0, delta=1e-6, rng=0)
    >>> list(r.variance_formula.variances)
    ['sampling', 'score noise', 'Hessian noise']
    >>> bool(np.allclose(r.variance_formula.variances.sum(axis=1), r.bse**2))
    True
    """

    names: tuple[str, ...]
    terms: VarianceTerms
    resample: Callable[[], list[VarianceTerms]] | None = None

    @property
    def equation(self) -> str:
        """The formula, and the meaning of each term."""
        return self.terms.equation + (WHAT_IS_LEFT if UNATTRIBUTED in self._all_terms else "")

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks: the unattributed term, and negative terms."""
        attributed = self.variances.drop(columns=UNATTRIBUTED, errors="ignore")
        total = self.variances.sum(axis=1)
        below = [
            f"{term} of {name}"
            for term in attributed.columns
            for name in attributed.index
            if attributed.loc[name, term] < -SAME * total[name]
        ]
        notes = (LEFT_NOTE,) if UNATTRIBUTED in self._all_terms else ()
        return (*notes, NEGATIVE_NOTE.format(", ".join(below))) if below else notes

    @property
    def standard_errors(self) -> pd.DataFrame:
        """Standard errors of `variances`, by a jackknife over 20 parts of the released records.

        Raises
        ------
        NotAvailableError
            The release has sums instead of records or mixed rows, or its records are in a file.
        """
        return self._jackknife(lambda variances: variances)

    @property
    def share_errors(self) -> pd.DataFrame:
        """Standard errors of `shares`; see `standard_errors`."""
        return self._jackknife(lambda variances: variances.div(variances.sum(axis=1), axis=0))

    def _jackknife(self, figure: Callable[[pd.DataFrame], pd.DataFrame]) -> pd.DataFrame:
        if self.resample is None:
            raise NotAvailableError(NO_RECORDS)
        parts = [figure(replace(self, terms=terms, resample=None).variances) for terms in self.resample()]
        columns = self.variances.columns
        stack = np.stack([part.reindex(columns=columns, fill_value=0.0).to_numpy() for part in parts])
        spread = np.sqrt((len(stack) - 1.0) * stack.var(axis=0))
        return pd.DataFrame(spread, list(self.names), columns)

    @property
    def noise(self) -> tuple[str, ...]:
        """Names of the terms that the privacy mechanism causes; without noise all but mixing are 0."""
        return tuple(self.terms.noise)

    @property
    def variances(self) -> pd.DataFrame:
        """Variance of each coefficient (rows) by each term (columns); rows add up to the total variance."""
        columns = {name: np.diag(term) for name, term in self._all_terms.items()}
        return pd.DataFrame(columns, list(self.names))

    @property
    def shares(self) -> pd.DataFrame:
        """`variances` over the total variance: rows add up to one."""
        variances = self.variances
        return variances.div(variances.sum(axis=1), axis=0)

    def covariance(self, term: str) -> pd.DataFrame:
        """Return the covariance that one term alone contributes, shape (p, p).

        Parameters
        ----------
        term : str
            Name of the term: a column of `variances`.

        Returns
        -------
        DataFrame
            Shape (p, p).
        """
        check_choice(term, tuple(self._all_terms), "term")
        return pd.DataFrame(np.array(self._all_terms[term]), list(self.names), list(self.names))

    def of(self, r_matrix: ArrayLike) -> VarianceFormula:
        """Return the terms of the variances of ``R b``, R of shape (k, p) or (p,).

        Parameters
        ----------
        r_matrix : array_like, shape (k, p) or (p,)
            Contrasts of the coefficients.

        Returns
        -------
        VarianceFormula
            The decomposition for the k contrasts.
        """
        R = check_array(np.atleast_2d(r_matrix), "r_matrix", ndim=2)
        if R.shape[1] != len(self.names):
            raise ArgumentError(
                f"r_matrix= must have one column for each of the {len(self.names)} coefficients"
            )
        names = tuple(f"c{i}" for i in range(len(R)))
        resample = self.resample
        mapped = None if resample is None else (lambda: [terms.mapped(R) for terms in resample()])
        return VarianceFormula(names, self.terms.mapped(R), mapped)

    @property
    def _all_terms(self) -> dict[str, Floats]:
        has_two = UNATTRIBUTED in self.terms.sampling and UNATTRIBUTED in self.terms.noise
        joint = self.terms.sampling[UNATTRIBUTED] + self.terms.noise[UNATTRIBUTED] if has_two else None
        return {**self.terms.sampling, **self.terms.noise} | ({} if joint is None else {UNATTRIBUTED: joint})

    def _printed(self) -> pd.DataFrame:
        """Return the shares as texts, with their errors where these are quick."""
        shares = self.shares
        table = shares.map(lambda value: f"{value:z.1%}")
        if self.resample is None or not getattr(self.resample, "quick", False):
            return table
        errors = self.share_errors
        for term in table:
            table[term] = [f"{a} ({b:.1%})" for a, b in zip(table[term], errors[term], strict=True)]
        return table

    def __repr__(self) -> str:
        table = self._printed()
        errors = " (standard errors)" if "(" in str(table.iloc[0, 0]) else ""
        notes = "".join(f"\n{note}" for note in self.notes)
        return f"{self.equation}\n\nShares of the variance{errors}\n{table.to_string()}{notes}"

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{note}</p>" for note in self.notes)
        return f"<pre>{self.equation}</pre>{self._printed().to_html()}{notes}"


@dataclass(frozen=True, slots=True, eq=False)
class LeaveOut:
    """The terms of a covariance without one part of the released records after the other.

    Attributes
    ----------
    estimate : Estimate
    context : Context
        With the estimating equation, scaled units.
    """

    estimate: Estimate
    context: Context

    @property
    def quick(self) -> bool:
        """Whether a printed formula may wait for it."""
        size = getattr(self.context.system, "k", self.estimate.nobs)
        return int(size) * len(self.estimate.params) <= AT_ONCE

    def __call__(self) -> list[VarianceTerms]:
        """Return the terms of the whole covariance, user units, as each of `PARTS` remainders has them."""
        system = self.context.system
        design = self.context.design
        bread = self.estimate.bread
        assert system is not None
        assert design is not None
        assert bread is not None
        transform = design.to_user[0]
        added = transform.T @ bread @ transform - system.A  # by a stabilization
        remainders = []
        for part in range(PARTS):
            remainder: Any = system.leaving_out(part, PARTS)
            gram = remainder.A + added
            beta = np.linalg.solve(gram, remainder.g)
            share = (PARTS - 1.0) / PARTS  # fewer records have more error; terms are of all

            def term(meat: Floats, gram: Floats = gram, n: int = remainder.n, share: float = share) -> Floats:
                cov = transform @ sandwich(gram, meat, n) @ transform.T
                return np.asarray(share * cov, dtype=np.float64)

            noise = {name: term(meat) for name, meat in remainder.noise_terms(beta).items()}
            total = term(remainder.meat(beta))
            try:
                sampling = term(remainder.clean_meat(beta)[0])
            except PrivinfError:
                sampling = None
            remainders.append(attributed(VarianceTerms.dividing(total, "", noise), sampling))
        return remainders


def attributed(terms: VarianceTerms, sampling: Floats | None) -> VarianceTerms:
    """Return terms of which sampling is the covariance without noise, and a term for what is then left.

    Terms stay as they are where there is no such covariance, or where it is their own.
    """
    total_sampling = terms.sampling.get(SAMPLING)
    if sampling is None or total_sampling is None or len(terms.sampling) > 1:
        return terms
    total = np.diag(sum((*terms.noise.values(), total_sampling)))
    unattributed = total_sampling - sampling
    if (np.abs(np.diag(unattributed)) <= SAME * total).all():
        return terms
    return replace(terms, sampling={SAMPLING: sampling, UNATTRIBUTED: unattributed})


def variance_formula(estimate: Estimate, context: Context) -> VarianceFormula:
    """Return the named terms of a result; NotAvailableError with the reason where there are none."""
    if estimate.terms is None:
        stored = "this result was stored or made without the terms of its variance"
        reason = estimate.weak_reason.removeprefix("no intervals: ") or stored
        raise NotAvailableError(f"variance_formula is not available, because {reason}")
    terms = attributed(estimate.terms, context.sampling_cov)
    at_hand = context.system is not None and hasattr(context.system, "leaving_out")
    at_hand = at_hand and estimate.bread is not None and not context.absorbed and context.point is None
    return VarianceFormula(estimate.names, terms, LeaveOut(estimate, context) if at_hand else None)
