"""Tables too large for the package: read from a folder of the user's, and checked by their content."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from privinf.errors import NotAvailableError, StorageError
from studies.data.recipes import RECIPES

if TYPE_CHECKING:
    import pandas as pd

VARIABLE = "PRIVINF_DATA"


@dataclass(frozen=True, slots=True)
class Packed:
    """A table stored as ``NAME/data.parquet`` in the folder that PRIVINF_DATA names.

    Attributes
    ----------
    name : str
        One of `studies.data.recipes.RECIPES`, which says what the table contains.
    source : str
        Who made the public original.
    """

    name: str
    source: str

    def read(self) -> pd.DataFrame:
        """Return the table.

        Raises
        ------
        NotAvailableError
            PRIVINF_DATA is not set, the file is not there, or pyarrow is not installed. The text
            has what to download from where and how the table is built, or why it cannot be.
        StorageError
            The file cannot be read, or its content is not that of the table.
        """
        path = self._path()
        table = read_parquet(path, f"data set {self.name!r}")
        RECIPES[self.name].check(table, path)
        return table

    def _path(self) -> Path:
        folder = os.environ.get(VARIABLE)
        file = f"{self.name}/data.parquet"
        path = Path(folder or "") / file
        if folder and path.is_file():
            return path
        where = (
            f"the folder {folder} ({VARIABLE}) has no file {file}"
            if folder
            else f"the environment variable {VARIABLE} does not name a folder with the file {file}"
        )
        recipe = RECIPES[self.name]
        if not recipe.members:
            place = (
                "put it into this folder"
                if folder
                else f"set {VARIABLE} to the folder that contains {self.name}"
            )
            where += f". If you have this file, {place}"
        how = recipe.how(self.name)
        raise NotAvailableError(
            f"data set {self.name!r} is not part of the package, and {where}. "
            f"{how[0].upper()}{how[1:]}. Source: {self.source}"
        )


def read_parquet(path: Path, what: str) -> pd.DataFrame:
    """Return a table, or say what is missing or broken."""
    import pandas as pd

    try:
        return pd.read_parquet(path)
    except ImportError as error:
        raise NotAvailableError(
            f"{what} is a Parquet file, which needs pyarrow: install privinf[parquet]"
        ) from error
    except (OSError, ValueError) as error:  # pyarrow's errors are of these
        raise StorageError(f"{path} cannot be read as a Parquet file; use an intact copy") from error
