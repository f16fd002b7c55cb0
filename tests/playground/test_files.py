"""Files and data that go in and out of the playground."""

from __future__ import annotations

import re
from base64 import b64decode
from pathlib import Path

from playwright.async_api import Page, expect
from pydantic_ai import Agent, BinaryContent

from pydantic_ai_a2a import Artifacts, Limits, serve, to_a2a

from .conftest import Visit, send_message

NAME = '<img src=x onerror=alert(1)>\u202egnp.html'
"""The name ends in `html.png` for a reader, because a character turns the direction of the text."""
CONTENT = b'<script>alert(1)</script>'

DROP = """(names) => {
    const transfer = new DataTransfer();
    for (const name of names) transfer.items.add(new File(['dropped'], name, { type: 'text/plain' }));
    for (const type of ['dragover', 'drop']) {
        document.getElementById('main').dispatchEvent(new DragEvent(type, { dataTransfer: transfer, bubbles: true }));
    }
}"""
TYPES = """(() => {
    const create = URL.createObjectURL;
    globalThis.types = [];
    URL.createObjectURL = (blob) => (globalThis.types.push(blob.type), create(blob));
})()"""


def chart(kind: str) -> Artifacts:
    """Draw a chart."""
    page = BinaryContent(CONTENT, media_type='text/html', identifier=NAME)
    rows = [{'city': 'Paris', 'celsius': 21, 'tags': ['a', 'b']}, {'city': 'Rome', 'celsius': None}]
    return Artifacts(chart=page, figures=rows, place={'city': 'Paris', 'at': {'x': 1}})


async def attach(page: Page, *paths: Path) -> None:
    async with page.expect_file_chooser() as chooser:
        await page.get_by_role('button', name='Attach files').click()
    await (await chooser.value).set_files(paths)


async def test_attached_and_dropped_files_are_sent_within_limit(open_playground: Visit, tmp_path: Path) -> None:
    (tmp_path / 'one.txt').write_text('The first.')
    app = to_a2a(Agent('test'), limits=Limits(files=2))
    page = await open_playground(app)
    complaint = page.get_by_role('form', name='Message').get_by_role('alert')
    attached = page.get_by_role('list', name='Attached files')
    await attach(page, tmp_path / 'one.txt')
    await page.evaluate(DROP, ['two.txt', 'three.txt'])
    await expect(complaint).to_have_text('three.txt: a message may have 2 files.')
    await expect(attached.get_by_role('listitem')).to_contain_text(['one.txt10 bytes', 'two.txt7 bytes'])
    await attached.get_by_role('button', name='Remove one.txt').click()
    await send_message(page, 'Read this.')
    await expect(attached).to_have_count(0)
    await expect(page.get_by_role('log').get_by_role('button', name='two.txt')).to_have_count(1)
    await expect(page.get_by_text('success (no tool calls)')).to_have_count(1)
    [task] = await app.list_tasks()
    parts = task.get('history', [])[0]['parts']
    assert parts == [
        {'text': 'Read this.'},
        {'raw': 'ZHJvcHBlZA==', 'filename': 'two.txt', 'media_type': 'text/plain'},
    ]


async def test_message_above_body_limit_is_not_sent(visit_url: Visit, tmp_path: Path) -> None:
    (tmp_path / 'one.txt').write_text('x' * 5000)
    with serve(to_a2a(Agent('test'), limits=Limits(body=10_000))) as server:
        page = await visit_url(f'{server.url}docs')
        await attach(page, tmp_path / 'one.txt')
        complaint = page.get_by_role('form', name='Message').get_by_role('alert')
        await expect(complaint).to_have_text('one.txt: the message would be larger than 10 kB, which the server takes.')


PNG = b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==')
"""An image of one pixel."""


async def test_raster_images_are_shown_but_svg_is_not(open_playground: Visit, tmp_path: Path) -> None:
    (tmp_path / 'mine.png').write_bytes(PNG)

    def draw(kind: str) -> Artifacts:
        """Draw pictures."""
        svg = BinaryContent(
            b'<svg xmlns="http://www.w3.org/2000/svg"/>', media_type='image/svg+xml', identifier='a.svg'
        )
        return Artifacts(dot=BinaryContent(PNG, media_type='image/png', identifier='dot.png'), drawing=svg)

    page = await open_playground(
        to_a2a(Agent('test', output_type=draw), default_input_modes=['text/plain', 'image/png'])
    )
    await attach(page, tmp_path / 'mine.png')
    await expect(page.get_by_role('list', name='Attached files').locator('img')).to_have_count(1)
    await send_message(page, 'Draw.')
    for _ in range(2):
        images = page.get_by_role('log').get_by_role('img')
        await expect(page.get_by_role('log').get_by_role('button', name='a.svg')).to_have_count(1)
        await expect(images).to_have_count(2)
        for name in ('mine.png', 'dot.png'):
            image = page.get_by_role('log').get_by_role('img', name=name)
            await expect(image).to_have_attribute('src', re.compile('^blob:'))
            await expect(image).to_have_js_property('naturalWidth', 1)
        await page.reload()


async def test_html_file_is_only_downloaded_and_data_is_table(open_playground: Visit) -> None:
    page = await open_playground(to_a2a(Agent('test', output_type=chart)))
    await page.evaluate(TYPES)
    await send_message(page, 'Draw.')
    file = page.get_by_role('log').get_by_role('button', name='html')
    await expect(file).to_have_text('<img src=x onerror=alert(1)>gnp.htmltext/html, 25 bytes')
    async with page.expect_download() as download:
        await file.click()
    saved = await download.value
    assert '\u202e' not in saved.suggested_filename
    assert (await saved.path()).read_bytes() == CONTENT
    assert await page.evaluate('types') == ['application/octet-stream']

    table = page.locator('table').first
    await expect(table.get_by_role('columnheader')).to_have_text(['city', 'celsius', 'tags'])
    await expect(table.get_by_role('cell')).to_have_text(['Paris', '21', 'a, b', 'Rome', '', ''])
    await page.get_by_role('button', name='JSON').first.click()
    await expect(table).to_be_hidden()
    await expect(page.get_by_role('log').get_by_role('group', name='Data as JSON')).to_contain_text('"celsius": 21')
    await expect(page.get_by_role('rowheader')).to_have_text(['city', 'at'])
