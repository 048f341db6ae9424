"""The report, built once from an index of random weights, read as a file and in a browser."""

import re
import shlex
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import mlci
from mlci.base.names import listing
from mlci.judging import theory
from mlci.showing._pages import Album
from mlci.showing._words import percent, rounded
from mlci.showing.report import build
from mlci.showing.report._compute import compute
from mlci.showing.report._draw import of_part
from mlci.showing.report._render import render
from toys import random_index

pytestmark = pytest.mark.xdist_group("report")  # one worker makes the page
GOLDEN = Path(__file__).parent / "golden" / "report.txt"
COMMAND = "mlci report model.safetensors cohort.parquet -o report.html"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    cohort = mlci.build_cohort("synthetic", 4_000, seed=3)
    index = random_index(cohort)
    with pytest.MonkeyPatch.context() as patch:  # neither is needed, and their imports take longer than a small report
        slow = [name for name in sys.modules if name.split(".")[0] in ("sklearn", "scipy")]
        for name in {"sklearn", "scipy", *slow}:
            patch.setitem(sys.modules, name, None)
        page = build(index.model_, cohort, command=COMMAND, resamples=50)
    cohort.write(folder / "cohort.parquet")
    index.save(folder / "model.safetensors")
    (folder / "report.html").write_text(page)
    return folder, index, cohort, page


class Skeleton(HTMLParser):
    """Headings, captions, table heads, figures and links, with numbers blotted out."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.inside: list[str] = []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if tag == "svg":
            self.lines.append("figure: " + blot(attributes["aria-label"]))
        if tag == "section":
            self.lines.append(f"section {attributes['id']}")
        if tag in ("h1", "h2", "h3", "caption", "th", "title"):
            self.inside.append("")

    def handle_data(self, data):
        if self.inside:
            self.inside[-1] += data

    def handle_endtag(self, tag):
        if tag in ("h1", "h2", "h3", "caption", "th", "title") and self.inside:
            self.lines.append(f"{tag}: {blot(self.inside.pop())}")


def blot(text: str) -> str:
    text = re.sub(r"most: .*", "most: …", " ".join(text.split()))
    return re.sub(r"[-+−]?\d[\d.,]*%?", "#", text)


def test_structure_is_the_golden_one(made):
    """To renew after a change that is meant: delete the file, run this test once, read the diff."""
    skeleton = Skeleton()
    skeleton.feed(made[3])
    found = "\n".join(skeleton.lines) + "\n"
    if not GOLDEN.exists():
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(found)
        pytest.fail(f"{GOLDEN} was written; read it and run again")
    assert found == GOLDEN.read_text()


def test_page_is_whole_small_and_closed(made):
    page = made[3]
    assert len(page.encode()) < 3_000_000
    assert "<script" not in page
    assert not re.search(r"(?:src|href)\s*=\s*[\"'](?!#)", page)
    assert not re.search(r"url\((?!#)|@import|https?://(?!www\.w3\.org/)", page)
    assert "default-src 'none'" in page
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert COMMAND in page
    assert f"mlci {mlci.__version__}" in page
    said = re.sub(r"<[^>]+>", " ", re.sub(r"<style.*?</style>", " ", page, flags=re.DOTALL))
    assert "nan" not in said.lower().split()
    assert not re.search(r"\s-[\d.]", said)  # a minus is written −


def test_sentences_carry_the_numbers(made):
    _, index, cohort, page = made
    test = cohort.split("test")
    score, cut = index.score(test), index.model_.cutoff.score
    died = test.labels("mortality")[:, 0]
    above, below = died[score >= cut].mean(), died[score < cut].mean()
    text = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    share = percent((score >= cut).mean())
    assert f"Of the {share} of admissions at or above {rounded(cut)}, {percent(above)} died" in text
    assert f"Below it, the rates are {percent(below)}, " in text
    weights = [index.model_.card["weights"][name] for name in cohort.outcomes]
    found = theory.diagnose(score, test.labels(), list(cohort.outcomes), weights=weights)
    assert f"share one direction that accounts for {percent(found.energy)} of their joint variation" in text
    assert f"{len(test):,} test admissions" in text
    assert "Dates none: computed Admissions" in text  # the model card
    assert "Licence of the data free of rights of others" in text


def test_no_identifier_of_an_admission_or_patient_is_on_the_page(made):
    _, _, cohort, page = made
    text = re.sub(r"<svg.*?</svg>", " ", page, flags=re.DOTALL)
    words = set(re.findall(r"[\w.-]+", text))
    for column in ("admission_id", "subject_id"):
        long = {str(value) for value in cohort.column(column) if len(str(value)) >= 6}
        assert not long & words


def test_codes_of_few_admissions_are_not_listed(made):
    page = made[3]
    table = page[page.index('id="codes"') : page.index('id="limits"')]
    counts = [int(n.replace(",", "")) for n in re.findall(r"% <small>([\d,]+)</small>", table)]
    assert len(counts) > 5
    assert min(counts) >= 10


def test_an_odd_cohort_is_flagged_and_escaped(made, empty_figures):
    _, index, cohort, _ = made
    odd = cohort.split("valid")
    odd = replace(odd.where(odd.labels("mortality")[:, 0] != 1), source="<img src=x onerror=alert(1)>", notes=("<b>",))
    page = build(index, odd, command="mlci report '<script>'", resamples=20)
    assert "This cohort has no test split" in page
    assert "not from held-out admissions" in page
    assert "In-hospital mortality is not included here: it is never present in" in page
    assert "<img" not in page
    assert "<script" not in page
    assert "&lt;b&gt;" in page


def test_a_weighted_report_shows_the_rates_of_the_population(made, empty_figures):
    _, index, cohort, _ = made
    few = cohort.where(np.arange(len(cohort)) % 3 == 0)
    weight = np.where(few.labels("long_stay")[:, 0] == 1, 3.0, 1.0)
    ward = np.arange(len(few)) // 5
    table = few.table.append_column("weight", pa.array(weight)).append_column("ward", pa.array(ward))
    table = table.set_column(table.column_names.index("subject_id"), "subject_id", table["admission_id"])
    few, drawn = replace(few, table=table), {"weights": "weight", "cluster": "ward", "strata": None}
    album = Album()
    shown = lambda part: [album.draw(sketch) for sketch in of_part(part, index.model_.cutoff.score)]  # noqa: E731
    findings = compute(index.model_, few, drawn=drawn, resamples=20, shown=shown)
    page = render(findings, album.pictures, command="mlci report", study={})
    assert "These admissions are a sample of a population: weighted by weight: " in page
    assert "of patients" not in page
    assert "patients</" not in page
    test = few.split("test")
    long, counted = test.labels("long_stay")[:, 0], test.column("weight")
    [outcome] = [found for found in findings.judgement.outcomes if found.name == "long_stay"]
    assert outcome.rate == pytest.approx(np.average(long, weights=counted))
    assert outcome.rate > long.mean() + 0.1
    rates = outcome.groups
    assert np.average(rates.risk, weights=rates.mass) == pytest.approx(outcome.rate)


def test_percent_reads_as_people_write_it():
    said = [percent(x) for x in (0, 0.00001, 0.0012, 0.00996, 0.027, 0.1994, 0.1996, 0.41, 0.9999, 1)]
    assert said == ["0%", "under 0.01%", "0.12%", "1.0%", "2.7%", "19.9%", "20%", "41%", "100%", "100%"]
    assert percent(np.nan) == "unknown"
    assert [listing(words) for words in (["a"], ["a", "b"], ["a", "b", "c"])] == ["a", "a and b", "a, b and c"]


def test_command_line(made, mlci_cli, tmp_path):
    folder = made[0]
    words = ["report", folder, folder / "cohort.parquet", "-o", tmp_path / "r.html", "--resamples", 50]
    assert "open it in a browser" in mlci_cli(*words).stdout
    page = (tmp_path / "r.html").read_text()
    assert page.replace(shlex.join(["mlci", *map(str, words)]), COMMAND) == made[3]  # same inputs, same bytes
    for words, said in (
        ([tmp_path, folder / "cohort.parquet", "-o", tmp_path / "x.html"], "holds 0 model files"),
        ([folder / "cohort.parquet"] * 2 + ["-o", tmp_path / "x.html"], "is not a whole model file"),
        ([folder, folder / "cohort.parquet", "-o", tmp_path / "no" / "x.html"], "does not exist"),
    ):
        assert said in mlci_cli("report", *words, code=2).stderr
    assert not (tmp_path / "x.html").exists()


@pytest.fixture(scope="module")
def window(browser):
    """A window for one test after the other."""
    context = browser.new_context()
    yield context.new_page()
    context.close()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (320, "dark")])
def test_in_a_browser(made, window, width, scheme):
    asked, said, page = [], [], window
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.goto((made[0] / "report.html").as_uri())
    assert asked == [(made[0] / "report.html").as_uri()]
    assert said == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # Whatever is wider than the page must lie in a box that scrolls by itself.
    outside = page.evaluate(
        """[...document.body.querySelectorAll('*')].filter(e => !e.closest('.scroll') && !e.closest('svg')
           && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"""
    )
    assert outside == []
    pictures = page.evaluate(
        """[...document.querySelectorAll('img, svg')].map(e =>
           [e.getAttribute('role'), (e.getAttribute('aria-label') || e.alt || '').length, e.clientWidth])"""
    )
    assert len(pictures) > 15
    assert all(role == "img" and words > 20 and 200 < wide <= width for role, words, wide in pictures)
    colours = page.evaluate("(s => [s.color, s.backgroundColor])(getComputedStyle(document.body))")
    ink, paper = (sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in colours)
    assert (ink < paper) == (scheme == "light")
    drawn = page.evaluate("getComputedStyle(document.querySelector('svg text')).fill")
    assert drawn == colours[0]  # a figure's text takes the page's ink
    page.emulate_media(media="print", color_scheme=scheme)
    paper = page.evaluate("getComputedStyle(document.querySelector('.flags')).backgroundColor")
    page.emulate_media(media="null")
    assert sum(map(int, re.findall(r"\d+", paper)[:3])) > 600  # on paper nothing is dark


def test_the_energy_kernel_can_be_resampled():
    """How the report gets its figures: alignment by the energy kernel is the squared dCorr, interval and all."""
    from mlci.judging.evaluate import evaluate

    rng = np.random.default_rng(0)
    score = rng.normal(size=300)
    outcome = (score + rng.normal(size=300) > 1).astype(float)
    table = evaluate({"a": score}, {"b": outcome}, kernel="energy", resamples=30).set_index("metric")
    np.testing.assert_allclose(
        table.loc["nhsic", ["value", "low", "high"]].astype(float),
        table.loc["dcorr", ["value", "low", "high"]].astype(float) ** 2,
        rtol=0.15,
    )
