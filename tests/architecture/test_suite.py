"""`make test` holds an audit of every mechanism and a mutant that it catches; both are counted."""

from __future__ import annotations

import ast

import pytest
from support.suite import TESTS, Kinds, table

# Of every mechanism: an audit, and a mutant, that a developer waits for. All others run in `make audit`.
QUICK = {
    "sums of sites, sketched scores of DOME": (
        "privacy/test_client_audit.py::test_few_draws_tell_a_clipped_total_from_one_that_is_not",
        "privacy/test_client_audit.py::test_few_draws_tell_a_clipped_total_from_one_that_is_not",
    ),
    "secure sums": (
        "privacy/test_secure_sum_audit.py::test_few_draws_tell_noise_of_honest_sites_from_noise_of_a_colluding_one",
        "privacy/test_secure_sum_audit.py::test_few_draws_tell_noise_of_honest_sites_from_noise_of_a_colluding_one",
    ),
    "moments": (
        "privacy/test_audits.py::test_local_moments_in_their_worst_pair",
        "privacy/test_audits.py::test_mutants_of_local_moments_are_caught",
    ),
    "sums of a second look": (
        "privacy/test_whitened_audit.py::test_a_weight_clip_or_cell_that_is_left_out_is_seen",
        "privacy/test_whitened_audit.py::test_a_weight_clip_or_cell_that_is_left_out_is_seen",
    ),
    "sample statistics": (
        "privacy/test_samples_audit.py::test_gaussian_releases_on_their_worst_pair",
        "privacy/test_samples_audit.py::test_half_the_gaussian_noise_is_caught",
    ),
    "ranks": (
        "privacy/test_ranks_audit.py::test_neighbours_differ_in_their_releases_alone_by_what_is_charged",
        "privacy/test_ranks_audit.py::test_mutants_are_caught",
    ),
    "quantiles and distribution functions": (
        "privacy/test_distribution_audit.py::test_the_worst_pair_spends_what_is_charged_and_no_more",
        "privacy/test_distribution_audit.py::test_mutants_are_caught",
    ),
    "levels": (
        "privacy/test_levels_audit.py::test_levels_keep_to_their_line",
        "privacy/test_levels_audit.py::test_mutants_are_caught",
    ),
    "peeling": (
        "privacy/test_lasso_audits.py::test_some_of_six_with_their_values",
        "privacy/test_lasso_audits.py::test_mutant_noise_reused_in_a_second_call",
    ),
    "fits of the lasso": (
        "privacy/test_lasso_whole_fit.py::test_three_fits_spend_no_more_than_their_ledgers_say",
        "privacy/test_lasso_whole_fit.py::test_mutants_spend_more_than_they_may",
    ),
    "local modulation": (
        "privacy/test_audits.py::test_modulation_in_its_worst_pair",
        "privacy/test_audits.py::test_mutants_of_the_noise_scale_are_caught",
    ),
    "local examples": (
        "privacy/test_local_examples_audits.py::test_features_in_their_worst_pair",
        "privacy/test_local_examples_audits.py::test_mutant_radius_for_diameter",
    ),
    "labels by randomized response": (
        "privacy/test_local_examples_audits.py::test_a_label_under_response",
        "privacy/test_audits.py::test_randomized_response_and_its_mutant",
    ),
    "signs": (
        "privacy/test_sign_channel_audits.py::test_which_coordinate_is_asked_tells_nothing",
        "privacy/test_sign_channel_audits.py::test_a_channel_that_says_the_opposite_is_seen",
    ),
    "mixing": (
        "privacy/test_mixing_audits.py::test_a_party_of_levels_and_a_party_of_one_column",
        "privacy/test_mixing_audits.py::test_mutants_of_the_diameter",
    ),
    "sums in a database": (
        "mechanisms/test_pushed.py::test_integers_of_duckdb_are_those_of_numpy",
        "mechanisms/test_pushed.py::test_a_cell_or_a_step_that_is_off_is_caught",
    ),
    "record and replay": (
        "privacy/test_record_replay.py::test_half_a_sensitivity_is_seen",
        "privacy/test_mutants.py::test_a_mutant_is_undone",
    ),
}
LATE = {"audit", "slow", "timing"}


def marks(node: ast.AST) -> set[str]:
    """Return the marks that a decorator, or a list of them, names."""
    return {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}


def is_late(source: str, name: str) -> bool:
    """Return whether all cases of a test run in another command than `make test`."""
    tops = ast.parse(source).body
    (function,) = (node for node in tops if isinstance(node, ast.FunctionDef) and node.name == name)
    # A mark inside of `parametrize` is that of single cases.
    whole = [node for node in function.decorator_list if not isinstance(node, ast.Call)]
    of_module = [
        node.value
        for node in tops
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    return any(marks(node) & LATE for node in whole + of_module)


@pytest.mark.parametrize("mechanism", QUICK)
def test_an_audit_and_a_mutant_of_every_mechanism_run_in_make_test(mechanism):
    for test in QUICK[mechanism]:
        file, name = test.split("::")
        assert not is_late((TESTS / file).read_text(), name), test


def test_a_late_test_is_seen():
    text = "import pytest\n{}\n{}\ndef test_a():\n    pass\n"
    single = "@pytest.mark.parametrize('x', [pytest.param(1, marks=pytest.mark.audit), 2])"
    assert is_late(text.format("", "@pytest.mark.audit"), "test_a")
    assert is_late(text.format("pytestmark = pytest.mark.audit", ""), "test_a")
    assert not is_late(text.format("", single), "test_a")


@pytest.fixture(scope="module")
def kinds():
    return Kinds()


@pytest.mark.audit
@pytest.mark.parametrize(
    ("test", "kind"),
    [
        ("privacy/test_audits.py::test_modulation_in_its_worst_pair", "audits"),
        ("privacy/test_audits.py::test_mutants_of_the_noise_scale_are_caught", "mutants"),
        ("privacy/test_ranks_audit.py::test_mutants_are_caught", "mutants"),
        ("privacy/test_mutants.py::test_audits_complain_of_nothing", "audits"),
        ("privacy/test_import_walk.py::test_every_room_is_named_here", ""),
    ],
)
def test_audits_and_mutants_are_told_from_other_tests(kinds, test, kind):
    file, name = test.split("::")
    assert kinds.of(TESTS / file, name, ()) == kind


def test_counts_are_a_table():
    lines = table({"make test": {"tests": 1200, "audits": 3, "mutants": 2}}).splitlines()
    assert "| make test | 1,200 | 3 | 2 |" in lines
    assert lines[-1] == "| all | 1,200 | 3 | 2 |"
