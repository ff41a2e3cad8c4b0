import type { Checker } from '../history.ts'

/** The server ended no operation with this code: it is at the beginning of a note, or in brackets as the reason of another error. */
function neverEndedBy(code: string, what: Pick<Checker, 'name' | 'promise'> & { readonly how: string }): Checker {
  const { name, promise, how } = what
  const ended = new RegExp(String.raw`(?:^|\()${code}\b`)
  return {
    name,
    promise,
    check({ scenario, entries }) {
      return entries
        .filter(({ what: end, note }) => (end === 'failed' || end === 'unknown') && ended.test(note ?? ''))
        .map(({ by, op, key, at, note }) => {
          const who = op === '' ? by : `${by} (${op})`
          const text = `${who} was ended by the server at ${key}, ${how}: ${note}`
          return { invariant: name, scenario, key, text, ops: op === '' ? [] : [op], at }
        })
    },
  }
}

export const noDeadlock = neverEndedBy('40P01', {
  name: 'no deadlock',
  promise: 'No two operations wait for each other until the server has to end one of them.',
  how: 'in a deadlock',
})

export const noSerializationFailure = neverEndedBy('40001', {
  name: 'no serialization failure',
  promise: 'No operation is ended by the server because what it read under its lock is old.',
  how: 'because of what it had read',
})
