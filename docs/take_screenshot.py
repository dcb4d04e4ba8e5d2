"""Takes the pictures of the README and the first page again, in headless chromium: `make screenshot`.

    python docs/take_screenshot.py            # docs/images/report.png, from a run that it makes
    python docs/take_screenshot.py --site     # site-375.png and site-1280.png of the built site, into a temporary folder

The report is real: the run of the tutorial, decided and reported by `fedgt run` and `fedgt report`.
"""

import argparse
import functools
import http.server
import io
import shutil
import sys
import tempfile
import threading
from pathlib import Path

HERE = Path(__file__).parent
REPORT = HERE / "images" / "report.png"
LARGEST = 300_000
SPEC = {
    "seed": 2,
    "privacy": 4,
    "federation": {"rounds": 10},
    "training": {"learning_rate": 0.05, "batch_size": 8, "local_epochs": 5},
    "attack": {"kind": "label-flip", "malicious": 4, "source": 9, "target": 3},
}


def shoot(address: str, target: Path, *, width: int, height: int) -> None:
    """One picture of the top of a page, in light colours; what the page would load from elsewhere is refused.

    Raises:
        SystemExit: If there is no chromium, an error on the console, a request to elsewhere, or a page wider than the view.
    """
    from playwright.sync_api import sync_playwright

    browser_path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser_path is None:
        sys.exit("no chromium on PATH; it is needed for the pictures only")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        view = browser.new_page(viewport={"width": width, "height": height}, color_scheme="light")
        problems: list[str] = []
        view.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
        view.on("pageerror", lambda error: problems.append(str(error)))
        view.on("request", lambda sent: problems.append(sent.url) if not _own(sent.url) else None)
        view.goto(address)
        view.wait_for_timeout(800)
        if view.evaluate("document.documentElement.scrollWidth") > width:
            problems.append(f"the page is wider than {width} px")
        view.screenshot(path=str(target))
        browser.close()
    if problems:
        sys.exit(f"{address}: " + "; ".join(problems))


def _own(address: str) -> bool:
    return address.startswith(("file:", "data:", "blob:", "http://127.0.0.1:"))


def take_report() -> None:
    """docs/images/report.png."""
    from fedgt.experiment import make_spec, run_into
    from fedgt.report import write_report

    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        run_into(make_spec(SPEC), run)
        write_report(run)
        REPORT.parent.mkdir(exist_ok=True)
        shoot((run / "report.html").resolve().as_uri(), REPORT, width=1280, height=1480)
    _shrink(REPORT)
    if REPORT.stat().st_size > LARGEST:
        sys.exit(f"{REPORT} has {REPORT.stat().st_size} bytes, more than {LARGEST}")
    print(f"{REPORT}: {REPORT.stat().st_size} bytes")


def _shrink(picture: Path) -> None:
    """A palette of 128 colours is enough for a page of text; Pillow comes with matplotlib."""
    from PIL import Image

    with Image.open(picture) as image:
        small = io.BytesIO()
        image.convert("RGB").quantize(128).save(small, "PNG", optimize=True)
    picture.write_bytes(small.getvalue())


def take_site() -> None:
    """The first page of the built site, on a telephone and on a desk."""
    first = HERE.parent / "site" / "index.html"
    if not first.is_file():
        sys.exit("site/index.html is not there: make docs")
    folder = Path(tempfile.mkdtemp(prefix="fedgt-site-"))
    handler = functools.partial(_Quiet, directory=str(first.parent))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for width, height in ((375, 1900), (1280, 1500)):
            address = f"http://127.0.0.1:{server.server_port}/index.html"
            shoot(address, folder / f"site-{width}.png", width=width, height=height)
        server.shutdown()
    print(folder)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--site", action="store_true", help="the first page of the built site instead")
    take_site() if arguments.parse_args().site else take_report()
