"""The benchmarks still run: tiny ones of each, their tables, and that no row is measured twice.

Nothing here looks at how long anything takes.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from wherefrom.corpus.questions import read_questions
from wherefrom.corpus.world import make_world
from wherefrom.errors import UserError
from wherefrom.storage import sha256_of
from wherefrom.training.memory import peak_memory
from wherefrom.training.recipes import load_recipe

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def benchmark() -> Iterator[Any]:
    """Imports a benchmark by name, as it imports its neighbours when it is run."""
    sys.path.insert(0, str(ROOT / "benchmarks"))

    def load(name: str) -> ModuleType:
        return importlib.import_module(name)

    yield load
    sys.path.remove(str(ROOT / "benchmarks"))


@pytest.fixture
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


class TestRows:
    def test_a_row_is_measured_once_and_anew_when_a_setting_changes(
        self, benchmark: Any, tmp_path: Path
    ) -> None:
        rows, measured = benchmark("rows"), []

        def measure(settings: dict[str, Any]) -> dict[str, Any]:
            measured.append(settings["row"])
            if settings["row"] == "explodes":
                raise UserError("the loss is no longer a number.")
            return {"name": settings["row"], "value": 1.0}

        out = tmp_path / "rows.jsonl"
        plan = [{"row": name, "seed": 0} for name in ("a", "explodes", "b")]
        first = rows.measure_rows(plan, measure, out)
        assert [row["name"] for row in first] == ["a", "b"]
        with open(out, "a", encoding="utf-8") as file:
            file.write('{"name": "cut sho')
        again = rows.measure_rows([plan[0], plan[2], {"row": "a", "seed": 1}], measure, out)
        assert measured == ["a", "explodes", "b", "a"]
        assert [row["settings"]["seed"] for row in again] == [0, 0, 1]
        assert {"machine", "versions", "commit", "time"} <= set(again[0])

    def test_a_process_of_its_own_has_a_peak_of_its_own(
        self, benchmark: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rows = benchmark("rows")
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        found = rows.run_apart(json.loads, '{"a": 1}', threads=1)
        assert found["a"] == 1
        assert 5 < found["peak_mb"] < peak_memory()  # torch is loaded here and not there
        text = '{"a": "' + "x" * 2**25 + '"}'
        assert rows.run_apart(json.loads, text, threads=1)["peak_mb"] > found["peak_mb"] + 32

    def test_tables_and_shares(self, benchmark: Any) -> None:
        rows = benchmark("rows")
        assert rows.percent([0.5, 0.75]) == "62.5 % (50.0 to 75.0)"
        assert rows.percent([0.5]) == "50.0 %"
        assert rows.table(("a", "b"), [(1, "x")]) == "| a | b |\n| --- | --- |\n| 1 | x |"


class TestAblation:
    def test_every_row_changes_the_shipped_recipe_and_is_a_recipe(self, benchmark: Any) -> None:
        ablation, rows = benchmark("ablation"), benchmark("rows")
        found = {
            name: rows.recipe_digest(ablation.changed_recipe(name, "speedrun"))
            for name in ablation.ROWS
        }
        assert found["shipped"] == rows.recipe_digest(load_recipe("speedrun"))
        assert len(set(found.values())) == len(found)

    def test_shares_are_what_the_rows_say(self, benchmark: Any) -> None:
        ablation = benchmark("ablation")

        def shares(name: str) -> dict[str, float]:
            (phase,) = ablation.changed_recipe(name, "speedrun").phases
            return phase.mixture.shares()

        assert shares("questions-30")["question"] == pytest.approx(0.3)
        assert sum(shares("questions-30").values()) == pytest.approx(1.0)
        before = load_recipe("speedrun").phases[0].mixture
        assert shares("no-salient")["question"] == before.question
        assert shares("text")["text"] == pytest.approx(0.07)
        assert sum(shares("text").values()) == pytest.approx(1.0)
        assert "name" not in shares("no-names")
        assert sum(shares("no-salient").values()) == pytest.approx(sum(before.shares().values()))
        assert "salient" not in shares("no-salient")
        read, ask = ablation.changed_recipe("questions-end", "speedrun").phases
        assert read.mixture.question == 0
        assert set(ask.mixture.shares()) == {"question"}
        assert ask.share / (read.share + ask.share) == pytest.approx(before.question)

    def test_held_out_people_are_not_learned_from(self, benchmark: Any, small_world: Path) -> None:
        ablation = benchmark("ablation")
        train = read_questions(small_world / "train.tsv")
        learn, judge = ablation.hold_out(train, 7, 3)
        assert len({q.subject for q in judge.questions}) == 7
        assert not {q.subject for q in learn.questions} & {q.subject for q in judge.questions}
        assert len(learn.questions) + len(judge.questions) == len(train.questions)
        assert len({part.sha256 for part in (train, learn, judge)}) == 3
        assert ablation.hold_out(train, 7, 3)[1] == judge
        assert ablation.hold_out(train, 7, 4)[1] != judge
        with pytest.raises(UserError, match="give fewer with --held-out"):
            ablation.hold_out(train, 1000, 0)

    @pytest.mark.usefixtures("one_thread")
    def test_a_tiny_row_trains_and_is_told(
        self, benchmark: Any, small_world: Path, tmp_path: Path, quick_recipe: Path
    ) -> None:
        ablation = benchmark("ablation")
        base = {"minutes": None, "steps": 3, "held_out": 5, "threads": 1}
        rows = []
        for name, seed in (("shipped", 0), ("questions-end", 0), ("chars", 1)):
            settings = {"row": name, "seed": seed, **base}
            files = [str(small_world / file) for file in ("documents.txt", "train.tsv")]
            row = ablation.train_row(settings, *files, str(tmp_path / name), str(quick_recipe))
            assert row["total"] == 5
            rows.append({**row, "settings": settings})
        text = ablation.markdown(rows)
        assert "| speedrun as it is shipped | 0.0 % |  | 3 |" in text
        assert "| questions only at the end | 0.0 % | +0.0 |" in text
        assert "| characters | 0.0 % |  |" in text  # another seed is compared with nothing


class TestAccuracy:
    def test_a_finished_run_says_of_itself_what_was_planned(
        self, benchmark: Any, tmp_path: Path, small_world: Path
    ) -> None:
        accuracy = benchmark("accuracy")
        files = {
            "corpus": small_world / "documents.txt",
            "train": small_world / "train.tsv",
            "dev": small_world / "dev.tsv",
        }
        told = {"recipe": "twostep", "minutes": 20.0, "variant": "perceiver"}
        planned = accuracy.plan_row(told, 2, files)
        run = tmp_path / "run"
        run.mkdir()
        (run / "run.json").write_text(json.dumps(finished_run(accuracy, files, told, seed=2)))
        row = accuracy.read_run(run)
        assert row["settings"] == planned
        assert (row["value"], row["twin"], row["unseen"]) == (0.8, 0.1, None)
        out = tmp_path / "accuracy.jsonl"
        for _ in range(2):
            (collected,) = accuracy.collect([run], str(out))
        assert len(out.read_text().splitlines()) == 1
        assert "80.0 %" in accuracy.markdown([collected, row])
        assert "Looks at dev: 2" in accuracy.markdown([collected, row])

    def test_a_run_that_has_not_finished_is_refused(self, benchmark: Any, tmp_path: Path) -> None:
        (tmp_path / "run.json").write_text('{"status": "stopped"}')
        with pytest.raises(UserError, match="is not a finished study"):
            benchmark("accuracy").read_run(tmp_path)

    def test_every_row_can_be_planned(self, benchmark: Any, small_world: Path) -> None:
        accuracy = benchmark("accuracy")
        files = dict.fromkeys(("corpus", "train", "dev"), small_world / "train.tsv")
        plans = [
            accuracy.plan_row(told, 0, files) for rows in accuracy.ROWS.values() for told in rows
        ]
        labels = {accuracy.label(plan) for plan in plans}
        assert len(labels) == len(plans) - 1  # twenty minutes of the recipe's own variant
        assert "world of 3,000, speedrun, llama, bpe, 128x4x4, 8 min" in labels


def finished_run(
    accuracy: Any, files: dict[str, Path], told: dict[str, Any], seed: int
) -> dict[str, Any]:
    """What a study leaves in run.json, as far as it is read."""
    recipe = load_recipe(told["recipe"])
    phases = accuracy.Budget(minutes=told["minutes"]).divide(recipe.phases)
    hashes = {name: {"sha256": sha256_of(path)} for name, path in files.items()}
    results = [
        {"name": "no pretraining", "recall": 0.1, "correct": 1, "total": 10},
        {"name": "pretrained", "recall": 0.8, "correct": 8, "total": 10},
    ]
    return {
        "status": "finished",
        "job": {
            "phases": [phase.model_dump(mode="json") for phase in phases],
            "model": {"variant": told["variant"], "width": 128, "layers": 4, "heads": 4},
            "tokens": "bpe of 1500",
            "seed": seed,
        },
        "data": {"corpus": hashes["corpus"], "questions": {**hashes["train"], "questions": 9}},
        "dev": hashes["dev"],
        "results": results,
        "seconds": 1200.0,
        "steps": 5,
        "trained_tokens": 6,
        "sha256": "abc",
        "versions": {"threads": "2"},
    }


class TestLengths:
    @pytest.mark.parametrize("length", [64, 96, 128])
    def test_the_written_cost_is_what_torch_counts(self, benchmark: Any, length: int) -> None:
        lengths = benchmark("lengths")
        for variant in lengths.VARIANTS:
            run = lengths.make_pass(variant, length)
            # the fused kernel has no count on a CPU, so the same products are made one by one
            with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
                run()
            assert counter.get_total_flops() == lengths.pass_flops(variant, length), variant

    def test_exponents_and_crossovers_of_known_curves(self, benchmark: Any) -> None:
        lengths = benchmark("lengths")
        xs = [128, 256, 512, 1024]
        assert lengths.exponent(xs, [3e-9 * x**1.7 for x in xs]) == pytest.approx(1.7)
        slow, quick = [x * x for x in xs], [300 * x for x in xs]
        assert lengths.crossover(xs, slow, quick) == "300"
        assert lengths.crossover(xs, quick, slow) == "above 1024"
        assert lengths.crossover(xs[2:], slow[2:], quick[2:]) == "below 512"

    def test_a_measurement_its_summary_and_its_picture(
        self, benchmark: Any, tmp_path: Path
    ) -> None:
        lengths = benchmark("lengths")
        one = lengths.measure_here("perceiver", 64, 128)
        assert one["seconds"] > 0
        assert one["rows"] == 2
        records = [
            {
                "variant": variant,
                "length": length,
                "value": 1e-6 * length**power,
                "megabytes": length / 10,
                "flops": lengths.pass_flops(variant, length),
                "time": "now",
            }
            for variant, power in (("vanilla", 2), ("perceiver", 1))
            for length in (128, 512, 2048)
        ]
        sums = lengths.summary(records)
        text = lengths.markdown(records, sums)
        assert "| vanilla, all | 2.00 | 1.00 | 1.28 |" in text
        assert "needs fewer FLOPs: below 128." in text
        results = tmp_path / "lengths.jsonl"
        results.write_text("".join(json.dumps(record) + "\n" for record in [*records, *sums]))
        sys.path.insert(0, str(ROOT / "docs" / "figures"))
        try:
            make = importlib.import_module("make")
        finally:
            sys.path.pop(0)
        drawings = {name: make.svg(build()) for name, build in make.measured(results).items()}
        assert set(drawings) == {"time-against-length", "memory-against-length"}
        assert drawings["time-against-length"].count("<polyline") == 4
        assert drawings["memory-against-length"].count("<polyline") == 2
        assert make.measured(tmp_path / "none.jsonl") == {}


class TestScale:
    def test_bits_of_people_who_are_all_recalled_are_their_surprise(self, benchmark: Any) -> None:
        scale = benchmark("scale")
        people = make_world(400, 0).of_split("dev")
        bits = scale.surprise(["Rome"] * 3 + ["Oslo"], places=4)
        assert bits == {"Rome": 1.0, "Oslo": 2.0, "": 3.0}
        truth = [person.birthplace for person in people]
        assert scale.bits_said(people, truth, bits) == pytest.approx(
            np.mean([bits.get(place, 3.0) for place in truth])
        )
        assert scale.bits_said(people, ["nowhere"] * len(people), bits) == 0
        shares = {"train": 5.0, "dev": 0.25, "unseen": 0.5}
        assert scale.stored_bits(shares, {"train": 10, "dev": 4, "unseen": 2}) == 45.0

    def test_a_model_of_about_that_size_exists(self, benchmark: Any) -> None:
        scale = benchmark("scale")
        width, layers, heads = map(int, scale.size_of(30e6).split("x"))
        assert width == 64 * heads
        assert 20e6 < 2 * width * 32_768 + 12 * layers * width**2 < 60e6

    @pytest.mark.usefixtures("one_thread")
    def test_a_tiny_row_trains_and_is_carried_over(self, benchmark: Any, tmp_path: Path) -> None:
        scale = benchmark("scale")
        settings = {
            "people": 40,
            "size": "16x2x2",
            "seed": 0,
            "minutes": None,
            "steps": 2,
            "threads": 1,
        }
        row = scale.train_row(settings, str(tmp_path))
        assert set(row["recall"]) == {"train", "dev", "unseen"}
        row["settings"] = settings
        assert "nothing to carry over" in scale.markdown([row], gpus=8, flops=1e12)
        good = {**row, "value": 0.9, "bits_per_person": 5.0, "bits_per_parameter": 0.01}
        text = scale.markdown([row, good], gpus=8, flops=1e12)
        assert "| 2,000,000 | 1,000 M |" in text
        assert "torchrun --nproc-per-node 8 -m wherefrom study" in text


@pytest.mark.usefixtures("one_thread")
@pytest.mark.filterwarnings("ignore")
class TestSpeed:
    def test_throughput(self, benchmark: Any) -> None:
        pytest.importorskip("transformers")
        throughput = benchmark("throughput")
        torch.set_num_threads(1)
        stream, vocabulary = throughput.make_stream(people=40)
        work = stream.pool(0)[:1]
        found = throughput.against_transformers(1, work, vocabulary, compiled=False, widths=(32,))
        assert len(found) == 6
        assert all(record["rival"] > 0 < record["ours"] for record in found)
        found = throughput.against_peak(1, work, vocabulary, variants=("llama",), widths=(32,))
        assert [record["unit"] for record in found] == ["ratio"]
        assert found[0]["over_quickest_product"] <= found[0]["value"]
        (waited,) = throughput.waiting(stream, vocabulary, 1)
        assert 0 <= waited["value"] <= 1

    def test_the_rival_gets_the_same_examples_in_other_batches(self, benchmark: Any) -> None:
        throughput = benchmark("throughput")
        ours = throughput.make_stream(people=40)[0].pool(0)[:4]
        theirs = throughput.batched_at_random(ours)

        def examples(batches: Any) -> list[list[int]]:
            rows = [row for batch in batches for part in batch.parts for row in part.ids.tolist()]
            return sorted([token for token in row if token] for row in rows)

        assert examples(theirs) == examples(ours)
        assert [batch.tokens for batch in ours] != [batch.tokens for batch in theirs]
        for side in (ours, theirs):
            for batch in side:
                assert batch.weight == pytest.approx(
                    sum(float(p.weights[:, 1:].sum()) for p in batch.parts)
                )
        assert sum(b.tokens for b in theirs) == sum(b.tokens for b in ours)
        assert sum(b.padded for b in theirs) > 1.1 * sum(b.padded for b in ours)

    def test_decoding(self, benchmark: Any, tmp_path: Path) -> None:
        pytest.importorskip("transformers")
        decoding = benchmark("decoding")
        torch.set_num_threads(1)
        run, questions = decoding.train(tmp_path, "bpe", "16x2x2", 20, people=40)
        found = decoding.compare(run, questions, tmp_path, label="few", repeats=1, sample=1)
        assert [record["name"] for record in found] == [
            "few: ours",
            "few: the course's way over ours",
            "few: transformers over ours",
        ]


class TestBench:
    def test_parts_are_commands_that_explain_themselves(self, benchmark: Any) -> None:
        for name in benchmark("bench").PARTS:
            assert (ROOT / "benchmarks" / f"{name}.py").is_file()

    def test_a_failed_part_does_not_stop_the_others(
        self, benchmark: Any, tmp_path: Path, monkeypatch: Any, capsys: Any
    ) -> None:
        bench = benchmark("bench")
        monkeypatch.setattr(
            bench, "PARTS", {"checker": ["--no-such-option"], "workbench": ["--help"]}
        )
        monkeypatch.setattr(sys, "argv", ["bench.py", "--folder", str(tmp_path)])
        assert bench.main() == 1
        said = capsys.readouterr()
        assert "checker failed" in said.err
        assert "workbench failed" not in said.err
        assert said.out.startswith("| what | ours | rival or goal | ratio | spread |")

    def test_each_kind_of_record_becomes_a_line(self, benchmark: Any) -> None:
        line = benchmark("bench").side_by_side
        rival = {"name": "a", "value": 2.0, "unit": "ratio", "spread": 0.125, "ours": 2e4,
                 "rival": 1e4, "sides_unit": "tokens/s"}  # fmt: skip
        assert line(rival) == ("a", "20,000 tokens/s", "10,000 tokens/s", "2.00", "0.12")
        goal = {"name": "b", "value": 0.5, "unit": "s", "spread": 0.1, "goal": 2}
        assert line(goal) == ("b", "0.5 s", "goal 2 s", "4.0", "0.1 s")
        peak = {"name": "c", "value": 0.7, "unit": "ratio", "spread": 0.0, "gflops": 70,
                "peak_gflops": 100}  # fmt: skip
        assert line(peak) == ("c", "70 GFLOP/s", "100 GFLOP/s", "0.70", "0")
        cross = {"name": "d", "value": "below 128", "unit": "length", "written": "64"}
        assert line(cross) == ("d", "below 128 length", "written cost 64", "", "")


def test_the_commands_start() -> None:
    command = [sys.executable, "benchmarks/ablation.py", "--list"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "| asked-0 | facts drawn evenly (`asked = 0`) |" in done.stdout
