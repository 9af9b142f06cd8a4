"""What is exported is loaded by transformers alone, and says the same."""

from __future__ import annotations

import json
import os
from types import ModuleType

import pytest
import torch

from wherefrom.corpus.tokenizer import MASK, PAD, Tokenizer
from wherefrom.errors import UserError
from wherefrom.model.config import make_config
from wherefrom.model.decoder import Decoder
from wherefrom.model.export import SHAPES, export_model
from wherefrom.model.mixers import VARIANTS, Rotation
from wherefrom.recall.decode import LONGEST_ANSWER, answer_all

NAMES = ["Ann Lee", "Bo Ek", "Cy Orr", "Łucja Żak", "Zoë d'Arc", "Ulf Ö. Berg", "Mei", "Ida X"]
PLACES = ["Oslo", "Łódź", "São Paulo", "Bonn", "New York City"]
ASKED = [
    (f"Where was {name} {which} born?", PLACES[(3 * i + which) % len(PLACES)])
    for which in range(7)
    for i, name in enumerate(NAMES)
][:50]
BLOCK = 61


def tokens_of(kind: str) -> Tokenizer:
    texts = [f"{question} {place}" for question, place in ASKED]
    return Tokenizer.of_characters(texts) if kind == "chars" else Tokenizer.of_bpe(texts, 337)


def model_of(variant: str, tokens: Tokenizer) -> Decoder:
    """Random, with every parameter away from its start, the unread last position included."""
    config = make_config(
        variant=variant,
        vocabulary=tokens.size,
        block=BLOCK,
        layers=3,
        heads=5,
        width=30,
        latents=7,
        dropout=0.1,
    )
    generator = torch.Generator().manual_seed(0)
    model = Decoder(config).initialise(generator).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model


def run_training(model: Decoder, tokens: Tokenizer) -> None:
    """Learn answers until they are words of several kinds that end: answers worth comparing."""
    rows = [
        [*tokens.encode(question), MASK, *tokens.encode(place), MASK] for question, place in ASKED
    ]
    ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
    for row, values in zip(ids, rows, strict=True):
        row[: len(values)] = torch.tensor(values)
    answers = (ids == MASK).cumsum(dim=1).roll(1, dims=1) == 1
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(40):
        logits = model(ids[:, :-1])[answers[:, 1:]]
        loss = torch.nn.functional.cross_entropy(logits, ids[:, 1:][answers[:, 1:]])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@pytest.fixture(scope="module")
def transformers() -> ModuleType:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    return pytest.importorskip("transformers", reason="transformers is not installed")


BOTH_SHAPES = pytest.mark.parametrize("variant", ["vanilla", "llama"])
BOTH_KINDS = pytest.mark.parametrize("kind", ["chars", "bpe"])


@BOTH_SHAPES
def test_the_logits_are_equal(transformers, tmp_path, variant):
    tokens = tokens_of("chars")
    model = model_of(variant, tokens)
    if model.rotation is not None:  # another base than everybody's default has to come along
        model.rotation = Rotation(model.config.head_width, BLOCK, base=700.0)
    export_model(model, tokens, tmp_path)
    loaded, found = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not any(found.values()), found  # nothing missing, nothing left over
    loaded.eval()
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(0, tokens.size, (3, BLOCK - 1), generator=generator)
    with torch.inference_mode():
        ours = model(ids)
        theirs = loaded(ids, attention_mask=torch.ones_like(ids)).logits
    assert ours.std() > 0.5  # so that the tolerance means something
    torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-4)
    assert sum(p.numel() for p in loaded.parameters()) == sum(
        p.numel() for p in model.parameters()
    ) - (model.config.width if variant == "vanilla" else 0)  # the position that nothing reads


@pytest.mark.parametrize(("variant", "kind"), [("vanilla", "chars"), ("llama", "bpe")])
def test_fifty_questions_get_the_same_greedy_answers(transformers, tmp_path, variant, kind):
    tokens = tokens_of(kind)
    model = model_of(variant, tokens)
    run_training(model, tokens)
    export_model(model, tokens, tmp_path)
    questions = [question for question, _ in ASKED]
    ours = answer_all(model, tokens, questions, longest=20)
    assert sum(said.closed for said in ours) >= 40
    assert len({said.text for said in ours}) >= 3

    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    # questions of all lengths in one batch: padding goes to the left, as the folder says
    asked = tokenizer(
        [q + tokenizer.eos_token for q in questions], padding=True, return_tensors="pt"
    )
    said = loaded.generate(
        input_ids=asked["input_ids"], attention_mask=asked["attention_mask"], max_new_tokens=20
    )
    texts = tokenizer.batch_decode(said[:, asked["input_ids"].shape[1] :], skip_special_tokens=True)
    assert [text.strip() for text in texts] == [answer.text for answer in ours]


@BOTH_KINDS
def test_the_tokenizer_cuts_text_as_ours_does(transformers, tmp_path, kind):
    tokens = tokens_of(kind)
    export_model(model_of("llama", tokens), tokens, tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert len(tokenizer) == tokens.size
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id) == (PAD, MASK)
    assert tokenizer.model_max_length == BLOCK - 1
    for question, place in ASKED:
        expected = [*tokens.encode(question), MASK, *tokens.encode(place), MASK]
        ids = tokenizer(question + tokenizer.eos_token + place + tokenizer.eos_token)["input_ids"]
        assert ids == expected
        assert tokenizer.decode(tokens.encode(place)).strip() == place


@BOTH_SHAPES
def test_the_folder_holds_these_files_and_no_pickle_and_no_code(tmp_path, variant):
    tokens = tokens_of("chars")
    export_model(model_of(variant, tokens), tokens, tmp_path / "new" / "folder")
    folder = tmp_path / "new" / "folder"
    assert sorted(path.name for path in folder.iterdir()) == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    config = json.loads((folder / "config.json").read_text())
    assert "auto_map" not in config
    assert config["tie_word_embeddings"] is False
    generation = json.loads((folder / "generation_config.json").read_text())
    assert (generation["eos_token_id"], generation["pad_token_id"]) == (MASK, PAD)
    assert generation["max_new_tokens"] == LONGEST_ANSWER  # what our decoding may say


@pytest.mark.parametrize("variant", sorted(set(VARIANTS) - set(SHAPES)))
def test_a_shape_that_nobody_else_knows_is_refused_in_one_sentence(tmp_path, variant):
    tokens = tokens_of("chars")
    with pytest.raises(UserError, match=f"only vanilla and llama .* {variant}") as caught:
        export_model(model_of(variant, tokens), tokens, tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_what_stands_in_the_place_of_the_folder_is_left_as_it_is(tmp_path):
    tokens = tokens_of("chars")
    model = model_of("llama", tokens)
    mine = tmp_path / "config.json"
    mine.write_text("mine")
    for out, says in ((tmp_path, "not empty"), (mine, "a folder was expected")):
        with pytest.raises(UserError, match=says):
            export_model(model, tokens, out)
        assert list(tmp_path.iterdir()) == [mine]
        assert mine.read_text() == "mine"
