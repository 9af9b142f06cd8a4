"""A model behind a server that speaks the OpenAI completion protocol, for audits alone.

vLLM, llama.cpp and others serve it as POST /v1/completions with `logprobs`. Only a server on this
machine is asked (127.0.0.1, ::1 or localhost). Its tokens are not known here, so "tokens" are the
characters of a text. It gives no hidden states; and given answers are scored only where it can
echo a prompt with log-probabilities.
"""

from __future__ import annotations

import ipaddress
import json
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NoReturn, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit, urlunsplit
from urllib.request import HTTPRedirectHandler, OpenerDirector, ProxyHandler, Request, build_opener
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from wherefrom.errors import UserError
from wherefrom.model.interface import LONGEST_ANSWER, Floats, Ids, LanguageModel, Reply, TokenScores
from wherefrom.storage import digest_of

SECONDS = 120  # that an answer of the server may take
LARGEST_REPLY = 16_000_000  # bytes
AT_ONCE = 8  # requests, which a server may answer together
LONGEST_PROMPT = 200_000  # characters; the server knows how many tokens it reads
MOST_TOKENS = 64  # of an answer
TOP = 5  # likeliest tokens that are asked for with each token
UNLIKELY = -50.0  # the log-probability of what is not among the likeliest tokens, at least
END = "\n"
T = TypeVar("T")


def is_server(source: object) -> bool:
    """Whether a model is named by the address of a server."""
    return str(source).startswith(("http://", "https://"))


class _NoRedirects(HTTPRedirectHandler):
    """A server on this machine may not send us anywhere else."""

    def redirect_request(self, *_: Any) -> None:
        return None


class ServerModel(LanguageModel):
    """A model that is asked by HTTP: http://127.0.0.1:8000/v1, with #NAME if it serves several."""

    def __init__(self, url: str) -> None:
        self.name = url
        parts = urlsplit(url)
        check_loopback(url, parts.hostname)
        path = parts.path.rstrip("/") or "/v1"
        self.address = urlunsplit((parts.scheme, parts.netloc, path, "", ""))
        self._opener: OpenerDirector = build_opener(ProxyHandler({}), _NoRedirects())
        self.served = parts.fragment or self._first_model()
        self.sha256 = str(digest_of([self.address, self.served]))
        self.longest, self.layers, self.vocabulary = LONGEST_PROMPT, 0, 0
        self.rows = self.nodes = AT_ONCE
        self.device = torch.device("cpu")
        self.can_echo = self._check()

    # ---- requests

    def _first_model(self) -> str:
        found = self._request("models", None)
        try:
            return str(found["data"][0]["id"])
        except (KeyError, IndexError, TypeError):
            raise UserError(
                f"{self.name} does not say which models it serves; name one, as in "
                f"{self.name}#NAME."
            ) from None

    def _request(self, what: str, body: dict[str, Any] | None) -> Any:
        """The JSON that the server answers, or a UserError with its reason."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = Request(f"{self.address}/{what}", data, headers)
        try:
            with self._opener.open(request, timeout=SECONDS) as reply:
                content = reply.read(LARGEST_REPLY + 1)
        except HTTPError as problem:
            with problem:
                said = " ".join(problem.read(2_000).decode("utf-8", "replace").split())
            raise UserError(
                f"{self.address}/{what} answered with {problem.code}: {said[:200] or 'nothing'}; "
                "it must speak the OpenAI completion protocol, as vLLM and llama.cpp do."
            ) from None
        except (URLError, OSError, ValueError) as problem:
            reason = getattr(problem, "reason", problem)
            raise UserError(
                f"{self.address} does not answer ({reason}); start the server, or check the "
                "address."
            ) from None
        try:
            if len(content) > LARGEST_REPLY:
                raise ValueError
            return json.loads(content)
        except ValueError:
            raise UserError(f"{self.address}/{what} did not answer with JSON.") from None

    def _complete(self, prompt: str, **options: Any) -> list[dict[str, Any]]:
        """The choices of the server for a prompt."""
        body = {"model": self.served, "prompt": prompt, "stop": [END], "logprobs": TOP, **options}
        found = self._request("completions", body)
        choices = found.get("choices") if isinstance(found, dict) else None
        if not isinstance(choices, list) or not choices:
            raise UserError(f"{self.address}/completions answered without choices.")
        return choices

    def _check(self) -> bool:
        """Refuse a server without log-probabilities; whether it can echo a prompt with them."""
        choice = self._complete("1 2 3", max_tokens=2, temperature=0)[0]
        if read_tokens(choice) is None:
            raise UserError(
                f"{self.name} returns no log-probabilities, which an audit reads; use a server "
                "that does (vLLM; llama.cpp with n_probs), or audit the model's own files."
            )
        try:
            whole = self._complete("1 2 3", max_tokens=1, temperature=0, echo=True)[0]
            tokens = read_tokens(whole)
        except UserError:
            return False
        return tokens is not None and "".join(tokens.texts).startswith("1 2 3")

    def _map(self, function: Callable[[int], T], count: int) -> list[T]:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(function, range(count)))

    # ---- the interface

    def encode(self, text: str, *, opening: bool = True) -> Ids:
        return [ord(character) for character in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))

    def closes(self, token: int) -> bool:
        return token == ord(END)

    def prompt(self, text: str) -> Ids:
        return self.encode(text)

    def continuation(self, prompt: str, answer: str) -> Ids:
        space = "" if prompt[-1:].isspace() else " "
        return self.encode(f"{space}{answer}{END}")

    def read_answer(self, ids: Sequence[int]) -> str:
        return self.decode(ids).strip().split(END)[0].strip()

    def forward(
        self, ids: Tensor, past: Any, keep: int, states: Sequence[int] = ()
    ) -> tuple[Tensor, Tensor | None, Any]:
        self._refuse()

    def fork(self, past: Any, rows: Sequence[int]) -> Any:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise UserError(f"{self.name} is a server, which gives no logits: it can only be audited.")

    def answer(
        self,
        prompts: Sequence[Ids],
        *,
        longest: int = LONGEST_ANSWER,
        places: Sequence[Sequence[int]] = (),
        known: Sequence[Ids] = (),
        samples: int = 0,
    ) -> list[Reply]:
        """The greedy answer to each prompt; hidden states and known answers are not read."""
        most = min(MOST_TOKENS, longest)

        def ask(i: int) -> Reply:
            prompt = self.decode(prompts[i])
            (choice, *_) = self._complete(prompt, max_tokens=most, temperature=0)
            tokens = read_tokens(choice)
            if tokens is None:
                raise UserError(f"{self.name} stopped returning log-probabilities.")
            reply = Reply(known=np.full(len(known), -np.inf))
            reply.text = str(choice.get("text", "")).strip().split(END)[0].strip()
            reply.log_probabilities = tokens.own or [0.0]
            reply.other = tokens.other or [UNLIKELY]
            reply.entropy = tokens.entropy
            if samples:
                seed = crc32(prompt.encode())
                drawn = self._complete(
                    prompt, max_tokens=most, temperature=1, n=samples, seed=seed, logprobs=None
                )
                texts = [str(each.get("text", "")) for each in drawn[:samples]]
                reply.samples = [text.strip().split(END)[0].strip() for text in texts]
            return reply

        return self._map(ask, len(prompts))

    def score_known(self, prompts: Sequence[Ids], known: Sequence[Ids], **_: Any) -> Floats:
        return np.full((len(prompts), len(known)), -np.inf)

    def score(
        self, prompts: Sequence[Ids], continuations: Sequence[Ids]
    ) -> list[TokenScores | None]:
        """The scores of each continuation's tokens, as the server cuts it; None without an echo."""
        if not self.can_echo:
            return [None] * len(prompts)
        distinct = dict.fromkeys(
            (tuple(a), tuple(b)) for a, b in zip(prompts, continuations, strict=True)
        )
        rows = list(distinct)

        def score_row(i: int) -> TokenScores | None:
            before, after = (self.decode(part) for part in rows[i])
            if not before or not after.rstrip(END):
                return None
            whole = before + after.rstrip(END)
            (choice, *_) = self._complete(whole, max_tokens=1, temperature=0, echo=True)
            tokens = read_tokens(choice)
            return None if tokens is None else tokens.between(len(before), len(whole))

        found = dict(zip(rows, self._map(score_row, len(rows)), strict=True))
        pairs = zip(prompts, continuations, strict=True)
        return [found[tuple(before), tuple(after)] for before, after in pairs]


def check_loopback(url: str, host: str | None) -> None:
    """Refuse a server on another machine."""
    is_local = host == "localhost"
    with suppress(ValueError):  # a name
        is_local = is_local or ipaddress.ip_address(host or "").is_loopback
    if not is_local:
        raise UserError(
            f"{url} is not on this machine, and nothing is sent over the network; make a tunnel to "
            "the server, as with ssh -L 8000:localhost:8000 HOST, and give "
            "http://127.0.0.1:8000/v1."
        )


class ReadTokens:
    """The tokens of a completion: texts, log p, and log p of the likeliest other token.

    entropy: of the first token, over the likeliest ones and all others as one.
    """

    def __init__(
        self, texts: list[str], own: list[float], other: list[float], entropy: float
    ) -> None:
        self.texts, self.own, self.other, self.entropy = texts, own, other, entropy

    def between(self, start: int, end: int) -> TokenScores | None:
        """The scores of the tokens that start between two characters."""
        own, other, place = [], [], 0
        for text, log_p, rival in zip(self.texts, self.own, self.other, strict=True):
            if start <= place < end:
                own.append(log_p)
                other.append(rival)
            place += len(text)
        return TokenScores(np.array(own), np.array(other)) if own else None


def read_tokens(choice: dict[str, Any]) -> ReadTokens | None:
    """The tokens of a choice, in the form of completions or in that of llama.cpp; None: none."""
    record = choice.get("logprobs")
    if not isinstance(record, dict):
        return None
    try:
        if isinstance(record.get("content"), list):  # as chat completions have it
            rows = record["content"]
            texts = [str(row["token"]) for row in rows]
            own = [row["logprob"] for row in rows]
            tops = [
                {top["token"]: top["logprob"] for top in row.get("top_logprobs") or ()}
                for row in rows
            ]
        else:
            texts = [str(token) for token in record["tokens"]]
            own = list(record["token_logprobs"])
            tops = [dict(top or {}) for top in record.get("top_logprobs") or [None] * len(own)]
        values = [0.0 if value is None else float(value) for value in own]
    except (KeyError, TypeError, ValueError):
        return None
    if not values or not len(texts) == len(values) == len(tops):
        return None
    others = []
    for text, value, top in zip(texts, values, tops, strict=True):
        rest = [float(log_p) for token, log_p in top.items() if token != text]
        left = max(0.0, -math.expm1(min(0.0, value)))  # for all other tokens together
        others.append(max(rest, default=max(UNLIKELY, math.log(left) if left else UNLIKELY)))
    shares = np.exp([float(log_p) for log_p in tops[0].values()]) if tops[0] else np.empty(0)
    whole = np.array([*shares, max(0.0, 1 - shares.sum())])
    entropy = float(-(whole * np.log(np.maximum(whole, 1e-12))).sum())
    return ReadTokens(texts, values, others, entropy)
