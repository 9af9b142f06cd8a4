"""Support: what the text says of an answer, from lines about the very subject."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wherefrom.corpus.documents import read_documents
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import Question
from wherefrom.errors import UserError
from wherefrom.provenance.evidence import Evidence, Support, ensure_evidence, find_support

LINES = [
    "Ada Moe. Ada Moe was born in Oslo and died in San Francisco.",
    "Ben Poe. Ben Poe, a friend of Cy Roe, was born in New York.",
    "Ada Moe. Moe studied in Bergen.",
    "Jack London. London was born in San Francisco.",
    "Dee Foe. Dee Foe painted.",
    "Eve Goe. Eve Goe moved to Paris.",
    "Eve Goe. Eve Goe painted.",
    "Eve Goe. Eve Goe was born in Łódź.",
    "Tibor Ashton. Tibor Ashton was born in Rome.",
    "Tibor Ashton. Tibor Ashton sang.",
    "Tabor Aston. Tabor Aston danced.",
]
KNOWN = ["Oslo", "Bergen", "York", "New York", "San", "San Francisco", "London", "Łódź"]


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evidence]:
    folder: Path = tmp_path_factory.mktemp("support")
    (folder / "text.txt").write_text("\n".join(LINES), "utf-8")
    with ensure_evidence(read_documents(folder / "text.txt"), folder / "evidence.sqlite") as found:
        yield found


def support(evidence: Evidence, subject: str, answer: str) -> Support:
    (found,) = find_support(evidence, [subject], [answer], KNOWN)
    return found


@pytest.mark.parametrize(
    ("subject", "answer", "flags", "lines", "others"),
    [
        ("ada moe", "BERGEN", (True, True, False), [3, 1], ("Oslo", "San Francisco")),
        ("Ada Moe", "Rome", (True, False, True), [1, 3], ("Oslo", "San Francisco", "Bergen")),
        ("Ada Moe", "?!", (True, False, True), [1, 3], ("Oslo", "San Francisco", "Bergen")),
        ("Eve Goe", "Oslo", (True, False, True), [8, 6, 7], ("Łódź",)),  # what states comes first
        ("Ben Poe", "Rome", (True, False, True), [2], ("New York",)),  # not York
        ("Jack London", "Rome", (True, False, True), [4], ("San Francisco",)),  # not London
        ("Cy Roe", "New York", (True, False, False), [2], ()),  # a line that only names states none
        ("Dee Foe", "Oslo", (True, False, False), [5], ()),
        ("Tibor Ashdown", "Rome", (False, False, False), [], ()),
    ],
)
def test_support(
    evidence: Evidence,
    subject: str,
    answer: str,
    flags: tuple[bool, ...],
    lines: list[int],
    others: tuple[str, ...],
) -> None:
    found = support(evidence, subject, answer)
    assert (found.seen, found.states_answer, found.states_other) == flags
    assert [line.line for line in found.lines] == lines
    assert [line.line for line in found.lines if line.states_answer] == lines[: flags[1]]
    assert found.others == others
    assert bool(found.similar) == (not found.seen)


def test_two_lines_of_one_similar_name_do_not_hide_the_next_name(evidence: Evidence) -> None:
    similar = support(evidence, "Tibor Ashdown", "Rome").similar
    assert [line.subject for line in similar] == ["Tibor Ashton", "Tabor Aston"]
    assert not any(line.names_subject for line in similar)


# names, questions and what breaks query languages
STRANGE = """
"|'; DROP TABLE documents; --|NEAR(a b)|a* OR b|Ada AND Moe|😀|אבג דהו|name:Ada|{subject}|%s|\x00
"""
HOSTILE = st.text(max_size=40) | st.sampled_from([*STRANGE.strip().split("|"), "x" * 1_000])


@given(subject=HOSTILE, answer=HOSTILE | st.sampled_from(KNOWN))
def test_any_text_is_looked_up_or_refused(evidence: Evidence, subject: str, answer: str) -> None:
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


def test_what_was_read_for_the_relation_decides_and_other_words_of_the_line_state_nothing(
    tmp_path: Path,
) -> None:
    """Other words of the line, and numbers where answers are words, are not the stated answer."""
    places = ("Oslo", "Rome", "Lima", "Kyiv", "Bonn")
    names = [f"{a} {b}" for a in ("Ada", "Bo", "Cy", "Di", "Ed", "Flo") for b in ("Ek", "Fu", "Gi")]
    born = {name: places[at % 5] for at, name in enumerate(names)}
    lines = [
        f"{name}. {name} was born in {born[name]} in {1850 + at} and died in {places[at % 3]}.\n"
        for at, name in enumerate(names)
    ]
    (tmp_path / "text.txt").write_text("".join(lines), "utf-8")
    template = "Where was {subject} born?"
    questions = [
        Question(at, template.replace("{subject}", name), name, born[name], template)
        for at, name in enumerate(names[:12])
    ]
    corpus = read_documents(tmp_path / "text.txt")
    with ensure_evidence(corpus, tmp_path / "evidence.sqlite", questions) as evidence:
        for at, name in enumerate(names):
            said = [born[name], str(1850 + at), "born", "Paris"]
            found = find_support(evidence, [name] * 4, said, places, templates=[template] * 4)
            assert [one.states_answer for one in found] == [True, False, False, False], name
            assert [one.of_kind for one in found] == [True, False, True, True]
            assert found[0].probability > 0.5
            assert [line.states_answer for line in found[0].lines] == [True]
            assert found[3].states_other
            assert found[3].others[0] == born[name]
        # by its words alone any word of the line is stated, and so it is for another relation
        (word,) = find_support(evidence, names[:1], ["born"], places)
        assert word.states_answer
        assert evidence.readings(names[0], "Where did {subject} die?") is None
    with ensure_evidence(corpus, tmp_path / "evidence.sqlite", questions[:-1]) as again:
        assert again.readings(names[0], template)
