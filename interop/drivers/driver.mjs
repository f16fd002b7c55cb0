// What the drivers in JavaScript have in common: see driver.py.
export const EXTENSIONS = process.env.EXTENSIONS
export const CARD = '/.well-known/agent-card.json'

export async function drive(ways) {
  for (const pair of process.argv.slice(2)) {
    const [server, ...url] = pair.split('=')
    for (const [way, ask] of Object.entries(ways)) {
      let seen
      try {
        seen = await ask(url.join('='))
      } catch (error) {
        console.error(error)
        seen = {error: String(error)}
      }
      process.stdout.write(`\nSEEN ${JSON.stringify({server, way, ...seen})}\n`)
    }
  }
  process.exit(0)
}
