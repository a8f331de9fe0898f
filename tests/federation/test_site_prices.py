"""What a site takes a release to cost: by mechanism, scale and its own sensitivity, each kind by itself."""

import math
from dataclasses import replace

import pytest
from federation_sites import federation_of
from secure_sites import SECURE, secure_federation, secure_query

from privinf.accounting import (
    ApproximateLoss,
    Budget,
    ConcentratedLoss,
    GaussianLoss,
    Ledger,
    LedgerEntry,
    PureLoss,
    Sensitivity,
    pure_rho,
)
from privinf.errors import ArgumentError, PrivinfError
from privinf.federation import SitePolicy, TrustedServer, policy
from privinf.federation.secure import site as site_masking
from privinf.federation.secure.site import check_room, check_terms, read_terms
from privinf.mechanisms.statistics.summands import Ball, Box

OPEN = SitePolicy(trusted_server=True)
# Two entries of at most 1, in a ball of radius 1: a record moves the sum by 2, an entry by 2.
BALL = Ball(size=2, top=1.0, derivation="2C").sensitivity()
# Three vectors of five entries in [-1, 1].
BOX = Box(shape=(3, 5), bound=1.0, derivation="2B").sensitivity()


def line(mechanism, loss, norm="l2", sensitivity=2.0, scale=2.0, **noise):
    return LedgerEntry(
        mechanism=mechanism,
        label="line",
        unit="record",
        relation="replace-one",
        trust="central",
        sensitivity=Sensitivity(norm, sensitivity, "stated"),
        noise={"scale": scale, **noise},
        loss=loss,
        source="lattice",
        secure=True,
        assumptions=("n is public",),
    )


def gumbel(loss, picks=2, **options):
    return line("gumbel peeling", loss, "linf", picks=picks, **options)


# A ratio of 1 throughout; of peeling three vectors, two picks each.
ACCEPTED = {
    "gaussian": (line("gaussian", GaussianLoss(1.0)), BALL),
    "gaussian values": (
        line(
            "gaussian",
            GaussianLoss(math.sqrt(3.0)),
            sensitivity=math.sqrt(2) * 2,
            scale=math.sqrt(2) * 2,
            picks=2,
        ),
        BOX,
    ),
    "gumbel": (gumbel(ConcentratedLoss(3.0)), BOX),
    "gumbel, pure": (gumbel(PureLoss(12.0)), BOX),
    "laplace picks": (line("laplace peeling", ConcentratedLoss(6 * pure_rho(2.0)), "linf", picks=2), BOX),
    "laplace picks, pure": (line("laplace peeling", PureLoss(12.0), "linf", picks=2), BOX),
    "laplace values": (line("laplace", ConcentratedLoss(6 * pure_rho(1.0)), "linf", picks=2), BOX),
    "laplace values, pure": (line("laplace", PureLoss(6.0), "linf", picks=2), BOX),
    "one laplace pick": (line("laplace peeling", PureLoss(2.0), "linf", picks=1), BALL),
    "laplace": (line("laplace", PureLoss(1.0), "l1", 2.0 * math.sqrt(2.0), 2.0 * math.sqrt(2.0)), BALL),
}

LESS = 1.0 - 1e-6
REFUSED = {
    "a Gaussian as pure": (line("gaussian", PureLoss(1.044)), BALL),
    "a Gaussian as pure, dear": (line("gaussian", PureLoss(100.0)), BALL),
    "a Gaussian in zCDP": (line("gaussian", ConcentratedLoss(0.5)), BALL),
    "a Gaussian as approximate": (line("gaussian", ApproximateLoss(50.0, 1e-9)), BALL),
    "a Gaussian by its linf": (line("gaussian", GaussianLoss(1.0), "linf"), BALL),
    "a Gaussian, too cheap": (line("gaussian", GaussianLoss(LESS)), BALL),
    "a Gaussian, sensitivity": (line("gaussian", GaussianLoss(1.0), sensitivity=2.0 * LESS), BALL),
    "values of one vector": (
        line("gaussian", GaussianLoss(1.0), sensitivity=math.sqrt(2) * 2, scale=math.sqrt(2) * 2, picks=2),
        BOX,
    ),
    "values of one pick": (line("gaussian", GaussianLoss(math.sqrt(3.0)), picks=2), BOX),
    "a pick of pure 1 as .506": (gumbel(PureLoss(0.506), 1, scale=4.0), BALL),
    "a pick of pure 1 as mu .5": (gumbel(GaussianLoss(0.5), 1, scale=4.0), BALL),
    "a pick of pure 1 as mu 10": (gumbel(GaussianLoss(10.0), 1, scale=4.0), BALL),
    "one pick of two": (gumbel(ConcentratedLoss(1.5)), BOX),
    "picks of one vector": (gumbel(ConcentratedLoss(1.0)), BOX),
    "picks, too cheap": (gumbel(ConcentratedLoss(3.0 * LESS)), BOX),
    "one pure pick of two": (gumbel(PureLoss(6.0)), BOX),
    "pure picks of one vector": (gumbel(PureLoss(4.0)), BOX),
    "pure picks by half their range": (gumbel(PureLoss(6.0 + 1e-3)), BOX),
    "picks in l2": (line("gumbel peeling", ConcentratedLoss(3.0), "l2", picks=2), BOX),
    "picks, sensitivity": (gumbel(ConcentratedLoss(3.0), sensitivity=2.0 * LESS), BOX),
    "picks not said": (line("gumbel peeling", ConcentratedLoss(3.0), "linf"), BOX),
    "laplace picks by one lambda": (
        line("laplace peeling", ConcentratedLoss(6 * pure_rho(1.0)), "linf", picks=2),
        BOX,
    ),
    "laplace picks as mu": (line("laplace peeling", GaussianLoss(100.0), "linf", picks=2), BOX),
    "laplace picks, pure, of one": (line("laplace peeling", PureLoss(6.0), "linf", picks=2), BOX),
    "one laplace pick in zCDP": (line("laplace peeling", ConcentratedLoss(9.0), "linf", picks=1), BALL),
    "laplace over two entries in l2": (line("laplace", PureLoss(1.0), "l2"), BALL),
    "laplace over two entries by l2": (line("laplace", PureLoss(1.0), "l1"), BALL),
    "laplace in zCDP": (line("laplace", ConcentratedLoss(9.0), "l1", 2.0 * math.sqrt(2.0), 9.0), BALL),
    "another law": (line("gaussian", GaussianLoss(1.0), law="laplace"), BALL),
    "no noise called secure": (line("gaussian", GaussianLoss(math.inf), scale=0.0), BALL),
    "negative noise": (line("gaussian", GaussianLoss(1.0), scale=-2.0), BALL),
    "endless noise": (line("gaussian", GaussianLoss(1e-3), scale=math.inf), BALL),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_true_lines_are_accepted(name):
    entry, reach = ACCEPTED[name]
    (accepted,) = OPEN.accept([entry.to_dict()], reach)
    assert accepted.loss == entry.loss


@pytest.mark.parametrize("name", REFUSED)
def test_lines_that_say_less_or_something_else_are_refused(name):
    entry, reach = REFUSED[name]
    with pytest.raises(PrivinfError) as caught:
        OPEN.accept([entry.to_dict()], reach)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("scale", ["2.0", 10**400], ids=["text", "beyond doubles"])
def test_noise_whose_size_is_a_text_or_beyond_doubles_is_refused(scale):
    charge = ACCEPTED["gaussian"][0].to_dict()
    with pytest.raises(PrivinfError, match="scale"):
        OPEN.accept([charge | {"noise": {"scale": scale}}], BALL)


def test_zcdp_of_a_gaussian_is_for_secure_sums_on_coarse_grids():
    entry = line("gaussian", ConcentratedLoss(0.5))
    assert OPEN.accept([entry.to_dict()], BALL, masked=True)[0].loss == ConcentratedLoss(0.5)
    with pytest.raises(PrivinfError, match="GaussianLoss"):
        OPEN.accept([entry.to_dict()], BALL)
    cheap = line("gaussian", ConcentratedLoss(0.5 * LESS))
    with pytest.raises(PrivinfError, match="is too small for its noise"):
        OPEN.accept([cheap.to_dict()], BALL, masked=True)


@pytest.mark.parametrize(
    ("name", "rho"),
    [
        ("gaussian", 0.5),
        ("gaussian values", 1.5),
        ("gumbel", 3.0),
        ("gumbel, pure", 3.0),
        ("laplace picks, pure", 6 * pure_rho(2.0)),
        ("laplace values", 6 * pure_rho(1.0)),
        ("laplace", pure_rho(1.0)),
    ],
)
def test_the_cap_is_on_the_sites_own_reckoning(name, rho):
    entry, reach = ACCEPTED[name]
    SitePolicy(trusted_server=True, largest_rho=rho * 1.0001).accept([entry.to_dict()], reach)
    with pytest.raises(PrivinfError, match="largest_rho"):
        SitePolicy(trusted_server=True, largest_rho=rho * 0.9999).accept([entry.to_dict()], reach)
    # what a line claims beyond its cost is the ledger's affair
    claimed = replace(entry, loss=type(entry.loss)(1e3))
    SitePolicy(trusted_server=True, largest_rho=rho * 1.0001).accept([claimed.to_dict()], reach)


def test_a_pure_budget_is_not_spent_by_gaussians():
    """The mu = 1 release that a pure budget of 1.05 once took for PureLoss(1.044)."""
    ledger = Ledger(Budget(epsilon=1.05, delta=0))
    (entry,) = OPEN.accept([ACCEPTED["gaussian"][0].to_dict()], BALL)
    with pytest.raises(PrivinfError):
        ledger.spend(entry)


@pytest.mark.parametrize("method", ["gumbel", "laplace"])
@pytest.mark.parametrize(
    "level", [{"mu": 1.0}, {"rho": 0.3}, {"epsilon": 1.0, "delta": 1e-6}, {"epsilon": 2.0, "delta": 0}]
)
@pytest.mark.parametrize("secure", [True, False])
def test_servers_state_what_sites_reckon(method, level, secure):
    values = method == "laplace" or level.get("delta") != 0
    server = TrustedServer(federation_of(), **({} if secure else {"rng": 0}))
    for op, args in (
        ("clipped_products", {"bound": 1.0}),
        ("column_products", {"bound": 1.0, "targets": [0, 1, 3]}),
    ):
        for k in (1, 2):
            server.top_k(op, args, k, label="picks", method=method, values=values, factor=0.01, **level)
    server.vector_sum("column_sums", {"columns": [0, 1], "bound": 1.0}, label="sums", mu=0.5)


# ---- mutants


def masked_lies():
    """Return what a site must refuse of a secure sum, as calls that must raise."""
    federation = secure_federation(("a", "b", "c"))
    query = secure_query(federation, max_colluding=1)
    entry = LedgerEntry.from_dict(query.charges[0])
    record_sensitivity = Ball(size=4, top=3.0, derivation="2CR").sensitivity()
    careful = SitePolicy(secure_sums=True, min_sites=3, max_colluding=1)

    def asked(policy=careful, **masking):
        changed = replace(query, masking={**query.masking, **masking})
        terms = read_terms(changed, entry)
        check_terms(changed, terms, entry, record_sensitivity, policy)
        return terms

    def stated(policy=careful, **changes):
        other = replace(entry, **changes)
        check_terms(query, read_terms(query, other), other, record_sensitivity, policy)

    def noise(**changes):
        return {"noise": {**entry.noise, **changes}}

    grid, scale = query.masking["grid"], entry.noise["scale"]
    bare = replace(entry.sensitivity, value=record_sensitivity.l2)
    coarse = scale / 2.0**19

    def rough():
        step = math.ldexp(1.0, math.frexp(scale)[1])
        dear = replace(
            entry,
            loss=ConcentratedLoss(9.0),
            sensitivity=replace(bare, value=record_sensitivity.l2 + 2 * step),
        )
        changed = replace(query, masking={**query.masking, "grid": step})
        check_terms(changed, read_terms(changed, dear), dear, record_sensitivity, careful)

    truths = {
        "the sum as asked": asked,
        "room for it": lambda: check_room(asked(), 70, record_sensitivity.bound),
    }
    lies = {
        "two sites where three are needed": lambda: asked(roster=["a", "b"]),
        "nobody colludes": lambda: asked(max_colluding=0),
        "a sum of which some may be missing": lambda: asked(kind="shared"),
        "a seed of noise called secure": lambda: asked(seed=3),
        "a grid that is no power of two": lambda: asked(grid=grid * 1.5),
        "a coarser grid at the same price": lambda: asked(grid=grid * 8.0),
        "noise of less than four steps": rough,
        "the grid left out": lambda: stated(sensitivity=bare),
        "a mu on a coarse grid": lambda: check_price_of(
            replace(entry, sensitivity=replace(bare, value=2 * record_sensitivity.l2)), coarse
        ),
        "no room": lambda: check_room(replace(asked(), sigma=2.0**57), 70, record_sensitivity.bound),
        "no room for rows": lambda: check_room(asked(), 10**13, record_sensitivity.bound),
        "another mechanism": lambda: stated(mechanism="gumbel peeling"),
        "picks of a secure sum": lambda: stated(**noise(picks=1)),
    }

    def check_price_of(other, step):
        terms = replace(read_terms(query, other), grid=math.ldexp(1.0, math.frexp(step)[1]))
        terms = replace(terms, sigma=scale / terms.grid / math.sqrt(2.0))
        site_masking.check_price(terms, other, record_sensitivity)

    return truths, lies


@pytest.mark.parametrize(("sigma", "change"), [(3.0, "smaller"), (2.0**51, "larger")])
def test_noise_outside_the_grid_is_answered_with_the_change_that_helps(sigma, change):
    query = secure_query(secure_federation(("a", "b", "c")), max_colluding=1)
    entry = LedgerEntry.from_dict(query.charges[0])
    record_sensitivity = Ball(size=4, top=3.0, derivation="2CR").sensitivity()
    policy = SitePolicy(secure_sums=True, min_sites=3, max_colluding=1)
    terms = replace(read_terms(query, entry), sigma=sigma)
    with pytest.raises(ArgumentError, match=f"pass a {change} budget or a {change} 'grid' in the query"):
        check_terms(query, terms, entry, record_sensitivity, policy)


def failures():
    """Return which lies pass, and which true lines do not."""
    truths = {
        name: (lambda one=one: OPEN.accept([one[0].to_dict()], one[1])) for name, one in ACCEPTED.items()
    }
    lies = {name: (lambda one=one: OPEN.accept([one[0].to_dict()], one[1])) for name, one in REFUSED.items()}
    for known, more in zip((truths, lies), masked_lies(), strict=True):
        known.update(more)
    lies["sums without a trusted server"] = lambda: SECURE.allow("column_sums")
    lies["does not allow secure sums"] = lambda: OPEN.allow("column_sums", masked=True)
    told = {
        "carriers": lambda: read_terms_of(1).carriers == 2,
        "sigma": lambda: read_terms_of(1).sigma == read_terms_of(0).sigma * math.sqrt(1.5),
    }
    truths |= {name: (lambda one=one: holds(one())) for name, one in told.items()}
    return [name for name, call in truths.items() if not passes(call)] + [
        name for name, call in lies.items() if passes(call)
    ]


def read_terms_of(colluding):
    query = secure_query(secure_federation(("a", "b", "c")), max_colluding=1)
    changed = replace(query, masking={**query.masking, "max_colluding": colluding})
    return read_terms(changed, LedgerEntry.from_dict(query.charges[0]))


def holds(what):
    assert what


def passes(call):
    try:
        call()
    except (PrivinfError, AssertionError):
        return False
    return True


def with_argument(module, name, **changed):
    """Return a function that forgets one of its arguments."""
    honest = getattr(module, name, None)

    def mutant(mechanism, ratio, picks, vectors, **options):
        given = {"picks": picks, "vectors": vectors, "ratio": ratio} | {
            key: value(ratio) if callable(value) else value for key, value in changed.items()
        }
        return honest(mechanism, given["ratio"], given["picks"], given["vectors"], **options)

    return mutant


def any_kind(mechanism, ratio, picks, vectors, **options):
    """Compare through rho, as once."""
    rho = policy.least_rho(mechanism, ratio, picks, vectors)
    epsilon = rho + 2.0 * math.sqrt(rho) if rho < 100 else rho
    while pure_rho(epsilon * 0.999) > rho:
        epsilon *= 0.999
    return {ConcentratedLoss: rho, GaussianLoss: math.sqrt(2.0 * rho), PureLoss: epsilon}


def no_norm(entry, stated, record_sensitivity, picks):
    """Take the l2 sensitivity for any vector."""
    return record_sensitivity.sensitivity(entry.relation) if picks is None else record_sensitivity.linf


def any_scale(entry):
    """Take whatever is said of the noise."""
    scale = entry.noise.get("scale", 0.0)
    return abs(float(scale)) if isinstance(scale, (str, float)) else 1.0


def forgiving(*_args):
    return None


def all_carry(query, entry, honest=site_masking.read_terms):
    """Count the noise of colluding sites."""
    terms = honest(query, entry)
    sites = len(terms.roster)
    return replace(terms, carriers=sites, sigma=terms.sigma * math.sqrt(terms.carriers / sites))


MUTANTS = {
    "one pick of k": (policy, "least_losses", with_argument(policy, "least_losses", picks=1)),
    "one vector of m": (policy, "least_losses", with_argument(policy, "least_losses", vectors=1)),
    "half the ratio": (policy, "least_losses", with_argument(policy, "least_losses", ratio=lambda r: r / 2)),
    "kinds through rho": (policy, "least_losses", any_kind),
    "any norm": (policy, "_needed", no_norm),
    "a wide tolerance": (policy, "TOLERANCE", 1e-3),
    "picks not counted": (policy, "_selections", lambda entry, reach: 1),
    "any scale": (policy, "_scale", any_scale),
    "one site's noise is enough": (site_masking, "GAUSSIAN_SIGMA", 1.0),
    "three steps of noise": (site_masking, "LEAST_SIGMA", 0.1),
    "a grid for nothing": (site_masking, "check_price", forgiving),
    "colluding sites carry": (None, "read_terms", all_carry),
    "room for one site": (None, "check_room", lambda terms, rows, bound: None),
    "any roster": (None, "check_terms", forgiving),
}


def test_the_battery_passes_as_it_is():
    assert failures() == []


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(name, monkeypatch):
    module, target, mutant = MUTANTS[name]
    if module is None:
        monkeypatch.setitem(globals(), target, mutant)
    else:
        monkeypatch.setattr(module, target, mutant)
    assert failures()
