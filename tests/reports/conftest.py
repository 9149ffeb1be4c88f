"""The tests here share `fake_runs` and `browser`, whatever pytest's import mode is."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
