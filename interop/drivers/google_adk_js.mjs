// Google ADK for JavaScript: a `RemoteA2AAgent`, run by ADK's own runner.
import {InMemoryRunner, RemoteA2AAgent, isFinalResponse} from '@google/adk'
import {drive} from './driver.mjs'

const read = (part) => (part.thought ? '' : (part.text ?? atob(part.inlineData?.data ?? '')))

await drive({
  stream: async (url) => {
    const agent = new RemoteA2AAgent({name: 'remote', agentCard: url})
    const runner = new InMemoryRunner({agent, appName: 'interop'})
    const {id} = await runner.sessionService.createSession({appName: 'interop', userId: 'user'})
    const newMessage = {role: 'user', parts: [{text: 'Go'}]}
    const live = []
    let answer = ''
    for await (const event of runner.runAsync({userId: 'user', sessionId: id, newMessage})) {
      const text = (event.content?.parts ?? []).map(read).join('')
      if (event.partial) live.push(text)
      else if (isFinalResponse(event)) answer += text
    }
    return {answer, live}
  },
})
