"""Query and Reply, the messages between an analyst's server and a site, and `Federation`, their transport.

Messages are JSON and plain arrays, never code.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, fields
from types import MappingProxyType
from typing import Any, Protocol, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from privinf.accounting.purposes import stated_text
from privinf.error_boundary import error_boundaries
from privinf.errors import AlignmentError, ArgumentError, StorageError
from privinf.typing import Floats
from privinf.validation import check_count, is_unicode, shown_name

Message = tuple[str, dict[str, NDArray[Any]]]


class Changed(TypedDict, total=False):
    """Fields of a `Query` that another one has otherwise."""

    args: Mapping[str, Any]
    session: str
    sequence: int
    charges: Sequence[Mapping[str, Any]]
    masking: Mapping[str, Any]
    reservation: str
    purpose: str


# Keys are sorted: equal content has one text, and one digest.
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)
_REPLIED = {"sums": np.dtype(np.float64), "masked": np.dtype(np.uint64)}
LAST_POSITION = 1 << 53  # in a session: larger integers are not exact in all readers of JSON
MOST_SITE_ROWS = 1 << 48  # rows that a site may state: no sum over more would be exact
LONGEST_ERROR = 2_000  # characters of a site's error that are passed on
DAMAGED = (
    "the message is not a valid {}: it was damaged, or another version of privinf wrote it; install the same "
    "version at the server and all sites"
)
NO_QUERY = DAMAGED.format("query")
# Of a reply whose shape or number of rows is wrong.
WRONG_ANSWER = (
    "site {!r} sent a reply that does not match the query (another size, another number of rows, or numbers "
    "that are not finite); check that its rows did not change and that it has the same version of privinf"
)
# Pattern of a site's name.
NAME_RULE = "a site's name must be a non-empty string without '='"
_KINDS = {"b": np.bool_, "i": np.int64, "u": np.int64, "f": np.float64}


@error_boundaries
@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """Query to the sites: the name of a statistic, its public arguments, and the cost of its release.

    Attributes
    ----------
    op : str
        Name of a statistic (one of `SITE_OPS`), or "describe", "design", "reserve" or "end".
    args : mapping
        Arguments of the statistic: numbers, strings, booleans and arrays of numbers. Lists of numbers are
        converted to arrays, and arguments with the value None are left out.
    version : int
        Version of the statistic.
    design : str
        SHA-256 digest of the design (columns and bounds) to which the query applies; empty for "describe" and
        "design".
    session : str
        Identifier of one server's session.
    sequence : int
        Position of the query in its session. A site refuses a new query at a position at which it has already
        answered a query.
    charges : tuple of mapping
        Ledger entries (``LedgerEntry.to_dict``) of the releases that the server will make from the answer. A
        "reserve" query has privacy losses (``Loss.to_dict``) instead of ledger entries.
    masking : mapping
        Public parameters of a secure sum: the participating sites and the grid of the noise. The mapping is
        empty for other queries.
    reservation : str
        Name of the session in which the cost of the query was reserved; empty without a reservation.
    purpose : str
        Description of the fit, which a site stores next to its ledger entries. It is cut to 200 printable
        characters. The digest does not cover it.

    Raises
    ------
    ArgumentError
        Raised if an argument cannot be sent, because it is a function, an object or nan.

    Notes
    -----
    **Privacy.** Costs nothing: a query contains only public numbers and earlier releases.
    """

    op: str
    args: Mapping[str, Any] = field(default_factory=dict)
    _: KW_ONLY
    version: int = 1
    design: str = ""
    session: str = ""
    sequence: int = 0
    charges: tuple[Mapping[str, Any], ...] = ()
    masking: Mapping[str, Any] = field(default_factory=dict)
    reservation: str = ""
    purpose: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.op, str) or not self.op:
            raise ArgumentError(
                "op= must be a non-empty string, the name of the statistic that the query requests"
            )
        texts = (self.design, self.session, self.reservation, self.purpose)
        if not all(isinstance(text, str) and is_unicode(text) for text in texts):
            raise ArgumentError(
                "design=, session=, reservation= and purpose= of a query must be strings of Unicode "
                "characters"
            )
        object.__setattr__(self, "purpose", stated_text(self.purpose))
        if not isinstance(self.args, Mapping) or not isinstance(self.masking, Mapping):
            raise ArgumentError("args and masking of a query must be mappings")
        lines = self.charges
        if not isinstance(lines, (list, tuple)) or not all(isinstance(line, Mapping) for line in lines):
            raise ArgumentError(
                "charges of a query must be a list of mappings, one for each entry in the site's ledger"
            )
        check_count(self.version, "version", least=0)
        if check_count(self.sequence, "sequence", least=0) > LAST_POSITION:
            raise ArgumentError(f"sequence= of a query must be at most {LAST_POSITION}")
        object.__setattr__(self, "args", MappingProxyType(plain_args(self.args)))
        object.__setattr__(self, "charges", tuple(dict(charge) for charge in self.charges))
        masking = json.loads(_json(dict(self.masking))) if self.masking else {}
        object.__setattr__(self, "masking", MappingProxyType(masking))

    @property
    def digest(self) -> str:
        """SHA-256 digest of the query without its purpose, in hexadecimal; the same on every platform."""
        return self.digest_with()

    def digest_with(self, **changed: Unpack[Changed]) -> str:
        """Return the digest that this query would have with some fields changed.

        Parameters
        ----------
        **changed
            Names and new values of the changed fields.

        Returns
        -------
        str
            SHA-256, in hexadecimal.
        """
        return message_digest(*self._packed({"purpose": "", **changed}))

    @property
    def subject(self) -> str:
        """SHA-256 digest of the statistic and its arguments, without the session and the cost."""
        return self.digest_with(session="", sequence=0, charges=(), masking={}, reservation="")

    def pack(self) -> Message:
        """Return the query as JSON text and a dictionary of arrays, to be sent.

        Returns
        -------
        tuple (str, dict of ndarray)
            For `unpack`.
        """
        return self._packed(Changed())

    def _packed(self, changed: Changed) -> Message:
        header: dict[str, Any] = {name: getattr(self, name) for name in QUERY_FIELDS}
        header.update(changed)
        arrays = {name: value for name, value in header["args"].items() if isinstance(value, np.ndarray)}
        header["args"] = {name: value for name, value in header["args"].items() if name not in arrays}
        header["masking"] = dict(header["masking"])
        for name in [name for name in ("masking", "reservation", "purpose") if not header[name]]:
            del header[name]
        return _json(header), arrays

    def charged(self, *charges: Mapping[str, Any]) -> Query:
        """Return a copy of the query with different ledger entries.

        Parameters
        ----------
        *charges : mapping
            New ledger entries.

        Returns
        -------
        Query
            The copy. The original query is unchanged.
        """
        query = object.__new__(Query)
        for name in QUERY_FIELDS:
            object.__setattr__(query, name, getattr(self, name))
        object.__setattr__(query, "charges", tuple(dict(charge) for charge in charges))
        return query

    @classmethod
    def unpack(cls, text: str, arrays: Mapping[str, NDArray[Any]]) -> Query:
        """Make the message from JSON text and arrays that `pack` returned.

        Parameters
        ----------
        text : str
            The JSON text.
        arrays : mapping of str to ndarray
            The arrays by name.

        Returns
        -------
        Query
            The same query.

        Raises
        ------
        StorageError
            Raised if the text and the arrays do not describe a query.
        """
        with suppress(Exception):  # a text of unknown origin may contain anything; its errors may quote it
            header = _parse_header(text, cls)
            if not set(header["args"]) & set(arrays):
                args = header["args"] | dict(arrays)
                return cls(**header | {"args": args, "charges": tuple(header["charges"])})
        raise StorageError(NO_QUERY)

    def __reduce__(self) -> tuple[Any, ...]:
        return Query.unpack, self.pack()


QUERY_FIELDS = tuple(field.name for field in fields(Query))


@error_boundaries
@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Reply:
    """Reply of a site to a query.

    Attributes
    ----------
    site : str
        Name of the site.
    sums : ndarray
        The statistic, summed over the rows of the site. Only a site that trusts the server sends such sums,
        which have no noise.
    rows : int
        Public number of rows of the site.
    facts : mapping
        Public facts about the site, which are the reply to a "describe" query.
    error : str
        Error of a site that refused the query, as ``"ErrorName: message"``. The message contains no value of
        a row.
    masked : ndarray of uint64
        Answer to a query for a secure sum: noisy integers to which masks are added.

    Raises
    ------
    ArgumentError
        Raised if a field has a wrong type.
    """

    site: str
    sums: Floats
    rows: int
    facts: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    masked: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, dtype=np.uint64))

    def __post_init__(self) -> None:
        kinds = {"site": str, "error": str, "facts": Mapping, "sums": np.ndarray, "masked": np.ndarray}
        if wrong := [name for name, kind in kinds.items() if not isinstance(getattr(self, name), kind)]:
            raise ArgumentError(f"the field {wrong[0]} of a reply has the wrong type")
        if check_count(self.rows, "rows", least=0) > MOST_SITE_ROWS:
            raise ArgumentError(f"a reply must have at most {MOST_SITE_ROWS} rows")

    def pack(self) -> Message:
        """Return the reply as JSON text and a dictionary of arrays, to be sent.

        Returns
        -------
        tuple (str, dict of ndarray)
            For `unpack`.
        """
        arrays: dict[str, NDArray[Any]] = {"sums": self.sums}
        header = {
            field.name: getattr(self, field.name) for field in fields(self) if field.name not in _REPLIED
        }
        return _json(header), arrays | ({"masked": self.masked} if self.masked.size else {})

    @classmethod
    def unpack(cls, text: str, arrays: Mapping[str, NDArray[Any]]) -> Reply:
        """Make the message from JSON text and arrays that `pack` returned.

        Parameters
        ----------
        text : str
            The JSON text.
        arrays : mapping of str to ndarray
            The arrays by name.

        Returns
        -------
        Reply
            The same reply.

        Raises
        ------
        StorageError
            Raised if the text and the arrays do not describe a reply.
        """
        with suppress(Exception):  # as for a query
            right = all(arrays[name].dtype == _REPLIED[name] for name in arrays)
            if "sums" in arrays and right:
                return cls(**_parse_header(text, cls) | dict(arrays))
        raise StorageError(DAMAGED.format("reply of a site"))

    def __repr__(self) -> str:
        return f"Reply(site={self.site!r}, rows={self.rows}, sums of shape {self.sums.shape} (values hidden))"


def message_digest(text: str, arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return the SHA-256 of a message, in hexadecimal."""
    sha = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        sha.update(f"{name}:{array.dtype.kind}{array.dtype.itemsize}:{array.shape};".encode())
        sha.update(little.reshape(-1).view(np.uint8).data)
    return sha.hexdigest()


def plain_args(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return a query's arguments as a transport carries them, without None values."""
    return {name: _plain(value, name) for name, value in args.items() if value is not None}


def _plain(value: Any, name: str) -> Any:
    """Return a value as a transport carries it: text, flag, number, mapping of such, or array of numbers."""
    if isinstance(value, (str, bool)):
        return value
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (int, float)):
        if value != value or value in (np.inf, -np.inf):
            raise ArgumentError(f"the argument {name!r} of a query must be a finite number")
        return value
    if isinstance(value, (list, tuple, np.ndarray)):
        return _plain_array(value, name)
    if isinstance(value, Mapping):
        return json.loads(_json(value))
    kind = type(value).__name__
    raise ArgumentError(
        f"the argument {name!r} of a query must be a number, a string or an array, got {kind}"
    )


def _plain_array(value: Any, name: str) -> NDArray[Any]:
    try:
        array = np.asarray(value)
    except ValueError:
        raise ArgumentError(f"the argument {name!r} of a query must be an array of numbers") from None
    if array.dtype.kind not in _KINDS:
        raise ArgumentError(f"the argument {name!r} of a query must be an array of numbers")
    if not np.isfinite(array).all():
        raise ArgumentError(f"the argument {name!r} of a query has nan or infinite entries")
    kind = np.int64 if array.size == 0 and array.dtype.kind == "f" else _KINDS[array.dtype.kind]
    copy: NDArray[Any] = np.array(array, dtype=kind)
    copy.setflags(write=False)
    return copy


def _json(content: Any) -> str:
    try:
        return _ENCODER.encode(content)
    except (TypeError, ValueError, RecursionError):
        problem = (
            "a message can contain only JSON values: strings, booleans, finite numbers, and lists "
            "and mappings of these"
        )
    raise ArgumentError(problem)


def _parse_header(text: str, kind: Any) -> dict[str, Any]:
    with suppress(ValueError, RecursionError):
        header = json.loads(text)
        if isinstance(header, dict) and set(header) <= set(kind.__dataclass_fields__):
            return header
    raise StorageError(DAMAGED.format(kind.__name__.lower()))


class Federation(Protocol):
    """Interface of a federation: a set of sites that answer queries.

    Implementations send each packed `Query` to the sites, and return their unpacked `Reply` objects.
    """

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites."""
        ...

    def ask(self, query: Query, sites: Sequence[str] | None = None) -> list[Reply]:
        """Return the replies of the queried sites.

        Parameters
        ----------
        query : Query
            The query.
        sites : sequence of str, optional
            Names of the sites to query; by default all sites.

        Returns
        -------
        list of Reply
            Replies of the sites that answered, in the order of the sites.

        Notes
        -----
        **Privacy.** Each site decides by its own policy and ledger which queries it answers.
        """
        ...


def check_alike(descriptions: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise AlignmentError, naming a site, unless all describe the same version, columns and bounds."""
    names = list(descriptions)
    first = descriptions[names[0]]
    for name, description in descriptions.items():
        version, first_version = (
            shown_name(facts.get("version", "unknown")).strip("'") for facts in (description, first)
        )
        if version != first_version:
            raise AlignmentError(
                f"site {name!r} has privinf {version}, but site {names[0]!r} has {first_version}; install "
                "the same version at all sites"
            )
        if not _is_description(description):
            raise AlignmentError(f"site {name!r} did not send a valid description of its columns")
    for name in names[1:]:
        description = descriptions[name]
        # A digest leaves out bounds whose last bit may depend on the platform.
        for part, source in (("schema", "schema"), ("digest", "design")):
            if first[part] != description[part]:
                difference = _difference(first[source], description[source])
                raise AlignmentError(
                    f"{difference} of site {name!r} differ from those of site {names[0]!r}; use the "
                    f"same {source} at all sites"
                )


def _is_description(facts: Mapping[str, Any]) -> bool:
    """Return whether a site's facts have the types of a description."""
    for part, kind in (("design", list), ("schema", Mapping)):
        value = facts.get(part, 0)
        if value is not None and not (isinstance(value, Mapping) and isinstance(value.get("columns"), kind)):
            return False
    texts = (facts.get("version"), facts.get("digest"))
    return all(isinstance(text, str) for text in texts) and isinstance(facts.get("roster"), str | None)


def lasting(description: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a site's description without the design of its last query, if its schema can take others."""
    # A site that was started again has none, and may yet be one of those that go on with a fit.
    return description if description.get("schema") is None else {**description, "design": None, "digest": ""}


def _difference(first: Any, second: Any) -> str:
    """Return the differences of two descriptions."""
    if first is None or second is None:
        return "the schema and design"
    names, other_names = (
        sorted(columns) if isinstance(columns, Mapping) else list(columns)
        for columns in (first["columns"], second["columns"])
    )
    return "the columns" if names != other_names else "the bounds or levels"
