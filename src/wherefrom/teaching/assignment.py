"""An assignment: its cases, and its two folders, for the students and for the teacher.

A case has inputs, the right result, and the results of well-known mistakes (mistakes.toml). The
handed-out and the hidden cases are drawn from different seeds. All dimensions of a case differ, so
that swapped axes are noticed. Students fill in the reference solution without its function bodies.
"""

from __future__ import annotations

import ast
import importlib.abc
import io
import json
import re
import secrets
import string
import tomllib
import zipfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.random import Generator

from wherefrom.errors import UserError, did_you_mean
from wherefrom.storage import make_folder, write_whole
from wherefrom.teaching import reference
from wherefrom.teaching.checks import COUNTS, PARTS, encode, make_argument, part_of
from wherefrom.teaching.results import fill_template, otter_tests
from wherefrom.teaching.rubric import Rubric, parse_rubric, read_text_file
from wherefrom.teaching.written import CHECKER_FOLDERS, find_problem

HERE = Path(__file__).parent
MISTAKES = tomllib.loads((HERE / "mistakes.toml").read_text("utf-8"))
ALL_PARTS = "transformer"  # the assignment with all parts
SOURCES = {"transformer.py": "reference.py", "model.py": "reference_model.py"}
ASSIGNMENT_FILE = "assignment.json"
# the modules of this package that run on Gradescope
GRADER = (
    "__init__",
    "checks",
    "grading",
    "isolation",
    "process",
    "results",
    "rubric",
    "runner",
    "sandbox",
    "submissions",
)
MASK_ID = 1  # closes an answer
Cases = list[dict[str, Any]]
Draw = Callable[[Generator], Cases]


class MistakenReference(importlib.abc.InspectLoader):
    """Imports the reference solution with a mistake in it."""

    def __init__(self, old: str, new: str) -> None:
        self.old, self.new = old, new

    def get_source(self, fullname: str) -> str:
        return change((HERE / "reference.py").read_text("utf-8"), self.old, self.new)


def change(source: str, old: str, new: str) -> str:
    """The source with `old` replaced by `new`."""
    assert old in source, f"no reference solution holds {old!r}"
    return source.replace(old, new)


@cache
def _mistaken(old: str, new: str) -> ModuleType:
    module = ModuleType("mistaken")
    MistakenReference(old, new).exec_module(module)
    return module


@np.errstate(all="ignore")
def _run(module: ModuleType, function: str, arguments: list[Any]) -> Any:
    return getattr(module, function)(*map(make_argument, arguments))


def make_cases(parts: Iterable[str], seed: int) -> dict[str, Cases]:
    """Cases for every check of these parts, with expected results where a check needs them."""
    rng, wanted = np.random.default_rng(seed), set(parts)
    made = {}
    for title, (function, draw) in CASES.items():
        cases = draw(rng)  # drawn for all parts, so that each part keeps its numbers
        if part_of(title) not in wanted:
            continue
        made[title] = cases
        for case in cases if function else ():
            case["expected"] = _run(reference, function, case["args"])
            case["mistakes"] = _run_mistakes(title, function, case["args"])
    return made


def _run_mistakes(title: str, function: str, arguments: list[Any]) -> list[tuple[str, Any]]:
    """What is said of each well-known mistake and what it returns, if that is finite.

    A check refuses nan and infinity before it looks for a mistake, and JSON cannot hold them.
    """
    returned = []
    for says, old, new in MISTAKES.get(title, ()):
        result = _run(_mistaken(old, new), function, arguments)
        parts = result if isinstance(result, tuple) else (result,)
        if all(np.isfinite(part).all() for part in parts):
            returned.append((says, result))
    return returned


def _normal(*sizes: tuple[int, ...]) -> Draw:
    # small, so that every visible key gets a noticeable weight
    return lambda rng: [{"args": [rng.normal(size=size) / 2 for size in sizes]}]


def _mask(rng: Generator, *size: int) -> Any:
    mask = rng.random(size) < 0.6
    mask[:, 0], mask[:, 1] = True, False
    return mask


def _softmax(rng: Generator) -> Cases:
    scores, mask = rng.normal(size=(5, 7)), _mask(rng, 5, 7)
    blind = mask & (np.arange(5) != 3)[:, None]
    *_, (overflow, *_), (nothing, *_) = MISTAKES["attention: weights"]
    return [
        {"args": [scores, mask]},
        {"args": [1000 * scores, mask], "nan": overflow},
        {"args": [scores, blind], "nan": nothing},
    ]


def _attention(rng: Generator) -> Cases:
    sizes = [[(*lead, 5, 7), (*lead, 11, 7), (*lead, 11, 13)] for lead in ((), (2, 3))]
    drawn = [[rng.normal(size=size) for size in group] for group in sizes]
    return [{"args": [*arrays, _mask(rng, 5, 11)]} for arrays in drawn]


def _span(block: int, length: int, draws: int) -> Draw:
    def draw(rng: Generator) -> Cases:
        letters = rng.choice(list(string.ascii_letters + " ."), size=length)
        return [{"args": ["".join(letters), block, int(rng.integers(1 << 30)), draws]}]

    return draw


def _decode(rng: Generator) -> Cases:
    """A case whose answer ends by itself, and one whose answer reaches the length limit."""
    cases: dict[bool, dict[str, Any]] = {}
    while len(cases) < 2:
        table, prompt = rng.normal(size=(97, 12)), [int(i) for i in rng.integers(2, 12, size=5)]
        said = len(_run(reference, "greedy_decode", [{"toy": table}, prompt, 9, MASK_ID]))
        if said in (5, 9):
            cases[said == 9] = {"args": [{"toy": table}, prompt, 8, MASK_ID]}
    return [cases[False], cases[True]]


def _evaluate(rng: Generator) -> Cases:
    places = rng.permutation(["Rome", "Oslo", "Lima", "Bergen", "Quito", "Paris"])[:3].tolist()
    told = [{"q": f"Where was {a[0]} born?", "a": a, "l": a.lower()} for a in places]
    cases = []
    for *forms, right, mistake in MISTAKES["evaluate"]["cases"]:
        texts = [[form.format(**who) for who in told] for form in forms]
        cases.append({"args": texts, "expected": [3 * right, 3], "mistake": mistake})
    return cases


def _variant(rng: Generator) -> Cases:
    """A row of ids, and two copies with one id changed."""
    places, row = [23, 88], rng.integers(2, 256, size=97)
    other = np.where(row == 255, 2, row + 1)
    changed = [np.where(np.arange(97) == place, other, row).tolist() for place in places]
    return [{"args": [[row.tolist(), *changed], *places]}]


_SYNTHESIZER = _normal((5, 7), (7, 7), (7,), (7, 11), (11,), (7, 7))
_PERCEIVER = _normal((11, 5), (3, 5), (5, 5), (5, 5), (5, 5))
# title of a check -> the function whose results are compared ("" for none), and its cases
CASES: dict[str, tuple[str, Draw]] = {
    "attention: weights": ("softmax", _softmax),
    "attention: context": ("attention", _attention),
    "attention: masked": ("", lambda rng: [{"args": [rng.normal(size=(7, 4)), np.tri(7) > 0]}]),
    "mask: triangle": ("", lambda rng: [{"args": [length]} for length in (1, 7)]),
    "span: form": ("", _span(64, 200, 50)),
    "span: lengths": ("", _span(32, 60, 400)),
    "span: share": ("", _span(128, 200, 200)),
    "rotary: angles": ("rotary", lambda rng: _normal((5, 6))(rng) + _normal((2, 3, 7, 4))(rng)),
    "rotary: distance": (
        "",
        lambda rng: [{"args": [np.tile(rng.normal(size=6), (5, 1)) for _ in range(2)]}],
    ),
    "synthesizer: context": ("synthesizer", _SYNTHESIZER),
    "synthesizer: causal": ("", _SYNTHESIZER),
    "perceiver: masks": ("perceiver_masks", lambda rng: [{"args": [12, 4]}, {"args": [11, 3]}]),
    "perceiver: down": ("perceiver_down", _PERCEIVER),
    "perceiver: up": ("perceiver_up", _PERCEIVER),
    "perceiver: reads all": ("", _PERCEIVER),
    "decode: ids": ("greedy_decode", _decode),
    "evaluate: exact match": ("", _evaluate),
    **{f"variants: {name}": ("", _variant) for name in COUNTS},
}


# ---- folders


def make_assignment(parts: Iterable[str], seed: int) -> dict[str, Any]:
    """The record for the grader: adapters, handed-out and hidden cases of these parts."""
    parts = list(parts)
    return {
        "adapters": _write_adapters(parts),
        "handed out": make_cases(parts, 0),
        "hidden": make_cases(parts, seed),
    }


def read_or_make_rubric(name: str) -> tuple[str, Rubric]:
    """The text and the questions of a rubric: for one part, for all parts, or of a file."""
    if name.endswith(".toml"):
        text = read_text_file(Path(name))
        if re.search(r"(?m)^assignment\s*=", text) is None:
            text = f'assignment = "{ASSIGNMENT_FILE}"\n\n{text}'
    elif name != ALL_PARTS and name not in PARTS:
        known = did_you_mean(name, [ALL_PARTS, *PARTS])
        raise UserError(f'there is no assignment "{name}".{known}')
    else:
        text = f'assignment = "{ASSIGNMENT_FILE}"\n'
        for part in PARTS if name == ALL_PARTS else [name]:
            text += f'\n[[answer]]\nid = "{part}"\nkind = "code"\npoints = {PARTS[part][0]}\n'
    try:
        return text, parse_rubric(text, None)
    except UserError as mistake:
        raise UserError(f"{name}: {mistake}") from None


def write_assignment(name: str, out: Path, seed: int | None = None) -> Rubric:
    """Write OUT/handout and OUT/teacher; without a seed, the hidden cases are random."""
    text, rubric = read_or_make_rubric(name)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} exists and is not an empty folder; give --out a new one.")
    parts = [question.part for question in rubric.of_kind("code")]
    record = make_assignment(parts, secrets.randbelow(1 << 62) + 1 if seed is None else seed)
    rubric = replace(rubric, assignment=record)
    known = json.dumps(encode(record), allow_nan=False)
    checks = (HERE / "checks.py").read_text("utf-8")
    points = sum(question.points for question in rubric.questions)
    files: dict[str, bytes | str] = {
        "handout/README.md": _handout_readme(rubric),
        f"teacher/{ASSIGNMENT_FILE}": known,
        "teacher/README.md": fill_template("teacher_readme", points=f"{points:g}"),
        "teacher/rubric.toml": text,
        "teacher/gradescope.zip": _zip_for_gradescope(text, known, rubric),
        "teacher/otter/support/assignment.json": known,
        "teacher/otter/support/checks.py": checks,
    }
    for file, test in otter_tests(rubric).items():
        files[f"teacher/otter/tests/{file}"] = test
    if parts:
        files |= _code_files(parts, record, checks)
    written = [question for question in rubric.questions if question.kind != "code"]
    if written:
        blanks = [f'[[answer]]\nid = {json.dumps(q.id)}\nanswer = ""\n' for q in written]
        files["handout/answers.toml"] = "\n".join(blanks)
    for path, content in files.items():
        make_folder((out / path).parent)
        write_whole(out / path, content)
    return rubric


def _handout_readme(rubric: Rubric) -> str:
    """What students are asked: functions to fill in, and questions to answer."""
    text = ""
    code = rubric.of_kind("code")
    if code:
        table = "| part | functions | about | points |\n|---|---|---|---|\n"
        for question in code:
            _, about, names = PARTS[question.part]
            functions = "`, `".join(names)
            table += f"| {question.part} | `{functions}` | {about} | {question.points:g} |\n"
        text += fill_template("handout_code", table=table)
    written = [question for question in rubric.questions if question.kind != "code"]
    if written:
        table = "| question | about | points |\n|---|---|---|\n"
        for question in written:
            about = find_problem(question.problem).title if question.problem else "in words"
            table += f"| {question.id} | {about} | {question.points:g} |\n"
        text += fill_template("handout_written", table=table)
    return text


def _code_files(parts: list[str], record: dict[str, Any], checks: str) -> dict[str, bytes | str]:
    """The handed-out skeletons and tests, and the solution."""
    files: dict[str, bytes | str] = {
        "handout/adapters.py": record["adapters"],
        "handout/cases.json": json.dumps(encode(record["handed out"])),
        "handout/checks.py": checks,
        "handout/run_tests.py": fill_template("run_tests"),
        "handout/test_assignment.py": fill_template("test_assignment"),
        "teacher/solution/adapters.py": record["adapters"],
    }
    asked = {function for part in parts for function in PARTS[part][2]}
    for file, module in SOURCES.items():
        source = (HERE / module).read_text("utf-8")
        if asked & set(_functions(source)):
            files[f"handout/{file}"] = make_skeleton(source, asked)
            files[f"teacher/solution/{file}"] = source
    return files


def make_skeleton(source: str, asked: Iterable[str]) -> str:
    """The source with the asked functions emptied, and the other functions that they call."""
    functions, wanted, lines = _functions(source), set(asked), source.splitlines()
    needed = [name for name in functions if name in wanted]
    for name in needed:  # it grows
        used = {node.id for node in ast.walk(functions[name]) if isinstance(node, ast.Name)}
        needed += [other for other in functions if other in used and other not in needed]
    kinds = ast.FunctionDef | ast.ClassDef
    first = next(node.lineno for node in ast.parse(source).body if isinstance(node, kinds))
    kept = lines[: first - 1]
    for name, node in functions.items():
        if name in wanted:
            kept += lines[node.lineno - 1 : node.body[0].end_lineno]  # with its docstring
            kept += ["    raise NotImplementedError  # your code", "", ""]
        elif name in needed:
            kept += [*lines[node.lineno - 1 : node.end_lineno], "", ""]
    return "\n".join(kept).rstrip() + "\n"


def _write_adapters(parts: Iterable[str]) -> str:
    """The text of adapters.py: each function calls the student's function."""
    functions = _functions((HERE / "reference.py").read_text("utf-8"))
    head, text = '"""Connects your code with the tests: change what is elsewhere."""\n', ""
    for name in (function for part in parts for function in PARTS[part][2]):
        if name == "build_model":  # needs torch, so it is loaded only when it is asked for
            text += "\n\ndef model(variant, rows):\n    import checks\n    import model\n\n"
            text += "    return checks.run_model(model.build_model(variant), rows)\n"
        else:
            given = ", ".join(argument.arg for argument in functions[name].args.args)
            text += f"\n\ndef {name}({given}):\n    return transformer.{name}({given})\n"
    return head + ("\nimport transformer\n" if "transformer." in text else "") + text


def _functions(source: str) -> dict[str, ast.FunctionDef]:
    nodes = ast.parse(source).body
    return {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}


def _zip_for_gradescope(rubric_text: str, known: str, rubric: Rubric) -> bytes:
    """The autograder: a program that grades one submission by this rubric."""
    package, packages = HERE.parent, ["numpy", "pydantic"]
    sources = [package / "errors.py", package / "storage.py"]
    sources += [HERE / f"{module}.py" for module in GRADER]
    if any(question.part == "variants" for question in rubric.of_kind("code")):
        packages.append("torch")
    if any(question.problem for question in rubric.questions if question.kind != "code"):
        packages += ["scipy", "sympy"]
        sources.append(HERE / "written.py")
        for folder in CHECKER_FOLDERS:
            files = (package / folder).rglob("*")
            sources += sorted(path for path in files if path.suffix in (".py", ".toml"))
    texts = {
        "setup.sh": fill_template("setup", packages=" ".join(packages)),
        "run_autograder": fill_template("run_autograder"),
        "rubric.toml": rubric_text,
        ASSIGNMENT_FILE: known,
        "wherefrom/__init__.py": "",
    }
    for path in sources:
        texts[f"wherefrom/{path.relative_to(package)}"] = path.read_text("utf-8")
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in texts.items():
            entry = zipfile.ZipInfo(name)  # without a date: the same files make the same bytes
            entry.external_attr = (0o644 if "/" in name else 0o755) << 16
            archive.writestr(entry, text, zipfile.ZIP_DEFLATED)
    return content.getvalue()
