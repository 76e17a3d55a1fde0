"""Implementations of `models.domain.backend.Backend`: in this process, or in several.

Start reading at `multi_process.py`.
May import `models`, `workers.scheduling` and `workers.ipc`.
"""
