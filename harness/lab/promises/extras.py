"""The promise that verl's trainer learns how calls ended."""

from __future__ import annotations

from collections import Counter

from sfusion.harness.lab.journal import Event
from sfusion.harness.lab.promises.base import Promise, evidence
from sfusion.harness.lab.promises.story import Story
from sfusion.harness.lab.promises.verdict import Verdict
from sfusion_tools.wording import counted


class OutcomeInExtras(Promise):
    """The outcome of every call reaches verl's trainer: verl drops the metrics of `execute`, so a tool leaves it in
    `agent_data.extra_fields["extras"]`. In rollouts the trajectory counts the outcomes of its calls. Does not apply to
    a tool that states no outcomes."""

    needs = "ending"

    def judge(self, story: Story) -> Verdict:
        if not story.states_outcomes:
            why = "the tool states no outcomes"
            return self.not_applicable(why) if story.foreign else self.unknown(why)
        ended = {event["rollout"]: event for event in story.of_world("rollout_ended")}
        rolled = {event["rollout"] for event in story.of_world("rollout_started")}
        wrong: list[tuple[str, list[Event]]] = []
        stated: dict[str, Counter[str]] = {}
        judged = 0
        for call in story.made:
            returned = call.returned
            if returned is None or returned.get("raised"):
                continue
            outcome = returned.get("outcome")
            rollout = call.call.partition(".")[0]
            if outcome is None:
                continue
            if rollout in ended:
                stated.setdefault(rollout, Counter())[outcome] += 1
            if rollout in rolled:  # one that was lost with its worker counts nothing
                continue
            judged += 1
            if returned.get("extras") != outcome:
                found = f"say {returned['extras']}" if returned.get("extras") else "do not say so"
                wrong.append((f"call {call.call} ended {outcome}, but the extras {found}", evidence(call)))
        for rollout, outcomes in stated.items():
            judged += outcomes.total()
            event = ended[rollout]
            # A trajectory that is cancelled or fails counts no more.
            if event["ended_by"] not in ("cancelled", "failed") and event["outcomes"] != dict(outcomes):
                text = f"the calls of rollout {rollout} ended {dict(outcomes)}, but it counts {event['outcomes']}"
                wrong.append((text, [event]))
        if wrong:
            return self.broken(*wrong[0], len(wrong))
        if not judged:
            return self.unknown("no call returned")
        return self.held(f"{counted(judged, 'outcome')}, all known to the trainer")
