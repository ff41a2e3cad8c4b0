import { TransactionControlError, TransactionEndedError } from '../errors.ts'
import {
  alreadyLost,
  type ControlCommand,
  refuseToEnd,
  type VirtualSession,
  type VirtualStatement,
} from '../postgres/index.ts'
import { type Control, endsOrBegins, readControls, type TransactionModes } from './controlStatement.ts'
import { isOwnSavepoint, type Scope } from './scope.ts'
import type { Isolation } from './isolation.ts'
import { accessMode, beginWith } from './transactions.sql.ts'

/** A transaction or a savepoint, as clients use it. */
interface ClientScope extends Scope {
  readonly isolation: Isolation
  nest<T>(fn: (tx: ClientScope) => Promise<T>, label: string, modes: string): Promise<T>
  begin(label: string, modes?: string): Promise<ClientScope>
}

const BEGUN = 'a transaction that was begun on a client of this tx'

/**
 * One client in the hands of a query builder. On it BEGIN opens a savepoint, COMMIT releases it and ROLLBACK rolls it back, to any depth.
 * What belongs to no such transaction belongs to the tx that the client is of.
 *
 * Its statements keep their order. One that has to wait for its turn keeps those behind it waiting; so does one that begins or ends a
 * transaction, until it is answered: only then is it certain to which scope the next one belongs.
 */
export class ClientSession implements VirtualSession {
  readonly #tx: ClientScope
  /** Whether it is one of many, which can be released. */
  readonly #isCheckout: boolean
  /** What was begun on it and not ended yet, the innermost last. */
  #begun: ClientScope[] = []
  readonly #waiting: VirtualStatement[] = []
  #busy = false
  #released = false
  /** A COMMIT has failed, and what it was to commit is rolled back already: the ROLLBACK that query builders send then does nothing. */
  #commitFailed = false
  #atEnd: (() => void)[] = []

  constructor(tx: ClientScope, isCheckout = false) {
    this.#tx = tx
    this.#isCheckout = isCheckout
  }

  assertOpen(): void {
    if (this.#released) throw alreadyReleased()
    this.#tx.assertOpen()
  }

  #assertUsable(): void {
    this.assertOpen()
    this.#tx.assertUsable()
    // postgres.js may have given a lost connection to another caller by now.
    if (this.#tx.connection.lost) throw alreadyLost()
  }

  checkout(): ClientSession {
    this.#assertUsable()
    return new ClientSession(this.#tx, true)
  }

  onEnd(cleanUp: () => void): void {
    const once = (): void => {
      forget()
      cleanUp()
    }
    const forget = this.#tx.onEnd(once)
    this.#atEnd.push(once)
  }

  release(): void {
    if (!this.#isCheckout) refuseToEnd('release')
    if (this.#released) return
    this.#released = true
    for (const statement of this.#waiting.splice(0)) statement.refuse(alreadyReleased())
    for (const cleanUp of this.#atEnd.splice(0)) cleanUp()
    const [outermost] = this.#begun
    this.#begun = []
    if (outermost !== undefined && !outermost.ended) this.#tx.settleBeforeEnd(outermost.rollBack())
  }

  submit(statement: VirtualStatement): void {
    if (this.#busy) this.#waiting.push(statement)
    else this.#handle(statement)
  }

  async nest<T>(modes: string, fn: (client: VirtualSession) => Promise<T>): Promise<T> {
    this.#assertUsable()
    const [begin] = readControls(beginWith(modes)).controls
    const access = this.#checkModes(begin?.kind === 'begin' ? begin : { unknown: modes }, modes)
    return this.#current.nest((inner) => fn(new ClientSession(inner)), BEGUN, access)
  }

  /** What the next statement belongs to. */
  get #current(): ClientScope {
    return this.#begun.at(-1) ?? this.#tx
  }

  #handle(statement: VirtualStatement): void {
    let control: Control | undefined
    try {
      control = statement.text === undefined ? undefined : this.#check(statement.text, statement.asItIs === true)
      // What has failed for good is still rolled back without another error.
      if (control?.kind === 'rollback') this.assertOpen()
      else this.#assertUsable()
    } catch (error) {
      return statement.refuse(error)
    }
    if (control === undefined) this.#send(statement)
    else void this.#carryOut(control, statement)
  }

  #next(): void {
    this.#busy = false
    while (!this.#busy) {
      const statement = this.#waiting.shift()
      if (statement === undefined) return
      this.#handle(statement)
    }
  }

  #send(statement: VirtualStatement): void {
    const scope = this.#current
    this.#commitFailed = false
    let settled = false
    const settle = (): void => {
      settled = true
      if (waits) this.#next()
    }
    let waits = false
    scope.take(
      () => {
        if (this.#released) statement.refuse(alreadyReleased())
        else this.#sendIn(scope, statement)
        settle()
      },
      (error) => {
        statement.refuse(error)
        settle()
      },
    )
    if (!settled) waits = this.#busy = true
  }

  #sendIn(scope: ClientScope, statement: VirtualStatement): void {
    const { connection } = scope
    try {
      statement.send((failure) => {
        if (failure === undefined) scope.succeeded()
        else scope.failed(connection, failure.error, () => !failure.neverSent())
      })
    } catch (error) {
      statement.refuse(error)
    }
  }

  async #carryOut(control: Control, statement: VirtualStatement): Promise<void> {
    this.#busy = true
    try {
      statement.carriedOut(await this.#change(control))
    } catch (error) {
      statement.refuse(error)
    } finally {
      this.#next()
    }
  }

  #change(control: Control): Promise<ControlCommand> {
    if (control.kind === 'begin') return this.#begin(control)
    return control.kind === 'commit' ? this.#commit() : this.#rollBack()
  }

  async #begin(modes: TransactionModes): Promise<ControlCommand> {
    this.#commitFailed = false
    const scope = this.#current
    const access = accessMode(modes.readOnly)
    const inner = await scope.whenInnermost(async () => {
      this.assertOpen()
      return scope.begin(BEGUN, access)
    })
    this.#begun.push(inner)
    if (this.#released) await inner.rollBack()
    this.assertOpen()
    return 'begin'
  }

  async #commit(): Promise<ControlCommand> {
    const scope = this.#begun.pop()
    if (scope === undefined) throw unmatched('commit')
    try {
      await scope.release()
    } catch (error) {
      this.#commitFailed = true
      throw error
    }
    return 'commit'
  }

  async #rollBack(): Promise<ControlCommand> {
    const isRepeated = this.#commitFailed
    this.#commitFailed = false
    if (isRepeated) return 'rollback'
    const scope = this.#begun.pop()
    if (scope === undefined) throw unmatched('rollback')
    await scope.rollBack()
    return 'rollback'
  }

  /** The one statement of a text that begins or ends a transaction, if it does. Throws where that cannot be done here. */
  #check(text: string, asItIs: boolean): Control | undefined {
    const { statements, controls } = readControls(text)
    for (const control of controls) {
      if (control.kind === 'savepoint' && isOwnSavepoint(control.name))
        throw refused(text, `names one of Lockstep's savepoints`)
      if (control.kind === 'setTransaction') this.#checkSetting(control, text)
      if (control.kind === 'setSession')
        throw refused(text, 'changes the transactions of every later user of the connection')
    }
    const control = controls.find(endsOrBegins)
    if (control === undefined) return undefined
    if (asItIs) throw refused(text, 'begins or ends a transaction by a query object or a cursor')
    if (statements > 1) throw refused(text, 'begins or ends a transaction among other statements')
    if (control.kind === 'twoPhase') throw refused(text, 'hands the transaction over to another session')
    if ('chain' in control && control.chain) throw refused(text, 'begins another transaction without its locks')
    if (control.kind === 'begin') this.#checkModes(control, text)
    return control
  }

  /** Refuses modes that a part of this transaction cannot have. The answer is what has to be sent for them. */
  #checkModes({ isolation, readOnly, deferrable, unknown }: TransactionModes, text: string): string {
    if (unknown !== undefined)
      throw refused(text, `asks for ${JSON.stringify(unknown)}, which a part of a transaction cannot have`)
    const own = this.#tx.isolation
    if (isolation !== undefined && isolation !== own && !(isolation === 'read committed' && own.startsWith('read')))
      throw refused(text, `asks for ${isolation}, and the transaction is ${own}`)
    if (deferrable === true) throw refused(text, 'asks to wait for a snapshot, and the transaction has one')
    return accessMode(readOnly)
  }

  #checkSetting(modes: TransactionModes, text: string): void {
    this.#checkModes(modes, text)
    if (modes.readOnly === true && this.#current.parent === undefined)
      throw refused(text, 'would make the whole transaction read only')
  }
}

function refused(text: string, why: string): TransactionControlError {
  const start = text.trim().slice(0, 60)
  return new TransactionControlError(`tx.client was given ${JSON.stringify(start)}: it ${why}. It was not sent.`, {
    advice:
      'On tx.client, BEGIN opens a savepoint of this transaction, COMMIT releases it, ROLLBACK undoes it. Lockstep itself ends the transaction: return from the function to commit, throw to roll back.',
  })
}

function unmatched(what: ControlCommand): TransactionControlError {
  return new TransactionControlError(
    `tx.client was given ${what.toUpperCase()}, and nothing was begun on this client. It was not sent.`,
    {
      advice: 'Return from the function to commit, throw to roll back.',
    },
  )
}

function alreadyReleased(): TransactionEndedError {
  return new TransactionEndedError('This client was released.', {
    advice: 'Await every query before release(); take another client with connect().',
  })
}
