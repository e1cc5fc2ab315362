"""Runs that show nothing: a promise cannot be held by a run in which what it is about did not happen."""

from __future__ import annotations

from sfusion.harness.lab.promises.base import Promise
from sfusion.harness.lab.promises.story import CallStory, Story
from sfusion_tools.rollout.states import EndCause
from sfusion_tools.wording import counted

UNOBSERVED = (
    "no request of this tool reached the sandbox: it sends none, or does its I/O outside the event loop (threads, "
    "processes), which virtual time does not cover; try --world ray"
)


def shows_nothing(story: Story, promise: Promise) -> str | None:
    """Return why a run says nothing about a promise; None if it does."""
    if promise.of_rollouts:
        refused = any(one["ended_by"] == EndCause.PROMPT_TOO_LONG for one in story.of_world("rollout_ended"))
        spoke = any(one["event"] == "spoke" for one in story.engine)
        return None if spoke or refused else "the engine never answered"
    if not story.made:
        return "no call was made"
    calls = counted(len(story.made), "call")
    if not any(_was_handled(call, story) for call in story.made):
        raised = sum(bool(call.returned and call.returned.get("raised")) for call in story.made)
        if raised:
            return f"the tool raised in {raised} of {calls} and finished none"
        return UNOBSERVED if story.of_world("unobserved") else f"none of {calls} was sent to a sandbox and ended"
    if promise.needs == "result" and not any(call.succeeded for call in story.made):
        return f"none of {calls} got a result of its program"
    return None


def _was_handled(call: CallStory, story: Story) -> bool:
    """Did the tool do something about the call, and did the call end because of that?"""
    returned = call.returned
    if returned is None or returned.get("raised"):
        return False
    if call.of_client("attempt_started") or call.server or call.intent.get("kind") == "bad_arguments":
        return True
    # Nobody sees the connections that a tool of another class is refused.
    return story.foreign and not story.of_world("unobserved")
