"""Every option of a command reaches the function that it calls, under the name that the function has."""

import inspect

import click
import pytest

from privinf.cli import main


def commands(group: click.Group, path: tuple[str, ...] = ()) -> dict[str, click.Command]:
    """Return all commands below a group by their words."""
    context, below = click.Context(group), {}
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        words = (*path, name)
        if isinstance(command, click.Group):
            below |= commands(command, words)
        else:
            below[" ".join(words)] = command
    return below


COMMANDS = commands(main)


@pytest.mark.parametrize("words", COMMANDS)
def test_options_are_arguments_of_the_function(words):
    function = inspect.signature(inspect.unwrap(COMMANDS[words].callback))
    options = {param.name for param in COMMANDS[words].params if param.expose_value}
    if any(argument.kind is argument.VAR_KEYWORD for argument in function.parameters.values()):
        return
    assert options == function.parameters.keys() - {"ctx"}
