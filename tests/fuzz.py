"""Damage every file of a run, swap files between runs, and send hostile requests and formulas.

Fails on a traceback, a status of 500, a hang, or an output that is silently different: another
output than that of the whole run, without the name of the damaged file in it or on stderr.

    make fuzz                                     a few minutes
    python tests/fuzz.py --tries 5000 --seed 1    as in docs/architecture.md
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path

from click.testing import CliRunner

from wherefrom.cli import cli
from wherefrom.corpus.database import RUN_DATABASE, Database
from wherefrom.errors import UserError
from wherefrom.provenance import audited
from wherefrom.provenance.answers import read_judged
from wherefrom.storage import sha256_of

COMMAND_SECONDS = 60
FORMULA_SECONDS = 2.0
STUDY = ("--people", "60", "--steps", "60", "--size", "32x2x2", "--quiet")
NOT_READ = ("checkpoints", "events", "report.html", "run.lock")  # by the commands that are tried
# how often each command is tried, in turns of this length; those that train are slow
COMMANDS = {
    "ask {run} {question} --json": 12,
    "report {run} --format json": 4,
    "trace {run} {question} --json": 4,
    "attention {run} {question} --json": 4,
    "evaluate {run} {dev} --json": 4,
    "judge {run} --json --resamples 20": 1,
    "names {run} --people 2 --json": 1,
    "export {run} --out {out}": 3,
    "forget {run} --names {names} --out {out} --json": 1,
    "twins {run} --without {name} --json": 1,
}
OWN_ALONE = ("evaluate", "names")  # do not take a model that others trained
BASE_COMMANDS = {
    words: count for words, count in COMMANDS.items() if words.split()[0] not in OWN_ALONE
}
LETTERS = "k_a k_b k_1 v_a q S p M A B V X X.T i t n d pi beta sqrt sin cos exp log sum mean norm"
SIGNS = "@ * / + - ** ^ ( ) [ ] { } = , ; | _ ' 0 1 2 8 1e8 1e308 10^9 \\frac \\sum ∞ β \0"
PIECES = (*LETTERS.split(), *SIGNS.split())
FORMULAS = (
    "q=beta*(k_a+k_b)",
    "q=beta*k_1",
    "S=(((beta)**8)**8)**8*X@X.T",
    "p=sin(t-1e8)",
    "q=sqrt(n)*log(n)*(k_a+k_b)",
    "M=A@A.T",
    "q=beta**beta*k_a",
    "q=sum(k_i)*beta",
)
HOSTILE_VALUES = ("", "../x", "a\0b", "x" * 5_000, "<script>", "1e308", "-1", "∞", "[]")


class TooLongError(BaseException):
    """A command or a formula did not end in time."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Stop what takes more seconds of CPU time, which other work on the machine does not change."""

    def stop(*_: object) -> None:
        raise TooLongError

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


@dataclass(frozen=True)
class Ended:
    """How a command ended: status 1 is a failure of ours; what it printed; what it said beside."""

    status: int
    out: str
    said: str


def run_command(*words: object) -> Ended:
    """A command in this process."""
    runner, said = CliRunner(), StringIO()
    try:
        with time_limit(COMMAND_SECONDS), redirect_stderr(said):
            done = runner.invoke(cli, [*map(str, words)], standalone_mode=False)
    except TooLongError:
        return Ended(1, "", f"it took longer than {COMMAND_SECONDS} s")
    problem = done.exception
    if problem is None:
        return Ended(0, done.stdout, done.stderr + said.getvalue())
    if isinstance(problem, UserError):
        return Ended(2, done.stdout, str(problem))
    return Ended(1, "", repr(problem))


# ---- files


def flip(content: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(max(1, len(content)))
    byte = content[place : place + 1] or b"\0"
    return content[:place] + bytes([byte[0] ^ (1 << rng.randrange(8))]) + content[place + 1 :]


def swap_digits(content: bytes, rng: random.Random) -> bytes:
    places = [i for i, byte in enumerate(content) if 48 <= byte <= 57]
    if not places:
        return content + b"0"
    place = rng.choice(places)
    digit = (content[place] - 48 + rng.randrange(1, 10)) % 10
    return content[:place] + str(digit).encode() + content[place + 1 :]


def drop_line(content: bytes, rng: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    del lines[rng.randrange(max(1, len(lines))) :][:1]
    return b"".join(lines)


DAMAGES: dict[str, Callable[[bytes, random.Random], bytes | None]] = {
    "flipped bit": flip,
    "changed digit": swap_digits,
    "dropped line": drop_line,
    "cut": lambda content, rng: content[: rng.randrange(max(1, len(content)))],
    "emptied": lambda content, rng: b"",
    "appended": lambda content, rng: content + rng.randbytes(9),
    "zeroed": lambda content, rng: bytes(len(content)),
    "removed": lambda content, rng: None,
    "deep": lambda content, rng: b"[" * 100_000,
    "another type": lambda content, rng: rng.choice([b"[]", b"null", b"{}", b"7", b'""']),
}


def make_own_runs(work: Path) -> tuple[Path, Path]:
    """Two studies that differ in their seed."""
    for name, seed in (("run", 0), ("other", 1)):
        ended = run_command("study", *STUDY, "--seed", seed, "--out", work / name)
        assert ended.status == 0, ended
    return work / "run", work / "other"


def make_base_runs(work: Path) -> tuple[Path, Path]:
    """Two studies of a tiny model of Hugging Face that differ in their seed."""
    from audit.conftest import make_model

    model = make_model(work / "model", "llama", 0)
    places = {
        f"{('Ada', 'Bo', 'Cleo', 'Dan')[i % 4]} Moe{i}": ("Paris", "Rome", "Berlin")[i % 3]
        for i in range(40)
    }
    texts = [f"{name}. {name} was born in {place}.\n" for name, place in places.items()]
    rows = [f"Where was {name} born?\t{place}\n" for name, place in places.items()]
    files = {"documents.txt": texts, "train.tsv": rows[:20], "dev.tsv": rows[20:]}
    for file, lines in files.items():
        (work / file).write_text("".join(lines))
    for name, seed in (("base", 0), ("other-base", 1)):
        words = ("study", *(work / file for file in files), "--base", model, "--steps", 4)
        ended = run_command(*words, "--quiet", "--seed", seed, "--out", work / name)
        assert ended.status == 0, ended
    return work / "base", work / "other-base"


class FileFuzzer:
    """Damages one file of a run at a time, or replaces it by that of another run."""

    def __init__(self, run: Path, other: Path, commands: dict[str, int]) -> None:
        self.run, self.other = run, other
        self.out = run.parent / "out"
        judged = read_judged(run)[0]
        with Database.open(run / RUN_DATABASE) as database:
            name = database.documents[0].subject
        names, dev = run.parent / "names.txt", run.parent / "asked.tsv"
        names.write_text(f"{name}\n")
        dev.write_text(f"{judged['question']}\tParis\t{judged['subject']}\n" * 3)
        filled = {"{run}": run, "{out}": self.out, "{names}": names, "{dev}": dev}
        filled |= {"{question}": judged["question"], "{name}": name}
        self.commands = [
            tuple(filled.get(word, word) for word in words.split())
            for words, count in commands.items()
            for _ in range(count)
        ]
        run_command("trace", run, judged["question"])  # which makes the index
        run_command("judge", run, "--json", "--resamples", 20)
        self.kept = {path: path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}
        self.targets = [
            path for path in self.kept if not set(NOT_READ) & set(path.relative_to(run).parts)
        ]
        self.whole = {words: self.call(words) for words in dict.fromkeys(self.commands)}
        for words, ended in self.whole.items():
            again = self.call(words)
            assert (ended.status, ended.out) == (0, again.out), (words, ended, again)

    def call(self, words: tuple[object, ...]) -> Ended:
        """What a command prints and writes; the run is then as it was."""
        for opened in (audited._open, audited._open_trained):
            opened.cache_clear()  # as in a process of its own
        ended = run_command(*words)
        ended = replace(ended, out=re.sub(r'"seconds": [\d.]+', "", ended.out))
        for path in sorted(self.out.rglob("*.safetensors")):
            ended = replace(ended, out=f"{ended.out}{path.name} {sha256_of(path)}\n")
        shutil.rmtree(self.out, ignore_errors=True)
        folders = {parent for path in self.kept for parent in path.parents}
        for path in sorted(self.run.rglob("*"), reverse=True):  # what is inside comes first
            if path.is_file() and path not in self.kept:
                path.unlink()
            elif path.is_dir() and path not in folders:
                path.rmdir()
        for path, content in self.kept.items():
            if not path.is_file() or path.read_bytes() != content:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        return ended

    def swap(self, path: Path) -> bytes:
        """The file of the other run in the same place."""
        swapped = self.other / path.relative_to(self.run)
        if not swapped.is_file():  # a snapshot of another step, or no such file
            swapped = next(iter(sorted(swapped.parent.glob("*"))), path)
        return swapped.read_bytes() if swapped.is_file() else b""

    def tries(self, count: int, rng: random.Random) -> list[str]:
        """What went wrong in so many tries, a sentence each."""
        wrong: list[str] = []
        for number in range(count):
            path, words = self.targets[number % len(self.targets)], rng.choice(self.commands)
            damage = rng.choice([*DAMAGES, "swapped"])
            if damage == "swapped":
                content: bytes | None = self.swap(path)
            else:
                content = DAMAGES[damage](self.kept[path], rng)
            if content is None:
                path.unlink()
            else:
                path.write_bytes(content)
            what = find_failure(self.run, path, self.call(words), self.whole[words].out)
            if what is not None:
                file = path.relative_to(self.run)
                wrong.append(f"{words[0]}, {file} {damage} (try {number}): {what}")
        return wrong


def find_failure(run: Path, path: Path, ended: Ended, whole: str) -> str | None:
    """What is wrong with how a command ended on a damaged file, if anything."""
    inside = path.parent.relative_to(run)  # the twin, if the file is one of its own
    printed = ended.out + ended.said
    is_named = path.name in printed or (str(inside) != "." and str(inside) in printed)
    if ended.status == 1:
        return ended.said
    if ended.status == 2:
        return None if "\n" not in ended.said.strip() else "a message of several lines"
    return None if ended.out == whole or is_named else "a silently different output"


# ---- formulas and requests


def fuzz_formulas(tries: int, rng: random.Random) -> list[str]:
    """Formulas of random pieces, and known ones with pieces changed, for every problem."""
    import wherefrom
    from wherefrom.checker import PROBLEMS

    wrong = []
    for _ in range(tries):
        pieces = list(rng.choice(FORMULAS)) if rng.random() < 0.5 else []
        for _ in range(rng.randrange(1, 12)):
            place = rng.randrange(len(pieces) + 1)
            pieces[place : place + rng.randrange(2)] = [rng.choice(PIECES)]
        name, formula = rng.choice(sorted(PROBLEMS)), "".join(pieces)
        began = time.process_time()
        try:
            with time_limit(10 * FORMULA_SECONDS):
                wherefrom.check(name, formula)
        except UserError:
            pass
        except TooLongError:
            pass  # counted below
        except Exception as problem:
            wrong.append(f"check {name} {formula!r}: {problem!r}")
        if (seconds := time.process_time() - began) > FORMULA_SECONDS:
            wrong.append(f"check {name} {formula!r}: {seconds:.1f} s")
    return wrong


def fuzz_requests(run: Path, tries: int, rng: random.Random) -> list[str]:
    """Requests with hostile values for every parameter; one run is served, so nothing trains."""
    from starlette.testclient import TestClient

    from wherefrom.checker import PROBLEMS
    from wherefrom.web.app import create_app

    address = "http://127.0.0.1:8765"
    client = TestClient(create_app(run), base_url=address, raise_server_exceptions=False)
    described = client.get("/openapi.json").json()
    names: set[str] = set()
    for methods in described["paths"].values():
        for operation in methods.values():
            names.update(parameter["name"] for parameter in operation.get("parameters", ()))
    for schema in described["components"]["schemas"].values():
        names.update(schema.get("properties", ()))
    question = read_judged(run)[0]["question"]
    values = (*HOSTILE_VALUES, run.name, question, *FORMULAS)
    wrong = []
    for _ in range(tries):
        path = rng.choice(list(described["paths"])).replace("{name}", rng.choice(list(PROBLEMS)))
        sent = {name: rng.choice(values) for name in rng.sample(sorted(names), 4)}
        sent |= {"run": run.name} if rng.random() < 0.5 else {}
        method = rng.choice(("GET", "POST"))
        where = {"params": sent} if method == "GET" else {"data": sent}
        status = client.request(method, path, **where, headers={"Origin": address}).status_code
        if status >= 500 and status != 503:  # 503: busy, which is an answer
            wrong.append(f"{method} {path} {sent!r:.200}: {status}")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tries", type=int, default=500, help="damaged files")
    parser.add_argument("--formulas", type=int, default=1_000)
    parser.add_argument("--requests", type=int, default=300)
    options = parser.parse_args()
    rng, work = random.Random(options.seed), Path(tempfile.mkdtemp())
    base_tries = options.tries // 5
    count = 0

    def tell(what: str, wrong: list[str]) -> None:
        nonlocal count
        count += len(wrong)
        sys.stdout.write("\n".join([*wrong, f"{what}, seed {options.seed}: {len(wrong)} wrong\n"]))
        sys.stdout.flush()

    try:
        tell(f"{options.formulas} formulas", fuzz_formulas(options.formulas, rng))
        if options.tries or options.requests:
            run, other = make_own_runs(work)
            tell(f"{options.requests} requests", fuzz_requests(run, options.requests, rng))
            found = FileFuzzer(run, other, COMMANDS).tries(options.tries - base_tries, rng)
            tell(f"{options.tries - base_tries} files", found)
        if base_tries:
            found = FileFuzzer(*make_base_runs(work), BASE_COMMANDS).tries(base_tries, rng)
            tell(f"{base_tries} files of a model that others trained", found)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    sys.exit(1 if count else 0)


if __name__ == "__main__":
    main()
