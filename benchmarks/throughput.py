"""Training speed: against the matmul peak of this machine, and against transformers.

    python benchmarks/throughput.py [--quick]

1. The model FLOP/s of whole training steps (forward, backward, clipping, optimizer) over the FLOP/s
   of bare matrix products, measured in turns in one run. The products are the step's own: every
   matrix of the model, forward and twice backward, with as many rows as a batch has tokens for
   which the loss needs it. Batches as the recipe `pointed` has them, and larger ones.
2. Tokens a second beside transformers' GPT-2 and Llama with the very same weights and optimizer, in
   turns, with the loss on what a question or a masked span asks for; there ours skips the head and
   most of the last block elsewhere. Once with the same batches, and once "as it batches":
   transformers gets the same examples as its Trainer makes batches by default, at random and padded
   to the longest. Before anything is timed the two must agree on the logits.

A model FLOP: 6 for each weight of a matrix that a token has to pass (2 forward, 4 backward) and
12 * width for each pair of positions that attends; nothing for elementwise work.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
from records import keep, summarise
from torch import nn
from torch.nn import functional as F

from wherefrom.corpus.batches import Batch, BatchStream, MicroBatch
from wherefrom.corpus.database import read_documents
from wherefrom.corpus.facts import read_facts
from wherefrom.corpus.questions import read_questions
from wherefrom.corpus.tokenizer import PAD, Tokenizer
from wherefrom.corpus.world import make_world, write_world
from wherefrom.model.config import make_config
from wherefrom.model.decoder import Decoder
from wherefrom.model.export import SHAPES
from wherefrom.training.loop import part_loss
from wherefrom.training.optim import build_optimizers
from wherefrom.training.recipes import load_recipe
from wherefrom.training.settings import vocabulary_for, vocabulary_texts
from wherefrom.training.sources import TrainingData, stream_for

LAYERS, BLOCK = 4, 128
CLIP = 1.0  # on both sides
LARGER = 4  # batches for which the optimizer weighs less
RIVALS = {"vanilla": "GPT-2", "llama": "Llama"}  # variant -> transformers' model of its shape
Step = Callable[[Batch], None]


def make_stream(people: int = 2000, times: int = 1) -> tuple[BatchStream, int]:
    """The pointed's batches (`times` as large) on the embedded world; the vocabulary's size."""
    recipe = load_recipe("pointed")
    phase = recipe.phases[0]
    assert phase.batch_tokens is not None
    phase = phase.model_copy(update={"batch_tokens": times * phase.batch_tokens})
    with tempfile.TemporaryDirectory() as folder:
        world = write_world(make_world(people, 0), f"{folder}/world")
        corpus = read_documents(world / "documents.txt")
        questions = read_questions(world / "train.tsv").questions
    texts = vocabulary_texts(corpus.documents)
    tokens = Tokenizer.of_bpe(texts, vocabulary_for(corpus.documents))
    data = TrainingData.encode(read_facts(corpus, questions), questions, tokens, BLOCK)
    return stream_for(phase, data, [0, 0]), tokens.size


def model_flops(model: Decoder, batch: Batch) -> float:
    """FLOPs of a step's mathematics, as far as the loss needs it."""
    always, asked = (sum(m.weight.numel() for m in some) for some in matrices(model))
    total = 0.0
    for part in batch.parts:
        rows, length = part.ids.shape[0], part.ids.shape[1] - 1
        pairs = rows * length * (length + 1) / 2
        total += 6 * always * rows * length + 6 * asked * count_asked(part)
        total += 12 * model.config.layers * model.config.width * pairs
    return total


def count_asked(part: MicroBatch) -> int:
    """The tokens that have a loss."""
    return int((part.weights[:, 1:] > 0).sum())


def matrices(model: Decoder) -> tuple[list[nn.Linear], list[nn.Linear]]:
    """The matrices that every token passes, and those that only tokens with a loss have to."""
    last = model.blocks[-1]
    asked = [*_linear(last.mixer.out), *_linear(last.feed), model.head]
    mine = {id(matrix) for matrix in asked}
    return [matrix for matrix in _linear(model) if id(matrix) not in mine], asked


def _linear(module: Any) -> list[nn.Linear]:
    return [layer for layer in module.modules() if isinstance(layer, nn.Linear)]


def new_model(variant: str, width: int, heads: int, vocabulary: int) -> Decoder:
    config = make_config(
        variant=variant, vocabulary=vocabulary, block=BLOCK, layers=LAYERS, heads=heads, width=width
    )
    return Decoder(config).initialise(torch.Generator().manual_seed(0))


def our_step(model: Decoder, *, optimizer: str = "muon") -> Step:
    """A whole training step."""
    phase = load_recipe("pointed").phases[0]
    if optimizer == "adamw":
        phase = phase.model_copy(update={"optimizer": "adamw", "lr": 1e-3})
    optimizers = build_optimizers(model, phase)

    def step(batch: Batch) -> None:
        for part in batch.parts:
            (part_loss(model, part, "cpu") / batch.weight).backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        for each in optimizers:
            each.step()
        model.zero_grad(set_to_none=True)

    return step


def their_model(ours: Decoder) -> Any:
    """The same weights in transformers' class of the same shape."""
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

    shape, weights = SHAPES[ours.config.variant](ours)
    config, kind = {
        "vanilla": (GPT2Config, GPT2LMHeadModel),
        "llama": (LlamaConfig, LlamaForCausalLM),
    }[ours.config.variant]
    told = {
        "vocab_size": ours.config.vocabulary,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    theirs: Any = kind(config(**told, **shape))
    missing = theirs.load_state_dict(weights, strict=False)
    assert not missing.unexpected_keys, missing
    ids = torch.arange(2 * 9).reshape(2, 9) % ours.config.vocabulary
    with torch.inference_mode():
        torch.testing.assert_close(
            theirs.eval()(input_ids=ids).logits, ours.eval()(ids), atol=2e-4, rtol=2e-4
        )
    ours.train()
    return theirs.train()


def their_step(model: Any) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step(batch: Batch) -> None:
        for part in batch.parts:
            ids = part.ids[:, :-1]
            targets = torch.where(part.weights[:, 1:] > 0, part.ids[:, 1:], -100)
            logits = model(input_ids=ids, use_cache=False).logits
            F.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        model.zero_grad(set_to_none=True)

    return step


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


class Products:
    """The matrix products of a step, bare: forward, gradients of inputs, gradients of weights."""

    def __init__(self, model: Decoder, tokens: int, counted: int) -> None:
        always, asked = matrices(model)
        shapes = [(tokens, *matrix.weight.shape) for matrix in always]
        shapes += [(counted, *matrix.weight.shape) for matrix in asked]
        self.flops = sum(6 * rows * out * into for rows, out, into in shapes)
        self._sets = [
            (torch.randn(rows, into), torch.randn(rows, out), torch.randn(out, into))
            for rows, out, into in shapes
        ]

    def speed(self) -> float:
        """FLOP/s of them all."""
        whole = 0.0
        for x, gradient, weight in self._sets:
            three: list[Callable[[], object]] = [
                lambda x=x, w=weight: x @ w.mT,
                lambda g=gradient, w=weight: g @ w,
                lambda g=gradient, x=x: g.mT @ x,
            ]
            for multiply in three:
                multiply()
                whole += float(np.median([seconds(multiply) for _ in range(3)]))
        return self.flops / whole


def against_peak(
    repeats: int,
    work: list[Batch],
    vocabulary: int,
    *,
    variants: tuple[str, ...],
    widths: tuple[int, ...] = (128, 256),
) -> list[dict[str, Any]]:
    records = []
    for variant, width in product(variants, widths):
        model = new_model(variant, width, width // 32, vocabulary)
        some = work[: max(3, len(work) * 64 // width)]
        flops = sum(model_flops(model, batch) for batch in some)
        parts = [part for batch in some for part in batch.parts]
        tokens = sum(p.ids.shape[0] * (p.ids.shape[1] - 1) for p in parts) // len(some)
        asked = sum(map(count_asked, parts)) // len(some)
        products = Products(model, tokens, asked)
        run = partial(_through, our_step(model), some)
        run()
        speeds, peaks = [], []
        for _ in range(repeats):
            before = products.speed()
            speeds.append(flops / seconds(run))
            peaks.append((before + products.speed()) / 2)
        records.append(
            summarise(
                f"training step over matmul peak, {variant}, width {width}, {tokens:,} tokens",
                [speed / peak for speed, peak in zip(speeds, peaks, strict=True)],
                "ratio",
                gflops=float(np.median(speeds)) / 1e9,
                peak_gflops=float(np.median(peaks)) / 1e9,
                tokens=tokens,
                threads=torch.get_num_threads(),
            )
        )
    return records


def _through(step: Step, some: list[Batch]) -> None:
    for batch in some:
        step(batch)


def against_transformers(
    repeats: int,
    work: list[Batch],
    vocabulary: int,
    *,
    widths: tuple[int, ...] = (128, 256),
) -> list[dict[str, Any]]:
    records = []
    for variant, width in product(RIVALS, widths):
        ours = new_model(variant, width, width // 32, vocabulary)
        theirs = their_model(ours)
        our = our_step(ours, optimizer="adamw")
        their = their_step(theirs)
        some = work[: max(2, 8 * 128 // width)]
        tokens = sum(batch.tokens for batch in some)
        for case, their_work in (
            ("same batches", some),
            ("as it batches", batched_at_random(some)),
        ):
            runs = [partial(_through, our, some), partial(_through, their, their_work)]
            for run in runs:
                run()
            pairs = [tuple(map(seconds, runs)) for _ in range(repeats)]
            name = f"speed over transformers' {RIVALS[variant]}, width {width}, {case}, eager"
            details = {
                "ours": tokens / float(np.median([our_seconds for our_seconds, _ in pairs])),
                "rival": tokens / float(np.median([their_seconds for _, their_seconds in pairs])),
                "sides_unit": "tokens/s",
                "parameters": sum(p.numel() for p in ours.parameters()),
                "threads": torch.get_num_threads(),
            }
            ratios = [their_seconds / our_seconds for our_seconds, their_seconds in pairs]
            records.append(summarise(name, ratios, "ratio", **details))
    return records


def batched_at_random(work: list[Batch]) -> list[Batch]:
    """The same examples as a usual trainer has them: shuffled, each batch padded to its longest."""
    rows = []
    for batch in work:
        for part in batch.parts:
            lengths = (part.ids != PAD).sum(1).tolist()
            pairs = zip(part.ids, part.weights, lengths, strict=True)
            rows += [(ids[:length], weights[:length]) for ids, weights, length in pairs]
    order = np.random.default_rng(0).permutation(len(rows))
    batches = []
    for some in np.array_split(order, len(work)):
        ids = nn.utils.rnn.pad_sequence([rows[at][0] for at in some], batch_first=True)
        weights = nn.utils.rnn.pad_sequence([rows[at][1] for at in some], batch_first=True)
        tokens = sum(len(rows[at][0]) for at in some)
        part = MicroBatch(ids, weights)
        counted = float(weights[:, 1:].sum())
        batches.append(Batch((part,), counted, tokens))
    return batches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer cases and repeats")
    parser.add_argument("--out", default="throughput.jsonl")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    repeats = 3 if options.quick else 7
    stream, vocabulary = make_stream()
    work = stream.pool(0)[:12]
    variants = ("llama",) if options.quick else ("llama", "vanilla")
    keep(against_peak(repeats, work, vocabulary, variants=variants), options.out)
    keep(against_transformers(repeats, work, vocabulary), options.out)
    if not options.quick:
        large = make_stream(times=LARGER)[0].pool(0)[:6]
        keep(against_peak(repeats, large, vocabulary, variants=("llama",)), options.out)


if __name__ == "__main__":
    main()
