"""Least squares from noisy second moments: protects features and response together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from privinf.accounting import Ledger
from privinf.accounting.ledger import check_ledger
from privinf.doors import doors
from privinf.errors import ArgumentError, SchemaError
from privinf.fitting.model import ReleaseModel, array_design, refuse_weights
from privinf.fitting.solve import Fit, build_results
from privinf.mechanisms import Moments, Rows
from privinf.moments.equation import caveats, described, moment_system, release_cov_type
from privinf.releases import Release
from privinf.results import Results
from privinf.schema import Schema
from privinf.typing import Calibration, CovType, Missing, RngLike, Stabilization, Target, Trust
from privinf.validation import check_choice, check_count

if TYPE_CHECKING:  # a fit of rows in one place loads no federation
    from privinf.federation.local import Parties
    from privinf.moments.federated import Checkpoint, FederatedMoments

__all__ = ["MomentOLS", "moment_system"]
TRUSTED = {
    "central": "trusted curator",
    "local": "each record noises its own",
    "secure-sum": "secure sum",
    "server": "trusted server",
}


@doors
class MomentOLS(ReleaseModel):
    r"""Linear regression from second moments with Gaussian noise.

    Over several parties it is made by `from_arrays`, or by `from_formula` from a federation: by secure sums
    their noise is that of one trusted curator, and nobody sees more than the noisy total.

    Parameters
    ----------
    y : array_like, shape (n,)
    X : array_like or DataFrame, shape (n, p)
        Used as it is: add a constant with `privinf.add_constant`, or use a formula.
    bounds, radius
        Public bounds of the private columns, the ball, or both (as for `ModulatedOLS`).
    y_bounds : (low, high) or "data"
        Public bounds of the response; needed, since this release protects y too.
    public : sequence of column names or positions
    trust : {"central", "local"}
        "central": a trusted curator adds one noise matrix to the total; "local": each record adds its own.
    response_weight : float, optional
        Public weight of y against x in the release; the default spends the sensitivity well.
    missing, weights, ledger
        As for `ModulatedOLS`.

    Raises
    ------
    SchemaError, SensitivityError, ArgumentError

    Notes
    -----
    **Privacy.** Replace-one of one record (features and response together), one Gaussian release of the
    isometric entries of zz', z = (public, x, c y); see `privinf.mechanisms.statistics.moments`. Who is
    trusted in a secure sum, and with what, `privinf.federation.SecureServer` says.

    The noise enters linearly, so ``b = A^-1 g`` needs no bias correction. Totals: covariance
    ``A^-1 (s^2 A/n + V_noise) A^-1``, homoskedastic unless ``cov_type="HC0"`` buys the residual moments, with
    residuals clipped at 20 of their sds, or less where noise would drown them
    (`privinf.mechanisms.statistics.moments.ResidualPlan`). Local: sandwich of the per-record scores
    ``g_i - A_i b``. Clipping y changes the target to the regression among clipped values.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (5000, 2))
    >>> y = X @ [0.5, -0.3] + 0.3 * rng.standard_normal(5000)
    >>> fit = pi.MomentOLS(y, X, bounds=[(-1, 1)] * 2, y_bounds=(-2, 2)).fit(epsilon=1.0, delta=1e-6, rng=0)
    >>> bool((abs(fit.params - [0.5, -0.3]) < 5 * fit.bse).all())
    True
    """

    kind = "moments"
    mechanism_class = Moments

    def __init__(
        self,
        y: Any,
        X: Any,
        *,
        bounds: Any = None,
        radius: float | None = None,
        y_bounds: Any = None,
        public: Any = (),
        trust: Trust = "central",
        response_weight: float | None = None,
        missing: Missing = "raise",
        weights: Any = None,
        ledger: Ledger | None = None,
    ) -> None:
        refuse_weights(weights)
        if y_bounds is None:
            raise SchemaError(
                "MomentOLS protects the response too: pass its public bounds, y_bounds=(low, high)"
            )
        design, features, response, from_data = array_design(
            y, X, bounds=bounds, radius=radius, y_bounds=y_bounds, public=public
        )
        mechanism = Moments(
            design, trust=trust, response_weight=response_weight, missing=missing, data_bounds=from_data
        )
        self._bind(mechanism, Rows(features, response, missing), ledger)

    @classmethod
    def from_arrays(
        cls,
        parties: Parties,
        *,
        bounds: Any = None,
        radius: float | None = None,
        y_bounds: Any = None,
        trust: Trust = "secure-sum",
        response_weight: float | None = None,
        ledger: Ledger | None = None,
    ) -> Self:
        """Build the model over parties from one pair (y, X) each; a column ``const`` of ones is public.

        Parameters
        ----------
        parties : sequence or mapping of (y, X)
            Simulated in this process; real sites are a federation for `from_formula`.
        bounds, radius, y_bounds, response_weight, ledger
            As for the class. Every column but the constant is protected.
        trust : {"secure-sum", "server"}
            "secure-sum": sites add the noise under masks (needs the extra ``federation``); "server": they
            send un-noised sums to a server that all of them trust.

        Raises
        ------
        SchemaError, SensitivityError, ArgumentError
            A message about one party's rows names the party.

        Examples
        --------
        >>> import numpy as np, privinf as pi
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-1, 1, (5000, 2))
        >>> y = X @ [0.5, -0.3] + 0.3 * rng.standard_normal(5000)
        >>> parties = [(y[:2000], X[:2000]), (y[2000:], X[2000:])]
        >>> model = pi.MomentOLS.from_arrays(parties, bounds=[(-1, 1)] * 2, y_bounds=(-2, 2))
        >>> fit = model.fit(epsilon=1.0, delta=1e-6, rng=0)
        >>> bool((abs(fit.params - [0.5, -0.3]) < 5 * fit.bse).all())
        True
        """
        from privinf.federation.local import FEDERATED_TRUST
        from privinf.moments.federated import FederatedMoments, parties_of_arrays

        check_choice(trust, FEDERATED_TRUST, "trust")
        found = parties_of_arrays(
            parties, bounds=bounds, radius=radius, y_bounds=y_bounds, keyed=trust == "secure-sum"
        )
        return cls._over(FederatedMoments(found, trust=trust, response_weight=response_weight), ledger)

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
        """Build the model from a formula and raw rows, or a federation whose sites hold them.

        Parameters
        ----------
        formula : str
            Evaluated on raw rows at the holder; its bounds follow from the schema.
        data : DataFrame or Federation
            Sites must have the same schema, and a policy that goes with `trust`.
        schema : Schema
        missing : {"raise", "impute-public"}
            Of a data frame; in a federation every site's `Rows` say it.
        ledger : Ledger, optional
            Default: one for this object, cumulative over its fits and releases.
        **mechanism
            ``trust`` ("central" or "local"; over a federation "secure-sum", the default, or "server"),
            ``response_weight``, ``radius``; and for a data frame ``weights``, the name of a column of
            observation weights that the schema declares public with positive bounds.

        Raises
        ------
        SchemaError
            The formula needs columns, bounds or parameters that the schema does not declare.
        NotAvailableError
            Observation weights over a federation.

        Notes
        -----
        Over a federation, columns that the schema declares public are protected like the others.
        """
        if not hasattr(data, "ask"):
            if mechanism.get("trust") in ("secure-sum", "server"):
                raise ArgumentError(f"trust={mechanism['trust']!r} needs a federation, or from_arrays")
            return super().from_formula(
                formula, data, schema=schema, missing=missing, ledger=ledger, **mechanism
            )
        refuse_weights(mechanism.pop("weights", None))
        if missing != "raise":
            raise ArgumentError("missing= is each site's to say: Site(Rows(table, missing=...), schema)")
        from privinf.moments.federated import FederatedMoments, parties_of_formula

        parties = parties_of_formula(formula, data, schema, mechanism.pop("radius", None))
        options = {"trust": "secure-sum", "response_weight": None} | mechanism
        return cls._over(FederatedMoments(parties, **options), ledger)

    @classmethod
    def _over(cls, mechanism: FederatedMoments, ledger: Ledger | None) -> Self:
        model = cls.__new__(cls)
        model.mechanism = mechanism
        model.ledger = check_ledger(ledger)
        model._rows = model._release = None
        return model

    @property
    def _federated(self) -> bool:
        return self.mechanism is not None and not isinstance(self.mechanism, Moments)

    def release(self, **spending: Any) -> Release:
        """Release the rows once: see ``release`` of `Moments`, or of `FederatedMoments` over parties."""
        if self._federated:
            if "source" in spending:
                raise ArgumentError("source= is for rows in one place: here the noise is the federation's")
            released: Release = self.mechanism.release(ledger=self.ledger, **spending)
            return released
        for name in ("max_colluding", "checkpoint"):
            if name in spending:
                raise ArgumentError(f"{name}= is for a model over a federation")
        return super().release(**spending)

    def fit(
        self,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        rho: float | None = None,
        cov_type: CovType | None = None,
        robust_share: float | None = None,
        stabilization: Stabilization = "none",
        ridge: float = 0.0,
        fuller: float | None = None,
        target: Target = "population",
        calibration: Calibration | None = None,
        rng: RngLike = None,
        source: str | None = None,
        max_colluding: int = 0,
        checkpoint: Checkpoint = None,
    ) -> Results:
        """Release (unless built from a release) and estimate.

        Parameters
        ----------
        epsilon, delta, mu, rho : float
            What may be spent; ``epsilon=inf`` is ordinary least squares.
        cov_type : {"nonrobust", "HC0"}
            Totals: "nonrobust" (default) assumes equal error variance, in intervals and score tests alike;
            "HC0" does not, and spends `robust_share` (default .25) of mu^2 on residual moments, in a second
            round. Local: always the sandwich, "HC0".
        stabilization, ridge, fuller, target, calibration, rng, source
            As for `ModulatedOLS.fit`.
        max_colluding : int
            Secure sums: sites that may be in league with the server, whose noise does not count.
        checkpoint : path, optional
            Over a federation: folder of this fit alone, in which every round is kept: the same call goes on
            where one that was stopped had come to, and pays nothing twice but a round under way.

        Returns
        -------
        Results
        """
        how = Fit(stabilization, ridge, fuller, target)
        spending = {
            "epsilon": epsilon, "delta": delta, "mu": mu, "rho": rho, "robust_share": robust_share,
            "rng": rng, "calibration": calibration, "source": source,
            "max_colluding": check_count(max_colluding, "max_colluding", least=0) or None,
            "checkpoint": checkpoint,
        }  # fmt: skip
        release = self._given_release(spending)
        if release is None:
            given: dict[str, Any] = {name: value for name, value in spending.items() if value is not None}
            if cov_type is not None:
                given["cov_type"] = cov_type
            release = self.release(**given)
        elif cov_type is not None and cov_type != release_cov_type(release):
            raise ArgumentError(
                f"cov_type={cov_type!r}: this release was made for cov_type={release_cov_type(release)!r}"
            )
        system = moment_system(release)
        return build_results(
            Results,
            system,
            release=release,
            ledger=self.ledger,
            model=type(self).__name__,
            method=f"second moments, {TRUSTED[release.law['trust']]}",
            fit=how,
            options=described(release),
            settings=caveats(release, system),
        )

    def __repr__(self) -> str:
        if self._federated:
            return f"<{type(self).__name__}: {self.mechanism!r} (rows not shown)>"
        return super().__repr__()
