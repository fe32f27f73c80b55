"""A further trainer of `shoal.run`: ``python -m shoal._spawned PROGRAM.pickle READY GO``.

READY is the end of a pipe that it closes when it has the program, GO one that is closed when all are to begin.
"""

import os
import pickle
import sys
from pathlib import Path

from ._main import main

if __name__ == "__main__":
    file, ready, go = sys.argv[1], *map(int, sys.argv[2:])
    program = pickle.loads(Path(file).read_bytes())
    os.close(ready)
    os.read(go, 1)
    os.close(go)
    main(program)
