"""The way out to the ecosystem: a model as a folder that Hugging Face transformers loads.

Two variants have the very shape of a model that the ecosystem knows, so their weights only need
other names: `vanilla` is a GPT-2 (with a head of its own) and `llama` is a Llama. The vocabulary
goes along as the same tokenizer.json that a run keeps. A question is asked as the question with
the eos token, which is MASK, behind it; the answer ends at the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save
from torch import Tensor

from wherefrom.corpus.tokenizer import MASK, MASK_CHARACTER, PAD, PAD_CHARACTER, Tokenizer
from wherefrom.errors import UserError
from wherefrom.model.decoder import Decoder, swiglu_width
from wherefrom.storage import make_folder, write_json, write_whole

ANSWER_TOKENS = 32  # what generate() may say when it is not told otherwise


@dataclass(frozen=True)
class Shape:
    """What an exported model is called elsewhere: its configuration, and its weights' names."""

    config: Callable[[Decoder], dict[str, Any]]
    weights: Callable[[Decoder], Iterator[tuple[str, Tensor]]]


def export_model(model: Decoder, tokens: Tokenizer, out: Path) -> None:
    """Write the folder; config.json comes last, so that half a folder is never taken for one."""
    variant = model.config.variant
    if variant not in SHAPES:
        raise UserError(
            f"only {' and '.join(SHAPES)} can be exported, and this is a {variant} model: "
            "transformers has no architecture of that shape that would load without code of ours."
        )
    if out.is_dir() and any(out.iterdir()):
        raise UserError(f"{out} is not empty; choose another --out, so that nothing is mixed up.")
    out = make_folder(out)
    shape = SHAPES[variant]
    weights = {name: tensor.cpu().contiguous() for name, tensor in shape.weights(model)}
    write_whole(out / "tokenizer.json", tokens.to_json())
    write_json(out / "tokenizer_config.json", _tokenizer_config(model))
    write_json(out / "special_tokens_map.json", _special_tokens())
    write_json(out / "generation_config.json", _generation_config())
    write_whole(out / "model.safetensors", save(weights, metadata={"format": "pt"}))
    write_json(out / "config.json", {**_common_config(model), **shape.config(model)})


def _gpt2_config(model: Decoder) -> dict[str, Any]:
    config = model.config
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_positions": config.longest_input,
        "n_embd": config.width,
        "n_layer": config.layers,
        "n_head": config.heads,
        "activation_function": "gelu",  # the exact one; GPT-2's own default approximates it
        "layer_norm_epsilon": model.norm.eps,
        "attn_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "resid_pdrop": config.dropout,
    }


def _gpt2_weights(model: Decoder) -> Iterator[tuple[str, Tensor]]:
    """GPT-2 keeps its matrices as (in, out), transposed to a Linear's (out, in)."""
    ours = model.state_dict()
    yield "transformer.wte.weight", ours["embed.weight"]
    # the last row would be read by no input that this model takes, so it was never trained
    yield "transformer.wpe.weight", ours["positions"][: model.config.longest_input]
    matrices = {
        "mixer.qkv": "attn.c_attn",
        "mixer.out": "attn.c_proj",
        "feed.up": "mlp.c_fc",
        "feed.down": "mlp.c_proj",
    }
    for number in range(model.config.layers):
        old, new = f"blocks.{number}", f"transformer.h.{number}"
        for matrix, name in matrices.items():
            yield f"{new}.{name}.weight", ours[f"{old}.{matrix}.weight"].T
            yield f"{new}.{name}.bias", ours[f"{old}.{matrix}.bias"]
        for norm, name in {"norm1": "ln_1", "norm2": "ln_2"}.items():
            yield f"{new}.{name}.weight", ours[f"{old}.{norm}.weight"]
            yield f"{new}.{name}.bias", ours[f"{old}.{norm}.bias"]
    yield "transformer.ln_f.weight", ours["norm.weight"]
    yield "transformer.ln_f.bias", ours["norm.bias"]
    yield "lm_head.weight", ours["head.weight"]


def _llama_config(model: Decoder) -> dict[str, Any]:
    config = model.config
    assert model.rotation is not None
    return {
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


def _llama_weights(model: Decoder) -> Iterator[tuple[str, Tensor]]:
    """Llama keeps apart what is one matrix here; both turn the pair (i, i + D/2)."""
    ours = model.state_dict()
    yield "model.embed_tokens.weight", ours["embed.weight"]
    for number in range(model.config.layers):
        old, new = f"blocks.{number}", f"model.layers.{number}"
        query, key, value = ours[f"{old}.mixer.qkv.weight"].chunk(3)
        yield f"{new}.self_attn.q_proj.weight", query
        yield f"{new}.self_attn.k_proj.weight", key
        yield f"{new}.self_attn.v_proj.weight", value
        yield f"{new}.self_attn.o_proj.weight", ours[f"{old}.mixer.out.weight"]
        gate, up = ours[f"{old}.feed.up.weight"].chunk(2)
        yield f"{new}.mlp.gate_proj.weight", gate
        yield f"{new}.mlp.up_proj.weight", up
        yield f"{new}.mlp.down_proj.weight", ours[f"{old}.feed.down.weight"]
        yield f"{new}.input_layernorm.weight", ours[f"{old}.norm1.weight"]
        yield f"{new}.post_attention_layernorm.weight", ours[f"{old}.norm2.weight"]
    yield "model.norm.weight", ours["norm.weight"]
    yield "lm_head.weight", ours["head.weight"]


SHAPES: dict[str, Shape] = {
    "vanilla": Shape(_gpt2_config, _gpt2_weights),
    "llama": Shape(_llama_config, _llama_weights),
}


def _common_config(model: Decoder) -> dict[str, Any]:
    return {
        "vocab_size": model.config.vocabulary,
        "bos_token_id": None,
        "eos_token_id": MASK,
        "pad_token_id": PAD,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "use_cache": True,
    }


def _special_tokens() -> dict[str, str]:
    return {"eos_token": MASK_CHARACTER, "pad_token": PAD_CHARACTER}


def _tokenizer_config(model: Decoder) -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": model.config.longest_input,
        "padding_side": "left",  # an answer goes on where the question ends
        "clean_up_tokenization_spaces": False,
        **_special_tokens(),
    }


def _generation_config() -> dict[str, Any]:
    return {
        "do_sample": False,
        "eos_token_id": MASK,
        "pad_token_id": PAD,
        "max_new_tokens": ANSWER_TOKENS,
    }
