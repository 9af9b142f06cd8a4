"""Grading: submissions and a rubric in, graded answers out; written answers and code alike.

A mistake in a submission costs that answer, or that submission, and never the class.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from wherefrom.errors import UserError
from wherefrom.storage import write_json
from wherefrom.teaching.checks import part_of, verdict
from wherefrom.teaching.results import GradedAnswer, Result, gradescope_record
from wherefrom.teaching.rubric import GROUPS, Question, Rubric, make_question, read_rubric
from wherefrom.teaching.sandbox import Sandbox, SandboxLimits, find_protection
from wherefrom.teaching.submissions import Submission, mark_shared_students, read_submissions

DEFAULT_LIMITS = SandboxLimits()
NO_ANSWER = "there is no answer to this question."


@dataclass(frozen=True)
class Grader:
    """Grades submissions by a rubric, or by the problems that they name themselves."""

    rubric: Rubric | None = None
    limits: SandboxLimits = DEFAULT_LIMITS
    seed: int = 0  # of the checker

    def grade_class(
        self, submissions: Iterable[Submission], jobs: int, report: Callable[[Result], None]
    ) -> list[Result]:
        """The results of all submissions in their order; `report` hears of each."""
        results = []
        with ThreadPoolExecutor(max_workers=jobs) as pool:
            for result in pool.map(self.grade, mark_shared_students(submissions)):
                report(result)
                results.append(result)
        return results

    def grade(self, submission: Submission) -> Result:
        """The result of one submission."""
        questions, notes = self._questions_for(submission)
        result = Result(submission.name, submission.student, notes=[*submission.notes, *notes])
        known = {question.id for question in questions}
        for id_ in submission.answers:
            if id_ not in known:
                result.notes.append(f'the rubric does not ask for "{id_[:40]}".')
        code = [question for question in questions if question.kind == "code"]
        of_code = self._grade_code(submission, code, result) if code else {}
        for question in questions:
            if question.kind == "code":
                result.answers += of_code[question.id]
            else:
                formulas = submission.answers.get(question.id, ())
                unread = submission.why_unread(question.id)
                result.answers.append(grade_written(question, formulas, unread, self.seed))
        if submission.others and any(answer.verdict == "not read" for answer in result.answers):
            result.notes.append(f"not read: {', '.join(submission.others)[:200]}.")
        return result

    def _questions_for(self, submission: Submission) -> tuple[list[Question], list[str]]:
        """The questions, and what is wrong with those that the submission itself asks."""
        if self.rubric is not None:
            return list(self.rubric.questions), []
        questions: dict[str, Question] = {}
        notes = []
        for number, row in enumerate(submission.rows, start=1):
            try:
                question = make_question(row, f"answer {number}")
                questions.setdefault(question.id, question)
            except UserError as mistake:
                notes.append(str(mistake))
        if submission.code:
            notes.append("code is graded by a rubric; `wherefrom assignment` writes one.")
        return list(questions.values()), notes

    def _grade_code(
        self, submission: Submission, questions: list[Question], result: Result
    ) -> dict[str, list[GradedAnswer]]:
        """The graded checks of each question of kind "code"."""
        assert self.rubric is not None
        cases = self.rubric.assignment
        titles = [(group, title) for group in GROUPS for title in cases[group]]
        asked = {question.part for question in questions}
        titles = [(group, title) for group, title in titles if part_of(title) in asked]
        wrong: dict[tuple[str, str], str] = {}
        word = "failed"
        if not submission.code:
            unread = submission.why_unread("")
            word, sentence = ("not read", unread) if unread else ("no answer", "there is no code.")
            wrong = dict.fromkeys(titles, sentence)
        else:
            try:
                wrong = self._run_code(submission, titles, result)
            except OSError as problem:  # of the grader's own files
                word = "not read"
                wrong = dict.fromkeys(titles, f"the code was not run: {problem}.")
        graded: dict[str, list[GradedAnswer]] = {}
        for question in questions:
            own = [(group, title) for group, title in titles if part_of(title) == question.part]
            graded[question.id] = []
            for group, title in own:
                sentence = wrong[group, title]
                found = word if sentence else "passed"
                share, comment = question.judge(found, sentence)
                graded[question.id].append(
                    GradedAnswer(
                        question=question,
                        name=f"{title} ({group} cases)",
                        points=question.points / len(own),
                        verdict=found,
                        sentence=sentence,
                        share=share,
                        comment=comment,
                        is_hidden=group == "hidden",
                    )
                )
        return graded

    def _run_code(
        self, submission: Submission, titles: list[tuple[str, str]], result: Result
    ) -> dict[tuple[str, str], str]:
        """(group, title of a check) -> what is wrong, or ""."""
        assert self.rubric is not None
        cases, wrong = self.rubric.assignment, {}
        files = {"adapters.py": cases["adapters"].encode(), **submission.code}
        result.unprotected = find_protection().gaps()
        with Sandbox(files, self.limits) as sandbox:
            for group, title in titles:
                wrong[group, title] = verdict(title, sandbox.call, cases[group])
                # code could print the hidden cases, so only earlier output is shown
                if group == "handed out":
                    result.printed = (result.printed + sandbox.take_printed())[-1000:]
        result.notes += [f"the code tried to {what}." for what in sandbox.refused]
        if "" in sandbox.broken:
            result.notes.append(sandbox.broken[""])
        return wrong


def grade_written(
    question: Question, formulas: tuple[str, ...], unread: str = "", seed: int = 0
) -> GradedAnswer:
    """One written answer; `unread` says why it may be missing."""
    word, sentence, details = "no answer", NO_ANSWER, None
    judged_by = ""  # the sentence that reasons are looked for in
    if not formulas and unread:
        word, sentence = "not read", unread
    elif formulas and question.kind == "written":
        word, sentence = "written", "for a person to read."
        sentence += describe_example(question, seed)
    elif formulas:
        from wherefrom.teaching.written import judge_formulas  # code alone needs no checker

        judged = judge_formulas(question.problem, formulas, question.tolerance, seed)
        word, sentence, details = judged.verdict, judged.sentence, judged.details
        judged_by = sentence
    share, comment = question.judge(word, judged_by)
    problem = question.problem or question.kind
    return GradedAnswer(
        question=question,
        name=f"{question.id} ({problem})",
        points=question.points,
        verdict=word,
        sentence=sentence,
        share=share,
        comment=comment,
        formulas=formulas,
        details=details,
    )


def describe_example(question: Question, seed: int) -> str:
    """The checker's sentence on the construction that a question of prose is about."""
    if not question.problem:
        return ""
    from wherefrom.teaching.written import find_problem, judge_formulas

    example = question.show or tuple(find_problem(question.problem).example)
    return f" {judge_formulas(question.problem, example, question.tolerance, seed).sentence}"


def main() -> None:
    """Grade one submission on Gradescope; argv: its folder, and the results file."""
    folder, results = map(Path, sys.argv[1:3])
    (submission,) = read_submissions(folder, of_one=True)
    write_json(results, gradescope_record(Grader(read_rubric(Path("."))).grade(submission)))


if __name__ == "__main__":
    main()
