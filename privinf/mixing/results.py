"""From party releases to an estimating equation and its results: plain, shrunk or corrected for the noise."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypedDict, cast

import numpy as np
import pandas as pd

from privinf.error_boundary import error_boundaries
from privinf.errors import ArgumentError, NotAvailableError
from privinf.inference.bootstrap import BootstrapDraws, Resolve, covariance_root, pairs_bootstrap
from privinf.inference.corrected_features import CorrectedLeastSquares
from privinf.inference.estimate import is_positive_definite
from privinf.inference.score_test import ScoreTestResult
from privinf.inference.solution import sandwich
from privinf.mechanisms.mixing.theory import guessed_variances
from privinf.mixing.equation import MixedLeastSquares
from privinf.mixing.rows import nonnegative, row_draws
from privinf.mixing.shrinkage import shrunk_slopes
from privinf.progress import progress_bar
from privinf.release_kinds import MixingRegressionNoiseModel
from privinf.releases import Release
from privinf.results import Results
from privinf.results.constraints import ConstraintLike, describes_restrictions
from privinf.results.context import Context
from privinf.results.delegation import delegated
from privinf.results.prediction import Predictions
from privinf.results.resampling import BootstrapResults, Resampling
from privinf.results.score_inference import ScoreTests
from privinf.typing import BootstrapMethod, ColumnsLike, Floats, Integers, RngLike, Which
from privinf.validation import as_generator, check_array, check_choice, check_count

MixingSystem = MixedLeastSquares | CorrectedLeastSquares
ScoreForm = Literal["F", "exact"]


class MixingSettings(TypedDict):
    """Stored settings of results: target, whether coefficients were shrunk, bias of a plain fit."""

    population: bool
    shrink: bool
    bias: list[float] | None


@dataclass(frozen=True, eq=False)
class MixedScoreTests(ScoreTests):
    """Score tests on mixed rows: as of every linear equation, or exact at every number of rows."""

    def score_test(self, beta0: ConstraintLike | None = None, form: ScoreForm = "F") -> ScoreTestResult:
        """Test slopes without assuming that the noise is weak.

        Parameters
        ----------
        beta0 : str, list of str, mapping, (R, q), or array, optional
            Restrictions in any form that `wald_test` reads, or an array of all slopes in the units of the
            data; default: all zero.
        form : {"F", "exact"}
            "F": the F test on rows from which the noise common to residual and features is removed; its
            size is right up to a term in 1/k. "exact": adds public noise, drawn from the release's own
            digest, that makes residual and features independent at every k; it costs power. Mixed rows
            only; for rows of single people "F" is the usual chi-square score test.

        Returns
        -------
        object
            ``.statistic``, ``.pvalue`` and ``.df``.
        """
        if check_choice(form, ScoreForm, "form") == "F":
            return super().score_test(beta0)
        system = self.inference.context.system
        design = self.inference.context.design
        release = self.inference.context.release
        if not isinstance(system, MixedLeastSquares) or design is None or release is None:
            raise NotAvailableError("form='exact' needs a release by RMGMOLS, stored with the result")
        if beta0 is not None and describes_restrictions(beta0):
            raise NotAvailableError(
                "form='exact' tests all slopes together: use form='F' to test other restrictions"
            )
        slopes = np.zeros(int(design.private.sum()))
        if beta0 is not None:
            super().score_test(beta0)  # raises for invalid arguments
            labelled = beta0[list(design.private_names)] if isinstance(beta0, pd.Series) else beta0
            slopes = check_array(cast("Floats", labelled), "beta0", ndim=1)
        beta = np.zeros(len(design.names))
        beta[design.private] = design.scaled_slopes(slopes)
        statistic, pvalue = system.exact_score_test(beta, public_normals(release))
        return ScoreTestResult(
            statistic=statistic, pvalue=pvalue, df=len(slopes), null=slopes, law=system.distribution
        )


@dataclass(frozen=True, eq=False)
class MixedResampling(Resampling):
    """Draws of the released rows, which are mixtures of all people, or rows of single people with noise."""

    def bootstrap(
        self,
        draws: int = 999,
        method: BootstrapMethod | None = None,
        *,
        rng: RngLike = None,
        progress: bool | None = None,
    ) -> BootstrapResults:
        """Return the bootstrap distribution of the coefficients.

        Parameters
        ----------
        draws : int
            Number of replicates.
        method : {"multiplier", "pairs", "parametric"}, optional
            For mixed rows (RMGMOLS): normal multipliers on the k rows' scores, with t statistics of k - d
            degrees of freedom; the k rows drawn again and solved again; or normal draws. The rows vary by
            mixing and noise, given the people. Other errors are added from normal distributions: the noise of
            the means, and sampling unless ``target="sample"``. For rows of single people: random signs on
            their influences, the rows drawn again, or normal draws. Default: "multiplier", or "parametric"
            where rows cannot be drawn again.
        rng : None, int or Generator
            Seed of the replicates.
        progress : bool, optional
            Whether to show a progress bar of the replicates; default: on a terminal only.

        Returns
        -------
        object
            ``.conf_int()``, ``.bse``, ``.draws``, ``.summary_frame()`` and ``.method``.

        Notes
        -----
        **Privacy.** Post-processing of the released rows: no cost.
        """
        if method is None and not self._of_people:
            method = "multiplier" if hasattr(self, "_rows_and_rest") else "parametric"
        if method == "parametric" or self._of_people:
            return super().bootstrap(draws, method, rng=rng, progress=progress)
        chosen: BootstrapMethod = check_choice(method, BootstrapMethod, "method")
        count = check_count(draws, "draws", least=2)
        generator = as_generator(rng)
        (rows, rest), system = self._rows_and_rest, cast(MixedLeastSquares, self.inference.context.system)
        center = self.inference.estimate.params
        bse = self.inference.estimate.bse
        if chosen == "multiplier":
            shifts, pivots = row_draws(rows, rest, system.df, count, generator)
            replicates = BootstrapDraws(params=center, bse=bse, draws=center + shifts, pivots=pivots)
        else:
            resolve = self._resolved(covariance_root(nonnegative(rest)), generator)
            with progress_bar(progress, "pairs bootstrap", total=count, unit="replicate"):
                replicates = pairs_bootstrap(center, bse, resolve, n=system.k, draws=count, rng=generator)
        return BootstrapResults(self.inference.names, replicates, chosen)

    def null_draws(self, R: Floats, draws: int | None, rng: RngLike) -> Floats | None:
        """Return draws of the t statistics of ``R b`` from mixed rows; None: by the people's influences."""
        if self._of_people:
            return super().null_draws(R, draws, rng)
        rows, rest = self._rows_and_rest
        df = cast(MixedLeastSquares, self.inference.context.system).df
        count = check_count(1_999 if draws is None else draws, "draws")
        return row_draws(R @ rows @ R.T, R @ rest @ R.T, df, count, as_generator(rng))[1]

    @property
    def _of_people(self) -> bool:
        """Whether the released rows are single people's."""
        return isinstance(self.inference.context.system, CorrectedLeastSquares)

    @property
    def _rows_and_rest(self) -> tuple[Floats, Floats]:
        """Covariance of what the k mixed rows add to the coefficients' error, and of the rest, (p, p)."""
        covariance = self.inference.estimate.covariance
        transform = self._released_rows.design.to_user[0]
        system = cast(MixedLeastSquares, self.inference.context.system)
        scaled = self._scaled_solution
        rows = transform @ sandwich(system.A, system.rows_meat(scaled), system.n) @ transform.T
        return rows, covariance - rows

    @property
    def _scaled_solution(self) -> Floats:
        """Solution of the released moments, scaled units, which the estimate is unless it is penalized."""
        system = cast(MixedLeastSquares, self.inference.context.system)
        (transform, shift) = self._released_rows.design.to_user
        scaled = np.asarray(np.linalg.solve(system.A, system.g), dtype=np.float64)
        away = np.abs(transform @ scaled + shift - self.inference.estimate.params)
        if (away > 1e-6 * self.inference.estimate.bse).any():
            raise NotAvailableError(
                "this bootstrap method solves the moment equations without a penalty, but the estimate has a "
                "penalty: use method='parametric'"
            )
        return scaled

    @property
    def _released_rows(self) -> Release:
        if self.inference.context.release is None:
            raise NotAvailableError(
                "this method needs the released rows, but this result was saved without them: save it with "
                "records=True, or call the method before you save"
            )
        return self.inference.context.release

    def _resolved(self, root: Floats, rng: np.random.Generator) -> Resolve:
        """Return the solver of rows drawn again; `root` is of the covariance of the other errors."""
        release = self._released_rows
        population = self.inference.context.target != "sample"
        transform, shift = release.design.to_user

        def resolve(weights: Floats) -> tuple[Floats, Floats]:
            drawn_rows = np.repeat(np.arange(len(weights)), weights.astype(np.int64))
            system = cast(MixedLeastSquares, mixing_system(release, population=population, rows=drawn_rows))
            params = np.asarray(np.linalg.solve(system.A, system.g), dtype=np.float64)
            meat = system.meat(params) if population else system.noise_meat(params)
            cov = transform @ sandwich(system.A, meat, system.n) @ transform.T
            moved = root @ rng.standard_normal(root.shape[1])
            return transform @ params + shift + moved, np.sqrt(np.maximum(np.diag(cov), 0.0))

        return resolve


@dataclass(frozen=True, eq=False)
class MixedPredictions(Predictions):
    """Predicted means of new rows by a plain, de-biased or shrunk fit."""

    def predict(
        self, exog: ColumnsLike | None = None, transform: bool = True, which: Which = "mean"
    ) -> pd.Series[float]:
        """Return predicted means of new rows; those of a shrunk fit are kept inside the label's bounds.

        Parameters
        ----------
        exog : table, mapping of columns or single values, Series of one row, or array
            New rows with the formula's columns, or the design matrix itself (by name where there are names);
            an array may leave out the constant.
        transform : bool
            False: `exog` is the design matrix although the model has a formula.
        which : {"mean", "linear"}
            "linear" is not kept inside bounds.

        Returns
        -------
        Series
            One number per row, under the labels of the rows.
        """
        predicted = super().predict(exog, transform, which)
        settings = mixing_settings(self.inference.context)
        design = self.inference.context.design
        if which == "linear" or not settings["shrink"] or design is None:
            return predicted
        return predicted.clip(design.y_low, design.y_high)

    def rows(self, exog: ColumnsLike | None, transform: bool) -> tuple[Floats, pd.Index[Any]]:
        """Return the design matrix of new rows, and their labels; an array may leave out the constant."""
        design = self.inference.context.design
        if design is None or not transform or not isinstance(exog, (np.ndarray, list)):
            return super().rows(exog, transform)
        array = np.atleast_2d(check_array(exog, "exog", ndim=np.ndim(exog), finite=False))
        if array.shape[1] == len(design.inputs) and all(
            column.plain for column in design.columns if column.pieces
        ):
            return super().rows(pd.DataFrame(array, columns=list(design.inputs)), transform)
        return super().rows(array, False)


def mixing_settings(context: Context) -> MixingSettings:
    """Return the stored settings, with defaults for files that lack them."""
    return cast(MixingSettings, {"shrink": False, "bias": None, **context.settings})


@error_boundaries
class MixingResults(Results):
    """Results of `RMGMOLS`, `DGMOLS` and `BGMOLS`.

    Adds `bias` (of a plain fit) and the exact form of the score test to `Results`. ``privacy.epsilon``,
    ``mu`` and ``rho`` are per person, all parties together; ``privacy.parties`` has one line per party.
    """

    @cached_property
    def _score_tests(self) -> MixedScoreTests:
        return MixedScoreTests(self._inference)

    @cached_property
    def _resampling(self) -> MixedResampling:
        return MixedResampling(self._inference)

    @cached_property
    def _predictions(self) -> MixedPredictions:
        return MixedPredictions(self._inference, self._fit_statistics)

    score_test = delegated("_score_tests", MixedScoreTests.score_test)
    bootstrap = delegated("_resampling", MixedResampling.bootstrap)
    predict = delegated("_predictions", MixedPredictions.predict)

    @property
    def bias(self) -> pd.Series[float]:
        """Estimated bias of a plain fit (debias=False) by the noise, in the user's units.

        Raises
        ------
        NotAvailableError
            The fit is not a plain one, or the release identifies the coefficients too weakly to estimate it.
        """
        bias = mixing_settings(self._context)["bias"]
        if bias is None:
            raise NotAvailableError(
                "bias is available only for a plain fit (debias=False) of a release that identifies "
                "the coefficients"
            )
        return self._inference.labelled(np.asarray(bias, dtype=np.float64), "bias")

    def _check_settings(self) -> None:
        bias = mixing_settings(self._context)["bias"]
        if bias is not None and len(check_array(bias, "bias", ndim=1)) != len(self.names):
            raise ArgumentError("bias= must have one entry for each coefficient")


def rebuilt_system(release: Release, settings: MixingSettings) -> Any:
    """Return the estimating equation of stored results."""
    return mixing_system(release, population=settings["population"])


def mixing_system(release: Release, *, population: bool = True, rows: Integers | None = None) -> MixingSystem:
    """Return the estimating equation of a regression release, scaled units, in the design's column order.

    `population`: whether score tests of mixed rows are about the coefficients of the population; for single
    rows with noise they always are. With `rows` it is that of these mixed rows, in place of all.
    """
    arrays = release.arrays
    noise_model = cast(MixingRegressionNoiseModel, release.noise_model)
    design = release.design
    noise = np.asarray(noise_model["noise"])
    if noise_model["method"] == "gaussian-rows":
        return CorrectedLeastSquares(
            arrays["features"], arrays["response"], np.diag(noise), y_noise_var=noise_model["y_noise"]
        )
    top = arrays.get("ones_response")
    chosen = slice(None) if rows is None else rows
    return MixedLeastSquares(
        arrays["features"][chosen],
        arrays["response"][chosen],
        noise,
        y_noise=noise_model["y_noise"],
        n=release.nobs,
        share=noise_model["share"],
        constant=design.constant,
        ones_row=arrays.get("ones_row"),
        ones_response=None if top is None else float(top[0]),
        population=population,
        disjoint=noise_model.get("kind") == "countsketch",
    )


@dataclass(frozen=True, slots=True)
class PlainFit:
    """Least squares on the released rows as if they had no noise (the paper's RMGM and BGM).

    Attributes
    ----------
    params : ndarray, shape (p,)
        Scaled units.
    bias : ndarray, shape (p,), or None
        What the noise does to it, estimated from the release: plain less de-biased limit; None where the
        release does not identify the coefficients.
    """

    params: Floats
    bias: Floats | None


def plain_fit(system: MixingSystem, *, ridge: float = 0.0) -> PlainFit:
    """Return plain least squares on the released rows, with its estimated bias.

    Notes
    -----
    The plain Gram matrix is A + G, G what the noise adds to it. So plain least squares solves
    ``(A + G + ridge I) w = g`` and differs from the solution b of ``A b = g`` by
    ``-(A + G + ridge I)^-1 (G + ridge I) b``. The ridge leaves noise-free columns alone.
    """
    added = noise_gram(system) + ridge * np.diag((~system.noise_free).astype(np.float64))
    gram = system.A + added
    params = np.asarray(np.linalg.lstsq(gram, system.g, rcond=None)[0], dtype=np.float64)
    if not is_positive_definite(system.A):
        return PlainFit(params, None)
    bias = -np.linalg.solve(gram, added @ np.linalg.solve(system.A, system.g))
    return PlainFit(params, np.asarray(bias, dtype=np.float64))


def noise_gram(system: MixingSystem) -> Floats:
    """Return what the noise adds to the Gram matrix of the released rows, shape (p, p)."""
    if isinstance(system, CorrectedLeastSquares):
        return system.noise_cov
    return system.gram_noise()[0]


def shrunk_params(release: Release) -> Floats:
    """Return the coefficients of the prediction rule, scaled units; see `shrunk_slopes`.

    Raises
    ------
    NotAvailableError
        The release has single rows, or no all-ones row, from which column means come.
    """
    arrays = release.arrays
    noise_model = cast(MixingRegressionNoiseModel, release.noise_model)
    design = release.design
    if "ones_row" not in arrays or design.constant is None:
        raise NotAvailableError(
            "shrink=True needs RMGMOLS with intercept=True and a regression with a constant"
        )
    constant = design.constant
    slopes = design.private
    weight = float(arrays["ones_row"][constant])
    means = arrays["ones_row"][slopes] / weight
    mean = float(arrays["ones_response"][0]) / weight
    c = arrays["features"][:, constant]
    bounds = guessed_variances(design)
    fit = shrunk_slopes(
        arrays["features"][:, slopes] - np.outer(c, means),
        arrays["response"] - c * mean,
        np.asarray(noise_model["noise"])[slopes],
        noise_model["y_noise"],
        kept=(1.0 - noise_model["share"]) * release.nobs,
        signal_bounds=3.0 * bounds,
        label_variance_bound=(design.y_diameter / 2.0) ** 2,
    )
    params = np.empty(len(slopes))
    params[slopes] = fit.slopes
    params[constant] = mean - means @ fit.slopes
    return params


def public_normals(release: Release) -> Floats:
    """Return one standard normal a released row, from the release's own SHA-256: public and reproducible.

    It is a function of noisy numbers that carry far more than 64 bits of noise, so it is as good as
    independent of them for a test.
    """
    digest = hashlib.sha256()
    for name in ("features", "response"):
        digest.update(np.ascontiguousarray(release.arrays[name], dtype="<f8").tobytes())
    key = int.from_bytes(digest.digest()[:16], "little")
    generator = np.random.Generator(np.random.Philox(key=key))
    return generator.standard_normal(len(release.arrays["response"]))
