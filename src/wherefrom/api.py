"""The library's front door: the main jobs as few, plain calls.

Each is a thin cover over the room that does the work, with paths where that room takes records.
`import wherefrom` offers what is here beside a few names of the rooms themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from wherefrom.attention.checker import check as checker
from wherefrom.attention.checker.result import CheckResult
from wherefrom.corpus.questions import QuestionSet, read_questions
from wherefrom.errors import UserError
from wherefrom.provenance.ask import Asker, open_asker
from wherefrom.provenance.verdicts import Verdict
from wherefrom.recall.decode import answer_all
from wherefrom.recall.evaluate import Recall, score
from wherefrom.study import StudyFiles, StudyResult, embedded_files, run_study
from wherefrom.training.loop import Observer
from wherefrom.training.recipes import Budget, load_recipe
from wherefrom.training.run_folder import Run, check_folder, load_run
from wherefrom.training.settings import Settings


def check(
    problem: str,
    construction: str | Sequence[str],
    *,
    tolerance: float | None = None,
    seed: int = 0,
) -> CheckResult:
    """Judge a construction: is it proved, does it hold, is it refuted, or is it inconclusive?

    `construction` is one text such as "q=beta*(k_a+k_b)", or several: ["q1=beta*mu_a", ...].
    `wherefrom problems` lists the problems. What may not be written is a UserError.
    """
    texts = [construction] if isinstance(construction, str) else list(construction)
    return checker.check(problem, texts, tolerance=tolerance, seed=seed)


def load(folder: str | Path) -> Run:
    """A finished run: its `model`, `tokens`, `template` of questions, and records in `info`."""
    return load_run(folder)


def ask(
    run: Run | Asker | str | Path,
    question: str,
    *,
    always_answer: bool = False,
    risk: float | None = None,
) -> Verdict:
    """One question to a run; what it says, what is told, where it came from and how sure that is.

    `always_answer` tells the answer however unsure it is, `risk` is the share of told answers
    that may be wrong. A run (or its folder) is opened for each call: for many questions open it
    once with `open_asker` and ask that.
    """
    if isinstance(run, Asker):
        return run.ask([question], always_answer=always_answer, risk=risk)[0]
    with open_asker(run.folder if isinstance(run, Run) else run) as asker:
        return asker.ask([question], always_answer=always_answer, risk=risk)[0]


def evaluate(run: Run | str | Path, questions: QuestionSet | str | Path) -> Recall:
    """The share of questions that a run answers exactly; the questions need answers."""
    loaded = run if isinstance(run, Run) else load_run(run)
    asked = (
        questions
        if isinstance(questions, QuestionSet)
        else read_questions(questions, loaded.template)
    )
    asked.require_answers()
    said = answer_all(loaded.model, loaded.tokens, [each.text for each in asked.questions])
    right = [each.answer or "" for each in asked.questions]
    return score([answer.text for answer in said], right)


@dataclass(frozen=True, kw_only=True)
class _Options:
    """What a study may be told; the defaults are those of `wherefrom study`."""

    minutes: float | None = None
    epochs: float | None = None
    steps: int | None = None
    recipe: str | Path = "speedrun"
    variant: str | None = None
    size: str | None = None
    tokens: str | None = None
    people: int = 3000  # of the embedded world
    template: str | None = None
    set_aside: float = 0.1
    leave_out: float = 0.0
    seed: int = 0
    resume: bool = False


@dataclass(frozen=True)
class Study(_Options):
    """The main job on one text: train, ask, compare and judge. Nothing happens before `run()`.

    `files` are a corpus, questions to learn from and questions to be judged by; without them the
    embedded world of invented people is made inside `out`. The budget is one of `minutes`,
    `epochs` and `steps`, or what the recipe says.
    """

    out: str | Path
    files: tuple[str | Path, str | Path, str | Path] | None = None

    def run(
        self,
        *,
        observe: Observer | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> StudyResult:
        """Train it; `observe` sees every step, `say` gets a sentence at every stage."""
        out = Path(self.out)
        settings = Settings(
            recipe=load_recipe(str(self.recipe)),
            variant=self.variant,
            size=self.size,
            tokens=self.tokens,
            budget=Budget(minutes=self.minutes, epochs=self.epochs, steps=self.steps),
            seed=self.seed,
            resume=self.resume,
        )
        return run_study(
            self._inputs(out),
            settings,
            out,
            template=self.template,
            set_aside=self.set_aside,
            leave_out=self.leave_out,
            observe=observe,
            say=say,
        )

    def _inputs(self, out: Path) -> StudyFiles:
        if self.files is None:
            check_folder(out, resume=self.resume)
            return embedded_files(out / "world", people=self.people, seed=self.seed)
        if len(self.files) != 3:
            raise UserError(
                "a study takes three files: a corpus, training questions and dev questions; "
                f"it got {len(self.files)}."
            )
        corpus, train, dev = map(Path, self.files)
        return StudyFiles(corpus=corpus, train=train, dev=dev)
