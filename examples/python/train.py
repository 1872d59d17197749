"""Trains a small model of the next word, out of a vocabulary of some 30,000, and plots its loss and its memory.

    pip install torch tqdm matplotlib
    python examples/python/train.py [--head plain|onehot|both] [--steps 100] [--out train.png] [TEXT...]

The text is that of the Debian package fortunes unless files are named. One table makes the vectors of words and the logits.
With `--head both` the same model is trained twice from the same seed, with PyTorch's functions and with onehot's.
"""

import torch
from torch import nn
from torch.nn import functional as F

import curves
import onehot.torch

CONTEXT, WIDTH, BATCH = 4, 128, 1024


class OnehotModel(nn.Module):
    """The words before, mixed to one vector. Its products with the vectors of all words are the logits."""

    def __init__(self, vocabulary):
        super().__init__()
        self.table = onehot.torch.Embedding(vocabulary, WIDTH)
        self.mix = nn.Sequential(nn.Flatten(), nn.Linear(CONTEXT * WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
        self.loss = onehot.torch.LinearCrossEntropyLoss(WIDTH, vocabulary)
        self.loss.linear.weight = self.table.weight  # tied
        nn.init.normal_(self.table.weight, std=WIDTH**-0.5)

    def forward(self, words, target):
        return self.loss(self.mix(self.table(words)), target)


class PlainModel(OnehotModel):
    """The same by PyTorch."""

    def forward(self, words, target):
        x = self.mix(F.embedding(words, self.table.weight))
        return F.cross_entropy(F.linear(x, self.table.weight), target)


def train(head, steps, files):
    torch.manual_seed(0)
    words, vocabulary = curves.read_words(files)
    model = {"plain": PlainModel, "onehot": OnehotModel}[head](vocabulary)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def loss_of_step():
        some = torch.randint(len(words) - CONTEXT, (BATCH, 1)) + torch.arange(CONTEXT + 1)
        return model(words[some[:, :-1]], words[some[:, -1]])

    return curves.train(head, steps, optimizer, loss_of_step)


if __name__ == "__main__":
    curves.main(__doc__, train, "A model of the next word", 100, "train.png")
