/** Yours looks a session or an API key up. */
const USERS = new Map([
  ['key-of-alice', 'alice'],
  ['key-of-bob', 'bob'],
])

const find = (request) => USERS.get(request.headers.get('authorization')?.replace(/^Bearer /, ''))

/** The verified user of a request. */
export function userOf(request) {
  const user = find(request)
  if (user === undefined) throw new Error('Refuse requests without a user before this: see proxy.js.')
  return user
}

export function isKnown(request) {
  return find(request) !== undefined
}
