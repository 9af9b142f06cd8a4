# %% [markdown]
# # A tour of Wherefrom
#
# From the attention equation to a model that says where its answers come from, through the
# library's own names: `import wherefrom`. Open this file as a notebook (VS Code, Spyder, or Jupyter
# with jupytext), cell by cell, or run all of it:
#
#     python notebooks/tour.py

# %%
from collections import Counter
from pathlib import Path

import numpy as np

import wherefrom

# %% parameters
OUT = "runs/tour"  # the run's folder; a finished run is not trained again
PEOPLE = 1000  # in the embedded world of invented people
BUDGET = {"minutes": 1.0}  # or {"steps": 500}
OPTIONS: dict[str, object] = {}  # whatever else wherefrom.Study takes

# %% [markdown]
# ## 1. The equation
#
# Four orthonormal keys, and a query along the second. The weights are a softmax of the products of
# the query with the keys, the context is the weighted sum of the values. The query points the right
# way from the start; what it needs is length.

# %%
keys = np.eye(4)
values = np.array([[10.0], [20.0], [30.0], [40.0]])
for beta in (1, 3, 10):
    found = wherefrom.attend(beta * keys[1], keys, values)
    print(f"beta {beta:>2}  weights {found.weights.round(3)}  context {found.context.round(2)}")

# %% [markdown]
# ## 2. A claim, checked
#
# "This query gives the average of two values" is a claim about every number of keys. The checker
# proves it, or shows the smallest example on which it fails.

# %%
for text in ("q=(k_a+k_b)/2", "q=beta*(k_a+k_b)"):
    print(text)
    print(wherefrom.check("average", text))

# %% [markdown]
# ## 3. When a key is noisy
#
# Key a now varies in length, e ~ N(1, 1/2). Ask for a and b with one query, or with one head each:
# how much does the weight on a swing from sample to sample? The exact answers are 0.442 and 0.147
# (`wherefrom law one-head --n 8 --beta 10`, and `two-heads`).

# %%
rng = np.random.default_rng(0)
n, beta, samples = 8, 10.0, 20_000
noisy = np.broadcast_to(np.eye(n), (samples, n, n)).copy()
noisy[:, 0, 0] = 1 + np.sqrt(0.5) * rng.standard_normal(samples)
both = beta * (np.eye(n)[0] + np.eye(n)[1])
one_head = wherefrom.attend(both[None, :], noisy, noisy).weights[:, 0, 0]
each = beta * np.eye(n)[:2]
two_heads = wherefrom.attend(each, noisy, noisy).weights[:, :, 0].mean(axis=1)
print(
    f"deviation of the weight on a: {one_head.std():.3f} by one head, {two_heads.std():.3f} by two"
)

# %% [markdown]
# ## 4. A minute of training
#
# The whole job on a world of invented people: guessing, a twin that never read the documents, the
# model that did, and how much each of them gets right. A minute is of training alone, and is meant
# for two idle cores; if recall is poor, the machine was slow or busy: give it more, in another OUT.

# %%
study = wherefrom.Study(OUT, people=PEOPLE, resume=True, **BUDGET, **OPTIONS).run(say=print)
print(study)

# %% [markdown]
# ## 5. Asking, with verdicts
#
# Somebody the model has read about, and somebody who is in no document. `shown` is what a user
# sees: the answer, if a line states it and the confidence is high enough. In a notebook, a result
# at the end of a cell is shown as a table.

# %%
run = wherefrom.Wherefrom(OUT)
world = Path(OUT) / "world"
seen = wherefrom.read_questions(world / "dev.tsv").questions[0]
unseen = wherefrom.read_questions(world / "unseen.tsv").questions[0]
for verdict in run.ask([seen.text, unseen.text]):
    print(verdict.question)
    print(f"  the model says {verdict.answer!r}, the user sees {verdict.shown!r}")
    print(f"  {verdict.verdict}: {verdict.why}")
    for line in verdict.evidence:
        print(f"  line {line.line}: {line.text}")

# %% [markdown]
# ## 6. Many at once
#
# How often is the answer shown, and how often is that right? About people in no document nobody can
# know anything, so no answer about them should be shown.

# %%
verdicts: Counter[str] = Counter()
shown: Counter[str] = Counter()
for name in ("dev", "unseen"):
    people = wherefrom.read_questions(world / f"{name}.tsv").questions
    for person, verdict in zip(people, run.ask([p.text for p in people]), strict=True):
        verdicts[f"{name}, {verdict.verdict}"] += 1
        if verdict.shown == "I don't know":
            shown[f"{name}, I don't know"] += 1
        else:
            right = "right" if verdict.shown == person.answer else "wrong"
            shown[f"{name}, shown and {right}"] += 1
for counts in (verdicts, shown):
    for what, count in sorted(counts.items()):
        print(f"{what:<28} {count}")

# %% [markdown]
# Where to go from here: `run.twins("NAME")` trains the run again without one person's documents,
# `run.report()` writes all numbers as one page, `wherefrom serve` shows it in a browser, `docs/`
# explains the rest.
