# %% [markdown]
# # Where a fact is recalled, with TransformerLens
#
# A run of Wherefrom, exported, is a Llama or a GPT-2 to every tool of the field. This page opens
# one in TransformerLens (`pip install transformer_lens`) and asks in which layer, and at which
# words of "Where was X born?", the answer comes about. Run all of it, or cell by cell:
#
#     python notebooks/lens.py

# %%
import tempfile
from pathlib import Path

import torch
from transformer_lens.model_bridge import TransformerBridge
from transformers import AutoTokenizer

import wherefrom

# %% parameters
RUN = "runs/study"  # a finished study, such as `make study` leaves
QUESTIONS = "runs/study/world/dev.tsv"
MOST = 100  # questions to look at

# %% [markdown]
# ## 1. The run as everybody's model
#
# The questions are those that the run answers rightly: there is a fact to be found.

# %%
run = wherefrom.Wherefrom(RUN)
folder = str(run.export(Path(tempfile.mkdtemp()) / "exported"))
tokenizer = AutoTokenizer.from_pretrained(folder)
model = TransformerBridge.boot_transformers(folder, device="cpu")
model.eval()
torch.set_grad_enabled(False)
asked = wherefrom.read_questions(QUESTIONS).questions[:MOST]
said = run.ask([question.text for question in asked])
known = [q for q, verdict in zip(asked, said, strict=True) if verdict.answer == q.answer]
assert known, "there is no fact to look for: train for longer"
print(f"{len(known)} of {len(asked)} questions are answered rightly")


# %%
def encode(question):
    """Its ids with MASK behind them, and which of them overlap the name."""
    found = tokenizer(question.text + tokenizer.eos_token, return_offsets_mapping=True)
    start = question.text.index(question.subject)
    end = start + len(question.subject)
    name = [a < end and b > start for a, b in found["offset_mapping"]]
    return torch.tensor([found["input_ids"]]), torch.tensor(name)


ids, name = encode(known[0])
logits, cache = model.run_with_cache(ids)
difference = (logits - run.run.model(ids)).abs().max()
print(f"largest difference to our own logits: {difference:.1e}")

# %% [markdown]
# ## 2. When is the answer there? The logit lens
#
# The first token of the answer is read off the last position after each layer, as if the model
# ended there. Beside it: how much of the last position's attention falls on the name.

# %%
layers = range(model.cfg.n_layers)
there, on_name = torch.zeros(2, model.cfg.n_layers)
for question in known:
    ids, name = encode(question)
    logits, cache = model.run_with_cache(ids)
    answer = logits[0, -1].argmax()
    for layer in layers:
        early = model.unembed(model.ln_final(cache[f"blocks.{layer}.hook_resid_post"][:, -1:]))
        there[layer] += (early[0, -1].argmax() == answer) / len(known)
        pattern = cache[f"blocks.{layer}.attn.hook_pattern"][0, :, -1]
        on_name[layer] += pattern[:, name].sum(dim=-1).mean() / len(known)
print("after layer   answer on top   attention on the name")
for layer in layers:
    print(f"{layer:>11}   {there[layer]:>13.0%}   {on_name[layer]:>21.0%}")

# %% [markdown]
# ## 3. Where does it pass? Patching
#
# Two questions of one form, whose names have as many tokens. Before a layer, the states at the
# name, or at the words behind it, are replaced by those of the other question. Where the answer
# becomes the other's, the fact has to pass.


# %%
def first_token(ids):
    return model(ids)[0, -1].argmax().item()


pairs, waiting = [], {}
for question in known:
    ids, name = encode(question)
    form = (question.template, tuple(name.tolist()))
    before = waiting.setdefault(form, ids)
    if first_token(before) != first_token(ids):
        pairs += [(before, ids, name), (ids, before, name)]
moved = {"name": torch.zeros(len(layers)), "behind it": torch.zeros(len(layers))}
for ids, ids2, name in pairs:
    logits, cache = model.run_with_cache(ids2)
    behind = ~name & (torch.arange(len(name)) > name.nonzero().max())
    for where, places in (("name", name), ("behind it", behind)):
        for layer in layers:
            hook = f"blocks.{layer}.hook_resid_pre"

            def patch(state, hook, places=places, source=cache[hook]):
                state[:, places] = source[:, places]
                return state

            patched = model.run_with_hooks(ids, fwd_hooks=[(hook, patch)])
            moved[where][layer] += (patched[0, -1].argmax() == logits[0, -1].argmax()) / len(pairs)
print(f"{len(pairs)} pairs; the answer becomes the other's if the states are replaced")
print("before layer   at the name   behind it")
for layer in layers:
    print(f"{layer:>12}   {moved['name'][layer]:>11.0%}   {moved['behind it'][layer]:>9.0%}")
