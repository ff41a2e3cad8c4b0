import type { What } from '../history.ts'
import { element } from './markup.ts'
import type { Mark } from './scene.ts'

const EDGE = { stroke: 'var(--lane)', 'stroke-width': 1.2 }
const STROKE = { fill: 'none', stroke: 'var(--on)', 'stroke-width': 1.8, 'stroke-linecap': 'round' }
const FILLED = { fill: 'currentColor', ...EDGE }
const OPEN = { fill: 'var(--lane)', stroke: 'currentColor' }

const disc = element('circle', { r: 6.5, ...FILLED })

/** Drawn around the origin. */
const SIGNS: Readonly<Record<What, string>> = {
  asked: '',
  active: element('path', { d: 'M0-5v10', stroke: 'currentColor', 'stroke-width': 3, 'stroke-linecap': 'round' }),
  read: element('circle', { r: 4.6, ...OPEN, 'stroke-width': 2.2 }),
  wrote: element('path', { d: 'M0-7 7 0 0 7-7 0z', ...FILLED }),
  done: disc + element('path', { d: 'M-3 .3-.8 2.6 3.2-2.4', ...STROKE }),
  failed: disc + element('path', { d: 'M-2.4-2.4 2.4 2.4M2.4-2.4-2.4 2.4', ...STROKE }),
  unknown:
    disc +
    element('path', { d: 'M-2.1-1.6a2.1 2.1 0 1 1 2.9 1.9q-.8.4-.8 1.2', ...STROKE, 'stroke-width': 1.5 }) +
    element('circle', { cy: 3.9, r: 1, fill: 'var(--on)' }),
  granted: element('path', { d: 'M-4-7 6 0-4 7z', ...FILLED }),
  released: element('path', { d: 'M3-6-5 0 3 6z', ...OPEN, 'stroke-width': 1.4 }),
  took: element('path', { d: 'M-2.5-8h5v7h4L0 7.5-6.5-1h4z', ...FILLED }),
  found: element('rect', { x: -5.5, y: -5.5, width: 11, height: 11, rx: 1.5, ...FILLED }),
}

/** The sign of what happened, in the color of its operation; with a red ring where the promise is broken. */
export function drawMark({ what, isBreach }: Pick<Mark, 'what' | 'isBreach'>, x: number, y: number): string {
  const ring = element('circle', { r: 11, fill: 'var(--lane)', stroke: 'var(--red)', 'stroke-width': 2.5 })
  const place = `translate(${x.toFixed(1)} ${y.toFixed(1)})`
  return element('g', { transform: place }, `${isBreach ? ring : ''}${SIGNS[what]}`)
}
