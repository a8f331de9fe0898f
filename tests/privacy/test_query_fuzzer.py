"""The query fuzzer, reduced: nothing free of charge differs between neighbours; and it can find what does."""

import json
import warnings

import numpy as np
import pytest
import query_fuzzer
from query_fuzzer import STATISTICS, Pair, fuzz

import privinf as pi
from privinf.errors import PrivinfError, SchemaError
from privinf.federation import Query, Site
from privinf.federation.site_designs import SiteDesigns
from privinf.mechanisms.catalogue import SITE_OPS
from privinf.mechanisms.statistics.ops import SiteOp
from privinf.schema import expressions

# Recording the fits takes seconds, and every test here needs them.
pytestmark = pytest.mark.audit


@pytest.fixture(scope="module", autouse=True)
def one_corpus():
    """Record the fits once."""
    kept, honest = query_fuzzer.corpus(), query_fuzzer.corpus
    query_fuzzer.corpus = lambda: kept
    yield kept
    query_fuzzer.corpus = honest


def test_the_corpus_has_every_statistic(one_corpus):
    asked = {json.loads(text)["op"] for text, _ in one_corpus}
    assert set(SITE_OPS) | {"describe", "design"} <= asked
    assert {bool(json.loads(text).get("masking")) for text, _ in one_corpus} == {True, False}


def test_nothing_free_of_charge_differs():
    found = fuzz(1700, 20261122)
    assert not found, (found.different[:3], found.foreign[:3], found.slow[:3])
    assert found.charged > 200
    assert found.designs > 60
    assert {"ArgumentError", "SchemaError", "NotAvailableError", "SensitivityError", ""} <= set(found.refused)


@pytest.mark.parametrize("policy", ["server", "secure", "closed"])
def test_other_policies(policy):
    found = fuzz(600, 2, policy=policy)
    assert not found, (found.different[:3], found.foreign[:3], found.slow[:3])
    assert (found.charged > 0) == (policy != "closed")


def test_behind_a_daemon(tmp_path):
    found = fuzz(250, 2, folder=tmp_path)
    assert not found, (found.different[:3], found.foreign[:3], found.slow[:3])
    assert found.charged > 20


# ---- mutants


def evaluated_at_once(monkeypatch):
    """A design is computed on the rows when it comes, and tells where it is not finite: as it was."""
    honest = SiteDesigns.design_of

    def read(self, content):
        for column in content["columns"] if isinstance(content, dict) else ():
            for piece in column["pieces"]:
                if "expression" in piece:
                    values = expressions.values(piece["expression"], self._opened._reader.number)
                    if not np.isfinite(values).all():
                        raise SchemaError(f"{column['name']!r} is not finite in some rows")
        return honest(self, content)

    monkeypatch.setattr(SiteDesigns, "design_of", read)


def failing_on_rows(monkeypatch):
    """A statistic refuses rows that are large."""
    honest = SiteOp.total

    def total(self, rows, args):
        if rows.features.size and np.abs(rows.response).max() > 1e300:
            raise SchemaError("the sum is too large")
        return honest(self, rows, args)

    monkeypatch.setattr(SiteOp, "total", total)


def counting(monkeypatch):
    """A description says how many responses were clipped."""
    honest = Site.description

    def description(self):
        frame = self._designs._opened._reader._frame
        return honest(self) | {"clipped": int((frame.y > 10.0).sum() + (frame.y < 0.0).sum())}

    monkeypatch.setattr(Site, "description", description)


def warning(monkeypatch):
    """Sums overflow with a warning."""
    honest = SiteOp.total

    def total(self, rows, args):
        if np.abs(rows.response).max() > 1e300:
            warnings.warn("overflow encountered in multiply", RuntimeWarning, stacklevel=2)
        return honest(self, rows, args)

    monkeypatch.setattr(SiteOp, "total", total)


def unchecked(monkeypatch):
    """Arguments are checked when rows are read, and what they raise is not foreseen."""

    def checked(self, args, public, rows, **_):
        return self.sensitivity(args, public.features.shape[1])

    monkeypatch.setattr(SiteOp, "checked", checked)


MUTANTS = [evaluated_at_once, failing_on_rows, counting, warning, unchecked]


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_found(mutant, monkeypatch):
    mutant(monkeypatch)
    found = fuzz(600, 4)
    assert found


# ---- totality


HUGE = (1e308, -1e308, 5e-324, -0.0, 1.0)
SIZES = {"as they are": 1.0, "large": 1e28, "small": 1e-28}


def scaled(value, size):
    """Return an argument with its real numbers scaled."""
    if isinstance(value, float):
        return value * size
    array = np.asarray(value)
    return array * size if array.dtype.kind == "f" and not isinstance(value, str) else value


@pytest.mark.parametrize("op", STATISTICS)
def test_no_row_makes_a_statistic_fail_warn_or_leave_the_finite(op):
    names, rng, answered = [f"x{j}" for j in range(5)], np.random.default_rng(1), 0
    for design in (
        pi.Design.from_arrays(names, radius=1.0, y_bounds=(-8e307, 8e307)),
        pi.Design.from_arrays(names, bounds=[(-1e307, 1e307)] * 5, y_bounds=(-1e307, 1.0)),
    ):
        site = Site((rng.choice(HUGE, 80), rng.choice(HUGE, (80, 5))), design)
        for size in SIZES.values():
            for bits in (0, 40):
                args = {name: scaled(value, size) for name, value in STATISTICS[op].items()} | {"bits": bits}
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    args = Query(op, args=args).args
                    try:
                        record_sensitivity = SITE_OPS[op].checked(
                            args, site._designs.public(design.digest), len(site)
                        )
                    except PrivinfError:
                        continue
                    found = SITE_OPS[op].total(site._placed("north"), args)
                assert np.isfinite(found).all()
                assert np.abs(found).max() <= record_sensitivity.bound * 80 * (1 + 1e-9)
                answered += 1
    assert answered >= 4


def test_the_pair_is_one_of_neighbours():
    pair = Pair(query_fuzzer.POLICIES["open"])
    one, other = (site._designs._opened._reader._frame for site in pair.sites)
    assert [site.defects for site in pair.sites] == [{}, {}]
    assert (one != other).any(axis=1).sum() == 1
