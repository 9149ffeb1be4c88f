"""One vector interface to environments; knows no algorithm."""
