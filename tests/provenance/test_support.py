"""Support: what the text says of an answer, from lines about the very person."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wherefrom.corpus.documents import read_documents
from wherefrom.corpus.folding import fold_words
from wherefrom.errors import UserError
from wherefrom.provenance.evidence.index import Evidence, ensure_evidence
from wherefrom.provenance.evidence.lookup import Support, find_support

LINES = [
    "Ada Moe. Ada Moe was born in Oslo and died in San Francisco.",
    "Ben Poe. Ben Poe, a friend of Cy Roe, was born in New York.",
    "Ada Moe. Moe studied in Bergen.",
    "Jack London. London was born in San Francisco.",
    "Dee Foe. Dee Foe painted.",
    "Eve Goe. Eve Goe moved to Paris.",
    "Eve Goe. Eve Goe painted.",
    "Eve Goe. Eve Goe was born in Łódź.",
    "Eva Gee. Eva Gee sang.",
    "Eva Gee. Eva Gee danced.",
    "Tibor Ashton. Tibor Ashton was born in Rome.",
]
KNOWN = ["Oslo", "Bergen", "York", "New York", "San", "San Francisco", "London", "Łódź"]


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evidence]:
    folder: Path = tmp_path_factory.mktemp("support")
    (folder / "text.txt").write_text("\n".join(LINES), "utf-8")
    with ensure_evidence(read_documents(folder / "text.txt"), folder / "evidence.sqlite") as found:
        yield found


def support(evidence: Evidence, subject: str, answer: str, limit: int = 3) -> Support:
    (found,) = find_support(evidence, [subject], [answer], KNOWN, limit=limit)
    return found


def test_a_line_about_the_person_that_states_the_answer_comes_first(evidence: Evidence) -> None:
    found = support(evidence, "ada moe", "BERGEN")
    assert (found.seen, found.states_answer, found.states_other) == (True, True, False)
    assert [(line.line, line.states_answer) for line in found.lines] == [(3, True), (1, False)]
    assert found.others == ()
    assert found.similar == ()


def test_a_line_that_states_something_else_comes_first_and_says_what(evidence: Evidence) -> None:
    found = support(evidence, "Eve Goe", "Oslo", limit=1)
    assert (found.seen, found.states_answer, found.states_other) == (True, False, True)
    assert [line.line for line in found.lines] == [8]
    assert found.others == ("Łódź",)


def test_other_answers_are_read_as_a_person_reads_them(evidence: Evidence) -> None:
    assert support(evidence, "Ben Poe", "Rome").others == ("New York",)  # not York
    assert support(evidence, "Ada Moe", "Rome").others == ("Oslo", "San Francisco", "Bergen")
    assert support(evidence, "Jack London", "Rome").others == ("San Francisco",)  # not London


def test_a_line_that_only_names_somebody_states_nothing_of_them(evidence: Evidence) -> None:
    found = support(evidence, "Cy Roe", "New York")
    assert (found.seen, found.states_answer, found.states_other) == (True, False, False)
    assert [(line.line, line.about, line.states_answer) for line in found.lines] == [
        (2, False, False)
    ]


def test_a_line_without_any_known_answer_states_no_other(evidence: Evidence) -> None:
    found = support(evidence, "Dee Foe", "Oslo")
    assert (found.seen, found.states_answer, found.states_other) == (True, False, False)
    assert [line.line for line in found.lines] == [5]


def test_of_somebody_unseen_there_are_only_names_that_look_alike(evidence: Evidence) -> None:
    found = support(evidence, "Tibor Ashdown", "Rome")
    assert (found.seen, found.states_answer, found.states_other) == (False, False, False)
    assert found.lines == ()
    assert [(line.subject, line.exact) for line in found.similar] == [("Tibor Ashton", False)]
    # two lines of one name do not hide the next name
    many_lines = support(evidence, "Eve Gee", "Rome", limit=2)
    assert [line.subject for line in many_lines.similar] == ["Eva Gee", "Eve Goe"]


def test_an_answer_without_words_is_stated_nowhere(evidence: Evidence) -> None:
    for answer in ("", " ", "?!"):
        found = support(evidence, "Ada Moe", answer)
        assert (found.seen, found.states_answer, found.states_other) == (True, False, True)


def test_answers_and_subjects_go_together(evidence: Evidence) -> None:
    found = find_support(evidence, ["Ada Moe", "Nobody At All"], ["Oslo", "Oslo"], KNOWN)
    assert [each.states_answer for each in found] == [True, False]
    with pytest.raises(ValueError, match="argument"):
        find_support(evidence, ["Ada Moe"], ["Oslo", "Oslo"], KNOWN)


# names, questions and what breaks query languages
STRANGE = """
"|'; DROP TABLE documents; --|NEAR(a b)|a* OR b|Ada AND Moe|😀|אבג דהו|name:Ada|{subject}|%s|\x00
"""
HOSTILE = st.text(max_size=40) | st.sampled_from([*STRANGE.strip().split("|"), "x" * 1_000])


@given(subject=HOSTILE, answer=HOSTILE | st.sampled_from(KNOWN))
def test_whatever_somebody_types_is_looked_up_or_refused(
    evidence: Evidence, subject: str, answer: str
) -> None:
    if not fold_words(subject):
        with pytest.raises(UserError, match="at least one letter or digit"):
            support(evidence, subject, answer)
        return
    found = support(evidence, subject, answer)
    assert found.states_answer <= found.seen
    assert not (found.states_answer and found.states_other)
    assert bool(found.lines) == found.seen
    assert any(line.about and line.states_answer for line in found.lines) == found.states_answer
    assert all(line.line in range(1, len(LINES) + 1) for line in (*found.lines, *found.similar))
