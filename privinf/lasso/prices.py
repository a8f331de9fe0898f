"""Prices in zCDP of the parts of a sparse fit and of its debiasing, of linear and logistic models."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseFitPrices:
    """Prices in zCDP of one sparse fit; a part that a model does not release costs 0.

    Attributes
    ----------
    selection : float
        All selections of columns.
    refit : float
        All fits of selected columns.
    sizes : float
        Sizes of columns.
    scales : float
        All residual scales, of linear models.
    rate : float
        Rate of the response, of logistic models.
    """

    selection: float
    refit: float
    sizes: float
    scales: float = 0.0
    rate: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DebiasingPrices:
    """Prices in zCDP of the debiasing of a sparse fit; a part that a model does not release costs 0.

    Attributes
    ----------
    neighbors : float
        Neighbors of the targets.
    gram : float
        Nodewise regressions, or the Gram matrix of targets and neighbors.
    sizes : float
        Sizes of columns.
    slopes : float
        Slopes of the scores: of linear models with their variances, of logistic ones the secant matrix.
    score : float
        Debiasing scores.
    center : float
        Mean of the residuals, of linear models.
    candidate, meat : float
        The candidate for an omitted column, and squares of the scores, of logistic models.
    """

    neighbors: float
    gram: float
    sizes: float
    slopes: float
    score: float
    center: float = 0.0
    candidate: float = 0.0
    meat: float = 0.0
