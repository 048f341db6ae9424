"""The stored SQL of MIMIC's queries is what Ibis compiles, and gives the same results."""

from importlib.metadata import version

import ibis
import pytest

from mlci.cohort import build_cohort
from mlci.sources import _kept, mimic3, mimic4
from mlci.sources._engine import open_tables

ASKED = [
    *((mimic3, {"death_day_counts": death}) for death in (False, True)),
    *((mimic4, {"icd_version": icd, "death_day_counts": death}) for icd in (10, 9) for death in (False, True)),
]


def compiled() -> dict[str, str]:
    """What Ibis makes of each query, of tables with the columns that the source declares."""
    found = {}
    for source, options in ASKED:
        tables = {name: ibis.table(columns, name=name) for name, columns in source.TABLES.items()}
        for query in source._queries(**options):
            found[query.name] = ibis.to_sql(query.of(tables), dialect="duckdb", pretty=False)
    return found


def written() -> str:
    """The file that holds the queries."""
    lines = [f"Made by ibis-framework {version('ibis-framework')} of the expressions in mimic3.py and mimic4.py.\n"]
    lines += [f"{name}\n{query}\n" for name, query in compiled().items()]
    return "".join(f"\n{_kept.MARK}{line}" for line in lines).lstrip("\n")


def test_the_kept_queries_are_those_of_the_expressions():
    """After a change of an expression: python tests/sources/test_kept.py."""
    kept = _kept.FILE.read_text("utf-8")
    if f"ibis-framework {version('ibis-framework')} " not in kept:
        pytest.skip("another version of Ibis writes other SQL")
    assert kept == written()


@pytest.mark.parametrize(("source", "options"), ASKED, ids=str)
def test_they_answer_as_the_expressions_do(source, options, demos, monkeypatch):
    name = source.__name__.rpartition(".")[2]
    folder = demos / f"{name}_demo"
    with open_tables(folder, source.TABLES) as tables:
        assert tables.folder is not None
        assert tables.folder.exact
    cohort = build_cohort(name, folder, **options)
    monkeypatch.setattr("mlci.sources._folder.Folder.answers", lambda *_: None)
    assert build_cohort(name, folder, **options) == cohort


if __name__ == "__main__":
    _kept.FILE.write_text(written(), "utf-8")
