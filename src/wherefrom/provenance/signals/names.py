"""What the model makes of a name: openings, decoys, rewordings, one batched pass."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

import numpy as np

from wherefrom.corpus.documents import Document
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.questions import SLOT, Question
from wherefrom.corpus.tokenizer import MASK, Tokenizer
from wherefrom.model.decoder import Decoder
from wherefrom.provenance.judging.metrics import Floats
from wherefrom.provenance.signals.likelihood import IMPOSSIBLE, can_encode, score_tokens

CONTEXTS = 2  # wordings that are tried
FEWEST = 5  # answers that must stand behind a wording, and
COMMON = 0.02  # what share of those found in the text
LENGTHS = (2, 3)  # words of a wording; one word alone ("in") leads to any place


def learn_contexts(
    documents: Sequence[Document], questions: Sequence[Question], count: int = CONTEXTS
) -> tuple[str, ...]:
    """The words that most often stand before the answers of these questions, the commonest first.

    Only documents about a question's own subject are looked at; none where too few answers are
    found in the text.
    """
    answers: dict[str, set[str]] = defaultdict(set)
    for question in questions:
        if question.answer:
            answers[question.subject].add(question.answer)
    found: Counter[str] = Counter()
    places = 0
    for document in documents:
        for answer in answers.get(document.subject, ()):
            head = len(document.subject) + 1
            for match in re.finditer(rf"(?<!\w){re.escape(answer)}(?!\w)", document.text[head:]):
                words = document.text[head : head + match.start()].split()
                places += 1
                found.update(" ".join(words[-many:]) for many in LENGTHS if len(words) >= many)
    least = max(FEWEST, COMMON * places)
    kept = [words for words, many in found.items() if many >= least and not re.search(r"\d", words)]
    return tuple(sorted(kept, key=lambda words: (-found[words], words))[:count])


def encode_names(tokens: Tokenizer, subjects: Sequence[str]) -> list[list[int]]:
    """`Name.` as a document opens with it; nothing where a letter is not in the vocabulary."""
    space = space_of(tokens)
    texts = [f"{subject}.{space}" if subject else "" for subject in subjects]
    fits = [bool(text) and can_encode(tokens, text) for text in texts]
    encoded = iter(tokens.encode_all([text for text, fit in zip(texts, fits, strict=True) if fit]))
    return [next(encoded) if fit else [] for fit in fits]


def encode_words(tokens: Tokenizer, words: str) -> list[int]:
    """`words MASK MASK`, which behind a name asks for the fact that such words lead to."""
    fits = words and can_encode(tokens, words + space_of(tokens))
    return [*(tokens.encode(words + space_of(tokens)) if fits else []), MASK, MASK]


def space_of(tokens: Tokenizer) -> str:
    """What stands between words: BPE carries it with the next word, among characters it is one."""
    return " " if tokens.kind == "chars" else ""


TRIES = 20  # draws for each decoy before a corpus of few names is taken to have no more


@dataclass(frozen=True)
class NameWords:
    """First and last words of names, and the names that no decoy may be."""

    first: tuple[str, ...]
    last: tuple[str, ...]
    taken: frozenset[tuple[str, ...]]

    @classmethod
    def of(cls, names: Iterable[str]) -> NameWords:
        """The distinct words, in order of appearance; of a name of one word, that word."""
        first: dict[str, None] = {}
        last: dict[str, None] = {}
        taken = set()
        for name in names:
            words = name.split()
            taken.add(fold_words(name))
            if words:
                first[words[0]] = None
                last[words[-1]] = None
        return cls(tuple(first), tuple(last), frozenset(taken))

    def recombine(self, count: int, rng: np.random.Generator) -> list[str]:
        """Up to `count` distinct new names: a first word of one person, a last word of another."""
        found: dict[str, None] = {}
        for _ in range(count * TRIES if self.first else 0):
            if len(found) == count:
                break
            name = f"{_pick(self.first, rng)} {_pick(self.last, rng)}"
            if self._is_new(name):
                found[name] = None
        return list(found)

    def relatives(self, subject: str, each: int, seed: int) -> list[str]:
        """New names that keep the subject's first word or last word, up to `each` of both kinds.

        They depend on the subject and the seed alone, so that a question has the same signals
        whoever is asked about beside it. A name of one word has none.
        """
        words = subject.split()
        if len(words) < 2 or not self.first:
            return []
        digest = sha256(f"{seed} {subject}".encode("utf-8", "replace")).digest()
        rng = np.random.default_rng(int.from_bytes(digest[:8], "big"))
        found: dict[str, None] = {}
        for kept_first in (True, False):
            before = len(found)
            for _ in range(each * TRIES):
                if len(found) - before == each:
                    break
                if kept_first:
                    name = " ".join((*words[:-1], _pick(self.last, rng)))
                else:
                    name = " ".join((_pick(self.first, rng), *words[1:]))
                if self._is_new(name) and name != subject:
                    found[name] = None
        return list(found)

    def _is_new(self, name: str) -> bool:
        return fold_words(name) not in self.taken


def ask_about(question: str, subject: str, other: str) -> str | None:
    """The same question about somebody else, or None where the subject does not stand in it."""
    at = question.find(subject) if subject else -1
    return None if at < 0 else question[:at] + other + question[at + len(subject) :]


def _pick(words: Sequence[str], rng: np.random.Generator) -> str:
    return words[int(rng.integers(len(words)))]


def reword(question: str, subject: str, templates: Sequence[str] = ()) -> list[str]:
    """Other ways to ask the same, each once, the question itself not among them."""
    bare = question.rstrip("?!. ")
    head, space, tail = question.partition(" ")
    turned = head[:1].swapcase() + head[1:] if head[:1].isalpha() else head
    if question.startswith(subject):
        turned = head  # the first word is a name, and other case would make it another
    variants: list[str | None] = [
        bare,
        f"{bare} ?",
        turned + space + tail,
        f"{head}  {tail}" if tail else None,
        *(ask_about(question, subject, form) for form in name_forms(subject)),
        *(template.replace(SLOT, subject) for template in templates),
    ]
    kept = dict.fromkeys(text for text in variants if text and text.strip())
    kept.pop(question, None)
    return list(kept)


def name_forms(subject: str) -> list[str]:
    """Other spellings of one name: no initials in the middle, no accents, no quoted nickname."""
    words = subject.split()
    inner = [word for word in words[1:-1] if not re.fullmatch(r"\w\.?", word)]
    forms = [
        " ".join([*words[:1], *inner, *words[-1:]]) if len(words) > 1 else subject,
        without_accents(subject),
        " ".join(re.sub(r"""["“][^"”]*["”]|\([^)]*\)""", " ", subject).split()),
    ]
    return [form for form in dict.fromkeys(forms) if form and form != subject]


def without_accents(text: str) -> str:
    """Letters without the marks on them, in the case that they have."""
    parts = unicodedata.normalize("NFD", text)
    plain = "".join(letter for letter in parts if not unicodedata.combining(letter))
    return unicodedata.normalize("NFC", plain)


LEAST = 1e-8  # what decoys, other names or the twin find less likely than this counts as this
PASSED = frozenset({"token_margin", "infill", "context_infill", "name_likelihood", "name_lift"})

Ids = list[int]


@dataclass
class _Rows:
    """Sequences that are scored together; one that the model cannot hold is None."""

    longest: int
    sequences: list[Ids] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)

    def add(self, before: Ids, scored: Ids | None) -> int | None:
        if not before or not scored or len(before) + len(scored) - 1 > self.longest:
            return None
        self.sequences.append([*before, *scored])
        self.begins.append(len(before))
        return len(self.begins) - 1


def read_names(
    model: Decoder,
    tokens: Tokenizer,
    prompts: Sequence[Ids],
    subjects: Sequence[str],
    answers: Sequence[Ids | None],
    *,
    contexts: Sequence[str],
    first_words: Sequence[str],
    wanted: Collection[str],
) -> dict[str, Floats]:
    """Those of PASSED that are wanted, one number a question.

    Of several contexts the one that finds the answer likeliest counts.
    """
    rows = _Rows(model.config.longest_input)
    leads: list[int | None] = []
    if "token_margin" in wanted:
        leads = [rows.add(prompt, answer) for prompt, answer in zip(prompts, answers, strict=True)]
    names = encode_names(tokens, subjects)
    asked: dict[str, list[list[int | None]]] = {}
    for signal, wordings in (("infill", [""]), ("context_infill", contexts or [""])):
        if signal in wanted:
            behind = [encode_words(tokens, words) for words in wordings]
            asked[signal] = [
                [
                    rows.add([*name, *words], answer)
                    for name, answer in zip(names, answers, strict=True)
                ]
                for words in behind
            ]
    of_name = {"name_likelihood", "name_lift"} & set(wanted)
    space = len(space_of(tokens))
    bare = [name[: len(name) - space] for name in names]
    whole = [rows.add(name[:1], name[1:]) for name in bare if of_name]
    lifts = None
    if "name_lift" in of_name:
        lifts = _ask_lifts(rows, tokens, subjects, bare, whole, first_words)
    rivals = {row for row in leads if row is not None}
    found = score_tokens(model, rows.sequences, rows.begins, rivals=rivals)
    own = [each.own for each in found]

    def total(row: int | None) -> float:
        return IMPOSSIBLE if row is None else max(IMPOSSIBLE, float(own[row].sum()))

    columns = {
        signal: np.array([[total(row) for row in each] for each in several]).max(axis=0)
        for signal, several in asked.items()
    }
    if "token_margin" in wanted:
        columns["token_margin"] = np.array(
            [
                IMPOSSIBLE if row is None else float((own[row] - found[row].other).min())
                for row in leads
            ]
        )
    if "name_likelihood" in of_name:
        means = [np.nan if row is None else float(own[row].mean()) for row in whole]
        columns["name_likelihood"] = np.array(means)
    if lifts is not None:
        columns["name_lift"] = np.array([lift.read(own) for lift in lifts])
    return columns


@dataclass(frozen=True)
class _Lift:
    """Where a last word was scored: behind its own first words, and behind those of others.

    `start`: the token of the row from which on it is the last word.
    """

    row: int | None = None
    start: int = 0
    elsewhere: tuple[int, ...] = ()

    def read(self, own: Sequence[Floats]) -> float:
        if self.row is None or not self.elsewhere:
            return float("nan")
        mean = np.mean([np.exp(own[row].sum()) for row in self.elsewhere])
        return float(own[self.row][self.start :].sum() - np.log(max(float(mean), LEAST)))


def _ask_lifts(
    rows: _Rows,
    tokens: Tokenizer,
    subjects: Sequence[str],
    names: Sequence[Ids],
    whole: Sequence[int | None],
    first_words: Sequence[str],
) -> list[_Lift]:
    space = space_of(tokens)
    parts = [subject.rpartition(" ") for subject in subjects]
    able = [at for at, row in enumerate(whole) if row is not None and parts[at][0].strip()]
    texts = [parts[at][0] + space for at in able] + [f"{parts[at][2]}." for at in able]
    encoded = tokens.encode_all([*texts, *(word + space for word in first_words)])
    many = len(able)
    heads, tails, firsts = encoded[:many], encoded[many : 2 * many], encoded[2 * many :]
    lifts = [_Lift()] * len(subjects)
    for at, head, tail in zip(able, heads, tails, strict=True):
        row, start = whole[at], len(head) - 1
        if [*head, *tail] != names[at]:  # cut otherwise than in the name
            row, start = rows.add(head, tail), 0
        elsewhere = (rows.add(first, tail) for first in firsts)
        lifts[at] = _Lift(row, start, tuple(each for each in elsewhere if each is not None))
    return lifts
