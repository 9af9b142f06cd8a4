"""What the documents state: which span of a text answers which kind of question.

A relation is a kind of question, given by its template ("Where was {subject} born?"). For each
relation a reader (corpus/reader.py) is trained on the questions whose answer stands in a document
about their subject. It then reads every document, and what it finds is written to the table `facts`
of the database. It works in any language, with or without capitals.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from wherefrom.corpus.database import AskedRelation, Database, ExtractedAnswer
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import Question, question_rows
from wherefrom.corpus.reader import MIN_LABELS, MIN_PROBABILITY, RelationReader
from wherefrom.corpus.spans import SAMPLED_DOCUMENTS, Spans, batch_by_size, learn_rules
from wherefrom.storage import digest_of

# a template of so few questions may be another wording of a relation,
MIN_REWORDED_QUESTIONS, MAX_REWORDED_QUESTIONS = 3, 50
MIN_REWORDED_SHARE = 0.8  # if the relation's reader answers this share of them rightly
MIN_DOCUMENT_WEIGHT = 0.25  # of the weightiest document, below which another states nothing
MIN_SHARE_OF_DOCUMENT = 0.2  # of a document's weight, from which on it states an answer
READ_CHARACTERS = 50_000  # of text that is read at once


def read_facts(database: Database, questions: Sequence[Question]) -> Database:
    """Write the relations of the questions and what the documents state for each of them.

    Returns the database; if it is a saved one with the facts of other questions, a new one.
    """
    digest = digest_of(question_rows(questions)) or ""
    if database.about.get("questions_sha256") == digest:
        return database
    if database.file is not None:
        database = database.select(lambda document: True)
    database.start_facts(digest)
    by_template: dict[str, list[Question]] = defaultdict(list)
    expected: dict[int, set[str]] = defaultdict(set)  # the answers that a document should state
    for question in questions:
        if question.answer is not None:
            by_template[question.template].append(question)
            for doc in database.documents_about(fold_words(question.subject)):
                expected[doc].update(() if question.is_silent else (question.answer,))
    documents = database.documents
    sample = [
        documents[i] for i in range(0, len(documents), 1 + len(documents) // SAMPLED_DOCUMENTS)
    ]
    rules = learn_rules([(documents[doc], answers) for doc, answers in expected.items()], sample)
    relations, readers = [], []
    known = {database.subject_of(doc) for doc in expected}
    for relation_id, (template, asked) in enumerate(by_template.items(), start=1):
        reader = RelationReader(relation_id, database, rules, asked, known)
        answers = [question.answer or "" for question in asked if not question.is_silent]
        missing = tuple(reader.labels.missing)
        found = len(answers) - len(missing)
        if found >= MIN_LABELS:
            reader.train()
            readers.append(reader)
        kind, check = kind_of(answers), reader.check
        relations.append(
            AskedRelation(template, len(answers), found, missing, kind=kind, check=check)
        )
    # all documents about a subject are read together
    parts = batch_by_size(
        database.by_subject(),
        lambda subject: sum(len(document.text) for _, document in subject[1]),
        READ_CHARACTERS,
    )
    for part in parts if readers else ():
        spans = Spans.about(part, rules)
        for reader in readers:
            database.add_facts(reader.read(spans))
    for relation_id, relation in enumerate(relations, start=1):
        database.add_relation(relation_id, relation)
    same = [_find_same(r, by_template[r.template], relations, database) for r in relations]
    for relation_id, other in enumerate(same, start=1):
        if other:
            database.set_same(relation_id, 1 + relations.index(other))
    return database


def kind_of(answers: Sequence[str]) -> str:
    """ "numbers" if each answer has digits and no letters, "words" if none is so, else "mixed"."""
    numbers = sum(
        any(c.isdigit() for c in answer) and not any(c.isalpha() for c in answer)
        for answer in answers
    )
    return {0: "words", len(answers): "numbers"}.get(numbers, "mixed")


def is_stated(answers: Sequence[ExtractedAnswer]) -> bool:
    """Whether documents about a subject are more likely to state an answer than to be silent."""
    return sum(answer.probability for answer in answers) >= MIN_PROBABILITY


def stating_documents(answers: Sequence[ExtractedAnswer]) -> list[list[int]]:
    """For each answer about a subject the documents that state it, the surest first.

    A document weighs what its facts weigh together. It states an answer that has a fair share of
    its weight, if it does not weigh much less than another document.
    """
    if not all(answer.chances for answer in answers):  # found by their words alone
        return [list(dict.fromkeys(span[0] for span in answer.spans)) for answer in answers]
    shares: list[dict[int, float]] = []
    weights: dict[int, float] = defaultdict(float)
    for answer in answers:
        share: dict[int, float] = defaultdict(float)
        for (document, _, _), chance in zip(answer.spans, answer.chances, strict=True):
            share[document] += chance
            weights[document] += chance
        shares.append(share)
    least = MIN_DOCUMENT_WEIGHT * max(weights.values(), default=0)
    return [
        [
            document
            for document, chance in sorted(share.items(), key=lambda item: -item[1])
            if chance >= MIN_SHARE_OF_DOCUMENT * weights[document] and weights[document] >= least
        ]
        for share in shares
    ]


def _find_same(
    relation: AskedRelation,
    questions: Sequence[Question],
    others: Sequence[AskedRelation],
    database: Database,
) -> AskedRelation | None:
    """For a template of few questions, another relation whose facts answer them: a few examples
    show that both ask for the same."""
    if not MIN_REWORDED_QUESTIONS <= len(questions) < MAX_REWORDED_QUESTIONS:
        return None
    for other in sorted(others, key=lambda other: -other.asked):
        right = 0
        for question in questions:
            answers = database.extracted(other.template, fold_words(question.subject))
            right += bool(answers) and answers[0].text == question.answer
        if other.asked > relation.asked and right >= MIN_REWORDED_SHARE * len(questions):
            return other
    return None
