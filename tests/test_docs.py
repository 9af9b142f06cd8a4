"""The docs: links lead somewhere, commands exist, generated pages are fresh, the site builds."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest

import wherefrom
from wherefrom.attention.checker.grading import apply_rubric, grade, read_answers
from wherefrom.cli import COMMANDS, cli, main
from wherefrom.cli.overview import GROUPS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
EACH_PAGE = pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
EXITS = {"proved": 0, "holds": 0, "refuted": 1, "inconclusive": 3}
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
# the launchers that a command line of ours may stand behind
OURS = re.compile(r"(?:\.venv/bin/|torchrun [^\n]*-m |python -m )?wherefrom(?=\s|$)")


def load(name: str) -> ModuleType:
    """A script of docs/ as a module."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as mkdocs makes them."""
    from markdown.extensions.toc import slugify

    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    return {slugify(re.sub(r"[`*]", "", heading), "-") for heading in headings}


def command_lines(text: str) -> Iterator[str]:
    """Every `wherefrom ...` of a page: in blocks of code, and in code among words."""
    for block in re.findall(r"^```(?:sh|console|text)?\n(.*?)^```$", text, re.M | re.S):
        for line in block.replace("\\\n", " ").splitlines():
            line = line.removeprefix("$ ").split("  #")[0].strip()
            if OURS.match(line):
                yield line
            elif found := re.search(r"\| (wherefrom .*)", line):
                yield found.group(1)
    outside = FENCE.sub("", text)
    for line in re.findall(r"^    (?:\$ )?(.+)$", outside, re.MULTILINE):
        if OURS.match(line):
            yield line
    for code in re.findall(r"`([^`\n]+(?:\n[^`\n]+)?)`", outside):
        if OURS.match(code) and " " in code:
            yield " ".join(code.split())


def is_pattern(word: str) -> bool:
    """COMMAND, "..." and [--json]: words that stand for others."""
    return word in ("COMMAND", "...") or word.startswith("[")


class TestLinks:
    def test_there_are_pages(self) -> None:
        assert len(PAGES) > 15

    @EACH_PAGE
    def test_a_link_leads_somewhere(self, page: Path) -> None:
        text = page.read_text("utf-8")
        for link in LINK.findall(FENCE.sub("", text)):
            if re.match(r"[a-z]+://", link):
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), link
            assert ROOT in target.parents, link
            if anchor:
                assert anchor in anchors(target.read_text("utf-8")), link

    @EACH_PAGE
    def test_every_page_is_in_the_navigation(self, page: Path) -> None:
        assert f": {page.name}\n" in (ROOT / "mkdocs.yml").read_text("utf-8")

    @EACH_PAGE
    def test_a_figure_says_which_command_made_it(self, page: Path) -> None:
        text = page.read_text("utf-8")
        for figure in re.finditer(r"!\[[^\]]*\]\((figures/[^)]+)\)\n\n(.+?)\n\n", text, re.DOTALL):
            caption = " ".join(figure.group(2).split())
            command = re.search(r"`python ((?:docs/figures|benchmarks)/\w+\.py)(?: \w+)?`", caption)
            assert command is not None, figure[1]
            assert Path(figure[1]).stem.split("-")[0] in (ROOT / command[1]).read_text("utf-8")
        assert text.count("](figures/") == len(re.findall(r"\]\(figures/[^)]+\)\n\n\*", text))


class TestCommands:
    @EACH_PAGE
    def test_every_command_on_a_page_parses(self, page: Path) -> None:
        for line in command_lines(page.read_text("utf-8")):
            words = shlex.split(line[OURS.match(line).end() :].split(" > ")[0])  # type: ignore[union-attr]
            words = [re.sub("^[A-Z]$", "1", word) for word in words]  # --seed S
            if not words or is_pattern(words[0]) or words[0] in ("--help", "--version"):
                continue
            name, *arguments = words
            assert name in COMMANDS, line
            found = cli.get_command(click.Context(cli), name)
            assert found is not None
            optional = [word.strip("[]") for word in arguments if word.startswith("[--")]
            arguments = [word for word in arguments if not is_pattern(word) and "]" not in word]
            known = {option for parameter in found.params for option in parameter.opts}
            used = [word.split("=")[0] for word in (*arguments, *optional) if word[:2] == "--"]
            assert set(used) <= {*known, "--help"}, line
            if page.stem != "commands" and not optional and "--help" not in arguments:
                try:
                    found.make_context(name, list(arguments))
                except click.MissingParameter:
                    # among words a command may be named with the one option that is spoken of
                    assert f"`{line}`" in " ".join(page.read_text("utf-8").split()), line

    def test_they_are_found(self) -> None:
        text = (
            "```sh\n.venv/bin/wherefrom ask x  # why\ncat a | wherefrom ask -\n```\n"
            "    wherefrom law y\n\nor `wherefrom check\naverage z` and `wherefrom`\n"
            "```sh\ntorchrun --nproc-per-node 2 -m wherefrom study \\\n  --out z\n```\n"
        )
        assert list(command_lines(text)) == [
            ".venv/bin/wherefrom ask x",
            "wherefrom ask -",
            "torchrun --nproc-per-node 2 -m wherefrom study    --out z",
            "wherefrom law y",
            "wherefrom check average z",
        ]

    def test_the_page_of_commands_is_fresh(self) -> None:
        written = (DOCS / "commands.md").read_text("utf-8")
        assert load("commands").page() == written, "run python docs/commands.py --write"

    def test_every_command_has_a_section_with_all_of_its_options(self) -> None:
        written = (DOCS / "commands.md").read_text("utf-8")
        sections = dict(re.findall(r"^### (\S+)\n(.*?)(?=^##|\Z)", written, re.M | re.S))
        assert sorted(sections) == sorted(COMMANDS)
        for name, text in sections.items():
            found = cli.get_command(click.Context(cli), name)
            assert found is not None
            for parameter in found.params:
                if isinstance(parameter, click.Option):
                    assert f"- `{parameter.opts[0]}" in text
        assert [title for title in GROUPS if f"\n## {title.capitalize()}\n" in written]


class TestExamples:
    def examples() -> list[tuple[str, str]]:  # type: ignore[misc]
        text = (DOCS / "workbench.md").read_text("utf-8")
        blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
        return re.findall(r"\$ (.+)\n(.+)\n", "".join(blocks))

    @pytest.mark.parametrize(("line", "said"), examples())
    def test_a_chapter_says_what_the_checker_says(
        self,
        line: str,
        said: str,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setattr(sys, "argv", shlex.split(line))
        with pytest.raises(SystemExit) as ended:
            main()
        assert capsys.readouterr().out.splitlines()[0] == said
        assert ended.value.code == EXITS[said.split(":")[0]]

    def test_every_problem_is_a_chapter(self) -> None:
        from wherefrom.attention.checker.problems import PROBLEMS

        text = (DOCS / "workbench.md").read_text("utf-8")
        assert len(re.findall(r"^## \d\. ", text, re.MULTILINE)) == len(PROBLEMS)
        for name in PROBLEMS:
            assert f"$ wherefrom check {name} " in text

    def test_the_rubric_of_the_teaching_page_grades_its_answers(self) -> None:
        text = (DOCS / "teaching.md").read_text("utf-8")
        answers, rubric = map(read_answers, re.findall(r"```toml\n(.*?)```", text, re.DOTALL))
        assert [item.score for item in grade(apply_rubric(answers, rubric))] == [4.0, 6.0]

    def test_the_table_of_names_is_what_the_library_offers(self) -> None:
        text = (DOCS / "getting-started.md").read_text("utf-8")
        rows = re.findall(r"^\| (`.*?) \|", text, re.MULTILINE)
        assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == wherefrom.__all__

    @EACH_PAGE
    def test_python_on_a_page_compiles_and_names_what_there_is(self, page: Path) -> None:
        for block in re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            compile(block, page.name, "exec")
            for name in re.findall(r"\bwherefrom\.(\w+)\(", block):
                assert name in wherefrom.__all__
            for module, names in re.findall(r"^from (wherefrom[\w.]*) import (.+)$", block, re.M):
                found = importlib.import_module(module)
                for name in names.split(","):
                    assert hasattr(found, name.strip()), f"{module}.{name}"


class TestMarkdown:
    def test_links_out_of_the_docs_become_paths(self) -> None:
        mend = load("site").without_source_links
        assert mend("see [it](../src/a.py) and [b](b.md)") == "see `src/a.py` and [b](b.md)"

    def test_a_list_gets_the_empty_line_that_it_needs(self) -> None:
        mend = load("site").with_lists_apart
        assert mend("a text\n- b\n- c\n  d\n- e") == "a text\n\n- b\n- c\n  d\n- e"
        assert mend("a\n1. b") == "a\n\n1. b"
        code = "```\na\n- b\n```"
        assert mend(code) == code
        assert mend("# a\n- b") == "# a\n- b"


class Loads(HTMLParser):
    """Collects all that a page makes a browser load."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag not in ("a", "meta"):
            self.found += [given[key] or "" for key in ("src", "href", "data") if key in given]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed; make docs and make setup-dev install it")
    out = tmp_path_factory.mktemp("site") / "site"
    ended = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return out


class TestSite:
    def test_one_command_builds_it(self) -> None:
        makefile = (ROOT / "Makefile").read_text("utf-8")
        assert re.search(r"^docs:.*\n\t\.venv/bin/mkdocs build --strict$", makefile, re.MULTILINE)
        assert "/site/\n" in (ROOT / ".gitignore").read_text("utf-8")

    def test_every_page_is_in_it_and_no_script_of_ours(self, site: Path) -> None:
        for page in PAGES:
            assert (site / f"{page.stem}.html").exists()
        assert not list(site.rglob("*.py"))

    def test_nothing_is_loaded_from_elsewhere(self, site: Path) -> None:
        for page in site.rglob("*.html"):
            parser = Loads()
            parser.feed(page.read_text("utf-8"))
            assert parser.found
            for link in parser.found:
                assert not re.match(r"(?:[a-z]+:)?//", link), f"{page.name} loads {link}"
        for sheet in site.rglob("*.css"):
            found = re.findall(r"url\(\s*['\"]?(?:https?:)?//[^)]*\)|@import", sheet.read_text())
            assert not found, sheet

    def test_what_is_loaded_is_there(self, site: Path) -> None:
        for page in site.glob("*.html"):
            if page.name == "404.html":  # its addresses begin at the root of a server
                continue
            parser = Loads()
            parser.feed(page.read_text("utf-8"))
            for link in parser.found:
                if not link.startswith(("#", "data:")) and link != ".":
                    assert (page.parent / link.partition("?")[0].partition("#")[0]).exists(), link

    def test_lists_and_tables_are_not_left_as_text(self, site: Path) -> None:
        for page in site.glob("*.html"):
            text: Any = re.sub(r"<pre>.*?</pre>", "", page.read_text("utf-8"), flags=re.DOTALL)
            assert not re.search(r"<p>[^<]*\n- ", text), page.name
            assert "|---" not in text, page.name
