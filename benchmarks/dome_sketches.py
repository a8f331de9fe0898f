"""Noise in sketches: Lemmas 3.1 and 3.2 by simulation, and how much of a gradient a learned sketch misses."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from tables import RESULTS, write_table

from privinf.accounting import Ledger
from privinf.federation import InProcessFederation, Site, SitePolicy, TrustedServer
from privinf.glm.dome.sketch import LearnedSpace, Probes, Sketch, debiased_square
from privinf.glm.sums import GlmSums
from privinf.schema import Design
from studies.paper.dome import qr_update

LEARNED = RESULTS / "dome_learned.csv"
D, K, RANK = 2000, 40, 20
RATIOS = (0.1, 0.3, 1.0, 3.0, 10.0)
ROUNDS, MEASURED = 400, 100


def lemma_1(draws: int, d: int = D, k: int = K) -> tuple[float, float]:
    """Return mean squared noise over sigma^2 in full dimension, and after a known projection."""
    rng = np.random.default_rng(31)
    basis = np.linalg.qr(rng.standard_normal((d, k)))[0]
    gradient = basis @ rng.standard_normal(k)
    full = sketched = 0.0
    for _ in range(draws):
        full += float(((gradient + rng.standard_normal(d) - gradient) ** 2).sum())
        sent = basis.T @ gradient + rng.standard_normal(k)
        sketched += float(((basis @ sent - gradient) ** 2).sum())
    return full / draws, sketched / draws


def lemma_2(draws: int, kind: Probes, d: int = D, k: int = K) -> tuple[float, float]:
    """Return sums over coordinates of the de-biased and of the raw second moment, over the true one."""
    rng = np.random.default_rng(32)
    basis = np.linalg.qr(rng.standard_normal((d, 5)))[0]
    sketch = Sketch.from_space(LearnedSpace(basis, np.ones(5), 10), k, 7, kind)
    z, sd = rng.standard_normal(k), 0.8
    truth, variance = float(((sketch.matrix @ z) ** 2).sum()), sd**2 * sketch.noise_diagonal
    clean = raw = 0.0
    for _ in range(draws):
        estimate = sketch.matrix @ (z + sd * rng.standard_normal(k))
        clean += float(debiased_square(estimate, variance).sum())
        raw += float((estimate**2).sum())
    return clean / draws / truth, raw / draws / truth


def released_sums(d: int, k: int, rows: int = 200) -> tuple[GlmSums, np.ndarray]:
    """Return a logistic model over the package's own server, and a basis that holds all of its scores."""
    rng = np.random.default_rng(33)
    basis = np.linalg.qr(rng.standard_normal((d, k)))[0]
    X = 0.4 * rng.standard_normal((rows, k)) @ basis.T
    assert np.abs(X).max() < 1.0
    y = rng.integers(0, 2, rows).astype(float)
    design = Design.from_arrays([f"x{j}" for j in range(d)], bounds=[(-1, 1)] * d, y_bounds=(0, 1))
    policy = SitePolicy(trusted_server=True, simulation=True)
    federation = InProcessFederation({"site1": Site((y, X), design, policy=policy)})
    server = TrustedServer(federation, ledger=Ledger(), rng=34)
    model = {"family": "binomial", "radius": math.sqrt(d)}
    return GlmSums(server=server, model=model, n=rows, p=d, low=-np.ones(d), high=np.ones(d)), basis


def known_span(releases: int, d: int = D, k: int = K) -> float:
    """Return the squared error of released gradients with the true span given, over that in full dimension."""
    sums, basis = released_sums(d, k)
    theta, settings = np.zeros(d), {"clip": 10.0, "batches": 1, "batch": 0, "seed": 0}
    truth = sums.batch(theta, math.inf, **settings)[0]
    full = sketched = 0.0
    for _ in range(releases):
        full += float(((sums.batch(theta, 1.0, **settings)[0] - truth) ** 2).sum())
        inside = basis @ sums.batch(theta, 1.0, **settings, basis=basis)[0]
        sketched += float(((inside - truth) ** 2).sum())
    return sketched / full


def noise(scale: float) -> None:
    """Write the table of Lemmas 3.1 and 3.2."""
    started, draws = time.time(), max(50, round(4000 * scale))
    full, sketched = lemma_1(draws)
    releases = max(20, round(2000 * scale))
    found = [
        ("Lemma 3.1: noise in full dimension / (sigma^2 d)", full / D, draws),
        ("Lemma 3.1: noise in a known k-dimensional space / (sigma^2 k)", sketched / K, draws),
        (
            "released gradients, true span given / full dimension, over k/d",
            known_span(releases) * D / K,
            releases,
        ),
    ]
    for kind, title in (("unbiased", "unbiased probes"), ("orthonormal", "orthonormal probes")):
        clean, raw = lemma_2(draws, kind)
        found.append((f"Lemma 3.2: second moment, de-biased / true, summed, {title}", clean, draws))
        found.append((f"Lemma 3.2: the same without the correction, {title}", raw, draws))
    rows = [
        {
            "what": what,
            "ratio": ratio,
            "draws": n,
            "within 2%": "no: as it must" if "without" in what else bool(abs(ratio - 1.0) <= 0.02),
        }
        for what, ratio, n in found
    ]
    write_table(
        RESULTS / "dome_noise.md",
        "Noise of gradients in a sketch",
        "benchmarks/verify_dome.py --only noise",
        rows,
        time.time() - started,
        f"d = {D:,}, k = {K}. Released gradients: FederatedGLM's own statistic and server.",
    )


# ---- learned sketches


@dataclass(frozen=True)
class Learning:
    """One sequence of noisy gradients and a sketch that follows it.

    Attributes
    ----------
    sequence : str
        "new": every gradient is new in the span; "slow": a correlation of .99 from round to round.
    most : int
        Largest number of learned directions.
    start : str
        "cold": nothing learned; "warm": the true span, as if learned in the rounds before.
    probes : str
    ratio : float
        Energy of the noise in full dimension over that of the gradient.
    update : str
        "SVD": the exact eigenvectors of the updated matrix; "QR": the paper's single step.
    """

    sequence: str
    most: int
    start: str
    probes: Probes
    ratio: float
    update: str = "SVD"


STARTS = ("cold", "warm")
LEARNINGS = [
    Learning(*given)
    for given in (
        *product(("new",), (RANK,), STARTS, ("orthonormal",), RATIOS),
        *product(("slow",), (RANK,), STARTS, ("orthonormal",), RATIOS),
        *product(("new",), (RANK, 5), STARTS, ("unbiased",), RATIOS[::2]),
        *product(("new", "slow"), (RANK,), STARTS, ("orthonormal",), RATIOS, ("QR",)),
    )
]


def gradients(sequence: str, rng: np.random.Generator) -> Callable[[], np.ndarray]:
    """Return a source of coordinates in the span, of expected squared length 1."""
    kept = {"new": 0.0, "slow": 0.99}[sequence]
    state = rng.standard_normal(RANK) / math.sqrt(RANK)

    def following() -> np.ndarray:
        nonlocal state
        new = rng.standard_normal(RANK) / math.sqrt(RANK)
        state = kept * state + math.sqrt(1.0 - kept**2) * new
        return state

    return following


def learn(cell: Learning, d: int = D, k: int = K, rounds: int = ROUNDS, seed: int = 0) -> dict[str, float]:
    """Return shares missed and error ratio over the last rounds."""
    rng, started = np.random.default_rng([35, seed]), time.process_time()
    span = np.linalg.qr(rng.standard_normal((d, RANK)))[0]
    sd, following = math.sqrt(cell.ratio / d), gradients(cell.sequence, rng)
    space = LearnedSpace.empty(d)
    if cell.start == "warm":
        # The mean outer product of `rounds` gradients, as far as it is kept.
        space = LearnedSpace(span[:, : cell.most], np.full(cell.most, 1.0 / RANK), rounds)
    sums = dict.fromkeys(("energy", "learned", "missed", "error", "noise", "directions"), 0.0)
    for number in range(rounds):
        h = span @ following()
        sketch = Sketch.from_space(space, k, 10_000 * seed + number, cell.probes)
        estimate = sketch.matrix @ (sketch.matrix.T @ h + sd * rng.standard_normal(k))
        if number >= rounds - MEASURED:
            inside = space.basis.T @ h
            unit = sketch.matrix / np.linalg.norm(sketch.matrix, axis=0)
            sums["energy"] += float(h @ h)
            sums["learned"] += float(h @ h - inside @ inside)
            sums["missed"] += float(h @ h - ((unit.T @ h) ** 2).sum())
            sums["error"] += float(((estimate - h) ** 2).sum())
            sums["noise"] += sd**2 * float(sketch.noise_diagonal.sum())
            sums["directions"] += space.basis.shape[1]
        energy = 0.99 if cell.most == RANK else 0.9
        if cell.update == "QR":
            space = qr_update(space, estimate, cell.most, energy)
        else:
            space = space.track(estimate, limit=cell.most, energy=energy)
    noise_energy, directions = MEASURED * sd**2 * d, sums["directions"] / MEASURED
    return {
        "learned directions": directions,
        "missed by them": sums["learned"] / sums["energy"],
        "missed by the sketch": sums["missed"] / sums["energy"],
        "error / noise in full dimension": sums["error"] / noise_energy,
        "noise / noise in full dimension": sums["noise"] / noise_energy,
        "error / gradient": sums["error"] / sums["energy"],
        "floats up": k,
        "floats down": round(d * (1 + directions)),
        "seconds": time.process_time() - started,
    }


def learned(scale: float) -> None:
    """Write the table of learned sketches; no threshold."""
    rounds = max(MEASURED + 20, round(ROUNDS * scale))
    path = LEARNED if scale >= 1.0 else Path(LEARNED).with_name("dome_learned_small.csv")
    rows = pd.read_csv(path).to_dict("records") if path.exists() else []
    for cell in LEARNINGS[len(rows) :]:
        told = {
            "gradients": cell.sequence,
            "learned at most": cell.most,
            "start": cell.start,
            "probes": cell.probes,
            "update": cell.update,
        }
        rows.append({**told, "noise / gradient": cell.ratio, **learn(cell, rounds=rounds)})
        pd.DataFrame(rows).to_csv(path, index=False, float_format="%.6g")
    table = pd.read_csv(path)
    write_table(
        path.with_suffix(".md"),
        "What a learned sketch misses",
        "benchmarks/verify_dome.py --only learned",
        table.drop(columns="seconds"),
        table["seconds"].sum(),
        f"Gradients in a fixed {RANK}-dimensional space of d = {D:,}, k = {K} numbers up a round, {rounds} rounds, means over the last "
        f"{MEASURED}. Energies: squared lengths; noise in full dimension against gradient. `warm` starts from the true span (its first "
        "5 directions where 5 are kept). A sketch that held the span would miss 0 and have an error ratio of k/d = .02. Update: the "
        "exact eigenvectors of the updated matrix (SVD), or the single QR step that the paper names.",
    )
