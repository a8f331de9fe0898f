"""What the tables in the reader's folder contain, and how each is built of its public original.

A table is known by its content. The canonical form has the columns by their names: whole numbers as 64-bit
integers, other numbers rounded to single precision, text in UTF-8, each with its kind before it. So types,
compression and the order of the columns do not matter; ``recipes.toml`` beside this file has the digests.
"""

from __future__ import annotations

import hashlib
import tomllib
import zipfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from privinf.errors import ArgumentError, StorageError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One table of the folder: its content, and how it is built.

    Attributes
    ----------
    rows, columns : int
    digest, content : str
        SHA-256 of the values in canonical form; `content`: of the rows sorted.
    original : str
        Address of the file to download, or of the folder that `download` lies in.
    download, members : tuple of str
        Files to download, and files in them, in the order of the rows; empty where there is no recipe.
    unavailable : str
        Why there is none.
    keep : tuple of str
        Columns of the table.
    rename : mapping
        Names of columns in the original, to those here.
    hundredths, reals, present : tuple of str
        Columns stored in whole hundredths; columns that stay real though a file may have whole numbers only;
        columns without which a row is left out.
    missing_codes : int or None
        The code of a missing value; None where nothing is missing.
    within : mapping
        Least and largest value of a column; other rows are left out.
    """

    rows: int
    columns: int
    digest: str = ""
    content: str = ""
    original: str = ""
    download: tuple[str, ...] = ()
    members: tuple[str, ...] = ()
    unavailable: str = ""
    keep: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    hundredths: tuple[str, ...] = ()
    reals: tuple[str, ...] = ()
    present: tuple[str, ...] = ()
    missing_codes: int | None = None
    within: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def how(self, name: str) -> str:
        """Say what to download from where and how to build the table, or why it cannot be."""
        if not self.members:
            return f"there is no recipe to build this file, because {self.unavailable}"
        if len(self.download) == 1:
            what = f"download {self.original}"
            given = self.download[0]
        else:
            what = f"download {', '.join(self.download)} from {self.original} into a folder DOWNLOADS"
            given = "DOWNLOADS"
        return f"to build it, {what}, and run `python -m studies.data build {name} --from {given}`"

    def check(self, table: pd.DataFrame, where: object) -> bool:
        """Whether a table has this content in this order of rows; False where the order is another.

        Raises
        ------
        StorageError
            The content is another.
        """
        if table.shape != (self.rows, self.columns):
            rows, columns = table.shape
            raise StorageError(
                f"{where}: {rows} rows and {columns} columns, not {self.rows} and {self.columns}"
            )
        form = canonical(table)
        if digest_of(form) == self.digest:
            return True
        if digest_of(in_order(form)) != self.content:
            raise StorageError(f"{where}: the values are not those of the table that is known here")
        return False


def _recipe(fields: Mapping[str, Any]) -> Recipe:
    read: dict[str, Any] = {
        key: tuple(item) if isinstance(item, list) else item for key, item in fields.items()
    }
    return Recipe(**read)


_TEXT = Path(__file__).with_name("recipes.toml").read_text(encoding="utf-8")
RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {name: _recipe(fields) for name, fields in tomllib.loads(_TEXT).items()}
)


def canonical(table: pd.DataFrame) -> dict[str, np.ndarray[Any, Any]]:
    """Return the columns by name: int64, float32 or bytes."""
    form: dict[str, np.ndarray[Any, Any]] = {}
    for name in sorted(map(str, table.columns)):
        values = table[name]
        kind = values.dtype.kind if isinstance(values.dtype, np.dtype) else "O"
        if kind in "iub":
            form[name] = values.to_numpy().astype("<i8")
        elif kind == "f":
            form[name] = values.to_numpy().astype("<f4") + np.float32(0.0)  # -0 is 0
        else:
            form[name] = np.array([str(value).encode() for value in values], dtype=object)
    return form


def in_order(form: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """Return the rows sorted by all columns."""
    keys = [np.unique(v, return_inverse=True)[1] if v.dtype == object else v for v in form.values()]
    order = np.lexsort(keys[::-1])
    return {name: values[order] for name, values in form.items()}


def digest_of(form: Mapping[str, np.ndarray[Any, Any]]) -> str:
    """Return the SHA-256 of a table in canonical form."""
    whole = hashlib.sha256()
    for name, values in form.items():
        text = values.dtype == object
        data = b"\n".join(values) if text else np.ascontiguousarray(values).tobytes()
        whole.update(f"{name}:{'text' if text else values.dtype.str}:{len(values)}:{len(data)}\n".encode())
        whole.update(data)
    return whole.hexdigest()


def build(name: str, source: Path) -> pd.DataFrame:
    """Return a table made of its downloaded original, its content not yet checked.

    Parameters
    ----------
    name : str
        One of `RECIPES`.
    source : Path
        The downloaded file, or a folder of them: archives as they are, or what was in them.

    Raises
    ------
    ArgumentError
        The table has no recipe, or a file or a column is not where it should be.
    """
    if name not in RECIPES:
        raise ArgumentError(f"no table {name!r}; there are {', '.join(RECIPES)}")
    recipe = RECIPES[name]
    if not recipe.members:
        raise ArgumentError(f"{name}: {recipe.how(name)}")
    import pandas as pd

    parts = []
    for member in recipe.members:
        with ExitStack() as opened:
            stream = _member(source, member, opened)
            if stream is None:
                raise ArgumentError(
                    f"{source}: no {member}, neither as a file nor in an archive; {recipe.how(name)}"
                )
            parts.append(_part(pd.read_csv(stream, low_memory=False), recipe, f"{source}: {member}"))
    return pd.concat(parts, ignore_index=True)


def _member(source: Path, member: str, opened: ExitStack) -> IO[bytes] | None:
    """Open a file of a folder or an archive, or the source itself; None where there is none."""
    if source.is_dir():
        plain = sorted(source.rglob(member))
        if plain:
            return opened.enter_context(plain[0].open("rb"))
        archives = sorted(source.glob("*.zip"))
    elif source.is_file():
        if not zipfile.is_zipfile(source):
            return opened.enter_context(source.open("rb"))
        archives = [source]
    else:
        return None
    for path in archives:
        archive = opened.enter_context(zipfile.ZipFile(path))
        for inside in archive.namelist():
            if inside.rsplit("/", 1)[-1] == member:
                return opened.enter_context(archive.open(inside))
    return None


def _part(raw: pd.DataFrame, recipe: Recipe, where: str) -> pd.DataFrame:
    """Return the rows and columns of one file that belong to the table, in the table's types."""
    table = raw.rename(columns=dict(recipe.rename))
    lacking = [column for column in recipe.keep if column not in table]
    if lacking:
        raise ArgumentError(f"{where} has no column {', '.join(lacking)}: it is not the original")
    table = table[list(recipe.keep)]
    for column in recipe.present:
        table = table[table[column].notna()]
    if recipe.missing_codes is not None:
        table = table.fillna(recipe.missing_codes)
    for column, (low, high) in recipe.within.items():
        table = table[table[column].between(low, high)]
    whole = {
        column: np.rint(table[column].to_numpy(np.float64) * (100.0 if column in recipe.hundredths else 1.0))
        for column in recipe.keep
        if column in recipe.hundredths
        or (recipe.missing_codes is not None and table[column].dtype.kind == "f")
    }
    table = table.assign(**{column: values.astype(np.int64) for column, values in whole.items()})
    return table.astype(dict.fromkeys(recipe.reals, "float64"))
