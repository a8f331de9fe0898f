r"""Noisy Gram matrices: nodewise regressions that they give, correlations, and the effect of noise on them.

For target j let M_j hold j, the selected support S and the neighbors of j. With the noisy Gram G~ = G + Z of
the union of all M_j, the column is ``w_j = (G~_MM)^-1 e_j``, zero outside M_j. S belongs to M_j: then
``w_j' G`` vanishes on the other members of S, so that an error of the coefficients there moves the debiased
coordinate only through the noise,

    w_j' G_S = e_j - Z w_j   on S.

The entries of Z are independent, of sd g on the diagonal and g / sqrt 2 above it (the isometric release), so
for an error d of the coefficients, independent of Z and with covariance D,

    E (w' Z d)^2 = g^2 / 2 [ |w|^2 tr D + w' D w ].                                            (noise of w_j)

Fits of named targets of a linear model do not use such columns, except for their omitted columns: their
nodewise regressions are fitted (`privinf.lasso.nodewise`). Three kinds of fit use them.

- **Logistic fits** (`joint_columns`): one matrix of the whitened columns v = F'z of all targets and
  neighbors, W = F G~^-1 F' E_T. Omega = E_T' W, and ``u = Omega^-1/2 W'z`` has the identity as its Gram
  matrix.
- **Fits where all columns are targets** (`all_columns`): a column j outside S has no neighbors but S. With
  c_j its released products with S, the nodewise regression is ``-G~_SS^-1 c_j / h_j`` on S and 1 / h_j on j,
  ``h_j = 1 - c_j' G~_SS^-1 c_j``.
- **Fits by site** (`correlation_columns`): released correlations whose entries have different variances,
  so that each entry's enters the noise of w_j (`entry_noise_covariance`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privinf.errors import ArgumentError
from privinf.typing import Floats, Integers
from privinf.validation import check_array

# Eigenvalues of a noisy Gram are kept above this share of its mean eigenvalue.
FLOOR = 0.05
THRESHOLD = 2.0  # released numbers below this many sds of their noise are taken to be noise
# Mean square error of a correlation that is taken to be 0, in units of its noise: from 0 to about 2.
DROPPED = 0.3
# Squares of clipped columns in units of their size are kept above this.
SMALLEST_SQUARE = 0.1
SMALLEST_REST = 0.1  # least share of a column's variance that the selected columns leave
SMALLEST = 1e-8  # eigenvalue that the projection leaves a correlation matrix, so that it stays invertible


def floored(gram: Floats, share: float = FLOOR) -> Floats:
    """Return a symmetric matrix with its eigenvalues raised to `share` of the mean of its diagonal.

    If that mean is not positive, the matrix is only noise and is replaced by the identity: any
    positive definite matrix preconditions a step, and `clearance` of the released one marks the fit.
    """
    symmetric = (gram + gram.T) / 2.0
    mean = float(np.mean(np.diag(symmetric)))
    if not mean > 0.0:
        return np.eye(len(symmetric))
    values, vectors = np.linalg.eigh(symmetric)
    if values[0] >= share * mean:
        return np.asarray(symmetric)
    return np.asarray((vectors * np.maximum(values, share * mean)) @ vectors.T)


def whitening(gram: Floats) -> Floats:
    """Return R with ``R R' ~ G^-1`` from a noisy Gram matrix G, its eigenvalues floored."""
    return np.asarray(np.linalg.inv(np.linalg.cholesky(floored(gram))).T)


def clearance(gram: Floats, sd: float) -> float:
    """Return the smallest eigenvalue of a released Gram matrix over the largest that its noise has.

    Symmetric noise of sd `sd` on the diagonal and 1 / sqrt 2 off it has eigenvalues of up to
    ``sd sqrt(2 k)``. Steps that are preconditioned by the matrix leave an error of about the inverse of this
    ratio, each time: they do not converge unless it is near 1 or above. `gram` has the shape (k, k) and is
    as released; without noise the ratio is infinite. Post-processing: reads no rows.
    """
    edge = sd * math.sqrt(2.0 * len(gram))
    return float(np.linalg.eigvalsh(gram)[0]) / edge if edge > 0.0 else math.inf


def precision_columns(gram: Floats, members: Sequence[Sequence[int]]) -> Floats:
    """Return the columns w_j, shape (size, k): the first member of each list is the target.

    Parameters
    ----------
    gram : ndarray, shape (size, size)
        Noisy, symmetric, positive definite.
    members : sequence of k sequences of int
        Positions M_j, target first, without repeats.

    Raises
    ------
    ArgumentError
        A list is empty or repeats a position.

    Notes
    -----
    **Privacy.** Post-processing of the released Gram matrix.
    """
    precision = np.zeros((len(gram), len(members)))
    for column, chosen in enumerate(members):
        if len(chosen) == 0 or len(set(chosen)) < len(chosen):
            raise ArgumentError(
                f"members= is not valid for target {column}: list the index of the target first, then other "
                "column indices, and no index twice"
            )
        first = np.zeros(len(chosen))
        first[0] = 1.0
        precision[list(chosen), column] = np.linalg.solve(gram[np.ix_(chosen, chosen)], first)
    return precision


def positions(columns: Sequence[int], union: Sequence[int]) -> Integers:
    """Return the positions of columns in a union."""
    place = {column: position for position, column in enumerate(union)}
    return np.array([place[column] for column in columns], dtype=np.int64)


def column_noise_variance(columns: Floats, gram_sd: float, places: Integers, error_cov: Floats) -> Floats:
    """Return E (w_j' Z d)^2 for every column, shape (k,).

    Parameters
    ----------
    columns : ndarray, shape (size, k)
        Nodewise regressions on the union.
    gram_sd : float
        g, the sd of the noise of a diagonal entry of the mean Gram matrix.
    places : ndarray of int, shape (s,)
        Positions of the support in the union.
    error_cov : ndarray, shape (s, s)
        Covariance D of the error of the coefficients on the support.

    Notes
    -----
    **Privacy.** Post-processing. Z also moves w_j itself, which is why the noise is the released one and w
    the released column: a second-order matter.
    """
    check_array(error_cov, "error_cov", ndim=2)
    on_support = columns[places]
    lengths = np.einsum("ij,ij->j", columns, columns)
    inner = np.einsum("ij,ik,kj->j", on_support, error_cov, on_support)
    return np.asarray(gram_sd**2 / 2.0 * (lengths * np.trace(error_cov) + inner))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class JointColumns:
    """Nodewise regressions of k targets from one Gram matrix of whitened columns v = F'z.

    Attributes
    ----------
    whitening : ndarray, shape (size, size)
        F.
    inverse : ndarray, shape (size, size)
        G~^-1, of v.
    columns : ndarray, shape (size, k)
        ``G~^-1 F' E_T``, on v.
    root, back : ndarray, shape (k, k)
        Omega^1/2 and its inverse.
    """

    whitening: Floats
    inverse: Floats
    columns: Floats
    root: Floats
    back: Floats

    @property
    def directions(self) -> Floats:
        """``W Omega^-1/2``, on z, shape (size, k)."""
        return np.asarray(self.whitening @ self.columns @ self.back)

    def noise(self, gram_sd: float, places: Integers, variance: float) -> Floats:
        """Return E (w_j' Z d)^2 for an error d of the coefficients at `places`, of this whitened variance."""
        inverse_gram = self.whitening @ self.inverse @ self.whitening.T
        selected = np.linalg.inv(np.linalg.inv(inverse_gram)[np.ix_(places, places)])
        error = np.zeros_like(inverse_gram)
        error[np.ix_(places, places)] = variance * selected
        back = np.linalg.inv(self.whitening)
        moved = back @ error @ back.T
        return column_noise_variance(self.columns, gram_sd, np.arange(len(moved)), (moved + moved.T) / 2.0)


def joint_columns(whitening: Floats, gram: Floats, places: Integers) -> JointColumns:
    """Return the nodewise regressions of the targets at `places` of z, from the noisy Gram matrix of F'z."""
    inverse: Floats = np.asarray(np.linalg.inv(floored(gram)), dtype=np.float64)
    columns = inverse @ whitening[places].T
    omega = whitening[places] @ columns
    values, vectors = np.linalg.eigh((omega + omega.T) / 2.0)
    root = (vectors * np.sqrt(values)) @ vectors.T
    back = (vectors / np.sqrt(values)) @ vectors.T
    return JointColumns(whitening=whitening, inverse=inverse, columns=columns, root=root, back=back)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AllColumns:
    """Nodewise regressions of all p columns on the selected ones.

    Attributes
    ----------
    standard : ndarray, shape (p, p)
        w_j / sqrt(w_jj).
    residual_squares : ndarray, shape (p,)
        h: mean squares of what the other columns leave.
    noise : ndarray, shape (p,)
        Variance that the noise of each column causes.
    correlation : ndarray, shape (p, p)
        Of the scores of the selected columns; others are taken to be uncorrelated.
    """

    standard: Floats
    residual_squares: Floats
    noise: Floats
    correlation: Floats


def all_columns(
    gram: Floats,
    gram_sd: float,
    selected: Integers,
    rest: Integers,
    products: Floats,
    errors: Floats,
    variance: float,
) -> AllColumns:
    """Return the nodewise regressions of all columns, from the Gram matrix of the selected ones.

    Parameters
    ----------
    gram : ndarray, shape (m, m)
        Noisy, positive definite.
    gram_sd : float
        Sd of the noise of a diagonal entry.
    selected, rest : ndarray of int
        The m selected columns, and all others.
    products, errors : ndarray, shape (m, size of rest)
        c, mean products of the selected columns with the others, and variances of their errors.
    variance : float
        Variance of the error of the fit in each whitened coordinate.

    Notes
    -----
    **Privacy.** Post-processing.
    """
    p = len(selected) + len(rest)
    inverse = np.asarray(np.linalg.inv(gram))
    columns = np.zeros((p, p))
    residual_squares = np.empty(p)
    noise = np.empty(p)
    residual_squares[selected] = 1.0 / np.diag(inverse)
    columns[np.ix_(selected, selected)] = inverse * np.sqrt(residual_squares[selected])
    error = np.asarray(variance * inverse)
    for place, column in enumerate(selected):
        others = np.delete(np.arange(len(selected)), place)
        on_others = error[np.ix_(others, others)]
        noise[column] = column_noise_variance(inverse[:, [place]], gram_sd, others, on_others)[0]
    slopes = inverse @ products
    residual_squares[rest] = np.maximum(1.0 - np.einsum("ij,ij->j", products, slopes), SMALLEST_REST)
    columns[rest, rest] = 1.0 / np.sqrt(residual_squares[rest])
    columns[np.ix_(selected, rest)] = -slopes / np.sqrt(residual_squares[rest])
    lengths = (slopes**2).sum(axis=0)
    inner = np.einsum("ij,ik,kj->j", slopes, error, slopes)
    moved = np.diag(error) @ errors + gram_sd**2 / 2.0 * (lengths * np.trace(error) + inner)
    noise[rest] = moved / residual_squares[rest] ** 2
    correlation = np.eye(p)
    among = np.ix_(selected, selected)
    correlation[among] = score_correlation(columns[among], gram)
    return AllColumns(
        standard=columns, residual_squares=residual_squares, noise=noise, correlation=correlation
    )


def standing_out(values: Floats, noise_sd: float | Floats) -> Floats:
    """Return noisy numbers, shrunk by their noise: ``v max(0, 1 - (2 sd / v)^2)``.

    Notes
    -----
    **Privacy.** Post-processing; of each number alone. Breiman's garrote: numbers that are noise become 0,
    those of many sds stay as they are.
    """
    noise = np.square(THRESHOLD * np.asarray(noise_sd))
    squares = np.maximum(np.square(values), np.maximum(noise, np.finfo(np.float64).tiny))
    return np.asarray(values * (1.0 - noise / squares))


@dataclass(frozen=True, slots=True, eq=False)
class Correlations:
    """Correlations (p, p), and variances of their errors; the identity where nothing was released."""

    values: Floats
    variances: Floats


def correlations(gram: Floats, gram_sd: float) -> Correlations:
    """Return correlations from a noisy Gram matrix, and the variances of the errors of its entries.

    Parameters
    ----------
    gram : ndarray, shape (p, p)
    gram_sd : float
        Sd of the noise of a diagonal entry; those above it have 1 / sqrt 2 of it.

    Notes
    -----
    **Privacy.** Post-processing, entry by entry: an entry depends on its own release and on two of the
    diagonal. Entries of columns that are clipped are brought to correlations by the clipped columns' own
    sizes. Those that do not stand out of the noise become 0, and count as wrong by a part of its variance.
    """
    symmetric = (gram + gram.T) / 2.0
    size = np.sqrt(np.maximum(np.diag(symmetric), SMALLEST_SQUARE))
    noise_sd = gram_sd / math.sqrt(2.0) / np.outer(size, size)
    raw = symmetric / np.outer(size, size)
    values = np.clip(standing_out(raw, noise_sd), -1.0, 1.0)
    variance = np.where(values == 0.0, DROPPED, 1.0) * noise_sd**2
    np.fill_diagonal(values, 1.0)
    return Correlations(values, variance)


def entry_noise_covariance(columns: Floats, variances: Floats, places: Integers, error_cov: Floats) -> Floats:
    """Return E (w_a' Z d) (w_b' Z d) of nodewise regressions w_1 to w_m, shape (m, m).

    Parameters
    ----------
    columns : ndarray, shape (m, size)
        w_1 to w_m.
    variances : ndarray, shape (size, size)
        Of the entries of the symmetric Z, independent but for the symmetry.
    places : ndarray of int, shape (s,)
        Positions of the support.
    error_cov : ndarray, shape (s, s)
        Covariance of d, the error of the coefficients on the support.

    Notes
    -----
    **Privacy.** Post-processing. The regressions may be of one target at several sites: Z is then the noise
    of one Gram matrix, and d the error of the coefficients that the sites share.
    """
    direct = (columns * (np.diag(error_cov) @ variances[places])) @ columns.T
    on = columns[:, places]
    mixed = variances[np.ix_(places, places)] * error_cov
    np.fill_diagonal(mixed, 0.0)
    return np.asarray(direct + on @ mixed @ on.T)


def correlation_columns(
    released: Correlations,
    support: Sequence[int],
    error_cov: Floats,
    targets: Sequence[int],
    near: Sequence[Sequence[int]],
) -> tuple[Floats, Floats]:
    """Return the nodewise regressions of targets on all columns, and the variance that their noise causes.

    Parameters
    ----------
    released : Correlations
    support : sequence of int
        Columns of the fit, which are in every regression.
    error_cov : ndarray, shape (size of support, size of support)
        Covariance of the error of their coefficients.
    targets : sequence of k ints
    near : sequence of k sequences of int
        Neighbors of each target.

    Returns
    -------
    columns : ndarray, shape (p, k)
    noise : ndarray, shape (k,)

    Notes
    -----
    **Privacy.** Post-processing.
    """
    columns = np.zeros((len(released.values), len(targets)))
    noise = np.empty(len(targets))
    for place, (target, chosen) in enumerate(zip(targets, near, strict=True)):
        members = list(dict.fromkeys([target, *support, *chosen]))
        gram = floored(released.values[np.ix_(members, members)])
        w = precision_columns(gram, [range(len(members))])[:, 0]
        columns[members, place] = w
        rest = [i for i, j in enumerate(support) if j != target]
        at = positions([support[i] for i in rest], members)
        variances = released.variances[np.ix_(members, members)]
        noise[place] = entry_noise_covariance(w[None], variances, at, error_cov[np.ix_(rest, rest)])[0, 0]
    return columns, noise


def steadied(values: Floats, noise_sd: float) -> Floats:
    """Return noisy positive numbers, shrunk toward their mean by the share that noise has in their spread.

    Parameters
    ----------
    values : ndarray, shape (k,)
        Such as the variances of k standardized scores, which are equal under errors independent of features.
    noise_sd : float

    Notes
    -----
    **Privacy.** Post-processing. With ``f = max(0, 1 - noise_sd^2 / Var(values))`` the result is
    ``mean + f (values - mean)``, at least a quarter of the mean: differences that stand out of the
    noise are kept, and differences that are noise are removed.
    """
    mean = float(np.mean(values))
    share = _usable_share(values, noise_sd)
    return np.asarray(np.maximum(mean + share * (values - mean), 0.25 * mean))


def steadied_sd(values: Floats, noise_sd: float) -> float:
    """Return the sd of the noise that is left in `steadied` numbers."""
    share = _usable_share(values, noise_sd)
    return noise_sd * math.sqrt(share**2 + (1.0 - share**2) / len(values))


def _usable_share(values: Floats, noise_sd: float) -> float:
    spread = float(np.var(values))
    return max(0.0, 1.0 - noise_sd**2 / spread) if spread > 0.0 and len(values) > 1 else 1.0


def score_correlation(columns: Floats, gram: Floats) -> Floats:
    """Return the correlation matrix of the targets' scores, positive definite with a unit diagonal.

    Parameters
    ----------
    columns : ndarray, shape (size, k)
    gram : ndarray, shape (size, size)

    Notes
    -----
    **Privacy.** Post-processing of the released Gram matrix.
    """
    raw = columns.T @ gram @ columns
    raw = (raw + raw.T) / 2.0
    return _unit_diagonal(_projected(_unit_diagonal(raw)))


def joint_covariance(correlation: Floats, sampling: Floats, privacy: Floats) -> Floats:
    """Return the covariance of debiased coordinates from a correlation and two kinds of variances, (k,)."""
    spread = np.sqrt(sampling)
    return np.asarray(correlation * np.outer(spread, spread) + np.diag(privacy))


def _projected(matrix: Floats) -> Floats:
    values, vectors = np.linalg.eigh(matrix)
    if values[0] >= SMALLEST:
        return matrix
    return np.asarray((vectors * np.maximum(values, SMALLEST)) @ vectors.T)


def _unit_diagonal(matrix: Floats) -> Floats:
    # A square that is negative because of noise is uninformative: its correlations are set to 0.
    spread = np.sqrt(np.where(np.diag(matrix) > 0.0, np.diag(matrix), np.inf))
    scaled = matrix / np.outer(spread, spread)
    np.fill_diagonal(scaled, 1.0)
    return np.asarray(scaled)
