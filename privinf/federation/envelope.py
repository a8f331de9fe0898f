"""Envelopes of queries and replies: fields next to the message that authenticate each end to the other.

A query carries the digest that it must have, a nonce, the heads of ledgers that the client remembers, and
the analyst's signature of all that. A reply carries the site's signature of the query's digest and
nonce, of the reply's own digest, and of heads: its own, signed by itself, and later ones of its peers. All
of it is short texts by name, which any transport carries with a message. Signatures are Ed25519, of
canonical JSON after the name of its kind, so that no signature can serve for another kind.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from privinf.accounting import Budget
from privinf.accounting.journal import Head
from privinf.accounting.ledger import check_budget
from privinf.errors import ArgumentError, NotAvailableError, PrivinfError, StorageError
from privinf.federation.messages import Query, Reply, message_digest
from privinf.federation.secure.keys import IdentityKey, Roster, check_name, check_verifying, signed_by
from privinf.federation.secure.masking import PairKeys
from privinf.wire import Keys, Requests

log = logging.getLogger(__name__)
Fields = Mapping[str, str]

HEAD_FIELD = "head "
# Heads of peers in one envelope: with more sites each query carries those of the next sites in the alphabet.
MOST_HEADS = 200
# A ledger's head: number of lines, tag and the site's signature.
HEAD_TEXT = re.compile("([1-9][0-9]{0,15}) ([0-9a-f]{64}) ([0-9a-f]{128})")
ENVELOPE_FIELDS = {
    "site": "(?s:.*)",
    "digest": "[0-9a-f]{64}",
    "session": "(?s:.*)",
    "sequence": "[0-9]{1,18}",
    "nonce": "[0-9a-f]{32}",
    "analyst": "(?:[0-9a-f]{64})?",
    "signature": "(?:[0-9a-f]{128})?",
}
WENT_BACK = (
    "the site's ledger lacks entries that it had before, so an older copy or another "
    "ledger has replaced it. The person who runs the site must restore the latest copy. If that copy is "
    "lost, the site needs a new key in a new roster (list of the sites' public keys)"
)
NOT_LISTED = (
    "the site answers only queries that are signed by an analyst in its policy, and this "
    "query is not; pass the secret key of such an analyst as key= to the federation"
)


def signed_text(kind: str, content: object) -> bytes:
    """Return the signed text: the name of the kind, and canonical JSON."""
    return Keys.SIGNED.format(
        what=kind, content=json.dumps(content, sort_keys=True, separators=(",", ":"))
    ).encode()


@dataclass(frozen=True, slots=True)
class Analyst:
    """An analyst who may query a site: name, public key of the signatures, and total budget.

    ArgumentError if the name, the key (Ed25519) or the budget (or a mapping of its words) is none.
    """

    name: str
    key: str
    budget: Budget | None = None

    def __post_init__(self) -> None:
        check_name(self.name, "an analyst's name")
        check_verifying(self.key, f"the key of analyst {self.name!r}")
        if isinstance(self.budget, Mapping) and set(self.budget) <= {"epsilon", "delta", "mu", "rho"}:
            # A stored limit without a delta is one in pure epsilon.
            limits = {"delta": 0, **self.budget} if "epsilon" in self.budget else self.budget
            object.__setattr__(self, "budget", Budget(**limits))
        check_budget(self.budget)

    @classmethod
    def listed(cls, entries: object) -> tuple[Analyst, ...]:
        """Return a list of analysts, each given as one or as a mapping of name, key and perhaps budget."""
        analysts: list[Analyst] = []
        for entry in entries if isinstance(entries, (list, tuple)) else [entries]:
            if isinstance(entry, Mapping) and {"name", "key"} <= set(entry) <= {"name", "key", "budget"}:
                entry = cls(**entry)
            if not isinstance(entry, Analyst):
                raise ArgumentError(
                    'analysts must be a list of mappings, one for each analyst, with the keys "name", '
                    '"key" and, optionally, "budget"'
                )
            analysts.append(entry)
        if len({analyst.name for analyst in analysts}) < len(analysts) or len(
            {analyst.key for analyst in analysts}
        ) < len(analysts):
            raise ArgumentError(
                "the list of analysts contains the same name or key twice: list each analyst once"
            )
        return tuple(analysts)


@dataclass(frozen=True, slots=True)
class SignedHead:
    """State of a site's ledger, signed by the site: a proof that its holder can show to anyone."""

    head: Head
    signature: str

    @classmethod
    def by(cls, key: IdentityKey, site: str, head: Head) -> SignedHead:
        """Return the head of a site, signed."""
        return cls(head, key.sign(_head_text(site, head)))

    @classmethod
    def from_text(cls, text: object) -> SignedHead:
        """Read back what `text` is; StorageError if it is not that."""
        match = HEAD_TEXT.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise StorageError(
                "the message has an invalid description of a site's ledger; install the same version "
                "of privinf at all sites"
            )
        return cls(Head(int(match[1]), match[2]), match[3])

    @property
    def text(self) -> str:
        """Count, tag and signature in one line."""
        return f"{self.head.count} {self.head.tag} {self.signature}"

    def belongs_to(self, site: str, verifying: str) -> bool:
        """Return whether a site of this key signed it."""
        return signed_by(verifying, self.signature, _head_text(site, self.head))

    def after(self, other: SignedHead | None) -> bool:
        """Return whether it is later than another one."""
        return other is None or self.head.count > other.head.count

    def contradicts(self, other: SignedHead | None) -> bool:
        """Return whether no single ledger can have had both heads: one count, two tags."""
        return other is not None and self.head.count == other.head.count and self.head.tag != other.head.tag


def _head_text(site: str, head: Head) -> bytes:
    return signed_text("head", [site, head.count, head.tag])


def heads_in(fields: Fields) -> dict[str, SignedHead]:
    """Return the heads of an envelope by site; StorageError if one is none."""
    heads = {name: SignedHead.from_text(text) for name, text in fields.items() if name.startswith(HEAD_FIELD)}
    return {name.removeprefix(HEAD_FIELD): head for name, head in heads.items()}


def head_fields(heads: Mapping[str, SignedHead]) -> dict[str, str]:
    """Return heads as further texts of a message."""
    return {HEAD_FIELD + name: head.text for name, head in heads.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """The envelope of a query.

    Attributes
    ----------
    site : str
        Name of the site; empty where "describe" finds a site whose address is not known yet.
    digest, session, sequence
        Digest of the query.
    nonce : str
        32 hexadecimal digits, new for every asking; empty if there is no envelope.
    analyst, signature : str
        The analyst's public key, and the signature by it; empty without one.
    heads : mapping of str to SignedHead
        Head that the client remembers.
    """

    site: str = ""
    digest: str = ""
    session: str = ""
    sequence: int = 0
    nonce: str = ""
    analyst: str = ""
    signature: str = ""
    heads: Mapping[str, SignedHead] = field(default_factory=dict)

    @classmethod
    def from_fields(cls, fields: Fields) -> Envelope:
        """Return the envelope of `fields`, an empty one without fields; StorageError if they are invalid."""
        if not fields:
            return cls()
        plain = {name: text for name, text in fields.items() if not name.startswith(HEAD_FIELD)}
        if plain.keys() != ENVELOPE_FIELDS.keys():
            raise StorageError(
                "the query was sent by another version of privinf, or its fields for signatures are "
                "missing; install the same version of privinf at the server and all sites"
            )
        for name, shape in ENVELOPE_FIELDS.items():
            if not isinstance(plain[name], str) or not re.fullmatch(shape, plain[name]):
                raise StorageError(
                    f"the field {name!r} of the message is missing or invalid, so its signature cannot be "
                    "checked; install the same version of privinf at the server and all sites"
                )
        heads = heads_in(fields)
        if len(heads) > MOST_HEADS + 1:
            raise StorageError(
                f"the message describes the ledgers of more than {MOST_HEADS} sites, the largest number "
                "allowed; use fewer sites in one federation"
            )
        return cls(**plain | {"sequence": int(plain["sequence"])}, heads=heads)  # type: ignore[arg-type]

    @property
    def fields(self) -> dict[str, str]:
        """The envelope as further texts of a message, none if there is no envelope."""
        if not self.nonce:
            return {}
        plain = {name: str(getattr(self, name)) for name in ENVELOPE_FIELDS}
        return plain | head_fields(self.heads)

    @property
    def signed(self) -> bytes:
        """Text that the analyst signs: all fields but the signature."""
        return signed_text("question", {k: v for k, v in self.fields.items() if k != "signature"})

    def fits(self, query: Query) -> bool:
        """Return whether it is the envelope of this query."""
        is_same = (self.digest, self.session, self.sequence) == (query.digest, query.session, query.sequence)
        return is_same and (bool(self.site) or query.op == Requests.DESCRIBE)


def answered_text(envelope: Envelope, site: str, reply: Reply, heads: Fields) -> bytes:
    """Return the text that a site signs for its reply to a query."""
    content = {
        "site": site,
        "question": envelope.digest,
        "nonce": envelope.nonce,
        "reply": message_digest(*reply.pack()),
        "heads": dict(heads),
    }
    return signed_text("reply", content)


class ReplayMemory(Protocol):
    """Interface of a site's journal for envelopes."""

    @property
    def head(self) -> Head | None:
        """Head of the ledger, None if it is in no file."""
        ...

    @property
    def peers(self) -> Mapping[str, SignedHead]:
        """Heads of other sites that it received."""
        ...

    def knows(self, head: Head) -> bool:
        """Return whether this ledger has, or had, a given last line."""
        ...

    def witness(self, heads: Mapping[str, SignedHead]) -> None:
        """Keep heads of other sites."""
        ...


class ResponsePolicy(Protocol):
    """Interface of a site for envelopes."""

    @property
    def journal(self) -> ReplayMemory:
        """Its memory."""
        ...

    @property
    def keys(self) -> PairKeys | None:
        """Its key and roster."""
        ...

    @property
    def analysts(self) -> tuple[Analyst, ...]:
        """Analysts who may query the site; if none are listed, anyone who can connect may query."""
        ...

    def handle(self, query: Query, name: str, analyst: str = "") -> Reply:
        """Answer a query of this analyst, by name."""
        ...

    def refused(self, problem: PrivinfError, name: str) -> Reply:
        """Return the reply that states a problem."""
        ...


class SiteEnvelope:
    """A site's end of a transport: checks envelopes of queries, and signs replies.

    Parameters
    ----------
    site : Site
    name : str

    Notes
    -----
    **Privacy.** Adds nothing to what the site answers. It signs where the site has a key and a roster with
    verifying keys that lists it under this name, and the query has an envelope.
    """

    def __init__(self, site: ResponsePolicy, name: str) -> None:
        self._site = site
        self._name = name
        self._signed_head: SignedHead | None = None
        keys = site.keys
        self._roster: Roster | None = None
        self._key: IdentityKey | None = None
        if keys is not None and keys.roster.signed and keys.owns(name):
            self._key = keys.key
            self._roster = keys.roster

    def admitted(self, envelope: Envelope) -> str:
        """Return the name of the analyst who signed an envelope, empty if the policy lists none.

        Raises
        ------
        NotAvailableError
            The policy lists analysts, and none of them signed it, or for another site.
        ArgumentError
            The signature does not match the message.
        """
        analysts = self._site.analysts
        if envelope.signature and not signed_by(envelope.analyst, envelope.signature, envelope.signed):
            raise ArgumentError(
                "the query's signature does not match the analyst's public key that the query states; "
                "sign the query with the secret key that belongs to this public key"
            )
        if envelope.site not in ("", self._name):
            raise ArgumentError(
                f"the query is addressed to another site, not to {self._name!r}; check which socket or "
                "address the federation has for each site"
            )
        if not analysts:
            return ""
        named = [
            analyst.name for analyst in analysts if envelope.signature and analyst.key == envelope.analyst
        ]
        if not named:
            raise NotAvailableError(NOT_LISTED)
        return named[0]

    def answer(self, envelope: Envelope, query: Query) -> tuple[Reply, dict[str, str]]:
        """Return the reply to a query and its envelope; refuse a query that does not match its own."""
        try:
            analyst = self.admitted(envelope)
            if envelope.nonce and not envelope.fits(query):
                raise ArgumentError(
                    "the query does not match the checksum that was sent with it, so one of them was "
                    "changed on the way; send the query again"
                )
            self._take(envelope.heads)
        except PrivinfError as problem:
            reply = self._site.refused(problem, self._name)
        else:
            by = {"analyst": analyst} if analyst else {}
            reply = self._site.handle(query, self._name, **by)
        return reply, self.sealed(envelope, reply)

    def sealed(self, envelope: Envelope, reply: Reply) -> dict[str, str]:
        """Return the envelope of a reply; empty where the query had none, or the site has no key."""
        if self._key is None or not envelope.nonce:
            return {}
        heads: dict[str, SignedHead] = {}
        peer_heads = envelope.heads
        for name, head in self._site.journal.peers.items():
            news = name != self._name and (
                head.after(peer_heads.get(name)) or head.contradicts(peer_heads.get(name))
            )
            if news and len(heads) < MOST_HEADS:
                heads[name] = head
        if (now := self._site.journal.head) is not None:
            if self._signed_head is None or self._signed_head.head != now:
                self._signed_head = SignedHead.by(self._key, self._name, now)
            heads[self._name] = self._signed_head
        texts = head_fields(heads)
        return {**texts, "signature": self._key.sign(answered_text(envelope, self._name, reply, texts))}

    def _take(self, heads: Mapping[str, SignedHead]) -> None:
        """Compare the received head of this site's ledger with its chain, and keep the heads of peers."""
        if self._roster is None:
            return
        news = {}
        peers = self._site.journal.peers
        for name, head in heads.items():
            if name not in self._roster.verifying:
                raise ArgumentError(
                    f"the query describes the ledger of site {name!r}, which is not in this site's list of "
                    "public keys (roster); use the same roster at all sites"
                )
            if name != self._name and not head.after(peers.get(name)):
                continue
            if not head.belongs_to(name, self._roster.verifying[name]):
                raise ArgumentError(
                    f"the query describes the ledger of site {name!r}, but the signature of this description "
                    f"does not match the key of site {name!r} in this site's list of public keys (roster); "
                    "use the current roster at all sites"
                )
            if name != self._name:
                news[name] = head
            elif not self._site.journal.knows(head.head):
                log.warning("the ledger of site %r lacks entries that it had before", self._name)
                raise StorageError(WENT_BACK)
        if news:
            self._site.journal.witness(news)
