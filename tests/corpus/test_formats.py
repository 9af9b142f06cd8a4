"""Texts of other forms become lines of subject and text, or are refused in a sentence."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from wherefrom.corpus import formats
from wherefrom.corpus.checks import check_files, describe_facts, describe_readings
from wherefrom.corpus.database import AskedRelation, Database, Fact, ReadingCheck, read_documents
from wherefrom.corpus.documents import Document, as_table, hash_table
from wherefrom.corpus.formats import PASSAGE_CHARACTERS, cut_passages
from wherefrom.corpus.questions import read_questions
from wherefrom.errors import UserError

ANN, BO = ("Ann Lee", "Ann was born in Oslo."), ("St. Bo", 'He said "hm",\nand left.')
ROWS = [{"title": subject, "text": text} for subject, text in (ANN, BO)]
CSV = (
    'year,name,body\n1901,Ann Lee,Ann was born in Oslo.\n1902,St. Bo,"He said ""hm""@ and left."\n'
)


def convert(path, **given):
    """The documents as a list, and how they were understood."""
    converted = formats.convert(path, **given)
    return converted and (list(converted[0].documents), converted[1])


def as_jsonl(rows) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def written(folder, name: str, content: str | bytes):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def rows_of(documents) -> list[list[str]]:
    return [[document.subject, document.body] for document in documents]


FORMS = {
    "a.jsonl": as_jsonl(ROWS),
    "nested.jsonl": as_jsonl(
        {"id": {}, "meta": {"title": a}, "page": {"en": {"body": b}}} for a, b in (ANN, BO)
    ),
    "a.json": json.dumps(ROWS, indent=1),
    "a.csv": CSV.replace("@", ","),
    "semicolons.csv": CSV.replace(",", ";").replace("@", ","),
    "utf16.csv": CSV.replace("@", ",").replace("\n", "\r").encode("utf-16"),
    "a.tsv": "year\tname\ttext\n"
    + "".join(f"1\t{subject}\t{' '.join(text.split())}\n" for subject, text in (ANN, BO)),
    "folder": {
        "Ann_Lee.txt": "Ann was born\n\nin Oslo.",
        "more/b.md": '# St. Bo\n\nHe said "hm",\nand left.',
        "picture.png": b"\x89PNG",
        "empty.txt": "",
    },
}


@pytest.mark.parametrize("name", FORMS)
def test_subject_and_text_are_found_in_any_form_and_read_back(tmp_path, name):
    content = FORMS[name]
    for part, of_part in content.items() if isinstance(content, dict) else [("", content)]:
        written(tmp_path, f"{name}/{part}" if part else name, of_part)
    documents, how = convert(tmp_path / name)
    assert rows_of(documents) == [[subject, " ".join(body.split())] for subject, body in (ANN, BO)]
    assert "was read as" in how
    again = read_documents(written(tmp_path, "documents.tsv", b"".join(as_table(documents))))
    assert list(again.documents) == documents
    assert again.source_sha256 == hash_table(documents)
    assert documents[1].text == 'St. Bo. He said "hm", and left.'


def test_fields_can_be_named(tmp_path):
    path = written(tmp_path, "a.jsonl", as_jsonl({"who": a, "said": b} for a, b in (ANN, BO)))
    assert rows_of(convert(path, subject_field="who", text_field="said")[0])[0][0] == "Ann Lee"
    with pytest.raises(UserError, match=r'no field "whom".*Did you mean "who"'):
        convert(path, subject_field="whom", text_field="said")


WELLS = [
    {
        "well": f"Kut {at}",
        "depth_m": 7 * at,
        "owner": f"A. B. Nagy-{at}",
        "uses": ["cattle", "wash"],
    }
    for at in range(3)
]


def test_a_table_without_a_text_is_read_field_by_field(tmp_path):
    asked = [row["well"] for row in WELLS]
    lines = ["\t".join(WELLS[0]), *("\t".join(map(str, row.values())) for row in WELLS)]
    for name, content in (
        ("a.jsonl", as_jsonl(WELLS)),
        ("a.csv", "".join(line.replace("\t", ",", 2).replace("\t", ";") + "\n" for line in lines)),
    ):
        documents, how = convert(written(tmp_path, name, content), asked=asked)
        assert documents[0].text.startswith("Kut 0. depth_m: 0; owner")
        assert '"depth_m"' in how
        assert "`field: value`" in how
    assert documents[0].subject == "Kut 0"
    path = written(tmp_path, "b.jsonl", as_jsonl(WELLS))
    documents, _ = convert(path, text_field=("uses", "owner"), asked=asked)
    later = written(tmp_path, "c.jsonl", as_jsonl([WELLS[0], {**WELLS[1], "dug": 1901}]))
    assert convert(later, asked=asked)[0][1].body.endswith("; dug: 1901")
    assert documents[2].body == "uses: cattle, wash; owner: A. B. Nagy-2"


def test_a_description_is_not_the_text_where_the_answers_stand_in_other_fields(tmp_path):
    about = "A small tool for many tasks."
    rows = [{"name": f"Pkg {at}", "description": about, "owner": f"Ann {at}"} for at in range(9)]
    path = written(tmp_path, "a.jsonl", as_jsonl(rows))
    asked = [row["name"] for row in rows]
    documents, _ = convert(path, asked=asked, answers=[row["owner"] for row in rows])
    assert documents[0].body == "description: A small tool for many tasks.; owner: Ann 0"
    documents, _ = convert(path, asked=asked, answers=["small tool"] * 9)
    assert documents[0].body == "A small tool for many tasks."


BIRDS = [
    {
        "fonte": f"ficha {at}",
        "especie": f"tucano-{at}",
        "titulo": "Ave",
        "descricao": f"O tucano-{at} vive sobretudo na mata atlântica e come frutas.",
    }
    for at in range(9)
]
TOWNS = [
    {"ክልል": "አማራ", "ከተማ": f"{a}{b}", "መግለጫ": "ከፍታዋ 830 ሜትር ነው። " * 3}
    for a in ("ጎንደ", "ላሊ", "ጅማ")
    for b in ("ምንጭ", "በላ", "ዓለም")
]  # questions glue a letter to the names
ASKED = [f"የ{row['ከተማ']} ከፍታ ስንት ነው?" for row in TOWNS]


@pytest.mark.parametrize(
    ("rows", "fields", "questions", "asked"),
    [
        (BIRDS, ("especie", "descricao"), [], ["Tucano-3", "tucano-5"]),
        (TOWNS, ("ከተማ", "መግለጫ"), ASKED, [question.split()[0] for question in ASKED]),
    ],
)
def test_fields_of_any_language_are_told_by_what_they_hold(
    tmp_path, rows, fields, questions, asked
):
    path = written(tmp_path, "text.jsonl", as_jsonl(rows))
    documents, how = convert(path, questions=questions, asked=asked)
    expected = [[row[fields[0]], row[fields[1]].strip()] for row in rows]
    assert rows_of(documents) == expected
    assert all(f'"{field}"' in how for field in fields)


def test_lines_and_paragraphs_without_a_subject_are_about_whom_they_name(tmp_path):
    text = (
        "Nobody knows why Ann Lee left Oslo\nin May.\n\n"
        "It was in Rome that St Bo\nsang with Ann Lee.\n\nA quiet year."
    )
    path = written(tmp_path, "text.txt", text)
    documents, how = convert(
        path, questions=["Where was Ann Lee born?"], asked=["Ann Lee", "St Bo"]
    )
    assert [row[0] for row in rows_of(documents)] == ["Ann Lee", "St Bo", ""]
    assert "3 paragraphs" in how
    with pytest.raises(UserError, match="belong together"):
        convert(path, questions=["Where was Cy born?"], asked=["Cy"])


def test_paragraphs_with_a_heading_are_about_it_even_if_they_name_others_who_are_asked_for(
    tmp_path,
):
    parts = [f"lib{i}\nSection: x\nNeeds: lib{i + 1}, lib{i + 2}" for i in range(20)]
    path = written(tmp_path, "text.txt", "\n\n".join(parts))
    documents, how = convert(path, questions=["Hol?"], asked=[f"lib{i}" for i in range(0, 20, 2)])
    assert [document.subject for document in documents] == [f"lib{i}" for i in range(20)]
    assert "each about what its first line names" in how


def test_who_is_asked_for_may_have_an_ending_and_others_are_read_off_where_they_stand(tmp_path):
    names = [f"Név{a} Kis{b}" for a in "abcdef" for b in "üöéáí"]
    endings = ["", "", "", "nak", "t", ""]
    text = "".join(f"Él {name}{endings[i % 6]} ott.\n" for i, name in enumerate(names))
    path = written(tmp_path, "text.txt", text)
    documents, how = convert(path, questions=["Hol?"], asked=names[:24])
    assert [document.subject for document in documents][:24] == names[:24]
    assert "about a name in the same place (Néve Kisí, Névf Kisü" in how
    assert sum(d.subject == name for d, name in zip(documents, names, strict=True)) >= 28


def test_a_text_in_form_is_left_as_it_is_and_a_first_sentence_is_no_subject(tmp_path):
    text = "Ann Lee. Ann was born in Oslo.\nBo Ek. He was born in Lund.\n"
    given = {"questions": ["Where was Bo Ek born?"], "asked": ["Bo Ek", "Ann Lee"]}
    assert convert(written(tmp_path, "text.txt", text), **given) is None
    text = "On Monday it rained. Ann Lee was born in Oslo.\nThen came May. Bo Ek sang.\n"
    documents, _ = convert(written(tmp_path, "text.txt", text), **given)
    assert [row[0] for row in rows_of(documents)] == ["Ann Lee", "Bo Ek"]
    names = [f"{first} {last}ski" for first in ("Jan", "Adam", "Ewa") for last in ("Nowic", "Gór")]
    path = written(tmp_path, "text.txt", "".join(f"{n}. Urodzony w Łodzi.\n" for n in names))
    inflected = [f"Gdzie dom {name.replace(' ', 'a ')}ego?" for name in names]
    assert convert(path, questions=inflected, asked=[]) is None


def test_long_documents_are_read_in_passages_that_keep_the_subject(tmp_path):
    long = " ".join(f"Sentence number {i} ends here." for i in range(200))
    parts = cut_passages(long)
    assert " ".join(parts) == long
    assert all(len(part) <= PASSAGE_CHARACTERS and part.endswith(".") for part in parts)
    assert cut_passages("東京。" * 900)[0].endswith("。")
    assert max(map(len, cut_passages("x" * 5000))) == PASSAGE_CHARACTERS
    path = written(tmp_path, "text.jsonl", as_jsonl([{"title": "Ann", "text": long}]))
    documents, how = convert(path)
    assert {document.subject for document in documents} == {"Ann"}
    assert f"{len(parts)} passages" in how


ROW = '{"title": "A", "text": "x"}'


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.jsonl", f"{ROW}\n[1]\n", "line 2: each document of a JSON corpus is an object"),
        ("a.jsonl", f"{ROW}\nx\n", "line 2: this is not JSON"),
        ("a.json", f"[{ROW}, 1]", "item 2: each document"),
        ("a.csv", "name\nA\n", "one field only"),
        ("a.csv", "name,size,hue\nA,,\n", "row 2: the fields size, hue hold no text"),
        ("a.jsonl", '{"title": "A", "text": " "}\n', 'line 1: the field "text" holds no text'),
        ("a.csv", "name,text\n", "a header and no rows"),
        ("a.csv", "name,text\nA,\n", 'row 2: the field "text" holds no text'),
        ("a.jsonl", ROW.replace("x", "x" * 5_000_000), "1,000,000 characters"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(tmp_path, name, content, says):
    with pytest.raises(UserError) as caught:
        convert(written(tmp_path, name, content))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


# --- what a study says of its files before it trains ------------------------------------------


def study_files(folder, train: list[str], dev: list[str], text: str = ""):
    text = text or "".join(f"{name} Lee. {name} is from Oslo.\n" for name in ("Ann", "Bo", "Cy"))
    corpus = read_documents(written(folder, "text.txt", text))
    rows = {"train.tsv": train, "dev.tsv": dev}
    paths = [written(folder, name, "\n".join(rows[name])) for name in rows]
    return corpus, *(read_questions(path, ["Where was {subject} born?"]) for path in paths)


def ask(name: str, place: str = "Oslo") -> str:
    return f"Where was {name} born?\t{place}"


@pytest.mark.parametrize(
    ("train", "dev", "says"),
    [
        (
            [ask("Ann Lee")],
            [ask("Bo Lee"), ask("Ann  lee")],
            "dev.tsv, line 2: .* is a training question too .*train.tsv, line 1",
        ),
        (
            [ask(f"{name} Lee", place) for name in ("Ann", "Cy") for place in ("Oslo", "Rome")],
            [ask("Bo Lee")],
            'the answers "Oslo" and "Rome"',
        ),
        ([ask("Zed")], [ask("Bo Lee")], "names any subject of .*train.tsv"),
    ],
)
def test_files_that_make_numbers_meaningless_are_refused(tmp_path, train, dev, says):
    with pytest.raises(UserError, match=says) as caught:
        check_files(*study_files(tmp_path, train, dev))
    assert "\n" not in str(caught.value)


def test_smaller_oddities_are_noted(tmp_path):
    text = "Ann Lee. Ann is from Oslo.\n" * 3 + "Bo Lee. Bo is from Oslo.\n"
    train = [ask("Ann Lee"), ask("Ann Lee", "Rome"), ask("Zed"), ask("Bo Lee", "Rome")]
    corpus, learned, dev = study_files(tmp_path, train, [ask("Bo Lee", "Lund")], text)
    other = replace(dev, questions=(replace(dev.questions[0], template="Who is {subject}?"),))
    notes = check_files(corpus, learned, other)
    for words in (
        "several answers",
        "Zed",
        "repeat",
        "worded like no training",
        "another answer",
        "1 of 1 answers",
    ):
        assert any(words in note for note in notes)
    assert not any("worded like" in note for note in check_files(corpus, learned, dev))


def test_answers_that_the_text_never_states_are_refused_and_few_are_said():
    database = Database.of([Document(1, "Ann", "Ann. Oslo, Rome, Bern or Ulm.")])
    missing = ("x", "y", "z", "w", "x", "x")
    database.add_relation(1, AskedRelation("Who is {subject}?", 20, 14, missing))
    database.add_relation(2, AskedRelation("Is {subject}?", 4, 4, ()))
    database.add_facts(Fact(1, 1, a, 0.2, 0, 5, 9) for a in ("Oslo", "Rome", "Bern", "Ulm"))
    few, unclear, missing = describe_facts(database, "train.tsv")
    assert 'fewer than 5 training questions are worded like "Is {subject}?"' in few
    assert "For 1 subject the" in unclear
    assert "Oslo or Rome or Bern" in unclear
    row = describe_readings(database).splitlines()[-2]
    assert row.split()[-6:] == ["20", "70%", "-", "-", "-", "1"]
    assert "6 of 20" in missing
    assert "x, y, z, ..." in missing
    silent = Database()
    silent.add_relation(1, AskedRelation("Is {subject}?", 2, 0, ("yes", "no")))
    with pytest.raises(UserError, match=r"none of the 2 training answers .*yes, no"):
        describe_facts(silent, "train.tsv")


def test_how_well_each_relation_is_read_is_said_before_training():
    database = Database.of([Document(1, "Ann", "Ann. Oslo.")])
    good = ReadingCheck(40, 39, 1, 40, 0, (("Oslo", ""),))
    poor = ReadingCheck(20, 9, 4, 22, 11, (("Ann Lee", "Lee"), ("Bo", "")))
    database.add_relation(1, AskedRelation("Where is {subject}?", 40, 40, (), check=good))
    database.add_relation(2, AskedRelation("Who made {subject}?", 20, 20, (), check=poor))
    database.add_facts(Fact(relation, 1, "Oslo", 0.9, 0, 5, 9) for relation in (1, 2))
    *_, sentence = describe_facts(database, "train.tsv")
    *_, first, second = describe_readings(database).splitlines()
    assert first.split()[-6:] == ["40", "100%", "98%", "2%", "0%", "1"]
    assert second.split()[-6:] == ["20", "100%", "45%", "20%", "50%", "1"]
    assert '"Lee" for "Ann Lee", "nothing" for "Bo"' in sentence


def test_documents_that_disagree_are_said_with_the_line_of_each_value():
    documents = [Document(3, "Ann", "Ann. From Oslo."), Document(9, "Ann", "Ann. From Rome.")]
    database = Database.of(documents)
    database.add_relation(1, AskedRelation("Where is {subject}?", 9, 9, ()))
    database.add_facts([Fact(1, 1, "Rome", 0.5, 1, 10, 14), Fact(1, 1, "Oslo", 0.45, 0, 10, 14)])
    (note,) = describe_facts(database, "train.tsv")
    assert "1 subject has documents that disagree" in note
    assert "Ann: Oslo in line 3 and Rome in line 9" in note
