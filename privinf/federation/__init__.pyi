from .daemon import SiteDaemon as SiteDaemon
from .flower import FlowerFederation as FlowerFederation
from .local import InProcessFederation as InProcessFederation
from .messages import Federation as Federation
from .messages import Query as Query
from .messages import Reply as Reply
from .noisy import NoisyGram as NoisyGram
from .noisy import NoisySum as NoisySum
from .policy import SitePolicy as SitePolicy
from .secure.keys import IdentityKey as IdentityKey
from .secure.keys import Roster as Roster
from .secure.keys import pinned_keys as pinned_keys
from .secure.server import SecureServer as SecureServer
from .site import Site as Site
from .site_ledger import SiteLedger as SiteLedger
from .sockets import RemoteSite as RemoteSite
from .sockets import SocketFederation as SocketFederation
from .trusted import TrustedServer as TrustedServer

__all__ = [
    "Federation",
    "FlowerFederation",
    "IdentityKey",
    "InProcessFederation",
    "NoisyGram",
    "NoisySum",
    "Query",
    "RemoteSite",
    "Reply",
    "Roster",
    "SecureServer",
    "Site",
    "SiteDaemon",
    "SiteLedger",
    "SitePolicy",
    "SocketFederation",
    "TrustedServer",
    "pinned_keys",
]
