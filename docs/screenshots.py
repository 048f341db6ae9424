"""Take the pictures of docs/page.md: `python docs/screenshots.py us2010`, with Chromium installed."""

import re
import shutil
import subprocess
import sys
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
SOME = (
    "I50.9 N17.9 E11.9",
    "I10 E78.5",
    "A41.9 R65.21 J96.01",
    "M17.11 I10",
    "I63.9 I48.91 I10",
    "sepsis",
    "J18.9 J44.1",
)


def main(model: str) -> None:
    command = [sys.executable, "-m", "mlci", "serve", model, "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        address = re.search(r"http://[\d.:]+", server.stdout.readline())[0]
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            for name, (path, width, height, scheme) in SHOTS.items():
                size = {"width": width, "height": height}
                page = browser.new_page(base_url=address, viewport=size, color_scheme=scheme)
                page.emulate_media(media="print" if name == "print" else "screen")
                page.goto(path)
                if name == "file":
                    rows = "".join(f"{i},{SOME[i % len(SOME)]}\n" for i in range(1, 71))
                    content = f"admission_id,codes\n{rows}".encode()
                    file = {"name": "admissions.csv", "mimeType": "text/csv", "buffer": content}
                    page.get_by_label("Drop a file here").set_input_files(file)
                    page.get_by_role("button", name="Score the file").click()
                    page.get_by_role("link", name="Download").wait_for()
                page.screenshot(path=IMAGES / f"{name}.png")
            browser.close()
    finally:
        server.terminate()
        server.wait()
    from PIL import Image

    for path in (IMAGES / f"{name}.png" for name in SHOTS):  # a page has few colours
        Image.open(path).convert("RGB").quantize(64).save(path, optimize=True)


if __name__ == "__main__":
    main(sys.argv[1])
