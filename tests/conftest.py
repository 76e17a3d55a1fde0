"""For every test: no example of Hypothesis fails because the machine is slow."""

from hypothesis import settings

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
