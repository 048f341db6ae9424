"""Take the pictures of docs/page.md: `python docs/screenshots.py model.safetensors`, with Chromium installed."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).parent / "images"
CASE = "codes=I50.9+N17.9+E11.9+J96.01+A41.9"
SHOTS = {  # name -> address, width, height, scheme
    "case": (f"/?{CASE}", 1000, 1130, "light"),
    "codes": (f"/?{CASE}#h-codes", 1000, 640, "light"),
    "search": ("/?codes=I50.9&q=heart+failure", 1000, 640, "light"),
    "what-if-phone-dark": (f"/?{CASE}&off=N179", 375, 1250, "dark"),
    "file": ("/files", 1000, 640, "light"),
    "model": ("/model", 1000, 760, "light"),
}


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
                page.goto(path)
                if name == "file":
                    rows = "".join(f"{i},I50.9 N17.9 E11.9\n{i + 1},I10 E78.5\n" for i in range(1, 40, 2))
                    content = f"admission_id,codes\n{rows}".encode()
                    file = {"name": "admissions.csv", "mimeType": "text/csv", "buffer": content}
                    page.get_by_label("Drop a file here").set_input_files(file)
                    page.get_by_role("button", name="Score the file").click()
                    page.get_by_role("link", name="Fetch").wait_for()
                page.screenshot(path=IMAGES / f"{name}.png")
            browser.close()
    finally:
        server.terminate()
        server.wait()
    from PIL import Image

    for path in IMAGES.glob("*.png"):  # a page has few colours
        Image.open(path).convert("RGB").quantize(64).save(path, optimize=True)


if __name__ == "__main__":
    main(sys.argv[1])
