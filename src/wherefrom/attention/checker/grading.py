r"""Many answers at once, for a course: a file or a folder of submissions in, points out.

A submission is TOML, one `[[answer]]` per question, or rows of a CSV file (student, id, answer):

    [[answer]]
    id = "1b"
    problem = "average"
    q = "beta*(k_a+k_b)"        # or: answer = "$q = \beta(k_a + k_b)$"

A course keeps problems, points and tolerances in a rubric of its own: the same file without
formulas. There, `credit` gives part of the points by verdict, `reasons` by what the checker says,
and `kind = "written"` passes prose on to a person, with the checker's figures beside it. A mistake
in a submission costs that answer, or that submission, and is said in its result.
"""

from __future__ import annotations

import csv
import io
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from wherefrom.attention.checker.check import check
from wherefrom.attention.checker.problems import CheckResult, find_problem
from wherefrom.errors import UserError

MAX_BYTES = 1_000_000
MAX_ANSWERS = 500  # of one file
MAX_ROWS = 20_000  # of one table
FIELDS = ("id", "problem", "points", "tolerance", "student")
RUBRIC_FIELDS = ("credit", "reasons", "comment", "kind", "show")
KINDS = ("formula", "written")


@dataclass(frozen=True)
class Answer:
    """One question with what a student wrote; `formulas` are texts such as "q=beta*k_j"."""

    id: str
    problem: str
    points: float = 1.0
    tolerance: float | None = None
    student: str = ""
    formulas: tuple[str, ...] = ()
    kind: str = "formula"
    credit: Mapping[str, float] = field(default_factory=dict)  # verdict -> share of the points
    reasons: tuple[Mapping[str, Any], ...] = ()  # contains, credit, comment
    comment: str = ""
    show: tuple[str, ...] = ()  # the construction whose figures stand beside prose
    mistake: str = ""  # why the answer could not be read


@dataclass(frozen=True)
class Submission:
    """The answers of one student, and what was wrong with the file."""

    student: str
    answers: tuple[Answer, ...] = ()
    mistakes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Graded:
    """One answer with its verdict, or with the sentence that says why there is none."""

    answer: Answer
    result: CheckResult | None
    sentence: str

    @property
    def word(self) -> str:
        if self.answer.kind == "written" and self.answer.formulas:
            return "written"
        if self.result is not None:
            return self.result.verdict
        return "not writable" if self.answer.formulas or self.answer.mistake else "no answer"

    @property
    def passed(self) -> bool:
        return self.word != "written" and self.result is not None and self.result.passed

    @property
    def reason(self) -> Mapping[str, Any]:
        """The first reason of the rubric that the checker's sentence contains."""
        return next((r for r in self.answer.reasons if r["contains"] in self.sentence), {})

    @property
    def score(self) -> float:
        share = self.answer.credit.get(self.word, float(self.passed))
        return self.answer.points * float(self.reason.get("credit", share))

    @property
    def comment(self) -> str:
        return str(self.reason.get("comment", self.answer.comment))

    @property
    def review(self) -> bool:
        """Should a person look at it?"""
        return self.word in ("inconclusive", "not writable", "written")

    def to_dict(self) -> dict[str, Any]:
        return {
            "id": self.answer.id,
            "student": self.answer.student,
            "problem": self.answer.problem,
            "formulas": list(self.answer.formulas),
            "verdict": self.word,
            "sentence": self.sentence,
            "score": self.score,
            "max_score": self.answer.points,
            "comment": self.comment,
            "review": self.review,
            "details": self.result.to_dict() if self.result is not None else None,
        }


def read_answers(text: str, *, source: str = "the file") -> list[Answer]:
    """The answers or the rubric of a TOML file, or one sentence about what is wrong with it."""
    if len(text) > MAX_BYTES:
        raise UserError(f"{source} is too long for a file of answers ({len(text):,} characters).")
    record = _toml(text, source)
    unknown = sorted(set(record) - {"answer", "title"})
    if unknown:
        raise UserError(f'{source} has "{unknown[0]}"; only title and [[answer]] are known.')
    rows = record.get("answer", [])
    if not isinstance(rows, list) or not rows or not all(isinstance(r, dict) for r in rows):
        raise UserError(f"{source} has no [[answer]].")
    if len(rows) > MAX_ANSWERS:
        raise UserError(f"{source} has {len(rows)} answers; {MAX_ANSWERS} are allowed.")
    answers = [_answer(row, f"{source}, answer {i}") for i, row in enumerate(rows, start=1)]
    seen: set[tuple[str, str]] = set()
    for answer in answers:
        if (answer.student, answer.id) in seen:
            raise UserError(f'{source} has two answers with the id "{answer.id}".')
        seen.add((answer.student, answer.id))
    return answers


def _toml(text: str, source: str) -> dict[str, Any]:
    """A TOML file; a backslash in a quoted formula, as in "\\mu_a", is taken as it stands."""

    def plain(found: re.Match[str]) -> str:
        return '"' + re.sub(r"\\(?![\"\\])", r"\\\\", found[1]) + '"'

    doubled = re.sub(r'"((?:[^"\\\n]|\\.)*)"', plain, text)
    try:
        return tomllib.loads(text if '"""' in text or "'''" in text else doubled)
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        raise UserError(f"{source} is not valid TOML: {problem}.") from None


def _answer(
    row: Mapping[str, Any], where: str, rubric: Mapping[str, Answer] | None = None
) -> Answer:
    if not isinstance(row.get("id"), str) or not row["id"].strip():
        raise UserError(f'{where} needs id = "...".')
    kind = row.get("kind", "formula")
    if kind not in KINDS:
        raise UserError(f"{where}: kind must be formula or written, not {kind!r}.")
    asked = (rubric or {}).get(row["id"].strip())
    name = row.get("problem", "")
    if rubric:  # which decides; an id that it does not have is said by `grade_class`
        name = asked.problem if asked else ""
    elif not isinstance(name, str) or not (name.strip() or kind == "written"):
        raise UserError(f'{where} needs problem = "...".')
    problem = find_problem(name).name if name else ""
    points, tolerance = row.get("points", 1.0), row.get("tolerance")
    if isinstance(points, bool) or not isinstance(points, int | float) or not 0 <= points <= 1000:
        raise UserError(f"{where}: points must be a number from 0 to 1000, not {points!r}.")
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float | None):
        raise UserError(f"{where}: tolerance must be a number, not {tolerance!r}.")
    formulas = {n: f for n, f in row.items() if n not in (*FIELDS, *RUBRIC_FIELDS)}
    for name, formula in formulas.items():
        if not isinstance(formula, str):
            raise UserError(f'{where}: {name} must be a formula in quotes, as in {name} = "...".')
    credit, reasons = row.get("credit", {}), row.get("reasons", [])
    shares = [*credit.values()] if isinstance(credit, dict) else [None]
    if not all(isinstance(s, int | float) and 0 <= s <= 1 for s in shares):
        raise UserError(f"{where}: credit gives shares from 0 to 1, as in {{ refuted = 0.5 }}.")
    if not all(isinstance(r, dict) and isinstance(r.get("contains"), str) for r in reasons):
        raise UserError(f'{where}: each of the reasons needs contains = "...".')
    return Answer(
        id=row["id"].strip(),
        problem=problem,
        points=float(points),
        tolerance=None if tolerance is None else float(tolerance),
        student=str(row.get("student", "")),
        formulas=tuple(_named(name, formula) for name, formula in formulas.items()),
        kind=kind,
        credit=credit,
        reasons=tuple(reasons),
        comment=str(row.get("comment", "")),
        show=tuple(map(str, row.get("show", ()))),
    )


def _named(name: str, formula: str) -> str:
    """The formula with its name, unless it has one; a whole answer names its formulas itself."""
    has_name = name == "answer" or re.match(rf"[\s$\\(\[]*{re.escape(name)}\s*(=|≈)", formula)
    return formula if has_name else f"{name}={formula}"


def read_submissions(path: Path, rubric: Sequence[Answer] = ()) -> list[Submission]:
    """The submissions of a folder (a file or a folder per student), of a CSV file, or of one file.

    What cannot be read is a mistake of its submission; only a path that is not there is an error.
    """
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.suffix in (".toml", ".csv", ".txt"))
        found = []
        for file in files:
            student = file.stem if file.parent == path else file.relative_to(path).parts[0]
            found.extend(_read_file(file, student, rubric))
        if not found:
            raise UserError(f"{path} has no submissions (.toml or .csv).")
        return found
    if not path.exists():
        raise UserError(f"{path} cannot be read: No such file or directory.")
    return _read_file(path, "", rubric)


def _read_file(path: Path, student: str, rubric: Sequence[Answer]) -> list[Submission]:
    try:
        if path.is_symlink():
            raise UserError("the submission is a link to another file, which is not followed.")
        if path.stat().st_size > MAX_BYTES:
            raise UserError("the submission is too long.")
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as problem:
        return [Submission(student, mistakes=(f"it cannot be read: {problem.strerror}.",))]
    except UnicodeDecodeError as problem:
        sentence = f"it is not text in UTF-8 (byte {problem.start + 1})."
        return [Submission(student, mistakes=(sentence,))]
    except UserError as mistake:
        return [Submission(student, mistakes=(str(mistake),))]
    read = _read_csv if path.suffix == ".csv" else _read_toml
    return read(text, student, {answer.id: answer for answer in rubric})


def _read_toml(text: str, student: str, rubric: Mapping[str, Answer]) -> list[Submission]:
    """The answers of a file; one that cannot be read leaves the others as they are."""
    head, *blocks = re.split(r"(?m)^\s*\[\[\s*answer\s*\]\]", text)
    mistakes, found = list[str](), dict[str, list[Answer]]()
    try:
        student = str(_toml(head, "the head of the file").get("student", student))
    except UserError as mistake:
        mistakes.append(str(mistake))
    if not blocks:
        mistakes.append("it has no [[answer]].")
    for number, block in enumerate(blocks[:MAX_ANSWERS], start=1):
        where = f"answer {number}"
        try:
            answer = _answer(_toml(block, where), where, rubric)
            _add(found, replace(answer, student=answer.student or student), mistakes)
        except UserError as mistake:
            named = re.search(r"""(?m)^\s*id\s*=\s*["']?([^"'\n]+)""", block)
            sentence = str(mistake)
            mistakes.append(sentence)
            if named and named[1].strip() in rubric:
                broken = replace(rubric[named[1].strip()], student=student, mistake=sentence)
                _add(found, broken, [])
    groups = found or {student: []}
    return [Submission(who, tuple(given), tuple(mistakes)) for who, given in groups.items()]


def _add(found: dict[str, list[Answer]], answer: Answer, mistakes: list[str]) -> None:
    given = found.setdefault(answer.student, [])
    if any(other.id == answer.id for other in given):
        mistakes.append(f'there are two answers with the id "{answer.id}"; the first one counts.')
    else:
        given.append(answer)


def _read_csv(text: str, student: str, rubric: Mapping[str, Answer]) -> list[Submission]:
    """Rows of student, id, answer; or a row per student with a column per question."""
    found, mistakes = dict[str, list[Answer]](), dict[str, list[str]]()
    try:
        rows = list(csv.DictReader(io.StringIO(text)))[:MAX_ROWS]
    except csv.Error as mistake:
        return [Submission(student, mistakes=(f"it is not valid CSV: {mistake}.",))]
    for number, row in enumerate(rows, start=2):
        cells = {str(k).strip(): str(v or "").strip() for k, v in row.items() if k is not None}
        who = cells.pop("student", student)
        given = {cells["id"]: cells.get("answer", "")} if "id" in cells else cells
        found.setdefault(who, [])
        for id_, written in given.items():
            asked = rubric.get(id_)
            problem = asked.problem if asked else cells.get("problem", "")
            if not asked and (rubric or not problem):
                sentence = f'line {number}: there is no question "{id_[:40]}".'
                mistakes.setdefault(who, []).append(sentence)
            elif written:
                answer = Answer(id_, problem, student=who, formulas=(written,))
                _add(found, answer, mistakes.setdefault(who, []))
    return [Submission(w, tuple(a), tuple(mistakes.get(w, ()))) for w, a in found.items()]


def apply_rubric(answers: Sequence[Answer], rubric: Sequence[Answer]) -> list[Answer]:
    """The rubric's questions with the student's formulas; nothing else of the student's counts."""
    given = {(answer.student, answer.id): answer for answer in answers}
    asked = {question.id for question in rubric}
    extra = sorted({answer.id for answer in answers} - asked)
    if extra:
        raise UserError(f'the rubric does not ask for "{extra[0]}"; it asks for {sorted(asked)}.')
    none = Answer("", "")
    return [
        replace(
            question,
            student=student,
            formulas=given.get((student, question.id), none).formulas,
            mistake=given.get((student, question.id), none).mistake,
        )
        for student in sorted({answer.student for answer in answers}) or [""]
        for question in rubric
    ]


def grade(
    answers: Sequence[Answer], *, seed: int = 0, cache: dict[Any, Any] | None = None
) -> list[Graded]:
    """Check every answer, equal ones once; one that cannot be read costs its own points."""
    known = {} if cache is None else cache
    graded = []
    for answer in answers:
        result, sentence = None, answer.mistake or "there is no answer to this question."
        formulas = answer.formulas
        if answer.kind == "written" and formulas and not answer.mistake:
            formulas = (
                (answer.show or tuple(find_problem(answer.problem).example))
                if (answer.problem)
                else ()
            )
            sentence = "for a person to read."
        if formulas and not answer.mistake:
            key = (answer.problem, formulas, answer.tolerance, seed)
            if key not in known:
                known[key] = _judge(answer, formulas, seed)
            result, judged = known[key]
            sentence = judged if answer.kind == "formula" else f"{sentence} {judged}"
        graded.append(Graded(answer, result, sentence))
    return graded


def _judge(answer: Answer, formulas: Sequence[str], seed: int) -> tuple[CheckResult | None, str]:
    try:
        result = check(answer.problem, formulas, tolerance=answer.tolerance, seed=seed)
    except UserError as mistake:
        return None, str(mistake)
    return result, result.because


def grade_class(
    submissions: Sequence[Submission], rubric: Sequence[Answer] = (), *, seed: int = 0
) -> dict[str, tuple[list[Graded], list[str]]]:
    """Student -> the graded answers, and the mistakes of the submission."""
    cache: dict[Any, Any] = {}
    asked = {question.id for question in rubric}
    found: dict[str, tuple[list[Graded], list[str]]] = {}
    for submission in submissions:
        answers, mistakes = list(submission.answers), list(submission.mistakes)
        if rubric:
            for answer in answers:
                if answer.id not in asked:
                    mistakes.append(f'the rubric does not ask for "{answer.id[:40]}".')
            kept = [replace(a, student=submission.student) for a in answers if a.id in asked]
            unread = "" if kept or not mistakes else mistakes[0]
            answers = [
                replace(a, student=submission.student, mistake=a.mistake or unread)
                for a in apply_rubric(kept, rubric)
            ]
        name = submission.student
        while name in found:
            name += "+"  # two files of one student
        found[name] = (grade(answers, seed=seed, cache=cache), mistakes)
    return found


def gradescope(graded: Sequence[Graded], mistakes: Sequence[str] = ()) -> dict[str, Any]:
    """The record that Gradescope reads from results.json, of one student."""
    total = sum(item.score for item in graded)
    most = sum(item.answer.points for item in graded)
    unclear = [item.answer.id for item in graded if item.review]
    output = f"{total:g} of {most:g} points."
    if unclear:
        output += f" A person should look at: {', '.join(unclear)}."
    output += "".join(f" In the submission: {mistake}" for mistake in mistakes)
    tests = []
    for item in graded:
        who = f"{item.answer.student}: " if item.answer.student else ""
        lines = [f"{item.word}: {item.sentence}", *item.answer.formulas]
        if item.result is not None:
            read = ", ".join(f"{name} = {text}" for name, text in item.result.read_as.items())
            lines.append(f"read as: {read}")
            if item.result.counterexample is not None:
                lines.append(f"counterexample: {item.result.counterexample.sentence}")
        if item.comment:
            lines.append(item.comment)
        tests.append(
            {
                "name": f"{who}{item.answer.id} ({item.answer.problem or item.answer.kind})",
                "score": item.score,
                "max_score": item.answer.points,
                "status": "passed" if item.passed else "failed",
                "output": "\n".join(lines),
                "output_format": "text",
                "visibility": "visible",
                "tags": ["review"] if item.review else [],
            }
        )
    record: dict[str, Any] = {"output": output, "output_format": "text", "tests": tests}
    return record if tests else record | {"score": 0.0}


def table_of_totals(graded: Mapping[str, tuple[Sequence[Graded], Sequence[str]]]) -> str:
    """CSV: a row per student with the total, the points of each question, what to look at."""
    ids = list(dict.fromkeys(item.answer.id for items, _ in graded.values() for item in items))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["student", "total", "of", *ids, "review", "mistakes"])
    for student, (items, mistakes) in graded.items():
        points = {item.answer.id: item.score for item in items}
        total, most = sum(points.values()), sum(item.answer.points for item in items)
        review = " ".join(item.answer.id for item in items if item.review)
        cells = [f"{points[i]:g}" if i in points else "" for i in ids]
        row = [student, f"{total:g}", f"{most:g}", *cells, review, " ".join(mistakes)]
        # a cell that begins like a formula would be run by a spreadsheet
        writer.writerow(["'" + cell if cell[:1] in "=+-@\t" and cell else cell for cell in row])
    return out.getvalue()


def otter_tests(rubric: Sequence[Answer]) -> dict[str, str]:
    """File name -> a test for otter-grader; students write answers["1b"] = "q = ..."."""
    found = {}
    for question in rubric:
        if question.kind != "formula":
            continue
        name = file_name(question.id)
        code = (
            ">>> import wherefrom\n"
            f">>> wherefrom.check({question.problem!r}, answers[{question.id!r}]).passed\nTrue"
        )
        case = {"code": code, "hidden": False, "locked": False, "points": question.points}
        suite = {"cases": [case], "scored": True, "setup": "", "teardown": "", "type": "doctest"}
        test = {"name": name, "points": question.points, "suites": [suite]}
        text = json.dumps(test, indent=4).replace(": true", ": True").replace(": false", ": False")
        found[f"{name}.py"] = f"OK_FORMAT = True\n\ntest = {text}\n"
    return found


def file_name(student: str) -> str:
    """A name that is safe for a file."""
    return re.sub(r"[^\w-]+", "_", student).strip("_")[:80] or "submission"
