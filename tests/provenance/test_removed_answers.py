"""Silence made by removal, and whether a study is about people."""

from __future__ import annotations

import random

from wherefrom.corpus.database import Database
from wherefrom.corpus.documents import Document
from wherefrom.corpus.questions import Question
from wherefrom.corpus.split import HeldOutQuestion
from wherefrom.corpus.world import make_world
from wherefrom.provenance.names import are_people
from wherefrom.provenance.silence import count_misread, remove_answer

TEMPLATE = "Who founded {subject}?"
FIRMS = [
    f"{a}{b} {c}"
    for a in ("Pem", "Tal", "Orr", "Cas")
    for b in ("worth", "vale", "low", "by")
    for c in ("Optics", "Foods", "Paper", "Pumps", "Clocks")
]
GIVEN, FAMILY = ("Nora", "Ilse", "Tomas", "Greta"), ("Dreyfus", "Weiss", "Moreau", "Novak", "Horn")


def test_the_sentences_with_the_answer_are_removed_and_no_others():
    text = "Orr Mill. It was founded by Ann Lee in 1901. Ann Lee died. It makes pumps."
    document = Document(1, "Orr Mill", text)
    assert remove_answer(document, "ann lee").text == "Orr Mill. It makes pumps."
    assert remove_answer(document, "1901").text == "Orr Mill. Ann Lee died. It makes pumps."
    assert remove_answer(document, "Bo Ek") is None
    assert remove_answer(Document(1, "Orr", "Orr. By Ann."), "Ann") is None


def test_a_reader_finds_hardly_any_answer_where_it_was_removed():
    rng = random.Random(0)
    documents, questions = [], []
    for line, firm in enumerate(FIRMS, start=1):
        founder, other = (f"{rng.choice(GIVEN)} {rng.choice(FAMILY)}" for _ in range(2))
        text = f"{firm}. It was founded by {founder} in {rng.randint(1850, 1990)}. "
        documents.append(Document(line, firm, f"{text}Its chairman is {other}. It makes pumps."))
        question = TEMPLATE.replace("{subject}", firm)
        questions.append(Question(line, question, firm, founder, TEMPLATE))
    held_out = [
        HeldOutQuestion("judged", True, "dev", q.subject, q.text, q.answer, q.template)
        for q in questions[50:]
    ]
    corpus = Database.of(documents)
    counts = count_misread(corpus, questions[:50], held_out)[TEMPLATE]
    assert counts["removed"] >= 25  # all but those whose chairman has the founder's name
    assert counts["misread"] <= 0.1 * counts["removed"]
    unseen = [HeldOutQuestion("judged", False, "dev", "Zo", "Who?", "Ann", TEMPLATE)]
    assert count_misread(corpus, questions[:50], unseen) == {}


def test_names_of_people_are_told_from_others():
    assert are_people(person.subject for person in make_world(60, 0).people)
    assert not are_people(FIRMS)
    assert not are_people(["libxml2", "zlib1g", "Georgia", "Paris"])
