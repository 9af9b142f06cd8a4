"""Fine-tuning a model of others on a text, by transformers' own Trainer, and its audit."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from wherefrom.audit.asking import ASKED, PROMPT, accepted
from wherefrom.audit.job import Say, read_audit_questions, run_audit
from wherefrom.audit.models import LanguageModel, check_files
from wherefrom.corpus.documents import Document, read_documents
from wherefrom.corpus.facts import informative_spans, read_relations
from wherefrom.corpus.questions import Question, read_questions
from wherefrom.errors import Record, UserError
from wherefrom.storage import make_folder, write_json
from wherefrom.training.run_folder import check_folder, open_folder

CLOZE = "Fill in the blank: {}. {}___{}\nA:"
WINDOW, FACTS, BLOCK = 200, 4, 512  # characters beside a blank, blanks a document, tokens
RATE, LORA_RATE, EPOCHS = 5e-5, 2e-4, 3.0
NO_LOSS = -100  # the label of a token that Trainer does not learn


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
    check_folder(out, resume=resume)
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
        open_folder(parts, job, resume=resume)
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
