const SECOND = 1000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE

/** A time as people say it. */
export function formatAge(ms: number | undefined): string {
  if (ms === undefined) return '?'
  if (ms < SECOND) return `${Math.round(ms)} ms`
  if (ms < MINUTE) return `${(Math.floor(ms / 100) / 10).toFixed(1)} s`
  if (ms < HOUR) return `${Math.floor(ms / MINUTE)} min ${Math.floor((ms % MINUTE) / SECOND)} s`
  return `${Math.floor(ms / HOUR)} h ${Math.floor((ms % HOUR) / MINUTE)} min`
}

/** A moment, to the second, in UTC: programs get more in `--json`. */
export function formatTime(at: Date): string {
  return at.toISOString().slice(0, 19).replace('T', ' ')
}

const UNITS = ['kB', 'MB', 'GB', 'TB'] as const

/** A number of bytes for people; a kB has 1024, as in PostgreSQL. */
export function formatSize(bytes: number): string {
  if (bytes < 1024) return count(Math.round(bytes), 'byte')
  let [size, unit] = [bytes / 1024, 0]
  while (size >= 1024 && unit < UNITS.length - 1) {
    size /= 1024
    unit++
  }
  return `${size >= 100 ? Math.round(size) : size.toFixed(1)} ${UNITS[unit]}`
}

export function count(what: number, one: string): string {
  return `${what} ${one}${what === 1 ? '' : 's'}`
}

/** On one line, and without what a terminal would obey: keys and statements can contain anything. */
export function singleLine(text: string): string {
  return text.replaceAll(/\s+/g, ' ').replaceAll(/[\p{Cc}\p{Cf}]/gu, '\uFFFD')
}

export function shorten(text: string, width: number): string {
  const characters = Array.from(text)
  return characters.length <= width ? text : `${characters.slice(0, width - 1).join('')}…`
}
