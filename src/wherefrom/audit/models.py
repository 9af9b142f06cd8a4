"""A language model behind a small interface: answers, log-probabilities, hidden states.

Prompts that go through a model together have one length, so that no architecture needs a mask for
padding; what all of them start with, which is most of a prompt with examples, is read once.
"""

from __future__ import annotations

import copy
import io
import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from wherefrom.corpus.tokenizer import MASK, MASK_CHARACTER
from wherefrom.errors import UserError
from wherefrom.provenance.metrics import Floats
from wherefrom.recall.decode import group_by_length
from wherefrom.storage import read_json, sha256_of
from wherefrom.training.run_folder import Run, digest_of, is_run, load_run

Ids = list[int]
ROWS = 16  # prompts that go through the model together
NODES = 32  # beginnings of answers that do
LAYERS = 8  # of which hidden states are kept at most
UNLIKELY = np.log(1e-3)  # the beginning of a known answer below which it is not followed
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt")


@dataclass(eq=False)
class Reply:
    """What a model said to one prompt: a text, and its ids with the closing one, if any.

    log_probabilities, other: of the ids, and of the likeliest other token in place of each. known:
    log-probability of each known answer, -inf where negligible. entropy: of the first token, in
    nats. states: (places, layers, width) at the places asked for, the prompt's end, the answer's.
    """

    known: Floats
    text: str = ""
    ids: Ids = field(default_factory=list)
    log_probabilities: list[float] = field(default_factory=list)
    other: list[float] = field(default_factory=list)
    entropy: float = 0.0
    samples: list[str] = field(default_factory=list)
    states: NDArray[np.float16] = field(default_factory=lambda: np.empty(0, np.float16))


class AnswerNode(NamedTuple):
    """The beginning of an answer: the greedy one, so many samples, and those known answers."""

    row: int
    ids: tuple[int, ...]
    greedy: bool
    samples: int
    known: Sequence[int]
    log_probability: float


class LanguageModel:
    """A causal model of Hugging Face transformers, from a folder or a GGUF file.

    A model of another kind overrides encode, decode, closes, fork and forward. longest: tokens
    that it reads. mask: the text behind a question that makes the model answer it, where it has
    one. unknown: the token for letters that it does not know. sha256: which weights these are.
    """

    mask: str | None = None
    unknown: int | None = None

    def __init__(self, path: Path, *, to_train: bool = False) -> None:
        self.model, self.tokens = load_foreign(path, to_train=to_train)
        config = self.model.config.get_text_config()
        weights = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
        self.name, self.sha256 = str(path), str(digest_of([sha256_of(each) for each in weights]))
        self.longest = int(getattr(config, "max_position_embeddings", 0) or 2048)
        self.layers, self.device = int(config.num_hidden_layers), self.model.device
        self.vocabulary = self.model.get_input_embeddings().num_embeddings
        ends = self.model.generation_config.eos_token_id
        self.ends = set(ends if isinstance(ends, list) else [ends]) | {self.tokens.eos_token_id}
        self.mask = MASK_CHARACTER if self.tokens.eos_token == MASK_CHARACTER else None  # of ours
        self.unknown = self.tokens.unk_token_id
        self.surface = lru_cache(None)(lambda token: self.decode([token]))
        if not self._keeps_a_past():
            raise UserError(
                f"{path} ({type(self.model).__name__}) does not read from left to right with keys "
                "and values that are kept, as an audit needs it and GPT-2, Llama or Qwen do."
            )

    @torch.inference_mode()
    def _keeps_a_past(self) -> bool:
        """Whether tokens read one after the other give what they give together."""
        ids = torch.arange(4, device=self.device).expand(2, 4)
        try:
            past = self.forward(ids[:1, :3], None, 1, ())[2]
            after, _, _ = self.forward(ids[:, 3:], self.fork(past, [0, 0]), 1, ())
            whole, _, _ = self.forward(ids, None, 1, ())
        except (AttributeError, TypeError, ValueError, RuntimeError):
            return False
        near = 1e-3 if after.dtype == torch.float32 else 0.2
        return bool((after.float().softmax(-1) - whole.float().softmax(-1)).abs().max() < near)

    def encode(self, text: str, *, opening: bool = True) -> Ids:
        """The tokens of a text, behind the token that opens every text where the model has one."""
        special = opening and self.mask is None
        ids = list(self.tokens(text, add_special_tokens=special)["input_ids"])
        if max(ids, default=0) >= self.vocabulary:
            raise UserError(
                f"the tokenizer in {self.name} gives token {max(ids)} and the model has "
                f"{self.vocabulary} tokens; copy the model's own tokenizer into the folder."
            )
        return ids[:-1] if special and ids[-1:] == [self.tokens.eos_token_id] else ids

    def decode(self, ids: Sequence[int]) -> str:
        return str(self.tokens.decode(list(ids), skip_special_tokens=True))

    def closes(self, token: int) -> bool:
        """Whether an answer ends with this token."""
        return token in self.ends or (self.mask is None and "\n" in self.surface(token))

    def forward(
        self, ids: Tensor, past: Any, keep: int, states: Sequence[int]
    ) -> tuple[Tensor, Tensor | None, Any]:
        """Logits (b, keep, V) of the last tokens, states (layers, b, t, width), and the past."""
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

    def prompt(self, text: str) -> Ids:
        """The tokens of a prompt; one that ends in the mask has it as the model knows it."""
        bare = text.removesuffix(self.mask or "")
        return [*self.encode(bare), MASK] if bare != text else self.encode(text)

    def continuation(self, prompt: str, answer: str) -> Ids:
        """The tokens of an answer behind a prompt, with the one that closes it."""
        if self.mask:
            return [*self.encode(answer), MASK]
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

    def fork(self, past: Any, rows: Sequence[int]) -> Any:
        """A copy of a past that holds these rows; a row may come several times."""
        fork = copy.copy(past)
        fork.layers = [copy.copy(layer) for layer in past.layers]
        fork.batch_select_indices(torch.tensor(rows, device=self.device))
        return fork

    @torch.inference_mode()
    def answer(
        self,
        prompts: Sequence[Ids],
        *,
        places: Sequence[Sequence[int]] = (),
        known: Sequence[Ids] = (),
        samples: int = 0,
        longest: int = 16,
    ) -> list[Reply]:
        """Greedy answers, hidden states at `places`, p of the `known`, and so many `samples`.

        All of them are beginnings of answers in one tree per prompt, so that each beginning goes
        through the model once.
        """
        replies = [Reply(np.full(len(known), -np.inf)) for _ in prompts]
        first_place = min((min(each, default=0) for each in places), default=len(prompts[0]))
        layers = self.state_layers if places else []
        for rows, past, tokens in self._batches(prompts, first_place):
            length = len(prompts[rows[0]])
            logits, states, past = self.forward(tokens, past, 1, layers)
            log_p = logits[:, 0].float().log_softmax(-1)
            for i, row in enumerate(rows):
                replies[row].entropy = float(-(log_p[i].exp() * log_p[i]).nansum())
                if states is not None:
                    wanted = torch.tensor([*places[row], length - 1, length - 1])
                    kept = states[:, i, wanted - (length - tokens.shape[1])]
                    replies[row].states = kept.transpose(0, 1).half().cpu().numpy()
            room = min(longest, self.longest - length + 1)
            nodes = [AnswerNode(row, (), True, samples, range(len(known)), 0.0) for row in rows]
            # the draws of a prompt depend on it alone, not on those beside it
            seeds = {row: crc32(str(prompts[row]).encode()) for row in rows}
            waiting = [(past, *self._grow(log_p, nodes, replies, seeds, known, room == 1))]
            while waiting:
                before, parents, nodes = waiting.pop()
                if len(nodes) > NODES:  # so many at a time, for memory's sake
                    waiting.append((before, parents[NODES:], nodes[NODES:]))
                    parents, nodes = parents[:NODES], nodes[:NODES]
                if not nodes:
                    continue
                past = self.fork(before, parents)
                tokens = torch.tensor([node.ids[-1:] for node in nodes], device=self.device)
                logits, states, past = self.forward(tokens, past, 1, layers)
                log_p = logits[:, 0].float().log_softmax(-1)
                for i, node in enumerate(nodes):
                    if node.greedy and states is not None:
                        replies[node.row].states[-1] = states[:, i, 0].half().cpu().numpy()
                last = len(nodes[0].ids) + 1 == room
                waiting.append((past, *self._grow(log_p, nodes, replies, seeds, known, last)))
        return replies

    def _grow(
        self,
        log_p: Tensor,
        nodes: Sequence[AnswerNode],
        replies: Sequence[Reply],
        seeds: dict[int, int],
        known: Sequence[Ids],
        last: bool,
    ) -> tuple[list[int], list[AnswerNode]]:
        """Longer beginnings, and which node each goes on from; whole answers go into `replies`."""
        parents, longer = [], []
        for i, (node, row) in enumerate(zip(nodes, log_p.cpu().numpy(), strict=True)):
            reply, size = replies[node.row], len(node.ids) + 1
            tokens: set[int] = set()  # by which the beginning goes on
            best = None
            if node.greedy:
                best, second = log_p[i].topk(2).indices.tolist()
                reply.ids.append(best)
                reply.log_probabilities.append(float(row[best]))
                reply.other.append(float(row[second]))
                tokens.add(best)
            drawn: Counter[int] = Counter()
            if node.samples:
                ends = np.exp(row, dtype=np.float64).cumsum()
                rng = np.random.default_rng([seeds[node.row], *node.ids])
                drawn.update(np.searchsorted(ends, rng.random(node.samples) * ends[-1]).tolist())
            branches: dict[int, list[int]] = defaultdict(list)
            for answer in node.known:
                branches[known[answer][size - 1]].append(answer)
            for token in sorted(tokens | drawn.keys() | branches.keys()):
                ids, is_best, samples = (*node.ids, token), token == best, drawn[token]
                so_far = node.log_probability + float(row[token])
                reply.known[[k for k in branches[token] if len(known[k]) == size]] = so_far
                if (last or self.closes(token)) and (is_best or samples):
                    text = self.read_answer(ids)
                    reply.text = text if is_best else reply.text
                    reply.samples += [text] * samples
                    is_best, samples = False, 0
                open_ends = [k for k in branches[token] if len(known[k]) > size]
                if last or so_far < UNLIKELY:
                    open_ends = []
                if is_best or samples or open_ends:
                    parents.append(i)
                    longer.append(AnswerNode(node.row, ids, is_best, samples, open_ends, so_far))
        return parents, longer

    @torch.inference_mode()
    def score(
        self, prompts: Sequence[Ids], continuations: Sequence[Ids]
    ) -> list[tuple[Floats, Floats]]:
        """Of each continuation's tokens the log p, and that of the likeliest other token."""
        scores: list[tuple[Floats, Floats]] = [(np.empty(0), np.empty(0))] * len(prompts)
        for rows, past, ids in self._batches(prompts, len(prompts[0]) if prompts else 0):
            sizes = [len(continuations[row]) for row in rows]
            # padding stands behind the tokens that count, and so does not change them
            padded = pad_sequence([torch.tensor(continuations[row]) for row in rows], True)
            padded = padded.to(self.device)
            given = torch.cat([ids, padded[:, :-1]], 1)
            logits, _, _ = self.forward(given, past, max(sizes), ())
            log_p, targets = logits.float().log_softmax(-1), padded[..., None]
            own = log_p.gather(-1, targets)[..., 0].double().cpu().numpy()
            other = log_p.scatter(-1, targets, -torch.inf).amax(-1).double().cpu().numpy()
            for i, (row, size) in enumerate(zip(rows, sizes, strict=True)):
                scores[row] = (own[i, :size], other[i, :size])
        return scores

    def _batches(
        self, prompts: Sequence[Ids], most: int
    ) -> Iterator[tuple[list[int], Any, Tensor]]:
        """Rows of one length, the past that all prompts share (`most` tokens), and their rest."""
        if not prompts:
            return
        start, low, high = None, min(prompts), max(prompts)
        most = min(most, *(len(prompt) - 1 for prompt in prompts))
        shared = next((i for i in range(most) if low[i] != high[i]), most)
        if shared:
            ids = torch.tensor([prompts[0][:shared]], device=self.device)
            start = self.forward(ids, None, 1, ())[2]
        for rows in sorted(group_by_length(prompts, ROWS), key=lambda rows: len(prompts[rows[0]])):
            past = None if start is None else self.fork(start, [0] * len(rows))
            ids = torch.tensor([prompts[row][shared:] for row in rows], device=self.device)
            yield rows, past, ids

    def read_answer(self, ids: Sequence[int]) -> str:
        """The text of an answer: up to the first line break or closing token."""
        closed = bool(ids) and self.closes(ids[-1])
        text = self.decode(ids[:-1] if closed else ids)
        if closed and not self.mask:  # a token may hold letters before its line break
            text += self.decode(ids[-1:]).split("\n")[0]
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

    def decode(self, ids: Sequence[int]) -> str:
        return self.run.tokens.decode(ids)

    def closes(self, token: int) -> bool:
        return token == MASK

    def fork(self, past: Any, rows: Sequence[int]) -> Any:
        return past.fork(torch.tensor(rows, device=self.device))

    def forward(
        self, ids: Tensor, past: Any, keep: int, states: Sequence[int]
    ) -> tuple[Tensor, Tensor | None, Any]:
        past = self.model.new_cache(self.longest) if past is None else past
        return self.model(ids, cache=past)[:, -keep:], None, past


def open_model(source: str | Path) -> LanguageModel:
    """A run of ours, a folder of Hugging Face, or a GGUF file; nothing is ever fetched."""
    if is_run(source):
        return OwnModel(load_run(source))
    check_files(Path(source))
    return LanguageModel(Path(source))


def check_files(path: Path) -> None:
    """Refuse what cannot be loaded safely or at all, before any library touches it."""
    if path.suffix == ".gguf" and path.is_file():
        return
    from transformers.models.auto import modeling_auto

    config = path / "config.json"
    named = read_json(config).get("architectures") if config.is_file() else None
    kind = (named or ["GPT2LMHeadModel"])[0]
    causal = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()
    pickled = [each for each in path.glob("*") if each.suffix in PICKLED]
    problems = {
        f"is neither a folder with a model nor a GGUF file, and nothing is downloaded; get it "
        f"first, as with `hf download {path} --local-dir {path.name}`": not path.is_dir(),
        "holds an adapter of PEFT without its model; merge them with AutoPeftModelForCausalLM."
        "from_pretrained(...).merge_and_unload().save_pretrained(NEW_FOLDER), and save the "
        "tokenizer there": (path / "adapter_config.json").is_file() and not config.is_file(),
        f"holds a {kind}, and an audit takes a model that continues a text, such as "
        "GPT2LMHeadModel or LlamaForCausalLM": kind not in causal,
        "has no tokenizer (tokenizer.json or the like); copy the files of the model's tokenizer "
        "into it": not any((path / name).is_file() for name in TOKENIZERS),
        "holds pickled weights, which can run any code as they are loaded; where you trust them, "
        "convert them with AutoModelForCausalLM.from_pretrained(...).save_pretrained(NEW_FOLDER), "
        "which writes safetensors": bool(pickled) and not any(path.glob("*.safetensors")),
    }
    for problem, is_there in problems.items():
        if is_there:
            raise UserError(f"{path} {problem}.")


def load_foreign(path: Path, *, to_train: bool = False) -> tuple[Any, Any]:
    """Model and tokenizer, or a sentence about what does not fit; on GPUs unless it is to train."""
    os.environ["HF_HUB_OFFLINE"] = "1"  # read as libraries are imported
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    gpu = torch.cuda.is_available() and not to_train
    folder = path.parent if path.is_file() else path
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    options |= {"gguf_file": path.name} if path.is_file() else {}
    loading = {"output_loading_info": True, "dtype": torch.bfloat16 if gpu else torch.float32}
    loading |= {"device_map": "auto"} if gpu else {}
    try:  # whatever a broken file makes the library raise
        with redirect_stderr(io.StringIO()):
            tokens: Any = transformers.AutoTokenizer.from_pretrained(folder, **options)
            load: Any = transformers.AutoModelForCausalLM.from_pretrained
            model, info = load(folder, **loading, **options)
    except Exception as problem:
        line = next((x.strip() for x in str(problem).split("\n") if x.strip()), "it is broken")
        raise UserError(f"{path} cannot be loaded: {line.rstrip('.')[:200]}.") from None
    if path.is_file():  # dequantized as it was loaded
        model.is_quantized, model.hf_quantizer = False, None
        model.config.__dict__.pop("quantization_config", None)
    wrong = [*info["missing_keys"], *info["mismatched_keys"], *info["unexpected_keys"]]
    if wrong:
        raise UserError(
            f"the weights in {path} do not match its config.json: {len(wrong)} tensors are "
            f"missing, left over or of another shape, such as {wrong[0]}."
        )
    return model.eval(), tokens
