"""Paper 1's five regressions and its methods, the grid search behind its Table 2, and what that search costs.

The paper gives epsilon, T and Table 2; contraction, amplitude, frequency, delta, the ball of the iterates and
the splits are ours. "Tuned" settings are chosen by R^2 on the validation part, which the paper calls public.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

import privinf as pi
from privinf.accounting import gaussian_epsilon
from privinf.datasets import Dataset, load
from privinf.typing import Floats
from privinf.validation import check_array, check_positive
from studies.dp_fedsgd import clipped_gradients, dp_fedsgd, paper_rho

Part = Literal["validation", "test"]
Setting = tuple[float, ...]

DELTA = 1e-5  # the paper states none
ROUNDS = 10  # T of the iterative methods, from the paper
MAX_NORM = 2.0  # radius of the ball of the iterates; the paper states none
MAP: dict[str, Any] = {"contraction": 0.5, "amplitude": 0.1, "frequency": 1.0}
EPSILONS = np.arange(0.5, 10.01, 0.25)  # the paper's grid
# Shares of (training, training and validation); the paper states only that there are three parts.
PARTS = (0.6, 0.8)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Task:
    """One of the paper's regressions with its tuned settings and what the paper's Table 1 says of it."""

    title: str
    data: Dataset
    paper_r2: float
    step: float
    ridge: float
    clip: float
    sgd_step: float

    def split(self, seed: int, part: Part = "test") -> tuple[Floats, Floats, Floats, Floats]:
        """Return X, y of the training and of another part, standardised on the training part."""
        order = np.random.default_rng(seed).permutation(len(self.data.data))
        first, second = (int(share * len(order)) for share in PARTS)
        train = order[:first]
        other = order[first:second] if part == "validation" else order[second:]
        X, y = self.data.X.to_numpy(), self.data.y.to_numpy()
        mean, sd = X[train].mean(axis=0), X[train].std(axis=0)
        y = (y - y[train].mean()) / y[train].std()
        X = (X - mean) / sd
        return X[train], y[train], X[other], y[other]


def tasks() -> list[Task]:
    """Return the five regressions in the paper's order, with its Tables 1 and 2."""
    return [
        Task(title="CO2", data=load("co2"), paper_r2=0.999, step=0.8, ridge=2.0, clip=2.249, sgd_step=0.05),
        Task(
            title="Fair (years married)",
            data=load("fair"),
            paper_r2=0.853,
            step=0.8,
            ridge=1.0,
            clip=2.059,
            sgd_step=0.10,
        ),
        Task(
            title="ModeChoice",
            data=load("modechoice"),
            paper_r2=0.967,
            step=1.0,
            ridge=0.5,
            clip=1.816,
            sgd_step=0.05,
        ),
        Task(
            title="RandHIE (lncoins)",
            data=load("randhie"),
            paper_r2=0.406,
            step=0.8,
            ridge=0.5,
            clip=2.270,
            sgd_step=0.10,
        ),
        Task(
            title="RandHIE (fmde)",
            data=load("randhie", response="fmde"),
            paper_r2=0.389,
            step=0.5,
            ridge=0.5,
            clip=2.256,
            sgd_step=0.10,
        ),
    ]


def r_squared(beta: Floats, X: Floats, y: Floats) -> float:
    """Return 1 - SSE/SST; negative where the mean would have predicted better."""
    return 1.0 - float(np.sum((y - X @ beta) ** 2) / np.sum((y - y.mean()) ** 2))


def least_squares(X: Floats, y: Floats, ridge: float = 0.0) -> Floats:
    """Return least squares, or ridge regression with penalty gamma on mean moments."""
    return np.asarray(np.linalg.solve(X.T @ X / len(X) + ridge * np.eye(X.shape[1]), X.T @ y / len(X)))


# ---- the three methods, every candidate with the same noise seed


def candidates(X: Floats, y: Floats, method: str) -> list[Setting]:
    """Return the settings that are tried: step factors, ridges, or pairs of clipping norm and learning rate.

    The paper names no grid. Ours holds its winners; the clipping norms are quantiles of the lengths of the
    first round's gradients x y, without noise, as the printed ones seem to be.
    """
    if method == "iterative":
        return [(c,) for c in (0.2, 0.35, 0.5, 0.65, 0.8, 1.0, 1.25)]
    if method == "one-shot ridge":
        return [(ridge,) for ridge in (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)]
    clips = np.quantile(gradient_norms(X, y), (0.25, 0.5, 0.75, 0.9))
    return [(float(clip), step) for clip in clips for step in (0.02, 0.05, 0.1, 0.2, 0.5)]


def gradient_norms(X: Floats, y: Floats) -> Floats:
    """Return the lengths of the records' gradients at zero coefficients, shape (n,): private numbers."""
    return np.asarray(np.linalg.norm(clipped_gradients(y, X, np.zeros(X.shape[1]), math.inf), axis=1))


def fitted(
    X: Floats, y: Floats, method: str, settings: list[Setting], epsilon: float, seed: int
) -> list[Floats]:
    """Return the coefficients of every setting at one budget and one noise seed, each shape (d,).

    One release serves every ridge; every other setting is a run of its own over the training records.
    """
    theirs: dict[str, Any] = {"rho": paper_rho(epsilon, DELTA), "delta": DELTA}
    if method == "DP-SGD":
        given: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, "rounds": ROUNDS, "rng": seed}
        return [dp_fedsgd(y, X, clip_norm=clip, step=step, **given).params for clip, step in settings]
    model = pi.ModulatedOLS(y, X, adjacency="unit", sensitivity="lipschitz", response="public", **MAP)
    if method == "one-shot ridge":
        once = pi.ModulatedOLS.from_release(model.release(rng=seed, **theirs))
        return [np.asarray(once.fit(ridge=ridge).params) for (ridge,) in settings]
    found = []
    for (step,) in settings:
        server: dict[str, Any] = {"step": step, "max_norm": MAX_NORM}
        rounds = model.release(
            method="iterative", rounds=ROUNDS, progress=False, rng=seed, **server, **theirs
        )
        last = pi.ModulatedOLS.from_release(rounds).fit(estimator="last", **server)
        found.append(np.asarray(last.params))
    return found


# ---- what tuning costs


def price_of_runs(epsilon: float, runs: int, delta: float = DELTA) -> float:
    r"""Return the epsilon that training records pay where `runs` runs were made at a claimed epsilon.

    Every run adds mu^2, and choosing among them by their results is a function of all of them: the price is
    that of ``sqrt(runs) mu``, with mu what the paper's conversion buys.
    """
    return gaussian_epsilon(math.sqrt(2.0 * runs * paper_rho(epsilon, delta)), delta)


def chosen_privately(losses: Floats, cap: float, nobs: int, epsilon: float) -> Floats:
    r"""Return the law of a private choice among settings, shape (k,).

    Parameters
    ----------
    losses : ndarray, shape (k,)
        Mean over the validation records of ``min((y - x'b)^2, cap)``.
    cap : float
        Largest loss of a record.
    nobs : int
        Validation records.
    epsilon : float
        Price, paid by the validation records.

    Notes
    -----
    The exponential mechanism: weights ``exp(-epsilon nobs loss / (2 cap))``, as replacing a record moves
    every mean by at most cap/nobs (McSherry and Talwar 2007). Taking the best instead has no finite price.
    """
    weight = -check_positive(epsilon, "epsilon") * nobs * check_array(losses, "losses", ndim=1) / (2.0 * cap)
    law = np.exp(weight - weight.max())
    return np.asarray(law / law.sum())


# ---- Appendix F: the risks without privacy that the paper cites


def fixed_design_risk(X: Floats, error_variance: float) -> tuple[float, float]:
    """Return the minimax risks of a fixed design: of prediction, mean (x'(b^ - b))^2, and of b^.

    ``sigma^2 rank(X)/n`` and ``sigma^2 tr (X'X)^-1`` (infinite without full rank); least squares reaches
    both.
    """
    rank = int(np.linalg.matrix_rank(X))
    spread = float(np.trace(np.linalg.inv(X.T @ X))) if rank == X.shape[1] else math.inf
    return error_variance * rank / len(X), error_variance * spread


def agnostic_rate(
    nobs: int, dimension: int, *, beta_norm: float, feature_norm: float, response_norm: float
) -> float:
    """Return n times the minimax excess risk over any law on balls, up to a constant (Shamir 2015).

    ``min(n M^2, B^2 R^2 + d M^2, sqrt(n) B R M)`` with B, R and M the balls of coefficients, features and
    responses.
    """
    B = beta_norm
    R = feature_norm
    M = response_norm
    return min(nobs * M**2, (B * R) ** 2 + dimension * M**2, math.sqrt(nobs) * B * R * M)
