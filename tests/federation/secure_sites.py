"""Sites with keys and one pinned roster, for secure sums over the small sparse regression."""

from contextlib import suppress

from federation_sites import design_of, rows_of

from privinf.federation import InProcessFederation, SecureServer, Site, SitePolicy, pinned_keys
from privinf.federation.policy import StatedPolicy

SECURE = SitePolicy(secure_sums=True)
SIMULATED = SitePolicy(secure_sums=True, simulation=True)
SCORE = {"columns": [0, 1, 2, 3], "clip": 2.0, "residual_clip": 1.5}
THREE = ("north", "south", "west")


def sites_of(names=THREE, policy=SECURE, rows=60, ledgers=None, policies=None):
    keys, roster = pinned_keys(names)
    return {
        name: Site(
            rows_of(rows + 10 * seed, seed),
            design_of(),
            policy=(policies or {}).get(name, policy),
            key=keys[name],
            roster=roster,
            ledger=(ledgers or {}).get(name),
        )
        for seed, name in enumerate(names)
    }


def secure_federation(names=THREE, policy=SECURE, rows=60, ledgers=None, policies=None, **options):
    return InProcessFederation(sites_of(names, policy, rows, ledgers, policies), **options)


class Tapped:
    """A federation whose queries and replies are seen, and may be changed on their way."""

    def __init__(self, inner, change=None):
        self.inner, self.change, self.queries, self.replies = inner, change, [], []

    @property
    def sites(self):
        return self.inner.sites

    def ask(self, query, sites=None):
        replies = self.inner.ask(query, sites)
        if query.masking:
            self.queries.append(query)
            self.replies.append(replies)
            if self.change is not None:
                replies = self.change(query, replies)
        return replies


def secure_query(federation, mu=1.0, op="clipped_score", args=None, **options):
    """Return a query that a server would ask if it ignored the rules that sites state, without asking it."""

    class Stopped(BaseException):
        pass

    class Stopping(Tapped):
        def ask(self, query, sites=None):
            if query.masking:
                self.queries.append(query)
                raise Stopped
            return self.inner.ask(query, sites)

    stopping = Stopping(federation)
    server = SecureServer(stopping, **options)
    server._rounds.policies = dict.fromkeys(server.sites, StatedPolicy())
    with suppress(Stopped):
        server.vector_sum(op, args or SCORE, mu=mu, label="score")
    return stopping.queries[0]
