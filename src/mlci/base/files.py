"""Write files so that they appear complete or not at all, and so that no existing file is lost.

An output is written to a private file next to its target and renamed at the end. Scratch data are in a private folder.
Both are locked while their process runs. A killed process leaves them without a lock, and the next run that uses the
same folder removes them.
"""

import atexit
import contextlib
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

from mlci.base.errors import InputError, full

PART = ".mlci.part"
SCRATCH = "mlci-scratch-"
_PARTS = re.compile(rf"\..+\.[0-9a-f]{{8}}{re.escape(PART)}")


@contextlib.contextmanager
def atomic(path: str | os.PathLike, *, inputs: Iterable[str | os.PathLike] = ()) -> Iterator[Path]:
    """Give a temporary path that is renamed to `path` if the block succeeds and removed if it fails.

    Only its owner may read the temporary file. An existing target keeps its permissions, and links to it stay valid.

    Args:
        path: the output file.
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
    if str(path).endswith(PART):  # within another `atomic` block, which renames the file
        yield Path(path)
        return
    target = check_writable(path, inputs=inputs)
    _sweep(target.parent, _PARTS)
    temporary, lock = _private_file(target)
    try:
        yield temporary
        os.chmod(temporary, _mode(target))
        os.replace(temporary, target)
    except Exception as error:  # only a full disk becomes a sentence; all else is raised as it is
        if reason := full(error):
            raise InputError(f"{path}: {reason}; nothing was written.") from error
        raise
    finally:
        temporary.unlink(missing_ok=True)
        os.close(lock)


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """Give a private folder for data larger than memory; it is removed at the end of the block.

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
    atexit.register(remove)  # if the generator is never finished
    try:
        yield folder
    finally:
        remove()
        atexit.unregister(remove)
        os.close(lock)


def check_writable(path: str | os.PathLike, *, inputs: Iterable[str | os.PathLike] = ()) -> Path:
    """Refuse a path that cannot be written, before any long work begins.

    Args:
        path: the output file.
        inputs: files and folders that the same command reads. The output must not be one of these files, or an
            existing file in one of these folders.

    Returns:
        The file itself, with links followed.

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
    """Return a new locked file next to the target, and the descriptor that holds the lock."""
    while True:
        path = target.with_name(f".{target.name}.{secrets.token_hex(4)}{PART}")
        lock = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.fstat(lock).st_nlink:  # else another process removed it before it was locked
            return path, lock
        os.close(lock)


def _private_folder() -> tuple[Path, int]:
    """Return a new locked folder for temporary files, and the descriptor that holds the lock."""
    while True:
        path = tempfile.mkdtemp(prefix=SCRATCH)
        with contextlib.suppress(FileNotFoundError):  # another process removed it before it was locked
            lock = os.open(path, os.O_RDONLY)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.fstat(lock).st_nlink:
                return Path(path), lock
            os.close(lock)


def _mode(target: Path) -> int:
    """Return the permissions of the existing file, or those of a new file."""
    if target.exists():
        return stat.S_IMODE(target.stat().st_mode)
    mask = os.umask(0o077)  # the mask can only be read by setting it
    os.umask(mask)
    return 0o666 & ~mask


def _sweep(folder: Path, names: re.Pattern) -> None:
    """Remove what killed processes left in a folder: entries with such a name and without a lock."""
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
