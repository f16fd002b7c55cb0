"""The files that a forge and contributors read agree with the Makefile and pyproject.toml."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from .audit import verdict
from .bounds import LIMIT
from .conftest import SLOW
from .package import changelog_faults

ROOT = Path(__file__).parent.parent
GITHUB = ROOT / '.github'
WORKFLOWS = sorted(GITHUB.glob('workflows/*.yml'))
PROJECT = tomllib.loads((ROOT / 'pyproject.toml').read_text())['project']


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in load(path)['jobs'].values() for step in job.get('steps', ())]


def make(*arguments: str) -> str:
    command = ['make', '--no-print-directory', *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=True).stdout


def supported() -> dict[str, str]:
    rows = re.findall(r'^\| ([^|]+) \| ([^|]+) \|', (ROOT / 'SUPPORT.md').read_text(), re.MULTILINE)
    return {name: versions.replace('`', '') for name, versions in rows}


@pytest.mark.parametrize('path', WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_make_targets_exist(path: Path) -> None:
    targets = {*re.findall(r'^make (\w+)', make('help'), re.MULTILINE)}
    commands = [step['run'].split() for step in steps(path) if 'run' in step]
    named = {words[1] for words in commands if words[0] == 'make'}
    assert named
    assert named <= targets


@pytest.mark.parametrize('path', WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_has_minimal_permissions(path: Path) -> None:
    workflow = load(path)
    permissions = {name: job['permissions'] for name, job in workflow['jobs'].items() if 'permissions' in job}
    assert workflow['permissions'] == {'contents': 'read'}
    assert permissions == (
        {'publish': {'id-token': 'write'}, 'tag': {'contents': 'write'}} if path.stem == 'release' else {}
    )


@pytest.mark.parametrize('path', WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_jobs_have_timeouts_and_pinned_actions(path: Path) -> None:
    jobs = load(path)['jobs'].values()
    assert all('timeout-minutes' in job for job in jobs if 'steps' in job)
    actions = [step['uses'] for step in steps(path) if 'uses' in step]
    assert actions
    assert [action for action in actions if not re.fullmatch(r'[\w-]+/[\w-]+@(v\d+|release/v\d+)', action)] == []


def test_ci_runs_each_supported_python_on_linux_and_macos() -> None:
    matrix = load(GITHUB / 'workflows' / 'ci.yml')['jobs']['test']['strategy']['matrix']
    classifiers = re.findall(r"Python :: (3\.\d+)'", str(PROJECT['classifiers']))
    assert matrix == {
        'os': ['ubuntu-latest', 'macos-latest'],
        'python': classifiers,
    }
    assert supported()['Python'] == ', '.join(classifiers)


def test_support_policy_matches_project_dependencies() -> None:
    dependencies = dict(re.findall(r'^([\w-]+)(.*)$', '\n'.join(PROJECT['dependencies']), re.MULTILINE))
    assert supported()['FastA2A'] == dependencies['fasta2a']
    assert supported()['Pydantic AI'] == dependencies['pydantic-ai-slim']


def test_pre_commit_hooks_match_make_lint() -> None:
    [local] = load(ROOT / '.pre-commit-config.yaml')['repos']
    linters = [line for line in make('-n', 'lint').splitlines() if line.startswith('.venv/bin/')]
    assert local['repo'] == 'local'
    assert [hook['entry'] for hook in local['hooks']] == [
        line for line in linters if 'pip install' not in line and not line.endswith(('tests.audit', 'tests.measure'))
    ]


@pytest.mark.parametrize('path', sorted(GITHUB.glob('ISSUE_TEMPLATE/*.yml')), ids=lambda path: path.stem)
def test_issue_form_is_valid(path: Path) -> None:
    form = load(path)
    fields = [field for field in form['body'] if field['type'] != 'markdown']
    assert form['name']
    assert form['description']
    assert len({field['id'] for field in fields}) == len(fields) > 0
    assert all(field['attributes']['label'] for field in fields)


def test_classifiers_match_version_and_systems() -> None:
    values = dict(re.findall(r'^(.+) :: (.+)$', '\n'.join(PROJECT['classifiers']), re.MULTILINE))
    released = re.fullmatch(r'[\d.]+', PROJECT['version'])
    assert values['Development Status'] == ('5 - Production/Stable' if released else '4 - Beta')
    assert supported()['Operating system'] == 'Linux and macOS'
    assert {'Operating System :: POSIX :: Linux', 'Operating System :: MacOS'} <= {*PROJECT['classifiers']}


def test_release_commands_update_version_and_changelog(tmp_path: Path) -> None:
    (tmp_path / 'pyproject.toml').write_text("[project]\nversion = '0.9'\nreadme = 'README.md'\n")
    (tmp_path / 'CHANGELOG.md').write_text('# Changelog\n\n## 0.9 (unreleased)\n\n- A line.\n\n## 0.8 (2026-01-01)\n')
    lines = [line.strip() for line in (ROOT / 'RELEASING.md').read_text().splitlines()]
    edits = [line for line in lines if line.startswith(('export ', 'perl '))]
    subprocess.run(['bash', '-euc', '\n'.join(edits)], cwd=tmp_path, check=True, timeout=LIMIT)
    changelog = (tmp_path / 'CHANGELOG.md').read_text()
    assert (tmp_path / 'pyproject.toml').read_text() == "[project]\nversion = '1.0.0rc2'\nreadme = 'README.md'\n"
    assert [*changelog_faults(changelog, '1.0.0rc1')] == []
    assert re.findall('^#.*', changelog, re.MULTILINE)[:2] == ['# Changelog', '## 1.0.0rc2 (unreleased)']
    assert changelog.endswith('\n\n- A line.\n\n## 0.8 (2026-01-01)\n')


def test_changelog_begins_with_project_version() -> None:
    assert re.findall(r'^## (\S+)', (ROOT / 'CHANGELOG.md').read_text(), re.MULTILINE)[0] == PROJECT['version']


# --- the audit of dependencies: what is a finding, and that it is never silent about what it did not see

CLEAN: dict[str, Any] = {'name': 'starlette', 'version': '1.0', 'vulns': []}
KNOWN: dict[str, Any] = {
    **CLEAN,
    'vulns': [{'id': 'PYSEC-1', 'fix_versions': ['1.1']}, {'id': 'PYSEC-2', 'fix_versions': []}],
}
SKIPPED = {'name': 'httpx', 'skip_reason': 'not found'}
OURS = {'name': 'pydantic-ai-a2a', 'skip_reason': 'not found'}


@pytest.mark.parametrize(
    ('dependencies', 'statuses', 'said'),
    [
        ([CLEAN, OURS], (0, 0), 'No known vulnerabilities.'),
        (
            [KNOWN, SKIPPED],
            (1, 1),
            'Known vulnerabilities:\nstarlette 1.0: PYSEC-1, fixed in 1.1\nstarlette 1.0: PYSEC-2, fixed in no version',
        ),
        (
            [CLEAN, SKIPPED, OURS],
            (0, 1),
            'NOT AUDITED for known vulnerabilities: 1 unknown packages (httpx).',
        ),
        (
            None,
            (0, 1),
            'NOT AUDITED for known vulnerabilities: the service of pip-audit cannot be reached.',
        ),
    ],
    ids=['clean', 'known', 'unknown', 'unreachable'],
)
def test_audit_reports_vulnerable_and_unaudited_packages(
    dependencies: list[object] | None, statuses: tuple[int, int], said: str
) -> None:
    output = '' if dependencies is None else json.dumps({'dependencies': dependencies})
    outcomes = [verdict(output, required=required) for required in (False, True)]
    assert outcomes == [(status, said) for status in statuses]


def test_core_and_slow_tests_exist() -> None:
    lists = 'eval "$(sed -n \'/^core=(/,/^)/p; /^newer=(/p\' .ci/core)"; printf \'%s\\n\' "${core[@]}" "${newer[@]}"'
    core = subprocess.run(['bash', '-c', lists], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    assert len(core) > 15
    paths = [*core, *(test.partition('::')[0] for test in SLOW)]
    assert [path for path in paths if not (ROOT / path).exists()] == []
