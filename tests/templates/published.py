"""What published chat templates do, as measured with ``python -m tests.templates FOLDER``.

The templates are not ours to keep: each is named by the file and by the beginning of its SHA-256.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

AS_OF = "2026-08-22"
"""Of this day are the collections of templates: llama.cpp's models/templates, vLLM's examples."""


@dataclass(frozen=True)
class Published:
    """The row of a published template."""

    file: str
    sha256: str
    same: str
    thinking: str
    form: str

    def note(self, row: Sequence[str]) -> str:
        """Return what to say beside a row: the date, and what this template does differently."""
        found = (self.same, self.thinking, self.form)
        others = [cell for cell, ours in zip(found, row, strict=True) if cell != ours]
        author = ", vLLM's" if self.file.startswith("tool_chat_template_") else ""
        return AS_OF + author + (f": {', '.join(others)}" if others else "")


PUBLISHED = {
    "command-r7b": Published(
        "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
        sha256="cc60b553279347d8",
        same="✓; user turn after tools: earlier",
        thinking="`enable_thinking`",
        form="command_r7b",
    ),
    "deepseek-v3.1": Published(
        "deepseek-ai-DeepSeek-V3.1",
        sha256="d9f5f351b276cf9e",
        same="✓",
        thinking="`enable_thinking`",
        form="deepseekv31",
    ),
    "deepseek-v3.2": Published(
        "deepseek-ai-DeepSeek-V3.2",
        sha256="8e5a13fcc4bdd4d9",
        same="earlier",
        thinking="`enable_thinking`",
        form="deepseekv32",
    ),
    "gemma-4": Published(
        "google-gemma-4-31B-it",
        sha256="85a08664d16d8f3b",
        same="earlier",
        thinking="`enable_thinking`",
        form="gemma4",
    ),
    "gpt-oss": Published(
        "openai-gpt-oss-120b",
        sha256="a4c9919cbbd4acdd",
        same="✓",
        thinking="–",
        form="gpt-oss",
    ),
    "hermes-3": Published(
        "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
        sha256="7ce09d55d3690e06",
        same="✓; user turn after tools: earlier",
        thinking="–",
        form="qwen25",
    ),
    "kimi-k2": Published(
        "moonshotai-Kimi-K2",
        sha256="9fcc72b7c248a720",
        same="✓",
        thinking="–",
        form="kimi_k2",
    ),
    "kimi-k3": Published(
        "Kimi-K3",
        sha256="4578103bf225f58d",
        same="✓",
        thinking="`thinking`",
        form="kimi_k3",
    ),
    "llama-3.1": Published(
        "meta-llama-Llama-3.1-8B-Instruct",
        sha256="e10ca381b1ccc5cf",
        same="✓; parallel calls: no",
        thinking="–",
        form="llama3",
    ),
    "llama-4-json": Published(
        "tool_chat_template_llama4_json",
        sha256="c5d275e741705515",
        same="✓; user turn after tools: earlier",
        thinking="–",
        form="llama3 (by id)",
    ),
    "mistral-nemo": Published(
        "mistralai-Mistral-Nemo-Instruct-2407",
        sha256="e4676cb56dffea77",
        same="✓; system message: earlier",
        thinking="–",
        form="mistral",
    ),
    "qwen2.5": Published(
        "Qwen-Qwen2.5-7B-Instruct",
        sha256="cd8e9439f0570856",
        same="✓",
        thinking="–",
        form="qwen25",
    ),
    "qwen3-coder": Published(
        "Qwen3-Coder",
        sha256="d287fb2edf144207",
        same="✓",
        thinking="–",
        form="qwen3_coder",
    ),
    "qwen3": Published(
        "Qwen-Qwen3-0.6B",
        sha256="87a2728cb8dc9fe4",
        same="✓",
        thinking="`enable_thinking`",
        form="qwen25",
    ),
    "reka-edge": Published(
        "Reka-Edge",
        sha256="546b04dba74993ef",
        same="✓",
        thinking="`enable_thinking`",
        form="hermes",
    ),
    "solar-open": Published(
        "upstage-Solar-Open-100B",
        sha256="4618a1ec1a3442b9",
        same="✓",
        thinking="–",
        form="solar_open",
    ),
    "QwQ-32B": Published(
        "Qwen-QwQ-32B",
        sha256="5ed15374ce53e19a",
        same="earlier",
        thinking="`enable_thinking`",
        form="qwen25",
    ),
    "Qwen3.5": Published(
        "Qwen3.5-4B",
        sha256="a4aee8afcf2e0711",
        same="✓; user turn after tools: earlier",
        thinking="`enable_thinking`",
        form="qwen3_coder",
    ),
    "Hermes-2-Pro": Published(
        "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
        sha256="7ce09d55d3690e06",
        same="✓; user turn after tools: earlier",
        thinking="–",
        form="qwen25",
    ),
    "SmolLM3": Published(
        "HuggingFaceTB-SmolLM3-3B",
        sha256="19eacf64569032f0",
        same="✓",
        thinking="`enable_thinking`",
        form="hermes (by id)",
    ),
    "MiMo-VL": Published(
        "MiMo-VL",
        sha256="10490379c20af484",
        same="✓",
        thinking="–",
        form="qwen25",
    ),
    "xLAM-2-qwen": Published(
        "tool_chat_template_xlam_qwen",
        sha256="1d41a6a1069756ec",
        same="✓",
        thinking="–",
        form="xlam",
    ),
    "LFM2": Published(
        "LFM2-8B-A1B",
        sha256="2294f49b51a0b9a1",
        same="✓",
        thinking="–",
        form="lfm2",
    ),
    "Step-3.5-Flash": Published(
        "StepFun3.5-Flash",
        sha256="b18b99dff7261214",
        same="✓; user turn after tools: earlier",
        thinking="always",
        form="qwen3_coder",
    ),
    "InternLM2.5": Published(
        "tool_chat_template_internlm2_tool",
        sha256="e00f16381b76d36b",
        same="✓",
        thinking="–",
        form="internlm",
    ),
    "Nemotron-3-Nano": Published(
        "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
        sha256="ab7813c3abdd9cb6",
        same="earlier",
        thinking="`enable_thinking`",
        form="qwen3_coder",
    ),
    "Llama-3.2": Published(
        "meta-llama-Llama-3.2-3B-Instruct",
        sha256="5816fce10444e03c",
        same="✓; parallel calls: no",
        thinking="–",
        form="llama3",
    ),
    "ToolACE-2": Published(
        "tool_chat_template_toolace",
        sha256="b9ded9033e0fe544",
        same="✓",
        thinking="–",
        form="pythonic (by id)",
    ),
    "Llama-4 pythonic": Published(
        "tool_chat_template_llama4_pythonic",
        sha256="3fe950790d033a6e",
        same="✓",
        thinking="–",
        form="pythonic",
    ),
    "Llama-xLAM-2": Published(
        "tool_chat_template_xlam_llama",
        sha256="777a5f5ca9ed21c5",
        same="✓",
        thinking="–",
        form="xlam",
    ),
    "Mistral-Small-3.2": Published(
        "Mistral-Small-3.2-24B-Instruct-2506",
        sha256="5b8f31f111986965",
        same="✓",
        thinking="–",
        form="mistral",
    ),
    "Devstral-Small": Published(
        "unsloth-mistral-Devstral-Small-2507",
        sha256="039a4710e2aabaa7",
        same="✓",
        thinking="–",
        form="mistral",
    ),
    "DeepSeek-V3-0324": Published(
        "tool_chat_template_deepseekv3",
        sha256="76233095fd644a62",
        same="earlier",
        thinking="–",
        form="deepseekv3",
    ),
    "DeepSeek-V4": Published(
        "deepseek-ai-DeepSeek-V4",
        sha256="7bd4fbdf0c06cd73",
        same="✓",
        thinking="`enable_thinking`",
        form="deepseekv4",
    ),
    "GLM-4.6": Published(
        "GLM-4.6",
        sha256="8804f445c761b9f2",
        same="✓",
        thinking="`enable_thinking`",
        form="glm45",
    ),
    "GLM-4.7": Published(
        "GLM-4.7-Flash",
        sha256="d63ad536c3c81880",
        same="earlier",
        thinking="`enable_thinking`",
        form="glm47",
    ),
    "MiniMax-M2": Published(
        "MiniMax-M2",
        sha256="967ff7e387676f4b",
        same="earlier",
        thinking="always",
        form="minimax_m2",
    ),
    "MiniMax-M3": Published(
        "MiniMax-M3",
        sha256="11421244f6755349",
        same="✓",
        thinking="–",
        form="minimax_m3",
    ),
    "Seed-OSS": Published(
        "ByteDance-Seed-OSS",
        sha256="3f9e0dc4adeb8032",
        same="✓",
        thinking="–",
        form="seed_oss",
    ),
    "Hunyuan-A13B": Published(
        "tool_chat_template_hunyuan_a13b",
        sha256="05d3f879ab204075",
        same="✓; system message: earlier",
        thinking="`enable_thinking`",
        form="hunyuan_a13b",
    ),
    "Hy3": Published(
        "tencent-Hy3",
        sha256="84437b9746423f04",
        same="✓",
        thinking="–",
        form="hunyuan_v3_open",
    ),
    "Granite-3.3": Published(
        "ibm-granite-granite-3.3-2B-Instruct",
        sha256="3c71df5f65998746",
        same="✓",
        thinking="–",
        form="granite",
    ),
    "Granite-4.0": Published(
        "ibm-granite-granite-4.0",
        sha256="9524df67b77a7b25",
        same="✓",
        thinking="–",
        form="hermes",
    ),
    "Phi-4-mini": Published(
        "tool_chat_template_phi4_mini",
        sha256="b79920e63d66e055",
        same="✓",
        thinking="–",
        form="phi4_mini (by id)",
    ),
    "Apertus": Published(
        "Apertus-8B-Instruct",
        sha256="dea688e9f24a339a",
        same="✓; user turn after tools: earlier",
        thinking="`enable_thinking`",
        form="apertus",
    ),
    "Nemotron-Nano-v2": Published(
        "NVIDIA-Nemotron-Nano-v2",
        sha256="52ae8e50fa083e63",
        same="earlier",
        thinking="always",
        form="nemotron",
    ),
    "FunctionGemma": Published(
        "tool_chat_template_functiongemma",
        sha256="9d60691c7f5e3fe6",
        same="✓",
        thinking="–",
        form="functiongemma",
    ),
    "Gemma-3 pythonic": Published(
        "tool_chat_template_gemma3_pythonic",
        sha256="659a5b7f8c93ba63",
        same="✓",
        thinking="–",
        form="pythonic",
    ),
}
