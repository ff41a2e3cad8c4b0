import { useSignal } from '@preact/signals'
import type { JSX } from 'preact'
import { useLayoutEffect, useRef } from 'preact/hooks'
import type { CardState, CardText, FaultName, SideState, TimelineEvent } from '../../../proofs/show/state.ts'
import { Code } from './code.tsx'
import { hammer, pressed, states, strike } from './live.ts'
import { PictureOf } from './pictures/picture.tsx'

const CALLERS = [10, 100, 1000]
const FAULTS: readonly (readonly [FaultName, string])[] = [
  ['kill', 'Kill a worker'],
  ['freeze', 'Freeze a worker (5 s)'],
  ['cut', 'Cut the network'],
  ['crash', 'Crash PostgreSQL'],
]

export function Card({ text }: { text: CardText }): JSX.Element {
  const state = states[text.card].value
  const showsCode = useSignal(false)
  const id = `code-${text.card}`
  return (
    <article class="card race" id={text.card} aria-labelledby={`title-${text.card}`}>
      <header class="about">
        <h2 id={`title-${text.card}`}>{text.title}</h2>
        <p>
          {text.promise} <span class="red-word">{text.red}</span>
        </p>
        <Status state={state} starting={pressed.value === text.card} />
      </header>
      <div class="sides">
        <Side text={text} form="naive" state={state} starting={pressed.value === text.card} />
        <Side text={text} form="lockstep" state={state} starting={pressed.value === text.card} />
      </div>
      <div class="buttons">
        <div class="group" role="group" aria-label={`Hammer ${text.title}: callers at once`}>
          <span class="label" aria-hidden="true">
            Hammer it
          </span>
          {CALLERS.map((callers) => (
            <button
              key={callers}
              type="button"
              class="primary"
              aria-label={`Hammer it with ${callers.toLocaleString('en')} callers`}
              onClick={() => void hammer(text.card, callers)}
            >
              {callers.toLocaleString('en')}
            </button>
          ))}
          <span class="label" aria-hidden="true">
            callers
          </span>
        </div>
        <div class="group" role="group" aria-label={`Faults for ${text.title}`}>
          {FAULTS.map(([fault, label]) => {
            const striking = state?.striking.includes(fault) === true
            return (
              <button
                key={fault}
                type="button"
                class={striking ? 'fault striking' : 'fault'}
                aria-disabled={striking}
                onClick={() => void (striking || strike(text.card, fault))}
              >
                {label}
              </button>
            )
          })}
        </div>
        <button
          type="button"
          class="code-button"
          aria-expanded={showsCode.value}
          aria-controls={id}
          onClick={() => (showsCode.value = !showsCode.value)}
        >
          {showsCode.value ? 'Hide the code' : 'Show me the code'}
        </button>
      </div>
      <Timeline title={text.title} events={state?.timeline ?? []} />
      <div id={id}>{showsCode.value && <Code text={text} />}</div>
    </article>
  )
}

function Status({ state, starting }: { state: CardState | undefined; starting: boolean }): JSX.Element {
  const [style, text] = starting ? ['note', 'Starting …'] : statusOf(state)
  return <span class={`pill status ${style}`}>{text}</span>
}

function statusOf(state: CardState | undefined): readonly [style: string, text: string] {
  if (state === undefined) return ['', 'Not run yet']
  const callers = `${state.callers.toLocaleString('en')} callers`
  if (state.phase === 'starting') return ['note', 'Starting …']
  if (state.phase === 'running')
    return ['note', `${callers} · ${(state.elapsedMs / 1000).toFixed(1)} of ${Math.round(state.ofMs / 1000)} s`]
  if (state.phase === 'settling') return ['note', 'Checking …']
  return ['good', `${callers} · ${(state.elapsedMs / 1000).toFixed(0)} s · checked`]
}

function Side({
  text,
  form,
  state,
  starting,
}: {
  text: CardText
  form: 'naive' | 'lockstep'
  state: CardState | undefined
  starting: boolean
}): JSX.Element {
  const side = state?.[form]
  const broken = side !== undefined && side.violations > 0
  const title = form === 'naive' ? 'As it is often written' : 'With Lockstep'
  return (
    <section class={`side ${form} ${broken ? 'broken' : ''}`} aria-label={`${text.title}: ${title}`}>
      <h3>
        {title} <span class="how">{text[form]}</span>
      </h3>
      <div class="picture">
        {side === undefined ? (
          <p class="nothing">
            {starting ? 'Starting PostgreSQL and three workers …' : 'Press 10, 100 or 1,000 below.'}
          </p>
        ) : (
          <PictureOf picture={side.picture} />
        )}
      </div>
      <Counters side={side} />
      <p class="example" title={exampleOf(side)}>
        {exampleOf(side)}
      </p>
    </section>
  )
}

function exampleOf(side: SideState | undefined): string {
  if (side === undefined || side.done === 0) return ' '
  // The checkers of a card are in the order of what it is about.
  const [worst] = side.broken
  return worst === undefined
    ? 'All checkers pass.'
    : `${worst.invariant} ×${worst.count.toLocaleString('en')}: ${worst.example}`
}

function Counters({ side }: { side: SideState | undefined }): JSX.Element {
  const number = (value: number | undefined): string => (value === undefined ? '–' : value.toLocaleString('en'))
  return (
    <dl class="counters">
      <div class="violations">
        <dt>violations</dt>
        <dd data-count={side?.violations ?? ''}>{number(side?.violations)}</dd>
      </div>
      <div>
        <dt>done</dt>
        <dd>{number(side?.done)}</dd>
      </div>
      <div>
        <dt>per second</dt>
        <dd>{number(side?.perSecond)}</dd>
      </div>
      <div>
        <dt>p99</dt>
        <dd>{side === undefined ? '–' : `${side.p99Ms.toLocaleString('en')} ms`}</dd>
      </div>
    </dl>
  )
}

/** The newest is last, and shown: what stands there already does not move. */
function Timeline({ title, events }: { title: string; events: readonly TimelineEvent[] }): JSX.Element {
  const box = useRef<HTMLDivElement>(null)
  useLayoutEffect(() => {
    if (box.current !== null) box.current.scrollTop = box.current.scrollHeight
  }, [events.length])
  return (
    <div class="timeline" role="log" aria-label={`What was done to ${title}`} tabIndex={0} ref={box}>
      <ol>
        {events.length === 0 ? (
          <li class="hint">What you do, and what follows, is listed here.</li>
        ) : (
          events.map(({ id, atMs, kind, text }) => (
            <li key={id} class={kind}>
              <span class="at">+{(atMs / 1000).toFixed(1)} s</span> <span>{text}</span>
            </li>
          ))
        )}
      </ol>
    </div>
  )
}
