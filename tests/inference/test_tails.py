"""Tails from noisy counts: the square root of running sums, excesses, clips."""

import numpy as np
import pytest

from privinf.glm.least_squares import quantile_of
from privinf.inference.tails import (
    FURTHER,
    ONCE_MORE_COSTS,
    SLOWEST_DECAY,
    SURE,
    VISIBLE_SDS,
    best_clip,
    confirmed_tail,
    squared,
    tail_of,
    two_threshold_clip,
    with_exponential_end,
)
from privinf.mechanisms.statistics.summands import counts_above, root_matrix, root_sensitivity

THRESHOLDS = 16.0 * 2.0 ** (-np.arange(24, 0, -1) / 4.0)


def counts_of(terms):
    return np.array([(terms > t).sum() for t in THRESHOLDS], dtype=float)


def exact_tail(terms, top=16.0):
    return tail_of(THRESHOLDS, counts_of(terms), np.full(len(THRESHOLDS), 1e-9), len(terms), top)


@pytest.mark.parametrize(("cells", "sensitivity"), [(8, 1.52), (20, 1.71), (40, 1.83)])
def test_the_root_of_running_sums(cells, sensitivity):
    root = root_matrix(cells)
    np.testing.assert_allclose(root @ root, np.triu(np.ones((cells, cells))), atol=1e-5)
    assert root_sensitivity(cells) == pytest.approx(sensitivity, abs=0.005)
    columns = np.column_stack([np.zeros(cells), root])
    distances = [np.linalg.norm(columns[:, i] - columns[:, j]) for i in range(cells) for j in range(i)]
    assert root_sensitivity(cells) >= max(distances)
    np.testing.assert_array_equal(np.ldexp(root, 24), np.rint(np.ldexp(root, 24)))


def test_counts_follow_from_their_release_and_their_noise_is_small():
    cells = np.arange(20.0)
    counts, sd = counts_above(root_matrix(20) @ cells, root_sensitivity(20))
    np.testing.assert_allclose(counts, np.cumsum(cells[::-1])[::-1], rtol=1e-6)
    assert sd[0] == pytest.approx(2.42, abs=0.01)
    assert sd[-1] == root_sensitivity(20)


@pytest.mark.parametrize("power", [2.2, 4.0])
def test_the_excess_is_that_of_the_terms(power):
    terms = np.minimum(np.random.default_rng(0).pareto(power, 200_000), 16.0)
    tail, clips = exact_tail(terms), np.array([0.3, 0.5, 1.0, 3.0, 8.0, 16.0])
    true = [np.maximum(terms - c, 0.0).sum() for c in clips]
    np.testing.assert_allclose(tail.excess(clips), true, rtol=0.06, atol=2.0)
    assert tail.above(1.0) == pytest.approx((terms > 1.0).sum(), rel=0.02)
    assert quantile_of(tail, 0.7) == pytest.approx(np.quantile(terms, 0.7), rel=0.05)
    squares = squared(tail).excess(np.array([4.0]))[0]
    assert squares == pytest.approx(np.maximum(terms**2 - 4.0, 0.0).sum(), rel=0.2)


def test_a_gap_does_not_hide_what_lies_beyond_it():
    terms = np.r_[np.full(1000, 0.4), np.full(60, 9.0)]
    sd = np.full(len(THRESHOLDS), 5.0)
    tail = tail_of(THRESHOLDS, counts_of(terms), sd, len(terms), 16.0)
    assert tail.thresholds[-1] >= 8.0
    assert tail.excess(np.array([4.0]))[0] >= 60 * 5.0


@pytest.mark.parametrize(
    ("seen", "false"), [(VISIBLE_SDS, 0.06), (2.5, 0.003)]
)  # .53 and .13 for counts alone
def test_a_far_count_that_stands_out_alone_is_noise_and_one_that_stands_on_others_is_seen(seen, false):
    """Beyond a bulk of eight thresholds nothing is found, but for its border; what lies beyond a gap is."""
    cells, bulk, far, releases = 50, 8, 30, 1500
    thresholds, rng = 16.0 * 2.0 ** (-np.arange(cells, 0, -1) / 4.0), np.random.default_rng(3)
    alone = beyond = 0
    for _ in range(releases):
        counts, sd = counts_above(rng.standard_normal(cells), 1.0)
        counts[:bulk] += 1e4 * 2.0 ** -np.arange(bulk)
        alone += len(tail_of(thresholds, counts, sd, 100_000, 16.0, visible_sds=seen).counts) > bulk + 4
        counts[: far + 1] += (seen + SURE) * sd[far]
        beyond += len(tail_of(thresholds, counts, sd, 100_000, 16.0, visible_sds=seen).counts) > far
    assert alone <= false * releases
    assert beyond >= 0.95 * releases


@pytest.mark.audit
def test_counts_far_out_are_asked_for_again_and_noise_does_not_pass_twice():
    """.002 to .005 are false (.016 to .025 by one look), a tail of 2.5 sds is seen as often as by one."""
    cells, bulk, far, releases = 40, 13, 34, 1500
    thresholds, rng = 2.0 ** (np.arange(cells) / 4.0), np.random.default_rng(4)
    first = np.r_[np.linspace(1e4, 400.0, bulk), np.zeros(cells - bulk)]

    def found(size):
        true = first.copy()
        true[: far + 1] += size * counts_above(true, root_sensitivity(cells))[1][far]

        def release_counts(some, part):
            scale, counts = (
                root_sensitivity(len(some)) / np.sqrt(part),
                true[np.searchsorted(thresholds, some)],
            )
            noise, sd = counts_above(scale * rng.standard_normal(len(some)), scale)
            return counts + noise, sd

        return (
            len(confirmed_tail(release_counts, thresholds, 100_000, 1.2 * thresholds[-1]).counts) > bulk + 6
        )

    assert np.mean([found(0.0) for _ in range(releases)]) <= 0.008
    assert np.mean([found(2.5) for _ in range(releases)]) >= 0.89
    assert np.mean([found(4.0) for _ in range(releases)]) >= 0.995


@pytest.mark.parametrize(
    "counts", [np.linspace(100.0, 10.0, 12), np.r_[np.linspace(100.0, 10.0, 6), 3.0, 2.0, np.zeros(4)]]
)
def test_counts_that_are_sure_or_near_are_asked_for_once(counts):
    thresholds, asked = 2.0 ** (np.arange(12) / 2.0), []

    def release_counts(some, part):
        asked.append(part)
        return counts.copy(), np.ones(12)

    tail = confirmed_tail(release_counts, thresholds, 1000, 50.0)
    np.testing.assert_array_equal(tail.counts, tail_of(thresholds, counts, np.ones(12), 1000, 50.0).counts)
    assert asked == [1.0]


@pytest.mark.parametrize(
    ("second", "end"), [([6.0, 5.0, -1.0], 8), ([0.3, 0.3, 0.3], 5), ([6.0, 5.0, 4.0], 11)]
)
def test_a_second_look_moves_the_end_of_the_counts_and_averages_them(second, end):
    thresholds, asked = 2.0 ** (np.arange(12) / 2.0), []
    counts = np.r_[np.linspace(100.0, 10.0, 4), np.full(8, 2.0)]

    def release_counts(some, part):
        asked.append((some, part))
        return (np.array(second), np.full(3, 0.5)) if len(asked) > 1 else (counts.copy(), np.ones(12))

    tail = confirmed_tail(release_counts, thresholds, 1000, 50.0)
    np.testing.assert_array_equal(asked[1][0], thresholds[[6, 8, 11]])
    assert asked[1][1] == ONCE_MORE_COSTS
    assert tail.thresholds[-1] == thresholds[end]
    mixed = counts.copy()
    mixed[[6, 8, 11]] = (mixed[[6, 8, 11]] + 4.0 * np.array(second)) / 5.0
    sd = np.ones(12)
    sd[[6, 8, 11]] = 5.0**-0.5
    alone = tail_of(thresholds[: end + 1], mixed[: end + 1], sd[: end + 1], 1000, 50.0)
    np.testing.assert_array_equal(tail.counts, alone.counts)
    assert (
        tail.hidden == VISIBLE_SDS + SURE
    )  # by the first look, whose counts decide whether there is a second


def test_nothing_seen_leaves_the_noise_as_a_bound():
    tail = tail_of(THRESHOLDS, np.zeros(len(THRESHOLDS)), np.full(len(THRESHOLDS), 5.0), 1000, 16.0)
    assert not tail.detected
    assert tail.counts.tolist() == [12.5]
    assert tail.excess(np.array([0.0]))[0] > 0.0


def test_clips_grow_with_the_budget_and_layers_cost_what_one_release_costs():
    terms = np.minimum(np.random.default_rng(0).pareto(3.0, 20_000), 16.0)
    tail = exact_tail(terms)
    clips = [two_threshold_clip(tail, 4, mu) for mu in (0.1, 1.0, 10.0, np.inf)]
    assert np.diff([clip.high for clip in clips]).min() > 0.0
    assert clips[-1].high == pytest.approx(16.0)
    for clip in clips:
        low, high = clip.shares()
        assert low + high == pytest.approx(1.0)
        noise2 = (2 * clip.low) ** 2 / low + clip.weight**2 * (2 * (clip.high - clip.low)) ** 2 / high
        assert noise2 == pytest.approx((2 * clip.effective_threshold) ** 2)
        assert clip.beyond == pytest.approx(float(tail.excess(np.array([clip.high]))[0]))
    assert clips[-1].ratio == 0.0
    assert best_clip(tail, lambda c: (c - 2.0) ** 2) == pytest.approx(2.0, rel=0.02)


def test_an_exponential_end_has_the_excess_of_exponential_terms():
    """Terms at one scale: the rate below the last threshold is theirs, and beyond it FURTHER times that."""
    rows, rate = 100_000, 0.8
    thresholds = 2.0 ** np.arange(-1.0, 3.1, 0.5)
    counts = rows * np.exp(-rate * thresholds)
    plain = tail_of(thresholds, counts, np.full(len(thresholds), 20.0), rows, 60.0)
    tail = with_exponential_end(plain)
    assert tail.rate == pytest.approx(FURTHER * rate, rel=0.02)
    last = float(tail.thresholds[-1])
    beyond = float(tail.excess(np.array([last]))[0])
    assert beyond == pytest.approx(float(tail.counts[-1]) / tail.rate, rel=1e-3)
    assert beyond < float(plain.excess(np.array([last]))[0])
    step = 1e-4
    slope = (
        float(tail.excess(np.array([last + 1.0]))[0] - tail.excess(np.array([last + 1.0 + step]))[0]) / step
    )
    assert slope == pytest.approx(tail.above(last + 1.0), rel=1e-3)


def test_an_exponential_end_of_one_count_decays_at_least_so_fast():
    tail = tail_of(np.array([2.0]), np.array([50.0]), np.array([1.0]), 100, 20.0)
    assert with_exponential_end(tail).rate == SLOWEST_DECAY / 2.0
