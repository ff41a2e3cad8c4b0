import type { What } from '../history.ts'
import { proportionalWidth } from './labels.ts'
import { EDGE, PAD } from './layout.ts'
import { drawMark } from './marks.ts'
import { element, textLine } from './markup.ts'
import type { Scene } from './scene.ts'

const SIZE = 12
const ROW = 22

const MEANINGS: readonly [What, string][] = [
  ['granted', 'granted'],
  ['released', 'released'],
  ['read', 'read'],
  ['wrote', 'wrote'],
  ['done', 'done'],
  ['failed', 'failed'],
  ['unknown', 'outcome unknown'],
  ['took', 'taken outside'],
  ['found', 'found in the end'],
]

/** Explains only what is in the picture. */
export function drawLegend(scene: Scene, top: number): { markup: string; bottom: number } {
  const bars = scene.lanes.flatMap((lane) => lane.bars)
  const marks = scene.lanes.flatMap((lane) => [...lane.marks, ...lane.bars.flatMap((bar) => bar.marks)])
  const box = (attributes: Readonly<Record<string, string | number>>) => (x: number, y: number) =>
    element('rect', { x: x - 2, y: y - 6, width: 20, height: 12, rx: 3, ...attributes })
  const operation = { fill: 'currentColor', 'fill-opacity': 0.17, stroke: 'currentColor' }
  const items: [string, number, (x: number, y: number) => string][] = []
  if (bars.length > 0) items.push(['operation', 24, box(operation)])
  if (bars.some(({ to }) => to === undefined))
    items.push(['end unknown', 24, box({ ...operation, 'stroke-dasharray': '3 2' })])
  if (bars.some(({ holds }) => holds.length > 0)) items.push(['sure that it holds', 24, box({ fill: 'currentColor' })])
  for (const [what, meaning] of MEANINGS) {
    if (marks.some((mark) => mark.what === what))
      items.push([meaning, 15, (x, y) => drawMark({ what, isBreach: false }, x + 5, y)])
  }
  if (scene.faults.length + scene.lanes.flatMap(({ faults }) => faults).length > 0)
    items.push(['fault', 24, box({ fill: 'var(--fault)', opacity: 0.4 })])
  if (scene.together !== undefined) items.push(['all hold at once', 24, box({ fill: 'var(--red)', opacity: 0.35 })])
  if (bars.some(({ part }) => part === undefined) && bars.some(({ part }) => part !== undefined))
    items.push(['pale: others at the same time', 0, () => ''])
  let [x, y] = [PAD, top]
  const drawn = items.map(([meaning, room, sign]) => {
    const width = room + proportionalWidth(meaning, SIZE)
    if (x + width > EDGE) [x, y] = [PAD, y + ROW]
    const item = sign(x, y) + textLine(x + room, y + 4, SIZE, meaning, 'muted')
    x += width + 12
    return item
  })
  return { markup: element('g', { style: 'color:var(--muted)' }, drawn.join('') || ' '), bottom: y }
}
