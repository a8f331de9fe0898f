"""What a site remembers while it lives: questions and their order, designs, replies, heads of peers."""

from __future__ import annotations

from collections.abc import Mapping

from privinf.accounting import Ledger, LedgerEntry
from privinf.accounting.journal import Head
from privinf.errors import NotAvailableError
from privinf.federation.envelope import SignedHead
from privinf.federation.messages import Query, Reply


class Journal:
    """A site's memory while it lives: questions charged, their order, designs counted, replies sent.

    Parameters
    ----------
    ledger : Ledger
        Where charges are spent.

    Notes
    -----
    **Privacy.** Holds public numbers and what was sent: masked words, never un-noised sums.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._last: dict[str, int] = {}
        self._charged: set[str] = set()
        self._replies: dict[str, Reply] = {}
        self._designs: dict[str, int] = {}
        self._outdated: set[str] = set()
        self.peers: dict[str, SignedHead] = {}

    def introduce(self, digest: str, most: int) -> None:
        """Count the design of this digest, unless it was counted before.

        Raises
        ------
        NotAvailableError
            It is not among the first `most` designs.
        """
        if self._designs.get(digest, len(self._designs)) >= most:
            raise NotAvailableError(
                f"its policy takes {most} new designs (SitePolicy(new_designs={most})), and this is not one "
                "of them: the holder must list its digest or allow more"
            )
        if digest not in self._designs:
            self._note(digest)
            self._designs[digest] = len(self._designs)

    def begin(self, query: Query, digest: str, entries: tuple[LedgerEntry, ...]) -> None:
        """Charge a question of this digest, unless it was charged before.

        Raises
        ------
        NotAvailableError
            Another question was asked at this position of the session, or later in it; or the question was
            charged for other rows than the site has now.
        BudgetExceededError
            The ledger's limit would be passed; nothing is remembered.
        """
        if digest in self._outdated:
            raise NotAvailableError(
                "this question was charged before the site's rows or schema were changed (privinf site "
                "rebase), and its answer would be another one: begin a new session"
            )
        if digest in self._charged:
            return
        if query.sequence <= self._last.get(query.session, -1):
            raise NotAvailableError("another question was asked at this position of the session")
        self._spend(query, digest, entries)
        self._charged.add(digest)
        self._last[query.session] = query.sequence

    @property
    def head(self) -> Head | None:
        """Where the ledger's file stands, None for one in memory."""
        return None

    def knows(self, head: Head) -> bool:
        """Return whether this ledger's own chain has this head; one in memory has none."""
        return False

    def witness(self, heads: Mapping[str, SignedHead]) -> None:
        """Keep heads of other sites, as a witness of their ledgers."""
        self.peers |= heads

    def watch(self) -> None:
        """Raise StorageError if the ledger's file is no longer what was written."""

    def recall(self, digest: str) -> Reply | None:
        """Return the reply to the question of this digest, None if there was none."""
        return self._replies.get(digest)

    def keep(self, digest: str, reply: Reply) -> None:
        """Remember a reply, before it is sent."""
        self._replies[digest] = reply

    def _spend(self, query: Query, digest: str, entries: tuple[LedgerEntry, ...]) -> None:
        self._ledger.spend(*entries)

    def _note(self, design: str) -> None:
        """Keep a new design's digest."""
