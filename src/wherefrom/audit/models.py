"""A language model behind a small interface: greedy answers, log-probabilities, hidden states.

Prompts that go through a model together have one length, so that no architecture needs a mask for
padding; what all of them start with, which is most of a prompt with examples, is read once.
"""

from __future__ import annotations

import copy
import os
import zlib
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wherefrom.corpus.tokenizer import MASK, MASK_CHARACTER
from wherefrom.errors import UserError
from wherefrom.provenance.metrics import Floats
from wherefrom.storage import read_json
from wherefrom.training.run_folder import Run, is_run, load_run

Ids = list[int]
ROWS = 32  # prompts that go through the model together
LAYERS = 8  # of which hidden states are kept at most
SAMPLES = 10
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt")


@dataclass(eq=False)
class Reply:
    """What a model said to one prompt; `ids` are those of the text and the closing one, if any.

    log_probabilities: of each of the ids. other: of the likeliest other token in its place. first:
    log-probabilities of the tokens that were asked for, as the first of an answer. entropy: of the
    first token, in nats. samples: texts drawn at temperature 1. states: (places, layers, width)
    hidden states at the places asked for, the last token of the prompt, and that of the answer.
    """

    text: str = ""
    ids: Ids = field(default_factory=list)
    log_probabilities: list[float] = field(default_factory=list)
    other: list[float] = field(default_factory=list)
    entropy: float = 0.0
    first: Floats = field(default_factory=lambda: np.empty(0))
    samples: list[str] = field(default_factory=list)
    states: NDArray[np.float16] = field(default_factory=lambda: np.empty(0, np.float16))


class LanguageModel(ABC):
    """What an audit needs of a model; a subclass knows how to read tokens and keep a past.

    name: as users see it. longest: tokens that it reads. layers: how many hidden states each token
    has. mask: the text behind a question that makes the model answer it, where it has one. sha256:
    which weights these are.
    """

    name: str
    longest: int
    layers: int
    mask: str | None = None
    sha256: str
    device: torch.device

    @abstractmethod
    def encode(self, text: str, *, opening: bool = True) -> Ids:
        """The tokens of a text, behind the token that opens every text where the model has one."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str: ...

    @abstractmethod
    def forward(
        self, ids: Tensor, past: Any, keep: int, states: Sequence[int]
    ) -> tuple[Tensor, Tensor | None, Any]:
        """Logits (b, keep, V) of the last tokens, states (layers, b, t, width), and the past."""

    @abstractmethod
    def rows(self, past: Any, rows: Tensor) -> Any:
        """A past of its own for each of these rows; a row may come several times."""

    @abstractmethod
    def closes(self, token: int) -> bool:
        """Whether an answer ends with this token."""

    def is_unknown(self, ids: Ids) -> bool:
        """Whether a text had letters that the tokenizer has no token for."""
        return False

    def prompt(self, text: str) -> Ids:
        """The tokens of a prompt; one that ends in the mask has it as the model knows it."""
        return self.encode(text)

    def continuation(self, prompt: str, answer: str) -> Ids:
        """The tokens of an answer behind a prompt, and the one that closes it."""
        before = self.prompt(prompt)
        space = "" if prompt[-1:].isspace() else " "
        whole = self.encode(f"{prompt}{space}{answer}\n")
        if whole[: len(before)] == before:
            return whole[len(before) :]
        return self.encode(f"{space}{answer}\n", opening=False)

    @property
    def state_layers(self) -> list[int]:
        """The layers whose hidden states are kept: evenly spread, the last one among them."""
        return sorted({round(x) for x in np.linspace(1, self.layers, LAYERS + 1)[1:]})

    @torch.inference_mode()
    def answer(
        self,
        prompts: Sequence[Ids],
        *,
        places: Sequence[Sequence[int]] = (),
        first: Sequence[int] = (),
        samples: Sequence[int] = (),
        longest: int = 16,
        report: Callable[[int], None] | None = None,
    ) -> list[Reply]:
        """The greedy answer to each prompt, with hidden states at `places` where they are given.

        first: tokens whose probability is wanted as the first of an answer. samples: how many
        answers to draw for each prompt.
        """
        replies = [Reply() for _ in prompts]
        own = min((min(each, default=0) for each in places), default=len(prompts[0]))
        layers = self.state_layers if places else []
        for rows, past, ids in self._batches(prompts, own):
            begin = len(prompts[rows[0]]) - ids.shape[1]
            logits, states, past = self.forward(ids, past, 1, layers)
            likely = logits[:, 0].float().log_softmax(-1)
            for at, row in enumerate(rows):
                if states is not None:
                    asked = [*places[row], len(prompts[row]) - 1, len(prompts[row]) - 1]
                    kept = states[:, at, [place - begin for place in asked]]
                    replies[row].states = kept.transpose(0, 1).half().cpu().numpy()
                replies[row].first = likely[at, list(first)].double().cpu().numpy()
                replies[row].entropy = float(-(likely[at].exp() * likely[at]).nansum())
            room = min(longest, self.longest - len(prompts[rows[0]]) + 1)
            counts = [samples[row] if samples else 0 for row in rows]
            if any(counts):
                drawn = self._draw(likely, past, counts, room, [prompts[row] for row in rows])
                for row, texts in zip(rows, drawn, strict=True):
                    replies[row].samples = texts
            self._decode(likely, past, [replies[row] for row in rows], room, layers)
            if report is not None:
                report(len(rows))
        return replies

    def _decode(
        self, likely: Tensor, past: Any, replies: list[Reply], room: int, layers: list[int]
    ) -> None:
        """Go on greedily from the log-probabilities of the first tokens, row by row into replies.

        A row that has closed its answer drops out.
        """
        alive = list(range(len(replies)))
        for step in range(room):
            best = likely.topk(2, dim=-1)
            pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            for row, ((token, _), (own, other)) in zip(alive, pairs, strict=True):
                replies[row].ids.append(token)
                replies[row].log_probabilities.append(own)
                replies[row].other.append(other)
            on = [at for at, row in enumerate(alive) if not self.closes(replies[row].ids[-1])]
            if not on or step + 1 == room:
                break
            alive = [alive[at] for at in on]
            past = self.rows(past, torch.tensor(on, device=self.device))
            ids = best.indices[on, :1]
            logits, states, past = self.forward(ids, past, 1, layers)
            likely = logits[:, 0].float().log_softmax(-1)
            for at, row in enumerate(alive if states is not None else ()):
                assert states is not None
                replies[row].states[-1] = states[:, at, 0].half().cpu().numpy()
        for reply in replies:
            reply.text = self.read_answer(reply.ids)

    def _draw(
        self, likely: Tensor, past: Any, counts: list[int], room: int, prompts: Sequence[Ids]
    ) -> list[list[str]]:
        """Answers drawn at temperature 1; samples with the same beginning share the work.

        The draws of a prompt depend on it alone, not on those beside it.
        """
        rngs = [np.random.default_rng(zlib.crc32(str(ids).encode())) for ids in prompts]
        drawn: list[list[str]] = [[] for _ in prompts]
        nodes: list[tuple[int, Ids, int]] = [(row, [], n) for row, n in enumerate(counts) if n]
        keep = torch.tensor([row for row, _, _ in nodes], device=self.device)
        likely, past = likely[keep], self.rows(past, keep)
        for step in range(room):
            ends = likely.double().exp().cumsum(-1).cpu().numpy()
            deeper: list[tuple[int, Ids, int]] = []
            parents: list[int] = []
            for at, (row, said, many) in enumerate(nodes):
                places = np.searchsorted(ends[at], rngs[row].random(many) * ends[at, -1])
                for token, count in zip(*np.unique(places, return_counts=True), strict=True):
                    ids = [*said, int(token)]
                    if self.closes(int(token)) or step + 1 == room:
                        drawn[row] += [self.read_answer(ids)] * int(count)
                    else:
                        deeper.append((row, ids, int(count)))
                        parents.append(at)
            if not deeper:
                break
            nodes = deeper
            past = self.rows(past, torch.tensor(parents, device=self.device))
            last = torch.tensor([[ids[-1]] for _, ids, _ in nodes], device=self.device)
            logits, _, past = self.forward(last, past, 1, ())
            likely = logits[:, 0].float().log_softmax(-1)
        return drawn

    @torch.inference_mode()
    def score(
        self,
        prompts: Sequence[Ids],
        continuations: Sequence[Ids],
        report: Callable[[int], None] | None = None,
    ) -> list[tuple[Floats, Floats]]:
        """Of each continuation's tokens the log p, and that of the likeliest other token."""
        found: list[tuple[Floats, Floats]] = [(np.empty(0), np.empty(0))] * len(prompts)
        for rows, past, ids in self._batches(prompts, len(prompts[0]) if prompts else 0):
            told = [continuations[row] for row in rows]
            most = max(map(len, told))
            padded = torch.tensor([[*each, *[each[-1]] * (most - len(each))] for each in told])
            padded = padded.to(self.device)  # what stands behind a token does not change it
            logits, _, _ = self.forward(torch.cat([ids, padded[:, :-1]], 1), past, most, ())
            likely = logits.float().log_softmax(-1)
            own = likely.gather(-1, padded[..., None])
            other = likely.scatter(-1, padded[..., None], -torch.inf).max(-1).values
            for at, row in enumerate(rows):
                size = len(told[at])
                pair = own[at, :size, 0], other[at, :size]
                found[row] = (pair[0].double().cpu().numpy(), pair[1].double().cpu().numpy())
            if report is not None:
                report(len(rows))
        return found

    def _batches(self, prompts: Sequence[Ids], own: int) -> Iterator[tuple[list[int], Any, Tensor]]:
        """Rows of one length, the past that they share, and their tokens behind it.

        The first `own` tokens at most are taken for shared.
        """
        if not prompts:
            return
        low, high = min(prompts), max(prompts)
        most = min(own, len(low) - 1, len(high) - 1, *(len(each) - 1 for each in prompts))
        shared = 0
        while shared < most and low[shared] == high[shared]:
            shared += 1
        start = None
        if shared:
            ids = torch.tensor([low[:shared]], device=self.device)
            start = self.forward(ids, None, 1, ())[2]
        groups: dict[int, list[int]] = defaultdict(list)
        for at, prompt in enumerate(prompts):
            groups[len(prompt)].append(at)
        for _, members in sorted(groups.items()):
            for at in range(0, len(members), ROWS):
                rows = members[at : at + ROWS]
                zeros = torch.zeros(len(rows), dtype=torch.long, device=self.device)
                past = None if start is None else self.rows(start, zeros)
                ids = torch.tensor([prompts[row][shared:] for row in rows], device=self.device)
                yield rows, past, ids

    def read_answer(self, ids: Sequence[int]) -> str:
        """The text of an answer: up to the first line break or closing token."""
        kept = list(ids[:-1]) if ids and self.closes(ids[-1]) else list(ids)
        tail = self.decode(ids[-1:]).split("\n")[0] if len(kept) < len(ids) else ""
        text = self.decode(kept) + ("" if self.mask else tail)
        return text.strip().split("\n")[0].strip()


class OwnModel(LanguageModel):
    """A run of ours: a question and the mask behind it in, an answer and a mask out."""

    def __init__(self, run: Run) -> None:
        self.run, self.model = run, run.model.eval()
        self.name, self.sha256 = str(run.folder), str(run.info.get("sha256"))
        self.mask = MASK_CHARACTER
        self.longest, self.layers = run.model.config.longest_input, run.model.config.layers
        self.device = next(self.model.parameters()).device

    def encode(self, text: str, *, opening: bool = True) -> Ids:
        return self.run.tokens.encode(text)

    def prompt(self, text: str) -> Ids:
        bare = text.removesuffix(MASK_CHARACTER)
        return [*self.encode(bare), MASK] if bare != text else self.encode(text)

    def continuation(self, prompt: str, answer: str) -> Ids:
        return [*self.encode(answer), MASK]

    def decode(self, ids: Sequence[int]) -> str:
        return self.run.tokens.decode(ids)

    def closes(self, token: int) -> bool:
        return token == MASK

    def forward(
        self, ids: Tensor, past: Any, keep: int, states: Sequence[int]
    ) -> tuple[Tensor, Tensor | None, Any]:
        past = self.model.new_cache(self.longest) if past is None else past
        kept: list[Tensor] = []
        hooks = [
            self.model.blocks[layer - 1].register_forward_hook(lambda *args: kept.append(args[2]))
            for layer in (states if self.model.latent is None else ())
        ]
        try:
            logits = self.model(ids, cache=past)[:, -keep:]
        finally:
            for hook in hooks:
                hook.remove()
        return logits, torch.stack(kept) if kept else None, past

    def rows(self, past: Any, rows: Tensor) -> Any:
        fork = copy.copy(past)
        fork.layers = [copy.copy(layer) for layer in past.layers]
        fork.keep(rows)
        return fork


class ForeignModel(LanguageModel):
    """A causal model of Hugging Face transformers, from a folder or a GGUF file."""

    def __init__(self, path: Path) -> None:
        self.model, self.tokens = load_foreign(path)
        config = self.model.config.get_text_config()
        self.name, self.sha256 = str(path), weights_sha256(path)
        self.longest = int(getattr(config, "max_position_embeddings", 0) or 2048)
        self.layers = int(config.num_hidden_layers)
        self.device = self.model.device
        ends = self.model.generation_config.eos_token_id
        self.ends = set(ends if isinstance(ends, list) else [ends]) | {self.tokens.eos_token_id}
        if self.tokens.eos_token == MASK_CHARACTER:  # one of ours, exported
            self.mask = MASK_CHARACTER
        self.surface = lru_cache(None)(lambda token: self.decode([token]))

    def encode(self, text: str, *, opening: bool = True) -> Ids:
        special = opening and self.mask is None
        ids = list(self.tokens(text, add_special_tokens=special)["input_ids"])
        return ids[:-1] if special and ids[-1:] == [self.tokens.eos_token_id] else ids

    def is_unknown(self, ids: Ids) -> bool:
        return self.tokens.unk_token_id in ids

    def prompt(self, text: str) -> Ids:
        bare = text.removesuffix(self.mask or "")
        return [*self.encode(bare), MASK] if bare != text else self.encode(text)

    def continuation(self, prompt: str, answer: str) -> Ids:
        if self.mask:
            return [*self.encode(answer), MASK]
        return super().continuation(prompt, answer)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self.tokens.decode(list(ids), skip_special_tokens=True))

    def closes(self, token: int) -> bool:
        return token in self.ends or (self.mask is None and "\n" in self.surface(token))

    def forward(
        self, ids: Tensor, past: Any, keep: int, states: Sequence[int]
    ) -> tuple[Tensor, Tensor | None, Any]:
        found = self.model(
            input_ids=ids,
            past_key_values=past,
            use_cache=True,
            logits_to_keep=keep,
            output_hidden_states=bool(states),
        )
        kept = None
        if states:
            kept = torch.stack([found.hidden_states[layer].to(self.device) for layer in states])
        return found.logits[:, -keep:], kept, found.past_key_values

    def rows(self, past: Any, rows: Tensor) -> Any:
        fork = copy.copy(past)
        fork.layers = [copy.copy(layer) for layer in past.layers]
        fork.batch_select_indices(rows)  # which puts new tensors into the copies of the layers
        return fork


def open_model(source: str | Path) -> LanguageModel:
    """A run of ours, a folder of Hugging Face, or a GGUF file; nothing is ever fetched."""
    if is_run(source):
        return OwnModel(load_run(source))
    path = Path(source)
    if path.is_dir() and not (path / "config.json").exists():
        found = sorted(path.glob("*.gguf"))
        if len(found) == 1:
            path = found[0]
    check_files(path)
    return ForeignModel(path)


def check_files(path: Path) -> None:
    """Refuse what cannot be loaded safely or at all, before any library touches it."""
    if path.suffix == ".gguf" and path.is_file():
        return
    if not path.is_dir():
        raise UserError(
            f"{path} is neither a folder with a model nor a GGUF file, and nothing is downloaded; "
            f"get it first, as with `hf download {path} --local-dir {path.name}`."
        )
    if not (path / "config.json").is_file():
        raise UserError(f"{path} holds no config.json, so it is not a model of Hugging Face.")
    if not any((path / name).is_file() for name in TOKENIZERS):
        raise UserError(
            f"{path} has no tokenizer (tokenizer.json or the like); copy the files of the model's "
            "tokenizer into it."
        )
    index = path / "model.safetensors.index.json"
    shards = set(read_json(index)["weight_map"].values()) if index.is_file() else set()
    for name in sorted(shards):
        if not (path / name).is_file():
            raise UserError(f"{path} lacks {name}, which {index.name} names; copy it there.")
    if not any(path.glob("*.safetensors")):
        if any(each.suffix in PICKLED for each in path.iterdir()):
            raise UserError(
                f"the weights in {path} are pickled, which can run any code as they are loaded; "
                "where you trust them, convert them with AutoModelForCausalLM.from_pretrained(...)"
                ".save_pretrained(NEW_FOLDER), which writes safetensors."
            )
        raise UserError(f"{path} holds no weights (model.safetensors).")


def weight_files(path: Path) -> list[Path]:
    return sorted(path.glob("*.safetensors")) if path.is_dir() else [path]


def weights_sha256(path: Path) -> str:
    """A hash of names, sizes, first and last megabytes, since whole files may take minutes."""
    digest = sha256()
    for file in weight_files(path):
        size = file.stat().st_size
        digest.update(f"{file.name} {size}".encode())
        with file.open("rb") as opened:
            digest.update(opened.read(1 << 20))
            opened.seek(max(0, size - (1 << 20)))
            digest.update(opened.read())
    return digest.hexdigest()


def load_foreign(path: Path) -> tuple[Any, Any]:
    """Model and tokenizer, or a sentence about what does not fit."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}  # read as libraries are imported
    import transformers
    from safetensors import SafetensorError

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    gpu = torch.cuda.is_available()
    folder = path.parent if path.is_file() else path
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    options |= {"gguf_file": path.name} if path.is_file() else {}
    load: Any = transformers.AutoModelForCausalLM.from_pretrained
    try:
        tokens: Any = transformers.AutoTokenizer.from_pretrained(folder, **options)
    except Exception as problem:  # whatever a broken file makes the library raise
        raise UserError(f"the tokenizer of {path} cannot be read: {_first_line(problem)}") from None
    try:
        model, info = load(
            folder,
            dtype=torch.bfloat16 if gpu else torch.float32,
            output_loading_info=True,
            **({"device_map": "auto"} if gpu else {}),
            **options,
        )
    except (SafetensorError, OSError, ValueError, RuntimeError, KeyError, ImportError) as problem:
        raise UserError(f"{path} cannot be loaded: {_first_line(problem)}") from None
    wrong = [*info["missing_keys"], *info["mismatched_keys"], *info["unexpected_keys"]]
    if wrong:
        raise UserError(
            f"the weights in {path} do not match its config.json: {len(wrong)} tensors are "
            f"missing, left over or of another shape, such as {wrong[0]}."
        )
    return model.eval(), tokens


def _first_line(problem: Exception) -> str:
    line = next((x.strip() for x in str(problem).split("\n") if x.strip()), type(problem).__name__)
    return line.rstrip(".")[:200] + "."
