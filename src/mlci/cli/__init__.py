"""The command line. This folder is the registry: a module `x.py` with a click command named `command` is `mlci x`.

Command modules import only click at their top; heavy imports are inside the function that needs them.
"""

import atexit
import io
import os
import pkgutil
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from importlib import import_module
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, NoReturn

import click

import mlci
from mlci.base.errors import name_of, sentence
from mlci.base.outdated import OutdatedWarning
from mlci.base.signals import on_signal
from mlci.cli._frameless import without_pandas

# The order of commands in the help; a command not named here comes last.
ORDER = (
    *("demo", "cohort", "indices", "fit", "score", "explain", "models", "recalibrate", "export", "evaluate", "curves"),
    *("diagnose", "poa", "compare", "benchmark", "reproduce", "report", "card", "serve", "cite"),
)
RESUMABLE = {"fit", "benchmark", "reproduce", "demo"}
STOP_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
LAST = 15.0  # seconds that a stopped command has to clean up; child processes have ten
MAX_MESSAGE = 2000  # characters: a message may quote a long input


class _OrderedGroup(click.Group):
    """All commands, in the order in which a new user meets them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        found = [module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")]
        return sorted(found, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        return import_module(f"mlci.cli.{cmd_name}").command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Reject an option without its value: click would take the next option as the value."""
        name, command, rest = super().resolve_command(ctx, args)
        if command is None:
            return name, command, rest
        options = [option for option in command.params if isinstance(option, click.Option)]
        valued = {flag for option in options if not (option.is_flag or option.count) for flag in option.opts}
        flags = {flag for option in options for flag in (*option.opts, *option.secondary_opts)}
        for word, follower in pairwise(takewhile(lambda word: word != "--", rest)):
            if word in valued and follower in flags:
                raise click.UsageError(
                    f"{word} needs a value; {follower} follows it.", click.Context(command, ctx, name)
                )
        return name, command, rest


@click.group(cls=_OrderedGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(mlci.__version__, prog_name="mlci")
def cli() -> None:
    """Turn the diagnosis codes of hospital admissions into one severity score, and evaluate it.

    Start with `mlci demo`. For your own tables, see `mlci cohort --help`.
    """


def main() -> None:
    """Run a command; report an error as one sentence, without a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # None if it is closed
        sys.stdout.reconfigure(errors="replace")  # print ? for what a terminal cannot show
    warnings.showwarning = partial(_show_warning, warnings.showwarning)
    without_pandas(sys.argv[1:])
    for number in (signal.SIGINT, *STOP_SIGNALS):
        on_signal(number, _stop)
    stopped = False
    try:
        code = _run() or 0
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        resume = " The same command continues where it stopped." if RESUMABLE & {*sys.argv[1:2]} else ""
        click.echo(f"mlci: stopped.{resume}", err=True)
        code, stopped = 130, True
    except SystemExit as ended:  # raised by `_stop`, or by click if nobody reads on, as `head` does
        code, stopped = ended.code, True
    except Exception as error:  # caught here once for all commands: a traceback could show a patient's values
        if os.environ.get("MLCI_DEBUG"):
            raise
        message = sentence(error)
        code = 2 if message else 1
        click.echo(f"mlci: {name_of(message or _internal_error(error))[:MAX_MESSAGE]}", err=True)
    _exit(code, stopped=stopped)


def _run() -> Any:
    """Run a command; DuckDB turns Ctrl-C and `_stop` into an error of its own, so raise these again."""
    try:
        return cli.main(standalone_mode=False)
    except RuntimeError as error:
        if isinstance(error.__cause__, KeyboardInterrupt | SystemExit):
            raise error.__cause__ from None
        raise


def _exit(code: str | int | None, *, stopped: bool) -> NoReturn:
    """End the process without waiting for threads or for the GPU libraries.

    Threads of a stopped command may run on for seconds, and torch and CUDA take a second to shut down after work on a
    GPU.
    """
    is_used = getattr(sys.modules.get("torch.cuda"), "is_initialized", bool)  # a thread may still be importing it
    on_gpu = is_used()
    if isinstance(code, int) and (on_gpu or (stopped and threading.active_count() > 1)):
        if not on_gpu:
            atexit._run_exitfuncs()  # which remove temporary files
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _show_warning(
    show: Callable[..., None], message: Warning | str, category: type[Warning], *place: Any, **more: Any
) -> None:
    """Show an `OutdatedWarning` as one sentence, and any other warning as Python does."""
    if issubclass(category, OutdatedWarning):
        click.echo(f"mlci: warning: {message}", err=True)
    else:
        show(message, category, *place, **more)


def _stop(number: int) -> NoReturn:
    """Exit as after an error, so that temporary files are removed; ignore further signals meanwhile.

    If other code catches the exception and goes on, the process ends a little later.
    """
    if number == signal.SIGINT:  # who is not heard presses Ctrl-C again
        raise KeyboardInterrupt
    last = threading.Timer(LAST, os._exit, [128 + number])
    last.daemon = True
    last.start()
    for other in STOP_SIGNALS:
        signal.signal(other, signal.SIG_IGN)
    sys.exit(128 + number)


def _internal_error(error: Exception) -> str:
    """Return where the program failed, without the error's own text, which might hold a patient's values."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"this is a bug in mlci ({type(error).__name__} in {Path(place.filename).name}, line {place.lineno}); "
        "MLCI_DEBUG=1 shows the traceback, which may contain patient data."
    )
