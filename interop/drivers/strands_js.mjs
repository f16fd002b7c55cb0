// Strands Agents for TypeScript: an `A2AAgent`, which always asks for a stream.
import {A2AAgent} from '@strands-agents/sdk/a2a'
import {drive} from './driver.mjs'

await drive({
  stream: async (url) => {
    const events = new A2AAgent({url}).stream('Go')
    const live = []
    let next
    while (!(next = await events.next()).done) {
      const event = next.value.event
      if (event?.kind === 'artifact-update') live.push(...event.artifact.parts.map((part) => part.text ?? ''))
    }
    return {answer: next.value.toString(), live}
  },
})
