r"""Whether bounds cut the columns of a fit: a noisy count of values outside, for one percent of the budget.

Of k columns (the response and inputs of derived columns among them) the numbers of values outside their
public bounds are released together. A record has k marks, 0 or 1, and replacing it changes each by 1 at most,
so the l2 sensitivity of all counts is sqrt k, and 1% of mu^2 buys noise of sd

.. math:: s = \sqrt{k} / (0.1\,\mu)

in every count. A count stands out of the noise if it is above z' s, with z' the normal quantile at
0.99^(1/k) (Sidak: noises are independent): if no value is outside its bounds, any of the k counts stands out
in 1% of fits (benchmarks/results/clipping.md). Such a count is a note of the summary. It is a warning if the
estimated share is at least 1%, or if the values may move a coefficient (`privinf.results.outside_counts`).
Undeclared codes of missing values are often 1% of the values, and a share of 1% far from the mean can move a
coefficient by several standard errors.

Values are counted only where a share of 5% is detected with probability 0.8, ``.04 n >= (z + 0.84) s`` with
z the quantile at 0.95^(1/k): elsewhere its budget would be wasted. The rule reads public numbers alone (n, k,
mu).

Only the rows of one curator are counted. Over sites they are not, real or simulated: a site's
policy may list the allowed statistics, and would refuse this one after most of the fit was charged.
The first release also detects, without cost, means at an end of their bounds (`privinf.inference.ends`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from privinf.accounting import split_mu
from privinf.glm.rows import GlmRows
from privinf.glm.sums import GlmSums
from privinf.inference.ends import at_an_end
from privinf.results.outside_counts import LARGE_SHARE, OutsideCounts
from privinf.schema import Numeric
from privinf.typing import Floats
from privinf.wire import Labels, Statistics

COUNT_SHARE = 0.01  # share of mu^2 for the count
DETECTABLE_SHARE = 0.05  # share of values outside that must be detectable for the count to be released
LEVEL = 0.95  # of the simultaneous lower bounds by which DETECTABLE_SHARE is detected
SILENT_SHARE = 0.99  # of fits in which no count stands out of the noise if no value is outside
POWER = 0.8  # probability with which DETECTABLE_SHARE must be detected
LABEL = Labels.VALUES_OUTSIDE


def simultaneous_quantile(k: int, level: float = LEVEL) -> float:
    """Return z: k independent normal variables are all below it with probability `level`."""
    return float(ndtri(level ** (1.0 / k)))


def threshold(k: int, sd: float) -> float:
    """Return the size above which one of k counts stands out of its noise of this `sd`; 0.5 without noise."""
    return max(simultaneous_quantile(k, SILENT_SHARE) * sd, 0.5)


def is_detectable(n: int, k: int, mu: float) -> bool:
    """Return whether a count at a price of `mu` would detect a share of 5% outside the bounds."""
    sd = 0.0 if math.isinf(mu) else math.sqrt(k) / mu
    return (DETECTABLE_SHARE - LARGE_SHARE) * n >= (simultaneous_quantile(k) + float(ndtri(POWER))) * sd


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideCount:
    """The count of values outside their bounds, which a fit releases in addition to its other sums.

    Attributes
    ----------
    names : tuple of str
        Whose values are counted.
    args : mapping
        Of the statistic ``values_outside``.
    mu, rest : float
        Prices of the count and of all other releases. Their squares add up to the fit's mu^2.
    """

    names: tuple[str, ...]
    args: Mapping[str, Any]
    mu: float
    rest: float

    @classmethod
    def from_rows(cls, rows: GlmRows, mu: float) -> OutsideCount | None:
        """Return the count of a fit of price `mu`; None if it would not detect a share of 5% outside."""
        names, columns = plain_numbers(rows)
        design = rows.design
        response = rows.design.outcome.column
        outcome = bool(response.plain) and not design.response_public and _is_number(rows, response.inputs)
        outcome = outcome and rows.roles.status is None  # a time beyond the horizon is censored there
        counted = [*names, *([design.response] if outcome else []), *design.clipped_inputs]
        if not counted:
            return None
        rest, part = split_mu(mu, [1.0 - COUNT_SHARE, COUNT_SHARE])
        if not is_detectable(rows.total, len(counted), part):
            return None
        args = {
            "columns": np.array(columns, dtype=np.int64),
            "outcome": outcome,
            "inputs": len(design.clipped_inputs),
        }
        return cls(names=tuple(counted), args=args, mu=part, rest=rest)

    @property
    def query(self) -> tuple[str, Mapping[str, Any], str, float]:
        """Statistic, arguments, label and price."""
        return Statistics.VALUES_OUTSIDE, self.args, LABEL, self.mu

    def release(self, sums: GlmSums) -> Any:
        """Release the count."""
        return sums.release_sum(*self.query)

    def counts(self, release: Any, n: int, leverage: Mapping[str, float]) -> OutsideCounts:
        """Return the released numbers by name; of a column that is counted twice, the larger one."""
        counts: dict[str, float] = {}
        for name, count in zip(self.names, release.values, strict=True):
            counts[name] = max(float(count), counts.get(name, -math.inf))
        sd = float(release.scale)
        largest = threshold(len(self.names), sd)
        return OutsideCounts(counts=counts, sd=sd, threshold=largest, rows=n, leverage=leverage)


def plain_numbers(rows: GlmRows) -> tuple[list[str], list[int]]:
    """Return names of data and positions of the columns that are numbers as they are, with bounds."""
    design = rows.design
    names = []
    columns = []
    for j, column in enumerate(design.columns):
        bounded = math.isfinite(design.low[j]) and math.isfinite(design.high[j])
        if j != design.constant and column.plain and bounded and _is_number(rows, column.inputs):
            names.append(column.inputs[0])
            columns.append(j)
    return names, columns


def ends_of(
    rows: GlmRows, means: Floats, sd: float, response: tuple[float, float, float, float] | None = None
) -> tuple[str, ...]:
    """Return the numbers whose released mean is at an end of their bounds; costs nothing.

    Parameters
    ----------
    rows : GlmRows
    means : ndarray, shape (p,)
        Of the columns, in the units of `GlmRows`, with noise of this `sd`.
    response : (mean, sd, low, high), optional
        Of the response, in any units.
    """
    names, columns = plain_numbers(rows)
    low, high = (ends[columns] for ends in rows.limits)
    released = means[columns]
    sds = np.full(len(columns), sd)
    if response is not None and rows.design.outcome.column.plain:
        names = [*names, rows.design.response]
        released, sds, low, high = (
            np.append(values, response_value)
            for values, response_value in zip((released, sds, low, high), response, strict=True)
        )
    near = at_an_end(released, sds, low, high)
    return tuple(name for name, at in zip(names, near, strict=True) if at)


def leverages(rows: GlmRows, means: Floats, squares: Floats, sd: float) -> dict[str, float]:
    """Return, by name, the squared distance of a column's mean from its farther bound, over the variance.

    Parameters
    ----------
    rows : GlmRows
    means, squares : ndarray, shape (p,)
        Released means of the columns and of their squares, in the units of `GlmRows`.
    sd : float
        Of the noise of a mean square; a variance of less than 2 `sd` counts as 2 `sd`.
    """
    names, columns = plain_numbers(rows)
    low, high = (ends[columns] for ends in rows.limits)
    center = np.clip(means[columns], low, high)
    variances = np.maximum(squares[columns] - center**2, max(2.0 * sd, 1e-12))
    ratios = np.maximum(high - center, center - low) ** 2 / variances
    return dict(zip(names, ratios.tolist(), strict=True))


def _is_number(rows: GlmRows, inputs: tuple[str, ...]) -> bool:
    """Whether a plain column holds a number, not the levels of a factor."""
    schema = rows.design.schema
    return schema is None or isinstance(schema.columns.get(inputs[0]), Numeric)
