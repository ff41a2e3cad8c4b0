const SECOND = 1000
const MINUTE = 60 * SECOND
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR

/** How long something lasts, in the two units that matter. */
export function duration(ms: number): string {
  const whole = Math.max(0, Math.round(ms))
  if (whole < SECOND) return `${whole} ms`
  if (whole < 10 * SECOND) return `${(whole / SECOND).toFixed(1)} s`
  if (whole < MINUTE) return `${Math.floor(whole / SECOND)} s`
  if (whole < HOUR) return `${Math.floor(whole / MINUTE)} min ${Math.floor((whole % MINUTE) / SECOND)} s`
  if (whole < DAY) return `${Math.floor(whole / HOUR)} h ${Math.floor((whole % HOUR) / MINUTE)} min`
  return `${Math.floor(whole / DAY)} d ${Math.floor((whole % DAY) / HOUR)} h`
}

/** The same where it is counted by the second: nothing below it flickers. */
export function seconds(ms: number): string {
  return ms < MINUTE ? `${Math.max(0, Math.floor(ms / SECOND))} s` : duration(ms)
}

const whole = new Intl.NumberFormat('en-US', { maximumFractionDigits: 0 })
const tenths = new Intl.NumberFormat('en-US', { maximumFractionDigits: 1 })

export function number(value: number): string {
  return Math.abs(value) < 10 ? tenths.format(value) : whole.format(value)
}

/** `1 shard`, `2 shards`. */
export function count(value: number, one: string, many = `${one}s`): string {
  return `${whole.format(value)} ${value === 1 ? one : many}`
}

export function bytes(value: number): string {
  if (value < 1024) return `${whole.format(value)} B`
  for (const [unit, size] of [
    ['kB', 1024],
    ['MB', 1024 ** 2],
    ['GB', 1024 ** 3],
  ] as const) {
    if (value < size * 1024 || unit === 'GB') return `${number(value / size)} ${unit}`
  }
  return ''
}

const time = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' })
const date = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', year: 'numeric' })

/** The time of day here; with the date where that is another one. */
export function clock(at: number | string, now = Date.now()): string {
  const moment = new Date(at)
  const today = new Date(now).toDateString() === moment.toDateString()
  return today ? time.format(moment) : `${date.format(moment)}, ${time.format(moment)}`
}
