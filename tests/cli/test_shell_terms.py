"""Messages of the command line name options and commands, not arguments and calls of Python."""

import click
import pytest
from click.testing import CliRunner

from privinf.cli import main as cli
from privinf.cli.federated_fits import FIT_WORDS, PLAN
from privinf.cli.shell_terms import OPTIONS, PLAN_KEYS, in_plan_terms, in_shell_terms

SCHEMA = """
[columns.g]
levels = ["a", "b"]
[columns.x]
low = 0
high = 10
[columns.y]
low = 0
high = 10
"""
BLANK = '[columns.x]\nlow = ""\nhigh = ""\n[columns.y]\nlow = 0\nhigh = 10\n'


def options_of(command, context):
    names = {option for item in command.params for option in item.opts if isinstance(item, click.Option)}
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            names |= options_of(command.get_command(context, name), context)
    return names


def test_every_translated_argument_is_an_option_of_a_command():
    known = options_of(cli, click.Context(cli))
    assert {f"--{name.replace('_', '-')}" for name in OPTIONS} <= known


@pytest.mark.parametrize(
    ("text", "shell"),
    [
        (
            "pass missing='impute-public', or missing='drop'",
            "pass --missing impute-public, or --missing drop",
        ),
        ("delta= is missing: pass delta=1e-06.", "--delta is missing: pass --delta 1e-06."),
        ("epsilon=-1.0 must lie in (0, inf]", "--epsilon -1.0 must lie in (0, inf]"),
        ("cov_type='HC0' and max_rows=4", "--cov-type HC0 and --max-rows 4"),
        ("call Budget(epsilon=1.0)", "call Budget(epsilon=1.0)"),
        ("x_epsilon=3 and a.delta=", "x_epsilon=3 and a.delta="),
    ],
)
def test_arguments_become_options(text, shell):
    assert in_shell_terms(text) == shell


def test_every_argument_in_messages_about_a_plan_is_a_key_of_it():
    known = {*PLAN, *(name for words in FIT_WORDS.values() for name in words)}
    assert {"seed" if name == "rng" else name for name in PLAN_KEYS} <= known


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        (
            'max_colluding= can only be combined with trust="secure-sum"',
            "'max_colluding' can only be combined with trust = \"secure-sum\"",
        ),
        (
            "pass max_colluding=1 or more to SecureServer",
            "set max_colluding = 1 or more in the table [options]",
        ),
        ("pass the same rng= as before", "set the same 'seed' as before"),
        ("pass margins=True", "set margins = true"),
        ("Repeat the same call to resume", "Repeat the command to resume"),
        ("call Budget(epsilon=1.0)", "call Budget(epsilon=1.0)"),
    ],
)
def test_arguments_become_keys_of_a_plan(text, plan):
    assert in_shell_terms(in_plan_terms(text)) == plan


@pytest.mark.parametrize(
    ("schema", "rows", "budget", "expected"),
    [
        (SCHEMA, "g,x,y\na,1,2\nc,2,3\n", "1", "privinf schema check SCHEMA --data FILE --undeclared"),
        (SCHEMA, "g,x,y\na,1,2\n,2,3\n", "1", "--missing drop where it is available"),
        (BLANK, "x,y\n1,2\n2,3\n", "1", "privinf schema suggest FILE"),
        (SCHEMA, "g,x,y\na,1,2\nb,2,3\na,3,3\nb,4,4\n", "-1", "--epsilon -1.0 must lie in"),
    ],
)
def test_refusals_have_remedies_for_a_shell(tmp_path, schema, rows, budget, expected):
    (tmp_path / "s.toml").write_text(schema)
    (tmp_path / "d.csv").write_text(rows)
    formula = "y ~ x + g" if "g" in rows.split("\n")[0] else "y ~ x"
    words = ["fit", formula, str(tmp_path / "d.csv"), "--schema", str(tmp_path / "s.toml")]
    result = CliRunner().invoke(cli, [*words, "--epsilon", budget, "--delta", "1e-6"])
    assert result.exit_code == 2
    assert expected in result.output
    assert "schema." not in result.output.replace("schema.toml", "")
