"""Searches the built site as its readers do, with the search worker of the site in Chromium."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from playwright.sync_api import sync_playwright

from ..bounds import LIMIT
from ..playground.browser import ARGUMENTS, chromium

__all__ = ('found',)

_SEARCH = """async (queries) => {
  const config = JSON.parse(document.getElementById('__config').textContent)
  const worker = new Worker(config.search)
  const ask = (message) => new Promise((resolve) => {
    worker.onmessage = ({data}) => resolve(data)
    worker.postMessage(message)
  })
  const index = await (await fetch('search/search_index.json')).json()
  await ask({type: 0, data: {...index, options: {suggest: false}}})
  const pages = []
  for (const query of queries) {
    const {data} = await ask({type: 2, data: query})
    pages.push(data.items.map(([entry]) => entry.location.split('#')[0]))
  }
  return pages
}"""
"""Asks the worker as the search field does, and returns the pages of each query, best first."""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Write nothing."""


def found(site: Path, queries: Sequence[str]) -> list[list[str]]:
    """Return the addresses of the pages that each query finds, best first."""
    with ThreadingHTTPServer(('127.0.0.1', 0), partial(_Quiet, directory=str(site))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
                page = browser.new_page()
                page.set_default_timeout(LIMIT * 1000)
                page.goto(f'http://127.0.0.1:{server.server_port}/')
                pages: list[list[str]] = page.evaluate(_SEARCH, list(queries))
                browser.close()
                return pages
        finally:
            server.shutdown()
            thread.join(LIMIT)
