"""Run a program on an emulated processor with AVX-512, which few machines have: Bochs, by bochscpu.

    python -m tests.support.emulated_processor PROGRAM [ARGUMENT ...]

The program is a static one for x86-64 Linux, with one thread. Its system calls are answered here: those for memory, for
files, and what the C library asks at the start; another one ends it with a message, as does an exception of the
processor. Its exit code is that of the program. It runs tens of millions of instructions per second.
"""

from __future__ import annotations

import ctypes
import errno
import importlib
import mmap
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

COMMAND = (sys.executable, "-m", "tests.support.emulated_processor")  # to be run in the checkout
ENDED = 70  # the exit code where the emulator ends the program
SIZE = 1 << 30  # bytes of memory, each at the same address for program and processor
PAGE = 4096
# Addresses. The first page has no memory, so that a null pointer is found.
TABLES, DIRECTORY, SYSTEM_CALL, STACK, MAPPED = 0x1000, 0x2000, 0x3000, 0x1800_0000, 0x1800_0000
HALT = b"\xf4"
# Intel, Software Developer's Manual, volume 3, 2.5 and 2.6: protected mode with paging and SSE; PAE, FXSR, XMM
# exceptions, FSGSBASE, OSXSAVE; system calls and long mode; x87, SSE, AVX and AVX-512.
CR0, CR4, EFER, XCR0 = 0x8005_0033, 1 << 5 | 1 << 9 | 1 << 10 | 1 << 16 | 1 << 18, 0xD01, 0xE7
CODE, DATA = (8, 0xA09B), (16, 0xC093)  # selector and attributes of the segments
SET_FS = 0x1002  # of arch_prctl
# The auxiliary vector (getauxval(3)).
AT_PHDR, AT_PHENT, AT_PHNUM, AT_PAGESZ, AT_ENTRY, AT_UID, AT_EUID, AT_GID, AT_EGID, AT_SECURE, AT_RANDOM = (
    3, 4, 5, 6, 9, 11, 12, 13, 14, 23, 25,
)  # fmt: skip
# What bochscpu 0.4.0 calls of glibc 2.38, for an older one.
OF_GLIBC_2_38 = r"""
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

unsigned long long __isoc23_strtoull(const char* text, char** end, int base) { return strtoull(text, end, base); }

int __isoc23_sscanf(const char* text, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int found = vsscanf(text, format, arguments);
  va_end(arguments);
  return found;
}
"""


def bochs() -> ModuleType:
    """Import bochscpu; define the functions of glibc 2.38 that it calls where glibc is older."""
    try:
        importlib.import_module("bochscpu.memory")
    except ImportError as error:
        if "__isoc23" not in str(error):
            raise
        with tempfile.TemporaryDirectory() as folder:
            source, library = Path(folder, "older.c"), Path(folder, "older.so")
            source.write_text(OF_GLIBC_2_38)
            subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", library], check=True)
            ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
        importlib.import_module("bochscpu.memory")
    return sys.modules["bochscpu"]


def end(message: str) -> NoReturn:
    """End this process: bochscpu crashes where Python ends as usual."""
    print(f"emulated processor: {message}", file=sys.stderr, flush=True)
    os._exit(ENDED)


class Processor:
    """A processor with the memory of one program."""

    def __init__(self, program: Path, arguments: Sequence[str]) -> None:
        self._memory = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._break, self._mapped = 0, MAPPED
        self._bochs = bochs()
        self._session: Any = self._bochs.Session()
        self._session.missing_page_handler = self._page
        self._session.cpu.state = self._state(program, arguments)

    def run(self) -> NoReturn:
        """Run the program to its end, and exit with its exit code."""
        hook = self._bochs.Hook()
        hook.hlt = lambda session, _: session.stop()
        hook.exception = self._exception
        while True:
            self._session.run([hook])
            state = self._session.cpu.state
            state.rax = self._call(state) & (1 << 64) - 1
            state.rip, state.rflags = state.rcx, state.r11
            self._session.cpu.state = state

    def _page(self, address: int) -> None:
        """Give the processor a page of the memory."""
        page = address // PAGE * PAGE
        if not PAGE <= page < SIZE:
            end(f"the program uses address {address:#x}, where it has no memory")
        self._bochs.memory.page_insert(page, self._address + page)

    def _exception(self, session: Any, _: int, vector: int, code: int) -> None:
        state = session.cpu.state
        at = self._memory[state.rip : state.rip + 16].hex()
        end(f"exception {vector} ({code:#x}) at {state.rip:#x}, address {state.cr2:#x}, instruction {at}")

    def _put(self, address: int, content: bytes) -> None:
        self._memory[address : address + len(content)] = content

    def _text(self, address: int) -> str:
        return self._memory[address : self._memory.find(b"\0", address)].decode()

    def _state(self, program: Path, arguments: Sequence[str]) -> Any:
        """Return the processor at the program's first instruction."""
        of_program = self._load(program)
        # One page of 1 GB, present, writable, of the user.
        self._put(TABLES, struct.pack("<Q", DIRECTORY | 7))
        self._put(DIRECTORY, struct.pack("<Q", 1 << 7 | 7))
        self._put(SYSTEM_CALL, HALT)
        state = self._bochs.State()
        state.cr0, state.cr3, state.cr4, state.efer, state.xcr0 = CR0, TABLES, CR4, EFER, XCR0
        state.mxcsr, state.mxcsr_mask, state.fpcw, state.fptw = 0x1F80, 0xFFFF, 0x37F, 0xFFFF
        state.star, state.lstar, state.sfmask = CODE[0] << 32 | CODE[0] << 48, SYSTEM_CALL, 0
        for name, (selector, attributes) in {"cs": CODE, **dict.fromkeys(("ds", "es", "ss", "fs", "gs"), DATA)}.items():
            segment = self._bochs.Segment()
            segment.present, segment.selector, segment.attr = True, selector, attributes
            segment.base, segment.limit = 0, (1 << 32) - 1
            setattr(state, name, segment)
        state.rip, state.rsp, state.rflags = of_program[AT_ENTRY], self._stack(arguments, of_program), 2
        return state

    def _load(self, program: Path) -> dict[int, int]:
        """Load the program into memory; return its entries of the auxiliary vector (ELF-64, version 1.5, 3 and 7)."""
        content = program.read_bytes()
        entry, headers = struct.unpack_from("<QQ", content, 24)
        size, count = struct.unpack_from("<HH", content, 54)
        found = {AT_ENTRY: entry, AT_PHENT: size, AT_PHNUM: count}
        for number in range(count):
            kind, _, offset, address, _, length, whole, _ = struct.unpack_from(
                "<IIQQQQQQ", content, headers + number * size
            )
            if kind == 3:
                end(f"{program} is not static")
            if kind == 1:
                self._put(address, content[offset : offset + length])
                self._break = max(self._break, address + whole)
                if offset <= headers < offset + length:
                    found[AT_PHDR] = address + headers - offset
        return found

    def _stack(self, arguments: Sequence[str], of_program: Mapping[int, int]) -> int:
        """Put arguments and auxiliary vector onto the stack, and return its top."""
        at, places = STACK - 16, []  # below the 16 bytes of AT_RANDOM
        for text in arguments:
            content = os.fsencode(text) + b"\0"
            at -= len(content)
            self._put(at, content)
            places.append(at)
        vector = {
            **of_program, AT_PAGESZ: PAGE, AT_UID: 0, AT_EUID: 0, AT_GID: 0, AT_EGID: 0, AT_SECURE: 0,
            AT_RANDOM: STACK - 16, 0: 0,
        }  # fmt: skip
        words = [len(places), *places, 0, 0, *(word for pair in vector.items() for word in pair)]
        top = (at - 8 * len(words)) // 16 * 16
        self._put(top, struct.pack(f"<{len(words)}Q", *words))
        return top

    def _call(self, state: Any) -> int:
        """Answer a system call, as syscalls(2) has it for x86-64."""
        number, a, b, c, d = state.rax, state.rdi, state.rsi, state.rdx, state.r10
        if number == 158 and a == SET_FS:  # arch_prctl
            segment = state.fs
            segment.base = b
            state.fs = segment
            return 0
        answers: Mapping[int, Callable[[], int]] = {
            0: lambda: self._read(a, b, c),
            1: lambda: os.write(a, self._memory[b : b + c]),
            3: lambda: os.close(a) or 0,
            8: lambda: os.lseek(a, ctypes.c_long(b).value, c),
            9: lambda: self._map(b, flags=d),  # mmap
            10: lambda: 0,  # mprotect
            11: lambda: 0,  # munmap
            12: lambda: self._grow(a),  # brk
            20: lambda: sum(os.write(a, part) for part in self._parts(b, c)),  # writev
            39: lambda: 1,  # getpid
            60: lambda: os._exit(a),
            202: lambda: 0 if b & 127 == 1 else -errno.ENOSYS,  # futex: there is no thread to wake
            218: lambda: 1,  # set_tid_address
            231: lambda: os._exit(a),  # exit_group
            257: lambda: os.open(self._text(b), c, d),  # openat
            262: lambda: self._status(a, c),  # newfstatat, as fstat calls it
            273: lambda: 0,  # set_robust_list
            318: lambda: b,  # getrandom
        }
        # ioctl, readlink, readlinkat, prlimit64, rseq: the C library goes on without.
        refused = {16: errno.ENOTTY, 89: errno.EINVAL, 267: errno.EINVAL, 302: errno.ENOSYS, 334: errno.ENOSYS}
        if number in refused:
            return -refused[number]
        if number not in answers:
            end(f"system call {number} is not emulated")
        try:
            return answers[number]()
        except OSError as error:
            return -(error.errno or errno.EIO)

    def _read(self, file: int, address: int, count: int) -> int:
        content = os.read(file, count)
        self._put(address, content)
        return len(content)

    def _parts(self, address: int, count: int) -> list[bytes]:
        """Return the parts of a vector of buffers."""
        pairs = struct.iter_unpack("<QQ", self._memory[address : address + 16 * count])
        return [self._memory[at : at + length] for at, length in pairs]

    def _map(self, length: int, *, flags: int) -> int:
        if not flags & mmap.MAP_ANONYMOUS:
            return -errno.ENOSYS
        at, self._mapped = self._mapped, self._mapped + -(-length // PAGE) * PAGE
        return at if self._mapped < SIZE else -errno.ENOMEM

    def _grow(self, address: int) -> int:
        self._break = address if self._break <= address < STACK // 2 else self._break
        return self._break

    def _status(self, file: int, address: int) -> int:
        found = os.fstat(file)
        begin = struct.pack("<QQQII", found.st_dev, found.st_ino, found.st_nlink, found.st_mode, 0)
        rest = struct.pack("<IIQQQQ", 0, 0, 0, found.st_size, PAGE, found.st_blocks)
        self._put(address, (begin + rest).ljust(144, b"\0"))
        return 0


if __name__ == "__main__":
    Processor(Path(sys.argv[1]), sys.argv[1:]).run()
