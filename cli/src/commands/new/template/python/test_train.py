"""Tests of train.py: `pytest`, or `python test_train.py`."""

import shoal

from train import program

STEP = {"microbatch_records": 32, "microbatches_per_step": 4}


def test_one_trainer_and_two_make_the_same_model():
    one = shoal.run(program, trainers=1, epochs=1, **STEP)
    two = shoal.run(program, trainers=2, epochs=1, **STEP)
    assert one.sha256 == two.sha256


def test_the_model_learns():
    first, last = (shoal.run(program, epochs=epochs, **STEP).metrics for epochs in (1, 5))
    assert last["accuracy"] > max(0.85, first["accuracy"])


if __name__ == "__main__":
    test_one_trainer_and_two_make_the_same_model()
    test_the_model_learns()
    print("both tests passed")
