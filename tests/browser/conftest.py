"""A real server and a real Chromium, which watch each other."""

from __future__ import annotations

import shutil
import signal
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("web", "report")]

from web_samples import HOSTILE_RUN, start_server, write_run_record

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def served(tmp_path_factory, tiny_study):
    """A folder with a finished study and a hostile run; trainings can be started in it."""
    folder = tmp_path_factory.mktemp("browser") / "runs"
    shutil.copytree(tiny_study, folder / "small")
    write_run_record(folder / HOSTILE_RUN, kind="<script>alert(2)</script>")
    return folder


@pytest.fixture(scope="session")
def address(served, start_process):
    """`wherefrom serve` as a user starts it."""
    server, port = start_server(start_process, served)
    yield f"http://127.0.0.1:{port}"
    server.send_signal(signal.SIGINT)
    _, rest = server.communicate(timeout=30)
    assert "Traceback" not in rest, rest


@pytest.fixture(scope="session")
def chromium():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("there is no Chromium here; on Debian: apt install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium):
    """Opens a page in a context with these options; at the end nothing was complained of.

    Only this machine may have been asked for anything.
    """
    contexts, said = [], []

    def look(request):
        where = urlsplit(request.url)
        if where.scheme not in ("data", "file") and where.hostname != "127.0.0.1":
            said.append(request.url)

    def begin(url, **options):
        contexts.append(chromium.new_context(**options))
        page = contexts[-1].new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda problem: said.append(str(problem)))
        page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
        page.on("request", look)
        page.goto(url)  # until everything has come: the deferred scripts have drawn by then
        return page

    yield begin
    for context in contexts:
        context.close()
    assert said == []


@pytest.fixture
def visit(open_page, address):
    """Opens an address of the served page."""
    return lambda path, **options: open_page(path, base_url=address, **options)
