"""Another package adds a source and a baseline with entry points."""

import sys
from importlib import metadata

import pytest

import mlci
from mlci import sources
from mlci.benchmark import models

PACKAGE = """
import pyarrow as pa
from dataclasses import replace
from mlci.benchmark.models import clinical
from mlci.sources import Draft

def read(location, *, deaths=1):
    table = pa.table({"admission_id": [1, 2], "subject_id": [1, 2], "icd_version": [10, 10],
                      "codes": [["I10"], ["N17.9"]], "died": [True, False]})
    return Draft(table, {"died": "as the ward says"})

MODELS = [replace(clinical.MODELS[0], name="ward", title="Ward score")]
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    (tmp_path / "wardpackage.py").write_text(PACKAGE)
    info = tmp_path / "wardpackage-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: wardpackage\nVersion: 1\n")
    points = "[mlci.sources]\nward = wardpackage\n[mlci.models]\nward = wardpackage\n"
    (info / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(tmp_path)
    models.discover.cache_clear()
    yield info
    models.discover.cache_clear()
    sys.modules.pop("wardpackage", None)


def test_a_package_adds_a_source_and_a_baseline(package):
    assert "ward" in {point.name for point in metadata.entry_points(group="mlci.sources")}
    assert "ward" in sources.names()
    cohort = mlci.build_cohort("ward", "anywhere", deaths=2)
    assert (len(cohort), cohort.outcomes) == (2, {"died": "as the ward says"})
    assert models.discover()["ward"].title == "Ward score"
    with pytest.raises(mlci.InputError, match="has no option births; allowed are deaths"):
        mlci.build_cohort("ward", "anywhere", births=1)


def test_a_package_that_does_not_load_is_named(package):
    (package / "entry_points.txt").write_text("[mlci.sources]\nbroken = nosuchpackage\n")
    with pytest.raises(mlci.InputError, match=r"mlci.sources: broken \(nosuchpackage\) cannot be loaded"):
        mlci.build_cohort("broken", "anywhere")
