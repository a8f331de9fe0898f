"""A site's rows, opened once, and the designs that it has checked and keeps."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Any

import numpy as np

from privinf.errors import AlignmentError, NotAvailableError, PrivinfError, SchemaError, UnforeseenError
from privinf.mechanisms.opened import OpenedRows
from privinf.mechanisms.rows import Rows
from privinf.mechanisms.statistics.block import SiteBlock, made_up, stream_of
from privinf.mechanisms.statistics.places import BatchDigests
from privinf.schema import Design, Schema
from privinf.validation import columns_phrase

# Limits of a design that comes with a query; those of splines and expressions let it be checked within
# about a second.
MOST_COLUMNS = 1_000  # of the design
MOST_BYTES = 1 << 30  # of its matrix
MOST_KNOTS = 100  # of all its splines
MOST_TEXT = 1 << 16  # characters of all its expressions
CACHE_BYTES = 1 << 30  # of matrices that are kept in addition to the one in use


class SiteDesigns:
    """The rows of a site and the designs that queries may name.

    Parameters
    ----------
    rows : Rows
    schema : Design or Schema
        With a `Design`, the design that is in place from the start.

    Attributes
    ----------
    schema : Schema or None
    latest : Design or None
        The design that came last.
    own : frozenset of str
        Digests of designs that the holder has put in place.
    digests : BatchDigests
        Of the rows of batches, where they are read from arrays that others can write into.

    Raises
    ------
    AlignmentError, SchemaError
        The rows do not fit; reported to the holder, who makes the site.

    Notes
    -----
    **Privacy.** Rows are opened here, once, and whatever is wrong with them is reported to the holder.
    Afterwards a design is accepted or refused by public facts alone (`check`), and its matrix is computed
    from opened rows, which cannot fail. That some columns are unavailable is public.
    """

    __slots__ = ("_designs", "_matrices", "_opened", "digests", "holder_digests", "latest", "schema")

    def __init__(self, rows: Rows, schema: Design | Schema) -> None:
        self.schema = schema if isinstance(schema, Schema) else schema.schema
        if isinstance(schema, Design):
            check_sums(schema)
        self._opened = OpenedRows(rows, schema)
        self.digests = BatchDigests()
        self._designs: dict[str, Design] = {}
        self._matrices: OrderedDict[str, SiteBlock] = OrderedDict()
        self.latest: Design | None = None
        self.holder_digests: frozenset[str] = frozenset()
        if isinstance(schema, Design):
            self.adopt(schema)

    def __len__(self) -> int:
        return len(self._opened)

    @property
    def ordered(self) -> bool:
        """Whether the rows have places of their own."""
        return self._opened.ordered

    @property
    def unavailable(self) -> tuple[str, ...]:
        """Names of declared columns that cannot be used: public."""
        return self._opened.unavailable

    @property
    def defects(self) -> dict[str, str]:
        """Why columns are unavailable: for the holder alone."""
        return dict(self._opened.defects)

    def digest(self, key: bytes) -> str:
        """Return the digest of the rows under a key: for the holder's ledger alone."""
        self._keep()
        return self._opened.digest(key)

    def _keep(self) -> None:
        """Keep rows that no other code writes into; earlier matrices are computed again."""
        if self._opened.keep():
            self._matrices.clear()

    def check_again(self) -> None:
        """Raise SchemaError if changed rows cannot be opened: for the holder alone."""
        self._opened.check_again()

    def adopt(self, design: Design) -> None:
        """Install a design of the holder's; errors state what is wrong with the columns."""
        self._check_schema(design)
        for name in self._opened.lacks(design):
            raise SchemaError(self.defects.get(name, f"the schema does not declare the column {name!r}"))
        self.keep(design)
        self.holder_digests |= {design.digest}

    def design_of(self, content: object) -> Design:
        """Return the design that came with a query, checked by public facts alone.

        Raises
        ------
        AlignmentError
            It is not made from the site's own schema.
        SchemaError
            The design is invalid, or uses columns that are unavailable.
        NotAvailableError
            The design is larger than sites accept.
        """
        design = _design_of(content)
        self._check_schema(design)
        if self.schema is None or design.digest in self.holder_digests:
            return design
        width = len(design.names) + _knots(design.to_dict())
        if len(design.names) > MOST_COLUMNS or 8 * width * len(self) > MOST_BYTES:
            raise NotAvailableError(
                f"the regression (design) has {len(design.names)} columns and needs "
                f"{8 * width * len(self) >> 20} MiB, but a site accepts at most {MOST_COLUMNS} columns "
                f"and {MOST_BYTES >> 20} MiB: use fewer columns"
            )
        if missing := self._opened.lacks(design):
            raise SchemaError(
                f"{columns_phrase(missing)} cannot be used at this site; the person who runs the site can "
                "read the reasons in Site.defects, or in what 'privinf site up' or 'serve' prints"
            )
        design = _own_bounds(design, self.schema)
        _tried(design, self.schema)
        return design

    def keep(self, design: Design) -> None:
        """Let queries name a design from now on."""
        self._designs.setdefault(design.digest, design)
        self.latest = self._designs[design.digest]

    def named(self, digest: str) -> Design:
        """Return the design that a query names; NotAvailableError if it did not come before."""
        if digest in self._designs:
            return self._designs[digest]
        if not self._designs:
            raise NotAvailableError(
                "the site has not received a regression (design) yet; send it the query 'design' first"
            )
        raise NotAvailableError(
            "the site has not received this regression (design) yet; send it the query 'design' first"
        )

    def public(self, digest: str) -> SiteBlock:
        """Return simulated rows within the bounds of a design."""
        design = self.named(digest)
        assert design.y_low is not None
        assert design.y_high is not None
        return made_up(design.low, design.high, design.y_low, design.y_high)

    def placed(self, digest: str, name: str, *, by_places: bool = False) -> SiteBlock:
        """Return the rows by a design, at the site of this name; matrices are kept up to `CACHE_BYTES`.

        With `by_places` the price depends on the positions of the rows, which are then kept
        (`OpenedRows.keep`).
        """
        if by_places:
            self._keep()
        if digest not in self._matrices:
            self._matrices[digest] = SiteBlock.from_rows(self.named(digest), self._opened)
        self._matrices.move_to_end(digest)
        sizes = {key: block.features.nbytes for key, block in self._matrices.items()}
        while len(sizes) > 1 and sum(sizes.values()) > CACHE_BYTES:
            del sizes[self._matrices.popitem(last=False)[0]]
        return replace(self._matrices[digest], stream=stream_of(name))

    def _check_schema(self, design: Design) -> None:
        differs = self.schema is None and self.latest is not None and design != self.latest
        if design.schema != self.schema or differs:
            raise AlignmentError(
                "the columns or bounds of the regression (design) differ from the site's schema; use "
                "the same schema at the site and the server"
            )
        check_sums(design)

    def __reduce__(self) -> Any:
        raise TypeError("a site's rows cannot be pickled")


ONE_ROW = (
    "max_rows > 1 is not available for sites, nor for OLS, Logit, Poisson and GLM, which "
    "assume one row per person; use MomentOLS or ModulatedOLS with all rows in one place. For an outcome "
    "that is yes or no, a count or a time, make a table with one row per person, such as the first admission"
)


def check_sums(design: Design) -> None:
    """Raise unless sums over records can be made by a design: bounds of the response, one row per unit."""
    if design.y_low is None or design.y_high is None:
        raise SchemaError(f"the response {design.response!r} needs public bounds; pass y_bounds=")
    if design.schema is not None and design.schema.max_rows > 1:
        raise NotAvailableError(ONE_ROW)


def _design_of(content: Any) -> Design:
    """Return the design that a message describes."""
    try:
        _check_size(content)
        return Design.from_dict(content)
    except Exception as error:
        is_public = isinstance(error, PrivinfError) and not isinstance(error, UnforeseenError)
        problem = (
            error
            if is_public
            else SchemaError(
                "the stored content does not describe a design: create the design again from its formula"
            )
        )
    raise problem


def _check_size(content: Any) -> None:
    """Refuse designs so large, or splines so long, that their bounds take seconds to find."""
    text = sum(
        len(piece.get(kind, "")) for piece in _pieces(content) for kind in ("expression", "polynomial")
    )
    for size, largest, unit in (
        (len(content["columns"]), MOST_COLUMNS, "columns"),
        (_knots(content), MOST_KNOTS, "knots of splines"),
        (text, MOST_TEXT, "characters in its expressions"),
    ):
        if size > largest:
            raise NotAvailableError(
                f"the regression (design) has {size} {unit}, but a site accepts at most {largest}: use a "
                "smaller regression"
            )


def _knots(content: Any) -> int:
    """Return how many knots the splines of a described design have together."""
    bases = {
        repr(piece["basis"]): len(piece["basis"]["knots"]) for piece in _pieces(content) if "basis" in piece
    }
    return sum(bases.values())


def _pieces(content: Any) -> list[Any]:
    columns = *content["columns"], *content.get("raw", ()), content["outcome"]["column"]
    return [piece for column in columns for piece in column["pieces"]]


def _own_bounds(design: Design, schema: Schema) -> Design:
    """Return a design with the bounds that follow here: those sent may differ from them in their last bits.

    The digests of charged queries leave them out.
    """
    ends = [column.interval(schema) for column in design.columns]
    low, high = np.array([[interval.low, interval.high] for interval in ends]).T
    outcome = replace(design.outcome, bounds=design.outcome.column.interval(schema))
    return replace(design, low=low, high=high, outcome=outcome)


def _tried(design: Design, schema: Schema) -> None:
    """Compute a design once on simulated rows, so that whatever its text could raise is raised here."""
    try:
        rows = OpenedRows(Rows(schema.frame()), schema)
        finite = all(bool(np.isfinite(compute(design)).all()) for compute in (rows.matrix, rows.response))
    except Exception:
        finite = False
    if not finite:
        raise SchemaError(
            "the design cannot be computed within the declared bounds and levels of its columns"
        )
