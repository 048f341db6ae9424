"""Every list, flag, weight and rule compared with pycomorb; where the two differ, a source decides."""

import warnings
from dataclasses import dataclass
from functools import cache
from itertools import chain

import numpy as np
import pandas as pd
import polars as pl
import pytest

import mlci
from mlci.base.errors import InputError
from mlci.codes import icd
from mlci.codes.family import chosen, family, score_columns
from mlci.codes.rules import rules
from oracles import ahrq_flags, pccc_flags

CHARLSON = {"charlson": "charlson"}
POPULAR = {"vw": "van_walraven", "swiss": "swiss", "thompson": "thompson_30", "thompson29": "thompson_29"}


@dataclass(frozen=True)
class Peer:
    """How pycomorb names an index of ours, and its weights."""

    score: str
    implementation: str | None
    weights: dict[str, str | None]


PEERS = {
    "charlson": Peer("charlson", "quan", CHARLSON | {"quan": "quan", "schneeweiss": "schneeweiss"}),
    "deyo": Peer("charlson", "deyo", CHARLSON | {"schneeweiss": "schneeweiss"}),
    "romano": Peer("charlson", "romano", CHARLSON | {"schneeweiss": "schneeweiss"}),
    "rcs": Peer("charlson", "rcs", {"score": "rcs"}),
    "shmi": Peer("charlson", "uk_shmi", {"score": "uk_shmi"}),
    "swedish": Peer("charlson", "sweden", CHARLSON),
    "danish": Peer("charlson", "thygesen", CHARLSON),
    "australian": Peer("charlson", "australia", CHARLSON),
    "elixhauser": Peer("elixhauser", "quan", POPULAR),
    "elixhauser1998": Peer("elixhauser", "elixhauser", POPULAR),
    "ahrq9": Peer("elixhauser", "ahrq_icd9", {"mortality": "ahrq"}),
    "ahrq": Peer("elixhauser", "ahrq_icd10", {"mortality": "ahrq"}),
    "gagne": Peer("combined", None, {"score": None}),
    "hfrs": Peer("hfrs", None, {"score": None}),
}
# Categories of AHRQ's that pycomorb words otherwise.
REWORDED = {
    "renal failure, moderate": "ahrq_renlfl_mod",
    "renal failure, severe": "ahrq_renlfl_sev",
    "peptic ulcer disease": "ahrq_ulcer_peptic",
    "chronic blood loss anemia (iron deficiency)": "ahrq_bldloss",
    "liver disease, moderate to severe": "ahrq_liver_sev",
}
# Codes that pycomorb 1.20261001.1 sorts otherwise, by ICD version, index and beginning. Quan 2005, table 1, has Deyo's
# codes (490-505, 506.4; 140-172, 174-195.8, 200-208; 456.0-456.21), Gagne's list Romano's (491-494; 140-171, 174-195,
# 200-208): pycomorb wrote 200 as 2OO, and left 174, 456, 492, 493, 500 and 506.4 out. AHRQ lists whole codes alone,
# which pycomorb shortens to a heading where all codes of one are listed. Quan's ranges name 195 and 497 to 499.
OTHERWISE = {
    (9, "charlson"): ("497", "498", "499", "195"),
    (9, "deyo"): ("174", "200", "500", "5064", "4560", "4561", "45620", "45621"),
    (9, "romano"): ("174", "200", "492", "493"),
    (10, "ahrq"): ("M45", "C18", "C67", "C71", "J67", "Z683"),
}
LISTS = [(name, version) for name in PEERS for version in family()[name].versions]


def test_every_index_has_a_peer_or_a_program():
    assert {*PEERS, "pccc"} == set(family())


def differs(name: str, version: int, code: str) -> bool:
    """Whether pycomorb is known to sort a code otherwise; AHRQ's headings differ, the codes under them do not."""
    listed = OTHERWISE.get((version, name), ())
    return code in listed if name == "ahrq" else code.startswith(listed) if listed else False


@cache
def pool(name: str, version: int) -> list[str]:
    """The codes of both ICD tables and every listed entry."""
    real = icd.icd_table(version)["code"].to_pylist()
    listed = [code for item in family()[name].categories for code in item.codes[version]]
    return [code for code in dict.fromkeys([*real, *listed]) if not differs(name, version, code)]


def theirs(name: str, version: int, rows: pl.DataFrame, weights: str | None) -> pl.DataFrame:
    """pycomorb's score (its last column) and categories, in the order of admissions."""
    from pycomorb import comorbidity

    peer = PEERS[name]
    own = {"implementation": peer.implementation, "weights": weights} if peer.implementation else {}
    options = {"icd_version": f"icd{version}", "return_categories": True, **own}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # polars outdates what pycomorb calls
        return comorbidity(peer.score, rows.with_columns(age=pl.lit(30), year=pl.lit(2026)), **options).sort("id")


def check(name: str, version: int, admissions: list[list[str]]) -> int:
    """Compare every flag and every weight; how many flags were set."""
    index, own = family()[name], rules((name,))
    lists = [["Z00" if version == 10 else "V700", *codes] for codes in admissions]  # a principal diagnosis of nothing
    names = [f"{index.short}_{weights}" for weights in PEERS[name].weights]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # entries of lists that are no codes
        ours = mlci.indices(lists, name, icd_version=version, weights=[*PEERS[name].weights], flags=True)
    ids = np.repeat(np.arange(len(lists)), [len(codes) for codes in lists])
    rows = pl.DataFrame({"id": ids, "code": list(chain(*lists))})
    for column, weights in zip(names, PEERS[name].weights.values()):
        found = theirs(name, version, rows, weights)
        score = "Charlson Comorbidity Index" if "Charlson Comorbidity Index" in found.columns else found.columns[-1]
        np.testing.assert_array_equal(ours[column].to_numpy(), found[score].to_numpy())
    flags = [item.column for item in index.categories if item.words]
    words = [column for column in found.columns if column not in ("id", "Age", "Age Score")][: len(flags)]
    if name == "ahrq":
        said = {item.words.lower(): item.column for item in own.categories} | REWORDED
        flags = [said[word.lower()] for word in words]
    assert len(flags) == len(words) == len(own.flags(np.zeros((own.words, 1), dtype=np.uint64)))
    for flag, word in zip(flags, words):
        np.testing.assert_array_equal(ours[flag].to_numpy(), found[word].to_numpy() > 0, err_msg=f"{flag}, {word}")
    return int(ours[flags].to_numpy().sum())


def drawn(name: str, version: int, many: int, seed: int) -> list[list[str]]:
    """Admissions of up to nine codes: half of them real, half listed."""
    rng, real = np.random.default_rng(seed), pool(name, version)
    listed = [code for item in family()[name].categories for code in item.codes[version]]
    kinds = (real, [code for code in listed if not differs(name, version, code)])
    return [
        [kind[place] for kind in kinds for place in rng.integers(0, len(kind), rng.integers(0, 5))] for _ in range(many)
    ]


@pytest.mark.parametrize(("name", "version"), LISTS)
def test_random_admissions_agree_with_pycomorb(name, version):
    assert check(name, version, drawn(name, version, 150, seed=version)) > 100


@pytest.mark.slow
@pytest.mark.parametrize(("name", "version"), LISTS)
def test_every_code_of_the_tables_agrees_with_pycomorb(name, version):
    assert check(name, version, [[code] for code in pool(name, version)]) > 100


@pytest.mark.slow
@pytest.mark.parametrize(("name", "version"), LISTS)
def test_many_random_admissions_agree_with_pycomorb(name, version):
    assert check(name, version, drawn(name, version, 10_000, seed=1)) > 10_000


@pytest.mark.parametrize(("version", "name"), list(OTHERWISE))
def test_what_pycomorb_sorts_otherwise_is_still_otherwise(version, name):
    """Each known difference is one today: a list that was mended must leave the table."""
    index = family()[name]
    codes = list(OTHERWISE[version, name])
    rows = pl.DataFrame({"id": np.arange(len(codes)), "code": codes})
    found = theirs(name, version, rows, next(iter(PEERS[name].weights.values())))
    flags = found.select([column for column in found.columns if column not in ("id", "Age")])
    set_there = flags.to_numpy()[:, : len([item for item in index.categories if item.words])].sum(axis=1) > 0
    set_here = rules((name,)).code_bits(codes, version).any(axis=0)
    assert (set_here != set_there).all()


def test_points_for_age_agree_with_pycomorb():
    from pycomorb import comorbidity

    ages = [0.0, 49.9, 50.0, 59.0, 60.0, 69.5, 70.0, 79.0, 80.0, 104.0, np.nan]
    lists = [["I509", "E112"]] * len(ages)
    ours = mlci.indices(lists, "charlson,danish,rcs,shmi,gagne", age=ages)
    assert [name for name in ours if name.endswith("_age")] == ["cci_charlson_age", "danish_charlson_age"]
    rows = pl.DataFrame(
        {"id": np.repeat(np.arange(len(ages)), 2), "code": list(chain(*lists)), "age": np.repeat(ages, 2)}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = comorbidity("charlson", rows, icd_version="icd10", implementation="quan").sort("id")
    assert ours.cci_charlson_age.tolist() == found["Charlson Age-Comorbidity Score"].to_list()
    assert (ours.cci_charlson == 3).all()


# AHRQ's rules, after the SAS programs of v2026.1 (CMR_Mapping_Program, CMR_Index_Program)


def ahrq(codes: list[str], flags: list[str] | None = None, **options) -> dict[str, int]:
    """The flags that are set, and both indices."""
    frame = pd.DataFrame({"admission_id": 1, "code": codes} | ({"poa": flags} if flags else {}))
    row = mlci.indices(frame, "ahrq", flags=True, poa="ahrq" if flags else "all", **options).iloc[0].to_dict()
    scores = {name: int(row.pop(f"ahrq_{name}")) for name in ("mortality", "readmission")}
    return scores | {name[5:]: 1 for name, value in row.items() if value is True or value is np.True_}


def test_random_admissions_with_flags_are_what_the_program_makes_of_them():
    categories = [item for item in family()["ahrq"].categories if not item.only_late]
    label = {"ahrq_cbvd": "CBVD_POA", "ahrq_cbvd_sequela": "CBVD_SQLA"}
    of_code: dict[str, set[str]] = {}
    for item in categories:
        for code in item.codes[10]:
            of_code.setdefault(code, set()).add(label.get(item.column, item.column[5:].upper()))
    exempt = frozenset().union(*(item.exempt for item in categories))
    labels = sorted(set().union(*of_code.values()))
    listed = [[code for code, own in of_code.items() if name in own] for name in labels]
    rng = np.random.default_rng(4)
    lists = [["Z00", *(str(rng.choice(listed[k])) for k in rng.integers(0, len(listed), 8))] for _ in range(200)]
    flags = [["YNUW"[k] for k in rng.integers(0, 4, len(codes))] for codes in lists]
    frame = pl.DataFrame({"admission_id": np.arange(200), "codes": lists, "poa": flags})
    found = mlci.indices(frame, "ahrq", flags=True, poa="ahrq").to_dicts()
    weights = {item.column[5:].upper(): item.weights for item in categories}
    for codes, said, row in zip(lists, flags, found):
        wanted = ahrq_flags(codes, said, of_code, exempt)
        assert {name[5:].upper() for name, value in row.items() if value is True} == wanted
        for name in ("mortality", "readmission"):
            assert row[f"ahrq_{name}"] == sum(weights[own][name] for own in wanted)


def test_both_indices_of_ahrq_add_up():
    assert ahrq(["Z00", "I509", "C7800", "C3410", "E119"]) == {
        "mortality": 14 + 22 + 0,
        "readmission": 7 + 11 + 0,
        "hf": 1,
        "cancer_mets": 1,
        "diab_uncx": 1,
    }


def test_the_principal_diagnosis_is_no_comorbidity_for_ahrq():
    assert ahrq(["I509", "E119"]) == {"mortality": 0, "readmission": 0, "diab_uncx": 1}
    assert ahrq(["I509", "E119"], principal="count")["hf"] == 1
    assert "diab_uncx" in ahrq(["E119", "E119"])  # recorded again as a secondary diagnosis
    assert mlci.charlson([["I509", "E119"]]).cci_charlson.tolist() == [2]
    assert mlci.indices([["I509", "E119"]], "charlson", principal="skip").cci_charlson.tolist() == [1]


def test_ahrq_needs_some_to_be_present_on_admission_and_exempts_codes():
    flags = lambda code, poa: set(ahrq(["Z00", code], ["Y", poa])) - {"mortality", "readmission"}  # noqa: E731
    assert flags("I509", "Y") == flags("I509", "W") == {"hf"}
    assert flags("I509", "N") == flags("I509", "U") == set()
    assert flags("E119", "N") == {"diab_uncx"}  # chronic: when it arose does not matter
    assert flags("I130", "N") == {"htn_cx"}  # heart failure as well, had it been there
    assert flags("Z992", "N") == {"renlfl_sev"}  # exempt
    assert flags("I69351", "N") == {"cbvd", "paralysis"}  # a sequela is exempt
    assert flags("I69910", "N") == set()  # this one is not


def test_a_stroke_in_hospital_hides_the_sequela_of_an_older_one():
    assert "cbvd" in ahrq(["Z00", "I6930", "I639"], ["Y", "1", "Y"])
    assert "cbvd" not in ahrq(["Z00", "I6930", "I639"], ["Y", "1", "N"])
    assert "cbvd" in ahrq(["Z00", "I6930"], ["Y", "1"])
    assert ahrq(["Z00", "I6930"])["mortality"] == 5
    assert mlci.indices([["Z00", "I6930"]], "ahrq", weights="count").ahrq_count.tolist() == [1]


def test_severer_forms_drop_milder_ones_in_two_steps():
    assert set(ahrq(["Z00", "D0500", "C3410"])) == {"mortality", "readmission", "cancer_solid"}
    assert set(ahrq(["Z00", "D0500", "C7800"])) == {"mortality", "readmission", "cancer_mets"}
    assert {"cancer_nsitu", "cancer_solid"} < set(ahrq(["Z00", "D0500", "C3410"], hierarchy=False))


@pytest.mark.parametrize("version", [9, 10])
def test_paediatric_conditions_are_what_their_macro_makes_of_them(version):
    of_code: dict[str, set[str]] = {}
    technical: dict[str, set[str]] = {}
    for item in family()["pccc"].categories:
        name = item.column[5:].upper().removesuffix("_TECH")
        for code in item.codes[version]:
            (technical if item.part_of else of_code).setdefault(code, set()).add(name)
    kinds, rng = (list(of_code), list(technical), ["J189" if version == 10 else "486"]), np.random.default_rng(version)
    lists = [[kinds[k][rng.integers(len(kinds[k]))] for k in rng.integers(0, 3, 3)] for _ in range(300)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = mlci.indices(lists, "pccc", icd_version=version, flags=True)
    for codes, row in zip(lists, found.to_dict("records")):
        wanted = pccc_flags(codes, of_code, technical)
        assert {name[5:].upper() for name, value in row.items() if value is True} == wanted
        assert row["pccc_score"] == len(wanted - {"TRANSPLANT", "TECH"})


def test_a_device_alone_is_no_complex_chronic_condition():
    """As in medicalcoder, an insulin pump counts for a child who has a condition, such as cerebral palsy."""
    found = mlci.indices([["Z46.81"], ["Z46.81", "G80.0"], ["T86.10"]], "pccc", flags=True)
    assert found.pccc_score.tolist() == [0, 2, 1]
    assert found.pccc_metabolic.tolist() == found.pccc_tech.tolist() == [False, True, False]
    assert found.pccc_transplant.tolist() == [False, False, True]


def test_scores_of_the_nhs_indicator_are_never_negative():
    assert mlci.indices([["E102"], ["E102", "I50"]], "shmi").shmi_score.tolist() == [0, 12]


# The tables


@pytest.mark.parametrize("name", family())
def test_tables_are_whole(name):
    index = family()[name]
    columns = [item.column for item in index.categories]
    assert len(set(columns)) == len(columns)
    assert index.versions
    assert set(index.default) <= set(index.weights)
    for item in index.categories:
        assert set(item.weights) == set(index.weights)
        assert {*item.yields_to, *item.part_of, *item.beside} <= set(columns)
        assert item.exempt <= {code for codes in item.codes.values() for code in codes}
        for codes in item.codes.values():
            assert len(set(codes)) == len(codes)
            assert all(code.isalnum() and code.isascii() and code == code.upper() for code in codes)


def test_columns_of_two_indices_never_meet():
    shorts = [index.short for index in family().values()]
    assert len(set(shorts)) == len(shorts)
    assert not any("_" in short for short in shorts)


def test_all_in_one_pass_is_what_each_gives_alone():
    lists = drawn("elixhauser", 10, 60, seed=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        together = mlci.indices(lists, list(family()), flags=True)
        for name in family():
            alone = mlci.indices(lists, name, flags=True)
            pd.testing.assert_frame_equal(together[alone.columns], alone)


def test_an_index_without_a_list_for_the_version_is_reported():
    said = r"^deyo has no list for ICD-10: admissions with such codes get no score \(codes: 2\)"
    for kind in (pd.DataFrame, pl.DataFrame):
        frame = kind({"admission_id": [1, 2, 3], "codes": [["I509", "E119"], ["4280"], []], "icd_version": [10, 9, 9]})
        with pytest.warns(UserWarning, match=said):
            found = mlci.indices(frame, "deyo,gagne", age=[80, 80, 80])
        assert str(found["deyo_charlson"].to_list()) == "[nan, 1.0, 0.0]"
        assert str(found["deyo_charlson_age"].to_list()) == "[nan, 5.0, 4.0]"
        assert found["gagne_score"].to_list() == [2, 2, 0]


def test_ages_that_are_not_known_are_counted_and_wrong_ones_refused(mlci_cli, tmp_path):
    text = "admission_id,codes,age\n1,I50.9,71\n2,I50.9,\n\n3,I10,49\n"
    (tmp_path / "a.csv").write_text(text)
    words = ("indices", "a.csv", "-o", "s.csv", "--index", "charlson", "--icd-version", "10", "--age", "age")
    assert "column age: is empty for 1 of 3 admissions; no point is added." in mlci_cli(*words).stderr
    rows = [line.split(",") for line in (tmp_path / "s.csv").read_text().splitlines()[1:]]
    assert rows == [["1", "1", "4"], ["2", "1", "1"], ["3", "0", "0"]]
    (tmp_path / "a.csv").write_text(text.replace("49", "-49"))
    said = mlci_cli(*words, code=2).stderr
    assert "a.csv: column age, row 5: a number is not an age from 0 to 129; empty the cells" in said


def test_a_file_has_empty_scores_where_a_list_cannot_read_the_codes(mlci_cli, tmp_path):
    text = "admission_id,icd_version,codes\n1,10,Z00 F05\n2,9,4280\n3,9,\n"
    (tmp_path / "a.csv").write_text(text)
    done = mlci_cli("indices", "a.csv", "-o", "s.csv", "--index", "hfrs,ahrq", "--quiet")
    assert done.stderr.count("has no list for ICD-9") == 2
    rows = [line.split(",") for line in (tmp_path / "s.csv").read_text().splitlines()[1:]]
    assert rows == [["1", "3.2", "22", "2"], ["2", "", "", ""], ["3", "0", "0", "0"]]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: chosen("gagne,charleson"), "index 'charleson' is not known; allowed are charlson, elixhauser, deyo"),
        (lambda: chosen([]), "no index is named"),
        (lambda: score_columns(["vw"], ["gagne"]), "weights 'vw' are not known; allowed are score, count"),
        (lambda: mlci.indices([["I509"]], age=[1, 2]), "age: has 2 values for 1 admissions"),
        (lambda: mlci.indices([["I509"]], age=["old"]), "age: a value is not a number"),
        (lambda: mlci.indices([["I509"]] * 2, age=[70, 999]), "age: a number is not an age from 0 to 129"),
        (
            lambda: mlci.indices([["I509"]], principal="first"),
            "principal 'first' is not known; allowed are listed, count",
        ),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(InputError, match=words):
        call()


# The command


def test_command_scores_any_choice_and_points_for_age(mlci_cli, tmp_path):
    visits = pd.DataFrame(
        {
            "admission_id": [1, 2],
            "codes": ["Z000;I509;F05;N39.0", "Z000;E119"],
            "age": [83, None],
            "icd_version": 10,
        }
    )
    visits.to_csv(tmp_path / "visits.csv", index=False)
    said = mlci_cli(
        "indices", "visits.csv", "-o", "s.csv", "--index", "ahrq,gagne", "--index", "hfrs,charlson", "--age", "age"
    )
    found = pd.read_csv(tmp_path / "s.csv").set_index("admission_id")
    assert found.to_dict("list") == {
        "ahrq_mortality": [14 + 22, 0],
        "ahrq_readmission": [7 + 2, 0],
        "gagne_score": [4, 0],
        "hfrs_score": [6.4, 0.0],
        "cci_charlson": [1, 1],
        "cci_charlson_age": [5, 1],
    }
    assert "cci_eci" not in said.stdout
    assert (
        "lacks the column years of ages"
        in mlci_cli("indices", "visits.csv", "-o", "t.csv", "--age", "years", code=2).stderr
    )


def test_the_list_shows_name_edition_versions_and_source(mlci_cli):
    said = " ".join(mlci_cli("indices", "--list").stdout.split())
    for index in family().values():
        assert f" {index.name} " in said
        assert index.source.split(",")[0].split()[0] in said
    assert "v2026.1" in said
