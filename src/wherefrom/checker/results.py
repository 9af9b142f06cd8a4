"""What a check returns: the verdict, its reasons, and the figures beside them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from wherefrom.errors import Printable

Verdict = Literal["proved", "holds", "refuted", "inconclusive"]
EXIT_CODES: dict[Verdict, int] = {"proved": 0, "holds": 0, "refuted": 1, "inconclusive": 3}


@dataclass(frozen=True)
class BetaNeeded:
    """How large the large factor must be for the tolerance."""

    formula: str
    value: float  # at the n below
    n: int
    by_n: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Assumption:
    """One assumption of the problem. `used`: it is needed, as a counterexample shows (True); it is
    not (False, by figures alone); or no counterexample was found (None)."""

    name: str
    used: bool | None
    evidence: str


@dataclass(frozen=True)
class Failure:
    """How often noise spoils the result, exactly."""

    meaning: str
    n: int
    beta: float
    probability: float  # among the samples not set aside
    set_aside: float
    in_all: float  # counting the samples set aside as they come out

    def summary(self) -> list[tuple[str, str]]:
        at = f" (n = {self.n}, beta = {self.beta:.4g})" if self.n else ""
        kept = "of the samples kept" if self.set_aside else "of all samples"
        lines = [f"exactly {self.probability:.4%} {kept}{at}"]
        if self.set_aside:
            aside = f"with the {self.set_aside:.2%} set aside (e < 0)"
            lines.append(f"{self.in_all:.4%} of all samples, {aside}")
        return [("fails if", self.meaning), *(("", line) for line in lines)]


@dataclass(frozen=True)
class Counterexample:
    """The smallest instance found on which the construction misses its goal."""

    sizes: dict[str, int]
    numbers: dict[str, Any]
    sentence: str


@dataclass(frozen=True, repr=False)
class CheckResult(Printable):
    """The answer to one construction. A verdict is `inconclusive` until something decides it."""

    problem: str
    construction: dict[str, str]
    tolerance: float
    seed: int
    verdict: Verdict = "inconclusive"
    because: str = "nothing was decided."
    derived: tuple[str, ...] = ()
    beta: BetaNeeded | None = None
    assumptions: tuple[Assumption, ...] = ()
    failure: Failure | None = None
    counterexample: Counterexample | None = None
    notes: tuple[str, ...] = ()
    read_as: dict[str, str] = field(default_factory=dict)  # the construction as it was understood

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]

    @property
    def passed(self) -> bool:
        return self.exit_code == 0

    def holds(self, because: str, **rest: Any) -> CheckResult:
        return replace(self, verdict="holds", because=because, **rest)

    def inconclusive(self, because: str, **rest: Any) -> CheckResult:
        return replace(self, verdict="inconclusive", because=because, **rest)

    def refuted(
        self,
        because: str,
        sentence: str,
        sizes: dict[str, int] | None = None,
        numbers: dict[str, Any] | None = None,
        **rest: Any,
    ) -> CheckResult:
        """Refuted, by an instance that the caller has computed and seen to fail."""
        example = Counterexample(sizes or {}, numbers or {}, sentence)
        return replace(self, verdict="refuted", because=because, counterexample=example, **rest)

    def proved(self, because: str, certificate: dict[str, Any], **rest: Any) -> CheckResult:
        """Proved, if the verifier accepts the certificate."""
        from wherefrom.checker.verifier import verify

        fault = verify(certificate)
        if fault:
            bug = "This is a bug in Wherefrom; please report it."
            because = f"the proof was not accepted ({fault}). {bug}"
            return self.inconclusive(because)
        return replace(self, verdict="proved", because=because, **rest)

    def summary(self) -> list[tuple[str, str]]:
        """The verdict, how the construction was read, what was derived, measured and tried."""
        rows: list[tuple[str, str]] = [(self.verdict, self.because)]
        rows += [("read as", f"{name} = {text}") for name, text in self.read_as.items()]
        rows += [("derived", line) for line in self.derived]
        if self.beta is not None:
            by_n = ", ".join(f"n = {n}: {beta:.4g}" for n, beta in self.beta.by_n.items())
            rows.append(("beta needed", self.beta.formula))
            rows.append(("", f"tolerance {self.tolerance:g}, {by_n}"))
        if self.failure is not None:
            rows += self.failure.summary()
        words = {True: "needs", False: "does not need", None: "may need"}
        rows += [(words[item.used], f"{item.name}: {item.evidence}") for item in self.assumptions]
        if self.counterexample is not None:
            rows.append(("counterexample", self.counterexample.sentence))
            rows += [(f"  {name}", str(x)) for name, x in self.counterexample.numbers.items()]
        return rows + [("note", note) for note in self.notes]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; numbers that JSON has no word for become null."""
        record = {"beta_required" if k == "beta" else k: v for k, v in asdict(self).items()}
        return dict(json.loads(json.dumps(record), parse_constant=lambda _: None))
