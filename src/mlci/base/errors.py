"""What a person did that the program cannot use. The command line prints it as one sentence and exits with 2."""


class InputError(ValueError):
    """Bad input, told in one sentence: what was wrong, where (file, column, row, value), what is allowed."""
