"""The docs as a site that loads nothing from elsewhere; the people in its examples are there."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser

import click
from test_docs import DOCS, PAGES, README, ROOT, command_lines

from wherefrom.cli import cli, overview


def test_people_who_are_asked_about_are_those_of_make_study():
    """A reader copies these questions right after `make study`: seed 0, 3,000 people."""
    from wherefrom.corpus.world import make_world

    world = make_world(3000, 0)
    dev = {person.subject for person in world.people if person.split == "dev"}
    text = "".join(document.text for document in world.documents)
    known = set()
    lines = [overview(), cli.get_command(click.Context(cli), "ask").help or ""]  # type: ignore[union-attr]
    for page in [README, DOCS / "getting-started.md", DOCS / "teaching.md"]:
        lines += command_lines(page.read_text("utf-8"))
    for line in lines:
        if "runs/mine" not in line:
            known |= set(re.findall(r'Where was (.+?) born|--without "(.+?)"', line))
    assert {one or other for one, other in known} - dev == {"Tibor Ashdown"}
    assert "Tibor Ashdown" not in text


class Loads(HTMLParser):
    """Collects all that a page makes a browser load."""

    def __init__(self):
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag not in ("a", "meta"):
            self.found += [given[key] or "" for key in ("src", "href", "data") if key in given]


def test_the_site_builds_is_whole_and_loads_nothing_from_elsewhere(tmp_path):
    site = tmp_path / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert {page.stem for page in PAGES} <= {page.stem for page in site.glob("*.html")}
    assert not list(site.rglob("*.py"))
    for page in site.glob("*.html"):
        text = page.read_text("utf-8")
        parser = Loads()
        parser.feed(text)
        for link in parser.found:
            assert not re.match(r"(?:[a-z]+:)?//", link), f"{page.name} loads {link}"
            if page.name != "404.html" and not link.startswith(("#", "data:")) and link != ".":
                assert (page.parent / re.split("[?#]", link)[0]).exists(), link
        text = re.sub(r"<pre>.*?</pre>", "", text, flags=re.DOTALL)
        assert not re.search(r"<p>[^<]*\n- ", text), page.name
        assert "|---" not in text, page.name
    for sheet in site.rglob("*.css"):
        assert not re.findall(r"url\(\s*['\"]?(?:https?:)?//[^)]*\)|@import", sheet.read_text())
