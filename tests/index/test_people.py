"""Age and sex in the risks; the number of codes and the principal diagnosis as rows of the table."""

import re
from contextlib import nullcontext
from dataclasses import replace
from html import unescape

import httpx
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner

import mlci
from conftest import PATIENCE
from mlci.base.errors import InputError
from mlci.cli import cli
from mlci.cohort import Cohort
from mlci.fitting._people import ROWS, UNKNOWN, rows_of
from mlci.index.export import curves, export
from mlci.index.recalibrate import recalibrate
from mlci.index.scoring import score_file
from mlci.measures.discrimination import auroc
from mlci.showing._words import percent
from mlci.showing.card import _words as say
from mlci.showing.card import make_card
from mlci.showing.recalibrated import render
from mlci.showing.report import build
from mlci.tokens import MANY, NUMBERS
from mlci.web._case import read_case
from webserver import running

FIXED = {"penalty": {"common": 0.02, "own": 0.02, "folds": 2}}
PEOPLE = {**FIXED, "people": {"age": True, "sex": True}}


@pytest.fixture(scope="module")
def cohort() -> Cohort:
    """Return a cohort in which death is more likely with heart failure, age, male sex and more codes."""
    rng = np.random.default_rng(3)
    n = 3000
    age, women = rng.uniform(20, 95, n), rng.random(n) < 0.5
    pool = np.array(["E11.9", "J18.9", "N17.9", "I10", "K52.9", "F32.9", "M54.5", "R07.9", "Z51.1", "D64.9"])
    lists = [[*rng.choice(pool, rng.integers(1, 9), replace=False)] for _ in range(n)]
    failing = rng.random(n) < 0.3
    lists = [["I50.9", *codes] if ill else codes for ill, codes in zip(failing, lists)]
    log_odds = -4 + 1.5 * failing + (age - 55) / 15 - 0.8 * women + 0.2 * np.array([len(codes) for codes in lists])
    died = rng.random(n) < 1 / (1 + np.exp(-log_odds))
    frame = pd.DataFrame(
        {"visit_id": range(n), "codes": lists, "died": died.astype(int), "age": age, "sex": np.where(women, "F", "M")}
    )
    return Cohort.from_frame(frame, icd_version=10, outcomes={"mortality": "died"}, age="age", sex="sex")


@pytest.fixture(scope="module")
def index(cohort):
    return mlci.MLCI(config=PEOPLE).fit(cohort)


def without(cohort: Cohort, *names: str) -> pa.Table:
    return cohort.table.drop_columns(list(names))


def test_ages_and_sexes_are_mapped_to_rows():
    found = rows_of([17.9, 18.0, 95.0, None], ["F", "M", None, "?"], 4)
    assert [[ROWS[row] if row != UNKNOWN else "" for row in rows] for rows in found.tolist()] == [
        ["age 0 to 17", "sex F"],
        ["age 18 to 29", "sex M"],
        ["age 90 and over", ""],
        ["", ""],
    ]


def test_age_and_sex_change_risks_but_not_the_score(cohort, index):
    plain, test = mlci.MLCI(config=FIXED).fit(cohort), cohort.split("test")
    np.testing.assert_array_equal(plain.score(test), index.score(test))
    died = test.labels()[:, 0]
    by_codes, by_all = (auroc(each.risk(test)["mortality"].to_numpy(), died) for each in (plain, index))
    assert by_all > by_codes + 0.1
    rows = dict(zip(ROWS, index.model_.state["people"][2:, 0]))
    assert rows["age 18 to 29"] < rows["age 80 to 89"]
    assert rows["sex F"] < rows["sex M"]


def test_risks_depend_on_codes_only_without_age_and_sex(cohort, index):
    lists = [["I50.9", "I10"]]
    with pytest.warns(
        UserWarning, match="depend on age and sex, but the data have no age or sex: they are computed from codes only"
    ):
        found = index.risk(lists, icd_version=10)
    reading = index.model_.read(index.model_.as_admissions(lists, icd_version=10))
    shift, slope = index.model_.state["calibration"][0]
    np.testing.assert_allclose(found["mortality"], 1 / (1 + np.exp(-(shift + slope * reading.log_odds[:, 0]))))


def test_a_file_is_scored_with_age_and_sex_and_a_missing_column_is_reported(cohort, index, tmp_path):
    index.save(tmp_path / "m.safetensors")
    loaded = mlci.load(tmp_path / "m.safetensors")
    test = cohort.split("test")
    for name, table in {"all": test.table, "no_sex": without(test, "sex")}.items():
        pd.DataFrame(table.select([c for c in table.column_names if c != "split"]).to_pandas()).to_parquet(
            tmp_path / f"{name}.parquet"
        )
    words = ["score", str(tmp_path / "m.safetensors")]
    done = CliRunner().invoke(cli, [*words, str(tmp_path / "all.parquet"), "-o", str(tmp_path / "s.csv")])
    assert done.exit_code == 0
    assert "depend on age" not in done.stderr
    scored = pd.read_csv(tmp_path / "s.csv")
    np.testing.assert_allclose(scored["risk_mortality"], loaded.risk(test)["mortality"], rtol=1e-12)
    done = CliRunner().invoke(cli, [*words, str(tmp_path / "no_sex.parquet"), "-o", str(tmp_path / "t.csv")])
    assert (
        "the model's risks depend on age and sex, but the data have no sex: they are computed without it" in done.stderr
    )
    np.testing.assert_array_equal(pd.read_csv(tmp_path / "t.csv")["score"], scored["score"])


def test_only_the_first_part_of_a_file_shows_how_it_writes_sexes(index, tmp_path):
    frame = pd.DataFrame({"admission_id": range(6), "codes": [["I509"]] * 6, "icd_version": 10, "age": 70})
    for sexes, right in (([2, 1, 0, 1, 0, 1], True), ([1, 0, 1, 0, 2, 2], False)):
        frame.assign(sex=sexes).to_parquet(tmp_path / "visits.parquet", row_group_size=3)  # a part each
        with nullcontext() if right else pytest.raises(InputError, match="row 2: from 0 and 1 alone"):
            score_file(index.model_, tmp_path / "visits.parquet", tmp_path / "scores.csv")


def test_an_explanation_adds_up_to_the_risk(index):
    found = index.explain(["I50.9", "I10"], icd_version=10, age=81, sex="F")
    shift, slope = found.calibration["mortality"]
    by_codes = found.base_log_odds["mortality"] + sum(effect.log_odds["mortality"] for effect in found)
    added = sum(row["mortality"] for row in found.people.values())
    assert list(found.people) == ["age 80 to 89", "sex F"]
    assert found.risk_log_odds["mortality"] == pytest.approx(shift + slope * by_codes + added, abs=1e-9)
    frame = pd.DataFrame({"codes": [["I50.9", "I10"]], "icd_version": [10], "age": [81], "sex": ["F"]})
    risk = index.risk(frame)["mortality"][0]
    assert np.log(risk / (1 - risk)) == pytest.approx(found.risk_log_odds["mortality"], abs=1e-9)
    with pytest.raises(InputError, match="do not depend on age"):
        mlci.load("us2010").explain(["I50.9"], icd_version=10, age=81)
    for age in (-5, 130, float("inf")):
        with pytest.raises(InputError, match="age must be from 0 to 129 years"):
            index.explain(["I50.9"], icd_version=10, age=age)


def test_the_page_takes_age_and_sex(index):
    case = {
        age: read_case(index, "I50.9 I10", version=10, people=rows_of([age], ["M"], 1)).now.risk["mortality"]
        for age in (30.0, 85.0)
    }
    assert case[30.0] < case[85.0]
    messages = read_case(index, "I50.9 I10", version=10).doubts
    assert any("depend on age and sex" in message for message in messages)


def test_the_page_of_a_scored_row_and_that_of_two_cases_know_age_and_sex_or_say_that_they_lack(index):
    content = b"admission_id,codes,age,sex\n1,I50.9 I10,81.5,female\n2,I50.9,,M\n"
    with running(index) as address, httpx.Client(base_url=address, timeout=PATIENCE, follow_redirects=True) as web:
        page = web.post("/files", files={"file": ("a.csv", content)})
        while 'data-waiting="1"' in page.text:
            page = web.get(page.url)
        links = [unescape(link) for link in re.findall(r'href="(/\?codes=[^"]*)"', page.text)]
        assert links == ["/?codes=I509+I10&icd=10&age=81&sex=F", "/?codes=I509&icd=10&sex=M"]
        risks = re.findall(r'<td data-value="[^"]*">([\d.]+%)</td>', page.text)[:1]
        assert re.findall(r'id="risk-1">([\d.]+%)', web.get(links[0]).text) == risks
        assert "the data have no age or sex" in web.get("/compare?a=I50.9&b=I10").text


@pytest.mark.xdist_group("browser")
def test_the_page_answers_while_an_age_is_typed(index, browser):
    from playwright.sync_api import expect

    with running(index) as address:
        page = browser.new_page(base_url=address)
        page.goto("/?codes=I50.9+I10")
        before = page.locator("#risk-1").inner_text()
        page.get_by_label("Age in years").press_sequentially("85")
        expect(page.locator("#risk-1")).not_to_have_text(before)
        page.wait_for_url("**/?codes=I50.9+I10&age=85")
        page.emulate_media(media="print")  # where the form is not
        expect(page.get_by_text("They are for age 85.")).to_be_visible()
        page.close()


def test_a_report_and_a_recalibration_say_that_age_and_sex_are_missing(cohort, index, tmp_path):
    lacking = replace(cohort, table=without(cohort, "age", "sex"))
    said = "risks depend on age and sex, but the data have no age or sex: they are computed from codes only."
    for data in (cohort, lacking):
        page = unescape(build(index, data, command="", resamples=20))
        assert (said in page) == (data is lacking)
        data.write(tmp_path / "cohort.parquet")
        index.save(tmp_path / "model.safetensors")
        words = ["model.safetensors", "cohort.parquet", "-o", "mine.safetensors"]
        words = [str(tmp_path / word) if "." in word else word for word in words]
        done = CliRunner().invoke(cli, ["recalibrate", *words, "--force"])
        assert done.exit_code == 0
        assert (said in done.output) == (data is lacking)


def test_the_page_of_a_recalibration_has_the_figures_of_the_command(cohort, index):
    """Those of risks by age and sex. An outcome that is too rare to be recalibrated was not known before or after."""
    rare = np.zeros(len(cohort), dtype=bool)
    split, rows = cohort.column("split"), np.arange(len(cohort))
    rare[rows[split == "test"][:15]] = True
    rare[rows[split == "train"][:15]] = True
    more = replace(cohort, table=cohort.table.append_column("rare", [rare]), outcomes={**cohort.outcomes, "rare": ""})
    done = recalibrate(index.model_, more)
    page, row = render(index.model_, done, more), done.table.iloc[0]
    for when in ("before", "after"):
        expected, area = percent(row[f"expected_{when}"]), f"{row[f'auroc_{when}']:.3f}"
        assert f"{when.capitalize()}: mean predicted risk {expected}, observed" in page
        assert f"AUROC {area}." in page
    assert page.count("<main>") == 1
    assert page.count("Not shown: the model has no risk of this outcome.") == 1
    assert "did not know this outcome before" not in page


def test_the_api_takes_age_and_sex(index):
    with running(index) as address, httpx.Client(base_url=address, timeout=PATIENCE) as web:

        def post(**more) -> tuple[float, list[str]]:
            body = {"admissions": [["I50.9", "I10"]], "icd_version": 10, **more}
            answer = web.post("/api/score", json=body).raise_for_status().json()
            return answer["admissions"][0]["risk"]["mortality"], answer["warnings"]

        frame = pd.DataFrame({"codes": [["I50.9", "I10"]], "icd_version": [10], "age": [81], "sex": ["F"]})
        assert post(age=[81], sex=["F"]) == (index.risk(frame)["mortality"][0], [])
        assert "the data have no sex: they are computed without it." in post(age=[81])[1][0]
        assert "the data have no age or sex: they are computed from codes only." in post(age=[None])[1][0]
        several = web.post("/api/score", json={"admissions": [["I10"], ["I10"]], "age": [81]})
        assert several.status_code == 422
        assert several.json()["detail"] == "age: 1 values for 2 admissions; pass one value, or null, for each."


def test_the_card_has_points_for_age_and_sex(cohort, index):
    card = make_card(index, cohort, size=6)
    assert card.facts["Risks"].endswith("in addition to the score; they also depend on age and sex, where known")
    assert dict(card.age)[85] > dict(card.age)[45] >= 0
    assert [words for words, _ in say.sexes(card)] == ["Male"]
    test = cohort.split("test")
    by_codes, male = card.code_points(test.admissions()), test.table["sex"].to_numpy() == "M"
    aged = card.age_points(test.table["age"].to_numpy())
    np.testing.assert_array_equal(card.points(test), by_codes + aged + dict(card.sex)["M"] * male)
    assert "Index, own risks" in set(card.aurocs["model"])
    assert "It uses codes, age and sex" in " ".join(say.limits(card))
    without_either = make_card(index, replace(cohort, table=without(cohort, "sex")), size=6, people={"age": False})
    assert (without_either.age, without_either.sex, without_either.without) == ((), (), ("age", "sex"))
    assert "also use age and sex, which have no points here" in " ".join(say.limits(without_either))


def test_recalibration_keeps_the_effects_of_age_and_sex(cohort, index):
    halved = Cohort.from_frame(
        cohort.table.to_pandas().assign(mortality=lambda rows: rows["mortality"] & (rows.index % 2 == 0)),
        icd_version=10,
        outcomes={"mortality": "mortality"},
        age="age",
        sex="sex",
    )
    row = recalibrate(index.model_, halved).table.iloc[0]
    assert abs(row["expected_after"] - row["observed"]) < abs(row["expected_before"] - row["observed"]) / 2
    assert row["auroc_after"] == pytest.approx(row["auroc_before"], abs=1e-6)
    with pytest.raises(InputError, match="updating its weights needs a new fit"):
        recalibrate(index.model_, halved, update="weights")


def test_exports_list_the_rows_and_give_the_risks_by_codes(index, tmp_path):
    messages = export(index.model_, tmp_path / "weights.csv")
    assert any("depend on codes only" in message for message in messages)
    listed = curves(index.model_).set_index("part")
    assert {*ROWS} <= {*listed.index}
    assert listed.loc["sex F", "y"] == pytest.approx(index.model_.state["people"][2 + ROWS.index("sex F"), 0])


def test_missing_columns_and_memory_maps_are_refused(cohort, tmp_path):
    lacking = Cohort(without(cohort, "sex"), cohort.source, cohort.outcomes, cohort.attrition, cohort.notes)
    with pytest.raises(InputError, match=r"people\.sex is set, but the data have no column sex"):
        mlci.MLCI(config=PEOPLE).fit(lacking)
    cohort.write(tmp_path / "c.parquet")
    with pytest.raises(InputError, match="leave memory_map out"):
        mlci.MLCI(config=PEOPLE).fit(tmp_path / "c.parquet", memory_map=tmp_path / "tokens")


@pytest.mark.parametrize("option", ["number_of_codes", "primary"])
def test_a_row_for_the_number_of_codes_or_the_first_one(cohort, option, tmp_path):
    index = mlci.MLCI(config={**FIXED, "tokens": {option: True}}).fit(cohort)
    index.save(tmp_path / "m.safetensors")
    index, vocabulary = mlci.load(tmp_path / "m.safetensors"), index.model_.vocabulary
    assert getattr(vocabulary, option)
    lists = [["I50.9"], ["I50.9", "I10"], ["I10", "I50.9"], ["I50.9", "I10", "E11.9", "J18.9", "N17.9"], []]
    scores = index.score(lists, icd_version=10)
    assert (scores[1] == scores[2]) == (option == "number_of_codes")  # the principal diagnosis comes first
    np.testing.assert_array_equal(scores, [index.score([codes], icd_version=10)[0] for codes in lists])
    for codes, score in zip(lists[:4], scores):
        found = index.explain(codes, icd_version=10)
        assert found.base_score + sum(effect.effect for effect in found) == pytest.approx(score, abs=1e-9)
    with pytest.raises(InputError, match="they cannot be exported"):
        export(index.model_, tmp_path / "w.csv")
    if option == "number_of_codes":
        rows = dict(zip(vocabulary.tokens, index.model_.state["weights"][2:, 0]))
        weights = [rows[text] for text in sorted(rows) if text.startswith(MANY)]
        assert len(weights) <= len(NUMBERS)
        assert weights[0] < weights[-1]  # death is more likely with more codes
