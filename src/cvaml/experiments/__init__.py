"""One file per figure, table or action of the command line."""
