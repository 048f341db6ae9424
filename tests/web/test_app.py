import asyncio
import contextlib
import gzip
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import httpx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import csv

import mlci
from conftest import PATIENCE
from mlci.codes import icd
from mlci.codes.admissions import as_admissions
from mlci.codes.comorbidity import Coder
from mlci.codes.search import search
from mlci.index.estimator import MLCI
from mlci.judging.kept import Cutoff, Isotonic
from mlci.web import _api, _pages
from mlci.web import _uploads as uploads_module
from mlci.web._answers import answers
from mlci.web._case import _change, read_case, typed
from mlci.web._clinical import INDICES, clinical
from mlci.web._drawing import Drawing
from mlci.web._rendering import number, percent, place, signed, span
from mlci.web._turns import AT_ONCE
from mlci.web._uploads import GRACE_SECONDS, Uploads
from mlci.web.app import create_app
from toys import code_lists
from webserver import REAL, running, toy_index

pytestmark = pytest.mark.xdist_group("web")
EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"


@pytest.fixture(scope="module")
def index():
    return toy_index()


@pytest.fixture(scope="module")
def address(index):
    with running(index, upload_limit=300_000) as address:
        yield address


@pytest.fixture(scope="module")
def web(address):
    with httpx.Client(base_url=address, timeout=PATIENCE) as client:
        yield client


# --- the JSON API


@pytest.mark.parametrize("version", [None, 10, 9])
def test_answers_are_those_of_the_index_to_the_last_digit(web, index, version):
    lists = [*code_lists(30, seed=4), list(REAL), ["i50.9", " N17.9 ", "QQ9", "n179"], ["I10", "QQ9", "QQ8"], []]
    body = {"admissions": lists, "icd_version": version, "explain": True}
    answer = web.post("/api/score", json=body).raise_for_status().json()
    found = answer["admissions"]
    with warnings.catch_warnings(record=True) as doubts:
        warnings.simplefilter("always")
        table = index.table(lists, icd_version=version, strict=True)
        said = [str(doubt.message) for doubt in doubts]
    assert answer["warnings"] == said
    assert any("fewer than half" in sentence for sentence in said)
    assert any("codes are ICD-9" in sentence for sentence in said) == (version == 9)  # the model is one of ICD-10
    scored = [one["scored"] for one in found]
    assert scored == table["score"].notna().tolist()
    assert scored[-3:] == [version != 9, False, False]
    for codes, one, row in zip(lists, found, table.to_dict("records")):
        if not one["scored"]:
            assert {one[name] for name in ("score", "percentile", "risk", "high_severity", "effects")} == {None}
            continue
        assert {name: one[name] for name in ("score", "percentile", "high_severity")} == {
            name: row[name] for name in ("score", "percentile", "high_severity")
        }
        assert one["risk"] == {name: row[f"risk_{name}"] for name in index.model_.outcomes}
        kept = [code for code in codes if icd.normalise(code) not in one["unknown"]]
        effects = [vars(effect) for effect in index.explain(kept, icd_version=version)]
        assert [effect for effect in one["effects"] if effect["known"]] == effects
        assert all(effect["effect"] == 0 for effect in one["effects"] if not effect["known"])


def test_every_style_sheet_that_a_page_names_is_there(web):
    named = re.findall(r'rel="stylesheet" href="([^"]+)"', web.get("/").text)
    assert len(named) == 2
    for path in named:
        assert web.get(path).status_code == 200


def test_clinical_indices_are_those_of_the_library(web):
    lists = [["I50.9", "E11.9", "E11.22", "C78.0", "C34.1"], ["B18.2", "K72.90", "I21.4"], []]
    found = web.post("/api/score", json={"admissions": lists}).json()["admissions"]
    for name, function, column in (
        ("charlson", mlci.charlson, "cci_charlson"),
        ("elixhauser", mlci.elixhauser, "eci_vw"),
    ):
        table = function(lists, flags=True)
        assert [one[name]["score"] for one in found] == table[column].tolist()
        flags = table.drop(columns=["admission_id", column]).sum(axis=1)
        assert [len(one[name]["categories"]) for one in found] == flags.tolist()
    words = {category["words"]: category["codes"] for category in found[0]["charlson"]["categories"]}
    assert words["diabetes with chronic complication"] == ["E1122"]
    assert "diabetes without chronic complication" not in words  # the severer form drops it


def test_codes_are_found_by_words_and_by_beginning(web):
    found = web.get("/api/codes", params={"q": "heart failure"}).json()
    assert found[0] == {"code": "I50.9", "icd_version": 10, "title": "Heart failure, unspecified", "billable": True}
    assert {one["code"][:3] for one in found} >= {"I50"}
    nine = web.get("/api/codes", params={"q": "428", "icd_version": 9, "limit": 3}).json()
    assert [icd.normalise(one["code"]) for one in nine] == [one.code for one in search("428", 9, 3)]


def test_the_card_describes_the_model(web, index):
    card, model = web.get("/api/model").json(), index.model_
    assert card["outcomes"] == model.outcomes
    assert card["cutoff"]["score"] == model.cutoff.score
    assert card["percentiles"]["50"] == np.median(model.quantiles)
    assert "discharge" in " ".join(card["limits"])
    assert card["about"]["Licence of the data"] == "free of rights of others"
    assert set(card["about"]) >= {"Data", "Dates", "Admissions", "Recipe", "High severity"}
    assert card["training"]["config"]["encoder"] == model.card["config"]["encoder"]


@pytest.mark.slow
def test_schemathesis_finds_nothing(address, tmp_path):
    command = [
        "schemathesis",
        "run",
        f"{address}/api/openapi.json",
        "--max-examples",
        "10",
        "--seed",
        "1",
        "--no-color",
        "--request-timeout",
        str(PATIENCE),
        "--suppress-health-check",
        "too_slow",  # that is the machine's
    ]
    program = Path(sys.executable).parent / command[0]
    done = subprocess.run([program, *command[1:]], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert "3 selected / 3 total" in done.stdout


# --- refusals


def refused(response: httpx.Response, status: int) -> str:
    assert response.status_code == status, response.text
    assert "Traceback" not in response.text
    assert response.headers["content-security-policy"].startswith("default-src 'self'")
    assert "unsafe" not in response.headers["content-security-policy"]
    if response.headers["content-type"] == "application/json":
        assert list(response.json()) == ["detail"]
        return response.json()["detail"]
    assert response.headers["content-type"].startswith("text/html")
    return re.search(r'role="alert">(.*?)</p>', response.text, re.DOTALL)[1]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("{", "JSON"),
        ("[]", "body: input should be"),
        ("{}", "admissions is missing; it is needed."),
        ('{"admissions": ["I509"]}', "admissions.0: input should be a valid list."),
        ('{"admissions": [[5]]}', "admissions.0.0: input should be a valid string."),
        ('{"admissions": [], "icd_version": 11}', "icd_version: input should be 9 or 10."),
        ('{"admissions": [], "what": 1}', "what: extra inputs are not permitted."),
        (b'{"admissions": [["\xff"]]}', "cannot be read"),
        (json.dumps({"admissions": [["A" * 41]]}), "at most 40 characters"),
        (json.dumps({"admissions": [[]] * 1001}), "at most 1000 items"),
        (json.dumps({"admissions": [["I10"] * 300] * 100, "explain": True}), "fewer admissions"),
    ],
)
def test_a_question_not_understood_is_answered_with_a_sentence(web, body, words):
    response = web.post("/api/score", content=body, headers={"content-type": "application/json"})
    assert words in refused(response, 422)


def test_too_large_is_413_however_it_is_sent(web):
    large = b"[" * 4_000_001
    kind = {"content-type": "application/json"}
    assert "4,000,000 bytes" in refused(web.post("/api/score", content=large, headers=kind), 413)
    chunks = (large[start : start + 100_000] for start in range(0, len(large), 100_000))
    assert "4,000,000 bytes" in refused(web.post("/api/score", content=chunks, headers=kind), 413)
    file = {"file": ("a.csv", b"codes\n" + b"I509\n" * 80_000)}
    assert "300,000 bytes" in refused(web.post("/files", files=file), 413)


def test_a_body_that_never_comes_ends_the_request(index):
    with (
        running(index, seconds=0.3) as address,
        socket.create_connection(("127.0.0.1", httpx.URL(address).port)) as slow,
    ):
        slow.sendall(b"POST /api/score HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n")
        slow.sendall(b"Content-Length: 100\r\n\r\n{")
        slow.settimeout(PATIENCE)
        assert b"408" in slow.recv(1000)


def test_unknown_addresses_and_methods(web):
    assert refused(web.get("/api/nothing"), 404) == "There is no page at this address."
    assert refused(web.get("/nothing"), 404) == "There is no page at this address."
    assert refused(web.get("/static/../app.py"), 404)
    assert refused(web.get("/static/%2e%2e/app.py"), 404)
    assert refused(web.get("/api/score"), 405)
    assert "limit" in refused(web.get("/api/codes", params={"q": "a", "limit": 1000}), 422)
    assert "q" in refused(web.get("/", params={"q": "a" * 201}), 422)


def test_other_sites_are_kept_out(web):
    assert web.get("/", headers={"host": "evil.example"}).status_code == 400
    file = {"file": ("a.csv", b"admission_id,codes\n1,I509\n")}
    assert "page itself" in refused(web.post("/files", files=file, headers={"sec-fetch-site": "cross-site"}), 403)


def test_an_internal_error_has_no_traceback_and_is_logged_without_codes(index, monkeypatch, caplog):
    def fail(*_, **__):
        raise KeyError("I509 of admission 17")

    monkeypatch.setattr("mlci.web._api.answers", fail)
    with running(index) as address:
        response = httpx.post(f"{address}/api/score", json={"admissions": [["I50.9"]]}, timeout=PATIENCE)
    assert "internal error" in refused(response, 500)
    assert "KeyError at" in caplog.text
    assert "I509" not in caplog.text + response.text


# --- the page of one admission

SEPARATORS = st.sampled_from([" ", ",", ", ", ";", "|", "\n", "\t", " / ", "+", "'", '","', " - ", "\u00a0"])


@given(st.lists(st.tuples(st.sampled_from(["I50.9", "i509", "n17.9", "E11.65", "I10"]), SEPARATORS)))
def test_codes_come_in_any_separator(index, parts):
    reading = typed(index, "".join(code + separator for code, separator in parts), 10)
    assert [one.code for one in reading.codes] == [icd.normalise(code) for code, _ in parts]
    assert not reading.missed


@settings(max_examples=25)
@given(
    st.lists(st.sampled_from((*REAL, "QQ1")), max_size=6),
    st.lists(st.sampled_from(REAL), max_size=2),
    st.lists(st.sampled_from(REAL), max_size=2),
)
def test_what_if_is_the_score_of_the_changed_codes(index, codes, off, plus):
    case = read_case(index, " ".join(codes), off=off, plus=plus, version=10)
    if not codes and not plus:
        assert case is None
        return
    unread, codes = codes.count("QQ1"), [code for code in codes if code != "QQ1"]
    changed = [c for c in codes if c not in off] + [c for c in dict.fromkeys(plus) if c not in codes]
    assert case.counted == changed
    assert case.now.scored == (len(changed) >= max(unread, 1))
    for answer, scored in ((case.recorded, codes if case.changed else changed), (case.now, changed)):
        if answer.scored:
            assert answer.score == index.score([scored])[0]
    if not case.now.scored:
        return
    assert [row.code for row in case.rows] == codes + case.plus
    for row in case.rows:
        without = [code for code in changed if code != row.code]
        if row.state == "off":
            assert row.effect is None
        elif changed.count(row.code) == 1:
            rest = index.score([without])[0]
            assert row.effect == pytest.approx(case.now.score - rest, abs=1e-12)
            before, after = (f"{score:.2f}".replace("-", "−") for score in (rest, case.now.score))
            if abs(row.effect) > 0.005 and before != after:
                assert row.words.endswith(f"from {before} to {after}")
                assert ("raises" in row.words) == (row.effect > 0)


def said_on(page: str) -> str:
    """Return the text of a page."""
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", page))).replace(" ,", ",")


def test_a_change_that_two_digits_do_not_show_is_no_way_from_a_score_to_itself():
    rows = read_case(mlci.load("us2010"), "I50.9 N17.9 I10", version=10).rows
    assert not any(re.search(r"from (\S+) to \1$", row.words) for row in rows)


def test_what_rounds_to_0_has_no_minus():
    assert _change(-0.001, 0.02) == "raises the score from 0.00 to 0.02"
    assert [number(-0.001), number(-0.012, 3), signed(-0.001)] == ["0.00", "−0.012", "+0.00"]


def test_the_page_shows_the_whole_answer(web, index):
    page = web.get("/", params={"codes": "I50.9; n179\nE11.9, 428.0 éé"}).text
    codes, said = ["I509", "N179", "E119"], said_on(page)  # what is not understood does not count
    row = index.table([codes]).iloc[0]
    assert f"Raw score {row['score']:.2f}".replace("-", "−") in said
    assert f"Severity percentile {row['percentile']:.0f} of 100" in said
    for name, (low, high) in index.model_.intervals(index.model_.read(as_admissions([codes], icd_version=10))).items():
        assert f"{percent(row[f'risk_{name}'])} {span((low[0], high[0]))}" in said, name
    assert ("Not high severity" in said) == (not row["high_severity"])
    effect = index.explain(codes)[1]
    verb = "raises" if effect.effect > 0 else "lowers"
    words = f"{verb} the score from {effect.score_without:.2f} to {row['score']:.2f}".replace("-", "−")
    assert f"N17.9 Acute kidney failure, unspecified {words}" in said
    assert "428.0 : an ICD-9 code. Did you mean I50.9 Heart failure, unspecified" in said
    assert "Also ignored: “éé”" in said
    assert "congestive heart failure I50.9" in said
    assert "diabetes, uncomplicated E11.9" in said


@pytest.mark.parametrize(
    "text", ["428.0 584.9 401.9", "heart failure", "I5O.9", "sepsis", "I10, sepsis, stroke", "Z99.2"]
)
def test_what_is_not_understood_has_no_score_no_verdict_and_no_risk(web, text):
    said = said_on(web.get("/", params={"codes": text}).text)
    assert "Too few codes are understood for a score" in said
    assert not re.search(r"igh severity|percentile \d|\d%|Raw score", said)


def offers(page: str) -> list[str]:
    """Return what the codes become with each suggestion of a page."""
    links = [unescape(link) for link in re.findall(r'class="offer"[^>]* href="([^"]*)"', page)]
    return [dict(httpx.URL(link).params)["codes"] for link in links]


def test_a_suggestion_takes_the_place_of_its_own_piece(web):
    """Not of the same letters in another word, or in a piece of several words."""
    found = offers(web.get("/", params={"codes": "I10, urosepsis; sepsis"}).text)
    assert "I10, urosepsis; A41.9" in found
    assert not any("uroA" in text for text in found)
    found = offers(web.get("/", params={"codes": "I10, aspiration pneumonia; pneumonia"}).text)
    assert "I10, aspiration pneumonia; J18.9" in found
    found = offers(web.get("/", params={"codes": "I10 é401.9 428.0 401.9"}).text)
    assert {"I10 éI10 428.0 401.9", "I10 é401.9 I50.9 401.9", "I10 é401.9 428.0 I10"} <= set(found)
    page = web.get("/", params=[("codes", "I10"), ("plus", "urosepsis"), ("plus", "sepsis")]).text
    assert "plus=urosepsis&amp;plus=A41.9" in page


def test_a_code_with_a_decimal_comma_is_replaced_in_its_place(web):
    found = offers(web.get("/", params={"codes": "I50,9, J44,9; 401.9", "icd": "9"}).text)
    assert found[0] == "428.0, J44,9; 401.9"
    assert found[-1] == "428.0, 493.20; 401.9"  # all codes of the other version at once


def test_an_admission_more_severe_than_the_figure_is_marked_at_its_edge(index):
    drawing = Drawing(index.model_)
    for curve in drawing.curves.values():
        assert 5 < curve.y(1.0) < drawing.top  # the point has a radius of 5
        assert curve.y(curve.top) == drawing.top
    with running(mlci.load("us2010")) as address:
        said = said_on(httpx.get(f"{address}/?codes=A41.9+J96.01+I46.9+G93.5", timeout=PATIENCE).text)
    assert "The risk of this admission is above the figure; its point is at the upper edge." in said


def test_one_code_that_is_not_understood_changes_nothing(web):
    def figures(text: str) -> list[str]:
        page = web.get("/", params={"codes": text}).text
        return re.findall(r'id="(?:score|percentile|risk-\d)">([^<]*)<', page)

    assert figures("I50.9 N17.9") == figures("I50.9 N17.9 sepsis") == figures("I50.9 N17.9 QQ1 Z99.2") != []
    pasted = "1. I50.9 - Heart failure, unspecified\n2. N17.9 - Acute kidney failure, unspecified"
    assert figures(pasted) == figures("I50.9 N17.9")


def test_risks_are_never_0_and_percentiles_never_100():
    assert [percent(risk) for risk in (0, 0.0004, 0.0123, 0.99999, 1)] == [
        *("under 0.1%", "under 0.1%", "1.2%", "over 99.9%", "over 99.9%")
    ]
    assert [span(bounds) for bounds in ((0.01, 0.023), (0, 0.0004))] == ["1.0 to 2.3%", "under 0.1%"]
    assert [place(value) for value in (0.2, 42.4, 99.94, 100)] == ["0", "42", "99.9", "100"]


@pytest.mark.parametrize("age", ["1e2", "50.5", "200", "x"])
def test_an_invalid_age_is_reported_on_the_page(web, age):
    page = web.get("/", params={"codes": "I50.9", "age": age})
    assert page.status_code == 422
    assert "must be a whole number of years, from 0 to 129" in said_on(page.text)
    assert 'id="result"' in page.text  # which the script puts in its place


def test_every_page_names_the_source_of_its_risks(web):
    for path in ("/", "/?codes=I50.9", "/compare?a=I10&b=I50.9", "/files", "/model", "/nothing"):
        said = said_on(web.get(path).text)
        assert "Not for use on patients: learned from a synthetic hospital" in said
        assert "7,200 admissions, ICD-10" in said


def test_about_shows_held_out_figures_and_the_real_port(web, address):
    said = said_on(web.get("/model").text)
    assert "In-hospital mortality 900 90 0.812 0.770 to 0.850 10.2% 10.0% 8.2 to 12.1% 0.97" in said
    assert "Fewer than 100 events, so uncertain: in-hospital mortality" in said
    assert "are known to lack it: long stay." in said
    assert "Dates none: computed" in said
    assert "Licence of the data free of rights of others" in said
    assert "It was fitted to synthetic admissions: the index is not for real patients." in said
    assert f"curl -H 'content-type: application/json' {address}/api/score" in said
    assert web.get("/api/model").json()["validation"]["mortality"]["n"] == 900


def test_two_cases_side_by_side(web, index):
    said = said_on(web.get("/compare", params={"a": "I50.9 I10 sepsis", "b": "I10 N17.9"}).text)
    rows = index.table([["I509", "I10"], ["I10", "N179"]])
    percentiles = " ".join(f"{value:.0f}" for value in rows["percentile"])
    assert f"Severity percentile {percentiles}" in said
    assert "Only in A I50.9 Heart failure, unspecified Only in B N17.9" in said
    assert "In both I10 Essential (primary) hypertension" in said
    assert "Not understood in case A, and not counted: sepsis" in said
    assert "Case B has no score" in said_on(web.get("/compare", params={"a": "I10", "b": "nothing"}).text)
    assert refused(web.get("/compare", params={"a": "x" * 20_001}), 422).startswith("The text is too long")


def test_adding_a_found_code_leads_to_an_address_that_holds_it(web):
    page = web.get("/", params={"codes": "I10", "q": "heart failure", "pick": "I50.9", "off": "I10"})
    assert page.status_code == 303
    assert page.headers["location"] == "/?codes=I10+I50.9&off=I10"


@pytest.mark.parametrize("versions", [(9, 10), (0,)])
def test_a_model_of_several_versions_asks_which(index, versions):
    model = index.model_
    tokens = replace(model.vocabulary, versions=(versions[0],) * len(model.vocabulary.tokens))
    other = MLCI()
    other.model_ = replace(model, icd_versions=versions, vocabulary=tokens)
    with running(other) as address:
        page = httpx.get(address, params={"codes": "428.0", "icd": "9"}, timeout=PATIENCE).text
        assert '<option value="9" selected>' in page
        assert "unknown to this model" in page
        assert '<option value="10" selected>' in httpx.get(address, timeout=PATIENCE).text
        page = httpx.get(address, params={"codes": "I50.9", "icd": "9"}, timeout=PATIENCE).text
        assert unescape(re.search(r'href="([^"]*)" id="compare"', page)[1]) == "/compare?a=I50.9&icd=9"
        compared = httpx.get(f"{address}/compare?icd=9", timeout=PATIENCE).text
        assert unescape(re.search(r'href="(/compare\?a=[^"]*)"', compared)[1]).endswith("&icd=9")
        body = {"admissions": [["I50.9"]], "icd_version": 9}
        found = httpx.post(f"{address}/api/score", json=body, timeout=PATIENCE).json()["admissions"][0]
    assert found["score"] == other.score([["I50.9"]], icd_version=9)[0]
    assert found["unknown"] == []


def test_pictures_show_the_model(index):
    model, drawing = index.model_, Drawing(index.model_)
    low, high = drawing.limits
    heights = np.array([height for *_, height in drawing.bars])
    share = np.diff(model.percentile(np.linspace(low, high, len(heights) + 1)))
    np.testing.assert_allclose(heights / heights.max(), share / share.max(), atol=0.002)
    assert (drawing.x(low), drawing.x(high)) == (drawing.left, drawing.right) == (drawing.x(-1e9), drawing.x(1e9))
    for name, curve in drawing.curves.items():
        x, y = np.array([point.split(",") for point in curve.points.split()], dtype=float).T
        scores = low + (x - drawing.left) / (drawing.right - drawing.left) * (high - low)
        risks = curve.top * (drawing.floor - y) / (drawing.floor - drawing.top)
        np.testing.assert_allclose(risks, model.curves[name](scores), atol=0.01)


def test_a_model_that_knows_nothing_still_has_a_page(index):
    flat = MLCI()
    nothing = {name: Isotonic(np.array([0.0]), np.array([0.0])) for name in index.model_.curves}
    flat.model_ = replace(index.model_, quantiles=np.zeros(1001), curves=nothing, cutoff=Cutoff(0.0, 0.0, 1, 1, ()))
    with running(flat) as address:
        page = httpx.get(address, params={"codes": "I10"}, timeout=PATIENCE).raise_for_status().text
        assert "under 0.1%" in page  # a file of version 0.1 may say 0
        httpx.get(f"{address}/model", timeout=PATIENCE).raise_for_status()


def test_a_recalibrated_model_says_on_whose_admissions(index):
    """An outcome that recalibration added had no weight in the fit."""
    again = MLCI()
    card = {**index.model_.card, "source": "nhds", "weights": {"mortality": 1.0}}
    card |= {"recalibrated": {"source": "ward 3", "admissions": 1200, "positives": {}}}
    again.model_ = replace(index.model_, card=card)
    with running(again) as address:
        said = said_on(httpx.get(f"{address}/model", timeout=PATIENCE).raise_for_status().text)
        assert "then recalibrated on 1,200 admissions of the data called “ward 3”" in said
        assert "Long stay more than 7 days –" in said


def test_about_a_model_of_one_outcome(index):
    """It has no shared direction. An outcome with too few held-out events is named."""
    single = MLCI()
    stated = {"data": "see `notes`", "dates": "2026", "licence": "own", "limits": []}
    card = {**index.model_.card, "about": stated, "positives": {}, "weights": {"mortality": 1.0}}
    single.model_ = replace(index.model_, outcomes={"mortality": "died"}, card=card)
    with running(single) as address:
        said = said_on(httpx.get(f"{address}/model", timeout=PATIENCE).raise_for_status().text)
    assert "1 would mean that the outcome is exactly this cut" in said
    assert "No figures" not in said
    assert "Data see notes; ICD-10" in said
    assert "In-hospital mortality died fewer than 10 (or all but so few) 1.00" in said  # a count that the file hides
    assert "In-hospital mortality: fewer than 10 (or all but so few) events in training" in said


def test_a_text_as_long_as_the_page_takes_arrives_and_a_longer_one_is_refused_in_words(web):
    assert web.get("/", params={"codes": "I10" + "\n" * 9_000 + "é" * 2_000}).status_code == 200  # 66,000 characters
    assert refused(web.get("/", params={"codes": "I10 " * 9_000}), 422).startswith("The text is too long: 36,000")


def test_empty_and_error_states(web):
    assert "No codes yet" in web.get("/").text
    assert "No ICD-10-CM code starts with" in web.get("/", params={"q": "zzzz"}).text
    too_many = web.get("/", params={"codes": "I10 " * 501})
    assert refused(too_many, 422).startswith("There are too many codes: 501")
    too_many = web.get("/", params={"codes": "I10 " * 2 + "I5O9 " * 499})  # each with links that hold the whole text
    assert refused(too_many, 422).startswith("There are too many codes: 501")
    assert refused(web.get("/", params={"codes": "x" * 20_001}), 422).startswith("The text is too long")
    everything_off = web.get("/", params={"codes": "I10", "off": "I10"}).text
    assert "Every code is left out" in everything_off
    for nothing in ("1 2 3", "hello world"):
        assert "No code was found in this text" in web.get("/", params={"codes": nothing}).text
    left_out = web.get("/", params={"codes": "I10 hello world", "off": "I10"}).text
    assert "Every code is left out" in left_out
    told = said_on(web.get("/compare", params={"a": "sepsis", "b": "hello world"}).text)
    assert "Case A has no score: fewer than half of its codes are understood." in told
    assert "Case B has no score: no code was found in its text." in told


def test_suggestions_are_offered_only_where_there_are_some(web):
    assert "Not understood, and not counted: “hello world”." in said_on(web.get("/?codes=I10+hello+world").text)
    for words, offered in (("hello world", False), ("sepsis", True)):
        told = said_on(web.get("/compare", params={"a": "I10", "b": f"I10 {words}"}).text)
        assert ("See suggestions" in told) == offered
        assert "Not understood in case B" in told


class Markup(HTMLParser):
    """Notes whatever a strict policy forbids and whatever would leave this machine."""

    def __init__(self):
        super().__init__()
        self.bad, self.tags = [], []

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.tags.append(tag)
        self.bad += [name for name in given if name == "style" or name.startswith("on")]
        self.bad += [given[n] for n in ("src", "href", "action") if n in given and not re.match(r"/(?!/)|#", given[n])]
        if tag == "style" or (tag == "script" and "src" not in given):
            self.bad.append(tag)


def test_nothing_is_echoed_unescaped_and_nothing_comes_from_elsewhere(web):
    pages = [
        web.get("/", params={"codes": EVIL, "q": EVIL, "plus": EVIL[:30], "off": EVIL}),
        web.get("/", params={"codes": "I10 " + EVIL, "off": "I10"}),
        web.get("/" + EVIL),
        web.post("/files", files={"file": (EVIL, b"x")}),
        scored(web, EVIL.replace("/", "") + ".csv", b"nothing\n1\n"),
        web.get("/files"),
        web.get("/model"),
    ]
    for page in pages:
        assert "<script>alert" not in page.text
        assert "<img" not in page.text
        markup = Markup()
        markup.feed(page.text)
        assert not markup.bad
        assert markup.tags.count("script") == 1
        assert page.headers["referrer-policy"] == "no-referrer"
        assert page.headers["cache-control"] == "no-store"
        assert page.headers["x-content-type-options"] == "nosniff"


# --- files


def scored(web: httpx.Client, name: str, content: bytes, **fields: str) -> httpx.Response:
    """Upload a file and wait for its page."""
    sent = web.post("/files", files={"file": (name, content)}, data=fields)
    assert sent.status_code == 303, sent.text
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        page = web.get(sent.headers["location"])
        if 'data-waiting="1"' not in page.text:
            return page
        time.sleep(0.02)
    raise AssertionError("the file is never scored")


def strictly(index: MLCI, lists: list[list[str]]) -> pd.DataFrame:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return index.table(lists, strict=True)


def fetch(web: httpx.Client, page: httpx.Response) -> bytes:
    return web.get(re.search(r'href="(/files/[^"]*/scores)"', page.text)[1]).raise_for_status().content


def test_unread_sheets_and_repeated_identifiers_are_reported(web):
    file = io.BytesIO()
    with pd.ExcelWriter(file) as book:
        for month in ("March", "April"):
            rows = pd.DataFrame({"admission_id": ["7", "8", "7"], "DX1": ["A00.0", "C02.2", "B01.1"], "DX2": None})
            rows.to_excel(book, sheet_name=month, index=False)
    page = scored(web, "a.xlsx", file.getvalue())
    assert "Only the sheet March is read; filled too, and left out: April." in page.text
    assert "1 of 3 rows have the identifier of an earlier row" in page.text


def test_a_spreadsheet_comes_back_with_what_was_understood(web, index):
    lists = [["A00.0", "B01.1"], ["C02.2"]]
    wide = pd.DataFrame({"stay": ["007", "8"], "first": ["A00.0", "C02.2"], "second": ["B01.1", None]})
    stream = io.BytesIO()
    wide.to_excel(stream, index=False)
    refused_page = scored(web, "visits.xlsx", stream.getvalue())
    assert "lacks the column codes" in refused_page.text
    assert "name its columns" in refused_page.text
    page = scored(web, "visits.xlsx", stream.getvalue(), kind="xlsx", id="stay", codes="first,second")
    assert "admission ids in column stay; codes in 2 columns, first to second" in page.text
    result = pd.read_excel(io.BytesIO(fetch(web, page)), engine="calamine", dtype={"admission_id": str})
    assert result["admission_id"].tolist() == ["007", "8"]
    np.testing.assert_allclose(result["score"], strictly(index, lists)["score"], rtol=1e-12)


@pytest.mark.parametrize(
    ("many", "said"),
    [(1, "One admission; click"), (3, "All 3 admissions; click"), (201, "The first 200 admissions; click")],
)
def test_the_caption_of_a_table_of_scores_counts_its_rows(web, many, said):
    page = scored(web, "a.csv", b"admission_id,codes\n" + b"".join(b"%d,A000\n" % row for row in range(many)))
    assert said in page.text


def test_a_file_of_high_severity_alone_is_all_of_it(index):
    severe = MLCI()
    severe.model_ = replace(index.model_, cutoff=replace(index.model_.cutoff, score=-1e9))
    with running(severe) as address, httpx.Client(base_url=address, timeout=PATIENCE) as client:
        said = said_on(scored(client, "a.csv", b"admission_id,codes\n1,I509\n2,N179\n").text)
    assert "High severity all 2 of 2 scored" in said


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.parquet", "long.csv"])
def test_a_file_comes_back_scored(web, index, name, kind):
    lists = code_lists(60, seed=9)
    frame = pd.DataFrame({"admission_id": [f"p{i}" for i in range(60)], "codes": [" ".join(codes) for codes in lists]})
    if name == "long.csv":  # admissions without a code have no row here, and rows come in disorder
        frame["codes"] = lists
        frame = frame.explode("codes").dropna().rename(columns={"codes": "code"})
        frame = pd.concat([frame.iloc[::2], frame.iloc[1::2]])
        order = frame["admission_id"].unique()
        lists = [frame.loc[frame["admission_id"] == one, "code"].tolist() for one in order]
    stream = io.BytesIO()
    frame.to_parquet(stream) if name == "a.parquet" else frame.to_csv(stream, index=False)
    content = gzip.compress(stream.getvalue()) if name.endswith("gz") else stream.getvalue()
    page = scored(web, name, content, kind=kind)
    assert f"{len(lists)} admissions read" in page.text
    assert page.text.count("<tr>") == 1 + len(lists)
    result = io.BytesIO(fetch(web, page))
    result = csv.read_csv(result).to_pandas() if kind == "csv" else pd.read_parquet(result)
    wanted = strictly(index, lists)
    np.testing.assert_array_equal(result["score"], wanted["score"])
    for name in wanted.columns.drop("admission_id"):  # a flag that is absent is None here and NaN there
        np.testing.assert_allclose(result[name].astype(float), wanted[name].astype(float), rtol=1e-12)
    assert fetch(web, page)  # kept while its page is open
    case = web.get(unescape(re.search(r'<a href="(/\?codes=[^"]*)"[^>]*>', page.text)[1]))
    assert ('id="score"' in case.text) == np.isfinite(wanted["score"][0])
    assert f"{int(wanted['high_severity'].sum())} of {wanted['score'].notna().sum()} scored" in said_on(page.text)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.csv", b"admission_id,code\n1,\xff\xfe\n", "a.csv: column code, row 2: is not UTF-8; save the table"),
        ("a.csv", b"who,what\n1,2\n", "a.csv: lacks the column codes"),
        ("a.parquet", b"PAR1 no", "a.parquet: is not a Parquet file that can be read"),
        ("a.csv", b"admission_id,codes,icd_version\n1,I10,11\n", "column icd_version, row 2"),
        ("a.csv.gz", b"not gzip", "a.csv.gz: "),
    ],
)
def test_a_bad_file_is_reported_by_name_in_one_sentence(web, name, content, words):
    page = scored(web, name, content)
    assert words in refused(page, 200)
    assert "/tmp" not in page.text


@pytest.mark.parametrize(
    ("content", "said", "doubted"),
    [
        (b"admission_id,codes\n1,428.0 486\n2,518.81\n", "codes read as ICD-10", True),
        (b"admission_id,codes\n1,A00.0 I10\n", "codes read as ICD-10", False),
        (b"admission_id,codes\n1,QQQ1 ZZZ\n", "codes read as ICD-10", False),  # of neither version
        (b"admission_id,codes,icd_version\n1,428.0 486,9\n", "ICD version in column icd_version", False),
        (b"admission_id,codes,icd_version\n1,428.0 486,10\n2,A00.0,10\n", "ICD version in column", True),
    ],
)
def test_a_file_of_the_other_icd_version_is_doubted(web, content, said, doubted):
    text = said_on(scored(web, "a.csv", content).text)
    assert said in text
    doubt = "codes were read as ICD-10, but only the table of ICD-9 has them; is the ICD version right?"
    assert (doubt in text) == doubted


def test_an_outcome_keeps_its_whole_name(index):
    named = MLCI()
    renamed = {"mortality": "risk_of_fall", "long stay": "high_risk_stay"}
    curves = {renamed[name]: curve for name, curve in index.model_.curves.items()}
    named.model_ = replace(index.model_, outcomes=dict.fromkeys(renamed.values(), ""), curves=curves)
    with running(named) as address, httpx.Client(base_url=address, timeout=PATIENCE) as client:
        said = said_on(scored(client, "a.csv", b"admission_id,codes\n1,I509\n").text)
    assert "Percentile Risk of fall High risk stay" in said


def test_a_page_names_no_option_of_the_command_line(web):
    assert "lacks the column codes; needed are a list of codes, columns such as DX1, DX2, or one row per code; " in (
        said_on(scored(web, "a.csv", b"who,what\n1,2\n").text)
    )
    rows = b"".join(b"%d,38.9 8\n" % row for row in range(9))
    text = said_on(scored(web, "a.csv", b"admission_id,codes\n" + rows, icd="9").text)
    assert "lack a leading zero (38.9 for 038.9)" in text
    stated = said_on(scored(web, "a.csv", b"admission_id,codes,icd_version\n1,I509,10\n", icd="9").text)
    assert "Column icd_version states the ICD version of the codes, and the chosen ICD-9 counts only where" in stated
    unread = said_on(scored(web, "a.csv", b"admission_id,codes,I10_DX1\n1,I509,N179\n").text)
    assert "the field “Columns of codes” names the columns to read." in unread
    unnamed = said_on(scored(web, "\u202ea.csv", b"who,codes\n1,I509\n").text)
    assert "a.csv: lacks the column admission_id; the field “Column of admission ids” names the column" in unnamed
    assert not any("--" in page or "in Python" in page or "`" in page for page in (text, stated, unread, unnamed))
    assert "\u202e" not in unnamed


def test_an_empty_file_is_reported(web):
    for name in ("a.csv", "a.xlsx", "a.parquet", "a.csv.gz"):
        assert f"{name}: is empty" in refused(web.post("/files", files={"file": (name, b"")}), 422)


@pytest.mark.parametrize(
    ("codes", "said"),
    [
        ("I509", "Of 1 code, none is unknown"),
        ("I509 XXX9", "Of 2 codes, 1 (50.0%) is unknown"),
        ("XXX8 XXX9", "Of 2 codes, all are unknown"),
    ],
)
def test_the_number_of_unknown_codes_is_reported(web, codes, said):
    assert said in said_on(scored(web, "a.csv", f"admission_id,codes\n1,{codes}\n".encode()).text)


def test_what_is_no_table_is_refused_at_once(web):
    assert "is not a table" in refused(web.post("/files", files={"file": ("a.exe", b"x")}), 422)
    assert "file is missing" in refused(web.post("/files", data={"kind": "csv"}), 422)


@pytest.fixture
def kept(index):
    """Uploads with one scored file, its secret name, and the seconds of every timer that was set; none rings."""
    uploads, seconds = Uploads(index.model_), []

    class Silent(threading.Timer):
        def __init__(self, interval, function):
            super().__init__(interval, function)
            seconds.append(interval)

        def start(self):
            pass

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mlci.web._uploads.Timer", Silent)
        token = uploads.add(io.BytesIO(b"admission_id,codes\n1,I509\n"), "a.csv", kind="csv", icd_version=10)
        uploads.worker.shutdown()
        yield uploads, token, seconds
        uploads.close()


def test_a_reloaded_page_keeps_its_scores_even_if_its_leaving_is_reported_late(kept):
    uploads, token, seconds = kept
    first = uploads.opened(token).loads
    again = uploads.opened(token).loads
    uploads.left(token, first)  # said by the page before it was loaded again
    assert set(seconds) == {600}
    uploads.left(token, again)
    assert seconds[-1] == GRACE_SECONDS


def test_a_timer_that_rings_while_its_scores_are_kept_deletes_nothing(kept):
    uploads, token, _ = kept
    before = uploads.jobs[token].timer
    uploads.keep(token)
    before.function()  # it rang before it could be cancelled
    assert token in uploads.jobs
    uploads.jobs[token].timer.function()
    assert token not in uploads.jobs


def test_an_upload_has_one_timer_however_many_keep_it_at_once(kept):
    uploads, token, _ = kept
    made, together = [], threading.Barrier(8)

    class Slow(uploads_module.Timer):
        def __init__(self, *args):
            super().__init__(*args)
            made.append(self)
            time.sleep(0.001)  # so that another thread has its turn

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(8) as pool:
        patch.setattr(uploads_module, "Timer", Slow)
        list(pool.map(lambda _: (together.wait(), uploads.keep(token)), range(8)))
    assert [timer for timer in made if not timer.finished.is_set()] == [uploads.jobs[token].timer]


@pytest.mark.slow
def test_scores_are_forgotten_in_time_and_files_never_pile_up(index, tmp_path, monkeypatch):
    seen = threading.Event()

    class Timer(threading.Timer):
        def run(self):
            seen.wait()
            super().run()

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("mlci.web._uploads.Timer", Timer)
    with running(index, keep_seconds=0.3) as address, httpx.Client(base_url=address, timeout=PATIENCE) as client:
        page = scored(client, "a.csv", b"admission_id,codes\n1,I509\n")
        (folder,) = tmp_path.iterdir()
        assert [path.name for path in folder.iterdir()] == ["scores.csv"]  # the upload itself is gone already
        seen.set()
        load = re.search(r'data-load="(\d+)"', page.text)[1]
        assert client.post(f"{page.url}/leave", params={"load": load}).status_code == 204
        deadline = time.monotonic() + PATIENCE
        while any(tmp_path.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(tmp_path.iterdir())
        assert "have been deleted" in refused(client.get(str(page.url)), 404)
    with running(index) as address, httpx.Client(base_url=address, timeout=PATIENCE) as client:
        for _ in range(9):  # the oldest makes room
            scored(client, "a.csv", b"admission_id,codes\n1,I509\n")
        assert len(list(tmp_path.iterdir())) == 8
    assert not any(tmp_path.iterdir())  # closing deletes what is left


# --- the command


@contextlib.contextmanager
def serving(model: Path, *options: str, **environment: str):
    command = [sys.executable, "-m", "mlci", "serve", str(model), "--port", "0", *options]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )
    try:
        line = process.stdout.readline()
        yield process, re.search(r"http://\S+?:\d+", line)[0] if line else ""
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def model_file(index, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "m.safetensors"
    index.save(path)
    return path


def test_a_kill_leaves_no_file_and_logs_hold_no_codes(model_file, tmp_path):
    """A server that other machines can reach prints a warning."""
    content = b"admission_id,codes\n" + b"".join(b"secret%d,I50.9 N17.9\n" % i for i in range(60_000))
    with serving(model_file, "--host", "0.0.0.0", TMPDIR=str(tmp_path)) as (process, address):
        address = address.replace("0.0.0.0", "127.0.0.1")
        asked = httpx.get(f"{address}/", params={"codes": "N17.9 I50.9", "q": "heart"}, timeout=PATIENCE)
        assert asked.status_code == 200
        httpx.get(f"{address}/nothing?codes=N17.9", timeout=PATIENCE)
        httpx.post(f"{address}/files", files={"file": ("secret.csv", content)}, timeout=PATIENCE)
        assert any(path.is_file() for path in tmp_path.rglob("*"))
        process.send_signal(signal.SIGKILL)
        output = "".join(process.communicate())
        deadline = time.monotonic() + PATIENCE
        while any(tmp_path.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(tmp_path.iterdir())
    assert "warning: 0.0.0.0 can be reached from other machines" in output
    assert not re.search("N17|I50|secret|heart", output)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stopped_server_prints_no_traceback(model_file, tmp_path, number):
    with serving(model_file, TMPDIR=str(tmp_path)) as (process, address):
        assert httpx.get(f"{address}/", timeout=PATIENCE).status_code == 200
        process.send_signal(number)
        output = "".join(process.communicate())
    assert process.returncode == 128 + number
    assert output.strip() in ("", "mlci: stopped.")
    assert not any(tmp_path.iterdir())


def test_a_server_that_ignores_hangups_goes_on(model_file, tmp_path):
    """As with nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the server inherits it
    try:
        with serving(model_file, TMPDIR=str(tmp_path)) as (process, address):
            process.send_signal(signal.SIGHUP)
            time.sleep(0.5)  # the server looks for signals ten times a second
            assert httpx.get(f"{address}/", timeout=PATIENCE).status_code == 200
            process.kill()
            process.communicate()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_taken_port_is_one_sentence(mlci_cli, model_file):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = mlci_cli("serve", model_file, "--port", taken.getsockname()[1], code=2)
    assert "choose another --port" in done.stderr


def test_the_application_can_be_made_without_a_server(index):
    paths = create_app(index).openapi()["paths"]
    assert set(paths) == {"/api/score", "/api/model", "/api/codes"}


@pytest.mark.parametrize("version", icd.VERSIONS)
def test_clinical_indices_are_those_of_the_command(version):
    rng, codes = np.random.default_rng(version), icd.all_codes(version).to_pylist()
    odd = ["I50", "E11", "250", "4280X", "I509ZZ", "XXXX", "C7B8"]  # headings, other editions, nothing
    lists = [[*rng.choice(codes, rng.integers(0, 12)), *rng.choice(odd, rng.integers(0, 3))] for _ in range(300)]
    admissions = as_admissions(lists, icd_version=version)
    found, expected = clinical(admissions), Coder().scores(admissions, list(INDICES.values()))
    for name, column in INDICES.items():
        assert [both[name].score for both in found] == expected[column].tolist()
    [both] = clinical(as_admissions([["E112", "E119", "I509", "I509"]], icd_version=10))
    assert [(category.words, category.codes) for category in both["charlson"].categories] == [
        ("congestive heart failure", ["I509"]),
        ("diabetes with chronic complication", ["E112"]),
    ]


MANY = {"admissions": [["I509"]] * 11}


@pytest.mark.parametrize(
    ("module", "slowed", "ask"),
    [
        (_pages, "read_case", lambda web: web.get("/", params={"codes": "heart failure"})),
        (_pages, "read_case", lambda web: web.get("/compare", params={"a": "heart failure", "b": "sepsis"})),
        (_api, "answers", lambda web: web.post("/api/score", json=MANY)),
        (_api, "search", lambda web: web.get("/api/codes", params={"q": "heart failure"})),
    ],
    ids=["page", "comparison", "scores", "codes"],
)
def test_requests_take_turns_and_all_are_answered(web, monkeypatch, module, slowed, ask):
    lock, inside, most, work = threading.Lock(), 0, 0, getattr(module, slowed)

    def slow(*args, **said) -> object:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        time.sleep(0.02)
        with lock:
            inside -= 1
        return work(*args, **said)

    monkeypatch.setattr(module, slowed, slow)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: ask(web).status_code, range(8)))
    assert found == [200] * 8
    assert most <= AT_ONCE


def test_who_asks_little_does_not_wait_for_those_who_ask_much(web, monkeypatch):
    go_on, work = threading.Event(), _api.answers

    def held(index, lists, **said):
        if len(lists) == len(MANY["admissions"]):
            assert go_on.wait(PATIENCE)
        return work(index, lists, **said)

    monkeypatch.setattr(_api, "answers", held)
    with ThreadPoolExecutor(5) as pool:
        large = [pool.submit(web.post, "/api/score", json=MANY) for _ in range(5)]
        small = [
            web.post("/api/score", json={"admissions": [["I509"]], "explain": True}),
            web.get("/api/codes", params={"q": "heart failure"}),
            web.get("/", params={"codes": "I509 heart failure"}),
        ]
        assert not any(asked.done() for asked in large)
        go_on.set()
        assert [answer.status_code for answer in [*small, *(asked.result() for asked in large)]] == [200] * 8


def test_codes_of_all_admissions_are_looked_up_once_to_explain_them(index, monkeypatch):
    found = []
    monkeypatch.setattr("mlci.codes.icd.titles", lambda codes, version: found.extend(codes) or [None] * len(codes))
    answers(index, [[code, "I509"] for code in REAL], icd_version=10, explain=True)
    assert sorted(found) == sorted(REAL)


@pytest.mark.parametrize(
    ("asked", "at_once"),
    [
        ({"codes": "I50.9, N17.9;I10"}, True),
        ({"codes": ""}, True),
        ({"codes": "I50.9", "plus": "J96.01"}, True),
        ({"codes": "I50.9", "plus": "sepsis"}, False),
        ({"codes": "I50.9 heart failure"}, False),
        ({"codes": "I50.9", "q": "sepsis"}, False),
        ({"codes": " ".join(["I50.9"] * 100)}, False),
        ({"codes": "1" * 500}, False),
        ({"admissions": [["I50.9"] * 20] * 10}, True),
        ({"admissions": [["I50.9"] * 201]}, False),
        (MANY, False),
    ],
    ids=lambda asked: str(asked)[:60],
)
def test_few_codes_are_answered_at_once_and_long_requests_block_no_others(index, monkeypatch, asked, at_once):
    threads = []

    def noted(work: Callable) -> Callable:
        return lambda *args, **said: threads.append(threading.get_ident()) or work(*args, **said)

    monkeypatch.setattr(_pages, "read_case", noted(_pages.read_case))
    monkeypatch.setattr(_api, "answers", noted(_api.answers))

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(create_app(index))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await (
                client.post("/api/score", json=asked) if "admissions" in asked else client.get("/", params=asked)
            )

    assert asyncio.run(ask()).status_code == 200
    assert (threads[0] == threading.get_ident()) == at_once
