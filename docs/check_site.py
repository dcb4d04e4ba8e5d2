"""Refuses a built site whose pages would load anything from elsewhere: `make docs` runs it.

    python docs/check_site.py site

Links that a reader may click are fine; scripts, styles, images, fonts, frames and forms are not. What a script would load by
itself cannot be seen in the page: the scripts of the theme are searched for the addresses of the two that it knows
(a polyfill for browsers without ResizeObserver, and mermaid, which no page of ours uses).
"""

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

LOADING = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "embed": "src",
    "object": "data",
    "form": "action",
    "use": "href",
    "image": "href",
}
"""Tag -> the attribute that makes a browser fetch something."""

FETCHED_LINKS = {"stylesheet", "preload", "prefetch", "preconnect", "dns-prefetch", "modulepreload", "icon", "manifest"}
KNOWN_IN_SCRIPTS = {"unpkg.com/resize-observer-polyfill", "unpkg.com/mermaid@11/dist/mermaid.min.js"}
"""Loaded by the theme only in browsers that are too old, and only for pages with mermaid diagrams."""

_FOREIGN = re.compile(r"^\s*(?:https?:)?//", re.IGNORECASE)
_CSS = re.compile(r"""(?:url\(\s*|@import\s+)["']?\s*((?:https?:)?//[^"')\s]+)""", re.IGNORECASE)
_SCRIPT = re.compile(r"https?://((?:unpkg\.com|cdn\.|[\w.-]*jsdelivr|[\w.-]*googleapis|[\w.-]*cloudflare)[^\"'`\s)]*)")


class _Loads(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._in: str = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self._in = tag
        address = given.get(LOADING.get(tag, ""), "")
        if tag == "link" and set(given.get("rel", "").split()) & FETCHED_LINKS:
            address = given.get("href", "")
        addresses = [address, *(part.split()[0] for part in given.get("srcset", "").split(",") if part.split())]
        self.found += [f"<{tag}> {one}" for one in addresses if _FOREIGN.match(one)]
        self.found += [f"style of <{tag}> {one}" for one in _CSS.findall(given.get("style", ""))]
        if "mermaid" in given.get("class", "").split():
            self.found.append("a mermaid diagram, which the theme draws with a script from elsewhere")

    def handle_data(self, data: str) -> None:
        if self._in == "style":
            self.found += [f"<style> {one}" for one in _CSS.findall(data)]


def foreign(site: Path) -> Iterator[str]:
    """What the pages, styles and scripts of a site would load from elsewhere, one line each."""
    for path in sorted(site.rglob("*")):
        if path.suffix == ".html":
            page = _Loads()
            page.feed(path.read_text(encoding="utf-8"))
            yield from (f"{path.relative_to(site)}: {one}" for one in page.found)
        elif path.suffix == ".css":
            yield from (f"{path.relative_to(site)}: {one}" for one in _CSS.findall(path.read_text(encoding="utf-8")))
        elif path.suffix == ".js":
            found = set(_SCRIPT.findall(path.read_text(encoding="utf-8"))) - KNOWN_IN_SCRIPTS
            yield from (f"{path.relative_to(site)}: {one}" for one in sorted(found))


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    if not (folder / "index.html").is_file():
        sys.exit(f"{folder} holds no index.html: build the site first (make docs)")
    problems = list(foreign(folder))
    for problem in problems:
        print(problem, file=sys.stderr)
    sys.exit(f"{len(problems)} things would be loaded from elsewhere" if problems else 0)
