"""Files as sources, by their endings: CSV, Parquet, and folders of either.

Nothing is learnt from the rows: columns are read as the schema declares them, and errors name files and
columns, never a value.

What parses CSV fills up lines that are too short, and cuts others, in silence. So the bytes of a file pass
through `CheckedLines` first. Without quotes, or where quotes enclose whole fields, separators are counted for
a whole block at once; elsewhere Python's own `csv` module finds lines and fields.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import re
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from privinf.errors import FileMissingError, NotAvailableError, StorageError
from privinf.mechanisms import sources
from privinf.mechanisms.labels import MISSING
from privinf.mechanisms.sources import FileSource, Source, Types, are_paths, require_columns
from privinf.schema import Factor
from privinf.validation import check_path

CSV_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
PARQUET_SUFFIXES = (".parquet", ".pq")
# Characters of a CSV file's first line: one that is longer, as a packed file can pretend, is refused.
LONGEST_HEADER = 1 << 24
SEPARATORS = (",", ";", "\t")  # the one that is most frequent in the first line is used
# Texts of numbers become the doubles nearest to them: what pandas 3.1 does, and earlier ones on demand.
EXACT_FLOATS: dict[str, Any] = (
    {} if tuple(map(int, pd.__version__.split(".")[:2])) >= (3, 1) else {"float_precision": "round_trip"}
)
BYTES = 1 << 15  # bytes of one read, which stay in the cache
LONGEST_LINE = 1 << 24  # bytes; a quotation mark without its partner makes the rest of a file one line
ENDLESS = "the line is too long, or an opening quotation mark is not closed"
# The parities of the leading bits of a byte, as bits.
_PREFIXES = np.array([byte ^ byte >> 1 ^ byte >> 2 ^ byte >> 3 for byte in range(256)], dtype=np.uint8)
_PREFIXES ^= _PREFIXES >> 4
READ_AHEAD = 2  # batches that a thread decodes while the caller works on the one before them
R = TypeVar("R")


# ---- CSV


@dataclass(frozen=True, slots=True)
class CsvSource(FileSource):
    """A CSV file, UTF-8, with a line of column names; separated by the commonest of , ; and tab there."""

    @property
    def columns(self) -> Sequence[str]:
        """Names of its columns."""
        return _csv(self.name, lambda: _names_and_separator(self.path))[0]

    def read(self, columns: Sequence[str], types: Types) -> Iterator[pd.DataFrame]:
        """Yield blocks of rows, numbers as numbers and levels as they are declared.

        Every line after that of the names is a row, an empty line of a file of one column too.
        """
        chosen = list(columns)
        present, separator = _csv(self.name, lambda: _names_and_separator(self.path))
        places = sorted(map(present.index, dict.fromkeys(chosen)))
        kinds = {}
        gaps = {}
        for place in places:
            levels = _text_levels(present[place], types)
            if levels is not None:
                kinds[place] = str
            gaps[place] = [text for text in MISSING if text not in (levels or ())]
            if levels is None and types != "guessed":
                gaps[place] += [f" {text}" for text in MISSING]  # beside numbers a blank means nothing
        with _bytes(self.path) as stream:
            lines = CheckedLines(stream, separator, len(present))
            settings = {"usecols": places, "dtype": kinds, "na_values": gaps, "sep": separator}
            with _csv(self.name, lambda: _parsed(lines, len(present), settings), lines) as blocks:
                while (block := _csv(self.name, lambda: next(blocks, None), lines)) is not None:
                    block.columns = pd.Index([present[place] for place in places])
                    yield block[chosen]


def _parsed(lines: CheckedLines, fields: int, settings: Mapping[str, Any]) -> Any:
    """Return a reader of blocks of rows; columns are addressed by position."""
    return pd.read_csv(
        cast(Any, lines),
        names=range(fields),
        header=0,
        index_col=False,
        keep_default_na=False,
        skip_blank_lines=False,
        chunksize=sources.ROWS,
        low_memory=False,
        encoding="utf-8",
        **settings,
        **EXACT_FLOATS,
    )


def _text_levels(column: str, types: Types) -> tuple[str, ...] | None:
    """Return the levels of a column to be read as text (none of a column that is not declared)."""
    if types == "guessed":
        return None
    if types == "texts" or column not in types:
        return ()
    declared = types.columns[column]
    if isinstance(declared, Factor) and isinstance(declared.levels[0], str):
        return tuple(map(str, declared.levels))
    return None


def _bytes(path: Path) -> IO[bytes]:
    if path.name.lower().endswith(".gz"):
        return cast("IO[bytes]", gzip.open(path, "rb"))
    return open(path, "rb")


def _text(path: Path) -> IO[str]:
    if path.name.lower().endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return open(path, encoding="utf-8-sig", newline="")


def _separator(line: str) -> str:
    return max(SEPARATORS, key=line.count)


def _first_line(stream: IO[str]) -> str:
    """Return the line of names; one without end, as a packed file can pretend, is none."""
    line = stream.readline(LONGEST_HEADER)
    if len(line) == LONGEST_HEADER:
        raise ValueError("the header line with the column names is too long")
    return line


def _names_and_separator(path: Path) -> tuple[list[str], str]:
    with _text(path) as stream:
        separator = _separator(_first_line(stream))
        stream.seek(0)
        return next(csv.reader(stream, delimiter=separator), []), separator


def _csv(name: str, parse: Callable[[], R], lines: CheckedLines | None = None) -> R:
    """Return ``parse()``; the reader's errors quote values of rows, so that ours state the place alone."""
    place = ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)
            return parse()
    except pd.errors.ParserError as problem:
        line = re.search(r"line (\d+)", str(problem))
        place = f" near line {line[1]}" if line else ""
    except Exception:  # pandas raises many kinds on damaged text
        pass
    if lines is not None and lines.wrong:
        place = lines.wrong
    raise StorageError(
        f"{name} cannot be read as CSV{place}: it needs a first line of column names, the same number "
        "of fields in every other line, and UTF-8 text"
    )


class CheckedLines:
    r"""A binary stream of CSV that passes its bytes on once their lines were checked.

    Parameters
    ----------
    stream : binary file
    separator : str
        One character.
    fields : int
        How many there are in each line.

    Attributes
    ----------
    wrong : str
        The defect of the file and its approximate line, without a value. Empty without a defect.

    Notes
    -----
    A line ends with ``\n``, ``\r\n`` or ``\r`` outside of quotes; the last one may lack that. An empty line
    has one field.
    """

    def __init__(self, stream: IO[bytes], separator: str, fields: int) -> None:
        self._stream = stream
        self._separator = separator
        self._fields = fields
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._started = False
        self._lines = 0
        self._rest = b""  # begins where a line does
        self._nested = False  # whether there were separators or ends of lines in quotes
        mark = separator.encode()
        self._line = mark * (fields - 1) + b"\n"
        self._other_bytes = bytes(set(range(256)) - set(mark + b'\n"'))
        self.wrong = ""

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, after their lines were checked; ValueError if one is wrong."""
        block = self._stream.read(BYTES)
        if not self._started:
            block = block.removeprefix(codecs.BOM_UTF8)
            self._started = True
        try:
            self._check(block)
        except UnicodeDecodeError:
            self._refuse("", 0)
        return block

    def __iter__(self) -> Iterator[bytes]:
        """Yield the blocks: readers of files require an iterable object."""
        return iter(self.read, b"")

    def _refuse(self, reason: str, line: int) -> None:
        """Raise ValueError for a line, counted from 1; for none in particular where that is 0."""
        self.wrong = f" near line {line} ({reason})" if line else ""
        raise ValueError("a line of a CSV file is malformed")

    def _check(self, block: bytes) -> None:
        last = not block
        if b"\0" in block:
            self._refuse("the line contains a zero byte", self._lines + 1)
        if last or not block.isascii():
            self._decoder.decode(block, last)
        buffer = self._rest + block
        if last and buffer and not buffer.endswith((b"\n", b"\r")):
            buffer += b"\n"
        end = self._counted(buffer, last)
        if end is None or (last and end < len(buffer)):
            end = (end or 0) + self._parsed(buffer[end or 0 :], last)
        self._rest = buffer[end:]
        if len(self._rest) > LONGEST_LINE:
            self._refuse(ENDLESS, self._lines + 1)

    def _counted(self, buffer: bytes, last: bool) -> int | None:
        """Return where the last whole line ends, by counts; None where they do not show that all are right.

        Between two separators an even number of quotes, in any place, leaves the field closed.
        """
        if self._nested and b'"' in buffer:
            return self._counted_outside(buffer)
        end = _last_end(buffer, last)
        part = buffer[:end]
        if b"\r" in part and part.count(b"\r") != part.count(b"\r\n"):
            part = part.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        marks = part.translate(None, self._other_bytes)
        quoted = b'"' in marks
        if quoted:
            marks = marks.replace(b'""', b"")
        lines, extra = divmod(len(marks), len(self._line))
        if extra or marks != self._line * lines:
            self._nested = quoted
            return self._counted_outside(buffer) if quoted else None
        self._lines += lines
        return end

    def _counted_outside(self, buffer: bytes) -> int | None:
        """Return the same where quotes hold separators or ends of lines, each pair around a whole field."""
        codes = np.frombuffer(buffer, np.uint8)
        quotes = codes == ord('"')
        marks = codes == ord(self._separator)
        ends = codes == ord("\n")
        edges = marks | ends | quotes
        if b"\r" in buffer:
            returns = codes == ord("\r")
            if returns[-1] or (returns[:-1] & ~ends[1:]).any():
                return None
            edges |= returns
        inside = _parities(quotes)  # from the opening quote on
        outside = ~inside
        last = np.flatnonzero(ends & outside)
        if not len(last):
            return None if len(buffer) > BYTES else 0
        stop = int(last[-1]) + 1
        opening = (quotes & inside)[:stop]
        closing = (quotes & outside)[:stop]
        if (opening[1:] & ~edges[: stop - 1]).any() or (closing[:-1] & ~edges[1:stop]).any():
            return None
        apart = np.flatnonzero((marks & outside)[:stop])
        if (separators := self._fields - 1) * len(last) != len(apart):
            return None
        if separators and (
            (apart[separators::separators] < last[:-1]).any()
            or (apart[separators - 1 :: separators] > last).any()
        ):
            return None
        self._lines += int(np.count_nonzero(ends[:stop]))
        return stop

    def _parsed(self, buffer: bytes, last: bool) -> int:
        """Return where the last line that is whole for certain ends; refuse the first one that is wrong."""
        lines = buffer[: _last_end(buffer, last)].splitlines(keepends=True)
        texts = csv.reader((line.decode(errors="replace") for line in lines), delimiter=self._separator)
        fields = self._fields
        # Begin and end of the line that was read last: more of it can follow.
        begin = 0
        end = 0
        try:
            for record in texts:
                self._compare(fields, begin)
                fields = max(len(record), 1)
                begin = end
                end = texts.line_num
        except csv.Error:
            self._refuse(ENDLESS, self._lines + end + 1)
        if last:
            self._compare(fields, begin)
        complete = end if last else begin
        self._lines += complete
        return sum(map(len, lines[:complete]))

    def _compare(self, fields: int, line: int) -> None:
        if fields != self._fields:
            reason = (
                "the line has too few fields" if fields < self._fields else "the line has too many fields"
            )
            self._refuse(reason, self._lines + line + 1)


def _parities(flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return whether an odd number of flags is set up to each place, eight at a time."""
    packed = np.packbits(flags)
    ends = _PREFIXES[packed]
    before = np.bitwise_xor.accumulate(ends & 1)
    ends[1:] ^= before[:-1] * np.uint8(255)
    return np.unpackbits(ends, count=len(flags)).view(np.bool_)


def _last_end(buffer: bytes, last: bool) -> int:
    """Return where the last line ends; a final carriage return can be half of an end."""
    stop = len(buffer) - (buffer.endswith(b"\r") and not last)
    return max(buffer.rfind(b"\n", 0, stop), buffer.rfind(b"\r", 0, stop)) + 1


# ---- Parquet


@dataclass(frozen=True, slots=True)
class ParquetSource(FileSource):
    """A Parquet file."""

    @property
    def columns(self) -> Sequence[str]:
        """Names of its columns."""
        with _opened_parquet(self.path) as table:
            return _parquet(self.name, lambda: list(table.schema_arrow.names))

    def read(self, columns: Sequence[str], types: Types) -> Iterator[pd.DataFrame]:
        """Yield blocks of rows."""
        for batch in self.batches(columns):
            yield _parquet(self.name, partial(batch.to_pandas, ignore_metadata=True))

    def batches(self, columns: Sequence[str]) -> Iterator[Any]:
        """Yield Arrow batches; a thread decodes the next ones of a file that has several."""
        with _opened_parquet(self.path) as table:
            batches = _decoded(self.name, table, columns)
            yield from batches if table.metadata.num_rows <= sources.ROWS else read_ahead(batches)

    def known(self) -> int:
        """Return the number of rows, which the file states."""
        with _opened_parquet(self.path) as table:
            return int(_parquet(self.name, lambda: table.metadata.num_rows))


def row_groups(file: ParquetSource, rows: int) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield adjacent row groups with at least so many rows together, and their number of rows."""
    with _opened_parquet(file.path) as table:
        sizes = _parquet(
            file.name,
            lambda: [table.metadata.row_group(at).num_rows for at in range(table.metadata.num_row_groups)],
        )
    groups = list[int]()
    total = 0
    for group, size in enumerate(sizes):
        groups.append(group)
        total += size
        if total >= rows or (group == len(sizes) - 1 and total):
            yield tuple(groups), total
            groups = []
            total = 0


def row_group_batches(
    file: ParquetSource, columns: Sequence[str], groups: Sequence[int]
) -> Generator[Any, None, None]:
    """Yield the Arrow batches of some row groups."""
    with _opened_parquet(file.path) as table:
        yield from _decoded(file.name, table, columns, groups)


def _decoded(
    name: str, table: Any, columns: Sequence[str], groups: Sequence[int] | None = None
) -> Generator[Any, None, None]:
    chosen = {"batch_size": sources.ROWS, "columns": list(columns), "use_threads": False}
    if groups is not None:
        chosen["row_groups"] = list(groups)
    batches = _parquet(name, lambda: table.iter_batches(**chosen))
    while (batch := _parquet(name, lambda: next(batches, None))) is not None:
        yield batch


def read_ahead(items: Generator[R, None, None]) -> Iterator[R]:
    """Yield the items of a generator, none of them None; a thread makes up to `READ_AHEAD` in advance.

    An error of the generator is raised here, in its turn. When the caller stops early, the thread ends after
    the item that it makes, and the generator is closed.
    """
    thread = ThreadPoolExecutor(1, "privinf reads ahead")
    pending = deque[Future[R | None]]()

    def request() -> bool:
        try:
            pending.append(thread.submit(next, items, None))
        except RuntimeError:  # no thread can be started: the process ends, or has too many of them
            return False
        return True

    try:
        threaded = all(request() for _ in range(READ_AHEAD))
        while pending:
            if (item := pending.popleft().result()) is None:
                return
            threaded = threaded and request()
            yield item
        yield from items
    finally:
        with suppress(RuntimeError):  # the thread cannot wait for itself where it collects this generator
            thread.shutdown(cancel_futures=True)
            items.close()


def _opened_parquet(path: Path) -> Any:
    try:
        from pyarrow import parquet
    except ImportError:
        raise NotAvailableError(
            "Parquet files need pyarrow: install privinf[parquet], or save the table as CSV"
        ) from None
    # Buffering ahead would hold the whole file.
    settings = {"buffer_size": 1 << 15, "pre_buffer": False, "page_checksum_verification": True}
    return _parquet(path.name, lambda: parquet.ParquetFile(path, **settings))


def _parquet(name: str, parse: Callable[[], R]) -> R:
    """Return ``parse()``; errors of the reader may quote values of rows."""
    try:
        return parse()
    except MemoryError:
        raise
    except Exception:  # of pyarrow, and of its parsers of damaged metadata
        pass
    raise StorageError(f"{name} cannot be read as Parquet: the file is damaged or has another format")


# ---- by the name of a file


@dataclass(frozen=True, slots=True)
class FilesSource(Source):
    """CSV files or Parquet files, one after the other: of a folder by name, of a list as listed."""

    label: str
    files: tuple[CsvSource | ParquetSource, ...]

    @property
    def name(self) -> str:
        """Name of the folder or the pattern, or a description."""
        return self.label

    @property
    def columns(self) -> Sequence[str]:
        """Names of the columns of its first file."""
        return self.files[0].columns

    def read(self, columns: Sequence[str], types: Types) -> Iterator[pd.DataFrame]:
        """Yield blocks of rows; a file shorter than a block ends its own."""
        for file in self.files:
            require_columns(file, columns)
            yield from file.read(columns, types)

    def batches(self, columns: Sequence[str]) -> Iterator[Any] | None:
        """Return the Arrow batches of all files; None of CSV."""
        return None if isinstance(self.files[0], CsvSource) else self._batches(columns)

    def _batches(self, columns: Sequence[str]) -> Iterator[Any]:
        for file in self.files:
            require_columns(file, columns)
            yield from file.batches(columns) or ()

    def state(self) -> object:
        """Return name, size and time of the last change of each file."""
        return tuple((file.name, file.state()) for file in self.files)


def file_source(data: object) -> CsvSource | ParquetSource | FilesSource:
    """Return the source of a file, CSV or Parquet by its ending, or of several files of one kind.

    Parameters
    ----------
    data : path, or sequence of paths
        A file; a folder; a list of files; or a pattern for files, such as ``"years/*.parquet"``.

    Raises
    ------
    StorageError
        There is no such file, or it ends in something else.
    """
    if are_paths(data):
        return _files("the list of files", [_existing(check_path(one, "data")) for one in data])
    path = check_path(data, "data")
    if path.is_dir():
        return _folder(path)
    if any(mark in path.name for mark in "*?[") and not path.exists():
        matches = sorted(one for one in path.parent.glob(path.name) if one.is_file())
        if not matches:
            raise FileMissingError(f"{path}: no file matches this pattern")
        return _files(path.name, matches)
    return _file(_existing(path))


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise FileMissingError(f"{path}: there is no such file or folder")
    return path


def _file(path: Path) -> CsvSource | ParquetSource:
    if path.name.lower().endswith(CSV_SUFFIXES):
        return CsvSource(path)
    if path.name.lower().endswith(PARQUET_SUFFIXES):
        return ParquetSource(path)
    suffixes = ", ".join((*CSV_SUFFIXES, *PARQUET_SUFFIXES))
    raise StorageError(f"{path.name} is not in a supported format: use a file whose name ends in {suffixes}")


def _folder(path: Path) -> FilesSource:
    """Return the files of a folder; names that begin with . or _ are marks of the programs that wrote it."""
    names = sorted(name for name in path.iterdir() if not name.name.startswith((".", "_")))
    if not names:
        raise StorageError(f"folder {path.name} is empty: it must contain CSV files or Parquet files")
    if within := [name for name in names if name.is_dir()]:
        raise StorageError(
            f"folder {path.name} contains another folder, {within[0].name}: pass the folder that "
            "contains the files, or pass a pyarrow dataset"
        )
    return _files(path.name, names, f"folder {path.name}")


def _files(name: str, paths: Sequence[Path], place: str = "") -> FilesSource:
    """Return files of one kind; `place` is their name in the message about two kinds."""
    files = tuple(map(_file, paths))
    if len({type(file) for file in files}) == 1:
        return FilesSource(name, files)
    raise StorageError(
        f"{place or name} contains both CSV files and Parquet files: use files of one kind only"
    )
