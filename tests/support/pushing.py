"""Random tables with what can go wrong in them, their integers, and a PostgreSQL of one's own."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import subprocess
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

import numpy as np

import privinf as pi
from privinf.errors import PrivinfError
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.passes import RowPasses
from privinf.mechanisms.rows import as_rows

TEXTS = ["a", "A", "it's", 'a"b', "a\\", "ä", "%s", ""]
TYPES = {
    "double": ("DOUBLE", "DOUBLE PRECISION", "float64"),
    "whole": ("BIGINT", "BIGINT", "int64"),
    "truth": ("BOOLEAN", "BOOLEAN", "bool_"),
    "text": ("VARCHAR", "TEXT", "string"),
    "decimal": ("DECIMAL(30,12)", "NUMERIC(30,12)", "decimal128"),
}


@dataclass
class Case:
    """A table as lists of Python's values with None, what is asked of it, and its types."""

    columns: dict[str, list]
    kinds: dict[str, str]
    schema: pi.Schema
    formula: str
    missing: str
    radius: float | None
    seed: int

    def arrow(self):
        import pyarrow as pa

        types = {name: getattr(pa, TYPES[kind][2]) for name, kind in self.kinds.items()}
        made = {
            name: types[name](30, 12) if kind == "decimal" else types[name]()
            for name, kind in self.kinds.items()
        }
        return pa.table(
            {name: pa.array(held, made[name], from_pandas=False) for name, held in self.columns.items()}
        )

    def create(self, dialect: int) -> str:
        listed = ", ".join(f'"{name}" {TYPES[kind][dialect]}' for name, kind in self.kinds.items())
        rows = ", ".join(
            "("
            + ", ".join(
                literal(value, self.kinds[name], dialect) for name, value in zip(self.kinds, row, strict=True)
            )
            + ")"
            for row in zip(*self.columns.values(), strict=True)
        )
        insert = f"; INSERT INTO held VALUES {rows}" if rows else ""
        return f"DROP TABLE IF EXISTS held; CREATE TABLE held ({listed}){insert}"


def literal(value, kind: str, dialect: int) -> str:
    if value is None:
        return "NULL"
    if kind == "text":
        quoted = "'" + value.replace("'", "''") + "'"
        return quoted
    return f"CAST('{value!s}' AS {TYPES[kind][dialect]})"


def random_case(seed: int) -> Case:
    """Return one of many tables: about half of them can be summed, the others are refused."""
    rng = np.random.default_rng([seed, 17])
    n = int(rng.choice([20, 45, 90]))
    trouble = rng.choice(["none", "none", "gaps", "imputed", "imputed", "infinite", "levels"])
    declared, columns, kinds = {}, {}, {}
    for place in range(int(rng.integers(2, 5))):
        kind = str(rng.choice(["double", "double", "double", "whole", "truth", "decimal"]))
        low, high = _bounds(rng) if kind in ("double", "whole") else (-0.3, 0.8)
        if kind == "decimal":
            low, high = -300000.25, 800000.5
        name = f"x{place}"
        declared[name], kinds[name] = (low, high), kind
        columns[name] = [_value(rng, kind, low, high) for _ in range(n)]
    text = [str(one) for one in rng.choice(TEXTS, 3, replace=False)]
    numbers = [[1, 2, 5], [0.5, 1.5], [0, 1]][int(rng.integers(3))]
    other = text[1] if rng.random() < 0.4 else None
    declared |= {"g": pi.Factor(text, other=other), "k": pi.Factor(numbers)}
    kinds |= {"g": "text", "k": "whole" if isinstance(numbers[0], int) else "double"}
    columns["g"] = [str(one) for one in rng.choice(TEXTS if other else text, n)]
    columns["k"] = [numbers[int(at)] for at in rng.integers(len(numbers), size=n)]
    names = list(declared)
    if trouble in ("gaps", "imputed"):
        for _ in range(int(rng.integers(1, n))):
            name = str(rng.choice(names))
            columns[name][int(rng.integers(n))] = (
                math.nan if kinds[name] == "double" and rng.random() < 0.5 else None
            )
    doubles = [name for name in names[:-2] if kinds[name] == "double"]
    if trouble == "infinite" and doubles:
        columns[str(rng.choice(doubles))][int(rng.integers(n))] = float(rng.choice([-math.inf, math.inf]))
    if trouble == "levels":
        columns["g"][int(rng.integers(n))] = "of no kind"
    response = "k" if rng.random() < 0.2 else names[0]
    terms = [name for name in names[:-2] if name != response]
    terms += (
        [str(one) for one in rng.choice(["g", "C(k)", "C(g, Sum)", "g:C(k)", "k"], 1)]
        if response != "k"
        else ["g"]
    )
    formula = f"{response} ~ {'0 + ' if rng.random() < 0.2 else ''}{' + '.join(dict.fromkeys(terms))}"
    radius = float(rng.choice([0.7, 1.1])) if rng.random() < 0.3 else None
    missing = "impute-public" if trouble == "imputed" else "raise"
    return Case(
        columns=columns,
        kinds=kinds,
        schema=pi.Schema(declared),
        formula=formula,
        missing=missing,
        radius=radius,
        seed=seed,
    )


def _bounds(rng) -> tuple[float, float]:
    middle = float(rng.choice([0.0, 0.0, 0.3, -7.0, 1e6, 1e11]))
    half = float(rng.choice([1.0, 0.7, 1e-6 * (middle == 0.0) + 1e-3, 40.0, 3e9]))
    return middle - half * float(rng.choice([1.0, 1.0, 0.2])), middle + half


def _value(rng, kind: str, low: float, high: float):
    if kind == "truth":
        return bool(rng.random() < 0.4)
    if kind == "decimal":
        return Decimal(int(rng.integers(-(10**18), 10**18))).scaleb(-12)
    if kind == "whole":
        return (
            int(rng.integers(-(2**62), 2**62))
            if rng.random() < 0.1
            else int(np.clip(rng.uniform(low - 9, high + 9), -(2**62), 2**62))
        )
    drawn = rng.random()
    if drawn < 0.15:
        hard = [low, high, 0.0, -0.0, 5e-324, -3e-310, 1e300, -1.7e308, 1e-200, 2.0**53]
        return float(rng.choice(hard))
    if drawn < 0.3:
        return float(np.nextafter(rng.choice([low, high]), rng.choice([-1e9, 1e9])))
    if drawn < 0.5:  # halfway between two steps
        half = 0.5 * (high - low)
        return float(0.5 * (low + high) + half * (2 * rng.integers(-(2**20), 2**20) + 1) * 2.0**-21)
    return float(low + (high - low) * rng.normal(0.5, 0.5))


def told(case: Case, data):
    """Return the un-noised integers of both sums, or what is refused and how."""
    model = pi.Moments(case.schema, case.formula, radius=case.radius, missing=case.missing)
    design, rng = model.design, np.random.default_rng(case.seed)
    try:
        passes = RowPasses(design, as_rows(data, case.missing))
        reach, q2 = passes.public_sizes()
        total, residual = model._queries(float(rng.uniform(0.3, 2.0)), reach, q2, robust=True)
        b = rng.normal(size=len(design.columns)) * rng.choice([0.0, 0.2, 3.0])
        args = {**residual.args, "coefficients": b, "response_factor": float(rng.choice([0.3, 1.0, 7.0]))}
        both = [one.over(passes, exact=True) for one in (total, replace(residual, args=args))]
        return [np.triu(one._sums.total.integers()).tolist() for one in both]
    except PrivinfError as problem:
        return type(problem).__name__, str(problem)


FITS = (
    "whitened.counts",
    "whitened.gram",
    "whitened.hessian",
    "whitened.score",
    "whitened.meat",
    "whitened.square",
    "curved.start",
    "curved.step",
    "curved.counts",
    "curved.score",
    "curved.meat",
    "curved.secant",
    "curved.dispersion",
    "curved.dispersion_meat",
)


def told_of_fits(case: Case, data, names=FITS):
    """Return the un-noised integers of what fits by passes ask, or what is refused and how."""
    design = pi.Moments(case.schema, case.formula, missing=case.missing).design
    rng = np.random.default_rng([case.seed, 5])
    asked = [(SITE_OPS[name], {**fit_args(name, design, rng), "bits": 20}) for name in names]
    try:
        passes = RowPasses(design, as_rows(data, case.missing), stream=1)
        if passes.n and passes.adds(exact=True):
            found = passes.push(asked)
        else:
            blocks = list(passes.blocks())
            found = [op.sums(blocks[0], args) for op, args in asked]
            for block in blocks:
                for one in found:
                    one.update(block)
        return [
            kind.entries(part)[0].integers().tolist()
            for one in found
            for kind, part in zip(one._kinds, one.parts, strict=True)
        ]
    except PrivinfError as problem:
        return type(problem).__name__, str(problem)


def fit_args(name: str, design, rng) -> dict:
    """Return random arguments of a statistic: some beyond what a fit would ask."""
    p = len(design.columns)
    middle = 0.5 * (design.low + design.high)
    half = np.maximum(0.5 * (design.high - design.low), 1e-3)
    units = {"center": middle * rng.integers(2, size=p), "scale": half * rng.choice([1.0, 0.7])}
    steep = float(rng.choice([0.0, 0.3, 2.0, 30.0]))
    units["theta"] = rng.normal(size=p) * steep
    if name.startswith("whitened"):
        y = 0.5 * (design.y_high - design.y_low)
        args = units | {
            "whitening": rng.normal(size=(p, p)),
            "intercept": float(rng.choice([0.0, design.y_low])),
        }
        args |= {"response_factor": float(rng.choice([1.0, 0.6])) / y}
        if design.constant is not None:
            args["constant"] = design.constant
        if name != "whitened.gram" and (name == "whitened.square" or rng.random() < 0.5):
            args["residual_clip"] = float(rng.choice([0.4, 5.0]))
        layers = {"unit": 0.7, "low": float(rng.choice([0.0, 0.5])), "high": 2.5}
        more = {
            "counts": {
                "quantity": str(rng.choice(["residual", "length", "score"])),
                "thresholds": np.array([0.0, 0.3, 1.0, 4.0]),
                "unit": 0.7,
            },
            "gram": {"clip": 1.3, "unit": 0.7},
            "hessian": layers | {"weight": 1.4, "clip": 1.1},
            "score": layers,
            "meat": layers | {"weight": 1.2},
            "square": {"unit": 0.7},
        }
        return args | more[name.partition(".")[2]]
    if name == "curved.start":
        del units["theta"]
        reach = np.abs((np.stack([design.low, design.high]) - units["center"]) / units["scale"]).max()
        return units | {"block": np.arange(p)[::-1], "radius": max(float(reach), 1.0), "share": 0.6}
    if name.startswith("curved.dispersion"):
        tables = {"by_count": rng.normal(size=(2, 4)), "by_mean": rng.normal(size=(3, 6))}
        ends = {"low": float(rng.choice([-0.4, -3.0])), "high": float(rng.choice([0.5, 4.0]))}
        more = {"family": "poisson", "transform": np.eye(p)[:, :1], "mean_unit": 1.3}
        return units | tables | ends | more | {"width": float(rng.choice([1.0, 3.0]))}
    family, width = str(rng.choice(["binomial", "poisson"])), int(rng.integers(1, p + 1))
    args = units | {
        "family": family,
        "transform": rng.normal(size=(p, width)),
        "score_bound": float(rng.choice([0.2, 3.0])),
        "curvature_bound": float(rng.choice([0.05, 2.0])),
    }
    if rng.random() < 0.3:
        args |= {"weight": int(rng.integers(p)), "weight_unit": 2.0}
    if family == "poisson" and rng.random() < 0.5:
        args["alpha"] = float(rng.choice([0.0, 0.7, 5.0]))
    if family == "poisson" and rng.random() < 0.5:
        args["exposure"] = int(rng.integers(p))
    if rng.random() < 0.3:
        args |= {"offset": rng.normal(size=width), "intercept": -0.4}
    of = ["curvature", "residual"] + ["score"] * (family == "binomial")
    more = {
        "step": {"share": 0.5},
        "counts": {"of": str(rng.choice(of)), "thresholds": np.array([0.0, 0.1, 0.5, 2.0])},
        "score": {"low": float(rng.choice([0.0, 0.1])), "high": 0.9},
        "meat": {"middle": 0.2, "high": 0.9, "upper": 1.3},
        "secant": {"step": rng.normal(size=width) * float(rng.choice([0.0, 0.01, 1.0])), "clip": 0.8},
    }
    return args | more[name.partition(".")[2]]


# ---- PostgreSQL


def programs() -> Path | None:
    """Return where PostgreSQL's programs are, if they are."""
    found = [Path("/usr/lib/postgresql/15/bin")] + [
        Path(one).resolve().parent for one in [shutil.which("initdb")] if one
    ]
    return next((one for one in found if (one / "initdb").exists() and (one / "postgres").exists()), None)


@contextlib.contextmanager
def postgres(folder: Path):
    """Run a server on a socket of its own in an empty folder; yield how ibis connects to it."""
    found = programs()
    assert found is not None
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    user = {"user": "nobody", "group": "nogroup", "extra_groups": []} if root else {}
    if root:
        shutil.chown(folder, "nobody", "nogroup")
    data, quiet = folder / "data", {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
    setup = [
        found / "initdb",
        "-D",
        data,
        "-A",
        "trust",
        "-U",
        "holder",
        "-E",
        "UTF8",
        "--locale=C.UTF-8",
        "--no-sync",
    ]
    subprocess.run(setup, check=True, **quiet, **user)
    settings = ["listen_addresses=", f"unix_socket_directories={folder}", "fsync=off"]
    words = [word for one in settings for word in ("-c", one)]
    server = subprocess.Popen([found / "postgres", "-D", data, *words], **quiet, **user)
    try:
        ready = [found / "pg_isready", "-h", folder]
        for _ in range(200):
            if subprocess.run(ready, check=False, **quiet).returncode == 0:
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(0.05)
        yield {"host": str(folder), "user": "holder", "database": "postgres"}
    finally:
        server.terminate()
        server.wait(20)
