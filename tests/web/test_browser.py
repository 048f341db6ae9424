"""A user of the pages: type, search, try a what-if, upload a file; by mouse, by keyboard and without JavaScript."""

import io
import re
import time
import warnings
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import pandas as pd
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from conftest import PATIENCE
from mlci.index.estimator import MLCI
from toys import code_lists
from webserver import running, toy_index

pytestmark = pytest.mark.xdist_group("browser")
VIOLATIONS = {"resultTypes": ["violations"]}  # of what passes, axe need not list every element
CASE = "/?codes=I50.9+N17.9+I10+QQ1,+stroke&off=N179&plus=A41.9&plus=sepsis&q=heart+failure"


@pytest.fixture(scope="module")
def index():
    return toy_index()


@pytest.fixture(scope="module")
def address(index):
    with running(index) as address:
        yield address


@pytest.fixture(scope="module")
def window(browser, address):
    """A window for one test after the other: a new one costs Chromium more than most tests do."""
    context = browser.new_context(base_url=address)
    yield context.new_page()
    context.close()


@pytest.fixture
def tab(window):
    """The window as if it were new."""
    yield window
    window.goto("about:blank")
    window.set_viewport_size({"width": 1280, "height": 720})
    window.emulate_media(media="null", color_scheme="null")
    window.context.clear_cookies()


@pytest.fixture
def page(tab, address):
    """A page on which what the policy blocked, a fault of the script or an outside request is a failure."""
    faults: list[str] = []
    told = {
        "console": lambda message: faults.append(message.text) if message.type in ("error", "warning") else None,
        "pageerror": lambda error: faults.append(str(error)),
        "request": lambda request: faults.append(request.url) if not request.url.startswith(address) else None,
    }
    for event, hear in told.items():
        tab.on(event, hear)
    yield tab
    for event, hear in told.items():
        tab.remove_listener(event, hear)
    assert not faults


def shown(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


def wait_for_address(page: Page, **wanted: list[str]) -> None:
    """Wait for an address: the script changes the page first, then the address."""
    page.wait_for_url(lambda url: parse_qs(urlsplit(url).query) == wanted)


def test_typed_codes_are_answered_at_once_and_the_address_can_be_sent(page, index, browser, address):
    page.goto("/")
    expect(page.get_by_text("No codes yet")).to_be_visible()
    page.get_by_label("Diagnosis codes of one admission").press_sequentially("i50.9; N179")
    score = index.score([["I509", "N179"]])[0]
    expect(page.locator("#score")).to_have_text(shown(score))
    expect(page.get_by_role("status")).to_contain_text(shown(score))  # what a screen reader says
    without = index.explain(["I509", "N179"])[1].score_without
    expect(page.get_by_text(f"the score from {shown(without)} to {shown(score)}")).to_be_visible()
    row = index.table([["I509", "N179"]]).iloc[0]
    expect(page.locator("#percentile")).to_have_text(f"{row['percentile']:.0f}")
    expect(page.locator("figure.risk", has_text="Long stay")).to_contain_text(
        re.compile(rf"{100 * row['risk_long stay']:.1f}% \d+\.\d to \d+\.\d%")
    )
    wait_for_address(page, codes=["i50.9; N179"])
    colleague = browser.new_page(base_url=address)
    colleague.goto(page.url)
    expect(colleague.locator("#score")).to_have_text(shown(score))
    colleague.close()


def test_search_by_words_with_the_keyboard_alone(page, index):
    page.goto("/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("#main$"))
    page.keyboard.press("Tab")
    expect(page.get_by_label("Diagnosis codes of one admission")).to_be_focused()
    page.keyboard.type("N17.9")
    page.keyboard.press("Tab")
    expect(page.get_by_label("Find a code")).to_be_focused()
    page.keyboard.type("heart failure")
    expect(page.locator("#found li").first).to_contain_text("I50.9 Heart failure")
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("button", name="Add I50.9 Heart failure, unspecified")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#score")).to_have_text(shown(index.score([["N179", "I509"]])[0]))
    expect(page.get_by_label("Diagnosis codes of one admission")).to_have_value("N17.9 I50.9")
    expect(page.get_by_label("Find a code")).to_have_value("")
    wait_for_address(page, codes=["N17.9 I50.9"])
    leave_out = page.get_by_label("leave out N17.9")
    leave_out.focus()
    page.keyboard.press("Space")
    expect(page.locator("#score")).to_contain_text(shown(index.score([["I509"]])[0]))
    expect(leave_out).to_be_focused()  # the reader stays where they were
    expect(leave_out).to_be_checked()


def test_what_if_removes_and_adds_codes_and_shows_the_change(page, index):
    page.goto("/?codes=I50.9+N17.9")
    before, without, with_more = index.score([["I509", "N179"], ["I509"], ["I509", "A419"]])
    page.get_by_label("leave out N17.9").click()
    banner = page.locator("#whatif")
    expect(banner).to_contain_text("What if without N17.9")
    expect(banner).to_contain_text(f"from {shown(before)} to {shown(without)}")
    page.get_by_label("What if this code were added?").fill("a41.9")
    page.get_by_role("button", name="Try").click()
    expect(banner).to_contain_text("without N17.9, with A41.9")
    expect(banner).to_contain_text(f"from {shown(before)} to {shown(with_more)}")
    wait_for_address(page, codes=["I50.9 N17.9"], off=["N179"], plus=["a41.9"])
    page.get_by_label("added A41.9").click()  # uncheck() would look at a box that is gone with its row
    expect(banner).not_to_contain_text("A41.9")
    page.get_by_role("link", name="Keep these codes").click()
    expect(banner).to_have_count(0)
    expect(page.locator("#score")).to_have_text(shown(without))
    expect(page.get_by_label("Diagnosis codes of one admission")).to_have_value("I509")


HELD = """() => { const ask = window.fetch; window.fetch = async (...what) => {
    const answer = await ask(...what); await new Promise((go) => { window.goOn = go; }); return answer; }; }"""


def held(page: Page) -> None:
    """Wait until an answer is held."""
    deadline = time.monotonic() + PATIENCE
    while not page.evaluate("() => Boolean(window.goOn)"):  # the policy of the page forbids Playwright's own waiting
        assert time.monotonic() < deadline
        page.wait_for_timeout(10)


def test_what_is_typed_while_the_page_renews_stays_and_counts_once_it_is_tried(page, index):
    page.goto("/?codes=I50.9+N17.9")
    page.evaluate(HELD)  # an answer comes when the test says so
    box = page.get_by_label("What if this code were added?")
    box.fill("a4")
    page.get_by_label("leave out N17.9").click()
    held(page)
    box.focus()
    box.press("End")
    page.keyboard.type("19")
    page.keyboard.press("ArrowLeft")
    page.evaluate("() => window.goOn()")
    expect(page.locator("#whatif")).to_contain_text("What if without N17.9:")  # half a code was not tried
    page.keyboard.type(".")
    expect(box).to_have_value("a41.9")  # where it was being typed
    page.evaluate("() => { window.goOn = null; }")
    page.get_by_role("button", name="Try").click()
    held(page)
    page.evaluate("() => window.goOn()")
    expect(page.locator("#whatif")).to_contain_text("without N17.9, with A41.9")
    expect(page.locator("#score")).to_contain_text(shown(index.score([["I509", "A419"]])[0]))
    expect(box).to_have_value("")


def test_codes_that_are_typed_while_one_is_added_stay(page):
    page.goto("/?codes=I50.9&q=I10")
    page.evaluate(HELD)
    page.get_by_role("button", name="Add I10 ").click()
    held(page)
    page.get_by_label("Diagnosis codes of one admission").evaluate("box => { box.value += ' E11.9'; }")
    page.evaluate("() => window.goOn()")
    expect(page.locator("#h-score")).to_be_visible()
    expect(page.locator(".effects")).to_contain_text("I10")
    expect(page.get_by_label("Diagnosis codes of one admission")).to_have_value("I50.9 E11.9")


def test_what_is_not_understood_is_offered_right_and_never_counts(page, index):
    page.goto("/?codes=I50.9+N17.9")
    both = shown(index.score([["I509", "N179"]])[0])
    page.get_by_label("What if this code were added?").fill("sepsis")
    page.get_by_role("button", name="Try").click()
    expect(page.locator("#unknown")).to_contain_text("sepsis: words, not a code")
    expect(page.locator("#score")).to_have_text(both)
    page.get_by_role("link", name="A41.9 Sepsis, unspecified organism").click()
    expect(page.locator("#whatif")).to_contain_text("What if with A41.9")
    expect(page.locator("#score")).to_have_text(shown(index.score([["I509", "N179", "A419"]])[0]))
    expect(page.locator("#charlson")).to_contain_text("congestive heart failure")
    codes = page.get_by_label("Diagnosis codes of one admission")
    codes.fill("428.0, 584.9")
    expect(page.get_by_role("alert")).to_contain_text("Too few codes are understood")
    expect(page.locator("#score, #verdict, figure.risk")).to_have_count(0)
    page.get_by_role("link", name="Replace all 2 ICD-9 codes by the first suggestion").click()
    expect(codes).to_have_value("I50.9, N17.9")
    expect(page.locator("#score")).to_contain_text(shown(index.score([["I509", "N179", "A419"]])[0]))


@pytest.mark.parametrize(("typed", "code"), [("chf", "I50.9"), ("heart attack", "I21.9"), ("sepsys", "A41.9")])
def test_search_by_everyday_words(page, typed, code):
    page.goto("/")
    page.get_by_label("Find a code").press_sequentially(typed)
    expect(page.locator("#found li").first).to_contain_text(code)


def test_hints_follow_the_icd_version(browser, index):
    several, tokens = MLCI(), replace(index.model_.vocabulary, versions=(0,) * len(index.model_.vocabulary.tokens))
    several.model_ = replace(index.model_, icd_versions=(9, 10), vocabulary=tokens)
    with running(several) as address:
        page = browser.new_page(base_url=address)
        page.goto("/")
        page.get_by_label("ICD version of the codes").select_option("9")
        expect(page.locator("#codes-hint")).to_contain_text("ICD-9, typed or pasted")
        expect(page.locator("#q-hint")).to_contain_text("428")
        page.close()


def test_a_text_too_long_for_an_address_stays_and_is_refused_in_place(tab):
    tab.goto("/?codes=I10")
    codes = tab.get_by_label("Diagnosis codes of one admission")
    refusals = []  # Chromium reports them as errors on the console
    tab.on("response", lambda response: refusals.append(response.status) if response.status >= 400 else None)
    codes.fill("I10 " * 3_000)
    expect(tab.get_by_role("alert")).to_contain_text("There are too many codes: 3,000")
    codes.fill("I10 " * 200_000)
    expect(tab.get_by_role("alert")).to_have_text("The text is too long. To score many admissions, upload a file.")
    expect(tab.locator("#score")).to_have_count(0)
    assert len(codes.input_value()) == 800_000
    assert refusals == [422, 400]


def test_two_cases_side_by_side(page, index):
    page.goto("/?codes=I50.9+N17.9")
    page.get_by_role("link", name="Compare with another case").click()
    page.get_by_label("Diagnosis codes of case B").fill("I10")
    page.get_by_role("button", name="Compare", exact=True).click()
    rows = index.table([["I509", "N179"], ["I10"]])
    cells = page.get_by_role("row", name=re.compile("Raw score")).get_by_role("cell")
    expect(cells).to_have_text([shown(score) for score in rows["score"]])
    page.get_by_role("link", name="Case B").click()
    expect(page.locator("#score")).to_have_text(shown(rows["score"][1]))


def test_a_print_has_model_date_and_codes_and_no_controls(page):
    page.goto("/?codes=I50.9+N17.9")
    page.emulate_media(media="print")
    expect(page.locator(".printed")).to_contain_text(
        re.compile(r"Model .*synthetic hospital.* Printed \d{4}-\d\d-\d\d")
    )
    expect(page.locator(".effects")).to_contain_text("N17.9")
    for hidden in ("#codes", "#show", "nav", "#plus", "#compare", "h1"):
        expect(page.locator(hidden)).not_to_be_visible()
    assert "severity. mlci" in " ".join(page.locator("footer").inner_text().split())  # no dot of a link that is gone


def test_a_print_of_scores_names_the_file(page):
    page.goto("/files")
    file = {"name": "a.csv", "mimeType": "", "buffer": b"admission_id,codes\n1,I509\n"}
    page.get_by_label("Drop a file here").set_input_files(file)
    page.get_by_role("button", name="Score the file").click()
    page.emulate_media(media="print")
    expect(page.get_by_role("heading", name="Scores of a.csv")).to_be_visible()


def test_a_file_is_scored_sorted_and_fetched(page, index):
    lists = code_lists(80, seed=2)
    frame = pd.DataFrame({"admission_id": range(80), "codes": [" ".join(codes) for codes in lists]})
    page.goto("/files")
    content = frame.to_csv(index=False).encode()
    page.get_by_label("Drop a file here").set_input_files({"name": "a.csv", "mimeType": "text/csv", "buffer": content})
    page.get_by_role("button", name="Score the file").click()
    expect(page.get_by_text("80 admissions read")).to_be_visible()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = index.table(lists, strict=True)
    share = wanted["high_severity"].sum() / wanted["score"].notna().sum()
    expect(page.locator("#high")).to_contain_text(f"{100 * share:.1f}%")
    expect(page.get_by_role("img", name=re.compile("Histogram of the"))).to_be_visible()
    page.wait_for_load_state()  # before its script, a button sorts nothing
    page.get_by_role("button", name="Score", exact=True).click()
    expect(page.get_by_role("columnheader", name="Score", exact=True)).to_have_attribute("aria-sort", "descending")
    first = [int(cell) for cell in page.locator("tbody td:first-child").all_inner_texts()]
    order = wanted.sort_values("score", ascending=False, kind="stable")
    assert first == order.index.tolist()
    with page.context.expect_page() as opened:
        page.get_by_role("link", name=str(first[0]), exact=True).click()
    expect(opened.value.locator("#score")).to_have_text(shown(order["score"].iloc[0]))
    opened.value.close()
    for _ in range(2):  # it stays while the page is open
        with page.expect_download() as download:
            page.get_by_role("link", name="Download scores.csv").click()
        assert pd.read_csv(download.value.path())["score"].equals(wanted["score"])
    with page.expect_request(re.compile(r"/leave\?load=\d+$")):
        page.evaluate("dispatchEvent(new Event('pagehide'))")


def test_progress_of_a_large_file_and_a_bad_one(page):
    page.goto("/files")
    stream = io.BytesIO()
    lists = code_lists(1000, seed=5) * 100
    pd.DataFrame({"admission_id": range(len(lists)), "codes": lists}).to_parquet(stream)
    large = {"name": "large.parquet", "mimeType": "", "buffer": stream.getvalue()}
    page.get_by_label("Drop a file here").set_input_files(large)
    page.get_by_role("button", name="Score the file").click()
    expect(page.get_by_role("status")).to_contain_text(re.compile("(admissions so far|admissions read)"))
    expect(page.get_by_text("100,000 admissions read")).to_be_visible()
    page.get_by_role("button", name="Delete now").click()
    expect(page).to_have_url("/files")
    page.get_by_label("Drop a file here").set_input_files({"name": "b.csv", "mimeType": "", "buffer": b"who\n1\n"})
    page.get_by_role("button", name="Score the file").click()
    expect(page.get_by_role("alert")).to_contain_text("b.csv: lacks the column codes")


def test_an_answer_that_is_lost_is_asked_for_again(tab):
    waiting = '<script src="/static/page.js" defer></script><div id="job" data-waiting="1">waiting</div>'
    answers = iter(
        [
            lambda route: route.fulfill(body=waiting, content_type="text/html"),
            lambda route: route.abort(),
            lambda route: route.fulfill(body='<div id="job">scored</div>', content_type="text/html"),
        ]
    )
    tab.route("**/files/some", lambda route: next(answers)(route))
    tab.goto("/files/some")
    expect(tab.locator("#job")).to_have_text("scored")
    tab.unroute_all()


def test_it_works_without_script(browser, address, index):
    context = browser.new_context(base_url=address, java_script_enabled=False)
    page = context.new_page()
    page.goto("/")
    page.get_by_label("Diagnosis codes of one admission").fill("I50.9 N17.9")
    page.get_by_label("Find a code").fill("sepsis")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#score")).to_have_text(shown(index.score([["I509", "N179"]])[0]))
    page.get_by_role("button", name="Add A41.9").click()
    expect(page.locator("#score")).to_have_text(shown(index.score([["I509", "N179", "A419"]])[0]))
    page.get_by_label("leave out I50.9").check()
    page.get_by_role("button", name="Show").click()
    expect(page.locator("#whatif")).to_contain_text("without I50.9")
    page.goto("/files")
    file = {"name": "a.csv", "mimeType": "", "buffer": b"admission_id,codes\n1,I509\n"}
    page.get_by_label("Drop a file here").set_input_files(file)
    page.get_by_role("button", name="Score the file").click()
    expect(page.get_by_text("1 admission read")).to_be_visible()
    context.close()


def test_a_server_that_is_gone_is_reported(tab, index):
    page = tab
    with running(index) as address:
        page.goto(f"{address}/?codes=I10")
    page.get_by_label("Diagnosis codes of one admission").press_sequentially(" ")
    expect(page.get_by_text("The server does not respond")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_axe_finds_no_barrier(tab, scheme):
    page, axe = tab, Axe()
    page.emulate_media(color_scheme=scheme)
    for path in (
        "/",
        CASE,
        "/?codes=I10&q=zzzz",
        "/?codes=" + "I10+" * 501,
        "/?codes=428.0",
        "/compare?a=I10&b=I50.9+zz",
        "/files",
        "/model",
        "/nothing",
    ):
        page.goto(path)
        found = axe.run(page, options=VIOLATIONS)
        assert not found.response["violations"], (path, found.generate_report())
    page.goto("/files")
    page.get_by_label("Drop a file here").set_input_files(
        {"name": "a.csv", "mimeType": "", "buffer": b"admission_id,codes\n1,I509\n"}
    )
    page.get_by_role("button", name="Score the file").click()
    expect(page.get_by_role("link", name="Download scores.csv")).to_be_visible()
    page.wait_for_load_state()
    found = axe.run(page, options=VIOLATIONS)
    assert not found.response["violations"], found.generate_report()


@pytest.mark.parametrize("width", [320, 375, 768])
def test_no_page_is_wider_than_the_screen(page, width):
    page.set_viewport_size({"width": width, "height": 640})
    for path in ("/", CASE, "/?codes=" + "A" * 200, "/?codes=428.0", "/compare?a=I10&b=I50.9", "/files", "/model"):
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
