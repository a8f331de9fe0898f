"""Site: rows at their holder, answering named statistics under the holder's own policy and ledger."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import numpy as np

from privinf import errors
from privinf.accounting import Ledger, LedgerEntry
from privinf.accounting.ledger import check_ledger
from privinf.error_boundary import error_boundaries, warn
from privinf.errors import (
    AlignmentError,
    ArgumentError,
    NotAvailableError,
    PrivinfError,
    UnavailableColumnsWarning,
    UnforeseenError,
)
from privinf.federation.binding import Bound
from privinf.federation.envelope import Analyst
from privinf.federation.messages import Query, Reply
from privinf.federation.policy import SitePolicy
from privinf.federation.secure.keys import IdentityKey, Roster
from privinf.federation.secure.masking import PairKeys
from privinf.federation.secure.site import (
    SumTerms,
    check_room,
    check_roster,
    check_terms,
    noisy_words,
    quantised,
    read_terms,
)
from privinf.federation.sessions import Journal
from privinf.federation.site_designs import SiteDesigns
from privinf.federation.site_ledger import SiteLedger
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.gaussian import after_the_charge
from privinf.mechanisms.rows import as_rows, imputing, refuse_unordered
from privinf.mechanisms.sources import no_rows
from privinf.mechanisms.statistics.block import SEEDS, SiteBlock
from privinf.mechanisms.statistics.ops import RecordSensitivity, SiteOp
from privinf.schema import Design, Schema
from privinf.typing import Floats, Table
from privinf.validation import check_flag, columns_phrase
from privinf.version import __version__
from privinf.wire import Requests

NOTHING: Floats = np.empty(0)  # numbers of a reply without a sum
KEPT_REACHES = 16  # queries whose rehearsal on simulated rows a site remembers


@dataclass(frozen=True, slots=True, eq=False)
class CheckedQuery:
    """A query about rows that has passed every check except order and price.

    `entries` are the site's own lines for it, `terms` those of a secure sum.
    """

    op: SiteOp
    record_sensitivity: RecordSensitivity
    entries: tuple[LedgerEntry, ...]
    terms: SumTerms | None = None


@error_boundaries
class Site:
    """Site of a federation: the rows of one holder, with a policy and a budget ledger.

    Parameters
    ----------
    rows : pair (y, X), DataFrame, or Rows
        Rows of the holder: a pair of response and features, or a table that the schema describes.
    schema : Design or Schema
        Design, or schema, of the rows, that is, their public columns and bounds. If it is a `Schema`, servers
        send the designs of models to the site. These designs must be made from this schema. The arguments
        `designs` and `new_designs` of the policy determine which further designs the site accepts, or how
        many.
    policy : SitePolicy
        Permissions of the holder. The default policy allows only a description of the columns.
    ledger : Ledger, optional
        Budget ledger of the holder. By default a new ledger is made. The site enforces the limit of this
        ledger. A `SiteLedger` stores charges and replies in a file. A `SiteLedger` can be used only with the
        same rows, in the same order, and with the same schema and policy.
    key, roster : IdentityKey, Roster, optional
        Secret key of the site, and the public keys of all sites, which are needed for secure sums and for
        signed replies.
    rebase : bool
        Whether a `SiteLedger` may be used with different rows, a different schema or a different policy than
        before. If True, the ledger records this change and keeps all earlier charges.

    Raises
    ------
    AlignmentError
        Raised if there are no rows, or y and X have different lengths.
    SchemaError
        Raised if the rows do not match the design, rows have missing or infinite values, or the response has
        no bounds.
    StorageError
        Raised if the `SiteLedger` was used with different rows, a different schema or a different policy, and
        `rebase` is False. The error is also raised if the file of the ledger was changed.

    Warns
    -----
    UnavailableColumnsWarning
        Issued if some columns of the `Schema` are absent or cannot be read. Only the holder learns the
        reason, from the attribute `defects`. The names of these columns become public, and designs that use
        these columns are refused.

    Notes
    -----
    **Privacy.** Rows are opened once, when the site is made, and all defects of the rows are reported to the
    holder at that time. For every query the site checks the policy, the arguments, the position of the query
    in its session, and the ledger, in this order and without reading rows. Rows are read only after these
    checks, by functions that do not fail for any value of a row. Sums without noise are sent only if the
    policy has ``trusted_server=True``, and only if the charge is large enough for the sensitivity that the
    site computes. In a secure sum (``secure_sums=True``) the site adds its own noise and its own masks. A
    site cannot be pickled, and its printed form does not show its rows. The order of the rows determines
    which rows are in a batch. Do not change the order, because the ledger counts disjoint batches by parallel
    composition. Arrays of the caller are copied before the first batch. Arrays of 64 MB or more are not
    copied, and changes are detected by digests. If such arrays were changed, a query is refused after it was
    charged, and the charge is kept.

    Examples
    --------
    >>> import numpy as np, privinf as pi
    >>> from privinf.federation import Query, Site
    >>> design = pi.Design.from_arrays(["x"], bounds=[(-1, 1)], y_bounds=(-2, 2))
    >>> site = Site((np.zeros(5), np.zeros((5, 1))), design)
    >>> site.handle(Query("describe"), "north").rows
    5
    >>> site.handle(Query("squared_residuals", {"residual_clip": 1.0}), "north").error[:36]
    "NotAvailableError: the site's policy"
    """

    __slots__ = (
        "_designs",
        "_journal",
        "_missing",
        "_pairs",
        "_record_sensitivities",
        "_turn",
        "ledger",
        "policy",
        "size",
    )

    def __init__(
        self,
        rows: Table,
        schema: Design | Schema,
        *,
        policy: SitePolicy | None = None,
        ledger: Ledger | None = None,
        key: IdentityKey | None = None,
        roster: Roster | None = None,
        rebase: bool = False,
    ) -> None:
        if not isinstance(schema, (Design, Schema)):
            raise ArgumentError(f"schema= must be a Schema or a Design object, got {type(schema).__name__}")
        self.size = len(opened := as_rows(rows))
        if self.size == 0:
            raise no_rows()
        self.policy = SitePolicy() if policy is None else policy
        self.ledger = check_ledger(ledger)
        self._designs = SiteDesigns(opened, schema)
        self._missing = opened.missing
        if len(self._designs) != self.size:
            raise AlignmentError("the table was changed while it was read; start the site again")
        self._journal = Journal(self.ledger)
        if isinstance(self.ledger, SiteLedger):
            bound = Bound.from_site(self.size, self._designs.digest, schema, self.policy)
            self._journal = self.ledger.journal.bind(bound, rebase=check_flag(rebase, "rebase"))
        self._record_sensitivities: OrderedDict[tuple[SiteOp, str, int, bool], RecordSensitivity] = (
            OrderedDict()
        )
        self._turn = Lock()
        self._pairs = None if key is None and roster is None else PairKeys(key, roster)
        if isinstance(schema, Schema) and self.defects:
            text = (
                f"{columns_phrase(self.defects)} cannot be used at this site; the person who runs the site "
                "can read the reasons in Site.defects"
            )
            warn(text, UnavailableColumnsWarning)

    @property
    def schema(self) -> Schema | None:
        """Schema of the rows (public columns and bounds); None for arrays."""
        return self._designs.schema

    @property
    def design(self) -> Design | None:
        """The design that the site received last, from the holder or from a query."""
        return self._designs.latest

    @property
    def defects(self) -> dict[str, str]:
        """Reasons why declared columns are unavailable, for the holder only; no reply contains them."""
        return self._designs.defects

    def adopt(self, design: Design) -> None:
        """Add a design of the holder; it does not count toward the limit `new_designs` of the policy.

        Parameters
        ----------
        design : Design
            Design (columns and bounds) that was made from the schema of the site.

        Raises
        ------
        AlignmentError
            Raised if the design was not made from the schema of the site.
        SchemaError
            Raised if a column is absent, has a type or a level that differs from its declaration, or has
            missing values that are not imputed.
        """
        self._designs.adopt(design)

    @property
    def journal(self) -> Journal:
        """Stored replies of the site, and the last known states of the ledgers of other sites."""
        return self._journal

    @property
    def keys(self) -> PairKeys | None:
        """Secret key of the site and its roster; None if the site has no key and no roster."""
        return self._pairs

    @property
    def analysts(self) -> tuple[Analyst, ...]:
        """Analysts who may query the site; if none are listed, anyone who can connect may query."""
        return self.policy.analysts

    def handle(self, query: Query, name: str, analyst: str = "") -> Reply:
        """Answer a query under the name `name`; a reply may state an error, without values of rows.

        Parameters
        ----------
        query : Query
            The query.
        name : str
            Name of the site.
        analyst : str
            Name of the analyst who signed the query. The caller must have checked the signature.

        Returns
        -------
        Reply
            The answer, or the error.

        Notes
        -----
        **Privacy.** First the policy is checked, then the cost is recorded in the ledger, and then rows are
        read.
        """
        try:
            return self.answer(query, name, analyst)
        except PrivinfError as error:
            return self.refused(error, name, query.op)
        except Exception:
            return self.refused(ArgumentError(f"failed at {query.op!r}"), name)

    def refused(self, problem: PrivinfError, name: str, op: str = "") -> Reply:
        """Return a reply that states an error, without values of rows.

        Parameters
        ----------
        problem : PrivinfError
            The error.
        name : str
            Name of the site.
        op : str
            Name of the requested statistic.

        Returns
        -------
        Reply
            The reply, with `error`.
        """
        kind = type(problem).__name__
        public_kind = kind if hasattr(errors, kind) and kind != "UnforeseenError" else "ArgumentError"
        text = f"failed at {op!r}" if isinstance(problem, UnforeseenError) else str(problem)
        return Reply(site=name, sums=NOTHING, rows=self.size, error=f"{public_kind}: {text}")

    def answer(self, query: Query, name: str, analyst: str = "") -> Reply:
        """Answer a query under the name `name`; queries are answered one at a time.

        Parameters
        ----------
        query : Query
            The query.
        name : str
            Name of the site.
        analyst : str
            Name of the analyst who signed the query.

        Returns
        -------
        Reply
            The answer.

        Raises
        ------
        PrivinfError
            Raised if the policy, the limit of the ledger, the order of queries or the arguments do not allow
            an answer. Nothing was charged, and no row was read.

        Notes
        -----
        **Privacy.** First the policy is checked, then the cost is recorded in the ledger, and then rows are
        read.
        """
        with self._turn:
            return self._answer(query, name, self.policy.allow_analyst(analyst))

    def _answer(self, query: Query, name: str, by: Analyst | None) -> Reply:
        """Let a query through the gate: policy, arguments, turn, ledger, rows, in this order."""
        self._journal.watch()
        if query.op == Requests.DESCRIBE:
            return Reply(site=name, sums=NOTHING, rows=self.size, facts=self.description())
        if query.op == Requests.DESIGN:
            return self._introduced(query, name)
        if query.op in (Requests.RESERVE, Requests.END):
            self.policy.allow_reservations()
            self._journal.settle(query, by)
            return Reply(site=name, sums=NOTHING, rows=self.size)
        if query.op not in SITE_OPS:
            raise ArgumentError(
                f"there is no statistic named {query.op!r}; check the name, or install the same version "
                "of privinf at the site and the server"
            )
        self.policy.allow(query.op, masked=bool(query.masking))
        checked = self._checked(query, name)
        if checked.terms is not None:
            return self._masked(query, name, checked, by)
        self._journal.begin(query, query.digest, checked.entries, by)
        return Reply(site=name, sums=self._total(query, name, checked), rows=self.size)

    def _total(self, query: Query, name: str, checked: CheckedQuery) -> Floats:
        """Return the un-noised sum over the rows, which was charged.

        Raises
        ------
        AlignmentError
            The sum is over a batch, and the rows are large arrays that were changed since another one.
        """
        op = checked.op
        args = query.args
        batch = op.batch_pass(args, self._designs.digests)
        block = self._placed(name, query.design, by_places=batch is not None)
        if batch is None or not block.lent:
            return op.total(block, args, checked.record_sensitivity)
        total = op.total(replace(block, batch=batch), args, checked.record_sensitivity)
        after_the_charge(batch.check)
        return total

    def _introduced(self, query: Query, name: str) -> Reply:
        """Take a design: by the policy and public facts alone; no row is read."""
        if not self._designs.holder_digests:
            self.policy.allow_designs()
        if unknown := sorted(set(query.args) - {"design"}):
            raise ArgumentError(
                f"the query 'design' has unknown arguments {', '.join(map(repr, unknown))}; it accepts "
                "only the argument design"
            )
        design = self._designs.design_of(query.args.get("design"))
        if design.digest not in self._designs.holder_digests and design.digest not in self.policy.designs:
            self.policy.allow_designs()
            self._journal.introduce(design.digest, self.policy.most_designs)
        self._designs.keep(design)
        return Reply(site=name, sums=NOTHING, rows=self.size, facts=self.description())

    def _checked(self, query: Query, name: str) -> CheckedQuery:
        """Check a query about rows completely, without reading one."""
        op = SITE_OPS[query.op]
        if query.version != op.version:
            raise NotAvailableError(
                f"the site has version {op.version} of the statistic {query.op!r}, but the query needs "
                f"version {query.version}; install the same version of privinf at site and server"
            )
        if SEEDS.intersection(query.args):
            refuse_unordered(self._designs, query.op)
        record_sensitivity = self._rehearsed(op, query, bounded=(masked := bool(query.masking)))
        scope = op.scope(query.args, self._journal.place(name))
        entries = self.policy.accept(query.charges, record_sensitivity, scope, masked=masked)
        if not masked:
            return CheckedQuery(op, record_sensitivity, entries)
        if len(entries) != 1:
            raise ArgumentError("the query of a secure sum must have exactly one entry for the site's ledger")
        terms = read_terms(query, entries[0])
        check_roster(terms, query, self._pairs, name)
        check_terms(query, terms, entries[0], record_sensitivity, self.policy)
        check_room(terms, record_sensitivity.units(self.size), record_sensitivity.bound)
        return CheckedQuery(op, record_sensitivity, entries, terms)

    def _rehearsed(self, op: SiteOp, query: Query, *, bounded: bool) -> RecordSensitivity:
        """Return the sensitivity of a query after a trial on simulated rows, which recent queries skip."""
        self._designs.named(query.design)
        key = (op, query.subject, self.size, bounded)
        if key not in self._record_sensitivities:
            public = self._designs.public(query.design)
            self._record_sensitivities[key] = op.checked(query.args, public, self.size, bounded=bounded)
            while len(self._record_sensitivities) > KEPT_REACHES:
                self._record_sensitivities.popitem(last=False)
        self._record_sensitivities.move_to_end(key)
        return self._record_sensitivities[key]

    def _masked(self, query: Query, name: str, checked: CheckedQuery, by: Analyst | None) -> Reply:
        """Answer in a secure sum: charge, read, add noise and masks, remember."""
        pairs = self._pairs
        terms = checked.terms
        digest = query.digest
        assert pairs is not None
        assert terms is not None
        if (reply_before := self._journal.recall(digest)) is not None:
            return reply_before
        self._journal.begin(query, digest, checked.entries, by)
        total = self._total(query, name, checked)
        steps = quantised(
            total, terms, checked.record_sensitivity.units(self.size), checked.record_sensitivity.bound
        )
        words = noisy_words(steps, terms, name)
        masked = pairs.masked(words, name, terms.roster, terms.max_colluding, digest)
        reply = Reply(site=name, sums=NOTHING, rows=self.size, masked=masked)
        self._journal.keep(digest, reply)
        return reply

    def description(self) -> dict[str, Any]:
        """Return public facts about the site: version, columns, bounds, digest of the design, permissions.

        If the site imputes missing values, the description states this, whether or not rows have missing
        values.

        Returns
        -------
        dict
            Public facts, which are the reply to a "describe" query.
        """
        design = self.design
        schema = self.schema
        return {
            "version": __version__,
            "design": None if design is None else design.to_dict(),
            "digest": "" if design is None else design.digest,
            "schema": None if schema is None else schema.to_dict(),
            "unavailable": list(self._designs.unavailable),
            **self.policy.stated,
            "roster": None if self._pairs is None else self._pairs.roster.digest,
            **imputing(self._missing),
        }

    def _placed(self, name: str, digest: str | None = None, *, by_places: bool = False) -> SiteBlock:
        """Return the rows by a design, the latest by default, at the site of this name."""
        if digest is None:
            assert self.design is not None
            digest = self.design.digest
        return self._designs.placed(digest, name, by_places=by_places)

    def check_again(self) -> None:
        """Raise SchemaError if the rows were changed and cannot be opened any more (for the holder only)."""
        self._designs.check_again()

    def own_rows(self, name: str, design: Design) -> SiteBlock:
        """Return the raw rows, encoded by a design (for the holder only).

        Parameters
        ----------
        name : str
            Name of the site.
        design : Design
            Columns and bounds.

        Returns
        -------
        block of rows
            The encoded rows.

        Notes
        -----
        **Privacy.** The result contains raw rows without noise. Only the holder may see it.
        """
        if design.schema is not None:
            self.adopt(design)
        return self._placed(name)

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"<Site of {self.size} rows, not shown>"

    def __reduce__(self) -> Any:
        raise TypeError("a site holds raw rows and cannot be pickled")
