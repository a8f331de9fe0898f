"""Binding of a site's ledger: rows in order, schema and policy, by digests that never leave."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any

from privinf.accounting.journal import PRIVATE
from privinf.federation.policy import SitePolicy
from privinf.schema import Design, Schema


@dataclass(frozen=True, slots=True)
class Bound:
    """Rows, schema and policy of a site, by digests.

    Attributes
    ----------
    rows : int
        How many there are; public.
    digest : callable
        Returns the digest of the rows under a key (`OpenedRows.digest`).
    schema, policy : mapping
        JSON-ready.
    """

    rows: int
    digest: Callable[[bytes], str]
    schema: Mapping[str, Any]
    policy: Mapping[str, Any]

    @classmethod
    def from_site(
        cls, rows: int, digest: Callable[[bytes], str], schema: Schema | Design, policy: SitePolicy
    ) -> Bound:
        """Return the digests of a site of this schema and policy.

        Of a policy the holder's settings count, and not the defaults of a later version.
        """
        declared = schema if isinstance(schema, Schema) or schema.schema is None else schema.schema
        changed_names = {
            field.name
            for field in fields(policy)
            if field.default is MISSING or getattr(policy, field.name) != field.default
        }
        terms = {name: value for name, value in asdict(policy).items() if name in changed_names}
        return cls(rows, digest, declared.to_dict(), terms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """A line of a ledger that states its binding.

    Attributes
    ----------
    rows : int
    schema, policy, data : str
        Digests under keys that follow from the ledger's secret and the salt.
    salt : str
        New with every pin.

    Notes
    -----
    **Privacy.** `data` is a function of rows. It is next to the chained text, so that no head of the
    ledger, which is sent, depends on rows, be it by a keyed digest.
    """

    rows: int
    schema: str
    policy: str
    salt: str
    data: str

    @classmethod
    def from_site(cls, site: Bound, secret: str, salt: str | None = None) -> Pin:
        """Return the pin of a site; one that was made with a salt is found again with it."""
        salt = secrets.token_hex(16) if salt is None else salt

        def key(purpose: str) -> bytes:
            return hmac.new(secret.encode(), f"{purpose} {salt}".encode(), hashlib.sha256).digest()

        def digest(purpose: str, content: Mapping[str, Any]) -> str:
            text = json.dumps(content, sort_keys=True, default=str)  # limits of budgets are fractions
            return hmac.new(key(purpose), text.encode(), hashlib.sha256).hexdigest()

        data = site.digest(key("rows"))
        return cls(
            rows=site.rows,
            schema=digest("schema", site.schema),
            policy=digest("policy", site.policy),
            salt=salt,
            data=data,
        )

    @classmethod
    def from_line(cls, line: Mapping[str, Any]) -> Pin:
        """Return the pin that a line holds (KeyError, TypeError or ValueError if it holds none)."""
        bound = line["bound"]
        pin = cls(
            rows=int(bound["rows"]),
            schema=bound["schema"],
            policy=bound["policy"],
            salt=bound["salt"],
            data=line[PRIVATE]["rows_digest"],
        )
        if not all(isinstance(text, str) for text in (pin.schema, pin.policy, pin.salt, pin.data)):
            raise TypeError("digests are texts")
        return pin

    def line(self, changed: tuple[str, ...]) -> dict[str, Any]:
        """Return the ledger's line, with the holder's changes since the previous pin."""
        bound = {"rows": self.rows, "schema": self.schema, "policy": self.policy, "salt": self.salt}
        rebase = {"rebase": list(changed)} if changed else {}
        return {"bound": bound, PRIVATE: {"rows_digest": self.data}, **rebase}

    def changed(self, site: Bound, secret: str) -> tuple[str, ...]:
        """Return the parts of a site that differ from the pin: "rows", "schema", "policy"."""
        now = Pin.from_site(site, secret, self.salt)
        differences = {
            "rows": (now.rows, now.data) != (self.rows, self.data),
            "schema": now.schema != self.schema,
            "policy": now.policy != self.policy,
        }
        return tuple(name for name, differs in differences.items() if differs)

    def description(self, changed: tuple[str, ...], rows: int) -> str:
        """Return the changes in words, for the holder; numbers of rows are public."""
        count = f"rows (previously {self.rows} rows, now {rows})"
        if rows == self.rows:
            count = (
                f"rows ({rows} rows as before, but with other values, in another order, or with another "
                "rule for missing values)"
            )
        return " and ".join(count if name == "rows" else name for name in changed)
