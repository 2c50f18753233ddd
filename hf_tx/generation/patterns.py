# Copyright 2026 The hf_tx authors. Licensed under the Apache License, Version 2.0.
"""Patterns and formats of JSON schemas, in a form in which engine and judge agree."""

import datetime
import re
from collections.abc import Callable

#: Longer patterns, and patterns that come to more letters when their repetitions are written out, are refused.
LONGEST_PATTERN, MOST_REPETITIONS = 5_000, 20_000
_COUNT = re.compile(r"\{(\d+)(?:,(\d*))?\}")
#: White space of Python, and of ECMA, that the engine does not know as such.
_MORE_SPACE = r"\x1c-\x1f\ufeff"


class PatternError(ValueError):
    """A pattern that cannot be enforced; the message says why."""


def check_repetitions(pattern: str) -> None:
    """Refuse a pattern whose automaton would be too large.

    Raises:
        PatternError: it is too long, or its counted repetitions come to too much.
    """
    if len(pattern) > LONGEST_PATTERN:
        raise PatternError(f"has {len(pattern)} characters, more than {LONGEST_PATTERN}")
    if _size(pattern) > MOST_REPETITIONS:
        raise PatternError(f"comes to more than {MOST_REPETITIONS} letters when its repetitions are written out")


def _size(pattern: str) -> int:
    """Return how many letters a pattern has when its counted repetitions are written out."""
    open_groups, last, start = [0], 0, 0
    while start < len(pattern):
        letter = pattern[start]
        count = _COUNT.match(pattern, start) if letter == "{" else None
        if count is not None:
            repeated = last * max(1, int(count[2] or count[1]))
            open_groups[-1] += repeated - last
            last, start = repeated, count.end()
            continue
        if letter == "(":
            open_groups.append(0)
            last = 0
        elif letter == ")" and len(open_groups) > 1:
            last = max(1, open_groups.pop())
            open_groups[-1] += last
        elif letter not in "*+?":
            last = 1
            open_groups[-1] += 1
        start += 2 if letter == "\\" else 1
        if letter == "[":
            close = re.compile(r"\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL).match(pattern, start)
            start = close.end() if close else start
    return sum(open_groups)


def translate(pattern: str) -> str:
    """Return a pattern (the dialect of Python and ECMA) for the engine: what it matches, Python matches too.

    Raises:
        PatternError: the two would not agree, or it is no pattern.
    """
    check_repetitions(pattern)
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise PatternError(f"is no pattern of Python: {error}") from error
    found: list[str] = []
    start = 0
    while start < len(pattern):
        letter = pattern[start]
        if letter == "\\":
            found.append(_escape(pattern[start + 1]))
            start += 2
        elif letter == "[":
            text, start = _class(pattern, start)
            found.append(text)
        elif pattern.startswith("(?", start) and pattern[start + 2 : start + 3] != ":":
            raise PatternError(f"has a group that is not enforced: {pattern[start : start + 6]!r}")
        else:
            found.append(letter)
            start += 1
    return "".join(found)


def _escape(letter: str) -> str:
    if letter == "S":
        return rf"[^\s{_MORE_SPACE}]"
    if letter in "DWBbAZ" or letter.isdigit():
        raise PatternError(rf"uses \{letter}, of which engine and judge have different notions")
    return "\\" + letter


def _class(pattern: str, start: int) -> tuple[str, int]:
    """Return a class of characters, and where it ends."""
    negated = pattern.startswith("[^", start)
    found = "[^" if negated else "["
    index = start + len(found)
    first = index
    while pattern[index] != "]" or index == first:
        letter = pattern[index]
        if letter == "\\":
            following = pattern[index + 1]
            if following in "DWSBb" or following.isdigit() or (negated and following in "dw"):
                raise PatternError(rf"uses \{following} in a class, of which engine and judge have different notions")
            found += "\\" + following + (_MORE_SPACE if negated and following == "s" else "")
            index += 2
        else:
            plain = (
                letter.isalnum() or ord(letter) > 127 or letter == " " or (letter == "-" and pattern[index - 1] != "-")
            )
            found += letter if plain else "\\" + letter
            index += 1
    return found + "]", index + 1


_YEAR = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})"
_LEAP = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_DATE = (
    f"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    f"|02-(?:0[1-9]|1[0-9]|2[0-8]))|{_LEAP}-02-29)"
)
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?(?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#: Formats of which the engine allows what is none: days that no month has, years that Python has not, leap seconds.
STRICTER = {"date": f"^{_DATE}$", "time": f"^{_TIME}$", "date-time": f"^{_DATE}[tT]{_TIME}$"}
#: The formats that the engine enforces.
FORMATS = ("date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid")

_TIME_JUDGED = re.compile(r"(\d\d):(\d\d):(\d\d)(?:\.\d+)?(?:[zZ]|[+-](\d\d):(\d\d))", re.ASCII)
_LABEL = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_HOSTNAME = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*")
_URI = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:(?:[a-zA-Z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9a-fA-F]{2})*")
_EMAIL = re.compile(r"(?:\"[^\"]+\"|[^@\s\"]+)@(?:[a-zA-Z0-9.-]+|\[[^\]@\s]+\])")
_T_PART = r"T(?:\d+H(?:\d+M(?:\d+S)?)?|\d+M(?:\d+S)?|\d+S)"
_D_PART = r"(?:\d+Y(?:\d+M(?:\d+D)?)?|\d+M(?:\d+D)?|\d+D)"
_DURATION = re.compile(rf"P(?:{_D_PART}(?:{_T_PART})?|{_T_PART}|\d+W)", re.ASCII)


def _is_date(text: str) -> bool:
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", text, re.ASCII):
        return False
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_time(text: str) -> bool:
    found = _TIME_JUDGED.fullmatch(text)
    if found is None:
        return False
    hours, minutes, seconds, off_hours, off_minutes = (int(part or 0) for part in found.groups())
    return max(hours, off_hours) < 24 and max(minutes, off_minutes) < 60 and seconds < 60


#: Judges of formats for which jsonschema has none without further libraries.
JUDGES: dict[str, Callable[[str], bool]] = {
    "date": _is_date,
    "time": _is_time,
    "date-time": lambda text: text[10:11] in ("t", "T") and _is_date(text[:10]) and _is_time(text[11:]),
    "duration": lambda text: _DURATION.fullmatch(text) is not None,
    "email": lambda text: _EMAIL.fullmatch(text) is not None,
    "hostname": lambda text: _HOSTNAME.fullmatch(text) is not None,
    "uri": lambda text: _URI.fullmatch(text) is not None,
}
