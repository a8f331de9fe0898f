"""Results of the multi-party models: the common facade, the bias of plain fits, prediction inside bounds."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pandas as pd

from privinf.doors import doors
from privinf.errors import ArgumentError, NotAvailableError
from privinf.inference.score_test import ScoreTestResult
from privinf.mixing.equation import MixedLeastSquares
from privinf.mixing.systems import mixing_system, public_normals
from privinf.releases import Release
from privinf.results import Results
from privinf.typing import ArrayLike, Floats
from privinf.validation import check_array, check_choice

ScoreForm = Literal["F", "exact"]


@doors
class MixingResults(Results):
    """Results of `RMGMOLS`, `DGMOLS` and `BGMOLS`.

    Adds `bias` (of a plain fit) and the exact form of the score test to `Results`. ``privacy.epsilon``,
    ``mu`` and ``rho`` are per person, all parties together; ``privacy.parties`` has one line a party.
    """

    @property
    def bias(self) -> pd.Series[float]:
        """What the noise does to a plain fit (debias=False), estimated from the release; user units.

        Raises
        ------
        NotAvailableError
            The fit is not a plain one, or the release identifies the coefficients too weakly to estimate it.
        """
        found = self._context.settings.get("bias")
        if found is None:
            raise NotAvailableError(
                "bias: the de-biased estimate has none to report, and a plain fit only where the release "
                "identifies the coefficients"
            )
        return self._labelled(np.asarray(found, dtype=np.float64), "bias")

    def _check_settings(self) -> None:
        found = self._context.settings.get("bias")
        if found is not None and len(check_array(found, "bias", ndim=1)) != len(self.names):
            raise ArgumentError("bias has one entry for each coefficient")

    def score_test(self, beta0: ArrayLike | None = None, form: ScoreForm = "F") -> ScoreTestResult:
        """Test all slopes at once without assuming that the noise is weak.

        Parameters
        ----------
        beta0 : array_like, shape (number of slopes,), optional
            User units; default: all zero.
        form : {"F", "exact"}
            "F": the F test on rows from which the noise common to residual and features is removed; its
            size is right up to a term in 1/k. "exact": adds public noise, drawn from the release's own
            digest, that makes residual and features independent at every k; it costs power. Mixed rows
            only; for rows of single people "F" is the usual chi-square score test.

        Returns
        -------
        ScoreTestResult
        """
        if check_choice(form, ScoreForm, "form") == "F":
            return super().score_test(beta0)
        system, design, release = self._context.system, self._context.design, self._context.release
        if not isinstance(system, MixedLeastSquares) or design is None or release is None:
            raise NotAvailableError("form='exact' is for mixed rows (RMGMOLS) whose release was kept")
        slopes = np.zeros(int(design.private.sum()))
        if beta0 is not None:
            super().score_test(beta0)  # refuses what does not fit
            labelled = beta0[list(design.private_names)] if isinstance(beta0, pd.Series) else beta0
            slopes = check_array(labelled, "beta0", ndim=1)
        beta = np.zeros(len(design.names))
        beta[design.private] = design.scaled_slopes(slopes)
        statistic, pvalue = system.exact_score_test(beta, public_normals(release))
        return ScoreTestResult(statistic, pvalue, len(slopes), slopes, system.law)

    def predict(self, exog: Any, transform: bool = True) -> pd.Series[float]:
        """Return predicted means of new rows; those of a shrunk fit are kept inside the label's bounds.

        Parameters
        ----------
        exog : DataFrame or array
            New rows by column name, or an array with the regressors in order, with or without the constant.
        transform : bool
            False: `exog` is the design matrix although the model has a formula.
        """
        predicted = super().predict(exog, transform)
        design = self._context.design
        if not self._context.settings.get("shrink") or design is None:
            return predicted
        return predicted.clip(design.y_low, design.y_high)

    def _rows(self, exog: Any, transform: bool) -> tuple[Floats, pd.Index[Any]]:
        design = self._context.design
        if design is None or not transform or isinstance(exog, (pd.DataFrame, pd.Series)):
            return super()._rows(exog, transform)
        array = np.atleast_2d(check_array(exog, "exog", ndim=np.ndim(exog)))
        if array.shape[1] == len(design.inputs) and all(
            column.plain for column in design.columns if column.pieces
        ):
            return super()._rows(pd.DataFrame(array, columns=list(design.inputs)), transform)
        return super()._rows(array, False)


def rebuilt_system(release: Release, settings: Any) -> Any:
    """Return the estimating equation of stored results."""
    return mixing_system(release, population=settings["population"])
