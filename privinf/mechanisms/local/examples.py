"""Locally private examples: every record sends its features and its label once, each with its own noise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from privinf.accounting import Ledger, LedgerEntry, PureLoss
from privinf.accounting.calibration import exact, float_down
from privinf.accounting.ledger import check_ledger
from privinf.error_boundary import error_boundaries
from privinf.errors import ArgumentError, SensitivityError
from privinf.mechanisms.gaussian import Line, assumed, max_rows, unit_name
from privinf.mechanisms.laplace import LaplaceLine, l1_diameter, laplace_variance, perturb_laplace
from privinf.mechanisms.local.budget import ExampleBudget, ExamplesPlan, Parts, plan_budget
from privinf.mechanisms.local.channels import indicators_of, label_design, plan_features, resolve_label
from privinf.mechanisms.local.responses import RandomizedResponse
from privinf.mechanisms.passes import RecordBlocks
from privinf.mechanisms.rows import (
    EACH_ROW,
    EncodedRows,
    Rows,
    as_rows,
    encode,
    imputing,
    in_units,
    needed,
    refuse_dropping,
    scaled_response,
)
from privinf.noise import NoiseSource, get_source, side_by_side
from privinf.noise.source import Draw
from privinf.releases import Release, rows_target, write_rows
from privinf.schema import Design, Schema
from privinf.schema.declared import Level
from privinf.typing import (
    AnyPath,
    BinaryMechanism,
    Calibration,
    ExampleNoise,
    Floats,
    Imputation,
    Integers,
    LabelChoice,
    Missing,
    RngLike,
    SourceName,
    Table,
)
from privinf.validation import check_choice, check_flag
from privinf.wire import Assumptions, Derivations, Labels, Mechanisms


@error_boundaries
class LocalExamples:
    """Mechanism of `IWPGLM`, which releases noisy records for any regression or classification.

    Parameters
    ----------
    schema : Schema or Design
        Public description of the columns. If you pass a `Schema`, also pass `formula`. The left side of the
        formula may be a factor.
    formula : str, optional
        Model formula, such as ``"y ~ a + b"``.
    label : {"auto", "response", "gaussian", "laplace", "clear"}
        How the label is released: by (k-ary) randomized response on its levels, with Gaussian or Laplace
        noise scaled to its public bounds, or unprotected ("clear"). With "auto" a factor, or a label with
        `levels`, is released by randomized response, and a number with bounds is released with the noise that
        `noise` names. A label that is declared public, or has no bounds, is released unprotected.
    levels : sequence, optional
        Levels of the label. Pass `levels` only with arrays, because a schema declares the levels of its
        label. Without `levels`, ``label="response"`` accepts labels 0 and 1, or -1 and 1. Values above 0 are
        then the second level.
    binary : list of str
        Private numeric columns coded 0 and 1 that are released by randomized response, as factors always are.
    binary_mechanism : {"response", "gaussian"}
        How binary columns and factors are released. The choice "response" (default) is randomized response.
        The choice "gaussian" is Gaussian noise, as in the paper, which is less accurate.
    noise : {"gaussian", "laplace"}
        Distribution of the noise of numeric columns. With "laplace" the guarantee is pure: (epsilon, 0). The
        scale of Laplace noise is the l1 diameter of the columns divided by their epsilon, so the noise grows
        with the number of columns.
    response_shares : mapping of str to float
        Relative shares of `epsilon_x` for the features that are released by randomized response, by name. The
        name of a factor is the name of its column. A feature without a share in this mapping, and every
        column with added noise, has the share 1.
    radius : float, optional
        Radius of the ball onto which the numeric columns of each row, in scaled units, are projected. If
        `schema` is a `Design`, leave `radius` out, because a design has its own radius.
    missing : {"raise", "impute-public"}
        Whether missing values are refused, or replaced by the middle of the bounds (for a factor, by its
        first level).
    data_bounds : bool
        Whether the bounds were computed from the rows. If True, every ledger line states this.

    Raises
    ------
    SchemaError, SensitivityError, ArgumentError
        Raised if `Design.from_formula` refuses the formula, if the label has neither levels nor bounds, if a
        binary column is unknown, or if there is nothing to protect.

    Notes
    -----
    **Privacy.** The trust model is local: noise is added to each record once, and later models cost nothing
    more. Neighboring tables differ in one record (replace-one). Columns with Gaussian noise are released
    together. Their release satisfies Gaussian differential privacy with parameter mu (mu-GDP). Here mu is the
    largest distance between two records in these columns (the diameter), divided by the standard deviation of
    the noise. Columns with Laplace noise are also released together. The release of
    these columns is pure epsilon-DP, where epsilon is the l1 diameter divided by the scale of the noise. The
    release of a feature, or of a label, by randomized response is pure epsilon-DP. If a unit may have several
    rows, the diameter is multiplied by sqrt(max_rows) and the l1 diameter by max_rows. The epsilon of each
    randomized response is divided by max_rows.

    The mechanism differs from the paper in three points. First, the sensitivity is the largest distance
    between two rows inside the bounds. Second, the total cost is computed by exact composition, and is not
    the sum eps_x + eps_y. Third, binary features are released by randomized response unless you request
    Gaussian noise.

    References
    ----------
    Dufraiche, Mangold, Perrot and Tommasi, "Learning with locally private examples by inverse Weierstrass
    private stochastic gradient descent", equation (1).

    Examples
    --------
    >>> import numpy as np, pandas as pd, privinf as pi
    >>> schema = pi.Schema({"y": ["no", "yes"], "x": (-1.0, 1.0), "z": (0.0, 1.0)})
    >>> x = np.linspace(-1, 1, 50)
    >>> rows = pd.DataFrame({"x": x, "z": np.tile([0, 1], 25), "y": np.where(x > 0, "yes", "no")})
    >>> mechanism = pi.LocalExamples(schema, "y ~ x + z", binary=["z"])
    >>> release = mechanism.release(rows, epsilon_x=4.0, epsilon_y=2.0, delta=1e-6)
    >>> release.arrays["features"].shape, release.arrays["labels"].shape
    ((50, 2), (50,))
    >>> release.noise_model["label"]["levels"]
    ['no', 'yes']
    """

    kind = "local-examples"

    def __init__(
        self,
        schema: Schema | Design,
        formula: str | None = None,
        *,
        label: LabelChoice = "auto",
        levels: Sequence[Level] | None = None,
        binary: Iterable[str] = (),
        binary_mechanism: BinaryMechanism = "response",
        noise: ExampleNoise = "gaussian",
        response_shares: Mapping[str, float] | None = None,
        radius: float | None = None,
        missing: Imputation = "raise",
        data_bounds: bool = False,
    ) -> None:
        check_choice(binary_mechanism, BinaryMechanism, "binary_mechanism")
        check_choice(noise, ExampleNoise, "noise")
        if noise == "laplace" and binary_mechanism == "gaussian":
            raise ArgumentError(
                "binary_mechanism='gaussian' adds Gaussian noise, which noise='laplace' excludes: leave "
                "binary_mechanism= out to send binary columns and factors by randomized response"
            )
        design = label_design(schema, formula, label, radius)
        self.label, self.design = resolve_label(design, label, levels, noise)
        self.features = plan_features(self.design, binary, binary_mechanism)
        self.missing: Missing = check_choice(missing, Missing, "missing")
        refuse_dropping(self.missing, EACH_ROW)
        self.data_bounds = check_flag(data_bounds, "data_bounds")
        weights = self.features.shares(response_shares or {})
        self.parts = Parts(int(self.features.gaussian.sum()), weights, self.label.kind, noise)
        if radius is not None and not self.parts.gaussian:
            raise ArgumentError(
                "radius= is the bound for columns with added noise, but there are no such columns: leave "
                "radius= out"
            )
        if noise == "laplace" and not self.parts.gaussian and self.label.kind != "laplace":
            raise ArgumentError(
                "noise='laplace' applies to numeric private columns, but there are no such columns: leave "
                "noise= out"
            )
        if not self.parts.features and self.label.kind == "clear":
            raise SensitivityError(
                "every column is declared public, so there is nothing to protect: declare at least one "
                "private column"
            )

    def release(
        self,
        rows: Table,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        epsilon_x: float | None = None,
        epsilon_y: float | None = None,
        shares: Sequence[float] | None = None,
        rng: RngLike = None,
        to: AnyPath | None = None,
        calibration: Calibration = "exact",
        source: SourceName = "lattice",
        ledger: Ledger | None = None,
    ) -> Release:
        """Release every record once, with noise.

        Parameters
        ----------
        rows : table, pair (y, X), or Rows
            Raw rows: a data frame of any library, a mapping of arrays, the path of a file, or a pair of
            arrays.
        epsilon : float, optional
            Epsilon of the (epsilon, delta) guarantee for everything that the call releases. The argument
            `shares` divides this epsilon between the features and the label. Pass either `epsilon`, or
            `epsilon_x` and `epsilon_y`. With ``epsilon=inf`` no noise is added.
        delta : float, optional
            Delta of the guarantee, at most 1/n, such as 1e-6. A finite `epsilon` needs a delta if the noise
            is Gaussian.
        epsilon_x : float, optional
            Epsilon of the features: the release of all features together is (epsilon_x, delta)-DP. Let m be
            the number of columns with added noise plus the number of features that are released by randomized
            response. Each feature with randomized response gets a pure epsilon of epsilon_x / m, and the
            columns with Laplace noise get epsilon_x / m per column. For other shares pass `response_shares`.
            Columns with Gaussian noise get the rest of the budget, computed by exact composition. Without
            Gaussian noise the guarantee is (epsilon_x, 0). Leave `epsilon_x` out if all features are public.
        epsilon_y : float, optional
            Epsilon of the label. The guarantee is (epsilon_y, 0) for randomized response and Laplace noise,
            and (epsilon_y, delta) for Gaussian noise. Leave `epsilon_y` out if the label is released
            unprotected.
        shares : (float, float), optional
            Relative shares of `epsilon` for the features and for the label; default (2, 1). Features and
            labels that are released by randomized response or with Laplace noise get their share of
            `epsilon`. Columns with Gaussian noise, and a label with Gaussian noise, get the rest of the
            budget.
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
            is released. A limit that was declared as (epsilon, delta) is enforced in mu^2. For a randomized
            response, the ledger then counts an upper bound of mu^2, so the counted cost is larger than the
            total cost in the privacy report.

        Returns
        -------
        Release
            Release of kind "local-examples". The array ``features`` (n, d) has the private columns in the
            order of the design: noisy numbers in scaled units, and 0/1 indicators of the randomized levels.
            The array ``labels`` (n,) has the randomized level codes, the noisy numbers in scaled units, or
            the unprotected response. The array ``public`` (n, q) has the public columns. The array ``groups``
            (n,) has the units of the rows, if units may have several rows. The noise model has the keys
            ``scale`` and ``gaussian`` (scale and positions of the columns with added noise), ``responses``,
            ``label`` and ``units``. With Laplace noise it also has the keys ``distribution`` and
            ``variance``. The value of ``units`` is the center and the scale of each released column.

        Raises
        ------
        BudgetExceededError
            Raised, before any row is read, if the release would exceed the limit of the ledger.
        SchemaError, AlignmentError
            Raised if the rows do not match the design. Nothing was spent, and no error message contains a
            value of a row.

        Notes
        -----
        **Privacy.** With ``epsilon=inf``, or with infinite `epsilon_x` and `epsilon_y`, everything is
        released without noise. Such a release cannot be saved.
        """
        budget = plan_budget(
            self.parts,
            epsilon_x=epsilon_x,
            epsilon_y=epsilon_y,
            epsilon=epsilon,
            shares=shares,
            delta=delta,
            calibration=calibration,
        )
        account = check_ledger(ledger)
        noise = get_source(rng=rng, source=source)
        plan = self._plan(budget, noise)
        target = rows_target(to, noise_free=plan.noise_free)
        account.check([entry.loss for entry in plan.entries])
        checked_rows = as_rows(rows, self.missing)
        columns = [*needed(self.design), self.label.name]
        plain = self.label.levels is None and not self.features.responded
        blocks = RecordBlocks(
            self.design,
            checked_rows,
            columns,
            self._encode,
            whole=target is None,
            numbers=self._read_numbers if plain else None,
        ).checked()
        recorded = account.spend(*plan.entries)
        noise_model = plan.noise_model(self.features, self.label, delta or None) | imputing(
            checked_rows.missing
        )
        draws = self._draws(plan)
        noises = [noise] * len(draws) if target is None else side_by_side(noise, draws, blocks.n)
        sent_blocks = (self._send(*block, plan, iter(noises)) for block in blocks)
        return write_rows(
            target,
            Release(
                kind=self.kind,
                arrays={},
                noise_model=noise_model,
                design=self.design,
                entries=recorded,
                nobs=blocks.n,
            ),
            sent_blocks,
        )

    def _plan(self, budget: ExampleBudget, noise: NoiseSource) -> ExamplesPlan:
        entries = []
        responses = []
        scale = label_scale = 0.0
        variance = label_variance = None
        if budget.features_mu is not None:
            scale, entry = self._features_line(budget.features_mu).calibrated(noise)
            entries.append(entry)
        if budget.features_epsilon is not None:
            scale, entry = self._laplace_features_line(budget.features_epsilon).calibrated(noise)
            variance = laplace_variance(scale, noise)
            entries.append(entry)
        for feature, epsilon in zip(self.features.responded, budget.responses, strict=True):
            response, entry = self._answer(
                feature.levels, epsilon, Labels.FEATURE.format(name=feature.name), noise
            )
            responses.append(response)
            entries.append(entry)
        label_response = None
        name = Labels.LABEL.format(name=self.label.name)
        if budget.label_epsilon is not None and self.label.kind == "laplace":
            label_scale, entry = self._laplace_label_line(budget.label_epsilon, name).calibrated(noise)
            label_variance = laplace_variance(label_scale, noise)
            entries.append(entry)
        elif budget.label_epsilon is not None:
            assert self.label.levels is not None
            label_response, entry = self._answer(len(self.label.levels), budget.label_epsilon, name, noise)
            entries.append(entry)
        if budget.label_mu is not None:
            label_scale, entry = self._label_line(budget.label_mu, name).calibrated(noise)
            entries.append(entry)
        return ExamplesPlan(
            scale=scale,
            label_scale=label_scale,
            responses=tuple(responses),
            label_response=label_response,
            entries=tuple(entries),
            noise_free=budget.noise_free,
            variance=variance,
            label_variance=label_variance,
        )

    def _features_line(self, mu: float) -> Line:
        design = self.features.gaussian_design
        rows_per_unit = max_rows(self.design)
        return self._line(
            label=Labels.FEATURES,
            sensitivity=rows_per_unit**0.5 * design.diameter,
            derivation=Derivations.FEATURE_SET.format(names=", ".join(design.private_names)),
            dimension=self.parts.gaussian * rows_per_unit,
            mu=mu,
            largest=design.norm,
        )

    def _label_line(self, mu: float, name: str) -> Line:
        rows_per_unit = max_rows(self.design)
        return self._line(
            label=name,
            sensitivity=rows_per_unit**0.5 * self.design.y_diameter,
            derivation=Derivations.RANGE_OF_LABEL,
            dimension=rows_per_unit,
            mu=mu,
            largest=self.design.y_norm,
        )

    def _line(self, **fields: Any) -> Line:
        unit = unit_name(self.design)
        assumptions = self._assumptions()
        return Line(
            mechanism=Mechanisms.GAUSSIAN, unit=unit, trust="local", assumptions=assumptions, **fields
        )

    def _laplace_features_line(self, epsilon: float) -> LaplaceLine:
        design = self.features.gaussian_design
        rows_per_unit = max_rows(self.design)
        return self._laplace_line(
            label=Labels.FEATURES,
            sensitivity=rows_per_unit * l1_diameter(design),
            derivation=Derivations.FEATURE_SET.format(names=", ".join(design.private_names)),
            dimension=self.parts.gaussian * rows_per_unit,
            epsilon=epsilon,
            largest=design.norm,
        )

    def _laplace_label_line(self, epsilon: float, name: str) -> LaplaceLine:
        rows_per_unit = max_rows(self.design)
        return self._laplace_line(
            label=name,
            sensitivity=rows_per_unit * self.design.y_diameter,
            derivation=Derivations.RANGE_OF_LABEL,
            dimension=rows_per_unit,
            epsilon=epsilon,
            largest=self.design.y_norm,
        )

    def _laplace_line(self, **fields: Any) -> LaplaceLine:
        return LaplaceLine(
            unit=unit_name(self.design), trust="local", assumptions=self._assumptions(), **fields
        )

    def _answer(
        self, levels: int, epsilon: float, label: str, noise: NoiseSource
    ) -> tuple[RandomizedResponse, LedgerEntry]:
        """Return the response that each row gives, and the line of all answers of one unit."""
        rows_per_unit = max_rows(self.design)
        row_epsilon = epsilon if rows_per_unit == 1 else float_down(exact(epsilon) / rows_per_unit)
        response = RandomizedResponse(levels, row_epsilon)
        entry = response.entry(
            noise, label=label, unit=unit_name(self.design), assumptions=self._assumptions()
        )
        return response, replace(entry, loss=PureLoss(epsilon))

    def _assumptions(self) -> tuple[str, ...]:
        """Return the assumptions of a line: a label sent as a code has no bounds, but is not in clear."""
        assumptions = assumed(self.design, data_bounds=self.data_bounds)
        return tuple(
            text for text in assumptions if text != Assumptions.CLEAR_RESPONSE or self.label.kind == "clear"
        )

    def _encode(self, rows: Rows, seen_levels: set[str] | None) -> tuple[EncodedRows, tuple[Integers, ...]]:
        """Return the encoded rows and the codes of each responded feature."""
        encoded = encode(self.features.gaussian_design, self.label.read(rows), seen_levels=seen_levels)
        codes = tuple(
            self.features.codes(feature, encoded.public, rows.missing) for feature in self.features.responded
        )
        return encoded, codes

    def _read_numbers(self, block: Floats) -> tuple[EncodedRows, tuple[Integers, ...]]:
        """Return the same of checked numbers, in place: the response, the constant, and private columns."""
        design = self.features.gaussian_design
        y, public, x = np.split(block, [1, 2], axis=1)
        return EncodedRows(
            private=in_units(design, x), public=public, response=scaled_response(design, y[:, 0])
        ), ()

    def _send(
        self,
        encoded: EncodedRows,
        codes: tuple[Integers, ...],
        plan: ExamplesPlan,
        sources: Iterator[NoiseSource],
    ) -> dict[str, Any]:
        """Return the arrays of the release: the only place where noise is drawn, by the sources in turn."""
        gaussian = self.features.gaussian
        private = self.design.private
        noisy = encoded.private
        if plan.scale > 0.0:
            noisy = self._added(noisy, plan.scale, next(sources), laplace=plan.variance is not None)
        features = noisy
        if plan.responses or plan.scale == 0.0:  # the rows read are not the released ones
            features = np.empty_like(noisy, shape=(len(encoded.response), int(private.sum())))
            features[:, self.features.private_positions(np.flatnonzero(gaussian))] = noisy
        for feature, response, truth in zip(self.features.responded, plan.responses, codes, strict=True):
            answers = response.respond(truth, next(sources), next(sources))
            positions = self.features.private_positions(feature.columns)
            features[:, positions] = indicators_of(answers, feature.levels)
        return {
            "features": features,
            "labels": self._sent_labels(encoded.response, plan, sources),
            "public": encoded.public[:, ~private[~gaussian]],
            **encoded.beside,
        }

    @staticmethod
    def _added(values: Floats, scale: float, source: NoiseSource, *, laplace: bool) -> Floats:
        """Return values with added noise."""
        return perturb_laplace(values, scale, source) if laplace else source.perturb(values, scale)

    def _draws(self, plan: ExamplesPlan) -> list[Draw]:
        """Return how noise is drawn for each array in turn, as `_send` does."""
        columns = self.parts.gaussian
        draws: list[Draw] = []
        if plan.scale > 0.0:
            laplace = plan.variance is not None
            draws.append(
                lambda source, rows: self._added(np.zeros((rows, columns)), 1.0, source, laplace=laplace)
            )
        for response in (*plan.responses, *filter(None, [plan.label_response])):
            draws += response.draws
        if plan.label_scale > 0.0:
            laplace_label = plan.label_variance is not None
            draws.append(lambda source, rows: self._added(np.zeros(rows), 1.0, source, laplace=laplace_label))
        return draws

    def _sent_labels(self, labels: Floats, plan: ExamplesPlan, sources: Iterator[NoiseSource]) -> Any:
        if plan.label_response is not None:
            return plan.label_response.respond(labels.astype(np.int64), next(sources), next(sources))
        if plan.label_scale > 0.0:
            laplace = plan.label_variance is not None
            return self._added(labels[:, None], plan.label_scale, next(sources), laplace=laplace)[:, 0]
        return labels if self.label.levels is None else labels.astype(np.int64)
