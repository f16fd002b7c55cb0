// Gemini CLI: what its remote agents show, by the class that assembles their results. Each state replaces the state before.
import {ClientFactory} from '@a2a-js/sdk/client'
import {A2AResultReassembler} from './node_modules/@google/gemini-cli-core/dist/src/agents/a2aUtils.js'
import {drive} from './driver.mjs'

const request = () => ({
  message: {kind: 'message', messageId: crypto.randomUUID(), role: 'user', parts: [{kind: 'text', text: 'Go'}]},
  configuration: {blocking: true},
})

await drive({
  stream: async (url) => {
    const client = await new ClientFactory().createFromUrl(url)
    const results = new A2AResultReassembler()
    const live = []
    let shown = ''
    for await (const event of client.sendMessageStream(request())) {
      results.update(event)
      const state = results.toString().replace(/^Artifact .*:\n/, '') // its heading
      live.push(state.startsWith(shown) ? state.slice(shown.length) : state)
      shown = state
    }
    return {answer: shown, live}
  },
})
