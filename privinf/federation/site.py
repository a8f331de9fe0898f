"""Site: rows at their holder, answering named statistics under the holder's own policy and ledger."""

from __future__ import annotations

from threading import Lock
from typing import Any

import numpy as np

from privinf import errors
from privinf.accounting import Ledger, LedgerEntry
from privinf.doors import doors
from privinf.errors import (
    AlignmentError,
    ArgumentError,
    NotAvailableError,
    PrivinfError,
    SchemaError,
    UnforeseenError,
)
from privinf.federation.keys import IdentityKey, Roster
from privinf.federation.masking import PairKeys, Words
from privinf.federation.messages import Query, Reply
from privinf.federation.policy import SitePolicy
from privinf.federation.site_ledger import Journal, SiteLedger
from privinf.federation.site_masking import (
    check_room,
    check_roster,
    check_terms,
    noisy_words,
    quantised,
    read_terms,
)
from privinf.federation.site_sharing import STAGES, Sharing
from privinf.mechanisms.rows import Rows, as_rows
from privinf.mechanisms.site_ops import Reach
from privinf.mechanisms.site_rows import SiteBlock, stream_of
from privinf.mechanisms.sparse_statistics import SITE_OPS
from privinf.schema import Design, Schema
from privinf.typing import Floats

NOTHING: Floats = np.empty(0)


@doors
class Site:
    """Rows of one holder in a federation.

    Parameters
    ----------
    rows : pair (y, X), DataFrame, or Rows
    schema : Design or Schema
        Public columns and bounds. With a `Schema` the design of a model arrives with the first query
        "design" and must be made from this very schema.
    policy : SitePolicy
        What the holder allows; the default sends nothing but a description of the columns.
    ledger : Ledger, optional
        The holder's own account; by default a new one. A limit there is enforced by the site. With a
        `SiteLedger` what was charged and sent outlives the process.
    key, roster : IdentityKey, Roster, optional
        The site's own key and the public keys of all sites, for secure sums.

    Raises
    ------
    AlignmentError
        There are no rows, or y and X differ in length.
    SchemaError
        The rows do not fit the schema, or have missing or infinite values; the response has no bounds.

    Notes
    -----
    **Privacy.** Un-noised sums leave it only where the policy says ``trusted_server=True``, and only for
    queries whose charges cover the site's own sensitivity; they are in its ledger before a row is read. In
    a secure sum (``secure_sums=True``) the site adds its noise and its masks itself. Not pickled and not
    shown. Which rows are in a public batch follows from their order: a ledger in which batches stand in
    parallel is right as long as the order stays.

    Examples
    --------
    >>> design = Design.from_arrays(["x"], bounds=[(-1, 1)], y_bounds=(-2, 2))
    >>> import numpy as np
    >>> site = Site((np.zeros(5), np.zeros((5, 1))), design)
    >>> site.handle(Query("describe"), "north").rows
    5
    >>> site.handle(Query("squared_residuals", {"residual_clip": 1.0}), "north").error[:40]
    'NotAvailableError: its policy sends no u'
    """

    __slots__ = (
        "_block",
        "_digest",
        "_journal",
        "_pairs",
        "_rows",
        "_sharing",
        "_turn",
        "design",
        "ledger",
        "policy",
        "schema",
        "size",
    )

    def __init__(
        self,
        rows: Any,
        schema: Design | Schema,
        *,
        policy: SitePolicy | None = None,
        ledger: Ledger | None = None,
        key: IdentityKey | None = None,
        roster: Roster | None = None,
    ) -> None:
        if not isinstance(schema, (Design, Schema)):
            raise ArgumentError(f"schema must be a Schema or a Design, got {type(schema).__name__}")
        self._rows: Rows = as_rows(rows)
        self.size = len(self._rows)
        if self.size == 0:
            raise AlignmentError("a site needs at least one row")
        self.policy = SitePolicy() if policy is None else policy
        self.ledger = Ledger() if ledger is None else ledger
        self.schema = schema if isinstance(schema, Schema) else schema.schema
        self.design: Design | None = None
        self._block: SiteBlock | None = None
        self._digest = ""
        self._journal = self.ledger.journal if isinstance(self.ledger, SiteLedger) else Journal(self.ledger)
        self._sharing = Sharing(self._journal)
        self._turn = Lock()
        self._pairs = None if key is None and roster is None else PairKeys(key, roster)
        if isinstance(schema, Design):
            self.adopt(schema)

    def adopt(self, design: Design) -> None:
        """Prepare the rows for a design; the one in place if it is the same.

        Raises
        ------
        AlignmentError
            The design is not made from the site's own schema.
        SchemaError
            As for the class.
        """
        if self.design is not None and design == self.design:
            return
        if design.schema != self.schema or (self.schema is None and self.design is not None):
            raise AlignmentError("the design has other columns or bounds than the site's schema")
        self._block = _whole(design, self._rows)
        self.design, self._digest = design, design.digest

    def handle(self, query: Query, name: str) -> Reply:
        """Answer as the site `name`; what goes wrong is told in the reply, without any value."""
        try:
            return self.answer(query, name)
        except UnforeseenError:
            return Reply(name, NOTHING, self.size, error=f"ArgumentError: failed at {query.op!r}")
        except PrivinfError as error:
            kind = type(error).__name__
            known = kind if hasattr(errors, kind) else "ArgumentError"
            return Reply(name, NOTHING, self.size, error=f"{known}: {error}")
        except Exception as error:
            # A text of numpy's may hold values.
            told = f"ArgumentError: failed at {query.op!r} ({type(error).__name__})"
            return Reply(name, NOTHING, self.size, error=told)

    def answer(self, query: Query, name: str) -> Reply:
        """Answer as the site `name`, one question at a time.

        Raises
        ------
        PrivinfError
            The policy, the ledger's limit, the order of queries or the arguments stand against it; nothing
            has been charged or read.
        """
        with self._turn:
            return self._answer(query, name)

    def _answer(self, query: Query, name: str) -> Reply:
        if query.op == "describe":
            return Reply(name, NOTHING, self.size, self.description())
        if query.op == "design":
            self.adopt(Design.from_dict(query.args.get("design", {})))
            return Reply(name, NOTHING, self.size, self.description())
        if query.op in STAGES:
            return self._sharing.answer(query, name, self.size, NOTHING)
        if query.op not in SITE_OPS:
            raise ArgumentError(f"no statistic is called {query.op!r}")
        op = SITE_OPS[query.op]
        self.policy.allow(query.op, masked=bool(query.masking))
        if query.version != op.version:
            raise NotAvailableError(f"it knows version {op.version} of {query.op!r}, not {query.version}")
        if self._block is None or self.design is None:
            raise NotAvailableError("it has no design yet: send the query 'design' first")
        if query.design != self._digest:
            raise NotAvailableError("its rows are prepared for another design now")
        reach = op.reach(query.args, len(self.design.names), self.size)
        entries = self.policy.accept(query.charges, reach, op.scope(query.args, name))
        if query.masking:
            return self._masked(query, name, reach, entries)
        self._journal.begin(query, query.digest, entries)
        return Reply(name, op.total(self._placed(name), query.args), self.size)

    def _masked(self, query: Query, name: str, reach: Reach, entries: tuple[LedgerEntry, ...]) -> Reply:
        """Answer in a secure sum: check, charge, read, add noise and masks, remember."""
        if len(entries) != 1:
            raise ArgumentError("a secure sum is one release")
        terms = read_terms(query, entries[0])
        pairs = check_roster(terms, query, self._pairs, name)
        check_terms(query, terms, entries[0], reach, self.policy)
        units = reach.units(self.size)
        check_room(terms, units, reach.bound)
        digest = query.digest
        if (sent := self._journal.recall(digest)) is not None:
            return sent
        self._journal.begin(query, digest, entries)

        def words() -> Words:
            total = SITE_OPS[query.op].total(self._placed(name), query.args)
            return noisy_words(quantised(total, terms, units, reach.bound), terms, name)

        if terms.kind == "shared":
            reply = Reply(name, NOTHING, self.size, self._sharing.share(name, digest, terms, pairs, words))
        else:
            masked = pairs.masked(words(), name, terms.roster, terms.max_colluding, digest)
            reply = Reply(name, NOTHING, self.size, masked=masked)
        self._journal.keep(digest, reply)
        return reply

    def description(self) -> dict[str, Any]:
        """Return the public facts: version, columns, bounds, digest of the design, whom the site trusts."""
        from privinf import __version__

        return {
            "version": __version__,
            "design": None if self.design is None else self.design.to_dict(),
            "digest": self._digest,
            "schema": None if self.schema is None else self.schema.to_dict(),
            "trusted_server": self.policy.trusted_server,
            "roster": None if self._pairs is None else self._pairs.roster.digest,
        }

    def _placed(self, name: str) -> SiteBlock:
        whole = self._block
        assert whole is not None
        return SiteBlock(
            whole.features, whole.response, whole.low, whole.high,
            whole.response_low, whole.response_high, 0, stream_of(name),
        )  # fmt: skip

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"<Site of {self.size} rows, not shown>"

    def __reduce__(self) -> Any:
        raise TypeError("a site holds raw rows: it is not pickled")


def _whole(design: Design, rows: Rows) -> SiteBlock:
    """Return all rows as one block: a matrix of the right columns is used as it is, without a copy."""
    if design.y_low is None or design.y_high is None:
        raise SchemaError(f"the response {design.response!r} needs public bounds (y_bounds)")
    if design.schema is not None and design.schema.max_rows > 1:
        raise NotAvailableError("sites answer for one row a unit: max_rows > 1 is not offered")
    X = rows.features
    ready = design.schema is None and isinstance(X, np.ndarray) and X.dtype == np.float64 and X.ndim == 2
    if not (ready and X.shape[1] == len(design.names)):
        X = design.matrix(X, missing=rows.missing)
    for start in range(0, len(X), 4096):
        if not np.isfinite(X[start : start + 4096]).all():
            raise SchemaError("the features have missing or infinite values")
    y = rows.response
    y = design.response_values(rows.features, missing=rows.missing) if y is None else _response(y)
    if len(y) != len(X):
        raise AlignmentError(f"the response has {len(y)} rows and the features have {len(X)}")
    return SiteBlock(X, y, design.low, design.high, design.y_low, design.y_high)


def _response(y: Any) -> Floats:
    try:
        found = np.asarray(y, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise SchemaError("the response is not numeric") from None
    if found.ndim != 1 or not np.isfinite(found).all():
        raise SchemaError("the response must be one column without missing or infinite values")
    return found
