"""How many modulation directions: widths of ModulatedOLS from its variance formulas, before any row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import norm

from privinf.errors import NotAvailableError
from privinf.mechanisms import Modulation
from privinf.mechanisms.gaussian import total_mu
from privinf.mechanisms.local.modulation_map import orthonormal_directions, planned_response_share
from privinf.modulation.theory import modulation_cumulants, modulation_noise_cov
from privinf.planning.people import Case
from privinf.schema import Design
from privinf.schema.geometry import to_user
from privinf.typing import Floats, SensitivityRule, SpendingOptions
from privinf.validation import check_number

if TYPE_CHECKING:
    import pandas as pd

PEOPLE = 50_000  # simulated people behind the moments of the formulas
DRAWS = 24  # random sets of directions over which variances are averaged
LARGEST_VARIANTS = 12  # numbers of directions that are compared: all up to it, then a dozen spread evenly


@dataclass(frozen=True, slots=True, kw_only=True)
class ModulationOptions:
    """Map of the messages, as `ModulatedOLS` describes it."""

    contraction: float
    amplitude: float
    frequency: float
    sensitivity: SensitivityRule

    def mechanism(self, case: Case, directions: int) -> Modulation:
        """Return the mechanism of a case with this number of directions."""
        return Modulation(
            case.schema,
            case.formula,
            contraction=self.contraction,
            amplitude=self.amplitude,
            frequency=self.frequency,
            sensitivity=self.sensitivity,
            directions=directions,
        )


def directions_frame(case: Case, options: ModulationOptions) -> pd.DataFrame:
    """Return a row for each number of directions; see `Study.directions`."""
    import pandas as pd

    if case.trust != "local" or case.people.family != "gaussian":
        raise NotAvailableError(
            "directions() plans ModulatedOLS, which needs a numeric response and no trusted curator: pass "
            "trust='local' and family='gaussian' to plan_study()"
        )
    mu = total_mu(SpendingOptions(**case.spending).spending())
    if math.isinf(mu):
        raise NotAvailableError(
            "directions() needs a finite budget: messages without noise have no modulation either"
        )
    moments = CleanMoments.simulated(case)
    first = options.mechanism(case, 1)
    lines: list[dict[str, Any]] = []
    for count in compared(first.columns):
        mechanism = options.mechanism(case, count)
        scale, response_scale = noise_sds(mechanism, mu)
        variances = mean_variances(moments, mechanism, scale, response_scale)
        widths = 2.0 * float(norm.isf(case.alpha / 2.0)) * np.sqrt(variances / case.n)
        lines.append({"directions": count, "noise_sd": scale} | dict(zip(case.which, widths, strict=True)))
    frame = pd.DataFrame(lines).set_index("directions")
    widths_of = frame[list(case.which)]
    frame.insert(1, "times_one", np.exp(np.log(widths_of / widths_of.loc[1]).mean(axis=1)))
    return frame


def compared(columns: int) -> list[int]:
    """Return the numbers of directions that are compared: 1 to the number of columns.

    Examples
    --------
    >>> compared(3), compared(100)[-3:]
    ([1, 2, 3], [82, 91, 100])
    """
    if columns <= LARGEST_VARIANTS:
        return list(range(1, columns + 1))
    return sorted({round(float(count)) for count in np.linspace(1, columns, LARGEST_VARIANTS)})


def noise_sds(mechanism: Modulation, mu: float) -> tuple[float, float]:
    """Return the sds of the noise of features and response at a total mu, scaled units.

    The grid of secure noise adds less than a millionth.
    """
    distance = mechanism.feature_distance()
    length = mechanism.map.lipschitz() * distance
    if mechanism.design.response_public:
        return length / mu, 0.0
    response = mechanism.response_distance()
    share = planned_response_share(mu, distance, response, mechanism.columns)
    return length / (mu * math.sqrt(1.0 - share)), response / (mu * math.sqrt(share))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CleanMoments:
    """Moments of simulated people in scaled units, of which the formulas are made.

    Attributes
    ----------
    design : Design
    gram : ndarray, shape (p, p)
        Mean x x'.
    params : ndarray, shape (p,)
    residual_variance : float
        Mean r^2, r = y - x'b.
    meat : ndarray, shape (p, p)
        Mean r^2 x x'.
    places : list of int
        Positions of the coefficients that are planned for.
    """

    design: Design
    gram: Floats
    params: Floats
    residual_variance: float
    meat: Floats
    places: list[int]

    @classmethod
    def simulated(cls, case: Case) -> CleanMoments:
        """Return the moments of `PEOPLE` simulated people."""
        design = Design.from_formula(case.formula, case.schema)
        rng = np.random.default_rng(case.seed)
        frame = case.people.rows(PEOPLE, rng)
        frame = frame[frame[design.response].notna()]
        X = (design.matrix(frame) - design.center) / design.scale
        y = (design.response_values(frame) - design.y_center) / design.y_scale
        gram = X.T @ X / len(X)
        params = np.linalg.solve(gram, X.T @ y / len(X))
        r = y - X @ params
        return cls(
            design=design,
            gram=gram,
            params=np.asarray(params, dtype=np.float64),
            residual_variance=float(r @ r) / len(r),
            meat=(X * (r**2)[:, None]).T @ X / len(X),
            places=[design.names.index(name) for name in case.which],
        )

    def variances(
        self, noise: Floats, directions: Floats, cumulants: Floats, response_noise: float
    ) -> Floats:
        r"""Return n times the variances of the planned coefficients, user units.

        Notes
        -----
        ``A^-1 (meat + noise) A^-1`` with A = mean x x' and, S the noise covariance and q = b'Sb,

        .. math:: noise = S_r^2 S + (q + \sigma_y^2)(A + S) + S b b' S + \sum_j k_j (v_j'b)^2 v_j v_j' .
        """
        b = self.params
        pull = noise @ b
        total = self.meat + self.residual_variance * noise + np.outer(pull, pull)
        total = total + (float(b @ pull) + response_noise) * (self.gram + noise)
        total = total + (directions.T * (cumulants * (directions @ b) ** 2)) @ directions
        design = self.design
        bread = np.linalg.inv(self.gram)
        units = (design.y_center, design.y_scale)
        transform, _ = to_user(design.center, design.scale, units, design.constant)
        carried = (transform @ bread)[self.places]
        return np.asarray(np.einsum("ij,jk,ik->i", carried, total, carried), dtype=np.float64)


def mean_variances(
    moments: CleanMoments, mechanism: Modulation, scale: float, response_scale: float
) -> Floats:
    """Return n times the variances of the planned coefficients, averaged over random directions."""
    check_number(scale, "scale", low=0.0)
    private = moments.design.private
    used = mechanism.map
    total = np.zeros(len(moments.places))
    for seed in range(DRAWS):
        rng = np.random.default_rng([seed, used.directions])
        drawn = orthonormal_directions(rng, used.directions, mechanism.columns)
        noise = np.zeros((len(private), len(private)))
        noise[np.ix_(private, private)] = modulation_noise_cov(
            drawn, scale=scale, contraction=used.contraction, amplitude=used.amplitude
        )
        directions = np.zeros((used.directions, len(private)))
        directions[:, private] = drawn
        cumulants = modulation_cumulants(drawn, contraction=used.contraction, amplitude=used.amplitude)
        total += moments.variances(noise, directions, cumulants, response_scale**2)
    return total / DRAWS
