"""The holder's side of ModulatedOLS: budget, encoding, rounds (paper 1)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from privinf.accounting import Ledger, LedgerEntry, split_mu
from privinf.error_boundary import error_boundaries, refuses
from privinf.errors import ArgumentError, SensitivityError
from privinf.mechanisms.gaussian import Line, Spending, assumed, max_rows, unit_name
from privinf.mechanisms.local.modulation_map import (
    ModulationMap,
    modulated_message,
    orthonormal_directions,
    planned_response_share,
)
from privinf.mechanisms.passes import encoded_blocks
from privinf.mechanisms.rows import (
    EACH_ROW,
    MESSAGES,
    EncodedRows,
    as_rows,
    encode,
    imputing,
    refuse_dropping,
    refuse_unordered,
    weight_bound,
)
from privinf.noise import NoiseSource, side_by_side
from privinf.releases import Release, rows_target, write_rows
from privinf.schema import Design, Schema
from privinf.schema.design import resolve_design
from privinf.schema.table import SCHEMA_FIRST
from privinf.typing import (
    Adjacency,
    AnyPath,
    ArrayLike,
    Calibration,
    Floats,
    Imputation,
    Missing,
    ResponseMode,
    RngLike,
    SensitivityRule,
    SourceName,
    SpendingOptions,
    Table,
)
from privinf.validation import check_array, check_choice, check_count, check_flag, check_number
from privinf.wire import Derivations, Labels, Mechanisms

# How far announced directions may be from orthonormal: longer ones raise a sensitivity, whose slack is more.
ORTHONORMAL = 1e-12


@dataclass(frozen=True, slots=True)
class _ModulationPlan:
    """Lines of one release, calibrated: nothing of it depends on rows."""

    scales: list[float]
    response_scale: float
    entries: tuple[LedgerEntry, ...]


@error_boundaries
class Modulation:
    """Mechanism of `ModulatedOLS`, which releases the modulated features of every row with noise.

    Parameters
    ----------
    schema : Schema or Design
        Public description of the columns. If you pass a `Schema`, also pass `formula`.
    formula : str, optional
        Model formula. The holder evaluates it on the raw rows before noise is added.
    response : {"protected", "public"}
        Whether noise is added to the response ("protected", default), or the response is released as it is
        ("public").
    radius : float, optional
        Radius of the ball onto which each row is projected, in scaled units. The replace-one sensitivity of a
        projected row is 2 * radius.
    response_share : float, optional
        Share of the budget (in mu^2) for a protected response. By default the share is computed from public
        numbers.
    missing : {"raise", "impute-public"}
        Whether missing values are refused, or replaced by the middle of the bounds (for a factor, by its
        first level).
    weights : str, optional
        Name of the column of observation weights. It must be declared public, with positive bounds, and is
        released unprotected.
    public_seed : int
        Public seed of the directions of the modulation.
    data_bounds : bool
        Whether the bounds were computed from the rows. If True, every ledger line states this.
    contraction : float in [0, 1)
        Contraction of a record toward the center (alpha of the paper).
    amplitude : float >= 0
        Size of the cosine modulation (lambda of the paper), in scaled units.
    frequency : float >= 0
        Frequency of the cosine modulation (omega of the paper).
    directions : int >= 1
        Number of orthonormal directions of the modulation (m of the paper).
    sensitivity : {"exact", "lipschitz"}
        Bound of the sensitivity to which the noise is calibrated. The choice "exact" (default) is (1 -
        contraction) times the largest distance between two records. The choice "lipschitz" is the larger
        bound of the paper (Theorem 7.2).
    adjacency : {"bounded", "unit"}
        Pairs of records that the guarantee covers: any two records inside the bounds (default), or, as in the
        paper, two records at a distance of at most 1 ("unit", metric privacy).

    Raises
    ------
    SchemaError, SensitivityError, ArgumentError
        Raised if the columns do not match the formula or the schema, if a bound that the sensitivity needs is
        missing or invalid, or if an argument is out of range.

    Notes
    -----
    **Privacy.** The trust model is local: noise is added to each record before it is sent. Neighboring tables
    differ in one record, or in one unit with at most `max_rows` rows (replace-one). If a unit has several
    rows, the sensitivity is multiplied by sqrt(max_rows). Let L and D_y be the sensitivities of the features
    and of the response, and let sigma_t (in round t) and sigma_y be the standard deviations of their noise. A
    release satisfies Gaussian differential privacy with parameter mu (mu-GDP), where mu^2 is (D_y/sigma_y)^2
    plus the sum of (L/sigma_t)^2 over the rounds.

    References
    ----------
    Vepakomma et al. (2026), "Modulated learning for private and distributed regression with just a
    single sample per client device", equation (1), Definition 7.1, Theorem 7.2.

    Examples
    --------
    >>> import numpy as np, pandas as pd, privinf as pi
    >>> schema = pi.Schema({"y": (0.0, 10.0), "x": (-1.0, 1.0)})
    >>> rows = pd.DataFrame({"x": np.linspace(-1, 1, 50), "y": np.linspace(2, 8, 50)})
    >>> release = pi.Modulation(schema, "y ~ x").release(rows, epsilon=2.0, delta=1e-6)
    >>> release.arrays["features"].shape, release.secure
    ((50, 1), True)
    """

    kind = "modulation"

    @refuses({"schema": SCHEMA_FIRST.format("Modulation")})
    def __init__(
        self,
        schema: Schema | Design,
        formula: str | None = None,
        *,
        response: ResponseMode = "protected",
        radius: float | None = None,
        response_share: float | None = None,
        missing: Imputation = "raise",
        weights: str | None = None,
        public_seed: int = 0,
        data_bounds: bool = False,
        contraction: float = 0.5,
        amplitude: float = 0.1,
        frequency: float = 1.0,
        directions: int = 1,
        sensitivity: SensitivityRule = "exact",
        adjacency: Adjacency = "bounded",
    ) -> None:
        self.design = resolve_design(
            schema,
            formula,
            response=response,
            radius=radius,
            example=f"{type(self).__name__}(schema, 'y ~ x1 + x2')",
        )
        self.map = ModulationMap(
            contraction=contraction,
            amplitude=amplitude,
            frequency=frequency,
            directions=directions,
            sensitivity=sensitivity,
            adjacency=adjacency,
        )
        if response_share is not None:
            if self.design.response_public:
                raise ArgumentError(
                    "response_share= applies to a protected response, but this response is sent without "
                    "noise: leave it out"
                )
            check_number(response_share, "response_share", low=0.0, high=1.0, open_low=True, open_high=True)
        self.response_share = response_share
        self.missing: Missing = check_choice(missing, Missing, "missing")
        refuse_dropping(self.missing, EACH_ROW)
        self.public_seed = check_count(public_seed, "public_seed", least=0)
        self.data_bounds = check_flag(data_bounds, "data_bounds")
        weight_bound(self.design, weights)
        self.weights = weights
        self.columns = int(self.design.private.sum())
        if self.columns == 0:
            raise SensitivityError(
                "every column is declared public, so there is nothing to protect: declare at least one "
                "private column"
            )
        if self.map.directions > self.columns:
            raise ArgumentError(
                f"directions={self.map.directions} is too large: at most {self.columns} directions are "
                "possible, one for each private column"
            )

    def release(
        self,
        rows: Table,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        rho: float | None = None,
        rng: RngLike = None,
        to: AnyPath | None = None,
        calibration: Calibration | None = None,
        source: SourceName | None = None,
        ledger: Ledger | None = None,
    ) -> Release:
        """Release every row once, with noise (the one-shot protocol).

        Parameters
        ----------
        rows : table, pair (y, X), or Rows
            Raw rows: a data frame of any library, a mapping of arrays, the path of a file, or a pair of
            arrays.
        epsilon : float, optional
            Epsilon of the (epsilon, delta) guarantee for everything that the call releases. Pass exactly one
            of `epsilon`, `mu` and `rho`. With ``epsilon=inf`` no noise is added. With ``epsilon=inf`` the
            features are not modulated either.
        delta : float, optional
            Delta of the guarantee, at most 1/n, such as 1e-6. A finite `epsilon` needs a delta if the noise
            is Gaussian. With `mu` or `rho`, epsilon is reported at this delta.
        mu : float, optional
            Budget in Gaussian differential privacy, instead of `epsilon`.
        rho : float, optional
            Budget in zero-concentrated differential privacy (zCDP), instead of `epsilon`.
        rng : None, int or Generator, optional
            Source of randomness. With None (default) the noise is secure. With a seed or a Generator it is
            simulation noise, which is not private, and the results are marked as NOT PRIVATE.
        to : path, optional
            Parquet file to which the released rows are written block by block. Everything else is written to
            ``<name>.json`` next to it. The rows and the noisy records then need not fit in memory. The JSON
            file is written last; a Parquet file without it is not a complete release. `load_release` reads
            both.
        calibration : {"exact", "classic"}, optional
            How the noise is computed from `epsilon` and `delta`. The choice "exact" (default) is the exact
            calibration of Gaussian noise. The choice "classic" is the textbook formula; use it only to
            reproduce published results.
        source : {"lattice", "opendp"}, optional
            Sampler of the secure noise: "lattice" is the sampler of privinf (default), and "opendp" is the
            sampler of OpenDP.
        ledger : Ledger, optional
            Budget ledger that records the cost of the release. If the release would exceed the limit of the
            ledger, it is refused before any row is read. The cost is recorded in the ledger before anything
            is released.

        Returns
        -------
        Release
            Release of kind "modulation".
        """
        options = SpendingOptions(
            epsilon=epsilon,
            delta=delta,
            mu=mu,
            rho=rho,
            rng=rng,
            calibration=calibration,
            source=source,
        )
        public = np.random.default_rng(self.public_seed)
        directions = orthonormal_directions(public, self.map.directions, self.columns)
        if to is not None:
            return self._streamed(rows, directions, to, Spending.from_options(options.spending(), ledger))
        session = self.open(rows, rounds=1, ledger=ledger, **options.spending())
        session.send(directions)
        return session.release()

    def _streamed(self, rows: Table, directions: Floats, to: AnyPath, budget: Spending) -> Release:
        """Release every row once, in blocks."""
        plan = self._plan(budget, 1, None)
        target = rows_target(to, noise_free=math.isinf(budget.mu))
        budget.ledger.check([entry.loss for entry in plan.entries])
        checked_rows = as_rows(rows, self.missing)
        blocks = encoded_blocks(self.design, checked_rows, self.weights, whole=False)
        blocks.checked()
        recorded = budget.ledger.spend(*plan.entries)
        noises = side_by_side(
            budget.source, [_draw_response] * (2 if plan.response_scale > 0.0 else 1), blocks.n
        )
        noise_model = self.map.noise_model(plan.scales, plan.response_scale, budget) | imputing(
            checked_rows.missing
        )
        release = Release(
            kind=self.kind,
            arrays={"directions": directions},
            noise_model=noise_model,
            design=self.design,
            entries=recorded,
            nobs=blocks.n,
        )

        def sent_arrays(encoded: EncodedRows) -> dict[str, Any]:
            response = _sent_response(encoded.response, plan.response_scale, noises[0])
            message = modulated_message(encoded.private, directions, plan.scales[0], noises[-1], self.map)
            return {"features": message, "response": response, "public": encoded.public, **encoded.beside}

        return write_rows(target, release, map(sent_arrays, blocks))

    def open(
        self,
        rows: Table,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        rho: float | None = None,
        rng: RngLike = None,
        rounds: int,
        schedule: ArrayLike | None = None,
        calibration: Calibration | None = None,
        source: SourceName | None = None,
        ledger: Ledger | None = None,
    ) -> ModulationSession:
        """Record the cost of all rounds, and return a session that releases the features of each round.

        Parameters
        ----------
        rows : table, pair (y, X), or Rows
            Raw rows: a data frame of any library, a mapping of arrays, the path of a file, or a pair of
            arrays.
        epsilon : float, optional
            Epsilon of the (epsilon, delta) guarantee for everything that the call releases. Pass exactly one
            of `epsilon`, `mu` and `rho`. With ``epsilon=inf`` no noise is added.
        delta : float, optional
            Delta of the guarantee, at most 1/n, such as 1e-6. A finite `epsilon` needs a delta if the noise
            is Gaussian. With `mu` or `rho`, epsilon is reported at this delta.
        mu : float, optional
            Budget in Gaussian differential privacy, instead of `epsilon`.
        rho : float, optional
            Budget in zero-concentrated differential privacy (zCDP), instead of `epsilon`.
        rng : None, int or Generator, optional
            Source of randomness. With None (default) the noise is secure. With a seed or a Generator it is
            simulation noise, which is not private, and the results are marked as NOT PRIVATE.
        rounds : int
            Number of rounds.
        schedule : array_like, optional
            Relative budgets (in mu^2) of the rounds, all positive. By default they are equal.
        calibration : {"exact", "classic"}, optional
            How the noise is computed from `epsilon` and `delta`. The choice "exact" (default) is the exact
            calibration of Gaussian noise. The choice "classic" is the textbook formula; use it only to
            reproduce published results.
        source : {"lattice", "opendp"}, optional
            Sampler of the secure noise: "lattice" is the sampler of privinf (default), and "opendp" is the
            sampler of OpenDP.
        ledger : Ledger, optional
            Budget ledger that records the cost of the release. If the release would exceed the limit of the
            ledger, it is refused before any row is read. The cost is recorded in the ledger before anything
            is released.

        Returns
        -------
        ModulationSession
            Session of the rounds, whose total cost is already recorded in the ledger.
        """
        options = SpendingOptions(
            epsilon=epsilon,
            delta=delta,
            mu=mu,
            rho=rho,
            rng=rng,
            calibration=calibration,
            source=source,
        )
        budget = Spending.from_options(options.spending(), ledger)
        plan = self._plan(budget, check_count(rounds, "rounds"), schedule)
        budget.ledger.check([entry.loss for entry in plan.entries])
        checked_rows = as_rows(rows, self.missing)
        refuse_unordered(checked_rows, MESSAGES)
        encoded = encode(self.design, checked_rows, self.weights)
        recorded = budget.ledger.spend(*plan.entries)
        return ModulationSession(
            mechanism=self,
            encoded=encoded,
            plan=replace(plan, entries=recorded),
            spending=budget,
            missing=refuse_dropping(checked_rows.missing, EACH_ROW),
        )

    def feature_distance(self) -> float:
        """Return the largest distance between the features of two units, in scaled units.

        Returns
        -------
        float
            Largest distance between the features of two records, before the features are modulated and before
            noise is added.
        """
        distance = 1.0 if self.map.adjacency == "unit" else self.design.diameter
        return math.sqrt(max_rows(self.design)) * distance

    def response_distance(self) -> float:
        """Return the largest distance between the protected responses of two units, in scaled units.

        Returns
        -------
        float
            Largest distance, before noise is added.
        """
        return math.sqrt(max_rows(self.design)) * self.design.y_diameter

    def _plan(self, spending: Spending, rounds: int, schedule: ArrayLike | None) -> _ModulationPlan:
        relative = np.ones(rounds) if schedule is None else check_array(schedule, "schedule", ndim=1)
        if len(relative) != rounds or (relative <= 0.0).any():
            raise ArgumentError(f"schedule= must hold {rounds} positive numbers, one for each round")
        share = 0.0
        if not self.design.response_public:
            share = self.response_share or planned_response_share(
                spending.mu, self.feature_distance(), self.response_distance(), self.columns
            )
        shares = [(1.0 - share) * float(w) for w in relative / relative.sum()]
        parts = split_mu(spending.mu, shares if share == 0.0 else [*shares, share])
        scales = []
        entries = []
        rows_per_unit = max_rows(self.design)
        for index, part in enumerate(parts[:rounds]):
            line = self._line(
                label=Labels.FEATURES if rounds == 1 else Labels.FEATURES_OF_ROUND.format(round=index + 1),
                mechanism=Mechanisms.MODULATED_GAUSSIAN,
                sensitivity=self.map.lipschitz() * self.feature_distance(),
                derivation=self.map.derivation(),
                dimension=self.columns * rows_per_unit,
                mu=part,
                # Records at distance 1 have no bounds; their numbers are held where the grid ends.
                largest=0.0 if self.map.adjacency == "unit" else self.design.norm + self.map.amplitude,
                relation="replace-one" if self.map.adjacency == "bounded" else "metric",
            )
            scale, entry = line.calibrated(spending.source)
            scales.append(scale)
            entries.append(entry)
        response_scale = 0.0
        if not self.design.response_public:
            line = self._line(
                label=Labels.RESPONSE.format(name=self.design.response),
                mechanism=Mechanisms.GAUSSIAN,
                sensitivity=self.response_distance(),
                derivation=Derivations.RANGE_OF_RESPONSE,
                dimension=rows_per_unit,
                mu=parts[rounds],
                largest=self.design.y_norm,
            )
            response_scale, entry = line.calibrated(spending.source)
            entries.append(entry)
        return _ModulationPlan(scales, response_scale, tuple(entries))

    def _line(self, **fields: Any) -> Line:
        assumptions = assumed(self.design, data_bounds=self.data_bounds)
        return Line(unit=unit_name(self.design), trust="local", assumptions=assumptions, **fields)


@error_boundaries
class ModulationSession:
    """Session of the holders in the iterative protocol of `ModulatedOLS`, after its cost was recorded.

    A session is made by `Modulation.open`. The response is released once, when the session is opened. The
    method `send` answers one round, and `release` returns everything that was sent.

    Parameters
    ----------
    mechanism : Modulation
        The mechanism.
    encoded : encoded rows
        The rows.
    plan : plan of the rounds
        Noise and ledger entries of the rounds.
    spending : budget
        Cost of the rounds and source of the noise.
    missing : {"raise", "impute-public"}
        Handling of missing values.

    Notes
    -----
    **Privacy.** The cost of all rounds was recorded when the session was opened. New noise is added in every
    round.
    """

    def __init__(
        self,
        mechanism: Modulation,
        encoded: EncodedRows,
        plan: _ModulationPlan,
        spending: Spending,
        missing: Imputation = "raise",
    ) -> None:
        self._mechanism = mechanism
        self._missing = missing
        self._rows = encoded
        self._plan = plan
        self._source = spending.source
        self._spending = spending
        self._messages: list[Floats] = []
        self._directions: list[Floats] = []
        self.public = encoded.public
        self.response = _sent_response(encoded.response, plan.response_scale, spending.source)

    @property
    def rounds(self) -> int:
        """Number of rounds of the protocol."""
        return len(self._plan.scales)

    @property
    def scales(self) -> list[float]:
        """Standard deviation of the noise of each round, in scaled units."""
        return list(self._plan.scales)

    @property
    def amplitude(self) -> float:
        """Amplitude of the modulation; 0 if the protocol has no noise."""
        return 0.0 if math.isinf(self._spending.mu) else self._mechanism.map.amplitude

    def send(self, directions: Floats) -> Floats:
        """Return the noisy, modulated features of all records in the next round.

        Parameters
        ----------
        directions : ndarray, shape (m, d)
            Public orthonormal directions of this round.

        Returns
        -------
        ndarray, shape (n, d)
            Noisy modulated features, with one row per record.
        """
        index = len(self._messages)
        if index == self.rounds:
            raise ArgumentError(
                f"all {self.rounds} rounds that were paid for have been answered: start a new release "
                "for more rounds"
            )
        parameters = self._mechanism.map
        shape = (parameters.directions, self._mechanism.columns)
        if np.shape(directions) != shape:
            raise ArgumentError(f"directions= must have shape {shape}, got {np.shape(directions)}")
        if not np.allclose(directions @ directions.T, np.eye(len(directions)), rtol=0.0, atol=ORTHONORMAL):
            raise ArgumentError(
                "directions= must have orthonormal rows: orthogonal to each other and of length 1"
            )
        message = modulated_message(
            self._rows.private, directions, self._plan.scales[index], self._source, parameters
        )
        self._messages.append(message)
        self._directions.append(np.array(directions))
        return message

    def release(self) -> Release:
        """Return everything that was sent in all rounds as one `Release`.

        Returns
        -------
        Release
            Release with the noisy features of all rounds and the responses.
        """
        if len(self._messages) < self.rounds:
            raise ArgumentError(
                f"{self.rounds - len(self._messages)} of the rounds that were paid for have not been "
                "answered: answer them before you make the release"
            )
        single_round = self.rounds == 1
        arrays: dict[str, Any] = {
            "features": self._messages[0] if single_round else np.stack(self._messages),
            "directions": self._directions[0] if single_round else np.stack(self._directions),
            "response": self.response,
            "public": self.public,
            **self._rows.beside,
        }
        mechanism = self._mechanism
        plan = self._plan
        noise_model = mechanism.map.noise_model(plan.scales, plan.response_scale, self._spending) | imputing(
            self._missing
        )
        return Release(
            kind=mechanism.kind,
            arrays=arrays,
            noise_model=noise_model,
            design=mechanism.design,
            entries=plan.entries,
            nobs=len(self.public),
        )


def _sent_response(response: Floats, scale: float, source: NoiseSource) -> Floats:
    return source.perturb(response[:, None], scale)[:, 0] if scale > 0.0 else response


def _draw_response(source: NoiseSource, rows: int) -> Floats:
    return source.perturb(np.zeros(rows), 1.0)
