"""Formulas that are meant to hang or crash the checker: none may take over two seconds.

    python benchmarks/hostile.py [--count 5000] [--seed 1] [--out FILE.jsonl]

Deep trees, large powers, factors and n, odd characters, damaged LaTeX and prose, for each of the
fifteen problems in turn. Prints a JSON line (the slowest in seconds of processor time) and every
formula that took longer or ended in an error other than a sentence; then the exit code is 1.
"""

from __future__ import annotations

import argparse
import random
import sys
import time

from records import keep, summarise

from wherefrom.checker import PROBLEMS, Problem, check
from wherefrom.errors import UserError

LIMIT = 2.0  # seconds of processor time
NUMBERS = ("1e12", "1e-12", "999999999989", "0", "0.1", "7", "33", "1237", "1/3", "(1/7)")
LATEX = (
    r"\frac{ \frac12 \left( \right) \begin{pmatrix} \end{pmatrix} \sum_{i \sqrt{ ^{ _{ \| $ $$ \["
)
LATEX += r" \lim_{\beta\to \mathbf \text{where \tag{1} & \\ \infty \gg \in \mathbb{R}^{d\times d}"
WORDS = (
    "where beta is large and the query should be two times k_a because softmax is not very sharp"
)
ODD = "𝓴₁²⁹⁻ᵀ½∑∏‖⟨⟩†⊗≫→∞∈∉±∝√\u200b\u202e\x00\x07\ufeff﷽🙂ﬀßŉ'\"`#%&~"


class Drawing:
    """Random formulas in the names and shapes of one problem."""

    def __init__(self, rng: random.Random, problem: Problem) -> None:
        self.rng, self.problem = rng, problem
        self.numbers = [g.name for g in problem.givens if g.shape.is_number]
        self.others = [g.name for g in problem.givens if not g.shape.is_number] or self.numbers
        self.functions = ["sqrt", "abs", "exp", "log", *problem.functions.split()]

    def number(self, depth: int) -> str:
        rng = self.rng
        if depth == 0:
            return rng.choice([*NUMBERS, *self.numbers, *self.numbers, *self.numbers])
        left, right = self.number(depth - 1), self.number(rng.randrange(depth))
        kind = rng.randrange(10)
        if kind < 6:
            return f"({left}{rng.choice('+-*/')}{right})"
        if kind < 8:
            return f"({left})**{rng.choice([2, 2, 2, 3, 3, 8, 8, 8, 8, 40])}"
        return f"{rng.choice(self.functions)}({left})"

    def table(self, depth: int) -> str:
        """A vector or a matrix, which fits only by chance."""
        rng = self.rng
        if depth == 0:
            return rng.choice(self.others)
        inner = self.table(depth - 1)
        other = self.table(rng.randrange(depth))
        return rng.choice(
            [
                f"({inner}+{other})",
                f"({inner}-{other})",
                f"{self.number(2)}*{inner}",
                f"{inner}/{self.number(2)}",
                f"({inner})@({other})",
                f"({inner}).T",
                f"({inner})@({inner}).T@({other})",
                f"outer({inner},{other})",
                f"pinv({inner})",
                f"inv(I+{inner})",
                f"({inner})**8",
                f"norm({inner})*{other}",
            ]
        )

    def damaged(self, text: str) -> str:
        """With pieces of LaTeX, prose or odd characters put in, and pieces cut out."""
        rng = self.rng
        for _ in range(rng.randrange(1, 6)):
            place = rng.randrange(len(text) + 1)
            added = rng.choice([rng.choice(LATEX.split()), rng.choice(WORDS.split()), "", "("])
            added = added if rng.random() < 0.7 else "".join(rng.choices(ODD, k=rng.randrange(9)))
            text = text[:place] + f" {added} " + text[place + rng.randrange(4) :]
        return text

    def texts(self) -> list[str]:
        """A whole answer: the example with a factor, or random formulas."""
        rng = self.rng
        if self.problem.name == "variance":
            right = self.formula("var_c") if rng.random() < 0.3 else self.number(3)
            return [f"{self.number(rng.randrange(1, 5))} {rng.choice('<>=')} {right}"]
        parts = [text.partition("=") for text in self.problem.example]
        if rng.random() < 0.5:
            return [f"{n}=({self.number(rng.randrange(1, 5))})*({f})" for n, _, f in parts]
        return [f"{n}={self.formula(f)}" for n, _, f in parts]

    def formula(self, example: str) -> str:
        rng, kind = self.rng, self.rng.randrange(8)
        if kind == 0:
            return self.damaged(example)
        if kind == 1:
            return " ".join(rng.choices(WORDS.split(), k=rng.randrange(1, 60)))
        if kind == 2:
            piece = rng.choice(["(", "-", "[", "\\frac", "sqrt(", "[[1,2],", "k_a+", "|", "9"])
            return piece * rng.randrange(1, 900)
        if kind == 3:
            return self.number(rng.randrange(6, 9))
        if kind == 4:
            return self.damaged(self.table(rng.randrange(1, 4)))
        return f"{self.number(rng.randrange(1, 4))}*({self.table(rng.randrange(1, 5))})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default="checker.jsonl")
    options = parser.parse_args()
    rng, problems = random.Random(options.seed), [*PROBLEMS.values()]
    seconds, verdicts, faults = [], dict[str, int](), 0
    for index in range(options.count):
        problem = problems[index % len(problems)]
        texts = Drawing(rng, problem).texts()
        start = time.process_time()
        try:
            word: str = check(problem.name, texts).verdict
        except UserError:
            word = "not read"
        except Exception as error:
            word = type(error).__name__
            faults += 1
            print(f"{word}: {problem.name} {texts} {error}")
        seconds.append(time.process_time() - start)
        verdicts[word] = verdicts.get(word, 0) + 1
        if seconds[-1] > LIMIT:
            faults += 1
            print(f"{seconds[-1]:.2f} s: {problem.name} {texts}")
    name = "slowest of hostile formulas"
    counts = {"of": options.count, "seed": options.seed, "faults": faults, **verdicts}
    keep(
        [summarise(name, [max(seconds)], "s of processor time", goal=LIMIT, **counts)], options.out
    )
    sys.exit(min(faults, 1))


if __name__ == "__main__":
    main()
