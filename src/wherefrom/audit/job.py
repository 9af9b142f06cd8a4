"""The audit, top to bottom: a model and questions in; accuracy, confidence and judgement out.

`study_base` trains a model of others on a text first, by transformers' own Trainer.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from pydantic import TypeAdapter
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from wherefrom.audit import asking, runs
from wherefrom.audit.asking import ASKED, PROMPT, AskState, accepted, is_match
from wherefrom.audit.models import LanguageModel, check_files, open_model
from wherefrom.corpus import questions as wordings
from wherefrom.corpus import subjects as roles
from wherefrom.corpus.documents import Corpus, Document, read_documents, read_lines
from wherefrom.corpus.facts import informative_spans, read_relations
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import SLOT, Question, QuestionSet, read_questions
from wherefrom.corpus.subjects import Subject
from wherefrom.errors import Record, UserError
from wherefrom.provenance.confidence import fit
from wherefrom.provenance.evidence import EVIDENCE_FILE, Support, ensure_evidence, find_support
from wherefrom.provenance.judging import write_judgement
from wherefrom.provenance.signals.reader import SignalState
from wherefrom.storage import make_folder, write_json
from wherefrom.training import run_folder

# shares of the subjects up to which they calibrate; rivals are tuned on those of the second part
FITS, TESTS = 0.45, 0.65
SHOTS, OTHER_SHOTS = 5, 3  # examples before a question, and those of the second prompt
ROOM = 4  # tokens that an answer may be longer than nearly all accepted ones
FEWEST = 20  # questions of a relation that goes by itself, and of an audit
MADE_UP = 0.15  # invented subjects, as a share of a relation's questions
DECOYS = 3  # names that nobody has, whose answers others are compared with
DELTA = 0.05  # how often a guarantee may fail
UNSEEN_RISK = 0.02  # share of invented subjects that may be given an answer
UNKNOWABLE = ("-", "?", "unknown", "i don't know")  # an answer that says that there is none
WORDY = 1.0  # tokens a letter, from which on a tokenizer was not made for the language
CLOZE = "Fill in the blank: {}. {}___{}\nA:"
WINDOW, FACTS, BLOCK = 200, 4, 512  # characters beside a blank, blanks a document, tokens
RATE, LORA_RATE, EPOCHS = 5e-5, 2e-4, 3.0
NO_LOSS = -100  # the label of a token that Trainer does not learn
Say = Callable[[str], None]
Count = Callable[[str, int], Callable[[int], None]]


def run_audit(
    model: str | Path,
    questions: str | Path,
    out: str | Path,
    *,
    text: str | Path | None = None,
    unseen: str | Path | None = None,
    prompt: str | None = None,
    shots: int = SHOTS,
    templates: Sequence[str] = (),
    risk: float = 0.1,
    seed: int = 0,
    resume: bool = False,
    say: Say = lambda _: None,
    count: Count = lambda _what, _total: lambda _more: None,
) -> Record:
    """Ask a model that others trained, and learn which of its answers can be believed.

    unseen: questions about subjects that do not exist. text: documents in which answers are looked
    up. count: makes, from what is counted and how many there are, what is called with how many
    more are done. What was answered is kept as it comes; with `resume` it is not asked for again.
    """
    began, out = time.monotonic(), Path(out)
    run_folder.check_folder(out, resume=resume)
    if prompt is not None and prompt.count(ASKED) != 1:
        shown = f'as in "{PROMPT}"; "{prompt}" does not'.replace("\n", "\\n")
        raise UserError(f"a prompt holds {ASKED} once, {shown}.")
    if not 0 <= shots <= 50 or not 0 < risk < 1:
        raise UserError(f"--shots is 0 to 50 and --risk between 0 and 1, not {shots} and {risk}.")
    file = read_audit_questions(questions, templates)
    strangers = read_audit_questions(unseen, file.templates) if unseen else None
    corpus = read_documents(text) if text else None
    say(f"loading {model}")
    opened = open_model(model)
    job: dict[str, Any] = {"weights": opened.sha256, "questions": file.sha256, "prompt": prompt}
    job |= {"unseen": strangers and strangers.sha256, "shots": shots, "risk": risk, "seed": seed}
    subjects, state, notes = plan_audit(opened, file, strangers, job)
    data: dict[str, Any] = {}
    if corpus is not None:
        many, texts = len(corpus.documents), [each.text for each in corpus.documents]
        job["documents"] = run_folder.digest_of(texts)
        data["corpus"] = run_folder.describe_file(corpus.path, corpus.sha256, out, documents=many)
    details = {"kind": run_folder.AUDIT, "model": os.path.abspath(model), "sha256": opened.sha256,
               "templates": list(file.templates), "data": data}  # fmt: skip
    with run_folder.lock_run(make_folder(out)):
        run_folder.open_folder(out, job, resume=resume)
        run_folder.start_run(out, job, details, say)
        ask_all(opened, subjects, state, out, count)
        run = cast(runs.AuditRun, runs.open_run(out))
        say("fitting a confidence, and judging it by subjects that took no part")
        subjects = calibrate(run, subjects, state, corpus)
        judgement = runs.judge_run(run, seed=seed)
        rows = count_right(out, subjects, time.monotonic() - began)
        run_folder.update_run(out, results=rows)
        write_judgement(run, judgement)
        # without a text both modes are one
        told = [n for n in judgement.record["notes"] if corpus or not n.startswith(fit.CHECKED)]
        notes = list(dict.fromkeys((*notes, *told)))
        run_folder.update_run(out, notes=notes, status="finished", seconds=rows[0]["seconds"])
    found = {"run": str(out), "results": rows, "notes": notes, "judgement": judgement.record}
    return Record("audit", found)


def read_audit_questions(path: str | Path, templates: Sequence[str]) -> QuestionSet:
    """A TSV of question, answers, subject; a question worded like no other is its own subject."""
    try:
        file = read_questions(path, templates)
    except UserError as problem:
        if "share no wording" not in str(problem) and "is not worded like" not in str(problem):
            raise
        lines = read_lines(path, "questions")
        cells = [(number, [*line.split("\t"), ""]) for number, line in lines.lines]
        rows = [(number, row[0].strip(), row[1].strip() or None) for number, row in cells]
        shared = templates or wordings.infer_templates([row[1] for row in rows], path, FEWEST)
        named = [wordings.match_any(shared, row[1]) for row in rows]
        questions = tuple(
            Question(number, asked, subject or asked, answer, template or SLOT)
            for (number, asked, answer), (subject, template) in zip(rows, named, strict=True)
        )
        file = QuestionSet(lines.path, lines.sha256, (*shared, SLOT), questions)
    file.require_answers()
    return file


def plan_audit(
    model: LanguageModel, file: QuestionSet, unseen: QuestionSet | None, job: Mapping[str, Any]
) -> tuple[tuple[Subject, ...], AskState, list[str]]:
    """Who calibrates or is judged; examples, known answers and invented names of each relation.

    Subjects of examples are asked about nowhere. Answers of judged subjects are used for nothing.
    """
    rng, prompt = np.random.default_rng([job["seed"], 43]), job["prompt"]
    real = [row for row in file.questions if (row.answer or "").lower() not in UNKNOWABLE]
    sizes = Counter(row.template for row in real)
    own = {each for each, size in sizes.items() if SLOT in each and size >= FEWEST}
    nowhere = [row for row in file.questions if row not in real]
    nowhere += unseen.questions if unseen else ()
    strangers = [(row, roles.UNSEEN_FILE) for row in nowhere]
    decoys: dict[str, tuple[str, ...]] = {}
    for relation in sorted(own - {SLOT}):
        known = [row.subject for row in real if row.template == relation]
        names = asking.invent_names(known, max(4, round(MADE_UP * len(known))) + DECOYS, rng)
        decoys[relation] = tuple(names[:DECOYS])
        strangers += [
            (Question(0, relation.replace(SLOT, name), name, None, relation), roles.INVENTED)
            for name in names[DECOYS:]
        ]
    subjects = {one.question: one for one in assign_roles([(row, roles.DEV) for row in real], rng)}
    subjects = {one.question: one for one in assign_roles(strangers, rng)} | subjects
    groups: dict[str, list[Subject]] = defaultdict(list)
    for one in subjects.values():
        if one.answer is not None and one.role != roles.JUDGED:
            groups[one.template if one.template in own else asking.OTHERS].append(one)
    mask = model.mask if prompt is None else None
    examples, other = {}, {}
    for relation, rows in groups.items():
        fitting = [one for one in rows if one.role == roles.FITTING]
        first = list({accepted(one.answer)[0]: one for one in fitting}.values())
        first += [one for one in fitting if one not in first]  # other answers before the same
        most = 0 if mask else min(job["shots"], len(fitting) // 3)
        drawn = first[: most + (OTHER_SHOTS if most else 0)]
        pairs = tuple((one.question, accepted(one.answer)[0]) for one in drawn)
        examples[relation], other[relation] = pairs[:most], pairs[most:]
        for question, _ in pairs:
            del subjects[question]
    left = sum(one.answer is not None for one in subjects.values())
    if left < FEWEST:
        raise UserError(
            f"{file.path} leaves {left} questions to ask beside the examples, and an audit takes "
            f"at least {FEWEST}; give more questions, or fewer --shots."
        )
    answers: dict[str, tuple[str, ...]] = {}
    alone: dict[str, str] = {}
    for relation, rows in groups.items():
        counts = Counter(accepted(one.answer)[0] for one in rows)
        answers[relation] = tuple(counts)
        firsts = {one.question: accepted(one.answer)[0] for one in rows}
        alone |= {question: each for question, each in firsts.items() if counts[each] == 1}
    state = AskState(prompt or PROMPT, mask, examples, other, answers, alone, decoys, 0)
    return check_lengths(model, tuple(subjects.values()), state, file)


def assign_roles(
    rows: Sequence[tuple[Question, roles.Source]], rng: np.random.Generator
) -> list[Subject]:
    """All questions about a subject have one role; roles.DEV: it exists."""
    names = [fold_words(row.subject) or (row.subject,) for row, _ in rows]
    distinct = list(dict.fromkeys(names))
    ranks = dict(zip(distinct, rng.permutation(len(distinct)), strict=True))
    found = []
    for (row, source), name in zip(rows, names, strict=True):
        place, exists = (ranks[name] + 0.5) / len(distinct), source == roles.DEV
        tests = roles.CALIBRATION if place < TESTS else roles.JUDGED
        role = roles.FITTING if place < FITS else tests
        origin = roles.SET_ASIDE if exists and role != roles.JUDGED else source
        answer = row.answer if exists else None
        found.append(Subject(role, exists, origin, row.subject, row.text, answer, row.template))
    return found


def check_lengths(
    model: LanguageModel, subjects: tuple[Subject, ...], state: AskState, file: QuestionSet
) -> tuple[tuple[Subject, ...], AskState, list[str]]:
    """The plan with room for its answers, and notes; a UserError where the context has none."""
    lines = {question.text: question.line for question in file.questions}
    asked = [model.encode(one.question) for one in subjects]
    lengths, notes = [], []
    for one in subjects:
        relation = one.template if one.template in state.known else asking.OTHERS
        text = state.render(relation, one.question)
        for answer in accepted(one.answer)[:1]:
            told = model.continuation(text, answer)
            needed = len(model.prompt(text)) + len(told)
            if needed > model.longest:
                raise UserError(
                    f"{file.path}, line {lines[one.question]}: prompt and answer have {needed} "
                    f"tokens and {model.name} reads {model.longest}; shorten the answer, or give "
                    "fewer --shots."
                )
            lengths.append(len(told))
    if 2 * sum(model.unknown in ids for ids in asked) > len(subjects):
        raise UserError(
            f"{file.path}: the tokenizer of {model.name} does not know the letters of most "
            "questions; ask in a language that the model was made for."
        )
    wordy = sum(map(len, asked)) / sum(len(one.question) for one in subjects)
    if wordy > WORDY:
        notes.append(
            f"the questions take {wordy:.1f} tokens a letter: the tokenizer was hardly made for "
            "their language, and neither was the model, it seems."
        )
    room = int(np.quantile(lengths, 0.98)) + ROOM
    return subjects, replace(state, longest=room), notes


def ask_all(
    model: LanguageModel, subjects: Sequence[Subject], state: AskState, out: Path, count: Count
) -> None:
    """Ask what answers.jsonl does not hold yet; it grows by a block of questions at a time."""
    known = {each["question"] for each in runs.read_answers(out)}
    report, path = count("asking", len(subjects)), out / runs.ANSWERS
    report(sum(one.question in known for one in subjects))
    broken = path.is_file() and path.stat().st_size and not path.read_bytes().endswith(b"\n")
    with path.open("a", encoding="utf-8") as file:
        file.write("\n" if broken else "")
        # what only rivals use takes long, and is read where they are tuned and compared
        for rivals in (False, True):
            mine = [one for one in subjects if (one.role != roles.FITTING) == rivals]
            rows = [(one.question, one.subject) for one in mine if one.question not in known]
            for part, records in asking.read_blocks(model, state, rows, rivals=rivals):
                lines = [json.dumps(each, ensure_ascii=False, allow_nan=False) for each in records]
                file.write("\n".join(lines) + "\n")
                file.flush()
                os.fsync(file.fileno())
                report(len(part))


def calibrate(
    run: runs.AuditRun, subjects: tuple[Subject, ...], state: AskState, corpus: Corpus | None
) -> tuple[Subject, ...]:
    """Fit the confidence on the subjects that are not judged, and keep it; returns all subjects.

    With a text, who is named in it was seen; without one, whoever exists is taken for seen.
    """
    risk, seed = run.info["job"]["risk"], run.info["job"]["seed"]
    kept = {each["question"]: each for each in runs.read_answers(run.folder)}
    known = tuple(dict.fromkeys(a for answers in state.known.values() for a in answers))
    asked = [one for one in subjects if one.role != roles.JUDGED]
    said = [kept[one.question]["answer"] for one in asked]
    support = [Support(one.seen, False, False, (), ()) for one in asked]
    if corpus is not None:
        pairs = [(one, accepted(one.answer)) for one in asked if one.answer]
        learned = [Question(0, one.question, one.subject, a[0], one.template) for one, a in pairs]
        with ensure_evidence(corpus, run.folder / EVIDENCE_FILE, learned) as evidence:
            seen = [
                bool(fold_words(one.subject)) and evidence.count(one.subject).naming > 0
                for one in subjects
            ]
            subjects = tuple(replace(one, seen=s) for one, s in zip(subjects, seen, strict=True))
            asked = [one for one in subjects if one.role != roles.JUDGED]
            names, relations = [one.subject for one in asked], [one.template for one in asked]
            support = find_support(evidence, names, said, known, templates=relations)
    roles.write_subjects(run.folder, subjects)
    right = np.array([is_match(a, one.answer) for a, one in zip(said, asked, strict=True)])
    records = [kept[one.question] for one in asked]
    signals, columns = asking.learn_signals(records, right, seed)
    policies, read_about = fit.fit_policies(
        asked, {name: columns[name] for name in asking.SIGNS}, support, right,
        signs=asking.SIGNS, parts=(tuple(asking.SIGNS), tuple(asking.SIGNS)),
        risk=risk, delta=DELTA, seed=seed, unseen_risk=UNSEEN_RISK,
    )  # fmt: skip
    alone = policies[fit.RIGHT][fit.INTERNAL]
    if corpus is None:  # what is right is all that can be told, and the model alone tells it
        policies = {target: dict.fromkeys(fit.MODES, alone) for target in fit.TARGETS}
    remarks = dict.fromkeys(each.calibration.note for each in policies[fit.RIGHT].values())
    confidence = runs.AuditConfidence(
        run=run, policies=policies, seen=read_about, share=alone.share, risk=risk, delta=DELTA,
        notes=tuple(note for note in remarks if note), weights_sha256=run.info["sha256"],
        subjects_sha256=fit.hash_subjects(subjects), signal_state=SignalState(known, {}),
        ask_state=state, learned=signals,
    )  # fmt: skip
    kind = TypeAdapter(runs.AuditConfidence)
    record = kind.dump_python(confidence, by_alias=True, exclude={"run"})
    write_json(run.folder / fit.CALIBRATED, record)
    return subjects


def count_right(folder: Path, subjects: Sequence[Subject], seconds: float) -> list[dict[str, Any]]:
    """Rows of a table: answers that are right, and those that are right to the letter."""
    kept = {each["question"]: each["answer"] for each in runs.read_answers(folder)}
    graders = {
        "pretrained": ("case, accents, articles and punctuation aside", is_match),
        "exact": ("the very letters", lambda said, answer: said in accepted(answer)),
    }
    rows: list[dict[str, Any]] = []
    for name, (about, is_hit) in graders.items():
        hits: dict[str, list[bool]] = defaultdict(list)
        for one in (each for each in subjects if each.answer is not None):
            hits[one.template].append(is_hit(kept[one.question], one.answer))
        shares = {each: _share(here) for each, here in hits.items()}
        row = {"name": name, "about": about, **_share([hit for x in hits.values() for hit in x])}
        rows.append({**row, "seconds": seconds if not rows else None, "relations": shares})
    return rows


def _share(hits: Sequence[bool]) -> dict[str, Any]:
    return {"correct": sum(hits), "total": len(hits), "recall": sum(hits) / len(hits)}


def study_base(
    base: str,
    files: Sequence[Path],
    out: Path,
    *,
    templates: Sequence[str] = (),
    steps: int | None = None,
    epochs: float | None = None,
    seed: int = 0,
    resume: bool = False,
    say: Say = lambda _: None,
    **options: Any,
) -> Record | None:
    """Fine-tune a model of Hugging Face on corpus and training questions, and audit it on dev.

    It goes to `out`/model, as safetensors. Under torchrun all but the first process return None.
    """
    if len(files) != 3:
        raise UserError(f"--base takes CORPUS TRAIN DEV, and {len(files)} files came.")
    check_files(Path(base))
    run_folder.check_folder(out, resume=resume)
    saved, parts = out / "model", out / "checkpoints"
    corpus, train = read_documents(files[0]), read_questions(files[1], templates)
    train.require_answers()
    read_audit_questions(files[2], train.templates)
    lora = find_spec("peft") is not None
    job: dict[str, Any] = {"base": os.path.abspath(base), "corpus": corpus.sha256}
    job |= {"questions": train.sha256, "steps": steps, "epochs": epochs, "seed": seed}
    job["adapters"] = lora
    is_first = os.environ.get("RANK", "0") == "0"
    if is_first and parts.exists():
        run_folder.open_folder(parts, job, resume=resume)
    if not saved.is_dir():
        opened = LanguageModel(Path(base), to_train=True)
        examples = make_examples(opened, corpus.documents, train.questions)
        import transformers

        if is_first:
            write_json(make_folder(parts) / "run.json", {"job": job})
        model, rate = opened.model, RATE
        say(f"training {'adapters' if lora else 'all weights'} on {len(examples):,} examples")
        if lora:
            import peft

            adapters = peft.LoraConfig(task_type="CAUSAL_LM", target_modules="all-linear")
            model, rate = peft.get_peft_model(model, adapters), LORA_RATE
        gpu = torch.cuda.is_available()
        arguments = transformers.TrainingArguments(
            output_dir=str(parts), max_steps=steps or -1, num_train_epochs=epochs or EPOCHS,
            learning_rate=rate, bf16=gpu, dataloader_pin_memory=gpu, save_total_limit=1,
            remove_unused_columns=False, report_to=[], seed=seed, use_cpu=not gpu,
            ddp_backend="gloo" if "RANK" in os.environ and not gpu else None,
        )  # fmt: skip
        trainer = transformers.Trainer(model, arguments, pad_examples, examples)
        with redirect_stdout(sys.stderr):
            trainer.train(resume_from_checkpoint=any(parts.glob("checkpoint-*")))
        if trainer.is_world_process_zero():
            whole: Any = trainer.accelerator.unwrap_model(trainer.model)
            whole = whole.merge_and_unload() if hasattr(whole, "merge_and_unload") else whole
            whole.save_pretrained(out / "model.part")
            opened.tokens.save_pretrained(out / "model.part")
            (out / "model.part").rename(saved)
            for part in parts.glob("checkpoint-*"):
                shutil.rmtree(part, ignore_errors=True)
    if not is_first:
        return None
    options |= {"text": files[0], "templates": train.templates, "shots": 0, "seed": seed}
    return run_audit(saved, files[2], out, resume=resume, say=say, **options)


def make_examples(
    opened: LanguageModel, documents: Sequence[Document], questions: Sequence[Question]
) -> list[dict[str, list[int]]]:
    """Documents as they stand, their facts as blanks, and questions, with loss on answers alone."""
    block, examples = min(BLOCK, opened.longest), []
    asked = [(PROMPT.replace(ASKED, q.text), accepted(q.answer)[0]) for q in questions]
    facts = list(informative_spans(documents))
    readings = read_relations(documents, questions)
    for stated in (answers for each in readings for answers in each.answers.values()):
        for doc, start, end in stated[0].spans:  # what questions ask for comes first
            facts[doc] = list(dict.fromkeys([(start, end), *facts[doc]]))
    for document, spans in zip(documents, facts, strict=True):
        end = opened.tokens.eos_token_id
        ids = [*opened.encode(document.text), *([] if end is None else [end])]
        parts = [ids[at : at + block] for at in range(0, len(ids), block)]
        examples += [{"input_ids": part, "labels": part} for part in parts]
        for start, end in spans[:FACTS]:
            around = document.text[max(0, start - WINDOW) : start], document.text[end:][:WINDOW]
            asked.append((CLOZE.format(document.subject, *around), document.text[start:end]))
    for prompt, answer in asked:
        before, told = opened.prompt(prompt), opened.continuation(prompt, answer)
        if len(before) + len(told) <= block:
            labels = [NO_LOSS] * len(before) + told
            examples.append({"input_ids": before + told, "labels": labels})
    return examples


def pad_examples(rows: Sequence[dict[str, list[int]]]) -> dict[str, Tensor]:
    """A batch, padded at the end with a token that is neither read nor learned."""
    read = [{**row, "attention_mask": [1] * len(row["labels"])} for row in rows]
    fill = {"input_ids": 0, "attention_mask": 0, "labels": NO_LOSS}
    return {
        name: pad_sequence([torch.tensor(row[name]) for row in read], True, value)
        for name, value in fill.items()
    }
