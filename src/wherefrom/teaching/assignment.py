"""The folders of an assignment: one for the students, one for the teacher.

What students fill in is the reference solution without the bodies of its functions.
"""

from __future__ import annotations

import ast
import io
import json
import secrets
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from string import Template
from typing import Any

from wherefrom.errors import UserError, did_you_mean
from wherefrom.storage import make_folder, write_whole
from wherefrom.teaching.cases import make_cases
from wherefrom.teaching.checks import PARTS, plain

HERE = Path(__file__).parent
WHOLE = "transformer"  # the name of all parts together
SOURCES = {"transformer.py": "reference.py", "model.py": "reference_model.py"}
GRADER = ("checks", "worker", "sandbox", "grading")  # what runs on Gradescope


def parts_of(name: str) -> list[str]:
    """The parts that an assignment consists of."""
    if name != WHOLE and name not in PARTS:
        raise UserError(f'there is no assignment "{name}".{did_you_mean(name, [WHOLE, *PARTS])}')
    return list(PARTS) if name == WHOLE else [name]


def make_assignment(name: str, seed: int) -> dict[str, Any]:
    """What a grader needs to know: points, adapters, and cases of two seeds."""
    parts = parts_of(name)
    return {
        "name": name,
        "points": {part: PARTS[part].points for part in parts},
        "adapters": write_adapters(parts),
        "handed out": make_cases(parts, 0),
        "hidden": make_cases(parts, seed),
    }


def write_assignment(name: str, out: Path, seed: int | None = None) -> dict[str, Any]:
    """Write OUT/handout and OUT/teacher; the hidden cases are drawn from the seed, or by chance."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} exists and is not an empty folder; give --out a new one.")
    record = make_assignment(name, secrets.randbelow(1 << 62) + 1 if seed is None else seed)
    known, checks = json.dumps(plain(record)), (HERE / "checks.py").read_text("utf-8")
    parts, points = list(record["points"]), sum(record["points"].values())
    files: dict[str, bytes | str] = {
        "handout/README.md": _fill("handout_readme", name=name, table=_table(parts)),
        "handout/adapters.py": record["adapters"],
        "handout/cases.json": json.dumps(plain(record["handed out"])),
        "handout/checks.py": checks,
        "handout/run_tests.py": _fill("run_tests"),
        "handout/test_assignment.py": _fill("test_assignment"),
        "teacher/README.md": _fill("teacher_readme", name=name, points=points),
        "teacher/assignment.json": known,
        "teacher/gradescope.zip": _zip_for_gradescope(known, torch="variants" in parts),
        "teacher/otter/support/assignment.json": known,
        "teacher/otter/support/checks.py": checks,
        "teacher/solution/adapters.py": record["adapters"],
        **{f"teacher/otter/tests/{part}.py": _otter(part, record) for part in parts},
    }
    asked = {function for part in parts for function in PARTS[part].functions}
    for file, module in SOURCES.items():
        source = (HERE / module).read_text("utf-8")
        if asked & set(_functions(source)):
            files[f"handout/{file}"] = make_skeleton(source, asked)
            files[f"teacher/solution/{file}"] = source
    for path, content in files.items():
        make_folder((out / path).parent)
        write_whole(out / path, content)
    return record


def make_skeleton(source: str, asked: Iterable[str]) -> str:
    """The source with the asked functions empty, and of the others those that these call."""
    functions, wanted = _functions(source), set(asked)
    needed = [name for name in functions if name in wanted]
    for name in needed:  # it grows
        used = {node.id for node in ast.walk(functions[name]) if isinstance(node, ast.Name)}
        needed += [other for other in functions if other in used and other not in needed]
    definitions = [
        n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef | ast.ClassDef)
    ]
    lines = source.splitlines()
    kept = lines[: definitions[0].lineno - 1]
    for name, node in functions.items():
        if name in wanted:
            kept += lines[node.lineno - 1 : node.body[0].end_lineno]  # with its docstring
            kept += ["    raise NotImplementedError  # your code", "", ""]
        elif name in needed:
            kept += [*lines[node.lineno - 1 : node.end_lineno], "", ""]
    return "\n".join(kept).rstrip() + "\n"


def write_adapters(parts: Iterable[str]) -> str:
    """The text of adapters.py: each function hands over to the one of the skeleton."""
    functions = _functions((HERE / "reference.py").read_text("utf-8"))
    head, text = '"""Connects your code with the tests: change what is elsewhere."""\n', ""
    for name in (function for part in parts for function in PARTS[part].functions):
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


def _fill(template: str, **values: object) -> str:
    return Template((HERE / "templates" / f"{template}.txt").read_text("utf-8")).substitute(values)


def _table(parts: Iterable[str]) -> str:
    lines = ["| part | functions | about | points |", "|---|---|---|---|"]
    for part in parts:
        points, about, functions = PARTS[part]
        lines.append(f"| {part} | `{'`, `'.join(functions)}` | {about} | {points} |")
    return "\n".join(lines) + "\n"


def _otter(part: str, record: Mapping[str, Any]) -> str:
    text = _fill("otter_question", part=part)
    for group, hidden in (("handed out", False), ("hidden", True)):
        titles = [title for title in record[group] if title.split(":")[0] == part]
        points = record["points"][part] / len(titles) / 2
        for at, title in enumerate(titles):
            told = {"title": title, "group": group, "number": at + hidden * len(titles)}
            text += _fill("otter_case", points=points, hidden=hidden, **told)
    return text


def _zip_for_gradescope(known: str, *, torch: bool) -> bytes:
    files = {
        "setup.sh": _fill("setup", packages="numpy torch" if torch else "numpy"),
        "run_autograder": _fill("run_autograder"),
        "assignment.json": known,
        "wherefrom/__init__.py": "",
        "wherefrom/teaching/__init__.py": "",
    }
    for name in ("errors", "storage", *(f"teaching/{name}" for name in GRADER)):
        files[f"wherefrom/{name}.py"] = (HERE.parent / f"{name}.py").read_text("utf-8")
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in files.items():
            entry = zipfile.ZipInfo(name)  # without a date: the same files make the same bytes
            entry.external_attr = (0o644 if "/" in name else 0o755) << 16
            archive.writestr(entry, text, zipfile.ZIP_DEFLATED)
    return content.getvalue()
