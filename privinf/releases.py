"""Releases: the frozen, serializable objects that a holder sends and that every analysis starts from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn, TypeAlias

import numpy as np

from privinf.accounting import LedgerEntry, Released
from privinf.accounting.released import appended
from privinf.error_boundary import error_boundaries, error_boundary
from privinf.errors import AlignmentError, ArgumentError, NotAvailableError, PrivinfError, StorageError
from privinf.notebook import html_table
from privinf.registry import TASKS, named
from privinf.release_kinds import check_kind
from privinf.row_groups import row_arrays, row_parquet, write_groups, write_numbers
from privinf.schema import Design
from privinf.storage.checksummed import reads, written_whole
from privinf.storage.containers import (
    digest_of,
    read_container,
    read_manifest,
    write_container,
    write_manifest,
)
from privinf.typing import AnyPath, PlainValue, RngLike
from privinf.validation import ReadRows, check_count, check_path, check_vacant
from privinf.wire import Formats

FORMAT = Formats.RELEASE
ROW_FORMAT = Formats.ROWS
ROW_SUFFIX = ".parquet"
WITHOUT_NOISE = (
    "a release made with epsilon=inf contains the rows without noise and cannot be saved: "
    "make the release with a finite epsilon"
)
CHARGE_STANDS = "The privacy budget was already charged, and the charge is kept"
OTHER_REGRESSION = (
    "is not available: regress() fits the regressions that a release determines; a {} regression needs "
    "privinf.{} and the rows, which is a release with a cost of its own"
)
Option: TypeAlias = PlainValue | RngLike  # of some model's fit


@error_boundaries
@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Release(Released):
    """Noisy release of a mechanism: arrays, the public noise model, the design and the ledger entries.

    Attributes
    ----------
    kind : str
        Name of the mechanism, such as "modulation" or "moments".
    arrays : mapping of str to ndarray
        The released numbers, in scaled units (read-only arrays). A release of modulated rows has the arrays
        ``features`` (n, d), or (T, n, d) for T rounds, ``response`` (n,), ``public`` (n, q) and
        ``directions``. A release of second moments has the array ``moments``, per record or in total. The
        array ``groups`` (n,) has the units of the rows, if units may have several rows.
    noise_model : mapping
        Public description of the noise, such as its scales. It never contains a seed or a draw of the noise.
    design : Design
        Columns, their bounds, and the map between scaled units and user units.
    entries : tuple of LedgerEntry
        Ledger entries: one for each release of private data. Their total cost is
        ``PrivacyReport.from_entries(entries)``.
    nobs : int
        Public number of records.

    Notes
    -----
    **Privacy.** A release may be published; its cost is stated in `entries`.
    """

    kind: str
    arrays: Mapping[str, np.ndarray[Any, Any]]
    noise_model: Mapping[str, Any]
    design: Design
    entries: tuple[LedgerEntry, ...]
    nobs: int

    def __post_init__(self) -> None:
        Released.__post_init__(self)
        frozen = {}
        for name, array in self.arrays.items():
            if isinstance(array, ReadRows):
                frozen[name] = array
                continue
            view = np.asarray(array).view()
            view.flags.writeable = False
            frozen[name] = view
        object.__setattr__(self, "arrays", MappingProxyType(frozen))
        object.__setattr__(self, "noise_model", MappingProxyType(dict(self.noise_model)))

    def __reduce__(self) -> Any:
        state = {field.name: getattr(self, field.name) for field in fields(self)}
        return _rebuilt, (state | {"arrays": dict(self.arrays), "noise_model": dict(self.noise_model)},)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in self.arrays.items())
        noise = self.noise_source + appended(self.stamp)
        return f"<Release {self.kind}: {self.nobs} records; {shapes}; noise {noise}>"

    def _repr_html_(self) -> str:
        rows = [(name, array.shape, array.dtype) for name, array in self.arrays.items()]
        return html_table(("array", "shape", "type"), rows, repr(self).strip("<>"))

    @property
    def law(self) -> NoReturn:
        """Former name of the attribute `noise_model`; raises NotAvailableError."""
        raise NotAvailableError("Release.law is now Release.noise_model")

    @property
    def logit(self) -> NoReturn:
        """Not available: `regress` fits what the release determines."""
        raise NotAvailableError(f"logit {OTHER_REGRESSION.format('logistic', 'Logit')}")

    @property
    def poisson(self) -> NoReturn:
        """Not available: `regress` fits what the release determines."""
        raise NotAvailableError(f"poisson {OTHER_REGRESSION.format('Poisson', 'Poisson')}")

    @property
    def ols(self) -> NoReturn:
        """Not available: the method is called `regress`."""
        raise NotAvailableError("ols is not available: call regress(formula), a linear regression")

    @property
    def noise_source(self) -> str:
        """Source of the noise: "lattice", "opendp", "simulation", or "none" (with epsilon = inf)."""
        return self.entries[0].source if self.entries else "none"

    @property
    def reporting_delta(self) -> float | None:
        """Delta at which `privacy` states epsilon; None if no delta was passed."""
        delta: float | None = self.noise_model.get("delta")
        return delta

    def regress(self, formula: str | Sequence[str] | None = None, **options: Option) -> Any:
        """Fit a linear regression among the released columns, at no further cost.

        Parameters
        ----------
        formula : str or sequence of str, optional
            Formula of the regression, such as ``"y ~ a + b"``. Its response may be any numeric column of the
            release. A formula is accepted by releases of second moments, by releases of modulated rows, and
            by joined releases of several parties. With several responses, such as ``"a + b ~ c"``, or with a
            list of formulas, the method returns a dict of results. The default is the regression for which
            the release was made.
        **options
            Options, such as `cov_type`, of the method ``regress`` of the model that made the release. For a
            release of noisy records (`LocalExamples`) they are the options of `IWPGLM.fit`.

        Returns
        -------
        Results or dict of Results
            Results of the regression, or a dict of results if there are several responses or formulas.

        Raises
        ------
        NotAvailableError
            Raised if a release of this kind must first be joined with the releases of other parties, or if a
            term of the formula is not a linear combination of released columns.

        Notes
        -----
        **Privacy.** Costs nothing: it uses only released numbers.
        """
        return self._fit("regress", () if formula is None else (formula,), options)

    def iv(self, formula: str) -> Any:
        """Fit two-stage least squares from released second moments, at no further cost.

        Parameters
        ----------
        formula : str
            Formula with the endogenous variables and their instruments in brackets. In ``"y ~ x + [w ~ z1 +
            z2]"``, w is endogenous, z1 and z2 are its instruments, and x is in both stages. A constant is in
            both stages too, unless the formula has the term ``- 1``.

        Returns
        -------
        Results
            Results of the regression, with tests of the instruments.

        Raises
        ------
        NotAvailableError
            Raised if the release is not a release of the second moments of all records.

        Notes
        -----
        **Privacy.** Costs nothing: it uses only released numbers.
        """
        return self._fit("iv", (formula,), {})

    def means(self) -> Any:
        """Return the means of the released columns with standard errors, from released second moments.

        Returns
        -------
        Results
            Results with the means as ``params``, and with ``bse``, ``conf_int()``, ``t_test("a = b")`` and
            the other attributes of `Results`.

        Raises
        ------
        NotAvailableError
            Raised if the release is not a release of second moments.

        Notes
        -----
        **Privacy.** Costs nothing: it uses only released numbers.
        """
        return self._fit("means", (), {})

    def corr(self, columns: Sequence[str] | None = None) -> Any:
        """Return the correlations of the released columns with intervals, from released second moments.

        Parameters
        ----------
        columns : sequence of str, optional
            Names of released columns; by default all released columns.

        Returns
        -------
        correlations
            Result with the correlation matrix as ``params``, and with ``table``, which has one row per pair
            of columns with its interval.

        Raises
        ------
        NotAvailableError
            Raised if the release is not a release of second moments.

        Notes
        -----
        **Privacy.** Costs nothing: it uses only released numbers.
        """
        return self._fit("corr", (columns,), {})

    def partial_corr(self, columns: Sequence[str] | None = None, given: Sequence[str] | None = None) -> Any:
        """Return partial correlations of the released columns with intervals, from second moments.

        Parameters
        ----------
        columns : sequence of str, optional
            Names of released columns; by default all released columns that are not in `given`.
        given : sequence of str, optional
            Columns to condition on. By default each correlation is conditional on all other released columns.

        Returns
        -------
        correlations
            Result with the correlation matrix as ``params``, and with ``table``, which has one row per pair
            of columns with its interval.

        Raises
        ------
        NotAvailableError
            Raised if the release is not a release of second moments.

        Notes
        -----
        **Privacy.** Costs nothing: it uses only released numbers.
        """
        return self._fit("partial_corr", (columns, given), {})

    def classify(self, **options: Option) -> Any:
        """Fit a classification model (`IWPGLM`) to released noisy records, at no further cost.

        Parameters
        ----------
        **options
            The loss function of `IWPGLM` (default ``loss="logistic"``), and options of `IWPGLM.fit`, such as
            `ridge`.

        Returns
        -------
        Results
            The fit.

        Raises
        ------
        NotAvailableError
            Raised if a release of this kind contains no labels.

        Notes
        -----
        **Privacy.** Costs nothing: it uses only released numbers.
        """
        return self._fit("classify", (), options)

    def _fit(
        self, name: str, args: tuple[str | Sequence[str] | None, ...], options: dict[str, Option]
    ) -> Any:
        task = TASKS.get((self.kind, name))
        if task is None:
            if name == "regress" and self.kind in ("random-mixing", "gaussian-rows"):
                remedy = "combine the releases of all parties first, with privinf.join(releases)"
            else:
                kinds = " or ".join(repr(kind) for kind, task_name in TASKS if task_name == name)
                remedy = f"it needs a release of kind {kinds}"
            raise NotAvailableError(f"{name}() is not available for releases of kind {self.kind!r}: {remedy}")
        words = {word: options.pop(word, default) for word, default in task.words.items()}
        model = named(task.model).from_release(self, **words)
        return getattr(model, task.method)(*args, **options)

    def header(self) -> dict[str, Any]:
        """Return everything except the arrays, as a dictionary that can be written as JSON.

        Returns
        -------
        dict
            For `from_parts`.
        """
        return {
            "kind": self.kind,
            "law": dict(self.noise_model),
            "design": self.design.to_dict(),
            "entries": [entry.to_dict() for entry in self.entries],
            "nobs": self.nobs,
        }

    @classmethod
    @reads("a release")
    def from_parts(cls, arrays: Mapping[str, np.ndarray[Any, Any]], header: Mapping[str, Any]) -> Release:
        """Make a release from its arrays and its header.

        Parameters
        ----------
        arrays : mapping of str to ndarray
            The arrays by name.
        header : mapping
            Result of `header`.

        Returns
        -------
        Release
            The release.

        Raises
        ------
        StorageError
            Raised if the arrays and the header do not describe a release.
        """
        absent = [name for name in ("kind", "law", "design", "entries", "nobs") if name not in header]
        if absent:
            raise StorageError(
                f"the file is damaged or not a valid release: its header lacks {', '.join(absent)}; use "
                "an intact copy"
            )
        kind = header["kind"]
        noise_model = header["law"]
        if not isinstance(kind, str) or not isinstance(noise_model, Mapping):
            raise StorageError(
                "the file is damaged or not a valid release: its header lacks the kind or the "
                "noise model; use an intact copy"
            )
        design = Design.from_dict(header["design"])
        nobs = check_count(header["nobs"], "nobs")
        check_kind(kind, arrays, noise_model, design, nobs)
        entries = tuple(LedgerEntry.from_dict(entry) for entry in header["entries"])
        return cls(
            kind=kind, arrays=arrays, noise_model=noise_model, design=design, entries=entries, nobs=nobs
        )

    def save(self, path: str | PathLike[str], *, key: bytes | None = None, overwrite: bool = False) -> None:
        """Write the release to one file (npz arrays and JSON), with a checksum, or an HMAC with `key`.

        Parameters
        ----------
        path : path
            The file.
        key : bytes, optional
            Secret key of the HMAC, which protects the file from changes. Without a key the file has a
            checksum only.
        overwrite : bool
            Whether to replace an existing file.

        Raises
        ------
        ArgumentError
            Raised if the file exists and `overwrite` is not True.
        NotAvailableError
            Raised if the release has no noise (epsilon = inf), because it must not leave the process.
        """
        if self.noise_model.get("noise_free", False):
            raise NotAvailableError(WITHOUT_NOISE)
        target = check_vacant(path, overwrite)
        write_container(target, dict(self.arrays), self.header(), format=FORMAT, key=key)

    def to_parquet(self, path: AnyPath, *, overwrite: bool = False) -> None:
        """Write the arrays to a Parquet file for other programs, with one row per number.

        Parameters
        ----------
        path : path
            The file.
        overwrite : bool
            Whether to replace an existing file.

        Raises
        ------
        ArgumentError
            Raised if the file exists and `overwrite` is not True.
        NotAvailableError
            Raised if the release has no noise, if its rows are already in a Parquet file, or if pyarrow is
            not installed.
        """
        if self.noise_model.get("noise_free", False):
            raise NotAvailableError(WITHOUT_NOISE)
        write_numbers(check_vacant(path, overwrite), self.arrays, {"format": FORMAT, **self.header()})

    def require(self, kind: str, model: str) -> Release:
        """Return the release itself if it is of the required kind.

        Parameters
        ----------
        kind : str
            Kind of release that is required.
        model : str
            Name of the model that needs the release, which is used in the error message.

        Returns
        -------
        Release
            This release.

        Raises
        ------
        AlignmentError
            Raised if the release is not of the required kind.
        """
        if self.kind != kind:
            remedy = ": use release.regress(formula)" if (self.kind, "regress") in TASKS else ""
            if self.kind in ("random-mixing", "gaussian-rows"):
                remedy = ": combine the releases of all parties with privinf.join(releases)"
            raise AlignmentError(
                f"{model} needs a release of kind {kind!r}, but this release is of kind {self.kind!r}{remedy}"
            )
        return self


def _rebuilt(state: dict[str, Any]) -> Release:
    """Return a release of the state that `Release.__reduce__` gives."""
    return Release(**state)


@error_boundary
def load_release(path: str | PathLike[str], *, key: bytes | None = None) -> Release:
    """Read a release that `Release.save` wrote, or a release whose rows are in a Parquet file.

    Parameters
    ----------
    path : path
        The file.
    key : bytes, optional
        Secret key of the HMAC, if the file was saved with a key.

    Returns
    -------
    Release
        The release.

    Raises
    ------
    StorageError
        Raised if the file is damaged, is not a release, or was written by a newer version, or if `key` is not
        the key of the file. The error is also raised if there is no JSON file next to a Parquet file, because
        the release in the Parquet file was not finished.
    """
    if check_path(path).name.lower().endswith(ROW_SUFFIX):
        return _read_rows(check_path(path), key)
    arrays, header = read_container(path, format=FORMAT, key=key)
    return Release.from_parts(arrays, header)


# ---- releases of rows, in Parquet


def rows_target(path: object, *, noise_free: bool) -> Path | None:
    """Return where a release of rows is to be written, None for memory; checks it before the charge.

    Raises
    ------
    ArgumentError
        It does not end in .parquet, or there is such a file.
    NotAvailableError
        The release would carry no noise; pyarrow is not installed.
    """
    if path is None:
        return None
    target = check_vacant(path)
    if not target.name.lower().endswith(ROW_SUFFIX) or not target.parent.is_dir():
        raise ArgumentError(
            f"to={str(target)!r} is not valid: pass the path of a file that ends in {ROW_SUFFIX}, in "
            "a folder that exists"
        )
    if noise_free:
        raise NotAvailableError(WITHOUT_NOISE)
    row_parquet()
    return target


def write_rows(
    target: Path | None, release: Release, blocks: Iterable[Mapping[str, np.ndarray[Any, Any]]]
) -> Release:
    """Write a release whose rows come in blocks, and return it with its rows in the file.

    Parameters
    ----------
    target : Path or None
        As `rows_target` returns it. None: there is one block, which stays in memory. A JSON file next to the
        rows, ``<name>.json``, holds their SHA-256. It is written last, by renaming, and a Parquet file
        without it is not a release.
    release : Release
        All but the arrays of rows.
    blocks : iterable of mapping
        Arrays by name, of the same rows: (rows,) or (rows, width).

    Raises
    ------
    StorageError
        For example, the disk is full. The partial file is removed, and the message states that the charge is
        kept.
    """
    if target is None:
        return replace(release, arrays={**release.arrays, **next(iter(blocks))})
    kinds = dict[str, Any]()
    try:
        with written_whole(target) as stream:
            digest = write_groups(stream, blocks, kinds)
        small = {name: array.tolist() for name, array in release.arrays.items()}
        header = {**release.header(), "small": small, "rows": kinds}
        write_manifest(_manifest(target), header, {"rows": digest}, format=ROW_FORMAT)
    except PrivinfError as error:
        target.unlink(missing_ok=True)
        failure: Exception = type(error)(f"{error}. {CHARGE_STANDS}")
    except (OSError, ValueError) as error:  # of the system, and of pyarrow
        target.unlink(missing_ok=True)
        cause = getattr(error, "strerror", None) or "the disk is full or was removed"
        failure = StorageError(
            f"{target} could not be written ({cause}), so the release does not exist: free disk "
            f"space, or pass another folder. {CHARGE_STANDS}"
        )
    else:
        return replace(release, arrays={**release.arrays, **row_arrays(target, kinds, release.nobs)})
    raise failure


def _read_rows(path: Path, key: bytes | None) -> Release:
    """Return a release of rows, once its JSON and the digest of all its bytes are right."""
    manifest = _manifest(path)
    if path.is_file() and not manifest.is_file():
        raise StorageError(
            f"{path} is not a complete release, because {manifest.name} is not in the same folder: "
            "make the release again, or ask the party that made it for both files"
        )
    header, digests = read_manifest(manifest, format=ROW_FORMAT, key=key)
    if digest_of(path) != digests.get("rows"):
        raise StorageError(
            f"{path} is corrupted, or it belongs to another {manifest.name}, because its checksum "
            "does not match: ask for the original files"
        )
    row_parquet()
    return _opened(path, header)


@reads("a release of rows")
def _opened(path: Path, header: Mapping[str, Any]) -> Release:
    arrays = row_arrays(path, header["rows"], header["nobs"])
    small = {name: np.asarray(values) for name, values in header["small"].items()}
    return Release.from_parts({**arrays, **small}, header)


def _manifest(path: Path) -> Path:
    return path.with_name(path.name + ".json")
