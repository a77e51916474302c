"""What our pipeline's runs show beside what any run does: in the terminal and on the page."""
