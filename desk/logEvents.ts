import { on } from 'pg-lockstep/observe'
import type { Desk } from './desk.ts'
import { onPosition, type PositionEvent } from './positions/positionEvents.ts'

/** A line for each thing that an operator wants to see beside the requests. The function that it returns stops it. */
export function logEvents({ say }: Pick<Desk, 'say'>): () => void {
  const stops = [
    on('lease.slow', ({ key, waitedMs, heldBy }) =>
      say(`${key}: the lease is contended, ${waited(waitedMs)}${by(heldBy)}`),
    ),
    on('lock.slow', ({ keys, waitedMs }) => say(`${keys.join(', ')}: the lock is contended, ${waited(waitedMs)}`)),
    on('rollout.switchedBack', ({ reason }) => say(reason)),
    on('rollout.duplicateFound', ({ key, mode, detail }) => say(`${key}: duplicate found, ${mode}: ${detail}`)),
    onPosition((event) => {
      const line = lineOf(event)
      if (line !== undefined) say(line)
    }),
  ]
  return () => {
    for (const stop of stops) stop()
  }
}

function lineOf(event: PositionEvent): string | undefined {
  if (event.kind === 'round') {
    // One every two seconds finds nothing.
    if (event.differences === 0) return undefined
    return `reconciler: ${event.differences} differences, ${event.repairs} repairs begun, ${Math.round(event.tookMs)} ms`
  }
  return `${event.position}: ${whatHappened(event)}`
}

function whatHappened(event: Exclude<PositionEvent, { readonly kind: 'round' }>): string {
  if (event.kind === 'repaired') return 'repaired by the reconciler'
  if (event.kind === 'not repaired') return `not repaired, ${event.reason}`
  if (event.kind === 'adopted') return 'adopted, it was opened at the exchange'
  return `duplicate avoided, the ${event.path} got the position that is there`
}

function waited(ms: number): string {
  return `waited ${(ms / 1000).toFixed(2)} s`
}

function by(holder: string | undefined): string {
  return holder === undefined ? '' : `, held by ${holder}`
}
