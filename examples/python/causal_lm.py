"""Gives a causal language model of Hugging Face transformers another head: the same losses, in less memory.

    pip install torch transformers tqdm matplotlib
    python examples/python/causal_lm.py [--head plain|onehot|both] [--steps 30] [--out causal_lm.png] [TEXT...]

The model is a small Llama made from a configuration; nothing is downloaded. Its tokens are the words of the text, that of the
Debian package fortunes unless files are named. `OnehotCausalLM` is all there is to do. It takes `num_items_in_batch`, which
`Trainer` gives.
"""

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.modeling_outputs import CausalLMOutput

import curves
from onehot.torch import linear_cross_entropy

BATCH, LENGTH = 8, 256


class OnehotCausalLM(LlamaForCausalLM):
    """A training step without logits. Without labels, as in generation, the model is what it was."""

    def forward(self, input_ids=None, labels=None, num_items_in_batch=None, **arguments):
        if labels is None:
            return super().forward(input_ids, **arguments)
        hidden = self.model(input_ids, **arguments).last_hidden_state
        # The hidden state of a position predicts the next token. A label of -100 does not count. Where Trainer accumulates
        # gradients, it says how many labels there are in all of the batch.
        loss = linear_cross_entropy(hidden[:, :-1], self.lm_head.weight, labels[:, 1:], denominator=num_items_in_batch)
        return CausalLMOutput(loss=loss)


def configuration(vocabulary):
    return LlamaConfig(
        vocab_size=-(-vocabulary // 4096) * 4096,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=LENGTH,
        tie_word_embeddings=True,
    )


def train(head, steps, files):
    torch.manual_seed(0)
    words, vocabulary = curves.read_words(files)
    model = {"plain": LlamaForCausalLM, "onehot": OnehotCausalLM}[head](configuration(vocabulary))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def loss_of_step():
        tokens = words[torch.randint(len(words) - LENGTH, (BATCH, 1)) + torch.arange(LENGTH)]
        return model(input_ids=tokens, labels=tokens).loss

    return curves.train(head, steps, optimizer, loss_of_step)


if __name__ == "__main__":
    curves.main(__doc__, train, "A small Llama with two heads", 30, "causal_lm.png")
