"""Which documents pushed an answer, by the gradients of the finished model: an index, made once.

The score of document i starts from the cosine of g_q and g_i, both divided by the root of F:

    g_q^T (F + damping)^-1 g_i / lengths

where g_i is the sum of the gradients of all rows made of it, g_q the gradient of the answer's row,
and F the sum of the squared gradients of all rows (the empirical Fisher matrix), taken for each
matrix of the model as diagonal in the Kronecker-factored eigenbasis (EK-FAC; George et al. 2018).
Gradients are those of the log-odds of a row (TRAK; Park et al. 2023): a row that is known by heart
has hardly any gradient of log p. What is left is folded into SKETCH numbers with random signs,
which leaves inner products as they are on average; a document is SKETCH half-precision numbers.

Then what documents share is counted once ((K + RIDGE)^-1 with K their own cosines, as TRAK does)
and the third power is taken. Ridge, power and leaving out the embedding were chosen on one bank of
retrained models and are judged on another (docs/trace.md).

The rows are drawn as in the run's own batches. A row made of a question counts for all documents
about its subject, in equal parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn import functional as F

from wherefrom.corpus.batches import MicroBatch
from wherefrom.corpus.documents import Document
from wherefrom.corpus.questions import Question
from wherefrom.corpus.tokenizer import MASK
from wherefrom.errors import UserError
from wherefrom.model.decoder import Decoder
from wherefrom.storage import write_whole
from wherefrom.training.recipes import Phase
from wherefrom.training.run_folder import Run
from wherefrom.training.sources import TrainingData, stream_for

INDEX = "gradients.safetensors"
SKETCH = 16_384
ROWS = 64  # whose gradients are held at once
ROWS_OF_DOCUMENT = 2  # drawn for each document, on average, at least
FISHER_ROWS = 768  # that the eigenbases and eigenvalues are estimated from
SURE = 1e-3  # the least distance of a probability from 1
DAMPING = 0.1  # as a share of the mean eigenvalue of a matrix
RIDGE = 0.5  # added to the documents' cosines; as TRAK, what many documents share counts once
POWER = 3  # odd; few lines push much, and sums of many small scores are noise
WIDEST_BASIS = 512  # sides of a matrix above that are not rotated

Factors = dict[str, tuple[Tensor, Tensor]]  # by matrix: inputs (B, T, in), gradients (B, T, out)


def row_factors(model: Decoder, ids: Tensor, weights: Tensor) -> Factors:
    """What each row's gradient of its loss with respect to each matrix is made of.

    The gradient of a row is the sum over positions of (gradient at the output) (input)^T. Matrices
    that no module applies, norms, biases and the embedding are left out.
    """
    taken: Factors = {}
    inputs: dict[str, Tensor] = {}
    outputs: dict[str, Tensor] = {}

    def keep(name: str) -> Callable[[nn.Module, tuple[Tensor], Tensor], None]:
        def hook(module: nn.Module, given: tuple[Tensor], out: Tensor) -> None:
            inputs[name], outputs[name] = given[0].detach(), out

        return hook

    matrices = {
        name: module for name, module in model.named_modules() if isinstance(module, nn.Linear)
    }
    handles = [module.register_forward_hook(keep(name)) for name, module in matrices.items()]
    try:
        with torch.enable_grad():
            logits = model(ids[:, :-1])
            losses = F.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
            totals = (losses * weights[:, 1:]).sum(1)
            slopes = torch.autograd.grad(totals.sum(), list(outputs.values()))
    finally:
        for handle in handles:
            handle.remove()
    # of the log-odds, as TRAK does: a row that is known by heart has hardly any gradient of log p
    odds = 1 / (1 - torch.exp(-totals.detach())).clamp(min=SURE)
    for name, slope in zip(outputs, slopes, strict=True):
        taken[name] = (inputs[name].expand(len(ids), -1, -1), slope * odds[:, None, None])
    return taken


@lru_cache(maxsize=256)
def folding(number: int, size: int) -> tuple[Tensor, Tensor]:
    """The random order and signs in which matrix `number` is folded."""
    random = torch.Generator().manual_seed(number)
    order = torch.randperm(size, generator=random)
    return order, (torch.randint(0, 2, (size,), generator=random) * 2 - 1).float()


@dataclass(frozen=True, eq=False)
class Preconditioner:
    """By matrix: the eigenbasis of its inputs and output gradients, and F in that basis."""

    bases: dict[str, tuple[Tensor | None, Tensor | None]]
    fisher: dict[str, Tensor]  # (out, in)

    def rotated(self, factors: Factors) -> Iterator[tuple[str, Tensor]]:
        """Each matrix with the gradients of the rows (B, out, in) in its eigenbasis."""
        for name, (given, slope) in factors.items():
            into, out = self.bases[name]
            given = given if into is None else given @ into
            slope = slope if out is None else slope @ out
            yield name, slope.transpose(1, 2) @ given

    def sketch(self, factors: Factors, damping: float = DAMPING) -> Tensor:
        """(B, SKETCH): the gradients divided by the root of F, folded with random signs."""
        result: Tensor | None = None
        for number, (name, gradients) in enumerate(self.rotated(factors)):
            fisher = self.fisher[name]
            scaled = (gradients / (fisher + damping * fisher.mean() + 1e-30).sqrt()).flatten(1)
            size = scaled.shape[1]
            order, signs = folding(number, size)
            folded = F.pad(scaled[:, order] * signs, (0, -size % SKETCH))
            part = folded.view(len(scaled), -1, SKETCH).sum(1)
            result = part if result is None else result + part
        assert result is not None
        return result


def fit_preconditioner(
    model: Decoder, rows: Sequence[tuple[Tensor, Tensor]], total: int
) -> Preconditioner:
    """Eigenbases and eigenvalues from some rows (ids, weights), as if there were `total` rows."""
    moments: dict[str, list[Tensor | None]] = {}
    kept = []
    for ids, weights in rows:
        factors = row_factors(model, ids, weights)
        kept.append(factors)
        for name, sides in factors.items():
            sums = moments.setdefault(name, [None, None])
            for at, side in enumerate(sides):
                if side.shape[2] <= WIDEST_BASIS:
                    flat = side.flatten(0, 1)
                    before = sums[at]
                    sums[at] = flat.T @ flat if before is None else before + flat.T @ flat
    bases = {}
    for name, sums in moments.items():
        into, out = (None if s is None else torch.linalg.eigh(s)[1] for s in sums)
        bases[name] = (into, out)
    found = Preconditioner(bases, {})
    count = 0
    for factors in kept:
        for name, gradients in found.rotated(factors):
            squares = (gradients**2).sum(0)
            found.fisher[name] = found.fisher.get(name, torch.zeros(())) + squares
        count += len(gradients)
    for name, value in found.fisher.items():
        found.fisher[name] = value * (total / count)
    return found


@dataclass(frozen=True, eq=False)
class GradientIndex:
    """The sketches of all documents of a run: (documents, SKETCH), each of length 1."""

    preconditioner: Preconditioner
    documents: Tensor

    @cached_property
    def _kernel(self) -> Tensor:
        """Cholesky factor of the documents' own cosines with RIDGE added: (n, n)."""
        cosines = self.documents.float() @ self.documents.float().T
        return torch.linalg.cholesky(cosines + RIDGE * torch.eye(len(cosines)))

    def scores(self, model: Decoder, ids: Tensor, weights: Tensor) -> NDArray[np.float64]:
        """The score of every document for one row; 1 for a document of the row's own direction."""
        query = self.preconditioner.sketch(row_factors(model, ids[None], weights[None]))[0]
        cosines = self.documents.float() @ (query / query.norm().clamp(min=1e-30))
        shared = torch.cholesky_solve(cosines[:, None], self._kernel)[:, 0] * (1 + RIDGE)
        return (shared.numpy().astype(np.float64)) ** POWER


def answer_row(run: Run, question: str, answer: str) -> tuple[Tensor, Tensor]:
    """Token ids and weights of a question with its answer: the weights are 1 on the answer."""
    prompt, said = run.tokens.encode_all([question, answer])
    ids = [*prompt, MASK, *said, MASK]
    if len(ids) - 1 > run.model.config.longest_input:
        raise UserError(
            f"the question and its answer have {len(ids)} tokens and this model reads "
            f"{run.model.config.longest_input}; ask a shorter one."
        )
    weights = torch.ones(len(ids))
    weights[: len(prompt) + 1] = 0
    return torch.tensor(ids), weights


def build_index(
    run: Run,
    documents: Sequence[Document],
    questions: Sequence[Question],
    *,
    observe: Callable[[float], None] = lambda _: None,
) -> GradientIndex:
    """Draw rows as every phase of the run did, and sum their gradients by document."""
    model = run.model.eval()
    data = TrainingData.encode(documents, questions, run.tokens, model.config.block)
    parts: list[MicroBatch] = []
    for at, fields in enumerate(run.info["job"]["phases"]):
        stream = stream_for(Phase(**fields), data, [run.info["job"]["seed"], at])
        drawn = pools = 0
        while drawn < ROWS_OF_DOCUMENT * len(documents):
            fresh = [part for batch in stream.pool(pools) for part in batch.parts]
            drawn, pools = drawn + sum(len(part.ids) for part in fresh), pools + 1
            parts += fresh
    pieces = [
        (part.ids[at : at + ROWS], part.weights[at : at + ROWS], part.sources[at : at + ROWS])
        for part in parts
        for at in range(0, len(part.ids), ROWS)
    ]
    total = sum(len(ids) for ids, _, _ in pieces)
    order = np.random.default_rng(0).permutation(len(pieces))
    chosen = [pieces[at][:2] for at in order[: max(1, FISHER_ROWS * len(pieces) // total)]]
    preconditioner = fit_preconditioner(model, chosen, total)
    sums = torch.zeros(len(documents), SKETCH)
    done = 0
    for ids, weights, sources in pieces:
        sketches = preconditioner.sketch(row_factors(model, ids, weights))
        for sketch, source in zip(sketches, sources, strict=True):
            members = data.members[source]
            for document in members:
                sums[document] += sketch / len(members)
        done += len(ids)
        observe(done / total)
    lengths = sums.norm(dim=1, keepdim=True).clamp(min=1e-30)
    return GradientIndex(preconditioner, (sums / lengths).half())


def save_index(index: GradientIndex, path: Path, sha256: str) -> None:
    """Write an index; `sha256` says which weights it is of."""
    tensors = {"documents": index.documents}
    for name, fisher in index.preconditioner.fisher.items():
        tensors[f"fisher/{name}"] = fisher
        for side, basis in zip(("in", "out"), index.preconditioner.bases[name], strict=True):
            if basis is not None:
                tensors[f"{side}/{name}"] = basis.contiguous()
    write_whole(path, save(tensors, metadata={"run": sha256}))


def load_index(path: Path, sha256: str) -> GradientIndex | None:
    """The index of these weights, or None if there is none that can be read."""
    try:
        with safe_open(path, framework="pt") as file:
            if (file.metadata() or {}).get("run") != sha256:
                return None
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError):
        return None
    fisher = {n[len("fisher/") :]: t for n, t in tensors.items() if n.startswith("fisher/")}
    bases = {name: (tensors.get(f"in/{name}"), tensors.get(f"out/{name}")) for name in fisher}
    return GradientIndex(Preconditioner(bases, fisher), tensors["documents"])
