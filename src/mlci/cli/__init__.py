"""The command line. This folder is the registry: a module `x.py` with a click command named `command` is `mlci x`.

Command modules import click alone at their top; what is heavy is imported inside the function that needs it.
"""

import atexit
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
from mlci.cli._frameless import without_pandas

# The order of the story; a command not named here comes last.
STORY = (
    *("demo", "cohort", "indices", "fit", "score", "explain", "models", "recalibrate", "export", "evaluate", "curves"),
    *("diagnose", "poa", "compare", "benchmark", "reproduce", "report", "card", "serve", "cite"),
)
RESUMED = {"fit", "benchmark", "reproduce", "demo"}
STOPS = (signal.SIGTERM, signal.SIGHUP)

MOST_WORDS = 2000  # of a sentence: an input may be long


class _Story(click.Group):
    """All commands, in the order in which a person meets them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        found = [module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")]
        return sorted(found, key=lambda name: STORY.index(name) if name in STORY else len(STORY))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        return import_module(f"mlci.cli.{cmd_name}").command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Refuse an option whose value was forgotten: click would take the next option for the value."""
        name, command, rest = super().resolve_command(ctx, args)
        if command is None:
            return name, command, rest
        options = [option for option in command.params if isinstance(option, click.Option)]
        valued = {word for option in options if not (option.is_flag or option.count) for word in option.opts}
        words = {word for option in options for word in (*option.opts, *option.secondary_opts)}
        for word, follower in pairwise(takewhile(lambda said: said != "--", rest)):
            if word in valued and follower in words:
                here = click.Context(command, ctx, name)
                raise click.UsageError(f"{word} needs a value; {follower} follows it.", here)
        return name, command, rest


@click.group(cls=_Story, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(mlci.__version__, prog_name="mlci")
def cli() -> None:
    """Turn the diagnosis codes of hospital admissions into one severity number, and judge it.

    Start with `mlci demo`; with your own tables, `mlci cohort --help`.
    """


def main() -> None:
    """Run a command, and say in one sentence, without a traceback, what a person has to mend."""
    warnings.filterwarnings("ignore", message="Attempting to run cuBLAS")  # torch's, at the first step on a GPU
    warnings.showwarning = partial(_tell, warnings.showwarning)
    without_pandas(sys.argv[1:])
    for request in STOPS:
        signal.signal(request, _stop)
    stopped = False
    try:
        code = cli.main(standalone_mode=False) or 0
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        again = " The same command goes on where it stopped." if RESUMED & {*sys.argv[1:2]} else ""
        click.echo(f"mlci: stopped.{again}", err=True)
        code, stopped = 130, True
    except SystemExit as request:  # of `_stop`
        code, stopped = request.code, True
    except BrokenPipeError:
        code = 0
    except Exception as error:  # the one exit: a traceback could show a patient's values
        if os.environ.get("MLCI_DEBUG"):
            raise
        code = 2 if (said := sentence(error)) else 1
        click.echo(f"mlci: {name_of(said or _fault(error))[:MOST_WORDS]}", err=True)
    _leave(code, stopped=stopped)


def _leave(code: str | int | None, *, stopped: bool) -> NoReturn:
    """End the process, and do not wait for what nobody needs any more.

    Threads whose command was stopped may go on for seconds, and after work on a GPU torch and CUDA take one to put away
    what ends anyway.
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


def _tell(show: Callable[..., None], message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    """Tell what is outdated in a sentence; warnings of other kinds as Python does."""
    if issubclass(category, OutdatedWarning):
        click.echo(f"mlci: warning: {message}", err=True)
    else:
        show(message, category, *place, **more)


def _stop(number: int, _: object) -> None:
    """End as if by an error, so that temporary files are removed; a second request must not interrupt that."""
    for request in STOPS:
        signal.signal(request, signal.SIG_IGN)
    sys.exit(128 + number)


def _fault(error: Exception) -> str:
    """Return where the program itself went wrong; its text might hold a patient's values."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return (
        f"this is a fault of the program ({type(error).__name__} in {Path(place.filename).name}, line {place.lineno}); "
        "with MLCI_DEBUG=1 it shows all, which may include values of patients."
    )
