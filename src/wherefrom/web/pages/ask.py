"""Ask: one question with its verdict and its evidence, or a whole file of them."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, File, Form, Query, Request, UploadFile
from fastapi.responses import Response
from pydantic import BaseModel, Field

from wherefrom.corpus.questions import SLOT, match_template
from wherefrom.errors import UserError
from wherefrom.report.sections import mark
from wherefrom.web.models import Loaded, what_without
from wherefrom.web.replies import Record, twin
from wherefrom.web.state import Lab, lab_of

router = APIRouter(tags=["ask"])
COLUMNS = ("question", "shown", "verdict", "confidence", "internal_confidence", "answer", "seen")


class AskPage(BaseModel):
    """A question put to a run, and all that is known about the answer."""

    run: str | None = Field(description="the run that is asked")
    runs: list[str] = Field(description="all runs that can be asked")
    template: str | None = Field(description="how its questions are worded")
    people: list[str] = Field(description="some names to ask about")
    notes: list[str] = Field(description="what this run lacks")
    question: str | None
    verdict: dict[str, Any] | None = Field(description="as `wherefrom ask --json` prints it")
    evidence: list[dict[str, Any]] = Field(description="the lines in pieces: name, place, rest")
    without: list[dict[str, Any]] = Field(description="what twins say that never read of them")
    history: list[dict[str, Any]] = Field(description="what this visitor asked before")


class BatchPage(BaseModel):
    """Many questions at once."""

    run: str
    runs: list[str]
    text: str = Field(description="what was asked, to ask it again")
    rows: list[dict[str, Any]]
    counts: dict[str, int] = Field(description="how many of each verdict")


@twin(router, "/ask", "ask.html", AskPage, typed="question")
async def ask(
    request: Request,
    run: Annotated[str | None, Query(max_length=300, description="a run's name")] = None,
    question: Annotated[
        str | None, Query(max_length=2_000, description="the question, or a name alone")
    ] = None,
) -> Record:
    """Ask a run one question: the answer, where it came from, how sure that is, and the lines."""
    lab = lab_of(request)
    names = lab.askable()
    if not request.url.path.endswith(".json"):
        _greet(request, lab)
    page: Record = {
        "run": run,
        "runs": names,
        "template": None,
        "people": [],
        "notes": [],
        "question": None,
        "verdict": None,
        "evidence": [],
        "without": [],
    }
    visitor = getattr(request.state, "visitor", None) or request.cookies.get("visitor")
    chosen = await lab.models.choose([run] if run else names)
    if chosen is not None:
        page["run"], loaded = chosen
        page |= {
            "template": loaded.template,
            "people": list(loaded.people),
            "notes": list(loaded.asker.notes),
        }
        if question is not None and question.strip():
            page["question"] = worded(lab, loaded, question)
            loaded.asker.check(page["question"])
            page |= await _answer(lab, page["run"], page["question"])
            told = {key: page["verdict"][key] for key in ("shown", "answer", "verdict")}
            entry = {"run": page["run"], "question": page["question"], **told}
            lab.histories.add(visitor, entry)
    elif question is not None:
        raise UserError("there is no trained run here yet to put a question to.")
    return {**page, "history": lab.histories.of(visitor)}


@twin(router, "/ask/batch", "batch.html", BatchPage, method="POST")
async def batch(
    request: Request,
    run: Annotated[str, Form(max_length=300, description="a run's name")],
    text: Annotated[str, Form(description="a TSV: question, answer and subject; or names")] = "",
    file: Annotated[UploadFile | None, File(description="the same as a file")] = None,
) -> Record:
    """Ask many questions at once; each row is answered as if it had been asked alone."""
    return await _batch(request, run, text, file)


@router.post(
    "/ask/batch.tsv",
    summary="The same as a TSV to download: a row a question, with its verdict.",
    response_class=Response,
    responses={200: {"content": {"text/tab-separated-values": {}}, "description": "a TSV"}},
)
async def batch_as_file(
    request: Request,
    run: Annotated[str, Form(max_length=300)],
    text: Annotated[str, Form()] = "",
    file: Annotated[UploadFile | None, File()] = None,
) -> Response:
    """The same as a TSV to download: a row a question, with its verdict."""
    page = await _batch(request, run, text, file)
    lines = ["\t".join((*COLUMNS, "evidence_lines", "why"))]
    for row in page["rows"]:
        cells = [row[column] for column in COLUMNS]
        cells += [" ".join(str(each["line"]) for each in row["evidence"]), row["why"]]
        lines.append("\t".join(_cell(cell) for cell in cells))
    return Response(
        "\n".join(lines) + "\n",
        media_type="text/tab-separated-values; charset=utf-8",
        headers={"Content-Disposition": 'attachment; filename="verdicts.tsv"'},
    )


async def _answer(lab: Lab, run: str, question: str) -> Record:
    told = await lab.models.ask(run, question)
    folder, without = lab.shelf.find(run), []
    if any(folder.glob("twins/without-*")):  # a change of threads costs more than this look
        without = await asyncio.to_thread(what_without, folder, told["subject"])
    lines = [
        {**each, "similar": similar, "pieces": mark(each["text"], told["subject"], told["answer"])}
        for similar, found in ((False, told["evidence"]), (True, told["similar"]))
        for each in found
    ]
    return {"verdict": told, "evidence": lines, "without": without}


def worded(lab: Lab, loaded: Loaded, question: str) -> str:
    """The question as the run knows it: a name alone is put into the run's own wording."""
    question = " ".join(question.split())
    if len(question) > lab.limits.question:
        raise UserError(
            f"a question may have {lab.limits.question} characters, and this one has "
            f"{len(question):,}; ask a shorter one."
        )
    template = loaded.template
    if template and "?" not in question and match_template(template, question) is None:
        question = template.replace(SLOT, question)
    return question


async def _batch(request: Request, run: str, text: str, file: UploadFile | None) -> Record:
    from wherefrom.provenance.ask import AskedRow, read_question_rows

    lab = lab_of(request)
    loaded = await lab.models.get(run)
    name = "the text"
    if file is not None and file.size:
        name = "the file"
        try:
            text = (await file.read()).decode("utf-8-sig")
        except UnicodeDecodeError:
            raise UserError("the file is not text in UTF-8; save it as UTF-8 first.") from None
    lines = [(at, line) for at, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        raise UserError("paste questions, one a line, or choose a file; none came.")
    if len(lines) > lab.limits.batch:
        raise UserError(
            f"{lab.limits.batch:,} questions can be asked at once, and {len(lines):,} came; split "
            "them, or use `wherefrom ask`."
        )
    rows = []
    for row in read_question_rows(lines, name):
        try:
            asked = worded(lab, loaded, row.question) if row.subject is None else row.question
        except UserError as problem:
            raise UserError(f"{row.where}{problem}") from None
        rows.append(AskedRow(asked, subject=row.subject, where=row.where))
    told = await lab.models.ask_all(run, rows)
    counts: dict[str, int] = {}
    for each in told:
        counts[str(each["verdict"])] = counts.get(str(each["verdict"]), 0) + 1
    return {"run": run, "runs": lab.askable(), "text": text, "rows": told, "counts": counts}


def _greet(request: Request, lab: Lab) -> None:
    if not lab.histories.knows(request.cookies.get("visitor")):
        request.state.visitor = lab.histories.welcome()


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return "" if value is None else " ".join(str(value).split())
