"""The playground: a static page that calls the agent from a browser.

`page` serves the files of `static`. The page calls the HTTP+JSON binding like every other client.
"""
