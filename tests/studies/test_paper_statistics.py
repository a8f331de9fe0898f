"""Statistics of studies at a site: refused by the default policy, answered where the holder names them."""

import math

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.errors import ArgumentError, NotAvailableError
from privinf.federation import InProcessFederation, Query, Site, SitePolicy, TrustedServer
from privinf.mechanisms.catalogue import SHIPPED, SITE_OPS, register
from privinf.schema import Design
from studies.paper.statistics import PAPER_OPS

ARGS = {"column_bound": 1.0, "residual_clip": 1.0, "form": "residual"}
OPEN = SitePolicy(trusted_server=True, simulation=True)


DESIGN = Design.from_arrays(["x"], bounds=[(-1.0, 1.0)], y_bounds=(-2.0, 2.0))
ROWS = np.linspace(-1.0, 1.0, 20)


def site_of(policy):
    return Site((ROWS, ROWS[:, None]), DESIGN, policy=policy)


def server_of(policy):
    return TrustedServer(InProcessFederation({"one": site_of(policy)}), rng=0)


def test_the_package_ships_none_of_them():
    assert not SHIPPED & PAPER_OPS.keys()
    assert SITE_OPS.keys() >= SHIPPED | PAPER_OPS.keys()


def test_all_that_is_allowed_by_default_is_the_packages():
    with pytest.raises(
        NotAvailableError, match=r"'paper_gradient'; the person who runs the site must list it"
    ):
        server_of(OPEN).vector_sum("paper_gradient", ARGS, rho=1.0, label="gradient")


@pytest.mark.parametrize(
    "policy",
    [
        SitePolicy(trusted_server=True, simulation=True, operations=("paper_gradient",)),
        OPEN.naming(["paper_gradient"]),
    ],
    ids=["alone", "besides"],
)
def test_a_holder_names_them(policy):
    found = server_of(policy).vector_sum("paper_gradient", ARGS, rho=math.inf, label="gradient")
    np.testing.assert_allclose(found.values, [-(ROWS @ ROWS)])


def test_naming_adds_to_what_was_allowed():
    assert set(OPEN.naming(["paper_gradient"]).operations) == SHIPPED | {"paper_gradient"}
    few = SitePolicy(trusted_server=True, operations=("column_sums",))
    assert few.naming(["paper_gradient"]).operations == ("column_sums", "paper_gradient")


def test_the_policy_of_others_sites_is_not_widened():
    """A fit names statistics for rows that are the caller's own, and for no others."""
    rng = np.random.default_rng(0)
    schema = pi.Schema({"y": (-4.0, 4.0), "a": (-1.0, 1.0), "b": (-1.0, 1.0)})
    table = pd.DataFrame(rng.uniform(-1.0, 1.0, (300, 3)), columns=["y", "a", "b"])
    ask = {"epsilon": 50.0, "delta": 1e-4, "sparsity": 1, "targets": ["a"], "variant": "paper", "rng": 0}
    site = Site(table, schema, policy=OPEN)
    model = pi.DebiasedLasso.from_formula("y ~ a + b - 1", InProcessFederation({"one": site}), schema=schema)
    with pytest.raises(NotAvailableError, match="does not allow the statistic"):
        model.fit(**ask)
    assert site.policy is OPEN
    assert len(pi.DebiasedLasso.from_formula("y ~ a + b - 1", table, schema=schema).fit(**ask).params) == 1


def test_a_name_of_the_package_is_not_taken():
    with pytest.raises(ArgumentError, match="column_sums"):
        register({"column_sums": PAPER_OPS["paper_scores"]})


def test_a_question_does_not_import_what_a_site_does_not_know():
    reply = site_of(OPEN).handle(Query("paper_unheard_of"), "one")
    assert "there is no statistic named 'paper_unheard_of'" in reply.error
