"""An exported model is loaded by transformers alone and gives the same answers."""

from __future__ import annotations

import importlib
import json

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
INFO = {
    "templates": ["Where was {subject} born?", "What did {subject} do?"],
    "data": {"corpus": {"path": "/home/me/people.txt", "sha256": "abc", "documents": 1234}},
    "results": [{"name": "model", "correct": 41, "total": 50}],
    "command": ["/usr/bin/wherefrom", "study", "my people.txt"],
}


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


@pytest.fixture(scope="module", params=[("vanilla", "chars"), ("llama", "bpe")])
def exported(request, tmp_path_factory):
    """A trained model, its tokens, and the folder it was exported to."""
    variant, kind = request.param
    tokens = tokens_of(kind)
    model = model_of(variant, tokens)
    if model.rotation is not None:  # another base than everybody's default has to come along
        model.rotation = Rotation(model.config.head_width, BLOCK, base=700.0)
    run_training(model, tokens)
    folder = tmp_path_factory.mktemp("exported") / "new" / "folder"
    export_model(model, tokens, folder, INFO)
    return model, tokens, folder


@pytest.fixture
def transformers(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return pytest.importorskip("transformers", reason="transformers is not installed")


def random_ids(tokens: Tokenizer, length: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, tokens.size, (3, length), generator=generator)


def test_logits_and_greedy_answers_are_equal(transformers, exported):
    model, tokens, folder = exported
    loaded, found = transformers.AutoModelForCausalLM.from_pretrained(
        folder, output_loading_info=True
    )
    assert not any(found.values()), found  # nothing missing, nothing left over
    ids = random_ids(tokens, BLOCK - 1)
    with torch.inference_mode():
        ours = model(ids)
        theirs = loaded.eval()(ids, attention_mask=torch.ones_like(ids)).logits
    assert ours.std() > 0.5  # so that the tolerance means something
    torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-4)
    unread = model.config.width if model.positions is not None else 0  # the last position
    sizes = [sum(p.numel() for p in each.parameters()) for each in (model, loaded)]
    assert sizes[1] == sizes[0] - unread

    questions = [question for question, _ in ASKED]
    answers = answer_all(model, tokens, questions, longest=20)
    assert sum(answer.ids[-1] == MASK for answer in answers) >= 40
    assert len({answer.text for answer in answers}) >= 3
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    # questions of all lengths in one batch: padding goes to the left, as the folder says
    asked = tokenizer(
        [q + tokenizer.eos_token for q in questions], padding=True, return_tensors="pt"
    )
    given = {name: asked[name] for name in ("input_ids", "attention_mask")}
    said = loaded.generate(**given, max_new_tokens=20)[:, asked["input_ids"].shape[1] :]
    texts = tokenizer.batch_decode(said, skip_special_tokens=True)
    assert [text.strip() for text in texts] == [answer.text for answer in answers]


def test_the_tokenizer_cuts_text_as_ours_does(transformers, exported):
    _, tokens, folder = exported
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert (len(tokenizer), tokenizer.model_max_length) == (tokens.size, BLOCK - 1)
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id) == (PAD, MASK)
    for question, place in ASKED:
        expected = [*tokens.encode(question), MASK, *tokens.encode(place), MASK]
        ids = tokenizer(question + tokenizer.eos_token + place + tokenizer.eos_token)["input_ids"]
        assert ids == expected
        assert tokenizer.decode(tokens.encode(place)).strip() == place


def test_the_folder_holds_data_alone_and_its_card_says_how_to_ask(
    transformers, exported, monkeypatch, capsys
):
    model, tokens, folder = exported
    assert {path.suffix for path in folder.iterdir()} == {".md", ".json", ".safetensors"}
    assert "auto_map" not in json.loads((folder / "config.json").read_text())
    generation = json.loads((folder / "generation_config.json").read_text())
    assert generation["max_new_tokens"] == LONGEST_ANSWER  # as in our decoding
    card = (folder / "README.md").read_text()
    assert "| corpus | people.txt, 1,234 documents, SHA-256 `abc` |" in card
    assert "| model | 41 of 50 questions right |" in card
    assert "| command | `wherefrom study 'my people.txt'` |" in card
    code = card.split("```")[1].removeprefix("python\n")
    question = ASKED[3][0]
    monkeypatch.chdir(folder)
    capsys.readouterr()
    exec(code.replace("Where was Ada Lovelace born?", question))
    (answer,) = answer_all(model, tokens, [question])
    assert capsys.readouterr().out.strip() == answer.text


@pytest.mark.parametrize("library", ["transformer_lens", "nnsight"])
def test_the_tools_of_the_field_load_it_with_equal_logits(transformers, exported, library):
    tools = pytest.importorskip(library, reason=f"{library} is not installed")
    model, tokens, folder = exported
    ids = random_ids(tokens, 23)
    with torch.no_grad():
        if library == "nnsight":
            loaded = tools.TransformersModel(str(folder), task="text-generation")
            with loaded.trace(ids):
                theirs = loaded.lm_head.output.save()
        else:
            bridge = importlib.import_module("transformer_lens.model_bridge").TransformerBridge
            theirs = bridge.boot_transformers(str(folder), device="cpu")(ids)
        torch.testing.assert_close(theirs, model(ids), rtol=0, atol=1e-4)


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
