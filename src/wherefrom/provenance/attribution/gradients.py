"""Which documents pushed an answer, by the gradients of the finished model: an index, made once.

Every row that training makes of a document, and the answer's row, has a gradient for each matrix:
the sum over positions of (gradient at the output) (input)^T. Both sides are projected to random
directions before they meet (LoGra; Choe et al. 2024). The result is divided by the root of its
second moment over all rows (the projected Fisher matrix) and scaled to length 1. The score of a
document is the sum, over its rows, of the third powers of the cosines with the answer's row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn import functional as F

from wherefrom.corpus.tokenizer import MASK
from wherefrom.errors import UserError
from wherefrom.model.decoder import Decoder
from wherefrom.storage import write_whole
from wherefrom.training.recipes import Phase
from wherefrom.training.run_folder import Run
from wherefrom.training.sources import TrainingData, stream_for

INDEX = "gradients.safetensors"
SIDE = 16  # random directions of each side of a matrix
TOKENS = 4096  # of the rows whose gradients are taken at once
DAMPING = 0.1  # as a share of the mean eigenvalue of a matrix's second moment
POWER = 3  # odd; few lines push much, and sums of many small scores are noise

Row = tuple[Tensor, Tensor]  # token ids and loss weights


def answer_row(run: Run, question: str, answer: str) -> Row:
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


def pad_rows(rows: Sequence[Row]) -> Row:
    """Rows of different lengths as one batch; what is added counts nothing."""
    longest = max(len(ids) for ids, _ in rows)
    pads = [(F.pad(i, (0, longest - len(i))), F.pad(w, (0, longest - len(w)))) for i, w in rows]
    return torch.stack([ids for ids, _ in pads]), torch.stack([weights for _, weights in pads])


def project_gradients(model: Decoder, ids: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """By matrix (B, SIDE * SIDE): each row's gradient of its loss, both sides projected.

    Left out: embedding and output, matrices that no module applies, norms and biases.
    """
    inputs: dict[str, Tensor] = {}
    outputs: dict[str, Tensor] = {}

    def keep(name: str, module: nn.Module, given: tuple[Tensor], out: Tensor) -> None:
        inputs[name], outputs[name] = given[0].detach(), out

    handles = [
        module.register_forward_hook(partial(keep, name))
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and module is not model.head
    ]
    counts = weights[:, 1:].flatten()
    select = counts.nonzero().flatten()
    try:
        with torch.enable_grad():
            logits = model(ids[:, :-1], select=select)
            losses = F.cross_entropy(logits, ids[:, 1:].flatten()[select], reduction="none")
            slopes = torch.autograd.grad((losses * counts[select]).sum(), list(outputs.values()))
    finally:
        for handle in handles:
            handle.remove()
    found = {}
    for name, slope in zip(outputs, slopes, strict=True):
        into, out = inputs[name], slope
        given = into @ random_directions(f"{name} in", into.shape[-1])
        onto = out @ random_directions(f"{name} out", out.shape[-1])
        if onto.dim() == 3:
            found[name] = (onto.mT @ given.expand(len(ids), -1, -1)).flatten(1)
        else:  # of the selected positions alone
            each = (onto[:, :, None] * given[:, None, :]).flatten(1)
            row = select // (ids.shape[1] - 1)
            found[name] = torch.zeros(len(ids), each.shape[1]).index_add(0, row, each)
    return found


@lru_cache(maxsize=512)
def random_directions(name: str, size: int) -> Tensor:
    """(size, SIDE): orthogonal columns, the same for the same name; all of a small space."""
    random = torch.Generator().manual_seed(crc32(name.encode()))
    drawn = torch.randn(size, min(SIDE, size), generator=random)
    return torch.linalg.qr(drawn)[0]


@dataclass(frozen=True, eq=False)
class GradientIndex:
    """The gradients of all rows of a run's documents: (rows, features), each of length 1.

    roots: by matrix, what its projected gradients are multiplied by. owners: pairs of a row and a
    document that it was made of: (2, pairs).
    """

    roots: dict[str, Tensor]
    rows: Tensor
    owners: Tensor
    documents: int

    def features(self, found: dict[str, Tensor]) -> Tensor:
        """(B, features): projected gradients divided by the root of their second moment."""
        whole = torch.cat([found[name] @ self.roots[name] for name in sorted(self.roots)], dim=1)
        return F.normalize(whole, dim=1, eps=1e-30)

    def score_features(self, features: Tensor) -> NDArray[np.float64]:
        """The score of every document for features of one row."""
        cosines = torch.cat([part.float() @ features for part in self.rows.split(4096)])
        scores = cosines.double().numpy() ** POWER
        row, document = self.owners.numpy()
        totals = np.zeros(self.documents)
        np.add.at(totals, document, scores[row])
        return totals

    def scores(self, model: Decoder, ids: Tensor, weights: Tensor) -> NDArray[np.float64]:
        """The score of every document for one row."""
        found = project_gradients(model.eval(), ids[None], weights[None])
        return self.score_features(self.features(found)[0])

    def nearest(self, places: Sequence[int], count: int) -> set[int]:
        """Other documents whose gradients are nearest to those of the documents at some places."""
        row, document = self.owners
        own = row[torch.isin(document, torch.tensor(places))]
        scores = self.score_features(F.normalize(self.rows[own].float().sum(0), dim=0))
        order = [int(at) for at in np.argsort(-scores) if int(at) not in set(places)]
        return set(order[:count])


def build_index(run: Run, data: TrainingData) -> GradientIndex:
    """Make every record of every objective of the run a row, and take its gradient."""
    model = run.model.eval()
    rng, seed = np.random.default_rng(0), run.info["job"]["seed"]
    streams = [stream_for(Phase(**fields), data, [seed]) for fields in run.info["job"]["phases"]]
    examples = [
        (source.make(record, rng), source.numbers[record])
        for stream in streams
        for source in stream.sources
        for record in range(source.count)
    ]
    examples.sort(key=lambda pair: len(pair[0]))
    parts: list[dict[str, Tensor]] = []
    at = 0
    while at < len(examples):
        size = max(1, TOKENS // len(examples[min(at + 64, len(examples) - 1)][0]))
        chunk = [example for example, _ in examples[at : at + size]]
        rows = [(torch.from_numpy(e.ids).long(), torch.from_numpy(e.weights)) for e in chunk]
        found = project_gradients(model, *pad_rows(rows))
        length = torch.cat(list(found.values()), dim=1).norm(dim=1, keepdim=True).clamp(min=1e-30)
        parts.append({name: (each / length).half() for name, each in found.items()})
        at += size
    roots, features = {}, []
    for name in sorted(parts[0]):
        whole = torch.cat([part.pop(name) for part in parts]).float()
        values, vectors = torch.linalg.eigh(whole.T @ whole / len(whole))
        roots[name] = vectors / (values.clamp(min=0) + DAMPING * values.mean() + 1e-30).sqrt()
        features.append((whole @ roots[name]).half())
    units = [F.normalize(part.float(), dim=1).half() for part in torch.cat(features, 1).split(4096)]
    owners = [
        (row, place) for row, (_, source) in enumerate(examples) for place in data.members[source]
    ]
    return GradientIndex(roots, torch.cat(units), torch.tensor(owners).T, len(data.documents))


def save_index(index: GradientIndex, path: Path, sha256: str) -> None:
    """Write an index; `sha256` says which weights it is of."""
    tensors = {"rows": index.rows, "owners": index.owners.contiguous()}
    tensors |= {f"root/{name}": root.contiguous() for name, root in index.roots.items()}
    metadata = {"run": sha256, "documents": str(index.documents)}
    write_whole(path, save(tensors, metadata=metadata))


def load_index(path: Path, sha256: str) -> GradientIndex | None:
    """The index of these weights, or None if there is none that can be read."""
    try:
        with safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
            if about.get("run") != sha256:
                return None
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            roots = {n[len("root/") :]: t for n, t in tensors.items() if n.startswith("root/")}
            count = int(about["documents"])
            return GradientIndex(roots, tensors["rows"], tensors["owners"], count)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError):
        return None
