"""`mlci serve`: a web page and a JSON API for a model, on this machine."""

import click

from mlci.cli._model import MODEL


@click.command(short_help="Serve a local web page: type codes, see severity.")
@click.argument("model", type=MODEL, default="us2010")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="Port to listen on; 0: any free port.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--open", "show", is_flag=True, help="Open the page in a browser.")
def command(model: str, port: int, host: str, show: bool) -> None:
    """Serve a web page and a JSON API for a MODEL, by default only on this machine. The default model is us2010.

    The page scores one typed admission or a file of many, and shows risks and the effect of each code. Nothing is
    stored or logged, and no network access is needed.
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
                f"mlci: warning: {host} can be reached from other machines, without password or encryption: anyone who "
                "can reach it can use the model.",
                err=True,
            )
        click.echo(f"The page is at {address} - press Ctrl-C to stop it.")
        if show:
            click.launch(address)

    serve(load(model), host=host, port=port, on_ready=on_ready, name=os.path.basename(model))
