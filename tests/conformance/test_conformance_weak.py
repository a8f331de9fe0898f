"""Every way to an interval or a p-value warns where the fit is weak: silent ones are counted, and are none.

Members of results are enumerated from the classes, so that a new one is among them by itself.
"""

import inspect
import warnings
from dataclasses import replace

import numpy as np
import pytest
from conformance.members import KINDS_OF_FIT, WITHHELD, fits_of

import privinf as pi
from privinf import marginaleffects
from privinf.errors import NotAvailableError, NotPositiveDefiniteError, WeakIdentificationWarning
from privinf.inference.intervals import JointDistribution, Precision
from privinf.inference.score_test import Identification
from privinf.lasso.results import LassoResults
from privinf.results import Results, cautions
from privinf.results.fitted import FittedResult

EVERY = pytest.mark.parametrize("name", KINDS_OF_FIT)
TOO_WEAK = Identification(statistic=0.5, threshold=2.0, weak=True, smallest_eigenvalue=0.01, noise_edge=0.02)
# How to go through each entry point: a call for every method that is neither silent nor marked.
CALLS = {
    "conf_int": lambda r: r.conf_int(),
    "tidy": lambda r: r.tidy(),
    "delta_method": lambda r: r.delta_method(lambda b: b.iloc[0] ** 2).conf_int(),
    "get_prediction": lambda r: r.get_prediction(np.ones((1, len(r.names))), transform=False).summary_frame(),
    "t_test": lambda r: r.t_test(np.eye(len(r.names))[0]).conf_int(),
    "wald_test": lambda r: r.wald_test(np.eye(len(r.names))),
    "f_test": lambda r: r.f_test(np.eye(len(r.names))),
    "t_test_pairwise": lambda r: r.t_test_pairwise("C(g)"),
    "wald_test_terms": lambda r: r.wald_test_terms(),
    "compare_f_test": lambda r: r.compare_f_test(smaller(r)),
    "simultaneous": lambda r: r.simultaneous(rng=0).conf_int(),
    "bootstrap": lambda r: r.bootstrap(20, rng=0).conf_int(),
    "draws": lambda r: r.draws(10, rng=0),
    "to_arviz": lambda r: r.to_arviz(10, rng=0),
    "plot": lambda r: r.plot(),
    "odds_ratios": lambda r: r.odds_ratios(),
    "rate_ratios": lambda r: r.rate_ratios(),
    "hazard_ratios": lambda r: r.hazard_ratios(),
    "get_margeff": lambda r: r.get_margeff("mean"),
    "alpha_conf_int": lambda r: r.alpha_conf_int(),
    "max_test": lambda r: r.max_test(rng=0),
    "agreement": lambda r: r.agreement(),
    "summary_frame": lambda r: r.summary_frame(),
}
# What a fit may refuse, for reasons of its own.
REFUSED = (NotAvailableError, NotPositiveDefiniteError, pi.errors.ArgumentError)


def made_weak(result):
    """Return the result as if the noise had left it too little."""
    known = result._context
    if isinstance(result, LassoResults):
        return result._with(result.estimate, replace(known, settings={**known.settings, "astray": True}))
    return result._with(result.estimate, replace(known, identification=TOO_WEAK))


def hidden(weak):
    """Return a weak result with all its coefficients marked, where they have score tests of their own."""
    if weak._inference.single is not None:
        marked = replace(weak._inference.single, hidden=np.ones(len(weak.names), dtype=bool))
        object.__setattr__(weak._inference, "single", marked)
    return weak


def smaller(result):
    """Return a fit of the same release without the last slope."""
    if type(result) is not Results or "formula" not in result._context.settings:
        raise NotAvailableError("this fit is of one formula")
    left, right = result._context.design.formula.split("~")
    return result.release.regress(f"{left} ~ {right.rsplit('+', 1)[0]}")


def asked(result, ask):
    """Return whether an entry point gave something, and the warnings of weakness on the way."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            ask(result)
        except REFUSED:
            return False, []
    return True, [one for one in told if issubclass(one.category, WeakIdentificationWarning)]


def doors_of(kind):
    """Return the public members of a class of results that must warn, with the way through each."""
    found = {}
    for name in dir(kind):
        if name.startswith("_") or name in cautions.SILENT | cautions.MARKED | WITHHELD:
            continue
        member = inspect.getattr_static(kind, name)
        if isinstance(member, property):
            found[name] = lambda result, name=name: getattr(result, name)
        else:
            assert name in CALLS, f"{name}: say here how it is called, or that it gives no interval"
            found[name] = CALLS[name]
    return found


def kinds_of_results():
    assert [pi.ModulatedOLS, pi.IWPGLM, pi.RMGMOLS, pi.FederatedGLM, pi.DebiasedLasso]  # which import theirs
    waiting, found = [FittedResult], []
    while waiting:
        kind = waiting.pop()
        found.append(kind)
        waiting += kind.__subclasses__()
    return found


@pytest.mark.audit
@EVERY
def test_no_door_to_an_interval_is_silent_in_a_weak_fit(name):
    """Each warns once, whatever other members it goes through, or refuses."""
    silent, noisy = [], []
    for result in fits_of(name)[0]:
        if not isinstance(result, Results) or result.estimate.cov is None:
            continue
        weak = made_weak(result)
        expected = len(asked(weak, lambda one: one._warn_if_weak("intervals"))[1])
        assert expected >= 1
        for entry_point, ask in doors_of(type(weak)).items():
            # Where coefficients have score tests of their own, only the hidden ones are warned of.
            single = entry_point in cautions.SINGLE and weak._inference.single is not None
            harmless = single and not len(weak.weakly_identified)
            gave, told = asked(weak, ask)
            silent += [entry_point] * (gave and not told and not harmless)
            noisy += [entry_point] * (len(told) > (0 if harmless else expected))
    assert silent == []
    assert noisy == []


@pytest.mark.audit
@EVERY
def test_what_does_not_warn_says_it_in_what_it_returns(name):
    for result in fits_of(name)[0]:
        if not isinstance(result, Results) or result.estimate.cov is None:
            continue
        weak = hidden(made_weak(result))
        with warnings.catch_warnings():
            warnings.simplefilter("error", WeakIdentificationWarning)
            told, line = weak.to_dict(), weak.glance().iloc[0]
            summary, entry = str(weak.summary()), weak.to_maketables()
            papers = weak.to_latex(), weak.to_html(cells="ci")
        assert "WeakIdentification" in line["cautions"]
        assert line["weak"]
        assert told["fit"]["weak"]
        assert any(one["kind"] == "WeakIdentification" for one in told["cautions"])
        assert "WeakIdentification" in entry.facts["cautions"]
        assert all("WeakIdentification" in paper for paper in papers)
        if not isinstance(result, LassoResults):  # which says it in notes that its fit made
            assert "Weak for:" in summary
            assert "not flagged" not in summary
            assert "Weak identification" in summary


@EVERY
def test_silent_members_ask_nothing_of_normal_inference(name, monkeypatch):
    """Members that do not warn never come to the functions that make half-lengths and p-values."""
    results = fits_of(name)[0]  # a fit itself compares lengths of average effects
    came = []
    members = ((Precision, ("half_length", "pvalues", "half_width")), (JointDistribution, ("pvalue",)))
    for kind, words in members:
        for word in words:
            plain = getattr(kind, word)

            def watched(*args, plain=plain, word=word):
                came.append(word)
                return plain(*args)

            monkeypatch.setattr(kind, word, watched)
    for result in results:
        if not isinstance(result, Results):
            continue
        for member in cautions.SILENT - {"save", "load", "cautions", "default_model_infos"}:
            found = inspect.getattr_static(type(result), member, None)
            if isinstance(found, property) or type(found).__name__ == "cached_property":
                asked(result, lambda one, member=member: getattr(one, member))
            elif member in ("cov_params", "score_test", "explained_shares"):
                asked(result, lambda one, member=member: getattr(one, member, lambda: None)())
            assert came == [], member


def test_silent_and_marked_members_exist():
    """A name that no class has any more would hide a member that is called so later."""
    every = {name for kind in kinds_of_results() for name in vars(kind)}
    assert every >= cautions.SILENT | cautions.MARKED
    assert not cautions.SILENT & cautions.MARKED
    assert set(CALLS) <= every


def test_a_new_member_of_a_new_class_warns_by_itself():
    class NewResults(Results):
        def interval_of_the_sum(self):
            total = self.estimate.linear(np.ones((1, len(self.names))))
            return total

        @property
        def chance(self):
            return self.pvalues.min()

    weak = of_five_thousand_rows()
    new = NewResults._with(NewResults.__new__(NewResults), weak.estimate, weak._context)
    for ask in (lambda one: one.interval_of_the_sum(), lambda one: one.chance):
        assert len(asked(new, ask)[1]) == 1


def of_five_thousand_rows():
    """The fit of the issue: joint coverage of its intervals is .75 where .95 is asked."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (5000, 2))
    y = X @ [1.0, -1.0] + 0.1 * rng.standard_normal(5000)
    return pi.ModulatedOLS(y, X, radius=1.0, response="public").fit(epsilon=9.0, delta=1e-6, rng=0)


@pytest.mark.audit
def test_the_doors_of_the_issue_and_functions_that_take_results(tmp_path):
    plots = pytest.importorskip("matplotlib.pyplot")
    from statsmodels.iolib.summary2 import summary_col

    weak = of_five_thousand_rows()
    assert weak.identification.weak
    rows = np.array([[0.1, 0.2], [0.3, 0.1]])
    entry_points = {
        "simultaneous": lambda r: r.simultaneous(rng=0).conf_int(),
        "bootstrap": lambda r: r.bootstrap(50, rng=0).conf_int(),
        "get_prediction": lambda r: r.get_prediction(rows).conf_int(),
        "pvalues": lambda r: r.pvalues,
        "pvalues again": lambda r: r.pvalues,
        "delta method": lambda r: r.delta_method(lambda b: b[0] / b[1]).conf_int(),
        "compare": lambda r: pi.compare({"a": r}).pvalues,
        "coefficients": lambda r: pi.plotting.coefficients(r, simultaneous=True),
        "bands": lambda r: pi.plotting.bands(r, rows, [0.0, 1.0]),
    }
    found = {name: asked(weak, ask) for name, ask in entry_points.items()}
    times = {name: (gave, len(told)) for name, (gave, told) in found.items()}
    assert times == dict.fromkeys(entry_points, (True, 1))
    assert all(told[0].filename == __file__ for _, told in found.values())  # the line of the caller
    assert len(asked(weak, lambda r: summary_col([r]))[1]) >= 1
    gave, told = asked(weak, lambda r: r.report(tmp_path / "page.html"))
    assert gave
    assert not told
    assert "WeakIdentification" in (tmp_path / "page.html").read_text()
    plots.close("all")


def test_score_intervals_do_not_warn():
    weak = of_five_thousand_rows()
    assert asked(weak, lambda r: r.conf_int(method="score")) == (True, [])
    assert asked(weak, lambda r: r.conf_int(0.1, "score")) == (True, [])
    assert asked(weak, lambda r: r.score_test()) == (True, [])


def test_marginaleffects_warns_once():
    pytest.importorskip("marginaleffects")
    import pandas as pd

    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"x": rng.uniform(-1, 1, 300)}).assign(y=lambda rows: rows.x)
    fit = pi.ModulatedOLS.from_formula("y ~ x", frame, schema=pi.Schema({"x": (-1, 1), "y": (-2, 2)}))
    weak = made_weak(fit.fit(epsilon=30.0, delta=1e-6, rng=0))
    assert len(asked(weak, lambda r: marginaleffects.model_of(r, frame.head(3)))[1]) == 1
