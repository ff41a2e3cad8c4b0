/**
 * `npm start`: the desk, a service in which five systems run that go wrong under concurrency, and do not here.
 *
 * This process is the supervisor. It opens the database (one of its own, or that of DATABASE_URL), makes the tables, starts the simulated
 * exchange, and then the service: in itself, or with `--processes N` in N processes on one port, of which one that dies is started again.
 *
 * **The end.** Ctrl-C and SIGTERM are only noted (stopping.ts): whatever is in progress comes to an end in its own order, traffic before
 * requests, requests before dispatchers, all of them before the database. So an initdb is finished and not cut in half. Should this
 * program be killed, nothing is left either: the server's guard stops it, and workers end when their supervisor's channel closes.
 */
import { explainStart } from './explainStart.ts'
import { openDatabase } from './openDatabase.ts'
import { OptionError, parseOptions, USAGE } from './options.ts'
import { Screen } from './screen.ts'
import { openLines, startScreen } from './startScreen.ts'
import { Stopping } from './stopping.ts'
import { supervise } from './supervise.ts'

async function main(): Promise<number> {
  const options = parseOptions(process.argv.slice(2))
  if (options === 'help') {
    console.log(USAGE)
    return 0
  }
  const screen = new Screen(process.stdout, options.quiet ? 'quiet' : options.verbose ? 'verbose' : 'usual')
  const stopping = new Stopping(screen)
  const database = await openDatabase(options, screen, stopping.signal)
  try {
    const desk = await supervise(database.url, options, (line) => screen.warn(line), stopping.signal)
    try {
      if (!options.verbose) screen.say(...openLines(desk.origin, options))
      screen.explain(...startScreen(desk.origin, database, options))
      await stopping.requested
    } finally {
      await desk.close()
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
  const explanation = error instanceof OptionError ? error.message : explainStart(error)
  console.error(explanation)
  process.exitCode = error instanceof OptionError ? 2 : 1
}
