"""For all tests: examples that Hypothesis generates have no deadline, for no test asserts a duration."""

from hypothesis import settings

settings.register_profile("draftproof", deadline=None)
settings.load_profile("draftproof")
