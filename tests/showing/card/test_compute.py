"""The card: its points, its texts, and its files."""

import datetime
import html
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from mlci.base.errors import InputError
from mlci.codes.admissions import Admissions
from mlci.codes.outcome import tells
from mlci.cohort import Cohort
from mlci.showing.card import Card, make_card, write
from mlci.showing.card import _words as say
from toys import random_index, toy_cohort

DAY = datetime.date(2026, 1, 31)


@pytest.fixture(scope="module")
def cohort() -> Cohort:
    """Every fifth admission has a cardiac arrest, and its deaths follow from that and from age."""
    plain = toy_cohort(1500)
    rng, n = np.random.default_rng(0), 1500
    codes = plain.table["codes"].to_pylist()
    arrest = rng.random(n) < 0.2
    age = rng.integers(18, 95, n)
    died = rng.random(n) < np.where(arrest, 0.7, 0.02 + 0.3 * (age >= 75))
    codes = [[*each, "I469"] if one else each for each, one in zip(codes, arrest)]
    table = plain.table
    table = table.set_column(table.column_names.index("codes"), "codes", pa.array(codes, pa.list_(pa.string())))
    table = table.set_column(table.column_names.index("mortality"), "mortality", pa.array(died))
    return replace(plain, table=table.append_column("age", pa.array(age)))


@pytest.fixture(scope="module")
def card(cohort) -> Card:
    return make_card(random_index(cohort, table=True), cohort, size=12, made=DAY)


def test_the_card_follows_the_index_and_judges_itself_elsewhere(card, cohort):
    assert 1 <= len(card.lines) <= 12
    assert all(line.points >= 1 and line.admissions >= 50 for line in card.lines)
    assert card.correlation > 0.3
    assert card.aurocs["model"].unique().tolist() == ["Card", "Index", "Elixhauser", "Charlson", "Age"]
    test = cohort.split("test")
    assert sum(band.admissions for band in card.bands) == len(test) == card.judged
    assert card.cutoff in [band.low for band in card.bands]
    died = test.labels("mortality")[:, 0]
    above = card.points(test) >= card.cutoff
    assert card.contrasts[0].above.rate == pytest.approx(died[above].mean())
    for line, code in card.example:
        assert code.replace(".", "").startswith(line.category)


def test_points_are_added_once_for_each_group(card):
    one, two = card.lines[0], card.lines[-1]
    admission = Admissions.from_lists([[f"{one.category}0", f"{one.category}1", two.category, "ZZZ"]], icd_version=10)
    assert card.code_points(admission).tolist() == [one.points + two.points]


def test_codes_that_reveal_an_outcome_have_points_only_on_request(card, cohort):
    assert not any(tells(line.category, line.version) for line in card.lines)
    assert card.code_points(Admissions.from_lists([["I469"]], icd_version=10)).tolist() == [0]
    asked = make_card(random_index(cohort), cohort, size=12, made=DAY, outcome_codes=True)
    assert "I46" in [line.category for line in asked.lines]
    assert "have no points" in say.about(card)
    assert "have no points" not in say.about(asked)


def test_points_for_age(cohort, card):
    aged = make_card(random_index(cohort), cohort, size=12, made=DAY, people={"age": True})
    assert [start for start, _ in aged.age] == [45, 65, 75, 85]
    worth = [points for _, points in aged.age]
    assert worth == sorted(worth)
    assert worth[2] > worth[1]  # where deaths begin
    assert aged.age_points(np.array([20, 80, np.nan])).tolist() == [0, worth[2], 0]
    test = cohort.split("test")
    years = test.table["age"].to_numpy().astype(float)
    assert (aged.points(test) == aged.code_points(test.admissions()) + aged.age_points(years)).all()
    assert "Age 75 to 84" in dict(say.ages(aged))
    band, points = say.ages(aged)[len(say.ages(aged)) // 2]
    total = points + sum(line.points for line, _ in aged.example)
    assert say.example(aged).endswith(f" + {band}: {points} = {total} points")
    assert "Age" not in say.example(card)
    assert say.ages(card) == []
    assert "has a code, and those of age; each group counts once" in say.rule(aged)
    assert "has a code; each group counts once" in say.rule(card)
    assert "It uses codes and age, but no" in " ".join(say.limits(aged))
    without = replace(aged, age=tuple((start, 0) for start, _ in aged.age), sex=(("F", 0), ("M", 0)))
    assert "It uses only codes" in " ".join(say.limits(without))
    with pytest.raises(InputError, match="has no age"):
        make_card(random_index(cohort), replace(cohort, table=cohort.table.drop_columns(["age"])), people={"age": True})


def test_the_card_names_its_origin(card, tmp_path):
    assert "Made on 2026-01-31 for ICD-10 codes" in say.about(card)
    assert "1,050 admissions of the cohort “a made-up hospital”" in say.about(card)
    head, *rows = say.meaning(card)
    assert head == ["Points", "Admissions", "In-hospital mortality", "Long stay"]
    assert rows[-1][0] == f"all from {card.cutoff}"
    assert all(re.fullmatch(r"few|[\d.]+% \([\d.]+ to [\d.]+\)", cell) for row in rows for cell in row[2:])
    assert "synthetic" in " ".join(say.limits(replace(card, source="synthetic")))


def test_no_rate_is_that_of_a_few_admissions(card):
    few, one = replace(card.contrasts[0].above, positives=3, n=9), card.contrasts[0]
    told = say.meaning(replace(card, contrasts=(replace(one, above=few), *card.contrasts[1:])))
    assert told[-1][2] == "few"
    assert told[-1][3] != "few"


def test_no_band_of_points_is_beyond_reach(cohort):
    for people in ({}, {"age": True}):
        small = make_card(random_index(cohort), cohort, size=1, people=people)
        most = small.lines[0].points + max((points for _, points in small.age), default=0)
        assert small.bands[-1].low <= small.points(cohort).max() == most
        assert sum(band.admissions for band in small.bands) == small.judged


def test_a_card_is_not_evaluated_where_its_points_were_fitted(cohort):
    with pytest.raises(InputError, match="fitted on the split train; evaluate it on another"):
        make_card(random_index(cohort), cohort, split="train")
    assert make_card(random_index(cohort), cohort, size=5, split="valid").judged == len(cohort.split("valid"))


def test_files(card, tmp_path):
    from mlci.showing.card._pdf import SIZES, _draw

    write(card, tmp_path / "card.csv")
    assert pd.read_csv(tmp_path / "card.csv")["points"].sum() == sum(line.points for line in card.lines)
    write(card, tmp_path / "card.html")
    shown = html.unescape((tmp_path / "card.html").read_text())
    named = ["Data", "Dates", "Admissions", "Recipe", "Risks", "High severity", "Licence of the data"]
    assert list(card.facts) == named
    assert all(f"<strong>{name}</strong>: {words}" in shown for name, words in card.facts.items())
    write(card, tmp_path / "card.pdf")
    page = (tmp_path / "card.pdf").read_bytes()
    assert page.startswith(b"%PDF")
    assert page.count(b"/Type /Page\n") == 1
    long = replace(card, lines=card.lines * 10)
    write(long, tmp_path / "long.pdf")
    assert (tmp_path / "long.pdf").read_bytes().count(b"/Type /Page\n") == 2
    assert len(long.lines) < 200
    longer = _draw(replace(card, lines=(card.lines * 200)[:600]), SIZES[-1], sides=2)
    longer.set_compression(False)
    heights = [float(height) for height in re.findall(rb"BT [\d.]+ ([-\d.]+) Td", bytes(longer.output()))]
    assert len(heights) > 3 * 600
    assert min(heights) > 0  # points from the lower edge of the paper: nothing is below it
    with pytest.raises(InputError, match=r"end in .html, .pdf or .csv"):
        write(card, tmp_path / "card.docx")


def test_titles_stand_whole(card, tmp_path):
    """On the page and on paper, however long."""
    words = "A title so long that no line of a card can hold it " * 3
    write(replace(card, lines=(replace(card.lines[0], title=words.strip()), *card.lines[1:])), tmp_path / "card.html")
    assert words.strip() in (tmp_path / "card.html").read_text()
    from mlci.showing.card._pdf import _draw

    card = replace(card, facts={"Licence of the data": "of this hospital"})
    page = _draw(replace(card, lines=(replace(card.lines[0], title=words.strip()),)), 9.0, sides=1)
    page.set_compression(False)
    text = b"".join(re.findall(rb"\((.*?)\) Tj", bytes(page.output()))).decode("latin-1")
    assert words.replace(" ", "") in text.replace(" ", "")
    assert "Licence of the data: of this hospital" in text  # of the index behind the points


def test_a_page_without_outside_requests(card, tmp_path):
    write(replace(card, name="<b>Mine</b>"), tmp_path / "card.html")
    text = (tmp_path / "card.html").read_text()
    assert text.count('type="checkbox"') == len(card.lines)
    assert "http:" not in text
    assert "https:" not in text
    assert "<b>Mine" not in text
    assert "default-src 'none'" in text


def test_the_page_adds_up(card, tmp_path, browser):
    aged = replace(card, age=((45, 1), (65, 2), (75, 4), (85, 5)))
    write(aged, tmp_path / "card.html")
    said, page = [], browser.new_page()
    page.on("console", lambda message: said.append(message.text))
    for width, columns in ((1100, 2), (390, 1)):  # one column on a phone
        page.set_viewport_size({"width": width, "height": 900})
        page.goto((tmp_path / "card.html").as_uri())
        assert page.inner_text("#total") == "0 points"
        assert page.get_by_role("main").count() == 1
        boxes = page.locator("#groups input")
        wanted = 0
        for place in range(len(card.lines)):
            boxes.nth(place).check()
            wanted += card.lines[place].points
        page.select_option("#age", "4")
        assert page.inner_text("#total") == f"{wanted + 4} points"
        assert page.inner_text("#verdict") == "high severity"
        assert page.locator("#meaning tr.here td").first.inner_text() == say.meaning(card)[-3][0]
        page.get_by_role("button", name="Start again").click()
        page.wait_for_function("document.querySelector('#total').textContent === '0 points'")
        assert page.inner_text("#verdict") == f"below the cutoff of {card.cutoff}"
        lefts = {box["x"] for box in (boxes.nth(k).bounding_box() for k in range(len(card.lines)))}
        assert len(lefts) == columns
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.emulate_media(media="print")  # where nothing is ticked, no row stands out
    look = "[...document.querySelectorAll('#meaning tbody tr')].map((row) => getComputedStyle(row).{})"
    for style in ("backgroundColor", "fontWeight"):
        assert len(set(page.evaluate(look.format(style)))) == 1
    assert said == []


def test_points_of_age_are_printed(cohort, card, tmp_path, browser):
    """On paper nobody can open a list."""
    aged = make_card(random_index(cohort), cohort, size=12, made=DAY, people={"age": True})
    write(aged, tmp_path / "card.html")
    page = browser.new_page()
    page.goto((tmp_path / "card.html").as_uri())
    told = say.age_and_sex(aged)
    assert f"Age 75 to 84: {dict(say.ages(aged))['Age 75 to 84']} points" in told
    assert page.locator("#age").is_visible()
    assert not page.get_by_text(told, exact=True).is_visible()
    page.emulate_media(media="print")
    assert not page.locator("#age").is_visible()
    assert page.get_by_text(told, exact=True).is_visible()
    write(card, tmp_path / "plain.html")
    assert 'class="printed"' not in (tmp_path / "plain.html").read_text()


def test_long_names_fit_a_phone(card, tmp_path, browser):
    name = "unplanned_readmission_within_ninety_days_of_discharge_to_any_hospital_of_the_region"
    rules = {"mortality": card.outcomes["mortality"], name: f"column {name} says yes"}
    write(replace(card, outcomes=rules), tmp_path / "card.html")
    page = browser.new_page(viewport={"width": 390, "height": 900})
    page.goto((tmp_path / "card.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_command(cohort, tmp_path, mlci_cli):
    random_index(cohort).model_.save(tmp_path / "m.safetensors")
    cohort.write(tmp_path / "c.parquet")
    done = mlci_cli("card", "m.safetensors", "c.parquet", "-o", "card.csv", "--groups", 5, "--age", "--name", "Ours")
    assert "Charlson" in done.stdout
    assert "high severity from" in done.stderr
    points = pd.read_csv(tmp_path / "card.csv")
    assert (points["version"] == 10).sum() <= 5
    aged = points[points["version"].isna()]
    assert {*aged["category"]} == {"age"}
    assert "Age 75 to 84" in set(aged["title"])
    assert (
        "there is no split 'future'"
        in mlci_cli("card", "m.safetensors", "c.parquet", "-o", "card.csv", "--split", "future", code=2).stderr
    )
