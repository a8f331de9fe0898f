"""What a run does at the server: the analysis that its configuration names."""

from __future__ import annotations

from typing import Any

from privinf.cli.federated_fits import fit_over_flower, told_problem
from privinf.errors import PrivinfError
from privinf.federation import Federation
from pvapp import glm, scoring

ANALYSES = {"glm": glm.fit, "scoring": scoring.fit, "plan": fit_over_flower}


def fit(federation: Federation, config: dict[str, Any]) -> None:
    """Run it."""
    ANALYSES[config["analysis"]](federation, config)


def failed(problem: PrivinfError, config: dict[str, Any]) -> None:
    """Write why a run has no results."""
    told_problem(problem, config | {"told": config["told"] or config["out"]})
