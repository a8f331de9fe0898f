"""Names of the code say what a value is: no old name comes back, and few bound names are function words."""

import ast
from types import SimpleNamespace

import pytest
from support.names import bound_names, shares
from support.tree import house_tree

LARGEST_VAGUE_SHARE = 0.01  # of all names that the package binds
# Names that words.md replaced: what each says, in a textbook's word, is beside it.
REPLACED = {
    "SecondLook": "OneStepFit",
    "second_look": "fit_one_step",
    "first_look": "release_initial_estimate",
    "Looks": "LeastSquaresOptions",
    "LookedScores": "OneStepScores",
    "CurvedScores": "CurvedOneStepScores",
    "Pilot": "InitialEstimate",
    "pilot": "initial",
    "Questions": "LeastSquaresQueries",
    "Asked": "SampleRequest",
    "whitened_anew": "rewhiten",
    "improved": "refine_initial_estimate",
    "Walk": "GLMNewtonPath",
    "Place": "ExpansionPoint",
    "FinalStep": "OneStepRelease",
    "Hidden": "TailBias",
    "Measures": "FitMeasures",
    "Drawn": "PosteriorDraws",
    "settling": "judge_convergence",
    "NeighbourMarks": "NodewiseDiagnostics",
    "Picked": "Selection",
    "LIVELY": "MIN_NEW_SIGNALS",
    "Suspects": "OmittedCandidates",
    "find_suspects": "screen_omitted",
    "OwnFit": "SiteEffects",
    "Reach": "RecordSensitivity",
    "Along": "RowDirections",
    "Elsewhere": "RemoteSums",
    "Rowless": "HidesRows",
    "Withheld": "UnavailableAttributes",
    "Wording": "SummaryOptions",
    "Workroom": "ScratchBuffers",
    "Callers": "ConnectionLimits",
    "Answering": "ResponsePolicy",
    "AskerEnd": "ClientEnvelope",
    "CheckingEnds": "ReplyVerifier",
    "Remembering": "ReplayMemory",
    "SiteEnd": "SiteEnvelope",
    "known_as": "query_digests",
    "PlannedSum": "PlannedQuery",
    "ReadySum": "ValidatedQuery",
    "Finding": "Diagnostic",
    "JointLaw": "JointDistribution",
    "ScoreLaw": "ScoreDistribution",
    "MeanLaw": "MeanModel",
    "wandered": "diverged",
    "unsettled": "not_converged",
    "sealed_json": "checksummed_json",
    "unsealed": "verified_record",
    "AskedFit": "FederatedFitPlan",
    "AskedSums": "SampleTotals",
    "SampleQuestion": "SampleQuery",
    "DesignQuestion": "DesignQuery",
    "question_of": "query_digest_of",
    "with_question": "with_query_digest",
    "check_question": "check_query_digest",
    "pick_scale": "selection_scale",
    "law_of": "distribution_of",
    "told_by_analyst": "charges_by_analyst",
    "door_to": "ledger_of",
    "is_door": "has_error_boundary",
    "through_the_door": "call_within_boundary",
}
MODULES = ("sealed", "doors", "drawn", "settling", "marks", "picks", "every_column", "own", "missed")


@pytest.fixture(scope="module")
def modules():
    """The modules of the package."""
    return house_tree().of("privinf")


def replaced(modules):
    """Return where old names are bound, and what they are called now."""
    return [
        f"{module.path}:{line}: {name} is {REPLACED[name]}"
        for module in modules
        for name, line in bound_names(module.tree)
        if name in REPLACED
    ]


def test_old_names_are_not_bound(modules):
    assert replaced(modules) == []


def test_old_modules_are_gone(modules):
    assert [str(module.path) for module in modules if module.path.stem in MODULES] == []


def test_constructors_are_named_by_what_they_take(modules):
    found = [
        f"{module.path}:{node.lineno}"
        for module in modules
        if module.room != "results"  # lines of export and variance of contrasts: lookups
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef) and node.name == "of"
    ]
    assert found == []


def test_few_names_are_function_words(modules):
    vague, names = shares(modules)[""]
    assert vague / names < LARGEST_VAGUE_SHARE


def test_an_old_name_is_seen(tmp_path):
    """The check is not blind: a module that binds an old name is reported."""
    text = "def second_look(rows):\n    pilot = rows\n    return pilot\n"
    module = SimpleNamespace(path=tmp_path / "old.py", tree=ast.parse(text))
    assert [line.rpartition(": ")[2] for line in replaced([module])] == [
        "second_look is fit_one_step",
        "pilot is initial",
    ]
