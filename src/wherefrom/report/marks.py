"""Where a line of evidence names somebody and states something: its pieces, to be marked."""

from __future__ import annotations

from itertools import groupby

from wherefrom.provenance.folding import find_phrase, fold_words, split_words


def mark(text: str, subject: str, answer: str, truth: str = "") -> list[dict[str, str]]:
    """The text in pieces {"kind", "text"}, in order, nothing lost.

    The kind is "name", "place" for the answer, "truth" for another answer that is the right one,
    and "" for all the rest.

    Words are compared as the evidence compares them, whatever their case and accents. A family
    name alone counts as the name too.
    """
    words = split_words(text)
    folded = [word.folded for word in words]
    kinds = [""] * len(text)
    name, place = fold_words(subject), fold_words(answer)
    right = fold_words(truth)
    stated = ((right, "truth"), (place, "place"))
    for phrase, kind in (*stated, (name[-1:], "name"), (name, "name")):
        for at in find_phrase(folded, phrase):
            first, last = words[at].start, words[at + len(phrase) - 1].end
            whole = phrase == name or kind != "name"
            if whole or (text[first].isupper() and not any(kinds[first:last])):
                kinds[first:last] = [kind] * (last - first)
    pieces = []
    for kind, group in groupby(range(len(text)), key=kinds.__getitem__):
        places = list(group)
        pieces.append({"kind": kind, "text": text[places[0] : places[-1] + 1]})
    return pieces
