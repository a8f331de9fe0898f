"""The one table of limits on arrows and doubled names; who may import whom."""

from __future__ import annotations

# The most that a measure of arrows, doubled names and calls may be. Sizes are printed by `support.house`
# and not limited, but for classes: a limit on lines of files was met by packing them.
LIMITS = {
    "lines kept from the formatter": 0,
    "classes above 300 lines without docstrings": 0,
    "calls of a class with six and more positional arguments": 0,
    "dataclasses of more than four positional fields": 0,
    "constants that share a line": 0,
    "import circles": 0,
    "towers importing towers": 0,
    "floor importing towers": 0,
    "floor importing rooms above it": 0,
    "rooms without a rule": 0,
    "privinf importing studies": 0,
    "imports by string": 0,
    "imports of _private names": 0,
    "classes of one name in two modules": 0,
    "Literals of one name in two modules": 0,
    "Literals of the same values written twice": 0,
    "constants written twice": 0,
    "definitions too many of ROOT2, CONSTANT, FALSE_SELECTION_RATE": 0,
}

TOWERS = {"bounds", "moments", "glm", "modulation", "iwp", "mixing", "lasso", "stats", "survival"}
OLD_ROOMS = {"models", "engines"}  # towers in layers; `models` ends as a facade of names
# The ground floor: rooms that every room may import, and that import one another alone.
EVERYWHERE = {
    "attributes",
    "completeness",
    "errors",
    "typing",
    "validation",
    "error_boundary",
    "progress",
    "registry",
    "secret_files",
    "storage",
    "version",
    "wire",
    "notebook",
}
# Rooms and modules that see everything.
FREE = {"", "__main__", "cli", "models", "planning", "sklearn", "privinf.accounting.planning"}
SINGLE = ("ROOT2", "CONSTANT", "FALSE_SELECTION_RATE")
# Who may name modules of the package in strings: the table that stored files, data sets and studies ask.
BY_STRING = {"privinf.registry", "privinf.cli", "privinf.cli.groups"}
# The rooms of the floor, and which other rooms each may import besides `EVERYWHERE`.
FLOOR: dict[str, set[str]] = {
    "attributes": set(),
    "completeness": set(),
    "errors": set(),
    "typing": set(),
    "validation": set(),
    "error_boundary": set(),
    "progress": set(),
    "registry": set(),
    "version": set(),
    "secret_files": set(),
    "wire": set(),
    "notebook": set(),
    "storage": set(),
    "schema": set(),
    "accounting": set(),
    "noise": set(),
    "release_kinds": {"schema"},
    "row_groups": set(),
    "releases": {"schema", "accounting", "release_kinds", "row_groups"},
    "inference": set(),
    "mechanisms": {"schema", "accounting", "noise", "releases", "release_kinds"},
    "results": {"inference", "accounting", "schema", "releases", "plotting"},
    "plotting": {"accounting", "inference", "results"},
    "federation": {"mechanisms", "accounting", "noise", "schema", "releases"},
    "fitting": {"mechanisms", "federation", "inference", "results", "accounting", "schema", "releases"},
    "marginaleffects": {"results", "schema"},
    "datasets": {"schema"},
}
# What every tower may import of the floor, and its entry points to rows: a `Rows` goes in, a release comes
# out.
TOWERS_IMPORT = {
    "accounting",
    "federation",
    "fitting",
    "inference",
    "mechanisms",
    "release_kinds",
    "releases",
    "results",
    "schema",
}
ROW_ENTRY_POINTS = {
    "privinf.mechanisms",
    "privinf.mechanisms.distribution",  # for noisy distribution functions and levels
    "privinf.mechanisms.gaussian",  # for what the spending words come to
    "privinf.mechanisms.blocks",  # for tables of every kind as rows
    "privinf.mechanisms.arrays",  # for the types of what users give
    "privinf.mechanisms.local.channels",  # for the names of label channels
    "privinf.mechanisms.local.modulation_map",
    "privinf.mechanisms.local.signs",
    "privinf.mechanisms.mixing.party",
    "privinf.mechanisms.mixing.plan",
    "privinf.mechanisms.mixing.theory",
    "privinf.mechanisms.moments",
    "privinf.mechanisms.residual_plan",  # for the plan of the second round, of public numbers
    "privinf.mechanisms.rows",
    "privinf.mechanisms.samples",
    "privinf.mechanisms.statistics.isometric",  # for the layout of released entries
    "privinf.mechanisms.statistics.moments",  # for the layout of moments
    "privinf.mechanisms.statistics.scores",
    "privinf.mechanisms.statistics.survival",  # for the grid's root, and how many intervals it may have
    "privinf.mechanisms.statistics.summands",  # for what released counts say
}
# Rooms that import nothing but these, the standard library and the package.
NUMERIC_ONLY = {"inference": {"numpy", "scipy"}}
