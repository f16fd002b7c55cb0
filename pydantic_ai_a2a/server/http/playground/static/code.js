// Code with colors.

import './vendor/purify.js';
import hljs from './vendor/highlight.js';
import bash from './vendor/highlight-bash.js';
import diff from './vendor/highlight-diff.js';
import javascript from './vendor/highlight-javascript.js';
import json from './vendor/highlight-json.js';
import python from './vendor/highlight-python.js';
import yaml from './vendor/highlight-yaml.js';

const RULES = { ALLOWED_TAGS: ['span'], ALLOWED_ATTR: ['class'], RETURN_DOM_FRAGMENT: true };

for (const [name, grammar] of Object.entries({ bash, diff, javascript, json, python, yaml })) hljs.registerLanguage(name, grammar);
hljs.registerAliases(['ts', 'tsx', 'typescript'], { languageName: 'javascript' });
hljs.registerAliases(['shell', 'console'], { languageName: 'bash' });

// Return code with colors as a fragment, or as plain text if the language is not known.
export function colored(code, language) {
  if (!language || !hljs.getLanguage(language)) return code;
  return globalThis.DOMPurify.sanitize(hljs.highlight(code, { language, ignoreIllegals: true }).value, RULES);
}
