// The official JavaScript SDK, 1.x. It assembles nothing: the text of a stream is what its updates have, one after the other.
import {ClientFactory} from '@a2a-js/sdk/client'
import {EXTENSIONS, drive} from './driver.mjs'

const read = ({content}) => (content.$case === 'data' ? JSON.stringify(content.value) : content.value)
const text = (artifact) => artifact.parts.map(read).join('')
const message = () => ({
  messageId: crypto.randomUUID(),
  contextId: '',
  taskId: '',
  role: 1,
  parts: [{content: {$case: 'text', value: 'Go'}, metadata: undefined, filename: '', mediaType: ''}],
  metadata: undefined,
  extensions: [],
  referenceTaskIds: [],
})
const request = () => ({tenant: '', message: message(), configuration: undefined, metadata: undefined})
const serviceParameters = EXTENSIONS ? {'A2A-Extensions': EXTENSIONS} : undefined
const result = (task) => task.artifacts.map(text).join('')

await drive({
  stream: async (url) => {
    const client = await new ClientFactory().createFromUrl(url)
    const live = []
    let id
    for await (const {payload} of client.sendMessageStream(request(), {serviceParameters})) {
      if (payload.$case === 'task') id = payload.value.id
      if (payload.$case === 'artifactUpdate') live.push(text(payload.value.artifact))
    }
    return {answer: result(await client.getTask({tenant: '', id})), live}
  },
  send: async (url) => {
    const client = await new ClientFactory().createFromUrl(url)
    const {payload, ...task} = await client.sendMessage(request())
    return {answer: result(payload?.value ?? task)}
  },
})
