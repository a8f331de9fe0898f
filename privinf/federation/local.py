"""Sites in this process, and sites made of rows that the caller holds."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from privinf.error_boundary import error_boundaries
from privinf.errors import ArgumentError
from privinf.federation.messages import NAME_RULE, Query, Reply, check_alike, lasting
from privinf.federation.policy import SitePolicy
from privinf.federation.secure.keys import pinned_keys
from privinf.federation.site import Site
from privinf.mechanisms.rows import Rows
from privinf.mechanisms.statistics.block import SiteBlock
from privinf.schema import Design
from privinf.typing import Label


@error_boundaries
class InProcessFederation:
    """Federation of sites in this process, for tests, for simulations and for the files of one holder.

    Parameters
    ----------
    sites : mapping of str to Site
        The sites by their names.
    drop_outs : mapping of str to collection of int, optional
        For each site, the numbers (counted from 0) of the calls of `ask` that never reach this site, to
        simulate failures.
    lost_replies : mapping of str to collection of int, optional
        For each site, the numbers (counted from 0) of the calls of `ask` for which the reply of this site is
        lost, to simulate failures. The site has then answered and charged the query.

    Raises
    ------
    ArgumentError
        Raised if there is no site, a site has two names, or a name is not a string.
    AlignmentError
        Raised if the sites have different columns or bounds. The message names one of the sites.

    Notes
    -----
    **Privacy.** The federation only transmits messages. Each site decides by its own policy and ledger which
    queries it answers.

    Examples
    --------
    >>> import numpy as np
    >>> from privinf.schema import Design
    >>> from privinf.federation import InProcessFederation, Query, Site
    >>> design = Design.from_arrays(["x"], bounds=[(-1, 1)], y_bounds=(-2, 2))
    >>> two = {name: Site((np.zeros(5), np.zeros((5, 1))), design) for name in ("north", "south")}
    >>> [reply.rows for reply in InProcessFederation(two).ask(Query("describe"))]
    [5, 5]
    """

    def __init__(
        self,
        sites: Mapping[str, Site],
        *,
        drop_outs: Mapping[str, Collection[int]] | None = None,
        lost_replies: Mapping[str, Collection[int]] | None = None,
    ) -> None:
        if not isinstance(sites, Mapping) or not sites:
            raise ArgumentError("sites= must be a mapping of names to Site objects, with at least one site")
        for name, site in sites.items():
            if not isinstance(name, str) or not name.strip() or "=" in name:
                raise ArgumentError(NAME_RULE)
            if not isinstance(site, Site):
                raise ArgumentError(f"site {name!r} must be a Site, got {type(site).__name__}")
        if len(set(map(id, sites.values()))) < len(sites):
            raise ArgumentError(
                "sites= contains the same Site object under two names, so its rows would be counted twice "
                "but charged once: make a separate Site for each name"
            )
        self._sites = dict(sites)
        self._failing = tuple(
            {name: frozenset(calls) for name, calls in (failures or {}).items()}
            for failures in (drop_outs, lost_replies)
        )
        for name in (name for failures in self._failing for name in failures):
            self._check_name(name)
        self._calls = 0
        check_alike({name: lasting(site.description()) for name, site in self._sites.items()})

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites."""
        return tuple(self._sites)

    def ask(self, query: Query, sites: Sequence[str] | None = None) -> list[Reply]:
        """Return the replies of the queried sites.

        Parameters
        ----------
        query : Query
            The query.
        sites : sequence of str, optional
            Names of the sites to query; by default all sites.

        Returns
        -------
        list of Reply
            Replies of the sites that answered, in the order of the sites.

        Notes
        -----
        **Privacy.** Each site decides by its own policy and ledger which queries it answers.
        """
        names = self.sites if sites is None else tuple(self._check_name(name) for name in sites)
        call = self._calls
        self._calls = self._calls + 1
        missed, lost = self._failing
        replies = []
        message = query.pack()
        for name in names:
            if call in missed.get(name, ()):
                continue
            reply = self._sites[name].handle(Query.unpack(*message), name)
            if call not in lost.get(name, ()):
                replies.append(reply)
        return replies

    def _check_name(self, name: str) -> str:
        if name not in self._sites:
            raise ArgumentError(
                f"there is no site named {name!r}; the sites are {', '.join(map(repr, self._sites))}"
            )
        return name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self._sites)} sites>"

    def __reduce__(self) -> Any:
        raise TypeError("a federation in this process holds raw rows and cannot be pickled")


class LocalSites(InProcessFederation):
    """Sites whose rows are the caller's own, so that every query of the caller is allowed."""

    def check_rows(self) -> None:
        """Raise SchemaError if rows, which stay where the caller has them, were changed to missing ones."""
        for site in self._sites.values():
            site.check_again()

    def digest(self, key: bytes) -> str:
        """Return the digest of all rows in their order, by site, under a key: for their holder alone."""
        digests = {name: site._designs.digest(key) for name, site in sorted(self._sites.items())}
        return hmac.new(key, json.dumps(digests).encode(), hashlib.sha256).hexdigest()

    def own_rows(self, design: Design) -> tuple[str, SiteBlock] | None:
        """Return the name and the rows of the only site by a design, for its holder; None for several."""
        if len(self._sites) != 1:
            return None
        ((name, site),) = self._sites.items()
        site.check_again()
        return name, site.own_rows(name, design)

    def allow(self, operations: Iterable[str]) -> None:
        """Let the sites answer some statistics of studies too."""
        for site in self._sites.values():
            site.policy = site.policy.naming(operations)


def in_process(
    design: Design, parts: Mapping[Label, Rows], *, keyed: bool = False, zero_out: bool = False
) -> LocalSites:
    """Return sites of this process that hold these rows; `keyed` for secure sums.

    Raises
    ------
    ArgumentError
        Secure sums are requested with only one site.
    """
    rows = {str(label): part for label, part in parts.items()}
    if len(rows) < len(parts):
        raise ArgumentError(
            "sites= has two labels with the same text, such as 1 and '1'; give each site a different label"
        )
    if keyed and len(rows) < 2:
        raise ArgumentError('a secure sum needs at least two sites; for one site, pass trust="server"')
    keys, roster = pinned_keys(rows, signed=False) if keyed else ({}, None)
    policy = SitePolicy(trusted_server=not keyed, secure_sums=keyed, simulation=True, zero_out=zero_out)
    sites = [
        Site(part, design, policy=policy, key=keys.get(name), roster=roster) for name, part in rows.items()
    ]
    for site in sites:  # of one design: a query is tried on its simulated rows once, not at each
        site._record_sensitivities = sites[0]._record_sensitivities
    return LocalSites(dict(zip(rows, sites, strict=True)))
