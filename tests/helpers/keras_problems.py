"""Small Keras models and data for tests."""

from __future__ import annotations

from typing import Any

import numpy

import keras
from keras import layers

RANDOM = numpy.random.default_rng(0)
LABELS = RANDOM.integers(0, 3, 64)
PICTURES = RANDOM.normal(size=(64, 4, 4, 2)) + LABELS[:, None, None, None]


def plain() -> Any:
    """Nothing that depends on how samples are spread, and no Dense: Keras 3.15 multiplies float64 as float32."""
    model = keras.Sequential(
        [
            keras.Input((4, 4, 2)),
            layers.Conv2D(3, 3, activation="relu", kernel_regularizer=keras.regularizers.L2(0.01)),
            layers.Conv2D(3, 2),
            layers.GlobalAveragePooling2D(),
            layers.Softmax(),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.SGD(0.1, momentum=0.9),
        loss=keras.losses.SparseCategoricalCrossentropy(),
        metrics=["accuracy"],
    )
    return model


def normalised(dropout_seed: int | None = None, rate: float = 0.5) -> Any:
    """With statistics and seeds, which Keras has as frozen parameters."""
    model = keras.Sequential(
        [
            keras.Input((4, 4, 2)),
            layers.Conv2D(3, 3, activation="relu"),
            layers.BatchNormalization(momentum=0.5),
            layers.Flatten(),
            layers.Dropout(rate, seed=dropout_seed),
            layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile(optimizer=keras.optimizers.Adam(0.01), loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model
