"""Means so near a bound of their column that at least half of the values are at it, near it, or beyond it.

In units in which values are in [-1, 1], let g be the distance of a mean from an end. At most half of the
values are farther from this end than 2 g (Markov). If g and two sds of its noise are at most 0.05, at least
half of the values are within 5% of the width of the bounds, or beyond the bound and clipped to it. The mean
does not distinguish values at a bound from values beyond it: both count as the bound. It shows one thing: if
*all* values were beyond the bound, g would be 0. If g exceeds three sds of its noise, for all groups together
that may be near this end, some values are inside.

- **The bound 0**: many columns, such as costs and counts, have most values equal to 0, and no value below. If
  some values are inside, a note states where the values are, without a warning. Else there is a warning.
- **Bounds (0, 1)**: the values are probably yes and no. Other codes, such as 1 and 2, are all clipped to the
  same end. If some values are inside, the column has few ones or few zeros, and there is no note.
- **Other bounds**: there is a warning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from privinf.errors import ChangedTargetWarning
from privinf.mechanisms.samples import SampleSums
from privinf.results.notes import ALL_ALIKE, IF_OUTSIDE, Note, sentence
from privinf.typing import Flags, Floats

# Where the mean is this near to an end of the bounds (in units of half their range), half of the values are
# at most twice as far.
AT_BOUND = 0.05
INSIDE_SDS = 3.0  # sds of the noise above which a distance from an end is not noise alone
NAMED_GROUPS = 8  # groups that a text names
MOSTLY_AT_BOUND = (
    "at least half of the values of {} are beyond the {} bound {:g}, or less than 5% of the width of the "
    "bounds away from it. Values beyond the bounds are clipped, which changes the mean. If you expect values "
    f"beyond the bounds, {IF_OUTSIDE}"
)
MOSTLY_ZERO = "at least half of the values of {} are at the {} bound 0, close to it or {} it"
NO_VALUES_BEYOND = "{}; the mean is correct if none is {} it"
VALUES_BEYOND = (
    "{}. The mean is correct if no value is {} 0; the release cannot distinguish such values from 0"
)
VALUES_BEYOND = "{}. Values {} 0 are clipped to 0, which changes the mean. If you expect such values, {}"

Cautions: TypeAlias = tuple[tuple[type[Warning], str], ...]


def values_at_bounds(
    value: str, groups: Sequence[object], means: Floats, sds: Floats, ends: tuple[float, float]
) -> tuple[Cautions, tuple[Note, ...]]:
    """Return the cautions, and the notes without a warning, on means that are near a bound.

    Parameters
    ----------
    value : str
        Name of the column.
    groups : sequence
        One label a mean; empty for one mean of all rows.
    means, sds : ndarray, shape (k,)
        Means and the sds of their noise, in units of half the range of the bounds.
    ends : (low, high)
        Bounds, in the units of the column.
    """
    cautions: Cautions = ()
    notes: tuple[Note, ...] = ()
    gaps = 1.0 - np.minimum(np.abs(means), 1.0)
    near = gaps + 2.0 * sds <= AT_BOUND
    possible = gaps - 2.0 * sds <= AT_BOUND
    for end, at_end in zip(ends, (means < 0.0, means > 0.0), strict=True):
        chosen = near & at_end
        if not chosen.any():
            continue
        names = _named(value, groups, chosen)
        some_inside = _some_inside(gaps[possible & at_end], sds[possible & at_end])
        is_low = end == ends[0]
        if ends == (0.0, 1.0):
            if not some_inside:
                cautions += ((ChangedTargetWarning, ALL_ALIKE.format(names)),)
            continue
        side, beyond = ("lower", "below") if is_low else ("upper", "above")
        if end != 0.0:
            cautions += ((ChangedTargetWarning, MOSTLY_AT_BOUND.format(names, side, end)),)
            continue
        text = MOSTLY_ZERO.format(names, side, beyond)
        if some_inside:
            notes += (Note(sentence(NO_VALUES_BEYOND.format(text, beyond)), "table"),)
        else:
            cautions += ((ChangedTargetWarning, VALUES_BEYOND.format(text, beyond, IF_OUTSIDE)),)
    return cautions, notes


def sample_at_bounds(release: SampleSums) -> tuple[Cautions, tuple[Note, ...]]:
    """Return the cautions, and the notes without a warning, on the mean of one sample.

    A share of a level has none.
    """
    value = release.query.values[0]
    if value in dict(release.ones):
        return (), ()
    complete = release.complete
    entry, n = (0, release.nobs) if complete is None else (1, complete.rows)
    return values_at_bounds(
        value, (), release.sums[:, entry] / n, release.scale[entry : entry + 1] / n, release.ends_of(0)
    )


def _some_inside(gaps: Floats, sds: Floats) -> bool:
    """Return whether some values are inside: the distances together exceed their noise."""
    weights = 1.0 / np.maximum(sds, 1e-12) ** 2
    return bool((weights * gaps).sum() > INSIDE_SDS * np.sqrt(weights.sum()))


def _named(value: str, groups: Sequence[object], chosen: Flags) -> str:
    """Return the column with the groups that are chosen, all of them if there are many."""
    names = [repr(group) for group, is_chosen in zip(groups, chosen, strict=bool(len(groups))) if is_chosen]
    if not names:
        return repr(value)
    if len(names) == 1:
        return f"{value!r} in group {names[0]}"
    shown = names[:NAMED_GROUPS]
    more = len(names) - len(shown)
    last = f"{more} more" if more else shown.pop()
    return f"{value!r} in groups {', '.join(shown)} and {last}"
