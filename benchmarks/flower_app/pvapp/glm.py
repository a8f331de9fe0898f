"""A generalised linear model of the sites' tables, with what went to and fro counted."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import privinf as pi
from privinf.federation import Federation, Query, Reply


class Counted:
    """A federation of which every question is timed and weighed: seconds, bytes to and from one site."""

    def __init__(self, federation: Federation) -> None:
        self._federation = federation
        self.steps: list[dict[str, Any]] = []

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites."""
        return self._federation.sites

    def ask(self, query: Query, sites: Sequence[str] | None = None) -> list[Reply]:
        """Ask, and write down what it took."""
        started = time.perf_counter()
        replies = self._federation.ask(query, sites)
        self.steps.append(
            {
                "op": query.op,
                "seconds": time.perf_counter() - started,
                "down": _weight(query.pack()),
                "up": max((_weight(reply.pack()) for reply in replies), default=0),
            }
        )
        return replies


def _weight(message: Any) -> int:
    text, arrays = message
    return len(text.encode()) + sum(array.nbytes for array in arrays.values())


def _object(path: str) -> Any:
    try:
        return json.loads(Path(path).read_text())
    except OSError:
        raise pi.errors.StorageError(
            f"the server cannot read the file {path!r}, which the run's configuration names; check its path"
        ) from None
    except ValueError:
        raise pi.errors.StorageError(f"the file {path!r} on the server does not contain valid JSON") from None


def fit(federation: Federation, config: dict[str, Any]) -> None:
    """Fit, and write coefficients, standard errors and steps to the file that the configuration names."""
    counted = Counted(federation)
    try:
        schema = pi.Schema.from_dict(_object(config["schema"]))
        model = pi.FederatedGLM.from_formula(
            config["formula"], counted, schema=schema, family=config["family"], trust=config["trust"]
        )
        found = model.fit(
            epsilon=config["epsilon"],
            delta=config["delta"],
            max_colluding=config["max_colluding"],
            checkpoint=config["checkpoint"] or None,
            rng=config["seed"] if config["seed"] >= 0 else None,
        )
        record = {
            "names": list(found.names),
            "params": found.params.tolist(),
            "bse": found.bse.tolist(),
            "mu": found.privacy.mu,
            "epsilon": found.privacy.epsilon(),
        }
    except pi.errors.PrivinfError as problem:
        record = {"error": f"{type(problem).__name__}: {problem}"}
    draft = Path(config["out"] + ".tmp")
    draft.write_text(json.dumps(record | {"steps": counted.steps}))
    os.replace(draft, config["out"])
