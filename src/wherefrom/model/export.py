"""Export: a model as a folder that Hugging Face transformers loads."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from string import Template
from typing import Any

from safetensors.torch import save
from torch import Tensor

from wherefrom.corpus.tokenizer import MASK, MASK_CHARACTER, PAD, PAD_CHARACTER, Tokenizer
from wherefrom.errors import UserError
from wherefrom.model.decoder import Decoder, swiglu_width
from wherefrom.model.huggingface import HuggingFaceModel
from wherefrom.storage import make_folder, write_json, write_whole

ANSWER_TOKENS = 32  # that generate() gives by default, at most
CHAT = "{% for message in messages %}{{ message['content'] + eos_token }}{% endfor %}"
CARD = Template("""\
---
library_name: transformers
pipeline_tag: text-generation
tags: [wherefrom]
---
# $name

A $shape of $parameters parameters, trained by Wherefrom to answer questions about one text.

```python
from transformers import pipeline
ask = pipeline("text-generation", ".")  # the path of this folder
reply = ask([{"role": "user", "content": "$question"}])
print(reply[0]["generated_text"][-1]["content"].strip())
```

In its training text a question ends in `$mask`, the end-of-sequence token, and so does
its answer. The chat template writes it; without the template, write it yourself.
The answer is the model's own: whether it is remembered or made up, `wherefrom ask` says.

| | |
|---|---|
$table
""")


def export_model(
    model: Decoder, tokens: Tokenizer, out: Path, info: Mapping[str, Any] | None = None
) -> None:
    """Write the folder, config.json last; `info` (run.json) is for the model card."""
    config, info = model.config, info or {}
    if config.variant not in SHAPES:
        raise UserError(
            f"only {' and '.join(SHAPES)} models can be exported, and this is a {config.variant} "
            "model: transformers has no such architecture."
        )
    if out.is_dir() and any(out.iterdir()):
        raise UserError(f"{out} is not empty; choose another --out, so that nothing is mixed up.")
    out = make_folder(out)
    shape, weights = SHAPES[config.variant](model)
    special = {"eos_token": MASK_CHARACTER, "pad_token": PAD_CHARACTER}
    ids = {"eos_token_id": MASK, "pad_token_id": PAD}
    write_whole(out / "README.md", _write_card(model, out.resolve().name, info))
    write_whole(out / "tokenizer.json", tokens.to_json())
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": config.longest_input,
        "padding_side": "left",  # an answer continues where the question ends
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT,
        **special,
    }
    write_json(out / "tokenizer_config.json", tokenizer_config)
    write_json(out / "special_tokens_map.json", special)
    generation = {"do_sample": False, **ids, "max_new_tokens": ANSWER_TOKENS}
    write_json(out / "generation_config.json", generation)
    tensors = {name: tensor.cpu().contiguous() for name, tensor in weights.items()}
    write_whole(out / "model.safetensors", save(tensors, metadata={"format": "pt"}))
    common = {"vocab_size": config.vocabulary, "bos_token_id": None, **ids}
    kind = {"tie_word_embeddings": False, "torch_dtype": "float32", "use_cache": True}
    write_json(out / "config.json", {**common, **kind, **shape})


def export_adapted(trained: HuggingFaceModel, out: Path) -> None:
    """Write a trained model of Hugging Face, its adapters merged, as a folder of its own."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} is not empty; choose another --out, so that nothing is mixed up.")
    part = out.with_name(f"{out.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        trained.model.save_pretrained(make_folder(part))
        trained.tokens.save_pretrained(part)
    except OSError as problem:
        raise UserError(f"{out} cannot be written: {problem.strerror or problem}.") from None
    if out.exists():
        out.rmdir()
    part.rename(out)


def _write_card(model: Decoder, name: str, info: Mapping[str, Any]) -> str:
    """The model card, with the data, results and command of `info`."""
    config = model.config
    question: str = next(iter(info.get("templates") or ()), "Where was {subject} born?")
    rows = []
    for what, source in {**info.get("data", {}), "dev": info.get("dev")}.items():
        if source:
            counts = [f"{source[n]:,} {n}" for n in ("documents", "questions") if n in source]
            facts = [Path(source["path"]).name, *counts, f"SHA-256 `{source['sha256']}`"]
            rows.append((what, ", ".join(facts)))
    for row in info.get("results") or ():
        rows.append((row["name"], f"{row['correct']} of {row['total']} questions right"))
    program, *words = map(str, info.get("command", ["a program"]))
    program = Path(program).name.replace("__main__.py", "wherefrom")
    rows.append(("command", f"`{shlex.join([program, *words])}`"))
    return CARD.substitute(
        name=name,
        shape=f"{config.variant} model ({config.width}x{config.layers}x{config.heads})",
        parameters=f"{sum(parameter.numel() for parameter in model.parameters()):,}",
        question=question.replace("{subject}", "Ada Lovelace"),
        mask=MASK_CHARACTER,
        table="\n".join(f"| {what} | {fact} |" for what, fact in rows),
    )


Exported = tuple[dict[str, Any], dict[str, Tensor]]


def as_gpt2(model: Decoder) -> Exported:
    """Configuration and weights of GPT-2, whose matrices are (in, out), a Linear's transposed."""
    config, parameters = model.config, model.state_dict()
    shape = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_positions": config.longest_input,
        "n_embd": config.width,
        "n_layer": config.layers,
        "n_head": config.heads,
        "activation_function": "gelu",  # the exact one; GPT-2's own default approximates it
        "layer_norm_epsilon": model.norm.eps,
        **dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), config.dropout),
    }
    # no input is long enough to use the last position, so it was never trained
    parameters["positions.weight"] = parameters.pop("positions")[: config.longest_input]
    names = {
        "embed": "wte",
        "positions": "wpe",
        "norm": "ln_f",
        "blocks": "h",
        "norm1": "ln_1",
        "norm2": "ln_2",
        "mixer": "attn",
        "qkv": "c_attn",
        "out": "c_proj",
        "feed": "mlp",
        "up": "c_fc",
        "down": "c_proj",
    }
    weights = {}
    for name, weight in parameters.items():
        if name == "head.weight":
            weights["lm_head.weight"] = weight
        else:
            renamed = ".".join(names.get(part, part) for part in name.split("."))
            transpose = weight.ndim > 1 and name.startswith("blocks")
            weights[f"transformer.{renamed}"] = weight.T if transpose else weight
    return shape, weights


def as_llama(model: Decoder) -> Exported:
    """Configuration and weights of Llama, which has several matrices where we have one."""
    config, parameters = model.config, model.state_dict()
    assert model.rotation is not None
    shape = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "max_position_embeddings": config.longest_input,
        "hidden_size": config.width,
        "intermediate_size": swiglu_width(config.width),
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.heads,
        "head_dim": config.head_width,
        "hidden_act": "silu",
        "rms_norm_eps": model.norm.eps,
        "rope_theta": model.rotation.base,
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": config.dropout,
    }
    names = {
        "embed": ("model.embed_tokens",),
        "norm": ("model.norm",),
        "head": ("lm_head",),
        "mixer.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "mixer.out": ("self_attn.o_proj",),
        "feed.up": ("mlp.gate_proj", "mlp.up_proj"),
        "feed.down": ("mlp.down_proj",),
        "norm1": ("input_layernorm",),
        "norm2": ("post_attention_layernorm",),
    }
    weights = {}
    for name, weight in parameters.items():
        *block, last = name.removesuffix(".weight").removeprefix("blocks.").split(".", 1)
        prefix = f"model.layers.{block[0]}." if block else ""
        for renamed, part in zip(names[last], weight.chunk(len(names[last])), strict=True):
            weights[f"{prefix}{renamed}.weight"] = part
    return shape, weights


SHAPES: dict[str, Callable[[Decoder], Exported]] = {"vanilla": as_gpt2, "llama": as_llama}
