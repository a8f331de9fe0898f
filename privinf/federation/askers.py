"""The client end of a transport: signs queries, verifies replies, and remembers heads of ledgers."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from filelock import FileLock

from privinf.errors import AlignmentError, ArgumentError, PrivinfError, StorageError
from privinf.federation.envelope import MOST_HEADS, Envelope, Fields, SignedHead, answered_text, heads_in
from privinf.federation.messages import Query, Reply
from privinf.federation.secure.keys import IdentityKey, Roster, signed_by
from privinf.secret_files import check_folder
from privinf.storage.checksummed import (
    checksummed_json,
    parse_json,
    read_text,
    reads,
    verified_record,
    written_whole,
)
from privinf.validation import check_path
from privinf.wire import Formats

FORMAT = Formats.HEADS
# Seconds to wait for another process that writes the same memory.
LOCKED = 60.0
BACK = (
    "the site's ledger lacks entries that it had before, or has other entries in their "
    "place. The person who runs the site must restore the latest copy of the ledger. If that copy is lost, "
    "the site needs a new key in a new roster (list of the sites' public keys)"
)
TWO_LEDGERS = (
    "site {!r} has shown two different ledgers; the person who runs the site must restore "
    "the latest copy of its ledger"
)


class HeadMemory:
    """The highest head of each site's ledger that was seen, by the site's verifying key.

    Parameters
    ----------
    path : path, optional
        The file that it is kept in; by default it is kept as long as this object lives.

    Raises
    ------
    StorageError
        The file is damaged, or cannot be read or written.

    Notes
    -----
    **Privacy.** Public: counts of lines and keyed digests. Deleted or put back, it forgets; it is one
    witness among others (`docs/explain/trust.md`).
    """

    def __init__(self, path: str | PathLike[str] | None = None) -> None:
        self._lock = threading.Lock()
        self._heads: dict[str, tuple[str, SignedHead]] = {}
        self._path: Path | None = None
        self._changed = False
        if path is not None:
            self.keep_in(path)

    @property
    def has_file(self) -> bool:
        """Whether there is a file."""
        return self._path is not None

    def keep_in(self, path: str | PathLike[str]) -> None:
        """Load the file at `path`, if it exists, and store new heads in it from now on.

        The file's heads replace those that the sites have shown to this object, even later ones: the next
        query to a site contains the file's head, and the site checks that its ledger has this head.
        """
        self._path = check_path(path)
        self._heads |= self._stored_heads()
        self._changed = bool(self._heads)
        self.save()

    def highest_head(self, verifying: str) -> SignedHead | None:
        """Return the highest head that the owner of a key has shown."""
        site_head = self._heads.get(verifying)
        return None if site_head is None else site_head[1]

    def learn(self, site: str, verifying: str, head: SignedHead) -> bool:
        """Remember a head that was checked; False if one is remembered that no ledger can have shown too."""
        with self._lock:
            before = self.highest_head(verifying)
            if head.contradicts(before):
                return False
            if head.after(before):
                self._heads[verifying] = site, head
                self._changed = True
            return True

    def save(self) -> None:
        """Write new heads to the file, in addition to those of other processes.

        StorageError if a site has shown another process another ledger, or the file cannot be written.
        """
        with self._lock:
            if self._path is None or not self._changed:
                return
            try:
                check_folder(self._path.parent, "the file of the sites' latest ledger entries")
                with FileLock(f"{self._path}.lock", timeout=LOCKED, mode=0o600):
                    self._merge_file()
                    with written_whole(self._path, private=True, lasting=True) as stream:
                        stream.write(self._text().encode())
            except OSError as problem:
                if isinstance(problem, StorageError):
                    raise
                reason = problem.strerror or type(problem).__name__
                raise StorageError(
                    f"the file of the sites' latest ledger entries (heads=), {self._path}, cannot be written "
                    f"({reason}); check its folder, the permissions and the disk's free space"
                ) from None
            self._changed = False

    def _text(self) -> str:
        heads = {key: {"site": site, "head": head.text} for key, (site, head) in self._heads.items()}
        return checksummed_json({"format": FORMAT, "version": 1, "heads": heads}, indent=1)

    def _merge_file(self) -> None:
        """Load later heads of the file; StorageError if one of them contradicts a head of this object."""
        for key, (site, head) in self._stored_heads().items():
            if head.contradicts(self.highest_head(key)):
                raise StorageError(TWO_LEDGERS.format(site))
            if head.after(self.highest_head(key)):
                self._heads[key] = site, head

    def _stored_heads(self) -> dict[str, tuple[str, SignedHead]]:
        """Return the heads in the file, whose signatures are verified; nothing if there is no file."""
        assert self._path is not None
        return _heads_of(self._path) if os.path.lexists(self._path) else {}


def _heads_of(path: Path) -> dict[str, tuple[str, SignedHead]]:
    record = parse_json(
        read_text(path, "a file of the sites' latest ledger entries", secret="ledger"), str(path)
    )
    content = verified_record(
        record, "a file of the sites' latest ledger entries", ("format", "version", "heads")
    )
    if (content["format"], content["version"]) != (FORMAT, 1):
        raise StorageError(
            f"{path} is not a file of the sites' latest ledger entries in a format that this "
            "version of privinf reads"
        )
    return _checked_heads(content)


@reads("a file of the sites' latest ledger entries")
def _checked_heads(content: dict[str, Any]) -> dict[str, tuple[str, SignedHead]]:
    heads = {}
    for key, entry in content["heads"].items():
        site = entry["site"]
        head = SignedHead.from_text(entry["head"])
        if not head.belongs_to(site, key):
            raise StorageError(
                "the file of the sites' latest ledger entries (heads=) is damaged, because the entry of site "
                f"{site!r} is not signed by that site; restore an intact copy of the file"
            )
        heads[key] = site, head
    return heads


LOAD_ROSTER = (
    ": read a file of 'privinf site roster' with Roster.from_json(Path(file).read_text()); the roster of a "
    "federation is json.loads(Path('federation.json').read_text())['roster'], which Roster.from_json reads"
)
LOAD_KEY = ": load a file with IdentityKey.load(path)"


class EndOptions(TypedDict, total=False):
    """The signers of replies and of queries, and the store of heads: as for `ClientEnvelope`."""

    roster: Roster | None
    key: IdentityKey | None
    heads: str | PathLike[str] | None


def ends_of(config: Mapping[str, Any]) -> EndOptions:
    """Return roster, key and heads by the files that a configuration names; an absent or empty one is none.

    Raises
    ------
    StorageError
        A file cannot be read, or has another format.
    """
    options: EndOptions = {}
    if path := config.get("roster"):
        options["roster"] = Roster.from_json(read_text(path, "a roster"))
    if path := config.get("key"):
        options["key"] = IdentityKey.load(path)
    if path := config.get("heads"):
        options["heads"] = path
    return options


class ClientEnvelope:
    """Signatures and checks of every query and reply of a federation that has a roster or a key.

    Parameters
    ----------
    sites : sequence of str
    roster : Roster, optional
        With verifying keys: replies must be signed by them. By default nothing is checked.
    key : IdentityKey, optional
        The analyst's, for sites whose policy lists analysts.
    heads : path, optional
        Where heads of ledgers are remembered; by default in memory alone.

    Raises
    ------
    ArgumentError
        The roster has no verifying keys or lacks a site, or heads are to be kept without a roster.
    """

    def __init__(
        self,
        sites: Sequence[str],
        roster: Roster | None = None,
        key: IdentityKey | None = None,
        heads: str | PathLike[str] | None = None,
    ) -> None:
        if roster is not None and not isinstance(roster, Roster):
            raise ArgumentError(
                f"roster= must be a Roster object (the public keys of all sites), got {type(roster).__name__}"
                f"{LOAD_ROSTER if isinstance(roster, (str, PathLike)) else ''}"
            )
        if key is not None and not isinstance(key, IdentityKey):
            raise ArgumentError(
                f"key= must be an IdentityKey, got {type(key).__name__}"
                f"{LOAD_KEY if isinstance(key, (str, PathLike)) else ''}"
            )
        if roster is not None and not roster.signed:
            raise ArgumentError(
                "roster= has no keys to verify signatures, so replies of the sites cannot be checked; make a "
                "new roster with 'privinf site roster' from both public keys of each site, or omit roster="
            )
        if roster is not None and (absent := [name for name in sites if name not in roster.keys]):
            raise ArgumentError(
                f"roster= does not list site {absent[0]!r}; pass a roster with the public keys of all sites"
            )
        if roster is None and heads is not None:
            raise ArgumentError(
                "heads= needs roster=, because the recorded ledger entries of the sites are checked "
                "with the public keys in roster=; pass roster= too"
            )
        self._roster = roster
        self._key = key
        self.memory = HeadMemory(heads)

    @property
    def checks(self) -> bool:
        """Whether replies are checked."""
        return self._roster is not None

    @property
    def description(self) -> str:
        """Whether replies are checked, in a few words."""
        return "replies checked" if self.checks else "no signatures"

    def envelope_for(self, query: Query, site: str = "") -> Envelope:
        """Return the envelope of a query to one site; without a name it goes to any site."""
        if self._roster is None and self._key is None:
            return Envelope()
        analyst = "" if self._key is None else self._key.verifying
        plain = Envelope(
            site=site,
            digest=query.digest,
            session=query.session,
            sequence=query.sequence,
            nonce=secrets.token_hex(16),
            analyst=analyst,
            heads=self._heads_for(site),
        )
        return plain if self._key is None else replace(plain, signature=self._key.sign(plain.signed))

    def _heads_for(self, site: str) -> dict[str, SignedHead]:
        """Return the stored heads of a site and of its cyclic successors in the alphabet."""
        if self._roster is None:
            return {}
        names = list(self._roster.verifying)
        start = names.index(site) if site in names else 0
        ordered = [*names[start:], *names[:start]]
        heads = {name: self.memory.highest_head(self._roster.verifying[name]) for name in ordered}
        return dict([(name, head) for name, head in heads.items() if head is not None][: MOST_HEADS + 1])

    def checked(self, envelope: Envelope, reply: Reply, fields: Fields) -> Reply:
        """Return a reply with a valid envelope, or one that states the defect of its envelope.

        The site's head is compared with what was remembered when the query was sent: later ones, of other
        queries under way meanwhile, prove nothing about it.
        """
        if self._roster is None:
            return reply
        try:
            self._check(self._roster, envelope, reply, fields)
        except PrivinfError as problem:
            text = f"{type(problem).__name__}: {problem}"
            return Reply(site=reply.site, sums=np.empty(0), rows=0, error=text)
        return reply

    def _check(self, roster: Roster, envelope: Envelope, reply: Reply, fields: Fields) -> None:
        name = reply.site
        heads = heads_in(fields)
        texts = {field: text for field, text in fields.items() if field != "signature"}
        verifying = roster.verifying.get(name)
        signature = fields.get("signature", "")
        content = answered_text(envelope, name, reply, texts)
        if verifying is None or not signed_by(verifying, signature, content):
            raise AlignmentError(
                "the reply is not signed with the site's key in roster=. Check that the site's own roster "
                "has keys for signatures, because a site without them signs no replies. If it has them, "
                "the reply comes from another sender, was changed, or answers another query"
            )
        before = envelope.heads.get(name)
        now = heads.get(name)
        if before is not None and (now is None or before.after(now) or before.contradicts(now)):
            raise StorageError(BACK)
        for site, head in heads.items():
            owner = roster.verifying.get(site)
            if owner is None or not head.belongs_to(site, owner):
                raise AlignmentError(
                    f"the reply has a ledger entry of site {site!r} that this site did not sign"
                )
            if not self.memory.learn(site, owner, head):
                raise StorageError(TWO_LEDGERS.format(site))

    def check_roster(self, name: str, facts: Mapping[str, Any]) -> None:
        """Raise AlignmentError if a site has pinned another roster than is given here."""
        if self._roster is not None and facts.get("roster") != self._roster.digest:
            raise AlignmentError(
                f"site {name!r} has a list of public keys (roster) that differs from roster=; compare "
                "the digests of the two rosters and use the same roster at all sites"
            )


class ReplyVerifier:
    """A federation whose replies an `ClientEnvelope` checks."""

    _end: ClientEnvelope

    @property
    def heads(self) -> HeadMemory | None:
        """Stored heads of the sites' ledgers, None where no reply is checked."""
        return self._end.memory if self._end.checks else None
