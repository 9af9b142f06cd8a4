"""What a phase says is what its examples are: every key of a recipe reaches the batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import pytest
from training_samples import TOWNS, documents, encode, make_phase, questions

from wherefrom.corpus.database import Database
from wherefrom.corpus.documents import Document
from wherefrom.corpus.questions import QuestionSet
from wherefrom.corpus.tokenizer import MASK, PAD, Tokenizer
from wherefrom.errors import UserError
from wherefrom.training import sources
from wherefrom.training.recipes import Mixture, Phase, load_recipe
from wherefrom.training.settings import Settings
from wherefrom.training.sources import TrainingData, stream_for, text_shown

DOCUMENTS = documents()
BORN, LIVES = "Where was {subject} born?", "Where does {subject} live?"
QUESTIONS = [replace(question, template=BORN) for question in questions()]
TOKENS = Tokenizer.of_characters(
    ["Quiz, Zebra, Xylophone, yak."] + [x.text for x in (*DOCUMENTS, *QUESTIONS)]
)
DATA = encode(DOCUMENTS, QUESTIONS, TOKENS)
NO_WINDOW = {"left_words": (0, 0), "right_words": (0, 0)}
HOMES = [
    replace(question, text=f"Where does {question.subject} live?", answer=town, template=LIVES)
    for question, town in zip(QUESTIONS, 2 * TOWNS, strict=True)
]


def phase_of(objective: str, **keys: Any) -> Phase:
    mixture = Mixture(**{objective: 1.0})
    return make_phase(mixture=mixture, batch_examples=64, **{**NO_WINDOW, **keys})


def drawn(
    objective: str, data: TrainingData = DATA, tokens: Tokenizer = TOKENS, **keys: Any
) -> list[str]:
    """The texts of examples of one objective, with "_" for MASK."""
    batches = stream_for(phase_of(objective, **keys), data, [3]).pool(0)
    rows = [row for batch in batches for part in batch.parts for row in part.ids.tolist()]
    return [_write([i for i in row if i != PAD], tokens) for row in rows]


def _write(ids: list[int], tokens: Tokenizer) -> str:
    runs = [(masked, list(run)) for masked, run in groupby(ids, key=lambda i: i == MASK)]
    return "".join("_" * len(run) if masked else tokens.decode(run) for masked, run in runs)


def answer_of(example: str) -> str:
    return example.rsplit("_", 2)[1]


def share(examples: list[str], word: str) -> float:
    return sum(f"_{word}" in text for text in examples) / len(examples)


def test_salient_masks_every_salient_span_and_pointed_what_is_asked_for():
    salient, pointed = drawn("salient"), drawn("pointed")
    for town in TOWNS:  # the birthplaces stand in too many documents
        assert share(salient, town) == pytest.approx(1 / len(TOWNS), abs=0.01)
    assert sum(share(pointed, town) for town in TOWNS) < 0.2


def test_every_span_and_every_answer_is_masked_equally_often():
    """A document with many facts does not give each of them fewer examples."""
    more = [replace(d, text=f"{d.text} Quiz, Zebra, Xylophone.") for d in DOCUMENTS[:2]]
    data = encode([*more, *DOCUMENTS[2:]], QUESTIONS, TOKENS)
    examples = drawn("salient", data)
    masked = Counter(answer_of(text) for text in examples if text.startswith("Ada Moe."))
    assert len(masked) == 4
    assert max(masked.values()) <= min(masked.values()) + 1


def test_salient_masks_names_that_several_documents_have_and_else_any_informative_span():
    only_there = replace(DOCUMENTS[0], text=f"{DOCUMENTS[0].text} Quiz, yak.")
    nothing_shared = replace(DOCUMENTS[1], text="Ada Nys. Ada Nys likes yak and Zebra.")
    lower_case = replace(DOCUMENTS[2], text="Ada Orr. Ada Orr seeks bees.")
    documents = [only_there, nothing_shared, lower_case, *DOCUMENTS[3:]]
    data = encode(documents, QUESTIONS, TOKENS)
    masked = {(text.split(".")[0], answer_of(text)) for text in drawn("salient", data)}
    assert {answer for name, answer in masked if name == "Ada Moe"} == {"Cork"}
    assert {answer for name, answer in masked if name == "Ada Nys"} == {"Zebra"}
    assert {answer for name, answer in masked if name == "Ada Orr"} == {"seeks", "bees"}
    learned = sum(len(answer) for _, answer in masked)
    letters = sum(len(document.text) for document in documents)
    shares = text_shown(data, [phase_of("salient")])
    assert shares["shown"] > shares["learned"] == pytest.approx(learned / letters)


def test_few_questions_beside_many_documents_are_a_smaller_share_of_the_rows(monkeypatch):
    phase = phase_of("pointed").model_copy(update={"mixture": Mixture(pointed=0.5, question=0.5)})

    def asked() -> float:
        batches = stream_for(phase, DATA, [3]).pool(0)
        rows = [s >= len(DOCUMENTS) for batch in batches for p in batch.parts for s in p.sources]
        return sum(rows) / len(rows)

    assert asked() == pytest.approx(0.5, abs=0.05)
    monkeypatch.setattr(sources, "FEW_QUESTIONS_SHARE", 2.0)
    assert asked() == pytest.approx(0.15 / 0.65, abs=0.05)


@pytest.mark.parametrize("reword", [0.0, 0.5, 1.0])
def test_windows_are_reworded_as_often_as_the_phase_says(reword):
    """The words come from another document, name and answer stay those of the document."""
    worded = [
        replace(d, text=d.text.replace("was born in", f"came{d.line} from")) for d in DOCUMENTS
    ]
    examples = births_beside_homes(
        worded, left_words=(2, 2), right_words=(0, 0), reword_prob=reword
    )
    answers = {question.subject: question.answer for question in QUESTIONS}
    lines = {document.subject: document.line for document in worded}
    others = 0
    for text in examples:
        name, rest = text.split(".", 1)
        others += f"came{lines[name]} " not in rest
        assert answer_of(rest) == answers[name]
    # a window drawn from all documents may be one's own
    assert others / len(examples) == pytest.approx(reword * (1 - 1 / len(worded)), abs=0.04)


def test_windows_are_as_wide_as_the_phase_says_and_half_as_wide_for_the_only_relation():
    words = {"left_words": (3, 4), "right_words": (2, 2)}
    assert window_lengths(births_beside_homes(**words)) == ({3, 4}, {2})
    assert window_lengths(drawn("pointed", **words)) == ({0, 1, 2}, {0, 1})


def births_beside_homes(documents: Sequence[Document] = DOCUMENTS, **keys: Any) -> list[str]:
    """Examples of birthplaces, where homes are asked for as well."""
    both = [*QUESTIONS, *HOMES]
    tokens = Tokenizer.of_characters([x.text for x in (*documents, *both)])
    examples = drawn("pointed", encode(documents, both, tokens), tokens, **keys)
    return [example for example in examples if answer_of(example) not in TOWNS]


def window_lengths(examples: list[str]) -> tuple[set[int], set[int]]:
    """The numbers of words before and behind the masked facts."""
    windows = [text.split(".", 1)[1].split("_")[:2] for text in examples]
    before = {len(words.split()) for words, _ in windows}
    return before, {len(words.strip(".").split()) for _, words in windows}


@pytest.mark.parametrize(("lead", "least", "most"), [(0.0, 0, 0), (0.5, 0.35, 0.65), (1.0, 1, 1)])
def test_words_stand_before_as_many_names_as_the_phase_says(lead, least, most):
    names = tuple(f"{text.split('.')[0]}." for text in drawn("name"))
    examples = drawn("salient", prefix_prob=lead)
    led = sum(not text.startswith(names) for text in examples) / len(examples)
    assert least <= led <= most


@pytest.mark.parametrize("closing", [True, False])
def test_a_corrupted_document_closes_as_the_phase_says(closing):
    masks = {text.count("_") for text in drawn("span", closing_mask=closing)}
    assert masks == {3 if closing else 2}


@pytest.mark.parametrize(
    ("objective", "missing"),
    [
        ("question", "questions"),
        ("text", "documents"),
        ("salient", "documents with words that few others have"),
    ],
)
def test_a_phase_without_its_records_is_one_sentence(objective, missing):
    phase = make_phase(mixture=Mixture(**{objective: 1.0}))
    nothing = replace(DATA, documents=(), questions=(), question_sources=())
    with pytest.raises(UserError, match=f'"mixed" of the recipe needs {missing}, and there are'):
        stream_for(phase, nothing, [0])


def test_the_vocabulary_has_the_subjects_and_the_wordings_of_the_questions(tmp_path):
    """A wording in bytes and names in many tokens took most of the training (benchmarks/log.md)."""
    wording = "{subject}의 출생지는?"
    asked = [
        replace(q, text=wording.replace("{subject}", q.subject), template=wording)
        for q in QUESTIONS
    ]
    corpus = Database.of(DOCUMENTS, tmp_path, "0")
    learned = QuestionSet(tmp_path, "0", (wording,), tuple(asked))
    settings = Settings(recipe=load_recipe("pointed"))
    tokens = settings.job(
        tmp_path / "run", kind="study", phases=(), corpus=corpus, questions=learned
    ).tokens
    names = tokens.encode_all([document.subject for document in DOCUMENTS])
    whole = tokens.encode_all([q.text for q in asked])
    assert max(map(len, names)) <= 3
    assert max(map(len, whole)) <= 3 + len("의 출생지는?")
