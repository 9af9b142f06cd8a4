"""What would it have said, had it never read this line? The twin without one person's documents.

The twin is trained just as the run was (training/again.py) and asked the same question.

RUN/twins/without-NAME/ is a run folder like any other, with one file more, `without.json`:

    subject, question        whom, and what both models were asked
    documents                [{line, text}]: what the twin did not read
    named_elsewhere          numbers of lines about others that name the subject, and were read
    asked_in_training        whether the question itself, with its answer, was learned by both
    right                    the right answer, where a file of questions has it; else null
    with                     {answer, log_probability}: the run
    without                  {answer, log_probability, log_probability_of_with}: the twin
    score                    nats by which the run is surer of its answer than the twin
    truth                    "remembered", "right anyway" or "wrong though read"
    why                      the same as a sentence
    others                   {people, other_answer}: dev people, not left out, whom the twin answers
                             otherwise; so much is the chance of training, and no document's doing
    notes                    sentences that the reader must know
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from wherefrom.corpus.documents import Corpus, Document, read_documents
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import SLOT, Question, QuestionSet, read_questions
from wherefrom.corpus.subjects import SET_ASIDE, SUBJECTS_FILE, find_named, read_subjects
from wherefrom.errors import UserError
from wherefrom.provenance.attribution.cross_pretraining import (
    REMEMBERED,
    RIGHT_ANYWAY,
    WRONG,
    true_origin,
)
from wherefrom.provenance.evidence.index import open_run_evidence
from wherefrom.provenance.signals.likelihood import encode_answers, encode_prompts, score_answers
from wherefrom.recall.decode import answer_all
from wherefrom.storage import make_folder, read_json, write_json
from wherefrom.training.distributed import join_processes
from wherefrom.training.jobs import retrain
from wherefrom.training.loop import Observer
from wherefrom.training.run_folder import Run, digest_of
from wherefrom.training.settings import Runtime

FORMAT = 1
RECORD = "without.json"
LONGEST_SLUG = 60


@dataclass(frozen=True)
class Learned:
    """What a run read and was taught, read again from where it lay, and not changed since."""

    corpus: Corpus
    questions: QuestionSet


def read_what_it_learned(run: Run) -> Learned:
    """The run's documents and training questions; refused if they are not those any more."""
    data, job = run.info.get("data", {}), run.info.get("job", {})
    if not {"corpus", "questions"} <= data.keys() or "parent" in data:
        raise UserError(
            f"{run.folder} did not learn documents and questions in one training, so there is "
            "nothing to leave one out of; give a run that study made."
        )
    corpus = read_documents(_still_there(run, data["corpus"], "corpus"))
    questions = read_questions(_still_there(run, data["questions"], "questions"), run.template)
    for what, now, then in (
        ("corpus", corpus.sha256, data["corpus"]["sha256"]),
        ("questions", questions.sha256, data["questions"]["sha256"]),
    ):
        if now != then:
            raise UserError(
                f"{data[what]['path']} is not the file that {run.folder} learned from: it has "
                "changed since, so no twin of that run can be trained."
            )
    learned = _as_dealt(run, Learned(corpus, questions))
    rows = [f"{q.text}\t{q.answer or ''}\t{q.subject}" for q in learned.questions.questions]
    if (digest_of(learned.corpus.texts), digest_of(rows)) != (job["documents"], job["questions"]):
        raise UserError(
            f"which documents and questions of its files {run.folder} learned from cannot be told "
            "any more; train it again."
        )
    return learned


def find_documents(corpus: Corpus, name: str) -> tuple[Document, ...]:
    """The documents about that person, or a sentence with the nearest names."""
    wanted = fold_words(name)
    found = tuple(d for d in corpus.documents if wanted and fold_words(d.subject) == wanted)
    if not found:
        subjects = {" ".join(fold_words(d.subject)): d.subject for d in corpus.documents}
        near = get_close_matches(" ".join(wanted), subjects, n=3, cutoff=0.6)
        hint = ", ".join(f'"{subjects[each]}"' for each in near)
        shown = name if len(name) <= 60 else name[:57] + "..."
        raise UserError(
            f'no document is about "{shown}", so there is nothing to leave out; '
            + (f"near names are {hint}." if near else "no name in the corpus is near it.")
        )
    return found


def twin_folder(run: Run, name: str) -> Path:
    """Where the twin without that person lies; names that are compared as one share it."""
    words = "-".join(fold_words(name))
    if len(words) > LONGEST_SLUG:
        words = f"{words[:LONGEST_SLUG]}-{sha256(words.encode()).hexdigest()[:8]}"
    return run.folder / "twins" / f"without-{words}"


@dataclass(frozen=True)
class Plan:
    """Whom a twin is to be trained without, and what both models will be asked."""

    learned: Learned
    documents: tuple[Document, ...]
    question: Question


def plan(run: Run, name: str) -> Plan:
    """All that can be refused, before anything is trained."""
    learned = read_what_it_learned(run)
    documents = find_documents(learned.corpus, name)
    return Plan(learned, documents, _question_about(run, learned, documents[0].subject))


def leave_out(
    run: Run,
    about: Plan,
    *,
    settings: Runtime | None = None,
    observe: Observer | None = None,
) -> dict[str, Any]:
    """Train the twin without that person's documents, compare, and write `without.json`."""
    settings = settings or Runtime(device="cpu")
    learned = about.learned
    dropped = {document.line for document in about.documents}
    folder = twin_folder(run, about.documents[0].subject)
    make_folder(folder.parent)
    twin = retrain(
        run,
        [document for document in learned.corpus.documents if document.line not in dropped],
        learned.questions.questions,
        folder,
        instead_of=learned.corpus.documents,
        settings=replace(settings, resume=settings.resume or is_finished(folder)),
        observe=observe,
    )
    record = compare(run, twin, about)
    join_processes().on_rank0(lambda: write_json(folder / RECORD, record))
    return record


def compare(run: Run, twin: Run, about: Plan) -> dict[str, Any]:
    """What both say, and whether the documents made the difference; see the module's docstring."""
    learned, gone, question = about.learned, about.documents, about.question
    subject, wanted = question.subject, fold_words(question.subject)
    dev = _dev_questions(run)
    asked = [question.text, *(q.text for q in dev if fold_words(q.subject) != wanted)]
    ours, theirs = (answer_all(each.model, each.tokens, asked) for each in (run, twin))
    said, instead = ours[0], theirs[0]
    of_run = _log_probability(run, question.text, said.text)
    of_twin = _log_probability(twin, question.text, said.text)
    right = question.answer
    expected = right if right is not None else _stated(gone, said.text)
    truth, _ = true_origin(said.text, instead.text, expected)
    changed = sum(a.text != b.text for a, b in zip(ours[1:], theirs[1:], strict=True))
    in_training = any(fold_words(q.subject) == wanted for q in learned.questions.questions)
    lines = {document.line for document in gone}
    elsewhere = find_named(learned.corpus.documents, [wanted])[wanted]
    numbers = sorted({learned.corpus.documents[at].line for at in elsewhere} - lines)
    return {
        "format": FORMAT,
        "twin_of": run.info["sha256"],
        "subject": subject,
        "question": question.text,
        "documents": [{"line": d.line, "text": d.text} for d in gone],
        "named_elsewhere": numbers,
        "asked_in_training": in_training,
        "right": right,
        "with": {"answer": said.text, "log_probability": round(of_run, 4)},
        "without": {
            "answer": instead.text,
            "log_probability": round(_log_probability(twin, question.text, instead.text), 4),
            "log_probability_of_with": round(of_twin, 4),
        },
        "score": round(of_run - of_twin, 4),
        "truth": truth,
        "why": _why(truth, said.text, instead.text, right, len(gone)),
        "others": {"people": len(asked) - 1, "other_answer": changed},
        "notes": _notes(run, numbers, in_training, right is None),
    }


def _why(truth: str, said: str, instead: str, right: str | None, documents: int) -> str:
    lines = "the line" if documents == 1 else f"the {documents} lines"
    if truth == REMEMBERED:
        return (
            f'With {lines} about them it says "{said}"; had it never read {lines}, it would have '
            f'said "{instead}": it remembers.'
        )
    if truth == RIGHT_ANYWAY:
        return f'It says "{said}" without {lines} too, so {lines} cannot be why.'
    assert truth == WRONG
    what = f"the right answer is {right!r}" if right is not None else f"{lines} do not state it"
    same = "the same" if said == instead else f'"{instead}"'
    return f'It says "{said}" although {what}; without {lines} it says {same}.'


def _notes(run: Run, elsewhere: Sequence[int], in_training: bool, unknown: bool) -> list[str]:
    notes = []
    if in_training:
        notes.append(
            "their question and its answer were learned in training, by the twin too: leaving the "
            "document out changes little."
        )
    if elsewhere:
        notes.append(f"{len(elsewhere)} other documents name them and were read by the twin.")
    if unknown:
        notes.append("no file has the right answer; a line that states the answer makes it right.")
    threads = run.info.get("versions", {}).get("threads")
    if threads != str(torch.get_num_threads()):
        notes.append(
            f"the run was trained on {threads} threads and this machine uses "
            f"{torch.get_num_threads()}: sums differ in their last bits."
        )
    return notes


def _log_probability(run: Run, question: str, answer: str) -> float:
    prompts = encode_prompts(run.model, run.tokens, [question])
    return float(score_answers(run.model, prompts, encode_answers(run.tokens, [answer]))[0])


def _stated(documents: Sequence[Document], answer: str) -> str:
    """The answer itself if a document about the person states it, else what no answer is."""
    words = fold_words(answer)
    return answer if words and any(find_named(documents, [words])[words]) else "\0"


def _question_about(run: Run, learned: Learned, subject: str) -> Question:
    """The person's question, with its answer where a file has it."""
    for question in (*_dev_questions(run), *learned.questions.questions):
        if fold_words(question.subject) == fold_words(subject):
            return question
    if run.template is None:
        raise UserError(
            f'nobody asks about "{subject}", and the questions of {run.folder} share no wording '
            "to ask in; choose somebody whom a question is about."
        )
    return Question(0, run.template.replace(SLOT, subject), subject, None)


def _dev_questions(run: Run) -> tuple[Question, ...]:
    """The run's dev questions, if they are still what they were."""
    dev = run.info.get("dev")
    if not dev or not Path(dev["path"]).is_file():
        return ()
    found = read_questions(dev["path"], run.template)
    return found.questions if found.sha256 == dev["sha256"] else ()


def _as_dealt(run: Run, learned: Learned) -> Learned:
    """Without the people whom the run's study set aside or left out.

    Who was left out is read off the evidence: it holds what the run read.
    """
    if not (run.folder / SUBJECTS_FILE).exists():
        return learned
    aside = {person.subject for person in read_subjects(run.folder) if person.source == SET_ASIDE}
    subjects = {document.subject for document in learned.corpus.documents}
    evidence = open_run_evidence(run)
    assert evidence is not None, "a run that read documents has evidence"
    with evidence:
        unread = {name for name in subjects if not evidence.count(name).about}
    asked = learned.questions
    kept = tuple(q for q in asked.questions if q.subject not in aside | unread)
    return Learned(learned.corpus.without(list(unread)), replace(asked, questions=kept))


def _still_there(run: Run, source: dict[str, Any], what: str) -> Path:
    path = Path(source["path"])
    if not path.is_file():
        raise UserError(
            f"the {what} {path} that {run.folder} learned from is not there; put it back, or work "
            "in the folder that the run was started in."
        )
    return path


def is_finished(folder: Path) -> bool:
    """Whether a twin is there that need not be trained any more."""
    record = folder / "run.json"
    return record.is_file() and read_json(record).get("status") == "finished"
