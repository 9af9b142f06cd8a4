"""The public API: the commands as functions and as methods of a run, with printable results.

    wherefrom.check("average", "q=beta*(k_a+k_b)")
    wherefrom.Study("runs/study", minutes=8).run()
    wherefrom.Wherefrom("runs/study").ask("Where was Fryderyk Kozar born?")

Imports are inside the functions, so that functions without torch do not load it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from wherefrom.errors import Record, UserError, checked, did_you_mean, public

if TYPE_CHECKING:
    from wherefrom.attention.designs import Design
    from wherefrom.attention.laws import HeadsLaw
    from wherefrom.corpus.questions import QuestionSet
    from wherefrom.provenance.ask import Asker
    from wherefrom.provenance.verdicts import Verdict
    from wherefrom.recall.table import Recall
    from wherefrom.study import StudyResult
    from wherefrom.training.loop import Observer
    from wherefrom.training.run_folder import Run
    from wherefrom.training.settings import Settings

    Named = Run | str | Path
    Opened: TypeAlias = "Wherefrom | Asker | Named"


def design(
    name: str,
    *,
    keys: Any = None,
    n: int | None = None,
    beta: float | None = None,
    tolerance: float | None = None,
    weights: Any = None,
) -> Design:
    """A hand-built construction: formula, matrices, the beta it needs, and its check.

    Settings that the construction does not have are refused.
    """
    from wherefrom.attention.designs import build_design

    settings = {"beta": beta, "tolerance": tolerance, "weights": weights}
    return build_design(name, keys=keys, n=n, **settings)


def law(
    design: str, *, n: int = 8, beta: float | None = None, tolerance: float = 0.01, **keys: Any
) -> HeadsLaw:
    """The exact law of a design's attention weights under noisy keys, as in `wherefrom law`.

    keys: d, alpha, stretch, heads, and repel, which is the option --t of the command.
    """
    from wherefrom.attention.designs import law_of_design

    settings = {"repel": 1.0, "beta": beta, "tolerance": tolerance, "n": n}
    known = ("d", "alpha", "stretch", "heads", *settings)
    for name in keys:
        if name not in known:
            raise UserError(f'law takes no "{name}".{did_you_mean(name, known)}')
    return law_of_design(design, **settings | keys)[1]


def load(folder: Run | str | Path) -> Run:
    """A finished run: its `model`, `tokens`, `templates` of questions, and `record` (run.json)."""
    from wherefrom.provenance.audited import open_run

    return open_run(folder)


@overload
def ask(run: Opened, question: str, **options: Any) -> Verdict: ...
@overload
def ask(run: Opened, question: Sequence[str], **options: Any) -> list[Verdict]: ...
def ask(run: Opened, question: str | Sequence[str], **options: Any) -> Verdict | list[Verdict]:
    """The verdict on a run's answer to one question, or a list of verdicts for several.

    `options`: `always_answer` shows even unsure answers, `risk` is the share of the answers shown
    that may be wrong. A run or folder is opened for this call; `Wherefrom` keeps it open.
    """
    from wherefrom.provenance.ask import Asker, open_asker

    run = run.asker if isinstance(run, Wherefrom) else run
    if isinstance(run, Asker):
        return run.ask(question, **options)
    with open_asker(run) as asker:
        return asker.ask(question, **options)


def trace(run: Wherefrom | Named, question: str, **options: Any) -> Record:
    """Which lines of the text pushed a run's answer; see `Wherefrom.trace`."""
    return Wherefrom(run).trace(question, **options)


def evaluate(run: Wherefrom | Named, questions: QuestionSet | str | Path) -> Recall:
    """The share of questions that a run answers exactly; the questions need answers."""
    return Wherefrom(run).evaluate(questions)


class Wherefrom:
    """One run (default: the newest), loaded once, with the commands as methods.

    A method takes the same options as the command of its name and returns a printable result;
    `to_dict` is what the command prints with --json.
    """

    @public
    def __init__(self, run: Wherefrom | Named | None = None) -> None:
        from wherefrom.training.run_folder import find_newest_run

        self.run: Run
        run = find_newest_run() if run is None else run
        self.run = run.run if isinstance(run, Wherefrom) else load(run)

    def __repr__(self) -> str:
        return f"<Wherefrom {self.run.folder}>"

    @cached_property
    def asker(self) -> Asker:
        """The run with its evidence and confidence, opened at the first question."""
        from wherefrom.provenance.ask import open_asker

        return open_asker(self.run)

    @overload
    def ask(self, question: str, **options: Any) -> Verdict: ...
    @overload
    def ask(self, question: Sequence[str], **options: Any) -> list[Verdict]: ...
    @public
    def ask(self, question: str | Sequence[str], **options: Any) -> Verdict | list[Verdict]:
        return ask(self.asker, question, **options)

    @public
    def trace(self, question: str, **options: Any) -> Record:
        """What `wherefrom trace --json` prints.

        `options`: `answer` to trace another answer, `top` for the number of lines, `method`
        (gradient or retrain).
        """
        from wherefrom.provenance.attribution.trace import open_tracer

        tracer = open_tracer(self.run)
        return Record("trace", checked(tracer.trace)(question, **options))

    def _require_own_model(self) -> Run:
        """The run, or a UserError if it is an audit, which holds no model."""
        from wherefrom.training.run_folder import load_run

        return load_run(self.run.folder) if self.run.model is None else self.run

    @public
    def evaluate(self, questions: QuestionSet | str | Path) -> Recall:
        from wherefrom.corpus.questions import QuestionSet
        from wherefrom.evaluation import answer_questions, read_asked_questions
        from wherefrom.recall.table import count_right

        run = self._require_own_model()
        refused: dict[int, str] = {}
        if not isinstance(questions, QuestionSet):
            questions, refused = checked(read_asked_questions)(run, questions)
        questions.require_answers()
        answers = answer_questions(run, questions, refused)
        return count_right(questions.questions, [answer.text for answer in answers])

    @public
    def judge(
        self,
        *,
        risk: float | None = None,
        guarantee: str = "from-text",
        level: float = 0.95,
        resamples: int = 1000,
        seed: int = 0,
    ) -> Record:
        from wherefrom.provenance.judging import judge_run, write_judgement

        options: dict[str, Any] = {"level": level, "resamples": resamples, "seed": seed}
        judgement = judge_run(self.run, risk=risk, guarantee=guarantee, **options)
        write_judgement(self.run, judgement)
        return Record("judge", {"run": str(self.run.folder), **judgement.record})

    @public
    def names(self, *, people: int = 20, level: float = 0.95, seed: int = 0) -> Record:
        """What the run answers about invented names; writes nothing."""
        from wherefrom.provenance.names import probe_run

        found = probe_run(self.run, each=people, level=level, seed=seed)
        return Record("names", {"run": str(self.run.folder), **found})

    @public
    def twins(self, without: str, **options: Any) -> Record:
        """Train the run again without the documents about one subject, and compare both."""
        from wherefrom.provenance.attribution.opening import open_learned
        from wherefrom.provenance.attribution.twins import leave_out, plan_twin

        plan = plan_twin(open_learned(self.run), without)
        return Record("twins", checked(leave_out)(plan, **options))

    @public
    def report(self, out: str | Path | None = None, form: str | None = None) -> Path:
        """Write the report as html or json (if not given, by the ending of `out`)."""
        from wherefrom.report.study_report import make_report, write_report

        return write_report(make_report(self.run.folder), out, form)

    @public
    def export(self, out: str | Path) -> Path:
        """Write the model as a folder that Hugging Face transformers loads."""
        from wherefrom.model.export import export_adapted, export_model
        from wherefrom.provenance.audited import BaseRun

        if isinstance(self.run, BaseRun):
            export_adapted(self.run.audited, Path(out))
            return Path(out)
        run = self._require_own_model()
        export_model(run.model, run.tokens, Path(out), run.record.for_card())
        return Path(out)


@dataclass(frozen=True)
class Study:
    """The main job on one text: train, ask, compare and judge. `run()` starts it.

    `files`: a corpus, training questions and dev questions; without them the study makes the
    embedded world inside `out`. Give one of `minutes`, `epochs` and `steps`, or training ends when
    recall stops growing. The rest are the options of `wherefrom study`.
    """

    out: str | Path
    files: Sequence[str | Path] | None = None
    _: KW_ONLY
    minutes: float | None = None
    epochs: float | None = None
    steps: int | None = None
    recipe: str | Path = "pointed"
    variant: str | None = None
    size: str | None = None
    tokens: str | None = None
    block: int | None = None
    latents: int | None = None
    people: int = 3000  # of the embedded world
    template: str | Sequence[str] = ()
    subject_field: str | None = None
    text_field: str | Sequence[str] | None = None
    set_aside: float | None = None
    leave_out: float = 0.0
    seed: int = 0
    resume: bool = False
    device: str = "auto"
    checkpoint_every: float = 60.0

    @public
    def run(
        self, *, observe: Observer | None = None, say: Callable[[str], None] = lambda _: None
    ) -> StudyResult:
        """Run the study; `observe` is called after every step, `say` at every stage."""
        return self.run_command(observe, say)

    def run_command(self, observe: Observer | None, say: Callable[[str], None]) -> StudyResult:
        """Like `run`, but errors name the options of `wherefrom study`."""
        from wherefrom.corpus.split import check_shares
        from wherefrom.study import find_files, run_study
        from wherefrom.training.distributed import choose_device

        check_shares(self.set_aside, self.leave_out)
        choose_device(self.device)  # before a world is written
        options = {field.name: getattr(self, field.name) for field in fields(self)}
        out, given, people, templates = map(options.pop, ("out", "files", "people", "template"))
        names = ("subject_field", "text_field", "set_aside", "leave_out")
        reading = {name: options.pop(name) for name in names}
        reading["templates"] = [templates] if isinstance(templates, str) else templates
        settings = make_settings(**options)
        files = find_files(given or (), settings, Path(out), people=people, say=say)
        return run_study(files, settings, out, **reading, observe=observe, say=say)


Study.__init__ = public(Study.__init__)  # type: ignore[method-assign]


def make_settings(*, recipe: str | Path, **options: Any) -> Settings:
    """Training settings from the options of a command or of `Study`."""
    from wherefrom.training.recipes import Budget, load_recipe
    from wherefrom.training.settings import Settings

    budget = Budget(**{name: options.pop(name) for name in ("minutes", "epochs", "steps")})
    return Settings(recipe=load_recipe(str(recipe)), budget=budget, **options)
