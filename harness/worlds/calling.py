"""One call of a scenario, made the way a rollout makes it, on any class with verl's interface."""

from __future__ import annotations

from typing import Any

from sfusion.harness.journal import Event
from sfusion.harness.scenarios.program import PreparedCall


async def call_tool(tool: Any, prepared: PreparedCall) -> dict[str, Any]:
    """create, execute, calc_reward, release; gives what the journal's event `returned` says.

    Old and new return shapes are understood: ``execute`` may give a plain string (verl up to 0.5), and ``create`` an
    id alone. What a tool does not tell stays None.
    """
    truth = prepared.prints.strip()
    instance: Any = None
    try:
        made = await tool.create(prepared.call, ground_truth=truth, create_kwargs={"ground_truth": truth})
        instance = made[0] if isinstance(made, tuple) else made
        answer = await tool.execute(instance, prepared.arguments, call_id=prepared.call)
        facts = read_result(answer)
        facts["reward"] = _number(await tool.calc_reward(instance))
    except Exception as error:  # whatever other people's tools raise is what the model would see of them
        facts = {"raised": type(error).__name__, "outcome": None, **_shown(f"{type(error).__name__}: {error}")}
    finally:
        if instance is not None:
            await tool.release(instance)
    return facts


def read_result(answer: Any) -> dict[str, Any]:
    """What ``execute`` gave."""
    response, _, metrics = answer if isinstance(answer, tuple) and len(answer) == 3 else (answer, None, None)
    text = response if isinstance(response, str) else getattr(response, "text", None)
    told = metrics if isinstance(metrics, dict) else {}
    facts: dict[str, Any] = {"outcome": told.get("outcome"), **_shown(text)}
    if "infrastructure" in told:
        facts["infrastructure"] = told["infrastructure"]
    if "permit_wait_s" in told:
        facts["waited"] = told["permit_wait_s"]
    return facts


def _shown(text: str | None) -> dict[str, Any]:
    whole = text or ""
    return {"text": whole, "chars": len(whole)}


def _number(reward: Any) -> float | None:
    return float(reward) if isinstance(reward, int | float) else None


def call_facts(prepared: PreparedCall, worker: str, default: float) -> Event:
    """The keys of the event ``called``; ``default`` is the timeout of programs that have none."""
    return {"call": prepared.call, "worker": worker, "intent": prepared.intent(default), "allowed": None}
