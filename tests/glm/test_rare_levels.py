"""Rare levels that the noise hides: the last step without them, their flags, other intervals."""

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import privinf as pi
from privinf.errors import NotAvailableError, WeakIdentificationWarning
from privinf.glm import curved, running
from privinf.glm.advice import hidden_level_notes, hidden_level_warning
from privinf.glm.curved import LONGEST_RARE, GLMNewtonPath, OneStepRelease, hidden_directions, newton_move
from privinf.glm.curved_sums import ExpansionPoint, Noisy
from privinf.glm.posterior_draws import PosteriorDraws
from privinf.glm.rare_levels import converged_without, hidden_levels, left_out_levels, step_of_others

LEVEL = "C(g)[T.rare]"
SCHEMA = pi.Schema(
    {"x": (-1, 1), "age": (18, 100), "g": ["a", "b", "rare"], "sick": [0, 1], "visits": (0, 20)}
)


def patients(n=12_000, seed=0, share=0.01):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "x": rng.uniform(-1, 1, n),
            "age": np.clip(np.round(rng.normal(62, 15, n)), 18, 100),
            "g": rng.choice(["a", "b", "rare"], n, p=[0.6, 0.4 - share, share]),
        }
    )
    predictor = -3.4 + 0.5 * table["x"] + 0.02 * table["age"]
    table["sick"] = (rng.random(n) < expit(predictor)).astype(int)
    mean = np.exp(0.5 * table["x"] - 1.0 + 1.5 * (table["g"] == "rare"))
    table["visits"] = np.minimum(rng.poisson(mean), 20)
    return table


TRUTH = np.array([-3.4, 0.0, 0.0, 0.5, 0.02])


def model_of(table, family="Logit"):
    response = {"Logit": "sick"}.get(family, "visits")
    return getattr(pi, family).from_formula(f"{response} ~ C(g) + x + age", table, schema=SCHEMA)


# ---- the derivation


@pytest.mark.parametrize("family", ["poisson", "binomial"])
def test_a_long_step_of_a_level_hardly_moves_the_solution_of_the_others(family):
    rng = np.random.default_rng(1)
    n = 20_000
    level = rng.random(n) < 0.02
    X = np.column_stack([np.ones(n), level, rng.uniform(-1, 1, n) + 0.5 * level, rng.normal(size=n)])
    theta = np.array([-2.0, 0.0, 0.6, 0.3])
    mean = np.exp if family == "poisson" else expit
    for long in (-3.0, 4.0):
        step = np.array([0.0, long, 0.0, 0.0])
        now = mean(X @ theta)
        weight = now if family == "poisson" else now * (1.0 - now)
        error = mean(X @ (theta + step)) - now - weight * (X @ step)
        hessian = (X * weight[:, None]).T @ X / n
        missed = np.linalg.solve(hessian, X.T @ error / n)
        others = [0, 2, 3]
        if family == "poisson":
            np.testing.assert_allclose(missed[others], 0.0, atol=1e-9)
            assert abs(missed[1]) > 1.0
            continue
        spread = np.std((X @ theta)[level])
        h = hessian[1, others] / hessian[1, 1]
        part = (X[:, others] - np.outer(X[:, 1], h)).T @ error / n
        changed = abs((mean(X @ (theta + step)) - now)[level].mean())
        limit = level.mean() * spread * (0.25 + changed)
        assert (np.abs(part) <= limit * X[level][:, others].std(axis=0) + 1e-12).all()
        in_errors = np.abs(missed[others]) / np.sqrt(np.diag(np.linalg.inv(hessian))[others] / n)
        assert (in_errors < limit * np.sqrt(n / weight.mean())).all()
        assert abs(missed[1]) > 1.0


def release(*, noise=0.01, moved=(0.1, 6.0, 0.1), steepness=0.001, walking=False):
    """Return a final release in units that are not whitened, with a level of few rows in the second place."""
    share = 0.01
    second = np.array([[1.0, share, 0.0], [share, share, 0.0], [0.0, 0.0, 0.33]])
    hessian = 0.2 * second
    hessian[1, 1] = max(hessian[1, 1], steepness)
    walk = GLMNewtonPath(path=[], walking=walking, second=second)
    return OneStepRelease(
        place=ExpansionPoint(np.zeros(3), np.eye(3), 0.2),
        score=Noisy(hessian @ np.array(moved), noise),
        hessian=Noisy(hessian, 1e-5),
        meat=hessian,
        allowance=0.0,
        walk=walk,
    )


def draws_of(errors, *, weak=False, converged=False):
    draws = np.random.default_rng(0).standard_normal((2000, 3)) * errors
    return PosteriorDraws(
        params=np.zeros(3),
        draws=draws,
        weak=weak,
        length2=1.0,
        shift=2.0,
        converged=converged,
        sampling=np.eye(3),
    )


def test_the_move_of_predictors_divides_into_that_of_others_and_that_of_the_level():
    step = release(moved=(0.3, 5.0, -0.4))
    H = step.hessian.mean
    hidden = np.array([False, True, False])
    shift, beyond, length2 = step_of_others(step, draws_of(np.array([0.1, 3.0, 0.2])), hidden)
    move = np.array([0.3, 5.0, -0.4])
    own = H[1, 1] * (move[1] + H[1, ~hidden] @ move[~hidden] / H[1, 1]) ** 2
    level = np.trace(H) / 3
    assert shift**2 * level == pytest.approx(move @ H @ move - own)
    assert length2 == pytest.approx((0.3**2 / 0.1**2 + 0.4**2 / 0.2**2) / 2, rel=0.1)
    assert beyond > 0.0


def test_a_level_is_hidden_by_its_share_and_its_error():
    indicators = np.array([False, True, False])
    hides = draws_of(np.array([3.0, 3.0, 3.0]))
    np.testing.assert_allclose(hidden_levels(release(), hides, 0, indicators), [0.0, 3.0, 0.0], rtol=0.1)
    assert not hidden_levels(release(), draws_of(np.array([3.0, 0.9, 3.0])), 0, indicators).any()
    assert not hidden_levels(release(), hides, 0, indicators & False).any()
    assert not hidden_levels(release(), hides, None, indicators).any()
    assert not hidden_levels(release(), replace(hides, weak=True), 0, indicators).any()
    half = np.array([[1.0, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 0.33]])
    common = replace(release(), walk=GLMNewtonPath(path=[], walking=False, second=half))
    assert not hidden_levels(common, hides, 0, indicators).any()


def test_a_rare_level_that_alone_makes_the_last_step_too_long_is_left_out():
    indicators = np.array([False, True, False])
    visible = draws_of(np.array([0.3, 0.6, 0.3]))  # below `HIDDEN_ERROR`
    assert not hidden_levels(release(), visible, 0, indicators).any()
    np.testing.assert_allclose(left_out_levels(release(), visible, 0, indicators), [0.0, 0.6, 0.0], rtol=0.1)
    assert not left_out_levels(release(), replace(visible, converged=True), 0, indicators).any()
    # The step of the others is too long as well, so that nothing is gained.
    assert not left_out_levels(release(moved=(4.0, 6.0, 4.0)), visible, 0, indicators).any()
    hides = draws_of(np.array([0.3, 3.0, 0.3]))
    np.testing.assert_array_equal(
        left_out_levels(release(), hides, 0, indicators), hidden_levels(release(), hides, 0, indicators)
    )


def test_a_long_step_of_the_others_still_costs_all_intervals():
    hidden = np.array([False, True, False])
    wide = draws_of(np.array([0.3, 9.0, 0.3]))
    assert converged_without(release(), wide, hidden)
    assert not converged_without(release(), wide, ~hidden & hidden)
    assert not converged_without(release(moved=(4.0, 6.0, 4.0)), wide, hidden)
    assert converged_without(release(moved=(0.6, 6.0, 0.1)), wide, hidden)
    assert not converged_without(release(moved=(0.6, 6.0, 0.1), walking=True), wide, hidden)
    # In standard errors, a step that ends beyond its secant has the limits of `LONGEST_STEP2`.
    precise = draws_of(np.array([0.01, 9.0, 0.01]))
    assert converged_without(release(moved=(0.2, 6.0, 0.2)), precise, hidden)
    curved = replace(release(moved=(0.5, 6.0, 0.5)), place=ExpansionPoint(np.zeros(3), np.eye(3), 5.0))
    assert not converged_without(curved, precise, hidden)


# ---- the steps of the rounds


RARE_COLUMN = np.array([False, True, False])
W = np.diag([1.0, 4.0, 1.7])


def round_release(curvature, score=(0.02, 0.1, 0.03), sd=0.02):
    """Return a score and a Hessian in whitened units, with the rare level in the second place."""
    return Noisy(np.array(score), 0.01), Noisy(np.diag([1.0, curvature, 1.2]), sd)


def same_move(first, second):
    return all(np.array_equal(getattr(first, name), getattr(second, name)) for name in first.__slots__)


def test_a_move_without_a_hidden_level_is_the_same_bit_for_bit():
    clear = round_release(0.3)
    assert same_move(newton_move(*clear, W, RARE_COLUMN), newton_move(*clear))
    hidden = round_release(0.01)
    assert same_move(newton_move(*hidden, W, ~RARE_COLUMN & RARE_COLUMN), newton_move(*hidden))
    assert not same_move(newton_move(*hidden, W, RARE_COLUMN), newton_move(*hidden))


def test_a_hidden_level_shrinks_no_other_step():
    score, hessian = round_release(0.01, score=(0.08, 0.0, 0.09))
    floor = hessian.floor
    assert floor > 0.01
    held = newton_move(score, hessian, W, RARE_COLUMN)
    others = [0, 2]
    raw = np.array([0.08, 0.09 / 1.2])
    signal = np.mean(raw**2 - np.array([0.01, 0.01 / 1.2]) ** 2)
    noise = np.mean(np.array([0.01, 0.01 / 1.2]) ** 2)
    np.testing.assert_allclose(held.step[others], raw * signal / (signal + noise))
    assert held.level == pytest.approx(1.1)
    assert (np.abs(newton_move(score, hessian).step[others]) < 0.6 * np.abs(held.step[others])).all()
    moved = newton_move(Noisy(np.array([0.08, 0.02, 0.09]), 0.01), hessian, W, RARE_COLUMN)
    np.testing.assert_allclose(moved.step[1], 0.02 / floor * signal / (signal + (0.01 / floor) ** 2))
    np.testing.assert_allclose(moved.step[others], held.step[others])


def test_rounds_do_not_stretch_a_hidden_level_again_and_again():
    score, hessian = round_release(0.01)
    transform = free = W
    for _ in range(5):
        transform = newton_move(score, hessian, transform, RARE_COLUMN).whitening @ transform
        free = newton_move(score, hessian).whitening @ free
    assert np.linalg.norm(transform[:, 1]) ** 2 == pytest.approx(LONGEST_RARE * 3)
    assert np.linalg.norm(free[:, 1]) ** 2 > 1000.0 * LONGEST_RARE
    longer = np.diag([1.0, 9.0, 1.7])
    assert newton_move(score, hessian, longer, RARE_COLUMN).whitening[1, 1] == pytest.approx(1.0)


def test_directions_that_no_level_carries_are_stretched_as_before():
    values = np.array([0.1, 0.1, 1.0])
    coefficients = np.array([[5.0, 0.1, -5.0], [0.5, 6.0, 0.2], [0.0, 2.0, 0.0]])
    assert hidden_directions(values, 0.1, coefficients, RARE_COLUMN).tolist() == [False, True, False]
    assert not hidden_directions(values, 0.04, coefficients, RARE_COLUMN).any()
    score, hessian = round_release(0.01)
    collinear = np.array([[1.0, 0.0, 0.0], [3.0, 0.5, -3.0], [0.0, 0.0, 1.7]])
    assert same_move(newton_move(score, hessian, collinear, RARE_COLUMN), newton_move(score, hessian))


@pytest.mark.filterwarnings("ignore::privinf.errors.PrivinfWarning")
def test_intervals_of_other_coefficients_are_shorter_next_to_a_hidden_level():
    model = model_of(patients(), "NegativeBinomial")

    def median_length():
        lengths = []
        for seed in range(5):
            fit = model.fit(epsilon=1.0, delta=1e-6, rng=seed)
            ends = np.full((5, 2), [0.0, np.inf]) if fit.estimate.cov is None else fit.conf_int().to_numpy()
            lengths.append((ends[:, 1] - ends[:, 0])[3])
        return np.median(lengths)

    held = median_length()
    with every_direction_stretched():
        assert held < 0.8 * median_length()


@pytest.mark.filterwarnings("ignore::privinf.errors.PrivinfWarning")
@pytest.mark.parametrize("family", ["Poisson", "NegativeBinomial"])
def test_fits_next_to_a_hidden_level_have_intervals(family):
    model = model_of(patients(), family)

    def lost_fits():
        fits = [model.fit(epsilon=1.0, delta=1e-6, rng=seed) for seed in range(6)]
        return sum(fit.estimate.cov is None for fit in fits)

    with every_direction_stretched():
        before = lost_fits()
    assert before >= 3
    assert lost_fits() == 0


# ---- fits


@contextmanager
def every_direction_stretched():
    """Make rounds that hold no direction back: the last step along a hidden level is then often long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curved, "hidden_directions", lambda values, *_: np.zeros(len(values), dtype=bool))
        yield


@pytest.fixture
def long_level_steps():
    with every_direction_stretched():
        yield


@pytest.mark.usefixtures("long_level_steps")
@pytest.mark.parametrize(("family", "seeds"), [("Logit", 12), ("NegativeBinomial", 12)])
def test_a_level_that_the_noise_hides_costs_no_other_interval(monkeypatch, family, seeds):
    kept = 0
    model = model_of(patients(), family)
    epsilon = 0.8
    for seed in range(seeds):
        fit = model.fit(epsilon=epsilon, delta=1e-6, rng=seed)
        if fit.estimate.cov is None or LEVEL not in fit.weakly_identified:
            continue
        monkeypatch.setattr(running, "converged_without", lambda step, posterior, hidden: posterior.converged)
        before = model.fit(epsilon=epsilon, delta=1e-6, rng=seed)
        monkeypatch.undo()
        if before.estimate.cov is None:  # lost by the rule that counts the level
            kept += 1
            assert list(fit.weakly_identified.index) == [LEVEL]
            with pytest.warns(WeakIdentificationWarning, match="few records have the level") as seen:
                ends = fit.conf_int().to_numpy()
            assert LEVEL in str(seen[0].message)
            assert ends[2].tolist() == [-np.inf, np.inf]
            with pytest.warns(WeakIdentificationWarning):
                missing = fit.pvalues.isna()
            assert missing.to_numpy().tolist() == [False, False, True, False, False]
            assert (np.delete(ends[:, 1] - ends[:, 0], 2) < 4.0).all()
            note = next(note.text for note in fit.summary().ranked_notes if LEVEL in note.text)
            assert "The last step was too long for it, so its interval is unbounded." in note
    assert kept >= 2


def hidden_fit():
    model = model_of(patients())
    for seed in range(20):
        fit = model.fit(epsilon=1.0, delta=1e-6, rng=seed)
        if fit.estimate.cov is not None and fit.cov_type != "posterior" and len(fit.weakly_identified):
            return fit
    raise AssertionError


@pytest.mark.filterwarnings("ignore::privinf.errors.PrivinfWarning")
def test_the_summary_flags_the_level_alone_and_files_keep_it(tmp_path):
    fit = hidden_fit()
    summary = fit.summary(notes="all")
    assert summary.plain_facts["Weak for"] == LEVEL
    assert LEVEL not in summary.plain_facts.get("See notes for", "")
    first = next(note.text for note in summary.ranked_notes if note.rank == "must-read")
    assert first.startswith(f"Few records have the level {LEVEL}, and the noise hides its coefficient.")
    table = fit.tidy().set_index("term")
    assert table.index[table["weak"]].tolist() == [LEVEL]
    assert fit.to_dict()["weakly_identified"] == {LEVEL: pytest.approx(fit.weakly_identified[LEVEL])}
    fit.save(tmp_path / "fit.npz")
    loaded = pi.load_results(tmp_path / "fit.npz")
    assert str(loaded.summary(notes="all")) == str(summary)
    pd.testing.assert_frame_equal(loaded.conf_int(), fit.conf_int())


def test_inference_about_several_coefficients_warns_of_the_level():
    fit = hidden_fit()
    with pytest.warns(WeakIdentificationWarning, match="few records have the level"):
        fit.wald_test(np.eye(5)[1:3])


def test_several_levels_are_named_in_one_sentence():
    errors = {"g[T.u]": 2.0, "g[T.v]": 3.0}
    notes = hidden_level_notes(errors, converged=False)
    text = notes[0].text
    assert text.startswith("Few records have the levels g[T.u], g[T.v], and the noise hides their coeff")
    assert "so their intervals are unbounded" in text
    assert "unbounded" not in hidden_level_notes(errors, converged=True)[0].text
    assert "standard errors up to 3 on the scale of the log mean" in hidden_level_warning(errors, "log mean")


def test_a_fit_without_rare_levels_flags_none():
    model = model_of(patients(share=0.3))
    fit = model.fit(epsilon=1.0, delta=1e-6, rng=0)
    assert "hidden_levels" not in fit._context.settings
    assert not fit.weakly_identified


@pytest.mark.filterwarnings("ignore::privinf.errors.PrivinfWarning")
def test_a_fit_without_noise_flags_no_level():
    fit = model_of(patients()).fit(epsilon=np.inf)
    assert not fit.weakly_identified


@pytest.mark.audit
@pytest.mark.usefixtures("long_level_steps")
@pytest.mark.filterwarnings("ignore::privinf.errors.PrivinfWarning")
def test_coefficients_without_a_flag_cover_in_fits_that_the_level_had_cost():
    """90 fits, about 30 of which the old rule left without intervals: 99% binomial limit."""
    hits = total = 0
    others = [0, 1, 3, 4]
    for number in range(90):
        table = patients(seed=number // 3)
        with pytest.MonkeyPatch.context() as patch:
            verdicts = []

            def judged(step, posterior, hidden, verdicts=verdicts):
                verdicts.append(posterior.converged)
                return converged_without(step, posterior, hidden)

            patch.setattr(running, "converged_without", judged)
            fit = model_of(table).fit(epsilon=0.8, delta=1e-6, rng=number)
        if verdicts and not verdicts[0]:
            try:
                ends = fit.conf_int().to_numpy()
            except NotAvailableError:
                continue
            inside = (ends[:, 0] <= TRUTH) & (ends[:, 1] >= TRUTH)
            hits += int(inside[others].sum())
            total += len(others)
    assert total >= 40
    assert hits / total >= 0.95 - 2.33 * np.sqrt(0.95 * 0.05 / total)


@pytest.mark.audit
@pytest.mark.filterwarnings("ignore::privinf.errors.PrivinfWarning")
@pytest.mark.parametrize("family", ["Logit", "Poisson", "NegativeBinomial"])
def test_coefficients_next_to_a_hidden_level_cover(family):
    """20 fits, 80 intervals of other coefficients: 99% binomial limit; nearly all of them have intervals."""
    truth = TRUTH if family == "Logit" else np.array([-1.0, 0.0, 1.5, 0.5, 0.0])
    others = [0, 1, 3, 4]
    inside = []
    for number in range(20):
        fit = model_of(patients(seed=number), family).fit(epsilon=1.0, delta=1e-6, rng=number)
        if fit.estimate.cov is not None:
            ends = fit.conf_int().to_numpy()
            inside.append(((ends[:, 0] <= truth) & (ends[:, 1] >= truth))[others])
    assert len(inside) >= 18
    assert np.mean(inside) >= 0.95 - 2.33 * np.sqrt(0.95 * 0.05 / np.size(inside))
