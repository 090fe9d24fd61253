"""A generator with the computed state gives the number: by NumPy's MT19937, and by torch."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest

from opmatrix.data.case_arrays import generator_state

RANGES = (
    (0, None), (-1, None), (-(2**63), None), (0, 2**31), (0, 2**32), (0, 2**32 + 1), (0, 2**28 + 1), (5, 2**30),
    (-(2**40), 2**41), (0, 1), (3, 11),
)  # fmt: skip


def numbers(low: int, end: int | None) -> list[int]:
    """Return the ends of a range, and numbers between."""
    last = (2**63 if end is None else end) - 1
    drawn = random.Random(0)
    return [low, last, *(drawn.randint(low, last) for _ in range(20))]


@pytest.mark.parametrize(("low", "end"), [(0, None), (0, 2**32)])
def test_the_words_are_those_of_mt19937(low: int, end: int | None) -> None:
    for number in numbers(low, end):
        state = generator_state(number, low, end)
        key = np.array(struct.unpack_from("<624Q", state, 24), np.uint32)
        twister = np.random.MT19937()
        twister.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": 0}}
        first, second = (int(word) for word in twister.random_raw(2))
        assert ((first << 32 | second) % (2**63 if end is None else end)) == number


@pytest.mark.torch
@pytest.mark.parametrize(("low", "end"), RANGES)
def test_torch_gives_the_number(low: int, end: int | None) -> None:
    import torch

    for number in numbers(low, end):
        state = torch.frombuffer(bytearray(generator_state(number, low, end)), dtype=torch.uint8)
        generator = torch.Generator().set_state(state)
        made = torch.empty((), dtype=torch.int64).random_(low, end, generator=generator)
        assert made.item() == number
