"""For every test: no example of Hypothesis fails because the machine is slow, and Ctrl-C works."""

import signal

from hypothesis import settings

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

# A shell starts background jobs with SIGINT ignored, and all processes below them inherit that: the
# commands and servers that tests end by Ctrl-C would never end.
signal.signal(signal.SIGINT, signal.default_int_handler)
