"""Texts of other forms become lines of subject and text, or are refused in a sentence."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from wherefrom.corpus.documents import as_table, hash_table, read_documents
from wherefrom.corpus.facts import RelationReading, StatedAnswer
from wherefrom.corpus.formats import PASSAGE, check_files, convert, cut_passages, describe_readings
from wherefrom.corpus.questions import read_questions
from wherefrom.errors import UserError

ANN, BO = ("Ann Lee", "Ann was born in Oslo."), ("St. Bo", 'He said "hm",\nand left.')


def rows_of(documents) -> list[list[str]]:
    return [[document.subject, document.body] for document in documents]


def as_jsonl(folder, **names):
    path = folder / "text.jsonl"
    keys = [names.get("subject", "title"), names.get("text", "text")]
    path.write_text(
        "".join(json.dumps(dict(zip(keys, row, strict=True))) + "\n" for row in (ANN, BO))
    )
    return path


def as_csv(folder):
    path = folder / "text.csv"
    path.write_text(
        "year,name,body\n1901,Ann Lee,Ann was born in Oslo.\n"
        '1902,St. Bo,"He said ""hm"", and left."\n'
    )
    return path


def as_tsv(folder):
    path = folder / "text.tsv"
    rows = [f"1\t{subject}\t{' '.join(text.split())}\n" for subject, text in (ANN, BO)]
    path.write_text("year\tname\ttext\n" + "".join(rows))
    return path


def as_array(folder):
    path = folder / "text.json"
    path.write_text(json.dumps([{"title": a, "text": b} for a, b in (ANN, BO)], indent=1))
    return path


def as_nested(folder):
    path = folder / "text.jsonl"
    rows = [{"id": {}, "meta": {"title": a}, "page": {"en": {"body": b}}} for a, b in (ANN, BO)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def as_utf16(folder):
    path = as_csv(folder)
    path.write_bytes(path.read_text().replace("\n", "\r").encode("utf-16"))
    return path


def as_folder(folder):
    (folder / "docs" / "more").mkdir(parents=True)
    (folder / "docs" / "Ann_Lee.txt").write_text("Ann was born\n\nin Oslo.")
    (folder / "docs" / "more" / "b.md").write_text('# St. Bo\n\nHe said "hm",\nand left.')
    (folder / "docs" / "picture.png").write_bytes(b"\x89PNG")
    return folder / "docs"


def as_semicolons(folder):
    path = as_csv(folder)
    path.write_text(
        path.read_text().replace('"hm"", and', '"hm""@ and').replace(",", ";").replace("@", ",")
    )
    return path


FORMS = [as_jsonl, as_nested, as_array, as_csv, as_tsv, as_semicolons, as_utf16, as_folder]


@pytest.mark.parametrize("make", FORMS)
def test_subject_and_text_are_found_in_any_form_and_read_back(tmp_path, make):
    documents, how = convert(make(tmp_path))
    expected = [[subject, " ".join(body.split())] for subject, body in (ANN, BO)]
    assert rows_of(documents) == expected
    assert "was read as" in how
    (tmp_path / "documents.tsv").write_bytes(b"".join(as_table(documents)))
    again = read_documents(tmp_path / "documents.tsv")
    assert (again.documents, again.sha256) == (documents, hash_table(documents))
    assert documents[1].text == 'St. Bo. He said "hm", and left.'


def test_fields_can_be_named(tmp_path):
    path = as_jsonl(tmp_path, subject="who", text="said")
    with pytest.raises(UserError, match="--text-field"):
        convert(path)
    assert rows_of(convert(path, subject_field="who", text_field="said")[0])[0][0] == "Ann Lee"
    with pytest.raises(UserError, match=r'no field "whom".*Did you mean "who"'):
        convert(path, subject_field="whom", text_field="said")


def test_fields_of_any_language_are_told_by_what_they_hold(tmp_path):
    path = tmp_path / "text.jsonl"
    rows = [
        {"fonte": f"ficha {at}", "especie": f"tucano-{at}", "titulo": "Ave",
         "descricao": f"O tucano-{at} vive sobretudo na mata atlântica e come frutas."}
        for at in range(9)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made, how = convert(path, asked=["Tucano-3", "tucano-5"])
    assert rows_of(made)[3] == ["tucano-3", rows[3]["descricao"]]
    assert '"especie"' in how
    assert '"descricao"' in how


def test_a_field_is_the_subject_though_questions_glue_something_to_it(tmp_path):
    names = [f"{a}{b}" for a in ("ጎንደ", "ላሊ", "ጅማ") for b in ("ምንጭ", "በላ", "ዓለም")]
    rows = [{"ክልል": "አማራ", "ከተማ": name, "መግለጫ": f"ከፍታዋ {100 + at} ሜትር ነው። " * 3}
            for at, name in enumerate(names)]  # fmt: skip
    path = tmp_path / "towns.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = [f"የ{name} ከፍታ ስንት ነው?" for name in names]
    documents, note = convert(path, questions=asked, asked=[each.split()[0] for each in asked])
    assert [document.subject for document in documents] == names
    assert '"ከተማ"' in note


def test_lines_and_paragraphs_without_a_subject_are_about_whom_they_name(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(
        "Nobody knows why Ann Lee left Oslo\nin May.\n\n"
        "It was in Rome that St Bo\nsang with Ann Lee.\n\nA quiet year."
    )
    text, how = convert(path, questions=["Where was Ann Lee born?"], asked=["Ann Lee", "St Bo"])
    assert [row[0] for row in rows_of(text)] == ["Ann Lee", "St Bo", ""]
    assert "3 paragraphs" in how
    with pytest.raises(UserError, match="belong together"):
        convert(path, questions=["Where was Cy born?"], asked=["Cy"])


def test_who_is_asked_for_may_have_an_ending_and_others_are_read_off_where_they_stand(tmp_path):
    path, names = tmp_path / "text.txt", [f"Név{a} Kis{b}" for a in "abcdef" for b in "üöéáí"]
    endings = ["", "", "", "nak", "t", ""]
    path.write_text("".join(f"Él {name}{endings[i % 6]} ott.\n" for i, name in enumerate(names)))
    text, how = convert(path, questions=["Hol?"], asked=names[:24])
    assert [row[0] for row in rows_of(text)][:24] == names[:24]
    assert "about what stands where others do (Néve Kisí, Névf Kisü" in how
    assert sum(row[0] == name for row, name in zip(rows_of(text), names, strict=True)) >= 28


def test_lines_are_in_form_though_questions_inflect_their_names(tmp_path):
    names = [f"{first} {last}ski" for first in ("Jan", "Adam", "Ewa") for last in ("Nowic", "Gór")]
    path = tmp_path / "people.txt"
    path.write_text("".join(f"{name}. Urodzony w Łodzi.\n" for name in names))
    asked = [f"Gdzie dom {name.replace(' ', 'a ')}ego?" for name in names]
    assert convert(path, questions=asked, asked=[]) is None


def test_a_text_in_form_is_left_as_it_is_and_a_first_sentence_is_no_subject(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("Ann Lee. Ann was born in Oslo.\nBo Ek. He was born in Lund.\n")
    assert convert(path, questions=["Where was Bo Ek born?"], asked=["Bo Ek"]) is None
    path.write_text("On Monday it rained. Ann Lee was born in Oslo.\nThen came May. Bo Ek sang.\n")
    text, _ = convert(path, questions=["Where was Bo Ek born?"], asked=["Bo Ek", "Ann Lee"])
    assert [row[0] for row in rows_of(text)] == ["Ann Lee", "Bo Ek"]


def test_long_documents_are_read_in_passages_that_keep_the_subject(tmp_path):
    long = " ".join(f"Sentence number {i} ends here." for i in range(200))
    parts = cut_passages(long)
    assert " ".join(parts) == long
    assert all(len(part) <= PASSAGE and part.endswith(".") for part in parts)
    assert cut_passages("東京。" * 900)[0].endswith("。")
    assert max(map(len, cut_passages("x" * 5000))) == PASSAGE
    (tmp_path / "text.jsonl").write_text(json.dumps({"title": "Ann", "text": long}) + "\n")
    text, how = convert(tmp_path / "text.jsonl")
    assert {row[0] for row in rows_of(text)} == {"Ann"}
    assert f"{len(parts)} passages" in how


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        (
            "a.jsonl",
            '{"title": "A", "text": "x"}\n[1]\n',
            "line 2: each document of a JSON corpus is an object",
        ),
        ("a.jsonl", '{"title": "A", "text": "x"}\nx\n', "line 2: this is not JSON"),
        ("a.json", '[{"title": "A", "text": "x"}, 1]', "item 2: each document"),
        ("a.tsv", "Titel\tInhalt\n" + "A B\tx y z\n" * 3, "has the fields Titel, Inhalt"),
        ("a.jsonl", '{"title": "A", "text": " "}\n', 'line 1: the field "text" holds no text'),
        ("a.csv", "name,text\n", "a header and no rows"),
        ("a.csv", "name,text\nA,\n", 'row 2: the field "text" holds no text'),
        ("a.jsonl", json.dumps({"title": "A", "text": "x" * 5_000_000}), "1,000,000 characters"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(tmp_path, name, content, says):
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError) as caught:
        convert(tmp_path / name)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


# --- what a study says of its files before it trains ------------------------------------------


def study_files(folder, train: list[str], dev: list[str], text: str = ""):
    names = ["Ann", "Bo", "Cy", "Di"]
    (folder / "text.txt").write_text(
        text or "".join(f"{n} Lee. {n} is from Oslo.\n" for n in names)
    )
    (folder / "train.tsv").write_text("".join(f"{row}\n" for row in train))
    (folder / "dev.tsv").write_text("".join(f"{row}\n" for row in dev))
    template = ["Where was {subject} born?"]
    files = (read_questions(folder / f, template) for f in ("train.tsv", "dev.tsv"))
    return read_documents(folder / "text.txt"), *files


def ask(name: str, place: str = "Oslo") -> str:
    return f"Where was {name} born?\t{place}"


@pytest.mark.parametrize(
    ("train", "dev", "says"),
    [
        ([ask("Ann Lee")], [ask("Bo Lee"), ask("Ann  lee")],
         "dev.tsv, line 2: .* is a training question too .*train.tsv, line 1"),
        ([ask(f"{name} Lee", place) for name in ("Ann", "Cy") for place in ("Oslo", "Rome")],
         [ask("Bo Lee")], 'the answers "Oslo" and "Rome"'),
        ([ask("Zed")], [ask("Bo Lee")], "names any subject of .*train.tsv"),
    ],
)  # fmt: skip
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
    for word in ("several answers", "Zed", "repeat", "worded like no training", "another answer",
                 "1 of 1 answers"):  # fmt: skip
        assert any(word in note for note in notes)
    assert not any("worded like" in note for note in check_files(corpus, learned, dev))


def test_answers_that_the_text_never_states_are_refused_and_few_are_said():
    unclear = {("ann",): tuple(StatedAnswer(a, 0.2, ()) for a in ("Oslo", "Rome", "Bern", "Ulm"))}
    readings = [
        RelationReading("Who is {subject}?", 20, 8, ("x", "y", "z", "w", "x", "x"), unclear),
        RelationReading("Is {subject}?", 4, 4, (), {}),
    ]
    few, note = describe_readings(readings, "train.tsv")
    assert 'fewer than 5 training questions are worded like "Is {subject}?"' in few
    for part in (
        "40%",
        "x, y, z, ...",
        "of 1 it is not clear which (such as Oslo or Rome or Bern)",
    ):
        assert part in note
    with pytest.raises(UserError, match=r"none of the 2 training answers .*yes, no"):
        describe_readings([RelationReading("Is {subject}?", 2, 0, ("yes", "no"), {})], "train.tsv")
