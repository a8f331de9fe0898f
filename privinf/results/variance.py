"""The named terms of a result's variance, labelled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from privinf.doors import doors
from privinf.errors import ArgumentError
from privinf.inference.estimate import VarianceTerms
from privinf.typing import ArrayLike, Floats
from privinf.validation import check_array, check_choice


@doors
@dataclass(frozen=True, slots=True, eq=False)
class VarianceFormula:
    """What makes the coefficients of a result vary: named terms that add up to its covariance.

    Made by ``result.variance_formula``.

    Attributes
    ----------
    names : tuple of p str
        The coefficients, or combinations of them.
    terms : VarianceTerms
        Covariances of the named terms, user units.

    Notes
    -----
    **Privacy.** Post-processing: no cost.

    `equation` says what each term is; docs/explain/noise-to-interval.md has those of all models. A term that
    is found as a difference, as sampling often is, can be negative where the noise is strong: the estimate of
    a small number. A bias that intervals allow for is no variance and in no term.

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

    @property
    def equation(self) -> str:
        """The formula, and what each term is."""
        return self.terms.equation

    @property
    def noise(self) -> tuple[str, ...]:
        """Names of the terms that the privacy mechanism causes; without noise all but mixing are 0."""
        return tuple(self.terms.noise)

    @property
    def variances(self) -> pd.DataFrame:
        """Variance of each coefficient (rows) by each term (columns); rows add up to the total variance."""
        columns = {name: np.diag(term) for name, term in self._every.items()}
        return pd.DataFrame(columns, list(self.names))

    @property
    def shares(self) -> pd.DataFrame:
        """`variances` over the total variance: rows add up to one."""
        found = self.variances
        return found.div(found.sum(axis=1), axis=0)

    def covariance(self, term: str) -> pd.DataFrame:
        """Return the covariance that one term alone contributes, shape (p, p)."""
        check_choice(term, tuple(self._every), "term")
        return pd.DataFrame(np.array(self._every[term]), list(self.names), list(self.names))

    def of(self, r_matrix: ArrayLike) -> VarianceFormula:
        """Return the terms of the variances of ``R b``, R of shape (k, p) or (p,)."""
        R = check_array(np.atleast_2d(r_matrix), "r_matrix", ndim=2)
        if R.shape[1] != len(self.names):
            raise ArgumentError(f"r_matrix must have a column for each of {len(self.names)} coefficients")
        return VarianceFormula(tuple(f"c{i}" for i in range(len(R))), self.terms.mapped(R))

    @property
    def _every(self) -> dict[str, Floats]:
        return {**self.terms.sampling, **self.terms.noise}

    def __repr__(self) -> str:
        shares = self.shares.to_string(float_format="{:.1%}".format)
        return f"{self.equation}\n\nShares of the variance\n{shares}"

    def _repr_html_(self) -> str:
        return f"<pre>{self.equation}</pre>{self.shares.to_html(float_format='{:.1%}'.format)}"
