"""Inside a model of others: what each head attends to as the model is about to answer."""

from __future__ import annotations

from typing import Any

import torch

from wherefrom.errors import UserError
from wherefrom.model.huggingface import HuggingFaceModel
from wherefrom.model.interface import ASKED
from wherefrom.model.mixers import AttentionRecord
from wherefrom.provenance.audited import BaseRun
from wherefrom.recall.decode import answer_all
from wherefrom.recall.inside import InsideView, look_inside, view_head
from wherefrom.training.run_folder import Run


def look_inside_any(run: Run, question: str, subject: str | None) -> tuple[InsideView, str]:
    """What the heads of any run attend to, and its answer."""
    if isinstance(run, BaseRun):
        prompt = run.base_job.prompt.replace(ASKED, question)
        view = look_inside_base(run.audited, prompt, question, subject)
        return view, run.answer_questions([question])[0]
    view = look_inside(run.model, run.tokens, question, subject)
    return view, answer_all(run.model, run.tokens, [question])[0].text


@torch.inference_mode()
def look_inside_base(
    model: HuggingFaceModel, prompt: str, question: str, subject: str | None
) -> InsideView:
    """The attention of every layer and head at the last token of the question's prompt.

    Scores are known up to a constant, as logarithms of the weights; values are those of the cache.
    """
    ids = model.prompt(prompt)
    model.model.set_attn_implementation("eager")  # the others do not give their weights
    found = model.model(
        input_ids=torch.tensor([ids], device=model.device),
        use_cache=True,
        output_attentions=True,
        logits_to_keep=1,
    )
    if not found.attentions or any(each is None for each in found.attentions):
        raise UserError(
            f"{model.name} ({type(model.model).__name__}) does not give its attention "
            "weights, so nothing can be shown of them."
        )
    name = find_name(model, prompt, question, subject)
    heads, maps = [], []
    for layer, weights in enumerate(found.attentions):
        record = attention_record(weights.float().cpu(), found.past_key_values, layer)
        maps.append(record.weights[0].double().numpy())
        for head in range(record.weights.shape[1]):
            heads.append(view_head(record, layer, head, name))
    tokens = tuple(model.tokens.convert_ids_to_tokens(ids))
    shown = tuple(model.decode([token]) or str(tokens[i] or "") for i, token in enumerate(ids))
    return InsideView(question, shown, name, tuple(maps), tuple(heads))


def attention_record(weights: Any, past: Any, layer: int) -> AttentionRecord:
    """What a layer attended to; groups of heads share their values."""
    values = past.layers[layer].values.float().cpu()
    values = values.repeat_interleave(weights.shape[1] // values.shape[1], dim=1)
    # a layer with a sliding window keeps the values of the last tokens only
    values = torch.nn.functional.pad(values, (0, 0, weights.shape[-1] - values.shape[2], 0))
    return AttentionRecord(weights=weights, scores=weights.log(), values=values)


def find_name(
    model: HuggingFaceModel, prompt: str, question: str, subject: str | None
) -> tuple[int, ...]:
    """The places in the prompt of the tokens that spell the subject; () if it is not there."""
    start = prompt.rfind(question)
    offset = question.find(subject) if subject else -1
    if start < 0 or offset < 0:
        return ()
    start += offset
    before = prompt[:start].rstrip()
    first = len(model.prompt(before)) if before else 0
    return tuple(range(first, len(model.prompt(prompt[: start + len(subject or "")]))))
