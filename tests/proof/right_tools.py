"""Right tools of other styles: what a trial must not accuse. Each says the same as ``GoodTool``, in
its own way."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.reference_tool import PROGRAMS, GoodTool, PeerResult

RIGHT_TOOLS: dict[str, type[GoodTool]] = {}


def right(name: str) -> Callable[[type[GoodTool]], type[GoodTool]]:
    def register(tool: type[GoodTool]) -> type[GoodTool]:
        RIGHT_TOOLS[name] = tool
        return tool

    return register


right("plain")(GoodTool)


@right("JSON texts")
class AnswersInJson(GoodTool):
    """The text is a JSON object."""

    ascii = False

    def text(self, result: PeerResult) -> str:
        if result.outcome not in PROGRAMS:
            return json.dumps({"status": result.outcome, "error": result.message})
        data = {
            "status": result.outcome,
            "stdout": self.cut(result.stdout),
            "stderr": self.cut(result.stderr),
        }
        return json.dumps({**data, "exit_code": result.code}, ensure_ascii=self.ascii)


@right("JSON texts, escaped")
class AnswersInAsciiJson(AnswersInJson):
    """The same, with every character beyond ASCII escaped."""

    ascii = True


@right("tagged")
class AnswersInTags(GoodTool):
    """Each part of the text is in a tag; stderr comes first."""

    def text(self, result: PeerResult) -> str:
        if result.outcome not in PROGRAMS:
            return f"<failure kind='{result.outcome}'>{result.message}</failure>"
        parts = {"stderr": self.cut(result.stderr), "stdout": self.cut(result.stdout)}
        tags = "\n".join(f"<{name}>\n{part}\n</{name}>" for name, part in parts.items() if part)
        return f"<result kind='{result.outcome}' code='{result.code}'>\n{tags}</result>"


class _Translated(GoodTool):
    words: dict[str, str]
    cut_words = ""

    def cut(self, text: str) -> str:
        return (
            text
            if len(text) <= 3000
            else f"{text[:3000]}\n{self.cut_words.format(len(text) - 3000)}"
        )

    def text(self, result: PeerResult) -> str:
        words = self.words[result.outcome].format(
            result.code if result.outcome in PROGRAMS else result.message
        )
        shown = "\n\n".join(
            part for part in (self.cut(result.stdout), self.cut(result.stderr)) if part
        )
        return f"{words}\n{shown}" if words else shown


@right("French")
class AnswersInFrench(_Translated):
    cut_words = "[{} caractères supprimés]"
    words = {  # noqa: RUF012 - not changed
        "ok": "Sortie du programme :",
        "program_error": "Le programme a échoué (code {}) :",
        "program_timeout": "Temps dépassé. Sortie partielle :",
        "compile_error": "La compilation a échoué :",
        "throttled": "Le serveur est saturé : {}",
        "sandbox_error": "Le serveur d'exécution a échoué : {}",
        "unreachable": "Le serveur est injoignable : {}",
        "transport_timeout": "Le serveur ne répond pas : {}",
        "bad_response": "Réponse illisible du serveur : {}",
        "bad_arguments": "Arguments refusés : {}",
    }


@right("Chinese")
class AnswersInChinese(_Translated):
    cut_words = "（已省略{}个字符）"
    words = {  # noqa: RUF012 - not changed
        "ok": "",
        "program_error": "程序以退出码{}结束：",
        "program_timeout": "程序运行超时，已有输出：",
        "compile_error": "编译失败：",
        "throttled": "沙箱繁忙，请稍后再试。",
        "sandbox_error": "沙箱故障：{}。",
        "unreachable": "无法连接沙箱：{}。",
        "transport_timeout": "沙箱没有响应。",
        "bad_response": "沙箱的回答无法解析。",
        "bad_arguments": "参数错误，没有运行：{}。",
    }


@right("terse")
class AnswersTersely(_Translated):
    """Strips the end of what a program printed, and shows its warnings only if it failed."""

    cut_words = "…+{}"
    words = {  # noqa: RUF012 - not changed
        "ok": "",
        "program_error": "E{}",
        "program_timeout": "T",
        "compile_error": "C",
        "throttled": "busy",
        "sandbox_error": "down",
        "unreachable": "gone",
        "transport_timeout": "gone?",
        "bad_response": "bad",
        "bad_arguments": "args",
    }

    def text(self, result: PeerResult) -> str:
        shown = PeerResult(
            result.outcome,
            message=result.message,
            stdout=result.stdout,
            stderr="" if result.code == 0 else result.stderr,
            code=result.code,
        )
        return super().text(shown).rstrip()


@right("head cut")
class CutsTheHead(GoodTool):
    """Of a long output the end is kept, with the number of lines."""

    def cut(self, text: str) -> str:
        lines = text.splitlines()
        return (
            text
            if len(text) <= 10_000
            else f"({len(lines)} lines, the last 100 follow)\n" + "\n".join(lines[-100:])
        )


@right("tail cut")
class CutsTheTail(GoodTool):
    """Of a long output the beginning is kept, up to a number of characters that the text names."""

    def cut(self, text: str) -> str:
        return text if len(text) <= 8_000 else f"{text[:8_000]}\n... (first 8000 characters)"


@right("one attempt only")
class MakesOneAttempt(GoodTool):
    """Nothing is sent twice: what fails is reported."""

    def may_retry(self, result: PeerResult, number: int) -> bool:
        return False


@right("quoted")
class AnswersInQuotes(GoodTool):
    """Each line of the output is quoted as in a mail."""

    def text(self, result: PeerResult) -> str:
        if result.outcome not in PROGRAMS:
            return super().text(result)
        quoted = "\n".join(f"> {line}" for line in self.cut(self.output(result)).split("\n"))
        return f"{result.outcome}, code {result.code}\n{quoted}"


@right("scores failures as none")
class ScoresNothingElse(GoodTool):
    """Only a right answer has a reward, and a wrong one a penalty; other ends have none."""

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> float | None:
        result = self.last.get(instance_id)
        if result is None or result.outcome != "ok":
            return None
        return 1.0 if result.stdout.strip() == self.truths[instance_id].strip() else -1.0
