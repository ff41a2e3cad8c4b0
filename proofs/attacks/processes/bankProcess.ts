/**
 * A process of the bank in examples/two-databases: it delivers between the databases, and transfers until it is asked to stop. Arguments: the urls,
 * separated by commas, how many accounts there are, and a name.
 */
import pg from 'pg'
import { Bank } from '../../../examples/two-databases/bank.ts'
import { random } from '../../seed.ts'
import { quiet } from '../client.ts'
import { DATABASES, nameOfAccount } from '../twoDatabases.sql.ts'

const [urls, count, name] = process.argv.slice(2) as [string, string, string]
const WORKERS = 4
const accounts = Number(count)
const bank = new Bank(
  urls.split(',').map((connectionString, place) => ({
    name: DATABASES[place] as string,
    pool: quiet(new pg.Pool({ connectionString, max: 8 })),
  })),
)

const transferring = new AbortController()
process.on('message', () => transferring.abort())

const delivering = bank.run({ signal: new AbortController().signal })
delivering.catch((error: unknown) => {
  process.send?.({ failed: String(error) })
  process.exit(1)
})

async function work(worker: number): Promise<void> {
  const drawn = random(process.pid, name, worker)
  for (let n = 0; !transferring.signal.aborted; n++) {
    // Some accounts do not exist: their money has to come back.
    const to = nameOfAccount(drawn.below(accounts + 3))
    const from = nameOfAccount(drawn.below(accounts))
    if (from === to) continue
    try {
      if (drawn.chance(0.01)) await bank.move(from, drawn.pick(DATABASES))
      else await bank.transfer({ id: `${name}-${worker}-${n}`, from, to, amount: 1 + drawn.below(9) })
      process.send?.({ done: 1 })
    } catch {
      // No money, an account on its way, a server that is down: the books say in the end whether anything was lost.
    }
  }
}

await Promise.all(Array.from({ length: WORKERS }, (_, worker) => work(worker)))
process.send?.({ stopped: true })
