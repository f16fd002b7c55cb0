// AG-UI's bridge. It reads only messages, and no artifacts.
import {A2AClient} from '@a2a-js/sdk/client'
import {A2AAgent} from '@ag-ui/a2a'
import {drive} from './driver.mjs'

await drive({
  stream: async (url) => {
    const initialMessages = [{id: '1', role: 'user', content: 'Go'}]
    const agent = new A2AAgent({a2aClient: new A2AClient(url), initialMessages})
    const live = []
    await agent.runAgent({}, {onTextMessageContentEvent: ({event}) => live.push(event.delta)})
    const answers = agent.messages.filter((message) => message.role === 'assistant')
    return {answer: answers.map((message) => message.content).join('\n'), live}
  },
})
