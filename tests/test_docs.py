"""README and docs: links lead somewhere, commands and examples work, generated parts are fresh."""

from __future__ import annotations

import importlib
import importlib.util
import re
import shlex
from pathlib import Path

import click
import pytest

import wherefrom
from wherefrom.checker import PROBLEMS
from wherefrom.cli import COMMANDS, cli
from wherefrom.teaching.grading import Grader
from wherefrom.teaching.rubric import parse_rubric
from wherefrom.teaching.submissions import read_submissions

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = sorted(DOCS.glob("*.md"))
EACH_PAGE = pytest.mark.parametrize("page", [*PAGES, README], ids=lambda page: page.stem)
EXITS = {"proved": 0, "holds": 0, "refuted": 1, "inconclusive": 3, "wherefrom": 2}
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
# the launchers that a command line of ours may stand behind
OURS = re.compile(r"(?:\.venv/bin/|torchrun [^\n]*-m |python -m )?wherefrom(?=\s|$)")


def script(name):
    """A script of docs/ as a module."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def without_tree(path):
    """What somebody wrote: the tree of the source is generated."""
    text = path.read_text("utf-8")
    return re.sub(r"<!-- tree -->.*<!-- /tree -->", "", text, flags=re.DOTALL)


def words_of(path):
    return len(without_tree(path).split())


def test_they_stay_short():
    written = [page for page in PAGES if page.stem != "commands"]  # that one is generated
    assert words_of(README) <= 900
    assert sum(map(words_of, written)) <= 18_500
    assert len(written) <= 14


@EACH_PAGE
def test_a_link_leads_somewhere(page):
    from markdown.extensions.toc import slugify

    for link in re.findall(r"!?\[[^\]]*\]\(([^)\s]+)\)", FENCE.sub("", page.read_text("utf-8"))):
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+://", link):
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert ROOT in target.parents, link
        if anchor:
            text = FENCE.sub("", target.read_text("utf-8"))
            headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
            assert anchor in {slugify(re.sub(r"[`*]", "", h), "-") for h in headings}, link


def test_generated_parts_are_fresh():
    written = (DOCS / "commands.md").read_text("utf-8")
    assert script("commands").page() == written, "run python docs/commands.py --write"
    written = (DOCS / "architecture.md").read_text("utf-8")
    assert script("tree").with_tree(written) == written, "run python docs/tree.py --write"
    measured = script("measured")
    for page in [*PAGES, README]:
        text = page.read_text("utf-8")
        assert measured.with_tables(text) == text, "run python docs/measured.py --write"


@EACH_PAGE
def test_the_files_and_functions_that_a_page_names_are_there(page):
    for path, name in re.findall(r"`(\w+/[\w/]+\.py)`(?:, `([\w.]+)`)?", without_tree(page)):
        found = [ROOT / "src" / "wherefrom" / path, ROOT / path]
        (file,) = [file for file in found if file.is_file()]
        assert not name or re.search(rf"(def|class) {name.split('.')[-1]}\b", file.read_text())


# a figure that somebody measured, and what may stand beside it to measure it again
MEASURED = re.compile(
    r"(?<![\w.])\d[\d,]*\.\d+[^|\n]{0,12}?(?: %| s\b| ms\b| MB\b| GB\b| nats\b)"
    r"|(?<![\w.])\.\d{2,}\b|\b\d+ of \d+\b"
)
SOURCE = re.compile(r"wherefrom [a-z]+|make [a-z]+|benchmarks/|notebooks/|tests/|<!-- ladder")
# computed by the formula beside it; measured once by a script that was not kept
WITHOUT_COMMAND = {"attention": ["0.1 %"], "trace": ["0.5 %"]}


@EACH_PAGE
def test_a_section_with_measured_numbers_names_the_command_that_measures_them(page):
    written = [] if page.stem == "commands" else re.split(r"(?m)^(?=#+ )", without_tree(page))
    for section in written:
        numbers = set(MEASURED.findall(FENCE.sub("", section)))
        if numbers - set(WITHOUT_COMMAND.get(page.stem, ())):
            assert SOURCE.search(section), section.splitlines()[0]


def command_lines(text):
    """Every `wherefrom ...` of a page: in blocks of code, and in code among words."""
    for block in re.findall(r"^```(?:sh|console|text)?\n(.*?)^```$", text, re.M | re.S):
        for line in block.replace("\\\n", " ").splitlines():
            line = line.removeprefix("$ ").split("  #")[0].strip()
            if OURS.match(line):
                yield line
    outside = FENCE.sub("", text)
    for line in re.findall(r"^    (?:\$ )?(.+)$", outside, re.MULTILINE):
        if OURS.match(line):
            yield line
    for code in re.findall(r"`([^`\n]+(?:\n[^`\n]+)?)`", outside):
        if OURS.match(code) and " " in code:
            yield " ".join(code.split())


@EACH_PAGE
def test_every_command_on_a_page_parses(page):
    lines = [] if page.stem == "commands" else command_lines(page.read_text("utf-8"))
    for line in lines:
        name, *rest = shlex.split(line[OURS.match(line).end() :].split(" > ")[0])  # type: ignore[union-attr]
        arguments = [re.sub("^[A-Z]$", "1", word) for word in rest]  # --seed S
        assert name in COMMANDS, line
        found = cli.get_command(click.Context(cli), name)
        assert found is not None
        known = {option for parameter in found.params for option in parameter.opts}
        assert {word.split("=")[0] for word in arguments if word[:2] == "--"} <= known, line
        if "..." not in arguments:
            try:
                found.make_context(name, arguments)
            except click.MissingParameter:
                # among words a command may be named with the one option that is spoken of
                assert f"`{line}`" in " ".join(page.read_text("utf-8").split()), line


def test_the_checker_says_what_the_page_says(command):
    text = (DOCS / "workbench.md").read_text("utf-8")
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    examples = re.findall(r"\$ wherefrom (.+)\n(.+)\n", "".join(blocks))
    assert examples
    for line, said in examples:
        ended = command(*shlex.split(line))
        assert (ended.out + ended.err).splitlines()[0] == said
        assert ended.code == EXITS[said.split(":")[0]]


def test_every_problem_is_a_chapter():
    text = (DOCS / "workbench.md").read_text("utf-8")
    assert len(re.findall(r"^## \d+\. ", text, re.MULTILINE)) == len(PROBLEMS)
    assert all(f"$ wherefrom check {name} " in text for name in PROBLEMS)


def test_the_rubric_of_the_teaching_page_grades_its_answers(tmp_path):
    text = (DOCS / "teaching.md").read_text("utf-8")
    rubric, answers = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (tmp_path / "ann.toml").write_text(answers, "utf-8")
    (submission,) = read_submissions(tmp_path)
    result = Grader(parse_rubric(rubric, None)).grade(submission)
    assert [answer.score for answer in result.answers] == [4.0, 6.0, 0.0]
    assert result.for_review() == ["1c"]


def test_the_table_of_names_is_what_the_library_offers():
    text = (DOCS / "getting-started.md").read_text("utf-8")
    rows = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(wherefrom.__all__)


@EACH_PAGE
def test_python_on_a_page_compiles_and_names_what_there_is(page):
    for block in re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
        compile(block, page.name, "exec")
        for name in re.findall(r"\bwherefrom\.(\w+)\(", block):
            assert name in wherefrom.__all__
