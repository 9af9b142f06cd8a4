"""Audits of a model behind a server of completions, against the same model from its folder."""

from __future__ import annotations

import numpy as np
import pytest
from completion_server import serve_completions

from wherefrom.errors import UserError
from wherefrom.model.server import ServerModel
from wherefrom.provenance.answers import read_audited
from wherefrom.provenance.ask import open_asker
from wherefrom.provenance.audited import open_model

BEFORE = "Q: What is the capital of Italy?\nA: Rome\n"
NAMES = ["France", "Peru", "the Netherlands", "Chad"]
PROMPTS = [f"{BEFORE}Q: What is the capital of {name}?\nA:" for name in NAMES]


@pytest.fixture(scope="module")
def server(tiny):
    with serve_completions(tiny("gpt2")) as address:
        yield address


def test_answers_and_scores_are_those_of_the_model_itself(tiny, server):
    served, own = open_model(server), open_model(tiny("gpt2"))
    assert isinstance(served, ServerModel)
    assert served.can_echo
    found = served.answer([served.prompt(text) for text in PROMPTS], longest=6, samples=3)
    expected = own.answer([own.prompt(text) for text in PROMPTS], longest=6)
    for one, other in zip(found, expected, strict=True):
        assert one.text == other.text
        assert len(one.samples) == 3
        # the token that closes an answer is not in what a server returns
        shown = other.log_probabilities[: len(one.log_probabilities)]
        assert np.allclose(one.log_probabilities, shown, atol=1e-4)
        # tokens that are parts of letters look alike in a server's answer
        assert np.isfinite(one.other).all()
        assert one.entropy <= other.entropy + 1e-6  # all unlikely tokens count as one
    answers = ["Paris", "Rome", "Berlin", "Yes"]
    scores = served.score(
        [served.prompt(text) for text in PROMPTS],
        [served.continuation(p, a) for p, a in zip(PROMPTS, answers, strict=True)],
    )
    wanted = own.score(
        [own.prompt(text) for text in PROMPTS],
        [own.continuation(p, a) for p, a in zip(PROMPTS, answers, strict=True)],
    )
    for one, other in zip(scores, wanted, strict=True):
        assert np.allclose(one.own, other.own[:-1], atol=1e-4)


def test_a_served_model_is_audited_asked_and_judged(tmp_path, server, command, audit):
    path = tmp_path / "questions.tsv"
    lines = [f"What is the capital of Land {i}?\t{('Paris', 'Rome')[i % 2]}\n" for i in range(30)]
    path.write_text("".join(lines))
    record = audit(server, path, tmp_path / "run", shots=1)
    assert record["results"][0]["total"] == 30 - 1 - 3
    assert len(read_audited(tmp_path / "run")) > 26
    with open_asker(tmp_path / "run") as asker:
        assert asker.ask("What is the capital of Nowhere?").right["internal"] is not None
    done = command("audit", f"{server}#tiny", path, "--out", tmp_path / "again", "--shots", 1)
    assert done.code == 0, done.err


def strip_log_probabilities(path, record):
    for choice in record.get("choices", ()):
        choice["logprobs"] = None
    return record


def refuse_echo(path, record):
    if record["body"].get("echo"):
        return {"error": "echo is not supported", "code": 400}
    return record


def redirect(path, record):
    return {"code": 307, "headers": {"Location": "http://192.0.2.1/v1"}}


def test_a_server_without_an_echo_is_audited_with_fewer_signals(tmp_path, tiny, audit):
    path = tmp_path / "questions.tsv"
    lines = [f"What is the capital of Land {i}?\t{('Paris', 'Rome')[i % 2]}\n" for i in range(28)]
    path.write_text("".join(lines))
    with serve_completions(tiny("gpt2"), change=refuse_echo) as address:
        assert not ServerModel(address).can_echo
        record = audit(address, path, tmp_path / "run", shots=1)
    assert record["results"][0]["total"] == 28 - 1 - 3


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (strip_log_probabilities, "returns no log-probabilities"),
        (lambda path, record: {"code": 404, "error": "no such page"}, "answered with 404"),
        (lambda path, record: {"data": []}, "does not say which models it serves"),
        (redirect, "answered with 307"),
    ],
)
def test_a_server_that_cannot_be_audited_is_a_sentence(tiny, change, sentence):
    with (
        serve_completions(tiny("gpt2"), change=change) as address,
        pytest.raises(UserError, match=sentence),
    ):
        ServerModel(address)


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("http://192.0.2.7:8000/v1", "is not on this machine"),
        ("http://127.0.0.1:9/v1", "does not answer"),
        ("http://127.0.0.1.example.org/v1", "is not on this machine"),
    ],
)
def test_only_a_server_on_this_machine_is_asked(tmp_path, command, address, sentence):
    path = tmp_path / "questions.tsv"
    path.write_text("".join(f"What is the capital of Land {i}?\tParis\n" for i in range(30)))
    done = command("audit", address, path, "--out", tmp_path / "run")
    assert done.code == 2
    assert sentence in " ".join(done.err.split())
    assert not (tmp_path / "run").exists()
