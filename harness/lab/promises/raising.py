"""The promise about tools that raise."""

from __future__ import annotations

from sfusion.harness.lab.promises.base import Promise, evidence
from sfusion.harness.lab.promises.story import Story
from sfusion.harness.lab.promises.verdict import Verdict
from sfusion_tools.wording import counted


class ToolNeverRaises(Promise):
    """The tool never raises: the model would read a traceback, and verl scores the call 0. Judged in every run."""

    always = True
    needs = "ending"

    def judge(self, story: Story) -> Verdict:
        raised = [call for call in story.made if call.raised]
        if not story.made:
            return self.unknown("no call was made")
        if raised:
            returned = raised[0].returned or {}
            place = f", {returned['raised_at']}" if returned.get("raised_at") else ""
            what = returned.get("text") or returned["raised"]
            return self.broken(f"the tool raised {what} ({raised[0].call}{place})", evidence(raised[0]), len(raised))
        return self.held(f"{counted(len(story.made), 'call')}, none raised")
