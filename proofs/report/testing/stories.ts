import type { Entry, FaultEntry, Form, History, Violation, What } from '../../history.ts'

/** A history, in milliseconds. */
export class Story {
  readonly #entries: Entry[] = []
  readonly #faults: FaultEntry[] = []
  readonly scenario: string
  readonly key: string

  constructor(scenario: string, key: string) {
    this.scenario = scenario
    this.key = key
  }

  /** `w1.7` is an operation of w1. */
  tell(ms: number, op: string, what: What, value?: string | number, more: Partial<Entry> = {}): this {
    const by = op.split('.')[0] ?? ''
    const told = value === undefined ? {} : { value }
    this.#entries.push({ at: ms * 1000, by, scenario: this.scenario, op, what, key: this.key, ...told, ...more })
    return this
  }

  fault(from: number, until: number, fault: string, on: string): this {
    this.#faults.push({ at: from * 1000, until: until * 1000, fault, on, struck: 2 })
    return this
  }

  history(form: Form = 'naive'): History {
    const entries = this.#entries.toSorted((one, other) => one.at - other.at)
    return { scenario: this.scenario, form, entries, faults: this.#faults }
  }
}

export interface Telling {
  readonly history: History
  readonly violation: Violation
}

/** Two workers both read 5 and both received 6. */
export function lostUpdate(): Telling {
  const story = new Story('wallet', 'Wallet:3')
    .tell(100, 'w1.7', 'asked')
    .tell(101, 'w1.7', 'read', 5)
    .tell(103, 'w1.7', 'wrote', 6)
    .tell(105, 'w1.7', 'done', 6)
    .tell(100.5, 'w2.4', 'asked')
    .tell(102, 'w2.4', 'read', 5)
    .tell(106, 'w2.4', 'wrote', 6)
    .tell(108, 'w2.4', 'done', 6)
  return {
    history: story.history(),
    violation: violationOf(story, 'w1.7 and w2.4 both received 6', ['w1.7', 'w2.4'], 108),
  }
}

/** A holder that was stopped writes after the next one was granted. */
export function lateHolder(): Telling {
  const story = new Story('lease', 'Report')
    .tell(0, 'w1.1', 'asked')
    .tell(2, 'w1.1', 'granted', undefined, { fence: '7' })
    .tell(3, 'w1.1', 'active')
    .tell(30, 'w1.1', 'active')
    .fault(40, 2040, 'stopped', 'w1')
    .tell(10, 'w2.1', 'asked')
    .tell(900, 'w2.1', 'granted', undefined, { fence: '8' })
    .tell(901, 'w2.1', 'active')
    .tell(2041, 'w1.1', 'active')
    .tell(2042, 'w1.1', 'wrote', 'A')
    .tell(2044, 'w1.1', 'took', 'A', { by: 'outside' })
    .tell(2050, 'w1.1', 'released')
    .tell(2051, 'w1.1', 'done')
    .tell(2100, 'w2.1', 'active')
    .tell(2101, 'w2.1', 'released')
    .tell(2102, 'w2.1', 'done')
    .tell(9000, '', 'found', 'A', { by: 'database' })
  return {
    history: story.history(),
    violation: violationOf(story, 'w1.1 and w2.1 held Report at once', ['w1.1', 'w2.1'], 2044),
  }
}

export function violationOf({ scenario, key }: Story, text: string, ops: readonly string[], ms: number): Violation {
  return { invariant: 'mutual exclusion', scenario, key, text, ops, at: ms * 1000 }
}
