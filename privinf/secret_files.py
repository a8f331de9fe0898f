"""Secret files: opened only where no other account can have read, changed or planted them.

The rules are those of ssh. A secret file is a regular file with one name, and no symbolic link; it belongs to
the account that opens it; others may not read or write a key, and not write a ledger. The folder of the file
belongs to that account or to root, and others may not write to it. All this is checked on the opened file and
the opened folder, not of their paths, so that nothing can be exchanged between the check and the use.

Decisions that the rules need:

* **Sticky folders** such as ``/tmp`` are refused like all folders that others may write to, as ssh refuses
  them: others cannot replace a file there, but they can put one where a file is expected.
* **Folders above** are not checked. Anyone who may write to them can put another folder in the place of the
  file's; as this folder and the file must belong to the caller too, he cannot put his own.
* **A group that may write** to a folder counts as others, unless it is the account's own private group,
  which has no other member, and the folder has no access control list: many systems make such groups, and
  new folders that they may write to.
* **No switch** turns the checks off. A mounted secret, which often is a link of root's, is read by the
  caller, and goes to `IdentityKey.from_bytes`.
* **File systems without permissions** (FAT, Windows): a warning, once in a process. Such a file system is
  recognized by a file that is made with mode 0600 and is shown with another one.
"""

from __future__ import annotations

import os
import secrets
import shlex
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from os import PathLike
from pathlib import Path

from privinf.errors import StorageError, UnprotectedFilesWarning
from privinf.typing import SecretKind
from privinf.validation import check_path

POSIX = os.name == "posix"
# Flags of every opening: no link is followed, no pipe is waited for, no child process gets the file.
SAFELY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
# By which flags a folder is opened: one that may be entered and not listed is opened too.
OF_FOLDERS = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
# Permissions reserved to the owner, by the kind of file.
FORBIDDEN: dict[SecretKind, int] = {"key": 0o077, "ledger": 0o022}
# How often a file is opened again that another process replaced at this very moment.
ATTEMPTS = 100
OWN_FOLDER = "keep secret files in a new folder of your own, made with 'mkdir -m 700 FOLDER'"
# What replaces a file that other accounts could use.
REPLACED: dict[SecretKind, str] = {
    "key": (
        "make a new key of the site or analyst with 'privinf site key' or 'privinf analyst key', or, for the "
        "key of a fit, start the fit again in an empty folder"
    ),
    "ledger": "restore a copy that they could not change",
}
NO_PERMISSIONS = (
    "the file system of {} does not store permissions, so privinf cannot check whether other "
    "accounts can read or change keys and ledgers there; keep them on a file system that stores "
    "permissions"
)


@dataclass(frozen=True, slots=True)
class FileFault:
    """A defect of a secret file or its folder, and its remedy.

    `of_permissions` marks a defect of owners or permissions, which some file systems do not have.
    """

    what: str
    remedy: str
    of_permissions: bool = True

    def __str__(self) -> str:
        return f"{self.what}; {self.remedy}"


def own_path(path: str | PathLike[str]) -> Path:
    """Return the absolute path of a secret file: links to its folder are followed, one to itself is not."""
    place = check_path(path).absolute()
    return place.parent.resolve() / place.name


def open_secret(path: Path, subject: str, kind: SecretKind, flags: int = os.O_RDONLY) -> int:
    """Open a secret file, or make one, and return its descriptor.

    Parameters
    ----------
    path : Path
    subject : str
        What messages call it, such as "the noise key".
    kind : {"key", "ledger"}
        A key is read by its owner alone; a ledger only has to be written by its owner alone.
    flags : int
        Of ``os.open``. With ``O_CREAT | O_EXCL`` the file is made, with mode 0600.

    Raises
    ------
    StorageError
        Another account can have read, changed or planted the file; the message has the command to type.
    OSError
        It cannot be opened.
    """
    with _opened_folder(path.parent, subject) as folder:
        for _ in range(ATTEMPTS):
            handle = _opened(path, flags, folder, subject)
            try:
                status = os.fstat(handle)
                if status.st_nlink:
                    _refuse(_file_faults(status, path, subject, kind), folder, path.parent, status)
                    return handle
            except BaseException:
                os.close(handle)
                raise
            os.close(handle)  # it was replaced by a new one after it was opened
    raise StorageError(
        f"{path} is being replaced repeatedly by another process, so {subject} cannot be read; "
        "stop that process"
    )


def check_secret(path: Path, subject: str, kind: SecretKind) -> None:
    """Raise StorageError or OSError unless a secret file can be opened, as `open_secret` does."""
    os.close(open_secret(path, subject, kind))


def check_folder(folder: Path, subject: str, *, sticky: bool = False) -> None:
    """Raise StorageError unless a folder is the caller's or root's, and others may not write to it.

    With `sticky` others may, where they cannot replace the caller's files: for files with random names.
    """
    with _opened_folder(folder, subject, sticky=sticky):
        pass


def faults_of(path: Path, subject: str, kind: SecretKind) -> list[FileFault]:
    """Return everything that is wrong with a secret file, without its folder; nothing is opened or raised."""
    with suppress(OSError):
        return list(_file_faults(os.lstat(path), path, subject, kind)) if POSIX else []
    return []


def folder_faults_of(folder: Path) -> list[FileFault]:
    """Return everything that is wrong with the folder of secret files."""
    with suppress(OSError):
        return list(_folder_faults(os.stat(folder), folder)) if POSIX else []
    return []


@contextmanager
def _opened_folder(folder: Path, subject: str, *, sticky: bool = False) -> Iterator[int | None]:
    """Open and check the folder of a secret file; None where the system does not open folders."""
    if not POSIX:
        yield None
        return
    handle = os.open(folder, OF_FOLDERS)
    try:
        status = os.fstat(handle)
        if not (sticky and status.st_mode & stat.S_ISVTX and status.st_uid in (0, os.geteuid())):
            _refuse(_folder_faults(status, folder, subject), handle, folder, status)
        yield handle
    finally:
        os.close(handle)


def _opened(path: Path, flags: int, folder: int | None, subject: str) -> int:
    """Open a file of an opened folder; StorageError for links, pipes and all else that is not a file."""
    name = path if folder is None else path.name
    try:
        return os.open(name, flags | SAFELY, 0o600, dir_fd=folder)
    except OSError as problem:
        if isinstance(problem, FileExistsError):
            raise
        status = None
        with suppress(OSError):
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if status is None or stat.S_ISREG(status.st_mode):
            raise
        fault = next(_file_faults(status, path, subject, "key"))
    raise StorageError(str(fault))


def _command(text: str) -> str:
    """Return a command in quotation marks that differ from those of its file names."""
    return f'"{text}"' if "'" in text else f"'{text}'"


def _file_faults(status: os.stat_result, path: Path, subject: str, kind: SecretKind) -> Iterator[FileFault]:
    """Yield the defects of a secret file."""
    name = shlex.quote(str(path))
    if stat.S_ISLNK(status.st_mode):
        yield FileFault(
            f"{path} is a symbolic link, which another account may have created",
            f"pass the path of the file itself, or remove the link with {_command(f'rm {name}')}",
            of_permissions=False,
        )
        return
    if not stat.S_ISREG(status.st_mode):
        yield FileFault(
            f"{path} is not a regular file, but {subject} must be one",
            "pass the path of a file",
            of_permissions=False,
        )
        return
    if not POSIX:
        return
    if status.st_uid != (uid := os.geteuid()):
        yield FileFault(
            f"{path} belongs to account {status.st_uid}, not to your account {uid}",
            "run the command as that account. If you trust the content of the file, make it yours "
            f"with {_command(f'sudo chown {uid} {name}')}; otherwise remove it with {_command(f'rm {name}')}",
        )
    if status.st_nlink > 1:
        yield FileFault(
            (f"{path} is one of {status.st_nlink} hard links to the same file, but must be the only one"),
            (
                "remove the other links, or make a copy with "
                + _command(f"cp -p {name} {name}.copy && mv {name}.copy {name}")
            ),
            of_permissions=False,
        )
    if status.st_mode & FORBIDDEN[kind]:
        yield FileFault(
            f"{path} is accessible to other accounts (mode {stat.S_IMODE(status.st_mode):o})",
            (
                f"if you trust all accounts that could use it, run {_command(f'chmod 600 {name}')}; "
                f"otherwise {REPLACED[kind]}"
            ),
        )


def _folder_faults(status: os.stat_result, folder: Path, subject: str = "files in it") -> Iterator[FileFault]:
    """Yield the defects of the folder of a secret file."""
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid not in (0, os.geteuid()):
        yield FileFault(
            f"the folder {folder} belongs to account {status.st_uid}, not to your account", OWN_FOLDER
        )
    if mode & 0o002 or (mode & 0o020 and not _is_own_group(status.st_gid, folder)):
        is_owner = status.st_uid == os.geteuid() and not mode & stat.S_ISVTX
        yield FileFault(
            (f"other accounts can change the folder {folder} (mode {mode:o}) and so could replace {subject}"),
            f"run {_command(f'chmod go-w {shlex.quote(str(folder))}')}" if is_owner else OWN_FOLDER,
        )


def _refuse(faults: Iterator[FileFault], folder: int | None, place: Path, status: os.stat_result) -> None:
    """Raise StorageError for the first fault that is one on this file system."""
    if folder is None:
        _warn_once(place)
    for fault in faults:
        if folder is None or not fault.of_permissions or not _has_no_permissions(folder, status.st_dev):
            raise StorageError(str(fault))
        _warn_once(place)


def _is_own_group(group: int, folder: Path) -> bool:
    """Return whether a group is the private one of this account: of its name, and without other members.

    In a folder with an access control list the group's permissions are those of everybody in the list.
    """
    with suppress(AttributeError, OSError):
        os.getxattr(folder, "system.posix_acl_access")
        return False
    pwd = import_module("pwd")
    grp = import_module("grp")
    try:
        account = pwd.getpwuid(os.geteuid())
        group_entry = grp.getgrgid(group)
    except KeyError:
        return False
    members = {*group_entry.gr_mem, *(user.pw_name for user in pwd.getpwall() if user.pw_gid == group)}
    return bool(group_entry.gr_name == account.pw_name and members == {account.pw_name})


def _has_no_permissions(folder: int, device: int) -> bool:
    """Return whether a file that is made here for its owner alone is shown as open to others."""
    if os.fstat(folder).st_dev != device:
        return False  # a file that is mounted by itself
    probe = f".privinf-{secrets.token_hex(8)}.tmp"
    try:
        handle = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | SAFELY, 0o600, dir_fd=folder)
    except OSError:
        return False
    try:
        return bool(os.fstat(handle).st_mode & FORBIDDEN["key"])
    finally:
        os.close(handle)
        os.unlink(probe, dir_fd=folder)


@cache
def _warning_given() -> list[bool]:
    """Return a list that is empty until the warning was given in this process."""
    return []


def _warn_once(place: Path) -> None:
    if not _warning_given():
        _warning_given().append(True)
        warnings.warn(NO_PERMISSIONS.format(place), UnprotectedFilesWarning, stacklevel=2)
