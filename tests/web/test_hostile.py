"""Hostile clients: half-open connections, foreign pages, zip bombs, truncated uploads, cells with formulas."""

import contextlib
import io
import socket
import time
from urllib.parse import urlsplit

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xlsxwriter

from conftest import PATIENCE
from mlci.web import _protocol
from webserver import running, toy_index

pytestmark = pytest.mark.xdist_group("web")


@pytest.fixture(scope="module")
def web():
    with running(toy_index()) as address, httpx.Client(base_url=address, timeout=PATIENCE) as client:
        yield client


def sent(web, name, content, *, kind="csv"):
    """The address of a file's scores, once they are made or refused."""
    job = web.post("/files", files={"file": (name, content)}, data={"kind": kind}).headers["location"]
    deadline = time.monotonic() + PATIENCE
    while "http-equiv" in (page := web.get(job).text) and time.monotonic() < deadline:
        time.sleep(0.02)
    return job, page


def test_a_foreign_page_may_send_nothing(web):
    body = {"admissions": [["I509"]]}
    own = f"http://{urlsplit(str(web.base_url)).netloc}"
    for foreign in (
        "https://evil.example",
        "null",
        "http://127.0.0.1:1",
        own.replace("http", "ftp") + "0",
        "http://[::1",
        "x",
    ):
        assert web.post("/api/score", json=body, headers={"origin": foreign}).status_code == 403
        assert web.post("/files", files={"file": ("a.csv", b"x")}, headers={"origin": foreign}).status_code == 403
    assert web.post("/api/score", json=body, headers={"origin": own}).status_code == 200
    assert web.post("/api/score", json=body, headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert web.post("/api/score", json=body).status_code == 200


def test_a_part_of_the_scores_leaves_the_whole(web):
    job, _ = sent(web, "a.csv", b"admission_id,codes\n1,I509\n2,N179\n")
    part = web.get(f"{job}/scores", headers={"range": "bytes=0-9"})
    assert part.status_code == 206
    whole = web.get(f"{job}/scores")
    assert whole.status_code == 200
    assert whole.content.startswith(part.content)
    assert web.get(f"{job}/scores").content == whole.content  # kept while its page is open


def test_bad_files_take_no_place(web):
    for _ in range(12):
        _, page = sent(web, "a.csv", b"\xff\xfe\x00")
        assert "a.csv" in page
    job, _ = sent(web, "a.csv", b"admission_id,codes\n1,I509\n")
    assert web.get(f"{job}/scores").status_code == 200


def test_a_cell_that_is_a_formula_leaves_as_text(web):
    cells = ["=cmd()", "+1", "-1", "@SUM(A1)", "plain"]
    text = "admission_id,codes\n" + "".join(f'"{cell}",I509\n' for cell in cells)
    job, _ = sent(web, "a.csv", text.encode())
    lines = web.get(f"{job}/scores").text.splitlines()[1:]
    assert [line.split(",")[0].strip('"') for line in lines] == ["'=cmd()", "'+1", "'-1", "'@SUM(A1)", "plain"]


def test_a_small_file_that_holds_a_huge_cell_is_refused_unread(web):
    bomb = io.BytesIO()
    table = pa.table({"admission_id": [1], "codes": [["A" * 40_000_000]]})
    pq.write_table(table, bomb, compression="zstd")
    assert len(bomb.getvalue()) < 20_000
    del table
    before = pa.default_memory_pool().bytes_allocated()
    _, page = sent(web, "a.parquet", bomb.getvalue())
    assert "holds cells of more than 1,000 characters" in page
    assert pa.default_memory_pool().bytes_allocated() - before < 1_000_000


def test_a_small_workbook_that_would_fill_the_memory_is_refused_unread(web):
    book = io.BytesIO()
    with xlsxwriter.Workbook(book) as made:
        sheet = made.add_worksheet()
        sheet.write_row(0, 0, ["admission_id", "codes"])
        sheet.write_row(1_048_575, 16_382, ["x", "x"])
    assert len(book.getvalue()) < 10_000
    _, page = sent(web, "a.xlsx", book.getvalue())
    assert "a.xlsx: 4 cells lie in 1,048,576 rows and 16,384 columns; save the table as CSV." in page


def test_connections_that_never_ask_make_room(monkeypatch):
    monkeypatch.setattr(_protocol, "MOST_CONNECTIONS", 20)
    monkeypatch.setattr(_protocol, "HEADER_SECONDS", 5.0)  # longer than a client takes to ask
    with running(toy_index()) as address, contextlib.ExitStack() as stack:
        place = ("127.0.0.1", urlsplit(address).port)
        open_ = [stack.enter_context(socket.create_connection(place, PATIENCE)) for _ in range(60)]
        for one in open_[30:]:
            with contextlib.suppress(OSError):
                one.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
        assert httpx.get(f"{address}/api/model", timeout=PATIENCE).status_code == 200
        for one in open_:
            with contextlib.suppress(ConnectionResetError):
                assert one.recv(1) == b""  # closed, sooner or later
