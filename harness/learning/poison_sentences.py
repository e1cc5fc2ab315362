"""What ``sfusion poison`` says in sentences: the answer first, then what it rests on."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from itertools import pairwise

from sfusion_tools.advantages import SIGNAL, Handling
from sfusion_tools.wording import many

from ..core.dumps.text_clusters import TextCluster
from .answer import PoisonAnswer
from .drop import MOST_UNKNOWN, Drop, DropVerdict, stretch_of_losses
from .evidence import EVENTS, LossPlace
from .figures import PoisonFigures
from .poison import Poison
from .scores import Segment, spread

_CAUSES = {
    "throttled": (
        "the sandbox refused calls",
        "set `rate_limit` to what it admits, for all workers together",
    ),
    "transport_timeout": (
        "answers did not come in time",
        "compare `default_timeout` and `call_deadline` with how long calls take (`sfusion look`)",
    ),
    "unreachable": (
        "connections failed",
        "check the address and restarts of the sandbox; a higher `max_attempts` outlasts a short "
        "outage",
    ),
    "sandbox_error": (
        "the sandbox itself failed",
        "look at its own log; a higher `max_attempts` outlasts a short outage",
    ),
    "bad_response": (
        "answers were not those of a sandbox",
        "look for a gateway or a proxy in between",
    ),
    "cancelled": (
        "calls were broken off",
        "look at the guard, at over-sampling and at the trainer's own time limits",
    ),
}
"""What an outcome of lost calls means, and what to set or to look at."""
_PLACES = {
    LossPlace.TOOL: "in a call of the tool",
    LossPlace.REWARD: "in the reward",
    LossPlace.ROLLOUT: "given up or masked by the trainer",
}


def headline(answer: PoisonAnswer) -> str:
    """The answer in one line: what explains the drop, or that there is none."""
    total = answer.found.total
    if not total.samples:
        return "No sample has a score"
    drop = answer.drop
    if drop is not None and drop.verdict is not DropVerdict.NO_DROP:
        return _drop_sentence(drop)
    if not total.lost:
        return (
            f"None of {many(total.samples, 'sample')} with a score is known to have lost a call"
            f"{_but(answer)}"
        )
    return _loss_sentence(answer.found)


def _loss_sentence(found: Poison) -> str:
    """What lost calls did where there is no drop, or none that chance could not explain."""
    stretch = _stretch(found)
    if stretch is None:
        part = Segment.of(found.scores)
        where = ""
    else:
        first, last, _ = stretch
        part = Segment.of([scores for scores in found.scores if first <= scores.step <= last])
        where = f" in {part.name}"
    text = f"{part.lost / part.samples:.1%} of the samples were lost{where}"
    if part.healthy is None:
        return text
    cost = part.healthy - part.score
    half = spread(part.gap_variance)
    return (
        f"{text}: they cost {cost:.2f} of the score ({cost - half:.2f} to {cost + half:.2f}), "
        f"which is {part.score:.2f} instead of {part.healthy:.2f}"
    )


def _but(answer: PoisonAnswer) -> str:
    """What speaks against a dump in which no loss is known."""
    total = answer.found.total
    in_doubt = {finding.name.partition(".")[0] for finding in answer.findings}
    if total.unscored_lost:
        return f", but {total.unscored_lost:,} without a score have"
    if "coverage" in in_doubt and not total.users:
        return ", and nothing says whether any has"
    if "coverage" in in_doubt:
        return f", but there is evidence for only {total.covered:,} of {total.users:,} tool users"
    if "unclear" in in_doubt:
        return f", but {total.unclear:,} last read a text that does not tell"
    if "missing" in in_doubt:
        return f", but {total.missing:,} are missing"
    return ", but the dump itself is in doubt" if "dump" in in_doubt else ""


def _drop_sentence(drop: Drop) -> str:
    where = f"between {drop.before.name} and {drop.after.name}"
    if drop.verdict is DropVerdict.UNKNOWN or drop.explained is None:
        return (
            f"The score fell by {drop.drop:.2f} {where}; whether lost calls explain it cannot be "
            f"told: {_why_unknown(drop)}"
        )
    healthy = drop.healthy_drop or 0.0
    if drop.verdict is DropVerdict.NOT_INFRASTRUCTURE:
        low = healthy - drop.healthy_interval
        high = healthy + drop.healthy_interval
        return (
            f"Not infrastructure: of the drop of {drop.drop:.2f} {where}, the healthy samples "
            f"fell as much, by {healthy:.2f} ({low:.2f} to {high:.2f})"
        )
    low = drop.explained - drop.explained_interval
    high = drop.explained + drop.explained_interval
    text = (
        f"Lost calls explain {drop.explained:.2f} ({low:.2f} to {high:.2f}) of the drop of "
        f"{drop.drop:.2f} {where}"
    )
    if drop.explained >= drop.drop:
        text = (
            f"Lost calls explain all of the drop of {drop.drop:.2f} {where}: they cost "
            f"{drop.explained:.2f} ({low:.2f} to {high:.2f})"
        )
    if drop.after.is_borrowed:
        text += (
            ", assuming lost samples would have scored as before (too few healthy samples are left)"
        )
    if drop.verdict is DropVerdict.PARTLY:
        text += f"; the healthy samples fell by {healthy:.2f} as well"
    return text


def _why_unknown(drop: Drop) -> str:
    if drop.explained is None:
        return "no healthy sample that used the tool is left to compare with"
    if drop.unknown <= MOST_UNKNOWN:
        healthy = drop.healthy_drop or 0.0
        low = healthy - drop.healthy_interval
        high = healthy + drop.healthy_interval
        return f"the healthy samples fell by {healthy:.2f} ({low:.2f} to {high:.2f})"
    return f"nothing says how the calls of {drop.unknown:.0%} of the samples there ended"


def first_sentences(answer: PoisonAnswer) -> list[str]:
    """At most five sentences: what happened, when, why, what to do, and what is in doubt."""
    total = answer.found.total
    said = []
    if total.lost:
        said.append(_what(answer.found))
        said.append(_when_and_why(answer.found))
        said.append(_advice(answer))
    if total.unclear:
        said.append(_unclear(answer))
    return [*said, *answer.reader.doubts[:1]]


def _what(found: Poison) -> str:
    total = found.total
    share = total.weight_share(found.weighting)
    places = [
        f"{figures.lost:,} {_PLACES[place]}"
        for place, figures in total.places.items()
        if figures.lost
    ]
    return (
        f"{total.lost:,} of {many(total.samples, 'sample')} were lost ({', '.join(places)}), in "
        f"{total.hit_groups:,} of {many(total.groups, 'group')}; they carry {share:.1%} of the "
        f"gradient's weight ({found.estimator.value}, weighed by {found.weighting.value}) and "
        f"changed the advantage of {total.moved:,} of {many(total.siblings, 'healthy sibling')}."
    )


def _when_and_why(found: Poison) -> str:
    total = found.total
    start = ""
    stretch = _stretch(found)
    if stretch is not None:
        first, last, share = stretch
        where = f"step {first}" if first == last else f"steps {first} to {last}"
        start = f"{share:.0%} of the lost samples are in {where}, and "
    if total.outcomes:
        listed = ", ".join(f"{name} {count:,}" for name, count in total.outcomes.most_common())
        cause, setting = _CAUSES[total.outcomes.most_common(1)[0][0]]
        text = f"{start}the lost calls ended with {listed}, mainly because {cause}: {setting}."
    elif total.places[LossPlace.TOOL].lost or total.places[LossPlace.ROLLOUT].lost:
        text = (
            f"{start}how the lost calls ended is not known: give the tool's event log with "
            "--events."
        )
    else:  # the tool's event log has no call of the reward
        text = f"{start}how the calls of the reward ended is not known: look at its own log."
    return text[0].upper() + text[1:]


def _stretch(found: Poison) -> tuple[int, int, float] | None:
    """Return the first and last step of the stretch with most of the lost samples, and its share
    of them."""
    counts = [figures.lost for _, figures in found.steps]
    places = stretch_of_losses(counts)
    in_order = all(step[0] < other[0] for step, other in pairwise(found.steps))
    if places is None or not in_order:
        return None
    first, last = places
    share = sum(counts[first : last + 1]) / sum(counts)
    return found.steps[first][0], found.steps[last][0], share


def _advice(answer: PoisonAnswer) -> str:
    text = (
        "leave lost samples out of the loss and out of the group's mean and std; a loss mask alone "
        "leaves them in the baseline"
    )
    if answer.programs:
        tried = sum(program.tried for program in answer.programs)
        text += (
            f". But score the {tried:,} attempts of {many(len(answer.programs), 'program')} that "
            "lost every one while others succeeded"
        )
    text += "."
    wrong = _wrong_steps(answer.found)
    if not wrong:
        return text[0].upper() + text[1:]
    where = f"step {wrong[0]}"
    if len(wrong) > 1:
        where = f"{len(wrong)} steps from {wrong[0]} to {wrong[-1]},"
    return f"In {where} training pushes away from the tool only because the sandbox failed: {text}"


def _wrong_steps(found: Poison) -> list[int]:
    """Return the steps that push away from the tool, and would not without their lost calls."""
    return [
        step
        for step, figures in found.steps
        if figures.places[LossPlace.TOOL].lost
        and figures.push(found.trained) < -SIGNAL
        and figures.push(Handling.EXCLUDE) > -SIGNAL
    ]


def _unclear(answer: PoisonAnswer) -> str:
    total = answer.found.total
    vague = sum(text.count for text in answer.vague)
    unknown = sum(text.count for text in answer.texts)
    empty = total.unclear - vague - unknown
    kinds = [
        f"{what} ({count:,})"
        for what, count in (
            ("an empty text", empty),
            ("a text that stands for any failure and for none", vague),
            ("a text that nobody knows", unknown),
        )
        if count > 0
    ]
    advice = ""
    if empty > 0:
        advice = (
            "; if empty texts are output here: --output-pattern '^\\s*$', if these calls were "
            "lost: --lost-pattern '^\\s*$'"
        )
    return (
        f"{many(total.unclear, 'sample')} that used the tool are unclear: they last read "
        f"{' or '.join(kinds)}{advice}."
    )


def text_line(text: TextCluster) -> str:
    """A text that does not tell, with the option that would count it as lost."""
    return (
        f"{text.sentence}, mean score {text.score / text.count:.2f}; if these calls were lost: "
        f"--lost-pattern {shlex.quote(text.pattern)}, if it is output: --output-pattern "
        f"{shlex.quote(text.pattern)}"
    )


def notes(answer: PoisonAnswer) -> list[str]:
    """What the figures rest on, and what the dump does not tell."""
    return [
        *_pushes(answer.found),
        *_healthy(answer.found.total, answer.found),
        *_sources(answer),
        *_limits(answer),
        *answer.reader.doubts[1:],
        *answer.reader.notes,
    ]


def _pushes(found: Poison) -> Iterator[str]:
    total = found.total
    if not total.lost or not total.users:
        return
    if total.users == total.samples:
        yield "Every sample used the tool, so the step pushes neither for nor against it."
        return
    trained, mask, clean = (
        total.push(handling) for handling in (found.trained, Handling.MASK, Handling.EXCLUDE)
    )
    yield (
        f"Push on tool use: {trained:+.3f} as trained, {mask:+.3f} with a loss mask, "
        f"{clean:+.3f} without them."
    )
    low = total.push(Handling.FAILED)
    high = total.push(Handling.PASSED)
    retried = f"the push would lie between {low:+.3f} and {high:+.3f}."
    if found.estimator.is_whitened:  # no bounds: the scale depends on the mixture
        retried = f"the push would be {low:+.3f} if all had failed, {high:+.3f} if all had passed."
    yield f"Had every lost call been retried, {retried}"


def _healthy(total: PoisonFigures, found: Poison) -> Iterator[str]:
    if total.only_lost:
        yield f"{many(total.only_lost, 'group')} had a signal only through lost samples."
    if total.dead_groups:
        yield (
            f"Lost samples left at most one sample in {many(total.dead_groups, 'group')}, so "
            "nothing can be learned from them."
        )
    if total.orphans:
        yield (
            f"{many(total.orphans, 'healthy sample')} lost all siblings. Leave them out too: verl "
            "gives a group of one the baseline 0, so they would push for whatever they did."
        )
    if total.lost:
        yield ("Divide the loss by all samples, so that a step with few healthy ones moves less.")
    if total.recovered:
        whole = total.weight.by(found.weighting)
        share = total.weight_recovered.by(found.weighting) / whole if whole else 0.0
        yield (
            f"{many(total.recovered, 'sample')} lost a call but got a result later. Such a score "
            f"is real, so the sample counts as healthy; in all they carry {share:.1%} of the "
            "weight."
        )


def _sources(answer: PoisonAnswer) -> Iterator[str]:
    evidence = answer.evidence
    if answer.reader.trainers:
        listed = ", ".join(answer.reader.trainers)
        yield f"Lines were read as those of {listed}."
    if evidence.used:
        listed = ", ".join(f"{source} {count:,}" for source, count in evidence.used.most_common())
        yield f"Samples with lost calls were recognised by: {listed}."
    yield (
        "A sandbox that lies (success without the output) leaves no trace in a dump or an event "
        "log."
    )
    yield from _event_log(answer)


def _event_log(answer: PoisonAnswer) -> Iterator[str]:
    events = answer.evidence.events
    if not events.calls:
        return
    if not answer.reader.with_id:
        yield (
            "The event log was not used: the dump has no id of the trajectory "
            "(`request_id`, or --key id=KEY)."
        )
    elif events.calls == events.unnamed:
        yield "The event log was not used: its lines name no trajectory."
    elif not events.matched:
        yield (
            "The event log was not used: it has none of these trajectories. Is it of another "
            "training?"
        )
    elif not answer.evidence.used[EVENTS]:
        yield (
            f"The event log has calls of {many(events.matched, 'sample')}, and none of them is "
            "lost."
        )
    if events.shared:
        yield (
            f"{many(events.shared, 'sample')} with the id of another one: the event log cannot "
            "tell them apart."
        )


def _limits(answer: PoisonAnswer) -> Iterator[str]:
    total = answer.found.total
    reader = answer.reader
    if total.users and total.covered < total.users:
        yield (
            f"There is evidence for {total.covered:,} of {total.users:,} samples that used the "
            "tool."
        )
    if total.missing:
        lacking = [step for step, figures in answer.found.steps if figures.missing]
        where = f"step {lacking[0]}"
        if len(lacking) > 1:
            where = f"{len(lacking)} of the steps {lacking[0]} to {lacking[-1]}"
            if lacking[-1] - lacking[0] + 1 == len(lacking):
                where = f"steps {lacking[0]} to {lacking[-1]}"
        yield (
            f"Groups of the usual size would have {many(total.missing, 'sample')} more, in "
            f"{where}: were they removed before the dump?"
        )
    if reader.by_input:
        yield (
            f"{many(reader.by_input, 'sample')} without a group id were grouped by equal inputs in "
            "a step."
        )
    if total.by[Handling.ZERO].alone:
        yield (
            f"{many(total.by[Handling.ZERO].alone, 'sample')} had no siblings: baseline 0, as in "
            "verl. If the dump has groups, name their key: --key group=KEY."
        )
    if total.unscored:
        lost = ""
        if total.unscored_lost:
            lost = f"; {total.unscored_lost:,} of them lost their last call"
        yield f"{many(total.unscored, 'sample')} without a finite score left out{lost}."
    if answer.found.outside and total.lost:
        low, high = answer.found.bounds
        yield (
            f"{many(answer.found.outside, 'score')} outside {low:g} to {high:g}: give --scores "
            "LOW,HIGH."
        )
    if answer.unread:
        yield f"{many(answer.unread, 'line')} could not be read."
