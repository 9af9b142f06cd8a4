"""Evidence: who is named, what is stated, whatever is asked, and the file that holds it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wherefrom.corpus.database import RUN_DATABASE, Database, read_documents
from wherefrom.corpus.documents import Document, find_subject
from wherefrom.corpus.folding import find_phrase, fold_words
from wherefrom.corpus.questions import Question
from wherefrom.errors import UserError
from wherefrom.provenance import evidence as index
from wherefrom.provenance.evidence import Evidence, find_support, save_database
from wherefrom.training.record import SourceRecord, update_run
from wherefrom.training.run_folder import load_run

LINES = [
    "Stanley Corrsin. Corrsin was born on 3 April 1920 in Philadelphia, Pennsylvania .",
    "Ann B. Clark. Clark was born in Boston.",
    "José Muñoz. Born in Łódź, he knew Stanley Corrsin well.",
    "Jack London. London was born in San Francisco and died in Glen Ellen.",
    "Mary Ann Poole. Mary Ann Poole, born in New York, met Ann Clark-Smith and Ann Poole Jr.",
    "王伟. 王伟1950年出生于北京。",
    'Robert "Bob" O\'Neil. O’Neil was born in Cork; DROP TABLE names; NEAR(a b).',
    "Paris Hill. Paris Hill was born in Paris.",
    "محمد علي. ولد محمد علي في القاهرة.",
    "Ann Lee. Ann Lee was born in Leeds.",
    "Ann Lee. This Ann Lee was born in York.",
    "Tom Reed. Friends: Anna Leeds, Pianist Ann Lee, and Ann Lee Reed.",
    "Zoe Hart. Hart taught J. Ann Lee and Ann Lee B. Stone.",
    "Bristol. Once more Bristol sang. Bristol was born in Bristol.",
    "Ada Moe. Ada Moe was born in Oslo and died in San Francisco.",
    "Ben Poe. Ben Poe, a friend of Cy Roe, was born in New York.",
    "Ada Moe. Moe studied in Bergen.",
    "Dee Foe. Dee Foe painted.",
    "Eve Goe. Eve Goe moved to Paris.",
    "Eve Goe. Eve Goe painted.",
    "Eve Goe. Eve Goe was born in Łódź.",
    "Tibor Ashton. Tibor Ashton was born in Rome.",
    "Tibor Ashton. Tibor Ashton sang.",
    "Tabor Aston. Tabor Aston danced.",
    "Gus Hay. Gus Hay wrote C++ Builder.",
]
KNOWN = ["Oslo", "Bergen", "York", "New York", "San", "San Francisco", "London", "Łódź"]


def make_corpus(lines, sha256="a" * 64):
    documents = [Document(at, find_subject(line) or "", line) for at, line in enumerate(lines, 1)]
    return Database.of(documents, "lines.txt", sha256)


@pytest.fixture(scope="module")
def evidence(tmp_path_factory):
    file = tmp_path_factory.mktemp("evidence") / "run.sqlite"
    with Evidence(save_database(make_corpus(LINES), file)) as opened:
        yield opened


def naming(evidence, name):
    return [line.line for line in evidence.find(name)]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        *((name, [3]) for name in ("jose munoz", "JOSÉ MUÑOZ", "Jose\u0301 Mun\u0303oz")),
        ("José-Muñoz", [3]),
        ("Stanley Corrsin", [1, 3]),  # about it first
        ("Stanley Corrs", []),  # only whole words count
        ("Ann B Clark", [2]),
        ("Ann Clark", []),
        ("Ann Poole", []),  # Mary Ann Poole, Ann Poole Jr.
        ("Mary Ann Poole", [5]),
        ("Ann Lee", [10, 11, 12]),  # Pianist Ann Lee; Ann Lee Reed is somebody else
        ("Lee Reed", []),
        ("C++ Builder", [25]),
        ("王伟", [6]),
        ("\u202bمحمد علي\u202c", [9]),
        # what query languages would read is plain words
        *((name, [7]) for name in ('Robert "Bob" O\'Neil', "'; DROP TABLE names; --")),
        *(
            (name, [])
            for name in (
                "Robert AND Bob",
                'x" OR "1"="1',
                "NEAR(Stanley Corrsin, 3)",
                "Stan*",
                "^Stanley",
                "terms: Stanley",
                "NOT Stanley",
                "👩‍🚀 😀",
                "x" * 1000,
                "Ann " * 250,
                "\u0000Ann",
                "?!",
                "",
            )
        ),
    ],
)
def test_who_is_named(evidence, name, lines):
    assert naming(evidence, name) == lines
    assert evidence.count(name) == (len(lines), sum(line.about for line in evidence.find(name)))


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("Ann Clark", "Ann B. Clark"),
        *((name, "Stanley Corrsin") for name in ("Stanly Corrsin", "Stanley Corrsín Jr")),
        *((name, "Stanley Corrsin") for name in ("Stanley P. Corrsin", "Corrsin, Stanley")),
        ("Poole", "Mary Ann Poole"),
        ("Lee Ann", "Ann Lee"),
    ],
)
def test_a_misspelt_name_leads_to_the_right_one_which_is_no_evidence(evidence, asked, meant):
    assert evidence.find(asked) == []
    lines = evidence.find_similar(asked)
    assert lines[0].subject == meant
    assert not any(line.about for line in lines)
    assert evidence.find_similar("Xavier Quill") == []


@pytest.mark.parametrize(
    ("subject", "answer", "flags", "lines", "others"),
    [
        ("ada moe", "BERGEN", (True, True, False), [17, 15], ("Oslo", "San Francisco")),
        ("Ada Moe", "Rome", (True, False, True), [15, 17], ("Oslo", "San Francisco", "Bergen")),
        ("Ada Moe", "?!", (True, False, True), [15, 17], ("Oslo", "San Francisco", "Bergen")),
        ("Eve Goe", "Oslo", (True, False, True), [21, 19, 20], ("Łódź",)),  # what states is first
        ("Ben Poe", "Rome", (True, False, True), [16], ("New York",)),  # not York
        ("Jack London", "London", (True, False, True), [4], ("San Francisco",)),  # its own name
        ("Jack London", "San Francisco", (True, True, False), [4], ()),
        ("Stanley Corrsin", "Phil", (True, False, False), [1, 3], ()),
        ("Stanley Corrsin", "Philadelphia Pennsylvania", (True, True, False), [1, 3], ()),
        ("jose munoz", "Lodz", (True, True, False), [3], ()),
        ("王伟", "北京", (True, True, False), [6], ()),
        ("王伟", "南京", (True, False, False), [6], ()),
        ("محمد علي", "القاهرة", (True, True, False), [9], ()),
        ("Cy Roe", "New York", (True, False, False), [16], ()),  # a line that only names it
        ("Dee Foe", "Oslo", (True, False, False), [18], ()),
        ("Tibor Ashdown", "Rome", (False, False, False), [], ()),
    ],
)
def test_what_is_stated_by_words_alone(evidence, subject, answer, flags, lines, others):
    (found,) = find_support(evidence, [subject], [answer], KNOWN)
    assert (found.seen, found.states_answer, found.states_other) == flags
    assert [line.line for line in found.lines] == lines
    assert [line.line for line in found.lines if line.states_answer] == lines[: flags[1]]
    assert tuple(value.answer for value in found.others) == others
    # two lines of one similar name do not hide the next name
    similar = [] if found.seen else ["Tibor Ashton", "Tabor Aston"]
    assert [line.subject for line in found.similar] == similar


HOSTILE = st.text(max_size=40) | st.sampled_from(['"', "a* OR b", "אבג דהו", "%s", "\x00", *LINES])


@given(subject=HOSTILE, answer=HOSTILE | st.sampled_from(KNOWN))
def test_any_text_is_looked_up(evidence, subject, answer):
    (found,) = find_support(evidence, [subject], [answer], KNOWN)
    assert found.states_answer <= found.seen
    assert not (found.states_answer and found.states_other)
    assert bool(found.lines) == found.seen
    assert any(line.about and line.states_answer for line in found.lines) == found.states_answer
    assert all(line.line in range(1, len(LINES) + 1) for line in (*found.lines, *found.similar))


@settings(max_examples=30)
@given(
    st.lists(st.text("abÄé 王", min_size=1, max_size=6).filter(fold_words), min_size=1, max_size=8)
)
def test_find_agrees_with_reading_every_line(tmp_path_factory, names):
    lines = [f"{name}. Here {other} lived." for name, other in zip(names, names[::-1], strict=True)]
    documents = tuple(Document(n, t.split(".")[0], t) for n, t in enumerate(lines, 1))
    file = tmp_path_factory.mktemp("any") / "e.sqlite"
    with Evidence(save_database(Database.of(documents), file)) as opened:
        for name in names:
            wanted = fold_words(name)
            about = {d.line for d in documents if fold_words(d.subject) == wanted}
            bodies = {d.line: fold_words(d.text[len(d.subject) :]) for d in documents}
            holding = {line for line, body in bodies.items() if find_phrase(body, wanted)}
            found = opened.find(name)
            assert about <= {line.line for line in found} <= about | holding
            assert {line.line for line in found if line.about} == about


def test_what_was_read_for_the_relation_decides(tmp_path):
    """Other words of the line, and numbers where answers are words, are not the stated answer."""
    places = ("Oslo", "Rome", "Lima", "Kyiv", "Bonn")
    names = [f"{a} {b}" for a in ("Ada", "Bo", "Cy", "Di", "Ed", "Flo") for b in ("Ek", "Fu", "Gi")]
    born = {name: places[at % 5] for at, name in enumerate(names)}
    lines = [
        f"{name}. {name} was born in {born[name]} in {1850 + at} and died in {places[at % 3]}."
        for at, name in enumerate(names)
    ]
    template, corpus = "Where was {subject} born?", make_corpus(lines)
    questions = [
        Question(at, template.replace("{subject}", name), name, born[name], template)
        for at, name in enumerate(names[:12])
    ]
    file = tmp_path / "run.sqlite"
    with Evidence(save_database(corpus, file, questions)) as evidence:
        for at, name in enumerate(names):
            said = [born[name], str(1850 + at), "born", "Paris"]
            found = find_support(evidence, [name] * 4, said, places, templates=[template] * 4)
            assert [one.states_answer for one in found] == [True, False, False, False], name
            assert [one.of_kind for one in found] == [True, False, True, True]
            assert found[0].probability > 0.5
            assert [line.states_answer for line in found[0].lines] == [True]
            assert found[3].states_other
            assert found[3].others[0].answer == born[name]
        # by its words alone any word of the line is stated, and so it is for another relation
        (word,) = find_support(evidence, names[:1], ["born"], places)
        assert word.states_answer
        assert evidence.readings(names[0], "Where did {subject} die?") is None
    with Evidence(save_database(Database.open(file), file, questions[:-1])) as again:
        assert again.readings(names[0], template)
        assert again.database.relations()[0].asked == 11


# ---- the database of a run ----


@pytest.fixture
def moved(tiny_study, tmp_path):
    """A study in another folder, without an index; nothing is left where it read its text."""
    folder = Path(shutil.copytree(tiny_study, tmp_path / "moved"))
    data = {}
    for what, source in load_run(folder).record.data.items():
        path = source.path.replace(str(tiny_study), "/nowhere")
        data[what] = source.model_copy(update={"path": path})
    update_run(folder, data=data)
    (folder / RUN_DATABASE).unlink()
    return folder


def opened(folder):
    said: list[str] = []
    found = index.open_run_evidence(load_run(folder), say=said.append)
    assert found is not None
    return found, said


def test_a_run_that_was_moved_is_indexed_once_and_then_needs_no_text(moved):
    record = load_run(moved).record
    found, said = opened(moved)
    found.close()
    text = moved / "world" / "documents.txt"
    assert len(said) == 1
    assert said[0].startswith(f"{moved}/{RUN_DATABASE} is missing;")
    assert said[0].endswith(f"again from {text}")
    whole = (moved / RUN_DATABASE).read_bytes()
    # one that cannot be believed is built again
    (moved / "other.txt").write_text("Zoe Hart. Zoe Hart was born in Leeds.\n", "utf-8")
    for text in ("other.txt", "world/documents.txt"):  # of another text, or of more documents
        read_documents(moved / text).save(moved / RUN_DATABASE)
        found, said = opened(moved)
        found.close()
        assert len(said) == 1
        assert (moved / RUN_DATABASE).read_bytes() == whole
    shutil.rmtree(moved / "world")
    again, said = opened(moved)
    with again:
        assert said == []
        assert len(again.database.documents) == record.data["corpus"].documents
        assert record.left_out
        assert not any(again.count(name).about for name in record.left_out)


def test_a_text_that_has_changed_or_is_gone_is_refused(moved):
    text = moved / "world" / "documents.txt"
    text.write_text(text.read_text("utf-8") + "Zoe Hart. Zoe Hart sang.\n", "utf-8")
    with pytest.raises(UserError, match=r"run\.sqlite is missing.* has changed since"):
        opened(moved)
    text.unlink()
    with pytest.raises(UserError, match=r"run\.sqlite is missing.* is not there any more"):
        opened(moved)
    assert not (moved / RUN_DATABASE).exists()


def test_a_run_is_looked_up_in_what_the_run_that_it_goes_on_from_read(moved, tiny_study):
    fine, record = moved.with_name("fine"), load_run(moved).record
    shutil.copytree(moved, fine, ignore=shutil.ignore_patterns("world"))
    parent = SourceRecord(path=str(moved), relative_path="moved", sha256=record.sha256)
    update_run(fine, data={"questions": record.data["questions"], "parent": parent})
    opened(moved)[0].close()
    shutil.rmtree(moved / "world")
    found, said = opened(fine)
    with found:
        assert (found.database.file, said) == (moved / RUN_DATABASE, [])
    shutil.rmtree(moved)
    with pytest.raises(UserError, match="is not there any more; put the run back"):
        opened(fine)
    # a run of questions alone has nothing to look up
    assert index.open_run_evidence(load_run(tiny_study / "twins" / "scratch")) is None


def test_of_documents_that_disagree_every_value_is_named_with_its_own_line(tmp_path):
    places, names = ["Oslo", "Rome", "Lima", "Bath", "Kyiv"], [f"Ann Lee{i}" for i in range(40)]
    documents = []
    for i, name in enumerate(names):
        stated = f"{name} was born in {places[i % 5]}."
        documents.append(Document(i + 1, name, f"{name}. {stated} Studied in {places[i % 3]}."))
    for i in range(30, 40):  # a second document about some: another place, or the first in passing
        text = f"{names[i]}. A note. {names[i]} was born in {places[(i + 1) % 5]}, it says here."
        text = (
            text if i < 35 else f"{names[i]}. A note. She often went to {places[i % 5]} by train."
        )
        documents.append(Document(i + 11, names[i], text))
    questions = [
        Question(i, f"Where was {name} born?", name, places[i % 5], "Where was {subject} born?")
        for i, name in enumerate(names[:25])
    ]
    database = save_database(Database.of(documents), tmp_path / "run.sqlite", questions)
    with Evidence(database) as evidence:
        said = [places[i % 5] for i in range(30, 40)]
        templates = ["Where was {subject} born?"] * 10
        found = find_support(evidence, names[30:], said, (), templates=templates)
        for i, support in zip(range(30, 40), found, strict=True):
            lines = {value.answer: value.lines for value in support.stated}
            other = {places[(i + 1) % 5]: (i + 11,)} if i < 35 else {}
            assert lines == {places[i % 5]: (i + 1,), **other}
            assert support.states_answer
            assert (support.share < 0.7) == (i < 35)
            shown = {line.line: line.states for line in support.lines if line.states}
            assert shown == {where[0]: value for value, where in lines.items()}
        only = [(i + 11,) for i in range(30, 35)]  # one of the two documents alone
        (first, *_) = picked = find_support(
            evidence, names[30:35], said[:5], (), templates=templates[:5], only_lines=only
        )
        assert not any(support.states_answer for support in picked)
        assert first.others[0].lines == (41,)
