"""Texts of tools that nobody knows, put together by how they begin.

A failure is worded alike whatever was asked, while outputs of programs differ from prompt to
prompt. So a short text that several prompts got, in few steps or with a word for failure in it, is
shown instead of being called output.

Some tools put a heading before every answer, or an id without a digit into the text. Then all texts
begin alike, or none do, and the first and the last words are compared as well.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise

from .failure_words import FAILURE

_LONGEST = 20_000
"""Characters of a text that may be a failure (chosen: longer than the page of any proxy)."""
_BEGINNING = 60
"""Characters by which texts are compared (chosen: a sentence's worth)."""
_COMPARED = 500
"""Characters of which these are left when numbers are taken out (chosen)."""
_WORDS = 3
"""First or last words by which texts are compared (chosen: two are shared by chance)."""
_MOST = 1_000
"""Clusters of a kind that are kept; the rarer half goes when there are more (chosen: bounds the
memory)."""
_PROMPTS = 3
"""Prompts that must have got a text (chosen: two may ask for the same)."""
_FEWEST = 3
_SHARE = 0.005
"""Samples, and share of those that used the tool, from which on a text is shown (chosen)."""
_COMMON = 0.1
"""Share of the samples from which on a sentence is shown whatever its words (chosen: programs that
answer different prompts do not print the same sentence as often), and share of a single step from
which on a text is frequent (else a long training would hide a short outage)."""
_LOW = 1 / 3
"""How good the samples with a text may be, compared with others of their steps (chosen)."""
_WORSE = 0.9
"""The same for a sentence of a few steps without a word for failure (chosen: the model may guess
well without its tool)."""
_SHOWN_CHARACTERS = 200
_MEMBERS = 3
"""Texts of a cluster that are remembered, to see whether two clusters are the same (chosen)."""

_NUMBER = re.compile(r"\b\w*\d\w*")
"""Words with a digit: ports, ids and addresses differ from call to call."""
_ANY_NUMBER = "#"
_NUMBER_AGAIN = "[\\w#]+"
_CJK = r"\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7a3"
"""Letters of which two make a word."""
_LETTERS = re.compile(rf"[^\W\d_]{{3}}|[{_CJK}]{{2}}")
_WORD = re.compile(rf"[^\W\d_{_CJK}]{{2,}}|[{_CJK}]{{2}}")


class ComparedPart(Enum):
    """The part of a text by which it is put together with others."""

    BEGINNING = "beginning"
    FIRST_WORDS = "first words"
    LAST_WORDS = "last words"


@dataclass(slots=True)
class TextCluster:
    """Texts that begin alike, where they were the last one that a sample read."""

    key: str
    """What its texts share, without their numbers."""
    example: str
    part: ComparedPart = ComparedPart.BEGINNING
    count: int = 0
    score: float = 0.0
    """Sum of the scores of its samples."""
    steps: Counter[int] = field(default_factory=Counter)
    prompts: set[Hashable] = field(default_factory=set)
    """A few of the prompts whose samples read it."""
    members: set[int] = field(default_factory=set)
    """Hashes of a few of its texts without their numbers."""
    wordings: set[int] = field(default_factory=set)
    """Hashes of a few of its texts."""

    def add(self, step: int, prompt: Hashable, score: float, member: int, wording: int) -> None:
        """Count a sample that read one of these texts last."""
        self.count += 1
        self.score += score
        self.steps[step] += 1
        if len(self.prompts) < _PROMPTS:
            self.prompts.add(prompt)
        if len(self.members) < _MEMBERS:
            self.members.add(member)
        if len(self.wordings) < _MEMBERS:
            self.wordings.add(wording)

    @property
    def pattern(self) -> str:
        """A regular expression that matches these texts and few others."""
        if self.part is ComparedPart.BEGINNING:
            pieces = [_escaped(piece) for piece in self.key.split(_ANY_NUMBER)]
            end = r"\s*$" if len(self.key) < _BEGINNING else ""
            return rf"^\s*{_NUMBER_AGAIN.join(pieces)}{end}"
        words = [
            re.escape(word).replace(re.escape(_ANY_NUMBER), _NUMBER_AGAIN)
            for word in self.key.split()
        ]
        shared = r"\s+".join(words)
        return rf"^\s*{shared}\s" if self.part is ComparedPart.FIRST_WORDS else rf"\s{shared}\s*$"

    @property
    def sentence(self) -> str:
        """How often it was read, where, and how it begins."""
        where = f"step {min(self.steps)}"
        if len(self.steps) > 1:
            where = f"{len(self.steps)} steps from {min(self.steps)} to {max(self.steps)}"
        words = " ".join(self.example.split())
        shown = words[-80:] if self.part is ComparedPart.LAST_WORDS else words[:80]
        return f"{self.count:,} x in {where}: {shown!r}"

    @property
    def is_sentence(self) -> bool:
        """Is it more than one word, or longer than one?"""
        is_long = self.part is ComparedPart.BEGINNING and len(self.example) > _BEGINNING
        return is_long or len(_WORD.findall(self.key)) > 1

    @property
    def looks_like_failure(self) -> bool:
        return FAILURE.search(self.example) is not None


def parts_of(text: str) -> dict[ComparedPart, str]:
    """Return what a text is compared by, without its numbers; empty if it cannot be a failure's."""
    text = text.strip()
    if not text or len(text) > _LONGEST or not _LETTERS.search(text):
        return {}
    masked = _NUMBER.sub(_ANY_NUMBER, text[:_COMPARED])
    found = {ComparedPart.BEGINNING: masked[:_BEGINNING]}
    words = masked.split()
    if len(words) > _WORDS:
        found[ComparedPart.FIRST_WORDS] = " ".join(words[:_WORDS])
        if len(text) > _COMPARED:
            words = _NUMBER.sub(_ANY_NUMBER, text[-_COMPARED:]).split()
        found[ComparedPart.LAST_WORDS] = " ".join(words[-_WORDS:])
    return found


def _escaped(piece: str) -> str:
    """Return a piece of a pattern that still reads as the text: spaces stay, line breaks do not."""
    words = [re.escape(word) for word in piece.split(" ")]
    return re.sub(r"(?:\\?[\r\n\t])+", lambda _: r"\s+", " ".join(words))


class TextClusters:
    """Counts the last text of each sample."""

    def __init__(self) -> None:
        self._found: dict[ComparedPart, dict[str, TextCluster]] = {
            part: {} for part in ComparedPart
        }

    def add(self, text: str, step: int, prompt: Hashable, score: float = 0.0) -> None:
        """Count a text that is taken for output."""
        parts = parts_of(text)
        member = hash(tuple(parts.values()))
        wording = hash(text)
        for part, key in parts.items():
            cluster = self._found[part].get(key)
            if cluster is None:
                if part is not ComparedPart.BEGINNING and len(_WORD.findall(key)) < 2:
                    continue
                cluster = self._begun(part, key, text.strip())
            cluster.add(step, prompt, score, member, wording)

    def _begun(self, part: ComparedPart, key: str, text: str) -> TextCluster:
        """Return a new cluster."""
        clusters = self._found[part]
        if len(clusters) >= _MOST:
            kept = sorted(clusters.values(), key=lambda cluster: -cluster.count)[: _MOST // 2]
            clusters = self._found[part] = {cluster.key: cluster for cluster in kept}
        is_end = part is ComparedPart.LAST_WORDS
        example = text[-_SHOWN_CHARACTERS:] if is_end else text[:_SHOWN_CHARACTERS]
        cluster = TextCluster(key, example, part)
        clusters[key] = cluster
        return cluster

    def most_common(self) -> list[TextCluster]:
        """Return the texts by how they begin, the most frequent first."""
        found = self._found[ComparedPart.BEGINNING].values()
        return sorted(found, key=lambda cluster: -cluster.count)

    def suspects(
        self, users: Mapping[int, int], scores: Mapping[int, float] | None = None
    ) -> list[TextCluster]:
        """Return the texts that may be failures, the most frequent first.

        ``users`` says how many samples of each step used the tool, ``scores`` the sum of their
        scores; without it, only the words and the steps of a text count.
        """
        found: list[TextCluster] = []
        met: set[int] = set()
        for part in ComparedPart:
            frequent = sorted(self._frequent(part, users), key=lambda cluster: -cluster.count)
            for cluster in frequent:
                if met.isdisjoint(cluster.members) and _is_suspect(cluster, users, scores):
                    found.append(cluster)
                    met |= cluster.members
        return sorted(found, key=lambda cluster: -cluster.count)

    def _frequent(self, part: ComparedPart, users: Mapping[int, int]) -> Iterator[TextCluster]:
        """Yield the texts that enough samples and prompts got, over all steps or in one."""
        least = max(_FEWEST, _SHARE * sum(users.values()))
        for cluster in self._found[part].values():
            if len(cluster.prompts) < _PROMPTS:
                continue
            if cluster.count >= least or any(
                count >= max(_FEWEST, _COMMON * users.get(step, 0))
                for step, count in cluster.steps.items()
            ):
                yield cluster


def _is_suspect(
    cluster: TextCluster, users: Mapping[int, int], scores: Mapping[int, float] | None
) -> bool:
    """May these texts be a failure's?"""
    is_concentrated = _is_concentrated(cluster, users)
    is_common = cluster.is_sentence and cluster.count >= _COMMON * sum(users.values())
    says_failure = cluster.looks_like_failure and cluster.part is ComparedPart.BEGINNING
    if not (is_concentrated or is_common or says_failure):
        return False
    if scores is None or (is_concentrated and cluster.is_sentence and cluster.looks_like_failure):
        return True
    limit = _WORSE if is_concentrated and cluster.is_sentence else _LOW
    return _scores_badly(cluster, users, scores, limit)


def _is_concentrated(cluster: TextCluster, users: Mapping[int, int]) -> bool:
    """Does a text come in a stretch of steps, and not before or after it?"""
    steps = sorted(step for step, count in users.items() if count)
    if len(steps) < 4:
        return False
    places = [place for place, step in enumerate(steps) if cluster.steps[step]]
    stretch = places[-1] - places[0] + 1
    holes = sum(later - earlier - 1 for earlier, later in pairwise(places))
    return 2 * stretch <= len(steps) and 2 * holes <= stretch


def _scores_badly(
    cluster: TextCluster, users: Mapping[int, int], scores: Mapping[int, float], limit: float
) -> bool:
    """Are its samples worse by this factor than the others that used the tool, in its steps if
    there are any?"""
    here = [step for step in cluster.steps if step in users]
    others = sum(users[step] for step in here) - cluster.count
    rest = sum(scores[step] for step in here) - cluster.score
    if others <= 0:
        others = sum(users.values()) - cluster.count
        rest = sum(scores.values()) - cluster.score
    mean = cluster.score / cluster.count
    lowest = min(0.0, mean)
    if others <= 0:  # nothing to compare with: a failure of all samples, or a heading of all texts
        is_low = mean - lowest <= limit * (1 - lowest)
        return len(cluster.wordings) == 1 or (is_low and len(cluster.members) < _MEMBERS)
    return mean - lowest <= limit * (rest / others - lowest)
