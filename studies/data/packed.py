"""Tables that are too large for the package: read from a folder of the user's, and checked."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from privinf.errors import NotAvailableError, StorageError

if TYPE_CHECKING:
    import pandas as pd

VARIABLE = "PRIVINF_DATA"


@dataclass(frozen=True, slots=True)
class Packed:
    """A table stored as ``NAME/data.parquet`` in the folder that PRIVINF_DATA names.

    Attributes
    ----------
    name : str
    sha256 : str
        Of the file, 64 hexadecimal digits.
    source : str
        Where the public original is.
    """

    name: str
    sha256: str
    source: str

    def read(self) -> pd.DataFrame:
        """Return the table.

        Raises
        ------
        NotAvailableError
            PRIVINF_DATA is not set, the file is not in its folder, or pyarrow is not installed.
        StorageError
            The file is not the one whose SHA-256 is known.
        """
        import pandas as pd

        path = self._path()
        with path.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
        if found != self.sha256:
            raise StorageError(
                f"{path}: SHA-256 {found[:16]}..., not {self.sha256[:16]}...; the file is damaged or another "
                f"version (original: {self.source})"
            )
        try:
            return pd.read_parquet(path)
        except ImportError as error:
            raise NotAvailableError(
                f"data set {self.name!r} is a Parquet file, which needs pyarrow: install privinf[parquet]"
            ) from error

    def _path(self) -> Path:
        folder = os.environ.get(VARIABLE)
        file = f"{self.name}/data.parquet"
        if not folder:
            raise NotAvailableError(
                f"data set {self.name!r} is not in the package: set {VARIABLE} to a folder with {file} "
                f"(original: {self.source})"
            )
        path = Path(folder) / file
        if not path.is_file():
            raise NotAvailableError(
                f"data set {self.name!r}: {VARIABLE} names {folder}, which has no {file} "
                f"(original: {self.source})"
            )
        return path
