"""Files appear whole or not at all, and nothing that a person has is lost on the way.

An output is written to a private file beside its target and renamed at the end; scratch data lie in a private folder.
Both are locked while their process lives. A process that is killed leaves them behind without a lock, and whichever
run comes next to the same folder removes them.
"""

import atexit
import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from mlci.base.errors import InputError

PART = ".mlci.part"
SCRATCH = "mlci-scratch-"
_PARTS = re.compile(rf"\..+\.[0-9a-f]{{8}}{re.escape(PART)}")


@contextlib.contextmanager
def atomic(path: str | os.PathLike, *, inputs: Iterable[str | os.PathLike] = ()) -> Iterator[Path]:
    """Give a temporary path that becomes `path` if the block succeeds and vanishes if it fails.

    Until then only its owner may read it. A target that exists keeps its permissions, and a link keeps pointing to it.

    Args:
        path: where the output shall go.
        inputs: files, or folders of files, that must not be overwritten.

    Returns:
        A context manager that gives the temporary path.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     target = Path(folder, "scores.csv")
    ...     with atomic(target) as temporary:
    ...         _ = temporary.write_text("half a ")
    ...         before = target.exists()
    ...     before, target.read_text()
    (False, 'half a ')
    """
    if str(path).endswith(PART):  # inside a block of its own: whole when that one ends
        yield Path(path)
        return
    target = check_writable(path, inputs=inputs)
    _sweep(target.parent, _PARTS)
    temporary, lock = _private_file(target)
    try:
        yield temporary
        os.chmod(temporary, _mode(target))
        os.replace(temporary, target)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise InputError(f"{path}: the disk is full; nothing was written.") from error
        raise
    finally:
        temporary.unlink(missing_ok=True)
        os.close(lock)


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """Give a folder for data larger than memory, which nobody else may read; it vanishes with the block.

    Returns:
        A context manager that gives the folder.

    >>> with scratch() as folder:
    ...     folder.is_dir()
    True
    >>> folder.exists()
    False
    """
    _sweep(Path(tempfile.gettempdir()), re.compile(rf"{SCRATCH}\w+"))
    folder, lock = _private_folder()
    remove = partial(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(remove)  # for a generator that is never finished
    try:
        yield folder
    finally:
        remove()
        atexit.unregister(remove)
        os.close(lock)


def check_writable(path: str | os.PathLike, *, inputs: Iterable[str | os.PathLike] = ()) -> Path:
    """Refuse, before any long work begins, a path that cannot be written.

    Args:
        path: where an output shall go.
        inputs: what the same command reads. The output must not be one of these files, nor lie in one of these folders
            and exist.

    Returns:
        The file that links lead to.

    >>> check_writable("nowhere/scores.csv")
    Traceback (most recent call last):
    mlci.base.errors.InputError: nowhere/scores.csv: the folder ... does not exist.
    """
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise InputError(f"{path}: is a link that leads to itself; a file name is needed.")
    if not target.parent.is_dir():
        raise InputError(f"{path}: the folder {target.parent} does not exist.")
    if target.is_dir():
        raise InputError(f"{path}: is a folder; a file name is needed.")
    if target.exists() and not target.is_file():
        raise InputError(f"{path}: is a device or a pipe; a file name is needed.")
    if not os.access(target.parent, os.W_OK):
        raise InputError(f"{path}: no permission to write in {target.parent}.")
    if target.exists():
        for source in map(Path, inputs):
            inside = source.is_dir() and target.is_relative_to(os.path.realpath(source))
            if inside or (source.exists() and os.path.samefile(source, target)):
                raise InputError(f"{path}: is read by this command and would be overwritten; name another output.")
    return target


def _private_file(target: Path) -> tuple[Path, int]:
    """Return a new locked file beside the target, and the descriptor that holds the lock."""
    while True:
        path = target.with_name(f".{target.name}.{secrets.token_hex(4)}{PART}")
        lock = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.fstat(lock).st_nlink:  # else swept by another process before it was locked
            return path, lock
        os.close(lock)


def _private_folder() -> tuple[Path, int]:
    """Return a new locked folder for temporary files, and the descriptor that holds the lock."""
    while True:
        path = tempfile.mkdtemp(prefix=SCRATCH)
        with contextlib.suppress(FileNotFoundError):  # swept by another process before it was locked
            lock = os.open(path, os.O_RDONLY)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.fstat(lock).st_nlink:
                return Path(path), lock
            os.close(lock)


def _mode(target: Path) -> int:
    """Return the permissions of the file that is there, or those of any new file."""
    if target.exists():
        return stat.S_IMODE(target.stat().st_mode)
    mask = os.umask(0o077)  # there is no other way to ask for it
    os.umask(mask)
    return 0o666 & ~mask


def _sweep(folder: Path, names: re.Pattern) -> None:
    """Remove what killed processes left in a folder: what has such a name and no lock."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if not names.fullmatch(entry.name) or entry.is_symlink():
                continue
            with contextlib.suppress(OSError):  # another user's, or in use
                lock = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if entry.is_dir():
                        shutil.rmtree(entry.path)
                    else:
                        os.unlink(entry.path)
                finally:
                    os.close(lock)
