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
    "CurvedScores": "OneStepScores",
    "CurvedOneStepScores": "OneStepScores",
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
    "ThresholdingBudget": "SparseFitPrices",
    "LogisticBudget": "SparseFitPrices",
    "DebiasingBudget": "DebiasingPrices",
    "DebiasPrices": "DebiasingPrices",
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
    "known_as": "digest_in_folder",
    "PickRelease": "SelectionRelease",
    "BLOCK_LOOKS": "BLOCK_SCALE_SHARE",
    "POOLED_LOOKS": "POOLED_SCALE_SHARE",
    "LAST_LOOK": "FINAL_SCALE_SHARE",
    "two_looks": "two_stage_hessian",
    "MOST_LOOKS": "MAX_CANDIDATES",
    "afforded_neighbours": "affordable_neighbors",
    "LEAST_NEIGHBOURS": "MIN_NEIGHBORS",
    "MOST_NEIGHBOURS": "MAX_NEIGHBORS",
    "FEWEST_NEIGHBOURS": "MIN_NEIGHBORS",
    "NEIGHBOUR_SUM": "NEIGHBOR_FACTOR",
    "PICKING": "SELECTION_FACTOR",
    "FALSE_PICKS": "FALSE_SELECTION_RATE",
    "PICK_CLIPS": "SELECTION_CLIPS",
    "CLEAR_CLIP": "NOISELESS_CLIP",
    "pick_clip": "selection_clip",
    "pick_seen": "selection_limit",
    "CLEAR_OF_NOISE": "MIN_SLOPE_SDS",
    "clear_slopes": "slopes_above_noise",
    "clear_coordinates": "coordinates_above_noise",
    "clear_targets": "targets_above_noise",
    "kept_entries": "entries_above_noise",
    "clear_gram": "thresholded_gram",
    "clear_part": "part_above_noise",
    "clear_places": "positions_above_noise",
    "_none_beside_all": "_candidates_if_all_are_targets",
    "NOTHING_SEEN": "NO_OMITTED_COLUMNS",
    "NOT_LOOKED": "CORRELATIONS_NOT_TESTED",
    "FOUND_LATER": "ADDED_COLUMNS",
    "NOT_KEPT": "DROPPED_BUT_LARGE",
    "WHOLE_NUMBERS": "INTEGERS",
    "nothing_found": "no_omitted_columns",
    "kept_count": "column_count",
    "_kept_share": "_usable_share",
    "kept_intercept": "intercept_of_selected",
    "kept_places": "selected_positions",
    "kept_targets": "target_columns",
    "kept_beta": "selected_beta",
    "y_reach": "y_max_abs",
    "intervals_reach": "largest_size_for_intervals",
    "of_layer": "size_between_thresholds",
    "looked_for": "confirmed_tail",
    "SEEN_FAR": "MIN_FAR_SDS",
    "SEEN_AGAIN": "MIN_CONFIRMED_SDS",
    "look_at_ends": "detect_values_at_ends",
    "is_seen": "is_detectable",
    "SEEN_SHARE": "DETECTABLE_SHARE",
    "SEEN_SDS": "VISIBLE_SDS",
    "SEEN_IN_FEW": "VISIBLE_SDS_FEW_ROWS",
    "LOOKS_ALONE": "ONE_STEP_FIT_ALONE",
    "NO_LOOK": "NO_ONE_STEP_FIT",
    "NOT_ASKED": "MARGINS_NOT_RELEASED",
    "ratio_beside": "exposure_ratio",
    "SAYS_NOTHING": "LARGEST_VARIANCE",
    "far_start": "long_first_step",
    "WANDERED": "DIVERGED",
    "asked_kind": "release_covariance_kind",
    "NORMAL_LAW": "ASSUMES_NORMAL",
    "OWN_LAW": "USES_SPREAD",
    "law_of_inverse": "wald_distribution",
    "seen_range": "detected_range",
    "seen_share": "visible_share",
    "SEEN_TAIL": "VISIBLE_TAIL",
    "SEEN_COUNT": "MIN_COUNT_SDS",
    "MADE_UP": "SIMULATED",
    "OF_LAWS": "COMPARES_DISTRIBUTIONS",
    "law_of_count": "count_note",
    "equal_laws": "null_statistics",
    "clear_label": "unprotected_label",
    "IN_CLEAR": "UNPROTECTED_RESPONSE",
    "TOLD_ROWS": "ROWS_WITH_INTERVALS",
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
    "check_question": "verified_digest",
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
