"""Reservations and budgets of analysts: the state machine against its definition, gates, fits, files."""

import json
from collections import Counter, defaultdict
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from click.testing import CliRunner
from glm_sites import NAMES, SCHEMA, model_of, sites_of
from privacy.mutation import Mutant
from signed_sites import ANALYST, ROSTER, SCORE, World, asked, charged

import privinf as pi
from privinf.accounting import Budget, ConcentratedLoss, GaussianLoss, Ledger, LedgerEntry
from privinf.cli import main
from privinf.errors import (
    AlignmentError,
    BudgetExceededError,
    NotAvailableError,
    SensitivityError,
    StorageError,
)
from privinf.federation import (
    IdentityKey,
    InProcessFederation,
    Query,
    SecureServer,
    Site,
    SiteLedger,
    SitePolicy,
    TrustedServer,
)
from privinf.federation.envelope import Analyst
from privinf.federation.rounds import FitReservation
from privinf.federation.server_noise import NoiseFile
from privinf.federation.sessions import LASTING, MOST_OPEN, Journal
from privinf.federation.site_ledger import read_site_ledger
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.statistics.ops import SiteOp
from privinf.storage.containers import read_container
from privinf.wire import Requests

THREE = NAMES[:3]
BOB, EVE = (IdentityKey(bytes([seed]) * 32) for seed in (7, 6))
DAY = 24 * 3600
DEEDS = ["charge"] * 5 + ["reserve"] * 3 + ["end", "day", "up"]


def line(mu, *scope):
    return LedgerEntry(
        mechanism="gaussian",
        label="x",
        unit="record",
        relation="replace-one",
        trust="server",
        loss=GaussianLoss(mu),
        source="lattice",
        secure=True,
        scope=scope,
    )


class Clock:
    def __init__(self):
        self.now = 1.8e9

    def __call__(self):
        return self.now


# ---- the state machine against its definition


def cost_of(charges):
    """Return the cost of (scope, cost) for the dearest unit, by the definition of scopes."""
    direct, below = sum((c for scope, c in charges if not scope), start=Fraction(0)), defaultdict(list)
    for scope, c in charges:
        if scope:
            below[scope[0]].append((scope[1:], c))
    classes = defaultdict(Fraction)
    for part, inside in below.items():
        group = part.rpartition("=")[0] or f"alone {part}"
        classes[group] = max(classes[group], cost_of(inside))
    return direct + sum(classes.values(), start=Fraction(0))


class Definition:
    """What is charged and held, and what fits, as `Tally` says it in one line."""

    def __init__(self, limits):
        self.limits, self.charges, self.held = limits, [], {}

    def counts(self, limit, charges, held):
        own = [one for one in charges if limit in ("", one[0])]
        parts = {part: price for part, price in held.items() if limit in ("", part[0])}
        free = [(scope, c) for who, name, scope, c in own if (who, name) not in parts]
        drawn = {p: cost_of([(s, c) for who, name, s, c in own if (who, name) == p]) for p in parts}
        return cost_of(free) + sum((max(parts[p][0], drawn[p]) for p in parts), start=Fraction(0))

    def fits(self, who, charges, held):
        limits = [name for name in ("", who) if name in self.limits]
        return all(self.counts(name, charges, held) <= self.limits[name] for name in dict.fromkeys(limits))

    def charge(self, who, name, costs):
        new = [*self.charges, *((who, name, scope, c) for scope, c in costs)]
        if not self.fits(who, new, self.held):
            return False
        self.charges = new
        return True

    def reserve(self, who, name, price, until):
        new = {**self.held, (who, name): (price, until)}
        if not self.fits(who, self.charges, new):
            return False
        self.held = new
        return True

    def expire(self, now):
        self.held = {part: held for part, held in self.held.items() if held[1] > now}


OUTCOMES = Counter()


def tried(action, *words):
    try:
        action(*words)
    except BudgetExceededError:
        return False
    return True


def complaints_of_a_walk(seed, folder=None, steps=60):
    """Walk at random through charges, reservations, ends, days and restarts; say where they differ."""
    rng, clock = np.random.default_rng(seed), Clock()
    keys = {"ada": (ANALYST, Budget(mu=1.4)), "bob": (BOB, Budget(mu=1.7)), "eve": (EVE, None)}
    people = [Analyst(name, key.verifying, budget) for name, (key, budget) in keys.items()]
    limits = {"": Budget(mu=2.0).limit} | {one.name: one.budget.limit for one in people if one.budget}
    known, complaints = Definition(limits), []

    def opened():
        if folder is None:
            return Ledger(Budget(mu=2.0))
        return SiteLedger(folder / "site" / "l", Budget(mu=2.0), anchor=folder / "anchor" / "l", clock=clock)

    ledger = opened()
    journal = Journal(ledger, clock) if folder is None else ledger.journal
    for step in range(steps):
        by = people[rng.integers(3)]
        name, what = f"fit {rng.integers(3)}", rng.choice(DEEDS)
        mus = [float(mu) for mu in rng.choice([0.1, 0.2, 0.3, 0.5, 0.7, 1.1], rng.integers(1, 3))]
        if what == "day":
            clock.now += rng.choice([1, 4, 8]) * DAY
        elif what == "up" and folder is not None:
            ledger.close()
            ledger = opened()
            journal = ledger.journal
        elif what == "charge":
            known.expire(clock.now)
            batch = f"batch of A={rng.integers(2)}"
            scope = ((), (batch,), ("epoch", batch))[rng.integers(3)]
            name = name if rng.integers(4) else ""
            lines = tuple(line(mu, *scope) for mu in mus)
            costs = [(scope, Budget(mu=2.0).cost(one.loss)) for one in lines]
            query = Query("q", session=f"s{step}", sequence=1, reservation=name)
            expected = known.charge(by.name, name, costs)
            OUTCOMES[str(what), expected] += 1
            if tried(journal.begin, query, query.digest, lines, by) != expected:
                complaints.append(f"{step}: a charge was {'refused' if expected else 'taken'}")
                break
        elif what in ("reserve", "end"):
            known.expire(clock.now)
            losses = tuple(GaussianLoss(mu).to_dict() for mu in mus) if what == "reserve" else ()
            query = Query(what, session=name, sequence=step + 1, charges=losses)
            if what == "end":
                known.held.pop((by.name, name), None)
                journal.settle(query, by)
            else:
                price = sum((Budget(mu=2.0).cost(GaussianLoss(mu)) for mu in mus), start=Fraction(0))
                expected = known.reserve(by.name, name, price, int(clock.now) + LASTING)
                OUTCOMES[str(what), expected] += 1
                if tried(journal.settle, query, by) != expected:
                    complaints.append(f"{step}: a reservation was {'refused' if expected else 'taken'}")
                    break
        spent = cost_of([(scope, c) for _, _, scope, c in known.charges])
        if spent > limits[""]:
            complaints.append(f"{step}: more was charged than the limit")
        if step % 10 == 9 and Fraction(json.loads(ledger.to_json())["spent"]) != spent:
            complaints.append(f"{step}: what is reserved is told as spent")
        known.expire(clock.now)
        journal.expire()
        if ledger.remaining().limit != max(limits[""] - known.counts("", known.charges, known.held), 0):
            complaints.append(f"{step}: another rest is told")
    if folder is not None:
        ledger.close()
    return complaints


@pytest.mark.parametrize("seed", range(12))
def test_a_walk_in_memory(seed):
    assert complaints_of_a_walk(seed) == []


@pytest.mark.parametrize("seed", range(3))
def test_a_walk_in_a_file_that_is_opened_again_and_again(seed, tmp_path):
    (tmp_path / "site").mkdir()
    assert complaints_of_a_walk(seed, tmp_path, 40) == []


def test_the_walks_meet_refusals_and_consent():
    OUTCOMES.clear()
    assert [complaints_of_a_walk(seed) for seed in range(3)] == [[]] * 3
    assert min(OUTCOMES[what, taken] for what in ("charge", "reserve") for taken in (True, False)) >= 3


# ---- the gate


def test_what_is_reserved_is_kept_for_its_fit_and_not_spent():
    site = site_with(Budget(mu=1.0))
    assert not site.handle(Query("reserve", session="r", sequence=1, charges=of(0.8)), "north").error
    assert len(site.ledger) == 0
    assert site.ledger.total().mu == 0.0
    assert site.ledger.remaining().mu == pytest.approx(0.6)
    refused = site.handle(squares(0.7), "north").error
    assert refused.startswith("BudgetExceededError")
    assert "left after the amounts reserved for running fits" in refused
    assert not site.handle(squares(0.6), "north").error
    assert "Budget" in site.handle(squares(0.01), "north").error
    assert not site.handle(squares(0.6, reservation="r"), "north").error  # on the reservation
    assert not site.handle(Query("end", session="r", sequence=2), "north").error
    assert site.ledger.remaining().mu == pytest.approx(0.28**0.5)
    assert site.ledger.total().mu == pytest.approx(0.72**0.5)


def test_a_reservation_that_is_repeated_or_replayed_changes_nothing():
    site = site_with(Budget(mu=1.0))
    first, last = (
        Query(op, session="r", sequence=at, charges=of(0.8) if op == "reserve" else ())
        for at, op in ((1, "reserve"), (2, "end"))
    )
    for query, held in ((first, 1), (first, 1), (last, 0), (first, 0), (last, 0)):
        assert not site.handle(query, "north").error
        assert len(site.journal.reservations) == held
    older = Query("reserve", session="r", sequence=2, charges=of(0.1))
    assert "sequence number" in site.handle(older, "north").error
    again = Query("reserve", session="r", sequence=3, charges=of(0.9))
    assert not site.handle(again, "north").error
    assert site.ledger.remaining().limit == 1 - Fraction("0.81")


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"session": ""}, "its session"),
        ({"session": "\x1b[2J"}, "its session"),
        ({"session": "r" * 65}, "its session"),
        ({"args": {"bits": 3}}, "no argument"),
        ({"charges": ()}, "1 to 64"),
        ({"charges": ({"kind": "gaussian", "mu": 0.001},) * 65}, "1 to 64"),
        ({"charges": ({"kind": "gaussian", "mu": "inf"},)}, "without noise"),
        ({"charges": ({"kind": "gaussian", "mu": -1.0},)}, "mu"),
        ({"charges": ({"mu": 1.0},)}, "kind"),
        ({"charges": ({"kind": "concentrated", "rho": 0.1},)}, "BudgetExceededError"),
        ({"charges": ({"kind": "gaussian", "mu": 1.001},)}, "BudgetExceededError"),
    ],
)
def test_what_cannot_be_reserved(changed, problem, monkeypatch):
    monkeypatch.setattr(SiteOp, "total", lambda *_: pytest.fail("rows were read"))
    site = site_with(Budget(mu=1.0))
    given = {"session": "r", "sequence": 1, "charges": of(0.5)} | changed
    assert problem in site.handle(Query("reserve", **given), "north").error
    assert site.ledger.remaining().mu == 1.0
    closed = Site(ROWS, DESIGN, policy=SitePolicy())
    assert "allows no sums" in closed.handle(Query("reserve", session="r", charges=of(0.5)), "n").error


def test_nobody_fills_a_site_with_reservations():
    site = site_with(None)
    errors = [
        site.handle(Query("reserve", session=f"r{at}", sequence=1, charges=of(0.01)), "north").error
        for at in range(MOST_OPEN + 1)
    ]
    assert errors[:-1] == [""] * MOST_OPEN
    assert "reservations of this analyst" in errors[-1]


def test_a_reservation_lasts_seven_days():
    site = site_with(Budget(mu=1.0))
    site.journal.clock = clock = Clock()
    site.handle(Query("reserve", session="r", sequence=1, charges=of(0.8)), "north")
    clock.now += 7 * DAY - 1
    assert "Budget" in site.handle(squares(0.9), "north").error
    clock.now += 1
    assert not site.handle(squares(0.9), "north").error
    # What names a reservation that has ended is charged as anything else.
    assert "Budget" in site.handle(squares(0.8, reservation="r"), "north").error


# ---- fits


def of(*mus):
    return tuple(GaussianLoss(mu).to_dict() for mu in mus)


ROWS = np.linspace(-1, 1, 20), np.linspace(-1, 1, 20)[:, None]
DESIGN = pi.schema.Design.from_arrays(["x"], bounds=[(-1, 1)], y_bounds=(-2, 2))


def site_with(budget, **policy):
    return Site(ROWS, DESIGN, policy=SitePolicy(trusted_server=True, **policy), ledger=Ledger(budget))


AT = iter(range(1, 10**6))


def squares(mu, reservation=""):
    entry = LedgerEntry(
        mechanism="gaussian",
        label="squares",
        unit="record",
        relation="replace-one",
        trust="server",
        loss=GaussianLoss(mu),
        source="lattice",
        secure=True,
        noise={"scale": 1.0 / mu},
        sensitivity=pi.accounting.Sensitivity("l2", 1.0, "made up"),
    )
    return Query(
        "squared_residuals",
        args={"residual_clip": 1.0},
        design=DESIGN.digest,
        session=f"s{next(AT)}",
        sequence=1,
        version=SITE_OPS["squared_residuals"].version,
        charges=(entry.to_dict(),),
        reservation=reservation,
    )


FREE_OPS = ("describe", "design", "reserve", "end")


class Rival:
    """A federation in which another one asks for a little of every budget before each question of a fit."""

    def __init__(self, sites, mu=1e-3):
        self.inner, self.sites, self.mu = InProcessFederation(sites), tuple(sites), mu
        self.asked, self.refused, self.known = [], 0, sites

    def ask(self, query, asked=None):
        self.asked.append(query)
        if query in self.sums:
            for name, site in self.known.items():
                rival = Query("reserve", session=f"rival {len(self.asked)}", sequence=1, charges=of(self.mu))
                self.refused += "Budget" in site.handle(rival, name).error
        return self.inner.ask(query, asked)

    @property
    def sums(self):
        return [one for one in self.asked if one.op not in FREE_OPS]

    @property
    def ops(self):
        return [one.op for one in self.asked]


def lasso(federation, trust, formula="v ~ y + u"):
    return pi.DebiasedLasso.from_formula(formula, federation, schema=SCHEMA, trust=trust)


WIDE = "v ~ y + u + y:u + I(u ** 2) + I(u ** 3) + I(u ** 4) - 1"
MU, RHO, DELTA = Budget(epsilon=8.0, delta=1e-5), Budget(rho=6.0), 1e-5
LEVEL = {"epsilon": 8.0, "delta": 1e-5, "rng": 0}
FITS = {
    "moments": (MU, lambda f, t: moments(f, t).fit(**LEVEL)),
    "moments HC0": (MU, lambda f, t: moments(f, t).fit(cov_type="HC0", **LEVEL)),
    "glm": (MU, lambda f, t: model_of(f, t).fit(**LEVEL)),
    "glm newton": (MU, lambda f, t: model_of(f, t).fit(optimizer=pi.Newton(rounds=2), **LEVEL)),
    "glm batches": (MU, lambda f, t: model_of(f, t).fit(optimizer=pi.DPSGD(epochs=2, batches=2), **LEVEL)),
    "ols": (MU, lambda f, t: ols(f, t).fit(**LEVEL)),
    "lasso": (RHO, lambda f, t: lasso(f, t).fit(rho=6.0, delta=DELTA, sparsity=1, targets=["y"], rng=0)),
    "logistic lasso": (RHO, lambda f, t: logistic(f, t).fit(rho=6.0, delta=DELTA, targets=["u"], rng=0)),
    "lasso by site": (
        RHO,
        lambda f, t: lasso(f, t, WIDE).fit(
            rho=6.0, delta=DELTA, heterogeneous=True, sparsity=2, shared_sparsity=1, targets=["y"], rng=0
        ),
    ),
}
PEELED = {"logistic lasso", "lasso by site"}


def moments(federation, trust):
    return pi.MomentOLS.from_formula("v ~ u", federation, schema=SCHEMA, trust=trust)


def ols(federation, trust):
    return pi.FederatedGLM.from_formula(
        "v ~ u + y", federation, schema=SCHEMA, family="gaussian", trust=trust
    )


def logistic(federation, trust):
    return pi.DebiasedLasso.from_formula(
        "y ~ u + v", federation, schema=SCHEMA, trust=trust, family="binomial"
    )


CASES = [(name, "server") for name in FITS] + [(name, "secure-sum") for name in FITS if name not in PEELED]


@pytest.mark.audit
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("name", "trust"), CASES)
def test_a_fit_reserves_its_whole_price_and_gives_back_the_rest(name, trust):
    """Its price is all that the sites allow, and a rival asks for some of it before every question."""
    budget, fit = FITS[name]
    if budget is RHO and trust == "secure-sum":
        budget = Budget(mu=12.0**0.5)
    sites = sites_of(THREE, ledgers={name: Ledger(budget) for name in THREE})
    federation = Rival(sites)
    fit(federation, trust)
    assert [op for op in federation.ops if op in ("reserve", "end")] == ["reserve", "end"]
    assert federation.refused == 3 * len(federation.sums) > 0
    (reserved,) = {query.session for query in federation.asked if query.op == "reserve"}
    assert {query.reservation for query in federation.sums} == {reserved}
    for site in sites.values():
        assert site.journal.reservations == ()
        assert site.ledger.remaining().limit == budget.limit - sum_of(site.ledger)
        assert 0.3 * budget.limit < sum_of(site.ledger) <= budget.limit


def sum_of(ledger):
    return Fraction(json.loads(ledger.to_json())["spent"])


def test_a_fit_without_noise_and_ones_own_rows_reserve_nothing():
    sites = sites_of(THREE)
    federation = Rival(sites)
    moments(federation, "server").fit(epsilon=np.inf)
    assert "reserve" not in federation.ops


@pytest.mark.parametrize("trust", ["server", "secure-sum"])
@pytest.mark.parametrize("name", ["moments", "glm"])
def test_one_sites_refusal_frees_all(name, trust):
    budgets = dict.fromkeys(THREE, MU) | {THREE[1]: Budget(mu=0.5)}
    sites = sites_of(THREE, ledgers={name: Ledger(budget) for name, budget in budgets.items()})
    with pytest.raises(BudgetExceededError, match=f"site '{THREE[1]}': the reservation"):
        FITS[name][1](InProcessFederation(sites), trust)
    assert all(len(site.ledger) == 0 and site.journal.reservations == () for site in sites.values())
    assert all(site.ledger.remaining().limit == site.ledger.budget.limit for site in sites.values())


def test_a_silent_site_frees_all():
    sites = sites_of(THREE, ledgers={name: Ledger(MU) for name in THREE})
    silent = InProcessFederation(sites, lost_replies={THREE[2]: {1}})
    with pytest.raises(AlignmentError, match=THREE[2]):
        moments(silent, "server").fit(**LEVEL)
    assert all(len(site.ledger) == 0 and site.journal.reservations == () for site in sites.values())


def test_a_fit_that_fails_gives_back():
    sites = sites_of(THREE, ledgers={name: Ledger(MU) for name in THREE})
    failing = InProcessFederation(sites, lost_replies={THREE[0]: {4}})
    with pytest.raises(AlignmentError, match=THREE[0]):
        model_of(failing, "server").fit(**LEVEL)
    for site in sites.values():
        assert len(site.ledger) > 0
        assert site.journal.reservations == ()


class Interrupted(InProcessFederation):
    """A federation whose asker stops the program while the sites answer a reservation."""

    def ask(self, query, sites=None):
        replies = super().ask(query, sites)
        if query.op == Requests.RESERVE:
            raise KeyboardInterrupt
        return replies


@pytest.mark.parametrize("model", [moments, ols])
def test_a_fit_that_is_interrupted_while_it_reserves_gives_back(model):
    sites = sites_of(THREE, ledgers={name: Ledger(MU) for name in THREE})
    with pytest.raises(KeyboardInterrupt):
        model(Interrupted(sites), "server").fit(**LEVEL)
    assert all(len(site.ledger) == 0 and site.journal.reservations == () for site in sites.values())


class Killed(InProcessFederation):
    """A federation whose asker dies at a question, and says nothing more to the sites."""

    dead, left = False, 10**6

    def ask(self, query, sites=None):
        self.left -= query.op not in FREE_OPS
        if self.dead or self.left < 0:
            self.dead = True
            raise KeyboardInterrupt
        return super().ask(query, sites)


def killed_fit(sites, after, **settings):
    federation = Killed(sites)
    federation.left = after
    with pytest.raises(KeyboardInterrupt):
        model_of(federation, "secure-sum").fit(**{**LEVEL, "rng": None, **settings})


def test_a_fit_that_dies_leaves_its_reservation_to_expire():
    sites, clock = sites_of(THREE, ledgers={name: Ledger(MU) for name in THREE}), Clock()
    for site in sites.values():
        site.journal.clock = clock
    killed_fit(sites, after=2)
    other = moments(InProcessFederation(sites), "secure-sum")
    with pytest.raises(BudgetExceededError, match="after the amounts reserved"):
        other.fit(epsilon=2.0, delta=1e-5)
    clock.now += LASTING
    other.fit(epsilon=2.0, delta=1e-5)


@pytest.mark.parametrize("days", [0, 8])
def test_a_checkpointed_fit_goes_on_under_its_own_reservation(days, tmp_path):
    """Its price is all that there is: what it had charged is part of what it reserves, even then."""
    sites, clock = sites_of(THREE, ledgers={name: Ledger(MU) for name in THREE}), Clock()
    for site in sites.values():
        site.journal.clock = clock
    killed_fit(sites, after=2, checkpoint=tmp_path / "fit")
    spent = {name: len(site.ledger) for name, site in sites.items()}
    clock.now += days * DAY
    rival = Rival(sites)
    fit = model_of(rival, "secure-sum").fit(**{**LEVEL, "rng": None}, checkpoint=tmp_path / "fit")
    assert rival.refused == 3 * len(rival.sums) > 0
    for name, site in sites.items():
        assert 0 < spent[name] < len(site.ledger) == len(fit.privacy.entries)
        assert site.journal.reservations == ()
    again = Rival(sites)
    model_of(again, "secure-sum").fit(**{**LEVEL, "rng": None}, checkpoint=tmp_path / "fit")
    assert {*again.ops} <= {"describe", "design"}  # all is in the folder


@pytest.mark.parametrize("trust", ["server", "secure-sum"])
def test_a_fit_that_was_stopped_before_its_first_question_goes_on_under_its_reservation(
    trust, tmp_path, monkeypatch
):
    """Its price is all that there is, so that a second reservation would be refused; the noise key is new."""
    sites = sites_of(THREE, ledgers={name: Ledger(MU) for name in THREE})
    folder = tmp_path / "fit"
    with monkeypatch.context() as stopped:
        stopped.setattr("privinf.federation.checkpoint._write_plan", stop)
        with pytest.raises(KeyboardInterrupt):
            model_of(InProcessFederation(sites), trust).fit(**{**LEVEL, "rng": None}, checkpoint=folder)
    (name,) = {one.name for site in sites.values() for one in site.journal.reservations}
    key = folder / "noise.key"
    before = key.read_bytes() if trust == "server" else b""
    fit = model_of(InProcessFederation(sites), trust).fit(**{**LEVEL, "rng": None}, checkpoint=folder)
    _, header = read_container(folder / "reservation.npz", format="privinf-checkpoint", key=seal_of(key))
    assert header["name"] == name
    for site in sites.values():
        assert len(site.ledger) == len(fit.privacy.entries)
        assert site.journal.reservations == ()
    assert trust == "secure-sum" or not key.read_bytes().startswith(before)


def stop(*_):
    raise KeyboardInterrupt


def seal_of(key):
    return NoiseFile(key).key.seal() if key.exists() else None


def test_a_folder_without_its_reservation_is_refused(tmp_path):
    sites = sites_of(THREE, ledgers={name: Ledger(MU) for name in THREE})
    killed_fit(sites, after=2, checkpoint=tmp_path / "fit")
    (tmp_path / "fit" / "reservation.npz").unlink()
    federation = Rival(sites, mu=1e9)
    spent = [len(site.ledger) for site in sites.values()]
    with pytest.raises(StorageError, match=r"reservation\.npz is missing.*start the fit again"):
        model_of(federation, "secure-sum").fit(**{**LEVEL, "rng": None}, checkpoint=tmp_path / "fit")
    assert "reserve" not in federation.ops
    assert [len(site.ledger) for site in sites.values()] == spent


# ---- folders of refused fits


CHECKPOINTED = {
    "moments": lambda f, t, **more: moments(f, t).fit(**{**LEVEL, "rng": None, **more}),
    "glm": lambda f, t, **more: model_of(f, t).fit(**{**LEVEL, "rng": None, **more}),
    "glm newton": lambda f, t, **more: model_of(f, t).fit(
        optimizer=pi.Newton(rounds=2), **{**LEVEL, "rng": None, **more}
    ),
}
TRUSTED = SitePolicy(trusted_server=True)
ONLY_SECURE = SitePolicy(secure_sums=True)


def files_in(folder):
    return {path.name for path in folder.iterdir()} - {"lock"}


@pytest.mark.parametrize("trust", ["server", "secure-sum"])
@pytest.mark.parametrize("name", CHECKPOINTED)
def test_a_fit_that_a_site_refuses_leaves_no_files_and_a_smaller_one_can_use_its_folder(
    name, trust, tmp_path
):
    budgets = dict.fromkeys(THREE, MU) | {THREE[1]: Budget(mu=1.2)}
    sites = sites_of(THREE, ledgers={name: Ledger(budget) for name, budget in budgets.items()})
    federation, folder = InProcessFederation(sites), tmp_path / "fit"
    with pytest.raises(BudgetExceededError, match="nothing was recorded"):
        CHECKPOINTED[name](federation, trust, checkpoint=folder)
    assert files_in(folder) == set()
    assert all(len(site.ledger) == 0 and site.journal.reservations == () for site in sites.values())
    CHECKPOINTED[name](federation, trust, checkpoint=folder, epsilon=4.0)
    assert {"reservation.npz", "00000.npz"} <= files_in(folder)
    with pytest.raises(StorageError, match="belongs to another fit"):
        CHECKPOINTED[name](federation, trust, checkpoint=folder, epsilon=3.9)


@pytest.mark.parametrize(
    ("trust", "policy"), [("server", ONLY_SECURE), ("secure-sum", TRUSTED)], ids=["server", "secure-sum"]
)
def test_a_fit_that_a_policy_refuses_leaves_no_files(trust, policy, tmp_path):
    sites = sites_of(THREE, policies={THREE[2]: policy})
    with pytest.raises(NotAvailableError, match=THREE[2]):
        CHECKPOINTED["glm"](InProcessFederation(sites), trust, checkpoint=tmp_path / "fit")
    assert files_in(tmp_path / "fit") == set()


@pytest.mark.parametrize("problem", [BudgetExceededError, NotAvailableError, SensitivityError])
@pytest.mark.parametrize("name", ["planned", "_spend"])
def test_a_refusal_between_the_reservation_and_the_charge_leaves_no_files(
    name, problem, tmp_path, monkeypatch
):
    sites = sites_of(THREE)

    def refuse(*_, **__):
        raise problem("refused")

    monkeypatch.setattr(TrustedServer, name, refuse)
    with pytest.raises(problem):
        CHECKPOINTED["glm"](InProcessFederation(sites), "server", checkpoint=tmp_path / "fit")
    assert files_in(tmp_path / "fit") == set()
    assert all(site.journal.reservations == () for site in sites.values())


def test_files_stay_where_the_charge_may_be_recorded(tmp_path, monkeypatch):
    """An error about the ledger's file proves nothing, and a site that refuses later was asked after it."""
    sites = sites_of(THREE)
    real = TrustedServer._spend

    def broken(server, *words):
        raise StorageError("the ledger cannot be written")

    monkeypatch.setattr(TrustedServer, "_spend", broken)
    with pytest.raises(StorageError, match="cannot be written"):
        CHECKPOINTED["glm"](InProcessFederation(sites), "server", checkpoint=tmp_path / "fit")
    begun = {"reservation.npz", "00000-asked.npz", "noise.key"}
    assert files_in(tmp_path / "fit") == begun
    monkeypatch.setattr(TrustedServer, "_spend", real)
    failing = InProcessFederation(sites, lost_replies={THREE[0]: {3}})
    with pytest.raises(AlignmentError, match=THREE[0]):
        CHECKPOINTED["glm"](failing, "server", checkpoint=tmp_path / "second")
    assert files_in(tmp_path / "second") >= begun
    assert any(len(site.ledger) > 0 for site in sites.values())
    for folder in ("fit", "second"):  # both go on
        CHECKPOINTED["glm"](InProcessFederation(sites), "server", checkpoint=tmp_path / folder)


def test_a_reservation_that_was_there_before_stays(tmp_path, monkeypatch):
    sites = sites_of(THREE, ledgers={name: Ledger(MU) for name in THREE})
    folder = tmp_path / "fit"
    with monkeypatch.context() as stopped:
        stopped.setattr("privinf.federation.checkpoint._write_plan", stop)
        with pytest.raises(KeyboardInterrupt):
            CHECKPOINTED["glm"](InProcessFederation(sites), "server", checkpoint=folder)
    with monkeypatch.context() as refusing:
        refusing.setattr("privinf.federation.checkpoint._write_plan", refuse_budget)
        with pytest.raises(BudgetExceededError):
            CHECKPOINTED["glm"](InProcessFederation(sites), "server", checkpoint=folder)
    assert "reservation.npz" in files_in(folder)
    CHECKPOINTED["glm"](InProcessFederation(sites), "server", checkpoint=folder)


def refuse_budget(*_):
    raise BudgetExceededError("refused")


@pytest.mark.parametrize("before", ["server", "secure-sum"])
@pytest.mark.parametrize("after", ["server", "secure-sum"])
def test_a_reservation_of_another_fit_without_a_query_is_replaced(before, after, tmp_path, monkeypatch):
    """Its price is all that there is: it is ended at the sites, or the other fit would be refused."""
    sites = sites_of(THREE, ledgers={name: Ledger(MU) for name in THREE})
    folder = tmp_path / "fit"
    with monkeypatch.context() as stopped:
        stopped.setattr("privinf.federation.checkpoint._write_plan", stop)
        with pytest.raises(KeyboardInterrupt):
            CHECKPOINTED["glm"](InProcessFederation(sites), before, checkpoint=folder)
    assert all(len(site.journal.reservations) == 1 for site in sites.values())
    for _ in range(2):  # from the sites, and from the folder
        fit = CHECKPOINTED["moments"](InProcessFederation(sites), after, checkpoint=folder)
        assert all(len(site.ledger) == len(fit.privacy.entries) for site in sites.values())
        assert all(site.journal.reservations == () for site in sites.values())
    assert ("noise.key" in files_in(folder)) == (after == "server")


@pytest.mark.parametrize("after", ["server", "secure-sum"])
def test_a_folder_whose_queries_are_gone_is_not_taken_for_a_new_one(after, tmp_path):
    sites, folder = sites_of(THREE), tmp_path / "fit"
    CHECKPOINTED["glm"](InProcessFederation(sites), "server", checkpoint=folder)
    for path in folder.glob("0*.npz"):
        path.unlink()
    kept = {path.name: path.read_bytes() for path in folder.iterdir()}
    for name in ("glm", "moments"):
        with pytest.raises(StorageError, match=r"noise\.key belongs to another fit"):
            CHECKPOINTED[name](InProcessFederation(sites), after, checkpoint=folder)
    assert kept == {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_changed_file_of_a_fit_names_no_argument(tmp_path):
    sites, folder = sites_of(THREE), tmp_path / "fit"
    CHECKPOINTED["glm"](InProcessFederation(sites), "server", checkpoint=folder)
    CHECKPOINTED["glm"](InProcessFederation(sites), "secure-sum", checkpoint=tmp_path / "other")
    (folder / "00000.npz").write_bytes((tmp_path / "other" / "00000.npz").read_bytes())
    with pytest.raises(StorageError, match="does not belong to the noise key in its folder") as raised:
        CHECKPOINTED["glm"](InProcessFederation(sites), "server", checkpoint=folder)
    assert "key=" not in str(raised.value)


# ---- budgets of analysts


ADA = {"name": "ada", "key": ANALYST.verifying, "budget": {"mu": 1.5}}
BOTH = [ADA, {"name": "bob", "key": BOB.verifying}]


@pytest.fixture
def world(tmp_path):
    found = World(tmp_path, analysts=BOTH)
    yield found
    found.close()


def test_an_analyst_has_a_budget_within_the_sites(world):
    asked(world.federation(roster=ROSTER, key=ANALYST))
    with pytest.raises(BudgetExceededError, match="limit of analyst 'ada'"):
        SecureServer(world.federation(key=ANALYST)).vector_sum("clipped_score", SCORE, mu=1.2, label="s")
    asked(world.federation(key=BOB))
    for name in ("north", "south", "west"):
        assert charged(name, world) == 2
        world.restarted(name)
    with pytest.raises(BudgetExceededError, match="analyst 'ada'"):
        SecureServer(world.federation(key=ANALYST)).vector_sum("clipped_score", SCORE, mu=1.2, label="s")
    journal = read_site_ledger(world.ledger("north"))
    assert {name: len(found) for name, found in journal.charges.items()} == {"ada": 1, "bob": 1}


def test_a_reservation_counts_against_the_analyst_too_and_is_nobody_elses(world):
    federations = {key: world.federation(key=key) for key in (ANALYST, BOB)}

    def said(key, op, sequence, *mus):
        query = Query(op, session="r", sequence=sequence, charges=of(*mus))
        return {reply.error for reply in federations[key].ask(query)}

    assert said(ANALYST, "reserve", 1, 1.4) == {""}
    (error,) = said(ANALYST, "reserve", 2, 1.4, 0.7)
    assert "limit of analyst 'ada'" in error
    assert said(BOB, "end", 3) == {""}  # his own of this name, and there is none
    for name in ("north", "south", "west"):
        world.restarted(name)
    with pytest.raises(BudgetExceededError, match="after the amounts reserved"):
        asked(world.federation(key=ANALYST))
    asked(world.federation(key=BOB))
    assert said(ANALYST, "end", 4) == {""}
    asked(world.federation(key=ANALYST))


def test_a_budget_that_the_policy_changes_counts_what_was_asked_before():
    ledger = Ledger(Budget(mu=9.0))
    journal = Journal(ledger)

    def charge(mu, budget):
        query = squares(mu)
        by = Analyst("ada", ANALYST.verifying, Budget(mu=budget))
        return tried(journal.begin, query, query.digest, (line(mu),), by)

    assert charge(3.0, 4.0)
    assert not charge(3.0, 4.0)
    assert charge(3.0, 5.0)
    assert not charge(0.1, 3.0)
    assert len(ledger) == 2


def test_losses_that_a_budget_cannot_count_are_not_left_out_of_it():
    journal, by = Journal(Ledger(Budget(rho=9.0))), Analyst("ada", ANALYST.verifying)
    query = squares(1.0)
    journal.begin(query, query.digest, (replace(line(1.0), loss=ConcentratedLoss(1.0)),), by)
    limited = replace(by, budget=Budget(mu=1.0))
    for _ in range(2):
        query = squares(1.0)
        with pytest.raises(BudgetExceededError, match="declare the limit as Budget"):
            journal.begin(query, query.digest, (line(1.0),), limited)


def test_in_a_file_that_others_charge_a_reservation_is_checked_and_not_held(tmp_path):
    ledger = pi.LedgerFile(tmp_path / "l", Budget(mu=1.0))
    site = Site(ROWS, DESIGN, policy=SitePolicy(trusted_server=True), ledger=ledger)
    assert "Budget" in site.handle(Query("reserve", session="r", sequence=1, charges=of(1.1)), "n").error
    assert not site.handle(Query("reserve", session="r", sequence=1, charges=of(0.9)), "n").error
    assert ledger.remaining().mu == 1.0
    assert not site.handle(squares(0.9, reservation="r"), "n").error
    assert not site.handle(Query("end", session="r", sequence=2), "n").error


# ---- the holder's commands


def test_the_holder_sees_and_frees_reservations(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path, run = tmp_path / "north.ledger", CliRunner()

    def said(*words, code=0):
        found = run.invoke(main, ["ledger", *map(str, words)], catch_exceptions=False)
        assert found.exit_code == code, found.output
        return found.output

    by = Analyst("ada", ANALYST.verifying)
    with SiteLedger(path, Budget(epsilon=4.0, delta=1e-6)) as ledger:
        for name, mu in (("first", 0.3), ("second", 0.4)):
            reserve = Query(
                "reserve", session=name, sequence=1, charges=of(mu), purpose=f"{name}: OLS: y ~ x"
            )
            ledger.journal.settle(reserve, by)
        query = squares(0.2, reservation="first")
        ledger.journal.begin(query, query.digest, (line(0.2),), by)
    told = json.loads(said("show", path, "--json"))
    assert told["by_analyst"] == [{"analyst": "ada", "epsilon": told["epsilon"], "of": None}]
    assert [(one["name"], one["analyst"], one["spent"] > 0) for one in told["reserved"]] == [
        ("first", "ada", True),
        ("second", "ada", False),
    ]
    shown = said("show", path)
    assert "of which" in shown
    for name in ("first", "second"):
        assert f'reserved by ada for a fit described as "{name}: OLS: y ~ x": epsilon' in shown
    assert [one["purpose"] for one in told["reserved"]] == ["first: OLS: y ~ x", "second: OLS: y ~ x"]
    assert "no budget reservation named 'third'; run 'privinf ledger show'" in said(
        "free", path, "third", code=2
    )
    assert "1 budget reservation(s) freed" in said("free", path, "first")
    assert "1 budget reservation(s) freed" in said("free", path, "--all")
    assert "0 budget reservation(s) freed" in said("free", path, "--all")
    left = json.loads(said("show", path, "--json"))
    assert left["reserved"] == []
    assert left["epsilon"] == told["epsilon"]
    with SiteLedger(path) as ledger:
        assert ledger.remaining().limit == ledger.budget.limit - Fraction("0.04")


# ---- one thing broken at a time


MUTANTS = {
    "what is reserved does not count": Mutant(
        "accounting.scopes",
        "Tally.cost",
        "max(amount, node.cost())",
        "node.cost()",
    ),
    "what was drawn beyond does not count": Mutant(
        "accounting.scopes",
        "Tally.cost",
        "max(amount, node.cost())",
        "amount",
    ),
    "a charge does not draw": Mutant(
        "accounting.scopes",
        "Tally._node",
        "if on is None or",
        "if True or",
    ),
    "a reservation is not asked about": Mutant(
        "accounting.scopes",
        "Tally.hold",
        "if subject and",
        "if False and",
    ),
    "what was charged before is no part": Mutant(
        "accounting.scopes",
        "Tally._open",
        "self._charges.get(part, ())",
        "()",
    ),
    "what was drawn is given back too": Mutant(
        "accounting.scopes",
        "Tally.free",
        "self._free, 1)",
        "self._free, 0)",
    ),
    "it is freed twice": Mutant(
        "accounting.scopes",
        "Tally.free",
        "(part, None) is not None",
        "(part, None) is None or True",
    ),
    "a refused reservation stays": Mutant(
        "accounting.scopes",
        "Tally.hold",
        "            self.free(part)\n",
        "",
    ),
    "an analyst's budget is not asked": Mutant(
        "federation.sessions",
        "Journal.tally",
        "by.budget is None",
        "True",
    ),
    "it is asked and not counted": Mutant(
        "federation.sessions",
        "Journal._credit",
        "if whose in self._tallies",
        "if False",
    ),
    "a reservation counts for the site alone": Mutant(
        "federation.sessions",
        "Journal._hold",
        "(tally := self.tally(by)) is not None",
        "False",
    ),
    "it lasts forever": Mutant(
        "federation.sessions",
        "Journal.expire",
        "reservation.until <= now",
        "False",
    ),
    "it ends for the site alone": Mutant(
        "federation.sessions",
        "Journal._free",
        "if part[0] in self._tallies",
        "if False",
    ),
    "anybody draws on it": Mutant(
        "federation.sessions",
        "_part",
        'line.get("analyst", "")',
        '"ada"',
    ),
    "the analyst is not written down": Mutant(
        "federation.sessions",
        "Journal.begin",
        '{"analyst": by.name}',
        "{}",
    ),
}


@pytest.mark.audit
@pytest.mark.parametrize("name", MUTANTS)
def test_the_walk_notices(name, tmp_path):
    with MUTANTS[name].applied():
        if any(complaints_of_a_walk(seed) for seed in range(12)):
            return
        for seed in range(3):
            folder = tmp_path / str(seed)
            (folder / "site").mkdir(parents=True)
            if complaints_of_a_walk(seed, folder, 40):
                return
    pytest.fail("no walk noticed it")


def test_mutant_the_refusal_of_one_site_frees_none(monkeypatch):
    monkeypatch.setattr(FitReservation, "give_back", lambda *_: None)
    for check in (test_a_silent_site_frees_all, test_a_fit_that_fails_gives_back):
        with pytest.raises(AssertionError):
            check()
    with pytest.raises(AssertionError):
        test_one_sites_refusal_frees_all("moments", "server")


def test_mutant_a_fit_reserves_a_half(monkeypatch):
    monkeypatch.setattr(
        TrustedServer,
        "reserve",
        lambda server, losses, name, position, old=TrustedServer.reserve: old(
            server, [GaussianLoss(loss.mu / 2.0) for loss in losses], name, position
        ),
    )
    with pytest.raises((AssertionError, BudgetExceededError)):
        test_a_fit_reserves_its_whole_price_and_gives_back_the_rest("glm", "server")
