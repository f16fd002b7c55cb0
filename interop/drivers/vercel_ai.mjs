// Vercel AI SDK: the provider a2a-ai-provider, whose models are remote agents.
import {a2a} from 'a2a-ai-provider'
import {generateText, streamText} from 'ai'
import {CARD, drive} from './driver.mjs'

await drive({
  stream: async (url) => {
    const result = streamText({model: a2a(url + CARD), prompt: 'Go', onError: ({error}) => console.error(error)})
    const live = []
    for await (const text of result.textStream) live.push(text)
    return {answer: await result.text, live}
  },
  send: async (url) => ({answer: (await generateText({model: a2a(url + CARD), prompt: 'Go'})).text}),
})
