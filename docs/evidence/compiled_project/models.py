"""Four models to compile."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


class ConvNet(nn.Module):
    """The network of pytorch/examples. Images [B, 1, 28, 28] -> log-probabilities [B, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, kernel_size=3)
        self.conv2 = nn.Conv2d(32, 64, kernel_size=3)
        self.dropout1 = nn.Dropout(0.25)
        self.fc1 = nn.Linear(9216, 128)
        self.dropout2 = nn.Dropout(0.5)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, images: Tensor) -> Tensor:
        maps = functional.relu(self.conv1(images))
        maps = functional.relu(self.conv2(maps))
        maps = functional.max_pool2d(maps, 2)
        flat = self.dropout1(maps).flatten(1)
        hidden = functional.relu(self.fc1(flat))
        scores = self.fc2(self.dropout2(hidden))
        return scores.log_softmax(dim=1)


class LeNet5(nn.Module):
    """LeNet5 as it is taught today. Images [B, 1, 28, 28] -> log-probabilities [B, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, kernel_size=5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, kernel_size=5)
        self.fc1 = nn.Linear(400, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, images: Tensor) -> Tensor:
        maps = functional.max_pool2d(functional.relu(self.conv1(images)), 2)
        maps = functional.max_pool2d(functional.relu(self.conv2(maps)), 2)
        hidden = functional.relu(self.fc1(maps.flatten(1)))
        hidden = functional.relu(self.fc2(hidden))
        return self.fc3(hidden).log_softmax(dim=1)


class Attention(nn.Module):
    """Self-attention with four heads. [B, T, width] -> [B, T, width]."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.inner = nn.Linear(width, 3 * width)
        self.outer = nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        batch, length, width = tokens.shape
        parts = self.inner(tokens).view(batch, length, 3, self.heads, width // self.heads)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)
        scores = queries @ keys.transpose(-2, -1)
        scores = scores / math.sqrt(width // self.heads)
        weights = scores.softmax(dim=-1)
        mixed = (weights @ values).transpose(1, 2).flatten(2)
        return self.outer(mixed)


class Block(nn.Module):
    """Attention and two layers, each with a layer norm. [B, T, width] -> [B, T, width]."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.attention(self.norm1(tokens))
        hidden = self.wide(self.norm2(tokens))
        hidden = functional.gelu(hidden)
        return tokens + self.narrow(hidden)


class Transformer(nn.Module):
    """Two blocks. Sequences [B, 32, 16] -> log-probabilities [B, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Linear(16, 64)
        self.block1 = Block(64, heads=4)
        self.block2 = Block(64, heads=4)
        self.norm = nn.LayerNorm(64)
        self.head = nn.Linear(64, 10)

    def forward(self, sequences: Tensor) -> Tensor:
        tokens = self.embedding(sequences)
        tokens = self.block2(self.block1(tokens))
        pooled = self.norm(tokens).mean(dim=1)
        return self.head(pooled).log_softmax(dim=1)


class Gated(nn.Module):
    """Branches on the value of a tensor. Sequences [B, 32, 16] -> log-probabilities [B, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 128)
        self.second = nn.Linear(128, 128)
        self.head = nn.Linear(128, 10)

    def forward(self, sequences: Tensor) -> Tensor:
        hidden = functional.gelu(self.first(sequences))
        if torch.isfinite(hidden).all():  # always true, but the compiler cannot know
            hidden = functional.gelu(self.second(hidden))
        pooled = hidden.mean(dim=1)
        return self.head(pooled).log_softmax(dim=1)
