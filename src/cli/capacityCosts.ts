/**
 * What operations of Lockstep cost one database server, for `pg-lockstep capacity --costs FILE`. `npm run bench -- cost --keep FILE` measures them, with
 * their date, machine and command.
 */
export interface CapacityCosts {
  readonly date: string
  readonly machine: string
  readonly postgres: string
  readonly command: string
  /** Of the events that were measured. */
  readonly payloadBytes: number
  /** A transaction with one event. */
  readonly event: { readonly cpuUs: number; readonly walBytes: number; readonly diskBytes: number }
  /** Each byte of payload beyond that; `readCpuUs` when it is delivered. */
  readonly payloadByte: {
    readonly cpuUs: number
    readonly walBytes: number
    readonly diskBytes: number
    readonly readCpuUs: number
  }
  /** An event that is read with many others. */
  readonly delivery: { readonly cpuUs: number; readonly walBytes: number }
  /** A look of a dispatcher; `waitMs`: from a commit to the sink, without the processor time of the server. */
  readonly look: { readonly cpuUs: number; readonly walBytes: number; readonly waitMs: number }
  /** A process that runs the dispatcher: its leases, and looking for others. */
  readonly process: { readonly cpuUsPerS: number; readonly walBytesPerS: number }
  /** For each row of another process, when a process looks who else is there. */
  readonly memberCpuUs: number
  /** A lease that is acquired and released. */
  readonly lease: { readonly cpuUs: number; readonly walBytes: number }
  /** A transaction with one lock and one UPDATE. */
  readonly transaction: { readonly cpuUs: number; readonly walBytes: number }
  /** The part of a transaction with an event in which the server waits for the client or the network. */
  readonly clientMs: number
  /** A commit on disk. */
  readonly flushMs: number
  /** What one process reads and hands to a sink that does nothing. */
  readonly readPerS: number
}

/** Every cost by its name: a file that lacks one is refused. */
export const COST_NAMES: Readonly<Record<keyof CapacityCosts, 'text' | 'number' | readonly string[]>> = {
  date: 'text',
  machine: 'text',
  postgres: 'text',
  command: 'text',
  payloadBytes: 'number',
  event: ['cpuUs', 'walBytes', 'diskBytes'],
  payloadByte: ['cpuUs', 'walBytes', 'diskBytes', 'readCpuUs'],
  delivery: ['cpuUs', 'walBytes'],
  look: ['cpuUs', 'walBytes', 'waitMs'],
  process: ['cpuUsPerS', 'walBytesPerS'],
  memberCpuUs: 'number',
  lease: ['cpuUs', 'walBytes'],
  transaction: ['cpuUs', 'walBytes'],
  clientMs: 'number',
  flushMs: 'number',
  readPerS: 'number',
}
