"""Sites over Flower: its SuperLink and SuperNodes carry the messages, and nothing else of it is used.

The only module that imports flwr (the extra ``privinf[flower]``). Flower brings processes, TLS and keys of
the nodes; noise, masks, policies and ledgers are this package's own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from os import PathLike
from typing import Any

from privinf.error_boundary import bare, error_boundaries
from privinf.errors import (
    AlignmentError,
    ArgumentError,
    NotAvailableError,
    PrivinfError,
    SiteConnectionError,
    StorageError,
)
from privinf.federation.askers import ClientEnvelope, EndOptions, ReplyVerifier, ends_of
from privinf.federation.envelope import Envelope, Fields, SiteEnvelope
from privinf.federation.frames import FOREIGN
from privinf.federation.messages import (
    LONGEST_ERROR,
    NO_QUERY,
    Message,
    Query,
    Reply,
    check_alike,
    lasting,
)
from privinf.federation.rounds import reason_of, refusal_of
from privinf.federation.secure.keys import IdentityKey, Roster
from privinf.federation.site import NOTHING, Site
from privinf.federation.sockets import RemoteSite, no_reply, own_reply
from privinf.validation import check_positive
from privinf.wire import Requests

log = logging.getLogger(__name__)

ACTION = "privinf"
KIND = f"query.{ACTION}"

# By message id of a query: its node and its envelope.
Waiting = dict[str, tuple[int, Envelope]]
SiteOfNode = Callable[[Mapping[str, Any]], tuple[str, Site | RemoteSite]]


def engine(name: str) -> Any:
    """Return a module of flwr (NotAvailableError, which names the extra that brings it, if it is absent)."""
    try:
        return import_module(f"flwr.{name}")
    except ImportError:
        raise NotAvailableError(
            "a federation over Flower needs the package flwr; run pip install 'privinf[flower]'"
        ) from None


@error_boundaries
class FlowerFederation(ReplyVerifier):
    """Federation whose sites are nodes of the framework Flower.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        Object `Grid` that Flower passes to a ServerApp.
    sites : sequence of str
        Names of the sites. Nodes with other names are not queried.
    timeout : float
        Number of seconds to wait for the answers to a query. Later answers are ignored.
    patience : float
        Number of seconds to wait until all sites are connected.
    poll : float
        Number of seconds between two checks for answers.
    roster : Roster, optional
        Public keys of all sites. If `roster` is passed, every reply must be signed with the key of its site.
        By default signatures are not checked.
    key : IdentityKey, optional
        Secret key of the analyst, which is needed if the policy of a site lists analysts.
    heads : path, optional
        File that stores, for each site, the last line of its ledger. If a site later uses an older copy of
        its ledger, this line reveals the older copy. By default the last lines are stored in this object, and
        in the `checkpoint` folder of a fit.

    Raises
    ------
    AlignmentError
        Raised if a site is not connected in time, two nodes have the name of the same site, or sites have
        different columns or bounds. The message names one of the sites.
    ArgumentError
        Raised if a name is not a string or occurs twice, or a number of seconds is not positive.

    Notes
    -----
    **Privacy.** The federation only transmits messages. Each site decides by its own policy and ledger which
    queries it answers. All answers are visible on the computer of the SuperLink of Flower, and to anyone who
    may start a run there. Sums without noise are sent only by sites that trust the server. Masked sums alone
    reveal nothing. Anyone who may start a run can also send code to the nodes, so use a `SiteDaemon` under a
    different account to protect the rows.

    If a site reconnects as a new node, make a new federation, because this object does not find the new node.
    """

    def __init__(
        self,
        grid: Any,
        sites: Sequence[str],
        *,
        timeout: float = 120.0,
        patience: float = 120.0,
        poll: float = 0.25,
        roster: Roster | None = None,
        key: IdentityKey | None = None,
        heads: str | PathLike[str] | None = None,
    ) -> None:
        if isinstance(sites, str) or not all(isinstance(name, str) for name in sites) or not sites:
            raise ArgumentError("sites= must be a list with the name of at least one site")
        if len(set(sites)) < len(sites):
            raise ArgumentError("sites= contains the same name twice: list each site once")
        self._grid = grid
        self._timeout = check_positive(timeout, "timeout")
        self._poll = check_positive(poll, "poll")
        self._end = ClientEnvelope(sites, roster=roster, key=key, heads=heads)
        self._nodes = self._introduced(tuple(sites), check_positive(patience, "patience"))

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites."""
        return tuple(self._nodes)

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
        names = {self._node(name): name for name in (self.sites if sites is None else sites)}
        waiting = self._push(query, names, self._timeout)
        end = time.monotonic() + self._timeout
        replies: dict[str, Reply] = {}
        while True:
            for node, reply in self._pull(waiting):
                if reply is not None:
                    replies[names[node]] = own_reply(reply, names[node])
            if not waiting or time.monotonic() >= end:
                break
            time.sleep(self._poll)
        self._end.memory.save()
        for node, _ in waiting.values():
            log.warning("site %r did not answer within %g s", names[node], self._timeout)
        return [replies[name] for name in names.values() if name in replies]

    def _introduced(self, names: tuple[str, ...], patience: float) -> dict[str, int]:
        """Query all nodes for their names until the sites are found; return their nodes."""
        end = time.monotonic() + patience
        called: set[int] = set()
        waiting: Waiting = {}
        nodes: dict[str, int] = {}
        facts: dict[str, Mapping[str, Any]] = {}
        while set(nodes) != set(names):
            if (seconds := end - time.monotonic()) <= 0.0:
                absent = [repr(name) for name in names if name not in nodes]
                raise SiteConnectionError(
                    f"{'site' if len(absent) == 1 else 'sites'} {', '.join(absent)} did not answer within "
                    f"{patience:g} seconds; check that {'it is' if len(absent) == 1 else 'they are'} running"
                )
            new = set(self._called(self._grid.get_node_ids)) - called
            waiting |= self._push(Query(Requests.DESCRIBE), dict.fromkeys(new, ""), seconds)
            called |= new
            for node, reply in self._pull(waiting):
                if reply is None:
                    called.discard(node)  # its daemon may not be up yet
                elif reply.site in names:
                    if reply.error:
                        raise refusal_of(reply)
                    if reply.site in nodes:
                        raise AlignmentError(
                            f"two Flower nodes have the same site name, {reply.site!r}; stop one of "
                            "them, or give it another name"
                        )
                    self._end.check_roster(reply.site, reply.facts)
                    nodes[reply.site] = node
                    facts[reply.site] = reply.facts
            time.sleep(self._poll)
        self._end.memory.save()
        check_alike({name: lasting(facts[name]) for name in names})
        return {name: nodes[name] for name in names}

    def _push(self, query: Query, nodes: Mapping[int, str], seconds: float) -> Waiting:
        """Send a query to nodes of these names; return node and envelope by the message to each."""
        app = engine("app")
        message = query.pack()
        envelopes = {node: self._end.envelope_for(query, name) for node, name in nodes.items()}
        messages = [
            app.Message(packed(message, envelopes[node].fields), node, KIND, ttl=seconds)
            for node in envelopes
        ]
        self._called(self._grid.push_messages, messages)
        return {
            sent_message.metadata.message_id: (node, envelopes[node])
            for sent_message, node in zip(messages, envelopes, strict=True)
        }

    def _pull(self, waiting: Waiting) -> list[tuple[int, Reply | None]]:
        """Return the received replies, None where a node could not answer, and remove them from `waiting`."""
        replies: list[tuple[int, Reply | None]] = []
        for message in self._called(self._grid.pull_messages, list(waiting)) if waiting else ():
            node, envelope = waiting.get(message.metadata.reply_to_message_id, (None, Envelope()))
            if node is None or (message.has_content() and message.metadata.src_node_id != node):
                continue
            del waiting[message.metadata.reply_to_message_id]
            if message.has_error():
                log.warning("node %d could not answer: %s", node, ascii(message.error.reason)[:LONGEST_ERROR])
            reply = None if message.has_error() else self._end.checked(envelope, *_reply(message.content))
            replies.append((node, reply))
        return replies

    def _called(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function of Flower's grid; SiteConnectionError if its connection fails."""
        try:
            return function(*args)
        except Exception as problem:  # of the network, of gRPC, of Flower
            kind = type(problem).__name__
            reason = reason_of(problem) if isinstance(problem, OSError) else "unknown reason"
            cause = bare(problem) if isinstance(problem, OSError) else None
        raise SiteConnectionError(f"Flower's connection to the sites failed ({kind}: {reason})") from cause

    def _node(self, name: str) -> int:
        if name not in self._nodes:
            raise ArgumentError(
                f"there is no site named {name!r}; the sites are {', '.join(map(repr, self._nodes))}"
            )
        return self._nodes[name]

    def __repr__(self) -> str:
        return f"<FlowerFederation of {len(self._nodes)} sites, {self._end.description}>"

    def __reduce__(self) -> Any:
        raise TypeError("a federation over Flower cannot be pickled, because it exists only during its run")


def client_app(site_of_node: SiteOfNode | None = None) -> Any:
    """Return the ClientApp of a site.

    Parameters
    ----------
    site_of_node : callable, optional
        Maps the node's configuration to the site's name and the site, or a connection to it; by default
        `daemon_of`.

    Raises
    ------
    NotAvailableError
        flwr is not installed.

    Notes
    -----
    **Privacy.** Passes queries on to the site and its answers back. The server receives only the name of
    an error, unless it is one of this package's, whose texts hold no values.
    """
    connect = daemon_of if site_of_node is None else site_of_node
    app = engine("clientapp").ClientApp()
    messages = engine("app")

    @app.query(ACTION)  # type: ignore[untyped-decorator]
    def handle(message: Any, context: Any) -> Any:
        try:
            name, site = connect(context.node_config)
            reply, envelope = _answered(message.content, name, site)
        except Exception as problem:
            text = f": {problem}" if isinstance(problem, PrivinfError) else ""
            error = messages.Error(0, f"{type(problem).__name__}{text}")
            return messages.Message(error, reply_to=message)
        return messages.Message(packed(reply.pack(), envelope), reply_to=message)

    return app


def server_app(
    analysis: Callable[[FlowerFederation, dict[str, Any]], None],
    sites: Sequence[str] | None = None,
    *,
    failed: Callable[[PrivinfError, dict[str, Any]], None] | None = None,
    timeout: float = 120.0,
    patience: float = 120.0,
    poll: float = 0.25,
    roster: Roster | None = None,
    key: IdentityKey | None = None,
    heads: str | PathLike[str] | None = None,
) -> Any:
    """Return the ServerApp that runs an analysis.

    Parameters
    ----------
    analysis : callable (federation, configuration)
        Gets the federation and the run's configuration (``flwr run --run-config``).
    sites : sequence of str, optional
        Names of the sites that take part. By default those that the run's configuration names:
        ``sites="north,south"``.
    failed : callable (problem, configuration), optional
        Called with the error that ends the analysis, or that prevents the federation, before it is raised.
    timeout : float
        Number of seconds to wait for the answers to a query. Later answers are ignored.
    patience : float
        Number of seconds to wait until all sites are connected.
    poll : float
        Number of seconds between two checks for answers.
    roster : Roster, optional
        Public keys of all sites. If `roster` is passed, every reply must be signed with the key of its site.
        By default signatures are not checked.
    key : IdentityKey, optional
        Secret key of the analyst, which is needed if the policy of a site lists analysts.
    heads : path, optional
        File that stores, for each site, the last line of its ledger. If a site later uses an older copy of
        its ledger, this line reveals the older copy. By default the last lines are stored in this object, and
        in the `checkpoint` folder of a fit.

    Returns
    -------
    flwr.serverapp.ServerApp
        For the entry ``serverapp`` of a Flower project.

    Raises
    ------
    NotAvailableError
        flwr is not installed.

    Notes
    -----
    **Privacy.** The federation only transmits messages. Each site decides by its own policy and ledger which
    queries it answers. Roster, key and heads may also be files at the server that the run's configuration
    names: ``roster="roster.json" key="ada.key" heads="heads.json"``.
    """
    end_options: EndOptions = {"roster": roster, "key": key, "heads": heads}
    app = engine("serverapp").ServerApp()

    @app.main()  # type: ignore[untyped-decorator]
    def main(grid: Any, context: Any) -> None:
        config = dict(context.run_config)
        try:
            names = _named(config) if sites is None else sites
            ends: EndOptions = {**end_options, **ends_of(config)}
            federation = FlowerFederation(grid, names, timeout=timeout, patience=patience, poll=poll, **ends)
            analysis(federation, config)
        except PrivinfError as problem:
            if failed is not None:
                failed(problem, config)
            raise

    return app


def _named(config: Mapping[str, Any]) -> list[str]:
    """Return the sites in a run's configuration."""
    text = config.get("sites")
    if not isinstance(text, str) or not text.strip():
        raise ArgumentError(
            'the configuration of the Flower run must set the names of the sites, such as sites="north,south"'
        )
    return [name.strip() for name in text.split(",")]


def daemon_of(config: Mapping[str, Any]) -> tuple[str, RemoteSite]:
    """Return the site's name and the way to its daemon, from a node's configuration.

    Parameters
    ----------
    config : mapping
        ``flower-supernode --node-config 'site="name" socket="path" timeout=60.0'``; `timeout`, in seconds,
        may be left out.

    Raises
    ------
    ArgumentError
        The configuration does not state that.
    """
    name = config.get("site")
    path = config.get("socket")
    if not isinstance(name, str) or not isinstance(path, str):
        raise ArgumentError(
            'the configuration of the Flower node must set site="name of the site" and '
            'socket="path of the site\'s socket"'
        )
    return name, RemoteSite(path, timeout=config.get("timeout", 60.0))


def packed(message: Message, envelope: Fields | None = None) -> Any:
    """Return a message, with its envelope, as Flower's RecordDict."""
    app = engine("app")
    text, arrays = message
    records = {name: app.Array(array) for name, array in arrays.items()}
    return app.RecordDict(
        {
            "message": app.ConfigRecord({"text": text}),
            "arrays": app.ArrayRecord(records),
            "envelope": app.ConfigRecord(dict(envelope or {})),
        }
    )


def unpacked(content: Mapping[str, Any]) -> Message:
    """Return the message in a RecordDict (StorageError if it holds none)."""
    try:
        text = content["message"]["text"]
        return text, {name: array.numpy() for name, array in content["arrays"].items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise StorageError(FOREIGN) from None


def enveloped(content: Mapping[str, Any]) -> dict[str, str]:
    """Return the envelope in a RecordDict, none if it has none; StorageError if it is not one."""
    envelope = content.get("envelope", {})
    if not isinstance(envelope, Mapping) or not all(isinstance(text, str) for text in envelope.values()):
        raise StorageError("the message was not written by privinf")
    return dict(envelope)


def _answered(content: Any, name: str, site: Site | RemoteSite) -> tuple[Reply, Fields]:
    try:
        query = Query.unpack(*unpacked(content))
        envelope = enveloped(content)
        query_envelope = Envelope.from_fields(envelope)
    except Exception:
        # A text of unknown origin may contain anything; its errors may quote it.
        return Reply(site=name, sums=NOTHING, rows=0, error=f"StorageError: {NO_QUERY}"), {}
    if not envelope:
        return site.handle(query, name), envelope
    if isinstance(site, RemoteSite):
        return site.exchange(query, name, envelope)
    return SiteEnvelope(site, name).answer(query_envelope, query)


def _reply(content: Any) -> tuple[Reply, Fields]:
    """Return a node's reply and its envelope; a message that is not a reply becomes an error reply."""
    try:
        return Reply.unpack(*unpacked(content)), enveloped(content)
    except Exception:
        return no_reply(""), {}
