"""Keras 3 models on several nodes, unchanged: on its torch backend a Keras model is a `torch.nn.Module`.

    import minga.keras, keras                      # in this order, or with KERAS_BACKEND=torch

    workload = minga.keras.workload(make_model, train=(x_train, y_train), test=(x_test, y_test))

`minga train file.py:workload` trains it; so does `minga train file.py:model` where the file has a compiled model, or a
function that makes one, beside `x_train`, `y_train`, `x_test` and `y_test`. Afterwards `minga.keras.load(run)` is the
trained model, and `minga.keras.save(run, "model.keras")` writes it as Keras does.
"""

from __future__ import annotations

from minga.keras.saved import load, save
from minga.keras.workload import workload, workload_in_file
from minga.model.keras_parts import prefer_torch

__all__ = ["load", "save", "workload", "workload_in_file"]

prefer_torch()
