import sys
import warnings

import numpy as np
import pandas as pd
import pytest

from privinf import plotting
from privinf.accounting import PrivacyReport
from privinf.errors import ArgumentError, NotAvailableError
from privinf.inference.corrected_features import CorrectedLeastSquares
from privinf.inference.estimate import Estimate
from privinf.results import Results
from privinf.results.context import Context
from privinf.schema import Design

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def weak(results):
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (2000, 2))
    system = CorrectedLeastSquares(x + 5 * rng.standard_normal(x.shape), x[:, 0], 25 * np.eye(2))
    design = Design.from_arrays(["x1", "x2"], bounds=[(-1, 1)] * 2)
    estimate = Estimate(
        params=np.array([1.0, 2.0]), cov=None, names=("x1", "x2"), nobs=2000, weak_reason="noise"
    )
    return Results(estimate, Context(report=results.privacy, design=design, system=system))


def texts(figure):
    """Boxes of all visible texts, in pixels."""
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    undrawn = set()  # labels of ticks outside the limits
    for axis in (axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)):
        low, high = sorted(axis.get_view_interval())
        undrawn |= {t.label1 for t in axis.get_major_ticks() if not low <= t.get_loc() <= high}
    found = [t for t in figure.findobj(matplotlib.text.Text) if t not in undrawn and t.get_text().strip()]
    found = [t for t in found if t.get_visible()]
    return {f"{t.get_text()}-{k}": t.get_window_extent(renderer) for k, t in enumerate(found)}


def assert_readable(figure):
    """No text overlaps another or leaves the figure."""
    boxes = texts(figure)
    names = list(boxes)
    for place, name in enumerate(names):
        box = boxes[name]
        assert box.x0 >= -1, name
        assert box.x1 <= figure.bbox.x1 + 1, name
        assert box.y0 >= -1, name
        for other in names[place + 1 :]:
            assert not box.padded(-1.0).overlaps(boxes[other].padded(-1.0)), (name, other)


def segments(ax, color):
    lines = [c for c in ax.collections if matplotlib.colors.to_hex(c.get_edgecolor()[0]).upper() == color]
    return np.array([s[:, 0] for c in lines for s in c.get_segments()])


def test_coefficients_show_both_intervals(results):
    ax = results.plot(alpha=0.1)
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names == [name for name in results.names if name != "Intercept"]
    np.testing.assert_allclose(segments(ax, plotting.TOTAL), results.conf_int(0.1).loc[names])
    center = results.params[names].to_numpy()
    inner = segments(ax, plotting.NOISE_FREE)
    np.testing.assert_allclose(inner.mean(axis=1), center)
    total = results.conf_int(0.1).loc[names]
    np.testing.assert_allclose(np.ptp(inner, axis=1), np.sqrt(0.7) * (total[1] - total[0]))
    assert_readable(ax.figure)


def test_joint_intervals_are_longer(results):
    ax = plotting.coefficients(results, simultaneous=True, rng=0)
    joint, total = segments(ax, plotting.JOINT), segments(ax, plotting.TOTAL)
    assert (np.ptp(joint, axis=1) > np.ptp(total, axis=1)).all()
    assert_readable(ax.figure)


def test_chosen_coefficients_and_given_axes(results):
    _, axes = plt.subplots(1, 2)
    ax = plotting.coefficients(results, which=["x2", "Intercept"], ax=axes[1])
    assert ax is axes[1]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["x2", "Intercept"]
    with pytest.raises(ArgumentError, match="'z'"):
        plotting.coefficients(results, which=["z"])


def test_long_names_stay_readable(results):
    e = results.estimate
    names = tuple(f"C(education, Treatment('none'))[T.a rather long level {j}]" for j in range(6))
    ax = plotting.coefficients(
        Results(
            Estimate(params=e.params, cov=e.cov, names=names, nobs=e.nobs), Context(report=results.privacy)
        )
    )
    assert len({label.get_text() for label in ax.get_yticklabels()}) == 6
    assert_readable(ax.figure)


def test_weak_fits_show_score_intervals_with_arrows(weak):
    ax = weak.plot()
    markers = [line.get_marker() for line in ax.lines if len(line.get_xdata())]
    unbounded = np.isinf(weak.conf_int(method="score").to_numpy())
    assert unbounded.any()
    assert ("<" in markers) == unbounded[:, 0].any()
    assert (">" in markers) == unbounded[:, 1].any()
    assert np.isfinite(ax.get_xlim()).all()
    assert_readable(ax.figure)


def test_simulations_are_stamped(results, make_entry):
    report = PrivacyReport.from_entries([make_entry(secure=False)])
    e = results.estimate
    for ax in (plotting.coefficients(Results(e, Context(report=report))), plotting.budget(report)):
        assert any("NOT PRIVATE" in text.get_text() for text in ax.texts)


def test_bands(results):
    x = pd.Series(np.linspace(-1, 1, 20), name="x1")
    rows = pd.DataFrame({"x1": x, "x2": 0.0, "g": "a"})
    ax = plotting.bands(results, rows, x)
    expected = results.get_prediction(rows)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), expected.predicted_mean)
    total = ax.collections[0].get_paths()[0].get_extents()
    interval = expected.conf_int()
    assert total.y0 == pytest.approx(interval[0].min())
    assert total.y1 == pytest.approx(interval[1].max())
    joint = (
        plotting.bands(results, rows, x, simultaneous=True, rng=0).collections[0].get_paths()[0].get_extents()
    )
    assert joint.y1 > total.y1
    assert_readable(ax.figure)
    with pytest.raises(ArgumentError, match="shape"):
        plotting.bands(results, rows, x[:-1])


def test_budget(make_entry):
    report = PrivacyReport.from_entries([make_entry(), make_entry(mu=0.5)], delta=1e-5)
    ax = plotting.budget(report)
    widths = [bar.get_width() for bar in ax.patches]
    np.testing.assert_allclose(widths, [*report.releases["epsilon"], report.epsilon(1e-5)])
    assert widths[2] < widths[0] + widths[1]
    assert_readable(ax.figure)
    with pytest.raises(NotAvailableError, match="nothing"):
        plotting.budget(PrivacyReport.from_entries([]))
    with pytest.raises(NotAvailableError, match="without noise"):
        plotting.budget(PrivacyReport.from_entries([make_entry(mu=np.inf)]))


def test_noise_share(results):
    ax = plotting.noise_share(results)
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches[6:]], results.noise_share)
    assert_readable(ax.figure)


def test_the_extra_is_named_where_matplotlib_is_absent(results, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(NotAvailableError, match=r"privinf\[plots\]"):
        results.plot()


def test_extras_of_draws_are_named(results, monkeypatch):
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(NotAvailableError, match=r"privinf\[arviz\]"):
        results.draws(10)
    monkeypatch.delitem(sys.modules, "xarray")
    pytest.importorskip("xarray")
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(NotAvailableError, match=r"privinf\[arviz\]"):
        results.to_arviz(10)


def test_arviz_plots_draws_as_they_are(results):
    """One panel a coefficient, and two fits in one forest."""
    az = pytest.importorskip("arviz")
    container = results.to_arviz(500, rng=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the plots' own libraries
        panels = az.plot_posterior(container, hdi_prob=0.9, ref_val=0.0)
        (forest,) = az.plot_forest([container, container], model_names=["one", "two"], hdi_prob=0.9)
    titles = [panel.get_title() for panel in np.ravel(panels) if panel.get_title()]
    assert [title.split("\n")[-1] for title in titles] == list(results.names)
    told = " ".join(label.get_text() for label in forest.get_yticklabels())
    assert all(name in told for name in results.names)
