"""The two ways in which a command ends before its work is done."""


class WrongUsage(Exception):
    """Arguments that can never work; the text says which, what is allowed and what to do."""


class CannotWrite(Exception):
    """Results cannot be written; the text names the place and the reason."""
