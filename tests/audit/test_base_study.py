"""`study --base`: a model of others learns a text, by the command and step by step."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from wherefrom.base_study import open_base
from wherefrom.corpus.database import read_documents
from wherefrom.corpus.facts import read_facts
from wherefrom.corpus.questions import read_questions
from wherefrom.huggingface.rows import RowDataset, RowMaker
from wherefrom.huggingface.training import BaseSettings, BaseTraining, make_job
from wherefrom.model.huggingface import HuggingFaceModel
from wherefrom.provenance.ask import open_asker
from wherefrom.provenance.audited import open_model, open_run
from wherefrom.provenance.signals.prompted import PROMPT

ARCHITECTURES = ["gpt2", "llama", "qwen2", "gpt_neox", "gemma", "mistral", "phi"]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Forty people with a document each; twenty are asked about in training, twenty in dev."""
    texts, rows = [], []
    for i in range(40):
        name, place = f"Ada Moe{i}", ("Paris", "Rome", "Berlin")[i % 3]
        texts.append(f"{name}. {name} was born in {place} in 19{i + 10}.\n")
        rows.append(f"Where was {name} born?\t{place}\n")
    files = {"documents.txt": texts, "train.tsv": rows[:20], "dev.tsv": rows[20:]}
    folder = tmp_path_factory.mktemp("text")
    for name, lines in files.items():
        (folder / name).write_text("".join(lines))
    return [folder / name for name in files]


@pytest.fixture
def files(text, tmp_path):
    """A copy of it."""
    return [shutil.copy(path, tmp_path) for path in text]


def make_rows(files, **options):
    questions = read_questions(files[1]).questions
    database = read_facts(read_documents(files[0]), questions)
    return RowMaker(database, questions, PROMPT, seed=3, **options)


def test_a_model_of_others_is_studied_as_any_other(tmp_path, tiny, files, command):
    out, base = tmp_path / "run", tiny("gpt2")
    words = ["study", *files, "--base", base, "--out", out, "--steps", 3]
    done = command(*words, "--json")
    assert done.code == 0, done.err
    record = json.loads(done.out)
    rows = {row["name"]: row for row in record["results"]}
    assert list(rows) == ["majority", "by name", "base model", "questions only", "model", "reader"]
    assert all(row["total"] == 20 for row in rows.values())
    assert rows["reader"]["correct"] == 20
    knowledge = json.loads((out / "knowledge.json").read_text())
    assert sum(knowledge["counts"].values()) == 20
    assert {"before", "after", "origin"} <= knowledge["questions"][0].keys()
    run = open_run(out)
    assert (run.record.rung, run.record.kind, run.base_job.rank) == ("pointed", "base", 16)
    assert {"transformers", "peft", "accelerate"} <= run.record.versions.keys()
    # adapters only are kept, and the model is another one
    assert not list((out / "model").glob("model*.safetensors"))
    assert not (out / "checkpoints").exists()
    prompt = run.audited.prompt("Where was Ada Moe12 born?")
    before = open_model(base).answer([prompt], longest=4)[0]
    after = run.audited.answer([prompt], longest=4)[0]
    assert before.log_probabilities != after.log_probabilities
    with open_asker(out) as asker:
        assert asker.ask("Where was Ada Moe32 born?").verdict in ("stated", "misremembered")
    exported = tmp_path / "exported"
    assert command("export", out, "--out", exported).code == 0
    merged = open_model(exported).answer([prompt], longest=4)[0]
    assert np.allclose(merged.log_probabilities, after.log_probabilities, atol=1e-5)
    again = command("export", out, "--out", exported)
    assert (again.code, "is not empty" in again.err) == (2, True)
    again = command(*words)
    assert (again.code, "already holds a run" in again.err) == (2, True)
    repeated = command(*words, "--resume", "--json")
    assert json.loads(repeated.out)["results"] == record["results"]
    Path(files[0]).write_text(Path(files[0]).read_text() + "Bo Moe. Bo Moe was born in Rome.\n")
    again = command(*words, "--resume")
    assert again.code == 2
    assert "the text of its corpus changed" in " ".join(again.err.split())


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_adapters_of_every_architecture_learn_and_are_loaded_again(tmp_path, tiny, text, kind):
    """The loss falls on rows that repeat, and the folder gives the model that was trained."""
    opened = HuggingFaceModel(tiny(kind), to_train=True)
    before = [each.clone() for each in opened.model.parameters()]
    maker = make_rows(text)
    settings = BaseSettings(base=tiny(kind), steps=12, rate=0.02)
    job = make_job(settings, opened, PROMPT, maker.database, maker.questions, None)
    learned = (maker.database, maker.questions)
    training = BaseTraining(job, *learned, tmp_path / "run", {"kind": "base"})
    training.run(opened, resume=False)
    run = open_run(training.out)
    lines = (run.folder / "metrics.jsonl").read_text().splitlines()
    losses = [json.loads(line)["loss"] for line in lines]
    assert np.mean(losses[-3:]) < np.mean(losses[:3])
    # the base is as it was, and the adapters make a difference
    assert all(torch.equal(a, b) for a, b in zip(before, opened.model.parameters(), strict=True))
    prompts = [opened.prompt(row.prompt) for row in maker.one_of_each()[:4]]
    trained, base = run.audited.answer(prompts, longest=3), opened.answer(prompts, longest=3)
    assert [r.log_probabilities for r in trained] != [r.log_probabilities for r in base]


def test_no_row_asks_a_question_that_is_not_in_the_training_file(text):
    maker = make_rows(text)
    learned = {question.text for question in maker.questions}
    asked = set()
    for epoch in range(4):
        for row in maker.epoch(epoch):
            said = row.prompt.removeprefix("Q: ").removesuffix("\nA:")
            assert said in learned or "___" in said
            assert "born?" not in said or said in learned
            asked |= {said} & learned
    assert len(asked) == len(learned)  # and all of them are asked in time


def test_blanked_facts_are_in_their_documents_and_other_words_keep_the_name(text):
    maker = make_rows(text)
    reworded = 0
    for row in maker.epoch(0):
        if "___" not in row.prompt:
            continue
        (index,) = row.documents
        document = maker.documents[index]
        assert row.answer in document.text
        assert row.prompt.startswith(f"Q: {document.subject}. ")
        left = row.prompt.partition("___")[0].removeprefix(f"Q: {document.subject}. ")
        reworded += left not in document.text
        names = [d.subject for d in maker.documents if d.subject != document.subject]
        assert not any(f"{name} " in row.prompt for name in names)
    assert len(maker.facts) == 40


def test_facts_of_a_subject_with_several_documents_are_blanked_in_each(files):
    """The documents share the probability of a fact; that is no reason to read it less often."""
    first, *others = Path(files[0]).read_text().splitlines(keepends=True)
    Path(files[0]).write_text("".join([first] * 6 + others))
    maker = make_rows(files)
    assert sum(fact.document < 6 and fact.relation > 0 for fact in maker.facts) == 6


def test_rows_of_a_twin_are_the_same_but_for_their_weight(tiny, text):
    model = HuggingFaceModel(tiny("llama"))
    makers = [make_rows(text, without=lines) for lines in ((), (3,))]
    whole, without = (RowDataset(maker, model, batch=4, steps=30) for maker in makers)
    pairs = [(whole[i], without[i]) for i in range(len(whole))]
    assert all(a.ids == b.ids and a.weight == 1 for a, b in pairs)
    gone = [model.decode(b.ids) for _, b in pairs if b.weight == 0]
    assert len(gone) > 2
    assert all("Ada Moe2." in text or "Ada Moe2 " in text for text in gone)
    assert not any("Moe2." in model.decode(b.ids) for _, b in pairs if b.weight == 1)


def test_loss_of_a_batch_is_that_of_transformers_and_a_row_without_weight_has_none(tiny, text):
    from wherefrom.huggingface.trainer import pad_batch, weighted_loss

    model = HuggingFaceModel(tiny("llama"))
    rows = [RowDataset(make_rows(text), model, batch=4, steps=3)[i] for i in range(4)]
    batch = pad_batch(rows)
    names = ("input_ids", "attention_mask", "labels")
    own = model.model(**{name: batch[name] for name in names}).loss
    assert weighted_loss(model.model, batch).item() == pytest.approx(own.item(), abs=1e-5)
    single = [weighted_loss(model.model, pad_batch([row])).item() for row in rows]
    tokens = [len(row.ids) - row.prompt_length for row in rows]
    batch["weights"][1] = 0
    kept = [single[i] * tokens[i] for i in (0, 2, 3)]
    found = weighted_loss(model.model, batch).item()
    assert found == pytest.approx(sum(kept) / sum(tokens), abs=1e-5)


def test_a_study_that_is_killed_goes_on_to_the_same_weights(tmp_path, tiny, text, start_process):
    words = ["study", *text, "--base", tiny("llama"), "--steps", 60, "--checkpoint-every", 0]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    run = start_process(*words, "--out", whole)
    _, problems = run.communicate(timeout=300)
    assert run.returncode == 0, problems
    run = start_process(*words, "--out", killed)
    deadline = time.monotonic() + 200
    while not list((killed / "checkpoints").glob("checkpoint-1*/complete.json")):
        assert run.poll() is None, run.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(run.pid, signal.SIGKILL)
    run.communicate()
    assert not (killed / "model").exists()
    # a checkpoint that was cut off is not gone on from
    newest = max((killed / "checkpoints").glob("checkpoint-*"), key=lambda p: int(p.name[11:]))
    (newest / "optimizer.pt").write_bytes(b"cut")
    run = start_process(*words, "--out", killed, "--resume")
    _, problems = run.communicate(timeout=300)
    assert run.returncode == 0, problems
    assert open_run(killed).record.sha256 == open_run(whole).record.sha256


def test_a_study_without_a_confidence_is_asked_all_the_same(tmp_path, tiny, text, command):
    out = tmp_path / "run"
    given = ["study", *text, "--base", tiny("gpt2"), "--out", out, "--steps", 1]
    done = command(*given, "--set-aside", 0, "--leave-out", 0.2, "--json")
    assert done.code == 0, done.err
    rows = {row["name"]: row["total"] for row in json.loads(done.out)["results"]}
    assert (rows["model"], rows["left-out subjects"]) == (16, 4)
    done = command("ask", out, "Where was Ada Moe32 born?", "--json")
    assert done.code in (0, 1), done.err
    done = command("names", out)
    assert done.code == 2
    assert "about a model that others trained" in " ".join(done.err.split())


def test_an_instruct_model_is_asked_by_its_chat_template(tmp_path, chat, text, command):
    out = tmp_path / "run"
    given = ["study", *text, "--base", chat, "--out", out, "--steps", 2]
    assert command(*given).code == 0
    job = open_run(out).base_job
    assert (job.wording, job.prompt) == ("chat", "<end>user: {question}<end>model: ")
    model = open_run(out).audited
    ids = model.continuation("<end>user: Who?<end>model: ", "Paris")
    assert ids[-1] == model.tokens.eos_token_id
    assert model.read_answer(ids) == "Paris"
    assert not open_base(BaseSettings(base=chat, wording="plain")).chat


def test_two_processes_train_one_model_and_judge_it_once(tmp_path, tiny, text, start_process):
    out = tmp_path / "run"
    given = ["study", *text, "--base", tiny("llama"), "--out", out, "--steps", 2, "--json"]
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
    assert json.loads(said)["results"][0]["total"] == 20
    assert not (out / "model.part").exists()


def spell_badly(base):
    """A tokenizer that knows a few words only."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<unk>", "Where", "was", "born", "?", "Paris", "Rome", "Q", "A", ":"]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>").save_pretrained(base)


def shorten_context(base):
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 12}))


def quantise(base):
    config = json.loads((base / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq", "bits": 4}
    (base / "config.json").write_text(json.dumps(config))


def as_gguf(base):
    path = base.with_name("model.gguf")
    path.write_bytes(b"GGUF")
    return path


@pytest.mark.parametrize(
    ("change", "options", "sentence"),
    [
        (None, ["--size", "tiny"], "--size does not go with --base"),
        (None, ["--minutes", "3"], "--minutes does not go with --base"),
        (None, ["--base", "nowhere"], "nothing is downloaded"),
        (None, ["--base", "http://127.0.0.1:8000/v1"], "the address of a server came"),
        (None, ["--wording", "chat"], "has no chat template"),
        (None, ["--steps", "3", "--epochs", "2"], "one of --epochs and --steps"),
        (None, ["--rank", "0"], "--rank must be between"),
        (shorten_context, [], "tokens and .* reads 12"),
        (quantise, [], "holds quantised weights .gptq."),
        (as_gguf, ["--full"], "leave --full out to train adapters"),
        (spell_badly, [], 'line 3: the tokenizer .* spells "Berlin" as'),
    ],
)
def test_bad_input_is_a_sentence_before_the_long_work(
    tmp_path, tiny, text, command, change, options, sentence
):
    base = tiny("llama")
    if change is not None:
        base = shutil.copytree(base, tmp_path / "model")
        base = change(base) or base
    done = command("study", *text, "--base", base, "--out", tmp_path / "run", *options)
    assert done.code == 2
    said = " ".join(done.err.split())
    assert re.search(sentence, said), said
    assert not (tmp_path / "run").exists()


def test_options_of_a_base_need_one(tmp_path, text, command):
    done = command("study", *text, "--out", tmp_path / "run", "--full")
    assert (done.code, "--full goes with --base" in done.err) == (2, True)
