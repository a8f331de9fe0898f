"""Collection of the un-noised sums of sites: each is checked against the bound of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from privinf.errors import AlignmentError
from privinf.federation.messages import WRONG_ANSWER, Reply
from privinf.federation.policy import TOLERANCE
from privinf.mechanisms.statistics.ops import RecordSensitivity
from privinf.typing import Floats


def collected(
    replies: Sequence[Reply], record_sensitivity: RecordSensitivity, rows: Mapping[str, int]
) -> Floats:
    """Return the sum of the replies to one query, added in the order of the sites' names.

    Parameters
    ----------
    replies : sequence of Reply
        One of each site that answered.
    record_sensitivity : RecordSensitivity
        Shape of the sum, and the largest entry of one record.
    rows : mapping of str to int
        Number of rows of each site.

    Returns
    -------
    ndarray
        The un-noised sum.

    Raises
    ------
    AlignmentError
        A reply has another shape or number of rows, or a sum that its rows cannot have; the message names
        the site.

    Notes
    -----
    **Privacy.** Un-noised: it must not leave the server that calls.
    """
    for reply in replies:
        good = reply.sums.dtype == np.float64 and reply.sums.shape == record_sensitivity.shape
        if not good or not np.isfinite(reply.sums).all() or reply.rows != rows[reply.site]:
            raise AlignmentError(WRONG_ANSWER.format(reply.site))
        limit = record_sensitivity.largest_sum([reply.rows]) * (1.0 + TOLERANCE) + TOLERANCE
        if np.abs(reply.sums).max(initial=0.0) > limit:
            raise AlignmentError(
                f"site {reply.site!r} sent a sum that is impossible for its {reply.rows} rows; the sum "
                "is not used, and the charge is kept"
            )
    total = np.zeros(record_sensitivity.shape)
    for reply in sorted(replies, key=lambda reply: reply.site):
        total += reply.sums
    return total
