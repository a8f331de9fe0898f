"""The gate: policy, every argument, turn, ledger, then rows; and nothing free of charge depends on a row."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from federation_sites import OPEN, design_of, rows_of

import privinf as pi
from privinf.accounting import Budget, GaussianLoss, Ledger, LedgerEntry, Sensitivity
from privinf.errors import ArgumentError, NotAvailableError, PrivinfError, SchemaError
from privinf.federation import (
    InProcessFederation,
    Query,
    RemoteSite,
    Site,
    SiteDaemon,
    SiteLedger,
    SitePolicy,
    TrustedServer,
)
from privinf.federation.sessions import Journal
from privinf.federation.site_designs import SiteDesigns
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.statistics.block import SiteBlock
from privinf.mechanisms.statistics.ops import SiteOp
from privinf.schema import expressions
from privinf.schema.intervals import _FUNCTIONS, _Function

SCHEMA = pi.Schema({"y": (-10.0, 10.0), "income": (0.0, 1e6), "age": (18.0, 90.0), "g": ["p", "q"]})


def table(n=40, **changes):
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(
        {
            "y": rng.normal(size=n),
            "income": rng.uniform(0, 1.5e5, n),
            "age": rng.uniform(18, 90, n),
            "g": rng.choice(["p", "q"], n),
        }
    )
    for name, value in changes.items():
        frame.loc[3, name] = value
    return frame


def line(mu=0.5, sensitivity=1.0, **changes):
    entry = LedgerEntry(
        mechanism="gaussian",
        label="test",
        unit="record",
        relation="replace-one",
        trust="central",
        sensitivity=Sensitivity("l2", sensitivity, "stated"),
        noise={"law": "gaussian", "scale": sensitivity / mu},
        loss=GaussianLoss(mu),
        source="lattice",
        secure=True,
        assumptions=("n is public",),
    )
    return entry.to_dict() | changes


def design_query(design):
    return Query("design", args={"design": design if isinstance(design, dict) else design.to_dict()})


# ---- finding 1: bisection by the last bit of an exponential


K = 5.0  # where the exponential of the processor below is an ulp above Python's


def exp_above(values):
    """Return the exponential as on a processor whose vectors give, everywhere, an ulp more than Python's."""
    return np.nextafter(np.frompyfunc(math.exp, 1, 1)(values).astype(float), np.inf)


@pytest.fixture
def another_exp(monkeypatch):
    """Let formulas run with `exp_above`: with AVX-512, numpy's own differs from Python's at some numbers."""
    monkeypatch.setitem(_FUNCTIONS, "exp", _Function(exp_above))


def probe(target, width):
    """Return an expression that is not a number exactly for incomes this near, and the slope in it."""
    slope = float(np.spacing(K)) / (2.0 * width)
    return f"np.sqrt({math.exp(K)!r} - np.exp({K!r} - {slope!r} * abs(income - {target!r})))", slope


def anyone_near(target, width):
    """Return a design whose column is a probe, with the bounds that Python's exponential gives it."""
    expression, slope = probe(target, width)
    content = pi.Design.from_formula("y ~ income", SCHEMA).to_dict()
    content["columns"][1] = {"name": "probe", "pieces": [{"expression": expression}]}
    high = math.sqrt(math.exp(K) - math.exp(K - slope * max(target, 1e6 - target)))
    content["low"][1], content["high"][1] = 0.0, high
    return content


def searched(handle):
    """Return all replies of a search for the largest income, each question halving where it is."""
    low, high, told = 0.0, 1e6, []
    for _ in range(30):
        middle, width = 0.75 * high + 0.25 * low, 0.25 * (high - low)
        reply = handle(design_query(anyone_near(middle, width)), "north")
        told.append((reply.error, reply.facts.get("digest")))
        if "finite" in reply.error:
            low = middle - width
        else:
            high = middle - width
    return told, low


WIDE = {"default": {}, "many designs": {"trusted_server": True, "new_designs": 1000}}


@pytest.mark.usefixtures("another_exp")
@pytest.mark.parametrize("entry_point", ["handle", "daemon"])
@pytest.mark.parametrize("policy", WIDE)
def test_no_question_without_a_charge_finds_the_largest_income(policy, entry_point, tmp_path):
    found = []
    for income in (1.0, 723_456.789):
        ledger = Ledger(Budget(mu=1e-6))
        site = Site(table(income=income), SCHEMA, policy=SitePolicy(**WIDE[policy]), ledger=ledger)
        if entry_point == "handle":
            found.append(searched(site.handle))
        else:
            with SiteDaemon(site, "north", tmp_path / f"{income}").started():
                found.append(searched(RemoteSite(tmp_path / f"{income}").handle))
        assert len(site.ledger) == 0
        assert not any("finite in some rows" in error for error, _ in found[-1][0])
    assert found[0] == found[1]


@pytest.mark.usefixtures("another_exp")
def test_the_search_finds_the_largest_income_where_designs_are_tried_on_rows(monkeypatch):
    """The mutant is what was: before any charge, rows are computed, and nothing is put into its interval."""
    frame, honest = table(income=723_456.789), SiteDesigns.design_of

    def tried(self, content):
        expression = content["columns"][1]["pieces"][0]["expression"]
        column = expressions.values(expression, lambda name: frame[name].to_numpy())
        if not np.isfinite(column).all():
            raise SchemaError("'probe' is not finite in some rows")
        return honest(self, content)

    monkeypatch.setattr(SiteDesigns, "design_of", tried)
    site = Site(frame, SCHEMA, policy=SitePolicy(**WIDE["many designs"]), ledger=Ledger(Budget(mu=1e-6)))
    _, largest = searched(site.handle)
    assert largest == pytest.approx(723_456.789, abs=1.0)


def test_no_design_reads_a_row(monkeypatch):
    site = Site(table(), SCHEMA, policy=OPEN)
    monkeypatch.setattr("privinf.federation.site_designs.SiteDesigns.placed", lambda *_: pytest.fail("rows"))
    for formula in ("y ~ income + age", "y ~ np.log1p(income) * C(g)"):
        assert site.answer(design_query(pi.Design.from_formula(formula, SCHEMA)), "north").facts["digest"]
    assert len(site.ledger) == 0


# ---- the order


STEPS = ("allow", "checked", "accept", "begin", "spend", "total")


def watched(monkeypatch, failing=None):
    seen = []

    def spy(owner, name, label):
        honest = getattr(owner, name)

        def watching(*args, **options):
            seen.append(label)
            if label == failing:
                raise NotAvailableError("stopped here")
            return honest(*args, **options)

        monkeypatch.setattr(owner, name, watching)

    spy(SitePolicy, "allow", "allow")
    spy(SitePolicy, "accept", "accept")
    spy(SiteOp, "checked", "checked")
    spy(Journal, "begin", "begin")
    spy(Journal, "_spend", "spend")
    spy(SiteOp, "total", "total")
    return seen


def squares(site, **changes):
    given = {
        "op": "squared_residuals",
        "args": {"residual_clip": 1.0},
        "design": site.design.digest,
        "session": "s",
        "sequence": 1,
        "charges": (line(),),
    }
    known = SITE_OPS.get(changes.get("op", given["op"]))
    return Query(**{"version": 1 if known is None else known.version} | given | changes)


@pytest.mark.parametrize("failing", [None, *STEPS])
def test_the_order_at_the_gate(failing, monkeypatch):
    site = Site(rows_of(40, 0), design_of(), policy=OPEN)
    seen = watched(monkeypatch, failing)
    reply = site.handle(squares(site), "north")
    until = len(STEPS) if failing is None else STEPS.index(failing) + 1
    assert seen == list(STEPS[:until])
    assert bool(reply.error) == (failing is not None)
    assert len(site.ledger) == (failing in (None, "total"))


def test_a_question_is_rehearsed_once(monkeypatch):
    site = Site(rows_of(40, 0), design_of(), policy=OPEN)
    seen = watched(monkeypatch)
    for place in range(1, 4):
        assert not site.handle(squares(site, sequence=place), "north").error
    assert seen.count("checked") == 1
    assert seen.count("accept") == seen.count("total") == 3
    assert "residual_clip" in site.handle(squares(site, args={"residual_clip": -1.0}), "north").error
    assert "has not received this regression" in site.handle(squares(site, design="0" * 64), "north").error
    for clip in range(2, 30):
        changed = squares(site, args={"residual_clip": float(clip)}, sequence=2 + clip)
        site.handle(changed, "north")
    assert seen.count("checked") == 30
    assert len(site._record_sensitivities) == 16
    site.handle(squares(site, sequence=99), "north")
    assert seen.count("checked") == 31


BEFORE = {
    "too many bits": ("column_sums", {"columns": [0], "bound": 1.0, "bits": 52}),
    "negative bits": ("column_sums", {"columns": [0], "bound": 1.0, "bits": -1}),
    "a norm below the grid": (
        "union_gram",
        {"columns": [0, 1, 2, 3], "bound": 1.0, "norm": 1.0, "bits": 10},
    ),
    "digits that leave a factor none": (
        "column_products",
        {"targets": [0], "bound": 1.0, "bits": 1},
    ),
    "a clip below the grid": (
        "glm.score",
        {
            "family": "gaussian",
            "theta": np.zeros(4),
            "radius": 1.0,
            "residual_clip": 1.0,
            "client_rows": 50,
            "client_clip": 1e-40,
        },
    ),
    "a scale of nothing": ("column_sums", {"columns": [0], "bound": 1.0, "scale": np.full(4, 5e-324)}),
    "a probe in no direction": (
        "glm.sketched_score",
        {
            "family": "gaussian",
            "theta": np.zeros(4),
            "radius": 1.0,
            "residual_clip": 1.0,
            "clip": 1.0,
            "probes": 1,
            "probe_seed": 1,
            "probe_scale": 1.0,
            "moment": np.zeros(4),
            "unit": np.zeros(4),
        },
    ),
    "draws without end": (
        "multiplier_scores",
        {
            "columns": [0, 1],
            "transform": np.eye(2),
            "clip": 1.0,
            "residual_clip": 1.0,
            "draws": 10**9,
            "law": "rademacher",
            "seed": 1,
        },
    ),
    "a text for a number": ("squared_residuals", {"residual_clip": "1.0"}),
    "a list for a number": ("squared_residuals", {"residual_clip": [1.0]}),
    "flags for a support": (
        "residual_sum",
        {"residual_clip": 1.0, "support": np.array([True]), "beta": np.array([1.0])},
    ),
}


@pytest.mark.parametrize("name", BEFORE)
def test_arguments_are_refused_before_anything_is_spent(name, monkeypatch):
    op, args = BEFORE[name]
    site = Site(rows_of(40, 0), design_of(), policy=OPEN)
    monkeypatch.setattr(SiteOp, "total", lambda *_: pytest.fail("rows were read"))
    unit = {"unit": "client"} if "client_rows" in args else {}
    dear = line(mu=1e3, sensitivity=1e6, **unit)
    with pytest.raises(PrivinfError) as caught:
        site.answer(squares(site, op=op, args=args, charges=(dear,)), "north")
    assert len(site.ledger) == 0
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


# What a curator says of its own rows to the statistics that sites answer; see `SiteOp.own`.
OWN = {
    "no public columns": {"public": 0, "public_norm2": 0.0},
    "a public column": {"public": 1, "public_norm2": 1.0},
    "a norm": {"public_norm2": 1e-9},
    "weights": {"weight_bound": 1e-9},
    "several rows a person": {"max_rows": 1},
    "sizes of public columns": {"public_reach": np.full(1, 1e-9)},
}
MOMENTS = {
    "moments.total": {"response_factor": 1.0, "norm": 1.0, "response_bound": 1.0},
    "moments.residual": {
        "response_factor": 1.0,
        "norm": 1.0,
        "residual_clip": 1.0,
        "coefficients": np.zeros(4),
    },
}


def test_the_statistics_that_a_curator_may_tell_more_are_these():
    told = {op.name: set(op.own) for op in SITE_OPS.values() if op.own}
    shared = {name for own in OWN.values() for name in own}
    assert told == {"moments.total": shared, "moments.residual": shared | {"unit_norm"}}


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("op", MOMENTS)
def test_only_the_holders_own_process_says_what_weights_and_public_columns_there_are(op, name, monkeypatch):
    site = Site(rows_of(40, 0), design_of(), policy=OPEN)
    dear = line(mu=1e3, sensitivity=1e6)
    allowed = squares(site, op=op, args=MOMENTS[op], charges=(dear,))
    assert not site.handle(allowed, "north").error
    monkeypatch.setattr(SiteOp, "total", lambda *_: pytest.fail("rows were read"))
    asked = squares(site, op=op, args=MOMENTS[op] | OWN[name], charges=(dear,), sequence=2)
    message = site.handle(asked, "north").error
    assert "only the site that holds the rows may set the argument" in message
    assert message.endswith(f"omit {'it' if len(OWN[name]) == 1 else 'them'} from the query")
    masked = replace(asked, masking={"kind": "masked"})
    closed = Site(rows_of(40, 0), design_of(), policy=SitePolicy(secure_sums=True, simulation=True))
    assert "only the site that holds the rows may set the argument" in closed.handle(masked, "north").error
    with pytest.raises(ArgumentError, match="only the site that holds the rows"):
        TrustedServer(InProcessFederation({"north": site})).vector_sum(
            op, MOMENTS[op] | OWN[name], mu=1.0, label="moments"
        )
    assert len(site.ledger) == 1
    assert len(closed.ledger) == 0


# ---- designs


def test_by_default_a_site_takes_no_design():
    site = Site(table(), SCHEMA)
    reply = site.handle(design_query(pi.Design.from_formula("y ~ age", SCHEMA)), "north")
    assert "policy allows no regressions" in reply.error
    assert site.design is None


def test_the_design_that_a_site_was_made_with_is_always_known():
    design = pi.Design.from_formula("y ~ age", SCHEMA)
    site = Site(table(), design)
    assert site.answer(design_query(design), "north").facts["digest"] == design.digest
    assert (
        "allows no regressions"
        in site.handle(design_query(pi.Design.from_formula("y ~ income", SCHEMA)), "north").error
    )
    site.adopt(pi.Design.from_formula("y ~ income", SCHEMA))
    assert not site.handle(design_query(pi.Design.from_formula("y ~ income", SCHEMA)), "north").error


def test_listed_designs_are_taken_and_not_counted():
    listed = pi.Design.from_formula("y ~ age", SCHEMA)
    policy = SitePolicy(trusted_server=True, designs=[listed.digest], new_designs=1)
    site = Site(table(), SCHEMA, policy=policy)
    for design in (
        listed,
        pi.Design.from_formula("y ~ income", SCHEMA),
        listed,
        pi.Design.from_formula("y ~ income", SCHEMA),
    ):
        assert not site.handle(design_query(design), "north").error
    assert (
        "allows only 1 new designs"
        in site.handle(design_query(pi.Design.from_formula("y ~ g", SCHEMA)), "north").error
    )
    only = Site(
        table(), SCHEMA, policy=SitePolicy(trusted_server=True, designs=[listed.digest], new_designs=0)
    )
    assert not only.handle(design_query(listed), "north").error
    assert (
        "allows only 0 new designs"
        in only.handle(design_query(pi.Design.from_formula("y ~ g", SCHEMA)), "north").error
    )


@pytest.mark.parametrize(
    ("policy", "most"),
    [
        ({}, 0),
        ({"trusted_server": True}, 16),
        ({"secure_sums": True}, 16),
        ({"new_designs": 3}, 3),
        ({"secure_sums": True, "new_designs": 0}, 0),
    ],
)
def test_how_many_new_designs(policy, most):
    site = Site(table(), SCHEMA, policy=SitePolicy(**policy))
    errors = [
        site.handle(design_query(pi.Design.from_formula(f"y ~ I(age * {j})", SCHEMA)), "north").error
        for j in range(2, 20)
    ]
    assert [bool(error) for error in errors] == [False] * most + [True] * (18 - most)
    assert site._journal._designs.keys() <= {
        pi.Design.from_formula(f"y ~ I(age * {j})", SCHEMA).digest for j in range(2, 20)
    }


def test_the_count_outlives_the_process_and_ledgers_without_designs_load(tmp_path):
    path, policy = tmp_path / "north.ledger", SitePolicy(trusted_server=True, new_designs=2)
    SiteLedger(path, Budget(mu=1.0)).close()
    for formula, known in (("y ~ age", True), ("y ~ income", True), ("y ~ g", False), ("y ~ age", True)):
        with SiteLedger(path) as ledger:
            site = Site(table(), SCHEMA, policy=policy, ledger=ledger)
            assert (
                bool(site.handle(design_query(pi.Design.from_formula(formula, SCHEMA)), "north").error)
                != known
            )
    lines = path.read_text().splitlines()
    assert sum('"design"' in one for one in lines) == 2
    path = tmp_path / "south.ledger"
    SiteLedger(path, Budget(mu=1.0)).close()
    with SiteLedger(path) as ledger:
        assert not Site(table(), SCHEMA, policy=policy, ledger=ledger)._journal._designs
        stricter = SitePolicy(trusted_server=True, new_designs=0)
        site = Site(table(), SCHEMA, policy=stricter, ledger=ledger, rebase=True)
        assert site.handle(design_query(pi.Design.from_formula("y ~ age", SCHEMA)), "north").error


def refusal(content, policy=OPEN, site=None):
    site = Site(table(), SCHEMA, policy=policy) if site is None else site
    error = site.handle(design_query(content), "north").error
    assert error
    assert not site._journal._designs
    return error


def test_designs_that_are_refused(monkeypatch):
    good = pi.Design.from_formula("y ~ age", SCHEMA).to_dict()
    assert "does not describe a design" in refusal({})
    many = good | {"columns": [good["columns"][1] | {"name": f"c{j}"} for j in range(1001)]}
    assert "1001 columns, but a site accepts at most 1000" in refusal(many)
    knots = {
        "kind": "cr",
        "knots": list(np.linspace(19, 89, 300)),
        "lower": 18.0,
        "upper": 90.0,
        "degree": 3,
        "include_intercept": False,
    }
    spline = {"name": "s", "pieces": [{"spline": "age", "basis": knots, "index": 0}]}
    assert "300 knots of splines, but a site accepts at most 100" in refusal(
        good | {"columns": [good["columns"][0], spline]}
    )
    long = [{"name": f"l{j}", "pieces": [{"expression": "+".join(["age"] * 400)}]} for j in range(50)]
    assert "at most 65536" in refusal(good | {"columns": [good["columns"][0], *long]})
    undeclared = good | {"columns": [good["columns"][0], {"name": "z", "pieces": [{"column": "z"}]}]}
    assert "SchemaError" in refusal(undeclared)
    called = {"name": "f", "pieces": [{"expression": "np.sin(age)"}]}
    assert "SchemaError" in refusal(good | {"columns": [good["columns"][0], called]})
    other = pi.Schema({**{name: SCHEMA[name] for name in ("y", "age")}, "income": (0.0, 2e6)})
    assert "AlignmentError" in refusal(pi.Design.from_formula("y ~ age", other))
    public = pi.Design.from_formula("y ~ age", SCHEMA, response="public").to_dict()
    assert "public bounds" in refusal(public)
    monkeypatch.setattr("privinf.federation.site_designs.MOST_BYTES", 8 * 2 * 40 - 1)
    assert "MiB" in refusal(good)


def test_columns_that_cannot_be_read_are_refused_from_a_public_list():
    bad = {"missing": np.nan, "infinite": np.inf, "text": "unknown"}
    errors = set()
    for name, value in bad.items():
        frame = table().astype({"income": object})
        frame.loc[3, "income"] = value
        with pytest.warns(pi.errors.UnavailableColumnsWarning, match="'income', 'g' cannot be used"):
            site = Site(frame.drop(columns="g"), SCHEMA, policy=OPEN)
        assert site.description()["unavailable"] == ["income", "g"]
        assert set(site.defects) == {"income", "g"}, name
        errors.add(refusal(pi.Design.from_formula("y ~ np.log1p(income)", SCHEMA), site=site))
        assert not site.handle(design_query(pi.Design.from_formula("y ~ age", SCHEMA)), "north").error
        assert str(value) not in str(site.description())
    assert len(errors) == 1
    assert "the column 'income' cannot be used" in errors.pop()


def test_two_models_at_once_do_not_end_each_others_fits(monkeypatch):
    site = Site(table(), SCHEMA, policy=OPEN)
    designs = [pi.Design.from_formula("y ~ age", SCHEMA), pi.Design.from_formula("y ~ age + income", SCHEMA)]
    for design in designs:
        site.answer(design_query(design), "north")
    built = []
    honest = SiteBlock.from_rows

    def watching(design, opened):
        built.append(design.digest)
        return honest(design, opened)

    monkeypatch.setattr(SiteBlock, "from_rows", watching)

    def ask(turn, number):
        asked = squares(
            site,
            op="column_squares",
            args={"columns": [turn + 0], "bound": 1.0},
            design=designs[turn].digest,
            session=f"s{turn}",
            sequence=number,
        )
        return site.answer(asked, "north").sums

    first = [ask(0, 1), ask(1, 1), ask(0, 2), ask(1, 2)]
    assert built == [design.digest for design in designs]
    # under a cap for one of them, matrices are made again and the answers are the same
    monkeypatch.setattr("privinf.federation.site_designs.CACHE_BYTES", 8 * 3 * 40)
    again = [ask(0, 3), ask(1, 3), ask(0, 4)]
    assert len(built) > 2
    for one, other in zip(first, again, strict=False):
        np.testing.assert_array_equal(one, other)


def test_the_bounds_of_a_design_are_the_sites_own():
    """A digest leaves them out: a question that was charged must not come back about other bounds."""
    design = pi.Design.from_formula("y ~ np.log1p(income)", SCHEMA)
    content = design.to_dict()
    content["high"][1] *= 1.0 - 1e-11
    content["outcome"]["bounds"][1] *= 1.0 - 1e-11
    site = Site(table(), SCHEMA, policy=OPEN)
    facts = site.answer(design_query(content), "north").facts
    assert facts["digest"] == design.digest
    assert facts["design"] == design.to_dict() != content


def test_a_design_needs_an_introduction():
    site = Site(table(), SCHEMA, policy=OPEN)
    digest = pi.Design.from_formula("y ~ age", SCHEMA).digest
    with pytest.raises(NotAvailableError, match="has not received a regression"):
        site.answer(
            Query(
                "residual_sum",
                args={"residual_clip": 1.0},
                version=SITE_OPS["residual_sum"].version,
                design=digest,
                session="s",
                sequence=1,
                charges=(line(),),
            ),
            "north",
        )
    site.answer(design_query(pi.Design.from_formula("y ~ income", SCHEMA)), "north")
    with pytest.raises(NotAvailableError, match="'design' first"):
        site.answer(
            Query(
                "residual_sum",
                args={"residual_clip": 1.0},
                version=SITE_OPS["residual_sum"].version,
                design=digest,
                session="s",
                sequence=1,
                charges=(line(),),
            ),
            "north",
        )


@pytest.mark.parametrize(
    "wrong",
    [{"new_designs": -1}, {"new_designs": True}, {"designs": "abc"}, {"designs": ["abc"]}, {"designs": [3]}],
)
def test_policies_of_designs_that_are_none(wrong):
    with pytest.raises(PrivinfError, match="designs"):
        SitePolicy(**wrong)
