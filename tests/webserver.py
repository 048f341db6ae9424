"""Run the web page's server in this process, for tests of the API and of the page in a browser."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import uvicorn

from mlci.codes.admissions import as_admissions
from mlci.index.estimator import MLCI
from mlci.judging.kept import Smooth
from mlci.web import create_app
from mlci.web._protocol import LONGEST_HEAD, PatientProtocol
from toys import code_lists, random_model

REAL = ("I509", "N179", "J960", "A419", "E119", "I10")  # codes with titles, which the toy model's vocabulary contains

KNOTS = np.array([-1.0, 0.0, 1.0])
CURVES = {
    "mortality": Smooth(KNOTS, np.array([-9.0, -4.0, -1.0]), np.full(3, 0.2)),
    "long stay": Smooth(KNOTS, np.array([-2.0, -1.0, 0.5]), np.full(3, 0.1)),
}
FIGURES = {"n": 900, "positives": 90, "auroc": 0.812, "auroc_low": 0.77, "auroc_high": 0.85, "expected": 0.102}
FIGURES |= {"observed": 0.1, "observed_low": 0.082, "observed_high": 0.121, "slope": 0.97}
CARD = {"source": "synthetic", "admissions": {"train": 6300, "valid": 900}, "validation": {"mortality": FIGURES}}


def toy_index() -> MLCI:
    """Return an index with random weights whose vocabulary contains a few real codes."""
    model, index = random_model(seed=3), MLCI()
    tokens = (*REAL, *model.vocabulary.tokens)[: len(model.vocabulary.tokens)]
    model = replace(model, vocabulary=replace(model.vocabulary, tokens=tokens))
    admissions = as_admissions(code_lists(500, seed=1), icd_version=10)
    scores = model.score(admissions)
    # spread the scores around the cutoff and along the risk curves
    factor = np.float32(0.5 / scores.std())
    weight, bias = model.state["rho.4.weight"], model.state["rho.4.bias"]
    last = {"rho.4.weight": weight * factor, "rho.4.bias": (bias - np.float32(scores.mean())) * factor}
    model = replace(model, state={**model.state, **last}, curves=CURVES, card={**model.card, **CARD})
    index.model_ = replace(model, quantiles=np.quantile(model.score(admissions), np.linspace(0, 1, 1001)))
    return index


@contextlib.contextmanager
def running(index: MLCI, **options) -> Iterator[str]:
    """Run a server in a thread and yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        app = create_app(index, **options)
        # Keep idle connections open: the server might close one just as the client sends a request.
        options = {"http": PatientProtocol, "log_level": "warning", "access_log": False, "timeout_keep_alive": 3600}
        options["h11_max_incomplete_event_size"] = LONGEST_HEAD
        server = uvicorn.Server(uvicorn.Config(app, **options))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
