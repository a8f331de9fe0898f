"""Sites: what they refuse, what they charge, and that nothing else gets out."""

import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from federation_sites import OPEN, design_of, federation_of, rows_of

import privinf as pi
from privinf.accounting import Budget, GaussianLoss, Ledger, LedgerEntry, Sensitivity
from privinf.errors import (
    AlignmentError,
    ArgumentError,
    BudgetExceededError,
    NotAvailableError,
    PrivinfError,
    SchemaError,
)
from privinf.federation import InProcessFederation, Query, Site, SitePolicy, TrustedServer
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.statistics.ops import SiteOp
from privinf.noise import SimulationNoise


def charge(sensitivity=1.0, scale=2.0, mu=0.5, **changes):
    entry = LedgerEntry(
        mechanism="gaussian",
        label="test",
        unit="record",
        relation="replace-one",
        trust="central",
        sensitivity=Sensitivity("l2", sensitivity, "stated"),
        noise={"law": "gaussian", "scale": scale},
        loss=GaussianLoss(mu),
        source="lattice",
        secure=True,
        assumptions=("n is public",),
    )
    return replace(entry, **changes).to_dict()


def query_of(charges=None, *, site=None, sequence=1, op="squared_residuals", session="s", **args):
    design = design_of().digest if site is None else site.design.digest
    stated = (charge(),) if charges is None else charges
    return Query(
        op,
        args={"residual_clip": 1.0} | args,
        version=SITE_OPS[op].version if op in SITE_OPS else 1,
        design=design,
        session=session,
        sequence=sequence,
        charges=tuple(stated),
    )


def site_of(policy=OPEN, ledger=None, n=50):
    return Site(rows_of(n, 0), design_of(), policy=policy, ledger=ledger)


def test_one_site_has_one_name():
    """By two names each of its records would be in a sum twice, and move it by twice what was charged."""
    site = federation_of()._sites["north"]
    with pytest.raises(ArgumentError, match="two names"):
        InProcessFederation({"north": site, "south": site})


def test_un_noised_sums_need_a_trusted_server_in_the_policy():
    for policy in (None, SitePolicy(), SitePolicy(simulation=True)):
        site = Site(rows_of(50, 0), design_of(), policy=policy)
        with pytest.raises(NotAvailableError, match="trusted_server"):
            site.answer(query_of(), "north")
        assert site.handle(query_of(), "north").sums.size == 0
        assert len(site.ledger) == 0
        assert site.answer(Query("describe"), "north").rows == 50
    assert site_of().answer(query_of(), "north").sums.shape == (1,)


def test_each_policy_rule():
    limited = site_of(SitePolicy(trusted_server=True, operations=("union_gram",)))
    with pytest.raises(NotAvailableError, match="does not allow"):
        limited.answer(query_of(), "north")
    thrifty = site_of(SitePolicy(trusted_server=True, largest_rho=0.1))
    with pytest.raises(NotAvailableError, match="largest_rho"):
        thrifty.answer(query_of(), "north")
    for entry in (
        charge(secure=False),
        charge(noise={"scale": 0.0}, loss=GaussianLoss(np.inf), secure=False),
    ):
        with pytest.raises(NotAvailableError, match="seeded"):
            site_of(SitePolicy(trusted_server=True)).answer(query_of([entry]), "north")
        site_of().answer(query_of([entry]), "north")
    with pytest.raises(ArgumentError, match="largest_rho"):
        SitePolicy(largest_rho=0.0)


@pytest.mark.parametrize(
    ("entry", "match"),
    [
        (charge(sensitivity=0.9), "the statistic of the query needs at least"),
        (charge(mu=0.49), "is too small for its noise"),
        (charge(noise={"scale": 0.0}), "is too small for its noise"),
        (charge(mechanism="magic"), "magic"),
        (charge() | {"sensitivity": None}, "must state the sensitivity"),
    ],
)
def test_charges_are_recomputed_by_the_site(entry, match):
    site = site_of()
    with pytest.raises(ArgumentError, match=match):
        site.answer(query_of([entry]), "north")
    with pytest.raises(ArgumentError, match="states no privacy loss"):
        site.answer(query_of([]), "north")
    assert len(site.ledger) == 0


def test_same_question_same_answer_once_charged_and_an_old_place_is_refused():
    site = site_of()
    query = query_of(sequence=3)
    first = site.answer(query, "north")
    again = site.answer(Query.unpack(*query.pack()), "north")
    assert first.sums.tobytes() == again.sums.tobytes()
    assert len(site.ledger) == 1
    for sequence in (2, 3):
        with pytest.raises(NotAvailableError, match="sequence number"):
            site.answer(query_of(sequence=sequence, residual_clip=0.5), "north")
    assert len(site.ledger) == 1
    site.answer(query_of(sequence=4, residual_clip=0.5), "north")
    site.answer(query_of(sequence=1, session="other", residual_clip=0.5), "north")
    assert len(site.ledger) == 3


def test_the_sites_limit_holds_before_a_row_is_read(monkeypatch):
    site = site_of(ledger=Ledger(Budget(mu=0.6)))
    site.answer(query_of(), "north")
    monkeypatch.setattr(SiteOp, "total", lambda *a: pytest.fail("rows were read"))
    with pytest.raises(BudgetExceededError):
        site.answer(query_of(sequence=2), "north")
    assert len(site.ledger) == 1


PRODUCTS = {"bound": 1.5, "residual_clip": 1.5}


def peeled(op="clipped_products", args=PRODUCTS, **told):
    """Return the question of a peeling, its ledger lines changed."""
    asked = []

    class Keeping:
        def __init__(self, inner):
            self.inner, self.sites = inner, inner.sites

        def ask(self, query, sites=None):
            asked.append(query)
            return self.inner.ask(query, sites)

    server = TrustedServer(Keeping(federation_of()), noise=SimulationNoise(0))
    server.top_k(op, args, 2, mu=1.0, factor=1.0 / 600, label="picks")
    charges = []
    for charge in asked[-1].charges:
        noise = {**charge["noise"], **told.get("noise", {})}
        stated = charge["sensitivity"] | told.get("sensitivity", {})
        charges.append(charge | {"noise": noise, "sensitivity": stated})
    return replace(asked[-1], charges=tuple(charges))


def test_a_site_takes_no_units_from_the_server():
    """Lines come in units of the sum: a factor of the server's could make any sensitivity small."""
    good = peeled()
    record_sensitivity = SITE_OPS["clipped_products"].record_sensitivity(good.args, 4)
    assert [charge["sensitivity"]["value"] >= record_sensitivity.linf for charge in good.charges] == [
        True,
        True,
    ]
    assert not any("factor" in charge["noise"] for charge in good.charges)
    site = site_of()
    site.answer(good, "north")
    before = len(site.ledger)
    for lie, reason in (
        (
            {"noise": {"factor": 1e-6}, "sensitivity": {"value": 1e-6 * record_sensitivity.linf}},
            "noise with the field 'factor'",
        ),
        (
            {"sensitivity": {"value": 0.9 * record_sensitivity.linf}},
            "the statistic of the query needs at least",
        ),
        ({"noise": {"picks": 0}}, "selected columns from 1 to 4"),
        ({"noise": {"picks": 5}}, "selected columns from 1 to 4"),
        ({"noise": {"picks": 1.0}}, "selected columns from 1 to 4"),
    ):
        with pytest.raises(ArgumentError, match=reason):
            site.answer(replace(peeled(**lie), session="another"), "north")
    assert len(site.ledger) == before


@pytest.mark.parametrize("told", [1, 0, -3])
def test_a_site_counts_the_vectors_itself(told):
    query = peeled(noise={"vectors": told})
    record_sensitivity = SITE_OPS["clipped_products"].record_sensitivity(query.args, 4)
    assert len(OPEN.accept(query.charges, record_sensitivity)) == 2
    with pytest.raises(ArgumentError, match="is too small for its noise"):
        OPEN.accept(query.charges, replace(record_sensitivity, shape=(2, 4)))


def test_refused_questions():
    site = site_of()
    for query, kind in (
        (query_of(op="everything"), ArgumentError),
        (replace(query_of(), version=1), NotAvailableError),
        (replace(query_of(), design="other"), NotAvailableError),
        (query_of(rows=[1, 2]), ArgumentError),
        (query_of(op="clipped_products"), ArgumentError),
    ):
        with pytest.raises(kind):
            site.answer(query, "north")
    assert len(site.ledger) == 0


def test_errors_name_the_site_and_never_its_data(monkeypatch):
    def broken(block, args):
        raise ValueError(f"bad value {block.response[0]}")

    honest = SITE_OPS["squared_residuals"]
    monkeypatch.setitem(SITE_OPS, "squared_residuals", replace(honest, function=broken, sums=broken))
    federation = federation_of()
    server = TrustedServer(federation, noise=SimulationNoise(0))
    with pytest.raises(
        ArgumentError, match="site 'north': statistic 'squared_residuals' cannot be computed"
    ) as caught:
        server.scalar("squared_residuals", {"residual_clip": 1.0}, mu=1.0, label="v")
    assert str(rows_of(200, 0)[0][0]) not in str(caught.value)


def test_bad_rows_are_refused_without_a_value():
    y, X = rows_of(20, 0)
    bad_X, bad_y = X.copy(), y.copy()
    bad_X[3, 1], bad_y[3] = np.nan, np.inf
    for rows, kind in (
        ((y[:0], X[:0]), AlignmentError),
        ((y[:-1], X), AlignmentError),
        ((y, bad_X), SchemaError),
        ((bad_y, X), SchemaError),
        ((y, X[:, :3]), SchemaError),
        ((["a"] * 20, X), SchemaError),
    ):
        with pytest.raises(kind):
            Site(rows, design_of())
    with pytest.raises(SchemaError, match="y_bounds"):
        Site((y, X), pi.Design.from_arrays(["a", "b", "c", "d"], bounds=[(-1, 1)] * 4))
    with pytest.raises(ArgumentError, match="Schema or a Design"):
        Site((y, X), [(-1, 1)] * 4)


def test_sites_with_other_columns_or_bounds_are_refused():
    first = Site(rows_of(20, 0), design_of())
    for other, match in (
        (design_of(["a", "b", "c", "e"]), "the columns"),
        (design_of(["b", "a", "c", "d"]), "the columns"),
        (design_of(bound=1.0), "the bounds or levels"),
        (design_of(y=1.0), "the bounds or levels"),
    ):
        with pytest.raises(AlignmentError, match=f"{match} of site 'two' differ"):
            InProcessFederation({"one": first, "two": Site(rows_of(20, 1), other)})
    with pytest.raises(ArgumentError):
        InProcessFederation({})
    with pytest.raises(ArgumentError, match="must be a Site"):
        InProcessFederation({"one": rows_of(20, 0)})
    with pytest.raises(ArgumentError, match="there is no site named"):
        InProcessFederation({"one": first}, drop_outs={"two": {0}})


SCHEMA = pi.Schema({"y": (-3.0, 3.0), "u": (-2.0, 2.0), "g": ["r", "s", "t"]})


def tables(n=60):
    rng = np.random.default_rng(0)
    return [
        pd.DataFrame({"y": rng.normal(size=n), "u": rng.normal(size=n), "g": rng.choice(["r", "s", "t"], n)})
        for _ in range(2)
    ]


def test_a_table_takes_its_design_from_the_server_and_only_over_its_own_schema():
    sites = {str(i): Site(table, SCHEMA, policy=OPEN) for i, table in enumerate(tables())}
    federation = InProcessFederation(sites)
    with pytest.raises(NotAvailableError, match="pass design="):
        TrustedServer(federation)
    design = pi.Design.from_formula("y ~ u + g", SCHEMA)
    server = TrustedServer(federation, design=design, noise=SimulationNoise(0))
    assert server.design == design
    found = server.vector_sum("column_sums", {"columns": [1, 2, 3], "bound": 5.0}, rho=np.inf, label="sums")
    both = np.concatenate([design.matrix(table) for table in tables()])
    np.testing.assert_allclose(found.values, np.clip(both, design.low, design.high)[:, 1:].sum(axis=0))
    wider = pi.Design.from_formula(
        "y ~ u + g", pi.Schema({"y": (-3.0, 3.0), "u": (-9.0, 9.0), "g": ["r", "s", "t"]})
    )
    with pytest.raises(AlignmentError, match="site '0': the columns or bounds of the regression"):
        TrustedServer(federation, design=wider)
    # a later design takes nothing from a server with an earlier one, and gives it no other columns
    other = TrustedServer(
        federation, design=pi.Design.from_formula("y ~ u", SCHEMA), noise=SimulationNoise(0)
    )
    again = server.vector_sum("column_sums", {"columns": [1, 2, 3], "bound": 5.0}, rho=np.inf, label="sums")
    np.testing.assert_array_equal(again.values, found.values)
    alone = other.vector_sum("column_sums", {"columns": [1], "bound": 5.0}, rho=np.inf, label="sums")
    assert alone.values[0] == found.values[-1]


def test_arrays_are_not_copied():
    y, X = rows_of(100, 0)
    site = Site((y, X), design_of())
    assert site._placed("north").features is X


def test_nothing_of_a_site_is_pickled_or_shown():
    site = site_of()
    for thing in (site, federation_of(), TrustedServer(federation_of())):
        with pytest.raises(TypeError, match="pickled"):
            pickle.dumps(thing)
    assert repr(site) == "<Site of 50 rows, not shown>"
    assert issubclass(NotAvailableError, PrivinfError)
