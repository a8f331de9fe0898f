"""Local examples: which columns get which noise, exact budgets, labels, rows that do not fit."""

import math
import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chisquare
from support.instrument import RecordingNoise
from support.leaks import find_raw_values

import privinf as pi
from privinf.accounting import GaussianLoss, PureLoss, compose, gaussian_mu
from privinf.mechanisms import LocalExamples, Rows
from privinf.mechanisms.local import examples as local_examples
from privinf.mechanisms.local.budget import Parts, plan_budget, remaining_mu
from privinf.noise import LatticeNoise
from privinf.releases import load_release
from privinf.schema import Design

SCHEMA = pi.Schema(
    {
        "y": ["no", "maybe", "yes"],
        "x": (-1.0, 3.0),
        "z": (0.0, 1.0),
        "g": ["r", "s", "t", "v"],
        "b": [False, True],
        "u": (0.0, 1.0),
        "site": (0.0, 5.0),
        "t": (0.0, 10.0),
        "k": [0, 1],
    },
    public=["site"],
)
FORMULA = "y ~ x + z + g + b + u + site"
DELTA = 1e-5


def frame(n=200, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "y": rng.choice(["no", "maybe", "yes"], n),
            "x": rng.uniform(-1, 3, n),
            "z": rng.integers(0, 2, n),
            "g": rng.choice(["r", "s", "t", "v"], n),
            "b": rng.random(n) < 0.5,
            "u": rng.uniform(0, 1, n),
            "site": rng.uniform(0, 5, n),
            "t": rng.uniform(0, 10, n),
            "k": rng.integers(0, 2, n),
        }
    )


def mixed(**options):
    return LocalExamples(SCHEMA, FORMULA, **{"binary": ["z"], **options})


def square(n=100, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2, n), rng.uniform(-1, 1, (n, 2))


def plane(**options):
    return LocalExamples(Design.from_arrays(["a", "b"], radius=math.sqrt(2.0)), label="response", **options)


def features_total(release):
    return compose([entry.loss for entry in release.entries if "label" not in entry.label])


# ---- what is sent


def test_without_noise_every_column_is_the_design_in_the_stated_units():
    rows = frame()
    release = mixed().release(rows, epsilon=math.inf)
    law, design = release.noise_model, release.design
    assert law["noise_free"]
    assert law["scale"] == 0.0
    sent = np.empty((200, len(design.names)))
    sent[:, design.private] = release.arrays["features"]
    sent[:, ~design.private] = release.arrays["public"]
    clear = sent * law["units"]["scale"] + law["units"]["center"]
    np.testing.assert_allclose(clear, design.matrix(rows), atol=1e-14)
    levels = np.array(law["label"]["levels"])
    np.testing.assert_array_equal(levels[release.arrays["labels"]], rows["y"])
    names = np.array(design.private_names)
    assert list(names[law["gaussian"]]) == ["x", "u"]
    responded = {item["name"]: list(names[item["columns"]]) for item in law["responses"]}
    assert responded == {"g": ["g[T.s]", "g[T.t]", "g[T.v]"], "b": ["b[T.True]"], "z": ["z"]}
    with pytest.raises(pi.errors.NotAvailableError, match="cannot be saved"):
        release.save("never.npz")


@pytest.mark.parametrize("noise", [{"rng": 4}, {}], ids=["seeded", "secure"])
def test_the_release_has_the_stated_law(noise):
    n = 40_000
    one = frame(1).assign(y="maybe", g="t", b=True, z=0, x=1.0, u=0.5)
    rows = one.loc[np.zeros(n, dtype=int)]
    release = mixed().release(rows, epsilon_x=6.0, epsilon_y=2.0, delta=DELTA, **noise)
    law, features = release.noise_model, release.arrays["features"]
    numbers = features[:, law["gaussian"]] / law["scale"]
    assert np.abs(numbers.mean(axis=0)).max() < 5 / math.sqrt(n)  # both at their centres
    assert np.abs(np.cov(numbers.T) - np.eye(2)).max() < 5 * math.sqrt(2 / n)
    truth = {"g": 2, "b": 1, "z": 0}
    for item in law["responses"]:
        indicators = features[:, item["columns"]]
        assert set(np.unique(indicators)) == {0.0, 1.0}
        assert indicators.sum(axis=1).max() == 1.0
        codes = indicators @ np.arange(1, item["levels"])
        check_answers(codes, truth[item["name"]], item["levels"], item["keep"], item["other"])
        assert item["keep"] / item["other"] == pytest.approx(math.exp(item["epsilon"]))
        assert item["epsilon"] == pytest.approx(6.0 / 5)  # two Gaussian columns, three responses
    label = law["label"]
    check_answers(release.arrays["labels"], 1, 3, label["keep"], label["other"])
    assert label["keep"] / label["other"] == pytest.approx(math.exp(2.0))
    everything = np.column_stack([features, release.arrays["labels"]])
    correlation = np.corrcoef(everything.T) - np.eye(everything.shape[1])
    correlation[:3, :3] = 0.0  # levels of one factor exclude each other
    assert np.abs(correlation).max() < 5 / math.sqrt(n)


def check_answers(codes, truth, levels, keep, other):
    expected = np.full(levels, other * len(codes))
    expected[truth] = keep * len(codes)
    assert chisquare(np.bincount(codes.astype(int), minlength=levels), expected).pvalue > 1e-5


@pytest.mark.parametrize(("epsilon", "scale"), [(4.0, 3.058), (16.07, 0.9702)])
def test_scale_of_the_square_in_a_ball(epsilon, scale):
    release = plane().release(square(), epsilon_x=epsilon, epsilon_y=2.0, delta=DELTA, rng=0)
    assert release.noise_model["scale"] == pytest.approx(scale, rel=1e-3)
    assert release.noise_model["scale"] == pytest.approx(
        2 * math.sqrt(2) / gaussian_mu(epsilon, DELTA), rel=1e-9
    )


def test_sensitivity_is_the_diameter_of_the_gaussian_columns_alone():
    release = mixed().release(frame(), epsilon_x=6.0, epsilon_y=2.0, delta=DELTA, rng=0)
    assert release.entries[0].sensitivity.value == pytest.approx(2 * math.sqrt(2), rel=1e-9)
    ball = mixed(radius=0.5).release(frame(), epsilon_x=6.0, epsilon_y=2.0, delta=DELTA, rng=0)
    assert ball.entries[0].sensitivity.value == pytest.approx(1.0, rel=1e-9)
    papers = mixed(binary_mechanism="gaussian")
    release = papers.release(frame(), epsilon_x=6.0, epsilon_y=2.0, delta=DELTA, rng=0)
    assert release.entries[0].sensitivity.value == pytest.approx(papers.design.diameter, rel=1e-9)
    assert papers.design.diameter == pytest.approx(math.sqrt(3 * 4 + 2 + 1))
    assert release.noise_model["responses"] == []
    assert release.noise_model["gaussian"] == list(range(7))
    np.testing.assert_array_equal(release.noise_model["units"]["scale"], papers.design.scale)


def test_only_the_gaussian_columns_are_projected():
    rows = frame()
    release = mixed(radius=0.1).release(rows, epsilon=math.inf)
    features = release.arrays["features"]
    assert np.linalg.norm(features[:, release.noise_model["gaussian"]], axis=1).max() <= 0.1 + 1e-12
    np.testing.assert_array_equal(features[:, 5], rows["z"])


def test_a_gaussian_label_and_a_clear_one():
    rows = frame()
    noisy = LocalExamples(SCHEMA, "t ~ x + u").release(rows, epsilon_x=4.0, epsilon_y=2.0, delta=DELTA, rng=0)
    assert noisy.noise_model["label"]["kind"] == "gaussian"
    assert noisy.noise_model["label"]["scale"] == pytest.approx(2.0 / gaussian_mu(2.0, DELTA), rel=1e-9)
    assert not np.isin(noisy.arrays["labels"], (rows["t"] - 5) / 5).any()
    clear = LocalExamples(SCHEMA, "t ~ x", label="clear").release(rows, epsilon_x=4.0, delta=DELTA, rng=0)
    np.testing.assert_array_equal(clear.arrays["labels"], rows["t"])
    assert any("released in clear" in text for text in clear.entries[0].assumptions)
    assert LocalExamples(SCHEMA, "site ~ x").label.kind == "clear"
    levels = LocalExamples(SCHEMA, "y ~ x", label="clear").release(rows, epsilon_x=4.0, delta=DELTA, rng=0)
    assert levels.noise_model["label"] == {"kind": "clear", "levels": ["no", "maybe", "yes"]}
    responded = mixed().release(rows, epsilon=3.0, delta=DELTA, rng=0)
    assert not any("clear" in text for entry in responded.entries for text in entry.assumptions)


def test_labels_alone_where_all_features_are_public():
    release = LocalExamples(SCHEMA, "y ~ site").release(frame(), epsilon_y=1.0, rng=0)
    assert release.arrays["features"].shape == (200, 0)
    assert [entry.loss for entry in release.entries] == [PureLoss(1.0)]


@pytest.mark.parametrize("formula", ["y ~ 0 + g", "y ~ 0 + g + b", "y ~ g:b", "y ~ g + g:x"])
def test_factors_of_every_coding(formula):
    rows = frame()
    release = LocalExamples(SCHEMA, formula).release(rows, epsilon=math.inf)
    design = release.design
    clear = release.arrays["features"] * np.array(release.noise_model["units"]["scale"])[design.private]
    clear += np.array(release.noise_model["units"]["center"])[design.private]
    np.testing.assert_allclose(clear, design.matrix(rows)[:, design.private], atol=1e-14)
    spent = LocalExamples(SCHEMA, formula).release(rows, epsilon_x=2.0, epsilon_y=1.0, delta=DELTA, rng=0)
    assert sum("feature " in entry.label for entry in spent.entries) == len(design.blocks)


# ---- what it costs


@pytest.mark.parametrize(
    ("formula", "binary"), [(FORMULA, ["z"]), ("y ~ x + u", []), ("y ~ x + g", []), ("y ~ u + b + z", ["z"])]
)
@pytest.mark.parametrize("level", [0.5, 6.0])
def test_features_cost_exactly_what_was_named(formula, binary, level):
    mechanism = LocalExamples(SCHEMA, formula, binary=binary)
    release = mechanism.release(frame(), epsilon_x=level, epsilon_y=1.5, delta=DELTA)
    total = features_total(release)
    assert total.delta(level) <= DELTA
    assert total.delta(level) == pytest.approx(DELTA, rel=1e-9)
    assert release.entries[-1].loss == PureLoss(1.5)


@pytest.mark.parametrize("response", ["y", "t"])
@pytest.mark.parametrize("right", ["x + u", "x + g + b + z", "g + b + z", "site", "g"])
@pytest.mark.parametrize("shares", [None, (1.0, 3.0)])
def test_one_epsilon_is_the_exact_level_of_the_whole(response, right, shares):
    mechanism = LocalExamples(SCHEMA, f"{response} ~ {right}", binary=["z"] if "z" in right else [])
    if right == "site":
        shares = None
    release = mechanism.release(frame(), epsilon=2.0, shares=shares, delta=DELTA, rng=0)
    losses = [entry.loss for entry in release.entries]
    total = compose(losses)
    if all(isinstance(loss, PureLoss) for loss in losses):
        assert math.fsum(loss.epsilon for loss in losses) == pytest.approx(2.0, rel=1e-12)
        pi.Ledger(pi.Budget(epsilon=2.0, delta=0)).check(losses)
    else:
        assert total.delta(2.0) == pytest.approx(DELTA, rel=1e-9)
        assert total.delta(2.0) <= DELTA


def test_shares_split_epsilon_as_documented():
    release = mixed().release(frame(), epsilon=3.0, delta=DELTA, rng=0)
    responses = [entry.loss.epsilon for entry in release.entries[1:]]
    assert responses == pytest.approx([2.0 / 5] * 3 + [1.0])
    both = LocalExamples(SCHEMA, "t ~ x + u").release(frame(), epsilon=3.0, shares=(3, 1), delta=DELTA, rng=0)
    first, second = (entry.loss.mu for entry in both.entries)
    assert first / second == pytest.approx(3.0)


def test_named_shares_of_responses():
    mechanism = mixed(response_shares={"g": 0.5, "z": 2.0})
    release = mechanism.release(frame(), epsilon_x=5.5, epsilon_y=1.0, delta=DELTA, rng=0)
    spent = {entry.label: entry.loss.epsilon for entry in release.entries[1:]}
    assert spent == pytest.approx({"feature g": 0.5, "feature b": 1.0, "feature z": 2.0, "label y": 1.0})
    assert features_total(release).delta(5.5) == pytest.approx(DELTA, rel=1e-9)


def test_what_is_left_for_gaussian_columns_is_more_than_basic_composition_leaves():
    pure = [0.8, 0.8, 0.8]
    exactly = remaining_mu(4.0, DELTA, pure)
    assert 1.05 * gaussian_mu(4.0 - 2.4, DELTA) < exactly < gaussian_mu(4.0, DELTA)
    more = compose([GaussianLoss(exactly * (1 + 1e-6)), *map(PureLoss, pure)])
    assert more.delta(4.0) > DELTA
    assert remaining_mu(4.0, DELTA, pure, "classic") == pytest.approx(1.6 / math.sqrt(2 * math.log(1.25e5)))


def test_the_ledger_equals_the_noise_that_was_drawn(monkeypatch):
    recorder = RecordingNoise(LatticeNoise())
    monkeypatch.setattr(local_examples, "get_source", lambda rng, source: recorder)
    ledger = pi.Ledger()
    release = mixed().release(frame(), epsilon_x=5.0, epsilon_y=1.0, delta=DELTA, ledger=ledger)
    (normal,) = recorder.of("perturb")
    assert normal.shape == (200, 2)
    assert normal.scale == release.noise_model["scale"]
    assert release.entries[0].loss.mu == pytest.approx(2 * math.sqrt(2) / normal.scale, rel=1e-5)
    lies = recorder.of("bernoulli")
    assert [call.shape for call in lies] == [(200,)] * 4
    levels = [4, 2, 2, 3]
    spent = [math.log((1 - c.scale) / (c.scale / (k - 1))) for c, k in zip(lies, levels, strict=True)]
    assert spent == pytest.approx([entry.loss.epsilon for entry in release.entries[1:]])
    assert ledger.entries == release.entries
    assert {entry.trust for entry in release.entries} == {"local"}
    assert {entry.unit for entry in release.entries} == {"record"}
    assert release.secure


def test_rows_of_one_unit_share_what_was_named():
    schema = pi.Schema({"y": [0, 1], "x": (-1.0, 1.0), "g": ["a", "b"]}, unit="id", max_rows=4)
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(
        {"id": np.repeat(np.arange(20), 4), "y": rng.integers(0, 2, 80), "x": rng.uniform(-1, 1, 80)}
    ).assign(g="a")
    release = LocalExamples(schema, "y ~ x + g").release(rows, epsilon_x=4.0, epsilon_y=2.0, delta=DELTA)
    assert release.entries[0].sensitivity.value == pytest.approx(2 * 2.0, rel=1e-5)  # sqrt(4) times 2
    assert [entry.loss for entry in release.entries[1:]] == [PureLoss(2.0), PureLoss(2.0)]
    assert release.noise_model["responses"][0]["epsilon"] == pytest.approx(0.5)
    assert release.noise_model["label"]["epsilon"] == pytest.approx(0.5)
    assert {entry.unit for entry in release.entries} == {"id"}
    assert release.arrays["groups"].shape == (80,)


class Untouchable:
    def __getattr__(self, name):
        raise AssertionError("rows were read")

    def __len__(self):
        raise AssertionError("rows were read")


def test_an_overspending_release_is_refused_before_a_row_is_read():
    ledger = pi.Ledger(pi.Budget(rho=1.0))
    with pytest.raises(pi.errors.BudgetExceededError):
        mixed().release(Untouchable(), epsilon_x=8.0, epsilon_y=4.0, delta=DELTA, ledger=ledger)
    assert ledger.entries == ()


# ---- labels


@pytest.mark.parametrize("coding", [(0, 1), (-1, 1), (False, True), (0.0, 1.0)])
@pytest.mark.parametrize("kind", [np.array, list, pd.Series])
def test_arrays_of_two_labels(coding, kind):
    codes, X = square()
    release = plane().release((kind([coding[c] for c in codes]), X), epsilon=math.inf)
    np.testing.assert_array_equal(release.arrays["labels"], codes)
    assert release.arrays["labels"].dtype == np.int64
    assert release.noise_model["label"]["levels"] == [0, 1]


def test_levels_of_array_labels():
    codes, X = square()
    labels = np.array(["low", "high"])[codes]
    release = plane(levels=["low", "high"]).release((labels, X), epsilon=math.inf)
    np.testing.assert_array_equal(release.arrays["labels"], codes)
    bounded = Design.from_arrays(["a", "b"], bounds=[(-1, 1)] * 2, y_bounds=(-1, 1))
    assert LocalExamples(bounded, label="response").label.levels == (-1, 1)
    assert LocalExamples(bounded).label.kind == "gaussian"
    with pytest.raises(pi.errors.SchemaError, match="outside its declared levels"):
        LocalExamples(bounded, label="response").release((codes, X), epsilon=math.inf)


@pytest.mark.parametrize("formula", ["y ~ x", "C(y) ~ x", "b ~ x", "k ~ x", "C(k) ~ x"])
def test_a_factor_on_the_left_side(formula):
    rows = frame()
    mechanism = LocalExamples(SCHEMA, formula)
    assert mechanism.design.formula == formula
    name = mechanism.label.name
    codes = [SCHEMA[name].levels.index(value) for value in rows[name].tolist()]
    for given in (rows, (rows[name], rows), Rows(rows)):
        release = mechanism.release(given, epsilon=math.inf)
        np.testing.assert_array_equal(release.arrays["labels"], codes)


@pytest.mark.parametrize(
    "labels", [[0, 1, 2], [-1, 0, 1], [0.5, 0, 1], ["secret-label", "a", "b"], [0, 1, math.nan]]
)
def test_labels_that_do_not_fit_are_refused_without_their_values(labels):
    _, X = square(99)
    ledger = pi.Ledger()
    with pytest.raises(pi.errors.SchemaError) as error:
        plane().release((np.resize(labels, 99), X), epsilon=1.0, delta=DELTA, ledger=ledger)
    assert "secret" not in str(error.value)
    assert "'y'" in str(error.value)
    assert ledger.entries == ()
    rows = frame()
    rows.loc[7, "y"] = "secret-label"
    with pytest.raises(pi.errors.SchemaError, match="'y'") as error:
        mixed().release(rows, epsilon=1.0, delta=DELTA, ledger=ledger)
    assert "secret" not in str(error.value)
    assert ledger.entries == ()


def test_missing_values_are_refused_or_imputed():
    rows = frame().astype({"z": float, "y": object, "g": object})
    rows.loc[0, ["y", "g", "z", "x"]] = None
    with pytest.raises(pi.errors.SchemaError, match="missing"):
        mixed().release(rows, epsilon=1.0, delta=DELTA)
    release = mixed(missing="impute-public").release(rows, epsilon=math.inf)
    assert release.arrays["labels"][0] == 0
    features = release.arrays["features"][0]
    np.testing.assert_array_equal(features[[0, 1, 2, 4, 5]], np.zeros(5))


def test_binary_columns_that_are_not_binary_are_refused():
    rows = frame().assign(z=np.linspace(0, 1, 200))
    ledger = pi.Ledger()
    with pytest.raises(pi.errors.SchemaError, match="binary column 'z' must hold 0 and 1 only"):
        mixed().release(rows, epsilon=1.0, delta=DELTA, ledger=ledger)
    assert ledger.entries == ()


# ---- the object


def test_save_load_pickle(tmp_path):
    release = mixed().release(frame(), epsilon=3.0, delta=DELTA)
    release.save(tmp_path / "examples.npz")
    for copy in (load_release(tmp_path / "examples.npz"), pickle.loads(pickle.dumps(release))):
        assert copy.noise_model == release.noise_model
        assert copy.design == release.design
        assert copy.entries == release.entries
        for name, array in release.arrays.items():
            np.testing.assert_array_equal(copy.arrays[name], array)


@pytest.mark.audit
def test_no_raw_value_leaves():
    rows, mechanism = frame(), mixed()
    release = mechanism.release(rows, epsilon=3.0, delta=DELTA)
    raw = [rows["x"], rows["u"], (rows["x"] - 1) / 2, 2 * rows["u"] - 1]
    assert find_raw_values(release, raw) == []
    assert find_raw_values(mechanism, raw) == []
    assert find_raw_values(mechanism.release(rows, epsilon=math.inf), raw)


def test_data_bounds_are_said_in_every_line():
    release = mixed(data_bounds=True).release(frame(), epsilon=3.0, delta=DELTA, rng=0)
    assert all(any("from the data" in text for text in entry.assumptions) for entry in release.entries)


BAD = {
    "both epsilons": ({"epsilon": 1.0, "epsilon_x": 1.0}, "not both"),
    "no label level": ({"epsilon_x": 1.0}, "epsilon_y= is missing"),
    "no feature level": ({"epsilon_y": 1.0}, "epsilon_x= is missing"),
    "nothing": ({}, "epsilon_x= is missing"),
    "shares without epsilon": ({"epsilon_x": 1.0, "epsilon_y": 1.0, "shares": (1, 1)}, "shares="),
    "three shares": ({"epsilon": 1.0, "shares": (1, 1, 1)}, "two positive numbers"),
    "share of zero": ({"epsilon": 1.0, "shares": (1, 0)}, "shares"),
    "one side infinite": ({"epsilon_x": math.inf, "epsilon_y": 1.0}, "both"),
    "no delta": ({"epsilon": 1.0, "delta": None}, "delta"),
    "delta of one": ({"epsilon": 1.0, "delta": 1.0}, "delta"),
    "negative": ({"epsilon": -1.0}, "epsilon"),
    "calibration": ({"epsilon": 1.0, "calibration": "rough"}, "calibration"),
    "ledger": ({"epsilon": 1.0, "ledger": 3}, "ledger"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_budgets(name):
    options, message = BAD[name]
    with pytest.raises(pi.errors.ArgumentError, match=message):
        mixed().release(Untouchable(), **{"delta": DELTA, **options})


def test_a_level_for_what_is_in_clear_is_refused():
    with pytest.raises(pi.errors.ArgumentError, match="is not needed"):
        plan_budget(Parts(2, (), "clear"), epsilon_x=1.0, epsilon_y=1.0, delta=DELTA)
    with pytest.raises(pi.errors.ArgumentError, match="is not needed"):
        plan_budget(Parts(0, (), "response"), epsilon_x=1.0, epsilon_y=1.0)
    with pytest.raises(pi.errors.ArgumentError, match="without noise"):
        plan_budget(Parts(2, (), "clear"), epsilon=1.0, shares=(1, 1), delta=DELTA)


ARRAYS = Design.from_arrays(["a", "b"], radius=1.0)
WRONG = {
    "unknown binary": ((SCHEMA, FORMULA), {"binary": ["w"]}, pi.errors.ArgumentError, "binary column 'w'"),
    "binary with other bounds": ((SCHEMA, FORMULA), {"binary": ["x"]}, pi.errors.ArgumentError, "0 and 1"),
    "binary as text": ((SCHEMA, FORMULA), {"binary": "z"}, pi.errors.ArgumentError, "list"),
    "mechanism": ((SCHEMA, FORMULA), {"binary_mechanism": "laplace"}, pi.errors.ArgumentError, "laplace"),
    "label": ((SCHEMA, FORMULA), {"label": "noisy"}, pi.errors.ArgumentError, "noisy"),
    "levels twice": ((SCHEMA, FORMULA), {"levels": ["a", "b"]}, pi.errors.ArgumentError, "already"),
    "levels of a number": ((SCHEMA, "t ~ x"), {"label": "response"}, pi.errors.SchemaError, "levels"),
    "factor as number": ((SCHEMA, "y ~ x"), {"label": "gaussian"}, pi.errors.SchemaError, "'y'"),
    "expression": ((SCHEMA, "np.log(t + 1) ~ x"), {"label": "response"}, pi.errors.SchemaError, "expression"),
    "no bounds": ((ARRAYS,), {"label": "gaussian"}, pi.errors.SensitivityError, "public bounds"),
    "gaussian levels": ((ARRAYS,), {"label": "gaussian", "levels": [0, 1]}, pi.errors.ArgumentError, "codes"),
    "one level": ((ARRAYS,), {"levels": ["a"]}, pi.errors.SchemaError, "two levels"),
    "nothing private": ((SCHEMA, "site ~ 1"), {}, pi.errors.SensitivityError, "nothing to protect"),
    "no formula": ((SCHEMA,), {}, pi.errors.ArgumentError, "formula"),
    "no schema": ((3,), {}, pi.errors.ArgumentError, "Schema"),
    "design and radius": ((ARRAYS,), {"radius": 1.0}, pi.errors.ArgumentError, "already"),
    "share of x": ((SCHEMA, FORMULA), {"response_shares": {"x": 1.0}}, pi.errors.ArgumentError, "'x'"),
    "no share": ((SCHEMA, FORMULA), {"response_shares": {"g": 0.0}}, pi.errors.ArgumentError, "'g'"),
    "missing": ((SCHEMA, FORMULA), {"missing": "drop"}, pi.errors.NotAvailableError, "one message per row"),
}


@pytest.mark.parametrize("name", WRONG)
def test_declarations_that_do_not_fit(name):
    where, options, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        LocalExamples(*where, **options)
