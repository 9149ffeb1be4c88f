"""What every part of the package shares."""


class UserError(ValueError):
    """A mistake in what the user asked for: the command line prints it on one line, exit code 2."""
