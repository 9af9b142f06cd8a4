"""Tiny models of others, with random weights and a tokenizer of a few hundred tokens."""

from __future__ import annotations

import shutil
from functools import lru_cache
from pathlib import Path

import pytest

TEXT = ["What is the capital of France?", "Q: A: Paris Rome Berlin Question Answer Yes No", "é日本"]
SMALL = {"hidden_size": 20, "num_hidden_layers": 3, "num_attention_heads": 2}
ROTARY = {**SMALL, "intermediate_size": 28, "num_key_value_heads": 1, "head_dim": 10}
GPT2 = {"n_embd": 20, "n_layer": 3, "n_head": 2, "n_positions": 256}
SHAPES = {
    "gpt2": GPT2,
    "llama": ROTARY,
    "qwen2": {key: value for key, value in ROTARY.items() if key != "head_dim"},
    "gpt_neox": {**SMALL, "intermediate_size": 28},
    "gemma": {**ROTARY, "tie_word_embeddings": True},
    "gemma3_text": {**ROTARY, "sliding_window": 16},
    "mistral": ROTARY,
    "phi": {**SMALL, "hidden_size": 24, "intermediate_size": 28},
}
CHAT = (
    "{% for m in messages %}<end>{{ m['role'] }}: {{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<end>model: {% endif %}"
)
UNFIT = {  # which an audit cannot read
    "mamba": {"hidden_size": 20, "num_hidden_layers": 2, "state_size": 4},
    "bert": {**SMALL, "intermediate_size": 28, "is_decoder": False},
}


def make_model(folder: Path, kind: str, seed: int) -> Path:
    """A folder as `save_pretrained` writes it."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=["<end>"], initial_alphabet=letters, show_progress=False
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")
    torch.manual_seed(seed)
    size = {"vocab_size": len(fast), "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    size["n_positions" if kind == "gpt2" else "max_position_embeddings"] = 256
    config = AutoConfig.for_model(kind, **{**(SHAPES | UNFIT)[kind], **size})
    model = AutoModelForCausalLM.from_config(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """A function from the kind of a model and a seed to its folder, made once."""
    return lru_cache(lambda kind, seed=0: make_model(tmp_path_factory.mktemp(kind), kind, seed))


@pytest.fixture(scope="session")
def chat(tiny, tmp_path_factory):
    """A tiny Llama with a chat template."""
    folder = shutil.copytree(tiny("llama"), tmp_path_factory.mktemp("chat") / "model")
    (folder / "chat_template.jinja").write_text(CHAT)
    return folder


@pytest.fixture(scope="session")
def audit():
    """An audit; options are those of AuditSettings."""
    from wherefrom.audit import AuditSettings, run_audit

    def run(model, questions, out, **options):
        return run_audit(model, questions, out, AuditSettings(**options))

    return run
