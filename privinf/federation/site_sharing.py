r"""A site's part in a sum that survives drop-outs: self masks and keys whose secrets are shared out.

Four messages, all for one question (its SHA-256 stands in every key below).

1. *share*: the site draws a key pair and a seed for this sum only, splits both secrets (`shamir`) and
   encrypts to every other site its two shares and the public key, under a key of the two pinned keys.
2. *mask*: it gets what the members M sent (at least `threshold` of the roster), adds noise, a mask for every
   other member and a self mask from its seed, and sends that, with a tag for every member on M.
3. *confirm*: it hears which members' words arrived (the survivors) and tags that list for every member. It
   does so for one list only.
4. *unmask*: shown the tags of all survivors on the same M, and of at least `threshold` of them on the same
   list, it gives its shares of the survivors' seeds and of the dropped members' keys; never both of one site.

With 2 threshold > sites + colluding, two lists cannot both find enough tags: some honest site would have
tagged both. So at most one list is unmasked, all its survivors used the same members, and what comes out is
the sum over the survivors, of whom at least threshold - max_colluding are honest: their noise is counted.
A site that restarts in between has dropped out.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from privinf.errors import ArgumentError, NotAvailableError
from privinf.federation.keys import KEY_BYTES, IdentityKey, primitives
from privinf.federation.masking import PURPOSE, PairKeys, Words, apply_masks, expand, extract, stream
from privinf.federation.messages import Query, Reply
from privinf.federation.shamir import SHARE_BYTES, read_share, split, write_share
from privinf.federation.site_ledger import Journal
from privinf.federation.site_masking import SumTerms
from privinf.typing import Floats

Facts: TypeAlias = dict[str, Any]
Answer: TypeAlias = Callable[[], tuple[Words, Facts]]

NO_WORDS: Words = np.empty(0, dtype=np.uint64)
STAGES = ("mask", "confirm", "unmask")
BOX, SELF, TAG = b"privinf shares 1:", b"privinf self mask 1:", b"privinf tags 1:"


@dataclass(slots=True, repr=False)
class OpenSum:
    """A sum under way at one site."""

    name: str
    digest: str
    terms: SumTerms
    pairs: PairKeys
    words: Callable[[], Words]
    key: IdentityKey = field(default_factory=IdentityKey)
    seed: bytes = field(default_factory=lambda: secrets.token_bytes(KEY_BYTES))
    shares: dict[str, tuple[int, int]] = field(default_factory=dict)
    publics: dict[str, str] = field(default_factory=dict)
    members: tuple[str, ...] = ()
    survivors: tuple[str, ...] = ()
    done: list[str] = field(default_factory=list)

    def info(self, purpose: bytes, sender: str = "") -> bytes:
        """Return what a key of this sum is derived from."""
        return purpose + bytes.fromhex(self.digest) + sender.encode()

    def __reduce__(self) -> Any:
        raise TypeError("a sum under way holds secrets: it is not pickled")


class Sharing:
    """The sums under way at a site.

    Parameters
    ----------
    journal : Journal

    Notes
    -----
    **Privacy.** Seeds, keys and shares of sums under way stay in memory: nobody finds them on a disk later.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._open: dict[str, OpenSum] = {}

    def share(
        self, name: str, digest: str, terms: SumTerms, pairs: PairKeys, words: Callable[[], Words]
    ) -> Facts:
        """Open a sum that has been charged, and return the facts of the first message."""
        opened = OpenSum(name, digest, terms, pairs, words)
        self._open[digest] = opened
        return share_out(opened)

    def answer(self, query: Query, name: str, size: int, nothing: Floats) -> Reply:
        """Answer a later message about a sum.

        Raises
        ------
        NotAvailableError
            The sum is not under way here, or the message comes out of turn.
        ArgumentError
            Its content does not pass a check; nothing is sent.
        """
        digest = query.digest
        if (sent := self._journal.recall(digest)) is not None:
            return sent
        opened = self._open.get(str(query.masking.get("sum")))
        if opened is None or opened.name != name:
            raise NotAvailableError("no such sum is under way here: the site was not asked, or has restarted")
        if len(opened.done) != STAGES.index(query.op):
            raise NotAvailableError(f"the message {query.op!r} comes out of turn")
        # Every check comes before the question has had its turn; only "mask" reads rows, after it.
        respond = READY[query.op](opened, query.masking)
        self._journal.begin(query, digest, ())
        words, facts = respond()
        reply = Reply(name, nothing, size, facts, masked=words)
        opened.done.append(query.op)
        self._journal.keep(digest, reply)
        if query.op == "unmask":
            del self._open[opened.digest]
        return reply

    def __reduce__(self) -> Any:
        raise TypeError("sums under way hold secrets: they are not pickled")


def share_out(opened: OpenSum) -> Facts:
    """Return the public key, a commitment to the seed, and a box of shares for every other site."""
    roster, threshold = opened.terms.roster, opened.terms.threshold
    keys = split(opened.key.secret_bytes(), threshold, len(roster))
    seeds = split(opened.seed, threshold, len(roster))
    boxes = {}
    for other, key, seed in zip(roster, keys, seeds, strict=True):
        if other == opened.name:
            opened.shares[other] = key, seed
            opened.publics[other] = opened.key.public
            continue
        content = bytes.fromhex(opened.key.public) + write_share(key) + write_share(seed)
        boxes[other] = base64.b64encode(
            _cipher(opened, opened.name, other).encrypt(bytes(12), content, b"")
        ).decode()
    return {"public": opened.key.public, "commitment": commitment(opened.seed), "boxes": boxes}


def commitment(seed: bytes) -> str:
    """Return what tells a right seed from a wrong one."""
    return hashlib.sha256(seed).hexdigest()


def _cipher(opened: OpenSum, sender: str, receiver: str) -> Any:
    """Return the authenticated cipher of one sender's one box for one receiver."""
    other = receiver if sender == opened.name else sender
    aead = primitives("hazmat.primitives.ciphers.aead")
    return aead.ChaCha20Poly1305(opened.pairs.pair(other, opened.info(BOX, sender)))


def masked_input(opened: OpenSum, given: Mapping[str, Any]) -> Answer:
    """Open the members' boxes, and return what makes the noisy words under all masks, and tags on members."""
    boxes = given.get("boxes")
    if not isinstance(boxes, Mapping) or opened.name not in boxes:
        raise ArgumentError("the message 'mask' must bring the members' boxes, the site's own among them")
    members = _names(opened, sorted(boxes))
    for sender in members:
        if sender != opened.name:
            open_box(opened, sender, boxes[sender])

    def respond() -> tuple[Words, Facts]:
        opened.members = members
        words = apply_masks(opened.words(), opened.name, pair_masks(opened.key, opened.name, members, opened))
        words += stream(expand(opened.seed, opened.info(SELF)), words.size)
        return words, {"tags": tags(opened, list(members))}

    return respond


def pair_masks(
    key: IdentityKey, own: str, members: tuple[str, ...], opened: OpenSum
) -> list[tuple[str, bytes]]:
    """Return the mask keys that a site shares with the other members."""
    info = opened.info(PURPOSE)
    return [
        (other, expand(extract(key.shared(opened.publics[other])), info)) for other in members if other != own
    ]


def open_box(opened: OpenSum, sender: str, boxes: Any) -> None:
    """Take a sender's public key and shares out of his box.

    Raises
    ------
    ArgumentError
        The box was made or changed by somebody else, or a share in it is out of range.
    """
    try:
        content = _cipher(opened, sender, opened.name).decrypt(
            bytes(12), base64.b64decode(boxes[opened.name], validate=True), b""
        )
    except (KeyError, TypeError, ValueError, primitives("exceptions").InvalidTag):
        raise ArgumentError(f"the shares from site {sender!r} are missing or were tampered with") from None
    if len(content) != KEY_BYTES + 2 * SHARE_BYTES:
        raise ArgumentError(f"the shares from site {sender!r} are out of range")
    opened.publics[sender] = content[:KEY_BYTES].hex()
    middle = KEY_BYTES + SHARE_BYTES
    opened.shares[sender] = read_share(content[KEY_BYTES:middle]), read_share(content[middle:])


def confirmed(opened: OpenSum, given: Mapping[str, Any]) -> Answer:
    """Return what makes tags on the one list of survivors that the site agrees to."""
    survivors = _names(opened, given.get("survivors"))
    if not set(survivors) <= set(opened.members) or opened.name not in survivors:
        raise ArgumentError("survivors must be members of the sum, the site itself among them")

    def respond() -> tuple[Words, Facts]:
        opened.survivors = survivors
        return NO_WORDS, {"tags": tags(opened, [list(opened.members), list(survivors)])}

    return respond


def unmasked(opened: OpenSum, given: Mapping[str, Any]) -> Answer:
    """Return what gives shares of the survivors' seeds and of the dropped members' keys.

    Raises
    ------
    ArgumentError
        The survivors and the dropped do not part the members, or tags are missing or wrong.
    """
    survivors, dropped = given.get("survivors"), given.get("dropped")
    if survivors != list(opened.survivors):
        raise ArgumentError("survivors are others than the site has confirmed")
    if dropped != sorted(set(opened.members) - set(opened.survivors)):
        raise ArgumentError("survivors and dropped must be disjoint and together be all members")
    for sender in opened.survivors:
        if not _tagged(opened, sender, given.get("members"), list(opened.members)):
            raise ArgumentError(f"site {sender!r} has not tagged the same members")
    agreed = [list(opened.members), list(opened.survivors)]
    agreeing = sum(_tagged(opened, sender, given.get("lists"), agreed) for sender in opened.survivors)
    if agreeing < opened.terms.threshold:
        raise ArgumentError(f"only {agreeing} sites have tagged this list of survivors")
    facts = {
        "keys": {name: write_share(opened.shares[name][0]).hex() for name in dropped},
        "seeds": {name: write_share(opened.shares[name][1]).hex() for name in survivors},
    }
    return lambda: (NO_WORDS, facts)


def tags(opened: OpenSum, content: list[Any]) -> dict[str, str]:
    """Return, for every other member, a proof that this site has said `content`."""
    return {
        other: _tag(opened, other, opened.name, content) for other in opened.members if other != opened.name
    }


def _tag(opened: OpenSum, other: str, sender: str, content: list[Any]) -> str:
    key = opened.pairs.pair(other, opened.info(TAG, sender))
    return hmac.digest(key, json.dumps(content).encode(), "sha256").hex()


def _tagged(opened: OpenSum, sender: str, given: Any, content: list[Any]) -> bool:
    """Return whether a sender's tag on `content`, for this site, is there and right."""
    if sender == opened.name:
        return True
    try:
        found = given[sender][opened.name]
    except (KeyError, TypeError):
        return False
    return isinstance(found, str) and hmac.compare_digest(
        found.encode(errors="replace"), _tag(opened, sender, sender, content).encode()
    )


def _names(opened: OpenSum, given: Any) -> tuple[str, ...]:
    """Return a sorted list of sites on the roster, at least as many as the threshold."""
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise ArgumentError("a list of sites must hold their names")
    if given != sorted(set(given)) or not set(given) <= set(opened.terms.roster):
        raise ArgumentError("a list of sites must be sorted and name sites on the roster once")
    if len(given) < opened.terms.threshold:
        raise ArgumentError(f"{len(given)} sites are fewer than the threshold of {opened.terms.threshold}")
    return tuple(given)


READY: dict[str, Callable[[OpenSum, Mapping[str, Any]], Answer]] = {
    "mask": masked_input,
    "confirm": confirmed,
    "unmask": unmasked,
}
