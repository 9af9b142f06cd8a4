"""Texts as people have them, with questions: made of what is installed, or invented.

    python benchmarks/made_texts.py manpages --out DIR    pages of 180 to 650 words
    python benchmarks/made_texts.py debian --out DIR      installed packages, a table of stanzas
    python benchmarks/made_texts.py copyright --out DIR   licence files
    python benchmarks/made_texts.py python --out DIR      metadata of Python packages
    python benchmarks/made_texts.py hungarian --out DIR   answers with case endings
    python benchmarks/made_texts.py changelogs --out DIR  changelogs of packages
    python benchmarks/made_texts.py locales --out DIR     definitions of locales
    python benchmarks/made_texts.py units --out DIR       systemd units
    python benchmarks/made_texts.py companies --out DIR   any text of made_texts.toml

No rule of the reader was chosen by those in NOT_TUNED. Each folder gets the documents, train.tsv
and dev.tsv; the answer "-" means that no document states
it. `reading.py` measures how well the reader reads them.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.metadata
import json
import math
import random
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

INVENTED = tomllib.loads(Path(__file__).with_name("made_texts.toml").read_text(encoding="utf-8"))
MAN_PAGES, DPKG_STATUS = Path("/usr/share/man"), Path("/var/lib/dpkg/status")
LICENCES = Path("/usr/share/doc")
LOCALES, UNITS = Path("/usr/share/i18n/locales"), Path("/lib/systemd/system")
PAGE_WORDS = range(180, 651)
SILENT = 0.3  # share of the invented documents that do not state an answer
MENTIONS = 0.8  # share of the invented documents that mention another value
# by template: the answer, None where the document states none; not there if the rule cannot tell
Facts = dict[str, str | None]


@dataclass(frozen=True)
class MadeText:
    """File name -> content, and for each subject its facts."""

    files: dict[str, str]
    facts: Mapping[str, Facts]


# --- installed texts ------------------------------------------------------------------------------


def strip_roff(source: str) -> str:
    """A man page as plain text: headings on lines of their own, no markup."""
    lines = []
    for line in source.splitlines():
        if line.startswith((".", "'")):
            macro = re.match(r"[.']\s*(\w+)\s*(.*)", line)
            if macro is None or macro[1] not in (
                "SH",
                "SS",
                "B",
                "I",
                "BR",
                "RB",
                "IR",
                "BI",
                "IP",
            ):
                continue
            line = macro[2].replace('"', "")
        lines.append(line)
    text = "\n".join(lines)
    text = re.sub(r"\\f(?:\[\w*\]|\(\w\w|.)|\\[&/,|^:%]|\\s[-+]?\d", "", text)
    for mark, plain in (("\\-", "-"), ("\\(co", "©"), ("\\(aq", "'"), ("\\(cq", "’"), ("\\ ", " ")):
        text = text.replace(mark, plain)
    return re.sub(r"\\(?:\(..|\[[^\]]*\]|\*\(..|.)", " ", text)


def section_of(page: str, *headings: str) -> str:
    found = re.search(
        rf"^(?:{'|'.join(headings)})\s*\n((?:.*\n?)*?)(?=^[A-Z][A-Z ]+$|\Z)", page, re.M
    )
    return found[1] if found else ""


NAME = r"[A-Z][\w'’-]+(?: [A-Z]\.?(?= ))*(?: (?:van|de|von|der) )?(?: ?[A-Z][\w'’-]+){1,2}"
NO_NAME = re.compile(r"Free|Project|Manual|Linux|Debian|GNU|Inc|Team|The |This|For |Report|See ")


def manpages(rng: random.Random) -> MadeText:
    """Who wrote it, its first cross reference, and its licence's year: all far from the name."""
    files, facts = {}, {}
    pages = sorted(file for n in (1, 5, 8) for file in (MAN_PAGES / f"man{n}").glob("*.gz"))
    rng.shuffle(pages)
    sources: dict[str, int] = {}
    for file in pages:
        name, number = file.stem.rsplit(".", 1)
        with gzip.open(file, "rt", encoding="utf-8", errors="replace") as opened:
            source = opened.read()
        heading = re.search(
            r'^\.TH (?:"[^"]*"|\S+) (?:"[^"]*"|\S+) +(?:"([^"]*)"|(\S+)) +"([^"]*)"', source, re.M
        )
        if name in files or heading is None:
            continue
        page = strip_roff(source)
        date, package = (
            " ".join(strip_roff(text).split())
            for text in (heading[1] or heading[2] or "", heading[3])
        )
        page += f"\n{package} {date} {name}({number})\n"
        first = re.match(r"\s*([\w.+-]+) ?\(\d\w*\)", section_of(page, "SEE ALSO"))
        author = re.search(NAME, section_of(page, "AUTHORS?").replace("Written", ""))
        if len(page.split()) not in PAGE_WORDS or sources.get(package, 0) > 12:
            continue
        if author and NO_NAME.search(author[0]):
            author = None
        if not (author and date) and not (first and author):
            continue
        sources[package] = sources.get(package, 0) + 1
        files[name] = page
        facts[name] = {
            "Who wrote {subject}?": author[0] if author else None,
            "When was the page of {subject} written?": date or None,
            "Which page does the one of {subject} refer to first?": first[1] if first else None,
        }
    return MadeText(
        {f"documents/{name}.txt": f"# {name}\n{page}" for name, page in files.items()}, facts
    )


def debian(rng: random.Random) -> MadeText:
    """Installed packages as JSONL without a field of text, and what their fields hold."""
    rows, facts, seen = [], {}, set()
    for stanza in DPKG_STATUS.read_text(encoding="utf-8").split("\n\n"):
        fields = dict(re.findall(r"^([A-Z][\w-]+): (.*)$", stanza, re.M))
        source = fields.get("Source", fields.get("Package", "")).split()
        if not source or source[0] in seen:
            continue
        seen.add(source[0])
        kept = ("Package", "Section", "Maintainer", "Architecture", "Version", "Depends")
        row = {key: fields[key] for key in (*kept, "Description", "Homepage") if key in fields}
        rows.append(json.dumps(row) + "\n")
        person, _, address = fields["Maintainer"].partition(" <")
        facts[row["Package"]] = {
            "Who maintains {subject}?": person,
            "Which address does the maintainer of {subject} have?": address.rstrip(">"),
            "What is the home page of {subject}?": fields.get("Homepage"),
            "Which version of {subject} is installed?": fields["Version"],
        }
    return MadeText({"documents.jsonl": "".join(rows)}, facts)


def copyrights(rng: random.Random) -> MadeText:
    """Licence files: where a program comes from, under what name, its licence and who holds it.

    Where a file has several licences or holders, none of them is asked for. Some files are cut
    before their first stanza, so that they certainly name neither.
    """
    files: dict[str, str] = {}
    facts: dict[str, Facts] = {}
    for file in sorted(LICENCES.glob("*/copyright")):
        text = file.read_text(encoding="utf-8", errors="replace")
        fields: dict[str, list[str]] = {}
        for key, value in re.findall(r"^([A-Z][\w-]+): *(\S.*)$", text, re.M):
            fields.setdefault(key, []).append(value)
        name, header = file.parent.name, text.split("\nFiles:")[0]
        if not {"Source", "License", "Copyright"} <= fields.keys():
            continue
        is_cut = "opyright:" not in header and "icense:" not in header and rng.random() < SILENT
        content = " ".join((header if is_cut else text).split())[:2500]
        if content in files.values():
            continue
        files[name] = content
        asked: Facts = {
            "Where does {subject} come from?": fields["Source"][0],
            "What do its authors call {subject}?": fields.get("Upstream-Name", [None])[0],
        }
        holders = {re.sub(r"[-\d\s,©()C]+ ", "", value, count=1) for value in fields["Copyright"]}
        only = {
            "Which licence does {subject} have?": set(fields["License"]),
            "Who holds the copyright of {subject}?": {holder.split(" <")[0] for holder in holders},
        }
        for template, values in only.items():
            if is_cut:
                asked[template] = None
            elif len(values) == 1:
                asked[template] = values.pop()
        facts[name] = {t: a for t, a in asked.items() if a is None or a in content}
    rows = [json.dumps({"title": name, "text": text}) + "\n" for name, text in files.items()]
    return MadeText({"documents.jsonl": "".join(rows)}, facts)


def python(rng: random.Random) -> MadeText:
    """Metadata of the installed Python packages with the first words of their description."""
    lines, facts = [], {}
    for found in sorted(importlib.metadata.distributions(), key=lambda each: each.name):
        metadata, name = found.metadata, found.name
        if name in facts:
            continue
        header = [f"{key}: {value}" for key, value in metadata.items() if key != "Description"]
        about = str(metadata.get("Description") or metadata.get_payload()).split()[:120]
        body = " ".join(" ".join([*header, *about]).split())
        links = dict(
            link.split(", ", 1) for link in metadata.get_all("Project-URL") or () if ", " in link
        )
        links = {label.lower(): link for label, link in links.items()}
        lines.append(f"{name}\t{body}\n")
        facts[name] = {
            "Which Python does {subject} need?": metadata.get("Requires-Python"),
            "Where is the home page of {subject}?": metadata.get("Home-page")
            or links.get("homepage"),
            "Where is the source of {subject}?": links.get("source") or links.get("repository"),
            "What is {subject} for?": metadata.get("Summary"),
        }
    return MadeText({"documents.txt": "".join(lines)}, facts)


def changelogs(rng: random.Random) -> MadeText:
    """The newest entry of a changelog, and the start of those before it, which look the same."""
    files, facts = {}, {}
    for file in sorted(LICENCES.glob("*/changelog.Debian.gz")):
        with gzip.open(file, "rt", encoding="utf-8", errors="replace") as opened:
            text = opened.read(3000)
        entries = re.findall(
            r"^(\S+) \((\S+)\) \S+; urgency=\w+\n((?:.*\n)*?) -- (.*?) <(\S+)>  \w+, (.*)$",
            text,
            re.M,
        )
        if not entries:
            continue
        name, _, body, person, address, date = entries[0]
        content = " ".join(text.split()[:300])
        if name in facts or content in files.values() or date not in content:
            continue
        bug = re.search(r"Closes: #(\d+)", body)
        before = entries[1][1] if len(entries) > 1 else None
        files[name] = content
        facts[name] = {
            "Who uploaded {subject}?": person,
            "What address does the uploader of {subject} have?": address,
            "When was {subject} uploaded?": date,
            "Which bug does {subject} close first?": bug[1] if bug else None,
            "Which version of {subject} came before?": before,
        }
    rows = [json.dumps({"title": name, "text": text}) + "\n" for name, text in files.items()]
    return MadeText({"documents.jsonl": "".join(rows)}, facts)


def locales(rng: random.Random) -> MadeText:
    """Definitions of locales; many have no contact, telephone or currency of their own."""
    files, facts = {}, {}
    for file in sorted(LOCALES.glob("??_??")):
        text = file.read_text(encoding="utf-8", errors="replace")
        values = dict(re.findall(r'^(\w+) +"([^"]*)"$', text, re.M))
        files[file.name] = "\n".join(text.split("\n")[:90])
        kept = " ".join(files[file.name].split())
        asked = {
            "contact": "Who answers for {subject}?",
            "language": "Which language is {subject} for?",
        }
        asked |= {
            "int_curr_symbol": "Which currency does {subject} use?",
            "date": "When was {subject} written?",
        }
        facts[file.name] = {
            question: values[key].strip() or None if values.get(key, "") in kept else None
            for key, question in asked.items()
            if key in values
        }
    return MadeText(
        {f"documents/{name}.txt": f"# {name}\n{page}" for name, page in files.items()}, facts
    )


def units(rng: random.Random) -> MadeText:
    """Units of systemd in paragraphs, each opened by its name: what it runs and who explains it."""
    blocks, facts = [], {}
    names: set[str] = set()
    for file in sorted(UNITS.glob("*.*")):
        name = re.sub(r"\W+", "-", file.stem).strip("-")  # "getty@" and "getty" are one subject
        if not file.is_file() or name in names:
            continue
        names.add(name)
        text = re.sub(r"^#.*\n", "", file.read_text(encoding="utf-8", errors="replace"), flags=re.M)
        fields: dict[str, list[str]] = {}
        for key, value in re.findall(r"^(\w+)=(.+)$", text, re.M):
            fields.setdefault(key, []).append(value.strip())
        name = file.stem
        blocks.append(f"{name}\n" + re.sub(r"\n\s*\n", "\n", text).strip())
        asked = {"Description": "What does {subject} do?", "ExecStart": "What does {subject} run?"}
        asked |= {"Type": "Of which type is {subject}?", "WantedBy": "What wants {subject}?"}
        facts[name] = {
            question: fields[key][0] if key in fields else None
            for key, question in asked.items()
            if len(fields.get(key, [])) < 2
        }
    return MadeText({"documents.txt": "\n\n".join(blocks) + "\n"}, facts)


# --- invented texts -------------------------------------------------------------------------------


def hungarian(rng: random.Random) -> MadeText:
    """People of whom a text says in inflected words where they are from and where they work."""
    words = INVENTED["hungarian"]
    first, second, places, jobs = (
        words[key].split() for key in ("first", "second", "places", "jobs")
    )

    def inflect(word: str) -> tuple[str, str]:
        base, ending = word.split(":")
        return base, (base[:-1] if ending[0] == "á" else base) + ending

    lines, facts = [], {}
    names = sorted({f"{a} {b} {c}." for a in first for b in second for c in "ABCDEFGH"})
    for name in rng.sample(names, 260):
        name = f"{name[:-3]} {rng.choice(second)}" if rng.random() < 0.5 else name[:-3]
        if name in facts:
            continue
        (home, born), (town, works), (_, studied) = map(inflect, rng.sample(places, 3))
        job, as_job = inflect(rng.choice(jobs))
        year = rng.randint(1890, 1990)
        fields = {"s": name, "home": home, "born": born, "works": works, "studied": studied}
        fields |= {"job": job, "as_job": as_job, "year": str(year)}
        lines.append(f"{name}\t{rng.choice(words['texts']).format(**fields)}\n")
        facts[name] = {
            "Hol született {subject}?": home,
            "Hol dolgozik {subject}?": town,
            "Mi {subject} foglalkozása?": job,
        }
    return MadeText({"documents.txt": "".join(lines)}, facts)


def make_value(kind: str, rng: random.Random) -> str:
    """A value of a kind: one of a list, or made by the rule of that name."""
    people = {key: INVENTED["people"][key].split(",") for key in INVENTED["people"]}
    if kind == "years":
        return str(rng.randint(1850, 2010))
    if kind == "numbers":
        return str(rng.randint(12, 990))
    if kind == "people":
        last = rng.choice(people["odd"] if rng.random() < 0.3 else people["last"])
        middle = rng.choice(["", "", f"{rng.choice('ABCDEFGHJKLM')}. "])
        return f"{rng.choice(people['first'])} {middle}{last}"
    if kind == "addresses":
        host = rng.choice(people["last"]).lower() + rng.choice(["-pots", "", "_clay"])
        paths = ["", "/", "/~{n}/", "/index.php?id={n}", "/a/b_{n}.html", "/?p=shop&n={n}"]
        start = rng.choice(["http://", "https://", "https://www."])
        end = rng.choice(["org", "co.uk", "net"]) + rng.choice(paths)
        return f"{start}{host}.{end.format(n=rng.randint(1, 99))}"
    return rng.choice(kind.split(","))


def contradict(text: MadeText, rng: random.Random, count: int) -> dict[str, dict[str, int]]:
    """Add second documents that state another value for a relation about some subjects.

    Returns, by question, its two values with their lines. The lines are added to the documents.
    """
    lines = text.files["documents.txt"].splitlines(keepends=True)
    line_of = {line.split("\t")[0]: number for number, line in enumerate(lines, start=1)}
    rules = INVENTED["painters"]["relations"]
    found: dict[str, dict[str, int]] = {}
    subjects = sorted(text.facts)
    rng.shuffle(subjects)
    for subject in subjects:
        relation = rules[len(found) % len(rules)]
        value = text.facts[subject][relation["asks"]]
        other = make_value(relation["values"], rng)
        if value is None or other == value or len(found) == count:
            continue
        others = [make_value(relation["values"], rng) for _ in range(2)]
        said = rng.choice(relation["states"]).format(s=subject, v=other)
        aside = rng.choice(relation["mentions"]).format(s=subject, o=others[0])
        lines.append(f"{subject}\tAnother register has {subject}. {said} {aside}\n")
        asked = relation["asks"].replace("{subject}", subject)
        found[asked] = {value: line_of[subject], other: len(lines)}
    text.files["documents.txt"] = "".join(lines)
    return found


def invented(kind: str, rng: random.Random, size: int = 300) -> MadeText:
    """A text of made_texts.toml: most documents state an answer, some only mention another."""
    rules: dict[str, Any] = INVENTED[kind]
    lines, facts = [], {}
    most = math.prod(len(part.split(",")) for part in rules["subjects"])
    while len(lines) < min(size, most // 2):
        subject = "".join(rng.choice(part.split(",")) for part in rules["subjects"])
        if subject in facts:
            continue
        sentences: list[str] = []
        facts[subject] = {}
        for relation in rules["relations"]:
            value = make_value(relation["values"], rng)
            stated = rng.random() >= SILENT
            chosen = [rng.choice(relation["states"])] if stated else []
            chosen += [rng.choice(relation["mentions"])] if rng.random() < MENTIONS else []
            for wording in chosen:
                fields = {"o": make_value(relation["values"], rng), "n": rng.randint(1850, 2010)}
                sentences.append(wording.format(s=subject, v=value, **fields))
            facts[subject][relation["asks"]] = value if stated else None
        rng.shuffle(sentences)
        lines.append(f"{subject}\t{' '.join([rules['opens'].format(s=subject), *sentences])}\n")
    return MadeText({"documents.txt": "".join(lines)}, facts)


INSTALLED: dict[str, Callable[[random.Random], MadeText]] = {
    "manpages": manpages,
    "debian": debian,
    "copyright": copyrights,
    "python": python,
    "hungarian": hungarian,
    "changelogs": changelogs,
    "locales": locales,
    "units": units,
}
KINDS = [*INSTALLED, *(kind for kind in INVENTED if "relations" in INVENTED[kind])]
NOT_TUNED = ("locales", "units", "museums", "ships")


def make_text(kind: str, seed: int) -> MadeText:
    rng = random.Random(f"{kind} {seed}")
    return INSTALLED[kind](rng) if kind in INSTALLED else invented(kind, rng)


def write(folder: Path, text: MadeText, *, labels: int, asked: int, seed: int) -> Path:
    """Write documents and questions; the path of the documents.

    labels: training questions of each relation, all with an answer. asked: dev questions of each,
    with and without.
    """
    rng = random.Random(seed)
    for name, content in text.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    subjects = sorted(text.facts)
    rng.shuffle(subjects)
    rows: dict[str, list[str]] = {"train": [], "dev": []}
    half = len(subjects) // 2
    for template in dict.fromkeys(t for facts in text.facts.values() for t in facts):
        known = [s for s in subjects[:half] if text.facts[s].get(template) is not None]
        others = [s for s in subjects[half:] if template in text.facts[s]]
        for part, chosen in (("train", known[:labels]), ("dev", others[:asked])):
            for subject in chosen:
                answer = text.facts[subject][template] or "-"
                rows[part].append(f"{template.format(subject=subject)}\t{answer}\t{subject}\n")
    for part, lines in rows.items():
        rng.shuffle(lines)
        (folder / f"{part}.tsv").write_text("".join(lines), encoding="utf-8")
    return folder / next(iter(text.files)).split("/")[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--labels", type=int, default=40, help="training questions of a relation")
    parser.add_argument("--asked", type=int, default=60, help="dev questions of a relation")
    options = parser.parse_args()
    text = make_text(options.kind, options.seed)
    documents = write(
        options.out, text, labels=options.labels, asked=options.asked, seed=options.seed
    )
    print(f"{documents}: {len(text.facts):,} subjects")


if __name__ == "__main__":
    main()
