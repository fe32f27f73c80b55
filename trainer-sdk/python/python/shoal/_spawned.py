"""A further trainer of `shoal.run`: ``python -m shoal._spawned PROGRAM.pickle``."""

import pickle
import sys
from pathlib import Path

from ._main import main

if __name__ == "__main__":
    main(pickle.loads(Path(sys.argv[1]).read_bytes()))
