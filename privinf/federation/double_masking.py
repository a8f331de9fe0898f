r"""DoubleMaskedServer: secure sums that survive sites which fall silent half-way.

As `SecureServer`, with self masks (Bonawitz et al.): a sum is unmasked as long as `threshold` sites stay to
the end, whoever else falls silent and when. It takes four messages (`site_sharing`) instead of one, a
complete graph of masks, and more noise: only `threshold - max_colluding` sites are counted on for it, so that
the variance is up to sites / (threshold - max_colluding) times the central one when all stay. For sites that
rarely fail `SecureServer` with ``missing="continue"`` is cheaper.

The trust model is that of `secure_sum`. In addition a server may tell sites different stories of who has
dropped out; `site_sharing` says why at most one of them is believed. It needs
2 threshold > sites + max_colluding, which sites enforce. A site's one-time keys are gone with its process, so
that seizing an identity key later does not open old sums of this kind.

References
----------
Bonawitz et al. (2017), "Practical secure aggregation for privacy-preserving machine learning".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from privinf.doors import doors
from privinf.errors import AlignmentError, ArgumentError
from privinf.federation.in_process import Federation
from privinf.federation.keys import IdentityKey
from privinf.federation.masking import PURPOSE, Words, apply_masks, expand, extract, stream
from privinf.federation.messages import Query, Reply
from privinf.federation.rounds import refusal_of
from privinf.federation.secure_sum import MaskedSum, SecureServer, add_words, by_site, check_replies
from privinf.federation.shamir import combine, read_share
from privinf.federation.site_masking import SumTerms
from privinf.federation.site_sharing import SELF, commitment
from privinf.federation.sum_plan import SumPlan, plan_sum
from privinf.mechanisms.site_ops import Reach
from privinf.validation import check_count


def least_threshold(sites: int, colluding: int) -> int:
    """Return the smallest threshold that sites accept: more than half of sites and colluding ones together.

    Examples
    --------
    >>> least_threshold(10, 0), least_threshold(10, 2), least_threshold(3, 0)
    (6, 7, 2)
    """
    return (sites + colluding) // 2 + 1


@doors
class DoubleMaskedServer(SecureServer):
    """Releases sums over those sites that stay to the end, without seeing any site's own.

    Parameters
    ----------
    federation : Federation
    threshold : int, optional
        How many sites must stay; by default the fewest that sites accept.
    **options
        As for `SecureServer`; `missing` and `retries` are for sums of which fewer than `threshold` stay.

    Raises
    ------
    AlignmentError, NotAvailableError
        As for `SecureServer`.

    Notes
    -----
    **Privacy.** See the module's docstring. A site is charged with its first message.

    Examples
    --------
    >>> from privinf.federation import InProcessFederation, Site, SitePolicy, pinned_keys
    >>> from privinf.schema import Design
    >>> design = Design.from_arrays(["x"], bounds=[(-1, 1)], y_bounds=(-2, 2))
    >>> keys, roster = pinned_keys(["east", "north", "south"])
    >>> rows = np.full(500, 0.5), np.full((500, 1), 1.0)
    >>> policy = SitePolicy(secure_sums=True)
    >>> sites = {name: Site(rows, design, policy=policy, key=keys[name], roster=roster) for name in keys}
    >>> server = DoubleMaskedServer(InProcessFederation(sites, drop_outs={"south": [2]}))
    >>> noisy = server.scalar("squared_residuals", {"residual_clip": 1.0}, mu=1.0, label="variance")
    >>> noisy.sites, noisy.rows
    (('east', 'north'), 1000)
    """

    def __init__(self, federation: Federation, *, threshold: int | None = None, **options: Any) -> None:
        self._threshold = None if threshold is None else check_count(threshold, "threshold", least=2)
        super().__init__(federation, **options)

    @property
    def threshold(self) -> int:
        """How many of all sites that are there must stay."""
        return self._needed(len(self._rows))

    def _needed(self, sites: int) -> int:
        least = least_threshold(sites, self._max_colluding)
        needed = least if self._threshold is None else self._threshold
        if not least <= needed <= sites:
            raise ArgumentError(f"threshold={needed} must lie between {least} and {sites}")
        return needed

    def _plan(self, op: str, reach: Reach, level: float, label: str, asked: list[str]) -> SumPlan:
        return plan_sum(
            reach, level, label=label, op=op, sites=len(asked), colluding=self._max_colluding,
            threshold=self._needed(len(asked)), rows=self._most(reach, asked),
            grid_bits=self._grid_bits, secure=self.secure, relation=self._relation,
        )  # fmt: skip

    def _terms(self, plan: SumPlan, asked: list[str]) -> dict[str, Any]:
        return super()._terms(plan, asked) | {"kind": "shared", "threshold": self._needed(len(asked))}

    def _sum(self, query: Query, terms: SumTerms, reach: Reach) -> MaskedSum:
        return double_masked_sum(self._stage, query, terms, reach.size, self._rows)

    def _stage(self, op: str, masking: dict[str, Any], query: Query | None, sites: list[str]) -> list[Reply]:
        """Send the first message, or a later one about the same sum."""
        if query is None:
            query = Query(
                op, {}, 1, self._digest, self._session, self._next(), (), masking,
            )  # fmt: skip
        return self._federation.ask(query, sites)

    def __repr__(self) -> str:
        return f"<DoubleMaskedServer of {len(self._rows)} sites, {self.nobs} rows>"


class _TooFew(Exception):
    """Fewer sites than the threshold have answered."""


@dataclass(slots=True)
class _Round:
    """The messages of one sum, each to those who answered the one before."""

    stage: Any
    terms: SumTerms
    left: list[str]

    def ask(self, op: str, masking: dict[str, Any], query: Query | None = None) -> dict[str, Reply]:
        replies = by_site(self.stage(op, masking, query, self.left))
        for name, reply in replies.items():
            if reply.error:
                raise refusal_of(reply)
            if name not in self.left:
                raise AlignmentError(f"site {name!r} sent an answer that does not fit the question")
        self.left = sorted(replies)
        if len(self.left) < self.terms.threshold:
            raise _TooFew
        return replies


def double_masked_sum(
    stage: Any, query: Query, terms: SumTerms, size: int, rows: Mapping[str, int]
) -> MaskedSum:
    """Make one sum with self masks: four messages.

    Parameters
    ----------
    stage : callable (op, masking, query, sites) -> list of Reply
        Sends a message to sites: `query` itself, or one about it.
    query : Query
        The question, of kind "shared".
    terms : SumTerms
    size : int
        Numbers in the sum.
    rows : mapping
        Number of rows by site.

    Raises
    ------
    PrivinfError
        A site refuses; the message names it.
    AlignmentError
        Answers or shares do not fit.

    Notes
    -----
    **Privacy.** Sees masked words, encrypted shares, and last the secrets that unmask the survivors' sum.
    """
    messages, about = _Round(stage, terms, list(terms.roster)), {"sum": query.digest}
    try:
        shared = messages.ask(query.op, {}, query)
        members = list(messages.left)
        facts = {name: shared[name].facts for name in members}
        sent = messages.ask("mask", about | {"boxes": {name: facts[name]["boxes"] for name in members}})
        check_replies(sent, members, size, dict(rows))
        survivors = list(messages.left)
        agreed = messages.ask("confirm", about | {"survivors": survivors})
        given = {
            "survivors": survivors,
            "dropped": sorted(set(members) - set(survivors)),
            "members": {name: sent[name].facts["tags"] for name in survivors},
            "lists": {name: agreed[name].facts["tags"] for name in messages.left},
        }
        shares = messages.ask("unmask", about | given)
    except _TooFew:
        silent = tuple(name for name in terms.roster if name not in messages.left)
        return MaskedSum(None, tuple(messages.left), silent)
    total = add_words([sent[name].masked for name in survivors])
    total -= masks_left(query.digest, facts, given, shares, terms, size)
    return MaskedSum(total.view(np.int64), tuple(survivors), tuple(given["dropped"]))


def masks_left(
    digest: str,
    facts: Mapping[str, Mapping[str, Any]],
    given: Mapping[str, Any],
    shares: Mapping[str, Reply],
    terms: SumTerms,
    size: int,
) -> Words:
    """Return the masks that do not cancel: survivors' self masks, and those they share with the dropped."""
    own = expand_info(digest, SELF)
    total = np.zeros(size, dtype=np.uint64)
    for name in given["survivors"]:
        seed = recovered(shares, "seeds", name, terms)
        if commitment(seed) != facts[name]["commitment"]:
            raise AlignmentError(f"the shares of the seed of site {name!r} do not fit")
        total += stream(expand(seed, own), size)
    info = expand_info(digest, PURPOSE)
    for name in given["dropped"]:
        key = IdentityKey(recovered(shares, "keys", name, terms))
        if key.public != facts[name]["public"]:
            raise AlignmentError(f"the shares of the key of site {name!r} do not fit")
        pairs = [
            (other, expand(extract(key.shared(facts[other]["public"])), info)) for other in given["survivors"]
        ]
        # What the survivors added for the pairs is what the dropped site would have taken away.
        total -= apply_masks(np.zeros(size, dtype=np.uint64), name, pairs)
    return total


def expand_info(digest: str, purpose: bytes) -> bytes:
    """Return what a key of the sum of this digest is derived from."""
    return purpose + bytes.fromhex(digest)


def recovered(shares: Mapping[str, Reply], kind: str, name: str, terms: SumTerms) -> bytes:
    """Return a site's secret from the first `threshold` shares of it."""
    found: dict[int, int] = {}
    for holder in sorted(shares)[: terms.threshold]:
        try:
            found[terms.roster.index(holder) + 1] = read_share(
                bytes.fromhex(shares[holder].facts[kind][name])
            )
        except (ArgumentError, KeyError, TypeError, ValueError):
            raise AlignmentError(f"site {holder!r} sent a share that is missing or out of range") from None
    try:
        return combine(found)
    except ArgumentError:
        raise AlignmentError(f"the shares of the {kind} of site {name!r} do not fit") from None
