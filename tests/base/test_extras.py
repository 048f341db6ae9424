"""A missing extra raises an error of one sentence with the command that installs it."""

import re
import tomllib

import pytest
from click.testing import CliRunner

from conftest import ROOT
from mlci.base import extras
from mlci.base.errors import InputError
from mlci.cli import cli
from mlci.index.estimator import MLCI


def test_an_error_names_the_missing_module_and_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(extras.EXTRAS, "web", ("no_such_module",))
    with pytest.raises(InputError, match=re.escape("pip install 'mlci[web]'")):
        CliRunner().invoke(cli, ["serve", "any.safetensors"], catch_exceptions=False)


@pytest.mark.parametrize("recipe", ["deep", "paper"])
def test_a_network_is_not_begun_without_torch(monkeypatch, recipe):
    monkeypatch.setitem(extras.EXTRAS, "deep", ("no_such_module",))
    with pytest.raises(InputError, match=re.escape("pip install 'mlci[deep]'")):
        MLCI(recipe=recipe).fit([["I509"], ["E119"]], {"mortality": [0, 1]}, icd_version=10)


def test_every_extra_that_code_asks_for_can_be_installed():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras.EXTRAS) <= set(project["optional-dependencies"])


def test_a_database_without_its_driver_is_one_sentence_with_the_command(monkeypatch, mlci_cli):
    monkeypatch.setitem(extras.EXTRAS, "postgres", ("no_such_module",))
    said = mlci_cli("cohort", "mimic4", "postgresql://reader@127.0.0.1:1/x", "-o", "c.parquet", "-q", code=2).stderr
    assert said.strip().endswith("run: pip install 'mlci[postgres]'")
