"""Eight sites with rows of a small regression, and the fits that every transport must repeat."""

import numpy as np
import pandas as pd
import statsmodels.api as sm

import privinf as pi
from privinf.federation import RemoteSite, Site, SitePolicy, pinned_keys

NAMES = [f"site{k}" for k in range(8)]
FORMULA = "y ~ u + v"
SCHEMA = pi.Schema({"y": (0.0, 1.0), "u": (-1.0, 1.0), "v": (-1.0, 1.0)})
POLICY = SitePolicy(trusted_server=True, secure_sums=True, simulation=True)
TRUSTS = ("server", "secure-sum")


def table():
    rng = np.random.default_rng(2)
    x = rng.uniform(-1.0, 1.0, (1600, 2))
    y = rng.uniform(size=1600) < 1.0 / (1.0 + np.exp(-0.3 - x @ [1.0, -0.5]))
    return pd.DataFrame({"y": y.astype(float), "u": x[:, 0], "v": x[:, 1]})


def sites_of(names=NAMES, *, kinds=None, policies=None, ledgers=None, schemas=None, pinned=None):
    """Return new sites of unequal sizes; what differs from site to site is given by name."""
    keys, roster = pinned or pinned_keys(NAMES)
    cuts = np.cumsum([90, 110, 150, 170, 210, 230, 290, 350])
    parts = dict(zip(NAMES, np.split(np.arange(1600), cuts[:-1]), strict=True))
    return {
        name: (kinds or {}).get(name, Site)(
            table().iloc[parts[name]],
            (schemas or {}).get(name, SCHEMA),
            key=keys[name],
            roster=roster,
            policy=(policies or {}).get(name, POLICY),
            ledger=(ledgers or {}).get(name),
        )
        for name in names
    }


def model_of(federation, trust):
    return pi.FederatedGLM.from_formula(FORMULA, federation, schema=SCHEMA, family="binomial", trust=trust)


def fits_of(federation, names=("exact", "private", "moments")):
    """Return what the fits say: without noise and with seeded noise, for both kinds of trust."""
    found = {}
    for trust in TRUSTS:
        model = model_of(federation, trust)
        moments = pi.MomentOLS.from_formula(FORMULA, federation, schema=SCHEMA, trust=trust)
        fits = {
            "exact": lambda model=model: model.fit(epsilon=np.inf),
            "private": lambda model=model: model.fit(
                epsilon=8.0, delta=1e-5, optimizer=pi.Newton(rounds=1), rng=0
            ),
            "moments": lambda model=moments: model.fit(epsilon=8.0, delta=1e-5, rng=0),
        }
        for name in names:
            fit = fits[name]()
            found[f"{trust}, {name}"] = [*fit.params, *fit.bse, *fit.conf_int().to_numpy().ravel()]
    return found


def pooled():
    """Return statsmodels' estimates and standard errors from all rows in one table."""
    model = sm.GLM.from_formula(FORMULA, table(), family=sm.families.Binomial())
    fit = model.fit(cov_type="HC0", tol=1e-14, maxiter=100)
    return [*fit.params, *fit.bse]


class Doors:
    """Sites behind the sockets of a folder as a federation."""

    def __init__(self, folder, names=NAMES, timeout=600.0):
        self.remote = {name: RemoteSite(folder / name, timeout=timeout) for name in names}

    @property
    def sites(self):
        return tuple(self.remote)

    def ask(self, query, sites=None):
        return [self.remote[name].handle(query, name) for name in sites or self.sites]
