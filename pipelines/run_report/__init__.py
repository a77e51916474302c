"""Extra views of our pipeline's runs, in the terminal and on the page."""
