"""DP-SGD FedAvg with one record a client: the baseline of paper 1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from tqdm import tqdm

from privinf.accounting import (
    GaussianLoss,
    Ledger,
    LedgerEntry,
    PrivacyReport,
    Sensitivity,
    calibrate_mu,
    split_mu,
)
from privinf.accounting.ledger import check_ledger
from privinf.errors import ArgumentError
from privinf.noise import NoiseSource, get_source, grid_step, solve_scale
from privinf.typing import Floats, RngLike
from privinf.validation import check_array, check_choice, check_count, check_fraction, check_positive

Conversion = Literal["paper", "exact"]
# Rounding of the clipping arithmetic is far below this relative slack, which the sensitivity is charged.
_SLACK = 2.0**-40


@dataclass(frozen=True, slots=True, eq=False)
class FedSGD:
    """What DP-SGD FedAvg ends with.

    Attributes
    ----------
    path : ndarray, shape (T + 1, d)
        Coefficients before the first round (zero) and after every round.
    scale : float
        sd of the noise in each coordinate of a client's gradient.
    privacy : PrivacyReport
        One line a round; ``privacy.epsilon(delta)`` is the exact joint cost whatever the conversion.
    """

    path: Floats
    scale: float
    privacy: PrivacyReport

    @property
    def params(self) -> Floats:
        """The last iterate, shape (d,)."""
        last: Floats = self.path[-1]
        return last


def paper_rho(epsilon: float, delta: float) -> float:
    """Return the zCDP budget that paper 1 buys with (epsilon, delta): eps = rho + 2 sqrt(rho log(1/delta)).

    Raises
    ------
    ArgumentError
        `epsilon` is not positive (infinity gives infinity) or `delta` is outside (0, 1).

    Notes
    -----
    The conversion of Bun and Steinke (2016). It is valid and not tight: the Gaussian noise that it buys
    has a smaller epsilon, which the ledger reports.

    Examples
    --------
    >>> rho = paper_rho(1.0, 1e-5)
    >>> round(rho + 2 * math.sqrt(rho * math.log(1e5)), 12)
    1.0
    """
    epsilon = check_positive(epsilon, "epsilon", infinite=True)
    need = -math.log(check_fraction(delta, "delta"))
    if math.isinf(epsilon):
        return math.inf
    # sqrt(need + eps) - sqrt(need), without cancellation
    root = epsilon / (math.sqrt(need + epsilon) + math.sqrt(need))
    return root**2


def dp_fedsgd(
    y: Any,
    X: Any,
    *,
    epsilon: float,
    delta: float,
    clip_norm: float,
    step: float,
    rounds: int = 10,
    conversion: Conversion = "paper",
    ledger: Ledger | None = None,
    rng: RngLike = None,
    progress: bool = False,
) -> FedSGD:
    r"""Fit least squares by averaged, clipped and noised gradients of single records.

    Parameters
    ----------
    y : array_like, shape (n,)
    X : array_like, shape (n, d)
        Used as it is.
    epsilon, delta : float
        Budget of all rounds together; ``epsilon=inf`` is clipped gradient descent without noise.
    clip_norm : float
        C, bound of a client's gradient x (x'b - y).
    step : float
        Learning rate.
    rounds : int
        T; every client answers every round.
    conversion : {"paper", "exact"}
        From (epsilon, delta) to the noise: the paper's zCDP conversion (`paper_rho`), or the exact
        composition of Gaussians, which allows less noise.
    ledger : Ledger, optional
    rng : None, int or Generator
        A seed makes simulation noise; None is secure noise.
    progress : bool

    Returns
    -------
    FedSGD

    Raises
    ------
    ArgumentError, BudgetExceededError
        Before any row is read for a release.

    Notes
    -----
    **Privacy.** Local: each client adds its own noise in each round. Replace-one of one whole record (x and
    y): two clipped gradients are at most 2C apart. mu^2 adds up over the rounds.

    Every client makes one local step, so averaging the clients' models is averaging their gradients:
    ``b <- b - step * mean_i [clip_C(x_i (x_i'b - y_i)) + N(0, (2C/mu_t)^2 I)]``.

    References
    ----------
    Vepakomma et al. (2026), "Experiments"; Abadi et al. (2016), "Deep learning with differential privacy".

    Examples
    --------
    >>> x = np.random.default_rng(0).standard_normal((2000, 2))
    >>> fit = dp_fedsgd(x @ [1.0, -1.0], x, epsilon=4.0, delta=1e-5, clip_norm=2.0, step=0.1, rng=0)
    >>> fit.path.shape, fit.privacy.epsilon(1e-5) < 4.0
    ((11, 2), True)
    """
    features = check_array(X, "X", ndim=2)
    response = check_array(y, "y", ndim=1)
    if len(features) != len(response):
        raise ArgumentError(f"y has {len(response)} rows and X has {len(features)}")
    step = check_positive(step, "step")
    clip_norm = check_positive(clip_norm, "clip_norm")
    source = get_source(rng=rng)
    scale, entries = _plan(
        _total_mu(epsilon, delta, conversion),
        check_count(rounds, "rounds"),
        clip_norm,
        features.shape[1],
        source,
    )
    ledger = check_ledger(ledger)
    ledger.spend(*entries)
    path = np.zeros((rounds + 1, features.shape[1]))
    for t in tqdm(range(rounds), desc="DP-SGD rounds", disable=not progress):
        gradients = clipped_gradients(response, features, path[t], clip_norm)
        sent = gradients if scale == 0.0 else source.perturb(gradients, scale)
        path[t + 1] = path[t] - step * sent.mean(axis=0)
    return FedSGD(path, scale, PrivacyReport.from_entries(entries, ledger=ledger, delta=delta))


def clipped_gradients(y: Floats, X: Floats, beta: Floats, clip_norm: float) -> Floats:
    """Return each record's gradient x (x'b - y), shape (n, d), shortened to norm `clip_norm` at most."""
    gradients = X * (X @ beta - y)[:, None]
    norms = np.sqrt(np.einsum("ij,ij->i", gradients, gradients))
    gradients *= np.minimum(1.0, clip_norm / np.maximum(norms, np.finfo(float).tiny))[:, None]
    return gradients


def _total_mu(epsilon: float, delta: float, conversion: Conversion) -> float:
    if check_choice(conversion, Conversion, "conversion") == "exact":
        return calibrate_mu(epsilon=epsilon, delta=delta)
    return math.sqrt(2.0 * paper_rho(epsilon, delta))


def _plan(
    mu: float, rounds: int, clip_norm: float, dimension: int, source: NoiseSource
) -> tuple[float, list[LedgerEntry]]:
    """Return the noise sd of every round and the ledger's lines; nothing here depends on rows."""
    part = split_mu(mu, rounds)[0]
    scale = 0.0
    sensitivity = 2.0 * clip_norm * (1.0 + _SLACK)
    if not math.isinf(mu):
        scale, sensitivity = solve_scale(sensitivity, part, dimension, source)
    law = "none" if scale == 0.0 else "discrete gaussian" if source.secure else "gaussian"
    grid = grid_step(scale) if scale > 0.0 and source.secure else 0.0
    entries = [
        LedgerEntry(
            mechanism="clipped gaussian gradient",
            label=f"gradient, round {t + 1}",
            unit="record",
            relation="replace-one",
            trust="local",
            sensitivity=Sensitivity(norm="l2", value=sensitivity, derivation="2 * clip_norm"),
            noise={"law": law, "scale": scale, "grid": grid},
            loss=GaussianLoss(part),
            source="none" if scale == 0.0 else source.name,
            secure=scale > 0.0 and source.secure,
            assumptions=("the number of records is public (replace-one)",),
        )
        for t in range(rounds)
    ]
    return scale, entries
