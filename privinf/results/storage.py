"""Results in one file, without pickle; the release, where kept, is nested in it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, cast

import numpy as np

from privinf.accounting import PrivacyReport
from privinf.error_boundary import error_boundary
from privinf.errors import NotAvailableError, PrivinfError, StorageError
from privinf.inference.estimate import Estimate, VarianceTerms
from privinf.inference.score_test import Identification
from privinf.registry import MODELS, named, studied
from privinf.releases import Release
from privinf.results.context import Context
from privinf.results.fitted import FittedResult
from privinf.results.notes import Note
from privinf.schema import Design
from privinf.storage.checksummed import reads
from privinf.storage.containers import read_container, write_container
from privinf.validation import check_array, check_vacant
from privinf.wire import Formats

FORMAT = Formats.RESULTS
RESULT_VERSION = 1  # of a result's file
RELEASE = "release/"
TERMS = "terms/"
# Fields of the `Estimate` that are arrays of the file.
ESTIMATE_ARRAYS = ("params", "cov", "scores", "bread", "noise_cov", "bias")
DEGREES = ("df", "df_resid")  # degrees of freedom, left out where they are infinite
CONTEXT_ARRAYS = ("sampling_cov", "point")  # fields of the context that are arrays of the file
# Fields of the context in the header.
PLAIN_FIELDS = ("target", "model", "method", "settings", "rsquared", "scale")

Rebuild = Callable[[Release, Mapping[str, Any]], Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Recipe:
    """How results of one model come back from a file.

    Attributes
    ----------
    results : type[FittedResult]
    system : callable
        ``system(release, settings)`` makes the estimating equation again, as the fit did.
    """

    results: type[FittedResult]
    system: Rebuild


_recipes: dict[str, Recipe] = {}


@error_boundary
def register_model(name: str, *, results: type[FittedResult], system: Rebuild) -> None:
    """Register a loader for saved results of a model outside of the package."""
    _recipes[name] = Recipe(results, system)


def _recipe(model: str) -> Recipe | None:
    """Return how results of a model come back, as it was registered or as the package's table has it."""
    if model in _recipes or model not in MODELS:
        return _recipes.get(model)
    stored = MODELS[model]
    system = (lambda release, settings: None) if stored.system is None else named(stored.system)
    return Recipe(named(stored.results), system)


def save_results(
    result: FittedResult,
    path: str | PathLike[str],
    *,
    records: bool = True,
    key: bytes | None = None,
    overwrite: bool = False,
) -> None:
    """Write a result to one file; see `Results.save`.

    Raises
    ------
    NotAvailableError
        The fit used no noise (epsilon = inf) and `records` is True: release and scores hold the rows.
    """
    if records and math.isinf(result.privacy.epsilon()):
        raise NotAvailableError(
            "a fit with epsilon=inf contains the rows themselves, which must not be saved: pass "
            "records=False to save only coefficients and covariance"
        )
    target = check_vacant(path, overwrite)
    arrays, header = _to_parts(result.estimate, result._context, records)
    write_container(target, arrays, header, format=FORMAT, version=RESULT_VERSION, key=key)


def load_results(
    path: str | PathLike[str], *, default: type[FittedResult], key: bytes | None = None
) -> FittedResult:
    """Read a result that `save_results` wrote, of class `default` where its model registered none.

    Raises
    ------
    StorageError
        The file is damaged, foreign, of a newer version, or does not describe a result.
    NotAvailableError
        The result is of a method of studies, which cannot be imported here.
    """
    arrays, header = read_container(path, format=FORMAT, version=RESULT_VERSION, key=key)
    try:
        result = _from_parts(arrays, header, default)
    except StorageError:
        raise
    except PrivinfError as problem:
        reason = str(problem)
    else:
        stored = MODELS.get(header["model"])
        for method, module in ({} if stored is None else stored.studies).items():
            if header["method"].startswith(method):
                studied(module, f"the method of {path} ({method})")
        return result
    raise StorageError(f"{path} is damaged, or is not a saved result ({reason}); use an intact copy")


def _to_parts(
    estimate: Estimate, context: Any, records: bool
) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    arrays = {name: getattr(estimate, name) for name in ESTIMATE_ARRAYS if records or name != "scores"}
    arrays |= {name: getattr(context, name) for name in CONTEXT_ARRAYS}
    terms = estimate.terms
    named = None
    if terms is not None:
        named = {"equation": terms.equation, "sampling": list(terms.sampling), "noise": list(terms.noise)}
        matrices = (*terms.sampling.values(), *terms.noise.values())
        arrays |= {f"{TERMS}{place}": term for place, term in enumerate(matrices)}
    release = context.release if records else None
    if release is not None:
        arrays |= {RELEASE + name: array for name, array in release.arrays.items()}
    strength = context.identification
    header = {
        "names": estimate.names,
        "nobs": estimate.nobs,
        "cov_type": estimate.cov_type,
        "weak_reason": estimate.weak_reason,
        **{name: None if math.isinf(df := getattr(estimate, name)) else df for name in DEGREES},
        "terms": named,
        "report": context.report.to_dict(),
        "design": None if context.design is None else context.design.to_dict(),
        "identification": None if strength is None else dataclasses.asdict(strength),
        "release": None if release is None else release.header(),
        "notes": [note.text for note in context.ranked],
        "note_ranks": [[note.rank, note.kind] for note in context.ranked],
        "note_columns": [list(note.columns) for note in context.ranked],
        "warnings_ranked": True,
        "options": list(context.options.items()),  # pairs: a file's keys are sorted
        **{name: getattr(context, name) for name in PLAIN_FIELDS},
    }
    return {name: array for name, array in arrays.items() if array is not None}, header


@reads("a result")
def _from_parts(
    arrays: Mapping[str, np.ndarray[Any, Any]], header: Mapping[str, Any], default: type[FittedResult]
) -> FittedResult:
    _check_header(header)
    estimate = Estimate(
        names=tuple(header["names"]),
        nobs=header["nobs"],
        cov_type=header["cov_type"],
        weak_reason=header["weak_reason"],
        **{name: math.inf if header.get(name) is None else header[name] for name in DEGREES},  # type: ignore[arg-type]
        **{name: arrays.get(name) for name in ESTIMATE_ARRAYS},  # type: ignore[arg-type]
        terms=_terms(arrays, header.get("terms")),
    )
    release = None
    if header["release"] is not None:
        released = {name.removeprefix(RELEASE): a for name, a in arrays.items() if name.startswith(RELEASE)}
        release = Release.from_parts(released, header["release"])
    recipe = _recipe(header["model"])
    strength = header["identification"]
    kind = default if recipe is None else recipe.results
    context = Context(
        report=PrivacyReport.from_dict(header["report"]),
        design=None if header["design"] is None else Design.from_dict(header["design"]),
        release=release,
        system=_equation(recipe, release, header["settings"]),
        identification=None if strength is None else Identification(**strength),
        notes=_notes(header),
        options=dict(header["options"]),
        **{name: _finite(arrays.get(name), name) for name in CONTEXT_ARRAYS},
        **{name: header[name] for name in PLAIN_FIELDS},
    )
    result = kind(estimate, kind._stored_context(estimate, context))
    result._check_settings()
    return result


def _notes(header: Mapping[str, Any]) -> tuple[Note, ...]:
    """Return the notes with their ranks and columns.

    Older versions printed every note and ranked warnings as details: all notes of their files are must-read.
    """
    texts = header["notes"]
    pairs = header.get("note_ranks") or [("detail", "")] * len(texts)
    columns = header.get("note_columns") or [()] * len(texts)
    if header.get("warnings_ranked") is not True:
        pairs = [("must-read" if rank == "detail" else rank, kind) for rank, kind in pairs]
    lines = zip(texts, pairs, columns, strict=True)
    return tuple(Note(text, rank, kind, tuple(names)) for text, (rank, kind), names in lines)


def _terms(arrays: Mapping[str, np.ndarray[Any, Any]], named: Any) -> VarianceTerms | None:
    """Return the named terms of the variance; None for files without them."""
    if named is None:
        return None
    names = (*named["sampling"], *named["noise"])
    matrices = {name: arrays[f"{TERMS}{place}"] for place, name in enumerate(names)}
    kinds = ({name: matrices[name] for name in named[kind]} for kind in ("sampling", "noise"))
    return VarianceTerms(named["equation"], *kinds)


def _equation(recipe: Recipe | None, release: Release | None, settings: Mapping[str, Any]) -> Any:
    """Return the estimating equation, where the file contains its parts."""
    if recipe is None or (release is None and "scores" not in settings):
        return None
    return recipe.system(cast("Release", release), settings)


def _check_header(header: Mapping[str, Any]) -> None:
    """Raise StorageError unless texts are texts and numbers numbers; the rest is checked where it is used."""
    texts = [header[name] for name in ("cov_type", "weak_reason", "target", "model", "method")]
    texts += [*header["notes"], *(text for pair in header["options"] for text in pair)]
    numbers = [header.get(name) for name in ("rsquared", "scale", *DEGREES)]
    flags = [] if header["identification"] is None else [header["identification"]["weak"]]
    numbers += [value for name, value in (header["identification"] or {}).items() if name != "weak"]
    sound = all(isinstance(text, str) for text in texts) and isinstance(header["settings"], dict)
    sound = sound and all(isinstance(flag, bool) for flag in flags)
    noise = header["settings"].get("measure_noise", {}) if sound else {}
    sound = sound and isinstance(noise, dict)
    numbers += list(noise.values()) if sound else []
    if not sound or not all(value is None or type(value) in (int, float) for value in numbers):
        raise StorageError("the file is not a valid result: a field of its header has the wrong type")


def _finite(array: Any, name: str) -> Any:
    return None if array is None else check_array(array, name, ndim=array.ndim)
