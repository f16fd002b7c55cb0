// The official JavaScript SDK, 0.3.x. It assembles nothing: the text of a stream is what its updates have, one after the other.
import {ClientFactory} from '@a2a-js/sdk/client'
import {drive} from './driver.mjs'

const read = (part) => (part.kind === 'data' ? JSON.stringify(part.data) : part.text)
const text = (artifact) => artifact.parts.map(read).join('')
const request = () => ({
  message: {kind: 'message', messageId: crypto.randomUUID(), role: 'user', parts: [{kind: 'text', text: 'Go'}]},
})
const result = (task) => task.artifacts.map(text).join('')

await drive({
  stream: async (url) => {
    const client = await new ClientFactory().createFromUrl(url)
    const live = []
    let id
    for await (const event of client.sendMessageStream(request())) {
      if (event.kind === 'task') id = event.id
      if (event.kind === 'artifact-update') live.push(text(event.artifact))
    }
    return {answer: result(await client.getTask({id})), live}
  },
  send: async (url) => {
    const client = await new ClientFactory().createFromUrl(url)
    return {answer: result(await client.sendMessage(request()))}
  },
})
