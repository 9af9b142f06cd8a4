"""The pages that ask a model: ask, one question or a file of them; inside, how it gets there."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

from fastapi import APIRouter, File, Form, Query, UploadFile
from fastapi.responses import Response

from wherefrom.corpus.questions import SLOT
from wherefrom.errors import UserError
from wherefrom.report.sections import mark
from wherefrom.web.model_process import label_tokens
from wherefrom.web.models import LoadedRun
from wherefrom.web.replies import Site, TheSite, html_and_json
from wherefrom.web.runs import Record

router = APIRouter()
COLUMNS = ("question", "shown", "verdict", "answer", "seen")
LIKELY = [(target, mode) for target in ("from_text", "right") for mode in ("checked", "internal")]
Run = Annotated[str | None, Query(max_length=300, description="a run's name")]
Question = Annotated[
    str | None, Query(max_length=2_000, description="the question, or a name alone")
]
RunName = Annotated[str, Form(max_length=300, description="a run's name")]
Text = Annotated[str, Form(description="a TSV: question, answer and subject; or names")]
TextFile = Annotated[UploadFile | None, File(description="the same as a file")]
MAX_BATCH_QUESTIONS = 1_000
# the parts of a model, and how the names of their places begin
PLACES = {
    "attention": ("attention",),
    "feed-forward": ("feed-forward",),
    "whole state": ("embedding", "hidden", "output"),
}


@html_and_json(router, "/ask", "ask.html", typed="question")
async def ask(
    site: TheSite,
    run: Run = None,
    question: Question = None,
    trace: Annotated[bool, Query(description="also say which lines pushed the answer")] = False,
) -> Record:
    """Ask a run one question: the answer, where it came from, how sure that is, and the lines.

    verdict: as `wherefrom ask --json` prints it, and its sentence. evidence: its lines in pieces:
    name, answer, rest. other_relations: the verdicts on the other questions about a name that was
    asked alone. suggested: other questions. trace: as `wherefrom trace --json` prints it.
    without: what twins say that never read about the subject; without_command trains one.
    """
    page: Record = {
        "run": run,
        "runs": site.index.answering(),
        "templates": [],
        "people": [],
        "notes": [],
        "question": None,
        "verdict": None,
        "other_relations": [],
        "evidence": [],
        "without": [],
        "without_command": None,
        "suggested": [],
        "trace": None,
        "has_text": True,
        "audit": False,
    }
    chosen = await site.models.first_of([run] if run else page["runs"])
    if chosen is None:
        if question is not None:
            raise UserError("there is no trained run here yet to put a question to.")
        return page
    page["run"], loaded = chosen
    names = loaded.subjects
    page |= {"templates": loaded.templates, "people": names, "notes": loaded.notes}
    page |= {"has_text": loaded.has_text, "audit": loaded.is_audit}
    if question is not None and question.strip():
        page |= await _answer(site, page["run"], loaded, question)
        if trace:
            verdict = page["verdict"]
            page["trace"] = traced = await loaded.trace(verdict["question"])
            verdict["verdict"] = traced["verdict"]
            for row in (*traced["pushed_by"], *traced["pushed_away_by"]):
                row["pieces"] = mark(row["text"], verdict["subject"], traced["answer"])
    else:  # suggest questions of several kinds, each about another subject
        for i, name in enumerate(names[:: max(1, len(names) // 6)][:6]):
            questions = loaded.questions[name]
            page["suggested"].append(questions[i % len(questions)])
    return page


async def _answer(site: Site, run: str, loaded: LoadedRun, question: str) -> Record:
    from wherefrom.provenance.ask import AskedRow
    from wherefrom.provenance.attribution.twins import command_without

    verdict, *other_relations = await loaded.ask(AskedRow(" ".join(question.split())))
    if "error" in verdict:
        raise UserError(verdict["error"])
    folder, subject = site.index.find(run), verdict["subject"]
    if verdict["similar"]:  # the same question about the names that look alike
        wording = verdict["question"].replace(subject, SLOT, 1)
        others = [wording.replace(SLOT, line["subject"]) for line in verdict["similar"]]
    elif loaded.is_audit:  # not every wording suits every subject
        others = loaded.questions.get(subject, [])
    else:
        others = [wording.replace(SLOT, subject) for wording in loaded.templates]
    evidence = []
    for similar, key in ((False, "evidence"), (True, "similar")):
        for line in verdict[key]:
            stated = line.get("states") or verdict["answer"]
            pieces = mark(line["text"], subject, stated)
            evidence.append({**line, "similar": similar, "pieces": pieces})
    return {
        "question": verdict["question"],
        "verdict": verdict,
        "other_relations": other_relations,
        "evidence": evidence,
        "without": [
            {key: twin[key] for key in twin if key != "where"}
            for twin in site.index.twins_without(folder, subject)
        ],
        "without_command": command_without(folder, subject),
        "suggested": [other for other in dict.fromkeys(others) if other != verdict["question"]][:6],
    }


@html_and_json(router, "/ask/batch", "batch.html", method="POST")
async def batch(site: TheSite, run: RunName, text: Text = "", file: TextFile = None) -> Record:
    """Ask many questions at once; each row is answered as if it had been asked alone."""
    from wherefrom.provenance.ask import read_rows

    name = "the text"
    if file is not None and file.size:
        try:
            text, name = (await file.read()).decode("utf-8-sig"), "the file"
        except UnicodeDecodeError:
            raise UserError("the file is not text in UTF-8; save it as UTF-8 first.") from None
    lines = [(i, line) for i, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise UserError("paste questions, one per line, or choose a file; none came.")
    if len(lines) > MAX_BATCH_QUESTIONS:
        raise UserError(
            f"{MAX_BATCH_QUESTIONS:,} questions can be asked at once, and {len(lines):,} came; "
            "split them, or use `wherefrom ask`."
        )
    loaded = await site.models.get(run)
    verdicts = await loaded.ask_all(read_rows(lines, name))
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
    site: TheSite, run: RunName, text: Text = "", file: TextFile = None
) -> Response:
    """The same as a TSV to download: a row a question, with its verdict."""
    page = await batch(site, run, text, file)
    likely = [f"{target}_{mode}" for target, mode in LIKELY]
    table: list[list[Any]] = [[*COLUMNS, *likely, "evidence_lines", "sentence", "why"]]
    for row in page["rows"]:
        shares = [row[target].get(mode) for target, mode in LIKELY]
        likely = ["" if share is None else f"{share:.4f}" for share in shares]
        lines = " ".join(str(line["line"]) for line in row["evidence"])
        table.append([*(row[c] for c in COLUMNS), *likely, lines, row["sentence"], row["why"]])
    tsv = ""
    for cells in table:
        texts = ("" if cell is None else str(cell) for cell in cells)
        tsv += "\t".join(" ".join(cell.split()) for cell in texts) + "\n"
    headers = {"Content-Disposition": 'attachment; filename="verdicts.tsv"'}
    return Response(tsv, media_type="text/tab-separated-values; charset=utf-8", headers=headers)


# ---- inside: where each head looks, what each layer would say, where a line enters the answer


@html_and_json(router, "/inside", "inside.html", typed="question")
async def inside(
    site: TheSite,
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

    page: Record = {"run": None, "other": other or None, "runs": site.index.answering()}
    page |= {"people": [], "question": None, "sides": []}
    chosen = await site.models.first_of([run] if run else page["runs"])
    if chosen is None:
        if question is not None:
            raise UserError("there is no trained run here yet to look into.")
        return page
    page["run"], loaded = chosen
    page["people"] = loaded.subjects
    if question is None and loaded.subjects:
        question = loaded.subjects[len(loaded.subjects) // 3]  # something to see at once
    if question is None or not question.strip():
        return page
    for name in [page["run"], *([other] if other else [])]:
        loaded = await site.models.get(name)
        side = await loaded.look_inside(question, layer, head)
        page["question"] = question = side.pop("question")
        folder = site.index.find(name)
        twins = site.index.twins_without(folder)
        mapped = {twin["question"]: twin for twin in twins if twin["where"]["places"]}
        side["entry"] = map_entry(mapped[question]) if question in mapped else None
        side["entries"] = [
            {"subject": twin["subject"], "question": twin["question"]} for twin in mapped.values()
        ]
        side["entry_command"] = command_without(folder, side["subject"] or "NAME")
        page["sides"].append({"run": name, **side})
    return page


def map_entry(twin: Record) -> Record:
    """Where a line enters the answer: nats lost with the twin's state, in the order of PLACES.

    most: the largest loss of each part; share: of that, which is how strong its colour is.
    """
    where, rows, most = twin["where"], [], {}
    for part, starts in PLACES.items():
        lost = {
            place: [round((where["with"] or 0) - (value or 0), 4) for value in values]
            for place, values in where["places"].items()
            if place.startswith(starts) and len(values) == len(where["tokens"])
        }
        most[part] = max((value for nats in lost.values() for value in nats), default=0.0)
        for place, nats in lost.items():
            share = [round(max(0.0, value) / max(most[part], 0.01), 4) for value in nats]
            rows.append({"place": place, "nats": nats, "share": share})
    keys = ("subject", "question", "with", "without", "documents", "notes", "score")
    tokens = label_tokens(where["tokens"])
    return {**{key: twin[key] for key in keys}, "tokens": tokens, "rows": rows, "most": most}
