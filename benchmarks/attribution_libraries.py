"""TrackStar's estimator, EK-FAC by kronfluence and TRAK by traker, for benchmarks/attribution.py.

    pip install -e ".[attribution]"
    python benchmarks/attribution.py RUN --bank BANK --libraries

All take the rows that `trace` takes, and all matrices but embedding and output.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from wherefrom.errors import UserError
from wherefrom.provenance.attribution.retraining import Row, answer_row, pad_rows
from wherefrom.provenance.attribution.trace import matrices, row_gradients, training_rows

if TYPE_CHECKING:
    from attribution import Material

Floats = NDArray[np.float64]
SIDE = 16  # random directions of each side of a matrix, for TrackStar
DAMPING = 0.1  # as a share of the mean eigenvalue
TRAK_SIZE = 512  # random directions of a whole gradient
BATCH = 64


def find_libraries() -> None:
    """Say which one is missing before anything is computed."""
    for module, package in (("kronfluence", "kronfluence"), ("trak", "traker")):
        if find_spec(module) is None:
            raise UserError(
                f'--libraries needs {package}, which is not there: pip install -e ".[attribution]"'
            )


def rows_of(material: Material) -> tuple[list[Row], list[Row], NDArray[np.int64]]:
    """Rows of training and of questions, and pairs of a row and a document."""
    rows, owners = training_rows(material.run, material.learned.data)
    asked = [answer_row(material.run, *row) for row in material.rows]
    return rows, asked, np.array(owners).T


def sum_rows(material: Material, scores: Floats, owners: NDArray[np.int64], power: int) -> Floats:
    """(questions, rows) -> (questions, documents): odd powers, summed over a document's rows."""
    largest = np.abs(scores).max(axis=1, keepdims=True).clip(min=1e-30)
    found = np.zeros((len(material.learned.documents), len(scores)))
    np.add.at(found, owners[1], ((scores / largest) ** power).T[owners[0]])
    return found.T


def by_trackstar(material: Material) -> Floats:
    """Cosines of projected gradients over the root of their second moment (Chang et al. 2024)."""
    rows, asked, owners = rows_of(material)
    model, random = material.run.model.eval(), torch.Generator().manual_seed(0)

    def directions(size: int) -> Tensor:
        return torch.linalg.qr(torch.randn(size, min(SIDE, size), generator=random))[0]

    sides = {name: list(map(directions, m.weight.shape)) for name, m in matrices(model).items()}

    def project(each: list[Row]) -> dict[str, Tensor]:
        parts: dict[str, list[Tensor]] = {}
        for at in range(0, len(each), BATCH):
            for name, found in row_gradients(model, *pad_rows(each[at : at + BATCH])).items():
                onto, given = sides[name]
                parts.setdefault(name, []).append((onto.T @ found @ given).flatten(1))
        whole = {name: torch.cat(found) for name, found in parts.items()}
        length = torch.cat(list(whole.values()), dim=1).norm(dim=1, keepdim=True)
        return {name: found / length.clamp(min=1e-30) for name, found in whole.items()}

    read, question, units = project(rows), project(asked), []
    for name, found in read.items():
        values, vectors = torch.linalg.eigh(found.T @ found / len(found))
        root = vectors / (values.clamp(min=0) + DAMPING * values.mean() + 1e-30).sqrt()
        units.append((found @ root, question[name] @ root))
    ours, theirs = (F.normalize(torch.cat(part, dim=1), dim=1) for part in zip(*units, strict=True))
    return sum_rows(material, (theirs @ ours.T).double().numpy(), owners, 1)


def by_ekfac(material: Material, *, scaled: bool = False) -> Floats:
    """kronfluence's EK-FAC; scaled: over the root of self-influence, third powers of rows."""
    from kronfluence.analyzer import Analyzer, prepare_model
    from kronfluence.arguments import FactorArguments, ScoreArguments
    from kronfluence.task import Task
    from torch.utils.data import TensorDataset

    class Rows(Task):  # type: ignore[misc]
        def compute_train_loss(self, batch: Row, model: Any, sample: bool = False) -> Tensor:
            ids, weights = batch
            logits, targets = model(ids[:, :-1]), ids[:, 1:]
            if sample:
                drawn = torch.multinomial(logits.detach().flatten(0, 1).softmax(-1), 1)
                targets = drawn.view(targets.shape)
            losses = F.cross_entropy(logits.transpose(1, 2), targets, reduction="none")
            return (losses * weights[:, 1:]).sum()

        def compute_measurement(self, batch: Row, model: Any) -> Tensor:
            return self.compute_train_loss(batch, model)

        def get_influence_tracked_modules(self) -> list[str]:
            return list(matrices(material.run.model))

        def get_attention_mask(self, batch: Row) -> None:
            return None

    rows, asked, owners = rows_of(material)
    train, query = (TensorDataset(*pad_rows(each)) for each in (rows, asked))
    task = Rows()
    model = prepare_model(deepcopy(material.run.model).eval(), task)
    arguments = ScoreArguments(damping_factor=None)
    with TemporaryDirectory() as folder:
        options = {"cpu": True, "disable_tqdm": True, "output_dir": folder}
        analyzer = Analyzer("attribution", model, task, **options)
        analyzer.fit_all_factors(
            "factors",
            train,
            factor_args=FactorArguments(strategy="ekfac"),
            per_device_batch_size=BATCH,
        )
        analyzer.compute_pairwise_scores(
            "pairs",
            "factors",
            query,
            train,
            score_args=arguments,
            per_device_query_batch_size=BATCH,
            per_device_train_batch_size=BATCH,
        )
        scores = analyzer.load_pairwise_scores("pairs")["all_modules"].double().numpy()
        if scaled:
            analyzer.compute_self_scores(
                "own", "factors", train, score_args=arguments, per_device_train_batch_size=BATCH
            )
            own = analyzer.load_self_scores("own")["all_modules"].double().numpy()
            scores = scores / np.sqrt(own.clip(min=1e-30))
    return sum_rows(material, scores, owners, 3 if scaled else 1)


def by_trak(material: Material) -> Floats:
    """traker's TRAK of one model; the output of a row is the log-odds of its answer."""
    from trak import TRAKer
    from trak.modelout_functions import AbstractModelOutput
    from trak.projectors import BasicProjector, ProjectionType

    class Answers(AbstractModelOutput):  # type: ignore[misc]
        def __init__(self) -> None:
            pass

        @staticmethod
        def get_output(
            model: Any, weights: Any, buffers: Any, ids: Tensor, counts: Tensor
        ) -> Tensor:
            logits = torch.func.functional_call(model, (weights, buffers), (ids[None, :-1],))
            losses = F.cross_entropy(logits[0], ids[1:], reduction="none")
            likely = -(losses * counts[1:]).sum()
            return likely - torch.log1p(-likely.exp().clamp(max=1 - 1e-6))

        def get_out_to_loss_grad(
            self, model: Any, weights: Any, buffers: Any, batch: Row
        ) -> Tensor:
            ids, counts = batch
            logits = torch.func.functional_call(model, (weights, buffers), (ids[:, :-1],))
            losses = F.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
            return (1 - (-(losses * counts[:, 1:]).sum(1)).exp()).detach()[:, None]

    rows, asked, owners = rows_of(material)
    (ids, weights), question = pad_rows(rows), pad_rows(asked)
    model = material.run.model.eval()
    with TemporaryDirectory() as folder, sdpa_kernel(SDPBackend.MATH):
        projector = BasicProjector(
            grad_dim=sum(p.numel() for p in model.parameters()),
            proj_dim=TRAK_SIZE,
            seed=0,
            proj_type=ProjectionType.rademacher,
            device="cpu",
            block_size=TRAK_SIZE,
        )
        traker = TRAKer(
            model=model,
            task=Answers(),
            train_set_size=len(ids),
            device="cpu",
            save_dir=folder,
            projector=projector,
            proj_dim=TRAK_SIZE,
            use_half_precision=False,
        )
        traker.load_checkpoint(model.state_dict(), model_id=0)
        for at in range(0, len(ids), BATCH):
            batch = ids[at : at + BATCH], weights[at : at + BATCH]
            traker.featurize(batch=batch, num_samples=len(batch[0]))
        traker.finalize_features()
        projector.generate_sketch_matrix(projector.generator_states[0])  # traker frees it
        traker.start_scoring_checkpoint(
            exp_name="asked", checkpoint=model.state_dict(), model_id=0, num_targets=len(asked)
        )
        for at in range(0, len(asked), BATCH):
            batch = question[0][at : at + BATCH], question[1][at : at + BATCH]
            traker.score(batch=batch, num_samples=len(batch[0]))
        scores = np.array(traker.finalize_scores(exp_name="asked"), dtype=np.float64).T
    return sum_rows(material, scores, owners, 1)


LIBRARIES: dict[str, Callable[[Material], Floats]] = {
    "TrackStar": by_trackstar,
    "EK-FAC (kronfluence)": by_ekfac,
    "EK-FAC, scaled, third powers": partial(by_ekfac, scaled=True),
    "TRAK (traker)": by_trak,
}
