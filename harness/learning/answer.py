"""Everything that ``sfusion poison`` found, as one answer: texts, pages and JSON are made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.dumps.text_clusters import TextCluster
from ..errors import BadOption
from .drop import Drop, explain
from .dumps import DumpReader
from .evidence import Evidence
from .figures import Weighting
from .gate import GateFinding, nothing_tells, reasons_not_to_pass
from .poison import Poison
from .programs import LosingProgram
from .scores import Segment

_SHOWN_TEXTS = 8
"""Unknown texts that are listed (chosen)."""


@dataclass(frozen=True, slots=True)
class PoisonAnswer:
    """What was found, and how far it can be trusted."""

    found: Poison
    reader: DumpReader
    evidence: Evidence
    drop: Drop | None
    texts: Sequence[TextCluster]
    """Texts that nobody knows and that may be failures."""
    vague: Sequence[TextCluster]
    """Texts that stand for any failure and for none."""
    programs: Sequence[LosingProgram]
    findings: Sequence[GateFinding]
    """Why the gate does not pass."""
    unread: int

    def as_data(self, sentences: Sequence[str]) -> dict[str, Any]:
        """Return the answer for ``--json``."""
        found = self.found
        weighting = found.weighting
        steps = []
        for (step, figures), scores in zip(found.steps, found.scores, strict=True):
            healthy = Segment.of([scores]).healthy
            steps.append(
                {
                    "step": step,
                    "score_healthy": None if healthy is None else round(healthy, 6),
                    **figures.as_data(weighting),
                }
            )
        whole = found.total.weight.by(weighting)
        places = {}
        for place, figures_of in found.total.places.items():
            share = figures_of.weight.by(weighting) / whole if whole else 0.0
            places[place.value] = {"lost": figures_of.lost, "weight_share": round(share, 6)}
        return {
            "poison": 2,
            "estimator": found.estimator.value,
            "trained": found.trained.value,
            "weighting": weighting.value,
            "files": list(map(str, self.reader.files)),
            "trainers": dict(self.reader.trainers),
            "recognised_by": dict(self.evidence.used),
            "unreadable_lines": self.unread,
            "sentences": list(sentences),
            "drop": None if self.drop is None else self.drop.as_data(),
            "gate": [finding.as_data() for finding in self.findings],
            "unknown_texts": [_text_data(text) for text in self.texts],
            "vague_texts": [_text_data(text) for text in self.vague],
            "losing_programs": [program.as_data() for program in self.programs],
            "places": places,
            "total": found.total.as_data(weighting),
            "steps": steps,
            "worst_groups": [group.as_data() for group in found.worst],
        }


def _text_data(text: TextCluster) -> dict[str, Any]:
    return {
        "text": text.example,
        "pattern": text.pattern,
        "count": text.count,
        "steps": len(text.steps),
        "first_step": min(text.steps),
        "last_step": max(text.steps),
        "mean_score": round(text.score / text.count, 6),
    }


def answer(
    found: Poison,
    reader: DumpReader,
    evidence: Evidence,
    limits: Mapping[str, float],
    *,
    weigh: Weighting | None = None,
    between: tuple[tuple[int, int], tuple[int, int]] | None = None,
    programs: Sequence[LosingProgram] = (),
    unread: int = 0,
) -> PoisonAnswer:
    """Conclude from what was counted."""
    users = {step: figures.users for step, figures in found.steps}
    scores = {step: figures.users_score for step, figures in found.steps}
    texts = evidence.clusters.suspects(users, scores)[:_SHOWN_TEXTS]
    for step, figures in found.steps:
        figures.unclear += sum(text.steps[step] for text in texts)
    found.finish()
    found.weighting = _weighting(found, weigh)
    unknown = {}
    is_silent = nothing_tells(found.total, evidence.reward_told)
    for step, figures in found.steps:
        count = figures.samples if is_silent else figures.unclear + figures.users - figures.covered
        unknown[step] = min(1.0, count / figures.samples) if figures.samples else 0.0
    return PoisonAnswer(
        found=found,
        reader=reader,
        evidence=evidence,
        drop=explain(found.scores, unknown, between),
        texts=texts,
        vague=evidence.vague.most_common()[:_SHOWN_TEXTS],
        programs=programs,
        findings=reasons_not_to_pass(
            found.steps,
            found.total,
            found.weighting,
            limits,
            reward_told=evidence.reward_told,
            doubts=[*reader.doubts, *_unread_doubt(unread, found.total.samples, limits)],
        ),
        unread=unread,
    )


def _unread_doubt(unread: int, samples: int, limits: Mapping[str, float]) -> list[str]:
    """Say how many lines could not be read, if they are too many to judge without them."""
    lines = unread + samples
    if not unread or samples / lines >= limits["coverage"]:
        return []
    return [f"{unread:,} of {lines:,} lines could not be read"]


def _weighting(found: Poison, asked: Weighting | None) -> Weighting:
    """Weigh by tokens where every sample has them, unless told."""
    lacking = found.total.tokenless
    if asked is Weighting.TOKENS and lacking:
        raise BadOption(
            f"--weigh tokens: {lacking:,} of {found.total.samples:,} samples do not say how many "
            "tokens they have; name the key: --key tokens=KEY"
        )
    if asked is not None:
        return asked
    has_tokens = found.total.samples > 0 and not lacking
    return Weighting.TOKENS if has_tokens else Weighting.SAMPLES
