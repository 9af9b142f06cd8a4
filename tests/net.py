"""Records what users get, so that a change of the code that changes it is noticed.

    python tests/net.py --check [--part plain]   lists what differs from net.json, exits with 1
    python tests/net.py --write [--part plain]   records what is found now

net.json holds commands of `wherefrom` and addresses of its page, each with its result, in the order
in which they run in one folder. A new one is added as `"command": null` and recorded by --write.
There are four parts: `worlds` (the embedded world), `weights` (each variant and shipped recipe),
`plain` (commands that need no trained run), `study` (one small study, questions to it, its page).

An intended difference is accepted with --write and a line in CHANGELOG.md; any other is a bug. A
conflict in net.json is resolved by --check and --write after the rebase.

What depends on the clock or the machine is masked. Numbers are compared with a relative tolerance
of 1e-4 (or 1e-6 absolute), all else exactly; of a long list the length and the ends are kept. On
another machine losses have a wider tolerance, hashes of weights are not compared, and of what a
trained model says only the exit code (or status) and the outermost keys are.
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
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = Path(__file__).with_suffix(".json")
PARTS = ("worlds", "weights", "plain", "study")
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
# files that some of the commands are given
GIVEN = {
    "answers.toml": '[[answer]]\nid = "1b"\nproblem = "average"\npoints = 4\nq = "beta*(k_a+k_b)"\n'
    '[[answer]]\nid = "1a"\nproblem = "extract"\nM = "__import__(\'os\')"\n',
    "theirs.tsv": "Where was Dorothy S. Mahmood born?\tIstanbul\n"
    "Where was Chia-ming Yu born?\tShanghai\nWhere was Yashvi Nori born?\tAnatolia\n"
    "Where was Chia-ming Yu born?\tAtlantis\n",
}


# ---- what users do -----------------------------------------------------------------------------


def say(command: str) -> dict[str, Any]:
    """`wherefrom COMMAND` in this process: exit code, JSON or text, and what is in its --out.

    Of --help the options, without the words.
    """
    from wherefrom.cli import main

    out, err, before, code = io.StringIO(), io.StringIO(), sys.argv, 0
    sys.argv = ["wherefrom", *shlex.split(command)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.argv = before
    if command.endswith("--help"):
        text = out.getvalue()
        options = re.findall(r"^  (?:-h, )?(--[a-z-]+)(?: (\S+))?", text, re.MULTILINE)
        return {"usage": " ".join(text.partition("\n\n")[0].split()), **dict(options)}
    record: dict[str, Any] = {"exit": code}
    try:
        record["json"] = json.loads(out.getvalue())
    except ValueError:
        record |= {"stdout": out.getvalue().splitlines(), "stderr": err.getvalue().splitlines()}
    made = re.search(r"--out (\S+)", command)
    if code == 0 and made and Path(made[1]).is_dir():
        record["made"] = describe(Path(made[1]))
    return record


def describe(folder: Path) -> dict[str, Any]:
    """Of a run its losses, weights, twin without pretraining, files; of another folder hashes."""
    files = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*"))}
    hashes = {n: sha256(p.read_bytes()).hexdigest() for n, p in files.items() if p.is_file()}
    if "metrics.jsonl" not in files:
        return hashes
    metrics = [json.loads(line) for line in files["metrics.jsonl"].read_text().splitlines()]
    steps = {f"{each['phase']} {each['step']}": each for each in metrics}
    twin = folder / "twins" / "scratch"
    return {
        "losses": {name: each["loss"] for name, each in steps.items()},
        "rates": {name: each["lr"] for name, each in steps.items()},
        "tokens": metrics[-1]["tokens"],
        "sha256": hashes["model.safetensors"],
        "scratch": describe(twin) if twin.is_dir() else None,
        "files": {re.sub(r"tfevents.*", "tfevents", name): "file" for name in hashes},
    }


@contextlib.contextmanager
def serve(folder: str) -> Iterator[str]:
    """The address of the page over a folder."""
    command = [sys.executable, "-m", "wherefrom", "serve", folder, "--port", "0"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    server = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        yield re.findall(r"http://\S+?(?=/?\s)", server.stderr.readline())[0]
    finally:
        server.terminate()
        server.communicate()


def visit(server: str, address: str) -> dict[str, Any]:
    """The status and JSON of an address of the page; after `POST`, its query is the form."""
    method, _, path = address.rpartition(" ")
    path, _, query = path.partition("?")
    body = query.encode() if method else None
    url = f"{server}{path}" if method or not query else f"{server}{path}?{query}"
    try:
        with urlopen(Request(url, body), timeout=120) as reply:
            return {"status": reply.status, "json": json.loads(reply.read())}
    except HTTPError as refusal:
        return {"status": refusal.code, "json": json.loads(refusal.read())}


def find_all(asked: dict[str, Any], parts: tuple[str, ...] = PARTS) -> dict[str, Any]:
    """What is said now to all that was asked, each part in an empty folder with one thread."""
    os.environ |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "80"}
    sys.path[:] = [str(ROOT / "src"), *(path for path in sys.path if path != str(ROOT / "tests"))]
    before, found = os.getcwd(), {}
    for part in parts:
        found[part] = {}
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            os.chdir(folder)
            stack.callback(os.chdir, before)
            for name, text in GIVEN.items():
                Path(name).write_text(text, "utf-8")
            server = ""
            for each in asked[part]:
                if "/" not in each.partition(" ")[0] and not each.startswith("POST "):
                    record = say(each)
                else:
                    server = server or stack.enter_context(serve("runs"))
                    record = visit(server, each)
                found[part][each] = reduced(record, folder)
    return {**found, "machine": this_machine()}


def this_machine() -> dict[str, str]:
    """On what trained weights depend to the last bit."""
    import torch

    processor = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        first = Path("/proc/cpuinfo").read_text().partition("\n\n")[0]
        about = re.findall(r"^(?:model name|cpu family|model|stepping)\s*: (.*)$", first, re.M)
        processor = " ".join(about) or processor
    capability = torch.backends.cpu.get_cpu_capability()
    return {"processor": processor, "capability": capability, "torch": torch.__version__}


# ---- what is kept of it, and how it is compared --------------------------------------------------


def reduced(value: Any, folder: str, key: str = "") -> Any:
    """The value without what varies from run to run, and with long lists and texts cut.

    Of a figure the kinds of its traces are kept, of a table with times its columns: the numbers
    in them are those of other records. A list of records with an `id` or a `path` goes by that.
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
        named = {
            each.get("id") or each.get("path"): each for each in value if isinstance(each, dict)
        }
        if len(named) == len(value) and None not in named and len(value) > LONG:
            return reduced(named, folder)
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
    if not isinstance(value, dict | list) or not value:
        return {path: value}
    leaves: dict[str, Any] = {}
    for key, each in value.items() if isinstance(value, dict) else enumerate(value):
        leaves |= flat(each, f"{path} > {key}" if path else str(key))
    return leaves


def differences(was: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """A line for each fact that differs; parts that `found` lacks are left out."""
    same_machine = was["machine"] == found["machine"]
    lines = []
    for part in (part for part in PARTS if part in found):
        one, two = was[part], found[part]
        if part == "study" and not same_machine:
            one, two = outlines(one), outlines(two)
        one, two = flat(one, part), flat(two, part)
        tolerance = 1e-3 if part == "weights" and not same_machine else 1e-4
        for path in dict.fromkeys([*one, *two]):
            if part == "weights" and not same_machine and path.endswith(("sha256", "safetensors")):
                continue
            facts = [side.get(path, "(nothing)") for side in (one, two)]
            if {type(fact) for fact in facts} <= {int, float}:
                same = math.isclose(*facts, rel_tol=tolerance, abs_tol=1e-6)
            else:
                same = type(facts[0]) is type(facts[1]) and facts[0] == facts[1]
            if not same:
                lines.append(f"{path}\n    was {facts[0]!r}\n    is  {facts[1]!r}")
    return lines


def outlines(records: dict[str, Any]) -> dict[str, Any]:
    """Of each record what holds for any weights; all of it where no model is asked."""
    kept = {}
    for name, record in records.items():
        body = record.get("json")
        ends = {key: record[key] for key in ("exit", "status") if key in record}
        whole = name.startswith(("/workbench", "/api"))
        keys = " ".join(sorted(body)) if isinstance(body, dict) else type(body).__name__
        kept[name] = record if whole else {**ends, "keys": keys}
    return kept


def main() -> int:
    """The command line of this script; the exit code is 1 if something differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--part", choices=PARTS, action="append", help="only this one")
    what = parser.add_mutually_exclusive_group(required=True)
    for name in ("check", "write"):
        what.add_argument(f"--{name}", action="store_true")
    given = parser.parse_args()
    was = json.loads(GOLDEN.read_text("utf-8"))
    found = find_all(was, tuple(given.part or PARTS))
    if given.write:
        if given.part and was["machine"] != found["machine"]:
            parser.error("the record is of another machine: write all of it.")
        text = json.dumps(was | found, ensure_ascii=False, allow_nan=False, indent=1) + "\n"
        GOLDEN.write_text(text, "utf-8")
        return 0
    lines = differences(was, found)
    how = "weights to the last bit" if was["machine"] == found["machine"] else "weights by losses"
    facts = sum(len(flat(found[part])) for part in PARTS if part in found)
    print(*lines, f"{len(lines)} of {facts} facts differ; compared {how}", sep="\n")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
