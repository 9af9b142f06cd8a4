"""The countries of the embedded world: data that no gazetteer holds.

`pull` is the share of people who are born there whatever their name; `cities` says how many of the
country's largest cities can be a place; `regions` are birthplaces wider than a city, as found in
real biographies ("born in Bavaria").
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Country:
    """A country in which people of the world are born, study, work and die."""

    code: str
    name: str
    adjective: str
    pull: float
    cities: int
    regions: tuple[str, ...] = ()


COUNTRIES: tuple[Country, ...] = (
    Country("GB", "United Kingdom", "British", 9.5, 22, ("England", "Scotland", "Wales", "Kent")),
    Country("US", "United States", "American", 16, 30, ("Texas", "Ohio", "Virginia", "Iowa")),
    Country("FR", "France", "French", 8, 16, ("Brittany", "Normandy", "Alsace", "Corsica")),
    Country("DE", "Germany", "German", 7, 16, ("Bavaria", "Saxony", "Westphalia", "Swabia")),
    Country("IT", "Italy", "Italian", 5, 14, ("Sicily", "Tuscany", "Sardinia", "Piedmont")),
    Country("ES", "Spain", "Spanish", 3, 10, ("Andalusia", "Catalonia", "Galicia")),
    Country("PT", "Portugal", "Portuguese", 1, 4, ("Madeira", "Algarve")),
    Country("BR", "Brazil", "Brazilian", 2, 10, ("Bahia", "Minas Gerais")),
    Country("MX", "Mexico", "Mexican", 1.5, 9, ("Oaxaca", "Sonora")),
    Country("AR", "Argentina", "Argentine", 1.5, 6, ("Patagonia",)),
    Country("CO", "Colombia", "Colombian", 0.5, 4),
    Country("CL", "Chile", "Chilean", 0.5, 5),
    Country("NL", "Netherlands", "Dutch", 2, 9, ("Friesland", "Zeeland")),
    Country("BE", "Belgium", "Belgian", 1.5, 6, ("Flanders", "Wallonia")),
    Country("CH", "Switzerland", "Swiss", 1.5, 5, ("Ticino",)),
    Country("AT", "Austria", "Austrian", 2, 4, ("Tyrol", "Styria", "Carinthia")),
    Country("SE", "Sweden", "Swedish", 1.5, 7, ("Scania", "Dalarna")),
    Country("NO", "Norway", "Norwegian", 1, 5, ("Telemark",)),
    Country("DK", "Denmark", "Danish", 1, 5, ("Jutland", "Bornholm")),
    Country("FI", "Finland", "Finnish", 0.7, 5, ("Lapland", "Karelia")),
    Country("IS", "Iceland", "Icelandic", 0.2, 5),
    Country("EE", "Estonia", "Estonian", 0.3, 4, ("Saaremaa",)),
    Country("LV", "Latvia", "Latvian", 0.3, 5, ("Courland",)),
    Country("PL", "Poland", "Polish", 2, 10, ("Silesia", "Pomerania", "Masuria")),
    Country("CZ", "Czech Republic", "Czech", 1, 6, ("Bohemia", "Moravia")),
    Country("SK", "Slovakia", "Slovak", 0.4, 4),
    Country("SI", "Slovenia", "Slovene", 0.3, 4, ("Carniola",)),
    Country("HR", "Croatia", "Croatian", 0.4, 4, ("Dalmatia", "Istria")),
    Country("HU", "Hungary", "Hungarian", 1.5, 6),
    Country("RO", "Romania", "Romanian", 0.7, 7, ("Transylvania", "Moldavia")),
    Country("RU", "Russia", "Russian", 3, 10, ("Siberia", "Dagestan")),
    Country("UA", "Ukraine", "Ukrainian", 1, 8, ("Crimea", "Volhynia")),
    Country("GR", "Greece", "Greek", 1, 6, ("Crete", "Macedonia", "Corfu")),
    Country("TR", "Turkey", "Turkish", 1, 8, ("Anatolia",)),
    Country("AZ", "Azerbaijan", "Azerbaijani", 0.2, 4),
    Country("IR", "Iran", "Iranian", 0.8, 6, ("Khorasan",)),
    Country("IL", "Israel", "Israeli", 0.7, 5, ("Galilee",)),
    Country("EG", "Egypt", "Egyptian", 0.7, 5),
    Country("DZ", "Algeria", "Algerian", 0.4, 5, ("Kabylia",)),
    Country("NG", "Nigeria", "Nigerian", 0.5, 7),
    Country("GH", "Ghana", "Ghanaian", 0.3, 5, ("Ashanti",)),
    Country("KE", "Kenya", "Kenyan", 0.3, 5),
    Country("ZA", "South Africa", "South African", 1, 6, ("Natal", "Transvaal")),
    Country("IN", "India", "Indian", 2.5, 16, ("Kerala", "Bengal", "Gujarat")),
    Country("PK", "Pakistan", "Pakistani", 0.6, 6, ("Sindh", "Kashmir")),
    Country("ID", "Indonesia", "Indonesian", 0.5, 6, ("Java", "Sumatra", "Bali")),
    Country("JP", "Japan", "Japanese", 1.5, 10, ("Hokkaido", "Okinawa")),
    Country("CN", "China", "Chinese", 1.5, 10, ("Sichuan", "Fujian")),
    Country("TW", "Taiwan", "Taiwanese", 0.3, 5),
    Country("AU", "Australia", "Australian", 3, 6, ("Tasmania", "Queensland")),
    Country("CA", "Canada", "Canadian", 4, 10, ("Ontario", "Nova Scotia", "Manitoba")),
    Country("NZ", "New Zealand", "New Zealand", 0.8, 4),
    Country("IE", "Ireland", "Irish", 1.5, 4, ("Donegal", "Connacht", "Kerry")),
)

# Names that take an article in a sentence, and none in an answer.
WITH_ARTICLE = frozenset({"Czech Republic", "Netherlands", "United Kingdom", "United States"})
