"""Help of the command line: it imports little, and says what the commands themselves say."""

import inspect
import subprocess
import sys

import click
import pytest

from privinf.cli import COMMANDS, main

HEAVY = {"numpy", "pandas", "scipy", "statsmodels", "matplotlib", "cryptography"}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_a_command_says(name):
    command = main.get_command(click.Context(main), name)
    assert command.name == name
    first = inspect.cleandoc(command.help).split("\n\n")[0]
    assert COMMANDS[name][1] == " ".join(first.split())


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["nosuch"], []])
def test_help_imports_no_library_of_numbers(words):
    program = "import sys\nfrom privinf.cli import main\ntry:\n    main(sys.argv[1:])\nfinally:\n"
    program += "    print(sorted(name for name in sys.modules if '.' not in name))"
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, check=False
    )
    assert not HEAVY & set(done.stdout.splitlines()[-1].translate(str.maketrans("[]',", "    ")).split())


def test_all_commands_are_in_the_list():
    with click.Context(main) as ctx:
        text = main.get_help(ctx)
    assert all(f"\n  {name}  " in text for name in COMMANDS)
    assert main.get_command(click.Context(main), "nosuch") is None
