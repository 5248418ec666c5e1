"""Kills a process group when whoever holds this process's standard input is gone: no vLLM outlives a killed test run.

python guard.py PROCESS_GROUP
"""

import contextlib
import os
import signal
import sys


def main() -> None:
    sys.stdin.buffer.read()  # returns when the last holder of the pipe's other end has closed it or died
    with contextlib.suppress(ProcessLookupError):
        os.killpg(int(sys.argv[1]), signal.SIGKILL)


if __name__ == "__main__":
    main()
