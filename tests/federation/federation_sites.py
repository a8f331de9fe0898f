"""Two sites with rows of a small sparse regression, the second with twice the rows of the first."""

import numpy as np

from privinf.federation import InProcessFederation, Site, SitePolicy
from privinf.schema import Design

OPEN = SitePolicy(trusted_server=True, simulation=True)
NAMES = ["a", "b", "c", "d"]


def design_of(names=NAMES, bound=2.0, y=3.0):
    return Design.from_arrays(names, bounds=[(-bound, bound)] * len(names), y_bounds=(-y, y))


def rows_of(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(0.0, 0.8, (n, 4))
    return X @ [1.0, 0.0, -0.5, 0.0] + rng.normal(0.0, 0.5, n), X


def federation_of(policy=OPEN, sizes=(200, 400), **options):
    sites = {
        name: Site(rows_of(n, seed), design_of(), policy=policy)
        for seed, (name, n) in enumerate(zip(("north", "south", "west"), sizes, strict=False))
    }
    return InProcessFederation(sites, **options)


def pooled():
    parts = [rows_of(200, 0), rows_of(400, 1)]
    return np.concatenate([y for y, _ in parts]), np.concatenate([X for _, X in parts])
