r"""Release of second moments by the Gaussian mechanism (MomentOLS).

With z = (p, x, c y), p the declared-public columns (the constant among them), x the private columns in
scaled units, |x| <= R, and c a public weight, |c y| <= k, what is released are the isometric entries of
z z' (the diagonal, and sqrt 2 times the entries above it) less the block p p', which is public. Noise of
equal sd on those entries is isotropic in the Frobenius norm.

Replace-one sensitivity: two records share p (it is public), so with q^2 = max |p|^2, a = (x, c y) and b
its replacement,

.. math:: \|zz' - ww'\|_F^2 = (q^2 + |a|^2)^2 + (q^2 + |b|^2)^2 - 2 (q^2 + a'b)^2,

which is largest at |a|^2 = |b|^2 = R^2 + k^2 =: rho^2 and the inner product nearest to -q^2 that two
such pairs can have.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from privinf.accounting import GaussianLoss, Ledger, split_mu
from privinf.errors import ArgumentError, LargeDeltaWarning, SchemaError, SensitivityError
from privinf.mechanisms.gaussian import Line, Spending, assumed, max_rows, unit_name
from privinf.mechanisms.modulation import resolve_design
from privinf.mechanisms.rows import BLOCK, EncodedRows, as_rows, encode, weight_bound
from privinf.noise import NoiseSource, SourceName, grid_step
from privinf.releases import Release
from privinf.schema import Design, Schema
from privinf.typing import Calibration, Floats, Integers, Missing, RngLike
from privinf.validation import check_choice, check_fraction, check_positive

Trust = Literal["central", "local"]
CovType = Literal["nonrobust", "HC0"]

# Residuals are clipped at this multiple of their released standard deviation before the HC0 release.
RESIDUAL_MULTIPLE = 3.0
ROBUST_SHARE = 0.25


def second_moment_sensitivity(x_norm: float, y_norm: float, public_norm2: float = 0.0) -> float:
    """Return the largest ||zz' - ww'||_F over two records (see the module docstring).

    Parameters
    ----------
    x_norm, y_norm : float
        Largest |x| and largest |c y|.
    public_norm2 : float
        Largest squared norm of a record's public columns (1 with a constant alone, 0 without any).

    Notes
    -----
    sqrt 2 (q^2 + rho^2) where an inner product of -q^2 can be had, 2 sqrt 2 q rho where even -rho^2 is
    not that small (rho < q). Attained for d >= 2 private columns on a ball when k^2 <= R^2 + q^2 (as the
    default weight has it); otherwise, for d = 1 and for a box, an upper bound. (2 sqrt 2 R k, sometimes
    given for k > R without a constant, is *not* an upper bound: against the record (0, 0) the distance is
    R^2 + k^2 already.)
    """
    rho2 = x_norm**2 + y_norm**2
    gap = max(public_norm2 - rho2, 0.0)
    return math.sqrt(2.0 * ((public_norm2 + rho2) ** 2 - gap**2))


def default_response_weight(x_norm: float, y_norm: float, public_norm2: float) -> float:
    """Return the public weight c of y: c |y| <= .87 sqrt(R^2 + q^2) spends the sensitivity well.

    For small slopes the noise of the estimate is proportional to (q^2 + R^2 + k^2)/k with k = c |y|,
    smallest at k^2 = q^2 + R^2 and flat around it; larger slopes favour a smaller k.
    """
    return 0.87 * math.sqrt(x_norm**2 + public_norm2) / y_norm


@dataclass(frozen=True, slots=True)
class MomentLayout:
    """Which entries of zz' a moment vector holds.

    Attributes
    ----------
    public, private : int
        Numbers of public and private columns; z has public + private + 1 entries, in this order.
    """

    public: int
    private: int

    @property
    def size(self) -> int:
        """Length of z."""
        return self.public + self.private + 1

    def pairs(self) -> tuple[Integers, Integers, Floats]:
        """Return rows, columns and isometric factors of the entries that are released."""
        rows, columns = np.triu_indices(self.size)
        keep = columns >= self.public
        rows, columns = rows[keep], columns[keep]
        factors = np.where(rows == columns, 1.0, math.sqrt(2.0))
        return rows.astype(np.int64), columns.astype(np.int64), factors

    def matrix(self, moments: Floats, public_moments: Floats) -> Floats:
        """Return the symmetric (size, size) matrix from isometric entries and the public block."""
        rows, columns, factors = self.pairs()
        full = np.zeros((self.size, self.size))
        full[rows, columns] = moments / factors
        full[columns, rows] = full[rows, columns]
        full[: self.public, : self.public] = public_moments
        return full


class Moments:
    """The holder's door of MomentOLS: raw rows in, noised second moments out.

    Parameters
    ----------
    schema : Schema or Design
        Public description of the columns; with a `Schema`, a formula is needed as well. The response
        must have public bounds: this mechanism protects it together with the features.
    formula : str, optional
    trust : {"central", "local"}
        "central": one noisy total by a trusted curator; "local": each record noises its own moments.
    response_weight : float, optional
        c, public; default `default_response_weight`.
    radius, missing, weights, data_bounds
        As for `Modulation`; in a total, the sensitivity is multiplied by the weights' upper bound.

    Raises
    ------
    SchemaError, SensitivityError, ArgumentError

    Notes
    -----
    **Privacy.** Replace-one; mu = sensitivity / noise sd (`second_moment_sensitivity`; a unit with
    several rows multiplies it by max_rows in the total, by sqrt(max_rows) in local releases). Public
    columns are public: the same in both neighbours.

    Examples
    --------
    >>> import numpy as np, pandas as pd, privinf as pi
    >>> schema = pi.Schema({"y": (0.0, 10.0), "x": (-1.0, 1.0)})
    >>> rows = pd.DataFrame({"x": np.linspace(-1, 1, 50), "y": np.linspace(2, 8, 50)})
    >>> release = pi.Moments(schema, "y ~ x", trust="central").release(rows, epsilon=2.0, delta=1e-6)
    >>> release.arrays["moments"].shape
    (5,)
    """

    kind = "moments"

    def __init__(
        self,
        schema: Schema | Design,
        formula: str | None = None,
        *,
        trust: Trust = "central",
        response_weight: float | None = None,
        radius: float | None = None,
        missing: Missing = "raise",
        weights: str | None = None,
        data_bounds: bool = False,
    ) -> None:
        self.design = resolve_design(schema, formula, response="protected", radius=radius)
        if self.design.response_public:
            raise SchemaError(
                f"MomentOLS protects the response too: give public bounds for {self.design.response!r} "
                "(y_bounds=, or a column of the schema)"
            )
        self.trust: Trust = check_choice(trust, Trust, "trust")
        self.missing: Missing = check_choice(missing, Missing, "missing")
        self.data_bounds = data_bounds
        self.weight_bound = weight_bound(self.design, weights)
        self.weights = weights
        self.layout = MomentLayout(int((~self.design.private).sum()), int(self.design.private.sum()))
        if self.layout.private == 0:
            raise SensitivityError("every column is declared public: there is nothing to protect")
        if response_weight is not None:
            check_positive(response_weight, "response_weight")
        self.response_weight = response_weight

    def release(
        self,
        rows: Any,
        *,
        cov_type: CovType | None = None,
        robust_share: float | None = None,
        epsilon: float | None = None,
        mu: float | None = None,
        rho: float | None = None,
        delta: float | None = None,
        calibration: Calibration = "exact",
        ledger: Ledger | None = None,
        rng: RngLike = None,
        source: SourceName = "lattice",
    ) -> Release:
        """Release the second moments once; with ``cov_type="HC0"`` (central) the residual moments too.

        Parameters
        ----------
        rows : DataFrame, pair (y, X), or Rows
        cov_type : {"nonrobust", "HC0"}, optional
            Trust "central": "nonrobust" (default), or "HC0", which spends `robust_share` (default .25) of
            mu^2 on ``sum clip(e, E)^2 x x'`` with e the residuals from the first release. Local moments
            always support HC0, at no share.
        epsilon, delta, mu, rho, calibration, ledger, rng, source
            As for `Modulation.release`.

        Returns
        -------
        Release of kind "moments".

        Warns
        -----
        LargeDeltaWarning
            trust "central" and delta >= 1/n.
        """
        robust = self._wants_residuals(cov_type)
        if robust_share is not None and not robust:
            raise ArgumentError("robust_share= belongs to cov_type='HC0' with trust='central'")
        share = check_fraction(ROBUST_SHARE if robust_share is None else robust_share, "robust_share")
        spending = Spending.of(
            epsilon=epsilon, mu=mu, rho=rho, delta=delta,
            calibration=calibration, ledger=ledger, rng=rng, source=source,
        )  # fmt: skip
        shares = [1.0 - share, share] if robust else [1.0]
        parts = split_mu(spending.mu, shares)
        # A limit is on mu alone, so the refusal needs neither rows nor the public columns.
        spending.ledger.check([GaussianLoss(part) for part in parts])
        encoded = encode(self.design, as_rows(rows, self.missing), self.weights)
        if self.trust == "central":
            _warn_of_large_delta(spending.delta, len(encoded.response))
        q2 = float(_squared_norms(encoded.public).max(initial=0.0))
        weight = self.response_weight or default_response_weight(self.design.norm, self.design.y_norm, q2)
        # Residuals are released in units of their clipping bound, which the first release decides.
        reaches = [
            second_moment_sensitivity(self.design.norm, weight * self.design.y_norm, q2),
            math.sqrt(2.0) * (self.design.norm**2 + q2),
        ]
        labels = ["moments", "residual moments"]
        lines = [self._line(*line) for line in zip(labels[: len(parts)], reaches, parts, strict=False)]
        scales, entries = zip(*(line.calibrated(spending.source) for line in lines), strict=True)
        recorded = spending.ledger.spend(*entries)
        arrays = self._moment_arrays(encoded, weight, scales[0], spending.source)
        law: dict[str, Any] = {
            "trust": self.trust,
            "response_weight": weight,
            "scale": scales[0],
            "delta": spending.delta,
            "noise_free": math.isinf(spending.mu),
        }
        if robust:
            b, bound = self._residual_plan(arrays, weight, len(encoded.response), law["noise_free"])
            unit = 1.0 if math.isinf(bound) else bound
            residual = self._residual_moments(encoded, b, bound, scales[1], spending.source)
            arrays["residual_moments"] = residual
            law |= {"residual_bound": bound, "residual_scale": scales[1] * unit**2}
        return Release("moments", arrays, law, self.design, recorded, len(encoded.response))

    def _wants_residuals(self, cov_type: CovType | None) -> bool:
        if cov_type is not None:
            check_choice(cov_type, CovType, "cov_type")
        if self.trust == "local" and cov_type == "nonrobust":
            raise ArgumentError('cov_type="nonrobust" is for trust="central"; local moments give HC0')
        return cov_type == "HC0" and self.trust == "central"

    def _line(self, label: str, sensitivity: float, mu: float) -> Line:
        # A unit's rows stand side by side in local releases; in a total they, and their roundings, add up.
        rows_per_unit = max_rows(self.design)
        local = self.trust == "local"
        factor = math.sqrt(rows_per_unit) if local else float(rows_per_unit)
        if not local:
            factor *= self.weight_bound if label == "moments" else self.weight_bound**2
        entries = self.layout.pairs()[0].size if label == "moments" else _triangle(self.layout.size - 1)
        return Line(
            label=label,
            mechanism="gaussian",
            sensitivity=factor * sensitivity,
            derivation=f"replace-one Frobenius distance of the record's {label}",
            dimension=entries * (rows_per_unit if local else rows_per_unit**2),
            mu=mu,
            unit=unit_name(self.design),
            trust=self.trust,
            assumptions=assumed(self.design, data_bounds=self.data_bounds),
        )

    def _private_norm2(self, weight: float) -> float:
        return self.design.norm**2 + (weight * self.design.y_norm) ** 2

    def _moment_arrays(
        self, encoded: EncodedRows, weight: float, scale: float, source: NoiseSource
    ) -> dict[str, Any]:
        if self.trust == "local":
            blocks = [
                block if scale == 0.0 else source.perturb(block, scale)
                for block in self._blocks(encoded, weight)
            ]
            arrays: dict[str, Any] = {"moments": np.concatenate(blocks), "public": encoded.public}
        else:
            largest = _squared_norms(encoded.public).max(initial=0.0) + self._private_norm2(weight)
            reach = len(encoded.response) * largest * self.weight_bound
            total = noisy_total(self._weighted_blocks(encoded, weight), scale, source, reach=reach)
            clear = encoded.public if encoded.weights is None else encoded.public * encoded.weights[:, None]
            arrays = {"moments": total, "public_moments": encoded.public.T @ clear}
        if self.trust == "local":
            kept = {"groups": encoded.groups, "weights": encoded.weights}
            arrays |= {name: array for name, array in kept.items() if array is not None}
        return arrays

    def _weighted_blocks(self, encoded: EncodedRows, weight: float) -> Iterator[Floats]:
        start = 0
        for block in self._blocks(encoded, weight):
            if encoded.weights is not None:
                block *= encoded.weights[start : start + len(block), None]
            start += len(block)
            yield block

    def _blocks(self, encoded: EncodedRows, weight: float) -> Iterator[Floats]:
        rows, columns, factors = self.layout.pairs()
        for start in range(0, len(encoded.response), BLOCK):
            part = slice(start, start + BLOCK)
            z = np.column_stack(
                [encoded.public[part], encoded.private[part], weight * encoded.response[part]]
            )
            yield z[:, rows] * (z[:, columns] * factors)

    def _residual_plan(
        self, arrays: dict[str, Any], weight: float, n: int, noise_free: bool
    ) -> tuple[Floats, float]:
        """Return (b, E): coefficients and clipping bound of the residuals, from the first release alone."""
        full = self.layout.matrix(arrays["moments"], arrays["public_moments"]) / n
        gram, cross, square = full[:-1, :-1], full[:-1, -1] / weight, full[-1, -1] / weight**2
        b = np.asarray(np.linalg.lstsq(gram, cross, rcond=None)[0], dtype=np.float64)
        if noise_free:
            return b, math.inf
        variance = float(square - 2.0 * b @ cross + b @ gram @ b)
        floor = (0.05 * self.design.y_norm) ** 2
        ceiling = self.design.y_norm + float(np.abs(b).sum()) * max(1.0, self.design.norm)
        return b, min(RESIDUAL_MULTIPLE * math.sqrt(max(variance, floor)), ceiling)

    def _residual_moments(
        self, encoded: EncodedRows, b: Floats, bound: float, unit_scale: float, source: NoiseSource
    ) -> Floats:
        rows, columns = np.triu_indices(self.layout.size - 1)
        factors = np.where(rows == columns, 1.0, math.sqrt(2.0))
        unit = 1.0 if math.isinf(bound) else bound

        def blocks() -> Iterator[Floats]:
            for start in range(0, len(encoded.response), BLOCK):
                part = slice(start, start + BLOCK)
                x = np.column_stack([encoded.public[part], encoded.private[part]])
                residual = np.clip(encoded.response[part] - x @ b, -bound, bound) / unit
                if encoded.weights is not None:
                    residual *= encoded.weights[part]
                yield (residual[:, None] ** 2 * x[:, rows]) * (x[:, columns] * factors)

        largest = _squared_norms(encoded.public).max(initial=0.0) + self.design.norm**2
        reach = len(encoded.response) * largest * self.weight_bound**2
        return noisy_total(blocks(), unit_scale, source, reach=reach) * unit**2


def noisy_total(blocks: Iterator[Floats], scale: float, source: NoiseSource, *, reach: float) -> Floats:
    """Return the sum over records of the blocks' rows plus N(0, scale^2) on each entry.

    With a secure source every record is put on the noise's grid first and the sum is exact in int64:
    neither the order of the records nor the size of a partial sum can move the result. `reach` is a
    public bound of the absolute sums.

    Raises
    ------
    SensitivityError
        The sum could leave int64 (the grid is too fine for the number of records).
    """
    if scale == 0.0 or not source.secure:
        total = np.asarray(sum(block.sum(axis=0) for block in blocks), dtype=np.float64)
        return total if scale == 0.0 else source.perturb(total, scale)
    step = grid_step(scale)
    if 2.0 * reach / step > 2.0**62:
        raise SensitivityError("the total does not fit into 64-bit integers at this noise scale")
    steps: Any = np.int64(0)
    for block in blocks:
        steps = steps + np.rint(block / step).astype(np.int64).sum(axis=0)
    return np.asarray(source.gaussian_steps(steps, scale / step) * step, dtype=np.float64)


def _warn_of_large_delta(delta: float | None, n: int) -> None:
    if delta is not None and delta * n >= 1.0:
        warnings.warn(
            f"delta={delta:g} is at least 1/n = {1.0 / n:.3g}: publishing one record at random would keep "
            "such a claim; name a delta far below 1/n",
            LargeDeltaWarning,
            stacklevel=5,
        )


def _squared_norms(x: Floats) -> Floats:
    return np.asarray(np.einsum("ij,ij->i", x, x), dtype=np.float64)


def _triangle(size: int) -> int:
    return size * (size + 1) // 2
