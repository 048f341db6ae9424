"""How fast the page answers: one person typing, and 50 clients at once.

`mlci serve` runs in a process of its own with a table of MIMIC-IV's size, then with a network of the paper's. Clients
keep their connections and send the next request after each answer. The style sheet, a file that needs no scoring, shows
what the server itself costs. Figures: answers a second, median and 99th percentile of the time to an answer, processor
milliseconds of the server for each answer and their ratio to those of the style sheet, errors, and the server's memory.
"""

import argparse
import asyncio
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import psutil

from score import DEPTHS, codes_in_use, paper_file, table_file, tokens_of

CLIENTS = 50
PAGES, SLOWEST = 200, 400  # pages a second, milliseconds of the 99th percentile


def requests(names: np.ndarray, rng: np.random.Generator) -> dict[str, list[bytes]]:
    """Different requests of each kind, so that caches do not help."""

    def admission() -> list[str]:
        return rng.choice(names, max(1, rng.poisson(13))).tolist()

    def post(admissions: int, *, explain: bool = False) -> bytes:
        body = json.dumps({"admissions": [admission() for _ in range(admissions)], "explain": explain}).encode()
        head = f"POST /api/score HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}"
        return head.encode() + b"\r\nContent-Type: application/json\r\n\r\n" + body

    def get(path: str, **query: object) -> bytes:
        return f"GET {path}?{urlencode(query, doseq=True)} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()

    words = ["heart failure", "diabetes", "acute kidney", "I50", "sepsis", "fracture of neck", "pneumonia"]
    kinds = {
        "style sheet": lambda: get("/static/page.css"),
        "page, 13 codes": lambda: get("/", codes=" ".join(admission())),
        "page, search by words": lambda: get("/", q=rng.choice(words)),
        "API, 1 admission": lambda: post(1),
        "API, 1 explained": lambda: post(1, explain=True),
        "API, 10 admissions": lambda: post(10),
        "API, 100 admissions": lambda: post(100),
        "API, 1,000 admissions": lambda: post(1000),
        "API, search by words": lambda: get("/api/codes", q=rng.choice(words)),
    }
    return {name: [make() for _ in range(64)] for name, make in kinds.items()}


async def client(port: int, asked: list[bytes], until: float, times: list[float], errors: list[str]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    turn = np.random.default_rng(id(reader)).integers(len(asked))
    while time.perf_counter() < until:
        start = time.perf_counter()
        writer.write(asked[turn % len(asked)])
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        await reader.readexactly(int(re.search(r"content-length: (\d+)", head)[1]))
        times.append(time.perf_counter() - start)
        turn += 1
        if " 200 " not in head.partition("\r\n")[0]:
            errors.append(head.partition("\r\n")[0])
    writer.close()


async def load(port: int, asked: list[bytes], clients: int, seconds: float) -> tuple[np.ndarray, float, int]:
    """Seconds to each answer, answers a second, errors."""
    times, errors, start = [], [], time.perf_counter()
    await asyncio.gather(*(client(port, asked, start + seconds, times, errors) for _ in range(clients)))
    return np.array(times), len(times) / (time.perf_counter() - start), len(errors)


def served(model: Path, kinds: dict[str, list[bytes]], seconds: float) -> dict[str, tuple[float, float]]:
    """Print a line for each kind of request and number of clients; return the rate and p99 with many clients."""
    command = [sys.executable, "-m", "mlci", "serve", str(model), "--port", "0"]
    server, reached, floor = subprocess.Popen(command, stdout=subprocess.PIPE, text=True), {}, 0.0
    try:
        port = int(re.search(r":(\d+)/", server.stdout.readline())[1])
        process = psutil.Process(server.pid)
        for name, asked in kinds.items():
            asyncio.run(load(port, asked, 1, 0.3))  # tables are read when first needed
            for clients in (1, CLIENTS):
                before = sum(process.cpu_times()[:2])
                times, rate, errors = asyncio.run(load(port, asked, clients, seconds))
                spent = 1e3 * (sum(process.cpu_times()[:2]) - before) / len(times)
                floor = floor or spent
                median, p99 = 1e3 * np.quantile(times, [0.5, 0.99])
                memory = process.memory_info().rss / 1e6
                cells = f"{clients:7} {rate:10,.0f} {median:10.1f} {p99:7.1f} {spent:7.2f} {spent / floor:6.1f}"
                print(f"{name:26} {cells} {errors:7} {memory:10,.0f}", flush=True)
                reached[name] = rate, p99
    finally:
        server.terminate()
        server.wait()
    return reached


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one second for each figure")
    seconds = 1 if parser.parse_args().quick else 5
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        names = codes_in_use(rng)
        table, network = Path(folder, "table.safetensors"), Path(folder, "network.safetensors")
        table_file(table, tokens_of(names, DEPTHS), rng)
        paper_file(network, tokens_of(names, (4,)))
        kinds = requests(names, rng)
        print("kind of request            clients  answers/s  median ms  p99 ms  cpu ms  ratio  errors  server MB")
        rate, p99 = served(table, kinds, seconds)["page, 13 codes"]
        print("by a network")
        served(network, {name: kinds[name] for name in ("style sheet", "page, 13 codes", "API, 1 explained")}, seconds)
    verdicts = {f"at least {PAGES} pages a second": rate >= PAGES, f"p99 of at most {SLOWEST} ms": p99 <= SLOWEST}
    for aim, met in verdicts.items():
        print(f"{CLIENTS} clients, page by a table, two idle cores, {aim}: {'met' if met else 'missed'}")


if __name__ == "__main__":
    main()
