/**
 * Accounts in several databases, and transfers between them.
 *
 * No transaction spans two databases. A transfer commits the debit and an event in one database; a dispatcher takes the event to the other
 * database, which credits the account and moves its inbox in one transaction. If the account does not exist there, the money travels back
 * the same way. A process can be killed at any moment: each debit has exactly one credit or one refund in the end.
 *
 * An account has an origin server, found by a hash of its name, and can be moved. The origin then forwards what arrives for it.
 */
import { createHash } from 'node:crypto'
import type pg from 'pg'
import { lockRows, Lockstep, type OutboxEvent, type Transaction } from 'pg-lockstep'
import { postgresSink } from 'pg-lockstep/postgres-sink'

export interface Database {
  /** Part of the topics, and of what is stored: it never changes. */
  readonly name: string
  readonly pool: pg.Pool
}

export interface Transfer {
  readonly id: string
  readonly from: string
  readonly to: string
  readonly amount: number
}

/** What travels between databases. All of it is about one account, which is the key of its stream. */
type Message =
  | { readonly kind: 'credit'; readonly transfer: Transfer; readonly sender: string }
  | { readonly kind: 'refund'; readonly transfer: Transfer }
  | { readonly kind: 'move'; readonly balance: number }

interface Shard extends Database {
  readonly lockstep: Lockstep
}

type Tx = Transaction

const TABLES = `
  CREATE TABLE IF NOT EXISTS accounts (id text PRIMARY KEY, balance integer NOT NULL CHECK (balance >= 0), moved_to text);
  CREATE TABLE IF NOT EXISTS entries (place bigserial PRIMARY KEY, transfer text NOT NULL, account text NOT NULL, amount integer NOT NULL)`
const READ = 'SELECT balance, moved_to FROM accounts WHERE id = $1'
const ADD = 'UPDATE accounts SET balance = balance + $2 WHERE id = $1'
const NOTE = 'INSERT INTO entries (transfer, account, amount) VALUES ($1, $2, $3)'
const LEAVE = 'UPDATE accounts SET balance = 0, moved_to = $2 WHERE id = $1'
const ARRIVE = `
  INSERT INTO accounts (id, balance) VALUES ($1, $2)
  ON CONFLICT (id) DO UPDATE SET balance = EXCLUDED.balance, moved_to = NULL`

export class Bank {
  readonly #shards: readonly Shard[]

  constructor(databases: readonly Database[]) {
    this.#shards = databases.map(({ name, pool }) => ({
      name,
      pool,
      lockstep: new Lockstep(pool) as unknown as Lockstep,
    }))
  }

  async migrate(): Promise<void> {
    for (const { lockstep, pool } of this.#shards) {
      await lockstep.migrate()
      await pool.query(TABLES)
    }
  }

  async open(account: string, balance: number): Promise<void> {
    await this.#homeOf(account).pool.query('INSERT INTO accounts (id, balance) VALUES ($1, $2)', [account, balance])
  }

  /** Debits at once. The credit follows, at once if the account is in the same database. */
  async transfer(transfer: Transfer): Promise<void> {
    const { from, to, amount } = transfer
    for (let shard = this.#homeOf(from); ;) {
      const next = await shard.lockstep.transaction({}, async (tx) => {
        await lockAccounts(tx, [from, to])
        const account = await read(tx, from)
        if (account === undefined) throw new Error(`The account ${from} does not exist, or is being moved.`)
        if (account.moved_to !== null) return this.#shardNamed(account.moved_to)
        if (account.balance < amount) throw new Error(`The account ${from} has less than ${amount}.`)
        await book(tx, transfer.id, from, -amount)
        const home = this.#homeOf(to)
        const message: Message = { kind: 'credit', transfer, sender: shard.name }
        if (home === shard) await this.#receive(shard, tx, to, message)
        else await send(tx, home, to, message)
        return undefined
      })
      if (next === undefined) return
      shard = next
    }
  }

  /** Moves an account to another database. Transfers to it are forwarded, in order, behind the move. */
  async move(account: string, destination: string): Promise<void> {
    const target = this.#shardNamed(destination)
    for (let shard = this.#homeOf(account); shard !== target;) {
      const next = await shard.lockstep.transaction({}, async (tx) => {
        await lockAccounts(tx, [account])
        const found = await read(tx, account)
        if (found === undefined) throw new Error(`The account ${account} does not exist, or is being moved.`)
        if (found.moved_to !== null) return this.#shardNamed(found.moved_to)
        await tx.query(LEAVE, [account, target.name])
        await send(tx, target, account, { kind: 'move', balance: found.balance })
        return target
      })
      shard = next
    }
  }

  /** Delivers between all databases until the signal. Every process can run it: they share the work. */
  async run(options: { readonly signal: AbortSignal }): Promise<void> {
    const pairs = this.#shards.flatMap((from) => this.#shards.filter((to) => to !== from).map((to) => ({ from, to })))
    await Promise.all(
      pairs.map(({ from, to }) =>
        from.lockstep.outbox
          .dispatcher({ name: `to-${to.name}`, topics: [topicTo(to)], shards: 4, sink: this.#sinkBetween(from, to) })
          .run(options),
      ),
    )
  }

  /** Sends everything that one database keeps for another once more. Nothing counts twice. */
  async replay(from: string, to: string): Promise<number> {
    const [source, target] = [this.#shardNamed(from), this.#shardNamed(to)]
    const { events } = await source.lockstep.outbox.replay({
      sink: this.#sinkBetween(source, target),
      topic: topicTo(target),
    })
    return events
  }

  async close(): Promise<void> {
    await Promise.all(this.#shards.map(({ lockstep }) => lockstep.close()))
  }

  /** The position of each stream is committed with its effect, so that what comes again has no effect. */
  #sinkBetween(from: Shard, to: Shard): ReturnType<typeof postgresSink> {
    const receive = (tx: Tx, account: string, message: Message): Promise<void> =>
      this.#receive(to, tx, account, message)
    return postgresSink({
      lockstep: to.lockstep,
      consumer: `from-${from.name}`,
      async handleMany(tx, events: readonly OutboxEvent[]) {
        const messages = events.map(({ key: account, payload }) => ({ account, message: payload as Message }))
        await lockAccounts(tx, messages.flatMap(accountsOf))
        for (const { account, message } of messages) await receive(tx, account, message)
      },
    })
  }

  async #receive(here: Shard, tx: Tx, account: string, message: Message): Promise<void> {
    if (message.kind === 'move') {
      await tx.query(ARRIVE, [account, message.balance])
      return
    }
    const found = await read(tx, account)
    if (found !== undefined && found.moved_to !== null) {
      await send(tx, this.#shardNamed(found.moved_to), account, message)
    } else if (found !== undefined) {
      await book(tx, message.transfer.id, account, message.transfer.amount)
    } else if (message.kind === 'credit') {
      await this.#refund(here, tx, message.transfer)
    } else {
      throw new Error(`The account ${account} is gone, and its refund came back.`)
    }
  }

  /** The account to credit does not exist. */
  async #refund(here: Shard, tx: Tx, transfer: Transfer): Promise<void> {
    const home = this.#homeOf(transfer.from)
    const message: Message = { kind: 'refund', transfer }
    if (home === here) await this.#receive(here, tx, transfer.from, message)
    else await send(tx, home, transfer.from, message)
  }

  /** The same in every process, whatever has been moved. */
  #homeOf(account: string): Shard {
    const hash = createHash('sha256').update(account).digest().readUInt32BE(0)
    return this.#shards[hash % this.#shards.length] as Shard
  }

  #shardNamed(name: string): Shard {
    const shard = this.#shards.find((each) => each.name === name)
    if (shard === undefined) throw new Error(`There is no database ${name}.`)
    return shard
  }
}

function topicTo({ name }: Shard): string {
  return `to-${name}`
}

async function send(tx: Tx, to: Shard, account: string, payload: Message): Promise<void> {
  await tx.enqueue({ topic: topicTo(to), key: account, payload })
}

/** In one order, so that transfers and deliveries never wait for each other in a circle. */
async function lockAccounts(tx: Tx, accounts: readonly string[]): Promise<void> {
  await lockRows(tx, 'accounts', [...new Set(accounts)], { columns: ['id'], allowMissing: true })
}

/** Those that a message can change: its own, and the sender's if it is refunded here. */
function accountsOf({ account, message }: { account: string; message: Message }): string[] {
  return message.kind === 'credit' ? [account, message.transfer.from] : [account]
}

async function read(tx: Tx, account: string): Promise<{ balance: number; moved_to: string | null } | undefined> {
  const { rows } = await tx.query<{ balance: number; moved_to: string | null }>(READ, [account])
  return rows[0]
}

async function book(tx: Tx, transfer: string, account: string, amount: number): Promise<void> {
  await tx.query(ADD, [account, amount])
  await tx.query(NOTE, [transfer, account, amount])
}
