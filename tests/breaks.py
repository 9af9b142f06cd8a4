"""Tries the deliberate breaks of breaks.toml: does a test notice each of them?

    python tests/breaks.py [--only NAME ...] [--jobs 1] [--seconds 300]

For each break the tree is copied, one place in one file is changed, and the tests that the break
names run against the copy. A break is `caught` if they fail, `missed` if they pass. One that does
not fit the code (its `old` must occur exactly once) `does not apply`. Tests that end in any other
way, such as a module that cannot be imported or the time limit, show nothing and are an `error`.
Before that, all named tests must pass on an unbroken copy. Exit 0 only if every break is caught.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CACHES = ("__pycache__", ".hypothesis", ".*_cache", "*.egg-info")
LEFT_OUT = (".git", ".venv", "runs", "site", "build", "dist", *CACHES)
CAUGHT, MISSED, UNFIT = "caught", "missed", "does not apply"
ENDINGS = {0: MISSED, 1: CAUGHT}  # pytest's exit codes


def copy_tree(into: Path) -> Path:
    """The project without environments, caches and runs; returns the copy."""
    copy = into / "tree"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*LEFT_OUT))
    return copy


def run_tests(copy: Path, tests: Sequence[str], seconds: float) -> tuple[int | None, str]:
    """pytest's exit code on the copy, None at the time limit; and the last line that it printed."""
    settings = {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    environment = os.environ | settings | {"PYTHONPATH": str(copy / "src")}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    command += ["--tb=no", "--hypothesis-seed=0", *tests]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    process = subprocess.Popen(
        command, cwd=copy, env=environment, text=True, start_new_session=True, **pipes
    )
    try:
        said, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)  # the session that was started above, and nothing else
        process.communicate()
        return None, f"time limit of {seconds:g} s"
    lines = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return process.returncode, (lines or said.splitlines() or [""])[-1]


def try_break(each: dict[str, str], seconds: float) -> tuple[str, str]:
    """What became of one break, and the test that noticed it or what went wrong."""
    with tempfile.TemporaryDirectory(prefix="break-") as folder:
        copy = copy_tree(Path(folder))
        path = copy / each["file"]
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        old = each["old"].rstrip("\n")
        if text.count(old) != 1:
            return UNFIT, f"{each['file']}: {text.count(old)} places instead of 1"
        path.write_text(text.replace(old, each["new"].rstrip("\n")), encoding="utf-8")
        gone = [test for test in each["tests"] if not (copy / test.split("::")[0]).exists()]
        if gone:
            return UNFIT, f"there is no {gone[0]}"
        code, said = run_tests(copy, each["tests"], seconds)
    outcome = "error" if code is None else ENDINGS.get(code, "error")
    return outcome, said.removeprefix("FAILED ").split(" - ")[0]


def main() -> int:
    """Try the breaks asked for, print a table and a summary."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these breaks alone")
    parser.add_argument("--jobs", type=int, default=1, help="copies tried at once")
    parser.add_argument("--seconds", type=float, default=300.0, help="time limit of one break")
    options = parser.parse_args()
    breaks = tomllib.loads((ROOT / "tests" / "breaks.toml").read_text(encoding="utf-8"))["break"]
    if unknown := sorted(set(options.only or ()) - {each["name"] for each in breaks}):
        parser.error(f"there is no break {unknown[0]}")
    chosen = [each for each in breaks if not options.only or each["name"] in options.only]
    named = sorted({test for each in chosen for test in each["tests"]})
    tests = [test for test in named if (ROOT / test.split("::")[0]).exists()]
    with tempfile.TemporaryDirectory(prefix="unbroken-") as folder:
        code, said = run_tests(copy_tree(Path(folder)), tests, 4 * options.seconds)
    if code != 0:
        print(f"the named tests do not pass on the unbroken tree: {said}")
        return 1
    width = max(len(each["name"]) for each in chosen)
    counts: Counter[str] = Counter()
    with ThreadPoolExecutor(options.jobs) as pool:
        results = pool.map(lambda each: try_break(each, options.seconds), chosen)
        for each, (outcome, detail) in zip(chosen, results, strict=True):
            counts[outcome] += 1
            line = f"{each['name']:<{width}}  {outcome:<14}  was {each.get('before', '?'):<6}"
            print(f"{line}  {detail}", flush=True)
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()), end=" ")
    print(f"of {len(chosen)}; before: {sum(e.get('before') == CAUGHT for e in chosen)} caught")
    return 0 if counts[CAUGHT] == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
