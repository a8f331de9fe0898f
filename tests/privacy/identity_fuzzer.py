"""Attacks on identity: who pretends to be a site or an analyst, or changes what they said, gets nothing.

Three sites with keys, a roster of version 2 and ledgers stand behind sockets, and their policy lists one
analyst. An attack of `KINDS` is tried with bytes from a generator. At the analyst's end an attacker holds the
transport of one site (`Held`): he may answer himself, and change, keep and swap what the site says; the error
must say that site's name. At a site's end he sends questions; each must be refused, and nothing charged.
Whoever only repeats an honest question, bit by bit, gets what was sent before, at no charge. In the end the
honest go on.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from privinf.accounting import Budget
from privinf.accounting.journal import Head
from privinf.errors import PrivinfError
from privinf.federation import (
    IdentityKey,
    Query,
    RemoteSite,
    Reply,
    Roster,
    SecureServer,
    Site,
    SiteDaemon,
    SiteLedger,
    SitePolicy,
    SocketFederation,
    pinned_keys,
)
from privinf.federation.askers import ClientEnvelope
from privinf.federation.envelope import Envelope, SignedHead, SiteEnvelope, signed_text
from privinf.federation.rounds import answers_of
from privinf.schema import Design

NAMES = ("north", "south", "west")
BAD = "south"
ROWS = 40
DESIGN = Design.from_arrays(["a", "b"], bounds=[(-1.0, 1.0)] * 2, y_bounds=(-2.0, 2.0))
ARGS = {"columns": [0, 1], "clip": 1.0, "residual_clip": 1.0}
Fields = Mapping[str, str]


@dataclass
class Found:
    """What came of the attacks: counted by kind, and those that went through."""

    refused: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    through: list[str] = field(default_factory=list)


class Held:
    """The way to a site, in an attacker's hands."""

    def __init__(self, remote: RemoteSite) -> None:
        self.remote = remote
        self.change: Callable[[Query, Fields, Reply, Fields], tuple[Reply, Fields]] | None = None
        self.answer: Callable[[Query, str, Fields], tuple[Reply, Fields]] | None = None

    def exchange(self, query: Query, name: str, fields: Fields) -> tuple[Reply, Fields]:
        """Carry a question, or what the attacker makes of it."""
        if self.answer is not None:
            return self.answer(query, name, fields)
        reply, sealed = self.remote.exchange(query, name, fields)
        return (reply, sealed) if self.change is None else self.change(query, fields, reply, sealed)


class Setting:
    """Sites, an honest analyst, and what an attacker has recorded."""

    def __init__(self, folder: Path) -> None:
        self.stack, self.folder = ExitStack(), folder
        self.keys, self.roster = pinned_keys(NAMES)
        self.forged, self.forged_roster = pinned_keys(NAMES)
        self.analyst, self.other = IdentityKey(), IdentityKey()
        self.rows = np.random.default_rng(3).uniform(-1.0, 1.0, (ROWS, 3))
        listed = [{"name": "ada", "key": self.analyst.verifying}]
        self.policy = SitePolicy(secure_sums=True, analysts=listed)
        self.ledgers: dict[str, SiteLedger] = {}
        (folder / "anchors").mkdir()
        for name in NAMES:
            ledger = SiteLedger(folder / f"{name}.ledger", Budget(mu=1e3), anchor=folder / "anchors" / name)
            self.ledgers[name] = self.stack.enter_context(ledger)
            site = self.site(self.policy, key=self.keys[name], roster=self.roster, ledger=ledger)
            self.stack.enter_context(SiteDaemon(site, name, self.socket(name)).started())
        self.federation = self.connected()
        self.held = Held(RemoteSite(self.socket(BAD), timeout=600.0))
        self.federation._remote[BAD] = self.held  # type: ignore[assignment]
        self.questions = [self.question(mu) for mu in (1.0, 2.0, 3.0)]
        self.recorded: list[tuple[Query, Fields, Reply, Fields]] = []
        self.held.change = self.record
        for query in self.questions[:2]:
            answers_of(self.federation, query, list(NAMES))
        self.held.change = None
        self.told = ClientEnvelope(NAMES, roster=self.roster, key=self.analyst)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def site(self, policy: SitePolicy, **options: Any) -> Site:
        """Return a site with these rows."""
        return Site((self.rows[:, 0], self.rows[:, 1:]), DESIGN, policy=policy, **options)

    def socket(self, name: str) -> str:
        """Return where a site answers."""
        return str(self.folder / f"{name}.sock")

    def connected(self) -> SocketFederation:
        """Return a new honest federation."""
        paths = {name: self.socket(name) for name in NAMES}
        ends: Any = {"roster": self.roster, "key": self.analyst}
        return SocketFederation(paths, timeout=600.0, patience=600.0, **ends)

    def question(self, mu: float) -> Query:
        """Return a question about rows that nobody has asked yet."""
        return SecureServer(self.federation).planned("clipped_score", ARGS, label="s", mu=mu).query

    def record(self, query: Query, fields: Fields, reply: Reply, sealed: Fields) -> tuple[Reply, Fields]:
        """Keep what was said."""
        self.recorded.append((query, fields, reply, sealed))
        return reply, sealed

    def charges(self) -> int:
        """Return how many charges there are."""
        return sum(len(ledger) for ledger in self.ledgers.values())

    def impostor(
        self, key: IdentityKey | None, roster: Roster | None
    ) -> Callable[[Query, str, Fields], tuple[Reply, Fields]]:
        """Return the answers of a site of the attacker's, which knows the rows."""
        site = self.site(replace(self.policy, analysts=()), key=key, roster=roster)
        end = SiteEnvelope(site, BAD)
        return lambda query, name, fields: end.answer(Envelope.from_fields(fields), query)


Rng = np.random.Generator


def _digit(text: str, rng: Rng) -> str:
    """Return a text with one of its hexadecimal digits changed."""
    places = [at for at, letter in enumerate(text) if letter in "0123456789abcdef"]
    at = int(rng.choice(places))
    others = [letter for letter in "0123456789abcdef" if letter != text[at]]
    return text[:at] + str(rng.choice(others)) + text[at + 1 :]


# ---- at the analyst: each makes the attacker's transport, and asks


def without_key(at: Setting, rng: Rng) -> None:
    """A site of the attacker's, without a key."""
    at.held.answer = at.impostor(None, None)


def with_another_key(at: Setting, rng: Rng) -> None:
    """A site of the attacker's, with keys and a roster of his own."""
    at.held.answer = at.impostor(at.forged[BAD], at.forged_roster)


def with_anothers_key(at: Setting, rng: Rng) -> None:
    """One site speaks for another: its key is good, and not this one's."""
    at.held.answer = at.impostor(at.keys["west"], at.roster)


def signing_by_himself(at: Setting, rng: Rng) -> None:
    """All of a good reply, signed by a key of the attacker's."""

    def change(query: Query, fields: Fields, reply: Reply, sealed: Fields) -> tuple[Reply, Fields]:
        return reply, {**sealed, "signature": at.forged[BAD].sign(signed_text("reply", {"site": BAD}))}

    at.held.change = change


def changed_reply(at: Setting, rng: Rng) -> None:
    """One field of the reply is another one."""

    def change(query: Query, fields: Fields, reply: Reply, sealed: Fields) -> tuple[Reply, Fields]:
        words, one = reply.masked.copy(), int(rng.integers(max(reply.masked.size, 1)))
        if words.size:
            words[one] ^= np.uint64(1) << np.uint64(rng.integers(64))
        ways: list[dict[str, Any]] = [
            {"rows": reply.rows + int(rng.integers(1, 9))},
            {"masked": words},
            {"masked": words[:-1]},
            {"masked": np.append(words, words[:1])},
            {"facts": {"roster": None}},
            {"site": "north"},
            {"error": "BudgetExceededError: no"},
            {"sums": np.array([float(rng.normal())])},
        ]
        return replace(reply, **ways[int(rng.integers(len(ways)))]), sealed

    at.held.change = change


def changed_envelope(at: Setting, rng: Rng) -> None:
    """One text of the reply's envelope is another one, absent, or one more."""

    def change(query: Query, fields: Fields, reply: Reply, sealed: Fields) -> tuple[Reply, Fields]:
        name = str(rng.choice(sorted(sealed)))
        less = {other: text for other, text in sealed.items() if other != name}
        ways = [
            less,
            {**sealed, name: _digit(sealed[name], rng)},
            {**sealed, "more": "x"},
            {**sealed, name: ""},
        ]
        return reply, ways[int(rng.integers(len(ways)))]

    at.held.change = change


def stripped(at: Setting, rng: Rng) -> None:
    """The envelope is taken off the reply, or off the question before the site sees it."""

    def answer(query: Query, name: str, fields: Fields) -> tuple[Reply, Fields]:
        taken = {} if rng.random() < 0.5 else fields
        reply, sealed = at.held.remote.exchange(query, name, taken)
        return reply, {} if taken else sealed

    at.held.answer = answer


def an_old_roster(at: Setting, rng: Rng) -> None:
    """The site was talked into a roster of version 1, and signs nothing."""
    at.held.answer = at.impostor(at.keys[BAD], Roster(dict(at.roster.keys)))


def replayed(at: Setting, rng: Rng) -> None:
    """A reply to another question, or to this one when it was asked before."""
    _, _, reply, sealed = at.recorded[int(rng.integers(len(at.recorded)))]
    at.held.answer = lambda query, name, fields: (reply, sealed)


def reordered(at: Setting, rng: Rng) -> None:
    """The reply of another site."""

    def answer(query: Query, name: str, fields: Fields) -> tuple[Reply, Fields]:
        other = str(rng.choice(["north", "west"]))
        return RemoteSite(at.socket(other), timeout=600.0).exchange(
            query, other, at.told.envelope_for(query, other).fields
        )

    at.held.answer = answer


def stolen_head(at: Setting, rng: Rng) -> None:
    """A true head of an earlier time stands in the present reply."""

    def change(query: Query, fields: Fields, reply: Reply, sealed: Fields) -> tuple[Reply, Fields]:
        return reply, {**sealed, f"head {BAD}": at.recorded[0][3][f"head {BAD}"]}

    at.held.change = change


AT_ANALYST = (
    without_key,
    with_another_key,
    with_anothers_key,
    signing_by_himself,
    changed_reply,
    changed_envelope,
    stripped,
    an_old_roster,
    replayed,
    reordered,
    stolen_head,
)


# ---- at a site: each returns a question and its envelope


def unsigned(at: Setting, rng: Rng) -> tuple[Query, Fields]:
    """No envelope, or one of an asker without a key."""
    query = at.questions[2]
    return query, ClientEnvelope(NAMES, roster=at.roster).envelope_for(
        query, BAD
    ).fields if rng.random() < 0.5 else {}


def by_another(at: Setting, rng: Rng) -> tuple[Query, Fields]:
    """Signed by a key that the policy does not list."""
    query = at.questions[2]
    return query, ClientEnvelope(NAMES, key=at.other).envelope_for(query, BAD).fields


def in_his_name(at: Setting, rng: Rng) -> tuple[Query, Fields]:
    """The analyst's key, and a signature by another, or of nothing."""
    query = at.questions[2]
    fields = ClientEnvelope(NAMES, key=at.other).envelope_for(query, BAD).fields
    signature = str(rng.choice([fields["signature"], rng.bytes(64).hex(), ""]))
    return query, {**fields, "analyst": at.analyst.verifying, "signature": signature}


def changed_question(at: Setting, rng: Rng) -> tuple[Query, Fields]:
    """One text of a good envelope is another one."""
    query = at.questions[2]
    fields = at.told.envelope_for(query, BAD).fields
    name = str(rng.choice(["site", "digest", "session", "sequence", "nonce", "analyst", "signature"]))
    new = {"site": "north", "sequence": str(query.sequence + 1)}.get(name) or _digit(fields[name], rng)
    return query, {**fields, name: new}


def another_body(at: Setting, rng: Rng) -> tuple[Query, Fields]:
    """A good envelope, and another question."""
    query = at.questions[2]
    fields = at.told.envelope_for(query, BAD).fields
    ways: list[dict[str, Any]] = [
        {"args": {**query.args, "clip": float(rng.uniform(1.5, 9.0))}},
        {"session": "another"},
        {"sequence": query.sequence + 1},
        {"charges": ()},
        {"op": "column_sums"},
        {"masking": {}},
    ]
    return replace(query, **ways[int(rng.integers(len(ways)))]), fields


def for_another_site(at: Setting, rng: Rng) -> tuple[Query, Fields]:
    """What the analyst signed for one site goes to another, or what went to nobody by name."""
    query = at.questions[2]
    return query, at.told.envelope_for(query, str(rng.choice(["north", "west", ""]))).fields


def of_an_earlier_question(at: Setting, rng: Rng) -> tuple[Query, Fields]:
    """An envelope that was on its way before, with another question."""
    one = at.recorded[int(rng.integers(len(at.recorded)))]
    return at.questions[2], one[1]


def invented_heads(at: Setting, rng: Rng) -> tuple[Query, Fields]:
    """The analyst himself tells a head, of this site or of a peer, that it has not signed."""
    query, name = at.questions[2], str(rng.choice(NAMES))
    head = Head(int(rng.integers(100, 10**9)), rng.bytes(32).hex())
    signer = at.keys["west"] if name != "west" and rng.random() < 0.5 else at.forged[name]
    envelope = replace(
        at.told.envelope_for(query, BAD), heads={name: SignedHead.by(signer, name, head)}, signature=""
    )
    return query, replace(envelope, signature=at.analyst.sign(envelope.signed)).fields


AT_SITE = (
    unsigned,
    by_another,
    in_his_name,
    changed_question,
    another_body,
    for_another_site,
    of_an_earlier_question,
    invented_heads,
)
KINDS = (*(one.__name__ for one in (*AT_ANALYST, *AT_SITE)), "repeated")


def _against_analyst(at: Setting, attack: Any, rng: Rng, found: Found) -> None:
    query = at.questions[int(rng.integers(2))]  # charged already
    at.held.change = at.held.answer = None
    attack(at, rng)
    try:
        answers_of(at.federation, query, list(NAMES))
    except PrivinfError as problem:
        if f"site {BAD!r}" in str(problem):
            found.refused[attack.__name__] += 1
            return
        found.through.append(f"{attack.__name__}: nobody named: {problem}")
    except Exception as problem:
        found.through.append(f"{attack.__name__}: {problem!r}")
    else:
        found.through.append(f"{attack.__name__}: believed")


def _against_site(at: Setting, attack: Any, rng: Rng, found: Found) -> None:
    query, fields = attack(at, rng)
    reply, _ = RemoteSite(at.socket(BAD), timeout=600.0).exchange(query, BAD, fields)
    if reply.error:
        found.refused[attack.__name__] += 1
    else:
        found.through.append(f"{attack.__name__}: {json.dumps(dict(fields))[:200]}")


def _repeat(at: Setting, rng: Rng, found: Found) -> None:
    query, fields, before, _ = at.recorded[int(rng.integers(len(at.recorded)))]
    reply, _ = RemoteSite(at.socket(BAD), timeout=600.0).exchange(query, BAD, fields)
    same = reply.pack()[0] == before.pack()[0] and np.array_equal(reply.masked, before.masked)
    if same:
        found.repeated += 1
    else:
        found.through.append(f"repeated: another answer: {reply.error}")


def attack(folder: Path, count: int, seed: int) -> Found:
    """Try so many attacks, the kinds in turn."""
    found, rng = Found(), np.random.default_rng(seed)
    with Setting(folder) as at:
        before = at.charges()
        for number in range(count):
            kind = number % len(KINDS)
            if kind < len(AT_ANALYST):
                _against_analyst(at, AT_ANALYST[kind], rng, found)
            elif kind < len(KINDS) - 1:
                _against_site(at, AT_SITE[kind - len(AT_ANALYST)], rng, found)
            else:
                _repeat(at, rng, found)
        if at.charges() != before:
            found.through.append(f"{at.charges() - before} charges")
        at.held.change = at.held.answer = None
        try:
            answers_of(at.federation, at.questions[2], list(NAMES))
        except PrivinfError as problem:
            found.through.append(f"the honest are refused: {problem}")
    return found
