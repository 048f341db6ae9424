"""`mlci serve`: a page and a JSON API around a model, on this machine."""

import click

from mlci.cli._model import MODEL


@click.command(short_help="A local page: type codes, see severity.")
@click.argument("model", type=MODEL, default="us2010")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0: any free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option("--open", "show", is_flag=True, help="Open the page in a browser.")
def command(model: str, port: int, host: str, show: bool) -> None:
    """Serve a page and a JSON API around a MODEL (by default the ready-made us2010), on this machine alone.

    The page scores one typed admission or a file of many, with risks and the effect of each code. Nothing is stored or
    logged, and nothing is asked of the network.
    """
    import os

    from mlci.base.extras import need

    need("web", to="serve a page")
    from mlci.index.estimator import load
    from mlci.web import serve
    from mlci.web.server import is_loopback

    def on_ready(address: str) -> None:
        if not is_loopback(host):
            click.echo(
                f"mlci: warning: {host} can be reached from other machines, without password or encryption: whoever "
                "reaches it can use the model and see what it says.",
                err=True,
            )
        click.echo(f"The page is at {address}; Ctrl-C ends it.")
        if show:
            click.launch(address)

    serve(load(model), host=host, port=port, on_ready=on_ready, name=os.path.basename(model))
