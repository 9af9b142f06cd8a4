"""A small server that speaks the OpenAI completion protocol, around a model of transformers."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch


class CompletionModel:
    """Completions with log-probabilities, written with transformers alone."""

    def __init__(self, folder):
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.model = AutoModelForCausalLM.from_pretrained(folder).eval()
        self.tokens = AutoTokenizer.from_pretrained(folder)
        self.lock = threading.Lock()

    def complete(self, body):
        with self.lock, torch.inference_mode():
            count = body.get("n") or 1
            return [self._choice(body, i) for i in range(count)]

    def _choice(self, body, number):
        ids = self.tokens(body["prompt"], add_special_tokens=False)["input_ids"]
        rng = torch.Generator().manual_seed(body.get("seed", 0) + number)
        start, stops = len(ids), body.get("stop") or []
        text = ""
        for _ in range(body["max_tokens"]):
            log_p = self.model(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
            best = int(log_p.argmax())
            if body.get("temperature"):
                best = int(torch.multinomial(log_p.exp(), 1, generator=rng))
            longer = self.tokens.decode([*ids[start:], best])
            if best == self.tokens.eos_token_id or any(stop in longer for stop in stops):
                text = longer.split(stops[0])[0] if stops else text
                break
            ids, text = [*ids, best], longer
        choice = {"index": number, "text": text, "logprobs": None, "finish_reason": "stop"}
        if body.get("logprobs"):
            first = 0 if body.get("echo") else start
            choice["logprobs"] = self._log_probabilities(ids, first, body["logprobs"])
        if body.get("echo"):
            choice["text"] = body["prompt"] + text
        return choice

    def _log_probabilities(self, ids, first, top):
        log_p = self.model(torch.tensor([ids])).logits[0].log_softmax(-1)
        record = {"tokens": [], "token_logprobs": [], "top_logprobs": []}
        for place in range(first, len(ids)):
            record["tokens"].append(self.tokens.decode([ids[place]]))
            if place == 0:
                record["token_logprobs"].append(None)
                record["top_logprobs"].append(None)
                continue
            best = log_p[place - 1].topk(top)
            names = [self.tokens.decode([token]) for token in best.indices.tolist()]
            record["token_logprobs"].append(float(log_p[place - 1, ids[place]]))
            record["top_logprobs"].append(dict(zip(names, best.values.tolist(), strict=True)))
        return record


@contextmanager
def serve_completions(folder, *, change=lambda path, record: record):
    """The address of a server; change: what it makes of its answers."""
    model = CompletionModel(folder)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self._send({"data": [{"id": "tiny"}]})

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._send({"choices": model.complete(body)}, body)

        def _send(self, record, body=None):
            record = change(self.path, record | {"body": body or {}})
            code = record.pop("code", 200)
            record.pop("body", None)
            content = json.dumps(record).encode()
            self.send_response(code)
            for name, value in record.pop("headers", {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
