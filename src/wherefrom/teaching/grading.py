"""Grading: submissions and a rubric in, graded answers out; written answers and code alike.

A mistake in a submission costs that answer, or that submission, and never the class.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from wherefrom.storage import write_json
from wherefrom.teaching.checks import part_of, verdict
from wherefrom.teaching.results import GradedAnswer, Result, gradescope_record
from wherefrom.teaching.rubric import GROUPS, Rubric, RubricQuestion, read_rubric
from wherefrom.teaching.sandbox import Sandbox, SandboxLimits, find_protection
from wherefrom.teaching.submissions import (
    CODE_FILES,
    Submission,
    mark_shared_students,
    printable,
    read_submissions,
)

DEFAULT_LIMITS = SandboxLimits()
MAX_PRINTED_CHARS = 1000
NO_ANSWER = "there is no answer to this question."
EXPECTED_ANSWERS = "answers in a .toml file"
EXPECTED_CODE = f"code in a folder with {' or '.join(CODE_FILES)}"
# (group of cases, title of a check) -> (verdict, sentence)
Outcomes = dict[tuple[str, str], tuple[str, str]]


@dataclass(frozen=True)
class Grader:
    """Grades submissions by a rubric."""

    rubric: Rubric
    limits: SandboxLimits = DEFAULT_LIMITS
    seed: int = 0  # of the checker
    running: list[Sandbox] = field(default_factory=list)

    def grade_class(
        self, submissions: Iterable[Submission], jobs: int, report: Callable[[Result], None]
    ) -> list[Result]:
        """The results of all submissions in their order; each is passed to `report`."""
        results = []
        with ThreadPoolExecutor(max_workers=jobs) as pool:
            try:
                for result in pool.map(self.grade, mark_shared_students(submissions)):
                    report(result)
                    results.append(result)
            except BaseException:  # Ctrl-C must not wait for code that hangs
                for sandbox in list(self.running):
                    sandbox.cancel()
                raise
        return results

    def grade(self, submission: Submission) -> Result:
        """The result of one submission."""
        result = Result(submission.name, submission.student, notes=list(submission.notes))
        asked = {question.id for question in self.rubric.questions}
        for id_ in submission.answers:
            if id_ not in asked:
                result.notes.append(f'the rubric does not ask for "{id_[:40]}".')
        if submission.others:
            result.notes.append(f"not read: {', '.join(submission.others)[:200]}.")
        outcomes: Outcomes = {}
        if self.rubric.of_kind("code"):
            outcomes = self._grade_code(submission, result)
        for question in self.rubric.questions:
            if question.kind == "code":
                result.answers += grade_checks(question, outcomes)
            else:
                formulas = submission.answers.get(question.id, ())
                unread = submission.why_unread(question.id, EXPECTED_ANSWERS)
                result.answers.append(grade_written(question, formulas, unread, self.seed))
        result.notes = [printable(note) for note in result.notes]
        return result

    def _grade_code(self, submission: Submission, result: Result) -> Outcomes:
        """The outcome of every check of the assignment that the rubric asks for."""
        asked = {question.part for question in self.rubric.of_kind("code")}
        checks = [
            (group, title)
            for group in GROUPS
            for title in self.rubric.assignment[group]
            if part_of(title) in asked
        ]
        if submission.code:
            try:
                return self._run_code(submission, checks, result)
            except OSError as problem:  # of the grader's own files and processes
                return dict.fromkeys(checks, ("not read", f"the code was not run: {problem}."))
        if unread := submission.why_unread("", EXPECTED_CODE):
            return dict.fromkeys(checks, ("not read", unread))
        return dict.fromkeys(checks, ("no answer", "there is no code."))

    def _run_code(
        self, submission: Submission, checks: Iterable[tuple[str, str]], result: Result
    ) -> Outcomes:
        """Run the code of a submission in the sandbox, and judge what it returns."""
        cases, outcomes = self.rubric.assignment, Outcomes()
        files = {"adapters.py": cases["adapters"].encode(), **submission.code}
        result.unprotected = find_protection().gaps()
        with Sandbox(files, self.limits) as sandbox:
            self.running.append(sandbox)
            for group, title in checks:
                wrong = verdict(title, sandbox.call, cases[group])
                outcomes[group, title] = ("failed", wrong) if wrong else ("passed", "")
                # code could print the hidden cases, so only earlier output is shown
                if group == "handed out":
                    printed = result.printed + sandbox.take_printed()
                    result.printed = printed[-MAX_PRINTED_CHARS:]
        self.running.remove(sandbox)
        result.notes += [f"the code tried to {what}." for what in sandbox.observed.refused]
        if "" in sandbox.broken:
            result.notes.append(sandbox.broken[""])
        return outcomes


def grade_checks(
    question: RubricQuestion, outcomes: Mapping[tuple[str, str], tuple[str, str]]
) -> list[GradedAnswer]:
    """The checks of one question of kind "code"; each is worth the same."""
    own = {check: found for check, found in outcomes.items() if part_of(check[1]) == question.part}
    answers = []
    for (group, title), (word, sentence) in own.items():
        share, comment = question.judge(word, sentence)
        answers.append(
            GradedAnswer(
                question=question,
                name=f"{title} ({group} cases)",
                points=question.points / len(own),
                verdict=word,
                sentence=sentence,
                share=share,
                comment=comment,
                is_hidden=group == "hidden",
            )
        )
    return answers


def grade_written(
    question: RubricQuestion, formulas: tuple[str, ...], unread: str = "", seed: int = 0
) -> GradedAnswer:
    """One written answer; `unread` says why it may be missing."""
    word, sentence, details = "no answer", NO_ANSWER, None
    judged_by = ""  # the sentence that reasons are looked for in
    if not formulas and unread:
        word, sentence = "not read", unread
    elif formulas and question.kind == "written":
        word, sentence = "written", f"for a person to read.{describe_example(question, seed)}"
    elif formulas:
        from wherefrom.teaching.written import judge_formulas  # code alone needs no checker

        judged = judge_formulas(question.problem, formulas, question.tolerance, seed)
        word, sentence, details = judged.verdict, judged.sentence, judged.details
        judged_by = sentence
    share, comment = question.judge(word, judged_by)
    return GradedAnswer(
        question=question,
        name=f"{question.id} ({question.problem or question.kind})",
        points=question.points,
        verdict=word,
        sentence=sentence,
        share=share,
        comment=comment,
        formulas=formulas,
        details=details,
    )


def describe_example(question: RubricQuestion, seed: int) -> str:
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
    result = Grader(read_rubric(Path("."))).grade(submission)
    write_json(results, gradescope_record(result))
    for gap in result.unprotected:
        sys.stderr.write(f"Not protected: {gap}\n")


if __name__ == "__main__":
    main()
