"""A training loop of one's own, made distributed by the five lines that are marked.

python examples/own_loop.py                                                   # alone
minga launch --nodes 2 --strategy ring examples/own_loop.py --epochs 5        # on two nodes
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import minga  # 1
from minga.workloads.digits import load_digits

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=5)
epochs = parser.parse_args().epochs

pictures, classes = load_digits()
train, test = TensorDataset(pictures[:1400], classes[:1400]), (pictures[1400:], classes[1400:])
loader = DataLoader(train, batch_size=16, shuffle=True)
model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

run = minga.join()  # 2
model, optimizer, loader = run.prepare(model, optimizer, loader)  # 3
for _ in range(epochs):
    for inputs, targets in loader:
        run.step(nn.functional.cross_entropy(model(inputs), targets))  # 4: no zero_grad, backward, optimizer.step
run.finish()  # 5

model.eval()
accuracy = (model(test[0]).argmax(1) == test[1]).float().mean()
print(f"rank {run.rank} of {run.workers}: accuracy {accuracy:.3f}")
