"""What `wherefrom` says when it is told nothing: all that it can do, on one screen."""

from __future__ import annotations

from collections.abc import Iterable

# what somebody wants -> the commands that do it; `--help` has them all with a sentence each
GROUPS: dict[str, tuple[str, ...]] = {
    "the whole job": ("study", "report", "serve"),
    "ask a run": ("ask", "evaluate", "attention", "judge", "names", "twins"),
    "step by step": ("pretrain", "finetune", "baseline", "export"),
    "attention by hand": ("problems", "check", "design", "law"),
    "what there is": ("variants", "recipes", "world", "completion"),
}
FIRST_STEPS = (
    ("wherefrom study --out runs/study --minutes 8", "train and ask: invented people"),
    ('wherefrom ask "Where was Ada Moe born?"', "ask the newest run"),
    ("wherefrom serve", "the same, in a browser"),
    ('wherefrom check average "q=beta*(k_a+k_b)"', "no training: attention itself"),
)


def overview(commands: Iterable[str]) -> str:
    """One screen of 80 columns; a command that is in no group is listed behind the others."""
    left = list(commands)
    lines = [
        "Wherefrom trains a small Transformer on a text of yours, asks it questions, and",
        "says for every answer where it came from: remembered, or made up.",
        "",
    ]
    for title, names in GROUPS.items():
        here = [name for name in names if name in left]
        left = [name for name in left if name not in here]
        lines.append(f"  {title:<20}{'  '.join(here)}")
    if left:
        lines.append(f"  {'more':<20}{'  '.join(left)}")
    lines += ["", "First steps:"]
    lines += [f"  {command:<46}{about}" for command, about in FIRST_STEPS]
    lines += ["", "wherefrom --help lists the commands, wherefrom COMMAND --help explains one."]
    return "\n".join(lines)
