"""One thing broken at a time in charges, weights, picks and norms: an audit named here must catch it."""

import math
import tempfile
from pathlib import Path

import attained
import moving_tables
import numpy as np
import pandas as pd
import pytest
from mutation import Mutant
from record_replay import audit
from replay_fits import ASKED, allowed, run_of
from scipy.special import ndtr
from support.secret_kinds import refits_under_a_planted_key, safe_against_all

import privinf as pi
from privinf.accounting import (
    Budget,
    ConcentratedLoss,
    GaussianLoss,
    Ledger,
    LedgerEntry,
    PureLoss,
    Sensitivity,
    calibrate_mu,
    epsilon_to_rho,
    pure_rho,
    split_mu,
)
from privinf.accounting.composition import compose
from privinf.accounting.files import LedgerFile
from privinf.accounting.scopes import total_of
from privinf.errors import ArgumentError, PrivinfError, UnchargedError
from privinf.federation import InProcessFederation, Site, SitePolicy, TrustedServer
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.files import file_source
from privinf.mechanisms.gaussian import noisy_scalar
from privinf.mechanisms.opened import split
from privinf.mechanisms.rows import Rows
from privinf.mechanisms.selection import NoisyTopK
from privinf.mechanisms.statistics.block import SiteBlock
from privinf.mechanisms.statistics.moments import MomentLayout
from privinf.mechanisms.statistics.ops import RecordSensitivity

# ---- audits: each returns what it complains of, nothing where all is well


def of_fit(name, pair=None):
    """Record and replay of a fit, and whether it charges more than it was asked for."""

    def check():
        found = audit(run_of(name) if pair is None else run_of(name, pair), allowed=allowed(name))
        complaints = found.complaints
        if found.refused:
            complaints = [*complaints, "refused"]
        if name in ASKED:
            epsilon, delta = ASKED[name]
            if found.ledger.total().epsilon(delta) > epsilon * (1.0 + 1e-9):
                complaints = [*complaints, "more is charged than was asked for"]
        return complaints

    return check


def of_sizes(*names):
    """Sensitivities of sums, reached and never passed."""
    return lambda: [f"{name}: {text}" for name in names for text in attained.complaints(name)]


def of_two_ids():
    """A person whose id is a number in two rows and a text in two others, of whom two rows are allowed."""
    frame = pd.DataFrame({"x": 0.5, "y": 0.1, "who": [17, 17, "17", "17", *range(100, 110)]})
    schema = pi.Schema({"x": (0, 1), "y": (0, 1)}, unit="who", max_rows=2)
    try:
        Site(frame, schema)
    except PrivinfError:
        return []
    return ["four rows of a person pass max_rows=2"]


def of_files(*texts):
    """Numbers of rows of CSV files; None of one that is refused."""
    found = []
    for text in texts:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "t.csv"
            path.write_text(text)
            try:
                found.append(sum(map(len, file_source(path).read(file_source(path).columns, "texts"))))
            except PrivinfError:
                found.append(None)
    return found


def of_empty_lines():
    """Whether the number of rows of a file says which values are missing."""
    return [] if of_files("a\n1\n2\n3\n", "a\n1\n\n\n") == [3, 3] else ["n tells of missing values"]


def of_short_lines():
    """Whether a line with too few fields is a row."""
    return [] if of_files("a,b\n1,2\n3\n", 'a,b\n"x",2\n"y"\n') == [None, None] else ["a short line is a row"]


def of_machines():
    """How many rows the machines of some labels have."""
    labels = ["a", "a\0", "a\0x"] * 10
    design = pi.Design.from_arrays(["x"], bounds=[(-1, 1)], y_bounds=(-1, 1))
    parts = split(Rows(np.zeros((30, 1)), np.zeros(30)), labels, design)
    return [] if [len(part) for part in parts.values()] == [10, 10, 10] else ["machines are merged"]


MANY = 40
PERSON = pi.Schema({"y": (-1.0, 1.0), "a": (-1.0, 1.0), "b": (-1.0, 1.0)}, unit="person", max_rows=MANY)


def of_many_roundings():
    """A person's rows at the worst pair, at budgets so small that what the grid adds can be seen."""

    def frame(record):
        rows = np.arange(2 * MANY)
        drawn = pd.DataFrame(
            {"a": np.sin(rows), "b": np.cos(rows), "y": np.sin(3 * rows), "person": rows // MANY}
        )
        drawn.loc[drawn["person"] == 0, ["a", "b", "y"]] = record
        return drawn

    def release(mu):
        mechanism = pi.Moments(PERSON, "y ~ a + b", response_weight=1.0)
        pair = frame([1.0, 1.0, 1.0]), frame([-1.0, -1.0, 1.0])
        return audit(lambda world, ledger: mechanism.release(pair[world], mu=mu, ledger=ledger)).overspent

    return [text for mu in np.geomspace(5e-6, 2e-5, 12) for text in release(float(mu))]


def of_gridded_norms():
    """Norms of what one record adds to exact sums: of corners, of directions beyond a ball, of residuals."""
    rng, found = np.random.default_rng(0), []
    rows = np.concatenate([rng.choice([-1.0, 1.0], (8, 3)), rng.normal(size=(60, 3)) * 3.0])
    for norm in (math.sqrt(3.0), 1.3, 0.02):
        for name, more in (
            ("moments.total", {"response_bound": 0.7}),
            ("moments.residual", {"coefficients": np.full(3, 0.2), "residual_clip": 0.7}),
        ):
            args = {"norm": norm, "response_factor": 1.0, **more}
            top = norm**2 if name == "moments.total" else norm**2 * 0.49
            layout = MomentLayout(0, 3 if name == "moments.total" else 2)
            for row in rows:
                block = SiteBlock(
                    features=row[None, :],
                    response=5.0 * row[:1],
                    low=-np.ones(3),
                    high=np.ones(3),
                    response_low=-1.0,
                    response_high=1.0,
                )
                sums = SITE_OPS[name].sums(block, args)
                sums.update(block)
                diagonal = np.diag(layout.matrix(sums.floats(), np.empty((0, 0))))
                if not diagonal[:3].sum() <= top * (1.0 + 1e-9):
                    found.append(f"{name}: a row passes its norm {norm:.3g}")
    return found


def of_far_residuals(weight=1.0):
    """Responses far on the wrong side of a line that all others lie on: residuals beyond their clip."""
    schema = pi.Schema({"y": (-1.0, 1.0), "a": (-1.0, 1.0), "w": pi.Numeric(0.5, weight, public=True)})
    a = np.linspace(-1.0, 1.0, 4000)
    pair = [
        pd.DataFrame({"a": np.append(a, far), "y": np.append(0.8 * a, -far), "w": weight})
        for far in (1.0, -1.0)
    ]

    def run(world, ledger):
        mechanism = pi.Moments(schema, "y ~ a", weights=None if weight == 1.0 else "w")
        return mechanism.release(pair[world], mu=20.0, cov_type="HC0", ledger=ledger)

    found = audit(run)
    return found.complaints if found.share > 0.9 else [f"reached to {found.share:.3f} only"]


def of_weighted_residuals():
    """The same in rows of weight 2."""
    return of_far_residuals(weight=2.0)


def of_roundings():
    """Numbers and picks that lie across grid points, at budgets so small that these can be seen."""
    rng = np.random.default_rng(1)
    found = []
    for _ in range(12):
        low = rng.uniform(0.0, 1.0)
        pair = low, low + 1.1
        found += audit(
            lambda world, ledger, pair=pair: noisy_scalar(pair[world], 1.1, mu=3e-6, ledger=ledger)
        ).overspent
        vector = rng.uniform(5.0, 6.0, 6)
        pair = vector, vector + 1.1 * np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
        for options in (
            {"epsilon": 6e-6, "delta": 0, "values": False},
            {"epsilon": 1e-5, "delta": 0, "method": "laplace"},
            {"rho": 3e-11},
        ):
            top = NoisyTopK(1 if "epsilon" in options else 4, 1.1, **options)
            found += audit(
                lambda world, ledger, top=top, pair=pair: top.release(pair[world], ledger=ledger)
            ).overspent
    return found


def of_secret_files():
    """Keys and ledgers that others can have read, changed or planted."""
    with tempfile.TemporaryDirectory() as folder:
        return safe_against_all(Path(folder))


def of_planted_keys():
    """What a planter of a noise key learns of a fit that finds it."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        return [
            *refits_under_a_planted_key(Path(one), linked=True),
            *refits_under_a_planted_key(Path(two), linked=False),
        ]


def of_accounts():
    """Composition, scopes and calibration against formulas of their own."""
    found = []

    def equal(what, value, expected):
        if not math.isclose(value, expected, rel_tol=1e-9, abs_tol=1e-15):
            found.append(what)

    equal("two Gaussians", compose([GaussianLoss(3.0), GaussianLoss(4.0)]).mu, 5.0)
    equal("two of zCDP", compose([ConcentratedLoss(0.3), ConcentratedLoss(0.4), GaussianLoss(1.0)]).rho, 1.2)
    equal("pure in zCDP", pure_rho(1.0), _largest_renyi(1.0))
    equal("two responses", compose([PureLoss(1.0), PureLoss(1.0)]).delta(1.0), _two_responses(1.0, 1.0))
    equal(
        "two and a Gaussian", compose([GaussianLoss(0.7), PureLoss(0.5)]).delta(0.4), _mixture(0.7, 0.5, 0.4)
    )
    one = [(("site=a",), GaussianLoss(3.0)), (("site=b",), GaussianLoss(4.0)), ((), GaussianLoss(1.0))]
    equal("disjoint classes", total_of(one).mu, math.sqrt(17.0))
    equal(
        "parts that add up", total_of([(("fit",), GaussianLoss(3.0)), (("more",), GaussianLoss(4.0))]).mu, 5.0
    )
    for parts in (3, [1.0, 2.0, 0.5]):
        equal("split", math.hypot(*split_mu(1.7, parts)), 1.7)
    for epsilon, delta in ((1.0, 1e-5), (4.0, 1e-3)):
        mu = calibrate_mu(epsilon=epsilon, delta=delta)
        equal(
            "calibrated",
            ndtr(-epsilon / mu + mu / 2) - math.exp(epsilon) * ndtr(-epsilon / mu - mu / 2),
            delta,
        )
        if ConcentratedLoss(epsilon_to_rho(epsilon, delta)).rho > _most_rho(epsilon, delta) * (1.0 + 1e-6):
            found.append("rho for epsilon")
    for budget, losses in (
        (Budget(mu=5.0), [GaussianLoss(3.0), GaussianLoss(4.1)]),
        (Budget(rho=1.0), [ConcentratedLoss(0.6), GaussianLoss(1.0)]),
        (Budget(epsilon=2.0, delta=0), [PureLoss(1.0), PureLoss(1.1)]),
    ):
        ledger = Ledger(budget)
        try:
            for loss in losses:
                ledger.spend(line(loss=loss))
        except PrivinfError:
            continue
        found.append("a limit that was passed")
    return found


def _largest_renyi(epsilon):
    """Return the rho of randomized response: the largest of its Renyi divergences over their orders."""
    orders, keep = np.geomspace(1.001, 50.0, 4000), 1.0 / (1.0 + math.exp(-epsilon))
    moment = keep**orders * (1 - keep) ** (1 - orders) + (1 - keep) ** orders * keep ** (1 - orders)
    of_order_one = (2.0 * keep - 1.0) * epsilon
    return max(of_order_one, float((np.log(moment) / (orders - 1.0) / orders).max()))


def _two_responses(each, epsilon):
    keep = 1.0 / (1.0 + math.exp(-each))
    here = np.outer([keep, 1 - keep], [keep, 1 - keep])
    there = np.outer([1 - keep, keep], [1 - keep, keep])
    return float(np.maximum(here - math.exp(epsilon) * there, 0.0).sum())


def _mixture(mu, pure, epsilon):
    keep = 1.0 / (1.0 + math.exp(-pure))

    def gaussian(e):
        return ndtr(-e / mu + mu / 2) - math.exp(e) * ndtr(-e / mu - mu / 2)

    return keep * gaussian(epsilon - pure) + (1 - keep) * gaussian(epsilon + pure)


def _most_rho(epsilon, delta):
    """Return the largest rho whose tight conversion stays at (epsilon, delta), on a grid of orders."""
    order = np.geomspace(1.0001, 1e4, 200_000)
    rest = epsilon - np.log((order - 1) / order) + (math.log(delta) + np.log(order)) / (order - 1)
    return float((rest / order).max())


def line(**changes):
    """Return a ledger line."""
    plain = {
        "mechanism": "gaussian",
        "label": "x",
        "unit": "record",
        "relation": "replace-one",
        "trust": "central",
        "loss": GaussianLoss(1.0),
        "source": "lattice",
        "secure": True,
        "sensitivity": Sensitivity("l2", 2.0, "test"),
        "noise": {"law": "discrete gaussian", "scale": 2.0, "grid": 2.0**-20},
    }
    return LedgerEntry(**(plain | changes))


def of_policy():
    """Lines that state too little for a sum of 2 vectors of 5 numbers: refused, and honest ones not."""
    reach = RecordSensitivity(shape=(2, 5), l2=2.0, linf=2.0, bound=1.0, derivation="test", norm=1.0)
    gaussian = {"law": "discrete gaussian", "scale": 2.0, "grid": 2.0**-20}
    picks = {"law": "gumbel", "scale": 8.0, "grid": 2.0**-18, "picks": 3, "vectors": 2}
    peeling = {"mechanism": "gumbel peeling", "noise": picks, "sensitivity": Sensitivity("linf", 2.0, "test")}
    values = {
        "noise": {**gaussian, "scale": 4.0, "picks": 3, "vectors": 2},
        "sensitivity": Sensitivity("l2", 2.0 * math.sqrt(3.0), "test"),
    }
    laplace = {
        "mechanism": "laplace",
        "noise": {**picks, "law": "discrete laplace"},
        "sensitivity": Sensitivity("linf", 2.0, "test"),
    }
    # Three picks of two vectors at 2 lambda/b = 1/2: six times (1/2)^2/8 in zCDP, a half each if pure.
    cases = {
        "a sum": ({}, 1.0, GaussianLoss),
        "picks": (peeling, 6 / 32, ConcentratedLoss),
        "pure picks": (peeling, 6 / 2, PureLoss),
        "values of picks": (values, math.sqrt(2 * 3 / 4), GaussianLoss),
        "Laplace picks": (laplace | {"mechanism": "laplace peeling"}, 6 / 2, PureLoss),
        "Laplace picks in zCDP": (
            laplace | {"mechanism": "laplace peeling"},
            6 * pure_rho(1 / 2),
            ConcentratedLoss,
        ),
        "Laplace values": (laplace, 6 / 4, PureLoss),
    }
    one_entry = {"sensitivity": Sensitivity("l2", 2.0, "test")}
    found = []
    for name, (changes, exact, kind) in cases.items():
        for factor in (1.0, 0.99, 1.0 / 2.0, 1.0 / 3.0, 1.0 / 6.0):
            if accepted(line(**changes, loss=kind(factor * exact)), reach) != (factor == 1.0):
                found.append(f"{name}: {factor:.2g} of the loss, and the answer is wrong")
    for name, changes, loss in (
        ("a sum", {}, PureLoss(50.0)),
        ("a sum", {}, ConcentratedLoss(50.0)),
        ("picks", peeling, GaussianLoss(50.0)),
        ("Laplace values", laplace, GaussianLoss(50.0)),
        ("values of picks", values, PureLoss(50.0)),
        ("half the sensitivity", {"sensitivity": Sensitivity("l2", 1.0, "test")}, GaussianLoss(1.0)),
        ("an entry for all picks", values | one_entry, GaussianLoss(math.sqrt(2 / 4))),
        ("another norm", {"sensitivity": Sensitivity("linf", 2.0, "test")}, GaussianLoss(1.0)),
    ):
        if accepted(line(**changes, loss=loss), reach):
            found.append(f"{name}: {type(loss).__name__} passes")
    return found


def accepted(stated, reach):
    """Return whether a site takes a line for a sum that it has been asked for."""
    try:
        SitePolicy(trusted_server=True, zero_out=True).accept([stated.to_dict()], reach)
    except ArgumentError:
        return False
    return True


def of_other_partitions():
    """The same rows cut into sites twice, each site asked alone: a row is paid for twice."""
    design = pi.Design.from_arrays(["x"], bounds=[(-1, 1)], y_bounds=(-1, 1))
    ledger, policy = Ledger(), SitePolicy(trusted_server=True)
    for names in (("north", "south"), ("women", "men")):
        rows = np.zeros(9), np.zeros((9, 1))
        sites = InProcessFederation({name: Site(rows, design, policy=policy) for name in names})
        server = TrustedServer(sites, ledger=ledger)
        for name in names:
            server.vector_sum(
                "column_sums", {"columns": [0], "bound": 1.0}, mu=1.0, label="sums", sites=[name]
            )
    return [] if ledger.total().mu > 1.4 else ["one of two partitions is paid for"]


def of_file_ledgers():
    """Releases of some sites, charged to a file: each carries its line, and a repeat costs nothing."""
    design = pi.Design.from_arrays(["x"], bounds=[(-1, 1)], y_bounds=(-1, 1))
    rows, policy = (np.zeros(9), np.zeros((9, 1))), SitePolicy(trusted_server=True, simulation=True)
    sites = InProcessFederation({name: Site(rows, design, policy=policy) for name in ("north", "south")})
    with tempfile.TemporaryDirectory() as folder:
        ledger = LedgerFile(f"{folder}/a.ledger", Budget(mu=9.0), anchor=f"{folder}/anchors/a")
        server = TrustedServer(sites, ledger=ledger, rng=0)
        planned = server.planned(
            "column_sums", {"columns": [0], "bound": 1.0}, mu=1.0, label="sums", sites=["north"]
        )
        try:
            made = [server.release(planned) for _ in range(2)]
        except PrivinfError as error:
            return [f"refused: {error}"]
        found = [] if all(one.entries == ledger.entries for one in made) else ["lines are missing"]
        found += [] if all(one.stamp for one in made) else ["seeded noise is not marked"]
        number = ledger.number_fit(made[0].entries)
    return found + ([] if number == 1 else ["the first fit has another number"])


def of_unkept_lines():
    """A ledger that keeps no lines: nothing is released."""

    class Forgetful(Ledger):
        def spend(self, *entries):
            return ()

    try:
        made = noisy_scalar(1.0, 1.0, mu=1.0, rng=0, ledger=Forgetful())
    except UnchargedError:
        return []
    return [f"released at mu {made.loss.mu}"]


def of_moving_tables(complaints):
    """A table that changes between the passes over it: see `moving_tables`."""

    def check():
        with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
            return complaints("CSV file", Path(folder), patch)

    return check


CHECKS = {
    "batches of a file that moves": of_moving_tables(moving_tables.complaints_of_batches),
    "public columns that grow": of_moving_tables(moving_tables.complaints_of_public_sizes),
    "file ledgers": of_file_ledgers,
    "unkept lines": of_unkept_lines,
    "other partitions": of_other_partitions,
    "accounts": of_accounts,
    "secret files": of_secret_files,
    "planted keys": of_planted_keys,
    "policy": of_policy,
    "roundings": of_roundings,
    "many roundings": of_many_roundings,
    "far residuals": of_far_residuals,
    "norms on the grid": of_gridded_norms,
    "weighted residuals": of_weighted_residuals,
    "logistic diameter": attained.diameter_complaints,
    "two ids of a person": of_two_ids,
    "empty lines": of_empty_lines,
    "short lines": of_short_lines,
    "machines": of_machines,
}
ORTHOGONAL = "orthogonal rows"
PUBLIC = of_fit("MomentOLS central, public columns, HC0")
HC0, LINE = "mechanisms.moments", "Moments._line"
SUMS = "mechanisms.statistics.moments"
GRIDDED = "mechanisms.statistics.gridded"
CURATOR = "federation.curator"

FILES = "secret_files"

# Name: what is broken, and the audit that must see it.
MUTANTS = {
    "batches of other rows": (
        Mutant(
            "mechanisms.statistics.places", "BatchPass.check", "raise AlignmentError(ROWS_MOVED)", "return"
        ),
        CHECKS["batches of a file that moves"],
    ),
    "public columns beyond those that the noise is for": (
        Mutant("mechanisms.rows", "PublicSizes.check", "raise AlignmentError(ROWS_BEYOND)", "return"),
        CHECKS["public columns that grow"],
    ),
    # the five that survived
    "HC0 charged by the weight, not its square": (
        Mutant(SUMS, "_residual_summand", "_largest(args, 2)", "_largest(args, 1)"),
        of_weighted_residuals,
    ),
    "half of the largest public norm": (
        Mutant(
            "mechanisms.passes",
            "RowPasses.public_sizes",
            "float((np.sqrt(norm2) + rounding) ** 2)",
            "0.5 * float((np.sqrt(norm2) + rounding) ** 2)",
        ),
        PUBLIC,
    ),
    "the rounding of a total uncharged": (
        Mutant(HC0, LINE, "rows_per_unit if local else 1", "0"),
        of_many_roundings,
    ),
    "rounding up at the ball": (
        Mutant("mechanisms.sums", "held_norms", "np.trunc(", "np.ceil("),
        of_gridded_norms,
    ),
    "no ball on the grid": (
        Mutant(GRIDDED, "RowGrid.steps", "else held_norms(out, grid.limit)", "else out"),
        of_gridded_norms,
    ),
    "bounds off the grid": (
        Mutant(
            GRIDDED,
            "ColumnGrid.from_bounds",
            "units = half_ranges / FULL_SCALE",
            "units = half_ranges / (FULL_SCALE - 0.5)",
        ),
        of_gridded_norms,
    ),
    "meats of factors that grow": (
        Mutant("mechanisms.sums", "scaled_down", "steps += 0.5", "steps += 1.0"),
        of_gridded_norms,
    ),
    "one pick of k charged": (
        Mutant("federation.policy", "least_losses", "times = selections * vectors", "times = vectors"),
        of_policy,
    ),
    "the logistic diameter without its slack": (
        Mutant("mechanisms.statistics.families", "_unit_diameter", " + between", ""),
        attained.diameter_complaints,
    ),
    "sites of another session beside these": (
        Mutant(
            "federation.planned",
            "lines_of_sites",
            "Places.SITES_OF_SESSION.format(session=session)",
            '"site"',
        ),
        of_other_partitions,
    ),
    # accounts in files
    "lines of a file looked up in an empty account": (
        Mutant(
            "accounting.ledger",
            "RereadAccount.holds",
            "self._current()",
            "MemoryAccount(self.budget, self.name, self.identity)",
        ),
        of_file_ledgers,
    ),
    "fits of a file counted over an empty account": (
        Mutant("accounting.ledger", "RereadAccount.number_fit", "self.snapshot()", "()"),
        of_file_ledgers,
    ),
    "noise without a line": (
        Mutant("accounting.released", "check_charged", "if not entries", "if entries is None"),
        of_unkept_lines,
    ),
    # second moments
    "weights uncharged": (
        Mutant(SUMS, "_total_summand", "_largest(args, 1)", "_largest(args, 0)"),
        of_fit("MomentOLS central, weights", ORTHOGONAL),
    ),
    "local rows of a person uncharged": (
        Mutant(HC0, LINE, "math.sqrt(rows_per_unit) if local", "1.0 if local"),
        of_fit("MomentOLS local, several rows a person"),
    ),
    "public columns left out of the moments' sensitivity": (
        Mutant(
            SUMS,
            "second_moment_sensitivity",
            "(public_norm2 + rho2) ** 2",
            "rho2 ** 2",
        ),
        of_fit("MomentOLS central, public columns"),
    ),
    "public columns left out of the residual moments'": (
        Mutant(
            SUMS,
            "residual_moment_sensitivity",
            "(x_norm**2 + public_norm2)",
            "x_norm**2",
        ),
        PUBLIC,
    ),
    "residuals not clipped": (
        Mutant(GRIDDED, "MomentSums._residual_share", "clipped(e, clip)", "e"),
        of_far_residuals,
    ),
    "half of mu in the line": (
        Mutant(
            "mechanisms.gaussian",
            "Line.calibrated",
            "loss=GaussianLoss(self.mu)",
            "loss=GaussianLoss(0.5 * self.mu)",
        ),
        of_fit("ModulatedOLS one-shot"),
    ),
    "the constant left out of a site's moments": (
        Mutant(SUMS, "_total_summand", "public_norm2=public_norm2", "public_norm2=0.0"),
        of_sizes("moments.total"),
    ),
    "a wrong power of a site's residual clip": (
        Mutant(
            SUMS,
            "ResidualMoments.sensitivity",
            "l2 = self.clip**2",
            "l2 = self.clip**4",
        ),
        of_sizes("moments.residual"),
    ),
    # modulated rows, examples, responses
    "a person's modulated rows uncharged": (
        Mutant(
            "mechanisms.local.modulation",
            "Modulation.feature_distance",
            "math.sqrt(max_rows(self.design)) * ",
            "",
        ),
        of_fit("ModulatedOLS several rows a person"),
    ),
    "a person's modulated responses uncharged": (
        Mutant(
            "mechanisms.local.modulation",
            "Modulation.response_distance",
            "math.sqrt(max_rows(self.design)) * ",
            "",
        ),
        of_fit("ModulatedOLS several rows a person"),
    ),
    "the wave left out of the paper's sensitivity": (
        Mutant(
            "mechanisms.local.modulation_map",
            "ModulationMap.lipschitz",
            "return keep + self",
            "return 0.5 * keep + 0.0 * self",
        ),
        of_fit("ModulatedOLS the paper's sensitivity"),
    ),
    "every answer of a person at the whole epsilon": (
        Mutant("mechanisms.local.examples", "LocalExamples._answer", "/ rows_per_unit)", "/ 1)"),
        of_fit("LocalExamples, several rows a person"),
    ),
    "a person's examples uncharged": (
        Mutant("mechanisms.local.examples", "LocalExamples._features_line", "rows_per_unit**0.5 * ", ""),
        of_fit("LocalExamples, several rows a person"),
    ),
    "the label's range halved": (
        Mutant("mechanisms.local.examples", "LocalExamples._label_line", "rows_per_unit**0.5 * ", "0.5 * "),
        of_fit("IWPGLM counts"),
    ),
    "a person's Laplace examples uncharged": (
        Mutant(
            "mechanisms.local.examples",
            "LocalExamples._laplace_features_line",
            "rows_per_unit * l1",
            "l1",
        ),
        of_fit("LocalExamples, Laplace noise, several rows a person"),
    ),
    "a person's Laplace labels uncharged": (
        Mutant(
            "mechanisms.local.examples",
            "LocalExamples._laplace_label_line",
            "rows_per_unit * self.design.y_diameter",
            "self.design.y_diameter",
        ),
        of_fit("LocalExamples, Laplace noise, several rows a person"),
    ),
    "Laplace noise by the l2 diameter": (
        Mutant(
            "schema.geometry", "box_l1_diameter", "float(widths.sum())", "float((widths @ widths) ** 0.5)"
        ),
        of_fit("IWPGLM logistic, Laplace noise"),
    ),
    "Laplace noise by the radius alone": (
        Mutant("mechanisms.laplace", "l1_diameter", "design.radius * math.sqrt(columns)", "design.radius"),
        of_fit("IWPGLM logistic, Laplace noise and radius"),
    ),
    "lies by twice the epsilon": (
        Mutant(
            "mechanisms.local.responses",
            "lie_probability",
            "math.exp(-epsilon)",
            "math.exp(-2.0 * epsilon)",
        ),
        of_fit("sparse_mean"),
    ),
    "lies as if there were two levels": (
        Mutant("mechanisms.local.responses", "lie_probability", "odds = (levels - 1) * ", "odds = "),
        of_fit("IWPGLM multinomial"),
    ),
    "a person in two types": (
        Mutant(
            "mechanisms.rows",
            "unit_codes",
            'coded(rows.features[unit], f"the unit column {unit!r}")',
            "pd.factorize(rows.features[unit])[0]",
        ),
        of_two_ids,
    ),
    "empty lines of a file left out": (
        Mutant("mechanisms.files", "_parsed", "skip_blank_lines=False", "skip_blank_lines=True"),
        of_empty_lines,
    ),
    "lines with too few fields filled up": (
        Mutant("mechanisms.files", "CheckedLines._compare", "if fields != self._fields:", "if False:"),
        of_short_lines,
    ),
    "machines told apart by texts of one width": (
        Mutant(
            "mechanisms.labels",
            "label_column",
            "    return pd.Series(column)",
            "    return pd.Series(np.array(list(labels)))",
        ),
        of_machines,
    ),
    "a machine answers at twice its epsilon": (
        Mutant(
            "mechanisms.local.signs",
            "SignChannel.release",
            "RandomizedResponse(2, self.epsilon)",
            "RandomizedResponse(2, 2.0 * self.epsilon)",
        ),
        of_fit("sparse_mean"),
    ),
    # parties
    "the rows of a mixture at full weight beside the row of ones": (
        Mutant("mechanisms.mixing.release", "RandomMixing.release", "math.sqrt(1.0 - share)", "1.0"),
        of_fit("RMGMOLS signs"),
    ),
    "half a party's diameter": (
        Mutant(
            "mechanisms.mixing.party_release",
            "PartyMechanism._line",
            "sensitivity=own_diameter +",
            "sensitivity=0.5 * own_diameter +",
        ),
        of_fit("DGMOLS"),
    ),
    # picks
    "noise of one pick for k": (
        Mutant(
            "mechanisms.peeling",
            "_gumbel_cost",
            "math.sqrt(k / (2.0 * selection))",
            "math.sqrt(1 / (2.0 * selection))",
        ),
        of_fit("NoisyTopK, Gumbel"),
    ),
    "values of k picks at the price of one": (
        Mutant("mechanisms.peeling", "values_entry", "math.sqrt(k) * sensitivity", "sensitivity"),
        of_fit("NoisyTopK, Gumbel"),
    ),
    "Laplace picks at a k-th of their price": (
        Mutant(
            "mechanisms.peeling",
            "_repeated",
            "ConcentratedLoss(k * pure_rho(epsilon))",
            "ConcentratedLoss(pure_rho(epsilon))",
        ),
        of_fit("NoisyTopK, Laplace, zCDP"),
    ),
    "one vector of several charged": (
        Mutant("mechanisms.peeling", "_times", "float_down(exact(rho) * times)", "float_down(exact(rho))"),
        of_fit("peeling of two vectors"),
    ),
    # nodewise regressions of a site's own
    "means of a site's columns beside the whole price of its Gram matrix": (
        Mutant(
            "lasso.heterogeneous.site_effects", "SiteGrams._center", "return 1.0 - OWN_MEANS", "return 1.0"
        ),
        of_fit("DebiasedLasso heterogeneous, own precision"),
    ),
    "roundings of picks uncharged": (
        Mutant("mechanisms.peeling", "solve_peeling_scale", "roundings * grid_step(scale) if", "0.0 if"),
        of_roundings,
    ),
    "roundings of a vector at the price of one number's": (
        Mutant("noise.source", "grid_inflation", "* math.sqrt(dimension)", "* 0.0"),
        of_roundings,
    ),
    "vectors uncounted at a site": (
        Mutant("federation.policy", "least_losses", "times = selections * vectors", "times = selections"),
        of_policy,
    ),
    "values of one vector at a site": (
        Mutant(
            "federation.policy",
            "least_losses",
            "GaussianLoss: math.sqrt(vectors) * ratio",
            "GaussianLoss: ratio",
        ),
        of_policy,
    ),
    "values of one pick at a site": (
        Mutant(
            "federation.policy",
            "_needed",
            "math.sqrt(selections) * record_sensitivity.linf",
            "record_sensitivity.linf",
        ),
        of_policy,
    ),
    "half a Gumbel pick at a site": (
        Mutant("federation.policy", "least_losses", "times * 2.0 * ratio", "times * ratio"),
        of_policy,
    ),
    "losses of another kind at a site": (
        Mutant(
            "federation.policy",
            "check_entry",
            "covered = losses.get(type(entry.loss))",
            "covered = losses.get(type(entry.loss), 0.0)",
        ),
        of_policy,
    ),
    # sums at sites
    "a Gram matrix without its root of two": (
        Mutant("mechanisms.statistics.summands", "Outer.sensitivity", "l2=math.sqrt(2.0) * q,", "l2=q,"),
        of_sizes("union_gram"),
    ),
    "a Gram matrix of forms that are not shrunk": (
        Mutant(
            "mechanisms.statistics.summands", "Outer.aligned", "length = lengths(", "length = 0.0 * lengths("
        ),
        of_sizes("union_gram, forms"),
    ),
    "scores longer than their norm": (
        Mutant(
            "mechanisms.statistics.summands",
            "Ball.along",
            "np.clip(made_finite(left), -room, room)",
            "2.0 * np.clip(made_finite(left), -room, room)",
        ),
        of_sizes("clipped_score, of a column", "clipped_score"),
    ),
    "vectors that are not shrunk": (
        Mutant(
            "mechanisms.statistics.summands",
            "shrunk_vectors",
            "room / np.maximum(lengths(vectors), room)",
            "1.0",
        ),
        of_sizes("product_vector"),
    ),
    "variances without their root of two": (
        Mutant(
            "mechanisms.statistics.summands",
            "NonNegative.sensitivity",
            "math.sqrt(2.0) * self.total",
            "self.total",
        ),
        of_sizes("score_variances"),
    ),
    "rows of means not shrunk": (
        Mutant(
            "mechanisms.statistics.layers",
            "shrunk_sums",
            "ball.shrunk(",
            'Ball(size=ball.size, top=9.0, derivation="").shrunk(',
        ),
        of_sizes("shrunk_sums"),
    ),
    "values outside at the price of one column's": (
        Mutant(
            "mechanisms.statistics.summands",
            "Marks.sensitivity",
            "math.sqrt(self.size)",
            "1.0",
        ),
        of_sizes("columns_outside", "values_outside"),
    ),
    "values outside counted as two": (
        Mutant(
            "mechanisms.statistics.summands",
            "Marks.counts",
            "marked.astype(np.bool_)",
            "2.0 * marked",
        ),
        of_sizes("columns_outside", "values_outside"),
    ),
    "scores up to a stop not shrunk": (
        Mutant(
            "mechanisms.statistics.hazards",
            "_score",
            "ball.shrunk(",
            "Ball(size=ball.size, top=2.0 * ball.top, derivation='').shrunk(",
        ),
        of_sizes("hazards.score, no weights"),
    ),
    "the trace of a record not scaled": (
        Mutant(
            "mechanisms.statistics.hazards",
            "Semidefinite.matrices",
            "np.sqrt(trace) * room",
            "np.sqrt(trace) * 0.5",
        ),
        of_sizes("hazards.secant", "hazards.secant, blocks"),
    ),
    "blocks of a record scaled one by one": (
        Mutant(
            "mechanisms.statistics.hazards",
            "Semidefinite.matrices",
            "np.tile(np.sqrt(trace) * room, self.count)",
            "lengths(vectors)",
        ),
        of_sizes("hazards.secant, blocks"),
    ),
    "events and censored records at the price of one sequence": (
        Mutant(
            "mechanisms.statistics.survival",
            "SurvivalCells.sensitivity",
            "math.sqrt(longest + other)",
            "math.sqrt(longest)",
        ),
        of_sizes("survival.cells", "survival.cells, groups"),
    ),
    "negative times in full": (
        Mutant(
            "mechanisms.statistics.survival",
            "_rooted",
            "root(LEAST_INTERVALS)[1]",
            "root(LEAST_INTERVALS)[0]",
        ),
        of_sizes("survival.cells, negative"),
    ),
    "cells of groups at the price of one group": (
        Mutant(
            "mechanisms.statistics.survival",
            "SurvivalCells.sensitivity",
            "if self.groups > 1",
            "if self.groups > 99",
        ),
        of_sizes("survival.cells, groups"),
    ),
    "squares of columns at the price of one column's": (
        Mutant(
            "mechanisms.statistics.summands",
            "NonNegative.sensitivity",
            "self.bound * math.sqrt(math.prod(self.shape))",
            "self.bound",
        ),
        of_sizes("column_squares"),
    ),
    "squares of columns counted twice": (
        Mutant(
            "mechanisms.statistics.summands",
            "NonNegative.numbers",
            "np.maximum(clipped(values, self.bound), 0.0, out=values)",
            "2.0 * values",
        ),
        of_sizes("column_squares"),
    ),
    "counts of terms of several columns at the price of one": (
        Mutant("mechanisms.statistics.summands", "Copies.sensitivity", "l2=root * part.l2", "l2=part.l2"),
        of_sizes("whitened.columns"),
    ),
    "a count of values outside beside the whole budget": (
        Mutant("glm.clipping", "OutsideCount.from_rows", "mu=part, rest=rest", "mu=part, rest=mu"),
        of_fit("OLS values outside their bounds"),
    ),
    "a radius for a diameter": (
        Mutant("mechanisms.statistics.summands", "Ball.sensitivity", "2.0 * self.top", "self.top"),
        of_sizes("clipped_score"),
    ),
    "half a box": (
        Mutant("mechanisms.statistics.summands", "Box.sensitivity", "l2=2.0 * norm", "l2=norm"),
        of_sizes("clipped_products", "product_vector", "logistic_products"),
    ),
    "one record of a site charged": (
        Mutant(
            "mechanisms.statistics.ops",
            "RecordSensitivity.of_clients",
            "min(rows * self.l2, 2.0 * clip)",
            "min(self.l2, 2.0 * clip)",
        ),
        of_sizes("glm.score, sites"),
    ),
    "a site's clip for its diameter": (
        Mutant(
            "mechanisms.statistics.ops",
            "RecordSensitivity.of_clients",
            "min(rows * self.l2, 2.0 * clip)",
            "min(rows * self.l2, clip)",
        ),
        of_sizes("glm.score, sites, clipped"),
    ),
    "a Hessian without its root of two": (
        Mutant("mechanisms.statistics.summands", "Outer.sensitivity", "l2=math.sqrt(2.0) * q,", "l2=q,"),
        of_sizes("glm.hessian", "glm.meat"),
    ),
    "a logistic curvature above a quarter": (
        Mutant(
            "mechanisms.statistics.glm",
            "_hessian",
            "outer.matrices(x, length * size)",
            "Square(vectors=1.2 * x, top=9.0, length=1.2 * length * size)",
        ),
        of_sizes("glm.hessian, logistic"),
    ),
    "sketches not shrunk": (
        Mutant(
            "mechanisms.statistics.glm",
            "_sketched_score",
            "ball.shrunk(z)",
            'Ball(size=ball.size, top=1e9, derivation="").shrunk(z)',
        ),
        of_sizes("glm.sketched_score"),
    ),
    "rows longer than R not weighted": (
        Mutant(
            "mechanisms.statistics.glm",
            "_score",
            "ball.product(r * _weighted(along.length, rows.args), along)",
            "Product(r * along.length, 1e9 * ball.top, along)",
        ),
        of_sizes("glm.score"),
    ),
    "slopes uncharged beside scores": (
        Mutant(
            "mechanisms.statistics.scores",
            "ScoresWithSquares.sensitivity",
            "4.0 + 2.25 * slope**2",
            "4.0",
        ),
        of_sizes("target_scores"),
    ),
    "means of forms that are not clipped": (
        Mutant(
            "mechanisms.statistics.scores",
            "form_sums",
            "box.numbers(forms(rows), rows.digits)",
            'Box(shape=box.shape, bound=1e9, derivation="").numbers(forms(rows), rows.digits)',
        ),
        of_sizes("form_sums"),
    ),
    "a vector's norm for its diameter": (
        Mutant(
            "mechanisms.statistics.summands", "Box.sensitivity", "min(self.radius,", "0.5 * min(self.radius,"
        ),
        of_sizes("product_vector"),
    ),
    # secure sums
    "noise of colluding sites counted": (
        Mutant(
            "federation.secure.site",
            "read_terms",
            "carriers = len(roster) - colluding",
            "carriers = len(roster)",
        ),
        of_fit("MomentOLS secure sums, HC0, a colluding site"),
    ),
    # secret files
    "a key that was found is used though nothing was drawn": (
        Mutant(
            "federation.server_noise",
            "NoiseFile.__init__",
            "(begun is None and len(memory) > 0)",
            "len(memory) == 0",
        ),
        of_planted_keys,
    ),
    "a key that others may read": (
        Mutant(FILES, "_file_faults", "status.st_mode & FORBIDDEN[kind]", "status.st_mode & 0o022"),
        of_secret_files,
    ),
    "a ledger that others may write": (
        Mutant(FILES, "_file_faults", "& FORBIDDEN[kind]", '& FORBIDDEN["key"] and kind == "key"'),
        of_secret_files,
    ),
    "a file with a second name": (
        Mutant(FILES, "_file_faults", "status.st_nlink > 1", "status.st_nlink > 2"),
        of_secret_files,
    ),
    "a link is followed": (
        Mutant(FILES, "_opened", "flags | SAFELY", "flags | os.O_NONBLOCK"),
        of_secret_files,
    ),
    "a folder that everybody may write to": (
        Mutant(FILES, "_folder_faults", "mode & 0o002", "False"),
        of_secret_files,
    ),
    "the folder of a group": (
        Mutant(FILES, "_folder_faults", "not _is_own_group(status.st_gid, folder)", "False"),
        of_secret_files,
    ),
    # accounts
    "the largest mu for all": (
        Mutant("accounting.composition", "compose", "mu2=math.fsum(mu2)", "mu2=max(mu2, default=0.0)"),
        of_accounts,
    ),
    "the largest rho for all": (
        Mutant(
            "accounting.composition",
            "compose",
            "concentrated=math.fsum(concentrated)",
            "concentrated=max(concentrated, default=0.0)",
        ),
        of_accounts,
    ),
    "responses left out of the curve": (
        Mutant("accounting.composition", "Total._responses", "return self.pure +", "return self.pure[:1] +"),
        of_accounts,
    ),
    "half the rho of a response": (
        Mutant("accounting.losses", "pure_rho", "math.tanh(epsilon / 2.0)", "math.tanh(epsilon / 4.0)"),
        of_accounts,
    ),
    "every part of a budget the whole": (
        Mutant("accounting.calibration", "split_mu", "** 2 * weight / total", "** 2"),
        of_accounts,
    ),
    "sequential parts taken as disjoint": (
        Mutant("accounting.scopes", "ScopeNode._worlds", "if partition is None:", "if False:"),
        of_accounts,
    ),
    "a limit on mu counts mu, not its square": (
        Mutant(
            "accounting.budget",
            "cost_in",
            'return _finite(mu) ** 2\n        case "mu2", PureLoss',
            'return _finite(mu)\n        case "mu2", PureLoss',
        ),
        of_accounts,
    ),
    "the rounds of a regression spend what the end does": (
        Mutant("glm.plan", "_plan_in_rounds", "mu * math.sqrt(1.0 - share)\n", "mu\n"),
        of_fit("FederatedGLM binomial, server, Newton"),
    ),
    "shares that were spent are spent again": (
        Mutant("glm.queries", "LeastSquaresQueries.price", "self.spent += share", "pass"),
        of_fit("OLS central"),
    ),
    "shares of a curved model are spent again": (
        Mutant("glm.curved_sums", "CurvedSums._release", "self.spent += share", "pass"),
        of_fit("Logit central"),
    ),
    "each layer of scores the share of both": (
        Mutant("glm.least_squares", "fit_one_step", "share * low,", "share,"),
        of_fit("OLS central"),
    ),
    "the meat is left out of the rest": (
        Mutant("glm.least_squares", "chosen_clip", "- hessian - MEAT", "- hessian"),
        of_fit("OLS central, weak columns"),
    ),
    "a curator's noise is less than its line says": (
        Mutant(CURATOR, "_Planned.noised", "self.scale / step)", "0.5 * self.scale / step)"),
        of_fit("OLS central"),
    ),
    "a curator's line says less than the sum can move": (
        Mutant(
            "federation.planned",
            "sum_line",
            "record_sensitivity.sensitivity(relation)",
            "record_sensitivity.l2 / 2",
        ),
        of_fit("OLS central", "opposite responses"),
    ),
    "a curator forgets to charge": (
        Mutant(
            CURATOR,
            "Curator.vector_sums",
            "            lines = self.ledger.spend(*entries)\n            totals = [",
            "            lines = tuple(entries)\n            totals = [",
        ),
        of_fit("OLS central"),
    ),
    "every Newton round the whole price": (
        Mutant("glm.newton", "_round_price", "shares[number - 1] / shares.sum()", "1.0"),
        of_fit("FederatedGLM binomial, server, Newton"),
    ),
    "every epoch the whole price": (
        Mutant("glm.dome.rounds", "optimise", "ROUNDING / paid", "ROUNDING"),
        of_fit("FederatedGLM binomial, server, DPSGD"),
    ),
}


@pytest.mark.parametrize("name", CHECKS)
def test_audits_complain_of_nothing(name):
    assert CHECKS[name]() == []


@pytest.mark.audit
@pytest.mark.parametrize("name", attained.CASES)
def test_sizes_are_reached_and_never_passed(name):
    assert attained.complaints(name) == []


@pytest.mark.audit
@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(name):
    mutant, check = MUTANTS[name]
    with mutant.applied():
        assert check()


def test_there_are_mutants_enough():
    assert len(MUTANTS) >= 5 + 15
    places = {mutant.module for mutant, _ in MUTANTS.values()}
    assert len(places) >= 20


def test_a_mutant_whose_text_is_gone_is_an_error():
    with pytest.raises(AssertionError, match="0 times"), Mutant(HC0, LINE, "no such text", "").applied():
        pass


def test_a_mutant_is_undone():
    mutant, check = MUTANTS["half of mu in the line"]
    with mutant.applied():
        assert check()
    assert check() == []
