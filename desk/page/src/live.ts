import { batch, signal, type Signal } from '@preact/signals'
import type { CardName, CardState, CardText, FaultName, Frame } from '../../../proofs/show/state.ts'

/** What the cards are about: in the page itself, so that nothing moves when the rest comes. */
export const texts = JSON.parse(document.getElementById('cards')?.textContent ?? '[]') as readonly CardText[]

/** The newest state of each card; undefined before its first run. */
export const states = Object.fromEntries(
  texts.map(({ card }) => [card, signal<CardState | undefined>(undefined)]),
) as Record<CardName, Signal<CardState | undefined>>

export const connection = signal<'connecting' | 'live' | 'lost'>('connecting')

/** The card that was pressed and has not begun yet. */
export const pressed = signal<CardName | undefined>(undefined)

/** Why something that was pressed was refused. */
export const refusal = signal('')

/** People who asked for less motion get one picture a second. */
const REDUCED_MS = 1000
const reduced = matchMedia('(prefers-reduced-motion: reduce)')
const waiting = new Map<CardName, CardState>()
let timer: ReturnType<typeof setTimeout> | undefined

function show(): void {
  timer = undefined
  batch(() => {
    for (const [card, state] of waiting) states[card].value = state
  })
  waiting.clear()
}

function receive({ cards }: Frame): void {
  connection.value = 'live'
  for (const state of cards) {
    waiting.set(state.card, state)
    if (state.card === pressed.peek() && state.phase !== 'idle') pressed.value = undefined
  }
  if (!reduced.matches) show()
  else timer ??= setTimeout(show, REDUCED_MS)
}

/** Connects, and stays connected. To be called once. */
export function watch(): void {
  const source = new EventSource('/show/stream')
  source.addEventListener('message', (event: MessageEvent<string>) => receive(JSON.parse(event.data) as Frame))
  source.addEventListener('error', () => (connection.value = 'lost'))
}

async function post(path: string, body: object): Promise<void> {
  try {
    const answer = await fetch(path, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    })
    if (!answer.ok) pressed.value = undefined
    refusal.value = answer.ok
      ? ''
      : (((await answer.json()) as { detail?: string }).detail ?? `The desk refused it with ${answer.status}.`)
  } catch {
    pressed.value = undefined
    refusal.value = 'The desk does not answer.'
  }
}

export function hammer(card: CardName, callers: number): Promise<void> {
  pressed.value = card
  return post(`/show/cards/${card}/hammer`, { callers })
}

export function strike(card: CardName, fault: FaultName): Promise<void> {
  if (states[card].peek()?.phase !== 'running') pressed.value = card
  return post(`/show/cards/${card}/faults/${fault}`, {})
}
