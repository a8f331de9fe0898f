r"""Releases of one party's columns of a vertically split table: mixed rows (RMGM) or single rows (DGM, BGM).

With D (n x d) the party's columns in scaled units, B a public k x n matrix with columns of norm 1 and a the
public share of the all-ones row, a mixing release is

.. math:: \sqrt{1-a}\, B D + R \quad (k \times d), \qquad \sqrt a\, 1'D + r \quad (d),

R and r Gaussian with sd tau. Replacing one person's row x by x' moves the first part by
sqrt(1-a) |x - x'| (the column of B has norm 1) and the second by sqrt(a) |x - x'|: together by |x - x'|, at
most the diameter of the party's columns. A release of single rows is D + R (n x d), moved by |x - x'| too.

Sums are exact: every number is put on a grid of 2^-24 first, so that neither the order of the rows nor
the size of a partial sum can move a digit; that rounding, and the one to the noise's own grid, are charged.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from privinf.accounting import GaussianLoss, Ledger
from privinf.error_boundary import error_boundaries
from privinf.errors import ArgumentError
from privinf.mechanisms.gaussian import Spending, warn_of_large_delta
from privinf.mechanisms.mixing.matrix import MixingMatrix
from privinf.mechanisms.mixing.party_release import GRID_SLACK, MOST_PEOPLE, UNIT, PartyLabels, PartyMechanism
from privinf.mechanisms.mixing.theory import default_share
from privinf.mechanisms.rows import BLOCK
from privinf.release_kinds import RandomMixingNoiseModel
from privinf.releases import Release
from privinf.schema import Schema
from privinf.typing import (
    Calibration,
    Floats,
    Imputation,
    MixingKind,
    RngLike,
    SourceName,
    SpendingOptions,
    Table,
)
from privinf.validation import check_choice, check_count, check_number
from privinf.wire import Labels


@error_boundaries
class GaussianRows(PartyMechanism):
    """Mechanism of `DGMOLS` and `BGMOLS`, which releases every row of a party's columns with noise.

    Parameters
    ----------
    schema : Schema
        Columns of the party, all of them private, with their public bounds or levels.
    n : int, optional
        Public number of people; a table with a different number of rows is refused.
    diameter : float, optional
        Diameter to which the noise is calibrated, if it is larger than the diameter of the party's own
        columns (d_max of the paper).
    missing : {"raise", "impute-public"}
        Whether missing values are refused, or replaced by the middle of the bounds (for a factor, by its
        first level).
    data_bounds : bool
        Whether the bounds were computed from the data. If True, the privacy report states that the bounds are
        not public.
    labels : labels of a plan, optional
        Plan to which the release belongs. `MixingPlan.mechanism` passes this argument.
    intercept : bool, default False
        Whether regressions will have an intercept. For regressions with an intercept, numeric columns are
        centered by their bounds.

    Raises
    ------
    SchemaError, ArgumentError
        Raised if a column does not match its declaration, or an argument is invalid. No error message
        contains a value of a row.

    Notes
    -----
    **Privacy.** Reads every row once. Neighboring tables differ in one person's row (replace-one). The
    release satisfies Gaussian differential privacy with parameter mu (mu-GDP). Here mu is the largest
    distance between two rows within the bounds (the diameter), divided by the standard deviation of the
    noise.

    Examples
    --------
    >>> import numpy as np, pandas as pd, privinf as pi
    >>> schema = pi.Schema({"age": (18.0, 90.0), "bmi": (15.0, 60.0)})
    >>> rows = pd.DataFrame({"age": np.linspace(20, 80, 50), "bmi": np.linspace(18, 40, 50)})
    >>> pi.GaussianRows(schema).release(rows, epsilon=1.0, delta=1e-6).arrays["rows"].shape
    (50, 2)
    """

    kind = "gaussian-rows"
    label = Labels.ROWS

    def release(
        self,
        rows: Table,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        rho: float | None = None,
        rng: RngLike = None,
        calibration: Calibration | None = None,
        source: SourceName | None = None,
        ledger: Ledger | None = None,
    ) -> Release:
        """Release the rows once.

        Parameters
        ----------
        rows : table, array of shape (n, d), or RowBlocks
            Table with one row per person, in the same order at every party. The columns of an array must be
            the columns of the schema, in the same order.
        epsilon : float, optional
            Epsilon of the (epsilon, delta) guarantee for everything that the call releases. Pass exactly one
            of `epsilon`, `mu` and `rho`. With ``epsilon=inf`` no noise is added. The releases of other
            parties are not counted in this epsilon.
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
            Release of kind "gaussian-rows". The array ``arrays["rows"]`` has the shape (n, d).
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
        line = self._line(budget.mu, self._dimension)
        budget.ledger.check([GaussianLoss(line.mu)])
        table = self._checked(rows)
        released = np.empty((len(table), self.width))
        for position, block in self._blocks(table):
            run = isinstance(position, (int, np.integer))
            released[slice(position, position + len(block)) if run else position] = block
        scale, entry = line.calibrated(budget.source)
        warn_of_large_delta(budget.delta, len(table))
        recorded = budget.ledger.spend(entry)
        if scale > 0.0:
            for start in range(0, len(released), BLOCK):
                part = released[start : start + BLOCK]
                part[:] = budget.source.perturb(part, scale)
        noise_model = self._noise_model(budget, scale, len(table))
        return self._release({"rows": released}, noise_model, recorded, len(table))


@error_boundaries
class RandomMixing(PartyMechanism):
    """Mechanism of `RMGMOLS`, which releases k noisy random sums of a party's columns over all people.

    Parameters
    ----------
    schema : Schema
        Columns of the party, all of them private, with their public bounds or levels.
    k : int
        Number of mixed rows, at most n.
    kind : {"signs", "hadamard", "countsketch"}
        Kind of the random mixing matrix. All kinds have the same accuracy at equal k; "countsketch" is the
        fastest and needs one pass over the rows.
    seed : int
        Public seed of the mixing matrix, the same for every party.
    n : int, optional
        Public number of people; a table with a different number of rows is refused.
    intercept : bool, default True
        Whether to also release the noisy sum over all people (the all-ones row of the mixing matrix). This
        sum makes column means and intercepts accurate. If True, numeric columns are centered at the middle of
        their bounds.
    share : float, optional
        Public weight a of the all-ones row in the mixing matrix, as a share in (0, 1). Releases can be joined
        only if all parties use the same weight. By default the weight is computed from the noise of this
        party, for a release that is not joined with releases of other parties.
    diameter : float, optional
        Diameter to which the noise is calibrated, if it is larger than the diameter of the party's own
        columns (d_max of the paper).
    missing : {"raise", "impute-public"}
        Whether missing values are refused, or replaced by the middle of the bounds (for a factor, by its
        first level).
    data_bounds : bool
        Whether the bounds were computed from the data. If True, the privacy report states that the bounds are
        not public.
    labels : labels of a plan, optional
        Plan to which the release belongs. `MixingPlan.mechanism` passes this argument.

    Raises
    ------
    SchemaError, ArgumentError
        Raised if a column does not match its declaration, or an argument is invalid. No error message
        contains a value of a row.

    Notes
    -----
    **Privacy.** Reads every row once; values are clipped to the public bounds. Neighboring tables differ in
    one person's row at this party (replace-one). The release satisfies Gaussian differential privacy with
    parameter mu (mu-GDP). Here mu is the largest distance between two rows within the bounds (the diameter),
    divided by tau, the standard deviation of the noise. The mixing matrix B is public, also to the other
    parties and to the analyst. The guarantee holds for any given B and for any given values of all other
    columns. The total cost for a person is the joint cost of the releases of all parties (see
    `PrivacyReport.parties`).

    References
    ----------
    Wu et al. (2022), "Differentially private multi-party data release for linear regression", algorithm RMGM.
    In addition to the paper, privinf has the all-ones row, fast mixing matrices and exact calibration.

    Examples
    --------
    >>> import numpy as np, pandas as pd, privinf as pi
    >>> schema = pi.Schema({"age": (18.0, 90.0), "bmi": (15.0, 60.0)})
    >>> rows = pd.DataFrame({"age": np.linspace(20, 80, 500), "bmi": np.linspace(18, 40, 500)})
    >>> release = pi.RandomMixing(schema, k=40, seed=7).release(rows, epsilon=1.0, delta=1e-6)
    >>> release.arrays["rows"].shape, release.arrays["ones_row"].shape
    ((40, 2), (2,))
    """

    kind = "random-mixing"
    label = Labels.MIXED_ROWS

    def __init__(
        self,
        schema: Schema,
        *,
        k: int,
        kind: MixingKind = "countsketch",
        seed: int = 0,
        n: int | None = None,
        intercept: bool = True,
        share: float | None = None,
        diameter: float | None = None,
        missing: Imputation = "raise",
        data_bounds: bool = False,
        labels: PartyLabels | None = None,
    ) -> None:
        super().__init__(
            schema,
            n=n,
            intercept=intercept,
            diameter=diameter,
            missing=missing,
            data_bounds=data_bounds,
            labels=labels,
        )
        self.k = check_count(k, "k")
        self.mixing: MixingKind = check_choice(kind, MixingKind, "kind")
        self.seed = check_count(seed, "seed", least=0)
        self.intercept = bool(intercept)
        if share is not None and not intercept:
            raise ArgumentError(
                "share= is the weight of the intercept, so it needs intercept=True: pass "
                "intercept=True or leave share= out"
            )
        self.share = None if share is None else check_number(share, "share", low=0.0, high=0.99)
        if self.share == 0.0:
            raise ArgumentError(
                "share=0 gives the intercept no weight: pass a positive share=, or intercept=False"
            )
        self.matrix(self.n or MOST_PEOPLE)

    def matrix(self, n: int) -> MixingMatrix:
        """Return the public mixing matrix for n people.

        Parameters
        ----------
        n : int
            Number of people.

        Returns
        -------
        mixing matrix
            The mixing matrix, which computes its rows in blocks when they are needed.
        """
        return MixingMatrix(self.mixing, n=n, k=self.k, seed=self.seed)

    @property
    def _dimension(self) -> int:
        reached = (1 if self.mixing == "countsketch" else self.k) + int(self.intercept)
        return math.ceil(reached * self.width * GRID_SLACK)

    def release(
        self,
        rows: Table,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        rho: float | None = None,
        rng: RngLike = None,
        calibration: Calibration | None = None,
        source: SourceName | None = None,
        ledger: Ledger | None = None,
    ) -> Release:
        """Release the party's columns once.

        Parameters
        ----------
        rows : table, array of shape (n, d), or RowBlocks
            Table with one row per person, in the same order at every party. The columns of an array must be
            the columns of the schema, in the same order.
        epsilon : float, optional
            Epsilon of the (epsilon, delta) guarantee for everything that the call releases. Pass exactly one
            of `epsilon`, `mu` and `rho`. With ``epsilon=inf`` no noise is added. The releases of other
            parties are not counted in this epsilon.
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
            ``arrays["rows"]``, shape (k, d): the noisy random sums of rows. ``arrays["ones"]``, shape (k,):
            the same random sums of a column of ones, which are public and have no noise.
            ``arrays["ones_row"]``, shape (d,), only with ``intercept=True``: the noisy weighted sum of the
            columns over all people.

        Raises
        ------
        AlignmentError
            Raised if the number of rows differs from the number of people in the plan.
        SchemaError
            Raised if a column is missing or differs from its declaration.
        BudgetExceededError
            Raised if the release would exceed the limit of the ledger.
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
        line = self._line(budget.mu, self._dimension)
        budget.ledger.check([GaussianLoss(line.mu)])
        table = self._checked(rows)
        n = len(table)
        sums, totals = self._sums(table, exact=not math.isinf(budget.mu))
        scale, entry = line.calibrated(budget.source)
        warn_of_large_delta(budget.delta, n)
        recorded = budget.ledger.spend(entry)
        share = self._share(scale, n)
        weight = math.sqrt(1.0 - share) * self.matrix(n).scale
        arrays = {"rows": sums[:, :-1] * weight, "ones": sums[:, -1] * weight}
        if self.intercept:
            arrays["ones_row"] = totals * math.sqrt(share)
        if scale > 0.0:
            for name in ("rows", "ones_row")[: 1 + self.intercept]:  # a fixed order: seeded noise repeats
                arrays[name] = budget.source.perturb(arrays[name], scale)
        noise_model: RandomMixingNoiseModel = {
            **self._noise_model(budget, scale, n),
            "k": self.k,
            "kind": self.mixing,
            "public_seed": self.seed,
            "share": share,
        }
        return self._release(arrays, noise_model, recorded, n)

    def _share(self, scale: float, n: int) -> float:
        if not self.intercept:
            return 0.0
        return default_share(scale, n) if self.share is None else self.share

    def _sums(self, table: Any, *, exact: bool) -> tuple[Floats, Floats]:
        """Return the unscaled mixture (k, d + 1), the last column that of ones, and the column totals."""
        mixer = self.matrix(len(table)).mixer(self.width + 1)
        totals = np.zeros(self.width)
        for position, block in self._blocks(table):
            if exact:
                np.rint(block / UNIT, out=block)
            mixer.update(np.column_stack([block, np.ones(len(block))]), position)
            totals += block.sum(axis=0)
        sums = mixer.total()
        if exact:
            sums[:, :-1] *= UNIT
            totals *= UNIT
        return sums, totals
