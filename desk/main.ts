/**
 * `npm start`: what Lockstep is for, seen with your own eyes.
 *
 * Two real processes race for one wallet on a real PostgreSQL: without a lock, with Lockstep's, and the same at SERIALIZABLE.
 * Nothing is staged: the numbers are what the wallet holds afterwards. Then the server stays, so that you can look around in it.
 *
 * **The end.** Ctrl-C and SIGTERM are only noted (stopping.ts): whatever is under way comes to an end in its own order, racers
 * before server. So an initdb is finished and not cut in half. Should this program be killed, nothing is left either: the
 * server's guard stops it, and racers end when their parent's channel closes.
 */
import { parseOptions, USAGE, WrongOption } from './options.ts'
import { explainStart } from './explainStart.ts'
import { openDatabase } from './openDatabase.ts'
import { nextSteps } from './nextSteps.ts'
import { Screen } from './screen.ts'
import { holds, meaning, resultTable } from './results.ts'
import { runShow } from './show.ts'
import { Stopping } from './stopping.ts'

async function main(): Promise<number> {
  const options = parseOptions(process.argv.slice(2))
  if (options === 'help') {
    console.log(USAGE)
    return 0
  }
  const screen = new Screen(process.stdout)
  const stopping = new Stopping(screen)
  const database = await openDatabase(options, screen, stopping.signal)
  try {
    const results = await runShow(database.url, options, screen, stopping.signal)
    screen.say('', resultTable(results), '', ...meaning(results))
    const good = holds(results)
    if (!good || options.once) return good ? 0 : 1
    screen.say('', ...nextSteps(database))
    if (database.kind === 'ours') {
      screen.say('', `The server runs until you press Ctrl-C. Its data stays in ${database.dataDir}.`)
      await stopping.requested
    }
    return 0
  } catch (error) {
    if (!stopping.signal.aborted) throw error
    return stopping.exitCode
  } finally {
    await database.close()
    if (stopping.signal.aborted) screen.say('Stopped. Nothing is left running.')
  }
}

try {
  process.exitCode = await main()
} catch (error) {
  const explanation = error instanceof WrongOption ? error.message : explainStart(error)
  console.error(explanation)
  process.exitCode = error instanceof WrongOption ? 2 : 1
}
