"""A real server and a real Chromium, which watch each other."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from wherefrom.storage import read_json
from wherefrom.web.jobs import birth_of

sys.path.append(str(Path(__file__).parents[1] / "web"))

from web_samples import write_record

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HOSTILE_RUN = "x'\"><img src=x onerror=alert(1)>"


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory, tiny_study: Path) -> Iterator[Path]:
    """A folder with a finished study and a hostile run; trainings can be started in it."""
    folder = tmp_path_factory.mktemp("browser") / "runs"
    shutil.copytree(tiny_study, folder / "small")
    write_record(folder / HOSTILE_RUN, kind="study", status="<script>alert(2)</script>")
    yield folder
    for path in (folder / ".wherefrom").glob("*.json"):  # what a failed test left running
        known = read_json(path)
        if birth_of(known["pid"]) == known["born"]:
            os.kill(known["pid"], signal.SIGKILL)


@pytest.fixture(scope="session")
def address(served: Path, start_process: Callable[..., subprocess.Popen[str]]) -> Iterator[str]:
    """`wherefrom serve` as a user starts it."""
    server = start_process("serve", served, "--port", "0")
    assert server.stderr is not None
    said = server.stderr.readline()
    found = re.search(r"http://127\.0\.0\.1:\d+", said)
    assert found is not None, said
    yield found[0]
    server.send_signal(signal.SIGINT)
    _, rest = server.communicate(timeout=30)
    assert "Traceback" not in rest, rest


@pytest.fixture(scope="session")
def chromium() -> Iterator[object]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("there is no Chromium here; on Debian: apt install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


class Visit:
    """One page in one browser, with a record of everything it complained about or asked for."""

    def __init__(self, browser, address: str, **options) -> None:
        self.context = browser.new_context(base_url=address, **options)
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.elsewhere: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda problem: self.said.append(str(problem)))
        self.page.on("dialog", self._heard)
        self.page.on("request", self._asked)

    def go(self, path: str):
        self.page.goto(path)  # until everything has come: the deferred scripts have drawn by then
        return self.page

    def _heard(self, dialog) -> None:
        self.said.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _asked(self, request) -> None:
        where = urlsplit(request.url)
        if where.scheme != "data" and where.hostname != "127.0.0.1":
            self.elsewhere.append(request.url)


@pytest.fixture
def visit(chromium, address: str) -> Iterator[Callable[..., Visit]]:
    """A new visit; at the end nothing may have been complained of or asked for elsewhere."""
    visits: list[Visit] = []

    def begin(**options) -> Visit:
        visits.append(Visit(chromium, address, **options))
        return visits[-1]

    yield begin
    for each in visits:
        each.context.close()
        assert each.said == []
        assert each.elsewhere == []
