"""A plugin of pytest: statsmodels' own tests with OLS, WLS, GLM, Logit and Poisson by ours.

`run` runs modules of them in this process and returns what every test asked of our results; statsmodels is
as it was afterwards. One module's failures are shown by
``pytest -p support.statsmodels_swap --pyargs statsmodels.base.tests.test_predict``.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import pytest

from support import statsmodels_models as models

MODULES = (
    "base.tests.test_generic_methods",
    "base.tests.test_shrink_pickle",
    "base.tests.test_predict",
    "base.tests.test_polars_compat",
    "regression.tests.test_regression",
    "regression.tests.test_predict",
    "stats.tests.test_contrast",
    "stats.tests.test_deltacov",
    "iolib.tests.test_summary",
    "iolib.tests.test_summary2",
    "formula.tests.test_formula",
)
PLACES = (
    "statsmodels.api",
    "statsmodels.genmod.api",
    "statsmodels.regression.linear_model",
    "statsmodels.genmod.generalized_linear_model",
    "statsmodels.discrete.discrete_model",
)
EVENTS: dict[str, list[models.Event]] = {}
OUTCOMES: dict[str, tuple[str, str]] = {}
REPLACED: list[tuple[Any, str, Any]] = []


def run(modules: Sequence[str] = MODULES) -> dict[str, dict[str, Any]]:
    """Run modules of statsmodels' tests and return each one's outcome and events, by its name."""
    EVENTS.clear()
    OUTCOMES.clear()
    words = ["-q", "--tb=no", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", "/", "-W", "ignore"]
    names = [f"statsmodels.{module}" for module in modules]
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main([*words, "--pyargs", *names], plugins=[sys.modules[__name__]])
    return collected()


def pytest_configure(config: pytest.Config) -> None:
    """Put our models where statsmodels' tests import them from."""
    formulas = import_module("statsmodels.formula.api")
    for name, (original, ours) in models.MODELS.items():
        for place in map(import_module, PLACES):
            if getattr(place, name, None) is original:
                _replace(place, name, ours)
        _replace(formulas, name.lower(), ours.from_formula)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Put statsmodels' own models back."""
    while REPLACED:
        setattr(*REPLACED.pop())


def _replace(place: Any, name: str, ours: Any) -> None:
    REPLACED.append((place, name, getattr(place, name)))
    setattr(place, name, ours)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Any:
    """Note what fixtures, those of a class among them, asked for."""
    found = yield
    _gather(_name(request.node.nodeid))
    return found


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Note a test's outcome, and what it asked for."""
    report = yield
    name = _name(item.nodeid)
    _gather(name)
    if OUTCOMES.setdefault(name, ("passed", ""))[0] == "passed" != report.outcome:
        crash = "" if call.excinfo is None else f"{call.excinfo.typename}: {call.excinfo.value}"
        OUTCOMES[name] = report.outcome, " ".join(crash.split())
    return report


def _name(nodeid: str) -> str:
    """Return ``base.tests.test_predict::TestPredictOLS::test_1d`` for a test of statsmodels."""
    path, *rest = nodeid.split("::")
    module = path.removesuffix(".py").rpartition("statsmodels/")[2].replace("/", ".")
    return "::".join([module, *rest])


def _gather(name: str) -> None:
    EVENTS.setdefault(name, []).extend(models.LOG)
    models.LOG.clear()


def collected() -> dict[str, dict[str, Any]]:
    """Return every test's outcome and events, those of its class and module among them."""
    found = {}
    for name, (outcome, message) in OUTCOMES.items():
        scopes = [some for scope, some in EVENTS.items() if name == scope or name.startswith(f"{scope}::")]
        events = dict.fromkeys(event for some in scopes for event in some)
        found[name] = {"outcome": outcome, "message": message, "events": list(events)}
    return found
