"""Federation: sites that hold rows, the questions they are asked, and the server that they trust.

An estimator sees `TrustedServer` (or another server over `Federation.ask`); a `Site` decides by its own
`SitePolicy` what it answers and keeps its own ledger. Queries and replies are JSON and plain arrays, so that
`InProcessFederation` and a real transport carry the same messages.
"""

from privinf.federation.in_process import Federation, InProcessFederation
from privinf.federation.messages import Query, Reply
from privinf.federation.noisy import NoisyGram, NoisySum
from privinf.federation.policy import SitePolicy
from privinf.federation.site import Site
from privinf.federation.trusted import TrustedServer

__all__ = [
    "Federation",
    "InProcessFederation",
    "NoisyGram",
    "NoisySum",
    "Query",
    "Reply",
    "Site",
    "SitePolicy",
    "TrustedServer",
]
