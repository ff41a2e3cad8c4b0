import type { Checker, History, Violation } from '../history.ts'
import { foundThings } from './foundKeys.ts'
import { listAt, numberOf, type Operation, operationsOf, outcomeOf } from './operations.ts'
import { counted, handful, listed, ms, named } from './wording.ts'

/** An increment that received the new value of the register. */
interface Increment extends Operation {
  readonly value: number
  readonly endAt: number
}

/** All that is known of one register, which began at 0. */
interface Register {
  readonly done: Increment[]
  readonly failed: Operation[]
  readonly open: Operation[]
  final: number
  lookedAt: number
}

interface Finding {
  readonly text: string
  readonly operations: readonly Operation[]
  readonly at: number
}

/**
 * There is an order of all increments in which each made the register one more, that keeps what was over before something else was
 * asked before it, and that ends where the register stands. For increments that receive the new value this can be decided fully: the
 * values are the order, and a value that no increment received must be the work of those with an unknown outcome.
 */
export const linearizableRegister: Checker = {
  name: 'linearizable register',
  promise:
    'Increments have happened one after the other: none is lost, none counts twice, and none that failed counts.',
  check(history) {
    const violations: Violation[] = []
    for (const [key, register] of registersOf(history)) {
      const byValue = new Map<number, Increment[]>()
      for (const increment of register.done) listAt(byValue, increment.value).push(increment)
      for (const { text, operations, at } of [
        ...lostUpdates(key, byValue),
        ...wentBack(key, register, byValue),
        ...neverThere(key, register),
        ...countedWrongly(key, register, byValue),
      ]) {
        const ops = handful(operations.map(({ id }) => id))
        violations.push({ invariant: this.name, scenario: history.scenario, key, text, ops, at })
      }
    }
    return violations
  },
}

function registersOf(history: History): Map<string, Register> {
  const registers = new Map<string, Register>()
  const at = (key: string): Register => {
    let register = registers.get(key)
    if (register === undefined) {
      registers.set(key, (register = { done: [], failed: [], open: [], final: 0, lookedAt: 0 }))
    }
    return register
  }
  for (const operation of operationsOf(history).values()) {
    const { end } = operation
    const register = at(operation.key)
    const outcome = outcomeOf(operation)
    if (outcome !== 'done') register[outcome].push(operation)
    else if (end !== undefined) register.done.push({ ...operation, value: numberOf(end), endAt: end.at })
  }
  for (const entry of foundThings(history)) {
    Object.assign(at(entry.key), { final: numberOf(entry), lookedAt: entry.at })
  }
  return registers
}

function lostUpdates(key: string, byValue: ReadonlyMap<number, Increment[]>): Finding[] {
  return [...byValue].flatMap(([value, operations]) => {
    if (operations.length < 2) return []
    const text = `lost update: ${listed(operations.map(named))} each received ${key} ${value}`
    return [{ text, operations, at: operations.at(-1)?.endAt ?? 0 }]
  })
}

/** An increment that asks after another one received its value receives a higher one. */
function wentBack(key: string, { done }: Register, byValue: ReadonlyMap<number, Increment[]>): Finding[] {
  const findings: Finding[] = []
  const byEnd = done.toSorted((one, other) => one.endAt - other.endAt)
  let ended = 0
  let highest: Increment | undefined
  for (const increment of done.toSorted((one, other) => one.askedAt - other.askedAt)) {
    for (let next = byEnd[ended]; next !== undefined && next.endAt < increment.askedAt; next = byEnd[++ended]) {
      if (highest === undefined || next.value > highest.value) highest = next
    }
    // A value that two received is a lost update, and reported already.
    if (highest === undefined || highest.value <= increment.value || byValue.get(increment.value)?.length !== 1)
      continue
    const text = `went back: ${named(increment)} made ${key} ${increment.value}, but asked for it after ${named(highest)} received ${highest.value}`
    findings.push({ text, operations: [highest, increment], at: increment.endAt })
  }
  return findings
}

/** Values that no register has, and those that this one, as it stands, never had. */
function neverThere(key: string, { done, final, lookedAt }: Register): Finding[] {
  const findings: Finding[] = []
  if (final < 0 || !Number.isInteger(final)) {
    const text = `went back: ${key} stands at ${final}, where no increment leaves it`
    findings.push({ text, operations: [], at: lookedAt })
  }
  const wrong = done.filter(({ value }) => value < 1 || !Number.isInteger(value))
  for (const increment of wrong) {
    const text = `went back: ${named(increment)} received ${key} ${increment.value}, which no increment makes`
    findings.push({ text, operations: [increment], at: increment.endAt })
  }
  const gone = done.filter(({ value }) => value > final)
  const first = gone[0]
  if (first !== undefined) {
    const others = gone.length === 1 ? '' : `; ${counted(gone.length - 1, 'other')} went the same way`
    const text = `lost update: ${named(first)} received ${key} ${first.value}, and it stands at ${final}${others}`
    findings.push({ text, operations: gone, at: first.endAt })
  }
  return findings
}

/** Values that no increment received must have been made by those with an unknown outcome, each of them once and after it was asked. */
function countedWrongly(key: string, register: Register, byValue: ReadonlyMap<number, Increment[]>): Finding[] {
  const { done, failed, open, final, lookedAt } = register
  const makers = open.toSorted((one, other) => one.askedAt - other.askedAt)
  const deadlines = deadlinesOf(done)
  // Two that received the same value may have made two.
  let spare = done.length - byValue.size
  let [above, used] = [0, 0]
  for (let value = 1; value <= final; value++) {
    if (byValue.has(value)) continue
    while ((deadlines[above]?.value ?? Infinity) < value) above++
    const deadline = deadlines[above]?.at
    const maker = makers[used]
    if (maker !== undefined && maker.askedAt <= (deadline ?? Infinity)) used++
    else if (spare > 0) spare--
    else {
      const blame = failed.length > 0 ? 'counted although it failed' : 'counted more than once'
      const known = `${counted(done.length, 'increment')} done, ${open.length} of unknown end and ${failed.length} failed`
      const at = deadline ?? lookedAt
      const text =
        maker === undefined
          ? `${blame}: ${key} stands at ${final}, after ${known}`
          : `${blame}: ${key} was ${value} before ${ms(at)}, when no operation of unknown end was left that had asked: ${known}`
      const distance = ({ end }: Operation): number => Math.abs((end?.at ?? at) - at)
      return [{ text, operations: failed.toSorted((one, other) => distance(one) - distance(other)), at }]
    }
  }
  return []
}

/** For each value that was received, in ascending order, when it or a higher one was received first: all below was there by then. */
function deadlinesOf(done: readonly Increment[]): { readonly value: number; readonly at: number }[] {
  let at = Infinity
  return done
    .toSorted((one, other) => other.value - one.value)
    .map(({ value, endAt }) => ({ value, at: (at = Math.min(at, endAt)) }))
    .toReversed()
}
