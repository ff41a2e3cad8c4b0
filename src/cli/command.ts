import type { Terminal } from './terminal.ts'

/** What may be given to a command beside its name. */
export type OptionName =
  | 'url'
  | 'schema'
  | 'driver'
  | 'json'
  | 'to'
  | 'as'
  | 'apply'
  | 'max-event-bytes'
  | 'max-ttl'
  | 'preview'
  | 'synchronous-failover'
  | 'watch'
  | 'statements'
  | 'reason'
  | 'prefix'
  | 'by'
  | 'terminate'
  | 'wait'
  | 'limit'
  | 'dispatcher'
  | 'topic'
  | 'key'
  | 'lease'
  | 'id'
  | 'error'
  | 'all'
  | 'since'
  | 'until'
  | 'newest'
  | 'payloads'
  | 'cursor'
  | 'table'
  | 'order'
  | 'payload'
  | 'headers'
  | 'sent'
  | 'finish'
  | 'from-seq'
  | 'to-seq'
  | 'from-position'
  | 'sink'
  | 'older-than'
  | 'deliver'
  | 'shards'
  | 'part'
  | 'scenario'
  | 'fault'
  | 'form'
  | 'seed'
  | 'minutes'
  | 'against'
  | 'anyway'
  | 'cluster'
  | 'asynchronous'
  | 'report'
  | 'picture'
  | 'trace'
  | 'port'
  | 'host'
  | 'operator'
  | 'token'
  | 'people'
  | 'prometheus'
  | 'data'
  | 'events-per-s'
  | 'keys'
  | 'processes'
  | 'payload-bytes'
  | 'leases-per-s'
  | 'transactions-per-s'
  | 'sink-per-s'
  | 'cores'
  | 'costs'

/** One use of a command, checked for form but not for sense. */
export interface Call {
  readonly words: readonly string[]
  readonly values: Readonly<Partial<Record<OptionName, string>>>
}

/** How a command ended, for people and for programs. */
export interface Outcome {
  readonly exitCode: number
  readonly json: { readonly ok: boolean } & Readonly<Record<string, unknown>>
  text(terminal: Terminal): string
}

/** An example line, and what it is good for. */
export interface Example {
  readonly line: string
  readonly does: string
}

export interface Command {
  readonly name: string
  /** One line of the list of commands. */
  readonly summary: string
  /** The words after the name, as help shows them. */
  readonly usage: string
  /** What help says about it alone. */
  readonly details: string
  /** At least one. */
  readonly examples: readonly Example[]
  readonly options: readonly OptionName[]
  /** What its first word may be; empty where it takes none. */
  readonly words: readonly string[]
  /** How many words of the caller's own may follow the first. Default: none. */
  readonly moreWords?: number
  /** Whether stdout is for what the command passes on: then its answer goes to stderr. Default: never. */
  fillsStdout?(call: Call): boolean
  run(call: Call): Promise<Outcome>
  /** With `--watch` instead of `run`: shows one outcome after the other until it is stopped. */
  watch?(call: Call, show: (outcome: Outcome) => void, stop: AbortSignal): Promise<void>
}
