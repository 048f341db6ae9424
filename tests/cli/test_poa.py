"""A model file records which codes it was made for; scoring uses only those, and warns about others."""

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import mlci
from mlci.cli import cli
from mlci.config import RECIPES, config_from


@pytest.fixture(scope="module")
def cohort() -> mlci.Cohort:
    """Severe admissions are coded I50.9; a third of all get sepsis, half of it after admission, and die of it."""
    rng = np.random.default_rng(0)
    many = 600
    severe, septic, later = (rng.random(many) < share for share in (0.3, 0.3, 0.5))
    died = rng.random(many) < 0.03 + 0.2 * severe + 0.4 * septic
    frame = pd.DataFrame({"visit_id": range(many), "died": died.astype(int)})
    frame["DX1"] = np.where(severe, "I50.9", "E11.9")
    frame["DX2"] = np.where(septic, "A41.9", None)
    frame["POA1"], frame["POA2"] = "Y", np.where(later, "N", "Y")
    return mlci.Cohort.from_frame(frame, icd_version=10, outcomes={"mortality": "died"})


@pytest.fixture(scope="module")
def folder(cohort, tmp_path_factory):
    folder = tmp_path_factory.mktemp("poa")
    cohort.write(folder / "c.parquet")
    for poa in ("all", "only"):
        run("fit", folder / "c.parquet", "-o", folder / f"{poa}.safetensors", "-q", "--poa", poa)
    return folder


def run(*words: object):
    return CliRunner().invoke(cli, [str(word) for word in words], catch_exceptions=False)


def test_the_file_records_what_it_was_made_for(folder, cohort):
    only, everything = (mlci.load(folder / f"{poa}.safetensors") for poa in ("only", "all"))
    assert (only.model_.vocabulary.poa, everything.model_.vocabulary.poa) == ("only", "all")
    present = cohort.present()
    np.testing.assert_array_equal(only.score(cohort), only.model_.score(present.admissions()))
    assert (only.score(cohort) != everything.score(cohort)).any()
    again = mlci.MLCI(config={"tokens": {"poa": "only"}}).fit(cohort)
    np.testing.assert_array_equal(again.score(cohort), only.score(cohort))
    # Typed codes have no flags: who types them says that they were present.
    assert only.score([["I50.9"]], icd_version=10)[0] > only.score([["E11.9"]], icd_version=10)[0]


def test_scores_of_a_file_are_those_of_its_cohort(folder, cohort):
    run("score", folder / "only.safetensors", folder / "c.parquet", "-o", folder / "s.parquet", "-q")
    scores = pd.read_parquet(folder / "s.parquet")
    np.testing.assert_allclose(scores["score"], mlci.load(folder / "only.safetensors").score(cohort))


def test_codes_without_flags_are_not_taken_silently(folder, cohort):
    bare = mlci.Cohort(cohort.table.drop_columns("poa"), cohort.source, cohort.outcomes)
    bare.write(folder / "bare.parquet")
    index = mlci.load(folder / "only.safetensors")
    with pytest.raises(mlci.InputError, match="has no flags of what was present on admission"):
        index.score(bare)
    words = ("score", folder / "only.safetensors", folder / "bare.parquet", "-o", folder / "s2.parquet")
    with pytest.raises(mlci.InputError, match=r"bare.parquet: has no flags .*--poa all counts every code"):
        run(*words)
    done = run(*words, "--poa", "all")
    assert "warning: the model was made for codes present on admission alone, not for --poa all" in done.stderr
    with pytest.raises(mlci.InputError, match=r"bare.parquet: has no present-on-admission flags; `mlci cohort` keeps"):
        run("poa", folder / "bare.parquet", "--no-fit")  # which has no option --poa
    rare = mlci.Cohort(cohort.table.slice(0, 40), cohort.source, cohort.outcomes)
    rare.write(folder / "rare.parquet")
    with pytest.raises(
        mlci.InputError, match=r"rare.parquet: no outcome has 10 admissions with it and 10 without it in"
    ):
        run("poa", folder / "rare.parquet", "--no-fit", "--resamples", 0)
    table = cohort.table.append_column("rare", [np.arange(len(cohort)) < 5])
    mlci.Cohort(table, cohort.source, {**cohort.outcomes, "rare": ""}).write(folder / "two.parquet")
    words = ("poa", folder / "two.parquet", "--no-fit", "--resamples", 0, "--index", "charlson")
    assert "rare is left out: fewer than 10 admissions have it" in run(*words).stdout
    cohort.split("train").write(folder / "train.parquet")
    with pytest.raises(mlci.InputError, match=r"train.parquet: the cohort has no admission in the split test"):
        run("poa", folder / "train.parquet", "--no-fit")
    for name, told in (("bare", False), ("c", True)):
        said = run("fit", folder / f"{name}.parquet", "-o", folder / "n.safetensors").stderr
        assert ("--poa only leaves them out" in said) is told
    with pytest.raises(mlci.InputError, match="has no flags of what was present on admission"):
        run("fit", folder / "bare.parquet", "-o", folder / "n.safetensors", "--poa", "only", "-q")
    with pytest.raises(mlci.InputError, match="poa is 'some'; allowed is 'all', 'only'"):
        RECIPES["table"](tokens=type(RECIPES["table"]().tokens)(poa="some"))
    with pytest.raises(mlci.InputError, match="poa"):
        config_from({"tokens": {"poa": "some"}}, recipe="table", where="x")


def test_report_recalibration_and_words_follow_the_model(folder, cohort):
    from mlci.index.citation import methods
    from mlci.index.recalibrate import recalibrate

    model = mlci.load(folder / "only.safetensors").model_
    assert "Only codes present on admission count." in methods(model)
    assert recalibrate(model, cohort).model.vocabulary.poa == "only"
    assert model.of_cohort(cohort).table["codes"].equals(cohort.present().table["codes"])
    again = cohort.present().present()  # what is left was there, and is not refused for it
    assert again.table.equals(cohort.present().table)
    index = mlci.load(folder / "only.safetensors")
    pd.testing.assert_frame_equal(index.importance(again), index.importance(cohort))
    said = run("export", folder / "only.safetensors", "-o", folder / "w.csv").output
    assert "made for codes present on admission" in said


@pytest.mark.slow
@pytest.mark.parametrize("words", [("report", "--resamples", "20"), ("card",)])
def test_pages_of_a_model_of_what_was_present(folder, words):
    page = folder / f"{words[0]}.html"
    done = run(words[0], folder / "only.safetensors", folder / "c.parquet", "-o", page, *words[1:])
    assert done.exit_code == 0, done.output
    assert "only those present on admission" in page.read_text()


def test_a_fit_from_disk_takes_the_same_codes(folder):
    words = ("fit", folder / "c.parquet", "-o", folder / "m.safetensors", "-q", "--poa", "only", "--memory-map")
    run(*words)
    ours, theirs = (mlci.load(folder / name).model_ for name in ("m.safetensors", "only.safetensors"))
    assert ours.vocabulary == theirs.vocabulary
