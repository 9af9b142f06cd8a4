"""What published numbers rest on: costs as they are counted, equal work, people held out."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from wherefrom.training.memory import peak_memory


@pytest.mark.parametrize("length", [64, 128])
def test_the_written_cost_is_what_torch_counts(benchmark, length):
    lengths = benchmark("lengths")
    for variant in lengths.VARIANTS:
        run = lengths.make_pass(variant, length)
        # the fused kernel has no count on a CPU, so the same products are made one by one
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            run()
        assert counter.get_total_flops() == lengths.pass_flops(variant, length), variant


def test_exponents_of_known_curves(benchmark):
    xs = [128, 256, 512, 1024]
    assert benchmark("lengths").exponent(xs, [3e-9 * x**1.7 for x in xs]) == pytest.approx(1.7)


@pytest.mark.filterwarnings("ignore")
def test_speed_is_compared_on_the_same_examples(benchmark):
    pytest.importorskip("transformers")
    throughput = benchmark("throughput")
    stream, vocabulary = throughput.make_stream(people=40)
    ours = stream.pool(0)[:4]
    theirs = throughput.batched_at_random(ours)

    def examples(batches):
        rows = [row for batch in batches for part in batch.parts for row in part.ids.tolist()]
        return sorted([token for token in row if token] for row in rows)

    assert examples(theirs) == examples(ours)
    assert sum(b.tokens for b in theirs) == sum(b.tokens for b in ours)
    assert sum(b.weight for b in theirs) == pytest.approx(sum(b.weight for b in ours))
    one = ours[:1]
    found = throughput.against_transformers(1, one, vocabulary, widths=(32,))
    found += throughput.against_peak(1, one, vocabulary, variants=("llama",), widths=(32,))
    assert len(found) == 5
    assert all(record["value"] > 0 for record in found)


def test_a_row_is_measured_once_and_in_a_process_with_a_peak_of_its_own(benchmark, tmp_path):
    rows, measured = benchmark("rows"), []

    def measure(settings):
        measured.append(settings["row"])
        return {"name": settings["row"], "value": 1.0}

    plan = [{"row": name, "seed": 0} for name in ("a", "b")]
    rows.measure_rows(plan, measure, tmp_path / "rows.jsonl")
    rows.measure_rows([*plan, {"row": "a", "seed": 1}], measure, tmp_path / "rows.jsonl")
    assert measured == ["a", "b", "a"]
    held = bytearray(b"x") * 2**29
    found = rows.run_apart(json.loads, '{"a": "' + "x" * 2**25 + '"}', threads=1)
    assert 64 < found["peak_mb"] < len(held) / 2**20 < peak_memory()


def test_the_other_benchmarks_can_be_started(benchmark, monkeypatch):
    for path in Path(benchmark("bench").__file__).parent.glob("*.py"):
        module = benchmark(path.stem)
        if hasattr(module, "main"):
            monkeypatch.setattr(sys, "argv", [path.name, "--help"])
            with pytest.raises(SystemExit) as end:
                module.main()
            assert not end.value.code, path.name
