"""A Hugging Face tokenizer on disk behaves like the built-in one, or an error says why it cannot be used."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from sfusion_tools.errors import MissingExtra
from sfusion_tools.tokenizers import (
    ByteTokenizer,
    HfTokenizer,
    TokenizerNotFound,
    load_tokenizer,
)

pytestmark = pytest.mark.xdist_group("transformers")

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONVERSATION = [{"role": "user", "content": "how many? 3½"}, {"role": "tool", "content": "149\n"}]


def save_tokenizer(
    directory: Path, template: str | None, eos: str = "<|im_end|>", special: Sequence[str] = ("<|im_start|>",)
) -> Path:
    """Save a byte-level BPE without merges, as in a model directory."""
    pytest.importorskip("transformers", reason="extra hf is not installed")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        bos_token="<|bos|>",
        eos_token=eos,
        pad_token="<|endoftext|>",
        additional_special_tokens=list(special),
    )
    if template is not None:
        fast.chat_template = template
    fast.save_pretrained(str(directory))
    return directory


@pytest.mark.parametrize("template", [TEMPLATE, None], ids=["its own template", "no template"])
def test_a_saved_tokenizer_renders_the_same_conversation(tmp_path: Path, template: str | None) -> None:
    ours, theirs = ByteTokenizer(), load_tokenizer(save_tokenizer(tmp_path, template))
    assert isinstance(theirs, HfTokenizer)
    ids = theirs.apply_chat_template(CONVERSATION, add_generation_prompt=True)
    own = ours.apply_chat_template(CONVERSATION, add_generation_prompt=True)
    assert theirs.decode(ids) == ours.decode(own)
    assert len(ids) == len(own)
    assert theirs.decode(ids, skip_special_tokens=True) == "user\nhow many? 3½\ntool\n149\n\nassistant\n"
    assert ids.count(theirs.eos_token_id) == 2
    assert max(ids) < theirs.vocab_size
    assert theirs.pad_token_id != theirs.eos_token_id


def test_special_tokens_are_split_when_not_allowed(tmp_path: Path) -> None:
    theirs = load_tokenizer(save_tokenizer(tmp_path, TEMPLATE))
    assert theirs.encode("<|im_end|>") == [theirs.eos_token_id]
    assert theirs.eos_token_id not in theirs.encode("<|im_end|>", allow_special=False)


def test_a_path_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="extra hf is not installed")
    with pytest.raises(TokenizerNotFound, match="nothing is downloaded"):
        load_tokenizer(tmp_path / "missing")
    with pytest.raises(TokenizerNotFound, match="holds no tokenizer"):
        load_tokenizer(tmp_path)


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtra, match=r"pip install 'sfusion\[hf\]'"):
        load_tokenizer(tmp_path)
