"""Bergson, kronfluence and traker on the rows of a run, for benchmarks/attribution.py.

    pip install -e ".[attribution]"
    python benchmarks/attribution.py RUN --bank BANK --only "TrackStar (Bergson)"

All take the rows that `trace` takes, and all matrices but embedding and output.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils.rnn import pad_sequence

from wherefrom.errors import UserError
from wherefrom.model.export import export_model
from wherefrom.model.own import OwnModel
from wherefrom.provenance.attribution.retraining import Row, pad_rows
from wherefrom.storage import read_json, write_json

if TYPE_CHECKING:
    from attribution import Material

Floats = NDArray[np.float64]
Batch = tuple[Tensor, Tensor, Tensor]  # token ids, loss weights, and which inputs are no padding
TRAK_SIZE = 512  # random directions of a whole gradient
BATCH, TOKENS = 64, 2048  # rows, and tokens, that go through the model together
NO_LABEL = -100  # a token without a loss


def require(module: str) -> None:
    """A UserError if a library is not there, before anything is computed."""
    if find_spec(module) is None:
        raise UserError(f'{module} is not installed: pip install -e ".[attribution]"')


def rows_of(material: Material) -> tuple[list[Row], list[Row], NDArray[np.int64]]:
    """Rows of training and of questions, and pairs of a row and a document."""
    rows, documents = material.learned.training_rows()
    owners = [(row, of[0]) for row, of in enumerate(documents) if len(of) == 1]
    asked = [material.learned.answer_rows(q, "", answer)[0] for q, answer in material.rows]
    return rows, asked, np.array(owners).T


def sum_rows(material: Material, scores: Floats, owners: NDArray[np.int64], power: int) -> Floats:
    """(questions, rows) -> (questions, documents): odd powers, summed over a document's rows."""
    largest = np.abs(scores).max(axis=1, keepdims=True).clip(min=1e-30)
    found = np.zeros((len(material.learned.documents), len(scores)))
    np.add.at(found, owners[1], ((scores / largest) ** power).T[owners[0]])
    return found.T


def by_bergson(material: Material, *, method: str, power: int = 1) -> Floats:
    """Bergson's pipelines on the exported run; its tokens are ours, and rows keep their loss."""
    require("bergson")
    from bergson.cli.trackstar import trackstar
    from bergson.config import config
    from bergson.data import load_scores
    from bergson.hessians.pipeline import hessian_pipeline
    from datasets import Dataset

    rows, asked, owners = rows_of(material)
    with TemporaryDirectory() as folder:
        model, out = Path(folder) / "model", Path(folder) / "out"
        export_model(material.run.model, material.run.tokens, model)
        for name, key in (
            ("config.json", "max_position_embeddings"),
            ("tokenizer_config.json", "model_max_length"),
        ):  # a batch may have as many tokens as the model reads; rotary positions have no end
            write_json(model / name, {**read_json(model / name), key: TOKENS})
        for name, each in (("rows", rows), ("asked", asked)):
            table = [
                {"input_ids": ids.tolist(), "labels": ids.where(weights > 0, NO_LABEL).tolist()}
                for ids, weights in each
            ]
            Dataset.from_list(table).save_to_disk(str(Path(folder) / name))
        data = config.DataConfig(dataset=f"{folder}/rows")
        query = config.QuerySetConfig(dataset=f"{folder}/asked")
        options: dict[str, Any] = {"run_path": str(out), "model": str(model), "data": data}
        options["token_batch_size"] = TOKENS
        if method == "trackstar":
            preprocessing = config.PreprocessConfig(unit_normalize=True)
            settings = config.TrackstarConfig(query=query, preprocess_cfg=preprocessing)
            trackstar(config.TrackstarIndexConfig(**options), settings)
        else:
            hessian_pipeline(
                config.IndexConfig(**options),
                config.HessianConfig(method=method, ev_correction=method == "kfac"),
                config.ScoreConfig(),
                config.PreprocessConfig(),
                config.HessianPipelineConfig(query=query),
            )
        scores = np.array(load_scores(out / "scores")[:], dtype=np.float64).T
    return sum_rows(material, scores, owners, power)


def by_ekfac(material: Material) -> Floats:
    """kronfluence's EK-FAC."""
    require("kronfluence")
    from kronfluence.analyzer import Analyzer, prepare_model
    from kronfluence.arguments import FactorArguments, ScoreArguments
    from kronfluence.task import Task
    from torch.utils.data import TensorDataset

    class Rows(Task):  # type: ignore[misc]
        def compute_train_loss(self, batch: Batch, model: Any, sample: bool = False) -> Tensor:
            ids, weights, _ = batch
            logits, targets = model(ids[:, :-1]), ids[:, 1:]
            if sample:
                drawn = torch.multinomial(logits.detach().flatten(0, 1).softmax(-1), 1)
                targets = drawn.view(targets.shape)
            losses = F.cross_entropy(logits.transpose(1, 2), targets, reduction="none")
            return (losses * weights[:, 1:]).sum()

        def compute_measurement(self, batch: Batch, model: Any) -> Tensor:
            return self.compute_train_loss(batch, model)

        def get_influence_tracked_modules(self) -> list[str]:
            return list(OwnModel(material.run.model, material.run.tokens).linear_layers())

        def get_attention_mask(self, batch: Batch) -> Tensor:
            return batch[2]

    rows, asked, owners = rows_of(material)
    train, query = (
        TensorDataset(
            *pad_rows(each), pad_sequence([torch.ones(len(r[0]) - 1) for r in each], True)
        )
        for each in (rows, asked)
    )
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
    return sum_rows(material, scores, owners, 1)


def by_trak(material: Material) -> Floats:
    """traker's TRAK of one model; the output of a row is the log-odds of its answer."""
    require("trak")
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
    "TrackStar (Bergson)": partial(by_bergson, method="trackstar"),
    "TrackStar (Bergson), third powers": partial(by_bergson, method="trackstar", power=3),
    "EK-FAC (Bergson)": partial(by_bergson, method="kfac"),
    "Shampoo (Bergson)": partial(by_bergson, method="shampoo"),
    "EK-FAC (kronfluence)": by_ekfac,
    "TRAK (traker)": by_trak,
}
