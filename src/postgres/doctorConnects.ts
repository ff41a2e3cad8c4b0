import type { Driver } from './connection.ts'
import type { Finding } from './doctorFinding.ts'

/** Whether a connect that is never answered takes its place in the pool for ever. */
export function connects({ connects: { option, limitMs, silenceMs, watched } }: Driver): Finding {
  const name = 'connects'
  if (watched) {
    return { name, level: 'ok', found: `connects are given up after ${silenceMs} ms without an answer`, advice: '' }
  }
  if (limitMs === Infinity) {
    return {
      name,
      level: 'fail',
      found:
        'nothing ends a connect that is never answered: after a silent network its place in the pool is taken for ever',
      advice: `Set \`${option}\` in the options of the pool.`,
    }
  }
  const found = `the driver gives connects up after ${limitMs} ms without an answer`
  if (limitMs <= silenceMs) return { name, level: 'ok', found, advice: '' }
  return {
    name,
    level: 'warn',
    found: `${found}, later than silenceMs: ${silenceMs}`,
    advice: `Set \`${option}\` in the options of the pool: after a silent network it comes back that much sooner.`,
  }
}
