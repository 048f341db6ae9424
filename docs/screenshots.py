"""Take the pictures of the page, the report, the card and hospitals compared, with Chromium installed.

    python docs/screenshots.py us2010 NHDS10.PU.txt.bz2

The first argument is the model of the page and of the compared hospitals. The second, the published file of NHDS 2010,
is for the other pictures; without it they are left as they are.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).parent / "images"
CASE = "icd=10&codes=I50.9+N17.9+E11.9+J96.01+A41.9+I10"
FOREIGN = "icd=10&codes=428.0,+I5O.9,+sepsis,+I10"
SHOTS = {  # name -> address, width, height, scheme
    "case": (f"/?{CASE}", 1000, 1290, "light"),
    "codes": (f"/?{CASE}#h-codes", 1000, 760, "light"),
    "not-understood": (f"/?{FOREIGN}", 1000, 820, "light"),
    "search": ("/?icd=10&codes=I50.9&q=heart+attack", 1000, 700, "light"),
    "compare": ("/compare?icd=10&a=I50.9+N17.9+I10&b=A41.9+R65.21+J96.01+N17.9", 1000, 900, "light"),
    "what-if-phone-dark": (f"/?{CASE}&off=N179", 375, 1300, "dark"),
    "print": (f"/?{CASE}", 794, 1123, "light"),
    "file": ("/files", 1000, 900, "light"),
    "model": ("/model#card", 1000, 1150, "light"),
}
WRITTEN = {  # name -> file, heading at the top, width, height, scheme
    "report": ("report.html", "", 1000, 600, "light"),
    "report-dark": ("report.html", "Risk along the score", 1000, 900, "dark"),
    "report-mismatch": ("mismatch.html", "", 1000, 420, "light"),
    "card": ("card.html", "", 1000, 980, "light"),
    "card-phone": ("card.html", "", 390, 800, "light"),
    "hospitals": ("compare.html", "", 1000, 1330, "light"),
}
COMMANDS = """
cohort nhds NHDS -o nhds.parquet
fit nhds.parquet -o nhds.safetensors
report nhds.safetensors nhds.parquet -o report.html
card nhds.safetensors nhds.parquet -o card.html
cohort synthetic 40000 --hospitals 40 -o hospitals.parquet
indices hospitals.parquet -o classic.parquet
score MODEL hospitals.parquet -o severity.parquet
compare hospitals.parquet severity.parquet classic.parquet --by hospital --outcome icu_transfer -o compare.html
report nhds.safetensors hospitals.parquet -o mismatch.html
"""
SOME = (
    "I50.9 N17.9 E11.9",
    "I10 E78.5",
    "A41.9 R65.21 J96.01",
    "M17.11 I10",
    "I63.9 I48.91 I10",
    "sepsis",
    "J18.9 J44.1",
)


def page(browser, model: str) -> None:
    """Picture the page that `mlci serve` shows."""
    command = [sys.executable, "-m", "mlci", "serve", model, "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        address = re.search(r"http://[\d.:]+", server.stdout.readline())[0]
        for name, (path, width, height, scheme) in SHOTS.items():
            size = {"width": width, "height": height}
            tab = browser.new_page(base_url=address, viewport=size, color_scheme=scheme)
            tab.emulate_media(media="print" if name == "print" else "screen")
            tab.goto(path)
            if name == "file":
                rows = "".join(f"{i},{SOME[i % len(SOME)]}\n" for i in range(1, 71))
                content = f"admission_id,codes\n{rows}".encode()
                file = {"name": "admissions.csv", "mimeType": "text/csv", "buffer": content}
                tab.get_by_label("Drop a file here").set_input_files(file)
                tab.get_by_role("button", name="Score the file").click()
                tab.get_by_role("link", name="Download").wait_for()
            tab.screenshot(path=IMAGES / f"{name}.png")
    finally:
        server.terminate()
        server.wait()


def written(browser, model: str, nhds: Path) -> None:
    """Picture files that commands write."""
    with tempfile.TemporaryDirectory() as folder:
        for line in COMMANDS.strip().replace("NHDS", str(nhds.resolve())).replace("MODEL", model).splitlines():
            subprocess.run([sys.executable, "-m", "mlci", *line.split(), "--quiet"], cwd=folder, check=True)
        for name, (file, heading, width, height, scheme) in WRITTEN.items():
            tab = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            tab.goto(f"file://{folder}/{file}")
            if heading:
                tab.get_by_role("heading", name=heading).evaluate("element => element.scrollIntoView()")
            tab.screenshot(path=IMAGES / f"{name}.png")


def main(model: str, nhds: str | None = None) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page(browser, model)
        if nhds:
            written(browser, model, Path(nhds))
        browser.close()
    from PIL import Image

    for path in (IMAGES / f"{name}.png" for name in [*SHOTS, *(WRITTEN if nhds else ())]):  # a page has few colours
        Image.open(path).convert("RGB").quantize(64).save(path, optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
