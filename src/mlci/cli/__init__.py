"""The command line. This folder is the registry: a module `x.py` with a click command named `command` is `mlci x`.

Command modules import click alone at their top; what is heavy is imported inside the function that needs it.
"""

import errno
import pkgutil
import sys
import warnings
from importlib import import_module

import click

import mlci
from mlci.base.errors import InputError

# The order of the story; a command not named here comes last.
STORY = (
    *("demo", "cohort", "indices", "fit", "score", "evaluate", "diagnose"),
    *("benchmark", "reproduce", "report", "card", "serve"),
)
REFUSALS = {
    errno.ENOENT: "no such file or folder",
    errno.EACCES: "no permission",
    errno.EPERM: "no permission",
    errno.EISDIR: "is a folder; a file is needed",
    errno.ENOTDIR: "is not a folder",
    errno.ENOSPC: "the disk is full",
    errno.EROFS: "the disk is read-only",
}


class Story(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        found = [module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")]
        return sorted(found, key=lambda name: STORY.index(name) if name in STORY else len(STORY))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        return import_module(f"mlci.cli.{cmd_name}").command


@click.group(cls=Story, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(mlci.__version__, prog_name="mlci")
def cli() -> None:
    """Turn the diagnosis codes of hospital admissions into one severity number, and judge it.

    Start with `mlci demo`; with your own tables, `mlci cohort --help`.
    """


def main() -> None:
    """Run a command; whatever a person can mend is told in one sentence, without a traceback."""
    warnings.filterwarnings("ignore", message="Attempting to run cuBLAS")  # torch's, at the first step on a GPU
    try:
        code = cli.main(standalone_mode=False) or 0
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("mlci: stopped.", err=True)
        code = 130
    except InputError as error:
        click.echo(f"mlci: {error}", err=True)
        code = 2
    except BrokenPipeError:
        code = 0
    except OSError as error:
        if error.errno not in REFUSALS:
            raise
        click.echo(f"mlci: {error.filename or 'output'}: {REFUSALS[error.errno]}.", err=True)
        code = 2
    sys.exit(code)
