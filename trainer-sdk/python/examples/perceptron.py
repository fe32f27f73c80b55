"""A perceptron of NumPy that tells two spirals apart. It needs no data and no framework.

python perceptron.py
shoal run --trainers 2:8 --epochs 300 -- python perceptron.py
"""

import numpy as np

import shoal

HIDDEN = 32


def spirals(points, seed):
    random = np.random.default_rng(seed)
    y = np.arange(points) % 2
    turn = random.uniform(0.5, 3, points)
    angle = turn * np.pi + y * np.pi
    x = np.stack([turn * np.cos(angle), turn * np.sin(angle)], 1) / 3 + random.normal(0, 0.03, (points, 2))
    return x.astype(np.float32), y.astype(np.float32)


class Perceptron(shoal.Program):
    metrics = {"accuracy": shoal.Accuracy()}

    def __init__(self):
        self.data, self.labels = spirals(2000, seed=1)
        self.eval_data, self.eval_labels = spirals(500, seed=2)

    def declare(self, job):
        adam = shoal.Adam(0.01, schedule=shoal.cosine())
        return [
            shoal.Parameter("w1", (2, HIDDEN), adam, shoal.normal(2.0)),
            shoal.Parameter("b1", (HIDDEN,), adam, shoal.normal(1.0)),
            shoal.Parameter("w2", (HIDDEN,), adam, shoal.normal(0.2)),
        ]

    def step(self, batch, parameters, gradient):
        x, y = self.data[batch.indices], self.labels[batch.indices]
        hidden = np.tanh(x @ parameters["w1"] + parameters["b1"])
        error = 1 / (1 + np.exp(-hidden @ parameters["w2"])) - y
        back = np.outer(error, parameters["w2"]) * (1 - hidden**2)
        gradient["w2"] += error @ hidden
        gradient["w1"] += x.T @ back
        gradient["b1"] += back.sum(0)

    def evaluate(self, batch, parameters, metrics):
        x, y = self.eval_data[batch.indices], self.eval_labels[batch.indices]
        says = np.tanh(x @ parameters["w1"] + parameters["b1"]) @ parameters["w2"] > 0
        metrics.add("accuracy", sum=(says == y).sum(), weight=len(batch))


if __name__ == "__main__":
    shoal.main(Perceptron(), trainers=2, epochs=100)
