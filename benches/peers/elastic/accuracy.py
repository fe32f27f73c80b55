"""The share of MNIST's 10,000 held-out images that each model told right: accuracy.py MODEL... prints a JSON list."""

import json
import sys

import torch
from safetensors.torch import load_file

from lenet import Images, LeNet


def accuracy(path, images):
    """The share that this model tells right."""
    net = LeNet()
    own = net.state_dict()
    net.load_state_dict({name: tensor for name, tensor in load_file(path).items() if name in own})
    with torch.no_grad():
        return (net(images.pixels).argmax(1) == images.labels).float().mean().item()


def main():
    """Judges all models by the same images."""
    torch.set_num_threads(1)
    images = Images("t10k")
    print(json.dumps([accuracy(path, images) for path in sys.argv[1:]]))


if __name__ == "__main__":
    main()
