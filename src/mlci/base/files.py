"""Files appear whole or not at all: write to a temporary name beside the target, then rename."""

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from mlci.base.errors import InputError


@contextlib.contextmanager
def atomic(path: str | os.PathLike) -> Iterator[Path]:
    """A temporary path in the target's folder that becomes `path` if the block succeeds and vanishes if it fails."""
    target = Path(path)
    check_writable(target)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        yield temporary
        os.replace(temporary, target)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise InputError(f"{target}: the disk is full; nothing was written.") from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def check_writable(path: str | os.PathLike) -> None:
    """Say before any long work begins that `path` cannot be written."""
    target = Path(path)
    if not target.parent.is_dir():
        raise InputError(f"{target}: the folder {target.parent} does not exist.")
    if target.is_dir():
        raise InputError(f"{target}: is a folder; a file name is needed.")
    if not os.access(target.parent, os.W_OK):
        raise InputError(f"{target}: no permission to write in {target.parent}.")
