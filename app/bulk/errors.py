"""The errors that end a command before its work is done."""


class WrongUsage(Exception):
    """The arguments can never work; the text says which, what is allowed and what to do."""


class CannotWrite(Exception):
    """Results cannot be written; the text names the place and the reason."""


class EngineLost(Exception):
    """What answers the images has ended; the text says how to go on."""
