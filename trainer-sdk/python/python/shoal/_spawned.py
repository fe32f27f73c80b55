"""A further trainer of `shoal.run`: ``python -m shoal._spawned PROGRAM.pickle READY GO``; pipes of :mod:`shoal._together`."""

import pickle
import sys
from pathlib import Path

from ._main import main
from ._together import Other

if __name__ == "__main__":
    file, *ends = sys.argv[1:]
    program = pickle.loads(Path(file).read_bytes())
    program._together = Other(*map(int, ends))
    main(program)
