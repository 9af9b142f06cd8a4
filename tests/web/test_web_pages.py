"""Every page and its JSON twin, what they say when there is nothing, and hostile input."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from web_samples import HOSTILE, HOSTILE_RUN, JOB, MODEL, PAGE, open_client, write_run_record

from wherefrom.report.study_report import as_data
from wherefrom.web.app import create_app
from wherefrom.web.replies import TEMPLATES, maths

CHECKS = (
    not_a_server_error,
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
PAGES = [
    "/ask",
    "/workbench",
    "/workbench/copy",
    "/inside",
    "/runs",
    "/run?name=small",
    "/report",
    "/compare?run=small&run=small/twins/scratch",
]


def json_of(address):
    path, mark, query = address.partition("?")
    return f"{path}.json{mark}{query}"


@pytest.mark.parametrize("address", PAGES)
def test_every_page_has_its_json_and_can_be_read_aloud(client, address):
    reply, record = client.get(address, headers=PAGE), client.get(json_of(address))
    assert (reply.status_code, record.status_code) == (200, 200), reply.text + record.text
    path = json_of(address).partition("?")[0].replace("/copy", "/{name}")
    assert path in client.get("/openapi.json").json()["paths"]
    page = reply.text
    assert '<html lang="en">' in page
    assert page.count("<h1>") == 1
    assert '<a class="skip" href="#main">' in page
    labels = set(re.findall(r'<label for="([^"]+)"', page))
    for field in re.findall(r"<(?:input|select|textarea)([^>]*)>", page):
        if "hidden" not in field and "aria-label" not in field:
            identity = re.search(r'\bid="([^"]+)"', field)
            assert identity is not None, field
            assert identity[1] in labels, field
    for drawing in re.findall(r"<svg([^>]*)>", page):
        assert "aria-label" in drawing or 'class="bar"' in drawing, drawing
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
def test_no_request_that_the_description_allows_or_forbids_is_a_failure_of_ours(served, mode):
    # one run is served, so that no training can be started by chance
    us, app = {"Host": "127.0.0.1"}, create_app(served / "small")
    schema = schemathesis.openapi.from_asgi("/openapi.json", app, headers=us)
    asked = []
    for found in schema.get_all_operations():
        operation = found.ok()

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(
            max_examples=6,
            deadline=None,
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def keeps_its_promise(case):
            case.call_and_validate(checks=CHECKS, headers=us)

        if mode is GenerationMode.POSITIVE or operation.query or operation.body:
            keeps_its_promise()
            asked.append(operation.path)
    assert len(asked) >= 8


def test_a_folder_without_runs_says_what_to_do(tmp_path):
    client = open_client(tmp_path)
    for address in ("/ask", "/inside", "/runs", "/report", "/workbench", "/compare"):
        reply = client.get(address, headers=PAGE)
        assert reply.status_code == 200
        assert 'href="/runs' in reply.text
        assert client.get(json_of(address)).status_code == 200


def test_the_start_leads_to_ask_and_other_methods_nowhere(client):
    reply = client.get("/", follow_redirects=False)
    assert (reply.status_code, reply.headers["location"]) == (307, "/ask")
    reply = client.delete("/runs.json")
    assert (reply.status_code, set(reply.json())) == (405, {"error"})


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("/nowhere", 404),
        ("/workbench/nothing", 404),
        ("/run?name=nothing", 404),
        ("/ask?run=nothing", 404),
        ("/inside?run=small&other=nothing&question=Ann", 404),
        ("/run", 422),
        ("/workbench?beta=nan", 422),
        ("/workbench?n=1", 422),
        ("/static/../app.py", 404),
        ("/static/%2e%2e/app.py", 404),
    ],
)
def test_errors_have_one_shape_and_one_page(client, address, status):
    as_program = client.get(address, headers={"Accept": "application/json"})
    assert as_program.status_code == status
    assert set(as_program.json()) == {"error"}
    as_person = client.get(address, headers=PAGE)
    assert as_person.status_code == status
    assert 'role="alert"' in as_person.text
    if address == "/workbench?n=1":
        sentence = "it should be greater than or equal to 2; it was '1'."
        assert as_program.json()["error"] == f'Something is wrong with "n": {sentence}'


def test_hostile_names_of_runs_are_escaped_on_every_page(tmp_path):
    row = {"name": HOSTILE, "about": HOSTILE, "recall": 0.5, "correct": 1, "total": 2}
    folder = write_run_record(
        tmp_path / HOSTILE_RUN,
        kind=HOSTILE,
        command=["w", "study", HOSTILE],
        results=[row | {"name": "model"}, row],
        templates=[HOSTILE],
        started=HOSTILE,
        data={HOSTILE: {"path": HOSTILE, "relative_path": HOSTILE, "sha256": HOSTILE}},
        versions={HOSTILE: HOSTILE},
        job=JOB | {"model": MODEL | {"variant": HOSTILE}},
    )
    point = {"phase": HOSTILE, "step": 1, "loss": 1.0, "seconds": 1.0, "progress": 0.1}
    (folder / "metrics.jsonl").write_text(json.dumps(point) + "\n")
    (folder / "model.safetensors").write_bytes(b"no weights")
    client = open_client(tmp_path)
    for path, key in (
        ("/runs", None),
        ("/run", "name"),
        ("/compare", "run"),
        ("/report", "run"),
        ("/ask", "run"),
        ("/inside", "run"),
    ):
        page = client.get(path, params={key: HOSTILE_RUN} if key else None, headers=PAGE)
        assert page.status_code in (200, 400), page.text
        assert not re.search("<img|<script>alert|\nonerror", page.text)


def test_what_a_visitor_types_and_what_a_text_holds_is_escaped(client):
    for address in (
        f"/ask?run=small&question={HOSTILE}",
        f"/inside?run=small&question={HOSTILE}",
        f"/workbench/copy?formulas={HOSTILE}",
        f"/run?name={HOSTILE}",
        f"/{HOSTILE}",
    ):
        assert "<script>alert" not in client.get(address, headers=PAGE).text, address
    page = client.post("/ask/batch", data={"run": "small", "text": HOSTILE}, headers=PAGE).text
    assert "<script>alert" not in page
    pieces = [{"kind": "", "text": "<b>"}, {"kind": "name", "text": "<i>"}]
    made = str(TEMPLATES.get_template("sections.html").module.pieces(pieces))
    assert made == '&lt;b&gt;<mark class="name">&lt;i&gt;</mark>'
    for name in TEMPLATES.list_templates(extensions=["html"]):
        source, _, _ = TEMPLATES.loader.get_source(TEMPLATES, name)
        assert not re.search(r"\|\s*safe\b|autoescape|Markup", source), name


def test_data_for_scripts_cannot_end_its_block():
    value = {"</script><script>": "<!-- & \u2028"}
    assert not set("<>&\u2028") & set(as_data(value))
    assert json.loads(as_data(value)) == value


@given(st.text())
def test_mathematics_is_set_and_escapes_what_it_is_given(text):
    assert not set("<>") & set(re.sub(r"</?(?:i|sub|sup)>", "", maths(text)))
    well = "<i>k</i><sub>a</sub> · q ≥ β<sup>2</sup> <i>μ</i><sub>i</sub>"
    assert maths("k_a . q >= beta^2 mu_i") == maths("k_a.q >= beta^2 mu_i") == well


@given(question=st.text(max_size=400), run=st.sampled_from(["small", "small/twins/scratch", "x"]))
@settings(max_examples=12, suppress_health_check=list(HealthCheck))
def test_no_question_is_a_failure_of_ours(client, question, run):
    for path in ("/ask", "/inside"):
        reply = client.get(path, params={"run": run, "question": question}, headers=PAGE)
        assert reply.status_code < 500, (path, reply.text)


def test_loading_the_page_does_not_read_the_drawing_library():
    code = (
        "import sys\n"
        "opened = []\n"
        "sys.addaudithook(lambda event, args: event == 'open' and opened.append(str(args[0])))\n"
        "import wherefrom.web.app\n"
        "print(len(opened), *(name for name in opened if name.endswith('.js')))"
    )
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )
    count, *scripts = done.stdout.split()
    assert int(count) > 100
    assert scripts == []
