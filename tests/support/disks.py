"""Disks that are full: no file of this process may grow beyond so many bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

resource = pytest.importorskip("resource", reason="limits of files")


@contextmanager
def small_files(room: int) -> Iterator[None]:
    """Let writes fail beyond `room` bytes of a file; Python ignores the signal, SIGXFSZ, by itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
