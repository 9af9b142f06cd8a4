"""The truth by twins: dealing, what is remembered in truth, and agreement with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from wherefrom.corpus.documents import Corpus, Document, read_documents
from wherefrom.corpus.questions import Question, QuestionSet, read_questions
from wherefrom.errors import UserError
from wherefrom.provenance.attribution.cross_pretraining import (
    GUESSED,
    MADE_UP,
    REMEMBERED,
    RIGHT_ANYWAY,
    WRONG,
    Draws,
    Halves,
    Pair,
    Said,
    agree,
    catch,
    count_table,
    deal_halves,
    named_by_others,
    rank_correlation,
    rank_correlations,
    true_origin,
)
from wherefrom.provenance.judging.metrics import Metric

NOWHERE = Path("nowhere")


def corpus_of(*lines: str) -> Corpus:
    documents = [Document(n, line.split(". ")[0], line) for n, line in enumerate(lines, start=1)]
    return Corpus(NOWHERE, "0" * 64, tuple(documents))


def asked_of(**answers: str) -> QuestionSet:
    questions = [
        Question(n, f"Where was {who.replace('_', ' ')} born?", who.replace("_", " "), answer)
        for n, (who, answer) in enumerate(answers.items(), start=1)
    ]
    return QuestionSet(NOWHERE, "1" * 64, "Where was {subject} born?", tuple(questions))


def world(people: int) -> tuple[Corpus, QuestionSet, QuestionSet]:
    names = [f"Given{n} Family{n}" for n in range(people)]
    corpus = corpus_of(*(f"{name}. {name} was born in Town{n}." for n, name in enumerate(names)))
    half = people // 2
    sets = [
        {names[n].replace(" ", "_"): f"Town{n}" for n in range(start, stop)}
        for start, stop in ((0, half), (half, people))
    ]
    return corpus, asked_of(**sets[0]), asked_of(**sets[1])


def said(answer: str, likely: float = -1.0, **scores: float) -> Said:
    return Said(
        answer=answer,
        log_probability=likely,
        of_reader=likely,
        shown=answer,
        shown_internal=scores.get("x", 0) > 0.5,
        verdict="remembered" if scores.get("x", 0) > 0.5 else "made up",
        scores=scores,
    )


class TestDealing:
    @given(people=st.integers(8, 60), share=st.floats(0.1, 0.8), seed=st.integers(0, 2**31 - 1))
    def test_every_judged_person_is_read_by_one_model_and_not_by_the_other(
        self, people: int, share: float, seed: int
    ) -> None:
        corpus, train, dev = world(people)
        wanted = round(share * len(train.questions))
        if wanted < 2:
            with pytest.raises(UserError, match="at least two people"):
                deal_halves(corpus, train, dev, set_aside=share, seed=seed)
            return
        halves = deal_halves(corpus, train, dev, set_aside=share, seed=seed)
        by_role = {
            role: [dealt for dealt in halves.people if dealt.role == role]
            for role in ("judged", "calibration")
        }
        assert {d.question.subject for d in by_role["judged"]} == {q.subject for q in dev.questions}
        aside = {d.question.subject for d in by_role["calibration"]}
        assert len(aside) == wanted
        assert aside <= {q.subject for q in train.questions}
        learned = {q.subject for q in halves.train.questions}
        assert learned == {q.subject for q in train.questions} - aside
        for role in by_role.values():
            counts = [sum(d.half == half for d in role) for half in "ab"]
            assert abs(counts[0] - counts[1]) <= 1
        read = {half: self.read_by(halves, corpus, half) for half in "ab"}
        everybody = {d.question.subject for d in halves.people}
        assert read["a"] & read["b"] == learned
        assert (read["a"] | read["b"]) - learned == everybody
        assert {d.subject for d in halves.shared(corpus).documents} == learned
        for half in "ab":
            for person in halves.people_of(half):
                assert person.seen == (person.subject in read[half])
                assert (person.source == "left out") == (not person.seen)

    def read_by(self, halves: Halves, corpus: Corpus, half: str) -> set[str]:
        return {document.subject for document in halves.corpus_of(corpus, half).documents}

    def test_the_seed_decides_and_nothing_else(self) -> None:
        corpus, train, dev = world(60)
        one = deal_halves(corpus, train, dev, set_aside=0.3, seed=1)
        same = deal_halves(corpus, train, dev, set_aside=0.3, seed=1)
        other = deal_halves(corpus, train, dev, set_aside=0.3, seed=2)
        assert one == same
        assert one != other

    def test_whoever_cannot_be_left_out_cleanly_is_in_neither_half(self) -> None:
        corpus, train, dev = world(20)
        more = (
            "Ann Bee. Ann Bee was born in Rome; her son is Cy Dee.",
            "Cy Dee. Cy Dee was born in Oslo.",
            "Ed Eff. Ed Eff was born in Bath.",
            "Flo Gay. Flo Gay was born in Lima.",
        )
        corpus = corpus_of(*(d.text for d in corpus.documents), *more)
        extra = asked_of(
            Ann_Bee="Rome", Cy_Dee="Oslo", Ed_Eff="Bath", Flo_Gay="Lima", No_Body="Kyiv"
        )
        twice = Question(9, "Where was Ed Eff born?", "Ed Eff", "Cork")
        dev = QuestionSet(
            NOWHERE, "2" * 64, dev.template, (*dev.questions, *extra.questions, twice)
        )
        learned = Question(8, "Where was Flo Gay born?", "Flo Gay", "Lima")
        train = QuestionSet(NOWHERE, "3" * 64, train.template, (*train.questions, learned))
        halves = deal_halves(corpus, train, dev, set_aside=0.5, seed=0)
        judged = {d.question.subject for d in halves.people if d.role == "judged"}
        assert "Ann Bee" in judged
        # another document names her son; two answers; learned as well; no document
        assert not judged & {"Cy Dee", "Ed Eff", "Flo Gay", "No Body"}
        for half in "ab":
            assert {"Cy Dee", "Ed Eff", "Flo Gay"} <= {
                d.subject for d in halves.corpus_of(corpus, half).documents
            }
        assert halves.notes == (
            "4 of the dev people are not judged: they have no document of their own, several "
            "answers, or a name that another document holds too.",
        )

    def test_a_name_inside_anothers_document_or_in_two_spellings_is_named_by_others(self) -> None:
        corpus = corpus_of(
            "Ann Bee. Ann Bee sang.",
            "Cy Dee. Cy Dee met ANN BEE in Rome.",
            "Éd Eff. He sang.",
            "Ed Eff. He danced.",
            "Flo Gay. Flo Gay met Flo Gayle.",
        )
        assert named_by_others(corpus) == {"Ann Bee", "Éd Eff", "Ed Eff"}

    def test_the_embedded_world_is_dealt_whole(self, small_world: Path) -> None:
        corpus = read_documents(small_world / "documents.txt")
        train, dev = (read_questions(small_world / f"{n}.tsv") for n in ("train", "dev"))
        halves = deal_halves(corpus, train, dev, set_aside=0.2, seed=0)
        assert sum(d.role == "judged" for d in halves.people) == len(dev.questions)
        assert halves.notes == ()

    @pytest.mark.parametrize("share", [0.0, 1.0, -0.1, float("nan")])
    def test_a_share_that_is_none_is_refused(self, share: float) -> None:
        with pytest.raises(UserError, match="between 0 and 1"):
            deal_halves(*world(20), set_aside=share, seed=0)


class TestTruth:
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
        self, reader: str, other: str, truths: tuple[str, str]
    ) -> None:
        assert true_origin(reader, other, "Rome") == truths

    def test_the_score_is_how_much_surer_the_reader_is_of_its_own_answer(self) -> None:
        pair = Pair("Ann", "Where?", "Rome", "a", said("Rome", -0.1), said("Oslo", -4.6))
        assert pair.score == pytest.approx(4.5)
        record = pair.to_dict()
        assert (record["truth"], record["truth_without"]) == (REMEMBERED, MADE_UP)
        assert record["reader"] == "reader-b"  # half a is what reader-a does not read
        assert record["with"]["answer"] == "Rome"
        assert record["without"]["log_probability_of_with"] == -4.6


def drawn_pairs(count: int, seed: int, *, telling: float) -> list[Pair]:
    """Readers remember four of five; the score `x` tells that from the rest by `telling`."""
    rng = np.random.default_rng(seed)
    pairs = []
    for at in range(count):
        knows = rng.random() < 0.8
        lucky = rng.random() < 0.05
        reader = said("Rome" if knows else "Oslo", -rng.random(), x=rng.normal() + telling * knows)
        other = said("Rome" if lucky else "Oslo", -2 - rng.random(), x=float(rng.normal()))
        pairs.append(Pair(f"P{at}", "Where?", "Rome", "ab"[at % 2], reader, other))
    return pairs


class TestAgreement:
    @pytest.mark.parametrize("telling", [0.0, 1.0, 3.0])
    def test_numbers_are_those_of_scipy_and_sklearn(self, telling: float) -> None:
        pairs = drawn_pairs(150, 3, telling=telling)
        found = agree(pairs, seed=0, resamples=50)["x"]
        read = [pair.reader.scores["x"] for pair in pairs]
        unread = [pair.other.scores["x"] for pair in pairs]
        true = [pair.truths[0] == REMEMBERED for pair in pairs]
        expected = {
            "all": roc_auc_score([*true, *[False] * len(pairs)], [*read, *unread]),
            "readers": roc_auc_score(true, read),
            "rank": spearmanr(read, [pair.score for pair in pairs]).statistic,
        }
        for key, value in expected.items():
            metric = found[key]
            assert metric.value == pytest.approx(value, abs=1e-12)
            assert metric.low is not None
            assert metric.high is not None
            assert metric.low <= value <= metric.high

    def test_a_person_is_drawn_with_both_answers(self) -> None:
        """If the two answers of a person were drawn apart, this interval would not be a point."""
        pairs = [
            Pair(f"P{n}", "Where?", "Rome", "a", said("Rome", x=1.0 + n), said("Oslo", x=0.5 + n))
            for n in range(2)
        ]
        both = Draws(people=2, seed=0, resamples=300)
        seen: set[tuple[float, ...]] = set()

        def remember(weights: np.ndarray) -> np.ndarray:
            seen.update(map(tuple, weights))
            return np.asarray(weights.sum(axis=1))

        metric = both.widen(Metric(value=2.0), remember)
        assert (metric.low, metric.high) == (2.0, 2.0)
        assert seen == {(2.0, 0.0), (1.0, 1.0), (0.0, 2.0)}
        found = agree(pairs, seed=0, resamples=300)["x"]["all"]
        # alone, each person is told perfectly; together one pair of three or four is wrong
        assert found.value == pytest.approx(0.75)
        assert (found.low, found.high) == (0.75, 1.0)

    def test_what_is_undefined_says_why(self) -> None:
        pairs = [
            Pair(f"P{n}", "Where?", "Rome", "a", said("Rome", x=1.0), said("Oslo", x=0.0))
            for n in range(5)
        ]
        found = agree(pairs, seed=0, resamples=20)["x"]
        assert found["readers"].value is None
        assert "all answers are right" in (found["readers"].reason or "")
        assert found["rank"].value is None
        assert "same for everybody" in (found["rank"].reason or "")
        assert found["all"].value == 1.0
        with pytest.raises(UserError, match="nobody was judged"):
            agree([], seed=0)

    @given(
        st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), min_size=2, max_size=30),
        st.integers(0, 100),
    )
    def test_rank_correlation_is_spearmans(self, rows: list[tuple[int, int]], seed: int) -> None:
        one, other = np.array(rows, dtype=np.float64).T
        found = rank_correlation(one, other)
        if min(len(set(one)), len(set(other))) < 2:
            assert found.value is None
            return
        assert found.value == pytest.approx(spearmanr(one, other).statistic, abs=1e-9)
        constant = rank_correlations(one, other, np.eye(len(one))[:1])
        assert np.isnan(constant).all()  # one person drawn again and again

    def test_the_table_counts_every_answer_once(self) -> None:
        pairs = drawn_pairs(90, 1, telling=2.0)
        table = count_table(pairs, lambda answer: answer.verdict)
        assert sum(sum(row.values()) for row in table.values()) == 180
        assert set(table) == {"remembered", "made up"}
        took = [p for p in pairs if p.reader.scores["x"] > 0.5 and p.truths[0] == REMEMBERED]
        assert table["remembered"][REMEMBERED] == len(took)

    def test_precision_and_recall_of_a_cheap_verdict(self) -> None:
        pairs = drawn_pairs(200, 2, telling=2.0)
        table = count_table(pairs, lambda answer: answer.verdict)
        found = catch(pairs, lambda answer: answer.verdict == "remembered", seed=0, resamples=40)
        yes, true = table["remembered"], REMEMBERED
        assert found["precision"].value == pytest.approx(yes[true] / sum(yes.values()))
        assert found["recall"].value == pytest.approx(
            yes[true] / sum(row[true] for row in table.values())
        )
        assert found["recall"].low is not None
        none = catch(pairs, lambda answer: False, seed=0, resamples=40)
        assert none["precision"].value is None
        assert none["recall"].value == 0.0
