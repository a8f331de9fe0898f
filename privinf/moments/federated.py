"""Second moments over a federation: released by secure sums, or by a server that all sites trust."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from privinf.accounting import GaussianLoss, Ledger, LedgerEntry, split_mu
from privinf.accounting.ledger import charged_since
from privinf.errors import AlignmentError, ArgumentError, SchemaError, SensitivityError
from privinf.federation import NoisySum, SecureServer, TrustedServer
from privinf.federation.charges import stating_charges
from privinf.federation.checkpoint import CheckpointedServer, FitFolder, fit_digest
from privinf.fitting.rows import ModelRows
from privinf.mechanisms.gaussian import total_mu, warn_of_large_delta
from privinf.mechanisms.moments import (
    ROBUST_SHARE,
    moment_layout,
    moment_norm,
    refuse_dropping_of,
    residual_plan,
)
from privinf.mechanisms.residual_plan import ResidualPlan
from privinf.mechanisms.rows import imputing
from privinf.mechanisms.statistics.moments import (
    default_response_weight,
    residual_moment_sensitivity,
)
from privinf.releases import Release
from privinf.schema import Design, Schema
from privinf.typing import Calibration, CovType, Floats, Missing, RngLike, SpendingOptions, Trust
from privinf.validation import check_cov_type, check_fraction, check_positive
from privinf.wire import Labels, Statistics

# ---- sites


def closed(model_rows: ModelRows, schema: Schema) -> ModelRows:
    """Return the sites of a formula, with all columns protected: no site sends raw public columns.

    The sites still adopt the design that their own schema makes.
    """
    if model_rows.design.response_public:
        raise SchemaError(
            f"MomentOLS also protects the response, so {model_rows.design.response!r} must not "
            "be declared public"
        )
    hidden = Schema(
        {name: replace(declared, public=False) for name, declared in schema.columns.items()},
        unit=schema.unit,
        max_rows=schema.max_rows,
    )
    design = Design.from_formula(str(model_rows.design.formula), hidden, radius=model_rows.design.radius)
    return replace(model_rows, design=design.conditioned(), site_design=model_rows.design.conditioned())


Checkpoint = str | PathLike[str] | None


class FederatedMoments:
    """The release of a federated MomentOLS: the moments of all sites' rows, noised once.

    Parameters
    ----------
    model_rows : ModelRows
        The sites. Every column of the design is protected but the constant.
    trust : {"secure-sum", "server"}
    response_weight : float, optional
        c, public; default `default_response_weight`.

    Notes
    -----
    **Privacy.** Neighboring tables differ in one record (replace-one) of one site. The sensitivity is that of
    a trusted curator (`privinf.mechanisms.statistics.moments`), computed again by every site. With
    "secure-sum" the sites add the noise, the honest ones enough for the claim; with "server" they send sums
    without noise.
    """

    def __init__(self, model_rows: ModelRows, *, trust: Trust, response_weight: float | None) -> None:
        self.trust: Trust = trust
        if not model_rows.design.private.any():
            raise SensitivityError(
                "the model has no column except the constant, so there is nothing to protect: add a column"
            )
        self.model_rows = model_rows
        self.design = model_rows.design
        if response_weight is None:
            response_weight = default_response_weight(self.design.norm, self.design.y_norm, self._constants)
        self.response_weight = check_positive(response_weight, "response_weight")

    def release(
        self,
        *,
        cov_type: CovType | None = None,
        robust_share: float | None = None,
        ledger: Ledger,
        max_colluding: int = 0,
        checkpoint: Checkpoint = None,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        rho: float | None = None,
        calibration: Calibration | None = None,
        rng: RngLike = None,
    ) -> Release:
        """Release the second moments once; with ``cov_type="HC0"`` the residual moments in a second round.

        Parameters
        ----------
        cov_type : {"nonrobust", "HC0"}, optional
            Kind of standard errors that the release is for; "HC0" needs the second round.
        robust_share : float, optional
            Share of mu^2 for the second round.
        ledger : Ledger
            Account of the release.
        max_colluding : int
            Secure sums: number of sites that may collude with the server; their noise does not count.
        checkpoint : path, optional
            Folder of this release alone, where rounds are stored: the same call resumes after the last one.
            With "server" it holds the secret key of the noise: protect it as you protect the rows.

        epsilon, delta, mu, rho : float, optional
            Budget of both rounds; exactly one of `epsilon`, `mu` and `rho`.
        calibration : {"exact", "classic"}, optional
            How the noise is computed from `epsilon` and `delta`.
        rng : None, int or Generator
            Seeds simulation noise, with "secure-sum" at the sites; None: secure noise.

        Returns
        -------
        Release of kind "moments".

        Raises
        ------
        AlignmentError
            A site does not answer or has other columns, or all rows are fewer than the coefficients.
        PrivinfError
            A site refuses the query; the message names the site.

        Warns
        -----
        LargeDeltaWarning
            delta >= 1/n.
        """
        level = SpendingOptions(epsilon=epsilon, delta=delta, mu=mu, rho=rho, calibration=calibration)
        total = total_mu(level.spending())
        parts = _parts(total, cov_type, robust_share)
        folder = None
        if checkpoint is not None:
            terms = cov_type, parts, self.trust, self.response_weight, max_colluding
            fit = fit_digest(self.design, self._total_args(), *terms)
            folder = FitFolder(path=Path(checkpoint), fit=fit, keyed=self.trust == "server")
        with ExitStack() as stack:
            stack.enter_context(stating_charges(ledger, delta=delta, checkpoint=checkpoint))
            unspent = total if folder is None else stack.enter_context(folder).unspent(total, ledger)
            price = [GaussianLoss(part) for part in parts]
            if unspent > 0.0:
                ledger.check(price if unspent == total else GaussianLoss(unspent))
            server = self._server(ledger, rng, max_colluding)
            n, p = server.nobs, len(self.design.names)
            if n < p:
                raise AlignmentError(
                    f"{n} rows are too few to estimate {p} coefficients: use fewer columns or more rows"
                )
            for part in parts[1:]:
                server.check_numbers(p * (p + 1) // 2, part)
            warn_of_large_delta(delta, n)
            rounds = _MomentRounds(server if folder is None else CheckpointedServer(server, folder))
            stack.enter_context(rounds.server.reserving(price))
            holders = {"max_colluding": max_colluding, **imputing(server.imputed)}
            return self._released(rounds, parts, n, delta, holders)

    def _released(
        self,
        rounds: _MomentRounds,
        parts: Sequence[float],
        n: int,
        delta: float | None,
        holders: Mapping[str, Any],
    ) -> Release:
        """Return the release of all rounds, whose price is reserved; `holders` is for the noise model."""
        missing: Missing = holders.get("missing", "raise")
        if missing == "drop":
            refuse_dropping_of(self.design)
        layout = moment_layout(self.design, missing)
        args = self._total_args(missing)
        first = rounds.release_sum(Statistics.MOMENTS_TOTAL, args, Labels.MOMENTS, parts[0])
        arrays = {"moments": first.values, "public_moments": np.full([layout.public] * 2, float(n))}
        noise_model: dict[str, Any] = {
            "trust": self.trust,
            "response_weight": self.response_weight,
            "scale": first.scale,
            "delta": delta,
            "noise_free": math.isinf(parts[0]),
            "sites": len(first.sites),
            **holders,
        }
        if len(parts) > 1:
            plan = self._plan(arrays, noise_model, n, parts[1])
            bound = plan.largest if noise_model["noise_free"] else plan.bound
            args = self._shared_args(missing) | {
                "response_factor": 1.0 / self.design.y_scale,
                "coefficients": plan.coefficients,
                "residual_clip": bound,
            }
            second = rounds.release_sum(Statistics.MOMENTS_RESIDUAL, args, Labels.RESIDUAL_MOMENTS, parts[1])
            arrays["residual_moments"] = second.values
            noise_model |= {
                "residual_bound": bound,
                "residual_scale": second.scale,
                "residual_largest": plan.largest,
            }
        return Release(
            kind="moments",
            arrays=arrays,
            noise_model=noise_model,
            design=self.design,
            entries=rounds.entries,
            nobs=n,
        )

    @property
    def _constants(self) -> int:
        return 0 if self.design.constant is None else 1

    def _server(self, ledger: Ledger, rng: RngLike, max_colluding: int) -> TrustedServer:
        federation = self.model_rows.sites
        options: dict[str, Any] = {"ledger": ledger, "rng": rng, "design": self.model_rows.site_design}
        if self.trust == "secure-sum":
            return SecureServer(federation, max_colluding=max_colluding, **options)
        if max_colluding:
            raise ArgumentError('max_colluding= can only be combined with trust="secure-sum"')
        return TrustedServer(federation, **options)

    def _plan(
        self, arrays: Mapping[str, Floats], noise_model: Mapping[str, Any], n: int, mu: float
    ) -> ResidualPlan:
        """Return the plan of the second round, whose price is `mu`, from the first one."""
        missing: Missing = noise_model.get("missing", "raise")
        layout = moment_layout(self.design, missing)
        sensitivity = residual_moment_sensitivity(moment_norm(self.design, missing), layout.public)
        return residual_plan(
            self.design,
            noise_model,
            layout.matrix(arrays["moments"], arrays["public_moments"]),
            n,
            public_norm2=layout.public,
            residual_noise=sensitivity / mu,
        )

    def _shared_args(self, missing: Missing = "raise") -> dict[str, Any]:
        """Return the arguments of both statistics: units that differ from the user's, and the constant.

        Where sites drop rows, how many are complete is private, and the constant is a column like the others.
        """
        design = self.design
        args: dict[str, Any] = {"norm": moment_norm(design, missing), "intercept": design.y_center}
        if design.center.any():
            args["center"] = design.center
        if (design.scale != 1.0).any():
            args["scale"] = design.scale
        if design.constant is not None and missing != "drop":
            args["constant"] = design.constant
        return args

    def _total_args(self, missing: Missing = "raise") -> dict[str, Any]:
        weight = self.response_weight
        bound = weight * self.design.y_norm
        return self._shared_args(missing) | {
            "response_factor": weight / self.design.y_scale,
            "response_bound": bound,
        }

    def __repr__(self) -> str:
        sites = len(self.model_rows.sites.sites)
        return f"<FederatedMoments by {self.trust}: {len(self.design.names)} columns, {sites} sites>"


@dataclass(slots=True)
class _MomentRounds:
    """Releases by one server, with their ledger lines."""

    server: TrustedServer | CheckpointedServer
    entries: tuple[LedgerEntry, ...] = ()

    def release_sum(self, op: str, args: Mapping[str, Any], label: str, mu: float) -> NoisySum:
        before = len(self.server.ledger.entries)
        release: NoisySum = self.server.vector_sum(op, args, label=label, mu=mu)
        if isinstance(self.server, CheckpointedServer):
            self.entries = tuple(self.server.entries)
        else:
            self.entries += charged_since(self.server.ledger, before)
        return release


def _parts(mu: float, cov_type: CovType | None, robust_share: float | None) -> tuple[float, ...]:
    """Return the prices of the rounds."""
    robust = cov_type is not None and check_cov_type(cov_type, CovType) == "HC0"
    if robust_share is not None and not robust:
        raise ArgumentError("robust_share= can only be combined with cov_type='HC0'")
    share = check_fraction(ROBUST_SHARE if robust_share is None else robust_share, "robust_share")
    return split_mu(mu, [1.0 - share, share] if robust else [1.0])
