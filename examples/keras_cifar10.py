"""A Keras model for CIFAR-10 on several nodes: convolutions, batch normalisation and dropout, as compile() says.

minga train examples/keras_cifar10.py:workload --nodes 2 --strategy ring
minga train examples/keras_cifar10.py:workload --nodes 2 --strategy local_sgd:period=8 --epochs 20 --data DIR

With DIR/cifar10 (or MINGA_DATA) it learns the real pictures (minga data fetch cifar10), otherwise some made-up ones:
stripes of ten directions, which a narrow network of the same layers learns in a moment. Afterwards, in Python:

    model = minga.keras.load("runs/RUN")                      # a Keras model
    minga.keras.save("runs/RUN", "cifar10.keras")             # a file that Keras reads
"""

from pathlib import Path

import numpy

import keras
import minga.keras
from keras import layers
from minga.data.directory import data_directory

TRAINING_FILES = [f"data_batch_{number}.bin" for number in range(1, 6)]


def network(width: float = 1.0) -> keras.Model:
    """`width` 1 has 128 to 384 channels and 1024 and 512 units."""

    def convolution(channels: int) -> layers.Layer:
        return layers.Conv2D(max(1, int(width * channels)), 3, padding="same", activation="relu")

    model = keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            layers.Rescaling(1 / 255),
            *(convolution(128) for _ in range(3)),
            layers.BatchNormalization(),
            layers.MaxPooling2D(2),
            *(convolution(256) for _ in range(3)),
            layers.BatchNormalization(),
            layers.MaxPooling2D(2),
            *(convolution(256) for _ in range(2)),
            convolution(384),
            layers.Dropout(0.5),
            layers.Flatten(),
            layers.BatchNormalization(),
            layers.Dropout(0.5),
            layers.Dense(int(width * 1024), activation="relu"),
            layers.Dense(int(width * 512), activation="relu"),
            layers.BatchNormalization(),
            layers.Dropout(0.5),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.SGD(learning_rate=0.01, momentum=0.9),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model


def real_pictures(directory: Path, files: list[str]) -> tuple[numpy.ndarray, numpy.ndarray]:
    """The data set's own form: a label, then three planes of 32x32."""
    rows = numpy.concatenate([numpy.fromfile(directory / file, numpy.uint8).reshape(-1, 3073) for file in files])
    return rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), rows[:, 0].astype(numpy.int64)


def made_up_pictures(count: int, seed: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Stripes whose direction is the class."""
    random = numpy.random.default_rng(seed)
    labels = random.integers(0, 10, count)
    angles, phases = labels * numpy.pi / 10, random.uniform(0, 2 * numpy.pi, count)
    rows, columns = numpy.mgrid[0:32, 0:32] / 4
    along = numpy.cos(angles)[:, None, None] * columns + numpy.sin(angles)[:, None, None] * rows
    stripes = 128 + 90 * numpy.sin(along + phases[:, None, None])
    noisy = stripes[..., None] + random.normal(0, 10, (count, 32, 32, 3))
    return noisy.clip(0, 255).astype(numpy.uint8), labels


def workload(data: Path | None = None) -> minga.Workload:
    directory = data_directory(data) / "cifar10"
    if (directory / "test_batch.bin").is_file():
        train, test = real_pictures(directory, TRAINING_FILES), real_pictures(directory, ["test_batch.bin"])
        return minga.keras.workload(network, train=train, test=test, name="keras-cifar10", batch=64, epochs=30)
    train, test = made_up_pictures(480, seed=1), made_up_pictures(160, seed=2)
    return minga.keras.workload(
        lambda: network(width=1 / 16), train=train, test=test, name="keras-stripes", batch=16, epochs=4
    )
