"""The state of a torch.Generator whose next number is a given one, so that a case's seed comes from a generator.

torch's generator of the CPU is the Mersenne Twister MT19937 (Matsumoto and Nishimura, 1998), whose outputs are its
words, tempered. The layout is that of aten/src/ATen/CPUGeneratorImpl.cpp, the same in torch 1.13 to 2.15. Pure.
"""

from __future__ import annotations

import struct

_WORDS = 624
_BITS = 2**32 - 1


def generator_state(number: int, low: int, end: int | None) -> bytes:
    """Return the state with which ``random_(low, end)`` gives `number`; `end` None is 2**63.

    torch takes 64 bits, the first word above, or 32 bits for a small range; both are right.
    """
    size = (2**63 if end is None else end) - low
    offset = number % size if size == 2**64 else number - low  # torch adds no `low` to all 64 bits
    first, second = offset >> 32, offset & _BITS
    if size <= 2**32:
        first, second = offset, (offset - (offset << 32)) % size
    words = [_untempered(first), _untempered(second)] + [0] * (_WORDS - 2)
    # The seed, words left and whether it is seeded, the next word, and the words; no normal number is kept.
    return struct.pack(f"<QiiQ{_WORDS}Q", 0, _WORDS, 1, 0, *words).ljust(5056, b"\0")


def _untempered(output: int) -> int:
    """Return the word that MT19937 tempers to `output`."""
    word = output ^ output >> 18
    word ^= word << 15 & 0xEFC60000
    found = word
    for _ in range(4):
        found = word ^ (found << 7 & 0x9D2C5680)
    found &= _BITS
    word = found
    for _ in range(2):
        found = word ^ found >> 11
    return found
