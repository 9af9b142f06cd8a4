"""The homework as chapters, in order: what is asked, what to try first, and the answer.

Each chapter is one of the checker's problems, told for somebody who meets it for the first time.
The formulas of the answers are checked by a test, so what is printed here is proved there.
"""

from __future__ import annotations

from dataclasses import dataclass

from wherefrom.attention.checker.problems import PROBLEMS


@dataclass(frozen=True)
class Chapter:
    """One problem: `start` is written into the box, `answer` is shown when asked for."""

    problem: str
    part: str
    title: str
    question: tuple[str, ...]
    start: str
    answer: tuple[str, ...]
    formulas: tuple[str, ...]
    bench: str = ""  # the settings of the sliders that show it, as a query string

    @property
    def write(self) -> str:
        forms = PROBLEMS[self.problem].forms
        return " or ".join(" and ".join(form) for form in forms)


CHAPTERS: tuple[Chapter, ...] = (
    Chapter(
        problem="copy",
        part="a",
        title="Copying",
        question=(
            "Attention gives each value v_i the weight a_i, which is larger the better its key "
            "k_i fits the query q: the weights are softmax of the products k_i . q, and the output "
            "c is the sum of a_i v_i. The weights are positive and add up to one.",
            "When is c almost exactly one of the values, v_j? Write a query that copies it.",
        ),
        start="q = k_j",
        answer=(
            "The product with k_j must be ahead of all others by a wide margin. With keys of "
            "length one, q = beta k_j is ahead by beta, and the others together keep at most a "
            "share of (n - 1) e^-beta.",
            "So q = k_j alone points the right way and is too short: with ten keys, a leftover of "
            "one percent takes beta of 6.8.",
        ),
        formulas=("q=beta*k_j",),
    ),
    Chapter(
        problem="extract",
        part="b.i",
        title="Taking one value back out",
        question=(
            "If c is a sum of two values, can what follows still tell them apart? Suppose v_a lies "
            "in a space with the orthonormal basis A (as columns), v_b in one with the basis B, "
            "and the two spaces are orthogonal.",
            "Write a matrix M with M (v_a + v_b) = v_a for all of them.",
        ),
        start="M = A.T",
        answer=(
            "A^T takes the coordinates of v_a and drops v_b, since A^T B = 0. They are only m "
            "numbers, though, and v_a has d of them: A puts them back where they came from.",
            "So M = A A^T. It maps the space of A to itself, that of B to zero.",
        ),
        formulas=("M=A@A.T",),
    ),
    Chapter(
        problem="average",
        part="b.ii",
        title="An average of two",
        question=(
            "All keys are orthogonal and of length one. You want two values at once: an output "
            "close to (v_a + v_b)/2.",
            "Write a query that does it.",
        ),
        start="q = (k_a + k_b)/2",
        answer=(
            "q = beta (k_a + k_b). Both keys get the product beta and every other key gets 0, so "
            "the two share the weight evenly and the rest fades as beta grows.",
            "Halving it as in an average changes nothing but beta: attention normalises by itself. "
            "What matters is that something in the formula grows.",
        ),
        formulas=("q=beta*(k_a+k_b)",),
    ),
    Chapter(
        problem="noisy-average",
        part="c.i",
        title="Keys that are slightly blurred",
        question=(
            "Now the keys are drawn at random around known means mu_i, which are orthogonal and of "
            "length one. The blur alpha is tiny and the same in all directions.",
            "You know the means, not the keys. Write a query that still gives (v_a + v_b)/2.",
        ),
        start="q = beta*(mu_a - mu_b)",
        answer=(
            "With so little blur each key is nearly its mean, so the query of the last chapter "
            "works with means in the place of keys: q = beta (mu_a + mu_b).",
            "Nearly is a matter of beta: the products blur by alpha beta^2, which must stay small.",
        ),
        formulas=("q=beta*(mu_a+mu_b)",),
        bench="design=one-head&n=8&beta=8&stretch=0&alpha=0.002&heads=1&e=1",
    ),
    Chapter(
        problem="stretched-average",
        part="c.ii",
        title="One key of varying length",
        question=(
            "Key a now keeps its direction and varies in length: k_a = e mu_a, with e drawn from a "
            "normal law of mean 1 and variance 1/2.",
            "What happens to c from sample to sample with your query? And is there one single "
            "query that does not care?",
        ),
        start="q = beta*(mu_a + mu_b)",
        answer=(
            "With q = beta (mu_a + mu_b) the product with k_a is e beta: above beta when e is "
            "above 1, below it otherwise. For large beta all the weight runs to v_a or to v_b, as "
            "a coin falls. What made the average sharp makes it unstable.",
            "It is that query, not having one head, which is at fault: q = -beta (the sum of all "
            "other means) pushes the others away and has no part along mu_a, so the length of k_a "
            "does not matter.",
        ),
        formulas=("q=-beta*sum_others",),
        bench="design=one-head&n=8&beta=10&stretch=0.5&alpha=0&heads=1&e=1.3",
    ),
    Chapter(
        problem="two-heads",
        part="d",
        title="Two heads",
        question=(
            "The same noisy key, and two heads: two queries q1 and q2, and the output is the "
            "average of what both give.",
            "Write two queries with which c stays close to (v_a + v_b)/2 from sample to sample. "
            "Samples in which the key points backwards may be set aside.",
        ),
        start="q1 = beta*(mu_a + mu_b)\nq2 = beta*(mu_a + mu_b)",
        answer=(
            "Let each head copy one value: q1 = beta mu_a and q2 = beta mu_b. Head 1 puts its "
            "weight on a as long as e beta is well above 0; that e is 0.6 or 2 makes no "
            "difference. Head 2 does not feel e at all.",
            "Two heads that ask the same are one head written twice, and remove no noise.",
        ),
        formulas=("q1=beta*mu_a", "q2=beta*mu_b"),
        bench="design=two-heads&n=8&beta=10&stretch=0.5&alpha=0&heads=2&e=1.3",
    ),
    Chapter(
        problem="identity-self-attention",
        part="e.i",
        title="Three words that look at each other",
        question=(
            "Three words are sums of orthogonal vectors of length beta: x_1 = u_d + u_b, "
            "x_2 = u_a, x_3 = u_c + u_b. Each is at once key, query and value.",
            "Which vector does c_2 come close to? And could adding u_d or u_c to x_2 make it u_b?",
        ),
        start="c2 = u_b",
        answer=(
            "Word 2 has the product beta^2 with itself and 0 with the others, so it looks at "
            "itself and c_2 is close to u_a.",
            "It cannot become u_b: u_b only ever comes together with u_d or u_c, and whatever mix "
            "of words is taken, that company comes along.",
        ),
        formulas=("c2=u_a",),
    ),
    Chapter(
        problem="self-attention",
        part="e.ii",
        title="Keys, queries and values",
        question=(
            "The same three words, and now three matrices: k_i = K x_i, q_i = Q x_i, v_i = V x_i.",
            "Write K, Q and V such that c_2 is close to u_b and c_1 close to u_b - u_c.",
        ),
        start="K = I\nQ = I\nV = outer(u_b,u_b)/beta**2",
        answer=(
            "V decides what is passed on: V = (u_b u_b^T - u_c u_c^T)/beta^2 makes the values u_b, "
            "0 and u_b - u_c. Q decides where to look: word 1 must ask for u_c and word 2 for u_d.",
            "That is the point of having three matrices: what a word is looked up by and what it "
            "passes on can be different parts of it.",
        ),
        formulas=(
            "K=I",
            "Q=(outer(u_c,u_d)+outer(u_d,u_a))/norm(u_a)**2",
            "V=(outer(u_b,u_b)-outer(u_c,u_c))/norm(u_b)**2",
        ),
    ),
)
BY_NAME = {chapter.problem: chapter for chapter in CHAPTERS}
