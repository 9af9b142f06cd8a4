"""The causal models of Hugging Face transformers, from a folder or a GGUF file.

Nothing is ever fetched, no code of a model is run, and pickled weights are refused.
"""

from __future__ import annotations

import copy
import io
import os
import warnings
from collections.abc import Sequence
from contextlib import redirect_stderr
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from wherefrom.corpus.tokenizer import MASK, MASK_CHARACTER
from wherefrom.errors import UserError
from wherefrom.model.interface import Ids, LanguageModel
from wherefrom.storage import digest_of, read_json, sha256_of

PAST_BYTES = 2**29  # that the keys and values of what goes through a model together may take,
PAST_TOKENS = 256  # where a row has so many tokens
MOST_ROWS = 128
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
ADAPTERS = ("lora_A", "lora_B")
LINEAR = ("Linear", "Conv1D")  # GPT-2's layers are of the second kind
ADAPTER_WEIGHTS = "adapter_model.safetensors"
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt")


class HuggingFaceModel(LanguageModel):
    """A causal model with its tokenizer; `mask` is there if it is an exported run.

    chat: its prompts are those of its chat template, so that an answer ends with the token that
    ends a turn.
    """

    def __init__(
        self,
        path: Path,
        *,
        adapter: Path | None = None,
        chat: bool = False,
        to_train: bool = False,
    ) -> None:
        self.model, self.tokens = load_foreign(path, to_train=to_train)
        config = self.model.config.get_text_config()
        self.name, self.sha256, self.chat = str(path), hash_weights(path), chat
        if adapter is not None:
            self.model = load_adapter(self.model, adapter, merge=True)
            self.name, self.sha256 = str(adapter), hash_adapted(self.sha256, adapter)
        self.longest = int(getattr(config, "max_position_embeddings", 0) or 2048)
        self.layers, self.device = int(config.num_hidden_layers), self.model.device
        self.vocabulary = self.model.get_input_embeddings().num_embeddings
        ends = self.model.generation_config.eos_token_id
        self.ends = set(ends if isinstance(ends, list) else [ends]) | {self.tokens.eos_token_id}
        self.mask = MASK_CHARACTER if self.tokens.eos_token == MASK_CHARACTER else None  # of ours
        self.unknown = self.tokens.unk_token_id
        self.surface = lru_cache(None)(lambda token: self.decode([token]))
        bytes_of_past = self._measure_past()
        if not bytes_of_past:
            raise UserError(
                f"{path} ({type(self.model).__name__}) does not read from left to right with keys "
                "and values that are kept, as an audit needs it and GPT-2, Llama or Qwen do."
            )
        fitting = PAST_BYTES // (PAST_TOKENS * bytes_of_past)
        self.rows = self.nodes = min(max(fitting, 4), MOST_ROWS)

    @torch.inference_mode()
    def _measure_past(self) -> int:
        """Bytes of a token's keys and values.

        0 if tokens that are read one after the other do not give what they give together.
        """
        ids = torch.arange(4, device=self.device).expand(2, 4)
        try:
            past = self.forward(ids[:1, :3], None, 1, ())[2]
            size = sum(layer.keys.nbytes + layer.values.nbytes for layer in past.layers) // 3
            after, _, _ = self.forward(ids[:, 3:], self.fork(past, [0, 0]), 1, ())
            whole, _, _ = self.forward(ids, None, 1, ())
        except (AttributeError, TypeError, ValueError, RuntimeError):
            return 0
        if not whole.isfinite().all():
            raise UserError(
                f"{self.name} gives numbers that are not finite, so its weights are damaged; get "
                "the model again."
            )
        near = 1e-3 if after.dtype == torch.float32 else 0.2
        gap = (after.float().softmax(-1) - whole.float().softmax(-1)).abs().max()
        return size if gap < near else 0

    def encode(self, text: str, *, opening: bool = True) -> Ids:
        # a chat template writes the token that opens a text itself
        special = opening and self.mask is None and not self.chat
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
        return token in self.ends or (self.mask is None and "\n" in self.surface(token))

    def forward(
        self, ids: Tensor, past: Any, keep: int, states: Sequence[int] = ()
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

    def linear_layers(self) -> dict[str, nn.Module]:
        """The adapters, or else all linear layers but the head."""
        named = list(self.model.named_modules())
        adapters = {name: m for name, m in named if any(f".{part}." in name for part in ADAPTERS)}
        if adapters:
            return {name: m for name, m in adapters.items() if isinstance(m, nn.Linear)}
        head = self.model.get_output_embeddings()
        return {n: m for n, m in named if type(m).__name__ in LINEAR and m is not head}

    def prompt(self, text: str) -> Ids:
        """The tokens of a prompt; one that ends in the mask has it as the model knows it."""
        bare = text.removesuffix(self.mask or "")
        return [*self.encode(bare), MASK] if bare != text else self.encode(text)

    def continuation(self, prompt: str, answer: str) -> Ids:
        if self.mask:
            return [*self.encode(answer), MASK]
        if self.chat and self.tokens.eos_token_id is not None:
            return [*self.encode(answer, opening=False), self.tokens.eos_token_id]
        before = self.prompt(prompt)
        space = "" if prompt[-1:].isspace() else " "
        whole = self.encode(f"{prompt}{space}{answer}\n")
        if whole[: len(before)] == before:
            return whole[len(before) :]
        return self.encode(f"{space}{answer}\n", opening=False)

    def fork(self, past: Any, rows: Sequence[int]) -> Any:
        fork = copy.copy(past)
        fork.layers = [copy.copy(layer) for layer in past.layers]
        fork.batch_select_indices(torch.tensor(rows, device=self.device))
        return fork

    def read_answer(self, ids: Sequence[int]) -> str:
        """The text of an answer: up to the first line break or closing token."""
        closed = bool(ids) and self.closes(ids[-1])
        text = self.decode(ids[:-1] if closed else ids)
        if closed and not self.mask:  # a token may hold letters before its line break
            text += self.decode(ids[-1:]).split("\n")[0]
        return text.strip().split("\n")[0].strip()

    def chat_prompt(self, slot: str) -> str:
        """The chat template around `slot`, which stands for what the user says."""
        if not getattr(self.tokens, "chat_template", None):
            raise UserError(
                f"{self.name} has no chat template; leave --wording chat out, or copy the "
                "tokenizer_config.json or chat_template.jinja of an instruct model into it."
            )
        said = [{"role": "user", "content": slot}]
        try:  # a template is a program of the model's makers
            text = self.tokens.apply_chat_template(
                said, tokenize=False, add_generation_prompt=True, enable_thinking=False
            )
        except Exception as problem:
            line = str(problem).partition("\n")[0].rstrip(".")
            raise UserError(
                f"the chat template of {self.name} fails: {line[:200]}; use --wording plain."
            ) from None
        if text.count(slot) != 1:
            raise UserError(
                f"the chat template of {self.name} does not hold what the user says once; use "
                "--wording plain."
            )
        return str(text)


def hash_weights(path: Path) -> str:
    """Which weights a folder or a GGUF file holds."""
    weights = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    return str(digest_of([sha256_of(each) for each in weights]))


def hash_adapted(base_sha256: str, adapter: Path) -> str:
    """Which weights a base model with an adapter has."""
    return str(digest_of([base_sha256, sha256_of(adapter / ADAPTER_WEIGHTS)]))


def load_adapter(model: Any, folder: Path, *, to_train: bool = False, merge: bool = False) -> Any:
    """A model with the adapter of PEFT in a folder; merge: as one model without adapters."""
    import peft

    try:  # whatever a broken file makes the library raise
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the libraries about each other
            adapted = peft.PeftModel.from_pretrained(model, folder, is_trainable=to_train).eval()
            return adapted.merge_and_unload() if merge else adapted
    except Exception as problem:
        line = next((x.strip() for x in str(problem).split("\n") if x.strip()), "it is broken")
        raise UserError(f"{folder} cannot be loaded: {line.rstrip('.')[:200]}.") from None


def check_files(path: Path) -> None:
    """Refuse what cannot be loaded safely or at all, before any library touches it."""
    if path.suffix == ".gguf" and path.is_file():
        return
    from transformers.models.auto import modeling_auto

    config = path / "config.json"
    named = read_json(config, dict).get("architectures") if config.is_file() else None
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
