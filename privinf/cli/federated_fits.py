"""``privinf federation fit``: every federated model from a TOML file, over sockets or over Flower."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import privinf as pi
from privinf.cli.inputs import SPENDING, read_schema_file, read_toml
from privinf.cli.outputs import check_free
from privinf.cli.shell_terms import in_plan_terms
from privinf.error_boundary import error_boundary
from privinf.errors import ArgumentError, NotAvailableError, PrivinfError
from privinf.federation import Federation, SecureServer, TrustedServer
from privinf.mechanisms.gaussian import total_mu
from privinf.schema import Design, Schema
from privinf.storage.checksummed import save_text
from privinf.typing import Family

# What the models of one curator are called in a plan of sites.
FEDERATED_NAMES = {
    "ols": 'model = "MomentOLS"',
    "logit": 'model = "FederatedGLM" with family = "binomial"',
}
# Names of the package, which loads them when a command needs them.
FEDERATED_MODELS = ("MomentOLS", "FederatedGLM", "Poisson", "NegativeBinomial", "DebiasedLasso", "PHReg")
# Models whose fits can resume from a folder.
CHECKPOINT_MODELS = ("MomentOLS", "FederatedGLM", "Poisson", "NegativeBinomial")
# Keys of a plan that only some models have.
KEYS_OF_MODELS = {"family": ("FederatedGLM", "DebiasedLasso"), "checkpoint": CHECKPOINT_MODELS}
OPTIMIZERS = ("Newton", "DPSGD", "DPAdam", "RandomSketch", "DOME")
STATISTIC = "statistic"
COUNT_MODELS = ("Poisson", "NegativeBinomial")  # which take an exposure
OFFSET_MODELS = ("FederatedGLM", *COUNT_MODELS)
ROLE_KEYS = ("offset", "exposure")  # keys of a plan that name a column without a coefficient
TRUSTS = ("secure-sum", "server")  # of a plan, the default first
# Keys of a plan's file.
PLAN = (
    "model",
    STATISTIC,
    "formula",
    "schema",
    "trust",
    "family",
    "offset",
    "exposure",
    "status",
    "event",
    "horizon",
    "seed",
    "checkpoint",
    "out",
    "optimizer",
    "options",
    "args",
    *SPENDING,
)
# Words of every model's fit that a plan may give, in its table [options].
FIT_WORDS = {
    "MomentOLS": ("cov_type", "robust_share", "stabilization", "ridge", "fuller", "target", "max_colluding"),
    "FederatedGLM": (
        "public_seed",
        "max_colluding",
        "relation",
        "unit",
        "client_clip",
        "cov_type",
        "targets",
        "nuisance",
        "margins",
        "intervals",
    ),
    "Poisson": ("max_colluding", "cov_type", "margins", "intervals"),
    "NegativeBinomial": ("max_colluding", "cov_type", "margins"),
    "DebiasedLasso": (
        "sparsity",
        "max_sparsity",
        "targets",
        "iterations",
        "clip",
        "refit",
        "center",
        "target",
        "max_colluding",
    ),
    "PHReg": ("follow_up", "relation", "max_colluding"),
    STATISTIC: ("max_colluding",),
}
COUNTS_ONLY = (
    "{}: the key 'exposure' is available only for models of counts: set model to \"Poisson\" or "
    '"NegativeBinomial" and omit family, or omit the exposure'
)
AS_MODEL = (
    '{}: negative binomial counts have a model of their own: set model = "NegativeBinomial" and omit family'
)
AS_KEY = "{}: [options] has {!r}, which is a key of the plan: write it above the table [options]"
CURVES = (
    "{}: survival curves have no plan file; in Python, pass the federation as data= to "
    "pi.survival.KaplanMeier (see the section on several hospitals of the page on survival curves)"
)
SIMULATED = (
    "this is only for simulated data and needs --simulation, which the policy of every site must allow"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FederatedFitPlan:
    """A fit or statistic over a federation, as a TOML file states it.

    Attributes
    ----------
    model : str
        One of `FEDERATED_MODELS`, or "statistic".
    statistic : str
        Name of a site's statistic, empty for a model.
    formula : str
    schema : Schema
    trust, family : str
    roles : mapping
        Names of the columns of offset and exposure, where they are given.
    times : mapping
        status, and event and horizon where they are given, of Cox's regression.
    spending : mapping
        epsilon, delta, mu, rho, and rng where a seed is given.
    options, args : mapping
        Words of the model's fit; arguments of the statistic.
    checkpoint : Path or None
    out : Path
        Without its ending: results go to ``<out>.json`` and ``<out>.npz``.
    """

    model: str
    statistic: str
    formula: str
    schema: Schema
    trust: str
    family: str
    roles: Mapping[str, str]
    times: Mapping[str, Any]
    spending: Mapping[str, Any]
    options: Mapping[str, Any]
    args: Mapping[str, Any]
    checkpoint: Path | None
    out: Path

    @property
    def endings(self) -> tuple[str, ...]:
        """Endings of the files of results: of a statistic it is the record alone."""
        return (".json",) if self.statistic else (".json", ".npz")


@error_boundary
def read_plan(path: Path, schema: Path | None = None, *, simulation: bool = False) -> FederatedFitPlan:
    """Return the plan in a TOML file, checked whole; paths in it are those from its own folder.

    Parameters
    ----------
    path : Path
    schema : Path, optional
        The schema if the plan names none.
    simulation : bool
        Whether ``epsilon = inf`` and a seed are wanted: for simulated data.

    Raises
    ------
    ArgumentError
        It has an unknown key, lacks a key, or requests a simulation without --simulation.
    StorageError, SchemaError
        A file that it names cannot be read.
    """
    content = read_toml(path)
    if unknown := [name for name in content if name not in PLAN]:
        raise ArgumentError(
            f"{path}: {unknown[0]!r} is not a key of a plan file; the keys are {', '.join(PLAN)}"
        )
    if (STATISTIC in content) == ("model" in content):
        raise ArgumentError(
            f"{path}: set either model (the key 'model', to one of {', '.join(FEDERATED_MODELS)}) or the "
            "name of a site's statistic (the key 'statistic')"
        )
    if content.get("model") in ("KaplanMeier", "NelsonAalen"):
        raise ArgumentError(CURVES.format(path))
    if "FILL IN" in str(content.get("formula")):
        raise ArgumentError(f"{path}: replace the text 'FILL IN: y ~ a + b' by the formula of the model")
    if remedy := FEDERATED_NAMES.get(str(content.get("model")).casefold()):
        raise ArgumentError(f"{path}: over sites, {content['model']} is {remedy}")
    model = _choice(content["model"], FEDERATED_MODELS, path, "'model'") if "model" in content else STATISTIC
    for name in ("formula", "out", *(content.keys() & {STATISTIC, "schema", "checkpoint"})):
        if not isinstance(content.get(name), str) or not content[name].strip():
            raise ArgumentError(f"{path}: set {name} to a non-empty string")
    named = content.get("schema")
    schema_path = schema if named is None else path.parent / named
    if schema_path is None:
        raise ArgumentError(f"{path}: set schema to the path of the schema file")
    if content.get("family") == "negative-binomial":
        raise ArgumentError(AS_MODEL.format(path))
    family = _choice(content.get("family", "gaussian"), get_args(Family), path, "'family'")
    _check_keys(content, model, path)
    if content.get("args") and model != STATISTIC:
        raise ArgumentError(
            f"{path}: the table [args] is only for a statistic; put options of a model's fit in [options]"
        )
    folder = content.get("checkpoint")
    return FederatedFitPlan(
        model=model,
        statistic=content.get(STATISTIC, ""),
        formula=content["formula"],
        schema=read_schema_file(schema_path),
        trust=_choice(content.get("trust", TRUSTS[0]), TRUSTS, path, "'trust'"),
        family=family,
        roles=_roles(content, model, path),
        times=_times(content, model, path),
        spending=_spending(content, path, simulation=simulation),
        options=_options(content, model, path),
        args=_table(content, "args", path),
        checkpoint=None if folder is None else path.parent / folder,
        out=path.parent / content["out"],
    )


@error_boundary
def run_plan(plan: FederatedFitPlan, federation: Federation, *, overwrite: bool = False) -> dict[str, Any]:
    """Run a plan at the sites; write and return the results.

    Parameters
    ----------
    plan : FederatedFitPlan
        Of `read_plan`.
    federation : Federation
        Of any transport.
    overwrite : bool
        Whether results that are there are replaced.

    Returns
    -------
    dict
        What ``<out>.json`` holds: names, params, bse (None where the fit has coefficients only), intervals,
        rows, and the budget spent. ``<out>.npz`` holds the results themselves (`privinf.load_results`); there
        is none of a single statistic.

    Raises
    ------
    PrivinfError
        As the model's fit; charges are kept, and a plan with a checkpoint resumes there.

    Notes
    -----
    **Privacy.** Costs what the plan states, at every queried site, and no more.
    """
    targets = [Path(f"{plan.out}{ending}") for ending in plan.endings]
    for target in targets:
        check_free(target, overwrite)
    record: dict[str, Any] = {"plan": plan.statistic or plan.model, "formula": plan.formula}
    record["trust"] = plan.trust
    record |= {"sites": list(federation.sites)}
    if plan.statistic:
        with _naming_keys():
            record |= _statistic(plan, federation)
    else:
        with _naming_keys():
            model = _model(plan, federation)
            result = model.fit(**plan.spending, **plan.options, **_checkpoint_option(plan))
        record |= _record_of(result)
        exact = math.isinf(result.privacy.epsilon())
        result.save(targets[1], records=not exact, overwrite=overwrite)
    save_text(targets[0], json.dumps(record, indent=1), overwrite=overwrite)
    return record


@contextmanager
def _naming_keys() -> Iterator[None]:
    """Name the keys of the plan, not arguments of Python, in errors of a fit."""
    try:
        yield
        return
    except PrivinfError as problem:
        error = type(problem)(in_plan_terms(str(problem)))
        cause = problem.__cause__
    raise error from cause


def _model(plan: FederatedFitPlan, federation: Federation) -> Any:
    words: dict[str, Any] = {"schema": plan.schema, "trust": plan.trust}
    if plan.model in ("FederatedGLM", "DebiasedLasso"):
        words["family"] = plan.family
    return getattr(pi, plan.model).from_formula(plan.formula, federation, **words, **plan.roles, **plan.times)


def _checkpoint_option(plan: FederatedFitPlan) -> dict[str, Any]:
    return {} if plan.checkpoint is None else {"checkpoint": plan.checkpoint}


def _statistic(plan: FederatedFitPlan, federation: Federation) -> dict[str, Any]:
    """Release one sum and describe it."""
    words = dict(plan.spending)
    options = {"rng": words.pop("rng", None), "design": Design.from_formula(plan.formula, plan.schema)}
    server: Any = SecureServer if plan.trust == "secure-sum" else TrustedServer
    mu = total_mu(words)  # type: ignore[arg-type]
    sums = server(federation, **options, **plan.options)
    release = sums.vector_sum(plan.statistic, plan.args, mu=mu, label=plan.statistic)
    return {
        "values": release.values.tolist(),
        "scale": release.scale,
        "rows": release.rows,
        "spent": {"mu": _plain(mu)},
    }


def _record_of(result: Any) -> dict[str, Any]:
    """Return the results of a fit as JSON."""
    record: dict[str, Any] = {"names": list(result.names), "params": result.params.tolist()}
    for name in ("bse", "conf_int"):
        try:
            value = result.bse if name == "bse" else result.conf_int()
            record[name] = getattr(value, "values", value).tolist()
        except NotAvailableError as problem:
            record |= {name: None, "reason": str(problem)}
    spent = result.privacy
    record["spent"] = {
        "epsilon": _plain(spent.epsilon()),
        "delta": spent.default_delta,
        "relation": spent.relation,
        "stamp": spent.stamp,
    }
    return record | {"summary": str(result.summary())}


def _plain(value: float) -> float | str:
    """Return a number as JSON has it, where infinity is a text."""
    return "inf" if math.isinf(value) else float(value)


def _spending(content: Mapping[str, Any], path: Path, *, simulation: bool) -> dict[str, Any]:
    words = {name: content[name] for name in SPENDING if name in content}
    if not words.keys() - {"delta"}:
        raise ArgumentError(f"{path}: set the privacy budget, epsilon and delta (or mu, or rho)")
    for name, value in words.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise ArgumentError(f"{path}: {name} must be a number")
        if math.isinf(value) and not simulation:
            raise ArgumentError(f"{path}: with {name} = inf the fit has no noise; {SIMULATED}")
    if "seed" not in content:
        return words
    if isinstance(content["seed"], bool) or not isinstance(content["seed"], int):
        raise ArgumentError(f"{path}: the key 'seed' must be an integer")
    if not simulation:
        raise ArgumentError(
            f"{path}: with the key 'seed', the noise can be reproduced and removed; {SIMULATED}"
        )
    return words | {"rng": content["seed"]}


def _check_keys(content: Mapping[str, Any], model: str, path: Path) -> None:
    """Raise ArgumentError for all keys at once that only other models have."""
    wrong = [
        f"the key {key!r} is available only for {', '.join(models)}"
        for key, models in KEYS_OF_MODELS.items()
        if key in content and model not in models
    ]
    if wrong:
        raise ArgumentError(f"{path}: {', and '.join(wrong)}; omit {'it' if len(wrong) == 1 else 'both'}")


def _roles(content: Mapping[str, Any], model: str, path: Path) -> dict[str, str]:
    """Return the columns of offset and exposure; ArgumentError for models that do not have them."""
    roles = {name: content[name] for name in ROLE_KEYS if name in content}
    for name, column in roles.items():
        if not isinstance(column, str) or not column.strip():
            raise ArgumentError(f"{path}: set {name} to the name of a column")
    if "offset" in roles and model not in OFFSET_MODELS:
        raise ArgumentError(
            f"{path}: the key 'offset' is available only for {', '.join(OFFSET_MODELS)}; omit it"
        )
    if "exposure" in roles and model not in COUNT_MODELS:
        raise ArgumentError(COUNTS_ONLY.format(path))
    return roles


def _times(content: Mapping[str, Any], model: str, path: Path) -> dict[str, Any]:
    """Return status, event and horizon of Cox's regression; ArgumentError for other models that have them."""
    times = {name: content[name] for name in ("status", "event", "horizon") if name in content}
    if model != "PHReg":
        if times:
            raise ArgumentError(f"{path}: the key {next(iter(times))!r} is available only for PHReg; omit it")
        return {}
    if not isinstance(times.get("status"), str):
        raise ArgumentError(f"{path}: set status to the name of the column that marks events")
    horizon = times.get("horizon", 1.0)
    if isinstance(horizon, bool) or not isinstance(horizon, (int, float)):
        raise ArgumentError(f"{path}: horizon must be a number")
    return times


def _options(content: Mapping[str, Any], model: str, path: Path) -> dict[str, Any]:
    """Return the words of the model's fit, its optimizer made."""
    options = _table(content, "options", path)
    if roles := [name for name in options if name in ROLE_KEYS]:
        raise ArgumentError(AS_KEY.format(path, roles[0]))
    if unknown := [name for name in options if name not in FIT_WORDS[model]]:
        raise ArgumentError(
            f"{path}: [options] has {unknown[0]!r}, which is not an option of {model}; the options "
            f"are {', '.join(FIT_WORDS[model])}"
        )
    settings = _table(content, "optimizer", path)
    if not settings:
        return options
    if model != "FederatedGLM":
        raise ArgumentError(f"{path}: the table [optimizer] is available only for FederatedGLM; omit it")
    name = _choice(settings.pop("name", None), OPTIMIZERS, path, "'name' of [optimizer]")
    reason = ""
    try:
        return options | {"optimizer": getattr(pi, name)(**settings)}
    except TypeError:
        reason = f"has an option that {name} does not have"
    except PrivinfError as problem:
        reason = str(problem)
    raise ArgumentError(f"{path}: [optimizer] {reason}")


def _table(content: Mapping[str, Any], name: str, path: Path) -> dict[str, Any]:
    table = content.get(name, {})
    if not isinstance(table, dict):
        raise ArgumentError(f"{path}: [{name}] must be a TOML table")
    return dict(table)


def _choice(value: Any, choices: Any, path: Path, noun: str) -> str:
    if value not in tuple(choices):
        raise ArgumentError(f"{path}: the key {noun} must be one of {', '.join(choices)}")
    return str(value)


def fit_over_flower(federation: Federation, config: Mapping[str, Any]) -> None:
    """Run the plan named by a run's configuration at the server, and report the outcome.

    Parameters
    ----------
    federation : Federation
    config : mapping
        plan, schema: paths at the server; simulation, overwrite: flags; told: the file for results, or
        why there are none, are written.
    """
    try:
        schema = Path(config["schema"]) if config["schema"] else None
        plan = read_plan(Path(config["plan"]), schema, simulation=bool(config["simulation"]))
        record = run_plan(plan, federation, overwrite=bool(config["overwrite"]))
    except PrivinfError as problem:
        told_problem(problem, config)
    else:
        save_text(config["told"], json.dumps(record), overwrite=True)


def told_problem(problem: PrivinfError, config: Mapping[str, Any]) -> None:
    """Write the error of a run to the file named by the run's configuration."""
    save_text(config["told"], json.dumps({"error": str(problem)}), overwrite=True)
