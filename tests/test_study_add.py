"""`wherefrom study RUN --add FILE`: more documents for a finished run, from the command line."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

WHEREFROM = [sys.executable, "-m", "wherefrom"]
MORE = "Zelda Quimby. Zelda Quimby was born in Porto.\nOrson Vane. Orson Vane was born in Turin.\n"


def run(*words: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*WHEREFROM, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done


def hashes(folder: Path) -> dict[str, str]:
    return dict(json.loads((folder / "run.json").read_text())["files"])


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("add") / "first"
    run("study", "--people", 60, "--steps", 60, "--size", "tiny", "--out", out)
    return out


def test_added_documents_can_be_asked_about_and_the_first_run_stays_as_it_is(study, tmp_path):
    before, file = hashes(study), tmp_path / "more.txt"
    file.write_text(MORE)
    done = run("study", study, "--add", file, "--no-training", "--out", tmp_path / "second")
    assert "2 documents about 2 subjects are added" in done.stderr
    verdict = json.loads(
        run("ask", tmp_path / "second", "Where was Orson Vane born?", "--json").stdout
    )
    verdict = verdict[0] if isinstance(verdict, list) else verdict
    assert [value["answer"] for value in verdict["stated"]] == ["Turin"]
    line = (tmp_path / "second" / "documents.tsv").read_text().splitlines()
    assert line[verdict["stated"][0]["lines"][0] - 1].startswith("Orson Vane")
    assert hashes(study) == before
    trained = run("study", study, "--add", file, "--steps", 5, "--out", tmp_path / "third")
    assert "goes on learning" in trained.stderr
    models = [hashes(tmp_path / name)["model.safetensors"] for name in ("second", "third")]
    assert len(set(models)) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--add", "nosuch.txt"), "does not exist"),
        (("--add", "{file}", "--size", "small"), "has its shape"),
        (("--add", "{file}", "{file}"), "takes the RUN"),
        (("--no-training",), "goes with --add"),
    ],
)
def test_what_cannot_be_added_is_one_sentence_and_writes_nothing(study, tmp_path, words, said):
    (tmp_path / "more.txt").write_text(MORE)
    filled = [word.format(file=tmp_path / "more.txt") for word in words]
    done = run("study", study, *filled, "--out", tmp_path / "out", code=2)
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_in_a_terminal_a_question_in_other_words_is_asked_back(study):
    """A real pseudo-terminal: the question is offered, Enter takes it, n refuses it."""
    name = (study / "world" / "documents.txt").read_text().split(". ")[0]
    for typed, code in ((b"\n", 0), (b"n\n", 2)):
        controller, terminal = pty.openpty()
        command = [*WHEREFROM, "ask", str(study), f"What work did {name} do?"]
        process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal)
        os.close(terminal)
        os.write(controller, typed)
        said = b""
        while True:
            try:
                part = os.read(controller, 4096)
            except OSError:  # the process has closed its end
                break
            if not part:
                break
            said += part
        os.close(controller)
        assert process.wait(60) == code, said.decode()
        assert b"id you mean" in said
