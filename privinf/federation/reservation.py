"""Reservations of a fit in the budgets of the sites, before its first release is charged."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from privinf.accounting import Loss
from privinf.accounting.losses import noise_free
from privinf.errors import PrivinfError
from privinf.federation.local import LocalSites
from privinf.federation.messages import Federation, Query
from privinf.federation.rounds import replies_of
from privinf.wire import Requests


class FitReservation:
    """The reservation of one fit at all sites: at most one at a time.

    Parameters
    ----------
    federation : Federation
        The sites. The caller's own rows have no limit set by others: nothing is reserved for them.
    """

    def __init__(self, federation: Federation) -> None:
        self._federation = federation
        self.name = ""

    def query(self, losses: Sequence[Loss], name: str, position: int) -> Query | None:
        """Begin a reservation and return the query that makes it; None where nothing is to be reserved.

        Releases without noise fit no limit and are not reserved.
        """
        if isinstance(self._federation, LocalSites) or any(map(noise_free, losses)):
            return None
        self.name = name
        lines = tuple(loss.to_dict() for loss in losses)
        return Query(Requests.RESERVE, session=name, sequence=position, charges=lines)

    def give_back(self, position: int, sites: Sequence[str]) -> None:
        """Return the uncharged amounts of the sites' reservations; sites that do not answer keep them."""
        if self.name:
            query = Query(Requests.END, session=self.name, sequence=position)
            with suppress(PrivinfError):
                replies_of(self._federation, query, sites)
        self.name = ""
