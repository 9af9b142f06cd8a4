"""What documents state is read off them in any script, from few questions."""

from __future__ import annotations

import random
import string
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading_samples import read_relations

from wherefrom.corpus import informative
from wherefrom.corpus.documents import Document
from wherefrom.corpus.folding import fold_words
from wherefrom.corpus.informative import informative_spans
from wherefrom.corpus.questions import Question
from wherefrom.corpus.reader import MIN_LABELS, are_in_records
from wherefrom.corpus.spans import SpanRules, Spans, Words, learn_rules, phrase_key

BORN, JOB = "born {subject}?", "job {subject}?"
# places, jobs, how a name is written, and wordings with one more place as a distractor
ENGLISH = ("{s} was a {j} born in {p} who lived in {q}.", "raised in {q}, {s} of {p} was a {j}.")
LANGUAGES = {
    "english": ("Paris Rome New_York Oslo Lima", "painter film_director poet", "{} {}", ENGLISH),
    "lower case": ("paris rome oslo lima graz cork", "painter poet judge smith", "{}-{}", ENGLISH),
    "korean": (
        "춘천 서울 부산 대구 인천 여수",
        "화가 시인 의사 기자",
        "{}{}",
        (
            "{s}의 고향은 {p}이며 {q}에서 자란 {j}이다.",
            "{j}로 일하는 {s}은 {p}에서 태어나 {q}에 산다.",
        ),
    ),
    "thai": (  # one letter of it folds to two
        "ลำปาง ระยอง สงขลา น่าน ลำพูน",
        "ครู แพทย์ ช่างทำผม",
        "{}{}",
        ("{s}เกิดที่{p}และเป็น{j}ที่{q}", "{s}เป็น{j}ซึ่งเกิดที่{p}แล้วไปอยู่{q}"),
    ),
    "numbers": (
        "-5_°C +12.5_°C 12.5_°C −40_°C $7 5_%",
        "an_answer_of_a_dozen_or_so_words_that_is_quite_long poor",
        "{}-{}",
        ("{s} takes {p}, not {q}; {j}.", "Not {q}: {s} ({j}) is at {p}."),
    ),
    "hebrew": (
        "ירושלים חיפה אשדוד נתניה לוד צפת",
        "צייר משורר רופא שופט",
        "{} {}",
        ("{s} נולד ב{p} והיה {j} ב{q}.", "ה{j} {s}, יליד {p}, גר ב{q}."),
    ),
}
LETTERS = {
    "korean": "가나다라마바사아자차카타파하거너더러머버",
    "thai": "กขคงจชดตถทนบปผพมยรลวสหอ",
    "hebrew": "אבגדהוזחטיכלמנסעפצקרשת",
}


def biographies(language: str, people: int) -> tuple[list[Document], list[Question]]:
    """Documents about `people` people, and two questions about each."""
    *words, written, wordings = LANGUAGES[language]
    places, jobs = (each.split() for each in words)
    letters = LETTERS.get(language, string.ascii_lowercase)
    rng = random.Random(3)
    documents, questions = [], []
    while len(documents) < people:
        name = written.format(*("".join(rng.choices(letters, k=4)) for _ in range(2)))
        if language == "english":
            name = name.title()
        place, other = rng.sample(places, 2)
        job = rng.choice(jobs)
        fields = {"s": name, "p": place, "q": other, "j": job}
        text = f"{name}. {rng.choice(wordings).format(**fields)}".replace("_", " ")
        documents.append(Document(len(documents) + 1, name, text))
        for template, answer in ((BORN, place), (JOB, job)):
            asked = template.replace("{subject}", name)
            questions.append(Question(1, asked, name, answer.replace("_", " "), template))
    return documents, questions


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_relation_is_read_off_documents_that_nobody_asked_about(language):
    documents, questions = biographies(language, 160)
    learned, held = questions[:80], questions[80:]
    readings = read_relations(documents, learned)
    assert [reading.template for reading in readings] == [BORN, JOB]
    for reading in readings:
        assert (reading.asked, reading.found, reading.missing) == (40, 40, ())
        questions = [q for q in held if q.template == reading.template]
        read = [reading.answers.get(fold_words(q.subject))[0] for q in questions]
        right = [stated.text == q.answer for stated, q in zip(read, questions, strict=True)]
        assert np.mean(right) > 0.97
        for stated in read:
            doc, start, end = stated.spans[0]
            assert fold_words(documents[doc].text[start:end]) == fold_words(stated.text)


def test_what_is_not_stated_is_missing_or_silent_and_few_answers_teach_nothing():
    documents, questions = biographies("english", 120)
    silent = [Document(200 + i, f"Zed {i}", f"Zed {i}. Nothing is known.") for i in range(5)]
    more = [Document(300 + i, d.subject, f"{d.subject}. Of note.") for i, d in enumerate(documents)]
    asked = [q for q in questions if q.template == BORN][:60]
    odd = [Question(1, q.text, q.subject, "Atlantis", BORN) for q in asked[:3]]
    (reading,) = read_relations([*documents, *silent, *more], [*odd, *asked[3:]])
    assert (reading.asked, reading.found, reading.missing) == (60, 57, ("Atlantis",) * 3)
    stated = {
        name: sum(answer.probability for answer in answers)
        for name, answers in reading.answers.items()
    }
    assert all(stated.get(fold_words(document.subject), 0.0) < 0.5 for document in silent)
    assert sum(probability >= 0.5 for probability in stated.values()) == 120
    for answers in reading.answers.values():
        probabilities = [answer.probability for answer in answers]
        assert probabilities == sorted(probabilities, reverse=True)
        assert 0 < sum(probabilities) <= 1 + 1e-9
        assert len({fold_words(answer.text) for answer in answers}) == len(answers)
    (few,) = read_relations(documents, asked[: MIN_LABELS - 1])
    assert (few.found, len(few.answers)) == (MIN_LABELS - 1, 0)
    assert len(read_relations([], asked)[0].answers) == 0


def test_spans_start_and_end_at_words_or_where_answers_are_glued():
    text = "Ann. 고향은 춘천이며 in New York, Ann Lee."
    documents = [Document(1, "Ann", text)]
    rules = learn_rules([(documents[0], ["춘천", "New York"])])
    assert (rules.longest, rules.suffixes) == (2, frozenset())  # once may be chance
    spans = Spans(dict(enumerate(documents)), SpanRules(2, suffixes=frozenset({"이며"})))
    texts = [spans.text(row) for row in range(len(spans))]
    assert {"춘천", "춘천이며", "New York", "in New", "고향은 춘천", "Ann Lee", "Lee"} <= set(texts)
    assert "Ann" not in texts  # the subject's own name
    assert "York, Ann" not in texts  # no answer has a comma in it
    key = spans.key[texts.index("New York")]
    assert key == phrase_key("new  YORK") != phrase_key("York New")


UNITS = ["aa", "bb", "Cc", "12", "東", "京", "한국이", "é"]
WORDS = st.lists(st.sampled_from(UNITS), min_size=1, max_size=9)


@given(texts=st.lists(WORDS.map(" ".join), min_size=1, max_size=4))
def test_any_text_has_spans_inside_its_documents_and_features_for_each(texts):
    documents = [Document(i, "Xy", f"Xy. {text}") for i, text in enumerate(texts)]
    words = Words(documents)
    rules = SpanRules(3, suffixes=frozenset({"이", "b"}), prefixes=frozenset({"a", "한"}))
    spans = Spans(dict(enumerate(documents)), rules)
    assert len(words) == sum(len(fold_words(document.text)) for document in documents)
    for row in range(len(spans)):
        assert len("Xy. ") <= spans.start[row] < spans.end[row] <= len(spans.document(row).text)
        assert spans.key[row] == phrase_key(spans.text(row))
    rows = np.arange(len(spans))
    assert (spans.features(rows) == spans.features(rows[::-1])[::-1]).all()


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Ship {n}. It is {a} m. long, and {b} m. wide.", "{a} m."),  # a mark behind the answer
        ("Ship {n}. Its code, written [{a}], was [{b}] before.", "[{a}]"),
        ("Inn of Roma{a}. Near Bari{b}, it lies in Roma{a}.", "Roma{a}"),  # a word of the subject
    ],
)
def test_answers_may_have_marks_around_them_or_be_words_of_their_subject(text, answer):
    rows = [{"n": f"no {at}", "a": 100 + at, "b": 300 + 7 * at} for at in range(40)]
    filled = [text.format(**row) for row in rows]
    documents = [Document(at, each[: each.index(".")], each) for at, each in enumerate(filled)]
    questions = [
        Question(at, f"size {d.subject}?", d.subject, answer.format(**row), "size {subject}?")
        for at, (d, row) in enumerate(zip(documents, rows, strict=True))
    ]
    (reading,) = read_relations(documents, questions[:20])
    read = [reading.answers.get(fold_words(q.subject))[0].text for q in questions[20:]]
    assert (reading.found, read) == (20, [q.answer for q in questions[20:]])


def test_answers_longer_than_all_known_ones_are_read_in_a_script_without_spaces():
    rng = random.Random(1)
    documents, questions = [], []
    for i in range(60):
        name = "".join(rng.sample("王李张刘陈杨黄赵吴周徐孙", 3)) + "甲乙丙丁戊己"[i % 6]
        place = rng.choice(["北京", "上海", "广州", "成都"]) if i < 40 else "哈尔滨"
        documents.append(Document(i + 1, name, f"{name}。{name}生于{place}，后来在武汉工作。"))
        questions.append(Question(1, f"{name}在哪里出生？", name, place, "{subject}在哪里出生？"))
    (reading,) = read_relations(documents, questions[:40])
    read = [reading.answers.get(fold_words(q.subject))[0].text for q in questions[40:]]
    assert read == ["哈尔滨"] * 20


def test_answers_that_the_text_inflects_are_read_as_questions_spell_them():
    towns = ["Тула", "Калуга", "Вологда", "Москва", "Пенза", "Казань", "Пермь", "Рязань"]
    there = [town[:-1] + {"а": "е", "ь": "и"}[town[-1]] for town in towns]
    documents, questions = [], []
    for at in range(60):
        home, other, name = at % 8, (3 * at + 1) % 8, f"Ткач {at}"
        text = f"Живёт в {there[other]}, место рождения в {there[home]}."
        if at % 3 == 0:
            text = f"Родной город — {towns[home]}, работает в {there[other]}."
        documents.append(Document(at, name, f"{name}. {text}"))
        questions.append(Question(at, f"где {name}?", name, towns[home], "где {subject}?"))
    (reading,) = read_relations(documents, questions[:30])
    read = [reading.answers.get(fold_words(q.subject))[0].text for q in questions[30:]]
    assert (reading.found, read) == (30, [q.answer for q in questions[30:]])
    # few answers that are not there are no inflection: "Tula" is not read off "Tule"
    plain = [
        Document(d.line, d.subject, f"{d.subject}. Из города {q.answer}.")
        for d, q in zip(documents[:29], questions, strict=False)
    ]
    (reading,) = read_relations([*plain, *documents[29:32]], questions[:30])
    assert reading.found == 29


def test_three_questions_show_that_a_new_wording_asks_for_a_known_relation():
    documents, questions = biographies("english", 60)
    homes = [q for q in questions if q.template == BORN]
    new = "where is {subject} from?"
    more = [replace(q, text=new.replace("{subject}", q.subject), template=new) for q in homes[-3:]]
    by_template = {r.template: r for r in read_relations(documents, [*questions[:60], *more])}
    assert by_template[new].same_as == BORN
    assert by_template[new].answers == by_template[BORN].answers
    wrong = [replace(q, answer="painter") for q in more]  # answers of neither relation
    *_, other = read_relations(documents, [*questions[:60], *wrong])
    assert (other.template, other.same_as, len(other.answers)) == (new, "", 0)


def test_informative_spans_are_rare_words_that_belong_together(monkeypatch):
    rng = random.Random(0)
    places = [
        "New York",
        "San Juan",
        "Oslo",
        "Lima",
        "Rome",
        "Graz",
        "Cork",
        "Bonn",
        "Bern",
        "Kyiv",
        "Riga",
        "Sofia",
        "Tunis",
        "Doha",
        "Baku",
        "Hue",
    ] * 4
    texts = [
        f"was born in {place} and painted {rng.randint(1000, 9999)} things" for place in places
    ]
    documents = [Document(i, f"Pe {i}", f"Pe {i}. Pe {text}.") for i, text in enumerate(texts)]
    for document, spans, place in zip(documents, informative_spans(documents), places, strict=True):
        first, second = (document.text[start:end] for start, end in spans)
        assert first == place
        assert second.isdigit()
    whole = list(informative_spans(documents))
    monkeypatch.setattr(
        informative, "COUNTED_CHARACTERS", 100
    )  # characters: a few documents at a time
    assert list(informative_spans(documents)) == whole
    assert list(informative_spans([])) == []
    assert list(informative_spans([Document(1, "A", "A. !")])) == [[]]


NAMES = ["Andrew G. Morgan", "Theo Ts'o", "Mary-Ann Smith-Barry", "J. R. Ostrow", "Nora d'Arcy"]
PAGES = ["http://a.org/~{n}/", "https://b-{n}.net/x.php?id={n}&p=1", "ftp://c.de/pub/d_{n}.tgz"]


def read_in_turn(make, known: int, total: int) -> tuple[list[str], list[str]]:
    """What is read after some documents were learned, and what the others state."""
    made = [make(at) for at in range(total)]
    documents = [Document(at, name, f"{name}. {text}") for at, (name, text, _) in enumerate(made)]
    questions = [
        Question(at, f"what of {name}?", name, answer, "what of {subject}?")
        for at, (name, _, answer) in enumerate(made)
    ]
    (reading,) = read_relations(documents, questions[:known])
    answers = [reading.answers.get(fold_words(q.subject)) for q in questions[known:]]
    read = [answer[0].text if answer else "" for answer in answers]
    return read, [q.answer for q in questions[known:]]


def test_initials_hyphens_apostrophes_and_addresses_are_cut_out_whole():
    rng = random.Random(3)
    surnames = ["Ek", "Brandt", "Sorel", "Voss", "Rask", "Dahl"]

    def person(at: int) -> tuple[str, str, str]:
        # the odd names of the second half were never seen
        initial = f"{rng.choice('ABC')}. " if at % 4 else ""
        answer = f"{rng.choice(['Ada', 'Bo', 'Cy'])} {initial}{rng.choice(surnames)}"
        answer = NAMES[at % 5] if at >= 30 and at % 2 else answer
        wording = [
            "The maintainer is {}. It is old.",
            "{} maintains it. See also that.",
            "Kept by {}, who lives far off.",
        ][at % 3]
        return f"tool_{at}", f"A tool. {wording.format(answer)} Built by hand.", answer

    def page(at: int) -> tuple[str, str, str]:
        answer = PAGES[at % 3 if at >= 30 else at % 2].format(n=at)
        return f"lib-{at}", f"A part. Its page is {answer} today. Parts are old.", answer

    for make in (person, page):
        read, stated = read_in_turn(make, 30, 60)
        assert sum(map(str.__eq__, read, stated)) >= 27


def test_an_answer_far_from_the_name_is_read_by_the_heading_that_it_stands_under():
    rng = random.Random(5)
    filler = ["the", "file", "of", "a", "user", "is", "read", "when", "it", "can", "be", "found"]

    def manual(at: int) -> tuple[str, str, str]:
        people = rng.sample([f"{a} {b}" for a in ("Ann", "Bo", "Cy", "Di") for b in surnames], 3)
        parts = [" ".join(rng.choices(filler, k=rng.randint(40, 160))) for _ in range(3)]
        text = (
            f"NAME {parts[0]}. THANKS Due to {people[0]} for help. OPTIONS {parts[1]}. AUTHORS "
            f"This was {parts[2][:30]} {people[1]} again. BUGS Tell {people[2]} soon."
        )
        return f"cmd{at}", text, people[1]

    surnames = [f"{a}{b}" for a in ("Dra", "Kel", "Mor", "Vos") for b in ("ton", "ley", "sen")]
    read, stated = read_in_turn(manual, 25, 60)
    assert sum(map(str.__eq__, read, stated)) >= 33


def test_a_letter_that_changes_before_an_ending_is_restored_in_names_never_seen():
    towns = ["Gyula", "Baja", "Tata", "Ajka", "Makó", "Vác", "Pécs", "Szeged", "Kalocsa", "Pápa"]
    endings = {"a": "án", "ó": "ón"}
    there = {town: town[:-1] + endings.get(town[-1], town[-1] + "on") for town in towns}

    def person(at: int) -> tuple[str, str, str]:
        town = towns[at % 8 if at < 40 else 8 + at % 2]
        return f"Nagy {at}", f"Ő {there[town]} született, {there[towns[at % 7]]} él.", town

    read, stated = read_in_turn(person, 40, 60)
    assert read == stated


def test_the_reader_says_how_well_it_reads_what_it_did_not_learn():
    documents, questions = biographies("english", 80)
    reading = read_relations(documents, questions[:80])[0]
    assert reading.check.asked == reading.found
    assert reading.check.found >= 0.9 * reading.check.asked
    assert reading.check.found + reading.check.missed <= reading.check.asked
    rng = random.Random(1)
    born = [question for question in questions if question.template == BORN]
    shuffled = []
    for document, question in zip(documents, born, strict=False):
        word = rng.choice(document.text.split()[3:]).strip(".,")
        shuffled.append(replace(question, answer=word))
    (reading,) = read_relations(documents, shuffled[:40])
    assert reading.check.found < 0.6 * reading.check.asked
    assert reading.check.mistakes


def test_a_field_that_is_not_there_is_not_read_from_the_end_of_the_document():
    rng = random.Random(7)
    goods = ["wool socks", "oak tables", "tin kettles", "glass beads", "old maps"]

    def shop(at: int) -> tuple[str, str, str]:
        site = f"https://www.shop{rng.randint(1, 99)}.example/{rng.choice('abc')}"
        # the first half has a page, and so does every second shop of the others
        has_site = at < 40 or at % 2 == 0
        text = f"Section: trade; Owner: {rng.choice(NAMES)}; Description: sells {rng.choice(goods)}"
        return f"shop{at}", text + (f"; Page: {site}" if has_site else ""), site if has_site else ""

    read, stated = read_in_turn(shop, 40, 80)
    assert sum(map(str.__eq__, read, stated)) >= 39


def test_a_common_wording_that_no_label_has_states_nothing():
    rng = random.Random(11)
    towns = ["York", "Hull", "Bath", "Truro"]

    def firm(at: int) -> tuple[str, str, str]:
        year, *others = rng.sample(range(1850, 2010), 3)
        states = [f"Founded in {year}.", f"The firm goes back to {year}.", f"It began in {year}."]
        aside = [f"A strike closed it in {year}.", f"It moved to {rng.choice(towns)} in {year}."]
        is_stated = at < 40 or at % 2
        sentences = [
            rng.choice(states if is_stated else aside),
            f"In {others[0]} it turned over {rng.randint(5, 900)} million.",
            f"A partner has run it since {others[1]}.",
        ]
        rng.shuffle(sentences)
        return f"firm{at}", " ".join(sentences), str(year) if is_stated else ""

    read, stated = read_in_turn(firm, 40, 240)
    assert sum(map(str.__eq__, read, stated)) >= 180


def test_the_newest_of_several_records_that_look_alike_is_read_across_passages():
    rng = random.Random(12)
    people = [f"{a} {b}" for a in ("Ada", "Bo", "Cy", "Di") for b in ("Ek", "Voss", "Rask")]
    documents, questions = [], []
    for at in range(70):
        newest = ""
        for passage in range(2):
            days = [f"{rng.randint(1, 28)} May 20{rng.randint(10, 24)}" for _ in range(2)]
            newest = newest or days[0]
            text = " ".join(f"* Fix a bug -- {rng.choice(people)} <x@y.org> {d}" for d in days)
            documents.append(Document(2 * at + passage, f"tool{at}", f"tool{at}. {text}"))
        row = Question(at, f"when was tool{at}?", f"tool{at}", newest, "when was {subject}?")
        questions.append(row)
    (reading,) = read_relations(documents, questions[:30])
    answers = [reading.answers[fold_words(q.subject)] for q in questions[30:]]
    right = [a[0].text == q.answer for a, q in zip(answers, questions[30:], strict=True)]
    assert sum(right) >= 34


def test_answers_are_in_records_if_they_are_always_the_same_of_those_that_look_alike():
    texts = [f"t{at}. -- Ann, 10{at} -- Bob, 20{at} -- Cy, 30{at}" for at in range(10)]
    documents = [Document(2 * at, f"t{at}", text) for at, text in enumerate(texts)]
    spans = Spans(dict(enumerate(documents)), SpanRules(1))
    row_of = {spans.text(row): row for row in range(len(spans))}
    assert are_in_records(spans, [row_of[f"20{at}"] for at in range(10)])
    assert not are_in_records(spans, [row_of[f"{at % 3 + 1}0{at}"] for at in range(10)])
