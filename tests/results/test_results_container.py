import io
import json
import zipfile

import numpy as np
import pytest

from privinf.errors import ArgumentError, StorageError
from privinf.storage.containers import MANIFEST, read_container, write_container

ARRAYS = {
    "release/features": np.arange(12.0).reshape(4, 3).T,
    "steps": np.array([1, 2, 3], dtype=">i8"),
    "flags": np.array([True, False]),
    "labels": np.array(["a", "bc"]),
    "scalar": np.array(2.5),
}
HEADER = {"law": {"scale": 0.1, "limit": float("inf")}, "names": ["x1", "C(g)[T.ü]"], "n": np.int64(7)}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "content.npz"


def write(path, **given):
    write_container(path, **{"arrays": ARRAYS, "header": HEADER, "format": "test", **given})


def test_round_trip(path):
    write(path)
    arrays, header = read_container(path, format="test")
    assert header == {**HEADER, "n": 7}
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)
        assert arrays[name].dtype.kind == array.dtype.kind


def test_numpy_opens_the_file(path):
    write(path)
    with np.load(path, allow_pickle=False) as opened:
        np.testing.assert_array_equal(opened["steps"], [1, 2, 3])


def test_same_content_same_bytes(tmp_path):
    write(tmp_path / "a.npz")
    write(tmp_path / "b.npz", arrays=dict(reversed(ARRAYS.items())), header=dict(reversed(HEADER.items())))
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_every_flipped_byte_is_noticed_or_harmless(path):
    write(path, arrays={"a": np.arange(3.0)}, header={"n": 1})
    original = path.read_bytes()
    noticed = 0
    for place in range(len(original)):
        path.write_bytes(original[:place] + bytes([original[place] ^ 0x41]) + original[place + 1 :])
        try:
            arrays, header = read_container(path, format="test")
        except StorageError:
            noticed += 1
        else:  # dates and permissions of the archive's members carry nothing
            np.testing.assert_array_equal(arrays["a"], np.arange(3.0))
            assert header == {"n": 1}
    content = 128 + 24 + 300
    assert noticed > content


@pytest.mark.parametrize("keep", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_truncated_file(path, keep):
    write(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content))])
    with pytest.raises(StorageError, match="truncated"):
        read_container(path, format="test")


def test_foreign_files(path):
    path.write_text("x,y\n1,2\n")
    with pytest.raises(StorageError, match="not a privinf file"):
        read_container(path, format="test")
    np.savez(path, a=np.ones(2))
    with pytest.raises(StorageError, match="no list of contents"):
        read_container(path, format="test")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(MANIFEST, json.dumps({"container": "else"}))
    with pytest.raises(StorageError, match="another program"):
        read_container(path, format="test")


def test_repacked_or_extended_archive_is_refused(path):
    write(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(StorageError, match="repacked"):
        read_container(path, format="test")
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**members, "more.npy": b"1"}.items():
            archive.writestr(name, content)
    with pytest.raises(StorageError, match="added"):
        read_container(path, format="test")


def test_array_exchanged_inside_a_valid_archive(path):
    write(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    stream = io.BytesIO()
    np.save(stream, np.array([1, 2, 4]))
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**members, "steps.npy": stream.getvalue()}.items():
            archive.writestr(name, content)
    with pytest.raises(StorageError, match="'steps' does not match"):
        read_container(path, format="test")


def test_keys(path):
    write(path, key=b"secret")
    with pytest.raises(StorageError, match="another key"):
        read_container(path, format="test", key=b"guess")
    with pytest.raises(StorageError, match="as key="):
        read_container(path, format="test")
    arrays, _ = read_container(path, format="test", key=b"secret")
    assert arrays.keys() == ARRAYS.keys()
    write(path)
    with pytest.raises(StorageError, match="without a key"):
        read_container(path, format="test", key=b"secret")
    with pytest.raises(ArgumentError, match="non-empty"):
        write(path, key=b"")


def test_other_format_and_newer_version(path):
    write(path, version=3)
    with pytest.raises(StorageError, match="'other' is needed"):
        read_container(path, format="other", version=3)
    with pytest.raises(StorageError, match="reads versions up to 2"):
        read_container(path, format="test", version=2)
    assert read_container(path, format="test", version=4)[1]["n"] == 7


@pytest.mark.parametrize(
    "bad",
    [
        {"arrays": {"o": np.array([object()])}},
        {"arrays": {"../x y": np.ones(1)}},
        {"header": {"f": print}},
    ],
)
def test_failed_write_leaves_the_old_file_and_no_draft(path, bad):
    write(path)
    before = path.read_bytes()
    with pytest.raises(ArgumentError):
        write(path, **bad)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_container(tmp_path / "absent.npz", format="test")
