"""How commands behave at a terminal: quiet, careful with files, tables that fit, settings that print."""

import io
import subprocess
import sys
import threading
from dataclasses import replace

import pandas as pd
import pytest
from click.testing import CliRunner

import meds_folder
import mlci
from mlci import cli as command_line
from mlci.cli import cli
from mlci.cli._tables import show
from mlci.config import RECIPES, config_from, toml_of
from toys import random_model, toy_cohort


def run(*words: object, **options):
    return CliRunner().invoke(cli, [str(word) for word in words], catch_exceptions=False, **options)


@pytest.fixture
def folder(tmp_path):
    toy_cohort(200).write(tmp_path / "c.parquet")
    random_model().save(tmp_path / "m.safetensors")
    wide = pd.DataFrame({"visit": ["007", "8"], "DX1": ["I01.1", "A00.0"], "DX2": ["N01.1", None]})
    wide.to_csv(tmp_path / "wide.csv", index=False)
    wide.to_excel(tmp_path / "wide.xlsx", index=False)
    return tmp_path


def test_files_as_people_have_them_in_and_out(folder, monkeypatch):
    options = ("-q", "--id", "visit", "--codes", "DX*", "--icd-version", "10")
    for source in ("wide.csv", "wide.xlsx"):
        for target in ("s.csv", "s.xlsx", "s.parquet"):
            for words in (("score", folder / "m.safetensors"), ("indices",)):
                done = run(*words, folder / source, "-o", folder / target, *options)
                assert (done.exit_code, done.output) == (0, "")
    assert pd.read_excel(folder / "s.xlsx", engine="calamine", dtype={"admission_id": str}).admission_id.tolist() == [
        "007",
        "8",
    ]
    stream = io.TextIOWrapper(io.BytesIO((folder / "wide.csv").read_bytes()))
    monkeypatch.setattr(sys, "stdin", stream)
    done = CliRunner().invoke(cli, ["indices", "-", "-o", "-", *options], input=(folder / "wide.csv").read_bytes())
    assert done.stdout.splitlines()[0] == '"admission_id","cci_charlson","eci_vw","cci_eci"'
    assert done.stdout.splitlines()[1].startswith('"007",')


@pytest.mark.parametrize("command", ["score", "indices", "fit", "report", "card", "evaluate"])
def test_a_cohort_is_never_lost_silently(folder, command):
    before = (folder / "c.parquet").read_bytes()
    toy_cohort(100).write(folder / "other.parquet")
    words = {
        "score": ["score", folder / "m.safetensors", folder / "other.parquet"],
        "indices": ["indices", folder / "other.parquet"],
        "fit": ["fit", folder / "other.parquet"],
        "report": ["report", folder / "m.safetensors", folder / "other.parquet"],
        "card": ["card", folder / "m.safetensors", folder / "other.parquet"],
        "evaluate": ["evaluate", folder / "other.parquet", folder / "other.parquet"],
    }[command]
    with pytest.raises(mlci.InputError, match=r"is a cohort file and would be overwritten; .* --force"):
        run(*words, "-o", folder / "c.parquet")
    words[-1] = folder / "c.parquet"
    with pytest.raises(mlci.InputError, match="is read by this command and would be overwritten"):
        run(*words, "-o", folder / "c.parquet", "--force")
    assert (folder / "c.parquet").read_bytes() == before


@pytest.mark.parametrize(
    "words",
    [
        ["indices", "c.parquet", "-o", "same.csv", "--audit", "./same.csv"],
        ["recalibrate", "m.safetensors", "c.parquet", "-o", "same.html", "--page", "same.html"],
    ],
    ids=["indices", "recalibrate"],
)
def test_two_outputs_need_two_names(folder, words, monkeypatch):
    monkeypatch.chdir(folder)
    with pytest.raises(mlci.InputError, match=r"same\..*: two outputs of this command have this name"):
        run(*words)
    assert not list(folder.glob("same*"))


@pytest.mark.parametrize("command", ["cohort", "evaluate", "recalibrate", "report"])
def test_a_command_that_cannot_write_to_standard_output_refuses_it(folder, command, monkeypatch):
    monkeypatch.chdir(folder)
    inputs = {"cohort": ["synthetic", 200], "evaluate": ["c.parquet", "c.parquet"]}
    with pytest.raises(mlci.InputError, match=r"-: this command cannot write to standard output"):
        run(command, *map(str, inputs.get(command, ["m.safetensors", "c.parquet"])), "-o", "-")
    with pytest.raises(mlci.InputError, match=r"-: two outputs of this command have this name"):
        run("indices", "c.parquet", "-o", "-", "--audit", "-")
    assert not (folder / "-").exists()


@pytest.mark.parametrize(
    ("words", "ending"),
    [
        (["report", "m.safetensors", "c.parquet", "-o", "out.pdf"], ".html"),
        (["evaluate", "c.parquet", "c.parquet", "-o", "out.xlsx"], ".csv"),
        (["poa", "c.parquet", "-o", "out.xlsx"], ".csv"),
        (["indices", "c.parquet", "-o", "out.csv", "--audit", "out.xlsx"], ".csv"),
        (["recalibrate", "m.safetensors", "c.parquet", "-o", "out.safetensors", "--page", "out.pdf"], ".html"),
    ],
    ids=lambda words: words[0],
)
def test_an_output_has_the_ending_of_its_kind(folder, words, ending, monkeypatch):
    monkeypatch.chdir(folder)
    with pytest.raises(mlci.InputError, match=rf"out\.(pdf|xlsx): the name must end in \{ending}\."):
        run(*words)
    assert not list(folder.glob("out*"))


def test_a_table_of_codes_to_carry_is_not_overwritten(folder):
    carry = folder / "carry.parquet"  # whatever it holds
    carry.write_text("code,days\nI50,365\n")
    before = carry.read_text()
    options = ["--look-back", "365", "--carry", carry, "-o", carry]
    with pytest.raises(mlci.InputError, match="is read by this command and would be overwritten"):
        run("indices", folder / "c.parquet", *options)
    with pytest.raises(mlci.InputError, match="is read by this command and would be overwritten"):
        run("cohort", "file", folder / "c.parquet", *options)
    assert carry.read_text() == before


def test_force_overwrites_a_cohort(folder):
    toy_cohort(100).write(folder / "other.parquet")
    run("indices", folder / "c.parquet", "-o", folder / "other.parquet", "-q", "--force")
    with pytest.raises(mlci.InputError, match="is not a cohort file"):
        mlci.read_cohort(folder / "other.parquet")


def test_an_interrupt_reports_that_the_same_command_continues(monkeypatch, capsys):
    def interrupted(**_):
        raise KeyboardInterrupt

    for command, said in {"fit": "continues where it stopped", "score": "mlci: stopped.\n"}.items():
        monkeypatch.setattr(command_line.cli, "main", interrupted)
        monkeypatch.setattr(sys, "argv", ["mlci", command])
        monkeypatch.setattr(threading, "active_count", lambda: 1)  # or this process would end at once
        with pytest.raises(SystemExit) as ended:
            command_line.main()
        assert ended.value.code == 130
        assert said in capsys.readouterr().err


@pytest.mark.parametrize("width", [80, 120])
def test_figures_are_whole_at_every_width(folder, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    run("indices", folder / "c.parquet", "-o", folder / "s.csv", "-q")
    done = run("evaluate", folder / "s.csv", folder / "c.parquet", "--split", "all", "--resamples", "20")
    assert max(len(line) for line in done.output.splitlines() if str(folder) not in line) <= width
    assert "…" not in done.output
    assert "Distance correlation (95 % intervals" in done.output
    diagnosed = run("diagnose", folder / "s.csv", folder / "c.parquet", "--split", "all")
    assert "…" not in diagnosed.output
    plain = run("evaluate", folder / "s.csv", folder / "c.parquet", "--split", "all", "--resamples", "0")
    assert "interval" not in plain.output


@pytest.mark.parametrize("width", [60, 80, 120])
def test_tables_of_a_benchmark_show_whole_figures(monkeypatch, capsys, width):
    from mlci.base.grids import Grid, GridCell, RowGroup
    from mlci.cli._tables import show_grid

    monkeypatch.setenv("COLUMNS", str(width))
    outcomes = ("mortality", "mortality_30d", "long_stay", "icu_transfer", "non_home_discharge")
    cells = tuple(GridCell(f"{11 * (place + 1)}.00 ± 0.10", place % 3) for place in range(5))
    rows = tuple((name, cells) for name in ("MLCI", "a name of a model that is longer than any column"))
    heads = ("model", *(f"{outcome} (×10²)" for outcome in outcomes))
    show_grid(Grid("t", "Title", heads, (RowGroup("Ours", rows),), ("A note.",)))
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= width
    assert "…" not in said
    for place, outcome in enumerate(outcomes):
        assert outcome in said
        assert said.count(f"{11 * (place + 1)}.00 ± 0.10") == 2


def test_the_source_is_printed_at_once_and_without_a_password(tmp_path, monkeypatch):
    import mlci.cohort

    def built(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(mlci.cohort, "build_cohort", built)
    words = ["cohort", "mimic4", "postgres://ann:secret@db.example:5432/mimic?password=x", "-o", str(tmp_path / "c")]
    done = CliRunner().invoke(cli, words)
    assert done.stderr.startswith("Reading postgres://db.example:5432/mimic (mimic4) ...")
    assert "secret" not in done.output
    assert CliRunner().invoke(cli, [*words, "-q"]).stderr.strip() in ("", "Aborted!")


def test_a_folder_of_outputs_loses_nothing(folder):
    out = folder / "theory"
    out.mkdir()
    run("indices", folder / "c.parquet", "-o", out / "outcomes.csv", "-q")
    before = (out / "outcomes.csv").read_bytes()
    with pytest.raises(mlci.InputError, match=r"outcomes.csv: is read by this command and would be overwritten"):
        run("diagnose", out / "outcomes.csv", folder / "c.parquet", "--split", "all", "-o", out)
    tables = folder / "bench" / "tables"
    tables.mkdir(parents=True)
    (tables / "results.csv").write_bytes(before)
    own = f"own={tables / 'results.csv'}"
    with pytest.raises(mlci.InputError, match=r"results.csv: is read by this command"):
        run("benchmark", folder / "c.parquet", "-o", folder / "bench", "--models", "cci", "--scores", own)
    assert (out / "outcomes.csv").read_bytes() == (tables / "results.csv").read_bytes() == before


@pytest.mark.parametrize("command", [("score", "us2010"), ("indices",)])
def test_the_version_of_codes_is_found_and_printed(tmp_path, command):
    (tmp_path / "a.csv").write_text("visit_id,DX1,DX2\n1,I50.9,N17.9\n2,E11.9,\n")
    (tmp_path / "odd.csv").write_text("visit_id,DX1,DX2\n1,I50.9,428.0\n")
    done = run(*command, tmp_path / "a.csv", "-o", tmp_path / "s.csv", "-q")
    assert f"{tmp_path}/a.csv: the codes were taken for ICD-10" in done.stderr
    assert len(pd.read_csv(tmp_path / "s.csv")) == 2
    with pytest.raises(mlci.InputError, match="cannot be told from them"):
        run(*command, tmp_path / "odd.csv", "-o", tmp_path / "s.csv")


def test_codes_of_a_version_that_the_model_does_not_know_are_hinted_at(folder):
    (folder / "nine.csv").write_text("visit_id,codes\n1,428.0 584.9\n2,518.81\n")
    (folder / "ten.csv").write_text("visit_id,codes\n1,I01.1\n2,A00.0\n")
    hint = "3 of 3 codes were read as ICD-10, but only the table of ICD-9 has them; is the ICD version right?"
    assert hint in run("score", folder / "m.safetensors", folder / "nine.csv", "-o", folder / "s.csv").stderr
    assert hint not in run("score", folder / "m.safetensors", folder / "ten.csv", "-o", folder / "s.csv").stderr


def test_a_table_too_wide_comes_row_by_row(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "30")
    show("T", ["model", "first", "second"], [["a long name of a model", "0.123456", "0.654321"]])
    assert "  first   0.123456\n  second  0.654321" in capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "80")
    show("T", ["model", "first", "second"], [["a long name of a model", "0.123456", "0.654321"]])
    assert "│ 0.123456 │ 0.654321 │" in capsys.readouterr().out


def test_what_a_row_holds_is_said_in_every_block(monkeypatch, capsys):
    from mlci.base.grids import Grid, GridCell, RowGroup
    from mlci.cli._tables import show_grid

    monkeypatch.setenv("COLUMNS", "60")
    kinds = {"nHSIC of the score": "0.1", "best threshold ρ⋆²": "0.2"}
    rows = tuple(("paper", tuple(GridCell(text) for text in (kind, *[value] * 4))) for kind, value in kinds.items())
    show_grid(Grid("t", "Title", ("data", "figure", *(f"a long outcome {k}" for k in range(4))), (RowGroup("", rows),)))
    said = capsys.readouterr().out
    assert said.count("data") > 1
    assert all(said.count(kind) == said.count("data") for kind in kinds)
    assert [said.count(value) for value in kinds.values()] == [4, 4]


@pytest.mark.parametrize("width", [30, 80])
def test_names_are_printed_as_they_are(monkeypatch, capsys, width):
    monkeypatch.setenv("COLUMNS", str(width))
    show(
        "Deaths by [ward]", ["ward", "n", "deaths", "rate"], [["[/A]", "10", "1", "10%"], [":fire: [red]B", "", "", ""]]
    )
    said = capsys.readouterr().out
    assert all(text in said for text in ("Deaths by [ward]", "[/A]", ":fire: [red]B"))


@pytest.mark.parametrize("width", [40, 80])
def test_the_description_of_a_cohort_is_whole_and_its_texts_as_they_are(folder, monkeypatch, capsys, width):
    from mlci.cli.cohort import _print_description
    from mlci.sources import Step

    monkeypatch.setenv("COLUMNS", str(width))
    cohort = mlci.read_cohort(folder / "c.parquet")
    steps = (Step("[/b] at least 18 years", 0, len(cohort)),)
    _print_description(replace(cohort, source="a [/b] hospital", attrition=steps))
    said = capsys.readouterr().out
    assert "…" not in said
    assert "[/b]" in said
    assert max(map(len, said.splitlines())) <= width


@pytest.mark.parametrize("recipe", [*RECIPES])
def test_settings_print_as_toml_and_read_back(recipe, tmp_path):
    import tomllib

    done = run("fit", "--print-config", "--recipe", recipe)
    config = RECIPES[recipe]()
    assert config_from(tomllib.loads(done.output), recipe=recipe, where="x") == config
    assert done.output.strip() == toml_of(config).strip()
    assert "  # " in done.output
    assert "COHORT and -o are needed" in CliRunner().invoke(cli, ["fit"]).output


def without_pandas(*commands: list[str]) -> None:
    """Run commands one after another in a process of their own, and see that none of them imported pandas."""
    program = f"""
import sys
from mlci.cli import main
for words in {commands!r}:
    sys.argv[1:] = words
    try:
        main()
    except SystemExit as end:
        assert not end.code, words
    assert "pandas" not in sys.modules, words
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.slow
def test_files_are_scored_without_pandas(tmp_path):
    """Rows of an admission that stand apart are brought together by DuckDB, which asks for pandas too."""
    source, targets = tmp_path / "rows.csv", [tmp_path / "scores.csv", tmp_path / "points.csv"]
    source.write_text("admission_id,icd_version,code,age\n1,9,4280,81\n2,9,486,20\n1,9,5849,81\n")
    commands = ["score", "us2010"], ["indices", "--index", "deyo,gagne", "--age", "age"]
    without_pandas(*([*words, str(source), "-o", str(to), "--quiet"] for words, to in zip(commands, targets)))
    for target in targets:
        assert [line.split(",")[0] for line in target.read_text().splitlines()[1:]] == ["1", "2"]


@pytest.mark.slow
def test_cohorts_are_built_without_pandas(demos, tmp_path):
    (tmp_path / "visits.csv").write_text("visit_id,DX1,DX2,died\n1,I50.9,,1\n2,E11.9,N17.9,0\n")
    meds = meds_folder.write(demos / "mimic4_demo", tmp_path / "meds")
    sources = {name: demos / f"{name}_demo" for name in ("mimic3", "mimic4")} | {"meds": meds}
    sources |= {"omop": demos / "mimic4_demo_omop", "nhds": demos / "nhds2010" / "sample.txt.bz2"}
    sources |= {"file": tmp_path / "visits.csv"}
    without_pandas(
        *(
            ["cohort", source, str(location), "-o", str(tmp_path / f"{source}.parquet"), "--quiet"]
            for source, location in sources.items()
        )
    )
