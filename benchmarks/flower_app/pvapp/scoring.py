"""A regression by scoring: one noisy matrix, then noisy scores, each at the estimate before it."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from privinf.accounting import compose
from privinf.federation import Federation, SecureServer, TrustedServer
from privinf.noise import SimulationNoise
from privinf.schema import Design, Schema

SCHEMA = Schema({"y": (-3.0, 3.0), "x1": (-1.0, 1.0), "x2": (-1.0, 1.0)})
FORMULA = "y ~ x1 + x2"
MU, ROUNDS = 0.4, 5
COLUMNS = [0, 1, 2]


def fit(federation: Federation, config: dict[str, Any]) -> None:
    """Fit, and write every step to the file that the configuration names."""
    design = Design.from_formula(FORMULA, SCHEMA)
    started, steps = time.time(), []
    if config["trust"] == "secure-sum":
        server = SecureServer(federation, design=design, missing="continue")
    else:
        server = TrustedServer(federation, design=design, noise=SimulationNoise(0))

    def told(what: str, values: np.ndarray, sites: tuple[str, ...]) -> None:
        steps.append({"what": what, "values": values.tolist(), "sites": sites, "at": time.time() - started})
        record = {"steps": steps, "mu": compose([entry.loss for entry in server.ledger.entries]).mu}
        draft = Path(config["out"] + ".tmp")
        draft.write_text(json.dumps(record | {"releases": len(server.ledger)}))
        os.replace(draft, config["out"])

    gram = server.gram({"columns": COLUMNS, "bound": 1.0}, mu=MU, label="gram")
    told("gram", gram.mean, gram.sites)
    beta = np.zeros(len(COLUMNS))
    for step in range(ROUNDS):
        score = server.vector_sum(
            "clipped_score",
            {"support": COLUMNS, "beta": beta, "columns": COLUMNS, "clip": 3.0**0.5, "residual_clip": 3.0},
            mu=MU,
            label=f"score {step}",
        )
        beta = beta + np.linalg.solve(gram.mean, score.mean)
        told(f"score {step}", beta, score.sites)
