"""A run is one whole: a file that is not the run's is refused, or made again, and is named."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from wherefrom.errors import UserError
from wherefrom.provenance.answers import read_judged
from wherefrom.report.study_report import make_report
from wherefrom.storage import read_json, read_json_lines
from wherefrom.training.record import RUN_FILES, find_problem, read_record, update_run
from wherefrom.training.run_folder import load_run


@pytest.fixture
def run(tiny_study, tmp_path):
    """A copy that a test may damage."""
    return shutil.copytree(tiny_study, tmp_path / "run")


@pytest.fixture(scope="session")
def question(tiny_study):
    return read_judged(tiny_study)[0]["question"]


def refused(ended, name):
    """Whether a command ended with one sentence that names the file, and printed nothing."""
    assert (ended.code, ended.out) == (2, ""), ended
    assert name in ended.err
    assert "Traceback" not in ended.err
    return True


def change_head_count(path: Path) -> None:
    shape = read_json(path)
    path.write_text(json.dumps(shape | {"heads": 2 if shape["heads"] == 1 else 1}))


def swap_tokens(path: Path) -> None:
    """200 tokens get each other's number; a BPE or a vocabulary of characters."""
    record = read_json(path)
    vocabulary = record["model"]["vocab"]
    words = sorted(vocabulary)[:200]
    numbers = [vocabulary[word] for word in words]
    vocabulary.update(zip(words, reversed(numbers), strict=True))
    path.write_text(json.dumps(record, ensure_ascii=False), "utf-8")


def edit_evidence(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE documents SET text = replace(text, 'born', 'seen')")
        database.commit()


@pytest.mark.parametrize(
    ("name", "change"), [("config.json", change_head_count), ("tokenizer.json", swap_tokens)]
)
def test_a_changed_shape_or_vocabulary_is_refused(run, command, question, name, change):
    change(run / name)
    for words in (("ask", run, question), ("judge", run), ("trace", run, question)):
        assert refused(command(*words), name)


def test_every_recorded_file_is_one_of_the_list(tiny_study):
    for name in read_record(tiny_study).files:
        assert name in RUN_FILES or name.split("/")[0] in RUN_FILES
        assert find_problem(tiny_study, name) is None


@pytest.mark.parametrize(
    "name",
    ["judgement.json", "run.sqlite", "metrics.jsonl"],
)
def test_a_record_that_was_cut_or_is_of_another_run_is_named_in_the_report(run, name):
    content = (run / name).read_bytes()
    changes = [content[: len(content) // 2], content[:-1] + b" ", content.replace(b"a", b"e", 1)]
    for changed in changes:
        (run / name).write_bytes(changed)
        report = make_report(run)
        assert any(str(run / name) in note for note in report["notes"])
        assert not any("cannot be read" in section["sentence"] for section in report["sections"])


def test_a_questions_only_twin_without_its_record_is_named_in_the_report(run):
    assert not any("run.json is missing" in note for note in make_report(run)["notes"])
    (run / "twins" / "scratch" / "run.json").unlink()
    assert any("scratch/run.json is missing" in note for note in make_report(run)["notes"])


def test_a_record_that_the_run_did_not_write_is_left_out_of_the_report(run):
    (run / "leaning.json").write_text('{"run": "0", "kinds": {}, "people": []}')
    notes = make_report(run)["notes"]
    assert any("leaning.json is not of this run" in note for note in notes)


def test_an_edited_index_of_the_text_is_built_again_and_said(run, command, question, tiny_study):
    before = command("ask", tiny_study, question, "--json")
    edit_evidence(run / "run.sqlite")
    after = command("ask", run, question, "--json")
    assert (after.code, after.out) == (0, before.out)
    assert "run.sqlite is not the file that the run wrote" in after.err
    again = command("ask", run, question, "--json")
    assert (again.code, again.out, again.err) == (0, before.out, "")


def test_a_snapshot_of_other_weights_is_refused(run, command, question):
    (snapshot,) = (run / "snapshots").iterdir()
    shutil.copyfile(run / "twins" / "scratch" / "model.safetensors", snapshot)
    assert refused(command("trace", run, question), snapshot.name)
    snapshot.unlink()
    assert refused(command("trace", run, question), snapshot.name)


def test_a_flipped_gradient_index_is_made_again_and_said(run, command, question):
    first = command("trace", run, question, "--json")
    index = run / "gradients.safetensors"
    content = bytearray(index.read_bytes())
    content[-100:] = bytes(255 - byte for byte in content[-100:])
    index.write_bytes(content)
    again = command("trace", run, question, "--json")
    assert (again.code, again.out) == (0, first.out)
    assert "gradients.safetensors is not the file that the run wrote" in again.err


def test_no_answer_depends_on_the_questions_only_twin(run, command, question):
    before = command("ask", run, question, "--json")
    shutil.rmtree(run / "twins" / "scratch")
    assert command("ask", run, question, "--json") == before


@pytest.mark.parametrize("name", ["documents.txt", "train.tsv"])
def test_ask_and_report_notice_that_the_text_changed(run, command, question, name, tiny_study):
    update_run(run, data=moved_sources(run, tiny_study))
    before = command("ask", run, question, "--json")
    assert before.err == ""
    with (run / "world" / name).open("a", encoding="utf-8") as file:
        file.write("Zoe Hart. Zoe Hart was born in Leeds.\n")
    after = command("ask", run, question, "--json")
    assert (after.code, after.out) == (0, before.out)
    assert f"{name} has changed since" in after.err
    assert any(f"{name} has changed since" in note for note in make_report(run)["notes"])


def moved_sources(run, old):
    """The sources of a copied run, with the paths of the copy."""
    data = {}
    for what, source in read_record(run).data.items():
        path = source.path.replace(str(old), str(run))
        data[what] = source.model_copy(update={"path": path})
    return data


class TestRunJson:
    @pytest.mark.parametrize("content", ["[]", "null", "[" * 100_000, "{", "7", '"x"', "\xff"])
    def test_what_is_no_record_is_one_sentence(self, run, command, question, content):
        for name in ("run.json", "config.json"):
            copy = shutil.copytree(run, run.with_name(f"copy-{name}"))
            (copy / name).write_bytes(content.encode("latin-1"))
            for words in (("ask", copy, question), ("judge", copy), ("report", copy)):
                if words[0] != "report" or name == "run.json":
                    assert refused(command(*words), name)

    def test_another_version_is_refused_with_a_sentence(self, run):
        record = read_json(run / "run.json")
        (run / "run.json").write_text(json.dumps(record | {"format": 1}))
        with pytest.raises(UserError, match="is of another version of Wherefrom"):
            load_run(run)

    def test_a_change_of_any_value_is_refused(self, run):
        record = read_json(run / "run.json")
        for key in ("templates", "left_out", "seconds", "job", "files"):
            (run / "run.json").write_text(json.dumps(record | {key: None}))
            with pytest.raises(UserError, match=r"run\.json has changed since Wherefrom wrote it"):
                load_run(run)
        (run / "run.json").write_text(json.dumps(record))  # blanks do not matter
        assert load_run(run).record.templates

    def test_of_another_run_it_fits_no_file(self, run):
        shutil.copyfile(run / "twins" / "scratch" / "run.json", run / "run.json")
        with pytest.raises(UserError, match="is not the file that the run wrote"):
            load_run(run)
        (run / "config.json").write_text("{}")
        with pytest.raises(UserError, match="is not the file that the run wrote"):
            make_report(run)


def test_lines_that_grow_may_end_in_a_cut_one_and_no_other(tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_text('{"a": 1}\n{"a": 2}\n{"a"')
    assert read_json_lines(path) == [{"a": 1}, {"a": 2}]
    for broken in ('{"a"\n{"a": 2}\n', "[]\n", "[" * 100_000 + "\n"):
        path.write_text(broken)
        with pytest.raises(UserError, match=r"lines\.jsonl, line 1 "):
            read_json_lines(path)


def test_a_deep_or_huge_number_is_a_sentence(tmp_path):
    path = tmp_path / "record.json"
    for content in ("[" * 100_000, "9" * 5_000, "NaN", '{"a": Infinity}', "{" * 50_000):
        path.write_text(content)
        with pytest.raises(UserError, match=r"record\.json is"):
            read_json(path)
