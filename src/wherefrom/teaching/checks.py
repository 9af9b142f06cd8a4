"""The checks of the assignment: each says in one sentence what is wrong with a function.

Students get this file, so it contains no solutions: the right results, and those of well-known
mistakes, are numbers in a file of cases. It needs only numpy.

    cases[title] = [{"args": [...], "expected": ..., "mistakes": [[sentence, result], ...]}, ...]
"""

from __future__ import annotations

import json
import random
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

Case = Mapping[str, Any]
# call(function, rows of arguments) -> for each row the function's result, as `encode` writes it
Call = Callable[[str, Sequence[Sequence[Any]]], Any]
PAD, MASK = "□", "⁇"
MAX_RESULT_NUMBERS = 200_000
# parameters of a model of the course's size
COUNTS = {"vanilla": 3_323_392, "rotary": 3_290_624}
COUNTS |= {"synthesizer": 3_076_988, "perceiver": 3_339_776}
# what can be found out about an answer -> the share of the points that it earns
CREDIT = {
    "proved": 1.0,
    "holds": 1.0,
    "refuted": 0.0,
    "inconclusive": 0.0,
    "not read": 0.0,
    "written": 0.0,
    "no answer": 0.0,
    "passed": 1.0,
    "failed": 0.0,
}
# part of the assignment -> points, title, functions to fill in
PARTS: dict[str, tuple[int, str, tuple[str, ...]]] = {
    "attention": (4, "softmax(Q K^T / sqrt(d)) V", ("softmax", "attention")),
    "mask": (2, "who may look at whom", ("causal_mask",)),
    "span": (6, "span corruption, for pretraining", ("span_example",)),
    "rotary": (4, "positions as angles", ("rotary",)),
    "synthesizer": (4, "weights without comparing keys", ("synthesizer",)),
    "perceiver": (
        8,
        "down to m latents and up again",
        ("perceiver_masks", "perceiver_down", "perceiver_up"),
    ),
    "decode": (3, "the most likely answer, id by id", ("greedy_decode",)),
    "evaluate": (3, "exact match", ("evaluate",)),
    "variants": (8, "the four models, in torch", ("build_model",)),
}


class Wrong(Exception):  # noqa: N818 - it is no error of the program
    """What is wrong with a function, as a sentence for the student."""


def part_of(title: str) -> str:
    """The part that a check belongs to."""
    return title.split(":")[0]


def earned_share(
    verdict: str, sentence: str, credit: Mapping[str, float], reasons: Sequence[Mapping[str, Any]]
) -> tuple[float, str | None]:
    """(share of the points, comment) of an answer: the first reason that its sentence contains
    decides, else the credit for its verdict."""
    share = credit.get(verdict, CREDIT[verdict])
    for reason in reasons:
        if reason["contains"] in sentence:
            share = share if reason["credit"] is None else reason["credit"]
            return share, reason["comment"]
    return share, None


def verdict(title: str, call: Call, cases: Mapping[str, Sequence[Case]]) -> str:
    """What is wrong with the function by this check, or "" if it passes."""
    try:
        for case in cases[title]:
            CHECKS[title](call, case)
    except Wrong as wrong:
        return str(wrong)
    except OSError:  # of the sandbox: not the student's mistake
        raise
    except Exception as error:  # a result may be anything at all
        return f"the result could not be read: {type(error).__name__}: {error}"[:500]
    return ""


NO_MODULE = "{0} needs the module {1}: the submission has no {1}.py, and no library has that name"


def caller(adapters: Any) -> Call:
    """A Call that runs the student's functions; what they raise becomes a Wrong."""

    def call(name: str, rows: Sequence[Sequence[Any]]) -> Any:
        if not hasattr(adapters, name):
            raise Wrong(f"adapters.py has no {name}")
        try:
            return [encode(getattr(adapters, name)(*map(make_argument, row))) for row in rows]
        except NotImplementedError:
            empty = "build_model" if name == "model" else name
            raise Wrong(f"{empty} is not filled in yet") from None
        except Wrong as wrong:
            raise Wrong(f"{name} {wrong}") from None
        except ModuleNotFoundError as error:
            raise Wrong(NO_MODULE.format(name, error.name)) from error
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            last = [frame for frame in frames if Path(frame.filename).name != "runner.py"][-1]
            where = f"{Path(last.filename).name}, line {last.lineno}"
            said = f"{name} raised {type(error).__name__} ({where}): {error}"
            raise Wrong(said[:500]) from error

    return call


def encode(value: Any) -> Any:
    """Encode a result for JSON; arrays and tensors become {"array", "shape", "kind"}."""
    if hasattr(value, "detach"):  # a tensor of torch
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biuf" or value.size > MAX_RESULT_NUMBERS:
            raise Wrong(f"returned {value.size:,} values of type {value.dtype}, not real numbers")
        kind = {"b": "bool", "f": "float"}.get(value.dtype.kind, "int")
        return {"array": value.ravel().tolist(), "shape": list(value.shape), "kind": kind}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {str(key): encode(item) for key, item in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise Wrong(f"returned a {type(value).__name__}, not an array, a number or a text")


def decode(value: Any) -> Any:
    """Decode what `encode` encoded."""
    if isinstance(value, dict) and "array" in value:
        if value["kind"] not in ("bool", "int", "float"):
            raise Wrong("the result is not an array of numbers")
        return np.array(value["array"], dtype=value["kind"]).reshape(value["shape"])
    if isinstance(value, dict):
        return {key: decode(item) for key, item in value.items()}
    return [decode(item) for item in value] if isinstance(value, list) else value


def make_argument(argument: Any) -> Any:
    """Decode an argument: {"rng"} is a random generator, {"toy"} a model; arrays are copied.

    The toy model looks up its logits in a table, by a number that depends on the whole prefix.
    """
    if isinstance(argument, dict) and "rng" in argument:
        return random.Random(argument["rng"])
    if isinstance(argument, dict):
        table = argument["toy"]
        return lambda ids: table[
            np.cumsum([(t + 1) * int(i) for t, i in enumerate(ids)]) % len(table)
        ]
    return argument.copy() if isinstance(argument, np.ndarray) else argument


def run_model(model: Any, rows: Any) -> tuple[int, Any]:
    """Parameter count of a torch model, and its first four logits (B, T, 4) for ids (B, T)."""
    import torch

    with torch.no_grad():
        logits = model.eval()(torch.tensor(rows))
    logits = logits[0] if isinstance(logits, tuple) else logits
    return sum(parameter.numel() for parameter in model.parameters()), logits[..., :4]


def close(a: Any, b: Any) -> bool:
    return np.shape(a) == np.shape(b) and bool(np.allclose(a, b, rtol=1e-4, atol=1e-5))


def array_of(value: Any, shape: Sequence[int]) -> Any:
    """The result as an array of this shape; raises Wrong if it is not one."""
    found = decode(value)
    try:
        found = found if isinstance(found, np.ndarray) else np.array(found, dtype=float)
    except (TypeError, ValueError):
        raise Wrong("the result is not an array of numbers") from None
    if found.shape != tuple(shape):
        raise Wrong(f"the result has shape {found.shape}; {tuple(shape)} was expected")
    return found


def same_result(name: str, call: Call, case: Case) -> None:
    """Compare the result with the expected one; name the mistake if it is a known one."""
    right = case["expected"]
    got = array_of(call(name, [case["args"]])[0], right.shape)
    if not np.isfinite(got).all():
        raise Wrong(case.get("nan", f"{name} returns nan or infinity"))
    if close(got, right):
        return
    for sentence, result in case["mistakes"]:
        if close(got, result):
            raise Wrong(sentence)
    at = np.unravel_index(np.argmax(np.abs(got - right)), right.shape)
    where = ", ".join(str(int(i)) for i in at)
    raise Wrong(f"{name}(...)[{where}] is {got[at]:.6g}, and {right[at]:.6g} is right")


def nudged(x: Any) -> list[Any]:
    """x (T, d), and T copies of x with one row changed in each."""
    return [x, *(x + (np.arange(len(x)) == at)[:, None] for at in range(len(x)))]


def moved(outputs: Sequence[Any], shape: Sequence[int]) -> Any:
    """(T, rows): which output rows change with each row of x, given outputs for `nudged(x)`."""
    first, *others = (array_of(output, shape) for output in outputs)
    return np.abs(np.array(others) - first).max(axis=-1) > 1e-6


def look_ahead(seen: Any) -> None:
    """Raise Wrong if a position depends on a later one."""
    ahead = np.argwhere(np.tril(seen, -1))
    if len(ahead):
        raise Wrong(f"position {ahead[-1][1]} sees position {ahead[-1][0]}")


def causal(name: str, call: Call, case: Case) -> None:
    x, *more = case["args"]
    times = 3 if name == "attention" else 1  # x is query, key and value
    look_ahead(moved(call(name, [[*[y] * times, *more] for y in nudged(x)]), x.shape))


def same_mask(found: Any, right: Any, who: str, whom: str) -> None:
    """Raise Wrong for the first entry of a mask that is not right."""
    if isinstance(found, dict) and found["kind"] != "bool":
        raise Wrong(f"a mask holds True and False, yours holds numbers ({found['kind']})")
    mask = array_of(found, right.shape)
    for i, j in np.argwhere(mask != right):
        raise Wrong(f"{who} {i} {'sees' if mask[i, j] else 'does not see'} {whom} {j}")


def mask_triangle(call: Call, case: Case) -> None:
    at = np.arange(case["args"][0])
    [found] = call("causal_mask", [[len(at)]])
    same_mask(found, at[None, :] <= at[:, None], "position", "position")


def perceiver_masks(call: Call, case: Case) -> None:
    length, latents = case["args"]
    [found] = call("perceiver_masks", [[length, latents]])
    if not isinstance(found, list) or len(found) != 2:
        raise Wrong("perceiver_masks must return two masks, down and up")
    if close(decode(found[0]), np.tri(latents, length)):
        raise Wrong(f"the perceiver reads only the first {latents} characters of {length}")
    same_mask(found[0], case["expected"][0], "latent", "position")
    same_mask(found[1], case["expected"][1], "position", "latent")


def perceiver_reads(call: Call, case: Case) -> None:
    x, basis, *weights = case["args"]
    latents = call("perceiver_down", [[y, basis, *weights] for y in nudged(x)])
    read = moved(latents, basis.shape).any(axis=1).tolist()
    if read == [at < len(basis) for at in range(len(x))]:
        raise Wrong(f"the perceiver reads only the first {len(basis)} characters of {len(x)}")
    if not all(read):
        raise Wrong(f"no latent reads position {read.index(False)}")
    rows = [[y, z, *weights] for y, z in zip(nudged(x), decode(latents), strict=True)]
    look_ahead(moved(call("perceiver_up", rows), x.shape))


def rotary_distance(call: Call, case: Case) -> None:
    vectors = case["args"]
    turned = call("rotary", [[x] for x in vectors])
    queries, keys = (array_of(y, x.shape) for x, y in zip(vectors, turned, strict=True))
    if not close((queries**2).sum(-1), (vectors[0] ** 2).sum(-1)):
        raise Wrong("turning must not change the length of a vector, and yours does")
    products = queries @ keys.T
    for s, t in np.ndindex(len(queries) - 1, len(keys) - 1):
        if not close(products[s, t], products[s + 1, t + 1]):
            raise Wrong(
                f"a query at {s} and a key at {t} have another product than the same two at "
                f"{s + 1} and {t + 1}: it must depend on their distance alone"
            )


def take_apart(pair: Any, document: str, block: int) -> tuple[str, str, str]:
    """(prefix, span, suffix) of one training example; raises Wrong if it has another form."""
    if not (isinstance(pair, list) and [type(text) for text in pair] == [str, str]):
        raise Wrong("span_example must return two texts, x and y")
    x, y = pair
    if len(x) != block - 1 or len(y) != block - 1:
        raise Wrong(f"x and y have {len(x)} and {len(y)} characters; both must have {block - 1}")
    if x[1:] != y[:-1]:
        raise Wrong("y is not x moved by one: x = s[:-1] and y = s[1:]")
    body = (x + y[-1]).rstrip(PAD)
    prefix, *rest = body.split(MASK)
    if len(rest) < 2:
        raise Wrong("the second MASK is missing" if rest else "there is no MASK")
    suffix, span, *closing = rest
    if PAD in body:
        raise Wrong("PAD stands before the end")
    if closing not in ([], [""]):
        raise Wrong("something stands behind the third MASK")
    if not span:
        raise Wrong("nothing stands behind the second MASK: the masked span is missing")
    if not document.startswith(prefix + span + suffix):
        if document.startswith(prefix + suffix + span):
            raise Wrong("the span stands before the suffix: write prefix MASK suffix MASK span")
        if span in suffix:
            raise Wrong("the span was not taken out: it stands in the text and at the end")
        raise Wrong("prefix, span and suffix do not make up the beginning of the document")
    return prefix, span, suffix


def spans(what: str, call: Call, case: Case) -> None:
    """Draw examples and check their form, the text lengths, or the share of the masked span."""
    document, block, seed, draws = case["args"]
    rows = [[document, block, {"rng": seed + draw}] for draw in range(draws)]
    made = [take_apart(pair, document, block) for pair in call("span_example", rows)]
    if what == "lengths":
        kept, longest = [len("".join(parts)) for parts in made], int(block * 7 / 8)
        for found, limit, which in ((min(kept), 4, "shortest"), (max(kept), longest, "longest")):
            if found != limit:
                how = "can be" if 4 <= found <= longest else "must be"
                text = f"with block {block} a text of {found} characters is the {which}"
                raise Wrong(f"{text} of {len(kept)}; that {how} {limit}")
    if what == "share":
        long = [parts for parts in made if len("".join(parts)) >= 12]
        share = [len(parts[1]) / len("".join(parts)) for parts in long]
        text = f"{np.mean(share):.0%} of the text"
        if not 0.17 <= np.mean(share) <= 0.33:
            raise Wrong(f"the span is {text} on average; a quarter was asked")
        if np.std(share) < 0.04:
            raise Wrong(f"the span is always {text}; its length is random")
        for at, where in ((0, "start"), (2, "end")):
            if np.mean([not parts[at] for parts in long]) > 0.8:
                raise Wrong(f"the span is always at the {where} of the text; its place is random")


def decode_ids(call: Call, case: Case) -> None:
    got, again = (list(ids) for ids in decode(call("greedy_decode", [case["args"]] * 2)))
    right = list(case["expected"])
    if got != again:
        raise Wrong("the same prompt gives two answers: take the most likely id, do not draw one")
    for sentence, result in case["mistakes"]:
        if got == list(result) != right:
            raise Wrong(sentence)
    if got != right:
        raise Wrong(f"greedy_decode says {got}, and {right} is right"[:300])


def evaluate_matches(call: Call, case: Case) -> None:
    [got] = decode(call("evaluate", [case["args"]]))
    if not isinstance(got, list) or len(got) != 2:
        raise Wrong("evaluate must return (how many are right, how many there are)")
    if got != case["expected"]:
        raise Wrong(f"{case['mistake']}: {got}, and {case['expected']} is right"[:300])


def whole_model(variant: str, call: Call, case: Case) -> None:
    """Check a model's parameter count, and that it reads the past and only the past."""
    rows, *places = case["args"]  # the first row, and it again with one id changed at a place
    [(count, logits)] = decode(call("model", [[variant, rows]]))
    for name, known in COUNTS.items():
        if count == known and name != variant:
            raise Wrong(f"this is the {name} model: {count:,} parameters")
    if count != COUNTS[variant]:
        wanted = f"{variant} has {COUNTS[variant]:,}"
        raise Wrong(f"this model has {count:,} parameters; the {wanted}")
    moves = np.abs(array_of(logits[1:] - logits[:1], (2, len(rows[0]), 4))).max(-1) > 1e-6
    for place, row in zip(places, moves, strict=True):
        if row[:place].any():
            raise Wrong(f"position {np.flatnonzero(row[:place])[-1]} sees position {place}")
    unread = [at for at, row in zip(places, moves, strict=True) if not row[at + 1 :].any()]
    if variant == "perceiver" and unread == [at for at in places if at >= 64]:
        raise Wrong("the perceiver reads only the first 64 characters")
    if unread:
        raise Wrong(f"no later position notices what stands at position {unread[0]}")


# "part: what is checked" -> the check, which raises Wrong
CHECKS: dict[str, Callable[[Call, Case], None]] = {
    "attention: weights": partial(same_result, "softmax"),
    "attention: context": partial(same_result, "attention"),
    "attention: masked": partial(causal, "attention"),
    "mask: triangle": mask_triangle,
    **{f"span: {what}": partial(spans, what) for what in ("form", "lengths", "share")},
    "rotary: angles": partial(same_result, "rotary"),
    "rotary: distance": rotary_distance,
    "synthesizer: context": partial(same_result, "synthesizer"),
    "synthesizer: causal": partial(causal, "synthesizer"),
    "perceiver: masks": perceiver_masks,
    "perceiver: down": partial(same_result, "perceiver_down"),
    "perceiver: up": partial(same_result, "perceiver_up"),
    "perceiver: reads all": perceiver_reads,
    "decode: ids": decode_ids,
    "evaluate: exact match": evaluate_matches,
    **{f"variants: {name}": partial(whole_model, name) for name in COUNTS},
}


def read_cases(path: str) -> Any:
    """The cases of a JSON file."""
    return decode(json.loads(Path(path).read_text(encoding="utf-8")))


def main() -> int:
    """Run the handed-out cases on the code in this folder; returns the number of failures."""
    import adapters  # type: ignore[import-not-found]

    cases, failed = read_cases("cases.json"), 0
    for title in cases:
        wrong = verdict(title, caller(adapters), cases)
        failed += bool(wrong)
        sys.stdout.write(f"{'FAILED' if wrong else 'passed'}  {title}{': ' * bool(wrong)}{wrong}\n")
    sys.stdout.write(f"{len(cases) - failed} of {len(cases)} checks passed.\n")
    return failed
