"""Sites in this process: a federation of them, and sites made of pairs (y, X) that the caller holds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from privinf.doors import doors
from privinf.errors import ArgumentError, PrivinfError, SchemaError
from privinf.federation.messages import Query, Reply, check_alike, lasting
from privinf.federation.policy import SitePolicy
from privinf.federation.secure.keys import pinned_keys
from privinf.federation.site import Site
from privinf.mechanisms.rows import Rows
from privinf.schema import Design
from privinf.schema.arrays import CONSTANT, PUBLIC_MARK
from privinf.typing import ColumnLike, ColumnsLike, Floats
from privinf.validation import check_array


@doors
class InProcessFederation:
    """Sites in this process: for tests, simulation and analyses of one holder's own files.

    Parameters
    ----------
    sites : mapping of str to Site
    drop_outs : mapping of str to collection of int, optional
        Calls of `ask` (0, 1, ...) that never reach a site: an injected failure.
    lost_replies : mapping of str to collection of int, optional
        Calls whose reply is lost on the way: the site has answered and charged them.

    Raises
    ------
    ArgumentError
        There is no site, or a name is not a text.
    AlignmentError
        Sites have different columns or bounds; the message names one.

    Notes
    -----
    **Privacy.** Carries messages and nothing else; what a site answers is the site's decision.

    Examples
    --------
    >>> import numpy as np
    >>> from privinf.schema import Design
    >>> design = Design.from_arrays(["x"], bounds=[(-1, 1)], y_bounds=(-2, 2))
    >>> two = {name: Site((np.zeros(5), np.zeros((5, 1))), design) for name in ("north", "south")}
    >>> [reply.rows for reply in InProcessFederation(two).ask(Query("describe"))]
    [5, 5]
    """

    def __init__(
        self,
        sites: Mapping[str, Site],
        *,
        drop_outs: Mapping[str, Collection[int]] | None = None,
        lost_replies: Mapping[str, Collection[int]] | None = None,
    ) -> None:
        if not isinstance(sites, Mapping) or not sites:
            raise ArgumentError("sites must map names to Site objects, at least one")
        for name, site in sites.items():
            if not isinstance(name, str) or not name.strip() or "=" in name:
                raise ArgumentError("a site's name is a non-empty text without '='")
            if not isinstance(site, Site):
                raise ArgumentError(f"site {name!r} must be a Site, got {type(site).__name__}")
        self._sites = dict(sites)
        self._failing = tuple(
            {name: frozenset(calls) for name, calls in (given or {}).items()}
            for given in (drop_outs, lost_replies)
        )
        for name in (name for given in self._failing for name in given):
            self._known(name)
        self._calls = 0
        check_alike({name: lasting(site.description()) for name, site in self._sites.items()})

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites."""
        return tuple(self._sites)

    def ask(self, query: Query, sites: Sequence[str] | None = None) -> list[Reply]:
        """Return the replies of those asked (all by default) in their order; who did not answer is absent."""
        asked = self.sites if sites is None else tuple(self._known(name) for name in sites)
        call, self._calls = self._calls, self._calls + 1
        missed, lost = self._failing
        replies, message = [], query.pack()
        for name in asked:
            if call in missed.get(name, ()):
                continue
            reply = self._sites[name].handle(Query.unpack(*message), name)
            if call not in lost.get(name, ()):
                replies.append(reply)
        return replies

    def _known(self, name: str) -> str:
        if name not in self._sites:
            raise ArgumentError(f"no site is called {name!r}; there are {', '.join(map(repr, self._sites))}")
        return name

    def __repr__(self) -> str:
        return f"<InProcessFederation of {len(self._sites)} sites>"

    def __reduce__(self) -> Any:
        raise TypeError("a federation in this process holds raw rows: it is not pickled")


Parties: TypeAlias = Sequence[tuple[Any, Any]] | Mapping[Any, tuple[Any, Any]]

ONE_PARTY = "all"
# What sites of a federation may trust: a server with their sums, or with masked sums only.
FEDERATED_TRUST = ("server", "secure-sum")


def parts_of(parties: Parties) -> tuple[dict[Any, Rows], list[str]]:
    """Return the rows of one pair (y, X) a site by label, numbered where they have none, and their columns.

    Raises
    ------
    ArgumentError, SchemaError
        There is no site, one has no rows or wrong ones, or they differ in their columns; the message names
        the site and shows no value.
    """
    if not isinstance(parties, (Mapping, Sequence)) or isinstance(parties, (str, bytes)) or not len(parties):
        raise ArgumentError("parties must hold at least one pair (y, X)")
    given = parties.items() if isinstance(parties, Mapping) else enumerate(parties)
    parts: dict[Any, Rows] = {}
    columns: dict[str, list[str]] = {}
    for label, pair in given:
        name = str(label)
        if name in columns:
            raise ArgumentError(f"two sites are called {name!r}")
        with _naming(name):
            parts[label], columns[name] = _rows_of(pair)
    first = next(iter(columns))
    for name, names in columns.items():
        if names != columns[first]:
            raise ArgumentError(f"site {name!r} has other columns than site {first!r}")
    return parts, columns[first]


def matrix_of(X: ColumnsLike) -> tuple[Floats, list[str]]:
    """Return the columns and their names."""
    if not isinstance(X, pd.DataFrame):
        features = check_array(X, "X", ndim=2)
        return features, [f"x{j + 1}" for j in range(features.shape[1])]
    if any(not isinstance(name, str) for name in X.columns):
        raise SchemaError("X has column labels that are not strings: rename them")
    return check_array(X.to_numpy(), "X", ndim=2), [str(name) for name in X.columns]


def response_of(y: ColumnLike, rows: int) -> Floats:
    """Return the response of some rows, at least one."""
    found = check_array(np.asarray(y), "y", ndim=1)
    if len(found) != rows:
        raise ArgumentError(f"y has {len(found)} rows and X has {rows}")
    if rows == 0:
        raise ArgumentError("a party needs at least one row")
    return found


class LocalSites(InProcessFederation):
    """Sites whose rows are the caller's own, who says what may be asked by asking it."""

    def allow(self, operations: Iterable[str]) -> None:
        """Let the sites answer some statistics of studies too."""
        for site in self._sites.values():
            site.policy = site.policy.naming(operations)


def in_process(
    design: Design, parts: Mapping[Any, Rows], *, keyed: bool = False, zero_out: bool = False
) -> LocalSites:
    """Return sites of this process that hold these rows; `keyed` for secure sums.

    Raises
    ------
    ArgumentError
        Secure sums are asked for, and there is one site only.
    """
    rows = {str(label): part for label, part in parts.items()}
    if not keyed:
        policy = SitePolicy(trusted_server=True, simulation=True, zero_out=zero_out)
        return LocalSites({name: Site(part, design, policy=policy) for name, part in rows.items()})
    if len(rows) < 2:
        raise ArgumentError('a secure sum needs two parties or more: with one, use trust="server"')
    keys, roster = pinned_keys(rows)
    policy = SitePolicy(secure_sums=True, simulation=True, zero_out=zero_out)
    return LocalSites({
        name: Site(part, design, policy=policy, key=keys[name], roster=roster)
        for name, part in rows.items()
    })  # fmt: skip


def _rows_of(pair: Any) -> tuple[Rows, list[str]]:
    """Return one site's rows and columns."""
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise ArgumentError("a party is a pair (y, X)")
    y, X = pair
    features, names = matrix_of(X)
    response = response_of(y, len(features))
    if isinstance(X, pd.DataFrame) and set(X.attrs.get(PUBLIC_MARK, ())) - {CONSTANT}:
        raise ArgumentError("a federation of arrays has one public column, the constant 'const'")
    if CONSTANT in names and not (features[:, names.index(CONSTANT)] == 1.0).all():
        raise SchemaError(f"column {CONSTANT!r} is the constant but is not all ones")
    return Rows(features, response), names


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Put the site's name before the message of an error, which holds no value."""
    try:
        yield
    except PrivinfError as error:
        raise type(error)(f"site {name!r}: {error}") from None
