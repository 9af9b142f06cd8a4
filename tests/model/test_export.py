"""What is exported is loaded by transformers alone, and says the same."""

from __future__ import annotations

import importlib
import json
import os
from types import ModuleType

import pytest
import torch

from wherefrom.corpus.tokenizer import MASK, PAD, Tokenizer
from wherefrom.errors import UserError
from wherefrom.model.config import make_config
from wherefrom.model.decoder import Decoder
from wherefrom.model.export import export_model
from wherefrom.model.mixers import Rotation
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
    shape = {"block": BLOCK, "layers": 3, "heads": 5, "width": 30, "latents": 7, "dropout": 0.1}
    config = make_config(variant=variant, vocabulary=tokens.size, **shape)
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
    folder = tmp_path / "new" / "folder"
    export_model(model_of(variant, tokens), tokens, folder)
    assert {path.suffix for path in folder.iterdir()} == {".md", ".json", ".safetensors"}
    config = json.loads((folder / "config.json").read_text())
    assert "auto_map" not in config
    assert config["tie_word_embeddings"] is False
    generation = json.loads((folder / "generation_config.json").read_text())
    assert (generation["eos_token_id"], generation["pad_token_id"]) == (MASK, PAD)
    assert generation["max_new_tokens"] == LONGEST_ANSWER  # what our decoding may say


def test_the_card_says_data_recall_and_command_and_its_code_asks_a_question(
    transformers, tmp_path, monkeypatch, capsys
):
    tokens = tokens_of("chars")
    model = model_of("vanilla", tokens)
    run_training(model, tokens)
    about = {"path": "/home/me/people.txt", "sha256": "abc", "documents": 1234}
    info = {
        "templates": ["Where was {subject} born?", "What did {subject} do?"],
        "data": {"corpus": about},
        "results": [{"name": "pretrained", "correct": 41, "total": 50}],
        "command": ["/usr/bin/wherefrom", "study", "my people.txt"],
    }
    export_model(model, tokens, tmp_path / "it", info)
    card = (tmp_path / "it" / "README.md").read_text()
    assert "| corpus | people.txt, 1,234 documents, SHA-256 `abc` |" in card
    assert "| pretrained | 41 of 50 questions right |" in card
    assert "| command | `wherefrom study 'my people.txt'` |" in card
    code = card.split("```")[1].removeprefix("python\n")
    assert code.count("\n") == 4
    question = ASKED[3][0]
    monkeypatch.chdir(tmp_path / "it")
    capsys.readouterr()
    exec(code.replace("Where was Ada Lovelace born?", question))
    [ours] = answer_all(model, tokens, [question])
    assert capsys.readouterr().out.strip() == ours.text


@BOTH_SHAPES
@pytest.mark.parametrize("library", ["transformer_lens", "nnsight"])
def test_the_tools_of_the_field_load_it_with_equal_logits(transformers, tmp_path, variant, library):
    tools = pytest.importorskip(library, reason=f"{library} is not installed")
    tokens = tokens_of("chars")
    model = model_of(variant, tokens)
    export_model(model, tokens, tmp_path / "it")
    ids = torch.randint(0, tokens.size, (3, 23), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        ours = model(ids)
        if library == "nnsight":
            loaded = tools.TransformersModel(str(tmp_path / "it"), task="text-generation")
            with loaded.trace(ids):
                theirs = loaded.lm_head.output.save()
        else:
            bridge = importlib.import_module("transformer_lens.model_bridge").TransformerBridge
            theirs = bridge.boot_transformers(str(tmp_path / "it"), device="cpu")(ids)
    torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-4)


def test_another_shape_or_a_folder_that_is_taken_is_refused_and_left_as_it_is(tmp_path):
    tokens, mine = tokens_of("chars"), tmp_path / "config.json"
    mine.write_text("mine")
    for variant, out, says in (
        ("synthesizer", tmp_path / "out", "only vanilla and llama .* synthesizer"),
        ("llama", tmp_path, "not empty"),
        ("llama", mine, "a folder was expected"),
    ):
        with pytest.raises(UserError, match=says):
            export_model(model_of(variant, tokens), tokens, out)
        assert list(tmp_path.iterdir()) == [mine]
        assert mine.read_text() == "mine"
