"""Reading run folders back: aggregates with intervals, figures, the HTML page."""
