/** Yours looks a session or an API key up. */
const USERS = { 'key-of-alice': 'alice', 'key-of-bob': 'bob' }

/** The verified user of a request. */
export function userOf(request) {
  const user = USERS[request.headers.get('authorization')?.replace(/^Bearer /, '')]
  if (user === undefined) throw new Error('Refuse requests without a user before this: see proxy.js.')
  return user
}

export function isKnown(request) {
  return request.headers.get('authorization')?.replace(/^Bearer /, '') in USERS
}
