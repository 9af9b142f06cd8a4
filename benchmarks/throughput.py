"""Training speed: against the matmul peak of this machine, and against transformers.

    python benchmarks/throughput.py [--repeats 5] [--compiled] [--out throughput.jsonl]

1. The model FLOP/s of whole training steps (forward, backward, clipping, optimizer) over the FLOP/s
   of bare matrix products of the same sizes, measured in turns in one run.
2. Tokens a second beside transformers' GPT-2 and Llama of the same shape on the same batches with
   the same optimizer, in turns. Both with the loss on every position ("all") and with the loss on
   what a question or a masked span asks for ("asked"), where ours skips the head elsewhere.

A model FLOP is counted as usual: 6 for each weight of a matrix that a token passes (2 forward, 4
backward) and 12 * width for each pair of positions that attends; nothing for elementwise work.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from records import keep, summarise
from torch.nn import functional as F

from wherefrom.corpus.batches import Batch, Part
from wherefrom.corpus.documents import read_documents
from wherefrom.corpus.questions import read_questions
from wherefrom.corpus.world import make_world, write_world
from wherefrom.model.config import make_config
from wherefrom.model.decoder import Decoder
from wherefrom.training.jobs import Settings
from wherefrom.training.loop import part_loss
from wherefrom.training.optimizers import build_optimizers
from wherefrom.training.recipes import load_recipe
from wherefrom.training.sources import TrainingData, stream_for

LAYERS, BLOCK = 4, 128


def batches(count: int) -> tuple[list[Batch], int]:
    """Real batches of the speedrun on the embedded world, and the size of its vocabulary."""
    import tempfile

    recipe = load_recipe("speedrun")
    with tempfile.TemporaryDirectory() as folder:
        world = write_world(make_world(2000, 0), f"{folder}/world")
        corpus = read_documents(world / "documents.txt")
        questions = read_questions(world / "train.tsv").questions
    tokens = Settings(recipe=recipe).build_tokens(corpus.texts)
    data = TrainingData.encode(corpus.documents, questions, tokens, BLOCK)
    return stream_for(recipe.phases[0], data, [0, 0]).pool(0)[:count], tokens.size


def model_flops(model: Decoder, batch: Batch, *, everywhere: bool) -> float:
    """FLOPs that the mathematics of a step needs."""
    inside = sum(
        parameter.numel()
        for name, parameter in model.named_parameters()
        if "blocks." in name and parameter.ndim == 2
    )
    total = 0.0
    for part in batch.parts:
        rows, length = part.ids.shape[0], part.ids.shape[1] - 1
        counted = rows * length if everywhere else int((part.weights[:, 1:] > 0).sum())
        pairs = rows * length * (length + 1) / 2
        total += 6 * inside * rows * length + 6 * model.head.weight.numel() * counted
        total += 12 * model.config.layers * model.config.width * pairs
    return total


def our_step(variant: str, width: int, heads: int, vocabulary: int, **options: Any) -> Any:
    model = Decoder(
        make_config(
            variant=variant, vocabulary=vocabulary, block=BLOCK, layers=LAYERS, heads=heads,
            width=width,
        )
    ).initialise(torch.Generator().manual_seed(0))  # fmt: skip
    phase = load_recipe("speedrun").phases[0]
    if options.get("optimizer") == "adamw":
        phase = phase.model_copy(update={"optimizer": "adamw", "lr": 1e-3})
    optimizers = build_optimizers(model, phase)
    runner = torch.compile(model, dynamic=True) if options.get("compiled") else model

    def step(batch: Batch, *, everywhere: bool) -> None:
        for part in batch.parts:
            if everywhere:
                part = Part(part.ids, torch.ones_like(part.weights))
            (part_loss(runner, part, "cpu") / batch.weight).backward()
        for optimizer in optimizers:
            optimizer.step()
        model.zero_grad(set_to_none=True)

    return model, step


def their_step(variant: str, width: int, heads: int, vocabulary: int, compiled: bool) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    from wherefrom.model.decoder import swiglu_width

    if variant == "vanilla":
        model: Any = GPT2LMHeadModel(
            GPT2Config(
                vocab_size=vocabulary, n_positions=BLOCK, n_embd=width, n_layer=LAYERS,
                n_head=heads, activation_function="gelu", resid_pdrop=0.0, embd_pdrop=0.0,
                attn_pdrop=0.0, tie_word_embeddings=False,
            )
        )  # fmt: skip
    else:
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=vocabulary, hidden_size=width, intermediate_size=swiglu_width(width),
                num_hidden_layers=LAYERS, num_attention_heads=heads, tie_word_embeddings=False,
                max_position_embeddings=BLOCK,
            )
        )  # fmt: skip
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    runner = torch.compile(model, dynamic=True) if compiled else model

    def step(batch: Batch, *, everywhere: bool) -> None:
        for part in batch.parts:
            ids = part.ids[:, :-1]
            counts = torch.ones_like(part.weights[:, 1:]) if everywhere else part.weights[:, 1:]
            targets = torch.where(counts > 0, part.ids[:, 1:], -100)
            logits = runner(input_ids=ids, use_cache=False).logits
            F.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()
        optimizer.step()
        model.zero_grad(set_to_none=True)

    return model, step


def seconds(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def matmul_peak(tokens: int, width: int) -> float:
    """FLOP/s of the products that a step is made of, forward and backward, back to back."""
    x, hidden = torch.randn(tokens, width), torch.randn(tokens, 4 * width)
    up, down = torch.randn(width, 4 * width), torch.randn(4 * width, width)
    rounds = max(4, int(4e9 / (48 * tokens * width * width)))

    def run() -> None:
        for _ in range(rounds):
            _ = x @ up, hidden @ down  # forward
            _ = hidden @ up.T, x @ down.T  # gradients of inputs
            _ = x.T @ hidden, hidden.T @ x  # gradients of weights

    run()
    return rounds * 6 * 2 * tokens * width * 4 * width / seconds(run)


def against_peak(repeats: int, work: list[Batch], vocabulary: int) -> list[dict[str, Any]]:
    records = []
    for variant, width, heads in (("llama", 128, 4), ("llama", 256, 4), ("rotary", 128, 4)):
        model, step = our_step(variant, width, heads, vocabulary)
        some = work[: max(3, len(work) * 128 // width // 2)]
        flops = sum(model_flops(model, batch, everywhere=False) for batch in some)
        tokens = int(np.mean([batch.padded for batch in some]))
        ratios, speeds, peaks = [], [], []
        run = partial(_through, step, some, False)
        run()
        for _ in range(repeats):
            peak = matmul_peak(tokens, width)
            speed = flops / seconds(run)
            peak = (peak + matmul_peak(tokens, width)) / 2
            ratios.append(speed / peak)
            speeds.append(speed / 1e9)
            peaks.append(peak / 1e9)
        details = {
            "gflops": float(np.median(speeds)),
            "peak_gflops": float(np.median(peaks)),
            "tokens": tokens,
            "threads": torch.get_num_threads(),
        }
        name = f"training step over matmul peak, {variant}, width {width}, Muon"
        records.append(summarise(name, ratios, "ratio", **details))
    return records


def _through(step: Any, some: list[Batch], everywhere: bool) -> None:
    for batch in some:
        step(batch, everywhere=everywhere)


def against_transformers(
    repeats: int, work: list[Batch], vocabulary: int, *, compiled: bool
) -> list[dict[str, Any]]:
    records = []
    for variant, theirs in (("vanilla", "GPT-2"), ("llama", "Llama")):
        for width, heads in ((128, 4), (256, 8)):
            ours, our = our_step(
                variant, width, heads, vocabulary, optimizer="adamw", compiled=compiled
            )
            other, their = their_step(variant, width, heads, vocabulary, compiled)
            counts = [sum(p.numel() for p in model.parameters()) for model in (ours, other)]
            for everywhere in (True, False):
                some = work[: 8 * 128 // width]
                for step in (our, their):
                    _through(step, some, everywhere)
                ratios = []
                for _ in range(repeats):
                    spent = {}
                    for side, step in (("ours", our), ("theirs", their)):
                        spent[side] = seconds(partial(_through, step, some, everywhere))
                    ratios.append(spent["theirs"] / spent["ours"])
                where = "all" if everywhere else "asked"
                mode = "compiled" if compiled else "eager"
                name = f"speed over transformers' {theirs}, width {width}, loss {where}, {mode}"
                details = {"parameters": counts[0], "their_parameters": counts[1]}
                records.append(summarise(name, ratios, "ratio", **details))
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--compiled", action="store_true", help="torch.compile both sides too")
    parser.add_argument("--out", default="throughput.jsonl")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    work, vocabulary = batches(12)
    keep(against_peak(arguments.repeats, work, vocabulary), arguments.out)
    keep(against_transformers(arguments.repeats, work, vocabulary, compiled=False), arguments.out)
    if arguments.compiled:
        keep(
            against_transformers(arguments.repeats, work, vocabulary, compiled=True),
            arguments.out,
        )


if __name__ == "__main__":
    main()
