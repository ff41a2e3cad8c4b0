import { checkOptions, type OptionNames } from '../checkOptions.ts'
import { InvalidOptionError } from '../errors.ts'
import { nameOf } from '../events/index.ts'
import { checkSeq, checkStream, type InboxStream } from './event.ts'

/** One delivery, as a receiver saw it. */
export interface SeenEvent extends InboxStream {
  readonly seq: number
  /** Where it is known: a number that comes again with another one is another event. */
  readonly id?: string | undefined
}

/** Numbers that never came, though a larger one did: from `from` to `to`. */
export interface Gap extends InboxStream {
  readonly from: number
  readonly to: number
}

/** A number that came again. */
export interface Duplicate extends InboxStream {
  readonly seq: number
}

/** A number that came for the first time after a larger one. */
export interface Inversion extends InboxStream {
  readonly seq: number
  /** The largest that had come by then. */
  readonly after: number
}

/** A number that came again with another id. */
export interface Divergence extends InboxStream {
  readonly seq: number
  readonly id: string
  /** The id that it came with first. */
  readonly knownId: string
}

/** How many of a kind were found, and the first of them. */
export interface Findings<Example> {
  readonly count: number
  readonly examples: readonly Example[]
}

/** What a `StreamVerifier` has seen. */
export interface StreamReport {
  /** No gap, no inversion, no divergence. Duplicates are allowed: what is delivered at least once may come twice. */
  readonly inOrder: boolean
  readonly streams: number
  /** Deliveries, those of duplicates included. */
  readonly events: number
  /** `count` is the number of ranges, `missing` that of the numbers in them. */
  readonly gaps: Findings<Gap> & { readonly missing: number }
  readonly duplicates: Findings<Duplicate>
  readonly inversions: Findings<Inversion>
  readonly divergences: Findings<Divergence>
  /**
   * How many gaps were forgotten, because a stream had too many at once. They stay reported as gaps; a number of theirs that came after
   * all was counted as a duplicate and not as an inversion.
   */
  readonly forgottenGaps: number
}

/** Options of a `StreamVerifier`. All bounds are for each stream. */
export interface StreamVerifierOptions {
  /**
   * `'first'`: a stream starts with its first number in the input, as in a part of a log. Default 1: missing numbers before it are a gap.
   */
  readonly start?: 1 | 'first'
  /** How many examples of each kind are kept. Default 10. */
  readonly examples?: number
  /** How many gaps can be open at once before the oldest is dropped. Default 1,000. */
  readonly openGaps?: number
  /** How many of the newest numbers keep their id. An older number that occurs again is not compared. Default 100. */
  readonly ids?: number
}

const VERIFIER_OPTIONS: OptionNames<StreamVerifierOptions> = { start: true, examples: true, openGaps: true, ids: true }

/** What is known of a stream. */
interface StreamMemory extends InboxStream {
  /** What has come: borders of ranges in order, first and last number of each. One range more than there are gaps. */
  readonly ranges: number[]
  readonly ids: Map<number, string>
}

/**
 * Reads deliveries and finds what is wrong with them, in memory that does not grow with their number: for each stream what has come as
 * a list of ranges, of which there is one where nothing is missing.
 *
 * @example
 * const verifier = new StreamVerifier()
 * for await (const event of consumed) verifier.see(event)
 * if (!verifier.report().inOrder) throw new Error('the order was broken')
 */
export class StreamVerifier {
  readonly #streams = new Map<string, StreamMemory>()
  readonly #fromOne: boolean
  readonly #openGaps: number
  readonly #ids: number
  readonly #forgotten: GapList
  readonly #duplicates: Found<Duplicate>
  readonly #inversions: Found<Inversion>
  readonly #divergences: Found<Divergence>
  readonly #examples: number
  #events = 0

  constructor(options: StreamVerifierOptions = {}) {
    checkOptions('new StreamVerifier()', options, VERIFIER_OPTIONS)
    const { start = 1, examples = 10, openGaps = 1000, ids = 100 } = options
    if (start !== 1 && start !== 'first') {
      throw new InvalidOptionError(`start is ${String(start)}.`, { advice: "Use 1 or 'first'." })
    }
    this.#fromOne = start === 1
    this.#examples = checkBound('examples', examples, 0)
    this.#openGaps = checkBound('openGaps', openGaps, 1)
    this.#ids = checkBound('ids', ids, 0)
    this.#forgotten = new GapList(examples)
    this.#duplicates = new Found(examples)
    this.#inversions = new Found(examples)
    this.#divergences = new Found(examples)
  }

  /** Takes one delivery, in the order in which they came. */
  see(event: SeenEvent): void {
    const { topic, key } = checkStream(event)
    const { seq, id } = event
    checkSeq('seq', seq)
    this.#events++
    const stream = this.#streamOf(topic, key)
    const { ranges, ids } = stream
    const max = ranges.at(-1) ?? 0
    if (seq <= max && contains(ranges, seq)) {
      const knownId = ids.get(seq)
      if (id === undefined || knownId === undefined || sameId(knownId, id)) this.#duplicates.add({ topic, key, seq })
      else this.#divergences.add({ topic, key, seq, id, knownId })
      return
    }
    if (seq < max) this.#inversions.add({ topic, key, seq, after: max })
    insert(ranges, seq)
    if (id !== undefined && this.#ids > 0) remember(ids, seq, id, this.#ids)
    this.#boundGaps(stream)
  }

  /** What was found so far. Gaps are those that are open now: what comes late closes its gap, and was an inversion. */
  report(): StreamReport {
    const gaps = new GapList(this.#examples, this.#forgotten)
    for (const stream of this.#streams.values()) {
      for (let gap = 0; gap + 2 < stream.ranges.length; gap += 2) gaps.add(stream, gap)
    }
    const [duplicates, inversions, divergences] = [this.#duplicates, this.#inversions, this.#divergences]
    return {
      inOrder: gaps.count + inversions.count + divergences.count === 0,
      streams: this.#streams.size,
      events: this.#events,
      gaps: { ...gaps.told(), missing: gaps.missing },
      duplicates: duplicates.told(),
      inversions: inversions.told(),
      divergences: divergences.told(),
      forgottenGaps: this.#forgotten.count,
    }
  }

  #streamOf(topic: string, key: string): StreamMemory {
    const name = nameOf({ topic, key })
    let stream = this.#streams.get(name)
    if (stream === undefined) {
      // As if #0 had come: what is missing before the first one is then a gap like any other.
      stream = { topic, key, ranges: this.#fromOne ? [0, 0] : [], ids: new Map() }
      this.#streams.set(name, stream)
    }
    return stream
  }

  #boundGaps(stream: StreamMemory): void {
    if (stream.ranges.length / 2 - 1 <= this.#openGaps) return
    this.#forgotten.add(stream, 0)
    stream.ranges.splice(1, 2)
  }
}

/** Findings of one kind, as they are made. */
class Found<Example> {
  count = 0
  readonly #limit: number
  readonly #examples: Example[]

  constructor(limit: number, before?: Findings<Example>) {
    this.#limit = limit
    this.count = before?.count ?? 0
    this.#examples = [...(before?.examples ?? [])]
  }

  add(example: Example): void {
    this.count++
    if (this.#examples.length < this.#limit) this.#examples.push(example)
  }

  told(): Findings<Example> {
    return { count: this.count, examples: [...this.#examples] }
  }
}

/** Gaps, by their place among a stream's ranges. */
class GapList {
  missing: number
  readonly #found: Found<Gap>

  constructor(limit: number, before?: GapList) {
    this.missing = before?.missing ?? 0
    this.#found = new Found(limit, before?.told())
  }

  get count(): number {
    return this.#found.count
  }

  add({ topic, key, ranges }: StreamMemory, place: number): void {
    const from = (ranges[place + 1] as number) + 1
    const to = (ranges[place + 2] as number) - 1
    this.missing += to - from + 1
    this.#found.add({ topic, key, from, to })
  }

  told(): Findings<Gap> {
    return this.#found.told()
  }
}

/** The place of the last range that begins at or before the number; -2 where none does. */
function rangeBefore(ranges: readonly number[], seq: number): number {
  let [low, high] = [0, ranges.length / 2]
  while (low < high) {
    const middle = (low + high) >>> 1
    if ((ranges[2 * middle] as number) <= seq) low = middle + 1
    else high = middle
  }
  return 2 * (low - 1)
}

function contains(ranges: readonly number[], seq: number): boolean {
  const place = rangeBefore(ranges, seq)
  return place >= 0 && seq <= (ranges[place + 1] as number)
}

/** Adds a number that is in none of the ranges. */
function insert(ranges: number[], seq: number): void {
  const place = rangeBefore(ranges, seq)
  const next = place + 2
  const followsRange = place >= 0 && ranges[place + 1] === seq - 1
  const precedesRange = ranges[next] === seq + 1
  if (followsRange && precedesRange) ranges.splice(place + 1, 2)
  else if (followsRange) ranges[place + 1] = seq
  else if (precedesRange) ranges[next] = seq
  else ranges.splice(next, 0, seq, seq)
}

function remember(ids: Map<number, string>, seq: number, id: string, limit: number): void {
  ids.set(seq, id)
  if (ids.size <= limit) return
  for (const oldest of ids.keys()) {
    ids.delete(oldest)
    break
  }
}

/** Uuids are the same in capitals. */
function sameId(one: string, other: string): boolean {
  return one === other || one.toLowerCase() === other.toLowerCase()
}

function checkBound(name: string, value: number, least: number): number {
  if (Number.isSafeInteger(value) && value >= least) return value
  throw new InvalidOptionError(`${name} is ${String(value)}.`, { advice: `Use a whole number from ${least} on.` })
}
