"""The report on a study, from the records of its run alone: a dictionary, HTML or JSON.

A section whose record is missing says so, with the command that makes it. If one section fails, the
others are still written.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import tomllib
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, UndefinedError
from markupsafe import Markup, escape

from wherefrom.corpus.split import read_subjects
from wherefrom.errors import UserError
from wherefrom.provenance.answers import read_dev_answers, read_judged
from wherefrom.report import sections
from wherefrom.report.figures import as_record
from wherefrom.storage import read_json, read_json_lines, write_whole
from wherefrom.training.learned_files import SourceFile
from wherefrom.training.record import RunRecord, check_file, find_problem, read_record
from wherefrom.training.run_folder import AUDIT, BASE, is_run

if TYPE_CHECKING:
    import plotly.graph_objects as go

T = TypeVar("T")
TWIN_WEIGHTS = "twins/scratch/model.safetensors"  # of the twin that read no text
FORMATS = ("html", "json")
FORMAT = 2
# in the report on a model that others trained: sections that keep their question, and sections that
# are left out
QUESTIONS_OF_AUDITS = ("confidence", "grades")
NOT_IN_AUDITS = ("documents", "names", "leaning", "twins", "curves")
NOT_IN_BASE_STUDIES = ("names", "leaning")  # of a model that others trained
SECTION_WORDS = tomllib.loads(
    (files("wherefrom.report") / "sections.toml").read_text(encoding="utf-8")
)
# what reading a record of an unknown shape may end in
RECORD_ERRORS = (
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    IndexError,
    ZeroDivisionError,
    UndefinedError,
)


class Records:
    """The records in the folder of a finished run; None or empty where there is none.

    Raises UserError if there is no finished run; what is wrong with other files is in `problems`.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = folder = Path(folder)
        self.problems: list[str] = []
        if not is_run(folder):
            raise UserError(f"{folder} is not a run: it holds no run.json.")
        self.run = run = read_record(folder)
        if run.status != "finished":
            raise UserError(
                f"the run {folder} has not finished training, so there is nothing to report; "
                "continue it by repeating its command with --resume."
            )
        for name in ("config.json", "tokenizer.json"):  # else run.json is that of another run
            if name in run.files:
                check_file(folder, name, run)
        # the name of the model if others trained it, or ""
        self.audited = run.model if run.kind == AUDIT else ""
        self.about_people = run.about_people
        self.metrics = self._lines("metrics.jsonl")
        self.scratch = self._lines("twins/scratch/metrics.jsonl") if self._has_own_twin() else []
        self.dev_answers = self._answers(read_dev_answers) or {}
        self.subjects = self._held_out()
        self.calibration = self._record("calibration.json")
        self.judgement = self._record("judgement.json")
        if self.judgement and self.judgement.get("weights_sha256") != run.sha256:
            self.judgement = None
            self.problems.append(
                "the judgement in the folder is of other weights than the run's, and is left out; "
                "make it again with `wherefrom judge`."
            )
        self.judged = self._answers(read_judged) or [] if self.judgement else []
        self.no_text = bool(self.audited) and "corpus" not in run.data
        if self.no_text and self.judgement:  # nothing was looked up
            self.judgement.get("scores", {}).pop("checked", None)
        # by `wherefrom names`, or by the study itself
        self.origins = self._record("origins.json") or self._record("names.json")
        self.knowledge = self._record("knowledge.json")  # before and after training, with --base
        self.leaning = self._record("leaning.json")  # what answers about unseen people lean on
        self.crossing = self._record("twins/twins.json")  # two twins without half of the judged
        self.without: list[dict[str, Any]] = []  # one for each subject that a twin did not read of
        for path in sorted(folder.glob("twins/without-*/without.json")):
            twin = self._record(str(path.relative_to(folder)))
            if twin and twin.get("twin_of") == run.sha256:  # not of an earlier training
                self.without += twin.get("people", [twin])
        for what in ("corpus", "questions", "dev"):
            if what in run.sources:
                source = SourceFile(what, folder, run, run.sources[what])
                self.problems += filter(None, [source.describe_change()])

    def _has_own_twin(self) -> bool:
        """Whether the questions-only twin in the folder is the one that the run trained."""
        twin, recorded = self.folder / "twins" / "scratch", self.run.files.get(TWIN_WEIGHTS)
        if not is_run(twin):
            if recorded is not None:
                self.problems.append(f"{twin / 'run.json'} is missing, and the twin is left out.")
            return False
        try:
            if recorded in (None, read_record(twin).sha256):
                return True
            self.problems.append(f"{twin} is not the twin that the run trained, and is left out.")
        except UserError as problem:
            self._note(problem)
        return False

    def known_answers(self) -> set[str]:
        """The answers of the training questions, as the calibration has them."""
        return set(((self.calibration or {}).get("reader") or {}).get("known_answers") or ())

    def _record(self, name: str) -> dict[str, Any] | None:
        return next(iter(self._lines(name)), None)

    def _held_out(self) -> list[dict[str, Any]]:
        """The held-out questions; none if the run has not written them."""
        with suppress(UserError):
            return [asdict(question) for question in read_subjects(self.folder)]
        return []

    def _answers(self, read: Callable[[Path, RunRecord], T]) -> T | None:
        """Answers of the database; None, and a note, if it is not as the run wrote it."""
        try:
            return read(self.folder, self.run)
        except UserError as problem:
            self._note(problem)
            return None

    def _note(self, problem: UserError) -> None:
        note = f"What follows leaves out a file: {problem}"
        self.problems += [note] if note not in self.problems else []

    def _lines(self, name: str) -> list[dict[str, Any]]:
        """The JSON objects of a file; one that is not as the run wrote it is noted and left out."""
        path = self.folder / name
        try:
            # a twin is a run of its own, with a record of its own files
            is_of_twin = name.startswith("twins/") and name.count("/") > 1
            owner = path.parent if is_of_twin else self.folder
            if is_of_twin and not is_run(owner):
                return []
            name = path.name if is_of_twin else name
            if problem := find_problem(owner, name, None if is_of_twin else self.run):
                raise UserError(problem)
            if path.suffix == ".jsonl":
                return read_json_lines(path)
            return [read_json(path, dict)] if path.is_file() else []
        except UserError as problem:
            self._note(problem)
            return []


def make_report(run_folder: str | Path, **replaced: Any) -> dict[str, Any]:
    """The report on a finished run; UserError if there is none.

    replaced: records that are used instead of those in the folder, such as `origins`.
    """
    records = Records(run_folder)
    vars(records).update(replaced)
    written, facts = [], {}
    for words in SECTION_WORDS["section"]:
        if records.audited and words["id"] in NOT_IN_AUDITS:
            continue
        if records.run.kind == BASE and words["id"] in NOT_IN_BASE_STUDIES:
            continue
        if words["id"] == "names" and not records.about_people:
            continue
        section, its_facts = _write_section(words, records)
        if its_facts != {}:
            written.append(section)
            facts[section["id"]] = its_facts
    shown = {sentence for section in written for sentence in section["more"]}
    notes: list[str] = []
    of_judgement = (records.judgement or {}).get("notes") or ()
    for note in (*records.run.notes, *of_judgement, *records.problems):
        notes += [str(note)] if str(note) not in shown else []
    headlines = []
    for words in SECTION_WORDS["headline"]:
        its_facts = facts.get(words["section"])
        with suppress(*RECORD_ERRORS):  # a headline whose facts are missing is left out
            if its_facts and (value := " ".join(_write(words["value"], its_facts))):
                about = " ".join(_write(words["about"], its_facts))
                headlines.append({"value": value, "label": words["label"], "about": about})
    return {
        "format": FORMAT,
        "run": str(records.folder),
        "title": records.folder.resolve().name,
        "warning": (facts.get("recall") or {}).get("warning", ""),
        "sentence": next(section["sentence"] for section in written if section["id"] == "training"),
        "headlines": headlines,
        "questions": [
            {
                "question": section["question"],
                "answer": section["sentence"],
                "answered": not section["missing"],
                "section": section["id"],
            }
            for section in written
            if section["question"]
        ],
        "notes": list(dict.fromkeys(notes)),
        "sections": written,
    }


def show_cell(value: Any, form: str) -> str:
    """A cell as a person reads it; a dash where there is nothing."""
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if form == "percent":
        return f"{100 * value:.1f} %"
    if form == "count" or (form == "number" and isinstance(value, int)):
        return f"{value:,.0f}"
    if form == "number":
        return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3f}"
    return f"{value:g}"


def show_interval(metric: dict[str, Any], level: float, form: str = "number") -> str:
    """' (95 % interval 0.91 to 0.95)', or nothing where there is none."""
    if metric.get("low") is None or metric.get("high") is None:
        return ""
    low, high = (show_cell(float(metric[key]), form) for key in ("low", "high"))
    return f" ({100 * level:.0f} % interval {low} to {high})"


TEMPLATES = Environment(undefined=StrictUndefined)  # of plain text; `render` escapes it
TEMPLATES.filters |= {
    "cell": show_cell,
    "count": "{:,.0f}".format,
    "interval": show_interval,
    "percent": lambda value: show_cell(value, "percent"),
    "plural": sections.plural,
}


_compile = lru_cache(maxsize=None)(TEMPLATES.from_string)  # a few hundred, of sections.toml


def _write(template: str, facts: dict[str, Any]) -> list[str]:
    """The lines of a rendered template that have anything on them."""
    lines = _compile(template).render(facts).splitlines()
    return [" ".join(line.split()) for line in lines if line.strip()]


def blank_section(id: str, title: str, sentence: str, **more: Any) -> dict[str, Any]:
    """A section of a report with a sentence and nothing else yet."""
    return {
        "id": id,
        "title": title,
        "question": None,
        "sentence": sentence,
        "missing": False,
        "more": [],
        "figure": None,
        "caption": "",
        "table": None,
        "examples": [],
        **more,
    }


def _write_section(words: dict[str, Any], records: Records) -> tuple[dict[str, Any], Any]:
    """The section as a dictionary, and its facts: None if they are missing, {} if left out."""
    missing = blank_section(
        words["id"],
        words["title"],
        words.get("missing", SECTION_WORDS["no_judgement"]),
        missing=True,
    )
    if not records.audited or words["id"] in QUESTIONS_OF_AUDITS:
        missing["question"] = words.get("question")
    section = {**missing, "missing": False}
    try:
        if (needed := words.get("needs")) and getattr(records, needed) is None:
            return missing, None if needed == "judgement" else {}
        facts = getattr(sections, words.get("facts", words["id"]))(records)
        if not facts:
            return missing, facts
        facts["audited"] = records.audited
        for key in ("sentence", "caption"):
            section[key] = " ".join(_write(words.get(key, ""), facts))
        section["more"] = _write(words.get("more", ""), facts)
        section["examples"] = facts.get("examples", [])
        if facts.get("figure"):
            section["figure"] = as_record(facts["figure"])
        if "rows" in facts and (facts["rows"] or not words.get("folded")):
            section["table"] = {
                "columns": [" ".join(_write(title, facts)) for title in words["columns"]],
                "formats": list(words["columns"].values()),
                "rows": facts["rows"],
                "folded": words.get("folded", False),  # it is long, and shown on request
            }
    except RECORD_ERRORS as problem:  # of a shape that this version does not know
        missing["sentence"] = (
            "The run's records on this cannot be read: they are of another version, or broken "
            f"({type(problem).__name__}: {problem})."
        )
        return missing, None
    return section, facts


# ---- the dictionary as a file


def write_report(
    report: dict[str, Any], out: str | Path | None = None, form: str | None = None
) -> Path:
    """Write the report and return its path: report.html in the run folder if `out` is None.

    The format follows the suffix of `out` unless `form` is given. Records of the run are not
    overwritten.
    """
    folder = Path(report["run"])
    out = folder / f"report.{form or 'html'}" if out is None else Path(out)
    inside = out.resolve().parent == folder.resolve()
    if inside and out.exists() and not out.name.startswith("report"):
        raise UserError(f"{out} belongs to the run and is not overwritten; choose another --out.")
    form = form or out.suffix.removeprefix(".").lower()
    if form not in FORMATS:
        raise UserError(f"{out} ends in neither .html nor .json; add --format, such as html.")
    write_whole(out, render_json(report) if form == "json" else render_html(report))
    return out


def render_json(report: dict[str, Any]) -> str:
    return json.dumps(report, ensure_ascii=False, indent=2, allow_nan=False) + "\n"


def prose(text: str) -> Markup:
    """A sentence, escaped; text in backquotes becomes code, and no line starts with a %."""
    whole = str(escape(text)).replace(" %", "\u00a0%")
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", whole))


def likely(share: float) -> str:
    """A probability as people read it; certainty is not claimed by rounding."""
    from wherefrom.provenance.wording import percent

    return percent(share).replace(" %", "\u00a0%")


def as_data(value: Any) -> Markup:
    """A value as JSON for a script element: no `<`, `>` or `&` is left in it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def make_environment(*packages: str, **filters: Any) -> Environment:
    """A Jinja environment of these packages' templates; an undefined name is an error."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in packages]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"cell": show_cell, "data": as_data, "prose": prose, "likely": likely}
    environment.filters |= filters
    return environment


def hash_for_policy(text: str) -> str:
    """How a Content-Security-Policy allows exactly this script or style."""
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def render_html(report: dict[str, Any]) -> str:
    """The page for the dictionary of a report; its policy forbids every request."""
    from plotly.offline import get_plotlyjs

    folder = files("wherefrom.report")
    script, style = (
        (folder / f"report.{kind}").read_text(encoding="utf-8") for kind in ("js", "css")
    )
    # with the line ends that a browser sees, so that it computes the same hashes
    scripts = [re.sub("\r\n?", "\n", text) for text in (str(get_plotlyjs()), script)]
    policy = (
        f"default-src 'none'; script-src {' '.join(map(hash_for_policy, scripts))}; "
        "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    return (
        make_environment("wherefrom.report")
        .get_template("file.html")
        .render(report=report, policy=policy, style=Markup(style), scripts=[*map(Markup, scripts)])
    )


def render_figures(title: str, figures: Iterable[tuple[str, str, go.Figure]]) -> str:
    """A file like the report's: a heading, a sentence and a figure for each section."""
    sections = [
        blank_section(f"figure-{i}", name, sentence, figure=as_record(figure), caption=name)
        for i, (name, sentence, figure) in enumerate(figures)
    ]
    blank = {"run": "", "warning": "", "sentence": "", "headlines": [], "questions": []}
    return render_html({**blank, "title": title, "notes": [], "sections": sections})
