"""A class of 200 with ten broken and three hostile submissions: the time to grade all of it.

    python benchmarks/grading.py written [--students 200] [--out FILE.jsonl]
    python benchmarks/grading.py code [--students 200] [--out FILE.jsonl]

`written` are three answers each, in the spellings that students use; `code` is the programming
assignment without the part "variants", which needs torch. Both are graded by `wherefrom grade`.
Everybody must have a result, the broken and hostile ones no points.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from records import keep, summarise

from wherefrom.teaching import reference
from wherefrom.teaching.assignment import MISTAKES, change, write_assignment
from wherefrom.teaching.checks import PARTS, part_of

GOALS = {"written": 20.0, "code": 120.0}  # seconds for the class
# what runs in bubblewrap and is ended there is in nobody's CPU time
UNITS = {"written": "CPU s", "code": "s on the clock"}
RUBRIC = "".join(
    f'[[answer]]\nid = "{at}"\nproblem = "{problem}"\npoints = 2\n'
    for at, problem in enumerate(("average", "extract", "two-heads"), start=1)
)
ANSWERS = (
    (r"$q = \beta (k_a + k_b)$", "q = t(k_a + k_b), t >> 0", "{x}*beta*(k_a+k_b)", "(k_a+k_b)/{x}"),
    (r"M = A A^\top", "AAᵀ", "M = A A'", "M = {x}*A@A.T/{x}", "M = A^T"),
    (
        r"$q_1 = \beta\mu_a$, $q_2 = \beta\mu_b$",
        "q1 = {x}βμ_a; q2 = {x}βμ_b",
        "q1=q2=beta*(mu_a+mu_b)",
    ),
)
BROKEN = ('[[answer]]\nid = "1', b"\xff\xfe\x00", "", "[[answer]]\nid = 'no such id'\nanswer = 'x'")
BOMB = "(" * 20_000 + "beta" + ")" * 20_000
HOSTILE = ("__import__('os').system('touch pwned')", BOMB, "beta**8" * 5_000)
BROKEN_CODE = ("def attention(:\n", "import my_own_module\n", "import os; os._exit(0)\n", "x = [")
HOSTILE_CODE = (
    "while True: pass",
    "import os\nwhile True: os.fork()",
    "x = 'a' * 10**11",
)


def written(folder: Path, students: int) -> list[str]:
    """Write the rubric and a submission each; the command that grades them."""
    (folder / "in").mkdir()
    (folder / "rubric.toml").write_text(RUBRIC, "utf-8")
    for at in range(students):
        text: str | bytes = "".join(
            f"[[answer]]\nid = \"{part}\"\nanswer = '''{forms[at % len(forms)]}'''\n"
            for part, forms in enumerate(ANSWERS, start=1)
        ).replace("{x}", str(1 + at // 20))
        if at < 13:
            hostile = f"[[answer]]\nid = \"1\"\nanswer = '''{HOSTILE[at % 3]}'''\n"
            text = BROKEN[at % len(BROKEN)] if at < 10 else hostile
        content = text.encode() if isinstance(text, str) else text
        (folder / "in" / f"student{at:03}.toml").write_bytes(content)
    return ["grade", "in", "--rubric", "rubric.toml", "--quiet"]


def code(folder: Path, students: int) -> list[str]:
    """Write the assignment and a submission each: the solution with mistakes of its students."""
    solution = Path(reference.__file__).read_text("utf-8")
    parts = [part for part in PARTS if part != "variants"]
    questions = [f'[[answer]]\nid = "{p}"\nkind = "code"\npoints = {PARTS[p][0]}\n' for p in parts]
    (folder / "rubric.toml").write_text("".join(questions), "utf-8")
    write_assignment(str(folder / "rubric.toml"), folder / "hw", 7)
    titles = [title for title in MISTAKES if part_of(title) in parts and ":" in title]
    mistakes = [mistake for title in titles for mistake in MISTAKES[title]]
    for at in range(students):
        text = f"{solution}\n# {at}\n"  # no two are alike
        if at % 3:
            text = change(text, *mistakes[at % len(mistakes)][1:])
        if at < 13:
            text = BROKEN_CODE[at % 4] if at < 10 else f"{HOSTILE_CODE[at % 3]}\n{solution}"
        (folder / "in" / f"student{at:03}").mkdir(parents=True)
        (folder / "in" / f"student{at:03}" / "transformer.py").write_text(text, "utf-8")
    return ["grade", "in", "--rubric", "hw/teacher", "--timeout", "2", "--quiet"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["written", "code"])
    parser.add_argument("--students", type=int, default=200)
    parser.add_argument("--out", default="grading.jsonl")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = (written if options.what == "written" else code)(folder, options.students)
        program = [sys.executable, "-m", "wherefrom", *command, "--out", "out"]
        start = time.monotonic()
        subprocess.run(program, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        elapsed = time.monotonic() - start
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        results = sorted((folder / "out").glob("*/results.json"))
        assert len(results) == options.students
        points = []
        for path in results:
            record = json.loads(path.read_text("utf-8"))
            points.append(sum(test["score"] for test in record["tests"]))
        assert not any(points[:13]), points[:13]
        assert max(points) == (6 if options.what == "written" else 34), max(points)
        assert not (folder / "pwned").exists()
    what = f"grade {options.students} students, {options.what}"
    mean = sum(points[13:]) / len(points[13:])
    seconds = used.ru_utime + used.ru_stime if options.what == "written" else elapsed
    unit, goal = UNITS[options.what], GOALS[options.what]
    keep([summarise(what, [seconds], unit, goal=goal, mean_points=mean)], options.out)


if __name__ == "__main__":
    main()
