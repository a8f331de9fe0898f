"""The numbers that the package claims, by Monte Carlo: ``make verify`` (about an hour on two free cores).

Every cell goes through the public API (``Model(...).fit(..., rng=...)``), seeded, and is judged by
binomial limits. Tables are written to benchmarks/results/ as they finish; ``--only NAME`` runs one
table, ``--scale 0.1`` a tenth of the replications.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import itertools
import time
from functools import partial

import numpy as np
import pandas as pd
from tables import RESULTS, limits, monte_carlo, write_table

import privinf as pi
from studies.designs import cube_design, sphere_design

BETA = np.array([1.0, -0.5, 0.25, 0.0, 0.8])
DELTA = 1e-5


def sphere(rng: np.random.Generator, n: int, covariates: bool = False):
    """Return (y, X, truth) of the sphere design, optionally with an intercept and a public column."""
    sample = sphere_design(n, rng, intercept=covariates, public_covariate=covariates)
    return sample.y, sample.X, sample.params.to_numpy()


def wald_bse(r) -> np.ndarray | None:
    """Return standard errors, or None where the fit is too weakly identified to have any."""
    return None if r.estimate.cov is None else r.estimate.bse


def clean_bse(r) -> np.ndarray | None:
    """Return the standard errors without noise, or None where the release does not determine them."""
    try:
        return np.asarray(r.bse_sampling)
    except pi.errors.NotAvailableError:
        return None


def modulated(seed: np.random.SeedSequence, *, n: int, epsilon: float, covariates: bool = False) -> dict:
    """One fit of the sphere design: what Wald intervals, the flag and the score test say."""
    rng = np.random.default_rng(seed)
    y, X, truth = sphere(rng, n, covariates)
    model = pi.ModulatedOLS(y, X, radius=1.0, public=["z"] if covariates else (), response="public")
    r = model.fit(epsilon=epsilon, delta=DELTA, rng=rng)
    out = {
        "weak": r.identification.weak,
        "statistic": r.identification.statistic,
        "score": r.score_test(BETA).pvalue,
        "global": r.score_test().pvalue,
        "error": float(np.linalg.norm(np.asarray(r.params) - truth)),
    }
    se = wald_bse(r)
    t = (np.asarray(r.params) - truth) / se if se is not None else np.full(len(truth), np.inf)
    slopes = slice(1, 6) if covariates else slice(0, 5)
    for j, value in enumerate(t[slopes]):
        out[f"miss{j}"] = abs(value) > 1.959963984540054
    clean = clean_bse(r)
    for j in range(5):
        out[f"clean{j}"] = np.nan if clean is None else clean[slopes][j]
    return out


def write(name: str, title: str, table: pd.DataFrame, started: float, note: str = "") -> None:
    """Write one table, and its numbers as csv."""
    command = f"benchmarks/verify.py --only {name}"
    write_table(RESULTS / f"{name}.md", title, command, table, time.time() - started, note)
    table.to_csv(RESULTS / f"{name}.csv", index=False)


def coverage(scale: float) -> None:
    """Wald coverage of one-shot ModulatedOLS and its identification flag."""
    started = time.time()
    cells = [(50_000, 2000), (100_000, 2000), (200_000, 2000), (1_000_000, 500)]
    rows = []
    for n, replications in cells:
        reps = max(20, int(replications * scale))
        frame = monte_carlo(partial(modulated, n=n, epsilon=4.0), reps, n, f"coverage n={n}")
        misses = frame[[f"miss{j}" for j in range(5)]].astype(float)
        low, high = limits(0.95, reps, cells=5)
        by_coefficient = 1.0 - misses.mean()
        unflagged = misses[~frame["weak"].astype(bool)]
        rows.append(
            {
                "n": n,
                "replications": reps,
                "coverage, each coefficient": " ".join(f"{c:.4f}" for c in by_coefficient),
                "lowest": float(by_coefficient.min()),
                "highest": float(by_coefficient.max()),
                "99% limits (5 cells)": f"{low:.4f} to {high:.4f}",
                "inside": bool(low <= by_coefficient.min() and by_coefficient.max() <= high),
                "pooled": float(1.0 - misses.to_numpy().mean()),
                "flagged": float(frame["weak"].mean()),
                "unflagged fits": len(unflagged),
                "their misses": float(unflagged.to_numpy().mean())
                if len(unflagged) >= 200
                else "always flagged",
                "median identification": float(frame["statistic"].median()),
            }
        )
        write(
            "coverage",
            "Coverage of 95% Wald intervals, one-shot ModulatedOLS, epsilon 4",
            pd.DataFrame(rows),
            started,
            "d = 5, x uniform on the unit sphere, y = x'b + .3 N(0,1), radius 1, delta 1e-5. The aim was a coverage in [94%, 97.5%] "
            "at n = 200,000, and in binomial limits at 1,000,000, at most 7% misses of intervals that are not flagged, and at most 5% flagged fits at 1,000,000.",
        )


def size(scale: float) -> None:
    """Size and power of the 5% score test; Wald misses of unflagged fits in the same cells."""
    started = time.time()
    rows = []
    for covariates in (False, True):
        for n in (5_000, 50_000):
            for epsilon in (1.0, 2.0, 4.0):
                reps = max(50, int(10_000 * scale))
                function = partial(modulated, n=n, epsilon=epsilon, covariates=covariates)
                seed = int(n + 10 * epsilon + covariates)
                frame = monte_carlo(function, reps, seed, f"size n={n} eps={epsilon:g}")
                misses = frame[[f"miss{j}" for j in range(5)]].astype(float)
                unflagged = misses[~frame["weak"].astype(bool)]
                low, high = limits(0.05, reps, cells=12)
                rejected = float((frame["score"] < 0.05).mean())
                rows.append(
                    {
                        "design": "intercept and public covariate" if covariates else "as asked",
                        "n": n,
                        "epsilon": epsilon,
                        "replications": reps,
                        "size at the truth": rejected,
                        "99% limits": f"{low:.4f} to {high:.4f}",
                        "in [4%, 6%]": 0.04 <= rejected <= 0.06,
                        "rejects all slopes zero": float((frame["global"] < 0.05).mean()),
                        "Wald misses, all fits": float(misses.to_numpy().mean()),
                        "flagged": float(frame["weak"].mean()),
                        "Wald misses, unflagged": (
                            float(unflagged.to_numpy().mean()) if len(unflagged) >= 200 else "always flagged"
                        ),
                    }
                )
                write(
                    "score_test",
                    "Size and power of the 5% score test",
                    pd.DataFrame(rows),
                    started,
                    "Sphere design. The aim was a size in [4%, 6%], a power of at least 80% at n = 5,000 and epsilon 1, and "
                    "at most 7% misses of Wald intervals that are not flagged.",
                )


def _iterative(seed: np.random.SeedSequence, *, n: int) -> dict:
    rng = np.random.default_rng(seed)
    y, X, truth = sphere(rng, n)
    out = {}
    model = pi.ModulatedOLS(y, X, radius=1.0, response="public")
    for name, options in {
        "one-shot": {"method": "one-shot"},
        "client-average": {"method": "iterative", "rounds": 10},
        "pooled": {"method": "iterative", "rounds": 10, "estimator": "pooled"},
    }.items():
        r = model.fit(epsilon=4.0, delta=DELTA, rng=rng, progress=False, **options)
        error = np.asarray(r.params) - truth
        out[f"{name} error"] = float(np.linalg.norm(error))
        se = wald_bse(r)
        out[f"{name} cover"] = np.nan if se is None else float(np.mean(np.abs(error / se) < 1.96))
    return out


def iterative(scale: float) -> None:
    """Iterative against one-shot at the same total budget."""
    started = time.time()
    rows = []
    for n, replications in ((200_000, 400), (1_000_000, 60)):
        reps = max(10, int(replications * scale))
        frame = monte_carlo(partial(_iterative, n=n), reps, n, f"iterative n={n}")
        rows.append(
            {
                "n": n,
                "replications": reps,
                "client-average / one-shot, mean error": float(
                    frame["client-average error"].mean() / frame["one-shot error"].mean()
                ),
                "pooled / one-shot": float(frame["pooled error"].mean() / frame["one-shot error"].mean()),
                "coverage one-shot": float(frame["one-shot cover"].mean()),
                "coverage client-average": float(frame["client-average cover"].mean()),
                "coverage pooled (clustered)": float(frame["pooled cover"].mean()),
            }
        )
        write(
            "iterative",
            "T = 10 rounds against one shot of the same total budget, epsilon 4",
            pd.DataFrame(rows),
            started,
            "The aim was an error of the client average of at most 1.05 times the error of one release.",
        )


def _central(seed: np.random.SeedSequence, *, covariates: bool, cov_type: str) -> dict:
    rng = np.random.default_rng(seed)
    sample = cube_design(5_000, rng)
    X = pi.add_constant(sample.X) if covariates else sample.X
    r = pi.MomentOLS(sample.y, X, bounds=[(-1, 1)] * 3, y_bounds=(-2, 2), trust="central").fit(
        epsilon=1.0, delta=DELTA, rng=rng, cov_type=cov_type
    )
    truth = sample.params.to_numpy()
    interval = np.asarray(r.conf_int(0.05))[-3:]
    hit = (interval[:, 0] <= truth) & (truth <= interval[:, 1])
    score = r.score_test(truth).pvalue
    return {
        "cover": hit.mean(),
        "width": np.median(interval[:, 1] - interval[:, 0]),
        "score": score,
        **{f"hit{j}": bool(h) for j, h in enumerate(hit)},
    }


def moments(scale: float) -> None:
    """MomentOLS with a trusted curator: coverage and width."""
    started = time.time()
    rows = []
    for covariates, cov_type in ((False, "nonrobust"), (False, "HC0"), (True, "nonrobust")):
        reps = max(50, int(1_000 * scale))
        function = partial(_central, covariates=covariates, cov_type=cov_type)
        frame = monte_carlo(function, reps, 11, f"central {cov_type}")
        low, high = limits(0.95, reps, cells=9)
        each = frame[["hit0", "hit1", "hit2"]].astype(float).mean()
        rows.append(
            {
                "design": "with intercept" if covariates else "as asked",
                "cov_type": cov_type,
                "replications": reps,
                "coverage, each": " ".join(f"{c:.3f}" for c in each),
                "pooled": float(frame["cover"].mean()),
                "99% limits": f"{low:.3f} to {high:.3f}",
                "inside": bool(low <= each.min() and each.max() <= high),
                "median width": float(frame["width"].median()),
                "score test size": float((frame["score"] < 0.05).mean()),
            }
        )
    write(
        "moments_central",
        "MomentOLS, trusted curator, n = 5,000, (1, 1e-5)",
        pd.DataFrame(rows),
        started,
        "X ~ U[-1,1]^3, beta (.5, -.3, .2), error sd .3, y clipped at 2. The aim was a coverage in binomial limits, and a median width"
        " <= .080. Other tools on this design: `benchmarks/results/peers.md`.",
    )


def _local(seed: np.random.SeedSequence, *, n: int, epsilon: float) -> dict:
    rng = np.random.default_rng(seed)
    y, X, truth = sphere(rng, n)
    a = pi.ModulatedOLS(y, X, radius=1.0, response="public").fit(epsilon=epsilon, delta=DELTA, rng=rng)
    b = pi.MomentOLS(y, X, radius=1.0, y_bounds=(-2.5, 2.5), trust="local").fit(
        epsilon=epsilon, delta=DELTA, rng=rng
    )
    error = np.asarray(b.params) - truth
    se = wald_bse(b)
    return {
        "modulated": float(np.linalg.norm(np.asarray(a.params) - truth)),
        "moments": float(np.linalg.norm(error)),
        "weak": b.identification.weak,
        "cover": np.nan if se is None else float(np.mean(np.abs(error / se) < 1.96)),
        "score": b.score_test(BETA).pvalue,
    }


def local(scale: float) -> None:
    """MomentOLS local against ModulatedOLS one-shot."""
    started = time.time()
    rows = []
    for epsilon in (1.0, 4.0):
        reps = max(20, int(400 * scale))
        frame = monte_carlo(partial(_local, n=200_000, epsilon=epsilon), reps, 5, f"local eps={epsilon:g}")
        rows.append(
            {
                "epsilon": epsilon,
                "replications": reps,
                "median error ratio, moments / modulated": float(
                    (frame["moments"] / frame["modulated"]).median()
                ),
                "ratio of median errors": float(frame["moments"].median() / frame["modulated"].median()),
                "moments: coverage": float(frame["cover"].mean()),
                "moments: flagged": float(frame["weak"].mean()),
                "moments: score test size": float((frame["score"] < 0.05).mean()),
            }
        )
    write(
        "moments_local",
        "MomentOLS local against ModulatedOLS one-shot, n = 200,000",
        pd.DataFrame(rows),
        started,
        "Sphere design; moments protect y too. Asked at epsilon 1: median error ratio <= .35.",
    )


def _truth_without_noise() -> np.ndarray:
    """Standard errors of OLS HC0 per sqrt(n): E(xx')^-1 = 5 I, error variance .09."""
    return np.full(5, np.sqrt(0.09 * 5.0))


def clean_errors(scale: float) -> None:
    """The standard error without noise, estimated from the release."""
    started = time.time()
    rows = []
    for n, replications in ((200_000, 300), (1_000_000, 100)):
        reps = max(10, int(replications * scale))
        frame = monte_carlo(partial(modulated, n=n, epsilon=4.0), reps, n + 1, f"clean n={n}")
        kept = frame[~frame["weak"].astype(bool)]
        estimate = kept[[f"clean{j}" for j in range(5)]].median().to_numpy()
        ratio = estimate / (_truth_without_noise() / np.sqrt(n))
        rows.append(
            {
                "n": n,
                "identified fits": len(kept),
                "median estimate / truth, each": " ".join(f"{v:.3f}" for v in ratio),
                "worst": float(np.abs(ratio - 1.0).max()),
            }
        )
    write(
        "clean_errors",
        "Standard error without noise, estimated from the release / truth",
        pd.DataFrame(rows),
        started,
        "One-shot ModulatedOLS, epsilon 4. Asked: within 5% in identified cells.",
    )


def _gradient(seed: np.random.SeedSequence, *, m: int, orthogonal: bool, data: tuple) -> dict:
    from privinf.mechanisms.local.modulation_map import (
        ModulationMap,
        modulated_message,
        orthonormal_directions,
    )
    from privinf.modulation.theory import modulation_noise_cov
    from privinf.noise import SimulationNoise

    rng = np.random.default_rng(seed)
    X, y, beta = data
    n, d = X.shape
    V = orthonormal_directions(np.random.default_rng(7), m, d, orthogonal_to=beta if orthogonal else None)
    p = ModulationMap(contraction=0.4, amplitude=1.2, frequency=1.0, directions=m)
    x = modulated_message(X, V, 0.5, SimulationNoise(rng), p) / 0.6
    S = modulation_noise_cov(V, scale=0.5, contraction=0.4, amplitude=1.2)
    G = (x.T @ x / n - S) @ beta - x.T @ y / n
    clean = X.T @ (X @ beta - y) / n
    return {"square": float(np.sum((G - clean) ** 2))}


def gradient(scale: float) -> None:
    """Theorem 8.1 against simulation."""
    from privinf.mechanisms.local.modulation_map import orthonormal_directions
    from privinf.modulation.theory import gradient_variance, modulation_cumulants, modulation_noise_cov

    started = time.time()
    rng = np.random.default_rng(1)
    n, d = 400, 5
    X = rng.uniform(-1, 1, (n, d))
    beta = np.array([1.0, -0.5, 0.25, 0.3, 0.8])
    y = X @ np.array([0.8, -0.2, 0.5, 0.1, 0.4]) + 0.3 * rng.standard_normal(n)
    rows = []
    for m in (1, 2, 4):
        for orthogonal in (True, False):
            reps = max(500, int(40_000 * scale))
            function = partial(_gradient, m=m, orthogonal=orthogonal, data=(X, y, beta))
            found = monte_carlo(function, reps, 3, f"gradient m={m}")["square"]
            V = orthonormal_directions(
                np.random.default_rng(7), m, d, orthogonal_to=beta if orthogonal else None
            )
            r = X @ beta - y
            claim = gradient_variance(
                beta,
                second_moment=X.T @ X / n,
                residual_cross=X.T @ r / n,
                residual_variance=float(np.mean(r**2)),
                noise_cov=modulation_noise_cov(V, scale=0.5, contraction=0.4, amplitude=1.2),
                directions=V,
                cumulants=modulation_cumulants(V, contraction=0.4, amplitude=1.2),
                nobs=n,
            )
            paper = (
                np.mean(r**2) * (1.2**2 / 2 + d * 0.25)
                + 2 * 0.25 * beta @ X.T @ r / n
                + 0.25 * beta @ beta * np.trace(X.T @ X / n)
            ) / (n * 0.36) + beta @ beta * (1.2**2 * 0.25 / 2 + (d + 1) * 0.0625) / (n * 0.36**2)
            rows.append(
                {
                    "m": m,
                    "V orthogonal to beta": orthogonal,
                    "simulated / ours": float(found.mean() / claim),
                    "simulated / paper (25)": float(found.mean() / paper),
                    "Monte Carlo error": float(found.std() / found.mean() / np.sqrt(reps)),
                }
            )
    write(
        "gradient_variance",
        "Variance of the gradient (Theorem 8.1) against simulation",
        pd.DataFrame(rows),
        started,
        "n = 400, d = 5, sigma .5, lambda 1.2, alpha .4. Asked: within 2%.",
    )


def simulated_gradient(X, y, beta, V, shape, scale, response_noise, rng, reps) -> tuple[float, float]:
    """Return the mean of ||G - grad L||^2 over releases of the same rows, and its standard error."""
    from privinf.mechanisms.local.modulation_map import ModulationMap, modulated_message
    from privinf.modulation.theory import modulation_noise_cov
    from privinf.noise import SimulationNoise

    n, d = X.shape
    p = ModulationMap(directions=len(V), **shape)
    x = modulated_message(np.tile(X, (reps, 1)), V, scale, SimulationNoise(rng), p)
    x = x.reshape(reps, n, d) / (1.0 - shape["contraction"])
    seen = y + np.sqrt(response_noise) * rng.standard_normal((reps, n))
    G = (x * (x @ beta - seen)[..., None]).mean(axis=1) - modulation_noise_cov(V, scale=scale, **shape) @ beta
    squares = ((G - X.T @ (X @ beta - y) / n) ** 2).sum(axis=1)
    return float(squares.mean()), float(squares.std() / np.sqrt(reps))


def bound(scale: float) -> None:
    """Corollary 9.1 over simulations: random records and those at which it is reached."""
    from privinf.mechanisms.local.modulation_map import orthonormal_directions
    from privinf.modulation.theory import variance_bound

    started, rows, R, M = time.time(), [], 1.0, 2.0
    shape, reps = {"contraction": 0.5, "amplitude": 0.8}, max(200, int(4000 * scale))
    for protected in (False, True):
        for lie in ("orthogonal", "along", "random"):
            for mu in (0.1, 0.5, 2.0, 8.0, 20.0):
                found = []
                for n, d, length in itertools.product((2, 20, 100), (2, 5, 20), (0.1, 1.0, 5.0)):
                    rng = np.random.default_rng([n, d, int(10 * mu), int(10 * length)])
                    beta = rng.standard_normal(d)
                    V = orthonormal_directions(rng, 1, d, orthogonal_to=beta if lie == "orthogonal" else None)
                    beta = V[0] if lie == "along" else beta
                    beta = length * beta / np.linalg.norm(beta)
                    along = min(1.0, float(((V @ beta) ** 2).sum()) / length**2)
                    tau2 = (2.0 * M / mu) ** 2 * protected
                    most = variance_bound(
                        beta_norm=length,
                        feature_norm=R,
                        response_norm=M,
                        scale=0.5 * 2.0 * R / mu,
                        nobs=n,
                        dimension=d,
                        alignment=along,
                        response_noise=tau2,
                        **shape,
                    )
                    X = rng.standard_normal((n, d))
                    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), R)
                    binding = np.tile(R * beta / length, (n, 1)), np.full(n, -M)
                    for table in ((X, rng.uniform(-M, M, n)), binding):
                        draws = max(50, min(reps, int(reps * 100 / (n * d))))
                        mean, error = simulated_gradient(
                            *table, beta, V, shape, 0.5 * 2.0 * R / mu, tau2, rng, draws
                        )
                        found.append((most / mean, (most - mean) / error))
                ratio, z = np.array(found).reshape(-1, 2, 2).transpose(2, 1, 0)
                rows.append(
                    {
                        "y": "protected" if protected else "clear",
                        "V and beta": lie,
                        "mu": mu,
                        "cells": ratio.size,
                        "least z of bound - simulated": float(z.min()),
                        "random records, bound / simulated": f"{ratio[0].min():.2f} to {ratio[0].max():.2f}",
                        "binding records": f"{ratio[1].min():.2f} to {ratio[1].max():.2f}",
                        "their median": float(np.median(ratio[1])),
                    }
                )
    write(
        "variance_bound",
        "Bound on the gradient's variance (Corollary 9.1) over simulation",
        pd.DataFrame(rows),
        started,
        "n 2, 20, 100; d 2, 5, 20; |beta| .1, 1, 5; R = 1, M = 2, alpha .5, lambda .8, one direction, two records at "
        "distance 2 protected at mu, y at mu of its own. Random records in the balls, and x_i = R beta/|beta|, y_i = -M, at "
        "which the bound is reached where V is orthogonal to beta or along it. Asked: z of no cell below -4.5, binding "
        "records within 3.",
    )


TABLES = {
    "gradient_variance": gradient,
    "variance_bound": bound,
    "moments_central": moments,
    "moments_local": local,
    "clean_errors": clean_errors,
    "coverage": coverage,
    "iterative": iterative,
    "score_test": size,
}


def main() -> None:
    """Run the tables asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=TABLES, action="append")
    parser.add_argument("--scale", type=float, default=1.0)
    arguments = parser.parse_args()
    for name in arguments.only or TABLES:
        TABLES[name](arguments.scale)


if __name__ == "__main__":
    main()
