"""Hostile text runs no script, and everybody can use the playground: with a keyboard, in light and dark."""

from __future__ import annotations

from typing import Any, Literal, cast

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page, expect

from pydantic_ai_a2a import AuthRequired, BearerAuth, InputRequired, Progress, Results, serve, to_a2a

from .agents import file_keeper, scripted, tool_call
from .conftest import Visit, send_message

BAD = '<img src=x onerror="window.pwned = 1"><script>window.pwned = 1</script>'
HOSTILE = f"""{BAD}

# Heading {BAD}

[script](javascript:window.pwned=1) [data](data:text/html,pwned) [tab](java\tscript:window.pwned=1) <javascript:pwned>
![picture](https://evil.test/x.png "title") ![bad](javascript:window.pwned=1) [good](https://example.com/a?b=1)

<svg onload="window.pwned = 1"><a xlink:href="javascript:window.pwned=1"><text>svg</text></a></svg>
<a href="https://evil.test" onclick="window.pwned = 1" style="position: fixed" id="composer" name="body">raw</a>
<form action="https://evil.test"><input name="children"><button formaction="https://evil.test">go</button></form>
<style>* {{ display: none }}</style><link rel="stylesheet" href="https://evil.test/x.css">
<base href="https://evil.test">
<iframe srcdoc="<script>parent.pwned = 1</script>"></iframe><object data="https://evil.test"></object>
<details open ontoggle="window.pwned = 1">details</details><video src=x onerror="window.pwned = 1"></video>
<math><mtext></p><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=window.pwned=1&gt;"></math>

| a | b |
|---|---|
| {BAD} | `{BAD}` |

```html" onload="window.pwned = 1
{BAD}
```
"""
FORBIDDEN = (
    'img, script, style, link, iframe, object, svg, math, video, form, input, button:not(.code-head > button), base,'
    ' [style], [id], [name]'
)
SCHEMA = {
    'type': 'object',
    'title': BAD,
    'description': BAD,
    'properties': {BAD: {'type': 'string', 'description': BAD, 'default': BAD}, 'e': {'enum': [BAD], 'title': BAD}},
}


async def test_hostile_text_and_card_run_no_script(open_playground: Visit) -> None:
    script = {'Talk.': [HOSTILE], 'Ask.': [tool_call('ask')], 'Sign in.': [tool_call('sign_in')]}
    agent = scripted(script, name=f'evil {BAD}', description=BAD)

    @agent.tool_plain
    def ask() -> str:
        raise InputRequired(BAD, schema=SCHEMA)

    @agent.tool_plain
    def sign_in() -> str:
        raise AuthRequired(BAD, schemes=[BAD], url='javascript:window.pwned=1')

    assert {ask, sign_in}
    skill: Any = {'id': BAD, 'name': BAD, 'description': BAD, 'tags': [BAD], 'examples': [BAD]}
    provider: Any = {'organization': BAD, 'url': 'javascript:window.pwned=1'}
    page = await open_playground(to_a2a(agent, skills=[skill], provider=provider, version=BAD))
    await expect(page.get_by_role('heading', level=1)).to_have_text(f'evil {BAD}')
    await page.get_by_role('button', name='<img').click()
    await expect(page.get_by_role('textbox', name='Message', exact=True)).to_have_value(BAD)
    await send_message(page, 'Talk.')
    prose = page.locator('.prose')
    await expect(prose.get_by_role('heading', name='Heading')).to_have_count(1)
    await expect(page.get_by_role('navigation', name='Tasks')).to_contain_text('completed')
    assert await prose.locator(FORBIDDEN).count() == 0
    links = await prose.locator('[href]').evaluate_all('(all) => all.map((one) => [one.href, one.target, one.rel])')
    safe = ['_blank', 'noopener noreferrer']
    assert links == [[url, *safe] for url in ('https://evil.test/x.png', 'https://example.com/a?b=1')]
    for text in ('Ask.', 'Sign in.'):
        await send_message(page, text)
        await expect(page.get_by_role('form', name='Question' if text == 'Ask.' else 'Sign-in')).to_have_count(1)
    assert (
        await page.locator('[href^="javascript"], body [src], [onerror]').evaluate_all(
            '(all) => all.map((one) => one.outerHTML)'
        )
        == []
    )
    await page.get_by_role('button', name='Events').click()
    await page.get_by_role('complementary', name='Requests').get_by_role('group').last.click()
    await page.evaluate(f'location.hash = "#context=" + encodeURIComponent({BAD!r})')
    await expect(page.get_by_role('article', name='Task')).to_have_count(0)
    assert await page.evaluate('window.pwned') is None


@pytest.mark.parametrize('width', [1280, 390])
@pytest.mark.parametrize('scheme', ['light', 'dark'])
async def test_axe_finds_no_accessibility_violation(
    visit_url: Visit, scheme: Literal['light', 'dark'], width: int
) -> None:
    markdown = (
        '# Title\n\nA [link](https://example.com) and `code`.\n\n> quote\n\n```python\n@cache\ndef one(n: int):\n'
        '    """One."""  # a comment\n    return 1\n```\n\n```diff\n- a\n+ b\n```\n\n| a |\n|---|\n| 1 |\n'
    )
    agent = file_keeper({'Show.': [markdown]})
    app = to_a2a(
        agent,
        auth=BearerAuth({'a-long-secret-token-of-ada': 'ada'}),
        results=Results(progress=Progress(thinking=True, tools=True)),
    )
    with serve(app, allowed_hosts=['agent.test']) as server:
        page = await visit_url(
            f'{server.url}docs', failures=1, color_scheme=scheme, viewport={'width': width, 'height': 900}
        )
        await send_message(page, 'Show.')
        await expect(page.get_by_text('The server wants credentials.')).to_have_count(1)
        assert await violations(page) == []
        await page.get_by_label('Bearer token').fill('a-long-secret-token-of-ada')
        await page.keyboard.press('Enter')
        await expect(page.get_by_text('The server wants credentials.')).to_have_count(0)
        if width == 390:
            await page.get_by_role('button', name='Agent', exact=True).click()
        for text in ('Show.', 'Where?', 'Think.', 'Mail.', 'Tidy up.', 'Pizza.'):
            await send_message(page, text)
            state = {'Mail.': 'auth required', 'Tidy up.': 'input required', 'Pizza.': 'input required'}.get(text)
            await expect(page.get_by_role('article', name='Task').last).to_contain_text(text)
            await expect(page.get_by_role('status').get_by_text(state or 'completed')).to_have_count(1)
        await page.get_by_role('form', name='Question: order').get_by_role('button', name='Answer').click()
        await expect(page.get_by_role('form', name='Question: order').get_by_text('is required')).to_have_count(3)
        await page.get_by_text('look_up').click()
        await page.get_by_role('button', name='Events').click()
        await page.get_by_role('complementary', name='Requests').get_by_text('POST').first.click()
        assert await violations(page) == []


async def violations(page: Page) -> list[str]:
    results: Any = await cast('Any', Axe()).run(page)
    found = results.response['violations']
    return [f'{one["id"]}: {node["html"]}' for one in found for node in one['nodes']]


async def focus(page: Page, key: str, name: str) -> None:
    """Press a key until an element with a name has the focus."""
    for _ in range(60):
        if await page.evaluate('document.activeElement.textContent || document.activeElement.ariaLabel') == name:
            return
        await page.keyboard.press(key)
    raise AssertionError(f'{key} does not reach {name!r}')


async def test_page_works_with_keyboard_only(open_playground: Visit) -> None:
    page = await open_playground(to_a2a(file_keeper()))
    keyboard, field = page.keyboard, page.get_by_role('textbox', name='Message', exact=True)
    await expect(field).to_be_focused()
    await keyboard.type('Tidy all.')
    await keyboard.press('Enter')
    await expect(page.get_by_role('form', name='Approval')).to_have_count(2)
    await focus(page, 'Shift+Tab', 'Deny')
    await keyboard.press('Tab')
    await keyboard.type('Keep new.txt.')
    await keyboard.press('Shift+Tab')
    await keyboard.press('Space')
    form = page.get_by_role('form', name='Approval')
    await expect(form).to_have_count(1)
    await expect(form.get_by_label('path')).to_be_focused()
    await keyboard.press('Enter')
    await expect(page.get_by_text("'old.txt is deleted (force=False)'")).to_have_count(1)
    await expect(field).to_be_focused()
    await focus(page, 'Shift+Tab', 'Events')
    await keyboard.press('Enter')
    events = page.get_by_role('complementary', name='Requests')
    await expect(events.get_by_role('listitem').first).to_be_visible()
    await focus(page, 'Tab', 'Clear')
    await keyboard.press('Tab')
    await keyboard.press('Enter')
    await expect(events.locator('details[open]')).to_have_count(1)
    await page.reload()
    await focus(page, 'Shift+Tab', 'New chat')
    await focus(page, 'Shift+Tab', 'Skip to the message field')
    await keyboard.press('Enter')
    await expect(field).to_be_focused()
    assert await page.evaluate('location.hash') != '#text'
