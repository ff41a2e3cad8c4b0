/** What `pg` takes with a query to turn texts of the server into values. */
export interface PgTypes {
  getTypeParser(oid: number, format?: string): (value: string) => unknown
}

/** `query()` of a client of `pg`, with a callback or without. */
export type Query = (...given: unknown[]) => unknown

/**
 * The same client, with the parsers of an ORM. An ORM gives them to the connections that it opens; the connections of Lockstep are from
 * the caller's pool, which may have others. Objects that write to the wire by themselves, as cursors, have parsers of their own.
 */
export function withParsers(client: object, types: PgTypes): object {
  return withQuery(client, (query, given) => query(...parsed(given, types)))
}

/** The same client with another `query()`. What is set on it, the client keeps. */
export function withQuery(client: object, run: (query: Query, given: readonly unknown[]) => unknown): object {
  const query = (client as { query: Query }).query.bind(client)
  const own: Query = (...given) => run(query, given)
  return new Proxy(client, { get: (target, name) => (name === 'query' ? own : (Reflect.get(target, name) as unknown)) })
}

function parsed([first, ...rest]: readonly unknown[], types: PgTypes): unknown[] {
  if (typeof first === 'string') {
    const [values] = rest
    return Array.isArray(values)
      ? [{ text: first, values, types }, ...rest.slice(1)]
      : [{ text: first, types }, ...rest]
  }
  if (typeof first !== 'object' || first === null || 'submit' in first) return [first, ...rest]
  return [{ types, ...first }, ...rest]
}
