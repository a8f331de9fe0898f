"""Federation: sites that hold rows, the questions they are asked, and servers that they trust or need not.

An estimator sees `TrustedServer` or `SecureServer` (over `Federation.ask`); a `Site` decides by its own
`SitePolicy` what it answers and keeps its own ledger. Queries and replies are JSON and plain arrays, so that
`InProcessFederation` and a real transport carry the same messages.
"""

from privinf.federation.daemon import RemoteSite, SiteDaemon
from privinf.federation.flower import FlowerFederation
from privinf.federation.in_process import Federation, InProcessFederation
from privinf.federation.messages import Query, Reply
from privinf.federation.noisy import NoisyGram, NoisySum
from privinf.federation.policy import SitePolicy
from privinf.federation.secure.keys import IdentityKey, Roster, pinned_keys
from privinf.federation.secure.server import SecureServer
from privinf.federation.site import Site
from privinf.federation.site_ledger import SiteLedger
from privinf.federation.trusted import TrustedServer

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
    "TrustedServer",
    "pinned_keys",
]
