"""A fuzzer of questions: two sites that differ in one row must not differ in anything that is not charged.

The corpus is what real fits ask (`corpus`). A question is taken from it, changed field by field (`Mutator`)
and put to both sites of a pair with equal policies, keys and ledgers (`Pair`). What is compared:

- whether the question is charged now, or was before, and the lines in the ledgers up to id and time;
- of a question that is not charged, the whole reply, to the byte;
- of one that is, all but sums and masked words.

An exception out of a site, an error that it did not foresee or that comes after the charge, and an answer
that takes over two seconds are findings too. Warnings are errors meanwhile.
"""

from __future__ import annotations

import copy
import json
import time
import warnings
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from support.speed import slowness

import privinf as pi
from privinf.accounting import GaussianLoss, LedgerEntry, Sensitivity
from privinf.errors import PrivinfError
from privinf.federation import (
    IdentityKey,
    InProcessFederation,
    Query,
    RemoteSite,
    Roster,
    Site,
    SiteDaemon,
    SitePolicy,
    TrustedServer,
)
from privinf.mechanisms.catalogue import SITE_OPS
from studies.paper.statistics import PAPER_OPS

NAMES = ("east", "north", "south")
ASKED = "north"
ROWS, REPLACED = 60, 7
LONGEST, SLOW = 1 << 16, 2.0
SCHEMA = pi.Schema(
    {
        "y": (0.0, 10.0),
        "hit": (0.0, 1.0),
        "u": (-1.0, 1.0),
        "v": (0.5, 3.0),
        "w": (0.0, 1e6),
        "g": ["p", "q", "r"],
        "k": pi.schema.Numeric(0.0, 1.0, public=True),
    }
)
FORMULA = "y ~ u + v + C(g)"
POLICIES = {
    "open": SitePolicy(
        trusted_server=True, secure_sums=True, simulation=True, zero_out=True, new_designs=10_000
    ).naming(PAPER_OPS),
    "server": SitePolicy(trusted_server=True),
    "secure": SitePolicy(secure_sums=True),
    "closed": SitePolicy(),
}
# A row that opens cleanly and is as far out as a row can be.
EXTREME = {"y": -1e308, "hit": 1e308, "u": 1e308, "v": -1e308, "w": 5e-324, "g": "r", "k": -1e300}


def table(seed: int = 0) -> pd.DataFrame:
    """Return made-up rows."""
    rng = np.random.default_rng(seed)
    u, v = rng.uniform(-1, 1, ROWS), rng.uniform(0.5, 3.0, ROWS)
    return pd.DataFrame(
        {
            "y": np.clip(np.round(3.0 + u - 0.5 * v + rng.normal(0, 1, ROWS)), 0, 10),
            "hit": (rng.uniform(size=ROWS) < 0.4).astype(float),
            "u": u,
            "v": v,
            "w": rng.uniform(0, 1e6, ROWS),
            "g": rng.choice(["p", "q", "r"], ROWS),
            "k": rng.uniform(0, 1, ROWS),
        }
    )


def keys() -> tuple[dict[str, IdentityKey], Roster]:
    """Return the same keys every time, so that recorded secure sums name the pinned roster."""
    if not _KEYS:
        _KEYS.update({name: IdentityKey() for name in NAMES})
    return _KEYS, Roster({name: key.public for name, key in _KEYS.items()})


_KEYS: dict[str, IdentityKey] = {}


def site_of(frame: pd.DataFrame, policy: SitePolicy, name: str = ASKED) -> Site:
    """Return a site with its key."""
    owned, roster = keys()
    return Site(frame, SCHEMA, policy=policy, key=owned[name], roster=roster)


# ---- the corpus


class Recorded(InProcessFederation):
    """A federation that remembers what it is asked."""

    def __init__(self, sites: dict[str, Site]) -> None:
        super().__init__(sites)
        self.asked: list[Query] = []

    def ask(self, query: Query, sites: Any = None) -> Any:
        """Remember, and ask."""
        self.asked.append(query)
        return super().ask(query, sites)


def corpus() -> list[tuple[str, dict[str, Any]]]:
    """Return the questions of real fits, packed: each statistic, with its charges and terms, a few times."""
    found: list[Query] = [Query("describe")]
    for record in _fits():
        federation = Recorded(
            {name: site_of(table(i), POLICIES["open"], name) for i, name in enumerate(NAMES)}
        )
        with suppress(PrivinfError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            record(federation)
        found += federation.asked
    kept: Counter[Any] = Counter()
    packed = []
    for query in found:
        kind = (query.op, bool(query.masking), query.args.get("family"), query.args.get("bits") == 0)
        kept[kind] += 1
        if kept[kind] <= 4:
            packed.append(query.pack())
    return packed


def _fits() -> list[Any]:
    glm = [
        lambda fed, family=family, y=y, trust=trust, rng=rng: pi.FederatedGLM.from_formula(
            f"{y} ~ u + v + C(g)", fed, schema=SCHEMA, family=family, trust=trust
        ).fit(epsilon=50.0, delta=1e-5, rng=rng)
        for family, y in (("gaussian", "y"), ("binomial", "hit"), ("poisson", "y"))
        for trust in ("server", "secure-sum")
        for rng in (0, None)
    ]
    moments = [
        lambda fed, trust=trust, rng=rng: pi.MomentOLS.from_formula(
            FORMULA, fed, schema=SCHEMA, trust=trust
        ).fit(epsilon=20.0, delta=1e-5, rng=rng)
        for trust in ("server", "secure-sum")
        for rng in (0, None)
    ]
    lasso = [
        lambda fed, trust=trust, rng=rng: pi.DebiasedLasso.from_formula(
            FORMULA, fed, schema=SCHEMA, trust=trust
        ).fit(epsilon=200.0, delta=1e-5, sparsity=2, rng=rng)
        for trust in ("server", "secure-sum")
        for rng in (0, None)
    ]
    logistic = [
        lambda fed, rng=rng: pi.DebiasedLasso.from_formula(
            "hit ~ u + v + C(g)", fed, schema=SCHEMA, family="binomial"
        ).fit(
            epsilon=2000.0,
            delta=1e-5,
            sparsity=2,
            shared_sparsity=1,
            heterogeneous=True,
            targets=["u"],
            rng=rng,
        )
        for rng in (0, None)
    ]
    return [*glm, *moments, *lasso, *logistic, _peelings, _others]


def _peelings(federation: Recorded) -> None:
    server = TrustedServer(federation, design=pi.Design.from_formula(FORMULA, SCHEMA))
    for method in ("gumbel", "laplace"):
        for k in (1, 2):
            server.top_k("clipped_products", {"bound": 1.0}, k, label="picks", method=method, mu=1.0)
            server.top_k(
                "column_products", {"bound": 1.0, "targets": [1, 2]}, k, label="picks", method=method, rho=2.0
            )


def _others(federation: Recorded) -> None:
    """Ask for every statistic that has not been asked for."""
    server = TrustedServer(federation, design=pi.Design.from_formula(FORMULA, SCHEMA), rng=0)
    for name, args in STATISTICS.items():
        server.vector_sum(name, args, label=name, mu=1.0)
    whole = {"client_rows": 2 * ROWS, "client_clip": 3.0}
    server.vector_sum("glm.score", STATISTICS["glm.score"] | whole, label="clients", mu=1.0)


_TWO = {"columns": [1, 2], "transform": np.eye(2), "clip": 1.0}
_GLM = {"family": "gaussian", "theta": np.full(5, 0.1), "radius": 2.0, "residual_clip": 1.5}
_CURVED = {
    "family": "poisson",
    "theta": np.full(5, 0.1),
    "transform": np.eye(5),
    "score_bound": 0.8,
    "curvature_bound": 0.4,
}
_DISPERSED = {
    "family": "poisson",
    "theta": np.full(5, 0.1),
    "transform": np.eye(5)[:, :1],
    "by_count": np.array([[0.0, 0.5, 1.0], [0.0, 1.0, 2.0]]),
    "by_mean": np.array([[1.0, 0.8], [0.2, 0.6], [-0.3, 0.3]]),
    "width": 1.0,
    "mean_unit": 1.0,
    "low": -0.5,
    "high": 0.8,
}
_WHITE = {
    "response_factor": 0.5,
    "theta": np.full(5, 0.1),
    "whitening": np.eye(5),
    "unit": 0.3,
    "constant": 0,
}
_FORM = {"columns": [1, 2], "transform": np.eye(2), "unit": 0.5}
_MOMENTS = {"response_factor": 1.0, "norm": 1.0, "constant": 0}
STATISTICS: dict[str, dict[str, Any]] = {
    "clipped_products": {"bound": 1.0, "residual_clip": 1.0, "support": [1], "beta": [0.3]},
    "column_products": {"bound": 1.0, "targets": [1, 2], "transform": np.eye(2)},
    "union_gram": {"columns": [1, 2], "transform": np.eye(2), "bound": 1.0, "norm": 1.0},
    "clipped_score": _TWO | {"residual_clip": 1.0, "streams": [0, 5], "intercepts": [0.2, -0.1]},
    "slopes": _TWO | {"residual_clip": 1.0, "targets": [1, 2], "column_clip": 1.0, "norm": 0.5},
    "score_variances": _TWO | {"residual_clip": 1.0},
    "residual_histogram": {"edges": [0.5, 1.0, 2.0], "response": 3, "support": [1], "beta": [0.2]},
    "squared_residuals": {"residual_clip": 1.0},
    "residual_sum": {"residual_clip": 1.0, "intercept": 0.5},
    "column_sums": {"columns": [1, 2], "bound": 1.0, "center": np.full(5, 0.1), "scale": np.full(5, 2.0)},
    "column_squares": {"columns": [1, 2], "bound": 1.0},
    "shrunk_sums": {"columns": [1, 2], "norm": 1.0, "center": np.full(5, 0.1)},
    "columns_outside": {"columns": [1, 2]},
    "complete_rows": {},
    "values_outside": {"columns": [1, 2], "outcome": True, "inputs": 1},
    "paper_gradient": {
        "column_bound": 1.0,
        "residual_clip": 1.0,
        "form": "response",
        "support": [1],
        "beta": [0.2],
    },
    "precision_gradient": {"column_bound": 1.0, "clip": 1.0, "columns": [1, 2], "weights": [0.5, 0.5]},
    "paper_scores": _TWO | {"residual_clip": 1.0},
    "paper_variances": _TWO | {"residual_clip": 1.0},
    "single_slopes": _TWO | {"residual_clip": 1.0, "targets": [1, 2], "column_clip": 1.0},
    "quadratic_forms": _TWO,
    "form_sums": _TWO,
    "multiplier_scores": _TWO
    | {"residual_clip": 1.0, "draws": 3, "law": "gaussian", "seed": 5, "multiplier_bound": 3.0},
    "target_scores": {
        "columns": [1, 2],
        "transform": np.eye(2),
        "bound": 1.0,
        "targets": [1, 2],
        "weights": [1.0, 1.0],
        "slope_clip": 1.0,
        "slope_weight": 1.0,
        "average_clip": 1.0,
        "average_weight": 1.0,
    },
    "product_vector": {"bound": 1.0, "norm": 1.0},
    "column_product_vector": {"bound": 1.0, "norm": 1.0, "targets": [1], "transform": np.eye(1)},
    "glm.score": _GLM,
    "glm.hessian": _GLM | {"curvature": "bound"},
    "glm.meat": _GLM | {"block": [1, 2]},
    "glm.sketched_score": _GLM
    | {
        "clip": 1.0,
        "basis": np.eye(5)[:, :2],
        "probes": 1,
        "probe_seed": 3,
        "probe_scale": 1.0,
        "batches": 2,
        "batch": 1,
        "seed": 4,
    },
    "curved.start": {"block": [0, 1, 2], "radius": 2.0, "share": 0.6},
    "curved.step": _CURVED | {"share": 0.5},
    "curved.counts": _CURVED | {"of": "residual", "thresholds": [0.2, 0.4, 0.8]},
    "curved.score": _CURVED
    | {"low": 0.1, "high": 0.5, "columns": [0, 1, 2, 3, 4], "offset": np.full(5, 0.1)},
    "curved.meat": _CURVED | {"middle": 0.2, "high": 0.5, "upper": 1.3},
    "logistic_products": {"bound": 1.0, "support": [1], "beta": [0.3], "intercept": -0.5},
    "curved.secant": _CURVED | {"clip": 0.3, "step": np.full(5, 0.2), "weight": 2},
    "curved.dispersion": _DISPERSED,
    "curved.dispersion_meat": _DISPERSED,
    "layers.counts": _FORM | {"thresholds": [0.5, 1.0, 2.0]},
    "layers.score": _FORM | {"low": 0.5, "high": 2.0},
    "layers.meat": _FORM | {"low": 0.5, "high": 2.0, "weight": 1.2},
    "layers.slopes": _FORM | {"low": 0.5, "high": 2.0, "weight": 1.2, "targets": [1, 2], "norm": 1.5},
    "whitened.counts": _WHITE | {"quantity": "score", "thresholds": [0.5, 1.0, 2.0]},
    "whitened.columns": {"columns": [1, 2], "thresholds": [0.5, 1.0, 1.5]},
    "whitened.moments": _WHITE | {"response_weight": 1.5, "clip": 2.0, "row_weights": True},
    "whitened.gram": _WHITE | {"clip": 1.5},
    "whitened.hessian": _WHITE | {"low": 0.5, "high": 2.0, "weight": 1.2, "clip": 1.5},
    "whitened.score": _WHITE | {"low": 0.5, "high": 2.0},
    "whitened.meat": _WHITE | {"low": 0.5, "high": 2.0, "weight": 1.2},
    "whitened.square": _WHITE | {"residual_clip": 1.0},
    **{
        name: {
            "columns": [1, 2],
            "status": 3,
            "edges": [0.5, 1.0, 2.0],
            "increments": [0.2, 0.2, 0.2],
            "blocks": [0.0, 0.0, 1.0],
            "theta": [0.1, -0.1],
            "transform": np.eye(2),
            "offsets": [[0.5, 0.0], [0.0, 0.5]],
            "stop": 1.0,
            "score_bound": 1.0,
            **more,
        }
        for name, more in {
            "hazards.counts": {"of": "score", "thresholds": [0.5, 1.0, 2.0]},
            "hazards.score": {"high": 1.0},
            "hazards.meat": {"high": 1.0},
            "hazards.secant": {"step": [0.1, 0.2], "clip": 1.0},
        }.items()
    },
    "survival.cells": {
        "edges": [0.5, 1.0, 2.0],
        "status": 1,
        "groups": [2, 3],
        "counted": True,
        "negative": True,
    },
    "moments.total": _MOMENTS | {"response_bound": 1.0},
    "moments.residual": _MOMENTS | {"coefficients": np.full(5, 0.1), "residual_clip": 1.0},
}


# ---- changes


NUMBERS = (
    0,
    1,
    -1,
    2,
    0.5,
    1e-30,
    1e30,
    1e-31,
    1e31,
    -1e30,
    1e308,
    5e-324,
    1e-300,
    2**53,
    2**63,
    2**64,
    10**400,
    float("nan"),
    float("inf"),
    3.0,
)
JUNK = (None, True, False, "", "x", "inf", "\ud800", "\u0000", [], {}, [1], ["a"], {"a": 1}, [[1]], "0" * 64)
BITS = (0, 1, 2, 3, 8, 20, 23, 24, 28, 40, 46, 47, 48, 53, 60, -1)
ONE_ULP = (4.458651, 0.673709, 3.343867, 4.805782, 3.768177)  # numpy's exp can be above libm's here


class Mutator:
    """Changes questions, field by field, from one seed.

    Parameters
    ----------
    seed : int
    digests : list of str
        Of designs that sites have taken, to name in other questions.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.digests: list[str] = []

    def one(self, among: Any) -> Any:
        """Return one of several; lists and mappings as copies."""
        found = among[int(self.rng.integers(len(among)))]
        return copy.deepcopy(found) if isinstance(found, (dict, list)) else found

    def changed(self, message: tuple[str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
        """Return a question with none to three changes, in a session of its own unless that is changed."""
        text, arrays = message
        header, arrays = json.loads(text), dict(arrays)
        header["session"] = f"s{self.rng.integers(2**40)}"
        for _ in range(int(self.one((0, 1, 1, 1, 2, 2, 3)))):
            # What an earlier change has made of a part may not be changed any further.
            with suppress(AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError):
                self._change(header, arrays)
        return json.dumps(header), arrays

    def _change(self, header: dict[str, Any], arrays: dict[str, Any]) -> None:
        ways = ["args", "args", "args", "bits", "charges", "charges", "field", "junk", "array"]
        ways += ["masking"] * 3 if header.get("masking") else []
        ways += ["design"] * 12 if "design" in header["args"] else ["named"]
        getattr(self, f"_{self.one(ways)}")(header, arrays)

    def _args(self, header: dict[str, Any], arrays: dict[str, Any]) -> None:
        args = header["args"]
        names = [*args, *arrays]
        name = self.one(names) if names else "bound"
        arrays.pop(name, None) if self.rng.uniform() < 0.3 else None
        match int(self.rng.integers(5)):
            case 0:
                args.pop(name, None)
            case 1:
                args[name] = self.one(JUNK)
            case 2:
                args[str(self.one(("bound", "norm", "unit", "block", "moment", "client_clip", "x")))] = (
                    self.one(NUMBERS)
                )
            case _:
                args[name] = self.one(NUMBERS)

    def _array(self, header: dict[str, Any], arrays: dict[str, Any]) -> None:
        if not arrays:
            return
        name = self.one(list(arrays))
        array = np.array(arrays[name])
        match int(self.rng.integers(7)):
            case 0:
                array = array[..., :-1]
            case 1:
                array = array[None]
            case 2:
                array = np.concatenate([array, array])
            case 3 if array.size:
                array = array.astype(np.float64)
                array.flat[int(self.rng.integers(array.size))] = float(self.one(NUMBERS[:13]))
            case 4:
                array = array.astype(np.bool_)
            case 5:
                array = np.zeros(int(self.rng.integers(8_000)))
            case _:
                array = -array.astype(np.float64)
        arrays[name] = array

    def _bits(self, header: dict[str, Any], arrays: dict[str, Any]) -> None:
        header["args"]["bits"] = self.one(BITS)

    def _field(self, header: dict[str, Any], arrays: dict[str, Any]) -> None:
        match int(self.rng.integers(5)):
            case 0:
                header["op"] = self.one([*SITE_OPS, "describe", "design", "reserve", "end", "", "x"])
            case 1:
                header["version"] = self.one((0, 2, 10**30, -1, "1", None))
            case 2:
                header["sequence"] = self.one((0, 1, 2, 10**30, -1, "1", None, 1.0))
            case 3:
                header["session"] = self.one(("", "s", "t", 3, None, "\ud800", "z" * 1000))
            case _:
                header["design"] = self.one(("", "x", "0" * 64, 3, None, []))

    def _junk(self, header: dict[str, Any], arrays: dict[str, Any]) -> None:
        header[self.one([*header, "other"])] = self.one(JUNK)

    def _named(self, header: dict[str, Any], arrays: dict[str, Any]) -> None:
        if self.digests:
            header["design"] = self.one(self.digests)

    def _charges(self, header: dict[str, Any], arrays: dict[str, Any]) -> None:
        charges = header["charges"]
        if not charges or self.rng.uniform() < 0.05:
            header["charges"] = self.one(([], [{}], {}, [1], charges * 2))
            return
        charge = charges[int(self.rng.integers(len(charges)))]
        match int(self.rng.integers(7)):
            case 0:
                charge[self.one(list(charge))] = self.one(JUNK)
            case 1:
                charge["loss"] = {
                    "kind": self.one(("pure", "gaussian", "concentrated", "approximate", "x")),
                    self.one(("mu", "rho", "epsilon", "delta")): self.one(NUMBERS),
                }
            case 2:
                charge["noise"][self.one(("scale", "picks", "vectors", "law", "grid", "x"))] = self.one(
                    NUMBERS + JUNK
                )
            case 3:
                charge["sensitivity"] = self.one(JUNK)
            case 4 if isinstance(charge["sensitivity"], dict):
                charge["sensitivity"][self.one(("value", "norm"))] = self.one(("l1", "l2", "linf", *NUMBERS))
            case 5:
                charge["mechanism"] = self.one(
                    ("gaussian", "laplace", "gumbel peeling", "laplace peeling", "x")
                )
            case _:
                charge[self.one(("relation", "unit", "secure", "scope", "party", "trust"))] = self.one(
                    ("zero-out", "client", "record", True, False, ["a"], "metric", 3)
                )

    def _masking(self, header: dict[str, Any], arrays: dict[str, Any]) -> None:
        masking = header["masking"]
        name = self.one([*masking, "seed", "threshold", "x"])
        values = (*JUNK, *NUMBERS, list(NAMES), list(NAMES[:2]), "masked", "shared", 2.0**-10, 2.0**-40)
        masking[name] = self.one(values)

    def _design(self, header: dict[str, Any], arrays: dict[str, Any]) -> None:
        """Change a design: mostly one column becomes a formula, its bounds as they follow from the schema."""
        content = header["args"].get("design")
        if not isinstance(content, dict) or self.rng.uniform() < 0.1:
            header["args"]["design"] = self.one(JUNK)
            return
        if self.rng.uniform() < 0.25:
            _deep(content, self)
            return
        with suppress(PrivinfError, RecursionError):
            right = self.one(("{}", "u * ({})", "{} * C(g, Sum)", "poly(v, 2) * ({})", "{} + I(u ** 2)"))
            formula = f"{self.one(('y', 'hit', 'np.log1p(y)'))} ~ u + {right.format(self.expression())}"
            made = pi.Design.from_formula(formula, SCHEMA)
            header["args"]["design"] = (made.conditioned() if self.rng.uniform() < 0.5 else made).to_dict()
            return
        columns = content.get("columns")
        if isinstance(columns, list) and columns and isinstance(columns[-1], dict):
            columns[-1]["pieces"] = [{"expression": self.expression()}]

    def expression(self, depth: int = 3) -> str:
        """Return a formula over the whitelist, or just beyond it, or a probe for last bits."""
        if self.rng.uniform() < 0.15:
            k, width = self.one(ONE_ULP), float(self.one((1e-9, 1e-3, 1.0, 1e5)))
            name, (low, high) = self.one((("u", (-1.0, 1.0)), ("v", (0.5, 3.0)), ("w", (0.0, 1e6))))
            at = self.one((low, high, 0.5 * low + 0.5 * high))
            slope = float(np.spacing(k)) / (2.0 * width)
            top = float(np.exp(k)) * (1.0 + self.one((0.0, 2.0**-52, 2.0**-49)))
            return f"np.sqrt({top!r} - np.exp({k!r} - {slope!r} * abs({name} - {at!r})))"
        if depth == 0 or self.rng.uniform() < 0.2:
            return self.one(("u", "v", "w", "k", "Q('u')", "1.5", "2", "y", "absent", "g"))
        inner = self.expression(depth - 1)
        functions = [f"np.{name}" for name in pi.schema.expressions.FUNCTION_NAMES] + ["abs", "I", "np.sin"]
        match int(self.rng.integers(8)):
            case 6:
                test = f"{inner} {self.one(('<', '>=', '==', '!='))} {self.expression(depth - 1)}"
                return self.one((f"({test})", f"np.where({test}, u, {inner})", f"~({test})", f"I({test})"))
            case 7:
                low, high = self.one(((0, 1), (-1e300, 0.5), (None, 0.3), (2, 1)))
                return self.one((f"np.clip({inner}, {low}, {high})", f"np.maximum({inner}, v)"))
            case 0 | 1:
                return f"{self.one(functions)}({inner})"
            case 2:
                return f"({inner}) ** ({self.one(('2', '3', '0.5', '-1', '1.7', '1/3', '400'))})"
            case 3:
                return f"bs({inner}, knots=[0.1, 0.2], lower_bound=-1, upper_bound=1)"
            case _:
                return f"({inner} {self.one('+-*/')} {self.expression(depth - 1)})"


def _deep(content: Any, mutator: Mutator) -> None:
    """Change one leaf of nested lists and mappings."""
    while True:
        places = list(content) if isinstance(content, dict) else list(range(len(content)))
        if not places:
            return
        place = mutator.one(places)
        inner = content[place]
        if isinstance(inner, (dict, list)) and inner and mutator.rng.uniform() < 0.85:
            content = inner
            continue
        long = [{"name": f"c{j}", "pieces": [{"column": "u"}]} for j in range(1100)]
        nested = "(" * 300 + "u" + ")" * 300
        content[place] = mutator.one(
            (*JUNK, *NUMBERS, long, nested, "-" * 900 + "u", "u" * 3000, list(np.linspace(0, 1, 2000)))
        )
        return


# ---- the pair


@dataclass
class Findings:
    """What a run has found; all lists are empty if nothing is wrong."""

    different: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)
    asked: int = 0
    charged: int = 0
    designs: int = 0
    slowest: float = 0.0
    refused: Counter[str] = field(default_factory=Counter)

    def __bool__(self) -> bool:
        return bool(self.different or self.foreign or self.slow)


class Pair:
    """Two sites whose rows differ in one, behind the same entry point.

    Parameters
    ----------
    policy : SitePolicy
    folder : path, optional
        Where sockets of daemons are put; by default sites are asked in this process.
    """

    def __init__(self, policy: SitePolicy, folder: Any = None) -> None:
        frame = table()
        other = frame.copy()
        for name, value in EXTREME.items():
            other.loc[REPLACED, name] = value
        self.sites = [site_of(rows, policy) for rows in (frame, other)]
        self.stack = ExitStack()
        self.entry_points: list[Any] = list(self.sites)
        if folder is not None:
            paths = [f"{folder}/{k}" for k in range(2)]
            for site, path in zip(self.sites, paths, strict=True):
                self.stack.enter_context(SiteDaemon(site, ASKED, path).started())
            self.entry_points = [RemoteSite(path, timeout=600.0) for path in paths]

    def close(self) -> None:
        """Stop the daemons."""
        self.stack.close()

    def ask(self, query: Query, found: Findings) -> Any:
        """Put a question to both, compare, and return the first's reply."""
        before = [len(site.ledger) for site in self.sites]
        replies = []
        for entry_point in self.entry_points:
            start = time.process_time()
            try:
                replies.append(entry_point.handle(query, ASKED))
            except Exception as error:
                found.foreign.append(f"{query.op}: {type(error).__name__} out of the site")
                return None
            found.slowest = max(found.slowest, time.process_time() - start)
            if time.process_time() - start > SLOW * slowness():
                found.slow.append(f"{query.op}: {time.process_time() - start:.1f} s: {query.pack()[0][:300]}")
        found.asked += 1
        self._compare(query, replies, before, found)
        return replies[0]

    def _compare(self, query: Query, replies: list[Any], before: list[int], found: Findings) -> None:
        lines = [
            [_line(entry, site.journal.place(ASKED)) for entry in site.ledger.entries[first:]]
            for site, first in zip(self.sites, before, strict=True)
        ]
        charged = [query.digest in site._journal._charged for site in self.sites]
        found.charged += bool(lines[0])
        found.refused[replies[0].error.partition(":")[0]] += 1
        told = [_told(reply, whole=not charged[0]) for reply in replies]
        if lines[0] != lines[1] or charged[0] != charged[1] or told[0] != told[1]:
            found.different.append(f"{query.op}: {replies[0].error!r} and {replies[1].error!r}")
        for reply, new in zip(replies, lines, strict=True):
            if new and reply.error:
                found.foreign.append(f"{query.op}: charged, and then {reply.error}")
            if reply.error == f"ArgumentError: failed at {query.op!r}" or "Unforeseen" in reply.error:
                found.foreign.append(f"{query.op}: {query.pack()[0][:400]}")


def _line(entry: LedgerEntry, place: str) -> dict[str, Any]:
    """Return what a line says, without what is drawn for it: its id, its time, and its site's own place."""
    told = {name: value for name, value in entry.to_dict().items() if name not in ("id", "time")}
    return told | {"scope": [part.replace(place, ASKED) for part in told["scope"]]}


def _told(reply: Any, *, whole: bool) -> Any:
    """Return what must be equal of two replies."""
    if not whole:
        return reply.site, reply.rows, reply.error, reply.sums.shape, reply.masked.shape, sorted(reply.facts)
    text, arrays = reply.pack()
    return text, {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in arrays.items()}


def fuzz(count: int, seed: int, *, policy: str = "open", folder: Any = None, renew: int = 500) -> Findings:
    """Put `count` questions to pairs of sites, new ones every `renew` questions.

    Parameters
    ----------
    count, seed : int
    policy : str
        One of `POLICIES`.
    folder : path, optional
        For daemons.
    renew : int

    Returns
    -------
    Findings
    """
    mutator, found = Mutator(seed), Findings()
    messages = corpus()
    by_op: dict[str, list[Any]] = {}
    for message in messages:
        by_op.setdefault(json.loads(message[0])["op"], []).append(message)
    ops = [*by_op, *["design"] * 5]
    pair = None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        while found.asked < count and len(found.different) + len(found.foreign) < 50:
            if pair is None or found.asked % renew == 0:
                pair and pair.close()
                pair, mutator.digests = Pair(POLICIES[policy], folder), []
                _introduce(pair, messages, mutator, found)
            query = _unpacked(mutator.changed(mutator.one(by_op[mutator.one(ops)])), found)
            if query is not None:
                reply = pair.ask(query, found)
                _remember(query, reply, mutator, found)
                if mutator.rng.uniform() < 0.1:
                    pair.ask(query, found)  # again
    pair and pair.close()
    return found


def _introduce(pair: Pair, messages: Any, mutator: Mutator, found: Findings) -> None:
    """Send the designs of the corpus, as its fits do, so that their questions find them."""
    for text, arrays in messages:
        if json.loads(text)["op"] == "design":
            query = Query.unpack(text, arrays)
            _remember(query, pair.ask(query, found), mutator, found)


def _remember(query: Query, reply: Any, mutator: Mutator, found: Findings) -> None:
    if reply is not None and query.op == "design" and not reply.error:
        found.designs += 1
        mutator.digests = [*mutator.digests, reply.facts["digest"]][-20:]


def _unpacked(message: Any, found: Findings) -> Query | None:
    """Return a changed question; None if it is none, or too long for this fuzzer."""
    text, arrays = message
    if len(text) + sum(array.nbytes for array in arrays.values()) > LONGEST:
        return None
    try:
        query = Query.unpack(text, arrays)
        query.pack()  # nan in a charge travels nowhere
        return query
    except PrivinfError:
        return None
    except Exception as error:
        found.foreign.append(f"unpack: {type(error).__name__}: {text[:300]}")
        return None


def charge(mu: float, sensitivity: float) -> dict[str, Any]:
    """Return a Gaussian line of this price."""
    return LedgerEntry(
        mechanism="gaussian",
        label="asked",
        unit="record",
        relation="replace-one",
        trust="central",
        sensitivity=Sensitivity("l2", sensitivity, "stated"),
        noise={"law": "discrete gaussian", "scale": sensitivity / mu},
        loss=GaussianLoss(mu),
        source="lattice",
        secure=True,
        assumptions=("n is public",),
    ).to_dict()


__all__ = ["ASKED", "Findings", "Mutator", "Pair", "charge", "copy", "corpus", "fuzz", "replace", "site_of"]
