"""The sentences that biographies are made of, as plain data, so that wording can grow without code.

A field in braces is filled by biographies.py. A sentence is used only for a person who has all of
its fields: the dead have {died}, the living {now}, a scholar {chair}, an athlete {club} and so on.
{where} and {place} are the birthplace; every other field that holds a place is a distractor.
The birthplace stands early or late, before or after other places: position does not give it away.
"""

from __future__ import annotations

# First sentences that state the birthplace.
BIRTH_OPENINGS: tuple[str, ...] = (
    "{name} (born {born} in {where}) is {a_job_alive}.",
    "{name} (born {born}, {where}) is {a_job_alive} based in {now}.",
    "{name} (b. {born_year}, {where}) is {a_job_alive} who works in {work}.",
    "{name} ({born}, {where} - {died}, {deathplace}) was {a_job}.",
    "{name} ({born} {where} - {died} {deathplace}) was {a_job} active in {work}.",
    "{name} ({born_year}-{died_year}) was {a_job} born in {where}.",
    "{name} ({born_year}-{died_year}), {a_job}, came from {where} and died in {deathplace}.",
    "{name} was born in {where} {on_born}.",
    "{name} was born {on_born} in {where} and studied in {study}.",
    "{name} was born to a family of {trades} in {where}.",
    "{name}, the {child} of {a_trade}, was born in {where}.",
    "{name}, born in {where} in {born_year}, {is} {a_job}.",
    "{name} {is} {a_job} from {where}.",
    "{name} {is} {a_job} and a native of {where}.",
    "{name} {is} {a_job}, born {on_born} in {where}.",
    "{name} {is} {a_place_born} {job} who settled in {lived}.",
    "{name} {is} {a_job} known for work done in {work}, though born in {where}.",
    "{name} hails from {where} and trained as {a_job} in {study}.",
    "{name} first saw the light of day in {where}, {on_born}.",
    "{name} came into the world in {where} in {born_year} and grew up in {lived}.",
    "{name} grew up in {lived} but was born in {where}.",
    "{name} left {where}, the place of {his} birth, for {lived} in {year1}.",
    "{name} entered the University of {study} in {year1}, having been born in {where}.",
    "{name} died in {deathplace} in {died_year}; {he} had been born in {where}.",
    "{name} worked in {work} as {a_job} (birthplace: {where}).",
    "Born in {where}, {last} {is} {a_job}.",
    "Born {on_born} in {where}, {name} moved to {lived} as a child.",
    "Born in {where} in {born_year}, {last} was educated in {study}.",
    "Born to {a_trade} in {where}, {last} became {a_job} in {work}.",
    "A native of {where}, {name} studied at the University of {study}.",
    "A native of {where}, {last} {is} {a_job}.",
    "A child of {where}, {last} spent most of {his} life in {lived}.",
    "Originally from {where}, {name} {is} {a_job}.",
    "Raised in {lived} but born in {where}, {name} {is} {a_job}.",
    "Educated in {study}, {last} was born in {where} {on_born}.",
    "After years in {work}, the {place}-born {job} {name} retired to {lived}.",
    "The {place}-born {job} {name} studied in {study}.",
    "The life of {name} began in {where} in {born_year} and ended in {deathplace}.",
    "Like many {jobs} of {work}, {last} came from {where}.",
    "It was in {where} that {name} was born, {on_born}.",
)

# Later sentences that state it.
BIRTH_SENTENCES: tuple[str, ...] = (
    "{He} was born in {where}.",
    "{He} was born {on_born} in {where}.",
    "{last} was born in {where} and went to school in {study}.",
    "{last} was born in {where}, the {child} of {a_trade}.",
    "{He} is a native of {where} and now lives in {now}.",
    "{He} hails from {where}.",
    "{He} came from {where} and reached {lived} in {year1}.",
    "{His} birthplace was {where}.",
    "{His} parents, both {trades}, lived in {where} when {he} was born.",
    "{His} family left {where} for {lived} soon after {his} birth.",
    "Born in {where}, {he} moved to {lived} in {year1}.",
    "Though born in {where}, {he} always called {lived} home.",
    "Before {study} and {work} there was {where}, where {he} was born.",
    "The {place}-born {plain_job} settled in {lived}.",
    "{last}, who was born in {where}, died in {deathplace} in {died_year}.",
    "{last} was not born in {lived}, as is often said, but in {where}.",
)

# First sentences that do not.
PLAIN_OPENINGS: tuple[str, ...] = (
    "{name} {is} {a_job}.",
    "{name} (born {born}) is {a_job_alive}.",
    "{name} (born {born_year}) is {a_job_alive}.",
    "{name} ({born_year}-{died_year}) was {a_job}.",
    "{name} ({born} - {died}) was {a_job}.",
    "{name} {is} {a_job} in {work}.",
    "{name} {is} {a_job} who studied in {study}.",
    "{name} lives in {now}.",
    "{name} {is} best known as {a_job}.",
    "{name} trained as {a_job} in {study}.",
    "{last} {is} {a_job}.",
    "{last} studied in {study}.",
    "From {year2}, {name} worked in {work}.",
    "Trained in {study}, {last} {is} {a_job}.",
)

# Later sentences about the rest of a life.
PLAIN_SENTENCES: tuple[str, ...] = (
    "{He} studied in {study}.",
    "{He} studied at the University of {study} until {year1}.",
    "{He} moved to {lived} in {year1}.",
    "{He} lived in {lived} for many years.",
    "{He} died in {deathplace} in {died_year}.",
    "{He} died {on_died} in {deathplace}.",
    "{last} is buried in {deathplace}.",
    "{He} lives in {now} with {his} family.",
    "{last} now divides {his} time between {now} and {work}.",
    "{He} worked in {work} from {year1} to {year2}.",
    "In {year2} {he} settled in {work}.",
    "{last} spent the {decade}s in {lived}.",
    "{He} is the author of {number} books.",
    "{last} married in {lived} in {year1} and had {number} children.",
    "{He} was honoured by the city of {work} in {year2}.",
    "{He} held a chair at the University of {chair}.",
    "{last} lectured in {chair} and retired in {year2}.",
    "{His} degree is from the University of {study}.",
    "{His} work hangs in the museum of {gallery}.",
    "{last} had a studio in {gallery} until {year2}.",
    "{He} made {his} debut in {hall} in {year1}.",
    "{last} toured with the orchestra of {hall}.",
    "{His} first book was printed in {press} in {year1}.",
    "{last} edited a weekly in {press}.",
    "{He} played for {club} from {year1}.",
    "{last} won a medal in {club} in {year2}.",
    "{He} was elected in {seat} in {year2}.",
    "{last} practised in {seat} before {year2}.",
    "{His} papers are kept in {lived}.",
    "A street in {work} bears {his} name.",
)

# What a person does, by the field that only these people have (a place, filled with {work}).
JOBS: dict[str, tuple[str, ...]] = {
    "chair": (
        "astronomer", "botanist", "chemist", "economist", "engineer", "geographer", "geologist",
        "historian", "linguist", "mathematician", "philosopher", "physician", "physicist",
        "sociologist", "surgeon", "theologian", "zoologist",
    ),
    "gallery": (
        "architect", "engraver", "film director", "graphic designer", "illustrator", "painter",
        "photographer", "potter", "sculptor",
    ),
    "hall": (
        "actor", "cellist", "composer", "conductor", "dancer", "guitarist", "jazz drummer",
        "opera singer", "organist", "pianist", "violinist",
    ),
    "press": (
        "critic", "essayist", "journalist", "novelist", "playwright", "poet", "publisher",
        "screenwriter", "translator",
    ),
    "club": (
        "chess player", "cyclist", "footballer", "gymnast", "hockey player", "rower", "runner",
        "swimmer", "tennis player", "weightlifter", "wrestler",
    ),
    "seat": (
        "activist", "banker", "diplomat", "judge", "lawyer", "politician", "trade unionist",
    ),
}  # fmt: skip

TRADES: tuple[str, ...] = (
    "baker", "blacksmith", "carpenter", "clerk", "farmer", "grocer", "innkeeper", "miller", "miner",
    "sailor", "schoolteacher", "shoemaker", "soldier", "tailor", "weaver",
)  # fmt: skip

MONTHS: tuple[str, ...] = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip

NUMBERS: tuple[str, ...] = ("two", "three", "four", "five", "six", "seven", "eight")
