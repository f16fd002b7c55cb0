"""lowest.py EXTRA,...: the lowest versions of the dependencies of the package and its extras, as constraints."""

import re
import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path('pyproject.toml').read_text())['project']
extras = project['optional-dependencies']
requirements = [*project['dependencies'], *(each for name in sys.argv[1].split(',') for each in extras[name])]
lowest = dict(re.findall(r'^([\w-]+)(?:\[.*?\])?>=([\w.]+)', '\n'.join(requirements), re.MULTILINE))
print('\n'.join(f'{name}=={version}' for name, version in lowest.items()))
