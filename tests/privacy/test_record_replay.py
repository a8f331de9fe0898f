"""Record and replay of every model: a neighbour with the same releases shows the same, and costs no more."""

import warnings

import numpy as np
import pandas as pd
import pytest
from record_replay import Tape, audit, observe, pick_losses
from replay_fits import ASKED, FITS, LONG, PAIRS, WHERE, allowed, run_of

import privinf as pi
from privinf.accounting import Ledger
from privinf.errors import PrivinfWarning, SchemaError, SensitivityError
from privinf.mechanisms import gaussian, moments
from privinf.mechanisms import selection as noisy_top_k
from privinf.mechanisms.local.responses import RandomizedResponse
from privinf.mechanisms.rows import encode
from privinf.noise import LatticeNoise
from privinf.schema import Design

EVERY = [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in FITS]


def test_there_are_fits_enough():
    assert len(FITS) >= 100
    assert len(FITS.keys() - LONG) >= 40
    assert {name.split()[0].rstrip(",") for name in FITS} >= {
        "MomentOLS",
        "ModulatedOLS",
        "IWPGLM",
        "RMGMOLS",
        "DGMOLS",
        "BGMOLS",
        "FederatedGLM",
        "DebiasedLasso",
        "PHReg",
        "sparse_mean",
        "NoisyTopK",
        "private_max",
        "noisy_scalar",
        "LocalExamples",
    }


@pytest.mark.audit
@pytest.mark.parametrize("name", EVERY)
def test_a_neighbour_shows_the_same_and_costs_no_more(name):
    found = audit(run_of(name), allowed=allowed(name))
    assert found.complaints == []
    assert found.releases > 0
    assert not found.refused
    if name in ASKED:
        epsilon, delta = ASKED[name]
        assert found.ledger.total().epsilon(delta) <= epsilon * (1.0 + 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("pair", list(PAIRS)[1:])
@pytest.mark.parametrize("name", FITS)
def test_other_neighbours(name, pair):
    assert audit(run_of(name, pair), allowed=allowed(name)).complaints == []


@pytest.mark.audit
def test_the_pairs_spend_what_lines_state():
    """A pair that moved nothing would let everything pass."""
    names = ["ModulatedOLS one-shot", "DGMOLS", "NoisyTopK, Laplace", "MomentOLS central, public columns"]
    for name in names:
        assert audit(run_of(name)).share > 0.99, name


def test_much_is_looked_at():
    with Tape().running():
        assert len(observe(run_of("MomentOLS central, HC0"), 0).values) > 300


# ---- what the audit must see


def changed(name, place, attribute, value):
    """Return the audit of a fit with one thing broken."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, attribute, value)
        return audit(run_of(name))


def test_a_warning_that_looks_at_rows_is_seen():
    original = moments.RowPasses

    def talkative(design, rows, *given, **more):
        encoded = encode(design, rows)
        if np.abs(encoded.private).max() < 0.999 or encoded.response.min() < -0.999:
            warnings.warn("some response is at its lower bound", PrivinfWarning, stacklevel=2)
        return original(design, rows, *given, **more)

    found = changed("MomentOLS central", moments, "RowPasses", talkative)
    assert [text for text in found.differences if text.startswith("warnings")]


def test_an_error_that_looks_at_rows_is_seen():
    original = moments.RowPasses

    def strict(design, rows, *given, **more):
        if rows.features["a"].min() < -1.0:
            raise SchemaError("column 'a' is outside its bounds")
        return original(design, rows, *given, **more)

    assert changed("MomentOLS central", moments, "RowPasses", strict).differences


def test_an_error_that_is_none_of_the_tree_is_seen():
    assert audit(lambda world, ledger: [][world]).differences


def test_a_member_computed_from_rows_is_seen():
    class Curious(pi.MomentOLS):
        def fit(self, **how):
            fit = super().fit(**how)
            fit.__dict__["largest"] = float(np.clip(self._rows.features["y"], -4, 6).max())
            return fit

    found = changed("MomentOLS central", pi, "MomentOLS", Curious)
    assert any(path.endswith(".largest") for path in found.differences)


def test_a_release_without_noise_is_seen():
    def bare(sums, scale, source):
        return sums.floats()

    found = changed("MomentOLS central", moments, "noisy_total", bare)
    assert any("moments" in path for path in found.differences)


def test_a_line_for_which_nothing_is_drawn_is_seen():
    first = []

    def constant(sums, scale, source):
        first.append(sums.floats())
        return first[0]

    found = changed("MomentOLS central", moments, "noisy_total", constant)
    assert any("nothing was drawn" in text for text in found.overspent)


def test_a_release_that_no_line_charges_is_seen():
    spend = Ledger.spend

    def forgetful(self, *entries):
        return spend(self, *(entry for entry in entries if not entry.label.startswith("residual")))

    found = changed("MomentOLS central, HC0", Ledger, "spend", forgetful)
    assert any("in no ledger line" in text for text in found.overspent)


class Weak:
    """Noise of half the scale that it is asked for; what its callers tell sources is what is watched."""

    def __init__(self, source):
        self.source = source

    def __getattr__(self, name):
        return getattr(self.source, name)

    def perturb(self, values, scale):
        return self.source.perturb(values, scale / 2.0)

    def gumbel(self, scale, size):
        return self.source.gumbel(scale / 2.0, size)

    def bernoulli(self, p, size):
        return self.source.bernoulli(p / 2.0, size)


@pytest.mark.audit
@pytest.mark.parametrize("name", ["RMGMOLS signs", "ModulatedOLS one-shot", "MomentOLS local"])
def test_too_little_noise_is_seen(name):
    found = changed(name, gaussian, "get_source", lambda *given, **named: Weak(LatticeNoise()))
    assert any("in no ledger line" in text for text in found.overspent)


def test_too_little_noise_of_picks_is_seen():
    peel = noisy_top_k._peel
    found = changed(
        "NoisyTopK, Gumbel", noisy_top_k, "_peel", lambda scores, how, source: peel(scores, how, Weak(source))
    )
    assert any("in no ledger line" in text for text in found.overspent)


def test_a_response_that_lies_too_rarely_is_seen():
    respond = RandomizedResponse.respond
    found = changed(
        "sparse_mean",
        RandomizedResponse,
        "respond",
        lambda self, codes, source, lies=None: respond(self, codes, Weak(source)),
    )
    assert any("in no ledger line" in text for text in found.overspent)


@pytest.mark.parametrize(
    ("name", "place", "attribute"),
    [
        ("DGMOLS", Design, "diameter"),
        ("ModulatedOLS one-shot", Design, "diameter"),
        ("IWPGLM counts", Design, "y_diameter"),
    ],
)
def test_half_a_sensitivity_is_seen(name, place, attribute):
    original = getattr(place, attribute).fget
    found = changed(name, place, attribute, property(lambda self: 0.5 * original(self)))
    assert any("of what it states" in text for text in found.overspent)


def test_the_picks_of_a_pair_cost_their_range():
    first, second = np.array([[0.0, 1.0, -np.inf]]), np.array([[1.0, 0.0, -np.inf]])
    assert pick_losses(first, second, np.array([[1]]), 2.0) == [1.0]
    assert pick_losses(first, second, np.array([[1, 0]]), 2.0) == [1.0, 0.0]


def test_a_machine_of_huge_rows_warns_of_nothing():
    """numpy warned when a machine's mean passed the largest double: a function of its rows."""
    found = audit(run_of("sparse_mean"))
    assert found.differences == []


@pytest.mark.parametrize("size", [0.0, 1e7, 1e8, 1e20, 1e307])
def test_records_at_distance_one_may_be_of_any_size(size):
    """A record beyond the end of the noise's grid stopped the release, after the charge."""
    X = np.zeros((40, 2))
    X[WHERE] = size
    model = pi.ModulatedOLS(np.zeros(40), X, adjacency="unit", y_bounds=(-1, 1))
    assert np.isfinite(model.release(mu=1.0).arrays["features"]).all()


TINY = pi.Schema({"y": (-1.0, 1.0), "a": (-1.0, 1.0)})
ENTRY_POINTS = {
    "rows": lambda: pi.GaussianRows(TINY),
    "mixture": lambda: pi.RandomMixing(TINY, k=4),
    "modulated": lambda: pi.Modulation(TINY, "y ~ a"),
    "moments": lambda: pi.Moments(TINY, "y ~ a", trust="local"),
    "examples": lambda: pi.LocalExamples(TINY, "y ~ a"),
}


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_too_little_noise_for_the_grid_is_refused_whatever_the_rows(name):
    """Tables of zeros passed, others did not, and had paid."""
    said = set()
    for far in (0.0, 1.0):
        frame = pd.DataFrame({"a": np.zeros(40), "y": np.zeros(40)})
        frame.loc[WHERE] = far
        ledger = Ledger()
        much = {"epsilon_x": 1e18, "epsilon_y": 1e18, "delta": 0.1} if name == "examples" else {"mu": 1e9}
        with pytest.raises(SensitivityError, match="represented exactly") as caught:
            ENTRY_POINTS[name]().release(frame, ledger=ledger, **much)
        said.add((str(caught.value), len(ledger)))
    assert len(said) == 1
    assert said.pop()[1] == 0
