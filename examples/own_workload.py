"""A workload of one's own: what is trained, as one plain object.

minga train examples/own_workload.py:workload --nodes 2 --strategy ring
"""

import torch
from torch import nn
from torch.utils.data import TensorDataset

from minga import Workload

generator = torch.Generator().manual_seed(0)
points = torch.rand(4000, 2, generator=generator) * 2 - 1
inside = (points.norm(dim=1) < 0.8).long()

workload = Workload(
    name="circle",
    model=lambda: nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 2)),
    train=TensorDataset(points[:3000], inside[:3000]),
    test=TensorDataset(points[3000:], inside[3000:]),
    optimizer=lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    batch=32,
    epochs=5,
)
