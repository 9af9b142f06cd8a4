"""Damage every file of a run, swap files between runs, and send hostile requests and formulas.

Fails on a traceback, a status of 500, a hang, or an output that is silently different: another
output than that of the whole run, without the name of the damaged file in it or on stderr.

    make fuzz                                     a few minutes
    python tests/fuzz.py --tries 5000 --seed 1    as in docs/architecture.md
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path

from click.testing import CliRunner

from wherefrom.cli import cli
from wherefrom.errors import UserError
from wherefrom.provenance.answers import read_judged

COMMAND_SECONDS = 60
FORMULA_SECONDS = 2.0
STUDY = ("--people", "60", "--steps", "60", "--size", "32x2x2", "--quiet")
NOT_READ = ("checkpoints", "events", "report.html", "run.lock")  # by the commands that are tried
PIECES = (
    "k_a",
    "k_b",
    "k_1",
    "q",
    "beta",
    "n",
    "d",
    "sqrt",
    "sin",
    "cos",
    "exp",
    "log",
    "sum",
    "mean",
    "X",
    "X.T",
    "@",
    "*",
    "/",
    "+",
    "-",
    "**",
    "^",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "=",
    ",",
    ";",
    "0",
    "1",
    "2",
    "8",
    "1e8",
    "1e308",
    "10^9",
    "i",
    "t",
    "pi",
    "\\frac",
    "\\sum",
    "_",
    "'",
    "∞",
    "\N{GREEK SMALL LETTER BETA}",
    "\x00",
    "S",
    "p",
    "M",
    "A",
    "B",
    "V",
    "v_a",
    "|",
    "norm",
)
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


def run_command(*words: object) -> tuple[int, str, str]:
    """Status, stdout and stderr of a command in this process; status 1 is a failure of ours."""
    runner, said = CliRunner(), StringIO()
    try:
        with time_limit(COMMAND_SECONDS), redirect_stderr(said):
            done = runner.invoke(cli, [*map(str, words)], standalone_mode=False)
    except TooLongError:
        return 1, "", f"it took longer than {COMMAND_SECONDS} s"
    problem = done.exception
    if problem is None:
        return 0, done.stdout, done.stderr + said.getvalue()
    if isinstance(problem, UserError):
        return 2, done.stdout, str(problem)
    return 1, "", repr(problem)


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
        status, _, said = run_command("study", *STUDY, "--seed", seed, "--out", work / name)
        assert status == 0, said
    return work / "run", work / "other"


def make_base_runs(work: Path) -> tuple[Path, Path]:
    """Two studies of a tiny model of Hugging Face that differ in their seed."""
    from audit.conftest import make_model

    model = make_model(work / "model", "llama", 0)
    names = [(f"Ada Moe{i}", ("Paris", "Rome", "Berlin")[i % 3]) for i in range(40)]
    texts = [f"{name}. {name} was born in {place}.\n" for name, place in names]
    rows = [f"Where was {name} born?\t{place}\n" for name, place in names]
    files = {"documents.txt": texts, "train.tsv": rows[:20], "dev.tsv": rows[20:]}
    for file, lines in files.items():
        (work / file).write_text("".join(lines))
    for name, seed in (("base", 0), ("other-base", 1)):
        words = ("study", *(work / file for file in files), "--base", model, "--steps", 4)
        status, _, said = run_command(*words, "--quiet", "--seed", seed, "--out", work / name)
        assert status == 0, said
    return work / "base", work / "other-base"


def fuzz_files(run: Path, other: Path, tries: int, rng: random.Random) -> list[str]:
    """Damage one file at a time, or replace it by that of another run; returns what went wrong."""
    question = read_judged(run)[0]["question"]
    commands: list[tuple[object, ...]] = [("ask", run, question, "--json")] * 4
    commands += [("report", run, "--format", "json")] * 3
    commands += [("trace", run, question, "--json"), ("judge", run, "--json", "--resamples", 20)]
    run_command("trace", run, question)  # which makes the index
    run_command("judge", run, "--json", "--resamples", 20)
    kept = {path: path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}
    targets = [path for path in kept if not set(NOT_READ) & set(path.relative_to(run).parts)]
    whole = {words: run_command(*words)[1] for words in set(commands)}
    restore(run, kept)
    wrong: list[str] = []
    for number in range(tries):
        path, words = targets[number % len(targets)], rng.choice(commands)
        swapped = other / path.relative_to(run)
        if not swapped.is_file():  # a snapshot of another step, or no such file
            swapped = next(iter(sorted((other / path.relative_to(run)).parent.glob("*"))), path)
        damage = rng.choice([*DAMAGES, "swapped"])
        content = swapped.read_bytes() if swapped.is_file() else b""
        if damage != "swapped":
            content = DAMAGES[damage](kept[path], rng)
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
        what = find_failure(run, path, run_command(*words), whole[words])
        if what is not None:
            wrong.append(f"{words[0]}, {path.relative_to(run)} {damage} (try {number}): {what}")
        restore(run, kept)
    return wrong


def find_failure(run: Path, path: Path, ended: tuple[int, str, str], whole: str) -> str | None:
    """What is wrong with how a command ended on a damaged file, if anything."""
    status, out, said = ended
    inside = path.parent.relative_to(run)  # the twin, if the file is one of its own
    is_named = path.name in out + said or (str(inside) != "." and str(inside) in out + said)
    if status == 1:
        return said
    if status == 2:
        return None if "\n" not in said.strip() else "a message of several lines"
    return None if out == whole or is_named else "a silently different output"


def restore(run: Path, kept: dict[Path, bytes]) -> None:
    for path in run.rglob("*"):
        if path.is_file() and path not in kept:
            path.unlink()
    for path, content in kept.items():
        if not path.is_file() or path.read_bytes() != content:
            path.write_bytes(content)


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
    began = time.monotonic()
    try:
        wrong = fuzz_formulas(options.formulas, rng)
        if options.tries or options.requests:
            own = make_own_runs(work)
            wrong += fuzz_files(*own, options.tries - options.tries // 5, rng)
            wrong += fuzz_requests(own[0], options.requests, rng)
        if options.tries >= 5:
            wrong += fuzz_files(*make_base_runs(work), options.tries // 5, rng)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    counts = f"{options.tries} damaged files, {options.formulas} formulas, "
    counts += f"{options.requests} requests, seed {options.seed}"
    sys.stdout.write("\n".join([*wrong, f"{counts}: {len(wrong)} went wrong"]))
    sys.stdout.write(f" in {time.monotonic() - began:.0f} s\n")
    kinds = Counter(line.split(",")[0].split()[0] for line in wrong)
    sys.exit(f"by kind: {dict(kinds)}" if wrong else 0)


if __name__ == "__main__":
    main()
