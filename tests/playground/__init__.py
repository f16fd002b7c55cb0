"""The playground in a real browser, and the routes of its files."""
