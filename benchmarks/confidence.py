"""What the model alone gives away: the table of docs/provenance.md, from whole studies.

python benchmarks/confidence.py                      # the embedded world, seeds 0, 1 and 2
python benchmarks/confidence.py --a5 FOLDER          # and A5 with 20 % of the people left out

A study that is in --runs already, and finished, is not run again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from rows import Record, add_row_options, measure_rows, numbers, run_main, table

from wherefrom.errors import UserError

A5_FILES = ("wiki.txt", "birth_places_train.tsv", "birth_dev.tsv")
LEFT_OUT = "0.2"  # share of the people of A5 whose documents are not read
COLUMNS = {
    "AUROC, all": "auroc",
    "among seen": "among_seen",
    "within relations": "within_relations",
    "likelihood": "likelihood",
    "relation only": "relation_only",
    "name only": "name_only",
    "ECE": "ece",
    "right shown": "right_shown",
    "not from the text": "missed",
    "unseen shown": "unseen_shown",
    "seen from unseen": "seen",
    "by name only": "seen_by_name",
    "the same, matched": "seen_matched",
    "by name only, matched": "seen_by_name_matched",
    "oracle: right shown": "oracle_right_shown",
    "oracle: AUROC": "oracle_auroc",
}


def measure_oracle(judgement: Record) -> Record:
    """How far one would get who knows which facts the text states, and nothing else.

    It shows every answer to a question that a document answers, and no other.
    """
    groups = judgement["scores"]["always answer"]["groups"]
    right, wrong = (groups["together"]["grades"][key] for key in ("correct", "wrong"))
    stated = sum(counts["stated"] for counts in judgement["silence"].values())
    right_stated = groups["seen"]["grades"]["correct"]
    share_right = right_stated / max(1, right)
    share_wrong = (stated - right_stated) / max(1, wrong)
    ties = share_right * share_wrong + (1 - share_right) * (1 - share_wrong)
    return {
        "oracle_right_shown": share_right,
        "oracle_auroc": share_right * (1 - share_wrong) + ties / 2,
    }


def summarise(judgement: Record) -> Record:
    """The row of one study."""
    scores, seen = judgement["scores"], judgement["seen_from_unseen"]
    ours = scores["internal"]
    shown = judgement["targets"]["from_text"]["internal"]

    def auroc(name: str) -> float | None:
        found: float | None = scores[name]["groups"]["together"]["metrics"]["auroc"]["value"]
        return found

    together = ours["groups"]["together"]["metrics"]
    return {
        "judged": judgement["subjects"]["judged"],
        "auroc": together["auroc"]["value"],
        "auroc_interval": [together["auroc"]["low"], together["auroc"]["high"]],
        "among_seen": ours["groups"]["seen"]["metrics"]["auroc"]["value"],
        "within_relations": ours["within_relations"]["value"],
        "likelihood": auroc("greedy likelihood"),
        "relation_only": auroc("relation only"),
        "name_only": auroc("name only"),
        "ece": together["ece"]["value"],
        "right_shown": shown["right_shown"]["value"],
        "missed": shown["missed"]["value"],
        "unseen_shown": shown["unseen_shown"]["value"],
        "seen": seen["internal"]["value"],
        "seen_by_name": seen["name only"]["value"],
        "seen_matched": seen["matched"]["internal"]["value"],
        "seen_by_name_matched": seen["matched"]["name only"]["value"],
        "guarantee": judgement["guarantees"]["internal"],
        **measure_oracle(judgement),
    }


def run_study(settings: Record, a5: Path | None, runs: Path) -> Record:
    """Study a text, unless its folder is finished, and read its judgement."""
    folder = runs / f"{settings['row']}-{settings['seed']}"
    if not (folder / "judgement.json").is_file():
        command = [sys.executable, "-m", "wherefrom", "--quiet", "study", "--resume"]
        command += ["--seed", str(settings["seed"]), "--out", str(folder)]
        if settings["row"] == "a5" and a5 is not None:
            command += [*(str(a5 / name) for name in A5_FILES), "--leave-out", LEFT_OUT]
        if subprocess.run(command, stdout=subprocess.DEVNULL).returncode:
            raise UserError(f"the study in {folder} failed.")
    return summarise(json.loads((folder / "judgement.json").read_text(encoding="utf-8")))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=numbers, default=[0, 1, 2])
    parser.add_argument("--a5", type=Path, help="folder of the A5 files")
    add_row_options(parser, "confidence.jsonl")
    given = parser.parse_args()
    plan = [{"row": "world", "seed": seed} for seed in given.seeds]
    if given.a5:
        plan += [{"row": "a5", "seed": seed} for seed in given.seeds]
    rows = measure_rows(plan, lambda settings: run_study(settings, given.a5, given.runs), given.out)
    names = [f"{row['settings']['row']}, seed {row['settings']['seed']}" for row in rows]
    lines = [
        [label, *("" if row[key] is None else f"{row[key]:.3f}" for row in rows)]
        for label, key in COLUMNS.items()
    ]
    print(table(["", *names], lines))


if __name__ == "__main__":
    sys.exit(run_main(main))
