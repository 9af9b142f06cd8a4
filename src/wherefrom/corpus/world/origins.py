"""The origins of names: which lists a name is drawn from, and where people so named are born.

`home` weighs the countries of the origin: a person is "at home" when born in one of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Origin:
    """Where a name comes from; `lists` names given (female, male) and family (female, male)."""

    name: str
    locale: str
    share: float
    home: dict[str, float] = field(hash=False)
    lists: tuple[str, str, str, str] = (
        "first_names_female",
        "first_names_male",
        "last_names_female",
        "last_names_male",
    )
    script: str = "latin"
    initials: bool = False  # middle initials, as in "Ann B. Clark", are in use


_ONE_FAMILY = ("first_names_female", "first_names_male", "last_names", "last_names")
_NO_GENDER = ("first_names", "first_names", "last_names", "last_names")
_ROMANISED = (
    "first_romanized_names_female",
    "first_romanized_names_male",
    "last_romanized_names",
    "last_romanized_names",
)
_POLISH = ("first_names_female", "first_names_male", "unisex_last_names", "unisex_last_names")
_ICELANDIC = (
    "first_names_female",
    "first_names_male",
    "last_names_without_suffix",
    "last_names_without_suffix",
)

_BRITISH_HOME = {"GB": 5.5, "US": 2.0, "AU": 1.2, "CA": 1.0, "NZ": 0.6, "ZA": 0.3}
_AMERICAN_HOME = {"US": 8.0, "CA": 1.5, "GB": 0.5}

ORIGINS: tuple[Origin, ...] = (
    Origin("English", "en_GB", 13, _BRITISH_HOME, _ONE_FAMILY, initials=True),
    Origin("American", "en_US", 11, _AMERICAN_HOME, _ONE_FAMILY, initials=True),
    Origin("Irish", "en_IE", 4, {"IE": 6, "US": 2, "GB": 1}, _ONE_FAMILY, initials=True),
    Origin("German", "de_DE", 8, {"DE": 8, "AT": 1.5, "CH": 1}, _ONE_FAMILY),
    Origin("French", "fr_FR", 7.5, {"FR": 8, "BE": 1, "CA": 0.7, "CH": 0.4}, _ONE_FAMILY),
    Origin("Italian", "it_IT", 5, {"IT": 1}, _ONE_FAMILY),
    Origin("Spanish", "es_ES", 5, {"ES": 7, "AR": 1.4, "CO": 0.8, "CL": 0.6}, _ONE_FAMILY),
    Origin("Mexican", "es_MX", 2, {"MX": 8, "US": 1}, _ONE_FAMILY),
    Origin("Portuguese", "pt_PT", 1, {"PT": 7, "BR": 2}, _ONE_FAMILY),
    Origin("Brazilian", "pt_BR", 2, {"BR": 1}, _ONE_FAMILY),
    Origin("Dutch", "nl_NL", 3.5, {"NL": 8, "BE": 1.5}, _ONE_FAMILY),
    Origin("Swedish", "sv_SE", 2.5, {"SE": 9, "FI": 1}, _ONE_FAMILY),
    Origin("Norwegian", "no_NO", 1.5, {"NO": 1}, _ONE_FAMILY),
    Origin("Danish", "da_DK", 1.5, {"DK": 1}, _ONE_FAMILY),
    Origin("Finnish", "fi_FI", 1.5, {"FI": 1}, _ONE_FAMILY),
    Origin("Icelandic", "is_IS", 0.5, {"IS": 1}, _ICELANDIC),
    Origin("Estonian", "et_EE", 0.6, {"EE": 1}, _ONE_FAMILY),
    Origin("Latvian", "lv_LV", 0.6, {"LV": 1}),
    Origin("Polish", "pl_PL", 3, {"PL": 1}, _POLISH),
    Origin("Czech", "cs_CZ", 2.5, {"CZ": 8, "SK": 1.5}),
    Origin("Slovene", "sl_SI", 0.7, {"SI": 1}, _ONE_FAMILY),
    Origin("Croatian", "hr_HR", 1, {"HR": 1}, _ONE_FAMILY),
    Origin("Hungarian", "hu_HU", 2, {"HU": 8, "RO": 1}, _ONE_FAMILY),
    Origin("Romanian", "ro_RO", 1, {"RO": 1}, _ONE_FAMILY),
    Origin("Russian", "ru_RU", 3, {"RU": 8, "UA": 1}, script="cyrillic"),
    Origin("Ukrainian", "uk_UA", 1.2, {"UA": 1}, script="cyrillic"),
    Origin("Greek", "el_GR", 1.5, {"GR": 1}, script="greek"),
    Origin("Turkish", "tr_TR", 1.5, {"TR": 1}, _ONE_FAMILY),
    Origin("Azerbaijani", "az_AZ", 0.5, {"AZ": 8, "IR": 1}),
    Origin("Algerian", "fr_DZ", 1, {"DZ": 8, "FR": 1}, _ONE_FAMILY),
    Origin("Indian", "en_IN", 3, {"IN": 1}, _ONE_FAMILY),
    Origin("Pakistani", "en_PK", 1, {"PK": 1}, _NO_GENDER),
    Origin("Indonesian", "id_ID", 1, {"ID": 1}),
    Origin("Japanese", "ja_JP", 2, {"JP": 1}, _ROMANISED),
    Origin("Chinese", "zh_TW", 2, {"CN": 7, "TW": 3}, _ROMANISED),
    Origin("Kenyan", "en_KE", 0.7, {"KE": 1}, _ONE_FAMILY),
    Origin("Yoruba", "yo_NG", 0.9, {"NG": 1}),
    Origin("Ghanaian", "tw_GH", 0.6, {"GH": 1}),
    Origin("Zulu", "zu_ZA", 0.6, {"ZA": 1}),
)
