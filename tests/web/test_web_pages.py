"""Every page and its JSON twin, what they say when there is nothing, and hostile input."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient
from web_samples import HOSTILE, LOCAL, PAGE, write_record

from wherefrom.report.render import as_data
from wherefrom.web.app import create_app
from wherefrom.web.replies import maths

PAGES = [
    "/ask",
    "/workbench",
    "/workbench/copy",
    "/inside",
    "/runs",
    "/run?name=small",
    "/compare?run=small&run=small/twins/scratch",
    "/report",
    "/api",
]


def json_of(address: str) -> str:
    path, mark, query = address.partition("?")
    return f"{path}.json{mark}{query}"


@pytest.mark.parametrize("address", PAGES)
def test_every_page_has_its_json_and_can_be_read_aloud(client: TestClient, address: str) -> None:
    reply, record = client.get(address, headers=PAGE), client.get(json_of(address))
    assert (reply.status_code, record.status_code) == (200, 200), reply.text + record.text
    assert reply.headers["content-type"].startswith("text/html")
    assert isinstance(record.json(), dict)
    path = json_of(address).partition("?")[0].replace("/copy", "/{name}")
    assert path in client.get("/openapi.json").json()["paths"]
    page = reply.text
    assert '<html lang="en">' in page
    assert page.count("<h1>") == 1
    assert '<a class="skip" href="#main">' in page
    labels = set(re.findall(r'<label for="([^"]+)"', page))
    for field in re.findall(r"<(?:input|select|textarea)([^>]*)>", page):
        if "hidden" in field or "aria-label" in field:
            continue
        identity = re.search(r'\bid="([^"]+)"', field)
        assert identity is not None, field
        assert identity[1] in labels, field
    for drawing in re.findall(r"<svg([^>]*)>", page):
        assert "aria-label" in drawing or 'class="bar"' in drawing, drawing
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    "address", ["/ask", "/inside", "/runs", "/report", "/workbench", "/compare"]
)
def test_a_folder_without_runs_says_what_to_do(empty_client: TestClient, address: str) -> None:
    reply = empty_client.get(address, headers=PAGE)
    assert reply.status_code == 200
    assert 'href="/runs' in reply.text
    assert empty_client.get(json_of(address)).status_code == 200


def test_the_start_leads_to_ask_and_other_methods_nowhere(client: TestClient) -> None:
    reply = client.get("/", follow_redirects=False)
    assert (reply.status_code, reply.headers["location"]) == (307, "/ask")
    reply = client.delete("/runs.json")
    assert reply.status_code == 405
    assert set(reply.json()) == {"error"}


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("/nowhere", 404),
        ("/workbench/nothing", 404),
        ("/run?name=nothing", 404),
        ("/ask?run=nothing", 404),
        ("/inside?run=small&other=nothing&question=Ann", 404),
        ("/run", 422),
        ("/workbench?n=1", 422),
        ("/workbench?beta=nan", 422),
        ("/workbench?n=abc", 422),
        ("/static/../app.py", 404),
        ("/static/%2e%2e/app.py", 404),
    ],
)
def test_errors_have_one_shape_and_one_page(client: TestClient, address: str, status: int) -> None:
    as_program = client.get(address, headers={"Accept": "application/json"})
    assert as_program.status_code == status
    assert set(as_program.json()) == {"error"}
    as_person = client.get(address, headers=PAGE)
    assert as_person.status_code == status
    assert 'role="alert"' in as_person.text


def test_what_is_wrong_with_a_request_is_a_sentence(client: TestClient) -> None:
    reply = client.get("/workbench?n=1", headers={"Accept": "application/json"})
    sentence = "it should be greater than or equal to 2; it was '1'."
    assert reply.json() == {"error": f'Something is wrong with "n": {sentence}'}


def test_hostile_names_of_runs_are_escaped_on_every_page(tmp_path: Path) -> None:
    name = "x'\"><img src=x onerror=alert(1)>&amp;"
    row = {"name": HOSTILE, "about": HOSTILE, "recall": 0.5, "correct": 1, "total": 2}
    folder = write_record(
        tmp_path / name, kind=HOSTILE, status=HOSTILE, command=["w", "study", HOSTILE],
        results=[row | {"name": "pretrained"}, row], templates=[HOSTILE], started=HOSTILE,
        data={HOSTILE: {"path": HOSTILE, "sha256": HOSTILE}}, versions={HOSTILE: HOSTILE},
        job={"model": {"variant": HOSTILE}, "phases": [{"name": HOSTILE}]},
    )  # fmt: skip
    point = {"phase": HOSTILE, "step": 1, "loss": 1.0, "seconds": 1.0, "progress": 0.1}
    (folder / "metrics.jsonl").write_text(json.dumps(point) + "\n")
    (folder / "model.safetensors").write_bytes(b"no weights")
    client = TestClient(create_app(tmp_path), base_url=LOCAL, raise_server_exceptions=False)
    for path, key in (("/runs", None), ("/run", "name"), ("/compare", "run"), ("/report", "run"),
                      ("/ask", "run"), ("/inside", "run")):  # fmt: skip
        page = client.get(path, params={key: name} if key else None, headers=PAGE)
        assert page.status_code in (200, 400), page.text
        assert "<img" not in page.text
        assert "<script>alert" not in page.text
        assert "\nonerror" not in page.text


def test_what_a_visitor_types_is_escaped(client: TestClient) -> None:
    for address in (
        f"/ask?run=small&question={HOSTILE}",
        f"/inside?run=small&question={HOSTILE}",
        f"/workbench/copy?formulas={HOSTILE}",
        f"/run?name={HOSTILE}",
        f"/{HOSTILE}",
    ):
        page = client.get(address, headers=PAGE).text
        assert "<script>alert" not in page, address
    page = client.post("/ask/batch", data={"run": "small", "text": HOSTILE}, headers=PAGE).text
    assert "<script>alert" not in page


def test_data_for_scripts_cannot_end_its_block() -> None:
    value = {"</script><script>": "<!-- & \u2028"}
    text = str(as_data(value))
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == value


@given(st.text())
def test_mathematics_escapes_what_it_is_given(text: str) -> None:
    set_in_type = re.sub(r"</?(?:i|sub|sup)>", "", str(maths(text)))
    assert "<" not in set_in_type
    assert ">" not in set_in_type


def test_mathematics_is_set() -> None:
    assert str(maths("k_a . q >= beta^2 mu_i")) == (
        "<i>k</i><sub>a</sub> · q ≥ β<sup>2</sup> <i>μ</i><sub>i</sub>"
    )


@given(question=st.text(max_size=400), run=st.sampled_from(["small", "small/twins/scratch", "x"]))
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
def test_no_question_is_a_failure_of_ours(client: TestClient, question: str, run: str) -> None:
    for path in ("/ask", "/inside"):
        reply = client.get(path, params={"run": run, "question": question}, headers=PAGE)
        assert reply.status_code < 500, (path, reply.text)


@given(formulas=st.text(alphabet="qkKQV_abj=+-*/@().T\n 0123beta", max_size=60))
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
def test_no_formula_is_a_failure_of_ours(client: TestClient, formulas: str) -> None:
    reply = client.get("/workbench/average", params={"formulas": formulas}, headers=PAGE)
    assert reply.status_code in (200, 400), reply.text
