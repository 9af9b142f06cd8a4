"""What is wrong or odd about a text and its questions, said before any training."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import combinations

from wherefrom.corpus.database import AskedRelation, Database
from wherefrom.corpus.facts import is_stated, stating_documents
from wherefrom.corpus.folding import find_phrase, fold_words
from wherefrom.corpus.formats import name_some
from wherefrom.corpus.inflection import find_form
from wherefrom.corpus.questions import Question, QuestionSet
from wherefrom.corpus.reader import MIN_LABELS
from wherefrom.corpus.split import find_named
from wherefrom.errors import UserError

MAX_SEVERAL_ANSWERS_SHARE = 0.02  # share of the questions that may have them
MAX_UNSTATED_SHARE = 0.2  # share of dev answers in no document, above which that is said
UNCLEAR_PROBABILITY = 0.3  # probability of the likeliest answer that the text states
POOR_READING_SHARE = 0.7  # share of the answers found below which a relation's mistakes are shown


def check_files(corpus: Database, train: QuestionSet, dev: QuestionSet) -> list[str]:
    """Notes on the files of a study; what makes its numbers meaningless is a UserError."""
    learned = {fold_words(q.text): q for q in train.questions}
    shared = [(q, learned[text]) for q in dev.questions if (text := fold_words(q.text)) in learned]
    same = [(q, other) for q, other in shared if q.answer == other.answer]
    if same:
        first, other = same[0]
        raise UserError(
            f'{dev.path}, line {first.line}: "{first.text}" is a training question too '
            f"({train.path}, line {other.line}); {len(same):,} in all: remove them from one "
            "of the files; otherwise recall counts questions that were trained on."
        )
    notes = []
    if train.endings:
        forms = [f'"-{form}" for "-{ending}"' for ending, form in train.endings if ending and form]
        forms += [f'"-{form}" added' for ending, form in train.endings if not ending]
        notes.append(
            f"Questions inflect the names of their subjects ({name_some(forms)}): they are asked "
            "with the names as documents spell them."
        )
    dev_share = f"of {len(dev.questions):,} questions of {dev.path.name} are"
    if shared:
        notes.append(
            f"{len(shared):,} {dev_share} training questions with another answer "
            f'("{shared[0][0].text}"), and cannot be judged.'
        )
    notes += filter(None, map(_check_answers, (train, dev)))
    new = [f'"{q.template}"' for q in dev.questions if q.template not in train.templates]
    if new:
        notes.append(
            f"{len(new):,} {dev_share} worded like no training question ({name_some(new)}): the "
            "model does not learn what they ask for."
        )
    subjects = {fold_words(q.subject) for file in (train, dev) for q in file.questions}
    named_in = find_named(corpus.documents, subjects)
    for file in (train, dev):
        unnamed = [q.subject for q in file.questions if not named_in.get(fold_words(q.subject))]
        if len(unnamed) == len(file.questions):
            raise UserError(
                f"no document of {corpus.source} names any subject of {file.path} "
                f"({name_some(unnamed)}); check that the two files belong together."
            )
        if unnamed:
            notes.append(
                f"{len(unnamed):,} of {len(file.questions):,} questions of {file.path.name} are "
                f"about subjects that no document names ({name_some(unnamed)}): answers to them "
                "are made up."
            )
    unstated = [q.answer or "" for q in dev.questions if _is_unstated(q, corpus)]
    if len(unstated) > MAX_UNSTATED_SHARE * len(dev.questions):
        notes.append(
            f"{len(unstated):,} of {len(dev.questions):,} answers of {dev.path.name} stand in no "
            f"document about their subject ({name_some(unstated)}): they cannot be recalled."
        )
    repeated = len(corpus.documents) - len({hash(document.text) for document in corpus.documents})
    if repeated:
        notes.append(f"{repeated:,} documents repeat another one word for word.")
    return notes


def _check_answers(file: QuestionSet) -> str | None:
    """A note if a few questions have several answers; if many have, a UserError."""
    by_text: dict[str, list[Question]] = defaultdict(list)
    for question in file.questions:
        by_text[question.text].append(question)
    several = [same for same in by_text.values() if len({q.answer for q in same}) > 1]
    if not several:
        return None
    first, answers = several[0][0], sorted({q.answer or "" for q in several[0]})[:2]
    what = f'"{first.text}" has the answers ' + " and ".join(f'"{a}"' for a in answers)
    count = f"{len(several):,} of {len(by_text):,} questions have several"
    if len(several) > max(1, MAX_SEVERAL_ANSWERS_SHARE * len(by_text)):
        raise UserError(f"{file.path}, line {first.line}: {what}, and {count}; keep one for each.")
    return f"{count} answers in {file.path.name} ({what})."


def _is_unstated(question: Question, corpus: Database) -> bool:
    """Whether documents are about the subject of a question, and none states its answer."""
    answer = question.answer or ""
    about = corpus.documents_about(fold_words(question.subject))
    texts = [corpus.documents[doc].text for doc in about]
    return bool(texts) and not any(
        answer in text
        or find_phrase(fold_words(text), fold_words(answer))
        or find_form(text, answer)
        for text in texts
    )


def describe_facts(database: Database, path: object) -> list[str]:
    """Notes on what was read; `describe_readings` has it as a table.

    Training answers that are nowhere in the documents cannot be learned from them: a UserError.
    """
    relations = database.relations()
    if not any(relation.found for relation in relations):
        missing = [answer for relation in relations for answer in relation.missing]
        raise UserError(
            f"{path}: none of the {len(missing):,} training answers stands in a document about its "
            f"subject ({name_some(missing)}); the answers have to be words of the text. Check that "
            "question and answer are not swapped, and that text and questions belong together."
        )
    notes = []
    few = [f'"{r.template}"' for r in relations if r.found < MIN_LABELS and not r.missing]
    if few:
        notes.append(
            f"fewer than {MIN_LABELS} training questions are worded like {name_some(few)}, so no "
            f"answers are read from the text; give at least {MIN_LABELS} of each wording."
        )
    for relation in relations:
        notes += _describe_relation(database, relation)
    templates = [relation.template for relation in relations if not relation.same_as]
    return notes + _describe_disagreements(database, templates)


def _describe_relation(database: Database, relation: AskedRelation) -> list[str]:
    """What is odd about a relation: answers that are unclear, missing, or read wrongly."""
    notes, template, check = [], relation.template, relation.check
    if relation.same_as:
        notes.append(
            f'"{template}" asks for the same as "{relation.same_as}", by the training answers.'
        )
    stated = [answers for _, answers in database.all_extracted(template) if is_stated(answers)]
    unclear = [each for each in stated if each[0].probability < UNCLEAR_PROBABILITY]
    if unclear:
        several = " or ".join(answer.text for answer in unclear[0][:3])
        count = "1 subject" if len(unclear) == 1 else f"{len(unclear):,} subjects"
        notes.append(
            f'For {count} the text has no clear answer to "{template}" (such as {several}).'
        )
    if relation.missing:
        notes.append(
            f"{len(relation.missing):,} of {relation.asked:,} training answers cannot be cut out "
            f"of a document about their subject ({name_some(relation.missing)}); what is not in "
            "the text word for word cannot be learned from it."
        )
    if check is not None and check.found < POOR_READING_SHARE * check.asked:
        mistakes = [f'"{said or "nothing"}" for "{answer}"' for answer, said in check.mistakes]
        notes.append(
            f'Only {check.found / check.asked:.0%} of the known answers to "{template}" are read '
            f"rightly, and the model cannot learn many more: {', '.join(mistakes)}."
        )
    return notes


def _describe_disagreements(database: Database, templates: Sequence[str]) -> list[str]:
    """Notes on documents about one subject that state different answers, with examples.

    If two documents answer several relations and agree on none, they are about two subjects of
    one name, it seems.
    """
    notes = []
    agreeing: set[tuple[int, int, int]] = set()  # a subject and two of its documents
    disagreeing: Counter[tuple[int, int, int]] = Counter()
    for template in templates:
        subjects, example = set(), ""
        for number, answers in database.all_extracted(template):
            if not is_stated(answers):
                continue
            best: dict[int, str] = {}  # document -> the likeliest answer that it states
            for answer, documents in zip(answers, stating_documents(answers), strict=True):
                for document in documents:
                    best.setdefault(document, answer.text)
            for (first, value), (second, other) in combinations(sorted(best.items()), 2):
                pair = (number, first, second)
                if value == other:
                    agreeing.add(pair)
                    continue
                disagreeing[pair] += 1
                subjects.add(number)
                lines = [database.documents[document].line for document in (first, second)]
                values = f"{value} in line {lines[0]} and {other} in line {lines[1]}"
                example = example or f"{database.spell(number)}: {values}"
        if subjects:
            count = "1 subject has" if len(subjects) == 1 else f"{len(subjects):,} subjects have"
            notes.append(f'{count} documents that disagree on "{template}" ({example}).')
    shared = {
        number: (first, second)
        for (number, first, second), count in disagreeing.items()
        if count > 1 and (number, first, second) not in agreeing
    }
    if shared:
        number, documents_of_name = next(iter(shared.items()))
        lines = [database.documents[document].line for document in documents_of_name]
        names = "1 name belongs" if len(shared) == 1 else f"{len(shared):,} names belong"
        notes.append(
            f"{names} to two different subjects, it seems ({database.spell(number)}: lines "
            f"{lines[0]} and {lines[1]}); ask about one by a word of its line, as in "
            f'"the painter {database.spell(number)}", or as "{database.spell(number)} (line '
            f'{lines[0]})".'
        )
    return notes


def tabulate_readings(database: Database) -> list[tuple[str, ...]]:
    """How well each relation is read: a row of headings, and one for each relation."""
    table: list[tuple[str, ...]] = [
        ("relation", "questions", "in the text", "found", "missed", "false", "subjects")
    ]
    for relation in database.relations():
        check, stated = relation.check, database.all_extracted(relation.template)
        shares = ["-"] * 3
        if check is not None:
            counts = (check.found, check.asked), (check.missed, check.asked)
            pairs = (*counts, (check.false, check.silent))
            shares = [f"{count / max(1, total):.0%}" for count, total in pairs]
        in_text = f"{relation.found / max(1, relation.asked):.0%}"
        subjects = f"{sum(is_stated(answers) for _, answers in stated):,}"
        table.append((relation.template, f"{relation.asked:,}", in_text, *shares, subjects))
    return table


def describe_readings(database: Database) -> str:
    """The table of `tabulate_readings` as text."""
    table = tabulate_readings(database)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [
        "What is read from the text (in the text: training answers that can be cut out of it;",
        "found, missed, false: where the answers are known and were not learned):",
    ]
    for name, *cells in table:
        right = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        lines.append("  ".join(["", name.ljust(widths[0]), *right]))
    return "\n".join(lines)
