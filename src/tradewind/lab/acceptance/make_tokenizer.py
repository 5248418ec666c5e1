"""Trains a tokenizer of about four bytes a token on a text, for tools that make prompts of so many tokens.

    python make_tokenizer.py TEXT FOLDER VOCABULARY

Runs under the tool's own Python: the emulated engines count four bytes as a token, and no hub has a tokenizer of that
kind. Needs the packages tokenizers and transformers.
"""

import sys
from pathlib import Path

MOST_CHARACTERS = 4_000_000
END = "<|end|>"


def main(text: Path, folder: Path, vocabulary: int) -> None:
    """Write the tokenizer in the form that `transformers` reads from a folder."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # Of a list of words in quotes the words count, each after a blank, as in a text.
    words = text.read_text()[:MOST_CHARACTERS].replace('"', " ").splitlines()
    tokenizer.train_from_iterator(words, trainer)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=END).save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
