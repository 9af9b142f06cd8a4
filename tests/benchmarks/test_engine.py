"""The benchmarks of speed still run: tiny ones of each, their tables and pictures.

Nothing here looks at how long anything takes.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

ROOT = Path(__file__).parents[2]


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
        assert set(drawings) == {"time-against-length"}
        assert drawings["time-against-length"].count("<polyline") == 4
        assert make.measured(tmp_path / "none.jsonl") == {}


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
        padded = [sum(p.ids.numel() for b in each for p in b.parts) for each in (theirs, ours)]
        assert padded[0] > 1.1 * padded[1]

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


def test_a_command_lists_its_rows(benchmark: Any, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(sys, "argv", ["ablation.py", "--list"])
    benchmark("ablation").main()
    listed = "| asked-0 | facts drawn evenly (`asked_fact_prob = 0`) |"
    assert listed in capsys.readouterr().out
