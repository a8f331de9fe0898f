"""Messages of the library in the terms of a shell: options for arguments, and commands for calls."""

from __future__ import annotations

import re

# Arguments of the library that are options of commands under the same name.
OPTIONS = (
    *("epsilon", "delta", "mu", "rho", "ledger", "schema", "missing", "weights", "offset", "exposure"),
    *("cov_type", "margins", "target", "max_rows", "unit", "trust", "family", "alpha", "width", "power"),
    *("effect", "coefficient", "guesses", "grid", "horizon", "calibration", "method"),
)
# Remedies in Python, as patterns, and what serves in a shell.
REMEDIES = (
    (
        r"schema\.undeclared_levels\(table\)",
        "'privinf schema check SCHEMA --data FILE --undeclared'",
    ),
    (
        r"declare them with schema\.fill\(.*?\}\), or estimate them privately with pi\.find_bounds\.",
        "fill them in in the schema file, or estimate them privately with 'privinf schema suggest FILE "
        "--epsilon ... --delta ... --out SCHEMA'.",
    ),
    (
        r"plan the mean of a column by pi\.stats\.plan_mean\(\)",
        "in Python, pi.stats.plan_mean() plans a mean",
    ),
    (r", or a share by pi\.stats\.plan_proportion\(\)", ", and pi.stats.plan_proportion() a share"),
    (r" \(on the command line: --[\w-]+\)", ""),
    (r"omit estimators= to compare all available estimators", "omit --estimator"),
)
_NAMES = "|".join(OPTIONS)
_WITH_VALUE = re.compile(rf"(?<![\w.(`-])({_NAMES})=(?:'([\w-]+)'|\"([\w-]+)\"|([-+]?\d[\w.+-]*\w|\d))")
_ALONE = re.compile(rf"(?<![\w.(`-])({_NAMES})=(?![\w'\"=])")

# Arguments of fits that are keys of a plan file under the same name, and rng, which is the key 'seed'.
PLAN_KEYS = [
    "epsilon",
    "delta",
    "mu",
    "rho",
    "rng",
    "trust",
    "family",
    "offset",
    "exposure",
    "status",
    "event",
    "horizon",
    "checkpoint",
    "schema",
    "optimizer",
    "cov_type",
    "robust_share",
    "stabilization",
    "ridge",
    "fuller",
    "target",
    "targets",
    "max_colluding",
    "public_seed",
    "relation",
    "unit",
    "client_clip",
    "nuisance",
    "margins",
    "intervals",
    "sparsity",
    "max_sparsity",
    "iterations",
    "clip",
    "refit",
    "center",
    "follow_up",
]
_PLAN_NAMES = "|".join(PLAN_KEYS)
# Remedies in Python, as patterns, and what serves in a plan file.
PLAN_REMEDIES = (
    (r"pass (max_colluding=\d+ or more) to SecureServer", r"set \1 in the table [options]"),
    (
        r"If fit\(\) is called with checkpoint=folder, repeating the call",
        "With the key 'checkpoint', repeating the command",
    ),
    (r"[Rr]epeat the (same )?call", lambda match: f"{match[0][0]}epeat the command"),
    (r"[Tt]his call has charged", lambda match: f"{match[0][0]}his command has charged"),
    (rf"pass (?=(?:the same )?(?:{_PLAN_NAMES})=)", "set "),
)
_PLAN_VALUE = re.compile(
    rf"(?<![\w.(`-])({_PLAN_NAMES})=(\"[\w-]+\"|'[\w-]+'|[-+]?\d[\w.+-]*\w|\d|True|False)"
)
_PLAN_ALONE = re.compile(rf"(?<![\w.(`-])({_PLAN_NAMES})=(?![\w'\"=])")


def in_shell_terms(text: str) -> str:
    """Return a message with the options and commands of a shell in place of arguments and calls."""
    for pattern, remedy in REMEDIES:
        text = re.sub(pattern, remedy, text)
    text = _WITH_VALUE.sub(lambda match: f"{_option(match[1])} {match[2] or match[3] or match[4]}", text)
    return _ALONE.sub(lambda match: _option(match[1]), text)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def in_plan_terms(text: str) -> str:
    """Return a message about a fit with the keys of its plan file in place of arguments and calls."""
    for pattern, remedy in PLAN_REMEDIES:
        text = re.sub(pattern, remedy, text)
    text = _PLAN_VALUE.sub(lambda match: f"{_key(match[1])} = {_toml(match[2])}", text)
    return _PLAN_ALONE.sub(lambda match: f"'{_key(match[1])}'", text)


def _toml(value: str) -> str:
    return value.lower() if value in ("True", "False") else value


def _key(argument: str) -> str:
    return "seed" if argument == "rng" else argument
