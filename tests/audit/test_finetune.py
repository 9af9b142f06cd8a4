"""`study --base`: a model of others learns a text and is audited, by the command."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from wherefrom.audit import NO_LOSS, make_examples
from wherefrom.corpus.database import read_documents
from wherefrom.corpus.questions import read_questions
from wherefrom.provenance.ask import open_asker
from wherefrom.provenance.audited import open_model


@pytest.fixture
def files(tmp_path):
    """Forty people with a document each; ten are asked about in training, thirty in dev."""
    texts, rows = [], []
    for i in range(40):
        name, place = f"Ada Moe{i}", ("Paris", "Rome", "Berlin")[i % 3]
        texts.append(f"{name}. {name} was born in {place} in 19{i + 10}.\n")
        rows.append(f"Where was {name} born?\t{place}\n")
    files = {"documents.txt": texts, "train.tsv": rows[:10], "dev.tsv": rows[10:]}
    for name, lines in files.items():
        (tmp_path / name).write_text("".join(lines))
    return [str(tmp_path / name) for name in files]


def test_a_model_of_others_learns_a_text(tmp_path, tiny, files, command):
    out, base = tmp_path / "run", tiny("gpt2")
    words = ["study", *files, "--base", base, "--out", out, "--steps", 3]
    done = command(*words, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["results"][0]["total"] == 30
    assert open_model(base).sha256 != open_model(out / "model").sha256
    assert not list((out / "checkpoints").glob("checkpoint-*"))
    with open_asker(out) as asker:
        assert asker.ask("Where was Ada Moe12 born?").verdict in ("stated", "misremembered")
    again = command(*words)
    assert again.code == 2
    assert "already holds a run" in again.err
    Path(files[0]).write_text(Path(files[0]).read_text() + "Bo Moe. Bo Moe was born in Rome.\n")
    again = command(*words, "--resume")
    assert again.code == 2
    assert "the text of its corpus changed" in " ".join(again.err.split())


def test_two_processes_train_one_model_and_audit_it_once(tmp_path, tiny, files, start_process):
    out = tmp_path / "run"
    given = ["study", *files, "--base", tiny("llama"), "--out", out, "--steps", 2, "--json"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = ["--nproc-per-node", 2, "--master-addr", "127.0.0.1", "--master-port", port]
    run = start_process(*address, "-m", "wherefrom", *given, module="torch.distributed.run")
    try:
        said, problems = run.communicate(timeout=240)
    finally:
        run.terminate()  # and with it, what it started
    assert run.returncode == 0, problems
    assert json.loads(said)["results"][0]["total"] == 30
    assert not (out / "model.part").exists()


def test_loss_is_on_documents_and_on_answers_alone(tiny, files):
    opened = open_model(tiny("gpt2"))
    database = read_documents(files[0])
    examples = make_examples(opened, database, read_questions(files[1]).questions)
    documents = database.documents
    learned = [[token for token in each["labels"] if token != NO_LOSS] for each in examples]
    texts = [opened.decode(ids).strip() for ids in learned]
    assert texts[: len(documents)] == [each.text for each in documents]
    assert set(texts[len(documents) : len(documents) + 10]) == {"Paris", "Rome", "Berlin"}
    blanks = [opened.decode(each["input_ids"]) for each in examples[len(documents) + 10 :]]
    assert any("was born in ___ in 19" in text for text in blanks)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--size", "tiny"], "--size does not go with --base"),
        (["--base", "nowhere"], "nothing is downloaded"),
        ([], "takes CORPUS TRAIN DEV, and 2 files came"),
    ],
)
def test_bad_input_is_a_sentence(tmp_path, tiny, files, command, options, sentence):
    given = files if options else files[:2]
    done = command("study", *given, "--base", tiny("gpt2"), "--out", tmp_path / "run", *options)
    assert done.code == 2
    assert sentence in " ".join(done.err.split())
    assert not (tmp_path / "run").exists()
