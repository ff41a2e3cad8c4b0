import type { Driver } from './connection.ts'
import type { Finding } from './doctorFinding.ts'

/** Whether a connection attempt that is never answered occupies a connection of the pool forever. */
export function connects({ connects: { option, limitMs, silenceMs, watched } }: Driver): Finding {
  const name = 'connects'
  if (watched) {
    return {
      name,
      level: 'ok',
      found: `connection attempts are given up after ${silenceMs} ms without an answer`,
      advice: '',
    }
  }
  if (limitMs === Infinity) {
    return {
      name,
      level: 'fail',
      found:
        'nothing ends a connection attempt that is never answered: after a network failure it occupies a connection of the pool forever',
      advice: `Set \`${option}\` in the options of the pool.`,
    }
  }
  const found = `the driver gives up connection attempts after ${limitMs} ms without an answer`
  if (limitMs <= silenceMs) return { name, level: 'ok', found, advice: '' }
  return {
    name,
    level: 'warn',
    found: `${found}, later than silenceMs: ${silenceMs}`,
    advice: `Set \`${option}\` in the options of the pool: after a network failure the pool recovers sooner.`,
  }
}
