import { signal, type Signal } from '@preact/signals'

/** What of a tab stands in the address, so that what is seen can be linked to. */
interface Kept {
  readonly tab: string
  readonly name: string
  /** Not worth mentioning. */
  readonly usual: string
  readonly value: Signal<string>
}

const kept: Kept[] = []
/** Browsers complain about an address that changes with every key. */
const WRITE_AFTER_MS = 300
let writing: ReturnType<typeof setTimeout> | undefined

/** The tab and what is said about it. */
function read(): readonly [tab: string, params: URLSearchParams] {
  const [tab = '', params = ''] = location.hash.replace(/^#/, '').split('?', 2)
  return [tab, new URLSearchParams(params)]
}

/** A filter, an order or a search of a tab. The same name is the same state. */
export function addressState(tab: string, name: string, usual = ''): Signal<string> {
  const known = kept.find((each) => each.tab === tab && each.name === name)
  if (known !== undefined) return known.value
  const [current, params] = read()
  const value = signal((current === tab ? params.get(name) : null) ?? usual)
  kept.push({ tab, name, usual, value })
  let first = true
  value.subscribe(() => {
    if (first) first = false
    else {
      clearTimeout(writing)
      writing = setTimeout(() => stateAddress(read()[0]), WRITE_AFTER_MS)
    }
  })
  return value
}

/** Writes the states of a tab into the address. */
export function stateAddress(tab: string): void {
  const [current, params] = read()
  if (current !== tab) return
  for (const { name, usual, value } of kept.filter((each) => each.tab === tab)) {
    if (value.peek() === usual) params.delete(name)
    else params.set(name, value.peek())
  }
  const text = params.toString()
  const hash = `#${tab}${text === '' ? '' : `?${text}`}`
  if (location.hash !== hash) history.replaceState(history.state, '', hash)
}

/** Takes the states of a tab from the address. */
export function restoreAddress(tab: string): void {
  clearTimeout(writing)
  const [, params] = read()
  for (const { name, usual, value } of kept.filter((each) => each.tab === tab)) value.value = params.get(name) ?? usual
}
