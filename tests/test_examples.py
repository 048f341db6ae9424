import base64
import runpy
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from conftest import PATIENCE, require

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("plot_*.py"))


def test_at_least_four_examples_exist():
    assert len(EXAMPLES) >= 4


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs_and_prints(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert path.read_text().count("# %%") >= 4
    runpy.run_path(str(path), run_name="__main__")
    assert len(capsys.readouterr().out.splitlines()) > 4


NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Jupyter's own packages warn
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_and_shows_pages_and_a_picture(path, tmp_path):
    require(find_spec("nbclient") and find_spec("ipykernel"), "nbclient and ipykernel")
    import nbclient
    import nbformat
    from traitlets.config import Config

    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)  # stored outputs would become outdated
    options = {"timeout": PATIENCE, "startup_timeout": PATIENCE, "iopub_timeout": PATIENCE}
    options |= {"resources": {"metadata": {"path": str(tmp_path)}}}
    with tempfile.TemporaryDirectory() as folder:  # use sockets in a folder: another process may take a free port
        config = Config({"KernelManager": {"transport": "ipc", "ip": f"{folder}/kernel"}})
        nbclient.NotebookClient(notebook, config=config, **options).execute()
    shown = [output.data for cell in notebook.cells for output in cell.get("outputs", []) if "data" in output]
    pages = [data["text/html"] for data in shown if "text/html" in data]
    assert any("Cohort of 4,000 admissions" in page for page in pages)
    assert any("<svg" in page for page in pages)
    [picture] = [base64.b64decode(data["image/png"]) for data in shown if "image/png" in data]
    assert len(picture) > 5_000
