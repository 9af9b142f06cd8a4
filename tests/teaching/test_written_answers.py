"""Written answers: files as students write them, the rubric's last word, and nobody left out."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import re
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wherefrom.errors import UserError
from wherefrom.teaching import written
from wherefrom.teaching.grading import Grader, grade_written
from wherefrom.teaching.results import (
    Result,
    class_table,
    gradescope_record,
    result_names,
    to_csv,
    unique_names,
    write_results,
)
from wherefrom.teaching.rubric import parse_rubric, parse_toml, read_rubric
from wherefrom.teaching.submissions import passed_over, read_submissions

ASKED = "[[answer]]\nid='1'\nproblem='copy'\n"


def grade_folder(folder, rubric=ASKED, **options):
    """Submission -> its result."""
    submissions = read_submissions(folder, **options)
    results = Grader(parse_rubric(rubric, None)).grade_class(
        submissions, jobs=1, report=lambda result: None
    )
    return {result.submission: result for result in results}


def grade_text(folder, text, rubric=ASKED):
    """The result of one file with this text."""
    (folder / "s.toml").write_text(text, "utf-8")
    return grade_folder(folder / "s.toml", rubric)["s.toml"]


def words(result):
    return [answer.verdict for answer in result.answers]


# ---- the rubric


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no"),
        ("[[answers]]\nid='x'", "only title"),
        ("[[answer]\n", "not valid TOML"),
        ("[[answer]]\nproblem='copy'", "id is wrong"),
        ("[[answer]]\nid='1'", "needs problem"),
        ("[[answer]]\nid='1'\nproblem='coppy'", 'Did you mean "copy"'),
        (ASKED + "points=nan", "points is wrong"),
        (ASKED + "pionts=3", 'Did you mean "points"'),
        (ASKED + "credit={refutted=0.5}", 'Did you mean "refuted"'),
        (ASKED + "credit={refuted=2}", "credit.refuted is wrong"),
        (ASKED + "reasons=[{contians='x'}]", "reasons"),
        (ASKED * 2, "two answers"),
        (ASKED * 501, "500 are allowed"),
        ("[[answer]]\nid='rotarry'\nkind='code'", 'Did you mean "rotary"'),
    ],
)
def test_a_mistake_in_a_rubric_is_a_sentence(text, says, tmp_path):
    (tmp_path / "rubric.toml").write_text(text, "utf-8")
    with pytest.raises(UserError, match=re.escape(says)) as error:
        read_rubric(tmp_path)
    assert str(error.value).startswith(str(tmp_path))


def test_reasons_may_be_tables_of_their_own(tmp_path):
    """[[answer.reasons]] was refused: files were cut at [[answer]] before TOML was read."""
    rubric = (
        "[[answer]]\nid='1'\nproblem='copy'\npoints=4\n"
        "[[answer.reasons]]\ncontains='no such words'\ncredit=1\n"
        "[[answer.reasons]]\ncontains='nothing in the formula grows'\ncredit=0.5\ncomment='How?'\n"
        "[[answer]]\nid='2'\nproblem='copy'\npoints=4\n"
    )
    answers = "[[answer]]\nid='1'\nq='k_j'\n[[answer]]\nid='2'\nq='k_j'\n"
    result = grade_text(tmp_path, answers, rubric)
    assert [answer.score for answer in result.answers] == [2.0, 0.0]
    assert [answer.comment for answer in result.answers] == ["How?", ""]


def test_credit_goes_by_verdict():
    rubric = parse_rubric(ASKED + "points=8\ncredit={proved=0.5, refuted=0.25}\n", None)
    (question,) = rubric.questions
    for formula, score in (("q=beta*k_j", 4), ("q=k_j", 2), ("q=nonsense(", 0), ("", 0)):
        formulas = (formula,) if formula else ()
        assert grade_written(question, formulas).score == score


# ---- files of answers


@pytest.mark.parametrize(
    ("text", "formula"),
    [
        (r'M = "A A^\\top"', r"M=A A^\top"),  # valid TOML, which was doubled again and refused
        (r'M = "A A^\top"', r"M=A A^\top"),  # valid TOML, too: with a tab
        (r"M = 'A A^\top'", r"M=A A^\top"),
        (r'answer = "$M = \mu A$"', r"$M = \mu A$"),  # not valid: repaired
        (r'answer = "$q_1 = \beta\mu_a$, A^\\top"', r"$q_1 = \beta\mu_a$, A^\top"),
        (r'q = "\beta k_j"', r"q=\beta k_j"),
        ('answer = """\nV = a(u_b,\nu_a, e)"""', "V = a(u_b,\nu_a, e)"),  # a line break, no ν
        (r'q = "\frac{1}{\nu}\rho\theta k_j"', r"q=\frac{1}{\nu}\rho\theta k_j"),
        ('answer = """\n\tq1 = beta\n\tq2 = beta"""', "\tq1 = beta\n\tq2 = beta"),
        ("answer = '''q = \\mu # not a comment'''  # it's one \\x", "q = \\mu # not a comment"),
    ],
)
def test_a_backslash_is_what_the_student_wrote(text, formula, tmp_path):
    (tmp_path / "s.toml").write_text(f'[[answer]]\nid = "1"\n{text}\n', "utf-8")
    (submission,) = read_submissions(tmp_path / "s.toml")
    assert submission.notes == []
    assert submission.answers == {"1": (formula,)}


@given(st.text(alphabet="\\abfnrtuop{}^_ AMμ=", max_size=30))
def test_latex_in_quotes_is_read_as_it_stands(text):
    text = text.replace("\\\\", "").rstrip("\\")  # each backslash stands alone
    for quote in ('"', "'", '"""'):
        assert parse_toml(f"x = {quote}{text}{quote}") == {"x": text}


@pytest.mark.parametrize(
    "text",
    [
        ".".join(["a"] * 110_000) + " = 1",  # this took hours
        "x = {" + ".".join(["a"] * 110_000) + " = 1}",
        ".".join(['"\u2028"'] * 25_000) + " = 1",
        "\n".join("a." * 190 + f"b{number} = 1" for number in range(600)),
        'x = """' + '\\"""' * 55_000,
        'x = "' + "\\n" * 110_000 + '"',
        "x = '''" + "''" * 110_000,
        "x = " + "[" * 225_000,
        "x = " + "9" * 225_000,
        "\n".join(f"[a.b{number}.c]" for number in range(15_000)),
    ],
    ids=lambda text: text[:20],
)
def test_a_hostile_file_is_read_or_refused_in_time(text):
    start = time.process_time()
    with contextlib.suppress(UserError):
        parse_toml(text)
    assert time.process_time() - start < 5


COURSE = """
[[answer]]
id = "1a"
problem = "extract"
points = 3
credit = { refuted = 0.25 }
reasons = [{ contains = "coordinates of v_a", credit = 0.5, comment = "Go on to d dimensions." }]
[[answer]]
id = "1b"
problem = "average"
points = 4
reasons = [{ contains = "nothing in the formula grows", credit = 0.5, comment = "How large?" }]
[[answer]]
id = "1c"
kind = "written"
problem = "stretched-average"
show = ["q=beta*(mu_a+mu_b)"]
points = 2
"""
GOOD = """
[[answer]]
id = "1a"
M = "A A^\\top"
[[answer]]
id = "1b"
answer = "$q = \\beta(k_a + k_b)$, where $0 \\ll \\beta$"
[[answer]]
id = "1c"
answer = "c varies between v_a and v_b from sample to sample."
"""
BROKEN = {
    "no-quote": GOOD.replace('M = "A A', "M = A A"),
    "bad-utf8": GOOD.encode() + b"\xff\xfe",
    "unknown-id": GOOD + '[[answer]]\nid = "7"\nM = "A"\n',
    "own-points": GOOD.replace('id = "1a"', 'id = "1a"\npoints = 1000'),
    "twice": GOOD + '[[answer]]\nid = "1a"\nM = "B"\n',
    "empty": "",
    "prose": "I think that the answer is A A^T.",
    "no-id": GOOD.replace('id = "1a"', ""),
    "not-a-string": GOOD.replace('"A A^\\top"', "7"),
    "half-a-file": GOOD[:60],
}
HOSTILE = {
    "escape": GOOD.replace("A A^\\top", "__import__('os').system('id')"),
    "deep": "x = " + "[" * 5000,
    "huge": GOOD + "#" * 1_100_000,
}


def test_a_class_of_two_hundred_with_broken_and_hostile_submissions(tmp_path):
    wrong = GOOD.replace("A A^\\top", "A^T").replace("\\beta(k_a", "(k_a")
    wrong = wrong.replace(", where $0 \\ll \\beta$", "")
    for i in range(187):
        (tmp_path / f"student{i:03}.toml").write_text(wrong if i % 3 else GOOD, "utf-8")
    for name, text in (BROKEN | HOSTILE).items():
        content = text if isinstance(text, bytes) else text.encode()
        (tmp_path / f"{name}.toml").write_bytes(content)
    os.symlink("/etc/passwd", tmp_path / "link.toml")
    start = time.process_time()
    graded = grade_folder(tmp_path, COURSE)
    assert time.process_time() - start < 20
    assert len(graded) == 201

    def points(student):
        return [answer.score for answer in graded[f"{student}.toml"].answers]

    assert points("student000") == [3.0, 4.0, 0.0]
    assert points("student001") == [1.5, 2.0, 0.0]  # partial credit by reason
    assert [answer.comment for answer in graded["student001.toml"].answers][:2] == [
        "Go on to d dimensions.",
        "How large?",
    ]
    prose = graded["student000.toml"].answers[2]
    assert (prose.verdict, prose.needs_review) == ("written", True)
    assert "c varies" in prose.formulas[0]
    assert "samples" in prose.sentence  # the checker's figures beside the prose
    assert "not valid TOML" in graded["no-quote.toml"].notes[0]
    assert points("own-points") == points("unknown-id") == points("twice") == [3.0, 4.0, 0.0]
    assert 'does not ask for "7"' in graded["unknown-id.toml"].notes[0]
    assert "two answers" in graded["twice.toml"].notes[0]
    for name in ("bad-utf8", "deep", "empty", "half-a-file", "huge", "link", "no-quote", "prose"):
        result = graded[f"{name}.toml"]
        assert result.score == 0
        assert result.notes, name
        assert words(result) == ["not read"] * 3, name
        assert gradescope_record(result)["output"].startswith("0 of 9 points.")
    for name in ("no-id", "not-a-string", "escape"):
        assert points(name) == [0.0, 4.0, 0.0], name
    rows = list(csv.DictReader(io.StringIO(to_csv(class_table(list(graded.values()))))))
    assert {row["student"]: row["total"] for row in rows}["student001"] == "3.5"
    assert {row["student"]: row["review"] for row in rows}["student000"] == "1c"


TWO = ASKED + ASKED.replace("'1'", "'2'")


def test_an_answer_without_an_id_may_be_any_of_them(tmp_path):
    result = grade_text(tmp_path, "[[answer]]\nid='1'\nq='beta*k_j'\n[[answer]]\nq='x'\n", TWO)
    assert words(result) == ["proved", "not read"]
    result = grade_text(tmp_path, "[[answer]]\nid='9'\nq='beta*k_j'\n", TWO)
    assert words(result) == ["no answer", "no answer"]
    assert result.notes == ['the rubric does not ask for "9".']


@pytest.mark.parametrize(
    "prose",
    [
        "The query should be beta times the sum of k_a and k_b",
        "I would pick the mean of k_a and k_b because then both keys score alike",
        "Take k_a plus k_b; multiplying it by something huge makes the softmax sharp: q = k_b",
    ],
)
def test_prose_is_for_review_and_never_refuted(prose, tmp_path):
    rubric = ASKED.replace("copy", "average")
    result = grade_text(tmp_path, f'[[answer]]\nid="1"\nanswer="{prose}"\n', rubric)
    assert words(result) == ["not read"]
    assert result.for_review() == ["1"]


def test_a_formula_with_a_few_words_is_still_refuted(tmp_path):
    rubric = ASKED.replace("copy", "average")
    answer = "q = k_a + k_b, where beta >> 0"
    assert words(grade_text(tmp_path, f'[[answer]]\nid="1"\nanswer="{answer}"\n', rubric)) == [
        "refuted"
    ]


def test_a_failure_of_the_checker_costs_one_answer(tmp_path, monkeypatch):
    def fail(problem, formulas, **_):
        raise ZeroDivisionError

    written.judge_formulas.cache_clear()
    monkeypatch.setattr(written, "check", fail)
    result = grade_text(tmp_path, "[[answer]]\nid='1'\nq='beta*k_j'\n", ASKED)
    written.judge_formulas.cache_clear()
    assert words(result) == ["not read"]
    assert "ZeroDivisionError" in result.answers[0].sentence


def test_a_person_is_asked_where_the_checker_is_not_sure(tmp_path, monkeypatch):
    unsure = replace(written.check("copy", ["q=beta*k_j"]), verdict="inconclusive")
    written.judge_formulas.cache_clear()
    monkeypatch.setattr(written, "check", lambda *a, **k: unsure)
    record = gradescope_record(grade_text(tmp_path, "[[answer]]\nid='1'\nq='beta*k_j'\n", ASKED))
    written.judge_formulas.cache_clear()
    assert "A person should look at: 1." in record["output"]
    assert [test["score"] for test in record["tests"]] == [0.0]
    assert "score" not in record  # a total at the top would override the sum of the tests


# ---- everybody has a result


def test_every_file_appears_and_none_overwrites_another(tmp_path):
    """s09.md vanished; "J Doe" and "J. Doe", or two files of a student, shared a result."""
    right, wrong = ("[[answer]]\nid='1'\nq='beta*k_j'\n", "[[answer]]\nid='1'\nq='k_j'\n")
    (tmp_path / "J Doe.toml").write_text(right)
    (tmp_path / "J. Doe.toml").write_text(wrong)
    (tmp_path / "first.toml").write_text("student='Ann'\n" + right)
    (tmp_path / "second.toml").write_text("student='Ann'\n" + wrong)
    (tmp_path / "ann").mkdir()
    (tmp_path / "ann" / "notes.txt").write_text("q = beta k_j")
    (tmp_path / "ANN.toml").write_text(right)
    (tmp_path / "s09.md").write_text("q = beta k_j")
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.toml").write_bytes(b"\xff")
    (tmp_path / ".DS_Store").write_bytes(b"")
    graded = grade_folder(tmp_path, ASKED)
    assert set(graded) == {
        *("J Doe.toml", "J. Doe.toml", "first.toml", "second.toml", "ann", "ANN.toml", "s09.md"),
        *("empty", "bad.toml"),
    }
    names = result_names(graded.values())
    assert len({name.casefold() for name in names}) == len(graded)
    assert all(re.fullmatch(r"[\w-]+", name) for name in names)
    totals = {name: result.score for name, result in graded.items()}
    assert (totals["J Doe.toml"], totals["J. Doe.toml"]) == (1, 0)
    assert (totals["first.toml"], totals["second.toml"]) == (1, 0)
    assert "second.toml" in graded["first.toml"].notes[0]
    for unread in ("s09.md", "ann", "bad.toml", "empty"):
        assert words(graded[unread]) == ["not read"], unread
        assert graded[unread].notes
    assert graded["s09.md"].student == "s09"
    rows = list(csv.reader(io.StringIO(to_csv(class_table(list(graded.values()))))))
    assert len(rows) == 1 + len(graded)


def test_odd_names_are_shown_safely_and_none_is_left_out(tmp_path):
    right = "[[answer]]\nid='1'\nq='beta*k_j'\n"
    long = "𝔘" * 60  # four bytes each
    names = ["\x1b[31mred\n.toml", ".hidden.toml", "__ann.TOML", f"{long}.toml", "=1+1.toml"]
    for name in names:
        (tmp_path / name).write_text(right)
    (tmp_path / os.fsdecode(b"\xff\xfe.toml")).write_text(right)
    (tmp_path / "evil.toml").write_text('student = "../../\\u001b[2Jetc"\n' + right)
    (tmp_path / "._ann.toml").write_bytes(b"\x00")
    (tmp_path / "__MACOSX").mkdir()
    assert passed_over(tmp_path) == ["._ann.toml", "__MACOSX"]
    graded = grade_folder(tmp_path, ASKED)
    assert len(graded) == len(names) + 2
    assert all(result.score == 1 for result in graded.values())
    assert all(result.student.isprintable() for result in graded.values())
    write_results(list(graded.values()), tmp_path / "out")
    assert len(list((tmp_path / "out").iterdir())) == len(graded) + 1  # and grades.csv


@given(st.lists(st.text(max_size=12), max_size=8))
def test_names_of_results_are_safe_and_unique(students):
    names = result_names([Result(student, student) for student in students])
    assert len({name.casefold() for name in names}) == len(students)
    assert not any("/" in name or name.startswith(".") for name in names)


def test_the_folder_of_one_student(tmp_path):
    (nothing,) = grade_folder(tmp_path, COURSE, of_one=True).values()
    assert "nothing was handed in" in nothing.notes[0]
    (tmp_path / "answers.toml").write_text(GOOD, "utf-8")
    (tmp_path / "notes.txt").write_text("I found 1b hard.", "utf-8")
    (tmp_path / "more.toml").write_text('[[answer]]\nid = "1a"\nM = "B"\n', "utf-8")
    (result,) = grade_folder(tmp_path, COURSE, of_one=True).values()
    assert [answer.score for answer in result.answers] == [3.0, 4.0, 0.0]
    assert "two answers" in result.notes[0]


def test_many_names_of_results_take_no_time():
    """Names that differ in signs alone were compared with all others."""
    start = time.process_time()
    assert len(set(unique_names(["!", "?"] * 10_000))) == 20_000
    assert time.process_time() - start < 5


def test_a_cell_that_a_spreadsheet_would_run_is_quoted(tmp_path):
    (tmp_path / "s.toml").write_text("student='=HYPERLINK(1)'\n" + ASKED, "utf-8")
    text = to_csv(class_table(list(grade_folder(tmp_path / "s.toml").values())))
    assert text.splitlines()[1].startswith("'=HYPERLINK")
