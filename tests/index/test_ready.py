import numpy as np
import pandas as pd
import pytest

import mlci
from mlci.base.errors import InputError
from mlci.codes.admissions import Admissions, as_admissions
from mlci.codes.maps import counterparts
from mlci.index._carry import _codes
from mlci.index.model import load_model
from mlci.index.ready import DATA, DOCUMENTS, judged, model_path, ready_made
from mlci.index.tally import Tally


def test_a_ready_made_index_is_loaded_by_its_name(tmp_path):
    assert list(ready_made()) == ["us2010", "us2010-early"]
    index = mlci.load("us2010")
    score = index.score([["I10"], ["I50.9", "N17.9"], ["J96.01", "A41.9", "R65.21"]], icd_version=10)
    assert score[0] < score[1] < score[2]
    index.save(tmp_path / "mine.safetensors")
    assert model_path(tmp_path / "mine.safetensors") == tmp_path / "mine.safetensors"
    with pytest.raises(InputError, match="ready-made indices are us2010, us2010-early"):
        mlci.load("us1910")


def test_a_csv_is_scored_by_a_ready_made_index(mlci_cli, tmp_path):
    rows = "admission_id,icd_version,code\n1,10,I50.9\n1,10,N17.9\n2,9,4280\n2,9,5849\n"
    (tmp_path / "admissions.csv").write_text(rows)
    mlci_cli("score", "us2010", "admissions.csv", "-o", "scores.csv")
    found = pd.read_csv(tmp_path / "scores.csv")
    assert (found["unknown_share"] == 0).all()
    assert abs(found["score"].diff().iloc[1]) < 0.2  # the same admission in either version
    assert mlci_cli("score", "us1910", "admissions.csv", "-o", "scores.csv", code=2).stderr.count("\n") == 1


def test_models_lists_the_ready_made_indices(mlci_cli):
    stdout = mlci_cli("models").stdout
    for name in ready_made():
        assert f"{name}: ICD-9 and ICD-10" in stdout
        assert {row["outcome"] for row in judged(name)} == set(load_model(model_path(name)).outcomes)
    assert "Without codes that reveal an outcome" in stdout
    assert "`mlci models us2010` prints its model card; -o FOLDER also writes weights and report.\n" in stdout
    assert "`mlci models us2010-early` prints its model card.\n" in stdout  # it has no such documents


def test_the_documents_of_a_ready_made_index_come_with_the_package(mlci_cli, tmp_path):
    card = mlci_cli("models", "us2010").stdout
    assert card.startswith("# Model card: us2010")
    for words in (
        "discharges of 2010",
        "public domain",
        "103,330 train",
        "Long stay",
        "judged on the test split",
        "## Limits",
    ):
        assert words in card
    mlci_cli("models", "us2010", "-o", "papers")
    written = {path.name: path for path in (tmp_path / "papers").iterdir()}
    assert set(written) == {"us2010.safetensors", *DOCUMENTS}
    frame = pd.read_csv(written["weights.csv"], dtype={"code": str})
    assert len(frame) == len(load_model(written["us2010.safetensors"]).vocabulary.tokens)
    assert written["model_card.md"].read_text() == card
    assert "<html" in written["report.html"].read_text()[:200]
    assert "-o needs a MODEL" in mlci_cli("models", "-o", "papers", code=2).stderr
    assert sum(path.stat().st_size for path in DATA.iterdir()) < 3e6


def test_the_model_card_of_an_own_index_is_in_its_file(mlci_cli, tmp_path):
    index = mlci.MLCI().fit([["I50.9"], ["E11.9"]] * 40, {"mortality": [1, 0] * 40}, icd_version=10)
    index.save(tmp_path / "own.safetensors")
    card = mlci_cli("models", "own.safetensors").stdout
    assert "# Model card: own" in card
    assert "In-hospital mortality" in card
    assert "its risks are imprecise" in card  # few events
    assert load_model(tmp_path / "own.safetensors").card["about"]["licence"] == "not said"


def test_a_code_newer_than_the_maps_counts_by_the_older_code():
    assert ("8260",) in [way.codes for way in counterparts("S99201A", 10)]  # a fracture of the toe
    assert ("99644",) in [way.codes for way in counterparts("M9701XA", 10)]  # one around a prosthetic joint
    assert [way.codes for way in counterparts("N6311", 10)] == [("61172",)]


def test_codes_without_a_version_are_reported_if_the_index_has_two():
    data = as_admissions([["I50.9", "N17.9"]])
    model = load_model(model_path("us2010"))
    first, *_ = Tally(model).add(data).warnings()
    assert first == "2 of 2 codes have no ICD version, and the model knows ICD-9 and ICD-10: state the version."


def test_the_export_of_a_shipped_index_has_both_icd_versions_and_titles(mlci_cli, tmp_path):
    stderr = mlci_cli("export", "us2010", "-o", "weights.csv").stderr
    assert "rows have at least 10 training admissions" in stderr
    frame = pd.read_csv(tmp_path / "weights.csv", dtype={"code": str})
    assert set(frame["icd_version"]) == {9, 10}
    row = frame[(frame["icd_version"] == 10) & (frame["code"] == "I469")]
    assert row["title"].item() == "Cardiac arrest, cause unspecified"


def test_most_codes_of_icd10_have_a_weight_of_their_own_four_characters(demos):
    model = load_model(model_path("us2010"))
    known = {text for text, version in zip(model.vocabulary.tokens, model.vocabulary.versions) if version == 10}
    found = pd.read_csv(demos / "mimic4_demo" / "hosp" / "diagnoses_icd.csv", dtype=str)
    recorded = found.loc[found["icd_version"] == "10", "icd_code"].str.strip()
    assert np.mean([code[:4] in known for code in recorded]) > 0.98
    titles = pd.read_parquet(model_path("us2010").parents[2] / "codes" / "data" / "titles.parquet")
    billable = titles.loc[(titles["version"] == 10) & titles["billable"], "code"]
    assert np.mean([code[:4] in known for code in billable]) > 0.955
    assert np.mean([code[:3] in known for code in billable]) > 0.96


@pytest.mark.slow
def test_a_carried_code_has_the_weights_of_its_counterparts():
    model = load_model(model_path("us2010"))

    def log_odds(*codes: str, version: int) -> np.ndarray:
        return model.read(Admissions.from_lists([codes], icd_version=version)).log_odds[0]

    np.testing.assert_allclose(log_odds("I469", version=10), log_odds("4275", version=9), atol=0.01)
    carried = _codes(model)
    for code, way in (("A021", ("0031", "99591")), ("E1121", ("25040",)), ("A419", ("0389", "99591"))):
        assert [each.codes for each in counterparts(code, 10)] == [way]  # the codes of a combination add up
        found = carried[code].weights + model.state["intercepts"]
        np.testing.assert_allclose(found, log_odds(*way, version=9), atol=1e-9)
    # alternatives are averaged: hypertension is mostly 401.9, rarely malignant 401.0 or benign 401.1
    ways = [each.codes for each in counterparts("I10", 10)]
    assert ways == [("4019",), ("4010",), ("4011",)]
    each = np.array([log_odds(*way, version=9) for way in ways])
    mean = carried["I10"].weights + model.state["intercepts"]
    assert (each.min(axis=0) <= mean).all()
    assert (mean <= each.max(axis=0)).all()
    np.testing.assert_allclose(mean, each[0], atol=0.05)
    # WHO codes and shortened codes count by the codes that begin with them
    assert not np.allclose(log_odds("I50", version=10), log_odds(version=10))
    np.testing.assert_array_equal(log_odds("I219", version=10), log_odds("I219", "I219", version=10))


def test_admissions_unlike_those_of_training_are_reported():
    model = load_model(model_path("us2010"))
    for codes, word in ((["J9601", "A419", "R6521"], "more severe"), (["O80", "Z370"], "milder")):
        data = as_admissions([codes] * 200, icd_version=10)
        columns = model.columns(data)
        messages = Tally(model).add(data, columns).warnings()
        assert any(f"these are {word}" in sentence for sentence in messages)
    same = as_admissions([["J9601", "A419"]] * 50, icd_version=10)
    columns = model.columns(same)
    assert Tally(model).add(same, columns).warnings() == []  # too few admissions


def test_codes_of_ambiguous_icd_version_are_refused(tmp_path, mlci_cli):
    """The ready-made index has both versions, and a code without a version would be unknown."""
    (tmp_path / "visits.csv").write_text("visit_id,DX1,DX2\n1,I50.9,486\n")
    done = mlci_cli("score", "us2010", "visits.csv", "-o", "scores.csv", code=2)
    assert "--icd-version" in done.stderr
    assert not (tmp_path / "scores.csv").exists()


def test_the_icd_version_is_guessed_from_codes(tmp_path, mlci_cli):
    (tmp_path / "visits.csv").write_text("visit_id,DX1,DX2\n1,I50.9,N17.9\n")
    done = mlci_cli("score", "us2010", "visits.csv", "-o", "scores.csv")
    assert "taken for ICD-10" in done.stderr
    assert (tmp_path / "scores.csv").read_text().splitlines()[1].endswith(",0")  # no code is unknown
