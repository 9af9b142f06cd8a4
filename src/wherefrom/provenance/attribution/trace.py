"""Which lines pushed an answer: by gradients at once, or proved by quiet retraining.

An answer's rows are compared with those of every line at the weights after about a third of the
training: the question, and a few windows of the text around facts of the same relation, with the
subject's name before them, since the model learned the answer from such windows. gradients.py has
the scores, nats.py says what they mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import SLOT, match_any
from wherefrom.errors import UserError, did_you_mean, shorten
from wherefrom.model.interface import LanguageModel
from wherefrom.provenance.ask import open_asker
from wherefrom.provenance.attribution.gradients import (
    Floats,
    GradientIndex,
    build_index,
    load_index,
    save_index,
)
from wherefrom.provenance.attribution.kinds import (
    OWN,
    describe_shares,
    find_stating,
    kinds_of,
    noise_floor,
    shares_of_kinds,
)
from wherefrom.provenance.attribution.nats import Push, Pushes, estimate_pushes
from wherefrom.provenance.attribution.opening import open_learned
from wherefrom.provenance.attribution.retraining import (
    LearnedRun,
    Record,
    answers_of,
    compare_others,
    likelihoods,
    recombine_names,
)
from wherefrom.provenance.verdicts import Verdict, add_trace
from wherefrom.training.loop import Count, Observer, Say, no_count
from wherefrom.training.record import find_problem, update_run
from wherefrom.training.run_folder import Run

INDEX = "gradients.safetensors"
WINDOWS = 4  # in whose words an answer is asked for, besides its question
OTHER_NAMES = 16  # for which an answer is compared
METHODS = ("gradient", "retrain")


class Tracer:
    """A run with the documents and questions that it learned, and the index of their gradients."""

    def __init__(
        self, learned: LearnedRun, *, say: Say = lambda _: None, count: Count = no_count
    ) -> None:
        self.learned, self.run, self.documents = learned, learned.run, learned.documents
        self.say, self._count = say, count

    @cached_property
    def index(self) -> GradientIndex:
        """The index of the run, made and kept in its folder if it is not there."""
        folder, digest = self.run.folder, self.run.record.sha256
        problem = find_problem(folder, INDEX)
        index = load_index(folder / INDEX, digest) if problem is None else None
        if index is None:
            why = f"{problem.partition(';')[0]}: " if problem else ""
            self.say(f"{why}making the index of {len(self.documents):,} documents, once")
            index = build_index(self.learned, self.snapshot, self._count)
            try:
                save_index(index, folder / INDEX, digest)
                update_run(folder, wrote=(INDEX,))
            except UserError as not_kept:
                self.say(f"The index is made again for every trace: {not_kept}")
        return index

    @cached_property
    def snapshot(self) -> LanguageModel:
        """The model at the weights at which gradients are taken."""
        return self.learned.open_snapshot(self.say)

    def scores(self, question: str, subject: str, answer: str) -> Floats:
        """The score of every document for an answer, by gradient."""
        rows = self.learned.answer_rows(question, subject, answer, WINDOWS)
        return self.index.scores(self.snapshot, rows)

    def trace(
        self,
        question: str,
        *,
        answer: str | None = None,
        top: int = 5,
        method: str = "gradient",
        observe: Observer | None = None,
    ) -> Record:
        """The record that docs/trace.md describes, of the run's own answer or of another one."""
        self._check(question, top, method)
        question, subject, verdict = self._understand(question)
        own_answer = answers_of(self.run, [question])["answers"][0]
        if answer not in (None, own_answer):
            verdict = None
        answer = own_answer if answer is None else answer
        kinds, stating = self._relate(subject, answer, verdict)
        teaching = [i for i in sorted(stating) if kinds[i] == OWN]
        scores, gain = self.scores(question, subject, answer), self.gain(question, subject, answer)
        known_gain = gain if self.learned.is_in_nats else None
        pushes = estimate_pushes(scores, known_gain, teaching, noise_floor(kinds, scores))
        order = sorted(range(len(scores)), key=lambda i: (-pushes.of_line[i].nats, -scores[i]))
        order = order[:top]
        if method == "retrain":
            pushes = self._retrain_without(order, question, subject, answer, observe)
            order.sort(key=lambda i: -abs(pushes.of_line[i].nats))
        rows: list[Record] = [
            {
                "line": self.documents[i].line,
                "text": self.documents[i].text,
                "score": float(f"{scores[i]:.4g}"),
                **pushes.of_line[i].to_dict(),
                "states": i in stating,
            }
            for i in order
        ]
        shares = shares_of_kinds(kinds, scores)
        together = pushes.of_lines(teaching)
        record: Record = {
            "question": question,
            "answer": answer,
            "verdict": None,
            "method": method,
            "unit": pushes.unit,
            "noise_floor": float(f"{pushes.noise_floor:.4g}"),
            "likelier_than_for_other_names": gain,
            "pushed_by": [row for row in rows if row["push"] >= 0],
            "pushed_away_by": [row for row in rows if row["push"] < 0],
            "lines_that_state_it": together.to_dict() if together else None,
            "leans_on": shares,
            "why": describe_shares(shares),
        }
        if verdict is not None:
            record["verdict"] = add_trace(verdict, record).verdict
        return record

    def _check(self, question: str, top: int, method: str) -> None:
        """A UserError if the arguments of a trace do not fit."""
        if method not in METHODS:
            raise UserError(f'there is no method "{method}".{did_you_mean(method, METHODS)}')
        if not question.strip():
            raise UserError("trace takes a question, and an empty one came.")
        if not 1 <= top <= len(self.documents):
            raise UserError(f"--top must be between 1 and {len(self.documents)}, not {top}.")

    def _understand(self, typed: str) -> tuple[str, str, Verdict | None]:
        """The question in the run's own words, its subject, and the verdict on the run's answer.

        A UserError if it is neither a question that the run knows nor a name in its text.
        """
        try:
            asker = open_asker(self.run)
        except UserError as problem:
            self.say(f"The answer is not looked up: {problem}")
            return typed, match_any(self.run.templates, typed)[0], None
        with asker:
            if not any(SLOT in template for template in self.run.templates):
                return typed, "", None
            name = asker.matcher.find_bare_name(typed)
            if name and asker.evidence and not asker.evidence.count(name).naming:
                raise UserError(
                    f'"{shorten(typed)}" is neither a question nor a name in the text; ask as in '
                    f'"{self.run.templates[0]}".'
                )
            understood = asker.understand(typed)
            return understood.text, understood.subject, asker.ask(understood.text)

    def _relate(
        self, subject: str, answer: str, verdict: Verdict | None
    ) -> tuple[NDArray[np.str_], set[int]]:
        """The kind of each document, and those that state the answer."""
        stating = find_stating(self.documents, [answer]).get(fold_words(answer), set())
        kinds = kinds_of(self.documents, subject, stating)
        evidence = verdict.evidence if verdict else ()
        looked_up = {line.line for line in evidence if line.states_answer}
        return kinds, stating | {i for i, d in enumerate(self.documents) if d.line in looked_up}

    def _retrain_without(
        self,
        places: Sequence[int],
        question: str,
        subject: str,
        answer: str,
        observe: Observer | None,
    ) -> Pushes:
        """Nats of log p(answer) that are lost without each document."""
        (with_all,) = likelihoods(self.run, [question], [answer])
        pushes, floors = {}, []
        for place in places:
            document = self.documents[place]
            self.say(f"training again without line {document.line}")
            folder = self.run.folder / "twins" / f"line-{document.line}"
            twin = self.learned.retrain([document.line], folder, observe=observe)
            pushes[place] = Push.exactly(with_all - likelihoods(twin, [question], [answer])[0])
            others = compare_others(self.learned, twin, [subject, document.subject])
            floors.append(others["noise_floor"] or 0.0)
        return Pushes("nats", max(floors), pushes)

    def gain(self, question: str, subject: str, answer: str) -> float | None:
        """log p(answer) less its mean log p for names that no line is about, in nats.

        Where lines about others who share the first or the last word of the name state the same
        answer, names with this word count apart, and the larger mean is taken: such lines teach
        the answer as well.
        """
        if not subject or subject not in question:
            return None
        name, (*first, last) = fold_words(subject), subject.split()
        stating = find_stating(self.documents, [answer]).get(fold_words(answer), set())
        others = [self.learned.subjects[i] for i in stating if self.learned.subjects[i] != name]
        taught = {word for other in others for word in other}
        groups = [recombine_names(self.documents, OTHER_NAMES)]
        if first and name[0] in taught:
            groups.append(recombine_names(self.documents, OTHER_NAMES, first=" ".join(first)))
        if first and name[-1] in taught:
            groups.append(recombine_names(self.documents, OTHER_NAMES, last=last))
        means = []
        for names in filter(None, groups):
            questions = [question.replace(subject, other) for other in names]
            means.append(float(np.mean(likelihoods(self.run, questions, [answer] * len(names)))))
        (log_p,) = likelihoods(self.run, [question], [answer])
        return round(log_p - max(means), 4) if means else None


def open_tracer(
    source: Run | str | Path, *, say: Say = lambda _: None, count: Count = no_count
) -> Tracer:
    """A run, of ours or of a model that others trained, opened for traces."""
    return Tracer(open_learned(source, count), say=say, count=count)
