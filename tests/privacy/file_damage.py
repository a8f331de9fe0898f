"""Damage to files, and the verdict on it.

Damage is *plain* (bytes changed by somebody or something that cannot seal the file again) or *resealed* (a
structured change with every checksum computed anew, as anybody can do who has no key). Plain damage to a
sealed file must be refused, or say the very same; resealed damage, and damage to a file without a seal, may
give another object, which must then be one that works. Nothing but errors of the tree may come out, without a
context, and nothing may take longer than `LIMIT` seconds.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import struct
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from file_corpus import Kind
from support.speed import slowness

from privinf.errors import PrivinfError, PrivinfWarning, UnforeseenError

# Seconds of processor time, which other work does not lengthen, on the machine of `support.speed`.
LIMIT = 2.0
Rng = np.random.Generator


@dataclass(frozen=True)
class Damage:
    """One damaged file: what was done, its bytes, and whether its seals were computed anew."""

    how: str
    content: bytes
    resealed: bool = False


@dataclass(frozen=True)
class Verdict:
    """What came of reading a damaged file: "refused", "same", "earlier", "other" or a failure, in words."""

    outcome: str
    told: str = ""

    @property
    def failed(self) -> bool:
        return self.outcome not in ("refused", "same", "earlier", "other")


# --- plain damage -----------------------------------------------------------------------------------------


def _flip(content: bytes, place: int, bit: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :]


def flipped_anywhere(content: bytes, rng: Rng) -> bytes:
    return _flip(content, int(rng.integers(len(content))), int(rng.integers(8)))


def flipped_at_an_end(content: bytes, rng: Rng) -> bytes:
    reach = min(len(content), 100)
    place = int(rng.integers(reach))
    return _flip(content, place if rng.random() < 0.3 else len(content) - 1 - place, int(rng.integers(8)))


def flipped_in_structure(content: bytes, rng: Rng) -> bytes:
    """Flip a bit in the records of a zip archive or near the headers of its arrays."""
    marks = [
        m for mark in (b"PK\3\4", b"PK\1\2", b"PK\5\6", b"\x93NUMPY", b"PAR1") for m in _places(content, mark)
    ]
    if not marks:
        return flipped_digit(content, rng)
    place = min(marks[int(rng.integers(len(marks)))] + int(rng.integers(60)), len(content) - 1)
    return _flip(content, place, int(rng.integers(8)))


def flipped_digit(content: bytes, rng: Rng) -> bytes:
    """Put another digit in the place of one: what JSON or CSV cannot see by itself."""
    digits = [place for place, byte in enumerate(content) if byte in b"0123456789"]
    if not digits:
        return flipped_anywhere(content, rng)
    place = digits[int(rng.integers(len(digits)))]
    other = b"0123456789"[(content[place] - 48 + int(rng.integers(1, 10))) % 10]
    return content[:place] + bytes([other]) + content[place + 1 :]


def flipped_twice(content: bytes, rng: Rng) -> bytes:
    return flipped_anywhere(flipped_anywhere(content, rng), rng)


def truncated(content: bytes, rng: Rng) -> bytes:
    """Cut at a boundary of the format, next to one, or anywhere."""
    places = [0, 1, 4, len(content) // 2, len(content) - 1]
    for mark in (b"PK\3\4", b"PK\1\2", b"PK\5\6", b"\x93NUMPY", b"\n", b"{", b"}", b","):
        places += _places(content, mark)[:20]
    if rng.random() < 0.3:
        return content[: int(rng.integers(len(content)))]
    return content[: max(places[int(rng.integers(len(places)))] + int(rng.integers(-1, 2)), 0)]


def extended(content: bytes, rng: Rng) -> bytes:
    tails = [
        b"\0",
        b"\n",
        b"}",
        b"0",
        content,
        content[: len(content) // 3],
        rng.bytes(50),
        b"PK\5\6" + bytes(18),
    ]
    return content + tails[int(rng.integers(len(tails)))]


def cut_out(content: bytes, rng: Rng) -> bytes:
    start = int(rng.integers(len(content)))
    return content[:start] + content[start + int(rng.integers(1, 65)) :]


def zeroed(content: bytes, rng: Rng) -> bytes:
    start, length = int(rng.integers(len(content))), int(rng.integers(1, 513))
    block = content[start : start + length]
    return content[:start] + bytes(len(block)) + content[start + length :]


def doubled(content: bytes, rng: Rng) -> bytes:
    """Repeat a block, or two blocks in the other order."""
    start, length = int(rng.integers(len(content))), int(rng.integers(1, 129))
    one, two = content[start : start + length], content[start + length : start + 2 * length]
    return (
        content[:start]
        + (two + one if rng.random() < 0.5 else one + one + two)
        + content[start + 2 * length :]
    )


def not_text(content: bytes, rng: Rng) -> bytes:
    bad = [b"\xff\xfe", b"\xed\xa0\x80", b"\xc3", b"\0", "\ufeff".encode()]
    place = int(rng.integers(len(content) + 1)) if rng.random() < 0.7 else 0
    return content[:place] + bad[int(rng.integers(len(bad)))] + content[place:]


def emptied(content: bytes, rng: Rng) -> bytes:
    return [b"", b"\0" * len(content), b"{}", b"[]", b"null", b"PK\5\6" + bytes(18), rng.bytes(300)][
        int(rng.integers(7))
    ]


def _places(content: bytes, mark: bytes) -> list[int]:
    found, place = [], content.find(mark)
    while place >= 0:
        found.append(place)
        place = content.find(mark, place + 1)
    return found


PLAIN: tuple[Callable[[bytes, Rng], bytes], ...] = (
    flipped_anywhere,
    flipped_anywhere,
    flipped_at_an_end,
    flipped_in_structure,
    flipped_digit,
    flipped_digit,
    flipped_twice,
    truncated,
    truncated,
    extended,
    cut_out,
    zeroed,
    doubled,
    not_text,
    emptied,
)


# --- archives, changed by somebody who leaves the seals ---------------------------------------------------


def members_of(content: bytes) -> list[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return [(item.filename, archive.read(item)) for item in archive.infolist()]


def archive_of(members: list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a member that is there twice
        with zipfile.ZipFile(stream, "w", method) as archive:
            for name, content in members:
                archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content, method)
    return stream.getvalue()


def repacked(content: bytes, rng: Rng) -> Damage:
    """Exchange, repeat, drop, add, rename or compress members of an archive."""
    members = members_of(content)
    i, j = (int(k) for k in rng.integers(len(members), size=2))
    how = int(rng.integers(8))
    method = zipfile.ZIP_STORED
    if how == 0:
        members[i], members[j] = (members[i][0], members[j][1]), (members[j][0], members[i][1])
    elif how == 1:
        members.append((members[i][0], members[j][1]))
    elif how == 2:
        members.insert(0, (members[i][0], members[j][1]))
    elif how == 3:
        members.pop(i)
    elif how == 4:
        members.append(("../extra.npy", members[i][1]))
    elif how == 5:
        members[i] = (members[i][0] + "x", members[i][1])
    elif how == 6:
        method = (zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)[int(rng.integers(3))]
    else:
        members.reverse()
    names = ["exchanged", "repeated", "preceded", "dropped", "added", "renamed", "compressed", "reversed"]
    return Damage(f"members {names[how]}", archive_of(members, method))


def bomb(content: bytes, rng: Rng) -> Damage:
    """Compressed members that unpack to hundreds of megabytes, or sizes that nothing stands behind."""
    members = members_of(content)
    i = int(rng.integers(len(members)))
    if rng.random() < 0.5:
        members[i] = (members[i][0], bytes(1 << 26))
        return Damage("bomb: compressed", archive_of(members, zipfile.ZIP_DEFLATED))
    made, place = bytearray(archive_of(members)), 0
    places = _places(bytes(made), b"PK\1\2")
    place = places[int(rng.integers(len(places)))]
    size = int(rng.choice([2**31, 2**32 - 2]))
    struct.pack_into("<LL", made, place + 20, size, size)
    return Damage("bomb: declared size", bytes(made))


def edited(content: bytes, rng: Rng) -> Damage:
    """Change a header or an array inside its archive, as a careless editor does: only zip's sums follow."""
    members = dict(members_of(content))
    name = list(members)[int(rng.integers(len(members)))]
    if name == "manifest.json":
        manifest = json.loads(members[name])
        how, manifest["header"] = changed_json(manifest["header"], rng)
        members[name] = json.dumps(manifest).encode()
    else:
        how, members[name] = changed_array(members[name], rng)
    return Damage(f"edited {name}: {how}", archive_of(list(members.items())))


# --- resealed damage --------------------------------------------------------------------------------------

HUGE = int("9" * 400)
BAD_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2**63,
    HUGE,
    -HUGE,
    0.5,
    -0.0,
    1e308,
    5e-324,
    float("nan"),
    float("inf"),
    float("-inf"),
    "",
    "x",
    "\ud800",
    "\0",
    "inf",
    "nan",
    "1e999999999",
    "1/0",
    "9" * 5000,
    [],
    {},
    [[]],
    [None],
    {"": 0},
    ["x"],
    [1, 2, 3],
    {"x": {"y": [1]}},
    "9**9**9**9",
    "a ** 99999999",
    "exp(a)",
    "(" * 500,
    "__import__('os')",
    "a.b",
    "a[0]",
    "lambda: 0",
    "a if a else a",
    "np.log(a - a)",
)


def _nodes(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items = (
        content.items()
        if isinstance(content, dict)
        else enumerate(content)
        if isinstance(content, list)
        else ()
    )
    for key, value in items:
        yield from _nodes(value, (*path, key))


def changed_json(content: Any, rng: Rng) -> tuple[str, Any]:
    """Change one node of a JSON value: its type, its number, its keys, its depth."""
    changed = copy.deepcopy(content)
    paths = list(_nodes(changed))
    if not paths:
        return "emptied", BAD_VALUES[int(rng.integers(len(BAD_VALUES)))]
    path = paths[int(rng.integers(len(paths)))]
    parent = changed
    for key in path[:-1]:
        parent = parent[key]
    key, how = path[-1], int(rng.integers(10))
    where = "/".join(map(str, path))
    if how <= 4:
        value = BAD_VALUES[int(rng.integers(len(BAD_VALUES)))]
        parent[key] = value
        return f"{where} = {repr(value)[:20]}", changed
    if how == 5:
        del parent[key]
        return f"{where} dropped", changed
    if how == 6:
        if isinstance(parent, dict):
            parent[f"{key}x"] = parent.pop(key)
        else:
            parent.append(parent[key])
        return f"{where} renamed", changed
    if how == 7 and isinstance(parent[key], (int, float)):
        parent[key] = parent[key] * float(rng.choice([-1, 0.5, 2, 1e6, 1e-6]))
        return f"{where} scaled", changed
    if how == 8:
        deep: Any = 0
        for _ in range(int(rng.choice([40, 900]))):
            deep = [deep]
        parent[key] = deep
        return f"{where} deep", changed
    other = paths[int(rng.integers(len(paths)))]
    value = changed
    for step in other:
        value = value[step]
    parent[key] = copy.deepcopy(value)
    return f"{where} from {'/'.join(map(str, other))}", changed


DEPTH = 100_000


def text_of(content: Any, rng: Rng, **how: Any) -> tuple[str, str]:
    """Return JSON text, now and then one that says a key twice or is nested without end."""
    text = json.dumps(content, **how)
    choice = rng.random()
    if choice < 0.05 and text.startswith("{"):
        return ", nested without end", text[:-1] + ', "deep": ' + "[" * DEPTH + "]" * DEPTH + "}"
    if choice < 0.1 and isinstance(content, dict) and content:
        key = list(content)[int(rng.integers(len(content)))]
        return f", {key} twice", text[:-1] + f", {json.dumps(key)}: 0}}"
    return "", text


def npy(array: Any, **how: Any) -> bytes:
    stream = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.lib.format.write_array(stream, array, **{"version": (1, 0), "allow_pickle": True, **how})
    return stream.getvalue()


def forged_npy(header: str, data: bytes, version: tuple[int, int] = (1, 0)) -> bytes:
    text = header.encode("latin1") + b"\n"
    length = struct.pack("<H" if version == (1, 0) else "<L", len(text))
    return b"\x93NUMPY" + bytes(version) + length + text + data


def header_of(descr: str, shape: Any, fortran: Any = False) -> str:
    return f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}"


STRANGE = (
    header_of("'<f8'", "(-1, 3)"),
    header_of("'<f8'", f"({2**70},)"),
    header_of("'V0'", "(3,)"),
    header_of("'<M8[ns]'", "(3,)"),
    header_of("[('a', '<f8')]", "(3,)"),
    header_of("'<U2000000000'", "(0,)"),
    header_of("'O'", "(1,)"),
    header_of("'<f8'", "(3L,)"),
    header_of("'<f8'", "3", 2),
    header_of("'|f8'", "(3,)"),
    header_of("'<b1'", "(3,)"),
    header_of("'<i3'", "(3,)"),
    "{'descr': 'x' * 9}",
    "{",
    "(" * 300,
    "[" * 5000,
    "'''",
    "x = (",
    "\\x00",
)


def changed_array(content: bytes, rng: Rng) -> tuple[str, bytes]:
    """Return the bytes of another array: of another kind, shape, order, size or value."""
    array = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
    how = int(rng.integers(18))
    numbers = array.dtype.kind in "biuf"
    floats = array.astype(float) if numbers else np.zeros(array.shape)
    data = np.ascontiguousarray(floats).tobytes()
    made: dict[int, Callable[[], tuple[str, bytes]]] = {
        0: lambda: ("objects", npy(floats.astype(object))),
        1: lambda: ("texts", npy(floats.astype(str))),
        2: lambda: ("big-endian", npy(floats.astype(">f8"))),
        3: lambda: ("half floats", npy(floats.astype(np.float16))),
        4: lambda: ("complex", npy(floats + 1j)),
        5: lambda: ("fortran order", npy(np.asfortranarray(floats))),
        6: lambda: ("flat", npy(floats.ravel())),
        7: lambda: ("one axis more", npy(floats[None])),
        8: lambda: ("one less", npy(floats.reshape(-1)[:-1])),
        9: lambda: ("empty", npy(np.empty((0, *floats.shape[1:])))),
        10: lambda: ("nan", npy(np.where(np.arange(floats.size).reshape(floats.shape) == 0, np.nan, floats))),
        11: lambda: ("infinite", npy(np.full(floats.shape, np.inf))),
        12: lambda: ("a shape of terabytes", forged_npy(header_of("'<f8'", (10**12,)), data)),
        13: lambda: ("a shape of gigabytes", forged_npy(header_of("'<f8'", (10**9, 4)), data)),
        14: lambda: (
            "a strange header",
            forged_npy(
                STRANGE[int(rng.integers(len(STRANGE)))],
                data,
                (int(rng.choice([1, 1, 2, 3, 9])), 0),
            ),
        ),
        16: lambda: ("other numbers", npy((floats + 1.0).astype(array.dtype))),
        17: lambda: ("other numbers", npy((1.5 * floats).astype(array.dtype))),
        15: lambda: ("characters that are none", npy(np.array([0x7FFFFFFF], dtype="<u4").view("<U1"))),
    }
    return made[how]()


def resealed_container(content: bytes, rng: Rng) -> Damage:
    """Change the header, the manifest or an array of a container and compute all its checksums."""
    members = dict(members_of(content))
    manifest = json.loads(members.pop("manifest.json"))
    del manifest["integrity"]
    if rng.random() < 0.4:
        name = list(members)[int(rng.integers(len(members)))]
        how, members[name] = changed_array(members[name], rng)
        manifest["arrays"][name.removesuffix(".npy")] = hashlib.sha256(members[name]).hexdigest()
        how = f"{name}: {how}"
    elif rng.random() < 0.8:
        how, manifest["header"] = changed_json(manifest["header"], rng)
    else:
        how, manifest = changed_json(manifest, rng)
    more, text = text_of(manifest, rng, sort_keys=True, separators=(",", ":"))
    sealed = text
    if isinstance(manifest, dict):
        tag = hashlib.sha256(text.encode()).hexdigest()
        if more:  # the reader computes the seal of what it understood
            tag = hashlib.sha256(_understood(text)).hexdigest()
        sealed = text[:-1] + f',"integrity":{{"method":"sha256","tag":"{tag}"}}}}'
    return Damage(
        f"resealed {how}{more}", archive_of([*members.items(), ("manifest.json", sealed.encode())]), True
    )


def _understood(text: str) -> bytes:
    try:
        return json.dumps(json.loads(text), sort_keys=True, separators=(",", ":")).encode()
    except (RecursionError, ValueError):
        return text.encode()


def resealed_json(content: bytes, rng: Rng) -> Damage:
    """Change a JSON file and compute its checksum, where it has one."""
    record = json.loads(content)
    sealed = isinstance(record, dict) and record.pop("sha256", None) is not None
    how, record = changed_json(record, rng)
    if isinstance(record, dict) and "spent" in record and rng.random() < 0.5:
        record["spent"] = None
    if sealed and isinstance(record, dict):
        text = json.dumps(record, sort_keys=True, separators=(",", ":"))
        record["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    more, text = text_of(record, rng, indent=1)
    return Damage(f"resealed {how}{more}", text.encode(errors="surrogatepass"), True)


def resealed_lines(content: bytes, rng: Rng) -> Damage:
    """Change a line of a site's ledger and compute its checksum."""
    lines = content.decode().splitlines()
    place = int(rng.integers(len(lines)))
    how, record = changed_json(json.loads(lines[place].partition(" ")[2]), rng)
    more, text = text_of(record, rng, sort_keys=True)
    lines[place] = f"{hashlib.sha256(text.encode()).hexdigest()[:16]} {text}"
    return Damage(f"resealed line {place}: {how}{more}", ("\n".join(lines) + "\n").encode(), True)


RESEALED = {
    "container": resealed_container,
    "json": resealed_json,
    "written": resealed_json,
    "lines": resealed_lines,
}


def damage(kind: Kind, rng: Rng) -> Damage:
    """Return one damaged version of a file."""
    choice = rng.random()
    if kind.seal in RESEALED and choice < 0.5:
        return RESEALED[kind.seal](kind.content, rng)
    if kind.seal == "container" and choice < 0.7:
        how = (repacked, repacked, edited, edited, bomb)[int(rng.integers(5))]
        return how(kind.content, rng)
    plain = PLAIN[int(rng.integers(len(PLAIN)))]
    return Damage(plain.__name__.replace("_", " "), plain(kind.content, rng))


# --- the verdict ------------------------------------------------------------------------------------------


def judge(kind: Kind, damaged: Damage, folder: Path) -> Verdict:
    """Read a damaged file as its owner would, and say what came of it."""
    path = folder / f"damaged{kind.suffix}"
    for left in folder.iterdir():
        left.unlink()
    path.write_bytes(damaged.content)
    path.chmod(0o600)  # keys are among them
    return verdict_on(kind, path, resealed=damaged.resealed)


def verdict_on(kind: Kind, path: Path, *, resealed: bool) -> Verdict:
    """Say what comes of reading the file at `path`."""
    begun = time.process_time()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        verdict = _read(kind, path, resealed)
    took = time.process_time() - begun
    if took > LIMIT * slowness():
        return Verdict("hang", f"{took:.1f} s")
    foreign = [one for one in seen if not issubclass(one.category, PrivinfWarning)]
    if foreign and not verdict.failed:
        return Verdict("foreign warning", f"{foreign[0].category.__name__}: {foreign[0].message}")
    return verdict


def _read(kind: Kind, path: Path, resealed: bool) -> Verdict:
    try:
        found = kind.load(path)
    except PrivinfError as problem:
        return fault(problem) or Verdict("refused", f"{type(problem).__name__}: {problem}")
    except Exception as problem:
        return Verdict("foreign exception", _where(problem))
    try:
        said = kind.says(found)
        if said == _said(kind, path):
            return Verdict("same")
        if said in kind.earlier:
            return Verdict("earlier")
        if resealed and kind.secret is not None:
            return Verdict("another number", "in spite of the key")
        if kind.seal and not resealed:
            return Verdict("another number", "from damage that nobody sealed")
        kind.use(found)
    except UnforeseenError as problem:
        return Verdict("foreign exception in use", _where(problem))
    except PrivinfError:
        return Verdict("other")
    except Exception as problem:
        return Verdict("foreign exception in use", _where(problem))
    return Verdict("other")


def fault(problem: PrivinfError) -> Verdict | None:
    """Return what is wrong with an error of the tree, None if nothing is."""
    if problem.__context__ is not None or problem.__cause__ is not None:
        return Verdict("context", f"{problem!r} after {problem.__context__!r}")
    if isinstance(problem, UnforeseenError):  # an error boundary translated it: a reader should have
        return Verdict("foreign exception", f"stopped at an error boundary: {_where(problem)}")
    return None


_KNOWN: dict[int, bytes] = {}


def _said(kind: Kind, path: Path) -> bytes:
    """Return what the undamaged file says."""
    if id(kind) not in _KNOWN:
        whole = path.with_name(f"whole{kind.suffix}")
        whole.write_bytes(kind.content)
        whole.chmod(0o600)
        _KNOWN[id(kind)] = kind.says(kind.load(whole))
        whole.unlink()
    return _KNOWN[id(kind)]


def _where(problem: Exception) -> str:
    last = traceback.extract_tb(problem.__traceback__)[-3:]
    places = " < ".join(f"{Path(one.filename).name}:{one.lineno}" for one in reversed(last))
    return f"{type(problem).__name__}: {str(problem)[:100]} at {places}"
