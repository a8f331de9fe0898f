"""Federation: sites that hold rows, queries to them, and trusted or untrusted servers.

An estimator sees `TrustedServer` or `SecureServer` (over `Federation.ask`); a `Site` decides by its own
`SitePolicy` on its answers and keeps its own ledger. Queries and replies are JSON and plain arrays, so that
`InProcessFederation` and a real transport carry the same messages.
"""

from privinf.attributes import attach_names

__getattr__, __dir__, __all__ = attach_names(__name__, __file__)
