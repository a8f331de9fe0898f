"""What messages, headings and advice say: they name what there is, and what helps."""

import ast
import inspect
import textwrap
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import privinf as pi
from privinf.accounting import Budget, Ledger, PrivacyReport
from privinf.errors import AlignmentError, ArgumentError, NotAvailableError, SchemaError
from privinf.federation import InProcessFederation, Site, SitePolicy
from privinf.glm import advice
from privinf.moments.analyses import Analyses

SCHEMA = pi.Schema(
    {"y": (-4.0, 4.0), "x": (-1.0, 1.0), "z": (-1.0, 1.0), "age": (18.0, 95.0), "g": ["a", "b"]}
)
SPENT = {"epsilon": 2.0, "delta": 1e-6, "rng": 0}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(rng.uniform(-1.0, 1.0, (4000, 2)), columns=["x", "z"])
    frame["y"] = 1.0 + frame["x"] - frame["z"] + rng.normal(0.0, 0.3, len(frame))
    return frame


@pytest.fixture(scope="module")
def release(rows):
    return pi.MomentOLS.from_formula("y ~ x + z", rows, schema=SCHEMA).release(**SPENT)


# ---- covariances


def test_an_equal_variance_note_advises_what_the_result_could_have_had(rows, release):
    fitted = pi.MomentOLS.from_formula("y ~ x + z", rows, schema=SCHEMA).fit(**SPENT)
    notes = " ".join(str(fitted.summary()).split())
    assert "pass cov_type='HC0'" in notes
    for read in (release.regress("y ~ x"), release.regress()):
        notes = " ".join(str(read.summary()).split())
        assert "robust standard errors need" in notes
        assert "a new release of the rows" in notes


def test_instruments_have_no_other_covariance(release):
    notes = " ".join(str(release.iv("y ~ [x ~ z]").summary()).split())
    assert "two-stage least squares on a release has no robust covariance" in notes
    assert "HC0" not in notes


def test_a_refused_covariance_is_answered_with_one_that_there_is(rows, release):
    with pytest.raises(NotAvailableError, match=r"MomentOLS.from_formula\(formula, rows") as refused:
        release.regress("y ~ x", cov_type="HC0")
    assert "only cov_type='nonrobust'" in str(refused.value)
    robust = pi.MomentOLS.from_formula("y ~ x + z", rows, schema=SCHEMA).release(cov_type="HC0", **SPENT)
    with pytest.raises(NotAvailableError, match=r"release\.regress\(cov_type='HC0'\) without a formula"):
        robust.regress("y ~ x", cov_type="HC0")
    assert robust.regress(cov_type="HC0").cov_type == "HC0"
    local = pi.MomentOLS.from_formula("y ~ x + z", rows, schema=SCHEMA, trust="local").release(**SPENT)
    with pytest.raises(NotAvailableError, match="Leave cov_type= out, or pass cov_type='HC0'"):
        local.regress("y ~ x", cov_type="nonrobust")
    assert local.regress("y ~ x", cov_type="HC0").cov_type == "HC0"


def test_a_release_of_clusters_offers_its_clusters(rows):
    schema = pi.Schema(dict(SCHEMA.columns), unit="person", max_rows=2)
    frame = rows.assign(person=np.arange(len(rows)) // 2)
    release = pi.MomentOLS.from_formula("y ~ x + z", frame, schema=schema, trust="local").release(**SPENT)
    with pytest.raises(NotAvailableError, match="only cov_type='cluster'"):
        release.regress("y ~ x", cov_type="HC0")
    assert Analyses(release).regress("y ~ x", cov_type="cluster").cov_type == "cluster"


# ---- privacy reports


def test_the_report_on_a_ledger_is_headed_as_the_ledgers(rows):
    ledger = Ledger(pi.Budget(epsilon=100.0, delta=1e-6))
    model = pi.MomentOLS.from_formula("y ~ x + z", rows, schema=SCHEMA, ledger=ledger)
    model.fit(**SPENT)
    report = model.fit(**SPENT).privacy
    assert str(report).startswith("Privacy of this fit\n")
    for text in (str(report.cumulative), report.cumulative._repr_html_()):
        assert "Privacy of all releases together (the entire ledger)" in text
        assert "this fit" not in text.replace("at the end of this fit", "")
    assert report.cumulative.subject == "ledger"


def test_the_total_of_a_fit_without_a_ledger_is_not_called_the_ledgers(rows):
    alone = pi.MomentOLS.from_formula("y ~ x + z", rows, schema=SCHEMA).fit(**SPENT).privacy
    for text in (str(alone.cumulative), alone.cumulative._repr_html_()):
        assert "all known releases together (releases in other ledgers, or in none, add to it)" in text
        assert "entire ledger" not in text
    ledger = Ledger(pi.Budget(epsilon=100.0, delta=1e-6))
    limited = pi.MomentOLS.from_formula("y ~ x + z", rows, schema=SCHEMA, ledger=ledger).fit(**SPENT)
    assert "(the entire ledger)" in str(limited.privacy.cumulative)


def test_a_release_and_a_party_are_no_fit(rows, release):
    assert str(release.privacy).startswith("Privacy of this release\n")
    parties = pi.DGMOLS.from_formula(
        "y ~ x + z",
        rows,
        schema=pi.Schema({name: SCHEMA[name] for name in ("y", "x", "z")}),
        parties={"A": ["y", "x"], "B": ["z"]},
    ).fit(**SPENT)
    assert str(parties.privacy.party("A")).startswith("Privacy of one party's releases\n")


@pytest.mark.parametrize("ledger", [None, Ledger(), Ledger(Budget(epsilon=5.0, delta=1e-6))])
@pytest.mark.parametrize("model", [pi.MomentOLS, pi.ModulatedOLS])
def test_a_fit_from_a_release_has_spent_nothing_and_says_what_the_release_cost(model, ledger, rows, tmp_path):
    made = model.from_formula("y ~ x + z", rows, schema=SCHEMA).release(**SPENT)
    made.save(tmp_path / "release.npz")
    read = model.from_release(pi.load_release(tmp_path / "release.npz"), ledger=ledger).fit()
    report, facts = read.privacy, read.summary().plain_facts
    assert (report.subject, report.elsewhere) == ("earlier release", len(made.entries))
    assert facts["Spent by this fit"].startswith("0 ")
    assert facts["Release, epsilon (delta=1e-06)"] == "2"
    assert "Epsilon, whole ledger" not in facts
    text = str(report)
    assert text.startswith("Privacy of the release that this fit was made from\n")
    assert "spent by this fit  nothing" in text
    assert list(report.to_frame()) == ["its release", "cumulative"]
    if ledger is not None and ledger.budget is not None:
        count = f"{len(made.entries)} release"
        assert f"Ledger at the end of this fit, including {count}" in text
        assert "charged to another ledger" in text
    assert PrivacyReport.from_dict(report.to_dict()) == report


def test_an_earlier_release_stands_beside_what_the_ledger_holds(rows, release):
    ledger = Ledger()
    pi.MomentOLS.from_formula("y ~ x + z", rows, schema=SCHEMA, ledger=ledger).fit(**SPENT)
    facts = pi.MomentOLS.from_release(release, ledger=ledger).fit().summary().plain_facts
    assert facts["Release, epsilon (delta=1e-06)"] == "2"
    assert float(facts["Epsilon, whole ledger"].split()[0]) > 2.5


def test_a_new_fit_is_no_earlier_release(rows):
    fitted = pi.MomentOLS.from_formula("y ~ x + z", rows, schema=SCHEMA).fit(**SPENT)
    assert (fitted.privacy.subject, fitted.privacy.elsewhere) == ("fit", 0)
    assert "Spent by this fit" not in fitted.summary().plain_facts
    assert "subject" not in fitted.privacy.to_dict()


# ---- policies


@pytest.mark.parametrize(
    ("policy", "named", "unnamed"),
    [
        (SitePolicy(), ["trusted_server=True", "secure_sums=True"], []),
        (
            SitePolicy(new_designs=0),
            ["do both: (1)", "trusted_server=True", "secure_sums=True", "(2)", "new_designs=..."],
            [],
        ),
        (
            SitePolicy(trusted_server=True, new_designs=0),
            ["designs=[...]", "new_designs=..."],
            ["secure_sums"],
        ),
    ],
)
def test_a_policy_that_takes_no_designs_says_which_field_to_change(policy, named, unnamed):
    with pytest.raises(NotAvailableError, match="allows no regressions") as refused:
        policy.allow_designs()
    assert all(name in str(refused.value) for name in named)
    assert not any(name in str(refused.value) for name in unnamed)


def test_what_a_policys_message_advises_is_enough():
    for options in ({"trusted_server": True}, {"secure_sums": True}):
        SitePolicy(**options).allow_designs()
        SitePolicy(**options).allow_reservations()
    with pytest.raises(NotAvailableError, match="trusted_server=True"):
        SitePolicy().allow_reservations()


# ---- releases of parties


def test_a_release_of_another_kind_is_answered_with_the_function_that_reads_it(rows, release):
    schema = pi.Schema({name: SCHEMA[name] for name in ("y", "x", "z")})
    parties = {"A": ["y", "x"], "B": ["z"]}
    of_a_party = pi.DGMOLS.from_formula("y ~ x + z", rows, schema=schema, parties=parties).release(**SPENT)[
        "A"
    ]
    with pytest.raises(AlignmentError, match=r"of kind 'moments': use release\.regress\(formula\)$"):
        pi.ModulatedOLS.from_release(release)
    with pytest.raises(AlignmentError, match=r": combine the releases of all parties with privinf\.join"):
        pi.ModulatedOLS.from_release(of_a_party)


@pytest.mark.parametrize("model", [pi.RMGMOLS, pi.DGMOLS, pi.BGMOLS])
@pytest.mark.parametrize("entry_point", ["formula", "arrays"])
def test_releases_of_a_model_remember_its_regression(model, entry_point, rows, tmp_path):
    schema = pi.Schema({name: SCHEMA[name] for name in ("y", "x", "z")})
    if entry_point == "formula":
        made = model.from_formula("y ~ z + x", rows, schema=schema, parties={"A": ["x", "y"], "B": ["z"]})
    else:
        parties = {"A": ["x1", "y"], "B": ["x2"]}
        X = rows[["x", "z"]].to_numpy()
        made = model(rows["y"].to_numpy(), X, parties=parties, bounds=[(-1, 1)] * 2, y_bounds=(-4, 4))
    fitted, releases = made.fit(**SPENT), made.release(**SPENT)
    for name, one in releases.items():
        one.save(tmp_path / f"{name}.npz")
    for read in (
        releases,
        [pi.load_release(tmp_path / f"{name}.npz") for name in releases],
        pi.join(releases),
    ):
        again = model.from_release(read).fit()
        assert list(again.params.index) == list(fitted.params.index)
        np.testing.assert_allclose(again.params, fitted.params, rtol=1e-9)
        assert again.model.endog_names == "y"
    other = "x" if entry_point == "formula" else "x1"
    assert model.from_release(releases, label=other).fit().model.endog_names == other
    assert model.from_release(releases).fit(label=other).model.endog_names == other


# ---- advice about products


def cause_of(formula, name):
    design = pi.Design.from_formula(formula, SCHEMA).conditioned()
    column = next(column for column in design.columns if column.name == name)
    return advice.uncentered(column, SCHEMA)


@pytest.mark.parametrize(
    ("formula", "name", "uncentered"),
    [
        ("y ~ x:z", "x:z", []),  # bounds are around zero
        ("y ~ x + age + age:x", "age:x", []),  # the design centers products beside their columns
        ("y ~ age:x", "age:x", ["age"]),
        ("y ~ I(age - 50):x", "I(age - 50):x", []),
        ("y ~ C(g):x", "C(g)[a]:x", []),
    ],
)
def test_centering_is_advised_for_columns_that_are_not_centered(formula, name, uncentered):
    assert cause_of(formula, name) == uncentered


def test_a_weak_product_that_is_centered_gets_advice_that_helps():
    rng = np.random.default_rng(3)
    n = 20_000
    frame = pd.DataFrame({"age": rng.normal(50.0, 2.0, n), "x": rng.normal(0.0, 0.1, n)})
    frame["y"] = 0.02 * frame["age"] + frame["x"] + rng.normal(0.0, 0.3, n)
    fitted = pi.OLS.from_formula("y ~ age + x + age:x", frame, schema=SCHEMA).fit(
        epsilon=0.4, delta=1e-6, rng=1
    )
    note = next(str(note) for note in fitted.notes if "hides mainly" in str(note))
    assert "age:x" in note
    assert "I(x - c)" not in note
    assert "tighter public bounds of 'age' and 'x'" in note


# ---- names of classes


def test_a_schema_without_a_formula_is_answered_by_the_class_that_was_called():
    with pytest.raises(
        ArgumentError, match=r"example Moments\(schema, 'y ~ x1 \+ x2'\).*columns="
    ) as refused:
        pi.Moments(SCHEMA)
    assert "Modulation" not in str(refused.value)
    with pytest.raises(ArgumentError, match=r"example Modulation\(schema"):
        pi.Modulation(SCHEMA)


PUBLIC = (
    "privinf",
    *(
        f"privinf.{name}"
        for name in (
            "accounting",
            "federation",
            "mechanisms",
            "noise",
            "schema",
            "stats",
            "planning",
            "results",
            "bounds",
            "models",
        )
    ),
)
# They print what they hold: a table, a report or a number.
PRINT_CONTENT = {
    "BootstrapResults",
    "CountsResult",
    "Description",
    "FoundSchema",
    "GroupPlans",
    "GroupQuantilesResult",
    "NonlinearResults",
    "QuantileResult",
    "PairsResult",
    "ReleasedNumber",
    "SamplePlan",
    "Schema",
    "SharesResult",
    "SimultaneousResults",
    "StatResult",
    "MeanResult",
    "GroupsResult",
    "Study",
    "SumsResult",
    "VarianceFormula",
}


def public_classes():
    found = {}
    for name in PUBLIC:
        module = import_module(name)
        for public in getattr(module, "__all__", ()):
            kind = getattr(module, public)
            if inspect.isclass(kind) and kind.__module__.startswith("privinf"):
                found[kind.__name__] = kind
    return found


def own_names(kind):
    """Return the class whose repr a class has, and whether that names the instance's own class."""
    owner = next(one for one in kind.__mro__ if "__repr__" in vars(one))
    if not owner.__module__.startswith("privinf") or "__wrapped__" in vars(vars(owner)["__repr__"]):
        return owner, True
    try:
        source = textwrap.dedent(inspect.getsource(vars(owner)["__repr__"]))
    except (OSError, TypeError):  # made by dataclass, which names the class
        return owner, True
    texts = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)]
    literal = any(isinstance(text, str) and kind.__name__ in text for text in texts)
    return owner, "type(self).__name__" in source or (literal and owner is kind)


def test_reprs_of_public_classes_name_their_class():
    classes = public_classes()
    assert len(classes) > 60
    wrong = [name for name, kind in classes.items() if name not in PRINT_CONTENT and not own_names(kind)[1]]
    assert wrong == []


def test_reprs_of_some_objects_name_their_class(rows, release):
    made = [
        pi.Moments(SCHEMA, "y ~ x"),
        pi.Modulation(SCHEMA, "y ~ x"),
        Ledger(),
        release,
        pi.MomentOLS.from_formula("y ~ x", rows, schema=SCHEMA),
        Budget(epsilon=1.0, delta=1e-6),
        pi.ModulatedOLS.from_release(
            pi.ModulatedOLS.from_formula("y ~ x", rows, schema=SCHEMA).release(**SPENT)
        ),
        SitePolicy(),
        pi.Design.from_formula("y ~ x", SCHEMA),
    ]
    for one in made:
        assert type(one).__name__ in repr(one), repr(one)


# ---- advice on weak coefficients


@pytest.mark.parametrize("curved", [False, True])
@pytest.mark.parametrize(("hidden", "named"), [([1, 0, 0], []), ([1, 0, 1], ["z"]), ([0, 1, 1], ["x"])])
def test_advice_names_a_weak_slope_and_not_the_constant(curved, hidden, named, monkeypatch):
    """The first eigenvector of G is along x, so z is named only where x is not weak."""
    rows = SimpleNamespace(
        design=pi.Design.from_formula("y ~ x + z", SCHEMA), p=3, total=900, to_user=np.eye(3)
    )
    gram, flags = np.diag([1.0, 0.1, 0.2]) + 0.01, np.array(hidden, dtype=bool)
    if curved:
        monkeypatch.setattr(advice, "prior_bias", lambda *_: flags.astype(float))
        step = SimpleNamespace(
            walk=SimpleNamespace(second=gram),
            place=SimpleNamespace(transform=np.eye(3)),
            hessian=SimpleNamespace(mean=gram),
            far=0.0,
            dispersion=1.0,
        )
        notes = advice.curved_notes(rows, step, SimpleNamespace(weak=True, draws=None, length2=1.0))
    else:
        step = SimpleNamespace(
            initial=SimpleNamespace(gram=gram, edge=0.01), clip=SimpleNamespace(ratio=0.0), score_sd=0.0
        )
        weak, unbiased = SimpleNamespace(weak=True), SimpleNamespace(bias=None, covariance=np.eye(3))
        notes = advice.notes_of(rows, step, unbiased, weak, np.zeros(3), (), flags)
    texts = [note for note in notes if "hides mainly the coefficient of" in note.text]
    assert [name for note in texts for name in note.columns] == named
    assert all(f"the coefficient of {name}:" in note.text for note, name in zip(texts, named, strict=True))


# ---- remedies that serve where they are named


MIXED = pi.Schema(
    {
        "y": (-3, 3),
        "age": pi.Numeric(18, 90, missing_codes=[999]),
        "g": pi.Factor(["a", "b"], missing_codes=["?"]),
    }
)


def mixed_rows(n=4000):
    rng = np.random.default_rng(0)
    age = rng.uniform(18, 90, n)
    return pd.DataFrame({"y": rng.uniform(-3, 3, n), "age": age, "g": rng.choice(["a", "b"], n)})


def test_codes_of_missing_values_in_new_rows_are_missing_predictions():
    fit = pi.OLS.from_formula("y ~ age + C(g)", mixed_rows(), schema=MIXED).fit(
        epsilon=4.0, delta=1e-6, rng=0
    )
    new = pd.DataFrame({"age": [999, 20.0, np.nan, 30.0], "g": ["a", "?", "b", "a"]}, index=[3, 3, 1, 2])
    predicted = fit.predict(new)
    assert predicted.isna().tolist() == [True, True, True, False]
    assert fit.get_prediction(new).summary_frame()["mean"].isna().tolist() == [True, True, True, False]
    assert predicted.iloc[3] == fit.predict({"age": [30.0], "g": ["a"]}).iloc[0]
    with pytest.raises(SchemaError, match="outside its declared levels"):
        fit.predict({"age": [999, 20.0], "g": ["a", "z"]})


def test_find_bounds_names_its_own_argument_for_missing_values():
    rows = mixed_rows()
    rows["age"] = rows["age"].where(rows["age"] > 20)
    with pytest.raises(SchemaError, match=r"has missing values\. missing_codes=\{\} leaves") as raised:
        pi.find_bounds(rows, ["age"], epsilon=1.0, delta=1e-6)
    assert "missing=" not in str(raised.value)
    with pytest.raises(ArgumentError, match=r"missing= is not an argument here: missing_codes=\{\} leaves"):
        pi.find_bounds(rows, ["age"], missing="drop", epsilon=1.0, delta=1e-6)
    assert "age" in pi.find_bounds(rows, ["age"], missing_codes={}, epsilon=1.0, delta=1e-6, rng=0)


def test_moments_name_where_the_ledger_goes_and_the_model_for_sites():
    schema, ledger = pi.Schema({"y": (-3, 3), "age": (18, 90)}), pi.Ledger()
    with pytest.raises(ArgumentError, match=r"ledger= belongs to the release: pass ledger= to the method"):
        pi.Moments(schema, columns=["y", "age"], ledger=ledger)
    moments = pi.Moments(schema, columns=["y", "age"])
    moments.release(mixed_rows(), epsilon=1.0, delta=1e-6, ledger=ledger)
    pi.Moments(schema, "y ~ age").release(mixed_rows(), epsilon=1.0, delta=1e-6, ledger=ledger)
    assert "Moments: y, age" in str(ledger.fits)
    assert "Moments: y ~ age" in str(ledger.fits)
    site = Site(mixed_rows()[["y", "age"]], schema)
    with pytest.raises(NotAvailableError, match="MomentOLS"):
        moments.release(InProcessFederation({"north": site}), epsilon=1.0, delta=1e-6)


def test_curves_by_two_columns_name_the_way():
    rows = mixed_rows()
    with pytest.raises(ArgumentError, match=r"by= must be the name of one column.*add one column"):
        pi.survival.KaplanMeier("age", "g", event="b", by=["g", "y"], data=rows, schema=MIXED)
    with pytest.raises(TypeError, match=r"^KaplanMeier\(\) needs time="):
        pi.survival.KaplanMeier()


@pytest.mark.parametrize(("name", "family"), [("logit", "binomial"), ("OLS", "gaussian"), ("cox", "hazards")])
def test_families_of_plans_by_the_name_of_a_model(name, family):
    with pytest.raises(ArgumentError, match=f"is the name of a model: pass family='{family}'"):
        pi.plan_study(MIXED, "y ~ age", n=1000, epsilon=1.0, delta=1e-6, family=name)
