"""Public information on the rows of a generalized linear model: bounds, units, clips."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from privinf.completeness import CompleteRows
from privinf.errors import ArgumentError, NotAvailableError, SchemaError, SensitivityError
from privinf.federation import Federation
from privinf.fitting.rows import Limits, ModelRows, check_binary
from privinf.glm.newton import Block
from privinf.glm.sums import NO_ROLES, Clients, Roles
from privinf.mechanisms.rows import NO_COUNT
from privinf.results.effects import check_effects
from privinf.schema import Design
from privinf.schema.geometry import SAME_UNIT, Reachable, check_magnitudes, to_user
from privinf.typing import Bounds, ClipRule, Family, FitFamily, Floats, Integers, Missing, Pair
from privinf.validation import check_choice, check_positive

Unit = Literal["record", "client"]
COUNTED: tuple[FitFamily, ...] = ("poisson", "negative-binomial")  # families of counts


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class GlmRows:
    """A federation, its design, and the public bounds that the statistics of a model need.

    Attributes
    ----------
    design : Design
    federation : Federation
    family : {"gaussian", "binomial", "poisson", "negative-binomial"}
    radius : float
        R: rows longer than it, in scaled units, count with weight R^2/||x||^2.
    residual_clip : float or None
        E of Newton's method and of first-order ones; None for the logistic model.
    center, scale : ndarray, shape (p,)
        Scaled units: bounded columns, public ones too, fall into [-1, 1].
    rows : mapping of str to int
        Numbers of rows by site.
    rule : {"auto", "bounds"} or None
        How a one-step fit clips; None where the user stated E.
    roles : Roles
        Columns without coefficients.
    missing : {"raise", "impute-public", "drop"}
        What the holders of the rows do about missing values.
    complete : CompleteRows or None
        Estimated number of complete rows, once a release has told it, where the others are dropped.
    default_radius : bool
        Whether the radius is that of the bounds.
    weighted : bool
        Whether units are those of narrower bounds, and rows weighted so that they keep to them.

    Notes
    -----
    **Privacy.** Holds no rows: the federation does. Numbers of rows are public.
    """

    design: Design
    federation: Federation
    family: FitFamily
    radius: float
    residual_clip: float | None
    center: Floats
    scale: Floats
    rows: Mapping[str, int]
    rule: ClipRule | None = "auto"
    default_radius: bool = True
    weighted: bool = False
    roles: Roles = NO_ROLES
    missing: Missing = "raise"
    complete: CompleteRows | None = None

    @property
    def mean_family(self) -> Family:
        """Family of the mean: that of negative binomial counts is a Poisson model's."""
        return "poisson" if self.family == "negative-binomial" else self.family

    @property
    def reachable(self) -> Reachable:
        """The rows that the bounds allow, scaled units."""
        low, high = self.limits
        if self.weighted:
            low = np.clip(low, -1.0, 1.0)
            high = np.clip(high, -1.0, 1.0)
            low = np.minimum(low, 0.0)
        return Reachable.from_blocks(low, high, self.design.blocks, self.radius)

    @property
    def response_units(self) -> tuple[float, float, float, float]:
        """Center and unit of the response, and its bounds in that unit."""
        design = self.design
        center = design.y_center
        unit = design.y_scale
        low = float(design.y_low or 0.0)
        high = float(design.y_high or 0.0)
        return center, unit, (low - center) / unit, (high - center) / unit

    @property
    def units(self) -> dict[str, Any]:
        """Center and scale, where they are not the user's units."""
        units = {"center": self.center} if self.center.any() else {}
        return units | ({"scale": self.scale} if (self.scale != 1.0).any() else {})

    @property
    def stated_clip(self) -> float | None:
        """E where the user stated it, in units of the scaled response."""
        if self.rule is not None or self.residual_clip is None:
            return None
        return self.residual_clip / self.design.y_scale

    @property
    def total(self) -> int:
        """Number of rows; where rows are dropped, the estimated number of complete ones once it is known."""
        return sum(self.rows.values()) if self.complete is None else self.complete.rows

    @property
    def p(self) -> int:
        """Number of coefficients."""
        return len(self.design.names)

    def clients(self, unit: Unit, clip: float | None) -> Clients | None:
        """Return sites as units of privacy, None where records are (ArgumentError for bad requests)."""
        if check_choice(unit, Unit, "unit") == "record":
            if clip is not None:
                raise ArgumentError('client_clip= can be used only with unit="client"')
            return None
        return Clients(max(self.rows.values()), None if clip is None else check_positive(clip, "client_clip"))

    @property
    def model(self) -> dict[str, Any]:
        """Arguments of every statistic of the model; units only where they differ from the user's."""
        design = self.design
        arguments: dict[str, Any] = {"family": self.mean_family, "radius": self.radius}
        if self.residual_clip is not None:
            arguments["residual_clip"] = self.residual_clip
        if self.mean_family == "poisson":
            arguments["mean_cap"] = design.y_high
        return arguments | self.units

    @property
    def role_columns(self) -> tuple[str, ...]:
        """Columns without coefficients: the offset's, the exposure's, the weights'."""
        return self.roles.names

    @property
    def free(self) -> Integers:
        """Positions of the columns that have coefficients."""
        return np.array([j for j, name in enumerate(self.design.names) if name not in self.role_columns])

    def reported(self) -> GlmRows:
        """Return the same without the columns that have no coefficients."""
        if not self.role_columns:
            return self
        free = self.free
        return replace(
            self,
            design=without(self.design, free),
            center=self.center[free],
            scale=self.scale[free],
            roles=NO_ROLES,
        )

    def block(self, targets: Sequence[str] | None, nuisance: Sequence[str]) -> Block | None:
        """Return the columns of the final release: targets, nuisance, the constant; None for all."""
        if targets is None:
            if nuisance:
                raise ArgumentError("nuisance= can be used only with targets=")
            return None
        names = list(self.design.names)
        constant = _constant_name(self.design)
        for argument, has_names in (("targets", targets), ("nuisance", nuisance)):
            if isinstance(has_names, str) or not set(has_names) <= set(names) - {constant}:
                raise ArgumentError(
                    f"{argument}= must be a list of names of coefficients, without the constant"
                )
        members = [*targets, *nuisance]
        if not targets or len(set(members)) < len(members):
            raise ArgumentError(
                "targets= must name at least one coefficient, and targets= and nuisance= must name "
                "each coefficient only once"
            )
        chosen = np.array([names.index(name) for name in [*members, *([constant] if constant else [])]])
        low, high = self.limits
        max_abs = np.maximum(np.abs(low), np.abs(high))[chosen]
        return Block(chosen, min(self.radius, float(np.linalg.norm(max_abs))), tuple(targets))

    def can_bind(self, clients: Clients) -> bool:
        """Return whether some records of one site could have a summed score longer than its clip."""
        longest = self.radius * (1.0 if self.residual_clip is None else self.residual_clip)
        return clients.clip is not None and clients.clip < clients.rows * longest

    @property
    def start(self) -> Floats:
        """The public start, scaled units: the middle of the response's bounds, by the constant."""
        start = np.zeros(self.p)
        low, high = self.design.y_low, self.design.y_high
        if self.design.constant is None or self.family == "binomial" or low is None or high is None:
            return start
        middle = (low + high) / 2.0
        start[self.design.constant] = middle if self.family == "gaussian" else math.log(middle)
        return start

    @property
    def limits(self) -> tuple[Floats, Floats]:
        """Bounds of the columns in scaled units; the constant has the bounds 1 and 1."""
        return _limits(self.design, self.center, self.scale)

    @property
    def to_user(self) -> Floats:
        """T, shape (p, p): ``params_user = T params_scaled``."""
        transform, _ = to_user(self.center, self.scale, SAME_UNIT, self.design.constant)
        return self.design.mapped(transform)

    @property
    def user(self) -> GlmRows:
        """The same by the formula's own columns, for fits of some coefficients, which a basis would mix."""
        if self.design.raw is None:
            return self
        design = self.design.user
        center, scale = _units(design)
        radius = _radius(
            design, None if self.default_radius else self.radius, *_limits(design, center, scale)
        )
        return replace(self, design=design, center=center, scale=scale, radius=radius)


def glm_limits(family: FitFamily, bounds: Bounds, y_bounds: Pair | None) -> Limits:
    """Return the public bounds of arrays; a binomial response has none of its own."""
    check_choice(family, FitFamily, "family")
    if family == "binomial":
        if y_bounds is not None:
            raise ArgumentError('y_bounds= cannot be used with family="binomial", whose response is 0 or 1')
        y_bounds = (0.0, 1.0)
    return Limits(bounds=bounds, y_bounds=y_bounds)


def glm_rows(
    model_rows: ModelRows,
    family: FitFamily,
    radius: float | None,
    residual_clip: float | ClipRule | None,
    roles: Roles = NO_ROLES,
) -> GlmRows:
    """Return the sites of a model with the public bounds that its statistics need."""
    check_choice(family, FitFamily, "family")
    _check_roles(model_rows.design, family, roles)
    check_effects(model_rows.design, roles.effects)
    residual_clip = "auto" if residual_clip is None else residual_clip
    design = _basis_without(model_rows.design, roles)
    full_design = model_rows.design
    check_magnitudes(full_design.names, full_design.low, full_design.high, full_design.outcome)
    low, high = design.y_low, design.y_high
    if low is None or high is None:
        raise SchemaError(f"the schema declares no bounds for the response {design.response}")
    if family == "binomial":
        check_binary(design)
    if family in COUNTED and low < 0.0:
        raise SchemaError(
            "the lower bound of a Poisson response must be 0 or more: counts are not negative. This is "
            "public: in the place of a bound of find_bounds, declare 0, at no cost"
        )
    for name, private, top in zip(design.names, design.private, design.high, strict=True):
        if not private and not math.isfinite(top) and name != _constant_name(design):
            raise SensitivityError(
                f"the public column {name} must have declared bounds too, because its values enter the scores"
            )
    center, scale = _units(design)
    longest = _radius(design, radius, *_limits(design, center, scale))
    clip = _residual_clip(design, family, residual_clip)
    rule: ClipRule | None = residual_clip if isinstance(residual_clip, str) else None
    counts, missing = model_rows.described()
    if missing == "drop":
        _check_dropping(design, radius, roles)
    return GlmRows(
        design=design,
        federation=model_rows.sites,
        family=family,
        radius=longest,
        residual_clip=clip,
        center=center,
        scale=scale,
        rows=counts,
        rule=rule,
        default_radius=radius is None,
        roles=roles,
        missing=missing,
    )


def _check_dropping(design: Design, radius: float | None, roles: Roles) -> None:
    """Raise NotAvailableError for fits whose number of complete rows no released sum of ones estimates."""
    if design.constant is None:
        raise NotAvailableError(NO_COUNT)
    if radius is not None or roles.weights is not None:
        raise NotAvailableError(
            "missing='drop' cannot be combined with radius= or weights=, because their sums count rows with "
            "unequal weights: leave radius= and weights= out"
        )


def _check_roles(design: Design, family: FitFamily, roles: Roles) -> None:
    """Raise ArgumentError unless columns with a role are there, and of a model that has a use for them."""
    if roles.names and family == "gaussian":
        raise ArgumentError(
            "offset=, exposure= and weights= can be used only with the logistic and the Poisson model"
        )
    if roles.exposure is not None and family not in COUNTED:
        raise ArgumentError(
            "exposure= can be used only with the Poisson model: use offset= with other models"
        )
    if len(set(roles.names)) < len(roles.names):
        raise ArgumentError("offset=, exposure= and weights= must name different columns")
    for name in roles.names:
        if not isinstance(name, str) or name not in design.names or name == _constant_name(design):
            raise ArgumentError(
                "offset=, exposure= and weights= must each name a column of X, or of the table, with "
                "public bounds"
            )
    for positive in (roles.exposure, roles.weights):
        low = math.inf if positive is None else float(design.low[design.names.index(positive)])
        if low < 0.0 or (low == 0.0 and positive == roles.exposure):
            raise ArgumentError(
                f"the bounds of {positive!r} must be positive, because it is passed as exposure= or weights="
            )


def _basis_without(design: Design, roles: Roles) -> Design:
    """Return a design on its internal basis, unless columns without coefficients are part of it."""
    conditioned = design.conditioned()
    has_role = np.isin(conditioned.names, roles.names)
    return design if conditioned.basis[np.ix_(has_role, ~has_role)].any() else conditioned


def without(design: Design, columns: Integers) -> Design:
    """Return a design with some of its columns."""
    places = {int(j): at for at, j in enumerate(columns)}
    blocks = (tuple(places[j] for j in block if j in places) for block in design.blocks)
    return replace(
        design,
        columns=tuple(design.columns[j] for j in columns),
        private=design.private[columns],
        constant=None if design.constant is None else places[design.constant],
        low=design.low[columns],
        high=design.high[columns],
        raw=None if design.raw is None else tuple(design.raw[j] for j in columns),
        blocks=tuple(block for block in blocks if block),
    )


def _constant_name(design: Design) -> str | None:
    return None if design.constant is None else design.names[design.constant]


def _units(design: Design) -> tuple[Floats, Floats]:
    """Return centers and scales: the design's, and for its public numeric columns by the same rule."""
    center, scale = design.center.copy(), design.scale.copy()
    for j, column in enumerate(design.columns):
        if design.private[j] or column.indicator or j == design.constant:
            continue
        low, high = design.low[j], design.high[j]
        centered = design.constant is not None
        center[j] = (low + high) / 2.0 if centered else 0.0
        scale[j] = (high - low) / 2.0 if centered else max(abs(low), abs(high))
    return center, scale


def _limits(design: Design, center: Floats, scale: Floats) -> tuple[Floats, Floats]:
    low = (design.low - center) / scale
    high = (design.high - center) / scale
    if design.constant is not None:
        low[design.constant] = high[design.constant] = 1.0
    return low, high


def _radius(design: Design, radius: float | None, low: Floats, high: Floats) -> float:
    """Return R: the longest row that the bounds allow, or the requested radius."""
    if radius is not None:
        return check_positive(radius, "radius")
    max_abs = np.maximum(np.abs(low), np.abs(high))[~design.private]
    return math.sqrt(design.norm**2 + float(max_abs @ max_abs))


def _residual_clip(design: Design, family: FitFamily, residual_clip: float | ClipRule) -> float | None:
    if isinstance(residual_clip, str):
        check_choice(residual_clip, ClipRule, "residual_clip")
    if family == "binomial":
        if residual_clip != "auto":
            raise ArgumentError(
                'residual_clip= cannot be used with family="binomial", whose residuals are at most 1 in '
                "absolute value"
            )
        return None
    if not isinstance(residual_clip, str):
        return check_positive(residual_clip, "residual_clip")
    low = float(design.y_low or 0.0)
    high = float(design.y_high or 0.0)
    if family in COUNTED:
        return high
    return high - low if design.constant is not None else max(high - low, abs(low), abs(high))
