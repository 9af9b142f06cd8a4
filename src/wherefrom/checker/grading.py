"""Many answers at once, for a course: a file or a folder of submissions in, points out.

A mistake in a submission costs that answer, or that submission; docs/teaching.md has the format.
"""

from __future__ import annotations

import csv
import io
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from pprint import pformat
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field, ValidationError

from wherefrom.checker import CheckResult, check, find_problem
from wherefrom.errors import UserError
from wherefrom.teaching.grading import as_csv, gradescope_test

MAX_BYTES = 1_000_000
MAX_ANSWERS = 500  # of one file
MAX_ROWS = 20_000  # of one table
Share = Annotated[float, Field(ge=0, le=1)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]


@pydantic.dataclasses.dataclass(frozen=True)
class Reason:
    """Part of the points, and a comment, where the checker's sentence contains a text."""

    contains: str
    credit: Share | None = None
    comment: str | None = None


@pydantic.dataclasses.dataclass(frozen=True)
class Answer:
    """One question with what a student wrote; `formulas` are texts such as "q=beta*k_j"."""

    id: Annotated[str, Field(min_length=1)]
    problem: str = ""
    points: Annotated[Number, Field(ge=0, le=1000)] = 1.0
    tolerance: Number | None = None
    student: str = ""
    kind: Literal["formula", "written"] = "formula"
    credit: dict[str, Share] = Field(default_factory=dict)  # verdict -> share of the points
    reasons: tuple[Reason, ...] = ()
    comment: str = ""
    show: tuple[str, ...] = ()  # the construction whose figures stand beside prose
    formulas: tuple[str, ...] = ()
    mistake: str = ""  # why the answer could not be read


FIELDS = set(Answer.__annotations__) - {"formulas", "mistake"}


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
    word: str  # the verdict, "written", "not writable" or "no answer"
    score: float
    comment: str

    @property
    def passed(self) -> bool:
        return self.word in ("proved", "holds")

    @property
    def review(self) -> bool:
        """Should a person look at it?"""
        return self.word in ("inconclusive", "not writable", "written")

    def to_dict(self) -> dict[str, Any]:
        answer = self.answer
        record = {name: getattr(answer, name) for name in ("id", "student", "problem")}
        record |= {"formulas": list(answer.formulas), "verdict": self.word}
        record |= {name: getattr(self, name) for name in ("sentence", "score", "comment", "review")}
        details = self.result.to_dict() if self.result is not None else None
        return record | {"max_score": answer.points, "details": details}


def read_answers(file: Path | str) -> list[Answer]:
    """The answers or the rubric of a TOML file or text; a mistake in it is an error."""
    if isinstance(file, str):
        source, submissions = "the file", _read_toml(file, "", {})
    else:
        source, submissions = str(file), _read_file(file.resolve(), "", {})
    for submission in submissions:
        if submission.mistakes:
            raise UserError(f"{source}: {submission.mistakes[0]}")
    return [answer for submission in submissions for answer in submission.answers]


def read_submissions(
    path: Path, rubric: Sequence[Answer] = (), *, of_one: bool = False
) -> list[Submission]:
    """The submissions of a folder (a file or a folder per student), of a CSV file, or of one file.
    What cannot be read is a mistake of its submission; only a path that is not there is an error.
    `of_one` takes a folder for the work of one student, as Gradescope hands it over."""
    if not path.exists():
        raise UserError(f"{path} cannot be read: No such file or directory.")
    questions = {answer.id: answer for answer in rubric}
    if not path.is_dir():
        return _read_file(path, "", questions)
    submissions: list[Submission] = []
    for file in sorted(p for p in path.rglob("*") if p.suffix in (".toml", ".csv")):
        student = file.stem if file.parent == path else file.relative_to(path).parts[0]
        submissions += _read_file(file, "" if of_one else student, questions)
    if not of_one:
        if not submissions:
            raise UserError(f"{path} has no submissions (.toml or .csv).")
        return submissions
    answers, mistakes = list[Answer](), [m for each in submissions for m in each.mistakes]
    for answer in (answer for each in submissions for answer in each.answers):
        _add(answers, replace(answer, student=""), mistakes)
    if not submissions:
        mistakes.append("nothing was handed in that can be graded (.toml or .csv).")
    return [Submission("", tuple(answers), tuple(mistakes))]


def _read_file(path: Path, student: str, questions: Mapping[str, Answer]) -> list[Submission]:
    try:
        if path.is_symlink():
            mistake = "the submission is a link to another file, which is not followed."
        elif path.stat().st_size > MAX_BYTES:
            mistake = "the submission is too long."
        else:
            read = _read_csv if path.suffix == ".csv" else _read_toml
            return read(path.read_bytes().decode("utf-8-sig"), student, questions)
    except OSError as problem:
        mistake = f"it cannot be read: {problem.strerror}."
    except UnicodeDecodeError as problem:
        mistake = f"it is not text in UTF-8 (byte {problem.start + 1})."
    return [Submission(student, mistakes=(mistake,))]


def _read_toml(text: str, student: str, questions: Mapping[str, Answer]) -> list[Submission]:
    """The answers of a file, by student; one that cannot be read leaves the others as they are."""
    if len(text) > MAX_BYTES:
        return [Submission(student, mistakes=("it is too long for a file of answers.",))]
    head, *blocks = re.split(r"(?m)^\s*\[\[\s*answer\s*\]\]", text)
    mistakes, answers = list[str](), dict[str, list[Answer]]()
    try:
        top = _toml(head, "the head of the file")
        student = str(top.get("student", student))
        for name in sorted(set(top) - {"title", "student", "answer"})[:1]:
            mistakes.append(f'it has "{name}"; only title, student and [[answer]] are known.')
    except UserError as mistake:
        mistakes.append(str(mistake))
    if not blocks:
        mistakes.append("it has no [[answer]].")
    if len(blocks) > MAX_ANSWERS:
        mistakes.append(f"it has {len(blocks)} answers; {MAX_ANSWERS} are allowed.")
    for number, block in enumerate(blocks[:MAX_ANSWERS], start=1):
        where = f"answer {number}"
        try:
            answer = _answer(_toml(block, where), where, questions)
            answer = replace(answer, student=answer.student or student)
            _add(answers.setdefault(answer.student, []), answer, mistakes)
        except UserError as mistake:
            mistakes.append(str(mistake))
    by_student = answers or {student: []}
    return [Submission(who, tuple(given), tuple(mistakes)) for who, given in by_student.items()]


def _toml(text: str, source: str) -> dict[str, Any]:
    """A TOML file; a backslash in a quoted formula, as in "\\mu_a", is taken as it stands."""
    if '"""' not in text and "'''" not in text:
        quoted = r'"(?:[^"\\\n]|\\.)*"'
        text = re.sub(quoted, lambda found: re.sub(r"\\(?![\"\\])", r"\\\\", found[0]), text)
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        raise UserError(f"{source} is not valid TOML: {problem}.") from None


def _answer(row: dict[str, Any], where: str, questions: Mapping[str, Answer]) -> Answer:
    formulas = []
    for name, formula in row.items():
        if name in FIELDS:
            continue
        if not isinstance(formula, str):
            raise UserError(f'{where}: {name} must be a formula in quotes, as in {name} = "...".')
        has_name = name == "answer" or re.match(rf"[\s$\\(\[]*{re.escape(name)}\s*(=|≈)", formula)
        formulas.append(formula if has_name else f"{name}={formula}")
    try:
        fields = {name: value for name, value in row.items() if name in FIELDS}
        answer = Answer(**fields, formulas=tuple(formulas))
    except ValidationError as problem:
        first = problem.errors()[0]
        field, message = ".".join(map(str, first["loc"])), first["msg"]
        sentence = f"{where}: {field} is wrong ({message[:1].lower()}{message[1:]})."
        raise UserError(sentence) from None
    if questions:  # the rubric decides; `apply_rubric` reports an id that it does not have
        return answer
    if not (answer.problem or answer.kind == "written"):
        raise UserError(f'{where} needs problem = "...".')
    if answer.problem:
        find_problem(answer.problem)
    return answer


def _add(given: list[Answer], answer: Answer, mistakes: list[str]) -> None:
    if any(other.id == answer.id for other in given):
        mistakes.append(f'there are two answers with the id "{answer.id}"; the first one counts.')
    else:
        given.append(answer)


def _read_csv(text: str, student: str, questions: Mapping[str, Answer]) -> list[Submission]:
    """Rows of student, id (or problem), answer; or a row per student, a column per question."""
    answers, mistakes = dict[str, list[Answer]](), dict[str, list[str]]()
    try:
        rows = list(csv.DictReader(io.StringIO(text)))[:MAX_ROWS]
    except csv.Error as mistake:
        return [Submission(student, mistakes=(f"it is not valid CSV: {mistake}.",))]
    for number, row in enumerate(rows, start=2):
        cells = {str(k).strip(): str(v or "").strip() for k, v in row.items() if k is not None}
        who = cells.pop("student", student)
        given, wrong = answers.setdefault(who, []), mistakes.setdefault(who, [])
        id_ = cells.get("id") or ("answer" in cells and cells.get("problem"))
        by_id = {id_: cells.get("answer", "")} if id_ else cells
        for id_, written in by_id.items():
            problem = questions[id_].problem if id_ in questions else cells.get("problem", "")
            if not written:
                continue
            if id_ not in questions and (questions or not problem):
                wrong.append(f'line {number}: there is no question "{id_[:40]}".')
            else:
                _add(given, Answer(id_, problem, student=who, formulas=(written,)), wrong)
    return [Submission(w, tuple(a), tuple(mistakes[w])) for w, a in answers.items()]


def apply_rubric(submission: Submission, rubric: Sequence[Answer]) -> Submission:
    """The rubric's questions with the student's formulas; nothing else of the student's counts.
    Where something could not be read, the questions without an answer are for a person to see."""
    given = {answer.id: answer.formulas for answer in submission.answers}
    unknown = set(given) - {question.id for question in rubric}
    mistakes = list(submission.mistakes)
    mistakes += [f'the rubric does not ask for "{id_[:40]}".' for id_ in given if id_ in unknown]
    unread = mistakes[0] if submission.mistakes or set(given) == unknown != set() else ""
    answers = []
    for question in rubric:
        formulas = given.get(question.id, ())
        question = replace(question, student=submission.student, formulas=formulas)
        answers.append(replace(question, mistake="" if question.id in given else unread))
    return Submission(submission.student, tuple(answers), tuple(mistakes))


def grade(answers: Sequence[Answer], *, seed: int = 0) -> list[Graded]:
    """Check every answer, equal ones once; one that cannot be read costs its own points."""
    checked = dict[Any, tuple[CheckResult | None, str]]()
    graded = []
    for answer in answers:
        result, sentence, formulas = None, "there is no answer to this question.", answer.formulas
        word = "not writable" if formulas or answer.mistake else "no answer"
        written = answer.kind == "written" and bool(formulas)
        if answer.mistake:
            sentence, formulas = answer.mistake, ()
        elif written:
            example = find_problem(answer.problem).example if answer.problem else ()
            sentence, formulas = "for a person to read.", answer.show or tuple(example)
        if formulas:
            key = (answer.problem, formulas, answer.tolerance)
            if key not in checked:
                try:
                    result = check(answer.problem, formulas, tolerance=answer.tolerance, seed=seed)
                    checked[key] = result, result.because
                except UserError as mistake:
                    checked[key] = None, str(mistake)
            result, because = checked[key]
            sentence = f"{sentence} {because}" if written else because
        word = "written" if written else result.verdict if result else word
        reason = next((r for r in answer.reasons if r.contains in sentence), Reason(""))
        share = answer.credit.get(word, float(word in ("proved", "holds")))
        score = answer.points * (share if reason.credit is None else reason.credit)
        comment = answer.comment if reason.comment is None else reason.comment
        graded.append(Graded(answer, result, sentence, word, score, comment))
    return graded


def grade_class(
    submissions: Sequence[Submission], rubric: Sequence[Answer] = (), *, seed: int = 0
) -> dict[str, tuple[list[Graded], list[str]]]:
    """Student -> the graded answers, and the mistakes of the submission."""
    if rubric:
        submissions = [apply_rubric(submission, rubric) for submission in submissions]
    items = iter(grade([answer for each in submissions for answer in each.answers], seed=seed))
    graded: dict[str, tuple[list[Graded], list[str]]] = {}
    for submission in submissions:
        name = submission.student
        while name in graded:
            name += "+"  # two files of one student
        own = list(islice(items, len(submission.answers)))
        graded[name] = (own, list(submission.mistakes))
    return graded


def gradescope(graded: Sequence[Graded], mistakes: Sequence[str] = ()) -> dict[str, Any]:
    """The record that Gradescope reads from results.json, of one student."""
    total, most = sum(item.score for item in graded), sum(item.answer.points for item in graded)
    unclear = [item.answer.id for item in graded if item.review]
    output = f"{total:g} of {most:g} points."
    if unclear:
        output += f" A person should look at: {', '.join(unclear)}."
    output += "".join(f" In the submission: {mistake}" for mistake in mistakes)
    tests = []
    for item in graded:
        answer, result = item.answer, item.result
        lines = [f"{item.word}: {item.sentence}", *answer.formulas]
        if result is not None:
            read = ", ".join(f"{name} = {text}" for name, text in result.read_as.items())
            lines.append(f"read as: {read}")
            if result.counterexample is not None:
                lines.append(f"counterexample: {result.counterexample.sentence}")
        who = f"{answer.student}: " if answer.student else ""
        name = f"{who}{answer.id} ({answer.problem or answer.kind})"
        shown = "\n".join(filter(None, [*lines, item.comment]))
        test = gradescope_test(name, item.score, answer.points, item.passed, shown)
        tests.append(test | {"tags": ["review"] if item.review else []})
    record: dict[str, Any] = {"output": output, "output_format": "text", "tests": tests}
    return record if tests else record | {"score": 0.0}


def table_of_totals(graded: Mapping[str, tuple[Sequence[Graded], Sequence[str]]]) -> str:
    """CSV: a row per student with the total, the points of each question, what to look at."""
    ids = list(dict.fromkeys(item.answer.id for items, _ in graded.values() for item in items))
    rows = [["student", "total", "of", *ids, "review", "mistakes"]]
    for student, (items, mistakes) in graded.items():
        points = {item.answer.id: item.score for item in items}
        total, most = sum(points.values()), sum(item.answer.points for item in items)
        review = " ".join(item.answer.id for item in items if item.review)
        cells = [f"{points[i]:g}" if i in points else "" for i in ids]
        rows.append([student, f"{total:g}", f"{most:g}", *cells, review, " ".join(mistakes)])
    return as_csv(rows)


def otter_tests(rubric: Sequence[Answer]) -> dict[str, str]:
    """File name -> a test for otter-grader; students write answers["1b"] = "q = ..."."""
    files = {}
    for question in (question for question in rubric if question.kind == "formula"):
        name = file_name(question.id)
        call = f"wherefrom.check({question.problem!r}, answers[{question.id!r}]).passed"
        code = f">>> import wherefrom\n>>> {call}\nTrue"
        case = {"code": code, "hidden": False, "locked": False, "points": question.points}
        suite = {"cases": [case], "scored": True, "setup": "", "teardown": "", "type": "doctest"}
        test = {"name": name, "points": question.points, "suites": [suite]}
        files[f"{name}.py"] = f"OK_FORMAT = True\n\ntest = {pformat(test, sort_dicts=False)}\n"
    return files


def file_name(student: str) -> str:
    """A name that is safe for a file."""
    return re.sub(r"[^\w-]+", "_", student).strip("_")[:80] or "submission"
