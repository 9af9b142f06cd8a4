"""The pages that ask a model: ask, one question or a file of them; inside, how it gets there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import exp
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, File, Form, Query, Request, UploadFile
from fastapi.responses import Response

from wherefrom.corpus.questions import SLOT, find_subject_in
from wherefrom.corpus.tokenizer import MASK_CHARACTER
from wherefrom.errors import UserError
from wherefrom.report.sections import mark
from wherefrom.training.run_folder import AUDIT
from wherefrom.web.models import LoadedRun, to_records
from wherefrom.web.replies import Site, html_and_json, site_of
from wherefrom.web.runs import Record

if TYPE_CHECKING:
    from wherefrom.provenance.ask import Asker

router = APIRouter()
COLUMNS = ("question", "shown", "verdict", "answer", "seen")
LIKELY = [(which, mode) for which in ("from_text", "right") for mode in ("checked", "internal")]
Run = Annotated[str | None, Query(max_length=300, description="a run's name")]
Question = Annotated[
    str | None, Query(max_length=2_000, description="the question, or a name alone")
]
RunName = Annotated[str, Form(max_length=300, description="a run's name")]
Text = Annotated[str, Form(description="a TSV: question, answer and subject; or names")]
TextFile = Annotated[UploadFile | None, File(description="the same as a file")]
MOST_TOKENS = 80  # beyond this a map is too fine to see
SIGNS = str.maketrans({MASK_CHARACTER: "▮", " ": "␣", "\n": "⏎"})
PLACES = {"attention": ("attention",), "feed-forward": ("feed-forward",),
          "whole state": ("embedding", "hidden", "output")}  # fmt: skip


@html_and_json(router, "/ask", "ask.html", typed="question")
async def ask(
    request: Request,
    run: Run = None,
    question: Question = None,
    trace: Annotated[bool, Query(description="also say which lines pushed the answer")] = False,
) -> Record:
    """Ask a run one question: the answer, where it came from, how sure that is, and the lines.

    verdict: as `wherefrom ask --json` prints it, and its sentence. evidence: its lines in pieces:
    name, answer, rest. suggested: other questions. trace: as `wherefrom trace --json` prints it.
    without: what twins say that never read about the subject; without_command trains one.
    """
    site = site_of(request)
    page: Record = {"run": run, "runs": site.index.answering(), "templates": [], "people": [],
                    "notes": [], "question": None, "verdict": None, "evidence": [], "without": [],
                    "without_command": None, "suggested": [], "trace": None,
                    "has_text": True, "audit": False}  # fmt: skip
    chosen = await site.models.first_of([run] if run else page["runs"])
    if chosen is None:
        if question is not None:
            raise UserError("there is no trained run here yet to put a question to.")
        return page
    page["run"], loaded = chosen
    names = loaded.subjects
    page |= {"templates": loaded.templates, "people": names, "notes": loaded.asker.notes}
    page |= {"has_text": loaded.asker.evidence is not None, "audit": loaded.kind == AUDIT}
    if question is not None and question.strip():
        page |= await _answer(site, page["run"], loaded, question)
        if trace:
            page["trace"] = found = await loaded.trace(page["verdict"]["question"])
            page["verdict"] = {**page["verdict"], "verdict": found["verdict"]}
            for row in (*found["pushed_by"], *found["pushed_away_by"]):
                row["pieces"] = mark(row["text"], page["verdict"]["subject"], found["answer"])
    else:  # a few questions, each of another subject
        some = names[:: max(1, len(names) // 6)][:6]
        asked = [loaded.questions[name] for name in some]
        page["suggested"] = [each[at % len(each)] for at, each in enumerate(asked)]
    return page


async def _answer(site: Site, run: str, loaded: LoadedRun, question: str) -> Record:
    from wherefrom.provenance.attribution.twins import command_without

    question, _ = loaded.asker.understand(" ".join(question.split()))
    verdict = await loaded.ask(question)
    folder, subject = site.index.find(run), verdict["subject"]
    meant = [each["subject"] for each in verdict["similar"]]
    wordings = [verdict["question"].replace(subject, SLOT, 1)] if meant else loaded.templates
    others = [wording.replace(SLOT, name) for name in meant or [subject] for wording in wordings]
    if loaded.kind == AUDIT and not meant:  # not every wording suits every subject
        others = loaded.questions.get(subject, [])
    return {
        "question": question,
        "verdict": verdict,
        "evidence": [
            {**line, "similar": similar, "pieces": mark(line["text"], subject, verdict["answer"])}
            for similar, key in ((False, "evidence"), (True, "similar"))
            for line in verdict[key]
        ],
        "without": [
            {key: twin[key] for key in twin if key != "where"}
            for twin in await site.reading.run(site.index.twins_without, folder, subject)
        ],
        "without_command": command_without(folder, subject),
        "suggested": [each for each in dict.fromkeys(others) if each != verdict["question"]][:6],
    }


@html_and_json(router, "/ask/batch", "batch.html", method="POST")
async def batch(request: Request, run: RunName, text: Text = "", file: TextFile = None) -> Record:
    """Ask many questions at once; each row is answered as if it had been asked alone."""
    from wherefrom.provenance.ask import read_rows

    site = site_of(request)
    name = "the text"
    if file is not None and file.size:
        try:
            text, name = (await file.read()).decode("utf-8-sig"), "the file"
        except UnicodeDecodeError:
            raise UserError("the file is not text in UTF-8; save it as UTF-8 first.") from None
    lines = [(at, line) for at, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise UserError("paste questions, one per line, or choose a file; none came.")
    if len(lines) > site.limits.batch:
        raise UserError(
            f"{site.limits.batch:,} questions can be asked at once, and {len(lines):,} came; split "
            "them, or use `wherefrom ask`."
        )
    rows, loaded = read_rows(lines, name), await site.models.get(run)
    verdicts = await loaded.run(lambda asker: to_records(asker.ask_rows(rows)))
    counts = Counter(str(verdict["verdict"]) for verdict in verdicts)
    runs = site.index.answering()
    return {"run": run, "runs": runs, "text": text, "rows": verdicts, "counts": counts}


@router.post(
    "/ask/batch.tsv",
    summary="The same as a TSV to download: a row a question, with its verdict.",
    response_class=Response,
    responses={200: {"content": {"text/tab-separated-values": {}}, "description": "a TSV"}},
)
async def batch_as_file(
    request: Request, run: RunName, text: Text = "", file: TextFile = None
) -> Response:
    """The same as a TSV to download: a row a question, with its verdict."""
    page = await batch(request, run, text, file)
    likely = [f"{which}_{mode}" for which, mode in LIKELY]
    table: list[list[Any]] = [[*COLUMNS, *likely, "evidence_lines", "sentence", "why"]]
    for row in page["rows"]:
        shares = [row[which].get(mode) for which, mode in LIKELY]
        likely = ["" if share is None else f"{share:.4f}" for share in shares]
        lines = " ".join(str(each["line"]) for each in row["evidence"])
        table.append([*(row[c] for c in COLUMNS), *likely, lines, row["sentence"], row["why"]])
    cells = ([" ".join(str("" if cell is None else cell).split()) for cell in row] for row in table)
    tsv = "".join("\t".join(row) + "\n" for row in cells)
    headers = {"Content-Disposition": 'attachment; filename="verdicts.tsv"'}
    return Response(tsv, media_type="text/tab-separated-values; charset=utf-8", headers=headers)


# ---- inside: where each head looks, what each layer would say, where a line enters the answer


@html_and_json(router, "/inside", "inside.html", typed="question")
async def inside(
    request: Request,
    run: Run = None,
    other: Run = None,
    question: Question = None,
    layer: Annotated[int | None, Query(ge=0, le=255, description="whose map to show")] = None,
    head: Annotated[int | None, Query(ge=0, le=255, description="whose map to show")] = None,
) -> Record:
    """Inside a trained model for a question: heads, layers, and where a line enters the answer.

    sides: each run. lens: what the head reads off each layer. entry: by place and position, how
    many nats log p(answer) falls with the state of a twin that never read the line; entries: whose
    twin has such a map; entry_command: what trains one.
    """
    from wherefrom.provenance.attribution.twins import command_without

    site = site_of(request)
    page: Record = {"run": None, "other": other or None, "runs": site.index.answering(),
                    "people": [], "question": None, "sides": []}  # fmt: skip
    found = await site.models.first_of([run] if run else page["runs"])
    if found is None:
        if question is not None:
            raise UserError("there is no trained run here yet to look into.")
        return page
    page["run"], loaded = found
    page["people"] = loaded.subjects
    if question is None and loaded.subjects:
        question = loaded.subjects[len(loaded.subjects) // 3]  # something to see at once
    if question is None or not question.strip():
        return page
    page["question"], _ = loaded.asker.understand(" ".join(question.split()))
    asked = page["question"]
    for name in [page["run"], *([other] if other else [])]:
        each = await site.models.get(name)
        side = await each.run(lambda asker: view_heads(asker, asked, layer, head))
        folder = site.index.find(name)
        twins = await site.reading.run(site.index.twins_without, folder)
        entries = {twin["question"]: twin for twin in twins if twin["where"]["places"]}
        side["entry"] = map_entry(entries[asked]) if asked in entries else None
        side["entries"] = [{key: twin[key] for key in ("subject", "question")}
                           for twin in entries.values()]  # fmt: skip
        side["entry_command"] = command_without(folder, side["subject"] or "NAME")
        page["sides"].append({"run": name, **side})
    return page


def map_entry(twin: Record) -> Record:
    """Where a line enters the answer: nats lost with the twin's state, in the order of PLACES.

    most: the largest loss of each part; share: of that, which is how strong its colour is.
    """
    where, rows, most = twin["where"], [], {}
    for part, starts in PLACES.items():
        places = [place for place, values in where["places"].items()
                  if place.startswith(starts) and len(values) == len(where["tokens"])]  # fmt: skip
        lost = [[round((where["with"] or 0) - (p or 0), 4) for p in where["places"][place]]
                for place in places]  # fmt: skip
        most[part] = max((nats for row in lost for nats in row), default=0.0)
        for place, row in zip(places, lost, strict=True):
            share = [round(max(0.0, nats) / max(most[part], 0.01), 4) for nats in row]
            rows.append({"place": place, "nats": row, "share": share})
    keys = ("subject", "question", "with", "without", "documents", "notes", "score")
    tokens = label_tokens(where["tokens"])
    return {**{key: twin[key] for key in keys}, "tokens": tokens, "rows": rows, "most": most}


def label_tokens(tokens: Iterable[str | None]) -> list[str]:
    """Tokens as they can be read: the blank, the mask and the end of a line as signs."""
    return [(token or "").translate(SIGNS) or "∅" for token in tokens]


def view_heads(asker: Asker, question: str, layer: int | None, head: int | None) -> Record:
    """What one run does with the question: answer, heads, and the whole map of one head."""
    from wherefrom.provenance.attribution.twins import logit_lens
    from wherefrom.recall.decode import answer_all
    from wherefrom.recall.inside import look_inside

    run = asker.run
    subject = find_subject_in(run.templates, question)
    view = look_inside(run.model, run.tokens, question, subject)
    (answer,) = answer_all(run.model, run.tokens, [question])
    if len(view.tokens) > MOST_TOKENS:
        raise UserError(
            f"this question has {len(view.tokens)} tokens, and a map of more than {MOST_TOKENS} "
            "is too fine to see; ask a shorter one."
        )
    best = max(view.heads, key=lambda each: each.mass_on_name or 0.0)
    places = {(each.layer, each.head) for each in view.heads}
    shown = (best.layer if layer is None else layer, best.head if head is None else head)
    shown = shown if shown in places else (best.layer, best.head)
    weights = view.maps[shown[0]][shown[1]]
    lens = logit_lens(run, question, answer.text)
    labels, lens["tokens"] = label_tokens(view.tokens), label_tokens(lens["tokens"])
    for row in lens["layers"]:
        row["says"] = label_tokens(row["says"])
    rows, columns = (  # a learned basis has no tokens
        labels if count == len(labels) else [f"latent {at}" for at in range(count)]
        for count in weights.shape
    )
    return {
        "answer": answer.text,
        "probability": float(f"{exp(min(0.0, answer.log_probability)):.4g}"),
        "subject": subject,
        "variant": run.model.config.variant,
        "lens": lens,
        "tokens": labels,
        "name": list(view.name),
        "heads": [each.to_dict() for each in view.heads],
        "layers": 1 + max(at for at, _ in places),
        "heads_a_layer": 1 + max(at for _, at in places),
        "map": {"layer": shown[0], "head": shown[1], "rows": rows, "columns": columns,
                "weights": weights.round(4).tolist()},
    }  # fmt: skip
