"""The endpoints, as prose: every route says what happens in order and leaves how to its rooms."""
