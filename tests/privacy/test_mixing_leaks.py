"""Party releases: ledger lines against the noise drawn, sensitivities, raw values, input that costs 0."""

import math
import os
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from support.instrument import RecordingNoise
from support.leaks import find_raw_values

import privinf as pi
from privinf.errors import (
    AlignmentError,
    ArgumentError,
    BudgetExceededError,
    PrivinfError,
    SchemaError,
    StorageError,
)
from privinf.mechanisms import gaussian
from privinf.noise import LatticeNoise
from studies.audit import search_sensitivity

KINDS = ["signs", "hadamard", "countsketch", "rows"]
CLINIC = pi.Schema({"a": (-1.0, 1.0), "b": (0.0, 3.0), "g": ["u", "v", "w"]})
LAB = pi.Schema({"c": (-2.0, 1.0), "y": (-2.0, 2.0)})
N, K = 60, 32


def clinic_rows(n=N, seed=11):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {"a": rng.uniform(-1, 1, n), "b": rng.uniform(0, 3, n), "g": rng.choice(list("uvw"), n)}
    )


def lab_rows(n=N, seed=12):
    rng = np.random.default_rng(seed)
    return pd.DataFrame({"c": rng.uniform(-2, 1, n), "y": rng.uniform(-2, 2, n)})


def plan_of(mixing="signs", **options):
    parties = {"clinic": pi.PartyPlan(CLINIC, mu=0.8), "lab": pi.PartyPlan(LAB, mu=1.1)}
    method = {"method": "gaussian-rows"} if mixing == "rows" else {"kind": mixing, "k": K}
    return pi.MixingPlan.new(**{"parties": parties, "n": N, **method, **options})


@pytest.fixture
def recorder(monkeypatch):
    """Every noise source of this test, as one that writes down what it is asked for."""
    recording = RecordingNoise(LatticeNoise())
    monkeypatch.setattr(gaussian, "get_source", lambda rng, source: recording)
    return recording


# ---- ledger against the noise that was really drawn


@pytest.mark.parametrize("diameter", ["own", "largest"])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_ledger_is_what_the_raw_noise_calls_say(kind, intercept, diameter, recorder):
    plan, ledger = plan_of(kind, intercept=intercept, diameter=diameter), pi.Ledger()
    reach = {"clinic": math.sqrt(10.0 if intercept else 7.0), "lab": math.sqrt(8.0 if intercept else 6.25)}
    total = 0.0
    for party, rows, width in (("clinic", clinic_rows(), 4), ("lab", lab_rows(), 2)):
        recorder.calls.clear()
        release = plan.release(party, rows, ledger=ledger)
        shapes = [(N, width)] if kind == "rows" else [(K, width)] + [(width,)] * intercept
        assert sorted(call.shape for call in recorder.of("perturb")) == sorted(shapes)
        assert {call.kind for call in recorder.calls} <= {"perturb", "gaussian_steps"}
        (scale,) = {call.scale for call in recorder.of("perturb")}
        assert scale == release.noise_model["scale"]
        (entry,) = release.entries
        spent = reach[party] / scale
        assert entry.party == party
        # the line also pays for the grid: never below the raw calls, and barely above
        assert spent <= entry.loss.mu * (1 + 1e-12)
        assert spent == pytest.approx(entry.loss.mu, rel=2e-4)
        wanted = {"clinic": 0.8, "lab": 1.1}[party]
        if diameter == "own":
            assert entry.loss.mu == pytest.approx(wanted)
        else:
            assert entry.loss.mu == pytest.approx(wanted * reach[party] / max(reach.values()))
        total += entry.loss.mu**2
    assert sum(entry.loss.mu**2 for entry in ledger.entries) == pytest.approx(total)


@pytest.mark.parametrize("cls", [pi.RMGMOLS, pi.DGMOLS])
def test_a_model_charges_every_party_and_reports_a_person(cls, recorder):
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (400, 3)), rng.uniform(-1, 1, 400)
    parties = {"one": [0, 1], "two": [2], "three": ["y"]}
    model = cls(y, X, parties=parties, bounds=[(-1, 1)] * 3, y_bounds=(-1, 1), intercept=False)
    privacy = model.fit(mu=0.6).privacy
    diameters = {2: 2.0 * math.sqrt(2.0), 1: 2.0}
    spent = [(diameters[call.shape[1]] / call.scale) ** 2 for call in recorder.of("perturb")]
    assert len(spent) == 3
    assert privacy.mu == pytest.approx(math.sqrt(sum(spent)), rel=2e-4)
    assert privacy.mu == pytest.approx(0.6 * math.sqrt(3.0))
    assert list(privacy.parties.mu) == pytest.approx([0.6] * 3)


# ---- the declared sensitivity is never exceeded, whatever the records


@pytest.mark.parametrize("share", [0.3, None])
@pytest.mark.parametrize("kind", KINDS)
def test_no_pair_of_records_moves_a_release_further_than_declared(kind, share):
    n, intercept = 8, share is not None
    if kind == "rows":
        mechanism = pi.GaussianRows(CLINIC, n=n, intercept=intercept)
    else:
        mechanism = pi.RandomMixing(CLINIC, k=6, kind=kind, n=n, intercept=intercept, share=share)

    def statistic(records):
        frame = pd.DataFrame(records[:, :2], columns=["a", "b"])
        frame["g"] = np.array(["u", "v", "w"])[records[:, 2].astype(int)]
        arrays = mechanism.release(frame, epsilon=math.inf).arrays
        return np.concatenate([np.ravel(arrays[name]) for name in sorted(arrays) if name != "ones"])

    rng = np.random.default_rng(0)
    corners = np.array([[a, b, g] for a in (-1, 1, 500.0, -70.0) for b in (0, 3, 9.0) for g in range(3)])
    inside = np.column_stack([rng.uniform(-3, 5, 20), rng.uniform(-1, 4, 20), rng.integers(0, 3, 20)])
    found = search_sensitivity(statistic, np.tile([[0.5, 0.5, 1.0]], (n, 1)), np.vstack([corners, inside]))
    assert found.largest == pytest.approx(mechanism.design.diameter, rel=1e-12)


# ---- a fit is a function of what was sent


def model_of(cls, n=600, **options):
    rng = np.random.default_rng(5)
    X = rng.uniform(-1, 1, (n, 3))
    y = np.clip(X @ [0.5, -0.3, 0.2] + 0.1 * rng.standard_normal(n), -1, 1)
    parties = {"one": [0, 1], "two": [2, "y"]}
    return cls(y, X, parties=parties, bounds=[(-1, 1)] * 3, y_bounds=(-1, 1), **options), X, y


FITS = {
    "signs": (pi.RMGMOLS, {"k": 60, "kind": "signs"}, {}),
    "hadamard, sample": (pi.RMGMOLS, {"k": 60, "kind": "hadamard"}, {"target": "sample"}),
    "countsketch, no intercept": (pi.RMGMOLS, {"k": 60, "intercept": False}, {}),
    "plain": (pi.RMGMOLS, {"k": 60}, {"debias": False}),
    "shrunk": (pi.RMGMOLS, {"k": 60}, {"shrink": True}),
    "DGM": (pi.DGMOLS, {"intercept": True}, {}),
    "BGM": (pi.BGMOLS, {}, {}),
}


@pytest.mark.parametrize("name", FITS)
def test_a_fit_sees_the_rows_through_the_releases_only(name):
    """What the model with rows fits is what an analyst fits from its releases, after a pickle."""
    cls, options, how = FITS[name]
    model, _, _ = model_of(cls, **options)
    here = model.fit(mu=8.0, rng=3, **how)
    sent = pickle.loads(pickle.dumps(model.release(mu=8.0, rng=3)))
    there = cls.from_release(sent, label="y").fit(**how)
    np.testing.assert_array_equal(here.params, there.params)
    np.testing.assert_array_equal(here.score_test().statistic, there.score_test().statistic)
    if here.estimate.cov is not None:
        np.testing.assert_array_equal(here.estimate.cov, there.estimate.cov)
    assert here.identification.statistic == there.identification.statistic


@pytest.mark.audit
@pytest.mark.parametrize("secure", [True, False], ids=["secure", "seeded"])
@pytest.mark.parametrize("name", FITS)
def test_results_and_releases_hold_no_raw_value(name, secure):
    cls, options, how = FITS[name]
    model, X, y = model_of(cls, **options)
    noise = {} if secure else {"rng": 0}
    sent = model.release(mu=8.0, **noise)
    result = model.fit(mu=8.0, **how, **noise)
    things = (
        result,
        result.summary().as_text(),
        result.privacy,
        model.plan(mu=8.0),
        *sent.values(),
        pi.join(sent),
        repr(model),
    )
    assert pickle.dumps(things)
    assert find_raw_values(things, [X, y]) == []


def test_releases_in_user_units_of_the_schema_hold_no_raw_value():
    plan = plan_of("countsketch", k=N, intercept=False)
    rows = clinic_rows()
    raw = [rows.a, rows.b, rows.b / 3.0, -rows.a, -rows.b / 3.0]
    assert find_raw_values(plan.release("clinic", rows), raw) == []


@pytest.mark.parametrize("kind", ["rows", "countsketch"])
def test_the_walk_would_have_seen_a_release_without_noise(kind):
    mechanism = (
        pi.GaussianRows(LAB, n=N)
        if kind == "rows"
        else pi.RandomMixing(LAB, k=N, kind=kind, n=N, intercept=False)
    )
    rows = lab_rows()
    release = mechanism.release(rows, epsilon=math.inf)
    assert find_raw_values(release, [rows.y / 2.0, -rows.y / 2.0])


# ---- bad input costs nothing


class Blocks:
    """A table in blocks that may be wrong: the second block is replaced."""

    def __init__(self, rows, second, position):
        self._rows, self._second, self._position = rows, second, position

    def __len__(self):
        return len(self._rows)

    def blocks(self):
        half = len(self._rows) // 2
        yield 0, self._rows.iloc[:half]
        if self._second is None:
            raise StorageError("the file is incomplete; copy it again")
        yield self._position, self._second


def halves(rows, second="same", position=N // 2):
    return Blocks(rows, rows.iloc[N // 2 :] if isinstance(second, str) else second, position)


def spoilt(column, value, row=7):
    rows = clinic_rows().astype({column: object})
    rows.loc[row, column] = value
    return rows


GOOD = clinic_rows()
BAD_ROWS = {
    "one row less": (GOOD.iloc[:-1], AlignmentError),
    "one row more": (pd.concat([GOOD, GOOD.iloc[:1]]), AlignmentError),
    "no rows": (GOOD.iloc[:0], AlignmentError),
    "a column is absent": (GOOD.drop(columns="b"), SchemaError),
    "columns of another party": (lab_rows(), SchemaError),
    "missing value": (spoilt("a", math.nan), SchemaError),
    "infinite value": (spoilt("b", -math.inf), SchemaError),
    "text for a number": (spoilt("a", "secret-4711"), SchemaError),
    "huge integer": (spoilt("a", 10**400), SchemaError),
    "undeclared level": (spoilt("g", "secret-4711"), SchemaError),
    "an array of another width": (np.zeros((N, 2)), ArgumentError),
    "the second block fails": (halves(GOOD, None), StorageError),
    "the second block is bad": (halves(GOOD, spoilt("a", math.nan).iloc[: N // 2]), SchemaError),
    "the second block is short": (halves(GOOD, GOOD.iloc[N // 2 : -1]), AlignmentError),
}


@pytest.mark.parametrize("case", BAD_ROWS)
@pytest.mark.parametrize("kind", KINDS)
def test_bad_rows_cost_nothing(kind, case, recorder):
    rows, error = BAD_ROWS[case]
    ledger = pi.Ledger(pi.Budget(mu=1.0))
    with pytest.raises(error) as caught:
        plan_of(kind).release("clinic", rows, ledger=ledger)
    assert (ledger.entries, recorder.calls) == ((), [])
    assert isinstance(caught.value, PrivinfError)
    told = "".join(str(e) for e in (caught.value, caught.value.__cause__))
    assert "secret" not in told
    plan_of(kind).release("clinic", GOOD, ledger=ledger)
    assert len(ledger) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_refused_release_never_reads_a_row(kind, recorder):
    class Untouchable:
        def __len__(self):
            raise AssertionError("the rows were looked at")

        blocks = __iter__ = __len__

    ledger = pi.Ledger(pi.Budget(mu=0.79))
    with pytest.raises(BudgetExceededError):
        plan_of(kind).release("clinic", Untouchable(), ledger=ledger)
    assert (ledger.entries, recorder.calls) == ((), [])


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_give_the_same_release_as_the_whole_table(kind):
    plan = plan_of(kind)
    whole = plan.release("clinic", GOOD, rng=1)
    split = plan.release("clinic", halves(GOOD), rng=1)
    for name, array in whole.arrays.items():
        np.testing.assert_array_equal(array, split.arrays[name])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "position", [0, np.full(N // 2, 3)], ids=["overlapping blocks", "one position for all"]
)
def test_positions_given_twice_are_refused(kind, position, recorder):
    ledger = pi.Ledger()
    with pytest.raises(PrivinfError):
        plan_of(kind).release("clinic", halves(GOOD, position=position), ledger=ledger)
    assert (ledger.entries, recorder.calls) == ((), [])


BAD_PLANS = {
    "k above n": ({"k": N + 1}, ArgumentError),
    "k below the columns": ({"k": 5}, ArgumentError),
    "k is no count": ({"k": 7.5}, ArgumentError),
    "n is no count": ({"n": -1}, ArgumentError),
    "unknown kind": ({"kind": "gauss"}, ArgumentError),
    "negative seed": ({"seed": -1}, ArgumentError),
    "share of one": ({"share": 1.0}, ArgumentError),
    "no party": ({"parties": {}}, ArgumentError),
    "a column at two parties": (
        {"parties": {"p": pi.PartyPlan(LAB, mu=1.0), "q": pi.PartyPlan(LAB, mu=1.0)}},
        SchemaError,
    ),
    "id among the columns": ({"id": "a"}, SchemaError),
    "a party without a budget": ({"parties": {"p": pi.PartyPlan(LAB)}}, ArgumentError),
}


@pytest.mark.parametrize("case", BAD_PLANS)
def test_bad_plans_are_refused_before_any_row(case):
    options, error = BAD_PLANS[case]
    with pytest.raises(error):
        plan_of("signs", **options)


def test_a_party_or_a_matrix_that_the_plan_does_not_have(recorder):
    ledger = pi.Ledger()
    with pytest.raises(ArgumentError, match="clinic, lab"):
        plan_of().release("hospital", GOOD, ledger=ledger)
    with pytest.raises(ArgumentError, match="k"):
        pi.RandomMixing(CLINIC, k=N + 1).release(GOOD, mu=1.0, ledger=ledger)
    assert (ledger.entries, recorder.calls) == ((), [])


BAD_MODELS = {
    "a column at two parties": ({"parties": {"one": [0, 1], "two": [1, 2, "y"]}}, SchemaError),
    "a column at no party": ({"parties": {"one": [0], "two": [2, "y"]}}, SchemaError),
    "a column out of range": ({"parties": {"one": [0, 1], "two": [7, "y"]}}, ArgumentError),
    "an unknown name": ({"parties": {"one": [0, 1], "two": [2, "wage"]}}, SchemaError),
    "k above n": ({"k": 601}, ArgumentError),
    "k below the columns": ({"k": 3}, ArgumentError),
    "bounds for two of three": ({"bounds": [(-1, 1)] * 2}, SchemaError),
    "no bounds of y": ({"y_bounds": None}, PrivinfError),
}


@pytest.mark.parametrize("case", BAD_MODELS)
def test_bad_models_cost_nothing(case, recorder):
    changed, error = BAD_MODELS[case]
    _, X, y = model_of(pi.RMGMOLS)
    ledger = pi.Ledger(pi.Budget(mu=100.0))
    options = {
        "parties": {"one": [0, 1], "two": [2, "y"]},
        "bounds": [(-1, 1)] * 3,
        "y_bounds": (-1, 1),
        "k": 60,
    }
    with pytest.raises(error):
        pi.RMGMOLS(y, X, **(options | changed), ledger=ledger).fit(mu=1.0)
    assert (ledger.entries, recorder.calls) == ((), [])


WRONG_FITS = {
    "shrink and ridge": (pi.RMGMOLS, {}, {"shrink": True, "ridge": 0.1}),
    "shrink and a plain fit": (pi.RMGMOLS, {}, {"shrink": True, "debias": False}),
    "shrink without intercept": (pi.RMGMOLS, {"intercept": False}, {"shrink": True}),
    "shrink of single rows": (pi.DGMOLS, {}, {"shrink": True}),
    "unknown target": (pi.RMGMOLS, {}, {"target": "nobody"}),
    "a label that no party holds": (pi.RMGMOLS, {}, {"label": "wage"}),
    "negative ridge": (pi.RMGMOLS, {}, {"ridge": -1.0}),
    "no delta": (pi.RMGMOLS, {}, {"epsilon": 1.0, "mu": None}),
    "two budgets": (pi.RMGMOLS, {}, {"epsilon": 1.0, "delta": 1e-5}),
}


@pytest.mark.parametrize("case", WRONG_FITS)
def test_fits_that_cannot_be_made_cost_nothing(case, recorder):
    cls, options, how = WRONG_FITS[case]
    ledger = pi.Ledger()
    model, _, _ = model_of(cls, ledger=ledger, **options)
    with pytest.raises(PrivinfError):
        model.fit(**({"mu": 1.0} | how))
    assert (ledger.entries, recorder.calls) == ((), [])


@pytest.mark.parametrize("formula", ["y ~ wage", "wage ~ c", "y ~ a:b", "y ~ np.log(b)", "y ~ C(g)", "y ~"])
def test_formulas_that_cannot_be_fitted_cost_nothing(formula, recorder):
    data, ledger = pd.concat([clinic_rows(), lab_rows()], axis=1), pi.Ledger()
    schema = pi.Schema({**CLINIC.columns, **LAB.columns})
    with pytest.raises(PrivinfError):
        pi.RMGMOLS.from_formula(
            formula,
            data,
            schema=schema,
            parties={"clinic": ["a", "b"], "lab": ["c", "y"]},
            ledger=ledger,
            k=K,
        ).fit(mu=1.0)
    assert (ledger.entries, recorder.calls) == ((), [])


def test_a_limit_holds_for_all_parties_together(recorder):
    """Half of the parties' releases must not be made if all of them do not fit."""
    ledger = pi.Ledger(pi.Budget(mu=1.3))
    model, _, _ = model_of(pi.RMGMOLS, k=60, ledger=ledger)
    with pytest.raises(BudgetExceededError):
        model.fit(mu=1.0)
    assert (ledger.entries, recorder.calls) == ((), [])


SEEDED_RELEASE = """
import numpy as np, privinf as pi
release = pi.RandomMixing(pi.Schema({"a": (-1.0, 1.0)}), k=4).release(np.zeros((9, 1)), mu=1.0, rng=3)
print(release.arrays["rows"].tolist(), release.arrays["ones_row"].tolist())
"""


@pytest.mark.audit
def test_seeded_noise_is_the_same_in_every_process():
    """Python's salt of hashes must not decide which array gets which noise."""
    told = [
        subprocess.run(
            [sys.executable, "-c", SEEDED_RELEASE],
            env=os.environ | {"PYTHONHASHSEED": salt},
            text=True,
            capture_output=True,
            check=True,
        ).stdout
        for salt in ("0", "5")
    ]
    assert told[0] == told[1] != ""


# ---- releases that do not belong together


@pytest.fixture(scope="module")
def sent():
    plan = plan_of("countsketch")
    return {"clinic": plan.release("clinic", clinic_rows()), "lab": plan.release("lab", lab_rows())}


OTHER_PLANS = {
    "n": {"n": N - 1},
    "k": {"k": K - 1},
    "kind": {"kind": "signs"},
    "seed": {"seed": 1},
    "share": {"share": 0.123},
    "intercept": {"intercept": False},
    "budget of a party": {
        "parties": {"clinic": pi.PartyPlan(CLINIC, mu=0.8), "lab": pi.PartyPlan(LAB, mu=2.0)}
    },
    "schema of a party": {
        "parties": {
            "clinic": pi.PartyPlan(pi.Schema({"a": (-2.0, 1.0), "b": (0.0, 3.0)}), mu=0.8),
            "lab": pi.PartyPlan(LAB, mu=1.1),
        }
    },
    "roster": {"ids_sha256": "ab" * 32, "id": "patient"},
}


@pytest.mark.parametrize("what", OTHER_PLANS)
def test_releases_of_different_plans_are_not_joined(what, sent):
    n = OTHER_PLANS[what].get("n", N)
    other = plan_of("countsketch", **OTHER_PLANS[what]).release("lab", lab_rows(n))
    for pair in ({"clinic": sent["clinic"], "lab": other}, [other, sent["clinic"]]):
        with pytest.raises(AlignmentError):
            pi.join(pair)
        with pytest.raises(AlignmentError):
            pi.RMGMOLS.from_release(pair)


@pytest.mark.parametrize(
    ("what", "option"),
    {"n": {"n": N - 1}, "k": {"k": K - 1}, "kind": {"kind": "signs"}, "seed": {"seed": 5}}.items(),
)
def test_releases_outside_any_plan_must_agree_too(what, option):
    common = {"k": K, "kind": "countsketch", "seed": 1, "share": 0.2}
    options = common | option
    n = options.pop("n", N)
    one = pi.RandomMixing(CLINIC, **common).release(clinic_rows(), mu=1.0)
    two = pi.RandomMixing(LAB, **options).release(lab_rows(n), mu=1.0)
    with pytest.raises(AlignmentError, match=what):
        pi.join([one, two])


def test_the_same_party_twice_and_one_column_twice(sent):
    with pytest.raises(AlignmentError, match="two releases"):
        pi.join([sent["clinic"], sent["lab"], sent["clinic"]])
    with pytest.raises(AlignmentError):
        pi.RMGMOLS.from_release({"a": sent["lab"], "b": sent["lab"]})
    loose = [pi.RandomMixing(LAB, k=K, share=0.2).release(lab_rows(), mu=1.0) for _ in range(2)]
    with pytest.raises(AlignmentError, match="column"):
        pi.join(loose)


def test_releases_of_another_method_or_no_releases(sent):
    rows = pi.GaussianRows(LAB).release(lab_rows(), mu=1.0)
    with pytest.raises(AlignmentError):
        pi.join([sent["clinic"], rows])
    for cls, wrong in ((pi.DGMOLS, sent), (pi.BGMOLS, sent), (pi.RMGMOLS, [rows])):
        with pytest.raises(AlignmentError):
            cls.from_release(wrong)
    for wrong in ([], {}, {"clinic": clinic_rows()}, 3):
        with pytest.raises(PrivinfError):
            pi.join(wrong)


def test_a_label_or_a_formula_beyond_the_releases(sent):
    model = pi.RMGMOLS.from_release(sent)
    for wrong in ("wage", "g", "const", ""):
        with pytest.raises(PrivinfError):
            model.fit(label=wrong)
    for formula in ("y ~ wage", "wage ~ a", "y ~ a:b", "y ~ np.log(b)"):
        with pytest.raises(PrivinfError):
            model.regress(formula)
    with pytest.raises(ArgumentError):
        model.fit(label="y", mu=1.0)
    assert len(model.ledger) == 0


@pytest.mark.parametrize("at", [0.02, 0.3, 0.6, 0.9])
def test_damaged_release_files_are_refused(at, sent, tmp_path):
    path = tmp_path / "lab.npz"
    sent["lab"].save(path)
    whole = path.read_bytes()
    assert pi.load_release(path).entries == sent["lab"].entries
    place = int(at * len(whole))
    flipped = whole[:place] + bytes([whole[place] ^ 0x40]) + whole[place + 1 :]
    for damaged in (whole[:place], flipped, b""):
        path.write_bytes(damaged)
        with pytest.raises(StorageError):
            pi.load_release(path)


def test_a_release_without_noise_is_not_saved(tmp_path):
    release = pi.RandomMixing(LAB, k=K).release(lab_rows(), epsilon=math.inf)
    with pytest.raises(PrivinfError, match="epsilon=inf"):
        release.save(tmp_path / "lab.npz")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", [lambda t: t[: len(t) // 2], lambda t: "[]", lambda t: "", str.upper])
def test_damaged_plans_are_refused(damage, tmp_path):
    path = tmp_path / "plan.json"
    plan_of().save(path)
    path.write_text(damage(path.read_text()))
    with pytest.raises(PrivinfError):
        pi.MixingPlan.load(path)
