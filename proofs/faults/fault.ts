import type pg from 'pg'
import type { Cluster } from '../../tools/server/cluster.ts'
import type { Proxy } from 'pg-lockstep/testing'
import type { Random } from '../seed.ts'
import type { WorkerProcess } from '../workerProcess.ts'

/** What a fault finds before it: the workers, and the places where it can strike. */
export interface Scene {
  readonly workers: readonly WorkerProcess[]
  readonly random: Random
  readonly ttlMs: number
  /** Directly to the server, as a client without faults. */
  readonly admin: pg.Pool
  /** In front of the worker that goes through it. */
  readonly proxy: Proxy
  /** The administration of the pooler, where there is one. */
  readonly pooler: pg.Pool | undefined
  /** Only a server that is ours alone is crashed, or slowed down. */
  readonly ownServer: { restart(): Promise<void> } | undefined
  /** Servers of which one is the primary, behind one address. */
  readonly cluster: Cluster | undefined
}

/** Who was struck, and how many of its operations were in flight. */
export interface Struck {
  readonly on: string
  readonly operations: number
}

/** Something that goes wrong. It heals by itself, and `strike` returns when it has. */
export interface Fault {
  readonly name: string
  readonly about: string
  /** All clients are struck: once in a round is enough. */
  readonly rare?: true
  /** It replaces the primary of a cluster: one of this kind in a round. */
  readonly replacesPrimary?: true
  /** Why it cannot be had here; absent where it always can. */
  impossible?(place: Pick<Scene, 'pooler' | 'ownServer' | 'cluster'>): string | undefined
  strike(scene: Scene): Promise<Struck>
}

/** A worker that is running. */
export function anyWorker({ workers, random }: Scene): WorkerProcess | undefined {
  const there = workers.filter(({ running }) => running)
  return there.length === 0 ? undefined : random.pick(there)
}

export function inFlight(workers: readonly WorkerProcess[]): number {
  return workers.reduce((sum, worker) => sum + worker.inFlight, 0)
}

export const NOBODY: Struck = { on: 'nobody', operations: 0 }
