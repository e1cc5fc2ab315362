"""Draws scenarios: a pure function of a random stream. Each case leaves some features out (swarm testing)."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from sfusion.fakes.faults import KINDS
from sfusion.fakes.sglang.malformed import kinds as malformed_kinds
from sfusion.fakes.sglang.malformed import malformed
from sfusion.harness.lab.scenarios.events import KINDS as EVENT_KINDS
from sfusion.harness.lab.scenarios.model import Scenario
from sfusion.harness.search.hunt.drawing import draw_action, draw_duration
from sfusion.harness.search.hunt.expectations import is_clear, response_room
from sfusion_tools.formats import format_names

Data = dict[str, Any]

FEATURES = (
    "nodes", "link", "faults", "two_faults", "gentle_faults", "plain_fault", "instances", "uneven", "model", "events",
    "two_events", "kills",
    "cancel", "odd_programs", "long_programs", "loud_programs", "languages", "bad_arguments", "think", "tool_keys",
    "retries", "once", "no_limiter", "headers", "profile", "schedule", "burst",
)  # fmt: skip
"""What a case may have; each case has a part of them."""
_ALONE = (*FEATURES, *("uneven", "burst", "once") * 3)
"""What may be the only feature; these three hardly show where much else happens."""

_PLAIN: Data = {"seconds": 0.5, "prints": "{call}\n"}
_ODD: tuple[Data, ...] = (
    {"exit": 1, "prints": ""},
    {"exit": 3, "prints": "half\n", "errors": "gave up\n"},
    {"exit": -9, "prints": "so far {call}\n"},
    {"raises": "ValueError: {call}", "prints": "before\n"},
    {"raises": "ValueError: bad", "prints": ""},
    {"prints": ""},
    {"prints": "", "errors": "only a warning\n"},
    {"memory": 4000, "prints": "never\n", "raises": "MemoryError"},
    {"sandbox_error": "no space left on device"},
    {"repeated": True, "prints": "4\n"},
    {"prints": "déjà vu 🚀 {call}\n"},
    {"prints": "\x1b[31m{call}\x1b[0m\n", "errors": "\x1b[1mred\x1b[0m\n"},
    {"prints": "[DecodeError] 'utf-8' codec can't decode byte 0xff\n"},
)
_COLOURED: Data = {"prints": "4\n", "errors": "\x1b[0;31m\x1b[1m" * 200 + "Traceback\x1b[0m\n", "exit": 1}
_LONG: tuple[Data, ...] = (
    {"seconds": 3600, "early": "step 1 of {call}\n"},
    {"seconds": 3600, "timeout": 900, "early": "begun {call}\n"},
    {"seconds": 3600, "prints": ""},
    {"seconds": {"uniform": [1, 20]}, "prints": "{call}\n"},
    {"seconds": 6.971, "timeout": 8, "prints": "{call}\n"},
    {"seconds": {"choice": [4.99, 5.0, 5.01]}, "prints": "{call}\n"},
)
_LOUD: tuple[Data, ...] = (
    {"prints": "{call}{fill:5000}end\n"},
    {"prints": "{fill:30000}\n"},
    {"prints": "{fill:262144}\n"},
    {"prints": "x{call} " + "é" * 800 + "\n"},
    {"prints": "{fill:30000}\n", "errors": "Traceback {call}\n", "exit": 1},
    {"early": "{fill:400}\n", "prints": "{call}\n"},
)
_LANGUAGES: tuple[Data, ...] = (
    {"language": "cpp", "prints": "{call}\n"},
    {"language": "cpp", "compile_exit": 1, "compile_errors": "main.cpp:1:1: error: expected unqualified-id\n"},
    {"language": "go", "compile_exit": 127, "compile_errors": "/bin/bash: go: command not found\n"},
)
_ARGUMENTS: tuple[Any, ...] = (
    [1, 2], {"code": 123}, {}, {"code": "print(1)", "language": "python3"}, {"code": "print(1)", "timeout": "abc"},
    "print(1)", {"code": ""}, {"code": "print(1)", "timeout": -1}, 7,
)  # fmt: skip
_GENTLE: tuple[Data, ...] = (
    {"first_attempts": 1, "what": {"status": 503}},
    {"first_attempts": 2, "what": {"status": 503}},
    {"first_attempts": 1, "what": {"status": 429}},
    {"first_attempts": 1, "what": {"status": 429, "retry_after": 2}},
    {"first_attempts": 2, "what": {"status": 429, "retry_after": 0.5}},
    {"first_attempts": 1, "what": {"status": 502}},
    {"first_attempts": 1, "what": "reset"},
    {"first_attempts": 1, "what": {"truncate": 0.5}},
    {"what": {"content_type": "text/html"}},
    {"what": {"output": {"what": "null", "stream": "stderr"}}},
    {"first_attempts": 1, "every": 3, "what": {"hang": True}},
    {"what": {"delay": 0.317}},
    {"what": {"drip": {"bytes": 100, "every": 1.019}}},
)
"""Faults that a good tool copes with, so that it is known how every call must end."""
_PLAIN_FAULTS: tuple[Data, ...] = (
    {"what": {"status": 500}},
    {"what": {"status": 404, "body": "no such route"}},
    {"what": {"status": 202, "body": "queued"}},
    {"what": {"status": 200, "body": "<html>busy</html>"}},
    {"phase": "after", "what": {"status": 504}},
    {"phase": "after", "what": "reset"},
    {"what": {"output": "not_utf8"}},
    {"what": {"malformed": "json"}},
    {"what": "hang"},
    {"what": "sandbox_error"},
    {"what": {"output": {"what": "null", "stream": "both"}}},
    {"what": {"drip": {"bytes": 1, "every": 1.019}}},
)
"""Faults that end a call, or must not: each alone, often."""
_SLOW: Data = {"faults": [{"name": "slow", "what": {"delay": 3.037}}]}
_WIDE: dict[str, dict[str, int]] = {
    "burst": {"rate_limit": 16, "calls": 32},
    "uneven": {"rate_limit": 8, "calls": 96},
}
_SECRET = {"Authorization": "Bearer canary-7f3a9c"}


def generate(draw: random.Random, keys: frozenset[str] | None = None) -> Data:
    """Return a scenario without name and promises. ``keys`` are those of the tool's config; None for our own tool."""
    while True:
        data = _Generator(draw, keys).scenario()
        if valid(data):
            return data


def valid(data: Mapping[str, Any]) -> bool:
    """Can this be a scenario whose runs can be judged?"""
    try:
        return is_clear(named(data))
    except ValueError:
        return False


def named(data: Mapping[str, Any], **more: Any) -> Scenario:
    """Return the scenario that these data are; raise ValueError if they are none."""
    whole = {"scenario": "hunted", "about": "a hunted case", "promises": ["every_call_ends_once"], **data, **more}
    return Scenario.from_data(whole)


class _Generator:
    def __init__(self, draw: random.Random, keys: frozenset[str] | None) -> None:
        self._draw = draw
        self._keys = keys
        # How many features a case has differs as well: some have hardly any, some nearly all.
        density = draw.choice((0.1, 0.25, 0.25, 0.4, 0.6))
        self._features = {name for name in FEATURES if draw.random() < density}
        if not draw.randrange(4):
            self._features = {draw.choice(_ALONE)}
        self._wide = _WIDE[max(wide)] if (wide := self._features & _WIDE.keys()) and draw.random() < 0.8 else None
        """A load that keeps several sandboxes, or a limit of requests per second, busy."""

    def _has(self, feature: str) -> bool:
        return feature in self._features

    def scenario(self) -> Data:
        draw = self._draw
        data: Data = {"seed": draw.randrange(1_000_000)}
        if cluster := self._cluster():
            data["cluster"] = cluster
        data["tools"] = self._tools()
        if sandbox := self._sandbox():
            data["sandbox"] = sandbox
        if draw.random() < 0.2:
            data["rollouts"] = self._rollouts()
        else:
            data["load"] = self._load(data)
        if events := self._events(data):
            data["events"] = events
        if self._has("schedule") and "schedule" in Scenario.model_fields:
            data["schedule"] = self._schedule()
        return data

    # -- where it runs --

    def _cluster(self) -> Data:
        draw = self._draw
        found: Data = {}
        if self._has("nodes"):
            found = {"nodes": draw.randint(1, 3), "workers_per_node": draw.randint(1, 2)}
        if self._has("link"):
            loss = draw.choice((0, 0, 0.02, 0.1, 0.3))
            found["link"] = {"delay": draw_duration(draw, 1.0), **({"loss": loss} if loss else {})}
        return found

    def _schedule(self) -> Data:
        draw, seed = self._draw, self._draw.randrange(1_000_000)
        return draw.choice(({"random": seed}, {"priority": seed, "changes": draw.randint(1, 4)}))

    # -- the tool --

    def _tools(self) -> Data:
        draw = self._draw
        found: Data = {"rate_limit": self._wide["rate_limit"] if self._wide else draw.choice((1, 2, 3, 4, 8))}
        if self._has("no_limiter"):
            found["enable_global_rate_limit"] = False
        if self._has("retries"):
            found["max_attempts"] = draw.randint(1, 4)
            if draw.random() < 0.4:
                found["retry_may_have_run"] = False
        if self._has("once"):
            found["retry_may_have_run"] = False
        if self._has("headers"):
            found["headers"] = _SECRET
        if self._has("burst"):
            rate = 10.0 if self._wide else draw.choice((2.0, 10.0))
            found |= {"requests_per_second": rate, "requests_burst": draw.choice((1, 4))}
        if self._has("tool_keys"):
            choices: Data = {
                "default_timeout": (2.0, 5.0, 10.0), "max_timeout": (3.0, 8.0), "transport_margin": (1.013, 2.027),
                "permit_lease": (1.0, 3.0, 5.0), "adaptive_rate_limit": (True,), "max_output_chars": (200, 300, 2000),
                "backoff_base": (0.2, 1.0), "backoff_cap": (1.0, 4.0), "call_deadline": (4.0, 30.0),
                "queue_timeout": (3.0, None), "total_timeout": (10.0, 60.0), "compile_timeout": (1.0,),
                "memory_limit_mb": (256, -1), "max_response_mb": (0.05,),
            }  # fmt: skip
            found |= {key: draw.choice(values) for key, values in choices.items() if draw.random() < 0.35}
        if self._keys is not None:
            found = {key: value for key, value in found.items() if key in self._keys}
        return found

    # -- the sandbox --

    def _sandbox(self) -> Data:
        draw = self._draw
        found: Data = {}
        if self._has("profile"):
            found["profile"] = draw.choice(("2026-07", "2025-06"))
        if self._has("model"):
            found["model"] = self._model()
        elif self._has("burst") and self._wide:  # a gateway that a paced tool never exceeds
            found["model"] = {"kind": "quota", "per_second": 12.0, "burst": 8, "retry_after": 1.5}
        if self._has("instances") or self._has("uneven"):
            found["instances"] = draw.randint(2, 3)
            found["each"] = {"sandbox-1": _SLOW if self._has("uneven") else self._instance()}
        if faults := self._faults():
            found["faults"] = faults
        return found

    def _model(self) -> Data:
        draw = self._draw
        kinds: tuple[Data, ...] = (
            {"kind": "unbounded"},
            {"kind": "queue", "workers": draw.randint(1, 6)},
            {"kind": "queue", "workers": draw.randint(1, 4), "waiting": draw.randint(0, 3)},
            {"kind": "quota", "in_flight": draw.randint(1, 6)},
            {"kind": "quota", "per_second": draw.choice((3.0, 12.0)), "burst": draw.choice((1, 8))},
        )
        model = dict(draw.choice(kinds))
        if model["kind"] != "unbounded" and draw.random() < 0.5:
            model["retry_after"] = draw.choice((0.2, 1.5))
        if draw.random() < 0.25:
            model["cores"] = draw.choice((1, 2, 4))
        if draw.random() < 0.25:
            model["spawn_cost"] = draw.choice((0.005, 0.04))
        return model

    def _instance(self) -> Data:
        draw = self._draw
        sick: tuple[Callable[[], Data], ...] = (
            lambda: {"faults": [{"name": "sick", "what": {"status": 503}}]},
            lambda: {"faults": [self._rule("sick")]},
            lambda: {"profile": "2025-06"},
        )
        return draw.choice(sick)()

    def _faults(self) -> list[Data]:
        draw, rules = self._draw, []
        if self._has("gentle_faults"):
            rules.append({"name": "gentle", **draw.choice(_GENTLE)})
        if self._has("once"):  # the program has run, and only a gateway says that it failed
            late = {"phase": "after", "what": {"status": draw.choice((502, 504))}}
            rules.append({"name": "late", "every": draw.randint(1, 3), **late})
        if self._has("plain_fault"):
            rules.append({"name": "plain", "every": draw.randint(1, 3), **draw.choice(_PLAIN_FAULTS)})
        if self._has("faults"):
            rules.append(self._rule("one"))
            if self._has("two_faults"):
                rules.append(self._rule("two"))
                if draw.random() < 0.3:  # both strike the same attempts
                    conditions = {
                        key: value for key, value in rules[-1].items() if key not in ("name", "what", "phase")
                    }
                    rules.append({**self._rule("three", conditions=conditions), **conditions})
        return rules

    def _rule(self, name: str, conditions: Data | None = None) -> Data:
        draw = self._draw
        kind = KINDS[draw.choice(sorted(KINDS))]
        rule: Data = {"name": name, **(self._conditions() if conditions is None else {})}
        if draw.random() < 0.7:
            rule["phase"] = draw.choice(kind.phases)
        rule["what"] = draw_action(kind, draw)
        if draw.random() < 0.15:
            rule["what"] = [rule["what"], draw_action(KINDS[draw.choice(sorted(KINDS))], draw)]
        return rule

    def _conditions(self) -> Data:
        draw = self._draw
        choices: Data = {
            "first": draw.randint(1, 6), "first_attempts": draw.randint(1, 3), "every": draw.randint(1, 5),
            "after": draw.randint(0, 6), "between": sorted(draw.sample((0, 0.5, 1, 2, 4, 8), 2)),
            "above_in_flight": draw.randint(0, 4), "probability": draw.choice((0.1, 0.4, 0.8)),
            "times": draw.randint(1, 6), "call": draw.choice(("c000[1-3]", "*1", "r001.*")),
        }  # fmt: skip
        found = {key: value for key, value in choices.items() if draw.random() < 0.16}
        return found or {"every": draw.randint(1, 4)}

    # -- the load --

    def _load(self, data: Data) -> Data:
        draw = self._draw
        calls = draw.choice((3, 6, 8, 12, 12, 16, 24, 32))
        load: Data = {"calls": calls, "concurrency": min(calls, draw.choice((1, 2, 4, 6, 12, 24)))}
        if self._wide:
            load = {"calls": self._wide["calls"], "concurrency": 2 * self._wide["rate_limit"]}
        programs = self._programs(data)
        load["program"] = programs[0] if len(programs) == 1 else programs
        if self._has("think"):
            load["think"] = draw.choice((draw_duration(draw, 6.0), {"choice": [3.99, 4.01, 4.99, 5.0, 5.01]}))
        if self._has("cancel"):
            load["cancel"] = {"share": draw.choice((0.2, 0.5, 1.0)), "after": draw_duration(draw, 6.0)}
        return load

    def _programs(self, data: Data) -> list[Data]:
        draw = self._draw
        programs = [{**_PLAIN, "seconds": draw.choice((0, 0.051, 0.503, 1.007, 2.511, {"uniform": [0.1, 1.5]}))}]
        if not self._has("no_limiter") and draw.random() < 0.2:
            programs = []
        for feature, several in (
            ("odd_programs", _ODD), ("long_programs", _LONG), ("loud_programs", _LOUD), ("languages", _LANGUAGES),
        ):  # fmt: skip
            if self._has(feature):
                programs += [dict(one) for one in draw.sample(several, draw.randint(1, 2))]
        if self._has("bad_arguments") and "load" not in data:
            programs += [{"arguments": one} for one in draw.sample(_ARGUMENTS, 2)]
        return programs or [dict(_PLAIN)]

    # -- rollouts --

    def _rollouts(self) -> Data:
        draw = self._draw
        name = draw.choice(format_names())
        turns = [self._turn(name) for _ in range(draw.randint(1, 3))]
        found: Data = {"count": draw.randint(1, 6), "format": name, "turns": [*turns, {"say": "It is 4."}]}
        if draw.random() < 0.2:
            found["at_once"] = draw.randint(1, 3)
        if draw.random() < 0.15:
            found["enough"] = draw.randint(1, found["count"])
        if draw.random() < 0.1:
            found |= {"repeat": True, "limits": {"max_assistant_turns": draw.randint(2, 4)}}
        elif draw.random() < 0.4:
            found |= {"turns": [{"say": "Compute.", "programs": [dict(_COLOURED)]}, {"say": "It is 4."}]}
            found["limits"] = {"max_response_len": response_room(found["turns"], name)}
        elif draw.random() < 0.5:
            found["limits"] = self._limits()
        if draw.random() < 0.2:
            kinds = [kind for kind in sorted(KINDS) if not KINDS[kind].sandbox_only]
            found["faults"] = [
                {"name": "engine", **self._conditions(), "what": draw_action(KINDS[draw.choice(kinds)], draw)}
            ]
            for condition in ("call", "above_in_flight"):
                found["faults"][0].pop(condition, None)
            for kind in ("hang", "wedge"):  # nothing bounds how long an engine may take
                if kind in found["faults"][0]["what"]:
                    found["faults"][0]["what"] = {kind: draw.choice((2, 20))}
        return found

    def _turn(self, name: str) -> Data:
        draw = self._draw
        programs = [{key: value for key, value in one.items() if key not in ("repeated", "arguments")}
                    for one in self._programs({"load": None})]  # fmt: skip
        for one in programs:
            one["prints"] = str(one.get("prints", "4\n")).replace("{call}", "4")
        turn: Data = {
            "say": draw.choice(("Compute.", "naïve 🚀", "")),
            "programs": draw.sample(programs, 1 if draw.random() < 0.6 else len(programs)),
        }
        possible = [kind for kind in malformed_kinds() if malformed(kind, name, 0) is not None]
        if possible and self._has("bad_arguments") and draw.random() < 0.5:
            turn["malformed"] = draw.choice(possible)
        return turn

    def _limits(self) -> Data:
        draw = self._draw
        bounds = (5, 60, 300, 2000, "fits-1", "fits", "fits+1")
        keys = ("max_response_len", "max_model_len", "max_tool_response_length", "max_prompt_len")
        found: Data = {draw.choice(keys): draw.choice(bounds)}
        if draw.random() < 0.3:
            found["tool_response_truncate_side"] = draw.choice(("left", "right", "middle"))
        if draw.random() < 0.2:
            found["max_parallel_calls"] = 1
        if draw.random() < 0.2:
            found["max_consecutive_invalid_calls"] = draw.randint(1, 2)
        return found

    # -- what happens meanwhile --

    def _events(self, data: Data) -> list[Data]:
        draw = self._draw
        if self._has("events"):
            count = draw.randint(2, 3) if self._has("two_events") else 1
        else:
            count = 1 if self._has("kills") else 0
        return [self._event(data, draw.choice(("kill", "pause", "cut_off")) if self._has("kills") else None)
                for _ in range(count)]  # fmt: skip

    def _event(self, data: Data, kind: str | None) -> Data:
        draw = self._draw
        cluster = data.get("cluster", {})
        nodes, per_node = cluster.get("nodes", 1), cluster.get("workers_per_node", 1)
        workers = [f"n{n}-w{w}" for n in range(1, nodes + 1) for w in range(1, per_node + 1)]
        boxes = ["sandbox", *(f"sandbox-{n}" for n in range(1, data.get("sandbox", {}).get("instances", 1) + 1))]
        kind = kind or draw.choice(EVENT_KINDS)
        targets: dict[str, Any] = {
            "kill": [*workers, f"node-{draw.randint(1, nodes)}", "limiter"],
            "restart": ["limiter", "sandbox"],
            "crash": boxes,
            "wedge": boxes,
            "resize": [1, 2, 5, 20],
            "cancel": [0.3, 1.0],
        }
        event: Data = {
            "at": draw.choice((0, 0.109, 0.313, 0.907, 2.003, 5.023)),
            kind: draw.choice(targets.get(kind, workers)),
        }
        if kind in ("pause", "cut_off") or (kind in ("kill", "crash", "wedge") and draw.random() < 0.8):
            event["seconds"] = draw.choice((0.211, 1.523, 4.019, 12.043))
        if event.get("kill") == "limiter":
            event.setdefault("seconds", 4)  # a limiter that never returns leaves nothing to judge
        if kind == "wedge" and draw.random() < 0.3:
            event["ping"] = "dead"
        return event
