"""Services that users run today for the same work; they use no part of Darkroom."""
