"""Linear regression on a vertically split table: RMGMOLS, DGMOLS and BGMOLS."""

from __future__ import annotations

from typing import Unpack

from privinf.accounting import Ledger
from privinf.error_boundary import doors
from privinf.fitting.rows import table_of_arrays
from privinf.mixing.joined import MixingOptions
from privinf.mixing.party_model import PartyModel
from privinf.typing import Bounds, ColumnLike, ColumnsLike, DiameterChoice, Missing, Pair, PartyColumns


@doors
class RMGMOLS(PartyModel):
    r"""Linear regression on k random mixtures of the people's rows, released by parties with own columns.

    Parameters
    ----------
    y : array_like, shape (n,)
    X : array_like or DataFrame, shape (n, p)
        Without a constant: `intercept` adds it.
    parties : mapping of str to sequence
        Columns of each party: positions or names of columns of X, and ``"y"`` (or the Series' name) for the
        response; each column once.
    bounds : sequence of (low, high), mapping, or "data"
        Public bounds of the columns of X.
    y_bounds : (low, high) or "data"
    k : int or "auto"
        Mixed rows; "auto" from n, the noise and `rsquared`, never from the data.
    kind : {"countsketch", "signs", "hadamard"}
        The mixing matrix; all have the same accuracy, "countsketch" is the fastest.
    seed : int
        Public seed of the mixing matrix.
    intercept : bool
        Release the all-ones row and add ``const``, first.
    share : float, optional
        Share of the all-ones row.
    diameter : {"own", "largest"}
        Noise by each party's own diameter, or by the largest (the paper's d_max).
    rsquared : float, optional
        Public guess of R^2 for k="auto"; default 0.8.
    missing : {"raise", "impute-public"}
    ledger : Ledger, optional

    Raises
    ------
    SchemaError, SensitivityError, ArgumentError

    Notes
    -----
    **Privacy.** Replace-one of one person's row. Each party's release costs what `fit` is told; a person
    stands at every party, so the report's totals compose all of them and ``privacy.parties`` has each alone.

    The de-biased estimator solves ``(X'X - k S) w = X'y`` on the mixed rows: see `MixedLeastSquares` for its
    variance, its t intervals and its F score test. The paper's plain estimator (debias=False) is shrunk by
    the noise; `fit` says by how much, and gives no interval for it.

    References
    ----------
    Wu, Yang, Yao, Sun, Liu, Weinberger and Wang (2022), "Differentially private multi-party data release
    for linear regression", section 4.2.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (200_000, 3))
    >>> y = X @ [0.5, -0.3, 0.0] + 0.1 * rng.uniform(-1, 1, 200_000)
    >>> model = pi.RMGMOLS(y, X, parties={"a": [0, 1], "b": [2, "y"]}, bounds=[(-1, 1)] * 3, y_bounds=(-1, 1))
    >>> fit = model.fit(epsilon=2.0, delta=1e-6, rng=0)
    >>> bool((abs(fit.params - [0, 0.5, -0.3, 0.0]) < 5 * fit.bse).all()), list(fit.privacy.parties.index)
    (True, ['a', 'b'])
    """

    method = "random-mixing"

    def __init__(
        self,
        y: ColumnLike,
        X: ColumnsLike,
        *,
        parties: PartyColumns,
        bounds: Bounds = None,
        y_bounds: Pair | str | None = None,
        missing: Missing = "raise",
        ledger: Ledger | None = None,
        **options: Unpack[MixingOptions],
    ) -> None:
        self._bind(table_of_arrays(y, X, parties, bounds, y_bounds, missing=missing), options, ledger)


@doors
class DGMOLS(PartyModel):
    r"""Linear regression on all rows with Gaussian noise, released by parties with own columns.

    Parameters
    ----------
    y, X, parties, bounds, y_bounds, diameter, missing, ledger
        As for `RMGMOLS`.
    intercept : bool
        Add ``const``, first, and centre the columns by their bounds before the noise.

    Raises
    ------
    SchemaError, SensitivityError, ArgumentError

    Notes
    -----
    **Privacy.** Replace-one of one person's row; every number of the row is sent with noise. For one
    regression it needs far more people than `RMGMOLS`: phi in `MixingPlan.check` says how many.

    Corrected least squares ``(X'X/n - S)^-1 X'y/n`` with the sandwich of the rows' scores;
    ``epsilon=inf`` is ordinary least squares with HC0.

    References
    ----------
    Wu et al. (2022), section 4.1.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (100_000, 2))
    >>> model = pi.DGMOLS(X @ [0.5, -0.3], X, parties={"a": [0], "b": [1, "y"]}, bounds=[(-1, 1)] * 2,
    ...                   y_bounds=(-1, 1))
    >>> fit = model.fit(epsilon=8.0, delta=1e-6, rng=0)
    >>> bool((abs(fit.params - [0.5, -0.3]) < 5 * fit.bse).all())
    True
    """

    method = "gaussian-rows"

    def __init__(
        self,
        y: ColumnLike,
        X: ColumnsLike,
        *,
        parties: PartyColumns,
        bounds: Bounds = None,
        y_bounds: Pair | str | None = None,
        intercept: bool = False,
        diameter: DiameterChoice = "own",
        missing: Missing = "raise",
        ledger: Ledger | None = None,
    ) -> None:
        options = {"intercept": intercept, "diameter": diameter}
        self._bind(table_of_arrays(y, X, parties, bounds, y_bounds, missing=missing), options, ledger)


class BGMOLS(DGMOLS):
    """Plain least squares on all rows with Gaussian noise: the paper's biased baseline.

    The release is that of `DGMOLS`; `fit` has debias=False by default, so the result has no intervals, and
    its ``bias`` estimates what the noise has done. Parameters and privacy as for `DGMOLS`.

    References
    ----------
    Wu et al. (2022), section 5.1, baseline "BGM-OLS".
    """

    debias = False
