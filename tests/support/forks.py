"""A forked child, for what it must not share with its parent."""

import os


def in_a_fork(work):
    """Return the bytes that `work` makes in a forked child."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(into, work())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    found = os.read(out, 1 << 12)
    os.close(out)
    os.close(into)
    return found
