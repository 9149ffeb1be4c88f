"""What a run leaves on disk and how it goes on after a stop; knows no algorithm."""
