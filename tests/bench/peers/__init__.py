"""What users run today for the same work; they know nothing of Darkroom."""
