"""The interface to a model, against transformers' own generate and one prompt at a time."""

from __future__ import annotations

import json
import shutil
from string import ascii_letters, ascii_lowercase, ascii_uppercase

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from wherefrom.corpus.tokenizer import Tokenizer
from wherefrom.errors import UserError
from wherefrom.model.config import make_config
from wherefrom.model.decoder import Decoder
from wherefrom.model.own import OwnModel
from wherefrom.provenance.audited import open_model

BEFORE = "Q: What is the capital of Italy?\nA: Rome\n"
NAMES = ["France", "Peru", "the Netherlands", "日本", "Chad", "Fra"]
PROMPTS = [f"{BEFORE}Q: What is the capital of {name}?\nA:" for name in NAMES]


@pytest.mark.parametrize("kind", ["gpt2", "llama", "qwen2", "gpt_neox", "gemma"])
def test_answers_are_those_of_generate_and_so_are_scores(tiny, kind):
    model = open_model(tiny(kind))
    prompts = [model.prompt(text) for text in PROMPTS]
    replies = model.answer(prompts, longest=7)
    for prompt, reply in zip(prompts, replies, strict=True):
        ids = torch.tensor([prompt])
        options = {"attention_mask": torch.ones_like(ids), "do_sample": False, "eos_token_id": None}
        found = model.model.generate(ids, max_new_tokens=len(reply.ids), **options)
        assert found[0, len(prompt) :].tolist() == reply.ids
        logits = model.model(found).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        own = logits.gather(1, torch.tensor(reply.ids)[:, None])[:, 0]
        assert np.allclose(own.detach().numpy(), reply.log_probabilities, atol=2e-5)
        closing = [i for i, token in enumerate(reply.ids) if model.closes(token)]
        assert closing == ([len(reply.ids) - 1] if len(reply.ids) < 7 else closing[:1])
    # scored, they are the same: padding on the right changes nothing
    parts = [reply.ids[: 2 + i] for i, reply in enumerate(replies)]
    for reply, (own, other) in zip(replies, model.score(prompts, parts), strict=True):
        assert np.allclose(own, reply.log_probabilities[: own.size], atol=2e-5)
        assert np.allclose(other, reply.other[: own.size], atol=2e-5)


def test_states_are_those_of_the_model(tiny):
    model = open_model(tiny("gpt2"))
    prompts = [model.prompt(text) for text in PROMPTS]
    places = [[len(prompt) - 5] for prompt in prompts]
    replies = model.answer(prompts, places=places, longest=3)
    for prompt, place, reply in zip(prompts, places, replies, strict=True):
        whole = torch.tensor([[*prompt, *reply.ids[:-1]]])
        states = model.model(whole, output_hidden_states=True).hidden_states
        kept = torch.stack([states[layer][0] for layer in model.state_layers])
        wanted = kept[:, [*place, len(prompt) - 1, whole.shape[1] - 1]].transpose(0, 1)
        assert np.allclose(reply.states, wanted.detach().numpy(), atol=2e-2, rtol=2e-3)


def test_samples_of_a_prompt_depend_on_it_alone_and_follow_the_model(tiny):
    model = open_model(tiny("gpt2"))
    prompts = [model.prompt(text) for text in PROMPTS]
    together = model.answer(prompts, samples=4, longest=2)
    alone = model.answer(prompts[2:3], samples=4, longest=2)[0]
    assert together[2].samples == alone.samples
    assert len(alone.samples) == 4
    vocabulary = range(len(model.tokens))
    many = model.answer(prompts[:1], samples=4000, known=[[i] for i in vocabulary], longest=1)[0]
    texts = [model.read_answer([token]) for token in vocabulary]
    for text in set(many.samples):
        likely = sum(np.exp(many.known[i]) for i in vocabulary if texts[i] == text)
        assert many.samples.count(text) / 4000 == pytest.approx(likely, abs=0.04)


def test_an_own_run_answers_as_it_does_itself(tiny_study):
    from wherefrom.recall.decode import answer_all

    model = open_model(tiny_study)
    assert isinstance(model, OwnModel)
    questions = [f"Where was {name} born?" for name in ("Ada Moe", "Tom Lee", "Ann Clark")]
    wanted = answer_all(model.decoder, model.tokens, questions)
    prompts = [model.prompt(f"{question}{model.mask}") for question in questions]
    found = model.answer(prompts, places=[[3]] * 3, longest=32)
    assert [reply.text for reply in found] == [answer.text for answer in wanted]
    for reply, answer in zip(found, wanted, strict=True):
        assert sum(reply.log_probabilities) == pytest.approx(answer.log_probability, abs=1e-4)


def test_an_own_run_scores_many_known_answers_as_it_scores_each():
    """There are more beginnings of answers than go through the model together."""
    tokens = Tokenizer.of_characters([f"{ascii_letters}? "])
    config = make_config(
        variant="llama", vocabulary=tokens.size, block=16, layers=2, heads=2, width=16
    )
    decoder = Decoder(config).initialise(torch.Generator().manual_seed(3)).eval()
    model = OwnModel(decoder, tokens)
    model.nodes = 32
    prompts = [model.prompt(f"{name}?{model.mask}") for name in ("Ada", "Bob")]
    known = [model.continuation("", f"{letter}{letter.upper()}") for letter in ascii_lowercase]
    known += [model.continuation("", letter) for letter in ascii_uppercase]
    scores = [[own.sum() for own, _ in model.score([p] * len(known), known)] for p in prompts]
    short = [len(ids) == 2 for ids in known]
    replies = model.answer(prompts, known=known, longest=3)
    for reply, expected in zip(replies, np.array(scores), strict=True):
        assert np.allclose(reply.known[short], expected[short], atol=1e-5)
        followed = np.isfinite(reply.known)
        assert np.allclose(reply.known[followed], expected[followed], atol=1e-5)


def break_it(folder, what):
    """The folder of a model with something wrong."""
    weights, config, tokens = (
        folder / name for name in ("model.safetensors", "config.json", "tokenizer.json")
    )
    if what == "nothing":
        return folder / "nothing"
    if what == "tokenizer":
        tokens.unlink()
    elif what == "pickled":
        weights.rename(folder / "pytorch_model.bin")
    elif what == "cut":
        weights.write_bytes(weights.read_bytes()[:5000])
    elif what == "not finite":
        tensors = load_file(weights)
        next(iter(tensors.values()))[:] = torch.nan
        save_file(tensors, weights, {"format": "pt"})
    elif what == "adapter":
        config.rename(folder / "adapter_config.json")
    elif what == "other tokenizer":
        record = json.loads(tokens.read_text())
        record["model"]["vocab"]["Q"] = len(record["model"]["vocab"]) + 9
        tokens.write_text(json.dumps(record))
    elif what == "shard":
        index = {"metadata": {}, "weight_map": {"a": "model-00001-of-00002.safetensors"}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        weights.unlink()
    elif isinstance(what, dict):
        config.write_text(json.dumps(json.loads(config.read_text()) | what))
    return folder


CODE = {"model_type": "mine", "auto_map": {"AutoModelForCausalLM": "mine.Mine"}}


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("tokenizer", "has no tokenizer"),
        ("pickled", "pickled.*save_pretrained"),
        ("cut", "cannot be loaded"),
        ("not finite", "its weights are damaged"),
        ({"n_layer": 4}, "do not match its config.json"),
        ("shard", "cannot be loaded"),
        (CODE, "cannot be"),
        ("adapter", "adapter of PEFT.*merge_and_unload"),
        ("other tokenizer", "gives token .* and the model has"),
        ("nothing", "nothing is downloaded"),
        ({"architectures": ["T5ForConditionalGeneration"]}, "takes a model that continues a text"),
        ("mamba", "does not read from left to right"),
        ("bert", "does not read from left to right"),
    ],
)
def test_what_cannot_be_loaded_is_a_sentence(tmp_path, tiny, what, sentence):
    kind = what if what in ("mamba", "bert") else "gpt2"  # which an audit cannot read
    folder = break_it(shutil.copytree(tiny(kind), tmp_path / "model"), what)
    with pytest.raises(UserError, match=sentence) as found:
        open_model(folder).prompt(PROMPTS[0])
    assert "\n" not in str(found.value)


def test_sharded_weights_are_one_model(tmp_path, tiny):
    from transformers import AutoModelForCausalLM

    folder = shutil.copytree(tiny("llama"), tmp_path / "sharded")
    whole = AutoModelForCausalLM.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    whole.save_pretrained(folder, max_shard_size="20KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    one, other = open_model(tiny("llama")), open_model(folder)
    prompt = one.prompt(PROMPTS[0])
    assert one.answer([prompt])[0].ids == other.answer([prompt])[0].ids
    assert one.sha256 != other.sha256 == open_model(folder).sha256
