"""The two built-in networks, made of modules only, so that every operation belongs to one."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn


class ConvNet(nn.Sequential):
    """The network of pytorch/examples ``mnist/main.py`` (77f55b9): 1,199,882 parameters.

    Layers and their order are the same, so the same seed gives the same weights. Input: float32 [B, 1, 28, 28];
    output: log-probabilities [B, 10].
    """

    def __init__(self) -> None:
        layers: OrderedDict[str, nn.Module] = OrderedDict(
            conv1=nn.Conv2d(1, 32, kernel_size=3),  # [B, 32, 26, 26]
            relu1=nn.ReLU(),
            conv2=nn.Conv2d(32, 64, kernel_size=3),  # [B, 64, 24, 24]
            relu2=nn.ReLU(),
            pool=nn.MaxPool2d(2),  # [B, 64, 12, 12]
            dropout1=nn.Dropout(0.25),
            flatten=nn.Flatten(),  # [B, 9216]
            fc1=nn.Linear(9216, 128),
            relu3=nn.ReLU(),
            dropout2=nn.Dropout(0.5),
            fc2=nn.Linear(128, 10),
            log_softmax=nn.LogSoftmax(dim=1),
        )
        super().__init__(layers)


class LeNet5(nn.Sequential):
    """LeCun et al., "Gradient-based learning applied to document recognition" (1998), as it is taught today.

    ReLU and max-pooling in place of the paper's sigmoids and trainable sub-sampling, full connection from the first
    to the second convolution: 61,706 parameters. Input: float32 [B, 1, 28, 28]; output: log-probabilities [B, 10].
    """

    def __init__(self) -> None:
        layers: OrderedDict[str, nn.Module] = OrderedDict(
            conv1=nn.Conv2d(1, 6, kernel_size=5, padding=2),  # [B, 6, 28, 28]
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),  # [B, 6, 14, 14]
            conv2=nn.Conv2d(6, 16, kernel_size=5),  # [B, 16, 10, 10]
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),  # [B, 16, 5, 5]
            flatten=nn.Flatten(),  # [B, 400]
            fc1=nn.Linear(400, 120),
            relu3=nn.ReLU(),
            fc2=nn.Linear(120, 84),
            relu4=nn.ReLU(),
            fc3=nn.Linear(84, 10),
            log_softmax=nn.LogSoftmax(dim=1),
        )
        super().__init__(layers)
