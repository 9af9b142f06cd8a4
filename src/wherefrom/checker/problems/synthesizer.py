"""Does every word look at the words that equal it, whatever a synthesizer has learned?

If row i of S is made of word i and of learned numbers alone, it is the same row in (u, u), which
wants (1/2, 1/2), and in (u, v), which wants (1, 0). If S = c X X^T + c' 1 1^T, words that are equal
are ahead by c, so that c must grow. Any other S is tried on short sentences.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from wherefrom.attention.equation import softmax_over_keys
from wherefrom.checker.betas import ROUNDING, showing_beta
from wherefrom.checker.field import Field, Number, StepBudget, TooLargeError
from wherefrom.checker.goals import (
    Claim,
    certificate,
    decide,
    limit_value,
    limit_weights,
    weights_at,
)
from wherefrom.checker.grammar import Node
from wherefrom.checker.problems.queries import outnumbered_at
from wherefrom.checker.reading import Construction
from wherefrom.checker.results import CheckResult
from wherefrom.checker.spaces import Exact, Floats, Matrix, NoValueError, Values, evaluate, shown

LEARNED = ("A", "B", "R", "b_1", "b_2")
TRIED_N = (2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 50, 100, 1000, 10**6)
MAX_WORDS = 4  # of the sentences that are tried one by one
PRODUCTS = {("X", "X^T"): "X X^T", ("1", "1^T"): "1 1^T"}
TRANSPOSED = {"X": "X^T", "1": "1^T"}


def judge(construction: Construction, draft: CheckResult, budget: StepBudget) -> CheckResult:
    return EqualWords(construction, draft, budget).judge()


class EqualWords:
    """The logits S of one construction over sentences of equal and of different words."""

    def __init__(self, construction: Construction, draft: CheckResult, budget: StepBudget) -> None:
        self.expression = construction.expressions["S"]
        self.draft, self.budget, self.eps = draft, budget, draft.tolerance
        self.learned = sorted(self.expression.names & set(LEARNED))

    def judge(self) -> CheckResult:
        if _is_local(self.expression.tree):
            return self.refuted_as_local()
        if self.learned:
            return self.judge_sentences("")
        result = self.judge_different_words()
        if not result.passed or (_terms(self.expression.tree) or {""}) <= {"0", *PRODUCTS.values()}:
            return result
        return self.judge_sentences("different words and of ")

    def no_value(self, n: int, problem: NoValueError) -> CheckResult:
        because = f"at n = {n} the formula has no value: {problem.sentence}"
        return self.draft.refuted(because, because, {"n": n})

    # ---- sentences of n different words, for every n

    def lead(self, field: Field) -> Number:
        """By how much the logit of a word itself is ahead if all n words differ. In blocks: word 1,
        and the sum of the others over its length."""
        root = field.root(field.n - field.number(1))
        values = {"X": np.eye(2, dtype=int), "ones": [1, root], "beta": field.beta, "n": field.n}
        S = evaluate(self.expression, Exact(field), values)
        return S[0, 0] - S[0, 1] / root

    def judge_different_words(self) -> CheckResult:
        try:
            alone, _ = self.exact_logits((0,), {})  # one word alone has all the weight
        except NoValueError as problem:
            return self.no_value(1, problem)
        if not decide(alone, []).is_proved:
            return self.draft.inconclusive("at n = 1 what it divides by may be zero.")
        field = Field(self.budget, 2)
        lead = self.lead(field)
        decision = decide(field, [Claim(lead, "grows")])
        derived = (f"S_ij - S_ik = {lead} if word i equals j and not k",)
        self.draft = replace(self.draft, derived=derived)
        if decision.is_proved:
            because = (
                f"equal words are ahead of all others by {lead}, which grows with beta, for every "
                "n and every sentence."
            )
            return self.draft.proved(because, certificate(decision))
        sizes = {*TRIED_N, *decision.turning_points()}
        if not lead.names:
            sizes |= outnumbered_at(limit_value(lead, 1), 1, self.eps)
        tried = sorted(size for size in sizes if size >= 2)
        for n in tried:
            at = Field(self.budget, n, n)
            try:
                own = self.lead(at)
            except NoValueError as problem:
                return self.no_value(n, problem)
            weights = limit_weights([own, at.number(0)], n, [1, n - 1])
            if weights is None or not decide(at, []).is_proved:
                return self.draft.inconclusive(f"at n = {n} the sign of a number is not decided.")
            if weights[1] > self.eps * (1 + ROUNDING):
                return self.refuted_lead(own, n)
        listed = ", ".join(map(str, tried))
        return self.draft.holds(
            f"equal words get their weight in the limit of large beta at n = {listed}. "
            "That is no proof for any other n."
        )

    def refuted_lead(self, lead: Number, n: int) -> CheckResult:
        because = f"at n = {n} equal words are ahead by {lead}, which is not enough"
        logits = [lead, lead.field.number(0)]

        def error_at(beta: float) -> float:
            return float(weights_at(logits, n, beta, [1, n - 1])[1])

        found = showing_beta(error_at, self.eps)
        if found is None:
            return self.draft.inconclusive(f"{because}; but no beta that was tried shows it.")
        beta, error = found
        sentence = (
            f"with beta = {beta:g} and n = {n} words that are all different, {error:.4g} "
            f"of the weight of word 1 lies on the others; {self.eps:g} is allowed."
        )
        return self.draft.refuted(because + ".", sentence, {"n": n}, {"beta": beta})

    # ---- short sentences, one by one

    def exact_logits(self, words: Sequence[int], learned: Values) -> tuple[Field, Matrix]:
        """Of one sentence."""
        n = len(words)
        field = Field(self.budget, n, n)
        X = np.eye(MAX_WORDS, dtype=int)[list(words)].astype(object)
        values = {"X": X, "beta": field.beta, "n": n, "ones": [1] * n}
        return field, evaluate(self.expression, Exact(field), values | learned)

    def judge_sentences(self, also: str) -> CheckResult:
        """Every short sentence, with several things learned."""
        for n in range(1, MAX_WORDS + 1):
            for words, (about, learned) in itertools.product(_sentences(n), self.choices(n)):
                told = f"the words {list(words)}{about}"
                try:
                    field, S = self.exact_logits(words, learned)
                except NoValueError as problem:
                    return self.no_value(n, problem)
                rows = [limit_weights(row, n) for row in S]
                if not decide(field, []).is_proved or any(row is None for row in rows):
                    return self.draft.inconclusive(f"{told} are not decided.")
                if _error(rows, words) > self.eps * (1 + ROUNDING):
                    return self.refuted_sentence(words, S, about)
        return self.draft.holds(
            f"in the limit of large beta it is true of {also}every sentence of 1, 2, 3 and 4 "
            "words. That is no proof."
        )

    def choices(self, n: int) -> Iterator[tuple[str, Values]]:
        """What may have been learned."""
        yield (" and what is learned is zero" if self.learned else ""), _learned(n, MAX_WORDS, None)
        for seed in (0, 1) if self.learned else ():
            drawn = _learned(n, MAX_WORDS, np.random.default_rng(seed))
            yield " and what is learned is drawn", drawn

    def refuted_sentence(self, words: Sequence[int], S: Matrix, about: str) -> CheckResult:
        """At the first round beta that shows it."""

        def error_at(beta: float) -> float:
            return _error([weights_at(row, len(words), beta) for row in S], words)

        found = showing_beta(error_at, self.eps)
        because = "a word does not end up looking evenly at the words that equal it"
        if found is None:
            return self.draft.inconclusive(f"{because}; but no beta that was tried shows it.")
        beta, error = found
        if self.learned:
            because += (
                "; S must do so whatever is learned (write beta*X@X.T for X A X^T with A = beta I)"
            )
        sentence = (
            f"with beta = {beta:g}, the words {list(words)}{about}, {error:.4g} of the weight of a "
            f"word is misplaced; {self.eps:g} is allowed."
        )
        numbers = {"words": list(words), "beta": beta, "misplaced": error}
        return self.draft.refuted(because + ".", sentence, {"n": len(words)}, numbers)

    def refuted_as_local(self) -> CheckResult:
        """Both sentences of two words, computed with drawn matrices."""
        learned = _learned(2, 2, np.random.default_rng(self.draft.seed))
        rows = []
        for words in ((0, 0), (0, 1)):
            values = {"X": np.eye(2)[list(words)], "beta": 4.0, "n": 2, "ones": np.ones(2)}
            try:
                S = evaluate(self.expression, Floats(self.budget), values | learned)
            except NoValueError as problem:
                return self.no_value(2, problem)
            except TooLargeError:
                return self.draft.inconclusive("the numbers become too large to compute with.")
            rows.append(softmax_over_keys(S)[0])
        if np.abs(rows[0] - rows[1]).max() > 1e-9:
            return self.judge_sentences("")
        numbers = shown({"u, u": rows[0], "u, v": rows[1]}, ("u, u", "u, v"))
        numbers["wanted"] = [[0.5, 0.5], [1.0, 0.0]]
        because = (
            "row i of S is made of word i and of learned numbers alone, so word 1 has the same "
            "weights whatever word 2 is; one of two sentences is missed by a quarter at least, "
            "whatever is learned."
        )
        sentence = (
            "with n = 2, the words (u, u) want the weights (0.5, 0.5) for word 1 and (u, v) want "
            f"(1, 0), and both get ({rows[0][0]:.4g}, {rows[0][1]:.4g}) (A, B and R drawn)."
        )
        return self.draft.refuted(because, sentence, {"n": 2, "d": 2}, numbers)


def _error(rows: Sequence[Matrix | None], words: Sequence[int]) -> float:
    """The largest misplaced share of a word."""
    same = np.equal.outer(words, words).astype(float)
    wanted = same / same.sum(axis=1, keepdims=True)
    return float(np.abs(np.array(rows) - wanted).sum(axis=1).max() / 2)


def _sentences(n: int) -> Iterator[tuple[int, ...]]:
    """Every sentence of n words, up to the names of the words: each is new or said before."""
    for words in itertools.product(range(n), repeat=n):
        if all(word <= max(words[:i], default=-1) + 1 for i, word in enumerate(words)):
            yield words


def _learned(n: int, d: int, rng: np.random.Generator | None) -> Values:
    shapes = {"A": (d, d), "B": (d, n), "R": (n, n), "b_1": (1, d), "b_2": (1, n)}
    made = {
        name: np.zeros(shape, int) if rng is None else rng.integers(-3, 4, shape)
        for name, shape in shapes.items()
    }
    for bias in ("b_1", "b_2"):
        made[bias] = np.tile(made[bias], (n, 1))
    return dict(made)


def _is_local(node: Node) -> bool:
    """Is row i of the value made of token i and of constants alone?"""
    if "X" not in node.parts():
        return True
    if node.op == "@":
        left, right = node.arguments
        return _is_local(left) and "X" not in right.parts()
    row_by_row = ("name", "+", "-", "*", "/", "relu", "softmax", "layernorm", "mask")
    return node.op in row_by_row and all(map(_is_local, node.arguments))


def _terms(node: Node) -> set[str] | None:
    """What a formula is a sum of, with factors made of beta and n: numbers ("0"), X, X X^T, 1,
    1 1^T; None for any other formula. Of c X X^T + c' 1 1^T two words decide."""
    if node.op in ("number", "name"):
        name = "0" if node.op == "number" or node.name in ("beta", "n") else node.name
        return {"1" if name == "ones" else name} if name in ("0", "X", "ones") else None
    parts = [_terms(part) for part in node.arguments]
    if None in parts:
        return None
    first, last = parts[0] or set(), parts[-1] or set()
    if first == last == {"0"}:
        return first
    if node.op in "+-":
        return first | last
    if node.op == "*":
        return last if first == {"0"} else first
    if node.op == "/":
        return first
    if node.op == "transpose":
        return (
            {TRANSPOSED.get(x, x) for x in first} if not first & set(TRANSPOSED.values()) else None
        )
    if node.op in ("@", "outer") and len(first) == len(last) == 1:
        right = min(last) if node.op == "@" else TRANSPOSED.get(min(last), "")
        product = PRODUCTS.get((min(first), right))
        return {product} if product else None
    return None
