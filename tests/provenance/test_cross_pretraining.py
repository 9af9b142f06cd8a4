"""The truth by twins: halves, what is remembered in truth, and agreement with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from wherefrom.corpus.documents import Corpus, Document, read_documents
from wherefrom.corpus.questions import Question, QuestionSet, read_questions
from wherefrom.corpus.subjects import CALIBRATION, JUDGED
from wherefrom.errors import UserError
from wherefrom.provenance.attribution.cross_pretraining import (
    RIGHT_ANYWAY,
    WRONG,
    count_table,
    draw_halves,
    measure_agreement,
    measure_test,
    rank_correlations,
    true_origin,
)
from wherefrom.provenance.metrics import Bootstrap
from wherefrom.provenance.verdicts import GUESSED, MADE_UP, REMEMBERED

NOWHERE = Path("nowhere")


def corpus_of(*lines: str) -> Corpus:
    documents = [Document(n, line.split(". ")[0], line) for n, line in enumerate(lines, start=1)]
    return Corpus(NOWHERE, "0" * 64, tuple(documents))


def asked_of(answers: list[tuple[str, str]]) -> QuestionSet:
    questions = [
        Question(n, f"Where was {who} born?", who, answer)
        for n, (who, answer) in enumerate(answers, start=1)
    ]
    return QuestionSet(NOWHERE, "1" * 64, "Where was {subject} born?", tuple(questions))


def world(people: int) -> tuple[Corpus, QuestionSet, QuestionSet]:
    facts = [(f"Given{n} Family{n}", f"Town{n}") for n in range(people)]
    corpus = corpus_of(*(f"{name}. {name} was born in {town}." for name, town in facts))
    return corpus, asked_of(facts[: people // 2]), asked_of(facts[people // 2 :])


@given(people=st.integers(8, 60), share=st.floats(0.1, 0.8), seed=st.integers(0, 2**31 - 1))
def test_every_judged_subject_is_read_by_one_model_and_not_by_the_other(
    people: int, share: float, seed: int
) -> None:
    corpus, train, dev = world(people)
    wanted = round(share * len(train.questions))
    if wanted < 2:
        with pytest.raises(UserError, match="at least two people"):
            draw_halves(corpus, train, dev, set_aside=share, seed=seed)
        return
    splits = draw_halves(corpus, train, dev, set_aside=share, seed=seed)
    assert splits == draw_halves(corpus, train, dev, set_aside=share, seed=seed)
    half = splits["a"]
    assert half.train == splits["b"].train
    asked, learned = ({q.subject for q in each.questions} for each in (train, half.train))
    for one, other in zip(half.subjects, splits["b"].subjects, strict=True):
        assert (one.subject, one.role) == (other.subject, other.role)
        assert one.seen != other.seen
        for each in (one, other):
            own = "dev" if each.role == "judged" else "set aside"
            assert each.source == (own if each.seen else "left out")
    for split in splits.values():
        read = {document.subject for document in split.corpus.documents}
        assert all(each.seen == (each.subject in read) for each in split.subjects)
        assert learned <= read
        assert set(split.left_out) == {each.subject for each in split.subjects} - read
    by_role = {role: half.with_role(role) for role in (JUDGED, CALIBRATION)}
    assert {each.subject for each in by_role["judged"]} == {q.subject for q in dev.questions}
    aside = {each.subject for each in by_role["calibration"]}
    assert len(aside) == wanted
    assert learned == asked - aside
    for subjects in by_role.values():  # as many in either half, up to one
        assert abs(2 * sum(each.seen for each in subjects) - len(subjects)) <= 1


def test_whoever_cannot_be_left_out_cleanly_is_in_neither_half() -> None:
    corpus, train, dev = world(20)
    more = (
        "Ann Bee. Ann Bee was born in Rome; her son is Cy Dee.",
        "Cy Dee. Cy Dee was born in Oslo.",
        "Ed Eff. Ed Eff was born in Bath.",
        "Flo Gay. Flo Gay was born in Lima.",
    )
    corpus = corpus_of(*(d.text for d in corpus.documents), *more)
    extra = [("Ann Bee", "Rome"), ("Cy Dee", "Oslo"), ("Ed Eff", "Bath"), ("Ed Eff", "Cork")]
    extra += [("Flo Gay", "Lima"), ("No Body", "Kyiv")]
    dev = asked_of([*((q.subject, q.answer or "") for q in dev.questions), *extra])
    train = asked_of([*((q.subject, q.answer or "") for q in train.questions), ("Flo Gay", "Lima")])
    half = draw_halves(corpus, train, dev, set_aside=0.5, seed=0)["a"]
    drawn = {each.subject for each in half.subjects}
    assert "Ann Bee" in drawn
    # another document names her son; two answers; learned as well; no document
    assert not drawn & {"Cy Dee", "Ed Eff", "Flo Gay", "No Body"}
    assert len(half.notes) == 1
    assert half.notes[0].startswith("4 of the dev people are not judged")


def test_two_spellings_are_one_subject_and_are_left_out_together() -> None:
    corpus, train, dev = world(8)
    spelled = corpus_of(*(d.text for d in corpus.documents), "GIVEN7 Family7. She sang.")
    splits = draw_halves(spelled, train, dev, set_aside=0.5, seed=0)
    (left_out,) = (s.left_out for s in splits.values() if "Given7 Family7" in s.left_out)
    assert "GIVEN7 Family7" in left_out


def test_the_embedded_world_is_judged_whole(small_world: Path) -> None:
    corpus = read_documents(small_world / "documents.txt")
    train, dev = (read_questions(small_world / f"{n}.tsv") for n in ("train", "dev"))
    half = draw_halves(corpus, train, dev, set_aside=0.2, seed=0)["a"]
    assert len(half.with_role(JUDGED)) == len(dev.questions)
    assert half.notes == ()
    assert half != draw_halves(corpus, train, dev, set_aside=0.2, seed=1)["a"]
    for share in (0.0, 1.0, -0.1, float("nan")):
        with pytest.raises(UserError, match="between 0 and 1"):
            draw_halves(corpus, train, dev, set_aside=share, seed=0)


@pytest.mark.parametrize(
    ("reader", "other", "truths"),
    [
        ("Rome", "Oslo", (REMEMBERED, MADE_UP)),
        ("Rome", "Rome", (RIGHT_ANYWAY, GUESSED)),
        ("Oslo", "Rome", (WRONG, GUESSED)),
        ("Oslo", "Oslo", (WRONG, MADE_UP)),
        (" Rome ", "rome", (REMEMBERED, MADE_UP)),  # exact but for blanks, as recall is
    ],
)
def test_remembered_is_right_with_the_document_and_not_without(
    reader: str, other: str, truths: tuple[str, str]
) -> None:
    assert true_origin(reader, other, "Rome") == truths


def row(read: str, unread: str, score: float, x: float, y: float) -> dict[str, Any]:
    """The right answer is Rome; x and y are the cheap scores of the two answers."""
    truth, without = true_origin(read, unread, "Rome")
    sides = {
        side: {"scores": {"x": value}, "verdict": REMEMBERED if value > 0.5 else MADE_UP}
        for side, value in (("with", x), ("without", y))
    }
    return {"truth": truth, "truth_without": without, "score": score, **sides}


def drawn_rows(count: int, seed: int, *, telling: float) -> list[dict[str, Any]]:
    """Readers remember four of five; the score `x` tells that from the rest by `telling`."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        knows, lucky = rng.random() < 0.8, rng.random() < 0.05
        x, y = rng.normal() + telling * knows, rng.normal()
        said = ("Rome" if knows else "Oslo", "Rome" if lucky else "Oslo")
        rows.append(row(*said, 2 + rng.random() - rng.random(), float(x), float(y)))
    return rows


@pytest.mark.parametrize("telling", [0.0, 1.0, 3.0])
def test_numbers_are_those_of_scipy_and_sklearn(telling: float) -> None:
    rows = drawn_rows(150, 3, telling=telling)
    found = measure_agreement(rows, Bootstrap(50))["x"]
    read, unread = ([each[side]["scores"]["x"] for each in rows] for side in ("with", "without"))
    true = [each["truth"] == REMEMBERED for each in rows]
    expected = {
        "all": roc_auc_score([*true, *[False] * len(rows)], [*read, *unread]),
        "readers": roc_auc_score(true, read),
        "rank": spearmanr(read, [each["score"] for each in rows]).statistic,
    }
    for key, value in expected.items():
        assert found[key]["value"] == pytest.approx(value, abs=1e-12)
        assert found[key]["low"] <= value <= found[key]["high"]


def test_a_subject_is_drawn_with_both_answers() -> None:
    """Alone, each subject is told perfectly; together one pair of three or four is wrong."""
    rows = [row("Rome", "Oslo", 1.0, 1.0 + n, 0.5 + n) for n in range(2)]
    found = measure_agreement(rows, Bootstrap(300))["x"]["all"]
    assert found["value"] == pytest.approx(0.75)
    assert (found["low"], found["high"]) == (0.75, 1.0)


def test_what_is_undefined_says_why() -> None:
    rows = [row("Rome", "Oslo", 1.0, 1.0, 0.0)] * 5
    found = measure_agreement(rows, Bootstrap(20))["x"]
    assert found["readers"]["value"] is None
    assert "all answers are right" in found["readers"]["reason"]
    assert found["rank"]["value"] is None
    assert "same for everybody" in found["rank"]["reason"]
    assert found["all"]["value"] == 1.0
    with pytest.raises(UserError, match="nobody was judged"):
        measure_agreement([], Bootstrap(20))


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=2, max_size=30))
def test_rank_correlation_is_spearmans(rows: list[tuple[int, int]]) -> None:
    one, other = np.array(rows, dtype=np.float64).T
    (found,) = rank_correlations(one, other, np.ones((1, len(rows))))
    if min(len(set(one)), len(set(other))) < 2:
        assert np.isnan(found)
    else:
        assert found == pytest.approx(spearmanr(one, other).statistic, abs=1e-9)
    constant = rank_correlations(one, other, np.eye(len(one))[:1])
    assert np.isnan(constant).all()  # one subject drawn again and again


def test_a_cheap_verdict_is_counted_against_the_truth_and_tested() -> None:
    rows = drawn_rows(200, 2, telling=2.0)
    table = count_table(rows, lambda said: said["verdict"])
    assert sum(sum(each.values()) for each in table.values()) == 400
    took = [r for r in rows if r["with"]["scores"]["x"] > 0.5 and r["truth"] == REMEMBERED]
    assert table[REMEMBERED][REMEMBERED] == len(took)
    found = measure_test(rows, lambda said: said["verdict"] == REMEMBERED, Bootstrap(40))
    yes, remembered = table[REMEMBERED], sum(each[REMEMBERED] for each in table.values())
    assert found["precision"]["value"] == pytest.approx(yes[REMEMBERED] / sum(yes.values()))
    assert found["recall"]["value"] == pytest.approx(yes[REMEMBERED] / remembered)
    assert found["recall"]["low"] is not None
    none = measure_test(rows, lambda said: False, Bootstrap(40))
    assert none["precision"]["value"] is None
    assert none["recall"]["value"] == 0.0
