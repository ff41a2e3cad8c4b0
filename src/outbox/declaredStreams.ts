import { InvalidOptionError, NestedTransactionError, StrategyUnsupportedError } from '../errors.ts'
import { nameOf, type Stream } from '../events/index.ts'
import type { LockSet } from '../locks/index.ts'
import type { StatementResult } from '../postgres/index.ts'
import type { CallToPlan, PlannedPart, Planner } from '../transactions/index.ts'
import { lastNumbers, numbersIn } from './declaredStreams.sql.ts'
import type { StreamNumbers } from './flush.ts'
import { locksOfStreams } from './streamLocks.ts'

const MAX_STREAMS = 100

/** Reads the option `streams` of a transaction. */
export function streamsPlanner(quotedSchema: string): Planner {
  return {
    option: 'streams',
    plan(given, call) {
      const streams = checkStreams(given, call)
      return streams.length === 0 ? undefined : new DeclaredStreams(quotedSchema, call.schema, streams)
    },
  }
}

/** The streams that a call declares: locked from the beginning, and counted before the snapshot where there is one. */
export class DeclaredStreams implements PlannedPart<StreamNumbers | undefined> {
  readonly locks: LockSet
  readonly #quotedSchema: string
  readonly #streams: readonly Stream[]

  constructor(quotedSchema: string, schema: string, streams: readonly Stream[]) {
    this.locks = locksOfStreams(schema, streams)
    this.#quotedSchema = quotedSchema
    this.#streams = streams
  }

  beforeSnapshot(): string {
    return lastNumbers(this.#quotedSchema, this.#streams)
  }

  /** At READ COMMITTED numbers are read when they are needed. */
  accept(results: readonly StatementResult[]): StreamNumbers | undefined {
    const last = numbersIn(results)
    return last && new Map(this.#streams.map((stream, index) => [nameOf(stream), last[index] ?? 0]))
  }

  refuseUnlessCovered(outer: readonly PlannedPart[], keys: readonly string[]): void {
    const declared = outer.find((part) => part instanceof DeclaredStreams)
    const names = new Set(declared === undefined ? [] : declared.#streams.map(nameOf))
    const undeclared = this.#streams.find((stream) => !names.has(nameOf(stream)))
    if (undeclared === undefined) return
    throw new NestedTransactionError(
      `The inner transaction declares the stream ${undeclared.topic}/${undeclared.key}, which the outer one does not.`,
      { advice: 'Declare every stream in the outermost transaction.', keys },
    )
  }
}

function checkStreams(given: unknown, { isolation, method }: CallToPlan): readonly Stream[] {
  const streams = new Map<string, Stream>()
  for (const each of Array.isArray(given) ? (given as unknown[]) : [undefined]) {
    const { topic, key } = (each ?? {}) as Partial<Stream>
    if (typeof topic !== 'string' || typeof key !== 'string') {
      throw new InvalidOptionError('`streams` is not a list of { topic, key }.', {
        advice: "Pass for example streams: [{ topic: 'trades', key: portfolioId }].",
      })
    }
    streams.set(nameOf({ topic, key }), { topic, key })
  }
  if (streams.size > MAX_STREAMS) {
    throw new InvalidOptionError(`${streams.size} streams in one transaction are more than ${MAX_STREAMS}.`, {
      advice: 'At READ COMMITTED streams need not be declared.',
    })
  }
  if (!method.heldBySession && streams.size > 0) {
    throw new StrategyUnsupportedError(
      `With strategy '${method.name}' streams cannot be declared at ${isolation.toUpperCase()}.`,
      {
        advice: "Use READ COMMITTED without `streams`, or strategy 'advisory'.",
      },
    )
  }
  return [...streams.values()]
}
