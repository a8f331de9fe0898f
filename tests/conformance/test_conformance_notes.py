"""Notes of every model: at most four are printed, each of one short sentence; weak columns are named."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
from conformance.members import KINDS_OF_FIT, fits_of

import privinf as pi
from privinf.federation import InProcessFederation, Site, SitePolicy
from privinf.inference.quantiles import MeanClip
from privinf.lasso.diagnostics import Detection, MissedColumnTest, cost_notes
from privinf.lasso.selection import SelectionRelease
from privinf.results.notes import MAIN_NOTES
from privinf.results.summary import WEAK_WARNINGS
from privinf.wire import Labels

pytestmark = pytest.mark.filterwarnings("ignore::privinf.errors.PrivinfWarning")
EVERY = pytest.mark.parametrize("name", KINDS_OF_FIT)
MOST_WORDS = 35
SENTENCE_END = re.compile(r"[.!?] +[A-Z]")
N = 9000
SCHEMA = pi.Schema(
    {"x": (-1.0, 1.0), "g": ["u", "v", "w"], "y": (0.0, 4.0), "z": (0.0, 1.0), "k": (0.0, 5.0)}
)
WEAK_BUDGET = {"Poisson": 0.15}
RESPONSE = {"OLS": "y", "Logit": "z", "Poisson": "k", "MomentOLS": "y"}


def printed(summary):
    """Return the notes that a summary prints, without their numbers and the line that counts the rest."""
    return [line.partition("] ")[2] for line in summary.numbered_notes if line.startswith("[")]


def rows(share):
    """Return a table; `share` of the rows have the third level of g."""
    rng = np.random.default_rng(3)
    x = rng.uniform(-1.0, 1.0, N)
    g = rng.choice(["u", "v", "w"], N, p=[0.6 - share, 0.4, share])
    z = (rng.uniform(size=N) < 1.0 / (1.0 + np.exp(-x))).astype(float)
    y = np.clip(1.5 + 0.5 * x + rng.normal(0.0, 0.4, N), 0.0, 4.0)
    return pd.DataFrame({"x": x, "g": g, "y": y, "z": z, "k": np.minimum(rng.poisson(np.exp(0.3 * x)), 5)})


def sites(table):
    policy = SitePolicy(trusted_server=True, simulation=True)
    return InProcessFederation({str(k): Site(table.iloc[k::3], SCHEMA, policy=policy) for k in range(3)})


def fit_of(model, kind):
    """Return a clean fit, one with a level that nearly nobody has at a small budget, or one over sites."""
    table = rows(0.004 if kind == "weak" else 0.2)
    data = sites(table) if kind == "federated" else table
    options = {"trust": "server"} if kind == "federated" else {}
    made = getattr(pi, model).from_formula(f"{RESPONSE[model]} ~ x + C(g)", data, schema=SCHEMA, **options)
    covariance = {"cov_type": "HC0"} if model == "MomentOLS" else {}
    budget = {"clean": 4.0, "federated": 4.0, "weak": WEAK_BUDGET.get(model, 0.4)}[kind]
    return made.fit(epsilon=budget, delta=1e-6, rng=0, **covariance)


def check_sentence(note):
    """Raise AssertionError unless a note is one sentence of at most 35 words."""
    assert len(note.split()) <= MOST_WORDS, note
    assert note.endswith("."), note
    assert not SENTENCE_END.search(note), note


@EVERY
def test_a_summary_prints_at_most_four_notes_each_of_one_short_sentence(name):
    for result in fits_of(name)[0]:
        summary = result.summary()
        if isinstance(summary, str):  # of several sites
            continue
        notes = printed(summary)
        assert len(notes) <= MAIN_NOTES
        assert sum(note.rank == "must-read" for note in summary.ranked_notes) <= MAIN_NOTES
        for note in notes:
            check_sentence(note)


@EVERY
def test_the_head_of_a_summary_says_what_is_flagged(name):
    for result in fits_of(name)[0]:
        summary = result.summary()
        if isinstance(summary, str):
            continue
        facts = summary.plain_facts
        categories = [category for category, _ in result._inference.interval_warnings]
        flagged = not result._inference.has_intervals or any(
            issubclass(one, WEAK_WARNINGS) for one in categories
        )
        assert bool({"Weak for", "See notes for", "Convergence", "Standard errors"} & set(facts)) == flagged
        assert not ("Standard errors" in facts and result.identification.weak)
        if flagged:
            assert "not flagged" not in str(summary)
            assert any(note.rank == "must-read" for note in summary.ranked_notes)
        assert ("Privacy" in facts) == bool(result.privacy.stamp)
        assert facts.get("Response", "").endswith("is NOT protected") == result.privacy.response_in_clear
        assert facts.get("Sites") != "1"
        assert "trusted" not in str(facts.get("Method", ""))
        assert "trusted" not in facts.get("Wald intervals", "")


@pytest.mark.parametrize("model", list(RESPONSE))
@pytest.mark.parametrize(("kind", "most"), [("clean", 2), ("weak", 4), ("federated", 4)])
def test_a_clean_fit_has_two_notes_and_others_four(model, kind, most):
    result = fit_of(model, kind)
    summary = result.summary()
    assert len(printed(summary)) <= most, printed(summary)
    assert ("Weak for" in summary.plain_facts) == (kind == "weak")
    if kind == "weak" and model != "MomentOLS":
        assert "C(g)[T.w]" in summary.plain_facts["Weak for"]


def test_the_columns_of_notes_survive_saving(tmp_path):
    result = fit_of("OLS", "weak")
    result.save(tmp_path / "fit.npz")
    read = pi.load_results(tmp_path / "fit.npz")
    assert [note.columns for note in read.summary().ranked_notes] == [
        note.columns for note in result.summary().ranked_notes
    ]
    assert read.summary().plain_facts["Weak for"] == result.summary().plain_facts["Weak for"]


def test_single_coefficients_are_named_where_the_joint_check_is_passed():
    """Costs: a tenth of the rows have long errors of one sign, so that the tail may be that group's."""
    rng = np.random.default_rng(1)
    n = 20_000
    d = (rng.uniform(size=n) < 0.02).astype(float)
    y = np.clip(rng.exponential(1.0, n) * (1.0 + 15.0 * d), 0.0, 200.0)
    schema = pi.Schema({"d": (0.0, 1.0), "x": (-1.0, 1.0), "y": (0.0, 200.0)})
    table = pd.DataFrame({"d": d, "x": rng.uniform(-1.0, 1.0, n), "y": y})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = pi.OLS.from_formula("y ~ x + d", table, schema=schema).fit(epsilon=1.0, delta=1e-6, rng=1)
        assert not result.identification.weak
        facts = result.summary().plain_facts
        assert facts["See notes for"] == "d"
        assert "Weak for" not in facts


MISSED = {
    "none": {},
    "none, others dropped, no correlations": {"standing_out": 2, "correlation": 1.0},
    "joined": {"found": ("one", "two", "three", "four"), "standing_out": 4},
    "exhausted": {"found": ("one", "two", "three", "four"), "exhausted": True, "standing_out": 5},
    "fading": {"faint": 3},
    "fading and joined": {"faint": 5, "found": ("one",)},
}


@pytest.mark.parametrize("name", MISSED)
def test_notes_on_omitted_columns_are_single_sentences(name):
    settings = {
        "column": "five",
        "statistic": 6.61,
        "pvalue": 1.1e-8,
        "columns": 278,
        "kept": 80,
        "standing_out": 0,
        "found": (),
        "exhausted": False,
        "seen_from": 5.2,
        "correlation": 0.032,
        "bias": (0.01, 0.02),
        "bias_in_errors": 0.17,
    }
    test = MissedColumnTest(**(settings | MISSED[name]))
    notes = test.ranked_notes
    assert notes[0].text == test.note
    assert [note.rank == "must-read" for note in notes] == [test.doubtful] + [False] * (len(notes) - 1)
    assert len(notes) > 1
    for note in notes:
        check_sentence(note.text)


@pytest.mark.parametrize(
    ("bias", "crowded", "hidden"), [(0.0, False, True), (0.1, True, False), (1.24, False, False)]
)
def test_notes_on_selections_from_secure_sums_are_single_sentences(bias, crowded, hidden):
    releases = tuple(
        SelectionRelease(
            label=label, entries=4000, radius=8.1, sd=0.0123, found_from=0.0456, sampling_sd=0.01
        )
        for label in (Labels.SELECTION, Labels.NEIGHBOURS)
    )
    detection = Detection(releases=releases, unseen=3, bias=bias, crowded=crowded, hidden=hidden)
    assert detection.weak
    assert detection.details
    for note in (detection.warning, *detection.details, *cost_notes(releases, 200)):
        check_sentence(note)


def test_notes_on_a_chosen_clip_are_single_sentences():
    clip = MeanClip(low=-1.23456, high=98765.4, below=1.2, above=3.4, most=(12.3, 45.6), rest=(0.1, 2.3))
    for note in (clip.note(20_000), clip.caution(20_000), clip.counts(20_000)):
        check_sentence(note)
    x = np.random.default_rng(0).lognormal(0.0, 0.75, 20_000)
    results = [pi.stats.mean(x, bounds=(0, 60), clip="auto", mu=0.5, rng=1)]
    results.append(
        pi.stats.anova_oneway(x, np.arange(20_000) % 2, levels=[0, 1], bounds=(0, 60), mu=0.5, rng=1)
    )
    for result in results:
        assert len(printed(result.summary())) <= MAIN_NOTES
        for note in result.notes:
            check_sentence(note)
