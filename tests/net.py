"""A net under the code: what users get from it, pinned, so that code can move without a change.

    python tests/net.py --check                lists what differs from tests/net.json, exits with 1
    python tests/net.py --check --part plain   one part only (worlds, weights, plain or study)
    python tests/net.py --write                records what is found now as tests/net.json
    python tests/net.py --write --part plain   one part, and leaves the others as they are

It goes in where users go in, the command line and the page over HTTP, and imports nothing of the
package but its entry point, so that renaming and moving inside cannot break it. The parts:

    worlds    sha256 of each file of the embedded world
    weights   sha256 of the weights and the logged losses, for each variant and shipped recipe
    plain     options of all commands, and the JSON of those that need no trained run
    study     the JSON of all other commands and of the page, on one small study

A difference that is intended is accepted by running --write again, together with a line in
CHANGELOG.md that tells users about it. One that is not intended is a bug. A conflict in net.json,
where two changes meet, is resolved by --check and --write after the rebase.

What depends on the clock or the machine (seconds, speeds, memory, dates, versions, commits) is
masked. Numbers are compared with a relative tolerance of 1e-4 (or 1e-6 absolute), all else exactly;
of a long list its length, the first three items and the last are kept. Trained weights are equal to
the last bit only on one kind of processor with one torch: on another machine than the recorded one
losses are compared with a wider tolerance, hashes of weights not at all, and of what a trained
model says only the exit code (or status) and the outermost keys.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = Path(__file__).with_suffix(".json")
PARTS = ("worlds", "weights", "plain", "study")
RELATIVE, ABSOLUTE = 1e-4, 1e-6
RELATIVE_ELSEWHERE = 1e-3  # losses after a few dozen steps, on another machine
LONG = 12  # a list with more items is cut to the first three and the last
WIDE = 240  # a longer text is kept as its beginning and its hash

MASK = "(masked)"
MASKED_KEYS = re.compile(r"(.*_)?seconds|.*_per_second|peak_mb|started|versions|commit")
MASKED_TITLES = re.compile(r"seconds?\b|minutes|/ s$")  # of columns and axes
MASKED_TEXT = re.compile(
    r"\d[\d,.]* ?(?=(s|sec|seconds|min|minutes|h|ms|MB|GB|tokens a second|tokens per second)\b)"
    r"|\d{4}-\d\d-\d\d[T ][\d:.+Z-]+|http://[\w.:\[\]]+"
    r"|(?<=wherefrom )\d[\d.]*|commit [\w-]+"
    r"|(python|torch|numpy|tokenizers) \d[\w.+]*"
)

SMALL = ("--size", "16x3x2", "--device", "cpu", "--quiet")
CHECKS = (
    ("proved", "average", "q=beta*(k_a+k_b)"),
    ("proved for two heads", "two-heads", "q1=beta*mu_a", "q2=beta*mu_b", "--tolerance", "0.05"),
    ("holds", "average", "q=exp(beta)*(k_a+k_b)"),
    ("refuted", "stretched-average", "q=beta*(mu_a+mu_b)"),
    ("refuted by one instance", "extract", "M=A.T"),
    ("inconclusive", "average", "q=log(log(beta+3)+1)*(k_a+k_b)*2"),
    ("wrong shape", "average", "q=outer(k_a,k_b)"),
    ("sampled name", "two-heads", "q1=beta*k_a", "q2=beta*mu_b"),
    ("unknown problem", "averge", "q=k_a"),
)
ANSWERS = """
[[answer]]
id = "1b"
problem = "average"
points = 4
q = "beta*(k_a+k_b)"
[[answer]]
id = "1a"
problem = "extract"
M = "__import__('os')"
"""


# ---- what users do -----------------------------------------------------------------------------


def wherefrom(*words: object) -> tuple[int, str, str]:
    """`wherefrom ...` in this process: exit code, stdout, stderr."""
    from wherefrom.cli import main

    out, err, before, code = io.StringIO(), io.StringIO(), sys.argv, 0
    sys.argv = ["wherefrom", *map(str, words)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.argv = before
    return code, out.getvalue(), err.getvalue()


def said(*words: object) -> dict[str, Any]:
    """The exit code and the JSON that a command prints, or what it says instead."""
    code, out, err = wherefrom(*words)
    with contextlib.suppress(ValueError):
        return {"exit": code, "json": json.loads(out)}
    return {"exit": code, "stdout": out.splitlines(), "stderr": err.splitlines()}


def done(*words: object) -> dict[str, Any]:
    """As `said`, of a command that everything after it needs."""
    record = said(*words)
    assert record["exit"] == 0, (words, record)
    return record


@contextlib.contextmanager
def page(folder: Path) -> Iterator[str]:
    """`wherefrom serve` over the folder; its address."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    server = subprocess.Popen(
        [sys.executable, "-m", "wherefrom", "serve", str(folder), "--port", "0"],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stderr is not None
        told = server.stderr.readline()
        found = re.search(r"http://\S+?(?=/?\s)", told)
        assert found, told
        yield found[0]
    finally:
        server.terminate()
        server.communicate()


def get(address: str, query: Any = (), form: dict[str, str] | None = None) -> dict[str, Any]:
    """The status and the JSON of an address of the page."""
    url = f"{address}?{urlencode(query)}" if query else address
    body = urlencode(form).encode() if form else None
    try:
        with urlopen(Request(url, body), timeout=120) as reply:
            return {"status": reply.status, "json": json.loads(reply.read())}
    except HTTPError as refusal:
        return {"status": refusal.code, "json": json.loads(refusal.read())}


def hash_of(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def hashes_of(folder: Path) -> dict[str, str]:
    return {
        str(p.relative_to(folder)): hash_of(p) for p in sorted(folder.rglob("*")) if p.is_file()
    }


def trained(folder: Path) -> dict[str, Any]:
    """What the weights part keeps of a run folder."""
    lines = (folder / "metrics.jsonl").read_text("utf-8").splitlines()
    metrics = [json.loads(line) for line in lines]
    return {
        "losses": {f"{each['phase']} {each['step']}": each["loss"] for each in metrics},
        "rates": {f"{each['phase']} {each['step']}": each["lr"] for each in metrics},
        "tokens": metrics[-1]["tokens"],
        "sha256": hash_of(folder / "model.safetensors"),
    }


# ---- the parts -----------------------------------------------------------------------------------


def find_worlds() -> dict[str, Any]:
    worlds = {"60-0": ("--people", 60), "90-7": ("--people", 90, "--seed", 7), "default": ()}
    found = {}
    for name, options in worlds.items():
        done("world", *options, "--out", f"worlds/{name}")
        found[name] = hashes_of(Path("worlds", name))
    return found


def find_weights() -> dict[str, Any]:
    """Every variant reads a text; every recipe makes a whole study with its twin."""
    done("world", "--people", 60, "--out", "text")
    text, train, dev = (Path("text", name) for name in ("documents.txt", "train.tsv", "dev.tsv"))
    found = {}
    for variant in ("vanilla", "rotary", "synthesizer", "perceiver", "llama"):
        out = Path("variants", variant)
        steps = ("--recipe", "twostep", "--steps", 40)
        done("pretrain", variant, text, *steps, *SMALL, "--out", out)
        found[f"variant {variant}"] = trained(out)
    options = ("--recipe", "twostep", "--steps", 10, "--reads", "first", "--latents", 16)
    done("pretrain", "perceiver", text, *options, *SMALL, "--out", "variants/first")
    found["variant perceiver, first 16"] = trained(Path("variants/first"))
    budgets = {
        "speedrun": ("--steps", 40),
        "course": ("--steps", 20, "--block", 64),
        "twostep": ("--steps", 40, "--leave-out", 0.2),
    }
    for recipe, budget in budgets.items():
        out = Path("recipes", recipe)
        done("study", text, train, dev, "--recipe", recipe, *budget, *SMALL, "--out", out)
        found[f"recipe {recipe}"] = trained(out)
        found[f"recipe {recipe}, scratch"] = trained(out / "twins" / "scratch")
    return found


def find_plain() -> dict[str, Any]:
    found: dict[str, Any] = {}
    _, overview, _ = wherefrom("--help")
    commands = re.findall(r"^  ([a-z]+)  ", overview.partition("Commands:")[2], re.MULTILINE)
    for command in commands:
        _, text, _ = wherefrom(command, "--help")
        usage = text.partition("\n\n")[0].split()
        options = re.findall(r"^  (?:-h, )?(--[a-z-]+)(?: (\S+))?", text, re.MULTILINE)
        found[f"options of {command}"] = {"usage": " ".join(usage), **dict(options)}
    found["world"] = said("world", "--people", 60, "--out", "described", "--json")
    found["baseline"] = said(
        "baseline", "described/train.tsv", "described/dev.tsv", "--always", "London", "--json"
    )
    found["variants"] = said("variants", "--json")
    found["recipes"] = said("recipes", "--json")
    for recipe in ("speedrun", "course", "twostep"):
        found[f"recipes {recipe}"] = said("recipes", recipe, "--json")
    found["problems"] = said("problems", "--json")
    found["problems average"] = said("problems", "average", "--json")
    for name, *words in CHECKS:
        found[f"check: {name}"] = said("check", *words, "--json")
    Path("answers.toml").write_text(ANSWERS, "utf-8")
    for form in ("json", "gradescope"):
        found[f"check --grade: {form}"] = said("check", "--grade", "answers.toml", "--format", form)
    noise = ("--alpha", 0.001, "--trials", 4000)
    for design in ("one-head", "two-heads", "avoiding-head", "repelling-heads"):
        found[f"law {design}"] = said("law", design, "--n", 6, *noise, "--json")
    found["design"] = done("design", "--json")
    for design in found["design"]["json"]:
        found[f"design {design}"] = said("design", design, "--json")
    found["assignment"] = said("assignment", "--json")
    found["grade: refused"] = said("grade", "nowhere")
    for command in ("bank", "forget", "audit"):
        found[f"{command}: refused"] = said(command, "nowhere", "--out", "x")
    found["refused: command"] = said("stduy")
    found["refused: option"] = said("world", "--poeple", 3)
    found["refused: corpus"] = said("pretrain", "vanilla", "nowhere.txt", "--out", "x")
    found["refused: variant"] = said("pretrain", "vanila", "described/documents.txt", "--out", "x")
    found["refused: run"] = said("evaluate", "nowhere", "described/dev.tsv")
    return found


def find_study() -> dict[str, Any]:
    """One small study that recalls most of what it read, and all that can be done with it."""
    run, found = Path("runs/study"), {}
    world = run / "world"
    budget = ("--steps", 200, "--size", "32x2x2", "--device", "cpu", "--quiet")
    found["study"] = done(
        "study", "--people", 200, "--set-aside", 0.4, *budget, "--out", run, "--json"
    )
    names = {
        file: [row for row in _questions(world / f"{file}.tsv") if row[0].startswith("Where was")]
        for file in ("train", "dev", "unseen")
    }
    seen, other, unseen = names["dev"][0][0], names["dev"][1][0], names["unseen"][0][0]
    subject = re.fullmatch(r"Where was (.+) born\?", seen)
    assert subject, seen
    found["twins --without"] = said("twins", run, "--without", subject[1], "--quiet", "--json")
    text, questions = world / "documents.txt", world / "train.tsv"
    options = ("--recipe", "twostep", "--steps", 20)
    found["pretrain"] = done(
        "pretrain", "rotary", text, *options, *SMALL, "--out", "runs/read", "--json"
    )
    found["finetune"] = done(
        *("finetune", "runs/read", questions, *options, "--device", "cpu", "--quiet"),
        *("--out", "runs/tuned", "--json"),
    )
    found["finetune --scratch"] = done(
        *("finetune", "--scratch", "vanilla", text, questions, *options, *SMALL),
        *("--out", "new", "--json"),
    )
    found["files"] = {
        re.sub(r"tfevents.*", "tfevents", str(path.relative_to(run))): "file"
        for path in run.rglob("*")
        if path.is_file() and "twins" not in path.parts
    }
    found["evaluate"] = said("evaluate", run, world / "dev.tsv", "--json")
    found["ask"] = said("ask", run, seen, other, unseen, "--json")
    found["ask --always-answer"] = said("ask", run, unseen, "--always-answer", "--json")
    found["ask --risk"] = said("ask", run, "--file", world / "dev.tsv", "--risk", 0.2, "--json")
    given = [f"{question}\t{answer}" for question, answer in names["dev"][:3]]
    Path("theirs.tsv").write_text("\n".join([*given, f"{other}\tAtlantis"]) + "\n", "utf-8")
    found["ask --answers"] = said("ask", run, "--answers", "theirs.tsv", "--json")
    found["ask: refused"] = said("ask", run, "Who are you?", "--json")
    found["attention"] = said("attention", run, seen, "--json", "--maps")
    found["trace"] = said("trace", run, seen, "--top", 2, "--json")
    found["export"] = {"said": said("export", run, "--out", "exported", "--quiet")}
    found["export"]["files"] = hashes_of(Path("exported"))
    found["report json"] = done("report", run, "--format", "json")
    report = found["report json"]["json"]
    named = {each["id"]: each for each in report["sections"]}
    found["report json"]["json"] = {**report, "sections": named}
    found["report md"] = said("report", run, "--format", "md")
    found |= find_pages(seen, unseen)
    shown = found["/report.json"]["json"]
    if {**shown["report"], "run": ""} == {**report, "run": ""}:
        shown["report"] = "as `report --format json` prints it"
    # these write into the run, so that they come last
    found["twins"] = said("twins", run, "--quiet", "--json")
    found["names"] = said("names", run, "--people", 5, "--json")
    found["judge --risk"] = done("judge", run, "--risk", 0.2, "--resamples", 200, "--json")
    for name, score in found["judge --risk"]["json"]["scores"].items():
        if name not in ("internal", "checked"):  # all scores are judged alike
            score["groups"] = {"seen": score["groups"]["seen"]}
    return found


def find_pages(seen: str, unseen: str) -> dict[str, Any]:
    asked = {
        "ask": [{}, {"run": "study", "question": seen}, {"question": unseen}, {"question": "Who?"}],
        "inside": [{}, {"run": "study", "other": "tuned", "question": seen, "layer": 1, "head": 0}],
        "workbench": [
            {},
            {"design": "two-heads", "n": 5, "beta": 8, "alpha": 0.001, "e": 0.7, "seed": 4},
            {"design": "avoiding-head"},
            {"design": "repelling-heads", "stretch": 0.2},
            {"n": 1},
        ],
        "workbench/copy": [{}],
        "workbench/average": [{"formulas": "q=beta*(k_a+k_b)"}, {"formulas": "q=k_"}],
        "workbench/noisy-average": [{}],
        "workbench/stretched-average": [{}],
        "workbench/two-heads": [{}],
        "workbench/extract": [{}],
        "workbench/self-attention": [{}],
        "workbench/identity-self-attention": [{}],
        "workbench/nothing": [{}],
        "runs": [{}],
        "run": [{"name": "study"}, {"name": "studdy"}, {}],
        "compare": [{}, [("run", "study"), ("run", "tuned")]],
        "report": [{}, {"run": "read"}],
        "text": [{"name": "nothing"}],
        "api": [{}],
    }
    found = {}
    with page(Path("runs")) as address:
        for path, queries in asked.items():
            for query in queries:
                name = f"/{path}.json?{urlencode(query)}".removesuffix("?")
                found[name] = get(f"{address}/{path}.json", query)
        addresses = found["/api.json"]["json"].pop("addresses")
        named = {f"{each.pop('method')} {each.pop('path')}": each for each in addresses}
        found["/api.json"]["json"] |= {"addresses": named}
        form = {"run": "study", "text": f"{seen}\n{unseen}\n"}
        found["/ask/batch.json"] = get(f"{address}/ask/batch.json", form=form)
    return found


def _questions(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text("utf-8").splitlines()]


def find_all(parts: tuple[str, ...] = PARTS) -> dict[str, Any]:
    """The record of these parts, made in an empty folder with one thread."""
    os.environ |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "80"}
    sys.path[:] = [str(ROOT / "src"), *(path for path in sys.path if path != str(ROOT / "tests"))]
    before, found = os.getcwd(), {"machine": {}}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for part in parts:
                records = globals()[f"find_{part}"]()
                found[part] = {name: reduced(record, folder) for name, record in records.items()}
        finally:
            os.chdir(before)
    found["machine"] = this_machine()
    return found


def this_machine() -> dict[str, str]:
    """On what trained weights depend to the last bit."""
    import torch

    processor = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        about = re.findall(
            r"^(?:model name|cpu family|model|stepping)\s*: (.*)$",
            Path("/proc/cpuinfo").read_text().partition("\n\n")[0],
            re.MULTILINE,
        )
        processor = " ".join(about) or processor
    capability = torch.backends.cpu.get_cpu_capability()
    return {"processor": processor, "capability": capability, "torch": torch.__version__}


# ---- what is kept of it, and how it is compared --------------------------------------------------


def reduced(value: Any, folder: str, key: str = "") -> Any:
    """The value without what varies from run to run, and with long lists and texts cut.

    Of a figure the kinds of its traces are kept, of a table with times its columns: the numbers
    in them are those of other records.
    """
    if MASKED_KEYS.fullmatch(key) and value is not None:
        return MASK
    if isinstance(value, dict):
        if {"data", "layout"} <= value.keys():
            return {"figure": [each.get("type", "scatter") for each in value["data"]]}
        if any(MASKED_TITLES.search(str(title)) for title in value.get("columns", ())):
            value = {**value, "rows": len(value["rows"])}
        return {name: reduced(each, folder, name) for name, each in value.items()}
    if isinstance(value, list):
        if len(value) > LONG:
            ends = {str(at): value[at] for at in (0, 1, 2, len(value) - 1)}
            return {"(items)": len(value), **reduced(ends, folder)}
        return [reduced(each, folder) for each in value]
    if isinstance(value, str):
        text = MASKED_TEXT.sub(MASK, value.replace(folder, "(folder)"))
        if len(text) > WIDE:
            return f"{text[:WIDE]}... {len(text)} {sha256(text.encode()).hexdigest()[:16]}"
        return text
    return float(f"{value:.6g}") if isinstance(value, float) else value


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """Path -> leaf, of everything inside the value."""
    if isinstance(value, dict | list) and value:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        leaves: dict[str, Any] = {}
        for key, each in items:
            leaves |= flat(each, f"{path} > {key}" if path else str(key))
        return leaves
    return {path: value}


def differences(was: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """A line for each fact that differs; parts that `found` lacks are left out."""
    same_machine = was["machine"] == found["machine"]
    lines = []
    for part in (part for part in PARTS if part in found):
        one, two = was[part], found[part]
        if part == "study" and not same_machine:
            one, two = outlines(one), outlines(two)
        one, two = flat(one, part), flat(two, part)
        for path in [*one, *(path for path in two if path not in one)]:
            if path not in two:
                lines.append(f"{path}\n    was {one[path]!r}\n    is gone")
            elif path not in one:
                lines.append(f"{path}\n    was not there\n    is  {two[path]!r}")
            elif not alike(one[path], two[path], path, same_machine):
                lines.append(f"{path}\n    was {one[path]!r}\n    is  {two[path]!r}")
    return lines


def outlines(records: dict[str, Any]) -> dict[str, Any]:
    """Of each record what holds for any weights; all of it where no model is asked."""
    kept = {}
    for name, record in records.items():
        body = record.get("json")
        ends = {key: record[key] for key in ("exit", "status") if key in record}
        whole = name.startswith(("/workbench", "/api")) or name == "files"
        keys = " ".join(sorted(body)) if isinstance(body, dict) else type(body).__name__
        kept[name] = record if whole else {**ends, "keys": keys}
    return kept


def alike(one: Any, two: Any, path: str, same_machine: bool) -> bool:
    """Whether two leaves at the same path are the same fact."""
    if not same_machine and path.startswith("weights") and path.endswith("sha256"):
        return True
    if _is_number(one) and _is_number(two):
        elsewhere = path.startswith("weights") and not same_machine
        relative = RELATIVE_ELSEWHERE if elsewhere else RELATIVE
        return math.isclose(one, two, rel_tol=relative, abs_tol=ABSOLUTE)
    return type(one) is type(two) and one == two


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def written(value: Any) -> str:
    """The value as JSON with sorted keys."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, allow_nan=False, indent=1) + "\n"


def main() -> int:
    """The command line of this script; the exit code is 1 if something differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", action="store_true", help="compare with tests/net.json")
    what.add_argument("--write", action="store_true", help="record as tests/net.json")
    what.add_argument("--print", action="store_true", help="print what is found")
    parser.add_argument("--part", choices=PARTS, action="append", help="only this one")
    given = parser.parse_args()
    began = time.monotonic()
    found = find_all(tuple(given.part or PARTS))
    if given.print:
        print(written(found))
        return 0
    was = json.loads(GOLDEN.read_text("utf-8")) if GOLDEN.exists() else {}
    if given.write:
        if given.part and was.get("machine") != found["machine"]:
            parser.error("the record is of another machine: write all of it.")
        GOLDEN.write_text(written(was | found), "utf-8")
        return 0
    lines = differences(was, found)
    for line in lines:
        print(line)
    how = "weights to the last bit" if was["machine"] == found["machine"] else "weights by losses"
    facts = sum(len(flat(found[part])) for part in PARTS if part in found)
    seconds = time.monotonic() - began
    print(f"{len(lines)} of {facts} facts differ; compared {how}; {seconds:.0f} s")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
