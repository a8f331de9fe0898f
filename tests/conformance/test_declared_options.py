"""Options are declared once: signature, docstring, options class and command line say the same."""

import ast
import inspect
import re
import textwrap
from dataclasses import MISSING, fields
from pathlib import Path
from typing import get_args

import click
import pytest

import privinf as pi
import privinf.typing
from privinf.cli.federated_fits import FIT_WORDS, STATISTIC
from privinf.cli.fits import fit_command, study_command
from privinf.cli.plans import new_command
from privinf.cli.releases import release_command
from privinf.cli.schemas import CLIP, suggest_command
from privinf.fitting.model import STATSMODELS, Model
from privinf.glm.hazards.model import PHRegOptions
from privinf.glm.model import GLMOptions
from privinf.glm.plan import FitRequest
from privinf.iwp.model import ExampleFitOptions, ExampleModelOptions, ExampleSpending
from privinf.lasso.model import LassoModelOptions
from privinf.lasso.plan import LassoOptions
from privinf.mixing.model import MixingModelOptions
from privinf.mixing.party_model import PartyFitOptions, PartyModelOptions
from privinf.modulation.model import ModulationFitOptions, ModulationModelOptions, ModulationReleaseOptions
from privinf.moments.analyses import Analyses
from privinf.moments.model import MomentFitOptions, MomentModelOptions, MomentReleaseOptions
from privinf.planning.people import StudyOptions
from privinf.stats.base import SampleOptions
from privinf.typing import SpendingOptions

SPENDING = ("epsilon", "delta", "mu", "rho", "rng")  # what every signature of a call that spends shows
# Plans of samples read no rows and spend nothing.
STATS = [
    name
    for name in pi.stats.__all__
    if inspect.isfunction(getattr(pi.stats, name)) and not name.startswith("plan_")
]
# Per callable: the frozen classes that its first statement builds from its arguments.
CLASSES = {
    **{f"stats.{name}": (SampleOptions,) for name in STATS},
    "MomentOLS.fit": (MomentFitOptions,),
    "MomentOLS.release": (MomentReleaseOptions,),
    "Moments.release": (SpendingOptions,),
    **dict.fromkeys(
        ("GLM.fit", "FederatedGLM.fit", "Logit.fit", "Poisson.fit", "NegativeBinomial.fit"),
        (SpendingOptions, FitRequest),
    ),
    "DebiasedLasso.fit": (LassoOptions,),
    "ModulatedOLS.fit": (ModulationFitOptions,),
    "ModulatedOLS.release": (ModulationReleaseOptions,),
    "Modulation.release": (SpendingOptions,),
    "IWPGLM.fit": (ExampleFitOptions,),
    "IWPGLM.release": (ExampleSpending,),
    "LocalExamples.release": (),
    **{f"{model}.fit": (PartyFitOptions,) for model in ("RMGMOLS", "DGMOLS", "BGMOLS")},
    **{f"{model}.release": (SpendingOptions,) for model in ("RMGMOLS", "DGMOLS", "BGMOLS")},
    "RandomMixing.release": (SpendingOptions,),
    "GaussianRows.release": (SpendingOptions,),
    "MixingPlan.release": (),
    "Modulation.open": (SpendingOptions,),
    ".find_bounds": (SpendingOptions,),
    ".plan_study": (StudyOptions,),
    ".advise": (StudyOptions,),
    "OLS.fit": (SpendingOptions, FitRequest),
    "PHReg.fit": (SpendingOptions, FitRequest),
    **dict.fromkeys(("OLS.without_intervals", "Logit.without_intervals"), (SpendingOptions,)),
}
# Arguments that say what is read, and are no options.
SUBJECTS = {
    "schema",
    "formula",
    "n",
    "a",
    "b",
    "x",
    "y",
    "values",
    "groups",
    "columns",
    "rows",
    "popmean",
    "value",
    "center",
    "q",
    "by",
    "bins",
}
# Options that a callable uses where they are written, next to those of its options class.
DIRECT = {
    **{
        f"stats.{name}": {
            "bounds",
            "levels",
            "clip",
            "alternative",
            "confidence_level",
            "method",
            "target",
            "simultaneous",
            "margins",
            "structural_zeros",
        }
        for name in STATS
    },
    "MomentOLS.release": {"to", "ledger"},
    **{
        f"{model}.release": {"ledger"}
        for model in ("RMGMOLS", "DGMOLS", "BGMOLS", "RandomMixing", "GaussianRows")
    },
    **{f"{model}.release": {"to", "ledger"} for model in ("ModulatedOLS", "Modulation", "IWPGLM")},
    "LocalExamples.release": {"to", "ledger", *(one.name for one in fields(ExampleSpending))},
    "MixingPlan.release": {"party", "missing", "data_bounds", "ledger", "rng", "source"},
    "Modulation.open": {"rounds", "schedule", "ledger"},
    ".find_bounds": {"clip", "rare", "unit", "max_rows", "missing_codes", "ledger", "progress"},
    **{
        f"{model}.fit": {"progress"}
        for model in ("GLM", "FederatedGLM", "OLS", "Logit", "Poisson", "NegativeBinomial", "DebiasedLasso")
    },
    "PHReg.fit": {"progress", "follow_up"},
    "Moments.release": {"cov_type", "robust_share", "to", "ledger"},
}
# Fields of an options class that only some of the calls that build it show.
NEWTON = {"optimizer", "public_seed", "relation", "unit", "client_clip", "targets", "nuisance", "margins"}
OTHERS = {
    "PHReg.fit": (NEWTON - {"relation"}) | {"cov_type", "checkpoint", "target", "adapt_bounds", "intervals"},
    "OLS.fit": NEWTON,
    "NegativeBinomial.fit": (NEWTON - {"margins"}) | {"target", "adapt_bounds", "intervals"},
    **{f"{model}.fit": {"target", "adapt_bounds"} for model in ("GLM", "FederatedGLM", "Logit", "Poisson")},
}
# Calls with a budget for features and one for the label, in epsilon alone; these share their own paragraphs.
EXAMPLES = ("IWPGLM.fit", "IWPGLM.release", "LocalExamples.release")
SEEDS = {(".plan_study", "rng"), (".advise", "rng")}  # a study has a seed by default
# Options whose paragraph is the same in every docstring, up to sentences that a function adds.
SHARED = (
    *SPENDING,
    "calibration",
    "source",
    "ledger",
    "missing",
    "noise",
    "confidence_level",
    "to",
    "max_colluding",
    "checkpoint",
)


def function_of(name):
    if callable(name):
        return name
    owner, _, member = name.rpartition(".")
    return getattr(pi.stats if owner == "stats" else getattr(pi, owner) if owner else pi, member)


def parameters_of(name):
    """Return the arguments of a callable but self, as `inspect` shows them to `help`."""
    return {k: v for k, v in inspect.signature(function_of(name)).parameters.items() if k != "self"}


def section_of(name, title):
    """Return the lines of one section of a numpydoc docstring."""
    text = inspect.getdoc(function_of(name))
    found = re.search(rf"^{title}\n-+\n(.*?)(?=\n\n\w[\w ]*\n---|\Z)", text, re.M | re.S)
    assert found, f"{name} has no section {title}"
    return found[1].splitlines()


def documented(name):
    """Return the description of every parameter of a docstring."""
    entries = {}
    for line in section_of(name, "Parameters"):
        if line and not line.startswith(" "):
            names, _, kind = line.partition(" : ")
            entries |= dict.fromkeys(current := names.split(", "), (kind, ""))
        elif line:
            entries |= {
                one: (entries[one][0], f"{entries[one][1]} {line.strip()}".strip()) for one in current
            }
    return entries


def defaults_of(classes):
    """Return the fields of options classes with their defaults."""
    return {one.name: one.default for kind in classes for one in fields(kind)}


@pytest.mark.parametrize("name", CLASSES)
def test_the_signature_shows_every_option(name):
    parameters = parameters_of(name)
    assert not [one for one in parameters.values() if one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL)]
    assert all(one.annotation is not one.empty for one in parameters.values())
    if name == "MixingPlan.release":  # its budget is in the plan
        return
    absent = ("mu", "rho") if name in EXAMPLES else ("rng",) if name.endswith("without_intervals") else ()
    shown = [option for option in SPENDING if option not in absent]
    assert [parameters[option].default for option in shown] == [None] * len(shown)


@pytest.mark.parametrize("name", CLASSES)
def test_the_docstring_describes_these_parameters_and_no_others(name):
    entries = documented(name)
    assert list(entries) == list(parameters_of(name))
    assert all(kind and text for kind, text in entries.values())
    assert not re.search(r"\b[Aa]s for\b", " ".join(section_of(name, "Parameters")))
    assert section_of(name, "Returns")


@pytest.mark.parametrize("function", [Analyses.regress, pi.ModulatedOLS.regress, pi.DGMOLS.regress])
def test_a_regression_on_a_release_shows_and_describes_its_options(function):
    assert list(documented(function)) == list(parameters_of(function))
    assert all(kind and text for kind, text in documented(function).values())
    assert section_of(function, "Returns")


def refused_of(name):
    """Return the options that a callable does not have and says why."""
    return set(vars(function_of(name)).get("refusals", ()))


@pytest.mark.parametrize("name", CLASSES)
def test_the_options_class_has_these_fields_and_defaults(name):
    parameters = {k: v.default for k, v in parameters_of(name).items()}
    declared = defaults_of(CLASSES[name])
    assert declared.keys() - refused_of(name) - OTHERS.get(name, set()) <= parameters.keys()
    assert parameters.keys() - declared.keys() <= SUBJECTS | DIRECT.get(name, set())
    optional = {k for k, v in parameters.items() if v is not inspect.Parameter.empty}
    same = {k: v for k, v in declared.items() if v is not MISSING and k in optional}
    assert {k: parameters[k] for k in same} == same


@pytest.mark.parametrize("name", CLASSES)
def test_every_option_is_used(name):
    """The body reads every parameter: none is accepted and then left out of the options class."""
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(function_of(name))))
    body = ast.parse(source).body[0].body
    used = {node.id for statement in body for node in ast.walk(statement) if isinstance(node, ast.Name)}
    assert parameters_of(name).keys() - used == set()


@pytest.mark.parametrize(
    ("option", "names"),
    [
        *((one, CLASSES.keys() - set(EXAMPLES)) for one in ("epsilon", "delta")),
        *((one, CLASSES.keys()) for one in SHARED if one not in ("epsilon", "delta")),
        *((one, EXAMPLES) for one in ("epsilon", "delta", "epsilon_x", "epsilon_y", "shares")),
    ],
)
def test_an_option_is_described_alike_everywhere(option, names):
    told = [name for name in names if option in documented(name)]
    texts = {name: documented(name)[option] for name in told if (name, option) not in SEEDS}
    assert len(texts) > 1
    kinds = {kind for kind, _ in texts.values()}
    assert len(kinds) == 1 or option == "missing"  # some calls cannot drop rows
    for chosen in kinds:
        alike = {name: text for name, (kind, text) in texts.items() if kind == chosen}
        shortest = min(alike.values(), key=len)
        assert {name: text for name, text in alike.items() if not text.startswith(shortest)} == {}


def test_spending_options_are_the_ones_that_calls_show():
    assert {one.name for one in fields(SpendingOptions)} == {*SPENDING, "calibration", "source"}
    assert SpendingOptions(mu=1.0, source=None).spending() == {"mu": 1.0}


@pytest.mark.parametrize("name", [name for name in CLASSES if "epsilon" in parameters_of(name)])
def test_a_misspelt_option_is_refused_by_its_closest_name(name):
    subjects = [k for k, v in parameters_of(name).items() if v.default is v.empty]
    arguments = (
        subjects if name.startswith("stats.") else [object(), *subjects]
    )  # an unbound method has a self
    with pytest.raises(
        pi.errors.ArgumentError, match=r"'epsilom' is not an argument of .*did you mean 'epsilon'"
    ):
        function_of(name)(*arguments, epsilom=1.0)


# ---- nothing is left out


def test_every_public_fit_and_release_is_compared():
    models = {name: one for name in dir(pi) if inspect.isclass(one := getattr(pi, name))}
    calls = {
        f"{name}.{call}"
        for name, one in models.items()
        for call in ("fit", "release")
        if inspect.isfunction(getattr(one, call, None))
    }
    assert calls == {name for name in CLASSES if name.endswith((".fit", ".release"))}


# ---- constructors

# Per model: the frozen class that its constructors build from their arguments.
CONSTRUCTED = {
    **dict.fromkeys(("GLM", "FederatedGLM", "OLS", "Logit", "Poisson", "NegativeBinomial"), GLMOptions),
    "PHReg": PHRegOptions,
    "DebiasedLasso": LassoModelOptions,
    "MomentOLS": MomentModelOptions,
    "ModulatedOLS": ModulationModelOptions,
    "IWPGLM": ExampleModelOptions,
    "RMGMOLS": MixingModelOptions,
    "DGMOLS": PartyModelOptions,
    "BGMOLS": PartyModelOptions,
}
CONSTRUCTORS = [
    (model, name)
    for model in CONSTRUCTED
    for name in ("__init__", "from_formula", "from_arrays", "from_release")
    if hasattr(getattr(pi, model), name)
]
ROWS = {"y", "X", "time", "formula", "data", "schema", "sites", "release", "releases", "label"}
# What the formula, or the place of the rows, states.
STATED = {"effects", "formula", "family", "sites", "trust"}


def constructor(model, name):
    """Return a constructor, and what documents its arguments: the class, or the class method."""
    kind = getattr(pi, model)
    return (kind.__init__, kind) if name == "__init__" else (getattr(kind, name), getattr(kind, name))


@pytest.mark.parametrize(("model", "name"), CONSTRUCTORS)
def test_a_constructor_writes_and_describes_every_argument(model, name):
    function, documents = constructor(model, name)
    parameters = {k: v for k, v in inspect.signature(function).parameters.items() if k != "self"}
    assert not [one for one in parameters.values() if one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL)]
    assert all(one.annotation is not one.empty for one in parameters.values())
    entries = documented(documents)
    assert list(entries) == list(parameters)
    assert all(kind and text for kind, text in entries.values())
    assert not re.search(r"\b[Aa]s for\b", " ".join(section_of(documents, "Parameters")))
    assert name == "__init__" or section_of(documents, "Returns")


@pytest.mark.parametrize(("model", "name"), [one for one in CONSTRUCTORS if one[1] != "from_release"])
def test_a_constructor_has_the_defaults_of_the_options_class(model, name):
    declared = defaults_of([CONSTRUCTED[model]])
    function, _ = constructor(model, name)
    parameters = inspect.signature(function).parameters
    options = {k: v.default for k, v in parameters.items() if k not in ROWS | {"self"}}
    assert options.keys() <= declared.keys()
    assert {k: v for k, v in options.items() if v not in (inspect.Parameter.empty, declared[k])} == {}


@pytest.mark.parametrize("model", CONSTRUCTED)
def test_every_option_of_a_model_is_an_argument_of_a_constructor(model):
    shown = {
        parameter
        for kind, name in CONSTRUCTORS
        if kind == model
        for parameter in inspect.signature(constructor(model, name)[0]).parameters
    }
    functions = [constructor(kind, name)[0] for kind, name in CONSTRUCTORS if kind == model]
    refused = {word for function in functions for word in vars(function).get("refusals", ())}
    unused = {"exposure", "weights"} if issubclass(CONSTRUCTED[model], GLMOptions) else set()
    assert defaults_of([CONSTRUCTED[model]]).keys() - refused - STATED - unused <= shown | {"radius"}


def test_every_public_model_is_constructed_here():
    models = {
        name for name in dir(pi) if inspect.isclass(one := getattr(pi, name)) and issubclass(one, Model)
    }
    assert models == CONSTRUCTED.keys()


# ---- the command line

# Per command: what it calls, and the options of the call that it has.
BUDGET = ("epsilon", "delta", "mu", "rho")
COMMANDS = [
    (fit_command, "OLS.fit", (*BUDGET, "cov_type")),
    (fit_command, "Logit.fit", (*BUDGET, "cov_type", "margins")),
    (fit_command, "Poisson.fit", (*BUDGET, "cov_type", "margins")),
    (fit_command, "MomentOLS.fit", (*BUDGET, "cov_type", "target")),
    (release_command, "Moments.release", BUDGET),
    (fit_command, "OLS.from_formula", ("missing",)),
    (fit_command, "Poisson.from_formula", ("missing", "weights", "offset", "exposure")),
    (fit_command, "Logit.from_formula", ("missing", "weights", "offset")),
    (fit_command, "PHReg.from_formula", ("missing", "status", "event", "horizon")),
    (release_command, ".Moments", ("missing",)),
    (suggest_command, ".find_bounds", (*BUDGET, "clip", "unit", "max_rows")),
    *(
        (study_command, name, (*BUDGET, "family", "status", "exposure", "trust", "alpha", "fits"))
        for name in (".plan_study", ".advise")
    ),
    (study_command, "Study.changes", ("coefficient", "width", "effect", "power")),
    (
        new_command,
        "MixingPlan.new",
        ("n", "method", "k", "intercept", "label", "kind", "diameter", "calibration"),
    ),
]
# Options of a command with the name of an argument, but a meaning or a default of their own.
OTHERWISE = {
    ("OLS.fit", "target"),  # of releases and moments
    ("MixingPlan.release", "party"),  # a subject
    ("MixingPlan.new", "rsquared"),  # also of the forecast
    ("MixingPlan.new", "seed"),  # drawn by default
    (".find_bounds", "missing_codes"),  # one pair of column and code an option
}


@pytest.mark.parametrize(("command", "name", "options"), COMMANDS)
def test_commands_have_options_of_the_same_names_and_defaults(command, name, options):
    parameters = parameters_of(name)
    by_name = {one.name: one for one in command.params}
    for option in options:
        assert f"--{option.replace('_', '-')}" in by_name[option].opts
        assert by_name[option].to_info_dict()["default"] in (None, parameters[option].default)
        if isinstance(by_name[option].type, click.Choice):
            choices = get_args(typing_of(parameters[option].annotation))
            assert set(by_name[option].type.choices) <= set(choices)


@pytest.mark.parametrize(("command", "name", "options"), COMMANDS)
def test_no_option_of_a_command_is_left_out_of_the_comparison(command, name, options):
    shared = {one.name for one in command.params} & parameters_of(name).keys()
    assert {one for one in shared - set(options) - SUBJECTS if (name, one) not in OTHERWISE} == set()


def typing_of(annotation):
    """Return the `Literal` that an annotation, a text, names."""
    return getattr(privinf.typing, annotation.removesuffix(" | None"))


def test_the_default_clip_of_the_command_is_the_one_of_find_bounds():
    assert parameters_of(".find_bounds")["clip"].default == CLIP


@pytest.mark.parametrize("model", sorted(FIT_WORDS.keys() - {STATISTIC}))
def test_a_file_of_a_federated_fit_has_options_of_the_model(model):
    assert set(FIT_WORDS[model]) <= parameters_of(f"{model}.fit").keys()


# ---- the documentation

PAGE = Path(__file__).parents[2] / "docs" / "statsmodels.md"


def test_the_page_names_the_options_of_every_fit_and_release():
    text = " ".join(PAGE.read_text().split())
    sentence = re.search(r"`fit` and `release` have (.*?)\.", text)[1]
    assert set(re.findall(r"`(\w+)`", sentence)) == {one.name for one in fields(SpendingOptions)}


@pytest.mark.parametrize("name", [name for name in CLASSES if name.endswith(".fit")])
def test_the_page_says_which_options_a_fit_refuses(name):
    table = PAGE.read_text().partition("| argument | has no meaning for |")[2].partition("\n\n")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines()[2:]]
    model = name.removesuffix(".fit")
    sites = model == "DebiasedLasso" or issubclass(getattr(pi, model), pi.GLM)
    said = {
        option
        for options, models in rows
        for option in re.findall(r"`(\w+)=`", options)
        if f"`{model}`" == models.strip() or ("models over sites" in models and sites)
    }
    assert refused_of(name) - STATSMODELS.keys() == said
